//! Long-term memory: statements, records, filters. Every field limit of the proto is checked here and nowhere else; whether a
//! statement may enter is the gate's business.

use super::common::{enumeration, optional_text, optional_time, text, time, value, wire_level, wire_time, wire_value};
use crate::internal::v1 as internal;
use crate::longterm::v1 as pb;
use prost::Message as _;
use std::collections::BTreeMap;
use strata_core::id::check_id;
use strata_core::limits;
use strata_core::policy::gate::{Attestation, QuoteState, Statement};
use strata_core::record::{Evidence, HistoryEntry, Kind, Record, Source, SourceRef, Status, Tier, Trigger, Value};
use strata_core::{FactKey, Fault, MemoryId, Timestamp};

macro_rules! mapped {
    ($( $(#[$doc:meta])* $from:ident, $to:ident: $wire:ident <=> $domain:ident { $($variant:ident),* $(,)? } )*) => { $(
        $(#[$doc])*
        ///
        /// # Errors
        /// `INVALID_FIELD` naming `field` when it is unspecified or unknown.
        pub fn $from(field: &str, raw: i32) -> Result<$domain, Fault> {
            enumeration(field, raw, |wire: pb::$wire| match wire {
                pb::$wire::Unspecified => None,
                $( pb::$wire::$variant => Some($domain::$variant), )*
            })
        }
        /// Its wire form.
        #[must_use]
        pub const fn $to(value: $domain) -> pb::$wire {
            match value { $( $domain::$variant => pb::$wire::$variant, )* }
        }
    )* };
}

mapped! {
    /// A kind.
    kind, wire_kind: Kind <=> Kind { Fact, Preference, Constraint, Goal, Event, Experience, Assumption, ModelSuggestion, Summary }
    /// A tier.
    tier, wire_tier: Tier <=> Tier { Stable, Temporary, Event }
    /// A source.
    source, wire_source: Source <=> Source {
        UserCorrection, UserStatement, UserConfirmation, AuthoritativeSystem, Observation, Review, ModelInference, ToolResult, Document
    }
    /// A status.
    status, wire_status: Status <=> Status { Candidate, Active, Disputed, Superseded, Expired, Archived, Rejected, Deleted }
}

/// A trigger; none when unspecified, which is rule G1's to refuse.
///
/// # Errors
/// `INVALID_FIELD` naming `field` when it is unknown.
pub fn trigger(field: &str, raw: i32) -> Result<Option<Trigger>, Fault> {
    if raw == 0 {
        return Ok(None);
    }
    enumeration(field, raw, |wire: pb::Trigger| match wire {
        pb::Trigger::Unspecified => None,
        pb::Trigger::UserRequest => Some(Trigger::UserRequest),
        pb::Trigger::TaskEnd => Some(Trigger::TaskEnd),
        pb::Trigger::SessionEnd => Some(Trigger::SessionEnd),
        pb::Trigger::DecisionPoint => Some(Trigger::DecisionPoint),
        pb::Trigger::Sync => Some(Trigger::Sync),
        pb::Trigger::Import => Some(Trigger::Import),
    })
    .map(Some)
}

/// A reference; none when the message is absent or empty.
///
/// # Errors
/// `INVALID_FIELD` naming the part that is missing, too long or holds invisible characters.
pub fn source_ref(wire: Option<&pb::SourceRef>) -> Result<Option<SourceRef>, Fault> {
    use pb::source_ref::Kind as Wire;
    let Some(kind) = wire.and_then(|wire| wire.kind.as_ref()) else { return Ok(None) };
    Ok(Some(match kind {
        Wire::Turn(turn) => {
            check_id("statement.source_ref.turn.session_id", &turn.session_id)?;
            if turn.seq == 0 {
                return Err(Fault::field("statement.source_ref.turn.seq", "counts from 1"));
            }
            SourceRef::Turn { session_id: turn.session_id.clone(), seq: turn.seq }
        }
        Wire::SystemRecord(record) => {
            check_id("statement.source_ref.system_record.system", &record.system)?;
            check_id("statement.source_ref.system_record.record_id", &record.record_id)?;
            SourceRef::SystemRecord { system: record.system.clone(), record_id: record.record_id.clone() }
        }
        Wire::Confirmation(reference) => {
            check_id("statement.source_ref.confirmation", reference)?;
            SourceRef::Confirmation { reference: reference.clone() }
        }
        Wire::TaskId(task_id) => {
            check_id("statement.source_ref.task_id", task_id)?;
            SourceRef::Task { task_id: task_id.clone() }
        }
    }))
}

/// Wire form of a reference.
#[must_use]
pub fn wire_source_ref(reference: &SourceRef) -> pb::SourceRef {
    use pb::source_ref::Kind as Wire;
    let kind = match reference.clone() {
        SourceRef::Turn { session_id, seq } => Wire::Turn(pb::TurnRef { session_id, seq }),
        SourceRef::SystemRecord { system, record_id } => Wire::SystemRecord(pb::SystemRecord { system, record_id }),
        SourceRef::Confirmation { reference } => Wire::Confirmation(reference),
        SourceRef::Task { task_id } => Wire::TaskId(task_id),
    };
    pb::SourceRef { kind: Some(kind) }
}

/// A key, or none when empty.
///
/// # Errors
/// `INVALID_FIELD` naming `field`.
pub fn optional_key(field: &str, key: &str) -> Result<Option<FactKey>, Fault> {
    if key.is_empty() {
        return Ok(None);
    }
    FactKey::new(key).map(Some).map_err(|fault| renamed(fault, field))
}

/// A fault of a field, under the name it has in this request.
fn renamed(fault: Fault, field: &str) -> Fault {
    let description = fault.fields.into_iter().next().map_or_else(|| "is not allowed".to_owned(), |f| f.description);
    Fault::field(field, description)
}

/// Tags: sorted, without duplicates.
///
/// # Errors
/// `INVALID_FIELD` naming `field` and the limit.
pub fn tags(field: &str, wire: &[String]) -> Result<Vec<String>, Fault> {
    if wire.len() > limits::TAGS {
        return Err(Fault::field(field, format!("has more than {} tags", limits::TAGS)));
    }
    let mut out = Vec::with_capacity(wire.len());
    for tag in wire {
        if tag.len() > limits::TAG_BYTES {
            return Err(Fault::field(field, format!("a tag is longer than {} bytes", limits::TAG_BYTES)));
        }
        out.push(text(field, tag, limits::TAG_BYTES)?);
    }
    out.sort();
    out.dedup();
    Ok(out)
}

/// Metadata within its bytes.
///
/// # Errors
/// `INVALID_FIELD` naming `field` and the limit.
pub fn metadata(field: &str, wire: &BTreeMap<String, String>) -> Result<BTreeMap<String, String>, Fault> {
    let bytes: usize = wire.iter().map(|(k, v)| k.len() + v.len()).sum();
    if bytes > limits::METADATA_BYTES {
        return Err(Fault::field(field, format!("is longer than {} bytes", limits::METADATA_BYTES)));
    }
    for (key, value) in wire {
        text(field, key, limits::METADATA_BYTES)?;
        optional_text(field, value, limits::METADATA_BYTES)?;
    }
    Ok(wire.clone())
}

/// A statement whose fields are within their limits. `now` is the arrival: an expiry lies after it.
///
/// # Errors
/// `INVALID_FIELD` naming the field as `statement.<field>`.
pub fn statement(wire: Option<&pb::Statement>, now: Timestamp) -> Result<Statement, Fault> {
    let wire = wire.ok_or_else(|| Fault::field("statement", "is required"))?;
    let kind = kind("statement.kind", wire.kind)?;
    if kind == Kind::Summary {
        return Err(Fault::field("statement.kind", "SUMMARY is made by consolidation, not accepted from callers"));
    }
    let tier = if wire.tier == 0 { None } else { Some(tier("statement.tier", wire.tier)?) };
    if tier.is_some_and(|tier| (tier == Tier::Event) != (kind == Kind::Event)) {
        return Err(Fault::field("statement.tier", "EVENT goes with the kind EVENT, and with no other"));
    }
    let importance = match wire.importance {
        0 => None,
        given => Some(
            u8::try_from(given)
                .ok()
                .filter(|i| (1..=5).contains(i))
                .ok_or_else(|| Fault::field("statement.importance", "must lie between 1 and 5, or be 0 for the default"))?,
        ),
    };
    if wire.confidence.is_some_and(|c| !(0.0..=1.0).contains(&c)) {
        return Err(Fault::field("statement.confidence", "must lie between 0 and 1"));
    }
    let valid_from = optional_time("statement.valid_from", wire.valid_from.as_ref())?;
    let valid_to = optional_time("statement.valid_to", wire.valid_to.as_ref())?;
    if let (Some(from), Some(to)) = (valid_from, valid_to)
        && from >= to
    {
        return Err(Fault::field("statement.valid_to", "must lie after valid_from"));
    }
    let expire_time = optional_time("statement.expire_time", wire.expire_time.as_ref())?;
    if expire_time.is_some_and(|at| at <= now) {
        return Err(Fault::field("statement.expire_time", "lies in the past"));
    }
    if wire.topic.len() > limits::TOPIC_BYTES {
        return Err(Fault::field("statement.topic", format!("is longer than {} bytes", limits::TOPIC_BYTES)));
    }
    let topic = optional_text("statement.topic", &wire.topic, limits::TOPIC_BYTES)?;
    if wire.vector.len() > limits::VECTOR_DIMS {
        return Err(Fault::field("statement.vector", format!("has more than {} dimensions", limits::VECTOR_DIMS)));
    }
    if wire.vector.iter().any(|x| !x.is_finite()) {
        return Err(Fault::field("statement.vector", "holds a number that is not finite"));
    }
    let consent = optional_text("statement.consent", &wire.consent, limits::ID_BYTES)?;
    Ok(Statement {
        kind,
        key: optional_key("statement.key", &wire.key)?,
        value: wire.value.as_ref().map(|v| value("statement.value", v)).transpose()?,
        content: text("statement.content", &wire.content, limits::CONTENT_CHARS)?,
        source: source("statement.source", wire.source)?,
        source_ref: source_ref(wire.source_ref.as_ref())?,
        source_quote: optional_text("statement.source_quote", &wire.source_quote, limits::QUOTE_CHARS)?,
        trigger: trigger("statement.trigger", wire.trigger)?,
        importance,
        confidence: wire.confidence,
        tier,
        protected: wire.protected,
        valid_from,
        valid_to,
        expire_time,
        topic: (!topic.is_empty()).then_some(topic),
        tags: tags("statement.tags", &wire.tags)?,
        metadata: metadata("statement.metadata", &wire.metadata)?,
        vector: wire.vector.clone(),
        consent: (!consent.is_empty()).then_some(consent),
    })
}

/// What the router attests, out of the signed header; nothing when it attests nothing.
///
/// # Errors
/// `UNSIGNED_CALL` when the bytes are no attestation.
pub fn attestation(bytes: &[u8]) -> Result<Attestation, Fault> {
    let malformed = || Fault::new(strata_core::Reason::UnsignedCall, "the signed header's attestation is malformed");
    let wire = internal::Attestation::decode(bytes).map_err(|_| malformed())?;
    let quote = match internal::QuoteState::try_from(wire.quote).map_err(|_| malformed())? {
        internal::QuoteState::Unspecified => QuoteState::Unreferenced,
        internal::QuoteState::Verified => QuoteState::Verified,
        internal::QuoteState::NotFound => QuoteState::NotFound,
        internal::QuoteState::Unverifiable => QuoteState::Unverifiable,
    };
    let turn_time = wire.turn_time.as_ref().map(|t| time("turn_time", t)).transpose().map_err(|_| malformed())?;
    Ok(Attestation { quote, turn_time, user_turn: wire.user_turn, explicit_order: wire.explicit_order })
}

/// Wire form of an attestation, as the router signs it.
#[must_use]
pub fn wire_attestation(attestation: &Attestation) -> Vec<u8> {
    let quote = match attestation.quote {
        QuoteState::Unreferenced => internal::QuoteState::Unspecified,
        QuoteState::Verified => internal::QuoteState::Verified,
        QuoteState::NotFound => internal::QuoteState::NotFound,
        QuoteState::Unverifiable => internal::QuoteState::Unverifiable,
    };
    internal::Attestation {
        quote: quote.into(),
        turn_time: attestation.turn_time.map(wire_time),
        user_turn: attestation.user_turn,
        explicit_order: attestation.explicit_order,
    }
    .encode_to_vec()
}

/// Which records a read is about; all parts are ANDed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Kinds; empty is every kind but ASSUMPTION and MODEL_SUGGESTION.
    pub kinds: Vec<Kind>,
    /// Tiers; empty is all.
    pub tiers: Vec<Tier>,
    /// Tags that must all be there, sorted.
    pub tags: Vec<String>,
    /// Metadata that must be equal.
    pub metadata: BTreeMap<String, String>,
    /// Event time from (inclusive).
    pub from: Option<Timestamp>,
    /// Event time to (exclusive).
    pub to: Option<Timestamp>,
    /// Only with evidence from this session.
    pub session_id: Option<String>,
    /// Statuses; empty is ACTIVE.
    pub statuses: Vec<Status>,
}

impl Filter {
    /// A stable text of the filter, for page tokens.
    #[must_use]
    pub fn binding(&self) -> String {
        format!("{self:?}")
    }
}

/// A filter; an absent one shows what is ACTIVE. What cannot be understood is an error, never no filter (case C072).
///
/// # Errors
/// `INVALID_FIELD` naming the field as `filter.<field>`.
pub fn filter(wire: Option<&pb::RecallFilter>) -> Result<Filter, Fault> {
    let Some(wire) = wire else { return Ok(Filter::default()) };
    for (field, count) in
        [("filter.kinds", wire.kinds.len()), ("filter.tiers", wire.tiers.len()), ("filter.statuses", wire.statuses.len())]
    {
        if count > limits::FILTER_VALUES {
            return Err(Fault::field(field, format!("has more than {} values", limits::FILTER_VALUES)));
        }
    }
    let from = optional_time("filter.from", wire.from.as_ref())?;
    let to = optional_time("filter.to", wire.to.as_ref())?;
    if let (Some(from), Some(to)) = (from, to)
        && to < from
    {
        return Err(Fault::field("filter.to", "lies before from"));
    }
    let session_id = if wire.session_id.is_empty() {
        None
    } else {
        check_id("filter.session_id", &wire.session_id)?;
        Some(wire.session_id.clone())
    };
    Ok(Filter {
        kinds: wire.kinds.iter().map(|raw| kind("filter.kinds", *raw)).collect::<Result<_, _>>()?,
        tiers: wire.tiers.iter().map(|raw| tier("filter.tiers", *raw)).collect::<Result<_, _>>()?,
        tags: tags("filter.tags", &wire.tags)?,
        metadata: metadata("filter.metadata", &wire.metadata)?,
        from,
        to,
        session_id,
        statuses: wire.statuses.iter().map(|raw| status("filter.statuses", *raw)).collect::<Result<_, _>>()?,
    })
}

/// Sources that a list is restricted to, in their order, each once.
///
/// # Errors
/// `INVALID_FIELD` naming `field` when there are too many or one is none.
pub fn sources(field: &'static str, wire: &[i32]) -> Result<Vec<Source>, Fault> {
    if wire.len() > limits::FILTER_VALUES {
        return Err(Fault::field(field, format!("has more than {} values", limits::FILTER_VALUES)));
    }
    let mut out: Vec<Source> = wire.iter().map(|raw| source(field, *raw)).collect::<Result<_, _>>()?;
    out.sort();
    out.dedup();
    Ok(out)
}

/// The ids of a batch.
///
/// # Errors
/// `INVALID_FIELD` naming `field` when there are too many or one is no id.
pub fn memory_ids(field: &'static str, wire: &[String]) -> Result<Vec<MemoryId>, Fault> {
    if wire.len() > limits::BATCH_IDS {
        return Err(Fault::field(field, format!("names more than {} records", limits::BATCH_IDS)));
    }
    let mut out: Vec<MemoryId> = wire.iter().map(|id| MemoryId::parse(field, id)).collect::<Result<_, _>>()?;
    out.sort();
    out.dedup();
    Ok(out)
}

/// The keys of a batch.
///
/// # Errors
/// `INVALID_FIELD` naming `field` when there are too many or one is no key.
pub fn keys(field: &str, wire: &[String], max: usize) -> Result<Vec<FactKey>, Fault> {
    if wire.len() > max {
        return Err(Fault::field(field, format!("names more than {max} keys")));
    }
    wire.iter().map(|key| FactKey::new(key.clone()).map_err(|fault| renamed(fault, field))).collect()
}

/// Wire form of a piece of evidence.
#[must_use]
pub fn wire_evidence(evidence: &Evidence) -> pb::Evidence {
    pb::Evidence {
        source: wire_source(evidence.source).into(),
        source_ref: evidence.source_ref.as_ref().map(wire_source_ref),
        quote: evidence.quote.clone(),
        quote_verified: evidence.quote_verified,
        time: Some(wire_time(evidence.time)),
    }
}

/// Class of a kind, used for retrieval blocks (model.md).
#[must_use]
pub const fn memory_class(kind: Kind) -> &'static str {
    match kind {
        Kind::Event | Kind::Summary => "EPISODIC",
        Kind::Experience => "PROCEDURAL",
        Kind::Fact | Kind::Preference | Kind::Constraint | Kind::Goal | Kind::Assumption | Kind::ModelSuggestion => "SEMANTIC",
    }
}

