//! The configuration of a process: defaults, then the file, then the environment, then flags; validated as a whole, the
//! bad field named. `policy`, `modes` and `quotas` are reloaded while the process runs; everything else needs a restart.

use crate::cli::{LogFormat, ServeArgs};
use anyhow::Result;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, net::SocketAddr, path::PathBuf, time::Duration};
use strata_core::{
    Fault, TenantId, UserId,
    policy::{
        authz::{Layer, Principal, Role},
        quota::QuotaSettings,
        recall::Rerank,
        settings::PolicySettings,
    },
};
use strata_longterm::QdrantSettings;
use strata_runtime::{
    config::{ENV_PREFIX, load},
    jwt::JwtSettings,
    layer::auth::ApiKey,
    signing::KeyRing,
    telemetry,
    tls::TlsFiles,
};

/// Shortest `secret`: 128 bits in hexadecimal digits.
const SECRET_BYTES: usize = 32;
/// Most replicas of working memory: a router asks each for its health twice a second.
const WORKING_REPLICAS: usize = 64;

/// Everything that can be set.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Roles of this process; default all.
    pub roles: Vec<Layer>,
    /// Folder of the embedded stores; must not be shared by two processes.
    pub data_dir: PathBuf,
    /// Addresses and bounds.
    pub server: ServerConfig,
    /// Where a router finds layers that run in other processes.
    pub peers: Peers,
    /// Working memory.
    pub working: WorkingConfig,
    /// Keys of the signed header between roles: `id:64 hexadecimal digits`, one a line, the last signs. Needed as soon
    /// as a role runs in another process.
    #[serde(serialize_with = "hidden")]
    pub signing_keys: Option<SecretString>,
    /// File with the signing keys instead (a mounted secret).
    pub signing_keys_file: Option<PathBuf>,
    /// Secret of the deployment, from which page tokens, consent challenges, export signatures and digests of what was erased
    /// are made. It must outlive every rotation of `signing_keys`. Absent: the signing key, as long as there is one only; a process
    /// alone keeps its own in `data_dir`.
    #[serde(serialize_with = "hidden")]
    pub secret: Option<SecretString>,
    /// Callers of the public address.
    pub auth: AuthConfig,
    /// What each tenant may ask for and keep; default: anything. Reloaded.
    pub quotas: QuotaSettings,
    /// Redis for session memory, ledger and checkpoints; without a URL they are embedded.
    pub redis: RedisConfig,
    /// Qdrant for the vectors; without a URL the index is embedded.
    pub qdrant: QdrantConfig,
    /// What makes vectors.
    pub embedder: EmbedderConfig,
    /// What takes a second look at recalls when `policy.recall.rerank` is `remote`.
    pub reranker: RerankerConfig,
    /// What proposes memories out of observed turns; without it the rules of Observe do.
    pub extractor: ExtractorConfig,
    /// What makes better summaries of sessions than the rules.
    pub summariser: SummariserConfig,
    /// SQLite.
    pub storage: StorageConfig,
    /// Logs, traces, metrics.
    pub telemetry: TelemetryConfig,
    /// Key registry that extends the built-in one.
    pub registry_file: Option<PathBuf>,
    /// Modes of the layers: NORMAL, RECALL_OFF, WRITE_OFF, BYPASS (rule D1). Reloaded.
    pub modes: strata_router::modes::Modes,
    /// Numbers of the rules. Reloaded.
    pub policy: PolicySettings,
}

/// What of it is reloaded.
#[derive(Clone, Debug)]
pub struct Reloadable {
    /// Numbers of the rules.
    pub policy: PolicySettings,
    /// Modes of the layers.
    pub modes: strata_router::modes::Modes,
    /// What each tenant may ask for and keep.
    pub quotas: QuotaSettings,
}

