//! One layer owns a fact: claims through PutFacts, marks through long-term writes, both ledgers.

use crate::world::{World, embedded, over_redis, reason};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use strata_api::longterm::v1 as longterm;
use strata_api::router::v1 as pb;
use strata_api::session::v1 as session;
use strata_api::working::v1 as working;
use strata_core::Reason;
use strata_core::policy::registry::Registry;
use strata_router::ledger::Ledger;
use strata_testkit::{FaultProxy, Mode, RedisServer, eventually};

fn put(task: &str, key: &str, value: &str) -> working::PutFactsRequest {
    let fact = working::Fact { key: key.into(), value: value.into(), source: "checker".into(), ..Default::default() };
    working::PutFactsRequest { user_id: "u1".into(), task_id: task.into(), facts: vec![fact], ..Default::default() }
}

fn remember(key: &str, content: &str) -> longterm::RememberRequest {
    let statement =
        longterm::Statement { kind: longterm::Kind::Fact.into(), key: key.into(), content: content.into(), ..Default::default() };
    longterm::RememberRequest { user_id: "u1".into(), statement: Some(statement), ..Default::default() }
}

async fn claims(world: &World, key: &str, task: &str) -> Vec<(String, String)> {
    let request = pb::GetOwnershipRequest { user_id: "u1".into(), key: key.into(), task_id: task.into(), ..Default::default() };
    let answer = world.calls().get_ownership(request).await.unwrap().into_inner();
    answer.claims.into_iter().map(|claim| (claim.layer, claim.state)).collect()
}

fn pair(layer: &str, state: &str) -> (String, String) {
    (layer.into(), state.into())
}

async fn story(ledger: Arc<dyn Ledger>) {
    let world = World::new(ledger).await;
    // A task owns what nobody owns, and keeps its epoch.
    let first = world.working().put_facts(put("task-1", "invoice.total", "1")).await.unwrap().into_inner();
    let again = world.working().put_facts(put("task-1", "invoice.total", "2")).await.unwrap().into_inner();
    assert!(first.facts[0].epoch > 0 && first.facts[0].epoch == again.facts[0].epoch);
    assert_eq!(claims(&world, "invoice.total", "task-1").await, [pair("working", "OWNED")]);
    // Another task of the user has its own level.
    world.working().put_facts(put("task-2", "invoice.total", "3")).await.unwrap();

    // The user's own words always win; what stands below becomes a read-only overlay.
    world.working().put_facts(put("task-1", "home.city", "Berlin")).await.unwrap();
    world.longterm().remember(remember("profile.city", "The user lives in Paris.")).await.unwrap();
    assert_eq!(claims(&world, "profile.city", "task-1").await, [pair("longterm", "OWNED"), pair("working", "OVERLAY")]);
    let refused = world.working().put_facts(put("task-1", "home.city", "Rome")).await.expect_err("owned outside");
    let fault = strata_api::error::fault(&refused);
    assert_eq!(fault.reason, Reason::FactOwnedByOtherLayer);
    assert!(fault.metadata.contains(&("layer", "longterm".into())) && fault.metadata.contains(&("level", "user".into())));
    assert!(fault.metadata.contains(&("epoch", "7".into())) && fault.message.contains("Promote"));
    assert_eq!(world.fake.fact("task-1", "home.city").value, "Berlin");
    let board = working::GetTaskRequest { user_id: "u1".into(), task_id: "task-1".into(), ..Default::default() };
    let facts = world.working().get_task(board).await.unwrap().into_inner().task.unwrap().facts;
    assert_eq!(
        facts.iter().map(|f| (f.key.as_str(), f.overlay)).collect::<Vec<_>>(),
        [("home.city", true), ("invoice.total", false)]
    );

    // A reference to the record is no claim (rule W11).
    let mut reference = put("task-1", "city.record", "");
    reference.facts[0].reference = Some(working::MemoryReference { memory_id: "m1".into(), version: 1 });
    world.working().put_facts(reference).await.unwrap();
    assert_eq!(claims(&world, "city.record", "task-1").await, []);

    // The end of the task ends its claims.
    world
        .working()
        .end_task(working::EndTaskRequest { user_id: "u1".into(), task_id: "task-1".into(), ..Default::default() })
        .await
        .unwrap();
    assert_eq!(claims(&world, "invoice.total", "task-1").await, []);
    assert_eq!(claims(&world, "invoice.total", "task-2").await, [pair("working", "OWNED")]);
    // When long-term memory owns the key no more, it can be claimed again.
    world.fake.state.lock().owners.clear();
    world.working().put_facts(put("task-3", "profile.city", "Rome")).await.unwrap();
}

#[tokio::test]
async fn a136_c178_one_fact_one_writing_layer_embedded() {
    story(embedded()).await;
}

#[tokio::test]
async fn a136_c178_one_fact_one_writing_layer_redis() {
    let server = RedisServer::start();
    story(over_redis(&server.url())).await;
    assert!(server.all_keys_with_ttl().iter().all(|key| key.ttl.is_some()));
}

