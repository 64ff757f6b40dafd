//! Kill -9 in the middle of writes, again and again: what was acknowledged is there, once, and index and records agree.
//!
//! `STRATA_CRASH_ROUNDS` sets the rounds (20 without it), `STRATA_CRASH_SEED` the seed; both are printed.

use crate::cluster::{Cluster, VECTOR_DIMS};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strata_api::admin::v1 as admin;
use strata_api::admin::v1::admin_service_client::AdminServiceClient;
use strata_api::longterm::v1 as pb;
use strata_api::longterm::v1::long_term_memory_service_client::LongTermMemoryServiceClient;
use strata_runtime::channel::{self, EndpointConfig, RpcChannel};
use strata_testkit::Random;
use strata_testkit::poll::eventually;
use tonic::Code;
use uuid::Uuid;

/// Writers at a time.
const WRITERS: u32 = 6;
/// Rounds on one store: later ones would check more than they write.
const ROUNDS_PER_STORE: u32 = 40;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

/// One write of one writer.
#[derive(Clone, Debug)]
enum Write {
    /// A fact of its own.
    Keyless(u32),
    /// A value of the writer's key: supersedes the one before.
    Keyed(u32),
    /// Forgets a fact.
    Forget(String),
}

#[derive(Clone, Debug)]
struct Request {
    writer: u32,
    id: Uuid,
    write: Write,
}

impl Request {
    fn content(&self) -> String {
        match &self.write {
            Write::Keyless(n) => format!("counter {} stands at {n}77", self.writer),
            Write::Keyed(n) => format!("gauge {} shows {n}77", self.writer),
            Write::Forget(id) => id.clone(),
        }
    }

    fn key(&self) -> String {
        format!("gauge.g{}", self.writer)
    }

    fn statement(&self) -> pb::Statement {
        let content = self.content();
        let mut vector = vec![0.05; VECTOR_DIMS];
        vector[self.id.as_bytes()[15] as usize % VECTOR_DIMS] = 1.0;
        let (key, value) = match &self.write {
            Write::Keyed(n) => {
                let value = strata_core::record::Value::Text(format!("{n}77"));
                (self.key(), Some(strata_api::convert::common::wire_value(&value)))
            }
            Write::Keyless(_) | Write::Forget(_) => (String::new(), None),
        };
        let record = pb::SystemRecord { system: "meter".into(), record_id: self.id.to_string() };
        pb::Statement {
            kind: pb::Kind::Fact.into(),
            source_quote: content.clone(),
            content,
            source: pb::Source::AuthoritativeSystem.into(),
            source_ref: Some(pb::SourceRef { kind: Some(pb::source_ref::Kind::SystemRecord(record)) }),
            trigger: pb::Trigger::Sync.into(),
            key,
            value,
            vector,
            ..Default::default()
        }
    }

    /// Sends it; the id of the record it is about.
    async fn send(&self, client: &LongTermMemoryServiceClient<RpcChannel>, user: &str) -> Result<String, tonic::Status> {
        let (mut client, user_id, request_id) = (client.clone(), user.to_owned(), self.id.to_string());
        if let Write::Forget(id) = &self.write {
            let memory_ids = vec![id.clone()];
            let reason = "asked for".to_owned();
            let request = pb::ForgetMemoriesRequest { user_id, memory_ids, reason, request_id, ..Default::default() };
            return client.forget_memories(request).await.map(|_| id.clone());
        }
        let request = pb::RememberRequest { user_id, statement: Some(self.statement()), request_id, ..Default::default() };
        let result = client.remember(request).await?.into_inner().result.unwrap_or_default();
        Ok(result.memory.unwrap_or_default().memory_id)
    }
}

/// What a writer knows at the moment of the kill.
#[derive(Debug, Default)]
struct Known {
    /// Requests that were answered, with the record they are about.
    acknowledged: Vec<(Request, String)>,
    /// The one that was not.
    open: Option<Request>,
}

