//! Several replicas on one Redis (rule W10): boards move without loss, are taken over after a death, and never have two copies
//! that acknowledge.

use crate::erase::{CODE, erase, filled, find, from_before, knowing, scope};
use crate::harness::{Bed, Caller, Cut, SOON, fact, redis, request_id};
use std::sync::Arc;
use std::time::Duration;
use strata_core::Reason;
use strata_core::policy::placement::{FENCE, LAPSE};
use strata_runtime::ports::pause;
use strata_testkit::{ManualClock, eventually};
use strata_working::CheckpointConfig;
use strata_working::checkpoint::redis::RedisCheckpoints;

/// A replica, with its way to the store.
struct Replica {
    bed: Bed,
    cut: Arc<Cut>,
}

impl Replica {
    async fn start(database: u8, name: &str) -> Self {
        let pool = redis(strata_testkit::redis::shared(), database);
        let cut = Cut::new(Arc::new(RedisCheckpoints::shared(pool, name.to_owned())));
        let bed = Bed::start(CheckpointConfig::Other(cut.clone()), &ManualClock::default()).await;
        Self { bed, cut }
    }

    fn me(&self) -> Caller {
        self.bed.me()
    }

    fn boards(&self) -> usize {
        self.bed.role.status().counts.boards
    }
}

async fn two(database: u8) -> (Replica, Replica) {
    tokio::join!(Replica::start(database, "a"), Replica::start(database, "b"))
}

/// The first answer that is not a request to try again.
pub async fn settled<T, F: Future<Output = Result<T, strata_core::Fault>>>(
    call: impl Fn() -> F,
) -> Result<T, strata_core::Fault> {
    for _ in 0..600 {
        match call().await {
            Err(fault) if matches!(fault.reason, Reason::StoreUnavailable | Reason::NotServing) => {
                pause(Duration::from_millis(50)).await;
            }
            answer => return answer,
        }
    }
    panic!("no answer in 30 s");
}

#[tokio::test]
async fn w10_a_task_that_is_asked_for_elsewhere_moves_there_and_loses_nothing() {
    let (a, b) = two(20).await;
    let (at_a, at_b) = (a.me(), b.me());
    at_a.create("k").await.expect("created");
    let mut watch = at_a.watch("k").await.expect("watched");
    watch.message().await.expect("a board").expect("a board");
    let id = request_id();
    let stored = at_a.put_as("k", vec![fact("a", "v")], 1, &id).await.expect("put");
    // Written a moment ago and nowhere but here.
    let board = settled(|| at_b.get("k")).await.expect("moved");
    assert_eq!((board.generation, board.facts[0].value.as_str()), (1, "v"));
    eventually(SOON, || async { a.boards() == 0 }).await;
    assert_eq!(b.boards(), 1, "one copy");
    let again = settled(|| at_b.put_as("k", vec![fact("a", "v")], 1, &id)).await.expect("the same request");
    assert_eq!(again, stored, "is stored once, wherever it is sent");
    let over = loop {
        match watch.message().await {
            Ok(Some(seen)) => assert!(!seen.ended, "the task goes on elsewhere"),
            Ok(None) => panic!("the stream does not end as if the task had"),
            Err(status) => break strata_api::error::fault(&status),
        }
    };
    assert_eq!(over.reason, Reason::StoreUnavailable);
    // To and fro, with a write at each side: none is lost, none doubled.
    for n in 0..6 {
        let who = if n % 2 == 0 { &at_a } else { &at_b };
        let (key, id) = (format!("n{n}"), request_id());
        settled(|| who.put_as("k", vec![fact(&key, "v")], 1, &id)).await.expect("put");
    }
    let board = settled(|| at_a.get("k")).await.expect("read");
    assert_eq!((board.facts.len(), board.generation, board.version), (7, 1, 8));
    // Both list it, with what it holds.
    at_b.create("k2").await.expect("created");
    at_a.create("k3").await.expect("created");
    for who in [&at_a, &at_b] {
        let mut listed = Vec::new();
        let mut token = String::new();
        loop {
            let page = who.list(2, &token).await.expect("listed");
            listed.extend(page.tasks.into_iter().map(|task| (task.task_id, task.facts)));
            token = page.next_page_token;
            if token.is_empty() {
                break;
            }
        }
        assert_eq!(listed, [("k".to_owned(), 7), ("k2".to_owned(), 0), ("k3".to_owned(), 0)]);
    }
    // An end is known everywhere at once.
    at_a.end("k").await.expect("ended");
    assert_eq!(at_b.get("k").await.expect_err("ended").reason, Reason::TaskEnded);
    assert_eq!(at_b.create("k").await.expect_err("not for a day").reason, Reason::TaskEnded);
    assert!(settled(|| at_b.end("k")).await.expect("again").already_ended);
    assert_eq!(at_b.list(0, "").await.expect("listed").tasks.len(), 2);
}

