//! Redis, alone, behind Sentinels or as a Cluster, through one multiplexed connection that reconnects by itself. Every command
//! has a bound in time, also while the server hangs, and a breaker answers at once while it is known to be down.

mod link;

use crate::ports::Stopwatch;
use crate::store_op;
use link::Link;
pub use link::RedisTls;
use parking_lot::Mutex;
use redis::{Cmd, ErrorKind, FromRedisValue, Pipeline, Script, ToRedisArgs};
use secrecy::SecretString;
use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use strata_core::{Fault, Reason, Timestamp};

/// Bounds of a [`RedisPool`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedisSettings {
    /// Longest wait for one answer.
    pub response_timeout: Duration,
    /// Longest wait for a connection, per attempt.
    pub connect_timeout: Duration,
    /// Attempts to reconnect before the waiting commands fail.
    pub retries: usize,
    /// Longest time of one operation with everything in it: waiting for a reconnect, sending a script anew.
    pub operation_timeout: Duration,
    /// Failures in a row after which the breaker opens.
    pub breaker_failures: u32,
    /// How long an open breaker refuses before it lets one operation through to try.
    pub breaker_pause: Duration,
}

impl Default for RedisSettings {
    fn default() -> Self {
        Self {
            response_timeout: Duration::from_millis(1_000),
            connect_timeout: Duration::from_millis(1_000),
            retries: 2,
            operation_timeout: Duration::from_millis(2_500),
            breaker_failures: 5,
            breaker_pause: Duration::from_millis(500),
        }
    }
}

/// Keys asked for in one step of a scan.
const SCAN_KEYS: usize = 512;

/// What can go wrong. Holds no message of the server: it may quote arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedisError {
    /// `maxmemory` is reached and nothing may be evicted; nothing was written.
    #[error("the store is full")]
    Full,
    /// The server is a replica, moved the slot, is loading or is about to fail over; nothing was written.
    #[error("the store takes no writes at this address")]
    NotWritable,
    /// No connection, or no answer in time; a write may have happened.
    #[error("the store does not answer")]
    Unavailable,
    /// The breaker is open: the store failed several times in a row a moment ago. Nothing was sent.
    #[error("the store failed several times in a row and is left alone for a moment")]
    Paused,
    /// User name or password are wrong.
    #[error("the store refused the credentials")]
    Refused,
    /// A defect: wrong command, wrong script, unexpected type.
    #[error("the command failed")]
    Other,
}

impl From<&redis::RedisError> for RedisError {
    fn from(error: &redis::RedisError) -> Self {
        if error.is_timeout() || error.is_io_error() || error.is_connection_dropped() || error.is_connection_refusal() {
            return Self::Unavailable;
        }
        // Nobody knows a master, or the node of the slot is gone.
        if matches!(
            error.kind(),
            ErrorKind::MasterNameNotFoundBySentinel
                | ErrorKind::NoValidReplicasFoundBySentinel
                | ErrorKind::EmptySentinelList
                | ErrorKind::ClusterConnectionNotFound
        ) {
            return Self::Unavailable;
        }
        // Of a pipeline the first failure counts: in a transaction the later ones only follow from it.
        let in_pipeline =
            error.clone().into_server_errors().and_then(|errors| errors.first().map(|(_, first)| first.code().to_owned()));
        match in_pipeline.as_deref().or(error.code()) {
            Some("OOM") => Self::Full,
            Some(
                "READONLY" | "LOADING" | "MOVED" | "ASK" | "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN" | "NOREPLICAS" | "MISCONF"
                | "BUSY" | "UNBLOCKED",
            ) => Self::NotWritable,
            Some("NOAUTH" | "WRONGPASS" | "NOPERM") => Self::Refused,
            Some(_) => Self::Other,
            None if error.kind() == ErrorKind::AuthenticationFailed => Self::Refused,
            None => Self::Other,
        }
    }
}

impl From<RedisError> for Fault {
    fn from(error: RedisError) -> Self {
        match error {
            RedisError::Full => Self::new(Reason::StoreFull, "the Redis store is full; nothing was written").retry_after(5_000),
            RedisError::NotWritable => {
                Self::new(Reason::StoreUnavailable, "the Redis store takes no writes for now (loading, replica or failing over)")
                    .retry_after(1_000)
            }
            RedisError::Unavailable | RedisError::Paused => Self::unavailable("Redis"),
            RedisError::Refused => Self::new(Reason::StoreUnavailable, "the Redis store refused the service's credentials"),
            RedisError::Other => Self::new(Reason::Internal, "a command of the service failed"),
        }
    }
}

