//! What may enter long-term memory: the gate (rules G1 to G12), in two pure steps.
//!
//! 1. [`judge`] runs every refusing rule over a [`Submission`] and answers a [`Gated`] statement or a [`Refusal`] that
//!    lists every rule that objected. [`Gated`] has no other constructor: what is inserted has passed.
//! 2. [`divert`] decides, over facts read in the write's own transaction, what the statement may become: nothing yet
//!    (consent), a candidate, or active. The weakest outcome wins; every verdict is listed.
//!
//! Language work is done by `strata-text` and arrives as [`TextFeatures`].

mod episode;
mod readmit;
mod seal;
mod summary;

pub use episode::{GatedEpisode, SentenceSubmission, TurnSubmission, episode};
pub use readmit::readmit;
pub use seal::Seals;
pub use summary::{Member, SummarySubmission, summary, worded};

use super::authz::Role;
use super::registry::{Cardinality, KeySpec};
use crate::id::{FactKey, Owner, join};
use crate::record::{Kind, Record, Sensitivity, Source, SourceRef, Tier, Trigger, Value};
use crate::rule::Finding;
use crate::text::{
    Certainty, Clause, Negation, SensitiveKind, TextFeatures, ValueKind, letter_pairs, reverses, stands_in, turns_round,
};
use crate::time::{DAY, HOUR, MINUTE};
use crate::{Fault, Reason, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What becomes of a user's statement whose quote cannot be checked now (rule G2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnverifiedQuote {
    /// It waits as a candidate.
    #[default]
    Candidate,
    /// It counts as verified, and says that it was not.
    Accept,
}

/// Settings of the gate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GateSettings {
    /// What becomes of a user's statement whose quote cannot be checked now (rule G2). Default `candidate`.
    pub unverified_quote: UnverifiedQuote,
    /// Fewest letters, digits and ideographs of a statement (rule G5). Default 2: "不吃辣" passes.
    pub min_content_chars: usize,
    /// Value score from which a user's statement may be active (rule G9), 0..1. Default 0.4.
    pub value_threshold: f64,
    /// Score of an explicit order (rule G9). Default 0.4.
    pub score_explicit: f64,
    /// Score of a registered key (rule G9). Default 0.4.
    pub score_registered: f64,
    /// Score of a protected value (rule G9). Default 0.2.
    pub score_protected_value: f64,
    /// Score of strong wording (rule G9). Default 0.2.
    pub score_strong: f64,
    /// Score of repetition (rule G9). Default 0.2.
    pub score_repetition: f64,
    /// Distinct sessions of user statements that make a statement stable (rule G11). Default 2.
    pub stable_sessions: u32,
    /// Distinct sessions of evidence from which a candidate is due for asking (rule G10). Default 3.
    pub due_sessions: u32,
    /// Largest confidence of a model's inference (rule G2), 0..1. Default 0.6.
    pub inference_confidence: f64,
    /// Days after which an event leaves recall (rule F2). Default 7.
    pub event_days: u32,
    /// Days a temporary value holds (rule F2). Default 30.
    pub temporary_days: u32,
    /// Days a candidate waits (rule F2). Default 90.
    pub candidate_days: u32,
}

impl Default for GateSettings {
    fn default() -> Self {
        Self {
            unverified_quote: UnverifiedQuote::Candidate,
            min_content_chars: 2,
            value_threshold: 0.4,
            score_explicit: 0.4,
            score_registered: 0.4,
            score_protected_value: 0.2,
            score_strong: 0.2,
            score_repetition: 0.2,
            stable_sessions: 2,
            due_sessions: 3,
            inference_confidence: 0.6,
            event_days: 7,
            temporary_days: 30,
            candidate_days: 90,
        }
    }
}

impl GateSettings {
    /// Checks the section.
    ///
    /// # Errors
    /// `INVALID_FIELD` naming the setting.
    pub fn validate(&self) -> Result<(), Fault> {
        let shares = [
            ("value_threshold", self.value_threshold),
            ("score_explicit", self.score_explicit),
            ("score_registered", self.score_registered),
            ("score_protected_value", self.score_protected_value),
            ("score_strong", self.score_strong),
            ("score_repetition", self.score_repetition),
            ("inference_confidence", self.inference_confidence),
        ];
        for (name, value) in shares {
            if !(0.0..=1.0).contains(&value) {
                return Err(Fault::field(format!("policy.gate.{name}"), "must lie between 0 and 1"));
            }
        }
        let counts = [
            ("stable_sessions", self.stable_sessions, 1, 100),
            ("due_sessions", self.due_sessions, 1, 100),
            ("event_days", self.event_days, 1, 3_650),
            ("temporary_days", self.temporary_days, 1, 3_650),
            ("candidate_days", self.candidate_days, 1, 3_650),
        ];
        for (name, value, min, max) in counts {
            if !(min..=max).contains(&value) {
                return Err(Fault::field(format!("policy.gate.{name}"), format!("must lie between {min} and {max}")));
            }
        }
        if !(1..=100).contains(&self.min_content_chars) {
            return Err(Fault::field("policy.gate.min_content_chars", "must lie between 1 and 100"));
        }
        Ok(())
    }

    /// When a record of this tier stops holding (rule F2): none for STABLE.
    #[must_use]
    pub fn expiry(&self, tier: Tier, now: Timestamp) -> Option<Timestamp> {
        match tier {
            Tier::Stable => None,
            Tier::Temporary => Some(now.plus(i64::from(self.temporary_days) * DAY)),
            Tier::Event => Some(now.plus(i64::from(self.event_days) * DAY)),
        }
    }
}

/// A statement as a caller gives it: fields are within their limits, nothing has been judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// What it is about; never SUMMARY.
    pub kind: Kind,
    /// Slot as given.
    pub key: Option<FactKey>,
    /// Value as given.
    pub value: Option<Value>,
    /// One self-contained sentence.
    pub content: String,
    /// Source.
    pub source: Source,
    /// Reference.
    pub source_ref: Option<SourceRef>,
    /// The literal sentence it came from; may be empty, which rule G2 refuses.
    pub source_quote: String,
    /// Why the write happens; none is refused by rule G1.
    pub trigger: Option<Trigger>,
    /// 1..5; none: the predecessor's, else 3.
    pub importance: Option<u8>,
    /// 0..1; none: by source.
    pub confidence: Option<f64>,
    /// Retention; none: by rule.
    pub tier: Option<Tier>,
    /// Never forget automatically.
    pub protected: bool,
    /// Start of the time it holds.
    pub valid_from: Option<Timestamp>,
    /// End (exclusive) of the time it holds.
    pub valid_to: Option<Timestamp>,
    /// When to expire; none: by tier.
    pub expire_time: Option<Timestamp>,
    /// Topic; none: the predecessor's.
    pub topic: Option<String>,
    /// Tags, sorted, without duplicates; empty: the predecessor's.
    pub tags: Vec<String>,
    /// Metadata; empty: the predecessor's.
    pub metadata: BTreeMap<String, String>,
    /// The caller's vector; empty when none.
    pub vector: Vec<f32>,
    /// The challenge of a NEEDS_CONSENT answer.
    pub consent: Option<String>,
}

