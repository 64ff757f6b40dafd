//! Who calls whom. Builds the roles of this process from the configuration, joins them by channels, and serves them: a role
//! in this process is reached through the same signed header and the same layers as one in another.

use crate::config::{Config, EmbedderKind, Synchronous, TlsConfig, needs_secret};
use crate::sampler::Sampler;
use anyhow::{Context as _, Result, anyhow};
use arc_swap::ArcSwap;
use secrecy::{ExposeSecret as _, SecretSlice};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use strata_api::page::PageTokens;
use strata_core::{
    Fault,
    policy::{authz::Layer, control::Settings, quota::QuotaSettings, registry::Registry},
};
use strata_longterm::{IndexConfig, LongtermDeps, LongtermRole};
use strata_router::{About, LayerChannels, LedgerConfig, RouterDeps, RouterRole, control::RemoteControl};
use strata_runtime::{
    Ports, RpcChannel, channel,
    control::{Control, ControlStore, ModeBoard, RedisControl},
    health,
    jwt::{JwtSettings, Tokens},
    layer::{
        admission::AdmissionSettings,
        auth::{ApiKey, Authenticator, IssuedKey},
    },
    lifecycle::Lifecycle,
    metrics::Instruments,
    ports::{RandomIds, random_bytes},
    redis_store::{RedisPool, RedisSettings, RedisTls},
    replicas,
    server::{self, ServeConfig},
    signing::{KeyRing, SharedKeys, Signer, Verifier},
    sqlite::{Database, Location, Migration, SqliteSettings},
    stack::{self, StackDeps},
    tls::{ClientTls, ServerTls},
};
use strata_session::{SessionDeps, SessionRole, SessionStoreConfig};
use strata_text::embed::{Builtin, Cached, Caller, Embedder, OpenAi, OpenAiConfig};
use strata_text::extract::{Extractor, HttpExtractor, HttpExtractorConfig};
use strata_text::rerank::{HttpReranker, HttpRerankerConfig, Reranker};
use strata_text::summarise::{HttpSummariser, HttpSummariserConfig, Summariser};
use strata_working::{CheckpointConfig, WorkingDeps, WorkingRole};
use tokio::{net::TcpListener, task::JoinHandle};
use tonic::service::Routes;

/// What the settings say when there is no embedder.
const NO_EMBEDDER: &str = "none: keyword search only";
/// A peer that is frozen must cost a call seconds, not its whole deadline.
const PEER_KEEPALIVE: Duration = Duration::from_secs(2);
/// Between two looks at a store that a service waits for.
const READINESS_PAUSE: Duration = Duration::from_millis(100);
/// Between two looks at a store that answered last time.
const READINESS_WATCH: Duration = Duration::from_secs(2);
/// Of the grace period, the part that listeners may take to drain; the rest is for the stores.
const DRAIN_SHARE: f64 = 0.6;

/// The roles of this process, serving.
pub struct Running {
    lifecycle: Lifecycle,
    public: Option<SocketAddr>,
    internal: Option<SocketAddr>,
    listeners: Vec<JoinHandle<Result<(), Fault>>>,
    working: Option<Arc<WorkingRole>>,
    session: Option<Arc<SessionRole>>,
    longterm: Option<Arc<LongtermRole>>,
    router: Option<Arc<RouterRole>>,
    grace: Duration,
    about: About,
    _watches: Vec<strata_runtime::config::Watch>,
}

fn redis_tls(config: &Config) -> Result<RedisTls> {
    let read = |name: &str, path: &Option<PathBuf>| {
        path.as_ref().map(|path| std::fs::read(path).with_context(|| format!("redis.{name} {}", path.display()))).transpose()
    };
    let client = match (read("cert_file", &config.redis.cert_file)?, read("key_file", &config.redis.key_file)?) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        _ => return Err(anyhow!("redis.cert_file and redis.key_file: give both or neither")),
    };
    Ok(RedisTls { ca: read("ca_file", &config.redis.ca_file)?, client })
}

/// The Redis of the configuration; it connects at its first use.
///
/// # Errors
/// When its address or a certificate cannot be used.
pub fn redis_of(config: &Config) -> Result<Option<RedisPool>> {
    let Some(url) = &config.redis.url else { return Ok(None) };
    let settings = RedisSettings {
        response_timeout: Duration::from_millis(config.redis.response_ms),
        connect_timeout: Duration::from_millis(config.redis.connect_ms),
        ..RedisSettings::default()
    };
    let pool = RedisPool::connect_tls(url, &redis_tls(config)?, settings);
    pool.map(Some).map_err(|fault| anyhow!("{}", fault.message))
}

