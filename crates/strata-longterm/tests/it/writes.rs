//! Writes: conflict, dedup, evidence, retries, concurrency.

use crate::world::*;
use futures::future::join_all;
use std::collections::BTreeMap;
use strata_api::common::v1::value::Kind as ValueKind;
use strata_api::convert::common::{wire_time, wire_value};
use strata_api::longterm::v1 as pb;
use strata_core::record::Value;
use strata_core::time::{HOUR, SECOND};
use strata_core::{Reason, limits, policy::authz::Role, policy::gate::QuoteState};
use uuid::Uuid;

#[tokio::test]
async fn c001_a95_a97_a98_a105_a106_reversal_leaves_exactly_the_new_value_active() {
    let world = World::new().await;
    let user = world.user("u1");
    let a = user.remember(states("food.cuisine.sichuan", "likes", "I like Sichuan food")).await.expect("stored");
    world.later(SECOND).await;
    let b = user.remember(states("food.cuisine.sichuan", "dislikes", "I dislike Sichuan food now")).await.expect("stored");
    assert_eq!((b.outcome(), b.superseded.as_str()), (pb::Outcome::Active, id(&a).as_str()));
    assert_eq!(user.values("food.cuisine.sichuan").await, ["dislikes"]);
    let history = user.history_of("food.cuisine.sichuan").await;
    let [old, new] = history.memories.as_slice() else { panic!("{history:?}") };
    assert_eq!((old.status(), new.status()), (pb::Status::Superseded, pb::Status::Active));
    assert_eq!(old.superseded_by, new.memory_id);
    assert_eq!(new.supersedes, old.memory_id);
    assert!(old.superseded_at.is_some() && old.reason.starts_with("K1"));
    let Some(pb::source_ref::Kind::Turn(turn)) = new.evidence[0].source_ref.as_ref().and_then(|r| r.kind.clone()) else {
        panic!()
    };
    assert_eq!(turn.session_id, "s1", "the evidence names the session that caused it");
}

#[tokio::test]
async fn c003_c004_c010_c012_a103_a104_a_correction_retires_the_original_in_every_read_path() {
    let world = World::new().await;
    let user = world.user("u1");
    let a = id(&user.remember(states("project.broker", "MQTT", "our broker is MQTT")).await.expect("stored"));
    let correction = from(pb::Source::UserCorrection, states("project.broker", "AMQP", "no, our broker is AMQP"));
    let b = user.remember(correction).await.expect("stored");
    assert_eq!(b.memory.as_ref().expect("record").etag, "1", "the answer names the version it wrote");
    let b = id(&b);
    assert_eq!(user.values("project.broker").await, ["AMQP"]);
    assert_eq!(contents(&user.list(pb::RecallFilter::default()).await), ["no, our broker is AMQP"]);
    let old = user.get(&a).await.expect("an id given out earlier still leads on");
    assert_eq!((old.status(), old.superseded_by.as_str()), (pb::Status::Superseded, b.as_str()));
    let chain = user.history(pb::GetHistoryRequest { memory_id: a.clone(), ..Default::default() }).await.expect("served");
    let ids: Vec<&str> = chain.memories.iter().map(|m| m.memory_id.as_str()).collect();
    assert_eq!(ids, [a.as_str(), b.as_str()]);
    let moves: Vec<_> =
        chain.entries.iter().map(|e| (e.memory_id == a, e.from(), e.to(), e.path.as_str(), e.actor.as_str())).collect();
    assert!(moves.contains(&(true, pb::Status::Unspecified, pb::Status::Active, "Remember", "key:test")), "{moves:?}");
    assert!(moves.contains(&(true, pb::Status::Active, pb::Status::Superseded, "Remember", "key:test")), "{moves:?}");
}

#[tokio::test]
async fn c005_a96_another_slot_of_the_same_person_is_untouched() {
    let world = World::new().await;
    let user = world.user("u1");
    let post = states("person.lin.job_title", "procurement lead", "Lin is procurement lead at Bolun Ltd");
    let post = id(&user.remember(post).await.expect("stored"));
    user.remember(states("person.lin.admin_of", "source control", "Lin is admin of source control at Bolun Ltd"))
        .await
        .expect("stored");
    let post = user.get(&post).await.expect("there");
    assert_eq!((post.status(), post.superseded_by.as_str()), (pb::Status::Active, ""));
    assert_eq!(user.values("person.lin.admin_of").await, ["source control"]);
}