/// Result of looking for the quote in the referenced turn, as the router attests it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuoteState {
    /// No reference was given.
    #[default]
    Unreferenced,
    /// Found in a turn.
    Verified,
    /// The turn is there and does not hold the quote, or is not the user's.
    NotFound,
    /// The session could not be read now.
    Unverifiable,
}

/// What the router vouches for. Nothing in a request body can stand in for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attestation {
    /// Whether the quote was found.
    pub quote: QuoteState,
    /// The store's time of that turn.
    pub turn_time: Option<Timestamp>,
    /// The turn was spoken by the user.
    pub user_turn: bool,
    /// An explicit order of the user, as opposed to a proposal.
    pub explicit_order: bool,
}

impl Attestation {
    /// Found in a turn of the user.
    #[must_use]
    pub fn is_user_quote(&self) -> bool {
        self.quote == QuoteState::Verified && self.user_turn
    }
}

/// The door a statement comes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Door {
    /// The explicit-confirmation entry.
    Remember,
    /// A proposal.
    Propose,
    /// The end of a promotion.
    Apply,
    /// The user confirms a candidate.
    Confirm,
    /// A record is to say something else, or gets other labels.
    Update,
    /// A line of an export.
    Import,
    /// A record system.
    Sync,
    /// An entity is named.
    Entity,
    /// Entities are related.
    Relation,
    /// A skill is taught.
    Skill,
    /// A session ends.
    Episode,
    /// The service itself.
    Maintenance,
}

impl Door {
    /// Whether what comes through it is made of names, triggers and steps.
    #[must_use]
    pub const fn is_part(self) -> bool {
        match self {
            Self::Entity | Self::Relation | Self::Skill => true,
            Self::Remember
            | Self::Propose
            | Self::Apply
            | Self::Confirm
            | Self::Update
            | Self::Import
            | Self::Sync
            | Self::Episode
            | Self::Maintenance => false,
        }
    }

    /// Every door.
    pub const ALL: &'static [Self] = &[
        Self::Remember,
        Self::Propose,
        Self::Apply,
        Self::Confirm,
        Self::Update,
        Self::Import,
        Self::Sync,
        Self::Entity,
        Self::Relation,
        Self::Skill,
        Self::Episode,
        Self::Maintenance,
    ];

    /// Whether what comes through it on the user's request is an explicit order (rule G9).
    #[must_use]
    pub const fn takes_orders(self) -> bool {
        matches!(self, Self::Remember | Self::Update | Self::Entity | Self::Relation | Self::Skill)
    }

    /// Stable name, as in the history's `path`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Remember => "Remember",
            Self::Propose => "Propose",
            Self::Apply => "Apply",
            Self::Confirm => "ConfirmCandidate",
            Self::Update => "UpdateMemory",
            Self::Import => "ImportMemories",
            Self::Sync => "SyncFacts",
            Self::Entity => "PutEntity",
            Self::Relation => "LinkEntities",
            Self::Skill => "PutSkill",
            Self::Episode => "ArchiveSession",
            Self::Maintenance => "Maintenance",
        }
    }
}

/// A resolved slot (rule K0).
#[derive(Clone, Debug, PartialEq)]
pub struct Slot<'a> {
    /// The registered name, or the caller's own key.
    pub key: FactKey,
    /// What the registry says about it.
    pub spec: Option<&'a KeySpec>,
    /// The value a pattern found, for keyless statements.
    pub value: Option<Value>,
    /// What the key's wordings read elsewhere.
    pub readings: Readings,
}

impl Slot<'_> {
    /// Whether values live side by side in it (rule K11).
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.spec.map_or_else(|| self.key.is_set(), |spec| spec.cardinality == Cardinality::Set)
    }
}

/// What the wordings of a slot's key read in a statement, in normal form (rule G12); empty where none of them matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readings {
    /// In the content.
    pub content: Vec<Reading>,
    /// In the quote.
    pub quote: Vec<Reading>,
}

/// One value that a wording read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Its normal form.
    pub normal: String,
    /// It stands there as it is; otherwise it is what the wording stands for.
    pub written: bool,
}

/// Everything [`judge`] looks at.
#[derive(Clone, Debug)]
pub struct Submission<'a> {
    /// The statement.
    pub statement: Statement,
    /// Features of the content.
    pub content: &'a TextFeatures,
    /// Features of the quote.
    pub quote: &'a TextFeatures,
    /// Features of the value's text; none without a value.
    pub value: Option<&'a TextFeatures>,
    /// Features of every other text of the caller: topic, tags, metadata, references.
    pub others: &'a [TextFeatures],
    /// Features of each name, trigger or step by itself, when the statement stands for a part; empty otherwise.
    pub lines: &'a [TextFeatures],
    /// Normal forms of the dates that the quote's relative days mean at its turn's time (rule G12).
    pub resolved_dates: &'a [String],
    /// The slot, when one was given or found.
    pub slot: Option<Slot<'a>>,
    /// What the router vouches for.
    pub attestation: Attestation,
    /// Roles of the caller.
    pub roles: &'a BTreeSet<Role>,
    /// The door.
    pub door: Door,
    /// Whether the consent that came along is genuine: see [`Challenges::verify`].
    pub consented: bool,
    /// Arrival.
    pub now: Timestamp,
}

/// What a statement may become at best. Ordered: a later one is stronger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// Nothing is stored; the caller gets a challenge.
    NeedsConsent,
    /// Waits for evidence or confirmation.
    Candidate,
    /// Active, for a while.
    Temporary,
    /// Active.
    Active,
}

/// What one piece of evidence says for its record: kept with it, so that the diverting rules can run over all of them
/// (rule G10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cues(u8);

impl Cues {
    /// An explicit order with a verified quote, or a confirmation (rules G9, G11).
    pub const EXPLICIT: Self = Self(1);
    /// A durability cue in the quote (rule G11).
    pub const DURABLE: Self = Self(2);
    /// Strong wording (rule G9).
    pub const STRONG: Self = Self(4);
    /// A statement of the user that counts as verified (rules G2, G11).
    pub const USER: Self = Self(8);
    /// By provenance alone the record may be active (rule G2).
    pub const MAY_BE_ACTIVE: Self = Self(16);
    /// The user confirmed.
    pub const CONFIRMED: Self = Self(32);

    /// From the stored form; unknown bits are dropped.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits & 63)
    }

    /// The stored form.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Both together.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether every cue of `other` is there.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    fn set(&mut self, cue: Self, when: bool) {
        if when {
            self.0 |= cue.0;
        }
    }
}

