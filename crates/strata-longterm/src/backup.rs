//! Backups of the truth, and bringing one back. The index is in none of them: it is filled again from the rows.

use crate::metadata::MIGRATIONS;
use crate::relay;
use parking_lot::Mutex;
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use strata_core::policy::context::date;
use strata_core::time::{DAY, SECOND};
use strata_core::{Fault, Reason, Timestamp};
use strata_runtime::TaskGroup;
use strata_runtime::sqlite::backup::{self, Backup, BackupError, Restore, Restored, recorded_checksum};
use strata_runtime::sqlite::{Database, SqliteError};
use uuid::Uuid;

/// Ending of every backup's name.
const ENDING: &str = ".sqlite";

/// What a backup holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Records, of every status.
    pub records: u64,
    /// Sum of all users' revisions: grows with every write.
    pub revision: u64,
    /// Generation of the database.
    pub generation: u64,
}

impl Contents {
    fn of(db: &Connection) -> Result<Self, SqliteError> {
        let sql = "SELECT (SELECT count(*) FROM records), (SELECT coalesce(sum(revision), 0) FROM users), \
             (SELECT generation FROM store_generation)";
        Ok(db.query_row(sql, [], |row| Ok(Self { records: row.get(0)?, revision: row.get(1)?, generation: row.get(2)? }))?)
    }
}

/// Makes backups into one folder, one at a time.
#[derive(Clone, Debug)]
pub struct Backups {
    database: Database,
    folder: Option<PathBuf>,
    tasks: TaskGroup,
    running: Arc<Mutex<()>>,
}

impl Backups {
    /// Of `database` into `folder`; without a folder there are none.
    #[must_use]
    pub fn new(database: Database, folder: Option<PathBuf>, tasks: TaskGroup) -> Self {
        Self { database, folder, tasks, running: Arc::default() }
    }

    /// A new backup, or the one that was made for this id before. Once begun it goes on, whoever still waits.
    ///
    /// # Errors
    /// `NOT_SERVED` without a folder; `OVERLOADED` while one is being made; `STORE_FULL`; `STORE_UNAVAILABLE` when the folder
    /// cannot be used.
    pub async fn make(&self, id: Uuid, now: Timestamp) -> Result<(Backup, Contents), Fault> {
        let Some(folder) = self.folder.clone() else {
            return Err(Fault::new(Reason::NotServed, "no folder for backups is configured: set storage.backup_dir"));
        };
        let (database, running) = (self.database.clone(), Arc::clone(&self.running));
        let work = move || {
            let Some(_alone) = running.try_lock() else {
                return Err(Fault::new(Reason::Overloaded, "a backup is being made; there is one at a time").retry_after(5_000));
            };
            let made = match earlier(&folder, id).map_err(logged)? {
                Some(earlier) => earlier,
                None => database.backup(&folder, &name(id, now), Contents::of).map_err(logged)?,
            };
            Ok(made)
        };
        let made = self.tasks.blocking("backup", work).await;
        made.map_err(|_| Fault::new(Reason::Internal, "the backup ended unexpectedly"))?
    }
}

/// The log has the file; the caller gets the class.
fn logged(error: BackupError) -> Fault {
    tracing::error!(%error, "there is no backup");
    error.into()
}

/// `longterm-2026-11-30T060534Z-<id>.sqlite`: names in order of time are names in order.
fn name(id: Uuid, now: Timestamp) -> String {
    let second = now.micros().rem_euclid(DAY) / SECOND;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("longterm-{}T{hour:02}{minute:02}{second:02}Z-{id}{ENDING}", date(now))
}

/// The finished backup of an id, if its file is still there.
fn earlier(folder: &Path, id: Uuid) -> Result<Option<(Backup, Contents)>, BackupError> {
    let ending = format!("-{id}{ENDING}");
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(None) };
    for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
        if path.to_string_lossy().ends_with(&ending)
            && let (Some(checksum), Ok(file)) = (recorded_checksum(&path)?, std::fs::metadata(&path))
        {
            let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
            let open = Connection::open_with_flags(&path, flags).map_err(SqliteError::from)?;
            let contents = Contents::of(&open)?;
            return Ok(Some((Backup { bytes: file.len(), checksum, generation: contents.generation, path }, contents)));
        }
    }
    Ok(None)
}

/// Puts a backup in the place of the database at `to`, which nobody may have open. The index is filled again from it by the
/// next server that opens it.
///
/// # Errors
/// [`BackupError`]; the database is as it was then.
pub fn restore(from: &Path, to: &Path, checksum: Option<&str>, now: Timestamp) -> Result<(Restored, Contents), BackupError> {
    let stamp = (now.micros() / SECOND).to_string();
    let plan = Restore { from, to, checksum, migrations: MIGRATIONS, stamp: &stamp };
    backup::restore(plan, |db| {
        relay::mark_restored(db)?;
        Contents::of(db)
    })
}
