//! Administration of the role: what the router passes on of `AdminService`.

use crate::state::State;
use std::sync::Arc;
use strata_api::admin::v1 as pb;
use strata_api::admin::v1::admin_service_server::AdminService;
use strata_api::error::status;
use strata_core::{Fault, Reason};
use strata_runtime::Claims;
use tonic::{Request, Response, Status};

/// The part of `AdminService` that long-term memory does itself.
#[derive(Clone, Debug)]
pub struct Admin {
    state: Arc<State>,
}

impl Admin {
    /// Over the role's state.
    #[must_use]
    pub const fn new(state: Arc<State>) -> Self {
        Self { state }
    }

    async fn rebuild(&self, request: &Request<pb::ReindexRequest>) -> Result<pb::ReindexResponse, Fault> {
        Claims::of(request)?.require_write()?;
        let records = self.state.relay.reindex().await?;
        let embedding_model = self.state.relay.model();
        tracing::info!(records, embedding_model, "the index is rebuilt");
        Ok(pb::ReindexResponse { records, embedding_model })
    }
}

#[tonic::async_trait]
impl AdminService for Admin {
    /// The router's own: it knows every layer.
    async fn get_status(&self, _: Request<pb::GetStatusRequest>) -> Result<Response<pb::GetStatusResponse>, Status> {
        Err(status(Fault::new(Reason::NotServed, "GetStatus is answered by the router")))
    }

    async fn reindex(&self, request: Request<pb::ReindexRequest>) -> Result<Response<pb::ReindexResponse>, Status> {
        self.rebuild(&request).await.map(Response::new).map_err(status)
    }
}
