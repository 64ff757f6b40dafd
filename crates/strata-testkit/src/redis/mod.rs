//! A real `redis-server`, started for a test and killed with it.

mod ha;

pub use ha::{RedisCluster, RedisSentinels};

use crate::{poll, reaper};
use redis::{Client, Connection, ConnectionLike};
use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;
use tempfile::TempDir;

/// How long a start may take: far more than it needs, for machines that run many tests at once.
const START: Duration = Duration::from_secs(20);
/// Longest answer of the server to one of the kit's own commands.
const ANSWER: Duration = Duration::from_secs(10);

/// When the append-only file reaches the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fsync {
    /// Before each answer: what was acknowledged survives [`RedisServer::kill_9`]. Default.
    #[default]
    Always,
    /// Once a second, as Redis ships.
    EverySecond,
}

/// A `redis-server` on a port and in a folder of its own, with the append-only file on. Dropping it kills the process; so
/// do a panic and the end of the test process. Several tests of one process may share one: [`shared`].
#[derive(Debug)]
pub struct RedisServer {
    port: u16,
    fsync: Fsync,
    extra: Vec<String>,
    running: Option<(Child, reaper::Reaper)>,
    folder: TempDir,
}

/// One server for all tests of the process that neither stop, fill nor flush it. Each test keeps to keys of its own by a
/// tenant from [`crate::fixtures::unique_owner`].
///
/// # Panics
/// When the server cannot be started.
pub fn shared() -> &'static RedisServer {
    static SHARED: OnceLock<RedisServer> = OnceLock::new();
    SHARED.get_or_init(RedisServer::start)
}

/// URL of one store for all tests of the process that take any form of Redis: [`shared`], or with `STRATA_TEST_REDIS` set to
/// `cluster` or `sentinel` one of those, started once.
///
/// # Panics
/// As the start of each; on another value of the variable.
pub fn shared_url() -> String {
    static CLUSTER: OnceLock<RedisCluster> = OnceLock::new();
    static SENTINELS: OnceLock<RedisSentinels> = OnceLock::new();
    match std::env::var("STRATA_TEST_REDIS").as_deref() {
        Err(_) | Ok("" | "single") => shared().url(),
        Ok("cluster") => CLUSTER.get_or_init(RedisCluster::start).url(),
        Ok("sentinel") => SENTINELS.get_or_init(RedisSentinels::start).url(),
        Ok(other) => panic!("STRATA_TEST_REDIS: single, cluster or sentinel, not {other}"),
    }
}

