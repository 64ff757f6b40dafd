//! What the two stacks let through, refuse and hand on.

use crate::channels::{listen, operator, public};
use crate::double::{Client, Double, ask, reason};
use http_body_util::BodyExt;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
use secrecy::ExposeSecret;
use std::sync::Arc;
use std::time::Duration;
use strata_api::admin::v1::admin_service_server::{AdminService, AdminServiceServer};
use strata_api::admin::v1::*;
use strata_core::policy::authz::{Principal, Role};
use strata_core::{Reason, TenantId, UserId};
use strata_runtime::channel::{self, EndpointConfig};
use strata_runtime::duplex;
use strata_runtime::health::{Health, with_reflection};
use strata_runtime::layer::OPEN_PATHS;
use strata_runtime::layer::admission::AdmissionSettings;
use strata_runtime::layer::auth::{ApiKey, Authenticator, hash_key, mint_key};
use strata_runtime::layer::deadline::Deadline;
use strata_runtime::layer::metrics::Metrics;
use strata_runtime::server::ServeConfig;
use strata_runtime::signing::{KeyRing, SharedKeys, Signer, Verifier};
use strata_runtime::stack::{self, StackDeps};
use strata_runtime::{CallIdentity, Ports, RpcChannel, TaskGroup};
use strata_testkit::{SeqIds, eventually};
use tonic::{Code, Request, Response, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tower::ServiceExt;
use tracing_subscriber::layer::SubscriberExt as _;

fn key(name: &str, key: &str, roles: &[Role]) -> ApiKey {
    let principal = Principal {
        id: format!("key:{name}"),
        tenant: TenantId::new("t1").expect("id"),
        user: None,
        roles: roles.iter().copied().collect(),
    };
    ApiKey { hash: hash_key(key), principal }
}

fn with_keys(double: &Double, keys: Vec<ApiKey>) -> (RpcChannel, Arc<Authenticator>) {
    let authenticator = Arc::new(Authenticator::with_keys(keys).expect("keys"));
    let tasks = TaskGroup::new();
    let routes = double.routes().add_service(Health::new(&tasks, &[]).server());
    let routes = with_reflection(routes, strata_api::FILE_DESCRIPTOR_SET).expect("descriptors");
    (channel::local(stack::public(routes, Arc::clone(&authenticator), &StackDeps::new(Ports::system()))), authenticator)
}

fn bearing(what: &'static str, authorization: &[&str]) -> Request<GetStatusRequest> {
    let mut request = ask(what);
    for value in authorization {
        request.metadata_mut().append("authorization", value.parse().expect("ascii"));
    }
    request
}

#[tokio::test]
async fn a_credential_becomes_a_principal_and_everything_else_is_refused_alike() {
    let (channel, _) =
        with_keys(&Double::default(), vec![key("ops", "good", &[Role::Operator]), key("reader", "reads", &[Role::Reader])]);
    let mut client = Client::new(channel);
    let answer = client.get_status(bearing("context", &["Bearer good"])).await.expect("known").into_inner();
    assert_eq!(answer.settings["principal"], "key:ops");
    assert!(
        !answer.settings["headers"].contains("authorization"),
        "the credential ends at the layer: {}",
        answer.settings["headers"]
    );
    assert!(client.get_status(bearing("nothing", &["bearer  good "])).await.is_ok(), "the scheme has no case");

    let mut texts = Vec::new();
    let long = format!("Bearer {}", "x".repeat(513));
    for wrong in [
        &[][..],
        &["Bearer bad"],
        &["Bearer"],
        &["Bearer "],
        &["Basic good"],
        &["good"],
        &["Bearer good", "Bearer good"],
        &[&long],
    ] {
        let status = client.get_status(bearing("nothing", wrong)).await.expect_err("refused");
        assert_eq!((status.code(), reason(&status)), (Code::Unauthenticated, Reason::Unauthenticated), "{wrong:?}");
        assert!(status.metadata().contains_key("x-request-id"), "refusals too can be asked about");
        texts.push(status.message().to_owned());
    }
    texts.dedup();
    assert_eq!(texts.len(), 1, "nobody learns why");

    let status = client.get_status(bearing("nothing", &["Bearer reads"])).await.expect_err("role");
    assert_eq!((status.code(), reason(&status)), (Code::PermissionDenied, Reason::RoleMissing));
}

#[tokio::test]
async fn a_path_that_is_not_in_the_table_is_not_served() {
    for path in [
        "/strata.admin.v1.AdminService/Nothing",
        "/",
        "/grpc.health.v1.Health/Check/",
        "/grpc.health.v1.health/check",
        "//strata.admin.v1.AdminService/GetStatus",
    ] {
        let mut request = http::Request::new(tonic::body::Body::empty());
        *request.uri_mut() = path.parse().expect("path");
        let response = public(&Double::default()).oneshot(request).await.expect("a response, not an error");
        assert_eq!(Status::from_header_map(response.headers()).map(|status| status.code()), Some(Code::Unimplemented), "{path}");
    }
}

#[tokio::test]
async fn health_and_reflection_need_no_credential_and_nothing_else_does_without() {
    let double = Double::default();
    let (channel, _) = with_keys(&double, Vec::new());
    let mut health = HealthClient::new(channel.clone());
    eventually(Duration::from_secs(5), || {
        let mut health = health.clone();
        async move { health.check(HealthCheckRequest::default()).await.is_ok() }
    })
    .await;
    assert!(health.watch(HealthCheckRequest::default()).await.is_ok());
    for path in OPEN_PATHS.iter().filter(|path| path.contains("reflection")) {
        let mut request = http::Request::new(tonic::body::Body::empty());
        *request.uri_mut() = path.parse().expect("path");
        request.headers_mut().insert("content-type", "application/grpc".parse().expect("ascii"));
        *request.method_mut() = http::Method::POST;
        let response = channel.clone().oneshot(request).await.expect("answered");
        let trailers = response.into_body().collect().await.expect("body").trailers().cloned();
        assert_eq!(trailers.and_then(|map| Status::from_header_map(&map)).map(|status| status.code()), Some(Code::Ok), "{path}");
    }
    for method in strata_core::policy::authz::METHODS {
        let mut request = http::Request::new(tonic::body::Body::empty());
        *request.uri_mut() = method.path.parse().expect("path");
        let response = channel.clone().oneshot(request).await.expect("answered");
        assert_eq!(
            Status::from_header_map(response.headers()).map(|status| status.code()),
            Some(Code::Unauthenticated),
            "{}",
            method.path
        );
    }
    assert_eq!(Double::count(&double.began), 0);
}

#[tokio::test]
async fn keys_are_replaced_while_it_serves() {
    let (channel, authenticator) = with_keys(&Double::default(), vec![key("old", "old", &[Role::Operator])]);
    let mut client = Client::new(channel);
    assert!(client.get_status(bearing("nothing", &["Bearer old"])).await.is_ok());
    authenticator.replace(vec![key("new", "new", &[Role::Operator])]).expect("keys");
    assert!(client.get_status(bearing("nothing", &["Bearer old"])).await.is_err());
    assert!(client.get_status(bearing("nothing", &["Bearer new"])).await.is_ok());
    let twice = vec![key("a", "same", &[]), key("b", "same", &[])];
    let many = (0..=strata_core::limits::API_KEYS).map(|n| key("k", &n.to_string(), &[])).collect();
    for bad in [twice, many] {
        assert_eq!(authenticator.replace(bad).expect_err("refused").reason, Reason::InvalidField);
    }
    assert!(client.get_status(bearing("nothing", &["Bearer new"])).await.is_ok(), "the keys before stay in force");
    let (one, two) = (mint_key(&*Ports::system().ids), mint_key(&*Ports::system().ids));
    assert_ne!(one.expose_secret(), two.expose_secret());
    assert!(one.expose_secret().starts_with("strata_") && one.expose_secret().len() == 71);
}

#[tokio::test]
async fn the_local_principal_is_for_callers_on_this_host() {
    let (authenticator, headers) = (Authenticator::local(operator()), http::HeaderMap::new());
    for (peer, ok) in [
        ("127.0.0.1:5", true),
        ("[::1]:5", true),
        ("[::ffff:127.0.0.1]:5", true),
        ("10.0.0.7:5", false),
        ("[2001:db8::1]:5", false),
    ] {
        let peer = Some(peer.parse().expect("address"));
        assert_eq!(authenticator.authenticate(&headers, peer).await.is_ok(), ok, "{peer:?}");
    }
    assert!(authenticator.authenticate(&headers, None).await.is_ok(), "a call in this process");
    assert!(!authenticator.has_credentials());
}

#[tokio::test]
async fn the_peer_address_reaches_the_authenticator_over_tcp() {
    // Served on all addresses and called on one that is not loopback, where the machine has one.
    let (tasks, double) = (TaskGroup::new(), Double::default());
    let address = listen(&tasks, public(&double), ServeConfig::default()).await;
    let mut client = Client::new(channel::connect(&EndpointConfig::new(format!("http://{address}"))).expect("url"));
    assert!(client.get_status(ask("nothing")).await.is_ok(), "loopback is local");

    let Ok(probe) = std::net::UdpSocket::bind("0.0.0.0:0") else { return };
    if probe.connect("192.0.2.1:9").is_err() {
        return; // No route: the machine has loopback alone.
    }
    let own = probe.local_addr().expect("address").ip();
    let listener = strata_runtime::server::bind((own, 0).into()).await.expect("bind");
    let address = listener.local_addr().expect("address");
    let (service, token) = (public(&double), tasks.token().clone());
    tasks
        .spawn("listener", async move { strata_runtime::server::serve(listener, service, &ServeConfig::default(), token).await });
    let mut client = Client::new(channel::connect(&EndpointConfig::new(format!("http://{address}"))).expect("url"));
    let status = client.get_status(ask("nothing")).await.expect_err("from outside");
    assert_eq!(status.code(), Code::Unauthenticated);
}

#[tokio::test]
async fn a_message_that_cannot_be_decoded_is_the_callers_mistake() {
    let double = Double::default();
    let stack = public(&double);
    // A frame of three bytes that are no message: field 1 with a length beyond the end.
    let body =
        tonic::body::Body::new(http_body_util::Full::from(&b"\0\0\0\0\x03\x0a\xff\x01"[..]).map_err(|never| match never {}));
    let request = http::Request::post("/strata.admin.v1.AdminService/GetStatus")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(body)
        .expect("a request");
    let response = stack.oneshot(request).await.expect("answered");
    let status = Status::from_header_map(response.headers()).expect("a status");
    assert_eq!((status.code(), reason(&status)), (Code::InvalidArgument, Reason::InvalidField));
    assert!(status.message().contains("request"));
}

#[tokio::test]
async fn c087_a_message_over_the_limit_names_it() {
    let double = Double::default();
    let frame = [&[0][..], &u32::MAX.to_be_bytes(), b"the rest is on its way"].concat();
    let body = tonic::body::Body::new(http_body_util::Full::from(frame).map_err(|never| match never {}));
    let request = http::Request::post("/strata.admin.v1.AdminService/GetStatus")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(body)
        .expect("a request");
    let response = public(&double).oneshot(request).await.expect("answered");
    let status = Status::from_header_map(response.headers()).expect("a status");
    assert_eq!((status.code(), reason(&status)), (Code::ResourceExhausted, Reason::LimitReached));
}

fn bounded(double: &Double, admission: AdmissionSettings) -> Client {
    let deps = StackDeps { admission, ..StackDeps::new(Ports::system()) };
    Client::new(channel::local(stack::public(double.routes(), Arc::new(Authenticator::local(operator())), &deps)))
}

#[tokio::test]
async fn a_full_service_refuses_at_once_and_says_when_to_come_back() {
    let double = Double::default();
    let client = bounded(&double, AdmissionSettings { max_in_flight: 2, ..AdmissionSettings::default() });
    let call = |what| {
        let mut client = client.clone();
        tokio::spawn(async move { client.get_status(ask(what)).await })
    };
    let (first, second) = (call("wait"), call("wait"));
    eventually(Duration::from_secs(5), || async { Double::count(&double.began) == 2 }).await;
    let status = call("nothing").await.expect("no panic").expect_err("full");
    let fault = strata_api::error::fault(&status);
    assert_eq!((status.code(), fault.reason), (Code::ResourceExhausted, Reason::Overloaded));
    assert!(fault.retry_after_ms.is_some());
    assert_eq!(Double::count(&double.began), 2, "nothing was queued");
    double.gate.0.add_permits(1);
    assert!(first.await.expect("no panic").is_ok());
    second.abort();
    assert!(second.await.is_err());
    for _ in 0..5 {
        assert!(call("nothing").await.expect("no panic").is_ok(), "ended and cancelled calls give their place back");
    }
}

#[tokio::test]
async fn bytes_are_bounded_per_call_and_together() {
    let double = Double::default();
    let mut client = bounded(&double, AdmissionSettings { max_call_bytes: 4, ..AdmissionSettings::default() });
    let status = client.get_status(ask("nothing")).await.expect_err("5 bytes of frame");
    assert_eq!((status.code(), reason(&status)), (Code::ResourceExhausted, Reason::LimitReached));
    let mut client = bounded(&double, AdmissionSettings { max_bytes_in_flight: 4, ..AdmissionSettings::default() });
    let status = client.get_status(ask("nothing")).await.expect_err("5 bytes of frame");
    assert_eq!((status.code(), reason(&status)), (Code::ResourceExhausted, Reason::Overloaded));
    let mut client =
        bounded(&double, AdmissionSettings { max_bytes_in_flight: 5, max_call_bytes: 5, ..AdmissionSettings::default() });
    for _ in 0..5 {
        assert!(client.get_status(ask("nothing")).await.is_ok(), "bytes are given back");
    }
    assert_eq!(Double::count(&double.began), 5);
}

#[tokio::test]
async fn a_call_without_deadline_gets_the_default_and_none_more_than_the_maximum() {
    let deadline = Deadline { default: Duration::from_millis(50), max: Duration::from_millis(100), ..Deadline::default() };
    let deps = StackDeps { deadline, ..StackDeps::new(Ports::system()) };
    let channel = channel::local(stack::public(Double::default().routes(), Arc::new(Authenticator::local(operator())), &deps));
    let mut client = Client::new(channel);
    let status = client.get_status(ask("hang")).await.expect_err("default");
    assert_eq!(reason(&status), Reason::DeadlineExceeded);
    let mut patient = ask("context");
    patient.set_timeout(Duration::from_secs(3_600));
    let left: u64 = client.get_status(patient).await.expect("answered").get_ref().settings["left_ms"].parse().expect("number");
    assert!(left <= 100, "{left}");
}

#[tokio::test]
async fn a_stream_ends_at_its_callers_deadline_and_goes_on_without_one() {
    let tasks = TaskGroup::new();
    let health = Health::new(&tasks, &[]);
    let deadline = Deadline { default: Duration::from_millis(100), ..Deadline::default() };
    let deps = StackDeps { deadline, ..StackDeps::new(Ports::system()) };
    let channel = channel::local(stack::public(
        tonic::service::Routes::new(health.server()),
        Arc::new(Authenticator::local(operator())),
        &deps,
    ));
    let mut client = HealthClient::new(channel);
    let mut timed = Request::new(HealthCheckRequest::default());
    timed.set_timeout(Duration::from_millis(300));
    let mut timed = client.watch(timed).await.expect("watch").into_inner();
    let mut endless = client.watch(HealthCheckRequest::default()).await.expect("watch").into_inner();
    assert!(endless.message().await.expect("first").is_some());
    let status = loop {
        match timed.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("ended without a status"),
            Err(status) => break status,
        }
    };
    assert_eq!(reason(&status), Reason::DeadlineExceeded);
    // Still open, past the default: it has news, or nothing to say.
    while let Ok(next) = tokio::time::timeout(Duration::from_millis(50), endless.message()).await {
        assert!(matches!(next, Ok(Some(_))), "{next:?}");
    }
}

