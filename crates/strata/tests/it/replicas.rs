//! Three replicas of working memory behind two routers that know different ones of them, while replicas are killed, stopped where
//! they stand and brought back (rule W10). Judged by what writers and readers were told: a task never has two copies that answer,
//! every acknowledged write is read until a takeover, and a takeover loses what was acknowledged within one second and says so.
//!
//! `STRATA_REPLICAS_SECONDS` sets how long (25 without it).

use crate::cluster::Cluster;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strata_api::working::v1 as pb;
use strata_api::working::v1::working_memory_service_client::WorkingMemoryServiceClient;
use strata_core::Reason;
use strata_core::policy::placement::{FENCE, rendezvous};
use strata_core::ports::Clock as _;
use strata_runtime::TaskGroup;
use strata_runtime::channel::{self, EndpointConfig, RpcChannel};
use strata_runtime::ports::{SystemClock, pause};
use strata_testkit::eventually;
use tonic::Request;
use uuid::Uuid;

const USER: &str = "u1";
/// Replicas of working memory, in the order of their tasks.
const REPLICAS: [&str; 3] = ["working", "working2", "working3"];
/// Each replica is to serve two of them: one that is written all the time, one that is at rest for most of it, so that what its
/// replica has and what the store has are the same.
const TASKS: usize = 2 * REPLICAS.len();
const KEY: &str = "counter";
/// Longest wait of a call: what it is sent to may stand still, and the next attempt goes elsewhere.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a replica stands still: its tasks are taken over and written elsewhere meanwhile.
const STILL: Duration = Duration::from_secs(10);
const SOON: Duration = Duration::from_secs(60);

fn now() -> i64 {
    SystemClock.now().micros()
}

/// A write that was acknowledged, or a board that was read.
#[derive(Clone, Copy, Debug)]
struct Told {
    generation: u64,
    version: u64,
    value: u64,
    began: i64,
    ended: i64,
    /// Answered at its first attempt: what it says of generation and version is of this time.
    first: bool,
}

impl Told {
    const fn order(&self) -> (u64, u64) {
        (self.generation, self.version)
    }
}

/// What became of one task.
#[derive(Debug, Default)]
struct Story {
    writes: Vec<Told>,
    reads: Vec<Told>,
    /// Acknowledged writes that a takeover lost, takeover by takeover.
    lost: Vec<Vec<Told>>,
}

#[derive(Clone)]
struct Routers {
    channels: Arc<[RpcChannel]>,
    tasks: Arc<[String]>,
}

impl Routers {
    fn client(&self, n: usize) -> WorkingMemoryServiceClient<RpcChannel> {
        WorkingMemoryServiceClient::new(self.channels[n % self.channels.len()].clone())
    }

    fn task(&self, n: usize) -> String {
        self.tasks[n].clone()
    }
}

/// Two tasks for each replica, by the way that every router finds.
fn tasks(cluster: &Cluster) -> Arc<[String]> {
    let addresses = REPLICAS.map(|role| cluster.address(role));
    let at = |task: &String| rendezvous(&["local", task], addresses.iter().map(String::as_str))[0];
    let named = |n: usize| (0..).map(|k| format!("任务-{n}-{k}")).find(|task| at(task) == n / 2).expect("one of a few");
    (0..TASKS).map(named).collect()
}

/// Between two writes.
const fn rest(n: usize) -> Duration {
    Duration::from_millis(if n.is_multiple_of(2) { 10 } else { 1_500 })
}

fn patient<T>(body: T) -> Request<T> {
    let mut request = Request::new(body);
    request.set_timeout(PATIENCE);
    request
}

/// Of a refusal that is worth another try.
fn again(status: &tonic::Status) {
    let fault = strata_api::error::fault(status);
    assert!(fault.reason.retry_safe() || fault.reason.may_have_written(), "{fault:?}");
}

/// The board, as soon as somebody shows it.
async fn read(routers: &Routers, n: usize, from: usize) -> Told {
    for attempt in 0.. {
        let began = now();
        let get = pb::GetTaskRequest { user_id: USER.into(), task_id: routers.task(n), ..Default::default() };
        match routers.client(from + attempt).get_task(patient(get)).await {
            Ok(answer) => {
                let board = answer.into_inner().task.expect("a board");
                let value =
                    board.facts.iter().find(|fact| fact.key == KEY).map_or(0, |fact| fact.value.parse().expect("a number"));
                let (generation, version) = (board.generation, board.version);
                return Told { generation, version, value, began, ended: now(), first: attempt == 0 };
            }
            Err(status) => again(&status),
        }
        pause(Duration::from_millis(30)).await;
    }
    unreachable!("the loop returns")
}

