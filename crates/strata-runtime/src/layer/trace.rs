//! One span per call, a child of the caller's span by W3C trace context. The span holds names and outcomes, never
//! content.

use super::body::Observed;
use super::request_id::RequestId;
use super::{Middleware, Rpc, forward, is_open, known_method};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use opentelemetry::propagation::{Extractor, Injector};
use std::sync::Arc;
use tonic::Code;
use tonic::body::Body;
use tracing::field::Empty;
use tracing::{Instrument, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// The layer. See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trace;

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|value| value.to_str().ok())
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

struct HeadersMut<'a>(&'a mut HeaderMap);

impl Injector for HeadersMut<'_> {
    fn set(&mut self, key: &str, value: String) {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(key), HeaderValue::try_from(value)) {
            self.0.insert(name, value);
        }
    }
}

/// Writes the current span's W3C context into the headers of an outgoing call.
pub fn propagate(headers: &mut HeaderMap) {
    let context = Span::current().context();
    opentelemetry::global::get_text_map_propagator(|propagator| propagator.inject_context(&context, &mut HeadersMut(headers)));
}

fn span_of(request: &Request<Body>) -> Span {
    let (service, method) = known_method(request.uri().path());
    let span = tracing::info_span!(
        "rpc",
        otel.name = %format_args!("{service}/{method}"),
        otel.kind = "server",
        otel.status_code = Empty,
        rpc.system = "grpc",
        rpc.service = service,
        rpc.method = method,
        rpc.grpc.status_code = Empty,
        request_id = Empty,
        // Recorded by working memory: a span about a task carries its id (rule W9).
        task_id = Empty,
    );
    if span.is_disabled() {
        return span;
    }
    if let Some(RequestId(id)) = request.extensions().get() {
        span.record("request_id", &**id);
    }
    let parent = opentelemetry::global::get_text_map_propagator(|propagator| propagator.extract(&Headers(request.headers())));
    // Fails only when no OpenTelemetry layer is installed: then there is nothing to attach to.
    let _ = span.set_parent(parent);
    span
}

impl Middleware for Trace {
    async fn handle<S: Rpc>(self: Arc<Self>, request: Request<Body>, next: S) -> Response<Body> {
        if is_open(request.uri().path()) {
            // A probe every few seconds per pod would be most of all traces.
            return forward(next, request).await;
        }
        let span = span_of(&request);
        let response = forward(next, request).instrument(span.clone()).await;
        Observed::response(response, move |code| {
            span.record("rpc.grpc.status_code", code as i32);
            tracing::debug!(parent: &span, ?code, "answered");
            // Errors of the service, not of the caller, mark the span: OpenTelemetry's rule for server spans.
            if matches!(
                code,
                Code::Unknown
                    | Code::DeadlineExceeded
                    | Code::Unimplemented
                    | Code::Internal
                    | Code::Unavailable
                    | Code::DataLoss
            ) {
                span.record("otel.status_code", "ERROR");
            }
        })
    }
}
