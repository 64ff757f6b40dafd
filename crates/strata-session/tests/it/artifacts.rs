//! Raw tool returns on both stores: byte for byte, bounded, gone when their time is over.

use crate::harness::{Bed, Caller, request_id, user};
use std::time::Duration;
use strata_api::session::v1 as pb;
use strata_core::{Reason, limits};

fn header(trace_id: &str) -> pb::PutArtifactRequest {
    pb::PutArtifactRequest {
        session_id: "s".into(),
        trace_id: trace_id.into(),
        task_id: "t1".into(),
        content_type: "application/json".into(),
        ..Default::default()
    }
}

fn seconds(seconds: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos: 0 })
}

/// Bytes that do not compress, the same every time.
fn noise(len: usize, mut seed: u64) -> Vec<u8> {
    let next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 56) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

async fn started(bed: &Bed) -> Caller {
    let me = bed.me();
    me.append("s", vec![user("look it up")]).await.expect("appended");
    me
}

#[tokio::test]
async fn a_tool_return_is_read_back_byte_for_byte() {
    for bed in Bed::both().await {
        let me = started(&bed).await;
        let json = "{\"名\": \"ＡＢ１２\", \"emoji\": \"👨‍👩‍👧\", \"rtl\": \"مرحبا\\u202e\"}\r\n".repeat(40_000).into_bytes();
        let part = limits::ARTIFACT_PART_BYTES;
        for (name, bytes) in [
            ("empty", Vec::new()),
            ("nul", vec![0; 3]),
            ("part", noise(part, 1)),
            ("more", noise(part + 1, 2)),
            ("not-utf8", vec![0xff, 0xfe, 0x00, 0x80]),
            ("json", json.clone()),
        ] {
            let stored = me.put_artifact(header(name), &bytes, 700_001).await.expect(name);
            assert_eq!((stored.bytes, stored.trace_id.as_str(), stored.task_id.as_str()), (bytes.len() as u64, name, "t1"));
            let (artifact, read) = me.get_artifact("s", name).await.expect(name);
            assert!(read == bytes, "{}: {name}", bed.store);
            assert_eq!((artifact.hash.as_str(), artifact.expire_time), (blake3_hex(&bytes).as_str(), None));
            assert_eq!(artifact, stored);
        }
        let (artifact, _) = me.get_artifact("s", "json").await.expect("json");
        assert!(artifact.stored_bytes * 20 < artifact.bytes, "compressed: {artifact:?}");
        // It does not change; the same bytes again are the same artifact.
        let again = me.put_artifact(header("json"), &json, 1 << 20).await.expect("the same");
        assert_eq!(again, artifact);
        let other = me.put_artifact(header("json"), b"other", 9).await.expect_err("other bytes");
        assert_eq!(other.fields[0].field, "trace_id");
        assert_eq!(me.get_artifact("s", "unknown").await.expect_err("unknown").reason, Reason::NotFound);
        me.end("s").await.expect("ended");
        assert_eq!(me.get_artifact("s", "json").await.expect_err("with its session").reason, Reason::NotFound);
        let late = me.put_artifact(header("late"), b"late", 9).await.expect_err("ended");
        assert_eq!(late.reason, Reason::SessionEnded);
    }
}

