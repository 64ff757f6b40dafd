//! Layers in this process, behind the real signed stack: boards, turns and records in maps, with switches to break them.

use parking_lot::Mutex;
use prost::Message as _;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use strata_api::admin::v1 as admin;
use strata_api::common::v1 as common;
use strata_api::error::status;
use strata_api::internal::v1 as internal;
use strata_api::longterm::v1 as longterm;
use strata_api::session::v1 as session;
use strata_api::working::v1 as working;
use strata_core::time::SECOND;
use strata_core::{Fault, Reason};
use strata_runtime::Claims;
use strata_testkit::ManualClock;
use tonic::{Request, Response, Status};

type Answer<T> = Result<Response<T>, Status>;

fn refuse<T>(reason: Reason, text: &str) -> Answer<T> {
    Err(status(Fault::new(reason, text)))
}

/// A fact of a fake board.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BoardFact {
    pub value: String,
    pub epoch: u64,
    /// Promotion and epoch of the seal.
    pub seal: Option<(String, u64)>,
    pub overlay: bool,
}

/// What one target made of one promotion.
#[derive(Clone, Debug)]
pub enum Landed {
    Applied(Box<longterm::WriteResult>),
    Aborted,
}

#[derive(Debug)]
pub struct State {
    pub tasks: BTreeMap<String, BTreeMap<String, BoardFact>>,
    pub turns: BTreeMap<String, Vec<(session::Role, String)>>,
    pub summaries: BTreeMap<String, Vec<session::Summary>>,
    pub facts: BTreeMap<String, BTreeMap<String, session::SessionFact>>,
    pub artifacts: BTreeMap<String, Vec<u8>>,
    pub owners: BTreeMap<String, u64>,
    pub memories: Vec<longterm::Memory>,
    /// What was written here, by id.
    pub records: BTreeMap<String, longterm::Memory>,
    pub due: Vec<longterm::Candidate>,
    /// Vectors are not available.
    pub degraded: bool,
    /// What recall was asked for.
    pub recalls: Vec<longterm::RecallRequest>,
    pub landed: BTreeMap<String, Landed>,
    /// How the target answers an apply.
    pub outcome: longterm::Outcome,
    /// Or refuses it.
    pub refusal: Option<Fault>,
    pub attestations: Vec<internal::Attestation>,
    pub statements: Vec<longterm::Statement>,
    pub calls: Vec<(String, Claims)>,
    pub imported: Vec<longterm::ImportMemoriesRequest>,
    /// Erasures with steps for routers.
    pub erasures: Vec<internal::OpenErasure>,
    /// What was reported of them.
    pub settled: Vec<internal::SettleErasureRequest>,
    /// Scopes that each layer was asked to erase.
    pub erased: Vec<(&'static str, internal::ErasureScope)>,
    pub contexts: Vec<internal::RecordContextRequest>,
    pub episodes: Vec<longterm::Episode>,
    pub suggested: admin::Mode,
    /// Last turn of the topic of a session that ended last.
    pub topic_end_seq: u32,
    /// Moves on by a second with every call.
    pub clock: Option<ManualClock>,
}

/// All three layers.
#[derive(Clone, Debug)]
pub struct Fake {
    pub state: Arc<Mutex<State>>,
    pub working_down: Arc<AtomicBool>,
    pub session_down: Arc<AtomicBool>,
    pub session_hangs: Arc<AtomicBool>,
    pub longterm_down: Arc<AtomicBool>,
    /// Calls of the saga that still succeed; later ones fail. Negative: no limit.
    pub saga_calls: Arc<AtomicI64>,
    /// The failing call is carried out and only its answer is lost.
    pub lose_answer: Arc<AtomicBool>,
}

impl Default for Fake {
    fn default() -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                tasks: BTreeMap::new(),
                turns: BTreeMap::new(),
                summaries: BTreeMap::new(),
                facts: BTreeMap::new(),
                artifacts: BTreeMap::new(),
                owners: BTreeMap::new(),
                memories: Vec::new(),
                records: BTreeMap::new(),
                due: Vec::new(),
                degraded: false,
                recalls: Vec::new(),
                landed: BTreeMap::new(),
                outcome: longterm::Outcome::Active,
                refusal: None,
                attestations: Vec::new(),
                statements: Vec::new(),
                calls: Vec::new(),
                imported: Vec::new(),
                erasures: Vec::new(),
                settled: Vec::new(),
                erased: Vec::new(),
                contexts: Vec::new(),
                episodes: Vec::new(),
                suggested: admin::Mode::Normal,
                topic_end_seq: 0,
                clock: None,
            })),
            working_down: Arc::default(),
            session_down: Arc::default(),
            session_hangs: Arc::default(),
            longterm_down: Arc::default(),
            saga_calls: Arc::new(AtomicI64::new(-1)),
            lose_answer: Arc::default(),
        }
    }
}

impl Fake {
    fn seen<T>(&self, request: &Request<T>, down: &AtomicBool) -> Result<Claims, Status> {
        let claims = Claims::of(request).map_err(status)?.clone();
        let mut state = self.state.lock();
        state.calls.push((claims.method.clone(), claims.clone()));
        if let Some(clock) = &state.clock {
            clock.advance_micros(SECOND);
        }
        drop(state);
        if down.load(Ordering::SeqCst) {
            return Err(status(Fault::unavailable("the layer")));
        }
        Ok(claims)
    }

