//! The role on a real SQLite file, reached through its generated clients on the local channel, with claims as the signed
//! header would give them, and a clock that stands still until it is moved.

use arc_swap::ArcSwap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use strata_api::convert::common::wire_value;
use strata_api::convert::longterm::wire_attestation;
use strata_api::error;
use strata_api::internal::v1::erasure_journal_service_client::ErasureJournalServiceClient;
use strata_api::internal::v1::target_service_client::TargetServiceClient;
use strata_api::longterm::v1 as pb;
use strata_api::longterm::v1::long_term_memory_service_client::LongTermMemoryServiceClient;
use strata_core::id::Level;
use strata_core::policy::authz::{Principal, Role};
use strata_core::policy::gate::{Attestation, QuoteState};
use strata_core::policy::modes::Mode;
use strata_core::policy::quota::QuotaSettings;
use strata_core::policy::registry::Registry;
use strata_core::policy::settings::PolicySettings;
use strata_core::record::Value;
use strata_core::time::SECOND;
use strata_core::{Fault, TenantId, Timestamp, UserId};
use strata_longterm::{IndexConfig, LongtermDeps, LongtermRole, MIGRATIONS};
use strata_runtime::channel::{self, RpcChannel};
use strata_runtime::signing::WriteGrant;
use strata_runtime::sqlite::{Database, Location, SqliteSettings, Synchronous};
use strata_runtime::{Claims, Ports};
use strata_testkit::{ManualClock, SeqIds};
use strata_text::summarise::Summariser;
use tower::util::MapRequest;
use uuid::Uuid;

/// 2026-11-30 00:00:00 UTC.
pub const START: Timestamp = Timestamp(1_795_996_800_000_000);

/// Models that the role asks.
#[derive(Default)]
struct Models {
    embedder: Option<Arc<dyn strata_text::embed::Embedder>>,
    summariser: Option<Arc<dyn Summariser>>,
}

/// One running role.
pub struct World {
    pub clock: ManualClock,
    pub database: Database,
    pub role: LongtermRole,
    pub directory: tempfile::TempDir,
    pub settings: Arc<ArcSwap<PolicySettings>>,
    pub mode: Arc<parking_lot::Mutex<Mode>>,
    pub quotas: Arc<ArcSwap<QuotaSettings>>,
    turns: Arc<AtomicU32>,
}

impl World {
    pub async fn new() -> Self {
        Self::seeded(7).await
    }

    pub async fn seeded(seed: u64) -> Self {
        Self::with_embedder(seed, None).await
    }

    pub async fn with_embedder(seed: u64, embedder: Option<Arc<dyn strata_text::embed::Embedder>>) -> Self {
        Self::within(tempfile::tempdir().expect("a directory"), seed, embedder, SqliteSettings::default()).await
    }

    /// For thousands of writes: a power cut is not what is tested.
    pub async fn unsynced(seed: u64) -> Self {
        let settings = SqliteSettings { synchronous: Synchronous::Normal, ..SqliteSettings::default() };
        Self::within(tempfile::tempdir().expect("a directory"), seed, None, settings).await
    }

    /// Over the database that is in the directory, if there is one.
    pub async fn within(
        directory: tempfile::TempDir,
        seed: u64,
        embedder: Option<Arc<dyn strata_text::embed::Embedder>>,
        sqlite: SqliteSettings,
    ) -> Self {
        Self::indexed(directory, seed, embedder, sqlite, IndexConfig::Exact, ManualClock::at(START)).await
    }

    /// With a model that words summaries.
    pub async fn worded(summariser: Arc<dyn Summariser>) -> Self {
        let models = Models { summariser: Some(summariser), ..Models::default() };
        let directory = tempfile::tempdir().expect("a directory");
        Self::built(directory, 7, models, SqliteSettings::default(), IndexConfig::Exact, ManualClock::at(START)).await
    }

