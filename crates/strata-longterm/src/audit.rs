//! The audit of a database that is not opened for service: `strata audit verify`.

use crate::metadata::ledger;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};
use std::path::Path;
use strata_core::{Fault, Reason};
use strata_runtime::sqlite::SqliteError;

/// What a look at the chain came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chain {
    /// Every entry follows from the one before it.
    Whole {
        /// Entries.
        entries: u64,
        /// Hash of the last one, 64 hexadecimal digits; zeros for none.
        head: String,
        /// Whether a hash that was asked for is in it.
        contains: Option<bool>,
    },
    /// It is broken.
    Broken {
        /// Where.
        problem: String,
    },
}

/// Recomputes the chain of the audit in a database file, which a server may have open.
///
/// # Errors
/// As the database says; `INVALID_FIELD` for a hash that is none.
pub fn verify(file: &Path, contains: Option<&str>) -> Result<Chain, Fault> {
    let wanted = contains.map(blake3::Hash::from_hex).transpose();
    let wanted = wanted.map_err(|_| Fault::field("contains", "must have 64 hexadecimal digits"))?;
    let db = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(SqliteError::from)?;
    match ledger::verify_audit(&db) {
        Ok((entries, head)) => {
            let found = wanted.map(|hash| -> Result<bool, SqliteError> {
                let found = db.query_row("SELECT 1 FROM audit WHERE hash = ?1", [hash.as_bytes()], |_| Ok(())).optional()?;
                Ok(found.is_some())
            });
            let head = blake3::Hash::from_bytes(head).to_hex().to_string();
            Ok(Chain::Whole { entries, head, contains: found.transpose()? })
        }
        Err(broken) if broken.reason == Reason::Internal => Ok(Chain::Broken { problem: broken.message }),
        Err(fault) => Err(fault),
    }
}
