//! The gRPC surface: from a signed call to the boards and back. Nothing is decided here.

use crate::boards::{TaskKey, Write, elsewhere};
use crate::custody::{Held, Shared};
use crate::erase::Eraser;
use crate::requests::RequestKey;
use futures::stream::BoxStream;
use prost::Message;
use std::sync::Arc;
use strata_api::convert::{common, erasure, working as convert};
use strata_api::error::status;
use strata_api::internal::v1 as internal;
use strata_api::internal::v1::participant_service_server::ParticipantService;
use strata_api::internal::v1::working_erasure_service_server::WorkingErasureService;
use strata_api::working::v1 as pb;
use strata_api::working::v1::working_memory_service_server::WorkingMemoryService;
use strata_core::id::Level;
use strata_core::policy::erasure::Scope;
use strata_core::policy::working::{Board, Change, Content, Fact, Goal, Ownership, Seal, Settle, check_goal, mismatch};
use strata_core::{AgentId, FactKey, Fault, Owner, Reason, Timestamp, id::check_id, limits};
use strata_runtime::Claims;
use strata_runtime::task::detached_write;
use tokio::sync::watch;
use tonic::{Request, Response, Status};
use tracing::{Instrument as _, Span};

/// Both services of the role.
#[derive(Clone, Debug)]
pub(crate) struct WorkingService {
    shared: Arc<Shared>,
}

/// A call whose signature, owner and task were checked.
struct Call {
    owner: Owner,
    key: TaskKey,
    /// Epoch of the claim, for a write.
    epoch: Option<u64>,
    /// Erase epoch of the signed header (rule E2).
    erase_epoch: u64,
    now: Timestamp,
    /// Whether the task was here when the call came: what is not here any more has gone to another replica.
    held: Held,
    /// Whether there are several replicas.
    shared: bool,
    /// Carries the task's id (rule W9): everything about the task is logged inside.
    span: Span,
}

impl Call {
    fn refused(&self, fault: Fault) -> Status {
        if fault.reason == Reason::NotFound && self.held == Held::Here && self.shared {
            return refused(&self.key, elsewhere());
        }
        refused(&self.key, fault)
    }
}

impl WorkingService {
    pub(crate) const fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// The owner that a request names, held against the signed header.
    fn owner<T>(&self, request: &Request<T>, user_id: &str, agent_id: &str) -> Result<Owner, Fault> {
        let claims = Claims::of(request)?;
        let user = claims.require_user()?;
        let asked = if user_id.is_empty() { user.as_str() } else { user_id };
        let owner = common::owner(&claims.caller, asked, agent_id)?;
        if owner.user != *user {
            return Err(Fault::new(Reason::OwnerMismatch, "user_id: the call is signed for another user"));
        }
        self.shared.boards.check_epoch(&owner, claims.erase_epoch)?;
        Ok(owner)
    }

    fn call<T>(&self, request: &Request<T>, user_id: &str, agent_id: &str, task_id: &str) -> Result<Call, Fault> {
        let owner = self.owner(request, user_id, agent_id)?;
        let claims = Claims::of(request)?;
        if claims.write.is_some_and(|write| write.level != Level::Task) {
            return Err(Fault::new(Reason::UnsignedCall, "a board is written at task level only"));
        }
        let task = convert::task_id(task_id)?;
        // The span of the call itself belongs to the task too.
        Span::current().record("task_id", task.as_str());
        let span = tracing::info_span!("board", task_id = task.as_str());
        let epoch = claims.write.map(|write| write.epoch);
        let erase_epoch = claims.erase_epoch;
        Ok(Call {
            key: TaskKey::new(&owner, &task),
            owner,
            epoch,
            erase_epoch,
            now: self.shared.now(),
            held: Held::Here,
            shared: self.shared.sharing().is_some(),
            span,
        })
    }

    fn write<M: Message + Default>(
        &self,
        call: &Call,
        generation: u64,
        request: Option<RequestKey>,
        decide: impl FnOnce(&Board) -> Result<Change, Fault>,
        answer: impl Fn(&Board) -> M,
    ) -> Result<Response<M>, Status> {
        let _task = call.span.enter();
        let write =
            Write { caller: &call.owner, key: &call.key, generation, request, erase_epoch: call.erase_epoch, now: call.now };
        let limit = self.shared.settings().total_bytes;
        self.shared.boards.write(&write, limit, decide, answer).map(Response::new).map_err(|fault| call.refused(fault))
    }