/// The router in miniature: answers by asking a layer over a signed channel.
struct Front {
    back: Client,
}

#[tonic::async_trait]
impl AdminService for Front {
    async fn get_status(&self, request: Request<GetStatusRequest>) -> Result<Response<GetStatusResponse>, Status> {
        let principal = request.extensions().get::<Principal>().expect("authenticated").clone();
        let mut onward = ask("context");
        if request.metadata().contains_key("unsigned") {
            return self.back.clone().get_status(onward).await;
        }
        onward.extensions_mut().insert(CallIdentity::new(principal, Some(UserId::new("u1").expect("id"))));
        let span = tracing::info_span!("handler");
        tracing::Instrument::instrument(self.back.clone().get_status(onward), span).await
    }

    async fn reindex(&self, _: Request<ReindexRequest>) -> Result<Response<ReindexResponse>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn backup(&self, _: Request<BackupRequest>) -> Result<Response<BackupResponse>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn verify_consistency(
        &self,
        _: Request<VerifyConsistencyRequest>,
    ) -> Result<Response<VerifyConsistencyResponse>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn get_modes(&self, _: Request<GetModesRequest>) -> Result<Response<GetModesResponse>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn set_mode(&self, _: Request<SetModeRequest>) -> Result<Response<SetModeResponse>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn create_api_key(&self, _: Request<CreateApiKeyRequest>) -> Result<Response<CreateApiKeyResponse>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn list_api_keys(&self, _: Request<ListApiKeysRequest>) -> Result<Response<ListApiKeysResponse>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn revoke_api_key(&self, _: Request<RevokeApiKeyRequest>) -> Result<Response<RevokeApiKeyResponse>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn sample_for_review(&self, _: Request<SampleForReviewRequest>) -> Result<Response<SampleForReviewResponse>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn submit_review(&self, _: Request<SubmitReviewRequest>) -> Result<Response<SubmitReviewResponse>, Status> {
        Err(Status::unimplemented("not here"))
    }

