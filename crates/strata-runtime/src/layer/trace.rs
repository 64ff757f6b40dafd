//! One span per call, a child of the caller's span by W3C trace context. The span holds names and outcomes, never
//! content: which method of which layer, for which tenant (as a digest), in which mode, by which rules, how many records.
//! Beside our own names it has those of OpenTelemetry's conventions for the memory of agents (`gen_ai.memory.*`), whose fields
//! for texts stay empty.

use super::body::{Answer, watch};
use super::request_id::RequestId;
use super::{Middleware, Rpc, is_open, known_method};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use opentelemetry::propagation::{Extractor, Injector};
use opentelemetry::trace::{TraceContextExt as _, TraceId};
use std::sync::Arc;
use strata_core::TenantId;
use strata_core::policy::authz::{self, Access, Method};
use strata_core::policy::modes::Mode;
use strata_core::rule::Finding;
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

/// The W3C trace id of the current call: that of its span where spans are exported, else the caller's own.
#[must_use]
pub fn id(headers: &HeaderMap) -> Option<String> {
    let own = Span::current().context().span().span_context().trace_id();
    if own != TraceId::INVALID {
        return Some(own.to_string());
    }
    // Version, trace id, span id, flags; a trace id of zeros is none.
    let parent = headers.get("traceparent")?.to_str().ok()?;
    let id = parent.split('-').nth(1).filter(|id| id.len() == 32)?;
    let hex = id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    (hex && id.bytes().any(|b| b != b'0')).then(|| id.to_owned())
}

fn span_of(request: &Request<Body>) -> Span {
    let (service, method) = known_method(request.uri().path());
    let known = authz::find(request.uri().path());
    let request_id = request.extensions().get().map(|RequestId(id)| &**id);
    // What is known already is given here: a field that is recorded later is read, and all of them written, once more.
    let span = tracing::info_span!(
        "rpc",
        otel.name = %format_args!("{service}/{method}"),
        otel.kind = "server",
        otel.status_code = Empty,
        rpc.system = "grpc",
        rpc.service = service,
        rpc.method = method,
        rpc.grpc.status_code = Empty,
        request_id,
        // In every log line of the call, so that lines and spans find each other.
        trace_id = Empty,
        strata.tenant = Empty,
        strata.mode = Empty,
        strata.rules = Empty,
        gen_ai.operation.name = known.and_then(operation_of),
        gen_ai.memory.store.id = known.map(|method| method.layer.name()),
        gen_ai.memory.record.count = Empty,
        // Recorded by working memory: a span about a task carries its id (rule W9).
        task_id = Empty,
    );
    if span.is_disabled() {
        return span;
    }
    let parent = opentelemetry::global::get_text_map_propagator(|propagator| propagator.extract(&Headers(request.headers())));
    // Fails only when no OpenTelemetry layer is installed: then there is nothing to attach to.
    let _ = span.set_parent(parent);
    let context = span.context();
    let trace = context.span().span_context().trace_id();
    if trace != TraceId::INVALID {
        span.record("trace_id", trace.to_string());
    }
    span
}

/// What the conventions call a method's work; none for what is no work on memory.
fn operation_of(method: &Method) -> Option<&'static str> {
    let begins = |words: &[&str]| words.iter().any(|word| method.name().starts_with(word));
    match method.access {
        Access::Recall => Some("search_memory"),
        Access::Read if begins(&["Lookup", "Match"]) => Some("search_memory"),
        Access::Write if begins(&["Update", "Restore", "Confirm", "Anchor", "Release", "Compress"]) => Some("update_memory"),
        Access::Write | Access::Promote | Access::Observe => Some("create_memory"),
        Access::Release if begins(&["Forget", "Delete", "Erase", "End"]) => Some("delete_memory"),
        Access::Read | Access::Release | Access::Internal => None,
    }
}

/// Notes for whom the current call is: a digest, so that traces can be told apart by tenant and name nobody.
pub fn note_tenant(tenant: &TenantId) {
    let span = Span::current();
    if !span.is_disabled() {
        let digest = blake3::hash(tenant.as_str().as_bytes()).to_hex();
        span.record("strata.tenant", digest.get(..16).unwrap_or_default());
    }
}

/// Notes the mode that the current call was judged by (rule D1).
pub fn note_mode(mode: Mode) {
    Span::current().record("strata.mode", mode.name());
}

/// Notes rules and their outcomes (`G9 CANDIDATE`) on the current span, of the call or of the store's operation.
pub fn note_rules(findings: &[Finding]) {
    let span = Span::current();
    if !span.is_disabled() && !findings.is_empty() {
        let rules: Vec<String> = findings.iter().map(|finding| format!("{} {}", finding.rule, finding.outcome)).collect();
        span.record("strata.rules", rules.join(", "));
    }
}

/// Notes how many records the current call found or changed.
pub fn note_records(count: usize) {
    Span::current().record("gen_ai.memory.record.count", count);
}

impl Middleware for Trace {
    async fn handle<S: Rpc>(self: &Arc<Self>, request: Request<Body>, next: &S) -> Response<Answer> {
        if is_open(request.uri().path()) {
            // A probe every few seconds per pod would be most of all traces.
            return next.call(request).await;
        }
        let span = span_of(&request);
        let response = next.call(request).instrument(span.clone()).await;
        watch(response, move |code| {
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
