//! What the service makes of records: summaries (rule F5). They enter here and nowhere else, from a value that only the gate
//! makes. What becomes of a member becomes of the summary: it never says longer what a member no longer says.

use super::{Material, Writing, announce, draft, move_to, write_back, write_history, write_terms};
use crate::metadata::row::{StoredRecord, by_id, id_bytes, id_from, packed};
use crate::metadata::{Sql, query};
use rusqlite::{Connection, OptionalExtension};
use strata_core::limits::EVIDENCE;
use strata_core::policy::conflict::{Decision, Ruling, strongest};
use strata_core::policy::gate::{GateSettings, Gated};
use strata_core::policy::status;
use strata_core::record::{Kind, Sensitivity, Status, Tier};
use strata_core::{Fault, MemoryId, Timestamp};

/// Why a summary is there: in its record, its history and the audit.
const MADE_BY_RULE: &str = "F5: stands for what was said often on one topic";
/// The same, where a model chose the clauses.
const MADE_BY_MODEL: &str = "F5: stands for what was said often on one topic, in clauses that a model chose";

/// State of a summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SummaryState {
    /// What it says is what its members say.
    Current,
    /// A member was corrected or forgotten since.
    Stale,
    /// Taken back by a person, or made anew.
    Undone,
}

impl SummaryState {
    const fn name(self) -> &'static str {
        match self {
            Self::Current => "CURRENT",
            Self::Stale => "STALE",
            Self::Undone => "UNDONE",
        }
    }
}

/// A member as a summary has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The member.
    pub member: MemoryId,
    /// What it was when the summary was made.
    pub earlier: Status,
}

/// The state of a summary; none for a record that is none.
///
/// # Errors
/// As the database says.
pub fn state(db: &Connection, id: MemoryId) -> Result<Option<SummaryState>, Fault> {
    let mut statement = db.prepare_cached("SELECT state FROM summaries WHERE memory_id = ?1").sql()?;
    let text: Option<String> = statement.query_row([id_bytes(id)], |row| row.get(0)).optional().sql()?;
    Ok(text.map(|text| match text.as_str() {
        "CURRENT" => SummaryState::Current,
        "STALE" => SummaryState::Stale,
        _ => SummaryState::Undone,
    }))
}

fn set_state(db: &Connection, found: &StoredRecord, state: SummaryState) -> Result<(), Fault> {
    let mut statement =
        db.prepare_cached("INSERT OR REPLACE INTO summaries (memory_id, owner_id, state) VALUES (?1, ?2, ?3)").sql()?;
    statement.execute((id_bytes(found.record.memory_id), found.owner.owner_id, state.name())).sql()?;
    Ok(())
}

/// Members of a summary that is not taken back, in the order of their ids.
///
/// # Errors
/// As the database says.
pub fn members(db: &Connection, summary: MemoryId) -> Result<Vec<Membership>, Fault> {
    let mut statement =
        db.prepare_cached("SELECT member_id, earlier_status FROM derivations WHERE derived_id = ?1 ORDER BY member_id").sql()?;
    let rows =
        statement.query_map([id_bytes(summary)], |row| Ok((row.get::<_, [u8; 16]>(0)?, row.get::<_, String>(1)?))).sql()?;
    let mut out = Vec::new();
    for row in rows {
        let (member, earlier) = row.sql()?;
        let earlier = Status::from_name(&earlier).ok_or_else(|| crate::metadata::corrupt("derivations.earlier_status"))?;
        out.push(Membership { member: id_from(member), earlier });
    }
    Ok(out)
}

/// Notes what a record is made of.
///
/// # Errors
/// As the database says.
pub fn derive(db: &Connection, new: &StoredRecord, members: &[(MemoryId, Status)]) -> Result<(), Fault> {
    let mut statement = db
        .prepare_cached(
            "INSERT OR REPLACE INTO derivations (derived_id, member_id, owner_id, earlier_status) VALUES (?1, ?2, ?3, ?4)",
        )
        .sql()?;
    for (member, earlier) in members {
        let row = (id_bytes(new.record.memory_id), id_bytes(*member), new.owner.owner_id, earlier.name());
        statement.execute(row).sql()?;
    }
    Ok(())
}

/// Takes over what an imported record was made of: its members may come later, or never.
///
/// # Errors
/// As the database says.
pub(super) fn adopt(db: &Connection, new: &StoredRecord) -> Result<(), Fault> {
    let r = &new.record;
    let members: Vec<(MemoryId, Status)> = r.derived_from.iter().map(|id| (*id, Status::Archived)).collect();
    derive(db, new, &members)?;
    if r.kind == Kind::Summary {
        let state = if r.status == Status::Active { SummaryState::Current } else { SummaryState::Undone };
        set_state(db, new, state)?;
    }
    Ok(())
}

