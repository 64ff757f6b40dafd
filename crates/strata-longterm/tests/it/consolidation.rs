//! Consolidation (rule F5): many records on one topic become a summary that says nothing else; originals are read again, a
//! corrected or forgotten member takes the summary along, a person takes it back.

use crate::erase::{closed, erase_ids, verify};
use crate::forgetting::{cite, deeds, event, found, maintain, rules_of, run, with_status};
use crate::world::*;
use std::collections::BTreeSet;
use strata_api::admin::v1 as admin;
use strata_api::error;
use strata_api::longterm::v1 as pb;
use strata_core::{Reason, Timestamp};

/// Speaks of one topic, in either language, differently each time.
pub fn talk(language: &str, n: usize) -> pb::Statement {
    let content = match language {
        "en" => format!("I ran {} km along the river with Lin {n}", n + 3),
        _ => format!("我和林博伦沿河跑了{}公里，第{n}次", n + 3),
    };
    pb::Statement { topic: "Running".into(), importance: 2, ..event(&content) }
}

pub async fn say(world: &World, user: &Caller, language: &str, count: usize) -> Vec<String> {
    let mut ids = Vec::new();
    for n in 0..count {
        ids.push(id(&user.remember(talk(language, n)).await.expect("stored")));
        world.clock.advance_micros(100_000);
    }
    world.settled().await;
    ids
}

pub async fn summaries(user: &Caller) -> Vec<pb::Memory> {
    user.list(pb::RecallFilter { kinds: vec![pb::Kind::Summary.into()], ..Default::default() }).await
}

pub async fn undo(user: &Caller, memory_id: &str) -> Result<pb::UndoConsolidationResponse, strata_core::Fault> {
    let request = pb::UndoConsolidationRequest {
        user_id: user.user.clone(),
        agent_id: user.agent.clone(),
        memory_id: memory_id.into(),
        ..Default::default()
    };
    let answer = user.client().undo_consolidation(request).await.map_err(|status| error::fault(&status))?;
    Ok(answer.into_inner())
}

pub async fn members(user: &Caller, summary_id: &str) -> Vec<pb::Memory> {
    let request = pb::ListMemoriesRequest {
        user_id: user.user.clone(),
        agent_id: user.agent.clone(),
        summary_id: summary_id.into(),
        page_size: 1_000,
        ..Default::default()
    };
    user.client().list_memories(request).await.expect("served").into_inner().memories
}

#[tokio::test]
async fn a158_a159_a160_a161_r06_r16_more_than_twenty_become_a_summary_that_keeps_their_range() {
    for language in ["en", "zh"] {
        let world = World::new().await;
        let user = world.user("u1");
        let first = strata_core::Clock::now(&world.clock);
        let ids = say(&world, &user, language, 20).await;
        assert!(maintain(&world).await.is_empty(), "twenty are not more than twenty");
        let more = id(&user.remember(talk(language, 20)).await.expect("stored"));
        let last = strata_core::Clock::now(&world.clock);
        world.settled().await;
        let planned = run(&world, admin::RunMaintenanceRequest { dry_run: true, ..Default::default() }).await.expect("planned");
        let done = maintain(&world).await;
        assert_eq!(deeds(&planned), deeds(&done));
        let made = summaries(&user).await;
        assert_eq!(made.len(), 1);
        let summary = &made[0];
        let all: Vec<String> = ids.iter().cloned().chain([more]).collect();
        assert_eq!(summary.derived_from, all, "oldest first");
        assert_eq!((summary.topic.as_str(), summary.source(), summary.importance), ("Running", pb::Source::UserStatement, 2));
        assert!((summary.confidence - 0.9).abs() < 1e-9 && !summary.confirmed);
        let span = summary.source_span.as_ref().expect("a range");
        let micros = |time: &prost_types::Timestamp| time.seconds * 1_000_000 + i64::from(time.nanos) / 1_000;
        assert_eq!(
            (span.from.as_ref().map(micros), span.to.as_ref().map(micros)),
            (Some(first.0), Some(last.0)),
            "the range of its members"
        );
        // Recalled in their place, younger by nothing (case C169).
        let query = if language == "en" { "running along the river" } else { "沿河跑步" };
        assert_eq!(found(&user, query).await, [summary.memory_id.clone()].into());
        assert_eq!(summary.event_time.as_ref().map(micros), Some(last.0));
        let archived: BTreeSet<String> = with_status(&user, pb::Status::Archived).await.into_iter().collect();
        assert_eq!(archived, all.iter().cloned().collect());
        // The second reading: by summary, and by range.
        let read = members(&user, &summary.memory_id).await;
        assert_eq!(read.iter().map(|m| m.memory_id.clone()).collect::<BTreeSet<_>>(), archived);
        assert!(world.user("u2").list(pb::RecallFilter::default()).await.is_empty());
        assert!(members(&world.user("u2"), &summary.memory_id).await.is_empty(), "another user's summary");
        let range = pb::RecallFilter {
            statuses: vec![pb::Status::Archived.into()],
            from: span.from,
            to: Some(strata_api::convert::common::wire_time(Timestamp(last.0 + 1))),
            ..Default::default()
        };
        assert_eq!(user.list(range).await.len(), 21);
        // Nothing more to do, and no summary of a summary.
        assert!(maintain(&world).await.iter().all(|s| s.action() == admin::MaintenanceAction::Keep));
    }
}

