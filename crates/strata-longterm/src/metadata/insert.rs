//! The one way a record enters, and the moves of its status. A [`Gated`] statement has passed the gate, a [`Ruling`] is
//! what the conflict rules decided; here both are carried out in the caller's transaction: record, history, evidence,
//! terms, owner row with its epoch, outbox and audit. Nothing else in the crate inserts into `records`.

pub mod derived;
pub mod episodes;
pub mod parts;

use super::row::{StoredRecord, by_id, id_bytes};
use super::{Sql, StoredOwner, ledger, owner, query, search, transfer};
use rusqlite::{Connection, OptionalExtension};
use strata_api::convert::transfer::Carried;
use strata_core::limits::EVIDENCE;
use strata_core::policy::conflict::{Decision, Replacement, Ruling, strongest};
use strata_core::policy::gate::{Cues, GateSettings, Gated, is_user};
use strata_core::policy::quota::Quota;
use strata_core::policy::{conflict, forgetting, status};
use strata_core::record::{Kind, Record, Sensitivity, Source, SourceRef, Status, Tier};
use strata_core::time::DAY;
use strata_core::{FactKey, Fault, MemoryId, Owner, Scope, Timestamp};
use strata_runtime::metrics::Instruments;
use strata_text::Terms;
use uuid::Uuid;

/// Who writes what, when, through which door.
#[derive(Clone, Debug)]
pub struct Writing<'a> {
    /// Whose record.
    pub owner: &'a Owner,
    /// The same inside the file.
    pub stored: StoredOwner,
    /// Principal of the caller, for history and audit.
    pub actor: &'a str,
    /// RPC or job, for history (A144).
    pub path: &'static str,
    /// What may be kept.
    pub quota: Quota,
    /// Arrival.
    pub now: Timestamp,
}

impl Writing<'_> {
    /// The path of what the service does by itself.
    pub const MAINTENANCE: &'static str = "Maintenance";
}

/// What a statement does to a record of another slot.
pub type Related = (MemoryId, Replacement);

/// What is prepared outside the transaction for a new record.
#[derive(Clone, Debug)]
pub struct Material {
    /// Its id.
    pub memory_id: MemoryId,
    /// Terms of its indexed text.
    pub terms: Terms,
    /// Request id, for evidence without a turn.
    pub request_id: Option<Uuid>,
    /// Session of evidence without a turn: that of the task whose fact it was.
    pub session_id: Option<String>,
    /// The caller's vector with the name of its model, checked.
    pub vector: Option<(String, Vec<f32>)>,
    /// Records of other slots that it replaces, or may replace (rule K0).
    pub related: Vec<Related>,
}

/// A statement that passed the gate, and what its insertion needs.
pub(crate) type Passed = (Gated, Material);

/// Whether there is room for one more record.
fn check_room(db: &Connection, w: &Writing<'_>) -> Result<(), Fault> {
    if !w.quota.bounds_records() {
        return Ok(());
    }
    let (tenant, user) = owner::kept(db, w.stored)?;
    match w.quota.full(tenant, user) {
        Some((bound, limit)) => {
            Instruments::global().over_quota(bound);
            Err(bound.refusal(limit, None))
        }
        None => Ok(()),
    }
}

