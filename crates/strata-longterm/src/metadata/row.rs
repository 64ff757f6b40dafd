//! The one mapping between a row of `records` and [`Record`]. A row holds more than a record: whose ids it carries inside
//! the file, its dedup identity, what a candidate is in conflict with. [`StoredRecord`] is both.

use super::{Sql, StoredOwner, corrupt};
use rusqlite::{Connection, OptionalExtension, Row, named_params};
use strata_core::record::{Kind, Record, Sensitivity, Source, SourceRef, Status, Tier};
use strata_core::{AgentId, FactKey, Fault, MemoryId, Owner, Scope, TenantId, Timestamp, UserId};
use uuid::Uuid;

/// A row of `records`.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredRecord {
    /// The record.
    pub record: Record,
    /// Ids of its owner inside the file.
    pub owner: StoredOwner,
    /// Identity of the statement (rule G10).
    pub dedup: [u8; 16],
    /// Cardinality of its key at the write (rule K11).
    pub is_set: bool,
    /// What DELETED goes back to when restored.
    pub earlier_status: Option<Status>,
    /// The ACTIVE record a candidate could not replace, or that a record in force may replace (rule K0).
    pub conflicts_with: Option<MemoryId>,
    /// To be put to the user.
    pub due: bool,
    /// Expiry the caller asked for, while a candidate's own is in force.
    pub expire_asked: Option<Timestamp>,
    /// Words of the indexed text.
    pub length: u32,
}

/// Columns of [`StoredRecord::read`], in its order; `r` is `records`, `o` is `owners`, `u` is `users`.
pub const COLUMNS: &str = "r.memory_id, r.owner_id, r.user_id, u.tenant, u.user, o.agent, r.kind, r.tier, r.key, r.is_set, r.value, \
    r.content, r.normal, r.dedup, r.source, r.source_ref, r.source_quote, r.quote_verified, r.confirmed, r.confidence, r.importance, \
    r.sensitivity, r.protected, r.instruction, r.status, r.earlier_status, r.supersedes, r.superseded_by, r.superseded_at, r.reason, \
    r.conflicts_with, r.due, r.valid_from, r.valid_to, r.event_time, r.create_time, r.update_time, r.expire_time, r.expire_asked, \
    r.last_recalled_at, r.last_cited_at, r.recall_count, r.cite_count, r.topic, r.tags, r.metadata, r.owner_epoch, r.version, \
    r.embedding_model, r.length, r.evidence_count, r.evidence_sessions, r.derived_from, r.span_from, r.span_to";

/// What [`COLUMNS`] reads from.
pub const FROM: &str = "records r JOIN owners o ON o.owner_id = r.owner_id JOIN users u ON u.user_id = r.user_id";

/// Bytes of an id, as stored.
#[must_use]
pub fn id_bytes(id: MemoryId) -> [u8; 16] {
    *id.0.as_bytes()
}

/// An id from its stored bytes.
#[must_use]
pub const fn id_from(bytes: [u8; 16]) -> MemoryId {
    MemoryId(Uuid::from_bytes(bytes))
}

/// Ids as stored one after the other.
pub(super) fn packed(ids: &[MemoryId]) -> Vec<u8> {
    ids.iter().flat_map(|id| id_bytes(*id)).collect()
}

/// Ids from their stored bytes.
pub(super) fn unpacked(bytes: &[u8]) -> Vec<MemoryId> {
    bytes.as_chunks::<16>().0.iter().map(|id| id_from(*id)).collect()
}

fn stored_id(id: Option<MemoryId>) -> Option<[u8; 16]> {
    id.map(id_bytes)
}

fn micros(time: Option<Timestamp>) -> Option<i64> {
    time.map(Timestamp::micros)
}

/// JSON of a value of the vocabulary: it holds no map with other keys than text, so it cannot fail.
pub(super) fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("records hold nothing that JSON cannot say")
}

fn from_json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Fault> {
    serde_json::from_str(text).map_err(|_| corrupt("a JSON column"))
}

