//! A router over fake layers, with a clock that the test moves.

use crate::layers::Fake;
use arc_swap::ArcSwap;
use async_trait::async_trait;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use strata_api::admin::v1::admin_service_client::AdminServiceClient;
use strata_api::admin::v1::admin_service_server::AdminServiceServer;
use strata_api::internal::v1::erasure_journal_service_server::ErasureJournalServiceServer;
use strata_api::internal::v1::participant_service_server::ParticipantServiceServer;
use strata_api::internal::v1::session_erasure_service_server::SessionErasureServiceServer;
use strata_api::internal::v1::session_fact_service_server::SessionFactServiceServer;
use strata_api::internal::v1::target_service_server::TargetServiceServer;
use strata_api::internal::v1::working_erasure_service_server::WorkingErasureServiceServer;
use strata_api::longterm::v1::long_term_memory_service_client::LongTermMemoryServiceClient;
use strata_api::longterm::v1::long_term_memory_service_server::LongTermMemoryServiceServer;
use strata_api::page::PageTokens;
use strata_api::router::v1::router_service_client::RouterServiceClient;
use strata_api::session::v1::session_memory_service_client::SessionMemoryServiceClient;
use strata_api::session::v1::session_memory_service_server::SessionMemoryServiceServer;
use strata_api::working::v1::working_memory_service_client::WorkingMemoryServiceClient;
use strata_api::working::v1::working_memory_service_server::WorkingMemoryServiceServer;
use strata_core::policy::authz::{Principal, Role};
use strata_core::policy::control::Entry;
use strata_core::policy::erasure::{Medium, Purge};
use strata_core::policy::registry::Registry;
use strata_core::policy::settings::PolicySettings;
use strata_core::{Fault, TenantId, Timestamp};
use strata_router::ledger::{Change, JournalRow, Ledger, OpenEntry, Swap, Written, embedded::EmbeddedLedger, redis::RedisLedger};
use strata_router::modes::{Modes, SharedModes};
use strata_router::{About, LayerChannels, LedgerConfig, RouterDeps, RouterRole};
use strata_runtime::control::{Control, ControlStore, ModeBoard};
use strata_runtime::layer::auth::Authenticator;
use strata_runtime::redis_store::{RedisPool, RedisSettings};
use strata_runtime::signing::{KeyRing, SharedKeys, Signer, Verifier};
use strata_runtime::sqlite::Location;
use strata_runtime::stack::{self, StackDeps};
use strata_runtime::{Ports, RpcChannel, channel};
use strata_testkit::{ManualClock, SeqIds};
use strata_text::extract::Extractor;

pub fn embedded() -> Arc<dyn Ledger> {
    Arc::new(EmbeddedLedger::open(&Location::Memory).expect("a ledger in memory"))
}

pub fn over_redis(url: &str) -> Arc<dyn Ledger> {
    let settings = RedisSettings { response_timeout: std::time::Duration::from_millis(300), ..RedisSettings::default() };
    Arc::new(RedisLedger::new(RedisPool::connect(&url.to_owned().into(), settings).expect("a URL")))
}

pub fn principal(roles: &[Role]) -> Principal {
    Principal {
        id: "key:test".into(),
        tenant: TenantId::new("t1").expect("id"),
        user: None,
        roles: roles.iter().copied().collect::<BTreeSet<_>>(),
    }
}

/// A router, and how to call it.
pub struct World {
    pub fake: Fake,
    pub clock: ManualClock,
    pub modes: SharedModes,
    pub settings: Arc<ArcSwap<PolicySettings>>,
    pub router: RouterRole,
    layers: LayerChannels,
    ports: Ports,
}

impl World {
    pub async fn new(ledger: Arc<dyn Ledger>) -> Self {
        Self::with_registry(ledger, Registry::builtin()).await
    }

    pub async fn with_registry(ledger: Arc<dyn Ledger>, registry: Registry) -> Self {
        Self::built(ledger, registry, None).await
    }

    pub async fn with_extractor(ledger: Arc<dyn Ledger>, extractor: Arc<dyn Extractor>) -> Self {
        Self::built(ledger, Registry::builtin(), Some(extractor)).await
    }

