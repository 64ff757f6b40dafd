//! Reads: by id, key, filter and chain. Every one takes the [`Visible`] owners; what it returns is theirs.

use super::row::{COLUMNS, FROM, StoredRecord, by_id, id_bytes, id_from, select};
use super::{Sql, StoredOwner, Visible, corrupt};
use rusqlite::types::Value as SqlValue;
use rusqlite::{Connection, OptionalExtension as _, params_from_iter};
use std::collections::{BTreeMap, BTreeSet};
use strata_api::convert::longterm::Filter;
use strata_core::policy::gate::{Cues, EvidenceFacts};
use strata_core::policy::status;
use strata_core::record::{Evidence, HistoryEntry, Kind, Source, SourceRef, Status, Tier};
use strata_core::{FactKey, Fault, MemoryId, Timestamp};

/// The state of a row by the clock, in SQL: [`status::at`] over the columns, with `?1` as now.
pub(super) const STATUS_NOW: &str = "CASE WHEN r.status IN ('CANDIDATE', 'ACTIVE', 'DISPUTED') AND r.expire_time <= ?1 \
    THEN CASE WHEN r.status = 'ACTIVE' AND r.tier = 'EVENT' THEN 'ARCHIVED' ELSE 'EXPIRED' END ELSE r.status END";

/// A record by id, if it is visible. Its status is the one by the clock.
///
/// # Errors
/// As the database says.
pub fn get(db: &Connection, visible: &Visible, id: MemoryId, now: Timestamp) -> Result<Option<StoredRecord>, Fault> {
    Ok(by_id(db, id)?.filter(|found| visible.sees(found.owner)).map(|found| at(found, now)))
}

/// The record as it is at `now` (rule F1).
#[must_use]
pub fn at(mut found: StoredRecord, now: Timestamp) -> StoredRecord {
    let r = &mut found.record;
    let state = status::at(r.status, r.tier, r.expire_time, now);
    if state != r.status {
        r.status = state;
        r.reason = "F1: past its expiry".to_owned();
    }
    found
}

/// Evidence of a record, oldest first, at most [`strata_core::limits::EVIDENCE`].
///
/// # Errors
/// As the database says.
pub fn evidence(db: &Connection, id: MemoryId) -> Result<Vec<Evidence>, Fault> {
    let mut statement = db
        .prepare_cached(
            "SELECT source, source_ref, quote, quote_verified, time FROM evidence WHERE memory_id = ?1 ORDER BY evidence_id",
        )
        .sql()?;
    let mut rows = statement.query([id_bytes(id)]).sql()?;
    let mut out = Vec::new();
    while let Some(row) = rows.next().sql()? {
        let source: String = row.get(0).sql()?;
        let source_ref: Option<String> = row.get(1).sql()?;
        out.push(Evidence {
            source: Source::from_name(&source).ok_or_else(|| corrupt("evidence.source"))?,
            source_ref: source_ref
                .map(|text| serde_json::from_str::<SourceRef>(&text))
                .transpose()
                .map_err(|_| corrupt("evidence.source_ref"))?,
            quote: row.get(2).sql()?,
            quote_verified: row.get(3).sql()?,
            time: Timestamp(row.get(4).sql()?),
        });
    }
    Ok(out)
}

/// Source and time of each piece of evidence of a record.
///
/// # Errors
/// As the database says.
pub fn evidence_times(db: &Connection, id: MemoryId) -> Result<Vec<(Source, Timestamp)>, Fault> {
    let mut statement = db.prepare_cached("SELECT source, time FROM evidence WHERE memory_id = ?1").sql()?;
    let rows = statement.query_map([id_bytes(id)], |row| Ok((row.get::<_, String>(0)?, row.get(1)?))).sql()?;
    let mut out = Vec::new();
    for row in rows {
        let (source, time) = row.sql()?;
        out.push((Source::from_name(&source).ok_or_else(|| corrupt("evidence.source"))?, Timestamp(time)));
    }
    Ok(out)
}

