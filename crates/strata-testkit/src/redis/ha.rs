//! Several real `redis-server` processes that are one store: a primary with replicas and Sentinels, or a Cluster.

use super::{Fsync, RedisServer, free_port};
use crate::{poll, reaper};
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// How long a failover or the forming of a Cluster may take on a machine that runs many tests at once.
const FORMING: Duration = Duration::from_secs(60);
/// Name of the watched service.
const SERVICE: &str = "strata";

/// A primary, two replicas, and three Sentinels that watch them.
#[derive(Debug)]
pub struct RedisSentinels {
    servers: Vec<RedisServer>,
    sentinels: Vec<Sentinel>,
}

#[derive(Debug)]
struct Sentinel {
    port: u16,
    child: Child,
    _reaper: reaper::Reaper,
    _folder: TempDir,
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Sentinel {
    fn start(primary: u16) -> Self {
        let folder = TempDir::with_prefix("strata-sentinel-").expect("a temporary folder");
        let file = folder.path().join("sentinel.conf");
        let port = free_port();
        let text = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor {SERVICE} 127.0.0.1 {primary} 2\n\
             sentinel down-after-milliseconds {SERVICE} 1000\nsentinel failover-timeout {SERVICE} 5000\n\
             sentinel parallel-syncs {SERVICE} 1\n",
            folder.path().display()
        );
        fs::write(&file, text).expect("a writable folder");
        // Debian's redis-server is the same executable.
        let child = Command::new("redis-server")
            .arg(&file)
            .arg("--sentinel")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        let reaper = reaper::Reaper::guard(child.id(), Some(folder.path())).expect("a guard");
        Self { port, child, _reaper: reaper, _folder: folder }
    }

    fn ask(&self, words: &[&str]) -> redis::RedisResult<redis::Value> {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], self.port));
        let mut connection = RedisServer::client_at(address).get_connection_with_timeout(Duration::from_secs(2))?;
        connection.set_read_timeout(Some(Duration::from_secs(2)))?;
        let mut command = redis::cmd("SENTINEL");
        for word in words {
            command.arg(word);
        }
        command.query(&mut connection)
    }
}

impl RedisSentinels {
    /// Starts all of them and waits until each replica has its first copy and the Sentinels agree.
    ///
    /// # Panics
    /// When they do not form within a minute.
    #[must_use]
    pub fn start() -> Self {
        let primary = RedisServer::start_with(Fsync::Always, &["--repl-diskless-sync-delay", "0"]);
        let port = primary.port.to_string();
        let replica =
            || RedisServer::start_with(Fsync::Always, &["--repl-diskless-sync-delay", "0", "--replicaof", "127.0.0.1", &port]);
        let servers = vec![primary, replica(), replica()];
        poll::blocking(FORMING, || {
            let all: String = servers[0].command(&["INFO", "replication"]);
            (all.matches("state=online").count() == 2).then_some(())
        })
        .expect("two replicas with a copy");
        let sentinels: Vec<Sentinel> = (0..3).map(|_| Sentinel::start(servers[0].port)).collect();
        let agreed = |s: &Sentinel| {
            let known = s
                .ask(&["replicas", SERVICE])
                .ok()
                .is_some_and(|v| redis::from_redis_value::<Vec<redis::Value>>(v).is_ok_and(|v| v.len() == 2));
            known
                && s.ask(&["ckquorum", SERVICE]).is_ok()
                && s.ask(&["sentinels", SERVICE])
                    .ok()
                    .is_some_and(|v| redis::from_redis_value::<Vec<redis::Value>>(v).is_ok_and(|v| v.len() == 2))
        };
        poll::blocking(FORMING, || sentinels.iter().all(agreed).then_some(())).expect("Sentinels that know each other");
        Self { servers, sentinels }
    }

    /// `redis+sentinel://...` with every Sentinel.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.sentinels.iter().map(|s| format!("127.0.0.1:{}", s.port)).collect();
        format!("redis+sentinel://{}/{SERVICE}", hosts.join(","))
    }

    /// The server that the Sentinels call the master now.
    ///
    /// # Panics
    /// When no Sentinel answers, or names a stranger.
    #[must_use]
    pub fn master(&mut self) -> &mut RedisServer {
        let port = self.master_port().expect("a Sentinel that answers");
        self.servers.iter_mut().find(|server| server.port == port).expect("one of ours")
    }

    fn master_port(&self) -> Option<u16> {
        self.sentinels.iter().find_map(|sentinel| {
            let (_, port): (String, String) =
                redis::from_redis_value(sentinel.ask(&["get-master-addr-by-name", SERVICE]).ok()?).ok()?;
            port.parse().ok()
        })
    }

    /// Waits until every replica has what the master has.
    ///
    /// # Panics
    /// When they do not catch up.
    pub fn await_replicas(&mut self) {
        let master = self.master();
        poll::blocking(FORMING, || {
            let all: String = master.command(&["INFO", "replication"]);
            let field = |name: &str| {
                all.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned()).unwrap_or_default()
            };
            let at = field("master_repl_offset:");
            let caught_up =
                all.lines().filter(|line| line.contains("state=online")).all(|line| line.contains(&format!("offset={at},")));
            (caught_up && all.contains("state=online")).then_some(())
        })
        .expect("replicas that caught up");
    }

    /// Kills the master as a power cut does, and waits until the Sentinels have made another.
    ///
    /// # Panics
    /// When they do not.
    pub fn fail_over(&mut self) {
        let before = self.master_port().expect("a master");
        self.master().kill_9();
        poll::blocking(FORMING, || self.master_port().filter(|now| *now != before).map(|_| ())).expect("a new master");
    }
}

/// Three masters that share the slots.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts the nodes, gives each a third of the slots, and waits until all call the Cluster whole.
    ///
    /// # Panics
    /// When it does not form within a minute.
    #[must_use]
    pub fn start() -> Self {
        let node = || {
            // The bus takes the port + 10,000 when it is not named, which may not exist.
            let bus = free_port().to_string();
            let server = RedisServer::start_with(
                Fsync::Always,
                &[
                    "--cluster-enabled",
                    "yes",
                    "--cluster-config-file",
                    "nodes.conf",
                    "--cluster-node-timeout",
                    "2000",
                    "--cluster-port",
                    &bus,
                ],
            );
            (server, bus)
        };
        let nodes: Vec<(RedisServer, String)> = (0..3).map(|_| node()).collect();
        for ((server, _), (from, to)) in nodes.iter().zip([("0", "5460"), ("5461", "10922"), ("10923", "16383")]) {
            server.command::<()>(&["CLUSTER", "ADDSLOTSRANGE", from, to]);
        }
        for (place, (server, _)) in nodes.iter().enumerate() {
            server.command::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &(place + 1).to_string()]);
        }
        for (other, bus) in &nodes[1..] {
            nodes[0].0.command::<()>(&["CLUSTER", "MEET", "127.0.0.1", &other.port.to_string(), bus]);
        }
        let whole = |(server, _): &(RedisServer, String)| {
            let info: String = server.command(&["CLUSTER", "INFO"]);
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
        };
        poll::blocking(FORMING, || nodes.iter().all(whole).then_some(())).expect("a whole Cluster");
        Self { nodes: nodes.into_iter().map(|(server, _)| server).collect() }
    }

    /// `redis+cluster://...` with every node.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.nodes.iter().map(|node| node.addr().to_string()).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    /// The nodes.
    #[must_use]
    pub fn nodes(&mut self) -> &mut [RedisServer] {
        &mut self.nodes
    }
}
