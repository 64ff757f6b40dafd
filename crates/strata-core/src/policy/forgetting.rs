//! What is forgotten by itself (rules F1 to F8, F10; R11 for good): pure decisions over what is known of one user's records.
//!
//! ```text
//!   subjects of one user --> Planner --> expiry F1 F2 > proposals F10 > consolidation F5 > merge R11
//!                                        > access F3 F4 > capacity F7 > purge F6          --> steps, in order
//! ```
//!
//! A dry run and a real run ask the same planner. Every step that touches a record carries a [`Permit`], which only
//! [`permit`] makes: it asks rule F8 before it asks the rule itself, so that no way of forgetting can leave it out. Whoever
//! carries a step out asks [`permit`] again over the record as it is then: one that was used meanwhile stays.

use crate::record::{Kind, Status, Tier};
use crate::time::DAY;
use crate::{Fault, MemoryId, Timestamp};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

crate::record::vocabulary! {
    /// A rule that forgets, condenses or proposes by itself, in the order of a run.
    AutoRule {
        /// The end that its owner set is over.
        Clock = "F1",
        /// The time of its tier is over.
        Tier = "F2",
        /// Events on one slot propose a fact.
        Propose = "F10",
        /// Many records on one topic become a summary.
        Consolidate = "F5",
        /// Near-duplicates become one record.
        Merge = "R11",
        /// Unconfirmed, unlikely, unimportant and unused: asked about again.
        Decay = "F3",
        /// Unimportant and unused: archived.
        Idle = "F4",
        /// More records than a user may have in force: the least valuable are archived.
        Capacity = "F7",
        /// Over for long enough and referenced by nothing: removed.
        Purge = "F6",
    }
}

/// What a rule may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Switch {
    /// It acts.
    Act,
    /// It says what it would do.
    Observe,
    /// It is not asked.
    Off,
}

/// Each rule's switch. Each works alone (A166).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Switches {
    /// Rules F1 and F2: writing down what is over by the clock. What is over is out of every answer with or without it.
    /// Default `act`.
    pub expiry: Switch,
    /// Rule F10. Default `act`.
    pub propose: Switch,
    /// Rule F5. Default `act`.
    pub consolidate: Switch,
    /// Rule R11, for good. Default `act`.
    pub merge: Switch,
    /// Rule F3. Default `observe`: recall counts are recorded first.
    pub decay: Switch,
    /// Rule F4. Default `act`.
    pub archive: Switch,
    /// Rule F7. Default `act`.
    pub capacity: Switch,
    /// Rule F6. Default `act`.
    pub purge: Switch,
}

impl Default for Switches {
    fn default() -> Self {
        Self {
            expiry: Switch::Act,
            propose: Switch::Act,
            consolidate: Switch::Act,
            merge: Switch::Act,
            decay: Switch::Observe,
            archive: Switch::Act,
            capacity: Switch::Act,
            purge: Switch::Act,
        }
    }
}

impl Switches {
    /// The switch of a rule.
    #[must_use]
    pub const fn of(&self, rule: AutoRule) -> Switch {
        match rule {
            AutoRule::Clock | AutoRule::Tier => self.expiry,
            AutoRule::Propose => self.propose,
            AutoRule::Consolidate => self.consolidate,
            AutoRule::Merge => self.merge,
            AutoRule::Decay => self.decay,
            AutoRule::Idle => self.archive,
            AutoRule::Capacity => self.capacity,
            AutoRule::Purge => self.purge,
        }
    }
}

/// When the nightly run begins (rule F9), and how much it takes of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Schedule {
    /// Whether it runs by itself. Default true.
    pub enabled: bool,
    /// Hour of the day, 0..=23. Default 2.
    pub hour: u32,
    /// Minute of the hour, 0..=59. Default 0.
    pub minute: u32,
    /// Offset of the deployment's time zone from UTC in minutes, -720..=840. Default 0.
    pub utc_offset_minutes: i32,
    /// Steps in one transaction, 1..=500. Default 32: a caller's write waits for few of them.
    pub batch: usize,
    /// How many times as long as its last piece of work took the run rests before the next, 0..=100. Default 3: it takes a
    /// quarter of the time, and less where callers' writes hold it up.
    pub rest: u32,
}

