//! The end of a promotion (rules P5 to P7).

use crate::world::*;
use strata_api::common::v1::Level;
use strata_api::convert::common::wire_time;
use strata_api::error;
use strata_api::internal::v1 as pb;
use strata_api::longterm::v1::{self as longterm, Outcome};
use strata_core::time::SECOND;
use strata_core::{Fault, Reason};

async fn apply(user: &Caller, promotion: &str, statement: longterm::Statement) -> Result<longterm::WriteResult, Fault> {
    let request = pb::ApplyRequest {
        user_id: user.user.clone(),
        agent_id: String::new(),
        promotion_id: promotion.into(),
        statement: Some(longterm::Statement { source_ref: Some(turn("s1", 7)), ..statement }),
        deadline: Some(wire_time(START.plus(10 * SECOND))),
        session_id: String::new(),
    };
    let answer = user.target().apply(request).await.map_err(|status| error::fault(&status))?;
    Ok(answer.into_inner().result.expect("a result"))
}

async fn abort(user: &Caller, promotion: &str) -> Option<longterm::WriteResult> {
    let request = pb::AbortRequest { user_id: user.user.clone(), promotion_id: promotion.into() };
    user.target().abort(request).await.expect("served").into_inner().applied
}

#[tokio::test]
async fn p5_p7_a_promotion_has_one_effect() {
    let world = World::new().await;
    let user = world.user("u1");
    let statement = states("profile.city", "Hangzhou", "I live in Hangzhou");
    let first = apply(&user, "p1", statement.clone()).await.expect("applied");
    assert_eq!(first.outcome(), Outcome::Active, "{first:?}");
    assert_eq!(apply(&user, "p1", statement.clone()).await.expect("the same"), first);
    assert_eq!(abort(&user, "p1").await, Some(first), "too late, and says so");
    assert_eq!(world.count("SELECT sum(evidence_count) FROM records").await, 1);

    assert_eq!(abort(&user, "p2").await, None);
    assert_eq!(apply(&user, "p2", statement.clone()).await.expect_err("aborted").reason, Reason::PromotionAborted);
    world.later(11 * SECOND).await;
    assert_eq!(apply(&user, "p3", statement).await.expect_err("late").reason, Reason::PromotionAborted);
    assert_eq!(world.count("SELECT count(*) FROM records").await, 1);
}

#[tokio::test]
async fn p6_a139_promotion_is_no_explicit_order() {
    let world = World::new().await;
    let user = world.user("u1");
    let queued = apply(&user, "p1", says("I sit at desk B-17")).await.expect("queued");
    assert_eq!(queued.outcome(), Outcome::Candidate);
    assert_eq!(apply(&user, "p2", says("use that one")).await.expect_err("refused").reason, Reason::GateContent);
    let consent = apply(&user, "p3", says("my mobile number is 13800138000")).await.expect("asked");
    assert_eq!(consent.outcome(), Outcome::NeedsConsent);
    assert_eq!(world.count("SELECT count(*) FROM promotions").await, 1, "nothing is settled while consent is wanting");
}

#[tokio::test]
async fn p1_owners_are_those_whose_records_hold() {
    let world = World::new().await;
    let user = world.user("u1");
    user.remember(states("profile.city", "Hangzhou", "I live in Hangzhou")).await.expect("stored");
    let agent = world.user("u1").agent("planner");
    agent.remember(states("profile.city", "Shanghai", "for this agent I live in Shanghai")).await.expect("stored");
    let ask = |caller: Caller| async move {
        let request = pb::GetOwnersRequest {
            user_id: caller.user.clone(),
            agent_id: caller.agent.clone(),
            keys: vec!["home.city".into(), "seat".into()],
        };
        let owners = caller.target().get_owners(request).await.expect("served").into_inner().owners;
        owners.iter().map(|o| (o.key.clone(), o.level())).collect::<Vec<_>>()
    };
    assert_eq!(ask(user.clone()).await, [("home.city".to_owned(), Level::User)]);
    assert_eq!(ask(agent.clone()).await, [("home.city".to_owned(), Level::User), ("home.city".to_owned(), Level::Agent)]);
    user.forget(&[], &["profile.city"]).await;
    assert!(ask(user).await.is_empty());
    assert!(ask(world.user("u2")).await.is_empty());
}

/// A fact that an executor checked, promoted from the task of a session.
async fn apply_fact(user: &Caller, promotion: &str, session: &str) -> longterm::WriteResult {
    let statement = longterm::Statement {
        kind: longterm::Kind::Fact.into(),
        key: "invoice.centre".into(),
        value: Some(strata_api::convert::common::wire_value(&strata_core::record::Value::Text("CC-42".into()))),
        content: "The invoice centre is CC-42.".into(),
        source: longterm::Source::Observation.into(),
        source_quote: "CC-42".into(),
        source_ref: Some(longterm::SourceRef { kind: Some(longterm::source_ref::Kind::TaskId("t".into())) }),
        trigger: longterm::Trigger::TaskEnd.into(),
        ..Default::default()
    };
    let request = pb::ApplyRequest {
        user_id: user.user.clone(),
        agent_id: String::new(),
        promotion_id: promotion.into(),
        statement: Some(statement),
        deadline: Some(wire_time(START.plus(10 * SECOND))),
        session_id: session.into(),
    };
    user.target().apply(request).await.expect("served").into_inner().result.expect("a result")
}

#[tokio::test]
async fn p6_g10_facts_of_tasks_count_the_sessions_they_came_from() {
    let world = World::new().await;
    let user = world.user("u1");
    let id = |n: u32| format!("01930000-0000-7000-8000-{n:012}");
    let first = apply_fact(&user, &id(1), "s1").await;
    assert_eq!(first.outcome(), Outcome::Candidate, "what an executor saw once waits: {first:?}");
    // The same session again, and the same promotion begun anew, count nothing.
    apply_fact(&user, &id(2), "s1").await;
    apply_fact(&user, &format!("{}.1", id(2)), "s2").await;
    let sessions = "SELECT evidence_sessions FROM records";
    assert_eq!((world.count(sessions).await, world.count("SELECT evidence_count FROM records").await), (1, 2));
    apply_fact(&user, &id(3), "s2").await;
    assert_eq!((world.count(sessions).await, world.count("SELECT due FROM records").await), (2, 0));
    let third = apply_fact(&user, &id(4), "s3").await;
    assert_eq!((third.outcome(), world.count(sessions).await), (Outcome::EvidenceAdded, 3));
    assert_eq!(world.count("SELECT due FROM records").await, 1, "three sessions: it is put to the user");
}
