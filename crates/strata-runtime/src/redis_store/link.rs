//! Where the server is: one address, the master that Sentinels name, or the nodes of a Cluster. Commands do not see which.

use super::RedisSettings;
use parking_lot::Mutex;
use redis::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, Slot, SlotAddr};
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, FromRedisValue, Pipeline, RedisFuture, RedisResult,
    TlsCertificates, TlsMode, Value,
};
use secrecy::{ExposeSecret, SecretString};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use strata_core::Fault;

/// Forms of the URL, for people.
const FORMS: &str = "must be redis://[user[:password]@]host[:port][/db], redis+unix:///path, \
    redis+sentinel://[user[:password]@]host[:port][,host[:port]...]/service[/db] or \
    redis+cluster://[user[:password]@]host[:port][,host[:port]...]; rediss instead of redis for TLS";
/// Sentinels or nodes that one URL may name.
const HOSTS: usize = 16;

/// Certificates of a TLS connection, in PEM; the system's roots count where none is given.
#[derive(Clone, Default)]
pub struct RedisTls {
    /// Roots that may sign the server's certificate.
    pub ca: Option<Vec<u8>>,
    /// Our certificate and its key, where the server asks for one.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
}

impl std::fmt::Debug for RedisTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RedisTls(..)")
    }
}

impl RedisTls {
    fn certificates(&self) -> TlsCertificates {
        let client = self.client.clone().map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
        TlsCertificates { client_tls: client, root_cert: self.ca.clone() }
    }
}

/// An address list with what stands around it in the URL.
#[derive(Debug, PartialEq, Eq)]
struct Hosts {
    tls: bool,
    user: Option<String>,
    password: Option<String>,
    hosts: Vec<(String, u16)>,
    path: Vec<String>,
}

/// Reads `scheme://[user[:password]@]host[:port],.../path`. The credentials are percent-decoded.
fn hosts(rest: &str, tls: bool, port: u16) -> Option<Hosts> {
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (credentials, list) = authority.rsplit_once('@').map_or((None, authority), |(c, list)| (Some(c), list));
    let (user, password) = match credentials.map(|c| c.split_once(':').unwrap_or((c, ""))) {
        Some((user, password)) => (decoded(user)?, decoded(password)?),
        None => (String::new(), String::new()),
    };
    let given = |text: String| Some(text).filter(|text| !text.is_empty());
    let mut hosts = Vec::new();
    for part in list.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        // An IPv6 address stands in brackets.
        let (host, number) = match part.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, rest)) => (host, rest.strip_prefix(':')),
            None => part.rsplit_once(':').map_or((part, None), |(host, number)| (host, Some(number))),
        };
        let number = number.map_or(Some(port), |number| number.parse().ok())?;
        if host.is_empty() {
            return None;
        }
        hosts.push((host.to_owned(), number));
    }
    let path = path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
    (!hosts.is_empty() && hosts.len() <= HOSTS).then_some(Hosts {
        tls,
        user: given(user),
        password: given(password),
        hosts,
        path,
    })
}

fn decoded(text: &str) -> Option<String> {
    percent_encoding::percent_decode_str(text).decode_utf8().ok().map(std::borrow::Cow::into_owned)
}

impl Hosts {
    fn addresses(&self) -> Vec<ConnectionAddr> {
        let address = |(host, port): &(String, u16)| {
            if self.tls {
                ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: false, tls_params: None }
            } else {
                ConnectionAddr::Tcp(host.clone(), *port)
            }
        };
        self.hosts.iter().map(address).collect()
    }
}

