//! Claims, marks and seals over the ledger (rules P1 to P4): loads the states of keys, takes a step of
//! `policy::ownership`, swaps them in, and starts over when another router was faster.

use crate::decisions;
use crate::ledger::{Change, Ledger, Swap};
use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use strata_core::id::Level;
use strata_core::limits::{CLAIM_LEASE_SECONDS, LEDGER_BACKLOG, MARK_SECONDS};
use strata_core::policy::authz::Principal;
use strata_core::policy::decision::{Stage, Step};
use strata_core::policy::ownership::{self, Chain, ClaimState, ClaimVerdict, KeyState, Mark, Place, SealVerdict};
use strata_core::time::SECOND;
use strata_core::{Clock, Fault, Owner, Reason, Timestamp, id};

/// Lost swaps in a row before a caller is told to come again: each means that another router made progress.
const ATTEMPTS: u32 = 32;

/// What waits for a store that is down.
#[derive(Clone, Debug)]
pub(crate) enum Late {
    /// A claim that a board made by itself.
    Claim {
        /// Its chain.
        chain: Chain,
        /// Its keys.
        keys: Vec<String>,
        /// The board's own epoch.
        epoch: u64,
    },
    /// The mark of an outer owner.
    Mark {
        /// Its key.
        key: String,
        /// The owner.
        mark: Mark,
    },
    /// A board that has still to be told what became an overlay.
    Overlay {
        /// What.
        overlay: Overlay,
        /// The board was asked and did not have the fact.
        looked: bool,
    },
}

/// A claim that an outer owner turned into an overlay (rule P2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Overlay {
    /// The scope of the claim.
    pub(crate) place: Place,
    /// Its key, as the ledger has it.
    pub(crate) key: String,
}

/// For whom something waits, and on whose behalf it is done.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) principal: Principal,
    pub(crate) owner: Owner,
    pub(crate) late: Late,
}

/// What a step sees and changes.
struct View {
    /// States of the keys asked for, in their order.
    states: Vec<KeyState>,
    /// Keys claimed in the scope asked for.
    scope: BTreeSet<String>,
}

/// The ownership of keys.
#[derive(Debug)]
pub(crate) struct Owners {
    ledger: Arc<dyn Ledger>,
    clock: Arc<dyn Clock>,
    late: Mutex<VecDeque<Waiting>>,
}

/// Claims that are overlays now and were none before.
fn overlaid(keys: &[String], before: &[KeyState], after: &[KeyState]) -> Vec<Overlay> {
    let mut out = Vec::new();
    for ((key, before), after) in keys.iter().zip(before).zip(after) {
        for claim in after.claims.iter().filter(|claim| claim.state == ClaimState::Overlay) {
            if before.claim_of(&claim.place).is_none_or(|earlier| earlier.state != ClaimState::Overlay) {
                out.push(Overlay { place: claim.place.clone(), key: key.clone() });
            }
        }
    }
    out
}

fn step(key: &str, outcome: &str, place: &Place, epoch: u64) -> Step {
    Step::new(Stage::Ownership, key, "P2", outcome, &format!("{} {} at epoch {epoch}", place.level.name(), place.id))
}

/// Notes the claims of a scope that stay as they are.
fn note_held(keys: &[String], scope: Option<&Place>, states: &[KeyState]) {
    for (key, state) in keys.iter().zip(states) {
        if let Some(claim) = scope.and_then(|place| state.claim_of(place)) {
            decisions::note(|| step(key, "HELD", &claim.place, claim.epoch));
        }
    }
}

/// Notes what a step changed: claims and marks that are new, moved or gone.
fn note_changes(keys: &[String], before: &[KeyState], after: &[KeyState]) {
    for ((key, before), after) in keys.iter().zip(before).zip(after) {
        for claim in after.claims.iter().filter(|claim| !before.claims.contains(claim)) {
            decisions::note(|| step(key, claim.state.name(), &claim.place, claim.epoch));
        }
        for claim in before.claims.iter().filter(|claim| after.claim_of(&claim.place).is_none()) {
            decisions::note(|| step(key, "ENDED", &claim.place, claim.epoch));
        }
        for mark in after.marks.iter().filter(|mark| !before.marks.contains(mark)) {
            decisions::note(|| step(key, "MARKED", &mark.place, mark.epoch));
        }
    }
}

fn key_field(key: &str) -> String {
    format!("k:{key}")
}

fn scope_field(place: &Place) -> String {
    format!("s:{}", id::join(&[place.level.name(), &place.id]))
}

