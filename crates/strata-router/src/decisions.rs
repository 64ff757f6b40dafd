//! What a call decided, kept for Explain (acceptance A145, A201, A202). Every public call runs inside a notebook
//! ([`Recorder`]); every answer of a layer passes [`noted`] on its way through the router, whoever asked for it, and leaves its
//! findings there. When the call is answered the notebook becomes one [`Decision`], which is stored in the background: telling
//! later must not cost now.

use crate::ledger::{DecisionRow, Ledger};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use strata_api::common::v1 as common;
use strata_api::longterm::v1 as longterm;
use strata_api::session::v1 as session;
use strata_core::limits::{DECISION_BACKLOG, DECISION_SECONDS};
use strata_core::policy::authz::Principal;
use strata_core::policy::decision::{Decision, Stage, Step, words_are_free_of_content};
use strata_core::time::SECOND;
use strata_core::{Clock, Fault, Owner, Reason, Timestamp};
use strata_runtime::context::CallContext;
use strata_runtime::layer::body::{self, Answer};
use strata_runtime::layer::{Middleware, Rpc, known_method, trace};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::{Code, Status, Streaming};

tokio::task_local! {
    static NOTES: Notes;
}

/// Decisions of one write to the store.
const BATCH: usize = 128;
/// How long decisions are collected before they are stored.
const COLLECT: Duration = Duration::from_millis(100);
/// Between two attempts while the store is down.
const RETRY: Duration = Duration::from_millis(500);
/// Longest wait of a reader for what is not stored yet.
const FLUSH: Duration = Duration::from_millis(1_000);

/// The notebook of a call. Clones are the same notebook.
#[derive(Clone, Debug)]
pub(crate) struct Notes(Arc<Mutex<Noted>>);

#[derive(Debug)]
struct Noted {
    owner: Option<Owner>,
    decision: Decision,
}

impl Notes {
    /// An empty notebook.
    pub(crate) fn new(trace_id: String, request_id: String, method: String) -> Self {
        let decision = Decision {
            time: Timestamp::ZERO,
            trace_id,
            request_id,
            method,
            caller: String::new(),
            agent: String::new(),
            outcome: "OK".to_owned(),
            recall_id: String::new(),
            steps: Vec::new(),
            left_out: 0,
        };
        Self(Arc::new(Mutex::new(Noted { owner: None, decision })))
    }
}

impl Notes {
    /// Runs work whose steps are noted here.
    pub(crate) fn scope<F: Future>(self, work: F) -> impl Future<Output = F::Output> {
        NOTES.scope(self, work)
    }

    /// What stands in it, as of now.
    pub(crate) fn decision(&self, now: Timestamp) -> Decision {
        let mut noted = self.0.lock();
        noted.decision.time = now;
        noted.decision.clone()
    }
}

fn with<T>(act: impl FnOnce(&mut Noted) -> T) -> Option<T> {
    NOTES.try_with(|notes| act(&mut notes.0.lock())).ok()
}

/// Notes a step of the current call; nothing outside of one.
pub(crate) fn note(step: impl FnOnce() -> Step) {
    with(|noted| noted.decision.push(step()));
}

/// Whose memory the current call is about.
pub(crate) fn about(principal: &Principal, owner: &Owner) {
    with(|noted| {
        noted.decision.caller.clone_from(&principal.id);
        noted.decision.agent = owner.agent_id().to_owned();
        noted.owner = Some(owner.clone());
    });
}

/// Which recall the current call is about.
pub(crate) fn recall(recall_id: &str) {
    with(|noted| recall_id.clone_into(&mut noted.decision.recall_id));
}

/// Under which name the current call is explained; empty outside of one.
pub(crate) fn trace_id() -> String {
    with(|noted| noted.decision.trace_id.clone()).unwrap_or_default()
}

/// Takes the notebook of the current call along into a task of its own.
pub(crate) fn carried<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let notes = NOTES.try_with(Clone::clone).ok();
    async move {
        match notes {
            Some(notes) => NOTES.scope(notes, future).await,
            None => future.await,
        }
    }
}

/// Notes what a finding says.
pub(crate) fn finding(stage: Stage, subject: &str, finding: &common::Finding) -> Step {
    Step::new(stage, subject, &finding.rule, &finding.outcome, &finding.because)
}

