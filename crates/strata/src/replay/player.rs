//! Plays one dialogue: turns go to session memory, what the user says is offered to long-term memory (an explicit order
//! by `Remember`, everything else by `Propose`: the gate decides), the agent's calls are made, the questions asked.

use super::{
    dialogue::{Call, Dialogue, Expect, Query, Step, Turn},
    report::Report,
};
use crate::{
    cli::ReplayArgs,
    client::{Api, refused},
};
use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use uuid::Uuid;

/// Turns that a question about its evidence looks at.
const QUESTION_K: u32 = 10;

struct Player<'a> {
    api: &'a Api,
    dialogue: &'a Dialogue,
    run: &'a str,
    report: &'a mut Report,
    /// Evidence ids of the file by session and turn number.
    turns: HashMap<(String, u64), String>,
    saved: BTreeMap<String, String>,
    met: bool,
    step: usize,
}

/// Plays the dialogue; false when an expectation failed.
///
/// # Errors
/// When the server cannot be reached or refuses what no dialogue may cause.
pub async fn play(api: &Api, dialogue: &Dialogue, run: &str, args: &ReplayArgs, report: &mut Report) -> Result<bool> {
    report.dialogue(&dialogue.name, &dialogue.language, dialogue.steps.len());
    let mut player = Player { api, dialogue, run, report, turns: HashMap::new(), saved: BTreeMap::new(), met: true, step: 0 };
    let (mut turns, mut questions) = (0, 0);
    for (index, step) in dialogue.steps.iter().enumerate() {
        player.step = index;
        player.report.progress(index);
        match step {
            Step::Turn(turn) if args.turns.is_none_or(|limit| turns < limit) => {
                turns += 1;
                player.turn(turn).await.with_context(|| format!("turn {}", turn.id))?;
            }
            Step::Call(call) => player.call(call).await.with_context(|| format!("call {}", call.rpc))?,
            Step::Query(query) if questions < args.questions => {
                questions += 1;
                player.query(query).await.with_context(|| format!("query {}", query.id))?;
            }
            Step::Turn(_) | Step::Query(_) => {}
        }
    }
    player.report.dialogue_done();
    Ok(player.met)
}

