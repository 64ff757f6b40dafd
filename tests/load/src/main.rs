//! Measures Strata against the raw engines it stands on (`bench`), and plays public dialogues through it (`eval`).

mod agent;
mod bench;
mod echo;
mod eval;
mod generator;
mod limits;
mod process;
mod raw;
mod report;
mod role;
mod sizes;
mod stats;
mod year;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use std::{io::Write as _, net::SocketAddr, process::ExitCode};

/// Measures Strata against the raw engines it stands on, and plays public dialogues through it.
#[derive(Debug, Parser)]
#[command(name = "strata-bench", version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measures every row of limits.toml: ours and the raw engine, in turn, in one run.
    Bench(bench::BenchArgs),
    /// Plays public dialogues through a server and writes what was found, kept, stored and refused.
    Eval(eval::EvalArgs),
    /// Plays a year of daily talk with a moved clock and a run of maintenance every night; writes a chart.
    Year(year::YearArgs),
    /// Fills four processes with records and prints what they cost in memory and on disk.
    Sizes(sizes::SizesArgs),
    /// Serves the echo that is the raw engine of a call.
    #[command(hide = true)]
    Echo {
        /// Address.
        #[arg(long)]
        listen: SocketAddr,
        /// Passes calls on to this URL instead of answering them.
        #[arg(long)]
        forward: Option<String>,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // Nobody reads standard error: nothing is left to do.
            let _ = writeln!(std::io::stderr(), "strata-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<bool> {
    match command {
        // One thread: what the client costs is the same for both sides and does not take the servers' processors.
        Command::Bench(args) => client_runtime()?.block_on(bench::run(args)),
        Command::Eval(args) => client_runtime()?.block_on(eval::run(args)).map(|()| true),
        Command::Sizes(args) => client_runtime()?.block_on(sizes::run(args)).map(|()| true),
        Command::Year(args) => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("the async runtime")?;
            runtime.block_on(year::run(args)).map(|()| true)
        }
        Command::Echo { listen, forward } => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("the async runtime")?;
            runtime.block_on(echo::serve(listen, forward.as_deref())).map(|()| true)
        }
    }
}

fn client_runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("the async runtime")
}
