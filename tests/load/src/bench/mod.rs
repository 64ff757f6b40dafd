//! `strata-bench bench`: starts what it needs, measures each row, writes the report.

mod context;
mod hops;
pub(crate) mod local;
mod longterm;
mod memory;
mod overload;
mod qdrant;
mod session;

use crate::{
    limits::{self, Limits},
    process::{Cluster, Embedder, Server, Site, has_redis},
    report::{Measured, Row, Verdict, write_json, write_table},
};
use anyhow::{Context as _, Result, bail, ensure};
use std::{collections::BTreeSet, future::Future, io::Write as _, path::PathBuf, pin::Pin, time::Duration};
use strata_runtime::ports::Stopwatch;

/// Arguments of `bench`.
#[derive(clap::Args, Debug, Clone)]
pub struct BenchArgs {
    /// The long rows too.
    #[arg(long)]
    pub full: bool,
    /// Only these rows, comma-separated.
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// Folder of the report.
    #[arg(long, default_value = "target/bench")]
    pub out: PathBuf,
    /// The strata executable; default: the one beside this one.
    #[arg(long)]
    pub binary: Option<PathBuf>,
    /// Folder of the built-in embedding model.
    #[arg(long, default_value = "models/use-multilingual-v3")]
    pub model_dir: PathBuf,
    /// Exit with 1 when a row fails its limit.
    #[arg(long)]
    pub gate: bool,
}

/// Time for all rows of a run without --full: the promise is five minutes, the rest is for ending.
const BUDGET: Duration = Duration::from_secs(285);
/// Time for one row of a run without --full: one that hangs must not take the others'.
const ROW: Duration = Duration::from_secs(100);
/// Time for one row of a full run.
const LONG_ROW: Duration = Duration::from_secs(3_600);

/// The rows in the order of the report.
const ORDER: &[&str] = &[
    "start_to_ready",
    "get_task_tcp",
    "local_call",
    "routed_hop",
    "append_turns_redis",
    "get_window_redis",
    "remember_durable",
    "remember_64_writers",
    "recall_exact_1k",
    "recall_exact_10k",
    "recall_qdrant",
    "recall_growth",
    "assemble_12",
    "maintenance_live",
    "overload_3x",
    "embed_builtin",
    "board_memory",
    "get_task_growth",
    "rss_router",
    "rss_all_in_one",
];

/// A row being measured.
type Measuring<'a> = Pin<Box<dyn Future<Output = Result<Measured>> + 'a>>;

/// A run: what is wanted, and what is known so far.
struct Bench {
    site: Site,
    limits: Limits,
    wanted: BTreeSet<String>,
    full: bool,
    watch: Stopwatch,
    rows: Vec<Row>,
}

/// Measures, prints the table, writes the report. Answers false when a row fails its limit and that was asked for.
///
/// # Errors
/// When nothing can be measured at all, or the report cannot be written.
pub async fn run(args: BenchArgs) -> Result<bool> {
    let limits = limits::shipped()?;
    if let Some(unknown) = args.only.iter().find(|name| !limits.contains_key(*name)) {
        bail!("there is no row {unknown}; there are {}", ORDER.join(", "));
    }
    debug_assert!(ORDER.iter().all(|name| limits.contains_key(*name)) && ORDER.len() == limits.len());
    let wanted = ORDER
        .iter()
        .filter(|name| args.only.is_empty() || args.only.iter().any(|o| o == *name))
        .map(|n| (*n).to_owned())
        .collect();
    let site = Site::new(args.binary, &args.model_dir, &args.out.join("scratch"))?;
    let mut bench = Bench { site, limits, wanted, full: args.full, watch: Stopwatch::start(), rows: Vec::new() };
    bench.measure().await;
    bench.rows.sort_by_key(|row| ORDER.iter().position(|name| *name == row.name));
    write_table(&bench.rows, &mut std::io::stdout().lock())?;
    write_json(&bench.rows, &args.out)?;
    ensure!(!bench.rows.is_empty(), "no row was asked for");
    Ok(!(args.gate && bench.rows.iter().any(|row| row.verdict() == Verdict::Fail)))
}

