//! A role behind its stack, and callers with a signed channel to it.

use arc_swap::ArcSwap;
use async_trait::async_trait;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use strata_api::internal::v1 as internal;
use strata_api::internal::v1::participant_service_client::ParticipantServiceClient;
use strata_api::working::v1 as pb;
use strata_api::working::v1::working_memory_service_client::WorkingMemoryServiceClient;
use strata_core::id::Level;
use strata_core::policy::authz::{Principal, Role};
use strata_core::policy::erasure::{Medium, Purge};
use strata_core::policy::settings::PolicySettings;
use strata_core::{Fault, Owner, TaskId, TenantId, Timestamp, UserId};
use strata_runtime::channel::local;
use strata_runtime::redis_store::{RedisPool, RedisSettings};
use strata_runtime::signing::{KeyRing, SharedKeys, Signer, Verifier};
use strata_runtime::sqlite::{Database, Location, SqliteSettings};
use strata_runtime::stack::{StackDeps, internal as internal_stack};
use strata_runtime::{CallIdentity, Ports, RpcChannel};
use strata_testkit::{ManualClock, SeqIds};
use strata_working::checkpoint::embedded::MIGRATIONS;
use strata_working::checkpoint::{CheckpointStore, Loaded, SaveOutcome, SavedBoard, Sharing, Snapshot, Taken, Tombstone, Wanted};
use strata_working::{CheckpointConfig, WorkingDeps, WorkingRole};
use uuid::Uuid;

/// Longest wait of a test for what must happen.
pub const SOON: Duration = Duration::from_secs(20);

/// A running role.
pub struct Bed {
    pub clock: ManualClock,
    pub role: WorkingRole,
    pub channel: RpcChannel,
}

pub fn settings(change: impl FnOnce(&mut PolicySettings)) -> Arc<ArcSwap<PolicySettings>> {
    let mut settings = PolicySettings::default();
    change(&mut settings);
    Arc::new(ArcSwap::from_pointee(settings))
}

impl Bed {
    pub async fn new() -> Self {
        Self::start(CheckpointConfig::None, &ManualClock::default()).await
    }

    pub async fn start(checkpoint: CheckpointConfig, clock: &ManualClock) -> Self {
        Self::with(checkpoint, clock, settings(|_| {})).await
    }

    pub async fn with(checkpoint: CheckpointConfig, clock: &ManualClock, settings: Arc<ArcSwap<PolicySettings>>) -> Self {
        static SEED: AtomicU64 = AtomicU64::new(1);
        let ports = Ports { clock: clock.port(), ids: SeqIds::seeded(SEED.fetch_add(1, Ordering::Relaxed)).port() };
        let role = WorkingRole::build(WorkingDeps { ports: ports.clone(), settings, checkpoint, page_tokens: None })
            .await
            .expect("valid settings");
        let keys = SharedKeys::new(KeyRing::ephemeral(ports.ids.as_ref()));
        let verifier = Arc::new(Verifier::new(keys.clone(), ports.clone()));
        let layer = local(internal_stack(role.routes(), verifier, &StackDeps::new(ports.clone())));
        Self { clock: clock.clone(), role, channel: Signer::new(keys, ports).sign(layer) }
    }

    pub fn caller(&self, tenant: &str, user: &str, agent: &str) -> Caller {
        let principal = Principal {
            id: "key:test".into(),
            tenant: TenantId::new(tenant).expect("id"),
            user: None,
            roles: BTreeSet::from([Role::TaskExecutor]),
        };
        let identity = CallIdentity::new(principal, Some(UserId::new(user).expect("id")));
        Caller { channel: self.channel.clone(), identity, user: user.into(), agent: agent.into() }
    }

    /// The usual caller.
    pub fn me(&self) -> Caller {
        self.caller("t1", "u1", "a1")
    }

    pub fn now(&self) -> Timestamp {
        use strata_core::Clock as _;
        self.clock.now()
    }
}

/// A caller with a signed channel.
#[derive(Clone)]
pub struct Caller {
    pub channel: RpcChannel,
    pub identity: CallIdentity,
    pub user: String,
    pub agent: String,
}

pub fn request_id() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    Uuid::from_u128(u128::from(COUNT.fetch_add(1, Ordering::Relaxed))).to_string()
}

pub fn goal(sentence: &str, acceptance: &str) -> Option<pb::Goal> {
    Some(pb::Goal { sentence: sentence.into(), acceptance: acceptance.into() })
}

