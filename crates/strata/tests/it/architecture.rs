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

/// Stores of graphs, and clients of them, by the names of their packages.
const GRAPH_STORES: &[&str] = &[
    "agdb",
    "arangors",
    "bolt-client",
    "bolt-proto",
    "cozo",
    "dgraph-tonic",
    "falkordb",
    "gremlin-client",
    "indradb",
    "indradb-lib",
    "kuzu",
    "lbug",
    "nebula-client",
    "neo4j",
    "neo4rs",
    "oxigraph",
    "rsmgclient",
    "sophia",
    "sparql-client",
    "spargebra",
    "surrealdb",
    "terminusdb-client",
    "typedb-driver",
];

/// Acceptance A214: vector plus relational is enough for version one. No crate of a graph store is built, in any form, and
/// relations between entities are rows.
#[test]
fn a214_there_is_no_graph_store() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let lock = std::fs::read_to_string(format!("{root}/Cargo.lock")).expect("Cargo.lock");
    let built: Vec<&str> = lock.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"')).collect();
    assert!(built.contains(&"rusqlite") && built.contains(&"qdrant-client"), "the lock file is read");
    let graphs: Vec<&str> = built.into_iter().filter(|name| GRAPH_STORES.contains(name)).collect();
    assert!(graphs.is_empty(), "{graphs:?}");
    let schema = strata_longterm::MIGRATIONS.iter().map(|migration| migration.sql).collect::<String>();
    assert!(schema.contains("CREATE TABLE relations"), "relations are rows of the records' own database");
}