/// Counts on one board, one write at a time, each at another router than the last.
async fn write(routers: Routers, n: usize, over: Arc<AtomicBool>) -> Story {
    let mut story = Story::default();
    let mut generation = 1;
    let mut since = 0;
    for value in 1_u64.. {
        if over.load(Ordering::SeqCst) {
            break;
        }
        let id = Uuid::from_u128((n as u128 + 1) << 96 | 4 << 76 | 2 << 62 | u128::from(value));
        let mut began = now();
        let mut first = true;
        for attempt in 0_usize.. {
            let fact = pb::Fact { key: KEY.into(), value: value.to_string(), source: "counter".into(), ..Default::default() };
            let put = pb::PutFactsRequest {
                user_id: USER.into(),
                task_id: routers.task(n),
                facts: vec![fact],
                request_id: id.to_string(),
                generation,
                ..Default::default()
            };
            match routers.client(n + value as usize + attempt).put_facts(patient(put)).await {
                Ok(answer) => {
                    let version = answer.into_inner().version;
                    story.writes.push(Told { generation, version, value, began, ended: now(), first });
                    break;
                }
                Err(status) => {
                    let fault = strata_api::error::fault(&status);
                    if fault.reason == Reason::TaskLost {
                        let told = fault.metadata.iter().find(|(name, _)| *name == "generation").expect("the new generation");
                        let board = read(&routers, n, attempt).await;
                        assert!(board.generation >= told.1.parse().expect("a number"), "{fault:?}");
                        generation = board.generation;
                        let lost: Vec<Told> =
                            story.writes[since..].iter().filter(|write| write.value > board.value).copied().collect();
                        since = story.writes.len();
                        story.reads.push(board);
                        story.lost.push(lost);
                        // It may be in the checkpoint, and answered as it was then.
                        (began, first) = (now(), false);
                        continue;
                    }
                    again(&status);
                    first = false;
                }
            }
            pause(Duration::from_millis(30)).await;
        }
        pause(rest(n)).await;
    }
    story
}

async fn watch(routers: Routers, over: Arc<AtomicBool>) -> Vec<(usize, Told)> {
    let mut seen = Vec::new();
    for n in 0_usize.. {
        if over.load(Ordering::SeqCst) {
            break;
        }
        // Each task at each router, in turn.
        let at = (n / 2) % TASKS;
        seen.push((at, read(&routers, at, n).await));
        pause(Duration::from_millis(10)).await;
    }
    seen
}

