//! What an operator sees: one trace of a call over all processes into the stores, log lines that carry its id, and metrics at
//! both ends that are the inventory and hold nobody's name.

use crate::cluster::{Cluster, ROLES, strata};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::time::Duration;
use strata_runtime::metrics::{INVENTORY, Kind};
use strata_testkit::otlp::{OtlpReceiver, Span};
use strata_testkit::poll;

const SOON: Duration = Duration::from_secs(30);
const SAID: &str = "From now on, always answer ZEBRA-17 in English.";
const USER: &str = "observed-user";

/// A call that is sent again, with the same request id, as long as that is safe: the machine may be busy.
fn call(cluster: &Cluster, rpc: &str, request: &Value) -> Value {
    let answer = poll::blocking(Duration::from_secs(120), || match cluster.call(rpc, request) {
        Ok(answer) => Some(answer),
        Err(refusal) if refusal.contains("retrying is safe") => None,
        Err(refusal) => panic!("{rpc}: {refusal}"),
    });
    answer.unwrap_or_else(|late| panic!("{rpc}: {late}"))
}

fn request_id(n: u32) -> String {
    format!("00000000-0000-4000-8000-{n:012}")
}

/// A turn, a memory of it, a recall.
fn story(cluster: &Cluster) {
    let turn =
        json!({"user_id": USER, "session_id": "s", "request_id": request_id(1), "turns": [{"role": "ROLE_USER", "text": SAID}]});
    let seq = call(cluster, "AppendTurns", &turn)["seqs"][0].clone();
    let statement = json!({"user_id": USER, "request_id": request_id(2), "statement": {"kind": "KIND_PREFERENCE", "content": SAID,
        "source": "SOURCE_USER_STATEMENT", "source_quote": SAID, "trigger": "TRIGGER_USER_REQUEST",
        "source_ref": {"turn": {"session_id": "s", "seq": seq}}}});
    call(cluster, "Remember", &statement);
    call(cluster, "Recall", &json!({"user_id": USER, "query": "answer in English"}));
    let task = json!({"user_id": USER, "task_id": "task-17", "request_id": request_id(3), "goal": {"sentence": "Do it.", "acceptance": "It is done."}});
    call(cluster, "CreateTask", &task);
}

/// Whether `span` stands below `above`.
fn below(spans: &BTreeMap<&str, &Span>, span: &Span, above: &Span) -> bool {
    let mut at = span;
    while let Some(parent) = spans.get(at.parent.as_str()) {
        if parent.id == above.id {
            return true;
        }
        at = parent;
    }
    false
}

#[test]
fn a201_a20_one_trace_id_goes_from_the_router_over_the_layers_into_the_stores() {
    let collector = OtlpReceiver::start();
    let env = [
        ("STRATA_TELEMETRY__OTLP_ENDPOINT", collector.url()),
        ("STRATA_TELEMETRY__FORMAT", "json".to_owned()),
        ("STRATA_TELEMETRY__FILTER", "info,strata_runtime=debug".to_owned()),
        ("STRATA_EMBEDDER__KIND", "none".to_owned()),
    ];
    let mut cluster = Cluster::four_with(&env, false);
    story(&cluster);
    let find = |spans: &[Span], service: &str, name: &str| {
        spans.iter().find(|span| span.service == service && span.name.ends_with(name)).cloned()
    };
    let remember = "LongTermMemoryService/Remember";
    let complete = poll::blocking(SOON, || {
        let spans = collector.spans();
        let roots = spans.iter().filter(|span| span.service == "strata-router" && span.name.ends_with(remember));
        // Of a call that was sent again, the one that came through.
        roots.cloned().find_map(|root| {
            let trace: Vec<Span> = spans.iter().filter(|span| span.trace == root.trace).cloned().collect();
            find(&trace, "strata-longterm", remember)?;
            find(&trace, "strata-session", "SessionMemoryService/GetTurns")?;
            find(&trace, "strata-longterm", "sqlite write")?;
            trace.iter().find(|span| span.service == "strata-session" && span.name.starts_with("redis "))?;
            Some((root, trace))
        })
    });
    let (root, trace) = complete.expect("a whole trace");
    let by_id: BTreeMap<&str, &Span> = trace.iter().map(|span| (span.id.as_str(), span)).collect();
    let of = |service: &str, name: &str| find(&trace, service, name).expect("looked for above");
    assert_eq!(root.parent, "");
    let (layer, quote) = (of("strata-longterm", remember), of("strata-session", "SessionMemoryService/GetTurns"));
    assert!(below(&by_id, &layer, &root) && below(&by_id, &quote, &root));
    assert!(below(&by_id, &of("strata-longterm", "sqlite write"), &layer), "router > layer > store");
    let redis = trace.iter().find(|span| span.service == "strata-session" && span.name.starts_with("redis ")).expect("above");
    assert!(below(&by_id, redis, &quote));

    let said = |span: &Span, name: &str| span.attributes.get(name).cloned().unwrap_or_default();
    assert_eq!(said(&layer, "gen_ai.operation.name"), "create_memory");
    assert_eq!(said(&layer, "gen_ai.memory.store.id"), "longterm");
    assert_eq!(said(&layer, "strata.mode"), "NORMAL");
    assert_eq!(said(&layer, "strata.tenant").len(), 16);
    let write = trace.iter().find(|span| !said(span, "strata.rules").is_empty()).expect("rules are named");
    assert_eq!(said(write, "db.system.name"), "sqlite");
    let searched = poll::blocking(SOON, || find(&collector.spans(), "strata-longterm", "LongTermMemoryService/Recall"));
    let searched = searched.expect("the recall");
    assert_eq!(said(&searched, "gen_ai.operation.name"), "search_memory");
    assert_eq!(said(&searched, "gen_ai.memory.record.count"), "1");
    let tasked = poll::blocking(SOON, || find(&collector.spans(), "strata-working", "WorkingMemoryService/CreateTask"));
    assert_eq!(said(&tasked.expect("the task"), "task_id"), "task-17");

    // A log line of each layer carries the same trace id.
    for role in ["router", "longterm", "session"] {
        let lines = cluster.lines(role);
        let line = lines.iter().find(|line| line.contains(&root.trace)).unwrap_or_else(|| panic!("{role}: {lines:#?}"));
        let line: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(
            line.pointer("/span/trace_id").or_else(|| line.pointer("/spans/0/trace_id")),
            Some(&json!(root.trace)),
            "{line}"
        );
    }
    for role in ROLES {
        assert_eq!(cluster.terminate(role, Duration::from_secs(25)), Some(0), "{role}");
    }
    let sent = collector.metrics();
    let known: BTreeSet<_> = INVENTORY.iter().map(|metric| metric.name.to_owned()).collect();
    assert!(sent.is_subset(&known), "not in the inventory: {:?}", sent.difference(&known));
    assert!(sent.contains("strata.rpc.calls") && sent.contains("strata.outbox.rows"), "{sent:?}");
    for secret in ["ZEBRA-17", USER, "which language"] {
        assert!(!collector.holds(secret), "{secret} was sent to the collector");
    }
}

