//! Capacity, near-duplicates, events that repeat, and a rescan by today's gate.

use crate::forgetting::{deeds, event, maintain, rules_of, run, wish, with_status};
use crate::world::*;
use futures::StreamExt as _;
use std::sync::Arc;
use strata_api::admin::v1 as admin;
use strata_api::admin::v1::admin_service_client::AdminServiceClient;
use strata_api::longterm::v1 as pb;
use strata_text::embed::Caller as CallersVectors;

fn with(vector: [f32; 3], statement: pb::Statement) -> pb::Statement {
    pb::Statement { vector: vector.to_vec(), ..statement }
}

async fn agreed(world: &World) -> Vec<admin::MaintenanceStep> {
    let planned = run(world, admin::RunMaintenanceRequest { dry_run: true, ..Default::default() }).await.expect("planned");
    let done = maintain(world).await;
    assert_eq!(deeds(&planned), deeds(&done));
    done
}

#[tokio::test]
async fn a164_over_the_capacity_the_least_valuable_are_archived_and_come_back_when_asked_for() {
    let world = World::new().await;
    let mut policy = (**world.settings.load()).clone();
    policy.forgetting.capacity = 3;
    world.settings.store(Arc::new(policy));
    let user = world.user("u1");
    let mut ids = Vec::new();
    for (n, importance) in [(1, 4), (2, 2), (3, 1), (4, 5)] {
        let passing = pb::Statement { importance, ..event(&format!("I ran {n} km in the park")) };
        ids.push(id(&user.remember(passing).await.expect("stored")));
    }
    let lot = id(&user.remember(pb::Statement { importance: 1, ..says("I always park in lot B-17") }).await.expect("stored"));
    let steps = agreed(&world).await;
    assert_eq!(rules_of(&steps, &ids[2]), ["F7 Move"]);
    assert_eq!(rules_of(&steps, &ids[1]), ["F7 Move"]);
    assert_eq!(steps.len(), 2, "stable ones come last: {steps:?}");
    assert_eq!(user.get(&lot).await.expect("there").status(), pb::Status::Active);
    let back = user.restore(&[&ids[2]]).await;
    assert_eq!(back.memories[0].status(), pb::Status::Active, "{:?}", back.findings);
    assert_eq!(user.restore(&[&ids[0]]).await.not_found, [ids[0].clone()], "neither forgotten nor archived");
}

#[tokio::test]
async fn a167_c166_near_duplicates_become_one_with_the_stronger_evidence_and_numbers_stay_apart() {
    for (first, second, other, denied) in [
        (
            "I always take the 7:30 train to work",
            "To work I always take the 7:30 train",
            "I always take the 8:15 train to work",
            "I never take the 7:30 train to work",
        ),
        ("我总是坐7:30的火车上班", "上班我总是坐7:30的火车", "我总是坐8:15的火车上班", "我从不坐7:30的火车上班"),
    ] {
        let world = World::with_embedder(7, Some(Arc::new(CallersVectors::new("theirs@1", 3)))).await;
        let user = world.user("u1");
        let experience = |content: &str, vector| with(vector, pb::Statement { importance: 2, ..event(content) });
        let a = id(&user.remember(experience(first, [1.0, 0.0, 0.0])).await.expect("stored"));
        world.clock.advance_micros(1_000);
        let b = pb::Statement { importance: 4, ..experience(second, [0.999, 0.01, 0.0]) };
        let b = id(&user.remember(b).await.expect("stored"));
        world.clock.advance_micros(1_000);
        let apart = id(&user.remember(experience(other, [0.999, 0.0, 0.01])).await.expect("stored"));
        let no = id(&user.remember(experience(denied, [0.999, 0.0, 0.02])).await.expect("stored"));
        world.user("u2").remember(experience(second, [1.0, 0.0, 0.0])).await.expect("of another user");
        let before = user.get(&a).await.expect("there");
        let steps = agreed(&world).await;
        assert_eq!(rules_of(&steps, &a), ["R11 Merge"], "{steps:?}");
        assert_eq!(steps.len(), 1, "distinct numbers and denials are no duplicates: {steps:?}");
        let kept = user.get(&b).await.expect("there");
        assert_eq!((kept.status(), kept.importance, kept.evidence_count), (pb::Status::Active, 4, 2), "the more important stays");
        assert_eq!(kept.create_time, before.create_time, "learned when the first was");
        assert!(kept.evidence.iter().any(|e| e.quote == first));
        let gone = user.get(&a).await.expect("there");
        assert_eq!((gone.status(), gone.superseded_by.as_str()), (pb::Status::Archived, b.as_str()));
        for stays in [&apart, &no] {
            assert_eq!(user.get(stays).await.expect("there").status(), pb::Status::Active);
        }
        assert!(agreed(&world).await.is_empty(), "compared once");
        // What a person brings back is not merged again.
        user.restore(&[&a]).await;
        world.later(1_000).await;
        assert!(agreed(&world).await.is_empty());
        assert_eq!(user.get(&a).await.expect("there").status(), pb::Status::Active);
    }
}