impl Default for Schedule {
    fn default() -> Self {
        Self { enabled: true, hour: 2, minute: 0, utc_offset_minutes: 0, batch: 32, rest: 3 }
    }
}

impl Schedule {
    /// The day, counted from 1970-01-01 in the deployment's time zone, whose run is the last that was to begin by `now`.
    #[must_use]
    pub fn day(&self, now: Timestamp) -> i64 {
        let minute = crate::time::MINUTE;
        let local = now.plus(i64::from(self.utc_offset_minutes) * minute);
        local.plus(-(i64::from(self.hour) * 60 + i64::from(self.minute)) * minute).micros().div_euclid(DAY)
    }
}

/// Settings of forgetting: `[policy.forgetting]`. Days of tiers and candidates stand in `[policy.gate]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ForgettingSettings {
    /// Largest importance that decays (rule F3), 1..=5. Default 3.
    pub decay_importance: u8,
    /// Days without recall after which more makes it decay (rule F3), 1..=3650. Default 30.
    pub decay_days: u32,
    /// Confidence under which it decays (rule F3), 0..=1. Default 0.5.
    pub decay_confidence: f64,
    /// Largest importance that is archived unused (rule F4), 1..=5. Default 2.
    pub archive_importance: u8,
    /// Days without use after which more archives it (rule F4), 1..=3650. Default 30.
    pub archive_days: u32,
    /// Records on one topic of which more become a summary (rule F5), 2..=1000. Default 20.
    pub consolidate_over: usize,
    /// Days that what has expired stays before it is archived (rule F6), 1..=3650. Default 14.
    pub expired_days: u32,
    /// Days that what is archived stays before it is purged (rule F6), 1..=3650. Default 14.
    pub purge_days: u32,
    /// Records a user may have in force (rule F7), 1..=1000000. Default 10,000.
    pub capacity: usize,
    /// Events on one slot that propose a fact (rule F10), 2..=100. Default 3.
    pub propose_events: usize,
    /// Steps of one run over one user at most, 1..=1000000; the rest waits for the next run. Default 2,000.
    pub run_changes: usize,
    /// Which rules act.
    pub rules: Switches,
    /// When.
    pub schedule: Schedule,
}

impl Default for ForgettingSettings {
    fn default() -> Self {
        Self {
            decay_importance: 3,
            decay_days: 30,
            decay_confidence: 0.5,
            archive_importance: 2,
            archive_days: 30,
            consolidate_over: 20,
            expired_days: 14,
            purge_days: 14,
            capacity: 10_000,
            propose_events: 3,
            run_changes: 2_000,
            rules: Switches::default(),
            schedule: Schedule::default(),
        }
    }
}

impl ForgettingSettings {
    /// Checks the section.
    ///
    /// # Errors
    /// `INVALID_FIELD` naming the setting.
    pub fn validate(&self) -> Result<(), Fault> {
        let s = &self.schedule;
        let whole = [
            ("decay_importance", i64::from(self.decay_importance), 1, 5),
            ("decay_days", i64::from(self.decay_days), 1, 3_650),
            ("archive_importance", i64::from(self.archive_importance), 1, 5),
            ("archive_days", i64::from(self.archive_days), 1, 3_650),
            ("consolidate_over", wide(self.consolidate_over), 2, 1_000),
            ("expired_days", i64::from(self.expired_days), 1, 3_650),
            ("purge_days", i64::from(self.purge_days), 1, 3_650),
            ("capacity", wide(self.capacity), 1, 1_000_000),
            ("propose_events", wide(self.propose_events), 2, 100),
            ("run_changes", wide(self.run_changes), 1, 1_000_000),
            ("schedule.hour", i64::from(s.hour), 0, 23),
            ("schedule.minute", i64::from(s.minute), 0, 59),
            ("schedule.utc_offset_minutes", i64::from(s.utc_offset_minutes), -720, 840),
            ("schedule.batch", wide(s.batch), 1, 500),
            ("schedule.rest", i64::from(s.rest), 0, 100),
        ];
        for (name, value, min, max) in whole {
            if !(min..=max).contains(&value) {
                return Err(Fault::field(format!("policy.forgetting.{name}"), format!("must lie between {min} and {max}")));
            }
        }
        if !(0.0..=1.0).contains(&self.decay_confidence) {
            return Err(Fault::field("policy.forgetting.decay_confidence", "must lie between 0 and 1"));
        }
        Ok(())
    }
}

