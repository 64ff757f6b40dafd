//! Lines of an export. What this deployment signed is taken over as it is ([`carried`]); any other line is a statement like
//! every statement ([`restated`]).

use super::common::{optional_time, time, wire_time};
use super::longterm as record;
use crate::longterm::v1 as pb;
use prost::Message as _;
use std::str::FromStr as _;
use strata_core::policy::gate::{Cues, Statement};
use strata_core::record::{Evidence, HistoryEntry, Kind, Record, Sensitivity, Status, Trigger};
use strata_core::{AgentId, Fault, MemoryId, Owner, Scope, Timestamp};
use uuid::Uuid;

/// Version of the format.
pub const FORMAT: u32 = 1;

/// A record with all that belongs to it, on its way out of one file and into another.
#[derive(Clone, Debug, PartialEq)]
pub struct Carried {
    /// The record. Its normal text is made anew where it arrives.
    pub record: Record,
    /// Its evidence, oldest first.
    pub evidence: Vec<CarriedEvidence>,
    /// Moves of its status, oldest first.
    pub history: Vec<HistoryEntry>,
    /// State a forgotten record goes back to.
    pub earlier_status: Option<Status>,
    /// The active record a candidate could not replace.
    pub conflicts_with: Option<MemoryId>,
    /// To be put to the user.
    pub due: bool,
    /// Its key holds many values.
    pub is_set: bool,
    /// Expiry the caller asked for.
    pub expire_asked: Option<Timestamp>,
    /// A record system has the last word on its key.
    pub system_owned: bool,
}

/// A piece of evidence, with what tells it from others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CarriedEvidence {
    /// The evidence.
    pub evidence: Evidence,
    /// The turn or request it came from.
    pub mark: String,
    /// Its session.
    pub session_id: Option<String>,
    /// What it says for its record.
    pub cues: Cues,
}

/// Name of a line's kind, for its signature.
#[must_use]
pub const fn kind_of(part: &pb::export_line::Part) -> &'static str {
    match part {
        pb::export_line::Part::Header(_) => "header",
        pb::export_line::Part::Memory(_) => "memory",
        pb::export_line::Part::Entity(_) => "entity",
        pb::export_line::Part::Relation(_) => "relation",
        pb::export_line::Part::Skill(_) => "skill",
    }
}

/// The bytes of a line that its signature covers.
#[must_use]
pub fn signed_bytes(part: &pb::export_line::Part) -> Vec<u8> {
    pb::ExportLine { part: Some(part.clone()), signature: String::new() }.encode_to_vec()
}

/// How much an export holds: the statuses, by the clock.
///
/// # Errors
/// `INVALID_FIELD` naming `scope` when it is unknown.
pub fn scope(raw: i32) -> Result<(pb::ExportScope, &'static [Status]), Fault> {
    let scope = pb::ExportScope::try_from(raw).map_err(|_| Fault::field("scope", format!("has the unknown value {raw}")))?;
    Ok(match scope {
        pb::ExportScope::Unspecified | pb::ExportScope::Active => (pb::ExportScope::Active, &[Status::Active]),
        pb::ExportScope::History => (scope, &[Status::Active, Status::Superseded, Status::Expired, Status::Archived]),
        pb::ExportScope::All => (scope, Status::ALL),
    })
}

/// Wire form of a record with all that belongs to it.
#[must_use]
pub fn wire_carried(carried: &Carried) -> pb::ExportedMemory {
    let evidence: Vec<Evidence> = carried.evidence.iter().map(|piece| piece.evidence.clone()).collect();
    let memory = pb::Memory { embedding_model: String::new(), ..record::memory(&carried.record, &evidence) };
    pb::ExportedMemory {
        memory: Some(memory),
        history: carried.history.iter().map(record::wire_history).collect(),
        state: Some(pb::ExportedState {
            earlier_status: carried.earlier_status.map_or(pb::Status::Unspecified, record::wire_status).into(),
            conflicts_with: carried.conflicts_with.map(|id| id.to_string()).unwrap_or_default(),
            due: carried.due,
            set: carried.is_set,
            expire_asked: carried.expire_asked.map(wire_time),
            instruction: carried.record.instruction,
            system_owned: carried.system_owned,
            evidence: carried
                .evidence
                .iter()
                .map(|piece| pb::EvidenceMark {
                    mark: piece.mark.clone(),
                    session_id: piece.session_id.clone().unwrap_or_default(),
                    cues: piece.cues.bits().into(),
                })
                .collect(),
        }),
    }
}

/// The id of a record; None of an empty text.
///
/// # Errors
/// `INVALID_FIELD` naming the field, where it is no id.
pub fn optional_id(field: &'static str, text: &str) -> Result<Option<MemoryId>, Fault> {
    if text.is_empty() { Ok(None) } else { MemoryId::parse(field, text).map(Some) }
}