/// One copy at any time, and no loss but of one second.
fn judge(n: usize, story: &Story) {
    let mut by_version = BTreeMap::new();
    for write in story.writes.iter().filter(|write| write.first) {
        let other = by_version.insert(write.order(), write);
        assert!(other.is_none(), "task {n}: two writes at one version: {other:?} {write:?}");
    }
    let told = story.reads.iter().chain(&story.writes);
    for earlier in told {
        for read in story.reads.iter().filter(|read| read.began > earlier.ended) {
            assert!(read.order() >= earlier.order(), "task {n}: an older copy answered: {earlier:?} then {read:?}");
            let lost = read.generation > earlier.generation;
            assert!(lost || read.value >= earlier.value, "task {n}: {earlier:?} is not in {read:?}");
        }
        for write in story.writes.iter().filter(|write| write.first && write.began > earlier.ended) {
            assert!(write.order() > earlier.order(), "task {n}: an older copy took a write: {earlier:?} then {write:?}");
        }
    }
    for lost in &story.lost {
        let (Some(first), Some(last)) = (lost.iter().map(|w| w.ended).min(), lost.iter().map(|w| w.began).max()) else {
            continue;
        };
        assert!(last - first <= FENCE, "task {n}: a takeover lost more than a second: {lost:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w10_replicas_die_and_routers_disagree_and_a_task_has_one_copy_that_answers() {
    let seconds = std::env::var("STRATA_REPLICAS_SECONDS").ok().and_then(|n| n.parse().ok()).unwrap_or(25_i64);
    let mut cluster = Cluster::replicated();
    let open = |role: &str| {
        // As a client of a service that goes away for seconds would be set.
        channel::connect(&EndpointConfig {
            keepalive_interval: Duration::from_secs(2),
            ..EndpointConfig::new(cluster.address(role))
        })
        .expect("a channel")
    };
    let routers = Routers { channels: Arc::from([open("router"), open("router2")]), tasks: tasks(&cluster) };
    for n in 0..TASKS {
        let goal =
            json!({"user_id": USER, "task_id": routers.task(n), "goal": {"sentence": "Count.", "acceptance": "It is over."}});
        cluster.call("CreateTask", &goal).expect("a board");
    }
    let (tasks, over) = (TaskGroup::new(), Arc::new(AtomicBool::new(false)));
    let writers: Vec<_> = (0..TASKS).map(|n| tasks.spawn("writer", write(routers.clone(), n, Arc::clone(&over)))).collect();
    let readers: Vec<_> = (0..2).map(|_| tasks.spawn("reader", watch(routers.clone(), Arc::clone(&over)))).collect();

    let until = now() + seconds * 1_000_000;
    let mut steps = 0;
    let (mut killed, mut frozen) = (0, 0);
    while now() < until || steps < 4 {
        match steps % 4 {
            0 => {
                cluster.kill_and_restart("working2");
                killed += 1;
            }
            1 => {
                // It wakes up as one whose boards are elsewhere.
                cluster.freeze("working3", true);
                pause(STILL).await;
                cluster.freeze("working3", false);
                frozen += 1;
            }
            2 => {
                let known: &[&str] = if steps % 8 == 2 { &["working", "working3"] } else { &["working2", "working3"] };
                cluster.know("router2", known);
                cluster.kill_and_restart("router2");
            }
            _ => {
                cluster.kill("working");
                killed += 1;
                pause(Duration::from_secs(5)).await;
                cluster.start("working");
            }
        }
        steps += 1;
        pause(Duration::from_secs(1)).await;
    }
    over.store(true, Ordering::SeqCst);
    let mut stories = Vec::new();
    for writer in writers {
        stories.push(writer.await.expect("no panic"));
    }
    for reader in readers {
        for (n, read) in reader.await.expect("no panic") {
            stories[n].reads.push(read);
        }
    }
    let count = |of: fn(&Story) -> usize| stories.iter().map(of).sum::<usize>();
    let lost = count(|story| story.lost.iter().map(Vec::len).sum());
    eprintln!(
        "replicas: {killed} killed, {frozen} stopped; {} writes and {} reads; {} takeovers lost {lost} writes",
        count(|story| story.writes.len()),
        count(|story| story.reads.len()),
        count(|story| story.lost.len())
    );
    assert!(stories.iter().all(|story| story.writes.len() > 3 && story.reads.len() > 10), "hardly anything was asked for");
    for (n, story) in stories.iter().enumerate() {
        judge(n, story);
        let last = story.writes.last().expect("a write");
        for router in 0..2 {
            let board = read(&routers, n, router).await;
            assert!(board.value >= last.value || board.generation > last.generation, "{last:?} is not in {board:?}");
        }
    }
    calls_about_all_tasks_are_answered_by_any_replica(&mut cluster, &routers).await;
}

/// Lists, status and ends, with all replicas and with one that is gone.
async fn calls_about_all_tasks_are_answered_by_any_replica(cluster: &mut Cluster, routers: &Routers) {
    let names: Vec<String> = routers.tasks.to_vec();
    let list = |router: usize| {
        let routers = routers.clone();
        async move {
            let list = pb::ListTasksRequest { user_id: USER.into(), ..Default::default() };
            let answer = routers.client(router).list_tasks(patient(list)).await;
            answer.ok().map(|answer| answer.into_inner().tasks.into_iter().map(|task| task.task_id).collect::<Vec<_>>())
        }
    };
    let listed = |wanted: Vec<String>| async move {
        for router in 0..2 {
            eventually(SOON, || async { list(router).await.as_ref() == Some(&wanted) }).await;
        }
    };
    let working = |cluster: &Cluster| {
        let status = cluster.call("GetStatus", &json!({})).ok()?;
        let layer = status["layers"].as_array()?.iter().find(|layer| layer["layer"] == "working")?.clone();
        Some((layer["state"].as_str()?.to_owned(), layer["detail"].as_str().unwrap_or_default().to_owned()))
    };
    listed(names.clone()).await;
    eventually(SOON, || async { working(cluster).is_some_and(|(state, _)| state == "LAYER_STATE_OK") }).await;
    cluster.kill("working3");
    let degraded = ("LAYER_STATE_DEGRADED".to_owned(), "1 of 3 replicas do not answer".to_owned());
    eventually(SOON, || async { working(cluster) == Some(degraded.clone()) }).await;
    listed(names).await;
    for n in 0..TASKS {
        for attempt in 0.. {
            let end = pb::EndTaskRequest { user_id: USER.into(), task_id: routers.task(n), ..Default::default() };
            match routers.client(n + attempt).end_task(patient(end)).await {
                Ok(_) => break,
                Err(status) => again(&status),
            }
            pause(Duration::from_millis(50)).await;
        }
    }
    listed(Vec::new()).await;
    for n in 0..TASKS {
        let goal =
            json!({"user_id": USER, "task_id": routers.task(n), "goal": {"sentence": "Count.", "acceptance": "It is over."}});
        assert!(cluster.call("CreateTask", &goal).expect_err("not for a day").contains("TASK_ENDED"));
    }
}
