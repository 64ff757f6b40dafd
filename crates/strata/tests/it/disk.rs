//! A disk that is full: writes are refused as documented, what was acknowledged is there, reads and forgetting go on, a restart
//! does no harm, and with room again all goes on by itself.

use crate::cluster::{Cluster, VECTOR_DIMS};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use strata_api::longterm::v1 as pb;
use strata_api::longterm::v1::long_term_memory_service_client::LongTermMemoryServiceClient;
use strata_core::{Fault, Reason};
use strata_runtime::channel::{self, EndpointConfig, RpcChannel};
use strata_testkit::{Child9, poll};

/// A file system of this size in memory; needs root, as mounting does.
struct Disk(PathBuf);

impl Disk {
    fn mount(at: &Path, megabytes: u32) -> Option<Self> {
        std::fs::create_dir_all(at).expect("a folder");
        let size = format!("size={megabytes}m");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "strata-test"]).arg(at).output();
        mounted.is_ok_and(|output| output.status.success()).then(|| Self(at.to_owned()))
    }

    fn grow(&self, megabytes: u32) {
        let size = format!("remount,size={megabytes}m");
        assert!(Command::new("mount").args(["-o", &size]).arg(&self.0).status().expect("mount runs").success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A process may still have it open: it goes with the last one.
        let _ended = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

const USER: &str = "ada";

async fn remember(client: &mut LongTermMemoryServiceClient<RpcChannel>, n: usize) -> Result<String, Fault> {
    let text = format!("Meter {n} reads {n}77 and says {}", "that it has run without a fault for many days ".repeat(40));
    let mut vector = vec![0.05; VECTOR_DIMS];
    vector[n % VECTOR_DIMS] = 1.0;
    let record = pb::SystemRecord { system: "meter".into(), record_id: n.to_string() };
    let mut request = tonic::Request::new(pb::RememberRequest {
        user_id: USER.into(),
        request_id: format!("00000000-0000-4000-8000-{n:012}"),
        statement: Some(pb::Statement {
            kind: pb::Kind::Fact.into(),
            content: text.clone(),
            source_quote: text,
            source: pb::Source::AuthoritativeSystem.into(),
            source_ref: Some(pb::SourceRef { kind: Some(pb::source_ref::Kind::SystemRecord(record)) }),
            trigger: pb::Trigger::Sync.into(),
            vector,
            ..Default::default()
        }),
        ..Default::default()
    });
    request.set_timeout(std::time::Duration::from_secs(30));
    let answer = client.remember(request).await.map_err(|status| strata_api::error::fault(&status))?;
    Ok(answer.into_inner().result.expect("a result").memory.expect("a record").memory_id)
}

/// Writes until the disk is full; the refusal.
async fn fill(cluster: &Cluster, kept: &mut BTreeSet<String>, next: &mut usize) -> Fault {
    let mut client = LongTermMemoryServiceClient::new(channel::connect(&EndpointConfig::new(cluster.url())).expect("a channel"));
    loop {
        match remember(&mut client, *next).await {
            Ok(id) => assert!(kept.insert(id), "two statements became one record"),
            // A busy machine: what is full stays full.
            Err(fault) if matches!(fault.reason, Reason::Overloaded | Reason::DeadlineExceeded) => continue,
            Err(fault) => return fault,
        }
        *next += 1;
        assert!(*next < 20_000, "the disk does not fill");
    }
}

fn listed(cluster: &Cluster) -> BTreeSet<String> {
    let (mut ids, mut token) = (BTreeSet::new(), String::new());
    loop {
        let page =
            cluster.call("ListMemories", &json!({"user_id": USER, "page_size": 200, "page_token": token})).expect("a list");
        for memory in page["memories"].as_array().into_iter().flatten() {
            assert!(ids.insert(memory["memory_id"].as_str().expect("an id").to_owned()), "a record is there twice");
        }
        page["next_page_token"].as_str().unwrap_or_default().clone_into(&mut token);
        if token.is_empty() {
            return ids;
        }
    }
}

#[test]
fn a_full_disk_refuses_writes_loses_nothing_and_goes_on_when_there_is_room() {
    const SMALL: u32 = 40;
    let folder = tempfile::tempdir().expect("a folder");
    let Some(disk) = Disk::mount(&folder.path().join("data"), SMALL) else {
        eprintln!("no disk can be mounted here: this needs root");
        return;
    };
    let mut cluster = Cluster::quick_in(&disk.0, &[]);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (mut kept, mut next) = (BTreeSet::new(), 1);
    let refused = runtime.block_on(fill(&cluster, &mut kept, &mut next));
    assert_eq!(refused.reason, Reason::StoreFull, "{refused}");
    assert!(refused.retry_after_ms.is_some() && !refused.reason.may_have_written(), "{refused}");
    assert!(kept.len() > 50, "{} fit", kept.len());
    assert_eq!(listed(&cluster), kept, "all that was acknowledged, and nothing of what was refused");
    let turn = json!({"user_id": USER, "session_id": "s", "turns": [{"role": "USER", "text": "x".repeat(60_000)}]});
    let turns = poll::blocking(std::time::Duration::from_secs(60), || cluster.call("AppendTurns", &turn).err());
    assert!(turns.expect("sessions stand on the same disk").contains("STORE_FULL"));
    let recalled = cluster.call("LookupMemory", &json!({"user_id": USER, "key": "none.such"}));
    assert!(recalled.is_ok(), "reads go on: {recalled:?}");

    // A start needs a little room; where there is none, it says so and does no harm.
    cluster.kill("all");
    let mut started = cluster.spawn("all");
    let said = |started: &Child9| started.printed("is full") || started.printed("ready");
    poll::blocking(std::time::Duration::from_secs(60), || said(&started).then_some(())).expect("a start or its refusal");
    started.kill_9();
    disk.grow(2 * SMALL);
    cluster.start("all");
    assert_eq!(listed(&cluster), kept);
    // Whoever repeats the request that met the full disk is served, and not twice.
    let id = poll::blocking(std::time::Duration::from_secs(60), || {
        let channel = || channel::connect(&EndpointConfig::new(cluster.url())).expect("a channel");
        runtime.block_on(async { remember(&mut LongTermMemoryServiceClient::new(channel()), next).await }).ok()
    });
    assert!(kept.insert(id.expect("it goes on by itself")));
    next += 1;
    let full = runtime.block_on(fill(&cluster, &mut kept, &mut next));
    assert_eq!(full.reason, Reason::StoreFull);
    assert_eq!(listed(&cluster), kept);

    // Forgetting needs a page or two: it is served, or refused whole, and with room it is done.
    let one = kept.iter().next().expect("one").clone();
    let forget = json!({"user_id": USER, "memory_ids": [one], "reason": "makes room"});
    let forgotten: Result<Value, String> = cluster.call("ForgetMemories", &forget);
    assert!(forgotten.as_ref().err().is_none_or(|refused| refused.contains("STORE_FULL")), "{forgotten:?}");
    disk.grow(3 * SMALL);
    poll::blocking(std::time::Duration::from_secs(60), || cluster.call("ForgetMemories", &forget).ok()).expect("forgotten");
    drop(cluster);
}
