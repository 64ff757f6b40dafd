//! The long-term role: its parts put together.

use crate::admin::Admin;
use crate::backup::Backups;
use crate::binding;
use crate::call::Service;
use crate::control::DatabaseControl;
use crate::erase::{self, Journal};
use crate::erasing::Erasing;
use crate::erasure_log::{self, Copied, ErasureLog, Line, LogCopy, LogError};
use crate::index::exact::{ExactIndex, HOT_BYTES};
use crate::index::qdrant::{QdrantIndex, QdrantSettings};
use crate::index::{Index, Space};
use crate::maintenance::{Maintenance, ModeSource};
use crate::metadata::{erasures, query, search};
use crate::recall::{Recall, RecallParts};
use crate::relay::{Relay, RelayStatus};
use crate::state::State;
use crate::target::Target;
use arc_swap::ArcSwap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use strata_api::admin::v1::admin_service_server::AdminServiceServer;
use strata_api::internal::v1::control_service_server::ControlServiceServer;
use strata_api::internal::v1::erasure_journal_service_server::ErasureJournalServiceServer;
use strata_api::internal::v1::target_service_server::TargetServiceServer;
use strata_api::longterm::v1::long_term_memory_service_server::LongTermMemoryServiceServer;
use strata_api::page::PageTokens;
use strata_core::limits::MESSAGE_BYTES;
use strata_core::policy::gate::{Challenges, Seals, Tombstones};
use strata_core::policy::quota::QuotaSettings;
use strata_core::policy::registry::Registry;
use strata_core::policy::settings::PolicySettings;
use strata_core::{Fault, Reason, Timestamp};
use strata_runtime::redis_store::RedisPool;
use strata_runtime::sqlite::Database;
use strata_runtime::{Ports, TaskGroup};
use strata_text::embed::Embedder;
use strata_text::rerank::Reranker;
use strata_text::slots::SlotMatcher;
use strata_text::summarise::Summariser;
use tonic::service::Routes;

/// Which index finds records.
#[derive(Clone, Debug, Default)]
pub enum IndexConfig {
    /// An exact scan over one owner's rows in the database itself.
    #[default]
    Exact,
    /// A Qdrant server.
    Qdrant(QdrantSettings),
}

/// What the role needs.
pub struct LongtermDeps {
    /// Clock and ids.
    pub ports: Ports,
    /// Settings, replaced as a whole by a hot reload.
    pub settings: Arc<ArcSwap<PolicySettings>>,
    /// The metadata database, opened with [`crate::MIGRATIONS`]. The caller closes it after [`LongtermRole::shutdown`].
    pub database: Database,
    /// Which index finds records.
    pub index: IndexConfig,
    /// Folder of the backups; none: none are made.
    pub backups: Option<PathBuf>,
    /// Days after which whoever runs the deployment deletes a backup, for receipts; none: nobody said.
    pub backup_days: Option<u32>,
    /// Folder of the erasure log (rule E8); none: there is none.
    pub erasure_log: Option<PathBuf>,
    /// The Redis that keeps a copy of the erasure log; none: the file is all there is.
    pub erasure_copy: Option<RedisPool>,
    /// Makes vectors; without one recall goes by keys and words.
    pub embedder: Option<Arc<dyn Embedder>>,
    /// Takes the second look of `rerank = "remote"` (rule R9).
    pub reranker: Option<Arc<dyn Reranker>>,
    /// Words the summaries of maintenance (rule F5); without one, or where it fails, the rules do.
    pub summariser: Option<Arc<dyn Summariser>>,
    /// Known keys.
    pub registry: Arc<Registry>,
    /// What each tenant may keep, replaced as a whole by a hot reload.
    pub quotas: Arc<ArcSwap<QuotaSettings>>,
    /// The mode of long-term memory as it is now: in WRITE_OFF and BYPASS maintenance writes down what is over, no more
    /// (rule D1).
    pub mode: ModeSource,
    /// Secret of the deployment: page tokens, consent challenges and erasure digests are derived from it.
    pub secret: Vec<u8>,
}

impl std::fmt::Debug for LongtermDeps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LongtermDeps").field("index", &self.index).field("embedder", &self.embedder).finish_non_exhaustive()
    }
}

/// How the role is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleStatus {
    /// Records in all, of every status.
    pub records: u64,
    /// The way to the index.
    pub relay: RelayStatus,
    /// Erasures that are not closed, at most [`strata_core::limits::ERASE_OPEN_PAGE`].
    pub erasures_open: u64,
    /// When the oldest of them was asked for.
    pub erasing_since: Option<Timestamp>,
}

