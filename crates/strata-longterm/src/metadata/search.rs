//! What recall, the indexes and the relay read and write: the narrow side of the schema. Whole records are mapped in
//! `row`.

use super::StoredOwner;
use super::row::{id_bytes, id_from};
use crate::index::{Held, IndexOp, IndexedRow, LegHit, Mark, RecordFilter, Upsert, agent_mark, cut_hits, marks};
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use strata_core::policy::quality::Counts;
use strata_core::policy::recall::{KeywordMatch, bm25};
use strata_core::record::{Kind, Status, Tier};
use strata_core::time::{DAY, HOUR};
use strata_core::{AgentId, MemoryId, Owner, TenantId, Timestamp, UserId};
use strata_runtime::sqlite::SqliteError;
use strata_text::Terms;
use strata_text::bm25::{AVERAGE_LENGTH, ceiling, document_weights, idf};
use uuid::Uuid;

/// Rows of `owners` of a user, every agent, with the agent's name; empty when the user has never written.
fn owners_of_user(connection: &Connection, owner: &Owner) -> Result<Vec<(i64, String)>, SqliteError> {
    let mut statement = connection.prepare_cached(
        "SELECT o.owner_id, o.agent FROM users u JOIN owners o ON o.user_id = u.user_id \
         WHERE u.tenant = ?1 AND u.user = ?2 ORDER BY o.owner_id",
    )?;
    let rows = statement.query_map((owner.tenant.as_str(), owner.user.as_str()), |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Records of a user, of every agent and status.
///
/// # Errors
/// [`SqliteError`].
pub fn count(connection: &Connection, owner: &Owner) -> Result<u64, SqliteError> {
    Ok(connection
        .prepare_cached(
            "SELECT coalesce(sum(o.records), 0) FROM users u JOIN owners o ON o.user_id = u.user_id \
             WHERE u.tenant = ?1 AND u.user = ?2",
        )?
        .query_row((owner.tenant.as_str(), owner.user.as_str()), |row| row.get(0))?)
}

/// Whether anything a search could find is left of a record.
///
/// # Errors
/// [`SqliteError`].
pub fn is_indexed(connection: &Connection, memory_id: MemoryId) -> Result<bool, SqliteError> {
    Ok(connection
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM vectors WHERE memory_id = ?1) \
             OR EXISTS (SELECT 1 FROM record_terms WHERE memory_id = ?1)",
        )?
        .query_row([id_bytes(memory_id)], |row| row.get(0))?)
}

/// What stands beside a record for the index that reads the rows: its vector of `model`, its terms, and whether both are its
/// owner's. Version 0: these parts have none.
///
/// # Errors
/// [`SqliteError`].
pub fn stored_parts(connection: &Connection, memory_id: MemoryId, model: Option<&str>) -> Result<Held, SqliteError> {
    let mut statement = connection.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM vectors WHERE memory_id = ?1 AND model = ?2), \
         EXISTS (SELECT 1 FROM record_terms WHERE memory_id = ?1), \
         NOT EXISTS (SELECT 1 FROM vectors v JOIN records r USING (memory_id) WHERE v.memory_id = ?1 AND v.owner_id <> r.owner_id) \
         AND NOT EXISTS (SELECT 1 FROM record_terms t JOIN records r USING (memory_id) \
         WHERE t.memory_id = ?1 AND t.owner_id <> r.owner_id)",
    )?;
    Ok(statement.query_row(params![id_bytes(memory_id), model.unwrap_or_default()], |row| {
        Ok(Held { version: 0, vector: row.get(0)?, terms: row.get(1)?, owned: row.get(2)?, faithful: true })
    })?)
}

