//! Two agents in two processes fight for one fact through two routers, while one router is killed every second and the
//! ledger's Redis is flushed once. Judged by the stores' own histories: one writer at any time, every acknowledged write
//! visible or superseded, none by a stale writer.
//!
//! `STRATA_FIGHT_SECONDS` sets how long at least (20 without it): on a busy machine it goes on until three routers died.

use crate::cluster::{Cluster, VECTOR_DIMS};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;
use strata_api::longterm::v1 as longterm;
use strata_api::longterm::v1::long_term_memory_service_client::LongTermMemoryServiceClient;
use strata_api::working::v1 as working;
use strata_api::working::v1::working_memory_service_client::WorkingMemoryServiceClient;
use strata_core::ports::Clock as _;
use strata_core::{Reason, Timestamp};
use strata_runtime::channel::{self, EndpointConfig, RpcChannel};
use strata_runtime::ports::{SystemClock, pause};
use strata_testkit::Child9;
use uuid::Uuid;

const USER: &str = "fighter";
const TASK: &str = "the-task";
/// How long one fact is fought for before the next: on the board first, then at user level.
const ROUND: i64 = 2_000_000;
/// The end of a round's fight on the board alone.
const OUTER: i64 = 900_000;

/// One acknowledged write, as an agent was told of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Told {
    agent: u32,
    key: String,
    value: String,
    /// The record, at user level; empty on the board.
    memory_id: String,
    epoch: u64,
    /// Version of the board.
    version: u64,
    /// Microseconds; both processes read one clock.
    began: i64,
    ended: i64,
}

fn now() -> i64 {
    SystemClock.now().micros()
}

fn statement(key: &str, value: &str, id: Uuid) -> longterm::Statement {
    let content = format!("the {key} shows {value}");
    let mut vector = vec![0.05; VECTOR_DIMS];
    vector[id.as_bytes()[15] as usize % VECTOR_DIMS] = 1.0;
    let record = longterm::SystemRecord { system: "meter".into(), record_id: id.to_string() };
    longterm::Statement {
        kind: longterm::Kind::Fact.into(),
        source_quote: content.clone(),
        content,
        source: longterm::Source::AuthoritativeSystem.into(),
        source_ref: Some(longterm::SourceRef { kind: Some(longterm::source_ref::Kind::SystemRecord(record)) }),
        trigger: longterm::Trigger::Sync.into(),
        key: key.to_owned(),
        value: Some(strata_api::convert::common::wire_value(&strata_core::record::Value::Text(value.to_owned()))),
        vector,
        ..Default::default()
    }
}

