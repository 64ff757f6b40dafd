//! One layer owns a fact (rules P1 to P4). A key of a user has a [`KeyState`]: the claims of sessions and tasks on it,
//! the marks that outer levels left, and the highest epoch ever given. Every step is a pure function over that state,
//! so the ledger only loads it, calls the step and swaps it in: the rules stand here once for every store.
//!
//! User and agent level are owned by a row in long-term memory itself; here they appear as marks only.

use crate::id::Level;
use crate::policy::authz::Layer;
use crate::{Fault, Owner, Reason, SessionId, TaskId, Timestamp};
use serde::{Deserialize, Serialize};

/// The levels of a key, outermost first (rule P1).
pub const CHAIN: [Level; 4] = [Level::User, Level::Agent, Level::Session, Level::Task];

/// The one layer that writes facts of a level (rule P1).
#[must_use]
pub const fn writer(level: Level) -> Layer {
    match level {
        Level::User | Level::Agent => Layer::Longterm,
        Level::Session => Layer::Session,
        Level::Task => Layer::Working,
    }
}

/// The epoch of a new claim (rule P3): above every epoch that was ever given, and in step with the server's clock so
/// that it stays above them when the ledger was lost. `previous` is the highest epoch known, 0 for none.
#[must_use]
pub fn next_epoch(previous: u64, now: Timestamp) -> u64 {
    previous.saturating_add(1).max(u64::try_from(now.micros()).unwrap_or(0))
}

/// A concrete level of one user: which agent, which session, which task.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    /// Level.
    pub level: Level,
    /// Id of the agent, session or task; empty at user level.
    pub id: String,
}

impl Place {
    /// The user level.
    #[must_use]
    pub const fn user() -> Self {
        Self { level: Level::User, id: String::new() }
    }

    /// A level with the id of its scope.
    pub fn new(level: Level, id: impl Into<String>) -> Self {
        Self { level, id: id.into() }
    }
}

/// The places of a claimant, outermost first; the last one is its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain(Vec<Place>);

impl Chain {
    /// A task's chain: user, agent if there is one, session if the task belongs to one, task.
    #[must_use]
    pub fn task(owner: &Owner, session: Option<&SessionId>, task: &TaskId) -> Self {
        let mut chain = Self::longterm(owner);
        chain.0.extend(session.map(|id| Place::new(Level::Session, id.as_str())));
        chain.0.push(Place::new(Level::Task, task.as_str()));
        chain
    }

    /// A session's chain: user, agent if there is one, session.
    #[must_use]
    pub fn session(owner: &Owner, session: &SessionId) -> Self {
        let mut chain = Self::longterm(owner);
        chain.0.push(Place::new(Level::Session, session.as_str()));
        chain
    }

    /// The chain of a long-term write: user, and the agent if there is one.
    #[must_use]
    pub fn longterm(owner: &Owner) -> Self {
        let agent = owner.agent.as_ref().map(|id| Place::new(Level::Agent, id.as_str()));
        Self(std::iter::once(Place::user()).chain(agent).collect())
    }

    /// The claimant's own place.
    #[must_use]
    pub fn own(&self) -> &Place {
        self.0.last().expect("a chain has the user level at least")
    }

    /// The places around it, outermost first.
    #[must_use]
    pub fn outer(&self) -> &[Place] {
        &self.0[..self.0.len() - 1]
    }

    /// Whether `place` is in the chain.
    #[must_use]
    pub fn holds(&self, place: &Place) -> bool {
        self.0.contains(place)
    }
}

/// What a claim is worth.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ClaimState {
    /// Its scope writes the key.
    Owned,
    /// A promotion is moving the value out (rule P5).
    Sealed {
        /// The promotion.
        promotion_id: String,
        /// When the seal falls by itself.
        until: Timestamp,
    },
    /// An outer level owns the key; the value is read-only until the scope ends (rule P2).
    Overlay,
}

impl ClaimState {
    /// Stable upper-case name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Owned => "OWNED",
            Self::Sealed { .. } => "SEALED",
            Self::Overlay => "OVERLAY",
        }
    }
}

