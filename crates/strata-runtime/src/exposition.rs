//! Metrics for Prometheus to fetch: `GET /metrics` over plain HTTP/1 on an address of its own. It holds no content and no
//! identifiers, so it asks for no credential; who may reach it is the network's to say.
//!
//! Beside it `/livez` and `/readyz`, what `grpc.health.v1` says under [`LIVENESS`](crate::health::LIVENESS) and under the empty
//! name: a kubelet's gRPC probes speak no TLS.

use crate::health::Health;
use crate::ports::pause;
use crate::task::TaskGroup;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus::{Encoder as _, Registry, TextEncoder};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Scrapes at a time: two servers and a person.
const CONNECTIONS: usize = 16;
/// Longest time for the head of a request, and for a whole exchange: whoever is slower holds a place for nothing.
const SLOWEST: Duration = Duration::from_secs(10);

/// Serves `registry` and `health` in `tasks` until their token is cancelled.
pub fn spawn(tasks: &TaskGroup, listener: TcpListener, registry: Registry, health: Health) {
    let token = tasks.token().clone();
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let group = tasks.clone();
    tasks.spawn("metrics listener", async move {
        loop {
            let slot = tokio::select! {
                () = token.cancelled() => return,
                slot = Arc::clone(&slots).acquire_owned() => slot,
            };
            let Ok(slot) = slot else { return };
            let accepted = tokio::select! {
                () = token.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            let Ok((stream, _)) = accepted else {
                pause(Duration::from_millis(50)).await;
                continue;
            };
            let (registry, health, stop) = (registry.clone(), health.clone(), token.clone());
            group.spawn("metrics scrape", async move {
                let _slot = slot;
                let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                    let answer = answer(&request, &registry, &health);
                    async move { Ok::<_, Infallible>(answer) }
                });
                let served = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(SLOWEST)
                    .keep_alive(false)
                    .serve_connection(TokioIo::new(stream), service);
                tokio::select! {
                    () = stop.cancelled() => {}
                    _ = tokio::time::timeout(SLOWEST, served) => {}
                }
            });
        }
    });
}

fn answer(request: &Request<Incoming>, registry: &Registry, health: &Health) -> Response<Full<Bytes>> {
    let said = |status: StatusCode, text: &'static str| {
        let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
        *response.status_mut() = status;
        response
    };
    let path = request.uri().path();
    if !matches!(path, "/metrics" | "/livez" | "/readyz") {
        return said(StatusCode::NOT_FOUND, "there are /metrics, /livez and /readyz\n");
    }
    if request.method() != Method::GET {
        return said(StatusCode::METHOD_NOT_ALLOWED, "GET\n");
    }
    match path {
        "/livez" => return said(StatusCode::OK, "live\n"),
        "/readyz" if health.is_ready() => return said(StatusCode::OK, "ready\n"),
        "/readyz" => return said(StatusCode::SERVICE_UNAVAILABLE, "not every service serves\n"),
        _ => {}
    }
    let (encoder, mut text) = (TextEncoder::new(), Vec::new());
    if encoder.encode(&registry.gather(), &mut text).is_err() {
        return said(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written\n");
    }
    let mut response = Response::new(Full::new(Bytes::from(text)));
    if let Ok(kind) = header::HeaderValue::from_str(encoder.format_type()) {
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
    }
    response
}
