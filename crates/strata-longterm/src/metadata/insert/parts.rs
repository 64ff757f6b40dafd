//! The one way a part enters: its words are read back from the [`Gated`] statement that stands for it, so that nothing is
//! stored that was not judged. Audit entries name ids, never words.

use super::Writing;
use crate::metadata::entities::{self, StoredEntity};
use crate::metadata::skills::{self, StoredSkill};
use crate::metadata::{corrupt, ledger};
use rusqlite::Connection;
use strata_core::part::{Entity, EntityDraft, Origin, Relation, RelationDraft, Skill, SkillDraft};
use strata_core::policy::conflict::strongest;
use strata_core::policy::gate::Gated;
use strata_core::record::Status;
use strata_core::{FactKey, Fault, MemoryId, limits};

fn audit(db: &Connection, w: &Writing<'_>, action: &'static str, id: MemoryId) -> Result<(), Fault> {
    let entry = ledger::AuditEntry {
        time: w.now,
        tenant: w.owner.tenant.as_str(),
        user: w.owner.user.as_str(),
        action,
        memory_id: Some(id),
        actor: w.actor,
        rule: "G2",
        subject: "",
        reason: "",
    };
    ledger::audit(db, &entry)
}

/// Writes an entity that is new.
///
/// # Errors
/// As the database says.
pub fn entity(
    db: &Connection,
    w: &Writing<'_>,
    gated: &Gated,
    id: MemoryId,
    prefix: FactKey,
    status: Status,
) -> Result<StoredEntity, Fault> {
    let draft = EntityDraft::of(gated).ok_or_else(|| corrupt("an entity's statement"))?;
    let entity = Entity {
        entity_id: id,
        owner: w.owner.clone(),
        kind: draft.kind,
        name: draft.name,
        aliases: draft.aliases,
        prefix,
        status,
        origin: Origin::of(gated),
        create_time: w.now,
        update_time: w.now,
        version: 1,
    };
    entities::put(db, w.stored, &entity)?;
    audit(db, w, "ENTITY_PUT", id)?;
    Ok(StoredEntity { entity, owner: w.stored })
}

/// Gives an entity the names of the statement: instead of its own, or beside them. Its status and source only rise. Answers
/// whether anything changed.
///
/// # Errors
/// `LIMIT_REACHED` when it has no room for more names; as the database says.
pub fn rename(
    db: &Connection,
    w: &Writing<'_>,
    gated: &Gated,
    found: &mut StoredEntity,
    instead: bool,
    status: Status,
) -> Result<bool, Fault> {
    let draft = EntityDraft::of(gated).ok_or_else(|| corrupt("an entity's statement"))?;
    let before = found.entity.clone();
    let e = &mut found.entity;
    if instead {
        e.name = draft.name;
        e.aliases = draft.aliases;
    } else {
        e.aliases.extend(draft.aliases);
        if draft.name != e.name {
            e.aliases.push(draft.name);
        }
        let name = e.name.clone();
        e.aliases.retain(|alias| *alias != name);
        e.aliases.sort();
        e.aliases.dedup();
        if e.aliases.len() > limits::TAGS {
            return Err(Fault::limit("aliases", limits::TAGS, "aliases of one entity"));
        }
    }
    if status == Status::Active {
        e.status = Status::Active;
    }
    e.origin.source = strongest(e.origin.source, gated.statement().source);
    if *e == before {
        return Ok(false);
    }
    e.version += 1;
    e.update_time = w.now;
    entities::put(db, w.stored, e)?;
    audit(db, w, "ENTITY_PUT", e.entity_id)?;
    Ok(true)
}

/// Removes an entity; answers how many relations went with it.
///
/// # Errors
/// As the database says.
pub fn remove_entity(db: &Connection, w: &Writing<'_>, id: MemoryId) -> Result<u32, Fault> {
    audit(db, w, "ENTITY_DELETED", id)?;
    entities::remove(db, id)
}

/// Writes a relation: new, or risen to a stronger source. Answers it with whether it is new.
///
/// # Errors
/// As the database says.
pub fn relation(
    db: &Connection,
    w: &Writing<'_>,
    gated: &Gated,
    (from, to): (MemoryId, MemoryId),
    status: Status,
) -> Result<(Relation, bool), Fault> {
    let name = RelationDraft::relation_of(gated).ok_or_else(|| corrupt("a relation's statement"))?;
    if let Some(mut known) = entities::relation(db, w.stored, from, name, to)? {
        if status == Status::Active {
            known.status = Status::Active;
        }
        known.origin.source = strongest(known.origin.source, gated.statement().source);
        entities::put_relation(db, w.stored, &known)?;
        return Ok((known, false));
    }
    let new = Relation { from, relation: name.to_owned(), to, status, origin: Origin::of(gated), create_time: w.now };
    entities::put_relation(db, w.stored, &new)?;
    audit(db, w, "ENTITY_LINKED", from)?;
    Ok((new, true))
}

