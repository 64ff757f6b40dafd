//! Numbers that look random and are the same for the same seed.

/// xorshift. The seed must not be 0, from which it never gets away.
#[derive(Clone, Copy, Debug)]
pub struct Random(pub u64);

impl Random {
    /// A number below `end`; 0 when that is 0.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0.checked_rem(end as u64).unwrap_or(0)).unwrap_or(0)
    }

    /// One of them.
    ///
    /// # Panics
    /// When there are none.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}
