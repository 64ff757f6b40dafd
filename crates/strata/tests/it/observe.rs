//! Observe and Explain through real processes: durable over a kill, read by rule, told by name.

use crate::cluster::{Cluster, strata};
use serde_json::{Value, json};
use std::time::Duration;
use strata_testkit::poll::blocking;

const USER: &str = "ada";
/// The killed router's lease has to end first.
const WAIT: Duration = Duration::from_secs(180);

fn observed(cluster: &Cluster, text: &str, request_id: &str) -> Value {
    let request = json!({"user_id": USER, "session_id": "s", "request_id": request_id, "turn": {"role": "USER", "text": text}});
    cluster.call("Observe", &request).expect("taken")
}

fn values(cluster: &Cluster, key: &str) -> Vec<String> {
    let found = cluster.call("LookupMemory", &json!({"user_id": USER, "key": key})).expect("looked up");
    let items = found["items"].as_array().cloned().unwrap_or_default();
    items.iter().filter_map(|item| item.pointer("/memory/content")?.as_str().map(str::to_owned)).collect()
}

fn survives(cluster: &mut Cluster, role: &'static str) {
    let id = "00000000-0000-4000-8000-000000000077";
    let taken = observed(cluster, "Thanks. I live in Hangzhou.", id);
    assert_eq!((taken["state"].as_str(), taken["observation_id"].as_str()), (Some("OBSERVE_STATE_QUEUED"), Some(id)));
    cluster.kill_and_restart(role);
    // What was acknowledged happens, once.
    let stored = blocking(WAIT, || Some(values(cluster, "profile.city")).filter(|found| !found.is_empty())).expect("in time");
    assert_eq!(stored, ["I live in Hangzhou."]);
    observed(cluster, "Thanks. I live in Hangzhou.", id);
    let told = blocking(WAIT, || {
        let output = strata(&["ctl", "--server", &cluster.url(), "explain", "--user", USER, id]);
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    })
    .expect("explained");
    assert!(told.contains("RouterService/Observe") && told.contains("O5") && told.contains("turn:1/2"), "{told}");
    assert!(!told.contains("Hangzhou"), "no content: {told}");
    let list = cluster.call("ListMemories", &json!({"user_id": USER})).expect("a list");
    assert_eq!(list["memories"].as_array().map(Vec::len), Some(1), "{list}");
}

#[test]
fn a62_an_observation_survives_a_kill_of_the_router_on_redis() {
    survives(&mut Cluster::four(false), "router");
}

#[test]
fn a62_an_observation_survives_a_kill_of_the_one_process() {
    survives(&mut Cluster::all_in_one(), "all");
}

/// Acceptance A201 over real layers: what was stored, found, shown and used, under names that a caller knows.
#[test]
fn a201_a202_explain_tells_of_a_context_and_quality_counts_it() {
    let cluster = Cluster::quick(false, &[]);
    let append = json!({"user_id": USER, "session_id": "s", "turns": [{"role": "USER", "text": "My cost centre is A-100."}]});
    cluster.call("AppendTurns", &append).expect("appended");
    let remember = json!({"user_id": USER, "statement": {
        "kind": "FACT", "content": "My cost centre is A-100.", "source": "USER_STATEMENT",
        "source_quote": "My cost centre is A-100.", "source_ref": {"turn": {"session_id": "s", "seq": 1}},
        "trigger": "USER_REQUEST"}});
    let stored = cluster.call("Remember", &remember).expect("stored");
    let memory = stored.pointer("/result/memory/memory_id").and_then(Value::as_str).expect("an id").to_owned();
    let assemble = json!({"user_id": USER, "session_id": "s", "input": "Which cost centre is mine?"});
    let context = cluster.call("AssembleContext", &assemble).expect("assembled");
    let recall = context["recall_id"].as_str().expect("a recall").to_owned();
    let usage = json!({"user_id": USER, "recall_id": recall, "memory_ids": [memory]});
    assert_eq!(cluster.call("ReportUsage", &usage).expect("reported")["hit_rate"].as_f64(), Some(1.0));
    let told = cluster.call("Explain", &json!({"user_id": USER, "trace_id": context["trace_id"]})).expect("explained");
    let stages: Vec<&str> = told["decisions"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|decision| decision["steps"].as_array().into_iter().flatten())
        .filter(|step| step["subject"].as_str() == Some(memory.as_str()))
        .filter_map(|step| step["stage"].as_str())
        .collect();
    for stage in ["DECISION_STAGE_CANDIDATE", "DECISION_STAGE_INJECTED", "DECISION_STAGE_CITED"] {
        assert!(stages.contains(&stage), "{stage}: {told}");
    }
    let quality = cluster.call("GetQuality", &json!({})).expect("counted");
    assert_eq!((quality["recalled"].as_u64(), quality["cited"].as_u64()), (Some(1), Some(1)), "{quality}");
    assert_eq!(quality["hit_rate"].as_f64(), Some(1.0));
    assert!(quality["token_share"].as_f64().is_some_and(|share| share > 0.0 && share < 1.0), "{quality}");
    let sample = cluster.call("SampleForReview", &json!({})).expect("drawn");
    let sample_id = sample.pointer("/samples/0/sample_id").and_then(Value::as_str).expect("a sample").to_owned();
    let review = json!({"sample_id": sample_id, "verdict": "STALE"});
    cluster.call("SubmitReview", &review).expect("taken");
    assert_eq!(cluster.call("GetQuality", &json!({})).expect("counted")["pollution_rate"].as_f64(), Some(1.0));
}
