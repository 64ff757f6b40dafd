//! Moves of status: confirm, reject, forget, restore.

use crate::world::*;
use strata_api::error;
use strata_api::longterm::v1 as pb;
use strata_core::Reason;
use strata_core::time::SECOND;

fn inferred(key: &str, value: &str) -> pb::Statement {
    from(pb::Source::ModelInference, states(key, value, &format!("prefers {value}")))
}

#[tokio::test]
async fn a94_a_rejected_candidate_returns_on_a_later_turn_of_the_user_only() {
    let world = World::new().await;
    let user = world.user("u1");
    let candidate = id(&user.propose(inferred("tea.kind", "oolong")).await.expect("queued"));
    assert_eq!(user.reject(&candidate).await.expect("rejected").status(), pb::Status::Rejected);
    assert_eq!(user.confirm(&candidate).await.expect_err("not a candidate").reason, Reason::StatusMove);
    let again = user.propose(inferred("tea.kind", "oolong")).await.expect("known");
    assert_eq!((id(&again), status(&again)), (candidate.clone(), pb::Status::Rejected));
    assert!(user.candidates(false).await.is_empty());
    world.later(SECOND).await;
    let said = user.remember(states("tea.kind", "oolong", "I always drink oolong")).await.expect("said");
    assert_eq!((id(&said), status(&said)), (candidate, pb::Status::Active));
}

#[tokio::test]
async fn k7_a_slot_that_changed_asks_again_and_the_correction_stays() {
    let world = World::new().await;
    let user = world.user("u1");
    let candidate = id(&user.propose(inferred("tea.kind", "oolong")).await.expect("queued"));
    user.remember(from(pb::Source::UserCorrection, states("tea.kind", "mint", "no, I drink mint"))).await.expect("stored");
    let asked = user.confirm(&candidate).await.expect("asked again");
    assert_eq!((asked.outcome(), rules(&asked).last().copied()), (pb::Outcome::Candidate, Some("K7")));
    assert_eq!(user.values("tea.kind").await, ["mint"]);
    assert_eq!(user.confirm(&candidate).await.expect("confirmed").outcome(), pb::Outcome::Active);
    assert_eq!(user.values("tea.kind").await, ["oolong"]);
}

#[tokio::test]
async fn an_etag_protects_what_the_user_saw() {
    let world = World::new().await;
    let user = world.user("u1");
    let candidate = user.propose(inferred("tea.kind", "oolong")).await.expect("queued").memory.expect("record");
    let support = pb::Statement { source_ref: Some(user.turn("s2")), ..inferred("tea.kind", "oolong") };
    user.propose(support).await.expect("supported");
    let request = pb::ConfirmCandidateRequest {
        user_id: "u1".into(),
        memory_id: candidate.memory_id.clone(),
        etag: candidate.etag,
        confirmation: "dialog".into(),
        ..Default::default()
    };
    let fault = error::fault(&user.client().confirm_candidate(request).await.expect_err("changed"));
    assert_eq!(fault.reason, Reason::VersionMismatch);
}

#[tokio::test]
async fn a150_a168_c184_forgetting_is_immediate_and_restoring_runs_the_conflict_rules() {
    let world = World::new().await;
    let user = world.user("u1");
    let a = id(&user.remember(states("seat", "aisle", "I want an aisle seat")).await.expect("stored"));
    let done = user.forget(&[&a, "01890000-0000-7000-8000-000000000000"], &[]).await;
    assert_eq!((done.forgotten.as_slice(), done.not_found.len()), (&[a.clone()][..], 1));
    assert!(user.lookup("seat").await.is_empty() && user.list(pb::RecallFilter::default()).await.is_empty());
    assert_eq!(user.get(&a).await.expect("restorable").status(), pb::Status::Deleted);
    let back = user.restore(&[&a]).await;
    assert_eq!(
        (back.memories[0].status(), user.values("seat").await.as_slice()),
        (pb::Status::Active, &["aisle".to_owned()][..])
    );

    user.forget(&[&a], &[]).await;
    world.later(SECOND).await;
    let b = user.remember(states("seat", "window", "I want a window seat")).await.expect("stored");
    let late = user.restore(&[&a]).await;
    assert_eq!(late.memories[0].status(), pb::Status::Superseded, "older than what holds now: {late:?}");
    assert_eq!(late.memories[0].superseded_by, id(&b));
    assert_eq!(user.values("seat").await, ["window"]);
    assert_eq!(user.restore(&[&a]).await.not_found, std::slice::from_ref(&a), "not forgotten");

    let all = user.forget(&[], &["seat"]).await;
    assert_eq!(all.forgotten.len(), 2, "a key with its history");
    assert!(user.lookup("seat").await.is_empty());
    let entries = user.history_of("seat").await.entries;
    assert!(
        entries.iter().any(|e| e.memory_id == a && e.from() == pb::Status::Deleted && e.to() == pb::Status::Active),
        "{entries:?}"
    );
}