/// The role.
#[derive(Debug)]
pub struct LongtermRole {
    state: Arc<State>,
    backups: Backups,
    maintenance: Maintenance,
    tasks: TaskGroup,
}

impl LongtermRole {
    /// Puts the role together and starts the relay. The index need not be up: recall goes by keys and words until it is.
    ///
    /// # Errors
    /// `INVALID_FIELD` naming the setting that is wrong; as the database says.
    pub async fn build(deps: LongtermDeps) -> Result<Self, Fault> {
        let matcher = SlotMatcher::new(&deps.registry).map_err(|problem| Fault::field("registry", problem.to_string()))?;
        let space = deps.embedder.as_ref().map(|embedder| {
            let identity = embedder.identity();
            Space { model: identity.name.clone(), dims: identity.dimensions }
        });
        let index_days = match &deps.index {
            IndexConfig::Qdrant(settings) if settings.erase_days > 0 => Some(settings.erase_days),
            IndexConfig::Qdrant(_) | IndexConfig::Exact => None,
        };
        let index: Arc<dyn Index> = match deps.index {
            IndexConfig::Exact => Arc::new(ExactIndex::new(deps.database.clone(), space, HOT_BYTES)),
            IndexConfig::Qdrant(settings) => Arc::new(QdrantIndex::new(settings, space)?),
        };
        let tasks = TaskGroup::new();
        let digests = Tombstones::new(&deps.secret);
        deps.database.write(move |db| binding::check(db, &digests)).await?;
        let copy = deps.erasure_copy.map(|pool| LogCopy::new(pool, &deps.secret));
        let log = match deps.erasure_log {
            Some(folder) => {
                let tombstones = Tombstones::new(&deps.secret);
                Some(open_log(&deps.database, folder, copy.as_ref(), tombstones, deps.ports.clock.now(), &tasks).await?)
            }
            None => None,
        };
        let erasing =
            Erasing { log, copy, backups: deps.backups.clone(), backup_days: deps.backup_days, index_days, ..Erasing::default() };
        let backups = Backups::new(deps.database.clone(), deps.backups, tasks.clone());
        let relay = Relay::open(deps.ports.clone(), deps.database.clone(), Arc::clone(&index), deps.embedder.clone()).await?;
        relay.spawn(&tasks);
        let recall = Recall::new(RecallParts {
            ports: deps.ports.clone(),
            settings: Arc::clone(&deps.settings),
            database: deps.database.clone(),
            registry: Arc::clone(&deps.registry),
            index: Arc::clone(&index),
            embedder: deps.embedder.clone(),
            reranker: deps.reranker,
            relay: relay.clone(),
        });
        recall.spawn(&tasks);
        let state = State {
            tokens: PageTokens::new(&deps.secret),
            challenges: Challenges::new(&deps.secret),
            tombstones: Tombstones::new(&deps.secret),
            aspects: crate::aspects::aspects(),
            seals: Seals::new(&deps.secret),
            erasing,
            tasks: tasks.clone(),
            ports: deps.ports,
            settings: deps.settings,
            database: deps.database,
            registry: deps.registry,
            quotas: deps.quotas,
            matcher,
            embedder: deps.embedder,
            index,
            recall,
            relay,
        };
        let state = Arc::new(state);
        erase::spawn(&state, &tasks);
        let maintenance = Maintenance::new(Arc::clone(&state), deps.mode, tasks.clone(), deps.summariser);
        maintenance.spawn();
        Ok(Self { state, backups, maintenance, tasks })
    }

    /// The role's services, without the layers around them: the public one, and the one between roles.
    #[must_use]
    pub fn routes(&self) -> Routes {
        let public = LongTermMemoryServiceServer::new(Service::new(Arc::clone(&self.state)))
            .max_decoding_message_size(MESSAGE_BYTES)
            .max_encoding_message_size(MESSAGE_BYTES);
        let target = TargetServiceServer::new(Target::new(Arc::clone(&self.state)))
            .max_decoding_message_size(MESSAGE_BYTES)
            .max_encoding_message_size(MESSAGE_BYTES);
        let admin = AdminServiceServer::new(Admin::new(Arc::clone(&self.state), self.backups.clone(), self.maintenance.clone()))
            .max_decoding_message_size(MESSAGE_BYTES)
            .max_encoding_message_size(MESSAGE_BYTES);
        let journal = ErasureJournalServiceServer::new(Journal::new(Arc::clone(&self.state)))
            .max_decoding_message_size(MESSAGE_BYTES)
            .max_encoding_message_size(MESSAGE_BYTES);
        let control = ControlServiceServer::new(self.control())
            .max_decoding_message_size(MESSAGE_BYTES)
            .max_encoding_message_size(MESSAGE_BYTES);
        Routes::new(public).add_service(target).add_service(admin).add_service(control).add_service(journal)
    }

