//! Back from what is over: forgotten and archived records that a person wants to hold again, and consolidations taken back.
//! Every way into ACTIVE runs the conflict rules (rule K7), and what a person took back no rule does again.

use super::{Context, activate, digests_of, user_authority, visible_record};
use crate::metadata::insert::{self, Writing, derived};
use crate::metadata::row::StoredRecord;
use crate::metadata::{Visible, erasures, ledger, owner, query, row};
use rusqlite::Connection;
use strata_core::policy::gate::Standing;
use strata_core::policy::registry::Registry;
use strata_core::policy::status;
use strata_core::record::{Kind, Status, Tier};
use strata_core::rule::Finding;
use strata_core::{Fault, MemoryId, Reason};

/// Whether a record that is over was active before: only that comes back.
///
/// # Errors
/// As the database says.
pub(super) fn held(db: &Connection, found: &StoredRecord) -> Result<bool, Fault> {
    let moves = query::history(db, found.record.memory_id)?;
    let over = |status: Status| matches!(status, Status::Expired | Status::Archived);
    Ok(moves.iter().rev().find(|entry| !over(entry.to)).is_some_and(|entry| entry.to == Status::Active))
}

/// Makes an archived record hold again, as far as the conflict rules let it; answers whether it was moved.
///
/// # Errors
/// As the database says.
pub(super) fn revive(
    db: &Connection,
    c: &Context<'_>,
    w: &Writing<'_>,
    authority: bool,
    found: &mut StoredRecord,
    findings: &mut Vec<Finding>,
) -> Result<bool, Fault> {
    if found.record.kind == Kind::Summary {
        if derived::state(db, found.record.memory_id)? != Some(derived::SummaryState::Current) {
            let because = "the summary was taken back, or a member of it was corrected or forgotten: it stays archived";
            findings.push(Finding::new("F5", "ARCHIVED", because));
            return Ok(false);
        }
    } else if !held(db, found)? {
        findings.push(Finding::new("K7", "ARCHIVED", "it never held: it stays archived"));
        return Ok(false);
    }
    let twin = query::twin(db, found.owner, &found.dedup)?;
    if !insert::expire_due(db, w, twin.into_iter().collect())?.is_empty() {
        findings.push(Finding::new("G10", "ARCHIVED", "the same statement was made again since: it stays archived"));
        return Ok(false);
    }
    let standing = if found.record.tier == Tier::Temporary { Standing::Temporary } else { Standing::Active };
    activate(db, c, w, found, authority, standing, None, &[], findings)?;
    derived::exempt(db, found)?;
    Ok(true)
}

/// What was restored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Restored {
    /// The records as they stand now.
    pub records: Vec<StoredRecord>,
    /// Ids that were not found for this owner, or not forgotten.
    pub not_found: Vec<MemoryId>,
    /// Findings of the conflict rules.
    pub findings: Vec<Finding>,
    /// Revision of the user.
    pub revision: u64,
}

