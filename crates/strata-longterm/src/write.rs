//! The write's one transaction: what is read, asked of the pure rules, and carried out, in the order of the policies:
//! idempotent answer, tombstone (E7), same statement (G10), diverting rules (G4, G9, G11), conflict rules (K), insert.

mod import;
mod parts;
mod revive;
mod sync;
mod update;

pub use import::{Admitted, Landed, land};
pub use parts::{Meant, Put, delete_entity, delete_skill, put_entity, put_skill, relate, unrelate};
pub use revive::{restore, undo};
pub use sync::{Cursor, Item, Synced, sync};
pub use update::{Change, Replaced, amend, replace};

use crate::metadata::insert::{self, Material, Passed, Related, Writing};
use crate::metadata::row::{self, StoredRecord};
use crate::metadata::{Sql as _, StoredOwner, Visible, ledger, owner, query};
use crate::scope::OwnerScope;
use rusqlite::Connection;
use strata_core::policy::conflict::{self, Decision, Incoming, Inferred, Link, Moment, Replacement, Ruling, SlotFacts};
use strata_core::policy::gate::{self, GateSettings, Gated, Standing, Tombstones, is_user, value_normal};
use strata_core::policy::ownership::{self, Place};
use strata_core::policy::quota::Quota;
use strata_core::policy::registry::{Authority, Registry};
use strata_core::record::{Kind, Source, Status, Tier};
use strata_core::rule::Finding;
use strata_core::{FactKey, Fault, MemoryId, Reason, Timestamp};
use strata_runtime::layer::trace;
use strata_runtime::metrics::{Instruments, Label};

/// Why a statement brought no new evidence.
const REPEATED: &str = "the same statement from the same turn or request";

/// What became of a write.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    /// What it came to.
    pub outcome: Outcome,
    /// The record as it stands now; none with [`Outcome::NeedsConsent`].
    pub record: Option<StoredRecord>,
    /// Every finding, in the order they were made.
    pub findings: Vec<Finding>,
    /// The record that was superseded by this write.
    pub superseded: Option<MemoryId>,
    /// The active record it could not replace.
    pub conflicts_with: Option<MemoryId>,
    /// Revision of the user.
    pub revision: u64,
}

/// What a write came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Active.
    Active,
    /// Waits.
    Candidate,
    /// Disagrees with another inference.
    Disputed,
    /// Nothing is stored until the user consents.
    NeedsConsent,
    /// Known before.
    EvidenceAdded,
    /// Placed in the chain as history.
    History,
    /// Fields were changed.
    Updated,
}

/// Whether a refusal concerns one line or fact of a batch, so that the others go on.
const fn concerns_one(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::InvalidField
            | Reason::OwnerMismatch
            | Reason::GateProvenance
            | Reason::GatePii
            | Reason::GateContent
            | Reason::Forgotten
            | Reason::StatusMove
            | Reason::FactOwnedByOtherLayer
    )
}

/// One part of a batch: what fails leaves no trace of it, and the others go on.
///
/// # Errors
/// What concerns the whole batch: a store that fails or is full.
fn apart<T>(db: &Connection, part: impl FnOnce() -> Result<T, Fault>) -> Result<Result<T, Fault>, Fault> {
    db.execute_batch("SAVEPOINT part").sql()?;
    match part() {
        Ok(done) => {
            db.execute_batch("RELEASE part").sql()?;
            Ok(Ok(done))
        }
        Err(fault) => {
            db.execute_batch("ROLLBACK TO part; RELEASE part").sql()?;
            if concerns_one(fault.reason) { Ok(Err(fault)) } else { Err(fault) }
        }
    }
}

impl Outcome {
    /// As the metrics name it.
    const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Candidate => "candidate",
            Self::Disputed => "disputed",
            Self::NeedsConsent => "needs_consent",
            Self::EvidenceAdded => "evidence_added",
            Self::History => "history",
            Self::Updated => "updated",
        }
    }
}

fn count(outcome: &'static str, rule: String) {
    Instruments::global().gate_verdicts.add(1, &[Label::new("outcome", outcome), Label::new("rule", rule)]);
}

/// Counts a statement that the gate refused, by its first rule: ids of rules are few.
pub(crate) fn count_refused(fault: &Fault) {
    count("refused", fault.preconditions.first().map(|first| first.rule.clone()).unwrap_or_default());
}

