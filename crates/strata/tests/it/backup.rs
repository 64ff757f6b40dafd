//! Backup and restore with the real executable, and a server in front of a database it must not serve.

use crate::cluster::{Cluster, VECTOR_DIMS, strata};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

const USER: &str = "keeper";

fn remember(cluster: &Cluster, n: u32) {
    let text = format!("badge number {n}77");
    let mut vector = vec![0.1; VECTOR_DIMS];
    vector[n as usize % VECTOR_DIMS] = 1.0;
    let statement = json!({"user_id": USER, "statement": {
        "kind": "KIND_FACT", "content": text, "source": "SOURCE_AUTHORITATIVE_SYSTEM", "source_quote": text, "vector": vector,
        "source_ref": {"system_record": {"system": "hr", "record_id": format!("r{n}")}}, "trigger": "TRIGGER_SYNC"}});
    cluster.call("Remember", &statement).expect("remembered");
}

fn contents(cluster: &Cluster) -> Vec<String> {
    let list = cluster.call("ListMemories", &json!({"user_id": USER})).expect("a list");
    let memories = list["memories"].as_array().cloned().unwrap_or_default();
    memories.iter().map(|m| m["content"].as_str().unwrap_or_default().to_owned()).collect()
}

/// `strata ctl verify` says that nothing differs, once everything has arrived.
fn agrees(cluster: &Cluster) {
    let seen = strata_testkit::poll::blocking(Duration::from_secs(30), || {
        let output = strata(&["ctl", "--server", &cluster.url(), "verify"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.success() && text.contains(" 0 on their way, 0 differ")).then_some(())
    });
    seen.expect("index and records agree");
}

fn database(cluster: &Cluster) -> PathBuf {
    cluster.folder.path().join("all/longterm.sqlite")
}

fn comes_back(with_qdrant: bool) {
    let folder = tempfile::tempdir().expect("a folder");
    let backups = folder.path().join("backups");
    let mut cluster = Cluster::quick(with_qdrant, &[("STRATA_STORAGE__BACKUP_DIR", backups.display().to_string())]);
    (1..=3).for_each(|n| remember(&cluster, n));
    let request = json!({"request_id": "00000000-0000-4000-8000-000000000001"});
    let made = cluster.call("Backup", &request).expect("a backup");
    let file = PathBuf::from(made["path"].as_str().expect("a path"));
    assert!(file.starts_with(&backups) && file.exists(), "{made}");
    assert_eq!(made["bytes"].as_u64(), std::fs::metadata(&file).ok().map(|file| file.len()));
    assert_eq!((made["records"].as_u64(), made["revision"].as_u64()), (Some(3), Some(3)));
    let digest = std::fs::read_to_string(format!("{}.b3", file.display())).expect("a digest beside it");
    assert!(digest.starts_with(made["checksum"].as_str().expect("a checksum")), "{digest}");
    assert_eq!(cluster.call("Backup", &request).expect("the same one"), made);

    remember(&cluster, 4);
    assert_eq!(contents(&cluster).len(), 4);
    let (done, said) = cluster.restore(&file, &[]);
    assert!(!done && said.contains("in use"), "a server runs: {said}");
    assert_eq!(cluster.terminate("all", Duration::from_secs(25)), Some(0));

    let altered = folder.path().join("altered.sqlite");
    let mut bytes = std::fs::read(&file).expect("read");
    bytes.truncate(bytes.len() - 4096);
    std::fs::write(&altered, bytes).expect("written");
    let (done, said) = cluster.restore(&altered, &["--checksum", made["checksum"].as_str().expect("one")]);
    assert!(!done && said.contains("checksum"), "{said}");
    let (done, said) = cluster.restore(&altered, &[]);
    assert!(!done && said.contains(".b3"), "{said}");

    let (done, said) = cluster.restore(&file, &[]);
    assert!(done && said.contains("records      3") && said.contains("strata ctl verify"), "{said}");
    cluster.start("all");
    assert_eq!(contents(&cluster), ["badge number 177", "badge number 277", "badge number 377"]);
    remember(&cluster, 5);
    agrees(&cluster);
    let status = cluster.call("GetStatus", &json!({})).expect("a status");
    assert_eq!(status.pointer("/settings/longterm.index.state"), Some(&json!("complete")), "{status}");
    let recalled = cluster.call("Recall", &json!({"user_id": USER, "query": "badge number 277"})).expect("recalled");
    let first = recalled.pointer("/items/0/memory/content").and_then(Value::as_str);
    assert_eq!(first, Some("badge number 277"), "{recalled}");
}

#[test]
fn a_backup_of_a_running_server_comes_back_and_the_index_follows() {
    comes_back(false);
}

#[test]
fn a_backup_comes_back_and_the_server_with_the_vectors_follows() {
    comes_back(true);
}

#[test]
fn a_vector_server_with_a_key_is_reached_over_tls_only_with_its_authority() {
    let folder = tempfile::tempdir().expect("a folder");
    let ca = strata_testkit::tls::Authority::new("the vectors' authority");
    let server = ca.issue(2099);
    let ca_file = folder.path().join("ca.pem");
    std::fs::write(&ca_file, &ca.pem).expect("a file");
    for trusted in [true, false] {
        let double = strata_testkit::WireDouble::start_tls(&server.certificate, &server.key);
        double.require_key(Some("s3cret"));
        let authority = if trusted { ca_file.clone() } else { PathBuf::from("/dev/null") };
        let env = [("SSL_CERT_FILE", authority.display().to_string()), ("STRATA_QDRANT__API_KEY", "s3cret".to_owned())];
        let cluster = Cluster::quick_on(Some(double), &env);
        remember(&cluster, 1);
        let state = || {
            let status = cluster.call("GetStatus", &json!({})).expect("a status");
            let text = |name: &str| status["settings"][name].as_str().unwrap_or_default().to_owned();
            (text("longterm.index.state"), text("longterm.index.pending"))
        };
        let expected = |(state, pending): &(String, String)| match trusted {
            true => state == "complete" && pending == "0",
            false => state.starts_with("down:") && pending == "1",
        };
        let seen = strata_testkit::poll::blocking(Duration::from_secs(30), || expected(&state()).then_some(()));
        assert!(seen.is_ok(), "trusted: {trusted}, {:?}", state());
        let points: usize =
            cluster.qdrant.as_ref().map_or(0, |double| double.collections().iter().map(|name| double.points(name)).sum());
        assert_eq!(points, usize::from(trusted));
    }
}

#[test]
fn a_damaged_database_is_not_served_and_the_backup_brings_it_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut cluster = Cluster::quick(false, &[("STRATA_STORAGE__BACKUP_DIR", folder.path().display().to_string())]);
    (1..=40).for_each(|n| remember(&cluster, n));
    let made = cluster.call("Backup", &json!({})).expect("a backup");
    assert_eq!(cluster.terminate("all", Duration::from_secs(25)), Some(0));

    let path = database(&cluster);
    let mut bytes = std::fs::read(&path).expect("read");
    // Most of it, so that pages in use are hit wherever they are; not the header, which says what the file is.
    let (from, to) = (bytes.len() / 4, bytes.len() / 4 * 3);
    bytes[from..to].fill(0x5a);
    std::fs::write(&path, &bytes).expect("damaged");
    let mut refused = cluster.spawn("all");
    let line = refused.wait_for_line(Duration::from_secs(60), |line| line.starts_with("strata:"));
    assert!(line.contains("longterm.sqlite") && line.contains("damaged") && line.contains("strata restore"), "{line}");
    assert!(!refused.wait_exit(Duration::from_secs(25)).success());
    assert!(std::fs::read(&path).expect("read") == bytes, "left as it is");

    let (done, said) = cluster.restore(Path::new(made["path"].as_str().expect("a path")), &[]);
    assert!(done && said.contains("replaced-"), "{said}");
    cluster.start("all");
    assert_eq!(contents(&cluster).len(), 40);
    agrees(&cluster);
}

