//! SQLite with one writer.
//!
//! ```text
//!   write(closure) -> bounded mailbox -> ONE writer thread:  BEGIN IMMEDIATE
//!                                          closure 1 in SAVEPOINT, closure 2 in SAVEPOINT, ...
//!                                        COMMIT (one fsync for all), then all are answered
//!   read(closure)  -> bounded queue   -> N reader threads, one read-only connection and one snapshot each
//! ```
//!
//! - A transaction runs on a thread, not in a future, so no cancelled caller can leave one open (case C061): once a closure is
//!   in the mailbox it runs to its end, whoever still waits.
//! - Callers that come together share one fsync; a closure that fails rolls back only itself.
//! - An answer means committed. A closure sees what its batch-mates before it wrote; nobody else sees any of it before
//!   the commit.
//! - One process writes: an advisory lock on `<file>.lock` refuses a second one at open, instead of letting both believe
//!   they are alone.
//! - Where such locks do not work (some network file systems), a generation row does: every open raises it, every
//!   transaction reads it, and a process that finds another's writes nothing any more.
//! - A file is looked over (`quick_check`) before anything is written to it: a damaged one is refused, not served.
//! - What was deleted is overwritten (`secure_delete`): a forgotten memory must not be readable in the file. There is no
//!   full-text table (FTS5), which would need a `secure-delete` of its own: words stand in ordinary tables.

pub mod backup;

use crate::store_op;
use parking_lot::Mutex;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::cell::Cell;
use std::fs::{File, OpenOptions, TryLockError};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use strata_core::limits::{STORE_BATCH, STORE_QUEUE};
use strata_core::{Fault, Reason};
use tokio::sync::{mpsc, oneshot, watch};

/// Where a database is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A file; its `-wal`, `-shm` and `.lock` stand beside it.
    File(PathBuf),
    /// In this process, gone at the end. Reads then run on the writer thread, between transactions.
    Memory,
}

/// How hard a commit is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Synchronous {
    /// Every commit is on the disk before it is answered: survives a power cut.
    #[default]
    Full,
    /// Survives a crash of the process; the last commits may be lost in a power cut.
    Normal,
}

/// Bounds of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqliteSettings {
    /// How hard a commit is.
    pub synchronous: Synchronous,
    /// Reader threads, at least 1.
    pub readers: usize,
    /// Longest wait for a place in a queue, and of SQLite for a lock; then the caller gets [`SqliteError::Busy`].
    pub busy_timeout: Duration,
    /// Closures that wait for the writer, and that wait for a reader.
    pub queue: usize,
    /// Closures in one transaction at most: bounds how long the first waits for the last.
    pub batch: usize,
    /// Bytes the file may grow to, beside its log; then writes get [`SqliteError::Full`]. None: as far as the disk goes.
    pub max_bytes: Option<u64>,
}

impl Default for SqliteSettings {
    fn default() -> Self {
        Self {
            synchronous: Synchronous::Full,
            readers: 4,
            busy_timeout: Duration::from_secs(5),
            queue: STORE_QUEUE,
            batch: STORE_BATCH,
            max_bytes: None,
        }
    }
}

/// One step of the schema. Once released it never changes: its text is checked against what was applied.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    /// From 1, without gaps.
    pub version: u32,
    /// For people.
    pub name: &'static str,
    /// Statements, run in one transaction.
    pub sql: &'static str,
}

impl Migration {
    /// Digest of its text. The ends of lines do not count: a checkout may have changed them.
    fn checksum(&self) -> blake3::Hash {
        blake3::hash(self.sql.replace("\r\n", "\n").as_bytes())
    }
}

/// What can go wrong with a statement. Holds no message: the cause is logged where it happens, without content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SqliteError {
    /// The disk or the database's size limit is reached; nothing was written.
    #[error("the database is full")]
    Full,
    /// Queue or lock could not be had in time; nothing was written.
    #[error("the database is busy")]
    Busy,
    /// The disk failed; a write may have happened.
    #[error("the database cannot be read or written")]
    Io,
    /// The file is damaged or not a database.
    #[error("the database is damaged")]
    Corrupt,
    /// The database is closed or closing.
    #[error("the database is closed")]
    Closed,
    /// Another process opened the database for writing after this one did; nothing was written.
    #[error("another process has taken the database over")]
    Fenced,
    /// A unique, foreign key, not-null or check constraint refused; the caller knows which it risked.
    #[error("a constraint refused")]
    Constraint,
    /// A query for one row found none.
    #[error("no row")]
    NoRows,
    /// A defect: wrong SQL, wrong type, a panic in the closure.
    #[error("the statement failed")]
    Other,
}

thread_local! {
    /// The last error of a statement on this thread: why SQLite rolled a whole transaction back by itself.
    static CAUSE: Cell<Option<SqliteError>> = const { Cell::new(None) };
}

impl From<rusqlite::Error> for SqliteError {
    fn from(error: rusqlite::Error) -> Self {
        if matches!(error, rusqlite::Error::QueryReturnedNoRows) {
            return Self::NoRows;
        }
        let Some(code) = error.sqlite_error_code() else {
            tracing::error!(kind = kind_of(&error), "a statement failed");
            return Self::Other;
        };
        let extended = error.sqlite_error().map_or(0, |e| e.extended_code);
        #[expect(clippy::wildcard_enum_match_arm, reason = "the driver's list is open; what is not named is a defect")]
        let mapped = match code {
            ErrorCode::DiskFull | ErrorCode::TooBig | ErrorCode::OutOfMemory => Self::Full,
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => Self::Busy,
            ErrorCode::SystemIoFailure
            | ErrorCode::CannotOpen
            | ErrorCode::ReadOnly
            | ErrorCode::PermissionDenied
            | ErrorCode::FileLockingProtocolFailed => Self::Io,
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => Self::Corrupt,
            ErrorCode::ConstraintViolation => Self::Constraint,
            _ => Self::Other,
        };
        CAUSE.set(Some(mapped));
        if !matches!(mapped, Self::Constraint) {
            // The code alone: SQLite's text quotes SQL and may quote values.
            tracing::warn!(?code, extended, "a statement failed");
        }
        mapped
    }
}

/// The variant of a driver error, without its values.
fn kind_of(error: &rusqlite::Error) -> String {
    let text = format!("{error:?}");
    text.chars().take_while(|c| c.is_ascii_alphanumeric()).collect()
}

