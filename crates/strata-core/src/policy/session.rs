//! Session memory (rules S): what becomes of a turn, how a range of turns is summarised, and what a window shows, as pure
//! functions. What a text says is read by `strata_text::turns` into [`TurnCues`]; stores keep what is decided here.
//!
//! The way of a turn: it is appended verbatim and stays readable by its number for the life of the session. When a range
//! is due ([`compression_due`]), [`judge`] gives each turn a verdict by the first matching row of the table of rule S2,
//! [`summarise`] copies sentences of the kept turns into the range's summary, and [`window`] later shows anchors, newest
//! turns and summaries within a budget. Order is by turn number everywhere, never by time (cases C063, C065).

mod energy;
mod topic;

pub use energy::{Access, Accesses, Energies, LOOKED_UP_TURNS, Moment, energy};
pub use topic::{ContentTurn, TOPIC_MEAN, TOPIC_TURNS, topics_ended};

use super::recall::{Fusion, RecallSettings};
use crate::record::vocabulary;
use crate::rule::{Finding, RuleId};
use crate::text::{ValueKind, stands_in};
use crate::{FactKey, Fault, Timestamp, limits};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Settings of session memory: `[policy.session]`. Every field has the documented default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SessionSettings {
    /// Life of a session without use, in seconds: 1..=2,592,000 (30 days). Default 86,400 (rule S10).
    pub ttl_seconds: i64,
    /// Whether GetWindow renews that life. Default true (rule S10).
    pub renew_on_read: bool,
    /// Turns of a window when a call asks for none: 1..=1000. Default 20.
    pub window_turns: u32,
    /// Tokens of a window when a call asks for none: 1..=1,000,000. Default 4,000.
    pub window_tokens: u32,
    /// Share of a window that anchors may take, in percent: 0..=100. Default 60 (rule S11).
    pub anchor_percent: u32,
    /// Turns between two compressions: 1..=1000. Default 10 (rule S7).
    pub compress_every: u32,
    /// Newest turns that a compression leaves verbatim: 1..=1000. Default 10.
    pub keep_turns: u32,
    /// Uncompressed tokens at which a compression runs whatever the number of turns: 100..=1,000,000. Default 6,000
    /// (rule S7).
    pub compress_tokens: u64,
    /// Tokens of one range's summary: 16..=4,000. Default 240. Values that do not fit stay in its index (rule S3).
    pub summary_tokens: u32,
    /// Adjacent ranges of one coarseness that are remade as one, so that a session of any length has few summaries:
    /// 2..=16. Default 4 (rule S4).
    pub summary_fan_in: u32,
    /// Tokens of the one sentence kept of a tool call: 8..=1,000. Default 48 (rule S2g).
    pub tool_sentence_tokens: u32,
    /// Turns that a retraction reaches back: 1..=1000. Default 200 (rule S2b).
    pub retraction_reach: u32,
    /// Fusion of the legs when turns are searched. Default `min_max` (rules R4, R14).
    pub search_fusion: Fusion,
    /// Weight of words against vectors when turns are searched: 0..=10. Default 2: raw dialogue is lexical (rule
    /// R14).
    pub search_keyword_weight: f64,
    /// Whether the turns of a session that ends are kept for 30 days as those of its episode, for SearchTurns. Default true
    /// (rule S14). Without them the episode has its summary only.
    pub archive_turns: bool,
    /// Whether a change of topic compresses the old topic and leaves an episode of it. Default true; without an embedder that
    /// makes vectors of turns it changes nothing (rule S7).
    pub topic_changes: bool,
    /// Turns after which the energy of what was said, or looked up, has halved: 1..=100,000. Default 200 (rule S9).
    pub energy_half_life_turns: u32,
    /// The same in seconds: 1..=31,536,000 (a year). Default 86,400 (rule S9).
    pub energy_half_life_seconds: i64,
    /// Energy below which a window leaves a summary out although there is room: 0..=1. Default 0: energy only orders (rule S9).
    pub energy_floor: f64,
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self {
            ttl_seconds: 24 * 3600,
            renew_on_read: true,
            window_turns: 20,
            window_tokens: 4_000,
            anchor_percent: 60,
            compress_every: 10,
            keep_turns: 10,
            compress_tokens: 6_000,
            summary_tokens: 240,
            summary_fan_in: 4,
            tool_sentence_tokens: 48,
            retraction_reach: 200,
            search_fusion: Fusion::MinMax,
            search_keyword_weight: 2.0,
            archive_turns: true,
            topic_changes: true,
            energy_half_life_turns: 200,
            energy_half_life_seconds: 24 * 3600,
            energy_floor: 0.0,
        }
    }
}

impl SessionSettings {
    /// Checks the section.
    ///
    /// # Errors
    /// `INVALID_FIELD` naming the setting.
    pub fn validate(&self) -> Result<(), Fault> {
        let within = |name: &str, value: i64, min: i64, max: i64| {
            if (min..=max).contains(&value) {
                return Ok(());
            }
            Err(Fault::field(format!("policy.session.{name}"), format!("must lie between {min} and {max}")))
        };
        within("ttl_seconds", self.ttl_seconds, limits::SESSION_TTL_MIN_SECONDS, limits::SESSION_TTL_MAX_SECONDS)?;
        within("window_turns", self.window_turns.into(), 1, limits::PAGE_MAX.into())?;
        within("window_tokens", self.window_tokens.into(), 1, 1_000_000)?;
        within("anchor_percent", self.anchor_percent.into(), 0, 100)?;
        within("compress_every", self.compress_every.into(), 1, 1_000)?;
        within("keep_turns", self.keep_turns.into(), 1, 1_000)?;
        within("compress_tokens", i64::try_from(self.compress_tokens).unwrap_or(i64::MAX), 100, 1_000_000)?;
        within("summary_tokens", self.summary_tokens.into(), 16, 4_000)?;
        within("summary_fan_in", self.summary_fan_in.into(), 2, 16)?;
        within("tool_sentence_tokens", self.tool_sentence_tokens.into(), 8, 1_000)?;
        within("retraction_reach", self.retraction_reach.into(), 1, 1_000)?;
        within("energy_half_life_turns", self.energy_half_life_turns.into(), 1, 100_000)?;
        within("energy_half_life_seconds", self.energy_half_life_seconds, 1, 365 * 24 * 3600)?;
        if !(0.0..=1.0).contains(&self.energy_floor) {
            return Err(Fault::field("policy.session.energy_floor", "must lie between 0 and 1"));
        }
        if !(0.0..=10.0).contains(&self.search_keyword_weight) {
            return Err(Fault::field("policy.session.search_keyword_weight", "must lie between 0 and 10"));
        }
        Ok(())
    }

    /// Recall settings for turns: raw dialogue is lexical, so words weigh more than in long-term memory (rule R14).
    #[must_use]
    pub fn turn_recall(&self, recall: &RecallSettings) -> RecallSettings {
        RecallSettings { keyword_weight: self.search_keyword_weight, ..recall.clone() }
    }
}

vocabulary! {
    /// Who speaks.
    Role {
        /// The user.
        User = "USER",
        /// The agent.
        Assistant = "ASSISTANT",
        /// Instructions; a new one replaces the old one in the window (rule S6).
        System = "SYSTEM",
        /// A tool's return.
        Tool = "TOOL",
    }
}

vocabulary! {
    /// Shape of a session: decides the compression strategy (rule S1).
    Shape {
        /// Key turns are anchored, the rest is summarised.
        Task = "TASK",
        /// A rolling summary.
        Exploratory = "EXPLORATORY",
        /// A sliding window: nothing but what must survive is kept of older turns.
        Chat = "CHAT",
    }
}

vocabulary! {
    /// What becomes of a turn (rule S2).
    Outcome {
        /// Always shown as it is.
        Verbatim = "VERBATIM",
        /// Summarised, and shown as it is while its reason holds.
        Anchored = "ANCHORED",
        /// In the range's summary.
        Summarised = "SUMMARISED",
        /// One sentence in the range's summary.
        Sentence = "SENTENCE",
        /// Not shown. Still readable by its number.
        Dropped = "DROPPED",
    }
}

/// A stored turn: immutable but for erasure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// Number within the session, dense, from 1, assigned by the store. Zero before that.
    #[serde(default)]
    pub seq: u32,
    /// Who speaks.
    pub role: Role,
    /// Verbatim.
    pub text: String,
    /// The tool call it makes (assistant) or answers (tool).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Kept verbatim whatever happens (rule S2c).
    #[serde(default)]
    pub pinned: bool,
    /// The service's time.
    pub time: Timestamp,
    /// The caller's time; data only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_time: Option<Timestamp>,
    /// Tokens of the text by the service's estimator.
    pub tokens: u32,
    /// Name of the speaker.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub speaker: String,
    /// The caller's own id.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub external_id: String,
    /// Erase epoch of the last erasure that redacted it (rule E2); zero when none did.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub redacted: u64,
}

impl Turn {
    /// Bytes that count against [`limits::SESSION_BYTES`] (rule S13): every text the caller sent.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let id = self.tool_call_id.as_ref().map_or(0, String::len);
        (self.text.len() + id + self.speaker.len() + self.external_id.len()) as u64
    }

    /// Text of the turn for search: who said it is part of what was said.
    #[must_use]
    pub fn searchable(&self) -> String {
        if self.speaker.is_empty() { self.text.clone() } else { format!("{}: {}", self.speaker, self.text) }
    }
}

/// How a turn takes an earlier one back (rule S2b).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Retraction {
    /// "Scratch that", "算了": withdraws what was said, with or without naming it.
    Withdraw,
    /// "No wait, it is B", "不对,是B": replaces a value.
    Correct,
    /// "It turns out that ...", "之前的结论不对": overturns a conclusion.
    Overturn,
    /// "No need any more", "不用了": releases a promise.
    Release,
}

/// A protected value of a sentence, as written (rule S3).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CuedValue {
    /// Kind.
    pub kind: ValueKind,
    /// Letter for letter.
    pub text: String,
}

/// A clause of a sentence by its bytes in the turn's text, without the mark that ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClauseSpan {
    /// First byte, on a character boundary.
    pub start: usize,
    /// Byte after the last one.
    pub end: usize,
    /// Told together with the clause before it, without the mark between them: one of the two is nothing but a name.
    pub joined: bool,
}