    type ListAuditStream = tonic::codegen::BoxStream<ListAuditResponse>;

    async fn list_audit(&self, _: Request<ListAuditRequest>) -> Result<Response<Self::ListAuditStream>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn verify_audit(&self, _: Request<VerifyAuditRequest>) -> Result<Response<VerifyAuditResponse>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn get_quality(&self, _: Request<GetQualityRequest>) -> Result<Response<GetQualityResponse>, Status> {
        Err(Status::unimplemented("not here"))
    }

    type WatchDecisionsStream = tonic::codegen::BoxStream<WatchDecisionsResponse>;

    async fn watch_decisions(&self, _: Request<WatchDecisionsRequest>) -> Result<Response<Self::WatchDecisionsStream>, Status> {
        Err(Status::unimplemented("not here"))
    }

    type RunMaintenanceStream = futures::stream::BoxStream<'static, Result<RunMaintenanceResponse, Status>>;

    async fn run_maintenance(&self, _: Request<RunMaintenanceRequest>) -> Result<Response<Self::RunMaintenanceStream>, Status> {
        Err(Status::unimplemented("not here"))
    }

    type RescanStream = futures::stream::BoxStream<'static, Result<RescanResponse, Status>>;

    async fn rescan(&self, _: Request<RescanRequest>) -> Result<Response<Self::RescanStream>, Status> {
        Err(Status::unimplemented("not here"))
    }
}

