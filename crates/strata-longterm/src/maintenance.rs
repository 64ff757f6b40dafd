//! The runner of maintenance (rule F9): one at a time, user by user, in small batches, resting in between.
//!
//! ```text
//!   02:00 by the clock port, or RunMaintenance
//!        -> users, in order of their rows         a cursor survives a restart
//!           -> one snapshot of the user's records -> Planner (pure)      a dry run ends here
//!              -> a model, where there is one, words the summaries         bounded; else the rules' words stand
//!              -> batches on the writer thread, each step judged again    rest, and wait while the index is behind
//! ```
//!
//! A plan is a function of what is stored, so a run that was cut off anywhere is gone on with by planning again: what is done
//! is not planned twice.

mod compose;
mod merge;
mod plan;
mod repeated;
pub mod rescan;
mod reword;

use crate::metadata::insert::derived;
use crate::metadata::maintenance::{self as store, Job, Means, StoredUser};
use crate::metadata::{query, row, search};
use crate::state::State;
use crate::write::{self, Context};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use parking_lot::Mutex;
use plan::{Plan, Proposal, Summary};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use strata_api::admin::v1 as pb;
use strata_api::convert::longterm as convert;
use strata_api::error;
use strata_core::policy::forgetting::{AutoRule, Fate, Scope, Step};
use strata_core::policy::gate::{self, Tombstones};
use strata_core::policy::modes::Mode;
use strata_core::policy::quota::Quota;
use strata_core::record::Status;
use strata_core::{Fault, MemoryId, Owner, Reason, TenantId, Timestamp, UserId};
use strata_runtime::metrics::{Instruments, Label};
use strata_runtime::ports::{Stopwatch, pause};
use strata_runtime::{Claims, TaskGroup};
use strata_text::summarise::Summariser;
use tokio::sync::mpsc;
use tonic::Status as GrpcStatus;
use uuid::Uuid;

/// The mode of long-term memory for a tenant as it is now.
pub type ModeSource = Arc<dyn Fn(&TenantId) -> Mode + Send + Sync>;

/// What a run answers, as it goes.
pub type Steps = BoxStream<'static, Result<pb::RunMaintenanceResponse, GrpcStatus>>;

/// Between two looks at the clock.
const LOOK: Duration = Duration::from_secs(1);
/// Longest rest between two batches.
const LONGEST_REST: Duration = Duration::from_secs(2);
/// Users between two writes of the cursor.
const USERS: u32 = 64;
/// Steps in one message of the answer.
const STEPS: usize = 500;
/// Messages that wait for a slow caller.
const MESSAGES: usize = 2;
/// Rows of the outbox beyond which a run waits for the index: callers' writes are pushed back far above it.
const BACKLOG_ROWS: u64 = 2_000;
/// Age of its oldest row beyond which it waits.
const BACKLOG_MICROS: i64 = 10 * strata_core::time::SECOND;
/// Looks at the outbox before a run gives up; the next one goes on.
const BACKLOG_LOOKS: u32 = 600;
/// Between two of them.
const BACKLOG_PAUSE: Duration = Duration::from_millis(50);
/// Name in `meta` of the last day whose run is done.
const META_DAY: &str = "maintenance.day";
/// Name in `meta` of the run under way: its day and the last user that is done, as `day:user`.
const META_RUN: &str = "maintenance.run";

/// What is asked of a run.
#[derive(Clone, Debug, Default)]
struct Ask {
    dry_run: bool,
    tenant: Option<TenantId>,
    user: Option<UserId>,
    rules: BTreeSet<AutoRule>,
}

/// How far a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Progress {
    Planned,
    Done,
    Observed,
    Skipped,
    /// A summary is not searchable yet.
    Waiting,
}

/// A step with its owner and how far it is.
#[derive(Clone, Debug)]
struct Entry {
    owner: Owner,
    step: Step,
    progress: Progress,
}

/// How many steps of a kind there were.
type Totals = BTreeMap<(AutoRule, i32, i32), u64>;

/// How the last run went.
#[derive(Clone, Debug, Default)]
struct Last {
    running: bool,
    ended: Option<Timestamp>,
    steps: u64,
}

