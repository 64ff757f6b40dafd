//! Clients that do not play by the rules: whoever floods or dawdles loses its own connection or call, and nobody else notices.

use crate::channels;
use crate::double::{Client, Double, ask};
use arc_swap::ArcSwap;
use std::net::SocketAddr;
use std::time::Duration;
use strata_core::policy::quota::{Quota, QuotaSettings};
use strata_runtime::channel::{self, EndpointConfig};
use strata_runtime::server::ServeConfig;
use strata_runtime::{Ports, TaskGroup, stack};
use strata_testkit::eventually;
use strata_testkit::http2::{
    CANCEL, CONTINUATION, END_HEADERS, GOAWAY, HEADERS, PREFACE, RST_STREAM, SETTINGS, call, frame, kilobyte,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
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
    const ENHANCE_YOUR_CALM: u32 = 0xb;
    let tasks = TaskGroup::new();
    let address = channels::listen(&tasks, channels::public(&Double::default()), ServeConfig::default()).await;
    // Calls that are taken back before anyone can look at them, all in one piece: a client library would not send them.
    let mut flood = PREFACE.to_vec();
    flood.extend(frame(SETTINGS, 0, 0, &[]));
    for n in 0..200 {
        flood.extend(frame(HEADERS, END_HEADERS, 2 * n + 1, &call(PATH, None)));
        flood.extend(frame(RST_STREAM, 0, 2 * n + 1, &CANCEL));
    }
    let mut stream = TcpStream::connect(address).await.expect("connected");
    stream.write_all(&flood).await.expect("sent");
    let ended = async {
        loop {
            let mut head = [0; 9];
            stream.read_exact(&mut head).await.expect("a frame before the end");
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; length as usize];
            stream.read_exact(&mut payload).await.expect("its payload");
            if head[3] == GOAWAY {
                return u32::from_be_bytes([payload[4], payload[5], payload[6], payload[7]]);
            }
        }
    };
    let why = tokio::time::timeout(Duration::from_secs(30), ended).await.expect("the connection is ended");
    assert_eq!(why, ENHANCE_YOUR_CALM);
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
    let mut open = Vec::new();
    for what in ["nothing", "hang", "hang", "hang", "hang", "hang", "hang", "hang", "hang"] {
        let head = request(address).header("do", what).body(()).expect("a request");
        let (answer, mut body) = sender.clone().ready().await.expect("ready").send_request(head, false).expect("sent");
        // An empty message.
        body.send_data(bytes::Bytes::from_static(&[0; 5]), true).expect("sent");
        if what == "nothing" {
            answer.await.expect("answered");
        } else {
            open.push(answer);
        }
    }
    eventually(Duration::from_secs(30), || async { Double::count(&double.began) > 4 }).await;
    serves(address).await;
    assert_eq!(Double::count(&double.began), 1 + 4 + 1, "four of the eight run, and the other connection's call");
    drop(open);
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

/// A client that asks and opens no window holds a place and the answer, for as long as the server lets it.
#[tokio::test]
async fn an_answer_that_nobody_reads_is_given_up_and_its_place_is_free_again() {
    let tasks = TaskGroup::new();
    let mut deps = stack::StackDeps::new(Ports::system());
    let each = Quota { in_flight: 1, ..Quota::default() };
    deps.quotas = std::sync::Arc::new(ArcSwap::from_pointee(QuotaSettings { each, ..QuotaSettings::default() }));
    let authenticator = std::sync::Arc::new(strata_runtime::layer::auth::Authenticator::local(channels::operator()));
    let service = stack::public(Double::default().routes(), authenticator, &deps);
    let config = ServeConfig { stall_timeout: Duration::from_secs(2), ..ServeConfig::default() };
    let address = channels::listen(&tasks, service, config).await;

    let stream = TcpStream::connect(address).await.expect("connected");
    let (sender, connection) = h2::client::Builder::new().initial_window_size(0).handshake(stream).await.expect("HTTP/2");
    tokio::spawn(async move { drop(connection.await) });
    let head = request(address).body(()).expect("a request");
    let (answer, mut body) = sender.clone().ready().await.expect("ready").send_request(head, false).expect("sent");
    body.send_data(bytes::Bytes::from_static(&[0; 5]), true).expect("sent");
    let mut answer = answer.await.expect("its head comes").into_body();

    let mut client = Client::new(channel::connect(&EndpointConfig::new(format!("http://{address}"))).expect("config"));
    let refused = client.get_status(ask("nothing")).await.expect_err("the place is taken");
    assert_eq!(strata_api::error::fault(&refused).reason, strata_core::Reason::Overloaded);
    eventually(Duration::from_secs(30), || async { client.clone().get_status(ask("nothing")).await.is_ok() }).await;
    // Whoever reads on after all is not told that this was the whole answer.
    answer.flow_control().release_capacity(0).expect("nothing was taken");
    drop(sender);
    let end = tokio::time::timeout(Duration::from_millis(200), answer.data()).await;
    assert!(!matches!(end, Ok(None)), "an end without an error");
}

/// Headers in pieces that never end (CONTINUATION): the connection is ended, long before they fill the memory.
#[tokio::test]
async fn headers_that_never_end_end_their_connection() {
    let tasks = TaskGroup::new();
    let address = channels::listen(&tasks, channels::public(&Double::default()), ServeConfig::default()).await;
    let mut stream = TcpStream::connect(address).await.expect("connected");
    let mut start = PREFACE.to_vec();
    start.extend(frame(SETTINGS, 0, 0, &[]));
    start.extend(frame(HEADERS, 0, 1, &call(PATH, None)));
    stream.write_all(&start).await.expect("sent");
    let field = kilobyte();
    let flood = async {
        let mut sent = 0_usize;
        loop {
            if stream.write_all(&frame(CONTINUATION, 0, 1, &field)).await.is_err() {
                return sent;
            }
            sent += field.len();
            // What the server says is read, or its end could go unnoticed behind a full window.
            let mut said = [0; 1_024];
            match stream.try_read(&mut said) {
                Ok(0) => return sent,
                Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return sent,
                _ => tokio::task::yield_now().await,
            }
        }
    };
    let sent = tokio::time::timeout(Duration::from_secs(60), flood).await.expect("the connection is ended");
    assert!(sent < 64 * 1024 * 1024, "ended after {sent} bytes");
    serves(address).await;
}
