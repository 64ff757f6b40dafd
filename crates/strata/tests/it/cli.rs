//! The command line: what it teaches, and what it says when something is wrong.

use crate::cluster::strata;

fn refused(args: &[&str]) -> String {
    let output = strata(args);
    assert!(!output.status.success(), "{args:?} must fail");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn every_command_explains_itself() {
    for command in [
        &["--help"][..],
        &["serve", "--help"],
        &["replay", "--help"],
        &["ctl", "--help"],
        &["ctl", "recall", "--help"],
        &["ctl", "maintenance", "run", "--help"],
        &["restore", "--help"],
        &["config", "--help"],
    ] {
        let output = strata(command);
        assert!(output.status.success());
        assert!(output.stdout.len() > 200, "{command:?}");
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(strata(&["completions", shell]).status.success());
    }
}

#[test]
fn flags_of_the_server_stand_before_and_after_the_command() {
    // Nothing listens on port 1: the flags were understood when the server is what is missed.
    for args in [
        &["ctl", "--server", "http://127.0.0.1:1", "--timeout", "1", "backup"][..],
        &["ctl", "backup", "--server", "http://127.0.0.1:1", "--timeout", "1"],
        &["reindex", "--server", "http://127.0.0.1:1", "--timeout", "1"],
    ] {
        let error = refused(args);
        assert!(error.contains("http://127.0.0.1:1 does not answer"), "{args:?}: {error}");
    }
}

#[test]
fn credentials_may_stand_on_both_sides_of_the_command_and_are_checked_together() {
    let server = ["--server", "http://127.0.0.1:1", "--timeout", "1"];
    for command in [&["backup"][..], &["keys", "list"], &["maintenance", "dry-run"], &["mode"]] {
        for (before, after, says) in [
            (&["--api-key", "k"][..], &["--api-key-file", "f"][..], "--api-key and --api-key-file"),
            (&["--api-key-file", "f"], &["--api-key", "k"], "--api-key and --api-key-file"),
            (&["--certificate-file", "c"], &[], "--private-key-file"),
            (&[], &["--private-key-file", "k"], "--certificate-file"),
            (&["--certificate-file", "c"], &["--private-key-file", "k"], "https://"),
            (&["--private-key-file", "k"], &["--certificate-file", "c"], "https://"),
            (&["--api-key", "k"], &[], "http://127.0.0.1:1 does not answer"),
            (&[], &["--api-key", "k"], "http://127.0.0.1:1 does not answer"),
        ] {
            let args = [&["ctl"][..], &server, before, command, after].concat();
            let error = refused(&args);
            assert!(error.contains(says), "{args:?}: {error}");
        }
    }
}

#[test]
fn a_bad_setting_is_named_with_its_source() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |text: &str| {
        let path = folder.path().join("strata.toml");
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    for (text, named) in [
        ("[server]\nlisten = \"nowhere\"", "server.listen"),
        ("[server]\nport = 1", "server.port"),
        ("[server]\ngrace_seconds = 0", "server.grace_seconds"),
        ("[storage]\nmax_mb = 0", "storage.max_mb"),
        ("[qdrant]\nprefix = \"a-b/c\"", "qdrant.prefix"),
        ("[qdrant]\nreplicas = 0", "qdrant.replicas"),
        ("[policy.recall]\nfloor = -1.0", "policy.recall.floor"),
        ("[policy.forgetting]\npurge_days = 0", "policy.forgetting.purge_days"),
        ("[policy.forgetting.schedule]\nhour = 25", "policy.forgetting.schedule.hour"),
        ("[policy.forgetting.rules]\ndecay = \"maybe\"", "policy.forgetting.rules.decay"),
        ("[policy.context]\nmemory = 50", "policy.context"),
        ("[summariser]\nurl = \"http://127.0.0.1:1/v1\"", "summariser.model"),
        ("[summariser]\ntimeout_ms = 99", "summariser.timeout_ms"),
        ("[summariser]\nmax_tokens = 999", "summariser.max_tokens"),
        ("[summariser]\nconsolidation = \"perhaps\"", "summariser.consolidation"),
        ("roles = [\"router\"]", "signing_keys"),
        ("roles = [\"router\"]\nsigning_keys = \"k:00\"", "peers.working"),
        ("[working]\nshared = true", "working.shared"),
        ("[peers]\nworking = \"http://a:1, http://a:1\"", "peers.working"),
        ("[peers]\nworking = [\"https://a:1\", 7]", "peers.working"),
        ("roles = [\"session\"]\nsigning_keys = \"k:00\"", "server.internal_listen"),
        ("signing_keys = \"k:00\"\nsigning_keys_file = \"k\"", "signing_keys_file"),
        ("[auth.jwt]\nissuer = \"i\"\naudiences = [\"a\"]\njwks_stale_seconds = 1", "auth.jwt.jwks_stale_seconds"),
        ("[[auth.api_keys]]\nid = \"a\"\nhash = \"xyz\"\ntenant = \"t\"", "auth.api_keys[0].hash"),
    ] {
        let error = refused(&["config", "check", "--config", &write(text)]);
        assert!(error.contains(named), "{named} is not named in: {error}");
    }
    let error = refused(&["config", "check", "--config", "no-such-file.toml"]);
    assert!(error.contains("no-such-file.toml"), "{error}");
}

#[test]
fn what_the_client_commands_read_is_no_configuration() {
    for variable in ["STRATA_SERVER", "STRATA_API_KEY", "STRATA_CONFIG"] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_strata"))
            .args(["config", "print"])
            .env_clear()
            .env(variable, if variable == "STRATA_CONFIG" { "/dev/null" } else { "http://127.0.0.1:7420" })
            .output()
            .expect("strata runs");
        assert!(output.status.success(), "{variable}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_listener_open_to_strangers_is_refused_without_credentials() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = refused(&["serve", "--listen", "0.0.0.0:0", "--data-dir", &folder.path().display().to_string()]);
    assert!(error.contains("API keys") && error.lines().count() == 1, "{error}");
}

#[test]
fn the_printed_configuration_is_valid_and_shows_no_secret() {
    let output = strata(&["config", "print", "--redis-url", "redis://:hunter2@127.0.0.1/0"]);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success());
    assert!(text.contains("[policy") && !text.contains("hunter2"), "{text}");
}

#[test]
fn a_malformed_dialogue_is_named_by_file_and_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bad.jsonl");
    std::fs::write(&path, "{\"type\": \"meta\", \"dialogue\": \"d\"}\n{\"type\": \"trun\"}\n").expect("written");
    let error = refused(&["replay", &path.display().to_string()]);
    assert!(error.contains("bad.jsonl:2") && error.contains("trun"), "{error}");
}

