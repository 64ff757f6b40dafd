//! `strata-bench eval`: plays public dialogues through the public RPCs of a running server and counts what came back.

mod dialogue;
mod metrics;
mod play;

use crate::process::{Embedder, Server, Site, connect};
use anyhow::{Context as _, Result, ensure};
use dialogue::{Dialogue, Reader};
use metrics::SetMetrics;
use serde_json::{Map, Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    path::{Path, PathBuf},
};
use strata_core::ports::IdSource as _;
use strata_runtime::{
    RpcChannel,
    ports::{RandomIds, Stopwatch},
};

/// Arguments of `eval`.
#[derive(clap::Args, Debug, Clone)]
pub struct EvalArgs {
    /// Folder with a subfolder of JSON Lines files for each set.
    pub dir: PathBuf,
    /// Where the numbers go.
    #[arg(long, default_value = "target/bench/eval.json")]
    pub out: PathBuf,
    /// Folder of this project's own sets; a set that `dir` has too is taken from there.
    #[arg(long, default_value = "tests/load/data")]
    pub own: PathBuf,
    /// Only these sets, comma-separated.
    #[arg(long, value_delimiter = ',')]
    pub sets: Vec<String>,
    /// A running server; without it one is started for this run.
    #[arg(long)]
    pub server: Option<String>,
    /// The strata executable; default: the one beside this one.
    #[arg(long)]
    pub binary: Option<PathBuf>,
    /// Folder of the built-in embedding model.
    #[arg(long, default_value = "models/use-multilingual-v3")]
    pub model_dir: PathBuf,
    /// Dialogues of each file at most.
    #[arg(long)]
    pub dialogues: Option<usize>,
    /// Without the two legs of the search alone.
    #[arg(long)]
    pub default_only: bool,
}

/// What a server searches with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leg {
    /// As it is set by default.
    Both,
    /// BM25 of the text alone.
    Words,
    /// Cosines alone.
    Vectors,
}

/// No neighbours, no weights of turns: what a leg finds by itself.
const PLAIN: &str =
    "neighbour_share = 0.0\ncontext_share = 0.0\nquestion_weight = 1.0\nother_speaker_weight = 1.0\nfloor = 0.0\n";

impl Leg {
    /// Sets on which each leg is measured alone: those whose questions name their evidence.
    const SETS: [&str; 3] = ["locomo", "beam", "paraphrase"];

    const fn prefix(self) -> &'static str {
        match self {
            Self::Both => "",
            Self::Words => "bm25/",
            Self::Vectors => "dense/",
        }
    }

    async fn server(self, site: &Site) -> Result<Server> {
        let vectors = if site.has_model() { Embedder::Builtin } else { Embedder::None };
        match self {
            Self::Both => Server::all_in_one(site, vectors).await,
            Self::Words => Server::all_in_one_with(site, Embedder::None, &format!("[policy.recall]\n{PLAIN}")).await,
            Self::Vectors => {
                let weight = "[policy.session]\nsearch_keyword_weight = 0.0\n[policy.recall]\nkeyword_weight = 0.0\n";
                Server::all_in_one_with(site, vectors, &format!("{weight}{PLAIN}")).await
            }
        }
    }
}

/// Plays every set, prints the table, writes the numbers.
///
/// # Errors
/// When the folder holds no set, a file is malformed, or the server refuses what no dialogue may cause.
pub async fn run(args: EvalArgs) -> Result<()> {
    let mut sets = sets(&args.dir, &args.own, &args.sets)?;
    let watch = Stopwatch::start();
    let mut results = Results::new();
    if let Some(url) = &args.server {
        let player = player(&connect(url)?, true);
        play(&args, &sets, Leg::Both, &player, &watch, &mut results).await?;
    } else {
        let scratch = args.out.parent().unwrap_or(Path::new(".")).join("scratch");
        let site = Site::new(args.binary.clone(), &args.model_dir, &scratch)?;
        for leg in [Leg::Both, Leg::Words, Leg::Vectors] {
            if leg != Leg::Both {
                sets.retain(|(name, _)| Leg::SETS.contains(&name.as_str()));
            }
            let needless = args.default_only || (leg == Leg::Vectors && !site.has_model());
            if sets.is_empty() || (leg != Leg::Both && needless) {
                continue;
            }
            let server = leg.server(&site).await?;
            let player = player(&server.channel, leg != Leg::Words && site.has_model());
            play(&args, &sets, leg, &player, &watch, &mut results).await?;
            server.stop();
        }
    }
    table(&results, &mut std::io::stdout().lock())
}

fn player(channel: &RpcChannel, has_vectors: bool) -> play::Player {
    // Users of their own for each run: a server that was used before holds nothing of them.
    play::Player::new(channel, RandomIds.next().simple().to_string()[..16].to_owned(), has_vectors)
}

