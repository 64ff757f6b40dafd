//! A service under the product's own proto whose handlers do what a test asks for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use strata_api::admin::v1::admin_service_client::AdminServiceClient;
use strata_api::admin::v1::admin_service_server::{AdminService, AdminServiceServer};
use strata_api::admin::v1::*;
use strata_core::{Fault, Reason};
use strata_runtime::context::CallContext;
use strata_runtime::signing::Claims;
use strata_runtime::{RpcChannel, limited};
use tokio::sync::Semaphore;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

/// What the handler does, named in the metadata `do`.
#[derive(Clone, Default)]
pub struct Double {
    /// Handlers that began.
    pub began: Arc<AtomicUsize>,
    /// Handlers that were dropped before their end.
    pub dropped: Arc<AtomicUsize>,
    /// Handlers that ended by themselves.
    pub ended: Arc<AtomicUsize>,
    /// What `wait` waits for.
    pub gate: Arc<Gate>,
}

pub struct Gate(pub Semaphore);

impl Default for Gate {
    fn default() -> Self {
        Self(Semaphore::new(0))
    }
}

struct Dropped(Arc<AtomicUsize>, bool);

impl Drop for Dropped {
    fn drop(&mut self) {
        if !self.1 {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[tonic::async_trait]
impl AdminService for Double {
    async fn get_status(&self, request: Request<GetStatusRequest>) -> Result<Response<GetStatusResponse>, Status> {
        self.began.fetch_add(1, Ordering::SeqCst);
        let mut guard = Dropped(Arc::clone(&self.dropped), false);
        let mut answer = GetStatusResponse { version: "ok".into(), ..GetStatusResponse::default() };
        match request.metadata().get("do").and_then(|value| value.to_str().ok()) {
            Some("hang") => std::future::pending().await,
            Some("wait") => self.gate.0.acquire().await.expect("open").forget(),
            Some("panic") => panic!("the secret of user u1"),
            Some("fail") => {
                let fault = Fault::new(Reason::StaleEpoch, "the epoch is old")
                    .with("epoch", "7")
                    .rule("P3", "diet", "older than seen")
                    .retry_after(1_500);
                return Err(strata_api::error::status(fault));
            }
            Some("refuse") => return Err(strata_api::error::status(Fault::new(Reason::NotServing, "starting"))),
            Some("context") => {
                let context = CallContext::current();
                answer.settings.insert("request_id".into(), context.request_id.as_deref().unwrap_or_default().to_owned());
                answer.settings.insert("left_ms".into(), context.remaining().map_or(0, |left| left.as_millis()).to_string());
                let principal = request.extensions().get::<strata_core::policy::authz::Principal>();
                answer.settings.insert("principal".into(), principal.map(|p| p.id.clone()).unwrap_or_default());
                answer
                    .settings
                    .insert("claims".into(), Claims::of(&request).map(|claims| claims.caller.id.clone()).unwrap_or_default());
                answer.settings.insert("smuggled".into(), request.extensions().get::<Smuggled>().is_some().to_string());
                let traceparent = request.metadata().get("traceparent").and_then(|value| value.to_str().ok());
                answer.settings.insert("traceparent".into(), traceparent.unwrap_or_default().to_owned());
                let headers: Vec<_> = request.metadata().keys().map(|key| format!("{key:?}")).collect();
                answer.settings.insert("headers".into(), headers.join(" "));
            }
            Some("large") => answer.version = "x".repeat(strata_core::limits::MESSAGE_BYTES + 1),
            _ => {}
        }
        guard.1 = true;
        self.ended.fetch_add(1, Ordering::SeqCst);
        Ok(Response::new(answer))
    }

    async fn reindex(&self, _: Request<ReindexRequest>) -> Result<Response<ReindexResponse>, Status> {
        Ok(Response::new(ReindexResponse { records: 7, ..ReindexResponse::default() }))
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

/// Something a caller puts into its request's extensions.
#[derive(Clone)]
pub struct Smuggled;

impl Double {
    pub fn routes(&self) -> Routes {
        Routes::new(limited!(AdminServiceServer::new(self.clone())))
    }

    pub fn count(counter: &AtomicUsize) -> usize {
        counter.load(Ordering::SeqCst)
    }
}

pub type Client = AdminServiceClient<RpcChannel>;

/// A request for what the handler is to do.
pub fn ask(what: &'static str) -> Request<GetStatusRequest> {
    let mut request = Request::new(GetStatusRequest {});
    request.metadata_mut().insert("do", tonic::metadata::MetadataValue::from_static(what));
    request
}

/// The reason of a refusal.
pub fn reason(status: &Status) -> Reason {
    strata_api::error::fault(status).reason
}