/// Inserts a record as the ruling says and moves what it replaces.
///
/// # Errors
/// `LIMIT_REACHED` naming the quota that is used up; as the database says.
pub fn insert(
    db: &Connection,
    w: &Writing<'_>,
    settings: &GateSettings,
    gated: &Gated,
    material: &Material,
    ruling: &Ruling,
    event_time: Timestamp,
) -> Result<StoredRecord, Fault> {
    check_room(db, w)?;
    let mut new = draft(w, settings, gated, material, ruling, event_time);
    if let Some(key) = gated.key() {
        let taken = matches!(ruling.decision, Decision::Active { .. });
        new.record.owner_epoch = claim(db, w, key, taken, gated, event_time)?;
    }
    let (mut first, mut queue) = (Status::Candidate, Vec::new());
    match &ruling.decision {
        Decision::Active { supersede, close, valid_to, queue: queued, may_replace } => {
            first = Status::Active;
            new.conflicts_with = *may_replace;
            new.due = may_replace.is_some();
            new.record.valid_to = *valid_to;
            queue.clone_from(queued);
            if let Some(last) = supersede.last() {
                inherit(db, &mut new.record, gated, *last)?;
                new.record.supersedes = Some(*last);
            }
            for old in supersede {
                supersede_by(db, w, *old, new.record.memory_id, ruling)?;
            }
            for (old, end) in close {
                close_at(db, w, *old, *end)?;
            }
        }
        Decision::Candidate { conflicts_with, due } => {
            new.conflicts_with = *conflicts_with;
            new.due |= due;
        }
        Decision::Disputed { with, conflicts_with } => {
            new.conflicts_with = *conflicts_with;
            new.due = true;
            for other in with {
                dispute(db, w, *other, ruling)?;
            }
        }
        Decision::History { after, before } => {
            first = Status::Superseded;
            new.record.supersedes = *after;
            new.record.superseded_by = Some(*before);
            new.record.superseded_at = Some(w.now);
        }
    }
    status::check(None, first)?;
    new.record.status = first;
    new.insert(db)?;
    write_history(db, w, &new.record, None, first, &new.record.reason, ruling.rule)?;
    if matches!(ruling.decision, Decision::Disputed { .. }) {
        step(db, w, &mut new, Status::Disputed, &ruling.reason, ruling.rule)?;
        new.update(db)?;
    }
    if let Decision::History { after, before } = ruling.decision {
        relink(db, w, new.record.memory_id, after, before)?;
    }
    add_evidence(db, w, &mut new, gated, material)?;
    new.update(db)?;
    write_terms(db, &new, &material.terms)?;
    if let Some((model, vector)) = &material.vector {
        search::put_vectors(db, model, &[(new.record.memory_id, vector.clone())])?;
    }
    announce(db, w, &new, ruling.rule, "")?;
    for old in queue {
        requeue(db, w, settings, old, &new.record)?;
    }
    end_overlays(db, w, &new, new.record.event_time)?;
    Ok(new)
}

/// Rule K10, the other way round: what the user says for good ends the passing wish from before it, or the older value would
/// be answered until its time is over.
fn end_overlays(db: &Connection, w: &Writing<'_>, new: &StoredRecord, said: Timestamp) -> Result<(), Fault> {
    let r = &new.record;
    let (Some(key), Status::Active, Tier::Stable, true, false) = (&r.key, r.status, r.tier, is_user(r.source), new.is_set) else {
        return Ok(());
    };
    for mut found in query::live_of_slot(db, new.owner, key, Tier::Temporary)? {
        if found.record.status == Status::Active && found.record.event_time <= said {
            move_to(db, w, &mut found, Status::Expired, "K10: a later lasting statement of the user ends it", "K10")?;
        }
    }
    Ok(())
}

fn draft(
    w: &Writing<'_>,
    settings: &GateSettings,
    gated: &Gated,
    material: &Material,
    ruling: &Ruling,
    event_time: Timestamp,
) -> StoredRecord {
    let s = gated.statement();
    let waits = matches!(ruling.decision, Decision::Candidate { .. } | Decision::Disputed { .. });
    let asked = s.expire_time;
    let expire_time = if waits {
        let limit = w.now.plus(i64::from(settings.candidate_days) * DAY);
        Some(asked.map_or(limit, |asked| asked.min(limit)))
    } else {
        asked.or_else(|| tier_end(settings, s.kind, gated.protected(), gated.tier(), w.now))
    };
    let record = Record {
        memory_id: material.memory_id,
        owner: w.owner.clone(),
        scope: if w.owner.agent.is_some() { Scope::Agent } else { Scope::User },
        kind: s.kind,
        tier: gated.tier(),
        key: gated.key().cloned(),
        value: gated.value().cloned(),
        content: s.content.clone(),
        normal: gated.normal().to_owned(),
        source: s.source,
        source_ref: s.source_ref.clone(),
        source_quote: s.source_quote.clone(),
        quote_verified: gated.quote_verified(),
        confirmed: gated.confirmed(),
        confidence: gated.confidence(),
        importance: s.importance.unwrap_or(3),
        sensitivity: gated.sensitivity(),
        protected: gated.protected(),
        instruction: gated.instruction(),
        status: Status::Candidate,
        supersedes: None,
        superseded_by: None,
        superseded_at: None,
        reason: ruling.reason.clone(),
        valid_from: s.valid_from,
        valid_to: s.valid_to,
        event_time,
        create_time: w.now,
        update_time: w.now,
        expire_time,
        last_recalled_at: None,
        last_cited_at: None,
        recall_count: 0,
        cite_count: 0,
        topic: s.topic.clone(),
        tags: s.tags.clone(),
        metadata: s.metadata.clone(),
        owner_epoch: 0,
        version: 1,
        embedding_model: None,
        evidence_sessions: 0,
        evidence_count: 0,
        derived_from: Vec::new(),
        source_span: None,
    };
    StoredRecord {
        record,
        owner: w.stored,
        dedup: gated.identity(),
        is_set: gated.is_set(),
        earlier_status: None,
        conflicts_with: None,
        due: false,
        expire_asked: asked,
        length: material.terms.length,
    }
}