    /// Modes and API keys in the database.
    #[must_use]
    pub fn control(&self) -> DatabaseControl {
        DatabaseControl(self.state.database.clone())
    }

    /// Stops the relay after what it can still deliver; what it cannot stays in the outbox. Answers whether all ended in
    /// time.
    pub async fn shutdown(&self, deadline: Duration) -> bool {
        self.tasks.shutdown(deadline).await
    }

    /// How the role is.
    ///
    /// # Errors
    /// As the database says.
    pub async fn status(&self) -> Result<RoleStatus, Fault> {
        let read = |db: &rusqlite::Connection| Ok::<_, Fault>((query::count(db)?, erasures::open(db)?));
        let (records, open) = self.state.database.read(read).await?;
        Ok(RoleStatus {
            records,
            relay: self.state.relay.status().await?,
            erasures_open: open.len() as u64,
            erasing_since: open.first().map(|erasure| erasure.request_time),
        })
    }

    /// Fills the index again from the rows, in the background. Answers how many records there are.
    ///
    /// # Errors
    /// As the database says.
    pub async fn reindex(&self) -> Result<u64, Fault> {
        self.state.relay.reindex().await
    }
}

/// Opens the erasure log, and writes what its copy or the database knows of and the log does not: its volume was lost, or the
/// server stopped in between. What the database does not know of is erased from it before anything is served.
async fn open_log(
    database: &Database,
    folder: PathBuf,
    copy: Option<&LogCopy>,
    tombstones: Tombstones,
    now: Timestamp,
    tasks: &TaskGroup,
) -> Result<ErasureLog, Fault> {
    let place = folder.clone();
    let log = tasks.blocking("erasure log", move || erasure_log::read(&place)).await;
    let log = log.map_err(|_| Fault::new(Reason::Internal, "the erasure log could not be opened"))?;
    let copied = match copy {
        Some(copy) => {
            copy.read().await.inspect_err(|fault| tracing::warn!(%fault, "the copy of the erasure log waits for Redis"))
        }
        None => Ok(Copied::default()),
    };
    let pending = database.read(|db| search::meta(db, erasure_log::PENDING)).await?;
    let file = match log {
        Ok(lines) => Some(lines),
        Err(LogError::Missing { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    // A restore that was cut off: without log and copy it would have refused, but for an order that it has noted.
    let lost = file.is_none() && copied.as_ref().map_or(true, |copied| copied.lines.is_empty());
    if lost && pending.as_deref() == Some(erasure_log::PENDING_LOG) {
        return Err(Fault::new(
            Reason::StoreUnavailable,
            "a restored database has erasures to replay, and the erasure log is gone: bring it or its copy back, or restore again",
        ));
    }
    let lines = erasure_log::union(file.unwrap_or_default(), copied.map(|copied| copied.lines).unwrap_or_default());
    let done = if pending.is_some() {
        erasure_log::replay_pending(database, lines.clone(), tombstones, "", "", now).await?.unwrap_or_default()
    } else {
        erasure_log::replay_unknown(database, lines.clone(), tombstones, now).await?
    };
    if done.removed > 0 {
        tracing::warn!(?done, "what was erased since this database was written is erased again");
    }
    let read = |db: &rusqlite::Connection| erasures::all(db)?.iter().map(|erasure| Line::of(db, erasure)).collect();
    let journal: Vec<Line> = database.read(read).await?;
    let work = move || {
        let log = ErasureLog::open(&folder)?;
        for line in &lines {
            log.append(line)?;
        }
        for line in &journal {
            log.append(&Line { close_time: None, ..line.clone() })?;
            if line.close_time.is_some() {
                log.append(line)?;
            }
        }
        Ok::<_, LogError>(log)
    };
    let opened = tasks.blocking("erasure log", work).await;
    Ok(opened.map_err(|_| Fault::new(Reason::Internal, "the erasure log could not be opened"))??)
}
