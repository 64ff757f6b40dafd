//! What a stop loses and what it does not, over both stores.

use crate::board::sqlite_again;
use crate::harness::{Bed, Cut, SOON, Sqlite, digest, fact, redis, request_id, settings};
use std::sync::Arc;
use std::time::Duration;
use strata_core::Reason;
use strata_core::time::SECOND;
use strata_testkit::{ManualClock, RedisServer, eventually};
use strata_working::CheckpointConfig;
use strata_working::checkpoint::CheckpointStore;
use strata_working::checkpoint::embedded::EmbeddedCheckpoints;
use strata_working::checkpoint::redis::RedisCheckpoints;

/// A store that outlives roles: each start gets a fresh handle on the same data.
enum Place {
    Redis(u8),
    Sqlite(Sqlite),
}

impl Place {
    async fn open(&self) -> Arc<dyn CheckpointStore> {
        match self {
            Self::Redis(database) => Arc::new(RedisCheckpoints::new(redis(strata_testkit::redis::shared(), *database))),
            Self::Sqlite(sqlite) => Arc::new(EmbeddedCheckpoints::new(sqlite_again(sqlite).await)),
        }
    }
}

async fn a_graceful_stop_loses_nothing(place: Place) {
    let clock = ManualClock::default();
    let bed = Bed::start(CheckpointConfig::Other(place.open().await), &clock).await;
    let me = bed.me();
    me.create("k").await.expect("created");
    me.create("sealed").await.expect("created");
    me.create("ended").await.expect("created");
    me.create("idle").await.expect("created");
    let epoch = me.put("sealed", vec![fact("a", "v")]).await.expect("put").facts[0].epoch;
    me.seal("sealed", "a", "p1", epoch + 1, clock_plus(&bed, 10)).await.expect("sealed");
    me.end("ended").await.expect("ended");
    let id = request_id();
    let stored = me.put_as("k", vec![fact("a", "v")], 0, &id).await.expect("put");
    let before = me.get("k").await.expect("read");
    assert!(bed.role.shutdown(SOON).await, "all is flushed");
    assert_eq!(me.get("k").await.expect_err("stopped").reason, Reason::NotServing);
    assert_eq!(me.put("k", vec![fact("a", "w")]).await.expect_err("stopped").reason, Reason::NotServing);
    drop((bed, me));

    let bed = Bed::start(CheckpointConfig::Other(place.open().await), &clock).await;
    let me = bed.me();
    assert_eq!(me.get("k").await.expect("back"), before);
    assert_eq!(
        me.put_as("k", vec![fact("a", "v")], 0, &id).await.expect("again"),
        stored,
        "a retry across the stop is stored once"
    );
    assert_eq!(me.get("k").await.expect("back").version, before.version);
    me.put_as("k", vec![fact("a", "w")], 1, "").await.expect("nothing was lost, the generation stands");
    assert_eq!(me.put("sealed", vec![fact("a", "w")]).await.expect_err("still sealed").reason, Reason::FactSealed);
    assert_eq!(me.get("ended").await.expect_err("ended").reason, Reason::TaskEnded);
    assert_eq!(bed.caller("t1", "u2", "a1").get("k").await.expect_err("foreign").reason, Reason::TaskMismatch);
    clock.advance(Duration::from_secs(2 * 3600));
    assert_eq!(me.get("idle").await.expect_err("its time runs on").reason, Reason::TaskEnded);
    assert_eq!(me.create("k").await.expect_err("idle as well").reason, Reason::TaskEnded);
}

fn clock_plus(bed: &Bed, seconds: i64) -> strata_core::Timestamp {
    bed.now().plus(seconds * SECOND)
}

