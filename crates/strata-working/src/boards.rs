//! The boards of this process: a sharded map, one lock per shard, never held across an await. Whatever one call changes,
//! it changes under one lock, so a board is never seen half-written and a request id never has two effects.

use crate::checkpoint::{Hold, Loaded, SaveOutcome, SavedBoard, Snapshot, Tombstone, encode};
use crate::requests::{Replay, RequestKey, RequestLog, reused};
use parking_lot::{Mutex, RwLock};
use prost::Message;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use strata_core::policy::erasure::stale_header;
use strata_core::policy::placement::{FENCE, LAPSE};
use strata_core::policy::working::{Board, Change, Seal, Settle, check_owner, ended};
use strata_core::{
    Fault, Owner, Reason, TaskId, TenantId, Timestamp, limits,
    time::{HOUR, SECOND},
};
use strata_runtime::ports::Stopwatch;
use tokio::sync::watch;

/// Shards: many more than threads, so that two calls rarely wait for one another.
const SHARDS: usize = 64;
/// Resident bytes of an empty board, about: the entry, its ids, its collections.
const BOARD_BYTES: usize = 1_024;
/// Resident bytes of a fact, todo or digest beside its texts, about.
const SLOT_BYTES: usize = 192;
/// Resident bytes of a tombstone, about.
const TOMBSTONE_BYTES: usize = 512;
/// Microseconds between two checkpoints of a board that also say whose the task's id is: a small part of the time that a store keeps it.
const NAME_EVERY: i64 = 24 * HOUR;
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

/// Whether a copy may acknowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It may.
    Serving,
    /// Not before the store has it: another replica may have started the task as well.
    Unconfirmed,
    /// Not any more: another replica asked for it and gets it as it stands.
    Leaving,
    /// Not any more: another copy serves the task.
    Superseded,
}

/// Where there are several replicas: nothing is acknowledged later than [`FENCE`] after the start of the last completed round trip
/// to the store (rule W10).
#[derive(Debug)]
struct Fence {
    watch: Stopwatch,
    /// Microseconds of the watch until which calls are answered.
    good_until: AtomicU64,
    /// When the last completed round trip began, by the watch.
    last: AtomicU64,
    /// Counts how often everything was [`Boards::renounce`]d.
    term: AtomicU64,
}