/// Notes the rules that refused.
fn refused(decision: &mut Decision, fault: &Fault) {
    for rule in &fault.preconditions {
        let stage = match rule.rule.as_str() {
            "D1" | "D2" => Stage::Mode,
            name if name.starts_with('P') => Stage::Ownership,
            _ => Stage::Gate,
        };
        let because = if words_are_free_of_content(fault.reason) { rule.description.as_str() } else { "" };
        decision.push(Step::new(stage, &rule.subject, &rule.rule, "REFUSED", because));
    }
}

/// An answer of a layer, read for what it decided.
pub(crate) trait Decided {
    /// Puts its findings into the notebook.
    fn decided(&self, _decision: &mut Decision) {}
}

/// Notes an answer of a layer.
pub(crate) fn noted<T: Decided>(answer: &T) {
    with(|noted| answer.decided(&mut noted.decision));
}

/// Notes a layer's refusal that is not the call's own answer.
pub(crate) fn noted_refusal(fault: &Fault) {
    if !fault.preconditions.is_empty() {
        with(|noted| refused(&mut noted.decision, fault));
    }
}

fn findings(decision: &mut Decision, subject: &str, list: &[common::Finding]) {
    for one in list {
        decision.push(finding(Stage::Gate, subject, one));
    }
}

fn write_result(decision: &mut Decision, result: Option<&longterm::WriteResult>) {
    let Some(result) = result else { return };
    let subject = result.memory.as_ref().map(|memory| memory.memory_id.as_str()).unwrap_or_default();
    findings(decision, subject, &result.findings);
    let outcome = longterm::Outcome::try_from(result.outcome).unwrap_or_default();
    let outcome = outcome.as_str_name().trim_start_matches("OUTCOME_");
    decision.push(Step::new(Stage::Gate, subject, "G", outcome, "what all rules together made of the write"));
    if !result.superseded.is_empty() {
        decision.push(Step::new(Stage::Gate, &result.superseded, "K1", "SUPERSEDED", "by the record of this write"));
    }
    if !result.conflicts_with.is_empty() {
        decision.push(Step::new(Stage::Gate, &result.conflicts_with, "K2", "KEPT", "this write could not replace it"));
    }
}

impl<T> Decided for Streaming<T> {}

macro_rules! silent {
    ($($package:ident: $($response:ident),* $(,)?;)*) => { $( $( impl Decided for strata_api::$package::v1::$response {} )* )* };
}

silent! {
    working: ListTasksResponse, CreateTaskResponse, GetTaskResponse, PutFactsResponse, UpdateTodosResponse, AppendDigestResponse, UpdateGoalResponse,
        EndTaskResponse;
    session: AppendTurnsResponse, GetWindowResponse, ListTurnsResponse, GetTurnsResponse, AnchorTurnsResponse,
        GetSummariesResponse, ListSessionsResponse, PutFactsResponse, GetFactsResponse, PutArtifactResponse, GetSessionResponse;
    longterm: ListCandidatesResponse, GetMemoryResponse, LookupMemoryResponse, ListMemoriesResponse, GetHistoryResponse,
        BatchGetMemoriesResponse, GetEntityResponse, ListEntitiesResponse, DeleteEntityResponse, GetSkillResponse, ListSkillsResponse,
        DeleteSkillResponse, UndoConsolidationResponse, ListEpisodesResponse, EraseMemoriesResponse, GetErasureResponse, VerifyErasureResponse;
    internal: ListOpenErasuresResponse, SettleErasureResponse, EraseContentResponse, FindContentResponse, ListControlResponse, PutControlResponse, RecordContextResponse, SealResponse, SettleResponse, SealFactResponse, OverlayFactsResponse, GetOwnersResponse, SearchArchivedTurnsResponse;
    admin: VerifyAuditResponse, SampleForReviewResponse, SubmitReviewResponse, GetQualityResponse, GetStatusResponse, ReindexResponse, BackupResponse, VerifyConsistencyResponse;
}

macro_rules! written {
    ($($package:ident::$response:ident.$field:ident),* $(,)?) => { $(
        impl Decided for strata_api::$package::v1::$response {
            fn decided(&self, decision: &mut Decision) {
                write_result(decision, self.$field.as_ref());
            }
        }
    )* };
}

written! {
    longterm::RememberResponse.result, longterm::ProposeResponse.result, longterm::ConfirmCandidateResponse.result,
    longterm::UpdateMemoryResponse.result, internal::ApplyResponse.result, internal::AbortResponse.applied,
}