/// Starts everything. `file` is watched: `policy`, `modes` and `quotas` follow it without a restart.
///
/// # Errors
/// When an address is taken, a listener would be open to strangers, or a store of this process cannot be opened. Redis, Qdrant
/// and other roles need not be up: what depends on them says so until they are.
pub async fn start(config: Config, file: Option<&Path>) -> Result<Running> {
    let fault = |fault: Fault| anyhow!("{}", fault.message);
    let ports = Ports::system();
    let lifecycle = Lifecycle::new(&services(&config));
    let keys = match config.signing_keys().map_err(fault)? {
        Some(text) => KeyRing::parse(&text).map_err(fault)?,
        None => KeyRing::ephemeral(&RandomIds),
    };
    let keys = SharedKeys::new(keys);
    // Several routers must open each other's page tokens and consent challenges; a process alone needs nobody's.
    let secret = secret_of(&config)?;
    let settings = Arc::new(ArcSwap::from_pointee(config.policy.clone()));
    let modes = Arc::new(ArcSwap::from_pointee(config.modes));
    let quotas = Arc::new(ArcSwap::from_pointee(config.quotas.clone()));
    let board = Arc::new(ModeBoard::new(Arc::clone(&modes)));
    let registry = Arc::new(match &config.registry_file {
        Some(path) => {
            let text = std::fs::read_to_string(path).with_context(|| format!("registry_file {}", path.display()))?;
            Registry::extended(&text).map_err(|problem| anyhow!("registry_file: {problem}"))?
        }
        None => Registry::builtin(),
    });
    let redis = redis_of(&config)?;
    // Layers compile their patterns beside the loading of the model, not in the first call: a thread of the runtime that is busy for
    // seconds looks dead to its peers. A router makes them for its first call, and for the layers behind it in the same process, so
    // that what stands by does so in little memory; a debug build takes longer over them than a call may wait.
    let reads = if config.runs(Layer::Router) {
        cfg!(debug_assertions)
    } else {
        config.runs(Layer::Session) || config.runs(Layer::Longterm)
    };
    let warmed = async {
        if reads {
            let _ = lifecycle.tasks.blocking("language tables", strata_text::warm).await;
        }
    };
    let embeds = async {
        if config.runs(Layer::Session) || config.runs(Layer::Longterm) { embedder(&config, &lifecycle).await } else { Ok(None) }
    };
    let (embedder, ()) = tokio::join!(embeds, warmed);
    let embedder = embedder?;
    let about = about(&config, embedder.as_deref());

    let stack = StackDeps {
        admission: AdmissionSettings { max_in_flight: config.server.max_in_flight, ..AdmissionSettings::default() },
        quotas: Arc::clone(&quotas),
        modes: Arc::clone(&board),
        ..StackDeps::new(ports.clone())
    };
    let verifier = Arc::new(Verifier::new(keys.clone(), ports.clone()));
    let local = |routes: Routes| channel::local(stack::internal(routes, Arc::clone(&verifier), &stack));
    let signer = Signer::new(keys.clone(), ports.clone());

    let mut databases = Vec::new();
    let working = if config.runs(Layer::Working) {
        let checkpoint = match &redis {
            Some(pool) if config.working.shared => CheckpointConfig::Shared(pool.clone()),
            Some(pool) => CheckpointConfig::Redis(pool.clone()),
            None => {
                let database = database(&config, "working", strata_working::checkpoint::embedded::MIGRATIONS, &lifecycle).await?;
                databases.push(database.clone());
                CheckpointConfig::Embedded(database)
            }
        };
        let deps = WorkingDeps {
            ports: ports.clone(),
            settings: Arc::clone(&settings),
            checkpoint,
            page_tokens: Some(PageTokens::new(&secret)),
        };
        let role = Arc::new(WorkingRole::build(deps).await.map_err(fault)?);
        let watched = Arc::clone(&role);
        follow(&lifecycle, WORKING, "boards", move || std::future::ready(watched.status().serving));
        Some(role)
    } else {
        None
    };
    let session = if config.runs(Layer::Session) {
        let store = match &redis {
            Some(pool) => SessionStoreConfig::Redis(pool.clone()),
            None => {
                let database = database(&config, "session", strata_session::store::embedded::MIGRATIONS, &lifecycle).await?;
                databases.push(database.clone());
                SessionStoreConfig::Embedded(database)
            }
        };
        let deps = SessionDeps {
            ports: ports.clone(),
            settings: Arc::clone(&settings),
            store,
            // Turns carry no vector of the caller: they are searched by words then.
            embedder: embedder.clone().filter(|embedder| !embedder.is_caller()),
            summariser: summariser(&config)?,
            page_tokens: PageTokens::new(&secret),
        };
        let role = Arc::new(SessionRole::build(deps).await.map_err(fault)?);
        let watched = Arc::clone(&role);
        follow(&lifecycle, SESSION, "session store", move || {
            let watched = Arc::clone(&watched);
            async move { watched.status().await.serving }
        });
        Some(role)
    } else {
        None
    };
    let longterm = if config.runs(Layer::Longterm) {
        let index = config.qdrant.settings().map_or(IndexConfig::Exact, IndexConfig::Qdrant);
        let database = database(&config, "longterm", strata_longterm::MIGRATIONS, &lifecycle).await?;
        databases.push(database.clone());
        let deps = LongtermDeps {
            ports: ports.clone(),
            settings: Arc::clone(&settings),
            database,
            index,
            backups: config.storage.backup_dir.clone(),
            backup_days: config.storage.backup_days,
            erasure_log: Some(config.erasure_log()),
            erasure_copy: redis.clone(),
            embedder: embedder.clone(),
            reranker: reranker(&config)?,
            summariser: if config.summariser.consolidation { summariser(&config)? } else { None },
            registry: Arc::clone(&registry),
            quotas: Arc::clone(&quotas),
            mode: {
                let board = Arc::clone(&board);
                Arc::new(move |tenant| board.of(Layer::Longterm, tenant))
            },
            secret: secret.clone(),
        };
        Some(Arc::new(LongtermRole::build(deps).await.map_err(fault)?))
    } else {
        None
    };

    let mut watches = Vec::new();
    let tls =
        |section: &Option<TlsConfig>, field| section.as_ref().map(|tls| ServerTls::from_files(tls.files(), field)).transpose();
    let public_tls = tls(&config.server.tls, "server.tls").map_err(fault)?;
    let internal_tls = tls(&config.server.internal_tls, "server.internal_tls").map_err(fault)?;
    for tls in public_tls.iter().chain(&internal_tls) {
        watches.extend(tls.watch().map_err(anyhow::Error::new)?);
    }
    let mut listeners = Vec::new();
    let token = lifecycle.tasks.token().clone();
    let mut serve = |listener: TcpListener, service: RpcChannel, tls: &Option<Arc<ServerTls>>| {
        let grace = config.grace().mul_f64(DRAIN_SHARE);
        let (serve_config, token) = (ServeConfig { grace, tls: tls.clone(), ..ServeConfig::default() }, token.clone());
        listeners
            .push(lifecycle.tasks.spawn("listener", async move { server::serve(listener, service, &serve_config, token).await }));
    };

    let mut internal = None;
    if let Some(address) = config.server.internal_listen {
        let layers = [
            working.as_ref().map(|role| role.routes()),
            session.as_ref().map(|role| role.routes()),
            longterm.as_ref().map(|role| role.routes()),
        ];
        // Each brings its own answer for unknown paths; one router can have but one.
        let routes =
            layers.into_iter().flatten().fold(Routes::new(lifecycle.health.server()).into_axum_router(), |routes, layer| {
                routes.merge(layer.into_axum_router().reset_fallback())
            });
        let routes = Routes::from(routes);
        let listener = server::bind(address).await.map_err(fault)?;
        internal = Some(listener.local_addr()?);
        serve(listener, stack::internal(routes, Arc::clone(&verifier), &stack), &internal_tls);
    }

    // What operators set: the database is the truth, Redis the mirror; each process reads what it can reach.
    let mut settings_stores: Vec<Arc<dyn ControlStore>> = Vec::new();
    if let Some(pool) = &redis {
        settings_stores.push(Arc::new(RedisControl::new(pool.clone())));
    }
    if let Some(role) = &longterm {
        settings_stores.push(Arc::new(role.control()));
    }

    let mut public = None;
    let mut control = None;
    let router = if config.runs(Layer::Router) {
        let peer_tls = match &config.server.internal_tls {
            Some(tls) => {
                let tls = ClientTls::from_files(tls.files(), "server.internal_tls").map_err(fault)?;
                watches.extend(tls.watch().map_err(anyhow::Error::new)?);
                Some(tls)
            }
            None => None,
        };
        let connect = |url: &String| {
            channel::connect(&channel::EndpointConfig {
                keepalive_interval: PEER_KEEPALIVE,
                keepalive_timeout: PEER_KEEPALIVE,
                tls: peer_tls.clone(),
                ..channel::EndpointConfig::new(url.as_str())
            })
            .map_err(fault)
        };
        let reach = |role: Layer, here: Option<Routes>, peers: &[String]| -> Result<RpcChannel> {
            Ok(match (here, peers) {
                (Some(routes), _) => signer.sign(local(routes)),
                (None, [url]) => signer.sign(connect(url)?),
                (None, []) => return Err(anyhow!("peers.{} is not set", role.name())),
                (None, urls) => {
                    let members = urls.iter().map(|url| Ok((url.clone(), connect(url)?))).collect::<Result<Vec<_>>>()?;
                    replicas::placed(members, WORKING, &signer, &lifecycle.tasks)
                }
            })
        };
        let channels = LayerChannels {
            working_replicas: if working.is_some() { 1 } else { config.peers.working.len() },
            working: reach(Layer::Working, working.as_ref().map(|role| role.routes()), &config.peers.working)?,
            session: reach(Layer::Session, session.as_ref().map(|role| role.routes()), config.peers.session.as_slice())?,
            longterm: reach(Layer::Longterm, longterm.as_ref().map(|role| role.routes()), config.peers.longterm.as_slice())?,
        };
        if longterm.is_none() {
            let remote = RemoteControl::new(channels.longterm.clone(), Arc::clone(&ports.clock)).map_err(fault)?;
            settings_stores.push(Arc::new(remote));
        }
        let control =
            &*control.insert(Control::new(Arc::clone(&board), std::mem::take(&mut settings_stores), Arc::clone(&ports.clock)));
        let ledger = match &redis {
            Some(pool) => LedgerConfig::Redis(pool.clone()),
            None => LedgerConfig::Embedded(Location::File(file_of(&config, "ledger"))),
        };
        let deps = RouterDeps {
            ports: ports.clone(),
            settings: Arc::clone(&settings),
            registry: Arc::clone(&registry),
            channels,
            ledger,
            control: Arc::clone(control),
            tokens: PageTokens::new(&secret),
            about: about.clone(),
            extractor: extractor(&config)?,
        };
        let router = Arc::new(RouterRole::build(deps).await.map_err(fault)?);
        let keys = config.api_keys().map_err(fault)?;
        let tokens = match &config.auth.jwt {
            Some(settings) => Some(tokens(settings, &ports, &lifecycle, &mut watches).await?),
            None => None,
        };
        let authenticator = if keys.is_empty() && tokens.is_none() {
            Authenticator::local(config.local_principal().map_err(fault)?)
        } else {
            Authenticator::with_keys(keys).map_err(fault)?
        };
        let authenticator = Arc::new(authenticator.with_tokens(tokens).expecting_issued(Arc::clone(&ports.clock)));
        let issuing = Arc::clone(&authenticator);
        control.on_change(move |settings, loaded| issuing.issue(issued(settings), loaded));
        let routes = router.routes().add_service(lifecycle.health.server());
        let routes = health::with_reflection(routes, strata_api::FILE_DESCRIPTOR_SET).map_err(fault)?;
        let listener = server::bind(config.server.listen).await.map_err(fault)?;
        public = Some(listener.local_addr()?);
        serve(listener, stack::public(routes, authenticator, &stack), &public_tls);
        Some(router)
    } else {
        None
    };

    let control = control.unwrap_or_else(|| Control::new(Arc::clone(&board), settings_stores, Arc::clone(&ports.clock)));
    // Before anything is announced as ready; a store that is down is read when it is back.
    let _in_time = tokio::time::timeout(FIRST_LOOK, control.refresh()).await;
    control.spawn(&lifecycle.tasks);
    if let Some(path) = &config.signing_keys_file {
        // The one key that is the secret too, where there is no other.
        let only = if config.secret.is_none() { config.shared_secret().map_err(fault)? } else { None };
        watches.push(follow_keys(path, keys, only.map(SecretSlice::from))?);
    }
    if let Some(path) = file {
        watches.push(watch(path, &settings, &modes, &quotas)?);
    }
    warn_of_clear_text(&config);
    let running = Running {
        lifecycle,
        public,
        internal,
        listeners,
        working,
        session,
        longterm,
        router,
        grace: config.grace(),
        about,
        _watches: watches,
    };
    let certificates = [("public", public_tls), ("internal", internal_tls)];
    let certificates = certificates.into_iter().filter_map(|(of, tls)| Some((of, tls?))).collect();
    let sampler = Sampler {
        databases,
        redis,
        board,
        certificates,
        clock: Arc::clone(&ports.clock),
        working: running.working.clone(),
        session: running.session.clone(),
        longterm: running.longterm.clone(),
        router: running.router.clone(),
        about: running.about.clone(),
    };
    sampler.spawn(&running.lifecycle.tasks);
    Ok(running)
}