fn wide(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Why a record that is over is kept (rule F6, A163).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reference {
    /// A summary was made of it.
    Derivation,
    /// A fact was proposed from it, and the proposal is there.
    Evidence,
    /// It stands in the chain of a value.
    Supersession,
    /// A question to the user is about it.
    Question,
}

impl Reference {
    const fn because(self) -> &'static str {
        match self {
            Self::Derivation => "a summary was made of it",
            Self::Evidence => "it is evidence of a proposed fact",
            Self::Supersession => "it stands in the chain of a value",
            Self::Question => "a question to the user is about it",
        }
    }
}

/// What the rules look at of one record. It holds no content.
#[derive(Clone, Debug, PartialEq)]
pub struct Subject {
    /// Record.
    pub memory_id: MemoryId,
    /// Its owner inside the store: the user's level, or an agent's. Records of two owners never meet.
    pub level: i64,
    /// Kind.
    pub kind: Kind,
    /// Tier.
    pub tier: Tier,
    /// It has a slot.
    pub keyed: bool,
    /// Its slot is one of who the user is.
    pub identity: bool,
    /// Never forgotten automatically.
    pub protected: bool,
    /// Confirmed by the user.
    pub confirmed: bool,
    /// Instruction-like words of the user (rule G8).
    pub instruction: bool,
    /// A person took an automatic step on it back: it is not condensed again.
    pub exempt: bool,
    /// 0..1.
    pub confidence: f64,
    /// 1..5.
    pub importance: u8,
    /// State as stored.
    pub status: Status,
    /// When it came into that state.
    pub since: Timestamp,
    /// When it ends.
    pub expire_time: Option<Timestamp>,
    /// That end was asked for, not given by its tier.
    pub asked: bool,
    /// When it was said.
    pub event_time: Timestamp,
    /// When it was learned.
    pub create_time: Timestamp,
    /// Last recall.
    pub last_recalled_at: Option<Timestamp>,
    /// Last citation.
    pub last_cited_at: Option<Timestamp>,
    /// Topic in normal form.
    pub topic: Option<String>,
    /// Slot and value in normal form, for keyed events.
    pub slot: Option<String>,
    /// A summary was made of it once.
    pub condensed: bool,
    /// It replaced a record.
    pub chained: bool,
    /// What refers to it.
    pub reference: Option<Reference>,
}

impl Subject {
    /// Last use: when it was learned, said, recalled or cited, whichever is the latest.
    #[must_use]
    pub fn last_use(&self) -> Timestamp {
        let said = self.create_time.max(self.event_time);
        [self.last_recalled_at, self.last_cited_at].into_iter().flatten().fold(said, Timestamp::max)
    }

    /// Whether rules F4 and F5 are about it: keyless, and an event, a lesson, a passing value, or a summary of such.
    #[must_use]
    pub fn passes_by(&self) -> bool {
        !self.keyed && (matches!(self.kind, Kind::Event | Kind::Experience | Kind::Summary) || self.tier == Tier::Temporary)
    }

    /// Whether rule F5 may take it: as F4, but no summary is made of a summary, and none of words that are quoted data only.
    #[must_use]
    pub fn condensable(&self) -> bool {
        self.passes_by()
            && self.kind != Kind::Summary
            && !self.instruction
            && !self.exempt
            && matches!(self.status, Status::Active | Status::Archived)
    }
}

/// Rule F8: why no rule may touch the record by itself. A record that never came into force is not yet memory: its time in
/// the queue is limited like any candidate's.
#[must_use]
pub fn exemption(s: &Subject) -> Option<&'static str> {
    if matches!(s.status, Status::Candidate | Status::Disputed) {
        return None;
    }
    shield(s.kind, s.protected, s.identity)
}

