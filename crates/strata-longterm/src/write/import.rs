//! One line of an import, inside the import's transaction: what was there stays (case C161).

use super::parts::{carry_entity, carry_relation, carry_skill};
use super::{
    Context, Meant, Put, REPEATED, Written, activate, apart, digests_of, overlapping, put_entity, put_skill, store,
    user_authority,
};
use crate::metadata::insert::{self, Material, Writing};
use crate::metadata::{StoredOwner, StoredRecord, erasures, ledger, owner, query, row};
use crate::scope::OwnerScope;
use rusqlite::Connection;
use strata_api::convert::transfer::Carried;
use strata_core::part::{Entity, Relation, Skill};
use strata_core::policy::gate::{self, Gated, Standing};
use strata_core::policy::registry::Registry;
use strata_core::policy::status::holds_identity;
use strata_core::record::{Status, Tier};
use strata_core::rule::Finding;
use strata_core::{Fault, MemoryId, Reason, Timestamp};

/// A line that passed the gate.
#[derive(Clone, Debug)]
pub enum Admitted {
    /// Signed by this deployment: taken over as it is.
    Carried(Box<Carried>, Gated, Material),
    /// Any other line: a statement, with the record that it was, if the line says so, and when that was last said, as the line has it.
    Stated(Gated, Material, Option<MemoryId>, Timestamp),
    /// A signed entity.
    Entity(Box<Entity>, Gated),
    /// A signed relation.
    Relation(Box<Relation>, Gated),
    /// A signed version of a skill.
    Skill(Box<Skill>, Gated),
    /// An entity of any other line, under an id of its own.
    NamedEntity(Gated, MemoryId),
    /// A skill of any other line.
    TaughtSkill(Gated, MemoryId),
}

/// What became of a line.
#[derive(Clone, Debug, PartialEq)]
pub enum Landed {
    /// A new record.
    Added,
    /// Evidence of a record that says the same.
    Merged,
    /// The record is there already, or another that says the same.
    Known,
    /// Nothing was stored.
    Refused(Fault, Vec<Finding>),
}

/// Takes one line over; what fails leaves no trace of the line, and the others go on.
///
/// # Errors
/// What concerns the whole import: a store that fails or is full.
pub fn land(db: &Connection, c: &Context<'_>, registry: &Registry, scope: &OwnerScope, line: &Admitted) -> Result<Landed, Fault> {
    let c = Context { scope, ..c.clone() };
    let landed = apart(db, || match line {
        Admitted::Carried(carried, gated, material) => carry(db, &c, registry, carried, gated, material),
        Admitted::Stated(gated, material, id, said) => state_again(db, &c, gated, material, *id, *said),
        Admitted::Entity(carried, gated) => carry_entity(db, &c, gated, carried).map(added),
        Admitted::Relation(carried, gated) => carry_relation(db, &c, gated, carried).map(added),
        Admitted::Skill(carried, gated) => carry_skill(db, &c, gated, carried).map(added),
        Admitted::NamedEntity(gated, id) => put_entity(db, &c, gated, *id, &Meant::default()).map(|put| part_landed(&put)),
        Admitted::TaughtSkill(gated, id) => put_skill(db, &c, gated, *id, 0).map(|put| part_landed(&put)),
    })?;
    Ok(landed.unwrap_or_else(|fault| Landed::Refused(fault, Vec::new())))
}

const fn added(new: bool) -> Landed {
    if new { Landed::Added } else { Landed::Known }
}

fn part_landed<T>(put: &Put<T>) -> Landed {
    match put.outcome {
        super::Outcome::NeedsConsent => Landed::Refused(wants_consent(), put.findings.clone()),
        super::Outcome::EvidenceAdded => Landed::Known,
        super::Outcome::Updated => Landed::Merged,
        super::Outcome::Active | super::Outcome::Candidate | super::Outcome::Disputed | super::Outcome::History => Landed::Added,
    }
}

fn wants_consent() -> Fault {
    Fault::new(Reason::GatePii, "needs the user's consent; say it again with the challenge")
}

