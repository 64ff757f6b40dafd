//! What a replay shows: for people, or one JSON object a line for machines.

use super::dialogue::{Query, Turn};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::io::{self, IsTerminal as _, Write as _};
use strata_core::Fault;

/// Writes the transcript to standard output and the progress bar to standard error.
pub struct Report {
    json: bool,
    quiet: bool,
    bar: Option<ProgressBar>,
    counts: Counts,
    failed: io::Result<()>,
}

#[derive(Default)]
struct Counts {
    turns: u64,
    active: u64,
    superseded: u64,
    candidates: u64,
    refused: u64,
    evidence: u64,
    met: u64,
    unmet: u64,
    gold: u64,
    gold_found: u64,
}

impl Report {
    /// For people, or as JSON.
    pub fn new(json: bool, quiet: bool) -> Self {
        Self { json, quiet, bar: None, counts: Counts::default(), failed: Ok(()) }
    }

    /// Which server answers, with what.
    pub fn header(&mut self, server: Option<&str>, status: Option<&Value>) {
        if self.json {
            return; // The transcript is the same for every form of the server.
        }
        let form = server.unwrap_or("an embedded server, started for this run");
        self.text(&format!("Playing against {form}"));
        let settings = status.and_then(|s| s["settings"].as_object());
        for (key, value) in settings.into_iter().flatten() {
            self.text(&format!("  {key}: {}", value.as_str().unwrap_or_default()));
        }
    }

