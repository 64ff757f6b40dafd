//! The promotion channel (rules P5 to P9): the one way a fact crosses levels outwards. A promotion is a saga with a
//! journal: seal the source, apply the sealed value at the target, settle the source. The machine decides and the
//! router does: [`step`] takes what happened and answers the new journal entry and the [`Action`]s that follow from it.
//!
//! What follows depends on the journal entry and the time alone ([`due`]), so a router that finds an entry after a crash
//! goes on exactly as the one that wrote it would have.

use crate::id::Level;
use crate::limits::{PROMOTION_SECONDS, SKEW_SECONDS};
use crate::policy::session::Role;
use crate::record::{Kind, Source, vocabulary};
use crate::rule::Finding;
use crate::time::SECOND;
use crate::{Fault, Reason, Timestamp};
use serde::{Deserialize, Serialize};

vocabulary! {
    /// State of a promotion (model.md).
    State {
        /// Journalled; the source is sealed or about to be.
        Prepared = "PREPARED",
        /// Applied at the target; the source is to be settled.
        Applied = "APPLIED",
        /// Done.
        Committed = "COMMITTED",
        /// A rule refused it.
        Refused = "REFUSED",
        /// A candidate waits for evidence or confirmation.
        Queued = "QUEUED",
        /// Waits for the user's consent.
        NeedsConsent = "NEEDS_CONSENT",
        /// Undone.
        Aborted = "ABORTED",
        /// The target did not answer in time; settled when it does.
        InDoubt = "IN_DOUBT",
        /// The target is switched off or down; offered again.
        Deferred = "DEFERRED",
        /// The candidate it was queued as has gone.
        Expired = "EXPIRED",
    }
}

/// The allowed moves; every other one is a defect.
pub const MOVES: &[(State, State)] = &[
    (State::Prepared, State::Applied),
    (State::Prepared, State::Refused),
    (State::Prepared, State::Queued),
    (State::Prepared, State::NeedsConsent),
    (State::Prepared, State::Aborted),
    (State::Prepared, State::InDoubt),
    (State::Prepared, State::Deferred),
    (State::Applied, State::Committed),
    (State::InDoubt, State::Committed),
    (State::InDoubt, State::Aborted),
    (State::Deferred, State::Prepared),
    (State::Queued, State::Prepared),
    (State::Queued, State::Expired),
    (State::NeedsConsent, State::Prepared),
];

/// Where the value of a fact stood when it was sealed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Seal {
    /// Value at the seal: APPLY uses only this one (rule P5).
    pub value: String,
    /// Where the executor checked it; "turn:" and the turn's number for a fact of a session.
    pub source: String,
    /// Epoch of the seal.
    pub epoch: u64,
    /// Session of the fact, or that its task belongs to; empty when none.
    pub session_id: String,
    /// When the value was checked.
    pub verified_at: Option<Timestamp>,
    /// The turn that a session's fact comes from; none of a task's. It is all there is of the turn once the session has ended.
    #[serde(default)]
    pub turn: Option<SealedTurn>,
}

/// What a turn says for a fact of its session (rule G2), found out while the session was there.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SealedTurn {
    /// Turn number.
    pub seq: u32,
    /// Whose word it is ([`word_of`]).
    pub source: Source,
    /// The sentence that holds the value; the value itself where no sentence does.
    pub quote: String,
    /// The store's time of the turn.
    pub time: Option<Timestamp>,
}

/// Whose word a fact of a session is (rule G2): what the user said in a sentence of the turn, what a tool returned, or what
/// somebody concluded. `by` is none when the turn is not there any more.
#[must_use]
pub const fn word_of(by: Option<Role>, quoted: bool) -> Source {
    match (by, quoted) {
        (Some(Role::User), true) => Source::UserStatement,
        (Some(Role::Tool), _) => Source::Observation,
        (Some(Role::User | Role::Assistant | Role::System) | None, _) => Source::ModelInference,
    }
}

/// What is promoted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Origin {
    /// A fact of a board.
    TaskFact {
        /// Task.
        task_id: String,
        /// Key on the board.
        key: String,
    },
    /// A sentence of a user turn: nothing owns it, so nothing is sealed.
    TurnQuote {
        /// Session.
        session_id: String,
        /// Turn number.
        seq: u32,
        /// The literal sentence.
        quote: String,
    },
    /// A fact of a session.
    SessionFact {
        /// Session.
        session_id: String,
        /// Key in the session.
        key: String,
    },
}

impl Origin {
    /// The level it stands at.
    #[must_use]
    pub const fn level(&self) -> Level {
        match self {
            Self::TaskFact { .. } => Level::Task,
            Self::SessionFact { .. } | Self::TurnQuote { .. } => Level::Session,
        }
    }

    /// Key of the fact; none of a quote.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::TaskFact { key, .. } | Self::SessionFact { key, .. } => Some(key),
            Self::TurnQuote { .. } => None,
        }
    }

    /// Whether the source has to be sealed and settled.
    #[must_use]
    pub const fn is_sealed(&self) -> bool {
        match self {
            Self::TaskFact { .. } | Self::SessionFact { .. } => true,
            Self::TurnQuote { .. } => false,
        }
    }
}