impl Fence {
    fn now(&self) -> u64 {
        u64::try_from(self.watch.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn holds(&self) -> bool {
        self.now() < self.good_until.load(Ordering::Acquire)
    }

    fn lapsed(&self) -> bool {
        self.now().saturating_sub(self.last.load(Ordering::Acquire)) >= LAPSE.unsigned_abs()
    }
}

/// When a round trip to the store began, by the watch of the fence.
#[derive(Clone, Copy, Debug)]
pub struct Began(u64);

#[derive(Debug)]
struct Live {
    board: Board,
    requests: RequestLog,
    /// Idle deadline of the last checkpoint.
    saved_deadline: Timestamp,
    /// When the store was last told whose the task's id is (rule W2).
    named: Timestamp,
    standing: Standing,
    /// Tells watchers that there is something new; made with the first. Holds one mark, whatever they have read: no write waits.
    changes: Option<watch::Sender<()>>,
}

impl Live {
    fn of(board: Board, requests: RequestLog) -> Self {
        let saved_deadline = board.idle_deadline;
        Self { saved_deadline, named: Timestamp(0), board, requests, standing: Standing::Serving, changes: None }
    }

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
    /// Where several replicas share the store.
    fence: Option<Fence>,
    /// Erase epoch by user (rule E2), each for [`limits::ERASE_EPOCH_SECONDS`].
    epochs: RwLock<HashMap<String, u64>>,
}

impl Boards {
    /// Closed and empty. `tracked`: there is a checkpoint store; `shared`: with other replicas.
    pub fn new(tracked: bool, shared: bool) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            used: AtomicUsize::new(0),
            open: AtomicBool::new(false),
            tracked,
            fence: shared.then(|| Fence {
                watch: Stopwatch::start(),
                good_until: AtomicU64::new(0),
                last: AtomicU64::new(0),
                term: AtomicU64::new(0),
            }),
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

    /// Whether the last completed round trip to the store is recent enough to acknowledge; always, where there is one replica.
    pub fn is_fresh(&self) -> bool {
        self.fence.as_ref().is_none_or(Fence::holds)
    }

    /// A round trip to the store begins.
    pub fn begin(&self) -> Began {
        Began(self.fence.as_ref().map_or(0, Fence::now))
    }

    /// A round trip that began then is complete: all that was acknowledged before it is in the store. Nothing, when it took so
    /// long that others may have taken boards meanwhile.
    pub fn completed(&self, began: Began) {
        if let Some(fence) = &self.fence
            && !fence.lapsed()
        {
            fence.last.fetch_max(began.0, Ordering::AcqRel);
            fence.good_until.fetch_max(began.0.saturating_add(FENCE.unsigned_abs()), Ordering::AcqRel);
        }
    }

    /// Whether other replicas may have begun to take what is here.
    pub fn lapsed(&self) -> bool {
        self.fence.as_ref().is_some_and(Fence::lapsed)
    }

    /// Which [`Self::renounce`] was the last.
    pub fn term(&self) -> u64 {
        self.fence.as_ref().map_or(0, |fence| fence.term.load(Ordering::SeqCst))
    }

    /// Forgets every board that the store has as it is here: other replicas may have taken them, and one that was not taken comes
    /// back with the next call about it. Those that are due show with the next write what became of them. Call it while nothing
    /// is being written, and after the replica took another name.
    pub fn renounce(&self) {
        let Some(fence) = &self.fence else { return };
        // First: what is adopted from now on was taken under the new name.
        fence.term.fetch_add(1, Ordering::SeqCst);
        fence.last.fetch_max(fence.now(), Ordering::AcqRel);
        let mut renounced = 0;
        for shard in &self.shards {
            let mut shard = shard.lock();
            let clean: Vec<TaskKey> = shard
                .entries
                .iter()
                .filter(|(key, entry)| matches!(entry, Entry::Live(_)) && !shard.dirty.contains(*key))
                .map(|(key, _)| key.clone())
                .collect();
            renounced += clean.len();
            for key in clean {
                self.drop_entry(&mut shard, &key);
            }
        }
        tracing::warn!(boards = renounced, "the store was out of reach for too long; boards are read from it again");
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
        if !self.is_fresh() {
            return Err(behind());
        }
        self.age(&mut shard, key, now);
        let done = work(&mut shard)?;
        // A process that was stopped in between must not say that it was done.
        if self.is_fresh() { Ok(done) } else { Err(behind()) }
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
                named: now,
                board,
                requests: RequestLog::default(),
                standing: if self.fence.is_some() { Standing::Unconfirmed } else { Standing::Serving },
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
                match live.standing {
                    Standing::Serving => Ok(live),
                    Standing::Unconfirmed | Standing::Leaving | Standing::Superseded => Err(elsewhere()),
                }
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
                // The source is gone: nothing is left to do. With several replicas, what is not here may be with another one.
                Err(fault) if fault.reason == Reason::TaskEnded => return Ok(true),
                Err(fault) if fault.reason == Reason::NotFound && self.fence.is_none() => return Ok(true),
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
                    if matches!(live.standing, Standing::Leaving | Standing::Superseded) {
                        return Err(elsewhere());
                    }
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
        if live.standing != Standing::Serving {
            return false;
        }
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
        if matches!(live.standing, Standing::Leaving | Standing::Superseded) {
            return false;
        }
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
        for SavedBoard { mut board, requests, time, clean, ours } in loaded.boards {
            if !clean {
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
                let live = Live::of(board, requests);
                if !(clean && ours) {
                    raised.push(Snapshot { hold: Hold::Seize, ..snapshot(&live, now)? });
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

    /// Everything is due again: the store may have lost it, the ids of the tasks too.
    pub fn due_again(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let all: Vec<TaskKey> = shard.entries.keys().cloned().collect();
            for key in all {
                if let Some(Entry::Live(live)) = shard.entries.get_mut(&key) {
                    live.named = Timestamp(0);
                }
                self.note(&mut shard, &key);
            }
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
            Some(Entry::Live(live)) if live.standing != Standing::Superseded => match snapshot(live, now) {
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
            SaveOutcome::Saved if snapshot.hold == Hold::Release => {
                tracing::info!(task_id = key.task.as_str(), "the board is free for another replica");
                self.drop_entry(&mut shard, &key);
            }
            SaveOutcome::Saved => {
                live.saved_deadline = live.idle_deadline_of(snapshot);
                if snapshot.name {
                    live.named = snapshot.time;
                }
                if live.standing == Standing::Unconfirmed {
                    live.standing = Standing::Serving;
                }
                let unchanged =
                    live.board.version == snapshot.version && !live.touched_for_long() && live.standing != Standing::Leaving;
                if unchanged {
                    shard.dirty.remove(&key);
                }
            }
            SaveOutcome::Superseded | SaveOutcome::Ended => {
                if self.fence.is_some() {
                    // Whoever asks for it next is answered by what the store says of it.
                    tracing::warn!(task_id = key.task.as_str(), ?outcome, "another replica serves this task");
                    self.drop_entry(&mut shard, &key);
                    return;
                }
                live.standing = Standing::Superseded;
                tracing::error!(
                    task_id = key.task.as_str(),
                    ?outcome,
                    "another copy of the working role serves this task; this one stops"
                );
                shard.dirty.remove(&key);
            }
        }
    }

    /// Forgets an entry: another replica has it.
    fn drop_entry(&self, shard: &mut Shard, key: &TaskKey) {
        shard.dirty.remove(key);
        if let Some(old) = shard.entries.remove(key) {
            self.used.fetch_sub(resident(&old), Ordering::Relaxed);
        }
    }

    /// Whether a call about the task is to be answered by what is here.
    pub fn has(&self, key: &TaskKey) -> bool {
        self.shard(key).lock().entries.contains_key(key)
    }

    /// Takes in a board that this replica holds from now on. Of one that lost writes the next generation is due at the store. Not
    /// one that was taken in an earlier `term`.
    pub fn adopt(&self, saved: SavedBoard, term: u64) {
        let key = TaskKey::new(&saved.board.owner, &saved.board.task);
        let mut shard = self.shard(&key).lock();
        if self.term() != term {
            return;
        }
        tracing::info!(
            task_id = key.task.as_str(),
            generation = saved.board.generation,
            clean = saved.clean,
            "a board was taken over"
        );
        let live = Live::of(saved.board, saved.requests);
        if !saved.clean {
            self.note(&mut shard, &key);
        }
        self.replace(&mut shard, key, Entry::Live(Box::new(live)));
    }

    /// Takes in the end of a task.
    pub fn adopt_end(&self, tombstone: Tombstone) {
        let key = TaskKey::new(&tombstone.owner, &tombstone.task);
        let mut shard = self.shard(&key).lock();
        self.replace(&mut shard, key, Entry::Ended(Box::new(tombstone)));
    }

    /// Another replica wants the board: from now on nothing is acknowledged of it here, and it is due at the store. False when it
    /// is not here.
    pub fn give_up(&self, key: &TaskKey) -> bool {
        let mut shard = self.shard(key).lock();
        let Some(Entry::Live(live)) = shard.entries.get_mut(key) else { return shard.entries.contains_key(key) };
        if live.standing == Standing::Serving {
            live.standing = Standing::Leaving;
            live.tell();
            self.note(&mut shard, key);
        }
        true
    }

    /// After a write to the store: whether what was done may be acknowledged.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`: another replica has the task.
    pub fn confirm(&self, key: &TaskKey) -> Result<(), Fault> {
        match self.shard(key).lock().entries.get(key) {
            Some(Entry::Live(live)) if live.standing == Standing::Serving => {}
            Some(Entry::Ended(_)) => {}
            Some(Entry::Live(_)) | None => return Err(elsewhere()),
        }
        if self.is_fresh() { Ok(()) } else { Err(behind()) }
    }

    /// Forgets a board that was started here and that the store does not have: the caller is told so.
    pub fn withdraw(&self, key: &TaskKey) {
        let mut shard = self.shard(key).lock();
        if matches!(shard.entries.get(key), Some(Entry::Live(live)) if live.standing == Standing::Unconfirmed) {
            self.drop_entry(&mut shard, key);
        }
    }

    /// Notes what became of a tombstone.
    pub fn end_saved(&self, tombstone: &Tombstone, outcome: SaveOutcome) {
        let key = TaskKey::new(&tombstone.owner, &tombstone.task);
        let mut shard = self.shard(&key).lock();
        if matches!(shard.entries.get(&key), Some(Entry::Ended(ours)) if ours.end_time == tombstone.end_time) {
            shard.dirty.remove(&key);
            if outcome != SaveOutcome::Saved && self.fence.is_some() {
                tracing::warn!(task_id = key.task.as_str(), "another replica serves the task that was ended here");
                self.drop_entry(&mut shard, &key);
            }
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

/// Of a task that another copy serves, or is about to.
pub fn elsewhere() -> Fault {
    let fault = Fault::new(Reason::StoreUnavailable, "another replica of working memory serves this task; retry");
    fault.with("store", "working").retry_after(200)
}

/// The store has not answered for too long: other replicas may take over what is here (rule W10).
pub fn behind() -> Fault {
    let fault = Fault::new(Reason::StoreUnavailable, "the checkpoints are behind; retry with the same request_id");
    fault
        .with("store", "working")
        .rule("W10", "boards", "a copy without a checkpoint for 1 s acknowledges nothing")
        .retry_after(500)
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
        name: now.since(live.named) >= NAME_EVERY,
        data: encode(&live.board, &live.requests)?,
        hold: if live.standing == Standing::Leaving { Hold::Release } else { Hold::Keep },
    })
}

fn replayed<M: Message + Default>(replay: Replay<'_>, board: &Board, answer: impl Fn(&Board) -> M) -> M {
    match replay {
        // Only what this very code encoded is remembered; the present state stands in for what cannot be read.
        Replay::Answer(bytes) => M::decode(bytes).unwrap_or_else(|_| answer(board)),
        Replay::Done => answer(board),
    }
}