/// Ids that have a vector or terms, ascending, the first `limit` after `after`.
///
/// # Errors
/// [`SqliteError`].
pub fn indexed_ids(connection: &Connection, after: Option<MemoryId>, limit: u32) -> Result<Vec<MemoryId>, SqliteError> {
    let mut statement = connection.prepare_cached(
        "SELECT memory_id FROM vectors WHERE memory_id > ?1 UNION SELECT memory_id FROM record_terms WHERE memory_id > ?1 \
         ORDER BY memory_id LIMIT ?2",
    )?;
    let after: Vec<u8> = after.map(|id| id_bytes(id).to_vec()).unwrap_or_default();
    let rows = statement.query_map(params![after, limit], |row| id(row, 0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Deletes vectors and terms of these ids where their record is gone.
///
/// # Errors
/// [`SqliteError`].
pub fn drop_orphans(connection: &Connection, ids: &[MemoryId]) -> Result<(), SqliteError> {
    for table in ["vectors", "record_terms"] {
        let mut statement = connection.prepare_cached(&format!(
            "DELETE FROM {table} WHERE memory_id = ?1 AND NOT EXISTS (SELECT 1 FROM records r WHERE r.memory_id = ?1)"
        ))?;
        for memory_id in ids {
            statement.execute([id_bytes(*memory_id)])?;
        }
    }
    Ok(())
}

fn id(row: &Row<'_>, column: usize) -> rusqlite::Result<MemoryId> {
    Ok(id_from(row.get(column)?))
}

fn word<T>(row: &Row<'_>, column: usize, parse: impl Fn(&str) -> Option<T>) -> rusqlite::Result<T> {
    let text = row.get_ref(column)?.as_str()?;
    parse(text).ok_or_else(|| rusqlite::Error::InvalidColumnType(column, String::new(), rusqlite::types::Type::Text))
}

fn time(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Timestamp>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(Timestamp))
}

/// Columns of [`indexed_row`], of `records r`.
const INDEXED: &str = "r.memory_id, r.kind, r.tier, r.status, r.version, r.event_time, r.expire_time, r.valid_from, \
     r.valid_to, r.tags, r.metadata, r.length, r.owner_id";

/// A row as the index knows it, and what its marks are made of.
struct Unmarked {
    row: IndexedRow,
    length: u32,
    tags: Vec<String>,
    metadata: BTreeMap<String, String>,
}

impl Unmarked {
    /// With its marks; the sessions are those of its evidence.
    fn marked(mut self, sessions: &BTreeSet<String>) -> IndexedRow {
        self.row.marks = marks(self.tags.iter().map(String::as_str), &self.metadata, sessions.iter().map(String::as_str));
        self.row
    }
}

fn indexed_row(row: &Row<'_>, agent: Mark) -> rusqlite::Result<Unmarked> {
    let json = |column: usize| row.get_ref(column)?.as_str().map_err(rusqlite::Error::from);
    let broken = |column| rusqlite::Error::InvalidColumnType(column, String::new(), rusqlite::types::Type::Text);
    let tags = match json(9)? {
        "[]" => Vec::new(),
        text => serde_json::from_str(text).map_err(|_| broken(9))?,
    };
    let metadata = match json(10)? {
        "{}" => BTreeMap::new(),
        text => serde_json::from_str(text).map_err(|_| broken(10))?,
    };
    let indexed = IndexedRow {
        memory_id: id(row, 0)?,
        agent,
        kind: word(row, 1, Kind::from_name)?,
        tier: word(row, 2, Tier::from_name)?,
        status: word(row, 3, Status::from_name)?,
        version: row.get(4)?,
        event_time: Timestamp(row.get(5)?),
        expire_time: time(row, 6)?,
        valid_from: time(row, 7)?,
        valid_to: time(row, 8)?,
        marks: Vec::new(),
    };
    Ok(Unmarked { row: indexed, length: row.get(11)?, tags, metadata })
}

fn weights(counts: Vec<(u32, u32)>, length: u32) -> Vec<(u32, f32)> {
    document_weights(&Terms { counts, length }, AVERAGE_LENGTH)
}

/// A vector as it is stored: f32, little endian.
#[must_use]
pub fn vector_bytes(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// A stored vector.
pub(super) fn vector_of(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect()
}

/// Reads everything the exact index keeps of a user: every record of every agent, with its vector when it is of `model`.
///
/// # Errors
/// [`SqliteError`].
pub fn each_of_user(
    connection: &Connection,
    owner: &Owner,
    model: Option<&str>,
    mut take: impl FnMut(Upsert),
) -> Result<(), SqliteError> {
    let user_level = owner.user_level();
    for (owner_id, agent) in owners_of_user(connection, owner)? {
        let owner = Owner { agent: AgentId::new(agent).ok(), ..user_level.clone() };
        let mut terms: HashMap<MemoryId, Vec<(u32, u32)>> = HashMap::new();
        let mut statement = connection.prepare_cached("SELECT memory_id, term, tf FROM record_terms WHERE owner_id = ?1")?;
        let mut rows = statement.query([owner_id])?;
        while let Some(row) = rows.next()? {
            // In order of the key: by term.
            terms.entry(id(row, 0)?).or_default().push((row.get(1)?, row.get(2)?));
        }
        let mut sessions: HashMap<MemoryId, BTreeSet<String>> = HashMap::new();
        let mut statement = connection
            .prepare_cached("SELECT memory_id, session_id FROM evidence WHERE owner_id = ?1 AND session_id IS NOT NULL")?;
        let mut rows = statement.query([owner_id])?;
        while let Some(row) = rows.next()? {
            sessions.entry(id(row, 0)?).or_default().insert(row.get(1)?);
        }
        let mut statement = connection.prepare_cached(&format!(
            "SELECT {INDEXED}, v.vector FROM records r LEFT JOIN vectors v ON v.memory_id = r.memory_id AND v.model = ?2 \
             WHERE r.owner_id = ?1"
        ))?;
        let mut rows = statement.query(params![owner_id, model.unwrap_or_default()])?;
        while let Some(row) = rows.next()? {
            let found = indexed_row(row, agent_mark(owner.agent.as_ref()))?;
            let (memory_id, length) = (found.row.memory_id, found.length);
            let indexed = found.marked(&sessions.remove(&memory_id).unwrap_or_default());
            let vector = row.get_ref(13)?.as_blob_or_null().map_err(rusqlite::Error::from)?.map(vector_of);
            let terms = weights(terms.remove(&memory_id).unwrap_or_default(), length);
            take(Upsert { owner: owner.clone(), row: indexed, vector, terms });
        }
    }
    Ok(())
}

/// One record as the index takes it; none when it is gone.
///
/// # Errors
/// [`SqliteError`].
pub fn upsert_of(connection: &Connection, memory_id: MemoryId, model: Option<&str>) -> Result<Option<Upsert>, SqliteError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {INDEXED}, v.vector, u.tenant, u.user, o.agent FROM records r \
         JOIN users u ON u.user_id = r.user_id JOIN owners o ON o.owner_id = r.owner_id \
         LEFT JOIN vectors v ON v.memory_id = r.memory_id AND v.model = ?2 WHERE r.memory_id = ?1"
    ))?;
    let mut rows = statement.query(params![id_bytes(memory_id), model.unwrap_or_default()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let Some(owner) = stored_owner(row.get(14)?, row.get(15)?, row.get(16)?) else { return Err(SqliteError::Other) };
    let found = indexed_row(row, agent_mark(owner.agent.as_ref()))?;
    let length = found.length;
    let owner_id: i64 = row.get(12)?;
    let vector = row.get_ref(13)?.as_blob_or_null().map_err(rusqlite::Error::from)?.map(vector_of);
    let indexed = found.marked(&sessions_of(connection, memory_id)?);
    let counts = terms_of(connection, owner_id, memory_id)?;
    Ok(Some(Upsert { owner, row: indexed, vector, terms: weights(counts, length) }))
}

fn stored_owner(tenant: String, user: String, agent: String) -> Option<Owner> {
    Some(Owner {
        tenant: TenantId::new(tenant).ok()?,
        user: UserId::new(user).ok()?,
        agent: if agent.is_empty() { None } else { Some(AgentId::new(agent).ok()?) },
    })
}

fn sessions_of(connection: &Connection, memory_id: MemoryId) -> Result<BTreeSet<String>, SqliteError> {
    let mut statement =
        connection.prepare_cached("SELECT session_id FROM evidence WHERE memory_id = ?1 AND session_id IS NOT NULL")?;
    let rows = statement.query_map([id_bytes(memory_id)], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn terms_of(connection: &Connection, owner_id: i64, memory_id: MemoryId) -> Result<Vec<(u32, u32)>, SqliteError> {
    let mut statement =
        connection.prepare_cached("SELECT term, tf FROM record_terms WHERE memory_id = ?1 AND owner_id = ?2 ORDER BY term")?;
    let rows = statement.query_map(params![id_bytes(memory_id), owner_id], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The owner's IDF of a query (rule R3).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueryWeights {
    /// Records of the visible owners: the n of the IDF.
    pub records: u64,
    /// Weight of each term that some visible record holds, ascending by term.
    pub known: Vec<(u32, f32)>,
    /// IDF mass of the whole query; a term nobody used weighs as the owner's rarest.
    pub mass: f64,
    /// Largest BM25 the query could get.
    pub ceiling: f64,
}

/// Weighs the terms of a query by the documents of the visible owners, of nobody else.
///
/// # Errors
/// [`SqliteError`].
pub fn query_weights(connection: &Connection, owner_ids: &[i64], terms: &[(u32, u32)]) -> Result<QueryWeights, SqliteError> {
    let mut of_owner = connection.prepare_cached("SELECT records FROM owners WHERE owner_id = ?1")?;
    let mut of_term = connection.prepare_cached("SELECT df FROM owner_terms WHERE owner_id = ?1 AND term = ?2")?;
    let mut records = 0_u64;
    for owner in owner_ids {
        records += of_owner.query_row([owner], |row| row.get::<_, u64>(0)).optional()?.unwrap_or_default();
    }
    let mut known = Vec::new();
    let mut all = Vec::new();
    for (term, _) in terms {
        let mut documents = 0_u64;
        for owner in owner_ids {
            documents += of_term.query_row((owner, term), |row| row.get::<_, u64>(0)).optional()?.unwrap_or_default();
        }
        // The rarest term of an owner stands in one record.
        let weight = idf(records.max(1), documents.max(1));
        all.push(weight);
        if documents > 0 {
            known.push((*term, weight));
        }
    }
    let mass = all.iter().map(|w| f64::from(*w)).sum();
    Ok(QueryWeights { records, known, mass, ceiling: f64::from(ceiling(all)) })
}

/// What scoring needs of a record: everything but what is read in the end.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// What filters it; marks are filled only when asked for.
    pub row: IndexedRow,
    /// Row of `owners`.
    pub owner_id: i64,
    /// Whether its owner is an agent.
    pub of_agent: bool,
    /// Slot.
    pub key: Option<String>,
    /// Values of the slot live side by side.
    pub is_set: bool,
    /// JSON of the value.
    pub value: Option<String>,
    /// 0..1.
    pub confidence: f64,
    /// 1..5.
    pub importance: u8,
    /// Times cited.
    pub cite_count: u64,
    /// Last citation.
    pub last_cited_at: Option<Timestamp>,
    /// The older ACTIVE record it may replace (rule K0).
    pub conflicts_with: Option<MemoryId>,
    /// Words of the indexed text.
    pub length: u32,
}

const CANDIDATE: &str = "r.key, r.is_set, r.value, r.confidence, r.importance, r.cite_count, r.last_cited_at, \
     r.conflicts_with, o.agent";

fn candidate_of(connection: &Connection, row: &Row<'_>, with_marks: bool) -> Result<Candidate, SqliteError> {
    let agent: String = row.get(21)?;
    let agent = AgentId::new(agent).ok();
    let found = indexed_row(row, agent_mark(agent.as_ref()))?;
    let length = found.length;
    let indexed = if with_marks {
        let sessions = sessions_of(connection, found.row.memory_id)?;
        found.marked(&sessions)
    } else {
        found.row
    };
    Ok(Candidate {
        row: indexed,
        owner_id: row.get(12)?,
        of_agent: agent.is_some(),
        key: row.get(13)?,
        is_set: row.get(14)?,
        value: row.get(15)?,
        confidence: row.get(16)?,
        importance: row.get(17)?,
        cite_count: row.get(18)?,
        last_cited_at: time(row, 19)?,
        conflicts_with: row.get::<_, Option<[u8; 16]>>(20)?.map(id_from),
        length,
    })
}

/// A record as the truth has it now, if a visible owner has it and the filter lets it through: the check that every hit
/// passes, whatever an index said (rule R1).
///
/// # Errors
/// [`SqliteError`].
pub fn candidate(
    connection: &Connection,
    owner_ids: &[i64],
    memory_id: MemoryId,
    filter: &RecordFilter,
) -> Result<Option<Candidate>, SqliteError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {INDEXED}, {CANDIDATE} FROM records r JOIN owners o ON o.owner_id = r.owner_id WHERE r.memory_id = ?1"
    ))?;
    let mut rows = statement.query([id_bytes(memory_id)])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let found = candidate_of(connection, row, !filter.marks.is_empty())?;
    Ok(Some(found).filter(|found| owner_ids.contains(&found.owner_id) && filter.admits(&found.row)))
}

/// Records in force that may replace this one (rule K0), newest first, at most a few.
///
/// # Errors
/// [`SqliteError`].
pub fn replacing(
    connection: &Connection,
    owner_ids: &[i64],
    memory_id: MemoryId,
    filter: &RecordFilter,
) -> Result<Vec<Candidate>, SqliteError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {INDEXED}, {CANDIDATE} FROM records r JOIN owners o ON o.owner_id = r.owner_id \
         WHERE r.conflicts_with = ?1 AND r.conflicts_with IS NOT NULL AND r.status = 'ACTIVE' \
         ORDER BY r.event_time DESC, r.memory_id DESC LIMIT {REPLACING}"
    ))?;
    let mut rows = statement.query([id_bytes(memory_id)])?;
    let mut out = Vec::new();
    while let Some(row) = rows.next()? {
        let found = candidate_of(connection, row, !filter.marks.is_empty())?;
        if owner_ids.contains(&found.owner_id) && filter.admits(&found.row) {
            out.push(found);
        }
    }
    Ok(out)
}

