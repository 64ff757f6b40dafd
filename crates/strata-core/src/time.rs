//! Time as data: UTC microseconds since the Unix epoch, whatever the zone of the host (cases C068, C069).

use serde::{Deserialize, Serialize};

/// An instant in UTC microseconds since 1970-01-01. Negative before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

/// Microseconds in a second.
pub const SECOND: i64 = 1_000_000;
/// Microseconds in a minute.
pub const MINUTE: i64 = 60 * SECOND;
/// Microseconds in an hour.
pub const HOUR: i64 = 60 * MINUTE;
/// Microseconds in a day.
pub const DAY: i64 = 24 * HOUR;

impl Timestamp {
    /// The Unix epoch.
    pub const ZERO: Self = Self(0);

    /// From whole seconds, saturating at the ends of the range.
    #[must_use]
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(SECOND))
    }

    /// Microseconds since the epoch.
    #[must_use]
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Later by `micros` (earlier when negative), saturating.
    #[must_use]
    pub const fn plus(self, micros: i64) -> Self {
        Self(self.0.saturating_add(micros))
    }

    /// Microseconds from `earlier` to `self`, saturating; negative when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Age of `self` at `now` in days, never negative: the future counts as age 0 (rule R5).
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn age_days(self, now: Self) -> f64 {
        now.since(self).max(0) as f64 / DAY as f64
    }
}
