//! A role behind its stack on either store, and callers with a signed channel to it.

use arc_swap::ArcSwap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use strata_api::page::PageTokens;
use strata_api::session::v1 as pb;
use strata_api::session::v1::session_memory_service_client::SessionMemoryServiceClient;
use strata_core::id::Level;
use strata_core::policy::authz::{Principal, Role};
use strata_core::policy::settings::PolicySettings;
use strata_core::{Fault, TenantId, UserId};
use strata_runtime::channel::local;
use strata_runtime::redis_store::{RedisPool, RedisSettings};
use strata_runtime::signing::{KeyRing, SharedKeys, Signer, Verifier};
use strata_runtime::sqlite::{Database, Location, SqliteSettings};
use strata_runtime::stack::{StackDeps, internal as internal_stack};
use strata_runtime::{CallIdentity, Ports, RpcChannel};
use strata_session::store::embedded::MIGRATIONS;
use strata_session::{SessionDeps, SessionRole, SessionStoreConfig};
use strata_testkit::eventually;
use strata_testkit::{ManualClock, SeqIds};
use strata_text::embed::Embedder;
use strata_text::summarise::Summariser;
use uuid::Uuid;

/// Longest wait of a test for what must happen.
pub const SOON: Duration = Duration::from_secs(30);

/// Deadline of a call: what a loaded machine may need to read its dictionaries, not what a caller would wait for.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Models of a deployment.
#[derive(Clone, Default)]
pub struct Models {
    pub embedder: Option<Arc<dyn Embedder>>,
    pub summariser: Option<Arc<dyn Summariser>>,
}

/// A running role.
pub struct Bed {
    pub clock: ManualClock,
    pub role: SessionRole,
    pub channel: RpcChannel,
    /// `redis` or `sqlite`.
    pub store: &'static str,
    pub tenant: String,
    config: SessionStoreConfig,
    _folder: Option<tempfile::TempDir>,
}

pub fn settings(change: impl FnOnce(&mut PolicySettings)) -> Arc<ArcSwap<PolicySettings>> {
    let mut settings = PolicySettings::default();
    change(&mut settings);
    Arc::new(ArcSwap::from_pointee(settings))
}

pub fn pool(url: &str) -> RedisPool {
    RedisPool::connect(&url.to_owned().into(), RedisSettings::default()).expect("a url")
}

/// A pool that waits for a server which many tests keep busy; tests of time use [`pool`].
fn patient_pool(url: &str) -> RedisPool {
    let long = Duration::from_secs(20);
    let settings = RedisSettings { response_timeout: long, operation_timeout: long, ..RedisSettings::default() };
    RedisPool::connect(&url.to_owned().into(), settings).expect("a url")
}

fn database(folder: &std::path::Path) -> Database {
    Database::open(&Location::File(folder.join("session.db")), MIGRATIONS, SqliteSettings::default()).expect("a database")
}

impl Bed {
    /// One bed on each store.
    pub async fn both() -> Vec<Self> {
        Self::both_with(|_| {}, None).await
    }

    pub async fn both_with(change: impl Fn(&mut PolicySettings), embedder: Option<Arc<dyn Embedder>>) -> Vec<Self> {
        Self::both_by(change, Models { embedder, summariser: None }).await
    }

    pub async fn both_by(change: impl Fn(&mut PolicySettings), models: Models) -> Vec<Self> {
        let redis = SessionStoreConfig::Redis(patient_pool(&strata_testkit::redis::shared_url()));
        let folder = tempfile::tempdir().expect("a folder");
        let embedded = SessionStoreConfig::Embedded(database(folder.path()));
        let mut beds = vec![Self::by(redis, "redis", settings(&change), models.clone()).await];
        let mut bed = Self::by(embedded, "sqlite", settings(&change), models).await;
        bed._folder = Some(folder);
        beds.push(bed);
        beds
    }

    pub async fn redis(url: &str) -> Self {
        Self::with(SessionStoreConfig::Redis(pool(url)), "redis", settings(|_| {}), None).await
    }

