//! One behaviour suite over both checkpoint stores.

use crate::harness::{Sqlite, redis};
use std::sync::Arc;
use strata_core::policy::erasure::{Medium, Physical, Purge};
use strata_core::policy::working::{Board, Goal};
use strata_core::time::{HOUR, SECOND};
use strata_core::{Timestamp, UserId};
use strata_testkit::{ManualClock, RedisServer, agent_owner};
use strata_working::CheckpointConfig;
use strata_working::checkpoint::embedded::EmbeddedCheckpoints;
use strata_working::checkpoint::redis::RedisCheckpoints;
use strata_working::checkpoint::{CheckpointStore, SaveOutcome, Snapshot, Tombstone};

/// Everything a database of the server holds, as text.
pub fn dump(server: &RedisServer, database: u8) -> String {
    let mut connection = server.connection();
    let run = |connection: &mut ::redis::Connection, words: &[&str]| {
        let mut command = ::redis::Cmd::new();
        for word in words {
            command.arg(word);
        }
        command.query::<::redis::Value>(connection).expect("an answer")
    };
    run(&mut connection, &["SELECT", &database.to_string()]);
    let keys: Vec<String> = ::redis::cmd("KEYS").arg("*").query(&mut connection).expect("keys");
    let mut text = String::new();
    for key in keys {
        text.push_str(&key);
        let kind: String = ::redis::cmd("TYPE").arg(&key).query(&mut connection).expect("a type");
        let bytes: Vec<Vec<u8>> = if kind == "hash" {
            ::redis::cmd("HGETALL").arg(&key).query(&mut connection).expect("a hash")
        } else if kind == "zset" {
            ::redis::cmd("ZRANGE").arg(&key).arg(0).arg(-1).query(&mut connection).expect("a sorted set")
        } else if kind == "set" {
            ::redis::cmd("SMEMBERS").arg(&key).query(&mut connection).expect("a set")
        } else {
            vec![::redis::cmd("GET").arg(&key).query(&mut connection).expect("a string")]
        };
        for part in bytes {
            text.push_str(&String::from_utf8_lossy(&part));
        }
    }
    text
}

const NOW: Timestamp = ManualClock::START;

fn board(task: &str, created: Timestamp) -> Board {
    let goal = Goal { sentence: "Pay the invoice".into(), acceptance: "付款成功".into() };
    Board::new(agent_owner("t1", "u1", "a1"), strata_testkit::fixtures::task(task), None, goal, HOUR, created)
}

/// A snapshot as the role takes it: it must be read back whole.
async fn snapshot(board: &Board, time: Timestamp) -> Snapshot {
    let store = Arc::new(Recorder::default());
    let clock = ManualClock::at(board.create_time);
    let bed = crate::harness::Bed::start(CheckpointConfig::Other(store.clone()), &clock).await;
    let me = bed.caller("t1", board.owner.user.as_str(), "a1");
    let body = strata_api::working::v1::CreateTaskRequest {
        goal: crate::harness::goal(&board.goal.sentence, &board.goal.acceptance),
        idle_time: Some(prost_types::Duration { seconds: board.idle_micros / SECOND, nanos: 0 }),
        request_id: crate::harness::request_id(),
        ..me.creation(board.task.as_str())
    };
    me.send_create(body).await.expect("created");
    bed.role.checkpoint().await.expect("recorded");
    let mut taken = store.taken.lock().expect("no panic").pop().expect("one board");
    (taken.time, taken.generation, taken.version) = (time, board.generation, board.version);
    taken
}

#[derive(Debug, Default)]
struct Recorder {
    taken: std::sync::Mutex<Vec<Snapshot>>,
}