/// When the tier of a record ends it: never, where rule F8 keeps it or a summary stands for others.
pub(crate) fn tier_end(settings: &GateSettings, kind: Kind, protected: bool, tier: Tier, now: Timestamp) -> Option<Timestamp> {
    if kind != Kind::Summary && forgetting::ends_by_tier(kind, protected) { settings.expiry(tier, now) } else { None }
}

/// Enters the write into the owner row: a record system takes the key over with its first active value.
fn claim(db: &Connection, w: &Writing<'_>, key: &FactKey, taken: bool, gated: &Gated, event: Timestamp) -> Result<u64, Fault> {
    let row = owner::key(db, w.stored, key)?;
    if !taken {
        return Ok(row.map_or(0, |row| row.epoch));
    }
    let by_system = gated.statement().source == Source::AuthoritativeSystem && !gated.user_authority();
    owner::claim(db, w.stored, key, event, by_system || row.is_some_and(|row| row.system_owned), w.now)
}

/// What the new statement does not mention is kept from its predecessor (case C009); expiry, tier, confidence and consent
/// never are (rule K9).
fn inherit(db: &Connection, new: &mut Record, gated: &Gated, from: MemoryId) -> Result<(), Fault> {
    let Some(old) = by_id(db, from)?.map(|found| found.record) else { return Ok(()) };
    let s = gated.statement();
    if s.importance.is_none() {
        new.importance = old.importance;
    }
    if s.topic.is_none() {
        new.topic = old.topic;
    }
    if s.tags.is_empty() {
        new.tags = old.tags;
    }
    if s.metadata.is_empty() {
        new.metadata = old.metadata;
    }
    if old.protected && !new.protected {
        new.protected = true;
        new.expire_time = s.expire_time;
    }
    Ok(())
}

/// Moves a record along the table and writes the move down; the caller writes the row back.
fn step(db: &Connection, w: &Writing<'_>, found: &mut StoredRecord, to: Status, reason: &str, rule: &str) -> Result<(), Fault> {
    let from = found.record.status;
    status::check(Some(from), to)?;
    found.record.status = to;
    reason.clone_into(&mut found.record.reason);
    write_history(db, w, &found.record, Some(from), to, reason, rule)?;
    match to {
        // What it says no longer counts: no summary may go on saying it (rule F5).
        Status::Superseded | Status::Deleted | Status::Candidate => derived::stale(db, w, found.record.memory_id),
        Status::Active | Status::Disputed | Status::Expired | Status::Archived | Status::Rejected => Ok(()),
    }
}

/// Writes a changed record back: a new version, told to the index and the audit.
fn write_back(db: &Connection, w: &Writing<'_>, found: &mut StoredRecord, rule: &str) -> Result<(), Fault> {
    write_back_because(db, w, found, rule, "")
}

/// [`write_back`] with a reason for the audit, which holds nothing of what is remembered (A172).
fn write_back_because(
    db: &Connection,
    w: &Writing<'_>,
    found: &mut StoredRecord,
    rule: &str,
    because: &str,
) -> Result<(), Fault> {
    found.record.version += 1;
    found.record.update_time = w.now;
    found.update(db)?;
    announce(db, w, found, rule, because)
}

fn announce(db: &Connection, w: &Writing<'_>, found: &StoredRecord, rule: &str, because: &str) -> Result<(), Fault> {
    let r = &found.record;
    ledger::enqueue(db, found.owner, r.memory_id, r.version, w.now)?;
    let entry = ledger::AuditEntry {
        time: w.now,
        tenant: w.owner.tenant.as_str(),
        user: w.owner.user.as_str(),
        action: r.status.name(),
        memory_id: Some(r.memory_id),
        actor: w.actor,
        rule,
        subject: "",
        reason: because,
    };
    ledger::audit(db, &entry)
}

