//! Observe (rules O1 to O8): what an agent sees, or what it says is to be remembered, goes into a durable queue; a worker of any
//! router takes it out and decides sentence by sentence what goes where. Nothing here may store: every write goes through the
//! layer's own call, with the caller's roles, and every long-term one through the gate.

use crate::call::Call;
use crate::decisions::{self, Notes};
use crate::gate::Core;
use crate::layers::{answer, reading, signed, taken};
use crate::ledger::queue::{ObserveQueue, Pushed};
use crate::modes::{self, Passage};
use crate::owners::is_down;
use futures::StreamExt as _;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use strata_api::convert::{common, longterm as wire, observe as convert};
use strata_api::internal::v1::QuoteState;
use strata_api::longterm::v1 as longterm;
use strata_api::router::v1 as pb;
use strata_api::session::v1 as session;
use strata_core::limits::{OBSERVE_LEASE_SECONDS, OBSERVE_SECONDS, OBSERVE_WRITES};
use strata_core::policy::authz::{self, Principal};
use strata_core::policy::decision::{Decision, Stage, Step};
use strata_core::policy::observe::{Command, Op, Subject, Target};
use strata_core::policy::session::Role;
use strata_core::record::Kind;
use strata_core::time::SECOND;
use strata_core::{Fault, Owner, Reason, SessionId, Timestamp};
use strata_runtime::context::CallContext;
use strata_runtime::metrics::Instruments;
use strata_runtime::ports::Stopwatch;
use strata_text::extract::Asked;
use strata_text::observe::read;
use uuid::Uuid;

const OBSERVE: &str = "/strata.router.v1.RouterService/Observe";
/// Longest wait for one call to a layer.
const STEP: Duration = Duration::from_millis(3_000);
/// A user's turn ends after this long, well within the lease.
const ENOUGH: Duration = Duration::from_secs(10);
/// Users worked on at a time.
const USERS: usize = 4;
/// Entries of one user that one lease works off.
const ENTRIES: usize = 16;
/// After a layer that does not answer, a user rests this long.
const REST: i64 = 2 * SECOND;
/// Users whose observations are counted for the metrics: a bounded look, twice a second.
const MEASURED_USERS: usize = 64;
/// Between two looks at the queue when nobody knocks.
const LOOK: Duration = Duration::from_millis(500);
/// Turns before the observed one that an extractor is shown.
const CONTEXT_TURNS: u32 = 4;

/// Something that waits to be observed. Its turn is a reference; of an agent's commands the words stand here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Job {
    id: Uuid,
    principal: Principal,
    owner: Owner,
    trace_id: String,
    session_id: String,
    from_seq: u32,
    seq: u32,
    commands: Vec<Command>,
    log_only: bool,
}

impl Job {
    fn user_id(&self) -> String {
        self.owner.user.as_str().to_owned()
    }

    fn agent_id(&self) -> String {
        self.owner.agent_id().to_owned()
    }

    /// The id of a write of this job: the same each time it is tried.
    fn request_id(&self, part: &str) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.id.as_bytes()).update(part.as_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
    }

    /// The job as a call of its caller to one method, when its roles allow that.
    fn call(&self, path: &str) -> Result<Call, Fault> {
        let method = authz::allow(&self.principal, path)?;
        Ok(Call { principal: self.principal.clone(), owner: self.owner.clone(), method, passage: Passage::Serve })
    }

    fn turn_ref(&self, seq: u32) -> Option<longterm::SourceRef> {
        let turn = longterm::TurnRef { session_id: self.session_id.clone(), seq };
        (seq > 0).then_some(longterm::SourceRef { kind: Some(longterm::source_ref::Kind::Turn(turn)) })
    }
}

/// What became of one write.
enum Done {
    /// It was answered, or refused for good: noted.
    Noted,
    /// A layer does not answer: the job waits.
    Later(Fault),
}

/// Waits no longer than a step; says whether the fault may pass.
async fn step<T: decisions::Decided>(asked: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>) -> Result<T, Fault> {
    match tokio::time::timeout(STEP, asked).await {
        Ok(answered) => answer(answered),
        Err(_) => Err(Fault::new(Reason::DeadlineExceeded, "a layer did not answer in time")),
    }
}

