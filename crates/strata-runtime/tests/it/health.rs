//! Latches and the health service.

use std::time::Duration;
use strata_runtime::TaskGroup;
use strata_runtime::channel;
use strata_runtime::health::{Health, LIVENESS};
use strata_testkit::eventually;
use tonic::service::Routes;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

const WORKING: &str = "strata.working.v1.WorkingMemoryService";
const SESSION: &str = "strata.session.v1.SessionMemoryService";

#[tokio::test]
async fn a_service_serves_when_its_last_latch_is_dropped_and_stops_at_shutdown() {
    let tasks = TaskGroup::new();
    let health = Health::new(&tasks, &[WORKING, SESSION]);
    let client = HealthClient::new(channel::local(Routes::new(health.server())));
    let status = |service: &'static str| {
        let mut client = client.clone();
        async move { client.check(HealthCheckRequest { service: service.into() }).await.map(|answer| answer.into_inner().status()) }
    };
    let becomes = |service: &'static str, wanted: ServingStatus| {
        let status = &status;
        eventually(Duration::from_secs(5), move || {
            let status = status(service);
            async move { status.await.ok() == Some(wanted) }
        })
    };
    let (redis, redis_too, disk) =
        (health.latch(SESSION, "redis"), health.latch(SESSION, "redis"), health.latch(SESSION, "disk"));
    becomes(WORKING, ServingStatus::Serving).await;
    becomes(SESSION, ServingStatus::NotServing).await;
    becomes("", ServingStatus::NotServing).await;
    becomes(LIVENESS, ServingStatus::Serving).await;
    assert_eq!(health.pending(), [(SESSION, vec!["disk", "redis"])]);
    drop((redis, disk));
    assert!(!health.is_ready());
    drop(redis_too);
    assert!(health.is_ready());
    becomes(SESSION, ServingStatus::Serving).await;
    becomes("", ServingStatus::Serving).await;
    let again = health.latch(SESSION, "redis");
    becomes(SESSION, ServingStatus::NotServing).await;
    drop(again);
    becomes("", ServingStatus::Serving).await;
    assert!(status("strata.nobody.v1.NoService").await.is_err());

    assert!(tasks.shutdown(Duration::from_secs(5)).await);
    for service in [WORKING, SESSION, ""] {
        becomes(service, ServingStatus::NotServing).await;
    }
    becomes(LIVENESS, ServingStatus::Serving).await;
    assert!(!health.is_ready());
}

#[tokio::test]
async fn what_probes_ask_over_http_is_what_health_says() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let tasks = TaskGroup::new();
    let health = Health::new(&tasks, &[SESSION]);
    let listener = strata_runtime::server::bind(([127, 0, 0, 1], 0).into()).await.expect("bind");
    let address = listener.local_addr().expect("address");
    let latch = health.latch(SESSION, "redis");
    strata_runtime::exposition::spawn(&tasks, listener, prometheus::Registry::new(), health);
    let ask = |method: &'static str, path: &'static str| async move {
        let mut stream = tokio::net::TcpStream::connect(address).await.expect("connect");
        let head = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("answered");
        answer.split(' ').nth(1).and_then(|code| code.parse::<u16>().ok())
    };
    assert_eq!(ask("GET", "/livez").await, Some(200), "a store that is away kills nobody");
    assert_eq!(ask("GET", "/readyz").await, Some(503));
    drop(latch);
    assert_eq!(ask("GET", "/readyz").await, Some(200));
    assert_eq!(ask("GET", "/metrics").await, Some(200));
    assert_eq!(ask("GET", "/").await, Some(404));
    assert_eq!(ask("POST", "/livez").await, Some(405));
}

#[tokio::test]
async fn a_signal_cancels_the_token_and_stops_everything() {
    use strata_runtime::lifecycle::{Lifecycle, Stop};
    let lifecycle = Lifecycle::new(&[WORKING]);
    let token = lifecycle.tasks.token().clone();
    let loop_token = token.clone();
    let task = lifecycle.tasks.spawn("loop", async move { loop_token.cancelled().await });
    let mut waiting = Box::pin(lifecycle.wait_for_signal());
    assert!(futures::poll!(&mut waiting).is_pending(), "the handlers are there from the first poll");
    let sent = std::process::Command::new("kill").args(["-TERM", &std::process::id().to_string()]).status();
    assert!(sent.expect("kill").success());
    assert_eq!(waiting.await, Ok(Stop::Terminate));
    assert!(token.is_cancelled());
    assert!(lifecycle.shutdown(Duration::from_secs(5)).await);
    task.await.expect("ended by itself");

    let lifecycle = Lifecycle::new(&[]);
    lifecycle.tasks.spawn_critical("relay", async {});
    assert_eq!(lifecycle.wait_for_signal().await, Ok(Stop::Cancelled), "a critical task that ended");
    assert_eq!(lifecycle.tasks.failed(), Some("relay"));
}
