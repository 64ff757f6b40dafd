//! `strata restore`: brings a backup of long-term memory back while no server runs.

use crate::{
    assemble::{file_of, redis_of, secret_of},
    cli::RestoreArgs,
    config::Config,
};
use anyhow::{Context as _, Result};
use std::io::Write as _;
use std::process::ExitCode;
use strata_core::policy::gate::Tombstones;
use strata_longterm::backup::{Erasures, restore};
use strata_longterm::erasure_log::LogCopy;
use strata_runtime::Ports;

/// Restores, and says what was done and what comes next.
///
/// # Errors
/// When the backup is not whole, or a server has the database open. The database is as it was then.
pub async fn run(args: &RestoreArgs) -> Result<ExitCode> {
    let config = Config::load(&args.serve())?;
    let target = file_of(&config, "longterm");
    let now = Ports::system().clock.now();
    let secret = secret_of(&config)?;
    let tombstones = Tombstones::new(&secret);
    let log = config.erasure_log();
    let copy = redis_of(&config)?.map(|pool| LogCopy::new(pool, &secret));
    let erasures = Erasures { log: &log, copy: copy.as_ref(), tombstones: &tombstones, accept_lost: args.accept_lost_erasures };
    let (restored, contents, replayed) = restore(&args.file, &target, args.checksum.as_deref(), &erasures, now)
        .await
        .with_context(|| format!("{} was not restored", args.file.display()))?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "restored     {}", restored.path.display())?;
    writeln!(out, "from         {}", args.file.display())?;
    writeln!(out, "records      {} (revision {}, schema {})", contents.records, contents.revision, restored.schema)?;
    writeln!(out, "generation   {}", restored.generation)?;
    writeln!(out, "erased again {} items of {} erasures ({})", replayed.removed, replayed.erasures, log.display())?;
    match &restored.kept {
        Some(kept) => writeln!(out, "replaced     {} (delete it when you no longer need it)", kept.display())?,
        None => writeln!(out, "replaced     nothing: there was no database")?,
    }
    writeln!(
        out,
        "\nWrites since the backup are gone; what was erased since then stays erased.\n\
         Next: start the server. It fills the search index again from the records; until then recall goes by keys and\n\
         words. `strata ctl status` shows how far it is, `strata ctl verify` whether index and records agree."
    )?;
    Ok(ExitCode::SUCCESS)
}