impl Player<'_> {
    /// The same step of the same run has the same id: a replay after a crash doubles nothing.
    fn request_id(&self, part: &str) -> String {
        let name = strata_core::id::join(&["strata replay", self.run, &self.dialogue.name, &self.step.to_string(), part]);
        Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()).to_string()
    }

    fn session<'t>(&self, turn: &'t Turn) -> &'t str {
        if turn.session.is_empty() { "main" } else { &turn.session }
    }

    async fn turn(&mut self, turn: &Turn) -> Result<()> {
        let session = self.session(turn).to_owned();
        let mut said = json!({
            "role": format!("ROLE_{}", turn.role.to_uppercase()),
            "text": turn.text,
            "speaker": turn.speaker,
            "external_id": turn.id,
        });
        if let Some(time) = turn.time.as_deref().and_then(utc) {
            said["client_time"] = Value::String(time);
        }
        let request = json!({
            "user_id": self.dialogue.name, "session_id": session, "turns": [said], "request_id": self.request_id("append"),
        });
        let answer = self.api.call("AppendTurns", request).await?;
        let seq = answer.pointer("/seqs/0").and_then(Value::as_u64).unwrap_or_default();
        self.turns.insert((session.clone(), seq), turn.id.clone());
        self.report.turn(turn, &session, seq, answer.get("compressed") == Some(&Value::Bool(true)));
        if turn.role == "user" && turn.offer {
            for (index, sentence) in strata_text::sentences(&turn.text).into_iter().enumerate() {
                self.offer(&session, seq, sentence.trim(), index).await?;
            }
        }
        Ok(())
    }

    /// Offers a sentence of the user to long-term memory. Which door is the only choice made here; the verdict is the
    /// gate's.
    async fn offer(&mut self, session: &str, seq: u64, sentence: &str, index: usize) -> Result<()> {
        let features = strata_text::features(sentence);
        // A question states nothing, and a greeting is not worth a call: an agent would not offer them either.
        if features.question || features.noise || sentence.chars().count() > strata_core::limits::CONTENT_CHARS {
            return Ok(());
        }
        let explicit = features.durable;
        let kind = if features.strong || features.negation != strata_core::text::Negation::None {
            "KIND_PREFERENCE"
        } else {
            "KIND_FACT"
        };
        let request = json!({
            "user_id": self.dialogue.name,
            "request_id": self.request_id(&format!("offer {index}")),
            "statement": {
                "kind": kind,
                "content": sentence,
                "source": "SOURCE_USER_STATEMENT",
                "source_quote": sentence,
                "source_ref": { "turn": { "session_id": session, "seq": seq } },
                "trigger": if explicit { "TRIGGER_USER_REQUEST" } else { "TRIGGER_DECISION_POINT" },
            },
        });
        let rpc = if explicit { "Remember" } else { "Propose" };
        match self.api.call(rpc, request).await {
            Ok(answer) => self.report.written(rpc, sentence, &answer),
            Err(error) => match refused(&error) {
                Some(fault) if !fault.preconditions.is_empty() => self.report.refused(rpc, sentence, fault),
                _ => return Err(error),
            },
        }
        Ok(())
    }

    async fn call(&mut self, call: &Call) -> Result<()> {
        let mut request = self.fill(&call.request)?;
        let method = self.api.method(&call.rpc)?;
        let fields = request.as_object_mut().context("the request of a call is no JSON object")?;
        for (name, value) in [("user_id", self.dialogue.name.clone()), ("request_id", self.request_id("call"))] {
            if method.input().get_field_by_name(name).is_some() && !fields.contains_key(name) {
                fields.insert(name.to_owned(), Value::String(value));
            }
        }
        match (self.api.call(&call.rpc, request).await, &call.refused) {
            (Ok(answer), None) => {
                for (name, pointer) in &call.save {
                    let value = answer.pointer(pointer).with_context(|| format!("the answer has no {pointer} to save"))?;
                    self.saved.insert(name.clone(), value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned));
                }
                let (expect, text) = (&call.expect, answer.to_string());
                self.report.called(&call.rpc, &call.note, &answer);
                self.check(expect, &text);
            }
            (Ok(_), Some(reason)) => {
                self.met = false;
                self.report.unmet(&format!("{} was not refused with {reason}", call.rpc));
            }
            (Err(error), expected) => match refused(&error) {
                Some(fault) if expected.as_deref() == Some(fault.reason.name()) => {
                    self.report.refused(&call.rpc, &call.note, fault);
                }
                // The same run, played before: its task is over, and stays over.
                Some(fault) if fault.reason == strata_core::Reason::TaskEnded => {
                    self.report.refused(&call.rpc, &call.note, fault)
                }
                _ => return Err(error),
            },
        }
        Ok(())
    }

    /// Puts saved values into the strings of a request.
    fn fill(&self, value: &Value) -> Result<Value> {
        Ok(match value {
            Value::String(text) => match text.strip_prefix("${").and_then(|t| t.strip_suffix('}')) {
                Some("promotion") => Value::String(self.request_id("promotion")),
                Some(name) => match self.saved.get(name) {
                    Some(saved) => Value::String(saved.clone()),
                    None => bail!("nothing was saved as {name}"),
                },
                None => value.clone(),
            },
            Value::Array(items) => Value::Array(items.iter().map(|v| self.fill(v)).collect::<Result<_>>()?),
            Value::Object(fields) => {
                Value::Object(fields.iter().map(|(k, v)| Ok((k.clone(), self.fill(v)?))).collect::<Result<_>>()?)
            }
            Value::Null => json!({}),
            Value::Bool(_) | Value::Number(_) => value.clone(),
        })
    }

    async fn query(&mut self, query: &Query) -> Result<()> {
        let request = json!({
            "user_id": self.dialogue.name, "input": query.text, "session_id": query.session, "task_id": query.task,
        });
        let context = self.api.call("AssembleContext", request).await?;
        let found = if query.gold.is_empty() { None } else { Some(self.evidence(query).await?) };
        let text = memory_text(&context);
        self.report.answer(query, &context, found);
        self.check(&query.expect, &text);
        Ok(())
    }

    /// How many of the gold turns the search over the turns finds, and of how many.
    async fn evidence(&self, query: &Query) -> Result<(usize, usize)> {
        let request = json!({ "user_id": self.dialogue.name, "query": query.text, "k": QUESTION_K });
        let answer = self.api.call("SearchTurns", request).await?;
        let found: Vec<&str> = answer["hits"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|hit| hit.pointer("/turn/external_id").and_then(Value::as_str))
            .collect();
        let gold: Vec<String> = query.gold.iter().map(|g| g.as_str().map_or_else(|| g.to_string(), ToOwned::to_owned)).collect();
        Ok((gold.iter().filter(|g| found.contains(&g.as_str())).count(), gold.len()))
    }

    fn check(&mut self, expect: &Expect, text: &str) {
        for wanted in expect.contains.iter().filter(|w| !text.contains(w.as_str())) {
            self.met = false;
            self.report.unmet(&format!("{wanted:?} is missing"));
        }
        for unwanted in expect.absent.iter().filter(|w| text.contains(w.as_str())) {
            self.met = false;
            self.report.unmet(&format!("{unwanted:?} must not be there"));
        }
        let met = expect.contains.iter().filter(|w| text.contains(w.as_str())).count()
            + expect.absent.iter().filter(|w| !text.contains(w.as_str())).count();
        if met > 0 {
            self.report.met(met);
        }
    }
}

/// Every block of a context but the user's own input, which repeats the question.
fn memory_text(context: &Value) -> String {
    let blocks = context["blocks"].as_array().into_iter().flatten();
    blocks.filter(|b| b["name"] != "input").filter_map(|b| b["text"].as_str()).collect::<Vec<_>>().join("\n")
}

/// The JSON form of a wire time: a time without a zone is UTC.
fn utc(time: &str) -> Option<String> {
    if let Ok(instant) = time.parse::<jiff::Timestamp>() {
        return Some(instant.to_string());
    }
    let civil: jiff::civil::DateTime = time.parse().ok()?;
    Some(civil.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().to_string())
}
