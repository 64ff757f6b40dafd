//! A kill -9 behind every transaction of an erasure and of a run of maintenance. The database's log is cut behind each commit,
//! one after the other: that is exactly what a killed process leaves. What comes after is another process over those files.
#![expect(clippy::disallowed_methods, reason = "a reader from outside stands in the way of folding the log")]

use crate::consolidation::say;
use crate::erase::{asks, closed, erase, receipt, settle, store, verify};
use crate::forgetting::{deeds, event, maintain, run, wish};
use crate::world::*;
use std::path::{Path, PathBuf};
use std::time::Duration;
use strata_api::admin::v1 as admin;
use strata_api::longterm::v1 as pb;
use strata_core::Reason;
use strata_core::policy::settings::PolicySettings;
use strata_core::time::SECOND;
use strata_longterm::IndexConfig;
use strata_runtime::sqlite::SqliteSettings;
use strata_testkit::{ManualClock, eventually};

/// Bytes of the head of a write-ahead log, and of the head of each of its frames.
const LOG_HEAD: usize = 32;
const FRAME_HEAD: usize = 24;

fn number(bytes: &[u8], at: usize) -> usize {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize
}

/// Where the transactions of a write-ahead log end.
fn commits(log: &[u8]) -> Vec<usize> {
    if log.len() < LOG_HEAD {
        return Vec::new();
    }
    let frame = FRAME_HEAD + number(log, 8);
    let (mut ends, mut at) = (Vec::new(), LOG_HEAD);
    // Frames of an earlier round have another salt.
    while at + frame <= log.len() && log[at + 8..at + 16] == log[16..24] {
        if number(log, at + 4) > 0 {
            ends.push(at + frame);
        }
        at += frame;
    }
    ends
}

/// Everything that is written to the database from now on, transaction by transaction.
struct Recording {
    file: PathBuf,
    /// A reader that stays: nothing is folded out of the log meanwhile.
    _reader: rusqlite::Connection,
    database: Vec<u8>,
    log: Vec<u8>,
}

impl Recording {
    async fn begin(world: &World) -> Self {
        world.settled().await;
        let file = world.directory.path().join("longterm.db");
        let reader = rusqlite::Connection::open(&file).expect("opens");
        reader.execute_batch("BEGIN; SELECT count(*) FROM records;").expect("reads");
        let log = std::fs::read(Self::log_of(&file)).unwrap_or_default();
        Self { database: std::fs::read(&file).expect("a file"), log, _reader: reader, file }
    }

    fn log_of(file: &Path) -> PathBuf {
        file.with_extension("db-wal")
    }

    /// The files as a kill behind each transaction leaves them; the first from before all of them.
    fn images(&self) -> Vec<tempfile::TempDir> {
        let log = std::fs::read(Self::log_of(&self.file)).expect("a log");
        let goes_on = self.log.len() >= LOG_HEAD && self.log[16..24] == log[16..24];
        let begun = if goes_on { commits(&self.log).last().copied().unwrap_or(0) } else { 0 };
        let cuts = std::iter::once(begun).chain(commits(&log).into_iter().filter(|end| *end > begun));
        cuts.map(|cut| {
            let image = tempfile::tempdir().expect("a directory");
            let file = image.path().join("longterm.db");
            std::fs::write(&file, &self.database).expect("written");
            std::fs::write(Self::log_of(&file), &log[..cut]).expect("written");
            image
        })
        .collect()
    }
}