/// What the evidence of a record says together (rule G10).
///
/// # Errors
/// As the database says.
pub fn evidence_facts(db: &Connection, id: MemoryId) -> Result<EvidenceFacts, Fault> {
    let mut statement = db.prepare_cached("SELECT cues, session_id FROM evidence WHERE memory_id = ?1").sql()?;
    let rows = statement.query_map([id_bytes(id)], |row| Ok((row.get::<_, u8>(0)?, row.get::<_, Option<String>>(1)?))).sql()?;
    let (mut cues, mut statements) = (Cues::default(), 0);
    let (mut sessions, mut user_sessions) = (BTreeSet::new(), BTreeSet::new());
    for row in rows {
        let (bits, session) = row.sql()?;
        let own = Cues::from_bits(bits);
        cues = cues.and(own);
        statements += 1;
        if let Some(session) = session {
            if own.has(Cues::USER) {
                user_sessions.insert(session.clone());
            }
            sessions.insert(session);
        }
    }
    let count = |set: &BTreeSet<String>| u32::try_from(set.len()).unwrap_or(u32::MAX);
    Ok(EvidenceFacts { cues, statements, user_sessions: count(&user_sessions), sessions: count(&sessions) })
}

/// Records of a slot at one owner that hold it or wait for it, oldest first.
///
/// # Errors
/// As the database says.
pub fn live_of_slot(db: &Connection, owner: StoredOwner, key: &FactKey, tier: Tier) -> Result<Vec<StoredRecord>, Fault> {
    let rest = "WHERE r.owner_id = ?1 AND r.key = ?2 AND r.tier = ?3 AND r.status IN ('ACTIVE', 'CANDIDATE', 'DISPUTED') \
         ORDER BY r.event_time, r.memory_id";
    select(db, rest, (owner.owner_id, key.as_str(), tier.name()))
}

/// The newest record in force that may replace this one (rule K0), where everybody who reads this one may read it too.
///
/// # Errors
/// As the database says.
pub fn may_replace(db: &Connection, found: &StoredRecord) -> Result<Option<MemoryId>, Fault> {
    if found.record.status != Status::Active {
        return Ok(None);
    }
    let mut statement = db
        .prepare_cached(
            "SELECT r.memory_id FROM records r JOIN owners o ON o.owner_id = r.owner_id \
             WHERE r.conflicts_with = ?1 AND r.conflicts_with IS NOT NULL AND r.status = 'ACTIVE' \
             AND (r.owner_id = ?2 OR (o.user_id = ?3 AND o.agent = '')) \
             ORDER BY r.event_time DESC, r.memory_id DESC LIMIT 1",
        )
        .sql()?;
    let of = (id_bytes(found.record.memory_id), found.owner.owner_id, found.owner.user_id);
    statement.query_row(of, |row| row.get(0)).optional().sql().map(|id| id.map(id_from))
}

/// Records of a slot at one owner, of every tier and state, oldest first.
///
/// # Errors
/// As the database says.
pub fn of_slot(db: &Connection, owner: StoredOwner, key: &FactKey) -> Result<Vec<StoredRecord>, Fault> {
    let rest = "WHERE r.owner_id = ?1 AND r.key = ?2 ORDER BY r.event_time, r.memory_id";
    select(db, rest, (owner.owner_id, key.as_str()))
}

/// Records that held a slot before and were replaced, oldest first.
///
/// # Errors
/// As the database says.
pub fn past_of_slot(db: &Connection, owner: StoredOwner, key: &FactKey, tier: Tier) -> Result<Vec<StoredRecord>, Fault> {
    let rest =
        "WHERE r.owner_id = ?1 AND r.key = ?2 AND r.tier = ?3 AND r.status = 'SUPERSEDED' ORDER BY r.event_time, r.memory_id";
    select(db, rest, (owner.owner_id, key.as_str(), tier.name()))
}

/// Records of a key that are in force at `now` among visible owners: user level first, then by time.
///
/// # Errors
/// As the database says.
pub fn in_force(db: &Connection, visible: &Visible, key: &FactKey, now: Timestamp) -> Result<Vec<StoredRecord>, Fault> {
    let rest = format!(
        "WHERE {} AND r.key = ?1 AND r.status = 'ACTIVE' ORDER BY o.agent, r.event_time, r.memory_id",
        visible.condition()
    );
    let mut found = select(db, &rest, [key.as_str()])?;
    found.retain(|found| status::in_force(&found.record, now));
    Ok(found)
}