pub fn fact(key: &str, value: &str) -> pb::Fact {
    pb::Fact { key: key.into(), value: value.into(), source: "erp.lookup".into(), ..pb::Fact::default() }
}

pub fn todo(id: &str, step: &str, state: pb::TodoState) -> pb::Todo {
    pb::Todo { id: id.into(), step: step.into(), state: state.into(), note: String::new() }
}

pub fn digest(sentence: &str) -> Option<pb::Digest> {
    Some(pb::Digest { tool: "search".into(), sentence: sentence.into(), trace_id: "tr-1".into(), time: None })
}

pub type Answer<T> = Result<T, Fault>;

impl Caller {
    pub fn at_epoch(mut self, epoch: u64) -> Self {
        self.identity = self.identity.writing(Level::Task, epoch);
        self
    }

    fn signed<T>(&self, body: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(body);
        request.extensions_mut().insert(self.identity.clone());
        request
    }

    fn working(&self) -> WorkingMemoryServiceClient<RpcChannel> {
        WorkingMemoryServiceClient::new(self.channel.clone())
    }

    pub async fn send_create(&self, body: pb::CreateTaskRequest) -> Answer<pb::Task> {
        let answer = self.working().create_task(self.signed(body)).await;
        answer.map(|a| a.into_inner().task.expect("a task")).map_err(|s| strata_api::error::fault(&s))
    }

    pub fn creation(&self, task: &str) -> pb::CreateTaskRequest {
        pb::CreateTaskRequest {
            user_id: self.user.clone(),
            agent_id: self.agent.clone(),
            task_id: task.into(),
            session_id: "s1".into(),
            goal: goal("Pay the invoice of ACME", "The bank confirms the transfer"),
            idle_time: None,
            request_id: String::new(),
        }
    }

    pub async fn create(&self, task: &str) -> Answer<pb::Task> {
        self.send_create(self.creation(task)).await
    }

    pub async fn get(&self, task: &str) -> Answer<pb::Task> {
        let body = pb::GetTaskRequest { user_id: self.user.clone(), agent_id: self.agent.clone(), task_id: task.into() };
        let answer = self.working().get_task(self.signed(body)).await;
        answer.map(|a| a.into_inner().task.expect("a task")).map_err(|s| strata_api::error::fault(&s))
    }

    pub async fn put_as(
        &self,
        task: &str,
        facts: Vec<pb::Fact>,
        generation: u64,
        request_id: &str,
    ) -> Answer<pb::PutFactsResponse> {
        let (user_id, agent_id) = (self.user.clone(), self.agent.clone());
        let body =
            pb::PutFactsRequest { user_id, agent_id, task_id: task.into(), facts, generation, request_id: request_id.into() };
        self.working()
            .put_facts(self.signed(body))
            .await
            .map(tonic::Response::into_inner)
            .map_err(|s| strata_api::error::fault(&s))
    }

    pub async fn put(&self, task: &str, facts: Vec<pb::Fact>) -> Answer<pb::PutFactsResponse> {
        self.put_as(task, facts, 0, "").await
    }

    pub async fn todos(&self, task: &str, todos: Vec<pb::Todo>) -> Answer<pb::UpdateTodosResponse> {
        let (user_id, agent_id) = (self.user.clone(), self.agent.clone());
        let body =
            pb::UpdateTodosRequest { user_id, agent_id, task_id: task.into(), todos, generation: 0, request_id: String::new() };
        self.working()
            .update_todos(self.signed(body))
            .await
            .map(tonic::Response::into_inner)
            .map_err(|s| strata_api::error::fault(&s))
    }

    pub async fn digest_as(&self, task: &str, digest: Option<pb::Digest>, request_id: &str) -> Answer<pb::AppendDigestResponse> {
        let (user_id, agent_id) = (self.user.clone(), self.agent.clone());
        let body = pb::AppendDigestRequest {
            user_id,
            agent_id,
            task_id: task.into(),
            digest,
            generation: 0,
            request_id: request_id.into(),
            ..Default::default()
        };
        self.working()
            .append_digest(self.signed(body))
            .await
            .map(tonic::Response::into_inner)
            .map_err(|s| strata_api::error::fault(&s))
    }

    pub async fn append(&self, body: pb::AppendDigestRequest) -> Answer<pb::AppendDigestResponse> {
        let body = pb::AppendDigestRequest { user_id: self.user.clone(), agent_id: self.agent.clone(), ..body };
        let answer = self.working().append_digest(self.signed(body)).await;
        answer.map(tonic::Response::into_inner).map_err(|s| strata_api::error::fault(&s))
    }