/// Takes soft forgets back, and brings archived records back; what was ACTIVE goes through the conflict rules again (rules E1,
/// K7).
///
/// # Errors
/// `OVERLOADED`; as the database says.
pub fn restore(db: &Connection, c: &Context<'_>, registry: &Registry, ids: &[MemoryId]) -> Result<Restored, Fault> {
    ledger::check_outbox(db, &c.scope.owner().tenant, c.now)?;
    let Some(visible) = Visible::of(db, c.scope)? else {
        return Ok(Restored { not_found: ids.to_vec(), ..Restored::default() });
    };
    let mut out = Restored { revision: visible.revision, ..Restored::default() };
    let mut changed = false;
    for id in ids {
        let found = row::by_id(db, *id)?.filter(|found| visible.sees(found.owner));
        let found = if erasures::is_going(db, *id)? { None } else { found };
        let Some(found) = found else {
            out.not_found.push(*id);
            continue;
        };
        let owner = found.record.owner.clone();
        let w = Writing { owner: &owner, ..c.writing(found.owner, "RestoreMemories") };
        // What is over by the clock is written down first: both moves stand in its history.
        let mut found = match insert::expire_due(db, &w, vec![found])?.pop() {
            Some(live) => live,
            None => visible_record(db, c, *id)?,
        };
        if found.record.status == Status::Archived {
            let authority = user_authority(registry, found.record.key.as_ref());
            changed |= revive(db, c, &w, authority, &mut found, &mut out.findings)?;
            out.records.push(found);
            continue;
        }
        if found.record.status != Status::Deleted {
            out.not_found.push(*id);
            continue;
        }
        let of_members = found.record.kind == Kind::Summary;
        if of_members && derived::state(db, *id)? != Some(derived::SummaryState::Current) {
            let because = "a member of the summary was corrected or forgotten since: it stays forgotten";
            out.findings.push(Finding::new("F5", "DELETED", because));
            out.records.push(found);
            continue;
        }
        let earlier = found.earlier_status.unwrap_or(Status::Candidate);
        if strata_core::policy::status::holds_identity(earlier) {
            let twin = query::twin(db, found.owner, &found.dedup)?;
            if !insert::expire_due(db, &w, twin.into_iter().collect())?.is_empty() {
                out.findings.push(Finding::new("G10", "DELETED", "the same statement was made again since: it stays forgotten"));
                out.records.push(found);
                continue;
            }
        }
        changed = true;
        ledger::unbury(db, visible.user_id, &digests_of(c, &found))?;
        if insert::unforget(db, &w, &mut found)? == Status::Active {
            let authority = user_authority(registry, found.record.key.as_ref());
            let standing = if found.record.tier == Tier::Temporary { Standing::Temporary } else { Standing::Active };
            activate(db, c, &w, &mut found, authority, standing, None, &[], &mut out.findings)?;
        } else {
            insert::restored(db, &w, &mut found)?;
        }
        out.records.push(query::at(found, c.now));
    }
    if changed {
        out.revision = owner::next_revision(db, visible.user_id)?;
    }
    Ok(out)
}

/// What was taken back.
#[derive(Clone, Debug, PartialEq)]
pub struct Undone {
    /// The summary as it stands now.
    pub summary: StoredRecord,
    /// Members that hold again.
    pub restored: Vec<MemoryId>,
    /// Members that stay as they are.
    pub left: Vec<MemoryId>,
    /// Members that were removed since.
    pub removed: Vec<MemoryId>,
    /// Findings of the conflict rules.
    pub findings: Vec<Finding>,
    /// Revision of the user.
    pub revision: u64,
}

/// Takes a consolidation back (rule F5).
///
/// # Errors
/// `NOT_FOUND`, `STATUS_MOVE`, `OVERLOADED`.
pub fn undo(db: &Connection, c: &Context<'_>, registry: &Registry, id: MemoryId) -> Result<Undone, Fault> {
    ledger::check_outbox(db, &c.scope.owner().tenant, c.now)?;
    let found = visible_record(db, c, id)?;
    let refused = |because: &str| {
        Fault::new(Reason::StatusMove, format!("nothing is taken back: {because}"))
            .with("state", found.record.status.name())
            .rule("F5", "memory", because.to_owned())
    };
    match derived::state(db, id)? {
        None => return Err(refused("the record is no summary")),
        Some(derived::SummaryState::Undone) => return Err(refused("it was taken back before, or made anew")),
        Some(derived::SummaryState::Current | derived::SummaryState::Stale) => {}
    }
    let holder = found.record.owner.clone();
    let w = Writing { owner: &holder, ..c.writing(found.owner, "UndoConsolidation") };
    let (mut restored, mut left, mut removed, mut findings) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let members = derived::members(db, id)?;
    let summary = derived::retire(db, &w, found, "F5: taken back")?;
    for membership in members {
        let Some(mut member) = row::by_id(db, membership.member)? else {
            removed.push(membership.member);
            continue;
        };
        derived::exempt(db, &member)?;
        let end = member.record.expire_time;
        let r = &member.record;
        let was = membership.earlier == Status::Active && r.status == Status::Archived;
        let would = status::at(Status::Active, r.tier, end, c.now) == Status::Active;
        if !(was && would) {
            left.push(membership.member);
            continue;
        }
        let authority = user_authority(registry, r.key.as_ref());
        if revive(db, c, &w, authority, &mut member, &mut findings)? && member.record.status == Status::Active {
            // It goes on where it was: being condensed and back is no renewal.
            member.record.expire_time = end;
            insert::restored(db, &w, &mut member)?;
            restored.push(membership.member);
        } else {
            left.push(membership.member);
        }
    }
    let revision = owner::next_revision(db, w.stored.user_id)?;
    Ok(Undone { summary, restored, left, removed, findings, revision })
}