/// What one sentence of a turn says, for the table of rule S2. Made by `strata_text::turns`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SentenceCues {
    /// First byte in the turn's text, on a character boundary.
    pub start: usize,
    /// Byte after the last one.
    pub end: usize,
    /// Tokens by the service's estimator.
    pub tokens: u32,
    /// Protected values, in order.
    pub values: Vec<CuedValue>,
    /// What it mentions beside them, letter for letter: things, places, spoken times. Not protected; in the value index
    /// (rules S2h, S3).
    pub mentions: Vec<String>,
    /// Its nouns, letter for letter: in the value index when no summary shows them (rule S3).
    pub nouns: Vec<String>,
    /// The parts that tell it, when others can be left out: clauses that tell nothing, forms of politeness. Empty when it is
    /// told as a whole.
    pub telling: Vec<ClauseSpan>,
    /// Values that the sentence denies: "not 200", "不是200".
    pub denied: Vec<String>,
    /// Hashes of its content words, ascending, distinct.
    pub terms: Vec<u32>,
    /// Performs, orders or reverses a high-risk operation: delete, pay, authorise, transfer, grant.
    pub operation: bool,
    /// Takes something back.
    pub retraction: Option<Retraction>,
    /// A promise or a todo.
    pub promise: bool,
    /// Says that something is done.
    pub fulfilment: bool,
    /// An explicit constraint.
    pub constraint: bool,
    /// A decision or a conclusion.
    pub decision: bool,
    /// Greeting, thanks, acknowledgement, filler.
    pub courtesy: bool,
    /// A bare yes or no.
    pub answer: bool,
    /// A question.
    pub question: bool,
    /// Asks for work: "write", "fix", "帮我".
    pub request: bool,
    /// Nothing but doubt, such as "Not sure.": belongs to its neighbour (rule S5).
    pub hedge_only: bool,
}

/// What a turn says, sentence by sentence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TurnCues {
    /// Sentences in order.
    pub sentences: Vec<SentenceCues>,
    /// Reports a failure: for a tool's return.
    pub failed: bool,
}

impl TurnCues {
    fn any(&self, cue: impl Fn(&SentenceCues) -> bool) -> bool {
        self.sentences.iter().any(cue)
    }

    /// Whether some sentence takes something back: older turns must then be looked at (rule S2b).
    #[must_use]
    pub fn retracts(&self) -> bool {
        self.any(|s| s.retraction.is_some() || !s.denied.is_empty())
    }

    fn courtesy_only(&self) -> bool {
        !self.sentences.is_empty() && self.sentences.iter().all(|s| s.courtesy || s.answer)
    }

    fn values(&self) -> impl Iterator<Item = &CuedValue> {
        self.sentences.iter().flat_map(|s| &s.values)
    }

    fn terms(&self) -> BTreeSet<u32> {
        self.sentences.iter().flat_map(|s| s.terms.iter().copied()).collect()
    }
}

/// A turn with its cues.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The turn.
    pub turn: &'a Turn,
    /// What it says.
    pub cues: &'a TurnCues,
}

/// What became of a turn. Kept with the turn; never holds content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Turn number.
    pub seq: u32,
    /// Row of the table.
    #[serde(with = "rule_name")]
    pub rule: RuleId,
    /// What becomes of it.
    pub outcome: Outcome,
    /// Later turn that took it, or a part of it, back; zero when none did.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retracted_by: u32,
    /// Indices of its sentences that were taken back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retracted_sentences: Vec<u32>,
    /// Values that a later turn denied: in no summary and no index (rule S2b).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<String>,
}

const fn is_zero(value: &u32) -> bool {
    *value == 0
}

const fn is_unset(epoch: &u64) -> bool {
    *epoch == 0
}

impl Verdict {
    /// The finding for explanations.
    #[must_use]
    pub fn finding(&self) -> Finding {
        Finding::new(self.rule.0, self.outcome.name(), because(self.rule))
    }

    /// Whether the turn is shown as it is.
    #[must_use]
    pub const fn is_anchor(&self) -> bool {
        matches!(self.outcome, Outcome::Verbatim | Outcome::Anchored)
    }
}

/// Rule ids of the table, and what each says to people.
const RULES: &[(&str, &str)] = &[
    ("S2a", "performs, orders or reverses a high-risk operation"),
    ("S2b", "was taken back or overturned by a later turn"),
    ("S2c", "is pinned"),
    ("S2d", "carries a promise or todo that is still open"),
    ("S2e", "carries an explicit constraint of the user"),
    ("S2f", "is small talk or a mere confirmation"),
    ("S2g", "is a successful tool call"),
    ("S2h", "carries an entity, a value or a decision"),
    ("S2i", "carries nothing that a later turn needs"),
    ("S6", "belongs to an anchored tool call, or is an instruction turn"),
    ("E2", "was redacted by an erasure"),
];

/// Why, in one sentence, for a rule of this file.
#[must_use]
pub fn because(rule: RuleId) -> &'static str {
    RULES.iter().find(|(id, _)| *id == rule.0).map_or("", |(_, text)| text)
}

mod rule_name {
    use super::{RULES, RuleId};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(rule: &RuleId, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(rule.0)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<RuleId, D::Error> {
        let name = String::deserialize(deserializer)?;
        RULES.iter().find(|(id, _)| *id == name).map(|(id, _)| RuleId(id)).ok_or_else(|| D::Error::custom("unknown rule"))
    }
}

/// A turn that is shown verbatim, or listed as a pointer (rule S11).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Anchor {
    /// Turn number.
    pub seq: u32,
    /// Why.
    #[serde(with = "rule_name")]
    pub rule: RuleId,
    /// Later turn that took it back; zero when none did. Only a high-risk operation stays an anchor then.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retracted_by: u32,
}

impl Anchor {
    /// The finding for explanations.
    #[must_use]
    pub fn finding(&self) -> Finding {
        let outcome = if matches!(self.rule.0, "S2d" | "S2e") { Outcome::Anchored } else { Outcome::Verbatim };
        Finding::new(self.rule.0, outcome.name(), because(self.rule))
    }

    /// Place in the queue for the anchors' share of a window: explicit wishes first, then constraints, open promises,
    /// operations; newest first among equals. Smaller is sooner.
    #[must_use]
    pub fn priority(&self) -> (u8, std::cmp::Reverse<u32>) {
        (self.class(), std::cmp::Reverse(self.seq))
    }

    fn class(&self) -> u8 {
        match self.rule.0 {
            "S2c" => 0,
            "S2e" => 1,
            "S2d" => 2,
            _ if self.retracted_by == 0 => 3,
            _ => 4,
        }
    }
}

/// One sentence of a summary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummarySentence {
    /// Copied letter for letter from the turns it names; by rule, without what tells nothing: forms of politeness, clauses
    /// beside what is told, the full stop at the end.
    pub text: String,
    /// Turns it comes from, ascending, at least one.
    pub seqs: Vec<u32>,
    /// Tokens of the text.
    pub tokens: u32,
}

/// A checked field of a session: what is true while it lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionFact {
    /// Slot.
    pub key: FactKey,
    /// Value.
    pub value: String,
    /// Turn it comes from.
    pub seq: u32,
    /// Epoch of its claim (rule P3).
    pub epoch: u64,
    /// An outer level owns the key: read-only until the session ends (rule P2).
    pub overlay: bool,
    /// When it was written.
    pub time: Timestamp,
}

/// What is known of a raw tool return beside its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// Trace id of the tool call.
    pub trace_id: String,
    /// Task that made the call; may be empty.
    pub task_id: String,
    /// Media type; may be empty.
    pub content_type: String,
    /// Bytes as they were sent.
    pub bytes: u64,
    /// Bytes as they are stored.
    pub stored_bytes: u64,
    /// Parts it is stored in.
    pub parts: u32,
    /// BLAKE3 of the bytes, 64 hexadecimal digits.
    pub hash: String,
    /// When it was stored.
    pub create_time: Timestamp,
    /// When it is gone; none: with its session.
    pub expire_time: Option<Timestamp>,
}

impl Artifact {
    /// Whether its time is over.
    #[must_use]
    pub fn is_gone(&self, now: Timestamp) -> bool {
        self.expire_time.is_some_and(|over| over <= now)
    }
}

/// Where a protected value stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ValueReference {
    /// Letter for letter.
    pub value: String,
    /// Turn number.
    pub seq: u32,
}

vocabulary! {
    /// Who made a summary.
    Maker {
        /// The rules of this file.
        Rules = "rules",
        /// A model of the deployment.
        Model = "model",
        /// The caller.
        Client = "client",
    }
}

/// Summary of a range of turns, always made from the original turns (rule S4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// First turn covered.
    pub from: u32,
    /// Last turn covered.
    pub to: u32,
    /// Sentences in turn order; empty when nothing was worth keeping (rule S8).
    pub sentences: Vec<SummarySentence>,
    /// Value index: each protected value of the range with its first and its newest turn, in turn order (rule S3).
    pub values: Vec<ValueReference>,
    /// Who made it.
    pub made_by: Maker,
    /// Coarseness: 0 for a range as it was compressed; each remaking of several ranges as one adds 1.
    pub level: u32,
    /// [`source_hash`] of the turns it was made from; empty for summaries of older versions.
    #[serde(default)]
    pub source_hash: String,
    /// Time of the first turn covered.
    pub from_time: Timestamp,
    /// Time of the last turn covered.
    pub to_time: Timestamp,
}

impl Summary {
    /// Tokens of all sentences.
    #[must_use]
    pub fn tokens(&self) -> u32 {
        self.sentences.iter().map(|s| s.tokens).sum()
    }

    /// Whether nothing was worth keeping (rule S8).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sentences.is_empty() && self.values.is_empty()
    }
}

/// Hash of the turns that a summary is made from, 32 hexadecimal digits: number, role, time and text of each. Another session
/// under the same id, or a turn that was redacted meanwhile, has another one (rule S4).
#[must_use]
pub fn source_hash<'a>(turns: impl IntoIterator<Item = &'a Turn>) -> String {
    let mut hasher = blake3::Hasher::new();
    for turn in turns {
        let parts = [turn.seq.to_string(), turn.role.name().to_owned(), turn.time.micros().to_string()];
        hasher.update(crate::id::join(&[&parts[0], &parts[1], &parts[2], &turn.text]).as_bytes());
    }
    let mut hex = hasher.finalize().to_hex().to_string();
    hex.truncate(32);
    hex
}

/// The tool call of each TOOL turn: its seq and the seq of its call (rule S6). The call is the latest earlier ASSISTANT
/// turn with the same tool call id; else the ASSISTANT turn right before the run of TOOL turns it stands in (parallel
/// calls of one turn), unless the result names a call and that turn makes none. A TOOL turn without either is an orphan
/// and not in the map. `turns` ascend by number.
#[must_use]
pub fn tool_pairs<'a>(turns: impl IntoIterator<Item = &'a Turn>) -> BTreeMap<u32, u32> {
    let mut calls: BTreeMap<&str, u32> = BTreeMap::new();
    let mut pairs = BTreeMap::new();
    // The assistant turn that the present run of TOOL turns follows directly, and whether it names a call.
    let mut before: Option<(u32, bool)> = None;
    let mut last = None;
    for turn in turns {
        if last.is_some_and(|l: u32| l + 1 != turn.seq) {
            before = None;
        }
        last = Some(turn.seq);
        match turn.role {
            Role::Assistant => {
                before = Some((turn.seq, turn.tool_call_id.is_some()));
                if let Some(id) = turn.tool_call_id.as_deref() {
                    calls.insert(id, turn.seq);
                }
            }
            Role::Tool => {
                let by_id = turn.tool_call_id.as_deref().and_then(|id| calls.get(id).copied());
                let by_place = before.filter(|(_, names_call)| *names_call || turn.tool_call_id.is_none()).map(|(seq, _)| seq);
                if let Some(call) = by_id.or(by_place) {
                    pairs.insert(turn.seq, call);
                }
            }
            Role::User | Role::System => before = None,
        }
    }
    pairs
}