/// Records of a key at the visible owners that the filter lets through.
///
/// # Errors
/// [`SqliteError`].
pub fn of_key(
    connection: &Connection,
    owner_ids: &[i64],
    key: &str,
    filter: &RecordFilter,
) -> Result<Vec<Candidate>, SqliteError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {INDEXED}, {CANDIDATE} FROM records r JOIN owners o ON o.owner_id = r.owner_id \
         WHERE r.owner_id = ?1 AND r.key = ?2 ORDER BY r.event_time DESC, r.memory_id DESC LIMIT {SLOT_RECORDS}"
    ))?;
    let mut out = Vec::new();
    for owner_id in owner_ids {
        let mut rows = statement.query(params![owner_id, key])?;
        while let Some(row) = rows.next()? {
            let found = candidate_of(connection, row, !filter.marks.is_empty())?;
            if filter.admits(&found.row) {
                out.push(found);
            }
        }
    }
    Ok(out)
}

/// Records of one slot and owner that an exact key lookup reads at most, newest first.
const SLOT_RECORDS: u32 = 256;
/// Records that are looked at as possible successors of one: the newest tells.
const REPLACING: usize = 2;

/// Records of the visible owners that the index has still to be told of, newest first.
///
/// # Errors
/// [`SqliteError`].
pub fn pending(connection: &Connection, owner_ids: &[i64], limit: usize) -> Result<Vec<MemoryId>, SqliteError> {
    let mut statement = connection
        .prepare_cached("SELECT memory_id FROM outbox WHERE owner_id = ?1 AND op = 'UPSERT' ORDER BY seq DESC LIMIT ?2")?;
    let mut seen = BTreeSet::new();
    let mut out = Vec::new();
    for owner_id in owner_ids {
        let mut rows = statement.query(params![owner_id, i64::try_from(limit).unwrap_or(i64::MAX)])?;
        while let Some(row) = rows.next()? {
            let memory_id = id(row, 0)?;
            if out.len() < limit && seen.insert(memory_id) {
                out.push(memory_id);
            }
        }
    }
    Ok(out)
}