/// What a write needs beside the statement.
#[derive(Clone, Debug)]
pub struct Context<'a> {
    /// Whose.
    pub scope: &'a OwnerScope,
    /// Who.
    pub actor: &'a str,
    /// Settings, read once per call.
    pub settings: &'a GateSettings,
    /// Digests of erased statements.
    pub tombstones: &'a Tombstones,
    /// What the tenant may keep.
    pub quota: Quota,
    /// Arrival.
    pub now: Timestamp,
}

impl<'a> Context<'a> {
    /// Who writes, as the metadata module wants it.
    pub(crate) fn writing(&self, stored: StoredOwner, path: &'static str) -> Writing<'a> {
        Writing { owner: self.scope.owner(), stored, actor: self.actor, path, quota: self.quota, now: self.now }
    }
}

/// Stores a statement that passed the gate, and those its sentence says beside it (rule K11): the answer is the first's.
///
/// # Errors
/// As [`store`]; all or nothing.
pub fn store_all(db: &Connection, c: &Context<'_>, first: &Passed, others: &[Passed]) -> Result<Written, Fault> {
    let mut written = store(db, c, &first.0, &first.1)?;
    if written.outcome != Outcome::NeedsConsent {
        for (gated, material) in others {
            let other = store(db, c, gated, material)?;
            let id = other.record.as_ref().map(|found| found.record.memory_id.to_string()).unwrap_or_default();
            written.findings.push(Finding::new("K11", "ALSO", format!("the sentence names another value of the set: {id}")));
            written.revision = other.revision;
        }
    }
    Ok(written)
}

/// Stores a statement that passed the gate.
///
/// # Errors
/// `FORGOTTEN`, `FACT_OWNED_BY_OTHER_LAYER`, `OVERLOADED`; as the database says.
pub fn store(db: &Connection, c: &Context<'_>, gated: &Gated, material: &Material) -> Result<Written, Fault> {
    let written = decide_and_store(db, c, gated, material)?;
    count(written.outcome.name(), String::new());
    trace::note_rules(&written.findings);
    Ok(written)
}

fn decide_and_store(db: &Connection, c: &Context<'_>, gated: &Gated, material: &Material) -> Result<Written, Fault> {
    let mut findings = gated.findings().to_vec();
    if gated.standing() == Standing::NeedsConsent {
        return Ok(Written {
            outcome: Outcome::NeedsConsent,
            record: None,
            findings,
            superseded: None,
            conflicts_with: None,
            revision: Visible::of(db, c.scope)?.map_or(0, |visible| visible.revision),
        });
    }
    ledger::check_outbox(db, &c.scope.owner().tenant, c.now)?;
    let stored = owner::ensure(db, c.scope)?;
    let w = c.writing(stored, gated.door().name());
    let s = gated.statement();
    let stated = gated.statement_time().unwrap_or(c.now);
    let digests = c.tombstones.digests(c.scope.owner(), s.kind, gated.key(), gated.normal(), &gated.identity());
    gate::check_forgotten(ledger::erased_at(db, stored, &digests)?, stated)?;

    let written = match same_statement(db, &w, gated)? {
        Some(found) => support(db, c, &w, found, gated, material, &mut findings)?,
        None => create(db, c, &w, gated, material, None, &mut findings)?,
    };
    let revision = owner::next_revision(db, stored.user_id)?;
    Ok(Written { findings, revision, ..written })
}

/// Rule G10: the live record that says the same. Expired ones give way first.
fn same_statement(db: &Connection, w: &Writing<'_>, gated: &Gated) -> Result<Option<StoredRecord>, Fault> {
    let twin = query::twin(db, w.stored, &gated.identity())?;
    if let Some(found) = insert::expire_due(db, w, twin.into_iter().collect())?.pop() {
        return Ok(Some(found));
    }
    if gated.tier() == Tier::Event {
        return Ok(None);
    }
    // The same words with and without a key: a keyless repetition supports the keyed record, never the other way round, or
    // the key would be lost.
    let same = query::same_text(db, w.stored, gated.statement().kind, gated.normal())?;
    let live = insert::expire_due(db, w, same)?;
    Ok(live.into_iter().find(|found| {
        let r = &found.record;
        let key = gated.key().is_none_or(|key| r.key.as_ref() == Some(key));
        let value = gated.value().is_none() || r.value.is_none() || gated.value() == r.value.as_ref();
        key && value && r.tier == gated.tier()
    }))
}

fn create(
    db: &Connection,
    c: &Context<'_>,
    w: &Writing<'_>,
    gated: &Gated,
    material: &Material,
    replaces: Option<&StoredRecord>,
    findings: &mut Vec<Finding>,
) -> Result<Written, Fault> {
    let s = gated.statement();
    let user_session =
        gated.cues().has(gate::Cues::USER) && matches!(s.source_ref, Some(strata_core::record::SourceRef::Turn { .. }));
    let facts = gate::EvidenceFacts { cues: gated.cues(), statements: 1, user_sessions: u32::from(user_session), sessions: 1 };
    let diversion = gate::divert(c.settings, gated, &facts);
    findings.extend(diversion.findings);
    let moment = match gated.statement_time() {
        Some(time) => Moment::new(time, s.source_ref.as_ref()),
        None => arrival(db, c, w, gated.key())?,
    };
    let (over, may_replace) = still_related(db, w, s.source, &moment, &material.related)?;
    let incoming = Incoming {
        standing: diversion.standing,
        source: s.source,
        // Suggestions and assumptions stand apart: they take part in no conflict between facts.
        key: gated.key().filter(|_| !is_apart(s.kind)),
        is_set: gated.is_set(),
        tier: gated.tier(),
        slot_value: gated.slot_value(),
        quote_normal: &normal(&s.source_quote, s.source == Source::UserCorrection && gated.is_set()),
        moment,
        valid_from: s.valid_from,
        valid_to: s.valid_to,
        user_authority: gated.user_authority(),
        replaces: &over,
        may_replace,
        now: c.now,
    };
    let slot = slot_facts(db, w, &incoming, None)?;
    let ruling = decide(db, c, w, &incoming, &slot, findings)?;
    let ruling = Ruling { decision: due_too(ruling.decision, diversion.due), ..ruling };
    let ruling = match replaces {
        Some(old) => replacing(old, s.source, ruling, findings),
        None => ruling,
    };
    let event_time = event_time(db, w, &incoming, &ruling)?;
    let record = insert::insert(db, w, c.settings, gated, material, &ruling, event_time)?;
    Ok(written(&ruling, record))
}

/// The ruling over a statement that is to replace `old` by the caller's word: it does if it may become active and is no
/// weaker, whatever slot either has.
fn replacing(old: &StoredRecord, source: Source, ruling: Ruling, findings: &mut Vec<Finding>) -> Ruling {
    let id = old.record.memory_id;
    let Decision::Active { mut supersede, close, valid_to, queue, may_replace } = ruling.decision else { return ruling };
    if supersede.contains(&id) {
        return Ruling { decision: Decision::Active { supersede, close, valid_to, queue, may_replace }, ..ruling };
    }
    if close.iter().any(|(closed, _)| *closed == id) {
        // It holds until the new one begins: nothing more is to be done.
        return Ruling { decision: Decision::Active { supersede, close, valid_to, queue, may_replace }, ..ruling };
    }
    if conflict::rank(source, false) < conflict::rank(old.record.source, false) {
        let because = "a stronger source said what is to be replaced";
        findings.push(Finding::new("K2", "CANDIDATE", because));
        let decision = Decision::Candidate { conflicts_with: Some(id), due: false };
        return Ruling { decision, rule: "K2", reason: format!("K2: {because}"), findings: ruling.findings };
    }
    let because = "replaced by name";
    findings.push(Finding::new("K1", "SUPERSEDED", because));
    supersede.push(id);
    let decision = Decision::Active { supersede, close, valid_to, queue, may_replace };
    Ruling { decision, rule: "K1", reason: format!("K1: {because}"), findings: ruling.findings }
}

/// What waits and is due by its evidence is due, whatever the conflict rules say.
fn due_too(decision: Decision, by_evidence: bool) -> Decision {
    match decision {
        Decision::Candidate { conflicts_with, due } => Decision::Candidate { conflicts_with, due: due || by_evidence },
        other @ (Decision::Active { .. } | Decision::Disputed { .. } | Decision::History { .. }) => other,
    }
}

/// Adds evidence to a record that says the same; what now passes becomes active through the conflict rules.
fn support(
    db: &Connection,
    c: &Context<'_>,
    w: &Writing<'_>,
    mut found: StoredRecord,
    gated: &Gated,
    material: &Material,
    findings: &mut Vec<Finding>,
) -> Result<Written, Fault> {
    let id = found.record.memory_id;
    let before = found.record.status;
    let new = insert::support(db, w, &mut found, gated, material)?;
    let because = if new { "the same statement again: evidence is added" } else { REPEATED };
    findings.push(Finding::new("G10", "EVIDENCE_ADDED", because));
    if found.record.status == Status::Rejected {
        let rejected = query::rejected_at(db, id)?;
        let later =
            gated.cues().has(gate::Cues::USER) && gated.statement_time().is_some_and(|time| rejected.is_none_or(|at| time > at));
        if !later && gated.statement().source != Source::UserConfirmation {
            findings.push(Finding::new("G10", "REJECTED", "the user rejected it; a later turn of the user reopens it"));
            return Ok(unchanged(found));
        }
        insert::move_to(db, w, &mut found, Status::Candidate, "G10: the user said it again after rejecting it", "G10")?;
    }
    let facts = query::evidence_facts(db, id)?;
    let statements = found.record.evidence_count;
    let diversion = gate::divert(c.settings, gated, &gate::EvidenceFacts { statements, ..facts });
    let waits = matches!(found.record.status, Status::Candidate | Status::Disputed);
    if !waits || diversion.standing <= Standing::Candidate {
        findings.extend(diversion.findings);
        if waits && diversion.due {
            let ruling = Ruling {
                decision: Decision::Candidate { conflicts_with: None, due: true },
                rule: "G10",
                reason: "G10: supported from several sessions: put it to the user".to_owned(),
                findings: Vec::new(),
            };
            insert::ask(db, w, &mut found, None, true, &ruling)?;
        }
        return Ok(unchanged(found));
    }
    findings.extend(diversion.findings);
    let standing = diversion.standing;
    let ruling = activate(db, c, w, &mut found, gated.user_authority(), standing, Some(gated), &material.related, findings)?;
    let mut written = written(&ruling, found);
    if before == written.record.as_ref().map_or(before, |found| found.record.status) {
        written.outcome = Outcome::EvidenceAdded;
    }
    Ok(written)
}

/// Moves a record that is there into ACTIVE, as far as the conflict rules let it (rule K7).
#[expect(
    clippy::too_many_arguments,
    reason = "one step of one transaction; a struct would be built once and taken apart at once"
)]
fn activate(
    db: &Connection,
    c: &Context<'_>,
    w: &Writing<'_>,
    found: &mut StoredRecord,
    user_authority: bool,
    standing: Standing,
    because_of: Option<&Gated>,
    related: &[Related],
    findings: &mut Vec<Finding>,
) -> Result<Ruling, Fault> {
    let id = found.record.memory_id;
    let slot_value = slot_value(&found.record);
    let confirmed_now = because_of.is_some_and(|gated| gated.statement().source == Source::UserConfirmation);
    let r = &found.record;
    let key = r.key.clone();
    // A confirmation is a statement of this moment, whatever was confirmed.
    let moment = if confirmed_now { arrival(db, c, w, r.key.as_ref())? } else { moment(db, found)? };
    let related: Vec<Related> = related.iter().copied().filter(|(other, _)| *other != id).collect();
    let (over, may_replace) = still_related(db, w, r.source, &moment, &related)?;
    let incoming = Incoming {
        standing,
        source: r.source,
        key: key.as_ref(),
        is_set: found.is_set,
        tier: r.tier,
        slot_value: &slot_value,
        quote_normal: &normal(&r.source_quote, r.source == Source::UserCorrection && found.is_set),
        moment,
        valid_from: r.valid_from,
        valid_to: r.valid_to,
        user_authority,
        replaces: &over,
        may_replace,
        now: c.now,
    };
    let slot = slot_facts(db, w, &incoming, Some(id))?;
    let ruling = decide(db, c, w, &incoming, &slot, findings)?;
    let event_time = if because_of.is_some() { event_time(db, w, &incoming, &ruling)? } else { r.event_time };
    insert::activate(db, w, c.settings, found, &ruling, user_authority, event_time)?;
    Ok(ruling)
}

