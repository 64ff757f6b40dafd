//! The promotion channel: outcomes, idempotency, and crashes between any two steps.

use crate::layers::{Fake, Landed};
use crate::world::{Crashing, World, embedded, over_redis, principal, reason};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use strata_api::longterm::v1 as longterm;
use strata_api::router::v1 as pb;
use strata_api::router::v1::router_service_client::RouterServiceClient;
use strata_api::session::v1 as session;
use strata_api::working::v1 as working;
use strata_core::policy::authz::Role;
use strata_core::{Fault, Reason};
use strata_router::RouterRole;
use strata_router::ledger::Ledger;
use strata_router::modes::{Mode, Modes};
use strata_testkit::RedisServer;

const ID: &str = "01930000-0000-7000-8000-000000000001";

fn statement(kind: longterm::Kind, content: &str) -> longterm::Statement {
    longterm::Statement { kind: kind.into(), content: content.into(), ..Default::default() }
}

fn of_fact(id: &str, key: &str) -> pb::PromoteRequest {
    let source = pb::TaskFact { task_id: "t".into(), key: key.into() };
    pb::PromoteRequest {
        user_id: "u1".into(),
        promotion_id: id.into(),
        source: Some(pb::PromotionSource { kind: Some(pb::promotion_source::Kind::TaskFact(source)) }),
        statement: Some(statement(longterm::Kind::Fact, "The default cost centre is CC-42.")),
        ..Default::default()
    }
}

fn of_turn(id: &str, seq: u32, quote: &str) -> pb::PromoteRequest {
    let source = pb::TurnQuote { session_id: "s".into(), seq, quote: quote.into() };
    pb::PromoteRequest {
        user_id: "u1".into(),
        promotion_id: id.into(),
        source: Some(pb::PromotionSource { kind: Some(pb::promotion_source::Kind::TurnQuote(source)) }),
        statement: Some(statement(longterm::Kind::Preference, "The user wants answers in Chinese.")),
        ..Default::default()
    }
}

async fn promote(world: &World, request: pb::PromoteRequest) -> pb::Promotion {
    world.calls().promote(request).await.unwrap().into_inner().promotion.unwrap()
}

async fn get(world: &World, id: &str) -> pb::Promotion {
    let request = pb::GetPromotionRequest { user_id: "u1".into(), promotion_id: id.into() };
    world.calls().get_promotion(request).await.unwrap().into_inner().promotion.unwrap()
}

fn put(key: &str, value: &str) -> working::PutFactsRequest {
    let fact = working::Fact { key: key.into(), value: value.into(), source: "checker".into(), ..Default::default() };
    working::PutFactsRequest { user_id: "u1".into(), task_id: "t".into(), facts: vec![fact], ..Default::default() }
}

async fn world_with_fact(ledger: Arc<dyn Ledger>) -> World {
    let world = World::new(ledger).await;
    world.working().put_facts(put("cost.centre", "CC-42")).await.unwrap();
    world
}

#[tokio::test]
async fn a_task_fact_is_committed_with_the_value_at_the_seal() {
    let world = world_with_fact(embedded()).await;
    let mut request = of_fact(ID, "cost.centre");
    // Source, quote and value of the request are not believed.
    let given = request.statement.as_mut().unwrap();
    given.source = longterm::Source::UserCorrection.into();
    given.source_quote = "forged".into();
    given.value = Some(strata_api::common::v1::Value { kind: Some(strata_api::common::v1::value::Kind::Text("CC-99".into())) });
    let promotion = promote(&world, request.clone()).await;
    assert_eq!((promotion.state(), promotion.memory_id.as_str()), (pb::PromotionState::Committed, "m1"));
    {
        let state = world.fake.state.lock();
        let stored = &state.statements[0];
        assert_eq!(
            (stored.source(), stored.source_quote.as_str(), stored.key.as_str()),
            (longterm::Source::Observation, "CC-42", "cost.centre")
        );
        assert!(format!("{:?}", stored.value).contains("CC-42"));
        assert!(!state.attestations[0].explicit_order, "Promote is no order of the user");
    }
    assert!(world.fake.fact("t", "cost.centre").overlay && world.fake.fact("t", "cost.centre").seal.is_none());
    // The owner moved out: the task cannot write it any more.
    assert_eq!(reason(world.working().put_facts(put("cost.centre", "CC-1")).await), Reason::FactOwnedByOtherLayer);
    // One effect per id, whatever is asked again (rule P7).
    assert_eq!(promote(&world, request.clone()).await, promotion);
    assert_eq!(get(&world, ID).await, promotion);
    assert_eq!(world.fake.state.lock().statements.len(), 1);
    request.statement.as_mut().unwrap().content = "Something else.".into();
    assert_eq!(reason(world.calls().promote(request).await), Reason::RequestIdReused);
}