/// The runner. Cheap to clone; clones are the same runner.
#[derive(Clone)]
pub struct Maintenance {
    state: Arc<State>,
    mode: ModeSource,
    tasks: TaskGroup,
    /// Words summaries; without one the rules do.
    summariser: Option<Arc<dyn Summariser>>,
    turn: Arc<tokio::sync::Mutex<()>>,
    /// The run that has the turn.
    current: Arc<Mutex<Option<Uuid>>>,
    last: Arc<Mutex<Last>>,
}

impl fmt::Debug for Maintenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Maintenance").field("last", &*self.last.lock()).finish_non_exhaustive()
    }
}

impl Maintenance {
    /// Over the role's state; [`Maintenance::spawn`] starts the nightly run.
    pub fn new(state: Arc<State>, mode: ModeSource, tasks: TaskGroup, summariser: Option<Arc<dyn Summariser>>) -> Self {
        Self { state, mode, tasks, summariser, turn: Arc::default(), current: Arc::default(), last: Arc::default() }
    }

    /// How it is, for people.
    ///
    /// # Errors
    /// As the database says.
    pub async fn status(&self) -> Result<String, Fault> {
        let cursor = self.state.database.read(|db| Ok::<_, Fault>(search::meta(db, META_RUN)?)).await?;
        let last = self.last.lock().clone();
        Ok(match (last.running, cursor, last.ended) {
            (true, ..) => "running".to_owned(),
            (false, Some(_), _) => "paused: goes on at the next turn".to_owned(),
            (false, None, Some(_)) => format!("idle: {} steps in the last run", last.steps),
            (false, None, None) => "idle".to_owned(),
        })
    }

    /// Starts the nightly run: looks at the clock port, so that a moved clock moves it.
    pub fn spawn(&self) {
        let this = self.clone();
        self.tasks.spawn("maintenance", async move {
            let token = this.tasks.token().clone();
            loop {
                tokio::select! {
                    () = token.cancelled() => return,
                    () = pause(LOOK) => {}
                }
                if let Err(fault) = this.nightly().await {
                    tracing::warn!(reason = fault.reason.name(), "maintenance is cut off; it goes on at its next turn");
                }
            }
        });
    }

    /// Runs when a day's run is due, from where one was cut off.
    async fn nightly(&self) -> Result<(), Fault> {
        let schedule = self.state.settings.load().forgetting.schedule;
        if !schedule.enabled {
            return Ok(());
        }
        let day = schedule.day(self.state.ports.clock.now());
        let (done, run) =
            self.state.database.read(|db| Ok::<_, Fault>((search::meta(db, META_DAY)?, search::meta(db, META_RUN)?))).await?;
        let Some(done) = done.and_then(|text| text.parse::<i64>().ok()) else {
            // A new database begins with the next night.
            return self.note(Some(day), None).await;
        };
        if day <= done {
            return Ok(());
        }
        let Ok(_turn) = self.turn.try_lock() else { return Ok(()) };
        *self.current.lock() = Some(self.state.ports.ids.next());
        let after = run.and_then(|text| {
            let (of, after) = text.split_once(':')?;
            (of.parse::<i64>().ok()? == day).then(|| after.parse::<i64>().ok())?
        });
        let ended = self.run(&Ask::default(), after.unwrap_or(0), Some(day), None).await?;
        if ended { self.note(Some(day), None).await } else { Ok(()) }
    }

    async fn note(&self, day: Option<i64>, run: Option<String>) -> Result<(), Fault> {
        let write = move |db: &rusqlite::Connection| {
            if let Some(day) = day {
                search::set_meta(db, META_DAY, Some(&day.to_string()))?;
            }
            search::set_meta(db, META_RUN, run.as_deref())?;
            Ok::<_, Fault>(())
        };
        self.state.database.write(write).await
    }