impl Running {
    /// Where the router answers.
    #[must_use]
    pub const fn public_address(&self) -> Option<SocketAddr> {
        self.public
    }

    /// Shows the metrics of the process at `address`.
    ///
    /// # Errors
    /// When the address is taken.
    pub async fn expose(&self, address: SocketAddr, registry: prometheus::Registry) -> Result<()> {
        let listener = server::bind(address).await.map_err(|fault| anyhow!("telemetry.prometheus_{}", fault.message))?;
        tracing::info!(address = %listener.local_addr()?, "metrics are shown");
        strata_runtime::exposition::spawn(&self.lifecycle.tasks, listener, registry, self.lifecycle.health.clone());
        Ok(())
    }

    /// Says what serves where, once, when it can.
    pub fn announce(&self) {
        for (key, value) in &self.about.settings {
            tracing::info!(setting = key, value, "running with");
        }
        if self.about.settings.get("embedder").is_some_and(|e| e == NO_EMBEDDER) {
            tracing::warn!(
                "no embedding model: recall finds by key and by words, not by meaning; `make model` fetches the built-in one"
            );
        }
        if let Some(address) = self.public {
            tracing::info!(%address, "the router serves");
        }
        if let Some(address) = self.internal {
            tracing::info!(%address, "the layers serve signed calls");
        }
    }

