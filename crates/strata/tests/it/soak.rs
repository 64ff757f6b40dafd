//! Load that goes on while processes are restarted, killed, stopped and cut off from their stores. A client does what is
//! documented: it sends a call that may be retried again, with the same request id. Then nothing fails for good, everything that
//! was acknowledged is there once, and the processes hold no more memory than before.
//!
//! `STRATA_SOAK_SECONDS` sets the time of the soak (15 without it); `make soak` runs ten minutes.

use crate::cluster::{Cluster, ROLES, VECTOR_DIMS};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use strata_api::longterm::v1 as longterm;
use strata_api::longterm::v1::long_term_memory_service_client::LongTermMemoryServiceClient;
use strata_api::session::v1 as session;
use strata_api::session::v1::session_memory_service_client::SessionMemoryServiceClient;
use strata_api::working::v1 as working;
use strata_api::working::v1::working_memory_service_client::WorkingMemoryServiceClient;
use strata_runtime::channel::{self, EndpointConfig, RpcChannel};
use strata_runtime::ports::{Stopwatch, pause};
use strata_testkit::poll;
use tonic::{Request, Status};
use uuid::Uuid;

/// Clients at a time, each with a user, a session and a task of its own.
const CLIENTS: u64 = 6;
/// A call that cannot be made for this long has failed, whatever may be retried: far more than any restart takes.
const PATIENCE: Duration = Duration::from_secs(90);
/// Longest wait for one answer.
const ANSWER: Duration = Duration::from_secs(15);
/// Between two calls of a client: the machine has other work.
const PAUSE: Duration = Duration::from_millis(20);

/// What the clients did.
#[derive(Debug, Default)]
struct Counts {
    calls: AtomicU64,
    retries: AtomicU64,
}

/// What one client was told.
#[derive(Debug, Default)]
struct Known {
    turns: BTreeMap<u32, String>,
    memories: BTreeSet<String>,
    /// The newest value of the board's fact.
    board: Option<u64>,
}

