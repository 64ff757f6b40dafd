//! A real Redis that fills, hangs, dies, and what its keys look like.

use crate::harness::{Bed, SOON, pinned, request_id, user};
use std::collections::BTreeSet;
use std::time::Duration;
use strata_api::session::v1 as pb;
use strata_core::{Reason, SessionId};
use strata_runtime::ports::Stopwatch;
use strata_session::store::SessionKey;
use strata_session::store::redis::keys;
use strata_testkit::{FaultProxy, Mode, RedisServer, eventually, owner};

#[tokio::test]
async fn c091_a22_every_key_has_a_ttl_and_the_end_leaves_a_content_free_tombstone() {
    let server = RedisServer::start();
    let bed = Bed::redis(&server.url()).await;
    let me = bed.me();
    me.append("s", vec![pinned("ZEBRA-17 is pinned"), user("Never write to ZEBRA-17.")]).await.expect("appended");
    for n in 0..30 {
        let body = pb::AppendTurnsRequest {
            session_id: "s".into(),
            turns: vec![user(&format!("ZEBRA-17 turn {n}"))],
            request_id: request_id(),
            ..Default::default()
        };
        me.append_turns(body).await.expect("appended");
    }
    let body =
        pb::CompressSessionRequest { session_id: "s".into(), keep_turns: 2, request_id: request_id(), ..Default::default() };
    me.compress_session(body).await.expect("compressed");
    me.anchor("s", &[3, 4]).await.expect("anchored");
    let fact = pb::SessionFact { key: "code".into(), value: "ZEBRA-17".into(), seq: 1, ..Default::default() };
    let body = pb::PutFactsRequest { session_id: "s".into(), facts: vec![fact], request_id: request_id(), ..Default::default() };
    me.at(1).put_facts(body).await.expect("written");
    let artifact = pb::PutArtifactRequest { session_id: "s".into(), trace_id: "ZEBRA".into(), ..Default::default() };
    me.put_artifact(artifact, b"ZEBRA-17", 4).await.expect("stored");
    me.window("s", 0, 0).await.expect("window");
    me.search("ZEBRA-17", 5).await.expect("search");
    let found = server.all_keys_with_ttl();
    assert_eq!(found.len(), 10, "{found:?}");
    for key in &found {
        let ttl = key.ttl.unwrap_or_else(|| panic!("{} has no TTL", key.key));
        assert!(ttl <= Duration::from_secs(48 * 3600) && ttl > Duration::from_secs(23 * 3600), "{key:?}");
    }
    let tags: BTreeSet<&str> =
        found.iter().filter_map(|k| k.key.split_once('{')?.1.split_once('}')).map(|(tag, _)| tag).collect();
    assert_eq!(tags.len(), 1, "one hash tag: {tags:?}");
    me.end("s").await.expect("ended");
    let left = server.all_keys_with_ttl();
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(left[0].ttl.is_some_and(|ttl| ttl <= Duration::from_secs(24 * 3600)));
    let tombstone: Vec<String> = server.command(&["HGETALL", &left[0].key]);
    assert!(!tombstone.iter().any(|part| part.contains("ZEBRA") || part == "s"), "{tombstone:?}");
}

#[tokio::test]
async fn c091_after_expiry_nothing_but_the_tombstone_remains_without_any_code() {
    let server = RedisServer::start();
    let bed = Bed::redis(&server.url()).await;
    let me = bed.me();
    let ttl = Some(prost_types::Duration { seconds: 1, nanos: 0 });
    let body = pb::AppendTurnsRequest {
        session_id: "s".into(),
        turns: vec![user("gone soon"); 30],
        ttl,
        request_id: request_id(),
        ..Default::default()
    };
    let first = me.append_turns(body.clone()).await.expect("appended");
    eventually(SOON, || async { server.all_keys_with_ttl().len() == 1 }).await;
    bed.clock.advance(Duration::from_secs(2));
    // A repeated request is answered by the tombstone; a new append is refused (rule S12).
    assert_eq!(me.append_turns(body.clone()).await.expect("same"), first);
    let fresh = pb::AppendTurnsRequest { request_id: request_id(), ..body };
    assert_eq!(me.append_turns(fresh).await.expect_err("ended").reason, Reason::SessionEnded);
}

#[test]
fn c121_all_keys_of_a_user_share_one_slot_whatever_the_ids_hold() {
    let slot = |key: &str| {
        let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag).filter(|t| !t.is_empty());
        crc16(tag.unwrap_or(key).as_bytes()) % 16_384
    };
    for user in ["u1", "{u1}", "}{", "{}", "u}1", "用户{", "a:b"] {
        let of = |session: &str| keys(&SessionKey::new(&owner("t{1}", user), &SessionId::new(session).expect("id")));
        let all: Vec<String> = ["s", "{s}", "}{", "{}"].iter().flat_map(|s| of(s)).collect();
        let slots: BTreeSet<u16> = all.iter().map(|k| slot(k)).collect();
        assert_eq!(slots.len(), 1, "{user}");
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 4 * 8 + 2, "apart but for the user's index and erase epoch");
    }
}