#[tokio::test]
async fn c164_a_consolidation_removes_nothing_and_is_taken_back_for_good() {
    for language in ["en", "zh"] {
        let world = World::new().await;
        let user = world.user("u1");
        let ids = say(&world, &user, language, 25).await;
        maintain(&world).await;
        let summary = summaries(&user).await.remove(0).memory_id;
        assert_eq!(undo(&world.user("u2"), &summary).await.expect_err("foreign").reason, Reason::NotFound);
        assert_eq!(undo(&user, &ids[0]).await.expect_err("no summary").reason, Reason::StatusMove);
        let done = undo(&user, &summary).await.expect("taken back");
        assert_eq!(done.restored.iter().collect::<BTreeSet<_>>(), ids.iter().collect());
        assert!(done.left.is_empty() && done.removed.is_empty());
        assert_eq!(done.summary.expect("there").status(), pb::Status::Archived);
        assert_eq!(user.list(pb::RecallFilter::default()).await.len(), 25);
        assert_eq!(undo(&user, &summary).await.expect_err("once").reason, Reason::StatusMove);
        assert!(maintain(&world).await.is_empty(), "not condensed again");
        assert_eq!(user.restore(&[&summary]).await.findings[0].rule, "F5", "it does not come back either");
        // Being condensed and back is no renewal: they end on their day.
        world.later(7 * DAY).await;
        assert_eq!(maintain(&world).await.iter().filter(|s| s.rule == "F2").count(), 25);
    }
}

#[tokio::test]
async fn x04_a_corrected_member_takes_the_summary_out_of_recall_until_it_is_made_anew() {
    let world = World::new().await;
    let user = world.user("u1");
    let mut ids = Vec::new();
    for n in 0..22 {
        let content = format!("I want {n} minutes of stretching after the run");
        let wish = pb::Statement {
            tier: pb::Tier::Temporary.into(),
            topic: "stretching".into(),
            ..of_kind(pb::Kind::Preference, says(&content))
        };
        ids.push(id(&user.remember(wish).await.expect("stored")));
        world.clock.advance_micros(100_000);
    }
    maintain(&world).await;
    let first = summaries(&user).await.remove(0);
    assert!(first.content.contains("7 minutes"));
    let request = pb::UpdateMemoryRequest {
        user_id: "u1".into(),
        memory_id: ids[7].clone(),
        statement: Some(pb::Statement {
            source_ref: Some(user.turn("s2")),
            ..of_kind(
                pb::Kind::Preference,
                from(pb::Source::UserCorrection, says("I want 70 minutes of stretching after the run")),
            )
        }),
        ..Default::default()
    };
    let result = user.client().update_memory(request).await.expect("corrected").into_inner().result.expect("a result");
    assert_eq!((result.outcome(), result.superseded.as_str()), (pb::Outcome::Active, ids[7].as_str()));
    // At once, before any run.
    let recalled = found(&user, "minutes of stretching").await;
    assert_eq!(recalled, [id(&result)].into(), "the old value is in no answer");
    let stale = user.get(&first.memory_id).await.expect("there");
    assert_eq!(stale.status(), pb::Status::Archived);
    assert_eq!(user.restore(&[&first.memory_id]).await.findings[0].rule, "F5", "a stale one does not come back");
    let planned = run(&world, admin::RunMaintenanceRequest { dry_run: true, ..Default::default() }).await.expect("planned");
    let done = maintain(&world).await;
    assert_eq!(deeds(&planned), deeds(&done));
    let remade = summaries(&user).await;
    assert_eq!(remade.len(), 1);
    assert!(!remade[0].derived_from.contains(&ids[7]) && remade[0].derived_from.len() == 21);
    assert!(!remade[0].content.contains(" 7 minutes"), "{}", remade[0].content);
    assert!(maintain(&world).await.iter().all(|s| s.action() == admin::MaintenanceAction::Keep));
}

