//! Erase epochs (rule E2), as far as this process has seen them.

use crate::store::UserTag;
use strata_core::Fault;
use strata_core::policy::erasure::stale_header;

/// Users whose last erasure this process remembers beside the store, which every write asks.
const SEEN_USERS: u64 = 100_000;

/// Erase epochs that this process has seen: reads with an older header are refused without asking the store.
#[derive(Clone, Debug)]
pub(crate) struct SeenEpochs(moka::sync::Cache<UserTag, u64>);

impl Default for SeenEpochs {
    fn default() -> Self {
        Self(moka::sync::Cache::new(SEEN_USERS))
    }
}

impl SeenEpochs {
    /// The user was erased at this epoch, or at a higher one that was seen before.
    pub(crate) fn raise(&self, user: &UserTag, epoch: u64) {
        let highest = self.0.get(user).map_or(epoch, |seen| seen.max(epoch));
        self.0.insert(user.clone(), highest);
    }

    /// Refuses a header that is older than the user's last erasure.
    ///
    /// # Errors
    /// `STALE_ERASE_EPOCH`.
    pub(crate) fn check(&self, user: &UserTag, epoch: u64) -> Result<(), Fault> {
        match self.0.get(user) {
            Some(seen) if epoch < seen => Err(stale_header(seen)),
            _ => Ok(()),
        }
    }
}
