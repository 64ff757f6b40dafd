//! Redis as several processes: a failover by Sentinels under load, and a Cluster that loses a node. The rest of this suite runs
//! on either form too: `STRATA_TEST_REDIS=sentinel` or `cluster` (`make test-redis-ha`).

use crate::harness::{Bed, Caller, SOON, request_id, user};
use std::collections::BTreeMap;
use std::time::Duration;
use strata_api::session::v1 as pb;
use strata_core::Reason;
use strata_testkit::eventually;
use strata_testkit::redis::{RedisCluster, RedisSentinels};

/// Appends one turn as a client does: the same request again until it is answered.
async fn said(me: &Caller, session: &str, text: &str) -> u32 {
    let mut pause = tokio::time::interval(Duration::from_millis(100));
    let body = pb::AppendTurnsRequest {
        session_id: session.into(),
        turns: vec![user(text)],
        request_id: request_id(),
        ..Default::default()
    };
    for _ in 0..600 {
        match me.append_turns(body.clone()).await {
            Ok(answer) => return answer.seqs[0],
            Err(fault) => {
                assert_eq!(fault.reason, Reason::StoreUnavailable, "{}", fault.message);
                pause.tick().await;
            }
        }
    }
    panic!("no answer after a minute");
}

#[tokio::test]
async fn a22_a_failover_loses_no_turn_that_a_replica_had_and_the_session_goes_on() {
    let mut redis = RedisSentinels::start();
    let bed = Bed::redis(&redis.url()).await;
    let me = bed.me();
    let mut heard = BTreeMap::new();
    for n in 0..20 {
        let text = format!("before {n}");
        heard.insert(said(&me, "s", &text).await, text);
    }
    // What Redis itself promises: what a replica has is there after the failover.
    redis.await_replicas();
    let writing = async {
        let mut heard = Vec::new();
        for n in 0..40 {
            heard.push((said(&me, "after", &format!("after {n}")).await, n));
        }
        heard
    };
    // The kill and the wait for the new master block their thread; the writer goes on beside them.
    let failing = std::thread::spawn(move || {
        redis.fail_over();
        redis
    });
    let after = writing.await;
    let redis = failing.join().expect("a new master");
    let turns = me.turns("s", 1, 20).await.expect("the turns");
    let found: BTreeMap<u32, String> = turns.into_iter().map(|turn| (turn.seq, turn.text)).collect();
    assert_eq!(found, heard);
    // Those written while the master died may be lost with it, but numbers stay dense and each request counts once.
    let turns = me.turns("after", 1, 200).await.expect("the turns");
    let seqs: Vec<u32> = turns.iter().map(|turn| turn.seq).collect();
    assert_eq!(seqs, (1..=u32::try_from(seqs.len()).expect("few")).collect::<Vec<_>>());
    let last = after.last().expect("answered");
    assert_eq!(turns.last().map(|turn| turn.text.clone()), Some(format!("after {}", last.1)), "acknowledged after the failover");
    let mut texts: Vec<&str> = turns.iter().map(|turn| turn.text.as_str()).collect();
    texts.sort_unstable();
    texts.dedup();
    assert_eq!(texts.len(), turns.len(), "no turn twice");
    drop(redis);
}

#[tokio::test]
async fn c121_a_cluster_serves_every_user_from_the_node_of_its_slot_and_outlives_the_loss_of_another() {
    let mut redis = RedisCluster::start();
    let bed = Bed::redis(&redis.url()).await;
    let users: Vec<Caller> = (0..24).map(|n| bed.caller(&bed.tenant, &format!("u{n}"), "")).collect();
    for (n, me) in users.iter().enumerate() {
        said(me, "s", &format!("turn of {n}")).await;
        me.append("s", vec![user("Never call me before nine."); 12]).await.expect("appended");
        me.compress("s", 2).await.expect("compressed");
        assert_eq!(me.window("s", 0, 0).await.expect("window").turns.len(), 2);
    }
    let spread: Vec<usize> = redis.nodes().iter().map(|node| node.all_keys_with_ttl().len()).collect();
    assert!(spread.iter().all(|keys| *keys > 0), "users live on every node: {spread:?}");
    redis.nodes()[2].kill_9();
    let mut served = 0;
    for me in &users {
        served += usize::from(me.append("s", vec![user("still there")]).await.is_ok());
    }
    // A Cluster without replicas refuses everything once it knows that slots are uncovered; until then it serves the rest.
    redis.nodes()[2].restart();
    eventually(SOON * 6, || async {
        let mut all = true;
        for me in &users {
            all &= me.append("s", vec![user("back")]).await.is_ok();
        }
        all
    })
    .await;
    for me in &users {
        let turns = me.turns("s", 1, 200).await.expect("turns");
        let seqs: Vec<u32> = turns.iter().map(|turn| turn.seq).collect();
        assert_eq!(seqs, (1..=u32::try_from(seqs.len()).expect("few")).collect::<Vec<_>>());
    }
    assert!(served < users.len(), "the users of the dead node were not served");
}

#[tokio::test]
async fn e03_a_cluster_rewrites_the_files_of_the_node_that_held_it() {
    let mut redis = RedisCluster::start();
    let bed = Bed::redis(&redis.url()).await;
    for n in 0..6 {
        let code = format!("QX-7734{n}-ZK");
        let me = bed.caller(&bed.tenant, &format!("u{n}"), "");
        said(&me, "s", &format!("My code is {code}.")).await;
        let scope = crate::erase::scope(&bed, &me, &[&code]);
        let rows = crate::erase::erase(&me, &scope).await.expect("erased");
        assert_eq!((rows["session.turns"].removed, rows["session.turns"].remaining), (1, 0));
        crate::erase::written(&me, &scope).await;
        // Files that were replaced are unlinked in the background.
        let free = || redis.nodes().iter().all(|node| !node.disk_holds(&code)).then_some(());
        strata_testkit::poll::blocking(SOON, free).expect("gone from every node");
    }
}
