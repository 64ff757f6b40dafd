//! Entities, relations and skills inside their one transaction. They hold no slot, so the conflict rules have no say: what
//! they may become is the gate's verdict, and a weaker source changes nothing of what holds.

use super::{Context, Outcome};
use crate::metadata::entities::{self, StoredEntity};
use crate::metadata::insert::{Writing, parts};
use crate::metadata::skills::{self, StoredSkill};
use crate::metadata::{StoredOwner, Visible, ledger, owner};
use rusqlite::Connection;
use strata_core::part::{Entity, EntityDraft, Relation, Skill, SkillDraft, prefix};
use strata_core::policy::gate::{self, EvidenceFacts, Gated, Standing};
use strata_core::record::{SourceRef, Status};
use strata_core::rule::Finding;
use strata_core::{Fault, MemoryId, Reason, limits};
use strata_text::clean::normal;

/// What became of a part.
#[derive(Clone, Debug, PartialEq)]
pub struct Put<T> {
    /// What it came to.
    pub outcome: Outcome,
    /// The part as it stands now; none with [`Outcome::NeedsConsent`], and when it was taken away.
    pub part: Option<T>,
    /// Every finding of the gate.
    pub findings: Vec<Finding>,
    /// Revision of the user.
    pub revision: u64,
}

/// What the gate lets a part become.
enum Verdict {
    NeedsConsent,
    May(Status),
}

fn verdict(c: &Context<'_>, gated: &Gated, findings: &mut Vec<Finding>) -> Verdict {
    if gated.standing() == Standing::NeedsConsent {
        return Verdict::NeedsConsent;
    }
    let in_turn = matches!(gated.statement().source_ref, Some(SourceRef::Turn { .. }));
    let user_sessions = u32::from(gated.cues().has(gate::Cues::USER) && in_turn);
    let facts = EvidenceFacts { cues: gated.cues(), statements: 1, user_sessions, sessions: 1 };
    let diversion = gate::divert(c.settings, gated, &facts);
    findings.extend(diversion.findings);
    Verdict::May(if diversion.standing > Standing::Candidate { Status::Active } else { Status::Candidate })
}

const fn outcome(status: Status) -> Outcome {
    if matches!(status, Status::Active) { Outcome::Active } else { Outcome::Candidate }
}

fn consent<T>(db: &Connection, c: &Context<'_>, findings: Vec<Finding>) -> Result<Put<T>, Fault> {
    let revision = Visible::of(db, c.scope)?.map_or(0, |visible| visible.revision);
    Ok(Put { outcome: Outcome::NeedsConsent, part: None, findings, revision })
}

/// Rule E7 for a part: it is known by its kind and name.
fn digests(c: &Context<'_>, w: &Writing<'_>, kind: &str, name: &str) -> [[u8; 32]; 1] {
    [c.tombstones.digest(w.owner, &["part", kind, &normal(name)])]
}

fn check_forgotten(
    db: &Connection,
    c: &Context<'_>,
    w: &Writing<'_>,
    gated: &Gated,
    kind: &str,
    name: &str,
) -> Result<(), Fault> {
    let erased = ledger::erased_at(db, w.stored, &digests(c, w, kind, name))?;
    gate::check_forgotten(erased, gated.statement_time().unwrap_or(c.now))
}

/// Which entity a caller means, beside its names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meant {
    /// An entity that is there, with the version the caller saw.
    pub existing: Option<(MemoryId, Option<u64>)>,
    /// Last part of the key prefix; empty: made from the name.
    pub handle: String,
}