/// A session's or task's claim on a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Claim {
    /// Whose claim it is.
    pub place: Place,
    /// The places around it at the time of the claim: a mark on one of them makes the claim an overlay.
    pub within: Vec<Place>,
    /// Epoch.
    pub epoch: u64,
    /// State.
    pub state: ClaimState,
    /// The claim lapses then unless it is renewed: leases give progress, epochs give safety.
    pub lease_until: Timestamp,
}

/// An outer level owns the key (rule P2).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Mark {
    /// User or agent level.
    pub place: Place,
    /// Epoch of that ownership.
    pub epoch: u64,
}

/// Everything the ledger knows about one key of one user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeyState {
    /// Highest epoch ever given for the key.
    pub highest: u64,
    /// Marks of outer owners, by place.
    pub marks: Vec<Mark>,
    /// Claims, by place.
    pub claims: Vec<Claim>,
}

/// What became of a request for a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimVerdict {
    /// P1, P3: the key is the claimant's, at this epoch.
    Granted {
        /// Epoch for the write.
        epoch: u64,
    },
    /// P2: an outer level owns it.
    OwnedByOuter {
        /// Who.
        place: Place,
        /// Since which epoch.
        epoch: u64,
    },
    /// P5: a promotion is moving it.
    Sealed {
        /// Which.
        promotion_id: String,
        /// When the seal falls by itself.
        until: Timestamp,
    },
}

/// What became of a request for a seal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SealVerdict {
    /// P5: sealed, at this epoch.
    Sealed {
        /// Epoch of the seal.
        epoch: u64,
    },
    /// P5: another promotion is moving it.
    SealedByOther {
        /// Which.
        promotion_id: String,
        /// When the seal falls by itself.
        until: Timestamp,
    },
}