/// Addresses and bounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// Public address of the router.
    pub listen: SocketAddr,
    /// Internal address of the layers; served when this process runs layers without a router, or when it is set.
    pub internal_listen: Option<SocketAddr>,
    /// Seconds from SIGTERM to the end of the process, at most.
    pub grace_seconds: u64,
    /// Calls in flight before new ones are refused with OVERLOADED.
    pub max_in_flight: usize,
    /// TLS of the public address. With `authorities_file` callers need a certificate of theirs (mutual TLS). The files are
    /// followed.
    pub tls: Option<TlsConfig>,
    /// Mutual TLS between roles: all three files, for the internal address and for the calls to it. The files are followed.
    pub internal_tls: Option<TlsConfig>,
}

/// PEM files.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsConfig {
    /// Certificate chain, the own one first.
    pub certificate_file: Option<PathBuf>,
    /// Its private key.
    pub key_file: Option<PathBuf>,
    /// Authorities that the other side's certificate must come from.
    pub authorities_file: Option<PathBuf>,
}

impl TlsConfig {
    /// As the runtime takes them.
    #[must_use]
    pub fn files(&self) -> TlsFiles {
        let Self { certificate_file, key_file, authorities_file } = self.clone();
        TlsFiles { certificate: certificate_file, key: key_file, authorities: authorities_file }
    }
}

/// Addresses of layers in other processes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Peers {
    /// Such as `http://strata-working:7421`; of several replicas all, in whatever order, and the same to every router. A list, or
    /// one text with commas between.
    #[serde(deserialize_with = "one_or_more")]
    pub working: Vec<String>,
    /// Session memory.
    pub session: Option<String>,
    /// Long-term memory.
    pub longterm: Option<String>,
}

impl Peers {
    /// Of each layer.
    fn all(&self) -> [(Layer, &[String]); 3] {
        [
            (Layer::Working, self.working.as_slice()),
            (Layer::Session, self.session.as_slice()),
            (Layer::Longterm, self.longterm.as_slice()),
        ]
    }
}

fn one_or_more<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMore {
        One(String),
        More(Vec<String>),
    }
    Ok(match OneOrMore::deserialize(from)? {
        OneOrMore::One(text) => text.split(',').map(str::trim).filter(|url| !url.is_empty()).map(str::to_owned).collect(),
        OneOrMore::More(urls) => urls,
    })
}

/// Working memory.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkingConfig {
    /// Whether other processes serve working memory from the same Redis. Boards then move between them, and each change of hands,
    /// start and end of a task waits for Redis. All of them must agree.
    pub shared: bool,
}

/// Callers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuthConfig {
    /// Tenant of the one local principal that serves loopback callers while there are no keys.
    pub local_tenant: String,
    /// API keys, hashed: `strata config new-key` makes them. Operators make further ones while the service runs
    /// (`strata ctl keys`).
    pub api_keys: Vec<ApiKeyConfig>,
    /// Tokens (JWT) of an issuer.
    pub jwt: Option<JwtSettings>,
}

/// One API key.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiKeyConfig {
    /// Name for audit and history.
    pub id: String,
    /// 64 hexadecimal digits.
    pub hash: String,
    /// Tenant.
    pub tenant: String,
    /// User; without it the key may name any user of its tenant.
    #[serde(default)]
    pub user: Option<String>,
    /// Roles; default all.
    #[serde(default = "all_roles")]
    pub roles: BTreeSet<Role>,
}

/// Redis.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RedisConfig {
    /// Such as `redis://127.0.0.1:6379/0`, `redis+sentinel://host:26379,host:26379/service/0`, `redis+cluster://host:6379,host:6379`;
    /// `rediss` for TLS; may hold `user:password@`.
    #[serde(serialize_with = "hidden")]
    pub url: Option<SecretString>,
    /// PEM file of the roots that may sign the server's certificate; absent: the system's.
    pub ca_file: Option<PathBuf>,
    /// PEM file of our certificate, where the server asks for one.
    pub cert_file: Option<PathBuf>,
    /// PEM file of its key.
    pub key_file: Option<PathBuf>,
    /// Milliseconds to wait for an answer.
    pub response_ms: u64,
    /// Milliseconds to wait for a connection.
    pub connect_ms: u64,
}