/// Records in force at `now` among visible owners whose key begins with a prefix and a dot, by key, in the order of
/// [`in_force`].
///
/// # Errors
/// As the database says.
pub fn under(
    db: &Connection,
    visible: &Visible,
    prefix: &FactKey,
    now: Timestamp,
) -> Result<BTreeMap<FactKey, Vec<StoredRecord>>, Fault> {
    // `/` is the character after `.`.
    let rest = format!(
        "WHERE {} AND r.key >= ?1 || '.' AND r.key < ?1 || '/' AND r.status = 'ACTIVE' ORDER BY r.key, o.agent, r.event_time, r.memory_id \
         LIMIT {}",
        visible.condition(),
        strata_core::limits::PAGE_MAX
    );
    let mut out: BTreeMap<FactKey, Vec<StoredRecord>> = BTreeMap::new();
    for found in select(db, &rest, [prefix.as_str()])? {
        if let (Some(key), true) = (found.record.key.clone(), status::in_force(&found.record, now)) {
            out.entry(key).or_default().push(found);
        }
    }
    Ok(out)
}

/// The live record with this identity at one owner (rule G10).
///
/// # Errors
/// As the database says.
pub fn twin(db: &Connection, owner: StoredOwner, identity: &[u8; 16]) -> Result<Option<StoredRecord>, Fault> {
    let rest = "WHERE r.owner_id = ?1 AND r.dedup = ?2 AND r.status IN ('CANDIDATE', 'ACTIVE', 'DISPUTED', 'REJECTED')";
    Ok(select(db, rest, (owner.owner_id, identity))?.into_iter().next())
}

/// Live records of one owner and kind with this normalised text (rule G10).
///
/// # Errors
/// As the database says.
pub fn same_text(db: &Connection, owner: StoredOwner, kind: Kind, normal: &str) -> Result<Vec<StoredRecord>, Fault> {
    let rest =
        "WHERE r.owner_id = ?1 AND r.kind = ?2 AND r.normal = ?3 AND r.status IN ('CANDIDATE', 'ACTIVE', 'DISPUTED', 'REJECTED')";
    select(db, rest, (owner.owner_id, kind.name(), normal))
}

/// A record that may be replaced by likeness (rule K0): in force, lasting, of a kind that states something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replaceable {
    /// The record.
    pub id: MemoryId,
    /// It has a slot.
    pub keyed: bool,
    /// Its slot holds several values side by side.
    pub is_set: bool,
}

/// The owner's records that can be replaced by likeness: of `near` all, of those that hold the most of `terms` at most `limit`.
///
/// The rarest terms are looked up first, until 256 entries are read: what only shares words of every second record is no
/// nearer than any other, and a write must not slow down with the records that are there.
///
/// # Errors
/// As the database says.
pub fn replaceable(
    db: &Connection,
    owner: StoredOwner,
    terms: &[u32],
    limit: usize,
    near: &[MemoryId],
) -> Result<Vec<Replaceable>, Fault> {
    let mut of_term = db.prepare_cached("SELECT df FROM owner_terms WHERE owner_id = ?1 AND term = ?2").sql()?;
    let mut telling: Vec<(u64, u32)> = Vec::new();
    for term in terms {
        let df: Option<u64> =
            rusqlite::OptionalExtension::optional(of_term.query_row((owner.owner_id, term), |row| row.get(0))).sql()?;
        telling.extend(df.map(|df| (df, *term)));
    }
    telling.sort_unstable();
    let mut holding = db
        .prepare_cached("SELECT memory_id FROM record_terms WHERE owner_id = ?1 AND term = ?2 ORDER BY memory_id DESC LIMIT ?3")
        .sql()?;
    let mut shared: BTreeMap<MemoryId, u32> = BTreeMap::new();
    let mut left = POSTINGS;
    for (_, term) in telling {
        let rows = holding.query_map((owner.owner_id, term, left), |row| row.get::<_, [u8; 16]>(0)).sql()?;
        for row in rows {
            *shared.entry(id_from(row.sql()?)).or_default() += 1;
            left = left.saturating_sub(1);
        }
        if left == 0 {
            break;
        }
    }
    let mut by_words: Vec<(u32, MemoryId)> = shared.into_iter().map(|(id, count)| (count, id)).collect();
    // Most terms first, of equals the newer.
    by_words.sort_unstable_by(|a, b| b.cmp(a));
    let mut out: Vec<Replaceable> = Vec::new();
    for (_, id) in by_words {
        if out.len() == limit {
            break;
        }
        out.extend(replaceable_row(db, owner, id)?);
    }
    for id in near {
        if !out.iter().any(|found| found.id == *id) {
            out.extend(replaceable_row(db, owner, *id)?);
        }
    }
    Ok(out)
}