    /// RunMaintenance.
    ///
    /// # Errors
    /// `INVALID_FIELD` for an unknown rule or a user that is no id; `OVERLOADED` while another run is under way.
    pub fn stream(&self, claims: &Claims, request: &pb::RunMaintenanceRequest) -> Result<Steps, Fault> {
        let named = |(at, name): (usize, &String)| {
            AutoRule::from_name(name).ok_or_else(|| {
                let known: Vec<&str> = AutoRule::ALL.iter().map(|rule| rule.name()).collect();
                Fault::field(format!("rules[{at}]"), format!("is none of {}", known.join(", ")))
            })
        };
        let user = Self::user_of(claims, &request.user_id)?;
        let ask = Ask {
            dry_run: request.dry_run,
            tenant: Some(claims.caller.tenant.clone()),
            user,
            rules: request.rules.iter().enumerate().map(named).collect::<Result<_, _>>()?,
        };
        let run_id = self.state.ports.ids.next();
        let turn = self.take_turn(ask.dry_run, run_id)?;
        let (tell, told) = mpsc::channel(MESSAGES);
        let (this, by) = (self.clone(), claims.caller.clone());
        self.tasks.spawn("maintenance run", async move {
            let _turn = turn;
            let begun = pb::RunMaintenanceResponse { run_id: run_id.to_string(), ..Default::default() };
            if tell.send(Ok(begun)).await.is_err() {
                return;
            }
            let run = async {
                if !ask.dry_run {
                    let rules: Vec<&str> = ask.rules.iter().map(|rule| rule.name()).collect();
                    let user = ask.user.as_ref().map_or("", |user| user.as_str());
                    this.state.note(&by, "MAINTENANCE_RUN", user, rules.join(" ")).await?;
                }
                this.run(&ask, 0, None, Some(&tell)).await
            };
            if let Err(fault) = run.await {
                // Who went away needs no answer.
                let _ = tell.send(Err(error::status(fault))).await;
            }
        });
        let next = |mut told: mpsc::Receiver<_>| async move { told.recv().await.map(|answer| (answer, told)) };
        Ok(futures::stream::unfold(told, next).boxed())
    }

    /// The one user that a request is about; none: all of the tenant.
    fn user_of(claims: &Claims, user_id: &str) -> Result<Option<UserId>, Fault> {
        if user_id.is_empty() { Ok(claims.caller.user.clone()) } else { claims.caller.user_for(user_id).map(Some) }
    }

    /// The turn of a run that writes; a dry run needs none. Who comes second is told which run has it (case C051).
    fn take_turn(&self, dry_run: bool, run_id: Uuid) -> Result<Option<tokio::sync::OwnedMutexGuard<()>>, Fault> {
        if dry_run {
            return Ok(None);
        }
        if let Ok(turn) = Arc::clone(&self.turn).try_lock_owned() {
            *self.current.lock() = Some(run_id);
            return Ok(Some(turn));
        }
        let current = self.current.lock().map(|id| id.to_string()).unwrap_or_default();
        Err(Fault::new(Reason::Overloaded, "a run is under way; there is one at a time")
            .with("run_id", current)
            .with("field", "maintenance")
            .with("limit", "1")
            .with("unit", "runs")
            .retry_after(5_000))
    }

    /// Whether the mode of the tenant allows no more than expiry (rule D1).
    fn expiry_only(&self, tenant: &TenantId) -> bool {
        matches!((self.mode)(tenant), Mode::WriteOff | Mode::Bypass)
    }

    fn scope(&self, ask: &Ask, tenant: &TenantId) -> Scope {
        Scope { expiry_only: self.expiry_only(tenant), rules: ask.rules.clone() }
    }