impl RedisError {
    /// Whether it tells of the store's health: only such failures open the breaker.
    const fn is_outage(self) -> bool {
        match self {
            Self::Unavailable => true,
            Self::Full | Self::NotWritable | Self::Paused | Self::Refused | Self::Other => false,
        }
    }
}

/// Counts failures in a row. Closed: all pass. Open: none pass until the pause is over. Then one passes to try: its
/// success closes, its failure opens again.
#[derive(Debug)]
struct Breaker {
    failures: u32,
    pause: Duration,
    state: Mutex<BreakerState>,
}

#[derive(Debug, Default)]
struct BreakerState {
    in_a_row: u32,
    open_since: Option<Stopwatch>,
}

impl Breaker {
    fn pass(&self) -> Result<(), RedisError> {
        let mut state = self.state.lock();
        match state.open_since {
            Some(since) if since.elapsed() < self.pause => Err(RedisError::Paused),
            Some(_) => {
                // This one tries; the others wait another pause for its outcome.
                state.open_since = Some(Stopwatch::start());
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn record(&self, outage: bool) {
        let mut state = self.state.lock();
        if !outage {
            *state = BreakerState::default();
            return;
        }
        state.in_a_row = state.in_a_row.saturating_add(1);
        if state.in_a_row >= self.failures {
            if state.in_a_row == self.failures {
                tracing::warn!(failures = self.failures, "Redis fails; calls are refused for a moment");
            }
            state.open_since = Some(Stopwatch::start());
        }
    }
}

/// The command's own word: the first argument of every command is the program's, never a caller's.
fn name_of(argument: redis::Arg<&[u8]>) -> String {
    if let redis::Arg::Simple(name) = argument { String::from_utf8_lossy(name).into_owned() } else { String::new() }
}

/// The command's name, for spans and metrics.
fn named(command: &Cmd) -> String {
    command.args_iter().next().map(name_of).unwrap_or_default()
}

/// A Redis server, cheap to clone. There is no pool of connections: one is multiplexed.
#[derive(Clone)]
pub struct RedisPool {
    link: Arc<Link>,
    breaker: Arc<Breaker>,
    operation_timeout: Duration,
}

impl std::fmt::Debug for RedisPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The URL holds a password.
        f.write_str("RedisPool(..)")
    }
}

impl RedisPool {
    /// Prepares a connection to `url`: `redis://user:password@host:port/db`, `redis+sentinel://host:port,host:port/service/db`,
    /// `redis+cluster://host:port,host:port`, each with `rediss` for TLS; connects at the first operation, so that a role starts,
    /// and says that it is not ready, while Redis is down. Inside a tokio runtime.
    ///
    /// # Errors
    /// `INVALID_FIELD` naming `redis.url`, without the URL.
    pub fn connect(url: &SecretString, settings: RedisSettings) -> Result<Self, Fault> {
        Self::connect_tls(url, &RedisTls::default(), settings)
    }

    /// [`RedisPool::connect`] with certificates other than the system's.
    ///
    /// # Errors
    /// As [`RedisPool::connect`]; naming `redis.ca_file` when a certificate is none.
    pub fn connect_tls(url: &SecretString, tls: &RedisTls, settings: RedisSettings) -> Result<Self, Fault> {
        let link = Link::to(url, tls, settings)?;
        let breaker =
            Breaker { failures: settings.breaker_failures.max(1), pause: settings.breaker_pause, state: Mutex::default() };
        Ok(Self { link, breaker: Arc::new(breaker), operation_timeout: settings.operation_timeout })
    }

    /// Runs a Lua script by its hash, sending its text only when the server does not have it. `keys` and `args` are slices
    /// or tuples. Every key must be in `keys`, so that the script runs on a cluster.
    ///
    /// # Errors
    /// [`RedisError`].
    pub async fn script<T: FromRedisValue>(
        &self,
        script: &Script,
        keys: &[impl ToRedisArgs + Sync],
        args: impl ToRedisArgs + Send + Sync,
    ) -> Result<T, RedisError> {
        let mut invocation = script.prepare_invoke();
        for key in keys {
            invocation.key(key);
        }
        invocation.arg(args);
        let work = async {
            let mut connection = self.link.connection().await?;
            invocation.invoke_async(&mut connection).await
        };
        self.bounded("EVALSHA", work).await
    }

    /// Runs one command.
    ///
    /// # Errors
    /// [`RedisError`].
    pub async fn command<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, RedisError> {
        self.bounded(&named(command), async { command.query_async(&mut self.link.connection().await?).await }).await
    }

