//! Look-ups of compressed turns are remembered, for the energy of their ranges (rule S9): in the background and as well as it
//! goes, since a read must neither wait nor fail for it.

use crate::store::{Head, SessionKey, SessionStore};
use std::sync::Arc;
use strata_core::policy::session::LOOKED_UP_TURNS;
use strata_core::{Timestamp, limits};
use strata_runtime::TaskGroup;

const _: () = assert!(LOOKED_UP_TURNS < limits::PAGE_MAX, "a page is no look-up");

/// Notes that turns of a session were looked up. Those that stand in a window anyway are none.
pub(crate) fn note(
    store: &Arc<dyn SessionStore>,
    tasks: &TaskGroup,
    key: &SessionKey,
    head: &Head,
    now: Timestamp,
    seqs: &[u32],
) {
    let compressed: Vec<u32> = seqs.iter().copied().filter(|seq| *seq <= head.through).collect();
    if compressed.is_empty() || seqs.len() > LOOKED_UP_TURNS as usize {
        return;
    }
    let becomes = head.accesses.noted(&compressed, head.last, now);
    let (store, key, incarnation, was) = (Arc::clone(store), key.clone(), head.incarnation, head.accesses.clone());
    tasks.spawn("session look-ups", async move {
        if let Err(fault) = store.touch(&key, now, incarnation, &was, &becomes).await {
            tracing::debug!(reason = fault.reason.name(), "a look-up is not remembered");
        }
    });
}