/// A connection that is open.
#[derive(Clone)]
pub(super) enum Connection {
    Single(ConnectionManager),
    Master(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Connection {
    /// Runs a command on the server that holds `key`.
    pub(super) async fn query_at<T: FromRedisValue>(&mut self, key: &str, command: &Cmd) -> RedisResult<T> {
        self.query_on(Slot::for_key(key), command).await
    }

    /// Runs a command on the server that holds `slot`; where there is but one, on that.
    pub(super) async fn query_on<T: FromRedisValue>(&mut self, slot: Slot, command: &Cmd) -> RedisResult<T> {
        match self {
            Self::Single(connection) => command.query_async(connection).await,
            Self::Master(connection) => command.query_async(connection).await,
            Self::Cluster(connection) => {
                let route = SingleNodeRoutingInfo::SpecificNode(Route::with_slot(slot, SlotAddr::Master));
                let value = connection.route_command(command.clone(), RoutingInfo::SingleNode(route)).await?;
                Ok(T::from_redis_value(value)?)
            }
        }
    }
}

impl Connection {
    /// A slot of every server that holds any: together they hold every key.
    pub(super) async fn servers(&mut self) -> RedisResult<Vec<Slot>> {
        let Self::Cluster(connection) = self else { return Ok(Slot::new(0).into_iter().collect()) };
        // First and last slot of a range, then its servers, the master first: address, port, id.
        let ranges: Vec<Vec<Value>> = redis::cmd("CLUSTER").arg("SLOTS").query_async(connection).await?;
        let mut servers = BTreeMap::new();
        for range in ranges {
            let mut parts = range.into_iter();
            let (Some(first), Some(master)) = (parts.next(), parts.nth(1)) else { continue };
            let Some(id) = Vec::<Value>::from_redis_value(master)?.into_iter().nth(2) else { continue };
            if let Some(slot) = Slot::new(u16::from_redis_value(first)?) {
                servers.insert(String::from_redis_value(id)?, slot);
            }
        }
        if servers.is_empty() {
            return Err(redis::RedisError::from((redis::ErrorKind::ClusterConnectionNotFound, "no server holds a slot")));
        }
        Ok(servers.into_values().collect())
    }
}

impl ConnectionLike for Connection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::Single(connection) => connection.req_packed_command(cmd),
            Self::Master(connection) => connection.req_packed_command(cmd),
            Self::Cluster(connection) => connection.req_packed_command(cmd),
        }
    }

    fn req_packed_commands<'a>(&'a mut self, pipeline: &'a Pipeline, offset: usize, count: usize) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::Single(connection) => connection.req_packed_commands(pipeline, offset, count),
            Self::Master(connection) => connection.req_packed_commands(pipeline, offset, count),
            Self::Cluster(connection) => connection.req_packed_commands(pipeline, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::Single(connection) => connection.get_db(),
            Self::Master(connection) => connection.get_db(),
            Self::Cluster(connection) => connection.get_db(),
        }
    }
}

enum Target {
    /// Reconnects by itself.
    Single(ConnectionManager),
    /// The master is asked for anew after each failure of its connection.
    Sentinel { client: tokio::sync::Mutex<SentinelClient>, config: AsyncConnectionConfig },
    /// Follows redirections by itself, once its nodes are known.
    Cluster { client: ClusterClient, opening: tokio::sync::Mutex<()> },
}

/// The way to the server.
pub(super) struct Link {
    target: Target,
    open: Mutex<Option<Connection>>,
}

impl Link {
    /// Reads the URL; connects at the first operation.
    ///
    /// # Errors
    /// `INVALID_FIELD` naming `redis.url`, without the URL.
    pub(super) fn to(url: &SecretString, tls: &RedisTls, settings: RedisSettings) -> Result<Arc<Self>, Fault> {
        let wrong = || Fault::field("redis.url", FORMS);
        let url = url.expose_secret();
        let several = |prefix: &str, port: u16| {
            let plain = url.strip_prefix(&format!("redis+{prefix}://")).map(|rest| hosts(rest, false, port));
            plain.or_else(|| url.strip_prefix(&format!("rediss+{prefix}://")).map(|rest| hosts(rest, true, port)))
        };
        let target = if let Some(named) = several("sentinel", 26_379) {
            sentinel(&named.ok_or_else(wrong)?, tls, settings).ok_or_else(wrong)?
        } else if let Some(named) = several("cluster", 6_379) {
            cluster(&named.ok_or_else(wrong)?, tls, settings).ok_or_else(wrong)?
        } else {
            Target::Single(single(url, tls, settings).map_err(|_| wrong())?)
        };
        Ok(Arc::new(Self { target, open: Mutex::new(None) }))
    }

    /// A connection, opened if there is none.
    pub(super) async fn connection(&self) -> RedisResult<Connection> {
        if let Some(open) = self.opened() {
            return Ok(open);
        }
        let fresh = match &self.target {
            Target::Single(manager) => return Ok(Connection::Single(manager.clone())),
            Target::Sentinel { client, config } => {
                // One asks the Sentinels, the others wait for its answer.
                let mut client = client.lock().await;
                if let Some(open) = self.opened() {
                    return Ok(open);
                }
                Connection::Master(client.get_async_connection_with_config(config).await?)
            }
            Target::Cluster { client, opening } => {
                let _one = opening.lock().await;
                if let Some(open) = self.opened() {
                    return Ok(open);
                }
                Connection::Cluster(client.get_async_connection().await?)
            }
        };
        *self.open.lock() = Some(fresh.clone());
        Ok(fresh)
    }

    fn opened(&self) -> Option<Connection> {
        self.open.lock().clone()
    }