fn replaceable_row(db: &Connection, owner: StoredOwner, id: MemoryId) -> Result<Option<Replaceable>, Fault> {
    let mut statement = db
        .prepare_cached(
            "SELECT key IS NOT NULL, is_set FROM records WHERE memory_id = ?1 AND owner_id = ?2 AND status = 'ACTIVE' \
             AND tier = 'STABLE' AND kind NOT IN ('EVENT', 'EXPERIENCE', 'SUMMARY')",
        )
        .sql()?;
    let read = |row: &rusqlite::Row<'_>| Ok(Replaceable { id, keyed: row.get(0)?, is_set: row.get(1)? });
    rusqlite::OptionalExtension::optional(statement.query_row((id_bytes(id), owner.owner_id), read)).sql()
}

/// The words of a record; its caller has seen that the record is the owner's.
///
/// # Errors
/// As the database says.
pub fn content_of(db: &Connection, owner: StoredOwner, id: MemoryId) -> Result<String, Fault> {
    let mut statement = db.prepare_cached("SELECT content FROM records WHERE memory_id = ?1 AND owner_id = ?2").sql()?;
    statement.query_row((id_bytes(id), owner.owner_id), |row| row.get(0)).sql()
}

/// Entries of the term table that one write reads to find what it may replace.
const POSTINGS: u32 = 256;

/// Kinds that stand apart: kept as candidates, shown only when asked for by kind (rule G2).
const APART: [Kind; 2] = [Kind::Assumption, Kind::ModelSuggestion];

/// What a list is about beside its filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Only {
    /// Members of this summary.
    pub members_of: Option<MemoryId>,
    /// Protected records.
    pub protected: bool,
    /// Records of these sources; empty is all.
    pub sources: Vec<Source>,
}

/// Ids of records that a filter admits, of every kind and status and time where it says nothing else: what an erasure by filter
/// is about.
///
/// # Errors
/// As the database says.
pub fn erasable(db: &Connection, visible: &Visible, filter: &Filter, now: Timestamp) -> Result<BTreeSet<MemoryId>, Fault> {
    let all = |statuses: &[Status]| if statuses.is_empty() { Status::ALL.to_vec() } else { statuses.to_vec() };
    let kinds = if filter.kinds.is_empty() { Kind::ALL.to_vec() } else { filter.kinds.clone() };
    let filter = Filter { statuses: all(&filter.statuses), kinds, ..filter.clone() };
    let (mut out, mut after) = (BTreeSet::new(), None);
    loop {
        let page = admitted(db, visible, &filter, &Only::default(), false, after, strata_core::limits::PAGE_MAX, now)?;
        after = page.last().map(|found| found.record.memory_id);
        out.extend(page.iter().map(|found| found.record.memory_id));
        if after.is_none() {
            return Ok(out);
        }
    }
}

/// Records in order of their ids, from the first after `after`; of a summary its members, in any state but forgotten unless the
/// filter names some (A161).
///
/// # Errors
/// As the database says.
pub fn list(
    db: &Connection,
    visible: &Visible,
    filter: &Filter,
    only: &Only,
    after: Option<MemoryId>,
    limit: u32,
    now: Timestamp,
) -> Result<Vec<StoredRecord>, Fault> {
    admitted(db, visible, filter, only, true, after, limit, now)
}