fn layer(keys: &SharedKeys) -> RpcChannel {
    stack::internal(
        Double::default().routes(),
        Arc::new(Verifier::new(keys.clone(), Ports::system())),
        &StackDeps::new(Ports::system()),
    )
}

fn front(back: RpcChannel) -> Client {
    let front = AdminServiceServer::new(Front { back: Client::new(back) });
    Client::new(channel::local(stack::public(
        tonic::service::Routes::new(front),
        Arc::new(Authenticator::local(operator())),
        &StackDeps::new(Ports::system()),
    )))
}

fn process_keys() -> SharedKeys {
    SharedKeys::new(KeyRing::ephemeral(&*Ports::system().ids))
}

#[tokio::test]
async fn p10_caller_request_id_deadline_and_trace_go_through_a_signed_call_in_every_topology() {
    opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
    let spans = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(spans.clone()).build();
    let layer_of_spans = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let subscriber = tracing_subscriber::registry().with(tracing_subscriber::filter::LevelFilter::INFO).with(layer_of_spans);
    // For the whole process: the other tests' spans are told apart by their trace ids.
    tracing::subscriber::set_global_default(subscriber).expect("the only one");

    let (tasks, keys) = (TaskGroup::new(), process_keys());
    let address = listen(&tasks, layer(&keys), ServeConfig::default()).await;
    let remote = channel::connect(&EndpointConfig::new(format!("http://{address}"))).expect("url");
    let signer = Signer::new(keys.clone(), Ports::system());
    for (n, (over, channel)) in
        [("local", channel::local(layer(&keys))), ("duplex", duplex::channel(&tasks, layer(&keys))), ("tcp", remote)]
            .into_iter()
            .enumerate()
    {
        let trace = format!("0af7651916cd43dd8448eb211c80319{n}");
        let mut client = front(signer.sign(channel));
        let mut request = ask("context");
        request.set_timeout(Duration::from_secs(5));
        request.metadata_mut().insert("x-request-id", "req-1".parse().expect("ascii"));
        request.metadata_mut().insert("traceparent", format!("00-{trace}-b7ad6b7169203331-01").parse().expect("ascii"));
        let answer = client.get_status(request).await.expect(over);
        assert_eq!(answer.metadata().get("x-request-id").and_then(|value| value.to_str().ok()), Some("req-1"), "{over}");
        let seen = &answer.get_ref().settings;
        assert_eq!(seen["claims"], "local", "{over}: the caller arrives");
        assert_eq!(seen["principal"], "", "{over}: and only as a claim");
        assert_eq!(seen["request_id"], "req-1", "{over}");
        let left: u64 = seen["left_ms"].parse().expect("number");
        assert!((1..5_000).contains(&left), "{over}: {left} ms left");
        assert!(seen["traceparent"].starts_with(&format!("00-{trace}-")), "{over}: {}", seen["traceparent"]);
        assert!(!seen["headers"].contains("strata-signed-bin"), "{over}: {}", seen["headers"]);

        let ours = || -> Vec<_> {
            spans
                .get_finished_spans()
                .expect("spans")
                .into_iter()
                .filter(|span| span.span_context.trace_id().to_string() == trace)
                .collect()
        };
        eventually(Duration::from_secs(5), || async { ours().len() >= 3 }).await;
        let finished = ours();
        let of = |parent: &dyn Fn(&opentelemetry_sdk::trace::SpanData) -> bool| {
            finished.iter().find(|span| parent(span)).expect("span").clone()
        };
        let outer = of(&|span| span.parent_span_id.to_string() == "b7ad6b7169203331");
        assert_eq!(outer.name, "strata.admin.v1.AdminService/GetStatus", "{over}");
        let handler = of(&|span| span.parent_span_id == outer.span_context.span_id());
        assert_eq!(handler.name, "handler");
        let inner = of(&|span| span.parent_span_id == handler.span_context.span_id());
        assert_eq!(inner.name, outer.name, "{over}: the layer's span is a child of the router's handler");
    }
    assert!(tasks.shutdown(Duration::from_secs(5)).await);
}

