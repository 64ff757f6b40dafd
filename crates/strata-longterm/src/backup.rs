//! Backups of the truth, and bringing one back. The index is in none of them: it is filled again from the rows.

use crate::binding;
use crate::erasure_log::{self, Copied, Line, LogCopy, LogError, Replayed};
use crate::metadata::{MIGRATIONS, search};
use crate::relay;
use parking_lot::Mutex;
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use strata_core::policy::context::date;
use strata_core::policy::gate::Tombstones;
use strata_core::time::{DAY, SECOND};
use strata_core::{Fault, Reason, Timestamp};
use strata_runtime::TaskGroup;
use strata_runtime::sqlite::backup::{self, Backup, BackupError, Restore, Restored, recorded_checksum};
use strata_runtime::sqlite::{Database, Location, SqliteError, SqliteSettings};
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
    format!("{}-{id}{ENDING}", stamp(now))
}

fn stamp(now: Timestamp) -> String {
    let second = now.micros().rem_euclid(DAY) / SECOND;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("longterm-{}T{hour:02}{minute:02}{second:02}Z", date(now))
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

/// When backups of a folder from up to a time were written, oldest first.
#[must_use]
pub(crate) fn made_before(folder: &Path, until: Timestamp) -> Vec<Timestamp> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let last = stamp(until);
    let older = entries.filter_map(Result::ok).filter(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.ends_with(ENDING) && name.get(..last.len()).is_some_and(|made| made <= last.as_str())
    });
    let mut made: Vec<Timestamp> = older
        .map(|entry| {
            let time = entry.metadata().and_then(|file| file.modified()).ok();
            let time = time.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
            time.and_then(|time| i64::try_from(time.as_micros()).ok()).map_or(until, Timestamp)
        })
        .collect();
    made.sort_unstable();
    made
}

/// What a restore does with what was erased since the backup (rule E8).
#[derive(Debug)]
pub struct Erasures<'a> {
    /// Folder of the erasure log.
    pub log: &'a Path,
    /// Its copy in Redis, where there is one.
    pub copy: Option<&'a LogCopy>,
    /// Digests of the deployment.
    pub tombstones: &'a Tombstones,
    /// Go on without the log, or with one that lacks erasures the backup knows of: what was erased since comes back.
    pub accept_lost: bool,
}

/// Why a backup was not put in place.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The backup, or the database it is to replace.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// The erasure log.
    #[error(
        "the erasure log cannot be replayed, so what was erased since the backup would come back: {lost}; {copy}; bring one of them back, or restore with --accept-lost-erasures"
    )]
    Log {
        /// The file.
        lost: LogError,
        /// Its copy.
        copy: String,
    },
    /// The log is older than the backup.
    #[error(
        "the erasure log lacks {0} erasures that the backup knows of: it is another one, or an older copy; bring the right one back, or restore with --accept-lost-erasures"
    )]
    Incomplete(usize),
    /// The backup is of a deployment with another secret.
    #[error(
        "the backup was made with another secret, so what was erased would not be recognised: set `secret` to the one of that time (where there was none, the first of the signing keys, or the file `secret` in data_dir), or restore with --accept-lost-erasures"
    )]
    Secret,
    /// The database is in place; what was erased is gone before a server serves it.
    #[error(
        "the backup is in place, but what was erased since could not be erased again yet: {0}; run the same command again, or start the server, which does it before it serves"
    )]
    Replay(String),
}

