//! Boards in the hands of this process: how they come, change hands, and reach the store.

use crate::boards::{Boards, Due, TaskKey, behind, elsewhere};
use crate::checkpoint::{CheckpointConfig, CheckpointStore, Sharing, Snapshot, Taken, Wanted};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use strata_api::page::PageTokens;
#[cfg(doc)]
use strata_core::policy::placement::FENCE;
use strata_core::policy::placement::TAKEOVER;
use strata_core::policy::settings::PolicySettings;
use strata_core::policy::working::{WorkingSettings, mismatch};
use strata_core::{Fault, Owner, Reason, TaskId, Timestamp};
use strata_runtime::Ports;
use strata_runtime::ports::{Stopwatch, pause, random_bytes};
use tokio_util::sync::CancellationToken;

/// Boards in one round trip to the store: at most 8 MiB of full boards with their answers.
const BATCH: usize = 64;
/// Longest pause between two rounds where there are several replicas: several of them fit into [`FENCE`].
const SHARED_ROUND: Duration = Duration::from_millis(200);
/// Former names of the process that are remembered, while a store that answers takes nothing; of an older one boards come as with a loss.
const FORMERS: usize = 16;
/// Between two looks whether another replica has given up a board.
const LOOK: Duration = Duration::from_millis(50);
/// Longest wait of a call for a board that another replica holds: the takeover of a dead one's, and a second.
const PATIENCE: Duration = Duration::from_micros(TAKEOVER.unsigned_abs() + 1_000_000);

/// What the role needs.
#[derive(Clone, Debug)]
pub struct WorkingDeps {
    /// Clock and ids.
    pub ports: Ports,
    /// Read once per call.
    pub settings: Arc<ArcSwap<PolicySettings>>,
    /// Where boards survive.
    pub checkpoint: CheckpointConfig,
    /// Of lists: replicas of one deployment must open each other's. None: this process's own.
    pub page_tokens: Option<PageTokens>,
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

/// What service and background tasks share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) ports: Ports,
    settings: Arc<ArcSwap<PolicySettings>>,
    pub(crate) boards: Boards,
    pub(crate) page_tokens: PageTokens,
    /// Cancelled when the role stops: streams end then.
    pub(crate) stopping: CancellationToken,
    pub(crate) store: Option<Arc<dyn CheckpointStore>>,
    health: Mutex<CheckpointStatus>,
    /// One write to the store at a time: a late answer can then never be of an older board than the store has from us.
    saving: tokio::sync::Mutex<()>,
    gates: Gates,
    /// Names under which this process held boards, until the store knows that nothing of theirs is missing; the last [`FORMERS`].
    formers: Mutex<Vec<String>>,
    /// Life of the store that has what is here.
    life: Mutex<Option<String>>,
}

/// One call at a time takes a task over.
#[derive(Debug, Default)]
struct Gates(Mutex<HashMap<TaskKey, Arc<tokio::sync::Mutex<()>>>>);

/// Open for this one until it is dropped.
struct Passing<'a> {
    gates: &'a Gates,
    key: &'a TaskKey,
    gate: Arc<tokio::sync::Mutex<()>>,
    passing: Option<tokio::sync::OwnedMutexGuard<()>>,
}

impl Gates {
    fn at<'a>(&'a self, key: &'a TaskKey) -> Passing<'a> {
        let gate = Arc::clone(self.0.lock().entry(key.clone()).or_default());
        Passing { gates: self, key, gate, passing: None }
    }
}

impl Passing<'_> {
    async fn wait(mut self) -> Self {
        self.passing = Some(Arc::clone(&self.gate).lock_owned().await);
        self
    }

    /// None while another one passes.
    fn now(mut self) -> Option<Self> {
        self.passing = Arc::clone(&self.gate).try_lock_owned().ok();
        self.passing.is_some().then_some(self)
    }
}

impl Drop for Passing<'_> {
    fn drop(&mut self) {
        let mut gates = self.gates.0.lock();
        drop(self.passing.take());
        // The map's and this one's: nobody waits.
        if Arc::strong_count(&self.gate) <= 2 {
            gates.remove(self.key);
        }
    }
}

/// Whether a task can be answered for here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// By what is here.
    Here,
    /// There is no such task of the user.
    Nowhere,
}