    /// The same with another index, by a clock that goes on.
    pub async fn indexed(
        directory: tempfile::TempDir,
        seed: u64,
        embedder: Option<Arc<dyn strata_text::embed::Embedder>>,
        sqlite: SqliteSettings,
        index: IndexConfig,
        clock: ManualClock,
    ) -> Self {
        Self::built(directory, seed, Models { embedder, summariser: None }, sqlite, index, clock).await
    }

    async fn built(
        directory: tempfile::TempDir,
        seed: u64,
        models: Models,
        sqlite: SqliteSettings,
        index: IndexConfig,
        clock: ManualClock,
    ) -> Self {
        let location = Location::File(directory.path().join("longterm.db"));
        let database = Database::open(&location, MIGRATIONS, sqlite).expect("opens");
        let mut policy = PolicySettings::default();
        // Runs when a test says so: its clock jumps.
        policy.forgetting.schedule.enabled = false;
        let settings = Arc::new(ArcSwap::from_pointee(policy));
        let mode = Arc::new(parking_lot::Mutex::new(Mode::Normal));
        let quotas: Arc<ArcSwap<QuotaSettings>> = Arc::default();
        let asked_mode = Arc::clone(&mode);
        let deps = LongtermDeps {
            ports: Ports { clock: clock.port(), ids: SeqIds::seeded(seed).port() },
            settings: Arc::clone(&settings),
            database: database.clone(),
            index,
            backups: Some(directory.path().join("backups")),
            backup_days: Some(30),
            erasure_log: Some(directory.path().join("erasures")),
            erasure_copy: None,
            embedder: models.embedder,
            reranker: None,
            summariser: models.summariser,
            registry: Arc::new(Registry::builtin()),
            quotas: Arc::clone(&quotas),
            mode: Arc::new(move |_| *asked_mode.lock()),
            secret: b"a secret of the tests, not of anyone".to_vec(),
        };
        let role = LongtermRole::build(deps).await.expect("builds");
        Self { clock, database, role, directory, settings, mode, quotas, turns: Arc::new(AtomicU32::new(0)) }
    }

    /// The user `user` of tenant t1, who may do everything.
    pub fn user(&self, user: &str) -> Caller {
        Caller {
            routes: self.role.routes(),
            clock: self.clock.clone(),
            turns: Arc::clone(&self.turns),
            tenant: "t1".into(),
            user: user.into(),
            agent: String::new(),
            roles: [Role::MemoryWriter, Role::Reader, Role::Eraser].into(),
            quote: QuoteState::Verified,
            user_turn: true,
            said: None,
            explicit: true,
        }
    }

    /// Ends this process; its files and its clock are left for another one.
    pub async fn stopped(self) -> (tempfile::TempDir, ManualClock) {
        assert!(self.role.shutdown(std::time::Duration::from_secs(20)).await, "it ends");
        self.database.close().await;
        (self.directory, self.clock)
    }

    /// Every entry of the audit about a user of tenant t1, in order.
    pub async fn audit(&self, user: &str) -> Vec<strata_longterm::metadata::ledger::Audited> {
        use strata_longterm::metadata::ledger;
        let asked = ledger::AuditAsked { user: Some(user.into()), action: None };
        self.database.read(move |db| ledger::audited(db, "t1", &asked, 0, 10_000)).await.expect("entries")
    }

    /// One number out of the database.
    pub async fn count(&self, sql: &'static str) -> i64 {
        self.database
            .read(move |db| Ok::<i64, strata_runtime::sqlite::SqliteError>(db.query_row(sql, [], |row| row.get(0))?))
            .await
            .expect("a number")
    }

    /// Waits until the index knows everything, so that moving the clock does not make the outbox look old.
    pub async fn settled(&self) {
        strata_testkit::eventually(std::time::Duration::from_secs(20), async || {
            self.count("SELECT count(*) FROM outbox").await == 0
        })
        .await;
    }

    /// Moves the clock once the index knows everything.
    pub async fn later(&self, micros: i64) {
        self.settled().await;
        self.clock.advance_micros(micros);
    }