/// Qdrant.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QdrantConfig {
    /// gRPC address, such as `http://127.0.0.1:6334`; `https://` for TLS, verified by the system's roots or by those that
    /// `SSL_CERT_FILE` names.
    pub url: Option<String>,
    /// API key.
    #[serde(serialize_with = "hidden")]
    pub api_key: Option<SecretString>,
    /// First part of every collection's name: deployments that share a server need different ones.
    pub prefix: String,
    /// Milliseconds to wait for an answer.
    pub response_ms: u64,
    /// Milliseconds to wait for a connection.
    pub connect_ms: u64,
    /// Shards of a new collection; absent: as the server has it.
    pub shards: Option<u32>,
    /// Replicas of each shard of a new collection; a write is acknowledged by a majority of them.
    pub replicas: u32,
    /// Days after an erasure within which the collection that held it is replaced by a new one and dropped, with its files;
    /// 0: only when `strata reindex` is asked for.
    pub erase_days: u32,
}

/// What makes vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EmbedderKind {
    /// The built-in multilingual model, when its files are there (`make model`); else keyword search only.
    Builtin,
    /// Any server that speaks the OpenAI embeddings API.
    Openai,
    /// The callers': vectors come with statements and queries; `model` and `dimensions` name their space.
    Caller,
    /// None: keyword search only.
    None,
}

/// Embedder.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EmbedderConfig {
    /// Which.
    pub kind: EmbedderKind,
    /// Folder of the built-in model's files.
    pub model_dir: PathBuf,
    /// Base URL of the OpenAI-compatible server.
    pub url: Option<String>,
    /// Key of that server.
    #[serde(serialize_with = "hidden")]
    pub api_key: Option<SecretString>,
    /// Model of that server, or of the callers.
    pub model: Option<String>,
    /// Dimensions of that model.
    pub dimensions: Option<usize>,
}

/// Extractor of memory commands: any server of `POST {url}/chat/completions`, such as OpenAI, vLLM or Ollama.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExtractorConfig {
    /// Base URL, without `/chat/completions`.
    pub url: Option<String>,
    /// Key of that server.
    #[serde(serialize_with = "hidden")]
    pub api_key: Option<SecretString>,
    /// Model of that server; required with a URL.
    pub model: String,
    /// Milliseconds an observation waits for it: 100 to 30,000. Then the rules decide.
    pub timeout_ms: u64,
}

impl Default for ExtractorConfig {
    fn default() -> Self {
        Self { url: None, api_key: None, model: String::new(), timeout_ms: 30_000 }
    }
}

/// Summariser of sessions and of long-term memory: any server of `POST {url}/chat/completions`, such as OpenAI, vLLM or Ollama. It
/// is sent the turns of the ranges it summarises, but for instructions and small talk, and the records of the topics that
/// maintenance consolidates.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SummariserConfig {
    /// Base URL, without `/chat/completions`.
    pub url: Option<String>,
    /// Key of that server.
    #[serde(serialize_with = "hidden")]
    pub api_key: Option<SecretString>,
    /// Model of that server; required with a URL.
    pub model: String,
    /// Milliseconds of one call: 100 to 120,000. Nobody waits for it but a CompressSession that requires a model, and a run of
    /// maintenance.
    pub timeout_ms: u64,
    /// Tokens of the turns or records of one call: 1,000 to 1,000,000; what is longer is left to the rules.
    pub max_tokens: u32,
    /// Whether it is asked for the summaries of long-term memory too, in the process that runs it; false: no record is sent.
    pub consolidation: bool,
}

impl Default for SummariserConfig {
    fn default() -> Self {
        Self { url: None, api_key: None, model: String::new(), timeout_ms: 30_000, max_tokens: 16_000, consolidation: true }
    }
}

