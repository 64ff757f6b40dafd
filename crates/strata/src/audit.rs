//! `strata audit`: looks at the audit of long-term memory in its file, which a server may have open.

use crate::{
    assemble::file_of,
    cli::{AuditArgs, AuditCommand, ServeArgs},
    config::Config,
};
use anyhow::{Context as _, Result};
use std::io::Write as _;
use std::process::ExitCode;
use strata_longterm::audit::{self, Chain};

/// Verifies the chain.
///
/// # Errors
/// When the file cannot be read.
pub fn run(args: &AuditArgs) -> Result<ExitCode> {
    let AuditCommand::Verify { source, data_dir, contains } = &args.command;
    let config = Config::load(&ServeArgs { source: source.clone(), data_dir: data_dir.clone(), ..ServeArgs::default() })?;
    let file = file_of(&config, "longterm");
    let chain = audit::verify(&file, contains.as_deref()).with_context(|| format!("{}", file.display()))?;
    let mut out = std::io::stdout().lock();
    match chain {
        Chain::Whole { entries, head, contains: found } => {
            writeln!(out, "{entries} entries, each follows from the one before it")?;
            writeln!(out, "last {head}")?;
            if found == Some(false) {
                writeln!(out, "the hash that was to be in it is not: the chain was made anew")?;
                return Ok(ExitCode::FAILURE);
            }
            Ok(ExitCode::SUCCESS)
        }
        Chain::Broken { problem } => {
            writeln!(out, "{problem}")?;
            Ok(ExitCode::FAILURE)
        }
    }
}
