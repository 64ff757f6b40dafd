//! Rescan: today's gate over what is in force. A record that it would not let in any more becomes a candidate again, out of
//! recall until a person looks at it. What rule F8 keeps is named and stays.

use super::{Maintenance, STEPS, USERS};
use crate::intake::{self, Submitter};
use crate::metadata::insert::{self, Writing};
use crate::metadata::maintenance::{self as store, Job, StoredUser};
use crate::metadata::row::{self, StoredRecord};
use crate::metadata::{owner, query};
use crate::scope::OwnerScope;
use crate::state::State;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use std::collections::BTreeSet;
use std::sync::Arc;
use strata_api::admin::v1 as pb;
use strata_api::convert::transfer::statement_of;
use strata_api::error;
use strata_core::policy::authz::Role;
use strata_core::policy::forgetting::shield;
use strata_core::policy::gate::{Attestation, Door, QuoteState, Standing};
use strata_core::record::{Evidence, GATE_REASONS, Kind, Record, Sensitivity, Status, Trigger};
use strata_core::time::DAY;
use strata_core::{Fault, MemoryId, Reason, TenantId, Timestamp, UserId};
use strata_runtime::Claims;
use strata_runtime::ports::Stopwatch;
use tokio::sync::mpsc;
use tonic::Status as GrpcStatus;

/// What a rescan answers, as it goes.
pub type Steps = BoxStream<'static, Result<pb::RescanResponse, GrpcStatus>>;

/// Records judged at a time.
const RECORDS: u32 = 64;

/// A record that today's gate would not let in.
struct Objection {
    found: StoredRecord,
    rule: String,
    because: String,
}

impl Maintenance {
    /// Rescan.
    ///
    /// # Errors
    /// `INVALID_FIELD` for a user that is no id; `OVERLOADED` while another run is under way.
    pub fn rescan(&self, claims: &Claims, request: &pb::RescanRequest) -> Result<Steps, Fault> {
        let user = Self::user_of(claims, &request.user_id)?;
        let turn = self.take_turn(request.dry_run, self.state.ports.ids.next())?;
        let (by, dry_run) = (claims.caller.clone(), request.dry_run);
        let (tell, told) = mpsc::channel(super::MESSAGES);
        let this = self.clone();
        self.tasks.spawn("rescan", async move {
            let _turn = turn;
            let run = async {
                if !dry_run {
                    let about = user.as_ref().map_or("", |user| user.as_str());
                    this.state.note(&by, "RESCAN", about, String::new()).await?;
                }
                this.rescan_all(&by.tenant, user.as_ref(), dry_run, &tell).await
            };
            if let Err(fault) = run.await {
                // Who went away needs no answer.
                let _ = tell.send(Err(error::status(fault))).await;
            }
        });
        let next = |mut told: mpsc::Receiver<_>| async move { told.recv().await.map(|answer| (answer, told)) };
        Ok(futures::stream::unfold(told, next).boxed())
    }

    async fn rescan_all(
        &self,
        tenant: &TenantId,
        user: Option<&UserId>,
        dry_run: bool,
        tell: &mpsc::Sender<Result<pb::RescanResponse, GrpcStatus>>,
    ) -> Result<(), Fault> {
        let (mut after, mut records, mut quarantined, mut kept) = (0, 0_u64, 0_u64, 0_u64);
        loop {
            let (tenant, user) = (tenant.clone(), user.cloned());
            let page = self.state.database.read(move |db| store::users(db, after, Some(&tenant), user.as_ref(), USERS)).await?;
            let Some(last) = page.last().map(|user| user.user_id) else { break };
            for user in page {
                let mut from = None;
                loop {
                    if tell.is_closed() || self.tasks.token().is_cancelled() {
                        return Ok(());
                    }
                    let watch = Stopwatch::start();
                    let (read, last, steps) = self.rescan_page(&user, from, dry_run).await?;
                    records += read;
                    let is_kept = |step: &&pb::MaintenanceStep| step.action() == pb::MaintenanceAction::Keep;
                    let stays = steps.iter().filter(is_kept).count() as u64;
                    kept += stays;
                    quarantined += steps.len() as u64 - stays;
                    for part in steps.chunks(STEPS) {
                        let answer = pb::RescanResponse { steps: part.to_vec(), ..Default::default() };
                        if tell.send(Ok(answer)).await.is_err() {
                            return Ok(());
                        }
                    }
                    self.rest(&watch).await;
                    let Some(last) = last else { break };
                    from = Some(last);
                }
            }
            after = last;
        }
        tracing::info!(records, quarantined, kept, dry_run, "records were judged by today's gate");
        let _ = tell.send(Ok(pb::RescanResponse { steps: Vec::new(), records, quarantined, kept })).await;
        Ok(())
    }

