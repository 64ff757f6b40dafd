//! The same calls over all kinds of channel: what holds for one holds for all.

use crate::double::{Client, Double, Smuggled, ask, reason};
use std::sync::Arc;
use std::time::Duration;
use strata_core::policy::authz::{Principal, Role};
use strata_core::{Reason, TenantId};
use strata_runtime::channel::{self, EndpointConfig};
use strata_runtime::duplex;
use strata_runtime::layer::auth::Authenticator;
use strata_runtime::server::{self, ServeConfig};
use strata_runtime::stack::{self, StackDeps};
use strata_runtime::{Ports, RpcChannel, TaskGroup};
use strata_testkit::{FaultProxy, Mode, eventually};
use tonic::Code;

pub fn operator() -> Principal {
    Principal {
        id: "local".into(),
        tenant: TenantId::new("t1").expect("id"),
        user: None,
        roles: Role::ALL.iter().copied().collect(),
    }
}

pub fn public(double: &Double) -> RpcChannel {
    stack::public(double.routes(), Arc::new(Authenticator::local(operator())), &StackDeps::new(Ports::system()))
}

/// A listener on a free port, served in `tasks`.
pub async fn listen(tasks: &TaskGroup, service: RpcChannel, config: ServeConfig) -> std::net::SocketAddr {
    let listener = server::bind(([127, 0, 0, 1], 0).into()).await.expect("bind");
    let address = listener.local_addr().expect("address");
    let token = tasks.token().clone();
    tasks.spawn("listener", async move { server::serve(listener, service, &config, token).await.expect("served") });
    address
}