impl RedisServer {
    /// Starts a server that syncs before each answer and waits until it answers PONG.
    ///
    /// # Panics
    /// When `redis-server` is not installed or does not start; the message holds its log.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(Fsync::Always, &[])
    }

    /// As [`Self::start`], with its own sync mode and further arguments, such as `["--maxmemory", "2mb"]`.
    ///
    /// # Panics
    /// As [`Self::start`].
    #[must_use]
    pub fn start_with(fsync: Fsync, args: &[&str]) -> Self {
        let extra: Vec<String> = args.iter().map(ToString::to_string).collect();
        let mut refusals = Vec::new();
        // Redis cannot choose a free port itself, and one that was free a moment ago can be taken by now: try again.
        for _ in 0..5 {
            let folder = TempDir::with_prefix("strata-redis-").expect("a temporary folder");
            let mut server = Self { port: free_port(), fsync, extra: extra.clone(), running: None, folder };
            match server.launch() {
                Ok(()) => return server,
                Err(refusal) => refusals.push(refusal),
            }
        }
        panic!("redis-server did not start: {}", refusals.join("\n"));
    }

    /// Address as a URL, without a database: `redis://127.0.0.1:<port>`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr())
    }

    /// Address as `host:port`.
    #[must_use]
    pub fn addr(&self) -> std::net::SocketAddr {
        std::net::SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// The folder of its data.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A blocking connection of the test's own, past every fault that the test put in front of the code under test.
    ///
    /// # Panics
    /// When the server does not run.
    #[must_use]
    pub fn connection(&self) -> Connection {
        self.connect().expect("a running redis-server")
    }

    /// Runs one command and returns its answer, as `server.command::<u64>(&["DBSIZE"])`.
    ///
    /// # Panics
    /// When the server does not run, refuses the command, or answers with another type.
    pub fn command<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word);
        }
        command.query(&mut self.connection()).unwrap_or_else(|e| panic!("{words:?}: {e}"))
    }

    /// Kills the process as a power cut does; nothing is written any more. [`Self::restart`] brings the same data back.
    pub fn kill_9(&mut self) {
        if let Some((mut child, reaper)) = self.running.take() {
            drop(child.kill());
            drop(child.wait());
            drop(reaper);
        }
    }

    /// Starts the server again on the same port over the same data and waits until it has loaded it. Kills it first if it
    /// still runs.
    ///
    /// # Panics
    /// When it does not come back.
    pub fn restart(&mut self) {
        self.kill_9();
        if let Err(refusal) = self.launch() {
            panic!("redis-server did not come back: {refusal}");
        }
    }

    /// Stops the process (SIGSTOP): connects succeed, nothing is answered. What a hung dependency looks like.
    ///
    /// # Panics
    /// When it does not run.
    pub fn stop_process(&self) {
        reaper::signal(self.pid(), "STOP");
    }

    /// Lets a stopped process go on (SIGCONT).
    ///
    /// # Panics
    /// When it does not run.
    pub fn cont(&self) {
        reaper::signal(self.pid(), "CONT");
    }

    /// Sets the memory limit in bytes, without eviction: a full server refuses writes. 0 lifts it.
    ///
    /// # Panics
    /// When it does not run.
    pub fn set_maxmemory(&self, bytes: u64) {
        self.command::<()>(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
        self.command::<()>(&["CONFIG", "SET", "maxmemory", &bytes.to_string()]);
    }

    /// Memory in use, in bytes: a limit below it makes the next write fail.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn used_memory(&self) -> u64 {
        self.info("used_memory").parse().expect("a number")
    }

    /// Every key of the database, sorted, with the time it has left to live.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn all_keys_with_ttl(&self) -> Vec<KeyTtl> {
        let mut connection = self.connection();
        let keys: Vec<Vec<u8>> = redis::cmd("SCAN")
            .cursor_arg(0)
            .arg("COUNT")
            .arg(1_000)
            .clone()
            .iter(&mut connection)
            .and_then(Iterator::collect)
            .expect("SCAN");
        let mut found: Vec<KeyTtl> = keys
            .into_iter()
            .filter_map(|key| {
                let left: i64 = redis::cmd("PTTL").arg(&key).query(&mut connection).expect("PTTL");
                // -2: expired since the scan; -1: lives for ever.
                let ttl = (left >= 0).then(|| Duration::from_millis(left.unsigned_abs()));
                (left != -2).then(|| KeyTtl { key: String::from_utf8_lossy(&key).into_owned(), ttl })
            })
            .collect();
        found.sort_by(|a, b| a.key.cmp(&b.key));
        found.dedup_by(|a, b| a.key == b.key);
        found
    }

    /// Every byte that the server keeps on disk: append-only files, snapshots and its log, to search for what must not be
    /// there. Works with the server killed, too.
    ///
    /// # Panics
    /// When the folder cannot be read.
    #[must_use]
    pub fn dump_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        read_all(self.folder.path(), &mut bytes).expect("a readable data folder");
        bytes
    }

    /// Whether `needle` stands in any byte that the server keeps on disk.
    ///
    /// # Panics
    /// As [`Self::dump_bytes`], and when `needle` is empty.
    #[must_use]
    pub fn disk_holds(&self, needle: &str) -> bool {
        self.dump_bytes().windows(needle.len()).any(|window| window == needle.as_bytes())
    }

    /// Rewrites the append-only file from the data as it is now and waits until that is done: deleted values are then gone
    /// from the disk.
    ///
    /// # Panics
    /// When it does not run or the rewrite does not end.
    pub fn rewrite_aof(&self) {
        self.command::<()>(&["BGREWRITEAOF"]);
        let idle = || ["aof_rewrite_in_progress", "aof_rewrite_scheduled"].iter().all(|f| self.info(f) == "0").then_some(());
        poll::blocking(START, idle).expect("a finished rewrite");
    }

    /// A client of a proxy or of this server: `redis::Client` for `addr`.
    ///
    /// # Panics
    /// Never for an address.
    #[must_use]
    pub fn client_at(addr: std::net::SocketAddr) -> Client {
        Client::open(format!("redis://{addr}")).expect("a well-formed URL")
    }

    fn pid(&self) -> u32 {
        self.running.as_ref().expect("a running redis-server").0.id()
    }

    fn info(&self, field: &str) -> String {
        let all: String = self.command(&["INFO"]);
        let prefix = format!("{field}:");
        all.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap_or_default().trim().to_owned()
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("server.log")
    }

    fn connect(&self) -> redis::RedisResult<Connection> {
        let connection = Self::client_at(self.addr()).get_connection_with_timeout(ANSWER)?;
        connection.set_read_timeout(Some(ANSWER))?;
        connection.set_write_timeout(Some(ANSWER))?;
        Ok(connection)
    }

    fn launch(&mut self) -> Result<(), String> {
        let fsync = match self.fsync {
            Fsync::Always => "always",
            Fsync::EverySecond => "everysec",
        };
        let log = File::options().create(true).append(true).open(self.log_file()).map_err(|e| e.to_string())?;
        let child = Command::new("redis-server")
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"])
            // One for each test that wants a database of its own.
            .args(["--databases", "64", "--appendfsync", fsync, "--dir"])
            .arg(self.folder.path())
            .args(&self.extra)
            .stdin(Stdio::null())
            .stderr(log.try_clone().map_err(|e| e.to_string())?)
            .stdout(log)
            .spawn();
        let mut child = match child {
            Ok(child) => child,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                panic!("redis-server is not installed: apt-get install redis-server")
            }
            Err(e) => return Err(e.to_string()),
        };
        match reaper::Reaper::guard(child.id(), Some(self.folder.path())) {
            Ok(reaper) => self.running = Some((child, reaper)),
            Err(e) => {
                drop(child.kill());
                drop(child.wait());
                return Err(e.to_string());
            }
        }
        self.await_pong().inspect_err(|_| self.kill_9())
    }

    fn await_pong(&mut self) -> Result<(), String> {
        let pid = self.pid().to_string();
        let answered = poll::blocking(START, || {
            if let Some((child, _)) = &mut self.running
                && let Ok(Some(status)) = child.try_wait()
            {
                return Some(Err(status.to_string()));
            }
            // The process id proves that it is our server that answers, and not one that took the port before it.
            let mut connection = self.connect().ok()?;
            let ready = connection.check_connection();
            let info: String = redis::cmd("INFO").arg("server").query(&mut connection).ok()?;
            let ours = info.lines().any(|line| line.strip_prefix("process_id:").is_some_and(|id| id.trim() == pid));
            (ready && ours).then_some(Ok(()))
        });
        answered.and_then(|outcome| outcome).map_err(|why| {
            let log = fs::read_to_string(self.log_file()).unwrap_or_default();
            format!("{why}; its log: {log}")
        })
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill_9();
    }
}

