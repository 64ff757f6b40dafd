//! `strata ctl explain` and `strata ctl decisions`: what was decided, for people.

use crate::cli::OwnerArgs;
use crate::client::Api;
use anyhow::Result;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

fn text<'a>(of: &'a Value, name: &str) -> &'a str {
    of[name].as_str().unwrap_or_default()
}

/// One decision: a line for the call, a line per step.
fn rendered(decision: &Value) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write!(out, "{}  {}  {}", text(decision, "time"), text(decision, "method"), text(decision, "outcome"));
    for (name, label) in [("agent_id", "agent"), ("caller", "by"), ("trace_id", "trace"), ("recall_id", "recall")] {
        if !text(decision, name).is_empty() {
            let _ = write!(out, "  {label} {}", text(decision, name));
        }
    }
    out.push('\n');
    for step in decision["steps"].as_array().into_iter().flatten() {
        let finding = &step["finding"];
        let stage = text(step, "stage").trim_start_matches("DECISION_STAGE_");
        let _ =
            write!(out, "  {stage:<10} {:<5} {:<12} {}", text(finding, "rule"), text(finding, "outcome"), text(step, "subject"));
        if let Some(score) = step["score"].as_f64().filter(|score| *score != 0.0) {
            let _ = write!(out, "  {score:.4}");
        }
        let factors = step["factors"].as_object().into_iter().flatten();
        for (name, value) in factors.filter_map(|(name, value)| Some((name, value.as_f64()?))) {
            let _ = write!(out, " {name}={value:.4}");
        }
        if !text(finding, "because").is_empty() {
            let _ = write!(out, "  ({})", text(finding, "because"));
        }
        out.push('\n');
    }
    if let Some(more) = decision["steps_left_out"].as_u64().filter(|more| *more > 0) {
        let _ = writeln!(out, "  and {more} steps more");
    }
    out
}

/// `ctl explain`.
///
/// # Errors
/// As [`Api::call`], and when standard output cannot be written.
pub async fn explain(api: &Api, owner: &OwnerArgs, trace: &str) -> Result<ExitCode> {
    let request = json!({"user_id": owner.user, "agent_id": owner.agent, "trace_id": trace});
    let answer = api.call("RouterService/Explain", request).await?;
    let mut out = std::io::stdout();
    for decision in answer["decisions"].as_array().into_iter().flatten() {
        write!(out, "{}", rendered(decision))?;
    }
    if answer["truncated"].as_bool().unwrap_or_default() {
        writeln!(out, "there is more; explain one of its calls by its request id")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// `ctl decisions`: until the server ends the stream, or the command is stopped.
///
/// # Errors
/// As [`explain`].
pub async fn watch(api: &Api, user: &str, trace: &str, only_new: bool) -> Result<ExitCode> {
    let request = json!({"user_id": user, "trace_id": trace, "only_new": only_new});
    let mut answers = api.download("AdminService/WatchDecisions", request).await?;
    let mut out = std::io::stdout();
    while let Some(answer) = answers.next().await? {
        write!(out, "{}", rendered(&answer["decision"]))?;
        out.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_reads_as_a_line_and_its_steps() {
        let decision = json!({
            "time": "2026-01-01T00:00:00Z", "method": "RouterService/AssembleContext", "outcome": "OK", "trace_id": "t",
            "steps": [{"stage": "DECISION_STAGE_CANDIDATE", "subject": "m1", "score": 0.5, "factors": {"fused": 0.25},
                       "finding": {"rule": "R7", "outcome": "FOUND", "because": "key"}}],
            "steps_left_out": 2,
        });
        assert_eq!(
            rendered(&decision),
            "2026-01-01T00:00:00Z  RouterService/AssembleContext  OK  trace t\n  \
             CANDIDATE  R7    FOUND        m1  0.5000 fused=0.2500  (key)\n  and 2 steps more\n"
        );
    }
}