macro_rules! part {
    ($($response:ident.$part:ident.$id:ident),* $(,)?) => { $(
        impl Decided for longterm::$response {
            fn decided(&self, decision: &mut Decision) {
                let subject = self.$part.as_ref().map(|part| part.$id.as_str()).unwrap_or_default();
                findings(decision, subject, &self.findings);
                let outcome = longterm::Outcome::try_from(self.outcome).unwrap_or_default();
                let outcome = outcome.as_str_name().trim_start_matches("OUTCOME_");
                decision.push(Step::new(Stage::Gate, subject, "G", outcome, "what all rules together made of the write"));
            }
        }
    )* };
}

part! { PutEntityResponse.entity.entity_id, LinkEntitiesResponse.relation.from_id, PutSkillResponse.skill.skill_id }

impl Decided for longterm::RejectCandidateResponse {
    fn decided(&self, decision: &mut Decision) {
        let subject = self.memory.as_ref().map(|memory| memory.memory_id.as_str()).unwrap_or_default();
        decision.push(Step::new(Stage::Gate, subject, "G10", "REJECTED", "the user rejected the candidate"));
    }
}

impl Decided for longterm::RestoreMemoriesResponse {
    fn decided(&self, decision: &mut Decision) {
        findings(decision, "", &self.findings);
        for memory in &self.memories {
            decision.push(Step::new(Stage::Gate, &memory.memory_id, "K7", "RESTORED", "restored through the conflict rules"));
        }
    }
}

impl Decided for longterm::ForgetMemoriesResponse {
    fn decided(&self, decision: &mut Decision) {
        for id in &self.forgotten {
            decision.push(Step::new(Stage::Gate, id, "E1", "FORGOTTEN", "softly; it can be restored"));
        }
    }
}

impl Decided for longterm::SyncFactsResponse {
    fn decided(&self, decision: &mut Decision) {
        for one in &self.results {
            write_result(decision, one.result.as_ref());
            findings(decision, &one.record_id, &one.findings);
            for id in &one.removed {
                decision.push(Step::new(Stage::Gate, id, "K1", "REMOVED", "the record system withdrew it"));
            }
        }
    }
}

impl Decided for longterm::ImportMemoriesResponse {
    fn decided(&self, decision: &mut Decision) {
        for line in &self.refusals {
            findings(decision, &format!("line:{}", line.line), &line.findings);
        }
        let step = Step::new(Stage::Gate, "", "G", "IMPORTED", "lines, and what became of them");
        let number = |n: u64| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
        decision.push(
            step.factor("lines", number(self.lines)).factor("added", number(self.added)).factor("refused", number(self.refused)),
        );
    }
}

impl Decided for longterm::RecallResponse {
    fn decided(&self, decision: &mut Decision) {
        for one in &self.findings {
            decision.push(finding(Stage::Mode, "", one));
        }
        for item in &self.items {
            let Some(memory) = &item.memory else { continue };
            let because = item.paths.iter().chain(&item.labels).map(String::as_str).collect::<Vec<_>>().join(", ");
            let mut step = Step::new(Stage::Candidate, &memory.memory_id, "R7", "FOUND", &because).scored(item.score);
            let parts: BTreeMap<&String, &f64> = item.explain.iter().collect();
            for (name, value) in parts {
                step = step.factor(name, *value);
            }
            decision.push(step);
        }
        if decision.recall_id.is_empty() && !self.items.is_empty() {
            decision.recall_id.clone_from(&self.recall_id);
        }
    }
}

impl Decided for longterm::MatchSkillsResponse {
    fn decided(&self, decision: &mut Decision) {
        for found in &self.matches {
            let id = found.skill.as_ref().map(|skill| skill.skill_id.as_str()).unwrap_or_default();
            decision.push(Step::new(Stage::Candidate, id, "R4", "FOUND", "a trigger of the skill").scored(found.score));
        }
    }
}

impl Decided for longterm::ReportUsageResponse {
    fn decided(&self, decision: &mut Decision) {
        for id in &self.cited {
            decision.push(Step::new(Stage::Cited, id, "Q1", "CITED", "reported as used"));
        }
        for id in &self.refused {
            decision.push(Step::new(Stage::Cited, id, "Q1", "REFUSED", "it was not in this recall, or is no more"));
        }
    }
}

