//! A message that cannot be decoded, or is too large, is the caller's mistake and says so. tonic answers INTERNAL and
//! OUT_OF_RANGE without details, of which a client would take the first for a defect of the service and retry. Our own
//! faults always carry details, so the two cannot be confused.

use super::body::Answer;
use super::{Middleware, Rpc, refuse};
use http::{HeaderValue, Request, Response};
use std::sync::Arc;
use strata_core::{Fault, limits};
use tonic::body::Body;

/// Codes of gRPC as a header has them.
const OUT_OF_RANGE: &[u8] = b"11";
const INTERNAL: &[u8] = b"13";

/// The layer. See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Undecodable;

impl Middleware for Undecodable {
    async fn handle<S: Rpc>(self: &Arc<Self>, request: Request<Body>, next: &S) -> Response<Answer> {
        let response = next.call(request).await;
        if response.headers().contains_key("grpc-status-details-bin") {
            return response;
        }
        match response.headers().get("grpc-status").map(HeaderValue::as_bytes) {
            Some(INTERNAL) => {
                refuse(Fault::field("request", "is not a message of this method: generate the client from the service's protos"))
            }
            // Not of an answer that is too large: that is ours, and its message says "encoded".
            Some(OUT_OF_RANGE) if says(&response, "decoded") => refuse(Fault::limit("request", limits::MESSAGE_BYTES, "bytes")),
            Some(_) | None => response,
        }
    }
}

fn says(response: &Response<Answer>, word: &str) -> bool {
    response.headers().get("grpc-message").and_then(|message| message.to_str().ok()).is_some_and(|text| text.contains(word))
}