/// What rule F8 keeps, of records in force: protected ones, constraints, and who the user is (`identity`).
#[must_use]
pub const fn shield(kind: Kind, protected: bool, identity: bool) -> Option<&'static str> {
    if protected {
        Some("it is protected")
    } else if matches!(kind, Kind::Constraint) {
        Some("it is a constraint")
    } else if identity {
        Some("it says who the user is")
    } else {
        None
    }
}

/// Whether the tier of a record sets an end to it (rules F2, F8): protected records and constraints end when their owner
/// said so, or never.
#[must_use]
pub fn ends_by_tier(kind: Kind, protected: bool) -> bool {
    !protected && kind != Kind::Constraint
}

/// What happens to a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It moves to this state.
    Move(Status),
    /// It is archived, and this summary stands for it; one that was archived before stays so.
    Condense(MemoryId),
    /// This record takes over what is known of it.
    MergeInto(MemoryId),
    /// It is removed for good.
    Purge,
}

impl Fate {
    /// The state after it; none when it is removed.
    #[must_use]
    pub const fn status(self) -> Option<Status> {
        match self {
            Self::Move(status) => Some(status),
            Self::Condense(_) | Self::MergeInto(_) => Some(Status::Archived),
            Self::Purge => None,
        }
    }
}

/// Leave to do one thing to one record. Only [`permit`] gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permit {
    memory_id: MemoryId,
    rule: AutoRule,
    from: Status,
    fate: Fate,
    because: &'static str,
}

impl Permit {
    /// Record.
    #[must_use]
    pub const fn memory_id(&self) -> MemoryId {
        self.memory_id
    }
    /// The rule.
    #[must_use]
    pub const fn rule(&self) -> AutoRule {
        self.rule
    }
    /// State before.
    #[must_use]
    pub const fn from(&self) -> Status {
        self.from
    }
    /// What happens.
    #[must_use]
    pub const fn fate(&self) -> Fate {
        self.fate
    }
    /// Why, in one sentence without content.
    #[must_use]
    pub const fn because(&self) -> &'static str {
        self.because
    }
}

/// What a rule says about a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may.
    Permit(Permit),
    /// It stays, although the rule came close to it: which rule keeps it, and why.
    Keep(&'static str, &'static str),
    /// The rule has nothing to do with it.
    Pass,
}

/// What a rule wants of a record beside what the record itself says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// As the rule says.
    ByRule,
    /// It stands in this summary (rule F5).
    In(MemoryId),
    /// This record says the same (rule R11).
    SameAs(MemoryId),
    /// Its references do not count: the user's memory is over its capacity (rules F6, F7).
    OverCapacity,
}

/// The one way to leave for an automatic step: rule F8 first, then the rule.
#[must_use]
pub fn permit(settings: &ForgettingSettings, rule: AutoRule, wanted: Wanted, s: &Subject, now: Timestamp) -> Verdict {
    // What its own owner set an end to is over by the clock on every read path; writing that down touches nothing.
    let exempt = exemption(s).filter(|_| rule != AutoRule::Clock);
    let (fate, because) = match reaches(settings, rule, wanted, s, now) {
        Reach::No => return Verdict::Pass,
        Reach::Near(because) => return Verdict::Keep(exempt.map_or(rule.name(), |_| "F8"), exempt.unwrap_or(because)),
        Reach::Yes(fate, because) => (fate, because),
    };
    match exempt {
        Some(because) => Verdict::Keep("F8", because),
        None => Verdict::Permit(Permit { memory_id: s.memory_id, rule, from: s.status, fate, because }),
    }
}

