//! The end of a promotion (rules P5 to P7): the sealed value through the gate, once per promotion id, never after the
//! deadline or an abort.
use crate::call::{Call, submit, wire_result};
use crate::episodes;
use crate::metadata::ledger::{self, Promotion};
use crate::metadata::owner;
use crate::metadata::search::{Counted, Recalled};
use crate::metadata::{Visible, query};
use crate::state::State;
use crate::write::{self, Outcome};
use prost::Message;
use rusqlite::Connection;
use std::sync::Arc;
use strata_api::convert::common::{self, wire_level};
use strata_api::convert::longterm as convert;
use strata_api::error;
use strata_api::internal::v1 as pb;
use strata_api::internal::v1::target_service_server::TargetService;
use strata_core::id::{Level, check_id};
use strata_core::limits;
use strata_core::policy::gate::Door;
use strata_core::policy::promotion::{AtTargetNow, at_target};
use strata_core::{Fault, Reason, Timestamp};
use tonic::{Request, Response, Status};
use uuid::Uuid;

/// The service between roles.
#[derive(Clone, Debug)]
pub struct Target {
    state: Arc<State>,
}

impl Target {
    /// Over the role's state.
    #[must_use]
    pub const fn new(state: Arc<State>) -> Self {
        Self { state }
    }

    async fn apply(&self, request: Request<pb::ApplyRequest>) -> Result<pb::ApplyResponse, Fault> {
        let (state, r) = (&self.state, request.get_ref());
        let call = Call::write(state, &request, &r.user_id, &r.agent_id)?;
        check_id("promotion_id", &r.promotion_id)?;
        let deadline = r.deadline.as_ref().ok_or_else(|| Fault::field("deadline", "is required"))?;
        let deadline = common::time("deadline", deadline)?;
        let (promotion_id, now) = (r.promotion_id.clone(), call.now);
        let id = promotion_id.clone();
        let earlier = state.read(&call.scope, move |db, visible| earlier(db, visible.user_id, &id, deadline, now)).await?;
        match earlier {
            Some(Some(answer)) => return Ok(answer),
            Some(None) => {}
            // Nothing is known of the user.
            None if at_target(None, deadline, now) == AtTargetNow::Apply => {}
            None => return Err(aborted("the promotion's deadline has passed").with("promotion_id", r.promotion_id.clone())),
        }
        // The same promotion brings its evidence once, however often it begins anew.
        let request = r.promotion_id.split('.').next().and_then(|id| uuid::Uuid::parse_str(id).ok());
        let mut submitted = submit(state, &call, Door::Apply, r.statement.as_ref(), request)?;
        if !r.session_id.is_empty() {
            check_id("session_id", &r.session_id)?;
            submitted.first.1.session_id = Some(r.session_id.clone());
        }
        state.relate(&call.scope, now, &mut submitted.first).await?;
        state
            .once(&call, None, move |db, context| {
                let stored = owner::ensure(db, context.scope)?;
                if let Some(answer) = self::earlier(db, stored.user_id, &promotion_id, deadline, now)? {
                    return Ok((answer, false));
                }
                let written = write::store_all(db, context, &submitted.first, &submitted.others)?;
                let answer = pb::ApplyResponse { result: Some(wire_result(db, &written, submitted.challenge)?) };
                if written.outcome != Outcome::NeedsConsent {
                    // Nothing was stored for want of consent, so nothing has been applied: with consent it may come again.
                    let outcome = Promotion::Applied(answer.encode_to_vec());
                    ledger::settle_promotion(db, stored.user_id, &promotion_id, &outcome, now)?;
                }
                Ok((answer, false))
            })
            .await
    }

    async fn abort(&self, request: Request<pb::AbortRequest>) -> Result<pb::AbortResponse, Fault> {
        let (state, r) = (&self.state, request.get_ref());
        let call = Call::read(state, &request, &r.user_id, "")?;
        call.claims.require_write()?;
        check_id("promotion_id", &r.promotion_id)?;
        let (promotion_id, now) = (r.promotion_id.clone(), call.now);
        state
            .once(&call, None, move |db, context| {
                let stored = owner::ensure(db, context.scope)?;
                let applied = match ledger::promotion(db, stored.user_id, &promotion_id)? {
                    Some(Promotion::Applied(bytes)) => decode(&bytes)?.result,
                    Some(Promotion::Aborted) => None,
                    None => {
                        ledger::settle_promotion(db, stored.user_id, &promotion_id, &Promotion::Aborted, now)?;
                        None
                    }
                };
                Ok((pb::AbortResponse { applied }, false))
            })
            .await
    }

    async fn get_owners(&self, request: Request<pb::GetOwnersRequest>) -> Result<pb::GetOwnersResponse, Fault> {
        let (state, r) = (&self.state, request.get_ref());
        let call = Call::read(state, &request, &r.user_id, &r.agent_id)?;
        let keys = convert::keys("keys", &r.keys, limits::OWNER_KEYS)?;
        let registry = Arc::clone(&state.registry);
        let (now, by_agent) = (call.now, !r.agent_id.is_empty());
        let owners = state
            .read(&call.scope, move |db, visible| {
                let mut out = Vec::new();
                for key in keys {
                    // Under the name it was asked by, whichever name it is stored under.
                    for (agent, epoch) in owner::owners_of(db, visible, &registry.resolve(&key), now)? {
                        // Without an agent only the user level is in the chain.
                        if by_agent || !agent {
                            let level = if agent { Level::Agent } else { Level::User };
                            out.push(pb::Owned { key: key.as_str().to_owned(), level: wire_level(level).into(), epoch });
                        }
                    }
                }
                Ok(out)
            })
            .await?;
        Ok(pb::GetOwnersResponse { owners: owners.unwrap_or_default() })
    }
}