/// Remote reranker: any server of `POST {url}/rerank`, such as TEI, vLLM, Jina or Cohere.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RerankerConfig {
    /// Base URL, without `/rerank`.
    pub url: Option<String>,
    /// Key of that server.
    #[serde(serialize_with = "hidden")]
    pub api_key: Option<SecretString>,
    /// Model of that server; absent for a server of one model (TEI).
    pub model: Option<String>,
    /// Milliseconds a recall waits for it: 10 to 10,000. Then the order stays.
    pub timeout_ms: u64,
}

impl Default for RerankerConfig {
    fn default() -> Self {
        Self { url: None, api_key: None, model: None, timeout_ms: 1_000 }
    }
}

/// SQLite.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StorageConfig {
    /// `full`: an acknowledged write survives a power cut; `normal`: it survives a crash of the process.
    pub synchronous: Synchronous,
    /// Read connections.
    pub readers: usize,
    /// Megabytes each file may grow to, beside its log; then writes are refused with STORE_FULL and forgetting makes room.
    /// Absent: as far as the disk goes.
    pub max_mb: Option<u64>,
    /// Folder of the backups of long-term memory (`strata ctl backup`); absent: none are made.
    pub backup_dir: Option<PathBuf>,
    /// Days after which you delete backups: receipts of erasures say then by when the last copy is gone. Absent: they say that
    /// nobody said.
    pub backup_days: Option<u32>,
    /// Folder of the erasure log, which keeps a restored backup from bringing erased memories back; best a volume of its own.
    /// Absent: `erasures` in data_dir.
    pub erasure_log_dir: Option<PathBuf>,
}

/// Durability of SQLite commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Synchronous {
    /// Synced at every commit.
    Full,
    /// Synced at checkpoints.
    Normal,
}

/// Logs, traces, metrics.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryConfig {
    /// Filter in the syntax of `RUST_LOG`.
    pub filter: String,
    /// `pretty` or `json`.
    pub format: String,
    /// OTLP gRPC endpoint; absent: no traces are kept and no metrics sent.
    pub otlp_endpoint: Option<String>,
    /// Address of the Prometheus endpoint, `GET /metrics`; absent: there is none. It asks for no credential.
    pub prometheus_listen: Option<SocketAddr>,
    /// Share of traces recorded, 0 to 1.
    pub sample_ratio: f64,
    /// Id of this replica.
    pub instance: Option<String>,
}

fn all_roles() -> BTreeSet<Role> {
    Role::ALL.iter().copied().collect()
}

#[allow(clippy::ref_option)] // serde's calling convention
fn hidden<S: serde::Serializer>(secret: &Option<SecretString>, to: S) -> Result<S::Ok, S::Error> {
    match secret {
        Some(_) => to.serialize_str("(set, not shown)"),
        None => to.serialize_none(),
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            roles: Layer::ALL.to_vec(),
            data_dir: "strata-data".into(),
            server: ServerConfig::default(),
            peers: Peers::default(),
            working: WorkingConfig::default(),
            signing_keys: None,
            signing_keys_file: None,
            secret: None,
            auth: AuthConfig::default(),
            quotas: QuotaSettings::default(),
            redis: RedisConfig::default(),
            qdrant: QdrantConfig::default(),
            embedder: EmbedderConfig::default(),
            reranker: RerankerConfig::default(),
            extractor: ExtractorConfig::default(),
            summariser: SummariserConfig::default(),
            storage: StorageConfig::default(),
            telemetry: TelemetryConfig::default(),
            registry_file: None,
            modes: strata_router::modes::Modes::default(),
            policy: PolicySettings::default(),
        }
    }
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7420)),
            internal_listen: None,
            grace_seconds: 20,
            // What waits behind more than this waits longer than it helps: at 200 writes a second it is over a second of work.
            max_in_flight: 256,
            tls: None,
            internal_tls: None,
        }
    }
}

impl Default for AuthConfig {
    fn default() -> Self {
        Self { local_tenant: "local".into(), api_keys: Vec::new(), jwt: None }
    }
}

