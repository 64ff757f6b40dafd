//! Databases of earlier programs, and of later ones; and a store without room.
#![expect(clippy::disallowed_methods, reason = "files are made as other programs left them")]

use crate::world::*;
use std::path::Path;
use strata_api::longterm::v1 as pb;
use strata_core::Reason;
use strata_core::policy::gate::Tombstones;
use strata_core::time::DAY;
use strata_longterm::MIGRATIONS;
use strata_longterm::backup::{Erasures, restore};
use strata_runtime::sqlite::{Database, Location, OpenError, SqliteError, SqliteSettings};

/// As each released schema left it. A new schema adds its own and keeps these.
const RELEASED: [(u32, &str); 1] = [(1, include_str!("../data/schema-1.sql"))];

fn build(path: &Path, sql: &str) {
    let file = rusqlite::Connection::open(path).expect("a file");
    file.execute_batch(sql).expect("the database of then");
    file.execute_batch("PRAGMA journal_mode = WAL").expect("as the service has it");
}

#[tokio::test]
async fn c137_a_database_of_every_released_schema_opens_with_its_data() {
    for (version, sql) in RELEASED {
        let directory = tempfile::tempdir().expect("a directory");
        build(&directory.path().join("longterm.db"), sql);
        let world = World::within(directory, 7, None, SqliteSettings::default()).await;
        assert_eq!(world.database.generation(), 1, "schema {version}");
        let migrations = i64::try_from(MIGRATIONS.len()).expect("few");
        assert_eq!(world.count("SELECT count(*) FROM schema_migrations").await, migrations);
        assert_eq!(world.count("SELECT count(*) FROM records").await, 8);
        let counted =
            "SELECT (SELECT sum(records) FROM tenants) * (SELECT sum(bytes) FROM tenants) = 8 * (SELECT sum(bytes) FROM records)";
        assert_eq!(world.count(counted).await, 1, "what tenants keep is counted: schema {version}");

        let ada = world.user("ada").tenant("local");
        assert_eq!(ada.values("profile.city").await, ["Hangzhou"]);
        let chain = ada.history_of("profile.city").await.memories;
        assert_eq!(contents(&chain), ["I live in Shanghai", "I moved to Hangzhou"]);
        assert_eq!(chain[0].superseded_by, chain[1].memory_id);
        let all = ada.list(pb::RecallFilter::default()).await;
        let expected = ["I moved to Hangzhou", "我不吃辣", "I always park in lot B-17", "My desk is 4-117 at the clinic"];
        assert_eq!(contents(&all), expected);
        assert_eq!((all[2].tags.join(" "), all[2].metadata["path"].as_str()), ("car 标签".into(), "a\\\\b"));
        assert_eq!(ada.candidates(false).await.len(), 1);
        assert_eq!(world.user("bob").tenant("local").values("badge.colour").await, ["blue"]);
        for (query, first) in [("park lot", "I always park in lot B-17"), ("不吃辣", "我不吃辣")] {
            let request = pb::RecallRequest { user_id: "ada".into(), query: query.into(), ..Default::default() };
            let found = ada.client().recall(request).await.expect("recalled").into_inner().items;
            assert_eq!(found[0].memory.as_ref().map(|m| m.content.as_str()), Some(first), "schema {version}");
        }

        // What was forgotten comes back, what is said now is stored, a request of then is answered as then.
        let forgotten = pb::RecallFilter { statuses: vec![pb::Status::Deleted.into()], ..Default::default() };
        let forgotten = ada.list(forgotten).await.remove(0).memory_id;
        assert_eq!(ada.restore(&[&forgotten]).await.memories.len(), 1);
        world.later(DAY).await;
        ada.remember(states("profile.city", "Beijing", "I live in Beijing now")).await.expect("stored");
        assert_eq!(ada.values("profile.city").await, ["Beijing"]);
        let violations = world.count("SELECT count(*) FROM pragma_foreign_key_check").await;
        assert_eq!(violations, 0, "schema {version}");

        // Again, by the same program: nothing to do.
        world.database.close().await;
        let location = Location::File(world.directory.path().join("longterm.db"));
        let again = Database::open(&location, MIGRATIONS, SqliteSettings::default()).expect("opens");
        assert_eq!(again.generation(), 2);
    }
}

