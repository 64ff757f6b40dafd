//! The router's own services: promotion, context, ownership, administration.

use crate::call::Call;
use crate::decisions;
use crate::gate::Core;
use crate::layers::{answer, reading, relayed, signed, without_transport};
use futures::stream::{self, BoxStream};
use futures::{StreamExt as _, TryStreamExt as _};
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
use strata_core::policy::decision::{Stage, Step};
use strata_core::policy::ownership::{Mark, Place};
use strata_core::{FactKey, Fault, Owner, Reason, TaskId, UserId};
use strata_runtime::replicas;
use tonic::{Request, Response, Status};

/// Longest wait for one layer's sign of life.
const SIGN_OF_LIFE: Duration = Duration::from_millis(1_000);
/// Decisions read at a time for a watcher.
const WATCHED: usize = 64;
/// Between two looks of a watcher who has seen all there is.
const WATCH_PAUSE: Duration = Duration::from_millis(250);
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
        decisions::note(|| {
            Step::new(Stage::Gate, &promotion.promotion_id, "P5", promotion.state.name(), "where the promotion stands")
        });
        Ok(Response::new(pb::PromoteResponse { promotion: Some(convert::wire_promotion(&promotion)) }))
    }

    async fn get_promotion(
        &self,
        request: Request<pb::GetPromotionRequest>,
    ) -> Result<Response<pb::GetPromotionResponse>, Status> {
        let (call, body) = self.0.admit("/strata.router.v1.RouterService/GetPromotion", request)?;
        let promotion = self.0.promotion(&call.owner, &body.promotion_id).await.map_err(status)?;
        Ok(Response::new(pb::GetPromotionResponse { promotion: Some(promotion) }))
    }

    async fn list_promotions(
        &self,
        request: Request<pb::ListPromotionsRequest>,
    ) -> Result<Response<pb::ListPromotionsResponse>, Status> {
        let (call, body) = self.0.admit("/strata.router.v1.RouterService/ListPromotions", request)?;
        self.0.promotions(&call, &body).await.map(Response::new).map_err(status)
    }

    type WatchPromotionsStream = BoxStream<'static, Result<pb::WatchPromotionsResponse, Status>>;

    async fn watch_promotions(
        &self,
        request: Request<pb::WatchPromotionsRequest>,
    ) -> Result<Response<Self::WatchPromotionsStream>, Status> {
        let (call, body) = self.0.admit("/strata.router.v1.RouterService/WatchPromotions", request)?;
        self.0.watch_promotions(call, body).await.map(Response::new).map_err(status)
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

    async fn observe(&self, request: Request<pb::ObserveRequest>) -> Result<Response<pb::ObserveResponse>, Status> {
        let (call, body) = self.0.admit("/strata.router.v1.RouterService/Observe", request)?;
        self.0.observe(&call, body).await.map(Response::new).map_err(status)
    }

    async fn explain(&self, request: Request<pb::ExplainRequest>) -> Result<Response<pb::ExplainResponse>, Status> {
        let (call, body) = self.0.admit("/strata.router.v1.RouterService/Explain", request)?;
        let name = convert::trace_id(&body.trace_id).map_err(status)?;
        let (decisions, truncated) = self.0.explained(&call.owner, &name).await.map_err(status)?;
        let decisions = decisions.iter().map(convert::wire_decision).collect();
        Ok(Response::new(pb::ExplainResponse { decisions, truncated }))
    }
}

#[tonic::async_trait]
impl AdminService for Service {
    type WatchDecisionsStream = BoxStream<'static, Result<admin::WatchDecisionsResponse, Status>>;

    async fn watch_decisions(
        &self,
        request: Request<admin::WatchDecisionsRequest>,
    ) -> Result<Response<Self::WatchDecisionsStream>, Status> {
        let (call, body) = self.0.admit("/strata.admin.v1.AdminService/WatchDecisions", request)?;
        self.0.watch_decisions(call, body).await.map(Response::new).map_err(status)
    }

