//! A clock that only moves when the test says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use strata_core::Timestamp;
use strata_core::ports::Clock;

/// A [`Clock`] under the test's control. Clones share the same time: hand one to the code under test and keep the other.
///
/// ```
/// use strata_core::{ports::Clock, time::DAY};
/// use strata_testkit::ManualClock;
///
/// let clock = ManualClock::default();
/// let seen_by_the_store = clock.clone();
/// clock.advance_micros(90 * DAY);
/// assert_eq!(seen_by_the_store.now().since(ManualClock::START), 90 * DAY);
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    /// Where [`ManualClock::default`] starts: 2026-01-01T00:00:00Z, so that ages of years stay after the epoch.
    pub const START: Timestamp = Timestamp::from_seconds(1_767_225_600);

    /// A clock that stands at `start`.
    #[must_use]
    pub fn at(start: Timestamp) -> Self {
        Self(Arc::new(AtomicI64::new(start.micros())))
    }

    /// Moves to `now`, forwards or backwards (case C063: a wall clock may step back).
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.micros(), Ordering::SeqCst);
    }

    /// Moves forwards and returns the new time.
    #[allow(clippy::must_use_candidate, reason = "most tests move the clock for its effect")]
    pub fn advance(&self, by: Duration) -> Timestamp {
        self.advance_micros(micros(by))
    }

    /// Moves by `by` microseconds (see `strata_core::time::DAY` and its siblings) and returns the new time.
    #[allow(clippy::must_use_candidate, reason = "most tests move the clock for its effect")]
    pub fn advance_micros(&self, by: i64) -> Timestamp {
        Timestamp(self.0.fetch_add(by, Ordering::SeqCst).saturating_add(by))
    }

    /// Moves backwards, as a wall clock does after a correction, and returns the new time.
    #[allow(clippy::must_use_candidate, reason = "most tests move the clock for its effect")]
    pub fn step_back(&self, by: Duration) -> Timestamp {
        self.advance_micros(-micros(by))
    }

    /// The clock as the port that production code takes.
    #[must_use]
    pub fn port(&self) -> Arc<dyn Clock> {
        Arc::new(self.clone())
    }
}

fn micros(d: Duration) -> i64 {
    i64::try_from(d.as_micros()).expect("a test moves the clock by less than 292,000 years")
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::at(Self::START)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_one_time_and_it_can_step_back() {
        let clock = ManualClock::default();
        let port = clock.port();
        assert_eq!(port.now(), ManualClock::START, "it does not move by itself");
        clock.advance(Duration::from_secs(5));
        assert_eq!(port.now().since(ManualClock::START), 5_000_000);
        clock.step_back(Duration::from_secs(6));
        assert_eq!(port.now().since(ManualClock::START), -1_000_000);
        clock.set(Timestamp::ZERO);
        assert_eq!(port.now(), Timestamp::ZERO);
    }
}