    /// Walks the users after `from`; answers whether it came to the end. A caller that went away, a shutdown or a schedule that
    /// was switched off pauses it.
    async fn run(
        &self,
        ask: &Ask,
        from: i64,
        day: Option<i64>,
        tell: Option<&mpsc::Sender<Result<pb::RunMaintenanceResponse, GrpcStatus>>>,
    ) -> Result<bool, Fault> {
        if !ask.dry_run {
            self.last.lock().running = true;
        }
        let mut totals = Totals::new();
        let outcome = self.walk(ask, from, day, tell, &mut totals).await;
        if !ask.dry_run {
            *self.last.lock() = Last { running: false, ended: Some(self.state.ports.clock.now()), steps: totals.values().sum() };
        }
        for ((rule, action, state), count) in &totals {
            let action = pb::MaintenanceAction::try_from(*action).unwrap_or_default().as_str_name();
            let state = pb::MaintenanceState::try_from(*state).unwrap_or_default().as_str_name();
            tracing::info!(rule = rule.name(), action, state, count, "maintenance");
            if !ask.dry_run {
                let labels = [Label::new("rule", rule.name()), Label::new("action", action), Label::new("state", state)];
                Instruments::global().maintenance.add(*count, &labels);
            }
        }
        if let (Ok(true), Some(tell)) = (&outcome, tell) {
            let last = pb::RunMaintenanceResponse {
                steps: Vec::new(),
                totals: wire_totals(&totals),
                expiry_only: ask.tenant.as_ref().is_some_and(|tenant| self.expiry_only(tenant)),
                run_id: String::new(),
            };
            let _ = tell.send(Ok(last)).await;
        }
        outcome
    }

    async fn walk(
        &self,
        ask: &Ask,
        from: i64,
        day: Option<i64>,
        tell: Option<&mpsc::Sender<Result<pb::RunMaintenanceResponse, GrpcStatus>>>,
        totals: &mut Totals,
    ) -> Result<bool, Fault> {
        let mut after = from;
        let mut budget = reword::Budget::default();
        loop {
            let (tenant, user) = (ask.tenant.clone(), ask.user.clone());
            let page = self.state.database.read(move |db| store::users(db, after, tenant.as_ref(), user.as_ref(), USERS)).await?;
            let Some(last) = page.last().map(|user| user.user_id) else { return Ok(true) };
            for user in page {
                let paused = day.is_some() && !self.state.settings.load().forgetting.schedule.enabled;
                let gone = tell.is_some_and(mpsc::Sender::is_closed);
                if paused || gone || self.tasks.token().is_cancelled() {
                    return Ok(false);
                }
                let watch = Stopwatch::start();
                let entries = self.user(&user, ask, &mut budget, tell).await?;
                for entry in &entries {
                    let wire = wire_entry(entry);
                    *totals.entry((rule_of(&entry.step), wire.action, wire.state)).or_default() += 1;
                }
                if let Some(tell) = tell {
                    for part in entries.chunks(STEPS) {
                        let steps = part.iter().map(wire_entry).collect();
                        if tell.send(Ok(pb::RunMaintenanceResponse { steps, ..Default::default() })).await.is_err() {
                            return Ok(false);
                        }
                    }
                }
                self.rest(&watch).await;
            }
            after = last;
            if let Some(day) = day {
                self.note(None, Some(format!("{day}:{after}"))).await?;
            }
        }
    }

    /// Rests in proportion to the work before: under load that takes longer, and so does the rest.
    async fn rest(&self, watch: &Stopwatch) {
        let rest = self.state.settings.load().forgetting.schedule.rest;
        self.idle((watch.elapsed() * rest).min(LONGEST_REST)).await;
    }

    /// Waits, but not longer than the service lives.
    async fn idle(&self, time: Duration) {
        tokio::select! {
            () = self.tasks.token().cancelled() => {}
            () = pause(time) => {}
        }
    }

    /// Waits while the index is behind.
    async fn wait_for_index(&self) -> Result<(), Fault> {
        for _ in 0..BACKLOG_LOOKS {
            let now = self.state.ports.clock.now();
            let (rows, age) = self.state.database.read(move |db| store::backlog(db, now)).await?;
            if (rows < BACKLOG_ROWS && age < BACKLOG_MICROS) || self.tasks.token().is_cancelled() {
                return Ok(());
            }
            self.state.relay.wake();
            self.idle(BACKLOG_PAUSE).await;
        }
        Err(Fault::new(Reason::Overloaded, "the search index is behind; maintenance waits")
            .with("field", "outbox")
            .retry_after(5_000))
    }