impl From<SqliteError> for Fault {
    fn from(error: SqliteError) -> Self {
        match error {
            SqliteError::Full => Self::new(Reason::StoreFull, "the database is full; nothing was written").retry_after(5_000),
            SqliteError::Busy => {
                Self::new(Reason::StoreUnavailable, "the database is busy; retry with the same request_id").retry_after(500)
            }
            SqliteError::Io => Self::unavailable("database"),
            SqliteError::Closed => Self::new(Reason::NotServing, "the database is closed").retry_after(1_000),
            SqliteError::Fenced => {
                Self::new(Reason::NotServing, "another process has taken the database over; this one writes nothing any more")
            }
            SqliteError::Corrupt => Self::new(Reason::Internal, "the database is damaged; restore it from a backup"),
            SqliteError::Constraint | SqliteError::NoRows | SqliteError::Other => {
                Self::new(Reason::Internal, "a statement of the service failed")
            }
        }
    }
}

/// Why a database cannot be opened. Nothing was changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open for writing.
    #[error("{path} is in use by another process; only one may write")]
    Locked {
        /// The database.
        path: PathBuf,
    },
    /// A newer program wrote it.
    #[error("the database has schema version {store}, this program knows {binary}; use a newer program")]
    Newer {
        /// Version of the store.
        store: u32,
        /// Newest version this program knows.
        binary: u32,
    },
    /// A released migration was edited.
    #[error("migration {version} is not the one that was applied to this database")]
    MigrationChanged {
        /// The migration.
        version: u32,
    },
    /// The file failed its check.
    #[error("{path} is damaged or no database; stop, keep the file, and bring a backup back with `strata restore`")]
    Damaged {
        /// The database.
        path: PathBuf,
    },
    /// The program's own list of migrations has a gap.
    #[error("migrations must be numbered from 1 without gaps")]
    MigrationOrder,
    /// The directory or lock file cannot be used.
    #[error("{path} cannot be opened: {kind}")]
    Path {
        /// The file.
        path: PathBuf,
        /// Why.
        kind: std::io::ErrorKind,
    },
    /// SQLite refused.
    #[error(transparent)]
    Sqlite(#[from] SqliteError),
}

impl From<OpenError> for Fault {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Sqlite(error) => error.into(),
            OpenError::Locked { .. }
            | OpenError::Newer { .. }
            | OpenError::MigrationChanged { .. }
            | OpenError::MigrationOrder
            | OpenError::Damaged { .. }
            | OpenError::Path { .. } => Self::new(Reason::NotServing, error.to_string()),
        }
    }
}

/// Counters since open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SqliteStats {
    /// Closures whose changes were committed.
    pub writes: u64,
    /// Transactions they took.
    pub transactions: u64,
    /// Closures run on readers.
    pub reads: u64,
    /// Closures waiting for the writer now.
    pub queued: u64,
}

#[derive(Debug, Default)]
struct Counters {
    writes: AtomicU64,
    transactions: AtomicU64,
    reads: AtomicU64,
}

/// Answers a caller once the fate of the transaction is known.
type Answer = Box<dyn FnOnce(Result<(), SqliteError>) + Send>;

/// What a closure did inside its savepoint.
struct Ran {
    keep: bool,
    answer: Answer,
}

/// A closure in the mailbox, with the caller that waits for it.
trait Write: Send {
    /// Runs it; its answer waits for the commit.
    fn run(self: Box<Self>, connection: &Connection) -> Ran;
    /// Answers without running it.
    fn refuse(self: Box<Self>, error: SqliteError);
}

struct Closure<T, E, F> {
    closure: F,
    tell: oneshot::Sender<Result<T, E>>,
    span: tracing::Span,
}

impl<T, E, F> Write for Closure<T, E, F>
where
    F: FnOnce(&Connection) -> Result<T, E> + Send,
    T: Send + 'static,
    E: From<SqliteError> + Send + 'static,
{
    fn run(self: Box<Self>, connection: &Connection) -> Ran {
        let Self { closure, tell, span } = *self;
        let outcome = span.in_scope(|| catch_unwind(AssertUnwindSafe(|| closure(connection))));
        // The panic hook has logged where.
        let outcome = outcome.unwrap_or_else(|_| Err(SqliteError::Other.into()));
        let keep = outcome.is_ok();
        let answer = move |fate: Result<(), SqliteError>| {
            // Nobody listens any more: the caller went away, its write did not.
            let _ = tell.send(fate.map_err(E::from).and(outcome));
        };
        Ran { keep, answer: Box::new(answer) }
    }

    fn refuse(self: Box<Self>, error: SqliteError) {
        let _ = self.tell.send(Err(error.into()));
    }
}

enum Job {
    Write(Box<dyn Write>),
    /// Outside a transaction: reads of a memory database, checkpoints.
    Alone(ReadJob),
}

type ReadJob = Box<dyn FnOnce(&Connection) + Send>;

/// A database. Cheap to clone; when the last clone is dropped the threads finish their queues and close the file.
#[derive(Clone, Debug)]
pub struct Database {
    doors: Arc<Doors>,
    counters: Arc<Counters>,
    busy_timeout: Duration,
    queue: usize,
    location: Location,
    generation: u64,
}

/// The ways in. A thread ends when its queue is empty and its door is gone.
#[derive(Debug)]
struct Doors {
    writer: Mutex<Option<mpsc::Sender<Job>>>,
    /// Of a file; a memory database reads on the writer.
    readers: Mutex<Option<mpsc::Sender<ReadJob>>>,
    in_memory: bool,
    /// True when the file is closed.
    closed: watch::Receiver<bool>,
}

impl Database {
    /// Opens, migrates, and starts the threads. Blocking: call it at start, or through [`crate::TaskGroup::blocking`].
    ///
    /// # Errors
    /// [`OpenError`]; a store that is locked, newer or altered is left as it was.
    pub fn open(location: &Location, migrations: &[Migration], settings: SqliteSettings) -> Result<Self, OpenError> {
        if migrations.iter().zip(1..).any(|(migration, version)| migration.version != version) {
            return Err(OpenError::MigrationOrder);
        }
        let (mut connection, lock) = match location {
            Location::Memory => (Connection::open_in_memory().map_err(SqliteError::from)?, None),
            Location::File(path) => {
                let lock = lock(path)?;
                check_existing(path, migrations)?;
                create_private(path)?;
                (
                    Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)
                        .map_err(SqliteError::from)?,
                    Some(lock),
                )
            }
        };
        prepare(&connection, &settings).map_err(SqliteError::from)?;
        migrate(&mut connection, migrations)?;
        let generation = raise_generation(&connection, 0).map_err(SqliteError::from)?;

