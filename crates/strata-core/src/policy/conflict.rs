//! What a statement does to the records of its slot (rules K1 to K11): pure decisions over facts read in the write's own
//! transaction. Similarity may suggest a conflict, only the slot decides one (case C005).
//!
//! The caller reads [`SlotFacts`], asks [`decide`], and carries the [`Ruling`] out: nothing in here knows a store.

use super::gate::{Standing, is_user};
use crate::id::FactKey;
use crate::record::{Source, SourceRef, Status, Tier};
use crate::rule::Finding;
use crate::text::{Aspect, ValueKind};
use crate::{MemoryId, Timestamp};
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// Place of a source in the ranking: larger outranks.
///
/// User words are equal among themselves and outrank a record system; observations and reviews are equal; inferences
/// come last. On a system-owned key the system ranks first.
#[must_use]
pub const fn rank(source: Source, system_owned: bool) -> u8 {
    match source {
        Source::AuthoritativeSystem if system_owned => 5,
        Source::UserCorrection | Source::UserStatement | Source::UserConfirmation => 4,
        Source::AuthoritativeSystem => 3,
        Source::Observation | Source::Review => 2,
        Source::ModelInference => 1,
        Source::ToolResult | Source::Document => 0,
    }
}

/// The stronger of two sources; between equals the one that says more: correction, confirmation, statement.
#[must_use]
pub fn strongest(a: Source, b: Source) -> Source {
    match rank(a, false).cmp(&rank(b, false)) {
        Ordering::Greater => a,
        Ordering::Less => b,
        Ordering::Equal => {
            let order = [Source::UserCorrection, Source::UserConfirmation, Source::UserStatement, Source::Observation];
            order.into_iter().find(|s| *s == a || *s == b).unwrap_or(a)
        }
    }
}

/// When a statement was made: its event time, and its turn where it has one (rule K5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Event time.
    pub time: Timestamp,
    /// Session and turn number.
    pub turn: Option<(String, u32)>,
}

impl Moment {
    /// The moment of a statement with this reference.
    #[must_use]
    pub fn new(time: Timestamp, source_ref: Option<&SourceRef>) -> Self {
        let turn = match source_ref {
            Some(SourceRef::Turn { session_id, seq }) => Some((session_id.clone(), *seq)),
            Some(SourceRef::SystemRecord { .. } | SourceRef::Confirmation { .. } | SourceRef::Task { .. }) | None => None,
        };
        Self { time, turn }
    }

    /// Whether it lies strictly before `other`: by time, and at equal times by turn number within one session.
    #[must_use]
    pub fn is_before(&self, other: &Self) -> bool {
        match self.time.cmp(&other.time) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => match (&self.turn, &other.turn) {
                (Some((a, m)), Some((b, n))) => a == b && m < n,
                _ => false,
            },
        }
    }
}

/// Event time by the key's hybrid clock: the statement's own time, but never at or before the key's last one. Order thus
/// depends neither on ids nor on the resolution of the clock, and a clock that steps back changes nothing (case C063).
#[must_use]
pub fn event_time(stated: Timestamp, last: Option<Timestamp>) -> Timestamp {
    last.map_or(stated, |last| stated.max(last.plus(1)))
}

/// A record of the slot that is part of its chain: ACTIVE, or SUPERSEDED.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Id.
    pub memory_id: MemoryId,
    /// ACTIVE or SUPERSEDED.
    pub status: Status,
    /// Strongest source.
    pub source: Source,
    /// Confirmed by the user.
    pub confirmed: bool,
    /// When it was stated.
    pub moment: Moment,
    /// When the service learned it.
    pub create_time: Timestamp,
    /// Start of its valid time.
    pub valid_from: Option<Timestamp>,
    /// End (exclusive) of its valid time.
    pub valid_to: Option<Timestamp>,
    /// What it says, in normal form.
    pub slot_value: String,
    /// The record that replaced it.
    pub superseded_by: Option<MemoryId>,
}

/// A candidate of the slot that a model inferred (rule K4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inferred {
    /// Id.
    pub memory_id: MemoryId,
    /// CANDIDATE or DISPUTED.
    pub status: Status,
    /// What it says, in normal form.
    pub slot_value: String,
}

/// What the transaction knows about a slot: same owner level, key and tier.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SlotFacts {
    /// The chain, in any order. Expired records are not in it.
    pub chain: Vec<Link>,
    /// Inferred candidates.
    pub inferred: Vec<Inferred>,
    /// A record system has the last word.
    pub system_owned: bool,
}