    /// A call whose task is here, where there are several replicas.
    async fn here<T>(&self, request: &Request<T>, user_id: &str, agent_id: &str, task_id: &str) -> Result<Call, Status> {
        let call = self.call(request, user_id, agent_id, task_id).map_err(status)?;
        let held = self.shared.hold(&call.owner, &call.key).await.map_err(|fault| call.refused(fault))?;
        // Taking it over may have taken seconds.
        Ok(Call { held, now: self.shared.now(), ..call })
    }

    /// Writes what is due of the call's task to the checkpoint store, also when the caller goes away. It fails only where there
    /// are several replicas: what another one does not learn of is not acknowledged.
    async fn survive(&self, call: &Call) -> Result<(), Status> {
        let (shared, key) = (Arc::clone(&self.shared), call.key.clone());
        let write = async move { shared.flush_one(&key).await };
        let written = detached_write(write.instrument(call.span.clone())).await;
        // With one replica it fails by a panic only, which is logged where it happens.
        if self.shared.sharing().is_some() { written.map_err(|fault| call.refused(fault)) } else { Ok(()) }
    }

    /// A board that was started here, where another replica may have started one for the same task: the store decides which is
    /// the task's, and whether an erasure came in between (rules W10, E2).
    async fn started(&self, call: &Call) -> Result<(), Status> {
        let Some(sharing) = self.shared.sharing() else { return Ok(()) };
        if let Err(refusal) = self.survive(call).await {
            self.shared.boards.withdraw(&call.key);
            return Err(refusal);
        }
        let epoch = sharing.erase_epoch(&call.owner).await.map_err(|fault| call.refused(fault))?;
        self.shared.boards.raise_epoch(&call.owner.user_key(), epoch);
        let stale = self.shared.boards.check_epoch(&call.owner, call.erase_epoch);
        if let Err(fault) = stale {
            call.span.in_scope(|| self.shared.boards.destroy(&call.key, call.now));
            self.survive(call).await?;
            return Err(call.refused(fault));
        }
        Ok(())
    }

    /// Adds what lists show of these tasks; those of another agent and those that are over are left out.
    async fn infos(&self, owner: &Owner, keys: &[TaskKey], now: Timestamp, into: &mut Vec<pb::TaskInfo>) -> Result<(), Fault> {
        let mut elsewhere = Vec::new();
        let mut found = Vec::new();
        for key in keys {
            match self.shared.boards.peek(key, owner, now, convert::wire_task_info) {
                Ok(info) => found.push(info),
                Err(fault) if matches!(fault.reason, Reason::TaskMismatch | Reason::TaskEnded) => {}
                Err(fault)
                    if self.shared.sharing().is_some() && matches!(fault.reason, Reason::NotFound | Reason::StoreUnavailable) =>
                {
                    elsewhere.push(key.task().clone());
                }
                Err(fault) if fault.reason == Reason::NotFound => {}
                Err(fault) => return Err(fault),
            }
        }
        if let (Some(sharing), false) = (self.shared.sharing(), elsewhere.is_empty()) {
            let boards = sharing.look(owner, &elsewhere, now).await?.into_iter().map(|saved| saved.board);
            let theirs = boards.filter(|board| board.check_owner(owner).is_ok() && !board.is_idle_at(now));
            found.extend(theirs.map(|board| convert::wire_task_info(&board)));
        }
        found.sort_by(|a, b| a.task_id.cmp(&b.task_id));
        into.extend(found);
        Ok(())
    }

    /// The id of a task that is about to be started is this user's alone in the tenant (rule W2).
    async fn claim_name(&self, call: &Call) -> Result<(), Fault> {
        let Some(sharing) = self.shared.sharing() else { return Ok(()) };
        if self.shared.boards.has(&call.key) {
            return Ok(());
        }
        match sharing.named(&call.owner, call.key.task(), true).await? {
            Some(whose) if whose != call.owner.user_key() => Err(mismatch()),
            Some(_) | None => Ok(()),
        }
    }
}