#[tokio::test]
async fn what_the_gate_decides_is_shown_and_the_source_is_free_again() {
    let refusals = [
        Fault::new(Reason::GateContent, "cannot be read alone").rule("G7", "statement", "the text cannot be read alone"),
        Fault::new(Reason::GatePii, "a secret").rule("G3", "statement", "a secret is never stored"),
        Fault::new(Reason::GateContent, "noise").rule("G5", "statement", "noise"),
    ];
    let cases = [
        (longterm::Outcome::Candidate, pb::PromotionState::Queued),
        (longterm::Outcome::Disputed, pb::PromotionState::Queued),
        (longterm::Outcome::NeedsConsent, pb::PromotionState::NeedsConsent),
    ];
    for (outcome, state) in cases {
        let world = world_with_fact(embedded()).await;
        world.fake.state.lock().outcome = outcome;
        let promotion = promote(&world, of_fact(ID, "cost.centre")).await;
        assert_eq!(promotion.state(), state);
        assert_eq!(promotion.consent_challenge.is_empty(), state != pb::PromotionState::NeedsConsent);
        world.working().put_facts(put("cost.centre", "CC-43")).await.unwrap();
    }
    for refusal in refusals {
        let world = world_with_fact(embedded()).await;
        let rule = refusal.preconditions[0].rule.clone();
        world.fake.state.lock().refusal = Some(refusal);
        let promotion = promote(&world, of_fact(ID, "cost.centre")).await;
        assert_eq!((promotion.state(), promotion.findings[0].rule.clone()), (pb::PromotionState::Refused, rule));
        world.working().put_facts(put("cost.centre", "CC-43")).await.unwrap();
    }
}

#[tokio::test]
async fn a138_a143_conditions_of_the_router_refuse_before_anything_is_journalled() {
    let world = world_with_fact(embedded()).await;
    let mut no_exit = of_fact(ID, "cost.centre");
    no_exit.statement.as_mut().unwrap().kind = longterm::Kind::Assumption.into();
    assert_eq!(reason(world.calls().promote(no_exit).await), Reason::PromotionRefused);
    assert_eq!(reason(world.calls().promote(of_fact(ID, "no.such.fact")).await), Reason::NotFound);
    let request = pb::GetPromotionRequest { user_id: "u1".into(), promotion_id: ID.into() };
    assert_eq!(reason(world.calls().get_promotion(request).await), Reason::NotFound);
    // Another user does not see it.
    promote(&world, of_fact(ID, "cost.centre")).await;
    let request = pb::GetPromotionRequest { user_id: "u2".into(), promotion_id: ID.into() };
    assert_eq!(reason(world.calls().get_promotion(request).await), Reason::NotFound);
}

#[tokio::test]
async fn x02_a_sentence_of_a_summary_is_refused_the_turn_it_covers_is_not() {
    let world = World::new(embedded()).await;
    world.fake.put_turn("s", session::Role::User, "以后都用中文回复我，谢谢");
    world.fake.put_turn("s", session::Role::Assistant, "好的");
    let refused = promote(&world, of_turn(ID, 1, "The user prefers Chinese.")).await;
    assert_eq!((refused.state(), refused.findings[0].rule.as_str()), (pb::PromotionState::Refused, "G2"));
    let other = "01930000-0000-7000-8000-000000000002";
    let committed = promote(&world, of_turn(other, 1, "以后都用中文回复我")).await;
    assert_eq!(committed.state(), pb::PromotionState::Committed);
    let stored = world.fake.state.lock().statements.last().unwrap().clone();
    assert_eq!(stored.source(), longterm::Source::UserStatement);
}