/// Writes until the server is gone.
async fn writer(writer: u32, round: u32, seed: u64, url: String, user: String, stop: Arc<AtomicBool>) -> Known {
    let client = LongTermMemoryServiceClient::new(channel::connect(&EndpointConfig::new(&url)).expect("a channel"));
    let (mut random, mut known) = (Random(seed | 1), Known::default());
    let mut own: Vec<String> = Vec::new();
    for n in 1.. {
        let write = match random.below(5) {
            0 if !own.is_empty() => Write::Forget(own.swap_remove(random.below(own.len()))),
            0 | 1 => Write::Keyed(n),
            _ => Write::Keyless(n),
        };
        let id = u128::from(round) << 96 | u128::from(writer) << 64 | 4 << 76 | 2 << 62 | u128::from(n);
        let request = Request { writer, id: Uuid::from_u128(id), write };
        let answer = loop {
            match request.send(&client, &user).await {
                // A busy machine: the same request again is safe.
                Err(status) if may_be_late(&status) && !stop.load(Ordering::Acquire) => {}
                answer => break answer,
            }
        };
        match answer {
            Ok(id) => {
                if matches!(request.write, Write::Keyless(_)) {
                    own.push(id.clone());
                }
                known.acknowledged.push((request, id));
            }
            Err(status) if stop.load(Ordering::Acquire) => {
                assert_ne!(status.code(), Code::Internal, "{status:?}");
                known.open = Some(request);
                return known;
            }
            Err(status) => panic!("refused while the server ran: {status:?}"),
        }
    }
    known
}

/// Whether nobody knows what became of it, so that it is sent again under its id.
fn may_be_late(status: &tonic::Status) -> bool {
    matches!(status.code(), Code::DeadlineExceeded)
}

/// Every record of a user, of every status.
async fn all(client: &LongTermMemoryServiceClient<RpcChannel>, user: &str) -> Vec<pb::Memory> {
    let statuses = [
        pb::Status::Candidate,
        pb::Status::Active,
        pb::Status::Disputed,
        pb::Status::Superseded,
        pb::Status::Rejected,
        pb::Status::Deleted,
    ];
    let filter = pb::RecallFilter { statuses: statuses.map(i32::from).to_vec(), ..Default::default() };
    let mut request =
        pb::ListMemoriesRequest { user_id: user.to_owned(), filter: Some(filter), page_size: 1_000, ..Default::default() };
    let mut out = Vec::new();
    loop {
        let page = client.clone().list_memories(request.clone()).await.expect("a page").into_inner();
        out.extend(page.memories);
        if page.next_page_token.is_empty() {
            return out;
        }
        request.page_token = page.next_page_token;
    }
}

/// Records on their way to the index, differences, and how many records and points there are.
async fn verify(client: &AdminServiceClient<RpcChannel>) -> (u64, Vec<admin::Difference>, u64, u64) {
    let (mut pending, mut differences, mut records, mut points) = (0, Vec::new(), 0, 0);
    let mut request = admin::VerifyConsistencyRequest { page_size: 1_000, ..Default::default() };
    loop {
        let page = client.clone().verify_consistency(request.clone()).await.expect("a page").into_inner();
        pending += page.pending;
        records += page.records;
        points += page.points;
        differences.extend(page.differences);
        if page.next_page_token.is_empty() {
            return (pending, differences, records, points);
        }
        request.page_token = page.next_page_token;
    }
}