/// How far the source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Hold {
    /// Nothing is sealed: not yet, or there is nothing to seal.
    None,
    /// A seal was asked for or stands.
    Sealed,
    /// Settled: the source knows how it ended, or has ended itself.
    Settled,
}

/// One entry of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Promotion {
    /// Chosen by the caller; one effect per id (rule P7).
    pub promotion_id: String,
    /// What is promoted.
    pub origin: Origin,
    /// Level it ends at: USER or AGENT.
    pub target: Level,
    /// Digest of the request: the same id with another request is an error.
    pub digest: String,
    /// State.
    pub state: State,
    /// How far the source is.
    pub hold: Hold,
    /// Epoch the seal was asked for with; a settle is compared with it.
    pub seal_epoch: Option<u64>,
    /// The seal, once the source answered.
    pub seal: Option<Seal>,
    /// What the source held when it was last looked at: it stands for the seal where the source has ended (rule P5).
    #[serde(default)]
    pub journalled: Option<Seal>,
    /// How often it began anew after the target had an answer for it. Each beginning has a name of its own there
    /// ([`Promotion::apply_id`]), so that the answer to an earlier one is neither repeated nor undone.
    #[serde(default)]
    pub round: u32,
    /// What was decided so far, as rule, outcome and sentence.
    pub findings: Vec<JournalFinding>,
    /// Record at the target.
    pub memory_id: Option<String>,
    /// The record it superseded.
    pub superseded: Option<String>,
    /// Key of the record at the target, and the epoch of its owner there.
    pub owned: Option<(String, u64)>,
    /// Signed challenge, with NEEDS_CONSENT.
    pub consent_challenge: Option<String>,
    /// Start.
    pub create_time: Timestamp,
    /// Last change.
    pub update_time: Timestamp,
    /// Refused by the target after this.
    pub deadline: Timestamp,
    /// Counts the changes: the journal swaps an entry in against it.
    pub revision: u64,
}

/// A [`Finding`] as the journal keeps it: also those of the target, whose rules this process need not know.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JournalFinding {
    /// Rule.
    pub rule: String,
    /// Outcome.
    pub outcome: String,
    /// One sentence, without content.
    pub because: String,
}

impl From<Finding> for JournalFinding {
    fn from(finding: Finding) -> Self {
        Self { rule: finding.rule.0.to_owned(), outcome: finding.outcome.to_owned(), because: finding.because }
    }
}

impl Promotion {
    /// A new entry, to be journalled before anything else happens.
    #[must_use]
    pub fn new(promotion_id: String, origin: Origin, target: Level, digest: String, now: Timestamp) -> Self {
        let hold = if origin.is_sealed() { Hold::None } else { Hold::Settled };
        Self {
            promotion_id,
            origin,
            target,
            digest,
            state: State::Prepared,
            hold,
            seal_epoch: None,
            seal: None,
            journalled: None,
            round: 0,
            findings: Vec::new(),
            memory_id: None,
            superseded: None,
            owned: None,
            consent_challenge: None,
            create_time: now,
            update_time: now,
            deadline: now.plus(PROMOTION_SECONDS * SECOND),
            revision: 0,
        }
    }

    /// The name under which the target knows this beginning of it: one effect per name there (rule P7).
    #[must_use]
    pub fn apply_id(&self) -> String {
        match self.round {
            0 => self.promotion_id.clone(),
            round => format!("{}.{round}", self.promotion_id),
        }
    }

    /// Whether a router has still something to do: the journal keeps it among the open ones.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        match self.state {
            State::Prepared | State::Applied | State::InDoubt | State::Deferred => true,
            State::Committed | State::Refused | State::Queued | State::NeedsConsent | State::Aborted | State::Expired => {
                matches!(self.hold, Hold::Sealed)
            }
        }
    }

    /// When the source may be unsealed although the target was never heard of (rule P5): a late apply is refused there by
    /// then, whatever the clocks say.
    #[must_use]
    pub const fn doubt_at(&self) -> Timestamp {
        self.deadline.plus(2 * SKEW_SECONDS * SECOND)
    }
}

