//! Entities, relations and skills. Field limits are checked here; whether their words may enter is the gate's business.

use super::common::{optional_text, text, time, wire_time};
use super::longterm as record;
use crate::longterm::v1 as pb;
use strata_core::part::{Entity, EntityDraft, Origin, Provenance, Relation, Skill, SkillDraft};
use strata_core::record::Trigger;
use strata_core::{FactKey, Fault, MemoryId, Owner, Timestamp, limits};

/// An id of a part.
///
/// # Errors
/// `INVALID_FIELD` naming `field`.
pub fn part_id(field: &'static str, value: &str) -> Result<MemoryId, Fault> {
    MemoryId::parse(field, value).map_err(|_| Fault::field(field, "is not an id (a UUID)"))
}

/// Where a part comes from.
///
/// # Errors
/// `INVALID_FIELD` naming the field as `provenance.<field>`.
pub fn provenance(wire: Option<&pb::Provenance>) -> Result<Provenance, Fault> {
    let wire = wire.ok_or_else(|| Fault::field("provenance", "is required"))?;
    let consent = optional_text("provenance.consent", &wire.consent, limits::ID_BYTES)?;
    let source_ref = record::source_ref(wire.source_ref.as_ref()).map_err(|mut fault| {
        for violation in &mut fault.fields {
            violation.field = violation.field.replacen("statement.", "provenance.", 1);
        }
        fault
    })?;
    Ok(Provenance {
        source: record::source("provenance.source", wire.source)?,
        source_ref,
        source_quote: optional_text("provenance.source_quote", &wire.source_quote, limits::QUOTE_CHARS)?,
        trigger: record::trigger("provenance.trigger", wire.trigger)?,
        consent: (!consent.is_empty()).then_some(consent),
    })
}

/// The names of an entity. `kind` is its type, as given or as it is stored.
///
/// # Errors
/// `INVALID_FIELD` naming the field and the limit.
pub fn entity_draft(kind: &str, name: &str, aliases: &[String]) -> Result<EntityDraft, Fault> {
    let name = text("name", name.trim(), limits::NAME_CHARS)?;
    let mut aliases = record::tags("aliases", aliases)?;
    aliases.retain(|alias| *alias != name);
    Ok(EntityDraft { kind: kind.to_owned(), name, aliases })
}

/// The name of a relation.
///
/// # Errors
/// `INVALID_FIELD` naming `relation`.
pub fn relation_name(name: &str) -> Result<String, Fault> {
    let bad = || Fault::field("relation", format!("is 1 to {} of a-z, 0-9, \"_\", \"-\" and \".\"", limits::RELATION_BYTES));
    if name.len() > limits::RELATION_BYTES || name.ends_with("[]") {
        return Err(bad());
    }
    FactKey::new(name).map(|key| key.as_str().to_owned()).map_err(|_| bad())
}

/// A skill.
///
/// # Errors
/// `INVALID_FIELD` naming the field and the limit.
pub fn skill_draft(name: &str, triggers: &[String], steps: &[String]) -> Result<SkillDraft, Fault> {
    let all = |field: &'static str, texts: &[String], most: usize, chars: usize| {
        if texts.is_empty() || texts.len() > most {
            return Err(Fault::field(field, format!("has 1 to {most} entries")));
        }
        texts.iter().map(|one| text(field, one.trim(), chars)).collect::<Result<Vec<String>, Fault>>()
    };
    let draft = SkillDraft {
        name: text("name", name.trim(), limits::NAME_CHARS)?,
        triggers: all("triggers", triggers, limits::SKILL_TRIGGERS, limits::TRIGGER_CHARS)?,
        steps: all("steps", steps, limits::SKILL_STEPS, limits::STEP_CHARS)?,
    };
    let chars: usize = draft.triggers.iter().chain(&draft.steps).map(|text| text.chars().count() + 1).sum();
    if chars > limits::CONTENT_CHARS {
        return Err(Fault::field("steps", format!("and triggers have more than {} characters in all", limits::CONTENT_CHARS)));
    }
    Ok(draft)
}

/// Wire form of an entity.
#[must_use]
pub fn wire_entity(entity: &Entity) -> pb::Entity {
    pb::Entity {
        entity_id: entity.entity_id.to_string(),
        agent_id: entity.owner.agent_id().to_owned(),
        r#type: entity.kind.clone(),
        name: entity.name.clone(),
        aliases: entity.aliases.clone(),
        key_prefix: entity.prefix.as_str().to_owned(),
        status: record::wire_status(entity.status).into(),
        source: record::wire_source(entity.origin.source).into(),
        source_ref: entity.origin.source_ref.as_ref().map(record::wire_source_ref),
        source_quote: entity.origin.quote.clone(),
        quote_verified: entity.origin.quote_verified,
        create_time: Some(wire_time(entity.create_time)),
        update_time: Some(wire_time(entity.update_time)),
        etag: entity.version.to_string(),
    }
}

/// Wire form of a relation.
#[must_use]
pub fn wire_relation(relation: &Relation) -> pb::Relation {
    pb::Relation {
        from_id: relation.from.to_string(),
        relation: relation.relation.clone(),
        to_id: relation.to.to_string(),
        source: record::wire_source(relation.origin.source).into(),
        source_ref: relation.origin.source_ref.as_ref().map(record::wire_source_ref),
        source_quote: relation.origin.quote.clone(),
        create_time: Some(wire_time(relation.create_time)),
        status: record::wire_status(relation.status).into(),
        quote_verified: relation.origin.quote_verified,
    }
}

