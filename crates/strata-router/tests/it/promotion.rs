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
        // A store that does not answer now answers a later look.
        for _ in 0..10 {
            if second.recover().await.is_ok() {
                break;
            }
        }
    }
    let request = pb::GetPromotionRequest { user_id: "u1".into(), promotion_id: ID.into() };
    client.get_promotion(request).await.unwrap().into_inner().promotion.unwrap()
}

/// The ledger takes 1, 2, ... writes of the router and no more, the last one answered or not; the recovery by another
/// router begins at once or after the deadline.
async fn crashes(ledger: impl Fn() -> Arc<dyn Ledger>) {
    let mut seen = std::collections::BTreeSet::new();
    for writes in 1..=7 {
        for (lose_answer, late) in [(false, 0), (true, 0), (true, 30)] {
            let inner = ledger();
            let world = world_with_fact(Arc::clone(&inner)).await;
            let crashing = Crashing { inner: Arc::clone(&inner), writes: AtomicI64::new(writes), lose_answer };
            let crashing: Arc<dyn Ledger> = Arc::new(crashing);
            let first = world.another(&crashing).await;
            let mut client = RouterServiceClient::new(world.channel_of(&first, principal(Role::ALL)));
            let mut request = tonic::Request::new(of_fact(ID, "cost.centre"));
            // The caller leaves no time for attempts of the router that is as good as dead.
            request.set_timeout(Duration::from_millis(300));
            drop(client.promote(request).await);
            world.clock.advance(Duration::from_secs(late));
            let promotion = settle(&world, &world.router).await;
            let what = format!("crash after {writes} writes, answer lost: {lose_answer}, recovery after {late} s");
            promises_hold(&world.fake, &promotion, &what);
            seen.insert(promotion.state().as_str_name());
            // Their recoveries would look at their ledgers to the end of the test.
            first.shutdown(Duration::ZERO).await;
            world.router.shutdown(Duration::ZERO).await;
        }
    }
    assert_eq!(seen.len(), 2, "some were finished, some undone: {seen:?}");
}

#[tokio::test]
async fn a_router_that_crashes_between_any_two_steps_is_finished_by_another_embedded() {
    crashes(embedded).await;
}