/// What the target made of the value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AtTarget {
    /// Findings of gate and conflict.
    pub findings: Vec<JournalFinding>,
    /// Record.
    pub memory_id: Option<String>,
    /// The record it superseded.
    pub superseded: Option<String>,
    /// Key and epoch of the owner row.
    pub owned: Option<(String, u64)>,
    /// Challenge.
    pub consent_challenge: Option<String>,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The target cannot be reached or is switched off, and certainly nothing was written there (rule P6).
    TargetOff {
        /// Why.
        because: JournalFinding,
    },
    /// As [`Event::TargetOff`] after the seal: ABORTED stands at the target, so nothing of this beginning is applied there
    /// any more, and the source may be unsealed.
    FencedOff {
        /// Why.
        because: JournalFinding,
    },
    /// A seal is about to be asked for: journalled first, so that a crash undoes it.
    Sealing {
        /// Epoch it is asked for with.
        epoch: u64,
    },
    /// The source sealed the fact.
    Sealed(Seal),
    /// The source has no such fact, or refuses: nothing is sealed.
    SourceRefused {
        /// Why.
        because: JournalFinding,
    },
    /// The source has ended, or became an overlay of the record that a queued promotion waited for: what was journalled of it
    /// stands for the seal (rules P5, P6).
    SourceEnded {
        /// Why it is refused when nothing was journalled.
        because: JournalFinding,
    },
    /// Active at the target, or in its history.
    Applied(AtTarget),
    /// A candidate at the target.
    Queued(AtTarget),
    /// The target needs consent; nothing is stored.
    NeedsConsent(AtTarget),
    /// The gate refused.
    Refused {
        /// By which rules.
        findings: Vec<JournalFinding>,
    },
    /// The target wrote ABORTED, nothing had been applied; or it refused a late apply.
    AbortWritten,
    /// The target did not answer, and the time to wait for it is over.
    TargetSilent,
    /// The source knows how it ended, or has ended itself.
    Settled,
    /// Time to offer a deferred one again.
    Offered,
    /// Its candidate was confirmed, or the user consented: it begins anew (rule P6).
    Readmitted,
    /// The candidate has gone.
    CandidateGone,
}

/// What is to be done. Each is idempotent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask whether the target takes promotions now.
    Probe,
    /// Seal at the source.
    Seal,
    /// Apply at the target.
    Apply,
    /// Write ABORTED at the target, or learn what was applied.
    Abort,
    /// Tell the source that the owner moved out.
    Commit,
    /// Unseal the source at a fresh epoch.
    Undo,
}

/// What a journal entry calls for at `now`; nothing when it is closed, or has to wait.
#[must_use]
pub fn due(entry: &Promotion, now: Timestamp) -> Vec<Action> {
    let in_time = now < entry.deadline;
    match (entry.state, entry.hold) {
        // Nothing was sent anywhere yet.
        (State::Prepared, Hold::None) => vec![if in_time { Action::Probe } else { Action::Abort }],
        (State::Prepared, Hold::Sealed) if entry.seal.is_none() => vec![if in_time { Action::Seal } else { Action::Abort }],
        (State::Prepared, Hold::Sealed | Hold::Settled) => vec![if in_time { Action::Apply } else { Action::Abort }],
        // In doubt it was applied after all: the source, free meanwhile, is told.
        (State::Applied, _) | (State::Committed, Hold::Sealed) => vec![Action::Commit],
        (State::InDoubt, Hold::Sealed) => vec![Action::Undo, Action::Abort],
        (State::InDoubt, Hold::None | Hold::Settled) => vec![Action::Abort],
        (
            State::Refused | State::Queued | State::NeedsConsent | State::Aborted | State::Deferred | State::Expired,
            Hold::Sealed,
        ) => {
            vec![Action::Undo]
        }
        (
            State::Committed
            | State::Refused
            | State::Queued
            | State::NeedsConsent
            | State::Aborted
            | State::Deferred
            | State::Expired,
            _,
        ) => Vec::new(),
    }
}

