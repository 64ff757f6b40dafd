//! What was decided, and Explain (acceptance A145, A201, A202).

use crate::layers::memory;
use crate::world::{World, embedded, over_redis, principal, reason};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use strata_api::admin::v1 as admin;
use strata_api::admin::v1::admin_service_client::AdminServiceClient;
use strata_api::longterm::v1 as longterm;
use strata_api::router::v1 as pb;
use strata_api::session::v1 as session;
use strata_api::working::v1 as working;
use strata_core::limits::{DECISION_SECONDS, DECISIONS_PER_USER};
use strata_core::policy::authz::{Principal, Role};
use strata_core::time::{DAY, SECOND};
use strata_core::{Fault, Reason, Timestamp, UserId};
use strata_router::ledger::{DecisionRow, Ledger, Wanted};
use strata_router::modes::{Mode, Modes};
use strata_testkit::RedisServer;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// A call that belongs to the trace.
fn traced<T>(body: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(body);
    let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    request.metadata_mut().insert("traceparent", parent.parse().unwrap());
    request
}

fn ask(name: &str) -> pb::ExplainRequest {
    pb::ExplainRequest { user_id: "u1".into(), trace_id: name.into(), ..Default::default() }
}

async fn explain(world: &World, name: &str) -> Vec<pb::Decision> {
    world.calls().explain(ask(name)).await.unwrap().into_inner().decisions
}

/// Steps of a stage: subject, rule, outcome.
fn steps(decisions: &[pb::Decision], stage: pb::DecisionStage) -> Vec<(String, String, String)> {
    let all = decisions.iter().flat_map(|decision| &decision.steps).filter(|step| step.stage() == stage);
    all.map(|step| {
        let finding = step.finding.clone().unwrap_or_default();
        (step.subject.clone(), finding.rule, finding.outcome)
    })
    .collect()
}

fn statement(content: &str) -> longterm::Statement {
    longterm::Statement { kind: longterm::Kind::Preference.into(), content: content.into(), ..Default::default() }
}

const ONE: &str = "00000000-0000-7000-8000-00000000000a";
const TWO: &str = "00000000-0000-7000-8000-00000000000b";