/// Sends a call until it is answered; fails when the refusal is not one that a retry covers, or when that takes too long.
async fn persist<T, F>(counts: &Counts, what: &str, mut call: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<T, Status>>,
{
    let began = Stopwatch::start();
    loop {
        counts.calls.fetch_add(1, Ordering::Relaxed);
        let status = match tokio::time::timeout(ANSWER, call()).await {
            Ok(Ok(answer)) => return answer,
            Ok(Err(status)) => status,
            Err(_) => Status::deadline_exceeded("no answer"),
        };
        let fault = strata_api::error::fault(&status);
        let covered =
            fault.reason.retry_safe() || matches!(status.code(), tonic::Code::Unavailable | tonic::Code::DeadlineExceeded);
        assert!(covered, "{what} failed and may not be retried: {status:?}");
        assert!(began.elapsed() < PATIENCE, "{what} cannot be done: {status:?}");
        counts.retries.fetch_add(1, Ordering::Relaxed);
        let wait = fault.retry_after_ms.unwrap_or(100).clamp(20, 1_000);
        pause(Duration::from_millis(wait)).await;
    }
}

fn within<T>(body: T) -> Request<T> {
    let mut request = Request::new(body);
    request.set_timeout(Duration::from_secs(10));
    request
}

fn request_id(client: u64, kind: u64, n: u64) -> String {
    Uuid::from_u128(u128::from(client) << 96 | 4 << 76 | u128::from(kind) << 64 | 2 << 62 | u128::from(n)).to_string()
}

/// One client, until it is told to stop.
async fn client(number: u64, url: String, stop: Arc<AtomicBool>, counts: Arc<Counts>, boards: bool) -> Known {
    let channel: RpcChannel = channel::connect(&EndpointConfig::new(url)).expect("a channel");
    let (sessions, memories) =
        (SessionMemoryServiceClient::new(channel.clone()), LongTermMemoryServiceClient::new(channel.clone()));
    let tasks = WorkingMemoryServiceClient::new(channel);
    let (user, mut known) = (format!("u{number}"), Known::default());
    let goal = working::Goal { sentence: "Last long.".into(), acceptance: "Nothing is lost.".into() };
    let mut generation = 0;
    if boards {
        let create = working::CreateTaskRequest {
            user_id: user.clone(),
            task_id: format!("t{number}"),
            goal: Some(goal),
            request_id: request_id(number, 1, 0),
            ..Default::default()
        };
        let created = persist(&counts, "CreateTask", || {
            let (mut tasks, create) = (tasks.clone(), create.clone());
            async move { tasks.create_task(within(create)).await }
        });
        generation = created.await.into_inner().task.expect("a board").generation;
    }
    for n in 1_u64.. {
        if stop.load(Ordering::Acquire) {
            break;
        }
        let text = format!("client {number} says that counter {n} stands at {n}77");
        let append = session::AppendTurnsRequest {
            user_id: user.clone(),
            session_id: "s".into(),
            turns: vec![session::NewTurn { role: session::Role::User.into(), text: text.clone(), ..Default::default() }],
            request_id: request_id(number, 2, n),
            ..Default::default()
        };
        let appended = persist(&counts, "AppendTurns", || {
            let (mut sessions, append) = (sessions.clone(), append.clone());
            async move { sessions.append_turns(within(append)).await }
        });
        known.turns.insert(appended.await.into_inner().seqs[0], text.clone());

        let mut vector = vec![0.05; VECTOR_DIMS];
        vector[n as usize % VECTOR_DIMS] = 1.0;
        let record = longterm::SystemRecord { system: "meter".into(), record_id: format!("{number}-{n}") };
        let remember = longterm::RememberRequest {
            user_id: user.clone(),
            request_id: request_id(number, 3, n),
            statement: Some(longterm::Statement {
                kind: longterm::Kind::Fact.into(),
                content: text.clone(),
                source_quote: text,
                source: longterm::Source::AuthoritativeSystem.into(),
                source_ref: Some(longterm::SourceRef { kind: Some(longterm::source_ref::Kind::SystemRecord(record)) }),
                trigger: longterm::Trigger::Sync.into(),
                vector: vector.clone(),
                ..Default::default()
            }),
            ..Default::default()
        };
        let remembered = persist(&counts, "Remember", || {
            let (mut memories, remember) = (memories.clone(), remember.clone());
            async move { memories.remember(within(remember)).await }
        });
        let result = remembered.await.into_inner().result.expect("a result");
        let id = result.memory.expect("a record").memory_id;
        assert!(known.memories.insert(id), "two statements became one record");

        let recall =
            longterm::RecallRequest { user_id: user.clone(), query: format!("counter {n}"), vector, ..Default::default() };
        let recalled = persist(&counts, "Recall", || {
            let (mut memories, recall) = (memories.clone(), recall.clone());
            async move { memories.recall(within(recall)).await }
        });
        assert!(!recalled.await.into_inner().items.is_empty(), "what was just stored is found");

        if boards {
            let put = working::PutFactsRequest {
                user_id: user.clone(),
                task_id: format!("t{number}"),
                generation,
                facts: vec![working::Fact {
                    key: "progress".into(),
                    value: n.to_string(),
                    source: "test".into(),
                    ..Default::default()
                }],
                request_id: request_id(number, 4, n),
                ..Default::default()
            };
            persist(&counts, "PutFacts", || {
                let (mut tasks, put) = (tasks.clone(), put.clone());
                async move { tasks.put_facts(within(put)).await }
            })
            .await;
            known.board = Some(n);
        }
        pause(PAUSE).await;
    }
    known
}

/// Everything that was acknowledged is there, once.
async fn check(url: &str, number: u64, known: &Known) {
    let channel: RpcChannel = channel::connect(&EndpointConfig::new(url)).expect("a channel");
    let (user, counts) = (format!("u{number}"), Counts::default());
    let mut there = BTreeMap::new();
    let mut list =
        session::ListTurnsRequest { user_id: user.clone(), session_id: "s".into(), page_size: 1_000, ..Default::default() };
    loop {
        let page = persist(&counts, "ListTurns", || {
            let (mut sessions, list) = (SessionMemoryServiceClient::new(channel.clone()), list.clone());
            async move { sessions.list_turns(within(list)).await }
        });
        let page = page.await.into_inner();
        there.extend(page.turns.into_iter().map(|turn| (turn.seq, turn.text)));
        if page.next_page_token.is_empty() {
            break;
        }
        list.page_token = page.next_page_token;
    }
    assert_eq!(there, known.turns, "turns of {user}: none lost, none doubled, none altered");
    let mut ids = Vec::new();
    let mut list = longterm::ListMemoriesRequest { user_id: user.clone(), page_size: 1_000, ..Default::default() };
    loop {
        let page = persist(&counts, "ListMemories", || {
            let (mut memories, list) = (LongTermMemoryServiceClient::new(channel.clone()), list.clone());
            async move { memories.list_memories(within(list)).await }
        });
        let page = page.await.into_inner();
        ids.extend(page.memories.into_iter().map(|memory| memory.memory_id));
        if page.next_page_token.is_empty() {
            break;
        }
        list.page_token = page.next_page_token;
    }
    let unique: BTreeSet<String> = ids.iter().cloned().collect();
    assert_eq!((unique.len(), &unique), (ids.len(), &known.memories), "records of {user}");
    if let Some(value) = known.board {
        let get = working::GetTaskRequest { user_id: user, task_id: format!("t{number}"), ..Default::default() };
        let board = persist(&counts, "GetTask", || {
            let (mut tasks, get) = (WorkingMemoryServiceClient::new(channel.clone()), get.clone());
            async move { tasks.get_task(within(get)).await }
        });
        let board = board.await.into_inner().task.expect("a board");
        assert_eq!(board.facts.first().map(|fact| fact.value.clone()), Some(value.to_string()));
    }
}

/// Runs the clients while `faults` happens, then checks what they were told; answers how many calls they made.
pub fn under_load(cluster: &mut Cluster, boards: bool, faults: impl FnOnce(&mut Cluster)) -> (u64, u64) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let (stop, counts, url) = (Arc::new(AtomicBool::new(false)), Arc::new(Counts::default()), cluster.url());
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| runtime.spawn(client(number, url.clone(), Arc::clone(&stop), Arc::clone(&counts), boards)))
        .collect();
    faults(cluster);
    stop.store(true, Ordering::Release);
    runtime.block_on(async {
        for (number, client) in (0..).zip(clients) {
            let known = client.await.expect("a client whose every call was answered");
            assert!(!known.turns.is_empty(), "client {number} did nothing");
            check(&url, number, &known).await;
        }
    });
    (counts.calls.load(Ordering::Relaxed), counts.retries.load(Ordering::Relaxed))
}