#[tokio::test]
async fn a146_three_events_on_one_slot_propose_a_fact_that_is_protected_once_confirmed() {
    for (key, value, words) in
        [("coffee.order", "latte", "I ordered a latte at stand"), ("coffee.order", "拿铁", "我点了一杯拿铁，窗口")]
    {
        let world = World::new().await;
        let user = world.user("u1");
        let order = |n: u32, value: &str, words: &str| pb::Statement {
            source_ref: Some(turn(&format!("s{n}"), n)),
            ..of_kind(pb::Kind::Event, states(key, value, &format!("{words} {n}")))
        };
        for n in 1..=2 {
            user.remember(order(n, value, words)).await.expect("stored");
        }
        user.remember(order(9, "tea", "I ordered a tea at stand")).await.expect("stored");
        assert!(agreed(&world).await.is_empty(), "two are not three");
        user.remember(order(3, value, words)).await.expect("stored");
        let steps = agreed(&world).await;
        assert_eq!(steps.iter().map(|s| format!("{} {:?}", s.rule, s.action())).collect::<Vec<_>>(), ["F10 Make"]);
        let due = user.candidates(true).await;
        assert_eq!(due.len(), 1, "put to the user");
        let proposed = due[0].memory.clone().expect("a record");
        assert_eq!(proposed.memory_id, steps[0].memory_id);
        assert_eq!(
            (proposed.kind(), proposed.source(), proposed.derived_from.len()),
            (pb::Kind::Fact, pb::Source::ModelInference, 3)
        );
        assert_eq!(proposed.evidence_count, 3);
        assert!(user.lookup(key).await.iter().all(|item| item.memory.as_ref().is_some_and(|m| m.kind() == pb::Kind::Event)));
        assert!(agreed(&world).await.is_empty(), "proposed once");
        let confirmed = user.confirm(&proposed.memory_id).await.expect("confirmed");
        assert_eq!(confirmed.outcome(), pb::Outcome::Active);
        let fact = user.get(&proposed.memory_id).await.expect("there");
        assert!(fact.protected && fact.confirmed, "always in the context from now on");
        world.later(8 * DAY).await;
        maintain(&world).await;
        assert_eq!(user.values(key).await, [value], "the events are archived, the fact holds");
        world.later(90 * DAY).await;
        maintain(&world).await;
        assert_eq!(user.values(key).await, [value]);
    }
}

#[tokio::test]
async fn a146_a_rejected_proposal_is_not_made_again_and_a_forgotten_event_proposes_nothing() {
    let world = World::new().await;
    let user = world.user("u1");
    let order = |n: u32| pb::Statement {
        source_ref: Some(turn(&format!("s{n}"), n)),
        ..of_kind(pb::Kind::Event, states("coffee.order", "latte", &format!("I ordered a latte at stand {n}")))
    };
    for n in 1..=3 {
        user.remember(order(n)).await.expect("stored");
    }
    agreed(&world).await;
    let proposed = user.candidates(true).await.remove(0).memory.expect("a record").memory_id;
    user.reject(&proposed).await.expect("rejected");
    user.remember(order(4)).await.expect("stored");
    assert!(agreed(&world).await.is_empty(), "the user said no");
    user.forget(&[&proposed], &["coffee.order"]).await;
    assert!(agreed(&world).await.is_empty());
}

#[tokio::test]
async fn x09_a_candidate_confirmed_after_the_user_corrected_the_slot_asks_again() {
    let world = World::new().await;
    let user = world.user("u1");
    let order = |n: u32| pb::Statement {
        source_ref: Some(turn(&format!("s{n}"), n)),
        ..of_kind(pb::Kind::Event, states("coffee.order", "latte", &format!("I ordered a latte at stand {n}")))
    };
    for n in 1..=3 {
        user.remember(order(n)).await.expect("stored");
    }
    agreed(&world).await;
    let proposed = user.candidates(true).await.remove(0).memory.expect("a record").memory_id;
    let tea = from(pb::Source::UserCorrection, states("coffee.order", "tea", "From now on I always order tea"));
    user.remember(tea).await.expect("corrected");
    let asked = user.confirm(&proposed).await.expect("asked again");
    assert_eq!((asked.outcome(), rules(&asked).last().copied()), (pb::Outcome::Candidate, Some("K7")));
    let stable: Vec<String> = user
        .lookup("coffee.order")
        .await
        .into_iter()
        .filter_map(|item| item.memory)
        .filter(|memory| memory.tier() == pb::Tier::Stable)
        .map(|memory| value_of(&memory))
        .collect();
    assert_eq!(stable, ["tea"], "the correction stays");
}