/// Wire form of a record with its evidence.
#[must_use]
pub fn memory(record: &Record, evidence: &[Evidence]) -> pb::Memory {
    let id = |id: Option<MemoryId>| id.map(|id| id.to_string()).unwrap_or_default();
    let time = |time: Option<Timestamp>| time.map(wire_time);
    pb::Memory {
        memory_id: record.memory_id.to_string(),
        user_id: record.owner.user.as_str().to_owned(),
        agent_id: record.owner.agent_id().to_owned(),
        scope: wire_level(record.scope.level()).into(),
        kind: wire_kind(record.kind).into(),
        tier: wire_tier(record.tier).into(),
        key: record.key.as_ref().map(|k| k.as_str().to_owned()).unwrap_or_default(),
        value: record.value.as_ref().map(wire_value),
        content: record.content.clone(),
        source: wire_source(record.source).into(),
        source_ref: record.source_ref.as_ref().map(wire_source_ref),
        source_quote: record.source_quote.clone(),
        quote_verified: record.quote_verified,
        evidence: evidence.iter().map(wire_evidence).collect(),
        evidence_count: record.evidence_count,
        evidence_sessions: record.evidence_sessions,
        confirmed: record.confirmed,
        confidence: record.confidence,
        importance: u32::from(record.importance),
        sensitivity: record.sensitivity.name().to_owned(),
        protected: record.protected,
        status: wire_status(record.status).into(),
        supersedes: id(record.supersedes),
        superseded_by: id(record.superseded_by),
        superseded_at: time(record.superseded_at),
        reason: record.reason.clone(),
        valid_from: time(record.valid_from),
        valid_to: time(record.valid_to),
        event_time: Some(wire_time(record.event_time)),
        create_time: Some(wire_time(record.create_time)),
        update_time: Some(wire_time(record.update_time)),
        expire_time: time(record.expire_time),
        last_recalled_at: time(record.last_recalled_at),
        last_cited_at: time(record.last_cited_at),
        recall_count: record.recall_count,
        cite_count: record.cite_count,
        topic: record.topic.clone().unwrap_or_default(),
        tags: record.tags.clone(),
        metadata: record.metadata.clone(),
        owner_epoch: record.owner_epoch,
        etag: record.version.to_string(),
        embedding_model: record.embedding_model.clone().unwrap_or_default(),
        memory_class: memory_class(record.kind).to_owned(),
        derived_from: record.derived_from.iter().map(MemoryId::to_string).collect(),
        source_span: record.source_span.map(|(from, to)| pb::SourceSpan { from: Some(wire_time(from)), to: Some(wire_time(to)) }),
        may_be_replaced_by: String::new(),
    }
}