/// Whether a rule reaches a record, rule F8 apart.
enum Reach {
    No,
    Near(&'static str),
    Yes(Fate, &'static str),
}

fn reaches(settings: &ForgettingSettings, rule: AutoRule, wanted: Wanted, s: &Subject, now: Timestamp) -> Reach {
    match rule {
        AutoRule::Clock | AutoRule::Tier => expiry(rule, s, now),
        AutoRule::Decay => decay(settings, s, now),
        AutoRule::Idle => idle(settings, s, now),
        AutoRule::Capacity if s.status == Status::Active => {
            Reach::Yes(Fate::Move(Status::Archived), "the user has more records in force than fit")
        }
        AutoRule::Consolidate => match wanted {
            Wanted::In(summary) if s.condensable() => Reach::Yes(Fate::Condense(summary), "a summary stands for it"),
            Wanted::In(_) | Wanted::ByRule | Wanted::SameAs(_) | Wanted::OverCapacity => Reach::No,
        },
        AutoRule::Merge => match wanted {
            Wanted::SameAs(other) if s.status == Status::Active && !s.keyed && !s.exempt && s.kind != Kind::Summary => {
                Reach::Yes(Fate::MergeInto(other), "another record says the same")
            }
            Wanted::SameAs(_) | Wanted::ByRule | Wanted::In(_) | Wanted::OverCapacity => Reach::No,
        },
        AutoRule::Purge => purge(settings, wanted, s, now),
        AutoRule::Capacity | AutoRule::Propose => Reach::No,
    }
}

fn expiry(rule: AutoRule, s: &Subject, now: Timestamp) -> Reach {
    let to = super::status::at(s.status, s.tier, s.expire_time, now);
    if to == s.status {
        return Reach::No;
    }
    let by_tier = !s.asked && (s.tier != Tier::Stable || s.status != Status::Active);
    match (rule, by_tier) {
        (AutoRule::Clock, false) => Reach::Yes(Fate::Move(to), "the end that was set for it is over"),
        (AutoRule::Tier, true) if s.status == Status::Active => Reach::Yes(Fate::Move(to), "the time of its tier is over"),
        (AutoRule::Tier, true) => Reach::Yes(Fate::Move(to), "nobody confirmed it in the time a candidate has"),
        _ => Reach::No,
    }
}

const fn span(days: u32) -> i64 {
    days as i64 * DAY
}

fn decay(settings: &ForgettingSettings, s: &Subject, now: Timestamp) -> Reach {
    let recalled = s.last_recalled_at.map_or(s.create_time, |at| at.max(s.create_time));
    let falls = s.status == Status::Active
        && !s.confirmed
        && s.kind != Kind::Summary
        && s.importance <= settings.decay_importance
        && s.confidence < settings.decay_confidence
        && now.since(recalled) > span(settings.decay_days);
    if falls {
        Reach::Yes(Fate::Move(Status::Candidate), "unconfirmed, unlikely, unimportant, and not recalled for long")
    } else {
        Reach::No
    }
}

fn idle(settings: &ForgettingSettings, s: &Subject, now: Timestamp) -> Reach {
    if s.status != Status::Active || !s.passes_by() {
        return Reach::No;
    }
    let unused = now.since(s.last_use());
    let (days, most) = (span(settings.archive_days), settings.archive_importance);
    if s.importance <= most && unused > days {
        Reach::Yes(Fate::Move(Status::Archived), "unimportant, and not used for long")
    } else if s.importance <= most && unused == days {
        Reach::Near("not used for exactly as long as is allowed")
    } else if s.importance == most.saturating_add(1) && unused > days {
        Reach::Near("not used for long, and just important enough")
    } else {
        Reach::No
    }
}

fn purge(settings: &ForgettingSettings, wanted: Wanted, s: &Subject, now: Timestamp) -> Reach {
    let over = now.since(s.since);
    match s.status {
        Status::Expired if over >= span(settings.expired_days) => {
            Reach::Yes(Fate::Move(Status::Archived), "expired for long enough")
        }
        Status::Archived if over >= span(settings.purge_days) => match s.reference {
            Some(Reference::Derivation) if wanted == Wanted::OverCapacity => {
                Reach::Yes(Fate::Purge, "archived for long enough; a summary stands for it, and the memory is full")
            }
            Some(reference) => Reach::Near(reference.because()),
            None => Reach::Yes(Fate::Purge, "archived for long enough, and referenced by nothing"),
        },
        Status::Candidate
        | Status::Active
        | Status::Disputed
        | Status::Superseded
        | Status::Expired
        | Status::Archived
        | Status::Rejected
        | Status::Deleted => Reach::No,
    }
}

/// One entry of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Something happens to a record.
    Do {
        /// Leave for it.
        permit: Permit,
        /// What was asked of the rule.
        wanted: Wanted,
        /// The rule only observes: nothing is done.
        observed: bool,
    },
    /// A record is made by the service.
    Make {
        /// Its id, derived from what it is made of: the same plan makes the same record.
        memory_id: MemoryId,
        /// The rule.
        rule: AutoRule,
        /// What it is made of.
        from: Vec<MemoryId>,
        /// The rule only observes.
        observed: bool,
    },
    /// A record stays, although a rule came close to it.
    Keep {
        /// Record.
        memory_id: MemoryId,
        /// The rule that came close.
        rule: AutoRule,
        /// The rule that keeps it.
        kept_by: &'static str,
        /// Why.
        because: &'static str,
        /// Its state.
        status: Status,
    },
}

/// What a run is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Only expiry: the mode of long-term memory allows no more (rule D1).
    pub expiry_only: bool,
    /// Only these rules; empty is all.
    pub rules: BTreeSet<AutoRule>,
}

