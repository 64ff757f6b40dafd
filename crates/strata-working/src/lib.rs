//! Working memory: one task's board (goal, facts, todos, tool digests), kept in this process and, against a stop, in a
//! checkpoint store.
//!
//! ```text
//!   service (gRPC, signed calls) -> boards (sharded map, one lock a shard) -> strata_core::policy::working (the rules)
//!                                      |  dirty tasks
//!                                   custody (every 500 ms, at a seal, at an end, at the stop: role)
//!                                      v
//!                                   checkpoint::{redis, embedded}
//! ```
//!
//! What may be lost, and what never (rule W10):
//! - A graceful stop loses nothing: [`WorkingRole::shutdown`] refuses new calls, flushes, and leaves a marker.
//! - Without the marker the next start raises the generation of every board it reads back. A write that names an older
//!   one answers `TASK_LOST`; so does one that names none, until some caller has sent the new generation.
//! - An end and a seal are written before they are answered. While the store is down they are answered all the same (a
//!   single replica goes on, rule D2), stay due until the store is back, and the status says so.
//! - One replica serves a task. A copy that finds a later board in the store stops acknowledging.
//!
//! With several replicas on one store ([`CheckpointConfig::Shared`]) nothing is read back at the start:
//! - A board comes with the first call about it, when its record names no holder, this process, or one that stopped or gave no sign of
//!   life for [`placement::TAKEOVER`](strata_core::policy::placement::TAKEOVER). A holder that lives is asked for it, and gives it
//!   away as it stands within a round (200 ms).
//! - Nothing is answered later than [`placement::FENCE`](strata_core::policy::placement::FENCE) after the start of the last completed
//!   round trip. After [`placement::LAPSE`](strata_core::policy::placement::LAPSE) the process goes on under another name and reads
//!   from the store again what it had written there: a takeover that is under way then finds another holder.
//! - Starts, ends and seals are in the store before they are answered, without exception.

mod boards;
pub mod checkpoint;
mod custody;
mod erase;
pub mod requests;
mod role;
mod service;

pub use boards::Counts;
pub use checkpoint::CheckpointConfig;
pub use custody::{CheckpointStatus, WorkingDeps};
pub use role::{WorkingRole, WorkingStatus};
