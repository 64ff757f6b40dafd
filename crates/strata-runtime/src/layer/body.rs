//! The body of an answer, and what layers do with it until its end.

use super::status;
use bytes::Bytes;
use http::Response;
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};
use strata_core::{Fault, Reason};
use tokio::time::{Instant, Sleep};
use tonic::body::Body;
use tonic::{Code, Status};

/// Status of a finished response head: `Some` when the answer is "trailers only", `None` when the status follows in the
/// trailers of the body.
#[must_use]
pub fn head_code(headers: &http::HeaderMap) -> Option<Code> {
    headers.get(Status::GRPC_STATUS).map(|value| Code::from_bytes(value.as_bytes()))
}

/// The refusal of a call whose time is over.
pub(crate) fn exceeded() -> Fault {
    Fault::new(Reason::DeadlineExceeded, "the deadline passed; a write may have happened: retry with the same request_id")
}

/// Says nothing of the panic's message, which may hold content; the panic hook has logged where it happened.
pub(super) fn defect() -> Fault {
    Fault::new(Reason::Internal, "a defect of the service; the log has the cause under this call's x-request-id")
}

/// Called once, with the gRPC status of a call.
type Watcher = Box<dyn FnOnce(Code) + Send>;

/// The body of an answer, with all that layers do with it until its end, in one: a body that each layer wraps costs an
/// allocation a layer and a call a layer for every frame.
///
/// From the inside to the outside: a panic behind it ends it with INTERNAL ([`Answer::guard`]), its deadline with
/// DEADLINE_EXCEEDED ([`Answer::until`]), and its end is told ([`watch`]) in the order in which layers asked for it. What is
/// held for it ([`Answer::hold`]) is given back when it is dropped.
pub struct Answer {
    inner: Body,
    guarded: bool,
    end: Option<Instant>,
    /// Made at the first pending poll: a unary answer never needs it.
    sleep: Option<Pin<Box<Sleep>>>,
    over: bool,
    held: Vec<Box<dyn Send>>,
    watchers: Vec<Watcher>,
}

impl Answer {
    /// A body that nothing was added to.
    #[must_use]
    pub const fn new(inner: Body) -> Self {
        Self { inner, guarded: false, end: None, sleep: None, over: false, held: Vec::new(), watchers: Vec::new() }
    }

    /// Ends with INTERNAL when the stream behind it panics.
    #[must_use]
    pub const fn guard(mut self) -> Self {
        self.guarded = true;
        self
    }

    /// Ends with DEADLINE_EXCEEDED at `end`.
    #[must_use]
    pub fn until(mut self, end: Instant) -> Self {
        self.end = Some(self.end.map_or(end, |other| other.min(end)));
        self
    }

    /// Drops `place` with the body, after what was held before.
    #[must_use]
    pub fn hold(mut self, place: impl Send + 'static) -> Self {
        self.held.push(Box::new(place));
        self
    }

    /// The body of tonic that does it all.
    #[must_use]
    pub fn into_body(mut self) -> Body {
        let bare = !self.guarded && self.end.is_none() && self.held.is_empty() && self.watchers.is_empty();
        if bare { std::mem::take(&mut self.inner) } else { Body::new(self) }
    }

    /// The next frame of the stream behind it, or what ends it instead.
    fn next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let inner = &mut self.inner;
        let polled = if self.guarded {
            // Unwind safety: what panicked is not polled again.
            match std::panic::catch_unwind(AssertUnwindSafe(|| Pin::new(inner).poll_frame(cx))) {
                Ok(polled) => polled,
                Err(_) => {
                    self.over = true;
                    return Poll::Ready(Some(Ok(trailers(&status(defect())))));
                }
            }
        } else {
            Pin::new(inner).poll_frame(cx)
        };
        let (Poll::Pending, Some(end)) = (&polled, self.end) else { return polled };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(end)));
        std::task::ready!(sleep.as_mut().poll(cx));
        self.over = true;
        // Dropping the stream drops the handler behind it.
        self.inner = Body::empty();
        Poll::Ready(Some(Ok(trailers(&status(exceeded())))))
    }
}

/// Calls `done` exactly once, with the gRPC status of the call: at once for a response that carries it in the head, else from
/// the trailers, `UNKNOWN` when the body failed or ended without trailers, `CANCELLED` when it was dropped before its end.
pub fn watch(response: Response<Answer>, done: impl FnOnce(Code) + Send + 'static) -> Response<Answer> {
    if let Some(code) = head_code(response.headers()) {
        done(code);
        return response;
    }
    response.map(|mut answer| {
        answer.watchers.push(Box::new(done));
        answer
    })
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = if self.over { Poll::Ready(None) } else { self.next(cx) };
        let code = match &polled {
            Poll::Ready(Some(Ok(frame))) => frame.trailers_ref().map(|trailers| head_code(trailers).unwrap_or(Code::Unknown)),
            Poll::Ready(Some(Err(status))) => Some(status.code()),
            Poll::Ready(None) => Some(Code::Unknown),
            Poll::Pending => None,
        };
        if let Some(code) = code {
            for done in std::mem::take(&mut self.watchers) {
                done(code);
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.over || self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // Whoever asked last stands outermost.
        while let Some(done) = self.watchers.pop() {
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
