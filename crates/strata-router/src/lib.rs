//! The router: the one address of agents. It decides which layer owns a fact, vouches for what it has checked, moves
//! facts outwards through one promotion channel, assembles the context a model is shown, and carries the degradation
//! switches. It keeps no state of its own but the ledger: any router can go on where another one stopped.
//!
//! ```text
//!   gate      every public method: who, whose memory, which mode
//!   proxy     the memory services: the gate, what the router adds, then the layer over a signed channel
//!   owners    who owns a key, over the ledger
//!   attest    whether a quote stands in the turn it names
//!   promote   the saga and its recovery
//!   promotions what callers see of it: lists, a stream, ends of tasks, confirmations
//!   erase     what an erasure removes outside of long-term memory
//!   assemble  the context
//!   control   modes and API keys that operators set
//!   observe   what an agent sees, and what goes where
//!   decisions what every call decided, kept for Explain
//!   explain   what was decided, read again
//! ```

mod archive;
mod assemble;
mod attest;
mod call;
pub mod control;
mod decisions;
mod erase;
mod explain;
mod gate;
mod language;
mod layers;
pub mod ledger;
pub mod modes;
mod observe;
mod observing;
mod overlays;
mod owners;
mod promote;
mod promotions;
mod proxy;
mod results;
mod service;
mod stream;
mod topics;

use arc_swap::ArcSwap;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use strata_api::admin::v1::admin_service_server::AdminServiceServer;
use strata_api::longterm::v1::long_term_memory_service_server::LongTermMemoryServiceServer;
use strata_api::page::PageTokens;
use strata_api::router::v1::router_service_server::RouterServiceServer;
use strata_api::session::v1::session_memory_service_server::SessionMemoryServiceServer;
use strata_api::working::v1::working_memory_service_server::WorkingMemoryServiceServer;
use strata_core::Fault;
use strata_core::limits::MESSAGE_BYTES;
use strata_core::policy::promotion::Origin;
use strata_core::policy::registry::Registry;
use strata_core::policy::settings::PolicySettings;
use strata_runtime::control::Control;
use strata_runtime::layer::{Leaf, Shared, Use};
use strata_runtime::redis_store::RedisPool;
use strata_runtime::sqlite::Location;
use strata_runtime::{Ports, RpcChannel, TaskGroup};
use strata_text::slots::SlotMatcher;
use tower::Layer as _;

use crate::decisions::{Keeper, Recorder};
use crate::gate::Core;
use crate::language::{LanguageTables, WithLanguage};
use crate::layers::Layers;
use crate::ledger::{Ledger, embedded::EmbeddedLedger, redis::RedisLedger};
use crate::observing::{Compiled, Waiters};
use crate::owners::Owners;
use crate::proxy::Proxy;
use crate::service::Service;
use crate::topics::Topics;

/// Channels to the layers. Each signs its calls (`strata_runtime::signing::Signer::sign`).
#[derive(Clone)]
pub struct LayerChannels {
    /// Working memory.
    pub working: RpcChannel,
    /// Replicas behind it (`strata_runtime::replicas`).
    pub working_replicas: usize,
    /// Session memory.
    pub session: RpcChannel,
    /// Long-term memory.
    pub longterm: RpcChannel,
}

/// An entry of the journal, as whoever looks into the store may read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journalled {
    /// Its id.
    pub promotion_id: String,
    /// Its name at the target, for what it is about now (`Promotion::apply_id`).
    pub apply_id: String,
    /// Stable name of its state.
    pub state: String,
    /// Whether a router has still something to do.
    pub open: bool,
    /// What it promotes.
    pub source: Origin,
}

impl Journalled {
    /// Reads a row of the store.
    ///
    /// # Errors
    /// `INTERNAL` for a row that no router wrote.
    pub fn read(row: &ledger::JournalRow) -> Result<Self, Fault> {
        let promotion = promote::decode(row)?.promotion;
        Ok(Self {
            apply_id: promotion.apply_id(),
            state: promotion.state.name().to_owned(),
            open: promotion.is_open(),
            source: promotion.origin,
            promotion_id: promotion.promotion_id,
        })
    }
}

/// Where the ledger and the promotion journal live.
#[derive(Clone, Debug)]
pub enum LedgerConfig {
    /// In Redis, shared by all routers.
    Redis(RedisPool),
    /// In a SQLite file of its own: one router process only.
    Embedded(Location),
    /// In a store made elsewhere: shared by routers of one process, or a test's own.
    Store(Arc<dyn Ledger>),
}

/// What `AdminService.GetStatus` tells beside the state of the layers.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// Version of the executable.
    pub version: String,
    /// Key and value pairs: embedder, index, stores.
    pub settings: BTreeMap<String, String>,
}

/// What the router needs.
#[derive(Clone)]
pub struct RouterDeps {
    /// Clock and ids.
    pub ports: Ports,
    /// Policy settings, hot-reloaded.
    pub settings: Arc<ArcSwap<PolicySettings>>,
    /// The known keys.
    pub registry: Arc<Registry>,
    /// Channels to the layers, signing.
    pub channels: LayerChannels,
    /// Where the ledger lives.
    pub ledger: LedgerConfig,
    /// Modes in force and API keys, as operators set them.
    pub control: Arc<Control>,
    /// Page tokens of the router's own lists.
    pub tokens: PageTokens,
    /// For `GetStatus`.
    pub about: About,
    /// Proposes what to remember of a turn; without one the rules of Observe do.
    pub extractor: Option<Arc<dyn strata_text::extract::Extractor>>,
}