#[tokio::test]
async fn p10_a_layer_answers_nobody_but_the_router() {
    let keys = process_keys();
    let channel = channel::local(layer(&keys));
    let status = Client::new(channel.clone()).get_status(ask("nothing")).await.expect_err("direct");
    assert_eq!((status.code(), reason(&status)), (Code::PermissionDenied, Reason::UnsignedCall));
    let foreign = Signer::new(process_keys(), Ports::system()).sign(channel.clone());
    let mut request = ask("nothing");
    request.extensions_mut().insert(CallIdentity::new(operator(), None));
    let status = Client::new(foreign).get_status(request).await.expect_err("foreign key");
    assert_eq!(reason(&status), Reason::UnsignedCall);

    let signed = Signer::new(keys, Ports::system()).sign(channel);
    let mut unsigned = ask("nothing");
    unsigned.metadata_mut().insert("unsigned", "yes".parse().expect("ascii"));
    let status = front(signed).get_status(unsigned).await.expect_err("no identity");
    assert_eq!(reason(&status), Reason::Internal, "a defect of the router, found before anything is sent");
}

#[tokio::test]
async fn p10_an_onward_call_without_time_left_is_not_made() {
    let keys = process_keys();
    let double = Double::default();
    let back = stack::internal(
        double.routes(),
        Arc::new(Verifier::new(keys.clone(), Ports::system())),
        &StackDeps::new(Ports::system()),
    );
    let mut client = Client::new(Signer::new(keys, Ports::system()).sign(channel::local(back)));
    let mut request = ask("nothing");
    request.extensions_mut().insert(CallIdentity::new(operator(), None));
    let over = strata_runtime::context::CallContext {
        request_id: None,
        deadline: Some(strata_runtime::ports::Stopwatch::start().at(Duration::ZERO)),
        admitted: None,
    };
    let status = over.scope(client.get_status(request)).await.expect_err("too late");
    assert_eq!(reason(&status), Reason::DeadlineExceeded);
    assert_eq!(Double::count(&double.began), 0);
}