/// [`list`]; of ACTIVE records those that hold now when `valid`.
#[expect(clippy::too_many_arguments, reason = "what one query is made of")]
fn admitted(
    db: &Connection,
    visible: &Visible,
    filter: &Filter,
    only: &Only,
    valid: bool,
    after: Option<MemoryId>,
    limit: u32,
    now: Timestamp,
) -> Result<Vec<StoredRecord>, Fault> {
    let mut sql = Condition::new(visible, now);
    let summary = only.members_of;
    if only.protected {
        sql.and("r.protected");
    }
    if !only.sources.is_empty() {
        let list = sql.list(only.sources.iter().map(|source| source.name()));
        sql.and(&format!("r.source IN {list}"));
    }
    if let Some(summary) = summary {
        let summary = sql.bind(id_bytes(summary).to_vec());
        sql.and(&format!("r.memory_id IN (SELECT member_id FROM derivations WHERE derived_id = {summary})"));
    }
    let asked_apart = filter.kinds.iter().any(|kind| APART.contains(kind));
    let statuses = match (filter.statuses.is_empty(), summary) {
        (true, None) => vec![Status::Active],
        (true, Some(_)) => Status::ALL.iter().copied().filter(|status| *status != Status::Deleted).collect(),
        (false, _) => filter.statuses.clone(),
    };
    let names = statuses.iter().map(|s| s.name());
    let apart = if asked_apart { " OR (r.status = 'CANDIDATE' AND r.kind IN ('ASSUMPTION', 'MODEL_SUGGESTION'))" } else { "" };
    let list = sql.list(names);
    sql.and(&format!("({STATUS_NOW} IN {list}{apart})"));
    if valid {
        sql.and(
            "(r.status <> 'ACTIVE' OR ((r.valid_from IS NULL OR r.valid_from <= ?1) AND (r.valid_to IS NULL OR r.valid_to > ?1)))",
        );
    }
    let kinds: Vec<Kind> = if filter.kinds.is_empty() {
        Kind::ALL.iter().copied().filter(|kind| !APART.contains(kind)).collect()
    } else {
        filter.kinds.clone()
    };
    let list = sql.list(kinds.iter().map(|k| k.name()));
    sql.and(&format!("r.kind IN {list}"));
    if !filter.tiers.is_empty() {
        let list = sql.list(filter.tiers.iter().map(|t| t.name()));
        sql.and(&format!("r.tier IN {list}"));
    }
    for tag in &filter.tags {
        let tag = sql.bind(tag.clone());
        sql.and(&format!("EXISTS (SELECT 1 FROM json_each(r.tags) WHERE json_each.value = {tag})"));
    }
    for (key, value) in &filter.metadata {
        let (key, value) = (sql.bind(key.clone()), sql.bind(value.clone()));
        sql.and(&format!(
            "EXISTS (SELECT 1 FROM json_each(r.metadata) WHERE json_each.key = {key} AND json_each.value = {value})"
        ));
    }
    if let Some(from) = filter.from {
        let from = sql.bind(from.micros());
        sql.and(&format!("r.event_time >= {from}"));
    }
    if let Some(to) = filter.to {
        let to = sql.bind(to.micros());
        sql.and(&format!("r.event_time < {to}"));
    }
    if let Some(session) = &filter.session_id {
        let session = sql.bind(session.clone());
        sql.and(&format!("EXISTS (SELECT 1 FROM evidence e WHERE e.memory_id = r.memory_id AND e.session_id = {session})"));
    }
    if let Some(after) = after {
        let after = sql.bind(id_bytes(after).to_vec());
        sql.and(&format!("r.memory_id > {after}"));
    }
    sql.select(db, "r.memory_id", limit, now)
}

/// Where a page of candidates begins: after this one, which was due or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CandidateCursor {
    /// Whether the last one of the page before was due.
    pub due: bool,
    /// Its id.
    pub memory_id: MemoryId,
}

/// Times that one candidate is put to the user in all (rule C10).
pub const ASKED_MOST: u32 = 3;