fn required_time(field: &str, wire: Option<&prost_types::Timestamp>) -> Result<Timestamp, Fault> {
    time(field, wire.ok_or_else(|| Fault::field(field, "is required"))?)
}

/// The agent of a line; none at user level.
///
/// # Errors
/// `INVALID_FIELD` naming `agent_id`.
pub fn agent(agent_id: &str) -> Result<Option<AgentId>, Fault> {
    if agent_id.is_empty() { Ok(None) } else { AgentId::new(agent_id).map(Some) }
}

/// A record of a line whose signature verified, for `owner`.
///
/// # Errors
/// `INVALID_FIELD` naming what is malformed: a signed line of another version.
pub fn carried(wire: &pb::ExportedMemory, owner: &Owner) -> Result<Carried, Fault> {
    let m = wire.memory.as_ref().ok_or_else(|| Fault::field("memory", "is required"))?;
    let state = wire.state.as_ref().ok_or_else(|| Fault::field("state", "is required"))?;
    if state.evidence.len() != m.evidence.len() {
        return Err(Fault::field("state.evidence", "is not as long as the record's evidence"));
    }
    let small = |field: &'static str, value: u32| u8::try_from(value).map_err(|_| Fault::field(field, "is out of range"));
    let key = record::optional_key("memory.key", &m.key)?;
    let number = |field: &'static str, text: &str| u64::from_str(text).map_err(|_| Fault::field(field, "is no version"));
    let sensitivity = Sensitivity::from_name(&m.sensitivity).ok_or_else(|| Fault::field("memory.sensitivity", "is unknown"))?;
    let source_ref = record::source_ref(m.source_ref.as_ref())?;
    if !(0.0..=1.0).contains(&m.confidence) {
        return Err(Fault::field("memory.confidence", "must lie between 0 and 1"));
    }
    let memory_id = MemoryId::parse("memory.memory_id", &m.memory_id)?;
    let record = Record {
        memory_id,
        owner: owner.clone(),
        scope: if owner.agent.is_some() { Scope::Agent } else { Scope::User },
        kind: record::kind("memory.kind", m.kind)?,
        tier: record::tier("memory.tier", m.tier)?,
        key,
        value: m.value.as_ref().map(|value| super::common::value("memory.value", value)).transpose()?,
        content: m.content.clone(),
        normal: String::new(),
        source: record::source("memory.source", m.source)?,
        source_ref,
        source_quote: m.source_quote.clone(),
        quote_verified: m.quote_verified,
        confirmed: m.confirmed,
        confidence: m.confidence,
        importance: small("memory.importance", m.importance)?,
        sensitivity,
        protected: m.protected,
        instruction: state.instruction,
        status: record::status("memory.status", m.status)?,
        supersedes: optional_id("memory.supersedes", &m.supersedes)?,
        superseded_by: optional_id("memory.superseded_by", &m.superseded_by)?,
        superseded_at: optional_time("memory.superseded_at", m.superseded_at.as_ref())?,
        reason: m.reason.clone(),
        valid_from: optional_time("memory.valid_from", m.valid_from.as_ref())?,
        valid_to: optional_time("memory.valid_to", m.valid_to.as_ref())?,
        event_time: required_time("memory.event_time", m.event_time.as_ref())?,
        create_time: required_time("memory.create_time", m.create_time.as_ref())?,
        update_time: required_time("memory.update_time", m.update_time.as_ref())?,
        expire_time: optional_time("memory.expire_time", m.expire_time.as_ref())?,
        last_recalled_at: optional_time("memory.last_recalled_at", m.last_recalled_at.as_ref())?,
        last_cited_at: optional_time("memory.last_cited_at", m.last_cited_at.as_ref())?,
        recall_count: m.recall_count,
        cite_count: m.cite_count,
        topic: (!m.topic.is_empty()).then(|| m.topic.clone()),
        tags: m.tags.clone(),
        metadata: m.metadata.clone(),
        owner_epoch: m.owner_epoch,
        version: number("memory.etag", &m.etag)?,
        embedding_model: None,
        evidence_sessions: m.evidence_sessions,
        evidence_count: m.evidence_count,
        derived_from: m.derived_from.iter().map(|id| MemoryId::parse("memory.derived_from", id)).collect::<Result<_, _>>()?,
        source_span: match &m.source_span {
            None => None,
            Some(span) => Some((
                required_time("memory.source_span.from", span.from.as_ref())?,
                required_time("memory.source_span.to", span.to.as_ref())?,
            )),
        },
    };
    let evidence = m.evidence.iter().zip(&state.evidence).map(|(piece, mark)| {
        Ok(CarriedEvidence {
            evidence: Evidence {
                source: record::source("memory.evidence.source", piece.source)?,
                source_ref: record::source_ref(piece.source_ref.as_ref())?,
                quote: piece.quote.clone(),
                quote_verified: piece.quote_verified,
                time: required_time("memory.evidence.time", piece.time.as_ref())?,
            },
            mark: mark.mark.clone(),
            session_id: (!mark.session_id.is_empty()).then(|| mark.session_id.clone()),
            cues: Cues::from_bits(small("state.evidence.cues", mark.cues)?),
        })
    });
    let history = wire.history.iter().map(|entry| {
        Ok(HistoryEntry {
            memory_id,
            time: required_time("history.time", entry.time.as_ref())?,
            from: if entry.from == 0 { None } else { Some(record::status("history.from", entry.from)?) },
            to: record::status("history.to", entry.to)?,
            actor: entry.actor.clone(),
            path: entry.path.clone(),
            reason: entry.reason.clone(),
            rule: entry.rule.clone(),
        })
    });
    Ok(Carried {
        evidence: evidence.collect::<Result<_, Fault>>()?,
        history: history.collect::<Result<_, Fault>>()?,
        earlier_status: match state.earlier_status {
            0 => None,
            raw => Some(record::status("state.earlier_status", raw)?),
        },
        conflicts_with: optional_id("state.conflicts_with", &state.conflicts_with)?,
        due: state.due,
        is_set: state.set,
        expire_asked: optional_time("state.expire_asked", state.expire_asked.as_ref())?,
        system_owned: state.system_owned,
        record,
    })
}