impl Scope {
    fn asks(&self, rule: AutoRule) -> bool {
        let by_mode = !self.expiry_only || matches!(rule, AutoRule::Clock | AutoRule::Tier);
        by_mode && (self.rules.is_empty() || self.rules.contains(&rule))
    }
}

/// Many records on one topic (rule F5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Their owner.
    pub level: i64,
    /// Topic in normal form.
    pub topic: String,
    /// Oldest first.
    pub members: Vec<MemoryId>,
}

/// Events on one slot that say the same (rule F10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeated {
    /// Their owner.
    pub level: i64,
    /// Oldest first.
    pub events: Vec<MemoryId>,
}

/// Plans one run over one user. Passes are asked in the order of [`AutoRule::ALL`]; each sees what those before it would do.
#[derive(Clone, Debug)]
pub struct Planner<'a> {
    settings: &'a ForgettingSettings,
    scope: &'a Scope,
    now: Timestamp,
    subjects: BTreeMap<MemoryId, Subject>,
    /// Records that a step is about: a run takes one step on a record.
    taken: BTreeSet<MemoryId>,
    steps: Vec<Step>,
    changes: usize,
}

impl<'a> Planner<'a> {
    /// Over one user's records.
    #[must_use]
    pub fn new(
        settings: &'a ForgettingSettings,
        scope: &'a Scope,
        subjects: impl IntoIterator<Item = Subject>,
        now: Timestamp,
    ) -> Self {
        let subjects = subjects.into_iter().map(|s| (s.memory_id, s)).collect();
        Self { settings, scope, now, subjects, taken: BTreeSet::new(), steps: Vec::new(), changes: 0 }
    }

    /// Whether the rule is asked, and if so whether it only observes.
    fn observes(&self, rule: AutoRule) -> Option<bool> {
        match self.settings.rules.of(rule) {
            _ if !self.scope.asks(rule) || self.changes >= self.settings.run_changes => None,
            Switch::Act => Some(false),
            Switch::Observe => Some(true),
            Switch::Off => None,
        }
    }

    /// Whether a rule is asked at all: what it needs is not read otherwise.
    #[must_use]
    pub fn asks(&self, rule: AutoRule) -> bool {
        self.observes(rule).is_some()
    }

    /// Asks a rule about a record; answers whether a step came of it.
    fn ask(&mut self, rule: AutoRule, wanted: Wanted, id: MemoryId) -> bool {
        let Some(observed) = self.observes(rule) else { return false };
        let Some(s) = self.subjects.get_mut(&id).filter(|_| !self.taken.contains(&id)) else { return false };
        match permit(self.settings, rule, wanted, s, self.now) {
            Verdict::Pass => false,
            Verdict::Keep(kept_by, because) => {
                self.steps.push(Step::Keep { memory_id: id, rule, kept_by, because, status: s.status });
                false
            }
            Verdict::Permit(permit) => {
                if !observed {
                    let to = permit.fate().status();
                    if let Some(to) = to.filter(|to| *to != s.status) {
                        (s.status, s.since) = (to, self.now);
                    }
                    if to.is_none() {
                        s.status = Status::Deleted;
                    }
                    // What expired may still go into a summary of the same night.
                    if !matches!(rule, AutoRule::Clock | AutoRule::Tier) {
                        self.taken.insert(id);
                    }
                }
                self.changes += 1;
                self.steps.push(Step::Do { permit, wanted, observed });
                true
            }
        }
    }

