//! Each layer and each store taken away, hung and slowed in turn: AssembleContext answers inside its deadline with what there
//! is (rule D2; acceptance A197, A200; case C119). The table of `docs/degradation.md` is this test's.

use crate::cluster::{Cluster, VECTOR_DIMS};
use serde_json::json;
use std::time::Duration;
use strata_api::common::v1::LayerState;
use strata_api::router::v1 as pb;
use strata_api::router::v1::router_service_client::RouterServiceClient;
use strata_runtime::RpcChannel;
use strata_runtime::channel::{self, EndpointConfig};
use strata_runtime::ports::Stopwatch;
use strata_testkit::poll::{eventually, eventually_some};
use strata_testkit::proxy::Mode;

const USER: &str = "ada";
/// What a caller gives the call. A debug build on a busy machine needs most of it for itself.
const DEADLINE: Duration = Duration::from_secs(6);
/// Until what was broken is back in use.
const HEALED: Duration = Duration::from_secs(90);
const INPUT: &str = "Which cost centre is mine?";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Nobody listens there.
    Gone,
    /// Connections stand, no byte moves.
    Hung,
    /// The process is stopped where it is (SIGSTOP).
    Frozen,
    /// Every byte takes this long.
    Slow(Duration),
}

/// States of working, session and long-term memory that the table promises; `None`: either is right.
type Promise = [Option<LayerState>; 3];

const UP: Option<LayerState> = Some(LayerState::Ok);
const OUT: Option<LayerState> = Some(LayerState::Unavailable);
const PART: Option<LayerState> = Some(LayerState::Degraded);

/// The table of rule D2.
const TABLE: &[(&str, Promise)] = &[
    ("working", [OUT, UP, UP]),
    ("session", [UP, OUT, UP]),
    ("longterm", [UP, UP, OUT]),
    ("redis", [UP, OUT, UP]),
    ("qdrant", [UP, UP, PART]),
];

fn calls(cluster: &Cluster) -> RouterServiceClient<RpcChannel> {
    RouterServiceClient::new(channel::connect(&EndpointConfig::new(cluster.url())).expect("a channel"))
}

async fn assemble(calls: &mut RouterServiceClient<RpcChannel>) -> (Result<pb::AssembleContextResponse, tonic::Status>, Duration) {
    let mut request = tonic::Request::new(pb::AssembleContextRequest {
        user_id: USER.into(),
        session_id: "s".into(),
        task_id: "t".into(),
        input: INPUT.into(),
        ..Default::default()
    });
    request.set_timeout(DEADLINE);
    let watch = Stopwatch::start();
    let answer = calls.assemble_context(request).await.map(tonic::Response::into_inner);
    (answer, watch.elapsed())
}

fn states(context: &pb::AssembleContextResponse) -> [LayerState; 3] {
    ["working", "session", "longterm"]
        .map(|layer| context.layers.iter().find(|status| status.layer == layer).map(pb_state).unwrap_or_default())
}

fn pb_state(status: &strata_api::common::v1::LayerStatus) -> LayerState {
    status.state()
}