/// Counts a context and the recall that it is.
async fn record_context(state: &State, request: Request<pb::RecordContextRequest>) -> Result<pb::RecordContextResponse, Fault> {
    let r = request.get_ref();
    let call = Call::read(state, &request, &r.user_id, &r.agent_id)?;
    call.claims.require_write()?;
    let recall_id = Uuid::parse_str(&r.recall_id).map_err(|_| Fault::field("recall_id", "is not a recall id (a UUID)"))?;
    if r.memory_ids.len() > limits::RECALL_K_MAX as usize {
        return Err(Fault::limit("memory_ids", limits::RECALL_K_MAX, "records"));
    }
    let ids = convert::memory_ids("memory_ids", &r.memory_ids)?;
    let (tenant, time) = (call.scope.owner().tenant.as_str().to_owned(), call.now);
    let asked = convert::memory_ids("asked_ids", &r.asked_ids)?;
    if !asked.is_empty() {
        check_id("session_id", &r.session_id)?;
        let (scope, session) = (call.scope.clone(), r.session_id.clone());
        // At once: the next context of the session must not ask again.
        let mark = move |db: &Connection| match Visible::of(db, &scope)? {
            Some(visible) => query::mark_asked(db, &visible, &asked, &session, time),
            None => Ok(()),
        };
        state.database.write(mark).await?;
    }
    let user_id = state.read(&call.scope, |_, visible| Ok(visible.user_id)).await?;
    let recalled = user_id.map(|user_id| Recalled { recall_id, user_id, time, ids });
    state.recall.count(Counted { tenant, recalled, context: Some((r.memory_tokens, r.request_tokens)), time });
    Ok(pb::RecordContextResponse {})
}

fn aborted(why: &str) -> Fault {
    Fault::new(Reason::PromotionAborted, why).rule("P5", "promotion", why)
}

fn decode(bytes: &[u8]) -> Result<pb::ApplyResponse, Fault> {
    pb::ApplyResponse::decode(bytes).map_err(|_| Fault::new(Reason::Internal, "a stored answer is damaged"))
}

/// The answer of a promotion that was applied before: the same id has one effect (rule P7). None: it may be applied.
///
/// # Errors
/// `PROMOTION_ABORTED` after its deadline, and where the row says so.
fn earlier(
    db: &Connection,
    user_id: i64,
    promotion_id: &str,
    deadline: Timestamp,
    now: Timestamp,
) -> Result<Option<pb::ApplyResponse>, Fault> {
    let noted = ledger::promotion(db, user_id, promotion_id)?;
    let applied = noted.as_ref().map(|noted| matches!(noted, Promotion::Applied(_)));
    match (at_target(applied, deadline, now), noted) {
        (AtTargetNow::Repeat, Some(Promotion::Applied(bytes))) => decode(&bytes).map(Some),
        (AtTargetNow::Apply, _) => Ok(None),
        (AtTargetNow::Repeat | AtTargetNow::Refuse, noted) => {
            let why = match noted {
                Some(_) => "the promotion was aborted",
                None => "the promotion's deadline has passed",
            };
            Err(aborted(why).with("promotion_id", promotion_id))
        }
    }
}

fn finish<T>(answer: Result<T, Fault>) -> Result<Response<T>, Status> {
    answer.map(Response::new).map_err(error::status)
}

#[tonic::async_trait]
impl TargetService for Target {
    async fn record_context(
        &self,
        request: Request<pb::RecordContextRequest>,
    ) -> Result<Response<pb::RecordContextResponse>, Status> {
        finish(record_context(&self.state, request).await)
    }
    async fn archive_session(
        &self,
        request: Request<pb::ArchiveSessionRequest>,
    ) -> Result<Response<pb::ArchiveSessionResponse>, Status> {
        finish(episodes::archive(&self.state, request).await)
    }
    async fn search_archived_turns(
        &self,
        request: Request<pb::SearchArchivedTurnsRequest>,
    ) -> Result<Response<pb::SearchArchivedTurnsResponse>, Status> {
        finish(episodes::search_turns(&self.state, request).await)
    }
    async fn apply(&self, request: Request<pb::ApplyRequest>) -> Result<Response<pb::ApplyResponse>, Status> {
        finish(Self::apply(self, request).await)
    }
    async fn abort(&self, request: Request<pb::AbortRequest>) -> Result<Response<pb::AbortResponse>, Status> {
        finish(Self::abort(self, request).await)
    }
    async fn get_owners(&self, request: Request<pb::GetOwnersRequest>) -> Result<Response<pb::GetOwnersResponse>, Status> {
        finish(Self::get_owners(self, request).await)
    }
}