/// Whether to try again later: the layer is down, busy, or switched off, or an erasure came in between, after which the turn is
/// read anew.
fn passes(fault: &Fault) -> bool {
    is_down(fault)
        || fault.reason == Reason::StaleEraseEpoch
        || (fault.reason.retry_safe() && !matches!(fault.reason, Reason::LayerWriteOff | Reason::LayerBypassed))
}

fn noted(subject: &str, finding: &strata_core::rule::Finding) {
    decisions::note(|| Step::new(Stage::Observed, subject, finding.rule.0, finding.outcome, &finding.because));
}

fn refused(subject: &str, fault: &Fault) {
    let rule = fault.preconditions.first().map_or("O8", |first| first.rule.as_str());
    decisions::note(|| Step::new(Stage::Observed, subject, rule, fault.reason.name(), "refused like anyone's"));
}

impl Core {
    /// The queue, where the ledger has one.
    fn queue(&self) -> Result<&dyn ObserveQueue, Fault> {
        self.ledger.queue().ok_or_else(|| Fault::new(Reason::NotServed, "this router's ledger keeps no queue"))
    }

    /// Takes an observation.
    ///
    /// # Errors
    /// `INVALID_FIELD`, `ROLE_MISSING`; `OVERLOADED` when the queue is full; those of AppendTurns; `STORE_UNAVAILABLE`.
    pub(crate) async fn observe(&self, call: &Call, request: pb::ObserveRequest) -> Result<pb::ObserveResponse, Fault> {
        let asked = convert::observe(request)?;
        let queue = self.queue()?;
        let id = asked.request_id.unwrap_or_else(|| self.ports.ids.next());
        let session_id = if asked.session_id.is_empty() {
            String::new()
        } else {
            SessionId::new(asked.session_id.as_str())?.as_str().to_owned()
        };
        let mut job = Job {
            id,
            principal: call.principal.clone(),
            owner: call.owner.clone(),
            trace_id: decisions::trace_id(),
            session_id,
            from_seq: asked.from_seq,
            seq: asked.seq,
            commands: asked.commands,
            log_only: asked.log_only || call.passage == Passage::LogOnly || self.settings.load().observe.log_only,
        };
        if let Some(turn) = asked.turn {
            job.seq = self.append(&job, turn).await?;
            job.from_seq = job.seq;
        }
        let wait = asked.wait.then(|| self.waiters.enter(id));
        let entry = serde_json::to_string(&job).map_err(|_| Fault::new(Reason::Internal, "an observation cannot be written"))?;
        let now = self.ports.clock.now();
        let pushed = queue.push(&call.owner.user_key(), &id.to_string(), &entry, now, now.plus(OBSERVE_SECONDS * SECOND)).await?;
        if pushed == Pushed::Full {
            self.waiters.leave(&id);
            return Err(Fault::new(
                Reason::Overloaded,
                "too much of this user waits to be observed; the turn is kept, if there was one",
            )
            .retry_after(1_000));
        }
        self.knock.notify_one();
        let mut response = pb::ObserveResponse { observation_id: id.to_string(), seq: job.seq, ..Default::default() };
        response.set_state(pb::ObserveState::Queued);
        if let Some(wait) = wait {
            let most = CallContext::current().remaining().map_or(STEP, |left| left * 8 / 10);
            if let Ok(Ok(decision)) = tokio::time::timeout(most, wait).await {
                response.set_state(if job.log_only { pb::ObserveState::Logged } else { pb::ObserveState::Done });
                response.decision = Some(strata_api::convert::router::wire_decision(&decision));
            }
            self.waiters.leave(&id);
        }
        Ok(response)
    }