/// Moves one record and writes it back.
///
/// # Errors
/// `STATUS_MOVE` when the table does not allow it.
pub fn move_to(
    db: &Connection,
    w: &Writing<'_>,
    found: &mut StoredRecord,
    to: Status,
    reason: &str,
    rule: &str,
) -> Result<(), Fault> {
    step(db, w, found, to, reason, rule)?;
    // What the service says of its own steps is the rule's words alone; others may quote.
    let because = if w.path == Writing::MAINTENANCE { reason } else { "" };
    write_back_because(db, w, found, rule, because)
}

fn required(db: &Connection, id: MemoryId) -> Result<StoredRecord, Fault> {
    by_id(db, id)?.ok_or_else(|| super::corrupt("a link of a chain"))
}

/// Takes a record over from an export, with id, state, times, evidence and history as they were; its words are those that
/// `gated` judged again. Where `contested`, another value holds its slot: it waits, and the conflict rules move it on.
///
/// # Errors
/// As the database says.
pub fn readmit(
    db: &Connection,
    w: &Writing<'_>,
    carried: &Carried,
    gated: &Gated,
    material: &Material,
    contested: bool,
) -> Result<StoredRecord, Fault> {
    check_room(db, w)?;
    let s = gated.statement();
    let mut record = Record {
        owner: w.owner.clone(),
        content: s.content.clone(),
        normal: gated.normal().to_owned(),
        source_quote: s.source_quote.clone(),
        key: s.key.clone(),
        value: s.value.clone(),
        topic: s.topic.clone(),
        tags: s.tags.clone(),
        metadata: s.metadata.clone(),
        embedding_model: None,
        ..carried.record.clone()
    };
    if contested {
        record.status = Status::Candidate;
    }
    let new = StoredRecord {
        owner: w.stored,
        dedup: gated.identity(),
        is_set: carried.is_set,
        earlier_status: carried.earlier_status,
        conflicts_with: carried.conflicts_with,
        due: carried.due,
        expire_asked: carried.expire_asked,
        length: material.terms.length,
        record,
    };
    new.insert(db)?;
    derived::adopt(db, &new)?;
    transfer::write_past(db, w.stored, carried)?;
    if contested {
        let from = Some(carried.record.status);
        write_history(db, w, &new.record, from, Status::Candidate, "K7: another value holds the slot here", "K7")?;
    }
    if let Some(key) = &new.record.key {
        transfer::adopt_key(db, w.stored, key, carried, new.record.status == Status::Active)?;
    }
    write_terms(db, &new, &material.terms)?;
    announce(db, w, &new, "IMPORT", "")?;
    Ok(new)
}

/// Replaces an active record by another one.
///
/// # Errors
/// `STATUS_MOVE` when the table does not allow it.
pub fn supersede(db: &Connection, w: &Writing<'_>, old: MemoryId, new: MemoryId, ruling: &Ruling) -> Result<(), Fault> {
    supersede_by(db, w, old, new, ruling)?;
    let mut new = required(db, new)?;
    new.record.supersedes = new.record.supersedes.or(Some(old));
    write_back(db, w, &mut new, ruling.rule)
}

/// Writes changed fields of a record back; `gated` is its statement with the labels it has now. A row of history says which
/// fields changed, through which door.
///
/// # Errors
/// As the database says.
pub fn amend(db: &Connection, w: &Writing<'_>, found: &mut StoredRecord, gated: &Gated, reason: &str) -> Result<(), Fault> {
    if gated.sensitivity() == Sensitivity::Personal {
        found.record.sensitivity = Sensitivity::Personal;
    }
    let status = found.record.status;
    write_history(db, w, &found.record, Some(status), status, reason, "UPDATE")?;
    write_back(db, w, found, "UPDATE")
}

/// Counts a citation (rules R5, R6): the newest use orders and refreshes; a passing value is renewed by it (rule F2) unless
/// the caller said when it ends.
///
/// # Errors
/// As the database says.
pub fn cite(db: &Connection, w: &Writing<'_>, settings: &GateSettings, found: &mut StoredRecord) -> Result<(), Fault> {
    let r = &mut found.record;
    r.cite_count = r.cite_count.saturating_add(1);
    r.last_cited_at = r.last_cited_at.max(Some(w.now));
    let renewed = tier_end(settings, r.kind, r.protected, Tier::Temporary, w.now);
    if r.tier == Tier::Temporary && r.status == Status::Active && found.expire_asked.is_none() && r.expire_time < renewed {
        r.expire_time = renewed;
        write_history(db, w, &found.record, Some(Status::Active), Status::Active, "F2: renewed by a citation", "F2")?;
        return write_back(db, w, found, "F2");
    }
    // A count is no change of the record: its version stays.
    found.update(db)
}

