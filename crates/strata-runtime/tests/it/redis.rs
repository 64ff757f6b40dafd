//! The Redis connection against real servers that hang, fill up, die and come back.

use ::redis::{Script, cmd, pipe};
use std::time::Duration;
use strata_core::{Code, Fault, Reason};
use strata_runtime::ports::Stopwatch;
use strata_runtime::redis_store::{RedisError, RedisPool, RedisSettings};
use strata_testkit::{FaultProxy, Mode, RedisServer, eventually};

/// Far above the time that [`quick`] gives to an operation, on a busy machine too, and far below for ever.
const BOUNDED: Duration = Duration::from_secs(5);

fn quick() -> RedisSettings {
    RedisSettings {
        response_timeout: Duration::from_millis(400),
        connect_timeout: Duration::from_millis(400),
        retries: 1,
        operation_timeout: Duration::from_millis(1_000),
        breaker_failures: 3,
        breaker_pause: Duration::from_millis(1_000),
    }
}

fn pool(url: String, settings: RedisSettings) -> RedisPool {
    RedisPool::connect(&url.into(), settings).expect("url")
}

#[tokio::test]
async fn scripts_commands_pipelines_and_time() {
    let server = RedisServer::start();
    let pool = pool(server.url(), RedisSettings::default());
    let script = Script::new("redis.call('SET', KEYS[1], ARGV[1]); return {ARGV[2], redis.call('GET', KEYS[1])}");
    let answer: (i64, String) = pool.script(&script, &["{u}:k"], ("值 \0 \u{1f600}", 7)).await.expect("first: the text is sent");
    assert_eq!(answer, (7, "值 \0 \u{1f600}".into()));
    server.command::<()>(&["SCRIPT", "FLUSH"]);
    let _: (i64, String) = pool.script(&script, &["{u}:k"], ("x", 7)).await.expect("the server forgot it");
    let many: Vec<Vec<u8>> = vec![b"x".to_vec(), b"8".to_vec()];
    let answer: (i64, String) = pool.script(&script, &["{u}:k"], many.as_slice()).await.expect("a slice of arguments");
    assert_eq!(answer.0, 8);
    let (a, b): (u64, u64) = pool.pipeline(pipe().atomic().cmd("INCR").arg("n").cmd("INCR").arg("n")).await.expect("pipeline");
    assert_eq!((a, b), (1, 2));
    let time = pool.time().await.expect("time");
    assert!(time.micros() > 1_767_225_600_000_000, "microseconds: {time:?}");
    assert_eq!(pool.command::<u64>(cmd("GET").arg("{u}:k")).await, Err(RedisError::Other), "a defect is not an outage");
    let broken = Script::new("return redis.call('NOSUCH', 'the secret')");
    assert_eq!(pool.script::<()>(&broken, &["k"], "").await, Err(RedisError::Other));
    pool.ping().await.expect("and does not open the breaker");
}

#[tokio::test]
async fn c119_a_silent_redis_costs_a_bounded_time_and_then_none() {
    let server = RedisServer::start();
    let pool = pool(server.url(), quick());
    pool.ping().await.expect("up");
    server.stop_process();
    for _ in 0..3 {
        let watch = Stopwatch::start();
        assert_eq!(pool.ping().await, Err(RedisError::Unavailable));
        assert!(watch.elapsed() < BOUNDED, "{:?}", watch.elapsed());
    }
    let watch = Stopwatch::start();
    assert_eq!(pool.ping().await, Err(RedisError::Paused), "the breaker answers");
    assert!(watch.elapsed() < quick().operation_timeout, "without asking: {:?}", watch.elapsed());
    let fault = Fault::from(RedisError::Paused);
    assert_eq!((fault.reason.code(), fault.retry_after_ms.is_some()), (Code::Unavailable, true));
    server.cont();
    eventually(Duration::from_secs(10), || async { pool.ping().await.is_ok() }).await;
    for _ in 0..10 {
        pool.ping().await.expect("closed again");
    }
}

#[tokio::test]
async fn c119_an_address_that_accepts_and_never_answers() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let watch = Stopwatch::start();
    let pool = pool(format!("redis://{}", silent.local_addr().expect("address")), quick());
    assert!(watch.elapsed() < quick().operation_timeout, "start-up does not wait");
    assert_eq!(pool.ping().await, Err(RedisError::Unavailable));
    assert!(watch.elapsed() < BOUNDED, "{:?}", watch.elapsed());
}

