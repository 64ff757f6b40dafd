//! The dependency picture of ARCHITECTURE.md, checked: an edge that is not in it fails here.

use std::{collections::BTreeMap, process::Command};

/// Crate, and the crates of the workspace it may depend on. Dev-dependencies may add `strata-testkit`, nothing else.
const ALLOWED: &[(&str, &[&str])] = &[
    ("strata-core", &[]),
    ("strata-api", &["strata-core"]),
    ("strata-text", &["strata-core"]),
    ("strata-runtime", &["strata-core", "strata-api"]),
    ("strata-working", &["strata-core", "strata-api", "strata-text", "strata-runtime"]),
    ("strata-session", &["strata-core", "strata-api", "strata-text", "strata-runtime"]),
    ("strata-longterm", &["strata-core", "strata-api", "strata-text", "strata-runtime"]),
    ("strata-router", &["strata-core", "strata-api", "strata-text", "strata-runtime"]),
    ("strata-testkit", &["strata-core"]),
    (
        "strata",
        &[
            "strata-core",
            "strata-api",
            "strata-text",
            "strata-runtime",
            "strata-working",
            "strata-session",
            "strata-longterm",
            "strata-router",
        ],
    ),
    // Proofs: the pure rules, and real routers over simulated layers.
    ("strata-model", &["strata-core", "strata-api", "strata-runtime", "strata-router", "strata-testkit"]),
    // It holds one role in its own process, for the rows that are of the role and not of the way to it.
    ("strata-load", &["strata-core", "strata-api", "strata-text", "strata-runtime", "strata-longterm", "strata-testkit"]),
];

/// Crates that must not appear below the pure core: it knows no IO, no async, no wire.
const NOT_IN_CORE: &[&str] = &["tokio", "tonic", "prost", "rusqlite", "redis", "rand", "chrono", "jiff"];

#[test]
fn every_edge_is_in_the_picture() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline", "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml"))
        .output()
        .expect("cargo metadata runs");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let allowed: BTreeMap<_, _> = ALLOWED.iter().copied().collect();
    let mut wrong = Vec::new();
    for package in metadata["packages"].as_array().expect("packages") {
        let name = package["name"].as_str().expect("a name");
        let Some(edges) = allowed.get(name) else {
            wrong.push(format!("{name} is not in the picture"));
            continue;
        };
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let target = dependency["name"].as_str().expect("a name");
            let dev = dependency["kind"].as_str() == Some("dev");
            if target.starts_with("strata") && !edges.contains(&target) && !(dev && target == "strata-testkit") {
                wrong.push(format!("{name} > {target}"));
            }
            if name == "strata-core" && !dev && NOT_IN_CORE.contains(&target) {
                wrong.push(format!("the pure core depends on {target}"));
            }
        }
    }
    assert!(wrong.is_empty(), "edges that are not in the picture: {wrong:#?}");
}
