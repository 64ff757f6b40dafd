//! The dialogue format: JSON Lines. `meta` starts a dialogue; `turn` is something said; `call` is an RPC that the agent
//! makes at that point; `query` is a question with its evidence and, in stories, what the answer must and must not hold.

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;

/// A dialogue.
#[derive(Debug, Default)]
pub struct Dialogue {
    /// Its name; the user of the replay.
    pub name: String,
    /// Language tag, such as `en`.
    pub language: String,
    /// What happens, in order.
    pub steps: Vec<Step>,
}

/// One line of a dialogue.
#[derive(Debug)]
pub enum Step {
    /// Something said.
    Turn(Turn),
    /// An RPC of the agent.
    Call(Call),
    /// A question.
    Query(Query),
}

/// Something said.
#[derive(Debug, Deserialize)]
pub struct Turn {
    /// Id that queries refer to.
    #[serde(deserialize_with = "id")]
    pub id: String,
    /// Session.
    #[serde(default)]
    pub session: String,
    /// Who, for display and search.
    #[serde(default)]
    pub speaker: String,
    /// `user`, `assistant`, `system` or `tool`.
    pub role: String,
    /// ISO 8601; may be null.
    #[serde(default)]
    pub time: Option<String>,
    /// Text.
    pub text: String,
    /// Whether what the user says here is offered to long-term memory. False where the agent takes it as an order, such as to
    /// forget something, and makes the call itself.
    #[serde(default = "yes")]
    pub offer: bool,
}

const fn yes() -> bool {
    true
}

/// An RPC of the agent. `user_id` and `request_id` are filled in by the replay; `${name}` in a string stands for a value
/// that an earlier call saved.
#[derive(Debug, Deserialize)]
pub struct Call {
    /// Name of the RPC, such as `Propose`.
    pub rpc: String,
    /// Request in JSON.
    #[serde(default)]
    pub request: Value,
    /// Why the agent does it, for people.
    #[serde(default)]
    pub note: String,
    /// Values of the answer to keep: name to JSON pointer.
    #[serde(default)]
    pub save: std::collections::BTreeMap<String, String>,
    /// Reason the server must refuse with, such as `GATE_CONTENT`.
    #[serde(default)]
    pub refused: Option<String>,
    /// What the answer must and must not hold.
    #[serde(default)]
    pub expect: Expect,
}

/// A question.
#[derive(Debug, Deserialize)]
pub struct Query {
    /// Id.
    #[serde(deserialize_with = "id")]
    pub id: String,
    /// Question.
    pub text: String,
    /// Ids of the turns that hold the evidence.
    #[serde(default)]
    pub gold: Vec<Value>,
    /// Answer, for people.
    #[serde(default)]
    pub answer: Value,
    /// What the context must and must not hold.
    #[serde(default)]
    pub expect: Expect,
    /// Session whose window belongs into the context; default: none.
    #[serde(default)]
    pub session: String,
    /// Task whose board belongs into the context; default: none.
    #[serde(default)]
    pub task: String,
}

/// Texts that must and must not occur.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Expect {
    /// Must occur.
    pub contains: Vec<String>,
    /// Must not occur.
    pub absent: Vec<String>,
}

fn id<'de, D: serde::Deserializer<'de>>(source: D) -> Result<String, D::Error> {
    let value = Value::deserialize(source)?;
    Ok(value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned))
}

#[derive(Deserialize)]
struct Meta {
    dialogue: String,
    #[serde(default)]
    language: String,
}

/// Reads every dialogue of a file.
///
/// # Errors
/// Names the file and the line of what is malformed.
pub fn read(path: &Path) -> Result<Vec<Dialogue>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut dialogues: Vec<Dialogue> = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let place = || format!("{}:{}", path.display(), number + 1);
        let value: Value = serde_json::from_str(line).with_context(place)?;
        let kind = value.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        if kind == "meta" {
            let meta: Meta = serde_json::from_value(value).with_context(place)?;
            dialogues.push(Dialogue { name: meta.dialogue, language: meta.language, steps: Vec::new() });
            continue;
        }
        let step = match kind.as_str() {
            "turn" => Step::Turn(serde_json::from_value(value).with_context(place)?),
            "call" => Step::Call(serde_json::from_value(value).with_context(place)?),
            "query" => Step::Query(serde_json::from_value(value).with_context(place)?),
            other => bail!("{}: the type {other:?} is none of meta, turn, call, query", place()),
        };
        if dialogues.is_empty() {
            let name = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
            dialogues.push(Dialogue { name, ..Dialogue::default() });
        }
        if let Some(dialogue) = dialogues.last_mut() {
            dialogue.steps.push(step);
        }
    }
    if dialogues.is_empty() {
        bail!("{} holds no dialogue", path.display());
    }
    Ok(dialogues)
}
