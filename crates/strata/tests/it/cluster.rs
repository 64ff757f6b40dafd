//! The product as processes: all in one, or one process per role on a real Redis and, if wanted, the Qdrant double.

use serde_json::Value;
use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};
use strata_testkit::{process::Child9, proxy::FaultProxy, qdrant::WireDouble, redis::RedisServer};
use tempfile::TempDir;

/// A debug build on a busy machine may take long to load the model.
pub const READY: Duration = Duration::from_secs(180);
const STRATA: &str = env!("CARGO_BIN_EXE_strata");
/// Dimensions of the vectors of [`Cluster::quick`].
pub const VECTOR_DIMS: usize = 8;
/// Order of start: the router last, though any order works.
pub const ROLES: [&str; 4] = ["working", "session", "longterm", "router"];

/// The model of `make model`, so that every form of the product sees the same vectors.
pub fn model_dir() -> PathBuf {
    let dir = std::env::var_os("MODEL_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/use-multilingual-v3"), PathBuf::from);
    assert!(dir.join("weights.npz").exists(), "the embedding model is missing: run `make model`");
    dir.canonicalize().expect("a real folder")
}

/// An example of the repository.
pub fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

/// `strata ARGS` with a clean environment, to its end.
pub fn strata(args: &[&str]) -> Output {
    strata_with(args, &[])
}

/// [`strata`] with these variables beside.
pub fn strata_with(args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(STRATA);
    command
        .args(args)
        .env_clear()
        .envs(env.iter().copied())
        .env("STRATA_EMBEDDER__MODEL_DIR", model_dir())
        .env("STRATA_TELEMETRY__FILTER", "warn");
    if let Some(tmp) = std::env::var_os("TMPDIR") {
        command.env("TMPDIR", tmp);
    }
    command.output().expect("strata runs")
}

/// Lines of JSON on standard output; fails with both streams when the exit code is not `code`.
pub fn json_lines(output: &Output, code: i32) -> Vec<Value> {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "standard output:\n{out}\nstandard error:\n{err}");
    out.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