fn decode<T: serde::de::DeserializeOwned + Default>(text: Option<&String>) -> Result<T, Fault> {
    let Some(text) = text else { return Ok(T::default()) };
    serde_json::from_str(text).map_err(|error| {
        tracing::error!(line = error.line(), column = error.column(), "a field of the ledger cannot be read");
        Fault::new(Reason::Internal, "the ledger holds something unreadable")
    })
}

fn encode<T: serde::Serialize>(value: &T) -> Result<String, Fault> {
    serde_json::to_string(value).map_err(|_| Fault::new(Reason::Internal, "a field of the ledger cannot be written"))
}

/// Whether the ledger, and not the caller, is the cause.
pub(crate) fn is_down(fault: &Fault) -> bool {
    matches!(fault.reason, Reason::StoreUnavailable | Reason::StoreFull | Reason::DeadlineExceeded)
}

impl Owners {
    pub(crate) fn new(ledger: Arc<dyn Ledger>, clock: Arc<dyn Clock>) -> Self {
        Self { ledger, clock, late: Mutex::default() }
    }

    /// Takes one step; says which claims it turned into overlays, for their boards to be told.
    async fn update<T>(
        &self,
        user: &str,
        keys: &[String],
        scope: Option<&Place>,
        keep_seconds: i64,
        mut step: impl FnMut(&mut View, Timestamp) -> Result<T, Fault> + Send,
    ) -> Result<(T, Vec<Overlay>), Fault> {
        let mut fields: Vec<String> = keys.iter().map(|key| key_field(key)).collect();
        fields.extend(scope.map(scope_field));
        for _ in 0..ATTEMPTS {
            let now = self.clock.now();
            let stored = self.ledger.read(user, &fields, now).await?;
            let states =
                stored.iter().take(keys.len()).map(|text| decode(text.as_ref())).collect::<Result<Vec<KeyState>, Fault>>()?;
            let scope_keys = if scope.is_some() { decode(stored.last().and_then(Option::as_ref))? } else { BTreeSet::new() };
            let before = states.clone();
            let mut view = View { states, scope: scope_keys };
            let answer = step(&mut view, now)?;
            debug_assert!(view.states.iter().all(ownership::invariant::hold), "an invariant of ownership is broken");
            let mut changes = Vec::new();
            for ((field, old), state) in fields.iter().zip(&stored).zip(&view.states) {
                let new = if state.is_empty() { None } else { Some(encode(state)?) };
                changes.push(Change { field: field.clone(), old: old.clone(), new });
            }
            if let (Some(field), Some(old), true) = (fields.last(), stored.last(), scope.is_some()) {
                let new = if view.scope.is_empty() { None } else { Some(encode(&view.scope)?) };
                changes.push(Change { field: field.clone(), old: old.clone(), new });
            }
            // Unchanged fields are compared too only when something else changes: then the step saw one moment.
            if changes.iter().all(|change| change.old == change.new) {
                note_held(keys, scope, &view.states);
                return Ok((answer, Vec::new()));
            }
            match self.ledger.swap(user, &changes, now, now.plus(keep_seconds * SECOND)).await? {
                Swap::Done => {
                    note_changes(keys, &before, &view.states);
                    return Ok((answer, overlaid(keys, &before, &view.states)));
                }
                Swap::Lost => {}
                Swap::Full => return Err(Fault::limit("claims", crate::ledger::MAX_FIELDS, "keys and scopes of one user")),
            }
        }
        Err(Fault::new(Reason::Overloaded, "many writers claim these keys at once; try again").retry_after(50))
    }