pub fn scrape(port: u16) -> Option<String> {
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    Some(body.to_owned())
}

/// The value of a metric at the endpoint, of the first series that has this label.
pub fn metric(port: u16, name: &str, label: &str) -> Option<f64> {
    let text = scrape(port)?;
    let mut series = text.lines().filter(|line| line.starts_with(name) && line.contains(label));
    series.next()?.rsplit(' ').next()?.parse().ok()
}

#[test]
fn c034_c147_metrics_at_the_endpoint_are_the_inventory_and_name_nobody() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
    let cluster = Cluster::quick(
        false,
        &[
            ("STRATA_TELEMETRY__PROMETHEUS_LISTEN", format!("127.0.0.1:{port}")),
            ("STRATA_EMBEDDER__KIND", "none".to_owned()),
            ("STRATA_AUTH__LOCAL_TENANT", "observed-tenant".to_owned()),
        ],
    );
    story(&cluster);
    assert!(!strata(&["ctl", "--server", &cluster.url(), "--api-key", "wrong", "status"]).status.success());
    let text = poll::blocking(SOON, || scrape(port).filter(|text| text.contains("strata_outbox_rows"))).expect("metrics");
    let types: BTreeMap<&str, &str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    let known: BTreeMap<String, Kind> = INVENTORY.iter().map(|metric| (metric.prometheus_name(), metric.kind)).collect();
    for (name, kind) in &types {
        if *name == "target_info" {
            continue;
        }
        let metric = known.get(*name).unwrap_or_else(|| panic!("{name} is not in the inventory"));
        assert_eq!(metric.prometheus(), *kind, "{name}");
    }
    for name in [
        "strata_rpc_calls_total",
        "rpc_server_duration_seconds",
        "strata_store_duration_seconds",
        "strata_mode",
        "strata_gate_verdicts_total",
        "strata_recall_items_total",
        "strata_records",
        "strata_boards",
        "strata_build",
        "strata_process_resident_memory_bytes",
    ] {
        assert!(types.contains_key(name), "{name} is missing in\n{text}");
    }
    let line = |parts: &[&str]| text.lines().find(|line| parts.iter().all(|part| line.contains(part)));
    assert!(line(&["strata_rpc_calls_total", "strata_listener=\"public\"", "rpc_method=\"Recall\""]).is_some(), "{text}");
    assert!(line(&["strata_rpc_refused_total", "UNAUTHENTICATED"]).is_some(), "{text}");
    for secret in ["ZEBRA-17", USER, "observed-tenant", "task-17"] {
        assert!(!text.contains(secret), "{secret} is in the metrics");
    }
}