/// A statement that passed every refusing rule. Only [`judge`] makes one.
#[derive(Clone, Debug, PartialEq)]
pub struct Gated {
    statement: Statement,
    key: Option<FactKey>,
    is_set: bool,
    value: Option<Value>,
    normal: String,
    value_normal: Option<String>,
    tier: Tier,
    standing: Standing,
    sensitivity: Sensitivity,
    instruction: bool,
    quote_verified: bool,
    confirmed: bool,
    confidence: f64,
    protected: bool,
    cues: Cues,
    registered: bool,
    stable_key: bool,
    user_authority: bool,
    has_protected_value: bool,
    statement_time: Option<Timestamp>,
    door: Door,
    findings: Vec<Finding>,
}

impl Gated {
    /// The statement as given.
    #[must_use]
    pub const fn statement(&self) -> &Statement {
        &self.statement
    }
    /// The resolved slot.
    #[must_use]
    pub const fn key(&self) -> Option<&FactKey> {
        self.key.as_ref()
    }
    /// Whether values of the slot live side by side (rule K11).
    #[must_use]
    pub const fn is_set(&self) -> bool {
        self.is_set
    }
    /// The value, given or found by a pattern.
    #[must_use]
    pub const fn value(&self) -> Option<&Value> {
        self.value.as_ref()
    }
    /// Normalised content.
    #[must_use]
    pub fn normal(&self) -> &str {
        &self.normal
    }
    /// Retention.
    #[must_use]
    pub const fn tier(&self) -> Tier {
        self.tier
    }
    /// What provenance, kind and consent allow at best; [`divert`] may lower it.
    #[must_use]
    pub const fn standing(&self) -> Standing {
        self.standing
    }
    /// Sensitivity.
    #[must_use]
    pub const fn sensitivity(&self) -> Sensitivity {
        self.sensitivity
    }
    /// Instruction-like words of the user (rule G8).
    #[must_use]
    pub const fn instruction(&self) -> bool {
        self.instruction
    }
    /// Whether the router found the quote in a user turn.
    #[must_use]
    pub const fn quote_verified(&self) -> bool {
        self.quote_verified
    }
    /// Whether the statement itself counts as the user's confirmation.
    #[must_use]
    pub const fn confirmed(&self) -> bool {
        self.confirmed
    }
    /// 0..1, by source unless given.
    #[must_use]
    pub const fn confidence(&self) -> f64 {
        self.confidence
    }
    /// Never forgotten automatically.
    #[must_use]
    pub const fn protected(&self) -> bool {
        self.protected
    }
    /// What it says for its record.
    #[must_use]
    pub const fn cues(&self) -> Cues {
        self.cues
    }
    /// Whether the registry gives the user the last word on the key.
    #[must_use]
    pub const fn user_authority(&self) -> bool {
        self.user_authority
    }
    /// Server time of the verified turn, at most five minutes ahead of arrival; none: arrival counts.
    #[must_use]
    pub const fn statement_time(&self) -> Option<Timestamp> {
        self.statement_time
    }
    /// The door.
    #[must_use]
    pub const fn door(&self) -> Door {
        self.door
    }
    /// Findings so far.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// What makes two statements of a slot differ: the value in normal form, else the normalised text.
    #[must_use]
    pub fn slot_value(&self) -> &str {
        self.value_normal.as_deref().unwrap_or(&self.normal)
    }

    /// 128 bits of the statement's identity (rule G10).
    #[must_use]
    pub fn identity(&self) -> [u8; 16] {
        identity(
            self.statement.kind,
            self.key.as_ref(),
            self.tier,
            self.value_normal.as_deref(),
            &self.normal,
            self.statement.source_ref.as_ref(),
        )
    }
}

/// 128 bits of a statement's identity (rule G10): key, tier and value where both are there; else kind, key and normalised
/// text; for EVENT also the turn.
#[must_use]
pub fn identity(
    kind: Kind,
    key: Option<&FactKey>,
    tier: Tier,
    value: Option<&str>,
    normal: &str,
    source_ref: Option<&SourceRef>,
) -> [u8; 16] {
    let turn = match source_ref {
        Some(SourceRef::Turn { session_id, seq }) if kind == Kind::Event => join(&[session_id, &seq.to_string()]),
        _ => String::new(),
    };
    let parts = match (key, value) {
        (Some(key), Some(value)) => join(&["value", key.as_str(), tier.name(), value, &turn]),
        (Some(key), None) => join(&["slot", key.as_str(), tier.name(), kind.name(), normal, &turn]),
        (None, _) => join(&["text", kind.name(), normal, &turn]),
    };
    let mut id = [0; 16];
    id.copy_from_slice(&blake3::hash(parts.as_bytes()).as_bytes()[..16]);
    id
}

/// Normal form of a value, for comparison: numbers, truth values and JSON as written (case C089), text as `text_normal`.
#[must_use]
pub fn value_normal(value: &Value, text_normal: &str) -> String {
    match value {
        Value::Text(_) => text_normal.to_owned(),
        Value::Number(n) | Value::Json(n) => n.clone(),
        Value::Bool(_) => value.as_text().to_owned(),
    }
}

/// Normal forms of the days that the quote's relative days ("day +1", as `strata-text` writes "tomorrow") mean at the
/// time of its turn, as `2026-05-03` and `--05-03` (rule G12). Nobody says in which zone the user's day lies, so each day
/// that is there somewhere on earth at that instant counts.
#[must_use]
pub fn resolved_dates(quote: &TextFeatures, turn_time: Option<Timestamp>) -> Vec<String> {
    let Some(turn_time) = turn_time else { return Vec::new() };
    let here = |hours: i64| turn_time.plus(hours * HOUR).micros().div_euclid(DAY);
    let mut out = Vec::new();
    for value in quote.values.iter().filter(|value| value.kind == ValueKind::Time) {
        let Some(offset) = value.normal.strip_prefix("day ").and_then(|text| text.parse::<i64>().ok()) else { continue };
        for day in here(-12)..=here(14) {
            let (year, month, day) = civil(day.saturating_add(offset));
            out.push(format!("{year:04}-{month:02}-{day:02}"));
            out.push(format!("--{month:02}-{day:02}"));
        }
    }
    out
}

/// Year, month and day of a day counted from 1970-01-01, in the proleptic Gregorian calendar.
const fn civil(days: i64) -> (i64, i64, i64) {
    // Eras of 400 years that begin on 1 March, so that the leap day is the last of its year.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

/// Why a statement may not enter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Every rule that objected.
    pub findings: Vec<Finding>,
    /// The gravest class of reason: PII before provenance before content.
    pub reason: Reason,
    /// Class of sensitive data, for rule G3; never the data.
    pub class: Option<&'static str>,
}

impl Refusal {
    /// As a fault that names rules, never content.
    #[must_use]
    pub fn fault(self) -> Fault {
        let rules: Vec<&str> = self.findings.iter().map(|f| f.rule.0).collect();
        let mut fault = Fault::new(self.reason, format!("long-term memory does not take this statement: {}", rules.join(", ")));
        for finding in self.findings {
            fault = fault.rule(finding.rule.0, "statement", finding.because);
        }
        match self.class {
            Some(class) => fault.with("class", class),
            None => fault,
        }
    }
}