#[tokio::test]
async fn every_call_is_counted_by_method_and_outcome_and_none_stays_in_flight() {
    let exporter = InMemoryMetricExporter::default();
    let provider = SdkMeterProvider::builder().with_reader(PeriodicReader::builder(exporter.clone()).build()).build();
    let metrics = Metrics::new(&opentelemetry::metrics::MeterProvider::meter(&provider, "test"));
    let double = Double::default();
    let deps = StackDeps { metrics, ..StackDeps::new(Ports { ids: SeqIds::default().port(), ..Ports::system() }) };
    let mut client =
        Client::new(channel::local(stack::public(double.routes(), Arc::new(Authenticator::local(operator())), &deps)));
    client.get_status(ask("nothing")).await.expect("ok");
    client.get_status(ask("fail")).await.expect_err("fails");
    client.get_status(ask("panic")).await.expect_err("panics");
    let mut cancelled = client.clone();
    let call = tokio::spawn(async move { cancelled.get_status(ask("hang")).await });
    eventually(Duration::from_secs(5), || async { Double::count(&double.began) == 4 }).await;
    call.abort();
    eventually(Duration::from_secs(5), || async { Double::count(&double.dropped) >= 1 }).await;
    assert!(call.await.is_err());
    provider.force_flush().expect("flush");

    let (mut codes, mut in_flight) = (Vec::new(), None);
    for metric in
        exporter.get_finished_metrics().expect("metrics").iter().flat_map(|r| r.scope_metrics()).flat_map(|s| s.metrics())
    {
        match (metric.name(), metric.data()) {
            ("strata.rpc.calls", AggregatedMetrics::U64(MetricData::Sum(sum))) => {
                for point in sum.data_points() {
                    let label = |key: &str| {
                        point.attributes().find(|kv| kv.key.as_str() == key).map(|kv| kv.value.to_string()).unwrap_or_default()
                    };
                    assert_eq!(label("rpc.method"), "GetStatus");
                    codes.push((label("rpc.grpc.status_code"), point.value()));
                }
            }
            ("strata.rpc.in_flight", AggregatedMetrics::I64(MetricData::Sum(sum))) => {
                in_flight = sum.data_points().map(|point| point.value()).next()
            }
            _ => {}
        }
    }
    codes.sort();
    let expected = [(Code::Ok, 1), (Code::Cancelled, 1), (Code::Internal, 1), (Code::FailedPrecondition, 1)];
    let mut expected: Vec<_> = expected.map(|(code, n)| ((code as i32).to_string(), n)).into();
    expected.sort();
    assert_eq!(codes, expected);
    assert_eq!(in_flight, Some(0));
}

/// Prints what a call costs, bare and through the stacks.
#[tokio::test]
async fn cost_of_a_call() {
    let keys = process_keys();
    let signed = Signer::new(keys.clone(), Ports::system()).sign(channel::local(layer(&keys)));
    let bare = channel::local(Double::default().routes());
    for (what, channel) in [
        ("bare local call", bare),
        ("local call through the public stack", channel::local(public(&Double::default()))),
        ("signed local call through the internal stack", signed),
    ] {
        let mut client = Client::new(channel);
        let rounds = 2_000;
        let watch = strata_runtime::ports::Stopwatch::start();
        for _ in 0..rounds {
            let mut request = Request::new(GetStatusRequest {});
            request.extensions_mut().insert(CallIdentity::new(operator(), None));
            client.get_status(request).await.expect(what);
        }
        eprintln!("{what}: {:?}", watch.elapsed() / rounds);
    }
}