    /// Returns when every service of this process serves, and says so; also returns when the process is told to stop first.
    pub async fn ready(&self) {
        let token = self.lifecycle.tasks.token();
        while !self.lifecycle.health.is_ready() && !token.is_cancelled() {
            strata_runtime::ports::pause(Duration::from_millis(5)).await;
        }
        if !token.is_cancelled() {
            tracing::info!("ready");
        }
    }

    /// Returns when the process is to stop.
    ///
    /// # Errors
    /// When the signal handlers cannot be installed.
    pub async fn wait_for_signal(&self) -> Result<()> {
        self.lifecycle.wait_for_signal().await.map_err(|f| anyhow!("{}", f.message))?;
        Ok(())
    }

    /// Stops within the grace period: health says so first, listeners drain, then the stores take what was acknowledged.
    /// False when something had to be cut off.
    pub async fn stop(self) -> bool {
        let watch = strata_runtime::ports::Stopwatch::start();
        self.lifecycle.tasks.token().cancel();
        let mut clean = true;
        for listener in self.listeners {
            // Bounded by the listener's own grace.
            clean &= matches!(listener.await, Ok(Ok(())));
        }
        let left = || self.grace.saturating_sub(watch.elapsed()).max(Duration::from_secs(1));
        // The router first: it calls the others.
        if let Some(router) = &self.router {
            router.shutdown(left()).await;
        }
        if let Some(working) = &self.working {
            working.shutdown(left()).await;
        }
        if let Some(session) = &self.session {
            session.shutdown(left()).await;
        }
        if let Some(longterm) = &self.longterm {
            longterm.shutdown(left()).await;
        }
        clean & self.lifecycle.shutdown(left()).await
    }
}