async fn a201(ledger: Arc<dyn Ledger>) {
    let world = World::new(ledger).await;
    world.fake.put_fact("t", "invoice.total", "118.50 EUR");
    world.fake.put_turn("s", session::Role::User, "Please pay invoice 17.");
    world.fake.state.lock().memories = vec![
        memory(ONE, longterm::Kind::Constraint, "", "Never pay on Sundays."),
        memory(TWO, longterm::Kind::Preference, "pay.method", "Pays by bank transfer."),
    ];

    // Write: a claim, a statement that passes, one that is refused.
    let put = working::PutFactsRequest {
        user_id: "u1".into(),
        task_id: "t".into(),
        facts: vec![working::Fact {
            key: "invoice.due".into(),
            value: "5 May".into(),
            source: "checker".into(),
            ..Default::default()
        }],
        ..Default::default()
    };
    world.working().put_facts(traced(put)).await.unwrap();
    let remember = |content: &str| longterm::RememberRequest {
        user_id: "u1".into(),
        statement: Some(statement(content)),
        ..Default::default()
    };
    world.longterm().remember(traced(remember("Pays by bank transfer."))).await.unwrap();
    world.fake.state.lock().refusal =
        Some(Fault::new(Reason::GateProvenance, "refused").rule("G3", "content", "a secret is never kept"));
    assert_eq!(reason(world.longterm().remember(traced(remember("hunter2"))).await), Reason::GateProvenance);
    world.fake.state.lock().refusal = None;

    // Recall and assembly, then the report of what was used.
    let assemble = pb::AssembleContextRequest {
        user_id: "u1".into(),
        session_id: "s".into(),
        task_id: "t".into(),
        input: "Is it due?".into(),
        ..Default::default()
    };
    let context = world.calls().assemble_context(traced(assemble)).await.unwrap().into_inner();
    assert_eq!(context.trace_id, TRACE);
    let usage = longterm::ReportUsageRequest {
        user_id: "u1".into(),
        recall_id: context.recall_id.clone(),
        memory_ids: vec![TWO.into()],
        ..Default::default()
    };
    // The report comes in another trace: it belongs to the recall.
    world.longterm().report_usage(usage).await.unwrap();

    let told = explain(&world, TRACE).await;
    let methods: Vec<&str> = told.iter().map(|decision| decision.method.as_str()).collect();
    assert_eq!(
        methods,
        [
            "WorkingMemoryService/PutFacts",
            "LongTermMemoryService/Remember",
            "LongTermMemoryService/Remember",
            "RouterService/AssembleContext",
            "LongTermMemoryService/ReportUsage",
        ]
    );
    let outcomes: Vec<&str> = told.iter().map(|decision| decision.outcome.as_str()).collect();
    assert_eq!(outcomes, ["OK", "OK", "GATE_PROVENANCE", "OK", "OK"]);
    assert!(told.iter().all(|decision| decision.caller == "key:test" && decision.time.is_some()));
    let owned = steps(&told, pb::DecisionStage::Ownership);
    assert!(owned.contains(&("invoice.due".into(), "P2".into(), "OWNED".into())), "{owned:?}");
    let gate = steps(&told, pb::DecisionStage::Gate);
    assert!(gate.contains(&("content".into(), "G3".into(), "REFUSED".into())), "{gate:?}");
    assert!(gate.iter().any(|(_, rule, outcome)| rule == "G" && outcome == "ACTIVE"), "{gate:?}");
    let candidates: Vec<&pb::DecisionStep> = told
        .iter()
        .flat_map(|decision| &decision.steps)
        .filter(|step| step.stage() == pb::DecisionStage::Candidate && step.subject == TWO)
        .collect();
    assert!(!candidates.is_empty() && candidates.iter().all(|step| step.score > 0.0), "{candidates:?}");
    let injected = steps(&told, pb::DecisionStage::Injected);
    assert!(injected.contains(&(TWO.into(), "C1".into(), "SHOWN".into())), "{injected:?}");
    assert!(injected.iter().any(|(subject, ..)| subject == "fact:invoice.total"));
    assert_eq!(steps(&told, pb::DecisionStage::Cited), [(TWO.to_owned(), "Q1".to_owned(), "CITED".to_owned())]);
    let layers = steps(&told, pb::DecisionStage::Mode);
    assert!(layers.contains(&("longterm".into(), "D2".into(), "OK".into())), "{layers:?}");
    // The recall's own name tells the same story of assembly and use; and no content is in any of it.
    let by_recall = explain(&world, &context.recall_id).await;
    assert_eq!(by_recall.len(), 2, "{by_recall:?}");
    let text = format!("{told:?}");
    for content in ["Sundays", "bank transfer", "hunter2", "118.50", "Is it due", "5 May", "invoice 17"] {
        assert!(!text.contains(content), "{content} in {text}");
    }
}

#[tokio::test]
async fn a201_one_trace_shows_the_four_stages_embedded() {
    a201(embedded()).await;
}

#[tokio::test]
async fn a201_one_trace_shows_the_four_stages_redis() {
    let server = RedisServer::start();
    a201(over_redis(&server.url())).await;
}

#[tokio::test]
async fn a145_without_a_trace_the_request_id_names_a_decision_and_modes_are_told() {
    let world = World::new(embedded()).await;
    world.modes.store(Arc::new(Modes { longterm: Mode::WriteOff, ..Modes::default() }));
    let mut request = tonic::Request::new(longterm::RememberRequest {
        user_id: "u1".into(),
        statement: Some(statement("Pays by bank transfer.")),
        ..Default::default()
    });
    request.metadata_mut().insert("x-request-id", "turn-17".parse().unwrap());
    assert_eq!(reason(world.longterm().remember(request).await), Reason::LayerWriteOff);
    let told = explain(&world, "turn-17").await;
    assert_eq!((told[0].trace_id.as_str(), told[0].outcome.as_str()), ("turn-17", "LAYER_WRITE_OFF"));
    assert_eq!(steps(&told, pb::DecisionStage::Mode), [("Remember".to_owned(), "D1".to_owned(), "REFUSED".to_owned())]);
    // Other traces, and reads that decide nothing, are not there.
    assert_eq!(reason(world.calls().explain(ask("turn-18")).await), Reason::NotFound);
    for bad in ["", "a b", "用户"] {
        assert_eq!(reason(world.calls().explain(ask(bad)).await), Reason::InvalidField, "{bad}");
    }
}