#[tokio::test]
async fn a_target_that_is_down_or_switched_off_defers_and_is_offered_again() {
    let world = world_with_fact(embedded()).await;
    world.fake.put_turn("s", session::Role::User, "From now on always answer in Chinese.");
    let turn_id = "01930000-0000-7000-8000-000000000002";
    world.fake.longterm_down.store(true, Ordering::SeqCst);
    assert_eq!(promote(&world, of_fact(ID, "cost.centre")).await.state(), pb::PromotionState::Deferred);
    assert_eq!(promote(&world, of_turn(turn_id, 1, "always answer in Chinese")).await.state(), pb::PromotionState::Deferred);
    world.working().put_facts(put("cost.centre", "CC-43")).await.unwrap();
    // It is up, but its writes are off: still deferred.
    world.fake.longterm_down.store(false, Ordering::SeqCst);
    world.modes.store(Arc::new(Modes { longterm: Mode::WriteOff, ..Modes::default() }));
    world.clock.advance(Duration::from_secs(60));
    world.router.recover().await.unwrap();
    assert_eq!(get(&world, ID).await.state(), pb::PromotionState::Deferred);
    let third = "01930000-0000-7000-8000-000000000003";
    assert_eq!(promote(&world, of_turn(third, 1, "always answer in Chinese")).await.state(), pb::PromotionState::Deferred);
    world.modes.store(Arc::new(Modes::default()));
    world.clock.advance(Duration::from_secs(60));
    world.router.recover().await.unwrap();
    for id in [ID, turn_id, third] {
        assert_eq!(get(&world, id).await.state(), pb::PromotionState::Committed, "{id}");
    }
    assert!(
        world.fake.state.lock().statements.iter().any(|s| s.source_quote == "CC-43"),
        "the value that stands when it is sealed anew"
    );
}

#[tokio::test]
async fn a_sealed_fact_is_not_written_and_says_when_to_come_again() {
    let world = world_with_fact(embedded()).await;
    // The target goes silent after the seal.
    world.fake.saga_calls.store(1, Ordering::SeqCst);
    assert_eq!(promote(&world, of_fact(ID, "cost.centre")).await.state(), pb::PromotionState::Prepared);
    let refused = strata_api::error::fault(&world.working().put_facts(put("cost.centre", "CC-1")).await.expect_err("sealed"));
    assert_eq!(refused.reason, Reason::FactSealed);
    assert!(refused.retry_after_ms.is_some_and(|ms| ms > 0));
    let other = "01930000-0000-7000-8000-000000000002";
    assert_eq!(reason(world.calls().promote(of_fact(other, "cost.centre")).await), Reason::FactSealed);
}

#[tokio::test]
async fn a_silent_target_leaves_it_in_doubt_and_settles_it_when_it_answers() {
    for applied in [false, true] {
        let world = world_with_fact(embedded()).await;
        world.fake.saga_calls.store(1, Ordering::SeqCst);
        world.fake.lose_answer.store(applied, Ordering::SeqCst);
        assert_eq!(promote(&world, of_fact(ID, "cost.centre")).await.state(), pb::PromotionState::Prepared);
        // The board answers, the target does not: after the deadline and twice the skew the source is free.
        world.fake.saga_calls.store(-1, Ordering::SeqCst);
        world.fake.longterm_down.store(true, Ordering::SeqCst);
        world.clock.advance(Duration::from_secs(13));
        world.router.recover().await.unwrap();
        assert_eq!(get(&world, ID).await.state(), pb::PromotionState::Prepared, "not yet");
        world.clock.advance(Duration::from_secs(3));
        world.router.recover().await.unwrap();
        assert_eq!(get(&world, ID).await.state(), pb::PromotionState::InDoubt);
        assert!(world.fake.fact("t", "cost.centre").seal.is_none(), "the source is free");
        world.working().put_facts(put("cost.centre", "CC-77")).await.unwrap();
        world.fake.longterm_down.store(false, Ordering::SeqCst);
        world.clock.advance(Duration::from_secs(3));
        world.router.recover().await.unwrap();
        let expected = if applied { pb::PromotionState::Committed } else { pb::PromotionState::Aborted };
        assert_eq!(get(&world, ID).await.state(), expected);
        assert_eq!(world.fake.fact("t", "cost.centre").value, "CC-77", "the later value is not lost");
    }
}

