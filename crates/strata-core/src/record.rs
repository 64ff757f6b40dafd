//! The long-term record and its vocabulary (model.md).

use crate::{FactKey, MemoryId, Owner, Reason, Scope, Timestamp};
use serde::{Deserialize, Serialize};

macro_rules! vocabulary {
    ($(#[$doc:meta])* $name:ident { $( $(#[$vdoc:meta])* $variant:ident = $text:literal, )* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "SCREAMING_SNAKE_CASE")]
        pub enum $name { $( $(#[$vdoc])* $variant, )* }
        impl $name {
            /// Every value, in declaration order.
            pub const ALL: &'static [Self] = &[ $( Self::$variant, )* ];
            /// Stable upper-case name: the wire name without its prefix, the stored form.
            #[must_use]
            pub const fn name(self) -> &'static str { match self { $( Self::$variant => $text, )* } }
            /// From the stable name.
            #[must_use]
            pub fn from_name(text: &str) -> Option<Self> { match text { $( $text => Some(Self::$variant), )* _ => None } }
        }
    };
}
pub(crate) use vocabulary;

vocabulary! {
    /// What a record is about.
    Kind {
        /// A fact about the user or the user's world.
        Fact = "FACT",
        /// What the user likes or wants.
        Preference = "PREFERENCE",
        /// What must or must not be done.
        Constraint = "CONSTRAINT",
        /// What the user is after; archived at task end.
        Goal = "GOAL",
        /// Something that happened; append only.
        Event = "EVENT",
        /// A lesson; candidate until verified.
        Experience = "EXPERIENCE",
        /// Assumed, never fact.
        Assumption = "ASSUMPTION",
        /// Suggested by a model, never fact.
        ModelSuggestion = "MODEL_SUGGESTION",
        /// Made by consolidation.
        Summary = "SUMMARY",
    }
}
vocabulary! {
    /// Retention, half-life, and who competes with whom.
    Tier {
        /// No expiry, replaced on conflict.
        Stable = "STABLE",
        /// 30 days, renewed by a citation; overlays STABLE.
        Temporary = "TEMPORARY",
        /// 7 days, then archived.
        Event = "EVENT",
    }
}
vocabulary! {
    /// Where a statement came from.
    Source {
        /// The user corrects.
        UserCorrection = "USER_CORRECTION",
        /// The user states.
        UserStatement = "USER_STATEMENT",
        /// The user confirmed what was put to them.
        UserConfirmation = "USER_CONFIRMATION",
        /// A record system, through its own credential.
        AuthoritativeSystem = "AUTHORITATIVE_SYSTEM",
        /// An executor saw it.
        Observation = "OBSERVATION",
        /// A lesson from a review.
        Review = "REVIEW",
        /// A model inferred it.
        ModelInference = "MODEL_INFERENCE",
        /// A tool returned it: refused.
        ToolResult = "TOOL_RESULT",
        /// A document says it: refused.
        Document = "DOCUMENT",
    }
}
vocabulary! {
    /// State of a record; moves are in [`crate::policy::status`].
    Status {
        /// Waits for evidence or confirmation.
        Candidate = "CANDIDATE",
        /// Recalled.
        Active = "ACTIVE",
        /// Two inferences disagree.
        Disputed = "DISPUTED",
        /// Replaced; kept as history.
        Superseded = "SUPERSEDED",
        /// Past its time.
        Expired = "EXPIRED",
        /// Out of recall, restorable.
        Archived = "ARCHIVED",
        /// Rejected by the user; reopens on new evidence only.
        Rejected = "REJECTED",
        /// Softly forgotten; restorable until erased.
        Deleted = "DELETED",
    }
}
vocabulary! {
    /// Why a write happens (rule G1).
    Trigger {
        /// The user asked for it.
        UserRequest = "USER_REQUEST",
        /// A task ended.
        TaskEnd = "TASK_END",
        /// A session ended.
        SessionEnd = "SESSION_END",
        /// A decision point in a conversation.
        DecisionPoint = "DECISION_POINT",
        /// A record system synchronises.
        Sync = "SYNC",
        /// An import.
        Import = "IMPORT",
        /// The service itself.
        Maintenance = "MAINTENANCE",
    }
}
vocabulary! {
    /// How sensitive a record is. SECRET is never stored, so it is no value here.
    Sensitivity {
        /// Not sensitive.
        None = "NONE",
        /// With consent reference or verified user quote.
        Personal = "PERSONAL",
    }
}

/// What a promotion path a record took: which writer, through which door (A144).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SourceRef {
    /// A turn of a session.
    Turn {
        /// Session id.
        session_id: String,
        /// Turn number, from 1.
        seq: u32,
    },
    /// A record of an authoritative system.
    SystemRecord {
        /// Name of the system.
        system: String,
        /// Id of its record.
        record_id: String,
    },
    /// A confirmation by the user.
    Confirmation {
        /// Reference given by the caller.
        reference: String,
    },
    /// Something a task's executor saw.
    Task {
        /// Task id.
        task_id: String,
    },
}

/// A typed value of a slot. Numbers travel as their literal text: amounts and ids are exact (case C089).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    /// Text.
    Text(String),
    /// A decimal number, as written: trailing and leading zeros are kept.
    Number(String),
    /// A truth value.
    Bool(bool),
    /// JSON, as written.
    Json(String),
}

impl Value {
    /// The value as text, for comparison, display and the keyword index.
    #[must_use]
    pub fn as_text(&self) -> &str {
        match self {
            Self::Text(t) | Self::Number(t) | Self::Json(t) => t,
            Self::Bool(true) => "true",
            Self::Bool(false) => "false",
        }
    }
}

/// One statement that supports a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Where it came from.
    pub source: Source,
    /// Reference.
    pub source_ref: Option<SourceRef>,
    /// The literal sentence.
    pub quote: String,
    /// Whether the router found the quote in that user turn.
    pub quote_verified: bool,
    /// Event time: the verified turn's server time, else arrival.
    pub time: Timestamp,
}

/// A long-term record, whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Id.
    pub memory_id: MemoryId,
    /// Whose.
    pub owner: Owner,
    /// USER or AGENT.
    pub scope: Scope,
    /// What it is about.
    pub kind: Kind,
    /// Retention.
    pub tier: Tier,
    /// Slot.
    pub key: Option<FactKey>,
    /// Typed value of the slot.
    pub value: Option<Value>,
    /// One self-contained sentence.
    pub content: String,
    /// Normalised text (dedup).
    pub normal: String,
    /// Strongest source so far.
    pub source: Source,
    /// Reference of the statement that made it.
    pub source_ref: Option<SourceRef>,
    /// The literal sentence it came from.
    pub source_quote: String,
    /// Whether the router found the quote in that user turn.
    pub quote_verified: bool,
    /// Confirmed by the user.
    pub confirmed: bool,
    /// 0..1.
    pub confidence: f64,
    /// 1..5.
    pub importance: u8,
    /// Sensitivity.
    pub sensitivity: Sensitivity,
    /// Never forgotten automatically.
    pub protected: bool,
    /// Instruction-like words of the user: rendered as quoted data (rule G8).
    pub instruction: bool,
    /// State.
    pub status: Status,
    /// The record this one replaced.
    pub supersedes: Option<MemoryId>,
    /// The record that replaced this one.
    pub superseded_by: Option<MemoryId>,
    /// When it was replaced.
    pub superseded_at: Option<Timestamp>,
    /// Why it has its status, with the rule id.
    pub reason: String,
    /// Start of the time it holds in the world.
    pub valid_from: Option<Timestamp>,
    /// End (exclusive) of the time it holds in the world.
    pub valid_to: Option<Timestamp>,
    /// Time of the statement (event time, hybrid clock per key).
    pub event_time: Timestamp,
    /// When the service learned it.
    pub create_time: Timestamp,
    /// Last change.
    pub update_time: Timestamp,
    /// When it expires; none for STABLE.
    pub expire_time: Option<Timestamp>,
    /// Last recall.
    pub last_recalled_at: Option<Timestamp>,
    /// Last citation.
    pub last_cited_at: Option<Timestamp>,
    /// Times recalled.
    pub recall_count: u64,
    /// Times cited.
    pub cite_count: u64,
    /// Topic.
    pub topic: Option<String>,
    /// Tags, sorted, without duplicates.
    pub tags: Vec<String>,
    /// Caller's metadata: string values, sorted by key.
    pub metadata: std::collections::BTreeMap<String, String>,
    /// Epoch of the owner row at the write (fencing).
    pub owner_epoch: u64,
    /// Optimistic concurrency; the `etag` on the wire.
    pub version: u64,
    /// Which model its vector came from; none while pending.
    pub embedding_model: Option<String>,
    /// Distinct sessions and total count of supporting statements.
    pub evidence_sessions: u32,
    /// Total count of supporting statements.
    pub evidence_count: u32,
    /// What it was made of: the members of a summary, oldest first; the events of a proposed fact. Empty for what was said.
    pub derived_from: Vec<MemoryId>,
    /// Event times of the oldest and the newest of them.
    pub source_span: Option<(Timestamp, Timestamp)>,
}

/// One row of a record's history: every move of status writes one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// Record.
    pub memory_id: MemoryId,
    /// When.
    pub time: Timestamp,
    /// Status before; none at creation.
    pub from: Option<Status>,
    /// Status after.
    pub to: Status,
    /// Who: principal id, or `strata:<job>`.
    pub actor: String,
    /// Through which door: RPC or job (A144).
    pub path: String,
    /// Why, with the rule's id.
    pub reason: String,
    /// Rule id.
    pub rule: String,
}

/// Reasons that mean "the gate said no", for tests that walk every path.
pub const GATE_REASONS: &[Reason] = &[Reason::GateProvenance, Reason::GatePii, Reason::GateContent, Reason::Forgotten];