impl KeyState {
    /// Nothing left worth keeping: a claim made anew starts above the clock anyway.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.marks.is_empty()
    }

    /// The claim of a place.
    #[must_use]
    pub fn claim_of(&self, place: &Place) -> Option<&Claim> {
        self.claims.iter().find(|claim| claim.place == *place)
    }

    /// Drops what lapsed: leases and seals whose time is over.
    pub fn lapse(&mut self, now: Timestamp) {
        self.claims.retain(|claim| claim.lease_until > now);
        for claim in &mut self.claims {
            if matches!(&claim.state, ClaimState::Sealed { until, .. } if *until <= now) {
                claim.state = if self.marks.iter().any(|mark| claim.within.contains(&mark.place)) {
                    ClaimState::Overlay
                } else {
                    ClaimState::Owned
                };
            }
        }
    }

    /// Takes over what long-term memory says about the levels of `chain` it owns: the rows there are the authority, the
    /// marks only their shadow (rules P1, P2).
    pub fn reconcile(&mut self, chain: &Chain, owned: &[Mark]) {
        self.marks.retain(|mark| {
            !chain.holds(&mark.place)
                || writer(mark.place.level) != Layer::Longterm
                || owned.iter().any(|o| o.place == mark.place)
        });
        for mark in owned {
            self.mark(mark.clone());
        }
    }

    /// Asks for the key at the chain's own place (rule P2). `floor` is an epoch that a store has seen: the claim is made
    /// above it (rule P3). A claimant that holds the key keeps its epoch, so that its writes in flight stay valid.
    pub fn claim(&mut self, chain: &Chain, floor: u64, now: Timestamp, lease_until: Timestamp) -> ClaimVerdict {
        self.lapse(now);
        if let Some(mark) = self.marks.iter().find(|mark| chain.outer().contains(&mark.place)) {
            return ClaimVerdict::OwnedByOuter { place: mark.place.clone(), epoch: mark.epoch };
        }
        let outer = self.claims.iter().find(|claim| chain.outer().contains(&claim.place) && claim.state != ClaimState::Overlay);
        if let Some(outer) = outer {
            return ClaimVerdict::OwnedByOuter { place: outer.place.clone(), epoch: outer.epoch };
        }
        let fresh = next_epoch(self.highest.max(floor), now);
        match self.claims.iter_mut().find(|claim| claim.place == *chain.own()) {
            Some(Claim { state: ClaimState::Sealed { promotion_id, until }, .. }) => {
                ClaimVerdict::Sealed { promotion_id: promotion_id.clone(), until: *until }
            }
            Some(claim) => {
                if claim.epoch <= floor || claim.state == ClaimState::Overlay {
                    claim.epoch = fresh;
                }
                claim.state = ClaimState::Owned;
                claim.within = chain.outer().to_vec();
                // Renewed at half its time: a held claim costs the ledger no write at every call.
                if claim.lease_until.since(now) < lease_until.since(now) / 2 {
                    claim.lease_until = lease_until;
                }
                self.highest = self.highest.max(claim.epoch);
                ClaimVerdict::Granted { epoch: claim.epoch }
            }
            None => {
                self.insert(Claim {
                    place: chain.own().clone(),
                    within: chain.outer().to_vec(),
                    epoch: fresh,
                    state: ClaimState::Owned,
                    lease_until,
                });
                ClaimVerdict::Granted { epoch: fresh }
            }
        }
    }

    /// Enters a claim that was made while the ledger was down, at the store's own epoch (rule P4). Where an outer level
    /// owns the key by now the claim is an overlay.
    pub fn enter(&mut self, chain: &Chain, epoch: u64, now: Timestamp, lease_until: Timestamp) {
        self.lapse(now);
        if self.claim_of(chain.own()).is_some_and(|claim| claim.epoch >= epoch) {
            return;
        }
        self.claims.retain(|claim| claim.place != *chain.own());
        let marked = self.marks.iter().any(|mark| chain.outer().contains(&mark.place));
        self.insert(Claim {
            place: chain.own().clone(),
            within: chain.outer().to_vec(),
            epoch,
            state: if marked { ClaimState::Overlay } else { ClaimState::Owned },
            lease_until,
        });
    }

    fn insert(&mut self, claim: Claim) {
        self.highest = self.highest.max(claim.epoch);
        self.claims.push(claim);
        self.claims.sort_by(|a, b| a.place.cmp(&b.place));
    }

    /// An outer level owns the key now: claims below become read-only overlays until their scope ends (rule P2). A claim
    /// that is sealed by a promotion stays sealed until that promotion settles it.
    pub fn mark(&mut self, mark: Mark) {
        self.highest = self.highest.max(mark.epoch);
        for claim in &mut self.claims {
            if claim.within.contains(&mark.place) && claim.state == ClaimState::Owned {
                claim.state = ClaimState::Overlay;
            }
        }
        match self.marks.iter_mut().find(|known| known.place == mark.place) {
            Some(known) => known.epoch = known.epoch.max(mark.epoch),
            None => {
                self.marks.push(mark);
                self.marks.sort_by(|a, b| a.place.cmp(&b.place));
            }
        }
    }

    /// The outer level does not own the key any more. Overlays stay overlays: their value was not checked since.
    pub fn unmark(&mut self, place: &Place) {
        self.marks.retain(|mark| mark.place != *place);
    }

    /// Seals the chain's own claim at a new epoch (rule P5); the same promotion gets the same epoch again. A claim the
    /// ledger does not know (it was down, or lost) is made by the seal.
    pub fn seal(&mut self, chain: &Chain, promotion_id: &str, floor: u64, until: Timestamp, now: Timestamp) -> SealVerdict {
        self.lapse(now);
        let fresh = next_epoch(self.highest.max(floor), now);
        let sealed = ClaimState::Sealed { promotion_id: promotion_id.to_owned(), until };
        match self.claims.iter_mut().find(|claim| claim.place == *chain.own()) {
            Some(claim) => match &claim.state {
                ClaimState::Sealed { promotion_id: other, until } if other != promotion_id => {
                    return SealVerdict::SealedByOther { promotion_id: other.clone(), until: *until };
                }
                ClaimState::Sealed { .. } if claim.epoch > floor => return SealVerdict::Sealed { epoch: claim.epoch },
                ClaimState::Sealed { .. } | ClaimState::Owned | ClaimState::Overlay => {
                    claim.state = sealed;
                    claim.epoch = fresh;
                    claim.lease_until = claim.lease_until.max(until);
                }
            },
            None => self.insert(Claim {
                place: chain.own().clone(),
                within: chain.outer().to_vec(),
                epoch: fresh,
                state: sealed,
                lease_until: until,
            }),
        }
        self.highest = self.highest.max(fresh);
        SealVerdict::Sealed { epoch: fresh }
    }

    /// Ends a seal of `promotion_id` at `place` (rule P5). Committed: `outer` owns the key from `seal_epoch` on and the
    /// source's claim is gone, or stays as an overlay when the seal was gone already. Undone: the source goes on at a
    /// fresh epoch, which is returned. Idempotent.
    pub fn settle(&mut self, place: &Place, promotion_id: &str, committed: Option<Mark>, now: Timestamp) -> Option<u64> {
        let fresh = next_epoch(self.highest, now);
        let held = |claim: &Claim| matches!(&claim.state, ClaimState::Sealed { promotion_id: id, .. } if id == promotion_id);
        if let Some(mark) = committed {
            self.claims.retain(|claim| claim.place != *place || !held(claim));
            self.mark(mark);
            return None;
        }
        let claim = self.claims.iter_mut().find(|claim| claim.place == *place && held(claim))?;
        claim.epoch = fresh;
        let marked = self.marks.iter().any(|mark| claim.within.contains(&mark.place));
        claim.state = if marked { ClaimState::Overlay } else { ClaimState::Owned };
        self.highest = fresh;
        Some(fresh)
    }

    /// The scope ended: its claim is gone. The highest epoch stays while others hold the key.
    pub fn end(&mut self, place: &Place) {
        self.claims.retain(|claim| claim.place != *place);
    }
}