/// BM25 and matched IDF mass of one record: what the keyword leg would have said, from the truth.
///
/// # Errors
/// [`SqliteError`].
pub fn keyword_match(
    connection: &Connection,
    owner_id: i64,
    memory_id: MemoryId,
    length: u32,
    query: &[(u32, f32)],
) -> Result<KeywordMatch, SqliteError> {
    let mut statement =
        connection.prepare_cached("SELECT tf FROM record_terms WHERE owner_id = ?1 AND term = ?2 AND memory_id = ?3")?;
    let mut counts = Vec::new();
    for (term, _) in query {
        if let Some(count) = statement.query_row(params![owner_id, term, id_bytes(memory_id)], |row| row.get(0)).optional()? {
            counts.push((*term, count));
        }
    }
    Ok(bm25(query, &weights(counts, length)))
}

/// The keyword leg from SQLite alone, for when the index does not answer (rule D2): best first, at most as many as its limit
/// says. With a second filter also what that one lets through and the first does not.
///
/// # Errors
/// [`SqliteError`].
pub fn keyword_legs(
    connection: &Connection,
    owner_ids: &[i64],
    query: &[(u32, f32)],
    (filter, limit): (&RecordFilter, u32),
    (second, second_limit): (Option<&RecordFilter>, u32),
) -> Result<(Vec<LegHit>, Vec<LegHit>), SqliteError> {
    let mut statement = connection.prepare_cached(
        "SELECT t.memory_id, t.tf, r.length, r.version FROM record_terms t JOIN records r ON r.memory_id = t.memory_id \
         WHERE t.owner_id = ?1 AND t.term = ?2",
    )?;
    let mut scores: HashMap<MemoryId, (u64, f32)> = HashMap::new();
    for owner_id in owner_ids {
        for (term, idf) in query {
            let mut rows = statement.query(params![owner_id, term])?;
            while let Some(row) = rows.next()? {
                let weight = weights(vec![(*term, row.get(1)?)], row.get(2)?).first().map_or(0.0, |(_, weight)| *weight);
                scores.entry(id(row, 0)?).or_insert((row.get(3)?, 0.0)).1 += idf * weight;
            }
        }
    }
    let mut hits: Vec<LegHit> =
        scores.into_iter().map(|(memory_id, (version, score))| LegHit { memory_id, version, score }).collect();
    let all = hits.len();
    cut_hits(&mut hits, all);
    let (mut out, mut others) = (Vec::new(), Vec::new());
    for hit in hits {
        if out.len() == limit as usize {
            break;
        }
        if candidate(connection, owner_ids, hit.memory_id, filter)?.is_some() {
            out.push(hit);
        } else if let Some(second) = second.filter(|_| others.len() < second_limit as usize)
            && candidate(connection, owner_ids, hit.memory_id, second)?.is_some()
        {
            others.push(hit);
        }
    }
    Ok((out, others))
}