/// The statement that asks.
#[derive(Clone, Debug, PartialEq)]
pub struct Incoming<'a> {
    /// What the gate lets it become.
    pub standing: Standing,
    /// Source.
    pub source: Source,
    /// Slot; keyless statements conflict with nothing here.
    pub key: Option<&'a FactKey>,
    /// Values of the slot live side by side (rule K11).
    pub is_set: bool,
    /// Retention: tiers do not compete with each other (rules K6, K10).
    pub tier: Tier,
    /// What it says, in normal form.
    pub slot_value: &'a str,
    /// Normal form of the quote: a correction of a set names the value it replaces in it (rule K11).
    pub quote_normal: &'a str,
    /// When it was stated, before the hybrid clock.
    pub moment: Moment,
    /// Start of its valid time.
    pub valid_from: Option<Timestamp>,
    /// End (exclusive) of its valid time.
    pub valid_to: Option<Timestamp>,
    /// The registry gives the user the last word: the system never takes the key over.
    pub user_authority: bool,
    /// Records of other slots, or of none, that its own words replace (rule K0).
    pub replaces: &'a [MemoryId],
    /// The record it may replace, by what both say (rule K0).
    pub may_replace: Option<MemoryId>,
    /// Arrival.
    pub now: Timestamp,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It becomes active.
    Active {
        /// Records that become SUPERSEDED by it, newest last.
        supersede: Vec<MemoryId>,
        /// Records that stay ACTIVE until this instant.
        close: Vec<(MemoryId, Timestamp)>,
        /// End of its own valid time, where a later value is known already.
        valid_to: Option<Timestamp>,
        /// User values that a record system replaced: each is queued as a question.
        queue: Vec<MemoryId>,
        /// A record that stays ACTIVE and that it may replace: put to the user (rule K0).
        may_replace: Option<MemoryId>,
    },
    /// It waits.
    Candidate {
        /// The ACTIVE record it could not replace.
        conflicts_with: Option<MemoryId>,
        /// It is to be put to the user now.
        due: bool,
    },
    /// It and these inferred candidates disagree (rule K4).
    Disputed {
        /// The others.
        with: Vec<MemoryId>,
        /// The ACTIVE record they could not replace.
        conflicts_with: Option<MemoryId>,
    },
    /// It is older than the active value: placed in the chain (rule K5).
    History {
        /// The record before it.
        after: Option<MemoryId>,
        /// The record that replaced it.
        before: MemoryId,
    },
}

/// A decision, with the rule that made it and every finding.
#[derive(Clone, Debug, PartialEq)]
pub struct Ruling {
    /// What is to be done.
    pub decision: Decision,
    /// The rule, for reason and history.
    pub rule: &'static str,
    /// Why, in one sentence that begins with the rule.
    pub reason: String,
    /// Findings.
    pub findings: Vec<Finding>,
}

impl Ruling {
    fn new(decision: Decision, rule: &'static str, outcome: &'static str, because: &str) -> Self {
        Self { decision, rule, reason: format!("{rule}: {because}"), findings: vec![Finding::new(rule, outcome, because)] }
    }

    fn active(incoming: &Incoming<'_>) -> Decision {
        Decision::Active {
            supersede: incoming.replaces.to_vec(),
            close: Vec::new(),
            valid_to: incoming.valid_to,
            queue: Vec::new(),
            may_replace: incoming.may_replace.filter(|_| incoming.replaces.is_empty()),
        }
    }
}

/// Decides. The statement is new: the same statement again is rule G10's business and never gets here.
#[must_use]
pub fn decide(incoming: &Incoming<'_>, facts: &SlotFacts) -> Ruling {
    if incoming.key.is_none() {
        return keyless(incoming);
    }
    if incoming.tier == Tier::Event {
        return match incoming.standing {
            Standing::Candidate | Standing::NeedsConsent => waiting(None, false, "G2", "waits for confirmation"),
            Standing::Temporary | Standing::Active => Ruling::new(Ruling::active(incoming), "K6", "APPENDED", "events append"),
        };
    }
    if incoming.is_set {
        return set(incoming, facts);
    }
    let system_owned = owned_by_system(incoming, facts);
    let active: Vec<&Link> =
        facts.chain.iter().filter(|link| link.status == Status::Active && overlaps(incoming, link)).collect();
    let rival = active.iter().copied().reduce(|a, b| if a.moment.is_before(&b.moment) { b } else { a });
    if incoming.standing <= Standing::Candidate {
        return candidate(incoming, facts, rival);
    }
    let Some(rival) = rival else {
        return Ruling::new(Ruling::active(incoming), "K1", "ACTIVE", "nothing else holds the slot");
    };
    let mine = rank(incoming.source, system_owned);
    let outranked = active.iter().any(|link| rank(link.source, system_owned) > mine);
    if outranked {
        let queued = system_owned && is_user(incoming.source);
        let because = if queued {
            "a record system owns the key: the difference is put to the user"
        } else {
            "a stronger source holds the slot"
        };
        return waiting(Some(rival.memory_id), queued, "K2", because);
    }
    if incoming.moment.is_before(&rival.moment) {
        return late(incoming, facts, rival);
    }
    replace(incoming, &active, system_owned)
}

/// Whether the system ranks first once this statement is in: a record system takes a key over with its first write unless
/// the registry gives it to the user.
#[must_use]
pub fn owned_by_system(incoming: &Incoming<'_>, facts: &SlotFacts) -> bool {
    !incoming.user_authority
        && (facts.system_owned || (incoming.source == Source::AuthoritativeSystem && incoming.standing > Standing::Candidate))
}

fn keyless(incoming: &Incoming<'_>) -> Ruling {
    match incoming.standing {
        Standing::NeedsConsent | Standing::Candidate => waiting(None, false, "G2", "waits for confirmation"),
        Standing::Temporary | Standing::Active => {
            let (outcome, because) = match (incoming.replaces, incoming.may_replace) {
                ([], None) => ("ACTIVE", "no slot, so nothing to replace"),
                ([], Some(_)) => ("POSSIBLE_SUPERSESSION", "says otherwise of what another record speaks of: put to the user"),
                _ => ("SUPERSEDED", "its words say that what another record says is over"),
            };
            Ruling::new(Ruling::active(incoming), "K0", outcome, because)
        }
    }
}