/// Puts a backup in the place of the database at `to`, which nobody may have open, and erases again what was erased since. The
/// index is filled again from it by the next server that opens it.
///
/// # Errors
/// [`RestoreError`]; the database is as it was then, but for [`RestoreError::Replay`].
pub async fn restore(
    from: &Path,
    to: &Path,
    checksum: Option<&str>,
    erasures: &Erasures<'_>,
    now: Timestamp,
) -> Result<(Restored, Contents, Replayed), RestoreError> {
    let (lines, note) = lines(erasures).await?;
    let unknown = known_erasures(from).into_iter().filter(|id| !lines.iter().any(|line| line.erasure_id == *id)).count();
    if unknown > 0 && !erasures.accept_lost {
        return Err(RestoreError::Incomplete(unknown));
    }
    let own = is_of(from, erasures.tombstones);
    if !own && !erasures.accept_lost {
        return Err(RestoreError::Secret);
    }
    let lost = note == Source::Lost || unknown > 0 || !own;
    let pending = if lost { erasure_log::PENDING_LOST } else { erasure_log::PENDING_LOG };
    let stamp = (now.micros() / SECOND).to_string();
    let plan = Restore { from, to, checksum, migrations: MIGRATIONS, stamp: &stamp };
    let (mut restored, contents) = backup::restore(plan, |db| {
        relay::mark_restored(db)?;
        // Whoever opens it next erases again before anything is served, should this process not come to it.
        search::set_meta(db, erasure_log::PENDING, Some(pending))?;
        binding::bind(db, erasures.tombstones)?;
        Contents::of(db)
    })?;
    let replay = async {
        let database =
            Database::open(&Location::File(to.to_owned()), MIGRATIONS, SqliteSettings::default()).map_err(Fault::from)?;
        let name = from.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let reason = match note {
            _ if lost => "erasures since the backup are lost: accepted",
            Source::Copy => "the erasure log was gone: its copy was replayed",
            Source::File | Source::Lost => "",
        };
        let replayed = erasure_log::replay_pending(&database, lines, erasures.tombstones.clone(), &name, reason, now).await;
        restored.generation = database.generation();
        database.close().await;
        Ok::<_, Fault>(replayed?.unwrap_or_default())
    };
    let replayed = replay.await.map_err(|fault| RestoreError::Replay(fault.message))?;
    Ok((restored, contents, replayed))
}

/// Where the erasures of a restore come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The log, with what only its copy has.
    File,
    /// The copy: the file is gone.
    Copy,
    /// Neither; that was accepted.
    Lost,
}

/// What was erased, from the log and its copy.
async fn lines(erasures: &Erasures<'_>) -> Result<(Vec<Line>, Source), RestoreError> {
    let copied = match erasures.copy {
        None => Ok(Copied::default()),
        Some(copy) => copy.read().await,
    };
    let lost = match erasure_log::read(erasures.log) {
        Ok(file) => {
            let copied = copied.inspect_err(|fault| tracing::warn!(%fault, "restored without the copy of the erasure log"));
            return Ok((erasure_log::union(file, copied.unwrap_or_default().lines), Source::File));
        }
        Err(lost) => lost,
    };
    let copy = match &copied {
        _ if erasures.copy.is_none() => "there is no copy of it in Redis".to_owned(),
        Err(fault) => format!("its copy in Redis cannot be read: {}", fault.message),
        Ok(copied) if copied.foreign > 0 => {
            format!("its copy in Redis has {} entries that this deployment did not sign", copied.foreign)
        }
        Ok(copied) if copied.lines.is_empty() => "its copy in Redis is gone too".to_owned(),
        Ok(_) => String::new(),
    };
    let lines = copied.unwrap_or_default().lines;
    // A file that was altered is looked at by people first.
    let usable = copy.is_empty() && matches!(lost, LogError::Missing { .. } | LogError::Path { .. });
    match (usable, erasures.accept_lost) {
        (true, _) => Ok((lines, Source::Copy)),
        (false, true) => {
            tracing::warn!(%lost, copy, "restored without the erasure log");
            Ok((lines, Source::Lost))
        }
        (false, false) if copy.is_empty() => Err(RestoreError::Log { lost, copy: "its copy in Redis is whole".to_owned() }),
        (false, false) => Err(RestoreError::Log { lost, copy }),
    }
}

/// Whether a backup belongs to the secret of these digests, or to none.
fn is_of(file: &Path, tombstones: &Tombstones) -> bool {
    let open = Connection::open_with_flags(file, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY);
    // One that cannot be read, or is older than the mark, is judged by what follows.
    open.map_err(SqliteError::from).and_then(|db| binding::belongs(&db, tombstones)).unwrap_or(true)
}

/// Erasures that a backup has in its journal; none when it cannot be read, or is from before there were any.
fn known_erasures(file: &Path) -> Vec<Uuid> {
    let read = || -> rusqlite::Result<Vec<Uuid>> {
        let db = Connection::open_with_flags(file, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let mut statement = db.prepare("SELECT erasure_id FROM erasures")?;
        let rows = statement.query_map([], |row| row.get::<_, [u8; 16]>(0))?;
        rows.map(|row| row.map(Uuid::from_bytes)).collect()
    };
    read().unwrap_or_default()
}