/// Runs every refusing rule (G1, G2, G3, G5, G6, G7, G8, G12) and resolves what provenance allows.
///
/// # Errors
/// A [`Refusal`] listing every rule that objected.
pub fn judge(settings: &GateSettings, submission: Submission<'_>) -> Result<Gated, Refusal> {
    let s = &submission.statement;
    let mut refused = Vec::new();
    let mut findings = Vec::new();
    let mut standing = Standing::Active;
    let mut lower = |to: Standing, finding: Finding| {
        standing = standing.min(to);
        findings.push(finding);
    };

    // G1
    if s.trigger.is_none() {
        refused.push(Finding::new("G1", "REFUSED", "no trigger is named"));
    }

    // G2
    let provenance = provenance(settings, &submission);
    match provenance {
        Provenance::Refused(because) => refused.push(Finding::new("G2", "REFUSED", because)),
        Provenance::Candidate(because) => lower(Standing::Candidate, Finding::new("G2", "CANDIDATE", because)),
        Provenance::Active => {}
    }
    if s.source_quote.trim().is_empty() {
        refused.push(Finding::new("G2", "REFUSED", "no literal sentence is given that the statement came from"));
    }
    let user_counts = is_user(s.source) && (submission.attestation.is_user_quote() || accepted_unverified(settings, &submission));
    match s.kind {
        Kind::ModelSuggestion | Kind::Assumption => {
            if matches!(submission.door, Door::Confirm) {
                refused.push(Finding::new("G2", "REFUSED", "a suggestion or assumption is never confirmed as it stands"));
            }
            lower(Standing::Candidate, Finding::new("G2", "CANDIDATE", "suggestions and assumptions are kept apart from facts"));
        }
        Kind::Experience if s.source != Source::UserConfirmation => {
            lower(Standing::Candidate, Finding::new("G2", "CANDIDATE", "a lesson waits until it is verified"));
        }
        Kind::Summary => refused.push(Finding::new("G2", "REFUSED", "summaries are made by consolidation only")),
        Kind::Fact | Kind::Preference | Kind::Constraint | Kind::Goal | Kind::Event | Kind::Experience => {}
    }

    // G3
    let texts = || [submission.content, submission.quote].into_iter().chain(submission.value).chain(submission.others);
    let worst = texts().flat_map(|t| &t.sensitive).map(|span| span.kind).filter(|kind| is_never_stored(*kind)).min();
    if let Some(kind) = worst {
        refused.push(Finding::new("G3", "REFUSED", format!("holds {}, which is never stored", class_words(kind))));
    }

    // G5
    if submission.content.noise || submission.content.content_chars < settings.min_content_chars {
        refused.push(Finding::new("G5", "REFUSED", "says nothing that could be remembered"));
    } else if submission.content.question {
        refused.push(Finding::new("G5", "REFUSED", "is a question: it asks, and states nothing"));
    }

    // G6
    let passing = submission.content.passing || (submission.quote.passing && !submission.quote.durable);
    let preference_key = submission.slot.as_ref().and_then(|slot| slot.spec).is_some_and(|spec| spec.preference);
    let passing_wish = passing && preference_key;
    if passing && !preference_key {
        refused.push(Finding::new("G6", "REFUSED", "is a passing state, a mood, or a value tried for now"));
    }

    // G7: the content, not the quote.
    if submission.content.deictic {
        refused.push(Finding::new("G7", "REFUSED", "cannot be understood without its conversation"));
    }

    // G8
    let instruction = texts().any(|t| t.instruction);
    if (instruction || texts().any(|t| t.directive)) && !is_user(s.source) {
        refused.push(Finding::new("G8", "REFUSED", "reads like an instruction and does not come from the user"));
    }
    if texts().any(|t| t.hidden) {
        refused.push(Finding::new("G8", "REFUSED", "hides characters that a reader does not see"));
    }
    if instruction && is_user(s.source) {
        lower(Standing::Active, Finding::new("G8", "QUOTED", "reads like an instruction: shown as quoted data only"));
    }

    // G12
    refused.extend(faithful(&submission));
    refused.extend(faithful_part(&submission));
    if drops_denial(submission.content, submission.quote) {
        if says_the_same_otherwise(submission.content, submission.quote) {
            refused.push(Finding::new("G12", "REFUSED", "says what the quote denies"));
        } else {
            // Not refused: the content may say no in words that no list knows. But it waits.
            lower(Standing::Candidate, Finding::new("G12", "CANDIDATE", "the quote denies and the content does not"));
        }
    }
    if submission.content.unreal && is_user(s.source) {
        lower(Standing::Candidate, Finding::new("G12", "CANDIDATE", "tells what is not so: a wish, a jest, a game"));
    } else if claims_more(&submission) {
        lower(Standing::Candidate, Finding::new("G12", "CANDIDATE", "claims a slot that its words leave open"));
    }
    if submission.quote.reported && is_user(s.source) {
        if matches!(submission.door, Door::Confirm) {
            // The user was shown who says it, and takes it as theirs.
            lower(Standing::Active, Finding::new("G12", "OK", "the user confirmed the words of others"));
        } else if submission.content.reported {
            lower(Standing::Candidate, Finding::new("G12", "CANDIDATE", "the user reports the words of others"));
        } else {
            refused.push(Finding::new(
                "G12",
                "REFUSED",
                "the quote reports words of others and the content does not name the speaker",
            ));
        }
    }

    // G4 is diverting, but its facts are all here: the transaction adds nothing to them.
    let contact = texts().flat_map(|t| &t.sensitive).any(|span| is_contact(span.kind));
    let health = texts().flat_map(|t| &t.sensitive).any(|span| span.kind == SensitiveKind::Health)
        || submission.slot.as_ref().and_then(|slot| slot.spec).is_some_and(|spec| spec.sensitive);
    let confirmed_text = s.source == Source::UserConfirmation;
    let sensitivity = if contact || health { Sensitivity::Personal } else { Sensitivity::None };
    if contact && !submission.consented {
        lower(Standing::NeedsConsent, Finding::new("G4", "NEEDS_CONSENT", "holds a phone number, e-mail or street address"));
    } else if health && !user_counts && !confirmed_text && !submission.consented {
        lower(
            Standing::NeedsConsent,
            Finding::new("G4", "NEEDS_CONSENT", "is about health or diet and not from a verified quote of the user"),
        );
    } else if sensitivity == Sensitivity::Personal {
        lower(Standing::Active, Finding::new("G4", "PERSONAL", "is personal: kept with consent or a verified quote of the user"));
    }

    if !refused.is_empty() {
        return Err(refusal(refused, worst));
    }
    Ok(gated(settings, submission, Verdict { standing, findings, passing_wish, user_counts, sensitivity, instruction }))
}

/// What the refusing rules found out, for a statement that passed.
struct Verdict {
    standing: Standing,
    findings: Vec<Finding>,
    passing_wish: bool,
    user_counts: bool,
    sensitivity: Sensitivity,
    instruction: bool,
}