/// Whether one of the owners has a superseded record.
///
/// # Errors
/// [`SqliteError`].
pub fn any_superseded(connection: &Connection, owner_ids: &[i64]) -> Result<bool, SqliteError> {
    let mut statement =
        connection.prepare_cached("SELECT EXISTS (SELECT 1 FROM records WHERE owner_id = ?1 AND status = 'SUPERSEDED')")?;
    for owner_id in owner_ids {
        if statement.query_row([owner_id], |row| row.get(0))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Steps that a chain of supersessions is followed: a value that changes daily, for some years.
const CHAIN: u32 = 2_048;

/// What stands today in the place of a superseded record: the end of its chain, whatever its status.
///
/// # Errors
/// [`SqliteError`].
pub fn successor(connection: &Connection, memory_id: MemoryId) -> Result<Option<MemoryId>, SqliteError> {
    let mut statement = connection.prepare_cached(&format!(
        "WITH RECURSIVE chain(id, step) AS (SELECT superseded_by, 1 FROM records WHERE memory_id = ?1 \
         UNION ALL SELECT r.superseded_by, step + 1 FROM chain JOIN records r ON r.memory_id = chain.id \
         WHERE r.superseded_by IS NOT NULL AND step < {CHAIN}) \
         SELECT id FROM chain WHERE id IS NOT NULL ORDER BY step DESC LIMIT 1"
    ))?;
    Ok(statement.query_row([id_bytes(memory_id)], |row| row.get::<_, [u8; 16]>(0)).optional()?.map(id_from))
}

/// The vector of a record in a space, if it has one.
///
/// # Errors
/// [`SqliteError`].
pub fn vector(connection: &Connection, memory_id: MemoryId, model: &str) -> Result<Option<Vec<f32>>, SqliteError> {
    let mut statement = connection.prepare_cached("SELECT vector FROM vectors WHERE memory_id = ?1 AND model = ?2")?;
    let found = statement.query_row(params![id_bytes(memory_id), model], |row| {
        Ok(vector_of(row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?))
    });
    Ok(found.optional()?)
}

/// The sentence of a record.
///
/// # Errors
/// [`SqliteError`].
pub fn content(connection: &Connection, memory_id: MemoryId) -> Result<Option<String>, SqliteError> {
    let mut statement = connection.prepare_cached("SELECT content FROM records WHERE memory_id = ?1")?;
    Ok(statement.query_row([id_bytes(memory_id)], |row| row.get(0)).optional()?)
}

/// One change to tell the index of.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Record.
    pub memory_id: MemoryId,
    /// What to do; none when the record and its owner are gone and nobody can say whose it was.
    pub op: Option<IndexOp>,
    /// The sentence to embed, when the record has no vector in the space.
    pub content: Option<String>,
}

/// Last row of each tenant that was read: each tenant's rows are told of in their order.
pub type Lanes = BTreeMap<String, i64>;

/// Rows of the outbox that are told of together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// Changes, one a record, in the order of their last row.
    pub changes: Vec<Change>,
    /// Last row of each tenant in the batch; rows of the tenant up to it are done when the changes are.
    pub lanes: Lanes,
    /// Rows of the outbox the batch stands for.
    pub rows: usize,
    /// Tenants that have rows, as far as one look goes; the next look begins after the last of them.
    pub last_tenant: Option<String>,
}

/// Tenants of one batch: each gets at least some rows of it.
const LANES: usize = 32;

/// Tenants with rows in the outbox, after `after` and then from the first again, each once.
fn tenants_after(connection: &Connection, after: Option<&str>) -> Result<Vec<String>, SqliteError> {
    let mut later = connection.prepare_cached("SELECT tenant FROM outbox WHERE tenant > ?1 ORDER BY tenant LIMIT 1")?;
    let mut first = connection.prepare_cached("SELECT tenant FROM outbox ORDER BY tenant LIMIT 1")?;
    let mut out: Vec<String> = Vec::new();
    let mut at = after.map(str::to_owned);
    let mut wrapped = after.is_none();
    while out.len() < LANES {
        let next: Option<String> = match &at {
            Some(at) => later.query_row([at], |row| row.get(0)).optional()?,
            None => first.query_row([], |row| row.get(0)).optional()?,
        };
        match next {
            Some(tenant) if out.first() == Some(&tenant) || (wrapped && after.is_some_and(|after| *tenant > *after)) => break,
            Some(tenant) => {
                at = Some(tenant.clone());
                out.push(tenant);
            }
            None if wrapped => break,
            None => (wrapped, at) = (true, None),
        }
    }
    Ok(out)
}