    /// Carries out a call of the saga, or not, and answers, or not.
    fn saga<T>(&self, act: impl FnOnce(&mut State) -> Answer<T>) -> Answer<T> {
        let left = self.saga_calls.load(Ordering::SeqCst);
        if left < 0 {
            return act(&mut self.state.lock());
        }
        self.saga_calls.store((left - 1).max(0), Ordering::SeqCst);
        if left > 0 {
            return act(&mut self.state.lock());
        }
        if self.lose_answer.load(Ordering::SeqCst) {
            drop(act(&mut self.state.lock()));
        }
        refuse(Reason::StoreUnavailable, "lost")
    }

    pub fn put_turn(&self, session: &str, role: session::Role, text: &str) {
        self.state.lock().turns.entry(session.into()).or_default().push((role, text.into()));
    }

    pub fn put_fact(&self, task: &str, key: &str, value: &str) {
        self.state
            .lock()
            .tasks
            .entry(task.into())
            .or_default()
            .insert(key.into(), BoardFact { value: value.into(), epoch: 1, ..Default::default() });
    }

    pub fn fact(&self, task: &str, key: &str) -> BoardFact {
        self.state.lock().tasks[task][key].clone()
    }

    pub fn calls_of(&self, method: &str) -> Vec<Claims> {
        self.state
            .lock()
            .calls
            .iter()
            .filter(|(path, _)| path.ends_with(&format!("/{method}")))
            .map(|(_, claims)| claims.clone())
            .collect()
    }
}

/// A record.
pub fn memory(id: &str, kind: longterm::Kind, key: &str, content: &str) -> longterm::Memory {
    longterm::Memory {
        memory_id: id.into(),
        user_id: "u1".into(),
        scope: common::Level::User.into(),
        kind: kind.into(),
        tier: longterm::Tier::Stable.into(),
        key: key.into(),
        content: content.into(),
        source: longterm::Source::UserStatement.into(),
        status: longterm::Status::Active.into(),
        confidence: 0.9,
        importance: 3,
        owner_epoch: 7,
        event_time: Some(prost_types::Timestamp { seconds: 1_767_225_600, nanos: 0 }),
        ..Default::default()
    }
}

macro_rules! not_here {
    ($($method:ident($request:ty) -> $response:ty;)*) => { $(
        fn $method<'a, 'b>(&'a self, _request: Request<$request>) -> std::pin::Pin<Box<dyn Future<Output = Answer<$response>> + Send + 'b>>
        where 'a: 'b, Self: 'b {
            Box::pin(async { refuse(Reason::NotServed, "not in this fake") })
        }
    )* };
}

/// Methods that answer empty and are only recorded.
macro_rules! empty {
    ($down:ident: $($method:ident($request:ty) -> $response:ty;)*) => { $(
        fn $method<'a, 'b>(&'a self, request: Request<$request>) -> std::pin::Pin<Box<dyn Future<Output = Answer<$response>> + Send + 'b>>
        where 'a: 'b, Self: 'b {
            let seen = self.seen(&request, &self.$down);
            Box::pin(async move { seen.map(|_| Response::new(<$response>::default())) })
        }
    )* };
}

#[tonic::async_trait]
impl working::working_memory_service_server::WorkingMemoryService for Fake {
    empty! { working_down:
        create_task(working::CreateTaskRequest) -> working::CreateTaskResponse;
        update_todos(working::UpdateTodosRequest) -> working::UpdateTodosResponse;
        update_goal(working::UpdateGoalRequest) -> working::UpdateGoalResponse;
        list_tasks(working::ListTasksRequest) -> working::ListTasksResponse;
    }

    type WatchTaskStream = futures::stream::BoxStream<'static, Result<working::WatchTaskResponse, Status>>;

    async fn watch_task(&self, request: Request<working::WatchTaskRequest>) -> Answer<Self::WatchTaskStream> {
        self.seen(&request, &self.working_down)?;
        let parts = [false, true].map(|ended| Ok(working::WatchTaskResponse { task: None, ended }));
        Ok(Response::new(Box::pin(futures::stream::iter(parts))))
    }

    async fn append_digest(&self, request: Request<working::AppendDigestRequest>) -> Answer<working::AppendDigestResponse> {
        self.seen(&request, &self.working_down)?;
        let body = request.into_inner();
        assert!(body.payload.is_empty() && body.fields.is_empty(), "the raw return stays with the router");
        Ok(Response::new(working::AppendDigestResponse { digest: body.digest, facts: body.facts, ..Default::default() }))
    }

    async fn get_task(&self, request: Request<working::GetTaskRequest>) -> Answer<working::GetTaskResponse> {
        self.seen(&request, &self.working_down)?;
        let body = request.into_inner();
        let state = self.state.lock();
        let Some(facts) = state.tasks.get(&body.task_id) else { return refuse(Reason::NotFound, "no such task") };
        let fact = |(key, fact): (&String, &BoardFact)| working::Fact {
            key: key.clone(),
            value: fact.value.clone(),
            source: "checker".into(),
            epoch: fact.epoch,
            overlay: fact.overlay,
            verified_at: Some(prost_types::Timestamp { seconds: 1_767_225_000, nanos: 0 }),
            ..Default::default()
        };
        let task = working::Task {
            // A fake board tells its session in its id.
            session_id: body.task_id.split_once('@').map(|(_, session)| session.to_owned()).unwrap_or_default(),
            task_id: body.task_id,
            user_id: body.user_id,
            goal: Some(working::Goal { sentence: "Pay the invoice.".into(), acceptance: "It is paid.".into() }),
            create_time: Some(prost_types::Timestamp { seconds: 1_767_225_000, nanos: 0 }),
            facts: facts.iter().map(fact).collect(),
            ..Default::default()
        };
        Ok(Response::new(working::GetTaskResponse { task: Some(task) }))
    }