/// Of the records that were found before the transaction, those that still stand, were said before, and are no stronger
/// (rules K0, K2): what is replaced, oldest first, and the one that may be.
fn still_related(
    db: &Connection,
    w: &Writing<'_>,
    source: Source,
    moment: &Moment,
    related: &[Related],
) -> Result<(Vec<MemoryId>, Option<MemoryId>), Fault> {
    let mut replaces: Vec<(Moment, MemoryId)> = Vec::new();
    let mut may = None;
    for (id, replacement) in related {
        let Some(old) = row::by_id(db, *id)? else { continue };
        let said = self::moment(db, &old)?;
        let r = &old.record;
        let owned = match &r.key {
            Some(key) => owner::key(db, w.stored, key)?.is_some_and(|row| row.system_owned),
            None => r.source == Source::AuthoritativeSystem,
        };
        let stands = old.owner == w.stored && r.status == Status::Active && !moment.is_before(&said);
        if stands && !owned && conflict::rank(r.source, false) <= conflict::rank(source, false) {
            match replacement {
                Replacement::Says => replaces.push((said, *id)),
                // The likest comes first.
                Replacement::May => may = may.or(Some(*id)),
            }
        }
    }
    replaces.sort_by(|a, b| a.0.time.cmp(&b.0.time).then(a.1.cmp(&b.1)));
    Ok((replaces.into_iter().map(|(_, id)| id).collect(), may))
}

