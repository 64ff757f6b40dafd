//! The router: the one address of agents. It decides which layer owns a fact, vouches for what it has checked, moves
//! facts outwards through one promotion channel, assembles the context a model is shown, and carries the degradation
//! switches. It keeps no state of its own but the ledger: any router can go on where another one stopped.
//!
//! ```text
//!   gate      every public method: owner, mode, then the layer, over a signed channel
//!   claims    who owns a key, over the ledger
//!   attest    whether a quote stands in the turn it names
//!   promote   the saga and its recovery
//!   assemble  the context
//! ```

pub mod ledger;
pub mod modes;

use arc_swap::ArcSwap;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use strata_core::Fault;
use strata_core::policy::registry::Registry;
use strata_core::policy::settings::PolicySettings;
use strata_runtime::redis_store::RedisPool;
use strata_runtime::sqlite::Location;
use strata_runtime::{Ports, RpcChannel};

use crate::ledger::{Ledger, embedded::EmbeddedLedger, redis::RedisLedger};
use crate::modes::SharedModes;

/// Channels to the layers. Each signs its calls (`strata_runtime::signing::Signer::sign`).
#[derive(Clone)]
pub struct LayerChannels {
    /// Working memory.
    pub working: RpcChannel,
    /// Session memory.
    pub session: RpcChannel,
    /// Long-term memory.
    pub longterm: RpcChannel,
}

/// Where the ledger and the promotion journal live.
#[derive(Clone, Debug)]
pub enum LedgerConfig {
    /// In Redis, shared by all routers.
    Redis(RedisPool),
    /// In a SQLite file of its own: one router process only.
    Embedded(Location),
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
    /// Modes of the layers, hot-reloaded.
    pub modes: SharedModes,
    /// For `GetStatus`.
    pub about: About,
}

/// The router.
pub struct RouterRole {
    ledger: Arc<dyn Ledger>,
    deps: RouterDeps,
}

impl RouterRole {
    /// Opens the ledger and starts the recovery of open promotions. Neither the layers nor Redis need to be up.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE` when the embedded ledger cannot be opened.
    #[expect(clippy::unused_async, reason = "the contract of every role")]
    pub async fn build(deps: RouterDeps) -> Result<Self, Fault> {
        let ledger: Arc<dyn Ledger> = match &deps.ledger {
            LedgerConfig::Redis(pool) => Arc::new(RedisLedger::new(pool.clone())),
            LedgerConfig::Embedded(location) => Arc::new(EmbeddedLedger::open(location)?),
        };
        Ok(Self { ledger, deps })
    }

    /// The public services: the three memory services, the router's own, administration.
    #[must_use]
    pub fn routes(&self) -> tonic::service::Routes {
        tonic::service::Routes::default()
    }

    /// Whether the ledger answers.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`: claims of sessions are refused meanwhile, all else goes on (rule P4).
    pub async fn status(&self) -> Result<(), Fault> {
        self.ledger.ping().await
    }

    /// Stops the recovery and waits for what must finish, at most `deadline`.
    pub async fn shutdown(&self, _deadline: Duration) {
        let _ = &self.deps;
        self.ledger.close().await;
    }
}
