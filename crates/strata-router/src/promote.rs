//! The promotion channel (rules P5 to P9): drives `policy::promotion` over the journal. Every step is journalled before
//! its actions are done and every action is idempotent, so any router finishes or undoes what another one began.

use crate::attest::{attest, of_sealed, seal_turn};
use crate::call::{Call, level_of};
use crate::decisions;
use crate::gate::Core;
use crate::layers::{answer, placed, reading, signed};
use crate::ledger::{JournalRow, OpenEntry, Written};
use crate::modes::{self, Passage};
use crate::overlays::has_ended;
use crate::owners::is_down;
use crate::proxy::{mark_of, seen_epoch};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use prost::Message as _;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use strata_api::convert::{common, longterm::wire_source, router as convert};
use strata_api::internal::v1 as internal;
use strata_api::longterm::v1 as longterm;
use strata_api::router::v1 as pb;
use strata_api::session::v1 as session;
use strata_api::working::v1 as working;
use strata_core::id::Level;
use strata_core::limits::{JOURNAL_ENTRIES, JOURNAL_SECONDS, QUEUED_SECONDS};
use strata_core::policy::authz::{self, Layer, Principal};
use strata_core::policy::decision::{Stage, Step};
use strata_core::policy::ownership::{Chain, Mark, next_epoch};
use strata_core::policy::promotion::{
    Action, AtTarget, Event, Hold, JournalFinding, Origin, Promotion, Seal, SealedTurn, State, admit, due, step,
};
use strata_core::time::SECOND;
use strata_core::{FactKey, Fault, Owner, Reason, SessionId, TaskId, Timestamp};
use strata_runtime::context::CallContext;
use strata_runtime::metrics::{Instruments, Label};

/// Longest wait for one call of the saga.
pub(crate) const STEP: Duration = Duration::from_millis(1_500);
/// Pauses between attempts while a caller waits; the recovery goes on afterwards.
const PAUSES_MS: [u64; 4] = [50, 100, 200, 400];
/// Time that must be left of a caller's deadline for one more attempt.
const ANSWER: Duration = Duration::from_millis(250);
/// An open entry is left to the router that drives it for this long.
const UNTOUCHED: i64 = 2 * SECOND;
/// A deferred entry is offered again after this long.
const OFFER_AGAIN: i64 = 5 * SECOND;
/// A queued entry's candidate is looked at after this long, for confirmations and ends that nobody told of.
const LOOK_AGAIN: i64 = 15 * 60 * SECOND;
/// Times a seal is asked for again above the board's epoch.
const STALE_ATTEMPTS: u32 = 3;

/// Stands for the digest of an entry whose content was erased: whoever asks by its id is shown its state.
pub(crate) const ERASED: &str = "erased";

/// An entry of the journal with what is needed to act for its caller later.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) promotion: Promotion,
    pub(crate) principal: Principal,
    pub(crate) owner: Owner,
    /// The statement of the request, encoded.
    statement: String,
    /// When it was asked for, or looked through by an erasure and left: what an erasure since then has not seen is refused by the
    /// layers (rule E2). In microseconds.
    #[serde(default)]
    pub(crate) signed_at: u64,
    /// Trace of the call that began it; what the recovery does belongs to it.
    #[serde(default)]
    trace_id: String,
}

impl Entry {
    pub(crate) fn statement(&self) -> Result<longterm::Statement, Fault> {
        let unreadable = || Fault::new(Reason::Internal, "the journal holds something unreadable");
        let bytes = STANDARD_NO_PAD.decode(&self.statement).map_err(|_| unreadable())?;
        longterm::Statement::decode(bytes.as_slice()).map_err(|_| unreadable())
    }

    /// Takes the content out; what is left says that there was a promotion and how it ended.
    pub(crate) fn blank(&mut self) {
        self.statement = String::new();
        let p = &mut self.promotion;
        ERASED.clone_into(&mut p.digest);
        p.seal = None;
        p.journalled = None;
        p.owned = None;
        p.consent_challenge = None;
        match &mut p.origin {
            Origin::TaskFact { key, .. } | Origin::SessionFact { key, .. } => ERASED.clone_into(key),
            Origin::TurnQuote { quote, .. } => quote.clear(),
        }
    }

    /// A request of that digest asks for this very promotion, or for one whose content was erased (rule P7).
    ///
    /// # Errors
    /// `REQUEST_ID_REUSED`.
    pub(crate) fn is_asked_for_by(&self, digest: &str) -> Result<(), Fault> {
        if self.promotion.digest == digest || self.promotion.digest == ERASED {
            return Ok(());
        }
        Err(Fault::new(Reason::RequestIdReused, "promotion_id: was used before with another request"))
    }

    fn user_id(&self) -> String {
        self.owner.user.as_str().to_owned()
    }

    fn agent_id(&self) -> String {
        self.owner.agent_id().to_owned()
    }
}

/// What a look at the source found.
enum Found {
    /// What it holds.
    Holds(Seal),
    /// An outer level owns the key (rule P2): the value is not the source's to give away.
    Overlay,
    /// It does not answer now, or there is nothing to hold.
    Nothing,
}