#[tokio::test]
async fn c021_a_forgotten_member_leaves_the_summary_at_once_in_both_languages() {
    for (language, word) in [("en", " 10 km"), ("zh", "10公里")] {
        let world = World::new().await;
        let user = world.user("u1");
        let ids = say(&world, &user, language, 22).await;
        maintain(&world).await;
        assert!(summaries(&user).await[0].content.contains(word));
        user.forget(&[&ids[7]], &[]).await;
        assert!(summaries(&user).await.is_empty(), "out of every answer");
        maintain(&world).await;
        let remade = summaries(&user).await.remove(0);
        assert!(!remade.content.contains(word), "{}", remade.content);
        // Until hardly anything is left of it.
        let all: Vec<&str> = ids.iter().skip(8).map(String::as_str).chain(ids[..6].iter().map(String::as_str)).collect();
        user.forget(&all, &[]).await;
        maintain(&world).await;
        assert!(summaries(&user).await.is_empty(), "one record needs no summary");
        maintain(&world).await;
    }
}

#[tokio::test]
async fn c163_a165_protected_constraints_and_identity_stay_verbatim_among_sixty() {
    let world = World::new().await;
    let user = world.user("u1");
    let allergy = pb::Statement {
        protected: true,
        importance: 1,
        confidence: Some(0.2),
        topic: "Running".into(),
        ..states("allergy.food", "peanut allergy", "I have a peanut allergy")
    };
    let allergy = id(&user.remember(allergy).await.expect("stored"));
    let keyless =
        pb::Statement { protected: true, importance: 1, topic: "Running".into(), ..event("I once collapsed after 12 km") };
    let keyless = id(&user.remember(keyless).await.expect("stored"));
    let rule = pb::Statement {
        importance: 1,
        topic: "Running".into(),
        ..of_kind(pb::Kind::Constraint, says("Never let me run on ice"))
    };
    let rule = id(&user.remember(rule).await.expect("stored"));
    let name = id(&user.remember(says("My name is Lin")).await.expect("stored"));
    say(&world, &user, "en", 60).await;
    let mut policy = (**world.settings.load()).clone();
    policy.forgetting.capacity = 4;
    policy.forgetting.rules.decay = strata_core::policy::forgetting::Switch::Act;
    world.settings.store(std::sync::Arc::new(policy));
    for days in [0, 8, 22, 60, 5 * 365] {
        world.later(days * DAY).await;
        let steps = maintain(&world).await;
        for stays in [&allergy, &keyless, &rule, &name] {
            assert!(rules_of(&steps, stays).iter().all(|step| step.ends_with("Keep")), "{:?}", rules_of(&steps, stays));
            assert_eq!(user.get(stays).await.expect("there").status(), pb::Status::Active, "after {days} days");
        }
        for summary in summaries(&user).await {
            assert!(!summary.content.contains("collapsed") && !summary.content.contains("ice"));
        }
    }
    assert_eq!(user.values("allergy.food").await, ["peanut allergy"]);
    assert_eq!(user.forget(&[&allergy], &[]).await.forgotten, [allergy], "against machines, not against the owner");
}

#[tokio::test]
async fn c169_neither_condensing_nor_reading_makes_younger() {
    let world = World::new().await;
    let user = world.user("u1");
    say(&world, &user, "en", 21).await;
    maintain(&world).await;
    let summary = summaries(&user).await.remove(0);
    world.later(80 * DAY).await;
    let request =
        pb::RecallRequest { user_id: "u1".into(), query: "running along the river".into(), explain: true, ..Default::default() };
    let item = user.client().recall(request).await.expect("recalled").into_inner().items.remove(0);
    assert_eq!(item.memory.expect("a record").memory_id, summary.memory_id);
    let expected = 0.5_f64.powf(80.0 / 30.0);
    assert!((item.explain["freshness"] - expected).abs() < 0.01, "{:?}", item.explain);
}