fn gated(settings: &GateSettings, submission: Submission<'_>, verdict: Verdict) -> Gated {
    let Verdict { standing, mut findings, passing_wish, user_counts, sensitivity, instruction } = verdict;
    let s = submission.statement;
    let spec = submission.slot.as_ref().and_then(|slot| slot.spec);
    let key = submission.slot.as_ref().map(|slot| slot.key.clone());
    let is_set = submission.slot.as_ref().is_some_and(Slot::is_set);
    let found = submission.slot.as_ref().and_then(|slot| slot.value.clone());
    let value = s.value.clone().or(found);
    let value_normal = match (&value, submission.value) {
        (Some(value), Some(features)) => Some(self::value_normal(value, &features.normal)),
        (Some(value), None) => Some(self::value_normal(value, value.as_text())),
        (None, _) => None,
    };
    let tier = if s.kind == Kind::Event {
        Tier::Event
    } else if passing_wish {
        findings.push(Finding::new("G6", "TEMPORARY", "a passing wish on a preference"));
        Tier::Temporary
    } else {
        s.tier.or_else(|| spec.map(|spec| spec.tier).filter(|tier| *tier != Tier::Event)).unwrap_or(Tier::Stable)
    };
    let explicit = s.source == Source::UserConfirmation
        || (submission.attestation.explicit_order
            && submission.door.takes_orders()
            && s.trigger == Some(Trigger::UserRequest)
            && user_counts);
    let confirmed = match s.source {
        Source::UserConfirmation => true,
        Source::UserCorrection => user_counts,
        Source::UserStatement => user_counts && submission.quote.durable,
        Source::AuthoritativeSystem
        | Source::Observation
        | Source::Review
        | Source::ModelInference
        | Source::ToolResult
        | Source::Document => false,
    };
    let mut cues = Cues::default();
    cues.set(Cues::EXPLICIT, explicit);
    cues.set(Cues::DURABLE, submission.quote.durable && is_user(s.source));
    cues.set(Cues::STRONG, submission.quote.strong || submission.content.strong);
    cues.set(Cues::USER, user_counts);
    cues.set(Cues::MAY_BE_ACTIVE, standing > Standing::Candidate);
    cues.set(Cues::CONFIRMED, confirmed);
    let confidence = s.confidence.unwrap_or_else(|| default_confidence(s.source));
    let confidence = if s.source == Source::ModelInference { confidence.min(settings.inference_confidence) } else { confidence };
    // Only a turn has a time of its own; a confirmation counts from its arrival.
    let in_turn = user_counts && matches!(s.source_ref, Some(SourceRef::Turn { .. }));
    let statement_time =
        submission.attestation.turn_time.filter(|_| in_turn).map(|time| time.min(submission.now.plus(5 * MINUTE)));
    let has_protected_value = !submission.content.values.is_empty()
        || submission.value.is_some_and(|v| !v.values.is_empty())
        || matches!(value, Some(Value::Number(_)));
    Gated {
        is_set,
        key,
        value,
        normal: submission.content.normal.clone(),
        value_normal,
        tier,
        standing: if tier == Tier::Temporary { standing.min(Standing::Temporary) } else { standing },
        sensitivity,
        instruction,
        quote_verified: submission.attestation.is_user_quote() && is_user(s.source),
        confirmed,
        confidence: confidence.clamp(0.0, 1.0),
        protected: s.protected,
        cues,
        registered: spec.is_some(),
        stable_key: spec.is_some_and(|spec| spec.stable),
        user_authority: spec.is_some_and(|spec| spec.authority == Some(super::registry::Authority::User)),
        has_protected_value,
        statement_time,
        door: submission.door,
        statement: s,
        findings,
    }
}

