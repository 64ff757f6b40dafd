//! Long-term memory: durable writes, recall by exact search, growth.

use crate::{
    agent::{Agent, remember},
    echo::EchoRequest,
    generator::{closed_within, open},
    process::{EchoServers, Embedder, Server, Site},
    raw::sqlite::{Inserts, counts, files},
    report::Measured,
    role::{Longterm, question},
    stats::{Latencies, Plan, paired, ratio},
};
use anyhow::{Context as _, Result, ensure};
use prost::Message as _;
use std::{
    cell::{Cell, RefCell},
    path::PathBuf,
    time::Duration,
};
use strata_api::admin::v1::{MaintenanceState, RunMaintenanceRequest};
use strata_api::longterm::v1::{Outcome, RecallRequest};
use strata_runtime::ports::Stopwatch;
use tonic::Status;

/// The question of every recall row.
pub const QUESTION: &str = "Where do I keep my green notebook?";

/// Eight seconds: a write waits for the disk.
const DURABLE: Plan = Plan { warm_up: 100, block: 25, time: Duration::from_secs(8), rest: Duration::ZERO };
/// Statements said beforehand, so that there are enough to remember.
const SAID: u64 = 12_000;
/// Calls that are observed to see what rows a call adds.
const OBSERVED: u64 = 50;

/// `remember_durable`.
pub async fn remember_durable(site: &Site, server: &Server) -> Result<Measured> {
    const USER: &str = "durable";
    let mut echo = EchoServers::start(site, 1).await?;
    let agent = Agent::new(&server.channel);
    agent.say_statements(USER, 0..SAID).await?;
    let mut longterm = agent.longterm.clone();
    let next = Cell::new(0_u64);
    let active = Cell::new(0_u64);
    let mut ours = async || -> Result<()> {
        let number = next.get();
        ensure!(number < SAID, "there are no more turns to quote");
        next.set(number + 1);
        let result = longterm.remember(remember(USER, number)).await?.into_inner().result.unwrap_or_default();
        active.set(active.get() + u64::from(result.outcome() == Outcome::Active));
        Ok(())
    };
    ours().await?;
    let path = file(server, "longterm")?;
    let before = counts(&path)?;
    for _ in 0..OBSERVED {
        ours().await?;
    }
    let copy = server.data.with_extension("raw.sqlite3");
    let mut inserts = Inserts::observed(&path, &before, OBSERVED, &copy)?;
    let rows = inserts.rows_per_call();
    let turns = crate::raw::sqlite::Reads::of(&file(server, "session")?)?;
    let request = remember(USER, 0);
    let answer = longterm_answer(&agent, USER, next.get()).await?;
    next.set(next.get() + 1);
    let size = EchoRequest::of_size(request.encoded_len(), answer);
    let raw = async || {
        echo.client.measured(&size).await?;
        turns.read()?;
        inserts.commit()
    };
    let both = paired(DURABLE, ours, raw).await?;
    let note = format!(
        "Remember with its quote verified against the session, all in one over TCP, no embedder, SQLite FULL, {} of {} active; raw: echo of the same \
         size, one read of the session's file, and one FULL transaction of the {rows:.1} rows that a call was seen to add, same tables and indexes",
        active.get(),
        next.get() - 1,
    );
    Measured::paired(&both, note)
}

async fn longterm_answer(agent: &Agent, user: &str, number: u64) -> Result<usize> {
    Ok(agent.longterm.clone().remember(remember(user, number)).await?.into_inner().encoded_len())
}

fn file(server: &Server, name: &str) -> Result<PathBuf> {
    let files = files(&server.data)?;
    let stem = |path: &PathBuf| path.file_stem().is_some_and(|s| s.to_string_lossy().contains(name));
    files.into_iter().find(stem).with_context(|| format!("no SQLite file of {name}"))
}

/// Writers of `remember_64_writers`, each with a user of its own.
const WRITERS: u64 = 64;
/// Statements a writer has said beforehand.
const EACH: u64 = 600;
/// Time of the row.
const WRITING: Duration = Duration::from_secs(6);