/// Reads rows of the outbox with what they are about: of each tenant the oldest after its row in `after`, each an equal part of
/// `limit`, and what the others leave of theirs; so a backlog of one tenant delays no other. Looks at tenants from
/// `last_tenant` on, in turn.
///
/// # Errors
/// [`SqliteError`].
pub fn outbox_batch(
    connection: &Connection,
    after: &Lanes,
    last_tenant: Option<&str>,
    limit: usize,
    model: Option<&str>,
) -> Result<Batch, SqliteError> {
    let tenants = tenants_after(connection, last_tenant)?;
    let mut statement = connection.prepare_cached(
        "SELECT x.seq, x.memory_id, x.op, u.tenant, u.user, o.agent FROM outbox x \
         LEFT JOIN owners o ON o.owner_id = x.owner_id LEFT JOIN users u ON u.user_id = o.user_id \
         WHERE x.tenant = ?1 AND x.seq > ?2 ORDER BY x.seq LIMIT ?3",
    )?;
    let mut batch = Batch { last_tenant: tenants.last().cloned(), ..Batch::default() };
    let mut last: BTreeMap<MemoryId, (i64, bool, Option<Owner>)> = BTreeMap::new();
    let mut wanting = tenants;
    while !wanting.is_empty() && batch.rows < limit {
        let share = (limit - batch.rows).div_ceil(wanting.len());
        let mut more = Vec::new();
        for tenant in wanting {
            let share = share.min(limit - batch.rows);
            let from = batch.lanes.get(&tenant).or_else(|| after.get(&tenant)).copied().unwrap_or(0);
            let mut rows = statement.query(params![tenant, from, i64::try_from(share).unwrap_or(i64::MAX)])?;
            let (mut read, mut through) = (0, from);
            while let Some(row) = rows.next()? {
                let owner = match (
                    row.get::<_, Option<String>>(3)?,
                    row.get::<_, Option<String>>(4)?,
                    row.get::<_, Option<String>>(5)?,
                ) {
                    (Some(tenant), Some(user), Some(agent)) => stored_owner(tenant, user, agent),
                    (_, _, _) => None,
                };
                through = row.get(0)?;
                read += 1;
                last.insert(id(row, 1)?, (through, row.get::<_, String>(2)? == "DELETE", owner));
            }
            if read > 0 {
                batch.rows += read;
                batch.lanes.insert(tenant.clone(), through);
            }
            if read == share && share > 0 {
                more.push(tenant);
            }
        }
        wanting = more;
    }
    let mut ordered: Vec<_> = last.into_iter().collect();
    ordered.sort_by_key(|(_, (seq, ..))| *seq);
    for (memory_id, (_, delete, owner)) in ordered {
        batch.changes.push(change_of(connection, memory_id, delete, owner, model)?);
    }
    Ok(batch)
}

fn change_of(
    connection: &Connection,
    memory_id: MemoryId,
    delete: bool,
    owner: Option<Owner>,
    model: Option<&str>,
) -> Result<Change, SqliteError> {
    let upsert = if delete { None } else { upsert_of(connection, memory_id, model)? };
    let Some(upsert) = upsert else {
        // Deleted, or gone before the index heard of it.
        return Ok(Change { memory_id, op: owner.map(|owner| IndexOp::Delete { owner, memory_id }), content: None });
    };
    let content = if upsert.vector.is_none() && model.is_some() { content(connection, memory_id)? } else { None };
    Ok(Change { memory_id, op: Some(IndexOp::Upsert(Box::new(upsert))), content })
}

/// The next `limit` records after `after`, in order of their ids, as changes: the walk of a reindex.
///
/// # Errors
/// [`SqliteError`].
pub fn walk(
    connection: &Connection,
    after: Option<MemoryId>,
    limit: usize,
    model: Option<&str>,
) -> Result<Vec<Change>, SqliteError> {
    let mut statement =
        connection.prepare_cached("SELECT memory_id FROM records WHERE memory_id > ?1 ORDER BY memory_id LIMIT ?2")?;
    let after: Vec<u8> = after.map(|id| id_bytes(id).to_vec()).unwrap_or_default();
    let rows = statement.query_map(params![after, i64::try_from(limit).unwrap_or(i64::MAX)], |row| id(row, 0))?;
    let ids = rows.collect::<Result<Vec<_>, _>>()?;
    ids.into_iter().map(|memory_id| change_of(connection, memory_id, false, None, model)).collect()
}

/// A record as the truth has it, for comparison with the index.
#[derive(Clone, Debug, PartialEq)]
pub struct RowState {
    /// What the index was or will be told.
    pub upsert: Upsert,
    /// Row of `owners`.
    pub owner: StoredOwner,
    /// Whether its vector was put into the index's space.
    pub embedded: bool,
    /// Whether it has words, so that it must have terms.
    pub has_words: bool,
    /// Whether the index has still to be told of it.
    pub pending: bool,
}

/// Records as [`RowState`], in order of their ids: the first `limit` after `after`.
///
/// # Errors
/// [`SqliteError`].
pub fn row_states(
    connection: &Connection,
    after: Option<MemoryId>,
    limit: u32,
    model: Option<&str>,
) -> Result<Vec<RowState>, SqliteError> {
    let mut statement =
        connection.prepare_cached("SELECT memory_id FROM records WHERE memory_id > ?1 ORDER BY memory_id LIMIT ?2")?;
    let after: Vec<u8> = after.map(|id| id_bytes(id).to_vec()).unwrap_or_default();
    let ids = statement.query_map(params![after, limit], |row| id(row, 0))?.collect::<Result<Vec<_>, _>>()?;
    let states = ids.into_iter().map(|memory_id| row_state(connection, memory_id, model));
    states.filter_map(Result::transpose).collect()
}

