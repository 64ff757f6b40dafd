//! What survives of the boards (rule W10): one record per task id, either the board as it stood at its last checkpoint or
//! the tombstone of its end.
//!
//! A record is only ever replaced by a later one. Later means: a board by itself at a higher (generation, version); a board
//! by its tombstone; a tombstone by a board that was started after it. The store decides that in one atomic step, so a
//! checkpoint that is late, or comes from a copy that was replaced, changes nothing.
//!
//! Where several replicas share a store ([`Sharing`]), a record also names the replica that holds the board: that one alone
//! writes it. A board changes hands by one atomic step that compares holder and generation (rule W10).

pub mod embedded;
pub mod redis;

use crate::requests::{RequestLog, WireRequest};
use async_trait::async_trait;
use prost::Message;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
#[cfg(doc)]
use strata_core::limits;
use strata_core::policy::erasure::{Medium, Purge};
use strata_core::policy::working::Board;
use strata_core::ports::IdSource;
use strata_core::{Fault, Owner, Reason, TaskId, Timestamp};
use strata_runtime::redis_store::RedisPool;
use strata_runtime::sqlite::Database;

/// Where checkpoints go.
#[derive(Clone, Debug)]
pub enum CheckpointConfig {
    /// Nowhere: every stop loses the boards, and ended ids are known to this process alone. For tests and trials.
    None,
    /// Redis; its keys expire by themselves. This process is the only one that serves boards.
    Redis(RedisPool),
    /// Redis, shared with other replicas of the role.
    Shared(RedisPool),
    /// SQLite, opened with [`embedded::MIGRATIONS`].
    Embedded(Database),
    /// Any other store that passes the behaviour suite.
    Other(Arc<dyn CheckpointStore>),
}

impl CheckpointConfig {
    pub(crate) fn store(self, ids: &dyn IdSource) -> Option<Arc<dyn CheckpointStore>> {
        match self {
            Self::None => None,
            Self::Redis(pool) => Some(Arc::new(redis::RedisCheckpoints::new(pool))),
            // Another one at every start: who comes back does not take what it held for its own.
            Self::Shared(pool) => Some(Arc::new(redis::RedisCheckpoints::shared(pool, ids.next().to_string()))),
            Self::Embedded(database) => Some(Arc::new(embedded::EmbeddedCheckpoints::new(database))),
            Self::Other(store) => Some(store),
        }
    }
}

/// A board to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Whose.
    pub owner: Owner,
    /// The task.
    pub task: TaskId,
    /// When the board was started: tells it from an earlier board of the same id.
    pub create_time: Timestamp,
    /// First part of the order.
    pub generation: u64,
    /// Second part of the order.
    pub version: u64,
    /// When it was taken.
    pub time: Timestamp,
    /// When the record may be dropped: later than the board's own idle deadline.
    pub expire_time: Timestamp,
    /// Whether the task's id is claimed for its user again, as [`Sharing::named`] does.
    pub name: bool,
    /// Board and request ids, see [`SavedBoard`].
    pub data: Vec<u8>,
    /// Who holds the board once it is written.
    pub hold: Hold,
}

/// What a [`Snapshot`] does with the board's holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hold {
    /// This process goes on with it.
    #[default]
    Keep,
    /// Any replica may take it, as it stands.
    Release,
    /// This process takes it from whoever held it: it has made sure that it may.
    Seize,
}

/// What became of a [`Snapshot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveOutcome {
    /// It stands in the store.
    Saved,
    /// The store has a later board: another copy serves the task.
    Superseded,
    /// The task has ended.
    Ended,
}

/// What is left of an ended task: no content (rule W7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    /// Whose.
    pub owner: Owner,
    /// The task.
    pub task: TaskId,
    /// When the board was started.
    pub create_time: Timestamp,
    /// When it ended.
    pub end_time: Timestamp,
    /// From when on its id may be used again.
    pub expire_time: Timestamp,
    /// Facts that were on the board.
    pub facts_dropped: u32,
    /// Request id and digest of the EndTask that ended it; none when it was swept.
    pub request: Option<(uuid::Uuid, [u8; 16])>,
}

/// A board that was read back.
#[derive(Clone, Debug)]
pub struct SavedBoard {
    /// The board, at the generation it was written with.
    pub board: Board,
    /// Its request ids and answers.
    pub requests: RequestLog,
    /// When the checkpoint was taken.
    pub time: Timestamp,
    /// Nothing can have been acknowledged after it.
    pub clean: bool,
    /// The record names this process as its holder.
    pub ours: bool,
}

