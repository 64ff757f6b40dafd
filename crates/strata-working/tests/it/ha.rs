//! Checkpoints in Redis as several processes: a Cluster, Sentinels with a failover, and a server that lost what it had.

use crate::harness::{Bed, Caller, SOON, fact};
use crate::replicas::settled;
use strata_core::Reason;
use strata_runtime::redis_store::{RedisPool, RedisSettings};
use strata_testkit::redis::{RedisCluster, RedisSentinels, RedisServer};
use strata_testkit::{ManualClock, eventually};
use strata_working::CheckpointConfig;

fn pool(url: &str) -> RedisPool {
    RedisPool::connect(&url.to_owned().into(), RedisSettings::default()).expect("a legal URL")
}

async fn alone(url: &str) -> Bed {
    Bed::start(CheckpointConfig::Redis(pool(url)), &ManualClock::default()).await
}

async fn replica(url: &str) -> Bed {
    Bed::start(CheckpointConfig::Shared(pool(url)), &ManualClock::default()).await
}

/// Users whose keys lie on every node of a Cluster.
fn users(bed: &Bed) -> Vec<Caller> {
    (0..24).map(|n| bed.caller("t1", &format!("u{n}"), "")).collect()
}

/// A board for each, with a fact.
async fn fill(users: &[Caller]) {
    for (n, me) in users.iter().enumerate() {
        let task = format!("task-{n}");
        settled(|| me.create(&task)).await.expect("created");
        settled(|| me.put(&task, vec![fact("n", &n.to_string())])).await.expect("put");
    }
}

async fn shown(users: &[Caller], generation: u64) {
    for (n, me) in users.iter().enumerate() {
        let task = format!("task-{n}");
        let board = settled(|| me.get(&task)).await.expect("a board");
        assert_eq!((board.generation, board.facts[0].value.as_str()), (generation, n.to_string().as_str()));
    }
}

#[tokio::test]
async fn w10_boards_on_every_master_of_a_cluster_come_back() {
    let mut redis = RedisCluster::start();
    let bed = alone(&redis.url()).await;
    fill(&users(&bed)).await;
    bed.role.checkpoint().await.expect("written");
    let spread: Vec<usize> = redis.nodes().iter().map(|node| node.all_keys_with_ttl().len()).collect();
    assert!(spread.iter().all(|keys| *keys > 1), "boards lie on every node: {spread:?}");
    assert!(bed.role.shutdown(SOON).await);
    let bed = alone(&redis.url()).await;
    assert_eq!(bed.role.status().counts.boards, 24);
    shown(&users(&bed), 1).await;
    drop(bed);
    shown(&users(&alone(&redis.url()).await), 2).await;
}

#[tokio::test]
async fn w10_replicas_on_a_cluster_hand_boards_over_and_take_those_of_the_dead() {
    let redis = RedisCluster::start();
    let (a, b) = (replica(&redis.url()).await, replica(&redis.url()).await);
    fill(&users(&a)).await;
    shown(&users(&b), 1).await;
    eventually(SOON, || async { a.role.status().counts.boards == 0 }).await;
    b.role.checkpoint().await.expect("written");
    drop(b);
    shown(&users(&a), 2).await;
}

#[tokio::test]
async fn w10_replicas_outlive_a_failover_and_keep_what_the_new_master_had() {
    let mut redis = RedisSentinels::start();
    let (a, b) = (replica(&redis.url()).await, replica(&redis.url()).await);
    fill(&users(&a)).await;
    settled(|| async { a.role.checkpoint().await }).await.expect("written");
    redis.await_replicas();
    // The kill and the wait for the new master block their thread; replicas go on beside them.
    let failing = std::thread::spawn(move || {
        redis.fail_over();
        redis
    });
    // None of them shows less, whoever is asked.
    for (n, (at_a, at_b)) in users(&a).iter().zip(users(&b)).enumerate() {
        let me = if n % 2 == 0 { at_a } else { &at_b };
        let task = format!("task-{n}");
        let board = settled(|| me.get(&task)).await.expect("a board");
        assert_eq!(board.facts[0].value, n.to_string());
    }
    let redis = failing.join().expect("a new master");
    let me = a.me();
    settled(|| me.create("after")).await.expect("created");
    let at_b = b.me();
    settled(|| at_b.put("after", vec![fact("a", "v")])).await.expect("moved");
    drop(redis);
}

#[tokio::test]
async fn w10_a_server_that_lost_what_it_had_gets_every_board_again() {
    let mut redis = RedisServer::start();
    let (a, b) = (replica(&redis.url()).await, replica(&redis.url()).await);
    fill(&users(&a)).await;
    settled(|| async { a.role.checkpoint().await }).await.expect("written");
    redis.kill_9();
    for entry in std::fs::read_dir(redis.folder()).expect("its folder").flatten() {
        let gone = if entry.path().is_dir() { std::fs::remove_dir_all(entry.path()) } else { std::fs::remove_file(entry.path()) };
        gone.expect("removed");
    }
    redis.restart();
    // Silent for too long, a replica reads boards from the store again, and would find none there: it writes them first.
    let at_b = users(&b);
    for (n, me) in at_b.iter().enumerate() {
        let task = format!("task-{n}");
        eventually(SOON, || async { settled(|| me.get(&task)).await.is_ok() }).await;
    }
    shown(&at_b, 1).await;
    let foreign = a.caller("t1", "other", "");
    for n in 0..24 {
        let task = format!("task-{n}");
        let refused = settled(|| foreign.create(&task)).await.expect_err("the ids came again too");
        assert_eq!(refused.reason, Reason::TaskMismatch, "{refused:?}");
    }
}
