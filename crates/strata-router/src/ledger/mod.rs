//! The ledger store: claims and marks per user, and the promotion journal. It knows nothing of the rules: a step of
//! `strata_core::policy::ownership` or `promotion` is loaded, decided and swapped in against what was loaded, so both
//! stores follow the same rules by construction.
//!
//! Beside it stands what the router keeps for people and for later: the decisions of a user ([`DecisionLog`]).
//!
//! ```text
//!   Redis      strata:{user}:ledger            one hash per user     k:<key> -> KeyState, s:<scope> -> keys claimed there
//!              strata:{user}:promotion:<id>    one hash per entry    revision, entry, open
//!              strata:{user}:promotions        sorted set            ids of the user's entries, by the time of their start
//!              strata:promotions:open          sorted set            entries a router has still to look at
//!              strata:{user}:promotions        set                   ids of the user's entries
//!              strata:{user}:decisions         stream                what was decided, 7 d
//!   embedded   ledger_fields, promotions, decisions: the same, in SQLite
//! ```

pub mod embedded;
pub mod queue;
pub mod redis;

use async_trait::async_trait;
use std::fmt::Debug;
use strata_core::policy::erasure::{Medium, Purge};
use strata_core::{Fault, Timestamp};

/// Fields of one user's hash: more than every board and session of a user can claim at once.
pub const MAX_FIELDS: usize = 16_384;
/// Entries of the journal that one look returns.
pub const OPEN_PAGE: usize = 256;

/// One field to swap: it is changed only if it still holds `old`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Name.
    pub field: String,
    /// What was read; `None` when it was absent.
    pub old: Option<String>,
    /// What to write; `None` removes it.
    pub new: Option<String>,
}

/// What became of a swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swap {
    /// All changes were made.
    Done,
    /// Another router was faster with one of the fields: nothing was changed.
    Lost,
    /// The user's hash has [`MAX_FIELDS`]: nothing was changed.
    Full,
}

/// One entry of the journal as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalRow {
    /// Revision of the entry.
    pub revision: u64,
    /// The entry, encoded.
    pub entry: String,
}

/// What became of a write to the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is there.
    Done,
    /// The journal held another revision: nothing was changed.
    Lost,
    /// The user has [`strata_core::limits::JOURNAL_ENTRIES`]: nothing was changed.
    Full,
}

/// Name of an open entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpenEntry {
    /// User key (`Owner::user_key`).
    pub user: String,
    /// Promotion id.
    pub promotion_id: String,
}

/// A decision as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionRow {
    /// Names under which it is found: trace, request, recall; empty ones name nothing.
    pub names: [String; 3],
    /// The decision, encoded.
    pub entry: String,
}

/// Which decisions of a user to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Those that carry the name.
    Named(String),
    /// Those after a cursor, in order; the empty cursor stands before the first.
    After(String),
    /// None: only the cursor of the newest.
    Newest,
}

/// Decisions in the order they were stored, and where to go on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    /// The decisions, encoded.
    pub entries: Vec<String>,
    /// Cursor after the last of them; as it was asked with when there is none.
    pub cursor: String,
}

/// The decisions of users, kept until their time is over and at most
/// [`DECISIONS_PER_USER`](strata_core::limits::DECISIONS_PER_USER) each. `user` is always `Owner::user_key`.
#[async_trait]
pub trait DecisionLog: Send + Sync {
    /// Keeps decisions of one user, in this order.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`, `STORE_FULL`.
    async fn keep(&self, user: &str, rows: &[DecisionRow], now: Timestamp, keep_until: Timestamp) -> Result<(), Fault>;

    /// Reads at most `limit`, oldest first.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`; `INVALID_FIELD` when the cursor is none of this store's.
    async fn kept(&self, user: &str, wanted: &Wanted, limit: usize, now: Timestamp) -> Result<Decisions, Fault>;

    /// Removes the user's decisions that name one of `ids` anywhere (rule E2), or all of them; says how many.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn erase(&self, user: &str, ids: Option<&[String]>) -> Result<u64, Fault>;
}

/// Where claims, marks and the journal live. `user` is always `Owner::user_key`; times are the caller's clock.
#[async_trait]
pub trait Ledger: Send + Sync + Debug {
    /// Values of fields, in the order asked for.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn read(&self, user: &str, fields: &[String], now: Timestamp) -> Result<Vec<Option<String>>, Fault>;

    /// Makes all changes or none. What is written is kept until `keep_until` at least.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`, `STORE_FULL`.
    async fn swap(&self, user: &str, changes: &[Change], now: Timestamp, keep_until: Timestamp) -> Result<Swap, Fault>;

    /// One entry of the journal.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn journal_read(&self, user: &str, promotion_id: &str, now: Timestamp) -> Result<Option<JournalRow>, Fault>;

    /// Writes an entry if the journal still holds `expected` (`None`: no such entry). While `open`,
    /// [`Ledger::journal_open`] lists it.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`, `STORE_FULL`.
    #[expect(clippy::too_many_arguments, reason = "one row, written as a whole")]
    async fn journal_write(
        &self,
        user: &str,
        promotion_id: &str,
        expected: Option<u64>,
        row: &JournalRow,
        look_at: Option<Timestamp>,
        now: Timestamp,
        keep_until: Timestamp,
    ) -> Result<Written, Fault>;

    /// All entries of a user, the ones that began first first; at most [`strata_core::limits::JOURNAL_ENTRIES`].
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn journal_list(&self, user: &str, now: Timestamp) -> Result<Vec<JournalRow>, Fault>;

    /// Open entries whose time to be looked at has come, the ones that wait longest first, at most [`OPEN_PAGE`].
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn journal_open(&self, now: Timestamp) -> Result<Vec<OpenEntry>, Fault>;

    /// Takes a name off the list of open entries: its entry is closed or gone.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn journal_close(&self, entry: &OpenEntry) -> Result<(), Fault>;

    /// Removes every claim and mark of a user (rule E5); answers how many fields went.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn forget_user(&self, user: &str) -> Result<u64, Fault>;

    /// Sees to it that what was removed of a user leaves the medium too, and says whether it has.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn medium(&self, user: &str, purge: Purge) -> Result<Medium, Fault>;

    /// Removes what is past its time, where the store does not do so by itself.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn sweep(&self, now: Timestamp) -> Result<(), Fault>;

    /// Whether the store answers.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn ping(&self) -> Result<(), Fault>;

    /// Where decisions are kept; `None` in a ledger that keeps none.
    fn decisions(&self) -> Option<&dyn DecisionLog> {
        None
    }

    /// What waits to be observed; `None` in a ledger without a queue.
    fn queue(&self) -> Option<&dyn queue::ObserveQueue> {
        None
    }

    /// `redis` or `embedded`.
    fn name(&self) -> &'static str;

    /// Ends the store's own threads.
    async fn close(&self);
}
