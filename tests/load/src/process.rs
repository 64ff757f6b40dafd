//! The servers under measurement: the `strata` executable all in one or as four processes, and echo processes beside it.

use crate::echo::EchoClient;
use anyhow::{Context as _, Result, bail};
use secrecy::{ExposeSecret as _, SecretString};
use std::{
    fmt::Write as _,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    time::Duration,
};
use strata_runtime::{
    RpcChannel, channel,
    ports::{RandomIds, Stopwatch, pause, random_bytes},
};
use strata_testkit::{Child9, RedisServer};
use tempfile::TempDir;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};

/// Longest time until a server is up: far more than it may need, so that a slow start is a number and not an abort.
const START: Duration = Duration::from_secs(60);
/// Longest time to its end.
const END: Duration = Duration::from_secs(30);
/// Between two looks at a starting server.
const LOOK: Duration = Duration::from_millis(2);

/// Where executables, model and scratch space are.
#[derive(Clone, Debug)]
pub struct Site {
    /// The `strata` executable.
    pub binary: PathBuf,
    /// This executable: it serves the echo.
    pub myself: PathBuf,
    /// Folder of the built-in embedding model.
    pub model_dir: PathBuf,
    /// Folder for stores: on the disk that is measured.
    pub scratch: PathBuf,
}

impl Site {
    /// The executable beside this one unless `binary` names another.
    ///
    /// # Errors
    /// When there is none.
    pub fn new(binary: Option<PathBuf>, model_dir: &Path, scratch: &Path) -> Result<Self> {
        let myself = std::env::current_exe().context("the path of this executable")?;
        let binary = binary.unwrap_or_else(|| myself.with_file_name("strata"));
        if !binary.is_file() {
            bail!("{} is not there: build it in the same profile, or name it with --binary", binary.display());
        }
        std::fs::create_dir_all(scratch).with_context(|| format!("{} cannot be made", scratch.display()))?;
        let absolute = |path: &Path| std::path::absolute(path).with_context(|| format!("{}", path.display()));
        Ok(Self { binary: absolute(&binary)?, myself, model_dir: absolute(model_dir)?, scratch: absolute(scratch)? })
    }

    /// Whether the built-in model can be loaded.
    pub fn has_model(&self) -> bool {
        self.model_dir.join("weights.npz").is_file()
    }
}

/// What makes vectors in a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Embedder {
    /// The built-in model.
    Builtin,
    /// Nothing: keyword search only, and no work in the background.
    None,
}

impl Embedder {
    /// As the configuration has it.
    const fn name(self) -> &'static str {
        match self {
            Self::Builtin => "builtin",
            Self::None => "none",
        }
    }
}

/// Whether `redis-server` can be run.
pub fn has_redis() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join("redis-server").is_file())
}

/// A port nobody listens on at this moment.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// A running server.
pub struct Server {
    child: Child9,
    /// Its address.
    pub url: String,
    /// A channel to it.
    pub channel: RpcChannel,
    /// From the start of the process to SERVING.
    pub ready: Duration,
    /// Its stores.
    pub data: PathBuf,
    _folder: TempDir,
}

impl Server {
    /// Every role in one process, on embedded stores.
    ///
    /// # Errors
    /// When it does not become ready; the message holds its output.
    pub async fn all_in_one(site: &Site, embedder: Embedder) -> Result<Self> {
        Self::all_in_one_with(site, embedder, "").await
    }

    /// As [`Self::all_in_one`], with more lines of configuration.
    ///
    /// # Errors
    /// As [`Self::all_in_one`].
    pub async fn all_in_one_with(site: &Site, embedder: Embedder, more: &str) -> Result<Self> {
        Self::start(site, embedder, "listen", "", more).await
    }

    /// The working layer alone, with its internal address: no router in front.
    ///
    /// # Errors
    /// As [`Self::all_in_one`].
    pub async fn working_alone(site: &Site, keys: &SecretString) -> Result<Self> {
        let top = format!("roles = [\"working\"]\nsigning_keys = \"{}\"\n", keys.expose_secret());
        Self::start(site, Embedder::None, "internal_listen", &top, "").await
    }