#[tokio::test]
async fn c122_a_full_redis_refuses_writes_and_still_reads_and_deletes() {
    let server = RedisServer::start();
    let pool = pool(server.url(), quick());
    pool.command::<()>(cmd("SET").arg("k").arg("v")).await.expect("room");
    server.set_maxmemory(1);
    let script = Script::new("redis.call('SET', KEYS[1], ARGV[1]); return 1");
    assert_eq!(pool.script::<u64>(&script, &["k2"], "v").await, Err(RedisError::Full), "in a script");
    assert_eq!(pool.command::<()>(cmd("SET").arg("k2").arg("v")).await, Err(RedisError::Full));
    assert_eq!(pool.pipeline::<()>(pipe().cmd("SET").arg("k2").arg("v")).await, Err(RedisError::Full), "in a pipeline");
    assert_eq!(
        pool.pipeline::<()>(pipe().atomic().cmd("SET").arg("k2").arg("v")).await,
        Err(RedisError::Full),
        "in a transaction"
    );
    assert_eq!(Fault::from(RedisError::Full).reason, Reason::StoreFull);
    assert_eq!(pool.command::<String>(cmd("GET").arg("k")).await.as_deref(), Ok("v"), "the breaker stays closed");
    assert_eq!(pool.command::<u64>(cmd("DEL").arg("k")).await, Ok(1));
    server.set_maxmemory(0);
    assert_eq!(pool.script::<u64>(&script, &["k2"], "v").await, Ok(1));
}

#[tokio::test]
async fn a_replica_is_not_writable_and_wrong_credentials_are_told_apart() {
    let server = RedisServer::start();
    let pool = pool(server.url(), quick());
    server.command::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
    assert_eq!(pool.command::<()>(cmd("SET").arg("k").arg("v")).await, Err(RedisError::NotWritable));
    let script = Script::new("return redis.call('SET', KEYS[1], ARGV[1])");
    assert_eq!(pool.script::<()>(&script, &["k"], "v").await, Err(RedisError::NotWritable), "in a script");
    server.command::<()>(&["REPLICAOF", "NO", "ONE"]);
    server.command::<()>(&["CONFIG", "SET", "requirepass", "right"]);
    for url in [server.url(), server.url().replace("//", "//:wrong@")] {
        let stranger = RedisPool::connect(&url.into(), quick()).expect("url");
        assert_eq!(stranger.ping().await, Err(RedisError::Refused));
    }
    let known = RedisPool::connect(&server.url().replace("//", "//:right@").into(), quick()).expect("url");
    known.ping().await.expect("known");
    assert_eq!(format!("{known:?}"), "RedisPool(..)", "no password in a log");
}

#[tokio::test]
async fn c118_a_restart_between_two_operations_loses_nothing() {
    let mut server = RedisServer::start();
    let pool = pool(server.url(), RedisSettings::default());
    pool.command::<()>(cmd("SET").arg("turn").arg("1")).await.expect("first");
    server.restart();
    eventually(Duration::from_secs(10), || async { pool.command::<()>(cmd("SET").arg("turn2").arg("2")).await.is_ok() }).await;
    assert_eq!(pool.command::<(u64, u64)>(cmd("MGET").arg("turn").arg("turn2")).await, Ok((1, 2)));
}

#[tokio::test]
async fn a_cut_connection_is_made_anew() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let pool = pool(proxy.url("redis"), quick());
    pool.ping().await.expect("up");
    for fault in [Mode::Reset, Mode::Refuse, Mode::BlackHole, Mode::CutAfter(3)] {
        proxy.set(fault);
        let failed = pool.ping().await;
        assert!(matches!(failed, Err(RedisError::Unavailable | RedisError::Paused)), "{fault:?}: {failed:?}");
        proxy.set(Mode::Pass);
        eventually(Duration::from_secs(10), || async { pool.ping().await.is_ok() }).await;
    }
}

#[test]
fn a_bad_url_is_refused_without_showing_it() {
    for url in ["", "hunter2", "http://hunter2@x", "redis://:hunter2@[bad"] {
        let fault = RedisPool::connect(&url.to_owned().into(), quick()).expect_err(url);
        assert_eq!(fault.reason, Reason::InvalidField);
        assert!(!fault.message.contains("hunter2"));
    }
}
