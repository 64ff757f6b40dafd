//! Clocks that differ between hosts, and clocks that are set while everything runs: real processes, each with a wall clock of its own
//! (`clock.c`), whose durations go on as on a host whose clock is set.

use crate::cluster::{Cluster, ROLES};
use crate::soak::{env, load_for, under_load};
use serde_json::{Value, json};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::process::Command;
use std::time::Duration;
use strata_testkit::poll;

const SOON: Duration = Duration::from_secs(60);

/// The wall clocks of the processes of a cluster.
struct Clocks {
    folder: tempfile::TempDir,
}

impl Clocks {
    fn new() -> Self {
        let clocks = Self { folder: tempfile::tempdir().expect("a folder") };
        let library = clocks.folder.path().join("clock.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/clock.c");
        // Rust links with it, so it is there.
        let built = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).status();
        assert!(built.expect("cc runs").success());
        clocks
    }

    /// Lets a role that is started next live by the clock of this host.
    fn host(&self, cluster: &mut Cluster, host: &str) {
        let file = self.folder.path().join(host);
        if !file.exists() {
            std::fs::write(&file, 0_i64.to_ne_bytes()).expect("written");
        }
        cluster.set_env("LD_PRELOAD", &self.folder.path().join("clock.so").display().to_string());
        cluster.set_env("CLOCK_OFFSET", &file.display().to_string());
    }

    /// Sets the clock of a host: off by this from now on.
    fn set(&self, host: &str, millis: i64) {
        let file = File::options().write(true).open(self.folder.path().join(host)).expect("a host");
        // In place, as it is mapped: eight bytes arrive at once.
        file.write_all_at(&(millis * 1_000_000).to_ne_bytes(), 0).expect("written");
    }
}

fn append(cluster: &Cluster, n: u32) -> Result<Value, String> {
    let id = format!("00000000-0000-4000-8000-{n:012}");
    let turns =
        json!({"user_id": "ada", "session_id": "s", "request_id": id, "turns": [{"role": "USER", "text": format!("No. {n}")}]});
    cluster.call("AppendTurns", &turns)
}

/// Calls until it is served; what a retry does not cover fails.
fn persist(cluster: &Cluster, rpc: &str, request: &Value) -> Value {
    let mut last = String::new();
    let answer = poll::blocking(SOON, || match cluster.call(rpc, request) {
        Ok(answer) => Some(answer),
        Err(refused) => {
            assert!(refused.contains("retrying is safe"), "{rpc}: {refused}");
            last = refused;
            None
        }
    });
    answer.unwrap_or_else(|late| panic!("{late}: {rpc}: {last}"))
}

/// The system of rooms states that the desk of Ada is in this one; its slot holds one value.
fn desk(cluster: &Cluster, room: u32) {
    let said = format!("The desk is in room {room}.");
    let mut vector = [0.05; crate::cluster::VECTOR_DIMS];
    vector[0] = 1.0;
    let statement = json!({"kind": "FACT", "key": "desk.room", "value": {"text": room.to_string()}, "content": said,
        "source": "AUTHORITATIVE_SYSTEM", "source_quote": said, "trigger": "SYNC", "vector": vector,
        "source_ref": {"system_record": {"system": "rooms", "record_id": room.to_string()}}});
    let id = format!("00000000-0000-4000-8000-{room:012}");
    persist(cluster, "Remember", &json!({"user_id": "ada", "request_id": id, "statement": statement}));
}

fn rooms(cluster: &Cluster) -> Vec<String> {
    let found = cluster.call("LookupMemory", &json!({"user_id": "ada", "key": "desk.room"})).expect("looked up");
    let items = found["items"].as_array().cloned().unwrap_or_default();
    items.iter().map(|item| item.pointer("/memory/value/text").and_then(Value::as_str).unwrap_or("?").to_owned()).collect()
}

/// The router's clock differs from that of the layers: within the skew nobody notices, beyond it every call is refused with the
/// reason, and once the clock is right all goes on without a restart.
#[test]
fn a_routers_clock_may_differ_by_the_skew_and_beyond_it_the_refusal_says_why() {
    let clocks = Clocks::new();
    let mut cluster = Cluster::idle_four(&env(), false);
    for role in ROLES {
        clocks.host(&mut cluster, if role == "router" { "router" } else { "layers" });
        cluster.start(role);
    }
    let mut n = 0;
    let mut served = |cluster: &Cluster, millis: i64| {
        n += 1;
        // A call may take seconds on a busy machine, and its header is good for five.
        let answer = poll::blocking(SOON, || append(cluster, n).ok());
        answer.unwrap_or_else(|late| panic!("{late}: off by {millis} ms: {:?}", append(cluster, n)));
    };
    for millis in [0, 1_500, -1_500, 30_000, 0, -30_000, 0, 86_400_000, 0] {
        clocks.set("router", millis);
        if millis.abs() <= 1_500 {
            served(&cluster, millis);
            continue;
        }
        for call in 0..2 {
            let refused = append(&cluster, 900 + call).expect_err("the clocks differ");
            assert!(refused.contains("UNSIGNED_CALL") && refused.contains("the clocks differ"), "off by {millis} ms: {refused}");
        }
        let context = json!({"user_id": "ada", "session_id": "s", "input": "Where do I sit?"});
        let context = cluster.call("AssembleContext", &context).expect("an agent is answered whatever the clocks say");
        assert!(context["text"].as_str().unwrap_or_default().contains("Where do I sit?"));
    }
    // A layer that starts while the router is behind: refused until the router's time has come, and told to retry.
    clocks.set("router", -1_500);
    cluster.kill_and_restart("session");
    let answer = poll::blocking(SOON, || match append(&cluster, 800) {
        Ok(_) => Some(()),
        Err(refused) => {
            assert!(refused.contains("retrying is safe"), "{refused}");
            None
        }
    });
    answer.expect("served once the router's time has come");
}

/// The clock of all hosts is set forth and back: nothing is lost, and what was stated last is in force, whatever the clock said.
/// Steps within the life of a signature are not noticed by clients that are at work either.
#[test]
fn clocks_that_step_lose_nothing_and_the_last_word_stays_the_last() {
    const HOUR: i64 = 3_600_000;
    let clocks = Clocks::new();
    let mut cluster = Cluster::idle_four(&env(), false);
    for role in ROLES {
        clocks.host(&mut cluster, "all");
        cluster.start(role);
    }
    let mut room = 0;
    // Back by more than the processes have been running, too.
    for millis in [0, 10_000, -5_000, HOUR, 0, -2 * HOUR, 0] {
        clocks.set("all", millis);
        room += 1;
        desk(&cluster, room);
        assert_eq!(rooms(&cluster), [room.to_string()], "off by {millis} ms");
    }
    // Every store is read again by a process that starts at another time.
    clocks.set("all", -HOUR);
    for role in ["longterm", "session"] {
        cluster.kill_and_restart(role);
    }
    assert_eq!(rooms(&cluster), [room.to_string()]);
    clocks.set("all", 0);
    let (calls, retries) = under_load(&mut cluster, false, |_| {
        for millis in [1_500, 0, 4_000, 2_500, 1_000, 0] {
            load_for(Duration::from_secs(1));
            clocks.set("all", millis);
        }
        load_for(Duration::from_secs(1));
    });
    eprintln!("steps of the clock: {calls} calls, {retries} of them again");
}
