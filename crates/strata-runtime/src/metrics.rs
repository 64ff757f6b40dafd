//! Every metric of the product, once: the table below makes the instruments, the page `docs/metrics.md`, and the names that
//! dashboards and alert rules may use. A metric that is not in it cannot be recorded.
//!
//! Labels are bounded sets: services, methods, codes, outcomes, stores, layers. Never a tenant, a user, an id or content.

pub use opentelemetry::KeyValue as Label;
use opentelemetry::metrics::{Counter, Gauge, Histogram, Meter, UpDownCounter};
use std::fmt::Write as _;
use std::sync::OnceLock;
use strata_core::policy::quota::Bound;

/// How a metric is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Grows only: read its rate.
    Counter,
    /// Goes up and down by what happens.
    UpDownCounter,
    /// As it was when it was last looked at.
    Gauge,
    /// A distribution.
    Histogram,
}

impl Kind {
    /// As the page says it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::UpDownCounter => "up-down counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }

    /// As Prometheus has it.
    #[must_use]
    pub const fn prometheus(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::UpDownCounter | Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// OpenTelemetry name.
    pub name: &'static str,
    /// How to read it.
    pub kind: Kind,
    /// Unit as OpenTelemetry spells it: `s`, `By`, `{call}`.
    pub unit: &'static str,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// What it says, in one sentence.
    pub help: &'static str,
    /// Which part of the product it belongs to.
    pub area: &'static str,
}

impl Metric {
    /// Its name at the Prometheus endpoint; of a histogram, without `_bucket`, `_sum` and `_count`.
    #[must_use]
    pub fn prometheus_name(&self) -> String {
        let mut name = self.name.replace('.', "_");
        // Units that Prometheus spells out; annotations such as {call} say nothing in a name.
        match self.unit {
            "s" => name.push_str("_seconds"),
            "By" => name.push_str("_bytes"),
            _ => {}
        }
        if self.kind == Kind::Counter {
            name.push_str("_total");
        }
        name
    }
}

/// Bounds of every histogram, in seconds: from a local call to the longest deadline.
const BOUNDARIES: [f64; 15] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];

macro_rules! instrument {
    (Counter) => { Counter<u64> };
    (UpDownCounter) => { UpDownCounter<i64> };
    (Gauge) => { Gauge<f64> };
    (Histogram) => { Histogram<f64> };
}

macro_rules! build {
    (Counter, $meter:ident, $name:literal) => {
        $meter.u64_counter($name)
    };
    (UpDownCounter, $meter:ident, $name:literal) => {
        $meter.i64_up_down_counter($name)
    };
    (Gauge, $meter:ident, $name:literal) => {
        $meter.f64_gauge($name)
    };
    (Histogram, $meter:ident, $name:literal) => {
        $meter.f64_histogram($name).with_boundaries(BOUNDARIES.to_vec())
    };
}

