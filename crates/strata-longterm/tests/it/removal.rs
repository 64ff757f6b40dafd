//! What a removal leaves: one entry of the audit, nothing in a second copy of the index, nothing in what was made of a record.
//! And what is no removal: an archived record is read and brought back; a pattern of events waits to be confirmed.
#![expect(clippy::print_stdout, reason = "what was skipped, and what a server still holds, is for people")]

use crate::consolidation::{say, summaries};
use crate::erase::{asks, closed, erase, erase_ids, receipt, store, verify};
use crate::forgetting::{event, found, maintain, rules_of, with_status};
use crate::world::*;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use strata_api::error;
use strata_api::longterm::v1 as pb;
use strata_core::Reason;
use strata_core::time::SECOND;
use strata_longterm::IndexConfig;
use strata_longterm::QdrantSettings;
use strata_runtime::sqlite::SqliteSettings;
use strata_testkit::fixtures::unique;
use strata_testkit::qdrant::Strike;
use strata_testkit::{ManualClock, WireDouble, eventually};
use strata_text::embed::{Caller as CallersVectors, Embedder};

#[tokio::test]
async fn c030_every_removal_leaves_one_entry_of_the_audit_without_content() {
    for (first, second, third, code) in [
        ("My locker code is KX-77310", "The spare key hangs at hook KX-77310", "I ran 5 km with KX-77310", "KX-77310"),
        ("我的柜子密码是紫海象灯笼", "备用钥匙写着紫海象灯笼", "我带着紫海象灯笼跑了5公里", "紫海象灯笼"),
    ] {
        let world = World::new().await;
        let user = world.user("u1");
        let forgotten = id(&user.remember(states("locker.code", code, first)).await.expect("stored"));
        let ends = strata_core::Clock::now(&world.clock).plus(DAY);
        let expire_time = Some(strata_api::convert::common::wire_time(ends));
        let expired = id(&user.remember(pb::Statement { expire_time, ..says(second) }).await.expect("stored"));
        let purged = id(&user.remember(event(third)).await.expect("stored"));
        // The reason repeats what is forgotten: a caller's words are never in the audit.
        let request = pb::ForgetMemoriesRequest {
            user_id: "u1".into(),
            memory_ids: vec![forgotten.clone()],
            reason: format!("no longer {code}"),
            ..Default::default()
        };
        user.client().forget_memories(request).await.expect("forgotten");
        world.later(2 * DAY).await;
        maintain(&world).await;
        world.later(6 * DAY).await;
        maintain(&world).await;
        assert_eq!(user.get(&purged).await.expect("archived first").status(), pb::Status::Archived);
        world.later(15 * DAY).await;
        maintain(&world).await;
        assert_eq!(user.get(&purged).await.expect_err("purged").reason, Reason::NotFound);

        let audit = world.audit("u1").await;
        for (id, action, rule, actor) in [
            (&forgotten, "DELETED", "E1", "key:test"),
            (&expired, "EXPIRED", "F1", "strata:maintenance"),
            (&purged, "PURGED", "F6", "strata:maintenance"),
        ] {
            let of_it = audit.iter().filter(|entry| entry.memory_id.is_some_and(|of| of.to_string() == *id));
            let removals: Vec<_> =
                of_it.filter(|entry| matches!(entry.action.as_str(), "DELETED" | "EXPIRED" | "PURGED" | "ERASED")).collect();
            let [one] = removals.as_slice() else { panic!("one entry: {removals:?}") };
            assert_eq!((one.action.as_str(), one.rule.as_str(), one.actor.as_str()), (action, rule, actor));
            assert!(one.time.0 > 0 && !one.reason.is_empty(), "when and why: {one:?}");
        }

        // Refused: an id of nobody, another user's id, and a call that is refused as a whole.
        let before = world.audit("u2").await.len();
        let other = world.user("u2");
        assert_eq!(other.forget(&[&forgotten], &[]).await.not_found, std::slice::from_ref(&forgotten));
        let two = other.forget(&[&forgotten, &purged], &[]).await;
        assert_eq!(two.not_found.len(), 2);
        let request = pb::ForgetMemoriesRequest {
            user_id: "u2".into(),
            memory_ids: vec![forgotten.clone()],
            reason: "my card 4111 1111 1111 1111".into(),
            ..Default::default()
        };
        assert_eq!(
            error::fault(&other.client().forget_memories(request).await.expect_err("refused")).reason,
            Reason::InvalidField
        );
        let refusals = world.audit("u2").await.split_off(before);
        let told: Vec<(&str, bool)> = refusals.iter().map(|entry| (entry.action.as_str(), entry.memory_id.is_some())).collect();
        assert_eq!(told, [("FORGET_REFUSED", true), ("FORGET_REFUSED", false), ("FORGET_REFUSED", true)], "one entry a call");
        for entry in audit.iter().chain(&refusals) {
            let text = format!("{} {} {} {}", entry.action, entry.rule, entry.subject, entry.reason);
            assert!(
                !text.contains(code) && !text.contains("locker") && !text.replace(" ", "").contains("41111111"),
                "no content, no key: {entry:?}"
            );
        }
        let (entries, _) = world.database.read(strata_longterm::metadata::ledger::verify_audit).await.expect("an unbroken chain");
        assert!(entries >= audit.len() as u64);
    }
}

