//! Clients that do not play by the rules: whoever floods or dawdles loses its own connection or call, and nobody else notices.

use crate::channels;
use crate::double::{Client, Double, ask};
use std::net::SocketAddr;
use std::time::Duration;
use strata_runtime::channel::{self, EndpointConfig};
use strata_runtime::server::ServeConfig;
use strata_runtime::{Ports, TaskGroup, stack};
use strata_testkit::eventually;
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

/// One frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// The headers of a call, in HPACK without compression: POST, http, path, authority, content type.
fn headers() -> Vec<u8> {
    let text = |name: &[u8], value: &str| {
        let mut field = name.to_vec();
        field.push(u8::try_from(value.len()).expect("short"));
        field.extend(value.bytes());
        field
    };
    [vec![0x83, 0x86], text(&[0x04], PATH), text(&[0x01], "x"), text(&[0x0f, 0x10], "application/grpc")].concat()
}

#[tokio::test]
async fn a_flood_of_resets_ends_its_own_connection() {
    const HEADERS: u8 = 1;
    const RST_STREAM: u8 = 3;
    const SETTINGS: u8 = 4;
    const GOAWAY: u8 = 7;
    const ENHANCE_YOUR_CALM: u32 = 0xb;
    let tasks = TaskGroup::new();
    let address = channels::listen(&tasks, channels::public(&Double::default()), ServeConfig::default()).await;
    // Calls that are taken back before anyone can look at them, all in one piece: a client library would not send them.
    let mut flood = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    flood.extend(frame(SETTINGS, 0, 0, &[]));
    for n in 0..200 {
        flood.extend(frame(HEADERS, 0x4, 2 * n + 1, &headers()));
        flood.extend(frame(RST_STREAM, 0, 2 * n + 1, &8_u32.to_be_bytes()));
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