    async fn put_facts(&self, request: Request<working::PutFactsRequest>) -> Answer<working::PutFactsResponse> {
        let claims = self.seen(&request, &self.working_down)?;
        let epoch = claims.write.expect("a write has a grant").epoch;
        let body = request.into_inner();
        let mut state = self.state.lock();
        let board = state.tasks.entry(body.task_id).or_default();
        for fact in &body.facts {
            if let Some(old) = board.get(&fact.key) {
                if old.seal.is_some() {
                    return refuse(Reason::FactSealed, "sealed");
                }
                if old.overlay {
                    return refuse(Reason::FactOwnedByOtherLayer, "an overlay");
                }
                if epoch < old.epoch {
                    return Err(status(Fault::new(Reason::StaleEpoch, "stale").with("epoch", old.epoch.to_string())));
                }
            }
        }
        for fact in &body.facts {
            board.insert(fact.key.clone(), BoardFact { value: fact.value.clone(), epoch, ..Default::default() });
        }
        Ok(Response::new(working::PutFactsResponse {
            facts: body.facts.into_iter().map(|fact| working::Fact { epoch, ..fact }).collect(),
            version: 1,
        }))
    }

    async fn end_task(&self, request: Request<working::EndTaskRequest>) -> Answer<working::EndTaskResponse> {
        self.seen(&request, &self.working_down)?;
        self.state.lock().tasks.remove(&request.into_inner().task_id);
        Ok(Response::new(working::EndTaskResponse::default()))
    }
}

#[tonic::async_trait]
impl internal::participant_service_server::ParticipantService for Fake {
    async fn seal(&self, request: Request<internal::SealRequest>) -> Answer<internal::SealResponse> {
        self.seen(&request, &self.working_down)?;
        let body = request.into_inner();
        self.saga(|state| {
            let Some(fact) = state.tasks.get_mut(&body.task_id).and_then(|board| board.get_mut(&body.key)) else {
                return refuse(Reason::NotFound, "no such fact");
            };
            match &fact.seal {
                Some((promotion, _)) if *promotion != body.promotion_id => return refuse(Reason::FactSealed, "sealed"),
                Some(_) => {}
                None if fact.overlay => return refuse(Reason::FactOwnedByOtherLayer, "an overlay"),
                None if body.epoch <= fact.epoch => {
                    return Err(status(Fault::new(Reason::StaleEpoch, "stale").with("epoch", fact.epoch.to_string())));
                }
                None => {
                    fact.epoch = body.epoch;
                    fact.seal = Some((body.promotion_id.clone(), body.epoch));
                }
            }
            Ok(Response::new(internal::SealResponse {
                value: fact.value.clone(),
                source: "checker".into(),
                epoch: fact.epoch,
                ..Default::default()
            }))
        })
    }

    async fn settle(&self, request: Request<internal::SettleRequest>) -> Answer<internal::SettleResponse> {
        self.seen(&request, &self.working_down)?;
        let body = request.into_inner();
        self.saga(|state| {
            let Some(fact) = state.tasks.get_mut(&body.task_id).and_then(|board| board.get_mut(&body.key)) else {
                return Ok(Response::new(internal::SettleResponse { already_settled: true }));
            };
            let held =
                fact.seal.as_ref().is_some_and(|(promotion, epoch)| *promotion == body.promotion_id && *epoch == body.seal_epoch);
            if body.committed {
                fact.overlay = true;
            }
            if held {
                fact.seal = None;
                fact.epoch = fact.epoch.max(body.epoch);
            }
            Ok(Response::new(internal::SettleResponse { already_settled: !held }))
        })
    }
}

#[tonic::async_trait]
impl session::session_memory_service_server::SessionMemoryService for Fake {
    empty! { session_down:
        list_turns(session::ListTurnsRequest) -> session::ListTurnsResponse;
        anchor_turns(session::AnchorTurnsRequest) -> session::AnchorTurnsResponse;
        release_anchors(session::ReleaseAnchorsRequest) -> session::ReleaseAnchorsResponse;
        compress_session(session::CompressSessionRequest) -> session::CompressSessionResponse;
        commit_summary(session::CommitSummaryRequest) -> session::CommitSummaryResponse;
        get_summaries(session::GetSummariesRequest) -> session::GetSummariesResponse;
        list_sessions(session::ListSessionsRequest) -> session::ListSessionsResponse;
        search_turns(session::SearchTurnsRequest) -> session::SearchTurnsResponse;
    }

    async fn append_turns(&self, request: Request<session::AppendTurnsRequest>) -> Answer<session::AppendTurnsResponse> {
        self.seen(&request, &self.session_down)?;
        let topic_end_seq = self.state.lock().topic_end_seq;
        Ok(Response::new(session::AppendTurnsResponse { incarnation: 1, topic_end_seq, ..Default::default() }))
    }

    async fn get_session(&self, request: Request<session::GetSessionRequest>) -> Answer<session::GetSessionResponse> {
        self.seen(&request, &self.session_down)?;
        let topic_end_seq = self.state.lock().topic_end_seq;
        Ok(Response::new(session::GetSessionResponse { topic_end_seq, ..Default::default() }))
    }