#[tokio::test]
async fn a163_members_stay_as_long_as_their_summary_and_go_after_it() {
    let world = World::new().await;
    let user = world.user("u1");
    let ids = say(&world, &user, "en", 21).await;
    maintain(&world).await;
    let summary = summaries(&user).await.remove(0).memory_id;
    world.later(20 * DAY).await;
    let steps = maintain(&world).await;
    assert!(ids.iter().all(|id| rules_of(&steps, id) == ["F6 Keep"]), "{steps:?}");
    cite(&user, "running along the river", &summary).await;
    world.later(30 * DAY).await;
    maintain(&world).await;
    assert_eq!(user.get(&summary).await.expect("there").status(), pb::Status::Active, "used 30 days ago");
    world.later(DAY).await;
    assert_eq!(rules_of(&maintain(&world).await, &summary), ["F4 Move"]);
    world.later(14 * DAY).await;
    assert_eq!(rules_of(&maintain(&world).await, &summary), ["F6 Purge"]);
    maintain(&world).await;
    assert_eq!(world.count("SELECT count(*) FROM records").await, 0);
}

#[tokio::test]
async fn a_member_waits_for_the_index_and_a_run_in_between_finishes_it() {
    let world = World::new().await;
    let user = world.user("u1");
    say(&world, &user, "en", 21).await;
    maintain(&world).await;
    // As a crash between the summary and its members leaves it.
    world
        .database
        .write(|db| {
            Ok::<_, strata_runtime::sqlite::SqliteError>(
                db.execute("UPDATE records SET status = 'ACTIVE' WHERE kind = 'EVENT' AND status = 'ARCHIVED'", [])?,
            )
        })
        .await
        .expect("put back");
    let steps = maintain(&world).await;
    assert_eq!(steps.iter().filter(|s| s.action() == admin::MaintenanceAction::Condense).count(), 21);
    assert_eq!(steps.iter().filter(|s| s.action() == admin::MaintenanceAction::Make).count(), 0, "no second summary");
    assert_eq!(with_status(&user, pb::Status::Archived).await.len(), 21);
    assert_eq!(summaries(&user).await.len(), 1);
}

#[tokio::test]
async fn a_summary_that_its_owner_forgot_is_not_made_anew_and_does_not_come_back_stale() {
    let world = World::new().await;
    let user = world.user("u1");
    let ids = say(&world, &user, "en", 22).await;
    maintain(&world).await;
    let summary = summaries(&user).await.remove(0).memory_id;
    user.forget(&[&summary], &[]).await;
    maintain(&world).await;
    assert!(summaries(&user).await.is_empty());
    assert_eq!(user.restore(&[&summary]).await.memories[0].status(), pb::Status::Active, "nothing changed meanwhile");
    user.forget(&[&summary], &[]).await;
    user.forget(&[&ids[6]], &[]).await;
    let back = user.restore(&[&summary]).await;
    assert_eq!((back.memories[0].status(), back.findings[0].rule.as_str()), (pb::Status::Deleted, "F5"));
    maintain(&world).await;
    assert!(summaries(&user).await.is_empty());
}

#[tokio::test]
async fn c027_an_erasure_takes_summaries_that_were_made_anew_or_taken_back_as_well() {
    for (language, name) in [("en", "Quillfeather"), ("zh", "欧阳锦鲤")] {
        let world = World::new().await;
        let user = world.user("u1");
        let marked = if language == "en" { "I ran 2 km with Quillfeather" } else { "我和欧阳锦鲤跑了2公里" };
        let marked = pb::Statement { topic: "Running".into(), importance: 2, ..event(marked) };
        let marked = id(&user.remember(marked).await.expect("stored"));
        let ids = say(&world, &user, language, 23).await;
        maintain(&world).await;
        // Made anew without what was forgotten, then taken back: neither has members any more, and both say their words still.
        user.forget(&[&ids[7]], &[]).await;
        maintain(&world).await;
        let second = summaries(&user).await.remove(0).memory_id;
        undo(&user, &second).await.expect("taken back");
        let retired = user.list(pb::RecallFilter {
            kinds: vec![pb::Kind::Summary.into()],
            statuses: vec![pb::Status::Archived.into()],
            ..Default::default()
        });
        assert!(retired.await.iter().filter(|summary| summary.content.contains(name)).count() == 2);
        let erasure = erase_ids(&user, &[&marked]).await;
        closed(&user, &erasure.erasure_id).await;
        assert!(verify(&user, &erasure.erasure_id, &[name]).await.absent, "{language}");
        assert!(!world.files_hold(name), "{language}");
    }
}