    /// A dialogue begins.
    pub fn dialogue(&mut self, name: &str, language: &str, steps: usize) {
        self.event(json!({"event": "dialogue", "name": name, "language": language}), || {
            format!("\n── {name} {}", "─".repeat(60_usize.saturating_sub(name.chars().count())))
        });
        if !self.json && io::stderr().is_terminal() {
            let bar = ProgressBar::new(steps as u64);
            if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}") {
                bar.set_style(style);
            }
            self.bar = Some(bar);
        }
    }

    /// Step `index` begins.
    pub fn progress(&self, index: usize) {
        if let Some(bar) = &self.bar {
            bar.set_position(index as u64);
        }
    }

    /// The dialogue ended.
    pub fn dialogue_done(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    /// A turn was stored.
    pub fn turn(&mut self, turn: &Turn, session: &str, seq: u64, compressed: bool) {
        self.counts.turns += 1;
        if self.quiet && !self.json {
            return;
        }
        self.event(
            json!({"event": "turn", "id": turn.id, "session": session, "seq": seq, "role": turn.role, "compressed": compressed}),
            || {
                let speaker = if turn.speaker.is_empty() { &turn.role } else { &turn.speaker };
                let mut text =
                    format!("\n{speaker}: {}\n    session   stored as turn {seq} of {session}", shorten(&turn.text, 300));
                if compressed {
                    text.push_str("; older turns were compressed (S7)");
                }
                text
            },
        );
    }

    /// A statement was taken.
    pub fn written(&mut self, rpc: &str, what: &str, answer: &Value) {
        let result = answer.get("result").unwrap_or(answer);
        let outcome = result["outcome"].as_str().unwrap_or("OUTCOME_UNSPECIFIED").trim_start_matches("OUTCOME_").to_owned();
        match outcome.as_str() {
            "ACTIVE" => self.counts.active += 1,
            "CANDIDATE" | "DISPUTED" => self.counts.candidates += 1,
            "EVIDENCE_ADDED" => self.counts.evidence += 1,
            _ => {}
        }
        let superseded = !result["superseded"].as_str().unwrap_or_default().is_empty();
        self.counts.superseded += u64::from(superseded);
        if self.quiet && !self.json && !superseded && outcome != "ACTIVE" {
            return;
        }
        let findings = findings(result);
        let (key, content) = (text_of(result, "/memory/key"), text_of(result, "/memory/content"));
        self.event(
            json!({"event": "written", "rpc": rpc, "outcome": outcome, "key": key, "content": content, "superseded": superseded,
                   "rules": rules(&findings)}),
            || {
                let slot = if key.is_empty() { String::new() } else { format!(" [{key}]") };
                let change = if superseded { ", the older value became history" } else { "" };
                format!(
                    "    longterm  {rpc} → {outcome}{slot}{change}: {}{}",
                    shorten(if content.is_empty() { what } else { &content }, 120),
                    list(&findings)
                )
            },
        );
    }

    /// The gate, or another rule, refused.
    pub fn refused(&mut self, rpc: &str, what: &str, fault: &Fault) {
        self.counts.refused += 1;
        let rules: Vec<&str> = fault.preconditions.iter().map(|p| p.rule.as_str()).collect();
        if self.quiet && !self.json && fault.reason != strata_core::Reason::GatePii {
            return;
        }
        self.event(json!({"event": "refused", "rpc": rpc, "reason": fault.reason.name(), "rules": rules}), || {
            let mut text = format!("    refused   {rpc} → {}: {}", fault.reason.name(), shorten(what, 120));
            for p in &fault.preconditions {
                text.push_str(&format!("\n              {} {}", p.rule, p.description));
            }
            if fault.preconditions.is_empty() {
                text.push_str(&format!("\n              {}", fault.message));
            }
            text
        });
    }

    /// The agent made a call.
    pub fn called(&mut self, rpc: &str, note: &str, answer: &Value) {
        if answer.pointer("/result/outcome").is_some() {
            if !note.is_empty() && !self.json {
                self.text(&format!("\n  · {note}"));
            }
            return self.written(rpc, note, answer);
        }
        let findings = findings(answer.get("promotion").unwrap_or(answer));
        let state = text_of(answer, "/promotion/state").trim_start_matches("PROMOTION_STATE_").to_owned();
        self.event(
            json!({"event": "call", "rpc": rpc, "state": state, "rules": rules(&findings), "summary": summary(rpc, answer)}),
            || {
                let mut text = format!("\n  · {}", if note.is_empty() { rpc } else { note });
                text.push_str(&format!("\n    agent     {rpc}"));
                if !state.is_empty() {
                    text.push_str(&format!(" → {state}"));
                }
                for line in summary(rpc, answer) {
                    text.push_str(&format!("\n              {line}"));
                }
                text + &list(&findings)
            },
        );
    }

    /// A question was answered with a context.
    pub fn answer(&mut self, query: &Query, context: &Value, found: Option<(usize, usize)>) {
        if let Some((hit, gold)) = found {
            self.counts.gold += gold as u64;
            self.counts.gold_found += hit as u64;
        }
        let blocks: Vec<Value> = context["blocks"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|b| b["name"] != "input")
            .map(|b| {
                let items = b["items"].as_array().into_iter().flatten();
                json!({"block": b["name"], "items": items.map(|i| json!({"text": i["text"], "layer": i["layer"], "label": i["label"]})).collect::<Vec<_>>()})
            })
            .collect();
        let degraded: Vec<String> = context["layers"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|l| !matches!(l["state"].as_str(), Some("LAYER_STATE_OK") | None))
            .map(|l| format!("{}: {}", l["layer"].as_str().unwrap_or_default(), l["detail"].as_str().unwrap_or_default()))
            .collect();
        self.event(
            json!({"event": "answer", "id": query.id, "question": query.text, "context": blocks.iter().map(|b| json!({
                "block": b["block"], "items": b["items"].as_array().into_iter().flatten().map(|i| i["text"].clone()).collect::<Vec<_>>()})).collect::<Vec<_>>(),
                "evidence_found": found.map(|f| f.0), "evidence": found.map(|f| f.1)}),
            || {
                let mut text = format!("\n? {}", query.text);
                let mut empty = true;
                for block in &blocks {
                    for item in block["items"].as_array().into_iter().flatten() {
                        empty = false;
                        text.push_str(&format!(
                            "\n    {:<10}{}\n              {}",
                            block["block"].as_str().unwrap_or_default(),
                            shorten(item["text"].as_str().unwrap_or_default(), 200),
                            item["label"].as_str().unwrap_or_default()
                        ));
                    }
                }
                if empty {
                    text.push_str("\n    nothing is remembered that answers this");
                }
                for line in &degraded {
                    text.push_str(&format!("\n    ! {line}"));
                }
                if let Some((hit, gold)) = found {
                    text.push_str(&format!("\n    evidence  {hit} of {gold} gold turns among the first 10 of SearchTurns"));
                }
                if let Some(answer) = query.answer.as_str().filter(|a| !a.is_empty()) {
                    text.push_str(&format!("\n    expected  {}", shorten(answer, 160)));
                }
                text
            },
        );
    }

    /// Expectations that hold.
    pub fn met(&mut self, count: usize) {
        self.counts.met += count as u64;
        self.event(json!({"event": "met", "count": count}), || {
            format!("    ✓ {count} expectation{} met", if count == 1 { "" } else { "s" })
        });
    }

    /// An expectation that does not hold.
    pub fn unmet(&mut self, what: &str) {
        self.counts.unmet += 1;
        self.event(json!({"event": "unmet", "what": what}), || format!("    ✗ {what}"));
    }

    /// The summary; fails when standard output could not be written.
    ///
    /// # Errors
    /// The first error of standard output.
    pub fn finish(mut self, met: bool) -> io::Result<()> {
        let c = std::mem::take(&mut self.counts);
        self.event(
            json!({"event": "summary", "turns": c.turns, "active": c.active, "superseded": c.superseded, "candidates": c.candidates,
                   "evidence_added": c.evidence, "refused": c.refused, "met": c.met, "unmet": c.unmet, "ok": met}),
            || {
                let mut text = format!(
                    "\n{} turns; long-term memory: {} active, {} superseded, {} candidates, {} times evidence added, {} refused",
                    c.turns, c.active, c.superseded, c.candidates, c.evidence, c.refused
                );
                if c.gold > 0 {
                    text.push_str(&format!("\n{} of {} gold turns found", c.gold_found, c.gold));
                }
                if c.met + c.unmet > 0 {
                    text.push_str(&format!("\n{} of {} expectations met", c.met, c.met + c.unmet));
                }
                text
            },
        );
        std::mem::replace(&mut self.failed, Ok(()))
    }

    fn event(&mut self, machine: Value, people: impl FnOnce() -> String) {
        let line = if self.json { machine.to_string() } else { people() };
        self.text(&line);
    }

    fn text(&mut self, line: &str) {
        if self.failed.is_err() {
            return;
        }
        let write = || writeln!(io::stdout().lock(), "{line}");
        self.failed = match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        };
    }
}

