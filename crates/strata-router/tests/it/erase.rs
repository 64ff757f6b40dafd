//! The router's part of an erasure: open promotions, claims, the other layers, whoever asked for it (rules E2, E4).

use crate::world::{World, embedded, over_redis};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use strata_api::internal::v1 as internal;
use strata_api::longterm::v1 as longterm;
use strata_api::router::v1 as pb;
use strata_api::session::v1 as session;
use strata_api::working::v1 as working;
use strata_core::Clock as _;
use strata_router::ledger::Ledger;
use strata_router::modes::{Mode, Modes};
use strata_testkit::{RedisServer, eventually};

const ERASURE: &str = "01930000-0000-7000-8000-00000000000e";
const QUOTE: &str = "my locker code is KX-773108456";

fn id(n: u32) -> String {
    format!("01930000-0000-7000-8000-{n:012}")
}

fn promotion(n: u32, source: pb::promotion_source::Kind, content: &str) -> pb::PromoteRequest {
    pb::PromoteRequest {
        user_id: "u1".into(),
        promotion_id: id(n),
        source: Some(pb::PromotionSource { kind: Some(source) }),
        statement: Some(longterm::Statement { kind: longterm::Kind::Fact.into(), content: content.into(), ..Default::default() }),
        ..Default::default()
    }
}

fn of_turn(n: u32, seq: u32, quote: &str) -> pb::PromoteRequest {
    let source = pb::TurnQuote { session_id: "s".into(), seq, quote: quote.into() };
    promotion(n, pb::promotion_source::Kind::TurnQuote(source), quote)
}

fn of_fact(n: u32, key: &str) -> pb::PromoteRequest {
    let source = pb::TaskFact { task_id: "t".into(), key: key.into() };
    promotion(n, pb::promotion_source::Kind::TaskFact(source), "The locker code is KX-773108456.")
}

/// The end of the session, which hands a fact of it to the router.
fn ending(n: u32, key: &str) -> session::EndSessionRequest {
    let statement = longterm::Statement {
        kind: longterm::Kind::Fact.into(),
        content: "This record tells where a key lies.".into(),
        ..Default::default()
    };
    let promotion = session::SessionPromotion { promotion_id: id(n), key: key.into(), statement: Some(statement) };
    session::EndSessionRequest { user_id: "u1".into(), session_id: "s".into(), promotions: vec![promotion], ..Default::default() }
}

async fn promote(world: &World, request: pb::PromoteRequest) -> pb::Promotion {
    world.calls().promote(request).await.unwrap().into_inner().promotion.unwrap()
}

async fn state(world: &World, n: u32) -> pb::PromotionState {
    let request = pb::GetPromotionRequest { user_id: "u1".into(), promotion_id: id(n) };
    world.calls().get_promotion(request).await.unwrap().into_inner().promotion.unwrap().state()
}

/// Two turns, a board fact and a fact of a session that has ended, whose promotions wait because writes are off.
async fn waiting(ledger: Arc<dyn Ledger>) -> World {
    let world = World::new(ledger).await;
    let fact =
        working::Fact { key: "locker.code".into(), value: "KX-773108456".into(), source: "checker".into(), ..Default::default() };
    let put = working::PutFactsRequest { user_id: "u1".into(), task_id: "t".into(), facts: vec![fact], ..Default::default() };
    world.working().put_facts(put).await.unwrap();
    world
        .fake
        .state
        .lock()
        .turns
        .insert("s".into(), vec![(session::Role::User, QUOTE.into()), (session::Role::User, "always answer in Chinese".into())]);
    world.modes.store(Arc::new(Modes { longterm: Mode::WriteOff, ..Modes::default() }));
    for request in [of_turn(1, 1, QUOTE), of_turn(2, 2, "always answer in Chinese"), of_fact(3, "locker.code")] {
        assert_eq!(promote(&world, request).await.state(), pb::PromotionState::Deferred);
    }
    let fact = session::SessionFact { key: "drawer".into(), value: "KX-773108456".into(), seq: 1, ..Default::default() };
    let put = session::PutFactsRequest { user_id: "u1".into(), session_id: "s".into(), facts: vec![fact], ..Default::default() };
    world.session().put_facts(put).await.unwrap();
    let ended = world.session().end_session(ending(4, "drawer")).await.unwrap().into_inner();
    assert_eq!(ended.promotions[0].state, "DEFERRED");
    // The turn quotes that wait are checked against a session that is there.
    world
        .fake
        .state
        .lock()
        .turns
        .insert("s".into(), vec![(session::Role::User, QUOTE.into()), (session::Role::User, "always answer in Chinese".into())]);
    world
}

