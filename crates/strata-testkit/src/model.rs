//! The conflict rules of long-term memory as a page of plain code, to compare the real store with: the same statements go
//! into both, in any order, and both must give the same answers. It knows no time but the statements' own, no text but
//! their values, and stores everything in one list.
//!
//! Covered: G10 (the same statement again), K1, K2, K4, K5, K6, K10, K11, rejection, forgetting and restoring. Whether a
//! statement may become ACTIVE at all is the gate's verdict and comes with it ([`Statement::passes`]).

use std::collections::{BTreeMap, BTreeSet};

/// How much a source counts, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rank {
    /// MODEL_INFERENCE.
    Inference,
    /// OBSERVATION, REVIEW.
    Observation,
    /// AUTHORITATIVE_SYSTEM. First of all on a key that is system-owned.
    System,
    /// USER_CORRECTION, USER_CONFIRMATION, USER_STATEMENT.
    User,
}

/// Who competes with whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Replaced on conflict.
    Stable,
    /// Replaced on conflict among its own; overlays STABLE (K10).
    Temporary,
    /// Append only (K6).
    Event,
}

/// Where values compete: one owner level, one key, one tier. A key that ends with `[]` is a set (K11).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// Owner level, as one name.
    pub owner: String,
    /// Key.
    pub key: String,
    /// Tier.
    pub tier: Tier,
}

impl Slot {
    /// A slot.
    #[must_use]
    pub fn new(owner: &str, key: &str, tier: Tier) -> Self {
        Self { owner: owner.to_owned(), key: key.to_owned(), tier }
    }

    /// Whether at most one value is ACTIVE.
    #[must_use]
    pub fn is_single(&self) -> bool {
        self.tier != Tier::Event && !self.key.ends_with("[]")
    }
}

/// When something was said: (session time in microseconds, turn number). Order of arrival is another thing.
pub type Said = (i64, u64);

/// One statement about a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Where it came from.
    pub rank: Rank,
    /// When it was said.
    pub said: Said,
    /// The value, in normal form: equal texts are the same statement.
    pub value: String,
    /// The gate's verdict over the record's whole evidence, this statement included: whether it may become ACTIVE.
    pub passes: bool,
    /// In a set: the value that this one corrects (K11).
    pub replaces: Option<String>,
}

impl Statement {
    /// A statement of the user that passes the gate.
    #[must_use]
    pub fn user(said: Said, value: &str) -> Self {
        Self { rank: Rank::User, said, value: value.to_owned(), passes: true, replaces: None }
    }

    /// The same from another source; an inference and an observation never pass by themselves (G2).
    #[must_use]
    pub fn from_rank(self, rank: Rank) -> Self {
        Self { rank, passes: rank >= Rank::System, ..self }
    }

    /// The same as a correction of `value` in a set.
    #[must_use]
    pub fn replacing(self, value: &str) -> Self {
        Self { replaces: Some(value.to_owned()), ..self }
    }
}

/// State of a record, as far as conflicts know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Waits.
    Candidate,
    /// Holds.
    Active,
    /// Two inferences disagree (K4).
    Disputed,
    /// Held, or would have held, before another.
    Superseded,
    /// Rejected by the user.
    Rejected,
    /// Softly forgotten.
    Deleted,
}

/// What a statement, a confirmation or a restoration came to, with the rule that decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// State of the record afterwards.
    pub state: State,
    /// Rule id; G2 for what waits though nothing else holds the slot. Rule K3 shows as K2: the model knows no `confirmed`.
    pub rule: &'static str,
}

#[derive(Clone, Debug)]
struct Record {
    slot: Slot,
    value: String,
    state: State,
    /// State to go back to when restored.
    before_deletion: State,
    /// Strongest rank of each turn that supports it.
    evidence: BTreeMap<Said, Rank>,
    rejected_at: Option<Said>,
    /// Index of its successor: set where it is SUPERSEDED.
    superseded_by: Option<usize>,
}

impl Record {
    fn rank(&self) -> Rank {
        *self.evidence.values().max().expect("a record begins with a statement")
    }

