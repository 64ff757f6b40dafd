//! `strata ctl export` and `strata ctl import`: a memory as JSONL, one line of the export a line of the file.

use crate::{
    cli::{ExportArgs, ExportWhat, ImportArgs, OwnerArgs},
    client::Api,
};
use anyhow::{Context as _, Result};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::{
    fs::{File, OpenOptions, Permissions},
    io::{BufRead as _, BufReader, BufWriter, Write},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
    process::ExitCode,
};

/// Shown on a terminal only; standard output is for the lines.
fn progress(lines: u64, what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {bar:30} {pos}/{len} lines, {elapsed}").expect("a valid template");
    ProgressBar::new(lines).with_style(style).with_message(what)
}

fn owned(owner: &OwnerArgs, mut request: Value) -> Value {
    request["user_id"] = json!(owner.user);
    request["agent_id"] = json!(owner.agent);
    request
}

/// Writes an export out. A file appears under its name when it is whole, and not before.
///
/// # Errors
/// When the server refuses, or the file cannot be written.
pub async fn export(api: &Api, args: &ExportArgs) -> Result<ExitCode> {
    let Some(path) = &args.output else {
        let lines = write(api, args, &mut std::io::stdout().lock()).await?;
        summary(lines)?;
        return Ok(ExitCode::SUCCESS);
    };
    let part = path.with_extension("part");
    let named = || format!("{}", part.display());
    // A memory is its user's: nobody else on the machine reads it.
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part).with_context(named)?;
    file.set_permissions(Permissions::from_mode(0o600)).with_context(named)?;
    let mut file = BufWriter::new(file);
    let written = write(api, args, &mut file).await;
    let synced = written.and_then(|lines| {
        file.flush().with_context(named)?;
        file.get_ref().sync_all().with_context(named)?;
        std::fs::rename(&part, path).with_context(|| format!("{}", path.display()))?;
        Ok(lines)
    });
    match synced {
        Ok(lines) => {
            summary(lines)?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            // What is there is not the memory; the error says why.
            let _ = std::fs::remove_file(&part);
            Err(error)
        }
    }
}

fn summary(lines: u64) -> Result<()> {
    writeln!(std::io::stderr(), "{lines} lines")?;
    Ok(())
}

async fn write(api: &Api, args: &ExportArgs, out: &mut impl Write) -> Result<u64> {
    let scope = match args.what {
        ExportWhat::Active => "EXPORT_SCOPE_ACTIVE",
        ExportWhat::History => "EXPORT_SCOPE_HISTORY",
        ExportWhat::All => "EXPORT_SCOPE_ALL",
    };
    let mut answers = api.download("ExportMemories", owned(&args.owner, json!({"scope": scope}))).await?;
    let bar = progress(0, "exporting");
    let mut lines = 0;
    while let Some(mut answer) = answers.next().await? {
        let mut line = answer["line"].take();
        // The same memory gives the same bytes: maps have no order of their own.
        line.sort_all_objects();
        if let Some(follow) = line.pointer("/header/lines").and_then(Value::as_u64) {
            bar.set_length(follow + 1);
        }
        serde_json::to_writer(&mut *out, &line)?;
        out.write_all(b"\n")?;
        lines += 1;
        bar.inc(1);
    }
    out.flush()?;
    bar.finish_and_clear();
    Ok(lines)
}

/// Reads a file whole, checks that every line is one, and only then sends it. The exit code is 1 when lines were refused.
///
/// # Errors
/// When the file cannot be read, a line is malformed (named by its number), or the server refuses the whole.
pub async fn import(api: &Api, args: &ImportArgs) -> Result<ExitCode> {
    let lines = read(api, &args.file)?;
    let mut first = owned(&args.owner, json!({"dry_run": args.dry_run, "remap": args.remap}));
    if let Some(id) = args.request_id {
        first["request_id"] = json!(id.to_string());
    }
    let bar = progress(lines.len() as u64, "importing");
    let sent = bar.clone();
    let mut messages = vec![api.encoded("ImportMemories", first)?];
    messages.extend(lines);
    let messages = futures::StreamExt::inspect(futures::stream::iter(messages), move |_| sent.inc(1));
    let answer = api.upload("ImportMemories", messages).await?;
    bar.finish_and_clear();
    let count = |name: &str| answer[name].as_u64().unwrap_or_default();
    let mut out = std::io::stdout().lock();
    let written = if args.dry_run { "judged, nothing was written" } else { "read" };
    writeln!(
        out,
        "{} lines {written}: {} added, {} merged, {} there already, {} refused",
        count("lines"),
        count("added"),
        count("merged"),
        count("known"),
        count("refused")
    )?;
    for refusal in answer["refusals"].as_array().into_iter().flatten() {
        writeln!(
            out,
            "line {}: {}: {}",
            refusal["line"],
            refusal["reason"].as_str().unwrap_or_default(),
            refusal["message"].as_str().unwrap_or_default()
        )?;
    }
    if answer["capped"] == json!(true) {
        writeln!(out, "more lines were refused than are listed")?;
    }
    Ok(if count("refused") == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn read(api: &Api, path: &Path) -> Result<Vec<Vec<u8>>> {
    let input: Box<dyn std::io::Read> = if path == Path::new("-") {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(File::open(path).with_context(|| format!("{}", path.display()))?)
    };
    let mut out = Vec::new();
    for (line, number) in BufReader::new(input).lines().zip(1_u64..) {
        let named = || format!("{}:{number}", path.display());
        let line: Value = serde_json::from_str(&line.with_context(named)?).with_context(named)?;
        out.push(api.encoded("ImportMemories", json!({"line": line})).with_context(named)?);
    }
    Ok(out)
}
