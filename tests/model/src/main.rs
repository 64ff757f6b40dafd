//! `make sim`: runs the simulation for many seeds and prints the first that breaks an invariant.
//!
//! `strata-sim [SEEDS] [FIRST]`: how many seeds (64), and where to begin (1). `STRATA_SIM_LOG=1` prints a run's log.

use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>());
    let seeds = args.next().and_then(Result::ok).unwrap_or(64);
    let first = args.next().and_then(Result::ok).unwrap_or(1);
    let mut out = std::io::stdout().lock();
    let (mut writes, mut committed, mut broken) = (0, 0, 0);
    for seed in first..first.saturating_add(seeds) {
        let report = strata_model::sim::run(seed, None);
        writes += report.writes + report.remembered;
        committed += report.committed;
        if std::env::var_os("STRATA_SIM_LOG").is_some() {
            let _ = out.write_all(report.log.as_bytes());
        }
        if !report.broken.is_empty() {
            broken += 1;
            let _ = writeln!(out, "seed {seed}: {:?}", report.broken);
        }
    }
    let _ = writeln!(out, "{seeds} seeds, {writes} writes, {committed} promotions committed, {broken} seeds broken");
    if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
