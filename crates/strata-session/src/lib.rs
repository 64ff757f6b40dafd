//! Session memory: the turns of a dialogue, what is shown of them, and what is kept when they slide out, with a life on
//! everything.
//!
//! ```text
//!   service (gRPC, signed calls)
//!      |-- store::{redis, embedded}     every step atomic, one behaviour suite for both
//!      |-- compress                     reads a range, has the rules decide, commits by comparing versions
//!      |-- access                       look-ups of compressed turns, for the energy of their ranges (rule S9)
//!      |-- artifacts                    raw tool returns, compressed in parts
//!      |-- erase                        what an erasure takes, session by session, in bounded parts (rule E2)
//!      |-- summariser                   a model of the deployment asked after the rules, judged like a client (rules S3 to S5)
//!      |-- shared                       what all of these work on: store, settings, compressor, searcher, the model
//!      |-- topics                       after an append: vectors of the new turns, topics that they end (rule S7)
//!      |-- search                       exact scan over analysed turns kept in memory, vectors made in the background
//!      '-- strata_core::policy::session the rules (S1 to S13), strata_text::turns the language
//! ```
//!
//! What may be lost, and what never: an acknowledged turn is in the store, and readable by its number until the session
//! ends or expires, or an erasure redacts it; a compression adds summaries and anchors and removes nothing. Order is by turn number, never by time.

mod access;
mod artifacts;
mod compress;
mod epochs;
mod erase;
mod role;
mod search;
mod service;
mod shared;
pub mod store;
mod summaries;
mod summariser;
mod topics;

pub use role::{SessionDeps, SessionRole, SessionStatus, SessionStoreConfig};
