//! The erasure log (rule E8): what was erased, in a file of its own that no backup of the database holds, so that an older
//! backup does not bring it back. Ids, references and keyed digests; no content.
//!
//! ```text
//!   erasures.jsonl   a line per erasure when it is asked for, another one when it is closed: HASH SPACE JSON
//!   HASH             blake3(hash of the line before || JSON): a line that was altered or taken out shows
//! ```
//!
//! Where there is a Redis, each line is there too ([`LogCopy`]), signed: the file may be lost with its volume.

use crate::metadata::erasures::{self, Erasure, Item, Scope, Sight, Step};
use crate::metadata::wipe::{self, At, Sweep, Tally};
use crate::metadata::{Sql as _, Visible, derived, ledger, owner, search};
use crate::scope::OwnerScope;
use parking_lot::Mutex;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use strata_core::policy::gate::{Seals, Tombstones};
use strata_core::{AgentId, Fault, MemoryId, Owner, Reason, TenantId, Timestamp, UserId};
use strata_runtime::TaskGroup;
use strata_runtime::redis_mirror::RedisMirror;
use strata_runtime::redis_store::RedisPool;
use strata_runtime::sqlite::Database;
use uuid::Uuid;

/// Name of the file in its folder.
pub const FILE: &str = "erasures.jsonl";

/// Names the row of `meta` that says that a database was restored and nothing was erased again yet.
pub const PENDING: &str = "erasures_to_replay";
/// Value of [`PENDING`]: there was a log to replay.
pub const PENDING_LOG: &str = "restored";
/// Value of [`PENDING`]: there was none, and whoever restored accepted that.
pub const PENDING_LOST: &str = "restored, erasures lost";

/// Hash of the copy in Redis, and what its lines are signed for.
const COPY: &str = "strata:erasures";
const SIGNED: &str = "erasure log";

/// What one line says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Erasure.
    pub erasure_id: Uuid,
    /// Tenant.
    pub tenant: String,
    /// User.
    pub user: String,
    /// Agent; empty at user level.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub agent: String,
    /// All of the owner.
    #[serde(default)]
    pub everything: bool,
    /// Erase epoch.
    pub epoch: u64,
    /// Who asked.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// When, in microseconds.
    pub request_time: i64,
    /// When it was closed; absent on the first line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub close_time: Option<i64>,
    /// Records.
    pub records: BTreeSet<Uuid>,
    /// Turns that they quoted.
    pub turns: BTreeMap<String, BTreeSet<u32>>,
    /// Keyed digests of what they said, hexadecimal (rule E7).
    pub tombstones: BTreeSet<String>,
    /// Entities that went; on the line of the close.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub entities: BTreeSet<Uuid>,
    /// Skills that went.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub skills: BTreeSet<Uuid>,
    /// Episodes that went.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub episodes: BTreeSet<Uuid>,
    /// Records, entities and skills whose quotes had words taken out.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub redacted: BTreeSet<Uuid>,
}

impl Line {
    /// The line of an erasure as the journal has it now.
    ///
    /// # Errors
    /// As the database says.
    pub(crate) fn of(db: &Connection, erasure: &Erasure) -> Result<Self, Fault> {
        let ids = |item| -> Result<BTreeSet<Uuid>, Fault> {
            Ok(erasures::items(db, erasure.erasure_id, item, false, u32::MAX)?.into_iter().map(|id| id.0).collect())
        };
        let mut turns: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
        for scope in erasures::scopes(db, erasure.erasure_id)? {
            for (session, seqs) in scope.turns {
                turns.entry(session).or_default().extend(seqs);
            }
        }
        let mut digests = db.prepare_cached("SELECT digest FROM tombstones WHERE user_id = ?1 AND time = ?2").sql()?;
        let rows = digests.query_map((erasure.user_id, erasure.request_time.micros()), |row| row.get::<_, [u8; 32]>(0)).sql()?;
        let tombstones = rows.map(|row| Ok(blake3::Hash::from_bytes(row.sql()?).to_hex().to_string()));
        Ok(Self {
            erasure_id: erasure.erasure_id,
            tenant: erasure.owner.tenant.as_str().to_owned(),
            user: erasure.owner.user.as_str().to_owned(),
            agent: erasure.owner.agent.as_ref().map_or_else(String::new, |agent| agent.as_str().to_owned()),
            everything: erasure.everything,
            epoch: erasure.epoch,
            actor: erasure.actor.clone(),
            reason: erasure.reason.clone(),
            request_time: erasure.request_time.micros(),
            close_time: erasure.close_time.map(Timestamp::micros),
            records: ids(Item::Record)?,
            turns,
            tombstones: tombstones.collect::<Result<_, Fault>>()?,
            entities: ids(Item::Entity)?,
            skills: ids(Item::Skill)?,
            episodes: ids(Item::Episode)?,
            redacted: ids(Item::Redacted)?,
        })
    }