#[tokio::test]
async fn c007_sets_accumulate_and_single_slots_replace() {
    let world = World::new().await;
    let user = world.user("u1");
    for value in ["peanut", "shrimp"] {
        user.remember(states("allergy[]", value, &format!("I am allergic to {value}"))).await.expect("stored");
    }
    for value in ["Shanghai", "Hangzhou"] {
        user.remember(states("home.city", value, &format!("I live in {value}"))).await.expect("stored");
    }
    let mut allergies = user.values("allergy[]").await;
    allergies.sort();
    assert_eq!(allergies, ["peanut", "shrimp"]);
    assert_eq!(user.values("profile.city").await, ["Hangzhou"], "home.city is an alias of it");
    assert_eq!(user.values("home.city").await, ["Hangzhou"]);
}

#[tokio::test]
async fn c009_a_value_update_keeps_fields_it_did_not_mention() {
    let world = World::new().await;
    let user = world.user("u1");
    let first = pb::Statement {
        metadata: BTreeMap::from([("topic".to_owned(), "music".to_owned()), ("weight".to_owned(), "7".to_owned())]),
        importance: 4,
        topic: "leisure".into(),
        tags: vec!["choir".into()],
        confidence: Some(0.7),
        expire_time: Some(wire_time(START.plus(30 * DAY))),
        ..states("hobby", "choir practice on Sundays", "I have choir practice on Sundays")
    };
    let old = id(&user.remember(first).await.expect("stored"));
    let new = user
        .remember(states("hobby", "choir practice on Thursdays", "I have choir practice on Thursdays"))
        .await
        .expect("stored");
    let new = new.memory.expect("record");
    assert_eq!((new.importance, new.topic.as_str(), new.tags.as_slice()), (4, "leisure", &["choir".to_owned()][..]));
    assert_eq!(new.metadata.len(), 2);
    assert_eq!((new.expire_time, new.confidence, new.tier()), (None, 0.9, pb::Tier::Stable), "K9");
    let old = user.get(&old).await.expect("history");
    assert!(old.expire_time.is_some() && old.metadata.len() == 2);
}

#[tokio::test]
async fn c013_a53_a92_a93_inference_never_lands_as_active_however_often() {
    let world = World::new().await;
    let user = world.user("u1");
    let mut outcomes = Vec::new();
    for session in ["s1", "s2", "s3"] {
        let inferred = from(pb::Source::ModelInference, states("team.role", "back-end developer", "works as back-end developer"));
        let inferred = pb::Statement { source_ref: Some(user.turn(session)), confidence: Some(0.9), ..inferred };
        outcomes.push(user.propose(inferred).await.expect("queued").outcome());
    }
    assert_eq!(outcomes, [pb::Outcome::Candidate, pb::Outcome::EvidenceAdded, pb::Outcome::EvidenceAdded]);
    assert!(user.lookup("team.role").await.is_empty());
    let [candidate] = user.candidates(true).await.try_into().expect("one, due after three sessions");
    let memory = candidate.memory.expect("record");
    assert_eq!((memory.evidence_count, memory.evidence_sessions, memory.confidence), (3, 3, 0.6));
    let confirmed = user.confirm(&memory.memory_id).await.expect("confirmed");
    let record = confirmed.memory.expect("record");
    assert_eq!((record.status(), record.source(), record.confirmed), (pb::Status::Active, pb::Source::UserConfirmation, true));
    assert_eq!(record.evidence.iter().filter(|e| e.source() == pb::Source::ModelInference).count(), 3);
    assert_eq!(user.values("team.role").await, ["back-end developer"]);
}