#[test]
fn a_server_that_is_not_there_is_said_so() {
    for command in [&["health"][..], &["status"], &["recall", "--user", "ada", "tea"], &["export", "--user", "ada"]] {
        let error = refused(&[&["ctl", "--server", "http://127.0.0.1:9", "--timeout", "2"], command].concat());
        assert!(error.contains("http://127.0.0.1:9 does not answer") && error.contains("strata serve"), "{error}");
        assert!(!error.contains("retry"), "nothing was sent that could be doubled, and nothing changes by itself: {error}");
    }
}

#[test]
fn the_other_scheme_is_named_where_it_is_the_wrong_one() {
    // What each kind of server says to a client of the other: a page of HTTP, and an alert of TLS.
    for (scheme, answer, other) in
        [("https", &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "http://"), ("http", &[21, 3, 3, 0, 2, 2, 70][..], "https://")]
    {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                use std::io::{Read as _, Write as _};
                let mut stream = stream.expect("a connection");
                // Whether the client waits for it or has gone is all the same here.
                let _ = stream.read(&mut [0; 1_024]);
                let _ = stream.write_all(answer);
            }
        });
        for command in ["health", "status"] {
            let error = refused(&["ctl", "--server", &format!("{scheme}://{address}"), "--timeout", "5", command]);
            assert!(error.contains(&address) && error.contains("does not answer"), "{error}");
            assert!(error.contains(&format!("TLS is {other}")), "{error}");
        }
    }
}
