//! What becomes of the calls a server admits when three times as many come as it can well serve.

use crate::{
    agent::Agent,
    generator::{Run, closed, open},
    process::{Server, connect},
    report::Measured,
    stats::{Latencies, ratio},
};
use anyhow::{Result, ensure};
use std::time::Duration;
use strata_api::longterm::v1::RecallRequest;

/// Share of the closed-loop maximum that is called 1x.
const ONE: f64 = 0.7;
/// Overload.
const TIMES: f64 = 3.0;
/// Clients of the closed loop: enough to keep the server busy, too few to queue.
const CLIENTS: usize = 32;
/// Time of the closed loop.
const MAXIMUM: Duration = Duration::from_secs(4);
/// Time of one block of an open loop, and how many of each there are.
const BLOCK: Duration = Duration::from_secs(3);
const BLOCKS: usize = 3;
/// Connections: one holds some hundred calls, and what waits in a client for room would look like a slow server.
const CONNECTIONS: usize = 16;

/// `overload_3x`.
pub async fn three_times(server: &Server) -> Result<Measured> {
    let seeded = super::longterm::seed(server, 1_000).await?;
    let agents: Vec<Agent> = (0..CONNECTIONS).map(|_| connect(&server.url).map(|c| Agent::new(&c))).collect::<Result<_>>()?;
    let request = RecallRequest { user_id: seeded, query: super::longterm::QUESTION.into(), ..RecallRequest::default() };
    let call = |number: u64| {
        let mut longterm = agents[(number % agents.len() as u64) as usize].longterm.clone();
        let request = request.clone();
        async move { longterm.recall(request).await.map(|_| ()) }
    };
    closed(CLIENTS, Duration::from_secs(1), call).await;
    let maximum = closed(CLIENTS, MAXIMUM, call).await;
    ensure!(maximum.failed == 0, "calls fail without overload: {}", maximum.failure.unwrap_or_default());
    let rate = maximum.per_second() * ONE;
    let (mut one, mut three) = (Vec::new(), Vec::new());
    for _ in 0..BLOCKS {
        one.push(open(rate, BLOCK, call).await?);
        three.push(open(rate * TIMES, BLOCK, call).await?);
    }
    let (calm, storm) = (merged(&one), merged(&three));
    let sum = |runs: &[Run], count: fn(&Run) -> u64| runs.iter().map(count).sum::<u64>();
    let refused = sum(&three, |r| r.refused);
    let failed = sum(&three, |r| r.failed) + sum(&one, |r| r.failed);
    let note = format!(
        "Recall over 1,000 records, all in one; closed-loop maximum {:.0}/s, 1x = {rate:.0}/s (p99 {:.0} us, {} refused), 3x = {:.0}/s: {} served, {refused} \
         refused at once, {failed} failed{}; latency from the intended start, ratio of the p99 of served calls; raw column: p50 at 1x",
        maximum.per_second(),
        calm.p99().unwrap_or(f64::NAN),
        sum(&one, |r| r.refused),
        rate * TIMES,
        storm.count(),
        three.iter().rev().find_map(|r| r.failure.clone()).map(|f| format!(" ({f})")).unwrap_or_default(),
    );
    ensure!(failed == 0, "calls failed other than by refusal: {note}");
    let mut measured = Measured::alone(&storm, note);
    measured.raw_p50_us = calm.p50();
    measured.ratio = ratio(storm.p99(), calm.p99());
    measured.per_second = Some(three.iter().map(Run::per_second).sum::<f64>() / three.len() as f64);
    Ok(measured)
}

fn merged(runs: &[Run]) -> Latencies {
    let mut all = Latencies::new();
    for run in runs {
        all.merge(&run.served);
    }
    all
}
