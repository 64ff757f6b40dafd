//! Response and request bodies that watch what passes through them.

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::{Code, Status};

/// Status of a finished response head: `Some` when the answer is "trailers only", `None` when the status follows in the
/// trailers of the body.
#[must_use]
pub fn head_code(headers: &http::HeaderMap) -> Option<Code> {
    headers.get(Status::GRPC_STATUS).map(|value| Code::from_bytes(value.as_bytes()))
}

/// Calls `done` exactly once, with the gRPC status of the call: from the trailers, `UNKNOWN` when the body failed or
/// ended without trailers, `CANCELLED` when it was dropped before its end.
pub struct Observed<F: FnOnce(Code) + Unpin> {
    inner: Body,
    done: Option<F>,
}

impl<F: FnOnce(Code) + Unpin + Send + 'static> Observed<F> {
    /// Wraps a response: `done` is called at once for a response that carries its status in the head.
    pub fn response(response: http::Response<Body>, done: F) -> http::Response<Body> {
        if let Some(code) = head_code(response.headers()) {
            done(code);
            return response;
        }
        response.map(|inner| Body::new(Self { inner, done: Some(done) }))
    }
}

impl<F: FnOnce(Code) + Unpin> HttpBody for Observed<F> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        let code = match &polled {
            Poll::Ready(Some(Ok(frame))) => frame.trailers_ref().map(|trailers| head_code(trailers).unwrap_or(Code::Unknown)),
            Poll::Ready(Some(Err(status))) => Some(status.code()),
            Poll::Ready(None) => Some(Code::Unknown),
            Poll::Pending => None,
        };
        if let Some(code) = code
            && let Some(done) = self.done.take()
        {
            done(code);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl<F: FnOnce(Code) + Unpin> Drop for Observed<F> {
    fn drop(&mut self) {
        if let Some(done) = self.done.take() {
            done(Code::Cancelled);
        }
    }
}

/// The last frame of a failed stream: trailers with the status.
#[must_use]
pub fn trailers(status: &Status) -> Frame<Bytes> {
    let mut map = http::HeaderMap::new();
    match status.add_header(&mut map) {
        Ok(()) => {}
        Err(fallback) => {
            map.insert(Status::GRPC_STATUS, http::HeaderValue::from(fallback.code() as i32));
        }
    }
    Frame::trailers(map)
}