fn supersede_by(db: &Connection, w: &Writing<'_>, old: MemoryId, new: MemoryId, ruling: &Ruling) -> Result<(), Fault> {
    let mut old = required(db, old)?;
    old.record.superseded_by = Some(new);
    old.record.superseded_at = Some(w.now);
    move_to(db, w, &mut old, Status::Superseded, &ruling.reason, ruling.rule)
}

/// Rule K0: the user answered whether a record replaces the one it is linked to. Either way the question is settled.
///
/// # Errors
/// `STATUS_MOVE` when the older record is no longer in force.
pub fn settle(db: &Connection, w: &Writing<'_>, found: &mut StoredRecord, old: MemoryId, replaces: bool) -> Result<(), Fault> {
    if replaces {
        let mut old = required(db, old)?;
        old.record.superseded_by = Some(found.record.memory_id);
        old.record.superseded_at = Some(w.now);
        move_to(db, w, &mut old, Status::Superseded, "K0: the user says that a newer record replaces it", "K0")?;
        found.record.supersedes = Some(old.record.memory_id);
    }
    found.conflicts_with = None;
    found.due = false;
    write_back(db, w, found, "K0")
}

fn close_at(db: &Connection, w: &Writing<'_>, old: MemoryId, end: Timestamp) -> Result<(), Fault> {
    let mut old = required(db, old)?;
    old.record.valid_to = Some(end);
    write_back(db, w, &mut old, "K1")
}

fn dispute(db: &Connection, w: &Writing<'_>, other: MemoryId, ruling: &Ruling) -> Result<(), Fault> {
    let mut other = required(db, other)?;
    other.due = true;
    if other.record.status == Status::Disputed {
        return write_back(db, w, &mut other, ruling.rule);
    }
    move_to(db, w, &mut other, Status::Disputed, &ruling.reason, ruling.rule)
}

/// Rule K5: the neighbours of a late statement now lead to it.
fn relink(db: &Connection, w: &Writing<'_>, new: MemoryId, after: Option<MemoryId>, before: MemoryId) -> Result<(), Fault> {
    let mut next = required(db, before)?;
    next.record.supersedes = Some(new);
    write_back(db, w, &mut next, "K5")?;
    if let Some(after) = after {
        let mut previous = required(db, after)?;
        previous.record.superseded_by = Some(new);
        write_back(db, w, &mut previous, "K5")?;
    }
    Ok(())
}

/// A record system replaced the user's value: the user's words come back as a question, under a new id.
fn requeue(db: &Connection, w: &Writing<'_>, settings: &GateSettings, old: MemoryId, system: &Record) -> Result<(), Fault> {
    let old = required(db, old)?;
    let mut question = old.clone();
    let r = &mut question.record;
    // Derived from the two records, so that a repeated transaction would find it.
    let seed = strata_core::id::join(&[&old.record.memory_id.to_string(), &system.memory_id.to_string()]);
    r.memory_id = MemoryId(Uuid::new_v5(&Uuid::NAMESPACE_OID, seed.as_bytes()));
    r.status = Status::Candidate;
    r.supersedes = None;
    r.superseded_by = None;
    r.superseded_at = None;
    r.version = 1;
    r.embedding_model = None;
    r.create_time = w.now;
    r.update_time = w.now;
    r.expire_time = Some(w.now.plus(i64::from(settings.candidate_days) * DAY));
    r.recall_count = 0;
    r.cite_count = 0;
    r.last_recalled_at = None;
    r.last_cited_at = None;
    "K1: a record system holds another value: put to the user".clone_into(&mut r.reason);
    question.conflicts_with = Some(system.memory_id);
    question.due = true;
    if query::twin(db, w.stored, &question.dedup)?.is_some() {
        return Ok(());
    }
    question.insert(db)?;
    write_history(db, w, &question.record, None, Status::Candidate, &question.record.reason, "K1")?;
    let copy = [
        "INSERT INTO evidence (memory_id, owner_id, mark, source, source_ref, session_id, cues, quote, quote_verified, time) \
         SELECT ?1, owner_id, mark, source, source_ref, session_id, cues, quote, quote_verified, time FROM evidence WHERE memory_id = ?2 ORDER BY evidence_id",
        "INSERT INTO record_terms (owner_id, term, memory_id, tf) SELECT owner_id, term, ?1, tf FROM record_terms WHERE memory_id = ?2",
    ];
    for sql in copy {
        let mut statement = db.prepare_cached(sql).sql()?;
        statement.execute((id_bytes(question.record.memory_id), id_bytes(old.record.memory_id))).sql()?;
    }
    announce(db, w, &question, "K1", "")
}