/// Wire form of a move of status.
#[must_use]
pub fn wire_history(entry: &HistoryEntry) -> pb::HistoryEntry {
    pb::HistoryEntry {
        memory_id: entry.memory_id.to_string(),
        time: Some(wire_time(entry.time)),
        from: entry.from.map_or(pb::Status::Unspecified, wire_status).into(),
        to: wire_status(entry.to).into(),
        actor: entry.actor.clone(),
        path: entry.path.clone(),
        reason: entry.reason.clone(),
        rule: entry.rule.clone(),
    }
}

/// Wire form of a statement: the way back of [`statement`], for the channel that promotes facts.
#[must_use]
pub fn wire_statement(s: &Statement) -> pb::Statement {
    let trigger = match s.trigger {
        None | Some(Trigger::Maintenance) => pb::Trigger::Unspecified,
        Some(Trigger::UserRequest) => pb::Trigger::UserRequest,
        Some(Trigger::TaskEnd) => pb::Trigger::TaskEnd,
        Some(Trigger::SessionEnd) => pb::Trigger::SessionEnd,
        Some(Trigger::DecisionPoint) => pb::Trigger::DecisionPoint,
        Some(Trigger::Sync) => pb::Trigger::Sync,
        Some(Trigger::Import) => pb::Trigger::Import,
    };
    pb::Statement {
        kind: wire_kind(s.kind).into(),
        key: s.key.as_ref().map(|k| k.as_str().to_owned()).unwrap_or_default(),
        value: s.value.as_ref().map(wire_value),
        content: s.content.clone(),
        source: wire_source(s.source).into(),
        source_ref: s.source_ref.as_ref().map(wire_source_ref),
        source_quote: s.source_quote.clone(),
        trigger: trigger.into(),
        importance: s.importance.map_or(0, i32::from),
        confidence: s.confidence,
        tier: s.tier.map_or(pb::Tier::Unspecified, wire_tier).into(),
        protected: s.protected,
        valid_from: s.valid_from.map(wire_time),
        valid_to: s.valid_to.map(wire_time),
        expire_time: s.expire_time.map(wire_time),
        topic: s.topic.clone().unwrap_or_default(),
        tags: s.tags.clone(),
        metadata: s.metadata.clone(),
        vector: s.vector.clone(),
        consent: s.consent.clone().unwrap_or_default(),
    }
}