    /// Whether the bytes of `text` stand anywhere in the files of the database or in the erasure log; backups are left out.
    pub fn files_hold(&self, text: &str) -> bool {
        let log = self.directory.path().join("erasures").join(strata_longterm::erasure_log::FILE);
        let own = std::fs::read_dir(self.directory.path()).expect("the directory").map(|entry| entry.expect("an entry").path());
        own.chain([log]).filter(|path| path.is_file()).any(|path| {
            let bytes = std::fs::read(path).expect("a file");
            bytes.windows(text.len()).any(|window| window == text.as_bytes())
        })
    }
}

/// One caller: who, for whom, and what the router attests.
#[derive(Clone)]
pub struct Caller {
    routes: tonic::service::Routes,
    clock: ManualClock,
    turns: Arc<AtomicU32>,
    pub tenant: String,
    pub user: String,
    pub agent: String,
    pub roles: BTreeSet<Role>,
    quote: QuoteState,
    user_turn: bool,
    said: Option<Timestamp>,
    explicit: bool,
}

impl Caller {
    pub fn tenant(mut self, tenant: &str) -> Self {
        self.tenant = tenant.into();
        self
    }
    pub fn agent(mut self, agent: &str) -> Self {
        self.agent = agent.into();
        self
    }
    pub fn roles(mut self, roles: impl IntoIterator<Item = Role>) -> Self {
        self.roles = roles.into_iter().collect();
        self
    }
    /// What the router attests about the quote.
    pub fn quote(mut self, quote: QuoteState) -> Self {
        self.quote = quote;
        self
    }
    /// The turn was not the user's.
    pub fn of_another(mut self) -> Self {
        self.user_turn = false;
        self
    }
    /// Turns have this server time from now on, instead of the clock's.
    pub fn said(mut self, said: Timestamp) -> Self {
        self.said = Some(said);
        self
    }

    pub fn claims(&self, level: Option<Level>) -> Claims {
        let attestation = Attestation {
            quote: self.quote,
            turn_time: Some(self.said.unwrap_or_else(|| strata_core::Clock::now(&self.clock))),
            user_turn: self.user_turn,
            explicit_order: self.explicit,
        };
        let user = UserId::new(self.user.clone()).expect("user");
        Claims {
            caller: Principal {
                id: "key:test".into(),
                tenant: TenantId::new(self.tenant.clone()).expect("tenant"),
                user: None,
                roles: self.roles.clone(),
            },
            user: Some(user),
            method: String::new(),
            body_hash: [0; 32],
            nonce: [0; 16],
            issued_at: START,
            write: level.map(|level| WriteGrant { level, epoch: 1 }),
            erase_epoch: 0,
            attestation: wire_attestation(&attestation),
        }
    }

    fn channel(&self) -> RpcChannel {
        let level = if self.agent.is_empty() { Level::User } else { Level::Agent };
        self.channel_with(Some(self.claims(Some(level))))
    }

    /// A channel on which every call has these claims.
    pub fn channel_with(&self, claims: Option<Claims>) -> RpcChannel {
        let with_claims = move |mut request: tonic::codegen::http::Request<tonic::body::Body>| {
            if let Some(claims) = &claims {
                request.extensions_mut().insert(claims.clone());
            }
            request
        };
        channel::local(MapRequest::new(self.routes.clone(), with_claims))
    }

    pub fn client(&self) -> LongTermMemoryServiceClient<RpcChannel> {
        LongTermMemoryServiceClient::new(self.channel())
    }

    pub fn target(&self) -> TargetServiceClient<RpcChannel> {
        TargetServiceClient::new(self.channel())
    }

    pub fn journal(&self) -> ErasureJournalServiceClient<RpcChannel> {
        ErasureJournalServiceClient::new(self.channel())
    }

    /// A new turn of the session.
    pub fn turn(&self, session: &str) -> pb::SourceRef {
        let seq = self.turns.fetch_add(1, Ordering::Relaxed) + 1;
        turn(session, seq)
    }

    pub async fn remember(&self, statement: pb::Statement) -> Result<pb::WriteResult, Fault> {
        self.remember_as(statement, None).await
    }