fn write_history(
    db: &Connection,
    w: &Writing<'_>,
    record: &Record,
    from: Option<Status>,
    to: Status,
    reason: &str,
    rule: &str,
) -> Result<(), Fault> {
    let mut statement = db
        .prepare_cached(
            "INSERT INTO history (memory_id, owner_id, time, from_status, to_status, actor, path, reason, rule) \
             SELECT ?1, owner_id, ?2, ?3, ?4, ?5, ?6, ?7, ?8 FROM records WHERE memory_id = ?1",
        )
        .sql()?;
    let id = id_bytes(record.memory_id);
    statement.execute((id, w.now.micros(), from.map(Status::name), to.name(), w.actor, w.path, reason, rule)).sql()?;
    Ok(())
}

/// Adds the statement's evidence, once per turn, else once per request id; the record rises to its strongest evidence
/// (rule G10). The caller writes the row back. Answers whether it was new.
fn add_evidence(
    db: &Connection,
    w: &Writing<'_>,
    found: &mut StoredRecord,
    gated: &Gated,
    material: &Material,
) -> Result<bool, Fault> {
    let s = gated.statement();
    let (mark, session) = match (&s.source_ref, material.request_id) {
        (Some(SourceRef::Turn { session_id, seq }), _) => {
            (strata_core::id::join(&["turn", session_id, &seq.to_string()]), Some(session_id.as_str()))
        }
        (_, Some(request)) => (strata_core::id::join(&["request", &request.to_string()]), material.session_id.as_deref()),
        (_, None) => (strata_core::id::join(&["write", &material.memory_id.to_string()]), material.session_id.as_deref()),
    };
    let time = gated.statement_time().unwrap_or(w.now);
    let id = id_bytes(found.record.memory_id);
    let mut known =
        db.prepare_cached("SELECT cues, source, quote_verified FROM evidence WHERE memory_id = ?1 AND mark = ?2").sql()?;
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, u8>(0)?, row.get::<_, String>(1)?, row.get::<_, bool>(2)?));
    let known = known.query_row((id, &mark), read).optional().sql()?;
    let r = &mut found.record;
    if let Some((bits, source, verified)) = &known {
        // The same turn seen through a stronger door: one piece of evidence, at its strongest.
        let source = Source::from_name(source).map_or(s.source, |old| strongest(old, s.source));
        let cues = Cues::from_bits(*bits).and(gated.cues());
        let mut statement = db
            .prepare_cached("UPDATE evidence SET cues = ?3, source = ?4, quote_verified = ?5 WHERE memory_id = ?1 AND mark = ?2")
            .sql()?;
        statement.execute((id, &mark, cues.bits(), source.name(), *verified || gated.quote_verified())).sql()?;
    } else {
        let mut count = db.prepare_cached("SELECT count(*) FROM evidence WHERE memory_id = ?1").sql()?;
        let kept: usize = count.query_row([id], |row| row.get::<_, i64>(0)).sql()?.try_into().unwrap_or(usize::MAX);
        if let Some(session) = session {
            let mut seen =
                db.prepare_cached("SELECT EXISTS (SELECT 1 FROM evidence WHERE memory_id = ?1 AND session_id = ?2)").sql()?;
            let seen: bool = seen.query_row((id, session), |row| row.get(0)).sql()?;
            r.evidence_sessions += u32::from(!seen);
        }
        r.evidence_count = r.evidence_count.saturating_add(1);
        if kept < EVIDENCE {
            let reference =
                s.source_ref.as_ref().map(|reference| serde_json::to_string(reference).expect("references are plain data"));
            let mut statement = db
                .prepare_cached(
                    "INSERT INTO evidence (memory_id, owner_id, mark, source, source_ref, session_id, cues, quote, quote_verified, time) \
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                )
                .sql()?;
            let (quote, verified) = (&s.source_quote, gated.quote_verified());
            let row = (
                id,
                found.owner.owner_id,
                &mark,
                s.source.name(),
                reference,
                session,
                gated.cues().bits(),
                quote,
                verified,
                time.micros(),
            );
            statement.execute(row).sql()?;
        }
    }
    let rises = conflict::rank(s.source, false) >= conflict::rank(r.source, false);
    r.source = strongest(r.source, s.source);
    r.confidence = r.confidence.max(gated.confidence());
    r.confirmed |= gated.confirmed();
    r.quote_verified |= gated.quote_verified();
    if gated.sensitivity() == Sensitivity::Personal {
        r.sensitivity = Sensitivity::Personal;
    }
    if rises && known.is_none() {
        // Said again with its full weight: as of that moment it is the newer statement.
        r.event_time = r.event_time.max(time);
    }
    Ok(known.is_none())
}

