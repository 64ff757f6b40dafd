//! Proofs of ownership and promotion (rules P1 to P9, erase epochs of E2), over the code that runs in production.
//!
//! ```text
//!   bug       the mistakes that are planted, one at a time, to show that both would be found
//!   explore   every interleaving of a small world: two routers, two layers, a ledger, messages that are late, lost and doubled
//!   sim       a large world at random: real routers, the real embedded ledger, signed calls, partitions, crashes, clock steps
//! ```
//!
//! What is modelled, its bounds, and what is not: `docs/proofs.md`.

pub mod bug;
pub mod explore;
pub mod sim;