    /// Judges some records of a user; answers how many, the last of them unless it was the end, and what came of it.
    async fn rescan_page(
        &self,
        user: &StoredUser,
        after: Option<MemoryId>,
        dry_run: bool,
    ) -> Result<(u64, Option<MemoryId>, Vec<pb::MaintenanceStep>), Fault> {
        let user_id = user.user_id;
        let read = move |db: &rusqlite::Connection| {
            let mut out = Vec::new();
            for found in store::in_force(db, user_id, after, RECORDS)? {
                let first = query::evidence(db, found.record.memory_id)?.into_iter().next();
                out.push((found, first));
            }
            Ok::<_, Fault>(out)
        };
        let records = self.state.database.read(read).await?;
        let count = records.len() as u64;
        let last = records.last().map(|(found, _)| found.record.memory_id).filter(|_| count == u64::from(RECORDS));
        let (state, now) = (Arc::clone(&self.state), self.state.ports.clock.now());
        let judge =
            move || records.into_iter().filter_map(|(found, first)| objection(&state, found, first, now)).collect::<Vec<_>>();
        let objections = self.tasks.blocking("rescan", judge).await;
        let objections = objections.map_err(|_| Fault::new(Reason::Internal, "the rescan ended unexpectedly"))?;
        let mut steps = Vec::with_capacity(objections.len());
        for Objection { found, rule, because } in objections {
            let r = &found.record;
            let identity =
                r.key.as_ref().and_then(|key| self.state.registry.spec(key.as_str())).is_some_and(|spec| spec.is_identity());
            let shielded = shield(r.kind, r.protected, identity);
            let (action, state, after) = match (shielded, dry_run) {
                (Some(_), _) => (pb::MaintenanceAction::Keep, pb::MaintenanceState::Done, r.status),
                (None, true) => (pb::MaintenanceAction::Move, pb::MaintenanceState::Planned, Status::Candidate),
                (None, false) => {
                    let done = self.quarantine(user, found.clone(), &rule, now).await?;
                    let state = if done { pb::MaintenanceState::Done } else { pb::MaintenanceState::Skipped };
                    (pb::MaintenanceAction::Move, state, Status::Candidate)
                }
            };
            steps.push(pb::MaintenanceStep {
                memory_id: r.memory_id.to_string(),
                user_id: r.owner.user.as_str().to_owned(),
                agent_id: r.owner.agent_id().to_owned(),
                rule,
                action: action.into(),
                state: state.into(),
                status_before: strata_api::convert::longterm::wire_status(r.status).into(),
                status_after: strata_api::convert::longterm::wire_status(after).into(),
                because,
                kept_by: shielded.map(|_| "F8".to_owned()).unwrap_or_default(),
                ..Default::default()
            });
        }
        Ok((count, last, steps))
    }

    /// Takes a record out of recall, if it is as it was judged.
    async fn quarantine(&self, user: &StoredUser, judged: StoredRecord, rule: &str, now: Timestamp) -> Result<bool, Fault> {
        self.wait_for_index().await?;
        let (user_id, rule) = (user.user_id, rule.to_owned());
        let days = self.state.settings.load().gate.candidate_days;
        let write = move |db: &rusqlite::Connection| {
            let there = row::by_id(db, judged.record.memory_id)?.filter(|found| found.record.version == judged.record.version);
            let Some(mut found) = there.filter(|found| found.record.status == Status::Active) else { return Ok(false) };
            let holder = found.record.owner.clone();
            let w = Writing { path: "Rescan", ..Job { user_id, now }.writing(&holder, found.owner) };
            found.earlier_status = Some(Status::Active);
            let limit = now.plus(i64::from(days) * DAY);
            found.record.expire_time = Some(found.expire_asked.map_or(limit, |asked| asked.min(limit)));
            let reason = format!("{rule}: today's gate would not let it in");
            insert::move_to(db, &w, &mut found, Status::Candidate, &reason, &rule)?;
            if let Some(key) = &found.record.key {
                owner::release_if_empty(db, found.owner, key)?;
            }
            owner::next_revision(db, user_id)?;
            Ok::<_, Fault>(true)
        };
        let done = self.state.database.write(write).await?;
        self.state.relay.wake();
        Ok(done)
    }
}

/// The rule that would keep a record out today, if there is one. It is judged as it was said first: what confirmed it since
/// cannot be doubted, what may never be stored can.
fn objection(state: &State, found: StoredRecord, first: Option<Evidence>, now: Timestamp) -> Option<Objection> {
    let settings = state.settings.load().gate.clone();
    let r = &found.record;
    let scope = OwnerScope::of_service(r.owner.clone());
    let verified = first.as_ref().map_or(r.quote_verified, |first| first.quote_verified);
    let quote = if verified { QuoteState::Verified } else { QuoteState::Unreferenced };
    let by = Submitter {
        scope: &scope,
        roles: &BTreeSet::from([Role::MemoryWriter, Role::RecordSystem]),
        attestation: Attestation { quote, turn_time: Some(r.event_time), user_turn: verified, explicit_order: false },
        door: Door::Maintenance,
        request_id: None,
        now,
    };
    let mut statement = statement_of(r);
    statement.trigger = Some(Trigger::Maintenance);
    if let Some(first) = first {
        statement.source = first.source;
        statement.source_ref = first.source_ref;
        statement.source_quote = first.quote;
    }
    let judged = if r.kind == Kind::Summary {
        intake::readmit(state, &settings, &by, statement).map(|passed| passed.0)
    } else {
        intake::submit(state, &settings, &by, statement).map(|(first, _)| first.0)
    };
    let (rule, because) = match judged {
        Err(fault) if GATE_REASONS.contains(&fault.reason) => {
            let worst = fault.preconditions.into_iter().next()?;
            (worst.rule, worst.description)
        }
        // A key that another layer owns now is no matter of the gate.
        Err(_) => return None,
        Ok(gated) => {
            let doubted = match gated.standing() {
                Standing::NeedsConsent => r.sensitivity != Sensitivity::Personal,
                Standing::Candidate => !r.confirmed && !supported(r),
                Standing::Temporary | Standing::Active => false,
            };
            if !doubted {
                return None;
            }
            let finding = gated.findings().iter().find(|finding| matches!(finding.outcome, "CANDIDATE" | "NEEDS_CONSENT"))?;
            (finding.rule.0.to_owned(), finding.because.clone())
        }
    };
    Some(Objection { found, rule, because })
}

/// Whether other evidence than the first let it in.
const fn supported(r: &Record) -> bool {
    r.evidence_count > 1
}
