//! Logs to stderr, traces and metrics to an OTLP collector when one is named. Nothing leaves the process by default, and
//! no log line or span holds content.

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::WithExportConfig as _;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use serde::Deserialize;
use std::io::IsTerminal as _;
use std::time::Duration;
use strata_core::{Fault, Reason};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Form of the log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One JSON object per line, for machines.
    Json,
    /// For people.
    #[default]
    Pretty,
}

/// What to record and where to send it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryConfig {
    /// Role of the process: `service.name` becomes `strata-<role>`.
    pub role: String,
    /// Id of this replica, such as the pod's name; without it viewers merge replicas.
    pub instance: Option<String>,
    /// Filter in the syntax of `RUST_LOG`.
    pub filter: String,
    /// Form of the log lines.
    pub format: LogFormat,
    /// OTLP gRPC endpoint, such as `http://collector:4317`; none = nothing is sent.
    pub otlp_endpoint: Option<String>,
    /// Whether metrics are kept for [`crate::exposition`] to show.
    pub prometheus: bool,
    /// Share of traces that begin here and are recorded, 0 to 1. A caller's own decision is followed.
    pub sample_ratio: f64,
    /// Seconds between exports of metrics.
    pub metrics_interval_seconds: u64,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            role: "all".into(),
            instance: None,
            filter: "info".into(),
            format: LogFormat::default(),
            otlp_endpoint: None,
            prometheus: false,
            sample_ratio: 1.0,
            metrics_interval_seconds: 30,
        }
    }
}

/// Flushes what is buffered when the process ends; without it the last batch is lost. Drop it while a multi-threaded
/// runtime still runs: the drop waits for exports
/// that run there, at most 3 s each for traces and for metrics.
#[must_use = "telemetry ends when the guard is dropped"]
#[derive(Debug, Default)]
pub struct Guard {
    traces: Option<SdkTracerProvider>,
    metrics: Option<SdkMeterProvider>,
    registry: Option<prometheus::Registry>,
}

impl Guard {
    /// What [`crate::exposition::spawn`] shows; none unless asked for.
    #[must_use]
    pub fn registry(&self) -> Option<prometheus::Registry> {
        self.registry.clone()
    }
}

/// Longest wait for a collector at the end of a process.
const FLUSH: Duration = Duration::from_secs(3);
/// The exporter's own transport must not be traced, or every export makes another. Appended to the user's filter.
const QUIET: &str =
    "h2=off,hyper=off,hyper_util=off,tonic=off,tower=off,opentelemetry=warn,opentelemetry_sdk=warn,opentelemetry_otlp=warn";

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(traces) = self.traces.take()
            && let Err(error) = traces.shutdown_with_timeout(FLUSH)
        {
            tracing::warn!(%error, "the last traces were not delivered");
        }
        if let Some(metrics) = self.metrics.take()
            && let Err(error) = metrics.shutdown_with_timeout(FLUSH)
        {
            tracing::warn!(%error, "the last metrics were not delivered");
        }
    }
}

/// Sets up logs, and traces and metrics if an endpoint is named. Once per process, inside a tokio runtime.
///
/// # Errors
/// `INVALID_FIELD` naming the bad setting; `INTERNAL` when telemetry is set up already.
pub fn init(config: &TelemetryConfig) -> Result<Guard, Fault> {
    let filter = EnvFilter::try_new(format!("{QUIET},{}", config.filter))
        .map_err(|_| Fault::field("telemetry.filter", "is not a filter such as info,strata=debug"))?;
    if !(0.0..=1.0).contains(&config.sample_ratio) {
        return Err(Fault::field("telemetry.sample_ratio", "must be 0 to 1"));
    }
    opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
    let guard = export(config)?;
    let spans = guard.traces.as_ref().map(|traces| tracing_opentelemetry::layer().with_tracer(traces.tracer("strata")));
    // Colours are for a terminal: in a file or a pipe they are noise.
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer().with_ansi(colours).with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(filter).with(spans);
    let done = match config.format {
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).try_init(),
        LogFormat::Pretty => registry.with(lines).try_init(),
    };
    done.map_err(|_| Fault::new(Reason::Internal, "telemetry is set up already"))?;
    log_panics_without_content();
    Ok(guard)
}

fn export(config: &TelemetryConfig) -> Result<Guard, Fault> {
    if config.otlp_endpoint.is_none() && !config.prometheus {
        return Ok(Guard::default());
    }
    let wrong = || Fault::field("telemetry.otlp_endpoint", "must be http://host:port of an OTLP gRPC collector");
    let mut resource = Resource::builder().with_service_name(format!("strata-{}", config.role));
    if let Some(instance) = &config.instance {
        resource = resource.with_attribute(opentelemetry::KeyValue::new("service.instance.id", instance.clone()));
    }
    let resource = resource.build();
    let mut guard = Guard::default();
    let mut metrics = SdkMeterProvider::builder().with_resource(resource.clone());
    if let Some(endpoint) = &config.otlp_endpoint {
        let spans = opentelemetry_otlp::SpanExporter::builder()
            .with_tonic()
            .with_endpoint(endpoint)
            .with_timeout(FLUSH)
            .build()
            .map_err(|_| wrong())?;
        let traces = SdkTracerProvider::builder()
            .with_batch_exporter(spans)
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(config.sample_ratio))))
            .with_resource(resource)
            .build();
        let exporter = opentelemetry_otlp::MetricExporter::builder()
            .with_tonic()
            .with_endpoint(endpoint)
            .with_timeout(FLUSH)
            .build()
            .map_err(|_| wrong())?;
        let reader = opentelemetry_sdk::metrics::PeriodicReader::builder(exporter)
            .with_interval(Duration::from_secs(config.metrics_interval_seconds.max(1)))
            .build();
        metrics = metrics.with_reader(reader);
        opentelemetry::global::set_tracer_provider(traces.clone());
        guard.traces = Some(traces);
    }
    if config.prometheus {
        let registry = prometheus::Registry::new();
        let reader = opentelemetry_prometheus::exporter()
            .with_registry(registry.clone())
            .scope_info_enabled(false)
            .build()
            .map_err(|_| Fault::new(Reason::Internal, "the metrics cannot be registered"))?;
        metrics = metrics.with_reader(reader);
        guard.registry = Some(registry);
    }
    let metrics = metrics.build();
    opentelemetry::global::set_meter_provider(metrics.clone());
    guard.metrics = Some(metrics);
    Ok(guard)
}

