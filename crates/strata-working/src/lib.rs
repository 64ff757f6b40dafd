//! Working memory: one task's board (goal, facts, todos, tool digests), kept in this process and, against a stop, in a
//! checkpoint store.
//!
//! ```text
//!   service (gRPC, signed calls) -> boards (sharded map, one lock a shard) -> strata_core::policy::working (the rules)
//!                                      |  dirty tasks
//!                                   role (every 500 ms, at a seal, at an end, at the stop)
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

mod boards;
pub mod checkpoint;
mod erase;
pub mod requests;
mod role;
mod service;

pub use boards::Counts;
pub use checkpoint::CheckpointConfig;
pub use role::{CheckpointStatus, WorkingDeps, WorkingRole, WorkingStatus};