fn landed(written: &Written) -> Landed {
    match written.outcome {
        super::Outcome::NeedsConsent => Landed::Refused(wants_consent(), written.findings.clone()),
        super::Outcome::EvidenceAdded | super::Outcome::Updated => {
            let repeated = written.findings.iter().any(|finding| finding.because == REPEATED);
            if repeated { Landed::Known } else { Landed::Merged }
        }
        super::Outcome::Active | super::Outcome::Candidate | super::Outcome::Disputed | super::Outcome::History => Landed::Added,
    }
}

/// Rule E6, of signed lines and of others: taking the signature off brings nothing back.
fn check_erased(db: &Connection, c: &Context<'_>, stored: StoredOwner, id: MemoryId) -> Result<(), Fault> {
    if erasures::id_was_erased(db, stored.user_id, &erasures::id_digest(c.tombstones, c.scope.owner(), id))? {
        let fault = Fault::new(Reason::Forgotten, "this record was erased; its export does not bring it back");
        return Err(fault.rule("E6", "memory.memory_id", "the id of an erased record"));
    }
    Ok(())
}

/// A line that counts as a statement. It is no later one of the user: it is as old as it says (rule E7).
fn state_again(
    db: &Connection,
    c: &Context<'_>,
    gated: &Gated,
    material: &Material,
    id: Option<MemoryId>,
    said: Timestamp,
) -> Result<Landed, Fault> {
    let stored = owner::ensure(db, c.scope)?;
    if let Some(id) = id {
        check_erased(db, c, stored, id)?;
    }
    let kind = gated.statement().kind;
    let digests = c.tombstones.digests(c.scope.owner(), kind, gated.key(), gated.normal(), &gated.identity());
    gate::check_forgotten(ledger::erased_at(db, stored, &digests)?, said)?;
    store(db, c, gated, material).map(|written| landed(&written))
}

fn carry(
    db: &Connection,
    c: &Context<'_>,
    registry: &Registry,
    carried: &Carried,
    gated: &Gated,
    material: &Material,
) -> Result<Landed, Fault> {
    let stored = owner::ensure(db, c.scope)?;
    let r = &carried.record;
    check_erased(db, c, stored, r.memory_id)?;
    if let Some(there) = row::by_id(db, r.memory_id)? {
        if there.owner == stored {
            return Ok(Landed::Known);
        }
        return Err(Fault::new(Reason::OwnerMismatch, "memory.memory_id: is another owner's record"));
    }
    let w = c.writing(stored, gated.door().name());
    if holds_identity(r.status) {
        let twin = query::twin(db, stored, &gated.identity())?;
        if !insert::expire_due(db, &w, twin.into_iter().collect())?.is_empty() {
            return Ok(Landed::Known);
        }
    }
    let said = carried.evidence.iter().map(|piece| piece.evidence.time).max().map_or(r.event_time, |time| time.max(r.event_time));
    let digests = c.tombstones.digests(c.scope.owner(), r.kind, r.key.as_ref(), gated.normal(), &gated.identity());
    gate::check_forgotten(ledger::erased_at(db, stored, &digests)?, said)?;

    let contested = r.status == Status::Active && contested(db, &w, carried)?;
    let mut found = insert::readmit(db, &w, carried, gated, material, contested)?;
    if contested {
        // Another value holds the slot here: the conflict rules say which one goes on (rule K7).
        let authority = user_authority(registry, r.key.as_ref());
        let standing = if r.tier == Tier::Temporary { Standing::Temporary } else { Standing::Active };
        activate(db, c, &w, &mut found, authority, standing, None, &[], &mut Vec::new())?;
    }
    if r.status == Status::Deleted {
        let forgotten = carried.history.iter().rev().find(|entry| entry.to == Status::Deleted).map_or(r.update_time, |e| e.time);
        ledger::bury(db, stored.user_id, &digests_of(c, &found), forgotten)?;
    }
    Ok(Landed::Added)
}

fn contested(db: &Connection, w: &Writing<'_>, carried: &Carried) -> Result<bool, Fault> {
    let r = &carried.record;
    let (Some(key), false) = (&r.key, carried.is_set || r.tier == Tier::Event) else { return Ok(false) };
    let live: Vec<StoredRecord> = insert::expire_due(db, w, query::live_of_slot(db, w.stored, key, r.tier)?)?;
    Ok(live.iter().any(|other| other.record.status == Status::Active && overlapping(&other.record, r.valid_from, r.valid_to)))
}