#[tokio::test]
async fn a_router_that_crashes_between_any_two_steps_is_finished_by_another_redis() {
    let server = RedisServer::start();
    crashes(|| {
        let _: () = server.command(&["FLUSHALL"]);
        over_redis(&server.url())
    })
    .await;
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

/// Both stores, one story.
macro_rules! on_both_ledgers {
    ($story:ident: $embedded:ident, $redis:ident) => {
        #[tokio::test]
        async fn $embedded() {
            $story(embedded()).await;
        }

        #[tokio::test]
        async fn $redis() {
            let server = RedisServer::start();
            $story(over_redis(&server.url())).await;
            assert!(server.all_keys_with_ttl().iter().all(|key| key.ttl.is_some()));
        }
    };
}

async fn confirm(world: &World, memory_id: &str) {
    let request = longterm::ConfirmCandidateRequest {
        user_id: "u1".into(),
        memory_id: memory_id.into(),
        confirmation: "s:3".into(),
        ..Default::default()
    };
    world.longterm().confirm_candidate(request).await.unwrap();
}

async fn queued_story(ledger: Arc<dyn Ledger>) {
    let world = world_with_fact(ledger).await;
    world.fake.state.lock().outcome = longterm::Outcome::Candidate;
    let queued = promote(&world, of_fact(ID, "cost.centre")).await;
    assert_eq!((queued.state(), queued.memory_id.as_str()), (pb::PromotionState::Queued, "m1"));
    assert!(world.fake.fact("t", "cost.centre").seal.is_none(), "the source goes on meanwhile");
    world.working().put_facts(put("cost.centre", "CC-43")).await.unwrap();
    // Nothing has become of the candidate.
    world.clock.advance(Duration::from_secs(3600));
    world.router.recover().await.unwrap();
    assert_eq!(get(&world, ID).await.state(), pb::PromotionState::Queued);
    // The user confirms it: the source is an overlay, which nobody can seal, and what was sealed for the candidate is committed.
    confirm(&world, "m1").await;
    let done = get(&world, ID).await;
    assert_eq!((done.state(), done.sealed_value.as_str()), (pb::PromotionState::Committed, "CC-42"));
    assert!(done.deadline.unwrap().seconds > queued.deadline.unwrap().seconds, "with a new deadline");
    assert!(world.fake.fact("t", "cost.centre").overlay);
    assert_eq!(reason(world.working().put_facts(put("cost.centre", "CC-1")).await), Reason::FactOwnedByOtherLayer);
    let landed: Vec<String> = world.fake.state.lock().landed.keys().cloned().collect();
    assert_eq!(landed, [ID.to_owned(), format!("{ID}.1")], "each beginning has its own name at the target");

    // One whose candidate is rejected is over, and so is one whose candidate has gone without a word.
    world.working().put_facts(put("other.key", "1")).await.unwrap();
    let [second, third] = [2, 3].map(|n| format!("01930000-0000-7000-8000-00000000000{n}"));
    let rejected = promote(&world, of_fact(&second, "other.key")).await;
    let reject = longterm::RejectCandidateRequest { user_id: "u1".into(), memory_id: rejected.memory_id, ..Default::default() };
    world.longterm().reject_candidate(reject).await.unwrap();
    assert_eq!(get(&world, &second).await.state(), pb::PromotionState::Expired);
    let mut asked = of_fact(&third, "other.key");
    asked.statement.as_mut().unwrap().content = "The other key is 1.".into();
    let gone = promote(&world, asked.clone()).await;
    world.fake.state.lock().records.remove(&gone.memory_id);
    world.clock.advance(Duration::from_secs(3600));
    world.router.recover().await.unwrap();
    assert_eq!(promote(&world, asked).await.state(), pb::PromotionState::Expired, "the recovery looked");
    world.working().put_facts(put("other.key", "2")).await.unwrap();
}
on_both_ledgers!(queued_story: p06_a_confirmed_one_begins_anew_embedded, p06_a_confirmed_one_begins_anew_redis);

#[tokio::test]
async fn p06_a_confirmed_candidate_found_late_is_finished_by_any_router() {
    let world = world_with_fact(embedded()).await;
    world.fake.state.lock().outcome = longterm::Outcome::Candidate;
    promote(&world, of_fact(ID, "cost.centre")).await;
    // Confirmed while this router looked away.
    world.fake.state.lock().records.get_mut("m1").unwrap().status = longterm::Status::Active.into();
    world.clock.advance(Duration::from_secs(3600));
    world.router.recover().await.unwrap();
    assert_eq!(get(&world, ID).await.state(), pb::PromotionState::Committed);
}

async fn consent_story(ledger: Arc<dyn Ledger>) {
    let world = world_with_fact(ledger).await;
    world.fake.state.lock().outcome = longterm::Outcome::NeedsConsent;
    let asked = promote(&world, of_fact(ID, "cost.centre")).await;
    assert_eq!((asked.state(), asked.consent_challenge.as_str()), (pb::PromotionState::NeedsConsent, "challenge"));
    assert_eq!(promote(&world, of_fact(ID, "cost.centre")).await, asked, "without consent it stays");
    world.working().put_facts(put("cost.centre", "CC-43")).await.unwrap();
    let mut consented = of_fact(ID, "cost.centre");
    consented.statement.as_mut().unwrap().consent = asked.consent_challenge;
    let done = promote(&world, consented.clone()).await;
    assert_eq!((done.state(), done.sealed_value.as_str()), (pb::PromotionState::Committed, "CC-43"));
    assert_eq!(promote(&world, consented).await, done, "one effect");
    // Another text under the same id is another request, consent or not.
    let mut other = of_fact(ID, "cost.centre");
    let statement = other.statement.as_mut().unwrap();
    (statement.content, statement.consent) = ("Something else.".into(), "challenge".into());
    assert_eq!(reason(world.calls().promote(other).await), Reason::RequestIdReused);
}
on_both_ledgers!(consent_story: p06_a141_consent_lets_it_begin_anew_embedded, p06_a141_consent_lets_it_begin_anew_redis);

fn end_with(ids: &[(&str, &str)]) -> working::EndTaskRequest {
    let promotion = |(id, key): &(&str, &str)| working::TaskPromotion {
        promotion_id: (*id).into(),
        key: (*key).into(),
        statement: Some(statement(longterm::Kind::Fact, "The default cost centre is CC-42.")),
    };
    working::EndTaskRequest {
        user_id: "u1".into(),
        task_id: "t".into(),
        promotions: ids.iter().map(promotion).collect(),
        ..Default::default()
    }
}

async fn end_story(ledger: Arc<dyn Ledger>) {
    // With the target up, the fact is promoted while the board lives.
    let world = world_with_fact(ledger).await;
    let ended = world.working().end_task(end_with(&[(ID, "cost.centre")])).await.unwrap().into_inner();
    assert_eq!(ended.promotions[0].state(), pb::PromotionState::Committed);
    assert!(!world.fake.state.lock().tasks.contains_key("t"));

    // With the target down the task ends, and the journalled value is promoted when the target is back (rule P6).
    let second = "01930000-0000-7000-8000-000000000002";
    world.working().put_facts(put("other.key", "OK-7")).await.unwrap();
    world.fake.longterm_down.store(true, Ordering::SeqCst);
    let ended = world.working().end_task(end_with(&[(second, "other.key")])).await.unwrap().into_inner();
    assert_eq!(ended.promotions[0].state(), pb::PromotionState::Deferred);
    assert!(!world.fake.state.lock().tasks.contains_key("t"), "the board is gone");
    world.fake.longterm_down.store(false, Ordering::SeqCst);
    world.clock.advance(Duration::from_secs(60));
    world.router.recover().await.unwrap();
    let done = get(&world, second).await;
    assert_eq!((done.state(), done.sealed_value.as_str()), (pb::PromotionState::Committed, "OK-7"));
    let stored = world.fake.state.lock().statements.last().unwrap().clone();
    assert_eq!((stored.source_quote.as_str(), stored.key.as_str()), ("OK-7", "other.key"));

    // A fact that is not there, too many, a caller without the role: nothing ends.
    let third = "01930000-0000-7000-8000-000000000003";
    world.working().put_facts(put("a", "1")).await.unwrap();
    assert_eq!(reason(world.working().end_task(end_with(&[(third, "no.such")])).await), Reason::NotFound);
    assert_eq!(reason(world.working().end_task(end_with(&[(third, "a"); 17])).await), Reason::LimitReached);
    let executor = world.channel_of(&world.router, principal(&[Role::TaskExecutor]));
    let mut executor = working::working_memory_service_client::WorkingMemoryServiceClient::new(executor);
    assert_eq!(reason(executor.end_task(end_with(&[(third, "a")])).await), Reason::RoleMissing);
    assert!(world.fake.state.lock().tasks.contains_key("t"));
    executor.end_task(end_with(&[])).await.unwrap();
}
on_both_ledgers!(end_story: p06_a_task_ends_with_its_promotions_embedded, p06_a_task_ends_with_its_promotions_redis);

#[tokio::test]
async fn p06_a_task_whose_promotions_cannot_be_journalled_does_not_end() {
    let inner = embedded();
    let world = world_with_fact(Arc::clone(&inner)).await;
    let full: Arc<dyn Ledger> = Arc::new(Crashing { inner, writes: AtomicI64::new(0), lose_answer: false });
    let router = world.another(&full).await;
    let channel = world.channel_of(&router, principal(Role::ALL));
    let mut client = working::working_memory_service_client::WorkingMemoryServiceClient::new(channel);
    assert_eq!(reason(client.end_task(end_with(&[(ID, "cost.centre")])).await), Reason::StoreUnavailable);
    assert!(world.fake.state.lock().tasks.contains_key("t"), "the board stays");
    assert_eq!(world.fake.calls_of("EndTask").len(), 0);
}

/// A session with a turn of each kind and a fact from each of them.
async fn world_with_session(ledger: Arc<dyn Ledger>) -> World {
    let world = World::new(ledger).await;
    open_session(&world).await;
    world
}

async fn open_session(world: &World) {
    for (role, text) in [
        (session::Role::User, "Hello. From now on my cost centre is CC-42. Thanks!"),
        (session::Role::User, "你好。我以后都在上海办公。谢谢！"),
        (session::Role::Tool, "approver: Ms Berg"),
        (session::Role::Assistant, "You seem to like tea."),
    ] {
        world.fake.put_turn("s", role, text);
    }
    let fact = |(seq, key, value): (u32, &str, &str)| session::SessionFact {
        key: key.into(),
        value: value.into(),
        seq,
        ..Default::default()
    };
    let facts =
        [(1, "cost.centre", "CC-42"), (2, "office.city", "上海"), (3, "approver", "Ms Berg"), (4, "drink", "tea")].map(fact);
    put_session(world, facts.to_vec()).await.unwrap();
}

async fn put_session(
    world: &World,
    facts: Vec<session::SessionFact>,
) -> Result<tonic::Response<session::PutFactsResponse>, tonic::Status> {
    let put = session::PutFactsRequest { user_id: "u1".into(), session_id: "s".into(), facts, ..Default::default() };
    world.session().put_facts(put).await
}

fn cost_centre(value: &str) -> Vec<session::SessionFact> {
    vec![session::SessionFact { key: "cost.centre".into(), value: value.into(), seq: 1, ..Default::default() }]
}

fn of_session(id: &str, key: &str) -> pb::PromoteRequest {
    let source = pb::SessionFact { session_id: "s".into(), key: key.into() };
    let source = pb::PromotionSource { kind: Some(pb::promotion_source::Kind::SessionFact(source)) };
    pb::PromoteRequest { source: Some(source), ..of_fact(id, key) }
}

fn end_session(ids: &[(&str, &str)]) -> session::EndSessionRequest {
    let promotion = |(id, key): &(&str, &str)| session::SessionPromotion {
        promotion_id: (*id).into(),
        key: (*key).into(),
        statement: of_session(id, key).statement,
    };
    session::EndSessionRequest {
        user_id: "u1".into(),
        session_id: "s".into(),
        request_id: "01930000-0000-7000-8000-0000000000aa".into(),
        promotions: ids.iter().map(promotion).collect(),
        ..Default::default()
    }
}

fn other(n: u32) -> String {
    format!("01930000-0000-7000-8000-{n:012}")
}

async fn ended(world: &World, request: session::EndSessionRequest) -> Vec<session::SessionPromotionStatus> {
    world.session().end_session(request).await.unwrap().into_inner().promotions
}

/// The turns are still readable.
async fn goes_on(world: &World) -> bool {
    let turns =
        session::GetTurnsRequest { user_id: "u1".into(), session_id: "s".into(), from_seq: 1, to_seq: 2, ..Default::default() };
    world.session().get_turns(turns).await.is_ok_and(|answer| answer.into_inner().turns.len() == 2)
}

async fn later(world: &World) {
    world.clock.advance(Duration::from_secs(60));
    world.router.recover().await.unwrap();
}

async fn session_end_story(ledger: Arc<dyn Ledger>) {
    // The user's words in two languages, a tool's, a model's: each as what it is (rule G2).
    let world = world_with_session(ledger).await;
    let keys = ["cost.centre", "office.city", "approver", "drink"];
    let ids = [1, 2, 3, 4].map(other);
    let asked: Vec<(&str, &str)> = ids.iter().map(String::as_str).zip(keys).collect();
    let first = ended(&world, end_session(&asked)).await;
    let told: Vec<_> = first.iter().map(|p| (p.promotion_id.as_str(), p.key.as_str(), p.state.as_str())).collect();
    assert_eq!(told, asked.iter().map(|(id, key)| (*id, *key, "COMMITTED")).collect::<Vec<_>>(), "in their order");
    assert!(!goes_on(&world).await);
    {
        let state = world.fake.state.lock();
        let mut stored: Vec<_> = state
            .statements
            .iter()
            .zip(&state.attestations)
            .map(|(s, a)| (s.key.as_str(), s.source(), s.source_quote.as_str(), a.user_turn))
            .collect();
        stored.sort_unstable();
        assert_eq!(
            stored,
            [
                ("approver", longterm::Source::Observation, "approver: Ms Berg", false),
                ("cost.centre", longterm::Source::UserStatement, "From now on my cost centre is CC-42.", true),
                ("drink", longterm::Source::ModelInference, "You seem to like tea.", false),
                ("office.city", longterm::Source::UserStatement, "我以后都在上海办公。", true),
            ]
        );
        assert!(state.attestations.iter().all(|a| !a.explicit_order && a.turn_time.is_some()));
        let reference = state.statements[0].source_ref.clone().unwrap().kind.unwrap();
        assert!(matches!(reference, longterm::source_ref::Kind::Turn(turn) if turn.session_id == "s" && turn.seq > 0));
    }
    // A repetition has no second effect, and shows the same.
    assert_eq!(ended(&world, end_session(&asked)).await, first);
    assert_eq!(world.fake.state.lock().statements.len(), 4);
    let shown = get(&world, ids[0].as_str()).await;
    assert_eq!((shown.state(), shown.sealed_value.as_str()), (pb::PromotionState::Committed, "CC-42"));
    assert_eq!(shown.source, of_session(ID, "cost.centre").source);
}
on_both_ledgers!(session_end_story: p06_a_session_ends_with_its_promotions_embedded, p06_a_session_ends_with_its_promotions_redis);

async fn session_deferred_story(ledger: Arc<dyn Ledger>) {
    // The session is gone when the target comes back: what was journalled of the fact and of its turn stands for both.
    let world = world_with_session(ledger).await;
    world.fake.longterm_down.store(true, Ordering::SeqCst);
    let second = other(2);
    let promotions = ended(&world, end_session(&[(ID, "cost.centre"), (&second, "office.city")])).await;
    assert!(promotions.iter().all(|p| p.state == "DEFERRED" && p.findings[0].rule == "P6"), "{promotions:?}");
    assert!(!goes_on(&world).await);
    world.fake.longterm_down.store(false, Ordering::SeqCst);
    later(&world).await;
    for (id, value) in [(ID, "CC-42"), (&second, "上海")] {
        let done = get(&world, id).await;
        assert_eq!((done.state(), done.sealed_value.as_str()), (pb::PromotionState::Committed, value));
    }
    let state = world.fake.state.lock();
    assert!(state.statements.iter().all(|s| s.source() == longterm::Source::UserStatement), "{:?}", state.statements);
    let verified = |a: &strata_api::internal::v1::Attestation| {
        a.quote() == strata_api::internal::v1::QuoteState::Verified && a.user_turn && a.turn_time.is_some()
    };
    assert!(state.attestations.iter().all(verified), "{:?}", state.attestations);
}
on_both_ledgers!(session_deferred_story: p06_a_session_that_is_gone_is_promoted_from_later_embedded,
    p06_a_session_that_is_gone_is_promoted_from_later_redis);

#[tokio::test]
async fn p06_what_the_gate_makes_of_a_session_fact_is_told_and_the_session_ends() {
    let refusal = || Fault::new(Reason::GateContent, "alone").rule("G7", "statement", "the text cannot be read alone");
    for (outcome, refused, state, rule) in [
        (longterm::Outcome::Candidate, None, "QUEUED", ""),
        (longterm::Outcome::NeedsConsent, None, "NEEDS_CONSENT", ""),
        (longterm::Outcome::Active, Some(refusal()), "REFUSED", "G7"),
    ] {
        let world = world_with_session(embedded()).await;
        {
            let mut fake = world.fake.state.lock();
            (fake.outcome, fake.refusal) = (outcome, refused);
        }
        let told = ended(&world, end_session(&[(ID, "cost.centre")])).await.remove(0);
        assert_eq!(told.state, state);
        assert_eq!(told.findings.first().map_or("", |finding| finding.rule.as_str()), rule);
        assert!(!goes_on(&world).await, "{state}");
        match told.state.as_str() {
            // Confirmed when the session is long gone.
            "QUEUED" => {
                confirm(&world, &told.memory_id).await;
                assert_eq!(get(&world, ID).await.state(), pb::PromotionState::Committed);
            }
            // And so is one that the user consents to, through Promote under the same id.
            "NEEDS_CONSENT" => {
                let mut consented = of_session(ID, "cost.centre");
                consented.statement.as_mut().unwrap().consent = told.consent_challenge;
                assert_eq!(promote(&world, consented).await.state(), pb::PromotionState::Committed);
            }
            _ => assert_eq!(world.fake.state.lock().records.len(), 0),
        }
    }
}

#[tokio::test]
async fn p06_degraded_long_term_memory_defers_and_a_session_that_must_be_archived_stays() {
    for mode in [Mode::WriteOff, Mode::Bypass] {
        let world = world_with_session(embedded()).await;
        world.modes.store(Arc::new(Modes { longterm: mode, ..Modes::default() }));
        // It must be archived and cannot be: it stays, and its promotion waits in the journal.
        let required = session::EndSessionRequest { require_archive: true, ..end_session(&[(ID, "cost.centre")]) };
        assert_eq!(reason(world.session().end_session(required.clone()).await), Reason::StoreUnavailable);
        assert!(goes_on(&world).await, "{}", mode.name());
        assert_eq!(get(&world, ID).await.state(), pb::PromotionState::Deferred);
        world.modes.store(Arc::new(Modes::default()));
        later(&world).await;
        assert_eq!(ended(&world, required).await[0].state, "COMMITTED");
        assert_eq!(world.fake.state.lock().statements.len(), 1, "one effect");

        let world = world_with_session(embedded()).await;
        world.modes.store(Arc::new(Modes { longterm: mode, ..Modes::default() }));
        let promotions = ended(&world, end_session(&[(ID, "cost.centre")])).await;
        assert_eq!((promotions[0].state.as_str(), promotions[0].findings[0].rule.as_str()), ("DEFERRED", "D1"));
        assert!(!goes_on(&world).await, "{}", mode.name());
        world.modes.store(Arc::new(Modes::default()));
        later(&world).await;
        assert_eq!(get(&world, ID).await.state(), pb::PromotionState::Committed);
    }
    let world = world_with_session(embedded()).await;
    world.modes.store(Arc::new(Modes { longterm: Mode::RecallOff, session: Mode::WriteOff, ..Modes::default() }));
    assert_eq!(
        ended(&world, end_session(&[(ID, "cost.centre")])).await[0].state,
        "COMMITTED",
        "neither is a write off of its target"
    );
}

#[tokio::test]
async fn p06_a_session_whose_promotions_are_not_taken_does_not_end() {
    let inner = embedded();
    let world = world_with_session(Arc::clone(&inner)).await;
    let full: Arc<dyn Ledger> = Arc::new(Crashing { inner, writes: AtomicI64::new(0), lose_answer: false });
    let router = world.another(&full).await;
    let client = |router: &RouterRole, roles: &[Role]| {
        let channel = world.channel_of(router, principal(roles));
        session::session_memory_service_client::SessionMemoryServiceClient::new(channel)
    };
    let one = end_session(&[(ID, "cost.centre")]);
    // The journal does not take it.
    let refused = client(&router, Role::ALL).end_session(one.clone()).await;
    assert_eq!(reason(refused), Reason::StoreUnavailable);
    // The session does not say what it holds.
    world.fake.session_down.store(true, Ordering::SeqCst);
    assert_eq!(reason(world.session().end_session(end_session(&[(&other(2), "cost.centre")])).await), Reason::StoreUnavailable);
    world.fake.session_down.store(false, Ordering::SeqCst);
    // Not there, too many, one id for two requests, no kind, a caller without the role.
    let third = other(3);
    assert_eq!(reason(world.session().end_session(end_session(&[(&third, "no.such")])).await), Reason::NotFound);
    let many = end_session(&[(third.as_str(), "cost.centre"); 17]);
    assert_eq!(reason(world.session().end_session(many).await), Reason::LimitReached);
    let reused = end_session(&[(&third, "cost.centre"), (&third, "office.city")]);
    assert_eq!(reason(world.session().end_session(reused).await), Reason::RequestIdReused);
    let mut no_kind = one.clone();
    no_kind.promotions[0].statement.as_mut().unwrap().kind = 0;
    assert_eq!(reason(world.session().end_session(no_kind).await), Reason::InvalidField);
    assert_eq!(reason(client(&world.router, &[Role::SessionManager]).end_session(one.clone()).await), Reason::RoleMissing);
    assert!(goes_on(&world).await);
    assert_eq!(world.fake.calls_of("EndSession").len(), 0);
    // Twice the same in one request is one promotion, shown twice; without promotions the role is not asked for.
    let twice = ended(&world, end_session(&[(ID, "cost.centre"), (ID, "cost.centre")])).await;
    assert_eq!((twice.len(), twice[0].state.as_str()), (2, "COMMITTED"));
    assert_eq!(twice[0], twice[1]);
    client(&world.router, &[Role::SessionManager]).end_session(end_session(&[])).await.unwrap();
}

#[tokio::test]
async fn p06_one_promotion_that_is_refused_refuses_the_end_before_any_has_begun() {
    let world = world_with_session(embedded()).await;
    world.working().put_facts(put("desk.number", "D-7")).await.unwrap();
    world.working().put_facts(put("a", "1")).await.unwrap();
    let second = other(2);
    // The second is no UUID, has no such fact, no kind, an illegal key, or the id of the first.
    type Broken = fn(&mut (String, String, i32));
    let broken: [(Broken, Reason, &str); 5] = [
        (|(id, ..)| *id = "7".into(), Reason::InvalidField, "promotions[1].promotion_id"),
        (|(_, key, _)| *key = "no.such".into(), Reason::NotFound, "promotions[1]"),
        (|(.., kind)| *kind = 0, Reason::InvalidField, "promotions[1].statement.kind"),
        (|(_, key, _)| *key = "No Such".into(), Reason::InvalidField, "promotions[1].key"),
        (|(id, ..)| *id = ID.into(), Reason::RequestIdReused, "promotions[1]"),
    ];
    for (break_it, why, field) in broken {
        let (mut task, mut session) =
            (end_with(&[(ID, "desk.number"), (&second, "a")]), end_session(&[(ID, "cost.centre"), (&second, "office.city")]));
        macro_rules! break_second {
            ($of:ident) => {
                let one = &mut $of.promotions[1];
                let statement = one.statement.as_mut().unwrap();
                let mut parts = (one.promotion_id.clone(), one.key.clone(), statement.kind);
                break_it(&mut parts);
                (one.promotion_id, one.key, statement.kind) = parts;
            };
        }
        break_second!(task);
        break_second!(session);
        let of_task = world.working().end_task(task).await.map(drop).unwrap_err();
        let of_session = world.session().end_session(session).await.map(drop).unwrap_err();
        for refused in [of_task, of_session] {
            let fault = strata_api::error::fault(&refused);
            assert_eq!(fault.reason, why, "{fault:?}");
            let named = fault.fields.first().map_or_else(|| fault.metadata[0].1.as_str(), |violation| violation.field.as_str());
            assert_eq!(named, field, "{fault:?}");
            assert!(fault.message.starts_with(field), "{fault:?}");
        }
        later(&world).await;
        let all = pb::ListPromotionsRequest { user_id: "u1".into(), ..Default::default() };
        assert_eq!(listed(&world, all).await.promotions, [], "{field} {why:?}");
        assert_eq!(world.fake.state.lock().statements.len(), 0);
    }
    assert!(goes_on(&world).await && world.fake.calls_of("EndTask").is_empty());
    // Nor by a scope without a name, which is no fault of its promotions.
    let nameless = working::EndTaskRequest { task_id: String::new(), ..end_with(&[(ID, "desk.number")]) };
    let fault = strata_api::error::fault(&world.working().end_task(nameless).await.map(drop).unwrap_err());
    assert_eq!(fault.fields[0].field, "task_id");
    let task = world.working().end_task(end_with(&[(ID, "desk.number"), (&second, "a")])).await.unwrap().into_inner();
    assert!(task.promotions.iter().all(|promotion| promotion.state() == pb::PromotionState::Committed), "{task:?}");
}

#[tokio::test]
async fn p06_an_overlay_is_not_the_sessions_to_give_away_nor_the_tasks() {
    for down in [false, true] {
        let world = world_with_session(embedded()).await;
        world.working().put_facts(put("desk.number", "D-7")).await.unwrap();
        {
            let mut state = world.fake.state.lock();
            state.facts.get_mut("s").unwrap().get_mut("cost.centre").unwrap().overlay = true;
            state.tasks.get_mut("t").unwrap().get_mut("desk.number").unwrap().overlay = true;
        }
        // Nor later, when the scope has gone and only the journal tells.
        world.fake.longterm_down.store(down, Ordering::SeqCst);
        let told = ended(&world, end_session(&[(ID, "cost.centre")])).await.remove(0);
        assert_eq!((told.state.as_str(), told.findings[0].rule.as_str()), ("REFUSED", "P2"));
        let second = other(2);
        let task = world.working().end_task(end_with(&[(&second, "desk.number")])).await.unwrap().into_inner();
        assert_eq!(task.promotions[0].state(), pb::PromotionState::Refused);
        world.fake.longterm_down.store(false, Ordering::SeqCst);
        later(&world).await;
        assert_eq!(world.fake.state.lock().statements.len(), 0);
        assert!(!goes_on(&world).await);
    }
}

async fn session_goes_on_story(ledger: Arc<dyn Ledger>) {
    // Promoted without an end: the owner moves out, and the session's fact becomes an overlay.
    let world = world_with_session(ledger).await;
    let mut agents = of_session(ID, "drink");
    agents.agent_id = "a1".into();
    assert_eq!(promote(&world, agents).await.target(), strata_api::common::v1::Level::Agent);
    let second = other(2);
    world.fake.state.lock().outcome = longterm::Outcome::Candidate;
    assert_eq!(promote(&world, of_session(&second, "cost.centre")).await.state(), pb::PromotionState::Queued);
    put_session(&world, cost_centre("CC-43")).await.unwrap();
    world.fake.state.lock().outcome = longterm::Outcome::Active;
    let third = other(3);
    let done = promote(&world, of_session(&third, "cost.centre")).await;
    assert_eq!((done.state(), done.sealed_value.as_str()), (pb::PromotionState::Committed, "CC-43"));
    let stored = world.fake.state.lock().statements.last().unwrap().clone();
    assert_eq!(stored.source(), longterm::Source::ModelInference, "the turn says CC-42: the value is not the user's word");
    assert!(world.fake.state.lock().facts["s"]["cost.centre"].overlay);
    assert_eq!(reason(put_session(&world, cost_centre("CC-1")).await), Reason::FactOwnedByOtherLayer);
    assert!(goes_on(&world).await);
}
on_both_ledgers!(session_goes_on_story: p05_a_session_fact_is_promoted_while_the_session_goes_on_embedded,
    p05_a_session_fact_is_promoted_while_the_session_goes_on_redis);

#[tokio::test]
async fn p05_a_sealed_session_fact_is_not_written() {
    let world = world_with_session(embedded()).await;
    // The target goes silent after the seal.
    world.fake.saga_calls.store(1, Ordering::SeqCst);
    assert_eq!(promote(&world, of_session(ID, "cost.centre")).await.state(), pb::PromotionState::Prepared);
    assert_eq!(reason(put_session(&world, cost_centre("CC-1")).await), Reason::FactSealed);
    assert_eq!(reason(world.calls().promote(of_session(&other(2), "cost.centre")).await), Reason::FactSealed);
    world.fake.saga_calls.store(-1, Ordering::SeqCst);
    assert_eq!(settle(&world, &world.router).await.state(), pb::PromotionState::Committed);
}

/// A router that dies after any of its writes, or a layer that fails at any call: the session ends or does not, and a second
/// router, or the second call, finishes what was journalled, once.
#[tokio::test]
async fn p06_an_end_that_breaks_anywhere_promotes_once_or_never() {
    for (writes, calls) in (0..=7).map(|n| (Some(n), -1)).chain((0..4).map(|n| (None, n))) {
        for lost in [false, true] {
            let inner = embedded();
            let world = world_with_session(Arc::clone(&inner)).await;
            let breaking: Arc<dyn Ledger> = match writes {
                Some(writes) => Arc::new(Crashing { inner, writes: AtomicI64::new(writes), lose_answer: lost }),
                None => inner,
            };
            let first = world.another(&breaking).await;
            world.fake.saga_calls.store(calls, Ordering::SeqCst);
            world.fake.lose_answer.store(lost, Ordering::SeqCst);
            let channel = world.channel_of(&first, principal(Role::ALL));
            let mut client = session::session_memory_service_client::SessionMemoryServiceClient::new(channel);
            let mut request = tonic::Request::new(end_session(&[(ID, "cost.centre")]));
            request.set_timeout(Duration::from_millis(600));
            let answered = client.end_session(request).await;
            let what = format!("writes {writes:?}, calls {calls}, lost {lost}: {answered:?}");
            world.fake.saga_calls.store(-1, Ordering::SeqCst);
            for _ in 0..8 {
                world.clock.advance(Duration::from_secs(6));
                world.router.recover().await.unwrap();
            }
            let told = ended(&world, end_session(&[(ID, "cost.centre")])).await.remove(0);
            assert!(matches!(told.state.as_str(), "COMMITTED" | "ABORTED"), "{what}: {told:?}");
            {
                let state = world.fake.state.lock();
                assert_eq!(matches!(state.landed.get(ID), Some(Landed::Applied(_))), told.state == "COMMITTED", "{what}");
                assert_eq!(state.statements.len(), usize::from(told.state == "COMMITTED"), "{what}");
            }
            // Their recoveries would look at their ledgers to the end of the test.
            first.shutdown(Duration::ZERO).await;
            world.router.shutdown(Duration::ZERO).await;
        }
    }
}

/// The target took the value, its answer is lost, and then its writes are switched off: the source must not be unsealed as
/// though nothing had been applied.
async fn fence_story(ledger: Arc<dyn Ledger>, applied: bool) {
    let world = world_with_fact(ledger).await;
    world.fake.saga_calls.store(1, Ordering::SeqCst);
    world.fake.lose_answer.store(applied, Ordering::SeqCst);
    assert_eq!(promote(&world, of_fact(ID, "cost.centre")).await.state(), pb::PromotionState::Prepared);
    world.fake.saga_calls.store(-1, Ordering::SeqCst);
    world.modes.store(Arc::new(Modes { longterm: Mode::WriteOff, ..Modes::default() }));
    world.clock.advance(Duration::from_secs(3));
    world.router.recover().await.unwrap();
    let now = get(&world, ID).await;
    if applied {
        assert_eq!(now.state(), pb::PromotionState::Committed, "it had been applied");
        assert!(world.fake.fact("t", "cost.centre").overlay);
        return;
    }
    assert_eq!(now.state(), pb::PromotionState::Deferred);
    assert!(matches!(world.fake.state.lock().landed.get(ID), Some(Landed::Aborted)), "a late apply is refused");
    world.working().put_facts(put("cost.centre", "CC-50")).await.unwrap();
    world.modes.store(Arc::new(Modes::default()));
    world.clock.advance(Duration::from_secs(60));
    world.router.recover().await.unwrap();
    let done = get(&world, ID).await;
    assert_eq!((done.state(), done.sealed_value.as_str()), (pb::PromotionState::Committed, "CC-50"));
}

async fn fenced(ledger: Arc<dyn Ledger>) {
    fence_story(ledger, false).await;
}

async fn applied_before(ledger: Arc<dyn Ledger>) {
    fence_story(ledger, true).await;
}
on_both_ledgers!(fenced: p05_nothing_is_undone_without_the_fence_embedded, p05_nothing_is_undone_without_the_fence_redis);
on_both_ledgers!(applied_before: p05_what_was_applied_is_not_deferred_embedded, p05_what_was_applied_is_not_deferred_redis);

async fn listed(world: &World, request: pb::ListPromotionsRequest) -> pb::ListPromotionsResponse {
    world.calls().list_promotions(request).await.unwrap().into_inner()
}

async fn list_story(ledger: Arc<dyn Ledger>) {
    use futures::StreamExt as _;
    let world = world_with_fact(ledger).await;
    world.fake.put_turn("s", session::Role::User, "以后都用中文回复我");
    let ids: Vec<String> = (1..=5).map(|n| format!("01930000-0000-7000-8000-00000000000{n}")).collect();
    let own = || pb::WatchPromotionsRequest { user_id: "u1".into(), ..Default::default() };
    let mut watch = world.calls().watch_promotions(own()).await.unwrap().into_inner();
    for id in &ids {
        world.clock.advance(Duration::from_secs(1));
        let refused = id == &ids[4];
        let quote = if refused { "not what was said" } else { "以后都用中文回复我" };
        promote(&world, of_turn(id, 1, quote)).await;
        // A watcher sees each, in whatever states it passed.
        while let Some(seen) = watch.next().await {
            let seen = seen.unwrap().promotion.unwrap();
            let last = if refused { pb::PromotionState::Refused } else { pb::PromotionState::Committed };
            if seen.promotion_id == *id && seen.state() == last {
                break;
            }
        }
    }
    // Pages in order, a token of its own list only, a filter by state, nothing of others.
    let page = |size: i32, token: &str| pb::ListPromotionsRequest {
        user_id: "u1".into(),
        page_size: size,
        page_token: token.into(),
        ..Default::default()
    };
    let (mut token, mut seen) = (String::new(), Vec::new());
    loop {
        let answer = listed(&world, page(2, &token)).await;
        seen.extend(answer.promotions.into_iter().map(|p| p.promotion_id));
        token = answer.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(seen, ids);
    let only = pb::ListPromotionsRequest { states: vec![pb::PromotionState::Refused.into()], ..page(0, "") };
    let refused = listed(&world, only.clone()).await;
    assert_eq!(refused.promotions.len(), 1);
    let conditions: Vec<_> = refused.promotions[0].conditions.iter().map(|c| (c.condition.as_str(), c.verdict())).collect();
    assert_eq!(
        conditions,
        [
            ("STABLE", pb::ConditionVerdict::NotMet),
            ("SELF_CONTAINED", pb::ConditionVerdict::Met),
            ("AUTHORISED", pb::ConditionVerdict::Met)
        ]
    );
    let token = listed(&world, page(2, "")).await.next_page_token;
    let foreign = pb::ListPromotionsRequest { page_token: token, ..only };
    assert_eq!(reason(world.calls().list_promotions(foreign).await), Reason::InvalidPageToken);
    assert_eq!(reason(world.calls().list_promotions(page(-1, "")).await), Reason::InvalidField);
    assert!(listed(&world, page(2_000, "")).await.capped);
    let stranger = pb::ListPromotionsRequest { user_id: "u2".into(), ..Default::default() };
    assert_eq!(listed(&world, stranger).await.promotions, []);
    let agent = pb::ListPromotionsRequest { agent_id: "a1".into(), ..page(0, "") };
    assert_eq!(listed(&world, agent).await.promotions, []);

    // A watch of one promotion; of one that is not there, or is another user's.
    let one = pb::WatchPromotionsRequest { promotion_ids: vec![ids[0].clone()], ..own() };
    let first = world.calls().watch_promotions(one.clone()).await.unwrap().into_inner().next().await.unwrap().unwrap();
    assert_eq!(first.promotion.unwrap().promotion_id, ids[0]);
    let foreign = pb::WatchPromotionsRequest { user_id: "u2".into(), ..one };
    let refused = world.calls().watch_promotions(foreign).await.map(|_| ());
    assert_eq!(strata_api::error::fault(&refused.expect_err("not there")).reason, Reason::NotFound);
}
on_both_ledgers!(list_story: p09_lists_and_watches_embedded, p09_lists_and_watches_redis);