    async fn built(ledger: Arc<dyn Ledger>, registry: Registry, extractor: Option<Arc<dyn Extractor>>) -> Self {
        let fake = Fake::default();
        let clock = ManualClock::default();
        let ports = Ports { clock: clock.port(), ids: SeqIds::default().port() };
        let keys = SharedKeys::new(KeyRing::ephemeral(&*ports.ids));
        let deps = StackDeps::new(ports.clone());
        let verifier = Arc::new(Verifier::new(keys.clone(), ports.clone()));
        let signer = Signer::new(keys, ports.clone());
        let layer = |routes| signer.sign(channel::local(stack::internal(routes, Arc::clone(&verifier), &deps)));
        use tonic::service::Routes;
        let layers = LayerChannels {
            working_replicas: 1,
            working: layer(
                Routes::new(WorkingMemoryServiceServer::new(fake.clone()))
                    .add_service(ParticipantServiceServer::new(fake.clone()))
                    .add_service(WorkingErasureServiceServer::new(fake.clone())),
            ),
            session: layer(
                Routes::new(SessionMemoryServiceServer::new(fake.clone()))
                    .add_service(SessionFactServiceServer::new(fake.clone()))
                    .add_service(SessionErasureServiceServer::new(fake.clone())),
            ),
            longterm: layer(
                Routes::new(LongTermMemoryServiceServer::new(fake.clone()))
                    .add_service(TargetServiceServer::new(fake.clone()))
                    .add_service(ErasureJournalServiceServer::new(fake.clone()))
                    .add_service(AdminServiceServer::new(fake.clone())),
            ),
        };
        let modes: SharedModes = Arc::new(ArcSwap::from_pointee(Modes::default()));
        let settings = Arc::new(ArcSwap::from_pointee(PolicySettings::default()));
        let router = build(&ports, &layers, &ledger, &modes, registry, (extractor, &settings)).await;
        Self { fake, clock, modes, settings, router, layers, ports }
    }

    /// Another router over the same layers and, unless told otherwise, the same ledger.
    pub async fn another(&self, ledger: &Arc<dyn Ledger>) -> RouterRole {
        build(&self.ports, &self.layers, ledger, &self.modes, Registry::builtin(), (None, &self.settings)).await
    }

    pub fn channel_of(&self, router: &RouterRole, principal: Principal) -> RpcChannel {
        let deps = StackDeps::new(self.ports.clone());
        channel::local(stack::public(router.routes(), Arc::new(Authenticator::local(principal)), &deps))
    }

    pub fn channel(&self) -> RpcChannel {
        self.channel_of(&self.router, principal(Role::ALL))
    }

    pub fn working(&self) -> WorkingMemoryServiceClient<RpcChannel> {
        WorkingMemoryServiceClient::new(self.channel())
    }
    pub fn session(&self) -> SessionMemoryServiceClient<RpcChannel> {
        SessionMemoryServiceClient::new(self.channel())
    }
    pub fn longterm(&self) -> LongTermMemoryServiceClient<RpcChannel> {
        LongTermMemoryServiceClient::new(self.channel())
    }
    pub fn calls(&self) -> RouterServiceClient<RpcChannel> {
        RouterServiceClient::new(self.channel())
    }
    pub fn admin(&self) -> AdminServiceClient<RpcChannel> {
        AdminServiceClient::new(self.channel())
    }
}

async fn build(
    ports: &Ports,
    layers: &LayerChannels,
    ledger: &Arc<dyn Ledger>,
    modes: &SharedModes,
    registry: Registry,
    (extractor, settings): (Option<Arc<dyn Extractor>>, &Arc<ArcSwap<PolicySettings>>),
) -> RouterRole {
    let deps = RouterDeps {
        ports: ports.clone(),
        settings: Arc::clone(settings),
        registry: Arc::new(registry),
        channels: layers.clone(),
        ledger: LedgerConfig::Store(Arc::clone(ledger)),
        control: Control::new(
            Arc::new(ModeBoard::new(Arc::clone(modes))),
            vec![Arc::new(Shelf::default())],
            Arc::clone(&ports.clock),
        ),
        tokens: PageTokens::new(b"test"),
        about: About { version: "0.0.0".into(), ..About::default() },
        extractor,
    };
    RouterRole::build(deps).await.expect("builds")
}