/// Everything a store holds.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// Live boards.
    pub boards: Vec<SavedBoard>,
    /// Tombstones that have not expired.
    pub ended: Vec<Tombstone>,
    /// The last process of this name flushed everything before it stopped.
    pub clean: bool,
    /// Records that could not be read. Their boards are lost.
    pub damaged: u64,
    /// Erase epochs by user, as [`Owner::user_key`] names them.
    pub epochs: Vec<(String, u64)>,
}

/// A store of checkpoints. Every method is safe to repeat.
#[async_trait]
pub trait CheckpointStore: Send + Sync + std::fmt::Debug {
    /// Short name for status and logs.
    fn name(&self) -> &'static str;

    /// Reads everything. `now` decides which records have expired.
    ///
    /// # Errors
    /// The store's.
    async fn load(&self, now: Timestamp) -> Result<Loaded, Fault>;

    /// Writes boards; outcomes in the order of `boards`.
    ///
    /// # Errors
    /// The store's; any part may then have been written.
    async fn save(&self, boards: &[Snapshot]) -> Result<Vec<SaveOutcome>, Fault>;

    /// Replaces a board by its tombstone. [`SaveOutcome::Saved`], also when it had ended before; [`SaveOutcome::Superseded`] when
    /// another replica holds it.
    ///
    /// # Errors
    /// The store's; it may then have been written.
    async fn end(&self, tombstone: &Tombstone) -> Result<SaveOutcome, Fault>;

    /// Sets or takes away the marker of a clean stop. It is taken away before the first write is acknowledged.
    ///
    /// # Errors
    /// The store's.
    async fn mark_clean(&self, clean: bool) -> Result<(), Fault>;

    /// Names the present life of the store: another name when it may have lost what it took. None where it does not lose anything,
    /// or does not say.
    ///
    /// # Errors
    /// The store's.
    async fn life(&self) -> Result<Option<String>, Fault> {
        Ok(None)
    }

    /// Says that this process lives: at every round of checkpoints.
    ///
    /// # Errors
    /// The store's.
    async fn alive(&self) -> Result<(), Fault> {
        Ok(())
    }

    /// How boards change hands, where several replicas share the store; none where one process alone writes it.
    fn sharing(&self) -> Option<&dyn Sharing> {
        None
    }

    /// Raises a user's erase epoch, if it is lower (rule E2); kept for [`limits::ERASE_EPOCH_SECONDS`].
    ///
    /// # Errors
    /// The store's.
    async fn raise_erase_epoch(&self, user_key: &str, epoch: u64, now: Timestamp) -> Result<(), Fault>;

    /// Whether what was replaced or removed of the user is gone from the medium too; waits at most `patience` where it asks for
    /// that.
    ///
    /// # Errors
    /// The store's.
    async fn medium(&self, user_key: &str, purge: Purge, patience: Duration) -> Result<Medium, Fault>;

    /// Drops expired records, where the store does not by itself.
    ///
    /// # Errors
    /// The store's.
    async fn purge(&self, now: Timestamp) -> Result<(), Fault>;
}

/// What a store says of a task that this replica does not hold.
#[derive(Clone, Debug)]
pub enum Taken {
    /// It knows no such task of the user.
    Absent,
    /// It has ended.
    Ended(Tombstone),
    /// This replica holds the board from now on. Not [`SavedBoard::clean`]: it stands at the next generation.
    Board(Box<SavedBoard>),
    /// Another replica holds it and was asked for it: look again after so many microseconds at the latest.
    Held(i64),
    /// The record is there and cannot be read.
    Damaged,
}

/// A board that another replica wants to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Whose, without the agent.
    pub owner: Owner,
    /// The task.
    pub task: TaskId,
}

/// How replicas hand boards to one another (rule W10). Every method is safe to repeat.
#[async_trait]
pub trait Sharing: Send + Sync {
    /// Says that this replica lives; answers the boards that others want of it, each once.
    ///
    /// # Errors
    /// The store's.
    async fn beat(&self) -> Result<Vec<Wanted>, Fault>;

    /// Takes another name for what it holds from now on; answers the former. Boards that it held before are still its own to write
    /// while nobody else has taken them.
    fn renew(&self) -> String;

    /// Says that everything that was acknowledged under a former name is written.
    ///
    /// # Errors
    /// The store's.
    async fn retire(&self, former: &str) -> Result<(), Fault>;