    /// Plans one user, and does it unless it is a dry run.
    async fn user(
        &self,
        user: &StoredUser,
        ask: &Ask,
        budget: &mut reword::Budget,
        tell: Option<&mpsc::Sender<Result<pb::RunMaintenanceResponse, GrpcStatus>>>,
    ) -> Result<Vec<Entry>, Fault> {
        let mut plan = self.plan(user, ask).await?;
        if !ask.dry_run {
            let gone = async {
                match tell {
                    Some(tell) => tell.closed().await,
                    None => std::future::pending().await,
                }
            };
            self.reword(&mut plan, budget, gone).await;
        }
        let done = if ask.dry_run { vec![Progress::Planned; plan.steps.len()] } else { self.carry_out(user, &plan).await? };
        let entries = plan.steps.into_iter().zip(done).filter_map(|(step, done)| {
            let progress = match &step {
                Step::Do { observed: true, .. } | Step::Make { observed: true, .. } => Progress::Observed,
                Step::Keep { .. } => Progress::Done,
                Step::Do { .. } | Step::Make { .. } => done,
            };
            Some(Entry { owner: plan.owners.get(&memory_of(&step))?.clone(), step, progress })
        });
        Ok(entries.collect())
    }

    /// Does the steps in their order, a batch a transaction; answers how far each came. Members of a summary come last, once
    /// the index knows the summary: until then they answer themselves.
    async fn carry_out(&self, user: &StoredUser, plan: &Plan) -> Result<Vec<Progress>, Fault> {
        let batch = self.state.settings.load().forgetting.schedule.batch;
        let mut out = vec![Progress::Skipped; plan.steps.len()];
        let summary_of = |step: &Step| match step {
            Step::Do { permit, observed: false, .. } => match permit.fate() {
                Fate::Condense(summary) if permit.from() == Status::Active => Some(summary),
                Fate::Condense(_) | Fate::Move(_) | Fate::MergeInto(_) | Fate::Purge => None,
            },
            Step::Do { observed: true, .. } | Step::Make { .. } | Step::Keep { .. } => None,
        };
        let acts = |step: &Step| matches!(step, Step::Do { observed: false, .. } | Step::Make { observed: false, .. });
        let (late, early): (Vec<usize>, Vec<usize>) =
            (0..plan.steps.len()).filter(|at| acts(&plan.steps[*at])).partition(|at| summary_of(&plan.steps[*at]).is_some());
        for part in early.chunks(batch) {
            self.batch(user, plan, part, &mut out).await?;
        }
        if early.is_empty() && (!plan.retire.is_empty() || plan.merged_until.is_some()) {
            self.batch(user, plan, &[], &mut out).await?;
        }
        if !late.is_empty() {
            let mut summaries: Vec<MemoryId> = late.iter().filter_map(|at| summary_of(&plan.steps[*at])).collect();
            summaries.sort_unstable();
            summaries.dedup();
            let untold = self.searchable(summaries).await?;
            let (waiting, ready): (Vec<usize>, Vec<usize>) =
                late.into_iter().partition(|at| summary_of(&plan.steps[*at]).is_some_and(|summary| untold.contains(&summary)));
            for at in waiting {
                out[at] = Progress::Waiting;
            }
            for part in ready.chunks(batch) {
                self.batch(user, plan, part, &mut out).await?;
            }
        }
        Ok(out)
    }

    /// Waits until the index knows the summaries; answers those it does not know yet.
    async fn searchable(&self, summaries: Vec<MemoryId>) -> Result<Vec<MemoryId>, Fault> {
        for look in 0.. {
            let asked = summaries.clone();
            let untold = self.state.database.read(move |db| store::untold(db, &asked)).await?;
            if untold.is_empty() || look >= BACKLOG_LOOKS || self.tasks.token().is_cancelled() {
                return Ok(untold);
            }
            self.state.relay.wake();
            self.idle(BACKLOG_PAUSE).await;
        }
        Ok(summaries)
    }

