//! The life of the role: boards come back, are checkpointed and swept, and are flushed at the end.

use crate::boards::{Boards, Counts, Due, TaskKey};
use crate::checkpoint::{CheckpointConfig, CheckpointStore, Snapshot};
use crate::service::WorkingService;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use strata_api::internal::v1::participant_service_server::ParticipantServiceServer;
use strata_api::internal::v1::working_erasure_service_server::WorkingErasureServiceServer;
use strata_api::page::PageTokens;
use strata_api::working::v1::working_memory_service_server::WorkingMemoryServiceServer;
use strata_core::policy::settings::PolicySettings;
use strata_core::policy::working::WorkingSettings;
use strata_core::{Fault, Timestamp, limits};
use strata_runtime::ports::{Stopwatch, pause, random_bytes};
use strata_runtime::{Ports, TaskGroup};
use tokio_util::sync::CancellationToken;

/// Boards in one round trip to the store: at most 8 MiB of full boards with their answers.
const BATCH: usize = 64;
/// Between two attempts to read the boards back while the store is down.
const RESTORE_RETRY: Duration = Duration::from_millis(500);
/// Sweeps between two purges of the store.
const SWEEPS_PER_PURGE: u32 = 60;

/// What the role needs.
#[derive(Clone, Debug)]
pub struct WorkingDeps {
    /// Clock and ids.
    pub ports: Ports,
    /// Read once per call.
    pub settings: Arc<ArcSwap<PolicySettings>>,
    /// Where boards survive.
    pub checkpoint: CheckpointConfig,
}

/// Health of the checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointStatus {
    /// `redis`, `sqlite`, or `none`.
    pub store: &'static str,
    /// Since when the store has refused; none while it works.
    pub failing_since: Option<Timestamp>,
    /// When it last took something or was found to be up to date.
    pub last_success: Option<Timestamp>,
    /// Records that could not be read at the start.
    pub damaged: u64,
}

/// State of the role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkingStatus {
    /// Whether it serves: the boards are back and it is not stopping.
    pub serving: bool,
    /// Numbers.
    pub counts: Counts,
    /// Checkpoints.
    pub checkpoint: CheckpointStatus,
}

/// What service and background tasks share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) ports: Ports,
    settings: Arc<ArcSwap<PolicySettings>>,
    pub(crate) boards: Boards,
    /// Of lists: this process' own, since the boards are.
    pub(crate) page_tokens: PageTokens,
    /// Cancelled when the role stops: streams end then.
    pub(crate) stopping: CancellationToken,
    pub(crate) store: Option<Arc<dyn CheckpointStore>>,
    health: Mutex<CheckpointStatus>,
    /// One write to the store at a time: a late answer can then never be of an older board than the store has from us.
    saving: tokio::sync::Mutex<()>,
}

impl Shared {
    pub(crate) fn now(&self) -> Timestamp {
        self.ports.clock.now()
    }

    pub(crate) fn settings(&self) -> WorkingSettings {
        self.settings.load().working.clone()
    }

    fn record(&self, outcome: &Result<(), Fault>) {
        let now = self.now();
        let mut health = self.health.lock();
        match outcome {
            Ok(()) => {
                if health.failing_since.take().is_some() {
                    tracing::info!(store = health.store, "checkpoints are written again");
                }
                health.last_success = Some(now);
            }
            Err(fault) => {
                if health.failing_since.is_none() {
                    tracing::error!(
                        store = health.store,
                        reason = fault.reason.name(),
                        "checkpoints cannot be written; boards go on without"
                    );
                    health.failing_since = Some(now);
                }
            }
        }
    }

    /// Writes what is due of one task, before the call that made it due is answered. A store that is down does not hold
    /// the call back: it stays due.
    pub(crate) async fn flush_one(&self, key: &TaskKey) {
        // The outcome is in the status.
        let _ = self.flush(std::slice::from_ref(key)).await;
    }

    /// Writes what is due of these tasks, a batch at a time.
    pub(crate) async fn flush(&self, keys: &[TaskKey]) -> Result<(), Fault> {
        let Some(store) = &self.store else { return Ok(()) };
        for batch in keys.chunks(BATCH) {
            let _one_at_a_time = self.saving.lock().await;
            let outcome = self.flush_batch(store.as_ref(), batch).await;
            self.record(&outcome);
            outcome?;
        }
        Ok(())
    }

    async fn flush_batch(&self, store: &dyn CheckpointStore, batch: &[TaskKey]) -> Result<(), Fault> {
        let now = self.now();
        let mut snapshots: Vec<Snapshot> = Vec::new();
        for due in batch.iter().filter_map(|key| self.boards.due(key, now)) {
            match due {
                Due::Board(snapshot) => snapshots.push(*snapshot),
                Due::End(tombstone) => {
                    store.end(&tombstone).await?;
                    self.boards.end_saved(&tombstone);
                }
            }
        }
        if snapshots.is_empty() {
            return Ok(());
        }
        let outcomes = store.save(&snapshots).await?;
        for (snapshot, outcome) in snapshots.iter().zip(outcomes) {
            self.boards.saved(snapshot, outcome);
        }
        Ok(())
    }

    /// Writes everything that is due now.
    async fn flush_all(&self) -> Result<(), Fault> {
        self.flush(&self.boards.dirty()).await
    }

    /// Reads the boards back and opens for calls. The marker of the last clean stop goes only after every raised
    /// generation is written: a start that fails half-way is repeated as it was.
    async fn restore(&self) -> Result<(), Fault> {
        if let Some(store) = &self.store {
            self.boards.clear();
            let now = self.now();
            let loaded = store.load(now).await?;
            self.health.lock().damaged = loaded.damaged;
            tracing::info!(
                store = store.name(),
                boards = loaded.boards.len(),
                ended = loaded.ended.len(),
                clean = loaded.clean,
                "boards are back"
            );
            let raised = self.boards.restore(loaded, now)?;
            for batch in raised.chunks(BATCH) {
                let outcomes = store.save(batch).await?;
                for (snapshot, outcome) in batch.iter().zip(outcomes) {
                    self.boards.saved(snapshot, outcome);
                }
            }
            store.mark_clean(false).await?;
            self.record(&Ok(()));
        }
        self.boards.set_open(true);
        Ok(())
    }
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
        let store = deps.checkpoint.store();
        let health = CheckpointStatus {
            store: store.as_ref().map_or("none", |store| store.name()),
            failing_since: None,
            last_success: None,
            damaged: 0,
        };
        let tasks = TaskGroup::new();
        let page_tokens = PageTokens::new(&random_bytes(deps.ports.ids.as_ref()));
        let shared = Arc::new(Shared {
            page_tokens,
            stopping: tasks.token().clone(),
            ports: deps.ports,
            settings: deps.settings,
            boards: Boards::new(store.is_some()),
            store,
            health: Mutex::new(health),
            saving: tokio::sync::Mutex::default(),
        });
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
                    pause(Duration::from_millis(worker.settings().checkpoint_ms)).await;
                    // A failure is in the status, and everything stays due.
                    let _ = worker.flush_all().await;
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
        self.shared.flush_all().await
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
            serving: self.shared.boards.is_open(),
            counts: self.shared.boards.counts(),
            checkpoint: self.shared.health.lock().clone(),
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
            match &self.shared.store {
                Some(store) => store.mark_clean(true).await,
                None => Ok(()),
            }
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