    /// What it is told apart by: the erasure, and whether it is the line of the close.
    const fn name(&self) -> (Uuid, bool) {
        (self.erasure_id, self.close_time.is_some())
    }

    fn owner(&self) -> Result<Owner, Fault> {
        Ok(Owner {
            tenant: TenantId::new(self.tenant.clone())?,
            user: UserId::new(self.user.clone())?,
            agent: if self.agent.is_empty() { None } else { Some(AgentId::new(self.agent.clone())?) },
        })
    }
}

/// Why a log cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// There is none.
    #[error("{path} is not there")]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// It cannot be read or written.
    #[error("{path}: {kind}")]
    Path {
        /// The file.
        path: PathBuf,
        /// Why.
        kind: std::io::ErrorKind,
    },
    /// A line does not follow from the one before it.
    #[error("{path} was altered: line {line} does not follow from the one before it")]
    Altered {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
}

impl From<LogError> for Fault {
    fn from(error: LogError) -> Self {
        tracing::error!(%error, "the erasure log cannot be used");
        Self::new(Reason::StoreUnavailable, "the erasure log cannot be used; the log of the server names the file")
    }
}

fn at(path: &Path) -> impl FnOnce(std::io::Error) -> LogError {
    move |error| LogError::Path { path: path.to_owned(), kind: error.kind() }
}

fn chain(previous: &blake3::Hash, json: &str) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(previous.as_bytes());
    hasher.update(json.as_bytes());
    hasher.finalize()
}

const START: [u8; 32] = [0; 32];

/// Lines of a text, the hash of the last one, and how many bytes they take: a last line that was cut off by a crash is none.
fn parse(path: &Path, text: &str) -> Result<(Vec<Line>, blake3::Hash, usize), LogError> {
    let (mut lines, mut previous, mut bytes) = (Vec::new(), blake3::Hash::from_bytes(START), 0);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let Some(whole) = line.strip_suffix('\n') else { break };
        let altered = || LogError::Altered { path: path.to_owned(), line: number + 1 };
        let (hash, json) = whole.split_once(' ').ok_or_else(altered)?;
        let expected = chain(&previous, json);
        if blake3::Hash::from_hex(hash).ok() != Some(expected) {
            return Err(altered());
        }
        lines.push(serde_json::from_str(json).map_err(|_| altered())?);
        previous = expected;
        bytes += line.len();
    }
    Ok((lines, previous, bytes))
}

/// Every line of the log in a folder.
///
/// # Errors
/// [`LogError`]; [`LogError::Missing`] when there is no file.
pub fn read(folder: &Path) -> Result<Vec<Line>, LogError> {
    let path = folder.join(FILE);
    match std::fs::read_to_string(&path) {
        Ok(text) => parse(&path, &text).map(|(lines, ..)| lines),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(LogError::Missing { path }),
        Err(error) => Err(at(&path)(error)),
    }
}

#[derive(Debug)]
struct Open {
    file: File,
    last: blake3::Hash,
    /// What is in it: erasures, and whether their close is.
    known: BTreeSet<(Uuid, bool)>,
}

/// The log of a running role. Blocking: call it through [`strata_runtime::TaskGroup::blocking`].
#[derive(Clone, Debug)]
pub struct ErasureLog {
    path: PathBuf,
    open: Arc<Mutex<Open>>,
}