    async fn end_session(&self, request: Request<session::EndSessionRequest>) -> Answer<session::EndSessionResponse> {
        self.seen(&request, &self.session_down)?;
        let mut state = self.state.lock();
        let session = &request.get_ref().session_id;
        let (turns, facts) = (state.turns.remove(session), state.facts.remove(session));
        let already_ended = turns.is_none() && facts.is_none();
        Ok(Response::new(session::EndSessionResponse { already_ended, ..Default::default() }))
    }

    async fn put_facts(&self, request: Request<session::PutFactsRequest>) -> Answer<session::PutFactsResponse> {
        let claims = self.seen(&request, &self.session_down)?;
        let epoch = claims.write.map(|write| write.epoch).unwrap_or_default();
        let body = request.into_inner();
        let mut state = self.state.lock();
        let known = state.facts.entry(body.session_id).or_default();
        if body.facts.iter().any(|fact| known.get(&fact.key).is_some_and(|old| old.overlay)) {
            return refuse(Reason::FactOwnedByOtherLayer, "an overlay");
        }
        if let Some((key, old)) =
            body.facts.iter().filter_map(|f| known.get(&f.key).map(|old| (&f.key, old))).find(|(_, old)| old.epoch > epoch)
        {
            let fault = Fault::new(Reason::StaleEpoch, "stale").with("key", key.clone()).with("epoch", old.epoch.to_string());
            return Err(status(fault));
        }
        let facts: Vec<_> = body.facts.into_iter().map(|fact| session::SessionFact { epoch, overlay: false, ..fact }).collect();
        known.extend(facts.iter().map(|fact| (fact.key.clone(), fact.clone())));
        Ok(Response::new(session::PutFactsResponse { facts }))
    }

    async fn put_artifact(
        &self,
        request: Request<tonic::Streaming<session::PutArtifactRequest>>,
    ) -> Answer<session::PutArtifactResponse> {
        self.seen(&request, &self.session_down)?;
        let mut parts = request.into_inner();
        let mut all = parts.message().await?.unwrap_or_default();
        while let Some(part) = parts.message().await? {
            all.data.extend(part.data);
        }
        let artifact = session::Artifact { trace_id: all.trace_id.clone(), bytes: all.data.len() as u64, ..Default::default() };
        self.state.lock().artifacts.insert(all.trace_id, all.data);
        Ok(Response::new(session::PutArtifactResponse { artifact: Some(artifact) }))
    }

    type GetArtifactStream = futures::stream::BoxStream<'static, Result<session::GetArtifactResponse, Status>>;

    async fn get_artifact(&self, request: Request<session::GetArtifactRequest>) -> Answer<Self::GetArtifactStream> {
        self.seen(&request, &self.session_down)?;
        let found = self.state.lock().artifacts.get(&request.get_ref().trace_id).cloned();
        let Some(data) = found else { return refuse(Reason::ArtifactGone, "gone") };
        let parts: Vec<_> =
            data.chunks(2).map(|data| Ok(session::GetArtifactResponse { artifact: None, data: data.to_vec() })).collect();
        Ok(Response::new(Box::pin(futures::stream::iter(parts))))
    }

    async fn get_facts(&self, request: Request<session::GetFactsRequest>) -> Answer<session::GetFactsResponse> {
        self.seen(&request, &self.session_down)?;
        let state = self.state.lock();
        let Some(facts) = state.facts.get(&request.get_ref().session_id) else {
            return refuse(Reason::NotFound, "no such session");
        };
        Ok(Response::new(session::GetFactsResponse { facts: facts.values().cloned().collect(), ..Default::default() }))
    }

    async fn get_turns(&self, request: Request<session::GetTurnsRequest>) -> Answer<session::GetTurnsResponse> {
        self.seen(&request, &self.session_down)?;
        let body = request.into_inner();
        let state = self.state.lock();
        let Some(turns) = state.turns.get(&body.session_id) else { return refuse(Reason::NotFound, "no such session") };
        let asked = (1..).zip(turns).filter(|(seq, _)| (body.from_seq..=body.to_seq).contains(seq));
        Ok(Response::new(session::GetTurnsResponse {
            turns: asked.map(|(seq, (role, text))| turn(seq, *role, text)).collect(),
            ..Default::default()
        }))
    }

    async fn get_window(&self, request: Request<session::GetWindowRequest>) -> Answer<session::GetWindowResponse> {
        self.seen(&request, &self.session_down)?;
        if self.session_hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        let body = request.into_inner();
        let state = self.state.lock();
        let Some(turns) = state.turns.get(&body.session_id) else { return refuse(Reason::NotFound, "no such session") };
        Ok(Response::new(session::GetWindowResponse {
            turns: (1..).zip(turns).map(|(seq, (role, text))| turn(seq, *role, text)).collect(),
            summaries: state.summaries.get(&body.session_id).cloned().unwrap_or_default(),
            ..Default::default()
        }))
    }
}

