//! SQLite, the truth of long-term memory: the only module of the crate that holds SQL for records, evidence, history,
//! ownership, idempotency, promotions and the outbox. Functions take a [`rusqlite::Connection`] (a transaction derefs to
//! one): whether it is the writer's transaction or a reader's snapshot is the caller's choice, and nothing in here waits
//! for anything but the database.
//!
//! | file | tables |
//! |---|---|
//! | `schema.sql` | every table, with its comments |
//! | [`row`] | `records`: the one mapping between a row and [`strata_core::record::Record`] |

pub mod row;

/// Version of [`SCHEMA`], stored in `meta` and checked at start.
pub const SCHEMA_VERSION: u32 = 1;

/// Every table, index and trigger.
pub const SCHEMA: &str = include_str!("schema.sql");