/// Takes what happened. The new entry is to be journalled before its actions are done.
///
/// # Errors
/// `PROMOTION_ABORTED` for an event that the state does not allow: another router was faster; read the journal again.
pub fn step(entry: &Promotion, event: Event, now: Timestamp) -> Result<(Promotion, Vec<Action>), Fault> {
    let mut next = entry.clone();
    let illegal = || {
        Err(Fault::new(Reason::PromotionAborted, "the promotion moved on; read it again")
            .with("promotion_id", entry.promotion_id.clone())
            .with("state", entry.state.name()))
    };
    match (entry.state, event) {
        // With a seal something may have been sent: that needs the fence.
        (State::Prepared, Event::TargetOff { because }) if entry.hold != Hold::Sealed => {
            next.state = State::Deferred;
            next.findings = vec![because];
        }
        (State::Prepared, Event::FencedOff { because }) if entry.hold == Hold::Sealed => {
            next.state = State::Deferred;
            next.round += 1;
            next.findings = vec![because];
        }
        (State::Prepared, Event::Sealing { epoch }) if entry.hold == Hold::None => {
            next.hold = Hold::Sealed;
            next.seal_epoch = Some(epoch);
        }
        (State::Prepared, Event::Sealed(seal)) if entry.hold == Hold::Sealed => {
            next.seal_epoch = Some(seal.epoch);
            next.journalled = Some(seal.clone());
            next.seal = Some(seal);
        }
        (State::Prepared, Event::SourceEnded { because }) if entry.seal.is_none() => {
            next.hold = Hold::Settled;
            next.seal.clone_from(&entry.journalled);
            if next.seal.is_none() {
                next.state = State::Refused;
                next.findings.push(because);
            }
        }
        (State::Prepared, Event::SourceRefused { because }) => {
            next.state = State::Refused;
            next.hold = Hold::Settled;
            next.findings.push(because);
        }
        // Without a seal only where the journal lost its last writes: the target knows better.
        (State::Prepared, Event::Applied(at)) => {
            next.state = State::Applied;
            next.seal = next.seal.or_else(|| entry.journalled.clone());
            take(&mut next, at);
        }
        (State::Prepared, Event::Queued(at)) => {
            next.state = State::Queued;
            take(&mut next, at);
        }
        (State::Prepared, Event::NeedsConsent(at)) => {
            next.state = State::NeedsConsent;
            take(&mut next, at);
        }
        (State::Prepared, Event::Refused { findings }) => {
            next.state = State::Refused;
            next.findings = findings;
        }
        (State::Prepared | State::InDoubt, Event::AbortWritten) => next.state = State::Aborted,
        (State::Prepared, Event::TargetSilent) if now >= entry.doubt_at() => next.state = State::InDoubt,
        // The target had it all along: the owner moved out, and the unsealed source becomes an overlay (rule P5), which it
        // has still to be told.
        (State::InDoubt, Event::Applied(at)) => {
            next.state = State::Committed;
            next.hold = Hold::Sealed;
            take(&mut next, at);
        }
        // A candidate or a refusal moves no owner: undone and over.
        (State::InDoubt, Event::Queued(at) | Event::NeedsConsent(at)) => {
            next.state = State::Aborted;
            take(&mut next, at);
        }
        (State::InDoubt, Event::Refused { findings }) => {
            next.state = State::Aborted;
            next.findings = findings;
        }
        (State::Applied, Event::Settled) => {
            next.state = State::Committed;
            next.hold = Hold::Settled;
        }
        (
            State::Committed
            | State::Refused
            | State::Queued
            | State::NeedsConsent
            | State::Aborted
            | State::InDoubt
            | State::Deferred
            | State::Expired,
            Event::Settled,
        ) => next.hold = Hold::Settled,
        (State::Deferred, Event::Offered) if entry.hold != Hold::Sealed => begin(&mut next, now),
        (State::Queued | State::NeedsConsent, Event::Readmitted) if entry.hold != Hold::Sealed => {
            next.round += 1;
            next.consent_challenge = None;
            begin(&mut next, now);
        }
        (State::Queued, Event::CandidateGone) => next.state = State::Expired,
        (
            State::Prepared
            | State::Applied
            | State::Committed
            | State::Refused
            | State::Queued
            | State::NeedsConsent
            | State::Aborted
            | State::InDoubt
            | State::Deferred
            | State::Expired,
            _,
        ) => return illegal(),
    }
    debug_assert!(invariant::hold(entry, &next), "an invariant of promotions is broken");
    next.update_time = now;
    next.revision += 1;
    let actions = due(&next, now);
    Ok((next, actions))
}

/// Back to PREPARE: sealed anew, with the value that stands then.
fn begin(next: &mut Promotion, now: Timestamp) {
    next.state = State::Prepared;
    next.hold = if next.origin.is_sealed() { Hold::None } else { Hold::Settled };
    next.seal = None;
    next.seal_epoch = None;
    next.deadline = now.plus(PROMOTION_SECONDS * SECOND);
    next.findings = Vec::new();
}

fn take(next: &mut Promotion, at: AtTarget) {
    next.findings = at.findings;
    next.memory_id = at.memory_id;
    next.superseded = at.superseded;
    next.owned = at.owned;
    next.consent_challenge = at.consent_challenge;
}

vocabulary! {
    /// The three conditions of a promotion; all must hold (acceptance A139 to A142).
    Condition {
        /// It holds beyond one session, or the user confirmed it.
        Stable = "STABLE",
        /// It can be read without its conversation.
        SelfContained = "SELF_CONTAINED",
        /// It is not sensitive, or the user consented.
        Authorised = "AUTHORISED",
    }
}

impl Condition {
    /// The rules that judge it.
    const fn rules(self) -> &'static [&'static str] {
        match self {
            Self::Stable => &["G2", "G6", "G9", "G11", "K2", "K3", "K4"],
            Self::SelfContained => &["G5", "G7", "G12"],
            Self::Authorised => &["G3", "G4", "G8", "E7"],
        }
    }
}

/// How a condition was judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judged {
    /// Nothing has judged it yet.
    Open,
    /// It holds.
    Met,
    /// It does not, by the first finding that says so.
    NotMet(JournalFinding),
}

/// What speaks against a statement, among the outcomes of findings.
const AGAINST: [&str; 5] = ["REFUSED", "CANDIDATE", "NEEDS_CONSENT", "DISPUTED", "FORGOTTEN"];