impl Decided for session::SearchTurnsResponse {
    fn decided(&self, decision: &mut Decision) {
        for hit in &self.hits {
            let Some(turn) = &hit.turn else { continue };
            let subject = format!("{}/turn:{}", turn.session_id, turn.seq);
            decision.push(Step::new(Stage::Candidate, &subject, "R14", "FOUND", "").scored(hit.score));
        }
    }
}

fn verdicts(decision: &mut Decision, list: &[session::TurnVerdict]) {
    for verdict in list {
        if let Some(one) = &verdict.finding {
            decision.push(finding(Stage::Gate, &format!("turn:{}", verdict.seq), one));
        }
    }
}

impl Decided for session::CompressSessionResponse {
    fn decided(&self, decision: &mut Decision) {
        verdicts(decision, &self.verdicts);
    }
}

impl Decided for session::CommitSummaryResponse {
    fn decided(&self, decision: &mut Decision) {
        verdicts(decision, &self.verdicts);
    }
}

impl Decided for session::ReleaseAnchorsResponse {
    fn decided(&self, decision: &mut Decision) {
        for seq in &self.released {
            decision.push(Step::new(Stage::Gate, &format!("turn:{seq}"), "S2d", "RELEASED", "the caller ended the anchor"));
        }
    }
}

impl Decided for session::EndSessionResponse {
    fn decided(&self, decision: &mut Decision) {
        findings(decision, "", &self.findings);
    }
}

impl Decided for strata_api::internal::v1::ArchiveSessionResponse {
    fn decided(&self, decision: &mut Decision) {
        if let Some(episode) = &self.episode {
            findings(decision, &episode.episode_id, &episode.findings);
        }
    }
}

/// A decision on its way to the store, or a reader who waits until what came before is there.
#[derive(Debug)]
enum Message {
    Keep(Box<(String, Decision)>),
    Flush(oneshot::Sender<()>),
}

/// Keeps decisions: the sending half of the background writer. Clones feed the same one.
#[derive(Clone, Debug)]
pub(crate) struct Keeper {
    queue: mpsc::Sender<Message>,
    lost: Arc<AtomicU64>,
}

impl Keeper {
    /// The keeper, and what its writer reads.
    pub(crate) fn new() -> (Self, Inbox) {
        let (queue, inbox) = mpsc::channel(DECISION_BACKLOG);
        (Self { queue, lost: Arc::default() }, Inbox(inbox))
    }

    /// Keeps a decision of a user. Never waits: when the store is too slow it is counted as lost.
    pub(crate) fn keep(&self, owner: &Owner, decision: Decision) {
        let sent = self.queue.try_send(Message::Keep(Box::new((owner.user_key(), decision))));
        // Closed: the ledger keeps none, or the process is stopping.
        if matches!(sent, Err(mpsc::error::TrySendError::Full(_))) {
            let lost = self.lost.fetch_add(1, Ordering::Relaxed) + 1;
            if lost.is_power_of_two() {
                tracing::warn!(lost, "decisions are lost: their store does not keep up");
            }
        }
    }

    /// Waits, for a moment, until what was kept before is stored.
    pub(crate) async fn flush(&self) {
        let (done, wait) = oneshot::channel();
        if self.queue.try_send(Message::Flush(done)).is_ok() {
            // Without an answer the reader sees what is there.
            let _ = tokio::time::timeout(FLUSH, wait).await;
        }
    }
}

/// What the writer reads.
#[derive(Debug)]
pub(crate) struct Inbox(mpsc::Receiver<Message>);