/// One record as [`RowState`]; none when it is gone.
///
/// # Errors
/// [`SqliteError`].
pub fn row_state(connection: &Connection, memory_id: MemoryId, model: Option<&str>) -> Result<Option<RowState>, SqliteError> {
    let Some(upsert) = upsert_of(connection, memory_id, model)? else { return Ok(None) };
    let mut statement = connection.prepare_cached(
        "SELECT owner_id, user_id, embedding_model IS ?2, length > 0, \
         EXISTS (SELECT 1 FROM outbox x WHERE x.memory_id = r.memory_id) FROM records r WHERE memory_id = ?1",
    )?;
    let state = statement.query_row(params![id_bytes(memory_id), model], |row| {
        Ok(RowState {
            owner: StoredOwner { owner_id: row.get(0)?, user_id: row.get(1)? },
            embedded: model.is_some() && row.get(2)?,
            has_words: row.get(3)?,
            pending: row.get(4)?,
            upsert,
        })
    });
    Ok(Some(state?))
}

/// Which of these ids belong to no record and to no change under way.
///
/// # Errors
/// [`SqliteError`].
pub fn strangers(connection: &Connection, ids: &[MemoryId]) -> Result<Vec<MemoryId>, SqliteError> {
    let mut known = connection.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM records WHERE memory_id = ?1) OR EXISTS (SELECT 1 FROM outbox WHERE memory_id = ?1)",
    )?;
    let mut out = Vec::new();
    for memory_id in ids {
        if !known.query_row([id_bytes(*memory_id)], |row| row.get::<_, bool>(0))? {
            out.push(*memory_id);
        }
    }
    Ok(out)
}

/// Makes what stands beside a record whole again, from the record itself: its terms, counted anew for its owner, and whose
/// its vector is; and notes that its vector has to be looked at again.
///
/// # Errors
/// [`SqliteError`].
pub fn mend(connection: &Connection, memory_id: MemoryId, owner: StoredOwner, terms: &Terms) -> Result<(), SqliteError> {
    let key = id_bytes(memory_id);
    let mut strangers = connection.prepare_cached("SELECT DISTINCT owner_id FROM record_terms WHERE memory_id = ?1")?;
    let mut counted: BTreeSet<i64> = strangers.query_map([key], |row| row.get(0))?.collect::<Result<_, _>>()?;
    counted.insert(owner.owner_id);
    connection.prepare_cached("DELETE FROM record_terms WHERE memory_id = ?1")?.execute([key])?;
    let mut put =
        connection.prepare_cached("INSERT INTO record_terms (owner_id, term, memory_id, tf) VALUES (?1, ?2, ?3, ?4)")?;
    for (term, count) in &terms.counts {
        put.execute(params![owner.owner_id, term, key, count])?;
    }
    // The triggers count what is added and removed, not what was changed behind their back.
    for owner_id in counted {
        connection.prepare_cached("DELETE FROM owner_terms WHERE owner_id = ?1")?.execute([owner_id])?;
        connection
            .prepare_cached(
                "INSERT INTO owner_terms (owner_id, term, df) \
                 SELECT owner_id, term, count(*) FROM record_terms WHERE owner_id = ?1 GROUP BY term",
            )?
            .execute([owner_id])?;
    }
    connection
        .prepare_cached("UPDATE vectors SET owner_id = ?2 WHERE memory_id = ?1 AND owner_id <> ?2")?
        .execute(params![key, owner.owner_id])?;
    connection.prepare_cached("UPDATE records SET embedding_model = NULL WHERE memory_id = ?1")?.execute([key])?;
    Ok(())
}

/// Records up to `after`, and records in all: how far a walk is.
///
/// # Errors
/// [`SqliteError`].
pub fn walked(connection: &Connection, after: Option<MemoryId>) -> Result<(u64, u64), SqliteError> {
    let after: Vec<u8> = after.map(|id| id_bytes(id).to_vec()).unwrap_or_default();
    let mut statement = connection
        .prepare_cached("SELECT (SELECT count(*) FROM records WHERE memory_id <= ?1), (SELECT count(*) FROM records)")?;
    Ok(statement.query_row([after], |row| Ok((row.get(0)?, row.get(1)?)))?)
}

/// Stores vectors of a space; records that are gone meanwhile are skipped.
///
/// # Errors
/// [`SqliteError`].
pub fn put_vectors(connection: &Connection, model: &str, vectors: &[(MemoryId, Vec<f32>)]) -> Result<(), SqliteError> {
    let mut put = connection.prepare_cached(
        "INSERT INTO vectors (memory_id, owner_id, model, version, vector) \
         SELECT memory_id, owner_id, ?2, version, ?3 FROM records WHERE memory_id = ?1 \
         ON CONFLICT (memory_id) DO UPDATE SET model = excluded.model, version = excluded.version, vector = excluded.vector",
    )?;
    for (memory_id, vector) in vectors {
        put.execute(params![id_bytes(*memory_id), model, vector_bytes(vector)])?;
    }
    Ok(())
}

/// Notes on records that their vector is in the index; no new version: it is no change of the record.
///
/// # Errors
/// [`SqliteError`].
pub fn mark_embedded(connection: &Connection, model: &str, ids: &[MemoryId]) -> Result<(), SqliteError> {
    let mut mark = connection.prepare_cached(
        "UPDATE records SET embedding_model = ?2 WHERE memory_id = ?1 AND embedding_model IS NOT ?2 \
         AND EXISTS (SELECT 1 FROM vectors WHERE memory_id = ?1 AND model = ?2)",
    )?;
    for memory_id in ids {
        mark.execute(params![id_bytes(*memory_id), model])?;
    }
    Ok(())
}

