//! The router's own services: promotion, context, ownership, administration.

use crate::gate::Core;
use crate::layers::{answer, reading, relayed, signed, without_transport};
use crate::modes::Modes;
use futures::TryStreamExt as _;
use futures::stream::BoxStream;
use std::sync::Arc;
use std::time::Duration;
use strata_api::admin::v1 as admin;
use strata_api::admin::v1::admin_service_server::AdminService;
use strata_api::common::v1::{LayerState, LayerStatus};
use strata_api::convert::router as convert;
use strata_api::error::status;
use strata_api::router::v1 as pb;
use strata_api::router::v1::router_service_server::RouterService;
use strata_core::id::Level;
use strata_core::policy::authz::{Layer, Principal};
use strata_core::policy::ownership::{Mark, Place};
use strata_core::{FactKey, Fault, Owner, Reason, TaskId, UserId};
use tonic::{Request, Response, Status};

/// Longest wait for one layer's sign of life.
const SIGN_OF_LIFE: Duration = Duration::from_millis(1_000);
/// A user nobody has: asked for to see whether a layer answers.
const NOBODY: &str = "strata.status";

/// The services.
#[derive(Clone, Debug)]
pub(crate) struct Service(pub(crate) Arc<Core>);

#[tonic::async_trait]
impl RouterService for Service {
    async fn promote(&self, request: Request<pb::PromoteRequest>) -> Result<Response<pb::PromoteResponse>, Status> {
        let (call, body) = self.0.admit("/strata.router.v1.RouterService/Promote", request)?;
        let promotion = self.0.promote(&call, body).await.map_err(status)?;
        Ok(Response::new(pb::PromoteResponse { promotion: Some(convert::wire_promotion(&promotion)) }))
    }

    async fn get_promotion(
        &self,
        request: Request<pb::GetPromotionRequest>,
    ) -> Result<Response<pb::GetPromotionResponse>, Status> {
        let (call, body) = self.0.admit("/strata.router.v1.RouterService/GetPromotion", request)?;
        let promotion = self.0.promotion(&call.owner, &body.promotion_id).await.map_err(status)?;
        Ok(Response::new(pb::GetPromotionResponse { promotion: Some(convert::wire_promotion(&promotion)) }))
    }

    async fn assemble_context(
        &self,
        request: Request<pb::AssembleContextRequest>,
    ) -> Result<Response<pb::AssembleContextResponse>, Status> {
        let (call, body) = self.0.admit("/strata.router.v1.RouterService/AssembleContext", request)?;
        self.0.assemble(&call, body).await.map(Response::new).map_err(status)
    }

    async fn get_ownership(
        &self,
        request: Request<pb::GetOwnershipRequest>,
    ) -> Result<Response<pb::GetOwnershipResponse>, Status> {
        let (call, body) = self.0.admit("/strata.router.v1.RouterService/GetOwnership", request)?;
        let look = async {
            let key = self.0.registry.resolve(&FactKey::new(body.key.as_str())?).as_str().to_owned();
            let mut places = Vec::new();
            if !body.session_id.is_empty() {
                places.push(Core::session_place(&body.session_id)?);
            }
            if !body.task_id.is_empty() {
                places.push(Place::new(Level::Task, TaskId::new(body.task_id.as_str())?.as_str()));
            }
            let outer = self.0.outer_owners(&call, &key).await;
            let state = match self.0.owners.states(&call.owner, std::slice::from_ref(&key)).await {
                Ok(states) => states.into_iter().next().unwrap_or_default(),
                // Long-term memory's own rows are the authority for its levels (rule P1).
                Err(fault) if outer.is_some() && places.is_empty() => {
                    tracing::warn!(%fault, "ownership is answered without the ledger");
                    strata_core::policy::ownership::KeyState::default()
                }
                Err(fault) => return Err(fault),
            };
            let agent = call.owner.agent.as_ref().map(|agent| agent.as_str());
            let ours = |mark: &Mark| mark.place.level == Level::User || Some(mark.place.id.as_str()) == agent;
            let mut marks: Vec<Mark> = outer.unwrap_or_else(|| state.marks.iter().filter(|mark| ours(mark)).cloned().collect());
            marks.sort_by(|a, b| a.place.cmp(&b.place));
            // Without a scope to look at, every claim on the key is shown.
            let asked = |place: &Place| places.is_empty() || places.contains(place);
            let claims = state.claims.iter().filter(|claim| asked(&claim.place)).map(convert::wire_claim);
            Ok(pb::GetOwnershipResponse { claims: marks.iter().map(convert::wire_mark).chain(claims).collect() })
        };
        look.await.map(Response::new).map_err(status)
    }
}

#[tonic::async_trait]
impl AdminService for Service {
    async fn get_status(&self, request: Request<admin::GetStatusRequest>) -> Result<Response<admin::GetStatusResponse>, Status> {
        let principal = self.0.admit_operator("/strata.admin.v1.AdminService/GetStatus", &request)?;
        let core = &self.0;
        let (working, session, longterm, ledger, of_longterm) = futures::join!(
            core.alive(&principal, Layer::Working),
            core.alive(&principal, Layer::Session),
            core.alive(&principal, Layer::Longterm),
            tokio::time::timeout(SIGN_OF_LIFE, core.ledger.ping()),
            core.longterm_settings(&principal),
        );
        let ledger = if matches!(ledger, Ok(Ok(()))) {
            convert::layer_status(Layer::Router, LayerState::Ok, "")
        } else {
            convert::layer_status(Layer::Router, LayerState::Degraded, "the ledger does not answer")
        };
        let mut settings = core.about.settings.clone();
        settings.extend(of_longterm);
        let modes: Modes = **core.modes.load();
        for layer in [Layer::Working, Layer::Session, Layer::Longterm] {
            settings.insert(format!("mode.{}", layer.name()), modes.of(layer).name().to_owned());
        }
        settings.insert("ledger".to_owned(), core.ledger.name().to_owned());
        Ok(Response::new(admin::GetStatusResponse {
            version: core.about.version.clone(),
            layers: vec![working, session, longterm, ledger],
            settings,
        }))
    }