/// Stores decisions until the token is cancelled, then what is left.
pub(crate) async fn write(mut inbox: Inbox, ledger: Arc<dyn Ledger>, clock: Arc<dyn Clock>, token: CancellationToken) {
    let Some(log) = ledger.decisions() else { return };
    loop {
        let first = tokio::select! {
            biased;
            message = inbox.0.recv() => message,
            () = token.cancelled() => inbox.0.try_recv().ok(),
        };
        let Some(first) = first else { return };
        let mut waiting: Vec<oneshot::Sender<()>> = Vec::new();
        let mut users: BTreeMap<String, Vec<DecisionRow>> = BTreeMap::new();
        let mut take = |message: Message, users: &mut BTreeMap<String, Vec<DecisionRow>>| match message {
            Message::Keep(kept) => {
                let (user, decision) = *kept;
                let names = [decision.trace_id.clone(), decision.request_id.clone(), decision.recall_id.clone()];
                if let Ok(entry) = serde_json::to_string(&decision) {
                    users.entry(user).or_default().push(DecisionRow { names, entry });
                }
                true
            }
            Message::Flush(done) => {
                waiting.push(done);
                false
            }
        };
        let mut collect = take(first, &mut users);
        let until = strata_runtime::ports::Stopwatch::start().at(COLLECT);
        for _ in 0..BATCH {
            // A reader waits: store at once what is there.
            let next = if collect && !token.is_cancelled() {
                tokio::time::timeout_at(until, inbox.0.recv()).await.ok().flatten()
            } else {
                inbox.0.try_recv().ok()
            };
            let Some(message) = next else { break };
            collect &= take(message, &mut users);
        }
        for (user, rows) in users {
            loop {
                let now = clock.now();
                match log.keep(&user, &rows, now, now.plus(DECISION_SECONDS * SECOND)).await {
                    Ok(()) => break,
                    Err(fault) if token.is_cancelled() => {
                        tracing::warn!(reason = fault.reason.name(), decisions = rows.len(), "decisions are lost at the stop");
                        break;
                    }
                    Err(fault)
                        if matches!(fault.reason, Reason::StoreUnavailable | Reason::DeadlineExceeded | Reason::Overloaded) =>
                    {
                        let _ = tokio::time::timeout(RETRY, token.cancelled()).await;
                    }
                    Err(fault) => {
                        tracing::warn!(reason = fault.reason.name(), decisions = rows.len(), "decisions are lost");
                        break;
                    }
                }
            }
        }
        for reader in waiting {
            // One that went away needs no answer.
            let _ = reader.send(());
        }
    }
}

/// Gives every public call its notebook, and keeps what stands in it when the call is answered.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) keeper: Keeper,
    pub(crate) clock: Arc<dyn Clock>,
}

/// `LongTermMemoryService/Remember` of a path.
fn method_of(path: &str) -> String {
    let (service, method) = known_method(path);
    format!("{}/{method}", service.rsplit('.').next().unwrap_or(service))
}

impl Middleware for Recorder {
    async fn handle<S: Rpc>(self: &Arc<Self>, request: http::Request<Body>, next: &S) -> http::Response<Answer> {
        let request_id = CallContext::current().request_id.map(|id| id.to_string()).unwrap_or_default();
        let trace_id = trace::id(request.headers()).unwrap_or_else(|| request_id.clone());
        let notes = Notes::new(trace_id, request_id, method_of(request.uri().path()));
        let response = NOTES.scope(notes.clone(), next.call(request)).await;
        let failure = body::head_code(response.headers())
            .filter(|code| *code != Code::Ok)
            .and_then(|_| Status::from_header_map(response.headers()))
            .map(|status| strata_api::error::fault(&status));
        self.finish(&notes, failure.as_ref());
        response
    }
}

impl Recorder {
    /// Keeps what a call decided, when it decided something.
    fn finish(&self, notes: &Notes, failure: Option<&Fault>) {
        let mut noted = notes.0.lock();
        let Some(owner) = noted.owner.take() else { return };
        if let Some(fault) = failure {
            fault.reason.name().clone_into(&mut noted.decision.outcome);
            refused(&mut noted.decision, fault);
        }
        let outage = failure
            .is_some_and(|fault| matches!(fault.reason, Reason::StoreUnavailable | Reason::StoreFull | Reason::DeadlineExceeded));
        if noted.decision.steps.is_empty() && !outage {
            return;
        }
        noted.decision.time = self.clock.now();
        self.keeper.keep(&owner, noted.decision.clone());
    }
}

/// A notebook for work that no call waits for.
pub(crate) async fn recorded<F: Future>(
    keeper: &Keeper,
    clock: &dyn Clock,
    (principal, owner): (&Principal, &Owner),
    (trace_id, method): (&str, &str),
    work: F,
) -> F::Output {
    let notes = Notes::new(trace_id.to_owned(), String::new(), method.to_owned());
    let output = NOTES
        .scope(notes.clone(), async {
            about(principal, owner);
            work.await
        })
        .await;
    let mut noted = notes.0.lock();
    if !noted.decision.steps.is_empty() {
        noted.decision.time = clock.now();
        keeper.keep(owner, noted.decision.clone());
        noted.owner = None;
    }
    output
}
