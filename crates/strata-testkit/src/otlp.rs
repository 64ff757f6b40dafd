//! A small collector: takes traces and metrics over OTLP/gRPC, as any collector does, and shows a test what came.

use crate::port::HeldPort;
use crate::thread::ServerThread;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{MetricsService, MetricsServiceServer};
use opentelemetry_proto::tonic::collector::metrics::v1::{ExportMetricsServiceRequest, ExportMetricsServiceResponse};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// A span as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// 32 hexadecimal digits.
    pub trace: String,
    /// 16 hexadecimal digits.
    pub id: String,
    /// The parent's id; empty for the first one of a trace.
    pub parent: String,
    /// `service.name` of the process.
    pub service: String,
    /// Name.
    pub name: String,
    /// Attributes as text.
    pub attributes: BTreeMap<String, String>,
}

#[derive(Debug, Default)]
struct Taken {
    spans: Vec<Span>,
    metrics: BTreeSet<String>,
    /// Every text of every message, for what must never be sent.
    raw: Vec<Vec<u8>>,
}

/// The collector.
#[derive(Debug)]
pub struct OtlpReceiver {
    address: std::net::SocketAddr,
    taken: Arc<Mutex<Taken>>,
    _server: ServerThread,
}

#[derive(Clone)]
struct Service(Arc<Mutex<Taken>>);

impl OtlpReceiver {
    /// Starts one.
    ///
    /// # Panics
    /// When the machine has no free port.
    #[must_use]
    pub fn start() -> Self {
        let (port, taken) = (HeldPort::new(), Arc::<Mutex<Taken>>::default());
        let (address, service) = (port.addr(), Service(Arc::clone(&taken)));
        let (listening, listens) = std::sync::mpsc::channel();
        let server = ServerThread::start("otlp-receiver", move || async move {
            let incoming = TcpIncoming::from(port.listen());
            listening.send(()).expect("the starter waits");
            let served = tonic::transport::Server::builder()
                .add_service(TraceServiceServer::new(service.clone()))
                .add_service(MetricsServiceServer::new(service))
                .serve_with_incoming(incoming);
            served.await.expect("the collector serves");
        });
        listens.recv().expect("the collector listens");
        Self { address, taken, _server: server }
    }

    /// For `telemetry.otlp_endpoint`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Spans so far, as they came.
    #[must_use]
    pub fn spans(&self) -> Vec<Span> {
        self.taken.lock().spans.clone()
    }

    /// Names of the metrics so far.
    #[must_use]
    pub fn metrics(&self) -> BTreeSet<String> {
        self.taken.lock().metrics.clone()
    }

    /// Whether anything that came holds `needle`.
    #[must_use]
    pub fn holds(&self, needle: &str) -> bool {
        let taken = self.taken.lock();
        taken.raw.iter().any(|raw| raw.windows(needle.len()).any(|window| window == needle.as_bytes()))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn text(pair: &KeyValue) -> (String, String) {
    let value = match pair.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(n)) => n.to_string(),
        Some(Value::BoolValue(b)) => b.to_string(),
        Some(Value::DoubleValue(n)) => n.to_string(),
        other => format!("{other:?}"),
    };
    (pair.key.clone(), value)
}

#[tonic::async_trait]
impl TraceService for Service {
    async fn export(&self, request: Request<ExportTraceServiceRequest>) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let request = request.into_inner();
        let mut taken = self.0.lock();
        taken.raw.push(prost::Message::encode_to_vec(&request));
        for resource in &request.resource_spans {
            let attributes = resource.resource.iter().flat_map(|resource| resource.attributes.iter().map(text));
            let service = attributes.filter(|(key, _)| key == "service.name").map(|(_, value)| value).next().unwrap_or_default();
            for span in resource.scope_spans.iter().flat_map(|scope| &scope.spans) {
                taken.spans.push(Span {
                    trace: hex(&span.trace_id),
                    id: hex(&span.span_id),
                    parent: hex(&span.parent_span_id),
                    service: service.clone(),
                    name: span.name.clone(),
                    attributes: span.attributes.iter().map(text).collect(),
                });
            }
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Service {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        let request = request.into_inner();
        let mut taken = self.0.lock();
        taken.raw.push(prost::Message::encode_to_vec(&request));
        let scopes = request.resource_metrics.iter().flat_map(|resource| &resource.scope_metrics);
        for metric in scopes.flat_map(|scope| &scope.metrics) {
            taken.metrics.insert(metric.name.clone());
        }
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}