/// Notes that candidates were put to the user in a session (rule C10).
///
/// # Errors
/// As the database says.
pub fn mark_asked(db: &Connection, visible: &Visible, ids: &[MemoryId], session: &str, now: Timestamp) -> Result<(), Fault> {
    let mut insert = db
        .prepare_cached(
            "INSERT INTO asked (memory_id, session, time) SELECT ?1, ?2, ?3 FROM records WHERE memory_id = ?1 ON CONFLICT DO NOTHING",
        )
        .sql()?;
    for id in ids {
        if by_id(db, *id)?.is_some_and(|found| visible.sees(found.owner)) {
            insert.execute((id_bytes(*id), session, now.micros())).sql()?;
        }
    }
    Ok(())
}

/// Waiting records, those due first, then by id; among those due also records in force that may replace another. Of those due
/// none that was asked often enough, or in this `session` already (rule C10).
///
/// # Errors
/// As the database says.
pub fn candidates(
    db: &Connection,
    visible: &Visible,
    due: Option<&str>,
    after: Option<CandidateCursor>,
    limit: u32,
    now: Timestamp,
) -> Result<Vec<StoredRecord>, Fault> {
    let mut sql = Condition::new(visible, now);
    // A record in force is no candidate, but due: it is asked about while the one it may replace is in force too (rule K0).
    let linked = "EXISTS (SELECT 1 FROM records old WHERE old.memory_id = r.conflicts_with AND old.status = 'ACTIVE')";
    let asked = if due.is_some() { format!(" OR ({STATUS_NOW} = 'ACTIVE' AND {linked})") } else { String::new() };
    sql.and(&format!("({STATUS_NOW} IN ('CANDIDATE', 'DISPUTED'){asked})"));
    sql.and("r.kind NOT IN ('ASSUMPTION', 'MODEL_SUGGESTION')");
    if let Some(session) = due {
        sql.and("r.due");
        sql.and(&format!("(SELECT count(*) FROM asked a WHERE a.memory_id = r.memory_id) < {ASKED_MOST}"));
        if !session.is_empty() {
            let session = sql.bind(session.to_owned());
            sql.and(&format!("NOT EXISTS (SELECT 1 FROM asked a WHERE a.memory_id = r.memory_id AND a.session = {session})"));
        }
    }
    if let Some(after) = after {
        let (due, id) = (sql.bind(i64::from(after.due)), sql.bind(id_bytes(after.memory_id).to_vec()));
        sql.and(&format!("(r.due < {due} OR (r.due = {due} AND r.memory_id > {id}))"));
    }
    sql.select(db, "r.due DESC, r.memory_id", limit, now)
}

/// A condition under construction: `?1` is now, every text is a parameter (cases C043, C044).
struct Condition {
    text: String,
    params: Vec<SqlValue>,
}

impl Condition {
    fn new(visible: &Visible, now: Timestamp) -> Self {
        // Mentions ?1 first, so that it exists in every statement.
        Self { text: format!("WHERE ?1 IS NOT NULL AND {}", visible.condition()), params: vec![SqlValue::Integer(now.micros())] }
    }

    fn and(&mut self, condition: &str) {
        self.text.push_str(" AND ");
        self.text.push_str(condition);
    }

    fn bind(&mut self, value: impl Into<SqlValue>) -> String {
        self.params.push(value.into());
        format!("?{}", self.params.len())
    }

    fn list<'a>(&mut self, names: impl Iterator<Item = &'a str>) -> String {
        let parts: Vec<String> = names.map(|name| self.bind(name.to_owned())).collect();
        format!("({})", parts.join(", "))
    }

    fn select(mut self, db: &Connection, order: &str, limit: u32, now: Timestamp) -> Result<Vec<StoredRecord>, Fault> {
        let limit = self.bind(i64::from(limit));
        let mut statement =
            db.prepare_cached(&format!("SELECT {COLUMNS} FROM {FROM} {} ORDER BY {order} LIMIT {limit}", self.text)).sql()?;
        let mut rows = statement.query(params_from_iter(self.params)).sql()?;
        let mut out = Vec::new();
        while let Some(row) = rows.next().sql()? {
            out.push(at(StoredRecord::read(row)?, now));
        }
        Ok(out)
    }
}

