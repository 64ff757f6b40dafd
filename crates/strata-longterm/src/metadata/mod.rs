//! SQLite, the truth of long-term memory: the only module of the crate that holds SQL for records, evidence, history,
//! ownership, idempotency, promotions and the outbox. Functions take a [`rusqlite::Connection`]: whether it is the
//! writer's transaction or a reader's snapshot is the caller's choice, and nothing in here waits for anything but the
//! database.
//!
//! | file | what it keeps |
//! |---|---|
//! | `schema.sql` | every table, with its comments |
//! | [`row`] | `records`: the one mapping between a row and [`strata_core::record::Record`] |
//! | [`owner`] | who owns what: users, owners, owned keys, revisions, and [`owner::Visible`], the filter of every read |
//! | [`query`] | reads by id, key, filter, chain |
//! | [`insert`](mod@insert) | the one way a record enters, and the moves of its status |
//! | [`entities`], [`skills`], [`episodes`] | what stands beside records |
//! | [`control`] | modes and API keys that operators set |
//! | [`cursors`] | where record systems stand |
//! | [`transfer`] | records out of the file and into it, whole |
//! | [`maintenance`] | what the rules of forgetting look at, and what they do |
//! | [`usage`] | which items of a recall were used |
//! | [`erasures`] | the journal and the receipts of erasures |
//! | [`wipe`] | what an erasure removes and redacts in this file |
//! | [`quality`](mod@quality) | counts of that, and reviews |
//! | [`ledger`] | idempotent answers, promotions, tombstones, the outbox, the audit |

pub mod control;
pub mod cursors;
pub mod derived;
pub mod entities;
pub mod episodes;
pub mod erasures;
pub mod insert;
pub mod ledger;
pub mod maintenance;
pub mod owner;
pub mod quality;
pub mod query;
pub mod row;
pub mod search;
pub mod skills;
pub mod transfer;
pub mod usage;
pub mod wipe;

pub use owner::{StoredOwner, Visible};
pub use row::StoredRecord;

use strata_core::{Fault, Reason};
use strata_runtime::sqlite::{Migration, SqliteError};

/// The schema, for [`strata_runtime::sqlite::Database::open`].
pub const MIGRATIONS: &[Migration] = &[
    Migration { version: 1, name: "records, evidence, history, index tables", sql: SCHEMA },
    Migration { version: 2, name: "citations of a recall", sql: CITATIONS },
    Migration { version: 3, name: "cursors of record systems", sql: SYNC },
    Migration { version: 4, name: "entities, relations, skills", sql: PARTS },
    Migration { version: 5, name: "episodes, archived turns", sql: EPISODES },
    Migration { version: 6, name: "modes and API keys", sql: CONTROL },
    Migration { version: 7, name: "quality: counts and reviews", sql: QUALITY },
    Migration { version: 8, name: "links to what may be replaced, questions that were asked", sql: LINKS },
    Migration { version: 9, name: "derivations, forgetting", sql: FORGETTING },
    Migration { version: 10, name: "erasures", sql: ERASURES },
    Migration { version: 11, name: "topics of a session", sql: TOPICS },
    Migration { version: 12, name: "outbox by tenant", sql: OUTBOX_LANES },
    Migration { version: 13, name: "what owners and tenants keep", sql: TENANTS },
];

/// Every table, index and trigger.
const SCHEMA: &str = include_str!("schema.sql");

/// Which records of a recall were cited: each counts once per recall.
const CITATIONS: &str = include_str!("migrations/0002_citations.sql");

/// Where record systems stand.
const SYNC: &str = include_str!("migrations/0003_sync.sql");

/// Whose the rows of the outbox are.
const OUTBOX_LANES: &str = include_str!("migrations/0012_outbox_lanes.sql");

/// What stands beside records.
const PARTS: &str = include_str!("migrations/0004_parts.sql");

/// What stays of ended sessions.
const EPISODES: &str = include_str!("migrations/0005_episodes.sql");

/// Several episodes of one session.
const TOPICS: &str = include_str!("migrations/0011_topics.sql");

/// What operators set.
const CONTROL: &str = include_str!("migrations/0006_control.sql");

/// Whether memory is worth what it costs.
const QUALITY: &str = include_str!("migrations/0007_quality.sql");

/// From an older value to the one that may replace it, and what was put to the user.
const LINKS: &str = include_str!("migrations/0008_links.sql");
/// What was erased, and what is being erased.
const ERASURES: &str = include_str!("migrations/0010_erasures.sql");

/// How much owners and tenants keep.
const TENANTS: &str = include_str!("migrations/0013_tenants.sql");

/// What is made of other records, and what forgets by itself.
const FORGETTING: &str = include_str!("migrations/0009_forgetting.sql");

/// Turns a driver's result into ours: the cause is logged without content where it happens.
pub(crate) trait Sql<T> {
    /// The value, or the fault.
    ///
    /// # Errors
    /// As [`SqliteError`] maps to [`Fault`].
    fn sql(self) -> Result<T, Fault>;
}

impl<T> Sql<T> for rusqlite::Result<T> {
    fn sql(self) -> Result<T, Fault> {
        self.map_err(|error| SqliteError::from(error).into())
    }
}

/// A row that does not hold what the schema promises.
pub(crate) fn corrupt(what: &'static str) -> Fault {
    tracing::error!(what, "a stored row is damaged");
    Fault::new(Reason::Internal, "a stored record is damaged")
}