/// Asks for several keys at once, all or none, at one epoch: a write carries one (rule P10). On a refusal the states are
/// as far as the refused key and must not be stored.
///
/// # Errors
/// The position of the first key that is not granted, and its verdict.
pub fn claim_all(
    states: &mut [KeyState],
    chain: &Chain,
    floor: u64,
    now: Timestamp,
    lease_until: Timestamp,
) -> Result<u64, (usize, ClaimVerdict)> {
    let held = |state: &KeyState| {
        state
            .claim_of(chain.own())
            .filter(|claim| claim.state == ClaimState::Owned && claim.lease_until > now)
            .map(|claim| claim.epoch)
    };
    let common = states.first().and_then(held).filter(|epoch| *epoch > floor && states.iter().all(|s| held(s) == Some(*epoch)));
    let floor = match common {
        Some(_) => floor,
        None => states.iter().map(|s| next_epoch(s.highest.max(floor), now)).max().unwrap_or(1) - 1,
    };
    let mut epoch = 0;
    for (at, state) in states.iter_mut().enumerate() {
        match state.claim(chain, floor, now, lease_until) {
            ClaimVerdict::Granted { epoch: granted } => epoch = epoch.max(granted),
            refused @ (ClaimVerdict::OwnedByOuter { .. } | ClaimVerdict::Sealed { .. }) => return Err((at, refused)),
        }
    }
    Ok(epoch)
}

/// The refusal of a claim or of a long-term write: names owner, level, epoch and what to do (rule P2).
#[must_use]
pub fn owned_by(key: &str, place: &Place, epoch: u64) -> Fault {
    Fault::new(
        Reason::FactOwnedByOtherLayer,
        format!(
            "{key} is owned at {} level by {} memory; read it there, hold a reference to the record, or move a new value outwards with Promote",
            place.level.name(),
            writer(place.level).name(),
        ),
    )
    .with("key", key)
    .with("owner", place.id.clone())
    .with("level", place.level.name())
    .with("layer", writer(place.level).name())
    .with("epoch", epoch.to_string())
    .rule("P2", key, "a claim needs that no outer level owns the key")
}

/// The refusal of a write to a sealed fact (rule P5): wait until the promotion is settled or the seal falls.
#[must_use]
pub fn sealed_by(key: &str, promotion_id: &str, until: Timestamp, now: Timestamp) -> Fault {
    /// Promotions take milliseconds; a seal that is left over falls at its deadline.
    const SHORTEST_MS: i64 = 50;
    let wait = (until.since(now) / 1_000).clamp(SHORTEST_MS, 1_000);
    Fault::new(Reason::FactSealed, format!("{key} is being promoted; try again"))
        .with("key", key)
        .with("promotion_id", promotion_id)
        .rule("P5", key, "a sealed source is not written")
        .retry_after(u64::try_from(wait).unwrap_or_default())
}