/// The conflict rules, and the one thing they do not see: the level above (rule P2).
fn decide(
    db: &Connection,
    c: &Context<'_>,
    w: &Writing<'_>,
    incoming: &Incoming<'_>,
    slot: &SlotFacts,
    findings: &mut Vec<Finding>,
) -> Result<Ruling, Fault> {
    let ruling = conflict::decide(incoming, slot);
    findings.extend(ruling.findings.iter().cloned());
    let claims = matches!(ruling.decision, Decision::Active { .. });
    if let (true, Some(key), Some(_)) = (claims, incoming.key, &w.owner.agent) {
        // Both levels are long-term memory's own, so the user's words about one agent shadow the user level (model.md); any
        // other source may not claim what the outer level owns.
        if !is_user(incoming.source)
            && let Some(visible) = Visible::of(db, c.scope)?
            && let Some((_, epoch)) = owner::owners_of(db, &visible, key, w.now)?.into_iter().find(|(agent, _)| !agent)
        {
            return Err(ownership::owned_by(key.as_str(), &Place::user(), epoch));
        }
    }
    Ok(ruling)
}

/// The moment of a statement that has no turn: now, and never before what the slot has seen, whatever the clock does
/// (case C063).
fn arrival(db: &Connection, c: &Context<'_>, w: &Writing<'_>, key: Option<&FactKey>) -> Result<Moment, Fault> {
    let last = match key {
        Some(key) => owner::key(db, w.stored, key)?.map(|row| row.last_event),
        None => None,
    };
    Ok(Moment { time: last.map_or(c.now, |last| last.max(c.now)), turn: None })
}

