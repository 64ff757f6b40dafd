//! Observe and Explain through real processes: durable over a kill, read by rule, told by name.

use crate::cluster::{Cluster, strata};
use futures::stream::{self, StreamExt as _};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use strata_api::error;
use strata_api::longterm::v1 as longterm;
use strata_api::router::v1 as router;
use strata_api::router::v1::router_service_client::RouterServiceClient;
use strata_api::session::v1 as session;
use strata_api::session::v1::session_memory_service_client::SessionMemoryServiceClient;
use strata_core::Reason;
use strata_core::limits::OBSERVE_PER_USER;
use strata_runtime::channel::{self, EndpointConfig, RpcChannel};
use strata_testkit::poll::blocking;

const USER: &str = "ada";
/// The killed router's lease has to end first.
const WAIT: Duration = Duration::from_secs(180);

fn observed(cluster: &Cluster, text: &str, request_id: &str) -> Value {
    let request = json!({"user_id": USER, "session_id": "s", "request_id": request_id, "turn": {"role": "USER", "text": text}});
    cluster.call("Observe", &request).expect("taken")
}

fn values(cluster: &Cluster, key: &str) -> Vec<String> {
    let found = cluster.call("LookupMemory", &json!({"user_id": USER, "key": key})).expect("looked up");
    let items = found["items"].as_array().cloned().unwrap_or_default();
    items.iter().filter_map(|item| item.pointer("/memory/content")?.as_str().map(str::to_owned)).collect()
}

fn survives(cluster: &mut Cluster, role: &'static str) {
    let id = "00000000-0000-4000-8000-000000000077";
    let taken = observed(cluster, "Thanks. I live in Hangzhou.", id);
    assert_eq!((taken["state"].as_str(), taken["observation_id"].as_str()), (Some("OBSERVE_STATE_QUEUED"), Some(id)));
    cluster.kill_and_restart(role);
    // What was acknowledged happens, once.
    let stored = blocking(WAIT, || Some(values(cluster, "profile.city")).filter(|found| !found.is_empty())).expect("in time");
    assert_eq!(stored, ["I live in Hangzhou."]);
    observed(cluster, "Thanks. I live in Hangzhou.", id);
    let told = blocking(WAIT, || {
        let output = strata(&["ctl", "--server", &cluster.url(), "explain", "--user", USER, id]);
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    })
    .expect("explained");
    assert!(told.contains("RouterService/Observe") && told.contains("O5") && told.contains("turn:1/2"), "{told}");
    assert!(!told.contains("Hangzhou"), "no content: {told}");
    let list = cluster.call("ListMemories", &json!({"user_id": USER})).expect("a list");
    assert_eq!(list["memories"].as_array().map(Vec::len), Some(1), "{list}");
}

#[test]
fn a62_an_observation_survives_a_kill_of_the_router_on_redis() {
    survives(&mut Cluster::four(false), "router");
}

#[test]
fn a62_an_observation_survives_a_kill_of_the_one_process() {
    survives(&mut Cluster::all_in_one(), "all");
}

/// Acceptance A201 over real layers: what was stored, found, shown and used, under names that a caller knows.
#[test]
fn a201_a202_explain_tells_of_a_context_and_quality_counts_it() {
    let cluster = Cluster::quick(false, &[]);
    let append = json!({"user_id": USER, "session_id": "s", "turns": [{"role": "USER", "text": "My cost centre is A-100."}]});
    cluster.call("AppendTurns", &append).expect("appended");
    let remember = json!({"user_id": USER, "statement": {
        "kind": "FACT", "content": "My cost centre is A-100.", "source": "USER_STATEMENT",
        "source_quote": "My cost centre is A-100.", "source_ref": {"turn": {"session_id": "s", "seq": 1}},
        "trigger": "USER_REQUEST"}});
    let stored = cluster.call("Remember", &remember).expect("stored");
    let memory = stored.pointer("/result/memory/memory_id").and_then(Value::as_str).expect("an id").to_owned();
    let assemble = json!({"user_id": USER, "session_id": "s", "input": "Which cost centre is mine?"});
    let context = cluster.call("AssembleContext", &assemble).expect("assembled");
    let recall = context["recall_id"].as_str().expect("a recall").to_owned();
    let usage = json!({"user_id": USER, "recall_id": recall, "memory_ids": [memory]});
    assert_eq!(cluster.call("ReportUsage", &usage).expect("reported")["hit_rate"].as_f64(), Some(1.0));
    let told = cluster.call("Explain", &json!({"user_id": USER, "trace_id": context["trace_id"]})).expect("explained");
    let stages: Vec<&str> = told["decisions"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|decision| decision["steps"].as_array().into_iter().flatten())
        .filter(|step| step["subject"].as_str() == Some(memory.as_str()))
        .filter_map(|step| step["stage"].as_str())
        .collect();
    for stage in ["DECISION_STAGE_CANDIDATE", "DECISION_STAGE_INJECTED", "DECISION_STAGE_CITED"] {
        assert!(stages.contains(&stage), "{stage}: {told}");
    }
    let quality = cluster.call("GetQuality", &json!({})).expect("counted");
    assert_eq!((quality["recalled"].as_u64(), quality["cited"].as_u64()), (Some(1), Some(1)), "{quality}");
    assert_eq!(quality["hit_rate"].as_f64(), Some(1.0));
    assert!(quality["token_share"].as_f64().is_some_and(|share| share > 0.0 && share < 1.0), "{quality}");
    let sample = cluster.call("SampleForReview", &json!({})).expect("drawn");
    let sample_id = sample.pointer("/samples/0/sample_id").and_then(Value::as_str).expect("a sample").to_owned();
    let review = json!({"sample_id": sample_id, "verdict": "STALE"});
    cluster.call("SubmitReview", &review).expect("taken");
    assert_eq!(cluster.call("GetQuality", &json!({})).expect("counted")["pollution_rate"].as_f64(), Some(1.0));
}