        let counters = Arc::new(Counters::default());
        let (writer, mailbox) = mpsc::channel(settings.queue.max(1));
        let (readers, reading) = match location {
            Location::Memory => (None, Vec::new()),
            Location::File(path) => start_readers(path, &settings).map(|(send, threads)| (Some(send), threads))?,
        };
        let (tell_closed, closed) = watch::channel(false);
        let thread = Writer {
            connection,
            mailbox,
            reading,
            counters: Arc::clone(&counters),
            batch: settings.batch.max(1),
            generation,
            lock,
            closed: tell_closed,
        };
        std::thread::Builder::new()
            .name("sqlite writer".into())
            .spawn(move || thread.run())
            .map_err(path_error(Path::new("sqlite writer")))?;
        let doors =
            Doors { writer: Mutex::new(Some(writer)), in_memory: readers.is_none(), readers: Mutex::new(readers), closed };
        Ok(Self {
            doors: Arc::new(doors),
            counters,
            busy_timeout: settings.busy_timeout,
            queue: settings.queue.max(1),
            location: location.clone(),
            generation,
        })
    }

    /// How often this database was opened for writing or restored: every open has a higher one.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Runs `closure` in the next transaction and answers after its commit. The closure has a savepoint of its own: if it
    /// fails or panics, what it did is undone and its error returned, and nobody else is touched. It must not begin, commit or
    /// roll back by itself, and should be short: everyone waits for it.
    ///
    /// Cancel-safe: dropped before its closure is in the mailbox, nothing happens; dropped later, the closure runs and
    /// commits all the same.
    ///
    /// # Errors
    /// The closure's error, or a [`SqliteError`] of queue or commit.
    pub async fn write<T, E, F>(&self, closure: F) -> Result<T, E>
    where
        F: FnOnce(&Connection) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<SqliteError> + Send + 'static,
    {
        let work = async {
            let (tell, told) = oneshot::channel();
            let job = Closure { closure, tell, span: tracing::Span::current() };
            self.enqueue(Job::Write(Box::new(job))).await?;
            told.await.map_err(|_| SqliteError::Closed)?
        };
        store_op::operation("sqlite", self.name(), "write", work).await
    }

    /// Runs `closure` on a read-only connection, inside one snapshot of all that is committed.
    ///
    /// # Errors
    /// The closure's error, or a [`SqliteError`] of the queue.
    pub async fn read<T, E, F>(&self, closure: F) -> Result<T, E>
    where
        F: FnOnce(&Connection) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<SqliteError> + Send + 'static,
    {
        store_op::operation("sqlite", self.name(), "read", self.read_alone(closure)).await
    }

    async fn read_alone<T, E, F>(&self, closure: F) -> Result<T, E>
    where
        F: FnOnce(&Connection) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<SqliteError> + Send + 'static,
    {
        let (tell, told) = oneshot::channel();
        let (span, counters) = (tracing::Span::current(), Arc::clone(&self.counters));
        let job: ReadJob = Box::new(move |connection: &Connection| {
            if tell.is_closed() {
                return; // Nobody waits: unlike a write, a read has no other purpose.
            }
            counters.reads.fetch_add(1, Ordering::Relaxed);
            let outcome = span.in_scope(|| snapshot(connection, closure));
            let _ = tell.send(outcome);
        });
        if self.doors.in_memory {
            self.enqueue(Job::Alone(job)).await?;
        } else {
            let door = self.doors.readers.lock().clone();
            push(door, job, self.busy_timeout).await?;
        }
        told.await.map_err(|_| SqliteError::Closed)?
    }

    /// The database's own name: that of its file, without folder and ending.
    #[must_use]
    pub fn name(&self) -> &str {
        match &self.location {
            Location::Memory => "memory",
            Location::File(path) => path.file_stem().and_then(std::ffi::OsStr::to_str).unwrap_or_default(),
        }
    }

    /// Bytes of file and log on the disk; 0 in memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let Location::File(path) = &self.location else { return 0 };
        let size = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
        let mut log = path.clone().into_os_string();
        log.push("-wal");
        size(path) + size(Path::new(&log))
    }

    async fn enqueue(&self, job: Job) -> Result<(), SqliteError> {
        let door = self.doors.writer.lock().clone();
        push(door, job, self.busy_timeout).await
    }

    /// Moves the write-ahead log into the file and empties it, so that what was erased is nowhere on the disk any more. Answers
    /// whether it could: a reader that runs longer than the busy time-out keeps its part of the log alive.
    ///
    /// # Errors
    /// A [`SqliteError`] of queue or disk.
    pub async fn checkpoint(&self) -> Result<bool, SqliteError> {
        let (tell, told) = oneshot::channel();
        let job = move |connection: &Connection| {
            let busy = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
            let _ = tell.send(busy.map(|busy| busy == 0).map_err(SqliteError::from));
        };
        self.enqueue(Job::Alone(Box::new(job))).await?;
        told.await.map_err(|_| SqliteError::Closed)?
    }

    /// Counters since open.
    #[must_use]
    pub fn stats(&self) -> SqliteStats {
        SqliteStats {
            writes: self.counters.writes.load(Ordering::Relaxed),
            transactions: self.counters.transactions.load(Ordering::Relaxed),
            reads: self.counters.reads.load(Ordering::Relaxed),
            queued: self.doors.writer.lock().as_ref().map_or(0, |writer| self.queue.saturating_sub(writer.capacity()) as u64),
        }
    }

    /// Finishes what is queued, moves the write-ahead log into the file, closes it and releases the lock. Later calls, of
    /// any clone, get [`SqliteError::Closed`].
    pub async fn close(&self) {
        self.doors.writer.lock().take();
        self.doors.readers.lock().take();
        let mut closed = self.doors.closed.clone();
        // An error means that the thread is gone, which is closed as well.
        let _ = closed.wait_for(|closed| *closed).await;
    }
}

async fn push<J>(door: Option<mpsc::Sender<J>>, job: J, patience: Duration) -> Result<(), SqliteError> {
    let door = door.ok_or(SqliteError::Closed)?;
    let place = tokio::time::timeout(patience, door.reserve()).await.map_err(|_| SqliteError::Busy)?;
    place.map_err(|_| SqliteError::Closed)?.send(job);
    Ok(())
}

/// The writer thread.
struct Writer {
    connection: Connection,
    mailbox: mpsc::Receiver<Job>,
    reading: Vec<JoinHandle<()>>,
    counters: Arc<Counters>,
    batch: usize,
    generation: u64,
    lock: Option<File>,
    closed: watch::Sender<bool>,
}