/// A summary as it is to be made.
#[derive(Clone, Debug)]
pub struct Making<'a> {
    /// Its words, judged.
    pub gated: &'a Gated,
    /// Its id and terms.
    pub material: &'a Material,
    /// A model chose its words.
    pub by_model: bool,
    /// What it stands for, oldest first, with their states.
    pub members: &'a [(MemoryId, Status)],
    /// Event times of the oldest and the newest.
    pub span: (Timestamp, Timestamp),
    /// The stale one it takes the place of.
    pub replaces: Option<MemoryId>,
}

/// Makes a summary, if every member still says what it said; answers whether it is there.
///
/// # Errors
/// As the database says.
pub fn summary(db: &Connection, w: &Writing<'_>, settings: &GateSettings, making: &Making<'_>) -> Result<bool, Fault> {
    let id = making.material.memory_id;
    if by_id(db, id)?.is_some() {
        return Ok(state(db, id)? == Some(SummaryState::Current));
    }
    for (member, _) in making.members {
        let there = by_id(db, *member)?.filter(|found| found.owner == w.stored);
        if !there.is_some_and(|found| matches!(found.record.status, Status::Active | Status::Archived | Status::Expired)) {
            return Ok(false);
        }
    }
    if query::twin(db, w.stored, &making.gated.identity())?.is_some() {
        return Ok(false);
    }
    let ruling = Ruling {
        decision: Decision::Active {
            supersede: Vec::new(),
            close: Vec::new(),
            valid_to: None,
            queue: Vec::new(),
            may_replace: None,
        },
        rule: "F5",
        reason: if making.by_model { MADE_BY_MODEL } else { MADE_BY_RULE }.to_owned(),
        findings: Vec::new(),
    };
    let mut new = draft(w, settings, making.gated, making.material, &ruling, making.span.1);
    status::check(None, Status::Active)?;
    new.record.status = Status::Active;
    new.record.derived_from = making.members.iter().map(|(id, _)| *id).collect();
    new.record.source_span = Some(making.span);
    new.insert(db)?;
    write_history(db, w, &new.record, None, Status::Active, &new.record.reason, "F5")?;
    super::add_evidence(db, w, &mut new, making.gated, making.material)?;
    // The newest member's time: making a summary makes nothing younger (case C169).
    new.record.event_time = making.span.1;
    new.update(db)?;
    write_terms(db, &new, &making.material.terms)?;
    derive(db, &new, making.members)?;
    set_state(db, &new, SummaryState::Current)?;
    announce(db, w, &new, "F5", "")?;
    if let Some(old) = making.replaces
        && let Some(old) = by_id(db, old)?
    {
        retire(db, w, old, "F5: made anew without what was corrected or forgotten")?;
    }
    Ok(true)
}

/// Takes a summary out of recall and gives its members free.
///
/// # Errors
/// As the database says.
pub fn retire(db: &Connection, w: &Writing<'_>, mut found: StoredRecord, reason: &str) -> Result<StoredRecord, Fault> {
    let id = id_bytes(found.record.memory_id);
    db.prepare_cached("DELETE FROM derivations WHERE derived_id = ?1").sql()?.execute([id]).sql()?;
    set_state(db, &found, SummaryState::Undone)?;
    if found.record.status == Status::Active {
        move_to(db, w, &mut found, Status::Archived, reason, "F5")?;
    }
    Ok(found)
}

/// A member no longer counts: every summary that says it leaves recall at once, and is remade by the next run.
///
/// # Errors
/// As the database says.
pub fn stale(db: &Connection, w: &Writing<'_>, member: MemoryId) -> Result<(), Fault> {
    let mut statement = db
        .prepare_cached(
            "SELECT d.derived_id FROM derivations d JOIN summaries s ON s.memory_id = d.derived_id \
             WHERE d.member_id = ?1 AND s.state = 'CURRENT'",
        )
        .sql()?;
    let rows = statement.query_map([id_bytes(member)], |row| row.get::<_, [u8; 16]>(0)).sql()?;
    let ids = rows.collect::<rusqlite::Result<Vec<_>>>().sql()?;
    for id in ids {
        let Some(mut found) = by_id(db, id_from(id))? else { continue };
        set_state(db, &found, SummaryState::Stale)?;
        if found.record.status == Status::Active {
            let reason = "F5: a member was corrected or forgotten: stale until it is made anew";
            move_to(db, w, &mut found, Status::Archived, reason, "F5")?;
        }
    }
    Ok(())
}

