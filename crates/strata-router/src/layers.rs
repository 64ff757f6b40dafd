//! Typed clients of the layers, what a call to them carries, and what is read of their answers.

use crate::LayerChannels;
use crate::decisions::{Decided, noted, noted_refusal};
use std::time::Duration;
use strata_api::admin::v1::admin_service_client::AdminServiceClient;
use strata_api::internal::v1::erasure_journal_service_client::ErasureJournalServiceClient;
use strata_api::internal::v1::participant_service_client::ParticipantServiceClient;
use strata_api::internal::v1::session_erasure_service_client::SessionErasureServiceClient;
use strata_api::internal::v1::session_fact_service_client::SessionFactServiceClient;
use strata_api::internal::v1::target_service_client::TargetServiceClient;
use strata_api::internal::v1::working_erasure_service_client::WorkingErasureServiceClient;
use strata_api::longterm::v1::long_term_memory_service_client::LongTermMemoryServiceClient;
use strata_api::session::v1::session_memory_service_client::SessionMemoryServiceClient;
use strata_api::working::v1::working_memory_service_client::WorkingMemoryServiceClient;
use strata_core::limits::MESSAGE_BYTES;
use strata_core::{Owner, policy::authz::Principal};
use strata_runtime::replicas::Place;
use strata_runtime::{CallIdentity, RpcChannel};
use tonic::{Request, Response, Status};

/// Longest wait for what is good to know and not needed: owners at long-term memory, marks in the ledger. A layer that is down
/// says so at once; this is for one that is slow, whose word is worth the wait.
pub(crate) const SIDE_LOOK: Duration = Duration::from_millis(1_000);

/// Clients of all layers.
#[derive(Clone, Debug)]
pub(crate) struct Layers {
    pub(crate) working: WorkingMemoryServiceClient<RpcChannel>,
    /// Replicas of working memory.
    pub(crate) working_replicas: usize,
    pub(crate) participant: ParticipantServiceClient<RpcChannel>,
    pub(crate) session: SessionMemoryServiceClient<RpcChannel>,
    pub(crate) session_facts: SessionFactServiceClient<RpcChannel>,
    pub(crate) longterm: LongTermMemoryServiceClient<RpcChannel>,
    pub(crate) target: TargetServiceClient<RpcChannel>,
    pub(crate) admin: AdminServiceClient<RpcChannel>,
    pub(crate) erasures: ErasureJournalServiceClient<RpcChannel>,
    pub(crate) session_erasure: SessionErasureServiceClient<RpcChannel>,
    pub(crate) working_erasure: WorkingErasureServiceClient<RpcChannel>,
}

macro_rules! client {
    ($client:ident, $channel:expr) => {
        $client::new($channel.clone()).max_decoding_message_size(MESSAGE_BYTES).max_encoding_message_size(MESSAGE_BYTES)
    };
}

impl Layers {
    pub(crate) fn new(channels: &LayerChannels) -> Self {
        Self {
            working: client!(WorkingMemoryServiceClient, channels.working),
            working_replicas: channels.working_replicas.max(1),
            participant: client!(ParticipantServiceClient, channels.working),
            session: client!(SessionMemoryServiceClient, channels.session),
            session_facts: client!(SessionFactServiceClient, channels.session),
            longterm: client!(LongTermMemoryServiceClient, channels.longterm),
            target: client!(TargetServiceClient, channels.longterm),
            admin: client!(AdminServiceClient, channels.longterm),
            erasures: client!(ErasureJournalServiceClient, channels.longterm),
            session_erasure: client!(SessionErasureServiceClient, channels.session),
            working_erasure: client!(WorkingErasureServiceClient, channels.working),
        }
    }
}

/// A read on behalf of a caller.
pub(crate) fn reading(principal: &Principal, owner: &Owner) -> CallIdentity {
    CallIdentity::new(principal.clone(), Some(owner.user.clone()))
}

/// A request that says on whose behalf it is made.
pub(crate) fn signed<T>(body: T, identity: CallIdentity) -> Request<T> {
    let mut request = Request::new(body);
    request.extensions_mut().insert(identity);
    request
}

/// A request of working memory, which may have several replicas.
pub(crate) trait Placed {
    /// What all calls have in common that are to meet at one replica: the task; of calls about all tasks of a user, the user.
    fn place(&self) -> &str;
}

macro_rules! placed_by_task {
    ($($package:ident: $($request:ident),*;)*) => { $( $(
        impl Placed for strata_api::$package::v1::$request {
            fn place(&self) -> &str { &self.task_id }
        }
    )* )* };
}

placed_by_task! {
    working: CreateTaskRequest, GetTaskRequest, PutFactsRequest, UpdateTodosRequest, AppendDigestRequest, UpdateGoalRequest,
        EndTaskRequest, WatchTaskRequest;
    internal: SealRequest, SettleRequest;
}

impl Placed for strata_api::working::v1::ListTasksRequest {
    fn place(&self) -> &str {
        &self.user_id
    }
}

impl Placed for strata_api::internal::v1::EraseContentRequest {
    fn place(&self) -> &str {
        self.scope.as_ref().map_or("", |scope| &scope.user_id)
    }
}

impl Placed for strata_api::internal::v1::FindContentRequest {
    fn place(&self) -> &str {
        self.scope.as_ref().map_or("", |scope| &scope.user_id)
    }
}

/// [`signed`], for the replica of working memory that serves the task.
pub(crate) fn placed<T: Placed>(body: T, identity: CallIdentity) -> Request<T> {
    let place = Place::Key(vec![identity.principal.tenant.as_str().to_owned(), body.place().to_owned()]);
    let mut request = signed(body, identity);
    request.extensions_mut().insert(place);
    request
}

/// A layer's answer as ours: the message alone, and errors with their details, without the layer's transport headers. What
/// it decided is noted; what it refused becomes the call's own answer and is noted there.
pub(crate) fn relayed<T: Decided>(answer: Result<Response<T>, Status>) -> Result<Response<T>, Status> {
    match answer {
        Ok(response) => {
            let message = response.into_inner();
            noted(&message);
            Ok(Response::new(message))
        }
        Err(status) => Err(without_transport(status)),
    }
}

/// A layer's refusal with its details, without the layer's transport headers.
pub(crate) fn without_transport(status: Status) -> Status {
    Status::with_details(status.code(), status.message(), status.details().to_vec().into())
}

/// An answer that was [`relayed`], for the router's own steps: what it decided is noted already, what it refused is not.
pub(crate) fn taken<T>(answer: Result<Response<T>, Status>) -> Result<T, strata_core::Fault> {
    answer.map(Response::into_inner).map_err(|status| {
        let fault = strata_api::error::fault(&status);
        noted_refusal(&fault);
        fault
    })
}

/// A layer's answer, or its refusal as a fault, for the router's own steps. What it decided is noted.
pub(crate) fn answer<T: Decided>(answer: Result<Response<T>, Status>) -> Result<T, strata_core::Fault> {
    match answer {
        Ok(response) => {
            let message = response.into_inner();
            noted(&message);
            Ok(message)
        }
        Err(status) => {
            let fault = strata_api::error::fault(&status);
            noted_refusal(&fault);
            Err(fault)
        }
    }
}
