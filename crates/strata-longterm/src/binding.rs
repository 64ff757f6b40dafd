//! The secret that a database belongs to. What was erased is recognised by digests made with the deployment's secret (rule E7): with
//! another one it could be written again, and nobody would notice. So the database keeps a fingerprint, and is not opened with a
//! secret that does not fit.

use crate::metadata::search::{meta, set_meta};
use rusqlite::Connection;
use strata_core::Fault;
use strata_core::policy::gate::Tombstones;
use strata_runtime::sqlite::SqliteError;

/// Name of the fingerprint in `meta`.
const NAME: &str = "secret";

/// Whether a database belongs to the secret of these digests; one that belongs to none yet does.
///
/// # Errors
/// As the database says.
pub fn belongs(db: &Connection, tombstones: &Tombstones) -> Result<bool, SqliteError> {
    Ok(meta(db, NAME)?.is_none_or(|kept| kept == tombstones.fingerprint()))
}

/// Lets a database belong to the secret of these digests from now on.
///
/// # Errors
/// As the database says.
pub fn bind(db: &Connection, tombstones: &Tombstones) -> Result<(), SqliteError> {
    set_meta(db, NAME, Some(&tombstones.fingerprint()))
}

/// Binds a database that belongs to no secret yet.
///
/// # Errors
/// `INVALID_FIELD` naming `secret` when it belongs to another one; as the database says.
pub fn check(db: &Connection, tombstones: &Tombstones) -> Result<(), Fault> {
    if meta(db, NAME)?.is_some_and(|kept| kept == tombstones.fingerprint()) {
        // Nothing is written, so that a full disk is no reason not to open.
        return Ok(());
    }
    if !belongs(db, tombstones)? {
        return Err(Fault::field(
            "secret",
            "is not the one that the records were written with: what was erased would not be recognised. Where `secret` is not \
             set, the only signing key takes its place, or, for a process alone, the file `secret` in data_dir: set `secret` to \
             that key as it stood there (id:64 hexadecimal digits), or bring the file back. If it is lost, restore a backup with \
             --accept-lost-erasures",
        ));
    }
    Ok(bind(db, tombstones)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::MIGRATIONS;

    #[test]
    fn a_database_is_opened_with_the_secret_it_was_made_with() {
        let db = Connection::open_in_memory().expect("opens");
        for migration in MIGRATIONS {
            db.execute_batch(migration.sql).expect("migrates");
        }
        let (ours, other) = (Tombstones::new(b"k1:00"), Tombstones::new(b"k2:00"));
        assert!(belongs(&db, &other).expect("read"), "a new one is anyone's");
        for _ in 0..2 {
            check(&db, &ours).expect("bound, and opened again");
        }
        let refused = check(&db, &other).expect_err("another secret");
        assert_eq!(refused.fields[0].field, "secret");
        assert!(refused.message.contains("id:64 hexadecimal digits"), "{refused}");
        bind(&db, &other).expect("whoever accepts the loss goes on");
        check(&db, &other).expect("opened");
        let kept = meta(&db, NAME).expect("read").expect("there");
        assert!(kept.len() == 32 && kept != ours.fingerprint(), "a digest: {kept}");
    }
}