/// When a record was last said with its full weight. Its event time may lie later: that one orders, by the hybrid clock.
fn moment(db: &Connection, found: &StoredRecord) -> Result<Moment, Fault> {
    let r = &found.record;
    let weight = conflict::rank(r.source, false);
    let times = query::evidence_times(db, r.memory_id)?;
    let said = times.into_iter().filter(|(source, _)| conflict::rank(*source, false) >= weight).map(|(_, time)| time).max();
    Ok(Moment::new(said.unwrap_or(r.event_time), r.source_ref.as_ref()))
}

/// The hybrid clock of the key; a statement placed in the past keeps its own time.
fn event_time(db: &Connection, w: &Writing<'_>, incoming: &Incoming<'_>, ruling: &Ruling) -> Result<Timestamp, Fault> {
    let stated = incoming.moment.time;
    match (incoming.key, &ruling.decision) {
        (Some(key), Decision::Active { .. }) if incoming.tier != Tier::Event => {
            let last = owner::key(db, w.stored, key)?.map(|row| row.last_event);
            Ok(conflict::event_time(stated, last))
        }
        _ => Ok(stated),
    }
}

/// Reads what the conflict rules need to know about a slot, without the record that asks. Expired records give it free.
fn slot_facts(db: &Connection, w: &Writing<'_>, incoming: &Incoming<'_>, asking: Option<MemoryId>) -> Result<SlotFacts, Fault> {
    let Some(key) = incoming.key else { return Ok(SlotFacts::default()) };
    let live = query::live_of_slot(db, w.stored, key, incoming.tier)?;
    let mut live = insert::expire_due(db, w, live)?;
    live.retain(|found| Some(found.record.memory_id) != asking);
    let mut facts =
        SlotFacts { system_owned: owner::key(db, w.stored, key)?.is_some_and(|row| row.system_owned), ..SlotFacts::default() };
    for found in &live {
        match found.record.status {
            Status::Active => facts.chain.push(link(db, found)?),
            Status::Candidate | Status::Disputed
                if found.record.source == Source::ModelInference && !is_apart(found.record.kind) =>
            {
                facts.inferred.push(Inferred {
                    memory_id: found.record.memory_id,
                    status: found.record.status,
                    slot_value: slot_value(&found.record),
                })
            }
            Status::Candidate
            | Status::Disputed
            | Status::Superseded
            | Status::Expired
            | Status::Archived
            | Status::Rejected
            | Status::Deleted => {}
        }
    }
    // The past of the slot matters to a late statement only, and may be long.
    if facts.chain.iter().any(|link| incoming.moment.is_before(&link.moment)) {
        for found in query::past_of_slot(db, w.stored, key, incoming.tier)? {
            facts.chain.push(link(db, &found)?);
        }
    }
    Ok(facts)
}