/// One value of a key in a reading across levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Level it stands at.
    pub level: Level,
    /// When it was stated or checked.
    pub time: Timestamp,
    /// Whether an outer level owns the key while this value stands (rule P2).
    pub overlay: bool,
    /// Whether the user said it.
    pub from_user: bool,
}

/// Whether the inner value is shown rather than the outer one (rule P2): the innermost level wins, except that an
/// overlay older than an outer statement of the user loses to it.
#[must_use]
pub fn inner_wins(inner: &Reading, outer: &Reading) -> bool {
    !(inner.overlay && outer.from_user && outer.time > inner.time)
}

/// Which of two owners of one key at one level holds it (rule P3): the higher epoch. Two at all is a defect: the caller
/// raises the invariant alarm.
#[must_use]
pub const fn higher_epoch_wins(first: u64, second: u64) -> bool {
    first >= second
}

/// Whether a store carries out a call whose signed header names `header` as the owner's erase epoch (rule E2): nothing that
/// was signed before an erasure is carried out after it.
#[must_use]
pub const fn admits_erase_epoch(header: u64, stored: u64) -> bool {
    header >= stored
}

/// Named invariants of a [`KeyState`]: checked by property tests, and by the ledger after each step in debug builds.
pub mod invariant {
    use super::{ClaimState, KeyState};

    /// One place has one claim, and one mark.
    #[must_use]
    pub fn one_claim_per_place(state: &KeyState) -> bool {
        state.claims.windows(2).all(|pair| pair[0].place < pair[1].place)
            && state.marks.windows(2).all(|pair| pair[0].place < pair[1].place)
    }

    /// Nobody owns a key below a level that owns it: such claims are overlays, or sealed until their promotion settles.
    #[must_use]
    pub fn nobody_owns_below_a_mark(state: &KeyState) -> bool {
        state
            .claims
            .iter()
            .all(|claim| claim.state != ClaimState::Owned || !state.marks.iter().any(|mark| claim.within.contains(&mark.place)))
    }

    /// The highest epoch is at least every epoch in use.
    #[must_use]
    pub fn highest_is_highest(state: &KeyState) -> bool {
        state.claims.iter().all(|claim| claim.epoch <= state.highest)
            && state.marks.iter().all(|mark| mark.epoch <= state.highest)
    }

    /// A claim that changed hands or state of writing did so above every epoch given before (rule P3).
    #[must_use]
    pub fn epochs_grow(before: &KeyState, after: &KeyState) -> bool {
        after.claims.iter().all(|claim| match before.claim_of(&claim.place) {
            Some(old) => claim.epoch == old.epoch || claim.epoch > before.highest,
            None => claim.epoch > before.highest,
        })
    }

    /// The epoch of a key in a store never steps back (rule P3): `written` is that of what the store takes now.
    #[must_use]
    pub const fn stores_never_step_back(stored: u64, written: u64) -> bool {
        written >= stored
    }

