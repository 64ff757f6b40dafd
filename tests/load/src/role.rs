//! The long-term role alone, in this process, reached as the router reaches it: generated clients over the local channel,
//! with the claims that a verified call has. For rows that measure the role and not the way to it.

use crate::agent::{remember, statement};
use anyhow::{Context as _, Result, ensure};
use arc_swap::ArcSwap;
use futures::stream::{self, TryStreamExt as _};
use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};
use strata_api::{
    admin::v1::admin_service_client::AdminServiceClient,
    convert::longterm::wire_attestation,
    longterm::v1::{Outcome, RecallRequest, long_term_memory_service_client::LongTermMemoryServiceClient},
};
use strata_core::{
    Timestamp, UserId,
    id::Level,
    limits::MESSAGE_BYTES,
    policy::{
        gate::{Attestation, QuoteState},
        registry::Registry,
        settings::PolicySettings,
    },
};
use strata_longterm::{IndexConfig, LongtermDeps, LongtermRole, MIGRATIONS};
use strata_runtime::{
    Claims, Ports, RpcChannel, channel,
    ports::{Stopwatch, pause},
    signing::WriteGrant,
    sqlite::{Database, Location, SqliteError, SqliteSettings, Synchronous},
};
use strata_testkit::ManualClock;
use strata_text::embed::{Caller, Embedder};
use tempfile::TempDir;
use tower::util::MapRequest;

/// Dimension of the supplied vectors: that of the built-in model.
const DIMENSIONS: usize = 512;
/// Writes in flight while records are stored.
const SEEDERS: usize = 64;
/// Longest time until the index has everything.
const INDEXED: Duration = Duration::from_secs(60);

/// A running role on a file of its own.
pub struct Longterm {
    role: LongtermRole,
    database: Database,
    ports: Ports,
    folder: TempDir,
}

impl Longterm {
    /// On the disk that is measured, with the exact index and the vectors of its callers.
    pub async fn start(scratch: &Path) -> Result<Self> {
        Self::with_capacity(scratch, PolicySettings::default().forgetting.capacity).await
    }

    /// The same for users that may have so many records in force: maintenance archives the rest (rule F7).
    pub async fn with_capacity(scratch: &Path, capacity: usize) -> Result<Self> {
        let mut policy = PolicySettings::default();
        // It runs when a row says so.
        policy.forgetting.schedule.enabled = false;
        policy.forgetting.capacity = capacity;
        let embedder: Arc<dyn Embedder> = Arc::new(Caller::new("bench", DIMENSIONS));
        Self::build(scratch, Ports::system(), policy, Some(embedder), SqliteSettings::default()).await
    }

    /// With a clock that is moved: a power cut is not what is measured then.
    pub async fn moved(
        scratch: &Path,
        clock: ManualClock,
        policy: PolicySettings,
        embedder: Option<Arc<dyn Embedder>>,
    ) -> Result<Self> {
        std::fs::create_dir_all(scratch)?;
        let settings = SqliteSettings { synchronous: Synchronous::Normal, ..SqliteSettings::default() };
        let ports = Ports { clock: clock.port(), ..Ports::system() };
        Self::build(scratch, ports, policy, embedder, settings).await
    }

    async fn build(
        scratch: &Path,
        ports: Ports,
        policy: PolicySettings,
        embedder: Option<Arc<dyn Embedder>>,
        sqlite: SqliteSettings,
    ) -> Result<Self> {
        let folder = tempfile::tempdir_in(scratch)?;
        let location = Location::File(folder.path().join("longterm.sqlite3"));
        let database = Database::open(&location, MIGRATIONS, sqlite)?;
        let role = LongtermRole::build(LongtermDeps {
            ports: ports.clone(),
            settings: Arc::new(ArcSwap::from_pointee(policy)),
            database: database.clone(),
            index: IndexConfig::Exact,
            backups: None,
            backup_days: None,
            erasure_log: None,
            erasure_copy: None,
            embedder,
            reranker: None,
            summariser: None,
            registry: Arc::new(Registry::builtin()),
            quotas: Arc::default(),
            mode: Arc::new(|_| strata_core::policy::modes::Mode::Normal),
            secret: b"a secret of the bench and of nobody".to_vec(),
        })
        .await?;
        Ok(Self { role, database, ports, folder })
    }

    /// A client for one user, at user level.
    pub fn client(&self, user: &str) -> Result<LongTermMemoryServiceClient<RpcChannel>> {
        Ok(LongTermMemoryServiceClient::new(self.channel(Some(user))?).max_decoding_message_size(MESSAGE_BYTES))
    }