/// Names an entity.
///
/// # Errors
/// `NOT_FOUND`, `VERSION_MISMATCH`, `FORGOTTEN`, `LIMIT_REACHED`, `INVALID_FIELD` where the name is another entity's.
pub fn put_entity(
    db: &Connection,
    c: &Context<'_>,
    gated: &Gated,
    new_id: MemoryId,
    meant: &Meant,
) -> Result<Put<StoredEntity>, Fault> {
    let mut findings = gated.findings().to_vec();
    let Verdict::May(status) = verdict(c, gated, &mut findings) else { return consent(db, c, findings) };
    let draft = EntityDraft::of(gated).ok_or_else(|| Fault::new(Reason::Internal, "an entity's statement names none"))?;
    let stored = owner::ensure(db, c.scope)?;
    let found = match meant.existing {
        Some((id, etag)) => {
            let found = visible_entity(db, c, id)?;
            if etag.is_some_and(|seen| seen != found.entity.version) {
                return Err(Fault::new(Reason::VersionMismatch, "etag: the entity has changed; read it again")
                    .with("current_value", found.entity.version.to_string()));
            }
            Some(found)
        }
        None => entities::same(db, stored, &draft.kind, &draft.name)?,
    };
    let Some(mut found) = found else {
        let w = c.writing(stored, gated.door().name());
        check_forgotten(db, c, &w, gated, &draft.kind, &draft.name)?;
        if entities::count(db, stored)? >= limits::ENTITIES {
            return Err(Fault::limit("entities", limits::ENTITIES, "entities of one owner"));
        }
        let mut key = prefix(&draft.kind, &meant.handle, &draft.name, &normal(&draft.name))?;
        if entities::has_prefix(db, stored, &key)? {
            if !meant.handle.is_empty() {
                return Err(Fault::field("handle", "is another entity's"));
            }
            // The end of a time-ordered id is random: no two entities share it.
            let tail = new_id.to_string();
            key = strata_core::FactKey::new(format!("{}_{}", key.as_str(), &tail[tail.len() - 8..]))?;
        }
        let found = parts::entity(db, &w, gated, new_id, key, status)?;
        let revision = owner::next_revision(db, stored.user_id)?;
        return Ok(Put { outcome: outcome(status), part: Some(found), findings, revision });
    };
    let holder = found.entity.owner.clone();
    let w = Writing { owner: &holder, ..c.writing(found.owner, gated.door().name()) };
    if status == Status::Candidate && found.entity.status == Status::Active {
        findings.push(Finding::new("K2", "CANDIDATE", "a stronger source named it: its names stay"));
        let revision = Visible::of(db, c.scope)?.map_or(0, |visible| visible.revision);
        return Ok(Put { outcome: Outcome::Candidate, part: Some(found), findings, revision });
    }
    if meant.existing.is_some()
        && let Some(other) = entities::same(db, found.owner, &found.entity.kind, &draft.name)?
        && other.entity.entity_id != found.entity.entity_id
        && normal(&other.entity.name) == normal(&draft.name)
    {
        return Err(Fault::field("name", "is another entity's of this type"));
    }
    let changed = parts::rename(db, &w, gated, &mut found, meant.existing.is_some(), status)?;
    let revision = owner::next_revision(db, stored.user_id)?;
    let outcome = if changed { Outcome::Updated } else { Outcome::EvidenceAdded };
    Ok(Put { outcome, part: Some(found), findings, revision })
}

fn visible_entity(db: &Connection, c: &Context<'_>, id: MemoryId) -> Result<StoredEntity, Fault> {
    let found = match Visible::of(db, c.scope)? {
        Some(visible) => entities::get(db, &visible, id)?,
        None => None,
    };
    found.ok_or_else(|| Fault::not_found("entity", id.to_string()))
}

/// Removes an entity.
///
/// # Errors
/// `NOT_FOUND`.
pub fn delete_entity(db: &Connection, c: &Context<'_>, id: MemoryId) -> Result<(u32, u64), Fault> {
    let found = visible_entity(db, c, id)?;
    let holder = found.entity.owner.clone();
    let w = Writing { owner: &holder, ..c.writing(found.owner, "DeleteEntity") };
    let relations = parts::remove_entity(db, &w, id)?;
    ledger::bury(db, found.owner.user_id, &digests(c, &w, &found.entity.kind, &found.entity.name), c.now)?;
    Ok((relations, owner::next_revision(db, found.owner.user_id)?))
}

/// Relates two entities.
///
/// # Errors
/// `NOT_FOUND`, `LIMIT_REACHED`.
pub fn relate(db: &Connection, c: &Context<'_>, gated: &Gated, from: MemoryId, to: MemoryId) -> Result<Put<Relation>, Fault> {
    let mut findings = gated.findings().to_vec();
    let Verdict::May(status) = verdict(c, gated, &mut findings) else { return consent(db, c, findings) };
    for end in [from, to] {
        visible_entity(db, c, end)?;
    }
    let stored = owner::ensure(db, c.scope)?;
    if entities::count_relations(db, stored)? >= limits::RELATIONS {
        return Err(Fault::limit("relations", limits::RELATIONS, "relations of one owner"));
    }
    let w = c.writing(stored, gated.door().name());
    let (relation, new) = parts::relation(db, &w, gated, (from, to), status)?;
    let revision = owner::next_revision(db, stored.user_id)?;
    let outcome = if new { outcome(relation.status) } else { Outcome::EvidenceAdded };
    Ok(Put { outcome, part: Some(relation), findings, revision })
}