async fn a_kill_loses_what_came_after_the_checkpoint_and_says_so(place: Place) {
    let clock = ManualClock::default();
    let cut = Cut::new(place.open().await);
    let bed = Bed::start(CheckpointConfig::Other(cut.clone()), &clock).await;
    let me = bed.me();
    me.create("k").await.expect("created");
    me.create("ended").await.expect("created");
    me.put("k", vec![fact("a", "kept")]).await.expect("put");
    bed.role.checkpoint().await.expect("written");
    let checkpoint = bed.now();
    me.end("ended").await.expect("written before it is answered");
    let epoch = me.put("k", vec![fact("sealed", "v")]).await.expect("put").facts[0].epoch;
    me.seal("k", "sealed", "p1", epoch + 1, clock_plus(&bed, 10)).await.expect("written before it is answered");
    cut.cut();
    clock.advance(Duration::from_millis(900));
    me.put("k", vec![fact("a", "gone")]).await.expect("acknowledged, not written");
    me.create("new").await.expect("acknowledged, not written");
    drop((bed, me, cut));

    let bed = Bed::start(CheckpointConfig::Other(place.open().await), &clock).await;
    let me = bed.me();
    let board = me.get("k").await.expect("reads go on");
    assert_eq!((board.generation, board.facts[0].value.as_str()), (2, "kept"));
    for generation in [0, 1, 3] {
        let fault = me.put_as("k", vec![fact("a", "v")], generation, "").await.expect_err("lost");
        assert_eq!(fault.reason, Reason::TaskLost, "generation {generation}");
        assert!(fault.metadata.contains(&("generation", "2".into())));
        assert!(fault.metadata.contains(&("checkpoint_time", checkpoint.micros().to_string())), "{:?}", fault.metadata);
    }
    assert_eq!(me.digest_as("k", digest("ok"), "").await.expect_err("every kind of write").reason, Reason::TaskLost);
    let fault = me.put_as("k", vec![fact("sealed", "v2")], 2, "").await.expect_err("the seal was written");
    assert_eq!(fault.reason, Reason::FactSealed);
    me.put_as("k", vec![fact("a", "again")], 2, "").await.expect("the new generation");
    me.put("k", vec![fact("a", "again")]).await.expect("the loss is known now");
    assert_eq!(me.put_as("k", vec![fact("a", "x")], 1, "").await.expect_err("an older one").reason, Reason::TaskLost);
    assert_eq!(me.get("new").await.expect_err("never written").reason, Reason::NotFound);
    assert_eq!(me.get("ended").await.expect_err("an end is never lost").reason, Reason::TaskEnded);
    assert_eq!(me.create("ended").await.expect_err("an end is never lost").reason, Reason::TaskEnded);

    // The raised generation was written at once: a second kill raises it again.
    drop((bed, me));
    let bed = Bed::start(CheckpointConfig::Other(place.open().await), &clock).await;
    assert_eq!(bed.me().get("k").await.expect("back").generation, 3);
    assert!(bed.role.shutdown(SOON).await);
    drop(bed);
    let bed = Bed::start(CheckpointConfig::Other(place.open().await), &clock).await;
    assert_eq!(bed.me().get("k").await.expect("back").generation, 3, "a graceful stop raises nothing");
    assert_eq!(bed.me().put("k", vec![fact("a", "x")]).await.expect_err("the loss is not known yet").reason, Reason::TaskLost);
}

async fn a_replaced_copy_stops_acknowledging(place: Place) {
    // Two copies on one store: the second took the task over.
    let clock = ManualClock::default();
    let store = place.open().await;
    let first = Bed::start(CheckpointConfig::Other(store.clone()), &clock).await;
    first.me().create("k").await.expect("created");
    first.me().create("other").await.expect("created");
    first.role.checkpoint().await.expect("written");
    let second = Bed::start(CheckpointConfig::Other(store), &clock).await;
    let generation = second.me().get("k").await.expect("taken over").generation;
    assert_eq!(generation, 2);
    second.me().end("other").await.expect("ended");
    first.me().put("k", vec![fact("a", "v")]).await.expect("not found out yet");
    first.me().put("other", vec![fact("a", "v")]).await.expect("not found out yet");
    first.role.checkpoint().await.expect("the store answers");
    for task in ["k", "other"] {
        assert_eq!(first.me().get(task).await.expect_err("replaced").reason, Reason::StoreUnavailable);
        assert_eq!(first.me().put(task, vec![fact("a", "v")]).await.expect_err("replaced").reason, Reason::StoreUnavailable);
    }
    second.role.checkpoint().await.expect("written");
    let board = second.me().get("k").await.expect("read");
    assert_eq!((board.generation, board.facts.len()), (2, 0), "the late checkpoint changed nothing");
    assert_eq!(second.me().get("other").await.expect_err("ended").reason, Reason::TaskEnded);
}

#[tokio::test]
async fn w10_a_graceful_stop_loses_nothing_redis() {
    a_graceful_stop_loses_nothing(Place::Redis(3)).await;
}

#[tokio::test]
async fn w10_a_graceful_stop_loses_nothing_sqlite() {
    a_graceful_stop_loses_nothing(Place::Sqlite(Sqlite::new())).await;
}

#[tokio::test]
async fn w10_a_kill_is_told_to_every_writer_redis() {
    a_kill_loses_what_came_after_the_checkpoint_and_says_so(Place::Redis(4)).await;
}

#[tokio::test]
async fn w10_a_kill_is_told_to_every_writer_sqlite() {
    a_kill_loses_what_came_after_the_checkpoint_and_says_so(Place::Sqlite(Sqlite::new())).await;
}

#[tokio::test]
async fn w10_two_copies_never_both_go_on_redis() {
    a_replaced_copy_stops_acknowledging(Place::Redis(5)).await;
}

#[tokio::test]
async fn w10_two_copies_never_both_go_on_sqlite() {
    a_replaced_copy_stops_acknowledging(Place::Sqlite(Sqlite::new())).await;
}

