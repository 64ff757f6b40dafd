//! Long-term memory: stable facts and preferences with evidence and history. Every write passes one gate and ends in one
//! insert path; every read is filtered to one owner inside the query and checked again on the row.
//!
//! ```text
//!   gRPC -> service, over call (claims -> OwnerScope, wire -> Statement)
//!        -> intake  (text features, slot: strata-text)        outside any transaction
//!        -> gate::judge                                       refusing rules, pure
//!        -> related (words, meaning)                          what it replaces without a common slot (rule K0)
//!        -> ONE write closure on the writer thread:
//!             idempotency, E7, G10 dedup, gate::divert, conflict::decide, metadata::insert, outbox, audit, revision
//!        -> relay (embeds, tells the index)                   after the answer
//! ```

mod admin;
mod aspects;
pub mod audit;
pub mod backup;
mod binding;
mod call;
mod control;
mod episodes;
mod erase;
mod erasing;
pub mod erasure_log;
mod in_force;
pub mod index;
mod intake;
mod maintenance;
pub mod metadata;
mod parts;
mod quality;
pub mod recall;
mod related;
pub mod relay;
mod role;
mod scope;
mod service;
mod shown;
pub mod state;
mod sync;
mod target;
#[cfg(test)]
mod testing;

mod transfer;
mod update;
pub mod verify;
mod write;

pub use control::DatabaseControl;
pub use index::qdrant::QdrantSettings;
pub use maintenance::ModeSource;
pub use metadata::MIGRATIONS;
pub use role::{IndexConfig, LongtermDeps, LongtermRole, RoleStatus};
pub use scope::OwnerScope;
pub use state::State;