/// Takes a relation away; answers whether it was there.
///
/// # Errors
/// As the database says.
pub fn unlink(db: &Connection, w: &Writing<'_>, from: MemoryId, relation: &str, to: MemoryId) -> Result<bool, Fault> {
    let gone = entities::unlink(db, w.stored, from, relation, to)?;
    if gone {
        audit(db, w, "ENTITY_UNLINKED", from)?;
    }
    Ok(gone)
}

/// Writes the next version of a skill; one that takes effect replaces the one in force.
///
/// # Errors
/// As the database says.
pub fn skill(
    db: &Connection,
    w: &Writing<'_>,
    gated: &Gated,
    id: MemoryId,
    versions: &[StoredSkill],
    status: Status,
) -> Result<StoredSkill, Fault> {
    let draft = SkillDraft::of(gated).ok_or_else(|| corrupt("a skill's statement"))?;
    let skill = Skill {
        skill_id: id,
        owner: w.owner.clone(),
        name: draft.name,
        version: versions.iter().map(|found| found.skill.version).max().unwrap_or(0) + 1,
        triggers: draft.triggers,
        steps: draft.steps,
        status,
        origin: Origin::of(gated),
        instruction: gated.instruction(),
        create_time: w.now,
    };
    if status == Status::Active {
        replace(db, versions)?;
    }
    skills::put(db, w.stored, &skill)?;
    audit(db, w, "SKILL_PUT", id)?;
    Ok(StoredSkill { skill, owner: w.stored })
}

fn replace(db: &Connection, versions: &[StoredSkill]) -> Result<(), Fault> {
    for old in versions.iter().filter(|found| found.skill.status == Status::Active) {
        skills::set_status(db, old.skill.skill_id, Status::Superseded)?;
    }
    Ok(())
}

/// A version that waited takes effect.
///
/// # Errors
/// As the database says.
pub fn activate_skill(db: &Connection, w: &Writing<'_>, found: &mut StoredSkill, versions: &[StoredSkill]) -> Result<(), Fault> {
    replace(db, versions)?;
    skills::set_status(db, found.skill.skill_id, Status::Active)?;
    found.skill.status = Status::Active;
    audit(db, w, "SKILL_PUT", found.skill.skill_id)
}

/// Removes a skill with its versions.
///
/// # Errors
/// As the database says.
pub fn remove_skill(db: &Connection, w: &Writing<'_>, name: &str, last: MemoryId) -> Result<u32, Fault> {
    audit(db, w, "SKILL_DELETED", last)?;
    skills::remove(db, w.stored, name)
}

/// Takes an entity over from an export, as it was; its words are those that `gated` judged again.
///
/// # Errors
/// As the database says.
pub fn readmit_entity(db: &Connection, w: &Writing<'_>, gated: &Gated, carried: &Entity) -> Result<(), Fault> {
    let draft = EntityDraft::of(gated).ok_or_else(|| corrupt("an entity's statement"))?;
    let entity = Entity { owner: w.owner.clone(), kind: draft.kind, name: draft.name, aliases: draft.aliases, ..carried.clone() };
    entities::put(db, w.stored, &entity)?;
    audit(db, w, "ENTITY_PUT", entity.entity_id)
}

/// Takes a relation over from an export, as it was.
///
/// # Errors
/// As the database says.
pub fn readmit_relation(db: &Connection, w: &Writing<'_>, gated: &Gated, carried: &Relation) -> Result<(), Fault> {
    let name = RelationDraft::relation_of(gated).ok_or_else(|| corrupt("a relation's statement"))?;
    let relation = Relation { relation: name.to_owned(), ..carried.clone() };
    entities::put_relation(db, w.stored, &relation)?;
    audit(db, w, "ENTITY_LINKED", relation.from)
}

/// Takes a version of a skill over from an export, as it was but for what the caller decides: its version and status here.
///
/// # Errors
/// As the database says.
pub fn readmit_skill(
    db: &Connection,
    w: &Writing<'_>,
    gated: &Gated,
    carried: &Skill,
    version: u32,
    status: Status,
) -> Result<(), Fault> {
    let draft = SkillDraft::of(gated).ok_or_else(|| corrupt("a skill's statement"))?;
    let skill = Skill {
        owner: w.owner.clone(),
        name: draft.name,
        triggers: draft.triggers,
        steps: draft.steps,
        version,
        status,
        ..carried.clone()
    };
    skills::put(db, w.stored, &skill)?;
    audit(db, w, "SKILL_PUT", skill.skill_id)
}