/// Runs a test over each kind of channel, each with a double of its own.
async fn over_all<F: Future<Output = ()>>(test: impl Fn(&'static str, Client, Double) -> F) {
    let tasks = TaskGroup::new();
    let double = Double::default();
    test("local", Client::new(channel::local(public(&double))), double).await;

    let double = Double::default();
    test("duplex", Client::new(duplex::channel(&tasks, public(&double))), double).await;

    let double = Double::default();
    let address = listen(&tasks, public(&double), ServeConfig::default()).await;
    let channel = channel::connect(&EndpointConfig::new(format!("http://{address}"))).expect("url");
    test("tcp", Client::new(channel), double).await;

    let double = Double::default();
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("strata.sock");
    let listener = tokio::net::UnixListener::bind(&path).expect("bind");
    let incoming = tokio_stream::wrappers::UnixListenerStream::new(listener);
    let (service, token) = (public(&double), tasks.token().clone());
    tasks.spawn("unix listener", async move {
        server::serve_connections(incoming, service, &ServeConfig::default(), token).await.expect("served")
    });
    let channel = channel::connect(&EndpointConfig::new(format!("unix:{}", path.display()))).expect("url");
    test("unix", Client::new(channel), double).await;

    assert!(tasks.shutdown(Duration::from_secs(5)).await, "all listeners ended");
}

#[tokio::test]
async fn a_call_is_answered() {
    over_all(|over, mut client, _| async move {
        let answer = client.get_status(ask("nothing")).await.expect(over);
        assert_eq!(answer.get_ref().version, "ok", "{over}");
        assert!(answer.metadata().contains_key("x-request-id"), "{over}");
    })
    .await;
}

#[tokio::test]
async fn a_client_can_be_used_in_a_spawned_task() {
    over_all(|over, mut client, _| async move {
        let answer = tokio::spawn(async move { client.get_status(ask("nothing")).await });
        assert!(answer.await.expect("no panic").is_ok(), "{over}");
    })
    .await;
}

#[tokio::test]
async fn a_deadline_is_deadline_exceeded_and_drops_the_handler() {
    over_all(|over, mut client, double| async move {
        let mut request = ask("hang");
        request.set_timeout(Duration::from_millis(200));
        let status = client.get_status(request).await.expect_err(over);
        assert_eq!(status.code(), Code::DeadlineExceeded, "{over}: {status:?}");
        assert_eq!(reason(&status), Reason::DeadlineExceeded, "{over}: the layer fired, not the transport");
        eventually(Duration::from_secs(5), || async { Double::count(&double.dropped) == 1 }).await;
    })
    .await;
}

#[tokio::test]
async fn a_bad_deadline_is_refused() {
    over_all(|over, mut client, double| async move {
        let mut request = ask("nothing");
        request.metadata_mut().insert("grpc-timeout", "soon".parse().expect("ascii"));
        let status = client.get_status(request).await;
        // tonic's own server ignores what it cannot read; the layer does not.
        assert_eq!(status.expect_err(over).code(), Code::InvalidArgument, "{over}");
        assert_eq!(Double::count(&double.began), 0);
    })
    .await;
}

#[tokio::test]
async fn c060_dropping_the_caller_drops_the_handler() {
    over_all(|over, mut client, double| async move {
        let call = tokio::spawn(async move { client.get_status(ask("hang")).await });
        eventually(Duration::from_secs(5), || async { Double::count(&double.began) == 1 }).await;
        assert_eq!(Double::count(&double.dropped), 0, "{over}");
        call.abort();
        eventually(Duration::from_secs(5), || async { Double::count(&double.dropped) == 1 }).await;
    })
    .await;
}

#[tokio::test]
async fn a_panic_is_internal_without_content_and_the_channel_goes_on() {
    over_all(|over, mut client, _| async move {
        let status = client.get_status(ask("panic")).await.expect_err(over);
        assert_eq!((status.code(), reason(&status)), (Code::Internal, Reason::Internal), "{over}");
        assert!(!format!("{status:?}").contains("u1"), "{over}: {status:?}");
        assert!(status.metadata().contains_key("x-request-id"), "{over}: the log can be searched for it");
        assert!(client.get_status(ask("nothing")).await.is_ok(), "{over}");
    })
    .await;
}

#[tokio::test]
async fn error_details_survive() {
    over_all(|over, mut client, _| async move {
        let status = client.get_status(ask("fail")).await.expect_err(over);
        let fault = strata_api::error::fault(&status);
        assert_eq!(fault.reason, Reason::StaleEpoch, "{over}");
        assert_eq!(fault.retry_after_ms, Some(1_500), "{over}");
        assert_eq!(fault.preconditions.first().map(|p| p.rule.as_str()), Some("P3"), "{over}");
    })
    .await;
}

#[tokio::test]
async fn extensions_do_not_cross() {
    over_all(|over, mut client, _| async move {
        let mut request = ask("context");
        request.extensions_mut().insert(Smuggled);
        request.extensions_mut().insert(Principal { id: "forged".into(), ..operator() });
        let answer = client.get_status(request).await.expect(over);
        assert_eq!(answer.get_ref().settings["smuggled"], "false", "{over}");
        assert_eq!(answer.get_ref().settings["principal"], "local", "{over}");
    })
    .await;
}

#[tokio::test]
async fn c087_an_answer_over_the_message_limit_is_refused_everywhere() {
    over_all(|over, mut client, _| async move {
        let status = client.get_status(ask("large")).await.expect_err(over);
        assert_eq!(status.code(), Code::OutOfRange, "{over}: {status:?}");
    })
    .await;
}

#[tokio::test]
async fn nobody_there_is_unavailable_not_unknown() {
    let channel = channel::connect(&EndpointConfig {
        connect_timeout: Duration::from_millis(500),
        ..EndpointConfig::new("http://127.0.0.1:1")
    })
    .expect("url");
    let status = Client::new(channel).get_status(ask("nothing")).await.expect_err("nobody");
    assert_eq!((status.code(), reason(&status)), (Code::Unavailable, Reason::StoreUnavailable));
    for url in ["", "ftp://x", "127.0.0.1:1", "http://", "http:// x"] {
        assert!(channel::connect(&EndpointConfig::new(url)).is_err(), "{url}");
    }
}

#[tokio::test]
async fn a_channel_works_again_after_a_partition_and_after_a_restart() {
    let (tasks, double) = (TaskGroup::new(), Double::default());
    let address = listen(&tasks, public(&double), ServeConfig::default()).await;
    let proxy = FaultProxy::start(address);
    let config = EndpointConfig {
        keepalive_interval: Duration::from_millis(100),
        keepalive_timeout: Duration::from_millis(100),
        ..EndpointConfig::new(proxy.url("http"))
    };
    let client = Client::new(channel::connect(&config).expect("url"));
    let works = || {
        let mut client = client.clone();
        async move {
            let mut request = ask("nothing");
            request.set_timeout(Duration::from_millis(500));
            client.get_status(request).await
        }
    };
    works().await.expect("before");
    for fault in [Mode::Reset, Mode::Refuse] {
        proxy.set(fault);
        let status = works().await.expect_err("cut off");
        assert!(matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded), "{fault:?}: {status:?}");
        proxy.set(Mode::Pass);
        eventually(Duration::from_secs(5), || async { works().await.is_ok() }).await;
    }
    // A partition tells nobody: only the unanswered ping ends the old connection, so that a new one is tried.
    let before = proxy.accepted();
    proxy.set(Mode::BlackHole);
    let mut patient = ask("nothing");
    patient.set_timeout(Duration::from_secs(5));
    let status = client.clone().get_status(patient).await.expect_err("no answer");
    assert_eq!(status.code(), Code::Unavailable, "long before its deadline: {status:?}");
    eventually(Duration::from_secs(5), || async {
        drop(works().await);
        proxy.accepted() > before
    })
    .await;
    proxy.set(Mode::Pass);
    eventually(Duration::from_secs(5), || async { works().await.is_ok() }).await;
}