/// A board that somebody looks at. It is read when the reader takes the next message: what nobody reads costs nobody anything.
struct Watch {
    shared: Arc<Shared>,
    key: TaskKey,
    owner: Owner,
    changes: watch::Receiver<()>,
    /// Generation and version that were sent last.
    shown: (u64, u64),
    over: bool,
}

impl Watch {
    async fn next(mut self) -> Result<Option<(pb::WatchTaskResponse, Self)>, Fault> {
        while !self.over {
            let seen = self.shared.boards.peek(&self.key, &self.owner, self.shared.now(), |board| {
                let order = (board.generation, board.version);
                (order, (order != self.shown).then(|| convert::wire_task(board)))
            });
            match seen {
                Ok((order, Some(task))) => {
                    self.shown = order;
                    return Ok(Some((pb::WatchTaskResponse { task: Some(task), ended: false }, self)));
                }
                Ok((_, None)) => {}
                Err(fault) if fault.reason == Reason::NotFound && self.shared.sharing().is_some() => return Err(elsewhere()),
                Err(fault) if matches!(fault.reason, Reason::TaskEnded | Reason::NotFound) => {
                    self.over = true;
                    return Ok(Some((pb::WatchTaskResponse { task: None, ended: true }, self)));
                }
                Err(fault) => return Err(fault),
            }
            tokio::select! {
                () = self.shared.stopping.cancelled() => {
                    return Err(Fault::new(Reason::NotServing, "working memory is stopping; watch again").retry_after(500));
                }
                changed = self.changes.changed() => {
                    // Closed: the board is no more, or is another copy of it, as the next look shows.
                    if changed.is_err()
                        && let Ok(changes) = self.shared.boards.watch(&self.key, &self.owner, self.shared.now())
                    {
                        self.changes = changes;
                    }
                }
            }
        }
        Ok(None)
    }
}

fn refused(key: &TaskKey, fault: Fault) -> Status {
    tracing::debug!(task_id = key.task().as_str(), reason = fault.reason.name(), "a call was refused");
    status(fault)
}

/// The request as it is compared with a repetition: without the generation, which a caller may learn in between.
macro_rules! request_key {
    ($body:expr, $method:literal) => {{
        let mut body = $body.clone();
        body.generation = 0;
        RequestKey::of($method, &body.request_id, &body)
    }};
}

fn sentences(text: &str) -> usize {
    strata_text::sentences(text).len()
}

fn checked_goal(goal: Option<pb::Goal>) -> Result<(Goal, usize), Fault> {
    let goal = convert::goal(goal)?;
    let sentences = sentences(&goal.sentence);
    Ok((goal, sentences))
}

#[tonic::async_trait]
impl WorkingMemoryService for WorkingService {
    async fn create_task(&self, request: Request<pb::CreateTaskRequest>) -> Result<Response<pb::CreateTaskResponse>, Status> {
        let body = request.get_ref();
        let call = self.here(&request, &body.user_id, &body.agent_id, &body.task_id).await?;
        let settings = self.shared.settings();
        let new = || {
            let (goal, sentences) = checked_goal(body.goal.clone())?;
            check_goal(&goal, sentences)?;
            let session = convert::session_id(&body.session_id)?;
            let idle = convert::idle_time(body.idle_time.as_ref(), settings.idle_micros())?;
            let key = RequestKey::of("CreateTask", &body.request_id, body)?;
            Ok((Board::new(call.owner.clone(), call.key.task().clone(), session, goal, idle, call.now), key))
        };
        let create = |(board, key)| {
            let answer = |board: &Board| pb::CreateTaskResponse { task: Some(convert::wire_task(board)) };
            self.shared.boards.create(board, key, call.erase_epoch, settings.total_bytes, call.now, answer)
        };
        let new = call.span.in_scope(new).map_err(|fault| call.refused(fault))?;
        self.claim_name(&call).await.map_err(|fault| call.refused(fault))?;
        let created = call.span.in_scope(|| create(new)).map_err(|fault| call.refused(fault))?;
        self.started(&call).await?;
        Ok(Response::new(created))
    }