    /// Appends the turn of an observation; the session's rules and the caller's role hold as for anyone.
    async fn append(&self, job: &Job, turn: session::NewTurn) -> Result<u32, Fault> {
        let call = job.call("/strata.session.v1.SessionMemoryService/AppendTurns")?;
        modes::check(&self.modes, &call.owner.tenant, call.method)?;
        let request = session::AppendTurnsRequest {
            user_id: job.user_id(),
            agent_id: job.agent_id(),
            session_id: job.session_id.clone(),
            turns: vec![turn],
            request_id: job.request_id("append"),
            ..Default::default()
        };
        let appended = step(self.layers.session.clone().append_turns(self.outgoing(&call, request))).await?;
        self.topics.tell(&call, &job.session_id, &appended);
        appended.seqs.first().copied().ok_or_else(|| Fault::new(Reason::Internal, "a turn was appended without a number"))
    }

    /// Works off the queue once: every user that is due, in order.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE` when the queue does not answer.
    pub(crate) async fn work_off(&self) -> Result<usize, Fault> {
        let Some(queue) = self.ledger.queue() else { return Ok(0) };
        let now = self.ports.clock.now();
        let due = queue.due(now, USERS * 4).await?;
        if !due.is_empty() {
            self.language.ready().await;
        }
        let worked = futures::stream::iter(due.into_iter().map(|(user, seen)| self.work_off_user(queue, user, seen)))
            .buffer_unordered(USERS)
            .collect::<Vec<_>>()
            .await;
        worked.into_iter().sum()
    }

    /// Tells the metrics how much waits and how long.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE` when the queue does not answer.
    pub(crate) async fn measure_queue(&self) -> Result<(), Fault> {
        let Some(queue) = self.ledger.queue() else { return Ok(()) };
        let waits = queue.backlog(MEASURED_USERS).await?;
        let age = waits.oldest.map_or(0, |pushed| self.ports.clock.now().since(pushed).max(0));
        let instruments = Instruments::global();
        instruments.observe_due.record(waits.users as f64, &[]);
        instruments.observe_waiting.record(waits.entries as f64, &[]);
        instruments.observe_age.record(age as f64 / SECOND as f64, &[]);
        Ok(())
    }

    async fn work_off_user(&self, queue: &dyn ObserveQueue, user: String, seen: Timestamp) -> Result<usize, Fault> {
        let leased = self.ports.clock.now().plus(OBSERVE_LEASE_SECONDS * SECOND);
        if !queue.lease(&user, seen, leased).await? {
            return Ok(0);
        }
        let (mut worked, mut rest) = (0, 0);
        let watch = Stopwatch::start();
        for waiting in queue.head(&user, ENTRIES, self.ports.clock.now()).await? {
            let Ok(job) = serde_json::from_str::<Job>(&waiting.entry) else {
                tracing::error!("an observation cannot be read and is dropped");
                queue.done(&user, &waiting.place).await?;
                continue;
            };
            match self.work(&job).await {
                Ok(decision) => {
                    queue.done(&user, &waiting.place).await?;
                    worked += 1;
                    self.keeper.keep(&job.owner, decision.clone());
                    self.waiters.tell(&job.id, decision);
                }
                Err(fault) => {
                    tracing::debug!(reason = fault.reason.name(), "an observation waits for a layer");
                    rest = REST;
                    break;
                }
            }
            // The rest at the next look: a lease is not renewed.
            if self.tasks.token().is_cancelled() || watch.elapsed() > ENOUGH {
                break;
            }
        }
        queue.release(&user, leased, self.ports.clock.now().plus(rest)).await?;
        Ok(worked)
    }

    /// Decides about one job and does what follows.
    ///
    /// # Errors
    /// What may pass: the job waits.
    async fn work(&self, job: &Job) -> Result<Decision, Fault> {
        let notes = Notes::new(job.trace_id.clone(), job.id.to_string(), "RouterService/Observe".to_owned());
        let work = async {
            decisions::about(&job.principal, &job.owner);
            self.observed(job).await
        };
        self.as_of_now().scope(notes.clone().scope(work)).await?;
        Ok(notes.decision(self.ports.clock.now()))
    }

