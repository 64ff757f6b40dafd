//! Memory of processes, and the time of a start.

use super::local::principal;
use crate::{
    agent::{BOARD_ITEMS, append_digest, create_task, put_facts, update_todos},
    generator::closed_count,
    process::{Embedder, Server, Site, resident_bytes, signing_keys},
    report::Measured,
    stats::{Plan, paired, quantile, ratio},
};
use anyhow::{Result, ensure};
use std::{cell::Cell, time::Duration};
use strata_api::working::v1::GetTaskRequest;
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

/// Boards of the two processes whose reads are compared.
const FEW: u64 = 1_000;
const MANY: u64 = 100_000;
/// Ten seconds in blocks of some 50 ms.
const READING: Plan = Plan { warm_up: 500, block: 200, time: Duration::from_secs(10), rest: Duration::ZERO };

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

/// A working process with so many boards.
struct Filled {
    _server: Server,
    channel: RpcChannel,
    identity: CallIdentity,
    boards: u64,
}

impl Filled {
    async fn start(site: &Site, boards: u64) -> Result<Self> {
        let keys = signing_keys();
        let server = Server::working_alone(site, &keys).await?;
        let signer = Signer::new(SharedKeys::new(KeyRing::parse(&keys)?), Ports::system());
        let channel = signer.sign(crate::process::connect(&server.url)?);
        let identity = CallIdentity::new(principal()?, None).writing(Level::Task, 1);
        let made = closed_count(MAKERS, boards, |number| {
            let (channel, mut identity) = (channel.clone(), identity.clone());
            async move {
                let (user, task) = names(number);
                identity.user = Some(user_id(&user)?);
                WorkingMemoryServiceClient::new(channel).create_task(signed(create_task(&user, &task), &identity)).await?;
                Ok(())
            }
        })
        .await;
        let why = made.failure.unwrap_or_else(|| "limit reached".into());
        ensure!(made.failed + made.refused == 0, "boards are refused: {why}");
        Ok(Self { _server: server, channel, identity, boards })
    }

    /// Reads the board that stands at this place of all.
    async fn read(&self, place: u64) -> Result<()> {
        let (user, task) = names(place % self.boards);
        let mut identity = self.identity.clone();
        identity.user = Some(user_id(&user)?);
        let request = GetTaskRequest { user_id: user, task_id: task, ..GetTaskRequest::default() };
        WorkingMemoryServiceClient::new(self.channel.clone()).get_task(signed(request, &identity)).await?;
        Ok(())
    }
}

/// `get_task_growth`: what a hundred times as many boards do to the slowest hundredth of `GetTask`.
pub async fn growth(site: &Site) -> Result<Measured> {
    let (few, many) = (Filled::start(site, FEW).await?, Filled::start(site, MANY).await?);
    pause(SETTLE).await;
    // Boards far from one another, so that none is warm because its neighbour was read.
    let place = Cell::new(0_u64);
    let next = || {
        place.set(place.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
        place.get() >> 24
    };
    let both = paired(READING, async || many.read(next()).await, async || few.read(next()).await).await?;
    let note = format!(
        "GetTask of a board picked anew each time, one hop over TCP, of {MANY} boards; the other side: of {FEW} boards in a process of its own, in the same run; p99 {:.0} us and {:.0} us",
        both.ours.p99().unwrap_or(f64::NAN),
        both.raw.p99().unwrap_or(f64::NAN)
    );
    let mut measured = Measured::alone(&both.ours, note);
    (measured.raw_p50_us, measured.spread) = (both.raw.p50(), both.spread());
    measured.ratio = ratio(both.ours.p99(), both.raw.p99());
    Ok(measured)
}

fn names(number: u64) -> (String, String) {
    (format!("user-{}", number / 50), format!("task-{number}"))
}

fn user_id(user: &str) -> Result<UserId, Status> {
    UserId::new(user).map_err(|fault| Status::internal(fault.message))
}

async fn board(channel: RpcChannel, mut identity: CallIdentity, number: u64) -> Result<(), Status> {
    let (user, task) = names(number);
    identity.user = Some(user_id(&user)?);
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