    async fn get_task(&self, request: Request<pb::GetTaskRequest>) -> Result<Response<pb::GetTaskResponse>, Status> {
        let body = request.get_ref();
        let call = self.here(&request, &body.user_id, &body.agent_id, &body.task_id).await?;
        let _task = call.span.enter();
        let task = self.shared.boards.read(&call.key, &call.owner, call.now, convert::wire_task);
        task.map(|task| Response::new(pb::GetTaskResponse { task: Some(task) })).map_err(|fault| call.refused(fault))
    }

    async fn put_facts(&self, request: Request<pb::PutFactsRequest>) -> Result<Response<pb::PutFactsResponse>, Status> {
        let body = request.get_ref();
        let call = self.here(&request, &body.user_id, &body.agent_id, &body.task_id).await?;
        let key = request_key!(body, "PutFacts").map_err(status)?;
        let facts = convert::facts(body.facts.clone()).map_err(|fault| call.refused(fault))?;
        let keys: Vec<FactKey> = facts.iter().map(|fact| fact.key.clone()).collect();
        let answer = |board: &Board| {
            let stored = keys.iter().filter_map(|key| board.facts.get(key).map(|fact| convert::wire_fact(key, fact)));
            pb::PutFactsResponse { facts: stored.collect(), version: board.version }
        };
        self.write(&call, body.generation, key, |board| board.decide_facts(facts, call.epoch, call.now), answer)
    }

    async fn update_todos(&self, request: Request<pb::UpdateTodosRequest>) -> Result<Response<pb::UpdateTodosResponse>, Status> {
        let body = request.get_ref();
        let call = self.here(&request, &body.user_id, &body.agent_id, &body.task_id).await?;
        let key = request_key!(body, "UpdateTodos").map_err(status)?;
        let todos = convert::todos(body.todos.clone()).map_err(|fault| call.refused(fault))?;
        let answer = |board: &Board| pb::UpdateTodosResponse {
            todos: board.todos.iter().map(convert::wire_todo).collect(),
            version: board.version,
        };
        self.write(&call, body.generation, key, |board| board.decide_todos(todos), answer)
    }

    async fn append_digest(
        &self,
        request: Request<pb::AppendDigestRequest>,
    ) -> Result<Response<pb::AppendDigestResponse>, Status> {
        let body = request.get_ref();
        let call = self.here(&request, &body.user_id, &body.agent_id, &body.task_id).await?;
        let key = request_key!(body, "AppendDigest").map_err(status)?;
        if !body.payload.is_empty() || !body.fields.is_empty() {
            let why = Fault::new(Reason::Internal, "the raw return of a tool does not come to working memory");
            return Err(refused(&call.key, why));
        }
        let digest = convert::digest(body.digest.clone()).map_err(|fault| call.refused(fault))?;
        let facts = if body.facts.is_empty() {
            Vec::new()
        } else {
            convert::facts(body.facts.clone()).map_err(|fault| call.refused(fault))?
        };
        let keys: Vec<FactKey> = facts.iter().map(|fact| fact.key.clone()).collect();
        let count = sentences(&digest.sentence);
        let answer = |board: &Board| pb::AppendDigestResponse {
            digest: board.digests.last().map(convert::wire_digest),
            version: board.version,
            facts: keys.iter().filter_map(|key| board.facts.get(key).map(|fact| convert::wire_fact(key, fact))).collect(),
            ..pb::AppendDigestResponse::default()
        };
        let decide = |board: &Board| board.decide_result(facts, digest, count, call.epoch, call.now);
        self.write(&call, body.generation, key, decide, answer)
    }