/// Takes a relation away.
///
/// # Errors
/// `NOT_FOUND` when it is not there.
pub fn unrelate(db: &Connection, c: &Context<'_>, from: MemoryId, relation: &str, to: MemoryId) -> Result<Put<Relation>, Fault> {
    let stored = owner::ensure(db, c.scope)?;
    let w = c.writing(stored, "LinkEntities");
    if !parts::unlink(db, &w, from, relation, to)? {
        return Err(Fault::not_found("relation", "by that name"));
    }
    let revision = owner::next_revision(db, stored.user_id)?;
    Ok(Put { outcome: Outcome::Updated, part: None, findings: Vec::new(), revision })
}

/// Teaches a skill; `seen` is the version in force that the caller saw, 0 skips the check.
///
/// # Errors
/// `VERSION_MISMATCH`, `FORGOTTEN`, `LIMIT_REACHED`.
pub fn put_skill(
    db: &Connection,
    c: &Context<'_>,
    gated: &Gated,
    new_id: MemoryId,
    seen: u32,
) -> Result<Put<StoredSkill>, Fault> {
    let mut findings = gated.findings().to_vec();
    let Verdict::May(status) = verdict(c, gated, &mut findings) else { return consent(db, c, findings) };
    let draft = SkillDraft::of(gated).ok_or_else(|| Fault::new(Reason::Internal, "a skill's statement teaches none"))?;
    let stored = owner::ensure(db, c.scope)?;
    let w = c.writing(stored, gated.door().name());
    let versions = skills::versions(db, stored, &draft.name)?;
    let in_force = versions.iter().find(|found| found.skill.status == Status::Active);
    let version = in_force.map_or(0, |found| found.skill.version);
    if seen != 0 && seen != version {
        return Err(Fault::new(Reason::VersionMismatch, "seen_version: the skill has changed; read it again")
            .with("current_value", version.to_string()));
    }
    if versions.is_empty() {
        check_forgotten(db, c, &w, gated, "skill", &draft.name)?;
    }
    let says = |found: &&StoredSkill| found.skill.triggers == draft.triggers && found.skill.steps == draft.steps;
    let known = versions.iter().rev().filter(|found| found.skill.status != Status::Superseded).find(says);
    if let Some(known) = known {
        let mut known = known.clone();
        findings.push(Finding::new("G10", "EVIDENCE_ADDED", "the same skill again"));
        if known.skill.status == Status::Candidate && status == Status::Active {
            parts::activate_skill(db, &w, &mut known, &versions)?;
        }
        let revision = owner::next_revision(db, stored.user_id)?;
        return Ok(Put { outcome: Outcome::EvidenceAdded, part: Some(known), findings, revision });
    }
    if skills::count(db, stored)? >= limits::SKILLS {
        return Err(Fault::limit("skills", limits::SKILLS, "versions of skills of one owner"));
    }
    let found = parts::skill(db, &w, gated, new_id, &versions, status)?;
    let revision = owner::next_revision(db, stored.user_id)?;
    Ok(Put { outcome: outcome(status), part: Some(found), findings, revision })
}

/// Removes a skill of the caller's own level.
///
/// # Errors
/// `NOT_FOUND`.
pub fn delete_skill(db: &Connection, c: &Context<'_>, name: &str) -> Result<(u32, u64), Fault> {
    let stored: StoredOwner = owner::ensure(db, c.scope)?;
    let w = c.writing(stored, "DeleteSkill");
    let versions = skills::versions(db, stored, name)?;
    let last = versions.last().ok_or_else(|| Fault::not_found("skill", "by that name"))?;
    let gone = parts::remove_skill(db, &w, name, last.skill.skill_id)?;
    ledger::bury(db, stored.user_id, &digests(c, &w, "skill", name), c.now)?;
    Ok((gone, owner::next_revision(db, stored.user_id)?))
}