pub(crate) fn finding(rule: &str, outcome: &str, because: impl Into<String>) -> JournalFinding {
    JournalFinding { rule: rule.to_owned(), outcome: outcome.to_owned(), because: because.into() }
}

/// The rules of a refusal, or its reason.
fn findings_of(fault: &Fault) -> Vec<JournalFinding> {
    if fault.preconditions.is_empty() {
        return vec![finding("P6", fault.reason.name(), fault.message.clone())];
    }
    fault.preconditions.iter().map(|p| finding(&p.rule, "REFUSED", p.description.clone())).collect()
}

/// What the target's answer means for the saga.
fn event_of(owner: &Owner, result: longterm::WriteResult) -> Result<Event, Fault> {
    let memory = result.memory.as_ref();
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let at = AtTarget {
        findings: result.findings.iter().map(convert::journal_finding).collect(),
        memory_id: memory.and_then(|memory| some(&memory.memory_id)),
        superseded: some(&result.superseded),
        owned: memory
            .filter(|memory| !memory.key.is_empty() && mark_of(owner, memory.scope, memory.owner_epoch).is_some())
            .map(|memory| (memory.key.clone(), memory.owner_epoch)),
        consent_challenge: some(&result.consent_challenge),
    };
    let active = memory.is_some_and(|memory| memory.status == i32::from(longterm::Status::Active));
    Ok(match longterm::Outcome::try_from(result.outcome).unwrap_or_default() {
        longterm::Outcome::Active | longterm::Outcome::History | longterm::Outcome::Updated => Event::Applied(at),
        longterm::Outcome::EvidenceAdded if active => Event::Applied(at),
        longterm::Outcome::EvidenceAdded | longterm::Outcome::Candidate | longterm::Outcome::Disputed => Event::Queued(at),
        longterm::Outcome::NeedsConsent => Event::NeedsConsent(at),
        longterm::Outcome::Unspecified => return Err(Fault::new(Reason::Internal, "the target answered without an outcome")),
    })
}

impl Core {
    /// Promotes, or shows the promotion of that id as it stands (rule P7).
    ///
    /// # Errors
    /// `INVALID_FIELD`, `PROMOTION_REFUSED`, `NOT_FOUND`, `FACT_SEALED`, `REQUEST_ID_REUSED`; `STORE_UNAVAILABLE` when the
    /// journal cannot take it.
    pub(crate) async fn promote(self: &Arc<Self>, call: &Call, request: pb::PromoteRequest) -> Result<Promotion, Fault> {
        let statement = request.statement.clone().unwrap_or_default();
        let (entry, new) = self.journal(call, request).await?;
        Ok(if new { self.drive_detached(entry).await? } else { self.go_on(entry, &statement).await? }.promotion)
    }

    /// Checks a promotion and journals it, or finds it there; says whether it is new. Nothing else is done yet.
    async fn journal(&self, call: &Call, request: pb::PromoteRequest) -> Result<(Entry, bool), Fault> {
        match self.check(call, request).await? {
            (entry, true) => self.enter(entry).await,
            known => Ok(known),
        }
    }

    /// A promotion as the journal has it, or as it would be entered there; says whether it is new. Nothing is written.
    ///
    /// # Errors
    /// As [`Core::promote`].
    pub(crate) async fn check(&self, call: &Call, mut request: pb::PromoteRequest) -> Result<(Entry, bool), Fault> {
        let checked = convert::promote(&request)?;
        let statement = request.statement.clone().unwrap_or_default();
        // Consent is no part of what is asked: with it the same request goes on (rule G4).
        if let Some(asked) = request.statement.as_mut() {
            asked.consent.clear();
        }
        let target = level_of(Layer::Longterm, &call.owner);
        admit(checked.origin.level(), target, checked.kind)?;
        let key = checked.origin.key().filter(|_| statement.key.is_empty());
        self.check_layer_of(key.unwrap_or(&statement.key))?;
        let digest = blake3::hash(&request.encode_to_vec()).to_hex().to_string();
        if let Some(known) = self.journalled(&call.owner, &checked.promotion_id).await? {
            known.is_asked_for_by(&digest)?;
            return Ok((known, false));
        }
        let found = self.check_source(call, &checked.origin).await?;
        let now = self.ports.clock.now();
        let promotion = Promotion::new(checked.promotion_id, checked.origin, target, digest, now);
        let promotion = match found {
            Found::Holds(seal) => Promotion { journalled: Some(seal), ..promotion },
            Found::Nothing => promotion,
            // Never anything else: an overlay stays one until its scope ends.
            Found::Overlay => {
                let because = finding("P2", "REFUSED", "an outer level owns the key; the value here is an overlay");
                step(&promotion, Event::SourceRefused { because }, now)?.0
            }
        };
        let entry = Entry {
            promotion,
            principal: call.principal.clone(),
            owner: call.owner.clone(),
            statement: encoded(&statement),
            signed_at: next_epoch(0, now),
            trace_id: decisions::trace_id(),
        };
        Ok((entry, true))
    }