    pub async fn remember_as(&self, statement: pb::Statement, request_id: Option<Uuid>) -> Result<pb::WriteResult, Fault> {
        let request = pb::RememberRequest {
            user_id: self.user.clone(),
            agent_id: self.agent.clone(),
            statement: Some(self.referenced(statement)),
            request_id: request_id.map(|id| id.to_string()).unwrap_or_default(),
        };
        let answer = self.client().remember(request).await.map_err(|status| error::fault(&status))?;
        Ok(answer.into_inner().result.expect("a result"))
    }

    pub async fn propose(&self, statement: pb::Statement) -> Result<pb::WriteResult, Fault> {
        let request = pb::ProposeRequest {
            user_id: self.user.clone(),
            agent_id: self.agent.clone(),
            statement: Some(self.referenced(statement)),
            request_id: String::new(),
        };
        let answer = self.client().propose(request).await.map_err(|status| error::fault(&status))?;
        Ok(answer.into_inner().result.expect("a result"))
    }

    fn referenced(&self, mut statement: pb::Statement) -> pb::Statement {
        if statement.source_ref.is_none() {
            statement.source_ref = Some(self.turn("s1"));
        }
        statement
    }

    pub async fn confirm(&self, memory_id: &str) -> Result<pb::WriteResult, Fault> {
        let request = pb::ConfirmCandidateRequest {
            user_id: self.user.clone(),
            agent_id: self.agent.clone(),
            memory_id: memory_id.into(),
            confirmation: "dialog 1".into(),
            ..Default::default()
        };
        let answer = self.client().confirm_candidate(request).await.map_err(|status| error::fault(&status))?;
        Ok(answer.into_inner().result.expect("a result"))
    }

    pub async fn reject(&self, memory_id: &str) -> Result<pb::Memory, Fault> {
        let request = pb::RejectCandidateRequest {
            user_id: self.user.clone(),
            agent_id: self.agent.clone(),
            memory_id: memory_id.into(),
            request_id: String::new(),
        };
        let answer = self.client().reject_candidate(request).await.map_err(|status| error::fault(&status))?;
        Ok(answer.into_inner().memory.expect("a record"))
    }

    pub async fn get(&self, memory_id: &str) -> Result<pb::Memory, Fault> {
        let request =
            pb::GetMemoryRequest { user_id: self.user.clone(), agent_id: self.agent.clone(), memory_id: memory_id.into() };
        let answer = self.client().get_memory(request).await.map_err(|status| error::fault(&status))?;
        Ok(answer.into_inner().memory.expect("a record"))
    }

    pub async fn lookup(&self, key: &str) -> Vec<pb::RecallItem> {
        let request = pb::LookupMemoryRequest { user_id: self.user.clone(), agent_id: self.agent.clone(), key: key.into() };
        self.client().lookup_memory(request).await.expect("served").into_inner().items
    }

    /// Values in force of a key, as text.
    pub async fn values(&self, key: &str) -> Vec<String> {
        self.lookup(key).await.into_iter().map(|item| value_of(item.memory.as_ref().expect("a record"))).collect()
    }

    pub async fn list(&self, filter: pb::RecallFilter) -> Vec<pb::Memory> {
        let request = pb::ListMemoriesRequest {
            user_id: self.user.clone(),
            agent_id: self.agent.clone(),
            filter: Some(filter),
            page_size: 1_000,
            ..Default::default()
        };
        self.client().list_memories(request).await.expect("served").into_inner().memories
    }

    pub async fn candidates(&self, due_only: bool) -> Vec<pb::Candidate> {
        let request = pb::ListCandidatesRequest {
            user_id: self.user.clone(),
            agent_id: self.agent.clone(),
            due_only,
            ..Default::default()
        };
        self.client().list_candidates(request).await.expect("served").into_inner().candidates
    }

    pub async fn history(&self, request: pb::GetHistoryRequest) -> Result<pb::GetHistoryResponse, Fault> {
        let request = pb::GetHistoryRequest { user_id: self.user.clone(), agent_id: self.agent.clone(), ..request };
        self.client().get_history(request).await.map(tonic::Response::into_inner).map_err(|status| error::fault(&status))
    }