#[test]
fn c137_a_database_of_a_newer_program_is_refused_unchanged() {
    let mut cluster = Cluster::quick(false, &[]);
    remember(&cluster, 1);
    assert_eq!(cluster.terminate("all", Duration::from_secs(25)), Some(0));
    let path = database(&cluster);
    let insert = "INSERT INTO schema_migrations (version, name, checksum) VALUES (999, 'later', x'00');";
    // SQLite itself, so that nothing of ours is in the way.
    let sql = std::process::Command::new("python3")
        .args(["-c", "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.executescript(sys.argv[2]); c.close()"])
        .args([path.as_os_str(), insert.as_ref()])
        .status();
    assert!(sql.expect("python3").success());
    let before = std::fs::read(&path).expect("read");
    let mut refused = cluster.spawn("all");
    let line = refused.wait_for_line(Duration::from_secs(60), |line| line.starts_with("strata:"));
    assert!(line.contains("schema version 999") && line.contains("newer program"), "{line}");
    assert!(!refused.wait_exit(Duration::from_secs(25)).success());
    assert!(std::fs::read(&path).expect("read") == before, "unchanged");
}

#[test]
fn without_a_folder_there_are_no_backups_and_that_is_said() {
    let cluster = Cluster::quick(false, &[]);
    let refusal = cluster.call("Backup", &json!({})).expect_err("refused");
    assert!(refusal.contains("NOT_SERVED") && refusal.contains("storage.backup_dir"), "{refusal}");
}

#[test]
fn a_full_store_says_so_forgets_and_takes_writes_again_when_there_is_room() {
    let mut cluster = Cluster::quick(false, &[("STRATA_STORAGE__MAX_MB", "1".to_owned())]);
    let statement = |n: u32| {
        let text = format!("badge number {n}77 {}", "has a long description ".repeat(60));
        json!({"user_id": USER, "statement": {
            "kind": "KIND_FACT", "content": text.trim(), "source": "SOURCE_AUTHORITATIVE_SYSTEM", "source_quote": text.trim(),
            "source_ref": {"system_record": {"system": "hr", "record_id": format!("r{n}")}}, "trigger": "TRIGGER_SYNC"}})
    };
    let mut ids = Vec::new();
    let refusal = loop {
        match cluster.call("Remember", &statement(ids.len() as u32)) {
            Ok(stored) => ids.push(stored["result"]["memory"]["memory_id"].as_str().expect("an id").to_owned()),
            Err(refusal) => break refusal,
        }
        assert!(ids.len() < 400, "a megabyte is never full");
    };
    assert!(refusal.contains("STORE_FULL"), "{refusal}");
    let count = |cluster: &Cluster| {
        let list = cluster.call("ListMemories", &json!({"user_id": USER, "page_size": 1000})).expect("reads go on");
        list["memories"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(count(&cluster), ids.len(), "all that was acknowledged, nothing of what was refused");
    agrees(&cluster);
    assert_eq!(cluster.terminate("all", Duration::from_secs(25)), Some(0));
    cluster.set_env("STRATA_STORAGE__MAX_MB", "64");
    cluster.start("all");
    cluster.call("Remember", &statement(1_000)).expect("room again");
    assert_eq!(count(&cluster), ids.len() + 1);
    agrees(&cluster);
}