impl Default for RedisConfig {
    fn default() -> Self {
        Self { url: None, ca_file: None, cert_file: None, key_file: None, response_ms: 500, connect_ms: 1_000 }
    }
}

impl Default for QdrantConfig {
    fn default() -> Self {
        let QdrantSettings { prefix, timeout, connect_timeout, replicas, erase_days, .. } = QdrantSettings::default();
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            url: None,
            api_key: None,
            prefix,
            response_ms: millis(timeout),
            connect_ms: millis(connect_timeout),
            shards: None,
            replicas,
            erase_days,
        }
    }
}

/// Longest that what was erased may stay in the files of an index server.
const MAX_ERASE_DAYS: u32 = 365;

impl QdrantConfig {
    /// For the index; none without an address.
    #[must_use]
    pub fn settings(&self) -> Option<QdrantSettings> {
        Some(QdrantSettings {
            url: self.url.clone()?,
            api_key: self.api_key.clone(),
            prefix: self.prefix.clone(),
            timeout: Duration::from_millis(self.response_ms),
            connect_timeout: Duration::from_millis(self.connect_ms),
            shards: self.shards,
            replicas: self.replicas,
            erase_days: self.erase_days,
            ..QdrantSettings::default()
        })
    }

    fn validate(&self) -> Result<(), Fault> {
        let named = !self.prefix.is_empty() && self.prefix.len() <= 64;
        if !named || !self.prefix.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(Fault::field("qdrant.prefix", "must have 1 to 64 of a-z, A-Z, 0-9 and _"));
        }
        if self.response_ms == 0 || self.connect_ms == 0 {
            return Err(Fault::field("qdrant.response_ms", "response_ms and connect_ms must be at least 1"));
        }
        if self.replicas == 0 || self.shards == Some(0) {
            return Err(Fault::field("qdrant.replicas", "replicas and shards must be at least 1"));
        }
        if self.erase_days > MAX_ERASE_DAYS {
            return Err(Fault::field("qdrant.erase_days", "must be at most 365; 0 leaves it to `strata reindex`"));
        }
        Ok(())
    }
}

impl Default for EmbedderConfig {
    fn default() -> Self {
        Self {
            kind: EmbedderKind::Builtin,
            model_dir: "models/use-multilingual-v3".into(),
            url: None,
            api_key: None,
            model: None,
            dimensions: None,
        }
    }
}

impl Default for StorageConfig {
    fn default() -> Self {
        Self {
            synchronous: Synchronous::Full,
            readers: 4,
            max_mb: None,
            backup_dir: None,
            backup_days: None,
            erasure_log_dir: None,
        }
    }
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            filter: "info".into(),
            format: "pretty".into(),
            otlp_endpoint: None,
            prometheus_listen: None,
            sample_ratio: 1.0,
            instance: None,
        }
    }
}

impl Config {
    /// Loads: defaults, file, environment, flags; then validates.
    ///
    /// # Errors
    /// The first problem, with its field and where it came from.
    pub fn load(args: &ServeArgs) -> Result<Self> {
        let config: Self = load(args.source.config.as_deref(), ENV_PREFIX, &overrides(args)).map_err(anyhow::Error::new)?;
        config.validate().map_err(|fault| anyhow::anyhow!("{}", fault.message))?;
        Ok(config)
    }

    /// What a running process takes over from a changed file. The rest of the file must still be well-formed.
    ///
    /// # Errors
    /// The first problem, with its field and where it came from.
    pub fn load_reloadable(file: &std::path::Path) -> Result<Reloadable> {
        let config: Self = load(Some(file), ENV_PREFIX, &[]).map_err(anyhow::Error::new)?;
        config.policy.validate().and_then(|()| config.quotas.validate()).map_err(|fault| anyhow::anyhow!("{}", fault.message))?;
        Ok(Reloadable { policy: config.policy, modes: config.modes, quotas: config.quotas })
    }

    /// Whether this process runs a role.
    #[must_use]
    pub fn runs(&self, role: Layer) -> bool {
        self.roles.contains(&role)
    }