/// Users of the queue that is killed, and what each of them says: a thousand in all.
const SPEAKERS: usize = 10;
const OBSERVED: usize = 95;
/// Each about a slot of its own, so that the gate lets it in whatever comes first.
const PROMOTED: [&str; 5] = [
    "I prefer window seats",
    "I travel in business class",
    "reply in French",
    "I prefer short answers",
    "I work from 9:00 to 17:00",
];

/// A call that is sent again while a busy machine does not answer it; each has its id, or changes nothing.
macro_rules! answered {
    ($client:expr, $method:ident, $request:expr) => {
        strata_testkit::eventually_some(WAIT, async || {
            let mut request = tonic::Request::new($request.clone());
            request.set_timeout(Duration::from_secs(60));
            match $client.clone().$method(request).await {
                Ok(answer) => Some(answer.into_inner()),
                Err(status) => {
                    let fault = error::fault(&status);
                    assert!(fault.reason.retry_safe(), "{}: {fault:?}", stringify!($method));
                    None
                }
            }
        })
        .await
    };
}

fn numbered(kind: usize, user: usize, n: usize) -> String {
    format!("00000000-0000-4000-8{kind:03}-{:012}", user * 1_000 + n)
}

/// One user's part: what is said is observed turn by turn, and some of it is promoted.
async fn speak(channel: RpcChannel, user: usize) {
    let user_id = format!("speaker{user}");
    let router = RouterServiceClient::new(channel.clone());
    for n in 1..=OBSERVED {
        let turn = session::NewTurn {
            role: session::Role::User.into(),
            text: format!("My cost centre is A-{n:03}."),
            ..Default::default()
        };
        let request = router::ObserveRequest {
            user_id: user_id.clone(),
            session_id: "s".into(),
            turn: Some(turn),
            request_id: numbered(1, user, n),
            ..Default::default()
        };
        answered!(router, observe, request);
    }
    let sessions = SessionMemoryServiceClient::new(channel);
    for (n, quote) in (1..).zip(PROMOTED) {
        let quote = format!("From now on, {quote}.");
        let turn = session::NewTurn { role: session::Role::User.into(), text: quote.clone(), ..Default::default() };
        let append = session::AppendTurnsRequest {
            user_id: user_id.clone(),
            session_id: "s".into(),
            turns: vec![turn],
            request_id: numbered(2, user, n),
            ..Default::default()
        };
        let seq = answered!(sessions, append_turns, append).seqs[0];
        let quoted = router::TurnQuote { session_id: "s".into(), seq, quote: quote.clone() };
        let statement = longterm::Statement {
            kind: longterm::Kind::Fact.into(),
            content: quote,
            trigger: longterm::Trigger::DecisionPoint.into(),
            ..Default::default()
        };
        let promote = router::PromoteRequest {
            user_id: user_id.clone(),
            promotion_id: numbered(3, user, n),
            source: Some(router::PromotionSource { kind: Some(router::promotion_source::Kind::TurnQuote(quoted)) }),
            statement: Some(statement),
            ..Default::default()
        };
        let promotion = answered!(router, promote, promote).promotion.expect("journalled");
        assert_eq!(promotion.state(), router::PromotionState::Deferred, "{promotion:?}");
    }
}