/// Takes an entity of a signed line over; answers whether it is new.
///
/// # Errors
/// `FORGOTTEN`, `OWNER_MISMATCH`, `INVALID_FIELD`, `LIMIT_REACHED`.
pub(super) fn carry_entity(db: &Connection, c: &Context<'_>, gated: &Gated, carried: &Entity) -> Result<bool, Fault> {
    let stored = owner::ensure(db, c.scope)?;
    if let Some(there) = entities::any(db, carried.entity_id)? {
        return if there.owner == stored { Ok(false) } else { Err(foreign("entity.entity_id")) };
    }
    let known = entities::same(db, stored, &carried.kind, &carried.name)?;
    if known.is_some_and(|known| normal(&known.entity.name) == normal(&carried.name)) {
        return Ok(false);
    }
    let w = c.writing(stored, gated.door().name());
    let erased = ledger::erased_at(db, stored, &digests(c, &w, &carried.kind, &carried.name))?;
    gate::check_forgotten(erased, carried.update_time)?;
    if entities::has_prefix(db, stored, &carried.prefix)? {
        return Err(Fault::field("entity.key_prefix", "is another entity's here"));
    }
    if entities::count(db, stored)? >= limits::ENTITIES {
        return Err(Fault::limit("entities", limits::ENTITIES, "entities of one owner"));
    }
    parts::readmit_entity(db, &w, gated, carried)?;
    Ok(true)
}

/// Takes a relation of a signed line over; answers whether it is new.
///
/// # Errors
/// `INVALID_FIELD` when an end is not there, `LIMIT_REACHED`.
pub(super) fn carry_relation(db: &Connection, c: &Context<'_>, gated: &Gated, carried: &Relation) -> Result<bool, Fault> {
    let stored = owner::ensure(db, c.scope)?;
    for (field, end) in [("relation.from_id", carried.from), ("relation.to_id", carried.to)] {
        if visible_entity(db, c, end).is_err() {
            return Err(Fault::field(field, "is no entity here; its line comes first"));
        }
    }
    if entities::relation(db, stored, carried.from, &carried.relation, carried.to)?.is_some() {
        return Ok(false);
    }
    if entities::count_relations(db, stored)? >= limits::RELATIONS {
        return Err(Fault::limit("relations", limits::RELATIONS, "relations of one owner"));
    }
    parts::readmit_relation(db, &c.writing(stored, gated.door().name()), gated, carried)?;
    Ok(true)
}

/// Takes a version of a skill of a signed line over; answers whether it is new. What is in force here stays in force.
///
/// # Errors
/// `FORGOTTEN`, `OWNER_MISMATCH`, `LIMIT_REACHED`.
pub(super) fn carry_skill(db: &Connection, c: &Context<'_>, gated: &Gated, carried: &Skill) -> Result<bool, Fault> {
    let stored = owner::ensure(db, c.scope)?;
    if let Some(there) = skills::any(db, carried.skill_id)? {
        return if there.owner == stored { Ok(false) } else { Err(foreign("skill.skill_id")) };
    }
    let versions = skills::versions(db, stored, &carried.name)?;
    if versions.iter().any(|found| found.skill.triggers == carried.triggers && found.skill.steps == carried.steps) {
        return Ok(false);
    }
    let w = c.writing(stored, gated.door().name());
    let erased = ledger::erased_at(db, stored, &digests(c, &w, "skill", &carried.name))?;
    gate::check_forgotten(erased, carried.create_time)?;
    if skills::count(db, stored)? >= limits::SKILLS {
        return Err(Fault::limit("skills", limits::SKILLS, "versions of skills of one owner"));
    }
    let taken = versions.iter().any(|found| found.skill.version == carried.version);
    let version = if taken { versions.iter().map(|found| found.skill.version).max().unwrap_or(0) + 1 } else { carried.version };
    let contested = versions.iter().any(|found| found.skill.status == Status::Active);
    let status = if contested && carried.status == Status::Active { Status::Superseded } else { carried.status };
    parts::readmit_skill(db, &w, gated, carried, version, status)?;
    Ok(true)
}

fn foreign(field: &'static str) -> Fault {
    Fault::new(Reason::OwnerMismatch, format!("{field}: is another owner's"))
}