    async fn batch(&self, user: &StoredUser, plan: &Plan, part: &[usize], out: &mut [Progress]) -> Result<(), Fault> {
        self.wait_for_index().await?;
        if self.tasks.token().is_cancelled() {
            return Err(Fault::new(Reason::NotServing, "the service stops; the run goes on at its next turn"));
        }
        let watch = Stopwatch::start();
        let made = |step: &Step| match step {
            Step::Make { memory_id, .. } => {
                let summary = plan.summaries.get(memory_id).cloned().map(|summary| Made::Summary(Box::new(summary)));
                summary.or_else(|| plan.proposals.get(memory_id).cloned().map(|proposal| Made::Proposal(Box::new(proposal))))
            }
            Step::Do { .. } | Step::Keep { .. } => None,
        };
        let steps: Vec<(Step, Option<Made>)> = part.iter().map(|at| (plan.steps[*at].clone(), made(&plan.steps[*at]))).collect();
        let (tombstones, merged_until) = (self.state.tombstones.clone(), plan.merged_until);
        let (job, retire) = (Job { user_id: user.user_id, now: plan.now }, plan.retire.clone());
        let (registry, policy) = (Arc::clone(&self.state.registry), self.state.settings.load_full());
        let write = move |db: &rusqlite::Connection| {
            let means = Means { settings: &policy.forgetting, gate: &policy.gate, registry: &registry };
            let (mut done, mut worded) = (Vec::with_capacity(steps.len()), Vec::new());
            for (step, made) in &steps {
                done.push(match (step, made) {
                    (Step::Do { permit, wanted, .. }, _) => store::carry_out(db, &job, means, permit, *wanted)?,
                    (Step::Make { .. }, Some(Made::Summary(summary))) => {
                        let (made, by_model) = make_summary(db, &job, means, summary)?;
                        worded.extend(summary.by_model.is_some().then_some(made && by_model));
                        made
                    }
                    (Step::Make { .. }, Some(Made::Proposal(proposal))) => propose(db, &job, means, &tombstones, proposal)?,
                    (Step::Make { .. } | Step::Keep { .. }, _) => false,
                });
            }
            for id in &retire {
                store::retire_summary(db, &job, *id)?;
            }
            if let Some(until) = merged_until {
                store::merged_until(db, job.user_id, until)?;
            }
            if done.contains(&true) {
                crate::metadata::owner::next_revision(db, job.user_id)?;
            }
            Ok::<_, Fault>((done, worded))
        };
        let (done, worded) = self.state.database.write(write).await?;
        self.state.relay.wake();
        for stored in worded {
            reword::count(if stored { "stored" } else { "overtaken" });
        }
        for (at, done) in part.iter().zip(done) {
            out[*at] = if done { Progress::Done } else { Progress::Skipped };
        }
        self.rest(&watch).await;
        Ok(())
    }
}

/// A record that the service makes.
enum Made {
    Summary(Box<Summary>),
    Proposal(Box<Proposal>),
}

/// Proposes a fact, if its events are still there and nobody forgot what they say (rules F10, E7).
fn propose(
    db: &rusqlite::Connection,
    job: &Job,
    means: Means<'_>,
    tombstones: &Tombstones,
    proposal: &Proposal,
) -> Result<bool, Fault> {
    for (event, _) in &proposal.events {
        let there = row::by_id(db, *event)?.filter(|found| found.owner == proposal.stored);
        if !there.is_some_and(|found| matches!(found.record.status, Status::Active | Status::Archived)) {
            return Ok(false);
        }
    }
    // What is put together takes less room than what it stands for: no quota.
    let quota = Quota::default();
    let context = Context { scope: &proposal.scope, actor: Job::ACTOR, settings: means.gate, tombstones, quota, now: job.now };
    let mut made = None;
    for (gated, material) in &proposal.passed {
        let s = gated.statement();
        let digests = tombstones.digests(&proposal.owner, s.kind, gated.key(), gated.normal(), &gated.identity());
        let erased = crate::metadata::ledger::erased_at(db, proposal.stored, &digests)?;
        if gate::check_forgotten(erased, proposal.span.1).is_err() {
            return Ok(false);
        }
        made = write::store(db, &context, gated, material)?.record.or(made);
    }
    let Some(mut found) = made.filter(|found| matches!(found.record.status, Status::Candidate | Status::Disputed)) else {
        return Ok(false);
    };
    let w = job.writing(&proposal.owner, proposal.stored);
    derived::propose(db, &w, &mut found, &proposal.events, proposal.span)?;
    Ok(true)
}

