//! `strata ctl maintenance` and `strata ctl rescan`: what forgets by itself, run now or only listed.

use crate::{cli::MaintenanceArgs, client::Api};
use anyhow::Result;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    io::{BufWriter, Write},
    process::ExitCode,
};

/// Runs it, or lists what a run would do: a line per record, then the sums.
///
/// # Errors
/// When the server refuses, or standard output is closed.
pub async fn run(api: &Api, args: &MaintenanceArgs, dry_run: bool) -> Result<ExitCode> {
    let request = json!({"dry_run": dry_run, "user_id": args.user, "rules": args.rules});
    list(api, "strata.admin.v1.AdminService/RunMaintenance", request, dry_run).await
}

async fn list(api: &Api, method: &str, request: Value, dry_run: bool) -> Result<ExitCode> {
    let mut out = BufWriter::new(std::io::stdout());
    let mut answers = api.download(method, request).await?;
    let (mut sums, mut expiry_only): (BTreeMap<(String, String, String), u64>, bool) = (BTreeMap::new(), false);
    while let Some(answer) = answers.next().await? {
        for step in answer["steps"].as_array().into_iter().flatten() {
            writeln!(out, "{}", line(step))?;
        }
        for total in answer["totals"].as_array().into_iter().flatten() {
            let kind = (
                word(total, "rule", ""),
                word(total, "action", "MAINTENANCE_ACTION_"),
                word(total, "state", "MAINTENANCE_STATE_"),
            );
            *sums.entry(kind).or_default() += total["count"].as_u64().unwrap_or_default();
        }
        expiry_only |= answer["expiry_only"].as_bool().unwrap_or_default();
    }
    for ((rule, action, state), count) in &sums {
        writeln!(out, "{rule:<4} {action:<9} {state:<9} {count}")?;
    }
    if sums.is_empty() {
        writeln!(out, "nothing to do")?;
    }
    if expiry_only {
        writeln!(out, "the mode of long-term memory allows expiry only")?;
    }
    if dry_run && !sums.is_empty() {
        writeln!(out, "nothing was changed; without the dry run it is")?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// `ctl rescan`.
///
/// # Errors
/// As [`run`].
pub async fn rescan(api: &Api, user: &str, dry_run: bool) -> Result<ExitCode> {
    let mut out = BufWriter::new(std::io::stdout());
    let request = json!({"dry_run": dry_run, "user_id": user});
    let mut answers = api.download("strata.admin.v1.AdminService/Rescan", request).await?;
    let mut sums = [0; 3];
    while let Some(answer) = answers.next().await? {
        for step in answer["steps"].as_array().into_iter().flatten() {
            writeln!(out, "{}", line(step))?;
        }
        for (sum, field) in sums.iter_mut().zip(["records", "quarantined", "kept"]) {
            *sum += answer[field].as_u64().unwrap_or_default();
        }
    }
    let [records, quarantined, kept] = sums;
    let became = if dry_run { "would become candidates" } else { "became candidates" };
    writeln!(out, "{records} records judged, {quarantined} {became}, {kept} are kept by rule F8")?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn word(of: &Value, field: &str, prefix: &str) -> String {
    of[field].as_str().unwrap_or_default().trim_start_matches(prefix).to_owned()
}

/// `id  user/agent  F4 MOVE DONE  ACTIVE > ARCHIVED  why`.
fn line(step: &Value) -> String {
    let text = |field: &str| step[field].as_str().unwrap_or_default();
    let owner = if text("agent_id").is_empty() {
        text("user_id").to_owned()
    } else {
        format!("{}/{}", text("user_id"), text("agent_id"))
    };
    let status = |field: &str| match word(step, field, "STATUS_") {
        unset if unset == "UNSPECIFIED" || unset.is_empty() => "-".to_owned(),
        name => name,
    };
    let kept_by = if text("kept_by").is_empty() { String::new() } else { format!(" [{}]", text("kept_by")) };
    let related = step["related"].as_array().map_or(0, Vec::len);
    let of = match related {
        0 => String::new(),
        1 => format!("  with {}", step["related"][0].as_str().unwrap_or_default()),
        many => format!("  of {many} records"),
    };
    format!(
        "{}  {owner}  {} {} {}  {} > {}  {}{kept_by}{of}",
        text("memory_id"),
        text("rule"),
        word(step, "action", "MAINTENANCE_ACTION_"),
        word(step, "state", "MAINTENANCE_STATE_"),
        status("status_before"),
        status("status_after"),
        text("because"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_one_line_that_names_record_rule_and_reason() {
        let step = json!({
            "memory_id": "m1", "user_id": "u1", "agent_id": "", "rule": "F4", "action": "MAINTENANCE_ACTION_KEEP",
            "state": "MAINTENANCE_STATE_DONE", "status_before": "STATUS_ACTIVE", "status_after": "STATUS_ACTIVE",
            "because": "it is protected", "kept_by": "F8", "related": [],
        });
        assert_eq!(line(&step), "m1  u1  F4 KEEP DONE  ACTIVE > ACTIVE  it is protected [F8]");
    }
}