/// A server process (or four).
pub struct Cluster {
    pub folder: TempDir,
    pub redis: Option<RedisServer>,
    pub qdrant: Option<WireDouble>,
    ports: Vec<(&'static str, u16)>,
    processes: Vec<(&'static str, Child9)>,
    key: String,
    env: Vec<(&'static str, String)>,
    /// Where the one process keeps its stores, if not in `folder`.
    data: Option<PathBuf>,
    /// Of the public address, and of the addresses between roles.
    scheme: &'static str,
    /// In front of layers and stores, by their names.
    proxies: Vec<(&'static str, FaultProxy)>,
    /// Replicas of working memory that a router knows, where they are not the one.
    known: Vec<(&'static str, Vec<String>)>,
}

impl Cluster {
    /// All roles in one process on embedded stores.
    pub fn all_in_one() -> Self {
        let mut cluster = Self::new(None, None, &["all"]);
        cluster.start("all");
        cluster
    }

    /// All roles in one process that takes the callers' vectors, so that it starts at once; with `env` beside.
    pub fn quick(with_qdrant: bool, env: &[(&'static str, String)]) -> Self {
        Self::quick_on(with_qdrant.then(WireDouble::start), env)
    }

    /// The same, with this double for the vectors.
    pub fn quick_on(qdrant: Option<WireDouble>, env: &[(&'static str, String)]) -> Self {
        Self::quick_with(None, qdrant, env)
    }

    /// The same, with sessions, boards and ledger on this Redis.
    pub fn quick_with(redis: Option<RedisServer>, qdrant: Option<WireDouble>, env: &[(&'static str, String)]) -> Self {
        let mut cluster = Self::new(redis, qdrant, &["all"]);
        cluster.env = caller_vectors().into_iter().chain(env.iter().cloned()).collect();
        cluster.start("all");
        cluster
    }

    /// [`Cluster::quick`] with its stores in this folder.
    pub fn quick_in(data: &Path, env: &[(&'static str, String)]) -> Self {
        let mut cluster = Self::new(None, None, &["all"]);
        cluster.env = caller_vectors().into_iter().chain(env.iter().cloned()).collect();
        cluster.data = Some(data.to_owned());
        cluster.start("all");
        cluster
    }

    /// One process per role on a real Redis; vectors in the Qdrant double or in the exact index.
    pub fn four(with_qdrant: bool) -> Self {
        let qdrant = with_qdrant.then(WireDouble::start);
        let mut cluster = Self::new(Some(RedisServer::start()), qdrant, &ROLES);
        for role in ROLES {
            cluster.start(role);
        }
        cluster
    }

    /// The four roles on a real Redis, none of them started; long-term memory will take the callers' vectors.
    pub fn four_to_start() -> Self {
        let mut cluster = Self::new(Some(RedisServer::start()), None, &ROLES);
        cluster.env = caller_vectors().to_vec();
        cluster
    }

    /// One process per role and a second router, on a real Redis; long-term memory takes the callers' vectors, so that all of it
    /// starts at once.
    pub fn two_routers() -> Self {
        let roles = ["working", "session", "longterm", "router", "router2"];
        let mut cluster = Self::new(Some(RedisServer::start()), None, &roles);
        cluster.env = caller_vectors().to_vec();
        for role in roles {
            cluster.start(role);
        }
        cluster
    }

    /// One process per role, three of working memory and two of the router, on a real Redis. The second router knows two replicas
    /// alone.
    pub fn replicated() -> Self {
        let roles = ["working", "working2", "working3", "session", "longterm", "router", "router2"];
        let mut cluster = Self::new(Some(RedisServer::start()), None, &roles);
        cluster.env = caller_vectors().to_vec();
        cluster.set_env("STRATA_WORKING__SHARED", "true");
        cluster.know("router", &["working", "working2", "working3"]);
        cluster.know("router2", &["working3", "working2"]);
        for role in roles {
            cluster.start(role);
        }
        cluster
    }

    /// Sets which replicas of working memory a router knows from its next start on.
    pub fn know(&mut self, router: &'static str, replicas: &[&str]) {
        let addresses = replicas.iter().map(|role| self.address(role)).collect();
        self.known.retain(|(other, _)| *other != router);
        self.known.push((router, addresses));
    }

    /// One process per role on a real Redis and the Qdrant double, each layer and each store behind a proxy that can be told
    /// to fail.
    pub fn behind_proxies() -> Self {
        let mut cluster = Self::new(Some(RedisServer::start()), Some(WireDouble::start()), &ROLES);
        let at = |role: &str| std::net::SocketAddr::from(([127, 0, 0, 1], cluster.port(role)));
        let stores = [
            ("redis", cluster.redis.as_ref().expect("started").addr()),
            ("qdrant", cluster.qdrant.as_ref().expect("started").addr()),
        ];
        let fronts = ["working", "session", "longterm"].map(|role| (role, at(role)));
        cluster.proxies = fronts.into_iter().chain(stores).map(|(name, upstream)| (name, FaultProxy::start(upstream))).collect();
        cluster.env = caller_vectors().to_vec();
        for role in ROLES {
            cluster.start(role);
        }
        cluster
    }

    /// The proxy in front of a layer or store.
    pub fn proxy(&self, name: &str) -> Option<&FaultProxy> {
        self.proxies.iter().find(|(other, _)| *other == name).map(|(_, proxy)| proxy)
    }

    /// Stops a process where it stands (SIGSTOP), or lets it go on.
    pub fn freeze(&mut self, role: &str, frozen: bool) {
        let process = self.process(role);
        if frozen { process.stop_process() } else { process.cont() }
    }

    fn new(redis: Option<RedisServer>, qdrant: Option<WireDouble>, roles: &[&'static str]) -> Self {
        // Ports are free when reserved and used at once; each role gets one for its life, so that a restart finds it.
        let ports = roles.iter().map(|role| (*role, free_port())).collect();
        Self {
            folder: tempfile::tempdir().expect("a temporary folder"),
            redis,
            qdrant,
            ports,
            processes: Vec::new(),
            key: format!("k1:{}", "ab".repeat(32)),
            env: Vec::new(),
            data: None,
            scheme: "http",
            proxies: Vec::new(),
            known: Vec::new(),
        }
    }

    /// One process per role on a real Redis, each with these variables; with TLS everywhere if they set it up.
    pub fn four_with(env: &[(&'static str, String)], tls: bool) -> Self {
        let mut cluster = Self::idle_four(env, tls);
        for role in ROLES {
            cluster.start(role);
        }
        cluster
    }

    /// [`Cluster::four_with`], none of them started yet.
    pub fn idle_four(env: &[(&'static str, String)], tls: bool) -> Self {
        let mut cluster = Self::new(Some(RedisServer::start()), None, &ROLES);
        cluster.scheme = if tls { "https" } else { "http" };
        cluster.env = env.to_vec();
        cluster
    }

    /// Whether any process that runs has printed `needle`.
    pub fn printed(&self, needle: &str) -> bool {
        self.processes.iter().any(|(_, process)| process.printed(needle))
    }

    /// Megabytes that a process holds of the machine's memory.
    pub fn resident(&self, role: &str) -> u64 {
        let process = self.processes.iter().find(|(name, _)| *name == role).expect("a running role");
        let pages = std::fs::read_to_string(format!("/proc/{}/statm", process.1.pid())).expect("a running process");
        let pages: u64 = pages.split_whitespace().nth(1).expect("resident pages").parse().expect("a number");
        pages * 4 / 1_024
    }

    /// Process id of a role.
    pub fn pid(&self, role: &str) -> u32 {
        self.processes.iter().find(|(name, _)| *name == role).expect("a running role").1.pid()
    }

    /// Lines that a process wrote.
    pub fn lines(&self, role: &str) -> Vec<String> {
        let process = self.processes.iter().find(|(name, _)| *name == role).expect("a running role");
        process.1.lines().into_iter().map(|line| line.text).collect()
    }

    fn port(&self, role: &str) -> u16 {
        self.ports.iter().find(|(name, _)| *name == role).expect("a role of this cluster").1
    }

    /// Where the router answers.
    pub fn url(&self) -> String {
        let role = if self.ports.len() == 1 { "all" } else { "router" };
        format!("{}://127.0.0.1:{}", self.scheme, self.port(role))
    }

    /// Address of a role's listener.
    pub fn address(&self, role: &str) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.port(role))
    }

    /// Starts (or starts again) one process and waits until it says that it is ready.
    pub fn start(&mut self, role: &'static str) {
        let mut child = self.spawn(role);
        child.wait_for_line(READY, |line| line.contains("ready"));
        self.processes.push((role, child));
    }

    /// Starts one process and waits for nothing.
    pub fn spawn(&self, role: &'static str) -> Child9 {
        let listen = format!("127.0.0.1:{}", self.port(role));
        // A second router is a router.
        let kind = role.trim_end_matches(|c: char| c.is_ascii_digit());
        let data = self.data.clone().unwrap_or_else(|| self.folder.path().join(role));
        let mut args = vec!["serve".to_owned(), "--data-dir".into(), data.display().to_string()];
        if role == "all" {
            args.extend(["--listen".into(), listen]);
        } else {
            args.extend(["--roles".into(), kind.into()]);
            args.extend([if kind == "router" { "--listen" } else { "--internal-listen" }.into(), listen]);
        }
        if let Some(redis) = &self.redis {
            args.extend(["--redis-url".into(), self.proxy("redis").map_or_else(|| redis.url(), |proxy| proxy.url("redis"))]);
        }
        if let (Some(qdrant), "longterm" | "all") = (&self.qdrant, role) {
            args.extend(["--qdrant-url".into(), self.proxy("qdrant").map_or_else(|| qdrant.url(), |proxy| proxy.url("http"))]);
        }
        let mut launch = Child9::of(STRATA).args(&args).clean_env().env("STRATA_EMBEDDER__MODEL_DIR", model_dir());
        if !self.env.iter().any(|(name, _)| *name == "STRATA_SIGNING_KEYS_FILE") {
            launch = launch.env("STRATA_SIGNING_KEYS", &self.key);
        }
        if kind == "router" {
            for layer in ["working", "session", "longterm"] {
                let address = self.proxy(layer).map_or_else(|| self.address(layer), |proxy| proxy.url("http"));
                launch = launch.env(format!("STRATA_PEERS__{}", layer.to_uppercase()), address);
            }
            if let Some((_, replicas)) = self.known.iter().find(|(router, _)| *router == role) {
                launch = launch.env("STRATA_PEERS__WORKING", replicas.join(","));
            }
        }
        for (name, value) in &self.env {
            launch = launch.env(name, value);
        }
        launch.spawn()
    }

    /// Sets a variable for the processes that are started from now on.
    pub fn set_env(&mut self, name: &'static str, value: &str) {
        self.env.retain(|(other, _)| *other != name);
        self.env.push((name, value.to_owned()));
    }

    fn process(&mut self, role: &str) -> &mut Child9 {
        &mut self.processes.iter_mut().find(|(name, _)| *name == role).expect("a running role").1
    }

    /// The signing keys of its processes.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// `strata restore` of a backup into the stores of the one process, with the secret and the Redis of the deployment; whether it
    /// was done, and what was said.
    pub fn restore(&self, file: &Path, more: &[&str]) -> (bool, String) {
        let (data, file) = (self.folder.path().join("all").display().to_string(), file.display().to_string());
        let mut args = vec!["restore", &file, "--data-dir", &data];
        args.extend(more);
        let redis = self.redis.as_ref().map(RedisServer::url);
        let env: Vec<_> = [("STRATA_SIGNING_KEYS", self.key())]
            .into_iter()
            .chain(redis.iter().map(|url| ("STRATA_REDIS__URL", url.as_str())))
            .collect();
        let output = strata_with(&args, &env);
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    /// Kills a process with -9.
    pub fn kill(&mut self, role: &'static str) {
        self.process(role).kill_9();
        self.processes.retain(|(name, _)| *name != role);
    }

    /// Kills a process with -9 and starts it again.
    pub fn kill_and_restart(&mut self, role: &'static str) {
        self.kill(role);
        self.start(role);
    }

    /// Sends SIGTERM and waits; the exit code.
    pub fn terminate(&mut self, role: &'static str, within: Duration) -> Option<i32> {
        let status = self.process(role).terminate(within);
        self.processes.retain(|(name, _)| *name != role);
        status.code()
    }

    /// `strata ctl call` against the router; the answer, or the failed output.
    pub fn call(&self, rpc: &str, request: &Value) -> Result<Value, String> {
        let output = strata(&["ctl", "--server", &self.url(), "--timeout", "60", "call", rpc, &request.to_string()]);
        if output.status.success() {
            return Ok(serde_json::from_slice(&output.stdout).expect("JSON"));
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// `strata replay` of an example against the router.
    pub fn replay(&self, story: &str, run: &str) -> Output {
        strata(&["replay", &example(story).display().to_string(), "--server", &self.url(), "--json", "--run", run])
    }
}

pub fn caller_vectors() -> [(&'static str, String); 3] {
    [
        ("STRATA_EMBEDDER__KIND", "caller".to_owned()),
        ("STRATA_EMBEDDER__MODEL", "test@1".to_owned()),
        ("STRATA_EMBEDDER__DIMENSIONS", VECTOR_DIMS.to_string()),
    ]
}

pub fn free_port() -> u16 {
    std::net::TcpListener::bind(("127.0.0.1", 0)).and_then(|l| l.local_addr()).expect("a free port").port()
}