impl Writer {
    fn run(mut self) {
        while let Some(job) = self.mailbox.blocking_recv() {
            let mut next = Some(job);
            while let Some(job) = next.take() {
                match job {
                    Job::Write(first) => next = self.transaction(first),
                    Job::Alone(job) => job(&self.connection),
                }
            }
        }
        let Self { connection, mailbox, reading, lock, closed, .. } = self;
        drop(mailbox);
        // Only the last connection can fold the log into the file.
        for reader in reading {
            if reader.join().is_err() {
                tracing::error!("a reader thread panicked");
            }
        }
        if let Err(error) =
            connection.execute_batch("PRAGMA optimize; PRAGMA wal_checkpoint(TRUNCATE);").map_err(SqliteError::from)
        {
            tracing::warn!(%error, "the log stays beside the database until the next start");
        }
        if connection.close().is_err() {
            tracing::warn!("the database was not closed cleanly");
        }
        drop(lock);
        closed.send_replace(true);
    }

    /// Begins a transaction that may write: nobody else has taken the database over.
    fn begin(&self) -> Result<(), SqliteError> {
        run(&self.connection, "BEGIN IMMEDIATE")?;
        let found = self
            .connection
            .prepare_cached(GENERATION)
            .and_then(|mut statement| statement.query_row([], |row| row.get::<_, u64>(0)));
        match found.map_err(SqliteError::from) {
            Ok(generation) if self.generation == generation => Ok(()),
            other => {
                let _ = run(&self.connection, "ROLLBACK");
                Err(other.err().unwrap_or(SqliteError::Fenced))
            }
        }
    }

    /// Runs `first` and what else is waiting in one transaction; returns the job that ended the batch, if one did.
    fn transaction(&mut self, first: Box<dyn Write>) -> Option<Job> {
        let connection = &self.connection;
        if let Err(error) = self.begin() {
            tracing::warn!(%error, "no transaction could begin");
            first.refuse(error);
            return None;
        }
        CAUSE.set(None);
        let mut answers: Vec<Ran> = Vec::new();
        let (mut job, mut after) = (Some(first), None);
        while let Some(write) = job.take() {
            if let Some(ran) = in_savepoint(connection, write) {
                answers.push(ran);
            }
            // A full disk or an I/O error makes SQLite roll back the whole transaction by itself.
            if connection.is_autocommit() || answers.len() >= self.batch {
                break;
            }
            match self.mailbox.try_recv() {
                Ok(Job::Write(more)) => job = Some(more),
                Ok(alone @ Job::Alone(_)) => after = Some(alone),
                Err(_) => {}
            }
        }
        let fate = if connection.is_autocommit() {
            let full = CAUSE.get() == Some(SqliteError::Full);
            Err(if full { SqliteError::Full } else { SqliteError::Io })
        } else {
            run(connection, "COMMIT").map_err(|error| {
                let _ = run(connection, "ROLLBACK");
                SqliteError::from(error)
            })
        };
        if fate.is_ok() {
            self.counters.transactions.fetch_add(1, Ordering::Relaxed);
            self.counters.writes.fetch_add(answers.iter().filter(|ran| ran.keep).count() as u64, Ordering::Relaxed);
        }
        for Ran { keep, answer } in answers {
            // A closure that failed by itself keeps its own error: its changes are gone either way.
            answer(if keep { fate } else { Ok(()) });
        }
        after
    }
}

/// Runs a statement that stays prepared.
fn run(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(|_| ())
}

/// Runs a closure in a savepoint of its own; `None` when it could not run and has been told so.
fn in_savepoint(connection: &Connection, write: Box<dyn Write>) -> Option<Ran> {
    if let Err(error) = run(connection, "SAVEPOINT job") {
        write.refuse(error.into());
        return None;
    }
    let Ran { keep, answer } = write.run(connection);
    if connection.is_autocommit() {
        return Some(Ran { keep, answer });
    }
    let undone = if keep { Ok(()) } else { run(connection, "ROLLBACK TO job") };
    let closed = undone.and_then(|()| run(connection, "RELEASE job"));
    Some(match closed.map_err(SqliteError::from) {
        Err(error) if keep => Ran { keep: false, answer: Box::new(move |_| answer(Err(error))) },
        Ok(()) | Err(_) => Ran { keep, answer },
    })
}

fn snapshot<T, E: From<SqliteError>>(connection: &Connection, closure: impl FnOnce(&Connection) -> Result<T, E>) -> Result<T, E> {
    run(connection, "BEGIN DEFERRED").map_err(SqliteError::from)?;
    let outcome = catch_unwind(AssertUnwindSafe(|| closure(connection))).unwrap_or_else(|_| Err(SqliteError::Other.into()));
    // Nothing was written: ending either way is the same, and cannot lose anything.
    if run(connection, "ROLLBACK").is_err() {
        tracing::warn!("a read transaction did not end");
    }
    outcome
}

/// The threads, and the way to them.
type Readers = (mpsc::Sender<ReadJob>, Vec<JoinHandle<()>>);

fn start_readers(path: &Path, settings: &SqliteSettings) -> Result<Readers, OpenError> {
    let (send, receive) = mpsc::channel::<ReadJob>(settings.queue.max(1));
    let receive = Arc::new(Mutex::new(receive));
    let mut threads = Vec::new();
    for n in 0..settings.readers.max(1) {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(SqliteError::from)?;
        prepare_any(&connection, settings).map_err(SqliteError::from)?;
        connection.execute_batch("PRAGMA query_only = ON").map_err(SqliteError::from)?;
        let receive = Arc::clone(&receive);
        let work = move || {
            loop {
                // One thread waits for work while the others wait for the lock: the next job wakes exactly one.
                let job = receive.lock().blocking_recv();
                match job {
                    Some(job) => job(&connection),
                    None => return,
                }
            }
        };
        let thread = std::thread::Builder::new().name(format!("sqlite reader {n}")).spawn(work);
        threads.push(thread.map_err(path_error(path))?);
    }
    Ok((send, threads))
}

/// Statements kept prepared per connection: more than the product has.
const STATEMENTS: usize = 256;

fn prepare_any(connection: &Connection, settings: &SqliteSettings) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.busy_timeout(settings.busy_timeout)?;
    // A plan must not depend on the values bound to it: with partial indexes about, SQLite would else prepare a cached
    // statement anew at every call, which took a third of a recall.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // temp_store: sorting must not leave content in a file. trusted_schema: a planted view must not run functions.
    connection.execute_batch("PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF; PRAGMA cache_size = -8192;")
}