fn open(world: &World, steps: &[&str]) -> internal::OpenErasure {
    let scope = internal::ErasureScope {
        user_id: "u1".into(),
        erasure_id: ERASURE.into(),
        erase_epoch: u64::try_from(world.clock.now().micros()).unwrap(),
        texts: vec![QUOTE.into(), "KX-773108456".into()],
        keys: vec!["locker.code".into()],
        ..Default::default()
    };
    internal::OpenErasure {
        tenant_id: "t1".into(),
        scopes: vec![scope],
        steps: steps.iter().map(|step| (*step).to_owned()).collect(),
        actor: "key:test".into(),
    }
}

/// Until no step is left: the router's own recovery may be at it too.
async fn driven(world: &World) {
    eventually(Duration::from_secs(30), async || {
        world.router.recover().await.unwrap();
        world.fake.state.lock().erasures.iter().all(|open| open.steps.is_empty())
    })
    .await;
}

async fn cancels(ledger: Arc<dyn Ledger>) {
    let world = waiting(Arc::clone(&ledger)).await;
    world.clock.advance(Duration::from_secs(5));
    let erasure = open(&world, &["ledger", "session", "working"]);
    world.fake.state.lock().erasures.push(erasure);
    driven(&world).await;
    {
        let state = world.fake.state.lock();
        let last = state.settled.iter().rfind(|settled| settled.step == "ledger" && settled.problem.is_empty()).unwrap();
        let promotions = last.stores.iter().find(|store| store.store == "ledger.promotions").unwrap();
        assert_eq!((promotions.found, promotions.remaining), (promotions.removed, 0), "{promotions:?}");
        let layers: std::collections::BTreeSet<&str> = state.erased.iter().map(|(layer, _)| *layer).collect();
        assert_eq!(layers, ["session", "working"].into());
    }
    // The fourth says nothing of it in its own words: the journalled value of the session's fact does.
    for (n, expected) in [
        (1, pb::PromotionState::Aborted),
        (2, pb::PromotionState::Deferred),
        (3, pb::PromotionState::Aborted),
        (4, pb::PromotionState::Aborted),
    ] {
        assert_eq!(state(&world, n).await, expected, "{n}");
    }
    let journal = ledger.journal_list("2:t12:u1", world.clock.now()).await.unwrap();
    assert_eq!(journal.len(), 4);
    assert!(journal.iter().all(|row| !row.entry.contains("773108456") && !row.entry.contains("locker")), "{journal:?}");

    // The held ones are let go: what was erased does not come, what was not does.
    world.modes.store(Arc::new(Modes::default()));
    world.clock.advance(Duration::from_secs(60));
    world.router.recover().await.unwrap();
    assert_eq!(state(&world, 2).await, pb::PromotionState::Committed);
    assert!(world.fake.state.lock().statements.iter().all(|statement| !statement.content.contains("773108456")));
    let again = promote(&world, of_turn(1, 1, QUOTE)).await;
    assert_eq!(again.state(), pb::PromotionState::Aborted, "rule P7: the same id has one effect");
}

#[tokio::test]
async fn c022_e2_an_erasure_cancels_open_promotions_of_it_and_signs_the_others_again() {
    cancels(embedded()).await;
}

#[tokio::test]
async fn c022_e2_an_erasure_cancels_open_promotions_in_redis_too() {
    let redis = RedisServer::start();
    cancels(over_redis(&redis.url())).await;
}

#[tokio::test]
async fn e4_a_layer_that_does_not_answer_is_reported_and_done_by_the_next_look() {
    let world = World::new(embedded()).await;
    let erasure = open(&world, &["ledger", "session", "working"]);
    world.fake.state.lock().erasures.push(erasure);
    world.fake.session_down.store(true, Ordering::SeqCst);
    world.router.recover().await.unwrap();
    {
        let state = world.fake.state.lock();
        let session = state.settled.iter().rfind(|settled| settled.step == "session").unwrap();
        assert!(session.problem.contains("does not answer"), "{session:?}");
        assert_eq!(state.erasures[0].steps, ["session"]);
    }
    world.fake.session_down.store(false, Ordering::SeqCst);
    driven(&world).await;
}

#[tokio::test]
async fn e2_everything_takes_every_promotion_and_claim_of_the_user() {
    let ledger = embedded();
    let world = waiting(Arc::clone(&ledger)).await;
    let mut erasure = open(&world, &["ledger"]);
    erasure.scopes =
        vec![internal::ErasureScope { everything: true, texts: Vec::new(), keys: Vec::new(), ..erasure.scopes.remove(0) }];
    world.fake.state.lock().erasures.push(erasure);
    driven(&world).await;
    for n in 1..=4 {
        assert_eq!(state(&world, n).await, pb::PromotionState::Aborted, "{n}");
    }
    let settled = world.fake.state.lock().settled.clone();
    let claims = settled.iter().flat_map(|settled| &settled.stores).filter(|store| store.store == "ledger.claims");
    assert!(claims.map(|store| store.found).sum::<u64>() > 0, "{settled:?}");
    let fields = ledger.read("2:t12:u1", &["k:locker.code".to_owned()], world.clock.now()).await.unwrap();
    assert_eq!(fields, [None]);
}