fn waiting(conflicts_with: Option<MemoryId>, due: bool, rule: &'static str, because: &str) -> Ruling {
    Ruling::new(Decision::Candidate { conflicts_with, due }, rule, "CANDIDATE", because)
}

fn candidate(incoming: &Incoming<'_>, facts: &SlotFacts, rival: Option<&Link>) -> Ruling {
    let conflicts_with = rival.map(|link| link.memory_id);
    let inferred = incoming.source == Source::ModelInference;
    if inferred {
        let with: Vec<MemoryId> =
            facts.inferred.iter().filter(|other| other.slot_value != incoming.slot_value).map(|other| other.memory_id).collect();
        if !with.is_empty() {
            let decision = Decision::Disputed { with, conflicts_with };
            return Ruling::new(decision, "K4", "DISPUTED", "two inferences disagree: put to the user");
        }
    }
    match rival {
        Some(old) if old.confirmed && inferred => {
            waiting(conflicts_with, true, "K3", "the user confirmed another value: put to the user")
        }
        Some(_) => waiting(conflicts_with, false, "K2", "another value holds the slot"),
        None => waiting(None, false, "G2", "waits for confirmation"),
    }
}

/// Rule K11: values live side by side; a correction replaces the value its quote names.
fn set(incoming: &Incoming<'_>, facts: &SlotFacts) -> Ruling {
    if incoming.standing <= Standing::Candidate {
        return waiting(None, false, "K11", "waits for confirmation");
    }
    let mine = rank(incoming.source, owned_by_system(incoming, facts));
    let named: Vec<MemoryId> = facts
        .chain
        .iter()
        .filter(|link| incoming.source == Source::UserCorrection && link.status == Status::Active)
        .filter(|link| link.slot_value != incoming.slot_value && incoming.quote_normal.contains(&link.slot_value))
        .filter(|link| rank(link.source, owned_by_system(incoming, facts)) <= mine)
        .map(|link| link.memory_id)
        .collect();
    let because =
        if named.is_empty() { "values of a set live side by side" } else { "the correction names the value it replaces" };
    let decision = Decision::Active {
        supersede: named,
        close: Vec::new(),
        valid_to: incoming.valid_to,
        queue: Vec::new(),
        may_replace: None,
    };
    Ruling::new(decision, "K11", "ACTIVE", because)
}

/// Rule K5: the statement goes into the chain at its own time.
fn late(incoming: &Incoming<'_>, facts: &SlotFacts, rival: &Link) -> Ruling {
    let before = facts
        .chain
        .iter()
        .filter(|link| incoming.moment.is_before(&link.moment))
        .reduce(|a, b| if b.moment.is_before(&a.moment) { b } else { a })
        .map_or(rival.memory_id, |link| link.memory_id);
    let after = facts.chain.iter().find(|link| link.superseded_by == Some(before)).map(|link| link.memory_id);
    Ruling::new(Decision::History { after, before }, "K5", "HISTORY", "stated before the value that holds now")
}

/// Rule K1, and valid time: one ACTIVE per instant.
fn replace(incoming: &Incoming<'_>, active: &[&Link], system_owned: bool) -> Ruling {
    let future = incoming.valid_from.is_some_and(|from| from > incoming.now);
    let (mut supersede, mut close, mut valid_to) = (Vec::new(), Vec::new(), incoming.valid_to);
    for link in active {
        match (incoming.valid_from, link.valid_from) {
            (Some(from), _) if future && start(link) < from => close.push((link.memory_id, from)),
            // A value announced for later stays announced, unless the user takes it back.
            (_, Some(later)) if !future && later > incoming.now && incoming.source != Source::UserCorrection => {
                valid_to = Some(valid_to.map_or(later, |end| end.min(later)));
            }
            _ => supersede.push(*link),
        }
    }
    supersede.sort_by(|a, b| a.moment.time.cmp(&b.moment.time).then(a.memory_id.cmp(&b.memory_id)));
    let queue = if system_owned && incoming.source == Source::AuthoritativeSystem {
        supersede.iter().filter(|link| is_user(link.source)).map(|link| link.memory_id).collect()
    } else {
        Vec::new()
    };
    let (outcome, because) = if supersede.is_empty() {
        ("ACTIVE", "holds from a later time on: the value before it ends there")
    } else {
        ("SUPERSEDED", "a newer statement of equal or higher rank replaces the value")
    };
    let of_slot = supersede.iter().map(|link| link.memory_id);
    // The chain of the slot last, since that one is the predecessor.
    let supersede =
        incoming.replaces.iter().copied().filter(|id| active.iter().all(|link| link.memory_id != *id)).chain(of_slot).collect();
    let may_replace = incoming.may_replace.filter(|_| incoming.replaces.is_empty());
    Ruling::new(Decision::Active { supersede, close, valid_to, queue, may_replace }, "K1", outcome, because)
}

fn start(link: &Link) -> Timestamp {
    link.valid_from.unwrap_or(link.moment.time)
}

/// What a statement does to another that it shares no slot with (rule K0).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Replacement {
    /// It may replace it: both stay, linked, until the user says.
    May,
    /// Its own words say that it does.
    Says,
}