#[tokio::test]
async fn a212_many_events_of_one_pattern_become_a_rule_that_waits_to_be_confirmed_however_many_they_are() {
    for (value, words) in [("latte", "I ordered a latte at stand"), ("拿铁", "我点了一杯拿铁，窗口")] {
        let world = World::new().await;
        let user = world.user("u1");
        let mut contents = BTreeSet::new();
        for night in 0..12_u32 {
            for part in 0..4 {
                let n = 10 * night + part;
                let content = format!("{words} {n}");
                let said = pb::Statement {
                    source_ref: Some(turn(&format!("s{n}"), n + 1)),
                    ..of_kind(pb::Kind::Event, states("coffee.order", value, &content))
                };
                user.remember(said).await.expect("stored");
                contents.insert(content);
            }
            world.later(DAY).await;
            maintain(&world).await;
            let rules: Vec<pb::Memory> = user
                .list(pb::RecallFilter {
                    kinds: vec![pb::Kind::Fact.into()],
                    statuses: vec![pb::Status::Active.into(), pb::Status::Candidate.into(), pb::Status::Disputed.into()],
                    ..Default::default()
                })
                .await;
            assert_eq!(rules.len(), 1, "night {night}: one rule of one pattern");
            assert_eq!(rules[0].status(), pb::Status::Candidate, "night {night}: never in force by counting");
            assert!(!rules[0].confirmed && contents.contains(&rules[0].content), "its words are those of an event");
            assert!(rules[0].derived_from.len() >= 3, "it names what it was made of");
            assert!(!found(&user, words).await.contains(&rules[0].memory_id), "out of recall until then");
        }
        let rule = user.candidates(false).await.remove(0).memory.expect("a record");
        assert_eq!(user.confirm(&rule.memory_id).await.expect("confirmed").outcome(), pb::Outcome::Active);
        assert_eq!(user.values("coffee.order").await.first().map(String::as_str), Some(value));
    }
}

