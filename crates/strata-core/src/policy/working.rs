//! Boards of working memory (rules W): one task's goal, facts, todos and digests, and nothing else (W1).
//!
//! A write goes in two steps, so that a refused one leaves no trace and a caller can look at the cost between them:
//! `Board::decide_*` judges it against the board and answers a [`Change`], [`Board::apply`] carries that out and cannot
//! fail. Both run under the same lock; neither reads a clock.
//!
//! A fact is in one of three states (rules P2, P5):
//!
//! ```text
//!   Owned --seal--> Sealed --settle(committed)--> Overlay   (read-only until the task ends)
//!     ^                |--settle(undone)--> Owned, at a fresh epoch
//!     +----------------+--by itself, 2 x skew after the promotion's deadline
//! ```

use crate::id::{Level, check_id};
use crate::policy::erasure::{MARKER, Scope};
use crate::time::{HOUR, SECOND};
use crate::{AgentId, FactKey, Fault, MemoryId, Owner, Reason, SessionId, TaskId, Timestamp, UserId, limits};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Settings of working memory (`[policy.working]`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkingSettings {
    /// Seconds a board may lie idle when its creator names no time (rule W7): 1 to 86,400; default 7,200.
    pub idle_seconds: i64,
    /// Bytes that all boards of a process and what is remembered of ended ones may take; above it no board is started and
    /// none grows (`LIMIT_REACHED`). 1 MiB or more; default [`limits::BOARDS_TOTAL_BYTES`].
    pub total_bytes: usize,
    /// Milliseconds between two checkpoint rounds, 50 to 1,000; default 500. What is written since the last one is lost
    /// by a kill (rule W10).
    pub checkpoint_ms: u64,
    /// Whether the goal of a task that ends is kept as an episode of long-term memory (rule W7); default true.
    pub archive_goals: bool,
    /// Milliseconds between two sweeps of idle boards, 100 to 60,000; default 1,000. A board past its time is refused at
    /// once, swept or not.
    pub sweep_ms: u64,
}

impl Default for WorkingSettings {
    fn default() -> Self {
        Self {
            idle_seconds: 7_200,
            total_bytes: limits::BOARDS_TOTAL_BYTES,
            checkpoint_ms: 500,
            archive_goals: true,
            sweep_ms: 1_000,
        }
    }
}

/// Shortest idle time of a board in microseconds (rule W7).
pub const IDLE_MIN: i64 = SECOND;
/// Longest idle time of a board in microseconds (rule W7).
pub const IDLE_MAX: i64 = 24 * HOUR;

impl WorkingSettings {
    /// Checks the section.
    ///
    /// # Errors
    /// `INVALID_FIELD` naming the setting as `policy.working.<field>`.
    pub fn validate(&self) -> Result<(), Fault> {
        let within = |field: &str, holds: bool, bounds: &str| {
            if holds { Ok(()) } else { Err(Fault::field(format!("policy.working.{field}"), format!("must be {bounds}"))) }
        };
        within("idle_seconds", (IDLE_MIN / SECOND..=IDLE_MAX / SECOND).contains(&self.idle_seconds), "1 to 86400")?;
        within("total_bytes", self.total_bytes >= 1024 * 1024, "1048576 or more")?;
        within("checkpoint_ms", (50..=1_000).contains(&self.checkpoint_ms), "50 to 1000")?;
        within("sweep_ms", (100..=60_000).contains(&self.sweep_ms), "100 to 60000")
    }

    /// The default idle time in microseconds.
    #[must_use]
    pub const fn idle_micros(&self) -> i64 {
        self.idle_seconds * SECOND
    }
}

/// What a task is for (rule W3).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Goal {
    /// One sentence, 1 to [`limits::GOAL_CHARS`] characters.
    pub sentence: String,
    /// How to tell that it is reached, 1 to [`limits::GOAL_CHARS`] characters.
    pub acceptance: String,
}

impl Goal {
    const fn bytes(&self) -> usize {
        self.sentence.len() + self.acceptance.len()
    }
}

/// What a fact holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Content {
    /// A checked value of at most [`limits::BOARD_FACT_BYTES`] bytes (rule W4).
    Value(String),
    /// A long-term record that is only pointed at: no claim (rule W11).
    Reference {
        /// The record.
        memory_id: MemoryId,
        /// The version that was read.
        version: u64,
    },
}

impl Content {
    const fn bytes(&self) -> usize {
        match self {
            Self::Value(value) => value.len(),
            // A UUID and a version number.
            Self::Reference { .. } => 24,
        }
    }
}

/// Who may write a fact (rules P2, P5).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Ownership {
    /// The board.
    Owned,
    /// Nobody, while a promotion is under way.
    Sealed {
        /// The promotion.
        promotion_id: String,
        /// Epoch of the seal.
        epoch: u64,
        /// Deadline of the promotion; see [`seal_falls_at`].
        deadline: Timestamp,
    },
    /// An outer level: the value is read-only until the task ends.
    Overlay,
}

/// A checked field (rule W4).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fact {
    /// What it holds.
    pub content: Content,
    /// Where it was checked, 1 to [`limits::BOARD_NAME_CHARS`] characters.
    pub source: String,
    /// Trace id of the tool call it came from; may be empty.
    pub trace_id: String,
    /// When it was checked.
    pub verified_at: Timestamp,
    /// Highest epoch the board has seen for the key: a write of an older one is refused (rule P3).
    pub epoch: u64,
    /// Who may write it.
    pub ownership: Ownership,
}

impl Fact {
    fn bytes(&self, key: &FactKey) -> usize {
        key.as_str().len() + self.content.bytes() + self.source.len() + self.trace_id.len()
    }
}

crate::record::vocabulary! {
    /// State of a todo (rule W6).
    TodoState {
        /// Not begun.
        Pending = "PENDING",
        /// Being done.
        InProgress = "IN_PROGRESS",
        /// Waits for something.
        Blocked = "BLOCKED",
        /// Done; final.
        Done = "DONE",
    }
}

impl TodoState {
    /// Whether a todo may move from `self` to `to` (rule W6). Staying is no move and not asked here.
    #[must_use]
    pub const fn may_move(self, to: Self) -> bool {
        match self {
            Self::Pending => matches!(to, Self::InProgress | Self::Blocked | Self::Done),
            Self::InProgress => matches!(to, Self::Blocked | Self::Done | Self::Pending),
            Self::Blocked => matches!(to, Self::InProgress | Self::Pending),
            Self::Done => false,
        }
    }
}

/// A step to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Todo {
    /// Id within the board.
    pub id: String,
    /// What to do, 1 to [`limits::TODO_CHARS`] characters.
    pub step: String,
    /// State.
    pub state: TodoState,
    /// Note, at most [`limits::TODO_CHARS`] characters; may be empty.
    pub note: String,
    /// When its id, its step and its note got the words they have: an erasure takes no later statement (rule E7). Of a board from
    /// before there were these the epoch: older than any erasure.
    #[serde(default)]
    pub times: [Timestamp; 3],
}

impl Todo {
    const fn bytes(&self) -> usize {
        self.id.len() + self.step.len() + self.note.len()
    }
}

/// One sentence about a tool call (rule W5).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Digest {
    /// The tool.
    pub tool: String,
    /// One sentence, at most [`limits::DIGEST_CHARS`] characters.
    pub sentence: String,
    /// Where the raw return is kept.
    pub trace_id: String,
    /// When it was appended.
    pub time: Timestamp,
}

impl Digest {
    const fn bytes(&self) -> usize {
        self.tool.len() + self.sentence.len() + self.trace_id.len()
    }
}

/// A board that came back from a checkpoint after a stop that lost writes (rule W10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Loss {
    /// Time of the checkpoint it came back from: what was written later is gone.
    pub checkpoint_time: Timestamp,
    /// A caller has sent the new generation, so the loss is known: callers that track none may write again.
    pub acknowledged: bool,
}

