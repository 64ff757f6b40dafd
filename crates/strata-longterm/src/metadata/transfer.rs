//! Records out of the file, whole, and into it, whole. Reads are filtered to visible owners like every read; what comes in
//! comes in through [`insert::readmit`](super::insert::readmit).

use super::query::{STATUS_NOW, at, history};
use super::row::{COLUMNS, FROM, StoredRecord, id_bytes};
use super::{Sql, StoredOwner, Visible, corrupt, owner};
use rusqlite::{Connection, params};
use std::collections::BTreeMap;
use strata_api::convert::transfer::{Carried, CarriedEvidence};
use strata_core::policy::gate::Cues;
use strata_core::record::{Evidence, Source, SourceRef, Status};
use strata_core::{FactKey, Fault, MemoryId, Timestamp};

fn named(statuses: &[Status]) -> String {
    let names: Vec<String> = statuses.iter().map(|status| format!("'{}'", status.name())).collect();
    names.join(", ")
}

/// Visible records by status as they are at `now`, of these statuses.
///
/// # Errors
/// As the database says.
pub fn counts(db: &Connection, visible: &Visible, statuses: &[Status], now: Timestamp) -> Result<BTreeMap<String, u64>, Fault> {
    let sql = format!(
        "SELECT {STATUS_NOW} AS state, count(*) FROM records r WHERE {} AND state IN ({}) GROUP BY state ORDER BY state",
        visible.condition(),
        named(statuses)
    );
    let mut statement = db.prepare_cached(&sql).sql()?;
    let rows = statement.query_map([now.micros()], |row| Ok((row.get::<_, String>(0)?, row.get::<_, u64>(1)?))).sql()?;
    rows.map(Sql::sql).collect()
}

/// The next records by id, with all that belongs to them.
///
/// # Errors
/// As the database says.
pub fn page(
    db: &Connection,
    visible: &Visible,
    statuses: &[Status],
    after: Option<MemoryId>,
    limit: u32,
    now: Timestamp,
) -> Result<Vec<Carried>, Fault> {
    let sql = format!(
        "SELECT {COLUMNS} FROM {FROM} WHERE {} AND {STATUS_NOW} IN ({}) AND r.memory_id > ?2 ORDER BY r.memory_id LIMIT ?3",
        visible.condition(),
        named(statuses)
    );
    let mut statement = db.prepare_cached(&sql).sql()?;
    let after = after.map_or_else(Vec::new, |id| id_bytes(id).to_vec());
    let mut rows = statement.query(params![now.micros(), after, limit]).sql()?;
    let mut out = Vec::new();
    while let Some(row) = rows.next().sql()? {
        out.push(whole(db, at(StoredRecord::read(row)?, now))?);
    }
    Ok(out)
}

fn whole(db: &Connection, found: StoredRecord) -> Result<Carried, Fault> {
    let id = found.record.memory_id;
    let system_owned = match &found.record.key {
        Some(key) => owner::key(db, found.owner, key)?.is_some_and(|row| row.system_owned),
        None => false,
    };
    Ok(Carried {
        evidence: evidence(db, id)?,
        history: history(db, id)?,
        earlier_status: found.earlier_status,
        conflicts_with: found.conflicts_with,
        due: found.due,
        is_set: found.is_set,
        expire_asked: found.expire_asked,
        system_owned,
        record: found.record,
    })
}

fn evidence(db: &Connection, id: MemoryId) -> Result<Vec<CarriedEvidence>, Fault> {
    let mut statement = db
        .prepare_cached(
            "SELECT source, source_ref, quote, quote_verified, time, mark, session_id, cues FROM evidence \
             WHERE memory_id = ?1 ORDER BY evidence_id",
        )
        .sql()?;
    let mut rows = statement.query([id_bytes(id)]).sql()?;
    let mut out = Vec::new();
    while let Some(row) = rows.next().sql()? {
        let source: String = row.get(0).sql()?;
        let source_ref: Option<String> = row.get(1).sql()?;
        let source_ref = source_ref.map(|text| serde_json::from_str::<SourceRef>(&text)).transpose();
        out.push(CarriedEvidence {
            evidence: Evidence {
                source: Source::from_name(&source).ok_or_else(|| corrupt("evidence.source"))?,
                source_ref: source_ref.map_err(|_| corrupt("evidence.source_ref"))?,
                quote: row.get(2).sql()?,
                quote_verified: row.get(3).sql()?,
                time: Timestamp(row.get(4).sql()?),
            },
            mark: row.get(5).sql()?,
            session_id: row.get(6).sql()?,
            cues: Cues::from_bits(row.get(7).sql()?),
        });
    }
    Ok(out)
}

/// Writes evidence and history of a record that was taken over, as they were.
///
/// # Errors
/// As the database says.
pub(super) fn write_past(db: &Connection, owner: StoredOwner, carried: &Carried) -> Result<(), Fault> {
    let id = id_bytes(carried.record.memory_id);
    let mut statement = db
        .prepare_cached(
            "INSERT INTO evidence (memory_id, owner_id, mark, source, source_ref, session_id, cues, quote, quote_verified, time) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )
        .sql()?;
    for piece in &carried.evidence {
        let e = &piece.evidence;
        let reference =
            e.source_ref.as_ref().map(|reference| serde_json::to_string(reference).expect("references are plain data"));
        let row = params![
            id,
            owner.owner_id,
            piece.mark,
            e.source.name(),
            reference,
            piece.session_id,
            piece.cues.bits(),
            e.quote,
            e.quote_verified,
            e.time.micros()
        ];
        statement.execute(row).sql()?;
    }
    let mut statement = db
        .prepare_cached(
            "INSERT INTO history (memory_id, owner_id, time, from_status, to_status, actor, path, reason, rule) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )
        .sql()?;
    for entry in &carried.history {
        let row = params![
            id,
            owner.owner_id,
            entry.time.micros(),
            entry.from.map(Status::name),
            entry.to.name(),
            entry.actor,
            entry.path,
            entry.reason,
            entry.rule
        ];
        statement.execute(row).sql()?;
    }
    Ok(())
}

/// Takes the epoch of a key over with its record: it never goes back (rule P3).
///
/// # Errors
/// As the database says.
pub(super) fn adopt_key(db: &Connection, owner: StoredOwner, key: &FactKey, carried: &Carried, owned: bool) -> Result<(), Fault> {
    let state = if owned { "OWNED" } else { "RELEASED" };
    let mut statement = db
        .prepare_cached(
            "INSERT INTO owner_keys (owner_id, key, epoch, state, last_event, system_owned) VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
             ON CONFLICT (owner_id, key) DO UPDATE SET epoch = max(epoch, ?3), last_event = max(last_event, ?5), \
             state = CASE WHEN ?4 = 'OWNED' THEN 'OWNED' ELSE state END, system_owned = max(system_owned, ?6)",
        )
        .sql()?;
    let r = &carried.record;
    let row = params![owner.owner_id, key.as_str(), r.owner_epoch, state, r.event_time.micros(), carried.system_owned];
    statement.execute(row).sql()?;
    Ok(())
}