    /// Folder of the erasure log.
    #[must_use]
    pub fn erasure_log(&self) -> PathBuf {
        self.storage.erasure_log_dir.clone().unwrap_or_else(|| self.data_dir.join("erasures"))
    }

    /// Longest time from SIGTERM to the end.
    #[must_use]
    pub const fn grace(&self) -> Duration {
        Duration::from_secs(self.server.grace_seconds)
    }

    fn validate(&self) -> Result<(), Fault> {
        if self.roles.is_empty() {
            return Err(Fault::field("roles", "names no role; use router, working, session, longterm"));
        }
        if !(1..=600).contains(&self.server.grace_seconds) {
            return Err(Fault::field("server.grace_seconds", "must lie between 1 and 600"));
        }
        if self.server.max_in_flight == 0 {
            return Err(Fault::field("server.max_in_flight", "must be at least 1"));
        }
        for (field, tls) in [("server.tls", &self.server.tls), ("server.internal_tls", &self.server.internal_tls)] {
            let Some(tls) = tls else { continue };
            let needed = [("certificate_file", &tls.certificate_file), ("key_file", &tls.key_file)];
            let mutual = [("authorities_file", &tls.authorities_file)];
            let needed = needed.iter().chain(mutual.iter().filter(|_| field == "server.internal_tls"));
            if let Some((name, _)) = needed.into_iter().find(|(_, path)| path.is_none()) {
                return Err(Fault::field(format!("{field}.{name}"), "is required"));
            }
        }
        for (role, peer) in self.peers.all() {
            if self.server.internal_tls.is_some() && peer.iter().any(|url| !url.starts_with("https://")) {
                return Err(Fault::field(format!("peers.{}", role.name()), "must be https://: server.internal_tls is set"));
            }
        }
        let mut replicas: Vec<&String> = self.peers.working.iter().collect();
        replicas.sort_unstable();
        replicas.dedup();
        if replicas.len() != self.peers.working.len() {
            return Err(Fault::field("peers.working", "names a replica twice"));
        }
        if replicas.len() > WORKING_REPLICAS {
            return Err(Fault::field("peers.working", format!("may name at most {WORKING_REPLICAS} replicas")));
        }
        if self.working.shared && self.redis.url.is_none() {
            return Err(Fault::field("working.shared", "needs redis.url: without Redis one process alone serves working memory"));
        }
        if self.storage.readers == 0 || self.storage.readers > 64 {
            return Err(Fault::field("storage.readers", "must lie between 1 and 64"));
        }
        if self.storage.max_mb == Some(0) {
            return Err(Fault::field("storage.max_mb", "must be at least 1"));
        }
        if self.secret.as_ref().is_some_and(|secret| secret.expose_secret().len() < SECRET_BYTES) {
            return Err(Fault::field("secret", format!("must have at least {SECRET_BYTES} characters")));
        }
        self.qdrant.validate()?;
        if !matches!(self.telemetry.format.as_str(), "pretty" | "json") {
            return Err(Fault::field("telemetry.format", "must be pretty or json"));
        }
        if self.signing_keys.is_some() && self.signing_keys_file.is_some() {
            return Err(Fault::field("signing_keys_file", "set either signing_keys or signing_keys_file"));
        }
        let alone = Layer::ALL.iter().all(|role| self.runs(*role));
        let signed = self.signing_keys.is_some() || self.signing_keys_file.is_some();
        if (!alone || self.server.internal_listen.is_some()) && !signed {
            return Err(Fault::field(
                "signing_keys",
                "is required when roles run in several processes: layers answer only calls that the router signed; \
                 write id:64 hexadecimal digits",
            ));
        }
        if self.runs(Layer::Router) {
            for (role, peer) in self.peers.all() {
                if !self.runs(role) && peer.is_empty() {
                    return Err(Fault::field(
                        format!("peers.{}", role.name()),
                        "is required: the router runs here and this layer does not",
                    ));
                }
            }
        } else if self.server.internal_listen.is_none() {
            return Err(Fault::field("server.internal_listen", "is required: layers run here without a router"));
        }
        if self.embedder.kind == EmbedderKind::Openai && (self.embedder.url.is_none() || self.embedder.model.is_none()) {
            return Err(Fault::field("embedder.url", "url and model are required for the kind openai"));
        }
        if self.embedder.kind == EmbedderKind::Caller && (self.embedder.model.is_none() || self.embedder.dimensions.is_none()) {
            return Err(Fault::field("embedder.model", "model and dimensions are required for the kind caller"));
        }
        if self.runs(Layer::Longterm) && self.policy.recall.rerank == Rerank::Remote && self.reranker.url.is_none() {
            return Err(Fault::field("reranker.url", "is required: policy.recall.rerank is \"remote\""));
        }
        if !(10..=10_000).contains(&self.reranker.timeout_ms) {
            return Err(Fault::field("reranker.timeout_ms", "must lie between 10 and 10000"));
        }
        self.quotas.validate()?;
        if let Some(jwt) = &self.auth.jwt {
            jwt.validate()?;
            if jwt.jwks_file.is_none() && jwt.jwks_url.is_none() {
                return Err(Fault::field(
                    "auth.jwt.jwks_file",
                    "is required, or jwks_url: tokens are judged by the issuer's keys",
                ));
            }
        }
        if self.extractor.url.is_some() && self.extractor.model.is_empty() {
            return Err(Fault::field("extractor.model", "is required with extractor.url"));
        }
        if !(100..=30_000).contains(&self.extractor.timeout_ms) {
            return Err(Fault::field("extractor.timeout_ms", "must lie between 100 and 30000"));
        }
        if self.summariser.url.is_some() && self.summariser.model.is_empty() {
            return Err(Fault::field("summariser.model", "is required with summariser.url"));
        }
        if !(100..=120_000).contains(&self.summariser.timeout_ms) {
            return Err(Fault::field("summariser.timeout_ms", "must lie between 100 and 120000"));
        }
        if !(1_000..=1_000_000).contains(&self.summariser.max_tokens) {
            return Err(Fault::field("summariser.max_tokens", "must lie between 1000 and 1000000"));
        }
        strata_text::observe::Intents::new(&self.policy.observe.rules)?;
        let keys = self.api_keys()?;
        if self.runs(Layer::Router) {
            strata_runtime::server::check_exposure(self.server.listen, !keys.is_empty() || self.auth.jwt.is_some())?;
        }
        self.policy.validate()
    }