/// What rule G2's table says.
enum Provenance {
    Refused(&'static str),
    Candidate(&'static str),
    Active,
}

fn provenance(settings: &GateSettings, submission: &Submission<'_>) -> Provenance {
    use Provenance::{Active, Candidate, Refused};
    let s = &submission.statement;
    let writer = submission.roles.contains(&Role::MemoryWriter);
    match s.source {
        Source::ToolResult | Source::Document => Refused("tool results and documents live in their turn and as artifacts"),
        Source::AuthoritativeSystem => {
            if !submission.roles.contains(&Role::RecordSystem) {
                Refused("the source AUTHORITATIVE_SYSTEM needs the role RECORD_SYSTEM")
            } else if !matches!(s.source_ref, Some(SourceRef::SystemRecord { .. })) {
                Refused("a record system names its record")
            } else if s.kind == Kind::Fact {
                Active
            } else {
                Candidate("record systems state facts; other kinds wait for the user")
            }
        }
        _ if !writer && submission.door != Door::Apply => Refused("a record system states what it holds itself, nothing else"),
        Source::UserCorrection | Source::UserStatement => match submission.attestation.quote {
            QuoteState::Verified if submission.attestation.user_turn => Active,
            QuoteState::Verified | QuoteState::NotFound => Refused("the quote was not found in the referenced turn of the user"),
            QuoteState::Unreferenced | QuoteState::Unverifiable => match settings.unverified_quote {
                UnverifiedQuote::Candidate => Candidate("the quote cannot be checked now"),
                UnverifiedQuote::Accept => Active,
            },
        },
        Source::UserConfirmation => match &s.source_ref {
            Some(SourceRef::Confirmation { .. }) => Active,
            _ => Refused("a confirmation names where the user confirmed"),
        },
        Source::Observation if s.kind == Kind::Event => Active,
        Source::Observation => Candidate("what an executor saw is an event; other kinds wait for the user"),
        Source::Review => Candidate("a lesson waits until it is verified"),
        Source::ModelInference => Candidate("a model inferred it"),
    }
}

fn accepted_unverified(settings: &GateSettings, submission: &Submission<'_>) -> bool {
    settings.unverified_quote == UnverifiedQuote::Accept
        && matches!(submission.attestation.quote, QuoteState::Unreferenced | QuoteState::Unverifiable)
}

/// Rule G12: every protected value stands in the quote, and neither hedge nor negation is stronger than there.
fn faithful(submission: &Submission<'_>) -> Vec<Finding> {
    let quote = submission.quote;
    let mut refused = Vec::new();
    let stands = |normal: &str| {
        quote.values.iter().any(|v| v.normal == normal)
            || quote.normal.contains(normal)
            || submission.resolved_dates.iter().any(|d| d == normal)
    };
    let texts = [Some(submission.content), submission.value];
    let missing = texts.into_iter().flatten().flat_map(|t| &t.values).find(|value| !stands(&value.normal));
    if let Some(value) = missing {
        refused.push(Finding::new("G12", "REFUSED", format!("holds {} that is not in the quote", value_words(value.kind))));
    } else if let Some(Value::Number(number)) = &submission.statement.value
        && submission.value.is_some_and(|v| v.values.is_empty())
        && !submission.statement.source_quote.contains(number.as_str())
        && !stands(number)
    {
        refused.push(Finding::new("G12", "REFUSED", "holds a number that is not in the quote"));
    }
    if submission.content.certainty > quote.certainty
        && (quote.certainty == Certainty::Hedged || submission.content.certainty == Certainty::Strong)
    {
        refused.push(Finding::new("G12", "REFUSED", "is more certain than the quote"));
    }
    // "I avoid nuts" says that nuts are not eaten; "I am allergic" does not say that one is not allergic.
    let denies_by_aversion = quote.aversion && !submission.content.aversion;
    if submission.content.negation > quote.negation && submission.content.negation == Negation::Full && !denies_by_aversion {
        refused.push(Finding::new("G12", "REFUSED", "denies more than the quote"));
    }
    // What somebody else concluded may be worded freely; the user's statement is about what the user spoke of.
    if matches!(submission.statement.source, Source::UserStatement | Source::UserCorrection) {
        if drops_frame(submission.content, quote) {
            refused.push(Finding::new(
                "G12",
                "REFUSED",
                "the quote says it under a condition, of a time that is over or in play, and the content as it were so",
            ));
        }
        if quote.of_kin && submission.content.of_user {
            refused.push(Finding::new("G12", "REFUSED", "the quote speaks of somebody else and the content of the user"));
        }
        if reverses(&submission.content.relations, &quote.relations) {
            refused.push(Finding::new("G12", "REFUSED", "exchanges who does it and whom it concerns"));
        }
        if turns_round(&submission.content.leanings, &quote.leanings).is_some() {
            refused.push(Finding::new(
                "G12",
                "REFUSED",
                "turns a bound, a time or a duty of the quote round, or makes all of some",
            ));
        }
        if changes_topic(submission.content, quote) {
            refused.push(Finding::new("G12", "REFUSED", "is about something the quote does not speak of"));
        }
        if let Some(place) = names_another_value(submission) {
            refused.push(Finding::new("G12", "REFUSED", format!("the {place} says another value of this key")));
        }
    }
    refused
}

/// Where a slot's value is told otherwise, in content or quote (rule G12): "Denver" of "I live in Boston". A caller may spell a
/// value its own way, as a code, a date, a zone, or by what a wording stands for ("metric"): then only what shares no word with
/// the user's is another one. Values in another script are not compared.
fn names_another_value(submission: &Submission<'_>) -> Option<&'static str> {
    let slot = submission.slot.as_ref()?;
    let value = submission.value?.normal.as_str();
    let given = submission.statement.value.is_some();
    if given && !is_in_words(value) {
        return None;
    }
    let within = |a: &str, b: &str| stands_in(a, b) || stands_in(b, a);
    let agrees = |r: &Reading| within(&r.normal, value) || (given && value.split(' ').any(|word| stands_in(&r.normal, word)));
    // Of a list the wordings may have read a part.
    let listed = |text: &TextFeatures| slot.is_set() && stands_in(&text.normal, value);
    let otherwise = |readings: &[Reading], text: &TextFeatures| {
        let comparable = |r: &&Reading| (r.written || !given) && r.normal.is_ascii() == value.is_ascii();
        let mut compared = readings.iter().filter(comparable).peekable();
        compared.peek().is_some() && !compared.any(agrees) && !listed(text)
    };
    if otherwise(&slot.readings.content, submission.content) {
        Some("content")
    } else if otherwise(&slot.readings.quote, submission.quote) {
        Some("quote")
    } else {
        None
    }
}

/// Whether a value in normal form is made of words: no code of a language or a currency, nothing with digits or a path.
fn is_in_words(value: &str) -> bool {
    let words = |c: char| c.is_alphabetic() || matches!(c, ' ' | '-' | '\'' | '.' | ',' | '·' | '&');
    let code = |part: &str| part.is_ascii() && part.len() <= 3;
    value.chars().all(words) && !value.split('-').next().is_some_and(code)
}

/// Rules G5 and G12 for parts, whose content is made of names and not of a sentence: the user's quote states it, and every
/// name, trigger and step is one that the quote speaks of.
fn faithful_part(submission: &Submission<'_>) -> Vec<Finding> {
    let quote = submission.quote;
    if !matches!(submission.statement.source, Source::UserStatement | Source::UserCorrection) {
        return Vec::new();
    }
    let mut refused = Vec::new();
    let stands = |line: &TextFeatures| quote.normal.contains(line.normal.as_str());
    match submission.door {
        Door::Entity => {
            if !submission.lines.iter().all(stands) {
                refused.push(Finding::new("G12", "REFUSED", "holds a name that is not in the quote"));
            }
        }
        Door::Skill => {
            if submission.lines.iter().any(|line| !stands(line) && changes_topic(line, quote)) {
                refused.push(Finding::new("G12", "REFUSED", "has a trigger or a step of which the quote does not speak"));
            }
        }
        Door::Relation => {
            if quote.negation != Negation::None && submission.content.negation == Negation::None {
                refused.push(Finding::new("G12", "REFUSED", "the quote denies it"));
            }
            if quote.clauses.iter().all(|clause| clause.qualified) && !quote.clauses.is_empty() {
                refused.push(Finding::new("G12", "REFUSED", "the quote says it under a condition, or of a time that is over"));
            }
        }
        Door::Remember
        | Door::Propose
        | Door::Apply
        | Door::Confirm
        | Door::Update
        | Door::Import
        | Door::Sync
        | Door::Episode
        | Door::Maintenance => {
            return refused;
        }
    }
    if quote.question {
        refused.push(Finding::new("G5", "REFUSED", "the quote is a question: it asks, and states nothing"));
    }
    refused
}

/// Whether the clause of the quote that the content is about is qualified, and nothing in the content is (rule G12).
fn drops_frame(content: &TextFeatures, quote: &TextFeatures) -> bool {
    if content.clauses.iter().any(|clause| clause.qualified) || content.unreal || content.certainty == Certainty::Hedged {
        return false;
    }
    // Of equals the one that qualifies least.
    closest_clause(content, quote, |clause| u8::from(clause.qualified)).is_some_and(|clause| clause.qualified)
}

/// Whether content and quote, in one language, have topics and share none (rule G12).
fn changes_topic(content: &TextFeatures, quote: &TextFeatures) -> bool {
    if content.language != quote.language || content.topics.is_empty() || quote.topics.is_empty() {
        return false;
    }
    let stands = |topic: &String| quote.topics.binary_search(topic).is_ok() || quote.normal.contains(topic.as_str());
    let named = |value: &crate::text::ProtectedValue| {
        quote.values.iter().any(|other| other.normal == value.normal) || quote.normal.contains(&value.normal)
    };
    !content.topics.iter().any(stands) && !content.values.iter().any(named)
}

/// The clause of the quote that shares most letter pairs with the content; of equals the one with the least `weight`.
fn closest_clause<'a, W: Ord>(
    content: &TextFeatures,
    quote: &'a TextFeatures,
    weight: impl Fn(&Clause) -> W,
) -> Option<&'a Clause> {
    let of_content = letter_pairs(&content.normal);
    quote
        .clauses
        .iter()
        .max_by_key(|clause| (letter_pairs(&clause.normal).intersection(&of_content).count(), std::cmp::Reverse(weight(clause))))
}

/// Whether a slot is claimed that the content only hedges at, or says of a time that is over, under a condition, in play
/// (rule G12): then what it says may be kept, but the slot must not change.
fn claims_more(submission: &Submission<'_>) -> bool {
    let content = submission.content;
    if submission.slot.is_none() {
        return false;
    }
    if content.certainty == Certainty::Hedged || content.unreal {
        return true;
    }
    let value = submission.value.map_or("", |value| value.normal.as_str());
    let about_value = |clause: &&Clause| !value.is_empty() && clause.normal.contains(value);
    let mut naming = content.clauses.iter().filter(about_value).peekable();
    // A plan holds from its own time on, which has to be given.
    let dated = submission.statement.valid_from.is_some();
    let open = |clause: &Clause| clause.qualified || (clause.ahead && !dated);
    if naming.peek().is_some() { naming.all(open) } else { !content.clauses.is_empty() && content.clauses.iter().all(open) }
}

/// Whether the clause of the quote that the content is about denies, and the content does not (rule G12).
fn drops_denial(content: &TextFeatures, quote: &TextFeatures) -> bool {
    // An aversion that the quote has too is what is denied there: "I am not allergic".
    let denies_by_aversion = content.aversion && !quote.aversion;
    if content.negation != Negation::None || denies_by_aversion || quote.negation == Negation::None {
        return false;
    }
    // Of equals the one that denies least. "Hardly ever" says no as well.
    closest_clause(content, quote, |clause| clause.negation).is_some_and(|clause| clause.negation != Negation::None)
}

/// Whether content and quote, in one language, are about the same things, the one clause of the quote about nothing else: then
/// the content has no words of its own in which it could say no, and no other half of the quote to go by.
fn says_the_same_otherwise(content: &TextFeatures, quote: &TextFeatures) -> bool {
    content.language == quote.language && quote.clauses.len() == 1 && !content.topics.is_empty() && content.topics == quote.topics
}

const fn value_words(kind: ValueKind) -> &'static str {
    match kind {
        ValueKind::Name => "a name",
        ValueKind::Id => "an id",
        ValueKind::Amount => "an amount",
        ValueKind::Number => "a number",
        ValueKind::Time => "a time",
        ValueKind::Url => "an address",
    }
}

