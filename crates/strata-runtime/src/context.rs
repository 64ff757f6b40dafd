//! What an incoming call hands to the calls it causes: its request id and how much time is left. It travels with the
//! task, so that no signature between a handler and an outgoing channel has to carry it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use strata_core::Timestamp;
use tokio::time::Instant;

tokio::task_local! {
    static CALL: CallContext;
}

/// The incoming call that the current task serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallContext {
    /// The `x-request-id` of the call.
    pub request_id: Option<Arc<str>>,
    /// When its caller stops waiting.
    pub deadline: Option<Instant>,
    /// When it came in, by the server's clock.
    pub admitted: Option<Timestamp>,
}

impl CallContext {
    /// The context of the current task; empty outside a call.
    #[must_use]
    pub fn current() -> Self {
        CALL.try_with(Clone::clone).unwrap_or_default()
    }

    /// Time left, zero when the deadline has passed; `None` without a deadline.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        #[expect(clippy::disallowed_methods, reason = "compares with a deadline of tokio's clock")]
        self.deadline.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Runs `future` with this context.
    pub fn scope<F: Future>(self, future: F) -> impl Future<Output = F::Output> {
        CALL.scope(self, future)
    }
}
