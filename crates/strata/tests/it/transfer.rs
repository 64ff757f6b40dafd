//! `strata ctl export` and `import`: from one deployment into another, as files.

use crate::cluster::{Cluster, strata};
use serde_json::json;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Output;

fn ctl(cluster: &Cluster, args: &[&str]) -> Output {
    let url = cluster.url();
    let all: Vec<&str> = ["ctl", "--server", &url].into_iter().chain(args.iter().copied()).collect();
    strata(&all)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn export(cluster: &Cluster, user: &str, to: &Path) -> Output {
    ctl(cluster, &["export", "--user", user, "--output", &to.display().to_string()])
}

fn import(cluster: &Cluster, user: &str, from: &Path, more: &[&str]) -> Output {
    let file = from.display().to_string();
    let args: Vec<&str> = ["import", "--user", user, &file].into_iter().chain(more.iter().copied()).collect();
    ctl(cluster, &args)
}

#[test]
fn c158_c161_a_memory_travels_as_jsonl_between_deployments() {
    let (here, there) = (Cluster::all_in_one(), Cluster::four(false));
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    for (n, words) in
        ["From now on, my cost centre is A-100.", "以后请用中文回复我。", "Remember that I never eat pork 🐷."].iter().enumerate()
    {
        let turn = json!({"user_id": "ada", "session_id": "s", "turns": [{"role": "ROLE_USER", "text": words}]});
        here.call("AppendTurns", &turn).expect("appended");
        let statement = json!({"user_id": "ada", "statement": {"kind": "KIND_PREFERENCE", "content": words, "source_quote": words,
            "source": "SOURCE_USER_STATEMENT", "source_ref": {"turn": {"session_id": "s", "seq": n + 1}}, "trigger": "TRIGGER_USER_REQUEST"}});
        here.call("Remember", &statement).expect("remembered");
    }
    let first = export(&here, "ada", &path("first.jsonl"));
    assert!(first.status.success(), "{}", text(&first.stderr));
    assert!(!path("first.part").exists());
    let mode = std::fs::metadata(path("first.jsonl")).expect("the file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "nobody else on the machine reads it");
    let file = std::fs::read_to_string(path("first.jsonl")).expect("the file");
    assert_eq!(file.lines().count(), 4);
    assert!(file.lines().next().is_some_and(|line| line.contains("\"format\":1") && line.contains("\"ACTIVE\":3")), "{file}");

    let trial = import(&there, "ada", &path("first.jsonl"), &["--dry-run"]);
    assert!(trial.status.success() && text(&trial.stdout).contains("nothing was written: 0 added"), "{trial:?}");
    let done = import(&there, "ada", &path("first.jsonl"), &[]);
    assert!(text(&done.stdout).starts_with("4 lines read: 3 added, 0 merged, 0 there already, 0 refused"), "{done:?}");
    let second = export(&there, "ada", &path("second.jsonl"));
    assert!(second.status.success(), "{}", text(&second.stderr));
    assert_eq!(file, std::fs::read_to_string(path("second.jsonl")).expect("the file"), "to the byte");
    let again = import(&there, "ada", &path("first.jsonl"), &[]);
    assert!(text(&again.stdout).contains("0 added, 0 merged, 3 there already"), "{again:?}");
    let piped = ctl(&there, &["export", "--user", "ada", "--what", "active"]);
    assert_eq!(text(&piped.stdout).lines().count(), 4);

    // A malformed line is named before anything is sent, a refused one by the server; nobody takes another's file by mistake.
    let broken: String =
        file.lines().enumerate().map(|(n, line)| if n == 2 { "{\"memory\"\n".into() } else { format!("{line}\n") }).collect();
    std::fs::write(path("broken.jsonl"), broken).expect("written");
    let refused = import(&there, "ada", &path("broken.jsonl"), &[]);
    assert!(!refused.status.success() && text(&refused.stderr).contains("broken.jsonl:3"), "{refused:?}");
    std::fs::write(path("secret.jsonl"), file.replacen("🐷", "and my password is hunter2secret!", 2)).expect("written");
    let refused = import(&there, "eve", &path("secret.jsonl"), &["--remap"]);
    assert_eq!(refused.status.code(), Some(1));
    let shown = text(&refused.stdout);
    assert!(shown.contains("line 4: GATE_PII") && !shown.contains("hunter2"), "{shown}");
    let foreign = import(&there, "eve", &path("first.jsonl"), &[]);
    assert!(!foreign.status.success() && text(&foreign.stderr).contains("remap"), "{foreign:?}");
    let unary = ctl(&there, &["call", "ExportMemories", "{}"]);
    assert!(text(&unary.stderr).contains("is a stream"), "{unary:?}");
}