/// Everything acknowledged is there, in its state, once; each key has one value in force, the last one, at the end of a whole
/// chain.
fn check(round: u32, records: &[pb::Memory], writers: &[Known]) -> usize {
    let by_id: BTreeMap<&str, &pb::Memory> = records.iter().map(|m| (m.memory_id.as_str(), m)).collect();
    assert_eq!(by_id.len(), records.len(), "round {round}: a record is listed twice");
    let contents: BTreeSet<&str> = records.iter().map(|m| m.content.as_str()).collect();
    assert_eq!(contents.len(), records.len(), "round {round}: a statement is stored twice");
    let mut expected = BTreeSet::new();
    for known in writers {
        let forgotten: BTreeSet<&str> = known
            .acknowledged
            .iter()
            .filter_map(|(request, id)| matches!(request.write, Write::Forget(_)).then_some(id.as_str()))
            .collect();
        let mut last = None;
        for (request, id) in &known.acknowledged {
            let Some(found) = by_id.get(id.as_str()) else { panic!("round {round}: {request:?} was acknowledged and is gone") };
            expected.insert(id.as_str());
            match &request.write {
                Write::Forget(_) => assert_eq!(found.status(), pb::Status::Deleted, "round {round}: {request:?}"),
                Write::Keyless(_) => {
                    assert_eq!(found.content, request.content(), "round {round}");
                    let forgotten = forgotten.contains(id.as_str());
                    assert_eq!(found.status() == pb::Status::Deleted, forgotten, "round {round}: {request:?}");
                }
                Write::Keyed(_) => {
                    assert_eq!(found.content, request.content(), "round {round}");
                    last = Some((request.key(), id.as_str()));
                }
            }
        }
        let Some((key, last)) = last else { continue };
        let chain: Vec<&&pb::Memory> = by_id.values().filter(|m| m.key == key).collect();
        let active: Vec<&str> = chain.iter().filter(|m| m.status() == pb::Status::Active).map(|m| m.memory_id.as_str()).collect();
        assert_eq!(active, [last], "round {round}: the last acknowledged value of {key} is in force");
        let mut next = Some(last);
        let mut length = 0;
        while let Some(id) = next {
            length += 1;
            next = Some(by_id[id].supersedes.as_str()).filter(|id| !id.is_empty());
        }
        assert_eq!(length, chain.len(), "round {round}: the chain of {key} is whole");
    }
    assert_eq!(expected.len(), records.len(), "round {round}: something is there that nobody was told of");
    expected.len()
}

/// Where the store was left open at a kill, and how the process ended, is up to the machine; what must hold is not.
async fn survive(with_qdrant: bool) {
    let rounds = number("STRATA_CRASH_ROUNDS", 20) as u32;
    let seed = number("STRATA_CRASH_SEED", 20_261_130);
    eprintln!("crash: {rounds} rounds, seed {seed}, {}", if with_qdrant { "vectors at a server" } else { "embedded" });
    let mut random = Random(seed | 1);
    let mut cluster = Cluster::quick(with_qdrant, &[]);
    let (mut writes, mut replayed) = (0, 0);
    for round in 0..rounds {
        if round > 0 && round % ROUNDS_PER_STORE == 0 {
            cluster = Cluster::quick(with_qdrant, &[]);
        }
        let user = format!("round-{round}");
        let stop = Arc::new(AtomicBool::new(false));
        let tasks = strata_runtime::TaskGroup::new();
        let running: Vec<_> = (0..WRITERS)
            .map(|n| {
                let one = writer(n, round, random.below(usize::MAX) as u64, cluster.url(), user.clone(), Arc::clone(&stop));
                tasks.spawn("writer", one)
            })
            .collect();
        strata_runtime::ports::pause(Duration::from_millis(20 + random.below(250) as u64)).await;
        stop.store(true, Ordering::Release);
        cluster.kill_and_restart("all");
        let mut known = Vec::new();
        for one in running {
            known.push(one.await.expect("a writer"));
        }

        // What was under way is sent again under its id: it was done or it is done now, once.
        let channel = channel::connect(&EndpointConfig::new(cluster.url())).expect("a channel");
        let client = LongTermMemoryServiceClient::new(channel.clone());
        for one in &mut known {
            if let Some(request) = one.open.take() {
                let id = loop {
                    match request.send(&client, &user).await {
                        Ok(id) => break id,
                        Err(status) => assert!(may_be_late(&status), "round {round}: {status:?}"),
                    }
                };
                one.acknowledged.push((request, id));
                replayed += 1;
            }
        }
        writes += check(round, &all(&client, &user).await, &known);
        let operator = AdminServiceClient::new(channel);
        eventually(Duration::from_secs(30), || async { verify(&operator).await.0 == 0 }).await;
        let (_, differences, records, points) = verify(&operator).await;
        assert!(differences.is_empty(), "round {round}: {differences:?}");
        assert_eq!(records, points, "round {round}: one entry a record");
    }
    eprintln!("crash: {writes} records of acknowledged writes are there, once; {replayed} requests were under way");
    assert!(writes > rounds as usize, "hardly anything was written: {writes}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c129_kill_9_at_random_points_of_writes_loses_and_doubles_nothing_embedded() {
    survive(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c129_kill_9_at_random_points_of_writes_loses_and_doubles_nothing_with_a_vector_server() {
    survive(true).await;
}