/// One task's board. Bounded by rule W8 in every part; see [`Board::broken_invariant`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Board {
    /// Whose it is.
    pub owner: Owner,
    /// Its task.
    pub task: TaskId,
    /// Session the task belongs to.
    pub session: Option<SessionId>,
    /// From 1; raised by a stop that lost writes (rule W10).
    pub generation: u64,
    /// Counts every change, from 1; goes back to the checkpoint's with a loss, so order is (generation, version).
    pub version: u64,
    /// The last loss, if there was one.
    pub loss: Option<Loss>,
    /// The goal.
    pub goal: Goal,
    /// When its sentence and its acceptance got the words they have, as [`Todo::times`].
    #[serde(default)]
    pub goal_times: [Timestamp; 2],
    /// By key.
    pub facts: BTreeMap<FactKey, Fact>,
    /// In the order they were added.
    pub todos: Vec<Todo>,
    /// In order.
    pub digests: Vec<Digest>,
    /// Start.
    pub create_time: Timestamp,
    /// How long it may lie idle, in microseconds.
    pub idle_micros: i64,
    /// When it is destroyed if nothing touches it (rule W7).
    pub idle_deadline: Timestamp,
    /// Bytes of all texts in the four slots: what rule W8 limits.
    pub bytes: usize,
    /// Highest epochs of erased facts (rule P3): no content.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub erased: BTreeMap<FactKey, u64>,
}

/// A fact to write. `key` and the texts are checked by the conversion from the wire, the value by rule W4 here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactWrite {
    /// The slot.
    pub key: FactKey,
    /// What it is to hold.
    pub content: Content,
    /// Where it was checked.
    pub source: String,
    /// Trace id; may be empty.
    pub trace_id: String,
    /// When it was checked; now when absent, and never later than now.
    pub verified_at: Option<Timestamp>,
}

/// A todo to add or to move. For a known id an empty step or note keeps what is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TodoWrite {
    /// Id within the board.
    pub id: String,
    /// Step; required for a new id.
    pub step: String,
    /// State to begin in or to move to.
    pub state: TodoState,
    /// Note.
    pub note: String,
}

/// A digest to append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DigestWrite {
    /// The tool.
    pub tool: String,
    /// The sentence.
    pub sentence: String,
    /// Where the raw return is kept.
    pub trace_id: String,
}

/// A promotion asks for the value of a fact (rule P5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seal {
    /// The slot.
    pub key: FactKey,
    /// The promotion.
    pub promotion_id: String,
    /// Epoch of the seal: above the fact's own.
    pub epoch: u64,
    /// Deadline of the promotion.
    pub deadline: Timestamp,
}

/// The end of a seal (rule P5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settle {
    /// The slot.
    pub key: FactKey,
    /// The promotion.
    pub promotion_id: String,
    /// Epoch of the seal.
    pub seal_epoch: u64,
    /// Whether the owner moved out; else the board keeps the fact.
    pub committed: bool,
    /// Fresh epoch of an undone seal.
    pub epoch: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Edit {
    Facts(Vec<(FactKey, Fact)>),
    Todos(Vec<Todo>),
    Digest(Digest),
    Result { facts: Vec<(FactKey, Fact)>, digest: Digest },
    Goal(Goal),
    Ownership { key: FactKey, ownership: Ownership, epoch: u64 },
}

/// A write that was judged and may be carried out on the board that judged it, unchanged since.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a change has no effect until it is applied"]
pub struct Change {
    edit: Edit,
    bytes_after: usize,
}

impl Change {
    /// Bytes of the board once it is applied.
    #[must_use]
    pub const fn bytes_after(&self) -> usize {
        self.bytes_after
    }
}

/// When a seal falls by itself: the target refuses the promotion after `deadline` by its own clock, so by no clock of the
/// deployment can it still be applied then (rule P5).
#[must_use]
pub const fn seal_falls_at(deadline: Timestamp) -> Timestamp {
    deadline.plus(2 * limits::SKEW_SECONDS * SECOND)
}

/// Whether a task of `owner` may be seen by `caller`: by comparison alone (rule W2). The tenants are equal already: a
/// board is found under its tenant only.
///
/// # Errors
/// `TASK_MISMATCH`, the same whatever differs.
pub fn check_owner(user: &UserId, agent: Option<&AgentId>, caller: &Owner) -> Result<(), Fault> {
    if *user == caller.user && agent == caller.agent.as_ref() {
        return Ok(());
    }
    Err(mismatch())
}

/// The refusal of rule W2.
#[must_use]
pub fn mismatch() -> Fault {
    Fault::new(Reason::TaskMismatch, "task_id: the task is not one of this user and agent").rule(
        "W2",
        "task_id",
        "every call names a task of its own owner",
    )
}

/// The refusal of a task that has ended (rule W7).
#[must_use]
pub fn ended(task: &TaskId) -> Fault {
    Fault::new(Reason::TaskEnded, "the task has ended; start another one under a new task_id").rule(
        "W7",
        task.as_str(),
        "the id of an ended task cannot be used again for 24 h",
    )
}

/// Checks a goal (rule W3); `sentences` is how many sentences `goal.sentence` holds.
///
/// # Errors
/// `INVALID_FIELD` naming the part.
pub fn check_goal(goal: &Goal, sentences: usize) -> Result<(), Fault> {
    for (field, text) in [("goal.sentence", &goal.sentence), ("goal.acceptance", &goal.acceptance)] {
        if text.trim().is_empty() {
            return Err(Fault::field(field, "is required and must not be blank"));
        }
        if chars_over(text, limits::GOAL_CHARS) {
            return Err(Fault::field(field, format!("is longer than {} characters", limits::GOAL_CHARS)));
        }
    }
    if sentences > 1 || lines(&goal.sentence) > 1 {
        return Err(Fault::field("goal.sentence", "must be one sentence; put what is to be checked into goal.acceptance"));
    }
    Ok(())
}

/// Checks a digest (rule W5); `sentences` is how many sentences it holds.
///
/// # Errors
/// `NOT_A_BOARD_VALUE` with the advice to store an artifact.
pub fn check_digest(digest: &DigestWrite, sentences: usize) -> Result<(), Fault> {
    let wrong = if chars_over(&digest.sentence, limits::DIGEST_CHARS) {
        format!("is longer than {} characters", limits::DIGEST_CHARS)
    } else if sentences > 1 || lines(&digest.sentence) > 1 {
        "is more than one sentence".to_owned()
    } else {
        return Ok(());
    };
    Err(not_a_board_value("W5", "digest.sentence", &wrong, limits::DIGEST_CHARS, "characters"))
}

/// Checks the value of a fact (rule W4). `field` is its path in the request.
///
/// # Errors
/// `NOT_A_BOARD_VALUE` with the advice to store an artifact.
pub fn check_value(field: &str, value: &str) -> Result<(), Fault> {
    if value.len() > limits::BOARD_FACT_BYTES {
        let wrong = format!("is longer than {} bytes", limits::BOARD_FACT_BYTES);
        return Err(not_a_board_value("W4", field, &wrong, limits::BOARD_FACT_BYTES, "bytes"));
    }
    if value.len() > limits::BOARD_JSON_BYTES && is_json_like(value) {
        let wrong = format!("is JSON of more than {} bytes", limits::BOARD_JSON_BYTES);
        return Err(not_a_board_value("W4", field, &wrong, limits::BOARD_JSON_BYTES, "bytes"));
    }
    if lines(value) > limits::BOARD_FACT_LINES {
        let wrong = format!("has more than {} lines", limits::BOARD_FACT_LINES);
        return Err(not_a_board_value("W4", field, &wrong, limits::BOARD_FACT_LINES, "lines"));
    }
    Ok(())
}

fn not_a_board_value(rule: &'static str, field: &str, wrong: &str, limit: usize, unit: &'static str) -> Fault {
    let advice =
        format!("{wrong}: store the raw return as an artifact and put its trace_id here, with the fields that were checked");
    let mut fault = Fault::field(field, advice);
    fault.reason = Reason::NotABoardValue;
    fault.with("field", field).with("limit", limit.to_string()).with("unit", unit).with("rule", rule)
}

fn chars_over(text: &str, limit: usize) -> bool {
    // Bytes bound characters from above, so the count is made for long texts only.
    text.len() > limit && text.chars().count() > limit
}

/// Lines of a text: any of the line ends of Unicode, `\r\n` as one, one at the very end not counted.
fn lines(text: &str) -> usize {
    let mut count = 1;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\r' && chars.peek() == Some(&'\n') {
            continue;
        }
        let ends = matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}');
        if ends && chars.peek().is_some() {
            count += 1;
        }
    }
    count
}