    async fn get_status(&self, request: Request<admin::GetStatusRequest>) -> Result<Response<admin::GetStatusResponse>, Status> {
        let principal = self.0.admit_operator("/strata.admin.v1.AdminService/GetStatus", &request)?;
        let core = &self.0;
        let (working, session, longterm, ledger, of_longterm) = futures::join!(
            core.working_alive(&principal),
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
        for layer in [Layer::Working, Layer::Session, Layer::Longterm] {
            let mode = core.modes.of(layer, &principal.tenant);
            settings.insert(format!("mode.{}", layer.name()), mode.name().to_owned());
        }
        settings.insert("ledger".to_owned(), core.ledger.name().to_owned());
        Ok(Response::new(admin::GetStatusResponse {
            version: core.about.version.clone(),
            layers: vec![working, session, longterm, ledger],
            settings,
        }))
    }

    async fn sample_for_review(
        &self,
        request: Request<admin::SampleForReviewRequest>,
    ) -> Result<Response<admin::SampleForReviewResponse>, Status> {
        let request = self.0.operate("/strata.admin.v1.AdminService/SampleForReview", request)?;
        relayed(self.0.layers.admin.clone().sample_for_review(request).await)
    }

    async fn submit_review(
        &self,
        request: Request<admin::SubmitReviewRequest>,
    ) -> Result<Response<admin::SubmitReviewResponse>, Status> {
        let path = "/strata.admin.v1.AdminService/SubmitReview";
        let principal = self.0.admit_operator(path, &request)?;
        let request = self.0.operate(path, request)?;
        let answer = relayed(self.0.layers.admin.clone().submit_review(request).await)?;
        self.0.follow_reviews(&principal, answer.get_ref().suggested_mode()).await;
        Ok(answer)
    }

    async fn get_quality(
        &self,
        request: Request<admin::GetQualityRequest>,
    ) -> Result<Response<admin::GetQualityResponse>, Status> {
        let request = self.0.operate("/strata.admin.v1.AdminService/GetQuality", request)?;
        relayed(self.0.layers.admin.clone().get_quality(request).await)
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

    async fn get_modes(&self, request: Request<admin::GetModesRequest>) -> Result<Response<admin::GetModesResponse>, Status> {
        let principal = self.0.admit_operator("/strata.admin.v1.AdminService/GetModes", &request)?;
        Ok(Response::new(self.0.modes_of(&principal)))
    }

    async fn set_mode(&self, request: Request<admin::SetModeRequest>) -> Result<Response<admin::SetModeResponse>, Status> {
        let principal = self.0.admit_operator("/strata.admin.v1.AdminService/SetMode", &request)?;
        self.0.set_mode(&principal, request.into_inner()).await.map(Response::new).map_err(status)
    }

    async fn create_api_key(
        &self,
        request: Request<admin::CreateApiKeyRequest>,
    ) -> Result<Response<admin::CreateApiKeyResponse>, Status> {
        let principal = self.0.admit_operator("/strata.admin.v1.AdminService/CreateApiKey", &request)?;
        self.0.create_api_key(&principal, request.into_inner()).await.map(Response::new).map_err(status)
    }

    async fn list_api_keys(
        &self,
        request: Request<admin::ListApiKeysRequest>,
    ) -> Result<Response<admin::ListApiKeysResponse>, Status> {
        let principal = self.0.admit_operator("/strata.admin.v1.AdminService/ListApiKeys", &request)?;
        self.0.list_api_keys(&principal, request.get_ref()).map(Response::new).map_err(status)
    }

    async fn revoke_api_key(
        &self,
        request: Request<admin::RevokeApiKeyRequest>,
    ) -> Result<Response<admin::RevokeApiKeyResponse>, Status> {
        let principal = self.0.admit_operator("/strata.admin.v1.AdminService/RevokeApiKey", &request)?;
        self.0.revoke_api_key(&principal, request.into_inner()).await.map(Response::new).map_err(status)
    }

    type RunMaintenanceStream = BoxStream<'static, Result<admin::RunMaintenanceResponse, Status>>;

    async fn run_maintenance(
        &self,
        request: Request<admin::RunMaintenanceRequest>,
    ) -> Result<Response<Self::RunMaintenanceStream>, Status> {
        let request = self.0.operate("/strata.admin.v1.AdminService/RunMaintenance", request)?;
        let steps = relayed(self.0.layers.admin.clone().run_maintenance(request).await)?.into_inner();
        Ok(Response::new(Box::pin(steps.map_err(without_transport))))
    }

    type RescanStream = BoxStream<'static, Result<admin::RescanResponse, Status>>;

    async fn rescan(&self, request: Request<admin::RescanRequest>) -> Result<Response<Self::RescanStream>, Status> {
        let request = self.0.operate("/strata.admin.v1.AdminService/Rescan", request)?;
        let steps = relayed(self.0.layers.admin.clone().rescan(request).await)?.into_inner();
        Ok(Response::new(Box::pin(steps.map_err(without_transport))))
    }
}

impl Core {
    /// Decisions of a user as they are kept, then as they come (acceptance A202). The stores are asked again and again: the
    /// stream sees what every router decides.
    async fn watch_decisions(
        self: &Arc<Self>,
        call: Call,
        body: admin::WatchDecisionsRequest,
    ) -> Result<BoxStream<'static, Result<admin::WatchDecisionsResponse, Status>>, Fault> {
        let name = if body.trace_id.is_empty() { String::new() } else { convert::trace_id(&body.trace_id)? };
        if body.only_new && !body.after.is_empty() {
            return Err(Fault::field("only_new", "is not possible together with after"));
        }
        let from = if body.only_new { None } else { Some(body.after) };
        // A foreign cursor or a store that is down is said at once.
        let first = self.decided_after(&call.owner, from, WATCHED).await?;
        let core = Arc::clone(self);
        let batches = stream::unfold((Some(first), String::new()), move |(ready, mut cursor)| {
            let (core, owner, name) = (Arc::clone(&core), call.owner.clone(), name.clone());
            async move {
                let token = core.tasks.token().clone();
                let (found, next) = match ready {
                    Some(first) => first,
                    None => loop {
                        if tokio::time::timeout(WATCH_PAUSE, token.cancelled()).await.is_ok() {
                            return None;
                        }
                        match core.decided_after(&owner, Some(cursor.clone()), WATCHED).await {
                            Ok((found, _)) if found.is_empty() => {}
                            Ok(more) => break more,
                            Err(down) => return Some((vec![Err(status(down))], (None, cursor))),
                        }
                    },
                };
                cursor = next;
                let shown = found.iter().filter(|decision| name.is_empty() || decision.is_named(&name)).map(|decision| {
                    Ok(admin::WatchDecisionsResponse { decision: Some(convert::wire_decision(decision)), cursor: cursor.clone() })
                });
                let shown: Vec<_> = shown.collect();
                Some((shown, (None, cursor)))
            }
        });
        // A failure ends the stream: the watcher goes on from its last cursor.
        let mut failed = false;
        let messages = batches.flat_map(stream::iter).take_while(move |message: &Result<_, Status>| {
            let over = std::mem::replace(&mut failed, message.is_err());
            std::future::ready(!over)
        });
        Ok(messages.boxed())
    }

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
        self.replica_alive(principal, layer, 0).await
    }