    /// Episode first, then extraction, then entities, then everything else (acceptance A90).
    async fn observed(&self, job: &Job) -> Result<(), Fault> {
        let frozen = authz::find(OBSERVE).map(|method| modes::check(&self.modes, &job.owner.tenant, method));
        let log_only = job.log_only || matches!(frozen, Some(Ok(Passage::LogOnly)));
        self.episode(job, log_only).await?;
        let writes = if job.commands.is_empty() { self.extracted(job).await? } else { of_commands(&job.commands, job.seq) };
        if writes.len() > OBSERVE_WRITES {
            let more = writes.len() - OBSERVE_WRITES;
            tracing::warn!(observation = %job.id, more, "an observation states more than one writes; its turns are kept");
            let because = format!("{more} statements more than one observation writes; the turns are kept");
            decisions::note(|| Step::new(Stage::Observed, "observation", "O8", "LEFT_OUT", &because));
        }
        let writes = writes.into_iter().take(OBSERVE_WRITES);
        let (entities, others): (Vec<Write>, Vec<Write>) = writes.partition(Write::is_entity);
        for write in entities.into_iter().chain(others) {
            if log_only {
                decisions::note(|| Step::new(Stage::Observed, &write.subject, "O8", "LOGGED", "log only: nothing is stored"));
                continue;
            }
            if let Done::Later(fault) = self.carry_out(job, &write).await {
                return Err(fault);
            }
        }
        Ok(())
    }

    /// Several turns are summarised before they are read; of one turn the session's own rhythm takes care (rule S7).
    async fn episode(&self, job: &Job, log_only: bool) -> Result<(), Fault> {
        if job.session_id.is_empty() {
            return Ok(());
        }
        let subject = format!("session:{}", job.session_id);
        let call = job.call("/strata.session.v1.SessionMemoryService/CompressSession");
        let (Ok(call), true, false) = (call, job.seq > job.from_seq, log_only) else {
            decisions::note(|| {
                Step::new(Stage::Observed, &subject, "S7", "EPISODE", "summaries are made in the session's own rhythm")
            });
            return Ok(());
        };
        let request = session::CompressSessionRequest {
            user_id: job.user_id(),
            agent_id: job.agent_id(),
            session_id: job.session_id.clone(),
            request_id: job.request_id("episode"),
            ..Default::default()
        };
        let outcome = match step(self.layers.session.clone().compress_session(self.outgoing(&call, request))).await {
            Ok(_) => "EPISODE",
            Err(fault) if passes(&fault) => return Err(fault),
            Err(_) => "NO_EPISODE",
        };
        decisions::note(|| Step::new(Stage::Observed, &subject, "S7", outcome, "summarised before it is read"));
        Ok(())
    }

    /// What the turns of a job say, by the extractor when there is one, else by rule.
    async fn extracted(&self, job: &Job) -> Result<Vec<Write>, Fault> {
        let mut writes = Vec::new();
        let first = job.from_seq.saturating_sub(CONTEXT_TURNS).max(1);
        let request = session::GetTurnsRequest {
            user_id: job.user_id(),
            agent_id: job.agent_id(),
            session_id: job.session_id.clone(),
            from_seq: first,
            to_seq: job.seq,
        };
        let mut client = self.layers.session.clone();
        let turns = match step(client.get_turns(signed(request, reading(&job.principal, &job.owner)))).await {
            Ok(found) => found.turns,
            Err(fault) if passes(&fault) => return Err(fault),
            Err(fault) => {
                refused(&format!("turn:{}", job.seq), &fault);
                return Ok(writes);
            }
        };
        let intents = self.compiled.of(&self.settings.load().observe);
        let observed = turns.iter().filter(|turn| (job.from_seq..=job.seq).contains(&turn.seq));
        for turn in observed {
            let role = strata_api::convert::session::role("role", turn.role).unwrap_or(Role::System);
            if let (Some(extractor), Role::User) = (&self.extractor, role) {
                let before: Vec<(Role, &str)> = turns
                    .iter()
                    .filter(|earlier| earlier.seq < turn.seq)
                    .filter_map(|earlier| {
                        Some((strata_api::convert::session::role("role", earlier.role).ok()?, earlier.text.as_str()))
                    })
                    .collect();
                let subject = format!("turn:{}", turn.seq);
                match extractor.extract(&Asked { before: &before, turn: &turn.text }).await {
                    Ok(commands) => {
                        decisions::note(|| {
                            let step = Step::new(Stage::Observed, &subject, "O8", "EXTRACTION", "by the extractor");
                            step.factor("commands", commands.len() as f64)
                        });
                        // A model's words are only as good as the user's that they stand on.
                        writes.extend(of_commands(&commands, turn.seq));
                        continue;
                    }
                    Err(error) => {
                        let why = error.to_string();
                        decisions::note(|| Step::new(Stage::Observed, &subject, "O8", "FALLBACK", &format!("by rules: {why}")));
                    }
                }
            }
            for (n, sentence) in read(&turn.text, role, &self.slots, &self.registry, &intents).enumerate() {
                // A long turn holds up nobody.
                tokio::task::coop::consume_budget().await;
                let subject = format!("turn:{}/{}", turn.seq, n + 1);
                noted(&subject, &sentence.observed.finding);
                let what = match sentence.observed.target {
                    Target::Nothing => continue,
                    Target::SessionFact => What::SessionFact,
                    Target::Longterm => What::Propose(sentence.observed.kind),
                };
                let said = turn.text[sentence.span].trim().to_owned();
                writes.push(Write {
                    subject,
                    seq: turn.seq,
                    what,
                    content: said.clone(),
                    quote: said,
                    key: sentence.observed.key,
                    value: sentence.observed.value,
                    importance: None,
                    metadata: BTreeMap::new(),
                });
            }
        }
        Ok(writes)
    }

