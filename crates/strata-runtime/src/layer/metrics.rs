//! Calls, errors by code, duration and calls in flight, as OpenTelemetry instruments. Labels are service, method and code:
//! a bounded set, never a tenant, user or id.

use super::body::Observed;
use super::{Middleware, Rpc, forward, known_method};
use crate::ports::Stopwatch;
use http::{Request, Response};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter, UpDownCounter};
use std::sync::Arc;
use tonic::Code;
use tonic::body::Body;

/// The layer. See the module.
#[derive(Clone, Debug)]
pub struct Metrics {
    calls: Counter<u64>,
    errors: Counter<u64>,
    seconds: Histogram<f64>,
    in_flight: UpDownCounter<i64>,
}

impl Metrics {
    /// Instruments of `meter`.
    #[must_use]
    pub fn new(meter: &Meter) -> Self {
        Self {
            calls: meter.u64_counter("strata.rpc.calls").with_description("Calls that ended.").build(),
            errors: meter
                .u64_counter("strata.rpc.errors")
                .with_description("Calls that ended with another status than OK, by code.")
                .build(),
            seconds: meter
                .f64_histogram("rpc.server.duration")
                .with_unit("s")
                .with_description("Time from the request's head to the end of the response.")
                .with_boundaries(vec![0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0])
                .build(),
            in_flight: meter.i64_up_down_counter("strata.rpc.in_flight").with_description("Calls being served.").build(),
        }
    }

    /// Instruments of the process's meter, which exports nothing until telemetry is set up.
    #[must_use]
    pub fn global() -> Self {
        Self::new(&opentelemetry::global::meter("strata"))
    }
}

/// Counts the end of a call when it is dropped, whatever ended it: an answer, a cancellation, a panic.
struct InFlight {
    metrics: Arc<Metrics>,
    labels: [KeyValue; 2],
    watch: Stopwatch,
    code: Code,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let [service, method] = self.labels.clone();
        let labels = [service, method, KeyValue::new("rpc.grpc.status_code", self.code as i64)];
        self.metrics.in_flight.add(-1, &self.labels);
        self.metrics.calls.add(1, &labels);
        if self.code != Code::Ok {
            self.metrics.errors.add(1, &labels);
        }
        self.metrics.seconds.record(self.watch.elapsed().as_secs_f64(), &labels);
    }
}

impl Middleware for Metrics {
    async fn handle<S: Rpc>(self: Arc<Self>, request: Request<Body>, next: S) -> Response<Body> {
        let (service, method) = known_method(request.uri().path());
        let labels = [KeyValue::new("rpc.service", service), KeyValue::new("rpc.method", method)];
        self.in_flight.add(1, &labels);
        let call = InFlight { metrics: self, labels, watch: Stopwatch::start(), code: Code::Cancelled };
        let response = forward(next, request).await;
        Observed::response(response, move |code| {
            // Moves the whole guard in here: naming the field alone would capture a copy of it.
            let mut call = call;
            call.code = code;
        })
    }
}