/// Takes rows of the outbox off, of each tenant up to its row in `lanes`.
///
/// # Errors
/// [`SqliteError`].
pub fn acknowledge(connection: &Connection, lanes: &Lanes) -> Result<(), SqliteError> {
    let mut delete = connection.prepare_cached("DELETE FROM outbox WHERE tenant = ?1 AND seq <= ?2")?;
    for (tenant, last_seq) in lanes {
        delete.execute(params![tenant, last_seq])?;
    }
    Ok(())
}

/// Rows of the outbox and the time of the oldest.
///
/// # Errors
/// [`SqliteError`].
pub fn outbox_state(connection: &Connection) -> Result<(u64, Option<Timestamp>), SqliteError> {
    let mut statement = connection.prepare_cached("SELECT count(*), min(time) FROM outbox")?;
    Ok(statement.query_row([], |row| Ok((row.get(0)?, time(row, 1)?)))?)
}

/// Whether there is no record at all.
///
/// # Errors
/// [`SqliteError`].
pub fn is_empty(connection: &Connection) -> Result<bool, SqliteError> {
    Ok(connection.query_row("SELECT NOT EXISTS (SELECT 1 FROM records)", [], |row| row.get(0))?)
}

/// A value of `meta`.
///
/// # Errors
/// [`SqliteError`].
pub fn meta(connection: &Connection, name: &str) -> Result<Option<String>, SqliteError> {
    let mut statement = connection.prepare_cached("SELECT value FROM meta WHERE name = ?1")?;
    Ok(statement.query_row([name], |row| row.get(0)).optional()?)
}

/// Sets a value of `meta`, or takes it away.
///
/// # Errors
/// [`SqliteError`].
pub fn set_meta(connection: &Connection, name: &str, value: Option<&str>) -> Result<(), SqliteError> {
    match value {
        Some(value) => connection
            .prepare_cached("INSERT INTO meta (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2")?
            .execute([name, value])?,
        None => connection.prepare_cached("DELETE FROM meta WHERE name = ?1")?.execute([name])?,
    };
    Ok(())
}

/// What was recalled, for counts and for [`crate::recall`]'s ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recalled {
    /// Id of the recall.
    pub recall_id: Uuid,
    /// The user.
    pub user_id: i64,
    /// When.
    pub time: Timestamp,
    /// What was returned.
    pub ids: Vec<MemoryId>,
}

/// Something to count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Tenant of the caller.
    pub tenant: String,
    /// A recall with its records.
    pub recalled: Option<Recalled>,
    /// Tokens of an assembled context: of memory, and in all.
    pub context: Option<(u64, u64)>,
    /// When.
    pub time: Timestamp,
}

/// Counts recalls and keeps their ids for a day.
///
/// # Errors
/// [`SqliteError`].
pub fn record_recalls(connection: &Connection, all: &[Counted]) -> Result<(), SqliteError> {
    let mut keep = connection
        .prepare_cached("INSERT OR IGNORE INTO recalls (recall_id, user_id, time, memory_ids) VALUES (?1, ?2, ?3, ?4)")?;
    let mut count = connection.prepare_cached(
        "UPDATE records SET recall_count = recall_count + 1, last_recalled_at = max(coalesce(last_recalled_at, ?2), ?2) \
         WHERE memory_id = ?1",
    )?;
    let mut hours: BTreeMap<(&str, i64), (Timestamp, Counts)> = BTreeMap::new();
    for counted in all {
        let hour = counted.time.micros().div_euclid(HOUR);
        let (_, sums) = hours.entry((counted.tenant.as_str(), hour)).or_insert((counted.time, Counts::default()));
        if let Some((memory, request)) = counted.context {
            sums.contexts += 1;
            sums.memory_tokens += memory;
            sums.request_tokens += request;
        }
        let Some(recall) = counted.recalled.as_ref().filter(|recall| !recall.ids.is_empty()) else { continue };
        let ids: Vec<u8> = recall.ids.iter().flat_map(|memory_id| id_bytes(*memory_id)).collect();
        if keep.execute(params![recall.recall_id.as_bytes(), recall.user_id, recall.time.micros(), ids])? == 0 {
            continue;
        }
        sums.recalled += recall.ids.len() as u64;
        for memory_id in &recall.ids {
            count.execute(params![id_bytes(*memory_id), recall.time.micros()])?;
        }
    }
    for ((tenant, _), (time, sums)) in hours {
        super::quality::add(connection, tenant, time, &sums)?;
    }
    if let Some(last) = all.iter().map(|counted| counted.time).max() {
        connection
            .prepare_cached(
                "DELETE FROM recalls WHERE recall_id IN (SELECT recall_id FROM recalls WHERE time < ?1 ORDER BY time LIMIT 512)",
            )?
            .execute([last.plus(-DAY).micros()])?;
    }
    Ok(())
}

/// Records of the visible owners with at least `citations` citations in all, the last one since `since`, most cited
/// first: who may be recently frequent (rule R10).
///
/// # Errors
/// [`SqliteError`].
pub fn cited_since(
    connection: &Connection,
    owner_ids: &[i64],
    citations: u32,
    since: Timestamp,
) -> Result<Vec<(MemoryId, u32, Timestamp)>, SqliteError> {
    let mut statement = connection.prepare_cached(
        "SELECT memory_id, cite_count, last_cited_at FROM records \
         WHERE owner_id = ?1 AND last_cited_at >= ?2 AND cite_count >= ?3 ORDER BY last_cited_at DESC LIMIT 64",
    )?;
    let mut out = Vec::new();
    for owner_id in owner_ids {
        let rows = statement.query_map(params![owner_id, since.micros(), citations], |row| {
            Ok((id(row, 0)?, row.get(1)?, Timestamp(row.get(2)?)))
        })?;
        for row in rows {
            out.push(row?);
        }
    }
    Ok(out)
}