/// One record of two that say the same (rule R11, case C166): the survivor takes over evidence, counts and times, and rises to
/// the stronger source; the other is archived and leads to it. Answers whether both were there.
///
/// # Errors
/// As the database says.
pub fn merge(db: &Connection, w: &Writing<'_>, survivor: MemoryId, mut loser: StoredRecord, reason: &str) -> Result<bool, Fault> {
    let there = by_id(db, survivor)?.filter(|found| found.owner == loser.owner && found.record.status == Status::Active);
    let Some(mut kept) = there else { return Ok(false) };
    let (from, to) = (id_bytes(loser.record.memory_id), id_bytes(survivor));
    let copied = db
        .prepare_cached(
            "INSERT OR IGNORE INTO evidence (memory_id, owner_id, mark, source, source_ref, session_id, cues, quote, quote_verified, time) \
             SELECT ?1, owner_id, mark, source, source_ref, session_id, cues, quote, quote_verified, time FROM evidence WHERE memory_id = ?2 \
             ORDER BY evidence_id LIMIT max(0, ?3 - (SELECT count(*) FROM evidence WHERE memory_id = ?1))",
        )
        .sql()?
        .execute((to, from, EVIDENCE))
        .sql()?;
    let mut sessions = db.prepare_cached("SELECT count(DISTINCT session_id) FROM evidence WHERE memory_id = ?1").sql()?;
    let sessions: u32 = sessions.query_row([to], |row| row.get(0)).sql()?;
    // A record's time of learning never changes but here: of two that are one, the earlier counts.
    let mut older = db.prepare_cached("UPDATE records SET create_time = min(create_time, ?2) WHERE memory_id = ?1").sql()?;
    older.execute((to, loser.record.create_time.micros())).sql()?;
    let (r, l) = (&mut kept.record, &loser.record);
    r.source = strongest(r.source, l.source);
    r.confidence = r.confidence.max(l.confidence);
    r.confirmed |= l.confirmed;
    r.quote_verified |= l.quote_verified;
    r.importance = r.importance.max(l.importance);
    if l.sensitivity == Sensitivity::Personal {
        r.sensitivity = Sensitivity::Personal;
    }
    r.event_time = r.event_time.max(l.event_time);
    r.last_recalled_at = r.last_recalled_at.max(l.last_recalled_at);
    r.last_cited_at = r.last_cited_at.max(l.last_cited_at);
    r.recall_count = r.recall_count.saturating_add(l.recall_count);
    r.cite_count = r.cite_count.saturating_add(l.cite_count);
    r.evidence_count = r.evidence_count.saturating_add(l.evidence_count.max(u32::try_from(copied).unwrap_or(u32::MAX)));
    r.evidence_sessions = r.evidence_sessions.max(sessions);
    if r.tier != Tier::Stable {
        r.expire_time = r.expire_time.max(l.expire_time);
    }
    let status = kept.record.status;
    write_history(db, w, &kept.record, Some(status), status, "R11: took over a record that says the same", "R11")?;
    write_back(db, w, &mut kept, "R11")?;
    loser.record.superseded_by = Some(survivor);
    loser.record.superseded_at = Some(w.now);
    move_to(db, w, &mut loser, Status::Archived, reason, "R11")?;
    Ok(true)
}

/// Notes on a record that was proposed what it was made of, and that it is to be put to the user.
///
/// # Errors
/// As the database says.
pub fn propose(
    db: &Connection,
    w: &Writing<'_>,
    found: &mut StoredRecord,
    events: &[(MemoryId, Status)],
    span: (Timestamp, Timestamp),
) -> Result<(), Fault> {
    let ids: Vec<MemoryId> = events.iter().map(|(id, _)| *id).collect();
    derive(db, found, events)?;
    let mut statement =
        db.prepare_cached("UPDATE records SET derived_from = ?2, span_from = ?3, span_to = ?4 WHERE memory_id = ?1").sql()?;
    let row = (id_bytes(found.record.memory_id), packed(&ids), span.0.micros(), span.1.micros());
    statement.execute(row).sql()?;
    found.due = true;
    "F10: events on one slot say the same: put to the user".clone_into(&mut found.record.reason);
    write_back(db, w, found, "F10")
}

/// Notes that a person took an automatic step on a record back.
///
/// # Errors
/// As the database says.
pub fn exempt(db: &Connection, found: &StoredRecord) -> Result<(), Fault> {
    let mut statement = db.prepare_cached("INSERT OR IGNORE INTO exempt (memory_id, owner_id) VALUES (?1, ?2)").sql()?;
    statement.execute((id_bytes(found.record.memory_id), found.owner.owner_id)).sql()?;
    Ok(())
}