macro_rules! inventory {
    ($( $area:literal: { $( $field:ident: $kind:ident $name:literal, $unit:literal, [$($label:literal),*], $help:literal; )* } )*) => {
        /// Every metric, in the order of the page.
        pub const INVENTORY: &[Metric] = &[ $($(
            Metric { name: $name, kind: Kind::$kind, unit: $unit, labels: &[$($label),*], help: $help, area: $area },
        )*)* ];

        /// The instruments of a process, one per metric.
        #[derive(Clone, Debug)]
        pub struct Instruments { $($( #[doc = $help] pub $field: instrument!($kind), )*)* }

        impl Instruments {
            /// Instruments of `meter`.
            #[must_use]
            pub fn new(meter: &Meter) -> Self {
                Self { $($( $field: build!($kind, meter, $name).with_unit($unit).with_description($help).build(), )*)* }
            }
        }
    };
}

inventory! {
    "Calls": {
        rpc_calls: Counter "strata.rpc.calls", "{call}", ["strata.listener", "rpc.service", "rpc.method", "rpc.grpc.status_code"],
            "Calls that ended.";
        rpc_errors: Counter "strata.rpc.errors", "{call}",
            ["strata.listener", "rpc.service", "rpc.method", "rpc.grpc.status_code"],
            "Calls that ended with another status than OK.";
        rpc_seconds: Histogram "rpc.server.duration", "s",
            ["strata.listener", "rpc.service", "rpc.method", "rpc.grpc.status_code"],
            "Time from the head of the request to the end of the response.";
        rpc_in_flight: UpDownCounter "strata.rpc.in_flight", "{call}", ["strata.listener", "rpc.service", "rpc.method"],
            "Calls being served.";
        rpc_refused: Counter "strata.rpc.refused", "{call}", ["strata.listener", "reason"],
            "Calls that were answered before or instead of a handler: no credential, no role, no place, over a rate, out of time.";
        quota_refused: Counter "strata.quota.refused", "{call}", ["quota"],
            "Calls and records that a tenant's quota refused, by its name in the configuration.";
        answers_given_up: Counter "strata.rpc.given_up", "{call}", [],
            "Answers that were given up, since their caller did not take them in time.";
    }
    "Stores": {
        store_seconds: Histogram "strata.store.duration", "s", ["store", "operation", "outcome"],
            "Time of one operation of a store as its caller sees it, waiting for a place included.";
        store_up: Gauge "strata.store.up", "", ["store"],
            "1 while a store answers, 0 while it does not.";
        sqlite_queued: Gauge "strata.sqlite.queued", "{write}", ["database"],
            "Writes that wait for the writer of a database.";
        sqlite_bytes: Gauge "strata.sqlite.size", "By", ["database"],
            "Bytes of a database and its log on the disk.";
    }
    "Index": {
        outbox_rows: Gauge "strata.outbox.rows", "{row}", [],
            "Records the index has still to be told of.";
        outbox_age: Gauge "strata.outbox.age", "s", [],
            "Age of the oldest record the index has still to be told of; 0 when there is none.";
        index_up: Gauge "strata.index.up", "", [],
            "1 while the index took the last round, 0 while it did not.";
        embedder_up: Gauge "strata.embedder.up", "", [],
            "1 while the embedder made the last vectors, 0 while it did not.";
        reindex_left: Gauge "strata.index.rebuild.left", "{record}", [],
            "Records that a rebuild of the index has still to look at; 0 when none runs.";
        records: Gauge "strata.records", "{record}", [],
            "Records of every status in long-term memory.";
    }
    "Boards": {
        boards: Gauge "strata.boards", "{board}", [],
            "Task boards held by the process.";
        boards_bytes: Gauge "strata.boards.size", "By", [],
            "Bytes of all boards.";
        checkpoint_failing: Gauge "strata.checkpoint.failing", "s", [],
            "For how long the checkpoint store has refused; 0 while it works. A crash now loses that much.";
    }
    "Ownership and promotion": {
        ledger_up: Gauge "strata.ledger.up", "", [],
            "1 while the ledger answers, 0 while it does not: new claims of sessions are refused meanwhile.";
        ledger_backlog: Gauge "strata.ledger.backlog", "{claim}", [],
            "Claims and marks that wait for the ledger.";
        promotions: Counter "strata.promotions", "{promotion}", ["state"],
            "Promotions by the state they reached.";
        promotions_open: Gauge "strata.promotions.open", "{promotion}", [],
            "Promotions of the journal that are neither committed nor undone, 256 at most.";
    }
    "Observe and reviews": {
        observe_due: Gauge "strata.observe.due", "{user}", [],
            "Users whose observations wait to be worked off.";
        observe_waiting: Gauge "strata.observe.waiting", "{observation}", [],
            "Observations that wait, of the 64 users that are due first.";
        observe_age: Gauge "strata.observe.age", "s", [],
            "How long the longest waiting of them has waited; 0 when none waits.";
        reviews: Counter "strata.reviews", "{review}", ["verdict"],
            "Reviews of samples by people, by verdict: wrong ones over all are the pollution rate (rule Q2).";
    }
    "Memory": {
        gate_verdicts: Counter "strata.gate.verdicts", "{statement}", ["outcome", "rule"],
            "Statements that long-term memory judged, by outcome; of a refused one the first rule that refused.";
        recalled: Counter "strata.recall.items", "{item}", [],
            "Records that recalls and contexts answered.";
        recalls: Counter "strata.recall.calls", "{call}", ["outcome"],
            "Recalls by outcome: found, empty, degraded, off.";
        cited: Counter "strata.recall.cited", "{item}", [],
            "Recalled records that were reported as used for the first time (rule Q1: cited over recalled is the hit rate).";
        model_summaries: Counter "strata.summaries.model", "{summary}", ["memory", "outcome"],
            "Summaries that the summariser was asked for, by memory (session, longterm) and outcome: stored, refused (not true to what they are of), overtaken, failed.";
        maintenance: Counter "strata.maintenance.steps", "{step}", ["rule", "action", "state"],
            "Steps of maintenance over records by rule (F1 to F10, R11), action and state.";
        erasures: Counter "strata.erasures", "{erasure}", ["state"],
            "Erasures that were asked for (asked), and that were found nowhere again (closed).";
        erasures_open: Gauge "strata.erasures.open", "{erasure}", [],
            "Erasures that are not closed, some dozens at most: something they reach does not answer.";
        erasures_age: Gauge "strata.erasures.age", "s", [],
            "How long the oldest of them has been open; 0 when there is none.";
        context_tokens: Counter "strata.context.tokens", "{token}", ["section"],
            "Tokens of assembled contexts by section (rule Q3: memory over all is the token share).";
    }
    "Modes and configuration": {
        mode: Gauge "strata.mode", "", ["layer", "mode"],
            "1 for the mode a layer is in for every tenant, 0 for the others (rule D1).";
        mode_overrides: Gauge "strata.mode.overrides", "{tenant}", ["layer"],
            "Tenants for which an operator has switched something off.";
        config_reloads: Counter "strata.config.reloads", "{reload}", ["file", "outcome"],
            "Files taken over while the process runs: applied, or refused with the last good one in force.";
        config_refused: Gauge "strata.config.refused", "", ["file"],
            "1 while the file on the disk is refused and an older one is in force.";
        certificate_expires: Gauge "strata.tls.certificate.expires", "s", ["use"],
            "Seconds until the certificate in use expires; negative when it has.";
    }
    "Process": {
        build: Gauge "strata.build", "", ["version", "roles"],
            "1, with what runs as labels.";
        resident: Gauge "strata.process.resident_memory", "By", [],
            "Resident memory.";
        open_files: Gauge "strata.process.open_files", "{file}", [],
            "Open file descriptors.";
    }
}

static GLOBAL: OnceLock<Instruments> = OnceLock::new();

impl Instruments {
    /// Instruments of the process's meter. They record nothing unless telemetry was set up before the first use.
    #[must_use]
    pub fn global() -> &'static Self {
        GLOBAL.get_or_init(|| Self::new(&opentelemetry::global::meter("strata")))
    }

    /// A quota refused something.
    pub fn over_quota(&self, bound: Bound) {
        self.quota_refused.add(1, &[Label::new("quota", bound.name())]);
    }

    /// What became of a changed file.
    pub fn reloaded(&self, file: &'static str, applied: bool) {
        let outcome = if applied { "applied" } else { "refused" };
        self.config_reloads.add(1, &[Label::new("file", file), Label::new("outcome", outcome)]);
        self.config_refused.record(up(!applied), &[Label::new("file", file)]);
    }
}

/// A truth as a gauge shows it.
#[must_use]
pub const fn up(yes: bool) -> f64 {
    if yes { 1.0 } else { 0.0 }
}

/// The page of all metrics, in Markdown.
#[must_use]
pub fn page() -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         <!-- Made from crates/strata-runtime/src/metrics.rs: `UPDATE_DOCS=1 cargo test -p strata-runtime metrics`. -->\n\n\
         Exported by OTLP (`telemetry.otlp_endpoint`) and at `http://<telemetry.prometheus_listen>/metrics`. Labels hold no\n\
         tenant, user, id or content. In Prometheus the dots of label names are underscores. `strata.listener` is `public` (the\n\
         router's callers) or `internal` (a layer's).\n",
    );
    let mut area = "";
    for metric in INVENTORY {
        if metric.area != area {
            area = metric.area;
            let _ = write!(page, "\n## {area}\n\n| Prometheus | OpenTelemetry | kind | unit | labels | meaning |\n");
            page.push_str("|---|---|---|---|---|---|\n");
        }
        let labels = metric.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        let _ = writeln!(
            page,
            "| `{}` | `{}` | {} | {} | {labels} | {} |",
            metric.prometheus_name(),
            metric.name,
            metric.kind.name(),
            metric.unit,
            metric.help
        );
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_page_of_metrics_is_the_inventory() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, page()).expect("written");
        }
        let there = std::fs::read_to_string(path).unwrap_or_default();
        assert!(there == page(), "docs/metrics.md is not the inventory: run with UPDATE_DOCS=1");
    }

    #[test]
    fn names_are_unique_and_labels_are_no_ids() {
        let names: BTreeSet<_> = INVENTORY.iter().map(|metric| metric.prometheus_name()).collect();
        assert_eq!(names.len(), INVENTORY.len());
        for metric in INVENTORY {
            assert!(metric.help.ends_with('.') || metric.help.ends_with(')'), "{}", metric.name);
            for word in ["tenant", "user", "owner", "id", "key", "session", "task"] {
                assert!(!metric.labels.contains(&word), "{} must not be labelled with {word}", metric.name);
            }
        }
    }
}
