//! What is kept of a tool's return, and of a task's goal, over fake layers.

use crate::world::{World, embedded, reason};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strata_api::working::v1 as working;
use strata_core::{Reason, limits};
use strata_router::modes::{Mode, Modes};

fn put(task: &str) -> working::PutFactsRequest {
    let fact = working::Fact { key: "order.no".into(), value: "88".into(), source: "checker".into(), ..Default::default() };
    working::PutFactsRequest { user_id: "u1".into(), task_id: task.into(), facts: vec![fact], ..Default::default() }
}

fn result(task: &str, payload: &[u8], fields: &[(&str, &str)]) -> working::AppendDigestRequest {
    let field = |(key, pointer): &(&str, &str)| working::ResultField { key: (*key).into(), pointer: (*pointer).into() };
    working::AppendDigestRequest {
        user_id: "u1".into(),
        task_id: task.into(),
        digest: Some(working::Digest {
            tool: "erp.lookup".into(),
            sentence: "The order is shipped.".into(),
            trace_id: "tr-9".into(),
            time: None,
        }),
        payload: payload.to_vec(),
        content_type: "application/json".into(),
        fields: fields.iter().map(field).collect(),
        ..Default::default()
    }
}

#[tokio::test]
async fn a14_a15_the_raw_return_is_an_artifact_the_fields_are_facts_the_board_has_one_sentence() {
    let world = World::new(embedded()).await;
    world.working().put_facts(put("k@s1")).await.unwrap();
    let raw = "{\"order\": {\"state\": \"shipped\", \"total\": 12.50}, \"log\": [1, 2, 3]}".as_bytes();
    let request =
        result("k@s1", raw, &[("order.state", "/order/state"), ("order.total", "/order/total"), ("order.eta", "/order/eta")]);
    let answer = world.working().append_digest(request).await.unwrap().into_inner();
    let facts: Vec<(&str, &str, &str, &str)> =
        answer.facts.iter().map(|f| (f.key.as_str(), f.value.as_str(), f.source.as_str(), f.trace_id.as_str())).collect();
    assert_eq!(facts, [("order.state", "shipped", "erp.lookup", "tr-9"), ("order.total", "12.50", "erp.lookup", "tr-9")]);
    assert_eq!((answer.missing, answer.payload_bytes), (vec!["order.eta".to_owned()], raw.len() as u64));
    assert_eq!(world.fake.state.lock().artifacts["tr-9"], raw, "byte for byte, under the digest's trace id");

    // Nothing is stored for what cannot be kept.
    world.working().put_facts(put("alone")).await.unwrap();
    for (request, expected) in [
        (result("alone", raw, &[]), Reason::InvalidField),
        (result("k@s1", b"<html>", &[("a.b", "/a")]), Reason::InvalidField),
        (result("k@s1", raw, &[("a.b", "order")]), Reason::InvalidField),
        (result("k@s1", &vec![b' '; limits::RESULT_BYTES + 1], &[]), Reason::LimitReached),
    ] {
        let mut request = request;
        request.digest.as_mut().unwrap().trace_id = "other".into();
        assert_eq!(reason(world.working().append_digest(request).await), expected);
    }
    assert_eq!(world.fake.state.lock().artifacts.len(), 1);
    // Without a payload it is the call it was.
    world.working().append_digest(result("alone", b"", &[])).await.unwrap();
    world.fake.session_down.store(true, Ordering::SeqCst);
    assert_eq!(reason(world.working().append_digest(result("k@s1", raw, &[])).await), Reason::StoreUnavailable);
}

#[tokio::test]
async fn a21_a79_w7_the_goal_of_a_task_that_ends_is_archived_and_without_an_archive_it_ends_all_the_same() {
    let world = World::new(embedded()).await;
    let end = |task: &str| working::EndTaskRequest { user_id: "u1".into(), task_id: task.into(), ..Default::default() };
    for task in ["a", "b", "c"] {
        world.working().put_facts(put(task)).await.unwrap();
    }
    let ended = world.working().end_task(end("a")).await.unwrap().into_inner();
    assert_eq!((ended.episode_id.as_str(), ended.findings.len()), ("e1", 0));
    {
        let state = world.fake.state.lock();
        let order: Vec<&str> = state.calls.iter().filter_map(|(path, _)| path.rsplit('/').next()).collect();
        let place = |method: &str| order.iter().rposition(|name| *name == method).unwrap();
        assert!(place("GetTask") < place("ArchiveSession") && place("ArchiveSession") < place("EndTask"), "{order:?}");
        assert!(
            state.calls.iter().filter(|(path, _)| path.ends_with("/ArchiveSession")).all(|(_, claims)| claims.write.is_some())
        );
    }
    world.fake.longterm_down.store(true, Ordering::SeqCst);
    let ended = world.working().end_task(end("b")).await.unwrap().into_inner();
    assert_eq!((ended.findings[0].rule.as_str(), ended.findings[0].outcome.as_str()), ("W7", "NOT_ARCHIVED"));
    assert!(ended.findings[0].because.contains("STORE_UNAVAILABLE") && ended.episode_id.is_empty());
    world.fake.longterm_down.store(false, Ordering::SeqCst);
    world.modes.store(Arc::new(Modes { longterm: Mode::WriteOff, ..Modes::default() }));
    let ended = world.working().end_task(end("c")).await.unwrap().into_inner();
    assert!(ended.findings[0].because.contains("LAYER_WRITE_OFF"), "{:?}", ended.findings);
}