#[tokio::test]
async fn x06_a_statement_made_again_keeps_the_forgotten_one_forgotten() {
    let world = World::new().await;
    let user = world.user("u1");
    let a = id(&user.remember(says("I always park in lot B-17")).await.expect("stored"));
    user.forget(&[&a], &[]).await;
    world.later(SECOND).await;
    let b = id(&user.remember(says("I always park in lot B-17")).await.expect("said again"));
    assert_ne!(a, b);
    let answer = user.restore(&[&a]).await;
    assert_eq!((answer.memories[0].status(), answer.findings[0].rule.as_str()), (pb::Status::Deleted, "G10"));
}

#[tokio::test]
async fn c029_going_over_the_same_turns_again_does_not_relearn_what_was_forgotten() {
    let world = World::new().await;
    let user = world.user("u1");
    let said = strata_core::Clock::now(&world.clock);
    for (statement, key) in
        [(says("I always park in lot B-17"), None), (states("seat", "aisle", "I want an aisle seat"), Some("seat"))]
    {
        let a = id(&user.clone().said(said).remember(statement.clone()).await.expect("stored"));
        world.later(SECOND).await;
        user.forget(&[&a], &[]).await;
        for again in
            [user.clone().said(said).remember(statement.clone()).await, user.clone().said(said).propose(statement.clone()).await]
        {
            assert_eq!(again.expect_err("forgotten").reason, Reason::Forgotten);
        }
        // Another user's same words are their own; a restore takes the tombstone away; a later statement passes.
        world.user("u2").said(said).remember(statement.clone()).await.expect("of another user");
        assert_eq!(user.restore(&[&a]).await.memories[0].status(), pb::Status::Active);
        user.clone().said(said).remember(statement.clone()).await.expect("evidence for the restored record");
        user.forget(&[&a], &[]).await;
        world.later(SECOND).await;
        user.remember(statement).await.expect("said again later");
        if let Some(key) = key {
            assert_eq!(user.values(key).await.len(), 1);
        }
    }
}

#[tokio::test]
async fn c029_other_words_of_the_same_turn_do_not_relearn_it_either() {
    for (key, value, first, other) in [
        ("seat", "aisle", "From now on I want an aisle seat", "I want an aisle seat"),
        ("seat", "过道", "以后我都要过道的座位", "我要过道的座位"),
    ] {
        let world = World::new().await;
        let user = world.user("u1");
        let said = strata_core::Clock::now(&world.clock);
        let a = id(&user.clone().said(said).remember(states(key, value, first)).await.expect("stored"));
        world.later(SECOND).await;
        user.forget(&[&a], &[]).await;
        let again = pb::Statement { content: other.into(), ..states(key, value, first) };
        assert_eq!(user.clone().said(said).propose(again.clone()).await.expect_err("forgotten").reason, Reason::Forgotten);
        // Another value of the slot was not forgotten, and what is said later passes.
        user.clone().said(said).remember(states(key, "window", "I want a window seat")).await.expect("another value");
        world.later(SECOND).await;
        user.remember(again).await.expect("said again later");
    }
}

#[tokio::test]
async fn forbidden_moves_are_refused() {
    let world = World::new().await;
    let user = world.user("u1");
    let active = id(&user.remember(states("seat", "aisle", "I want an aisle seat")).await.expect("stored"));
    assert_eq!(user.confirm(&active).await.expect_err("active").reason, Reason::StatusMove);
    assert_eq!(user.reject(&active).await.expect_err("active").reason, Reason::StatusMove);
    user.forget(&[&active], &[]).await;
    assert_eq!(user.confirm(&active).await.expect_err("deleted").reason, Reason::StatusMove);
    assert_eq!(world.user("u2").confirm(&active).await.expect_err("foreign").reason, Reason::NotFound);
}

#[tokio::test]
async fn a172_the_audit_is_chained_and_holds_no_content() {
    let world = World::new().await;
    let user = world.user("u1");
    let a = id(&user.remember(says("I always park in lot B-17")).await.expect("stored"));
    user.forget(&[&a], &[]).await;
    let entries = world
        .database
        .read(|db| {
            let (entries, _) = strata_longterm::metadata::ledger::verify_audit(db)?;
            let mut all = db.prepare("SELECT action || ' ' || actor || ' ' || rule FROM audit").expect("sql");
            let rows: Vec<String> = all.query_map([], |row| row.get(0)).expect("rows").map(|r| r.expect("text")).collect();
            assert!(rows.iter().all(|row| !row.contains("B-17")), "{rows:?}");
            Ok::<u64, strata_core::Fault>(entries)
        })
        .await
        .expect("an unbroken chain");
    assert_eq!(entries, 2);
    world
        .database
        .write(|db| {
            Ok::<usize, strata_runtime::sqlite::SqliteError>(db.execute("UPDATE audit SET actor = 'x' WHERE seq = 1", [])?)
        })
        .await
        .expect("ran");
    assert!(world.database.read(strata_longterm::metadata::ledger::verify_audit).await.is_err(), "an altered entry shows");
}