const WORKING: &str = "strata.working.v1.WorkingMemoryService";
const SESSION: &str = "strata.session.v1.SessionMemoryService";
const LONGTERM: &str = "strata.longterm.v1.LongTermMemoryService";

/// Holds a service back while what it waits for is not there, at the start and later.
fn follow<F, Ready>(lifecycle: &Lifecycle, service: &'static str, name: &'static str, ready: F)
where
    F: Fn() -> Ready + Send + 'static,
    Ready: Future<Output = bool> + Send,
{
    let (health, token) = (lifecycle.health.clone(), lifecycle.tasks.token().clone());
    let mut latch = Some(health.latch(service, name));
    lifecycle.tasks.spawn("readiness", async move {
        loop {
            let pause = if ready().await {
                latch = None;
                READINESS_WATCH
            } else {
                if latch.is_none() {
                    tracing::warn!(service, waits_for = name, "not serving");
                    latch = Some(health.latch(service, name));
                }
                READINESS_PAUSE
            };
            tokio::select! {
                () = token.cancelled() => return,
                () = strata_runtime::ports::pause(pause) => {}
            }
        }
    });
}

/// Full names of the services this process answers for, for their health.
fn services(config: &Config) -> Vec<&'static str> {
    let mut services = Vec::new();
    for (role, name) in [(Layer::Working, WORKING), (Layer::Session, SESSION), (Layer::Longterm, LONGTERM)] {
        if config.runs(role) || config.runs(Layer::Router) {
            services.push(name);
        }
    }
    if config.runs(Layer::Router) {
        services.extend(["strata.router.v1.RouterService", "strata.admin.v1.AdminService"]);
    }
    services
}