#[tokio::test]
async fn c137_episodes_from_before_topics_keep_their_turns() {
    let directory = tempfile::tempdir().expect("a directory");
    let location = Location::File(directory.path().join("longterm.db"));
    let then = Database::open(&location, &MIGRATIONS[..10], SqliteSettings::default()).expect("the database of then");
    let rows = "
        INSERT INTO users (tenant, user) VALUES ('local', 'ada');
        INSERT INTO owners (user_id, agent) SELECT user_id, '' FROM users;
        INSERT INTO episodes SELECT x'01', owner_id, 's', 7, 1, 2, '[{\"text\":\"The tide is out.\",\"seqs\":[2]}]', 3, 1, 1, 4, 5, '[]'
          FROM owners;
        INSERT INTO archived_turns SELECT x'01', 2, owner_id, 'USER', 'The tide is out.', '', '', 2, NULL, 4, 2, 0.0, x'', x'', NULL, NULL
          FROM owners;";
    then.write(move |db| Ok::<(), SqliteError>(db.execute_batch(rows)?)).await.expect("rows of then");
    then.close().await;
    let now = Database::open(&location, MIGRATIONS, SqliteSettings::default()).expect("migrated");
    for (sql, expected) in [
        ("SELECT from_seq * 1000 + through * 100 + kept * 10 + complete + closed FROM episodes WHERE episode_id = x'01'", 1_311),
        ("SELECT count(*) FROM archived_turns JOIN episodes USING (episode_id) WHERE seq = 2 AND text = 'The tide is out.'", 1),
        ("SELECT count(*) FROM pragma_foreign_key_check", 0),
        ("SELECT count(*) FROM sqlite_master WHERE name LIKE 'new_%' OR sql LIKE '%new_episodes%'", 0),
    ] {
        let found: i64 =
            now.read(move |db| Ok::<i64, SqliteError>(db.query_row(sql, [], |row| row.get(0))?)).await.expect("read");
        assert_eq!(found, expected, "{sql}");
    }
    // Turns go with their episode still.
    let gone = "DELETE FROM episodes; SELECT 1;";
    now.write(move |db| Ok::<(), SqliteError>(db.execute_batch(gone)?)).await.expect("deleted");
    let left = now.read(|db| Ok::<i64, SqliteError>(db.query_row("SELECT count(*) FROM archived_turns", [], |row| row.get(0))?));
    assert_eq!(left.await.expect("read"), 0);
}

#[tokio::test]
async fn c137_two_programs_that_start_together_do_not_both_migrate_and_a_later_schema_is_refused_unchanged() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("longterm.db");
    build(&path, RELEASED[0].1);
    let open = |path: std::path::PathBuf| {
        std::thread::spawn(move || Database::open(&Location::File(path), MIGRATIONS, SqliteSettings::default()))
    };
    let (first, second) = (open(path.clone()), open(path.clone()));
    let outcomes = [first.join().expect("no panic"), second.join().expect("no panic")];
    let locked = |outcome: &Result<Database, OpenError>| matches!(outcome, Err(OpenError::Locked { .. }));
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{outcomes:?}");
    assert_eq!(outcomes.iter().filter(|outcome| locked(outcome)).count(), 1, "{outcomes:?}");
    for outcome in outcomes.into_iter().flatten() {
        outcome.close().await;
    }

    let later = "INSERT INTO schema_migrations (version, name, checksum) VALUES (999, 'later', x'00')";
    rusqlite::Connection::open(&path).expect("opens").execute_batch(later).expect("a later program");
    let before = std::fs::read(&path).expect("a file");
    let refused = Database::open(&Location::File(path.clone()), MIGRATIONS, SqliteSettings::default());
    let binary = u32::try_from(MIGRATIONS.len()).expect("few");
    assert_eq!(refused.expect_err("refused"), OpenError::Newer { store: 999, binary });
    assert!(std::fs::read(&path).expect("a file") == before, "unchanged");
}