    async fn carry_out(&self, job: &Job, write: &Write) -> Done {
        let done = match &write.what {
            What::SessionFact => self.put_session_fact(job, write).await,
            What::Propose(kind) => self.put_proposal(job, write, *kind).await,
            What::Update(target) => self.put_update(job, write, target).await,
            What::Delete(target) => self.put_deletion(job, write, target).await,
            What::Entity(of) => self.put_entity(job, write, of).await,
        };
        match done {
            Ok(outcome) => {
                decisions::note(|| Step::new(Stage::Observed, &write.subject, "O8", &outcome, "what became of it"));
                Done::Noted
            }
            Err(fault) if passes(&fault) => Done::Later(fault),
            Err(fault) => {
                refused(&write.subject, &fault);
                Done::Noted
            }
        }
    }

    async fn put_session_fact(&self, job: &Job, write: &Write) -> Result<String, Fault> {
        let call = job.call("/strata.session.v1.SessionMemoryService/PutFacts")?;
        let value = if write.value.is_empty() { &write.content } else { &write.value };
        let fact = session::SessionFact { key: write.key.clone(), value: value.clone(), seq: write.seq, ..Default::default() };
        let request = session::PutFactsRequest {
            user_id: job.user_id(),
            agent_id: job.agent_id(),
            session_id: job.session_id.clone(),
            facts: vec![fact],
            request_id: job.request_id(&write.subject),
        };
        modes::check(&self.modes, &call.owner.tenant, call.method)?;
        let put = tokio::time::timeout(STEP, self.put_session_facts(&call, request)).await;
        match put {
            Ok(answered) => taken(answered).map(|_| "SESSION_FACT".to_owned()),
            Err(_) => Err(Fault::new(Reason::DeadlineExceeded, "a layer did not answer in time")),
        }
    }

    /// The words with their source: the user's when they are quoted, the model's when they are not.
    fn statement(job: &Job, write: &Write, kind: Kind) -> longterm::Statement {
        let source = if write.quote.is_empty() { longterm::Source::ModelInference } else { longterm::Source::UserStatement };
        longterm::Statement {
            kind: wire::wire_kind(kind).into(),
            key: write.key.clone(),
            value: (!write.value.is_empty() && !write.key.is_empty())
                .then(|| common::wire_value(&strata_core::record::Value::Text(write.value.clone()))),
            content: write.content.clone(),
            source: source.into(),
            source_ref: job.turn_ref(write.seq),
            source_quote: if write.quote.is_empty() { write.content.clone() } else { write.quote.clone() },
            trigger: longterm::Trigger::DecisionPoint.into(),
            importance: write.importance.map(i32::from).unwrap_or_default(),
            metadata: write.metadata.clone(),
            ..Default::default()
        }
    }