#[tokio::test]
async fn w10_a_copy_that_cannot_reach_the_store_falls_silent_before_another_takes_over() {
    let (a, b) = two(21).await;
    let (at_a, at_b) = (a.me(), b.me());
    for task in ["k", "still"] {
        at_a.create(task).await.expect("created");
        at_a.put(task, vec![fact("a", "kept")]).await.expect("put");
    }
    a.bed.role.checkpoint().await.expect("written");
    a.cut.cut();
    // What it still acknowledges is what a takeover may lose.
    let mut acknowledged = 0;
    let since = strata_runtime::ports::Stopwatch::start();
    let tasks = strata_runtime::TaskGroup::new();
    let taken = tasks.spawn("taker", async move { (settled(|| at_b.get("k")).await, at_b) });
    while !taken.is_finished() {
        let before = since.elapsed();
        match at_a.put("k", vec![fact("a", "gone")]).await {
            Ok(_) => {
                assert!(before <= Duration::from_micros(FENCE as u64), "acknowledged {before:?} after the store was lost");
                acknowledged += 1;
            }
            Err(fault) => assert_eq!(fault.reason, Reason::StoreUnavailable),
        }
        if before > Duration::from_micros(FENCE as u64) {
            assert_eq!(at_a.get("k").await.expect_err("reads neither").reason, Reason::StoreUnavailable);
            assert!(!a.bed.role.status().serving);
        }
        pause(Duration::from_millis(20)).await;
    }
    let (board, at_b) = taken.await.expect("no panic");
    let board = board.expect("taken over");
    assert_eq!((board.generation, board.facts[0].value.as_str()), (2, "kept"), "{acknowledged} writes may be lost");
    let fault = at_b.put_as("k", vec![fact("a", "v")], 1, "").await.expect_err("the caller is told");
    assert_eq!(fault.reason, Reason::TaskLost);
    assert!(fault.metadata.contains(&("generation", "2".into())), "{:?}", fault.metadata);
    at_b.put_as("k", vec![fact("a", "new")], 2, "").await.expect("the new generation");
    settled(|| at_b.get("still")).await.expect("taken over");
    at_b.put_as("still", vec![fact("a", "new")], 2, "").await.expect("the new generation");
    // The first one is back: it does not go on with its copies, nor with the one that it had nothing to write of, and nobody has to
    // tell it.
    a.cut.deafen();
    a.cut.mend();
    for task in ["still", "k"] {
        let board = settled(|| at_a.get(task)).await.expect("moved back");
        assert_eq!((board.generation, board.facts[0].value.as_str()), (2, "new"), "{task}");
    }
}