    /// The history of a key.
    pub async fn history_of(&self, key: &str) -> pb::GetHistoryResponse {
        self.history(pb::GetHistoryRequest { key: key.into(), page_size: 1_000, ..Default::default() }).await.expect("served")
    }

    pub async fn forget(&self, memory_ids: &[&str], keys: &[&str]) -> pb::ForgetMemoriesResponse {
        let request = pb::ForgetMemoriesRequest {
            user_id: self.user.clone(),
            agent_id: self.agent.clone(),
            memory_ids: memory_ids.iter().map(|id| (*id).to_owned()).collect(),
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
            reason: "the user asked for it".into(),
            request_id: String::new(),
        };
        self.client().forget_memories(request).await.expect("served").into_inner()
    }

    pub async fn restore(&self, memory_ids: &[&str]) -> pb::RestoreMemoriesResponse {
        let request = pb::RestoreMemoriesRequest {
            user_id: self.user.clone(),
            agent_id: self.agent.clone(),
            memory_ids: memory_ids.iter().map(|id| (*id).to_owned()).collect(),
            request_id: String::new(),
        };
        self.client().restore_memories(request).await.expect("served").into_inner()
    }
}

pub fn turn(session: &str, seq: u32) -> pb::SourceRef {
    pb::SourceRef { kind: Some(pb::source_ref::Kind::Turn(pb::TurnRef { session_id: session.into(), seq })) }
}

/// A statement of the user: the content is its own quote.
pub fn says(content: &str) -> pb::Statement {
    pb::Statement {
        kind: pb::Kind::Fact.into(),
        content: content.into(),
        source: pb::Source::UserStatement.into(),
        source_quote: content.into(),
        trigger: pb::Trigger::UserRequest.into(),
        ..Default::default()
    }
}

/// A statement of the user about a slot.
pub fn states(key: &str, value: &str, content: &str) -> pb::Statement {
    pb::Statement { key: key.into(), value: Some(wire_value(&Value::Text(value.into()))), ..says(content) }
}

/// The same from another source.
pub fn from(source: pb::Source, statement: pb::Statement) -> pb::Statement {
    pb::Statement { source: source.into(), ..statement }
}

/// The same of another kind.
pub fn of_kind(kind: pb::Kind, statement: pb::Statement) -> pb::Statement {
    pb::Statement { kind: kind.into(), ..statement }
}

/// Value of a record as text.
pub fn value_of(memory: &pb::Memory) -> String {
    use strata_api::common::v1::value::Kind;
    match memory.value.as_ref().and_then(|value| value.kind.as_ref()) {
        Some(Kind::Text(text) | Kind::Number(text) | Kind::Json(text)) => text.clone(),
        Some(Kind::Bool(truth)) => truth.to_string(),
        None => memory.content.clone(),
    }
}

/// Contents of records, in order.
pub fn contents(memories: &[pb::Memory]) -> Vec<&str> {
    memories.iter().map(|memory| memory.content.as_str()).collect()
}

/// Id of the record of a result.
pub fn id(result: &pb::WriteResult) -> String {
    result.memory.as_ref().expect("a record").memory_id.clone()
}

/// Status of the record of a result.
pub fn status(result: &pb::WriteResult) -> pb::Status {
    result.memory.as_ref().expect("a record").status()
}

/// Rules that spoke, in order.
pub fn rules(result: &pb::WriteResult) -> Vec<&str> {
    result.findings.iter().map(|finding| finding.rule.as_str()).collect()
}

pub const DAY: i64 = 86_400 * SECOND;

/// What a statement says about itself.
pub fn provenance(statement: &pb::Statement) -> pb::Provenance {
    pb::Provenance {
        source: statement.source,
        source_ref: Some(turn("s1", 1)),
        source_quote: statement.source_quote.clone(),
        trigger: statement.trigger,
        consent: String::new(),
    }
}
