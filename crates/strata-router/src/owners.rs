//! Claims, marks and seals over the ledger (rules P1 to P4): loads the states of keys, takes a step of
//! `policy::ownership`, swaps them in, and starts over when another router was faster.

use crate::ledger::{Change, Ledger, Swap};
use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use strata_core::limits::{CLAIM_LEASE_SECONDS, LEDGER_BACKLOG, MARK_SECONDS};
use strata_core::policy::ownership::{self, Chain, ClaimVerdict, KeyState, Mark, Place, SealVerdict};
use strata_core::time::SECOND;
use strata_core::{Clock, Fault, Owner, Reason, Timestamp, id};

/// Lost swaps in a row before a caller is told to come again: each means that another router made progress.
const ATTEMPTS: u32 = 32;

/// What waits for a ledger that is down.
#[derive(Clone, Debug)]
enum Late {
    Claim { user: String, chain: Chain, keys: Vec<String>, epoch: u64 },
    Mark { user: String, key: String, mark: Mark },
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
    late: Mutex<VecDeque<Late>>,
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

    async fn update<T>(
        &self,
        user: &str,
        keys: &[String],
        scope: Option<&Place>,
        keep_seconds: i64,
        mut step: impl FnMut(&mut View, Timestamp) -> Result<T, Fault> + Send,
    ) -> Result<T, Fault> {
        let mut fields: Vec<String> = keys.iter().map(|key| key_field(key)).collect();
        fields.extend(scope.map(scope_field));
        for _ in 0..ATTEMPTS {
            let now = self.clock.now();
            let stored = self.ledger.read(user, &fields, now).await?;
            let states =
                stored.iter().take(keys.len()).map(|text| decode(text.as_ref())).collect::<Result<Vec<KeyState>, Fault>>()?;
            let scope_keys = if scope.is_some() { decode(stored.last().and_then(Option::as_ref))? } else { BTreeSet::new() };
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
                return Ok(answer);
            }
            match self.ledger.swap(user, &changes, now, now.plus(keep_seconds * SECOND)).await? {
                Swap::Done => return Ok(answer),
                Swap::Lost => {}
                Swap::Full => return Err(Fault::limit("claims", crate::ledger::MAX_FIELDS, "keys and scopes of one user")),
            }
        }
        Err(Fault::new(Reason::Overloaded, "many writers claim these keys at once; try again").retry_after(50))
    }

    /// Claims keys for a task, all or none, at one epoch (rule P2). `owned` is what long-term memory says it owns among
    /// them, by position; `None` when it does not answer: the marks alone decide then.
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
    ) -> Result<u64, Fault> {
        self.update(&owner.user_key(), keys, Some(chain.own()), CLAIM_LEASE_SECONDS.max(MARK_SECONDS), |view, now| {
            if let Some(owned) = owned {
                for (state, owned) in view.states.iter_mut().zip(owned) {
                    state.reconcile(chain, owned);
                }
            }
            match ownership::claim_all(&mut view.states, chain, floor, now, now.plus(CLAIM_LEASE_SECONDS * SECOND)) {
                Ok(epoch) => {
                    view.scope.extend(keys.iter().cloned());
                    Ok(epoch)
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

    /// Remembers a claim that the board made by itself while the ledger was down (rule P4).
    pub(crate) fn claim_later(&self, owner: &Owner, chain: &Chain, keys: &[String], epoch: u64) {
        self.push(Late::Claim { user: owner.user_key(), chain: chain.clone(), keys: keys.to_vec(), epoch });
    }

    /// Remembers a mark that could not be left.
    pub(crate) fn mark_later(&self, owner: &Owner, key: &str, mark: Mark) {
        self.push(Late::Mark { user: owner.user_key(), key: key.to_owned(), mark });
    }

    fn push(&self, late: Late) {
        let mut queue = self.late.lock();
        if queue.len() >= LEDGER_BACKLOG {
            queue.pop_front();
        }
        queue.push_back(late);
    }

    /// Enters what waited for the ledger; stops at the first failure.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`: the rest waits on.
    pub(crate) async fn flush(&self) -> Result<(), Fault> {
        loop {
            let Some(late) = self.late.lock().pop_front() else { return Ok(()) };
            let done = match &late {
                Late::Claim { user, chain, keys, epoch } => {
                    self.update(user, keys, Some(chain.own()), MARK_SECONDS, |view, now| {
                        for state in &mut view.states {
                            state.enter(chain, *epoch, now, now.plus(CLAIM_LEASE_SECONDS * SECOND));
                        }
                        view.scope.extend(keys.iter().cloned());
                        Ok(())
                    })
                    .await
                }
                Late::Mark { user, key, mark } => self.mark_at(user, key, mark).await,
            };
            if let Err(fault) = done {
                if is_down(&fault) {
                    self.late.lock().push_front(late);
                }
                return Err(fault);
            }
        }
    }

    /// An outer level owns the key now (rule P2).
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    pub(crate) async fn mark(&self, owner: &Owner, key: &str, mark: &Mark) -> Result<(), Fault> {
        self.mark_at(&owner.user_key(), key, mark).await
    }

    async fn mark_at(&self, user: &str, key: &str, mark: &Mark) -> Result<(), Fault> {
        self.update(user, &[key.to_owned()], None, MARK_SECONDS, |view, _| {
            for state in &mut view.states {
                state.mark(mark.clone());
            }
            Ok(())
        })
        .await
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
    }

    /// Ends a seal (rule P5): committed with the mark of the new owner, or undone; then the fresh epoch is returned.
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
    ) -> Result<Option<u64>, Fault> {
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