/// A count as SQLite stores it. Counts are far below 2^63.
fn count(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn uncount(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// Reads columns one after the other, in the order of [`COLUMNS`].
struct Columns<'r, 's> {
    row: &'r Row<'s>,
    at: usize,
}

impl Columns<'_, '_> {
    fn next<T: rusqlite::types::FromSql>(&mut self) -> Result<T, Fault> {
        let value = self.row.get(self.at).sql()?;
        self.at += 1;
        Ok(value)
    }
    fn name<T>(&mut self, from: impl Fn(&str) -> Option<T>) -> Result<T, Fault> {
        let text: String = self.next()?;
        from(&text).ok_or_else(|| corrupt("a vocabulary column"))
    }
    fn id(&mut self) -> Result<Option<MemoryId>, Fault> {
        Ok(self.next::<Option<[u8; 16]>>()?.map(id_from))
    }
    fn time(&mut self) -> Result<Option<Timestamp>, Fault> {
        Ok(self.next::<Option<i64>>()?.map(Timestamp))
    }
    fn instant(&mut self) -> Result<Timestamp, Fault> {
        self.next::<i64>().map(Timestamp)
    }
}

impl StoredRecord {
    /// From a row of [`COLUMNS`].
    ///
    /// # Errors
    /// `INTERNAL` when the row is damaged.
    pub fn read(row: &Row<'_>) -> Result<Self, Fault> {
        let mut c = Columns { row, at: 0 };
        let memory_id = id_from(c.next()?);
        let owner = StoredOwner { owner_id: c.next()?, user_id: c.next()? };
        let (tenant, user, agent): (String, String, String) = (c.next()?, c.next()?, c.next()?);
        let agent = if agent.is_empty() { None } else { Some(AgentId::new(agent)?) };
        let scope = if agent.is_some() { Scope::Agent } else { Scope::User };
        let (kind, tier) = (c.name(Kind::from_name)?, c.name(Tier::from_name)?);
        let key = c.next::<Option<String>>()?.map(FactKey::new).transpose()?;
        let is_set = c.next()?;
        let value = c.next::<Option<String>>()?.map(|text| from_json(&text)).transpose()?;
        let (content, normal, dedup) = (c.next()?, c.next()?, c.next()?);
        let source = c.name(Source::from_name)?;
        let source_ref = c.next::<Option<String>>()?.map(|text| from_json(&text)).transpose()?;
        let (source_quote, quote_verified, confirmed, confidence, importance) =
            (c.next()?, c.next()?, c.next()?, c.next()?, c.next()?);
        let sensitivity = c.name(Sensitivity::from_name)?;
        let (protected, instruction) = (c.next()?, c.next()?);
        let status = c.name(Status::from_name)?;
        let earlier_status = match c.next::<Option<String>>()? {
            Some(text) => Some(Status::from_name(&text).ok_or_else(|| corrupt("a vocabulary column"))?),
            None => None,
        };
        let (supersedes, superseded_by, superseded_at) = (c.id()?, c.id()?, c.time()?);
        let reason = c.next()?;
        let (conflicts_with, due) = (c.id()?, c.next()?);
        let (valid_from, valid_to, event_time) = (c.time()?, c.time()?, c.instant()?);
        let (create_time, update_time) = (c.instant()?, c.instant()?);
        let (expire_time, expire_asked) = (c.time()?, c.time()?);
        let (last_recalled_at, last_cited_at) = (c.time()?, c.time()?);
        let (recall_count, cite_count) = (uncount(c.next()?), uncount(c.next()?));
        let topic = c.next()?;
        let (tags, metadata) = (from_json(&c.next::<String>()?)?, from_json(&c.next::<String>()?)?);
        let (owner_epoch, version) = (uncount(c.next()?), uncount(c.next()?));
        let (embedding_model, length, evidence_count, evidence_sessions) = (c.next()?, c.next()?, c.next()?, c.next()?);
        let derived_from = c.next::<Option<Vec<u8>>>()?.map(|bytes| unpacked(&bytes)).unwrap_or_default();
        let source_span = c.time()?.zip(c.time()?);
        let record = Record {
            memory_id,
            owner: Owner { tenant: TenantId::new(tenant)?, user: UserId::new(user)?, agent },
            scope,
            kind,
            tier,
            key,
            value,
            content,
            normal,
            source,
            source_ref,
            source_quote,
            quote_verified,
            confirmed,
            confidence,
            importance,
            sensitivity,
            protected,
            instruction,
            status,
            supersedes,
            superseded_by,
            superseded_at,
            reason,
            valid_from,
            valid_to,
            event_time,
            create_time,
            update_time,
            expire_time,
            last_recalled_at,
            last_cited_at,
            recall_count,
            cite_count,
            topic,
            tags,
            metadata,
            owner_epoch,
            version,
            embedding_model,
            evidence_sessions,
            evidence_count,
            derived_from,
            source_span,
        };
        Ok(Self { record, owner, dedup, is_set, earlier_status, conflicts_with, due, expire_asked, length })
    }

    /// Writes a new row.
    ///
    /// # Errors
    /// As the database says; `INTERNAL` on a violated index, which the conflict rules exclude.
    pub(super) fn insert(&self, db: &Connection) -> Result<(), Fault> {
        self.execute(
            db,
            "INSERT INTO records (memory_id, owner_id, user_id, kind, tier, key, is_set, value, content, normal, dedup, source, source_ref, \
             source_quote, quote_verified, confirmed, confidence, importance, sensitivity, protected, instruction, status, earlier_status, \
             supersedes, superseded_by, superseded_at, reason, conflicts_with, due, valid_from, valid_to, event_time, create_time, \
             update_time, expire_time, expire_asked, last_recalled_at, last_cited_at, recall_count, cite_count, topic, tags, metadata, \
             owner_epoch, version, embedding_model, length, evidence_count, evidence_sessions, derived_from, span_from, span_to) \
             VALUES (:memory_id, :owner_id, :user_id, :kind, :tier, :key, :is_set, :value, :content, :normal, :dedup, :source, :source_ref, \
             :source_quote, :quote_verified, :confirmed, :confidence, :importance, :sensitivity, :protected, :instruction, :status, \
             :earlier_status, :supersedes, :superseded_by, :superseded_at, :reason, :conflicts_with, :due, :valid_from, :valid_to, \
             :event_time, :create_time, :update_time, :expire_time, :expire_asked, :last_recalled_at, :last_cited_at, :recall_count, \
             :cite_count, :topic, :tags, :metadata, :owner_epoch, :version, :embedding_model, :length, :evidence_count, :evidence_sessions, \
             :derived_from, :span_from, :span_to)",
        )
    }

    /// Writes everything back that may change; content, value, key, kind, owner and creation never do (model.md).
    ///
    /// # Errors
    /// As [`StoredRecord::insert`].
    pub(super) fn update(&self, db: &Connection) -> Result<(), Fault> {
        self.execute(
            db,
            "UPDATE records SET tier = :tier, source = :source, quote_verified = :quote_verified, confirmed = :confirmed, \
             confidence = :confidence, importance = :importance, sensitivity = :sensitivity, protected = :protected, status = :status, \
             earlier_status = :earlier_status, supersedes = :supersedes, superseded_by = :superseded_by, superseded_at = :superseded_at, \
             reason = :reason, conflicts_with = :conflicts_with, due = :due, valid_to = :valid_to, event_time = :event_time, \
             update_time = :update_time, expire_time = :expire_time, expire_asked = :expire_asked, \
             last_recalled_at = :last_recalled_at, last_cited_at = :last_cited_at, recall_count = :recall_count, \
             cite_count = :cite_count, topic = :topic, tags = :tags, metadata = :metadata, owner_epoch = :owner_epoch, \
             version = :version, embedding_model = :embedding_model, evidence_count = :evidence_count, \
             evidence_sessions = :evidence_sessions WHERE memory_id = :memory_id",
        )
    }

    fn execute(&self, db: &Connection, sql: &str) -> Result<(), Fault> {
        let r = &self.record;
        let mut statement = db.prepare_cached(sql).sql()?;
        let all = named_params! {
            ":memory_id": id_bytes(r.memory_id),
            ":owner_id": self.owner.owner_id,
            ":user_id": self.owner.user_id,
            ":kind": r.kind.name(),
            ":tier": r.tier.name(),
            ":key": r.key.as_ref().map(FactKey::as_str),
            ":is_set": self.is_set,
            ":value": r.value.as_ref().map(json),
            ":content": r.content,
            ":normal": r.normal,
            ":dedup": self.dedup,
            ":source": r.source.name(),
            ":source_ref": r.source_ref.as_ref().map(json),
            ":source_quote": r.source_quote,
            ":quote_verified": r.quote_verified,
            ":confirmed": r.confirmed,
            ":confidence": r.confidence,
            ":importance": r.importance,
            ":sensitivity": r.sensitivity.name(),
            ":protected": r.protected,
            ":instruction": r.instruction,
            ":status": r.status.name(),
            ":earlier_status": self.earlier_status.map(Status::name),
            ":supersedes": stored_id(r.supersedes),
            ":superseded_by": stored_id(r.superseded_by),
            ":superseded_at": micros(r.superseded_at),
            ":reason": r.reason,
            ":conflicts_with": stored_id(self.conflicts_with),
            ":due": self.due,
            ":valid_from": micros(r.valid_from),
            ":valid_to": micros(r.valid_to),
            ":event_time": r.event_time.micros(),
            ":create_time": r.create_time.micros(),
            ":update_time": r.update_time.micros(),
            ":expire_time": micros(r.expire_time),
            ":expire_asked": micros(self.expire_asked),
            ":last_recalled_at": micros(r.last_recalled_at),
            ":last_cited_at": micros(r.last_cited_at),
            ":recall_count": count(r.recall_count),
            ":cite_count": count(r.cite_count),
            ":topic": r.topic,
            ":tags": json(&r.tags),
            ":metadata": json(&r.metadata),
            ":owner_epoch": count(r.owner_epoch),
            ":version": count(r.version),
            ":embedding_model": r.embedding_model,
            ":length": self.length,
            ":evidence_count": r.evidence_count,
            ":evidence_sessions": r.evidence_sessions,
            ":derived_from": (!r.derived_from.is_empty()).then(|| packed(&r.derived_from)),
            ":span_from": micros(r.source_span.map(|(from, _)| from)),
            ":span_to": micros(r.source_span.map(|(_, to)| to)),
        };
        // An update names fewer columns than an insert: bind those that the statement has.
        for (name, value) in all {
            if let Some(index) = statement.parameter_index(name).sql()? {
                statement.raw_bind_parameter(index, value).sql()?;
            }
        }
        statement.raw_execute().sql()?;
        Ok(())
    }
}

/// The rows of a query over [`COLUMNS`] and [`FROM`].
///
/// # Errors
/// As the database says.
pub fn select(db: &Connection, rest: &str, params: impl rusqlite::Params) -> Result<Vec<StoredRecord>, Fault> {
    let mut statement = db.prepare_cached(&format!("SELECT {COLUMNS} FROM {FROM} {rest}")).sql()?;
    let mut rows = statement.query(params).sql()?;
    let mut out = Vec::new();
    while let Some(row) = rows.next().sql()? {
        out.push(StoredRecord::read(row)?);
    }
    Ok(out)
}

/// A record by id, whoever owns it: for callers that hold the owner against it, and for the writer's own bookkeeping.
///
/// # Errors
/// As the database says.
pub(crate) fn by_id(db: &Connection, id: MemoryId) -> Result<Option<StoredRecord>, Fault> {
    let mut statement = db.prepare_cached(&format!("SELECT {COLUMNS} FROM {FROM} WHERE r.memory_id = ?1")).sql()?;
    let found = statement.query_row([id_bytes(id)], |row| Ok(StoredRecord::read(row))).optional().sql()?;
    found.transpose()
}

/// Records of an owner that a record of a system made, oldest first.
///
/// # Errors
/// As the database says.
pub(crate) fn from_system(db: &Connection, owner: StoredOwner, reference: &SourceRef) -> Result<Vec<StoredRecord>, Fault> {
    let rest = "WHERE r.owner_id = ?1 AND r.source_ref = ?2 AND r.source_ref LIKE '{\"SystemRecord\"%' ORDER BY r.event_time, r.memory_id";
    select(db, rest, (owner.owner_id, json(reference)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::MIGRATIONS;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use strata_core::record::Value;

    fn time() -> impl Strategy<Value = Option<Timestamp>> {
        proptest::option::of(any::<i64>().prop_map(Timestamp))
    }

    fn id() -> impl Strategy<Value = Option<MemoryId>> {
        proptest::option::of(any::<u128>().prop_map(|n| MemoryId(Uuid::from_u128(n))))
    }

    fn any_of<T: Copy + std::fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = T> {
        proptest::sample::select(all)
    }

    fn reference() -> impl Strategy<Value = Option<SourceRef>> {
        proptest::option::of(prop_oneof![
            (".*", 1_u32..).prop_map(|(session_id, seq)| SourceRef::Turn { session_id, seq }),
            (".*", ".*").prop_map(|(system, record_id)| SourceRef::SystemRecord { system, record_id }),
            ".*".prop_map(|reference| SourceRef::Confirmation { reference }),
            ".*".prop_map(|task_id| SourceRef::Task { task_id }),
        ])
    }

    fn value() -> impl Strategy<Value = Option<Value>> {
        proptest::option::of(prop_oneof![
            ".*".prop_map(Value::Text),
            "[0-9]{1,30}(\\.[0-9]{1,5})?".prop_map(Value::Number),
            any::<bool>().prop_map(Value::Bool),
            ".*".prop_map(Value::Json),
        ])
    }

    fn stored() -> impl Strategy<Value = StoredRecord> {
        let kinds: Vec<Kind> = Kind::ALL.iter().copied().filter(|kind| *kind != Kind::Summary).collect();
        let what = (
            proptest::sample::select(kinds),
            any_of(Tier::ALL),
            proptest::option::of(
                "[a-z][a-z0-9_-]{0,9}(\\.[a-z0-9_-]{1,9}){0,2}(\\[\\])?".prop_map(|k| FactKey::new(k).expect("key")),
            ),
            value(),
            ".*",
            ".*",
            any_of(Source::ALL),
            reference(),
            ".*",
        );
        let flags = (
            any::<[bool; 6]>(),
            0.0..=1.0_f64,
            1_u8..=5,
            any_of(Sensitivity::ALL),
            any_of(Status::ALL),
            proptest::option::of(any_of(Status::ALL)),
        );
        let links = (id(), id(), id(), time(), ".*", any::<[u8; 16]>());
        let times = (time(), time(), any::<[i64; 3]>(), time(), time(), time(), time());
        let rest = (
            any::<[u32; 5]>(),
            proptest::option::of(".+"),
            proptest::collection::vec(".+", 0..3),
            proptest::collection::btree_map(".+", ".*", 0..3),
            proptest::option::of(".+"),
        );
        (what, flags, links, times, rest).prop_map(|(what, flags, links, times, rest)| {
            let (kind, tier, key, value, content, normal, source, source_ref, source_quote) = what;
            let (
                [quote_verified, confirmed, protected, instruction, is_set, due],
                confidence,
                importance,
                sensitivity,
                status,
                earlier_status,
            ) = flags;
            let (supersedes, superseded_by, conflicts_with, superseded_at, reason, dedup) = links;
            let (valid_from, valid_to, [event, create, update], expire_time, expire_asked, last_recalled_at, last_cited_at) =
                times;
            let ([recalls, cites, length, evidence_count, evidence_sessions], topic, tags, metadata, embedding_model) = rest;
            let metadata: BTreeMap<String, String> = metadata;
            let owner = Owner {
                tenant: TenantId::new("t").expect("id"),
                user: UserId::new("u").expect("id"),
                agent: Some(AgentId::new("a").expect("id")),
            };
            let record = Record {
                memory_id: MemoryId(Uuid::from_u128(1)),
                owner,
                scope: Scope::Agent,
                kind,
                tier,
                key,
                value,
                content,
                normal,
                source,
                source_ref,
                source_quote,
                quote_verified,
                confirmed,
                confidence,
                importance,
                sensitivity,
                protected,
                instruction,
                status,
                supersedes,
                superseded_by,
                superseded_at,
                reason,
                valid_from,
                valid_to,
                event_time: Timestamp(event),
                create_time: Timestamp(create),
                update_time: Timestamp(update),
                expire_time,
                last_recalled_at,
                last_cited_at,
                recall_count: recalls.into(),
                cite_count: cites.into(),
                topic,
                tags,
                metadata,
                owner_epoch: u64::from(recalls) << 20,
                version: u64::from(cites) + 1,
                embedding_model,
                evidence_sessions,
                evidence_count,
                derived_from: Vec::new(),
                source_span: None,
            };
            let owner = StoredOwner { owner_id: 1, user_id: 1 };
            StoredRecord { record, owner, dedup, is_set, earlier_status, conflicts_with, due, expire_asked, length }
        })
    }

    fn database() -> Connection {
        let db = Connection::open_in_memory().expect("opens");
        for migration in MIGRATIONS {
            db.execute_batch(migration.sql).expect("migrates");
        }
        db.execute_batch("INSERT INTO users (user_id, tenant, user) VALUES (1, 't', 'u'); INSERT INTO owners (owner_id, user_id, agent) VALUES (1, 1, 'a');")
            .expect("an owner");
        db
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_record_survives_its_row_and_every_change_of_it(first in stored(), second in stored()) {
            let db = database();
            first.insert(&db).expect("inserted");
            let id = first.record.memory_id;
            prop_assert_eq!(&by_id(&db, id).expect("read").expect("there"), &first);

            second.update(&db).expect("updated");
            let read = by_id(&db, id).expect("read").expect("there");
            // What never changes is the first's, all else the second's.
            let mut expected = second;
            let (to, from) = (&mut expected.record, &first.record);
            to.kind = from.kind;
            to.key.clone_from(&from.key);
            to.value.clone_from(&from.value);
            to.content.clone_from(&from.content);
            to.normal.clone_from(&from.normal);
            to.source_ref.clone_from(&from.source_ref);
            to.source_quote.clone_from(&from.source_quote);
            to.instruction = from.instruction;
            to.valid_from = from.valid_from;
            to.create_time = from.create_time;
            (expected.dedup, expected.is_set, expected.length) = (first.dedup, first.is_set, first.length);
            prop_assert_eq!(read, expected);
        }
    }
}