/// The embedder, or none: a missing model is no reason not to start, and is said loudly.
async fn embedder(config: &Config, lifecycle: &Lifecycle) -> Result<Option<Arc<dyn Embedder>>> {
    let settings = &config.embedder;
    match settings.kind {
        EmbedderKind::None => Ok(None),
        EmbedderKind::Caller => {
            let dimensions = settings.dimensions.context("embedder.dimensions is required for the kind caller")?;
            Ok(Some(Arc::new(Caller::new(settings.model.clone().unwrap_or_default(), dimensions))))
        }
        EmbedderKind::Builtin => {
            let dir = settings.model_dir.clone();
            if !dir.join("weights.npz").exists() {
                return Ok(None);
            }
            let load = move || Builtin::load(&dir);
            let model = lifecycle.tasks.blocking("load model", load).await.context("the model loader stopped")?;
            let model = model.with_context(|| format!("the model in {} cannot be used", settings.model_dir.display()))?;
            Ok(Some(Arc::new(Cached::new(model))))
        }
        EmbedderKind::Openai => {
            let (url, model) = (settings.url.clone().unwrap_or_default(), settings.model.clone().unwrap_or_default());
            let dimensions = settings.dimensions.context("embedder.dimensions is required for the kind openai")?;
            let remote =
                OpenAi::new(OpenAiConfig { api_key: settings.api_key.clone(), ..OpenAiConfig::new(url, model, dimensions) })?;
            Ok(Some(Arc::new(Cached::new(remote))))
        }
    }
}

/// The remote reranker, when there is one to ask.
fn reranker(config: &Config) -> Result<Option<Arc<dyn Reranker>>> {
    let settings = &config.reranker;
    let Some(url) = &settings.url else { return Ok(None) };
    let remote = HttpReranker::new(HttpRerankerConfig {
        api_key: settings.api_key.clone(),
        model: settings.model.clone(),
        timeout: Duration::from_millis(settings.timeout_ms),
        ..HttpRerankerConfig::new(url)
    })?;
    Ok(Some(Arc::new(remote)))
}

fn extractor(config: &Config) -> Result<Option<Arc<dyn Extractor>>> {
    let settings = &config.extractor;
    let Some(url) = &settings.url else { return Ok(None) };
    let remote = HttpExtractor::new(HttpExtractorConfig {
        api_key: settings.api_key.clone(),
        timeout: Duration::from_millis(settings.timeout_ms),
        ..HttpExtractorConfig::new(url, &settings.model)
    })?;
    Ok(Some(Arc::new(remote)))
}

/// The model that summarises sessions and consolidated records, when there is one to ask.
fn summariser(config: &Config) -> Result<Option<Arc<dyn Summariser>>> {
    let settings = &config.summariser;
    let Some(url) = &settings.url else { return Ok(None) };
    let remote = HttpSummariser::new(HttpSummariserConfig {
        api_key: settings.api_key.clone(),
        timeout: Duration::from_millis(settings.timeout_ms),
        max_tokens: settings.max_tokens,
        ..HttpSummariserConfig::new(url, &settings.model)
    })?;
    Ok(Some(Arc::new(remote)))
}

/// Who summarises where no model does, for people.
const BY_RULE: &str = "by rule";