/// Whether a text is an object or array in JSON, several of them one after the other, or the beginning of one that was
/// cut: the shape of a raw payload. Single quotes and Python's literals count too, for a printed dictionary is no less
/// raw. Prose in brackets ("(draft) call Bob") is none.
fn is_json_like(text: &str) -> bool {
    let text = text.trim();
    if !text.starts_with(['{', '[']) {
        return false;
    }
    // Each open bracket, and whether a value may or must come next.
    let mut open: Vec<char> = Vec::new();
    let mut rest = text;
    let mut after_value = false;
    loop {
        rest = rest.trim_start();
        let Some(c) = rest.chars().next() else { return true };
        let next = match c {
            '{' | '[' if !after_value || open.is_empty() => {
                open.push(c);
                after_value = false;
                rest.get(1..)
            }
            '}' | ']' => {
                if open.pop() != Some(if c == '}' { '{' } else { '[' }) {
                    return false;
                }
                after_value = true;
                rest.get(1..)
            }
            ',' | ':' if after_value && !open.is_empty() => {
                after_value = false;
                rest.get(1..)
            }
            '"' | '\'' if !after_value => {
                after_value = true;
                match end_of_string(rest, c) {
                    Some(end) => rest.get(end..),
                    None => return true,
                }
            }
            _ if !after_value => {
                after_value = true;
                let end = rest.find([',', ':', ']', '}', '{', '[']).unwrap_or(rest.len());
                let word = rest.get(..end).unwrap_or_default().trim_end();
                if !is_scalar(word, end == rest.len()) {
                    return false;
                }
                rest.get(end..)
            }
            _ => return false,
        };
        match next {
            Some(next) => rest = next,
            None => return false,
        }
    }
}

/// Byte after the closing quote; none when the string was cut.
fn end_of_string(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return Some(at + 1),
            _ => {}
        }
    }
    None
}

fn is_scalar(word: &str, cut: bool) -> bool {
    const LITERALS: [&str; 6] = ["true", "false", "null", "True", "False", "None"];
    let number = word.starts_with(|c: char| c.is_ascii_digit() || c == '-')
        && word.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.' | b'e' | b'E'));
    number || LITERALS.iter().any(|literal| *literal == word || (cut && literal.starts_with(word)))
}

impl Board {
    /// A new board. `goal` was checked by [`check_goal`]; `idle_micros` lies in [`IDLE_MIN`]..=[`IDLE_MAX`].
    #[must_use]
    pub fn new(owner: Owner, task: TaskId, session: Option<SessionId>, goal: Goal, idle_micros: i64, now: Timestamp) -> Self {
        let bytes = goal.bytes();
        Self {
            owner,
            task,
            session,
            generation: 1,
            version: 1,
            loss: None,
            goal,
            goal_times: [now; 2],
            facts: BTreeMap::new(),
            todos: Vec::new(),
            digests: Vec::new(),
            create_time: now,
            idle_micros,
            idle_deadline: now.plus(idle_micros),
            bytes,
            erased: BTreeMap::new(),
        }
    }

    /// Rule W2.
    ///
    /// # Errors
    /// `TASK_MISMATCH`.
    pub fn check_owner(&self, caller: &Owner) -> Result<(), Fault> {
        check_owner(&self.owner.user, self.owner.agent.as_ref(), caller)
    }

    /// Whether its idle time is over at `now` (rule W7).
    #[must_use]
    pub fn is_idle_at(&self, now: Timestamp) -> bool {
        now >= self.idle_deadline
    }

    /// Renews the idle time. Never shortens it, also when the clock steps back.
    pub fn touch(&mut self, now: Timestamp) {
        self.idle_deadline = self.idle_deadline.max(now.plus(self.idle_micros));
    }

    /// Marks the board as come back from a checkpoint of `checkpoint_time` after a stop that lost writes (rule W10).
    pub fn lose(&mut self, checkpoint_time: Timestamp) {
        self.generation = self.generation.saturating_add(1);
        self.loss = Some(Loss { checkpoint_time, acknowledged: false });
    }

    /// Whether a caller that knows generation `known` may write (rule W10). 0 is a caller that tracks none: it may write
    /// as long as every loss is known to some caller, for otherwise nobody would ever learn of it.
    ///
    /// # Errors
    /// `TASK_LOST` with `generation` and `checkpoint_time` (microseconds since 1970).
    pub fn check_generation(&self, known: u64) -> Result<(), Fault> {
        let unknown_loss = self.loss.is_some_and(|loss| !loss.acknowledged);
        if known == self.generation || (known == 0 && !unknown_loss) {
            return Ok(());
        }
        let fault = Fault::new(Reason::TaskLost, "the board lost its latest writes; read it again and send its generation")
            .rule("W10", self.task.as_str(), "a write names the generation of the board it was made for")
            .with("generation", self.generation.to_string());
        Err(match self.loss {
            Some(loss) => fault.with("checkpoint_time", loss.checkpoint_time.micros().to_string()),
            None => fault,
        })
    }

    /// Notes that a caller sent `known`, which passed [`Self::check_generation`].
    pub fn acknowledge(&mut self, known: u64) {
        if let Some(loss) = &mut self.loss
            && known == self.generation
        {
            loss.acknowledged = true;
        }
    }

    /// Judges a write of facts: all or none (rules W4, W8, P2, P3, P5). `epoch` is that of the claim; without one a fact
    /// keeps its own, and a new one gets `now` in microseconds (rule P4).
    ///
    /// # Errors
    /// `INVALID_FIELD`, `NOT_A_BOARD_VALUE`, `FACT_SEALED`, `FACT_OWNED_BY_OTHER_LAYER`, `STALE_EPOCH`, `LIMIT_REACHED`.
    pub fn decide_facts(&self, writes: Vec<FactWrite>, epoch: Option<u64>, now: Timestamp) -> Result<Change, Fault> {
        if writes.is_empty() {
            return Err(Fault::field("facts", "must not be empty"));
        }
        let mut keys = BTreeSet::new();
        let mut bytes = self.bytes;
        let mut facts = Vec::with_capacity(writes.len());
        for (at, write) in writes.into_iter().enumerate() {
            if !keys.insert(write.key.clone()) {
                return Err(Fault::field(format!("facts[{at}].key"), "is there twice"));
            }
            if let Content::Value(value) = &write.content {
                check_value(&format!("facts[{at}].value"), value)?;
            }
            let old = self.facts.get(&write.key);
            if let Some(old) = old {
                check_writable(&write.key, old, epoch, now)?;
                bytes -= old.bytes(&write.key);
            }
            let erased = self.erased.get(&write.key).copied().unwrap_or_default();
            if epoch.is_some_and(|epoch| epoch < erased) {
                return Err(stale(&write.key, erased));
            }
            let micros = u64::try_from(now.micros()).unwrap_or_default().max(erased);
            let fact = Fact {
                content: write.content,
                source: write.source,
                trace_id: write.trace_id,
                verified_at: write.verified_at.map_or(now, |at| at.min(now)),
                epoch: epoch.unwrap_or_else(|| old.map_or(micros, |old| old.epoch)),
                ownership: Ownership::Owned,
            };
            bytes += fact.bytes(&write.key);
            facts.push((write.key, fact));
        }
        let new = keys.iter().filter(|key| !self.facts.contains_key(key)).count();
        if self.facts.len() + new > limits::BOARD_FACTS {
            return Err(Fault::limit("facts", limits::BOARD_FACTS, "facts").rule(
                "W8",
                self.task.as_str(),
                "a board holds 64 facts",
            ));
        }
        self.change(Edit::Facts(facts), bytes)
    }