const fn is_never_stored(kind: SensitiveKind) -> bool {
    matches!(kind, SensitiveKind::Secret | SensitiveKind::Card | SensitiveKind::NationalId)
}

const fn is_contact(kind: SensitiveKind) -> bool {
    matches!(kind, SensitiveKind::Phone | SensitiveKind::Email | SensitiveKind::Address)
}

const fn class_words(kind: SensitiveKind) -> &'static str {
    match kind {
        SensitiveKind::Secret => "a secret",
        SensitiveKind::Card => "a card number",
        SensitiveKind::NationalId => "a national id",
        SensitiveKind::Phone => "a phone number",
        SensitiveKind::Email => "an e-mail address",
        SensitiveKind::Address => "a street address",
        SensitiveKind::Health => "health data",
    }
}

/// Stable name of a class of sensitive data, for `ErrorInfo.metadata`.
#[must_use]
pub const fn class_name(kind: SensitiveKind) -> &'static str {
    match kind {
        SensitiveKind::Secret => "SECRET",
        SensitiveKind::Card => "CARD",
        SensitiveKind::NationalId => "NATIONAL_ID",
        SensitiveKind::Phone => "PHONE",
        SensitiveKind::Email => "EMAIL",
        SensitiveKind::Address => "ADDRESS",
        SensitiveKind::Health => "HEALTH",
    }
}

fn refusal(findings: Vec<Finding>, worst: Option<SensitiveKind>) -> Refusal {
    let content_only = findings.iter().all(|f| matches!(f.rule.0, "G5" | "G6" | "G7"));
    let reason = match worst {
        Some(_) => Reason::GatePii,
        None if content_only => Reason::GateContent,
        None => Reason::GateProvenance,
    };
    Refusal { findings, reason, class: worst.map(class_name) }
}

/// Whether a source is the user.
#[must_use]
pub const fn is_user(source: Source) -> bool {
    matches!(source, Source::UserCorrection | Source::UserStatement | Source::UserConfirmation)
}

/// Confidence of a statement that names none.
#[must_use]
pub const fn default_confidence(source: Source) -> f64 {
    match source {
        Source::UserCorrection | Source::UserConfirmation => 0.95,
        Source::UserStatement | Source::AuthoritativeSystem => 0.9,
        Source::Observation => 0.7,
        Source::Review => 0.6,
        Source::ModelInference | Source::ToolResult | Source::Document => 0.5,
    }
}

/// What is known about all evidence of one record, this statement's included: read in the transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvidenceFacts {
    /// Cues of all evidence together.
    pub cues: Cues,
    /// Supporting statements in all.
    pub statements: u32,
    /// Distinct sessions of verified user statements.
    pub user_sessions: u32,
    /// Distinct sessions of any statement.
    pub sessions: u32,
}

/// What the diverting rules decided.
#[derive(Clone, Debug, PartialEq)]
pub struct Diversion {
    /// What it becomes before the conflict rules.
    pub standing: Standing,
    /// Whether it is due for asking (rule G10).
    pub due: bool,
    /// Findings of this step.
    pub findings: Vec<Finding>,
}

/// Runs the diverting rules G9 and G11 over all evidence; what provenance and rule G4 decided is in the statement's own
/// standing. The weakest outcome wins.
#[must_use]
pub fn divert(settings: &GateSettings, gated: &Gated, facts: &EvidenceFacts) -> Diversion {
    let mut findings = Vec::new();
    // With stronger evidence from elsewhere a weak statement no longer holds its record back (rule G10); consent is asked
    // for each statement.
    let mut standing = match gated.standing {
        Standing::Candidate if facts.cues.has(Cues::MAY_BE_ACTIVE) && can_ever_be_active(gated.statement.kind) => {
            if gated.tier == Tier::Temporary { Standing::Temporary } else { Standing::Active }
        }
        own @ (Standing::NeedsConsent | Standing::Candidate | Standing::Temporary | Standing::Active) => own,
    };
    let of_user = facts.cues.has(Cues::USER) || is_user(gated.statement.source);
    let judged_by_value = gated.tier == Tier::Stable && standing > Standing::Candidate && of_user;
    if judged_by_value {
        let score = value_score(settings, gated, facts);
        if score + 1e-9 < settings.value_threshold {
            standing = Standing::Candidate;
            findings.push(Finding::new(
                "G9",
                "CANDIDATE",
                format!("value score {:.1} is under {:.1}", score.abs(), settings.value_threshold),
            ));
        } else {
            findings.push(Finding::new("G9", "OK", format!("value score {score:.1}")));
        }
        match stability(settings, gated, facts) {
            Some(why) => findings.push(Finding::new("G11", "OK", why)),
            None => {
                standing = Standing::Candidate;
                findings.push(Finding::new("G11", "CANDIDATE", "nothing says that it will still hold"));
            }
        }
    }
    let due = standing == Standing::Candidate && facts.sessions >= settings.due_sessions;
    if due {
        findings.push(Finding::new("G10", "DUE", format!("supported from {} sessions: put it to the user", facts.sessions)));
    }
    Diversion { standing, due, findings }
}