fn blake3_hex(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

#[tokio::test]
async fn c096_an_artifact_is_gone_when_its_time_is_over_and_says_so() {
    for bed in Bed::both().await {
        let me = started(&bed).await;
        let short = pb::PutArtifactRequest { ttl: seconds(60), ..header("short") };
        let stored = me.put_artifact(short.clone(), b"first", 9).await.expect("stored");
        assert!(stored.expire_time.is_some());
        me.put_artifact(header("long"), b"long", 9).await.expect("stored");
        bed.clock.advance(Duration::from_secs(59));
        assert_eq!(me.get_artifact("s", "short").await.expect("there").1, b"first");
        bed.clock.advance(Duration::from_secs(1));
        let gone = me.get_artifact("s", "short").await.expect_err("gone");
        assert_eq!(gone.reason, Reason::ArtifactGone, "{}: {gone:?}", bed.store);
        assert_eq!(me.get_artifact("s", "long").await.expect("there").1, b"long");
        // The id may be used again then.
        me.put_artifact(short, b"second", 9).await.expect("stored");
        assert_eq!(me.get_artifact("s", "short").await.expect("there").1, b"second");
        // What keeps the session keeps its artifacts; nothing outlives it (case C095).
        for _ in 0..3 {
            bed.clock.advance(Duration::from_secs(20 * 3600));
            me.window("s", 0, 0).await.expect("alive");
        }
        assert_eq!(me.get_artifact("s", "long").await.expect("there").1, b"long");
        bed.clock.advance(Duration::from_secs(25 * 3600));
        assert_eq!(me.get_artifact("s", "long").await.expect_err("gone").reason, Reason::NotFound);
    }
}

#[tokio::test]
async fn c087_c058_artifacts_have_limits_and_repetitions_one_effect() {
    for bed in Bed::both().await {
        let me = started(&bed).await;
        let whole = noise(limits::ARTIFACT_BYTES, 3);
        me.put_artifact(header("largest"), &whole, 3 << 20).await.expect("16 MiB");
        assert!(me.get_artifact("s", "largest").await.expect("read").1 == whole, "{}", bed.store);
        let larger = noise(limits::ARTIFACT_BYTES + 1, 3);
        let fault = me.put_artifact(header("larger"), &larger, 3 << 20).await.expect_err("a byte more");
        assert_eq!(fault.reason, Reason::LimitReached);
        assert_eq!(me.get_artifact("s", "larger").await.expect_err("not stored").reason, Reason::NotFound);
        for (bad, field) in [
            (pb::PutArtifactRequest { trace_id: String::new(), ..header("x") }, "trace_id"),
            (pb::PutArtifactRequest { session_id: String::new(), ..header("x") }, "session_id"),
            (pb::PutArtifactRequest { content_type: "x".repeat(129), ..header("x") }, "content_type"),
            (pb::PutArtifactRequest { ttl: seconds(0), ..header("x") }, "ttl"),
            (pb::PutArtifactRequest { request_id: "no".into(), ..header("x") }, "request_id"),
        ] {
            assert_eq!(me.put_artifact(bad, b"x", 9).await.expect_err(field).fields[0].field, field);
        }
        let first = pb::PutArtifactRequest { request_id: request_id(), ..header("once") };
        let stored = me.put_artifact(first.clone(), b"once", 9).await.expect("first");
        bed.clock.advance(Duration::from_secs(5));
        assert_eq!(me.put_artifact(first.clone(), b"once", 1).await.expect("again, in other messages"), stored);
        let other = me.put_artifact(first, b"other", 9).await.expect_err("other bytes");
        assert_eq!(other.reason, Reason::RequestIdReused);
        for n in 0..3 {
            me.put_artifact(header(&format!("n{n}")), &noise(limits::ARTIFACT_BYTES - 4096, 9 + n), 3 << 20).await.expect("fits");
        }
        let full = me.put_artifact(header("full"), &noise(1 << 20, 77), 3 << 20).await.expect_err("64 MiB");
        assert_eq!(full.reason, Reason::LimitReached);
    }
}

#[tokio::test]
async fn c034_artifacts_of_another_agent_user_or_tenant_are_not_there() {
    for bed in Bed::both().await {
        let owner = bed.caller(&bed.tenant, "u1", "a1");
        owner.append("s", vec![user("look it up")]).await.expect("appended");
        owner.put_artifact(header("x"), b"secret", 9).await.expect("stored");
        for other in [
            bed.caller(&bed.tenant, "u1", "a2"),
            bed.caller(&bed.tenant, "u2", "a1"),
            bed.caller(&format!("{}x", bed.tenant), "u1", "a1"),
        ] {
            assert_eq!(other.get_artifact("s", "x").await.expect_err("foreign").reason, Reason::NotFound, "{}", bed.store);
            let put = other.put_artifact(header("y"), b"y", 9).await;
            assert_eq!(put.expect_err("foreign").reason, Reason::NotFound);
        }
        assert_eq!(bed.me().get_artifact("s", "x").await.expect("user-wide").1, b"secret");
    }
}