/// Share of an old statement's topics that a new one must name as over to replace it.
const FORMER_SHARE: f64 = 0.5;
/// Least share for a question.
const FORMER_ASK: f64 = 0.25;
/// Share of the smaller statement's topics that two statements about one thing have in common.
const TOPIC_SHARE: f64 = 0.5;
/// The same where nothing says that anything has changed.
const TOPIC_SHARE_UNSAID: f64 = 0.6;
/// Share of the least cosine of two statements about one thing under which common words are a coincidence.
const FAR_SHARE: f64 = 0.6;
/// The same for a kind of thing of which there is said to be another one now.
const RENEWED_SHARE: f64 = 0.75;
/// Relations that hold to one thing at a time: who drives a Tesla now drives no Honda.
const EXCLUSIVE: &[&str] = &["live", "work", "drive", "commute", "wake", "sleep", "bank", "weigh", "role"];

/// Rule K0: whether `new` replaces `old`, judged by what they say. `cosine` is their similarity, `near` the least cosine of
/// two statements about one thing; none without an embedder. Both are in force, of one owner, and `new` is the later.
#[must_use]
pub fn replacement(old: &Aspect, new: &Aspect, cosine: Option<f64>, near: f64) -> Option<Replacement> {
    if old.subject != new.subject || new.adds || old.episode || (!new.changes && new.episode) {
        return None;
    }
    // Two things with a value each: "Bruno weighs 12 kg", "Luna weighs 9 kg".
    if !old.heads.is_empty() && !new.heads.is_empty() && old.heads.is_disjoint(&new.heads) {
        return None;
    }
    let value_differs = value_differs(old, new);
    let related = compatible(&old.relations, &new.relations);
    let said_otherwise = old.denies != new.denies;

    // What is over is named.
    // A name among them decides: who closes "my Monzo account" banks with Monzo.
    let values: BTreeSet<&String> = new.former.difference(&new.frame).collect();
    let over = match values.is_empty() {
        true => !new.former.is_empty() && new.former.is_subset(&old.topics),
        false => values.iter().all(|topic| old.topics.contains(*topic)),
    };
    if new.changes && related && over {
        let named = share(new.former.intersection(&old.topics).count(), old.topics.len());
        // What else the old one speaks of is not what the new one speaks of: "my cat eats turkey", "my dog is off turkey".
        let rest: BTreeSet<&String> = old.topics.difference(&new.former).collect();
        let beside: BTreeSet<&String> = new.frame.difference(&new.former).collect();
        let elsewhere = !rest.is_empty() && !beside.is_empty() && rest.is_disjoint(&beside);
        match (named >= FORMER_SHARE, elsewhere) {
            (true, false) => return Some(Replacement::Says),
            (true, true) if named > FORMER_SHARE => return Some(Replacement::May),
            (false, false) if named >= FORMER_ASK => return Some(Replacement::May),
            _ => {}
        }
    }
    // The same place with another value in it.
    let smaller = old.frame.len().min(new.frame.len());
    let larger = old.frame.len().max(new.frame.len());
    let one_frame = smaller > 0
        && (old.frame.is_subset(&new.frame) || new.frame.is_subset(&old.frame))
        && share(smaller, larger) >= TOPIC_SHARE;
    let same_relation = !old.relations.is_disjoint(&new.relations);
    if new.changes && one_frame && related && (value_differs || said_otherwise) {
        // Of a wider frame only a part is said to be otherwise: "my cat is called Momo", "I switched my cat's food to Orijen".
        let whole = old.frame == new.frame || same_relation;
        return Some(if whole { Replacement::Says } else { Replacement::May });
    }
    let exclusive = EXCLUSIVE.iter().any(|class| old.relations.contains(*class) && new.relations.contains(*class));
    if new.changes && exclusive && value_differs && old.frame == new.frame {
        return Some(Replacement::Says);
    }
    let in_common = old.topics.intersection(&new.topics).count();
    let common = share(in_common, old.topics.len().min(new.topics.len()));
    let other_object = !old.topics.is_subset(&new.topics) && !new.topics.is_subset(&old.topics);
    let far = cosine.is_some_and(|cosine| cosine < near * FAR_SHARE);
    if new.changes && related {
        let overlapping = common >= TOPIC_SHARE && (value_differs || said_otherwise);
        // A word more or less says nothing: what is cut into pairs of letters counts as several.
        let as_wide = old.frame.len() <= new.frame.len() + 1;
        let other = other_object && (common >= TOPIC_SHARE && !far || exclusive && as_wide);
        // The kind of thing of which there is another one is named in the older statement, or by the same doing, or meant.
        let meant = cosine.is_some_and(|cosine| cosine >= near * RENEWED_SHARE);
        let of_kind = !new.renewed.is_disjoint(&old.topics) || !new.renewed.is_empty() && (same_relation || meant);
        let renewed = other_object && of_kind;
        if overlapping || other || renewed {
            return Some(Replacement::May);
        }
    }
    if related && one_frame && common >= TOPIC_SHARE_UNSAID && (value_differs || said_otherwise) {
        return Some(Replacement::May);
    }
    let close = cosine.is_some_and(|cosine| cosine >= near);
    (close && (value_differs || said_otherwise || new.changes && other_object)).then_some(Replacement::May)
}