/// The statement that a carried record makes when it is judged again.
#[must_use]
pub fn statement_of(record: &Record) -> Statement {
    Statement {
        kind: record.kind,
        key: record.key.clone(),
        value: record.value.clone(),
        content: record.content.clone(),
        source: record.source,
        source_ref: record.source_ref.clone(),
        source_quote: record.source_quote.clone(),
        trigger: Some(Trigger::Import),
        importance: Some(record.importance),
        confidence: Some(record.confidence),
        tier: (record.kind != Kind::Event).then_some(record.tier),
        protected: record.protected,
        valid_from: record.valid_from,
        valid_to: record.valid_to,
        expire_time: None,
        topic: record.topic.clone(),
        tags: record.tags.clone(),
        metadata: record.metadata.clone(),
        vector: Vec::new(),
        consent: None,
    }
}

/// When a line that does not count as signed was last said, as it has it: the newest of its own time and its evidence's. Without
/// any it is older than all that was ever erased.
///
/// # Errors
/// `INVALID_FIELD` naming a time that is none.
pub fn last_said(memory: &pb::Memory) -> Result<Timestamp, Fault> {
    let mut last = optional_time("memory.event_time", memory.event_time.as_ref())?;
    for piece in &memory.evidence {
        last = last.max(optional_time("memory.evidence.time", piece.time.as_ref())?);
    }
    Ok(last.unwrap_or(Timestamp(i64::MIN)))
}

/// The statement of a line that nobody signed: its fields are within their limits, nothing of its state counts. `now` is
/// the arrival.
///
/// # Errors
/// `INVALID_FIELD` naming the field as `memory.<field>`.
pub fn restated(memory: &pb::Memory, now: Timestamp) -> Result<Statement, Fault> {
    let expires = optional_time("memory.expire_time", memory.expire_time.as_ref())?;
    let wire = pb::Statement {
        kind: memory.kind,
        key: memory.key.clone(),
        value: memory.value.clone(),
        content: memory.content.clone(),
        source: memory.source,
        source_ref: memory.source_ref.clone(),
        source_quote: memory.source_quote.clone(),
        trigger: pb::Trigger::Import.into(),
        importance: i32::try_from(memory.importance).unwrap_or(i32::MAX),
        confidence: Some(memory.confidence),
        tier: memory.tier,
        protected: memory.protected,
        valid_from: memory.valid_from,
        valid_to: memory.valid_to,
        expire_time: expires.filter(|at| *at > now).map(wire_time),
        topic: memory.topic.clone(),
        tags: memory.tags.clone(),
        metadata: memory.metadata.clone(),
        vector: Vec::new(),
        consent: String::new(),
    };
    record::statement(Some(&wire), now).map_err(|mut fault| {
        for violation in &mut fault.fields {
            violation.field = violation.field.replacen("statement.", "memory.", 1);
        }
        fault
    })
}

/// A request id of a line: the same line brings the same evidence, however often it is imported.
#[must_use]
pub fn line_request(part: &pb::export_line::Part) -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, &signed_bytes(part))
}