pub fn env() -> Vec<(&'static str, String)> {
    vec![
        ("STRATA_EMBEDDER__KIND", "caller".into()),
        ("STRATA_EMBEDDER__MODEL", "test@1".into()),
        ("STRATA_EMBEDDER__DIMENSIONS", VECTOR_DIMS.to_string()),
        ("STRATA_TELEMETRY__FILTER", "info".into()),
    ]
}

fn seconds(name: &str, default: u64) -> Duration {
    Duration::from_secs(std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number")))
}

/// Waits while the load goes on.
pub fn load_for(time: Duration) {
    let watch = Stopwatch::start();
    drop(poll::blocking(time + Duration::from_secs(1), || (watch.elapsed() >= time).then_some(())));
}

#[test]
fn every_role_is_restarted_under_load_and_no_call_fails_that_a_retry_does_not_cover() {
    let mut cluster = Cluster::four_with(&env(), false);
    let (calls, retries) = under_load(&mut cluster, true, |cluster| {
        for role in ROLES {
            load_for(Duration::from_secs(1));
            assert_eq!(cluster.terminate(role, Duration::from_secs(40)), Some(0), "{role} ends in time");
            cluster.start(role);
        }
        load_for(Duration::from_secs(1));
    });
    eprintln!("rolling restart: {calls} calls, {retries} of them again");
}

#[test]
fn soak_with_faults_loses_nothing_and_holds_no_more_memory() {
    let time = seconds("STRATA_SOAK_SECONDS", 15);
    let mut cluster = Cluster::four_with(&env(), false);
    let watch = Stopwatch::start();
    let mut memory: Vec<BTreeMap<&'static str, u64>> = Vec::new();
    let (calls, retries) = under_load(&mut cluster, false, |cluster| {
        let mut round = 0_usize;
        while watch.elapsed() < time {
            load_for(Duration::from_secs(3));
            // Looked at before the fault: a process that was just started is small.
            memory.push(ROLES.iter().map(|role| (*role, cluster.resident(role))).collect());
            match round % 6 {
                0 => cluster.kill_and_restart("longterm"),
                1 => {
                    let redis = cluster.redis.as_ref().expect("a Redis");
                    redis.stop_process();
                    load_for(Duration::from_secs(2));
                    redis.cont();
                }
                2 => cluster.kill_and_restart("session"),
                3 => cluster.kill_and_restart("router"),
                // Rounds without a fault: what they hold now is what they hold.
                _ => load_for(Duration::from_secs(3)),
            }
            round += 1;
        }
    });
    eprintln!("soak of {time:?}: {calls} calls, {retries} of them again; resident MB: {memory:#?}");
    // Working memory is never restarted here: its size over the whole time is a slope. The others are compared at their largest,
    // early and late. A short run shows nothing but the first growth.
    if time >= Duration::from_secs(300) {
        let (early, late) = memory.split_at(memory.len() / 2);
        let largest = |looks: &[BTreeMap<&'static str, u64>], role: &str| looks.iter().map(|look| look[role]).max().unwrap_or(0);
        for role in ROLES {
            let (before, after) = (largest(early, role), largest(late, role));
            assert!(after <= before + before / 4 + 24, "{role} grew from {before} MB to {after} MB");
        }
    }
}