    /// Judges a write of todos: all or none (rules W6, W8).
    ///
    /// # Errors
    /// `INVALID_FIELD`, `TODO_MOVE`, `LIMIT_REACHED`.
    pub fn decide_todos(&self, writes: Vec<TodoWrite>) -> Result<Change, Fault> {
        if writes.is_empty() {
            return Err(Fault::field("todos", "must not be empty"));
        }
        let mut ids = BTreeSet::new();
        let mut todos = self.todos.clone();
        for (at, write) in writes.into_iter().enumerate() {
            let field = |part: &str| format!("todos[{at}].{part}");
            check_id("todos.id", &write.id)?;
            for (part, text) in [("step", &write.step), ("note", &write.note)] {
                if chars_over(text, limits::TODO_CHARS) {
                    return Err(Fault::field(field(part), format!("is longer than {} characters", limits::TODO_CHARS)));
                }
            }
            if !ids.insert(write.id.clone()) {
                return Err(Fault::field(field("id"), "is there twice"));
            }
            match todos.iter_mut().find(|todo| todo.id == write.id) {
                Some(todo) => move_todo(todo, write)?,
                None if write.step.trim().is_empty() => return Err(Fault::field(field("step"), "is required for a new todo")),
                None => todos.push(Todo {
                    id: write.id,
                    step: write.step,
                    state: write.state,
                    note: write.note,
                    times: Default::default(),
                }),
            }
        }
        if todos.len() > limits::BOARD_TODOS {
            return Err(Fault::limit("todos", limits::BOARD_TODOS, "todos").rule(
                "W8",
                self.task.as_str(),
                "a board holds 128 todos",
            ));
        }
        let sum = |todos: &[Todo]| todos.iter().map(Todo::bytes).sum::<usize>();
        let bytes = self.bytes - sum(&self.todos) + sum(&todos);
        self.change(Edit::Todos(todos), bytes)
    }

    /// Judges a digest (rules W5, W8); `sentences` is how many sentences it holds.
    ///
    /// # Errors
    /// `NOT_A_BOARD_VALUE`, `LIMIT_REACHED`.
    pub fn decide_digest(&self, write: DigestWrite, sentences: usize, now: Timestamp) -> Result<Change, Fault> {
        check_digest(&write, sentences)?;
        if self.digests.len() >= limits::BOARD_DIGESTS {
            let fault = Fault::limit("digests", limits::BOARD_DIGESTS, "digests");
            return Err(fault.rule("W8", self.task.as_str(), "a board holds 256 digests"));
        }
        let digest = Digest { tool: write.tool, sentence: write.sentence, trace_id: write.trace_id, time: now };
        let bytes = self.bytes + digest.bytes();
        self.change(Edit::Digest(digest), bytes)
    }

    /// Judges a new goal (rules W3, W8); `sentences` is how many sentences its first part holds.
    ///
    /// # Errors
    /// `INVALID_FIELD`, `LIMIT_REACHED`.
    pub fn decide_goal(&self, goal: Goal, sentences: usize) -> Result<Change, Fault> {
        check_goal(&goal, sentences)?;
        let bytes = self.bytes - self.goal.bytes() + goal.bytes();
        self.change(Edit::Goal(goal), bytes)
    }

    /// Judges a seal (rule P5). `None`: this promotion has sealed the fact already, and the same answer holds.
    ///
    /// # Errors
    /// `NOT_FOUND`, `INVALID_FIELD` for a deadline further off than a promotion may take, `PROMOTION_REFUSED` for a reference (rule W11), `PROMOTION_ABORTED` after the deadline, `FACT_SEALED`
    /// by another promotion, `FACT_OWNED_BY_OTHER_LAYER`, `STALE_EPOCH`.
    pub fn decide_seal(&self, seal: &Seal, now: Timestamp) -> Result<Option<Change>, Fault> {
        let fact = self.facts.get(&seal.key).ok_or_else(|| Fault::not_found("fact", seal.key.as_str()))?;
        if matches!(fact.content, Content::Reference { .. }) {
            let fault = Fault::new(Reason::PromotionRefused, "the fact is a reference to a record that is there already");
            return Err(fault.rule("W11", seal.key.as_str(), "a reference is no claim").with("key", seal.key.as_str()));
        }
        let longest = (limits::PROMOTION_SECONDS + limits::SKEW_SECONDS) * SECOND;
        if seal.deadline.since(now) > longest {
            return Err(Fault::field("deadline", format!("must lie within {} s", longest / SECOND)));
        }
        if now > seal.deadline {
            let fault = Fault::new(Reason::PromotionAborted, "the promotion is past its deadline");
            return Err(fault.with("key", seal.key.as_str()).with("promotion_id", seal.promotion_id.clone()));
        }
        if let Ownership::Sealed { promotion_id, deadline, .. } = &fact.ownership
            && *promotion_id == seal.promotion_id
            && now < seal_falls_at(*deadline)
        {
            return Ok(None);
        }
        check_writable(&seal.key, fact, Some(seal.epoch), now)?;
        if seal.epoch == fact.epoch {
            // A seal begins a new epoch: whoever held the old one must not write over it.
            return Err(stale_fact(&seal.key, fact));
        }
        let ownership = Ownership::Sealed { promotion_id: seal.promotion_id.clone(), epoch: seal.epoch, deadline: seal.deadline };
        self.change(Edit::Ownership { key: seal.key.clone(), ownership, epoch: seal.epoch }, self.bytes).map(Some)
    }

    /// Judges the end of a seal (rule P5). `None`: there is nothing left to do. A committed one makes the fact an overlay
    /// with the value that stands, also when the seal has fallen and a later value was written.
    #[must_use]
    pub fn decide_settle(&self, settle: &Settle) -> Option<Change> {
        let fact = self.facts.get(&settle.key)?;
        let ours = matches!(&fact.ownership, Ownership::Sealed { promotion_id, epoch, .. }
            if *promotion_id == settle.promotion_id && *epoch == settle.seal_epoch);
        let (ownership, epoch) = match (settle.committed, &fact.ownership) {
            (_, Ownership::Overlay) => return None,
            (true, Ownership::Owned | Ownership::Sealed { .. }) => (Ownership::Overlay, fact.epoch.max(settle.seal_epoch)),
            (false, _) if ours => (Ownership::Owned, settle.epoch.max(settle.seal_epoch.saturating_add(1))),
            (false, Ownership::Owned | Ownership::Sealed { .. }) => return None,
        };
        Some(Change { edit: Edit::Ownership { key: settle.key.clone(), ownership, epoch }, bytes_after: self.bytes })
    }

    /// Judges what is kept of a tool's return: one sentence, and the fields that were checked, all or none (rules W4, W5, W8).
    ///
    /// # Errors
    /// As [`Board::decide_facts`] and [`Board::decide_digest`].
    pub fn decide_result(
        &self,
        writes: Vec<FactWrite>,
        digest: DigestWrite,
        sentences: usize,
        epoch: Option<u64>,
        now: Timestamp,
    ) -> Result<Change, Fault> {
        let digest = self.decide_digest(digest, sentences, now)?;
        if writes.is_empty() {
            return Ok(digest);
        }
        let facts = self.decide_facts(writes, epoch, now)?;
        let bytes = facts.bytes_after + digest.bytes_after - self.bytes;
        match (facts.edit, digest.edit) {
            (Edit::Facts(facts), Edit::Digest(digest)) => self.change(Edit::Result { facts, digest }, bytes),
            (edit, _) => self.change(edit, bytes),
        }
    }

    fn change(&self, edit: Edit, bytes_after: usize) -> Result<Change, Fault> {
        if bytes_after > limits::BOARD_BYTES && bytes_after > self.bytes {
            let fault = Fault::limit("board", limits::BOARD_BYTES, "bytes");
            return Err(fault.rule("W8", self.task.as_str(), "a board holds 64 KiB; store raw returns as artifacts"));
        }
        Ok(Change { edit, bytes_after })
    }

    /// Carries out a change that this very board judged.
    pub fn apply(&mut self, change: Change, now: Timestamp) {
        match change.edit {
            Edit::Facts(facts) => self.facts.extend(facts),
            Edit::Todos(mut todos) => {
                for todo in &mut todos {
                    let old = self.todos.iter().find(|old| old.id == todo.id);
                    let anew = [old.is_none(), old.is_none_or(|o| o.step != todo.step), old.is_none_or(|o| o.note != todo.note)];
                    stamp(&mut todo.times, anew, now);
                }
                self.todos = todos;
            }
            Edit::Digest(digest) => self.digests.push(digest),
            Edit::Result { facts, digest } => {
                self.facts.extend(facts);
                self.digests.push(digest);
            }
            Edit::Goal(goal) => {
                let anew = [goal.sentence != self.goal.sentence, goal.acceptance != self.goal.acceptance];
                stamp(&mut self.goal_times, anew, now);
                self.goal = goal;
            }
            Edit::Ownership { key, ownership, epoch } => {
                if let Some(fact) = self.facts.get_mut(&key) {
                    debug_assert!(
                        super::ownership::invariant::stores_never_step_back(fact.epoch, epoch),
                        "an epoch of a board stepped back"
                    );
                    fact.ownership = ownership;
                    fact.epoch = epoch;
                }
            }
        }
        self.bytes = change.bytes_after;
        self.version += 1;
        self.touch(now);
    }