#[tokio::test]
async fn c014_a100_a_confirmed_value_is_not_overwritten_by_an_inference() {
    let world = World::new().await;
    let user = world.user("u1");
    let chinese = user.remember(states("reply.language", "Chinese", "from now on reply in Chinese")).await.expect("stored");
    assert!(chinese.memory.as_ref().expect("record").confirmed, "{chinese:?}");
    let english = from(pb::Source::ModelInference, states("reply.language", "English", "wants replies in English"));
    let queued = user.propose(pb::Statement { confidence: Some(0.99), ..english }).await.expect("queued");
    assert_eq!((queued.outcome(), queued.conflicts_with.as_str()), (pb::Outcome::Candidate, id(&chinese).as_str()));
    assert!(rules(&queued).contains(&"K3"));
    assert_eq!(user.values("reply.language").await, ["Chinese"]);
    let due = user.candidates(true).await;
    assert_eq!(due[0].conflicts_with, id(&chinese));
    user.confirm(&id(&queued)).await.expect("confirmed");
    assert_eq!(user.values("reply.language").await, ["English"]);
}

#[tokio::test]
async fn a101_two_inferences_are_disputed() {
    let world = World::new().await;
    let user = world.user("u1");
    for value in ["tabs", "spaces"] {
        user.propose(from(pb::Source::ModelInference, states("code.indent", value, &format!("indents with {value}"))))
            .await
            .expect("queued");
    }
    let candidates = user.candidates(true).await;
    let states: Vec<_> = candidates.iter().map(|c| c.memory.as_ref().expect("record").status()).collect();
    assert_eq!(states, [pb::Status::Disputed, pb::Status::Disputed]);
}

#[tokio::test]
async fn a77_a_record_system_owns_what_it_writes_and_talk_is_queued() {
    let world = World::new().await;
    let user = world.user("u1");
    let said = id(&user.remember(states("badge.colour", "red", "my badge colour is red")).await.expect("stored"));
    let system = world.user("u1").roles([Role::RecordSystem]);
    let record = pb::SourceRef {
        kind: Some(pb::source_ref::Kind::SystemRecord(pb::SystemRecord { system: "hr".into(), record_id: "r1".into() })),
    };
    let synced = from(pb::Source::AuthoritativeSystem, states("badge.colour", "blue", "badge colour: blue"));
    let synced = pb::Statement { source_ref: Some(record), trigger: pb::Trigger::Sync.into(), ..synced };
    let synced = system.remember(synced).await.expect("stored");
    assert_eq!(synced.outcome(), pb::Outcome::Active);
    assert_eq!(user.get(&said).await.expect("there").status(), pb::Status::Superseded);
    let due = user.candidates(true).await;
    assert_eq!((due.len(), due[0].conflicts_with.as_str()), (1, id(&synced).as_str()), "the difference is queued");
    let talk =
        user.remember(from(pb::Source::UserCorrection, states("badge.colour", "green", "no, my badge colour is green"))).await;
    assert_eq!(talk.expect("queued").outcome(), pb::Outcome::Candidate);
    assert_eq!(user.values("badge.colour").await, ["blue"]);
}

#[tokio::test]
async fn k5_a_late_statement_becomes_history() {
    let world = World::new().await;
    let user = world.user("u1");
    for (hour, value) in [(1, "one"), (3, "three"), (2, "two")] {
        let at = user.clone().said(START.plus((hour - 10) * HOUR));
        let result = at.remember(states("office.floor", value, &format!("my office floor is {value}"))).await.expect("stored");
        assert_eq!(result.outcome(), if hour == 2 { pb::Outcome::History } else { pb::Outcome::Active });
    }
    assert_eq!(user.values("office.floor").await, ["three"]);
    let chain = user.history_of("office.floor").await.memories;
    assert_eq!(chain.iter().map(value_of).collect::<Vec<_>>(), ["one", "two", "three"]);
    for pair in chain.windows(2) {
        assert_eq!((&pair[0].superseded_by, &pair[1].supersedes), (&pair[1].memory_id, &pair[0].memory_id));
    }
}

