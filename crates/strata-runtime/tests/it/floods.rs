//! Clients that do not play by the rules: whoever floods or dawdles loses its own connection or call, and nobody else notices.

use crate::channels;
use crate::double::{Client, Double, ask};
use std::net::SocketAddr;
use std::time::Duration;
use strata_runtime::channel::{self, EndpointConfig};
use strata_runtime::server::ServeConfig;
use strata_runtime::{Ports, TaskGroup, stack};
use strata_testkit::eventually;
use tokio::net::TcpStream;

const PATH: &str = "/strata.admin.v1.AdminService/GetStatus";

fn request(address: SocketAddr) -> http::request::Builder {
    http::Request::post(format!("http://{address}{PATH}")).header("content-type", "application/grpc").header("te", "trailers")
}

/// A connection of bare HTTP/2, driven until it ends.
async fn bare(address: SocketAddr) -> h2::client::SendRequest<bytes::Bytes> {
    let stream = TcpStream::connect(address).await.expect("connected");
    let (sender, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
    tokio::spawn(async move { drop(connection.await) });
    sender
}

async fn serves(address: SocketAddr) {
    let mut client = Client::new(channel::connect(&EndpointConfig::new(format!("http://{address}"))).expect("config"));
    client.get_status(ask("nothing")).await.expect("others are served");
}

#[tokio::test]
async fn a_flood_of_resets_ends_its_own_connection() {
    let tasks = TaskGroup::new();
    let address = channels::listen(&tasks, channels::public(&Double::default()), ServeConfig::default()).await;
    let mut flood = bare(address).await;
    let mut ended = false;
    for _ in 0..20_000 {
        let head = request(address).body(()).expect("a request");
        match flood.send_request(head, false) {
            Ok((_, mut stream)) => stream.send_reset(h2::Reason::CANCEL),
            Err(_) => ended = true,
        }
        if ended {
            break;
        }
    }
    if !ended {
        eventually(Duration::from_secs(30), || {
            let probe = flood.clone();
            async move { probe.ready().await.is_err() }
        })
        .await;
    }
    serves(address).await;
}

#[tokio::test]
async fn headers_that_are_too_large_are_refused_and_the_connection_goes_on() {
    let tasks = TaskGroup::new();
    let config = ServeConfig::default();
    let bound = config.max_header_bytes as usize;
    let address = channels::listen(&tasks, channels::public(&Double::default()), config).await;
    let sender = bare(address).await;
    let head = request(address).header("x-large", "x".repeat(bound)).body(()).expect("a request");
    let refused = match sender.clone().ready().await.expect("ready").send_request(head, true) {
        Ok((answer, _)) => answer.await.map(|answer| answer.status()),
        Err(error) => Err(error),
    };
    assert!(refused.is_err() || refused.is_ok_and(|status| status == http::StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE));
    serves(address).await;
}

#[tokio::test]
async fn streams_of_one_connection_are_bounded() {
    let tasks = TaskGroup::new();
    let config = ServeConfig { max_concurrent_streams: 4, ..ServeConfig::default() };
    let double = Double::default();
    let address = channels::listen(&tasks, channels::public(&double), config).await;
    let sender = bare(address).await;
    // The server's settings have come when a first call was answered.
    let (answer, _) = sender
        .clone()
        .ready()
        .await
        .expect("ready")
        .send_request(request(address).body(()).expect("a request"), true)
        .expect("sent");
    answer.await.expect("answered");
    let mut open = Vec::new();
    let fifth = tokio::time::timeout(Duration::from_secs(2), async {
        for _ in 0..5 {
            let mut ready = sender.clone().ready().await.expect("ready");
            let head = request(address).header("do", "hang").body(()).expect("a request");
            open.push(ready.send_request(head, false).expect("sent"));
        }
    });
    assert!(fifth.await.is_err(), "the fifth waits in the client");
    assert_eq!(open.len(), 4);
    serves(address).await;
}

#[tokio::test]
async fn a_body_that_never_ends_is_given_up() {
    let tasks = TaskGroup::new();
    let mut deps = stack::StackDeps::new(Ports::system());
    deps.deadline.default = Duration::from_millis(300);
    let authenticator = std::sync::Arc::new(strata_runtime::layer::auth::Authenticator::local(channels::operator()));
    let service = stack::public(Double::default().routes(), authenticator, &deps);
    let address = channels::listen(&tasks, service, ServeConfig::default()).await;
    let sender = bare(address).await;
    let (answer, mut body) = sender
        .clone()
        .ready()
        .await
        .expect("ready")
        .send_request(request(address).body(()).expect("a request"), false)
        .expect("sent");
    // Five bytes announce a message of a thousand; two of them come.
    body.send_data(bytes::Bytes::from_static(&[0, 0, 0, 3, 232, 1, 2]), false).expect("sent");
    let answer = tokio::time::timeout(Duration::from_secs(30), answer).await.expect("given up").expect("answered");
    let code = answer.headers().get("grpc-status").expect("a status").to_str().expect("a number");
    assert_eq!(code, (tonic::Code::DeadlineExceeded as i32).to_string());
    serves(address).await;
}