#[tokio::test]
async fn a_backup_of_an_earlier_schema_comes_back_and_is_migrated_when_it_is_opened() {
    let directory = tempfile::tempdir().expect("a directory");
    let backup = directory.path().join("old.sqlite");
    rusqlite::Connection::open(&backup).expect("a file").execute_batch(RELEASED[0].1).expect("the database of then");
    let checksum = blake3::hash(&std::fs::read(&backup).expect("a file")).to_hex().to_string();
    let target = directory.path().join("longterm.db");
    let tombstones = Tombstones::new(b"a secret of the tests, not of anyone");
    let log = directory.path().join("erasures");
    let erasures = |accept_lost| Erasures { log: &log, copy: None, tombstones: &tombstones, accept_lost };
    let refused = restore(&backup, &target, Some(&checksum), &erasures(false), START).await.expect_err("the log is lost");
    assert!(refused.to_string().contains("--accept-lost-erasures") && !target.exists(), "{refused}");
    let (restored, contents, _) = restore(&backup, &target, Some(&checksum), &erasures(true), START).await.expect("restored");
    assert_eq!((restored.schema, restored.kept, contents.records), (1, None, 8));
    let world = World::within(directory, 7, None, SqliteSettings::default()).await;
    assert_eq!(world.user("ada").tenant("local").values("profile.city").await, ["Hangzhou"]);
    assert_eq!(world.database.generation(), restored.generation + 1);
}

#[tokio::test]
async fn a_store_without_room_refuses_whole_writes_forgets_and_goes_on_when_there_is_room() {
    let world = World::new().await;
    let user = world.user("u1");
    let limit = |pages: u32| {
        world
            .database
            .write(move |db| Ok::<(), SqliteError>(db.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))?))
    };
    let pages = world.count("SELECT page_count FROM pragma_page_count").await;
    limit(u32::try_from(pages).expect("few") + 40).await.expect("a limit");
    let long = |n: usize| format!("the locker {n} holds {}", "many things and more ".repeat(50).trim());
    let mut kept = Vec::new();
    let refused = loop {
        match user.remember(states(&format!("locker.n{}", kept.len()), "full", &long(kept.len()))).await {
            Ok(stored) => kept.push(id(&stored)),
            Err(fault) => break fault,
        }
        world.settled().await;
    };
    assert_eq!((refused.reason, refused.reason.may_have_written()), (Reason::StoreFull, false));
    assert!(refused.retry_after_ms.is_some());
    assert!(kept.len() > 3, "{} fit", kept.len());
    let same = |of: &'static str| {
        let sql = match of {
            "history" => "SELECT count(DISTINCT memory_id) FROM history",
            "evidence" => "SELECT count(DISTINCT memory_id) FROM evidence",
            "terms" => "SELECT count(DISTINCT memory_id) FROM record_terms",
            _ => "SELECT count(*) FROM records",
        };
        world.count(sql)
    };
    for part in ["records", "history", "evidence", "terms"] {
        assert_eq!(same(part).await, i64::try_from(kept.len()).expect("few"), "{part}: nothing half written");
    }
    assert_eq!(user.list(pb::RecallFilter::default()).await.len(), kept.len(), "reads go on");
    limit(1_000_000).await.expect("room");
    user.remember(states("locker.last", "full", &long(1_000))).await.expect("room again");
    assert_eq!(user.list(pb::RecallFilter::default()).await.len(), kept.len() + 1);
}
