//! The role: what it needs, how it starts, what it serves, how it stops.

use crate::compress::Compressor;
use crate::epochs::SeenEpochs;
use crate::search::Searcher;
use crate::service::SessionService;
use crate::shared::Shared;
use crate::store::SessionStore;
use crate::store::embedded::EmbeddedSessions;
use crate::store::redis::RedisSessions;
use crate::summaries::Summaries;
use crate::summariser;
use arc_swap::ArcSwap;
use std::sync::Arc;
use std::time::Duration;
use strata_api::internal::v1::session_erasure_service_server::SessionErasureServiceServer;
use strata_api::internal::v1::session_fact_service_server::SessionFactServiceServer;
use strata_api::page::PageTokens;
use strata_api::session::v1::session_memory_service_server::SessionMemoryServiceServer;
use strata_core::policy::settings::PolicySettings;
use strata_core::{Fault, limits};
use strata_runtime::redis_store::RedisPool;
use strata_runtime::sqlite::Database;
use strata_runtime::{Ports, TaskGroup};
use strata_text::embed::Embedder;
use strata_text::summarise::Summariser;
use tonic::service::Routes;

/// Time between two sweeps of a store whose keys do not expire by themselves.
const SWEEP_PAUSE: Duration = Duration::from_secs(60);

/// Where sessions live.
#[derive(Clone, Debug)]
pub enum SessionStoreConfig {
    /// Redis: the product.
    Redis(RedisPool),
    /// SQLite, opened with [`crate::store::embedded::MIGRATIONS`]: the embedded form.
    Embedded(Database),
    /// Any other store that passes the behaviour suite.
    Other(Arc<dyn SessionStore>),
}

impl SessionStoreConfig {
    fn store(self) -> Arc<dyn SessionStore> {
        match self {
            Self::Redis(pool) => Arc::new(RedisSessions::new(pool)),
            Self::Embedded(database) => Arc::new(EmbeddedSessions::new(database)),
            Self::Other(store) => store,
        }
    }
}

/// What the role needs.
#[derive(Clone, Debug)]
pub struct SessionDeps {
    /// Clock and ids.
    pub ports: Ports,
    /// Read once per call.
    pub settings: Arc<ArcSwap<PolicySettings>>,
    /// Where sessions live.
    pub store: SessionStoreConfig,
    /// Makes the vectors of turns; none: SearchTurns goes by words and says so.
    pub embedder: Option<Arc<dyn Embedder>>,
    /// Makes summaries better than the rules do; none: those of the rules stand.
    pub summariser: Option<Arc<dyn Summariser>>,
    /// Mints page tokens.
    pub page_tokens: PageTokens,
}

/// State of the role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionStatus {
    /// Whether it serves: its store answers and it is not stopping.
    pub serving: bool,
    /// `redis` or `sqlite`.
    pub store: &'static str,
    /// Why the store does not answer, when it does not.
    pub fault: Option<Fault>,
}

/// Session memory as a role of a process.
#[derive(Clone, Debug)]
pub struct SessionRole {
    shared: Arc<Shared>,
}

impl SessionRole {
    /// Starts the role. A store that does not answer yet is no error: calls are then `STORE_UNAVAILABLE`, and
    /// [`SessionRole::status`] says that it does not serve.
    ///
    /// # Errors
    /// `INVALID_FIELD` for settings that do not hold together.
    #[expect(clippy::unused_async, reason = "every role is built alike; others read their stores here")]
    pub async fn build(deps: SessionDeps) -> Result<Self, Fault> {
        deps.settings.load().session.validate()?;
        let store = deps.store.store();
        let tasks = TaskGroup::new();
        let clock = Arc::clone(&deps.ports.clock);
        let compressor = Compressor::new(Arc::clone(&store), Arc::clone(&clock), tasks.clone());
        let (searcher, queue) = Searcher::new(Arc::clone(&store), Arc::clone(&clock), tasks.clone(), deps.embedder);
        let (summaries, asked) = deps.summariser.map(Summaries::new).unzip();
        let shared = Shared {
            ports: deps.ports,
            settings: deps.settings,
            store,
            compressor,
            searcher,
            summaries,
            page_tokens: deps.page_tokens,
            tasks,
            epochs: SeenEpochs::default(),
        };
        let role = Self { shared: Arc::new(shared) };
        role.start_sweeper();
        role.shared.tasks.spawn("new turns", crate::topics::follow(Arc::clone(&role.shared), queue));
        if let (Some(summaries), Some(queue)) = (role.shared.summaries.clone(), asked) {
            role.shared.tasks.spawn("session summaries", summariser::follow(Arc::clone(&role.shared), summaries, queue));
        }
        Ok(role)
    }

    fn start_sweeper(&self) {
        let (store, clock) = (Arc::clone(&self.shared.store), Arc::clone(&self.shared.ports.clock));
        let stop = self.shared.tasks.token().clone();
        self.shared.tasks.spawn("session sweep", async move {
            let mut ticks = tokio::time::interval(SWEEP_PAUSE);
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    _ = ticks.tick() => {}
                }
                // A full batch: more is waiting; others write in between.
                while !stop.is_cancelled() && matches!(store.sweep(clock.now()).await, Ok(true)) {
                    tokio::task::yield_now().await;
                }
            }
        });
    }

    /// The gRPC services of the role.
    #[must_use]
    pub fn routes(&self) -> Routes {
        let service = SessionService::new(Arc::clone(&self.shared));
        let sessions = SessionMemoryServiceServer::new(service.clone())
            .max_decoding_message_size(limits::MESSAGE_BYTES)
            .max_encoding_message_size(limits::MESSAGE_BYTES);
        let facts = SessionFactServiceServer::new(service.clone())
            .max_decoding_message_size(limits::MESSAGE_BYTES)
            .max_encoding_message_size(limits::MESSAGE_BYTES);
        let erasure = SessionErasureServiceServer::new(service)
            .max_decoding_message_size(limits::MESSAGE_BYTES)
            .max_encoding_message_size(limits::MESSAGE_BYTES);
        Routes::new(sessions).add_service(facts).add_service(erasure)
    }

    /// Whether the role can serve. Asks the store, within its bounds of time; renews no session (case C094).
    pub async fn status(&self) -> SessionStatus {
        let answer = self.shared.store.ping().await;
        let stopping = self.shared.tasks.token().is_cancelled();
        SessionStatus { serving: answer.is_ok() && !stopping, store: self.shared.store.name(), fault: answer.err() }
    }

    /// Stops the background work and waits for writes in flight, at most `deadline`. Sessions are in the store already:
    /// nothing is lost. Answers whether all ended in time.
    pub async fn shutdown(&self, deadline: Duration) -> bool {
        self.shared.tasks.shutdown(deadline).await
    }
}