/// The conditions of a promotion, each with its reason. The gate judges stability only of what no rule refuses.
#[must_use]
pub fn conditions(entry: &Promotion) -> [(Condition, Judged); 3] {
    let of_target = |finding: &JournalFinding| finding.rule.starts_with(['G', 'K', 'E']);
    let judged = match entry.state {
        State::Applied | State::Committed | State::Queued | State::NeedsConsent | State::Expired => true,
        State::Refused => entry.findings.iter().any(of_target),
        State::Prepared | State::Aborted | State::InDoubt | State::Deferred => false,
    };
    [Condition::Stable, Condition::SelfContained, Condition::Authorised].map(|condition| {
        let against = entry
            .findings
            .iter()
            .find(|finding| condition.rules().contains(&finding.rule.as_str()) && AGAINST.contains(&finding.outcome.as_str()));
        let passed_over = condition == Condition::Stable && entry.state == State::Refused;
        let verdict = match against {
            Some(finding) if judged => Judged::NotMet(finding.clone()),
            None if judged && !passed_over => Judged::Met,
            Some(_) | None => Judged::Open,
        };
        (condition, verdict)
    })
}

/// Named invariants of a [`Promotion`] and of its steps: the model and the simulation check them, and every step in debug
/// builds.
pub mod invariant {
    use super::{Hold, MOVES, Promotion, State};

    /// Only the moves of the table.
    #[must_use]
    pub fn moves_by_the_table(before: &Promotion, after: &Promotion) -> bool {
        before.state == after.state || MOVES.contains(&(before.state, after.state))
    }

    /// A source is sealed only under an epoch that stands in the journal: whoever finds the entry can undo it.
    #[must_use]
    pub const fn seals_are_journalled(entry: &Promotion) -> bool {
        !matches!((entry.state, entry.hold), (State::Prepared, Hold::Sealed)) || entry.seal_epoch.is_some()
    }

    /// What is to be applied without a seal has a value all the same: the journalled one of an ended source.
    #[must_use]
    pub const fn ended_sources_have_a_value(entry: &Promotion) -> bool {
        let unsealed = matches!((entry.state, entry.hold), (State::Prepared, Hold::Settled));
        !(unsealed && entry.origin.is_sealed()) || entry.seal.is_some()
    }

    /// A new beginning has a new name at the target whenever the target had an answer to the one before.
    #[must_use]
    pub fn answered_rounds_are_not_repeated(before: &Promotion, after: &Promotion) -> bool {
        let begins = after.state == State::Prepared && before.state != State::Prepared;
        let answered = matches!(before.state, State::Queued | State::NeedsConsent);
        !(begins && answered) || after.round > before.round
    }

    /// All of them.
    #[must_use]
    pub fn hold(before: &Promotion, after: &Promotion) -> bool {
        moves_by_the_table(before, after)
            && seals_are_journalled(after)
            && ended_sources_have_a_value(after)
            && answered_rounds_are_not_repeated(before, after)
    }
}

/// What the target has noted of one beginning of a promotion (rules P5, P7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtTargetNow {
    /// Apply it through the gate.
    Apply,
    /// It was applied: answer the same again.
    Repeat,
    /// It is aborted, or its deadline has passed: refuse.
    Refuse,
}

/// What the target makes of an apply. `noted` is its row: true where it was applied, false where it was aborted.
#[must_use]
pub fn at_target(noted: Option<bool>, deadline: Timestamp, now: Timestamp) -> AtTargetNow {
    match noted {
        Some(true) => AtTargetNow::Repeat,
        Some(false) => AtTargetNow::Refuse,
        None if now > deadline => AtTargetNow::Refuse,
        None => AtTargetNow::Apply,
    }
}

/// The router's own conditions of a promotion (rules P5, P6, P8): outwards only, into a kind that has an exit. Stability,
/// self-containedness and sensitivity are the gate's (rules G3, G4, G7, G11), at the target.
///
/// # Errors
/// `PROMOTION_REFUSED` naming the rule.
pub fn admit(origin: Level, target: Level, kind: Kind) -> Result<(), Fault> {
    let refused = |rule: &'static str, because: String| {
        Fault::new(Reason::PromotionRefused, because.clone()).rule(rule, "promotion", because).with("rule", rule)
    };
    if target >= origin {
        return Err(refused("P5", format!("a promotion goes outwards; {} is not outside {}", target.name(), origin.name())));
    }
    match exit_of(kind) {
        Some(_) => Ok(()),
        None => Err(refused("P8", format!("a {} cannot be promoted: no rule would ever remove it", kind.name()))),
    }
}