fn about(config: &Config, embedder: Option<&dyn Embedder>) -> About {
    let roles: Vec<_> = config.roles.iter().map(|r| r.name()).collect();
    let redis = if config.redis.url.is_some() { "redis" } else { "embedded" };
    let mut settings = BTreeMap::from([("roles".to_owned(), roles.join(", "))]);
    let mut set = |key: &str, value: &str| settings.insert(key.to_owned(), value.to_owned());
    let words = if config.summariser.url.is_some() { config.summariser.model.as_str() } else { BY_RULE };
    // Only what this process knows: another role's settings are that process's to tell.
    if config.runs(Layer::Router) {
        set("ledger", redis);
    }
    if config.runs(Layer::Session) {
        set("session store", redis);
        set("summaries", words);
    }
    if config.runs(Layer::Longterm) {
        set("consolidation", if config.summariser.consolidation { words } else { BY_RULE });
        set("index", if config.qdrant.url.is_some() { "qdrant" } else { "exact (embedded)" });
    }
    if config.runs(Layer::Session) || config.runs(Layer::Longterm) {
        set("embedder", embedder.map_or(NO_EMBEDDER, |e| e.identity().name.as_str()));
    }
    About { version: env!("CARGO_PKG_VERSION").to_owned(), settings }
}

pub(crate) fn file_of(config: &Config, name: &str) -> PathBuf {
    config.data_dir.join(format!("{name}.sqlite"))
}

async fn database(
    config: &Config,
    name: &'static str,
    migrations: &'static [Migration],
    lifecycle: &Lifecycle,
) -> Result<Database> {
    std::fs::create_dir_all(&config.data_dir)
        .with_context(|| format!("data_dir {} cannot be made", config.data_dir.display()))?;
    let location = Location::File(file_of(config, name));
    let settings = SqliteSettings {
        synchronous: match config.storage.synchronous {
            Synchronous::Full => strata_runtime::sqlite::Synchronous::Full,
            Synchronous::Normal => strata_runtime::sqlite::Synchronous::Normal,
        },
        readers: config.storage.readers,
        max_bytes: config.storage.max_mb.map(|mb| mb.saturating_mul(1024 * 1024)),
        ..SqliteSettings::default()
    };
    let open = move || Database::open(&location, migrations, settings);
    lifecycle
        .tasks
        .blocking("open database", open)
        .await
        .context("the database opener stopped")?
        .with_context(|| format!("{} cannot be opened", file_of(config, name).display()))
}

/// The secret that keys are derived from: the deployment's, or this process's own.
///
/// # Errors
/// When it can neither be read nor made.
pub fn secret_of(config: &Config) -> Result<Vec<u8>> {
    match config.shared_secret().map_err(|fault| anyhow!("{}", fault.message))? {
        Some(secret) => Ok(secret),
        None => own_secret(&config.data_dir),
    }
}