/// Wire form of a skill.
#[must_use]
pub fn wire_skill(skill: &Skill) -> pb::Skill {
    pb::Skill {
        skill_id: skill.skill_id.to_string(),
        agent_id: skill.owner.agent_id().to_owned(),
        name: skill.name.clone(),
        version: skill.version,
        triggers: skill.triggers.clone(),
        steps: skill.steps.clone(),
        status: record::wire_status(skill.status).into(),
        source: record::wire_source(skill.origin.source).into(),
        source_ref: skill.origin.source_ref.as_ref().map(record::wire_source_ref),
        source_quote: skill.origin.quote.clone(),
        quote_verified: skill.origin.quote_verified,
        instruction: skill.instruction,
        create_time: Some(wire_time(skill.create_time)),
    }
}

fn wire_user(owner: &Owner) -> String {
    owner.user.as_str().to_owned()
}

/// An entity as a line of an export.
#[must_use]
pub fn exported_entity(entity: &Entity) -> pb::ExportedEntity {
    pb::ExportedEntity { user_id: wire_user(&entity.owner), entity: Some(wire_entity(entity)) }
}

/// A relation as a line of an export.
#[must_use]
pub fn exported_relation(owner: &Owner, relation: &Relation) -> pb::ExportedRelation {
    pb::ExportedRelation {
        user_id: wire_user(owner),
        agent_id: owner.agent_id().to_owned(),
        relation: Some(wire_relation(relation)),
    }
}

/// A skill as a line of an export.
#[must_use]
pub fn exported_skill(skill: &Skill) -> pb::ExportedSkill {
    pb::ExportedSkill { user_id: wire_user(&skill.owner), skill: Some(wire_skill(skill)) }
}

fn at(field: &'static str, wire: Option<&prost_types::Timestamp>) -> Result<Timestamp, Fault> {
    time(field, wire.ok_or_else(|| Fault::field(field, "is required"))?)
}

fn origin(source: i32, source_ref: Option<&pb::SourceRef>, quote: &str, quote_verified: bool) -> Result<Origin, Fault> {
    Ok(Origin {
        source: record::source("source", source)?,
        source_ref: record::source_ref(source_ref)?,
        quote: optional_text("source_quote", quote, limits::QUOTE_CHARS)?,
        quote_verified,
    })
}

/// An entity of a line, for `owner`: within its limits, whoever wrote the line.
///
/// # Errors
/// `INVALID_FIELD` naming what is malformed.
pub fn carried_entity(wire: &pb::Entity, owner: &Owner) -> Result<Entity, Fault> {
    let draft = entity_draft(&wire.r#type, &wire.name, &wire.aliases)?;
    let prefix = FactKey::new(wire.key_prefix.clone()).map_err(|_| Fault::field("key_prefix", "is no key"))?;
    strata_core::part::prefix(&wire.r#type, "x", "x", "x")?;
    Ok(Entity {
        entity_id: part_id("entity_id", &wire.entity_id)?,
        owner: owner.clone(),
        kind: draft.kind,
        name: draft.name,
        aliases: draft.aliases,
        prefix,
        status: record::status("status", wire.status)?,
        origin: origin(wire.source, wire.source_ref.as_ref(), &wire.source_quote, wire.quote_verified)?,
        create_time: at("create_time", wire.create_time.as_ref())?,
        update_time: at("update_time", wire.update_time.as_ref())?,
        version: wire.etag.parse().map_err(|_| Fault::field("etag", "is no version"))?,
    })
}

/// A relation of a line.
///
/// # Errors
/// `INVALID_FIELD` naming what is malformed.
pub fn carried_relation(wire: &pb::Relation) -> Result<Relation, Fault> {
    Ok(Relation {
        from: part_id("from_id", &wire.from_id)?,
        relation: relation_name(&wire.relation)?,
        to: part_id("to_id", &wire.to_id)?,
        status: record::status("status", wire.status)?,
        origin: origin(wire.source, wire.source_ref.as_ref(), &wire.source_quote, wire.quote_verified)?,
        create_time: at("create_time", wire.create_time.as_ref())?,
    })
}

/// A skill of a line, for `owner`.
///
/// # Errors
/// `INVALID_FIELD` naming what is malformed.
pub fn carried_skill(wire: &pb::Skill, owner: &Owner) -> Result<Skill, Fault> {
    let draft = skill_draft(&wire.name, &wire.triggers, &wire.steps)?;
    if wire.version == 0 {
        return Err(Fault::field("version", "counts from 1"));
    }
    Ok(Skill {
        skill_id: part_id("skill_id", &wire.skill_id)?,
        owner: owner.clone(),
        name: draft.name,
        version: wire.version,
        triggers: draft.triggers,
        steps: draft.steps,
        status: record::status("status", wire.status)?,
        origin: origin(wire.source, wire.source_ref.as_ref(), &wire.source_quote, wire.quote_verified)?,
        instruction: wire.instruction,
        create_time: at("create_time", wire.create_time.as_ref())?,
    })
}

/// What a line's part says about itself when it is judged again.
#[must_use]
pub fn provenance_of(origin: &Origin) -> Provenance {
    Provenance {
        source: origin.source,
        source_ref: origin.source_ref.clone(),
        source_quote: origin.quote.clone(),
        trigger: Some(Trigger::Import),
        consent: None,
    }
}
