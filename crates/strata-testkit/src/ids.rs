//! Ids that are the same in every run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use strata_core::ports::IdSource;
use uuid::Uuid;

/// An [`IdSource`] that counts: the same seed gives the same ids, two seeds never give a common one, and the ids have the
/// form of version 7 and sort in the order they were drawn, as in production. Clones share the counter.
#[derive(Clone, Debug)]
pub struct SeqIds {
    seed: u64,
    drawn: Arc<AtomicU64>,
}

impl SeqIds {
    /// Ids of the sequence `seed`.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self { seed, drawn: Arc::new(AtomicU64::new(0)) }
    }

    /// How many ids were drawn.
    #[must_use]
    pub fn drawn(&self) -> u64 {
        self.drawn.load(Ordering::SeqCst)
    }

    /// The `n`-th id of the sequence, from 0, without drawing it.
    #[must_use]
    pub fn nth(&self, n: u64) -> Uuid {
        // 48 bits of time carry the count, so order is the order of drawing; 62 bits at the end carry the seed.
        let mut tail = [0_u8; 10];
        tail[2..].copy_from_slice(&(self.seed & (u64::MAX >> 2)).to_be_bytes());
        uuid::Builder::from_unix_timestamp_millis(n, &tail).into_uuid()
    }

    /// The source as the port that production code takes.
    #[must_use]
    pub fn port(&self) -> Arc<dyn IdSource> {
        Arc::new(self.clone())
    }
}

impl Default for SeqIds {
    fn default() -> Self {
        Self::seeded(0)
    }
}

impl IdSource for SeqIds {
    fn next(&self) -> Uuid {
        self.nth(self.drawn.fetch_add(1, Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_repeats_sorts_and_is_apart_from_others() {
        let draw = |seed| {
            let ids = SeqIds::seeded(seed);
            (0..1_000).map(|_| ids.next()).collect::<Vec<_>>()
        };
        let (one, again, two) = (draw(1), draw(1), draw(2));
        assert_eq!(one, again);
        assert!(one.windows(2).all(|pair| pair[0] < pair[1]), "sorted in the order of drawing");
        assert!(one.iter().all(|id| id.get_version_num() == 7 && !two.contains(id)));
    }
}
