//! What survives of the boards (rule W10): one record per task id, either the board as it stood at its last checkpoint or
//! the tombstone of its end.
//!
//! A record is only ever replaced by a later one. Later means: a board by itself at a higher (generation, version); a board
//! by its tombstone; a tombstone by a board that was started after it. The store decides that in one atomic step, so a
//! checkpoint that is late, or comes from a copy that was replaced, changes nothing.

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
use strata_core::{Fault, Owner, Reason, TaskId, Timestamp};
use strata_runtime::redis_store::RedisPool;
use strata_runtime::sqlite::Database;

/// Where checkpoints go.
#[derive(Clone, Debug)]
pub enum CheckpointConfig {
    /// Nowhere: every stop loses the boards, and ended ids are known to this process alone. For tests and trials.
    None,
    /// Redis; its keys expire by themselves.
    Redis(RedisPool),
    /// SQLite, opened with [`embedded::MIGRATIONS`].
    Embedded(Database),
    /// Any other store that passes the behaviour suite.
    Other(Arc<dyn CheckpointStore>),
}

impl CheckpointConfig {
    pub(crate) fn store(self) -> Option<Arc<dyn CheckpointStore>> {
        match self {
            Self::None => None,
            Self::Redis(pool) => Some(Arc::new(redis::RedisCheckpoints::new(pool))),
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
    /// Board and request ids, see [`SavedBoard`].
    pub data: Vec<u8>,
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
}

/// Everything a store holds.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// Live boards.
    pub boards: Vec<SavedBoard>,
    /// Tombstones that have not expired.
    pub ended: Vec<Tombstone>,
    /// The last process flushed everything before it stopped.
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

    /// Replaces a board by its tombstone.
    ///
    /// # Errors
    /// The store's; it may then have been written.
    async fn end(&self, tombstone: &Tombstone) -> Result<(), Fault>;

    /// Sets or takes away the marker of a clean stop. It is taken away before the first write is acknowledged.
    ///
    /// # Errors
    /// The store's.
    async fn mark_clean(&self, clean: bool) -> Result<(), Fault>;

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

/// Reads [`encode`]'s form; `None` when it is damaged or newer.
fn decode(data: &[u8], time: Timestamp) -> Option<SavedBoard> {
    let wire = WireBoard::decode(data).ok().filter(|wire| wire.format == FORMAT)?;
    let board: Board = serde_json::from_slice(&wire.board).ok()?;
    if board.broken_invariant().is_some() {
        return None;
    }
    Some(SavedBoard { board, requests: RequestLog::from_wire(wire.requests)?, time })
}

/// Adds a record of a store to what was loaded.
fn collect(loaded: &mut Loaded, task_id: &str, ended: bool, time: Timestamp, data: &[u8], now: Timestamp) {
    if ended {
        match serde_json::from_slice::<Tombstone>(data) {
            Ok(tombstone) if tombstone.expire_time > now => loaded.ended.push(tombstone),
            Ok(_) => {}
            Err(_) => damaged(loaded, task_id),
        }
        return;
    }
    match decode(data, time) {
        Some(board) => loaded.boards.push(board),
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