#[tokio::test]
async fn a205_nobody_is_told_what_was_decided_for_another() {
    let world = World::new(embedded()).await;
    let call = |agent: &str| {
        traced(longterm::RememberRequest {
            user_id: "u1".into(),
            agent_id: agent.into(),
            statement: Some(statement("Pays by bank transfer.")),
            ..Default::default()
        })
    };
    for agent in ["", "a1", "a2"] {
        world.longterm().remember(call(agent)).await.unwrap();
    }
    assert_eq!(explain(&world, TRACE).await.len(), 3, "the user as a whole sees all");
    let of_agent = pb::ExplainRequest { agent_id: "a1".into(), ..ask(TRACE) };
    assert_eq!(world.calls().explain(of_agent).await.unwrap().into_inner().decisions.len(), 2);
    let other = pb::ExplainRequest { user_id: "u2".into(), ..ask(TRACE) };
    assert_eq!(reason(world.calls().explain(other).await), Reason::NotFound);

    let bound = Principal { user: Some(UserId::new("u2").unwrap()), ..principal(Role::ALL) };
    let stranger = world.channel_of(&world.router, bound);
    let mut calls = strata_api::router::v1::router_service_client::RouterServiceClient::new(stranger.clone());
    assert_eq!(reason(calls.explain(ask(TRACE)).await), Reason::OwnerMismatch);
    let watch = admin::WatchDecisionsRequest { user_id: "u1".into(), ..Default::default() };
    let watched = AdminServiceClient::new(stranger).watch_decisions(watch.clone()).await;
    assert_eq!(reason(watched.map(|answer| answer.map(drop))), Reason::OwnerMismatch);
    let reader = world.channel_of(&world.router, principal(&[Role::Reader]));
    let watched = AdminServiceClient::new(reader).watch_decisions(watch).await;
    assert_eq!(reason(watched.map(|answer| answer.map(drop))), Reason::RoleMissing);
}

async fn next(stream: &mut tonic::Streaming<admin::WatchDecisionsResponse>) -> admin::WatchDecisionsResponse {
    let message = tokio::time::timeout(Duration::from_secs(30), stream.message()).await;
    message.expect("in time").expect("no failure").expect("not the end")
}

#[tokio::test]
async fn a202_a_watcher_sees_what_is_kept_and_then_what_comes() {
    let world = World::new(embedded()).await;
    let remember =
        || traced(longterm::RememberRequest { user_id: "u1".into(), statement: Some(statement("x y")), ..Default::default() });
    world.longterm().remember(remember()).await.unwrap();
    assert_eq!(explain(&world, TRACE).await.len(), 1);
    let watch = admin::WatchDecisionsRequest { user_id: "u1".into(), ..Default::default() };
    let mut stream = world.admin().watch_decisions(watch.clone()).await.unwrap().into_inner();
    let first = next(&mut stream).await;
    assert_eq!(first.decision.unwrap().method, "LongTermMemoryService/Remember");
    let only_new = admin::WatchDecisionsRequest { only_new: true, ..watch.clone() };
    let mut fresh = world.admin().watch_decisions(only_new).await.unwrap().into_inner();
    let forget = longterm::ForgetMemoriesRequest {
        user_id: "u1".into(),
        memory_ids: vec![ONE.into()],
        reason: "no longer true".into(),
        ..Default::default()
    };
    world.fake.longterm_down.store(true, Ordering::SeqCst);
    assert_eq!(reason(world.longterm().forget_memories(traced(forget)).await), Reason::StoreUnavailable);
    for stream in [&mut stream, &mut fresh] {
        let came = next(stream).await.decision.unwrap();
        assert_eq!((came.method.as_str(), came.outcome.as_str()), ("LongTermMemoryService/ForgetMemories", "STORE_UNAVAILABLE"));
    }
    let resumed = admin::WatchDecisionsRequest { after: first.cursor, ..watch.clone() };
    let mut stream = world.admin().watch_decisions(resumed).await.unwrap().into_inner();
    assert_eq!(next(&mut stream).await.decision.unwrap().method, "LongTermMemoryService/ForgetMemories");
    let foreign = admin::WatchDecisionsRequest { after: "no cursor".into(), ..watch };
    let refused = world.admin().watch_decisions(foreign).await;
    assert_eq!(reason(refused.map(|answer| answer.map(drop))), Reason::InvalidField);
}

fn row(names: [&str; 3], entry: &str) -> DecisionRow {
    DecisionRow { names: names.map(str::to_owned), entry: entry.into() }
}