impl ErasureLog {
    /// Opens the log in a folder, or begins one. Only its owner may read it.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn open(folder: &Path) -> Result<Self, LogError> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(at(folder))?;
        let path = folder.join(FILE);
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(at(&path))?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(at(&path))?;
        let (lines, last, bytes) = parse(&path, &text)?;
        if bytes < text.len() {
            tracing::warn!(path = %path.display(), "the last line of the erasure log was cut off; it is written again");
            file.set_len(bytes as u64).map_err(at(&path))?;
        }
        file.seek(SeekFrom::End(0)).map_err(at(&path))?;
        file.sync_all().map_err(at(&path))?;
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(at(folder))?;
        let known = lines.iter().map(Line::name).collect();
        Ok(Self { path, open: Arc::new(Mutex::new(Open { file, last, known })) })
    }

    /// Writes a line and waits for the disk; one that is there already is not written again.
    ///
    /// # Errors
    /// [`LogError`]; a part of the line may be there then, and is cut off at the next open or append.
    pub fn append(&self, line: &Line) -> Result<(), LogError> {
        let mut open = self.open.lock();
        let name = line.name();
        if open.known.contains(&name) {
            return Ok(());
        }
        let json = serde_json::to_string(line)
            .map_err(|_| LogError::Path { path: self.path.clone(), kind: std::io::ErrorKind::InvalidData })?;
        let hash = chain(&open.last, &json);
        let before = open.file.seek(SeekFrom::End(0)).map_err(at(&self.path))?;
        let text = format!("{} {json}\n", hash.to_hex());
        let written = open.file.write_all(text.as_bytes()).and_then(|()| open.file.sync_data());
        if let Err(error) = written {
            let _ = open.file.set_len(before);
            return Err(at(&self.path)(error));
        }
        open.last = hash;
        open.known.insert(name);
        Ok(())
    }

    /// Names of its lines.
    fn names(&self) -> BTreeSet<(Uuid, bool)> {
        self.open.lock().known.clone()
    }

    /// Those of `lines` that are not in it.
    pub(crate) fn lacks(&self, lines: Vec<Line>) -> Vec<Line> {
        let open = self.open.lock();
        lines.into_iter().filter(|line| !open.known.contains(&line.name())).collect()
    }

    /// Every line, as it stands in the file.
    fn lines(&self) -> Result<Vec<Line>, LogError> {
        // Nobody appends meanwhile: half a line would be taken for a cut one.
        let _open = self.open.lock();
        let text = std::fs::read_to_string(&self.path).map_err(at(&self.path))?;
        parse(&self.path, &text).map(|(lines, ..)| lines)
    }
}

/// What stands in the copy of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Lines, oldest erasure first.
    pub lines: Vec<Line>,
    /// Entries that this deployment did not sign: another one's, or altered.
    pub foreign: usize,
}

/// The copy of the log in Redis: a field per line of one hash, signed with the tenant's key, so that nobody who only reaches
/// Redis can have something erased. Order is no matter: every line stands for itself.
#[derive(Clone, Debug)]
pub struct LogCopy {
    mirror: RedisMirror,
    seals: Seals,
}

impl LogCopy {
    /// In a Redis, signed with the deployment's secret.
    #[must_use]
    pub fn new(pool: RedisPool, secret: &[u8]) -> Self {
        Self { mirror: RedisMirror::new(pool, COPY), seals: Seals::new(secret) }
    }

    fn field((erasure_id, closed): (Uuid, bool)) -> String {
        format!("{erasure_id}:{}", if closed { "closed" } else { "asked" })
    }