impl Bench {
    async fn measure(&mut self) {
        self.row("local_call", Box::pin(local::call())).await;
        let site = self.site.clone();
        self.row("embed_builtin", Box::pin(local::embed(&site))).await;
        self.row("recall_exact_1k", Box::pin(longterm::recall(&site, 1_000))).await;
        self.row("recall_exact_10k", Box::pin(longterm::recall(&site, 10_000))).await;
        self.all_in_one().await;
        self.durable().await;
        self.cluster().await;
        self.row("board_memory", Box::pin(memory::boards(&site))).await;
        self.row("get_task_growth", Box::pin(memory::growth(&site))).await;
        self.row("recall_qdrant", Box::pin(qdrant::recall(&site))).await;
        if self.full {
            self.row("recall_growth", Box::pin(longterm::growth(&site))).await;
            self.row("maintenance_live", Box::pin(longterm::maintenance(&site))).await;
        } else {
            self.absent("recall_growth", "a long row: run with --full");
            self.absent("maintenance_live", "a long row: run with --full");
        }
    }

    /// The server as it comes: every role in one process, embedded stores, the built-in model.
    async fn all_in_one(&mut self) {
        let names = ["start_to_ready", "rss_all_in_one", "get_task_tcp", "assemble_12", "overload_3x"];
        if !self.wants(&names) {
            return;
        }
        let site = self.site.clone();
        if !site.has_model() {
            for name in names {
                self.absent(name, &format!("the embedding model is not in {}: make model", site.model_dir.display()));
            }
            return;
        }
        self.row("start_to_ready", Box::pin(memory::start(&site))).await;
        let server = match Server::all_in_one(&site, Embedder::Builtin).await {
            Ok(server) => server,
            Err(error) => return self.broken(&names, &error),
        };
        // First, while it has served nothing.
        self.row(
            "rss_all_in_one",
            Box::pin(memory::idle(
                server.pid(),
                "all roles in one process, embedded stores, built-in model loaded, before any call",
            )),
        )
        .await;
        self.row("get_task_tcp", Box::pin(hops::get_task(&site, &server))).await;
        self.row("assemble_12", Box::pin(context::assemble(&server))).await;
        self.row("overload_3x", Box::pin(overload::three_times(&server))).await;
        server.stop();
    }

    /// Durable writes: every role in one process, no embedder.
    async fn durable(&mut self) {
        let names = ["remember_durable", "remember_64_writers"];
        if !self.wants(&names) {
            return;
        }
        let site = self.site.clone();
        let server = match Server::all_in_one(&site, Embedder::None).await {
            Ok(server) => server,
            Err(error) => return self.broken(&names, &error),
        };
        self.row("remember_durable", Box::pin(longterm::remember_durable(&site, &server))).await;
        self.row("remember_64_writers", Box::pin(longterm::remember_64_writers(&server))).await;
        server.stop();
    }

    /// Four processes over Redis.
    async fn cluster(&mut self) {
        let names = ["rss_router", "routed_hop", "append_turns_redis", "get_window_redis"];
        if !self.wants(&names) {
            return;
        }
        if !has_redis() {
            for name in names {
                self.absent(name, "redis-server is not installed");
            }
            return;
        }
        let site = self.site.clone();
        let cluster = match Cluster::start(&site).await {
            Ok(cluster) => cluster,
            Err(error) => return self.broken(&names, &error),
        };
        let idle = async {
            let measured = memory::idle(
                cluster.pid("router")?,
                "router process of four, configured with the built-in embedder, before any call",
            );
            measured.await
        };
        self.row("rss_router", Box::pin(idle)).await;
        self.row("routed_hop", Box::pin(hops::routed(&site, &cluster))).await;
        self.row("append_turns_redis", Box::pin(session::append(&site, &cluster))).await;
        self.row("get_window_redis", Box::pin(session::window(&site, &cluster))).await;
    }