async fn rescan(world: &World, dry_run: bool) -> (Vec<admin::MaintenanceStep>, admin::RescanResponse) {
    let operator = world.user("operator");
    let channel = operator.channel_with(Some(operator.claims(Some(strata_core::id::Level::User))));
    let request = admin::RescanRequest { dry_run, user_id: String::new() };
    let mut stream = AdminServiceClient::new(channel).rescan(request).await.expect("served").into_inner();
    let (mut steps, mut last) = (Vec::new(), admin::RescanResponse::default());
    while let Some(answer) = stream.next().await {
        let answer = answer.expect("an answer");
        steps.extend(answer.steps.clone());
        last = answer;
    }
    (steps, last)
}

#[tokio::test]
async fn a_rescan_takes_what_todays_gate_refuses_out_of_recall_and_leaves_what_is_protected() {
    let world = World::new().await;
    let user = world.user("u1");
    let good = id(&user.remember(says("I always park in lot B-17")).await.expect("stored"));
    let wished = id(&user.remember(wish("I want spicy food this month")).await.expect("stored"));
    let bad = id(&user.remember(says("I always use gate G-1")).await.expect("stored"));
    let kept = pb::Statement { protected: true, ..says("I always use gate G-2") };
    let kept = id(&user.remember(kept).await.expect("stored"));
    let guess = from(pb::Source::ModelInference, states("tea.kind", "oolong", "prefers oolong"));
    let guess = id(&user.propose(guess).await.expect("queued"));
    user.confirm(&guess).await.expect("confirmed");
    world.settled().await;
    assert!(rescan(&world, true).await.0.is_empty(), "what came in today stays");
    // As a gate that knew less let them in.
    world
        .database
        .write(|db| {
            Ok::<_, strata_runtime::sqlite::SqliteError>(
                db.execute("UPDATE records SET content = 'my password is hunter2-QUARTZ' WHERE content LIKE '%gate G-%'", [])?,
            )
        })
        .await
        .expect("planted");
    let (planned, sums) = rescan(&world, true).await;
    assert_eq!((sums.records, sums.quarantined, sums.kept), (5, 1, 1));
    assert_eq!(user.get(&bad).await.expect("there").status(), pb::Status::Active, "nothing was changed");
    let (done, _) = rescan(&world, false).await;
    let same = |s: &admin::MaintenanceStep| (s.memory_id.clone(), s.rule.clone(), s.action(), s.kept_by.clone());
    assert_eq!(planned.iter().map(same).collect::<Vec<_>>(), done.iter().map(same).collect::<Vec<_>>());
    assert!(done.iter().all(|s| s.rule == "G3" && !s.because.contains("QUARTZ")), "{done:?}");
    assert_eq!(with_status(&user, pb::Status::Candidate).await, std::slice::from_ref(&bad));
    for stays in [&good, &wished, &kept, &guess] {
        assert_eq!(user.get(stays).await.expect("there").status(), pb::Status::Active);
    }
    let history = user.history(pb::GetHistoryRequest { memory_id: bad, ..Default::default() }).await.expect("there");
    let last = history.entries.last().expect("an entry");
    assert_eq!((last.path.as_str(), last.rule.as_str(), last.to()), ("Rescan", "G3", pb::Status::Candidate));
    assert_eq!(rescan(&world, false).await.1.quarantined, 0, "once");
}

#[tokio::test]
async fn c9_protected_records_are_listed_by_themselves() {
    let world = World::new().await;
    let user = world.user("u1");
    user.remember(says("I always use gate G-1")).await.expect("stored");
    let kept = pb::Statement { protected: true, ..says("I always park in lot B-17") };
    let kept = id(&user.remember(kept).await.expect("stored"));
    let request = pb::ListMemoriesRequest { user_id: "u1".into(), protected_only: true, ..Default::default() };
    let listed = user.client().list_memories(request).await.expect("served").into_inner().memories;
    assert_eq!(listed.iter().map(|m| m.memory_id.as_str()).collect::<Vec<_>>(), [kept]);
}