/// `remember_64_writers`.
pub async fn remember_64_writers(server: &Server) -> Result<Measured> {
    let agents: Vec<Agent> =
        (0..4).map(|_| crate::process::connect(&server.url).map(|c| Agent::new(&c))).collect::<Result<_>>()?;
    let user = |number: u64| format!("writer-{}", number % WRITERS);
    futures::future::try_join_all((0..WRITERS).map(|n| {
        let (agent, user) = (&agents[(n % 4) as usize], user(n));
        async move { agent.say_statements(&user, 0..EACH).await }
    }))
    .await?;
    let call = |number: u64| {
        let mut longterm = agents[(number % 4) as usize].longterm.clone();
        let request = remember(&user(number), number / WRITERS);
        async move {
            let result = longterm.remember(request).await?.into_inner().result.unwrap_or_default();
            // Only a stored fact counts.
            if result.outcome() == Outcome::Active { Ok(()) } else { Err(Status::internal(result.outcome().as_str_name())) }
        }
    };
    let run = closed_within(WRITERS as usize, WRITING, WRITERS * EACH, call).await;
    let mut measured = Measured::alone(
        &run.served,
        format!(
            "{WRITERS} writers, each with its own user, quotes verified, SQLite FULL, no vectors (the server takes none from callers); {} active, {} pushed \
             back, {} not stored{}",
            run.served.count(),
            run.refused,
            run.failed,
            run.failure.as_ref().map(|f| format!(" ({f})")).unwrap_or_default()
        ),
    );
    ensure!(run.failed == 0, "{}", measured.note);
    measured.per_second = Some(run.per_second());
    Ok(measured)
}

/// Calls of a recall row.
const RECALLS: Duration = Duration::from_secs(4);

/// Stores `records` records of one user, with their vectors, and answers the user. Twice the same is stored once.
pub async fn seed(server: &Server, records: u64) -> Result<String> {
    let user = format!("recall-{records}");
    let agent = Agent::new(&server.channel);
    let request = RecallRequest { user_id: user.clone(), query: QUESTION.into(), ..RecallRequest::default() };
    if !agent.longterm.clone().recall(request).await?.into_inner().items.is_empty() {
        return Ok(user);
    }
    let outcomes = agent.remember_all(&user, 0..records).await?;
    ensure!(outcomes.active() == records, "of {records} records: {:?}", outcomes.by_name);
    agent.await_indexed(&user, &outcomes.last.context("a record")?).await?;
    Ok(user)
}

/// `recall_exact_1k` and `recall_exact_10k`.
pub async fn recall(site: &Site, records: u64) -> Result<Measured> {
    const USER: &str = "recall";
    let seeding = Stopwatch::start();
    let role = Longterm::start(&site.scratch).await?;
    let mut longterm = role.seed(USER, records).await?;
    let seeding = seeding.elapsed();
    let request = question(USER, QUESTION);
    let answer = longterm.recall(request.clone()).await?.into_inner();
    ensure!(answer.items.len() == 5 && !answer.degraded, "the recall is short or degraded");
    let mut paths: Vec<&str> = answer.items.iter().flat_map(|i| i.paths.iter().map(String::as_str)).collect();
    paths.sort_unstable();
    paths.dedup();
    let mut calls = Latencies::new();
    for _ in 0..100 {
        longterm.recall(request.clone()).await?;
    }
    let watch = Stopwatch::start();
    while watch.elapsed() < RECALLS {
        let call = Stopwatch::start();
        longterm.recall(request.clone()).await?;
        calls.record(call.elapsed());
    }
    role.stop().await;
    let note = format!(
        "Recall in the role, over the local channel, {records} records of one user with 512-dimensional vectors, exact index, k 5, the query's vector \
         supplied, found by {}; storing took {:.0} s",
        paths.join(" and "),
        seeding.as_secs_f64()
    );
    Ok(Measured::alone(&calls, note))
}

/// Users whose records maintenance archives while another recalls, and records of each.
const TIDIED: (u64, u64) = (20, 1_000);
/// Records of them that may stay in force.
const CAPACITY: usize = 500;