/// Makes a summary; answers whether it is there, and whether in the words of a model.
fn make_summary(db: &rusqlite::Connection, job: &Job, means: Means<'_>, summary: &Summary) -> Result<(bool, bool), Fault> {
    let w = job.writing(&summary.owner, summary.stored);
    // Two summaries may come to the same words by a model that leaves out what tells them apart: then the rules' are taken.
    let by_model = match &summary.by_model {
        Some((gated, material)) if query::twin(db, summary.stored, &gated.identity())?.is_none() => Some((gated, material)),
        Some(_) | None => None,
    };
    let (gated, material) = by_model.unwrap_or((&summary.gated, &summary.material));
    let making = derived::Making {
        gated,
        material,
        by_model: by_model.is_some(),
        members: &summary.members,
        span: summary.span,
        replaces: summary.replaces,
    };
    Ok((derived::summary(db, &w, means.gate, &making)?, by_model.is_some()))
}

const fn memory_of(step: &Step) -> MemoryId {
    match step {
        Step::Do { permit, .. } => permit.memory_id(),
        Step::Make { memory_id, .. } | Step::Keep { memory_id, .. } => *memory_id,
    }
}

const fn rule_of(step: &Step) -> AutoRule {
    match step {
        Step::Do { permit, .. } => permit.rule(),
        Step::Make { rule, .. } | Step::Keep { rule, .. } => *rule,
    }
}

/// Wire form of an entry.
fn wire_entry(entry: &Entry) -> pb::MaintenanceStep {
    use pb::MaintenanceAction as Action;
    let state = match entry.progress {
        Progress::Planned => pb::MaintenanceState::Planned,
        Progress::Done => pb::MaintenanceState::Done,
        Progress::Observed => pb::MaintenanceState::Observed,
        Progress::Skipped => pb::MaintenanceState::Skipped,
        Progress::Waiting => pb::MaintenanceState::Waiting,
    };
    let wire_status = |status: Status| i32::from(convert::wire_status(status));
    let text = |ids: &[MemoryId]| ids.iter().map(MemoryId::to_string).collect();
    let common = pb::MaintenanceStep {
        memory_id: memory_of(&entry.step).to_string(),
        user_id: entry.owner.user.as_str().to_owned(),
        agent_id: entry.owner.agent_id().to_owned(),
        rule: rule_of(&entry.step).name().to_owned(),
        state: state.into(),
        ..Default::default()
    };
    match &entry.step {
        Step::Do { permit, .. } => {
            let (action, related) = match permit.fate() {
                Fate::Move(_) => (Action::Move, None),
                Fate::Condense(summary) => (Action::Condense, Some(summary)),
                Fate::MergeInto(survivor) => (Action::Merge, Some(survivor)),
                Fate::Purge => (Action::Purge, None),
            };
            pb::MaintenanceStep {
                action: action.into(),
                status_before: wire_status(permit.from()),
                status_after: permit.fate().status().map_or(0, wire_status),
                related: related.iter().map(MemoryId::to_string).collect(),
                because: permit.because().to_owned(),
                ..common
            }
        }
        Step::Make { rule, from, .. } => {
            let status = if *rule == AutoRule::Consolidate { Status::Active } else { Status::Candidate };
            let because = if *rule == AutoRule::Consolidate {
                "stands for what is said often on one topic"
            } else {
                "events on one slot say the same: put to the user"
            };
            pb::MaintenanceStep {
                action: Action::Make.into(),
                status_after: wire_status(status),
                related: text(from),
                because: because.to_owned(),
                ..common
            }
        }
        Step::Keep { kept_by, because, status, .. } => pb::MaintenanceStep {
            action: Action::Keep.into(),
            status_before: wire_status(*status),
            status_after: wire_status(*status),
            because: (*because).to_owned(),
            kept_by: (*kept_by).to_owned(),
            ..common
        },
    }
}

fn wire_totals(totals: &Totals) -> Vec<pb::MaintenanceTotal> {
    let one = |((rule, action, state), count): (&(AutoRule, i32, i32), &u64)| pb::MaintenanceTotal {
        rule: rule.name().to_owned(),
        action: *action,
        state: *state,
        count: *count,
    };
    totals.iter().map(one).collect()
}