    /// The API keys, checked.
    ///
    /// # Errors
    /// `INVALID_FIELD` naming the entry.
    pub fn api_keys(&self) -> Result<Vec<ApiKey>, Fault> {
        let mut keys = Vec::new();
        for (index, key) in self.auth.api_keys.iter().enumerate() {
            let field = format!("auth.api_keys[{index}]");
            let wrong = |fault: Fault| Fault::field(field.clone(), fault.message);
            let hash = blake3::Hash::from_hex(&key.hash)
                .map_err(|_| Fault::field(format!("{field}.hash"), "must have 64 hexadecimal digits"))?;
            strata_core::id::check_id("id", &key.id).map_err(wrong)?;
            let principal = Principal {
                id: format!("key:{}", key.id),
                tenant: TenantId::new(&key.tenant).map_err(wrong)?,
                user: key.user.as_ref().map(UserId::new).transpose().map_err(wrong)?,
                roles: key.roles.clone(),
            };
            keys.push(ApiKey { hash, principal });
        }
        Ok(keys)
    }

    /// Whoever calls a loopback server without credentials: every role, one tenant.
    ///
    /// # Errors
    /// `INVALID_FIELD` naming `auth.local_tenant`.
    pub fn local_principal(&self) -> Result<Principal, Fault> {
        let tenant = TenantId::new(&self.auth.local_tenant).map_err(|f| Fault::field("auth.local_tenant", f.message))?;
        Ok(Principal { id: "local".into(), tenant, user: None, roles: all_roles() })
    }