    /// Claims keys for a task or a session, all or none, at one epoch (rule P2). `owned` is what long-term memory says it owns
    /// among them, by position; `None` when it does not answer: the marks alone decide then. No epoch: some session claims a
    /// key, and the chain of the task does not tell its session yet; `complete` says that it tells all there is.
    ///
    /// # Errors
    /// `FACT_OWNED_BY_OTHER_LAYER`, `FACT_SEALED`; `STORE_UNAVAILABLE` when the ledger is down.
    pub(crate) async fn claim(
        &self,
        owner: &Owner,
        chain: &Chain,
        keys: &[String],
        owned: Option<&[Vec<Mark>]>,
        floor: u64,
        complete: bool,
    ) -> Result<(Option<u64>, Vec<Overlay>), Fault> {
        self.update(&owner.user_key(), keys, Some(chain.own()), CLAIM_LEASE_SECONDS.max(MARK_SECONDS), |view, now| {
            let by_session = |state: &KeyState| state.claims.iter().any(|claim| claim.place.level == Level::Session);
            if !complete && view.states.iter().any(by_session) {
                return Ok(None);
            }
            if let Some(owned) = owned {
                for (state, owned) in view.states.iter_mut().zip(owned) {
                    state.reconcile(chain, owned);
                }
            }
            match ownership::claim_all(&mut view.states, chain, floor, now, now.plus(CLAIM_LEASE_SECONDS * SECOND)) {
                Ok(epoch) => {
                    view.scope.extend(keys.iter().cloned());
                    Ok(Some(epoch))
                }
                Err((at, verdict)) => {
                    let key = keys.get(at).map_or("", String::as_str);
                    Err(match verdict {
                        ClaimVerdict::Sealed { promotion_id, until } => ownership::sealed_by(key, &promotion_id, until, now),
                        ClaimVerdict::OwnedByOuter { place, epoch } => ownership::owned_by(key, &place, epoch),
                        ClaimVerdict::Granted { .. } => Fault::new(Reason::Internal, "a granted claim was refused"),
                    })
                }
            }
        })
        .await
    }

    /// Remembers what could not be done now: a claim that the board made by itself while the ledger was down (rule P4), a
    /// mark that could not be left, a board that could not be told.
    pub(crate) fn later(&self, principal: &Principal, owner: &Owner, late: Late) {
        let mut queue = self.late.lock();
        if queue.len() >= LEDGER_BACKLOG {
            queue.pop_front();
        }
        queue.push_back(Waiting { principal: principal.clone(), owner: owner.clone(), late });
    }

    /// How many wait.
    pub(crate) fn backlog(&self) -> usize {
        self.late.lock().len()
    }

    /// The next one of what waits.
    pub(crate) fn take_late(&self) -> Option<Waiting> {
        self.late.lock().pop_front()
    }

    /// Back to the head of the line: the store is still down.
    pub(crate) fn still_late(&self, waiting: Waiting) {
        self.late.lock().push_front(waiting);
    }

    /// Enters a claim that a board made by itself (rule P4).
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    pub(crate) async fn enter(&self, owner: &Owner, chain: &Chain, keys: &[String], epoch: u64) -> Result<Vec<Overlay>, Fault> {
        self.update(&owner.user_key(), keys, Some(chain.own()), MARK_SECONDS, |view, now| {
            for state in &mut view.states {
                state.enter(chain, epoch, now, now.plus(CLAIM_LEASE_SECONDS * SECOND));
            }
            view.scope.extend(keys.iter().cloned());
            Ok(())
        })
        .await
        .map(|((), overlaid)| overlaid)
    }

    /// An outer level owns the key now (rule P2).
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    pub(crate) async fn mark(&self, owner: &Owner, key: &str, mark: &Mark) -> Result<Vec<Overlay>, Fault> {
        self.update(&owner.user_key(), &[key.to_owned()], None, MARK_SECONDS, |view, _| {
            for state in &mut view.states {
                state.mark(mark.clone());
            }
            Ok(())
        })
        .await
        .map(|((), overlaid)| overlaid)
    }

    /// Seals a task's claim for a promotion (rule P5), above `floor`.
    ///
    /// # Errors
    /// `FACT_SEALED` by another promotion; `STORE_UNAVAILABLE`.
    pub(crate) async fn seal(
        &self,
        owner: &Owner,
        chain: &Chain,
        key: &str,
        promotion_id: &str,
        floor: u64,
        until: Timestamp,
    ) -> Result<u64, Fault> {
        let keys = [key.to_owned()];
        self.update(&owner.user_key(), &keys, Some(chain.own()), MARK_SECONDS, |view, now| {
            view.scope.insert(key.to_owned());
            let Some(state) = view.states.first_mut() else { return Err(Fault::new(Reason::Internal, "no key to seal")) };
            match state.seal(chain, promotion_id, floor, until, now) {
                SealVerdict::Sealed { epoch } => Ok(epoch),
                SealVerdict::SealedByOther { promotion_id, until } => Err(ownership::sealed_by(key, &promotion_id, until, now)),
            }
        })
        .await
        .map(|(epoch, _)| epoch)
    }