/// Adds evidence to a record that says the same, and takes over what the statement newly says about it (rule G10).
///
/// # Errors
/// As the database says.
pub fn support(
    db: &Connection,
    w: &Writing<'_>,
    found: &mut StoredRecord,
    gated: &Gated,
    material: &Material,
) -> Result<bool, Fault> {
    let before = found.clone();
    let new = add_evidence(db, w, found, gated, material)?;
    let s = gated.statement();
    let r = &mut found.record;
    if gated.cues().has(Cues::MAY_BE_ACTIVE) {
        r.importance = s.importance.unwrap_or(r.importance);
        r.topic = s.topic.clone().or_else(|| r.topic.take());
        if !s.tags.is_empty() {
            r.tags.clone_from(&s.tags);
        }
        if !s.metadata.is_empty() {
            r.metadata.clone_from(&s.metadata);
        }
        if s.protected && !r.protected {
            // Rule F8: its tier sets no end to it any more.
            r.protected = true;
            if r.status == Status::Active {
                r.expire_time = found.expire_asked;
            }
        }
        if let Some(asked) = s.expire_time {
            found.expire_asked = Some(asked);
            if r.status == Status::Active {
                r.expire_time = Some(asked);
            }
        }
    }
    if *found != before {
        write_back(db, w, found, "G10")?;
    }
    if new && is_user(s.source) {
        // The lasting value said again ends a passing wish from in between, like a new one would.
        end_overlays(db, w, found, gated.statement_time().unwrap_or(w.now))?;
    }
    Ok(new)
}

/// Marks a waiting record as due for asking, and names what it conflicts with.
///
/// # Errors
/// As the database says.
pub fn ask(
    db: &Connection,
    w: &Writing<'_>,
    found: &mut StoredRecord,
    conflicts_with: Option<MemoryId>,
    due: bool,
    ruling: &Ruling,
) -> Result<(), Fault> {
    let conflict = conflicts_with.or(found.conflicts_with);
    if found.conflicts_with == conflict && found.due >= due {
        return Ok(());
    }
    found.conflicts_with = conflict;
    found.due |= due;
    found.record.reason.clone_from(&ruling.reason);
    write_back(db, w, found, ruling.rule)
}

/// Carries a ruling out for a record that is there already and moves into ACTIVE: confirmed, supported, or restored (then
/// it is ACTIVE in memory already, by [`unforget`]).
///
/// # Errors
/// `STATUS_MOVE` when the table does not allow it.
pub fn activate(
    db: &Connection,
    w: &Writing<'_>,
    settings: &GateSettings,
    found: &mut StoredRecord,
    ruling: &Ruling,
    user_authority: bool,
    event_time: Timestamp,
) -> Result<(), Fault> {
    let id = found.record.memory_id;
    let restored = found.record.status == Status::Active;
    match &ruling.decision {
        Decision::Active { supersede, close, valid_to, queue, may_replace } => {
            if let Some(key) = found.record.key.clone() {
                let row = owner::key(db, w.stored, &key)?;
                let by_system = found.record.source == Source::AuthoritativeSystem && !user_authority;
                let system_owned = by_system || row.is_some_and(|row| row.system_owned);
                found.record.owner_epoch = owner::claim(db, w.stored, &key, event_time, system_owned, w.now)?;
            }
            for old in supersede {
                supersede_by(db, w, *old, id, ruling)?;
            }
            for (old, end) in close {
                close_at(db, w, *old, *end)?;
            }
            if !restored {
                step(db, w, found, Status::Active, &ruling.reason, ruling.rule)?;
                let r = &found.record;
                let by_tier = tier_end(settings, r.kind, r.protected, r.tier, w.now);
                // What was asked for and is over ended it once; who brings it back wants it to hold.
                found.record.expire_time = found.expire_asked.filter(|asked| *asked > w.now).or(by_tier);
            }
            found.record.supersedes = supersede.last().copied().or(found.record.supersedes);
            found.record.superseded_by = None;
            found.record.superseded_at = None;
            found.record.valid_to = *valid_to;
            found.record.event_time = event_time;
            found.conflicts_with = *may_replace;
            found.due = may_replace.is_some();
            write_back(db, w, found, ruling.rule)?;
            for old in queue {
                requeue(db, w, settings, *old, &found.record)?;
            }
            end_overlays(db, w, found, event_time)
        }
        Decision::Candidate { conflicts_with, due } if restored => {
            step(db, w, found, Status::Candidate, &ruling.reason, ruling.rule)?;
            found.conflicts_with = *conflicts_with;
            found.due = *due;
            write_back(db, w, found, ruling.rule)
        }
        Decision::Candidate { conflicts_with, due } => ask(db, w, found, *conflicts_with, *due, ruling),
        Decision::Disputed { conflicts_with, .. } => ask(db, w, found, *conflicts_with, true, ruling),
        Decision::History { after, before } => {
            // Two moves at one instant: the table knows no way from CANDIDATE straight into the past.
            if !restored {
                step(db, w, found, Status::Active, &ruling.reason, ruling.rule)?;
            }
            step(db, w, found, Status::Superseded, &ruling.reason, ruling.rule)?;
            found.record.supersedes = *after;
            found.record.superseded_by = Some(*before);
            found.record.superseded_at = Some(w.now);
            found.record.expire_time = None;
            found.conflicts_with = None;
            found.due = false;
            write_back(db, w, found, ruling.rule)?;
            relink(db, w, id, *after, *before)
        }
    }
}