    /// Takes a board, if nobody holds it, or its holder stopped or gave no sign of life for
    /// [`TAKEOVER`](strata_core::policy::placement::TAKEOVER); asks the holder for it otherwise. With the user's erase epoch, 0
    /// for none.
    ///
    /// # Errors
    /// The store's; the board may then be this replica's, and is taken by the next call.
    async fn take(&self, owner: &Owner, task: &TaskId) -> Result<(Taken, u64), Fault>;

    /// Gives up a board that this replica holds by the record and does not have.
    ///
    /// # Errors
    /// The store's.
    async fn disown(&self, owner: &Owner, task: &TaskId) -> Result<(), Fault>;

    /// The user's erase epoch, 0 for none.
    ///
    /// # Errors
    /// The store's.
    async fn erase_epoch(&self, owner: &Owner) -> Result<u64, Fault>;

    /// Gives the task's id to the user, unless another one of the tenant has it (rule W2); answers whose it is. Without `claim`
    /// it only looks: none where it is nobody's.
    ///
    /// # Errors
    /// The store's.
    async fn named(&self, owner: &Owner, task: &TaskId, claim: bool) -> Result<Option<String>, Fault>;

    /// Tasks of the user with a board, whoever holds it, in order.
    ///
    /// # Errors
    /// The store's.
    async fn tasks(&self, owner: &Owner) -> Result<Vec<TaskId>, Fault>;

    /// Boards as they stood at their last checkpoint, without taking them; those that are gone are left out.
    ///
    /// # Errors
    /// The store's.
    async fn look(&self, owner: &Owner, tasks: &[TaskId], now: Timestamp) -> Result<Vec<SavedBoard>, Fault>;
}

/// Version of [`WireBoard`]; a newer one is not read.
const FORMAT: u32 = 1;

/// Stored form of a board.
#[derive(Clone, PartialEq, Message)]
struct WireBoard {
    #[prost(uint32, tag = "1")]
    format: u32,
    /// [`Board`] as JSON: its fields have names, so that a later program reads an earlier checkpoint.
    #[prost(bytes = "vec", tag = "2")]
    board: Vec<u8>,
    #[prost(message, repeated, tag = "3")]
    requests: Vec<WireRequest>,
}

/// Stored form of board and request ids.
pub(crate) fn encode(board: &Board, requests: &RequestLog) -> Result<Vec<u8>, Fault> {
    let board = serde_json::to_vec(board).map_err(|_| Fault::new(Reason::Internal, "a board cannot be encoded"))?;
    Ok(WireBoard { format: FORMAT, board, requests: requests.to_wire() }.encode_to_vec())
}

/// Reads [`encode`]'s form, as of a clean stop of this process; `None` when it is damaged or newer.
fn decode(data: &[u8], time: Timestamp) -> Option<SavedBoard> {
    let wire = WireBoard::decode(data).ok().filter(|wire| wire.format == FORMAT)?;
    let board: Board = serde_json::from_slice(&wire.board).ok()?;
    if board.broken_invariant().is_some() {
        return None;
    }
    Some(SavedBoard { board, requests: RequestLog::from_wire(wire.requests)?, time, clean: true, ours: true })
}

/// Adds a record of a store to what was loaded. `standing`: whether nothing was acknowledged after it, and whether its holder is
/// this process.
fn collect(
    loaded: &mut Loaded,
    task_id: &str,
    ended: bool,
    time: Timestamp,
    data: &[u8],
    now: Timestamp,
    standing: (bool, bool),
) {
    if ended {
        match decode_tombstone(data) {
            Some(tombstone) if tombstone.expire_time > now => loaded.ended.push(tombstone),
            Some(_) => {}
            None => damaged(loaded, task_id),
        }
        return;
    }
    match decode(data, time) {
        Some(board) => loaded.boards.push(SavedBoard { clean: standing.0, ours: standing.1, ..board }),
        None => damaged(loaded, task_id),
    }
}

fn damaged(loaded: &mut Loaded, task_id: &str) {
    tracing::error!(task_id, "the checkpoint of a board is damaged or of a newer program; the board is lost");
    loaded.damaged += 1;
}

fn encode_tombstone(tombstone: &Tombstone) -> Result<Vec<u8>, Fault> {
    serde_json::to_vec(tombstone).map_err(|_| Fault::new(Reason::Internal, "a tombstone cannot be encoded"))
}

fn decode_tombstone(data: &[u8]) -> Option<Tombstone> {
    serde_json::from_slice(data).ok()
}