/// The default hook prints the message of a panic, which may quote content. Ours prints where it happened.
fn log_panics_without_content() {
    std::panic::set_hook(Box::new(|panic| {
        let (file, line) = panic.location().map_or(("unknown", 0), |at| (at.file(), at.line()));
        tracing::error!(file, line, "a defect: the code panicked");
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TaskGroup;
    use crate::ports::Stopwatch;
    use crate::server::{self, ServeConfig};
    use bytes::Bytes;
    use http::{Request, Response};
    use http_body::Frame;
    use http_body_util::{BodyExt, StreamBody};
    use opentelemetry::metrics::MeterProvider as _;
    use opentelemetry::trace::{Span as _, Tracer as _};
    use parking_lot::Mutex;
    use std::sync::Arc;
    use tonic::body::Body;

    /// Paths that a collector was called at, with what was sent.
    type Received = Arc<Mutex<Vec<(String, Bytes)>>>;

    /// Takes everything, as an OTLP collector does.
    async fn collect(request: Request<Body>, received: Received) -> Result<Response<Body>, tonic::Status> {
        let path = request.uri().path().to_owned();
        let sent = request.into_body().collect().await?.to_bytes();
        received.lock().push((path, sent));
        let trailers =
            http::HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), http::HeaderValue::from_static("0"))]);
        let frames = [Frame::data(Bytes::from_static(&[0; 5])), Frame::trailers(trailers)].map(Ok::<_, tonic::Status>);
        let mut response = Response::new(Body::new(StreamBody::new(futures::stream::iter(frames))));
        response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/grpc"));
        Ok(response)
    }

    fn record(config: &TelemetryConfig) -> Guard {
        let guard = export(config).expect("providers");
        guard.traces.as_ref().expect("traces").tracer("test").start("remember").end();
        guard.metrics.as_ref().expect("metrics").meter("test").u64_counter("memories").build().add(1, &[]);
        guard
    }

    async fn time_to_drop(guard: Guard) -> Duration {
        let watch = Stopwatch::start();
        TaskGroup::new().blocking("drop", move || drop(guard)).await.expect("no panic");
        watch.elapsed()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_last_traces_and_metrics_reach_the_collector() {
        let (tasks, received) = (TaskGroup::new(), Received::default());
        let listener = server::bind(([127, 0, 0, 1], 0).into()).await.expect("bind");
        let address = listener.local_addr().expect("address");
        let (token, to) = (tasks.token().clone(), Arc::clone(&received));
        let service = tower::service_fn(move |request: Request<Body>| collect(request, Arc::clone(&to)));
        tasks.spawn("collector", async move { server::serve(listener, service, &ServeConfig::default(), token).await });

        let config = TelemetryConfig {
            role: "router".into(),
            instance: Some("router-0".into()),
            otlp_endpoint: Some(format!("http://{address}")),
            ..TelemetryConfig::default()
        };
        time_to_drop(record(&config)).await;
        let received = received.lock().clone();
        for (service, name) in [("trace.v1.TraceService", "remember"), ("metrics.v1.MetricsService", "memories")] {
            let path = format!("/opentelemetry.proto.collector.{service}/Export");
            let (_, sent) = received.iter().find(|(at, _)| *at == path).expect(service);
            for text in [name, "strata-router", "router-0"] {
                assert!(sent.windows(text.len()).any(|window| window == text.as_bytes()), "{service} names {text}");
            }
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn c180_a_collector_that_does_not_answer_does_not_hold_the_process() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
        let endpoint = Some(format!("http://{}", silent.local_addr().expect("address")));
        let taken = time_to_drop(record(&TelemetryConfig { otlp_endpoint: endpoint, ..TelemetryConfig::default() })).await;
        assert!(taken < FLUSH * 3, "{taken:?}");
    }

    #[test]
    fn nothing_is_exported_by_default() {
        let guard = export(&TelemetryConfig::default()).expect("no endpoint");
        assert!(guard.traces.is_none() && guard.metrics.is_none());
    }

    #[test]
    fn bad_settings_are_named() {
        let of = |config: TelemetryConfig| init(&config).expect_err("refused").fields.first().map(|field| field.field.clone());
        let default = TelemetryConfig::default;
        assert_eq!(of(TelemetryConfig { filter: "=[".into(), ..default() }).as_deref(), Some("telemetry.filter"));
        for ratio in [-0.1, 1.1, f64::NAN] {
            assert_eq!(of(TelemetryConfig { sample_ratio: ratio, ..default() }).as_deref(), Some("telemetry.sample_ratio"));
        }
        assert_eq!(
            of(TelemetryConfig { otlp_endpoint: Some("no url".into()), ..default() }).as_deref(),
            Some("telemetry.otlp_endpoint")
        );
    }
}