#[tokio::test]
async fn w10_checkpoints_are_written_by_themselves_within_a_second() {
    let sqlite = Sqlite::new();
    let clock = ManualClock::default();
    let database = sqlite.open();
    let bed = Bed::start(CheckpointConfig::Embedded(database.clone()), &clock).await;
    let me = bed.me();
    me.create("k").await.expect("created");
    me.put("k", vec![fact("a", "v")]).await.expect("put");
    assert_eq!(bed.role.status().counts.dirty, 1);
    let written = strata_runtime::ports::Stopwatch::start();
    eventually(SOON, || async { bed.role.status().counts.dirty == 0 && database.stats().writes > 0 }).await;
    let took = written.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?} on a machine that may be busy; 500 ms are set");
    // Reads keep the board alive; now and then that is written too, so that the store does not drop it.
    clock.advance(Duration::from_secs(60));
    me.get("k").await.expect("read");
    assert_eq!(bed.role.status().counts.dirty, 0, "not each read is worth a write");
    clock.advance(Duration::from_secs(30 * 60));
    me.get("k").await.expect("read");
    assert_eq!(bed.role.status().counts.dirty, 1);
}

#[tokio::test]
async fn d2_boards_go_on_while_redis_is_down_and_are_written_when_it_is_back() {
    let mut server = RedisServer::start();
    let clock = ManualClock::default();
    let quick = settings(|settings| settings.working.checkpoint_ms = 50);
    let bed = Bed::with(CheckpointConfig::Redis(redis(&server, 0)), &clock, quick.clone()).await;
    let me = bed.me();
    me.create("k").await.expect("created");
    me.create("ended").await.expect("created");
    eventually(SOON, || async { bed.role.status().counts.dirty == 0 && bed.role.status().checkpoint.last_success.is_some() })
        .await;
    server.kill_9();
    me.put("k", vec![fact("a", "v")]).await.expect("boards go on");
    me.end("ended").await.expect("ends go on");
    assert_eq!(me.get("ended").await.expect_err("ended").reason, Reason::TaskEnded);
    eventually(SOON, || async { bed.role.status().checkpoint.failing_since.is_some() }).await;
    let status = bed.role.status();
    assert!(status.serving && status.counts.dirty == 2, "{status:?}");
    assert!(!bed.role.shutdown(Duration::from_millis(300)).await, "a stop that could not flush says so");
    drop((bed, me));

    // The next start waits for the store rather than forgetting what is in it.
    let bed = Bed::with(CheckpointConfig::Redis(redis(&server, 0)), &clock, quick).await;
    let me = bed.me();
    assert!(!bed.role.status().serving);
    assert_eq!(me.create("k").await.expect_err("not yet").reason, Reason::NotServing);
    server.restart();
    eventually(SOON, || async { bed.role.status().serving }).await;
    assert_eq!(bed.role.status().checkpoint.failing_since, None);
    let board = me.get("k").await.expect("back");
    assert_eq!((board.generation, board.facts.len()), (2, 0), "what could not be written is lost, and told");
    me.put_as("k", vec![fact("a", "v")], 2, "").await.expect("goes on");
    bed.role.checkpoint().await.expect("written");
    assert!(bed.role.shutdown(SOON).await);
}

#[tokio::test]
async fn d2_a_full_redis_keeps_nobody_from_working() {
    let server = RedisServer::start();
    let clock = ManualClock::default();
    let bed = Bed::start(CheckpointConfig::Redis(redis(&server, 0)), &clock).await;
    let me = bed.me();
    me.create("k").await.expect("created");
    server.set_maxmemory(1);
    assert_eq!(bed.role.checkpoint().await.expect_err("full").reason, Reason::StoreFull);
    me.put("k", vec![fact("a", "v")]).await.expect("boards go on");
    assert!(bed.role.status().checkpoint.failing_since.is_some());
    server.set_maxmemory(0);
    bed.role.checkpoint().await.expect("room again");
    assert_eq!((bed.role.status().counts.dirty, bed.role.status().checkpoint.failing_since), (0, None));
}

#[tokio::test]
async fn settings_are_checked_at_the_start_and_without_a_store_nothing_is_due() {
    let wrong = settings(|settings| settings.working.checkpoint_ms = 5_000);
    let ports = strata_runtime::Ports::system();
    let deps = strata_working::WorkingDeps { ports, settings: wrong, checkpoint: CheckpointConfig::None, page_tokens: None };
    let fault = strata_working::WorkingRole::build(deps).await.expect_err("refused");
    assert_eq!(fault.fields[0].field, "policy.working.checkpoint_ms");
    let bed = Bed::new().await;
    bed.me().create("k").await.expect("created");
    let status = bed.role.status();
    assert_eq!((status.counts.dirty, status.checkpoint.store, status.counts.boards), (0, "none", 1));
    assert!(bed.role.shutdown(SOON).await);
}