    /// When it was last said with its full weight: a weak echo later on does not make it newer.
    fn said(&self) -> Said {
        let strongest = self.rank();
        let of_strongest = self.evidence.iter().filter(|(_, rank)| **rank == strongest);
        *of_strongest.map(|(said, _)| said).max().expect("a record begins with a statement")
    }
}

/// The reference model.
#[derive(Clone, Debug, Default)]
pub struct ReferenceStore {
    records: Vec<Record>,
    /// (owner, key) that a system has written.
    system_owned: BTreeSet<(String, String)>,
    /// Keys that the registry leaves to the user.
    user_authority: BTreeSet<String>,
}

impl ReferenceStore {
    /// An empty model in which no system ever owns `keys` (registry: `authority = user`).
    #[must_use]
    pub fn with_user_authority<'a>(keys: impl IntoIterator<Item = &'a str>) -> Self {
        Self { user_authority: keys.into_iter().map(str::to_owned).collect(), ..Self::default() }
    }

    /// Takes a statement in, in order of arrival.
    pub fn state(&mut self, slot: &Slot, statement: &Statement) -> Verdict {
        // A system takes the key over with its first write, unless the registry leaves the key to the user.
        if statement.rank == Rank::System && statement.passes && !self.user_authority.contains(&slot.key) {
            self.system_owned.insert((slot.owner.clone(), slot.key.clone()));
        }
        match self.twin(slot, statement) {
            Some(twin) => self.repeat(twin, statement),
            None => self.create(slot, statement),
        }
    }

    /// The user rejects the CANDIDATE or DISPUTED `value`, at `said`. False when there is none.
    pub fn reject(&mut self, slot: &Slot, value: &str, said: Said) -> bool {
        let open = |r: &Record| matches!(r.state, State::Candidate | State::Disputed);
        let Some(index) = self.find(slot, |r| r.value == value && open(r)) else { return false };
        self.records[index].state = State::Rejected;
        self.records[index].rejected_at = Some(said);
        true
    }

    /// Softly forgets the record of `value` that is ACTIVE, CANDIDATE or DISPUTED. Its predecessor stays SUPERSEDED. False
    /// when there is none.
    pub fn forget(&mut self, slot: &Slot, value: &str) -> bool {
        let live = |r: &Record| matches!(r.state, State::Active | State::Candidate | State::Disputed);
        let Some(index) = self.find(slot, |r| r.value == value && live(r)) else { return false };
        let record = &mut self.records[index];
        record.before_deletion = record.state;
        record.state = State::Deleted;
        true
    }

    /// Restores the last forgotten record of `value` to the state it had; a move into ACTIVE runs the conflict rules. None
    /// when there is none, or when the same value is live again (G10: it stays forgotten).
    pub fn restore(&mut self, slot: &Slot, value: &str) -> Option<Verdict> {
        let of_value = |r: &Record| r.slot == *slot && r.value == value;
        let index = self.records.iter().rposition(|r| of_value(r) && r.state == State::Deleted)?;
        let live = |r: &Record| of_value(r) && counts_as_twin(r.state);
        if slot.tier != Tier::Event && self.records.iter().any(live) {
            return None;
        }
        let before = self.records[index].before_deletion;
        self.records[index].state = before;
        Some(if before == State::Active { self.activate(index, None) } else { Verdict { state: before, rule: "E1" } })
    }

    /// The value that holds in a single slot.
    #[must_use]
    pub fn active(&self, slot: &Slot) -> Option<&str> {
        self.find(slot, |r| r.state == State::Active).map(|i| self.records[i].value.as_str())
    }

    /// Every value that holds, in the order they were said: one in a single slot, any number in a set or among events.
    #[must_use]
    pub fn all_active(&self, slot: &Slot) -> Vec<&str> {
        self.by_time(slot, |r| r.state == State::Active)
    }

    /// The value a reader sees for a key: the TEMPORARY one, else the STABLE one (K10).
    #[must_use]
    pub fn visible(&self, owner: &str, key: &str) -> Option<&str> {
        self.active(&Slot::new(owner, key, Tier::Temporary)).or_else(|| self.active(&Slot::new(owner, key, Tier::Stable)))
    }

    /// The chain of a single slot, oldest first by the time of the statements: what held, or would have, and what holds.
    #[must_use]
    pub fn chain(&self, slot: &Slot) -> Vec<&str> {
        self.by_time(slot, |r| matches!(r.state, State::Active | State::Superseded))
    }

    /// What waits for the user, CANDIDATE or DISPUTED, sorted by value.
    #[must_use]
    pub fn candidates(&self, slot: &Slot) -> Vec<(&str, State)> {
        let open = self.records.iter().filter(|r| r.slot == *slot);
        let open = open.filter(|r| matches!(r.state, State::Candidate | State::Disputed));
        let mut open: Vec<_> = open.map(|r| (r.value.as_str(), r.state)).collect();
        open.sort_unstable();
        open
    }

    /// Number of turns that support the live record of `value`; 0 when there is none.
    #[must_use]
    pub fn evidence(&self, slot: &Slot, value: &str) -> usize {
        self.find(slot, |r| r.value == value && counts_as_twin(r.state)).map_or(0, |i| self.records[i].evidence.len())
    }

    /// What must hold after every step.
    ///
    /// # Errors
    /// The first thing that does not.
    pub fn check(&self) -> Result<(), String> {
        let mut successors = BTreeSet::new();
        for (index, record) in self.records.iter().enumerate() {
            let slot = &record.slot;
            if slot.is_single() && self.all_active(slot).len() > 1 {
                return Err(format!("two ACTIVE values in {slot:?}"));
            }
            let same = |r: &&Record| r.slot == *slot && r.value == record.value && counts_as_twin(r.state);
            if slot.tier != Tier::Event && self.records.iter().filter(same).count() > 1 {
                return Err(format!("two live records of one value in {slot:?}"));
            }
            if (record.state == State::Superseded) != record.superseded_by.is_some() {
                return Err(format!("record {index} is {:?} with successor {:?}", record.state, record.superseded_by));
            }
            if slot.is_single() && record.superseded_by.is_some_and(|successor| !successors.insert(successor)) {
                return Err(format!("the chain of {slot:?} forks"));
            }
        }
        Ok(())
    }

    /// G10: the live record that says the same; for an EVENT also in the same turn.
    fn twin(&self, slot: &Slot, statement: &Statement) -> Option<usize> {
        self.find(slot, |r| {
            r.value == statement.value
                && counts_as_twin(r.state)
                && (slot.tier != Tier::Event || r.evidence.contains_key(&statement.said))
        })
    }

    /// G10: evidence once per turn; the record rises to its strongest evidence, and what now passes becomes ACTIVE.
    fn repeat(&mut self, index: usize, statement: &Statement) -> Verdict {
        let record = &mut self.records[index];
        let rank = record.evidence.entry(statement.said).or_insert(statement.rank);
        *rank = (*rank).max(statement.rank);
        let reopens = statement.rank == Rank::User && record.rejected_at.is_some_and(|at| statement.said > at);
        if record.state == State::Rejected && reopens {
            record.state = State::Candidate;
        }
        match record.state {
            State::Candidate | State::Disputed if statement.passes => self.activate(index, statement.replaces.as_deref()),
            state @ (State::Candidate
            | State::Disputed
            | State::Active
            | State::Superseded
            | State::Rejected
            | State::Deleted) => Verdict { state, rule: "G10" },
        }
    }

    fn create(&mut self, slot: &Slot, statement: &Statement) -> Verdict {
        self.records.push(Record {
            slot: slot.clone(),
            value: statement.value.clone(),
            state: State::Candidate,
            before_deletion: State::Candidate,
            evidence: BTreeMap::from([(statement.said, statement.rank)]),
            rejected_at: None,
            superseded_by: None,
        });
        let index = self.records.len() - 1;
        if statement.passes { self.activate(index, statement.replaces.as_deref()) } else { self.queue(index) }
    }

    /// A statement that may not become ACTIVE: CANDIDATE, or DISPUTED with the other inferences of the slot (K4).
    fn queue(&mut self, index: usize) -> Verdict {
        let slot = self.records[index].slot.clone();
        let inferred = |r: &Record| {
            let open = matches!(r.state, State::Candidate | State::Disputed);
            r.slot == slot && open && r.rank() == Rank::Inference
        };
        let rivals: Vec<usize> = (0..self.records.len()).filter(|i| inferred(&self.records[*i])).collect();
        if slot.is_single() && rivals.len() > 1 && rivals.contains(&index) {
            for rival in rivals {
                self.records[rival].state = State::Disputed;
            }
            return Verdict { state: State::Disputed, rule: "K4" };
        }
        let rule = match (slot.tier, slot.is_single()) {
            (Tier::Event, _) => "G2",
            (Tier::Stable | Tier::Temporary, false) => "K11",
            (Tier::Stable | Tier::Temporary, true) if self.active(&slot).is_some() => "K2",
            (Tier::Stable | Tier::Temporary, true) => "G2",
        };
        Verdict { state: State::Candidate, rule }
    }

    /// A move into ACTIVE: the conflict rules.
    fn activate(&mut self, index: usize, replaces: Option<&str>) -> Verdict {
        let slot = self.records[index].slot.clone();
        let verdict = if slot.tier == Tier::Event {
            Verdict { state: State::Active, rule: "K6" }
        } else if slot.is_single() {
            self.contend(&slot, index)
        } else {
            self.join_set(&slot, index, replaces);
            Verdict { state: State::Active, rule: "K11" }
        };
        self.records[index].state = verdict.state;
        if slot.is_single() {
            self.relink(&slot);
        }
        verdict
    }

    /// K1, K2, K5: against the value that holds, rank before time.
    fn contend(&mut self, slot: &Slot, index: usize) -> Verdict {
        let holder = (0..self.records.len())
            .find(|i| *i != index && self.records[*i].slot == *slot && self.records[*i].state == State::Active);
        let Some(holder) = holder else { return Verdict { state: State::Active, rule: "K1" } };
        if self.weight(index) < self.weight(holder) {
            return Verdict { state: State::Candidate, rule: "K2" };
        }
        if self.records[index].said() < self.records[holder].said() {
            return Verdict { state: State::Superseded, rule: "K5" };
        }
        self.records[holder].state = State::Superseded;
        Verdict { state: State::Active, rule: "K1" }
    }

    /// K11: side by side; a correction ends the value it names, unless that has a stronger source or was said since.
    fn join_set(&mut self, slot: &Slot, index: usize, replaces: Option<&str>) {
        let named = self.find(slot, |r| r.state == State::Active && replaces == Some(r.value.as_str()));
        if let Some(named) = named
            && named != index
            && self.weight(index) >= self.weight(named)
            && self.records[index].said() >= self.records[named].said()
        {
            self.records[named].state = State::Superseded;
            self.records[named].superseded_by = Some(index);
        }
    }

    /// Renews the links of a single slot's chain: each SUPERSEDED record leads to the next one by time.
    fn relink(&mut self, slot: &Slot) {
        let mut chain: Vec<usize> = (0..self.records.len()).filter(|i| self.records[*i].slot == *slot).collect();
        // A successor that was forgotten still is one.
        chain.retain(|i| match self.records[*i].state {
            State::Active | State::Superseded => true,
            State::Deleted => self.records[*i].before_deletion == State::Active,
            State::Candidate | State::Disputed | State::Rejected => false,
        });
        // What holds comes last, whatever was said after it and then forgotten.
        chain.sort_by_key(|i| (self.records[*i].state == State::Active, self.records[*i].said(), *i));
        for (position, i) in chain.iter().enumerate() {
            let superseded = self.records[*i].state == State::Superseded;
            self.records[*i].superseded_by = if superseded { chain.get(position + 1).copied() } else { None };
        }
    }

    /// Rank of a record, with the system first on a key that it owns.
    fn weight(&self, index: usize) -> (bool, Rank) {
        let record = &self.records[index];
        let owned = self.system_owned.contains(&(record.slot.owner.clone(), record.slot.key.clone()));
        let by_system = record.evidence.values().any(|rank| *rank == Rank::System);
        (owned && by_system, record.rank())
    }

    fn find(&self, slot: &Slot, meets: impl Fn(&Record) -> bool) -> Option<usize> {
        self.records.iter().position(|r| r.slot == *slot && meets(r))
    }

    fn by_time(&self, slot: &Slot, meets: impl Fn(&Record) -> bool) -> Vec<&str> {
        let mut found: Vec<&Record> = self.records.iter().filter(|r| r.slot == *slot && meets(r)).collect();
        found.sort_by_key(|r| r.said());
        found.into_iter().map(|r| r.value.as_str()).collect()
    }
}