    /// Telemetry of this process.
    #[must_use]
    pub fn telemetry(&self) -> telemetry::TelemetryConfig {
        let role = if self.roles.len() == Layer::ALL.len() {
            "all".to_owned()
        } else {
            self.roles.iter().map(|r| r.name()).collect::<Vec<_>>().join("-")
        };
        telemetry::TelemetryConfig {
            role,
            instance: self.telemetry.instance.clone(),
            filter: self.telemetry.filter.clone(),
            format: if self.telemetry.format == "json" { telemetry::LogFormat::Json } else { telemetry::LogFormat::Pretty },
            otlp_endpoint: self.telemetry.otlp_endpoint.clone(),
            prometheus: self.telemetry.prometheus_listen.is_some(),
            sample_ratio: self.telemetry.sample_ratio,
            ..telemetry::TelemetryConfig::default()
        }
    }

    /// The signing keys' text, from the setting or the file; none when neither is set.
    ///
    /// # Errors
    /// `INVALID_FIELD` naming `signing_keys_file` when it cannot be read.
    pub fn signing_keys(&self) -> Result<Option<SecretString>, Fault> {
        match (&self.signing_keys, &self.signing_keys_file) {
            (Some(keys), _) => Ok(Some(keys.clone())),
            (None, Some(path)) => std::fs::read_to_string(path)
                .map(|text| Some(text.into()))
                .map_err(|error| Fault::field("signing_keys_file", format!("cannot be read: {}", error.kind()))),
            (None, None) => Ok(None),
        }
    }

    /// A secret shared by all processes of the deployment, from which other keys are derived: `secret`, or the only signing key.
    ///
    /// # Errors
    /// As [`Self::signing_keys`]; `INVALID_FIELD` naming `secret` when it is not set and there are several signing keys.
    pub fn shared_secret(&self) -> Result<Option<Vec<u8>>, Fault> {
        if let Some(secret) = &self.secret {
            return Ok(Some(secret.expose_secret().as_bytes().to_vec()));
        }
        let Some(text) = self.signing_keys()? else { return Ok(None) };
        let mut keys = KeyRing::entries(text.expose_secret()).map(|(_, entry)| entry);
        let only = keys.next().unwrap_or_default().as_bytes().to_vec();
        if keys.next().is_some() { Err(needs_secret()) } else { Ok(Some(only)) }
    }
}

/// What is said when signing keys rotate and nothing outlives them.
#[must_use]
pub fn needs_secret() -> Fault {
    Fault::field(
        "secret",
        "is required before the signing keys change: without it the one key is also the secret of the deployment, by which erased \
         statements are recognised. Set `secret` to that key as it stands (id:64 hexadecimal digits) on every process, restart \
         them, then rotate",
    )
}

fn overrides(args: &ServeArgs) -> Vec<(String, String)> {
    let mut out = Vec::new();
    let mut set = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            out.push((key.to_owned(), value));
        }
    };
    let quoted = |text: &str| format!("{text:?}");
    set(
        "roles",
        (!args.roles.is_empty()).then(|| format!("[{}]", args.roles.iter().map(|r| quoted(r)).collect::<Vec<_>>().join(","))),
    );
    set("server.listen", args.listen.map(|a| quoted(&a.to_string())));
    set("server.internal_listen", args.internal_listen.map(|a| quoted(&a.to_string())));
    set("data_dir", args.data_dir.as_ref().map(|d| quoted(&d.to_string_lossy())));
    set("redis.url", args.redis_url.as_deref().map(quoted));
    set("qdrant.url", args.qdrant_url.as_deref().map(quoted));
    set(
        "telemetry.format",
        args.log_format.map(|f| {
            quoted(match f {
                LogFormat::Pretty => "pretty",
                LogFormat::Json => "json",
            })
        }),
    );
    out
}