    async fn put_proposal(&self, job: &Job, write: &Write, kind: Kind) -> Result<String, Fault> {
        let call = job.call("/strata.longterm.v1.LongTermMemoryService/Propose")?;
        let request = longterm::ProposeRequest {
            user_id: job.user_id(),
            agent_id: job.agent_id(),
            statement: Some(Self::statement(job, write, kind)),
            request_id: job.request_id(&write.subject),
        };
        let answered = tokio::time::timeout(STEP, self.propose(&call, request)).await;
        let result = match answered {
            Ok(answered) => taken(answered)?.result.unwrap_or_default(),
            Err(_) => return Err(Fault::new(Reason::DeadlineExceeded, "a layer did not answer in time")),
        };
        Ok(outcome_of(&result))
    }

    /// Records that a target names: an id, or the record in force of a key.
    async fn targets(&self, job: &Job, target: &str) -> Result<Vec<String>, Fault> {
        if Uuid::parse_str(target).is_ok() {
            return Ok(vec![target.to_owned()]);
        }
        let call = job.call("/strata.longterm.v1.LongTermMemoryService/LookupMemory");
        let identity = reading(&job.principal, &job.owner);
        drop(call?);
        let request = longterm::LookupMemoryRequest { user_id: job.user_id(), agent_id: job.agent_id(), key: target.to_owned() };
        let found = step(self.layers.longterm.clone().lookup_memory(signed(request, identity))).await?;
        let ids: Vec<String> = found.items.into_iter().filter_map(|item| Some(item.memory?.memory_id)).collect();
        if ids.is_empty() { Err(Fault::not_found("memory", target)) } else { Ok(ids) }
    }

    async fn put_update(&self, job: &Job, write: &Write, target: &str) -> Result<String, Fault> {
        let call = job.call("/strata.longterm.v1.LongTermMemoryService/UpdateMemory")?;
        let memory_id = self.targets(job, target).await?.swap_remove(0);
        let mut statement = Self::statement(job, write, Kind::Fact);
        // Kind and key are the record's.
        (statement.kind, statement.key) = (0, String::new());
        if !write.value.is_empty() {
            statement.value = Some(common::wire_value(&strata_core::record::Value::Text(write.value.clone())));
        }
        let request = longterm::UpdateMemoryRequest {
            user_id: job.user_id(),
            agent_id: job.agent_id(),
            memory_id,
            statement: Some(statement),
            request_id: job.request_id(&write.subject),
            ..Default::default()
        };
        let answered = tokio::time::timeout(STEP, self.update_words(&call, request, false)).await;
        match answered {
            Ok(answered) => Ok(outcome_of(&taken(answered)?.result.unwrap_or_default())),
            Err(_) => Err(Fault::new(Reason::DeadlineExceeded, "a layer did not answer in time")),
        }
    }

    /// Only the user's own words delete: the quote has to stand in a turn of the user.
    async fn put_deletion(&self, job: &Job, write: &Write, target: &str) -> Result<String, Fault> {
        let call = job.call("/strata.longterm.v1.LongTermMemoryService/ForgetMemories")?;
        let words = Self::statement(job, write, Kind::Fact);
        let attestation = crate::attest::attest(&self.layers, &job.principal, &job.owner, &words, false).await;
        match attestation.quote() {
            QuoteState::Verified if attestation.user_turn => {}
            QuoteState::Unverifiable => return Err(Fault::unavailable("session memory")),
            QuoteState::Verified | QuoteState::NotFound | QuoteState::Unspecified => {
                return Err(Fault::new(Reason::GateProvenance, "only the user's own words delete").rule(
                    "G2",
                    "quote",
                    "the quote does not stand in a turn of the user",
                ));
            }
        }
        let memory_ids = self.targets(job, target).await?;
        let request = longterm::ForgetMemoriesRequest {
            user_id: job.user_id(),
            agent_id: job.agent_id(),
            memory_ids,
            reason: "the user asked for it".to_owned(),
            request_id: job.request_id(&write.subject),
            ..Default::default()
        };
        let forgotten = step(self.layers.longterm.clone().forget_memories(self.outgoing(&call, request))).await?;
        Ok(if forgotten.forgotten.is_empty() { "NOT_FOUND" } else { "FORGOTTEN" }.to_owned())
    }

