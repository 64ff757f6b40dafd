//! Session memory on Redis, through the router, four processes: over the same commands sent plainly and two echo hops.

use crate::{
    agent::{Agent, user_turn},
    echo::EchoRequest,
    process::{Cluster, EchoServers, Site},
    raw::redis::{Monitor, Plain, script},
    report::Measured,
    stats::{Plan, paired},
};
use anyhow::{Context as _, Result, ensure};
use prost::Message as _;
use redis::{Client, aio::MultiplexedConnection};
use std::{cell::Cell, time::Duration};
use strata_api::session::v1::{AppendTurnsRequest, GetWindowRequest};

/// Six seconds: an append waits for the disk.
const PLAN: Plan = Plan { warm_up: 50, block: 25, time: Duration::from_secs(6), rest: Duration::ZERO };
/// Turns of a session before another is begun: sessions of a usual length.
const TURNS: u64 = 200;
/// Turns of the window.
const WINDOW: u32 = 50;
/// Times a call is observed: the fewest commands are its own, the others came from the background.
const OBSERVATIONS: usize = 5;

async fn connection(cluster: &Cluster) -> Result<MultiplexedConnection> {
    Ok(Client::open(cluster.redis.url())?.get_multiplexed_async_connection().await?)
}

/// The commands of `call`, by the observation that saw the fewest.
async fn observed(cluster: &Cluster, mut call: impl AsyncFnMut() -> Result<()>) -> Result<Plain> {
    let mut fewest = None;
    for _ in 0..OBSERVATIONS {
        let monitor = Monitor::start(cluster.redis.addr())?;
        call().await?;
        let seen = monitor.stop()?;
        if fewest.as_ref().is_none_or(|few: &Vec<_>| seen.len() < few.len()) {
            fewest = Some(seen);
        }
    }
    Plain::of(fewest.unwrap_or_default())
}

/// `append_turns_redis`.
pub async fn append(site: &Site, cluster: &Cluster) -> Result<Measured> {
    let mut echo = EchoServers::start(site, 2).await?;
    let mut redis = connection(cluster).await?;
    let mut session = Agent::new(&cluster.channel).session;
    let request = |session: String| AppendTurnsRequest {
        user_id: "append".into(),
        session_id: session,
        turns: vec![user_turn("The green notebook number 17 lies in the second drawer of the office since Tuesday, as agreed.")],
        ..AppendTurnsRequest::default()
    };
    // Its own session: the plain writes go to the keys that were observed.
    let plain = observed(cluster, async || {
        session.append_turns(request("observed".into())).await?;
        Ok(())
    })
    .await?;
    let first = request("observed".into());
    let answer = session.append_turns(first.clone()).await?.into_inner();
    let size = EchoRequest::of_size(first.encoded_len(), answer.encoded_len());
    let (count, script) = (Cell::new(0), script());
    let ours = async || {
        let number = count.get();
        count.set(number + 1);
        session.append_turns(request(format!("s{}", number / TURNS))).await?;
        Ok(())
    };
    let raw = async || {
        echo.client.measured(&size).await?;
        plain.write(&script, &mut redis).await.context("the plain writes")
    };
    let both = paired(PLAN, ours, raw).await?;
    let (reads, writes) = plain.counts();
    let note = format!(
        "one turn, client > router > session on Redis, appendfsync always; raw: two echo hops and one script with the {writes} writes that one append \
         was seen to send (its {reads} reads left out)"
    );
    Measured::paired(&both, note)
}

/// `get_window_redis`.
pub async fn window(site: &Site, cluster: &Cluster) -> Result<Measured> {
    let mut echo = EchoServers::start(site, 2).await?;
    let mut redis = connection(cluster).await?;
    let agent = Agent::new(&cluster.channel);
    let turns: Vec<String> =
        (0..WINDOW).map(|n| format!("Turn {n}: the notebook number {n} lies in drawer {} of the office.", n % 7)).collect();
    agent.say("window", "s", &turns).await?;
    let request = GetWindowRequest {
        user_id: "window".into(),
        session_id: "s".into(),
        max_turns: WINDOW as i32,
        max_tokens: 100_000,
        ..GetWindowRequest::default()
    };
    let mut session = agent.session;
    let answer = session.get_window(request.clone()).await?.into_inner();
    ensure!(answer.last_seq == WINDOW, "the session has {} turns", answer.last_seq);
    let shown = answer.turns.len();
    let plain = observed(cluster, async || {
        session.get_window(request.clone()).await?;
        Ok(())
    })
    .await?;
    let size = EchoRequest::of_size(request.encoded_len(), answer.encoded_len());
    let ours = async || {
        session.get_window(request.clone()).await?;
        Ok(())
    };
    let raw = async || {
        echo.client.measured(&size).await?;
        plain.pipeline(&mut redis).await.context("the plain commands")
    };
    let both = paired(PLAN, ours, raw).await?;
    let (reads, writes) = plain.counts();
    let note = format!(
        "window of a session of {WINDOW} turns ({shown} shown verbatim, {} bytes), client > router > session on Redis; raw: two echo hops and one pipeline \
         of the {reads} reads and {writes} writes (renewal) that one call was seen to send",
        answer.encoded_len()
    );
    Measured::paired(&both, note)
}