/// One behaviour, both stores.
async fn store(ledger: Arc<dyn Ledger>) {
    let log = ledger.decisions().expect("keeps decisions");
    let now = Timestamp::from_seconds(1_800_000_000);
    let until = now.plus(DECISION_SECONDS * SECOND);
    let users = ["2:t12:u1", "1:{1:}"];
    let of = |name: &str| Wanted::Named(name.to_owned());
    for user in users {
        let rows = [row(["t1", "r1", ""], "one"), row(["t1", "r2", "c1"], "two"), row(["t2", "t2", ""], "three ID-1")];
        log.keep(user, &rows, now, until).await.unwrap();
        assert_eq!(log.kept(user, &of("t1"), 9, now).await.unwrap().entries, ["one", "two"]);
        assert_eq!(log.kept(user, &of("r1"), 9, now).await.unwrap().entries, ["one"]);
        assert_eq!(log.kept(user, &of("c1"), 9, now).await.unwrap().entries, ["two"]);
        assert_eq!(log.kept(user, &of("t1"), 1, now).await.unwrap().entries, ["one"]);
        assert!(log.kept(user, &of("x"), 9, now).await.unwrap().entries.is_empty());
        let first = log.kept(user, &Wanted::After(String::new()), 2, now).await.unwrap();
        assert_eq!(first.entries, ["one", "two"]);
        let rest = log.kept(user, &Wanted::After(first.cursor), 9, now).await.unwrap();
        assert_eq!(rest.entries, ["three ID-1"]);
        let newest = log.kept(user, &Wanted::Newest, 9, now).await.unwrap();
        assert_eq!((newest.entries.len(), &newest.cursor), (0, &rest.cursor));
        let none = log.kept(user, &Wanted::After(rest.cursor.clone()), 9, now).await.unwrap();
        assert_eq!((none.entries.len(), none.cursor), (0, rest.cursor));
        let foreign = log.kept(user, &Wanted::After("用".into()), 9, now).await.unwrap_err();
        assert_eq!(foreign.reason, Reason::InvalidField);
    }
    // Erasure by reference, then of the whole user; nobody else's.
    let all = Wanted::After(String::new());
    assert_eq!(log.erase(users[0], Some(&["ID-1".into(), String::new()])).await.unwrap(), 1);
    assert_eq!(log.kept(users[0], &all, 9, now).await.unwrap().entries, ["one", "two"]);
    assert_eq!(log.erase(users[0], Some(&[])).await.unwrap(), 0);
    assert_eq!(log.erase(users[0], None).await.unwrap(), 2);
    assert!(log.kept(users[0], &all, 9, now).await.unwrap().entries.is_empty());
    assert_eq!(log.kept(users[1], &all, 9, now).await.unwrap().entries.len(), 3);
    // Bounded: the oldest go.
    let many: Vec<DecisionRow> = (0..DECISIONS_PER_USER + 5).map(|n| row(["t", "r", ""], &n.to_string())).collect();
    for part in many.chunks(100) {
        log.keep(users[0], part, now, until).await.unwrap();
    }
    let kept = log.kept(users[0], &all, many.len(), now).await.unwrap().entries;
    assert_eq!((kept.len(), kept[0].as_str()), (DECISIONS_PER_USER, "5"));
}

#[tokio::test]
async fn decisions_are_kept_embedded_for_their_time() {
    let ledger = embedded();
    store(Arc::clone(&ledger)).await;
    let later = Timestamp::from_seconds(1_800_000_000).plus(DECISION_SECONDS * SECOND + DAY);
    let log = ledger.decisions().unwrap();
    let all = Wanted::After(String::new());
    assert!(log.kept("1:{1:}", &all, 9, later).await.unwrap().entries.is_empty());
    ledger.sweep(later).await.unwrap();
    let before = Timestamp::from_seconds(1_800_000_000);
    assert!(log.kept("1:{1:}", &all, 9, before).await.unwrap().entries.is_empty(), "swept");
}

#[tokio::test]
async fn decisions_are_kept_in_redis_with_a_ttl() {
    let server = RedisServer::start();
    store(over_redis(&server.url())).await;
    for key in server.all_keys_with_ttl() {
        assert!(key.ttl.is_some() && key.key.ends_with(":decisions"), "{}", key.key);
    }
}

#[tokio::test]
async fn decisions_wait_for_a_store_that_is_down_for_a_moment() {
    let server = RedisServer::start();
    let world = World::new(over_redis(&server.url())).await;
    let call =
        traced(longterm::RememberRequest { user_id: "u1".into(), statement: Some(statement("x y")), ..Default::default() });
    server.stop_process();
    world.longterm().remember(call).await.unwrap();
    server.cont();
    let told = strata_testkit::eventually_some(Duration::from_secs(30), async || {
        world.calls().explain(ask(TRACE)).await.ok().map(|answer| answer.into_inner().decisions)
    });
    assert_eq!(told.await.len(), 1);
}