#[async_trait::async_trait]
impl CheckpointStore for Recorder {
    fn name(&self) -> &'static str {
        "recorder"
    }
    async fn load(&self, _: Timestamp) -> Result<strata_working::checkpoint::Loaded, strata_core::Fault> {
        Ok(strata_working::checkpoint::Loaded::default())
    }
    async fn save(&self, boards: &[Snapshot]) -> Result<Vec<SaveOutcome>, strata_core::Fault> {
        self.taken.lock().expect("no panic").extend_from_slice(boards);
        Ok(vec![SaveOutcome::Saved; boards.len()])
    }
    async fn end(&self, _: &Tombstone) -> Result<SaveOutcome, strata_core::Fault> {
        Ok(SaveOutcome::Saved)
    }
    async fn mark_clean(&self, _: bool) -> Result<(), strata_core::Fault> {
        Ok(())
    }
    async fn raise_erase_epoch(&self, _: &str, _: u64, _: Timestamp) -> Result<(), strata_core::Fault> {
        Ok(())
    }
    async fn medium(&self, _: &str, _: Purge, _: std::time::Duration) -> Result<Medium, strata_core::Fault> {
        Ok(Medium { state: Physical::Gone, detail: "nothing is kept" })
    }
    async fn purge(&self, _: Timestamp) -> Result<(), strata_core::Fault> {
        Ok(())
    }
}

fn tombstone(board: &Board, end_time: Timestamp) -> Tombstone {
    Tombstone {
        owner: board.owner.clone(),
        task: board.task.clone(),
        create_time: board.create_time,
        end_time,
        expire_time: end_time.plus(24 * HOUR),
        facts_dropped: 0,
        request: Some((uuid::Uuid::from_u128(7), [9; 16])),
    }
}

async fn behaves(store: Arc<dyn CheckpointStore>) {
    let name = store.name();
    let empty = store.load(NOW).await.expect("empty");
    assert!(empty.boards.is_empty() && empty.ended.is_empty() && !empty.clean, "{name}");

    // The marker.
    store.mark_clean(true).await.expect("set");
    store.mark_clean(true).await.expect("repeated");
    assert!(store.load(NOW).await.expect("read").clean, "{name}");
    store.mark_clean(false).await.expect("taken away");
    store.mark_clean(false).await.expect("repeated");
    assert!(!store.load(NOW).await.expect("read").clean, "{name}");

    // Order: only a later board replaces one; the same one may be repeated.
    let first = board("k1", NOW);
    let at = async |generation, version| {
        let b = Board { generation, version, ..first.clone() };
        snapshot(&b, NOW.plus(SECOND)).await
    };
    for (generation, version, expected) in [
        (1, 5, SaveOutcome::Saved),
        (1, 5, SaveOutcome::Saved),
        (1, 4, SaveOutcome::Superseded),
        (2, 1, SaveOutcome::Saved),
        (1, 9, SaveOutcome::Superseded),
        (2, 2, SaveOutcome::Saved),
    ] {
        let outcome = store.save(&[at(generation, version).await]).await.expect("an outcome");
        assert_eq!(outcome, [expected], "{name}: {generation}.{version}");
    }
    let other = Board { owner: agent_owner("t2", "u{}:1*", "a1"), ..board("k1", NOW) };
    let mut foreign = snapshot(&board("k1", NOW), NOW).await;
    foreign.owner = other.owner.clone();
    assert_eq!(store.save(&[foreign, at(2, 3).await]).await.expect("both"), [SaveOutcome::Saved; 2], "{name}: tenants are apart");
    let loaded = store.load(NOW).await.expect("read");
    assert_eq!(loaded.boards.len(), 2, "{name}");
    let back = &loaded.boards.iter().find(|saved| saved.time == NOW.plus(SECOND)).expect("the board");
    assert_eq!(
        (back.board.goal.acceptance.as_str(), back.requests.bytes() > 0),
        ("付款成功", true),
        "{name}: the request ids too"
    );

    // An end replaces the board, stays, and takes no older board; a later board follows it.
    let end = tombstone(&first, NOW.plus(2 * SECOND));
    store.end(&end).await.expect("ended");
    store.end(&Tombstone { facts_dropped: 9, ..end.clone() }).await.expect("repeated");
    assert_eq!(store.save(&[at(9, 9).await]).await.expect("an outcome"), [SaveOutcome::Ended], "{name}");
    let loaded = store.load(NOW).await.expect("read");
    assert_eq!(loaded.ended, std::slice::from_ref(&end), "{name}: the first end stands");
    assert_eq!(loaded.boards.len(), 1, "{name}");
    assert!(store.load(end.expire_time).await.expect("read").ended.is_empty(), "{name}: a tombstone has its time");
    let later = board("k1", NOW.plus(25 * HOUR));
    assert_eq!(
        store.save(&[snapshot(&later, NOW.plus(25 * HOUR)).await]).await.expect("an outcome"),
        [SaveOutcome::Saved],
        "{name}"
    );
    let loaded = store.load(NOW.plus(25 * HOUR)).await.expect("read");
    assert!(loaded.ended.is_empty() && loaded.boards.iter().any(|saved| saved.board.create_time == later.create_time), "{name}");

    // Many at once.
    let template = snapshot(&board("many", NOW), NOW).await;
    let many: Vec<Snapshot> =
        (0..700).map(|n| Snapshot { task: strata_testkit::fixtures::task(&format!("many{n}")), ..template.clone() }).collect();
    assert_eq!(store.save(&many).await.expect("saved").len(), 700, "{name}");
    assert!(store.load(NOW).await.expect("read").boards.len() >= 700, "{name}");

    // What cannot be read is counted, and does not keep the others from coming back.
    let damaged = Snapshot { task: strata_testkit::fixtures::task("damaged"), data: b"garbage".to_vec(), ..template };
    store.save(&[damaged]).await.expect("saved");
    let loaded = store.load(NOW).await.expect("read");
    assert_eq!((loaded.damaged, loaded.boards.len() >= 700), (1, true), "{name}");
    store.purge(NOW.plus(1_000 * HOUR)).await.expect("purged");
}