/// The rule by which a promoted kind leaves again (rule P8); `None` for kinds that cannot be promoted.
#[must_use]
pub const fn exit_of(kind: Kind) -> Option<&'static str> {
    match kind {
        // Replaced by a newer value, forgotten by the user, archived at capacity.
        Kind::Fact | Kind::Preference | Kind::Constraint => Some("K1"),
        // Archived at the task's end.
        Kind::Goal => Some("F2"),
        // 7 days, then archived.
        Kind::Event => Some("F2"),
        // Archived when unused; a candidate lapses after 90 days.
        Kind::Experience => Some("F4"),
        Kind::Assumption | Kind::ModelSuggestion | Kind::Summary => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000_000);

    fn fact() -> Promotion {
        let origin = Origin::TaskFact { task_id: "t".into(), key: "k".into() };
        Promotion::new("p".into(), origin, Level::User, "d".into(), NOW)
    }

    fn quote() -> Promotion {
        let origin = Origin::TurnQuote { session_id: "s".into(), seq: 1, quote: "q".into() };
        Promotion::new("p".into(), origin, Level::User, "d".into(), NOW)
    }

    fn of_session() -> Promotion {
        let origin = Origin::SessionFact { session_id: "s".into(), key: "k".into() };
        Promotion::new("p".into(), origin, Level::User, "d".into(), NOW)
    }

    fn seal() -> Seal {
        Seal { value: "v".into(), source: "tool".into(), epoch: 5, session_id: String::new(), verified_at: None, turn: None }
    }

    fn finding() -> JournalFinding {
        Finding::new("G11", "CANDIDATE", "one session").into()
    }

    fn events() -> Vec<Event> {
        vec![
            Event::TargetOff { because: finding() },
            Event::FencedOff { because: finding() },
            Event::SourceEnded { because: finding() },
            Event::Readmitted,
            Event::Sealing { epoch: 5 },
            Event::Sealed(seal()),
            Event::SourceRefused { because: finding() },
            Event::Applied(AtTarget::default()),
            Event::Queued(AtTarget::default()),
            Event::NeedsConsent(AtTarget::default()),
            Event::Refused { findings: vec![finding()] },
            Event::AbortWritten,
            Event::TargetSilent,
            Event::Settled,
            Event::Offered,
            Event::CandidateGone,
        ]
    }

    fn after(entry: &Promotion, events: Vec<Event>) -> (Promotion, Vec<Action>) {
        let mut last = (entry.clone(), due(entry, NOW));
        for event in events {
            last = step(&last.0, event, NOW).expect("allowed");
        }
        last
    }

    #[test]
    fn only_the_moves_of_the_table_are_reachable() {
        // Every state, hold and event, before and after the deadline: a move happens only if the table has it, and
        // every move of the table happens for some event.
        let mut seen = std::collections::BTreeSet::new();
        for base in [fact(), of_session(), quote()] {
            for state in State::ALL {
                for hold in [Hold::None, Hold::Sealed, Hold::Settled] {
                    for sealed in [None, Some(seal())] {
                        for now in [NOW, base.deadline, base.doubt_at()] {
                            for event in events() {
                                let entry = Promotion { state: *state, hold, seal: sealed.clone(), ..base.clone() };
                                if let Ok((next, actions)) = step(&entry, event, now) {
                                    assert_eq!(actions, due(&next, now));
                                    assert_eq!(next.revision, entry.revision + 1);
                                    if next.state != entry.state {
                                        assert!(
                                            MOVES.contains(&(entry.state, next.state)),
                                            "{:?} > {:?}",
                                            entry.state,
                                            next.state
                                        );
                                        seen.insert((entry.state, next.state));
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
        assert_eq!(seen, MOVES.iter().copied().collect(), "every move of the table is used");
    }

    #[test]
    fn a_fact_of_a_task_or_a_session_is_probed_sealed_applied_and_committed() {
        for entry in [fact(), of_session()] {
            assert_eq!(due(&entry, NOW), [Action::Probe]);
            let (entry, actions) = step(&entry, Event::Sealing { epoch: 5 }, NOW).expect("allowed");
            assert_eq!(actions, [Action::Seal]);
            let (entry, actions) = step(&entry, Event::Sealed(seal()), NOW).expect("allowed");
            assert_eq!(actions, [Action::Apply]);
            let (entry, actions) = step(&entry, Event::Applied(AtTarget::default()), NOW).expect("allowed");
            assert_eq!(actions, [Action::Commit]);
            let (entry, actions) = step(&entry, Event::Settled, NOW).expect("allowed");
            assert_eq!((entry.state, actions.is_empty(), entry.is_open()), (State::Committed, true, false));
        }
    }

    #[test]
    fn g2_a_session_fact_is_the_users_word_only_where_a_sentence_of_the_user_holds_it() {
        for (by, quoted, source) in [
            (Some(Role::User), true, Source::UserStatement),
            (Some(Role::User), false, Source::ModelInference),
            (Some(Role::Tool), true, Source::Observation),
            (Some(Role::Tool), false, Source::Observation),
            (Some(Role::Assistant), true, Source::ModelInference),
            (Some(Role::System), true, Source::ModelInference),
            (None, false, Source::ModelInference),
        ] {
            assert_eq!(word_of(by, quoted), source, "{by:?} {quoted}");
        }
    }

    #[test]
    fn a_journal_of_before_session_facts_is_read_as_it_was() {
        let old = r#"{"value":"v","source":"tool","epoch":5,"session_id":"","verified_at":null}"#;
        assert_eq!(serde_json::from_str::<Seal>(old).expect("an old seal"), seal());
    }

    #[test]
    fn every_outcome_but_commit_unseals_the_source() {
        for (event, state) in [
            (Event::Queued(AtTarget::default()), State::Queued),
            (Event::NeedsConsent(AtTarget::default()), State::NeedsConsent),
            (Event::Refused { findings: vec![finding()] }, State::Refused),
            (Event::AbortWritten, State::Aborted),
        ] {
            let (entry, actions) = after(&fact(), vec![Event::Sealing { epoch: 5 }, Event::Sealed(seal()), event]);
            assert_eq!((entry.state, actions, entry.is_open()), (state, vec![Action::Undo], true));
            let (entry, actions) = after(&entry, vec![Event::Settled]);
            assert_eq!((actions.is_empty(), entry.is_open()), (true, false));
        }
    }

    #[test]
    fn a_turn_quote_is_applied_without_a_seal() {
        assert_eq!(due(&quote(), NOW), [Action::Apply]);
        let (entry, actions) = after(&quote(), vec![Event::Refused { findings: vec![finding()] }]);
        assert_eq!((entry.state, actions.is_empty(), entry.is_open()), (State::Refused, true, false));
    }

    #[test]
    fn after_the_deadline_it_is_aborted_never_applied() {
        for entry in [
            fact(),
            quote(),
            after(&fact(), vec![Event::Sealing { epoch: 5 }]).0,
            after(&fact(), vec![Event::Sealing { epoch: 5 }, Event::Sealed(seal())]).0,
        ] {
            assert_eq!(due(&entry, entry.deadline), [Action::Abort]);
        }
    }

    #[test]
    fn a_silent_target_leaves_it_in_doubt_and_the_source_free() {
        let (entry, _) = after(&fact(), vec![Event::Sealing { epoch: 5 }, Event::Sealed(seal())]);
        assert!(step(&entry, Event::TargetSilent, entry.deadline).is_err(), "not before deadline + 2 x skew");
        let (entry, actions) = step(&entry, Event::TargetSilent, entry.doubt_at()).expect("allowed");
        assert_eq!((entry.state, actions), (State::InDoubt, vec![Action::Undo, Action::Abort]));
        let (entry, actions) = step(&entry, Event::Settled, entry.doubt_at()).expect("allowed");
        assert_eq!(actions, [Action::Abort], "the source is free, the target is still asked");
        let (had_it, actions) = step(&entry, Event::Applied(AtTarget::default()), NOW).expect("allowed");
        assert_eq!((had_it.state, had_it.is_open(), actions), (State::Committed, true, vec![Action::Commit]));
        let (told, actions) = step(&had_it, Event::Settled, NOW).expect("allowed");
        assert_eq!((told.is_open(), actions.is_empty()), (false, true), "the source is an overlay");
        let (had_not, _) = step(&entry, Event::AbortWritten, NOW).expect("allowed");
        assert_eq!((had_not.state, had_not.is_open()), (State::Aborted, false));
    }

    #[test]
    fn a_deferred_one_is_offered_again_with_a_new_deadline() {
        let (entry, actions) = after(&fact(), vec![Event::TargetOff { because: finding() }]);
        assert_eq!((entry.state, actions.is_empty(), entry.is_open()), (State::Deferred, true, true));
        let later = NOW.plus(99 * SECOND);
        let (entry, actions) = step(&entry, Event::Offered, later).expect("allowed");
        assert_eq!((entry.state, actions), (State::Prepared, vec![Action::Probe]));
        assert_eq!(entry.deadline, later.plus(PROMOTION_SECONDS * SECOND));
        // Switched off between seal and apply: fenced, unsealed, and the old seal is not used again.
        let sealed = after(&fact(), vec![Event::Sealing { epoch: 5 }, Event::Sealed(seal())]).0;
        assert!(step(&sealed, Event::TargetOff { because: finding() }, NOW).is_err(), "never without the fence");
        let (entry, actions) = after(&sealed, vec![Event::FencedOff { because: finding() }]);
        assert_eq!((entry.state, actions), (State::Deferred, vec![Action::Undo]));
        let (entry, _) = after(&entry, vec![Event::Settled, Event::Offered]);
        assert_eq!((entry.seal.as_ref(), entry.seal_epoch, entry.hold), (None, None, Hold::None));
        assert_eq!(entry.apply_id(), "p.1", "what was fenced off stays so");
    }

    #[test]
    fn a_confirmed_or_consented_one_begins_anew_under_a_new_name() {
        for event in [Event::Queued(AtTarget::default()), Event::NeedsConsent(AtTarget::default())] {
            let (entry, _) = after(&fact(), vec![Event::Sealing { epoch: 5 }, Event::Sealed(seal()), event]);
            assert!(step(&entry, Event::Readmitted, NOW).is_err(), "the source is unsealed first");
            let (entry, actions) = after(&entry, vec![Event::Settled, Event::Readmitted]);
            assert_eq!((entry.state, entry.apply_id().as_str(), actions), (State::Prepared, "p.1", vec![Action::Probe]));
        }
    }

    #[test]
    fn the_journalled_value_stands_for_the_seal_of_an_ended_source() {
        let ended = || Event::SourceEnded { because: finding() };
        let known = Promotion { journalled: Some(seal()), ..fact() };
        let (entry, actions) = after(&known, vec![Event::Sealing { epoch: 5 }, ended()]);
        assert_eq!((entry.seal, entry.hold, actions), (Some(seal()), Hold::Settled, vec![Action::Apply]));
        let (entry, _) = after(&fact(), vec![Event::Sealing { epoch: 5 }, ended()]);
        assert_eq!((entry.state, entry.is_open()), (State::Refused, false));
        // A seal is a journalled value for the next time.
        let (entry, _) = after(&fact(), vec![Event::Sealing { epoch: 5 }, Event::Sealed(seal())]);
        assert_eq!(entry.journalled, Some(seal()));
    }

    #[test]
    fn a139_a140_a141_a142_each_condition_has_its_verdict_and_reason() {
        let found =
            |rule: &str, outcome: &str| JournalFinding { rule: rule.into(), outcome: outcome.into(), because: rule.into() };
        let judge = |state, findings| {
            let entry = Promotion { state, findings, ..quote() };
            conditions(&entry).map(|(_, judged)| match judged {
                Judged::Open => "open".to_owned(),
                Judged::Met => "met".to_owned(),
                Judged::NotMet(finding) => finding.rule,
            })
        };
        assert_eq!(judge(State::Prepared, vec![]), ["open", "open", "open"]);
        assert_eq!(judge(State::Committed, vec![found("G11", "OK"), found("K1", "ACTIVE")]), ["met", "met", "met"]);
        assert_eq!(judge(State::Queued, vec![found("G9", "OK"), found("G11", "CANDIDATE")]), ["G11", "met", "met"]);
        assert_eq!(judge(State::NeedsConsent, vec![found("G4", "NEEDS_CONSENT")]), ["met", "met", "G4"]);
        assert_eq!(judge(State::Refused, vec![found("G7", "REFUSED")]), ["open", "G7", "met"]);
        assert_eq!(judge(State::Refused, vec![found("G6", "REFUSED"), found("G3", "REFUSED")]), ["G6", "met", "G3"]);
        assert_eq!(judge(State::Refused, vec![found("P5", "NOT_FOUND")]), ["open", "open", "open"], "the gate never saw it");
        assert_eq!(judge(State::Deferred, vec![found("D1", "DEFERRED")]), ["open", "open", "open"]);
    }

    #[test]
    fn p5_p7_the_target_applies_once_and_never_late_or_aborted() {
        assert_eq!(at_target(None, NOW, NOW), AtTargetNow::Apply);
        assert_eq!(at_target(None, NOW, NOW.plus(1)), AtTargetNow::Refuse);
        assert_eq!(at_target(Some(true), NOW, NOW.plus(1)), AtTargetNow::Repeat, "applied in time is applied");
        assert_eq!(at_target(Some(false), NOW, NOW), AtTargetNow::Refuse);
    }

    #[test]
    fn a143_every_promotable_kind_has_an_exit() {
        let rules = ["K1", "F2", "F4"];
        for kind in Kind::ALL {
            let verdict = admit(Level::Task, Level::User, *kind);
            match exit_of(*kind) {
                Some(rule) => assert!(rules.contains(&rule) && verdict.is_ok(), "{kind:?}"),
                None => assert_eq!(verdict.expect_err("no exit").reason, Reason::PromotionRefused, "{kind:?}"),
            }
        }
    }

    #[test]
    fn a138_a_promotion_goes_outwards_only() {
        use Level::{Agent, Session, Task, User};
        for origin in [User, Agent, Session, Task] {
            for target in [User, Agent, Session, Task] {
                assert_eq!(admit(origin, target, Kind::Fact).is_ok(), target < origin, "{origin:?} > {target:?}");
            }
        }
    }

    proptest! {
        /// Whatever happens in whatever order: a committed promotion was applied, an unsealed source was settled, and a
        /// closed entry never calls for anything.
        #[test]
        fn any_order_of_events_keeps_the_promises(picks in proptest::collection::vec((0..16_usize, 0..4_000_000_i64), 1..40), sealed in any::<bool>()) {
            let mut entry = if sealed { fact() } else { quote() };
            let mut now = NOW;
            let mut applied = false;
            for (pick, pass) in picks {
                now = now.plus(pass);
                let event = events()[pick].clone();
                if let Ok((next, actions)) = step(&entry, event.clone(), now) {
                    applied |= matches!(event, Event::Applied(_));
                    prop_assert!(next.state != State::Committed || applied);
                    prop_assert!(next.is_open() || actions.is_empty());
                    prop_assert!(!actions.contains(&Action::Apply) || now < next.deadline);
                    entry = next;
                }
            }
        }
    }
}