    /// All of them that look at one state.
    #[must_use]
    pub fn hold(state: &KeyState) -> bool {
        one_claim_per_place(state) && nobody_owns_below_a_mark(state) && highest_is_highest(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AgentId, TenantId, UserId};
    use proptest::prelude::*;

    fn owner(agent: Option<&str>) -> Owner {
        Owner {
            tenant: TenantId::new("t").expect("id"),
            user: UserId::new("u").expect("id"),
            agent: agent.map(|a| AgentId::new(a).expect("id")),
        }
    }

    fn task_chain(agent: Option<&str>, session: Option<&str>, task: &str) -> Chain {
        let session = session.map(|s| SessionId::new(s).expect("id"));
        Chain::task(&owner(agent), session.as_ref(), &TaskId::new(task).expect("id"))
    }

    fn session_chain(session: &str) -> Chain {
        Chain::session(&owner(None), &SessionId::new(session).expect("id"))
    }

    const NOW: Timestamp = Timestamp(1_800_000_000_000_000);
    const LATER: Timestamp = Timestamp(1_800_000_100_000_000);

    fn epoch_of(verdict: &ClaimVerdict) -> u64 {
        let ClaimVerdict::Granted { epoch } = verdict else { panic!("not granted: {verdict:?}") };
        *epoch
    }

    #[test]
    fn a137_each_level_has_its_layer() {
        let table: Vec<_> = CHAIN.iter().map(|level| (level.name(), writer(*level).name())).collect();
        assert_eq!(table, [("user", "longterm"), ("agent", "longterm"), ("session", "session"), ("task", "working")]);
        assert!(CHAIN.windows(2).all(|pair| pair[0] < pair[1]), "outermost first, as the order of Level says");
    }

    #[test]
    fn a136_a_second_layer_is_refused_and_told_who_owns() {
        let mut state = KeyState::default();
        state.mark(Mark { place: Place::user(), epoch: 7 });
        let verdict = state.claim(&task_chain(None, None, "t1"), 0, NOW, LATER);
        assert_eq!(verdict, ClaimVerdict::OwnedByOuter { place: Place::user(), epoch: 7 });
        let fault = owned_by("home.city", &Place::user(), 7);
        assert_eq!(fault.reason, Reason::FactOwnedByOtherLayer);
        assert!(
            fault.metadata.contains(&("layer", "longterm".to_owned())) && fault.metadata.contains(&("epoch", "7".to_owned()))
        );
    }

    #[test]
    fn an_agent_mark_binds_that_agent_only() {
        let mut state = KeyState::default();
        state.mark(Mark { place: Place::new(Level::Agent, "a1"), epoch: 7 });
        assert!(matches!(state.claim(&task_chain(Some("a1"), None, "t1"), 0, NOW, LATER), ClaimVerdict::OwnedByOuter { .. }));
        assert!(matches!(state.claim(&task_chain(Some("a2"), None, "t2"), 0, NOW, LATER), ClaimVerdict::Granted { .. }));
        assert!(matches!(state.claim(&task_chain(None, None, "t3"), 0, NOW, LATER), ClaimVerdict::Granted { .. }));
    }

    #[test]
    fn a_session_claim_binds_its_own_tasks_only() {
        let mut state = KeyState::default();
        let session = state.claim(&session_chain("s1"), 0, NOW, LATER);
        assert!(matches!(state.claim(&task_chain(None, Some("s1"), "t1"), 0, NOW, LATER),
            ClaimVerdict::OwnedByOuter { place, epoch } if place.level == Level::Session && epoch == epoch_of(&session)));
        assert!(matches!(state.claim(&task_chain(None, Some("s2"), "t2"), 0, NOW, LATER), ClaimVerdict::Granted { .. }));
    }

    #[test]
    fn a_holder_keeps_its_epoch_and_claims_again_above_a_stale_one() {
        let mut state = KeyState::default();
        let chain = task_chain(None, None, "t1");
        let first = epoch_of(&state.claim(&chain, 0, NOW, LATER));
        assert_eq!(epoch_of(&state.claim(&chain, 0, NOW.plus(1), LATER.plus(9))), first);
        let untouched = state.clone();
        state.claim(&chain, 0, NOW.plus(2), LATER.plus(9));
        assert_eq!(state, untouched, "a held claim is renewed at half its time, not at every call");
        state.claim(&chain, 0, LATER.plus(-1), LATER.plus(999));
        assert_eq!(state.claim_of(chain.own()).map(|c| (c.epoch, c.lease_until)), Some((first, LATER.plus(999))));
        let mut state = untouched;
        assert_ne!(epoch_of(&state.claim(&chain, 0, LATER.plus(9), LATER.plus(99))), first, "the lease lapsed");
        // The ledger was lost and the clock stands still: the store's epoch is the floor.
        let mut lost = KeyState::default();
        assert_eq!(epoch_of(&lost.claim(&chain, first + 5, NOW, LATER)), first + 6);
    }

    #[test]
    fn a_mark_makes_claims_overlays_and_they_are_read_only() {
        let mut state = KeyState::default();
        let chain = task_chain(None, None, "t1");
        state.claim(&chain, 0, NOW, LATER);
        state.mark(Mark { place: Place::user(), epoch: 9 });
        assert_eq!(state.claim_of(chain.own()).map(|c| c.state.clone()), Some(ClaimState::Overlay));
        assert!(matches!(state.claim(&chain, 0, NOW, LATER), ClaimVerdict::OwnedByOuter { .. }));
        // Long-term memory says it does not own the key any more: the key can be claimed again, at a new epoch.
        let before = state.clone();
        state.reconcile(&chain, &[]);
        assert!(matches!(state.claim(&chain, 0, NOW, LATER), ClaimVerdict::Granted { .. }));
        assert!(invariant::epochs_grow(&before, &state));
    }

    #[test]
    fn a_seal_refuses_writes_until_it_is_settled_or_falls() {
        let mut state = KeyState::default();
        let chain = task_chain(None, None, "t1");
        let owned = epoch_of(&state.claim(&chain, 0, NOW, LATER));
        let SealVerdict::Sealed { epoch } = state.seal(&chain, "p1", 0, NOW.plus(10), NOW) else { panic!("sealed") };
        assert!(epoch > owned);
        assert_eq!(state.seal(&chain, "p1", 0, NOW.plus(10), NOW), SealVerdict::Sealed { epoch }, "idempotent");
        assert!(matches!(state.seal(&chain, "p2", 0, NOW.plus(10), NOW), SealVerdict::SealedByOther { .. }));
        assert!(matches!(state.claim(&chain, 0, NOW, LATER), ClaimVerdict::Sealed { .. }));
        let mut undone = state.clone();
        let fresh = undone.settle(chain.own(), "p1", None, NOW).expect("was sealed");
        assert!(fresh > epoch);
        assert_eq!(undone.settle(chain.own(), "p1", None, NOW), None, "idempotent");
        let mut committed = state.clone();
        committed.settle(chain.own(), "p1", Some(Mark { place: Place::user(), epoch }), NOW);
        assert_eq!(committed.claim_of(chain.own()), None);
        assert!(matches!(committed.claim(&chain, 0, NOW, LATER), ClaimVerdict::OwnedByOuter { .. }));
        assert!(matches!(state.claim(&chain, 0, NOW.plus(10), LATER), ClaimVerdict::Granted { .. }), "the seal fell");
        assert_eq!(sealed_by("k", "p1", NOW.plus(10), NOW).retry_after_ms, Some(50));
    }

    #[test]
    fn the_innermost_value_wins_unless_it_is_an_overlay_older_than_the_users_words() {
        let inner = Reading { level: Level::Task, time: NOW, overlay: true, from_user: false };
        let outer = Reading { level: Level::User, time: LATER, overlay: false, from_user: true };
        assert!(!inner_wins(&inner, &outer));
        assert!(inner_wins(&Reading { overlay: false, ..inner }, &outer));
        assert!(inner_wins(&inner, &Reading { from_user: false, ..outer }));
        assert!(inner_wins(&inner, &Reading { time: NOW, ..outer }));
    }

    #[test]
    fn several_keys_share_one_epoch() {
        let chain = task_chain(None, None, "t1");
        let mut states = vec![KeyState::default(), KeyState { highest: NOW.0.unsigned_abs() + 50, ..KeyState::default() }];
        let first = claim_all(&mut states, &chain, 0, NOW, LATER).expect("granted");
        assert_eq!(first, NOW.0.unsigned_abs() + 51);
        assert!(states.iter().all(|s| s.claim_of(chain.own()).is_some_and(|c| c.epoch == first)));
        assert_eq!(claim_all(&mut states, &chain, 0, NOW.plus(5), LATER), Ok(first), "held already");
        states.push(KeyState::default());
        let second = claim_all(&mut states, &chain, 0, NOW.plus(5), LATER).expect("granted");
        assert!(second > first && states.iter().all(|s| s.claim_of(chain.own()).is_some_and(|c| c.epoch == second)));
        states[1].mark(Mark { place: Place::user(), epoch: 7 });
        assert!(matches!(claim_all(&mut states, &chain, 0, NOW, LATER), Err((1, ClaimVerdict::OwnedByOuter { .. }))));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Claim(u8, u64),
        Enrol(u8),
        Mark(u8),
        Unmark(u8),
        Seal(u8, u8),
        Settle(u8, u8, bool),
        End(u8),
        Enter(u8),
        Pass(i64),
        Rewind(i64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0..4_u8, 0..3_u64).prop_map(|(t, f)| Step::Claim(t, f)),
            (0..2_u8).prop_map(Step::Enrol),
            (0..3_u8).prop_map(Step::Mark),
            (0..3_u8).prop_map(Step::Unmark),
            (0..4_u8, 0..3_u8).prop_map(|(t, p)| Step::Seal(t, p)),
            (0..4_u8, 0..3_u8, any::<bool>()).prop_map(|(t, p, c)| Step::Settle(t, p, c)),
            (0..4_u8).prop_map(Step::End),
            (0..4_u8).prop_map(Step::Enter),
            (1..20_000_000_i64).prop_map(Step::Pass),
            (1..20_000_000_i64).prop_map(Step::Rewind),
        ];
        proptest::collection::vec(step, 1..60)
    }

