//! Session memory: the turns of a dialogue, what is shown of them, and what is kept when they slide out, with a life on
//! everything.
//!
//! ```text
//!   service (gRPC, signed calls)
//!      |-- store::{redis, embedded}     every step atomic, one behaviour suite for both
//!      |-- compress                     reads a range, has the rules decide, commits by comparing versions
//!      |-- artifacts                    raw tool returns, compressed in parts
//!      |-- erase                        what an erasure takes, session by session, in bounded parts (rule E2)
//!      |-- search                       exact scan over analysed turns kept in memory, vectors made in the background
//!      '-- strata_core::policy::session the rules (S1 to S13), strata_text::turns the language
//! ```
//!
//! What may be lost, and what never: an acknowledged turn is in the store, and readable by its number until the session
//! ends or expires, or an erasure redacts it; a compression adds summaries and anchors and removes nothing. Order is by turn number, never by time.

mod artifacts;
mod compress;
mod erase;
mod role;
mod search;
mod service;
pub mod store;

pub use role::{SessionDeps, SessionRole, SessionStatus, SessionStoreConfig};