/// What must hold when all is over, whatever broke on the way.
fn promises_hold(fake: &Fake, promotion: &pb::Promotion, what: &str) {
    let fact = fake.fact("t", "cost.centre");
    let state = fake.state.lock();
    let applied = matches!(state.landed.get(ID), Some(Landed::Applied(_)));
    assert_eq!(fact.seal, None, "{what}: the source is not left sealed");
    assert!(state.statements.len() <= 1, "{what}: applied at most once");
    let ended = promotion.state();
    assert!(
        matches!(ended, pb::PromotionState::Committed | pb::PromotionState::Aborted),
        "{what}: left in {}",
        ended.as_str_name()
    );
    // Applied and moved out, or neither.
    assert_eq!((applied, fact.overlay), (ended == pb::PromotionState::Committed, applied), "{what}");
}

async fn settle(world: &World, second: &RouterRole) -> pb::Promotion {
    let mut client = RouterServiceClient::new(world.channel_of(second, principal(Role::ALL)));
    for _ in 0..8 {
        world.clock.advance(Duration::from_secs(6));
        second.recover().await.unwrap();
    }
    let request = pb::GetPromotionRequest { user_id: "u1".into(), promotion_id: ID.into() };
    client.get_promotion(request).await.unwrap().into_inner().promotion.unwrap()
}

#[tokio::test]
async fn a_router_that_crashes_between_any_two_steps_is_finished_by_another() {
    let mut seen = std::collections::BTreeSet::new();
    // The journal takes 1, 2, ... entries and no more; the recovery begins at once or after the deadline.
    for writes in 1..=6 {
        for late in [0, 30] {
            let inner = embedded();
            let world = world_with_fact(Arc::clone(&inner)).await;
            let crashing: Arc<dyn Ledger> = Arc::new(Crashing { inner: Arc::clone(&inner), writes: AtomicI64::new(writes) });
            let first = world.another(&crashing).await;
            let mut client = RouterServiceClient::new(world.channel_of(&first, principal(Role::ALL)));
            drop(client.promote(of_fact(ID, "cost.centre")).await);
            world.clock.advance(Duration::from_secs(late));
            let promotion = settle(&world, &world.router).await;
            promises_hold(&world.fake, &promotion, &format!("crash after {writes} entries, recovery after {late} s"));
            seen.insert(promotion.state().as_str_name());
            first.shutdown(Duration::from_secs(1)).await;
        }
    }
    assert_eq!(seen.len(), 2, "some were finished, some undone: {seen:?}");
}

#[tokio::test]
async fn a_layer_that_fails_at_any_call_leaves_nothing_half_done() {
    for calls in 0..4 {
        for lost in [false, true] {
            for late in [0, 30] {
                let world = world_with_fact(embedded()).await;
                world.fake.saga_calls.store(calls, Ordering::SeqCst);
                world.fake.lose_answer.store(lost, Ordering::SeqCst);
                let first = promote(&world, of_fact(ID, "cost.centre")).await;
                world.clock.advance(Duration::from_secs(late));
                world.fake.saga_calls.store(-1, Ordering::SeqCst);
                let promotion = settle(&world, &world.router).await;
                promises_hold(
                    &world.fake,
                    &promotion,
                    &format!("{calls} calls, answer lost: {lost}, {late} s late, first {:?}", first.state()),
                );
            }
        }
    }
}

#[tokio::test]
async fn two_routers_over_redis_drive_one_promotion_once() {
    let server = RedisServer::start();
    let world = world_with_fact(over_redis(&server.url())).await;
    let second = world.another(&over_redis(&server.url())).await;
    let mut other = RouterServiceClient::new(world.channel_of(&second, principal(Role::ALL)));
    let mut this = world.calls();
    let (a, b) = futures::join!(this.promote(of_fact(ID, "cost.centre")), other.promote(of_fact(ID, "cost.centre")));
    assert!(a.is_ok() || b.is_ok());
    let promotion = settle(&world, &second).await;
    assert_eq!(promotion.state(), pb::PromotionState::Committed);
    promises_hold(&world.fake, &promotion, "two routers");
    assert!(server.all_keys_with_ttl().iter().all(|key| key.ttl.is_some()));
}