/// What was taken back of a turn.
#[derive(Clone, Debug, Default)]
struct Taken {
    by: u32,
    sentences: BTreeSet<usize>,
    denied: BTreeSet<String>,
}

/// How turns refer to earlier ones.
#[derive(Debug, Default)]
struct Links {
    taken: BTreeMap<u32, Taken>,
    /// Turn with a promise, and the later turn that fulfilled or released it.
    closed: BTreeMap<u32, u32>,
    /// Turns that take an operation back.
    reversals: BTreeSet<u32>,
}

/// Turns within which a denied value is taken for the one that was stated, whatever else is said.
const NEAR_TURNS: u32 = 6;

fn overlap(a: &BTreeSet<u32>, b: &[u32]) -> usize {
    b.iter().filter(|t| a.contains(t)).count()
}

impl Links {
    fn of(views: &[View<'_>]) -> Self {
        let mut links = Self::default();
        for (at, view) in views.iter().enumerate() {
            if view.turn.role == Role::System {
                continue;
            }
            let earlier = &views[..at];
            for sentence in &view.cues.sentences {
                links.retraction(earlier, *view, sentence);
                if sentence.fulfilment {
                    links.fulfilment(earlier, *view, sentence);
                }
            }
        }
        links
    }

    fn take(&mut self, target: View<'_>, sentences: impl IntoIterator<Item = usize>, by: u32, denied: &[String]) {
        let taken = self.taken.entry(target.turn.seq).or_default();
        taken.by = taken.by.max(by);
        taken.sentences.extend(sentences);
        taken.denied.extend(denied.iter().cloned());
        if target.cues.any(|s| s.operation) {
            self.reversals.insert(by);
        }
    }

    fn retraction(&mut self, earlier: &[View<'_>], view: View<'_>, sentence: &SentenceCues) {
        let by = view.turn.seq;
        let candidates = || {
            earlier
                .iter()
                .rev()
                .copied()
                .filter(|v| matches!(v.turn.role, Role::User | Role::Assistant) && !v.cues.courtesy_only())
        };
        // "not 200": every sentence that stated the denied value, if it is near or about the same thing: 200 may well
        // stand for something else far back.
        if !sentence.denied.is_empty() {
            let own: BTreeSet<u32> = sentence.terms.iter().copied().collect();
            for target in candidates() {
                let near = by - target.turn.seq <= NEAR_TURNS;
                let stated: Vec<usize> = (0..target.cues.sentences.len())
                    .filter(|i| {
                        let s = &target.cues.sentences[*i];
                        (near || overlap(&own, &s.terms) > 0)
                            && s.values.iter().any(|v| sentence.denied.contains(&v.text))
                            && !s.denied.iter().any(|d| sentence.denied.contains(d))
                    })
                    .collect();
                if !stated.is_empty() {
                    self.take(target, stated, by, &sentence.denied);
                }
            }
            return;
        }
        let Some(kind) = sentence.retraction else { return };
        if kind == Retraction::Release {
            self.close_promise(earlier, view, sentence, 1);
            return;
        }
        // The sentence that shares most content words; the newest among equals.
        let own: BTreeSet<u32> = sentence.terms.iter().copied().collect();
        let best = candidates()
            .flat_map(|v| (0..v.cues.sentences.len()).map(move |i| (v, i)))
            .map(|(v, i)| (overlap(&own, &v.cues.sentences[i].terms), v, i))
            .filter(|(shared, v, i)| {
                let theirs = v.cues.sentences[*i].terms.len();
                *shared >= 2 || (*shared == 1 && own.len().min(theirs) <= 2)
            })
            .reduce(|best, next| if next.0 > best.0 { next } else { best });
        match (kind, best) {
            // A correction replaces a value: without one on both sides it is a turn of phrase ("Actually, I love it").
            (Retraction::Correct, Some((_, target, i)))
                if shares_kind(&target.cues.sentences[i], sentence) && target.turn.role == view.turn.role =>
            {
                self.take(target, [i], by, &replaced(&target.cues.sentences[i], sentence));
            }
            (Retraction::Correct, _) => {
                // "Actually, make it 300": the value of the same kind that the same speaker gave just before.
                let near = candidates().filter(|v| v.turn.role == view.turn.role && by - v.turn.seq <= 4).take(1);
                for target in near {
                    if let Some(i) =
                        (0..target.cues.sentences.len()).rev().find(|i| shares_kind(&target.cues.sentences[*i], sentence))
                    {
                        self.take(target, [i], by, &replaced(&target.cues.sentences[i], sentence));
                    }
                }
            }
            (Retraction::Withdraw | Retraction::Overturn, Some((_, target, i))) => {
                if target.turn.role != view.turn.role && target.cues.sentences[i].promise {
                    self.closed.entry(target.turn.seq).or_insert(by);
                } else {
                    self.take(target, [i], by, &[]);
                }
            }
            (Retraction::Withdraw, None) => {
                // Names nothing: what the same speaker said last.
                if let Some(target) = candidates().find(|v| v.turn.role == view.turn.role) {
                    self.take(target, 0..target.cues.sentences.len(), by, &[]);
                }
            }
            (Retraction::Overturn, None) => {
                if let Some(target) = candidates().find(|v| v.cues.any(|s| s.decision)) {
                    let stated: Vec<usize> =
                        (0..target.cues.sentences.len()).filter(|i| target.cues.sentences[*i].decision).collect();
                    self.take(target, stated, by, &[]);
                }
            }
            (Retraction::Release, _) => {}
        }
    }

    fn fulfilment(&mut self, earlier: &[View<'_>], view: View<'_>, sentence: &SentenceCues) {
        self.close_promise(earlier, view, sentence, 1);
    }

    /// Closes the newest open promise that shares at least `shared` content words with the sentence; of a sentence that
    /// names nothing ("Done.", "不用了"), the newest open one.
    fn close_promise(&mut self, earlier: &[View<'_>], view: View<'_>, sentence: &SentenceCues, shared: usize) {
        let own: BTreeSet<u32> = sentence.terms.iter().copied().collect();
        let open: Vec<View<'_>> =
            earlier.iter().copied().filter(|v| v.cues.any(|s| s.promise) && !self.closed.contains_key(&v.turn.seq)).collect();
        let named = open
            .iter()
            .rev()
            .map(|v| (v.cues.sentences.iter().filter(|s| s.promise).map(|s| overlap(&own, &s.terms)).max().unwrap_or(0), v))
            .filter(|(common, _)| *common >= shared)
            .reduce(|best, next| if next.0 > best.0 { next } else { best })
            .map(|(_, v)| v.turn.seq);
        let target = named.or_else(|| if own.len() <= 2 { open.last().map(|v| v.turn.seq) } else { None });
        if let Some(seq) = target {
            self.closed.insert(seq, view.turn.seq);
        }
    }
}

fn shares_kind(a: &SentenceCues, b: &SentenceCues) -> bool {
    a.values.iter().any(|x| b.values.iter().any(|y| x.kind == y.kind && x.text != y.text))
}

/// Values of the old sentence that the new one replaces: of a kind that the new one also has, and not repeated there.
fn replaced(old: &SentenceCues, new: &SentenceCues) -> Vec<String> {
    let fresh = |v: &&CuedValue| new.values.iter().any(|n| n.kind == v.kind) && !new.values.iter().any(|n| n.text == v.text);
    old.values.iter().filter(fresh).map(|v| v.text.clone()).collect()
}

/// Judges turns by the table of rule S2, first match wins. `views` ascend by number and may have gaps: they hold the turns
/// to be judged, the anchors of earlier ranges, and every later turn there is, since a later turn may retract, fulfil or
/// use an earlier one. A verdict is given for each view.
#[must_use]
pub fn judge(views: &[View<'_>]) -> Vec<Verdict> {
    let links = Links::of(views);
    let pairs = tool_pairs(views.iter().map(|v| v.turn));
    let calls: BTreeSet<u32> = pairs.values().copied().collect();
    let mut verdicts: Vec<Verdict> = (0..views.len()).map(|at| judge_one(views, at, &links, &pairs, &calls)).collect();
    keep_pairs_together(&mut verdicts, &pairs);
    verdicts
}

fn judge_one(views: &[View<'_>], at: usize, links: &Links, pairs: &BTreeMap<u32, u32>, calls: &BTreeSet<u32>) -> Verdict {
    let View { turn, cues } = views[at];
    let taken = links.taken.get(&turn.seq);
    let verdict = |rule: &'static str, outcome: Outcome| Verdict {
        seq: turn.seq,
        rule: RuleId(rule),
        outcome,
        retracted_by: taken.map_or(0, |t| t.by),
        retracted_sentences: taken.map(|t| t.sentences.iter().map(|i| *i as u32).collect()).unwrap_or_default(),
        denied: taken.map(|t| t.denied.iter().cloned().collect()).unwrap_or_default(),
    };
    if turn.role == Role::System {
        return verdict("S6", Outcome::Dropped);
    }
    let left = |i: &usize| taken.is_none_or(|t| !t.sentences.contains(i));
    let remaining: Vec<&SentenceCues> = (0..cues.sentences.len()).filter(left).map(|i| &cues.sentences[i]).collect();
    let any = |cue: fn(&SentenceCues) -> bool| remaining.iter().any(|s| cue(s));
    if cues.any(|s| s.operation) || links.reversals.contains(&turn.seq) {
        return verdict("S2a", Outcome::Verbatim);
    }
    if taken.is_some() && remaining.iter().all(|s| s.courtesy || s.answer || s.hedge_only) {
        return verdict("S2b", Outcome::Dropped);
    }
    if turn.pinned {
        return verdict("S2c", Outcome::Verbatim);
    }
    let speaks = matches!(turn.role, Role::User | Role::Assistant);
    if speaks && any(|s| s.promise) && !links.closed.contains_key(&turn.seq) {
        return verdict("S2d", Outcome::Anchored);
    }
    if turn.role == Role::User && any(|s| s.constraint) {
        return verdict("S2e", Outcome::Anchored);
    }
    if cues.courtesy_only() {
        // "No." after "Is it on Tuesday?" decides something; after small talk it does not.
        let asked = at.checked_sub(1).map(|i| views[i]).filter(|v| v.turn.seq + 1 == turn.seq && v.turn.role != turn.role);
        let decides = cues.any(|s| s.answer)
            && asked.is_some_and(|v| v.cues.sentences.last().is_some_and(|s| s.question && !s.terms.is_empty()));
        return if decides { verdict("S2h", Outcome::Summarised) } else { verdict("S2f", Outcome::Dropped) };
    }
    if turn.role == Role::Tool || calls.contains(&turn.seq) || turn.tool_call_id.is_some() {
        let answers: Vec<View<'_>> = views
            .iter()
            .copied()
            .filter(|v| v.turn.seq == turn.seq || pairs.get(&v.turn.seq) == Some(&turn.seq))
            .filter(|v| v.turn.role == Role::Tool)
            .collect();
        let failed = answers.iter().any(|v| v.cues.failed);
        if !failed {
            return verdict("S2g", Outcome::Sentence);
        }
        return if is_used(views, at) { verdict("S2h", Outcome::Summarised) } else { verdict("S2i", Outcome::Dropped) };
    }
    if any(|s| !s.values.is_empty() || !s.mentions.is_empty() || s.decision) {
        return verdict("S2h", Outcome::Summarised);
    }
    verdict("S2i", Outcome::Dropped)
}

/// Whether one of the next turns takes up what a failed tool call says: a common value, or two common content words.
fn is_used(views: &[View<'_>], at: usize) -> bool {
    let own = views[at].cues.terms();
    let values: BTreeSet<&str> = views[at].cues.values().map(|v| v.text.as_str()).collect();
    views[at + 1..].iter().filter(|v| v.turn.role != Role::Tool).take(6).any(|later| {
        later.cues.values().any(|v| values.contains(v.text.as_str()))
            || later.cues.terms().iter().filter(|t| own.contains(t)).count() >= 2
    })
}

/// A tool call and its results share one fate (rule S6): when one of them is verbatim, all are; otherwise a result that is
/// dropped takes a call with it that says nothing itself.
fn keep_pairs_together(verdicts: &mut [Verdict], pairs: &BTreeMap<u32, u32>) {
    let place: BTreeMap<u32, usize> = verdicts.iter().enumerate().map(|(i, v)| (v.seq, i)).collect();
    let mut blocks: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (result, call) in pairs {
        let block = blocks.entry(*call).or_insert_with(|| place.get(call).copied().into_iter().collect());
        block.extend(place.get(result).copied());
    }
    for block in blocks.values() {
        if block.iter().any(|i| verdicts[*i].is_anchor()) {
            for i in block {
                if !verdicts[*i].is_anchor() {
                    verdicts[*i].rule = RuleId("S6");
                    verdicts[*i].outcome = Outcome::Verbatim;
                }
            }
        }
    }
}

/// Anchors after a judgement: those of turns that were not judged again stay, the others follow their verdicts. A
/// retraction or a fulfilment releases an anchor (rules S2b, S2d). In order of number.
#[must_use]
pub fn next_anchors(before: &[Anchor], verdicts: &[Verdict], through: u32) -> Vec<Anchor> {
    let judged: BTreeMap<u32, &Verdict> = verdicts.iter().map(|v| (v.seq, v)).collect();
    let mut anchors: BTreeMap<u32, Anchor> =
        before.iter().filter(|a| !judged.contains_key(&a.seq)).map(|a| (a.seq, a.clone())).collect();
    for verdict in verdicts.iter().filter(|v| v.seq <= through && v.is_anchor()) {
        anchors.insert(verdict.seq, Anchor { seq: verdict.seq, rule: verdict.rule, retracted_by: verdict.retracted_by });
    }
    anchors.into_values().collect()
}

/// One unit of a summary before the cap: a sentence, or two that must not be parted.
struct Unit {
    text: String,
    seqs: Vec<u32>,
    tokens: u32,
    weight: u32,
    /// Protected values and mentions that it tells, letter for letter, each with what it counts.
    carries: BTreeMap<String, u64>,
}

impl Unit {
    /// Whether all that another one names stands here.
    fn tells_all_of(&self, other: &Self) -> bool {
        other.carries.keys().all(|name| stands_in(&self.text, name))
    }

    /// Whether it names what it carries and says nothing of it: "OK, Thursday 15:00", "好的，林博士".
    fn is_echo(&self) -> bool {
        let mut names: Vec<&str> = self.carries.keys().map(String::as_str).collect();
        names.sort_by_key(|name| std::cmp::Reverse(name.len()));
        let around = names.iter().fold(self.text.clone(), |text, name| text.replace(name, " "));
        !names.is_empty()
            && around.chars().filter(|c| c.is_alphanumeric()).map(|c| if c.is_ascii() { 1 } else { 2 }).sum::<usize>()
                <= ECHO_LETTERS
    }
}

/// Letters around its values that say nothing of them: "with", "at", "好的". One beyond ASCII counts for two.
const ECHO_LETTERS: usize = 4;

/// Share of the words around names and values that a summary by rule may take, in percent of their tokens in the covered turns.
/// The names and values stand letter for letter and cost what they cost; of what is said of them more than half is not
/// compressed.
const SUMMARY_SHARE: u32 = 50;
/// Tokens that a summary may take however short its turns are.
const SUMMARY_FLOOR: u32 = 32;
/// Weight from which a unit is kept for what it is, before those that only carry values: constraints, promises, decisions.
const FIRST_WEIGHT: u32 = 8;

/// Bounds of one summary.
#[derive(Clone, Copy, Debug)]
pub struct SummaryBounds {
    /// Tokens of all sentences.
    pub tokens: u32,
    /// Tokens of the one sentence kept of a tool call (rule S2g).
    pub tool_tokens: u32,
    /// Shape of the session: a CHAT keeps no summary of what merely carries a value (rule S1), only its index.
    pub shape: Shape,
    /// Coarseness of the result.
    pub level: u32,
}

/// Summarises the turns `from..=to` from their originals (rules S3 to S6, S8). `views` hold exactly these turns,
/// `verdicts` at least theirs. Sentences are copied letter for letter, so hedges and negations survive; a sentence that is
/// nothing but doubt stays with its neighbour, a bare answer with its question. When the cap is reached the heavier
/// sentences stay, and every protected value is in the index anyway. `cut` shortens a text to a number of tokens.
#[must_use]
pub fn summarise(
    views: &[View<'_>],
    verdicts: &BTreeMap<u32, Verdict>,
    bounds: SummaryBounds,
    count: &dyn Fn(&str) -> u32,
    cut: &dyn for<'t> Fn(&'t str, u32) -> &'t str,
) -> Option<Summary> {
    let (first, last) = (views.first()?, views.last()?);
    let mut values = ValueIndex::default();
    for view in views {
        if let Some(verdict) = verdicts.get(&view.turn.seq) {
            index_values(*view, verdict, &mut values);
        }
    }
    let units = units(views, verdicts, bounds, count, cut);
    let cap = bounds.tokens.min(cap(views, &units, count));
    let sentences = choose(units, cap);
    for view in views {
        if let Some(verdict) = verdicts.get(&view.turn.seq) {
            index_nouns(*view, verdict, &sentences, &mut values);
        }
    }
    Some(Summary {
        from: first.turn.seq,
        to: last.turn.seq,
        sentences,
        values: values.into_references(),
        made_by: Maker::Rules,
        level: bounds.level,
        source_hash: source_hash(views.iter().map(|view| view.turn)),
        from_time: first.turn.time,
        to_time: last.turn.time,
    })
}

/// Tokens that [`summarise`] gives the sentences of these turns at most: the bound, or less where the turns say little.
#[must_use]
pub fn summary_cap(
    views: &[View<'_>],
    verdicts: &BTreeMap<u32, Verdict>,
    bounds: SummaryBounds,
    count: &dyn Fn(&str) -> u32,
    cut: &dyn for<'t> Fn(&'t str, u32) -> &'t str,
) -> u32 {
    bounds.tokens.min(cap(views, &units(views, verdicts, bounds, count, cut), count))
}

/// All that could be told of these turns, in turn order.
fn units(
    views: &[View<'_>],
    verdicts: &BTreeMap<u32, Verdict>,
    bounds: SummaryBounds,
    count: &dyn Fn(&str) -> u32,
    cut: &dyn for<'t> Fn(&'t str, u32) -> &'t str,
) -> Vec<Unit> {
    let pairs = tool_pairs(views.iter().map(|v| v.turn));
    let mut units = Vec::new();
    for (at, view) in views.iter().enumerate() {
        let Some(verdict) = verdicts.get(&view.turn.seq) else { continue };
        match verdict.outcome {
            Outcome::Dropped | Outcome::Verbatim => {}
            Outcome::Sentence => units.extend(tool_unit(*view, &pairs, views, bounds.tool_tokens, count, cut)),
            Outcome::Summarised | Outcome::Anchored => {
                let chat = bounds.shape == Shape::Chat && verdict.outcome == Outcome::Summarised;
                if !chat {
                    units.extend(sentence_units(views, at, verdict, count));
                }
            }
        }
    }
    units
}

/// Tokens that the units of these turns may take together.
fn cap(views: &[View<'_>], units: &[Unit], count: &dyn Fn(&str) -> u32) -> u32 {
    let whole = views.iter().map(|view| view.turn.tokens).fold(0, u32::saturating_add);
    let names: BTreeSet<&str> = units.iter().flat_map(|unit| unit.carries.keys().map(String::as_str)).collect();
    let names = names.into_iter().map(count).fold(0, u32::saturating_add).min(whole);
    let around = whole - names;
    (names + around / 100 * SUMMARY_SHARE + around % 100 * SUMMARY_SHARE / 100).max(SUMMARY_FLOOR)
}

/// Units within the cap, in turn order. First those that count for what they are, the heaviest first; then those that tell
/// most values and mentions a token that no kept unit tells yet. What tells nothing new, or a mere mention in too many words,
/// is left out: it stays in its range.
fn choose(units: Vec<Unit>, cap: u32) -> Vec<SummarySentence> {
    let mut order: Vec<usize> = (0..units.len()).filter(|i| units[*i].weight >= FIRST_WEIGHT).collect();
    // Among equals the newer one: it is the current state.
    order.sort_by_key(|i| (std::cmp::Reverse(units[*i].weight), std::cmp::Reverse(*i)));
    let mut left = cap;
    let mut seen = BTreeSet::new();
    let mut told: BTreeSet<&str> = BTreeSet::new();
    let mut kept = BTreeSet::new();
    for i in order {
        let unit = &units[i];
        if unit.tokens <= left && seen.insert(unit.text.as_str()) {
            left -= unit.tokens;
            kept.insert(i);
            told.extend(unit.carries.keys().map(String::as_str));
        }
    }
    // An echo is the shortest way to tell a value, and tells nothing of it: it waits until those that say more were asked.
    let bare: Vec<bool> = units.iter().map(Unit::is_echo).collect();
    let said_fully = |echo: &Unit| units.iter().zip(&bare).any(|(unit, bare)| !bare && unit.tells_all_of(echo));
    let (echoes, mut rest): (Vec<usize>, Vec<usize>) =
        (0..units.len()).filter(|i| units[*i].weight < FIRST_WEIGHT).partition(|i| bare[*i] && said_fully(&units[*i]));
    let mut echoes = Some(echoes);
    loop {
        // Gains shrink as units are kept: the best of now is taken.
        let gain = |i: usize| {
            let unit = &units[i];
            let new = || unit.carries.iter().filter(|(value, _)| !told.contains(value.as_str())).map(|(_, counts)| *counts);
            // A unit that carries nothing by name was weighed for something else: it counts as a mention.
            let all = if unit.carries.is_empty() { MENTION_COUNTS } else { new().sum() };
            let gain = 1_000 * all * u64::from(unit.weight) / u64::from(unit.tokens.max(1));
            // A protected value is told as long as there is room (rule S3).
            if new().any(|counts| counts >= VALUE_COUNTS) { gain.max(LEAST_GAIN) } else { gain }
        };
        rest.retain(|i| units[*i].tokens <= left && gain(*i) >= LEAST_GAIN && !seen.contains(units[*i].text.as_str()));
        let Some(best) = rest.iter().copied().max_by_key(|i| (gain(*i), *i)) else {
            let Some(echoes) = echoes.take() else { break };
            rest = echoes.into_iter().filter(|i| !kept.iter().any(|k| units[*k].tells_all_of(&units[*i]))).collect();
            continue;
        };
        let unit = &units[best];
        left -= unit.tokens;
        seen.insert(unit.text.as_str());
        kept.insert(best);
        told.extend(unit.carries.keys().map(String::as_str));
        rest.retain(|i| *i != best);
    }
    let sentence = |(_, u): (usize, &Unit)| SummarySentence { text: u.text.clone(), seqs: u.seqs.clone(), tokens: u.tokens };
    units.iter().enumerate().filter(|(i, _)| kept.contains(i)).map(sentence).collect()
}

/// What sentences carry by name: protected values and mentions, the outermost of those that lie within each other. What is
/// protected, or holds something protected, counts more than a mention.
fn carried(sentences: &[SentenceCues]) -> BTreeMap<String, u64> {
    let mut carried = BTreeMap::new();
    for sentence in sentences {
        for mention in &sentence.mentions {
            let holds = sentence.values.iter().any(|value| mention.contains(value.text.as_str()));
            carried.insert(mention.clone(), if holds { VALUE_COUNTS } else { MENTION_COUNTS });
        }
        for value in &sentence.values {
            if !sentence.mentions.iter().any(|mention| mention.contains(value.text.as_str())) {
                carried.insert(value.text.clone(), VALUE_COUNTS);
            }
        }
    }
    carried
}

/// What a protected value counts that no kept unit tells yet.
const VALUE_COUNTS: u64 = 3;
/// What a mention counts then.
const MENTION_COUNTS: u64 = 2;
/// Least gain of a unit that tells no new protected value: counts by weight in a thousand tokens. One mention in a statement
/// of the assistant (2 by 4) is worth up to 24 tokens, one in a question up to 12.
const LEAST_GAIN: u64 = 333;

fn sentence_units(views: &[View<'_>], at: usize, verdict: &Verdict, count: &dyn Fn(&str) -> u32) -> Vec<Unit> {
    let View { turn, cues } = views[at];
    let taken = |i: usize| verdict.retracted_sentences.contains(&(i as u32));
    if cues.courtesy_only() {
        // A bare answer that decides: with its question.
        let Some(question) = at.checked_sub(1).map(|i| views[i]) else { return Vec::new() };
        let Some(asked) = question.cues.sentences.last() else { return Vec::new() };
        let text = format!("{} {}", &question.turn.text[asked.start..asked.end], turn.text.trim());
        let tokens = count(&text);
        let carries = carried(std::slice::from_ref(asked));
        return vec![Unit { text, seqs: vec![question.turn.seq, turn.seq], tokens, weight: FIRST_WEIGHT, carries }];
    }
    let sentences = &cues.sentences;
    let mut units = Vec::new();
    let mut i = 0;
    while i < sentences.len() {
        // A sentence that is nothing but doubt is glued to the one after it, or at the end to the one before.
        let mut end = i;
        while sentences[end].hedge_only && end + 1 < sentences.len() {
            end += 1;
        }
        while end + 1 < sentences.len() && sentences[end + 1].hedge_only {
            end += 1;
        }
        let group = i..=end;
        let members = &sentences[group.clone()];
        let worth = members.iter().map(|s| weight(s, turn.role)).max().unwrap_or(0);
        if worth > 0 && !group.clone().any(taken) {
            let whole = &turn.text[sentences[i].start..sentences[end].end];
            let text = if i == end { told(&turn.text, &sentences[i]) } else { whole.to_owned() };
            units.push(Unit { tokens: count(&text), text, seqs: vec![turn.seq], weight: worth, carries: carried(members) });
        }
        i = end + 1;
    }
    units
}

/// Marks that end a clause.
const CLAUSE_MARKS: [char; 4] = [',', '，', ';', '；'];

/// Marks that end a statement: alone in its entry a sentence tells as much without them.
const FULL_STOPS: [char; 7] = ['.', '。', '．', '!', '！', '~', '～'];

/// The telling parts of a sentence, letter for letter, with the marks that stand between its clauses; the whole sentence where
/// nothing can be left out. Never with a full stop, always with a question mark.
fn told(text: &str, sentence: &SentenceCues) -> String {
    let Some(last) = sentence.telling.last() else {
        return without_stop(&text[sentence.start..sentence.end], sentence).to_owned();
    };
    let mut out = String::with_capacity(sentence.end - sentence.start);
    for (at, part) in sentence.telling.iter().enumerate() {
        out.push_str(&text[part.start..part.end]);
        if let Some(next) = sentence.telling.get(at + 1) {
            let gap = &text[part.end..next.start];
            // Two values with no more than a space between them would be read as one: "50元，6位".
            let ends_in_value = || sentence.values.iter().any(|value| text[part.start..part.end].ends_with(value.text.as_str()));
            if next.joined && !(text[next.start..].starts_with(char::is_numeric) && ends_in_value()) {
                out.push(' ');
            } else if let Some(mark) = gap.find(CLAUSE_MARKS) {
                // The mark behind this clause; what it separated from this one is left out.
                out.extend(gap[mark..].chars().take_while(|c| !c.is_alphanumeric()));
            } else if gap.starts_with(' ') && !text[next.start..].starts_with(' ') {
                out.push(' ');
            }
        }
    }
    let rest = &text[last.end..sentence.end];
    // The mark that ends the sentence, unless a clause of it is left out.
    if !rest.find(CLAUSE_MARKS).is_some_and(|mark| rest[mark..].contains(char::is_alphanumeric)) {
        let mark = rest.rfind(char::is_alphanumeric).map_or(0, |at| at + rest[at..].chars().next().map_or(0, char::len_utf8));
        out.push_str(rest[mark..].trim_end());
    }
    without_stop(&out, sentence).to_owned()
}

/// A sentence without the stop at its end, which may be the end of a value or of a shortened word too: "at 7 p.m.".
fn without_stop<'t>(told: &'t str, sentence: &SentenceCues) -> &'t str {
    let shorter = told.trim_end_matches(FULL_STOPS);
    let named = sentence.values.iter().map(|value| &value.text).chain(&sentence.mentions);
    let ends_name = named.into_iter().any(|name| name.ends_with(FULL_STOPS) && told.ends_with(name.as_str()));
    let shortened = shorter.rsplit(char::is_whitespace).next().is_some_and(|word| word.contains('.') && told.ends_with('.'));
    if ends_name || shortened || shorter.is_empty() { told } else { shorter }
}

/// Weight of a sentence against the cap; zero for what has no consumer (A33).
fn weight(sentence: &SentenceCues, role: Role) -> u32 {
    if sentence.courtesy || sentence.hedge_only {
        return 0;
    }
    let by_cue = if sentence.constraint && role == Role::User {
        6
    } else if sentence.promise {
        5
    } else if sentence.decision {
        4
    } else if !sentence.values.is_empty() {
        3
    } else if !sentence.mentions.is_empty() {
        2
    } else {
        0
    };
    let user = u32::from(role == Role::User);
    // A question asserts nothing: it counts half. A polite request says what is wanted.
    match (by_cue, sentence.question && !sentence.request) {
        (0, _) => 0,
        (w, true) => w,
        (w, false) => 2 * w + user,
    }
}

/// The one sentence of a successful tool call: of its result, or of the call when that result stands elsewhere.
fn tool_unit(
    view: View<'_>,
    pairs: &BTreeMap<u32, u32>,
    views: &[View<'_>],
    tokens: u32,
    count: &dyn Fn(&str) -> u32,
    cut: &dyn for<'t> Fn(&'t str, u32) -> &'t str,
) -> Option<Unit> {
    let seqs = match view.turn.role {
        Role::Tool => pairs.get(&view.turn.seq).copied().into_iter().chain([view.turn.seq]).collect(),
        Role::User | Role::Assistant | Role::System => {
            let answered =
                pairs.iter().any(|(result, call)| *call == view.turn.seq && views.iter().any(|v| v.turn.seq == *result));
            if answered {
                return None;
            }
            vec![view.turn.seq]
        }
    };
    let sentence = view.cues.sentences.iter().find(|s| !s.values.is_empty()).or_else(|| view.cues.sentences.first())?;
    let text = cut(&view.turn.text[sentence.start..sentence.end], tokens).to_owned();
    if text.is_empty() {
        return None;
    }
    Some(Unit { tokens: count(&text), text, seqs, weight: FIRST_WEIGHT, carries: carried(std::slice::from_ref(sentence)) })
}

/// First and newest turn of each value.
#[derive(Default)]
struct ValueIndex(BTreeMap<String, (u32, u32)>);

impl ValueIndex {
    fn add(&mut self, value: &str, seq: u32) {
        let entry = self.0.entry(value.to_owned()).or_insert((seq, seq));
        entry.1 = seq;
    }

    fn into_references(self) -> Vec<ValueReference> {
        let mut references = BTreeSet::new();
        for (value, (first, newest)) in self.0 {
            references.insert((first, value.clone()));
            references.insert((newest, value));
        }
        references.into_iter().map(|(seq, value)| ValueReference { value, seq }).collect()
    }
}

/// Whether a sentence of a turn may be told at all: wording withdrawn as a whole protects nothing; a corrected sentence loses
/// only what was corrected.
fn is_told(view: View<'_>, verdict: &Verdict, sentence: usize) -> bool {
    let taken = verdict.retracted_sentences.contains(&(sentence as u32));
    view.turn.role != Role::System && !(taken && verdict.denied.is_empty() && verdict.rule.0 != "S2a")
}

fn index_values(view: View<'_>, verdict: &Verdict, index: &mut ValueIndex) {
    for (i, sentence) in view.cues.sentences.iter().enumerate().filter(|(i, _)| is_told(view, verdict, *i)) {
        let taken = verdict.retracted_sentences.contains(&(i as u32));
        for value in sentence.values.iter().map(|value| &value.text).chain(&sentence.mentions) {
            if taken && verdict.denied.contains(value) && verdict.rule.0 != "S2a" {
                continue;
            }
            index.add(value, view.turn.seq);
        }
    }
}

/// Adds the nouns of a turn that neither the summary shows nor the index holds within a longer entry: what there was no room
/// for is still found (rule S3).
fn index_nouns(view: View<'_>, verdict: &Verdict, shown: &[SummarySentence], index: &mut ValueIndex) {
    for (_, sentence) in view.cues.sentences.iter().enumerate().filter(|(i, _)| is_told(view, verdict, *i)) {
        let own = || sentence.values.iter().map(|value| &value.text).chain(&sentence.mentions);
        for noun in &sentence.nouns {
            let held = shown.iter().any(|told| told.text.contains(noun.as_str()))
                || own().any(|entry| entry.contains(noun.as_str()))
                || verdict.denied.iter().any(|denied| denied.contains(noun.as_str()));
            if !held {
                index.add(noun, view.turn.seq);
            }
        }
    }
}

/// A range of turns, both ends inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeqRange {
    /// First.
    pub from: u32,
    /// Last.
    pub to: u32,
}

/// Whether an append makes a compression due (rule S7): enough turns beyond those kept verbatim, or too many tokens.
#[must_use]
pub const fn compression_due(settings: &SessionSettings, last: u32, through: u32, pending_tokens: u64) -> bool {
    let pending = last.saturating_sub(through);
    pending >= settings.keep_turns.saturating_add(settings.compress_every)
        || (pending_tokens > settings.compress_tokens && pending > 2)
}

/// The turns to compress now, leaving the `keep` newest; none when there are none. Under token pressure fewer stay: as many
/// of the newest as fit into half of the limit, at least two. A tool call is not parted from its results (rule S6).
#[must_use]
pub fn range_due(settings: &SessionSettings, pending: &[Turn], keep: u32) -> Option<SeqRange> {
    let (first, last) = (pending.first()?.seq, pending.last()?.seq);
    let tokens: u64 = pending.iter().map(|t| u64::from(t.tokens)).sum();
    let mut kept = keep;
    if tokens > settings.compress_tokens {
        let mut fits = 0_u32;
        let mut sum = 0_u64;
        for turn in pending.iter().rev() {
            sum += u64::from(turn.tokens);
            if sum > settings.compress_tokens / 2 {
                break;
            }
            fits += 1;
        }
        kept = kept.min(fits.max(2));
    }
    whole_calls(pending, SeqRange { from: first, to: last.checked_sub(kept)? })
}

/// The range, ending earlier where it would part a tool call from its results (rule S6): a result beyond the end pulls the end
/// back before its call. None when nothing is left. `turns` are those of the range and all later ones.
#[must_use]
pub fn whole_calls(turns: &[Turn], range: SeqRange) -> Option<SeqRange> {
    let SeqRange { from, mut to } = range;
    let pairs = tool_pairs(turns);
    while let Some(call) = pairs.iter().filter(|(result, call)| **call <= to && **result > to).map(|(_, call)| *call).min() {
        to = call.checked_sub(1)?;
    }
    (to >= from).then_some(SeqRange { from, to })
}

/// Adjacent ranges to be remade as one from their originals (rule S4): the oldest `fan_in` of the finest coarseness that
/// has that many. None when there are none.
#[must_use]
pub fn ranges_to_merge(summaries: &[Summary], fan_in: u32) -> Option<SeqRange> {
    let fan_in = fan_in as usize;
    let mut best: Option<&[Summary]> = None;
    for run in summaries.windows(fan_in) {
        let level = run[0].level;
        if run.iter().all(|s| s.level == level) && best.is_none_or(|b| level < b[0].level) {
            best = Some(run);
        }
    }
    best.map(|run| SeqRange { from: run[0].from, to: run[fan_in - 1].to })
}

/// Shape of a session by rule (rule S1), from the turns seen so far.
#[must_use]
pub fn infer_shape(views: &[View<'_>]) -> (Shape, Finding) {
    let users = || views.iter().filter(|v| v.turn.role == Role::User);
    let tools = views.iter().filter(|v| v.turn.role == Role::Tool || v.turn.tool_call_id.is_some()).count();
    let work = users().filter(|v| v.cues.any(|s| s.request || s.operation || s.constraint)).count();
    let promises = views.iter().filter(|v| v.turn.role == Role::Assistant && v.cues.any(|s| s.promise || s.operation)).count();
    let questions = users().filter(|v| v.cues.any(|s| s.question && !s.courtesy)).count();
    let content = views.iter().filter(|v| v.cues.any(|s| s.decision || !s.values.is_empty())).count();
    let speaking = users().count().max(1);
    let (shape, because) = if tools > 0 {
        (Shape::Task, "tools are called")
    } else if 3 * work >= speaking && work + promises > 0 {
        (Shape::Task, "at least a third of the user's turns ask for work or set constraints")
    } else if 3 * questions >= speaking {
        (Shape::Exploratory, "at least a third of the user's turns ask questions")
    } else if 4 * content >= views.len().max(1) {
        (Shape::Exploratory, "at least a quarter of the turns carry values or decisions")
    } else {
        (Shape::Chat, "neither work, nor questions, nor many values")
    };
    (shape, Finding::new("S1", shape.name(), because))
}

/// Budget of a window.
#[derive(Clone, Copy, Debug)]
pub struct WindowBudget {
    /// Turns at most: system turn, anchors and newest turns together.
    pub turns: u32,
    /// Tokens at most: everything shown.
    pub tokens: u32,
    /// Share of both that anchors may take, in percent (rule S11).
    pub anchor_percent: u32,
}

/// What a window can be made of.
#[derive(Clone, Copy, Debug)]
pub struct WindowInput<'a> {
    /// Last turn number of the session.
    pub last: u32,
    /// The newest turns, ascending and dense up to `last`, none of them covered by a summary. May begin anywhere.
    pub tail: &'a [Turn],
    /// The instruction turn in force.
    pub system: Option<&'a Turn>,
    /// Anchored turns with their reasons, any order.
    pub anchors: &'a [(Anchor, Turn)],
    /// Summaries, oldest first, disjoint.
    pub summaries: &'a [Summary],
    /// Their energies, and those of the anchors (rule S9).
    pub energies: &'a Energies,
}

/// What a window shows: turn numbers and indices into the input, each in order of number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Whether the instruction turn is shown.
    pub system: bool,
    /// Numbers of the anchored turns that stand outside the newest turns.
    pub anchors: Vec<u32>,
    /// Numbers of the newest turns.
    pub turns: Vec<u32>,
    /// Indices of the summaries shown.
    pub summaries: Vec<usize>,
    /// Tokens of all of it.
    pub tokens: u32,
    /// Anchors that did not fit.
    pub anchors_left_out: Vec<u32>,
    /// Turns that are neither shown nor covered by a shown summary.
    pub turns_left_out: u32,
}

/// Fills a budget: the instruction turn, anchors up to their share, the newest turns, then summaries; whole items only, never
/// over the budget (rules S6, S11; cases C099, C101, C116). What has more energy comes first, of anchors within one kind of
/// reason; newest first among equals; a summary without energy is left out (rule S9). A tool call and its results are shown
/// together or not at all; a result whose call is not there is not shown. An anchor among the newest turns is shown once.
#[must_use]
pub fn window(input: WindowInput<'_>, budget: WindowBudget) -> Window {
    let mut left = Left { turns: budget.turns, tokens: budget.tokens };
    let mut shown = Window::default();
    if let Some(system) = input.system {
        shown.system = left.pay(1, system.tokens);
    }
    let system_seq = input.system.map_or(0, |s| s.seq);
    let share = |of: u32| u32::try_from(u64::from(of) * u64::from(budget.anchor_percent.min(100)) / 100).unwrap_or(of);
    let mut anchor_share = Left { turns: share(budget.turns).min(left.turns), tokens: share(budget.tokens).min(left.tokens) };

    // Anchors, in units that are not parted.
    let mut units: BTreeMap<u32, Vec<&(Anchor, Turn)>> = BTreeMap::new();
    let mut ordered: Vec<&(Anchor, Turn)> = input.anchors.iter().filter(|(a, _)| a.seq != system_seq).collect();
    ordered.sort_by_key(|(a, _)| a.seq);
    ordered.dedup_by_key(|(a, _)| a.seq);
    let mut known: BTreeMap<u32, &Turn> = ordered.iter().map(|(_, t)| (t.seq, t)).collect();
    known.extend(input.tail.iter().map(|t| (t.seq, t)));
    let pairs = tool_pairs(known.values().copied());
    for anchor in &ordered {
        let head = pairs.get(&anchor.0.seq).copied().unwrap_or(anchor.0.seq);
        units.entry(head).or_default().push(anchor);
    }
    let mut queue: Vec<(u32, &Vec<&(Anchor, Turn)>)> = units.iter().map(|(head, unit)| (*head, unit)).collect();
    let energy = |unit: &[&(Anchor, Turn)]| unit.iter().map(|(a, _)| input.energies.anchor(a.seq)).fold(0.0, f64::max);
    let class = |unit: &[&(Anchor, Turn)]| unit.iter().map(|(a, _)| a.class()).min();
    queue.sort_by(|(_, a), (_, b)| {
        let newer = |unit: &[&(Anchor, Turn)]| unit.iter().map(|(a, _)| a.priority()).min();
        class(a).cmp(&class(b)).then_with(|| energy(b).total_cmp(&energy(a))).then_with(|| newer(a).cmp(&newer(b)))
    });
    let mut chosen: BTreeSet<u32> = BTreeSet::new();
    for (head, unit) in queue {
        let members: BTreeSet<u32> = unit.iter().map(|(a, _)| a.seq).collect();
        // All results of a call that is shown outside the tail, and no result without its call.
        let complete = unit.iter().all(|(_, t)| t.role != Role::Tool || (t.seq != head && members.contains(&head)))
            && pairs.iter().filter(|(_, call)| **call == head).all(|(result, _)| members.contains(result));
        let tokens = unit.iter().map(|(_, t)| t.tokens).fold(0, u32::saturating_add);
        let turns = u32::try_from(unit.len()).unwrap_or(u32::MAX);
        if complete && anchor_share.pay(turns, tokens) {
            chosen.extend(members);
            left.turns -= turns;
            left.tokens -= tokens;
        }
    }

    // The longest dense end of the session that fits; turns that are shown anyway cost nothing.
    let orphan = |t: &Turn| t.role == Role::Tool && !pairs.contains_key(&t.seq);
    let mut start = input.tail.len();
    let mut spent = Left { turns: 0, tokens: 0 };
    let mut at = input.tail.len();
    // Calls that a result in the suffix waits for.
    let mut waiting: BTreeSet<u32> = BTreeSet::new();
    while at > 0 {
        at -= 1;
        let turn = &input.tail[at];
        if !(turn.role == Role::System || orphan(turn) || chosen.contains(&turn.seq)) {
            spent.turns += 1;
            spent.tokens = spent.tokens.saturating_add(turn.tokens);
            if spent.turns > left.turns || spent.tokens > left.tokens {
                break;
            }
        }
        waiting.remove(&turn.seq);
        if let Some(call) = pairs.get(&turn.seq) {
            waiting.insert(*call);
        }
        if waiting.is_empty() {
            start = at;
        }
    }
    for turn in &input.tail[start..] {
        if turn.role == Role::System || orphan(turn) {
            continue;
        }
        if !chosen.contains(&turn.seq) {
            left.pay(1, turn.tokens);
        }
        shown.turns.push(turn.seq);
    }
    let in_suffix = |seq: u32| shown.turns.binary_search(&seq).is_ok();
    shown.anchors = chosen.iter().copied().filter(|seq| !in_suffix(*seq)).collect();
    shown.anchors_left_out = ordered.iter().map(|(a, _)| a.seq).filter(|seq| !chosen.contains(seq) && !in_suffix(*seq)).collect();

    let mut by_energy: Vec<usize> = (0..input.summaries.len()).rev().filter(|i| input.energies.summary(*i) > 0.0).collect();
    by_energy.sort_by(|a, b| input.energies.summary(*b).total_cmp(&input.energies.summary(*a)));
    for i in by_energy {
        let summary = &input.summaries[i];
        if !summary.sentences.is_empty() && left.pay(0, summary.tokens()) {
            shown.summaries.push(i);
        }
    }
    shown.summaries.sort_unstable();
    shown.tokens = budget.tokens - left.tokens;
    // A range with nothing worth keeping is covered by its empty summary at no cost.
    let covered =
        |seq: u32| {
            input.summaries.iter().enumerate().any(|(i, s)| {
                (s.from..=s.to).contains(&seq) && (s.sentences.is_empty() || shown.summaries.binary_search(&i).is_ok())
            })
        };
    let covered_turns: u32 = input
        .summaries
        .iter()
        .enumerate()
        .filter(|(i, s)| s.sentences.is_empty() || shown.summaries.binary_search(i).is_ok())
        .map(|(_, s)| s.to + 1 - s.from)
        .sum();
    let extra: BTreeSet<u32> = shown
        .anchors
        .iter()
        .chain(&shown.turns)
        .copied()
        .chain(if shown.system { Some(system_seq) } else { None })
        .filter(|seq| !covered(*seq))
        .collect();
    shown.turns_left_out =
        input.last.saturating_sub(covered_turns).saturating_sub(u32::try_from(extra.len()).unwrap_or(u32::MAX));
    shown
}

#[derive(Clone, Copy, Debug)]
struct Left {
    turns: u32,
    tokens: u32,
}

impl Left {
    fn pay(&mut self, turns: u32, tokens: u32) -> bool {
        if turns > self.turns || tokens > self.tokens {
            return false;
        }
        self.turns -= turns;
        self.tokens -= tokens;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(seq: u32, role: Role, tokens: u32) -> Turn {
        Turn {
            seq,
            role,
            text: format!("text of turn {seq}"),
            tool_call_id: None,
            pinned: false,
            time: Timestamp(i64::from(seq)),
            client_time: None,
            tokens,
            speaker: String::new(),
            external_id: String::new(),
            redacted: 0,
        }
    }

    fn said(cue: impl FnOnce(&mut SentenceCues)) -> TurnCues {
        let mut sentence = SentenceCues { start: 0, end: 4, tokens: 1, ..SentenceCues::default() };
        cue(&mut sentence);
        TurnCues { sentences: vec![sentence], failed: false }
    }

    fn value(text: &str) -> CuedValue {
        CuedValue { kind: ValueKind::Amount, text: text.into() }
    }

    /// Judges one turn per cue, all of `role`.
    fn rules(role: Role, cues: &[TurnCues]) -> Vec<(&'static str, u32)> {
        let turns: Vec<Turn> = (1..).zip(cues).map(|(seq, _)| turn(seq, role, 1)).collect();
        let views: Vec<View<'_>> = turns.iter().zip(cues).map(|(turn, cues)| View { turn, cues }).collect();
        judge(&views).into_iter().map(|v| (v.rule.0, v.retracted_by)).collect()
    }

    #[test]
    fn s2_the_first_matching_row_decides() {
        let everything = |s: &mut SentenceCues| {
            (s.operation, s.promise, s.constraint, s.decision) = (true, true, true, true);
            s.values = vec![value("$5")];
        };
        for (cues, rule) in [
            (said(everything), "S2a"),
            (said(|s| (everything(s), s.operation = false).1), "S2d"),
            (said(|s| s.constraint = true), "S2e"),
            (said(|s| s.courtesy = true), "S2f"),
            (said(|s| s.values = vec![value("$5")]), "S2h"),
            (said(|s| s.decision = true), "S2h"),
            (said(|_| {}), "S2i"),
        ] {
            assert_eq!(rules(Role::User, std::slice::from_ref(&cues)), [(rule, 0)], "{cues:?}");
        }
        assert_eq!(rules(Role::Assistant, &[said(|s| s.constraint = true)]), [("S2i", 0)], "a constraint is the user's");
        assert_eq!(rules(Role::System, &[said(|s| s.operation = true)]), [("S6", 0)]);
    }

    #[test]
    fn s2b_a_retraction_takes_back_what_it_names_and_marks_an_operation() {
        let stated = || said(|s| (s.values = vec![value("$200")], s.terms = vec![1, 2, 3]).1);
        let denies =
            said(|s| (s.values = vec![value("$300"), value("$200")], s.denied = vec!["$200".into()], s.terms = vec![1, 2]).2);
        assert_eq!(rules(Role::User, &[stated(), denies]), [("S2b", 2), ("S2h", 0)]);
        let withdraws = || said(|s| s.retraction = Some(Retraction::Withdraw));
        assert_eq!(rules(Role::User, &[stated(), withdraws()]), [("S2b", 2), ("S2i", 0)]);
        let operation = said(|s| s.operation = true);
        assert_eq!(rules(Role::User, &[operation, withdraws()]), [("S2a", 2), ("S2a", 0)], "the reversal is S2a too");
        let correct = said(|s| s.retraction = Some(Retraction::Correct));
        assert_eq!(
            rules(Role::User, &[stated(), correct]),
            [("S2h", 0), ("S2i", 0)],
            "a correction without a value is a turn of phrase"
        );
    }

    #[test]
    fn s2d_a_promise_is_open_until_fulfilled_or_released() {
        let promise = |term| said(move |s| (s.promise = true, s.terms = vec![term, 50]).1);
        let done = said(|s| (s.fulfilment = true, s.terms = vec![1, 60, 61]).1);
        assert_eq!(rules(Role::Assistant, &[promise(1), promise(2), done]), [("S2i", 0), ("S2d", 0), ("S2i", 0)]);
        let release = said(|s| s.retraction = Some(Retraction::Release));
        assert_eq!(rules(Role::Assistant, &[promise(1), promise(2), release]), [("S2d", 0), ("S2i", 0), ("S2i", 0)]);
    }

    #[test]
    fn s7_compression_is_due_by_turns_or_tokens() {
        let settings = SessionSettings::default();
        assert!(!compression_due(&settings, 19, 0, 10) && compression_due(&settings, 20, 0, 10));
        assert!(!compression_due(&settings, 29, 10, 10) && compression_due(&settings, 30, 10, 10));
        assert!(compression_due(&settings, 5, 0, 6_001) && !compression_due(&settings, 2, 0, 6_001));
    }

    #[test]
    fn s6_a_range_never_ends_between_a_call_and_its_result() {
        let settings = SessionSettings::default();
        let roles = [Role::User, Role::User, Role::Assistant, Role::Tool, Role::Tool, Role::User];
        let turns: Vec<Turn> = (1..).zip(roles).map(|(seq, role)| turn(seq, role, 1)).collect();
        let to = |keep| range_due(&settings, &turns, keep).map(|r| r.to);
        assert_eq!([to(0), to(1), to(2), to(3), to(4), to(6)], [Some(6), Some(5), Some(2), Some(2), Some(2), None]);
    }

    #[test]
    fn s4_the_finest_full_run_is_remade_first() {
        let summary = |from: u32, to: u32, level| Summary {
            from,
            to,
            sentences: Vec::new(),
            values: Vec::new(),
            made_by: Maker::Rules,
            level,
            source_hash: String::new(),
            from_time: Timestamp::ZERO,
            to_time: Timestamp::ZERO,
        };
        let coarse: Vec<Summary> = (0..4).map(|n| summary(n * 40 + 1, n * 40 + 40, 1)).collect();
        assert_eq!(ranges_to_merge(&coarse[..3], 4), None);
        assert_eq!(ranges_to_merge(&coarse, 4), Some(SeqRange { from: 1, to: 160 }));
        let mut both = coarse;
        both.extend((0..4).map(|n| summary(161 + n * 10, 170 + n * 10, 0)));
        assert_eq!(ranges_to_merge(&both, 4), Some(SeqRange { from: 161, to: 200 }));
    }

    #[test]
    fn a45_s9_energy_orders_what_a_budget_shows_and_never_how_it_stands() {
        let summary = |from: u32| Summary {
            from,
            to: from + 9,
            sentences: vec![SummarySentence { text: "s".into(), seqs: vec![from], tokens: 10 }],
            values: Vec::new(),
            made_by: Maker::Rules,
            level: 0,
            source_hash: String::new(),
            from_time: Timestamp::ZERO,
            to_time: Timestamp::ZERO,
        };
        let summaries = [summary(1), summary(11), summary(21), summary(31)];
        let anchor = |seq: u32, rule| (Anchor { seq, rule: RuleId(rule), retracted_by: 0 }, turn(seq, Role::User, 10));
        let anchors = [anchor(2, "S2e"), anchor(12, "S2e"), anchor(22, "S2e"), anchor(32, "S2d")];
        let shown = |energies: &Energies, tokens: u32| {
            let input = WindowInput { last: 40, tail: &[], system: None, anchors: &anchors, summaries: &summaries, energies };
            let shown = window(input, WindowBudget { turns: 10, tokens, anchor_percent: 50 });
            (shown.anchors, shown.summaries, shown.anchors_left_out, shown.turns_left_out)
        };
        // Without energies the newest come first.
        let none = Energies::default();
        assert_eq!(shown(&none, 40), (vec![12, 22], vec![2, 3], vec![2, 32], 19));
        // With them the strongest do; a reason still goes before energy, and order is by number.
        let energies = Energies {
            summaries: vec![0.9, 0.1, 0.8, 0.0],
            anchors: BTreeMap::from([(2, 0.7), (12, 0.6), (22, 0.1), (32, 1.0)]),
        };
        assert_eq!(shown(&energies, 40), (vec![2, 12], vec![0, 2], vec![22, 32], 19));
        // Room for everything: what has no energy is left out, and counted.
        assert_eq!(shown(&energies, 400), (vec![2, 12, 22, 32], vec![0, 1, 2], vec![], 9));
    }

    #[test]
    fn s11_c099_c116_a_window_holds_every_budget_and_counts_honestly() {
        // A small generator: the same cases every time.
        let mut state = 7_u32;
        let mut random = move |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % below
        };
        for _ in 0..2_000 {
            let last = random(20) + 1;
            let turns: Vec<Turn> = (1..=last)
                .map(|seq| {
                    let role = [Role::User, Role::Assistant, Role::Tool, Role::Tool, Role::System][random(5) as usize];
                    let mut turn = turn(seq, role, random(9) + 1);
                    if matches!(role, Role::Assistant | Role::Tool) && random(2) == 0 {
                        turn.tool_call_id = Some(format!("c{}", random(3)));
                    }
                    turn
                })
                .collect();
            let floor = random(last + 1);
            let summaries = if floor > 0 {
                vec![Summary {
                    from: 1,
                    to: floor,
                    sentences: vec![SummarySentence { text: "s".into(), seqs: vec![1], tokens: 3 }],
                    values: Vec::new(),
                    made_by: Maker::Rules,
                    level: 0,
                    source_hash: String::new(),
                    from_time: Timestamp::ZERO,
                    to_time: Timestamp::ZERO,
                }]
            } else {
                Vec::new()
            };
            let anchors: Vec<(Anchor, Turn)> = turns
                .iter()
                .filter(|_| random(3) == 0)
                .map(|t| (Anchor { seq: t.seq, rule: RuleId("S2c"), retracted_by: 0 }, t.clone()))
                .collect();
            let system = turns.iter().rfind(|t| t.role == Role::System);
            let tail = &turns[floor as usize..];
            let budget = WindowBudget { turns: random(12), tokens: random(60), anchor_percent: 60 };
            let energies = Energies {
                summaries: vec![f64::from(random(3)) / 2.0],
                anchors: turns.iter().map(|t| (t.seq, f64::from(random(5)) / 4.0)).collect(),
            };
            let input = WindowInput { last, tail, system, anchors: &anchors, summaries: &summaries, energies: &energies };
            let shown = window(input, budget);

            let texts: BTreeSet<u32> = shown.anchors.iter().chain(&shown.turns).copied().collect();
            let count = texts.len() as u32 + u32::from(shown.system);
            assert_eq!(texts.len(), shown.anchors.len() + shown.turns.len(), "nothing twice");
            assert!(count <= budget.turns && shown.tokens <= budget.tokens, "{shown:?} {budget:?}");
            let of = |seq: &u32| &turns[*seq as usize - 1];
            let sum: u32 = texts.iter().map(|s| of(s).tokens).sum::<u32>()
                + if shown.system { system.map_or(0, |s| s.tokens) } else { 0 }
                + 3 * shown.summaries.len() as u32;
            assert_eq!(sum, shown.tokens);
            let anchor_tokens: u32 = shown.anchors.iter().map(|s| of(s).tokens).sum();
            assert!(anchor_tokens * 100 <= budget.tokens * 60);
            // No result without its call, no call without all its results that the window could know.
            let mut known: BTreeMap<u32, &Turn> = anchors.iter().map(|(a, t)| (a.seq, t)).collect();
            known.extend(tail.iter().map(|t| (t.seq, t)));
            let pairs = tool_pairs(known.into_values());
            for seq in &texts {
                if of(seq).role == Role::Tool {
                    assert!(pairs.get(seq).is_some_and(|call| texts.contains(call)), "{seq} in {shown:?}: {turns:?}");
                }
            }
            for (result, call) in &pairs {
                assert!(!texts.contains(call) || texts.contains(result), "{call} without {result}: {shown:?}");
            }
            assert!(shown.summaries.is_empty() || energies.summary(0) > 0.0, "nothing without energy is shown");
            let covered = if shown.summaries.is_empty() { 0 } else { floor };
            let extra =
                texts.iter().copied().chain(system.filter(|_| shown.system).map(|s| s.seq)).filter(|s| *s > covered).count()
                    as u32;
            assert_eq!(shown.turns_left_out, last - covered - extra, "{shown:?}");
            let left: BTreeSet<u32> =
                anchors.iter().map(|(a, _)| a.seq).filter(|s| !texts.contains(s) && system.is_none_or(|t| t.seq != *s)).collect();
            assert_eq!(shown.anchors_left_out.iter().copied().collect::<BTreeSet<_>>(), left);
        }
    }

    #[test]
    fn s3_a_summary_tells_most_values_a_token_and_repeats_none_for_want_of_room() {
        let unit = |text: &str, tokens: u32, weight: u32, carries: &[(&str, u64)]| Unit {
            text: text.into(),
            seqs: vec![1],
            tokens,
            weight,
            carries: carries.iter().map(|(value, counts)| ((*value).to_owned(), *counts)).collect(),
        };
        let units = || {
            vec![
                unit("long", 40, 6, &[("a", 3)]),
                unit("dense", 10, 6, &[("a", 3), ("b", 3)]),
                unit("again", 10, 6, &[("a", 3)]),
                unit("never after nine", 10, 12, &[]),
            ]
        };
        let texts = |cap| choose(units(), cap).into_iter().map(|s| s.text).collect::<Vec<_>>();
        assert_eq!(texts(20), ["dense", "never after nine"], "constraints first, then the densest");
        assert_eq!(texts(30), ["dense", "never after nine"], "what is told already is not told again");
        assert_eq!(texts(10), ["never after nine"]);
        assert!(texts(5).is_empty());
        let told = |units: Vec<Unit>| choose(units, 100).into_iter().map(|s| s.text).collect::<Vec<_>>();
        let wordy = |counts| vec![unit("wordy", 90, 4, &[("a", counts)])];
        assert!(told(wordy(MENTION_COUNTS)).is_empty(), "a mention in too many words stays in its range");
        assert_eq!(told(wordy(VALUE_COUNTS)), ["wordy"], "a protected value is told as long as there is room");
    }

    #[test]
    fn s3_names_and_values_cost_what_they_cost_and_the_words_around_them_half() {
        let turns = [turn(1, Role::User, 300), turn(2, Role::User, 100)];
        let cues = TurnCues::default();
        let views: Vec<View<'_>> = turns.iter().map(|turn| View { turn, cues: &cues }).collect();
        let unit = |carries: &[&str]| Unit {
            text: String::new(),
            seqs: vec![1],
            tokens: 1,
            weight: 6,
            carries: carries.iter().map(|name| ((*name).to_owned(), VALUE_COUNTS)).collect(),
        };
        let letters = |text: &str| text.chars().count() as u32;
        assert_eq!(cap(&views, &[], &letters), 200);
        assert_eq!(
            cap(&views, &[unit(&["x".repeat(100).as_str()]), unit(&["x".repeat(100).as_str()])], &letters),
            250,
            "each once"
        );
        assert_eq!(cap(&views, &[unit(&["x".repeat(900).as_str()])], &letters), 400, "never more than all");
        assert_eq!(cap(&views[..0], &[], &letters), SUMMARY_FLOOR);
    }

    #[test]
    fn s4_what_a_sentence_only_asks_is_left_out_and_the_rest_stays_letter_for_letter() {
        let text = "你好，我想找4分以上的景点，你有什么推荐吗？";
        let clause = |part: &str| {
            let start = text.find(part).expect("a part");
            ClauseSpan { start, end: start + part.len(), joined: false }
        };
        let cues = |telling: Vec<ClauseSpan>| SentenceCues { start: 0, end: text.len(), telling, ..SentenceCues::default() };
        assert_eq!(told(text, &cues(vec![clause("我想找4分以上的景点")])), "我想找4分以上的景点");
        assert_eq!(told(text, &cues(vec![clause("你好"), clause("你有什么推荐吗")])), "你好，你有什么推荐吗？");
        assert_eq!(told(text, &cues(Vec::new())), text);
    }

    #[test]
    fn s4_a_sentence_is_told_without_its_full_stop_and_a_bare_name_with_its_neighbour() {
        let whole = |text: &str, values: &[&str]| {
            let values = values.iter().map(|v| CuedValue { kind: ValueKind::Time, text: (*v).to_owned() }).collect();
            told(text, &SentenceCues { start: 0, end: text.len(), values, ..SentenceCues::default() })
        };
        for (text, values, wanted) in [
            ("It costs $20.", vec!["$20"], "It costs $20"),
            ("价格是50元。", vec!["50元"], "价格是50元"),
            ("太好了！！", vec![], "太好了"),
            ("It opens at 7 p.m.", vec!["7 p.m."], "It opens at 7 p.m."),
            ("He lives in the U.S.", vec![], "He lives in the U.S."),
            ("Is it $20?", vec!["$20"], "Is it $20?"),
            ("多少钱？", vec![], "多少钱？"),
            ("１２元．", vec![], "１２元"),
            ("مرحبا 5.", vec![], "مرحبا 5"),
            ("👍!", vec![], "👍"),
            ("ok\u{200b}.", vec![], "ok\u{200b}"),
            ("...", vec![], "..."),
            ("", vec![], ""),
        ] {
            assert_eq!(whole(text, &values), wanted, "{text}");
        }
        let text = "评分不错，4.8分。";
        let span = |part: &str, joined| {
            let start = text.find(part).expect("a part");
            ClauseSpan { start, end: start + part.len(), joined }
        };
        let cues = |telling| SentenceCues { start: 0, end: text.len(), telling, ..SentenceCues::default() };
        assert_eq!(told(text, &cues(vec![span("评分不错", false), span("4.8分", true)])), "评分不错 4.8分");
        assert_eq!(told(text, &cues(vec![span("评分不错", false), span("4.8分", false)])), "评分不错，4.8分");
        let values = vec![CuedValue { kind: ValueKind::Amount, text: "不错".to_owned() }];
        let cues = SentenceCues { values, ..cues(vec![span("评分不错", false), span("4.8分", true)]) };
        assert_eq!(told(text, &cues), "评分不错，4.8分", "two values stay apart");
    }

    #[test]
    fn settings_are_checked_by_name() {
        assert!(SessionSettings::default().validate().is_ok());
        for (settings, name) in [
            (SessionSettings { ttl_seconds: 0, ..SessionSettings::default() }, "ttl_seconds"),
            (SessionSettings { anchor_percent: 101, ..SessionSettings::default() }, "anchor_percent"),
            (SessionSettings { summary_fan_in: 1, ..SessionSettings::default() }, "summary_fan_in"),
            (SessionSettings { search_keyword_weight: f64::NAN, ..SessionSettings::default() }, "search_keyword_weight"),
        ] {
            let fault = settings.validate().expect_err(name);
            assert_eq!(fault.fields[0].field, format!("policy.session.{name}"));
        }
    }
}
