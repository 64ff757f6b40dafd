//! The boards of this process: a sharded map, one lock per shard, never held across an await. Whatever one call changes,
//! it changes under one lock, so a board is never seen half-written and a request id never has two effects.

use crate::checkpoint::{Loaded, SaveOutcome, SavedBoard, Snapshot, Tombstone, encode};
use crate::requests::{Replay, RequestKey, RequestLog, reused};
use parking_lot::{Mutex, RwLock};
use prost::Message;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use strata_core::policy::erasure::stale_header;
use strata_core::policy::working::{Board, Change, Seal, Settle, check_owner, ended};
use strata_core::{Fault, Owner, Reason, TaskId, TenantId, Timestamp, limits, time::SECOND};
use tokio::sync::watch;

/// Shards: many more than threads, so that two calls rarely wait for one another.
const SHARDS: usize = 64;
/// Resident bytes of an empty board, about: the entry, its ids, its collections.
const BOARD_BYTES: usize = 1_024;
/// Resident bytes of a fact, todo or digest beside its texts, about.
const SLOT_BYTES: usize = 192;
/// Resident bytes of a tombstone, about.
const TOMBSTONE_BYTES: usize = 512;
/// Beyond its idle time a checkpoint is kept for this share of it, for a touch that has not been written yet.
const KEEP_SHARE: i64 = 4;

/// Names a task: its id is unique in its tenant, so that a foreign one is told by comparison (rule W2).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TaskKey {
    tenant: TenantId,
    task: TaskId,
}

impl TaskKey {
    /// Of an owner's task.
    pub fn new(owner: &Owner, task: &TaskId) -> Self {
        Self { tenant: owner.tenant.clone(), task: task.clone() }
    }

    /// The task's id.
    pub fn task(&self) -> &TaskId {
        &self.task
    }
}

#[derive(Debug)]
struct Live {
    board: Board,
    requests: RequestLog,
    /// Idle deadline of the last checkpoint.
    saved_deadline: Timestamp,
    /// Another copy serves the task: this one must not acknowledge anything any more.
    superseded: bool,
    /// Tells watchers that there is something new; made with the first. Holds one mark, whatever they have read: no write waits.
    changes: Option<watch::Sender<()>>,
}

impl Live {
    fn resident(&self) -> usize {
        let slots = self.board.facts.len() + self.board.todos.len() + self.board.digests.len();
        BOARD_BYTES + self.board.bytes + slots * SLOT_BYTES + self.requests.bytes()
    }

    /// Tells watchers, if there are any.
    fn tell(&self) {
        if let Some(changes) = &self.changes {
            changes.send_replace(());
        }
    }

    /// A read keeps a board alive, but is not worth a checkpoint each time.
    fn touched_for_long(&self) -> bool {
        self.board.idle_deadline.since(self.saved_deadline) >= self.board.idle_micros / (2 * KEEP_SHARE)
    }

    /// When a checkpoint taken now may be dropped.
    fn expire_time(&self) -> Timestamp {
        self.board.idle_deadline.plus(self.kept_beyond())
    }

    /// The idle deadline that a checkpoint of this board was taken with.
    fn idle_deadline_of(&self, snapshot: &Snapshot) -> Timestamp {
        snapshot.expire_time.plus(-self.kept_beyond())
    }

    /// How long a checkpoint outlives the idle deadline it was taken with: for a touch that is not written yet.
    const fn kept_beyond(&self) -> i64 {
        self.board.idle_micros / KEEP_SHARE + 60 * SECOND
    }
}

#[derive(Debug)]
enum Entry {
    Live(Box<Live>),
    Ended(Box<Tombstone>),
}

#[derive(Debug, Default)]
struct Shard {
    entries: HashMap<TaskKey, Entry>,
    /// What the checkpoint store has not heard of yet.
    dirty: HashSet<TaskKey>,
}

/// A write: who, on which board, with which right to repeat it.
#[derive(Debug)]
pub struct Write<'a> {
    /// Whose board it must be.
    pub caller: &'a Owner,
    /// Its task.
    pub key: &'a TaskKey,
    /// Generation the caller knows; 0 for none.
    pub generation: u64,
    /// For a write that may be repeated.
    pub request: Option<RequestKey>,
    /// Erase epoch of the signed header (rule E2).
    pub erase_epoch: u64,
    /// Now.
    pub now: Timestamp,
}

