//! Calls, errors by code, duration and calls in flight, as instruments of [`crate::metrics`]. Labels are listener, service,
//! method and code: a bounded set, never a tenant, user or id.

use super::body::{Answer, watch};
use super::{Middleware, Refused, Rpc, known_method};
use crate::metrics::Instruments;
use crate::ports::Stopwatch;
use http::{Request, Response};
use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;
use std::sync::Arc;
use tonic::Code;
use tonic::body::Body;

/// The layer. See the module.
#[derive(Clone, Debug)]
pub struct Metrics {
    instruments: Arc<Instruments>,
    listener: &'static str,
}

impl Metrics {
    /// Instruments of `meter`.
    #[must_use]
    pub fn new(meter: &Meter) -> Self {
        Self { instruments: Arc::new(Instruments::new(meter)), listener: "public" }
    }

    /// Instruments of the process's meter, which exports nothing until telemetry is set up.
    #[must_use]
    pub fn global() -> Self {
        Self { instruments: Arc::new(Instruments::global().clone()), listener: "public" }
    }

    /// The same for another listener: `public` or `internal`.
    #[must_use]
    pub fn of_listener(&self, listener: &'static str) -> Self {
        Self { instruments: Arc::clone(&self.instruments), listener }
    }
}

/// Counts the end of a call when it is dropped, whatever ended it: an answer, a cancellation, a panic.
struct InFlight {
    metrics: Arc<Metrics>,
    labels: [KeyValue; 3],
    watch: Stopwatch,
    code: Code,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let [listener, service, method] = self.labels.clone();
        let labels = [listener, service, method, KeyValue::new("rpc.grpc.status_code", self.code as i64)];
        let instruments = &self.metrics.instruments;
        instruments.rpc_in_flight.add(-1, &self.labels);
        instruments.rpc_calls.add(1, &labels);
        if self.code != Code::Ok {
            instruments.rpc_errors.add(1, &labels);
        }
        instruments.rpc_seconds.record(self.watch.elapsed().as_secs_f64(), &labels);
    }
}

impl Middleware for Metrics {
    async fn handle<S: Rpc>(self: &Arc<Self>, request: Request<Body>, next: &S) -> Response<Answer> {
        let (service, method) = known_method(request.uri().path());
        let listener = KeyValue::new("strata.listener", self.listener);
        let labels = [listener.clone(), KeyValue::new("rpc.service", service), KeyValue::new("rpc.method", method)];
        self.instruments.rpc_in_flight.add(1, &labels);
        let call = InFlight { metrics: Arc::clone(self), labels, watch: Stopwatch::start(), code: Code::Cancelled };
        let response = next.call(request).await;
        if let Some(Refused(reason)) = response.extensions().get() {
            self.instruments.rpc_refused.add(1, &[listener, KeyValue::new("reason", reason.name())]);
        }
        watch(response, move |code| {
            // Moves the whole guard in here: naming the field alone would capture a copy of it.
            let mut call = call;
            call.code = code;
        })
    }
}