/// Forgets a record softly: it keeps the state it goes back to (rule E1).
///
/// # Errors
/// `STATUS_MOVE` when it is forgotten already.
pub fn forget(db: &Connection, w: &Writing<'_>, found: &mut StoredRecord, reason: &str) -> Result<(), Fault> {
    found.earlier_status = Some(found.record.status);
    step(db, w, found, Status::Deleted, reason, "E1")?;
    found.due = false;
    // The caller's words go no further than the history, which an erasure takes: nothing is ever taken out of the audit.
    write_back_because(db, w, found, "E1", "asked for")?;
    match &found.record.key {
        Some(key) => owner::release_if_empty(db, found.owner, key),
        None => Ok(()),
    }
}

/// Takes a soft forget back, to the state the record was forgotten in; a record that was ACTIVE goes through [`activate`]
/// next, which moves it on from there.
///
/// # Errors
/// `STATUS_MOVE` when it is not forgotten.
pub fn unforget(db: &Connection, w: &Writing<'_>, found: &mut StoredRecord) -> Result<Status, Fault> {
    let earlier = found.earlier_status.unwrap_or(Status::Candidate);
    status::check_restore(found.record.status, found.earlier_status, earlier)?;
    write_history(db, w, &found.record, Some(Status::Deleted), earlier, "E1: restored", "E1")?;
    found.record.status = earlier;
    "E1: restored".clone_into(&mut found.record.reason);
    found.earlier_status = None;
    Ok(earlier)
}

/// Writes a restored record back whose state needs no further rule.
///
/// # Errors
/// As the database says.
pub fn restored(db: &Connection, w: &Writing<'_>, found: &mut StoredRecord) -> Result<(), Fault> {
    write_back(db, w, found, "E1")
}

/// Writes down that time has moved a record: an expired one gives its slot and its identity free (rule F1).
///
/// # Errors
/// As the database says.
pub fn expire_due(db: &Connection, w: &Writing<'_>, found: Vec<StoredRecord>) -> Result<Vec<StoredRecord>, Fault> {
    let mut live = Vec::with_capacity(found.len());
    for mut found in found {
        let r = &found.record;
        let to = status::at(r.status, r.tier, r.expire_time, w.now);
        if to == r.status {
            live.push(found);
        } else {
            move_to(db, &Writing { actor: "strata:clock", ..w.clone() }, &mut found, to, "F1: past its expiry", "F1")?;
        }
    }
    Ok(live)
}

fn write_terms(db: &Connection, new: &StoredRecord, terms: &Terms) -> Result<(), Fault> {
    let mut statement =
        db.prepare_cached("INSERT INTO record_terms (owner_id, term, memory_id, tf) VALUES (?1, ?2, ?3, ?4)").sql()?;
    for (term, count) in &terms.counts {
        statement.execute((new.owner.owner_id, term, id_bytes(new.record.memory_id), count)).sql()?;
    }
    Ok(())
}