    async fn put_entity(&self, job: &Job, write: &Write, of: &str) -> Result<String, Fault> {
        let call = job.call("/strata.longterm.v1.LongTermMemoryService/PutEntity")?;
        let words = Self::statement(job, write, Kind::Fact);
        let request = longterm::PutEntityRequest {
            user_id: job.user_id(),
            agent_id: job.agent_id(),
            r#type: of.to_owned(),
            name: write.content.clone(),
            provenance: Some(longterm::Provenance {
                source: words.source,
                source_ref: words.source_ref,
                source_quote: words.source_quote,
                trigger: words.trigger,
                consent: String::new(),
            }),
            request_id: job.request_id(&write.subject),
            ..Default::default()
        };
        let answered = tokio::time::timeout(STEP, self.put_named_entity(&call, request)).await;
        match answered {
            Ok(answered) => {
                let outcome = longterm::Outcome::try_from(taken(answered)?.outcome).unwrap_or_default();
                Ok(outcome.as_str_name().trim_start_matches("OUTCOME_").to_owned())
            }
            Err(_) => Err(Fault::new(Reason::DeadlineExceeded, "a layer did not answer in time")),
        }
    }
}

fn outcome_of(result: &longterm::WriteResult) -> String {
    let outcome = longterm::Outcome::try_from(result.outcome).unwrap_or_default();
    outcome.as_str_name().trim_start_matches("OUTCOME_").to_owned()
}

/// One write that follows from an observation.
#[derive(Clone, Debug, PartialEq)]
struct Write {
    subject: String,
    seq: u32,
    what: What,
    content: String,
    quote: String,
    key: String,
    value: String,
    importance: Option<u8>,
    metadata: BTreeMap<String, String>,
}

impl Write {
    const fn is_entity(&self) -> bool {
        matches!(self.what, What::Entity(_))
    }
}

#[derive(Clone, Debug, PartialEq)]
enum What {
    SessionFact,
    Propose(Kind),
    Update(String),
    Delete(String),
    Entity(String),
}

/// Commands as writes; their quotes stand in the turn `seq`, when there is one.
fn of_commands(commands: &[Command], seq: u32) -> Vec<Write> {
    let write = |(n, command): (usize, &Command)| {
        let what = match (command.op, &command.subject) {
            (Op::Create, Some(Subject::Entity(of))) => What::Entity(of.clone()),
            (Op::Create, Some(Subject::Record(kind))) => What::Propose(*kind),
            (Op::Create, None) => What::Propose(Kind::Fact),
            (Op::Update, _) => What::Update(command.target.clone()),
            (Op::Delete, _) => What::Delete(command.target.clone()),
        };
        let place = format!("command:{}", n + 1);
        let subject = if seq == 0 { place } else { format!("turn:{seq}/{place}") };
        decisions::note(|| Step::new(Stage::Observed, &subject, "O8", command.op.name(), "a command that passed its schema"));
        Write {
            subject,
            seq,
            what,
            content: command.content.clone(),
            quote: command.quote.clone(),
            key: command.key.clone(),
            value: command.value.clone(),
            importance: command.importance,
            metadata: command.metadata.clone(),
        }
    };
    commands.iter().enumerate().map(write).collect()
}

/// Works off the queue until the router stops.
pub(crate) async fn worker(core: Arc<Core>) {
    let token = core.tasks.token().clone();
    let mut measured: Option<Stopwatch> = None;
    loop {
        if measured.as_ref().is_none_or(|since| since.elapsed() >= LOOK) {
            if let Err(fault) = core.measure_queue().await {
                tracing::debug!(%fault, "the queue of Observe cannot be measured");
            }
            measured = Some(Stopwatch::start());
        }
        let worked = core.work_off().await.unwrap_or_else(|fault| {
            tracing::debug!(%fault, "the queue of Observe waits for the ledger");
            0
        });
        if token.is_cancelled() {
            return;
        }
        if worked == 0 {
            tokio::select! {
                () = token.cancelled() => return,
                // Whoever came while it was at work is seen at the next look.
                _ = tokio::time::timeout(LOOK, core.knock.notified()) => {}
            }
        }
    }
}