    async fn start(site: &Site, embedder: Embedder, listen: &str, top: &str, more: &str) -> Result<Self> {
        let folder = TempDir::with_prefix_in("strata-", &site.scratch)?;
        let data = folder.path().join("data");
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let kind = embedder.name();
        let mut text = String::from(top);
        write!(
            text,
            "data_dir = {data:?}\n[server]\n{listen} = \"{address}\"\n[embedder]\nkind = \"{kind}\"\nmodel_dir = {:?}\n[telemetry]\nfilter = \"warn\"\n{more}",
            site.model_dir
        )?;
        let config = folder.path().join("strata.toml");
        std::fs::write(&config, text)?;
        let url = format!("http://{address}");
        let watch = Stopwatch::start();
        let mut child = serve(site, &config);
        let channel = connect(&url)?;
        await_serving(&mut child, &channel).await?;
        Ok(Self { child, url, channel, ready: watch.elapsed(), data, _folder: folder })
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Asks it to end and waits.
    pub fn stop(mut self) {
        if self.child.is_running() {
            let _status = self.child.terminate(END);
        }
    }
}

/// A channel that connects when it is used.
///
/// # Errors
/// When the URL is none.
pub fn connect(url: &str) -> Result<RpcChannel> {
    channel::connect(&channel::EndpointConfig::new(url)).map_err(anyhow::Error::new)
}

fn serve(site: &Site, config: &Path) -> Child9 {
    // Settings of the caller's environment must not change what is measured.
    Child9::of(&site.binary).args(["serve", "--config"]).args([config]).clean_env().spawn()
}

async fn await_serving(child: &mut Child9, channel: &RpcChannel) -> Result<()> {
    let watch = Stopwatch::start();
    while watch.elapsed() < START {
        if !child.is_running() {
            bail!("the server ended: {child}");
        }
        let answer = HealthClient::new(channel.clone()).check(HealthCheckRequest::default()).await;
        if answer.is_ok_and(|a| a.into_inner().status == ServingStatus::Serving as i32) {
            return Ok(());
        }
        pause(LOOK).await;
    }
    bail!("the server is not ready after {START:?}: {child}")
}

/// One process a role over a Redis of its own, which syncs before each answer.
pub struct Cluster {
    /// A channel to the router.
    pub channel: RpcChannel,
    /// Redis.
    pub redis: RedisServer,
    processes: Vec<(&'static str, Child9)>,
    folder: TempDir,
}

impl Cluster {
    /// Starts redis-server and the four processes. The router has the configuration of a deployment with the built-in
    /// embedder (which only layers load); the layers make no vectors, so that nothing runs in the background.
    ///
    /// # Errors
    /// When one does not become ready; the message holds its output.
    pub async fn start(site: &Site) -> Result<Self> {
        Self::start_with(site, Embedder::None).await
    }

    /// The same with this embedder in the layers.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_with(site: &Site, embedder: Embedder) -> Result<Self> {
        let folder = TempDir::with_prefix_in("strata-", &site.scratch)?;
        let redis = RedisServer::start();
        let keys = signing_keys();
        let mut ports = Vec::new();
        for role in ["working", "session", "longterm", "router"] {
            ports.push((role, free_port()?));
        }
        let peers = ports
            .iter()
            .filter(|(role, _)| *role != "router")
            .try_fold(String::from("[peers]\n"), |mut text, (role, port)| {
                writeln!(text, "{role} = \"http://127.0.0.1:{port}\"").map(|()| text)
            })?;
        let mut processes = Vec::new();
        let mut router = None;
        for (role, port) in &ports {
            let (listen, kind, peers) = match *role {
                "router" => ("listen", "builtin", peers.as_str()),
                _ => ("internal_listen", embedder.name(), ""),
            };
            let config = folder.path().join(format!("{role}.toml"));
            let text = format!(
                "roles = [\"{role}\"]\ndata_dir = {:?}\nsigning_keys = \"{}\"\n[server]\n{listen} = \"127.0.0.1:{port}\"\n\
                 [redis]\nurl = \"{}/0\"\n[embedder]\nkind = \"{kind}\"\nmodel_dir = {:?}\n[telemetry]\nfilter = \"warn\"\n{peers}",
                folder.path().join(role),
                keys.expose_secret(),
                redis.url(),
                site.model_dir,
            );
            std::fs::write(&config, text)?;
            let mut child = serve(site, &config);
            let channel = connect(&format!("http://127.0.0.1:{port}"))?;
            await_serving(&mut child, &channel).await.with_context(|| format!("role {role}"))?;
            processes.push((*role, child));
            router = Some(channel);
        }
        let channel = router.context("a router")?;
        Ok(Self { channel, redis, processes, folder })
    }