/// Every record that `id` replaced or was replaced by, over any number of steps, itself included; oldest first.
///
/// # Errors
/// As the database says.
pub fn chain_of(db: &Connection, visible: &Visible, id: MemoryId, now: Timestamp) -> Result<Vec<StoredRecord>, Fault> {
    let rest = format!(
        "WHERE {} AND r.memory_id IN (WITH RECURSIVE chain (id) AS (SELECT ?1 \
         UNION SELECT n.superseded_by FROM records n JOIN chain ON n.memory_id = chain.id WHERE n.superseded_by IS NOT NULL \
         UNION SELECT p.memory_id FROM records p JOIN chain ON p.superseded_by = chain.id) SELECT id FROM chain) \
         ORDER BY r.event_time, r.memory_id",
        visible.condition()
    );
    Ok(select(db, &rest, [id_bytes(id)])?.into_iter().map(|found| at(found, now)).collect())
}

/// Every record of a key, in any state, oldest first.
///
/// # Errors
/// As the database says.
pub fn history_of_key(db: &Connection, visible: &Visible, key: &FactKey, now: Timestamp) -> Result<Vec<StoredRecord>, Fault> {
    let rest = format!("WHERE {} AND r.key = ?1 ORDER BY r.event_time, r.memory_id", visible.condition());
    Ok(select(db, &rest, [key.as_str()])?.into_iter().map(|found| at(found, now)).collect())
}

/// Moves of status of a record, oldest first.
///
/// # Errors
/// As the database says.
pub fn history(db: &Connection, id: MemoryId) -> Result<Vec<HistoryEntry>, Fault> {
    let mut statement = db
        .prepare_cached("SELECT time, from_status, to_status, actor, path, reason, rule FROM history WHERE memory_id = ?1 ORDER BY history_id")
        .sql()?;
    let mut rows = statement.query([id_bytes(id)]).sql()?;
    let mut out = Vec::new();
    let status = |name: &str| Status::from_name(name).ok_or_else(|| corrupt("history.status"));
    while let Some(row) = rows.next().sql()? {
        let from: Option<String> = row.get(1).sql()?;
        let to: String = row.get(2).sql()?;
        out.push(HistoryEntry {
            memory_id: id,
            time: Timestamp(row.get(0).sql()?),
            from: from.as_deref().map(status).transpose()?,
            to: status(&to)?,
            actor: row.get(3).sql()?,
            path: row.get(4).sql()?,
            reason: row.get(5).sql()?,
            rule: row.get(6).sql()?,
        });
    }
    Ok(out)
}

/// When the user rejected a record last.
///
/// # Errors
/// As the database says.
pub fn rejected_at(db: &Connection, id: MemoryId) -> Result<Option<Timestamp>, Fault> {
    let mut statement =
        db.prepare_cached("SELECT max(time) FROM history WHERE memory_id = ?1 AND to_status = 'REJECTED'").sql()?;
    let time: Option<i64> = statement.query_row([id_bytes(id)], |row| row.get(0)).sql()?;
    Ok(time.map(Timestamp))
}

/// Ids of a user's records of a key that can be forgotten: everything that was not rejected or forgotten before.
///
/// # Errors
/// As the database says.
pub fn forgettable(db: &Connection, owner_ids: &[i64], key: &FactKey) -> Result<Vec<MemoryId>, Fault> {
    let ids: Vec<String> = owner_ids.iter().map(i64::to_string).collect();
    let sql = format!(
        "SELECT memory_id FROM records WHERE owner_id IN ({}) AND key = ?1 AND status NOT IN ('REJECTED', 'DELETED') ORDER BY memory_id",
        ids.join(", ")
    );
    let mut statement = db.prepare_cached(&sql).sql()?;
    let rows = statement.query_map([key.as_str()], |row| row.get::<_, [u8; 16]>(0)).sql()?;
    rows.map(|row| row.sql().map(id_from)).collect()
}

/// Records in all, of every owner and status.
///
/// # Errors
/// As the database says.
pub fn count(db: &Connection) -> Result<u64, Fault> {
    let mut statement = db.prepare_cached("SELECT coalesce(sum(records), 0) FROM owners").sql()?;
    statement.query_row([], |row| row.get(0)).sql()
}