    /// Journals what was checked; says whether it was this call that did.
    ///
    /// # Errors
    /// `LIMIT_REACHED`, `REQUEST_ID_REUSED`; `STORE_UNAVAILABLE`.
    pub(crate) async fn enter(&self, entry: Entry) -> Result<(Entry, bool), Fault> {
        if self.write_entry(&entry, None).await? {
            return Ok((entry, true));
        }
        // Two copies of one request raced: the other one drives it.
        let promotion = entry.promotion;
        let other = self.journalled(&entry.owner, &promotion.promotion_id).await?;
        let other = other.ok_or_else(|| Fault::not_found("promotion", promotion.promotion_id))?;
        other.is_asked_for_by(&promotion.digest)?;
        Ok((other, false))
    }

    /// A known promotion, asked for again: driven on when it is open, begun anew when its candidate was confirmed or the
    /// user's consent came along (rule P6).
    async fn go_on(self: &Arc<Self>, known: Entry, statement: &longterm::Statement) -> Result<Entry, Fault> {
        let mut entry = if known.promotion.is_open() { self.drive_detached(known).await? } else { known };
        if entry.promotion.state == State::NeedsConsent && !statement.consent.is_empty() && !entry.promotion.is_open() {
            entry.statement = encoded(statement);
            return self.readmit(entry).await;
        }
        self.refreshed(entry).await
    }

    /// Begins anew (rule P6), and drives it.
    pub(crate) async fn readmit(self: &Arc<Self>, entry: Entry) -> Result<Entry, Fault> {
        let begun = self.advance(&entry, Event::Readmitted).await?;
        self.drive_detached(begun).await
    }

    /// The source is there: what is not is said before anything is journalled. A source that does not answer is found out
    /// later. What it holds stands for the seal should it end (rule P5).
    async fn check_source(&self, call: &Call, origin: &Origin) -> Result<Found, Fault> {
        let look = async {
            match origin {
                Origin::TaskFact { task_id, key } => self.look_at_board(call, task_id, key).await,
                Origin::SessionFact { session_id, key } => self.look_at_session(call, session_id, key).await,
                Origin::TurnQuote { .. } => Ok(Found::Nothing),
            }
        };
        match tokio::time::timeout(STEP, look).await {
            Ok(Err(fault)) if is_down(&fault) || fault.reason == Reason::Overloaded => Ok(Found::Nothing),
            Ok(found) => found,
            Err(_) => Ok(Found::Nothing),
        }
    }

    async fn look_at_board(&self, call: &Call, task_id: &str, key: &str) -> Result<Found, Fault> {
        let request = working::GetTaskRequest {
            user_id: call.owner.user.as_str().to_owned(),
            agent_id: call.owner.agent_id().to_owned(),
            task_id: task_id.to_owned(),
        };
        let mut client = self.layers.working.clone();
        let found = answer(client.get_task(placed(request, reading(&call.principal, &call.owner))).await)?;
        let task = found.task.unwrap_or_default();
        match task.facts.into_iter().find(|fact| fact.key == key) {
            None => Err(Fault::not_found("fact", key)),
            Some(fact) if fact.reference.is_some() => Err(Fault::new(
                Reason::PromotionRefused,
                "a reference to a long-term record is no fact of the task: it stands there already",
            )
            .rule("W11", key, "a reference is no claim")),
            Some(fact) if fact.overlay => Ok(Found::Overlay),
            Some(fact) => Ok(Found::Holds(Seal {
                value: fact.value,
                source: fact.source,
                epoch: fact.epoch,
                session_id: task.session_id,
                verified_at: common::optional_time("verified_at", fact.verified_at.as_ref()).unwrap_or_default(),
                turn: None,
            })),
        }
    }

    async fn look_at_session(&self, call: &Call, session_id: &str, key: &str) -> Result<Found, Fault> {
        let facts = self.session_facts(&call.principal, &call.owner, session_id).await?;
        match facts.into_iter().find(|fact| fact.key == key) {
            None => Err(Fault::not_found("fact", key)),
            Some(fact) if fact.overlay => Ok(Found::Overlay),
            Some(fact) => {
                let turn = seal_turn(&self.layers, &call.principal, &call.owner, session_id, &fact).await?;
                Ok(Found::Holds(of_session(session_id, fact, turn)))
            }
        }
    }

    pub(crate) async fn journalled(&self, owner: &Owner, promotion_id: &str) -> Result<Option<Entry>, Fault> {
        let row = self.ledger.journal_read(&owner.user_key(), promotion_id, self.ports.clock.now()).await?;
        row.map(|row| decode(&row)).transpose()
    }

    pub(crate) async fn write_entry(&self, entry: &Entry, expected: Option<u64>) -> Result<bool, Fault> {
        let now = self.ports.clock.now();
        let text = serde_json::to_string(entry).map_err(|_| Fault::new(Reason::Internal, "a journal entry cannot be written"))?;
        let row = JournalRow { revision: entry.promotion.revision, entry: text };
        let promotion = &entry.promotion;
        let kept = if promotion.state == State::Queued { QUEUED_SECONDS } else { JOURNAL_SECONDS };
        let (user, id) = (entry.owner.user_key(), &promotion.promotion_id);
        let look = look_at(promotion, now);
        match self.ledger.journal_write(&user, id, expected, &row, look, now, now.plus(kept * SECOND)).await? {
            Written::Done => {
                Instruments::global().promotions.add(1, &[Label::new("state", promotion.state.name())]);
                Ok(true)
            }
            Written::Lost => Ok(false),
            Written::Full => Err(Fault::limit("promotions", JOURNAL_ENTRIES, "promotions of one user in the journal")),
        }
    }