/// What a protected value measures: only values of one class stand for each other.
fn value_class(kind: ValueKind, normal: &str) -> (ValueKind, &str) {
    let class = match kind {
        ValueKind::Amount => normal.rsplit_once(' ').map_or("", |(_, unit)| unit),
        ValueKind::Time if normal.starts_with("week") => "weekday",
        ValueKind::Time if normal.contains(':') => "clock",
        ValueKind::Time if normal.contains(' ') => "span",
        ValueKind::Time => "date",
        ValueKind::Name | ValueKind::Id | ValueKind::Number | ValueKind::Url => "",
    };
    (kind, class)
}

/// Whether `new` names another value of a class that `old` names one of.
fn value_differs(old: &Aspect, new: &Aspect) -> bool {
    // Who says that something has changed may name what it was before: "I ditched Chrome, my browser is Brave".
    let replaced = old.values.iter().filter(|value| new.changes || !new.values.contains(*value));
    replaced.into_iter().any(|(kind, normal)| {
        let class = value_class(*kind, normal);
        new.values.difference(&old.values).any(|(kind, normal)| value_class(*kind, normal) == class)
    })
}

#[expect(clippy::cast_precision_loss, reason = "counts of words")]
fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Whether two relations may be about one thing: the same, unknown, or an attitude towards what is done.
fn compatible(a: &BTreeSet<String>, b: &BTreeSet<String>) -> bool {
    let towards = |x: &BTreeSet<String>, y: &BTreeSet<String>| {
        x.contains("attitude") && y.iter().all(|class| !matches!(class.as_str(), "own" | "live" | "work"))
    };
    a.is_empty() || b.is_empty() || !a.is_disjoint(b) || towards(a, b) || towards(b, a)
}

/// Whether both hold at some instant. A statement about a time that is over does not touch what holds now.
fn overlaps(incoming: &Incoming<'_>, link: &Link) -> bool {
    let over = |to: Option<Timestamp>, stated: Timestamp| to.is_some_and(|to| to <= stated);
    let from = incoming.valid_from.unwrap_or(if over(incoming.valid_to, incoming.moment.time) {
        Timestamp(i64::MIN)
    } else {
        incoming.moment.time
    });
    let ends_before = |to: Option<Timestamp>, from: Timestamp| to.is_some_and(|to| to <= from);
    !ends_before(incoming.valid_to, start(link)) && !ends_before(link.valid_to, from)
}

/// Rule K7: whether the slot changed since the candidate was made, and the user was not told of that yet: then the user
/// is asked again. Answers the record that holds the slot now.
#[must_use]
pub fn asks_again(candidate_since: Timestamp, candidate_conflict: Option<MemoryId>, facts: &SlotFacts) -> Option<MemoryId> {
    let active = facts.chain.iter().filter(|link| link.status == Status::Active);
    let newest = active.reduce(|a, b| if a.moment.is_before(&b.moment) { b } else { a })?;
    (candidate_conflict != Some(newest.memory_id) && newest.create_time >= candidate_since).then_some(newest.memory_id)
}

/// Label of a record in force that a newer one may replace (rule K0), wherever it is shown.
pub const POSSIBLY_SUPERSEDED: &str = "POSSIBLY SUPERSEDED";