/// States over which a statement is unique (G10).
const fn counts_as_twin(state: State) -> bool {
    matches!(state, State::Candidate | State::Active | State::Disputed | State::Rejected)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn city() -> Slot {
        Slot::new("t1/u1", "profile.city", Tier::Stable)
    }

    fn user(time: i64, value: &str) -> Statement {
        Statement::user((time, 1), value)
    }

    #[test]
    fn k1_newer_supersedes_and_nothing_is_lost() {
        let mut store = ReferenceStore::default();
        assert_eq!(store.state(&city(), &user(1, "Shanghai")), Verdict { state: State::Active, rule: "K1" });
        assert_eq!(store.state(&city(), &user(2, "Hangzhou")), Verdict { state: State::Active, rule: "K1" });
        assert_eq!(store.active(&city()), Some("Hangzhou"));
        store.state(&city(), &user(3, "Shanghai"));
        assert_eq!(store.chain(&city()), ["Shanghai", "Hangzhou", "Shanghai"], "a return is a new record");
        store.check().expect("consistent");
    }

    #[test]
    fn k2_a_lower_rank_waits() {
        let mut store = ReferenceStore::default();
        store.state(&city(), &user(1, "a"));
        let system = user(2, "b").from_rank(Rank::System);
        let mut by_user = ReferenceStore::with_user_authority(["profile.city"]);
        by_user.state(&city(), &user(1, "a"));
        assert_eq!(by_user.state(&city(), &system), Verdict { state: State::Candidate, rule: "K2" });
        assert_eq!((by_user.active(&city()), by_user.candidates(&city())), (Some("a"), vec![("b", State::Candidate)]));
        assert_eq!(store.state(&city(), &system).rule, "K1", "the system owns the key now");
        assert_eq!(store.state(&city(), &user(3, "c")).state, State::Candidate, "talk never rewrites it");
        assert_eq!(store.active(&city()), Some("b"));
    }

    #[test]
    fn k4_two_inferences_dispute_until_the_user_speaks() {
        let mut store = ReferenceStore::default();
        let inferred = |time, value| user(time, value).from_rank(Rank::Inference);
        store.state(&city(), &inferred(1, "a"));
        assert_eq!(store.state(&city(), &inferred(2, "b")), Verdict { state: State::Disputed, rule: "K4" });
        assert_eq!(store.candidates(&city()), [("a", State::Disputed), ("b", State::Disputed)]);
        assert_eq!(store.state(&city(), &user(3, "b")).state, State::Active);
        assert_eq!(store.evidence(&city(), "b"), 2);
    }

    #[test]
    fn g10_repeats_count_once_a_turn_and_refresh_by_their_strongest() {
        let mut store = ReferenceStore::default();
        store.state(&city(), &user(1, "a"));
        for _ in 0..3 {
            assert_eq!(store.state(&city(), &user(10, "a")), Verdict { state: State::Active, rule: "G10" });
        }
        assert_eq!(store.evidence(&city(), "a"), 2);
        assert_eq!(store.state(&city(), &user(5, "b")).rule, "K5", "said again after it");
        assert_eq!(store.chain(&city()), ["b", "a"]);
        store.state(&city(), &user(20, "a").from_rank(Rank::Inference));
        assert_eq!(store.state(&city(), &user(15, "c")).rule, "K1", "an echo of a model does not count as said again");
        store.check().expect("consistent");
    }

    #[test]
    fn a_rejected_value_reopens_for_a_later_user_turn_only() {
        let mut store = ReferenceStore::default();
        let inferred = |time| user(time, "a").from_rank(Rank::Inference);
        store.state(&city(), &inferred(1));
        assert!(store.reject(&city(), "a", (5, 1)) && !store.reject(&city(), "a", (5, 1)));
        assert_eq!(store.state(&city(), &inferred(9)).state, State::Rejected);
        assert_eq!(store.state(&city(), &user(4, "a")).state, State::Rejected);
        assert_eq!(store.state(&city(), &user(6, "a")).state, State::Active);
    }

    #[test]
    fn k11_sets_and_k6_events_keep_values_side_by_side() {
        let mut store = ReferenceStore::default();
        let allergy = Slot::new("t1/u1", "allergy[]", Tier::Stable);
        store.state(&allergy, &user(1, "peanut"));
        assert_eq!(store.state(&allergy, &user(2, "shrimp")).rule, "K11");
        assert_eq!(store.state(&allergy, &user(3, "crab").replacing("shrimp")).rule, "K11");
        assert_eq!(store.all_active(&allergy), ["peanut", "crab"]);
        let trip = Slot::new("t1/u1", "trip", Tier::Event);
        for (time, value) in [(1, "Rome"), (2, "Rome"), (2, "Rome")] {
            store.state(&trip, &user(time, value));
        }
        assert_eq!(store.all_active(&trip), ["Rome", "Rome"], "the same turn again is no new event");
        store.check().expect("consistent");
    }

    #[test]
    fn k10_a_temporary_value_overlays_and_owners_stay_apart() {
        let mut store = ReferenceStore::default();
        let temporary = Slot { tier: Tier::Temporary, ..city() };
        store.state(&city(), &user(1, "Shanghai"));
        store.state(&temporary, &user(2, "Paris"));
        assert_eq!(store.visible("t1/u1", "profile.city"), Some("Paris"));
        assert_eq!(store.active(&city()), Some("Shanghai"));
        assert!(store.forget(&temporary, "Paris"));
        assert_eq!(store.visible("t1/u1", "profile.city"), Some("Shanghai"));
        assert_eq!(store.visible("t1/u10", "profile.city"), None);
    }

    #[test]
    fn forgetting_restores_nothing_older_and_restoring_runs_the_rules() {
        let mut store = ReferenceStore::default();
        store.state(&city(), &user(1, "a"));
        store.state(&city(), &user(3, "b"));
        assert!(store.forget(&city(), "b"));
        assert_eq!((store.active(&city()), store.chain(&city())), (None, vec!["a"]));
        assert_eq!(store.restore(&city(), "b").map(|v| v.state), Some(State::Active));
        store.forget(&city(), "b");
        store.state(&city(), &user(5, "c"));
        assert_eq!(store.restore(&city(), "b"), Some(Verdict { state: State::Superseded, rule: "K5" }));
        assert_eq!((store.active(&city()), store.chain(&city())), (Some("c"), vec!["a", "b", "c"]));
        store.forget(&city(), "c");
        store.state(&city(), &user(6, "c"));
        assert_eq!(store.restore(&city(), "c"), None, "the same value is live again");
        store.check().expect("consistent");
    }

    /// Every order of arrival.
    fn permutations<T: Clone>(items: &[T]) -> Vec<Vec<T>> {
        if items.len() < 2 {
            return vec![items.to_vec()];
        }
        let with_first = |first: usize| {
            let mut rest = items.to_vec();
            let head = rest.remove(first);
            permutations(&rest).into_iter().map(move |tail| [vec![head.clone()], tail].concat())
        };
        (0..items.len()).flat_map(with_first).collect()
    }

    #[test]
    fn the_last_word_of_the_user_holds_in_every_order_of_arrival() {
        let said = [user(1, "a"), user(2, "b"), user(3, "a"), user(4, "c"), user(5, "b"), user(6, "a")];
        for order in permutations(&said) {
            let mut store = ReferenceStore::default();
            for statement in &order {
                store.state(&city(), statement);
                store.check().expect("consistent after each step");
            }
            assert_eq!(store.active(&city()), Some("a"), "{order:?}");
            assert_eq!(store.chain(&city()).last(), Some(&"a"));
            assert!(store.candidates(&city()).is_empty());
        }
    }

    #[test]
    fn random_walks_keep_the_invariants() {
        for seed in 0..2_000_u64 {
            let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut draw = |below: u64| {
                // xorshift64: enough to wander, and the seed in the message repeats the walk.
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random % below
            };
            let mut store = ReferenceStore::default();
            let mut steps = Vec::new();
            for _ in 0..24 {
                let key = ["profile.city", "allergy[]"][draw(2) as usize];
                let slot = Slot::new("t1/u1", key, [Tier::Stable, Tier::Temporary, Tier::Event][draw(3) as usize]);
                let value = ["a", "b", "c"][draw(3) as usize];
                let said = (draw(9) as i64, draw(2));
                let rank = [Rank::Inference, Rank::Observation, Rank::System, Rank::User][draw(4) as usize];
                let step = draw(8);
                steps.push((step, slot.clone(), value, said, rank));
                match step {
                    0 => drop(store.forget(&slot, value)),
                    1 => drop(store.restore(&slot, value)),
                    2 => drop(store.reject(&slot, value, said)),
                    3 => drop(store.state(&slot, &Statement::user(said, value).from_rank(rank).replacing("a"))),
                    _ => drop(store.state(&slot, &Statement::user(said, value).from_rank(rank))),
                }
                if let Err(broken) = store.check() {
                    panic!("seed {seed}: {broken} after {steps:#?}");
                }
            }
        }
    }
}