/// The secret of a process that is alone: made once and kept beside its stores, so that page tokens and tombstones outlive a
/// restart.
fn own_secret(dir: &Path) -> Result<Vec<u8>> {
    std::fs::create_dir_all(dir).with_context(|| format!("data_dir {} cannot be made", dir.display()))?;
    let path = dir.join("secret");
    match std::fs::read(&path) {
        Ok(secret) if secret.len() == 32 => return Ok(secret),
        Ok(_) => return Err(anyhow!("{} is damaged: it must have 32 bytes", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| path.display().to_string()),
    }
    let secret = random_bytes(&RandomIds).to_vec();
    let write = || -> std::io::Result<()> {
        use std::{io::Write as _, os::unix::fs::OpenOptionsExt as _};
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(&secret)?;
        file.sync_all()
    };
    write().with_context(|| format!("{} cannot be written", path.display()))?;
    Ok(secret)
}

/// Longest wait at the start for what operators have set.
const FIRST_LOOK: Duration = Duration::from_secs(3);
/// Longest wait for an issuer's key set, and its largest size.
const KEY_SET_WAIT: Duration = Duration::from_secs(5);
const KEY_SET_BYTES: usize = 256 * 1024;

/// Keys that are good, of what operators set.
fn issued(settings: &Settings) -> Vec<IssuedKey> {
    let good = settings.keys().filter(|key| key.revoked.is_none());
    good.filter_map(|key| {
        let hash = blake3::Hash::from_hex(&key.hash).ok()?;
        Some(IssuedKey { key: ApiKey { hash, principal: key.principal() }, expires: key.expires })
    })
    .collect()
}

/// The judge of tokens, with keys that follow their file or address.
async fn tokens(
    settings: &JwtSettings,
    ports: &Ports,
    lifecycle: &Lifecycle,
    watches: &mut Vec<strata_runtime::config::Watch>,
) -> Result<Arc<Tokens>> {
    let fault = |fault: Fault| anyhow!("{}", fault.message);
    let tokens = Arc::new(Tokens::new(settings.clone(), Arc::clone(&ports.clock)).map_err(fault)?);
    if let Some(path) = &settings.jwks_file {
        let read = |path: &Path| std::fs::read_to_string(path).map_err(|error| format!("{}: {}", path.display(), error.kind()));
        tokens.replace(&read(path).map_err(|cause| anyhow!("auth.jwt.jwks_file: {cause}"))?).map_err(fault)?;
        let (following, file) = (Arc::clone(&tokens), path.clone());
        watches.push(strata_runtime::config::watch(path, move || following.reload(read(&file))).map_err(anyhow::Error::new)?);
    }
    if let Some(url) = &settings.jwks_url {
        // An issuer that is down is no reason not to start: API keys work, and tokens as soon as it is back.
        tokens.reload(strata_text::http::fetch(url, KEY_SET_WAIT, KEY_SET_BYTES).await);
        let (following, url, every) = (Arc::clone(&tokens), url.clone(), Duration::from_secs(settings.jwks_seconds));
        let token = lifecycle.tasks.token().clone();
        lifecycle.tasks.spawn("issuer's keys", async move {
            loop {
                tokio::select! {
                    () = token.cancelled() => return,
                    () = following.wants_a_read() => {}
                    () = strata_runtime::ports::pause(every) => {}
                }
                following.reload(strata_text::http::fetch(&url, KEY_SET_WAIT, KEY_SET_BYTES).await);
            }
        });
    }
    Ok(tokens)
}

/// The keys between roles follow their file: all verify, the last one signs. Where the `only` key is the deployment's secret too, it
/// must stay the only one.
fn follow_keys(path: &Path, keys: SharedKeys, only: Option<SecretSlice<u8>>) -> Result<strata_runtime::config::Watch> {
    let file = path.to_owned();
    let reload = move || {
        let text = std::fs::read_to_string(&file)
            .map_err(|error| Fault::field("signing_keys_file", format!("cannot be read: {}", error.kind())));
        let ring = text.and_then(|text| {
            let other = |(_, entry): (usize, &str)| only.as_ref().is_some_and(|only| only.expose_secret() != entry.as_bytes());
            if KeyRing::entries(&text).any(other) { Err(needs_secret()) } else { KeyRing::parse(&text.into()) }
        });
        Instruments::global().reloaded("signing_keys", ring.is_ok());
        match ring {
            Ok(ring) => {
                keys.replace(ring);
                tracing::info!("the signing keys were read again");
            }
            Err(fault) => {
                tracing::error!(cause = %fault.message, "the changed signing keys are refused; the last good ones stay")
            }
        }
    };
    strata_runtime::config::watch(path, reload).map_err(anyhow::Error::new)
}

/// What others on the network can read is said once, loudly.
fn warn_of_clear_text(config: &Config) {
    let open = |address: SocketAddr, tls: &Option<TlsConfig>| tls.is_none() && !address.ip().to_canonical().is_loopback();
    if config.runs(Layer::Router) && open(config.server.listen, &config.server.tls) {
        tracing::warn!("callers send credentials and content in clear text: set server.tls, or let a proxy end TLS on this host");
    }
    if config.server.internal_listen.is_some_and(|address| open(address, &config.server.internal_tls)) {
        tracing::warn!("roles send content in clear text: set server.internal_tls");
    }
}

/// Policy, modes and quotas follow the file; a bad file is refused as a whole and the last good one stays in force.
fn watch(
    path: &Path,
    settings: &Arc<ArcSwap<strata_core::policy::settings::PolicySettings>>,
    modes: &strata_router::modes::SharedModes,
    quotas: &Arc<ArcSwap<QuotaSettings>>,
) -> Result<strata_runtime::config::Watch> {
    let (settings, modes, quotas, file) = (Arc::clone(settings), Arc::clone(modes), Arc::clone(quotas), path.to_owned());
    let reload = move || match Config::load_reloadable(&file) {
        Ok(new) => {
            settings.store(Arc::new(new.policy));
            modes.store(Arc::new(new.modes));
            quotas.store(Arc::new(new.quotas));
            Instruments::global().reloaded("config", true);
            tracing::info!("policy, modes and quotas were reloaded");
        }
        Err(error) => {
            Instruments::global().reloaded("config", false);
            tracing::error!(%error, "the changed configuration is refused; the last good one stays in force");
        }
    };
    strata_runtime::config::watch(path, reload).map_err(anyhow::Error::new)
}
