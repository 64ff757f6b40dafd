//! The configuration file of a running server: `policy` and `modes` follow it, a bad file changes nothing.

use crate::cluster::{READY, free_port, model_dir, strata};
use crate::observability::metric;
use serde_json::{Value, json};
use std::{path::Path, time::Duration};
use strata_testkit::process::Child9;

/// As an editor does it: a new file takes the place of the old one.
fn rename(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).expect("written");
    std::fs::rename(&new, path).expect("renamed");
}

/// As a kubelet does it with a mounted ConfigMap: the file is a link through the link `..data`, which one rename turns to
/// a folder of the new version; the folder of the old one goes.
fn swap(path: &Path, text: &str) {
    use std::os::unix::fs::symlink;
    let mount = path.parent().expect("a folder");
    let (data, old) = (mount.join("..data"), std::fs::read_link(mount.join("..data")).ok());
    let name = format!("..{}", blake3::hash(text.as_bytes()).to_hex());
    std::fs::create_dir(mount.join(&name)).expect("a folder");
    std::fs::write(mount.join(&name).join("strata.toml"), text).expect("written");
    symlink(&name, mount.join("..data_tmp")).expect("a link");
    std::fs::rename(mount.join("..data_tmp"), data).expect("swapped");
    match old {
        Some(old) => std::fs::remove_dir_all(mount.join(old)).expect("removed"),
        None => symlink("..data/strata.toml", path).expect("a link"),
    }
}

fn propose(url: &str, n: u32) -> Result<Value, String> {
    let request = json!({"user_id": "u", "statement": {"kind": "KIND_FACT", "content": format!("The badge has the number {n}77."),
        "source": "SOURCE_MODEL_INFERENCE", "source_quote": format!("The badge has the number {n}77."), "trigger": "TRIGGER_DECISION_POINT"}});
    let output = strata(&["ctl", "--server", url, "call", "Propose", &request.to_string()]);
    if output.status.success() {
        return Ok(serde_json::from_slice(&output.stdout).expect("JSON"));
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a198_modes_and_policy_follow_the_file_without_a_restart() {
    follows(rename);
}

#[test]
fn a198_modes_and_policy_follow_a_mounted_config_map_through_its_swap() {
    follows(swap);
}

fn follows(write: impl Fn(&Path, &str)) {
    let folder = tempfile::tempdir().expect("a folder");
    let mount = folder.path().join("etc");
    std::fs::create_dir(&mount).expect("a folder");
    let config = mount.join("strata.toml");
    let port = std::net::TcpListener::bind(("127.0.0.1", 0)).and_then(|l| l.local_addr()).expect("a port").port();
    let metrics = free_port();
    let refused = || metric(metrics, "strata_config_refused", "file=\"config\"");
    let alarm =
        |on: f64| strata_testkit::poll::blocking(Duration::from_secs(30), || refused().filter(|seen| (seen - on).abs() < 0.5));
    let with = |rest: &str| {
        format!(
            "data_dir = {:?}\n[server]\nlisten = \"127.0.0.1:{port}\"\n[telemetry]\nprometheus_listen = \"127.0.0.1:{metrics}\"\n{rest}",
            folder.path().join("data").display().to_string()
        )
    };
    write(&config, &with(""));
    let mut server = Child9::of(env!("CARGO_BIN_EXE_strata"))
        .args(["serve", "--config", &config.display().to_string()])
        .clean_env()
        .env("STRATA_EMBEDDER__MODEL_DIR", model_dir())
        .spawn();
    server.wait_for_line(READY, |line| line.contains("ready"));
    let url = format!("http://127.0.0.1:{port}");
    propose(&url, 1).expect("NORMAL writes");

    let reloaded = |server: &mut Child9, times: usize| {
        let seen = strata_testkit::poll::blocking(Duration::from_secs(20), || {
            let lines = server.output(strata_testkit::process::Stream::Err);
            let lines = lines.into_iter().chain(server.output(strata_testkit::process::Stream::Out));
            (lines.filter(|line| line.contains("were reloaded")).count() >= times).then_some(())
        });
        seen.expect("the file is followed");
    };
    write(&config, &with("[modes]\nlongterm = \"WRITE_OFF\"\n"));
    reloaded(&mut server, 1);
    let refusal = propose(&url, 2).expect_err("WRITE_OFF refuses");
    assert!(refusal.contains("LAYER_WRITE_OFF"), "{refusal}");

    alarm(0.0).expect("nothing is wrong");
    // A bad file is refused as a whole: still WRITE_OFF, and whoever watches is told.
    write(&config, &with("[modes]\nlongterm = \"NORMAL\"\n[policy.recall]\nfloor = -1.0\n"));
    server.wait_for_line(Duration::from_secs(20), |line| line.contains("is refused"));
    assert!(propose(&url, 3).is_err());
    alarm(1.0).expect("the alarm is on");

    write(&config, &with("[modes]\nlongterm = \"NORMAL\"\n"));
    reloaded(&mut server, 2);
    propose(&url, 4).expect("NORMAL again");
    alarm(0.0).expect("the alarm is off");
    assert_eq!(server.terminate(Duration::from_secs(25)).code(), Some(0));
}