    fn ids(&self) -> Vec<MemoryId> {
        self.subjects.keys().copied().collect()
    }

    fn each(&mut self, rule: AutoRule) {
        if self.asks(rule) {
            for id in self.ids() {
                self.ask(rule, Wanted::ByRule, id);
            }
        }
    }

    /// Rules F1 and F2.
    pub fn expiry(&mut self) {
        self.each(AutoRule::Clock);
        self.each(AutoRule::Tier);
    }

    /// Rule F10: events of one slot that say the same, often enough. What is already proposed or held is the caller's to
    /// leave out.
    #[must_use]
    pub fn repeated(&self) -> Vec<Repeated> {
        if !self.asks(AutoRule::Propose) {
            return Vec::new();
        }
        let mut found: BTreeMap<(i64, &str), Vec<&Subject>> = BTreeMap::new();
        for s in self.subjects.values() {
            let counts = s.tier == Tier::Event && !s.instruction && matches!(s.status, Status::Active | Status::Archived);
            if let (true, Some(slot)) = (counts, &s.slot) {
                found.entry((s.level, slot)).or_default().push(s);
            }
        }
        let often = found.into_iter().filter(|(_, events)| events.len() >= self.settings.propose_events);
        often.map(|((level, _), events)| Repeated { level, events: oldest_first(events) }).collect()
    }

    /// Enters a record that the service is to make of others.
    pub fn make(&mut self, rule: AutoRule, memory_id: MemoryId, from: &[MemoryId]) {
        if let Some(observed) = self.observes(rule) {
            self.changes += 1;
            self.steps.push(Step::Make { memory_id, rule, from: from.to_vec(), observed });
            let reference = if rule == AutoRule::Consolidate { Reference::Derivation } else { Reference::Evidence };
            for id in from.iter().filter(|_| !observed) {
                if let Some(s) = self.subjects.get_mut(id) {
                    s.reference = s.reference.max(Some(reference));
                    s.condensed |= rule == AutoRule::Consolidate;
                }
            }
        }
    }

    /// Rule F5: topics with more records than one may have. Records that rule F8 keeps are not among them.
    #[must_use]
    pub fn topics(&self) -> Vec<Topic> {
        if !self.asks(AutoRule::Consolidate) {
            return Vec::new();
        }
        let mut found: BTreeMap<(i64, &str), Vec<&Subject>> = BTreeMap::new();
        for s in self.subjects.values() {
            // What a summary stands for already is in no second one.
            let free = s.condensable() && !s.condensed && !self.taken.contains(&s.memory_id);
            if let (true, None, Some(topic)) = (free, exemption(s), &s.topic) {
                found.entry((s.level, topic)).or_default().push(s);
            }
        }
        let over = found.into_iter().filter(|(_, members)| members.len() > self.settings.consolidate_over);
        over.map(|((level, topic), members)| Topic { level, topic: topic.to_owned(), members: oldest_first(members) }).collect()
    }

    /// Enters a summary and what becomes of its members.
    pub fn condense(&mut self, summary: MemoryId, members: &[MemoryId]) {
        self.make(AutoRule::Consolidate, summary, members);
        self.members(summary, members);
    }

    /// What becomes of members of a summary that is there already: archived once it is searchable.
    pub fn members(&mut self, summary: MemoryId, members: &[MemoryId]) {
        for id in members {
            self.ask(AutoRule::Consolidate, Wanted::In(summary), *id);
        }
    }

