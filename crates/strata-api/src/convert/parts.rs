//! Entities, relations and skills. Field limits are checked here; whether their words may enter is the gate's business.

use super::common::{optional_text, text, wire_time};
use super::longterm as record;
use crate::longterm::v1 as pb;
use strata_core::part::{Entity, EntityDraft, Provenance, Relation, Skill, SkillDraft};
use strata_core::{FactKey, Fault, MemoryId, limits};

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
        agent_id: entity.owner.agent.as_ref().map(|agent| agent.as_str().to_owned()).unwrap_or_default(),
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
    }
}

/// Wire form of a skill.
#[must_use]
pub fn wire_skill(skill: &Skill) -> pb::Skill {
    pb::Skill {
        skill_id: skill.skill_id.to_string(),
        agent_id: skill.owner.agent.as_ref().map(|agent| agent.as_str().to_owned()).unwrap_or_default(),
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