fn prepare(connection: &Connection, settings: &SqliteSettings) -> rusqlite::Result<()> {
    prepare_any(connection, settings)?;
    let synchronous = match settings.synchronous {
        Synchronous::Full => "FULL",
        Synchronous::Normal => "NORMAL",
    };
    connection.execute_batch(&format!(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous}; PRAGMA foreign_keys = ON; PRAGMA secure_delete = ON; \
         PRAGMA journal_size_limit = 67108864; PRAGMA wal_autocheckpoint = 1000;"
    ))?;
    if let Some(bytes) = settings.max_bytes {
        let page: u64 = connection.query_row("PRAGMA page_size", [], |row| row.get(0))?;
        // A file that is larger already keeps its size: SQLite takes the larger of both.
        connection.query_row(&format!("PRAGMA max_page_count = {}", (bytes / page).max(1)), [], |_| Ok(()))?;
    }
    Ok(())
}

fn path_error(path: &Path) -> impl FnOnce(std::io::Error) -> OpenError {
    move |error| OpenError::Path { path: path.to_owned(), kind: error.kind() }
}

/// Options for files that only their owner may read.
fn private() -> OpenOptions {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options
}

fn lock(path: &Path) -> Result<File, OpenError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let name = PathBuf::from(name);
    let file = private().open(&name).map_err(path_error(&name))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::Locked { path: path.to_owned() }),
        Err(TryLockError::Error(error)) => Err(path_error(&name)(error)),
    }
}

/// An empty file is an empty database; SQLite gives the log beside it the same mode.
fn create_private(path: &Path) -> Result<(), OpenError> {
    private().open(path).map(drop).map_err(path_error(path))
}

/// Refuses a damaged, newer or altered store before anything is written to it.
fn check_existing(path: &Path, migrations: &[Migration]) -> Result<(), OpenError> {
    if std::fs::metadata(path).map_or(0, |file| file.len()) == 0 {
        return Ok(());
    }
    let check = || {
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(SqliteError::from)?;
        applied(&connection, migrations)?;
        Ok(is_sound(&connection, "quick_check")?)
    };
    match check() {
        Ok(true) => Ok(()),
        Ok(false) | Err(OpenError::Sqlite(SqliteError::Corrupt)) => Err(OpenError::Damaged { path: path.to_owned() }),
        Err(other) => Err(other),
    }
}

