//! Processes that are killed, restarted, stopped: what was acknowledged stays, once.

use crate::cluster::{Cluster, ROLES};
use serde_json::{Value, json};
use std::time::Duration;

const USER: &str = "survivor";

fn append(cluster: &Cluster, text: &str, request_id: &str) -> Result<Value, String> {
    cluster.call(
        "AppendTurns",
        &json!({"user_id": USER, "session_id": "s", "turns": [{"role": "ROLE_USER", "text": text}], "request_id": request_id}),
    )
}

fn remember(cluster: &Cluster, seq: u64, text: &str, request_id: &str) -> Result<Value, String> {
    cluster.call(
        "Remember",
        &json!({"user_id": USER, "request_id": request_id, "statement": {
            "kind": "KIND_FACT", "content": text, "source": "SOURCE_USER_STATEMENT", "source_quote": text,
            "source_ref": {"turn": {"session_id": "s", "seq": seq}}, "trigger": "TRIGGER_USER_REQUEST"}}),
    )
}

fn id(n: u32) -> String {
    format!("00000000-0000-4000-8000-{n:012}")
}

/// Everything acknowledged before a kill is there after it, and the same request ids double nothing.
fn survives(cluster: &mut Cluster, roles: &[&'static str]) {
    let mut numbers = Vec::new();
    for (round, role) in (0_u32..).zip(roles) {
        let text = format!("Remember that my badge {round} has the colour number {round}77.");
        let appended = append(cluster, &text, &id(round * 10 + 1)).expect("appended");
        let seq = appended["seqs"][0].as_u64().expect("a number");
        let stored = remember(cluster, seq, &text, &id(round * 10 + 2)).expect("remembered");
        let memory = stored.pointer("/result/memory/memory_id").and_then(Value::as_str).expect("an id").to_owned();
        cluster.kill_and_restart(role);
        let again = append(cluster, &text, &id(round * 10 + 1)).expect("appended again");
        assert_eq!(again["seqs"], appended["seqs"], "the same request after the kill of {role}");
        let again = remember(cluster, seq, &text, &id(round * 10 + 2)).expect("remembered again");
        assert_eq!(
            again.pointer("/result/memory/memory_id").and_then(Value::as_str),
            Some(memory.as_str()),
            "after the kill of {role}"
        );
        numbers.push(seq);
    }
    assert_eq!(numbers, (1..=roles.len() as u64).collect::<Vec<_>>(), "dense, none lost, none doubled");
    let list = cluster.call("ListMemories", &json!({"user_id": USER})).expect("a list");
    assert_eq!(list["memories"].as_array().map(Vec::len), Some(roles.len()), "{list}");
}

#[test]
fn a06_a_killed_role_loses_nothing_that_was_acknowledged() {
    survives(&mut Cluster::four(true), &["session", "longterm", "router"]);
}

#[test]
fn a_killed_all_in_one_server_loses_nothing_that_was_acknowledged() {
    survives(&mut Cluster::all_in_one(), &["all", "all"]);
}

#[test]
fn a_killed_working_role_tells_that_a_board_was_lost() {
    let mut cluster = Cluster::four(false);
    let task = json!({"user_id": USER, "task_id": "t", "goal": {"sentence": "Do it.", "acceptance": "It is done."}});
    let created = cluster.call("CreateTask", &task).expect("created");
    let generation = created.pointer("/task/generation").and_then(Value::as_u64).expect("a generation");
    cluster.kill_and_restart("working");
    let put = |generation: u64| {
        cluster.call(
            "WorkingMemoryService/PutFacts",
            &json!({"user_id": USER, "task_id": "t", "generation": generation,
            "facts": [{"key": "a", "value": "1", "source": "test"}]}),
        )
    };
    // The board may have been checkpointed or not: either it is gone, or the old generation is refused. It is never
    // silently written.
    let refusal = put(generation).expect_err("an older generation is refused");
    assert!(refusal.contains("TASK_LOST") || refusal.contains("NOT_FOUND"), "{refusal}");
    if refusal.contains("TASK_LOST") {
        let board = cluster.call("GetTask", &json!({"user_id": USER, "task_id": "t"})).expect("the board is back");
        let now = board.pointer("/task/generation").and_then(Value::as_u64).expect("a generation");
        assert!(now > generation);
        put(now).expect("the new generation is accepted");
    }
}

#[test]
fn a_graceful_stop_of_working_memory_loses_nothing() {
    let mut cluster = Cluster::four(false);
    let task = json!({"user_id": USER, "task_id": "t", "goal": {"sentence": "Do it.", "acceptance": "It is done."}});
    let created = cluster.call("CreateTask", &task).expect("created");
    let put = |value: &str| {
        json!({"user_id": USER, "task_id": "t", "generation": created["task"]["generation"],
        "facts": [{"key": "a", "value": value, "source": "test"}]})
    };
    cluster.call("WorkingMemoryService/PutFacts", &put("1")).expect("written");
    assert_eq!(cluster.terminate("working", Duration::from_secs(30)), Some(0));
    cluster.start("working");
    let board = cluster.call("GetTask", &json!({"user_id": USER, "task_id": "t"})).expect("the board is back");
    assert_eq!(board.pointer("/task/facts/0/value"), Some(&json!("1")), "{board}");
    cluster.call("WorkingMemoryService/PutFacts", &put("2")).expect("the same generation is still good");
}

#[test]
fn c180_every_process_ends_in_time_with_code_0() {
    let mut cluster = Cluster::four(false);
    // Half-open connections must not hold the process.
    let idle: Vec<_> = ROLES
        .iter()
        .map(|role| std::net::TcpStream::connect(cluster.address(role).trim_start_matches("http://")).expect("connects"))
        .collect();
    for role in ["router", "working", "session", "longterm"] {
        assert_eq!(cluster.terminate(role, Duration::from_secs(25)), Some(0), "{role}");
    }
    drop(idle);
}