/// A call is given up while its channel still connects to an address that does not answer. What became of that attempt, long
/// before the other side was there, is not the answer to the next call.
#[tokio::test]
async fn an_attempt_that_nobody_waited_for_is_not_the_next_callers() {
    // A listener whose queue is full lets nobody in and refuses nobody.
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind(([127, 0, 0, 1], 0).into()).expect("a port");
    let listener = socket.listen(0).expect("it listens");
    let address = listener.local_addr().expect("address");
    let mut before_us = Vec::new();
    let full = loop {
        let connecting = tokio::net::TcpStream::connect(address);
        match tokio::time::timeout(Duration::from_millis(300), connecting).await {
            Ok(stream) => before_us.push(stream.expect("let in")),
            Err(_) => break before_us.len(),
        }
    };
    let config =
        EndpointConfig { connect_timeout: Duration::from_millis(400), ..EndpointConfig::new(format!("http://{address}")) };
    let client = Client::new(channel::connect(&config).expect("url"));
    let mut hasty = ask("nothing");
    hasty.set_timeout(Duration::from_millis(50));
    client.clone().get_status(hasty).await.expect_err("nobody lets it in");
    // The attempt ends, and nobody looks.
    strata_runtime::ports::pause(Duration::from_secs(1)).await;

    let (tasks, double) = (TaskGroup::new(), Double::default());
    for _ in 0..full {
        listener.accept().await.expect("who came before us");
    }
    let (service, token) = (public(&double), tasks.token().clone());
    tasks.spawn("listener", async move {
        server::serve(listener, service, &ServeConfig::default(), token).await.expect("served");
    });
    for _ in 0..3 {
        client.clone().get_status(ask("nothing")).await.expect("the first call is answered, and each after it");
    }
    // One that waits is told.
    let nobody = EndpointConfig { connect_timeout: Duration::from_millis(300), ..EndpointConfig::new("http://127.0.0.1:1") };
    let status = Client::new(channel::connect(&nobody).expect("url")).get_status(ask("nothing")).await.expect_err("nobody");
    assert_eq!(reason(&status), Reason::StoreUnavailable);
}

/// A server that begins an answer and goes away in the middle of it.
#[tokio::test]
async fn an_answer_that_breaks_off_is_unavailable_and_may_be_asked_for_again() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address");
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("a connection");
        let mut connection = h2::server::handshake(stream).await.expect("HTTP/2");
        let (_, mut answer) = connection.accept().await.expect("a call").expect("whole");
        let head = http::Response::builder().header("content-type", "application/grpc").body(()).expect("a head");
        let mut body = answer.send_response(head, false).expect("sent");
        body.send_data(bytes::Bytes::from_static(&[0, 0, 0, 0, 9, 1]), false).expect("sent");
        // Lets it out, then drops the connection.
        let _ = tokio::time::timeout(Duration::from_millis(200), std::future::poll_fn(|cx| connection.poll_closed(cx))).await;
    });
    let mut client = Client::new(channel::connect(&EndpointConfig::new(format!("http://{address}"))).expect("config"));
    let status = client.get_status(ask("nothing")).await.expect_err("it broke off");
    assert_eq!(reason(&status), Reason::StoreUnavailable, "{status:?}");
}

#[tokio::test]
async fn a_call_that_nobody_could_be_reached_for_says_that_it_was_not_sent() {
    use tower::{Service as _, ServiceExt as _};
    let tasks = TaskGroup::new();
    let double = Double::default();
    let short = ServeConfig { grace: Duration::from_millis(100), ..ServeConfig::default() };
    let address = listen(&tasks, public(&double), short).await;
    let config = EndpointConfig::new(format!("http://{address}"));
    let mut channel = channel::connect(&config).expect("url");
    let mut client = Client::new(channel.clone());
    client.get_status(ask("nothing")).await.expect("answered");
    // A call that was on its way when its connection went is not among them: it may have been done.
    let (lost, _) = tokio::join!(client.get_status(ask("hang")), async {
        eventually(Duration::from_secs(30), || async { Double::count(&double.began) == 2 }).await;
        assert!(tasks.shutdown(Duration::from_secs(30)).await);
    });
    let not_sent = |status: &tonic::Status| channel::transport_failure(status).is_some_and(|failed| !failed.sent);
    assert!(!not_sent(&lost.expect_err("gone")));
    eventually(Duration::from_secs(30), || async { std::net::TcpStream::connect(address).is_err() }).await;
    for fresh in [false, true] {
        if fresh {
            channel = channel::connect(&config).expect("url");
        }
        let mut request = http::Request::new(tonic::body::Body::empty());
        *request.uri_mut() = "/strata.admin.v1.AdminService/GetStatus".parse().expect("a path");
        let status = channel.ready().await.expect("lazy").call(request).await.expect_err("nobody is there");
        assert_eq!((reason(&status), not_sent(&status)), (Reason::StoreUnavailable, true), "{status}");
    }
}