/// A store whose first write of each kind waits until it is let go.
#[derive(Debug)]
struct Stall {
    store: Arc<dyn CheckpointStore>,
    waiting: tokio::sync::watch::Sender<u32>,
    open: tokio::sync::Semaphore,
}

impl Stall {
    fn new(store: Arc<dyn CheckpointStore>) -> Arc<Self> {
        Arc::new(Self { store, waiting: tokio::sync::watch::channel(0).0, open: tokio::sync::Semaphore::new(0) })
    }

    async fn pass(&self) {
        self.waiting.send_modify(|waiting| *waiting += 1);
        let _permit = self.open.acquire().await.expect("never closed");
    }

    async fn until_somebody_waits(&self) {
        self.waiting.subscribe().wait_for(|waiting| *waiting > 0).await.expect("alive");
    }

    fn let_go(&self) {
        self.open.add_permits(1_000);
    }
}

#[async_trait::async_trait]
impl CheckpointStore for Stall {
    fn name(&self) -> &'static str {
        self.store.name()
    }
    async fn load(&self, now: strata_core::Timestamp) -> Result<strata_working::checkpoint::Loaded, strata_core::Fault> {
        self.store.load(now).await
    }
    async fn save(
        &self,
        boards: &[strata_working::checkpoint::Snapshot],
    ) -> Result<Vec<strata_working::checkpoint::SaveOutcome>, strata_core::Fault> {
        self.pass().await;
        self.store.save(boards).await
    }
    async fn end(
        &self,
        tombstone: &strata_working::checkpoint::Tombstone,
    ) -> Result<strata_working::checkpoint::SaveOutcome, strata_core::Fault> {
        self.pass().await;
        self.store.end(tombstone).await
    }
    async fn mark_clean(&self, clean: bool) -> Result<(), strata_core::Fault> {
        self.store.mark_clean(clean).await
    }
    async fn raise_erase_epoch(&self, user_key: &str, epoch: u64, now: strata_core::Timestamp) -> Result<(), strata_core::Fault> {
        self.store.raise_erase_epoch(user_key, epoch, now).await
    }
    async fn medium(
        &self,
        user_key: &str,
        purge: strata_core::policy::erasure::Purge,
        patience: Duration,
    ) -> Result<strata_core::policy::erasure::Medium, strata_core::Fault> {
        self.store.medium(user_key, purge, patience).await
    }
    async fn purge(&self, now: strata_core::Timestamp) -> Result<(), strata_core::Fault> {
        self.store.purge(now).await
    }
}

#[tokio::test]
async fn w10_a_stop_in_the_middle_of_a_checkpoint_still_writes_it() {
    let sqlite = Sqlite::new();
    let inner: Arc<dyn CheckpointStore> = Arc::new(EmbeddedCheckpoints::new(sqlite.open()));
    let stall = Stall::new(inner.clone());
    let clock = ManualClock::default();
    let quick = settings(|settings| settings.working.checkpoint_ms = 50);
    let bed = Bed::with(CheckpointConfig::Other(stall.clone()), &clock, quick).await;
    bed.me().create("k").await.expect("created");
    stall.until_somebody_waits().await;
    assert_eq!(bed.role.status().counts.dirty, 1, "dirty until the store has it");
    // The background write is cancelled by the stop, where it waits; the flush then finds the board still due.
    let (clean, ()) = tokio::join!(bed.role.shutdown(SOON), async {
        eventually(SOON, || async { !bed.role.status().serving && *stall.waiting.borrow() >= 2 }).await;
        stall.let_go();
    });
    assert!(clean);
    let loaded = inner.load(bed.now()).await.expect("read");
    assert_eq!((loaded.boards.len(), loaded.clean), (1, true));
}

#[tokio::test]
async fn c061_an_end_whose_caller_goes_away_is_written_all_the_same() {
    let sqlite = Sqlite::new();
    let inner: Arc<dyn CheckpointStore> = Arc::new(EmbeddedCheckpoints::new(sqlite.open()));
    let stall = Stall::new(inner.clone());
    let clock = ManualClock::default();
    let bed = Bed::start(CheckpointConfig::Other(stall.clone()), &clock).await;
    let me = bed.me();
    me.create("k").await.expect("created");
    tokio::select! {
        biased;
        answer = me.end("k") => panic!("answered before it was written: {answer:?}"),
        () = stall.until_somebody_waits() => {}
    }
    assert!(inner.load(bed.now()).await.expect("read").ended.is_empty());
    stall.let_go();
    eventually(SOON, || async { bed.role.status().counts.dirty == 0 }).await;
    assert_eq!(inner.load(bed.now()).await.expect("read").ended.len(), 1);
    assert!(me.end("k").await.expect("idempotent").already_ended);
}
