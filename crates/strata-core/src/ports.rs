//! What the pure core needs from the outside world. A test moves the clock 90 days in a millisecond and draws the
//! same ids twice; production implementations live in `strata-runtime::ports`.

use crate::Timestamp;
use std::fmt::Debug;
use uuid::Uuid;

/// Wall-clock time. The only way any crate may learn what time it is.
pub trait Clock: Send + Sync + Debug {
    /// Now, in UTC microseconds. May step backwards: order never depends on it (case C063).
    fn now(&self) -> Timestamp;
}

/// Source of unique ids and nonces.
pub trait IdSource: Send + Sync + Debug {
    /// A fresh UUID (version 7 in production: sorted by creation, yet never used for order).
    fn next(&self) -> Uuid;
}