#[tokio::test]
async fn k10_a_passing_wish_overlays_the_stable_value_until_it_ends() {
    let world = World::new().await;
    let user = world.user("u1");
    user.remember(states("diet.spicy", "no", "I do not eat spicy food")).await.expect("stored");
    let wish =
        user.remember(of_kind(pb::Kind::Preference, states("diet.spicy", "yes", "just this once I want spicy food"))).await;
    let wish = wish.expect("stored");
    assert_eq!(wish.memory.as_ref().expect("record").tier(), pb::Tier::Temporary, "{wish:?}");
    let items = user.lookup("diet.spicy").await;
    assert_eq!((items.len(), items[0].labels.as_slice()), (1, &["TEMPORARY overlays STABLE".to_owned()][..]));
    assert_eq!(user.values("diet.spicy").await, ["yes"]);
    world.later(31 * DAY).await;
    assert_eq!(user.values("diet.spicy").await, ["no"]);
}

#[tokio::test]
async fn k10_what_the_user_says_for_good_ends_an_earlier_passing_wish() {
    let world = World::new().await;
    for (name, last) in [
        ("said again", states("diet.spicy", "no", "I do not eat spicy food")),
        ("another value", states("diet.spicy", "mild", "from now on I eat mild food")),
    ] {
        let user = world.user(name);
        user.remember(states("diet.spicy", "no", "I do not eat spicy food")).await.expect("stored");
        world.later(SECOND).await;
        user.remember(of_kind(pb::Kind::Preference, states("diet.spicy", "yes", "just this once I want spicy food")))
            .await
            .expect("stored");
        assert_eq!(user.values("diet.spicy").await, ["yes"], "{name}");
        world.later(SECOND).await;
        let value = last.value.clone();
        user.remember(last).await.expect("stored");
        let now = user.lookup("diet.spicy").await;
        assert_eq!(now.len(), 1, "{name}: {now:?}");
        assert_eq!(now[0].memory.as_ref().expect("record").value, value, "{name}");
        assert!(now[0].labels.is_empty(), "{name}: {now:?}");
    }
}

#[tokio::test]
async fn c047_fifty_identical_writes_at_once_give_one_record() {
    let world = World::new().await;
    let user = world.user("u1");
    let writes = (1..=50).map(|seq| {
        let user = user.clone();
        async move {
            user.remember(pb::Statement { source_ref: Some(turn("s1", seq)), ..states("seat", "aisle", "I want an aisle seat") })
                .await
        }
    });
    let results: Vec<pb::WriteResult> = join_all(writes).await.into_iter().map(|r| r.expect("no error")).collect();
    assert!(results.iter().all(|r| id(r) == id(&results[0])));
    let record = user.get(&id(&results[0])).await.expect("there");
    assert_eq!((record.evidence_count, record.status()), (50, pb::Status::Active));
    assert_eq!(world.count("SELECT count(*) FROM records").await, 1);
}

#[tokio::test]
async fn c048_concurrent_corrections_give_one_active_value_and_a_linear_chain() {
    let world = World::new().await;
    let user = world.user("u1");
    user.remember(states("seat.row", "v0", "my seat row is v0")).await.expect("stored");
    let writes = (1..=20).map(|n| {
        let user = user.clone();
        async move { user.remember(states("seat.row", &format!("v{n}"), &format!("my seat row is v{n}"))).await }
    });
    for result in join_all(writes).await {
        result.expect("no error");
    }
    let chain = user.history_of("seat.row").await.memories;
    assert_eq!(chain.len(), 21);
    assert_eq!(chain.iter().filter(|m| m.status() == pb::Status::Active).count(), 1);
    let mut successors: Vec<&str> = chain.iter().map(|m| m.superseded_by.as_str()).filter(|id| !id.is_empty()).collect();
    successors.sort_unstable();
    successors.dedup();
    assert_eq!(successors.len(), 20, "no fork");
}