    /// After a failure that another address may not have: the next operation asks the Sentinels anew. A single server's
    /// connection reconnects, and a Cluster's looks for its nodes, by itself.
    pub(super) fn distrust(&self) {
        match &self.target {
            Target::Single(_) | Target::Cluster { .. } => {}
            Target::Sentinel { .. } => *self.open.lock() = None,
        }
    }
}

fn single(url: &str, tls: &RedisTls, settings: RedisSettings) -> RedisResult<ConnectionManager> {
    let client = if url.starts_with("rediss") { Client::build_with_tls(url, tls.certificates())? } else { Client::open(url)? };
    let config = ConnectionManagerConfig::new()
        .set_response_timeout(Some(settings.response_timeout))
        .set_connection_timeout(Some(settings.connect_timeout))
        .set_number_of_retries(settings.retries)
        .set_min_delay(Duration::from_millis(50))
        .set_max_delay(Duration::from_millis(500));
    ConnectionManager::new_lazy_with_config(client, config)
}

fn sentinel(named: &Hosts, tls: &RedisTls, settings: RedisSettings) -> Option<Target> {
    let (service, rest) = named.path.split_first()?;
    let db: i64 = match rest {
        [] => 0,
        [db] => db.parse().ok()?,
        _ => return None,
    };
    let mut builder =
        SentinelClientBuilder::new(named.addresses(), service, SentinelServerType::Master).ok()?.set_client_to_redis_db(db);
    if named.tls {
        builder = builder
            .set_client_to_redis_tls_mode(TlsMode::Secure)
            .set_client_to_redis_certificates(tls.certificates())
            .set_client_to_sentinel_tls_mode(TlsMode::Secure)
            .set_client_to_sentinel_certificates(tls.certificates());
    }
    if let Some(user) = &named.user {
        builder = builder.set_client_to_redis_username(user);
    }
    if let Some(password) = &named.password {
        builder = builder.set_client_to_redis_password(password);
    }
    let config = AsyncConnectionConfig::new()
        .set_response_timeout(Some(settings.response_timeout))
        .set_connection_timeout(Some(settings.connect_timeout));
    Some(Target::Sentinel { client: tokio::sync::Mutex::new(builder.build().ok()?), config })
}

fn cluster(named: &Hosts, tls: &RedisTls, settings: RedisSettings) -> Option<Target> {
    if !named.path.is_empty() {
        return None;
    }
    let nodes = named.addresses();
    let mut builder = ClusterClient::builder(nodes)
        .response_timeout(settings.response_timeout)
        .connection_timeout(settings.connect_timeout)
        .retries(u32::try_from(settings.retries).unwrap_or(u32::MAX));
    if named.tls {
        builder = builder.tls(TlsMode::Secure).certs(tls.certificates());
    }
    if let Some(user) = &named.user {
        builder = builder.username(user);
    }
    if let Some(password) = &named.password {
        builder = builder.password(password);
    }
    Some(Target::Cluster { client: builder.build().ok()?, opening: tokio::sync::Mutex::new(()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_several_hosts_a_service_and_credentials() {
        let named = hosts("app:p%40ss%3Aw@a:1,b,[::1]:7/mymaster/3", true, 26_379).expect("legal");
        assert_eq!(named.hosts, [("a".to_owned(), 1), ("b".to_owned(), 26_379), ("::1".to_owned(), 7)]);
        assert_eq!((named.user.as_deref(), named.password.as_deref()), (Some("app"), Some("p@ss:w")));
        assert_eq!(named.path, ["mymaster", "3"]);
        let named = hosts(":pw@a", false, 6_379).expect("legal");
        assert_eq!((named.user, named.password.as_deref()), (None, Some("pw")));
        for wrong in ["", "a:x", ":1", "a:70000", "user:%ff@a"] {
            assert_eq!(hosts(wrong, false, 1), None, "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_wrong_url_is_named_and_not_shown() {
        for url in [
            "redis+sentinel://a:1",
            "redis+sentinel://a:1/m/x",
            "redis+sentinel:///m",
            "redis+cluster://a:1/0",
            "redis+cluster://",
            "http://secret@a",
            "secret",
        ] {
            let fault = Link::to(&url.to_owned().into(), &RedisTls::default(), RedisSettings::default()).err().expect(url);
            assert!(fault.message.contains("redis.url") && !fault.message.contains("secret@"), "{}", fault.message);
        }
        for url in [
            "redis://a",
            "rediss://a",
            "redis+unix:///x",
            "redis+sentinel://a/m",
            "rediss+sentinel://u:p@a,b/m/2",
            "redis+cluster://a,b",
        ] {
            assert!(Link::to(&url.to_owned().into(), &RedisTls::default(), RedisSettings::default()).is_ok(), "{url}");
        }
    }
}