/// The model and the service's own decision were written apart from each other; here they meet.
#[cfg(test)]
mod against_the_policy {
    use super::*;
    use strata_core::policy::conflict::{Decision, Incoming, Inferred, Link, Moment, SlotFacts, decide, owned_by_system};
    use strata_core::policy::gate::Standing;
    use strata_core::record::{Source, Status, Tier as CoreTier};
    use strata_core::{FactKey, MemoryId, Timestamp};

    /// A slot under `decide`, with its rulings carried out.
    #[derive(Default)]
    struct Slots {
        facts: SlotFacts,
        waiting: Vec<String>,
    }

    impl Slots {
        fn state(&mut self, n: u128, key: &FactKey, statement: &Statement) -> (State, &'static str) {
            let source = match statement.rank {
                Rank::Inference => Source::ModelInference,
                Rank::Observation => Source::Observation,
                Rank::System => Source::AuthoritativeSystem,
                Rank::User if statement.replaces.is_some() => Source::UserCorrection,
                Rank::User => Source::UserStatement,
            };
            let moment = Moment { time: Timestamp(statement.said.0), turn: Some(("s".into(), statement.said.1 as u32)) };
            let incoming = Incoming {
                standing: if statement.passes { Standing::Active } else { Standing::Candidate },
                source,
                key: Some(key),
                is_set: key.is_set(),
                tier: CoreTier::Stable,
                slot_value: &statement.value,
                quote_normal: statement.replaces.as_deref().unwrap_or_default(),
                moment: moment.clone(),
                valid_from: None,
                valid_to: None,
                user_authority: false,
                replaces: &[],
                may_replace: None,
                now: Timestamp(1_000),
            };
            let ruling = decide(&incoming, &self.facts);
            self.facts.system_owned = owned_by_system(&incoming, &self.facts);
            let memory_id = MemoryId(uuid::Uuid::from_u128(n));
            let mut link = Link {
                memory_id,
                status: Status::Active,
                source,
                confirmed: false,
                moment,
                create_time: Timestamp(1_000),
                valid_from: None,
                valid_to: None,
                slot_value: statement.value.clone(),
                superseded_by: None,
            };
            let inferred = |status| Inferred { memory_id, status, slot_value: statement.value.clone() };
            let state = match ruling.decision {
                Decision::Active { supersede, close, .. } => {
                    assert!(close.is_empty(), "nothing here has a valid time");
                    for old in self.facts.chain.iter_mut().filter(|old| supersede.contains(&old.memory_id)) {
                        old.status = Status::Superseded;
                        old.superseded_by = Some(memory_id);
                    }
                    self.facts.chain.push(link);
                    State::Active
                }
                Decision::History { after, before } => {
                    link.status = Status::Superseded;
                    link.superseded_by = Some(before);
                    for old in self.facts.chain.iter_mut().filter(|old| Some(old.memory_id) == after) {
                        old.superseded_by = Some(memory_id);
                    }
                    self.facts.chain.push(link);
                    State::Superseded
                }
                Decision::Candidate { .. } => {
                    if statement.rank == Rank::Inference {
                        self.facts.inferred.push(inferred(Status::Candidate));
                    } else {
                        self.waiting.push(statement.value.clone());
                    }
                    State::Candidate
                }
                Decision::Disputed { with, .. } => {
                    for other in self.facts.inferred.iter_mut().filter(|other| with.contains(&other.memory_id)) {
                        other.status = Status::Disputed;
                    }
                    self.facts.inferred.push(inferred(Status::Disputed));
                    State::Disputed
                }
            };
            (state, if ruling.rule == "K3" { "K2" } else { ruling.rule })
        }