#[tokio::test]
async fn a213_an_archived_memory_keeps_words_and_labels_comes_back_on_demand_and_is_reached_by_forgetting() {
    for (first, second, third, query, code) in [
        ("I ran 5 km with KX-77310", "I lifted 40 kg with KX-88220", "I swam 2 km with KX-99130", "ran lifted swam", "KX-99130"),
        ("我带着紫海象灯笼跑了5公里", "我带着红海象灯笼举了40公斤", "我带着蓝海象灯笼游了2公里", "跑 举 游", "蓝海象灯笼"),
    ] {
        let world = World::new().await;
        let user = world.user("u1");
        let cold = |content: &str| pb::Statement {
            topic: "training".into(),
            tags: vec!["sport".into()],
            metadata: [("place".to_owned(), "park".to_owned())].into(),
            ..event(content)
        };
        let mut ids = Vec::new();
        for content in [first, second, third] {
            ids.push(id(&user.remember(cold(content)).await.expect("stored")));
        }
        let warm = user.get(&ids[0]).await.expect("there");
        world.later(8 * DAY).await;
        maintain(&world).await;
        assert_eq!(with_status(&user, pb::Status::Archived).await.len(), 3);
        assert!(found(&user, query).await.is_empty(), "out of recall");
        let kept = user.get(&ids[0]).await.expect("read by id");
        assert_eq!(kept.status(), pb::Status::Archived);
        let words = |m: &pb::Memory| {
            (m.content.clone(), m.source_quote.clone(), m.topic.clone(), m.tags.clone(), m.metadata.clone(), m.event_time)
        };
        assert_eq!(words(&kept), words(&warm), "words, quote and labels as they were");
        // Asked for by status it is found by its words, labelled.
        let filter = pb::RecallFilter { statuses: vec![pb::Status::Archived.into()], ..Default::default() };
        let request =
            pb::RecallRequest { user_id: "u1".into(), query: query.into(), k: 9, filter: Some(filter), ..Default::default() };
        let asked = user.client().recall(request).await.expect("recalled").into_inner().items;
        assert!(asked.iter().any(|item| item.memory.as_ref().is_some_and(|m| m.memory_id == ids[0])), "{asked:?}");

        let back = user.restore(&[&ids[0]]).await;
        assert_eq!(back.memories[0].status(), pb::Status::Active, "{:?}", back.findings);
        world.settled().await;
        assert!(found(&user, query).await.contains(&ids[0]));
        // Soft and hard forgetting reach the archive.
        assert_eq!(user.forget(&[&ids[1]], &[]).await.forgotten, [ids[1].clone()]);
        assert_eq!(with_status(&user, pb::Status::Archived).await, [ids[2].clone()]);
        world.later(SECOND).await;
        assert!(world.files_hold(code));
        let begun = erase_ids(&user, &[&ids[2]]).await;
        let done = closed(&user, &begun.erasure_id).await;
        assert_eq!(done.state(), pb::ErasureState::Gone, "{done:?}");
        assert!(!world.files_hold(code) && verify(&user, &done.erasure_id, &[code]).await.absent);
        assert_eq!(user.get(&ids[2]).await.expect_err("gone").reason, Reason::NotFound);
        assert!(with_status(&user, pb::Status::Archived).await.is_empty());
    }
}

/// A relay that fails again and again rests longer and longer between two attempts.
const PATIENCE: Duration = Duration::from_secs(120);

fn vectors_of(model: &str) -> Option<Arc<dyn Embedder>> {
    Some(Arc::new(CallersVectors::new(model, 3)))
}