#[tokio::test]
async fn c053_a63_the_same_statement_in_other_dress_is_evidence_not_a_record() {
    let world = World::new().await;
    let user = world.user("u1");
    let first = user.remember(says("I always park in lot B-17")).await.expect("stored");
    for (session, text) in [("s2", "I always park in lot  B-17 ."), ("s3", "Ｉ always park in lot B-17。")] {
        let again = pb::Statement { source_ref: Some(user.turn(session)), ..says(text) };
        let again = user.propose(again).await.expect("known");
        assert_eq!((id(&again), again.outcome()), (id(&first), pb::Outcome::EvidenceAdded), "{text}");
    }
    let record = user.get(&id(&first)).await.expect("there");
    assert_eq!((record.evidence_count, record.evidence_sessions), (3, 3));
    let mut sessions: Vec<String> = Vec::new();
    for evidence in &record.evidence {
        if let Some(pb::source_ref::Kind::Turn(turn)) = evidence.source_ref.as_ref().and_then(|r| r.kind.clone()) {
            sessions.push(turn.session_id);
        }
    }
    assert_eq!(sessions, ["s1", "s2", "s3"]);
    let same_turn = pb::Statement { source_ref: record.evidence[1].source_ref.clone(), ..says("I always park in lot B-17") };
    user.remember(same_turn).await.expect("known");
    assert_eq!(user.get(&id(&first)).await.expect("there").evidence_count, 3, "once per turn");
}

#[tokio::test]
async fn c054_records_that_differ_in_a_number_date_negation_or_name_stay_apart() {
    let world = World::new().await;
    let user = world.user("u1");
    let texts = [
        "the daily transfer limit is 5000 yuan",
        "the daily transfer limit is 50000 yuan",
        "my flight is on 3 May",
        "my flight is on 8 May",
        "Bruno is allergic to penicillin",
        "Bruno is not allergic to penicillin",
        "I opened order INV-102",
        "I opened order INV-120",
    ];
    let mut ids = std::collections::BTreeSet::new();
    for text in texts {
        ids.insert(id(&user.remember(says(text)).await.unwrap_or_else(|fault| panic!("{text}: {fault}"))));
    }
    assert_eq!(ids.len(), texts.len());
}

#[tokio::test]
async fn c058_c061_a_retry_stores_once_and_another_body_is_refused() {
    let world = World::new().await;
    let user = world.user("u1");
    let request = Uuid::from_u128(42);
    let statement = pb::Statement { source_ref: Some(turn("s1", 1)), ..says("my locker is number 12") };
    // Cancelled at once: what was in the mailbox commits all the same, what was not leaves nothing behind.
    for _ in 0..20 {
        let cancelled = user.remember_as(statement.clone(), Some(request));
        let _ = tokio::time::timeout(std::time::Duration::from_micros(50), cancelled).await;
    }
    let first = user.remember_as(statement.clone(), Some(request)).await.expect("stored");
    let again = user.remember_as(statement.clone(), Some(request)).await.expect("the same answer");
    assert_eq!(first, again);
    assert_eq!(world.count("SELECT count(*) FROM records").await, 1);
    assert_eq!(world.count("SELECT sum(evidence_count) FROM records").await, 1);
    let other = user.remember_as(says("my locker is number 13"), Some(request)).await.expect_err("reused");
    assert_eq!(other.reason, Reason::RequestIdReused);
    world.later(25 * HOUR).await;
    assert!(user.remember_as(says("my locker is number 13"), Some(request)).await.is_ok(), "after a day the id is free");
}

#[tokio::test]
async fn c063_order_depends_on_neither_id_nor_clock() {
    let world = World::new().await;
    let user = world.user("u1");
    for n in 0..60 {
        if n == 50 {
            world.settled().await;
            world.clock.step_back(std::time::Duration::from_secs(3_600));
        }
        // Without a turn time of its own: what counts is the order of arrival.
        let statement =
            from(pb::Source::UserConfirmation, states("build.number", &format!("b{n}"), &format!("the build number is b{n}")));
        let confirmation = pb::SourceRef { kind: Some(pb::source_ref::Kind::Confirmation(format!("c{n}"))) };
        user.remember(pb::Statement { source_ref: Some(confirmation), ..statement }).await.expect("stored");
    }
    let chain = user.history_of("build.number").await.memories;
    let values: Vec<String> = chain.iter().map(value_of).collect();
    assert_eq!(values, (0..60).map(|n| format!("b{n}")).collect::<Vec<_>>());
    assert_eq!(user.values("build.number").await, ["b59"]);
}

