//! The life of the role: boards come back, are checkpointed and swept, and are flushed at the end.

use crate::boards::Counts;
use crate::custody::{CheckpointStatus, Shared, WorkingDeps};
use crate::service::WorkingService;
use std::sync::Arc;
use std::time::Duration;
use strata_api::internal::v1::participant_service_server::ParticipantServiceServer;
use strata_api::internal::v1::working_erasure_service_server::WorkingErasureServiceServer;
use strata_api::working::v1::working_memory_service_server::WorkingMemoryServiceServer;
use strata_core::{Fault, limits};
use strata_runtime::TaskGroup;
use strata_runtime::ports::{Stopwatch, pause};

/// Between two attempts to read the boards back while the store is down.
const RESTORE_RETRY: Duration = Duration::from_millis(500);
/// Sweeps between two purges of the store.
const SWEEPS_PER_PURGE: u32 = 60;

/// State of the role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkingStatus {
    /// Whether it serves: the boards are back, the checkpoints are not behind where there are several replicas, and it is not
    /// stopping.
    pub serving: bool,
    /// Numbers.
    pub counts: Counts,
    /// Checkpoints.
    pub checkpoint: CheckpointStatus,
}

/// The role. Dropping it without [`Self::shutdown`] is what a kill is: background work stops, nothing is flushed.
#[derive(Debug)]
pub struct WorkingRole {
    shared: Arc<Shared>,
    tasks: TaskGroup,
}

impl Drop for WorkingRole {
    fn drop(&mut self) {
        self.tasks.token().cancel();
    }
}

impl WorkingRole {
    /// Reads the boards back from their checkpoints and starts the background work. While the store does not answer, the
    /// role is built all the same, answers `NOT_SERVING`, and goes on trying: serving without the boards and the ids of
    /// ended tasks would bring back what is gone.
    ///
    /// # Errors
    /// `INVALID_FIELD` naming a setting of `policy.working`.
    pub async fn build(deps: WorkingDeps) -> Result<Self, Fault> {
        deps.settings.load().working.validate()?;
        let tasks = TaskGroup::new();
        let shared = Arc::new(Shared::new(deps, tasks.token().clone()));
        let role = Self { shared: Arc::clone(&shared), tasks: tasks.clone() };
        let first = shared.restore().await;
        if let Err(fault) = &first {
            shared.record(&Err(fault.clone()));
        }
        let (token, worker) = (tasks.token().clone(), Arc::clone(&shared));
        tasks.spawn_critical("working checkpoints", async move {
            let work = async {
                let mut restored = first.is_ok();
                while !restored {
                    pause(RESTORE_RETRY).await;
                    restored = worker.restore().await.is_ok();
                }
                loop {
                    pause(worker.between_rounds()).await;
                    // A failure is in the status, and everything stays due.
                    let _ = worker.round().await;
                }
            };
            tokio::select! {
                () = work => {}
                () = token.cancelled() => {}
            }
        });
        let (token, worker) = (tasks.token().clone(), shared);
        tasks.spawn_critical("working sweep", async move {
            tokio::select! {
                () = sweep_for_ever(&worker) => {}
                () = token.cancelled() => {}
            }
        });
        Ok(role)
    }

    /// The services: working memory for callers, its side of a promotion and of an erasure for the router.
    #[must_use]
    pub fn routes(&self) -> tonic::service::Routes {
        let service = WorkingService::new(Arc::clone(&self.shared));
        let boards = WorkingMemoryServiceServer::new(service.clone())
            .max_decoding_message_size(limits::MESSAGE_BYTES)
            .max_encoding_message_size(limits::MESSAGE_BYTES);
        let participant = ParticipantServiceServer::new(service.clone())
            .max_decoding_message_size(limits::MESSAGE_BYTES)
            .max_encoding_message_size(limits::MESSAGE_BYTES);
        let erasure = WorkingErasureServiceServer::new(service)
            .max_decoding_message_size(limits::MESSAGE_BYTES)
            .max_encoding_message_size(limits::MESSAGE_BYTES);
        tonic::service::Routes::new(boards).add_service(participant).add_service(erasure)
    }

    /// Writes every change to the checkpoint store now.
    ///
    /// # Errors
    /// The store's; what was not written stays due.
    pub async fn checkpoint(&self) -> Result<(), Fault> {
        self.shared.round().await
    }

    /// Destroys boards past their idle time now, swept by the clock otherwise; answers how many entries went.
    #[expect(clippy::must_use_candidate, reason = "called for its effect")]
    pub fn sweep(&self) -> usize {
        self.shared.boards.sweep(self.shared.now())
    }

    /// State for the status call, metrics and readiness.
    #[must_use]
    pub fn status(&self) -> WorkingStatus {
        WorkingStatus {
            serving: self.shared.boards.is_open() && self.shared.boards.is_fresh(),
            counts: self.shared.boards.counts(),
            checkpoint: self.shared.health(),
        }
    }

    /// Stops: refuses new calls, flushes every board, and leaves the marker of a clean stop. Answers whether nothing was
    /// lost; at `deadline` it gives up, and the next start raises the generations.
    pub async fn shutdown(&self, deadline: Duration) -> bool {
        let watch = Stopwatch::start();
        // Never opened: the store still holds what it held, marker included.
        let was_open = self.shared.boards.is_open();
        self.shared.boards.set_open(false);
        let stopped = self.tasks.shutdown(deadline).await;
        if !was_open {
            return stopped;
        }
        let left = deadline.saturating_sub(watch.elapsed());
        let flushed = tokio::time::timeout(left, async {
            while self.shared.flush_all().await.is_err() {
                pause(Duration::from_millis(100)).await;
            }
            let Some(store) = &self.shared.store else { return Ok(()) };
            if let Some(sharing) = store.sharing() {
                self.shared.retire_formers(sharing).await?;
            }
            store.mark_clean(true).await
        });
        let clean = matches!(flushed.await, Ok(Ok(())));
        if !clean {
            tracing::error!(due = self.shared.boards.counts().dirty, "boards could not be flushed before the stop");
        }
        clean && stopped
    }
}

async fn sweep_for_ever(shared: &Shared) {
    let mut sweeps = 0_u32;
    loop {
        pause(Duration::from_millis(shared.settings().sweep_ms)).await;
        if !shared.boards.is_open() {
            continue;
        }
        let now = shared.now();
        shared.boards.sweep(now);
        sweeps = sweeps.wrapping_add(1);
        if sweeps.is_multiple_of(SWEEPS_PER_PURGE)
            && let Some(store) = &shared.store
            && let Err(fault) = store.purge(now).await
        {
            tracing::warn!(reason = fault.reason.name(), "expired checkpoints could not be dropped");
        }
    }
}
