//! What records say, as far as statements are compared: read once and kept, since their texts never change.

use std::sync::Arc;
use strata_core::MemoryId;
use strata_core::text::Aspect;

/// Records whose aspects are kept: to read one takes longer than to look for it, and a user's newest are compared again at
/// every write.
const ASPECTS: u64 = 8_192;

/// Aspects of records.
pub type Aspects = moka::sync::Cache<MemoryId, Arc<Aspect>>;

/// None yet.
#[must_use]
pub fn aspects() -> Aspects {
    moka::sync::Cache::new(ASPECTS)
}
