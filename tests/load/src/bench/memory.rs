//! Memory of processes, and the time of a start.

use super::local::principal;
use crate::{
    agent::{BOARD_ITEMS, append_digest, create_task, put_facts, update_todos},
    generator::closed_count,
    process::{Embedder, Server, Site, resident_bytes, signing_keys},
    report::Measured,
    stats::quantile,
};
use anyhow::{Result, ensure};
use std::time::Duration;
use strata_api::working::v1::working_memory_service_client::WorkingMemoryServiceClient;
use strata_core::{UserId, id::Level};
use strata_runtime::{
    CallIdentity, Ports, RpcChannel,
    ports::{Stopwatch, pause},
    signing::{KeyRing, SharedKeys, Signer},
};
use tonic::{Request, Status};

/// Starts measured; the median counts.
const STARTS: usize = 3;
/// Time for a process to settle after its start.
const SETTLE: Duration = Duration::from_secs(2);
/// Boards before the measurement: they pay for threads, buffers and connections.
const FIRST: u64 = 500;
/// Boards measured.
const BOARDS: u64 = 100_000;
/// Fewer boards than this in the time there is tell nothing.
const FEWEST: u64 = 20_000;
/// Time to make them.
const MAKING: Duration = Duration::from_secs(75);
/// Boards being made at a time.
const MAKERS: usize = 64;

/// `start_to_ready`: from the start of the process to SERVING.
pub async fn start(site: &Site) -> Result<Measured> {
    let mut seconds = Vec::new();
    for _ in 0..STARTS {
        let server = Server::all_in_one(site, Embedder::Builtin).await?;
        seconds.push(server.ready.as_secs_f64());
        server.stop();
    }
    let all: Vec<String> = seconds.iter().map(|s| format!("{s:.2}")).collect();
    let note = format!(
        "all in one with the built-in model, empty stores, from spawn to SERVING by the health service; starts: {} s",
        all.join(", ")
    );
    Ok(Measured::amount(quantile(&mut seconds, 0.5).unwrap_or(f64::NAN), STARTS as u64, note))
}

/// Resident memory of an idle process, in megabytes.
pub async fn idle(pid: u32, what: &str) -> Result<Measured> {
    pause(SETTLE).await;
    Ok(Measured::amount(resident_bytes(pid)? as f64 / 1e6, 1, what))
}

/// `board_memory`: what a board adds to the resident memory of a working process. The calls are signed here, as a router
/// signs them, because a router in front would only make them slower.
pub async fn boards(site: &Site) -> Result<Measured> {
    let keys = signing_keys();
    let server = Server::working_alone(site, &keys).await?;
    let signer = Signer::new(SharedKeys::new(KeyRing::parse(&keys)?), Ports::system());
    // Several connections: one has room for a limited number of calls.
    let channels: Vec<RpcChannel> =
        (0..4).map(|_| crate::process::connect(&server.url).map(|c| signer.sign(c))).collect::<Result<_>>()?;
    let identity = CallIdentity::new(principal()?, None).writing(Level::Task, 1);
    let make = |number: u64| {
        let channel = channels[(number % channels.len() as u64) as usize].clone();
        let identity = identity.clone();
        async move { board(channel, identity, number).await }
    };
    let first = closed_count(MAKERS, FIRST, make).await;
    ensure!(first.failed + first.refused == 0, "boards are refused: {}", first.failure.unwrap_or_else(|| "limit reached".into()));
    let before = resident_bytes(server.pid())?;
    let watch = Stopwatch::start();
    let mut made = 0;
    while made < BOARDS && watch.elapsed() < MAKING {
        let some = 500.min(BOARDS - made);
        let run = closed_count(MAKERS, some, |number| make(FIRST + made + number)).await;
        ensure!(run.failed + run.refused == 0, "boards are refused: {}", run.failure.unwrap_or_else(|| "limit reached".into()));
        made += some;
    }
    pause(SETTLE).await;
    let after = resident_bytes(server.pid())?;
    server.stop();
    ensure!(made >= FEWEST, "only {made} boards in {} s", MAKING.as_secs());
    let grown = after.saturating_sub(before) as f64;
    let note = format!(
        "{made} boards in a working process with embedded checkpoints, goal 80 B, 10 facts and todos of 40 B, 10 digests of 120 B, written without \
         request ids; resident memory grew by {:.0} MB",
        grown / 1e6
    );
    Ok(Measured::amount(grown / made as f64, made, note))
}

async fn board(channel: RpcChannel, mut identity: CallIdentity, number: u64) -> Result<(), Status> {
    let (user, task) = (format!("user-{}", number / 50), format!("task-{number}"));
    identity.user = Some(UserId::new(user.as_str()).map_err(|fault| Status::internal(fault.message))?);
    let mut working = WorkingMemoryServiceClient::new(channel);
    working.create_task(signed(create_task(&user, &task), &identity)).await?;
    working.put_facts(signed(put_facts(&user, &task), &identity)).await?;
    working.update_todos(signed(update_todos(&user, &task), &identity)).await?;
    for digest in 0..BOARD_ITEMS {
        working.append_digest(signed(append_digest(&user, &task, digest), &identity)).await?;
    }
    Ok(())
}

fn signed<T>(message: T, identity: &CallIdentity) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(identity.clone());
    request
}