        fn active(&self) -> Vec<&str> {
            let mut active: Vec<&Link> = self.facts.chain.iter().filter(|link| link.status == Status::Active).collect();
            active.sort_by_key(|link| link.moment.time);
            active.into_iter().map(|link| link.slot_value.as_str()).collect()
        }

        /// From the one that nothing precedes, along the links.
        fn chain(&self) -> Vec<&str> {
            let chain = &self.facts.chain;
            let begins = |link: &&Link| !chain.iter().any(|other| other.superseded_by == Some(link.memory_id));
            let mut next = chain.iter().find(begins);
            let mut values = Vec::new();
            while let Some(link) = next {
                values.push(link.slot_value.as_str());
                next = chain.iter().find(|other| Some(other.memory_id) == link.superseded_by);
            }
            values
        }

        fn candidates(&self) -> Vec<(&str, State)> {
            let state = |status| if status == Status::Disputed { State::Disputed } else { State::Candidate };
            let inferred = self.facts.inferred.iter().map(|i| (i.slot_value.as_str(), state(i.status)));
            let mut all: Vec<_> = inferred.chain(self.waiting.iter().map(|v| (v.as_str(), State::Candidate))).collect();
            all.sort_unstable();
            all
        }
    }

    #[test]
    fn k1_k2_k4_k5_k11_model_and_policy_agree_on_random_statements() {
        for seed in 1..3_000_u64 {
            let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut draw = |below: u64| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random % below
            };
            let name = if seed % 4 == 0 { "allergy[]" } else { "profile.city" };
            let (key, slot) = (FactKey::new(name).expect("a key"), Slot::new("t1/u1", name, Tier::Stable));
            let (mut model, mut policy) = (ReferenceStore::default(), Slots::default());
            // Times apart: at one time the order of turns of different sessions is open.
            let mut times: Vec<i64> = (1..=12).collect();
            let mut said: Vec<(Statement, String)> = Vec::new();
            for n in 0..12_u128 {
                let time = times.swap_remove(draw(times.len() as u64) as usize);
                let rank = [Rank::Inference, Rank::Observation, Rank::System, Rank::User, Rank::User][draw(5) as usize];
                // Every value is new: the same one again is rule G10, which is not decided there.
                let mut statement = Statement::user((time, 1), &format!("v{n:02}")).from_rank(rank);
                // A late correction is the model's own reading, so corrections come in order here.
                let spoken = said.iter().filter(|(s, _)| s.said.0 < time).count();
                if slot.key.ends_with("[]") && rank == Rank::User && spoken > 0 && draw(2) == 0 {
                    statement = statement.replacing(&said.iter().find(|(s, _)| s.said.0 < time).expect("one").0.value.clone());
                }
                let verdict = model.state(&slot, &statement);
                let ruling = policy.state(n, &key, &statement);
                said.push((statement, format!("{verdict:?}")));
                assert_eq!((verdict.state, verdict.rule), ruling, "seed {seed}: {said:#?}");
                assert_eq!(model.all_active(&slot), policy.active(), "seed {seed}: {said:#?}");
                assert_eq!(model.candidates(&slot), policy.candidates(), "seed {seed}: {said:#?}");
                if slot.is_single() {
                    assert_eq!(model.chain(&slot), policy.chain(), "seed {seed}: {said:#?}");
                }
                model.check().expect("consistent");
            }
        }
    }
}