impl Shared {
    pub(crate) fn new(deps: WorkingDeps, stopping: CancellationToken) -> Self {
        let store = deps.checkpoint.store(deps.ports.ids.as_ref());
        let health = CheckpointStatus {
            store: store.as_ref().map_or("none", |store| store.name()),
            failing_since: None,
            last_success: None,
            damaged: 0,
        };
        Self {
            page_tokens: deps.page_tokens.unwrap_or_else(|| PageTokens::new(&random_bytes(deps.ports.ids.as_ref()))),
            stopping,
            ports: deps.ports,
            settings: deps.settings,
            boards: Boards::new(store.is_some(), store.as_ref().is_some_and(|store| store.sharing().is_some())),
            store,
            gates: Gates::default(),
            formers: Mutex::default(),
            life: Mutex::default(),
            health: Mutex::new(health),
            saving: tokio::sync::Mutex::default(),
        }
    }

    /// Health of the checkpoints now.
    pub(crate) fn health(&self) -> CheckpointStatus {
        self.health.lock().clone()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.ports.clock.now()
    }

    pub(crate) fn settings(&self) -> WorkingSettings {
        self.settings.load().working.clone()
    }

    pub(crate) fn record(&self, outcome: &Result<(), Fault>) {
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

    /// Writes what is due of one task, before the call that made it due is answered. Where there is one replica a store that is
    /// down does not hold the call back: it stays due.
    ///
    /// # Errors
    /// Where there are several replicas: the store's; `STORE_UNAVAILABLE` when another replica has the task.
    pub(crate) async fn flush_one(&self, key: &TaskKey) -> Result<(), Fault> {
        // The outcome is in the status.
        let outcome = self.flush(std::slice::from_ref(key)).await;
        if self.sharing().is_none() {
            return Ok(());
        }
        outcome?;
        self.boards.confirm(key)
    }

    /// How boards change hands, where there are several replicas.
    pub(crate) fn sharing(&self) -> Option<&dyn Sharing> {
        self.store.as_ref().and_then(|store| store.sharing())
    }

    /// Brings a task here that is not, where there are several replicas: from its checkpoint, when nobody holds it any more
    /// (rule W10). Returns at once for one that is here.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE` while another replica holds it, or the store's; `TASK_MISMATCH` when the id is another user's.
    pub(crate) async fn hold(&self, owner: &Owner, key: &TaskKey) -> Result<Held, Fault> {
        let Some(sharing) = self.sharing() else { return Ok(Held::Here) };
        if self.boards.has(key) {
            return Ok(Held::Here);
        }
        let _one = self.gates.at(key).wait().await;
        let watch = Stopwatch::start();
        loop {
            if self.boards.has(key) {
                return Ok(Held::Here);
            }
            if !self.boards.is_fresh() {
                return Err(behind());
            }
            let term = self.boards.term();
            let (taken, epoch) = sharing.take(owner, key.task()).await?;
            if epoch > 0 {
                self.boards.raise_epoch(&owner.user_key(), epoch);
            }
            match taken {
                Taken::Absent => {
                    return match sharing.named(owner, key.task(), false).await? {
                        Some(whose) if whose != owner.user_key() => Err(mismatch()),
                        Some(_) | None => Ok(Held::Nowhere),
                    };
                }
                Taken::Ended(tombstone) => self.boards.adopt_end(tombstone),
                Taken::Board(saved) => self.boards.adopt(*saved, term),
                Taken::Damaged => {
                    tracing::error!(task_id = key.task().as_str(), "the checkpoint of a board is damaged or of a newer program");
                    return Err(Fault::new(Reason::Internal, "the checkpoint of the board cannot be read; start another task"));
                }
                Taken::Held(micros) if watch.elapsed() < PATIENCE => {
                    let most = Duration::from_micros(micros.max(0).unsigned_abs());
                    pause(LOOK.min(most.max(Duration::from_millis(1)))).await;
                }
                Taken::Held(_) => return Err(elsewhere()),
            }
        }
    }

    /// Tasks of a user with a board, here and elsewhere, in order.
    ///
    /// # Errors
    /// The store's, where there are several replicas.
    pub(crate) async fn tasks_of(&self, owner: &Owner) -> Result<Vec<TaskKey>, Fault> {
        let mut tasks: BTreeSet<TaskId> = self.boards.tasks_of(owner, self.now()).iter().map(|key| key.task().clone()).collect();
        if let Some(sharing) = self.sharing() {
            tasks.extend(sharing.tasks(owner).await?);
        }
        Ok(tasks.iter().map(|task| TaskKey::new(owner, task)).collect())
    }

    /// One round: what has changed goes to the store, and the process says that it lives. Then it gives away what others want.
    pub(crate) async fn round(&self) -> Result<(), Fault> {
        let Some(store) = &self.store else { return Ok(()) };
        let alive = self.look_for_losses(store.as_ref()).await;
        if let Err(fault) = alive {
            self.record(&Err(fault.clone()));
            return Err(fault);
        }
        self.renew().await;
        let began = self.boards.begin();
        self.flush_all().await?;
        let Some(sharing) = store.sharing() else { return store.alive().await };
        let wanted = sharing.beat().await;
        self.record(&wanted.as_ref().map(|_| ()).map_err(Clone::clone));
        let wanted = wanted?;
        self.boards.completed(began);
        self.retire_formers(sharing).await?;
        let mut leaving = Vec::new();
        for Wanted { owner, task } in wanted {
            let key = TaskKey::new(&owner, &task);
            if self.boards.give_up(&key) {
                leaving.push(key);
            } else if let Some(_one) = self.gates.at(&key).now()
                && !self.boards.has(&key)
            {
                // By the record alone: a call that took it went away.
                sharing.disown(&owner, &task).await?;
            }
        }
        self.flush(&leaving).await
    }

    /// A store that was restarted, or another one that took its place, may lack what was written: it gets everything again. Before
    /// anything is forgotten here because the store has it.
    async fn look_for_losses(&self, store: &dyn CheckpointStore) -> Result<(), Fault> {
        let Some(life) = store.life().await? else { return Ok(()) };
        let mut known = self.life.lock();
        if known.as_ref().is_some_and(|known| *known != life) {
            tracing::warn!(store = store.name(), "the store began another life; every board is written to it again");
            self.boards.due_again();
        }
        *known = Some(life);
        Ok(())
    }

    /// After a silence in which others may have taken boards: goes on under another name, so that a takeover that is under way
    /// cannot take what is written from now on.
    async fn renew(&self) {
        let Some(sharing) = self.sharing() else { return };
        if !self.boards.lapsed() {
            return;
        }
        // What is being written is clean or not afterwards.
        let _nothing_is_written = self.saving.lock().await;
        let former = sharing.renew();
        let mut formers = self.formers.lock();
        if formers.len() == FORMERS {
            formers.remove(0);
        }
        formers.push(former);
        self.boards.renounce();
    }

    /// All that was acknowledged under the former names is written: their boards come without a loss. A name that the store does not
    /// hear of now, it hears of after a later round.
    pub(crate) async fn retire_formers(&self, sharing: &dyn Sharing) -> Result<(), Fault> {
        loop {
            let Some(former) = self.formers.lock().first().cloned() else { return Ok(()) };
            sharing.retire(&former).await?;
            self.formers.lock().retain(|other| *other != former);
        }
    }

    /// Between two rounds.
    pub(crate) fn between_rounds(&self) -> Duration {
        let set = Duration::from_millis(self.settings().checkpoint_ms);
        if self.sharing().is_some() { set.min(SHARED_ROUND) } else { set }
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
                    let outcome = store.end(&tombstone).await?;
                    self.boards.end_saved(&tombstone, outcome);
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
    pub(crate) async fn flush_all(&self) -> Result<(), Fault> {
        self.flush(&self.boards.dirty()).await
    }

    /// Reads the boards back and opens for calls. The marker of the last clean stop goes only after every raised
    /// generation is written: a start that fails half-way is repeated as it was.
    pub(crate) async fn restore(&self) -> Result<(), Fault> {
        if let Some(sharing) = self.sharing() {
            // Each board comes with the first call about it.
            let began = self.boards.begin();
            sharing.beat().await?;
            self.boards.completed(began);
            self.record(&Ok(()));
        } else if let Some(store) = &self.store {
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