/// A key and what is left of its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyTtl {
    /// The key; bytes that are no UTF-8 are replaced.
    pub key: String,
    /// Time left to live; `None` for a key that never expires (rule S10 allows none).
    pub ttl: Option<Duration>,
}

/// A port nobody listens on at this moment.
fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("a bound address").port()
}

fn read_all(folder: &Path, into: &mut Vec<u8>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            read_all(&entry.path(), into)?;
        } else {
            match fs::read(entry.path()) {
                Ok(bytes) => into.extend(bytes),
                // A rewrite replaces files while we read.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn acknowledged_writes_survive_kill_9() {
        let mut server = RedisServer::start();
        let port = server.port;
        for n in 0..200 {
            server.command::<()>(&["SET", &format!("k{n}"), "v"]);
        }
        server.kill_9();
        assert!(server.connect().is_err(), "it is down");
        server.restart();
        assert_eq!((server.command::<u64>(&["DBSIZE"]), server.port), (200, port));
    }

    #[test]
    fn keys_are_listed_with_their_ttl() {
        let server = RedisServer::start();
        server.command::<()>(&["SET", "mortal", "v", "EX", "100"]);
        server.command::<()>(&["SET", "immortal", "v"]);
        let keys = server.all_keys_with_ttl();
        assert_eq!(
            keys.iter().map(|k| (k.key.as_str(), k.ttl.is_some())).collect::<Vec<_>>(),
            [("immortal", false), ("mortal", true)]
        );
        assert!(keys[1].ttl.is_some_and(|ttl| ttl > Duration::from_secs(90) && ttl <= Duration::from_secs(100)));
    }

    #[test]
    fn a_stopped_server_hangs_and_goes_on() {
        let server = RedisServer::start();
        server.stop_process();
        let mut hung = RedisServer::client_at(server.addr()).get_connection_with_timeout(Duration::from_millis(300));
        let silent = hung.as_mut().map_or(true, |c| {
            c.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout");
            redis::cmd("PING").query::<String>(c).is_err()
        });
        assert!(silent, "no answer while stopped");
        server.cont();
        assert_eq!(server.command::<String>(&["PING"]), "PONG");
    }

    #[test]
    fn a_full_server_refuses_writes_and_serves_reads() {
        let server = RedisServer::start();
        server.command::<()>(&["SET", "k", "v"]);
        server.set_maxmemory(1);
        let refused = redis::cmd("SET").arg("k2").arg("v").query::<()>(&mut server.connection());
        assert!(refused.is_err_and(|e| e.to_string().contains("OOM")), "refused as out of memory");
        assert_eq!(server.command::<String>(&["GET", "k"]), "v");
        server.set_maxmemory(0);
        server.command::<()>(&["SET", "k2", "v"]);
    }

    #[test]
    fn deleted_values_leave_the_disk_with_a_rewrite() {
        let server = RedisServer::start();
        server.command::<()>(&["SET", "k", "needle-in-the-file"]);
        server.command::<()>(&["DEL", "k"]);
        assert!(server.disk_holds("needle-in-the-file"), "the append-only file keeps it");
        server.rewrite_aof();
        poll::blocking(START, || (!server.disk_holds("needle-in-the-file")).then_some(())).expect("gone");
    }

    #[test]
    fn the_process_is_killed_on_drop_and_after_a_panic() {
        let addr = {
            let server = RedisServer::start();
            server.addr()
        };
        assert!(std::net::TcpStream::connect(addr).is_err(), "gone with its value");
        let addr = std::panic::catch_unwind(|| {
            let server = RedisServer::start();
            std::panic::panic_any(server.addr())
        })
        .expect_err("the panic above");
        let addr = *addr.downcast::<std::net::SocketAddr>().expect("an address");
        assert!(std::net::TcpStream::connect(addr).is_err(), "gone after the panic");
    }

    #[test]
    fn shared_is_one_server_and_tests_stay_apart_by_tenant() {
        let begin = Instant::now();
        assert_eq!(shared().url(), shared().url());
        let (one, two) = (crate::fixtures::unique("t"), crate::fixtures::unique("t"));
        shared().command::<()>(&["SET", &one, "1", "EX", "60"]);
        assert_eq!(shared().command::<Option<String>>(&["GET", &two]), None);
        assert!(begin.elapsed() < START);
    }
}