    /// Ends a seal (rule P5): committed with the mark of the new owner, or undone; then the fresh epoch is returned. Says
    /// which claims of other scopes became overlays.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    pub(crate) async fn settle(
        &self,
        owner: &Owner,
        place: &Place,
        key: &str,
        promotion_id: &str,
        committed: Option<&Mark>,
    ) -> Result<(Option<u64>, Vec<Overlay>), Fault> {
        self.update(&owner.user_key(), &[key.to_owned()], None, MARK_SECONDS, |view, now| {
            Ok(view.states.first_mut().and_then(|state| state.settle(place, promotion_id, committed.cloned(), now)))
        })
        .await
    }

    /// A scope ended: its claims are gone (rule P2).
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`: the claims then end with their leases.
    pub(crate) async fn end(&self, owner: &Owner, place: &Place) -> Result<(), Fault> {
        let user = owner.user_key();
        let stored = self.ledger.read(&user, &[scope_field(place)], self.clock.now()).await?;
        let keys: BTreeSet<String> = decode(stored.first().and_then(Option::as_ref))?;
        if keys.is_empty() {
            return Ok(());
        }
        let keys: Vec<String> = keys.into_iter().collect();
        self.update(&user, &keys, Some(place), MARK_SECONDS, |view, _| {
            for state in &mut view.states {
                state.end(place);
            }
            view.scope.retain(|key| !keys.contains(key));
            Ok(())
        })
        .await
        .map(|_| ())
    }

    /// Removes claims and marks of an erased key, and its name where scopes list it: whoever owns it next claims it anew, above
    /// the clock (rules E2, P3). Answers how many fields went. A key that a promotion has sealed stays until that has ended.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`; `OVERLOADED` while other routers change it, or while it is sealed.
    pub(crate) async fn erase_key(&self, owner: &Owner, key: &str) -> Result<u64, Fault> {
        let user = owner.user_key();
        for _ in 0..ATTEMPTS {
            let now = self.clock.now();
            let field = key_field(key);
            let stored = self.ledger.read(&user, std::slice::from_ref(&field), now).await?.pop().flatten();
            let Some(stored) = stored else { return Ok(0) };
            let mut state: KeyState = decode(Some(&stored))?;
            state.lapse(now);
            if state.claims.iter().any(|claim| matches!(claim.state, ClaimState::Sealed { .. })) {
                return Err(Fault::new(Reason::Overloaded, "a promotion has sealed a key").retry_after(1_000));
            }
            let mut changes = vec![Change { field, old: Some(stored), new: None }];
            let places: BTreeSet<String> = state.claims.iter().map(|claim| scope_field(&claim.place)).collect();
            let places: Vec<String> = places.into_iter().collect();
            for (field, old) in places.iter().zip(self.ledger.read(&user, &places, now).await?) {
                let mut keys: BTreeSet<String> = decode(old.as_ref())?;
                if keys.remove(key) {
                    let new = if keys.is_empty() { None } else { Some(encode(&keys)?) };
                    changes.push(Change { field: field.clone(), old, new });
                }
            }
            if self.ledger.swap(&user, &changes, now, now.plus(MARK_SECONDS * SECOND)).await? == Swap::Done {
                return Ok(changes.len() as u64);
            }
        }
        Err(Fault::new(Reason::Overloaded, "many writers claim this key at once").retry_after(50))
    }

    /// Whether the ledger has something of an erased key.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    pub(crate) async fn has_key(&self, owner: &Owner, key: &str) -> Result<bool, Fault> {
        let stored = self.ledger.read(&owner.user_key(), &[key_field(key)], self.clock.now()).await?;
        Ok(stored.iter().any(Option::is_some))
    }

    /// Forgets what waits for a store on behalf of a user, or only what is about these keys.
    pub(crate) fn forget_late(&self, owner: &Owner, keys: Option<&BTreeSet<String>>) {
        let about = |late: &Late| match (keys, late) {
            (None, _) => true,
            (Some(keys), Late::Claim { keys: claimed, .. }) => claimed.iter().any(|key| keys.contains(key)),
            (Some(keys), Late::Mark { key, .. }) => keys.contains(key),
            (Some(keys), Late::Overlay { overlay, .. }) => keys.contains(&overlay.key),
        };
        self.late.lock().retain(|waiting| waiting.owner.user_key() != owner.user_key() || !about(&waiting.late));
    }

    /// What the ledger knows of keys, without what lapsed.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    pub(crate) async fn states(&self, owner: &Owner, keys: &[String]) -> Result<Vec<KeyState>, Fault> {
        let now = self.clock.now();
        let fields: Vec<String> = keys.iter().map(|key| key_field(key)).collect();
        let stored = self.ledger.read(&owner.user_key(), &fields, now).await?;
        stored
            .iter()
            .map(|text| {
                let mut state: KeyState = decode(text.as_ref())?;
                state.lapse(now);
                Ok(state)
            })
            .collect()
    }
}