#[tonic::async_trait]
impl internal::session_fact_service_server::SessionFactService for Fake {
    async fn seal_fact(&self, request: Request<internal::SealFactRequest>) -> Answer<internal::SealFactResponse> {
        let claims = self.seen(&request, &self.session_down)?;
        let epoch = claims.write.expect("a write has a grant").epoch;
        let body = request.into_inner();
        self.saga(|state| {
            let Some(fact) = state.facts.get_mut(&body.session_id).and_then(|facts| facts.get_mut(&body.key)) else {
                return refuse(Reason::NotFound, "no such fact");
            };
            if fact.overlay {
                return refuse(Reason::FactOwnedByOtherLayer, "an overlay");
            }
            if fact.epoch > epoch {
                return Err(status(Fault::new(Reason::StaleEpoch, "stale").with("epoch", fact.epoch.to_string())));
            }
            fact.epoch = epoch;
            Ok(Response::new(internal::SealFactResponse { fact: Some(fact.clone()) }))
        })
    }

    async fn overlay_facts(&self, request: Request<internal::OverlayFactsRequest>) -> Answer<internal::OverlayFactsResponse> {
        self.seen(&request, &self.session_down)?;
        let body = request.into_inner();
        self.saga(|state| {
            let Some(facts) = state.facts.get_mut(&body.session_id) else {
                return Ok(Response::new(internal::OverlayFactsResponse { known: 0 }));
            };
            let mut known = 0;
            for key in &body.keys {
                if let Some(fact) = facts.get_mut(key) {
                    fact.overlay = true;
                    known += 1;
                }
            }
            Ok(Response::new(internal::OverlayFactsResponse { known }))
        })
    }
}

fn turn(seq: u32, role: session::Role, text: &str) -> session::Turn {
    session::Turn {
        seq,
        role: role.into(),
        text: text.into(),
        time: Some(prost_types::Timestamp { seconds: 1_767_225_600 + i64::from(seq), nanos: 0 }),
        ..Default::default()
    }
}

impl Fake {
    /// A record of this fake in another status.
    fn moved(state: &mut State, memory_id: &str, status: longterm::Status) -> Result<longterm::Memory, Status> {
        let Some(memory) = state.records.get_mut(memory_id) else { return Ok(longterm::Memory::default()) };
        memory.status = status.into();
        if status == longterm::Status::Active && !memory.key.is_empty() {
            state.owners.insert(memory.key.clone(), memory.owner_epoch);
        }
        Ok(memory.clone())
    }

    fn stored(state: &mut State, statement: longterm::Statement, claims: &Claims) -> Answer<longterm::WriteResult> {
        let attestation = internal::Attestation::decode(claims.attestation.as_slice()).expect("an attestation");
        state.attestations.push(attestation);
        state.statements.push(statement.clone());
        if let Some(refusal) = &state.refusal {
            return Err(status(refusal.clone()));
        }
        // The one rule of the gate that these tests need (G2): a quote that is not there is refused.
        if attestation.quote() == internal::QuoteState::NotFound {
            return Err(status(Fault::new(Reason::GateProvenance, "the quote is not there").rule(
                "G2",
                "quote",
                "the quote stands in the turn",
            )));
        }
        let same = |known: &&longterm::Memory| {
            known.status() == longterm::Status::Active && known.key == statement.key && known.content == statement.content
        };
        if let Some(known) = state.records.values().find(same).cloned() {
            let outcome = longterm::Outcome::EvidenceAdded.into();
            return Ok(Response::new(longterm::WriteResult { outcome, memory: Some(known), ..Default::default() }));
        }
        let unverified = attestation.quote() == internal::QuoteState::Unverifiable;
        let consented = state.outcome == longterm::Outcome::NeedsConsent && statement.consent == "challenge";
        let outcome = match (unverified, consented) {
            (true, _) => longterm::Outcome::Candidate,
            (false, true) => longterm::Outcome::Active,
            (false, false) => state.outcome,
        };
        let active = outcome == longterm::Outcome::Active;
        let number = state.statements.len();
        let mut memory = memory(
            &format!("m{number}"),
            longterm::Kind::try_from(statement.kind).expect("a kind"),
            &statement.key,
            &statement.content,
        );
        memory.status = if active { longterm::Status::Active } else { longterm::Status::Candidate }.into();
        if active && !statement.key.is_empty() {
            state.owners.insert(statement.key, memory.owner_epoch);
        }
        if outcome != longterm::Outcome::NeedsConsent {
            state.records.insert(memory.memory_id.clone(), memory.clone());
        }
        Ok(Response::new(longterm::WriteResult {
            outcome: outcome.into(),
            memory: (outcome != longterm::Outcome::NeedsConsent).then_some(memory),
            consent_challenge: if outcome == longterm::Outcome::NeedsConsent { "challenge".into() } else { String::new() },
            ..Default::default()
        }))
    }
}

