//! One id per call, from the caller's `x-request-id` or minted here, in every log line, span and answer. It is for people
//! who follow a call; idempotency is a field of the request message.

use super::body::Answer;
use super::{Middleware, Rpc};
use crate::context::CallContext;
use crate::ports::Ports;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use std::sync::Arc;
use strata_core::limits::CALL_ID_BYTES;
use tonic::body::Body;

/// The header, of requests and of responses.
pub const HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// The id of a call, in its request's extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId(pub Arc<str>);

/// The layer. See the module.
#[derive(Clone, Debug)]
pub struct RequestIds {
    /// Mints ids, and says when the call came in.
    pub ports: Ports,
}

/// The caller's id if it is 1 to [`CALL_ID_BYTES`] of `A-Z a-z 0-9 - _ . : /`: nothing that could forge a log line.
fn accepted(headers: &HeaderMap) -> Option<Arc<str>> {
    let text = headers.get(HEADER)?.to_str().ok()?;
    let safe = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b':' | b'/');
    (!text.is_empty() && text.len() <= CALL_ID_BYTES && text.bytes().all(safe)).then(|| Arc::from(text))
}

impl Middleware for RequestIds {
    async fn handle<S: Rpc>(self: &Arc<Self>, mut request: Request<Body>, next: &S) -> Response<Answer> {
        let id = accepted(request.headers()).unwrap_or_else(|| self.ports.ids.next().to_string().into());
        request.extensions_mut().insert(RequestId(Arc::clone(&id)));
        let admitted = Some(self.ports.clock.now());
        let context = CallContext { request_id: Some(Arc::clone(&id)), admitted, ..CallContext::current() };
        let mut response = context.scope(next.call(request)).await;
        if let Ok(value) = HeaderValue::from_str(&id) {
            response.headers_mut().insert(HEADER, value);
        }
        response
    }
}

/// Writes the current call's id into the headers of an outgoing one.
pub fn propagate(headers: &mut HeaderMap) {
    if let Some(id) = CallContext::current().request_id
        && let Ok(value) = HeaderValue::from_str(&id)
    {
        headers.insert(HEADER, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strange_id_is_replaced() {
        let of = |value: &[u8]| accepted(&HeaderMap::from_iter([(HEADER, HeaderValue::from_bytes(value).expect("header"))]));
        assert_eq!(of(b"req-1:a/b.c_D").as_deref(), Some("req-1:a/b.c_D"));
        let long = "x".repeat(CALL_ID_BYTES + 1);
        for bad in ["", "a b", "a\"b", "{}", long.as_str(), "用户"] {
            assert_eq!(of(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(of("x".repeat(CALL_ID_BYTES).as_bytes()).map(|id| id.len()), Some(CALL_ID_BYTES));
    }
}