/// The text a record is searched by: content, the words of its key, and its value where the content does not hold it.
#[must_use]
pub fn indexed_text(content: &str, key: Option<&FactKey>, value: Option<&Value>) -> String {
    let mut out = content.to_owned();
    if let Some(key) = key {
        out.push('\n');
        out.extend(key.as_str().chars().map(|c| if matches!(c, '.' | '_' | '-' | '[' | ']') { ' ' } else { c }));
    }
    if let Some(value) = value.map(Value::as_text).filter(|value| !content.contains(value)) {
        out.push('\n');
        out.push_str(value);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000_000);

    fn sample() -> pb::Statement {
        pb::Statement {
            kind: pb::Kind::Fact.into(),
            content: "the user lives in Hangzhou".into(),
            source: pb::Source::UserStatement.into(),
            source_quote: "I live in Hangzhou".into(),
            trigger: pb::Trigger::UserRequest.into(),
            ..pb::Statement::default()
        }
    }

    fn refused(wire: &pb::Statement) -> String {
        let fault = statement(Some(wire), NOW).expect_err("refused");
        assert_eq!(fault.reason, strata_core::Reason::InvalidField);
        fault.fields[0].field.clone()
    }

    #[test]
    fn a_statement_survives_the_wire() {
        let wire = pb::Statement {
            key: "profile.city".into(),
            value: Some(wire_value(&Value::Text("Hangzhou".into()))),
            source_ref: Some(wire_source_ref(&SourceRef::Turn { session_id: "s1".into(), seq: 3 })),
            importance: 4,
            confidence: Some(0.5),
            tier: pb::Tier::Temporary.into(),
            protected: true,
            valid_from: Some(wire_time(Timestamp(5))),
            valid_to: Some(wire_time(Timestamp(6))),
            expire_time: Some(wire_time(NOW.plus(1))),
            topic: "home".into(),
            tags: vec!["b".into(), "a".into(), "b".into()],
            metadata: BTreeMap::from([("k".into(), "v".into())]),
            vector: vec![0.5],
            consent: "c".into(),
            ..sample()
        };
        let domain = statement(Some(&wire), NOW).expect("valid");
        assert_eq!(domain.tags, ["a", "b"]);
        let back = wire_statement(&domain);
        assert_eq!(back, pb::Statement { tags: vec!["a".into(), "b".into()], ..wire });
    }

    #[test]
    fn c057_c087_each_field_is_refused_by_name() {
        let long = |n: usize| "长".repeat(n);
        for (wire, field) in [
            (pb::Statement { kind: 0, ..sample() }, "statement.kind"),
            (pb::Statement { kind: 99, ..sample() }, "statement.kind"),
            (pb::Statement { kind: pb::Kind::Summary.into(), ..sample() }, "statement.kind"),
            (pb::Statement { source: 0, ..sample() }, "statement.source"),
            (pb::Statement { trigger: 99, ..sample() }, "statement.trigger"),
            (pb::Statement { content: " \u{200b}".into(), ..sample() }, "statement.content"),
            (pb::Statement { content: long(limits::CONTENT_CHARS + 1), ..sample() }, "statement.content"),
            (pb::Statement { source_quote: long(limits::QUOTE_CHARS + 1), ..sample() }, "statement.source_quote"),
            (pb::Statement { content: "a\0b".into(), ..sample() }, "statement.content"),
            (pb::Statement { key: "Bad Key".into(), ..sample() }, "statement.key"),
            (pb::Statement { importance: 6, ..sample() }, "statement.importance"),
            (pb::Statement { importance: -1, ..sample() }, "statement.importance"),
            (pb::Statement { confidence: Some(1.1), ..sample() }, "statement.confidence"),
            (pb::Statement { confidence: Some(f64::NAN), ..sample() }, "statement.confidence"),
            (pb::Statement { tier: pb::Tier::Event.into(), ..sample() }, "statement.tier"),
            (pb::Statement { expire_time: Some(wire_time(NOW)), ..sample() }, "statement.expire_time"),
            (pb::Statement { topic: "t".repeat(limits::TOPIC_BYTES + 1), ..sample() }, "statement.topic"),
            (pb::Statement { tags: vec!["t".into(); limits::TAGS + 1], ..sample() }, "statement.tags"),
            (pb::Statement { tags: vec!["t".repeat(limits::TAG_BYTES + 1)], ..sample() }, "statement.tags"),
            (pb::Statement { vector: vec![f32::NAN], ..sample() }, "statement.vector"),
            (
                pb::Statement { metadata: BTreeMap::from([("k".into(), "v".repeat(limits::METADATA_BYTES))]), ..sample() },
                "statement.metadata",
            ),
            (
                pb::Statement { valid_from: Some(wire_time(Timestamp(2))), valid_to: Some(wire_time(Timestamp(2))), ..sample() },
                "statement.valid_to",
            ),
            (
                pb::Statement {
                    source_ref: Some(wire_source_ref(&SourceRef::Turn { session_id: "s".into(), seq: 0 })),
                    ..sample()
                },
                "statement.source_ref.turn.seq",
            ),
            (
                pb::Statement { value: Some(wire_value(&Value::Text("v".repeat(limits::VALUE_BYTES + 1)))), ..sample() },
                "statement.value",
            ),
        ] {
            assert_eq!(refused(&wire), field);
        }
        assert!(statement(Some(&pb::Statement { content: long(limits::CONTENT_CHARS), ..sample() }), NOW).is_ok());
        assert!(statement(None, NOW).is_err());
    }

    #[test]
    fn c071_c072_a_filter_that_cannot_be_understood_is_an_error() {
        let field = |wire: pb::RecallFilter| filter(Some(&wire)).expect_err("refused").fields[0].field.clone();
        assert_eq!(field(pb::RecallFilter { kinds: vec![42], ..Default::default() }), "filter.kinds");
        assert_eq!(field(pb::RecallFilter { kinds: vec![0], ..Default::default() }), "filter.kinds");
        assert_eq!(field(pb::RecallFilter { statuses: vec![77], ..Default::default() }), "filter.statuses");
        let window = |from, to| pb::RecallFilter {
            from: Some(wire_time(Timestamp(from))),
            to: Some(wire_time(Timestamp(to))),
            ..Default::default()
        };
        assert_eq!(field(window(2, 1)), "filter.to");
        assert!(filter(Some(&window(1, 1))).is_ok());
        let garbage = prost_types::Timestamp { seconds: i64::MAX, nanos: -1 };
        assert_eq!(field(pb::RecallFilter { from: Some(garbage), ..Default::default() }), "filter.from");
        assert_eq!(filter(None).expect("absent"), Filter::default());
    }

    #[test]
    fn an_attestation_survives_the_header_and_garbage_is_unsigned() {
        let sent = Attestation { quote: QuoteState::Verified, turn_time: Some(NOW), user_turn: true, explicit_order: true };
        assert_eq!(attestation(&wire_attestation(&sent)).expect("valid"), sent);
        assert_eq!(attestation(&[]).expect("nothing attested"), Attestation::default());
        assert_eq!(attestation(&[0xff]).expect_err("garbage").reason, strata_core::Reason::UnsignedCall);
    }

    #[test]
    fn every_vocabulary_maps_both_ways() {
        for k in Kind::ALL {
            assert_eq!(kind("k", wire_kind(*k).into()).expect("known"), *k);
        }
        for s in Source::ALL {
            assert_eq!(source("s", wire_source(*s).into()).expect("known"), *s);
        }
        for s in Status::ALL {
            assert_eq!(status("s", wire_status(*s).into()).expect("known"), *s);
        }
        for t in Tier::ALL {
            assert_eq!(tier("t", wire_tier(*t).into()).expect("known"), *t);
        }
        assert_eq!(trigger("t", 0).expect("absent"), None);
    }
}