    /// Stores of a role.
    #[must_use]
    pub fn data(&self, role: &str) -> PathBuf {
        self.folder.path().join(role)
    }

    /// Process id of a role.
    ///
    /// # Errors
    /// When there is no such role.
    pub fn pid(&self, role: &str) -> Result<u32> {
        self.processes
            .iter()
            .find(|(name, _)| *name == role)
            .map(|(_, child)| child.pid())
            .with_context(|| format!("no role {role}"))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Routers first: a layer that goes away under them would be reported as a fault.
        for (_, mut child) in self.processes.drain(..).rev() {
            if child.is_running() {
                let _status = child.terminate(END);
            }
        }
    }
}

/// Fresh signing keys.
pub fn signing_keys() -> SecretString {
    let hex = random_bytes(&RandomIds).iter().fold(String::new(), |mut hex, byte| {
        // Writing to a string does not fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    format!("bench:{hex}").into()
}

/// Echo processes: one, or one in front of another.
pub struct EchoServers {
    /// A client of the outer one.
    pub client: EchoClient,
    _processes: Vec<Child9>,
}

impl EchoServers {
    /// Starts a chain of `hops` processes.
    ///
    /// # Errors
    /// When one does not answer.
    pub async fn start(site: &Site, hops: usize) -> Result<Self> {
        let mut next: Option<String> = None;
        let mut processes = Vec::new();
        for _ in 0..hops {
            let address = format!("127.0.0.1:{}", free_port()?);
            let mut args = vec!["echo".to_owned(), "--listen".into(), address.clone()];
            if let Some(url) = next {
                args.extend(["--forward".into(), url]);
            }
            processes.push(Child9::of(&site.myself).args(args).clean_env().spawn());
            next = Some(format!("http://{address}"));
        }
        let mut client = EchoClient::new(connect(&next.context("at least one hop")?)?);
        let watch = Stopwatch::start();
        while let Err(status) = client.send(crate::echo::EchoRequest::of_size(8, 8)).await {
            if watch.elapsed() > START {
                bail!("the echo does not answer: {}", status.message());
            }
            pause(LOOK).await;
        }
        Ok(Self { client, _processes: processes })
    }
}

/// Memory of a process that is resident, in bytes.
///
/// # Errors
/// When the system has no `/proc`, or the process is gone.
pub fn resident_bytes(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).context("resident memory is read from /proc")?;
    kilobytes(&status, "VmRSS:").map(|kb| kb * 1_024).context("VmRSS in /proc")
}

fn kilobytes(status: &str, field: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix(field))?.split_whitespace().next()?.parse().ok()
}

/// CPU time of this process so far, in seconds, all threads.
///
/// # Errors
/// When the system has no `/proc`.
pub fn cpu_seconds() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").context("CPU time is read from /proc")?;
    cpu_ticks(&stat).map(|ticks| ticks as f64 / TICKS_PER_SECOND).context("CPU time in /proc")
}

/// Ticks a second of the times in `/proc`: fixed in the interface of Linux.
const TICKS_PER_SECOND: f64 = 100.0;

fn cpu_ticks(stat: &str) -> Option<u64> {
    // The name of the process may hold anything, also blanks and brackets: count from behind it.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_time_are_read_from_proc() {
        assert_eq!(kilobytes("Name:\tx\nVmRSS:\t    1234 kB\n", "VmRSS:"), Some(1_234));
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 99 0 0 0 250 50 0 0 20 0 1 0 5 6 7";
        assert_eq!(cpu_ticks(stat), Some(300));
        assert!(resident_bytes(std::process::id()).is_ok_and(|bytes| bytes > 100_000));
        assert!(cpu_seconds().is_ok());
    }

    #[test]
    fn signing_keys_have_the_form_of_the_configuration() {
        let keys = signing_keys();
        let (id, hex) = keys.expose_secret().split_once(':').expect("id:hex");
        assert!(id == "bench" && hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit()));
        assert!(strata_runtime::signing::KeyRing::parse(&keys).is_ok());
    }
}