/// CRC-16/XMODEM, as Redis Cluster computes slots.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 })
    })
}

#[tokio::test]
async fn c122_a_full_redis_refuses_appends_whole_and_still_reads_and_ends() {
    let server = RedisServer::start();
    let bed = Bed::redis(&server.url()).await;
    let me = bed.me();
    me.append("s", vec![user("before")]).await.expect("appended");
    me.append("other", vec![user("before")]).await.expect("appended");
    me.window("s", 0, 0).await.expect("window");
    server.set_maxmemory(1);
    for session in ["s", "new"] {
        let body = pb::AppendTurnsRequest {
            session_id: session.into(),
            turns: vec![user("x"); 3],
            request_id: request_id(),
            ..Default::default()
        };
        assert_eq!(me.append_turns(body).await.expect_err("full").reason, Reason::StoreFull, "{session}");
    }
    let window = me.window("s", 0, 0).await.expect("reads go on");
    assert_eq!((window.turns.len(), window.last_seq), (1, 1), "nothing half-written");
    assert_eq!(me.window("new", 0, 0).await.expect_err("not there").reason, Reason::NotFound);
    assert_eq!(me.search("before", 5).await.expect("search").hits.len(), 2);
    assert_eq!(me.end("other").await.expect("ends go on").turns, 1);
    server.set_maxmemory(0);
    assert_eq!(me.append("s", vec![user("after")]).await.expect("appended").seqs, [2]);
    assert!(server.all_keys_with_ttl().iter().all(|k| k.ttl.is_some()));
}

#[tokio::test]
async fn c119_a_silent_redis_costs_a_bounded_time() {
    let server = RedisServer::start();
    let bed = Bed::redis(&server.url()).await;
    let me = bed.me();
    me.append("s", vec![user("before")]).await.expect("appended");
    server.stop_process();
    for _ in 0..2 {
        let watch = Stopwatch::start();
        let fault = me.append("s", vec![user("x")]).await.expect_err("silent");
        assert!(matches!(fault.reason, Reason::StoreUnavailable | Reason::DeadlineExceeded), "{fault:?}");
        assert!(watch.elapsed() < Duration::from_secs(5), "{:?}", watch.elapsed());
        let fault = me.window("s", 0, 0).await.expect_err("silent");
        assert!(matches!(fault.reason, Reason::StoreUnavailable | Reason::DeadlineExceeded), "never NOT_FOUND: {fault:?}");
    }
    let status = bed.role.status().await;
    assert!(!status.serving && status.fault.is_some());
    server.cont();
    eventually(SOON, || async { me.window("s", 0, 0).await.is_ok() }).await;
}

#[tokio::test]
async fn c118_a_restart_between_two_appends_stores_each_once() {
    let mut server = RedisServer::start();
    let bed = Bed::redis(&server.url()).await;
    let me = bed.me();
    let body = |n: u32| pb::AppendTurnsRequest {
        session_id: "s".into(),
        turns: vec![user(&format!("turn {n}"))],
        request_id: request_id(),
        ..Default::default()
    };
    me.append_turns(body(1)).await.expect("appended");
    server.kill_9();
    let second = body(2);
    let _ = me.append_turns(second.clone()).await;
    assert!(me.window("s", 0, 0).await.is_err_and(|f| f.reason == Reason::StoreUnavailable));
    server.restart();
    eventually(SOON, || async { me.append_turns(second.clone()).await.is_ok_and(|a| a.seqs == [2]) }).await;
    let turns = me.turns("s", 1, 10).await.expect("turns");
    assert_eq!(turns.iter().map(|t| t.text.as_str()).collect::<Vec<_>>(), ["turn 1", "turn 2"]);
}

#[tokio::test]
async fn c118_an_answer_that_breaks_off_is_safe_to_repeat() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let bed = Bed::redis(&proxy.url("redis")).await;
    let me = bed.me();
    me.append("s", vec![user("turn 0")]).await.expect("appended");
    for n in 1..=5_u32 {
        let body = pb::AppendTurnsRequest {
            session_id: "s".into(),
            turns: vec![user(&format!("turn {n}"))],
            request_id: request_id(),
            ..Default::default()
        };
        proxy.set(Mode::CutAfter(1));
        let _ = me.append_turns(body.clone()).await;
        proxy.set(Mode::Pass);
        eventually(SOON, || async { me.append_turns(body.clone()).await.is_ok() }).await;
    }
    let turns = me.turns("s", 1, 100).await.expect("turns");
    assert_eq!(
        turns.iter().map(|t| t.text.clone()).collect::<Vec<_>>(),
        (0..=5).map(|n| format!("turn {n}")).collect::<Vec<_>>()
    );
}