async fn play(
    args: &EvalArgs,
    sets: &[(String, Vec<PathBuf>)],
    leg: Leg,
    player: &play::Player,
    watch: &Stopwatch,
    results: &mut Results,
) -> Result<()> {
    for (set, files) in sets {
        let mut metrics = SetMetrics::default();
        for file in files {
            let reader = Reader::open(file)?;
            for (number, dialogue) in reader.enumerate().take(args.dialogues.unwrap_or(usize::MAX)) {
                let dialogue: Dialogue = dialogue.with_context(|| format!("{}", file.display()))?;
                let begun = watch.elapsed();
                player
                    .play(set, &dialogue, &mut metrics)
                    .await
                    .with_context(|| format!("{}, {}", file.display(), dialogue.name))?;
                let took = (watch.elapsed() - begun).as_secs_f64();
                progress(&format!(
                    "[{:>4} s] {}{set} {} {}: {} steps in {took:.1} s",
                    watch.elapsed().as_secs(),
                    leg.prefix(),
                    number + 1,
                    dialogue.name,
                    dialogue.steps()
                ));
            }
        }
        let named = metrics.results().into_iter().map(|(name, value)| (format!("{}{name}", leg.prefix()), value));
        results.entry(set.clone()).or_default().extend(named);
        // After each set, so that a run that is cut short keeps what it has.
        write(results, &args.out)?;
    }
    Ok(())
}

fn progress(text: &str) {
    // Progress that nobody can read is no reason to stop.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// The sets of a folder and those of ours that it does not have: name, and files in order.
fn sets(dir: &Path, own: &Path, only: &[String]) -> Result<Vec<(String, Vec<PathBuf>)>> {
    let mut sets = folders(dir, only)?;
    if own.is_dir() {
        for (name, files) in folders(own, only)? {
            sets.entry(name).or_insert(files);
        }
    }
    let missing: Vec<_> = only.iter().filter(|name| !sets.contains_key(*name)).cloned().collect();
    ensure!(missing.is_empty(), "{} holds no set {}", dir.display(), missing.join(", "));
    ensure!(!sets.is_empty(), "{} holds no set: a folder with .jsonl files", dir.display());
    Ok(sets.into_iter().map(|(name, files)| (name, files.into_iter().collect())).collect())
}

fn folders(dir: &Path, only: &[String]) -> Result<BTreeMap<String, BTreeSet<PathBuf>>> {
    let mut sets: BTreeMap<String, BTreeSet<PathBuf>> = BTreeMap::new();
    for entry in std::fs::read_dir(dir).with_context(|| format!("{} cannot be read", dir.display()))? {
        let folder = entry?.path();
        if !folder.is_dir() {
            continue;
        }
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for file in std::fs::read_dir(&folder)? {
            let file = file?.path();
            if file.extension().is_some_and(|e| e == "jsonl") && (only.is_empty() || only.contains(&name)) {
                sets.entry(name.clone()).or_default().insert(file);
            }
        }
    }
    Ok(sets)
}

type Results = BTreeMap<String, BTreeMap<String, f64>>;

fn write(results: &Results, out: &Path) -> Result<()> {
    if let Some(folder) = out.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let rounded = |value: &f64| json!((value * 10_000.0).round() / 10_000.0);
    let json: Map<String, Value> = results
        .iter()
        .map(|(set, metrics)| {
            (set.clone(), Value::Object(metrics.iter().map(|(name, value)| (name.clone(), rounded(value))).collect()))
        })
        .collect();
    std::fs::write(out, serde_json::to_string_pretty(&json)? + "\n")
        .with_context(|| format!("{} cannot be written", out.display()))
}

fn table(results: &Results, out: &mut impl std::io::Write) -> Result<()> {
    for (set, metrics) in results {
        writeln!(out, "{set}")?;
        for (name, value) in metrics {
            let value = if value.fract() == 0.0 && value.abs() >= 2.0 { format!("{value:.0}") } else { format!("{value:.3}") };
            writeln!(out, "  {name:<44} {value:>10}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_folders_with_dialogue_files() {
        let dir = tempfile::tempdir().expect("a folder");
        for name in ["b", "a", "empty"] {
            std::fs::create_dir(dir.path().join(name)).expect("a folder");
        }
        for file in ["b/2.jsonl", "b/1.jsonl", "a/x.jsonl", "a/notes.md", "stray.jsonl"] {
            std::fs::write(dir.path().join(file), "").expect("a file");
        }
        let own = tempfile::tempdir().expect("a folder");
        for (name, file) in [("a", "ours.jsonl"), ("c", "ours.jsonl")] {
            std::fs::create_dir(own.path().join(name)).expect("a folder");
            std::fs::write(own.path().join(name).join(file), "").expect("a file");
        }
        let (none, dir, own) = (dir.path().join("none"), dir.path(), own.path());
        let found = sets(dir, &none, &[]).expect("sets");
        let names: Vec<_> = found.iter().map(|(name, files)| (name.as_str(), files.len())).collect();
        assert_eq!(names, [("a", 1), ("b", 2)]);
        assert!(found[1].1[0].ends_with("1.jsonl"));
        assert_eq!(sets(dir, &none, &["a".into()]).expect("one").len(), 1);
        assert!(sets(dir, &none, &["c".into()]).is_err());
        let both = sets(dir, own, &[]).expect("sets");
        assert_eq!(both.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert!(both[0].1[0].ends_with("x.jsonl"), "a set that the folder has is taken from there");
    }

    #[test]
    fn results_are_written_as_numbers_by_set_and_metric() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("deep/eval.json");
        let results = BTreeMap::from([("locomo".to_owned(), BTreeMap::from([("R@10".to_owned(), 2.0 / 3.0)]))]);
        write(&results, &path).expect("written");
        let read: Value = serde_json::from_str(&std::fs::read_to_string(&path).expect("a file")).expect("JSON");
        assert_eq!(read["locomo"]["R@10"], json!(0.6667));
        let mut out = Vec::new();
        table(&results, &mut out).expect("a buffer");
        assert!(String::from_utf8(out).expect("text").contains("0.667"));
    }
}
