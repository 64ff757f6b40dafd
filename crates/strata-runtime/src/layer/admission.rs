//! Admission: a listener takes what it can serve in good time and refuses the rest at once. It never queues: a queue in front
//! of an overloaded service only makes every answer late.
//!
//! Reads give way first ([`super::limit`]): an answer that is late is worth little and can be asked for again, while what was
//! said and is not stored may be lost. Writes share commits, so many at a time are served better than few.

use super::body::Answer;
use super::limit::AdaptiveLimit;
use super::{Middleware, Rpc, is_open, refuse, status};
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use strata_core::policy::authz;
use strata_core::{Fault, Reason, limits};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::body::Body;

/// Bounds of [`Admission`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionSettings {
    /// Calls being served at a time at most, streams included; of reads fewer under overload.
    pub max_in_flight: usize,
    /// Bytes of one call's request body, all messages of a client stream together.
    pub max_call_bytes: usize,
    /// Bytes of all request bodies being served, together.
    pub max_bytes_in_flight: usize,
}

impl Default for AdmissionSettings {
    fn default() -> Self {
        Self {
            max_in_flight: limits::CALLS_IN_FLIGHT,
            max_call_bytes: limits::CALL_BYTES,
            max_bytes_in_flight: limits::BYTES_IN_FLIGHT,
        }
    }
}

/// The layer. See the module.
#[derive(Clone, Debug)]
pub struct Admission {
    settings: AdmissionSettings,
    calls: Arc<Semaphore>,
    /// Where reads give way.
    reads: Option<AdaptiveLimit>,
    bytes: Arc<Semaphore>,
}

/// In the headers of an answer only when the call failed before it had a body.
const GRPC_STATUS: &str = "grpc-status";
/// Milliseconds to wait before a retry: about the time in which a loaded service ends a few calls.
const RETRY_AFTER_MS: u64 = 200;

fn overloaded(what: &'static str) -> Fault {
    Fault::new(Reason::Overloaded, format!("too many {what} are being served; nothing was done, retry later"))
        .retry_after(RETRY_AFTER_MS)
}

impl Admission {
    /// For a listener of callers.
    #[must_use]
    pub fn public(settings: AdmissionSettings) -> Self {
        Self { reads: Some(AdaptiveLimit::new(settings.max_in_flight)), ..Self::internal(settings) }
    }

    /// For a listener of the router: what it asks a layer may be part of a write, which must not fail, or be stored as less
    /// than it is, because reads are many.
    #[must_use]
    pub fn internal(settings: AdmissionSettings) -> Self {
        Self {
            settings,
            calls: Arc::new(Semaphore::new(settings.max_in_flight.min(Semaphore::MAX_PERMITS))),
            reads: None,
            bytes: Arc::new(Semaphore::new(settings.max_bytes_in_flight.min(Semaphore::MAX_PERMITS))),
        }
    }
}

impl Middleware for Admission {
    async fn handle<S: Rpc>(self: &Arc<Self>, request: Request<Body>, next: &S) -> Response<Answer> {
        if is_open(request.uri().path()) {
            // A busy service is alive: a probe must not restart it.
            return next.call(request).await;
        }
        let Ok(call) = Arc::clone(&self.calls).try_acquire_owned() else {
            return refuse(overloaded("calls"));
        };
        let read = authz::find(request.uri().path()).filter(|method| !method.writes());
        let read = match self.reads.as_ref().zip(read) {
            Some((reads, method)) => match reads.enter() {
                Some(place) => Some((reads, method.path, place)),
                None => return refuse(overloaded("reads")),
            },
            None => None,
        };
        let request = request.map(|inner| {
            Body::new(Metered { inner, total: Arc::clone(&self.bytes), held: None, seen: 0, max: self.settings.max_call_bytes })
        });
        let response = next.call(request).await;
        if let Some((reads, method, place)) = &read
            && !response.headers().contains_key(GRPC_STATUS)
        {
            reads.served(method, place);
        }
        let place = read.map(|(_, _, place)| place);
        response.map(|answer| answer.hold((call, place)))
    }
}

/// A request body whose bytes count until it is dropped, which the generated service does when it has decoded them.
struct Metered {
    inner: Body,
    total: Arc<Semaphore>,
    held: Option<OwnedSemaphorePermit>,
    seen: usize,
    max: usize,
}

impl Metered {
    fn admit(&mut self, bytes: usize) -> Result<(), Fault> {
        self.seen = self.seen.saturating_add(bytes);
        if self.seen > self.max {
            return Err(Fault::limit("request", self.max, "bytes"));
        }
        let more = u32::try_from(bytes).map_err(|_| overloaded("bytes"))?;
        let permit = Arc::clone(&self.total).try_acquire_many_owned(more).map_err(|_| overloaded("bytes"))?;
        match &mut self.held {
            Some(held) => held.merge(permit),
            None => self.held = Some(permit),
        }
        Ok(())
    }
}

impl HttpBody for Metered {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        let polled = std::task::ready!(Pin::new(&mut self.inner).poll_frame(cx));
        if let Some(Ok(frame)) = &polled
            && let Some(data) = frame.data_ref()
            && let Err(fault) = self.admit(data.len())
        {
            return Poll::Ready(Some(Err(status(fault))));
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