fn set(cluster: &mut Cluster, target: &str, fault: Option<Fault>, before: Option<Fault>) {
    match (fault, before) {
        (Some(Fault::Frozen), _) if target == "redis" => cluster.redis.as_ref().expect("a server").stop_process(),
        (Some(Fault::Frozen), _) => cluster.freeze(target, true),
        (None, Some(Fault::Frozen)) if target == "redis" => cluster.redis.as_ref().expect("a server").cont(),
        (None, Some(Fault::Frozen)) => cluster.freeze(target, false),
        (fault, _) => {
            let mode = match fault {
                None | Some(Fault::Frozen) => Mode::Pass,
                Some(Fault::Gone) => Mode::Refuse,
                Some(Fault::Hung) => Mode::BlackHole,
                Some(Fault::Slow(by)) => Mode::Delay(by),
            };
            cluster.proxy(target).expect("a proxy").set(mode);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a200_a197_c119_c127_a_context_is_answered_whatever_is_gone_hung_or_slow() {
    let mut cluster = Cluster::behind_proxies();
    let task = json!({"user_id": USER, "task_id": "t", "goal": {"sentence": "Book the invoice.", "acceptance": "It is booked."}});
    cluster.call("CreateTask", &task).expect("created");
    let turns = json!({"user_id": USER, "session_id": "s", "turns": [{"role": "USER", "text": "My cost centre is A-100."}]});
    cluster.call("AppendTurns", &turns).expect("appended");
    let mut vector = vec![0.0; VECTOR_DIMS];
    vector[0] = 1.0;
    let request_id = "00000000-0000-4000-8000-000000000088";
    let remember = json!({"user_id": USER, "request_id": request_id, "statement": {
        "kind": "FACT", "content": "My cost centre is A-100.", "source": "USER_STATEMENT", "vector": vector,
        "source_quote": "My cost centre is A-100.", "source_ref": {"turn": {"session_id": "s", "seq": 1}},
        "trigger": "USER_REQUEST"}});
    // On a busy machine the first write may take its whole deadline.
    eventually(HEALED, async || cluster.call("Remember", &remember).is_ok()).await;
    let mut client = calls(&cluster);
    let whole = [LayerState::Ok; 3];
    let mut report = String::new();
    for (target, promise) in TABLE {
        for fault in [Fault::Gone, Fault::Hung, Fault::Frozen, Fault::Slow(Duration::from_millis(150))] {
            if fault == Fault::Frozen && *target == "qdrant" {
                // The double lives in this process.
                continue;
            }
            // Everything is in order before, so that what is seen is this fault's.
            eventually(HEALED, async || assemble(&mut calls(&cluster)).await.0.is_ok_and(|c| states(&c) == whole)).await;
            set(&mut cluster, target, Some(fault), None);
            for round in 0..2 {
                let (answer, took) = assemble(&mut client).await;
                let context = answer.unwrap_or_else(|status| panic!("{target} {fault:?}: {status}"));
                assert!(context.text.ends_with(INPUT), "{target} {fault:?}: the input is always whole");
                let seen = states(&context);
                let _ = std::fmt::Write::write_fmt(
                    &mut report,
                    format_args!("{target:<9} {fault:?} {round}: {seen:?} in {} ms\n", took.as_millis()),
                );
                if matches!(fault, Fault::Slow(_)) {
                    continue;
                }
                for (place, expected) in promise.iter().enumerate() {
                    // A board or session that is well is shown whatever else is not.
                    if let Some(expected) = expected {
                        assert_eq!(seen[place], *expected, "{target} {fault:?}, layer {place}\n{report}");
                    }
                }
                let known = context.text.contains("A-100");
                assert!(known || *target == "longterm" || *target == "session", "{target} {fault:?}: {}", context.text);
            }
            set(&mut cluster, target, None, Some(fault));
        }
    }
    let healed = eventually_some(HEALED, async || {
        let (answer, _) = assemble(&mut calls(&cluster)).await;
        answer.ok().filter(|context| states(context) == whole)
    });
    assert!(healed.await.text.contains("Book the invoice."), "all is back");
    eprintln!("{report}");
}

/// A store that is slow, at first a little and then beyond what anyone waits for: a write is served or refused with what a retry
/// covers, and once the store is well each is there once, under the id of its first attempt.
#[test]
fn writes_to_slow_stores_are_served_or_may_be_retried_and_each_is_there_once() {
    let mut cluster = Cluster::behind_proxies();
    let id = |n: usize| format!("00000000-0000-4000-8000-{n:012}");
    let append = |n: usize| json!({"user_id": USER, "session_id": "s", "request_id": id(n), "turns": [{"role": "USER", "text": format!("Meter {n} reads {n}77.")}]});
    let remember = |n: usize| {
        let (said, mut vector) = (format!("Meter {n} reads {n}77."), [0.05; VECTOR_DIMS]);
        vector[n % VECTOR_DIMS] = 1.0;
        let source_ref = json!({"system_record": {"system": "meter", "record_id": n.to_string()}});
        json!({"user_id": USER, "request_id": id(n), "statement": {"kind": "FACT", "content": said, "source": "AUTHORITATIVE_SYSTEM",
            "source_quote": said, "source_ref": source_ref, "trigger": "SYNC", "vector": vector}})
    };
    let mut n = 0;
    let (mut served, mut refused) = (0, 0);
    for (store, by) in [("redis", 100), ("redis", 3_000), ("qdrant", 100), ("qdrant", 3_000)] {
        set(&mut cluster, store, Some(Fault::Slow(Duration::from_millis(by))), None);
        let mut open = Vec::new();
        for _ in 0..2 {
            n += 1;
            for (rpc, request) in [("AppendTurns", append(n)), ("Remember", remember(n))] {
                match cluster.call(rpc, &request) {
                    Ok(_) => served += 1,
                    Err(said) => {
                        assert!(said.contains("retrying is safe"), "{store} by {by} ms: {rpc}: {said}");
                        refused += 1;
                        open.push((rpc, request));
                    }
                }
            }
        }
        set(&mut cluster, store, None, Some(Fault::Slow(Duration::ZERO)));
        for (rpc, request) in open {
            let again = strata_testkit::poll::blocking(HEALED, || cluster.call(rpc, &request).ok());
            again.unwrap_or_else(|late| panic!("{late}: {rpc} after {store} was slow"));
        }
    }
    eprintln!("slow stores: {served} writes were served, {refused} refused and retried");
    assert!(served > 0, "a store that is a little slow is in use");
    let turns = cluster.call("GetWindow", &json!({"user_id": USER, "session_id": "s", "max_turns": 100})).expect("a window");
    assert_eq!(turns["turns"].as_array().map(Vec::len), Some(n), "{turns}");
    let listed = cluster.call("ListMemories", &json!({"user_id": USER, "page_size": 100})).expect("a list");
    assert_eq!(listed["memories"].as_array().map(Vec::len), Some(n), "{listed}");
}