#[tonic::async_trait]
impl longterm::long_term_memory_service_server::LongTermMemoryService for Fake {
    empty! { longterm_down:
        lookup_memory(longterm::LookupMemoryRequest) -> longterm::LookupMemoryResponse;
        get_history(longterm::GetHistoryRequest) -> longterm::GetHistoryResponse;
        batch_get_memories(longterm::BatchGetMemoriesRequest) -> longterm::BatchGetMemoriesResponse;
        update_memory(longterm::UpdateMemoryRequest) -> longterm::UpdateMemoryResponse;
        put_entity(longterm::PutEntityRequest) -> longterm::PutEntityResponse;
        get_entity(longterm::GetEntityRequest) -> longterm::GetEntityResponse;
        list_entities(longterm::ListEntitiesRequest) -> longterm::ListEntitiesResponse;
        link_entities(longterm::LinkEntitiesRequest) -> longterm::LinkEntitiesResponse;
        delete_entity(longterm::DeleteEntityRequest) -> longterm::DeleteEntityResponse;
        put_skill(longterm::PutSkillRequest) -> longterm::PutSkillResponse;
        get_skill(longterm::GetSkillRequest) -> longterm::GetSkillResponse;
        list_skills(longterm::ListSkillsRequest) -> longterm::ListSkillsResponse;
        match_skills(longterm::MatchSkillsRequest) -> longterm::MatchSkillsResponse;
        delete_skill(longterm::DeleteSkillRequest) -> longterm::DeleteSkillResponse;
        sync_facts(longterm::SyncFactsRequest) -> longterm::SyncFactsResponse;
        forget_memories(longterm::ForgetMemoriesRequest) -> longterm::ForgetMemoriesResponse;
        restore_memories(longterm::RestoreMemoriesRequest) -> longterm::RestoreMemoriesResponse;
        undo_consolidation(longterm::UndoConsolidationRequest) -> longterm::UndoConsolidationResponse;
        erase_memories(longterm::EraseMemoriesRequest) -> longterm::EraseMemoriesResponse;
        get_erasure(longterm::GetErasureRequest) -> longterm::GetErasureResponse;
        verify_erasure(longterm::VerifyErasureRequest) -> longterm::VerifyErasureResponse;
    }

    async fn list_episodes(&self, request: Request<longterm::ListEpisodesRequest>) -> Answer<longterm::ListEpisodesResponse> {
        self.seen(&request, &self.longterm_down)?;
        let episodes = self.state.lock().episodes.clone();
        Ok(Response::new(longterm::ListEpisodesResponse { episodes, ..Default::default() }))
    }

    async fn report_usage(&self, request: Request<longterm::ReportUsageRequest>) -> Answer<longterm::ReportUsageResponse> {
        self.seen(&request, &self.longterm_down)?;
        let cited = request.into_inner().memory_ids;
        Ok(Response::new(longterm::ReportUsageResponse { cited, recalled: 2, ..Default::default() }))
    }

    async fn confirm_candidate(
        &self,
        request: Request<longterm::ConfirmCandidateRequest>,
    ) -> Answer<longterm::ConfirmCandidateResponse> {
        self.seen(&request, &self.longterm_down)?;
        let memory = Self::moved(&mut self.state.lock(), &request.get_ref().memory_id, longterm::Status::Active)?;
        let result =
            longterm::WriteResult { outcome: longterm::Outcome::Active.into(), memory: Some(memory), ..Default::default() };
        Ok(Response::new(longterm::ConfirmCandidateResponse { result: Some(result) }))
    }

    async fn reject_candidate(
        &self,
        request: Request<longterm::RejectCandidateRequest>,
    ) -> Answer<longterm::RejectCandidateResponse> {
        self.seen(&request, &self.longterm_down)?;
        let memory = Self::moved(&mut self.state.lock(), &request.get_ref().memory_id, longterm::Status::Rejected)?;
        Ok(Response::new(longterm::RejectCandidateResponse { memory: Some(memory), ..Default::default() }))
    }

    async fn get_memory(&self, request: Request<longterm::GetMemoryRequest>) -> Answer<longterm::GetMemoryResponse> {
        self.seen(&request, &self.longterm_down)?;
        let id = &request.get_ref().memory_id;
        let Some(memory) = self.state.lock().records.get(id).cloned() else {
            // Tests of the gate ask for nothing in particular.
            return if id.is_empty() {
                Ok(Response::new(longterm::GetMemoryResponse::default()))
            } else {
                refuse(Reason::NotFound, "no such memory")
            };
        };
        Ok(Response::new(longterm::GetMemoryResponse { memory: Some(memory) }))
    }

    type ExportMemoriesStream = futures::stream::BoxStream<'static, Result<longterm::ExportMemoriesResponse, Status>>;

    async fn export_memories(&self, request: Request<longterm::ExportMemoriesRequest>) -> Answer<Self::ExportMemoriesStream> {
        self.seen(&request, &self.longterm_down)?;
        let line = |n: u64| longterm::ExportLine {
            part: Some(longterm::export_line::Part::Header(longterm::ExportHeader { lines: n, ..Default::default() })),
            ..Default::default()
        };
        let lines: Vec<_> = (0..3).map(|n| Ok(longterm::ExportMemoriesResponse { line: Some(line(n)) })).collect();
        Ok(Response::new(Box::pin(futures::stream::iter(lines))))
    }

    async fn import_memories(
        &self,
        request: Request<tonic::Streaming<longterm::ImportMemoriesRequest>>,
    ) -> Answer<longterm::ImportMemoriesResponse> {
        self.seen(&request, &self.longterm_down)?;
        let mut stream = request.into_inner();
        let mut lines = 0;
        while let Some(message) = stream.message().await? {
            lines += 1;
            self.state.lock().imported.push(message);
        }
        Ok(Response::new(longterm::ImportMemoriesResponse { lines, ..Default::default() }))
    }

    async fn remember(&self, request: Request<longterm::RememberRequest>) -> Answer<longterm::RememberResponse> {
        let claims = self.seen(&request, &self.longterm_down)?;
        let statement = request.into_inner().statement.unwrap_or_default();
        let result = Self::stored(&mut self.state.lock(), statement, &claims)?.into_inner();
        Ok(Response::new(longterm::RememberResponse { result: Some(result) }))
    }