#[tokio::test]
async fn w10_what_was_written_is_not_lost_when_the_first_round_after_a_silence_fails() {
    let (a, b) = two(30).await;
    let at_a = a.me();
    for task in ["idle", "busy", "moved"] {
        at_a.create(task).await.expect("created");
    }
    a.bed.role.checkpoint().await.expect("written");
    // Twice: the second silence begins before the first is over.
    for _ in 0..2 {
        a.cut.cut();
        let _ = at_a.put("busy", vec![fact("a", "v")]).await;
        pause(Duration::from_micros(LAPSE.unsigned_abs()) + Duration::from_millis(100)).await;
        a.cut.fill(true);
        a.cut.mend();
        a.bed.role.checkpoint().await.expect_err("what is due is not taken");
    }
    a.cut.fill(false);
    settled(|| async { a.bed.role.checkpoint().await }).await.expect("all is written");
    let at_b = b.me();
    assert_eq!(settled(|| at_b.get("idle")).await.expect("moved").generation, 1, "nothing of it was lost");
    assert!(a.bed.role.shutdown(SOON).await);
    for task in ["busy", "moved"] {
        let board = settled(|| at_b.get(task)).await.expect("free");
        assert_eq!((board.generation, board.facts.len()), (1, usize::from(task == "busy")), "{task}");
    }
}

#[tokio::test]
async fn w10_a_dead_replica_is_taken_over_and_a_stopped_one_at_once() {
    let (a, b) = two(22).await;
    let (at_a, at_b) = (a.me(), b.me());
    for task in ["dead", "idle"] {
        at_a.create(task).await.expect("created");
    }
    at_b.create("stopped").await.expect("created");
    at_b.put("stopped", vec![fact("a", "v")]).await.expect("put");
    assert!(b.bed.role.shutdown(SOON).await, "everything is written");
    assert_eq!(at_b.get("stopped").await.expect_err("stopped").reason, Reason::NotServing);
    let board = at_a.get("stopped").await.expect("at once, at the first attempt");
    assert_eq!((board.generation, board.facts.len()), (1, 1), "a graceful stop loses nothing");
    // Dropped without a stop: a kill.
    drop((a, at_a));
    let c = Replica::start(22, "c").await;
    let at_c = c.me();
    let board = settled(|| at_c.get("dead")).await.expect("taken over");
    assert_eq!(board.generation, 2);
    assert_eq!(c.me().get("idle").await.expect("the holder is known to be dead").generation, 2);
    // The raised generation is written: the next takeover raises it again, and a stop does not.
    c.bed.role.checkpoint().await.expect("written");
    assert!(c.bed.role.shutdown(SOON).await);
    let d = Replica::start(22, "d").await;
    assert_eq!(d.me().get("dead").await.expect("at once").generation, 2);
    assert_eq!(d.me().put("dead", vec![fact("a", "x")]).await.expect_err("the loss is not known yet").reason, Reason::TaskLost);
}

#[tokio::test]
async fn w10_of_two_that_start_one_task_one_is_told_that_it_exists() {
    let (a, b) = two(23).await;
    let (at_a, at_b) = (a.me(), b.me());
    for n in 0..40 {
        let task = format!("k{n}");
        let (first, second) = tokio::join!(at_a.create(&task), at_b.create(&task));
        let started = [&first, &second].iter().filter(|answer| answer.is_ok()).count();
        assert!(started <= 1, "both were told that they started {task}");
        if started == 0 {
            settled(|| at_a.create(&task)).await.expect_err("one of them stands in the store");
        }
        for refused in [first, second].into_iter().filter_map(Result::err) {
            assert!(matches!(refused.reason, Reason::TaskExists | Reason::StoreUnavailable), "{refused:?}");
        }
        settled(|| at_b.put(&task, vec![fact("a", "v")])).await.expect("it is there");
        assert_eq!(settled(|| at_a.get(&task)).await.expect("one board").facts.len(), 1);
    }
    // Under one request id both get the same board.
    let body = strata_api::working::v1::CreateTaskRequest { request_id: request_id(), ..at_a.creation("same") };
    let (first, second) = tokio::join!(settled(|| at_a.send_create(body.clone())), settled(|| at_b.send_create(body.clone())));
    assert_eq!(first.expect("started"), second.expect("the same"));
}

