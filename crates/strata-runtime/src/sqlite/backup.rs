//! Copies of a database that is in use, and the way back.
//!
//! ```text
//!   backup   one snapshot -> FOLDER/NAME.partial -> check -> sync -> FOLDER/NAME.b3 -> FOLDER/NAME
//!   restore  lock -> checksum -> copy beside the database -> check, schema, generation -> old one aside -> rename
//! ```
//!
//! - A backup is one file: a snapshot of what was committed (`VACUUM INTO`), without free pages, so without anything that was
//!   erased before. Writers go on meanwhile.
//! - `NAME.b3` beside it holds its BLAKE3 digest in the form of `b3sum`: `b3sum --check NAME.b3` says whether it is whole.
//! - A restore changes nothing until the copy has passed every check; the file it replaces is kept.

use super::{
    Database, Location, Migration, OpenError, SqliteError, applied, generation_of, is_sound, lock, path_error, private,
    raise_generation,
};
use rusqlite::{Connection, OpenFlags};
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use strata_core::{Fault, Reason};

/// Ending of a file that is not finished.
const PARTIAL: &str = ".partial";
/// Ending of the digest beside a backup.
const DIGEST: &str = ".b3";

/// A finished backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// The file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// BLAKE3 digest of its bytes, 64 hexadecimal digits.
    pub checksum: String,
    /// Generation of the database it was taken from.
    pub generation: u64,
}

/// What a restore did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The database.
    pub path: PathBuf,
    /// Where the file it replaced is kept; none when there was none.
    pub kept: Option<PathBuf>,
    /// Generation it has now, above both files'.
    pub generation: u64,
    /// Schema version of the backup; a newer program migrates it when it opens it.
    pub schema: u32,
}

/// Why there is no backup, or no restore. Nothing was replaced then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackupError {
    /// It lives in memory only.
    #[error("the database is in memory: there is no file to copy")]
    InMemory,
    /// A file or folder cannot be used.
    #[error("{path}: {kind}")]
    Path {
        /// Which.
        path: PathBuf,
        /// Why.
        kind: std::io::ErrorKind,
    },
    /// A backup of this name is there.
    #[error("{path} exists already")]
    Exists {
        /// Which.
        path: PathBuf,
    },
    /// No digest to hold the file against.
    #[error("{path} has no {DIGEST} file beside it; name the checksum that the backup answered")]
    NoChecksum {
        /// Which.
        path: PathBuf,
    },
    /// It is not the file that was written.
    #[error("{path} has another checksum than its backup: it is cut off or altered")]
    OtherChecksum {
        /// Which.
        path: PathBuf,
    },
    /// It fails SQLite's own check.
    #[error("{path} is damaged or no database")]
    Damaged {
        /// Which.
        path: PathBuf,
    },
    /// It is a database, but not one of this product.
    #[error("{path} is no database of this service")]
    Foreign {
        /// Which.
        path: PathBuf,
    },
    /// The database it is to replace is in use, or the backup is from a newer program.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// SQLite refused.
    #[error(transparent)]
    Sqlite(#[from] SqliteError),
}

impl From<BackupError> for Fault {
    fn from(error: BackupError) -> Self {
        match error {
            BackupError::Sqlite(error) => error.into(),
            BackupError::Open(error) => error.into(),
            BackupError::Path { kind: std::io::ErrorKind::StorageFull, .. } => SqliteError::Full.into(),
            BackupError::Path { .. } | BackupError::Exists { .. } => {
                Self::new(Reason::StoreUnavailable, "the folder of the backups cannot be used; the log names the file")
            }
            BackupError::InMemory
            | BackupError::NoChecksum { .. }
            | BackupError::OtherChecksum { .. }
            | BackupError::Damaged { .. }
            | BackupError::Foreign { .. } => Self::new(Reason::Internal, "the backup could not be made"),
        }
    }
}

