//! Which replica of working memory serves a task, and when a copy may be taken over (rule W10).
//!
//! Routers place tasks by rendezvous hashing: every router that knows the same replicas comes to the same one, and a replica
//! that joins or leaves moves only the tasks that are its own. Placement is no promise: routers may know different replicas.
//! That one copy alone acknowledges is decided at the checkpoint store, by the name of the holder in the record.
//!
//! ```text
//!   held --released by its holder (a graceful stop, a task that moves)--> free     nothing is lost, the generation stands
//!   held --its holder gave no sign of life for TAKEOVER--> free, generation + 1    what followed the checkpoint is lost
//! ```
//!
//! A holder whose last round trip to the store began more than [`FENCE`] ago acknowledges nothing, and [`TAKEOVER`] is longer
//! than that by more than the clocks of two machines may differ. A holder that was silent for [`LAPSE`] cannot know what was taken
//! from it: it goes on under another name, and with what it makes sure of at the store alone.

use crate::RuleId;
use crate::limits::SKEW_SECONDS;
use crate::time::SECOND;

/// Microseconds after the start of its last completed round trip to the checkpoint store in which a copy may acknowledge, where
/// there are several replicas.
pub const FENCE: i64 = SECOND;

/// Microseconds after the last sign of life of a holder from which on another replica may take its boards.
pub const TAKEOVER: i64 = (2 + SKEW_SECONDS) * SECOND;

/// Microseconds without a completed round trip after which other replicas may have begun to take the boards of this one, by its
/// own watch: the store's clock may have gone ahead by the greatest skew.
pub const LAPSE: i64 = TAKEOVER - SKEW_SECONDS * SECOND;

/// What the store knows of the replica that holds a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// It stopped and had written everything.
    Retired,
    /// Its last sign of life was so many microseconds ago, by the store's clock. Of one that the store has forgotten: the first
    /// question about it.
    Seen(i64),
}

/// What another replica may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takeover {
    /// Take the board as it stands in the store.
    Clean,
    /// Take it at the next generation: what followed the checkpoint is lost.
    Lossy,
    /// Ask the holder for it, and look again after so many microseconds at the latest.
    Wait(i64),
}

/// Whether a board that `holder` holds may be taken over.
#[must_use]
pub const fn takeover(holder: Holder) -> (Takeover, RuleId) {
    let verdict = match holder {
        Holder::Retired => Takeover::Clean,
        Holder::Seen(ago) if ago > TAKEOVER => Takeover::Lossy,
        Holder::Seen(ago) => Takeover::Wait(TAKEOVER - ago),
    };
    (verdict, RuleId("W10"))
}

/// Weight of a member for a key: the member with the highest serves it.
fn weight(key: &[&str], member: &str) -> u64 {
    let mut hasher = blake3::Hasher::new();
    for part in key.iter().chain([&member]) {
        // Each part with its length: no two lists of parts hash alike.
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    let mut first = [0; 8];
    hasher.finalize_xof().fill(&mut first);
    u64::from_le_bytes(first)
}

/// Places of `members` in the order in which they are to serve `key`: the first of those that live does. The same for the same
/// names in whatever order; a member that is added or taken away leaves the order of the others as it is.
#[must_use]
pub fn rendezvous<'a>(key: &[&str], members: impl IntoIterator<Item = &'a str>) -> Vec<usize> {
    let mut order: Vec<(u64, &str, usize)> =
        members.into_iter().enumerate().map(|(place, member)| (weight(key, member), member, place)).collect();
    order.sort_unstable_by(|a, b| b.cmp(a));
    order.into_iter().map(|(_, _, place)| place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn first<'a>(task: &str, members: &[&'a str]) -> &'a str {
        members[rendezvous(&["t1", task], members.iter().copied())[0]]
    }

    #[test]
    fn w10_every_router_that_knows_the_same_replicas_comes_to_the_same_one() {
        for n in 0..200 {
            let task = format!("任务-{n}");
            let served = first(&task, &["a", "b", "c"]);
            assert_eq!(served, first(&task, &["c", "a", "b"]), "whatever the order of the list");
            let rest: Vec<&str> = ["a", "b", "c"].into_iter().filter(|member| *member != served).collect();
            let second = rendezvous(&["t1", &task], ["a", "b", "c"])[1];
            assert_eq!(first(&task, &rest), ["a", "b", "c"][second], "the next in order stands in");
        }
    }

    #[test]
    fn w10_a_replica_that_joins_takes_its_share_and_moves_nothing_else() {
        let (mut moved, mut shares) = (0, BTreeMap::new());
        for n in 0..3_000 {
            let task = format!("task-{n}");
            let (before, after) = (first(&task, &["a", "b", "c"]), first(&task, &["a", "b", "c", "d"]));
            *shares.entry(before).or_insert(0) += 1;
            if before != after {
                assert_eq!(after, "d");
                moved += 1;
            }
        }
        assert!((600..900).contains(&moved), "{moved} of 3,000 moved, a quarter was due");
        assert!(shares.values().all(|share| (900..1_100).contains(share)), "{shares:?}");
        assert!(rendezvous(&["t1", "k"], []).is_empty());
        assert_ne!(weight(&["t1", "k"], "a"), weight(&["t", "1k"], "a"));
    }

    #[test]
    fn w10_a_copy_is_taken_over_when_its_holder_can_acknowledge_nothing_any_more() {
        for (holder, expected) in [
            (Holder::Retired, Takeover::Clean),
            (Holder::Seen(0), Takeover::Wait(TAKEOVER)),
            (Holder::Seen(TAKEOVER), Takeover::Wait(0)),
            (Holder::Seen(TAKEOVER + 1), Takeover::Lossy),
            // The store's clock stepped back: waits longer, never shorter.
            (Holder::Seen(-SECOND), Takeover::Wait(TAKEOVER + SECOND)),
        ] {
            assert_eq!(takeover(holder).0, expected, "{holder:?}");
        }
        const { assert!(FENCE < LAPSE && FENCE + SKEW_SECONDS * SECOND < TAKEOVER) }
    }
}