const fn can_ever_be_active(kind: Kind) -> bool {
    !matches!(kind, Kind::Assumption | Kind::ModelSuggestion)
}

/// Rule G9, 0..1 and beyond.
fn value_score(settings: &GateSettings, gated: &Gated, facts: &EvidenceFacts) -> f64 {
    let parts = [
        (facts.cues.has(Cues::EXPLICIT), settings.score_explicit),
        (gated.registered, settings.score_registered),
        (gated.has_protected_value, settings.score_protected_value),
        (facts.cues.has(Cues::STRONG), settings.score_strong),
        (facts.statements > 1, settings.score_repetition),
    ];
    parts.into_iter().filter(|(holds, _)| *holds).map(|(_, score)| score).sum()
}

/// Rule G11: why it will still hold, if anything says so.
fn stability(settings: &GateSettings, gated: &Gated, facts: &EvidenceFacts) -> Option<&'static str> {
    if facts.cues.has(Cues::CONFIRMED) && gated.statement.source == Source::UserConfirmation {
        Some("the user confirmed it")
    } else if facts.cues.has(Cues::EXPLICIT) {
        Some("an explicit order of the user")
    } else if facts.cues.has(Cues::DURABLE) {
        Some("the quote says that it lasts")
    } else if gated.stable_key {
        Some("the key is stable by nature")
    } else if facts.user_sessions >= settings.stable_sessions {
        Some("stated in several sessions")
    } else {
        None
    }
}

/// Mints and checks consent challenges (rule G4): a MAC over owner and text, so that consent to one text of one owner is
/// of no use for another.
#[derive(Clone)]
pub struct Challenges {
    key: [u8; 32],
}

impl std::fmt::Debug for Challenges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Challenges(..)")
    }
}

impl Challenges {
    /// From any secret of the deployment.
    #[must_use]
    pub fn new(secret: &[u8]) -> Self {
        Self { key: blake3::derive_key("strata consent challenge v1", secret) }
    }

    fn mac(&self, owner: &Owner, s: &Statement) -> blake3::Hash {
        let agent = owner.agent.as_ref().map_or("", |a| a.as_str());
        let key = s.key.as_ref().map_or("", FactKey::as_str);
        let value = s.value.as_ref().map_or("", Value::as_text);
        let mut parts =
            vec![owner.tenant.as_str(), owner.user.as_str(), agent, s.kind.name(), key, value, &s.content, &s.source_quote];
        parts.extend(s.topic.as_deref());
        parts.extend(s.tags.iter().map(String::as_str));
        parts.extend(s.metadata.iter().flat_map(|(k, v)| [k.as_str(), v.as_str()]));
        blake3::keyed_hash(&self.key, join(&parts).as_bytes())
    }

    /// The challenge for a statement.
    #[must_use]
    pub fn mint(&self, owner: &Owner, statement: &Statement) -> String {
        self.mac(owner, statement).to_hex().to_string()
    }

    /// Whether the statement carries the challenge of its own text; compares in constant time.
    #[must_use]
    pub fn verify(&self, owner: &Owner, statement: &Statement) -> bool {
        let given = statement.consent.as_deref().and_then(|text| blake3::Hash::from_hex(text).ok());
        given.is_some_and(|given| given == self.mac(owner, statement))
    }
}

/// Keyed digests of erased statements (rule E7): content-free, of use with the deployment's key only.
#[derive(Clone)]
pub struct Tombstones {
    key: [u8; 32],
}

impl std::fmt::Debug for Tombstones {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tombstones(..)")
    }
}

impl Tombstones {
    /// From any secret of the deployment; each tenant gets its own key.
    #[must_use]
    pub fn new(secret: &[u8]) -> Self {
        Self { key: blake3::derive_key("strata erasure tombstone v1", secret) }
    }

    /// Names the secret without telling it: 32 hexadecimal digits. The secret has 128 bits, so nobody finds it by trying.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let name = blake3::Hash::from_bytes(blake3::derive_key("strata secret fingerprint v1", &self.key)).to_hex();
        name.chars().take(32).collect()
    }

    /// The digests of a statement of an owner: of its words, and of what it says by [`identity`], so that neither comes back
    /// in other words from the same turn (case C029).
    #[must_use]
    pub fn digests(&self, owner: &Owner, kind: Kind, key: Option<&FactKey>, normal: &str, identity: &[u8; 16]) -> [[u8; 32]; 2] {
        let identity: String = identity.iter().map(|byte| format!("{byte:02x}")).collect();
        let words = [kind.name(), key.map_or("", FactKey::as_str), normal];
        [self.digest(owner, &words), self.digest(owner, &["identity", &identity])]
    }

    /// The digest of something of an owner that is known by `parts`.
    #[must_use]
    pub fn digest(&self, owner: &Owner, parts: &[&str]) -> [u8; 32] {
        let tenant = blake3::keyed_hash(&self.key, owner.tenant.as_str().as_bytes());
        let agent = owner.agent.as_ref().map_or("", |a| a.as_str());
        let text = join(&[&[owner.user.as_str(), agent], parts].concat());
        *blake3::keyed_hash(tenant.as_bytes(), text.as_bytes()).as_bytes()
    }
}

/// Rule E7: a statement whose tombstone is not older than the statement itself was forgotten.
///
/// # Errors
/// `FORGOTTEN`.
pub fn check_forgotten(erased_at: Option<Timestamp>, stated_at: Timestamp) -> Result<(), Fault> {
    match erased_at {
        Some(erased_at) if stated_at <= erased_at => Err(Fault::new(
            Reason::Forgotten,
            "this was forgotten; only a later statement of the user brings it back",
        )
        .rule("E7", "statement", "comes from before the erasure")),
        Some(_) | None => Ok(()),
    }
}

/// The statement a stored candidate makes when the user confirms it: it goes through [`judge`] like any other.
#[must_use]
pub fn confirmation(record: &Record, reference: &str) -> Statement {
    Statement {
        kind: record.kind,
        key: record.key.clone(),
        value: record.value.clone(),
        content: record.content.clone(),
        source: Source::UserConfirmation,
        source_ref: Some(SourceRef::Confirmation { reference: reference.to_owned() }),
        source_quote: record.source_quote.clone(),
        trigger: Some(Trigger::UserRequest),
        importance: Some(record.importance),
        confidence: None,
        tier: (record.tier != Tier::Event).then_some(record.tier),
        protected: record.protected,
        valid_from: record.valid_from,
        valid_to: record.valid_to,
        expire_time: None,
        topic: record.topic.clone(),
        tags: record.tags.clone(),
        metadata: record.metadata.clone(),
        vector: Vec::new(),
        consent: None,
    }
}