    pub async fn with(
        store: SessionStoreConfig,
        name: &'static str,
        settings: Arc<ArcSwap<PolicySettings>>,
        embedder: Option<Arc<dyn Embedder>>,
    ) -> Self {
        Self::by(store, name, settings, Models { embedder, summariser: None }).await
    }

    pub async fn by(
        store: SessionStoreConfig,
        name: &'static str,
        settings: Arc<ArcSwap<PolicySettings>>,
        models: Models,
    ) -> Self {
        static SEED: AtomicU64 = AtomicU64::new(1);
        let clock = ManualClock::default();
        let ports = Ports { clock: clock.port(), ids: SeqIds::seeded(SEED.fetch_add(1, Ordering::Relaxed)).port() };
        let config = store.clone();
        let Models { embedder, summariser } = models;
        let page_tokens = PageTokens::new(b"test");
        let deps = SessionDeps { ports: ports.clone(), settings, store, embedder, summariser, page_tokens };
        let role = SessionRole::build(deps).await.expect("valid settings");
        let keys = SharedKeys::new(KeyRing::ephemeral(ports.ids.as_ref()));
        let verifier = Arc::new(Verifier::new(keys.clone(), ports.clone()));
        let layer = local(internal_stack(role.routes(), verifier, &StackDeps::new(ports.clone())));
        let tenant = strata_testkit::fixtures::unique("t");
        Self { clock, role, channel: Signer::new(keys, ports).sign(layer), store: name, tenant, config, _folder: None }
    }

    /// Another process over the same store, at the same time of day.
    pub async fn replica(&self) -> Self {
        let mut other = Self::with(self.config.clone(), self.store, settings(|_| {}), None).await;
        other.clock.set(strata_core::Clock::now(&self.clock));
        other.tenant = self.tenant.clone();
        other
    }

    /// Where the embedded store is.
    pub fn folder(&self) -> Option<&std::path::Path> {
        self._folder.as_ref().map(tempfile::TempDir::path)
    }

    pub fn caller(&self, tenant: &str, user: &str, agent: &str) -> Caller {
        let principal = Principal {
            id: "key:test".into(),
            tenant: TenantId::new(tenant).expect("id"),
            user: None,
            roles: BTreeSet::from([Role::SessionManager]),
        };
        let identity = CallIdentity::new(principal, Some(UserId::new(user).expect("id")));
        Caller { channel: self.channel.clone(), identity, user: user.into(), agent: agent.into() }
    }