/// Another process over an image.
async fn again(image: tempfile::TempDir, seed: u64, clock: &ManualClock) -> World {
    let clock = ManualClock::at(strata_core::Clock::now(clock).plus(SECOND));
    World::indexed(image, seed, None, SqliteSettings::default(), IndexConfig::Exact, clock).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a173_a_kill_behind_any_transaction_of_an_erasure_and_it_ends_once_after_the_restart() {
    for (language, key, code, words, echo) in [
        ("en", "locker.code", "KX-77310", "My locker code is KX-77310", "The spare key hangs at hook KX-77310"),
        ("zh", "locker.code", "紫海象灯笼", "我的柜子密码是紫海象灯笼", "备用钥匙写着紫海象灯笼"),
    ] {
        let world = World::new().await;
        let user = world.user("u1");
        let members = say(&world, &user, language, 22).await;
        let gone = id(&user.remember(states(key, code, words)).await.expect("stored"));
        let other = id(&user.remember(event(echo)).await.expect("stored"));
        maintain(&world).await;
        world.later(SECOND).await;
        let summed = user.get(&members[0]).await.expect("there").content;
        let memory_ids = vec![gone.clone(), other.clone(), members[0].clone()];
        let request_id = "00000000-0000-4000-8000-000000000077".to_owned();
        let request = pb::EraseMemoriesRequest { memory_ids, request_id, ..asks(&user) };

        let recording = Recording::begin(&world).await;
        let begun = erase(&user, request.clone()).await.expect("served").erasure.expect("begun").erasure_id;
        settle(&user, &begun).await;
        eventually(Duration::from_secs(30), async || receipt(&user, &begun).await.state() != pb::ErasureState::Running).await;
        let images = recording.images();
        let log = std::fs::read_to_string(world.directory.path().join("erasures/erasures.jsonl")).expect("a log");
        let (asked, lines) = (log.lines().next().expect("a line").to_owned(), log.lines().count());
        assert_eq!(lines, 2, "asked for and closed");
        assert!(images.len() > 10, "{} transactions", images.len());
        for (at, image) in images.into_iter().enumerate() {
            if at > 0 && at % 2 == 0 {
                // The line of the log stands as soon as the intent does, or not yet.
                std::fs::create_dir(image.path().join("erasures")).expect("a folder");
                std::fs::write(image.path().join("erasures/erasures.jsonl"), format!("{asked}\n")).expect("written");
            }
            let world = again(image, 100 + at as u64, &world.clock).await;
            let user = world.user("u1");
            let erasure = erase(&user, request.clone()).await.expect("served").erasure.expect("begun").erasure_id;
            assert_eq!(erasure == begun, at > 0, "{at}: asked again under its id it is the one that was begun");
            let done = closed(&user, &erasure).await;
            assert_eq!(done.state(), pb::ErasureState::Gone, "{at}: {done:?}");
            let records = store(&done, "longterm.records");
            // With the summary that one of them stood in.
            assert_eq!((done.memories, records.found, records.removed, records.remaining), (4, 4, 4, 0), "{at}: {done:?}");
            for word in [code, &summed] {
                assert!(!world.files_hold(word), "{at}: {word} is in the files");
            }
            assert!(verify(&user, &erasure, &[code]).await.absent, "{at}");
            assert_eq!(user.get(&gone).await.expect_err("gone").reason, Reason::NotFound);
            assert_eq!(user.get(&members[1]).await.expect("kept").status(), pb::Status::Archived);
            let audit = world.audit("u1").await;
            let entries = |action: &str| audit.iter().filter(|entry| entry.action == action).count();
            assert_eq!((entries("ERASE_REQUESTED"), entries("ERASED"), entries("ERASE_CLOSED")), (1, 4, 1), "{at}: once");
            world.database.read(strata_longterm::metadata::ledger::verify_audit).await.expect("an unbroken chain");
            let log = std::fs::read_to_string(world.directory.path().join("erasures/erasures.jsonl")).expect("a log");
            assert_eq!(log.lines().count(), 2, "{at}: {log}");
            world.stopped().await;
        }
    }
}

/// What is stored, without what another process names otherwise.
async fn stored(user: &Caller) -> Vec<String> {
    let statuses = [pb::Status::Active, pb::Status::Candidate, pb::Status::Expired, pb::Status::Archived];
    let filter = pb::RecallFilter { statuses: statuses.map(i32::from).to_vec(), ..Default::default() };
    let line = |m: &pb::Memory| format!("{:?} {:?} {} of {}", m.kind(), m.status(), m.content, m.derived_from.len());
    let mut all: Vec<String> = user.list(filter).await.iter().map(line).collect();
    all.sort();
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c129_a_kill_behind_any_transaction_of_a_run_and_the_next_one_ends_it_once() {
    for language in ["en", "zh"] {
        let world = World::new().await;
        // Every step is a transaction of its own.
        let mut policy = PolicySettings::clone(&world.settings.load());
        policy.forgetting.schedule.batch = 1;
        world.settings.store(std::sync::Arc::new(policy));
        let user = world.user("u1");
        user.remember(wish("I want menu number 4 this month")).await.expect("stored");
        user.remember(says("I always sit in row 9")).await.expect("stored");
        world.later(20 * DAY).await;
        let old = pb::Statement { importance: 1, ..event("I swam 2 km in lane 3") };
        user.remember(old).await.expect("stored");
        world.later(10 * DAY).await;
        say(&world, &user, language, 22).await;
        let dry_run = admin::RunMaintenanceRequest { dry_run: true, ..Default::default() };
        let planned = run(&world, dry_run).await.expect("planned");
        let recording = Recording::begin(&world).await;
        let done = maintain(&world).await;
        assert_eq!(deeds(&planned), deeds(&done), "the dry run is the run");
        world.settled().await;
        let images = recording.images();
        let expected = stored(&user).await;
        assert!(images.len() > done.len(), "{} transactions of {} steps", images.len(), done.len());
        for (at, image) in images.into_iter().enumerate() {
            let world = again(image, 100 + at as u64, &world.clock).await;
            let user = world.user("u1");
            maintain(&world).await;
            assert_eq!(stored(&user).await, expected, "{at}");
            let left = maintain(&world).await;
            assert!(left.iter().all(|step| step.state() != admin::MaintenanceState::Done), "{at}: {left:?}");
            for record in user.list(pb::RecallFilter { statuses: vec![pb::Status::Archived.into()], ..Default::default() }).await
            {
                let asked = pb::GetHistoryRequest { memory_id: record.memory_id.clone(), page_size: 100, ..Default::default() };
                let history = user.history(asked).await.expect("there").entries;
                let moved = history.iter().filter(|entry| entry.rule.starts_with('F')).count();
                assert_eq!(moved, 1, "{at}: moved once: {record:?}");
            }
            world.stopped().await;
        }
    }
}