/// One agent: a process of its own, which [`two_agents_fight`] starts from this very binary.
#[tokio::test]
async fn agent() {
    let variable = |name: &str| std::env::var(name).ok();
    // Not started as an agent: nothing to do.
    let Some(agent) = variable("FIGHT_AGENT").and_then(|n| n.parse::<u32>().ok()) else { return };
    let number = |name: &str| variable(name).and_then(|n| n.parse::<i64>().ok()).expect("a number");
    let start = number("FIGHT_START");
    let routers: Vec<RpcChannel> = variable("FIGHT_ROUTERS")
        .expect("routers")
        .split(',')
        .map(|url| channel::connect(&EndpointConfig::new(url)).expect("a channel"))
        .collect();
    let over = variable("FIGHT_OVER").expect("a file");
    let out = variable("FIGHT_OUT").expect("a file");
    let mut out = std::fs::File::create(out).expect("a file");
    let mut told = |line: &Told| {
        let mut text = serde_json::to_vec(line).expect("JSON");
        text.push(b'\n');
        out.write_all(&text).expect("written");
    };
    // Of an unanswered write nobody knows what became: it is sent again under its id before anything else, elsewhere.
    for n in 0_u32.. {
        if Path::new(&over).exists() {
            break;
        }
        let began = now();
        let elapsed = (began - start).max(0);
        let (round, within) = (elapsed / ROUND, elapsed % ROUND);
        let key = format!("gauge.r{round}");
        let value = format!("{agent}-{n}77");
        let id = Uuid::from_u128(u128::from(agent) << 96 | 4 << 76 | 2 << 62 | u128::from(n));
        let outer = within > OUTER && n.is_multiple_of(3);
        let mut line = Told {
            agent,
            key: key.clone(),
            value: value.clone(),
            memory_id: String::new(),
            epoch: 0,
            version: 0,
            began,
            ended: 0,
        };
        for attempt in 0_usize.. {
            let router = routers[(n as usize + attempt + agent as usize) % routers.len()].clone();
            let call = async {
                if outer {
                    let request = longterm::RememberRequest {
                        user_id: USER.into(),
                        statement: Some(statement(&key, &value, id)),
                        request_id: id.to_string(),
                        ..Default::default()
                    };
                    let answer = LongTermMemoryServiceClient::new(router).remember(request).await?.into_inner();
                    let memory = answer.result.unwrap_or_default().memory.unwrap_or_default();
                    Ok::<_, tonic::Status>((memory.memory_id, memory.owner_epoch, 0))
                } else {
                    let fact =
                        working::Fact { key: key.clone(), value: value.clone(), source: "checker".into(), ..Default::default() };
                    let request = working::PutFactsRequest {
                        user_id: USER.into(),
                        task_id: TASK.into(),
                        facts: vec![fact],
                        request_id: id.to_string(),
                        ..Default::default()
                    };
                    let answer = WorkingMemoryServiceClient::new(router).put_facts(request).await?.into_inner();
                    Ok((String::new(), answer.facts.first().map_or(0, |fact| fact.epoch), answer.version))
                }
            };
            let answer = tokio::time::timeout(Duration::from_secs(8), call).await;
            match answer {
                Ok(Ok((memory_id, epoch, version))) => {
                    (line.memory_id, line.epoch, line.version, line.ended) = (memory_id, epoch, version, now());
                    told(&line);
                    break;
                }
                Ok(Err(status)) => {
                    let fault = strata_api::error::fault(&status);
                    if fault.reason == Reason::FactOwnedByOtherLayer {
                        break;
                    }
                    assert!(fault.reason.retry_safe() || fault.reason.may_have_written(), "{fault:?}");
                    pause(Duration::from_millis(30)).await;
                }
                Err(_) => {}
            }
        }
        pause(Duration::from_millis(15)).await;
    }
}

fn start_agent(agent: u32, cluster: &Cluster, start: i64, over: &Path, out: &Path) -> Child9 {
    let this = std::env::current_exe().expect("this binary");
    Child9::of(this)
        .args(["--exact", "fight::agent", "--nocapture"])
        .env("FIGHT_AGENT", agent.to_string())
        .env("FIGHT_START", start.to_string())
        .env("FIGHT_OVER", over)
        .env("FIGHT_ROUTERS", format!("{},{}", cluster.address("router"), cluster.address("router2")))
        .env("FIGHT_OUT", out)
        .spawn()
}