#[tokio::test]
async fn w10_checkpoints_behave_in_redis() {
    const DATABASE: u8 = 2;
    let server = strata_testkit::redis::shared();
    behaves(Arc::new(RedisCheckpoints::new(redis(server, DATABASE)))).await;
    // Every key has a TTL and shows its user's hash tag.
    let mut connection = server.connection();
    ::redis::cmd("SELECT").arg(DATABASE).exec(&mut connection).expect("selected");
    let keys: Vec<String> = ::redis::cmd("KEYS").arg("*").query(&mut connection).expect("keys");
    assert!(keys.len() > 700);
    for key in keys {
        let ttl: i64 = ::redis::cmd("PTTL").arg(&key).query(&mut connection).expect("a TTL");
        assert!(ttl > 0, "{key}");
        let known = ["strata:working:{", "strata:working.t:{", "strata:working.r:{alone}"];
        assert!(known.iter().any(|prefix| key.starts_with(prefix)), "{key}");
    }
}

#[tokio::test]
async fn w10_checkpoints_behave_in_sqlite() {
    let sqlite = Sqlite::new();
    let database = sqlite.open();
    let store = EmbeddedCheckpoints::new(database.clone());
    behaves(Arc::new(store.clone())).await;
    assert!(store.load(NOW).await.expect("read").boards.is_empty(), "purged by the clock");
    // A board that is replaced by its tombstone leaves no byte in the file.
    let user = UserId::new("u1").expect("id");
    let mut secret = board("secret", NOW);
    secret.goal.sentence = "Find the unmistakable walrus".into();
    assert_eq!(secret.owner.user, user);
    store.save(&[snapshot(&secret, NOW).await]).await.expect("saved");
    store.end(&tombstone(&secret, NOW.plus(SECOND))).await.expect("ended");
    drop(store);
    database.close().await;
    let bytes = std::fs::read(sqlite.path()).expect("the file");
    assert!(!bytes.windows(6).any(|window| window == b"walrus"));
}
