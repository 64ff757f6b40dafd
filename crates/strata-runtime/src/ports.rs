//! Production implementations of the ports of `strata-core`: the only file that reads a clock or draws randomness.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use strata_core::Timestamp;
use strata_core::ports::{Clock, IdSource};
use uuid::Uuid;

/// The host's wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the production implementation of the clock port")]
    fn now(&self) -> Timestamp {
        let micros = |d: Duration| i64::try_from(d.as_micros()).unwrap_or(i64::MAX);
        Timestamp(match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(after) => micros(after),
            Err(before) => -micros(before.duration()),
        })
    }
}

/// UUID version 7 from the operating system's random source: 74 random bits each.
#[derive(Clone, Copy, Debug, Default)]
pub struct RandomIds;

impl IdSource for RandomIds {
    #[expect(clippy::disallowed_methods, reason = "the production implementation of the id port")]
    fn next(&self) -> Uuid {
        Uuid::now_v7()
    }
}

/// 32 bytes that nobody can guess, for keys and nonces, condensed from four ids (4 x 74 random bits in production; a
/// deterministic [`IdSource`] gives the same bytes twice).
#[must_use]
pub fn random_bytes(ids: &dyn IdSource) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("strata 2026-11 random bytes from ids");
    for _ in 0..4 {
        hasher.update(ids.next().as_bytes());
    }
    *hasher.finalize().as_bytes()
}

/// What a role needs from the outside world. Cheap to clone; a test passes its own.
#[derive(Clone)]
pub struct Ports {
    /// Wall-clock time.
    pub clock: Arc<dyn Clock>,
    /// Unique ids and nonces.
    pub ids: Arc<dyn IdSource>,
}

impl Ports {
    /// The host's clock and random source.
    #[must_use]
    pub fn system() -> Self {
        Self { clock: Arc::new(SystemClock), ids: Arc::new(RandomIds) }
    }
}

impl fmt::Debug for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ports").field("clock", &self.clock).field("ids", &self.ids).finish()
    }
}

/// Monotonic time since a start, for durations only: never steps back, is never stored, and stands still while a test
/// pauses tokio's time.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(tokio::time::Instant);

impl Stopwatch {
    /// Starts.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the one place that reads monotonic time")]
    pub fn start() -> Self {
        Self(tokio::time::Instant::now())
    }

    /// Time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    /// The instant `after` the start, for [`tokio::time::timeout_at`].
    #[must_use]
    pub fn at(&self, after: Duration) -> tokio::time::Instant {
        self.0 + after
    }
}

/// Waits, for code that has nothing to wait for but time: a backoff, the end of a grace period.
#[expect(clippy::disallowed_methods, reason = "the one place that sleeps")]
pub async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_clock_is_utc_microseconds() {
        // 2026-01-01 and 2200-01-01: a unit mistake (ms, ns) falls far outside.
        let now = SystemClock.now().micros();
        assert!((1_767_225_600_000_000..7_258_118_400_000_000).contains(&now), "{now}");
    }

    #[test]
    fn c063_ids_are_unique_within_one_tick() {
        let ids: BTreeSet<_> = (0..10_000).map(|_| RandomIds.next()).collect();
        assert_eq!(ids.len(), 10_000);
        assert_ne!(random_bytes(&RandomIds), random_bytes(&RandomIds));
    }
}