fn read(path: &Path) -> Vec<Told> {
    let text = std::fs::read_to_string(path).expect("a history");
    text.lines().map(|line| serde_json::from_str(line).expect("a line")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_agents_fight_for_one_fact_while_routers_die() {
    let seconds = std::env::var("STRATA_FIGHT_SECONDS").ok().and_then(|n| n.parse().ok()).unwrap_or(20_i64);
    let mut cluster = Cluster::two_routers();
    let goal = serde_json::json!({"user_id": USER, "task_id": TASK, "goal": {"sentence": "Fight.", "acceptance": "It is over."}});
    cluster.call("CreateTask", &goal).expect("a board");
    let start = now();
    let over = cluster.folder.path().join("over");
    let files = [1, 2].map(|n| cluster.folder.path().join(format!("agent-{n}.jsonl")));
    let mut agents: Vec<Child9> = (1..).zip(&files).map(|(n, file)| start_agent(n, &cluster, start, &over, file)).collect();
    let (mut killed, mut flushed) = (0, false);
    while now() < start + seconds * 1_000_000 || killed < 3 {
        pause(Duration::from_millis(1_000)).await;
        cluster.kill_and_restart(if killed % 2 == 0 { "router" } else { "router2" });
        killed += 1;
        if !flushed && now() > start + seconds * 500_000 {
            let _: () = cluster.redis.as_ref().expect("Redis").command(&["FLUSHALL"]);
            flushed = true;
        }
    }
    std::fs::write(&over, "").expect("a file");
    for agent in &mut agents {
        assert!(agent.wait_exit(Duration::from_secs(120)).success(), "{agent}");
    }
    let told: Vec<Told> = files.iter().flat_map(|file| read(file)).collect();
    let (board, records): (Vec<&Told>, Vec<&Told>) = told.iter().partition(|line| line.memory_id.is_empty());
    eprintln!("fight: {killed} routers killed, {} writes to the board and {} records acknowledged", board.len(), records.len());
    assert!(flushed && board.len() > 20 && records.len() > 5, "hardly anything was fought for");
    assert!(told.iter().map(|line| line.agent).collect::<BTreeSet<_>>().len() == 2, "both took part");
    judge_board(&cluster, &board).await;
    judge_records(&cluster, &records).await;
    judge_levels(&board, &records);
}

/// The board took every acknowledged write, one at a time, at epochs that never step back, and shows the last.
async fn judge_board(cluster: &Cluster, board: &[&Told]) {
    let channel = channel::connect(&EndpointConfig::new(cluster.url())).expect("a channel");
    let request = working::GetTaskRequest { user_id: USER.into(), task_id: TASK.into(), ..Default::default() };
    let shown = WorkingMemoryServiceClient::new(channel).get_task(request).await.expect("the board").into_inner();
    let shown = shown.task.expect("the board");
    let mut by_key: BTreeMap<&str, Vec<&Told>> = BTreeMap::new();
    for line in board {
        by_key.entry(&line.key).or_default().push(line);
    }
    for (key, mut lines) in by_key {
        lines.sort_by_key(|line| line.version);
        for pair in lines.windows(2) {
            assert!(pair[0].version < pair[1].version, "two writers at one version: {pair:?}");
            assert!(pair[0].epoch <= pair[1].epoch, "a stale writer: {pair:?}");
            assert!(pair[0].began <= pair[1].ended, "what was acknowledged before is older: {pair:?}");
        }
        let last = lines.last().expect("a write");
        let fact = shown.facts.iter().find(|fact| fact.key == key).expect("an acknowledged fact is there");
        // Beside it only a write whose answer was lost, and which was refused when it was sent again, may have come later.
        let known = lines.iter().any(|line| line.value == fact.value);
        assert!(!known || fact.value == last.value, "{key}: {} and not {last:?}", fact.value);
        assert!(fact.epoch >= last.epoch, "{key}: {last:?}");
    }
}

/// Every acknowledged record stands in the one chain of its key; epochs grow along it; one is in force.
async fn judge_records(cluster: &Cluster, records: &[&Told]) {
    let channel = channel::connect(&EndpointConfig::new(cluster.url())).expect("a channel");
    let client = LongTermMemoryServiceClient::new(channel);
    let keys: BTreeSet<&str> = records.iter().map(|line| line.key.as_str()).collect();
    for key in keys {
        let request =
            longterm::GetHistoryRequest { user_id: USER.into(), key: key.to_owned(), page_size: 1_000, ..Default::default() };
        let chain = client.clone().get_history(request).await.expect("a history").into_inner().memories;
        let by_id: BTreeMap<&str, &longterm::Memory> = chain.iter().map(|m| (m.memory_id.as_str(), m)).collect();
        let active: Vec<_> = chain.iter().filter(|m| m.status() == longterm::Status::Active).collect();
        assert_eq!(active.len(), 1, "{key}: one value is in force");
        for line in records.iter().filter(|line| line.key == key) {
            let found = by_id.get(line.memory_id.as_str()).unwrap_or_else(|| panic!("{line:?} is in no history"));
            assert!(
                matches!(found.status(), longterm::Status::Active | longterm::Status::Superseded),
                "{line:?} is {:?}",
                found.status()
            );
            assert_eq!(found.owner_epoch, line.epoch, "{line:?}");
        }
        let (mut next, mut seen, mut epoch) = (Some(active[0]), 0, u64::MAX);
        while let Some(memory) = next {
            assert!(memory.owner_epoch < epoch, "{key}: epochs grow along the chain");
            (epoch, seen) = (memory.owner_epoch, seen + 1);
            next = by_id.get(memory.supersedes.as_str()).copied();
        }
        let in_chain = |m: &&longterm::Memory| matches!(m.status(), longterm::Status::Active | longterm::Status::Superseded);
        assert_eq!(seen, chain.iter().filter(in_chain).count(), "{key}: one chain, without a fork");
    }
}

/// Once the user level owned a key, nothing that began later was written below it.
fn judge_levels(board: &[&Told], records: &[&Told]) {
    for record in records {
        let below = board.iter().find(|line| line.key == record.key && line.began > record.ended);
        assert!(below.is_none(), "{below:?} was written below {record:?}, at {:?}", Timestamp(record.ended));
    }
}