    /// A client for what is about no user.
    pub fn admin(&self) -> Result<AdminServiceClient<RpcChannel>> {
        Ok(AdminServiceClient::new(self.channel(None)?).max_decoding_message_size(MESSAGE_BYTES))
    }

    fn channel(&self, user: Option<&str>) -> Result<RpcChannel> {
        let now = self.ports.clock.now();
        let attestation =
            Attestation { quote: QuoteState::Verified, turn_time: Some(now), user_turn: true, explicit_order: true };
        let claims = Claims {
            caller: crate::bench::local::principal()?,
            user: user.map(UserId::new).transpose()?,
            method: String::new(),
            body_hash: [0; 32],
            nonce: [0; 16],
            issued_at: now,
            write: Some(WriteGrant { level: Level::User, epoch: 1 }),
            erase_epoch: 0,
            attestation: wire_attestation(&attestation),
        };
        let with_claims = move |mut request: http::Request<tonic::body::Body>| {
            request.extensions_mut().insert(claims.clone());
            request
        };
        Ok(channel::local(MapRequest::new(self.role.routes(), with_claims)))
    }

    /// Waits until the index knows everything.
    pub async fn settled(&self) -> Result<()> {
        let watch = Stopwatch::start();
        while self.role.status().await.context("the role's state")?.relay.pending > 0 {
            ensure!(watch.elapsed() < INDEXED, "the index is behind after {INDEXED:?}");
            pause(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// One number out of the database, with an instant as its parameter.
    pub async fn number(&self, sql: &'static str, at: Timestamp) -> Result<i64> {
        let read = move |db: &rusqlite::Connection| Ok::<_, SqliteError>(db.query_row(sql, [at.micros()], |row| row.get(0))?);
        Ok(self.database.read(read).await?)
    }

    /// Records by status.
    pub async fn statuses(&self) -> Result<BTreeMap<String, i64>> {
        let read = |db: &rusqlite::Connection| {
            let mut statement = db.prepare("SELECT status, count(*) FROM records GROUP BY status").map_err(SqliteError::from)?;
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).map_err(SqliteError::from)?;
            rows.collect::<rusqlite::Result<BTreeMap<String, i64>>>().map_err(SqliteError::from)
        };
        Ok(self.database.read(read).await?)
    }

    /// Bytes of the database's file.
    pub fn bytes(&self) -> Result<u64> {
        Ok(std::fs::metadata(self.folder.path().join("longterm.sqlite3"))?.len())
    }

    /// Stores `records` statements of `user` with a vector each, and waits until the index has them.
    pub async fn seed(&self, user: &str, records: u64) -> Result<LongTermMemoryServiceClient<RpcChannel>> {
        let client = self.client(user)?;
        stream::iter((0..records).map(Ok))
            .try_for_each_concurrent(SEEDERS, |number| {
                let mut client = client.clone();
                async move {
                    let mut request = remember(user, number);
                    if let Some(statement) = &mut request.statement {
                        statement.vector = vector(&statement.content);
                    }
                    // A full outbox is no failure of a fixture: wait as an agent would.
                    let result = loop {
                        match client.remember(request.clone()).await {
                            Ok(answer) => break answer.into_inner().result.unwrap_or_default(),
                            Err(status) if status.code() == tonic::Code::ResourceExhausted => {
                                pause(Duration::from_millis(50)).await;
                            }
                            Err(status) => return Err(status.into()),
                        }
                    };
                    ensure!(result.outcome() == Outcome::Active, "statement {number} became {}", result.outcome().as_str_name());
                    Ok(())
                }
            })
            .await?;
        self.settled().await?;
        Ok(client)
    }

    /// Ends it.
    pub async fn stop(self) {
        self.role.shutdown(Duration::from_secs(5)).await;
        self.database.close().await;
    }
}

/// A question about statement 0 with a vector of its own: near that of the statement, as a paraphrase's is.
pub fn question(user: &str, text: &str) -> RecallRequest {
    let vector = vector(&statement(0)).iter().zip(vector(text)).map(|(near, own)| near + own / 2.0).collect();
    RecallRequest { user_id: user.into(), query: text.into(), vector, ..RecallRequest::default() }
}

/// A vector in place of an embedder's: components in -1..1 that follow from the text alone.
fn vector(text: &str) -> Vec<f32> {
    // FNV-1a, then one step of a linear congruence a component.
    let seed = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let next = |state: &u64| Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
    let component = |state: u64| (state >> 40) as f32 / (1_u64 << 23) as f32 - 1.0;
    std::iter::successors(Some(seed), next).skip(1).map(component).take(DIMENSIONS).collect()
}