    /// The board without what is to be erased (rule E2), and how many of its slots held it; none when none did. `holds` tells
    /// whether a text does, `cut` gives it without. What was written, checked or appended after the erasure stays (rule
    /// E7). It is a change like any other, but renews nothing.
    #[must_use]
    pub fn redacted(
        &self,
        scope: &Scope,
        holds: &dyn Fn(&str) -> bool,
        cut: &dyn Fn(&str) -> Option<String>,
    ) -> Option<(Self, usize)> {
        let mut board = self.clone();
        let mut slots = 0;
        // A marker may be longer than what it stands for.
        let fitted =
            |text: &str, limit: usize| cut(text).map(|cut| if chars_over(&cut, limit) { MARKER.to_owned() } else { cut });
        let redact = |text: &mut String, limit: usize| {
            let cut = fitted(text, limit);
            let hit = cut.is_some();
            if let Some(cut) = cut {
                *text = cut;
            }
            hit
        };
        let [sentence, acceptance] = self.goal_times.map(|time| scope.reaches(time));
        slots += usize::from(
            (sentence && redact(&mut board.goal.sentence, limits::GOAL_CHARS))
                | (acceptance && redact(&mut board.goal.acceptance, limits::GOAL_CHARS)),
        );
        let gone = |key: &FactKey, fact: &Fact| {
            let held = match &fact.content {
                Content::Value(value) => holds(value),
                Content::Reference { memory_id, .. } => scope.memory_ids.contains(&memory_id.to_string()),
            };
            scope.reaches(fact.verified_at)
                && (held
                    || scope.keys.contains(key)
                    || [key.as_str(), &fact.source, &fact.trace_id].iter().any(|text| holds(text)))
        };
        for (key, fact) in self.facts.iter().filter(|(key, fact)| gone(key, fact)) {
            slots += 1;
            board.facts.remove(key);
            if !holds(key.as_str()) {
                board.erased.insert(key.clone(), fact.epoch);
            }
        }
        while board.erased.len() > limits::BOARD_FACTS {
            board.erased.pop_first();
        }
        board.todos.retain_mut(|todo| {
            let [id, step, note] = todo.times.map(|time| scope.reaches(time));
            let named = id && holds(&todo.id);
            let hit = (step && redact(&mut todo.step, limits::TODO_CHARS)) | (note && redact(&mut todo.note, limits::TODO_CHARS));
            slots += usize::from(named || hit);
            !named
        });
        board.digests.retain_mut(|digest| {
            if !scope.reaches(digest.time) {
                return true;
            }
            let named = holds(&digest.tool) || holds(&digest.trace_id);
            let hit = redact(&mut digest.sentence, limits::DIGEST_CHARS);
            slots += usize::from(named || hit);
            !named
        });
        if slots == 0 {
            return None;
        }
        if board.texts() > limits::BOARD_BYTES {
            // Markers made a full board overflow: one letter does as well.
            let short = |text: &mut String| *text = text.replace(MARKER, "\u{2026}");
            short(&mut board.goal.sentence);
            short(&mut board.goal.acceptance);
            board.todos.iter_mut().for_each(|todo| {
                short(&mut todo.step);
                short(&mut todo.note);
            });
            board.digests.iter_mut().for_each(|digest| short(&mut digest.sentence));
        }
        board.bytes = board.texts();
        board.version += 1;
        Some((board, slots))
    }

    /// Bytes of all texts in the four slots.
    fn texts(&self) -> usize {
        self.goal.bytes()
            + self.facts.iter().map(|(key, fact)| fact.bytes(key)).sum::<usize>()
            + self.todos.iter().map(Todo::bytes).sum::<usize>()
            + self.digests.iter().map(Digest::bytes).sum::<usize>()
    }

    /// The first invariant that does not hold, by name; none on every board that only [`Self::apply`] has changed.
    #[must_use]
    pub fn broken_invariant(&self) -> Option<&'static str> {
        let ids: BTreeSet<&str> = self.todos.iter().map(|todo| todo.id.as_str()).collect();
        let texts = self.texts();
        let raw = |fact: &Fact| matches!(&fact.content, Content::Value(value) if check_value("value", value).is_err());
        [
            ("W3: a goal has two parts", self.goal.sentence.trim().is_empty() || self.goal.acceptance.trim().is_empty()),
            ("W4: no raw payload", self.facts.values().any(raw)),
            ("W5: a digest is short", self.digests.iter().any(|digest| chars_over(&digest.sentence, limits::DIGEST_CHARS))),
            ("W8: facts", self.facts.len() > limits::BOARD_FACTS),
            ("W8: todos", self.todos.len() > limits::BOARD_TODOS),
            ("W8: digests", self.digests.len() > limits::BOARD_DIGESTS),
            ("W8: bytes", self.bytes > limits::BOARD_BYTES),
            ("bytes are those of the texts", self.bytes != texts),
            ("todo ids are unique", ids.len() != self.todos.len()),
            ("the board dies after its birth", self.idle_deadline <= self.create_time),
            ("counters begin at 1", self.generation == 0 || self.version == 0),
        ]
        .into_iter()
        .find_map(|(name, broken)| broken.then_some(name))
    }
}

/// Words that are new are from now; what was said again as it stood is as old as it was.
fn stamp<const N: usize>(times: &mut [Timestamp; N], anew: [bool; N], now: Timestamp) {
    for (time, anew) in times.iter_mut().zip(anew) {
        if anew {
            *time = now;
        }
    }
}

fn move_todo(todo: &mut Todo, write: TodoWrite) -> Result<(), Fault> {
    let step = if write.step.trim().is_empty() { todo.step.clone() } else { write.step };
    let note = if write.note.is_empty() { todo.note.clone() } else { write.note };
    let next = Todo { id: write.id, step, state: write.state, note, times: todo.times };
    if next == *todo {
        return Ok(());
    }
    let stays = todo.state == next.state && todo.state != TodoState::Done;
    if !stays && !todo.state.may_move(next.state) {
        let (from, to) = (todo.state.name(), next.state.name());
        return Err(Fault::new(Reason::TodoMove, format!("a todo cannot move from {from} to {to}"))
            .rule("W6", next.id, "PENDING > IN_PROGRESS | BLOCKED | DONE; IN_PROGRESS > BLOCKED | DONE | PENDING; BLOCKED > IN_PROGRESS | PENDING; DONE is final")
            .with("state", from));
    }
    *todo = next;
    Ok(())
}

fn check_writable(key: &FactKey, fact: &Fact, epoch: Option<u64>, now: Timestamp) -> Result<(), Fault> {
    match &fact.ownership {
        Ownership::Owned => {}
        Ownership::Sealed { promotion_id, deadline, .. } => {
            let left = seal_falls_at(*deadline).since(now);
            if left > 0 {
                let ms = u64::try_from(left / 1_000 + 1).unwrap_or_default();
                return Err(Fault::new(Reason::FactSealed, "the fact is being promoted; retry when that has ended")
                    .rule("P5", key.as_str(), "a sealed fact is not written")
                    .with("key", key.as_str())
                    .with("promotion_id", promotion_id.clone())
                    // A promotion takes milliseconds; the deadline is the worst case.
                    .retry_after(ms.min(200)));
            }
        }
        Ownership::Overlay => {
            return Err(Fault::new(
                Reason::FactOwnedByOtherLayer,
                "an outer level owns the key; its value here is read-only until the task ends",
            )
            .rule("P2", key.as_str(), "write through the owner, or use another key")
            .with("key", key.as_str())
            .with("epoch", fact.epoch.to_string()));
        }
    }
    if epoch.is_some_and(|epoch| epoch < fact.epoch) {
        return Err(stale_fact(key, fact));
    }
    Ok(())
}

fn stale(key: &FactKey, epoch: u64) -> Fault {
    Fault::new(Reason::StaleEpoch, "the claim is older than the board's; claim the key again")
        .rule("P3", key.as_str(), "the highest epoch of a key wins")
        .with("key", key.as_str())
        .with("level", Level::Task.name())
        .with("epoch", epoch.to_string())
}