    /// The usual caller, in a tenant no other test has.
    pub fn me(&self) -> Caller {
        self.caller(&self.tenant, "u1", "")
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

pub fn turn(role: pb::Role, text: &str) -> pb::NewTurn {
    pb::NewTurn { role: role.into(), text: text.into(), ..Default::default() }
}

pub fn user(text: &str) -> pb::NewTurn {
    turn(pb::Role::User, text)
}

pub fn assistant(text: &str) -> pb::NewTurn {
    turn(pb::Role::Assistant, text)
}

pub fn system(text: &str) -> pb::NewTurn {
    turn(pb::Role::System, text)
}

pub fn call(id: &str, text: &str) -> pb::NewTurn {
    pb::NewTurn { tool_call_id: id.into(), ..assistant(text) }
}

pub fn result(id: &str, text: &str) -> pb::NewTurn {
    pb::NewTurn { tool_call_id: id.into(), ..turn(pb::Role::Tool, text) }
}

pub fn pinned(text: &str) -> pb::NewTurn {
    pb::NewTurn { pinned: true, ..user(text) }
}

pub fn seqs(turns: &[pb::Turn]) -> Vec<u32> {
    turns.iter().map(|t| t.seq).collect()
}

/// All sentences of all summaries, in order.
pub fn sentences(summaries: &[pb::Summary]) -> Vec<String> {
    summaries.iter().flat_map(|s| &s.sentences).map(|s| s.text.clone()).collect()
}

pub type Answer<T> = Result<T, Fault>;

macro_rules! rpc {
    ($name:ident, $request:ty, $response:ty) => {
        pub async fn $name(&self, mut body: $request) -> Answer<$response> {
            body.user_id = self.user.clone();
            body.agent_id = self.agent.clone();
            let mut request = tonic::Request::new(body);
            request.set_timeout(PATIENCE);
            request.extensions_mut().insert(self.identity.clone());
            let answer = SessionMemoryServiceClient::new(self.channel.clone()).$name(request).await;
            answer.map(tonic::Response::into_inner).map_err(|s| strata_api::error::fault(&s))
        }
    };
}

impl Caller {
    rpc!(append_turns, pb::AppendTurnsRequest, pb::AppendTurnsResponse);
    rpc!(get_window, pb::GetWindowRequest, pb::GetWindowResponse);
    rpc!(list_turns, pb::ListTurnsRequest, pb::ListTurnsResponse);
    rpc!(get_turns, pb::GetTurnsRequest, pb::GetTurnsResponse);
    rpc!(search_turns, pb::SearchTurnsRequest, pb::SearchTurnsResponse);
    rpc!(anchor_turns, pb::AnchorTurnsRequest, pb::AnchorTurnsResponse);
    rpc!(release_anchors, pb::ReleaseAnchorsRequest, pb::ReleaseAnchorsResponse);
    rpc!(commit_summary, pb::CommitSummaryRequest, pb::CommitSummaryResponse);
    rpc!(get_summaries, pb::GetSummariesRequest, pb::GetSummariesResponse);
    rpc!(list_sessions, pb::ListSessionsRequest, pb::ListSessionsResponse);
    rpc!(put_facts, pb::PutFactsRequest, pb::PutFactsResponse);
    rpc!(get_facts, pb::GetFactsRequest, pb::GetFactsResponse);
    rpc!(compress_session, pb::CompressSessionRequest, pb::CompressSessionResponse);
    rpc!(get_session, pb::GetSessionRequest, pb::GetSessionResponse);
    rpc!(end_session, pb::EndSessionRequest, pb::EndSessionResponse);

    pub async fn append(&self, session: &str, turns: Vec<pb::NewTurn>) -> Answer<pb::AppendTurnsResponse> {
        self.append_turns(pb::AppendTurnsRequest { session_id: session.into(), turns, ..Default::default() }).await
    }

    /// Appends one at a time.
    pub async fn say(&self, session: &str, turns: Vec<pb::NewTurn>) {
        for turn in turns {
            self.append(session, vec![turn]).await.expect("appended");
        }
    }

    pub async fn window(&self, session: &str, max_turns: i32, max_tokens: i32) -> Answer<pb::GetWindowResponse> {
        self.get_window(pb::GetWindowRequest { session_id: session.into(), max_turns, max_tokens, ..Default::default() }).await
    }

    pub async fn turns(&self, session: &str, from_seq: u32, to_seq: u32) -> Answer<Vec<pb::Turn>> {
        let body = pb::GetTurnsRequest { session_id: session.into(), from_seq, to_seq, ..Default::default() };
        self.get_turns(body).await.map(|a| a.turns)
    }

    pub async fn search(&self, query: &str, k: i32) -> Answer<pb::SearchTurnsResponse> {
        self.search_turns(pb::SearchTurnsRequest { query: query.into(), k, ..Default::default() }).await
    }

    pub async fn compress(&self, session: &str, keep_turns: i32) -> Answer<pb::CompressSessionResponse> {
        self.compress_session(pb::CompressSessionRequest { session_id: session.into(), keep_turns, ..Default::default() }).await
    }

    /// Waits until summaries cover the turns to `seq`: on a busy machine a due compression goes on behind the append's answer.
    pub async fn compressed_to(&self, session: &str, seq: u32) {
        let covered = async || self.session(session).await.expect("session").summaries.last().map_or(0, |s| s.to_seq);
        eventually(SOON, async || covered().await >= seq).await;
    }

    pub async fn anchor(&self, session: &str, seqs: &[u32]) -> Answer<Vec<u32>> {
        let body = pb::AnchorTurnsRequest { session_id: session.into(), seqs: seqs.to_vec(), ..Default::default() };
        Ok(self.anchor_turns(body).await?.anchors.iter().map(|a| a.seq).collect())
    }

    pub async fn release(&self, session: &str, seqs: &[u32]) -> Answer<pb::ReleaseAnchorsResponse> {
        let body = pb::ReleaseAnchorsRequest { session_id: session.into(), seqs: seqs.to_vec(), ..Default::default() };
        self.release_anchors(body).await
    }

    /// Commits sentences with the turns each names.
    pub async fn summarise(
        &self,
        session: &str,
        range: std::ops::RangeInclusive<u32>,
        sentences: &[(&str, &[u32])],
    ) -> Answer<pb::CommitSummaryResponse> {
        let sentence = |(text, seqs): &(&str, &[u32])| pb::SummarySentence { text: (*text).into(), seqs: seqs.to_vec() };
        let body = pb::CommitSummaryRequest {
            session_id: session.into(),
            from_seq: *range.start(),
            to_seq: *range.end(),
            sentences: sentences.iter().map(sentence).collect(),
            ..Default::default()
        };
        self.commit_summary(body).await
    }

    /// Sends bytes in messages of a size, all but data in the first one.
    pub async fn put_artifact(&self, header: pb::PutArtifactRequest, data: &[u8], size: usize) -> Answer<pb::Artifact> {
        let header = pb::PutArtifactRequest { user_id: self.user.clone(), agent_id: self.agent.clone(), ..header };
        let messages: Vec<_> = std::iter::once(header)
            .chain(data.chunks(size).map(|data| pb::PutArtifactRequest { data: data.to_vec(), ..Default::default() }))
            .collect();
        let mut request = tonic::Request::new(futures::stream::iter(messages));
        request.extensions_mut().insert(self.identity.clone());
        let answer = SessionMemoryServiceClient::new(self.channel.clone()).put_artifact(request).await;
        answer.map(|a| a.into_inner().artifact.expect("an artifact")).map_err(|s| strata_api::error::fault(&s))
    }

    pub async fn get_artifact(&self, session: &str, trace_id: &str) -> Answer<(pb::Artifact, Vec<u8>)> {
        let body = pb::GetArtifactRequest {
            user_id: self.user.clone(),
            agent_id: self.agent.clone(),
            session_id: session.into(),
            trace_id: trace_id.into(),
        };
        let mut request = tonic::Request::new(body);
        request.extensions_mut().insert(self.identity.clone());
        let refused = |s: tonic::Status| strata_api::error::fault(&s);
        let answer = SessionMemoryServiceClient::new(self.channel.clone()).get_artifact(request).await;
        let mut parts = answer.map_err(refused)?.into_inner();
        let (mut artifact, mut bytes) = (None, Vec::new());
        while let Some(part) = parts.message().await.map_err(refused)? {
            assert_eq!(part.artifact.is_some(), artifact.is_none(), "in the first message alone");
            artifact = artifact.or(part.artifact);
            bytes.extend(part.data);
        }
        Ok((artifact.expect("a first message"), bytes))
    }

    /// The same caller with the right to write session facts at an epoch.
    pub fn at(&self, epoch: u64) -> Self {
        Self { identity: self.identity.clone().writing(Level::Session, epoch), ..self.clone() }
    }

    pub async fn session(&self, session: &str) -> Answer<pb::GetSessionResponse> {
        self.get_session(pb::GetSessionRequest { session_id: session.into(), ..Default::default() }).await
    }

    pub async fn end(&self, session: &str) -> Answer<pb::EndSessionResponse> {
        self.end_session(pb::EndSessionRequest { session_id: session.into(), ..Default::default() }).await
    }
}
