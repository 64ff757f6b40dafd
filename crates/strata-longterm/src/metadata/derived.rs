//! Which records say another one's words: near-duplicates that were merged into it, summaries and proposals that were made of it.

use super::Sql;
use super::row::{id_bytes, id_from};
use rusqlite::Connection;
use strata_core::{Fault, MemoryId};

/// Near-duplicates that were merged into a record (rule R11), also when they were forgotten since. What it superseded otherwise
/// is no such one: it said something else.
///
/// # Errors
/// As the database says.
pub fn merged_into(db: &Connection, id: MemoryId) -> Result<Vec<MemoryId>, Fault> {
    ids_of(
        db,
        "SELECT r.memory_id FROM records r WHERE r.superseded_by = ?1 AND r.status IN ('ARCHIVED', 'DELETED') AND EXISTS \
         (SELECT 1 FROM history h WHERE h.memory_id = r.memory_id AND h.rule = 'R11' AND h.to_status = 'ARCHIVED')",
        id,
    )
}

/// What [`made_from`] and [`is_made`] are about: summaries, and proposals that wait (rules F5, F10). What the user has confirmed
/// since is the user's own.
const MADE: &str = "FROM derivations d JOIN records r ON r.memory_id = d.derived_id WHERE d.derived_id <> d.member_id \
    AND (r.kind = 'SUMMARY' OR r.status IN ('CANDIDATE', 'DISPUTED', 'REJECTED'))";

/// Summaries and waiting proposals that were made of a record: their words are its words. A summary that was taken back or made
/// anew has set its members free and says their words still, until it is purged.
///
/// # Errors
/// As the database says.
pub fn made_from(db: &Connection, id: MemoryId) -> Result<Vec<MemoryId>, Fault> {
    let retired = "SELECT s.memory_id FROM records m JOIN records s ON s.owner_id = m.owner_id AND s.kind = 'SUMMARY' \
        JOIN summaries x ON x.memory_id = s.memory_id AND x.state = 'UNDONE' \
        WHERE m.memory_id = ?1 AND instr(s.derived_from, ?1) > 0";
    ids_of(db, &format!("SELECT r.memory_id {MADE} AND d.member_id = ?1 UNION {retired}"), id)
}

/// Whether a record is a summary or a waiting proposal.
///
/// # Errors
/// As the database says.
pub fn is_made(db: &Connection, id: MemoryId) -> Result<bool, Fault> {
    let summary = "SELECT r.memory_id FROM records r WHERE r.memory_id = ?1 AND r.kind = 'SUMMARY'";
    Ok(!ids_of(db, &format!("{summary} UNION SELECT r.memory_id {MADE} AND d.derived_id = ?1 LIMIT 1"), id)?.is_empty())
}

fn ids_of(db: &Connection, sql: &str, id: MemoryId) -> Result<Vec<MemoryId>, Fault> {
    let mut statement = db.prepare_cached(sql).sql()?;
    let rows = statement.query_map([id_bytes(id)], |row| row.get::<_, [u8; 16]>(0)).sql()?;
    rows.map(|row| row.sql().map(id_from)).collect()
}
