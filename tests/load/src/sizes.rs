//! What records cost: memory of each role, bytes of long-term memory's volume and of Redis, at several numbers of records, with real
//! processes. The table of `docs/operations.md` is its output.

use crate::{
    agent::Agent,
    process::{Cluster, Embedder, Site, resident_bytes},
};
use anyhow::{Context as _, Result, ensure};
use std::{io::Write as _, path::Path, path::PathBuf, time::Duration};
use strata_runtime::ports::pause;

/// Arguments of `sizes`.
#[derive(clap::Args, Debug, Clone)]
pub struct SizesArgs {
    /// Numbers of records to look at, growing, comma-separated.
    #[arg(long, value_delimiter = ',', default_value = "0,10000,100000")]
    pub records: Vec<u64>,
    /// Records of one user; each is said as a turn first, and quoted.
    #[arg(long, default_value_t = 1_000)]
    pub of_a_user: u64,
    /// The strata executable; default: the one beside this one.
    #[arg(long)]
    pub binary: Option<PathBuf>,
    /// Folder of the built-in embedding model.
    #[arg(long, default_value = "models/use-multilingual-v3")]
    pub model_dir: PathBuf,
    /// Folder for the stores.
    #[arg(long, default_value = "target/bench/scratch")]
    pub scratch: PathBuf,
}

/// Until what was freed is given back and what runs behind has ended.
const SETTLE: Duration = Duration::from_secs(5);

/// Roles in the order of the table.
const ROLES: [&str; 4] = ["router", "session", "working", "longterm"];

/// Fills a cluster and prints a row of the table for each number of records.
///
/// # Errors
/// When a process does not start or refuses a record; when standard output is gone.
pub async fn run(args: SizesArgs) -> Result<()> {
    ensure!(args.of_a_user > 0 && args.records.is_sorted(), "numbers of records must grow, and a user needs one");
    let site = Site::new(args.binary, &args.model_dir, &args.scratch)?;
    let embedder = if site.has_model() { Embedder::Builtin } else { Embedder::None };
    let cluster = Cluster::start_with(&site, embedder).await?;
    let agent = Agent::new(&cluster.channel);
    let mut out = std::io::stdout();
    writeln!(out, "| records | router | session | working | longterm | volume a record | Redis a turn |")?;
    writeln!(out, "|---|---|---|---|---|---|---|")?;
    let (empty_volume, empty_redis) = (size_of(&cluster.data("longterm"))?, cluster.redis.used_memory());
    let mut there = 0;
    for wanted in args.records {
        while there < wanted {
            let (user, first) = (format!("u{}", there / args.of_a_user), there % args.of_a_user);
            let more = (wanted - there).min(args.of_a_user - first);
            let outcomes = agent.remember_all(&user, first..first + more).await?;
            ensure!(outcomes.active() == more, "not every statement became a record: {:?}", outcomes.by_name);
            if embedder == Embedder::Builtin {
                agent.await_indexed(&user, outcomes.last.as_deref().context("a record")?).await?;
            }
            there += more;
        }
        pause(SETTLE).await;
        write!(out, "| {there} |")?;
        for role in ROLES {
            write!(out, " {} MB |", resident_bytes(cluster.pid(role)?)? / 1_000_000)?;
        }
        let each = |now: u64, before: u64| match there {
            0 => "-".to_owned(),
            there => format!("{} bytes", now.saturating_sub(before) / there),
        };
        let volume = size_of(&cluster.data("longterm"))?;
        writeln!(out, " {} | {} |", each(volume, empty_volume), each(cluster.redis.used_memory(), empty_redis))?;
    }
    Ok(())
}

/// Bytes of all files of a folder.
fn size_of(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder).with_context(|| format!("{}", folder.display()))? {
        let entry = entry?;
        let of = entry.metadata()?;
        bytes += if of.is_dir() { size_of(&entry.path())? } else { of.len() };
    }
    Ok(bytes)
}