    /// Every line of it.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    pub async fn read(&self) -> Result<Copied, Fault> {
        let mut out = Copied::default();
        for (field, text) in self.mirror.read().await? {
            let line = text.split_once(' ').and_then(|(signature, json)| {
                let line: Line = serde_json::from_str(json).ok()?;
                let tenant = TenantId::new(line.tenant.clone()).ok()?;
                let signed = self.seals.verify(&tenant, SIGNED, json.as_bytes(), signature);
                (signed && field == Self::field(line.name())).then_some(line)
            });
            match line {
                Some(line) => out.lines.push(line),
                None => out.foreign += 1,
            }
        }
        out.lines.sort_by_key(|line| (line.request_time, line.close_time));
        Ok(out)
    }

    /// Writes lines; one that is there is written again.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`, `STORE_FULL`.
    pub async fn put<'a>(&self, lines: impl IntoIterator<Item = &'a Line>) -> Result<(), Fault> {
        let mut texts = Vec::new();
        for line in lines {
            let json = serde_json::to_string(line).map_err(|_| Fault::new(Reason::Internal, "a line cannot be written"))?;
            let tenant = TenantId::new(line.tenant.clone())?;
            texts.push((Self::field(line.name()), format!("{} {json}", self.seals.sign(&tenant, SIGNED, json.as_bytes()))));
        }
        Ok(self.mirror.put(&texts).await?)
    }

    /// Gives the copy what the file has and it does not. Redis may have lost anything, or was away.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`, `STORE_FULL`.
    pub async fn catch_up(&self, log: &ErasureLog, tasks: &TaskGroup) -> Result<(), Fault> {
        // By name: it may hold as many and lack some, where entries of another deployment stand beside them.
        let there = self.mirror.names().await?;
        if log.names().into_iter().all(|name| there.contains(&Self::field(name))) {
            return Ok(());
        }
        let file = log.clone();
        let lines = tasks.blocking("erasure log", move || file.lines()).await;
        let lines = lines.map_err(|_| Fault::new(Reason::Internal, "the erasure log could not be read"))??;
        self.put(lines.iter().filter(|line| !there.contains(&Self::field(line.name())))).await
    }
}

/// Lines of the file and of its copy, each once.
#[must_use]
pub fn union(mut file: Vec<Line>, copy: Vec<Line>) -> Vec<Line> {
    let known: BTreeSet<_> = file.iter().map(Line::name).collect();
    file.extend(copy.into_iter().filter(|line| !known.contains(&line.name())));
    file
}

/// What a replay did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Erasures of the log.
    pub erasures: u64,
    /// Records, entities, skills and episodes that had come back and are gone again; turns and quotes that were redacted again.
    pub removed: u64,
}

/// Erases again what a restored database brings back, and says in the audit that it was restored; none when that is done. Runs
/// before anything is served.
///
/// # Errors
/// As the database says.
pub async fn replay_pending(
    database: &Database,
    lines: Vec<Line>,
    tombstones: Tombstones,
    from: &str,
    reason: &'static str,
    now: Timestamp,
) -> Result<Option<Replayed>, Fault> {
    let from = from.to_owned();
    let work = move |db: &Connection| {
        if search::meta(db, PENDING)?.is_none() {
            return Ok(None);
        }
        let done = replay(db, &lines, &tombstones, now)?;
        let entry = ledger::AuditEntry {
            time: now,
            tenant: "",
            user: "",
            action: "RESTORED",
            memory_id: None,
            actor: "strata",
            rule: "E8",
            subject: &from,
            reason,
        };
        ledger::audit(db, &entry)?;
        search::set_meta(db, PENDING, None)?;
        Ok::<_, Fault>(Some(done))
    };
    let done = database.write(work).await?;
    if done.is_some() {
        database.checkpoint().await?;
    }
    Ok(done)
}

/// Erases what the log knows of and the journal of the database does not: another file was put in its place by hand, or the
/// copy came back after it.
///
/// # Errors
/// As the database says.
pub async fn replay_unknown(
    database: &Database,
    lines: Vec<Line>,
    tombstones: Tombstones,
    now: Timestamp,
) -> Result<Replayed, Fault> {
    let unknown = move |db: &Connection| {
        let mut out = Vec::new();
        for line in lines {
            if erasures::any(db, line.erasure_id)?.is_none() {
                out.push(line);
            }
        }
        Ok::<_, Fault>(out)
    };
    let lines = database.read(unknown).await?;
    if lines.is_empty() {
        return Ok(Replayed::default());
    }
    let done = database.write(move |db| replay(db, &lines, &tombstones, now)).await?;
    database.checkpoint().await?;
    Ok(done)
}