    pub async fn list(&self, page_size: i32, page_token: &str) -> Answer<pb::ListTasksResponse> {
        let body = pb::ListTasksRequest {
            user_id: self.user.clone(),
            agent_id: self.agent.clone(),
            page_size,
            page_token: page_token.into(),
        };
        let answer = self.working().list_tasks(self.signed(body)).await;
        answer.map(tonic::Response::into_inner).map_err(|s| strata_api::error::fault(&s))
    }

    pub async fn watch(&self, task: &str) -> Answer<tonic::Streaming<pb::WatchTaskResponse>> {
        let body = pb::WatchTaskRequest { user_id: self.user.clone(), agent_id: self.agent.clone(), task_id: task.into() };
        let answer = self.working().watch_task(self.signed(body)).await;
        answer.map(tonic::Response::into_inner).map_err(|s| strata_api::error::fault(&s))
    }

    pub async fn digest(&self, task: &str, sentence: &str) -> Answer<pb::AppendDigestResponse> {
        self.digest_as(task, digest(sentence), "").await
    }

    pub async fn goal(&self, task: &str, goal: Option<pb::Goal>) -> Answer<pb::UpdateGoalResponse> {
        let (user_id, agent_id) = (self.user.clone(), self.agent.clone());
        let body =
            pb::UpdateGoalRequest { user_id, agent_id, task_id: task.into(), goal, generation: 0, request_id: String::new() };
        self.working()
            .update_goal(self.signed(body))
            .await
            .map(tonic::Response::into_inner)
            .map_err(|s| strata_api::error::fault(&s))
    }

    pub async fn end_as(&self, task: &str, request_id: &str) -> Answer<pb::EndTaskResponse> {
        let (user_id, agent_id) = (self.user.clone(), self.agent.clone());
        let body =
            pb::EndTaskRequest { user_id, agent_id, task_id: task.into(), request_id: request_id.into(), promotions: Vec::new() };
        self.working()
            .end_task(self.signed(body))
            .await
            .map(tonic::Response::into_inner)
            .map_err(|s| strata_api::error::fault(&s))
    }

    pub async fn end(&self, task: &str) -> Answer<pb::EndTaskResponse> {
        self.end_as(task, "").await
    }

    pub async fn seal(
        &self,
        task: &str,
        key: &str,
        promotion: &str,
        epoch: u64,
        deadline: Timestamp,
    ) -> Answer<internal::SealResponse> {
        let body = internal::SealRequest {
            user_id: self.user.clone(),
            agent_id: self.agent.clone(),
            task_id: task.into(),
            key: key.into(),
            promotion_id: promotion.into(),
            epoch,
            deadline: Some(strata_api::convert::common::wire_time(deadline)),
        };
        let mut client = ParticipantServiceClient::new(self.channel.clone());
        client.seal(self.signed(body)).await.map(tonic::Response::into_inner).map_err(|s| strata_api::error::fault(&s))
    }

    pub async fn settle(&self, task: &str, key: &str, promotion: &str, seal_epoch: u64, committed: bool) -> Answer<bool> {
        let body = internal::SettleRequest {
            user_id: self.user.clone(),
            agent_id: self.agent.clone(),
            task_id: task.into(),
            key: key.into(),
            promotion_id: promotion.into(),
            seal_epoch,
            committed,
            epoch: seal_epoch + 1,
        };
        let mut client = ParticipantServiceClient::new(self.channel.clone());
        client.settle(self.signed(body)).await.map(|a| a.into_inner().already_settled).map_err(|s| strata_api::error::fault(&s))
    }
}

/// A pool to one database of a server, one for each test.
pub fn redis(server: &strata_testkit::RedisServer, database: u8) -> RedisPool {
    let url = format!("{}/{database}", server.url());
    RedisPool::connect(&url.into(), RedisSettings::default()).expect("a legal URL")
}

/// A database file of its own.
pub struct Sqlite {
    folder: tempfile::TempDir,
}

impl Sqlite {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    pub fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("working.db")
    }

    pub fn open(&self) -> Database {
        Database::open(&Location::File(self.path()), MIGRATIONS, SqliteSettings::default()).expect("a database")
    }
}

/// A store that stops taking anything from one moment on: what a killed process leaves is what it had written by then.
#[derive(Debug)]
pub struct Cut {
    store: Arc<dyn CheckpointStore>,
    cut: AtomicBool,
    deaf: AtomicBool,
    full: AtomicBool,
}