    fn wants(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.wanted.contains(*name))
    }

    /// Measures a row if it is wanted, what it needs is there, and there is time.
    async fn row(&mut self, name: &str, measuring: Measuring<'_>) {
        if !self.wanted.contains(name) {
            return;
        }
        if let Some(need) = self.limits.get(name).and_then(|l| l.needs.clone())
            && !available(&need)
        {
            return self.absent(name, &format!("needs {need}"));
        }
        let left = if self.full { LONG_ROW } else { BUDGET.saturating_sub(self.watch.elapsed()).min(ROW) };
        self.progress(&format!("{name} ..."));
        let outcome = match tokio::time::timeout(left, measuring).await {
            Ok(Ok(measured)) => Ok(measured),
            Ok(Err(error)) => Err(format!("{error:#}")),
            Err(_) => Err(format!("not done within {} s", left.as_secs())),
        };
        self.push(name, outcome);
    }

    /// A row that cannot be measured here.
    fn absent(&mut self, name: &str, why: &str) {
        if self.wanted.contains(name) {
            self.push(name, Err(why.to_owned()));
        }
    }

    /// Rows whose server did not start.
    fn broken(&mut self, names: &[&str], error: &anyhow::Error) {
        for name in names {
            if self.rows.iter().all(|row| row.name != *name) {
                self.absent(name, &format!("{error:#}"));
            }
        }
    }

    fn push(&mut self, name: &str, outcome: Result<Measured, String>) {
        let Some(limit) = self.limits.get(name) else { return };
        let row = Row { name: name.to_owned(), bound: limit.bound, outcome };
        let value = row.value().map_or_else(String::new, |v| format!(" {v:.2} of {}", limit.bound.parts().1));
        self.progress(&format!("{name}: {:?}{value}", row.verdict()));
        self.rows.push(row);
    }

    fn progress(&self, text: &str) {
        // Progress that nobody can read is no reason to stop.
        let _ = writeln!(std::io::stderr(), "[{:>4} s] {text}", self.watch.elapsed().as_secs());
    }
}

/// Whether what a row needs is there: `redis`, or an environment variable that is set.
fn available(need: &str) -> bool {
    if need == "redis" { has_redis() } else { std::env::var_os(need).is_some_and(|v| !v.is_empty()) }
}

/// The value of an environment variable that a row needs.
fn environment(name: &str) -> Result<String> {
    std::env::var(name).with_context(|| format!("needs {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_has_a_row_and_every_row_a_limit() {
        let limits = limits::shipped().expect("the shipped limits");
        let rows: BTreeSet<&str> = ORDER.iter().copied().collect();
        assert_eq!(rows, limits.keys().map(String::as_str).collect());
    }

    #[tokio::test]
    async fn a_row_that_breaks_or_lacks_its_engine_is_not_measured() {
        let site = Site { binary: "a".into(), myself: "b".into(), model_dir: "c".into(), scratch: "d".into() };
        let limits = limits::parse("[a]\nmax_mb = 1\n[b]\nmax_mb = 1\nneeds = \"STRATA_BENCH_NEVER_SET\"\n").expect("limits");
        let wanted = ["a", "b"].map(str::to_owned).into();
        let mut bench = Bench { site, limits, wanted, full: false, watch: Stopwatch::start(), rows: Vec::new() };
        bench.row("a", Box::pin(async { bail!("it broke") })).await;
        bench.row("b", Box::pin(async { Ok(Measured::amount(0.5, 1, "")) })).await;
        bench.row("c", Box::pin(async { Ok(Measured::amount(0.5, 1, "")) })).await;
        let seen: Vec<_> = bench.rows.iter().map(|r| (r.name.as_str(), r.verdict(), r.outcome.clone().unwrap_err())).collect();
        assert_eq!(
            seen,
            [
                ("a", Verdict::NotMeasured, "it broke".to_owned()),
                ("b", Verdict::NotMeasured, "needs STRATA_BENCH_NEVER_SET".to_owned())
            ]
        );
    }
}
