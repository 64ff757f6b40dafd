//! Where each record system stands with an owner.

use super::{Sql, StoredOwner};
use rusqlite::{Connection, OptionalExtension};
use strata_core::{Fault, Timestamp};

/// The cursor of a system; empty before its first batch.
///
/// # Errors
/// As the database says.
pub fn get(db: &Connection, owner: StoredOwner, system: &str) -> Result<String, Fault> {
    let mut statement = db.prepare_cached("SELECT cursor FROM sync_cursors WHERE owner_id = ?1 AND system = ?2").sql()?;
    Ok(statement.query_row((owner.owner_id, system), |row| row.get(0)).optional().sql()?.unwrap_or_default())
}

/// Stores the cursor of a system.
///
/// # Errors
/// As the database says.
pub fn set(db: &Connection, owner: StoredOwner, system: &str, cursor: &str, now: Timestamp) -> Result<(), Fault> {
    let mut statement = db
        .prepare_cached(
            "INSERT INTO sync_cursors (owner_id, system, cursor, time) VALUES (?1, ?2, ?3, ?4) \
             ON CONFLICT (owner_id, system) DO UPDATE SET cursor = ?3, time = ?4",
        )
        .sql()?;
    statement.execute((owner.owner_id, system, cursor, now.micros())).sql()?;
    Ok(())
}