    proptest! {
        /// Whatever happens, in whatever order, with a clock that steps back: epochs only grow and nobody owns below a
        /// mark. Two claimants of one chain never hold the key at once.
        #[test]
        fn the_invariants_hold_after_every_step(steps in steps()) {
            let mut state = KeyState::default();
            let mut now = NOW;
            // Tasks 0, 1 belong to session s0, agent a0; 2 to s1; 3 to no session.
            let chain = |task: u8| match task {
                0 | 1 => task_chain(Some("a0"), Some("s0"), &format!("t{task}")),
                2 => task_chain(Some("a1"), Some("s1"), "t2"),
                _ => task_chain(None, None, "t3"),
            };
            let outer = |n: u8| match n { 0 => Place::user(), n => Place::new(Level::Agent, format!("a{}", n - 1)) };
            for step in steps {
                let before = state.clone();
                match step {
                    Step::Claim(t, floor) => {
                        let verdict = state.claim(&chain(t), if floor == 0 { 0 } else { state.highest + floor }, now, now.plus(30_000_000));
                        if let ClaimVerdict::Granted { epoch } = verdict {
                            let owners = state.claims.iter().filter(|c| chain(t).holds(&c.place) && c.state != ClaimState::Overlay).count();
                            prop_assert_eq!(owners, 1);
                            prop_assert!(epoch <= state.highest);
                        }
                    }
                    Step::Enrol(s) => { state.claim(&session_chain(&format!("s{s}")), 0, now, now.plus(60_000_000)); }
                    Step::Mark(n) => state.mark(Mark { place: outer(n), epoch: state.highest + 1 }),
                    Step::Unmark(n) => state.unmark(&outer(n)),
                    Step::Seal(t, p) => { state.seal(&chain(t), &format!("p{p}"), 0, now.plus(10_000_000), now); }
                    Step::Settle(t, p, committed) => {
                        let mark = committed.then(|| Mark { place: Place::user(), epoch: state.highest });
                        state.settle(chain(t).own(), &format!("p{p}"), mark, now);
                    }
                    Step::End(t) => state.end(chain(t).own()),
                    Step::Enter(t) => state.enter(&chain(t), next_epoch(state.highest, now), now, now.plus(30_000_000)),
                    Step::Pass(micros) => now = now.plus(micros),
                    Step::Rewind(micros) => now = now.plus(-micros),
                }
                prop_assert!(invariant::hold(&state), "{:?}", state);
                prop_assert!(invariant::epochs_grow(&before, &state), "{:?} -> {:?}", before, state);
                prop_assert!(state.highest >= before.highest);
            }
        }

        /// A lost ledger heals by itself: the next claim is above the store's epoch, whatever the clock says.
        #[test]
        fn a_lost_ledger_heals(seen in 0..u64::MAX / 2, clock in i64::MIN..i64::MAX) {
            let mut state = KeyState::default();
            let epoch = epoch_of(&state.claim(&task_chain(None, None, "t"), seen, Timestamp(clock), Timestamp(i64::MAX)));
            prop_assert!(epoch > seen);
            prop_assert!(i128::from(epoch) >= i128::from(clock));
        }
    }
}