fn file_error(path: &Path) -> impl FnOnce(std::io::Error) -> BackupError {
    move |error| BackupError::Path { path: path.to_owned(), kind: error.kind() }
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

impl Database {
    /// Copies what is committed now to `folder/name` and shows the copy to `inspect`. Blocking, and as long as the database
    /// is large: call it through [`crate::TaskGroup::blocking`]. Writers go on. Only its owner may read the file. Parts that
    /// an interrupted backup left in the folder are removed, so there must be one at a time.
    ///
    /// # Errors
    /// [`BackupError`]; nothing but the folder itself is left behind then.
    pub fn backup<T>(
        &self,
        folder: &Path,
        name: &str,
        inspect: impl FnOnce(&Connection) -> Result<T, SqliteError>,
    ) -> Result<(Backup, T), BackupError> {
        let Location::File(source) = &self.location else { return Err(BackupError::InMemory) };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(file_error(folder))?;
        remove_partials(folder)?;
        let path = folder.join(name);
        if path.exists() {
            return Err(BackupError::Exists { path });
        }
        let partial = with_ending(&path, PARTIAL);
        let made = copy_into(source, &partial, inspect).and_then(|found| {
            let (bytes, checksum) = digest(&partial)?;
            write_digest(&path, &checksum)?;
            std::fs::rename(&partial, &path).map_err(file_error(&path))?;
            sync_folder(folder)?;
            Ok((Backup { path: path.clone(), bytes, checksum, generation: self.generation }, found))
        });
        if made.is_err() {
            // What is half is worth nothing, and may be what fills the disk.
            let _ = std::fs::remove_file(&partial);
            let _ = std::fs::remove_file(with_ending(&path, DIGEST));
        }
        made
    }
}

fn remove_partials(folder: &Path) -> Result<(), BackupError> {
    for entry in std::fs::read_dir(folder).map_err(file_error(folder))? {
        let path = entry.map_err(file_error(folder))?.path();
        if path.to_string_lossy().ends_with(PARTIAL) {
            std::fs::remove_file(&path).map_err(file_error(&path))?;
        }
    }
    Ok(())
}

fn copy_into<T>(
    source: &Path,
    partial: &Path,
    inspect: impl FnOnce(&Connection) -> Result<T, SqliteError>,
) -> Result<T, BackupError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    // An empty file is filled; a new one would be readable by others.
    drop(private().create_new(true).open(partial).map_err(file_error(partial))?);
    let target = partial.to_str().ok_or_else(|| file_error(partial)(std::io::ErrorKind::InvalidFilename.into()))?;
    let from = Connection::open_with_flags(source, flags).map_err(SqliteError::from)?;
    from.execute_batch("PRAGMA temp_store = MEMORY").map_err(SqliteError::from)?;
    from.execute("VACUUM INTO ?1", [target]).map_err(SqliteError::from)?;
    File::open(partial).and_then(|file| file.sync_all()).map_err(file_error(partial))?;
    // A backup that was never read is a hope.
    let copy = Connection::open_with_flags(partial, flags).map_err(SqliteError::from)?;
    if !is_sound(&copy, "quick_check")? {
        return Err(BackupError::Damaged { path: partial.to_owned() });
    }
    Ok(inspect(&copy)?)
}

/// Size and digest of a file.
fn digest(path: &Path) -> Result<(u64, String), BackupError> {
    let mut hasher = blake3::Hasher::new();
    let mut file = File::open(path).map_err(file_error(path))?;
    hasher.update_reader(&mut file).map_err(file_error(path))?;
    Ok((hasher.count(), hasher.finalize().to_hex().to_string()))
}

fn write_digest(path: &Path, checksum: &str) -> Result<(), BackupError> {
    let beside = with_ending(path, DIGEST);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let write = || -> std::io::Result<()> {
        let mut file = private().truncate(true).open(&beside)?;
        writeln!(file, "{checksum}  {name}")?;
        file.sync_all()
    };
    write().map_err(file_error(&beside))
}

/// The digest a backup was made with, from the file beside it; none where there is none.
///
/// # Errors
/// [`BackupError::Path`].
pub fn recorded_checksum(path: &Path) -> Result<Option<String>, BackupError> {
    let beside = with_ending(path, DIGEST);
    match std::fs::read_to_string(&beside) {
        Ok(text) => Ok(text.split_whitespace().next().map(str::to_owned)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(file_error(&beside)(error)),
    }
}

fn sync_folder(folder: &Path) -> Result<(), BackupError> {
    File::open(folder).and_then(|file| file.sync_all()).map_err(file_error(folder))
}

/// What to restore.
#[derive(Clone, Copy, Debug)]
pub struct Restore<'a> {
    /// The backup.
    pub from: &'a Path,
    /// The database; it need not exist. Nobody may have it open.
    pub to: &'a Path,
    /// Digest the backup must have; without it the one beside the file counts.
    pub checksum: Option<&'a str>,
    /// Schemas this program knows.
    pub migrations: &'a [Migration],
    /// Part of the name under which the replaced file is kept.
    pub stamp: &'a str,
}

