//! A listener ends within its bound, whatever its clients do (case C180).

use crate::channels::{listen, public};
use crate::double::{Client, Double, ask};
use std::time::Duration;
use strata_core::Fault;
use strata_runtime::channel::{self, EndpointConfig};
use strata_runtime::server::{self, ServeConfig};
use strata_runtime::task::detached_write;
use strata_runtime::{RpcChannel, TaskGroup};
use strata_testkit::eventually;
use tokio::io::AsyncReadExt;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

fn connect(address: std::net::SocketAddr) -> RpcChannel {
    channel::connect(&EndpointConfig::new(format!("http://{address}"))).expect("url")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c180_shutdown_ends_within_its_limit() {
    let (tasks, double) = (TaskGroup::new(), Double::default());
    let health = strata_runtime::health::Health::new(&tasks, &[]);
    let routes = double.routes().add_service(health.server());
    let stack = strata_runtime::stack::public(
        routes,
        std::sync::Arc::new(strata_runtime::layer::auth::Authenticator::local(crate::channels::operator())),
        &strata_runtime::stack::StackDeps::new(strata_runtime::Ports::system()),
    );
    let config = ServeConfig { grace: Duration::from_millis(500), ..ServeConfig::default() };
    let address = listen(&tasks, stack, config).await;

    let mut idle = Vec::new();
    for _ in 0..20 {
        let mut client = Client::new(connect(address));
        client.get_status(ask("nothing")).await.expect("served");
        idle.push(client);
    }
    let mut half_open = Vec::new();
    for _ in 0..5 {
        half_open.push(tokio::net::TcpStream::connect(address).await.expect("connect"));
    }
    let mut streams = Vec::new();
    for _ in 0..3 {
        let mut client = HealthClient::new(connect(address));
        let mut stream = client.watch(HealthCheckRequest::default()).await.expect("watch").into_inner();
        stream.message().await.expect("first message");
        streams.push(stream);
    }
    // In flight: 50 that end when the gate opens and one that never does.
    let began = Double::count(&double.began);
    let mut calls = Vec::new();
    for n in 0..51 {
        let mut client = idle[n % idle.len()].clone();
        calls.push(tokio::spawn(async move { client.get_status(ask(if n == 50 { "hang" } else { "wait" })).await }));
    }
    eventually(Duration::from_secs(5), || async { Double::count(&double.began) == began + 51 }).await;

    let watch = strata_runtime::ports::Stopwatch::start();
    tasks.token().cancel();
    double.gate.0.add_permits(50);
    assert!(tasks.shutdown(Duration::from_secs(3)).await, "all ended");
    assert!(watch.elapsed() < Duration::from_secs(2), "within the grace period: {:?}", watch.elapsed());

    let hung = calls.pop().expect("the last").await.expect("no panic");
    assert!(hung.is_err(), "broken, not waited for");
    for call in calls {
        assert!(call.await.expect("no panic").is_ok(), "calls in flight finished");
    }
    for mut stream in half_open {
        // Zero bytes or a reset, but an end.
        let mut rest = Vec::new();
        drop(stream.read_to_end(&mut rest).await);
    }
    for mut stream in streams {
        while let Ok(Some(_)) = stream.message().await {}
    }
    let status = Client::new(connect(address)).get_status(ask("nothing")).await.expect_err("closed");
    assert_eq!(status.code(), Code::Unavailable);
}

#[tokio::test]
async fn an_idle_listener_ends_at_once() {
    let (tasks, double) = (TaskGroup::new(), Double::default());
    let address = listen(&tasks, public(&double), ServeConfig::default()).await;
    let mut client = Client::new(connect(address));
    client.get_status(ask("nothing")).await.expect("served");
    let watch = strata_runtime::ports::Stopwatch::start();
    assert!(tasks.shutdown(Duration::from_secs(10)).await);
    assert!(watch.elapsed() < Duration::from_secs(5), "not the whole grace: {:?}", watch.elapsed());
}

#[tokio::test]
async fn c060_a_detached_write_outlives_its_caller_and_shutdown_waits_for_it() {
    let tasks = TaskGroup::new();
    let (release, wait) = tokio::sync::oneshot::channel::<()>();
    let (started, running) = tokio::sync::oneshot::channel();
    let (done, mut ended) = tokio::sync::oneshot::channel();
    let caller = tasks.spawn("caller", async move {
        detached_write(async move {
            started.send(()).expect("awaited");
            wait.await.unwrap_or_default();
            done.send(()).expect("kept");
            Ok::<_, Fault>(())
        })
        .await
    });
    running.await.expect("started");
    caller.abort();
    assert!(caller.await.expect_err("aborted").is_cancelled());
    assert!(!tasks.shutdown(Duration::from_millis(50)).await, "the write still runs");
    drop(release);
    assert!(tasks.shutdown(Duration::from_secs(5)).await);
    assert!(ended.try_recv().is_ok(), "it went on to its end");

    let panicked = detached_write(async { if true { panic!("a defect") } else { Ok::<(), Fault>(()) } }).await;
    assert_eq!(panicked.expect_err("answered").reason, strata_core::Reason::Internal);
}

#[tokio::test]
async fn a_critical_task_that_ends_stops_the_group_and_is_named() {
    let tasks = TaskGroup::new();
    tasks.spawn_critical("relay", async { panic!("a defect") });
    tasks.token().cancelled().await;
    assert_eq!(tasks.failed(), Some("relay"));

    let tasks = TaskGroup::new();
    let token = tasks.token().clone();
    tasks.spawn_critical("relay", async move { token.cancelled().await });
    assert!(tasks.shutdown(Duration::from_secs(5)).await);
    assert_eq!(tasks.failed(), None, "ending at shutdown is no failure");
}

#[tokio::test]
async fn exposure_needs_credentials() {
    for (address, credentials, ok) in [
        ("127.0.0.1:1", false, true),
        ("[::1]:1", false, true),
        ("[::ffff:127.0.0.1]:1", false, true),
        ("0.0.0.0:1", false, false),
        ("[::]:1", false, false),
        ("10.0.0.1:1", false, false),
        ("0.0.0.0:1", true, true),
    ] {
        assert_eq!(server::check_exposure(address.parse().expect("address"), credentials).is_ok(), ok, "{address}");
    }
    let taken = server::bind(([127, 0, 0, 1], 0).into()).await.expect("bind");
    let refused = server::bind(taken.local_addr().expect("address")).await.expect_err("in use");
    assert_eq!(refused.fields.first().map(|f| f.field.as_str()), Some("listen"));
}

#[tokio::test]
async fn connections_over_the_bound_wait_and_are_served_later() {
    let (tasks, double) = (TaskGroup::new(), Double::default());
    let address = listen(&tasks, public(&double), ServeConfig { max_connections: 1, ..ServeConfig::default() }).await;
    let mut first = Client::new(connect(address));
    first.get_status(ask("nothing")).await.expect("served");
    let mut second = Client::new(connect(address));
    let mut hasty = ask("nothing");
    hasty.set_timeout(Duration::from_millis(200));
    assert!(second.get_status(hasty).await.is_err(), "no place yet");
    drop(first);
    eventually(Duration::from_secs(5), || {
        let mut second = second.clone();
        async move { second.get_status(ask("nothing")).await.is_ok() }
    })
    .await;
}

#[tokio::test]
async fn an_old_connection_ends_after_its_calls_and_the_next_call_makes_another() {
    let (tasks, double) = (TaskGroup::new(), Double::default());
    let age = Duration::from_millis(100);
    let config = ServeConfig { max_connections: 1, max_connection_age: age, ..ServeConfig::default() };
    let address = listen(&tasks, public(&double), config).await;
    let first = Client::new(connect(address));
    let mut calling = first.clone();
    let call = tokio::spawn(async move { calling.get_status(ask("wait")).await });
    eventually(Duration::from_secs(5), || async { Double::count(&double.began) == 1 }).await;
    strata_runtime::ports::pause(age * 3).await;
    double.gate.0.add_permits(1);
    call.await.expect("no panic").expect("a call that was there goes on");
    // Its place is free although its client is still there, and comes again.
    for client in [Client::new(connect(address)), first] {
        eventually(Duration::from_secs(5), || {
            let mut client = client.clone();
            async move { client.get_status(ask("nothing")).await.is_ok() }
        })
        .await;
    }
}

#[tokio::test]
async fn a_connection_that_says_nothing_gives_its_place_back() {
    let (tasks, double) = (TaskGroup::new(), Double::default());
    let config = ServeConfig { max_connections: 1, first_byte_timeout: Duration::from_millis(100), ..ServeConfig::default() };
    let address = listen(&tasks, public(&double), config).await;
    let mut silent = tokio::net::TcpStream::connect(address).await.expect("connect");
    let client = Client::new(connect(address));
    eventually(Duration::from_secs(5), || {
        let mut client = client.clone();
        async move { client.get_status(ask("nothing")).await.is_ok() }
    })
    .await;
    let mut rest = Vec::new();
    drop(silent.read_to_end(&mut rest).await);
    // One that has spoken may be idle for longer.
    let mut client = client;
    let mut wait = ask("wait");
    wait.set_timeout(Duration::from_millis(300));
    assert_eq!(client.get_status(wait).await.expect_err("its deadline").code(), Code::DeadlineExceeded);
    assert!(client.get_status(ask("nothing")).await.is_ok());
}