    async fn list_tasks(&self, request: Request<pb::ListTasksRequest>) -> Result<Response<pb::ListTasksResponse>, Status> {
        let list = async {
            let body = request.get_ref();
            let owner = self.owner(&request, &body.user_id, &body.agent_id)?;
            let page = limits::page("page_size", body.page_size, limits::PAGE, limits::PAGE_MAX)?;
            let (user, agent) = (owner.user_key(), owner.agent.as_ref().map_or("", AgentId::as_str));
            let binding = ["ListTasks", &user, agent];
            let after = self.shared.page_tokens.open(&binding, &body.page_token)?;
            let now = self.shared.now();
            let mut rest = self.shared.tasks_of(&owner).await?;
            rest.retain(|key| after.as_deref().is_none_or(|after| key.task().as_str() > after));
            let mut tasks = Vec::new();
            let mut rest = rest.into_iter().peekable();
            // A page at a time: of what is not here one round trip tells.
            while tasks.len() < page.size as usize && rest.peek().is_some() {
                let some: Vec<TaskKey> = rest.by_ref().take(page.size as usize - tasks.len()).collect();
                self.infos(&owner, &some, now, &mut tasks).await?;
            }
            let more = rest.peek().is_some();
            let next_page_token = match tasks.last() {
                Some(last) if more => self.shared.page_tokens.mint(&binding, &last.task_id),
                _ => String::new(),
            };
            Ok(pb::ListTasksResponse { tasks, next_page_token, capped: page.capped })
        };
        list.await.map(Response::new).map_err(status)
    }

    type WatchTaskStream = BoxStream<'static, Result<pb::WatchTaskResponse, Status>>;

    async fn watch_task(&self, request: Request<pb::WatchTaskRequest>) -> Result<Response<Self::WatchTaskStream>, Status> {
        let body = request.get_ref();
        let call = self.here(&request, &body.user_id, &body.agent_id, &body.task_id).await?;
        let changes = self.shared.boards.watch(&call.key, &call.owner, call.now).map_err(|fault| call.refused(fault))?;
        let watch =
            Watch { shared: Arc::clone(&self.shared), key: call.key, owner: call.owner, changes, shown: (0, 0), over: false };
        let next = |watch: Watch| async move { watch.next().await.map_err(status) };
        Ok(Response::new(Box::pin(futures::stream::try_unfold(watch, next))))
    }

    async fn update_goal(&self, request: Request<pb::UpdateGoalRequest>) -> Result<Response<pb::UpdateGoalResponse>, Status> {
        let body = request.get_ref();
        let call = self.here(&request, &body.user_id, &body.agent_id, &body.task_id).await?;
        let key = request_key!(body, "UpdateGoal").map_err(status)?;
        let (goal, count) = checked_goal(body.goal.clone()).map_err(|fault| call.refused(fault))?;
        let answer =
            |board: &Board| pb::UpdateGoalResponse { goal: Some(convert::wire_goal(&board.goal)), version: board.version };
        self.write(&call, body.generation, key, |board| board.decide_goal(goal, count), answer)
    }

    async fn end_task(&self, request: Request<pb::EndTaskRequest>) -> Result<Response<pb::EndTaskResponse>, Status> {
        let body = request.get_ref();
        let call = self.here(&request, &body.user_id, &body.agent_id, &body.task_id).await?;
        let key = RequestKey::of("EndTask", &body.request_id, body).map_err(status)?;
        let ended = call.span.in_scope(|| self.shared.boards.end(&call.key, &call.owner, key, call.now));
        let (tombstone, already_ended) = ended.map_err(|fault| call.refused(fault))?;
        // Also when it had ended before: the first answer may have been lost together with the write.
        self.survive(&call).await?;
        Ok(Response::new(pb::EndTaskResponse {
            end_time: Some(common::wire_time(tombstone.end_time)),
            facts_dropped: tombstone.facts_dropped,
            already_ended,
            // The router's to tell: promotions, the episode.
            ..pb::EndTaskResponse::default()
        }))
    }
}

fn sealed(key: &FactKey, board: &Board) -> Option<internal::SealResponse> {
    let Fact { content, source, verified_at, ownership, .. } = board.facts.get(key)?;
    let (Content::Value(value), Ownership::Sealed { epoch, .. }) = (content, ownership) else { return None };
    Some(internal::SealResponse {
        value: value.clone(),
        source: source.clone(),
        epoch: *epoch,
        session_id: board.session.as_ref().map(|session| session.as_str().to_owned()).unwrap_or_default(),
        verified_at: Some(common::wire_time(*verified_at)),
    })
}

