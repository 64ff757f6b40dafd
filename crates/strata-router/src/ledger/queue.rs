//! What waits to be observed: a queue per user, in order, over both stores. A router leases a user, works off the head of the
//! queue, and gives the user back; when it dies the lease ends and another goes on.
//!
//! ```text
//!   Redis      strata:{user}:observe        stream        what waits, 7 d
//!              strata:observe:users         sorted set    users with something that waits, by when they are looked at next
//!   embedded   observations, observed_users: the same, in SQLite
//! ```

use async_trait::async_trait;
use strata_core::{Fault, Timestamp};

/// What became of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// It waits.
    Done,
    /// Something of that id waits already: it is not doubled.
    Known,
    /// The user's queue, or the number of users that wait, is at its bound: nothing was taken.
    Full,
}

/// Something that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Its place, for [`ObserveQueue::done`].
    pub place: String,
    /// What it is, encoded.
    pub entry: String,
}

/// How much waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Users with something that waits; they may be named a moment longer than that.
    pub users: u64,
    /// What waits of the users that were looked at.
    pub entries: u64,
    /// When the oldest of it was pushed.
    pub oldest: Option<Timestamp>,
}

/// The queue. `user` is always `Owner::user_key`; times are the caller's clock.
#[async_trait]
pub trait ObserveQueue: Send + Sync {
    /// Puts something at the end of the user's queue.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`, `STORE_FULL`.
    async fn push(&self, user: &str, id: &str, entry: &str, now: Timestamp, keep_until: Timestamp) -> Result<Pushed, Fault>;

    /// Users that are due, the longest waiting first, at most `limit`, each with the time it was due at.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<(String, Timestamp)>, Fault>;

    /// How much waits, leased or not: of the `limit` users that are due first.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn backlog(&self, limit: usize) -> Result<Backlog, Fault>;

    /// Moves a user's time, if it is still `seen`; false when another router was faster.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn lease(&self, user: &str, seen: Timestamp, until: Timestamp) -> Result<bool, Fault>;

    /// The head of the user's queue.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn head(&self, user: &str, limit: usize, now: Timestamp) -> Result<Vec<Waiting>, Fault>;

    /// Takes something out of the queue.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn done(&self, user: &str, place: &str) -> Result<(), Fault>;

    /// Gives a leased user back: to be looked at from `next` on, or not at all when nothing waits.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn release(&self, user: &str, leased: Timestamp, next: Timestamp) -> Result<(), Fault>;
}