/// Puts a backup in the place of a database, after `adapt` has made its changes to the copy. Blocking.
///
/// # Errors
/// [`BackupError`]; the database is as it was then. [`OpenError::Locked`] while a server has it open.
pub fn restore<T>(
    plan: Restore<'_>,
    adapt: impl FnOnce(&Connection) -> Result<T, SqliteError>,
) -> Result<(Restored, T), BackupError> {
    let Restore { from, to, migrations, stamp, .. } = plan;
    let folder = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(file_error(folder))?;
    let _lock = lock(to)?;
    let expected = match plan.checksum {
        Some(checksum) => checksum.to_ascii_lowercase(),
        None => recorded_checksum(from)?.ok_or_else(|| BackupError::NoChecksum { path: from.to_owned() })?,
    };
    if digest(from)?.1 != expected {
        return Err(BackupError::OtherChecksum { path: from.to_owned() });
    }
    let fresh = with_ending(to, ".restoring");
    let prepared = copy_and_check(from, &fresh, to, migrations, adapt);
    let replaced = prepared.and_then(|(schema, generation, found)| {
        let kept = keep_aside(to, stamp)?;
        std::fs::rename(&fresh, to).map_err(file_error(to))?;
        sync_folder(folder)?;
        Ok((Restored { path: to.to_owned(), kept, generation, schema }, found))
    });
    if replaced.is_err() {
        let _ = std::fs::remove_file(&fresh);
    }
    replaced
}

fn copy_and_check<T>(
    from: &Path,
    fresh: &Path,
    to: &Path,
    migrations: &[Migration],
    adapt: impl FnOnce(&Connection) -> Result<T, SqliteError>,
) -> Result<(u32, u64, T), BackupError> {
    let mut target = private().truncate(true).open(fresh).map_err(path_error(fresh))?;
    let mut source = File::open(from).map_err(file_error(from))?;
    std::io::copy(&mut source, &mut target).map_err(file_error(fresh))?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let copy = Connection::open_with_flags(fresh, flags).map_err(SqliteError::from)?;
    let damaged = || BackupError::Damaged { path: from.to_owned() };
    if !is_sound(&copy, "integrity_check")? {
        return Err(damaged());
    }
    let schema = match applied(&copy, migrations)? {
        0 => return Err(BackupError::Foreign { path: from.to_owned() }),
        schema => schema,
    };
    let broken: Option<i64> = copy
        .query_row("SELECT count(*) FROM pragma_foreign_key_check", [], |row| row.get(0))
        .map(Some)
        .map_err(SqliteError::from)?;
    if broken != Some(0) {
        return Err(damaged());
    }
    copy.execute_batch("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA secure_delete = ON")
        .map_err(SqliteError::from)?;
    let generation = raise_generation(&copy, generation_at(to)).map_err(SqliteError::from)?;
    let transaction = copy.unchecked_transaction().map_err(SqliteError::from)?;
    let found = adapt(&transaction)?;
    transaction.commit().map_err(SqliteError::from)?;
    copy.close().map_err(|(_, error)| SqliteError::from(error))?;
    target.sync_all().map_err(file_error(fresh))?;
    Ok((u32::try_from(schema).unwrap_or(u32::MAX), generation, found))
}

/// Generation of the file that is there now; 0 when there is none or it cannot be read.
fn generation_at(path: &Path) -> u64 {
    Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
        .and_then(|connection| generation_of(&connection))
        .unwrap_or_default()
}

/// Keeps the file that is to be replaced, with its log, under another name. The log must be out of the way before another
/// database stands there: SQLite would play it into that one.
fn keep_aside(path: &Path, stamp: &str) -> Result<Option<PathBuf>, BackupError> {
    if !path.exists() {
        // A log without its database belongs to nothing.
        for ending in ["-wal", "-shm"] {
            move_file(&with_ending(path, ending), &with_ending(path, &format!(".replaced-{stamp}{ending}")))?;
        }
        return Ok(None);
    }
    fold_log(path);
    let kept = with_ending(path, &format!(".replaced-{stamp}"));
    // Some file systems know no links.
    std::fs::hard_link(path, &kept).or_else(|_| std::fs::copy(path, &kept).map(drop)).map_err(file_error(&kept))?;
    for ending in ["-wal", "-shm"] {
        move_file(&with_ending(path, ending), &with_ending(&kept, ending))?;
    }
    Ok(Some(kept))
}

/// Folds the log into the file where the file is whole; a damaged one keeps its log: opening it for writing could drop it.
fn fold_log(path: &Path) {
    let whole = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
        .map_err(SqliteError::from)
        .and_then(|connection| is_sound(&connection, "quick_check"));
    let folded = whole.and_then(|whole| {
        if whole {
            let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
            connection.close().map_err(|(_, error)| error)?;
        }
        Ok(whole)
    });
    if folded != Ok(true) {
        tracing::warn!("the replaced database is damaged; its log is kept beside it");
    }
}