    async fn propose(&self, request: Request<longterm::ProposeRequest>) -> Answer<longterm::ProposeResponse> {
        let claims = self.seen(&request, &self.longterm_down)?;
        let statement = request.into_inner().statement.unwrap_or_default();
        let result = Self::stored(&mut self.state.lock(), statement, &claims)?.into_inner();
        Ok(Response::new(longterm::ProposeResponse { result: Some(result) }))
    }

    async fn list_candidates(
        &self,
        request: Request<longterm::ListCandidatesRequest>,
    ) -> Answer<longterm::ListCandidatesResponse> {
        self.seen(&request, &self.longterm_down)?;
        Ok(Response::new(longterm::ListCandidatesResponse { candidates: self.state.lock().due.clone(), ..Default::default() }))
    }

    async fn recall(&self, request: Request<longterm::RecallRequest>) -> Answer<longterm::RecallResponse> {
        self.seen(&request, &self.longterm_down)?;
        let body = request.into_inner();
        let mut state = self.state.lock();
        state.recalls.push(body.clone());
        let found = state.memories.iter().filter(|m| if body.query.is_empty() { body.keys.contains(&m.key) } else { true });
        let items = found.map(|m| longterm::RecallItem { memory: Some(m.clone()), score: 0.5, ..Default::default() }).collect();
        Ok(Response::new(longterm::RecallResponse {
            items,
            recall_id: "r1".into(),
            degraded: state.degraded,
            ..Default::default()
        }))
    }

    async fn list_memories(&self, request: Request<longterm::ListMemoriesRequest>) -> Answer<longterm::ListMemoriesResponse> {
        self.seen(&request, &self.longterm_down)?;
        let (constraint, protected) = (i32::from(longterm::Kind::Constraint), request.get_ref().protected_only);
        let asked = |m: &&longterm::Memory| if protected { m.protected } else { m.kind == constraint };
        let mut memories: Vec<longterm::Memory> = self.state.lock().memories.iter().filter(asked).cloned().collect();
        let page = usize::try_from(request.get_ref().page_size).unwrap_or(0).max(1);
        let next_page_token = if memories.len() > page { "more".to_owned() } else { String::new() };
        memories.truncate(page);
        Ok(Response::new(longterm::ListMemoriesResponse { memories, next_page_token, ..Default::default() }))
    }
}

#[tonic::async_trait]
impl internal::target_service_server::TargetService for Fake {
    empty! { longterm_down:
        search_archived_turns(internal::SearchArchivedTurnsRequest) -> internal::SearchArchivedTurnsResponse;
    }

    async fn record_context(&self, request: Request<internal::RecordContextRequest>) -> Answer<internal::RecordContextResponse> {
        self.seen(&request, &self.longterm_down)?;
        self.state.lock().contexts.push(request.into_inner());
        Ok(Response::new(internal::RecordContextResponse {}))
    }

    async fn archive_session(
        &self,
        request: Request<internal::ArchiveSessionRequest>,
    ) -> Answer<internal::ArchiveSessionResponse> {
        self.seen(&request, &self.longterm_down)?;
        let body = request.into_inner();
        let through = body.turns.last().map_or(0, |turn| turn.seq);
        let episode = longterm::Episode { episode_id: "e1".into(), session_id: body.session_id, ..Default::default() };
        Ok(Response::new(internal::ArchiveSessionResponse { episode: Some(episode), through_seq: through, closed_seq: 0 }))
    }

    async fn apply(&self, request: Request<internal::ApplyRequest>) -> Answer<internal::ApplyResponse> {
        let claims = self.seen(&request, &self.longterm_down)?;
        let body = request.into_inner();
        self.saga(|state| {
            let result = match state.landed.get(&body.promotion_id) {
                Some(Landed::Aborted) => return refuse(Reason::PromotionAborted, "aborted"),
                Some(Landed::Applied(result)) => longterm::WriteResult::clone(result),
                None => {
                    let result = Self::stored(state, body.statement.unwrap_or_default(), &claims)?.into_inner();
                    // Without consent nothing was stored, so nothing has landed.
                    if result.outcome() != longterm::Outcome::NeedsConsent {
                        state.landed.insert(body.promotion_id.clone(), Landed::Applied(Box::new(result.clone())));
                    }
                    result
                }
            };
            Ok(Response::new(internal::ApplyResponse { result: Some(result) }))
        })
    }

    async fn abort(&self, request: Request<internal::AbortRequest>) -> Answer<internal::AbortResponse> {
        self.seen(&request, &self.longterm_down)?;
        let body = request.into_inner();
        self.saga(|state| {
            let applied = match state.landed.entry(body.promotion_id).or_insert(Landed::Aborted) {
                Landed::Applied(result) => Some(longterm::WriteResult::clone(result)),
                Landed::Aborted => None,
            };
            Ok(Response::new(internal::AbortResponse { applied }))
        })
    }

    async fn get_owners(&self, request: Request<internal::GetOwnersRequest>) -> Answer<internal::GetOwnersResponse> {
        self.seen(&request, &self.longterm_down)?;
        let asked = request.into_inner().keys;
        let state = self.state.lock();
        let owned = |(key, epoch): (&String, &u64)| internal::Owned {
            key: key.clone(),
            level: common::Level::User.into(),
            epoch: *epoch,
        };
        Ok(Response::new(internal::GetOwnersResponse {
            owners: state.owners.iter().filter(|(key, _)| asked.contains(key)).map(owned).collect(),
        }))
    }
}