    async fn reindex(&self, request: Request<admin::ReindexRequest>) -> Result<Response<admin::ReindexResponse>, Status> {
        let request = self.0.operate("/strata.admin.v1.AdminService/Reindex", request)?;
        relayed(self.0.layers.admin.clone().reindex(request).await)
    }

    async fn backup(&self, request: Request<admin::BackupRequest>) -> Result<Response<admin::BackupResponse>, Status> {
        let request = self.0.operate("/strata.admin.v1.AdminService/Backup", request)?;
        relayed(self.0.layers.admin.clone().backup(request).await)
    }

    type ListAuditStream = BoxStream<'static, Result<admin::ListAuditResponse, Status>>;

    async fn list_audit(&self, request: Request<admin::ListAuditRequest>) -> Result<Response<Self::ListAuditStream>, Status> {
        let request = self.0.operate("/strata.admin.v1.AdminService/ListAudit", request)?;
        let entries = relayed(self.0.layers.admin.clone().list_audit(request).await)?.into_inner();
        Ok(Response::new(Box::pin(entries.map_err(without_transport))))
    }

    async fn verify_audit(
        &self,
        request: Request<admin::VerifyAuditRequest>,
    ) -> Result<Response<admin::VerifyAuditResponse>, Status> {
        let request = self.0.operate("/strata.admin.v1.AdminService/VerifyAudit", request)?;
        relayed(self.0.layers.admin.clone().verify_audit(request).await)
    }

    async fn verify_consistency(
        &self,
        request: Request<admin::VerifyConsistencyRequest>,
    ) -> Result<Response<admin::VerifyConsistencyResponse>, Status> {
        let request = self.0.operate("/strata.admin.v1.AdminService/VerifyConsistency", request)?;
        relayed(self.0.layers.admin.clone().verify_consistency(request).await)
    }
}

impl Core {
    /// An operator's call for long-term memory, which is about no user.
    fn operate<R>(&self, path: &str, request: Request<R>) -> Result<Request<R>, Status> {
        let principal = self.admit_operator(path, &request)?;
        let identity = strata_runtime::CallIdentity::new(principal, None).writing(Level::User, self.fresh_epoch());
        Ok(signed(request.into_inner(), identity))
    }

    /// What long-term memory says of itself; nothing when it does not answer in time, which its layer's status says.
    async fn longterm_settings(&self, principal: &Principal) -> impl Iterator<Item = (String, String)> + use<> {
        let identity = strata_runtime::CallIdentity::new(principal.clone(), None);
        let mut client = self.layers.admin.clone();
        let ask = client.get_status(signed(admin::GetStatusRequest {}, identity));
        let answer = tokio::time::timeout(SIGN_OF_LIFE, ask).await;
        let settings = answer.ok().and_then(Result::ok).map(|answer| answer.into_inner().settings).unwrap_or_default();
        settings.into_iter().map(|(name, value)| (format!("longterm.{name}"), value))
    }

    /// Whether a layer answers: any answer to a question about nobody is a sign of life.
    async fn alive(&self, principal: &Principal, layer: Layer) -> LayerStatus {
        let ask = async {
            let user = principal.user.clone().map_or_else(|| UserId::new(NOBODY), Ok)?;
            let owner = Owner { tenant: principal.tenant.clone(), user, agent: None };
            let identity = reading(principal, &owner);
            let (user_id, id) = (owner.user.as_str().to_owned(), NOBODY.to_owned());
            match layer {
                Layer::Working => {
                    let body = strata_api::working::v1::GetTaskRequest { user_id, task_id: id, ..Default::default() };
                    answer(self.layers.working.clone().get_task(signed(body, identity)).await).map(drop)
                }
                Layer::Session => {
                    let body = strata_api::session::v1::GetSessionRequest { user_id, session_id: id, ..Default::default() };
                    answer(self.layers.session.clone().get_session(signed(body, identity)).await).map(drop)
                }
                Layer::Longterm | Layer::Router => {
                    let body = strata_api::internal::v1::GetOwnersRequest { user_id, ..Default::default() };
                    answer(self.layers.target.clone().get_owners(signed(body, identity)).await).map(drop)
                }
            }
        };
        match tokio::time::timeout(SIGN_OF_LIFE, ask).await {
            Ok(Ok(())) => convert::layer_status(layer, LayerState::Ok, ""),
            Ok(Err(fault))
                if matches!(fault.reason, Reason::NotFound | Reason::InvalidField | Reason::TaskEnded | Reason::SessionEnded) =>
            {
                convert::layer_status(layer, LayerState::Ok, "")
            }
            Ok(Err(Fault { reason, .. })) => convert::layer_status(layer, LayerState::Unavailable, reason.name()),
            Err(_) => convert::layer_status(layer, LayerState::Unavailable, Reason::DeadlineExceeded.name()),
        }
    }
}