fn move_file(from: &Path, to: &Path) -> Result<(), BackupError> {
    match std::fs::rename(from, to) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(file_error(to)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a file is changed behind the service's back")]
mod tests {
    use super::*;
    use crate::sqlite::SqliteSettings;
    use std::collections::BTreeSet;

    const SCHEMA: &[Migration] =
        &[Migration { version: 1, name: "rows", sql: "CREATE TABLE rows (n INTEGER PRIMARY KEY, text TEXT NOT NULL) STRICT" }];

    struct Place {
        folder: tempfile::TempDir,
    }

    impl Place {
        fn new() -> Self {
            Self { folder: tempfile::tempdir().expect("a folder") }
        }

        fn at(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        /// Waits for a lock that a closing database still holds.
        fn open(&self) -> Database {
            loop {
                match Database::open(&Location::File(self.at("a.db")), SCHEMA, SqliteSettings::default()) {
                    Err(OpenError::Locked { .. }) => std::thread::yield_now(),
                    other => return other.expect("opens"),
                }
            }
        }

        fn restore(&self, from: &Path, checksum: Option<&str>) -> Result<Restored, BackupError> {
            let plan = Restore { from, to: &self.at("a.db"), checksum, migrations: SCHEMA, stamp: "then" };
            restore(plan, |db| Ok(db.execute("DELETE FROM rows WHERE n = 99", [])?)).map(|(restored, _)| restored)
        }
    }

    async fn put(database: &Database, n: i64, text: &'static str) {
        let write = move |db: &Connection| -> Result<(), SqliteError> {
            db.execute("INSERT INTO rows (n, text) VALUES (?1, ?2)", (n, text))?;
            Ok(())
        };
        database.write(write).await.expect("written");
    }

    fn numbers(db: &Connection) -> Result<BTreeSet<i64>, SqliteError> {
        let mut statement = db.prepare("SELECT n FROM rows")?;
        let rows = statement.query_map([], |row| row.get(0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn listed(folder: &Path) -> BTreeSet<String> {
        let entries = std::fs::read_dir(folder).expect("a folder");
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
    }

    #[tokio::test]
    async fn a_backup_taken_under_writes_is_a_snapshot_and_comes_back() {
        let place = Place::new();
        let database = place.open();
        for n in [1, 2, 99] {
            put(&database, n, "x").await;
        }
        let folder = place.at("backups");
        let (backup, seen) = database.backup(&folder, "one.db", numbers).expect("a backup");
        assert_eq!(seen, [1, 2, 99].into());
        assert_eq!(listed(&folder), ["one.db".to_owned(), "one.db.b3".to_owned()].into());
        assert_eq!(backup.bytes, std::fs::metadata(&backup.path).expect("a file").len());
        assert_eq!(recorded_checksum(&backup.path), Ok(Some(backup.checksum.clone())));
        for name in ["one.db", "one.db.b3"] {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = std::fs::metadata(folder.join(name)).expect("a file").permissions().mode();
            assert_eq!(mode & 0o077, 0, "{name} is for its owner only");
        }
        assert!(matches!(database.backup(&folder, "one.db", numbers), Err(BackupError::Exists { .. })));

        put(&database, 3, "later").await;
        let refused = place.restore(&backup.path, None).expect_err("in use");
        assert_eq!(refused, BackupError::Open(OpenError::Locked { path: place.at("a.db") }));
        database.close().await;
        let restored = place.restore(&backup.path, None).expect("restored");
        assert!(restored.generation > backup.generation);
        assert_eq!(restored.schema, 1);

        let again = place.open();
        assert!(again.generation() > restored.generation);
        assert_eq!(again.read(numbers).await, Ok([1, 2].into()), "the state of the backup, as adapted");
        put(&again, 4, "and on").await;
        let kept = restored.kept.expect("the replaced file is kept");
        let kept = Connection::open_with_flags(kept, OpenFlags::SQLITE_OPEN_READ_ONLY).expect("it opens");
        assert_eq!(numbers(&kept), Ok([1, 2, 3, 99].into()), "whole, its log folded in");
    }

    #[tokio::test]
    async fn what_was_erased_is_in_no_backup() {
        const SECRET: &str = "the-forgotten-memory";
        let place = Place::new();
        let database = place.open();
        put(&database, 1, SECRET).await;
        let erase = |db: &Connection| -> Result<(), SqliteError> {
            db.execute("DELETE FROM rows", [])?;
            Ok(())
        };
        database.write(erase).await.expect("erased");
        let (backup, _) = database.backup(&place.at("backups"), "one.db", numbers).expect("a backup");
        let bytes = std::fs::read(backup.path).expect("a file");
        assert!(!bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes()));
    }

    #[tokio::test]
    async fn what_is_not_the_backup_that_was_made_is_refused_and_nothing_changes() {
        let place = Place::new();
        let database = place.open();
        put(&database, 1, "x").await;
        let (backup, _) = database.backup(&place.at("backups"), "one.db", numbers).expect("a backup");
        database.close().await;
        let before = std::fs::read(place.at("a.db")).expect("a file");

        let alone = place.at("alone.db");
        std::fs::copy(&backup.path, &alone).expect("copied");
        assert_eq!(place.restore(&alone, None), Err(BackupError::NoChecksum { path: alone.clone() }));
        assert_eq!(place.restore(&alone, Some(&"0".repeat(64))), Err(BackupError::OtherChecksum { path: alone.clone() }));

        let mut bytes = std::fs::read(&alone).expect("a file");
        let half = bytes.len() / 2;
        bytes[half..].fill(0xaa);
        std::fs::write(&alone, &bytes).expect("written");
        assert_eq!(place.restore(&alone, Some(&backup.checksum)), Err(BackupError::OtherChecksum { path: alone.clone() }));
        let (_, of_damage) = digest(&alone).expect("a digest");
        assert_eq!(place.restore(&alone, Some(&of_damage)), Err(BackupError::Damaged { path: alone.clone() }));

        let foreign = place.at("foreign.db");
        Connection::open(&foreign).expect("opens").execute_batch("CREATE TABLE t (n)").expect("a table");
        let (_, of_foreign) = digest(&foreign).expect("a digest");
        assert_eq!(place.restore(&foreign, Some(&of_foreign)), Err(BackupError::Foreign { path: foreign.clone() }));

        let newer = place.at("newer.db");
        std::fs::copy(&backup.path, &newer).expect("copied");
        let insert = "INSERT INTO schema_migrations (version, name, checksum) VALUES (2, 'later', x'00')";
        Connection::open(&newer).expect("opens").execute_batch(insert).expect("a later schema");
        let (_, of_newer) = digest(&newer).expect("a digest");
        let refused = place.restore(&newer, Some(&of_newer));
        assert_eq!(refused, Err(BackupError::Open(OpenError::Newer { store: 2, binary: 1 })));

        assert!(std::fs::read(place.at("a.db")).expect("a file") == before, "untouched");
        assert!(!listed(place.folder.path()).iter().any(|name| name.contains("restoring") || name.contains("replaced")));
        place.restore(&backup.path, Some(&backup.checksum.to_uppercase())).expect("the real one is taken");
    }

    #[tokio::test]
    async fn a_damaged_database_gives_way_with_its_log_and_an_absent_one_is_made() {
        let place = Place::new();
        let database = place.open();
        put(&database, 1, "x").await;
        let (backup, _) = database.backup(&place.at("backups"), "one.db", numbers).expect("a backup");
        database.close().await;
        std::fs::write(place.at("a.db"), "rubbish ".repeat(1_000)).expect("written");
        std::fs::write(place.at("a.db-wal"), "a log of another database").expect("written");
        let restored = place.restore(&backup.path, None).expect("restored");
        assert!(restored.generation > backup.generation);
        assert!(place.at("a.db.replaced-then-wal").exists(), "the log went with its database");
        assert_eq!(place.open().read(numbers).await, Ok([1].into()));

        let elsewhere = Place::new();
        let restored = elsewhere.restore(&backup.path, None).expect("restored");
        assert_eq!(restored.kept, None);
        assert_eq!(elsewhere.open().read(numbers).await, Ok([1].into()));
    }

    #[tokio::test]
    async fn a_backup_that_fails_leaves_nothing_and_parts_of_an_earlier_one_go() {
        let place = Place::new();
        let database = place.open();
        put(&database, 1, "x").await;
        let folder = place.at("backups");
        let failed = database.backup(&folder, "one.db", |_| Err::<(), _>(SqliteError::Full));
        assert_eq!(failed, Err(BackupError::Sqlite(SqliteError::Full)));
        assert!(listed(&folder).is_empty());
        std::fs::write(folder.join("cut-off.db.partial"), "half").expect("written");
        database.backup(&folder, "two.db", numbers).expect("a backup");
        assert_eq!(listed(&folder), ["two.db".to_owned(), "two.db.b3".to_owned()].into());
        let memory = Database::open(&Location::Memory, SCHEMA, SqliteSettings::default()).expect("opens");
        assert_eq!(memory.backup(&folder, "three.db", numbers), Err(BackupError::InMemory));
    }
}