/// Whether SQLite's own check (`quick_check`, `integrity_check`) finds nothing. What it finds may quote values: it is not
/// logged.
fn is_sound(connection: &Connection, check: &str) -> Result<bool, SqliteError> {
    let first: rusqlite::Result<String> = connection.query_row(&format!("PRAGMA {check}(1)"), [], |row| row.get(0));
    match first.map_err(SqliteError::from) {
        Ok(text) => Ok(text == "ok"),
        Err(SqliteError::Corrupt) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Who may write: one row, raised by every open.
const GENERATION: &str = "SELECT generation FROM store_generation";

/// The generation of a database; 0 when it has none yet.
fn generation_of(connection: &Connection) -> rusqlite::Result<u64> {
    let exists = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'store_generation')";
    if connection.query_row(exists, [], |row| row.get::<_, bool>(0))? {
        connection.query_row(GENERATION, [], |row| row.get(0))
    } else {
        Ok(0)
    }
}

/// Raises the generation above what it was and above `floor`; answers the new one.
fn raise_generation(connection: &Connection, floor: u64) -> rusqlite::Result<u64> {
    let transaction = connection.unchecked_transaction()?;
    transaction.execute_batch(
        "CREATE TABLE IF NOT EXISTS store_generation (id INTEGER PRIMARY KEY CHECK (id = 1), generation INTEGER NOT NULL) STRICT",
    )?;
    let generation = transaction.query_row(
        "INSERT INTO store_generation (id, generation) VALUES (1, ?1 + 1) \
         ON CONFLICT (id) DO UPDATE SET generation = max(generation, ?1) + 1 RETURNING generation",
        [floor],
        |row| row.get(0),
    )?;
    transaction.commit()?;
    Ok(generation)
}

/// Number of migrations that the store has, all checked.
fn applied(connection: &Connection, migrations: &[Migration]) -> Result<usize, OpenError> {
    let exists: bool = connection
        .query_row("SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'schema_migrations')", [], |row| {
            row.get(0)
        })
        .map_err(SqliteError::from)?;
    if !exists {
        return Ok(0);
    }
    let mut statement =
        connection.prepare("SELECT version, checksum FROM schema_migrations ORDER BY version").map_err(SqliteError::from)?;
    let rows =
        statement.query_map([], |row| Ok((row.get::<_, u32>(0)?, row.get::<_, Vec<u8>>(1)?))).map_err(SqliteError::from)?;
    let rows: Vec<_> = rows.collect::<Result<_, _>>().map_err(SqliteError::from)?;
    if let Some((store, _)) = rows.get(migrations.len()) {
        let store = rows.last().map_or(*store, |(version, _)| *version);
        return Err(OpenError::Newer { store, binary: migrations.last().map_or(0, |migration| migration.version) });
    }
    for ((version, checksum), migration) in rows.iter().zip(migrations) {
        if *version != migration.version || checksum.as_slice() != migration.checksum().as_bytes() {
            return Err(OpenError::MigrationChanged { version: *version });
        }
    }
    Ok(rows.len())
}

fn migrate(connection: &mut Connection, migrations: &[Migration]) -> Result<(), OpenError> {
    connection
        .execute_batch("CREATE TABLE IF NOT EXISTS schema_migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum BLOB NOT NULL) STRICT")
        .map_err(SqliteError::from)?;
    let done = applied(connection, migrations)?;
    for migration in migrations.iter().skip(done) {
        let step = || -> rusqlite::Result<()> {
            let transaction = connection.unchecked_transaction()?;
            transaction.execute_batch(migration.sql)?;
            transaction.execute(
                "INSERT INTO schema_migrations (version, name, checksum) VALUES (?1, ?2, ?3)",
                (migration.version, migration.name, migration.checksum().as_bytes().as_slice()),
            )?;
            transaction.commit()
        };
        step().map_err(SqliteError::from)?;
        tracing::info!(version = migration.version, name = migration.name, "migrated");
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a file is changed behind the service's back")]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use strata_testkit::eventually;

    const SCHEMA: &[Migration] =
        &[Migration { version: 1, name: "rows", sql: "CREATE TABLE rows (n INTEGER PRIMARY KEY, text TEXT NOT NULL) STRICT" }];

    struct Fixture {
        database: Database,
        path: PathBuf,
        _folder: tempfile::TempDir,
    }

    fn quick() -> SqliteSettings {
        SqliteSettings { synchronous: Synchronous::Normal, ..SqliteSettings::default() }
    }

    fn open(settings: SqliteSettings) -> Fixture {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("strata.db");
        let database = Database::open(&Location::File(path.clone()), SCHEMA, settings).expect("open");
        Fixture { database, path, _folder: folder }
    }

    fn insert(n: i64) -> impl FnOnce(&Connection) -> Result<(), SqliteError> + Send + 'static {
        move |connection| {
            connection.prepare_cached("INSERT INTO rows (n, text) VALUES (?1, 'x')")?.execute([n])?;
            Ok(())
        }
    }

    async fn rows(database: &Database) -> BTreeSet<i64> {
        let all = |connection: &Connection| -> Result<BTreeSet<i64>, SqliteError> {
            let mut statement = connection.prepare_cached("SELECT n FROM rows")?;
            let rows = statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
            Ok(rows)
        };
        database.read(all).await.expect("read")
    }

    /// A writer that is busy until the returned sender is used or dropped.
    async fn block(database: &Database) -> std::sync::mpsc::Sender<()> {
        let (release, wait) = std::sync::mpsc::channel::<()>();
        let (started, running) = oneshot::channel();
        let blocked = database.clone();
        crate::TaskGroup::new().spawn("blocker", async move {
            let hold = move |_: &Connection| -> Result<(), SqliteError> {
                let _ = started.send(());
                let _ = wait.recv();
                Ok(())
            };
            blocked.write(hold).await
        });
        running.await.expect("the writer runs");
        release
    }

    #[tokio::test]
    async fn what_is_answered_is_there_after_reopening() {
        let Fixture { database, path, _folder } = open(SqliteSettings::default());
        database.write(insert(1)).await.expect("write");
        assert_eq!(rows(&database).await, [1].into());
        database.close().await;
        assert_eq!(database.write(insert(2)).await, Err(SqliteError::Closed));
        assert!(!path.with_extension("db-wal").exists(), "the log is in the file");
        let again = Database::open(&Location::File(path), SCHEMA, quick()).expect("reopen");
        assert_eq!(rows(&again).await, [1].into());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn c061_500_cancelled_writes_leave_nothing_behind() {
        let Fixture { database, path, _folder } = open(quick());
        let tasks = crate::TaskGroup::new();
        for n in 0..500_i64 {
            let database = database.clone();
            let write = tasks.spawn("write", async move { database.write(insert(n)).await });
            // At a different point of its life each: unpolled, queued, running, answered.
            for _ in 0..n % 7 {
                tokio::task::yield_now().await;
            }
            write.abort();
        }
        assert!(tasks.shutdown(Duration::from_secs(10)).await);
        let watch = crate::ports::Stopwatch::start();
        database.write(insert(1_000)).await.expect("a normal write after them");
        assert!(watch.elapsed() < Duration::from_secs(2), "back to normal: {:?}", watch.elapsed());
        let fresh = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_ONLY).expect("fresh connection");
        let seen: bool =
            fresh.query_row("SELECT EXISTS (SELECT 1 FROM rows WHERE n = 1000)", [], |row| row.get(0)).expect("query");
        assert!(seen, "committed and visible to others");
    }

    #[tokio::test]
    async fn c060_a_write_whose_caller_left_is_whole() {
        let Fixture { database, .. } = open(quick());
        let release = block(&database).await;
        let mut two = Box::pin(database.write(|connection: &Connection| -> Result<(), SqliteError> {
            insert(1)(connection)?;
            insert(2)(connection)
        }));
        assert!(futures::poll!(&mut two).is_pending(), "in the mailbox");
        drop(two);
        drop(release);
        database.write(insert(3)).await.expect("write");
        assert_eq!(rows(&database).await, [1, 2, 3].into());
    }

    #[tokio::test]
    async fn writes_that_come_together_share_a_transaction() {
        let Fixture { database, .. } = open(SqliteSettings::default());
        let release = block(&database).await;
        let mut waiting: Vec<_> = (0..100).map(|n| Box::pin(database.write(insert(n)))).collect();
        for write in &mut waiting {
            assert!(futures::poll!(write).is_pending());
        }
        drop(release);
        for answer in futures::future::join_all(waiting).await {
            answer.expect("committed");
        }
        let stats = database.stats();
        assert_eq!(stats.writes, 101);
        assert!(stats.transactions <= 2, "{stats:?}");
    }

    #[tokio::test]
    async fn a_failing_closure_undoes_only_itself() {
        let Fixture { database, .. } = open(quick());
        let release = block(&database).await;
        let good = database.write(insert(1));
        let failed = database.write(|connection: &Connection| -> Result<(), Fault> {
            insert(2)(connection)?;
            Err(Fault::field("text", "is refused"))
        });
        let constraint = database.write(|connection: &Connection| -> Result<(), SqliteError> {
            insert(3)(connection)?;
            insert(1)(connection)
        });
        let panicked = database.write(|connection: &Connection| -> Result<(), SqliteError> {
            insert(4)(connection)?;
            panic!("a defect");
        });
        let last = database.write(insert(5));
        let drop_later = async {
            tokio::task::yield_now().await;
            drop(release);
        };
        let (good, failed, constraint, panicked, last, ()) = futures::join!(good, failed, constraint, panicked, last, drop_later);
        assert_eq!(good, Ok(()));
        assert_eq!(failed.expect_err("its own error").reason, Reason::InvalidField);
        assert_eq!(constraint, Err(SqliteError::Constraint));
        assert_eq!(panicked, Err(SqliteError::Other));
        assert_eq!(last, Ok(()));
        assert_eq!(rows(&database).await, [1, 5].into());
        assert_eq!(database.stats().transactions, 1, "all in one");
    }

    #[tokio::test]
    async fn a_closure_that_ends_the_transaction_is_told_so_and_the_writer_goes_on() {
        let Fixture { database, .. } = open(quick());
        let rogue =
            database.write(|connection: &Connection| -> Result<(), SqliteError> { Ok(connection.execute_batch("ROLLBACK")?) });
        assert_eq!(rogue.await, Err(SqliteError::Io));
        database.write(insert(1)).await.expect("the next is served");
        assert_eq!(rows(&database).await, [1].into());
    }

    #[tokio::test]
    async fn a_full_store_says_so_and_recovers() {
        let Fixture { database, .. } = open(quick());
        let limit = |pages: &'static str| {
            move |connection: &Connection| -> Result<(), SqliteError> { Ok(connection.query_row(pages, [], |_| Ok(()))?) }
        };
        database.write(limit("PRAGMA max_page_count = 20")).await.expect("limit");
        let big = |n: i64| {
            move |connection: &Connection| -> Result<(), SqliteError> {
                connection.execute("INSERT INTO rows (n, text) VALUES (?1, ?2)", (n, "x".repeat(200_000)))?;
                Ok(())
            }
        };
        assert_eq!(database.write(big(1)).await, Err(SqliteError::Full));
        assert_eq!(Fault::from(SqliteError::Full).reason, Reason::StoreFull);
        assert!(rows(&database).await.is_empty(), "nothing was written");
        database.write(limit("PRAGMA max_page_count = 10000")).await.expect("room again");
        database.write(big(1)).await.expect("written");
    }

    #[tokio::test]
    async fn a_file_at_its_size_limit_refuses_whole_writes_and_goes_on_reading() {
        let settings = SqliteSettings { max_bytes: Some(256 * 1024), ..quick() };
        let Fixture { database, path, _folder } = open(settings);
        let put = |n: i64| {
            move |connection: &Connection| -> Result<(), SqliteError> {
                // Two rows that belong together.
                for row in [n, n + 1] {
                    connection.execute("INSERT INTO rows (n, text) VALUES (?1, ?2)", (row, "x".repeat(9_000)))?;
                }
                Ok(())
            }
        };
        let mut kept = BTreeSet::new();
        let refused = loop {
            let n = kept.len() as i64;
            match database.write(put(n)).await {
                Ok(()) => kept.extend([n, n + 1]),
                Err(error) => break error,
            }
        };
        assert_eq!(refused, SqliteError::Full);
        assert_eq!(rows(&database).await, kept, "nothing of the refused write, all of the others");
        let make_room = |connection: &Connection| -> Result<(), SqliteError> {
            connection.execute("DELETE FROM rows WHERE n < 4", [])?;
            Ok(())
        };
        database.write(make_room).await.expect("forgetting works when full");
        database.write(put(1_000)).await.expect("and makes room");
        database.close().await;
        let larger = Database::open(&Location::File(path), SCHEMA, quick()).expect("a larger limit");
        larger.write(put(2_000)).await.expect("room");
    }

    #[tokio::test]
    async fn a_file_locked_by_somebody_else_is_a_bounded_wait() {
        let settings = SqliteSettings { busy_timeout: Duration::from_millis(50), ..quick() };
        let Fixture { database, path, _folder } = open(settings);
        let other = Connection::open(&path).expect("a tool opens the file");
        other.execute_batch("BEGIN IMMEDIATE").expect("and locks it");
        assert_eq!(database.write(insert(1)).await, Err(SqliteError::Busy));
        assert!(rows(&database).await.is_empty(), "reads go on");
        other.execute_batch("ROLLBACK").expect("it lets go");
        database.write(insert(1)).await.expect("writes go on");
    }

    #[tokio::test]
    async fn a_process_whose_database_was_taken_over_writes_nothing_any_more() {
        let Fixture { database, path, _folder } = open(quick());
        database.write(insert(1)).await.expect("write");
        // As another machine would on a file system without locks.
        let other = Connection::open(&path).expect("opens");
        assert_eq!(raise_generation(&other, 0).expect("raised"), database.generation() + 1);
        assert_eq!(database.write(insert(2)).await, Err(SqliteError::Fenced));
        assert_eq!(Fault::from(SqliteError::Fenced).reason, Reason::NotServing);
        assert_eq!(rows(&database).await, [1].into());
    }

    #[test]
    fn a_damaged_file_is_refused_unchanged() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("strata.db");
        let whole = Connection::open(&path).expect("opens");
        whole.execute_batch(SCHEMA[0].sql).expect("a table");
        for n in 0..500 {
            whole.execute("INSERT INTO rows (n, text) VALUES (?1, ?2)", (n, "y".repeat(100))).expect("a row");
        }
        drop(whole);
        let mut bytes = std::fs::read(&path).expect("file");
        // A page of the table, so that opening alone would not notice.
        bytes[5 * 4096..6 * 4096].fill(0x5a);
        std::fs::write(&path, &bytes).expect("damaged");
        let refused = Database::open(&Location::File(path.clone()), SCHEMA, quick()).expect_err("refused");
        assert_eq!(refused, OpenError::Damaged { path: path.clone() });
        assert!(refused.to_string().contains("strata restore"), "says what to do: {refused}");
        assert!(std::fs::read(&path).expect("file") == bytes, "unchanged");
    }

    #[test]
    fn c137_the_ends_of_lines_of_a_migration_do_not_count() {
        let lf = Migration { version: 1, name: "a", sql: "CREATE TABLE a (n);\nCREATE TABLE b (n);\n" };
        let crlf = Migration { sql: "CREATE TABLE a (n);\r\nCREATE TABLE b (n);\r\n", ..lf };
        assert_eq!(lf.checksum(), crlf.checksum());
        assert_ne!(lf.checksum(), Migration { sql: "CREATE TABLE a (n); CREATE TABLE b (n);", ..lf }.checksum());
    }

    #[tokio::test]
    async fn a_full_mailbox_is_a_bounded_wait() {
        let Fixture { database, .. } = open(SqliteSettings { queue: 2, busy_timeout: Duration::from_millis(50), ..quick() });
        let release = block(&database).await;
        let mut waiting: Vec<_> = (0..2).map(|n| Box::pin(database.write(insert(n)))).collect();
        for write in &mut waiting {
            assert!(futures::poll!(write).is_pending());
        }
        assert_eq!(database.stats().queued, 2);
        assert_eq!(database.write(insert(9)).await, Err(SqliteError::Busy));
        assert_eq!(Fault::from(SqliteError::Busy).reason.code(), strata_core::Code::Unavailable);
        drop(release);
        futures::future::join_all(waiting).await;
        assert_eq!(rows(&database).await, [0, 1].into(), "the refused write did not happen");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn c133_c136_readers_and_writers_together_meet_no_lock_error() {
        let Fixture { database, .. } = open(quick());
        let tasks = crate::TaskGroup::new();
        let mut all = Vec::new();
        for writer in 0..8_i64 {
            let database = database.clone();
            all.push(tasks.spawn("writer", async move {
                for n in 0..50 {
                    // Reads, then writes, in one transaction.
                    let step = move |connection: &Connection| -> Result<(), SqliteError> {
                        let count: i64 = connection.query_row("SELECT count(*) FROM rows", [], |row| row.get(0))?;
                        connection
                            .execute("INSERT INTO rows (n, text) VALUES (?1, ?2)", (writer * 1_000 + n, count.to_string()))?;
                        Ok(())
                    };
                    database.write(step).await?;
                }
                Ok::<_, SqliteError>(())
            }));
        }
        for _ in 0..16 {
            let database = database.clone();
            all.push(tasks.spawn("reader", async move {
                for _ in 0..50 {
                    let twice = |connection: &Connection| -> Result<(i64, i64), SqliteError> {
                        let count = || connection.query_row("SELECT count(*) FROM rows", [], |row| row.get::<_, i64>(0));
                        Ok((count()?, count()?))
                    };
                    let (first, second) = database.read(twice).await?;
                    assert_eq!(first, second, "one snapshot per closure");
                }
                Ok(())
            }));
        }
        for one in all {
            assert_eq!(one.await.expect("no panic"), Ok(()));
        }
        let texts = |connection: &Connection| -> Result<i64, SqliteError> {
            Ok(connection.query_row("SELECT count(DISTINCT text) FROM rows", [], |row| row.get(0))?)
        };
        assert_eq!(database.read(texts).await, Ok(400), "each saw all before it: writes are one after the other");
    }

    #[tokio::test]
    async fn readers_cannot_write() {
        let Fixture { database, .. } = open(quick());
        assert_eq!(database.read(insert(1)).await, Err(SqliteError::Io));
        assert!(rows(&database).await.is_empty());
    }

    #[tokio::test]
    async fn a_second_writer_is_refused_until_the_first_has_closed() {
        let Fixture { database, path, _folder } = open(quick());
        let location = Location::File(path.clone());
        let second = || Database::open(&location, SCHEMA, quick());
        assert_eq!(second().expect_err("in use"), OpenError::Locked { path });
        drop(database);
        eventually(Duration::from_secs(5), || async { second().is_ok() }).await;
    }

    #[test]
    fn migrations_run_once_and_a_newer_or_altered_store_is_left_alone() {
        const TWO: &[Migration] =
            &[SCHEMA[0], Migration { version: 2, name: "more", sql: "ALTER TABLE rows ADD COLUMN more TEXT" }];
        const ALTERED: &[Migration] = &[Migration { version: 1, name: "rows", sql: "CREATE TABLE rows (n INTEGER)" }];
        const ALTERED_TOO: &[Migration] = &[ALTERED[0], TWO[1]];
        const GAP: &[Migration] = &[Migration { version: 2, name: "rows", sql: "" }];
        const BROKEN: &[Migration] =
            &[SCHEMA[0], TWO[1], Migration { version: 3, name: "broken", sql: "CREATE TABLE half (n INTEGER); NONSENSE" }];
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("strata.db");
        let location = Location::File(path.clone());
        let open = |migrations| Database::open(&location, migrations, quick());
        // Closing is asynchronous: done when the lock is free.
        let reopen = |migrations| {
            let outcome = open(migrations).map(drop);
            while lock(&path).is_err() {
                std::thread::yield_now();
            }
            outcome
        };
        assert_eq!(reopen(TWO), Ok(()));
        assert_eq!(reopen(TWO), Ok(()), "again: nothing to do");
        assert_eq!(reopen(BROKEN), Err(OpenError::Sqlite(SqliteError::Other)));
        assert_eq!(reopen(TWO), Ok(()), "a broken migration left nothing");
        let before = std::fs::read(&path).expect("file");
        assert_eq!(reopen(SCHEMA), Err(OpenError::Newer { store: 2, binary: 1 }));
        assert_eq!(reopen(ALTERED), Err(OpenError::Newer { store: 2, binary: 1 }));
        assert_eq!(reopen(ALTERED_TOO), Err(OpenError::MigrationChanged { version: 1 }));
        assert_eq!(reopen(GAP), Err(OpenError::MigrationOrder));
        assert!(std::fs::read(&path).expect("file") == before, "refused unchanged");
    }

    #[test]
    fn what_is_no_database_is_refused_unchanged() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("strata.db");
        let text = "not a database, but long enough to be looked at ".repeat(50);
        std::fs::write(&path, &text).expect("write");
        let opened = Database::open(&Location::File(path.clone()), SCHEMA, quick());
        assert_eq!(opened.expect_err("refused"), OpenError::Damaged { path: path.clone() });
        assert_eq!(std::fs::read_to_string(&path).expect("read"), text);
    }

    #[tokio::test]
    async fn a_memory_database_reads_only_what_is_committed() {
        let database = Database::open(&Location::Memory, SCHEMA, quick()).expect("open");
        let release = block(&database).await;
        let (write, read, late) = (database.write(insert(1)), rows(&database), database.write(insert(2)));
        let drop_later = async {
            tokio::task::yield_now().await;
            drop(release);
        };
        let (write, seen, late, ()) = futures::join!(write, read, late, drop_later);
        write.expect("write");
        late.expect("write");
        assert_eq!(seen, [1].into());
    }

    #[tokio::test]
    async fn deleted_text_is_not_in_the_file() {
        let Fixture { database, path, _folder } = open(quick());
        const SECRET: &str = "the-forgotten-memory-\u{8fa3}";
        let put = |connection: &Connection| -> Result<(), SqliteError> {
            connection.execute("INSERT INTO rows (n, text) VALUES (1, ?1)", [SECRET])?;
            Ok(())
        };
        database.write(put).await.expect("put");
        let delete = |connection: &Connection| -> Result<(), SqliteError> {
            connection.execute("DELETE FROM rows", [])?;
            Ok(())
        };
        database.write(delete).await.expect("delete");
        assert_eq!(database.checkpoint().await, Ok(true));
        for entry in std::fs::read_dir(path.parent().expect("folder")).expect("list") {
            let bytes = std::fs::read(entry.expect("entry").path()).expect("read");
            assert!(!bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes()));
        }
    }

    #[test]
    fn no_error_tells_what_was_written() {
        for error in [
            SqliteError::Full,
            SqliteError::Busy,
            SqliteError::Io,
            SqliteError::Corrupt,
            SqliteError::Closed,
            SqliteError::Fenced,
            SqliteError::Constraint,
            SqliteError::NoRows,
            SqliteError::Other,
        ] {
            let fault = Fault::from(error);
            assert!(!fault.message.to_ascii_lowercase().contains("sqlite"), "{}", fault.message);
        }
        let hint = rusqlite::Error::InvalidParameterName("the secret".into());
        assert_eq!(kind_of(&hint), "InvalidParameterName");
    }
}
