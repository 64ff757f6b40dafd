//! What every public call passes before anything else: who asks, whose memory it is, whether the mode of the layer
//! allows it. A handler gets a [`Call`] from [`Core::admit`] or nothing, so no method can miss it.

use crate::call::{Call, level_of};
use crate::decisions;
use crate::layers::{Layers, Placed, placed, reading, signed};
use crate::modes;
use crate::owners::Owners;
use arc_swap::ArcSwap;
use std::sync::Arc;
use strata_api::convert::common;
use strata_api::error::status;
use strata_api::page::PageTokens;
use strata_core::policy::authz::{self, Principal};
use strata_core::policy::ownership::next_epoch;
use strata_core::policy::registry::Registry;
use strata_core::policy::settings::PolicySettings;
use strata_core::{Fault, Reason};
use strata_runtime::context::CallContext;
use strata_runtime::control::{Control, ModeBoard};
use strata_runtime::layer::trace::note_mode;
use strata_runtime::{CallIdentity, Ports, TaskGroup};
use tonic::{Request, Status};

/// A request that names whose memory it is about.
pub(crate) trait Owned {
    fn user_id(&self) -> &str;
    fn agent_id(&self) -> &str;
    fn set_user_id(&mut self, user_id: String);
}

macro_rules! owned {
    ($($package:ident: $($request:ident),*;)*) => { $( $(
        impl Owned for strata_api::$package::v1::$request {
            fn user_id(&self) -> &str { &self.user_id }
            fn agent_id(&self) -> &str { &self.agent_id }
            fn set_user_id(&mut self, user_id: String) { self.user_id = user_id; }
        }
    )* )* };
}

owned! {
    working: CreateTaskRequest, GetTaskRequest, PutFactsRequest, UpdateTodosRequest, AppendDigestRequest, UpdateGoalRequest, EndTaskRequest, ListTasksRequest,
        WatchTaskRequest;
    session: AppendTurnsRequest, GetWindowRequest, ListTurnsRequest, GetTurnsRequest, SearchTurnsRequest, CompressSessionRequest,
        AnchorTurnsRequest, ReleaseAnchorsRequest, CommitSummaryRequest, GetSummariesRequest, ListSessionsRequest, PutFactsRequest, GetFactsRequest, PutArtifactRequest, GetArtifactRequest, GetSessionRequest,
        EndSessionRequest;
    longterm: RememberRequest, ProposeRequest, ListCandidatesRequest, ConfirmCandidateRequest, RejectCandidateRequest, RecallRequest,
        GetMemoryRequest, LookupMemoryRequest, ListMemoriesRequest, GetHistoryRequest, ForgetMemoriesRequest, RestoreMemoriesRequest,
        BatchGetMemoriesRequest, UpdateMemoryRequest, ReportUsageRequest, ExportMemoriesRequest, ImportMemoriesRequest, SyncFactsRequest,
        PutEntityRequest, GetEntityRequest, ListEntitiesRequest, LinkEntitiesRequest, DeleteEntityRequest, PutSkillRequest, GetSkillRequest, ListSkillsRequest, MatchSkillsRequest, DeleteSkillRequest,
        ListEpisodesRequest, UndoConsolidationRequest, EraseMemoriesRequest;
    router: PromoteRequest, ListPromotionsRequest, WatchPromotionsRequest, AssembleContextRequest, GetOwnershipRequest, ExplainRequest, ObserveRequest;
}

/// A request about a user that names no agent.
macro_rules! owned_by_user {
    ($($package:ident: $($request:ident),*;)*) => { $( $(
        impl Owned for strata_api::$package::v1::$request {
            fn user_id(&self) -> &str { &self.user_id }
            fn agent_id(&self) -> &str { "" }
            fn set_user_id(&mut self, user_id: String) { self.user_id = user_id; }
        }
    )* )* };
}

owned_by_user! {
    longterm: GetErasureRequest, VerifyErasureRequest;
    router: GetPromotionRequest;
    admin: WatchDecisionsRequest;
}

/// What all services of the router share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) ports: Ports,
    pub(crate) settings: Arc<ArcSwap<PolicySettings>>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) slots: strata_text::slots::SlotMatcher,
    pub(crate) layers: Layers,
    pub(crate) owners: Owners,
    pub(crate) ledger: Arc<dyn crate::ledger::Ledger>,
    pub(crate) modes: Arc<ModeBoard>,
    pub(crate) control: Arc<Control>,
    pub(crate) tokens: PageTokens,
    pub(crate) about: crate::About,
    pub(crate) tasks: TaskGroup,
    pub(crate) language: Arc<crate::language::LanguageTables>,
    pub(crate) keeper: crate::decisions::Keeper,
    pub(crate) extractor: Option<Arc<dyn strata_text::extract::Extractor>>,
    pub(crate) waiters: crate::observing::Waiters,
    pub(crate) compiled: crate::observing::Compiled,
    /// Wakes the worker of Observe.
    pub(crate) knock: tokio::sync::Notify,
    pub(crate) topics: crate::topics::Topics,
}

/// The caller, from the listener's authentication.
fn principal_of<T>(request: &Request<T>) -> Result<Principal, Fault> {
    let principal = request.extensions().get::<Principal>().cloned();
    principal.ok_or_else(|| Fault::new(Reason::Unauthenticated, "the call is not authenticated"))
}

impl Core {
    /// Checks a call (rules W2, D1; cases C033, C034), and returns its message with the user filled in.
    pub(crate) fn admit<R: Owned>(&self, path: &str, request: Request<R>) -> Result<(Call, R), Status> {
        let check = || {
            let principal = principal_of(&request)?;
            let method = authz::allow(&principal, path)?;
            let body = request.get_ref();
            let owner = common::owner(&principal, body.user_id(), body.agent_id())?;
            decisions::about(&principal, &owner);
            note_mode(self.modes.of(method.layer, &principal.tenant));
            let passage = modes::check(&self.modes, &principal.tenant, method)?;
            Ok(Call { principal, owner, method, passage })
        };
        let call = check().map_err(status)?;
        let mut body = request.into_inner();
        body.set_user_id(call.owner.user.as_str().to_owned());
        Ok((call, body))
    }

    /// Checks a call that is about no user.
    pub(crate) fn admit_operator<R>(&self, path: &str, request: &Request<R>) -> Result<Principal, Status> {
        let principal = principal_of(request).map_err(status)?;
        authz::allow(&principal, path).map_err(status)?;
        Ok(principal)
    }

    /// The message for the layer: for a write with its level and a fresh epoch (rule P10).
    pub(crate) fn outgoing<R>(&self, call: &Call, body: R) -> Request<R> {
        signed(body, self.identity(call))
    }

    /// [`Self::outgoing`], for the replica of working memory that serves the task.
    pub(crate) fn to_task<R: Placed>(&self, call: &Call, body: R) -> Request<R> {
        placed(body, self.identity(call))
    }

    fn identity(&self, call: &Call) -> CallIdentity {
        let identity = reading(&call.principal, &call.owner);
        if call.method.writes() {
            identity.writing(level_of(call.method.layer, &call.owner), self.fresh_epoch())
        } else {
            identity
        }
    }

    /// For work outside of a call that reads what it then writes: its calls are under way since now, so that what an erasure takes
    /// in between does not come in again behind it (rule E2).
    pub(crate) fn as_of_now(&self) -> CallContext {
        CallContext { admitted: Some(self.ports.clock.now()), ..CallContext::default() }
    }

    /// An epoch for a write that claims nothing: the server's clock.
    pub(crate) fn fresh_epoch(&self) -> u64 {
        next_epoch(0, self.ports.clock.now())
    }
}