fn promotion_id(value: &str) -> Result<String, Fault> {
    check_id("promotion_id", value)?;
    Ok(value.to_owned())
}

#[tonic::async_trait]
impl ParticipantService for WorkingService {
    async fn seal(&self, request: Request<internal::SealRequest>) -> Result<Response<internal::SealResponse>, Status> {
        let body = request.get_ref();
        let call = self.here(&request, &body.user_id, &body.agent_id, &body.task_id).await?;
        let seal = || {
            let deadline = body.deadline.as_ref().ok_or_else(|| Fault::field("deadline", "is required"))?;
            let seal = Seal {
                key: FactKey::new(body.key.as_str())?,
                promotion_id: promotion_id(&body.promotion_id)?,
                epoch: body.epoch,
                deadline: common::time("deadline", deadline)?,
            };
            let view = |board: &Board| sealed(&seal.key, board);
            let answer = self.shared.boards.seal(&call.key, &call.owner, &seal, call.now, view)?;
            answer.ok_or_else(|| Fault::new(Reason::Internal, "a sealed fact shows no seal"))
        };
        let answer = call.span.in_scope(seal).map_err(|fault| call.refused(fault))?;
        // A seal that a restart forgets would let a write pass in the middle of a promotion.
        self.survive(&call).await?;
        Ok(Response::new(answer))
    }

    async fn settle(&self, request: Request<internal::SettleRequest>) -> Result<Response<internal::SettleResponse>, Status> {
        let body = request.get_ref();
        let call = self.here(&request, &body.user_id, &body.agent_id, &body.task_id).await?;
        let settle = || {
            let settle = Settle {
                key: FactKey::new(body.key.as_str())?,
                promotion_id: promotion_id(&body.promotion_id)?,
                seal_epoch: body.seal_epoch,
                committed: body.committed,
                epoch: body.epoch,
            };
            if call.held == Held::Nowhere {
                // The source is gone: nothing is left to do.
                return Ok(true);
            }
            self.shared.boards.settle(&call.key, &call.owner, &settle, call.now)
        };
        let already_settled = call.span.in_scope(settle).map_err(|fault| call.refused(fault))?;
        self.survive(&call).await?;
        Ok(Response::new(internal::SettleResponse { already_settled }))
    }
}

impl WorkingService {
    /// What an erasure takes, held against the signed header.
    fn scope<T>(&self, request: &Request<T>, scope: Option<&internal::ErasureScope>) -> Result<(Owner, Scope), Fault> {
        let wire = scope.ok_or_else(|| Fault::field("scope", "is required"))?;
        let claims = Claims::of(request)?;
        let owner = common::owner(&claims.caller, &wire.user_id, "")?;
        if owner.user != *claims.require_user()? {
            return Err(Fault::new(Reason::OwnerMismatch, "user_id: the call is signed for another user"));
        }
        Ok((owner, erasure::scope(wire)?))
    }
}

#[tonic::async_trait]
impl WorkingErasureService for WorkingService {
    async fn erase_content(
        &self,
        request: Request<internal::EraseContentRequest>,
    ) -> Result<Response<internal::EraseContentResponse>, Status> {
        let body = request.get_ref();
        let (owner, scope) = self.scope(&request, body.scope.as_ref()).map_err(status)?;
        let (shared, cursor) = (Arc::clone(&self.shared), body.cursor.clone());
        // What was begun is finished when the caller has gone.
        let part = detached_write(async move { Eraser::new(&shared, owner, scope).erase(&cursor).await }).await;
        let (stores, next_cursor) = part.map_err(status)?;
        Ok(Response::new(internal::EraseContentResponse { stores, next_cursor }))
    }

    async fn find_content(
        &self,
        request: Request<internal::FindContentRequest>,
    ) -> Result<Response<internal::FindContentResponse>, Status> {
        let body = request.get_ref();
        let (owner, scope) = self.scope(&request, body.scope.as_ref()).map_err(status)?;
        let part = Eraser::new(&self.shared, owner, scope).find(&body.cursor).await;
        let (stores, next_cursor) = part.map_err(status)?;
        Ok(Response::new(internal::FindContentResponse { stores, next_cursor }))
    }
}