/// What is due at the checkpoint store.
#[derive(Debug)]
pub enum Due {
    /// A board to write.
    Board(Box<Snapshot>),
    /// An end to write.
    End(Box<Tombstone>),
}

/// Counts for status and metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Live boards.
    pub boards: usize,
    /// Ended tasks whose id is not free yet.
    pub ended: usize,
    /// Tasks the checkpoint store has not heard of.
    pub dirty: usize,
    /// Resident bytes, about.
    pub bytes: usize,
}

/// All boards of the process.
#[derive(Debug)]
pub struct Boards {
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
    used: AtomicUsize,
    /// Whether boards may be read and written: after they came back from their checkpoints, until the last flush begins.
    open: AtomicBool,
    /// Whether ends and changes are noted for a checkpoint store.
    tracked: bool,
    /// Erase epoch by user (rule E2), each for [`limits::ERASE_EPOCH_SECONDS`].
    epochs: RwLock<HashMap<String, u64>>,
}

impl Boards {
    /// Closed and empty. `tracked`: there is a checkpoint store.
    pub fn new(tracked: bool) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            used: AtomicUsize::new(0),
            open: AtomicBool::new(false),
            tracked,
            epochs: RwLock::default(),
        }
    }

    /// Begins or stops to serve. A write that saw the boards open has ended before any later lock of its shard.
    pub fn set_open(&self, open: bool) {
        self.open.store(open, Ordering::SeqCst);
    }

    /// Whether it serves.
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::SeqCst)
    }

    fn shard(&self, key: &TaskKey) -> &Mutex<Shard> {
        let at = self.hasher.hash_one(key) % self.shards.len() as u64;
        &self.shards[usize::try_from(at).unwrap_or_default()]
    }

    /// Runs `work` under the lock of the key's shard, after what time has done to the entry.
    fn locked<T>(&self, key: &TaskKey, now: Timestamp, work: impl FnOnce(&mut Shard) -> Result<T, Fault>) -> Result<T, Fault> {
        let mut shard = self.shard(key).lock();
        if !self.is_open() {
            return Err(Fault::new(Reason::NotServing, "working memory is starting or stopping; retry").retry_after(500));
        }
        self.age(&mut shard, key, now);
        work(&mut shard)
    }

    /// Ends a board past its idle time, and forgets a tombstone past its own (rule W7). Answers whether it did either.
    fn age(&self, shard: &mut Shard, key: &TaskKey, now: Timestamp) -> bool {
        match shard.entries.get(key) {
            Some(Entry::Live(live)) if live.board.is_idle_at(now) => {
                let tombstone = tombstone(&live.board, None, now);
                tracing::info!(task_id = key.task.as_str(), "the board was idle too long and is destroyed");
                self.bury(shard, key, tombstone);
                true
            }
            Some(Entry::Ended(tombstone)) if now >= tombstone.expire_time => {
                shard.entries.remove(key);
                shard.dirty.remove(key);
                self.used.fetch_sub(TOMBSTONE_BYTES, Ordering::Relaxed);
                true
            }
            Some(Entry::Live(_) | Entry::Ended(_)) | None => false,
        }
    }

    fn bury(&self, shard: &mut Shard, key: &TaskKey, tombstone: Tombstone) {
        let old = shard.entries.insert(key.clone(), Entry::Ended(Box::new(tombstone)));
        self.used.fetch_add(TOMBSTONE_BYTES, Ordering::Relaxed);
        if let Some(Entry::Live(live)) = old {
            self.used.fetch_sub(live.resident(), Ordering::Relaxed);
        }
        self.note(shard, key);
    }

    fn note(&self, shard: &mut Shard, key: &TaskKey) {
        if self.tracked && !shard.dirty.contains(key) {
            shard.dirty.insert(key.clone());
        }
    }

    /// Takes `more` bytes of the budget, or refuses: boards are never evicted.
    fn admit(&self, more: usize, limit: usize) -> Result<(), Fault> {
        let fits = |used: usize| used.checked_add(more).filter(|sum| *sum <= limit);
        match self.used.try_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(()),
            Err(_) => {
                Err(Fault::limit("boards", limit, "bytes").rule("W8", "boards", "all boards of a process share one budget"))
            }
        }
    }

    /// Brings the count from what was admitted to what is there: request ids and answers are bounded per board already.
    fn settle_count(&self, counted: usize, actual: usize) {
        if actual >= counted {
            self.used.fetch_add(actual - counted, Ordering::Relaxed);
        } else {
            self.used.fetch_sub(counted - actual, Ordering::Relaxed);
        }
    }

    /// Starts a board, or answers a repeated start.
    ///
    /// # Errors
    /// `TASK_EXISTS`, `TASK_ENDED`, `TASK_MISMATCH`, `REQUEST_ID_REUSED`, `LIMIT_REACHED`.
    pub fn create<M: Message + Default>(
        &self,
        board: Board,
        request: Option<RequestKey>,
        erase_epoch: u64,
        limit: usize,
        now: Timestamp,
        answer: impl Fn(&Board) -> M,
    ) -> Result<M, Fault> {
        let key = TaskKey::new(&board.owner, &board.task);
        self.locked(&key, now, |shard| {
            // Under the lock: an erasure raises the epoch first and looks at the boards then.
            self.check_epoch(&board.owner, erase_epoch)?;
            match shard.entries.get(&key) {
                Some(Entry::Live(live)) => {
                    live.board.check_owner(&board.owner)?;
                    if let Some(request) = request
                        && let Some(replay) = live.requests.find(request, now)?
                    {
                        return Ok(replayed(replay, &live.board, &answer));
                    }
                    return Err(Fault::new(Reason::TaskExists, "the task has a board already; read it, or use another task_id")
                        .with("resource_type", "task")
                        .with("resource_name", key.task.as_str()));
                }
                Some(Entry::Ended(tombstone)) => {
                    check_owner(&tombstone.owner.user, tombstone.owner.agent.as_ref(), &board.owner)?;
                    return Err(ended(&key.task));
                }
                None => {}
            }
            let reply = answer(&board);
            let mut live = Live {
                saved_deadline: board.idle_deadline,
                board,
                requests: RequestLog::default(),
                superseded: false,
                changes: None,
            };
            if let Some(request) = request {
                live.requests.remember(request, reply.encode_to_vec(), now);
            }
            self.admit(live.resident(), limit)?;
            tracing::info!(task_id = key.task.as_str(), "a board was started");
            shard.entries.insert(key.clone(), Entry::Live(Box::new(live)));
            self.note(shard, &key);
            Ok(reply)
        })
    }

    fn live<'a>(shard: &'a mut Shard, key: &TaskKey, caller: &Owner) -> Result<&'a mut Live, Fault> {
        match shard.entries.get_mut(key) {
            None => Err(Fault::not_found("task", key.task.as_str())),
            Some(Entry::Ended(tombstone)) => {
                check_owner(&tombstone.owner.user, tombstone.owner.agent.as_ref(), caller)?;
                Err(ended(&key.task))
            }
            Some(Entry::Live(live)) => {
                live.board.check_owner(caller)?;
                if live.superseded {
                    let fault = Fault::new(Reason::StoreUnavailable, "another copy of the working role serves this task");
                    return Err(fault.with("store", "working").retry_after(500));
                }
                Ok(live)
            }
        }
    }

    /// Reads a board and renews its idle time.
    ///
    /// # Errors
    /// `NOT_FOUND`, `TASK_ENDED`, `TASK_MISMATCH`.
    pub fn read<T>(&self, key: &TaskKey, caller: &Owner, now: Timestamp, view: impl FnOnce(&Board) -> T) -> Result<T, Fault> {
        self.locked(key, now, |shard| {
            let live = Self::live(shard, key, caller)?;
            live.board.touch(now);
            let note = live.touched_for_long();
            let seen = view(&live.board);
            if note {
                self.note(shard, key);
            }
            Ok(seen)
        })
    }

    /// A board without renewing its idle time.
    ///
    /// # Errors
    /// As [`Boards::read`].
    pub fn peek<T>(&self, key: &TaskKey, caller: &Owner, now: Timestamp, view: impl FnOnce(&Board) -> T) -> Result<T, Fault> {
        self.locked(key, now, |shard| Ok(view(&Self::live(shard, key, caller)?.board)))
    }

    /// Told of every change of a board from now on, and closed when it is no more.
    ///
    /// # Errors
    /// As [`Boards::read`].
    pub fn watch(&self, key: &TaskKey, caller: &Owner, now: Timestamp) -> Result<watch::Receiver<()>, Fault> {
        self.locked(key, now, |shard| {
            let live = Self::live(shard, key, caller)?;
            Ok(live.changes.get_or_insert_with(|| watch::Sender::new(())).subscribe())
        })
    }

    /// Judges and carries out a write, or answers a repeated one.
    ///
    /// # Errors
    /// `NOT_FOUND`, `TASK_ENDED`, `TASK_MISMATCH`, `REQUEST_ID_REUSED`, `TASK_LOST`, what `decide` refuses, `LIMIT_REACHED`.
    pub fn write<M: Message + Default>(
        &self,
        write: &Write<'_>,
        limit: usize,
        decide: impl FnOnce(&Board) -> Result<Change, Fault>,
        answer: impl Fn(&Board) -> M,
    ) -> Result<M, Fault> {
        let now = write.now;
        self.locked(write.key, now, |shard| {
            self.check_epoch(write.caller, write.erase_epoch)?;
            let live = Self::live(shard, write.key, write.caller)?;
            if let Some(request) = write.request
                && let Some(replay) = live.requests.find(request, now)?
            {
                return Ok(replayed(replay, &live.board, &answer));
            }
            live.board.check_generation(write.generation)?;
            let change = decide(&live.board)?;
            let before = live.resident();
            // Texts are admitted; slots, request ids and answers, bounded per board already, are counted below.
            let more = change.bytes_after().saturating_sub(live.board.bytes);
            self.admit(more, limit)?;
            live.board.apply(change, now);
            live.board.acknowledge(write.generation);
            let reply = answer(&live.board);
            if let Some(request) = write.request {
                live.requests.remember(request, reply.encode_to_vec(), now);
            }
            self.settle_count(before + more, live.resident());
            live.tell();
            tracing::debug!(task_id = write.key.task.as_str(), version = live.board.version, "a board was written");
            self.note(shard, write.key);
            Ok(reply)
        })
    }

    /// Seals a fact (rule P5).
    ///
    /// # Errors
    /// As [`Board::decide_seal`]; `NOT_FOUND`, `TASK_ENDED`, `TASK_MISMATCH`.
    pub fn seal<T>(
        &self,
        key: &TaskKey,
        caller: &Owner,
        seal: &Seal,
        now: Timestamp,
        view: impl FnOnce(&Board) -> T,
    ) -> Result<T, Fault> {
        self.locked(key, now, |shard| {
            let live = Self::live(shard, key, caller)?;
            if let Some(change) = live.board.decide_seal(seal, now)? {
                live.board.apply(change, now);
                live.tell();
                tracing::info!(task_id = key.task.as_str(), promotion_id = seal.promotion_id, "a fact was sealed");
            }
            let seen = view(&live.board);
            self.note(shard, key);
            Ok(seen)
        })
    }

    /// Ends a seal; answers whether there was nothing to end (rule P5).
    ///
    /// # Errors
    /// `TASK_MISMATCH`.
    pub fn settle(&self, key: &TaskKey, caller: &Owner, settle: &Settle, now: Timestamp) -> Result<bool, Fault> {
        self.locked(key, now, |shard| {
            let live = match Self::live(shard, key, caller) {
                Ok(live) => live,
                // The source is gone: nothing is left to do.
                Err(fault) if matches!(fault.reason, Reason::NotFound | Reason::TaskEnded) => return Ok(true),
                Err(fault) => return Err(fault),
            };
            let Some(change) = live.board.decide_settle(settle) else { return Ok(true) };
            live.board.apply(change, now);
            live.tell();
            tracing::info!(
                task_id = key.task.as_str(),
                promotion_id = settle.promotion_id,
                committed = settle.committed,
                "a seal was ended"
            );
            self.note(shard, key);
            Ok(false)
        })
    }

    /// Ends a task: the board is gone when this returns. Answers its tombstone, and whether it had ended before.
    ///
    /// # Errors
    /// `NOT_FOUND`, `TASK_MISMATCH`, `REQUEST_ID_REUSED`.
    pub fn end(
        &self,
        key: &TaskKey,
        caller: &Owner,
        request: Option<RequestKey>,
        now: Timestamp,
    ) -> Result<(Tombstone, bool), Fault> {
        self.locked(key, now, |shard| {
            let tombstone = match shard.entries.get(key) {
                None => return Err(Fault::not_found("task", key.task.as_str())),
                Some(Entry::Ended(tombstone)) => {
                    check_owner(&tombstone.owner.user, tombstone.owner.agent.as_ref(), caller)?;
                    let same = match (request, tombstone.request) {
                        (Some(ours), Some((id, digest))) if ours.id == id => {
                            if ours.digest != digest {
                                return Err(reused(id));
                            }
                            true
                        }
                        (Some(_) | None, _) => false,
                    };
                    return Ok((Tombstone::clone(tombstone), !same));
                }
                Some(Entry::Live(live)) => {
                    live.board.check_owner(caller)?;
                    if let Some(request) = request
                        && live.requests.find(request, now)?.is_some()
                    {
                        return Err(reused(request.id));
                    }
                    tombstone(&live.board, request, now)
                }
            };
            tracing::info!(
                task_id = key.task.as_str(),
                facts = tombstone.facts_dropped,
                "the task ended; its board is destroyed"
            );
            self.bury(shard, key, tombstone.clone());
            Ok((tombstone, false))
        })
    }

    /// Raises a user's erase epoch, if it is lower.
    pub fn raise_epoch(&self, user_key: &str, epoch: u64) {
        let mut epochs = self.epochs.write();
        let highest = epochs.entry(user_key.to_owned()).or_default();
        *highest = epoch.max(*highest);
    }

    /// Refuses a header that is older than the user's last erasure (rule E2).
    ///
    /// # Errors
    /// `STALE_ERASE_EPOCH`.
    pub fn check_epoch(&self, owner: &Owner, epoch: u64) -> Result<(), Fault> {
        let epochs = self.epochs.read();
        if epochs.is_empty() {
            return Ok(());
        }
        match epochs.get(&owner.user_key()) {
            Some(highest) if epoch < *highest => Err(stale_header(*highest)),
            _ => Ok(()),
        }
    }

    /// Live boards of a user, whatever the agent, in order of task.
    pub fn tasks_of(&self, owner: &Owner, now: Timestamp) -> Vec<TaskKey> {
        let mut keys = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            let theirs: Vec<TaskKey> = shard
                .entries
                .iter()
                .filter(|(_, entry)| {
                    matches!(entry, Entry::Live(live) if live.board.owner.tenant == owner.tenant && live.board.owner.user == owner.user)
                })
                .map(|(key, _)| key.clone())
                .collect();
            keys.extend(theirs.into_iter().filter(|key| !self.age(&mut shard, key, now)));
        }
        keys.sort_by(|a, b| a.task.cmp(&b.task));
        keys
    }

    /// Tasks of a user, ended ones too, that the checkpoint store has not heard of.
    pub fn dirty_of(&self, owner: &Owner) -> Vec<TaskKey> {
        let theirs = |shard: &Shard, key: &TaskKey| {
            let owned = match shard.entries.get(key) {
                Some(Entry::Live(live)) => Some(&live.board.owner),
                Some(Entry::Ended(tombstone)) => Some(&tombstone.owner),
                None => None,
            };
            owned.is_some_and(|owned| owned.tenant == owner.tenant && owned.user == owner.user)
        };
        let of = |shard: &Mutex<Shard>| {
            let shard = shard.lock();
            shard.dirty.iter().filter(|key| theirs(&shard, key)).cloned().collect::<Vec<_>>()
        };
        self.shards.iter().flat_map(of).collect()
    }

    /// A copy of a live board and of its remembered answers.
    pub fn copy(&self, key: &TaskKey) -> Option<(Board, RequestLog)> {
        match self.shard(key).lock().entries.get(key) {
            Some(Entry::Live(live)) => Some((live.board.clone(), live.requests.clone())),
            Some(Entry::Ended(_)) | None => None,
        }
    }

    /// Puts a redacted board in the place of the one it was made of, and takes the content out of its remembered answers. False
    /// when the board has changed since.
    pub fn redact(&self, key: &TaskKey, before: &Board, after: Board) -> bool {
        let mut shard = self.shard(key).lock();
        let Some(Entry::Live(live)) = shard.entries.get_mut(key) else { return false };
        let order = |board: &Board| (board.create_time, board.generation, board.version);
        if order(&live.board) != order(before) {
            return false;
        }
        let counted = live.resident();
        // A read may have renewed its life meanwhile.
        live.board = Board { idle_deadline: live.board.idle_deadline, ..after };
        live.requests.forget_answers();
        self.settle_count(counted, live.resident());
        live.tell();
        tracing::info!(task_id = key.task.as_str(), "a board was redacted by an erasure");
        self.note(&mut shard, key);
        true
    }

    /// Destroys a board and leaves its tombstone; answers whether it was there.
    pub fn destroy(&self, key: &TaskKey, now: Timestamp) -> bool {
        let mut shard = self.shard(key).lock();
        let Some(Entry::Live(live)) = shard.entries.get(key) else { return false };
        let tombstone = tombstone(&live.board, None, now);
        tracing::info!(task_id = key.task.as_str(), "a board is destroyed by an erasure");
        self.bury(&mut shard, key, tombstone);
        true
    }

    /// Destroys boards past their idle time and forgets old tombstones; answers how many of both.
    pub fn sweep(&self, now: Timestamp) -> usize {
        let oldest = now.plus(-limits::ERASE_EPOCH_SECONDS * SECOND).micros();
        self.epochs.write().retain(|_, epoch| i64::try_from(*epoch).is_ok_and(|epoch| epoch > oldest));
        let mut swept = 0;
        for shard in &self.shards {
            let mut shard = shard.lock();
            let due: Vec<TaskKey> =
                shard.entries.iter().filter(|(_, entry)| is_due(entry, now)).map(|(key, _)| key.clone()).collect();
            swept += due.iter().filter(|key| self.age(&mut shard, key, now)).count();
        }
        swept
    }

    /// Takes in what a store held; answers the boards that must be written back at once. Call it while closed.
    pub fn restore(&self, loaded: Loaded, now: Timestamp) -> Result<Vec<Snapshot>, Fault> {
        let mut raised = Vec::new();
        for (user_key, epoch) in &loaded.epochs {
            self.raise_epoch(user_key, *epoch);
        }
        for tombstone in loaded.ended {
            let key = TaskKey::new(&tombstone.owner, &tombstone.task);
            let mut shard = self.shard(&key).lock();
            if !matches!(shard.entries.get(&key), Some(Entry::Ended(other)) if other.end_time >= tombstone.end_time) {
                self.replace(&mut shard, key, Entry::Ended(Box::new(tombstone)));
            }
        }
        for SavedBoard { mut board, requests, time } in loaded.boards {
            if !loaded.clean {
                board.lose(time);
                tracing::warn!(
                    task_id = board.task.as_str(),
                    generation = board.generation,
                    "the board is back from a checkpoint; later writes are lost"
                );
            }
            let key = TaskKey::new(&board.owner, &board.task);
            let mut shard = self.shard(&key).lock();
            let later = match shard.entries.get(&key) {
                None => true,
                Some(Entry::Ended(tombstone)) => board.create_time > tombstone.end_time,
                Some(Entry::Live(other)) => board.create_time > other.board.create_time,
            };
            if later {
                let live = Live { saved_deadline: board.idle_deadline, board, requests, superseded: false, changes: None };
                if !loaded.clean {
                    raised.push(snapshot(&live, now)?);
                }
                self.replace(&mut shard, key, Entry::Live(Box::new(live)));
            }
        }
        Ok(raised)
    }

    /// Forgets everything: before another attempt to restore.
    pub fn clear(&self) {
        for shard in &self.shards {
            *shard.lock() = Shard::default();
        }
        self.used.store(0, Ordering::Relaxed);
    }

    fn replace(&self, shard: &mut Shard, key: TaskKey, entry: Entry) {
        self.used.fetch_add(resident(&entry), Ordering::Relaxed);
        if let Some(old) = shard.entries.insert(key, entry) {
            self.used.fetch_sub(resident(&old), Ordering::Relaxed);
        }
    }

    /// Names of what the checkpoint store has not heard of.
    pub fn dirty(&self) -> Vec<TaskKey> {
        self.shards.iter().flat_map(|shard| shard.lock().dirty.iter().cloned().collect::<Vec<_>>()).collect()
    }

    /// What is due for a dirty task. It stays dirty until [`Self::saved`] or [`Self::end_saved`] says that the store has it:
    /// a flush that is cancelled half-way forgets nothing.
    pub fn due(&self, key: &TaskKey, now: Timestamp) -> Option<Due> {
        let mut shard = self.shard(key).lock();
        if !shard.dirty.contains(key) {
            return None;
        }
        match shard.entries.get(key) {
            Some(Entry::Ended(tombstone)) => return Some(Due::End(tombstone.clone())),
            Some(Entry::Live(live)) if !live.superseded => match snapshot(live, now) {
                Ok(snapshot) => return Some(Due::Board(Box::new(snapshot))),
                Err(fault) => {
                    tracing::error!(task_id = key.task.as_str(), reason = fault.reason.name(), "a board cannot be checkpointed")
                }
            },
            Some(Entry::Live(_)) | None => {}
        }
        shard.dirty.remove(key);
        None
    }

    /// Notes what became of a snapshot. The task is clean if nothing has changed since.
    pub fn saved(&self, snapshot: &Snapshot, outcome: SaveOutcome) {
        let key = TaskKey::new(&snapshot.owner, &snapshot.task);
        let mut shard = self.shard(&key).lock();
        let Some(Entry::Live(live)) = shard.entries.get_mut(&key) else { return };
        if live.board.create_time != snapshot.create_time {
            return;
        }
        match outcome {
            SaveOutcome::Saved => {
                live.saved_deadline = live.idle_deadline_of(snapshot);
                let unchanged = live.board.version == snapshot.version && !live.touched_for_long();
                if unchanged {
                    shard.dirty.remove(&key);
                }
            }
            SaveOutcome::Superseded | SaveOutcome::Ended => {
                live.superseded = true;
                tracing::error!(
                    task_id = key.task.as_str(),
                    ?outcome,
                    "another copy of the working role serves this task; this one stops"
                );
                shard.dirty.remove(&key);
            }
        }
    }

    /// Notes that a tombstone is in the store.
    pub fn end_saved(&self, tombstone: &Tombstone) {
        let key = TaskKey::new(&tombstone.owner, &tombstone.task);
        let mut shard = self.shard(&key).lock();
        if matches!(shard.entries.get(&key), Some(Entry::Ended(ours)) if ours.end_time == tombstone.end_time) {
            shard.dirty.remove(&key);
        }
    }

    /// Counts.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts { bytes: self.used.load(Ordering::Relaxed), ..Counts::default() };
        for shard in &self.shards {
            let shard = shard.lock();
            let boards = shard.entries.values().filter(|entry| matches!(entry, Entry::Live(_))).count();
            counts.boards += boards;
            counts.ended += shard.entries.len() - boards;
            counts.dirty += shard.dirty.len();
        }
        counts
    }
}