/// Where the modes that tests set are kept.
#[derive(Debug, Default)]
struct Shelf(parking_lot::Mutex<Vec<Entry>>);

#[async_trait]
impl ControlStore for Shelf {
    async fn list(&self, _known: u64) -> Result<Option<Vec<Entry>>, Fault> {
        Ok(Some(self.0.lock().clone()))
    }
    async fn put(&self, entries: &[Entry]) -> Result<(), Fault> {
        let mut kept = self.0.lock();
        kept.retain(|old| entries.iter().all(|new| new.name != old.name));
        kept.extend(entries.iter().cloned());
        Ok(())
    }
    async fn remove(&self, names: &[String]) -> Result<(), Fault> {
        self.0.lock().retain(|entry| !names.contains(&entry.name));
        Ok(())
    }
    fn name(&self) -> &'static str {
        "shelf"
    }
}

/// The reason of a refusal.
pub fn reason<T: std::fmt::Debug>(answer: Result<tonic::Response<T>, tonic::Status>) -> strata_core::Reason {
    strata_api::error::fault(&answer.expect_err("refused")).reason
}

/// A ledger that takes only so many more writes: the router behind it crashes there, as far as anyone can see.
#[derive(Debug)]
pub struct Crashing {
    pub inner: Arc<dyn Ledger>,
    pub writes: AtomicI64,
    /// The last write is carried out and its answer is lost.
    pub lose_answer: bool,
}

impl Crashing {
    /// Whether a write is carried out, and whether its answer comes back.
    fn fate(&self) -> (bool, bool) {
        let left = self.writes.fetch_sub(1, Ordering::SeqCst);
        (left > 0, left > i64::from(self.lose_answer))
    }
}

#[async_trait]
impl Ledger for Crashing {
    async fn read(&self, user: &str, fields: &[String], now: Timestamp) -> Result<Vec<Option<String>>, Fault> {
        self.inner.read(user, fields, now).await
    }
    async fn swap(&self, user: &str, changes: &[Change], now: Timestamp, keep_until: Timestamp) -> Result<Swap, Fault> {
        let (carried_out, answered) = self.fate();
        let swapped = if carried_out { self.inner.swap(user, changes, now, keep_until).await? } else { Swap::Lost };
        if answered { Ok(swapped) } else { Err(Fault::unavailable("the ledger")) }
    }
    async fn journal_read(&self, user: &str, promotion_id: &str, now: Timestamp) -> Result<Option<JournalRow>, Fault> {
        self.inner.journal_read(user, promotion_id, now).await
    }
    async fn journal_write(
        &self,
        user: &str,
        promotion_id: &str,
        expected: Option<u64>,
        row: &JournalRow,
        look_at: Option<Timestamp>,
        now: Timestamp,
        keep_until: Timestamp,
    ) -> Result<Written, Fault> {
        let (carried_out, answered) = self.fate();
        let written = match carried_out {
            true => self.inner.journal_write(user, promotion_id, expected, row, look_at, now, keep_until).await?,
            false => Written::Lost,
        };
        if answered { Ok(written) } else { Err(Fault::unavailable("the journal")) }
    }
    async fn journal_list(&self, user: &str, now: Timestamp) -> Result<Vec<JournalRow>, Fault> {
        self.inner.journal_list(user, now).await
    }
    async fn journal_open(&self, _now: Timestamp) -> Result<Vec<OpenEntry>, Fault> {
        Ok(Vec::new())
    }
    async fn journal_close(&self, entry: &OpenEntry) -> Result<(), Fault> {
        self.inner.journal_close(entry).await
    }

    async fn forget_user(&self, user: &str) -> Result<u64, Fault> {
        self.inner.forget_user(user).await
    }
    async fn medium(&self, user: &str, purge: Purge) -> Result<Medium, Fault> {
        self.inner.medium(user, purge).await
    }
    async fn sweep(&self, now: Timestamp) -> Result<(), Fault> {
        self.inner.sweep(now).await
    }
    async fn ping(&self) -> Result<(), Fault> {
        self.inner.ping().await
    }
    fn name(&self) -> &'static str {
        self.inner.name()
    }
    async fn close(&self) {}
}