/// Rule K8: of two active values of one slot only the newer is returned. Answers the indexes to drop, given slots (`None`
/// for keyless records, sets and events) and moments in the order of the list.
#[must_use]
pub fn second_check<S: PartialEq>(items: &[(Option<S>, Moment)]) -> Vec<usize> {
    let mut drop = Vec::new();
    for (i, (slot, moment)) in items.iter().enumerate() {
        let Some(slot) = slot else { continue };
        let beaten = items.iter().enumerate().any(|(j, (other, at))| {
            i != j && other.as_ref() == Some(slot) && (moment.is_before(at) || (!at.is_before(moment) && j < i))
        });
        if beaten {
            drop.push(i);
        }
    }
    drop
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn id(n: u128) -> MemoryId {
        MemoryId(Uuid::from_u128(n))
    }

    fn link(n: u128, source: Source, time: i64) -> Link {
        Link {
            memory_id: id(n),
            status: Status::Active,
            source,
            confirmed: false,
            moment: Moment { time: Timestamp(time), turn: None },
            create_time: Timestamp(time),
            valid_from: None,
            valid_to: None,
            slot_value: format!("old{n}"),
            superseded_by: None,
        }
    }

    fn incoming(key: &FactKey, source: Source, standing: Standing, time: i64) -> Incoming<'_> {
        Incoming {
            standing,
            source,
            key: Some(key),
            is_set: key.is_set(),
            tier: Tier::Stable,
            slot_value: "new",
            quote_normal: "",
            moment: Moment { time: Timestamp(time), turn: None },
            valid_from: None,
            valid_to: None,
            user_authority: false,
            replaces: &[],
            may_replace: None,
            now: Timestamp(time),
        }
    }

    fn key(text: &str) -> FactKey {
        FactKey::new(text).expect("key")
    }

    fn facts(chain: Vec<Link>) -> SlotFacts {
        SlotFacts { chain, ..SlotFacts::default() }
    }

    const RANKED: [Source; 7] = [
        Source::UserCorrection,
        Source::UserStatement,
        Source::UserConfirmation,
        Source::AuthoritativeSystem,
        Source::Observation,
        Source::Review,
        Source::ModelInference,
    ];

    #[test]
    fn a102_k1_k2_every_ordered_pair_of_sources() {
        // Written out: classes of equal rank, outermost first.
        let class = |source| match source {
            Source::UserCorrection | Source::UserStatement | Source::UserConfirmation => 0,
            Source::AuthoritativeSystem => 1,
            Source::Observation | Source::Review => 2,
            Source::ModelInference | Source::ToolResult | Source::Document => 3,
        };
        let key = key("a");
        for old in RANKED {
            for new in RANKED {
                for user_authority in [true, false] {
                    let mut asks = incoming(&key, new, Standing::Active, 10);
                    asks.user_authority = user_authority;
                    let ruling = decide(&asks, &facts(vec![link(1, old, 5)]));
                    // With its first write a record system takes the key over, unless it is the user's.
                    let system_first = !user_authority && new == Source::AuthoritativeSystem;
                    if class(new) <= class(old) || system_first {
                        let Decision::Active { supersede, queue, .. } = &ruling.decision else {
                            panic!("{old:?} {new:?} {ruling:?}")
                        };
                        assert_eq!((supersede.as_slice(), ruling.rule), (&[id(1)][..], "K1"), "{old:?} {new:?}");
                        assert_eq!(!queue.is_empty(), system_first && class(old) == 0, "{old:?} {new:?}");
                    } else {
                        let expected = Decision::Candidate { conflicts_with: Some(id(1)), due: false };
                        assert_eq!((&ruling.decision, ruling.rule), (&expected, "K2"), "{old:?} {new:?}");
                    }
                }
            }
        }
    }

    /// The rows of the rules, written out apart from the code: which one decides over `old` and `new`.
    fn row(old: Source, new: Source, confirmed: bool, late: bool, active: bool, owned: bool, users: bool) -> &'static str {
        let class = |source| match source {
            Source::UserCorrection | Source::UserStatement | Source::UserConfirmation => 2,
            Source::AuthoritativeSystem => 3,
            Source::Observation | Source::Review => 4,
            Source::ModelInference => 5,
            Source::ToolResult | Source::Document => 6,
        };
        let system_first = !users && (owned || active && new == Source::AuthoritativeSystem);
        let place = |source| if system_first && source == Source::AuthoritativeSystem { 1 } else { class(source) };
        match (active, place(new) <= place(old)) {
            (false, _) if new == Source::ModelInference && confirmed => "K3",
            (false, _) | (true, false) => "K2",
            (true, true) if late => "K5",
            (true, true) => "K1",
        }
    }

    #[test]
    fn k1_to_k11_every_ordered_pair_of_sources_in_every_situation() {
        let (single, many) = (key("a"), key("a[]"));
        let flags = [false, true];
        let mut rows = 0;
        for (old, new) in RANKED.into_iter().flat_map(|old| RANKED.into_iter().map(move |new| (old, new))) {
            for bits in 0..32_u8 {
                let [confirmed, late, active, owned, users] = [0, 1, 2, 3, 4].map(|bit| flags[usize::from(bits >> bit & 1)]);
                let standing = if active { Standing::Active } else { Standing::Candidate };
                let mut there = link(1, old, 5);
                there.confirmed = confirmed;
                let there = SlotFacts { chain: vec![there], system_owned: owned, ..SlotFacts::default() };
                let mut asks = incoming(&single, new, standing, if late { 3 } else { 10 });
                asks.now = Timestamp(10);
                asks.user_authority = users;
                let what =
                    format!("{old:?} {new:?} confirmed {confirmed} late {late} active {active} owned {owned} users {users}");
                // A waiting statement about a time before the value that holds is beside the point of K2 and K3.
                let ruling = decide(&asks, &there);
                assert_eq!(ruling.rule, row(old, new, confirmed, late, active, owned, users), "{what}");
                let replaced = matches!(&ruling.decision, Decision::Active { supersede, .. } if *supersede == [id(1)]);
                assert_eq!(replaced, ruling.rule == "K1", "{what}: nothing but K1 replaces");
                // K4 is asked before K1: two inferences that disagree.
                let other = Inferred { memory_id: id(7), status: Status::Candidate, slot_value: "else".into() };
                let disputed = decide(&asks, &SlotFacts { inferred: vec![other], ..there.clone() });
                let disputes = !active && new == Source::ModelInference;
                assert_eq!(disputed.rule == "K4", disputes, "{what}");
                // K6: events append; K10: a tier of its own competes with nothing of another; K11: sets live side by side.
                asks.tier = Tier::Event;
                assert_eq!(decide(&asks, &there).rule, if active { "K6" } else { "G2" }, "{what}");
                asks.tier = Tier::Temporary;
                asks.standing = if active { Standing::Temporary } else { Standing::Candidate };
                let alone = decide(&asks, &SlotFacts { system_owned: owned, ..SlotFacts::default() });
                assert_eq!(alone.rule, if active { "K1" } else { "G2" }, "{what}");
                (asks.tier, asks.key, asks.is_set, asks.standing) = (Tier::Stable, Some(&many), true, standing);
                assert_eq!(decide(&asks, &there).rule, "K11", "{what}");
                asks.key = None;
                asks.is_set = false;
                assert_eq!(decide(&asks, &SlotFacts::default()).rule, if active { "K0" } else { "G2" }, "{what}");
                rows += 6;
            }
        }
        assert_eq!(rows, 49 * 32 * 6);
    }

    fn says(topics: &[&str], relation: &str) -> Aspect {
        let set = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<BTreeSet<_>>();
        Aspect { topics: set(topics), frame: set(topics), relations: set(&[relation]), ..Aspect::default() }
    }

    #[test]
    fn k0_what_is_named_as_over_is_replaced_and_what_is_like_it_is_asked_about() {
        let former = |words: &[&str], aspect: Aspect| Aspect {
            former: words.iter().map(|word| (*word).to_owned()).collect(),
            changes: true,
            ..aspect
        };
        let coffee = says(&["coffee"], "consume");
        assert_eq!(replacement(&coffee, &former(&["coffee"], says(&["coffee"], "consume")), None, 1.0), Some(Replacement::Says));
        // The word stands in it, and it is about something else.
        let farm = says(&["coffee", "farm", "peru", "family"], "own");
        assert_eq!(replacement(&farm, &former(&["coffee"], says(&["coffee"], "consume")), None, 1.0), None);
        // Somebody else's.
        let sister = Aspect { subject: Some("sister".into()), ..coffee.clone() };
        assert_eq!(replacement(&sister, &former(&["coffee"], coffee.clone()), Some(0.9), 0.6), None);
        // Not said, only denied.
        let denied = Aspect { denies: true, ..coffee.clone() };
        assert_eq!(replacement(&coffee, &denied, None, 1.0), Some(Replacement::May));
        assert_eq!(replacement(&coffee, &Aspect { adds: true, ..denied.clone() }, None, 1.0), None);
        assert_eq!(replacement(&Aspect { episode: true, ..coffee.clone() }, &denied, None, 1.0), None);
        assert_eq!(replacement(&coffee, &says(&["tea"], "consume"), Some(0.9), 0.6), None, "a second liking");
    }

    #[test]
    fn a77_on_a_system_owned_key_talk_is_queued_as_a_conflict() {
        let key = key("employee.id");
        let owned =
            SlotFacts { chain: vec![link(1, Source::AuthoritativeSystem, 5)], system_owned: true, ..SlotFacts::default() };
        for source in [Source::UserStatement, Source::UserCorrection, Source::UserConfirmation] {
            let ruling = decide(&incoming(&key, source, Standing::Active, 10), &owned);
            assert_eq!(ruling.decision, Decision::Candidate { conflicts_with: Some(id(1)), due: true }, "{source:?}");
        }
        let ruling = decide(&incoming(&key, Source::AuthoritativeSystem, Standing::Active, 10), &owned);
        assert!(matches!(ruling.decision, Decision::Active { .. }));
    }

    #[test]
    fn a99_a100_k2_k3_an_inference_never_replaces() {
        let key = key("a");
        for (confirmed, rule, due) in [(false, "K2", false), (true, "K3", true)] {
            let mut old = link(1, Source::UserStatement, 5);
            old.confirmed = confirmed;
            let ruling = decide(&incoming(&key, Source::ModelInference, Standing::Candidate, 10), &facts(vec![old]));
            assert_eq!((ruling.decision, ruling.rule), (Decision::Candidate { conflicts_with: Some(id(1)), due }, rule));
        }
    }

    #[test]
    fn a101_k4_two_inferences_are_disputed() {
        let key = key("a");
        let other = |value: &str| Inferred { memory_id: id(7), status: Status::Candidate, slot_value: value.into() };
        let ask = incoming(&key, Source::ModelInference, Standing::Candidate, 10);
        let ruling = decide(&ask, &SlotFacts { inferred: vec![other("else")], ..SlotFacts::default() });
        assert_eq!(ruling.decision, Decision::Disputed { with: vec![id(7)], conflicts_with: None });
        let ruling = decide(&ask, &SlotFacts { inferred: vec![other("new")], ..SlotFacts::default() });
        assert_eq!(ruling.decision, Decision::Candidate { conflicts_with: None, due: false });
        let ask = incoming(&key, Source::UserStatement, Standing::Candidate, 10);
        let ruling = decide(&ask, &SlotFacts { inferred: vec![other("else")], ..SlotFacts::default() });
        assert_eq!(ruling.decision, Decision::Candidate { conflicts_with: None, due: false });
    }

    #[test]
    fn k5_a_late_statement_goes_into_the_chain_at_its_time() {
        let key = key("a");
        let mut oldest = link(1, Source::UserStatement, 10);
        oldest.status = Status::Superseded;
        oldest.superseded_by = Some(id(2));
        let mut middle = link(2, Source::UserStatement, 20);
        middle.status = Status::Superseded;
        middle.superseded_by = Some(id(3));
        let chain = vec![oldest, middle, link(3, Source::UserStatement, 30)];
        for (time, after, before) in [(5, None, 1), (15, Some(1), 2), (25, Some(2), 3)] {
            let ruling = decide(&incoming(&key, Source::UserCorrection, Standing::Active, time), &facts(chain.clone()));
            assert_eq!(ruling.decision, Decision::History { after: after.map(id), before: id(before) }, "at {time}");
        }
        let ruling = decide(&incoming(&key, Source::UserStatement, Standing::Active, 30), &facts(chain));
        assert!(
            matches!(ruling.decision, Decision::Active { ref supersede, .. } if *supersede == [id(3)]),
            "equal time is not earlier"
        );
    }

    #[test]
    fn k5_within_a_session_turn_numbers_decide_at_equal_times() {
        let at = |seq| Moment { time: Timestamp(5), turn: Some(("s".into(), seq)) };
        assert!(at(1).is_before(&at(2)) && !at(2).is_before(&at(1)) && !at(2).is_before(&at(2)));
        assert!(!at(1).is_before(&Moment { time: Timestamp(5), turn: Some(("other".into(), 2)) }));
    }

    #[test]
    fn a80_k6_events_append() {
        let key = key("a");
        let mut ask = incoming(&key, Source::Observation, Standing::Active, 10);
        ask.tier = Tier::Event;
        let ruling = decide(&ask, &facts(vec![link(1, Source::UserStatement, 5)]));
        assert_eq!((ruling.decision, ruling.rule), (Ruling::active(&ask), "K6"));
    }

    #[test]
    fn k7_a_changed_slot_asks_again() {
        let slot = facts(vec![link(1, Source::UserCorrection, 20)]);
        assert_eq!(asks_again(Timestamp(10), None, &slot), Some(id(1)));
        assert_eq!(asks_again(Timestamp(10), Some(id(1)), &slot), None, "the user was told of this one");
        assert_eq!(asks_again(Timestamp(30), None, &slot), None, "it was there before");
        assert_eq!(asks_again(Timestamp(10), None, &SlotFacts::default()), None);
    }

    #[test]
    fn a107_k8_of_two_active_values_only_the_newer_is_returned() {
        let at = |time| Moment { time: Timestamp(time), turn: None };
        let items = [
            (Some("a"), at(1)),
            (None, at(1)),
            (Some("a"), at(2)),
            (None, at(1)),
            (Some("b"), at(0)),
            (Some("c"), at(3)),
            (Some("c"), at(3)),
        ];
        assert_eq!(second_check(&items), [0, 6]);
    }

    #[test]
    fn c007_k11_sets_accumulate_and_a_correction_names_its_value() {
        let key = key("allergy[]");
        let mut peanut = link(1, Source::UserStatement, 5);
        peanut.slot_value = "peanut".into();
        let mut shrimp = link(2, Source::UserStatement, 6);
        shrimp.slot_value = "shrimp".into();
        let slot = facts(vec![peanut, shrimp]);
        let mut ask = incoming(&key, Source::UserStatement, Standing::Active, 10);
        ask.quote_normal = "not peanut but walnut";
        let superseded = |ruling: Ruling| match ruling.decision {
            Decision::Active { supersede, .. } => supersede,
            other @ (Decision::Candidate { .. } | Decision::Disputed { .. } | Decision::History { .. }) => panic!("{other:?}"),
        };
        assert!(superseded(decide(&ask, &slot)).is_empty());
        ask.source = Source::UserCorrection;
        assert_eq!(superseded(decide(&ask, &slot)), [id(1)]);
    }

    #[test]
    fn a_future_value_closes_the_present_one_and_a_present_one_keeps_it() {
        let key = key("city");
        let mut announced = incoming(&key, Source::UserStatement, Standing::Active, 10);
        announced.valid_from = Some(Timestamp(100));
        let present = link(1, Source::UserStatement, 5);
        let ruling = decide(&announced, &facts(vec![present.clone()]));
        let close = vec![(id(1), Timestamp(100))];
        assert_eq!(
            ruling.decision,
            Decision::Active { supersede: vec![], close, valid_to: None, queue: vec![], may_replace: None }
        );

        let mut closed = present;
        closed.valid_to = Some(Timestamp(100));
        let mut future = link(2, Source::UserStatement, 10);
        future.valid_from = Some(Timestamp(100));
        let both = facts(vec![closed, future]);
        let ruling = decide(&incoming(&key, Source::UserStatement, Standing::Active, 20), &both);
        let valid_to = Some(Timestamp(100));
        let expected = Decision::Active { supersede: vec![id(1)], close: vec![], valid_to, queue: vec![], may_replace: None };
        assert_eq!(ruling.decision, expected);
        let ruling = decide(&incoming(&key, Source::UserCorrection, Standing::Active, 20), &both);
        assert!(
            matches!(ruling.decision, Decision::Active { ref supersede, valid_to: None, .. } if *supersede == [id(1), id(2)])
        );
    }

    #[test]
    fn a_value_of_a_time_that_is_over_replaces_nothing() {
        let key = key("city");
        let mut past = incoming(&key, Source::UserStatement, Standing::Active, 10);
        past.valid_to = Some(Timestamp(3));
        let ruling = decide(&past, &facts(vec![link(1, Source::UserStatement, 5)]));
        assert_eq!(ruling.decision, Ruling::active(&past));
    }

    #[test]
    fn c063_the_hybrid_clock_never_repeats_or_steps_back() {
        let mut last = None;
        for stated in [5, 5, 5, 3, 100, 1] {
            let next = event_time(Timestamp(stated), last);
            assert!(last.is_none_or(|last| next > last));
            last = Some(next);
        }
    }

    #[test]
    fn g10_the_strongest_source_stays() {
        for a in RANKED {
            for b in RANKED {
                let s = strongest(a, b);
                assert!(s == a || s == b);
                assert_eq!(rank(s, false), rank(a, false).max(rank(b, false)));
                assert_eq!(s, strongest(b, a), "{a:?} {b:?}");
            }
        }
    }
}