/// Case C182: what is queued is kept over a SIGTERM, done once and in each user's order; the queue has an end, and says how full
/// and how old it is.
#[test]
fn c182_a_thousand_queued_survive_a_stop_and_are_done_once_in_order() {
    let mut cluster = Cluster::four_to_start();
    // Long-term memory is not there yet: all of it waits.
    for role in ["working", "session", "router"] {
        cluster.start(role);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let connect = |cluster: &Cluster| channel::connect(&EndpointConfig::new(cluster.url())).expect("a channel");
    let full = runtime.block_on(async {
        let channel = connect(&cluster);
        stream::iter(0..SPEAKERS).for_each_concurrent(4, |user| speak(channel.clone(), user)).await;
        // One user more, whose queue is filled to its end and beyond.
        let client = RouterServiceClient::new(channel);
        let of = |n: usize| router::ObserveRequest {
            user_id: "crowded".into(),
            session_id: "s".into(),
            seq: 1,
            turn: None,
            request_id: numbered(4, 0, n),
            ..Default::default()
        };
        let turn =
            session::NewTurn { role: session::Role::User.into(), text: "My cost centre is B-001.".into(), ..Default::default() };
        let first = router::ObserveRequest { seq: 0, turn: Some(turn), ..of(0) };
        answered!(client, observe, first);
        for n in 1..OBSERVE_PER_USER {
            answered!(client, observe, of(n));
        }
        error::fault(&client.clone().observe(of(OBSERVE_PER_USER)).await.expect_err("full"))
    });
    assert_eq!((full.reason, full.reason.code()), (Reason::Overloaded, strata_core::Code::ResourceExhausted));
    assert!(full.retry_after_ms.is_some(), "{full:?}");

    assert_eq!(cluster.terminate("router", Duration::from_secs(60)), Some(0), "it stops in order");
    let metrics = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
    cluster.set_env("STRATA_TELEMETRY__PROMETHEUS_LISTEN", &format!("127.0.0.1:{metrics}"));
    cluster.start("router");
    let gauge = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name) && !line.starts_with('#'))?;
        line.rsplit(' ').next()?.parse::<f64>().ok()
    };
    let waiting = blocking(WAIT, || {
        let text = crate::observability::scrape(metrics)?;
        let (depth, age) = (gauge(&text, "strata_observe_waiting")?, gauge(&text, "strata_observe_age_seconds")?);
        (depth > 0.0 && age > 0.0).then_some((depth, age))
    });
    let (depth, _) = waiting.expect("depth and age are metrics");
    assert_eq!(depth as usize, SPEAKERS * OBSERVED + OBSERVE_PER_USER, "nothing was lost by the stop");
    // Layer processes would want the same port.
    cluster.set_env("STRATA_TELEMETRY__PROMETHEUS_LISTEN", "127.0.0.1:0");
    cluster.start("longterm");

    let emptied = blocking(Duration::from_secs(900), || {
        let text = crate::observability::scrape(metrics)?;
        (gauge(&text, "strata_observe_waiting")? < 0.5).then_some(())
    });
    emptied.expect("worked off");
    for user in 0..SPEAKERS {
        let user_id = format!("speaker{user}");
        let request = json!({"user_id": user_id, "key": "work.cost_centre", "page_size": 1000});
        let history = cluster.call("GetHistory", &request).expect("a history");
        // In the order of their writing: ids grow with it.
        let mut chain: Vec<(String, String)> = history["memories"]
            .as_array()
            .expect("records")
            .iter()
            .map(|memory| {
                (memory["memory_id"].as_str().expect("an id").to_owned(), memory["content"].as_str().expect("words").to_owned())
            })
            .collect();
        chain.sort();
        let said: Vec<String> = (1..=OBSERVED).map(|n| format!("My cost centre is A-{n:03}.")).collect();
        assert_eq!(chain.into_iter().map(|(_, content)| content).collect::<Vec<_>>(), said, "{user_id}: each once, in order");
        assert_eq!(
            cluster.call("LookupMemory", &json!({"user_id": user_id, "key": "work.cost_centre"})).expect("found")["items"]
                .as_array()
                .map(Vec::len),
            Some(1)
        );
        let settled = blocking(WAIT, || {
            let list = cluster.call("ListPromotions", &json!({"user_id": user_id, "page_size": 100})).ok()?;
            let promotions = list["promotions"].as_array()?.clone();
            let done = promotions.iter().filter(|one| one["state"] == "PROMOTION_STATE_COMMITTED").count();
            (done == PROMOTED.len()).then_some(promotions)
        });
        let records: BTreeSet<String> = settled
            .unwrap_or_else(|late| panic!("{user_id}: {late}"))
            .iter()
            .filter_map(|one| one["memory_id"].as_str().map(str::to_owned))
            .collect();
        assert_eq!(records.len(), PROMOTED.len(), "{user_id}: each has its record");
    }
    // The same turn two hundred and fifty-six times is one record.
    let list = cluster.call("ListMemories", &json!({"user_id": "crowded"})).expect("a list");
    assert_eq!(list["memories"].as_array().map(Vec::len), Some(1), "{list}");
}