const fn is_apart(kind: Kind) -> bool {
    matches!(kind, Kind::Assumption | Kind::ModelSuggestion)
}

fn link(db: &Connection, found: &StoredRecord) -> Result<Link, Fault> {
    let r = &found.record;
    Ok(Link {
        memory_id: r.memory_id,
        status: r.status,
        source: r.source,
        confirmed: r.confirmed,
        moment: moment(db, found)?,
        create_time: r.create_time,
        valid_from: r.valid_from,
        valid_to: r.valid_to,
        slot_value: if found.is_set { slot_value(r) } else { String::new() },
        superseded_by: r.superseded_by,
    })
}

fn slot_value(record: &strata_core::record::Record) -> String {
    match &record.value {
        Some(value) => value_normal(value, &normal(value.as_text(), true)),
        None => record.normal.clone(),
    }
}

fn normal(text: &str, needed: bool) -> String {
    if needed { strata_text::clean::normal(text) } else { String::new() }
}

fn unchanged(found: StoredRecord) -> Written {
    let conflicts_with = found.conflicts_with;
    Written {
        outcome: Outcome::EvidenceAdded,
        record: Some(found),
        findings: Vec::new(),
        superseded: None,
        conflicts_with,
        revision: 0,
    }
}

fn written(ruling: &Ruling, found: StoredRecord) -> Written {
    let superseded = match &ruling.decision {
        Decision::Active { supersede, .. } => supersede.last().copied(),
        Decision::Candidate { .. } | Decision::Disputed { .. } | Decision::History { .. } => None,
    };
    let outcome = match &ruling.decision {
        Decision::Active { .. } => Outcome::Active,
        Decision::Candidate { .. } => Outcome::Candidate,
        Decision::Disputed { .. } => Outcome::Disputed,
        Decision::History { .. } => Outcome::History,
    };
    let conflicts_with = found.conflicts_with;
    Written { outcome, record: Some(found), findings: Vec::new(), superseded, conflicts_with, revision: 0 }
}

/// Whether the slot of a candidate changed since it was made (rule K7).
fn asks_again(db: &Connection, w: &Writing<'_>, found: &StoredRecord) -> Result<Option<MemoryId>, Fault> {
    let r = &found.record;
    let Some(key) = &r.key else { return Ok(None) };
    if found.is_set || r.tier == Tier::Event {
        return Ok(None);
    }
    let live = insert::expire_due(db, w, query::live_of_slot(db, w.stored, key, r.tier)?)?;
    let active = live.iter().filter(|other| other.record.status == Status::Active);
    let chain = active.map(|other| link(db, other)).collect::<Result<Vec<_>, _>>()?;
    Ok(conflict::asks_again(r.create_time, found.conflicts_with, &SlotFacts { chain, ..SlotFacts::default() }))
}

/// Whether a record's valid time meets `[from, to)`.
fn overlapping(record: &strata_core::record::Record, from: Option<Timestamp>, to: Option<Timestamp>) -> bool {
    let begins = |at: Option<Timestamp>| at.unwrap_or(Timestamp(i64::MIN));
    let ends = |at: Option<Timestamp>| at.unwrap_or(Timestamp(i64::MAX));
    begins(record.valid_from) < ends(to) && begins(from) < ends(record.valid_to)
}

fn visible_record(db: &Connection, c: &Context<'_>, id: MemoryId) -> Result<StoredRecord, Fault> {
    let found = match Visible::of(db, c.scope)? {
        Some(visible) => query::get(db, &visible, id, c.now)?,
        None => None,
    };
    found.ok_or_else(|| Fault::not_found("memory", id.to_string()))
}