    /// Journals what happened. When another router was faster, its entry is answered: the step was not taken.
    pub(crate) async fn advance(&self, entry: &Entry, event: Event) -> Result<Entry, Fault> {
        let (promotion, _) = step(&entry.promotion, event, self.ports.clock.now())?;
        let next = Entry { promotion, ..entry.clone() };
        if self.write_entry(&next, Some(entry.promotion.revision)).await? {
            return Ok(next);
        }
        let theirs = self.journalled(&entry.owner, &entry.promotion.promotion_id).await?;
        theirs.ok_or_else(|| Fault::not_found("promotion", entry.promotion.promotion_id.clone()))
    }

    /// Drives an entry for a caller who waits, in a task of its own: a caller who goes away does not stop it half-way.
    pub(crate) async fn drive_detached(self: &Arc<Self>, entry: Entry) -> Result<Entry, Fault> {
        let core = Arc::clone(self);
        strata_runtime::task::detached_write(decisions::carried(async move {
            let mut entry = core.drive(entry).await?;
            for pause in PAUSES_MS.map(Duration::from_millis) {
                let idle = due(&entry.promotion, core.ports.clock.now()).is_empty() || entry.promotion.state == State::InDoubt;
                let time = CallContext::current().remaining().is_none_or(|left| left > pause + ANSWER);
                if idle || !time {
                    break;
                }
                strata_runtime::ports::pause(pause).await;
                entry = core.drive(entry).await?;
            }
            Ok::<_, Fault>(entry)
        }))
        .await
    }

    /// Does what is due until nothing is, or somebody does not answer.
    pub(crate) async fn drive(&self, mut entry: Entry) -> Result<Entry, Fault> {
        // Each round moves the entry on; the longest way has fewer moves than this.
        for _ in 0..16 {
            let mut moved = None;
            for action in due(&entry.promotion, self.ports.clock.now()) {
                // On the heap: one step of the saga is a deep call, and several nest.
                if let Some(event) = Box::pin(self.act(&entry, action)).await? {
                    moved = Some(self.advance(&entry, event).await?);
                    break;
                }
            }
            match moved {
                Some(next) => entry = next,
                None => return Ok(entry),
            }
        }
        Ok(entry)
    }

    /// Does one action; `None` when it has to be tried again later.
    async fn act(&self, entry: &Entry, action: Action) -> Result<Option<Event>, Fault> {
        match action {
            Action::Probe => self.probe_and_seal_claim(entry).await,
            Action::Seal => self.seal_source(entry).await,
            Action::Apply => self.apply(entry).await,
            Action::Abort => self.abort(entry).await,
            Action::Commit => self.commit(entry).await,
            Action::Undo => self.undo(entry).await,
        }
    }

    /// Why the target's mode does not take promotions now.
    fn switched_off(&self, entry: &Entry) -> Option<JournalFinding> {
        let method = authz::METHODS.iter().find(|method| method.access == authz::Access::Promote)?;
        match modes::check(&self.modes, &entry.owner.tenant, method) {
            Ok(Passage::Defer) => {
                Some(finding("D1", "DEFERRED", "writes of long-term memory are switched off; offered again when they are on"))
            }
            Ok(Passage::Serve | Passage::Empty | Passage::LogOnly) | Err(_) => None,
        }
    }

    async fn probe_and_seal_claim(&self, entry: &Entry) -> Result<Option<Event>, Fault> {
        if let Some(because) = self.switched_off(entry) {
            return Ok(Some(Event::TargetOff { because }));
        }
        let request = internal::GetOwnersRequest { user_id: entry.user_id(), agent_id: entry.agent_id(), keys: Vec::new() };
        let mut client = self.layers.target.clone();
        let asked = client.get_owners(signed(request, reading(&entry.principal, &entry.owner)));
        match tokio::time::timeout(STEP, asked).await.map(answer) {
            Ok(Ok(_)) => {}
            Ok(Err(fault)) if is_down(&fault) || fault.reason.retry_safe() => {
                return Ok(Some(Event::TargetOff { because: target_down() }));
            }
            // It answered: whatever it thinks of the question, it is up.
            Ok(Err(_)) => {}
            Err(_) => return Ok(Some(Event::TargetOff { because: target_down() })),
        }
        Ok(Some(Event::Sealing { epoch: self.seal_claim(entry, 0).await? }))
    }

    /// Seals the claim in the ledger; without the ledger the server's clock is the epoch (rule P4).
    async fn seal_claim(&self, entry: &Entry, floor: u64) -> Result<u64, Fault> {
        let (chain, key) = self.source_of(entry)?;
        match self.owners.seal(&entry.owner, &chain, &key, &entry.promotion.promotion_id, floor, entry.promotion.doubt_at()).await
        {
            Err(down) if is_down(&down) => Ok(next_epoch(floor, self.ports.clock.now())),
            sealed => sealed,
        }
    }