#[tokio::test]
async fn c178_a_key_of_another_layer_is_refused_by_the_registry() {
    let registry = Registry::extended("[[key]]\npattern = \"task.scratch\"\nlayer = \"working\"\nscope = \"task\"\n").unwrap();
    let world = World::with_registry(embedded(), registry).await;
    let answer = world.longterm().remember(remember("task.scratch", "A parameter of this task.")).await;
    assert_eq!(reason(answer), Reason::FactOwnedByOtherLayer);
    assert!(world.fake.calls_of("Remember").is_empty(), "the layer was not asked");
}

#[tokio::test]
async fn the_marks_decide_when_longterm_memory_is_down() {
    let world = World::new(embedded()).await;
    world.longterm().remember(remember("profile.city", "The user lives in Paris.")).await.unwrap();
    world.fake.longterm_down.store(true, Ordering::SeqCst);
    assert_eq!(reason(world.working().put_facts(put("t", "profile.city", "Rome")).await), Reason::FactOwnedByOtherLayer);
    world.working().put_facts(put("t", "invoice.total", "1")).await.unwrap();
}

#[tokio::test]
async fn longterm_memory_decides_when_a_mark_was_lost() {
    let world = World::new(embedded()).await;
    world.fake.state.lock().owners.insert("profile.city".into(), 9);
    assert_eq!(reason(world.working().put_facts(put("t", "home.city", "Rome")).await), Reason::FactOwnedByOtherLayer);
}

#[tokio::test]
async fn a_lost_ledger_heals_at_the_next_write() {
    let world = World::new(embedded()).await;
    world.fake.put_fact("t", "k", "old");
    // The board has seen a far higher epoch than the clock gives: the claim is made again above it.
    let seen = u64::MAX / 4;
    world.fake.state.lock().tasks.get_mut("t").unwrap().get_mut("k").unwrap().epoch = seen;
    let answer = world.working().put_facts(put("t", "k", "new")).await.unwrap().into_inner();
    assert_eq!(answer.facts[0].epoch, seen + 1);
    assert_eq!(world.fake.calls_of("PutFacts").len(), 2);
}

#[tokio::test]
async fn boards_go_on_without_the_ledger_and_claims_are_entered_later() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let world = World::new(over_redis(&proxy.url("redis"))).await;
    world.working().put_facts(put("t", "a", "1")).await.unwrap();
    proxy.set(Mode::Refuse);
    world.working().put_facts(put("t", "b", "2")).await.unwrap();
    assert_eq!(world.fake.fact("t", "b").value, "2");
    // Long-term memory's own rows still count.
    world.fake.state.lock().owners.insert("profile.city".into(), 9);
    assert_eq!(reason(world.working().put_facts(put("t", "profile.city", "Rome")).await), Reason::FactOwnedByOtherLayer);
    proxy.set(Mode::Pass);
    let world = &world;
    eventually(Duration::from_secs(15), || async move {
        world.router.recover().await.is_ok() && claims(world, "b", "t").await == [pair("working", "OWNED")]
    })
    .await;
}

#[tokio::test]
async fn a_board_that_did_not_answer_is_told_of_its_overlay_later() {
    let world = World::new(embedded()).await;
    world.working().put_facts(put("t", "home.city", "Berlin")).await.unwrap();
    world.fake.working_down.store(true, Ordering::SeqCst);
    world.longterm().remember(remember("profile.city", "The user lives in Paris.")).await.unwrap();
    world.fake.working_down.store(false, Ordering::SeqCst);
    world.router.recover().await.unwrap();
    assert!(world.fake.fact("t", "home.city").overlay, "the board carries the label itself");
}

fn put_session(session_id: &str, key: &str, value: &str) -> session::PutFactsRequest {
    let fact = session::SessionFact { key: key.into(), value: value.into(), seq: 1, ..Default::default() };
    session::PutFactsRequest { user_id: "u1".into(), session_id: session_id.into(), facts: vec![fact], ..Default::default() }
}

fn session_fact(world: &World, session_id: &str, key: &str) -> session::SessionFact {
    world.fake.state.lock().facts[session_id][key].clone()
}