fn with(vector: [f32; 3], statement: pb::Statement) -> pb::Statement {
    pb::Statement { vector: vector.to_vec(), ..statement }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x11_what_is_erased_or_forgotten_during_a_model_switch_is_gone_from_both_collections() {
    let double = WireDouble::start();
    let on = |prefix: &str| {
        let settings = QdrantSettings { url: double.url(), prefix: prefix.into(), exact: true, ..QdrantSettings::default() };
        IndexConfig::Qdrant(settings)
    };
    // A neighbour whose prefix begins with ours.
    let neighbour = World::indexed(
        tempfile::tempdir().expect("a directory"),
        9,
        vectors_of("m@1"),
        SqliteSettings::default(),
        on("x11_b"),
        ManualClock::at(START),
    )
    .await;
    neighbour.user("u1").remember(with([1.0, 0.0, 0.0], says("I always park in lot B-17"))).await.expect("stored");
    neighbour.settled().await;
    let theirs = double.collections();

    let directory = tempfile::tempdir().expect("a directory");
    let world =
        World::indexed(directory, 7, vectors_of("m@1"), SqliteSettings::default(), on("x11"), ManualClock::at(START)).await;
    let user = world.user("u1");
    let mut ids = Vec::new();
    for (n, text) in
        ["I always park in lot B-17", "我总是停在C-18车位", "I always sit in row 9", "I wear badge 12"].iter().enumerate()
    {
        ids.push(id(&user.remember(with([1.0, n as f32, 0.5], says(text))).await.expect("stored")));
    }
    world.settled().await;
    let ours = || double.collections().into_iter().filter(|name| !theirs.contains(name)).collect::<Vec<_>>();
    let first = ours();
    assert_eq!((first.len(), double.points(&first[0])), (1, 4));

    // Another model: its collection cannot be filled yet, so both are there.
    let (directory, clock) = world.stopped().await;
    double.fail(Some("Points/upsert"), u64::MAX, tonic::Status::resource_exhausted("not now"), Strike::Before);
    let world = World::indexed(directory, 8, vectors_of("m@2"), SqliteSettings::default(), on("x11"), clock).await;
    eventually(PATIENCE, async || ours().len() == 2).await;
    let second = ours().into_iter().find(|name| !first.contains(name)).expect("the new one");
    let user = world.user("u1");
    world.clock.advance_micros(SECOND);
    let begun = erase_ids(&user, &[&ids[0]]).await;
    // Removals are done although nothing can be put; whether they are noted as done may wait for that.
    eventually(PATIENCE, async || double.points(&first[0]) == 3).await;
    assert_eq!((double.points(&first[0]), double.points(&second)), (3, 0), "gone from the one that is left behind too");
    assert!(verify(&user, &begun.erasure_id, &["lot B-17"]).await.absent);
    // What is forgotten softly keeps its point, out of every answer; its change waits, and holds up no removal.
    user.forget(&[&ids[2]], &[]).await;
    world.clock.advance_micros(SECOND);
    let all = erase(&user, pb::EraseMemoriesRequest { mentions: vec!["C-18车位".into()], ..asks(&user) }).await.expect("served");
    let all = all.erasure.expect("begun").erasure_id;
    eventually(PATIENCE, async || double.points(&first[0]) == 2).await;

    double.heal();
    world.settled().await;
    eventually(PATIENCE, async || ours() == [second.clone()]).await;
    eventually(PATIENCE, async || double.points(&second) == 2).await;
    for erasure in [&begun.erasure_id, &all] {
        closed(&user, erasure).await;
        assert!(verify(&user, erasure, &["lot B-17", "C-18车位"]).await.absent);
    }
    assert!(found(&user, "row 9 park lot").await.is_empty(), "what was forgotten meanwhile stays out of recall");
    assert_eq!(double.points(&theirs[0]), 1, "another deployment's collection is left alone");
    neighbour.stopped().await;
    world.stopped().await;
}

#[tokio::test]
async fn x11_the_embedded_index_keeps_no_vector_of_what_is_erased_during_a_model_switch() {
    let world = World::with_embedder(7, vectors_of("m@1")).await;
    let user = world.user("u1");
    let gone = id(&user.remember(with([1.0, 0.0, 0.0], says("I always park in lot B-17"))).await.expect("stored"));
    user.remember(with([0.0, 1.0, 0.0], says("I always sit in row 9"))).await.expect("stored");
    world.settled().await;
    assert_eq!(world.count("SELECT count(*) FROM vectors").await, 2);
    let (directory, clock) = world.stopped().await;
    let world = World::indexed(directory, 8, vectors_of("m@2"), SqliteSettings::default(), IndexConfig::Exact, clock).await;
    let user = world.user("u1");
    let begun = erase_ids(&user, &[&gone]).await;
    closed(&user, &begun.erasure_id).await;
    assert_eq!(world.count("SELECT count(*) FROM vectors").await, 1, "of either model");
    assert!(verify(&user, &begun.erasure_id, &["lot B-17"]).await.absent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a174_e3_an_index_server_is_rid_of_it_by_a_stated_day_or_as_soon_as_it_is_filled_anew() {
    for asked in [true, false] {
        let double = WireDouble::start();
        let settings =
            QdrantSettings { url: double.url(), prefix: "e3".into(), exact: true, erase_days: 5, ..QdrantSettings::default() };
        let directory = tempfile::tempdir().expect("a directory");
        let index = IndexConfig::Qdrant(settings);
        let world =
            World::indexed(directory, 7, vectors_of("m@1"), SqliteSettings::default(), index, ManualClock::at(START)).await;
        let user = world.user("u1");
        let gone = id(&user.remember(with([1.0, 0.0, 0.0], says("I always park in lot B-17"))).await.expect("stored"));
        user.remember(with([0.0, 1.0, 0.0], says("I always sit in row 9"))).await.expect("stored");
        world.later(SECOND).await;
        let begun = erase_ids(&user, &[&gone]).await;
        let done = closed(&user, &begun.erasure_id).await;
        let index = store(&done, "longterm.index");
        assert_eq!((done.state(), index.medium()), (pb::ErasureState::Erased, pb::Medium::Pending), "{index:?}");
        let by = index.gone_by.as_ref().expect("by when").seconds;
        let closed_at = done.erase_time.as_ref().expect("closed").seconds;
        assert_eq!(by - closed_at, 5 * 86_400, "{index:?}");
        assert!(index.detail.contains("qdrant.erase_days"), "{index:?}");
        let first = double.collections();
        if asked {
            world.later(SECOND).await;
            world.role.reindex().await.expect("begun");
        } else {
            world.later(3 * DAY).await;
            assert_eq!(receipt(&user, &begun.erasure_id).await.state(), pb::ErasureState::Erased, "not yet");
            assert_eq!(double.collections(), first);
            world.later(DAY + SECOND).await;
        }
        eventually(Duration::from_secs(30), async || receipt(&user, &begun.erasure_id).await.state() == pb::ErasureState::Gone)
            .await;
        let now = receipt(&user, &begun.erasure_id).await;
        let index = store(&now, "longterm.index");
        assert!(index.gone_by.is_none() && index.detail.is_empty(), "{index:?}");
        assert_ne!(double.collections(), first, "the collection that held it is dropped");
        assert_eq!(double.points(&double.collections()[0]), 1);
        // One that comes later waits for the next one.
        world.later(DAY).await;
        let row = user.list(pb::RecallFilter::default()).await.remove(0).memory_id;
        let next = erase_ids(&user, &[&row]).await;
        assert_eq!(closed(&user, &next.erasure_id).await.state(), pb::ErasureState::Erased);
        world.stopped().await;
    }
}

/// Whether bytes of a server's files hold a vector: as its segments keep it, or as its log does. Lengths are made 1 on the way,
/// so that the last digit is anyone's.
fn holds(bytes: &[u8], vector: [f32; 3]) -> bool {
    let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    let same = |found: [f32; 3]| found.iter().zip(vector).all(|(one, other)| (one - other / length).abs() < 1e-6);
    let number = |bytes: &[u8]| -> [u8; 4] { bytes.try_into().expect("four bytes") };
    let in_segment = bytes.chunks_exact(4).map(|b| f32::from_le_bytes(number(b))).collect::<Vec<f32>>();
    let in_log = |b: &[u8]| [1, 6, 11].map(|at| f32::from_be_bytes(number(&b[at..at + 4])));
    in_segment.windows(3).any(|found| same([found[0], found[1], found[2]]))
        || bytes.windows(15).any(|b| b[0] == 0xfa && b[5] == 0xfa && b[10] == 0xfa && same(in_log(b)))
}

/// Files of a server's collections with a prefix that hold a vector; what goes away meanwhile holds nothing.
fn holding(folder: &Path, prefix: &str, vector: [f32; 3]) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            if entry.file_name().to_string_lossy().starts_with(prefix) {
                out.extend(holding(&path, "", vector));
            }
        } else if let Ok(bytes) = std::fs::read(&path) {
            // Its logs are laid out in advance: tens of MiB of nothing.
            let written = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            if holds(&bytes[..written.next_multiple_of(4).min(bytes.len())], vector) {
                out.push(path);
            }
        }
    }
    out
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a174_e3_a_real_qdrant_is_rid_of_it_when_a_new_collection_takes_the_place_of_the_one_that_held_it() {
    let Ok(url) = std::env::var("QDRANT_URL") else {
        println!("skipped: QDRANT_URL names no Qdrant server (QDRANT_STORAGE: its folder, if its files are to be searched too)");
        return;
    };
    let storage = std::env::var_os("QDRANT_STORAGE").map(|folder| PathBuf::from(folder).join("collections"));
    let prefix = unique("e3").replace('_', "-");
    let settings = QdrantSettings { url, prefix: prefix.clone(), exact: true, erase_days: 5, ..QdrantSettings::default() };
    let index = IndexConfig::Qdrant(settings);
    let directory = tempfile::tempdir().expect("a directory");
    let world = World::indexed(directory, 7, vectors_of("m@1"), SqliteSettings::default(), index, ManualClock::at(START)).await;
    let user = world.user("u1");
    // Numbers that no other run has.
    let secret = [1.0, std::process::id() as f32 / 65_536.0, 0.123_457];
    let kept = [0.0, 1.0, std::process::id() as f32 / 32_768.0];
    let gone = id(&user.remember(with(secret, says("I always park in lot B-17"))).await.expect("stored"));
    user.remember(with(kept, says("我总是坐在9排"))).await.expect("stored");
    world.settled().await;
    let told = |when: &str| {
        let Some(storage) = &storage else { return 0 };
        let files = holding(storage, &prefix, secret);
        println!("{when}: {} files of the server hold the vector: {files:?}", files.len());
        files.len()
    };
    assert!(storage.is_none() || told("stored") > 0, "what is looked for is what the server writes");
    world.later(SECOND).await;
    let begun = erase_ids(&user, &[&gone]).await;
    let done = closed(&user, &begun.erasure_id).await;
    let index = store(&done, "longterm.index");
    assert_eq!((index.found, index.removed, index.remaining), (1, 1, 0), "{index:?}");
    // Out of every answer of the server, and the receipt says what may still be in its files, and by when it is not.
    assert!(verify(&user, &begun.erasure_id, &["lot B-17"]).await.absent);
    assert_eq!((done.state(), index.medium()), (pb::ErasureState::Erased, pb::Medium::Pending), "{index:?}");
    assert!(index.gone_by.is_some() && index.detail.contains("strata reindex"), "{index:?}");
    told("erased");
    world.later(SECOND).await;
    world.role.reindex().await.expect("begun");
    eventually(Duration::from_secs(60), async || receipt(&user, &begun.erasure_id).await.state() == pb::ErasureState::Gone).await;
    if storage.is_some() {
        // The server answers that a collection is dropped before the last of its files is.
        eventually(Duration::from_secs(30), async || told("replaced") == 0).await;
        let left = storage.as_deref().map(|storage| holding(storage, &prefix, kept)).unwrap_or_default();
        assert!(!left.is_empty(), "what was not erased is there");
    }
    world.stopped().await;
}

#[tokio::test]
async fn e2_a171_summaries_of_an_erased_record_go_with_it_and_are_made_anew_without_it() {
    for language in ["en", "zh"] {
        let world = World::new().await;
        let user = world.user("u1");
        let ids = say(&world, &user, language, 25).await;
        maintain(&world).await;
        let summary = summaries(&user).await.remove(0);
        let words = user.get(&ids[3]).await.expect("archived").content;
        assert!(summary.content.contains(words.trim_end_matches(['.', '。'])), "{}", summary.content);
        world.later(SECOND).await;
        let begun = erase_ids(&user, &[&ids[3]]).await;
        assert!(summaries(&user).await.is_empty(), "out of every answer at once");
        let done = closed(&user, &begun.erasure_id).await;
        assert_eq!(done.state(), pb::ErasureState::Gone, "{done:?}");
        assert_eq!(user.get(&summary.memory_id).await.expect_err("gone").reason, Reason::NotFound);
        assert!(!world.files_hold(&words), "neither in the summary nor in its history");
        world.later(SECOND).await;
        maintain(&world).await;
        let anew = summaries(&user).await;
        assert_eq!(anew.len(), 1, "made of what is left");
        assert!(!anew[0].content.contains(&words) && !anew[0].derived_from.contains(&ids[3]));
        assert_eq!(anew[0].derived_from.len(), 24);
    }
}

#[tokio::test]
async fn e2_near_duplicates_that_were_merged_into_an_erased_record_go_with_it() {
    for (first, second, code) in [
        ("I always take the train KX-773 to work", "To work I always take the train KX-773", "KX-773"),
        ("我总是坐KX-773次火车上班", "去上班我总是坐KX-773次火车", "KX-773"),
    ] {
        for by_survivor in [true, false] {
            let world = World::with_embedder(7, vectors_of("theirs@1")).await;
            let user = world.user("u1");
            let event = |content: &str, importance| pb::Statement { importance, ..event(content) };
            let merged = with([1.0, 0.0, 0.0], event(first, 2));
            let merged = id(&user.remember(merged).await.expect("stored"));
            world.clock.advance_micros(1_000);
            let survivor = with([0.999, 0.01, 0.0], event(second, 4));
            let survivor = id(&user.remember(survivor).await.expect("stored"));
            world.later(SECOND).await;
            let steps = maintain(&world).await;
            assert_eq!(rules_of(&steps, &merged), ["R11 Merge"], "{steps:?}");
            world.later(SECOND).await;
            let named = if by_survivor { &survivor } else { &merged };
            let begun = erase_ids(&user, &[named]).await;
            let done = closed(&user, &begun.erasure_id).await;
            assert_eq!(done.state(), pb::ErasureState::Gone, "{done:?}");
            assert_eq!(user.get(&merged).await.expect_err("gone").reason, Reason::NotFound);
            if by_survivor {
                assert_eq!(user.get(&survivor).await.expect_err("gone").reason, Reason::NotFound);
                assert!(!world.files_hold(code) && !world.files_hold(first) && !world.files_hold(second));
            } else {
                // What it was merged into is a statement of its own; it keeps nothing of the other one's words, and is named.
                let left = user.get(&survivor).await.expect("there");
                assert!(left.evidence.iter().all(|e| e.quote != first), "{:?}", left.evidence);
                assert!(!world.files_hold(first));
                assert_eq!(done.also_mentioned_by, std::slice::from_ref(&survivor), "{done:?}");
            }
        }
    }
}