/// Erases again what an older database brings back. Runs before anything is served, in the caller's transaction.
///
/// # Errors
/// As the database says.
pub fn replay(db: &Connection, lines: &[Line], tombstones: &Tombstones, now: Timestamp) -> Result<Replayed, Fault> {
    let mut done = Replayed::default();
    for line in lines {
        done.erasures += u64::from(line.close_time.is_none());
        done.removed += replay_line(db, line, tombstones, now)?;
    }
    Ok(done)
}

fn replay_line(db: &Connection, line: &Line, tombstones: &Tombstones, now: Timestamp) -> Result<u64, Fault> {
    let owner = line.owner()?;
    let time = Timestamp(line.request_time);
    let stored = owner::ensure(db, &OwnerScope::of_service(owner.clone()))?;
    erasures::raise_epoch(db, stored.user_id, line.epoch)?;
    if line.everything {
        let of = owner.agent.is_some().then_some(stored.owner_id);
        erasures::close_past(db, stored.user_id, of, time)?;
    }
    let digest = |text: &String| blake3::Hash::from_hex(text).map(|hash| *hash.as_bytes());
    let digests: Vec<[u8; 32]> = line.tombstones.iter().filter_map(|text| digest(text).ok()).collect();
    ledger::bury(db, stored.user_id, &digests, time)?;

    let known = erasures::any(db, line.erasure_id)?;
    let erasure = match &known {
        Some(known) => known.clone(),
        None => Erasure {
            erasure_id: line.erasure_id,
            user_id: stored.user_id,
            owner,
            everything: line.everything,
            epoch: line.epoch,
            actor: line.actor.clone(),
            reason: line.reason.clone(),
            request_time: time,
            close_time: None,
            file_time: None,
        },
    };
    let owner_ids = erasures::owner_ids(db, &erasure)?;
    let visible = Visible { user_id: stored.user_id, owner_ids, revision: 0 };
    let ids: BTreeSet<MemoryId> = line.records.iter().copied().map(MemoryId).collect();
    // What the records say stands in them: they are back. What was made of them says what others say, too: it goes, but is not
    // looked for.
    let (mut named, mut made) = (BTreeSet::new(), Vec::new());
    for id in &ids {
        if derived::is_made(db, *id)? {
            made.push(*id);
        } else {
            named.insert(*id);
        }
    }
    let (versions, mut scopes) = erasures::gather(db, &visible, &named)?;
    scopes.push(Scope { turns: line.turns.clone(), ..Scope::default() });
    if known.is_none() {
        // Other layers were not brought back by this: nothing is left to do there.
        erasures::enter(db, &erasure, &scopes, &[Step::Derived])?;
    }
    for id in ids.iter().chain(versions.keys()) {
        erasures::note(db, erasure.erasure_id, Item::Record, *id, true)?;
    }
    let sight = Sight::of(&scopes);
    let mut tally = Tally::default();
    for id in versions.keys().chain(&made) {
        wipe::remove(db, &erasure, tombstones, *id, now, &mut tally)?;
    }
    for (item, ids) in [(Item::Entity, &line.entities), (Item::Skill, &line.skills), (Item::Episode, &line.episodes)] {
        for id in ids {
            wipe::remove_part(db, &erasure, item, MemoryId(*id), now, &mut tally)?;
        }
    }
    for id in &line.redacted {
        wipe::blank_quotes(db, MemoryId(*id), &mut tally)?;
    }
    let sweep = Sweep { erasure: &erasure, sight: &sight, tombstones, now, change: true };
    let mut at = Some(At::default());
    while let Some(from) = at {
        at = sweep.page(db, from, &mut tally)?;
    }
    let removed = tally.0.values().map(|(_, removed)| removed).sum();
    for (store, (found, removed)) in tally.0 {
        erasures::add_store(
            db,
            erasure.erasure_id,
            &erasures::StoreRow { store: store.to_owned(), found, removed, verified: true, ..Default::default() },
        )?;
    }
    if known.is_none() {
        erasures::done(db, erasure.erasure_id, Step::Derived)?;
        erasures::close(db, &erasure, now)?;
    }
    if removed > 0 {
        erasures::audit(db, &erasure, "ERASE_REPLAYED", None, &erasure.erasure_id.to_string(), now)?;
    }
    Ok(removed)
}
