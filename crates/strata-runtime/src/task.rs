//! Tasks with an owner: every background task belongs to a [`TaskGroup`], has a name, stops at shutdown and is waited
//! for. This is the only file that calls `tokio::spawn`.
//!
//! Shutdown in prose: [`TaskGroup::shutdown`] cancels the token; loops that `select!` on it end by themselves; it then
//! waits until every task of the group, and every [`detached_write`] of the process, has ended, but no longer than the
//! deadline. What is still running then is named in the log and left to the end of the process.

use crate::context::CallContext;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use strata_core::{Fault, Reason};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

/// Writes in flight of this process. Closed from the start: `wait` then means "until none is running".
static WRITES: LazyLock<TaskTracker> = LazyLock::new(|| {
    let tracker = TaskTracker::new();
    tracker.close();
    tracker
});

/// Background tasks that live and stop together. Cheap to clone: clones are the same group.
#[derive(Clone, Debug, Default)]
pub struct TaskGroup {
    token: CancellationToken,
    tracker: TaskTracker,
    running: Arc<Mutex<BTreeMap<&'static str, usize>>>,
    failed: Arc<Mutex<Option<&'static str>>>,
}

/// Counts a task as running until it ends, also when it panics or is dropped.
struct Running {
    name: &'static str,
    running: Arc<Mutex<BTreeMap<&'static str, usize>>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut running = self.running.lock();
        if let Some(count) = running.get_mut(self.name) {
            *count -= 1;
            if *count == 0 {
                running.remove(self.name);
            }
        }
    }
}

/// Ends the group when a critical task ends before the group does.
struct Critical {
    name: &'static str,
    group: TaskGroup,
}

impl Drop for Critical {
    fn drop(&mut self) {
        if !self.group.token.is_cancelled() {
            tracing::error!(task = self.name, "a critical task ended; the process stops");
            self.group.failed.lock().get_or_insert(self.name);
            self.group.token.cancel();
        }
    }
}

impl TaskGroup {
    /// An empty group.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancelled when the group is to stop. A task that waits for anything else selects on it too.
    #[must_use]
    pub const fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// The critical task that ended too early and stopped the group, if one did.
    #[must_use]
    pub fn failed(&self) -> Option<&'static str> {
        *self.failed.lock()
    }

    fn running(&self, name: &'static str) -> Running {
        *self.running.lock().entry(name).or_default() += 1;
        Running { name, running: Arc::clone(&self.running) }
    }

    /// Spawns a task. `name` is a constant of the program: it appears in logs and at shutdown.
    pub fn spawn<F>(&self, name: &'static str, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let running = self.running(name);
        self.tracker.spawn(async move {
            let _running = running;
            future.await
        })
    }

    /// Spawns a task without which the process is of no use: if it returns or panics before the shutdown, the whole
    /// group is cancelled and [`TaskGroup::failed`] names it.
    pub fn spawn_critical<F>(&self, name: &'static str, future: F) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let critical = Critical { name, group: self.clone() };
        self.spawn(name, async move {
            let _critical = critical;
            future.await;
        })
    }

    /// Runs blocking work on tokio's blocking pool. It cannot be cancelled: keep it short, or look at the token.
    pub fn blocking<T: Send + 'static>(&self, name: &'static str, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let running = self.running(name);
        self.tracker.spawn_blocking(move || {
            let _running = running;
            work()
        })
    }

    /// Cancels the token, then waits for the tasks of the group and for the writes of the process, at most `deadline`.
    /// Answers whether all ended in time. A second call waits again.
    pub async fn shutdown(&self, deadline: Duration) -> bool {
        self.token.cancel();
        self.tracker.close();
        let all = async {
            self.tracker.wait().await;
            WRITES.wait().await;
        };
        let in_time = tokio::time::timeout(deadline, all).await.is_ok();
        if !in_time {
            let names: Vec<_> = self.running.lock().keys().copied().collect();
            tracing::warn!(tasks = ?names, writes = WRITES.len(), "tasks outlive the shutdown deadline");
        }
        in_time
    }
}

/// Runs a handler's write that must not stop half-way in a task of its own and awaits its answer. Dropping the caller
/// (a cancelled RPC drops the handler in the middle of an await) drops only the wait; the write goes on to its end, and
/// [`TaskGroup::shutdown`] waits for it. Span, request id and deadline go along.
///
/// # Errors
/// What the write answers; `INTERNAL` when it panicked.
pub async fn detached_write<T, E, F>(write: F) -> Result<T, E>
where
    F: Future<Output = Result<T, E>> + Send + 'static,
    T: Send + 'static,
    E: From<Fault> + Send + 'static,
{
    let task = CallContext::current().scope(write.in_current_span());
    match WRITES.spawn(task).await {
        Ok(answer) => answer,
        Err(_) => Err(Fault::new(Reason::Internal, "the write ended unexpectedly").into()),
    }
}