#[tokio::test]
async fn w2_a_task_is_one_users_at_every_replica() {
    let (a, b) = two(24).await;
    a.me().create("k").await.expect("created");
    for foreign in [b.bed.caller("t1", "u2", "a1"), b.bed.caller("t1", "u2", "")] {
        assert_eq!(foreign.get("k").await.expect_err("foreign").reason, Reason::TaskMismatch);
        assert_eq!(foreign.put("k", vec![fact("a", "v")]).await.expect_err("foreign").reason, Reason::TaskMismatch);
        assert_eq!(foreign.create("k").await.expect_err("foreign").reason, Reason::TaskMismatch);
        assert_eq!(foreign.end("k").await.expect_err("foreign").reason, Reason::TaskMismatch);
        assert!(foreign.list(0, "").await.expect("listed").tasks.is_empty());
    }
    let other_agent = b.bed.caller("t1", "u1", "a2");
    assert_eq!(settled(|| other_agent.get("k")).await.expect_err("another agent").reason, Reason::TaskMismatch);
    let other_tenant = b.bed.caller("t2", "u1", "a1");
    assert_eq!(other_tenant.get("k").await.expect_err("learns nothing").reason, Reason::NotFound);
    other_tenant.create("k").await.expect("their own");
    let at_a = a.me();
    assert_eq!(settled(|| at_a.get("k")).await.expect("untouched").generation, 1);
}

#[tokio::test]
async fn w2_the_id_of_a_task_that_lives_long_stays_its_users() {
    const DATABASE: u8 = 29;
    const STEP: Duration = Duration::from_hours(23);
    let (a, b) = two(DATABASE).await;
    let me = a.me();
    let idle_time = Some(prost_types::Duration { seconds: 24 * 3_600, nanos: 0 });
    me.send_create(strata_api::working::v1::CreateTaskRequest { idle_time, ..me.creation("long") }).await.expect("created");
    let pool = redis(strata_testkit::redis::shared(), DATABASE);
    let name = pool.scan("strata:working.n:{", "string").await.expect("names").pop().expect("the task's");
    for _ in 0..10 {
        a.bed.clock.advance(STEP);
        // The store's time goes on as well.
        let left: i64 = pool.command(redis::cmd("PTTL").arg(&name)).await.expect("its time");
        let step = i64::try_from(STEP.as_millis()).expect("small");
        let _: i64 = pool.command(redis::cmd("PEXPIRE").arg(&name).arg(left - step)).await.expect("nearer to its end");
        settled(|| me.get("long")).await.expect("it lives");
        settled(|| async { a.bed.role.checkpoint().await }).await.expect("written");
    }
    let foreign = b.bed.caller("t1", "u2", "a1");
    assert_eq!(settled(|| foreign.create("long")).await.expect_err("another user's").reason, Reason::TaskMismatch);
    assert_eq!(settled(|| me.get("long")).await.expect("still there").generation, 1);
}

#[tokio::test]
async fn w10_what_another_replica_does_not_learn_of_is_not_acknowledged() {
    let (a, b) = two(25).await;
    let (at_a, at_b) = (a.me(), b.me());
    at_a.create("k").await.expect("created");
    let epoch = at_a.put("k", vec![fact("a", "v")]).await.expect("put").facts[0].epoch;
    a.bed.role.checkpoint().await.expect("written");
    a.cut.cut();
    let deadline = a.bed.now().plus(10_000_000);
    assert_eq!(at_a.seal("k", "a", "p1", epoch + 1, deadline).await.expect_err("not written").reason, Reason::StoreUnavailable);
    assert_eq!(at_a.end("k").await.expect_err("not written").reason, Reason::StoreUnavailable);
    assert_eq!(at_a.create("new").await.expect_err("not written").reason, Reason::StoreUnavailable);
    assert_eq!(settled(|| at_b.get("k")).await.expect("it has not ended").facts[0].value, "v");
    a.cut.mend();
    assert_eq!(settled(|| at_a.get("k")).await.expect("here neither").facts[0].value, "v");
    settled(|| at_a.create("new")).await.expect("not started before");
}

