//! What an erasure takes from a layer (rules E2, E7), beside the language work of finding it in texts.

use crate::{AgentId, FactKey, Fault, Reason, SessionId, Timestamp, limits, time::SECOND};
use std::collections::{BTreeMap, BTreeSet};

/// Stands in a turn where erased text stood.
pub const MARKER: &str = "[erased]";

/// What is to be erased, within one user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// The user's erase epoch: server microseconds of the erasure (rule P3).
    pub epoch: u64,
    /// All of the owner.
    pub everything: bool,
    /// Only what this agent may see or, with `everything`, what is its own.
    pub agent: Option<AgentId>,
    /// Turns that the erased records quote.
    pub turns: BTreeMap<SessionId, BTreeSet<u32>>,
    /// Texts that count by themselves.
    pub texts: Vec<String>,
    /// Texts that count beside another one.
    pub short_texts: Vec<String>,
    /// Keys of erased facts.
    pub keys: BTreeSet<FactKey>,
    /// Erased records.
    pub memory_ids: BTreeSet<String>,
}

impl Scope {
    /// Whether something of this time may be part of it. What is later than the erasure is a later statement, which passes
    /// (rule E7); the clocks of two processes differ by up to twice the skew.
    #[must_use]
    pub fn reaches(&self, time: Timestamp) -> bool {
        let end = i64::try_from(self.epoch).unwrap_or(i64::MAX).saturating_add(2 * limits::SKEW_SECONDS * SECOND);
        time.micros() <= end
    }

    /// Whether what belongs to `agent` (none: to the user) may hold what is to be erased.
    #[must_use]
    pub fn covers(&self, agent: Option<&AgentId>) -> bool {
        match (&self.agent, agent) {
            (None, _) => true,
            (Some(_), None) => !self.everything,
            (Some(asked), Some(agent)) => asked == agent,
        }
    }
}

/// What an erasure did in one store, or a search found there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Items that held it.
    pub found: u64,
    /// Of these, removed or redacted.
    pub removed: u64,
    /// Still there when looked again.
    pub remaining: u64,
}

/// Counts by store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(pub BTreeMap<&'static str, Count>);

impl Counts {
    /// Items found.
    pub fn found(&mut self, store: &'static str, items: usize) {
        self.0.entry(store).or_default().found += items as u64;
    }

    /// Items found and removed.
    pub fn removed(&mut self, store: &'static str, items: usize) {
        let count = self.0.entry(store).or_default();
        count.found += items as u64;
        count.removed += items as u64;
    }

    /// What a second look found.
    pub fn remain(&mut self, again: &Self) {
        for (store, count) in &again.0 {
            self.0.entry(store).or_default().remaining += count.found;
        }
    }

    /// Adds the counts of another part.
    pub fn add(&mut self, other: &Self) {
        for (store, count) in &other.0 {
            let sum = self.0.entry(store).or_default();
            sum.found += count.found;
            sum.removed += count.removed;
            sum.remaining += count.remaining;
        }
    }

    /// Whether nothing was found.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.values().all(|count| count.found == 0)
    }
}

/// Whether removed bytes are gone from the medium (rule E3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Physical {
    /// Gone: overwritten, or the files were written anew since.
    Gone,
    /// Not yet.
    Pending,
    /// The store refuses to be asked.
    NotPermitted,
}

/// State of the medium that a store is kept on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Medium {
    /// Whether what was removed is still to be read there.
    pub state: Physical,
    /// What it waits for, or why it is gone; without content.
    pub detail: &'static str,
}

/// What is to be done about the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purge {
    /// Nothing: only look.
    Look,
    /// Something was removed just now: have the medium forget all that is removed by now.
    Anew,
    /// Nothing was removed since it was asked: see to it that it does.
    Again,
}

/// The refusal of a call whose signed header is older than the user's last erasure (rule E2).
#[must_use]
pub fn stale_header(epoch: u64) -> Fault {
    Fault::new(Reason::StaleEraseEpoch, "the user's memory was erased after this call was made; nothing was written")
        .with("erase_epoch", epoch.to_string())
        .rule("E2", "erase_epoch", "calls that were signed before an erasure are refused after it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e07_what_is_said_after_the_erasure_is_another_statement() {
        let scope = Scope { epoch: 1_000 * SECOND as u64, ..Scope::default() };
        assert!(scope.reaches(Timestamp(1_000 * SECOND)) && scope.reaches(Timestamp(1_004 * SECOND)));
        assert!(!scope.reaches(Timestamp(1_004 * SECOND + 1)));
        assert!(Scope { epoch: u64::MAX, ..Scope::default() }.reaches(Timestamp(i64::MAX)));
    }

    #[test]
    fn x12_an_agents_erasure_reaches_its_own_and_what_it_sees() {
        let agent = |id: &str| AgentId::new(id).expect("id");
        let of = |everything| Scope { everything, agent: Some(agent("a")), ..Scope::default() };
        for everything in [false, true] {
            assert!(of(everything).covers(Some(&agent("a"))) && !of(everything).covers(Some(&agent("b"))));
            assert_eq!(of(everything).covers(None), !everything);
            assert!(Scope { everything, ..Scope::default() }.covers(Some(&agent("b"))));
        }
        assert_eq!(stale_header(7).reason, Reason::StaleEraseEpoch);
    }
}