#[tokio::test]
async fn c089_c079_identifiers_amounts_and_odd_characters_are_exact() {
    let world = World::new().await;
    let user = world.user("u1");
    for (n, number) in ["9007199254740993", "18446744073709551615", "00123", "0.10", "118.50", "-0", "12345678901234567890.12"]
        .iter()
        .enumerate()
    {
        let statement = pb::Statement {
            value: Some(wire_value(&Value::Number((*number).to_owned()))),
            ..states(&format!("ledger.n{n}"), "", &format!("ledger line {n} is {number}"))
        };
        let stored = user.remember(statement).await.unwrap_or_else(|fault| panic!("{number}: {fault:?}"));
        let read = user.get(&id(&stored)).await.expect("there");
        assert_eq!(read.value.and_then(|v| v.kind), Some(ValueKind::Number((*number).to_owned())));
    }
    let text = "my family emoji is 👨‍👩‍👧 and my word is نمی‌خواهم";
    let stored = user.remember(says(text)).await.expect("joiners are kept");
    assert_eq!(user.get(&id(&stored)).await.expect("there").content, text);
}

#[tokio::test]
async fn c096_a147_expiry_is_checked_on_read_on_every_path() {
    let world = World::new().await;
    let user = world.user("u1");
    let code = pb::Statement {
        expire_time: Some(wire_time(START.plus(SECOND))),
        ..states("door.colour", "heron", "the door colour is heron")
    };
    let a = id(&user.remember(code.clone()).await.expect("stored"));
    assert_eq!(user.values("door.colour").await, ["heron"]);
    world.later(2 * SECOND).await;
    assert!(user.lookup("door.colour").await.is_empty());
    assert!(user.list(pb::RecallFilter::default()).await.is_empty());
    assert_eq!(user.get(&a).await.expect("history").status(), pb::Status::Expired);
    assert_eq!(user.history_of("door.colour").await.memories[0].status(), pb::Status::Expired);
    let again = pb::Statement { expire_time: None, ..code };
    let b = user.remember(again).await.expect("stored");
    assert_eq!((b.outcome(), id(&b) == a), (pb::Outcome::Active, false), "a new record");
    let old = user.get(&a).await.expect("history");
    assert_eq!((old.status(), old.reason.as_str()), (pb::Status::Expired, "F1: past its expiry"));
}

#[tokio::test]
async fn a66_g9_g11_what_is_not_ordered_waits_until_it_is_repeated() {
    let world = World::new().await;
    let user = world.user("u1");
    // A registered key that is not stable by nature has value, but nothing says that it lasts.
    let once = pb::Statement { source_ref: Some(turn("s1", 1)), ..says("I bought apples at Walmart") };
    let first = user.propose(once).await.expect("queued");
    assert_eq!(first.outcome(), pb::Outcome::Candidate, "{first:?}");
    let twice = pb::Statement { source_ref: Some(turn("s2", 1)), ..says("I bought apples at Walmart") };
    let second = user.propose(twice).await.expect("supported");
    assert_eq!(id(&second), id(&first));
    assert_eq!((second.outcome(), status(&second)), (pb::Outcome::Active, pb::Status::Active), "{second:?}");
}

#[tokio::test]
async fn p3_p2_epochs_grow_and_only_the_users_words_shadow_the_user_level() {
    let world = World::new().await;
    let user = world.user("u1");
    let mut last = 0;
    for n in 0..3 {
        let result = user.remember(states("desk", &format!("d{n}"), &format!("my desk is d{n}"))).await.expect("stored");
        let epoch = result.memory.expect("record").owner_epoch;
        assert!(epoch > last);
        last = epoch;
    }
    let agent = world.user("u1").agent("planner");
    let seen = from(pb::Source::Observation, of_kind(pb::Kind::Event, states("desk", "d9", "moved to desk d9")));
    let fault = agent.remember(seen).await;
    assert!(fault.is_err_and(|f| f.reason == Reason::FactOwnedByOtherLayer));
    agent.remember(states("desk", "d7", "for this planner my desk is d7")).await.expect("the user's words shadow");
    let items = agent.lookup("desk").await;
    assert_eq!(items[0].labels, ["AGENT shadows USER"]);
    assert_eq!(agent.values("desk").await, ["d7"]);
    assert_eq!(user.values("desk").await, ["d2"]);
    assert_eq!(world.user("u1").agent("other").values("desk").await, ["d2"]);
}