/// Optimistic concurrency: `etag` is the version the caller saw.
fn check_etag(found: &StoredRecord, etag: Option<u64>) -> Result<(), Fault> {
    if etag.is_none_or(|seen| seen == found.record.version) {
        return Ok(());
    }
    let version = found.record.version.to_string();
    Err(Fault::new(Reason::VersionMismatch, "etag: the record has changed; read it again").with("current_value", version))
}

/// The record in force that a record in force may replace (rule K0), while that question is open.
fn linked(db: &Connection, found: &StoredRecord) -> Result<Option<MemoryId>, Fault> {
    let Some(old) = found.conflicts_with.filter(|_| found.record.status == Status::Active && found.due) else { return Ok(None) };
    Ok(row::by_id(db, old)?.filter(|old| old.record.status == Status::Active).map(|old| old.record.memory_id))
}

fn waiting(found: &StoredRecord) -> Result<(), Fault> {
    match found.record.status {
        Status::Candidate | Status::Disputed => Ok(()),
        other @ (Status::Active
        | Status::Superseded
        | Status::Expired
        | Status::Archived
        | Status::Rejected
        | Status::Deleted) => Err(Fault::new(Reason::StatusMove, format!("the record is {}, not a candidate", other.name()))
            .with("state", other.name())
            .rule("STATUS", "memory", "only a candidate is confirmed or rejected")),
    }
}

/// The user confirms a candidate: `gated` is its own statement, through the gate once more.
///
/// # Errors
/// `NOT_FOUND`, `STATUS_MOVE`, `VERSION_MISMATCH`, `OVERLOADED`, `FORGOTTEN`.
pub fn confirm(
    db: &Connection,
    c: &Context<'_>,
    id: MemoryId,
    etag: Option<u64>,
    gated: &Gated,
    material: &Material,
) -> Result<Written, Fault> {
    ledger::check_outbox(db, &c.scope.owner().tenant, c.now)?;
    let mut found = visible_record(db, c, id)?;
    let linked = linked(db, &found)?;
    if linked.is_none() {
        waiting(&found)?;
    }
    check_etag(&found, etag)?;
    let owner = found.record.owner.clone();
    let w = Writing { owner: &owner, ..c.writing(found.owner, gated.door().name()) };
    let mut findings = gated.findings().to_vec();
    if let Some(old) = linked {
        insert::support(db, &w, &mut found, gated, material)?;
        insert::settle(db, &w, &mut found, old, true)?;
        findings.push(Finding::new("K0", "SUPERSEDED", "the user says that it replaces the older record"));
        let revision = owner::next_revision(db, found.owner.user_id)?;
        let record = Some(found);
        return Ok(Written { outcome: Outcome::Active, record, findings, superseded: Some(old), conflicts_with: None, revision });
    }
    if let Some(rival) = asks_again(db, &w, &found)? {
        let because = "the slot changed since: ask the user again";
        findings.push(Finding::new("K7", "CANDIDATE", because));
        let decision = Decision::Candidate { conflicts_with: Some(rival), due: true };
        let ruling = Ruling { decision, rule: "K7", reason: format!("K7: {because}"), findings: Vec::new() };
        insert::ask(db, &w, &mut found, Some(rival), true, &ruling)?;
        let revision = owner::next_revision(db, found.owner.user_id)?;
        return Ok(Written { findings, revision, ..written(&ruling, found) });
    }
    insert::support(db, &w, &mut found, gated, material)?;
    let standing = if found.record.tier == Tier::Temporary { Standing::Temporary } else { gated.standing() };
    let ruling =
        activate(db, c, &w, &mut found, gated.user_authority(), standing, Some(gated), &material.related, &mut findings)?;
    let revision = owner::next_revision(db, found.owner.user_id)?;
    Ok(Written { findings, revision, ..written(&ruling, found) })
}