    /// Working memory, all replicas of it.
    async fn working_alive(&self, principal: &Principal) -> LayerStatus {
        let all = self.layers.working_replicas;
        let asked = (0..all).map(|replica| self.replica_alive(principal, Layer::Working, replica));
        let mut answers = futures::future::join_all(asked).await;
        let silent = answers.iter().filter(|answer| answer.state() != LayerState::Ok).count();
        if silent > 0 && silent < all {
            let why = format!("{silent} of {all} replicas do not answer");
            return convert::layer_status(Layer::Working, LayerState::Degraded, why);
        }
        answers.swap_remove(0)
    }

    async fn replica_alive(&self, principal: &Principal, layer: Layer, replica: usize) -> LayerStatus {
        let ask = async {
            let user = principal.user.clone().map_or_else(|| UserId::new(NOBODY), Ok)?;
            let owner = Owner { tenant: principal.tenant.clone(), user, agent: None };
            let identity = reading(principal, &owner);
            let (user_id, id) = (owner.user.as_str().to_owned(), NOBODY.to_owned());
            match layer {
                Layer::Working => {
                    let body = strata_api::working::v1::GetTaskRequest { user_id, task_id: id, ..Default::default() };
                    let mut request = signed(body, identity);
                    request.extensions_mut().insert(replicas::Place::Member(replica));
                    answer(self.layers.working.clone().get_task(request).await).map(drop)
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