#[tonic::async_trait]
impl admin::admin_service_server::AdminService for Fake {
    type WatchDecisionsStream = futures::stream::Empty<Result<admin::WatchDecisionsResponse, Status>>;

    not_here! {
        get_status(admin::GetStatusRequest) -> admin::GetStatusResponse;
        get_modes(admin::GetModesRequest) -> admin::GetModesResponse;
        set_mode(admin::SetModeRequest) -> admin::SetModeResponse;
        create_api_key(admin::CreateApiKeyRequest) -> admin::CreateApiKeyResponse;
        list_api_keys(admin::ListApiKeysRequest) -> admin::ListApiKeysResponse;
        revoke_api_key(admin::RevokeApiKeyRequest) -> admin::RevokeApiKeyResponse;
        watch_decisions(admin::WatchDecisionsRequest) -> Self::WatchDecisionsStream;
    }
    empty! { longterm_down:
        backup(admin::BackupRequest) -> admin::BackupResponse;
        sample_for_review(admin::SampleForReviewRequest) -> admin::SampleForReviewResponse;
        get_quality(admin::GetQualityRequest) -> admin::GetQualityResponse;
        verify_consistency(admin::VerifyConsistencyRequest) -> admin::VerifyConsistencyResponse;
        verify_audit(admin::VerifyAuditRequest) -> admin::VerifyAuditResponse;
    }

    type ListAuditStream = futures::stream::BoxStream<'static, Result<admin::ListAuditResponse, Status>>;

    async fn list_audit(&self, request: Request<admin::ListAuditRequest>) -> Answer<Self::ListAuditStream> {
        self.seen(&request, &self.longterm_down)?;
        Ok(Response::new(Box::pin(futures::stream::empty())))
    }

    async fn submit_review(&self, request: Request<admin::SubmitReviewRequest>) -> Answer<admin::SubmitReviewResponse> {
        self.seen(&request, &self.longterm_down)?;
        Ok(Response::new(admin::SubmitReviewResponse {
            suggested_mode: self.state.lock().suggested.into(),
            ..Default::default()
        }))
    }

    async fn reindex(&self, request: Request<admin::ReindexRequest>) -> Answer<admin::ReindexResponse> {
        self.seen(&request, &self.longterm_down)?;
        Ok(Response::new(admin::ReindexResponse { records: 3, embedding_model: "m".into() }))
    }

    type RunMaintenanceStream = futures::stream::BoxStream<'static, Result<admin::RunMaintenanceResponse, Status>>;

    async fn run_maintenance(&self, request: Request<admin::RunMaintenanceRequest>) -> Answer<Self::RunMaintenanceStream> {
        self.seen(&request, &self.longterm_down)?;
        let answers = vec![Ok(admin::RunMaintenanceResponse::default()); 2];
        Ok(Response::new(Box::pin(futures::stream::iter(answers))))
    }

    type RescanStream = futures::stream::BoxStream<'static, Result<admin::RescanResponse, Status>>;

    async fn rescan(&self, request: Request<admin::RescanRequest>) -> Answer<Self::RescanStream> {
        self.seen(&request, &self.longterm_down)?;
        let answers = vec![Ok(admin::RescanResponse::default())];
        Ok(Response::new(Box::pin(futures::stream::iter(answers))))
    }
}

#[tonic::async_trait]
impl internal::erasure_journal_service_server::ErasureJournalService for Fake {
    async fn list_open_erasures(
        &self,
        request: Request<internal::ListOpenErasuresRequest>,
    ) -> Answer<internal::ListOpenErasuresResponse> {
        self.seen(&request, &self.longterm_down)?;
        let mut erasures = self.state.lock().erasures.clone();
        erasures.retain(|open| !open.steps.is_empty());
        Ok(Response::new(internal::ListOpenErasuresResponse { erasures }))
    }

    async fn settle_erasure(&self, request: Request<internal::SettleErasureRequest>) -> Answer<internal::SettleErasureResponse> {
        self.seen(&request, &self.longterm_down)?;
        let settled = request.into_inner();
        let mut state = self.state.lock();
        if settled.problem.is_empty() {
            state.erasures.iter_mut().for_each(|open| open.steps.retain(|step| *step != settled.step));
        }
        state.settled.push(settled);
        Ok(Response::new(internal::SettleErasureResponse { erasure: Some(longterm::Erasure::default()) }))
    }
}

macro_rules! erases {
    ($($service:ident in $module:ident: $down:ident as $name:literal),*) => { $(
        #[tonic::async_trait]
        impl internal::$module::$service for Fake {
            async fn erase_content(&self, request: Request<internal::EraseContentRequest>) -> Answer<internal::EraseContentResponse> {
                self.seen(&request, &self.$down)?;
                self.state.lock().erased.push(($name, request.into_inner().scope.unwrap_or_default()));
                Ok(Response::new(internal::EraseContentResponse::default()))
            }
            async fn find_content(&self, request: Request<internal::FindContentRequest>) -> Answer<internal::FindContentResponse> {
                self.seen(&request, &self.$down)?;
                Ok(Response::new(internal::FindContentResponse::default()))
            }
        }
    )* };
}

erases! {
    SessionErasureService in session_erasure_service_server: session_down as "session",
    WorkingErasureService in working_erasure_service_server: working_down as "working"
}