/// The user rejects a candidate (rule G10).
///
/// # Errors
/// `NOT_FOUND`, `STATUS_MOVE`.
pub fn reject(db: &Connection, c: &Context<'_>, id: MemoryId) -> Result<(StoredRecord, u64), Fault> {
    let mut found = visible_record(db, c, id)?;
    let linked = linked(db, &found)?;
    if linked.is_none() {
        waiting(&found)?;
    }
    let owner = found.record.owner.clone();
    let w = Writing { owner: &owner, ..c.writing(found.owner, "RejectCandidate") };
    if let Some(old) = linked {
        // It was asked whether the one replaces the other: both stay.
        insert::settle(db, &w, &mut found, old, false)?;
        let revision = owner::next_revision(db, found.owner.user_id)?;
        return Ok((found, revision));
    }
    found.due = false;
    insert::move_to(db, &w, &mut found, Status::Rejected, "G10: the user rejected it", "G10")?;
    let revision = owner::next_revision(db, found.owner.user_id)?;
    Ok((found, revision))
}

/// What was forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// Records that are forgotten now.
    pub forgotten: Vec<MemoryId>,
    /// Ids that were not found for this owner.
    pub not_found: Vec<MemoryId>,
    /// Revision of the user.
    pub revision: u64,
}

/// Writes down that a call to forget was refused, or found nothing to forget under some ids: one entry a call, so that nobody
/// fills the audit with made-up ids.
///
/// # Errors
/// As the database says.
pub fn refused_to_forget(
    db: &Connection,
    scope: &OwnerScope,
    actor: &str,
    now: Timestamp,
    ids: &[MemoryId],
    why: &str,
) -> Result<(), Fault> {
    let memory_id = if let [id] = ids { Some(*id) } else { None };
    let entry = ledger::AuditEntry {
        time: now,
        tenant: scope.owner().tenant.as_str(),
        user: scope.owner().user.as_str(),
        action: "FORGET_REFUSED",
        memory_id,
        actor,
        rule: "E1",
        subject: "",
        reason: why,
    };
    ledger::audit(db, &entry)
}

/// Forgets records softly, by id and by key (rule E1). By key an agent forgets its own records, a call without an agent the
/// user's of every level.
///
/// # Errors
/// As the database says.
pub fn forget(db: &Connection, c: &Context<'_>, ids: &[MemoryId], keys: &[FactKey], reason: &str) -> Result<Forgotten, Fault> {
    let not_found = |ids: &[MemoryId]| {
        let why = format!("{} ids name no record of the owner", ids.len());
        refused_to_forget(db, c.scope, c.actor, c.now, ids, &why)
    };
    let Some(visible) = Visible::of(db, c.scope)? else {
        not_found(ids)?;
        return Ok(Forgotten { not_found: ids.to_vec(), ..Forgotten::default() });
    };
    let mut out = Forgotten { revision: visible.revision, ..Forgotten::default() };
    let mut all = ids.to_vec();
    let levels: &[i64] = match (&c.scope.owner().agent, visible.owner_ids.as_slice()) {
        (Some(_), [_, own]) => std::slice::from_ref(own),
        (Some(_), _) => &[],
        (None, all) => all,
    };
    for key in keys {
        all.extend(query::forgettable(db, levels, key)?);
    }
    all.sort();
    all.dedup();
    let mut changed = false;
    for id in all {
        let Some(mut found) = row::by_id(db, id)?.filter(|found| visible.sees(found.owner)) else {
            out.not_found.push(id);
            continue;
        };
        if found.record.status != Status::Deleted {
            let owner = found.record.owner.clone();
            let w = Writing { owner: &owner, ..c.writing(found.owner, "ForgetMemories") };
            insert::forget(db, &w, &mut found, &format!("E1: {reason}"))?;
            // Running over the same turns again must not relearn it; what the user says later may (case C029).
            ledger::bury(db, visible.user_id, &digests_of(c, &found), c.now)?;
            changed = true;
        }
        out.forgotten.push(id);
    }
    if !out.not_found.is_empty() {
        not_found(&out.not_found)?;
    }
    if changed {
        out.revision = owner::next_revision(db, visible.user_id)?;
    }
    Ok(out)
}

/// The digests that stand for a record's statement among the forgotten ones.
fn digests_of(c: &Context<'_>, found: &StoredRecord) -> [[u8; 32]; 2] {
    let r = &found.record;
    c.tombstones.digests(&r.owner, r.kind, r.key.as_ref(), &r.normal, &found.dedup)
}

/// Whether the registry gives the user the last word on a key; asked anew, since a key may have been registered meanwhile.
fn user_authority(registry: &Registry, key: Option<&FactKey>) -> bool {
    key.and_then(|key| registry.spec(key.as_str())).is_some_and(|spec| spec.authority == Some(Authority::User))
}