/// `maintenance_live`.
pub async fn maintenance(site: &Site) -> Result<Measured> {
    const USER: &str = "recall";
    let role = Longterm::with_capacity(&site.scratch, CAPACITY).await?;
    let (users, records) = TIDIED;
    for user in 0..users {
        role.seed(&format!("tidied-{user}"), records).await?;
    }
    let mut longterm = role.seed(USER, records).await?;
    let request = question(USER, QUESTION);
    for _ in 0..100 {
        longterm.recall(request.clone()).await?;
    }
    let (mut calm, mut during) = (Latencies::new(), Latencies::new());
    let calm_block = async |calm: &mut Latencies| -> Result<()> {
        let (watch, mut longterm) = (Stopwatch::start(), longterm.clone());
        while watch.elapsed() < RECALLS {
            let call = Stopwatch::start();
            longterm.recall(request.clone()).await?;
            calm.record(call.elapsed());
        }
        Ok(())
    };
    calm_block(&mut calm).await?;
    let ended = Cell::new(false);
    let work = async {
        let (watch, mut steps) = (Stopwatch::start(), 0_u64);
        for user in 0..users {
            let asked = RunMaintenanceRequest { user_id: format!("tidied-{user}"), ..RunMaintenanceRequest::default() };
            let mut answers = role.admin()?.run_maintenance(asked).await?.into_inner();
            while let Some(answer) = answers.message().await? {
                steps += answer.steps.iter().filter(|step| step.state() == MaintenanceState::Done).count() as u64;
            }
        }
        ended.set(true);
        Ok::<_, anyhow::Error>((steps, watch.elapsed()))
    };
    let recalls = async {
        let mut longterm = longterm.clone();
        while !ended.get() {
            let call = Stopwatch::start();
            longterm.recall(request.clone()).await?;
            during.record(call.elapsed());
        }
        Ok::<_, anyhow::Error>(())
    };
    let ((steps, took), ()) = futures::try_join!(work, recalls)?;
    calm_block(&mut calm).await?;
    ensure!(steps >= users * (records - CAPACITY as u64), "maintenance did {steps} steps only");
    role.stop().await;
    let note = format!(
        "Recall in the role, over the local channel, 1,000 records of one user, while maintenance archives {steps} records of {users} others in {:.1} s, \
         with the rests of the default schedule, SQLite FULL; raw column: without maintenance, before and after",
        took.as_secs_f64()
    );
    let mut measured = Measured::alone(&during, note);
    measured.raw_p50_us = calm.p50();
    measured.ratio = ratio(during.p99(), calm.p99());
    Ok(measured)
}

/// Owners of the small and of the large store, and records of each.
const GROWTH: (u64, u64, u64) = (10, 1_000, 1_000);
/// Recalls a second of the open loop: far below what a server can do.
const GROWTH_RATE: f64 = 50.0;
/// Time of one block, and how many of each there are.
const GROWTH_BLOCK: Duration = Duration::from_secs(3);
const GROWTH_BLOCKS: usize = 10;

/// `recall_growth`.
pub async fn growth(site: &Site) -> Result<Measured> {
    let (small, large, records) = GROWTH;
    let mut stores = Vec::new();
    for owners in [small, large] {
        let server = Server::all_in_one(site, Embedder::None).await?;
        let agent = Agent::new(&server.channel);
        for owner in 0..owners {
            let outcomes = agent.remember_all(&format!("owner-{owner}"), 0..records).await?;
            ensure!(outcomes.active() == records, "of {records} records: {:?}", outcomes.by_name);
        }
        stores.push((server, agent, owners));
    }
    let latencies = RefCell::new([Latencies::new(), Latencies::new()]);
    for block in 0..2 * GROWTH_BLOCKS {
        let which = block % 2;
        let (_, agent, owners) = &stores[which];
        let call = |number: u64| {
            let mut longterm = agent.longterm.clone();
            // Another owner each time, the whole store over a run.
            let user_id = format!("owner-{}", (number * 7_919 + block as u64) % owners);
            let request = RecallRequest { user_id, query: QUESTION.into(), ..RecallRequest::default() };
            async move { longterm.recall(request).await.map(|_| ()) }
        };
        let run = open(GROWTH_RATE, GROWTH_BLOCK, call).await?;
        ensure!(run.failed + run.refused == 0, "recalls fail: {}", run.failure.unwrap_or_default());
        latencies.borrow_mut()[which].merge(&run.served);
    }
    let [before, after] = latencies.into_inner();
    let note = format!(
        "Recall at {GROWTH_RATE}/s on schedule, {large} owners of {records} records against {small} owners, keyword search (no embedder); raw column: the \
         small store"
    );
    let mut measured = Measured::alone(&after, note);
    measured.raw_p50_us = before.p50();
    measured.ratio = ratio(after.p50(), before.p50());
    for (server, _, _) in stores {
        server.stop();
    }
    Ok(measured)
}