    /// Enters that a topic is left as it is: its records and why.
    pub fn leave(&mut self, members: &[MemoryId], because: &'static str) {
        for id in members {
            if let Some(s) = self.subjects.get(id) {
                let (rule, status) = (AutoRule::Consolidate, s.status);
                self.steps.push(Step::Keep { memory_id: *id, rule, kept_by: rule.name(), because, status });
            }
        }
    }

    /// Rule R11: `loser` says the same as `survivor`. Neither is part of another step of the run.
    pub fn merge(&mut self, survivor: MemoryId, loser: MemoryId) {
        let holds = |s: &Subject| s.status == Status::Active;
        if !self.taken.contains(&survivor) && self.subjects.get(&survivor).is_some_and(holds) {
            self.ask(AutoRule::Merge, Wanted::SameAs(survivor), loser);
        }
    }

    /// Rules F3 and F4.
    pub fn access(&mut self) {
        self.each(AutoRule::Decay);
        self.each(AutoRule::Idle);
    }

    /// Rule F7: least value first (importance, last use, age); stable, confirmed and chain records last.
    pub fn capacity(&mut self) {
        let mut held: Vec<&Subject> = self.subjects.values().filter(|s| s.status == Status::Active).collect();
        let Some(mut over) = held.len().checked_sub(self.settings.capacity).filter(|over| *over > 0) else { return };
        held.sort_by_key(|s| {
            let lasting = s.tier == Tier::Stable || s.confirmed || s.chained || s.reference == Some(Reference::Supersession);
            (lasting, s.importance, s.last_use(), s.create_time, s.memory_id)
        });
        let ids: Vec<MemoryId> = held.into_iter().map(|s| s.memory_id).collect();
        for id in ids {
            if over == 0 {
                break;
            }
            if self.ask(AutoRule::Capacity, Wanted::ByRule, id) {
                over -= 1;
            }
        }
    }

    /// Rule F6. Where the memory holds more than its capacity, archived records included, what stands in a summary goes too,
    /// the longest archived first.
    pub fn purge(&mut self) {
        let kept = |s: &Subject| matches!(s.status, Status::Active | Status::Archived);
        let total = self.subjects.values().filter(|s| kept(s)).count();
        let mut order: Vec<&Subject> = self.subjects.values().collect();
        order.sort_by_key(|s| (s.reference == Some(Reference::Derivation), s.since, s.memory_id));
        let ids: Vec<(MemoryId, bool)> =
            order.into_iter().map(|s| (s.memory_id, s.reference == Some(Reference::Derivation))).collect();
        let mut over = total.saturating_sub(self.settings.capacity);
        for (id, derived) in ids {
            let wanted = if derived && over > 0 { Wanted::OverCapacity } else { Wanted::ByRule };
            let archived = self.subjects.get(&id).is_some_and(|s| s.status == Status::Archived);
            if self.ask(AutoRule::Purge, wanted, id) && archived {
                over = over.saturating_sub(1);
            }
        }
    }

    /// The subject as the steps so far leave it.
    #[must_use]
    pub fn subject(&self, id: MemoryId) -> Option<&Subject> {
        self.subjects.get(&id)
    }

    /// The plan.
    #[must_use]
    pub fn finish(self) -> Vec<Step> {
        self.steps
    }
}

fn oldest_first(mut subjects: Vec<&Subject>) -> Vec<MemoryId> {
    subjects.sort_by_key(|s| (s.event_time, s.memory_id));
    subjects.into_iter().map(|s| s.memory_id).collect()
}

/// Which of two records that say the same stays (A167, case C166): the one that is used more, then the more important, the
/// better founded, the older. `Less` is `a`.
#[must_use]
pub fn survivor(a: (&Subject, u64, u8), b: (&Subject, u64, u8)) -> std::cmp::Ordering {
    let key = |(s, cites, rank): (&Subject, u64, u8)| {
        (
            Reverse(s.protected),
            Reverse(cites),
            Reverse(s.importance),
            Reverse(s.confirmed),
            Reverse(rank),
            s.create_time,
            s.memory_id,
        )
    };
    key(a).cmp(&key(b))
}

#[cfg(test)]
mod tests;