/// The lines of an answer that people want to see.
fn summary(rpc: &str, answer: &Value) -> Vec<String> {
    let method = rpc.rsplit(['/', '.']).next().unwrap_or(rpc);
    let many = |pointer: &str| answer.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default();
    match method {
        "GetHistory" => many("/memories")
            .iter()
            .map(|m| {
                format!(
                    "{} {}",
                    m["status"].as_str().unwrap_or_default().trim_start_matches("STATUS_"),
                    m["content"].as_str().unwrap_or_default()
                )
            })
            .collect(),
        "ForgetMemories" => vec![format!("{} forgotten", many("/forgotten").len())],
        "PutFacts" => many("/facts")
            .iter()
            .map(|f| format!("{} = {}", f["key"].as_str().unwrap_or_default(), f["value"].as_str().unwrap_or_default()))
            .collect(),
        "GetWindow" => many("/anchors")
            .iter()
            .map(|a| format!("anchored turn {}: {}", a["seq"], a["text"].as_str().unwrap_or_default()))
            .collect(),
        "CompressSession" => {
            let verdicts = many("/verdicts").into_iter();
            verdicts
                .map(|v| format!("turn {} {} ({})", v["seq"], text_of(&v, "/finding/outcome"), text_of(&v, "/finding/rule")))
                .collect()
        }
        "EndTask" => vec![format!("{} facts dropped with the board", answer["facts_dropped"].as_u64().unwrap_or_default())],
        _ => Vec::new(),
    }
}

fn findings(result: &Value) -> Vec<(String, String, String)> {
    let list = result["findings"].as_array().into_iter().flatten();
    list.map(|f| (text_of(f, "/rule"), text_of(f, "/outcome"), text_of(f, "/because"))).collect()
}

fn rules(findings: &[(String, String, String)]) -> Vec<String> {
    findings.iter().map(|(rule, outcome, _)| format!("{rule} {outcome}")).collect()
}

fn list(findings: &[(String, String, String)]) -> String {
    findings.iter().map(|(rule, outcome, because)| format!("\n              {rule} {outcome}: {because}")).collect()
}

fn text_of(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// At most `max` characters, on one line.
fn shorten(text: &str, max: usize) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= max {
        return line;
    }
    line.chars().take(max).chain(['…']).collect()
}