#[tokio::test]
async fn the_index_that_is_behind_pushes_writes_back_and_forgetting_goes_on() {
    let world = World::new().await;
    let user = world.user("u1");
    let stored = id(&user.remember(says("I always take the stairs at B-17")).await.expect("stored"));
    world.settled().await;
    world
        .database
        .write(|db| {
            let old = START.plus(-120 * SECOND).micros();
            db.execute(
                "INSERT INTO outbox (memory_id, owner_id, version, op, time, tenant) \
                 SELECT memory_id, owner_id, 0, 'UPSERT', ?1, 't1' FROM records",
                [old],
            )?;
            let check = |tenant: &str| {
                let tenant = strata_core::TenantId::new(tenant).expect("id");
                strata_longterm::metadata::ledger::check_outbox(db, &tenant, START)
            };
            let refused = check("t1").expect_err("behind");
            assert_eq!((refused.reason, refused.retry_after_ms), (Reason::Overloaded, Some(1_000)));
            check("t2").expect("another tenant's words are not behind");
            Ok::<_, strata_runtime::sqlite::SqliteError>(())
        })
        .await
        .expect("written");
    assert_eq!(user.forget(&[&stored], &[]).await.forgotten, [stored]);
}

#[tokio::test]
async fn an_outbox_that_many_tenants_filled_pushes_everyone_back() {
    let world = World::unsynced(1).await;
    // In one transaction: the relay would take off rows of records that are not there.
    world
        .database
        .write(|db| {
            let each = limits::OUTBOX_ROWS / 2;
            let tenants = limits::OUTBOX_TOTAL_ROWS / each;
            let check =
                || strata_longterm::metadata::ledger::check_outbox(db, &strata_core::TenantId::new("t1").expect("id"), START);
            let fill = |rows: u64, tenant: &str| {
                db.execute(
                    "INSERT INTO outbox (memory_id, owner_id, version, op, time, tenant) \
                     WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) \
                     SELECT zeroblob(16), 0, 0, 'UPSERT', ?2, ?3 FROM n",
                    (rows, START.micros(), tenant),
                )
            };
            for n in 1..tenants {
                fill(each, &format!("other{n}"))?;
            }
            fill(each - 1, "other0")?;
            check().expect("one row is left");
            fill(1, "other0")?;
            let refused = check().expect_err("of all of them");
            let limit = limits::OUTBOX_TOTAL_ROWS.to_string();
            assert_eq!((refused.reason, refused.retry_after_ms), (Reason::Overloaded, Some(1_000)));
            assert_eq!(refused.metadata, [("field", "outbox".into()), ("limit", limit), ("unit", "rows".into())]);
            // Rows in the middle went: the numbers reach as far as before.
            db.execute("DELETE FROM outbox WHERE tenant = 'other1'", [])?;
            check().expect("counted");
            fill(each, "other1")?;
            check().expect_err("full again");
            db.execute("DELETE FROM outbox", [])?;
            check().expect("empty");
            Ok::<_, strata_runtime::sqlite::SqliteError>(())
        })
        .await
        .expect("written");
}

#[tokio::test]
async fn unverified_quotes_wait_and_wrong_ones_are_refused() {
    let world = World::new().await;
    let statement = || states("profile.city", "Hangzhou", "I live in Hangzhou");
    for quote in [QuoteState::Unreferenced, QuoteState::Unverifiable] {
        let result = world.user("u2").quote(quote).remember(statement()).await.expect("queued");
        let memory = result.memory.expect("record");
        assert_eq!((memory.status(), memory.quote_verified), (pb::Status::Candidate, false), "{quote:?}");
    }
    for caller in [world.user("u1").quote(QuoteState::NotFound), world.user("u1").of_another()] {
        assert_eq!(caller.remember(statement()).await.expect_err("refused").reason, Reason::GateProvenance);
    }
    let verified = world.user("u2").remember(statement()).await.expect("stored");
    assert_eq!(status(&verified), pb::Status::Active, "stronger evidence makes the candidate active");
}