fn is_due(entry: &Entry, now: Timestamp) -> bool {
    match entry {
        Entry::Live(live) => live.board.is_idle_at(now),
        Entry::Ended(tombstone) => now >= tombstone.expire_time,
    }
}

fn resident(entry: &Entry) -> usize {
    match entry {
        Entry::Live(live) => live.resident(),
        Entry::Ended(_) => TOMBSTONE_BYTES,
    }
}

fn tombstone(board: &Board, request: Option<RequestKey>, now: Timestamp) -> Tombstone {
    Tombstone {
        owner: board.owner.clone(),
        task: board.task.clone(),
        create_time: board.create_time,
        // Not before its start, whatever the clock did: a store tells by this that the board is the older one.
        end_time: now.max(board.create_time),
        expire_time: now.max(board.create_time).plus(limits::TOMBSTONE_SECONDS * SECOND),
        facts_dropped: u32::try_from(board.facts.len()).unwrap_or(u32::MAX),
        request: request.map(|request| (request.id, request.digest)),
    }
}

fn snapshot(live: &Live, now: Timestamp) -> Result<Snapshot, Fault> {
    Ok(Snapshot {
        owner: live.board.owner.clone(),
        task: live.board.task.clone(),
        create_time: live.board.create_time,
        generation: live.board.generation,
        version: live.board.version,
        time: now,
        expire_time: live.expire_time(),
        data: encode(&live.board, &live.requests)?,
    })
}

fn replayed<M: Message + Default>(replay: Replay<'_>, board: &Board, answer: impl Fn(&Board) -> M) -> M {
    match replay {
        // Only what this very code encoded is remembered; the present state stands in for what cannot be read.
        Replay::Answer(bytes) => M::decode(bytes).unwrap_or_else(|_| answer(board)),
        Replay::Done => answer(board),
    }
}