impl Cut {
    pub fn new(store: Arc<dyn CheckpointStore>) -> Arc<Self> {
        Arc::new(Self { store, cut: AtomicBool::new(false), deaf: AtomicBool::new(false), full: AtomicBool::new(false) })
    }

    pub fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }

    /// What others want is not heard: it was asked for long ago, and the store has forgotten it.
    pub fn deafen(&self) {
        self.deaf.store(true, Ordering::SeqCst);
    }

    /// Boards are not written, though the store answers.
    pub fn fill(&self, full: bool) {
        self.full.store(full, Ordering::SeqCst);
    }

    pub fn mend(&self) {
        self.cut.store(false, Ordering::SeqCst);
    }

    /// The other side of the store, where there are several replicas.
    fn shared(&self) -> Result<&dyn Sharing, Fault> {
        self.answers()?;
        self.store.sharing().ok_or_else(|| Fault::unavailable("sharing"))
    }

    fn answers(&self) -> Result<(), Fault> {
        if self.cut.load(Ordering::SeqCst) { Err(Fault::unavailable("store")) } else { Ok(()) }
    }
}

#[async_trait]
impl CheckpointStore for Cut {
    fn name(&self) -> &'static str {
        self.store.name()
    }
    async fn load(&self, now: Timestamp) -> Result<Loaded, Fault> {
        self.answers()?;
        self.store.load(now).await
    }
    async fn save(&self, boards: &[Snapshot]) -> Result<Vec<SaveOutcome>, Fault> {
        self.answers()?;
        if self.full.load(Ordering::SeqCst) {
            return Err(Fault::unavailable("store"));
        }
        self.store.save(boards).await
    }
    async fn end(&self, tombstone: &Tombstone) -> Result<SaveOutcome, Fault> {
        self.answers()?;
        self.store.end(tombstone).await
    }
    async fn mark_clean(&self, clean: bool) -> Result<(), Fault> {
        self.answers()?;
        self.store.mark_clean(clean).await
    }
    async fn life(&self) -> Result<Option<String>, Fault> {
        self.answers()?;
        self.store.life().await
    }
    async fn alive(&self) -> Result<(), Fault> {
        self.answers()?;
        self.store.alive().await
    }
    fn sharing(&self) -> Option<&dyn Sharing> {
        self.store.sharing().map(|_| self as &dyn Sharing)
    }
    async fn raise_erase_epoch(&self, user_key: &str, epoch: u64, now: Timestamp) -> Result<(), Fault> {
        self.answers()?;
        self.store.raise_erase_epoch(user_key, epoch, now).await
    }
    async fn medium(&self, user_key: &str, purge: Purge, patience: Duration) -> Result<Medium, Fault> {
        self.answers()?;
        self.store.medium(user_key, purge, patience).await
    }
    async fn purge(&self, now: Timestamp) -> Result<(), Fault> {
        self.answers()?;
        self.store.purge(now).await
    }
}

#[async_trait]
impl Sharing for Cut {
    async fn beat(&self) -> Result<Vec<Wanted>, Fault> {
        let wanted = self.shared()?.beat().await?;
        Ok(if self.deaf.load(Ordering::SeqCst) { Vec::new() } else { wanted })
    }
    fn renew(&self) -> String {
        self.store.sharing().expect("several replicas").renew()
    }
    async fn retire(&self, former: &str) -> Result<(), Fault> {
        self.shared()?.retire(former).await
    }
    async fn take(&self, owner: &Owner, task: &TaskId) -> Result<(Taken, u64), Fault> {
        self.shared()?.take(owner, task).await
    }
    async fn disown(&self, owner: &Owner, task: &TaskId) -> Result<(), Fault> {
        self.shared()?.disown(owner, task).await
    }
    async fn erase_epoch(&self, owner: &Owner) -> Result<u64, Fault> {
        self.shared()?.erase_epoch(owner).await
    }
    async fn named(&self, owner: &Owner, task: &TaskId, claim: bool) -> Result<Option<String>, Fault> {
        self.shared()?.named(owner, task, claim).await
    }
    async fn tasks(&self, owner: &Owner) -> Result<Vec<TaskId>, Fault> {
        self.shared()?.tasks(owner).await
    }
    async fn look(&self, owner: &Owner, tasks: &[TaskId], now: Timestamp) -> Result<Vec<SavedBoard>, Fault> {
        self.shared()?.look(owner, tasks, now).await
    }
}