/// [`stale`], with the value that stands.
fn stale_fact(key: &FactKey, fact: &Fact) -> Fault {
    let fault = stale(key, fact.epoch);
    match &fact.content {
        Content::Value(value) => fault.with("current_value", value.clone()),
        Content::Reference { .. } => fault,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TenantId;
    use proptest::prelude::*;

    const T0: Timestamp = Timestamp(1_767_225_600_000_000);

    fn board() -> Board {
        let owner = Owner {
            tenant: TenantId::new("t1").expect("id"),
            user: UserId::new("u1").expect("id"),
            agent: Some(AgentId::new("a1").expect("id")),
        };
        let goal = Goal { sentence: "Book the flight".into(), acceptance: "A ticket number is known".into() };
        Board::new(owner, TaskId::new("k1").expect("id"), None, goal, 2 * HOUR, T0)
    }

    fn key(text: &str) -> FactKey {
        FactKey::new(text).expect("key")
    }

    fn fact(name: &str, value: &str) -> FactWrite {
        let content = Content::Value(value.into());
        FactWrite { key: key(name), content, source: "erp".into(), trace_id: String::new(), verified_at: None }
    }

    fn todo(id: &str, state: TodoState) -> TodoWrite {
        TodoWrite { id: id.into(), step: "step".into(), state, note: String::new() }
    }

    fn digest(sentence: &str) -> DigestWrite {
        DigestWrite { tool: "search".into(), sentence: sentence.into(), trace_id: "tr-1".into() }
    }

    fn put(board: &mut Board, name: &str, value: &str, epoch: Option<u64>, now: Timestamp) -> Result<u64, Fault> {
        let change = board.decide_facts(vec![fact(name, value)], epoch, now)?;
        board.apply(change, now);
        Ok(board.facts[&key(name)].epoch)
    }

    fn seal(promotion: &str, epoch: u64) -> Seal {
        Seal { key: key("k"), promotion_id: promotion.into(), epoch, deadline: T0.plus(10 * SECOND) }
    }

    fn settle(promotion: &str, seal_epoch: u64, committed: bool) -> Settle {
        Settle { key: key("k"), promotion_id: promotion.into(), seal_epoch, committed, epoch: seal_epoch + 5 }
    }

    #[test]
    fn a12_a_todo_moves_by_the_table_only() {
        use TodoState::{Blocked, Done, InProgress, Pending};
        let allowed = [
            (Pending, InProgress),
            (Pending, Blocked),
            (Pending, Done),
            (InProgress, Blocked),
            (InProgress, Done),
            (InProgress, Pending),
            (Blocked, InProgress),
            (Blocked, Pending),
        ];
        for from in TodoState::ALL {
            for to in TodoState::ALL {
                let mut b = board();
                let change = b.decide_todos(vec![todo("1", *from)]).expect("new");
                b.apply(change, T0);
                let verdict = b.decide_todos(vec![todo("1", *to)]);
                let expected = from == to || allowed.contains(&(*from, *to));
                assert_eq!(verdict.is_ok(), expected, "{} > {}", from.name(), to.name());
                if let Err(fault) = verdict {
                    assert_eq!(fault.reason, Reason::TodoMove);
                    assert_eq!(fault.preconditions[0].rule, "W6");
                }
            }
        }
    }

    #[test]
    fn a12_a_done_todo_keeps_its_text_and_a_move_keeps_what_it_leaves_empty() {
        let mut b = board();
        let write = TodoWrite { id: "1".into(), step: "订机票".into(), state: TodoState::Pending, note: "靠窗".into() };
        let change = b.decide_todos(vec![write]).expect("new");
        b.apply(change, T0);
        let moved = TodoWrite { id: "1".into(), step: String::new(), state: TodoState::Done, note: String::new() };
        let change = b.decide_todos(vec![moved]).expect("move");
        b.apply(change, T0);
        assert_eq!((b.todos[0].step.as_str(), b.todos[0].note.as_str()), ("订机票", "靠窗"));
        let same = TodoWrite { note: String::new(), ..todo("1", TodoState::Done) };
        assert_eq!(b.decide_todos(vec![same]).expect_err("another step").reason, Reason::TodoMove);
    }

    #[test]
    fn a11_raw_payloads_are_refused_in_any_script() {
        let json = |bytes: usize| format!("{{\"a\":\"{}\"}}", "x".repeat(bytes - 8));
        let chinese = |bytes: usize| format!("[\"{}\"]", "价".repeat((bytes - 4) / 3));
        for (value, fine) in [
            ("118.50".to_owned(), true),
            ("x".repeat(512), true),
            ("x".repeat(513), false),
            ("价".repeat(170), true),
            ("价".repeat(171), false),
            (json(256), true),
            (json(257), false),
            (chinese(256), true),
            (chinese(268), false),
            (format!("  {}  ", json(300)), false),
            (json(400)[..300].to_owned(), false),
            (format!("{{'a': None, 'b': [1, -2.5e3, True]}}{}", " ".repeat(300)), false),
            (format!("{}\n{}", json(140), json(140)), false),
            (format!("[draft] {}", "call Bob again ".repeat(20)), true),
            (format!("[1] {}", "see the note above ".repeat(16)), true),
            (format!("{{name}} {}", "fill this template ".repeat(16)), true),
            (format!("{} {{\"a\":1}}", "prose before an object ".repeat(12)), true),
            ("one\ntwo\nthree".to_owned(), true),
            ("one\r\ntwo\r\nthree\r\n".to_owned(), true),
            ("一\n二\n三\n四".to_owned(), false),
            ("1\u{2028}2\u{2028}3\u{2028}4".to_owned(), false),
            ("\n\n\n".to_owned(), true),
            ("👍🏽 ok".to_owned(), true),
            ("שלום".to_owned(), true),
        ] {
            let verdict = check_value("facts[0].value", &value);
            assert_eq!(verdict.is_ok(), fine, "{} bytes: {:.40}", value.len(), value);
            if let Err(fault) = verdict {
                assert_eq!(fault.reason, Reason::NotABoardValue);
                assert_eq!(fault.fields[0].field, "facts[0].value");
                assert!(fault.message.contains("artifact"), "the advice: {}", fault.message);
            }
        }
    }

    #[test]
    fn a13_a_digest_is_one_sentence_of_280_characters() {
        for (sentence, count, fine) in [
            ("x".repeat(280), 1, true),
            ("x".repeat(281), 1, false),
            ("查".repeat(280), 1, true),
            ("查".repeat(281), 1, false),
            ("Found it. Paid it.".to_owned(), 2, false),
            ("two\nlines".to_owned(), 1, false),
        ] {
            let verdict = check_digest(&digest(&sentence), count);
            assert_eq!(verdict.is_ok(), fine, "{sentence:.20}");
            if let Err(fault) = verdict {
                assert_eq!(fault.reason, Reason::NotABoardValue);
                assert!(fault.message.contains("artifact") && fault.message.contains("trace_id"));
            }
        }
    }

    #[test]
    fn a10_a_goal_has_a_sentence_and_an_acceptance_condition() {
        let goal = |sentence: &str, acceptance: &str| Goal { sentence: sentence.into(), acceptance: acceptance.into() };
        for (goal, sentences, field) in [
            (goal("", "done"), 0, "goal.sentence"),
            (goal("go", " "), 1, "goal.acceptance"),
            (goal("去。", ""), 1, "goal.acceptance"),
            (goal("Go. Come.", "done"), 2, "goal.sentence"),
            (goal(&"去".repeat(501), "done"), 1, "goal.sentence"),
            (goal("go", &"去".repeat(501)), 1, "goal.acceptance"),
        ] {
            assert_eq!(check_goal(&goal, sentences).expect_err(field).fields[0].field, field);
        }
        assert!(check_goal(&goal(&"去".repeat(500), &"到".repeat(500)), 1).is_ok());
    }

    #[test]
    fn p5_a_seal_blocks_until_it_is_settled_or_falls() {
        let mut b = board();
        put(&mut b, "k", "v1", Some(10), T0).expect("own");
        assert_eq!(b.decide_seal(&seal("p1", 10), T0).expect_err("no new epoch").reason, Reason::StaleEpoch);
        let far = Seal { deadline: T0.plus(60 * SECOND), ..seal("p1", 11) };
        assert_eq!(b.decide_seal(&far, T0).expect_err("for ever").reason, Reason::InvalidField);
        let change = b.decide_seal(&seal("p1", 11), T0).expect("seal").expect("new");
        b.apply(change, T0);
        assert!(b.decide_seal(&seal("p1", 11), T0).expect("again").is_none());
        assert_eq!(b.decide_seal(&seal("p2", 12), T0).expect_err("other").reason, Reason::FactSealed);
        let fault = put(&mut b, "k", "v2", Some(99), T0).expect_err("sealed");
        assert_eq!((fault.reason, fault.retry_after_ms), (Reason::FactSealed, Some(200)));
        // It falls by itself, not before every clock of the deployment is past the deadline.
        let deadline = T0.plus(10 * SECOND);
        let falls = deadline.plus(4 * SECOND);
        assert!(put(&mut b, "k", "v2", Some(99), falls.plus(-1)).is_err());
        assert_eq!(b.decide_seal(&seal("p1", 11), falls).expect_err("late").reason, Reason::PromotionAborted);
        assert_eq!(put(&mut b, "k", "v2", Some(10), falls).expect_err("older than the seal").reason, Reason::StaleEpoch);
        put(&mut b, "k", "v2", Some(12), falls).expect("writable again");
        // Undoing a seal that is gone does nothing; committing it makes the later value an overlay.
        assert!(b.decide_settle(&settle("p1", 11, false)).is_none());
        let change = b.decide_settle(&settle("p1", 11, true)).expect("commit");
        b.apply(change, falls);
        assert_eq!(b.facts[&key("k")].content, Content::Value("v2".into()));
        assert_eq!(put(&mut b, "k", "v3", Some(u64::MAX), falls).expect_err("overlay").reason, Reason::FactOwnedByOtherLayer);
        assert!(b.decide_settle(&settle("p1", 11, true)).is_none(), "settled before");
    }

    #[test]
    fn p5_an_undone_seal_gives_the_fact_back_at_a_fresh_epoch() {
        let mut b = board();
        put(&mut b, "k", "v1", Some(10), T0).expect("own");
        let change = b.decide_seal(&seal("p1", 11), T0).expect("seal").expect("new");
        b.apply(change, T0);
        assert!(b.decide_settle(&settle("p2", 11, false)).is_none(), "another promotion");
        assert!(b.decide_settle(&settle("p1", 12, false)).is_none(), "another seal");
        let change = b.decide_settle(&settle("p1", 11, false)).expect("undo");
        b.apply(change, T0);
        assert_eq!((b.facts[&key("k")].epoch, &b.facts[&key("k")].ownership), (16, &Ownership::Owned));
        assert!(b.decide_settle(&settle("p1", 11, false)).is_none(), "twice");
        assert_eq!(b.decide_seal(&seal("p1", 11), T0).expect_err("a late copy of the seal").reason, Reason::StaleEpoch);
    }

    #[test]
    fn p3_p4_epochs_only_rise_and_a_stale_write_learns_the_value() {
        let mut b = board();
        assert_eq!(put(&mut b, "k", "v1", None, T0), Ok(1_767_225_600_000_000), "a new claim is the server's microseconds");
        assert_eq!(put(&mut b, "k", "v2", None, T0.plus(HOUR)), Ok(1_767_225_600_000_000), "a known key keeps its epoch");
        assert_eq!(put(&mut b, "k", "v3", Some(u64::MAX), T0), Ok(u64::MAX));
        let fault = put(&mut b, "k", "v4", Some(7), T0).expect_err("stale");
        assert_eq!(fault.reason, Reason::StaleEpoch);
        assert!(
            fault.metadata.contains(&("current_value", "v3".into())) && fault.metadata.contains(&("epoch", u64::MAX.to_string()))
        );
    }

    #[test]
    fn w10_an_older_generation_is_refused_until_the_loss_is_known() {
        let mut b = board();
        for known in [0, 1] {
            assert!(b.check_generation(known).is_ok());
        }
        assert_eq!(b.check_generation(2).expect_err("not yet").reason, Reason::TaskLost);
        b.lose(T0);
        for known in [0, 1, 3] {
            let fault = b.check_generation(known).expect_err("lost");
            assert_eq!(fault.reason, Reason::TaskLost);
            assert!(fault.metadata.contains(&("generation", "2".into())));
            assert!(fault.metadata.contains(&("checkpoint_time", T0.micros().to_string())));
        }
        b.check_generation(2).expect("the new one");
        b.acknowledge(0);
        assert!(b.check_generation(0).is_err(), "0 acknowledges nothing");
        b.acknowledge(2);
        assert!(b.check_generation(0).is_ok());
        assert!(b.check_generation(1).is_err(), "an older one never passes again");
    }

    #[test]
    fn w11_a_reference_is_no_claim() {
        let mut b = board();
        let content = Content::Reference { memory_id: MemoryId(uuid::Uuid::from_u128(7)), version: 3 };
        let change = b.decide_facts(vec![FactWrite { content, ..fact("k", "") }], None, T0).expect("reference");
        b.apply(change, T0);
        assert_eq!(b.decide_seal(&seal("p1", u64::MAX), T0).expect_err("no claim").reason, Reason::PromotionRefused);
    }

    #[test]
    fn c087_each_limit_at_and_over() {
        let mut b = board();
        for n in 0..limits::BOARD_FACTS {
            put(&mut b, &format!("k{n}"), "v", None, T0).expect("within");
        }
        assert_eq!(put(&mut b, "one.more", "v", None, T0).expect_err("over").reason, Reason::LimitReached);
        put(&mut b, "k0", "other", None, T0).expect("a known key needs no room");
        let many = |n: usize| (0..n).map(|n| todo(&format!("t{n}"), TodoState::Pending)).collect::<Vec<_>>();
        assert!(b.decide_todos(many(limits::BOARD_TODOS)).is_ok());
        assert_eq!(b.decide_todos(many(limits::BOARD_TODOS + 1)).expect_err("over").reason, Reason::LimitReached);
        for _ in 0..limits::BOARD_DIGESTS {
            let change = b.decide_digest(digest("ok"), 1, T0).expect("within");
            b.apply(change, T0);
        }
        assert_eq!(b.decide_digest(digest("ok"), 1, T0).expect_err("over").reason, Reason::LimitReached);
    }

    #[test]
    fn c087_a_board_holds_65536_bytes_and_not_one_more() {
        let mut b = board();
        let mut n = 0;
        while limits::BOARD_BYTES - b.bytes > 700 {
            let change = b
                .decide_todos(vec![TodoWrite {
                    id: format!("t{n:03}"),
                    step: "s".repeat(500),
                    note: "n".repeat(90),
                    ..todo("", TodoState::Pending)
                }])
                .expect("room");
            b.apply(change, T0);
            n += 1;
        }
        // A fact of key "k" and source "erp" takes 4 bytes beside its value; two fill the rest to the byte.
        let rest = limits::BOARD_BYTES - b.bytes;
        put(&mut b, "k", &"v".repeat(rest / 2 - 4), None, T0).expect("room");
        let rest = limits::BOARD_BYTES - b.bytes;
        let over = put(&mut b, "l", &"v".repeat(rest - 4 + 1), None, T0).expect_err("one byte over");
        assert_eq!(over.reason, Reason::LimitReached);
        put(&mut b, "l", &"v".repeat(rest - 4), None, T0).expect("to the byte");
        assert_eq!(b.bytes, limits::BOARD_BYTES);
        assert_eq!(b.broken_invariant(), None);
        put(&mut b, "l", "v", None, T0).expect("a full board may shrink");
    }

    #[test]
    fn e02_a_board_is_redacted_in_every_slot_and_stays_whole() {
        let mut b = board();
        put(&mut b, "code.door", "QX-1", Some(5), T0).expect("a fact");
        put(&mut b, "code.other", "plain", Some(6), T0).expect("a fact");
        put(&mut b, "diet.spicy", "no", Some(7), T0).expect("a fact");
        let todo =
            |id: &str, step: &str| TodoWrite { id: id.into(), step: step.into(), state: TodoState::Pending, note: "QX-1".into() };
        let todos = b.decide_todos(vec![todo("t1", "call Bo"), todo("QX-1", "x")]).expect("todos");
        b.apply(todos, T0);
        for sentence in ["QX-1 opens it.", "nothing"] {
            let digest = DigestWrite { tool: "door".into(), sentence: sentence.into(), trace_id: String::new() };
            let digest = b.decide_digest(digest, 1, T0).expect("a digest");
            b.apply(digest, T0);
        }
        let scope = Scope {
            epoch: u64::try_from(T0.micros()).expect("positive"),
            keys: BTreeSet::from([FactKey::new("diet.spicy").expect("key")]),
            ..Scope::default()
        };
        let holds = |text: &str| text.contains("QX-1");
        let cut = |text: &str| holds(text).then(|| MARKER.to_owned());
        let (after, slots) = b.redacted(&scope, &holds, &cut).expect("it is there");
        assert_eq!((slots, after.version, after.broken_invariant()), (5, b.version + 1, None));
        assert_eq!(after.facts.keys().map(FactKey::as_str).collect::<Vec<_>>(), ["code.other"]);
        assert_eq!(after.todos.iter().map(|t| (t.step.as_str(), t.note.as_str())).collect::<Vec<_>>(), [("call Bo", MARKER)]);
        assert_eq!(after.digests.iter().map(|d| d.sentence.as_str()).collect::<Vec<_>>(), [MARKER, "nothing"]);
        assert_eq!((after.idle_deadline, after.redacted(&scope, &holds, &cut)), (b.idle_deadline, None));
        // P3: the epoch of an erased fact stays in force.
        let mut after = after;
        assert_eq!(put(&mut after, "code.door", "new", Some(4), T0).expect_err("older").reason, Reason::StaleEpoch);
        put(&mut after, "code.door", "new", Some(5), T0).expect("its owner");
        // E7: what is checked after the erasure is another statement.
        let later = T0.plus(60 * SECOND);
        put(&mut after, "code.later", "QX-1", None, later).expect("a fact");
        assert_eq!(after.redacted(&scope, &holds, &cut), None);
    }

    #[test]
    fn e07_goals_and_todos_from_before_an_erasure_are_redacted_and_later_ones_stay() {
        let later = T0.plus(60 * SECOND);
        let scope = Scope { epoch: u64::try_from(T0.micros()).expect("positive"), ..Scope::default() };
        for (code, before, anew) in
            [("QX-1", "tell Bo QX-1", "ask for QX-1"), ("柜子密码九", "告诉博柜子密码九", "再问柜子密码九")]
        {
            let holds = |text: &str| text.contains(code);
            let cut = |text: &str| holds(text).then(|| MARKER.to_owned());
            let mut b = board();
            let write = |step: &str, note: &str| {
                vec![TodoWrite { id: "t1".into(), step: step.into(), state: TodoState::Pending, note: note.into() }]
            };
            let todos = b.decide_todos(write(before, before)).expect("todos");
            b.apply(todos, T0);
            // The step is written anew; the note stands since before, also when it is sent again as it is.
            let todos = b.decide_todos(write(anew, before)).expect("todos");
            b.apply(todos, later);
            let goal = |sentence: &str| Goal { sentence: sentence.into(), acceptance: before.into() };
            let first = b.decide_goal(goal(before), 1).expect("a goal");
            b.apply(first, T0);
            let second = b.decide_goal(goal(anew), 1).expect("a goal");
            b.apply(second, later);
            let (after, slots) = b.redacted(&scope, &holds, &cut).expect("what is from before");
            assert_eq!((slots, after.broken_invariant()), (2, None));
            assert_eq!((after.todos[0].step.as_str(), after.todos[0].note.as_str()), (anew, MARKER));
            assert_eq!((after.goal.sentence.as_str(), after.goal.acceptance.as_str()), (anew, MARKER));
            assert_eq!(after.redacted(&scope, &holds, &cut), None);
            // A board that was kept before there were such times is looked at whole.
            let mut old = b;
            (old.goal_times, old.todos[0].times) = Default::default();
            let (after, _) = old.redacted(&scope, &holds, &cut).expect("all of it");
            assert!(!after.todos[0].step.contains(code) && !after.goal.sentence.contains(code));
        }
    }

    #[derive(Clone, Debug)]
    enum Op {
        Put(Vec<(u8, usize, bool)>, Option<u64>),
        Todos(Vec<(u8, usize)>),
        Digest(usize),
        Goal(usize),
        Seal(u8, u64),
        Settle(u8, u64, bool),
        Lose,
        Wait(i64),
    }

    fn ops() -> impl Strategy<Value = Op> {
        prop_oneof![
            (prop::collection::vec((0_u8..80, 0_usize..600, any::<bool>()), 0..8), prop::option::of(0_u64..40))
                .prop_map(|(f, e)| Op::Put(f, e)),
            prop::collection::vec((0_u8..140, 0_usize..4), 0..20).prop_map(Op::Todos),
            (0_usize..300).prop_map(Op::Digest),
            (0_usize..520).prop_map(Op::Goal),
            (0_u8..80, 0_u64..40).prop_map(|(k, e)| Op::Seal(k, e)),
            (0_u8..80, 0_u64..40, any::<bool>()).prop_map(|(k, e, c)| Op::Settle(k, e, c)),
            Just(Op::Lose),
            (-5 * SECOND..20 * SECOND).prop_map(Op::Wait),
        ]
    }

    fn decide(b: &Board, op: Op, now: Timestamp) -> Result<Option<Change>, Fault> {
        match op {
            Op::Put(facts, epoch) => {
                let write = |(k, n, json): (u8, usize, bool)| {
                    let value = if json { format!("{{\"v\":\"{}\"}}", "x".repeat(n)) } else { "值".repeat(n / 3) };
                    fact(&format!("k{k}"), &value)
                };
                b.decide_facts(facts.into_iter().map(write).collect(), epoch, now).map(Some)
            }
            Op::Todos(todos) => {
                let write = |(id, state): (u8, usize)| TodoWrite {
                    step: "s".repeat(usize::from(id) * 4),
                    ..todo(&format!("t{id}"), TodoState::ALL[state])
                };
                b.decide_todos(todos.into_iter().map(write).collect()).map(Some)
            }
            Op::Digest(n) => b.decide_digest(digest(&"d".repeat(n)), 1, now).map(Some),
            Op::Goal(n) => b.decide_goal(Goal { sentence: "g".repeat(n), acceptance: "a".repeat(n) }, 1).map(Some),
            Op::Seal(k, epoch) => {
                b.decide_seal(&Seal { key: key(&format!("k{k}")), deadline: now.plus(SECOND), ..seal("p", epoch) }, now)
            }
            Op::Settle(k, epoch, committed) => {
                Ok(b.decide_settle(&Settle { key: key(&format!("k{k}")), ..settle("p", epoch, committed) }))
            }
            Op::Lose | Op::Wait(_) => Ok(None),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever is written in whatever order: limits hold, epochs and order only rise, overlays and final todos stay,
        /// a refusal changes nothing, and a checkpoint gives the same board back.
        #[test]
        fn any_sequence_keeps_the_limits_and_invariants(sequence in prop::collection::vec(ops(), 1..120)) {
            let mut b = board();
            let mut now = T0;
            for op in sequence {
                let before = b.clone();
                match op {
                    Op::Wait(micros) => now = now.plus(micros),
                    Op::Lose => b.lose(now),
                    op @ (Op::Put(..) | Op::Todos(_) | Op::Digest(_) | Op::Goal(_) | Op::Seal(..) | Op::Settle(..)) => match decide(&b, op, now) {
                        Ok(Some(change)) => {
                            let bytes = change.bytes_after();
                            b.apply(change, now);
                            prop_assert_eq!(b.bytes, bytes);
                            prop_assert_eq!(b.version, before.version + 1);
                        }
                        Ok(None) => prop_assert_eq!(&b, &before),
                        Err(fault) => {
                            prop_assert_eq!(&b, &before);
                            prop_assert!(fault.reason != Reason::Internal);
                        }
                    },
                }
                prop_assert_eq!(b.broken_invariant(), None);
                prop_assert!((b.generation, b.version) >= (before.generation, before.version));
                prop_assert!(b.idle_deadline >= before.idle_deadline);
                for (key, old) in &before.facts {
                    let new = &b.facts[key];
                    prop_assert!(new.epoch >= old.epoch);
                    if old.ownership == Ownership::Overlay {
                        prop_assert_eq!(new, old);
                    }
                }
                for (old, new) in before.todos.iter().zip(&b.todos) {
                    prop_assert_eq!(&old.id, &new.id);
                    prop_assert!(old.state == new.state || old.state.may_move(new.state));
                }
            }
        }
    }
}