    /// Runs one command that names no key, on the server that holds `key`.
    ///
    /// # Errors
    /// [`RedisError`].
    pub async fn command_at<T: FromRedisValue>(&self, key: &str, command: &Cmd) -> Result<T, RedisError> {
        self.bounded(&named(command), async { self.link.connection().await?.query_at(key, command).await }).await
    }

    /// Names the present lives of all servers that hold keys: it is another name after a restart or a failover, which may have lost
    /// what was written last. None where a server does not say (an ACL without `@dangerous`).
    ///
    /// # Errors
    /// [`RedisError`] of an outage.
    pub async fn lives(&self) -> Result<Option<String>, RedisError> {
        let servers = self.bounded("CLUSTER", async { self.link.connection().await?.servers().await }).await?;
        let mut lives = Vec::with_capacity(servers.len());
        for server in servers {
            let mut info = redis::cmd("INFO");
            info.arg("server");
            let ask = async { self.link.connection().await?.query_on::<String>(server, &info).await };
            let said = match self.bounded("INFO", ask).await {
                Ok(said) => said,
                Err(RedisError::Refused | RedisError::Other) => return Ok(None),
                Err(error) => return Err(error),
            };
            let Some(life) = said.lines().find_map(|line| line.strip_prefix("run_id:")) else { return Ok(None) };
            lives.push(life.trim().to_owned());
        }
        Ok(Some(lives.join(" ")))
    }

    /// Names of the keys of one type (`hash`, `string` ...) that begin with `prefix`, on every server of a Cluster, each once and
    /// in order. What is written meanwhile may be there or not. `prefix` holds no character that a pattern gives a meaning to.
    ///
    /// # Errors
    /// [`RedisError`].
    pub async fn scan(&self, prefix: &str, kind: &str) -> Result<Vec<String>, RedisError> {
        let servers = self.bounded("CLUSTER", async { self.link.connection().await?.servers().await }).await?;
        let mut seen = BTreeSet::new();
        for server in servers {
            let mut cursor = 0_u64;
            loop {
                let mut scan = redis::cmd("SCAN");
                scan.arg(cursor).arg("MATCH").arg(format!("{prefix}*")).arg("COUNT").arg(SCAN_KEYS).arg("TYPE").arg(kind);
                let step = async { self.link.connection().await?.query_on(server, &scan).await };
                let (next, keys): (u64, Vec<String>) = self.bounded("SCAN", step).await?;
                // SCAN may return a key twice.
                seen.extend(keys);
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
        }
        Ok(seen.into_iter().collect())
    }

    /// Runs several commands in one round trip; in one transaction if the pipeline is `atomic`.
    ///
    /// # Errors
    /// [`RedisError`].
    pub async fn pipeline<T: FromRedisValue>(&self, pipeline: &Pipeline) -> Result<T, RedisError> {
        self.bounded("PIPELINE", async { pipeline.query_async(&mut self.link.connection().await?).await }).await
    }

    /// Whether the server answers.
    ///
    /// # Errors
    /// [`RedisError`].
    pub async fn ping(&self) -> Result<(), RedisError> {
        self.command::<String>(&redis::cmd("PING")).await.map(|_| ())
    }

    /// The server's time: one clock for all clients, whatever theirs say.
    ///
    /// # Errors
    /// [`RedisError`].
    pub async fn time(&self) -> Result<Timestamp, RedisError> {
        let (seconds, micros): (i64, i64) = self.command(&redis::cmd("TIME")).await?;
        Ok(Timestamp::from_seconds(seconds).plus(micros))
    }

    async fn bounded<T>(&self, name: &str, operation: impl Future<Output = redis::RedisResult<T>>) -> Result<T, RedisError> {
        store_op::operation("redis", "", name, self.within_bounds(operation)).await
    }

    async fn within_bounds<T>(&self, operation: impl Future<Output = redis::RedisResult<T>>) -> Result<T, RedisError> {
        self.breaker.pass()?;
        let outcome = match tokio::time::timeout(self.operation_timeout, operation).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                let mapped = RedisError::from(&error);
                // A master that is gone, hangs or became a replica: the next operation looks for the new one.
                if matches!(mapped, RedisError::Unavailable | RedisError::NotWritable) {
                    self.link.distrust();
                }
                // Kind and code alone: the server's text may quote arguments.
                tracing::warn!(kind = ?error.kind(), code = error.code(), %mapped, "a Redis operation failed");
                Err(mapped)
            }
            Err(_) => {
                self.link.distrust();
                Err(RedisError::Unavailable)
            }
        };
        self.breaker.record(outcome.as_ref().is_err_and(|error| error.is_outage()));
        outcome
    }
}