#[tokio::test]
async fn e2_an_erasure_reaches_the_boards_of_every_replica_and_of_none() {
    let (a, b) = two(26).await;
    let (at_a, at_b) = (a.me(), b.me());
    filled(&at_a, "at-a", "").await;
    filled(&at_b, "at-b", "").await;
    // One that nobody holds.
    let c = Replica::start(26, "c").await;
    filled(&c.me(), "left", "").await;
    assert!(c.bed.role.shutdown(SOON).await);
    let scope = scope(&b.bed, &at_b);
    let now = knowing(&at_b, &scope);
    let found = find(&now, &scope).await;
    let looked = found["working.boards"].found;
    assert!(looked > 0 && looked.is_multiple_of(3), "all three hold it: {found:?}");
    let rows = erase(&now, &scope).await.expect("erased");
    assert_eq!((rows["working.boards"].removed, rows["working.boards"].remaining), (looked, 0), "{rows:?}");
    assert_eq!(rows["working.checkpoints"].removed, 3, "{rows:?}");
    let dump = crate::stores::dump(strata_testkit::redis::shared(), 26);
    assert!(!dump.contains(CODE) && !dump.to_lowercase().contains("773418265"), "nothing is left in the store");
    // The other replica learns of the erasure with the first board that it takes or starts.
    let before = from_before(&at_a, &scope);
    assert_eq!(settled(|| before.create("late")).await.expect_err("from before").reason, Reason::StaleEraseEpoch);
    assert_eq!(
        settled(|| before.put("at-b", vec![fact("a", CODE)])).await.expect_err("from before").reason,
        Reason::StaleEraseEpoch
    );
    assert_eq!(find(&now, &scope).await["working.boards"].found, 0);
}

#[tokio::test]
async fn e4_an_erasure_waits_for_a_replica_that_is_down_and_then_takes_its_boards() {
    let (a, b) = two(27).await;
    filled(&a.me(), "at-a", "").await;
    a.cut.cut();
    let scope = scope(&b.bed, &b.me());
    let now = knowing(&b.me(), &scope);
    // Pending or done, and never done without the board.
    for _ in 0..20 {
        match erase(&now, &scope).await {
            Ok(rows) => {
                assert!(rows["working.boards"].removed > 0, "{rows:?}");
                break;
            }
            Err(fault) => assert_eq!(fault.reason, Reason::StoreUnavailable),
        }
    }
    assert_eq!(find(&now, &scope).await["working.boards"].found, 0);
    a.cut.mend();
    let at_a = knowing(&a.me(), &scope);
    let board = settled(|| at_a.get("at-a")).await.expect("the board is there");
    assert!(!format!("{board:?}").contains("773418265"), "the copy of the one that was down is not used: {board:?}");
}

#[tokio::test]
async fn w10_one_replica_becomes_several_and_one_again() {
    const DATABASE: u8 = 28;
    let pool = || redis(strata_testkit::redis::shared(), DATABASE);
    let clock = ManualClock::default();
    let alone = Bed::start(CheckpointConfig::Redis(pool()), &clock).await;
    alone.me().create("k").await.expect("created");
    alone.me().put("k", vec![fact("a", "v")]).await.expect("put");
    alone.role.checkpoint().await.expect("written");
    // While it lives, nobody takes its boards.
    let a = Replica::start(DATABASE, "a").await;
    assert_eq!(a.me().get("k").await.expect_err("held").reason, Reason::StoreUnavailable);
    alone.me().put("k", vec![fact("b", "v")]).await.expect("it goes on");
    assert!(alone.role.shutdown(SOON).await);
    let board = a.me().get("k").await.expect("at once");
    assert_eq!((board.generation, board.facts.len()), (1, 2));
    // Nor does one alone start beside others.
    let alone = Bed::start(CheckpointConfig::Redis(pool()), &clock).await;
    assert_eq!(alone.me().get("k").await.expect_err("others serve").reason, Reason::NotServing);
    assert!(a.bed.role.shutdown(SOON).await);
    let me = alone.me();
    let board = settled(|| me.get("k")).await.expect("back");
    assert_eq!((board.generation, board.facts.len()), (1, 2), "nothing was lost");
    alone.me().put("k", vec![fact("c", "v")]).await.expect("put");
    alone.role.checkpoint().await.expect("its own now");
    assert_eq!(alone.me().get("k").await.expect("it stays").facts.len(), 3);
}