/// The router.
#[derive(Debug)]
pub struct RouterRole {
    core: Arc<Core>,
}

/// How often the recovery looks at the journal, and the ledger's backlog is tried.
const RECOVERY: Duration = Duration::from_millis(1_000);
/// Rounds of the recovery between two sweeps of the ledger.
const SWEEP_ROUNDS: u32 = 60;

impl RouterRole {
    /// Opens the ledger and starts the recovery of open promotions. Neither the layers nor Redis need to be up.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE` when the embedded ledger cannot be opened; `INVALID_FIELD` when a pattern of the registry is no
    /// regular expression.
    #[expect(clippy::unused_async, reason = "the contract of every role")]
    pub async fn build(deps: RouterDeps) -> Result<Self, Fault> {
        let ledger: Arc<dyn Ledger> = match &deps.ledger {
            LedgerConfig::Redis(pool) => Arc::new(RedisLedger::new(pool.clone())),
            LedgerConfig::Embedded(location) => Arc::new(EmbeddedLedger::open(location)?),
            LedgerConfig::Store(store) => Arc::clone(store),
        };
        let slots = SlotMatcher::new(&deps.registry).map_err(|problem| Fault::field("registry", problem.to_string()))?;
        let (keeper, inbox) = Keeper::new();
        let (topics, ended_topics) = Topics::new();
        let tasks = TaskGroup::new();
        let core = Arc::new(Core {
            owners: Owners::new(Arc::clone(&ledger), Arc::clone(&deps.ports.clock)),
            ledger,
            layers: Layers::new(&deps.channels),
            slots,
            ports: deps.ports,
            settings: deps.settings,
            registry: deps.registry,
            modes: Arc::clone(deps.control.board()),
            control: deps.control,
            tokens: deps.tokens,
            about: deps.about,
            language: Arc::new(LanguageTables::new(tasks.clone())),
            tasks,
            keeper,
            extractor: deps.extractor,
            waiters: Waiters::default(),
            compiled: Compiled::default(),
            knock: tokio::sync::Notify::new(),
            topics,
        });
        let write = decisions::write(inbox, Arc::clone(&core.ledger), Arc::clone(&core.ports.clock), core.tasks.token().clone());
        core.tasks.spawn("router decisions", write);
        core.tasks.spawn("router topics", archive::worker(Arc::clone(&core), ended_topics));
        core.tasks.spawn("router observe", observe::worker(Arc::clone(&core)));
        core.tasks.spawn("router recovery", recovery(Arc::clone(&core)));
        Ok(Self { core })
    }

    /// The public services: the three memory services, the router's own, administration.
    #[must_use]
    pub fn routes(&self) -> tonic::service::Routes {
        let recorder = Use::new(Recorder { keeper: self.core.keeper.clone(), clock: Arc::clone(&self.core.ports.clock) });
        let language = Use::new(WithLanguage(Arc::clone(&self.core.language)));
        macro_rules! bounded {
            ($server:ident, $service:expr) => {
                Shared::new(recorder.layer(language.layer(Leaf::new(
                    $server::new($service).max_decoding_message_size(MESSAGE_BYTES).max_encoding_message_size(MESSAGE_BYTES),
                ))))
            };
        }
        let (proxy, service) = (Proxy(Arc::clone(&self.core)), Service(Arc::clone(&self.core)));
        tonic::service::Routes::new(bounded!(WorkingMemoryServiceServer, proxy.clone()))
            .add_service(bounded!(SessionMemoryServiceServer, proxy.clone()))
            .add_service(bounded!(LongTermMemoryServiceServer, proxy))
            .add_service(bounded!(RouterServiceServer, service.clone()))
            .add_service(bounded!(AdminServiceServer, service))
    }

    /// Whether the ledger answers.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`: claims of sessions are refused meanwhile, all else goes on (rule P4).
    pub async fn status(&self) -> Result<(), Fault> {
        self.core.ledger.ping().await
    }

    /// Claims and marks that wait for the ledger.
    #[must_use]
    pub fn backlog(&self) -> usize {
        self.core.owners.backlog()
    }

    /// Looks at the open promotions and erasures and at what waits for the ledger once, as the recovery does every second: for
    /// the start after a crash, and for tests.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    pub async fn recover(&self) -> Result<(), Fault> {
        self.core.catch_up().await?;
        self.core.recover().await?;
        self.core.go_on_erasing().await;
        Ok(())
    }

    /// Stops the recovery and waits for what must finish, at most `deadline`.
    pub async fn shutdown(&self, deadline: Duration) {
        self.core.tasks.shutdown(deadline).await;
        self.core.ledger.close().await;
    }
}

/// Finishes what other routers, or this one before a crash, left open.
async fn recovery(core: Arc<Core>) {
    let token = core.tasks.token().clone();
    let mut round = 0_u32;
    loop {
        let work = async {
            core.catch_up().await?;
            core.recover().await?;
            if round.is_multiple_of(SWEEP_ROUNDS) {
                core.ledger.sweep(core.ports.clock.now()).await?;
            }
            Ok::<(), Fault>(())
        };
        if let Err(fault) = work.await {
            tracing::debug!(%fault, "the recovery waits for the ledger");
        }
        // Whatever holds promotions up: an erasure goes on where it can (rule E4).
        core.go_on_erasing().await;
        round = round.wrapping_add(1);
        if tokio::time::timeout(RECOVERY, token.cancelled()).await.is_ok() {
            return;
        }
    }
}