    /// The source gave nothing away. Best effort: the seal in the ledger falls by itself.
    async fn unseal_claim(&self, entry: &Entry) -> Result<(), Fault> {
        let (chain, key) = self.source_of(entry)?;
        drop(self.owners.settle(&entry.owner, chain.own(), &key, &entry.promotion.promotion_id, None).await);
        Ok(())
    }

    fn source_of(&self, entry: &Entry) -> Result<(Chain, String), Fault> {
        match &entry.promotion.origin {
            Origin::TaskFact { task_id, key } => {
                let chain = Chain::task(&entry.owner, None, &TaskId::new(task_id.as_str())?);
                Ok((chain, self.registry.resolve(&FactKey::new(key.as_str())?).as_str().to_owned()))
            }
            Origin::SessionFact { session_id, key } => {
                let chain = Chain::session(&entry.owner, &SessionId::new(session_id.as_str())?);
                Ok((chain, self.registry.resolve(&FactKey::new(key.as_str())?).as_str().to_owned()))
            }
            Origin::TurnQuote { .. } => Err(Fault::new(Reason::Internal, "a quote has no claim")),
        }
    }

    async fn seal_source(&self, entry: &Entry) -> Result<Option<Event>, Fault> {
        let mut floor = entry.promotion.seal_epoch.unwrap_or_default().saturating_sub(1);
        for _ in 0..STALE_ATTEMPTS {
            let epoch = self.seal_claim(entry, floor).await?;
            match tokio::time::timeout(STEP, self.sealed_at(entry, epoch)).await {
                Ok(Ok(seal)) => return Ok(Some(Event::Sealed(seal))),
                Ok(Err(fault)) if fault.reason == Reason::StaleEpoch => floor = seen_epoch(&fault).unwrap_or(epoch).max(epoch),
                Ok(Err(fault)) if fault.reason == Reason::FactSealed => return Err(fault),
                // Gone, whether it ended or was lost: its ledger claim ends with it.
                Ok(Err(fault)) if has_ended(&fault) => {
                    self.unseal_claim(entry).await?;
                    let because = finding("P5", fault.reason.name(), "the source has ended and nothing of it was journalled");
                    return Ok(Some(Event::SourceEnded { because }));
                }
                // The candidate that it waited for is in force, and made its source an overlay: nobody writes there any more, and
                // what the user confirmed is what was sealed when it was proposed (rules P2, P6).
                Ok(Err(fault)) if fault.reason == Reason::FactOwnedByOtherLayer && entry.promotion.memory_id.is_some() => {
                    self.unseal_claim(entry).await?;
                    let because = finding("P2", fault.reason.name(), "the source is an overlay and nothing of it was journalled");
                    return Ok(Some(Event::SourceEnded { because }));
                }
                Ok(Err(fault)) if fault.reason.retry_safe() => return Ok(None),
                Ok(Err(fault)) => {
                    self.unseal_claim(entry).await?;
                    let because = finding("P5", fault.reason.name(), "the source does not give the fact away");
                    // It may have given it away already, where a ledger lost its last writes: the target knows.
                    let answer = self.fence(entry).await?;
                    let refused = Event::SourceRefused { because };
                    return Ok(answer.map(|answer| if answer == Event::AbortWritten { refused } else { answer }));
                }
                Err(_) => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Seals the fact at its own layer, at an epoch.
    async fn sealed_at(&self, entry: &Entry, epoch: u64) -> Result<Seal, Fault> {
        let identity = |level| reading(&entry.principal, &entry.owner).writing(level, epoch);
        match &entry.promotion.origin {
            Origin::TaskFact { task_id, key } => {
                let request = internal::SealRequest {
                    user_id: entry.user_id(),
                    agent_id: entry.agent_id(),
                    task_id: task_id.clone(),
                    key: key.clone(),
                    promotion_id: entry.promotion.promotion_id.clone(),
                    epoch,
                    // The source holds the seal for twice the skew longer, so that the saga settles it first (rule P5).
                    deadline: Some(common::wire_time(entry.promotion.deadline)),
                };
                let mut client = self.layers.participant.clone();
                let sealed = answer(client.seal(placed(request, identity(Level::Task))).await)?;
                Ok(Seal {
                    value: sealed.value,
                    source: sealed.source,
                    epoch: sealed.epoch,
                    session_id: sealed.session_id,
                    verified_at: common::optional_time("verified_at", sealed.verified_at.as_ref()).unwrap_or_default(),
                    turn: None,
                })
            }
            Origin::SessionFact { session_id, key } => {
                let request = internal::SealFactRequest {
                    user_id: entry.user_id(),
                    agent_id: entry.agent_id(),
                    session_id: session_id.clone(),
                    key: key.clone(),
                };
                let mut client = self.layers.session_facts.clone();
                let sealed = answer(client.seal_fact(signed(request, identity(Level::Session))).await)?;
                let fact = sealed.fact.unwrap_or_default();
                // A turn does not change: what it said when it was journalled it says now.
                let same = |seal: &&Seal| seal.value == fact.value;
                let known = entry.promotion.journalled.as_ref().filter(same).and_then(|seal| seal.turn.clone());
                let turn = match known.filter(|turn| turn.seq == fact.seq) {
                    Some(turn) => turn,
                    None => seal_turn(&self.layers, &entry.principal, &entry.owner, session_id, &fact).await?,
                };
                Ok(of_session(session_id, fact, turn))
            }
            Origin::TurnQuote { .. } => Err(Fault::new(Reason::Internal, "a quote is not sealed")),
        }
    }

    /// The key and the value of a statement about a fact.
    fn put_value(&self, statement: &mut longterm::Statement, key: &str, seal: &Seal) {
        if statement.key.is_empty() {
            self.registry.resolve_alias(key).clone_into(&mut statement.key);
        }
        let typed = statement.value.as_ref().and_then(|value| common::value("statement.value", value).ok());
        if typed.is_none_or(|value| value.as_text() != seal.value) {
            statement.value = Some(common::wire_value(&strata_core::record::Value::Text(seal.value.clone())));
        }
    }

    /// The statement that goes through the gate: what it says is the caller's, where it comes from is the seal's (rule P5).
    fn sealed_statement(&self, entry: &Entry) -> Result<longterm::Statement, Fault> {
        let mut statement = entry.statement()?;
        if statement.trigger == 0 {
            statement.set_trigger(longterm::Trigger::DecisionPoint);
        }
        match (&entry.promotion.origin, &entry.promotion.seal) {
            (Origin::TaskFact { task_id, key }, Some(seal)) => {
                self.put_value(&mut statement, key, seal);
                statement.set_source(longterm::Source::Observation);
                statement.source_quote.clone_from(&seal.value);
                statement.source_ref =
                    Some(longterm::SourceRef { kind: Some(longterm::source_ref::Kind::TaskId(task_id.clone())) });
            }
            (Origin::SessionFact { session_id, key }, Some(seal @ Seal { turn: Some(turn), .. })) => {
                self.put_value(&mut statement, key, seal);
                statement.set_source(wire_source(turn.source));
                statement.source_quote.clone_from(&turn.quote);
                let turn = longterm::TurnRef { session_id: session_id.clone(), seq: turn.seq };
                statement.source_ref = Some(longterm::SourceRef { kind: Some(longterm::source_ref::Kind::Turn(turn)) });
            }
            (Origin::TaskFact { .. } | Origin::SessionFact { .. }, _) => {
                return Err(Fault::new(Reason::Internal, "a promotion is applied without its seal"));
            }
            (Origin::TurnQuote { session_id, seq, quote }, _) => {
                statement.set_source(longterm::Source::UserStatement);
                statement.source_quote.clone_from(quote);
                let turn = longterm::TurnRef { session_id: session_id.clone(), seq: *seq };
                statement.source_ref = Some(longterm::SourceRef { kind: Some(longterm::source_ref::Kind::Turn(turn)) });
            }
        }
        Ok(statement)
    }

    async fn apply(&self, entry: &Entry) -> Result<Option<Event>, Fault> {
        let sealed = entry.promotion.hold == Hold::Sealed;
        if let Some(because) = self.switched_off(entry) {
            return self.defer(entry, because).await;
        }
        let statement = self.sealed_statement(entry)?;
        // Promote is no explicit order (rule G11). Of a session's fact the turn was looked at with the fact: it may be gone.
        let attestation = match entry.promotion.seal.as_ref().and_then(|seal| seal.turn.as_ref()) {
            Some(turn) => of_sealed(turn),
            None => attest(&self.layers, &entry.principal, &entry.owner, &statement, false).await,
        };
        let request = internal::ApplyRequest {
            user_id: entry.user_id(),
            agent_id: entry.agent_id(),
            promotion_id: entry.promotion.apply_id(),
            statement: Some(statement),
            deadline: Some(common::wire_time(entry.promotion.deadline)),
            session_id: entry.promotion.seal.as_ref().map(|seal| seal.session_id.clone()).unwrap_or_default(),
        };
        let epoch = entry.promotion.seal_epoch.unwrap_or_else(|| self.fresh_epoch());
        let identity = reading(&entry.principal, &entry.owner)
            .writing(entry.promotion.target, epoch)
            .attesting(attestation.encode_to_vec())
            .as_of(entry.signed_at);
        let mut client = self.layers.target.clone();
        match tokio::time::timeout(STEP, client.apply(signed(request, identity))).await.map(answer) {
            Ok(Ok(applied)) => event_of(&entry.owner, applied.result.unwrap_or_default()).map(Some),
            Ok(Err(fault)) if fault.reason == Reason::PromotionAborted => Ok(Some(Event::AbortWritten)),
            // The user has erased since: the erasure cancels it, or looks through it and signs it again (rule E2).
            Ok(Err(fault)) if fault.reason == Reason::StaleEraseEpoch => Ok(None),
            Ok(Err(fault)) if fault.reason.retry_safe() && !fault.reason.may_have_written() => {
                self.defer(entry, finding("P6", "DEFERRED", fault.message)).await
            }
            // Something may have been written. A quote holds no source up: it is offered again under its id.
            Ok(Err(fault)) if is_down(&fault) && !sealed => Ok(Some(Event::TargetOff { because: target_down() })),
            Ok(Err(fault)) if fault.reason.may_have_written() => Ok(None),
            Ok(Err(fault)) => self.fenced(entry, Event::Refused { findings: findings_of(&fault) }).await,
            Err(_) if !sealed => Ok(Some(Event::TargetOff { because: target_down() })),
            Err(_) => Ok(None),
        }
    }

    /// Kept for later (rule P6).
    async fn defer(&self, entry: &Entry, because: JournalFinding) -> Result<Option<Event>, Fault> {
        match entry.promotion.hold {
            Hold::Sealed => self.fenced(entry, Event::FencedOff { because }).await,
            Hold::None | Hold::Settled => Ok(Some(Event::TargetOff { because })),
        }
    }

    /// What unseals the source without an answer that the target has noted. Another attempt may have been carried out, or may
    /// still be: ABORTED is written first (rule P5), unless it turns out that there was one.
    async fn fenced(&self, entry: &Entry, event: Event) -> Result<Option<Event>, Fault> {
        if entry.promotion.hold != Hold::Sealed {
            return Ok(Some(event));
        }
        Ok(self.fence(entry).await?.map(|answer| if answer == Event::AbortWritten { event } else { answer }))
    }

    /// Writes ABORTED at the target, or learns what was applied there; `None` when it does not answer.
    async fn fence(&self, entry: &Entry) -> Result<Option<Event>, Fault> {
        let request = internal::AbortRequest { user_id: entry.user_id(), promotion_id: entry.promotion.apply_id() };
        let identity = reading(&entry.principal, &entry.owner).writing(entry.promotion.target, self.fresh_epoch());
        let mut client = self.layers.target.clone();
        match tokio::time::timeout(STEP, client.abort(signed(request, identity))).await.map(answer) {
            Ok(Ok(aborted)) => match aborted.applied {
                Some(result) => event_of(&entry.owner, result).map(Some),
                None => Ok(Some(Event::AbortWritten)),
            },
            Ok(Err(_)) | Err(_) => Ok(None),
        }
    }

    async fn abort(&self, entry: &Entry) -> Result<Option<Event>, Fault> {
        let event = self.fence(entry).await?;
        let silent = entry.promotion.state == State::Prepared && self.ports.clock.now() >= entry.promotion.doubt_at();
        Ok(event.or_else(|| silent.then_some(Event::TargetSilent)))
    }

    async fn commit(&self, entry: &Entry) -> Result<Option<Event>, Fault> {
        let mark = self.mark_of_target(entry);
        if entry.promotion.origin.is_sealed() {
            let (chain, key) = self.source_of(entry)?;
            if !self.settle_source(entry, true, 0).await? {
                return Ok(None);
            }
            let outer = mark.as_ref().filter(|(owned, _)| *owned == key).map(|(_, mark)| mark.clone());
            // Best effort: without the ledger the claim ends with its seal, and long-term memory is asked before the next.
            let settled = match &outer {
                Some(mark) => {
                    self.owners.settle(&entry.owner, chain.own(), &key, &entry.promotion.promotion_id, Some(mark)).await
                }
                None => self.owners.settle(&entry.owner, chain.own(), &key, &entry.promotion.promotion_id, None).await,
            };
            match settled {
                Ok((_, overlaid)) => self.tell_scopes(&entry.principal, &entry.owner, overlaid).await,
                Err(_) => tracing::warn!(promotion_id = entry.promotion.promotion_id, "the ledger did not take a commit"),
            }
        }
        if let Some((key, mark)) = mark {
            self.leave_mark(&entry.principal, &entry.owner, &key, mark).await;
        }
        Ok(Some(Event::Settled))
    }

    fn mark_of_target(&self, entry: &Entry) -> Option<(String, Mark)> {
        let (key, epoch) = entry.promotion.owned.clone()?;
        let place = Chain::longterm(&entry.owner).own().clone();
        Some((key, Mark { place, epoch }))
    }

    async fn undo(&self, entry: &Entry) -> Result<Option<Event>, Fault> {
        let (chain, key) = self.source_of(entry)?;
        let settled = self.owners.settle(&entry.owner, chain.own(), &key, &entry.promotion.promotion_id, None).await;
        let (fresh, overlaid) = settled.unwrap_or_default();
        let fresh = fresh.unwrap_or_else(|| next_epoch(entry.promotion.seal_epoch.unwrap_or_default(), self.ports.clock.now()));
        let told = self.settle_source(entry, false, fresh).await?;
        self.tell_scopes(&entry.principal, &entry.owner, overlaid).await;
        Ok(told.then_some(Event::Settled))
    }

    /// Tells the source how it ended; false when it does not answer.
    async fn settle_source(&self, entry: &Entry, committed: bool, epoch: u64) -> Result<bool, Fault> {
        let settle = async {
            match &entry.promotion.origin {
                Origin::TaskFact { task_id, key } => {
                    let request = internal::SettleRequest {
                        user_id: entry.user_id(),
                        agent_id: entry.agent_id(),
                        task_id: task_id.clone(),
                        key: key.clone(),
                        promotion_id: entry.promotion.promotion_id.clone(),
                        seal_epoch: entry.promotion.seal_epoch.unwrap_or_default(),
                        committed,
                        epoch,
                    };
                    let epoch = if committed { self.fresh_epoch() } else { epoch };
                    let identity = reading(&entry.principal, &entry.owner).writing(Level::Task, epoch);
                    answer(self.layers.participant.clone().settle(placed(request, identity)).await).map(drop)
                }
                Origin::SessionFact { session_id, key } if committed => {
                    self.overlay_session(&entry.principal, &entry.owner, session_id, vec![key.clone()]).await
                }
                // A session holds no seal, only the epoch: its claim in the ledger goes on above it.
                Origin::SessionFact { .. } | Origin::TurnQuote { .. } => Ok(()),
            }
        };
        match tokio::time::timeout(STEP, settle).await {
            Ok(Ok(())) => Ok(true),
            // The source has ended itself.
            Ok(Err(fault)) if has_ended(&fault) => Ok(true),
            Ok(Err(fault)) if fault.reason.retry_safe() => Ok(false),
            Ok(Err(fault)) => {
                tracing::warn!(
                    promotion_id = entry.promotion.promotion_id,
                    reason = fault.reason.name(),
                    "a source refused to settle a seal"
                );
                Ok(false)
            }
            Err(_) => Ok(false),
        }
    }

    /// Looks at every open entry once that no router has touched for a moment: finishes it, undoes it, or leaves it for
    /// the next look.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE` when the journal does not answer.
    pub(crate) async fn recover(self: &Arc<Self>) -> Result<(), Fault> {
        let now = self.ports.clock.now();
        let open = self.ledger.journal_open(now).await?;
        Instruments::global().promotions_open.record(open.len() as f64, &[]);
        if !open.is_empty() {
            self.language.ready().await;
        }
        for open in open {
            if let Err(fault) = Box::pin(self.recover_one(&open, now)).await {
                tracing::warn!(
                    promotion_id = open.promotion_id,
                    reason = fault.reason.name(),
                    "a promotion could not be recovered now"
                );
            }
        }
        Ok(())
    }

    async fn recover_one(self: &Arc<Self>, open: &OpenEntry, now: Timestamp) -> Result<(), Fault> {
        let Some(row) = self.ledger.journal_read(&open.user, &open.promotion_id, now).await? else {
            return self.ledger.journal_close(open).await;
        };
        let mut entry = decode(&row)?;
        if look_at(&entry.promotion, now).is_none() {
            return self.ledger.journal_close(open).await;
        }
        let before = entry.promotion.revision;
        let waiting = entry.promotion.state == State::Deferred && due(&entry.promotion, now).is_empty();
        if waiting && self.switched_off(&entry).is_none() {
            entry = self.advance(&entry, Event::Offered).await?;
        }
        let (principal, owner, trace_id) = (entry.principal.clone(), entry.owner.clone(), entry.trace_id.clone());
        let drive = async {
            let entry = Box::pin(self.drive(entry)).await?;
            let entry = Box::pin(self.refreshed(entry)).await?;
            if entry.promotion.revision != before {
                let promotion = &entry.promotion;
                decisions::note(|| {
                    Step::new(Stage::Gate, &promotion.promotion_id, "P5", promotion.state.name(), "the recovery went on with it")
                });
            }
            Ok::<_, Fault>(entry)
        };
        let names = (trace_id.as_str(), "RouterService/Promote");
        let entry = decisions::recorded(&self.keeper, &*self.ports.clock, (&principal, &owner), names, drive).await?;
        if entry.promotion.revision == before {
            // To the end of the line, so that those that wait do not hide the others.
            self.write_entry(&entry, Some(before)).await?;
        }
        Ok(())
    }
}

/// When the recovery has to look at an entry; `None` when nothing can become of it any more.
fn look_at(promotion: &Promotion, now: Timestamp) -> Option<Timestamp> {
    let deferred = promotion.state == State::Deferred && due(promotion, now).is_empty();
    let wait = match promotion.is_open() {
        true if deferred => OFFER_AGAIN,
        true => UNTOUCHED,
        false if promotion.state == State::Queued => LOOK_AGAIN,
        false => return None,
    };
    Some(now.plus(wait))
}

/// What a session holds of a fact, with what its turn says.
fn of_session(session_id: &str, fact: session::SessionFact, turn: SealedTurn) -> Seal {
    Seal {
        value: fact.value,
        source: format!("turn:{}", fact.seq),
        epoch: fact.epoch,
        session_id: session_id.to_owned(),
        verified_at: common::optional_time("update_time", fact.update_time.as_ref()).unwrap_or_default(),
        turn: Some(turn),
    }
}

fn encoded(statement: &longterm::Statement) -> String {
    STANDARD_NO_PAD.encode(statement.encode_to_vec())
}

fn target_down() -> JournalFinding {
    finding("P6", "DEFERRED", "long-term memory does not answer; offered again when it does")
}

pub(crate) fn decode(row: &JournalRow) -> Result<Entry, Fault> {
    serde_json::from_str(&row.entry).map_err(|error| {
        tracing::error!(line = error.line(), column = error.column(), "an entry of the journal cannot be read");
        Fault::new(Reason::Internal, "the journal holds something unreadable")
    })
}