async fn session_story(ledger: Arc<dyn Ledger>) {
    let world = World::new(ledger).await;
    let owners = |task: &'static str, session_id: &'static str, key: &'static str| {
        let request = pb::GetOwnershipRequest {
            user_id: "u1".into(),
            key: key.into(),
            task_id: task.into(),
            session_id: session_id.into(),
            ..Default::default()
        };
        let mut calls = world.calls();
        async move {
            let answer = calls.get_ownership(request).await.unwrap().into_inner();
            answer.claims.into_iter().map(|claim| (claim.layer, claim.state)).collect::<Vec<_>>()
        }
    };
    // A session owns what nobody owns, keeps its epoch, and is one of several.
    let first = world.session().put_facts(put_session("s1", "invoice.total", "1")).await.unwrap().into_inner();
    let again = world.session().put_facts(put_session("s1", "invoice.total", "2")).await.unwrap().into_inner();
    assert!(first.facts[0].epoch > 0 && first.facts[0].epoch == again.facts[0].epoch);
    world.session().put_facts(put_session("s2", "invoice.total", "3")).await.unwrap();
    assert_eq!(owners("", "s1", "invoice.total").await, [pair("session", "OWNED")]);
    // Tasks of the session may not; tasks of no session, or of another one that does not, may.
    world.fake.put_fact("t@s1", "x", "1");
    assert_eq!(reason(world.working().put_facts(put("t@s1", "invoice.total", "4")).await), Reason::FactOwnedByOtherLayer);
    world.fake.put_fact("t", "x", "1");
    world.working().put_facts(put("t", "invoice.total", "4")).await.unwrap();
    world.fake.put_fact("t@s3", "x", "1");
    world.working().put_facts(put("t@s3", "invoice.total", "5")).await.unwrap();

    // The user's own words turn the session's fact into an overlay, known by an alias or not.
    world.session().put_facts(put_session("s1", "home.city", "Berlin")).await.unwrap();
    world.longterm().remember(remember("profile.city", "The user lives in Paris.")).await.unwrap();
    assert_eq!(owners("", "s1", "profile.city").await, [pair("longterm", "OWNED"), pair("session", "OVERLAY")]);
    let kept = session_fact(&world, "s1", "home.city");
    assert!(kept.overlay && kept.value == "Berlin");
    let refused = world.session().put_facts(put_session("s1", "home.city", "Rome")).await;
    assert_eq!(reason(refused), Reason::FactOwnedByOtherLayer);

    // The end of the session ends its claims.
    let end = session::EndSessionRequest { user_id: "u1".into(), session_id: "s1".into(), ..Default::default() };
    world.session().end_session(end).await.unwrap();
    assert_eq!(owners("", "s1", "invoice.total").await, []);
    assert_eq!(owners("", "s2", "invoice.total").await, [pair("session", "OWNED")]);
    world.working().put_facts(put("t@s1", "invoice.total", "6")).await.unwrap();
}

#[tokio::test]
async fn a136_a_session_owns_its_facts_embedded() {
    session_story(embedded()).await;
}

#[tokio::test]
async fn a136_a_session_owns_its_facts_redis() {
    let server = RedisServer::start();
    session_story(over_redis(&server.url())).await;
    assert!(server.all_keys_with_ttl().iter().all(|key| key.ttl.is_some()));
}

#[tokio::test]
async fn p04_new_session_claims_wait_for_the_ledger_and_held_ones_go_on() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let registry = Registry::extended("[[key]]\npattern = \"talk.topic\"\nlayer = \"session\"\nscope = \"session\"\n").unwrap();
    let world = World::with_registry(over_redis(&proxy.url("redis")), registry).await;
    let held = world.session().put_facts(put_session("s", "a", "1")).await.unwrap().into_inner().facts[0].epoch;
    proxy.set(Mode::Refuse);
    let refused = world.session().put_facts(put_session("s", "b", "1")).await;
    assert_eq!(reason(refused), Reason::StoreUnavailable);
    let again = world.session().put_facts(put_session("s", "a", "2")).await.unwrap().into_inner();
    assert_eq!(again.facts[0].epoch, held, "at the store's own epoch");
    world.session().put_facts(put_session("s", "talk.topic", "cats")).await.expect("the registry gives it to sessions");
    // Long-term memory's own rows still count.
    world.fake.state.lock().owners.insert("a".into(), 9);
    assert_eq!(reason(world.session().put_facts(put_session("s", "a", "3")).await), Reason::FactOwnedByOtherLayer);
    world.fake.state.lock().owners.clear();
    proxy.set(Mode::Pass);
    let here = &world;
    eventually(Duration::from_secs(15), || async move {
        here.router.recover().await.is_ok() && claims_of_session(here, "talk.topic").await == [pair("session", "OWNED")]
    })
    .await;
    world.session().put_facts(put_session("s", "b", "1")).await.unwrap();
}

async fn claims_of_session(world: &World, key: &str) -> Vec<(String, String)> {
    let request = pb::GetOwnershipRequest { user_id: "u1".into(), key: key.into(), session_id: "s".into(), ..Default::default() };
    let Ok(answer) = world.calls().get_ownership(request).await else { return Vec::new() };
    answer.into_inner().claims.into_iter().map(|claim| (claim.layer, claim.state)).collect()
}

#[tokio::test]
async fn a_session_that_saw_a_higher_epoch_is_claimed_above_it() {
    let world = World::new(embedded()).await;
    let old = session::SessionFact { key: "k".into(), value: "old".into(), epoch: u64::MAX / 4, ..Default::default() };
    world.fake.state.lock().facts.entry("s".into()).or_default().insert("k".into(), old);
    let answer = world.session().put_facts(put_session("s", "k", "new")).await.unwrap().into_inner();
    assert_eq!(answer.facts[0].epoch, u64::MAX / 4 + 1);
}
