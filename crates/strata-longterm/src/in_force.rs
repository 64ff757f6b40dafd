//! Which of the records of a key a reader gets.

use crate::metadata::StoredRecord;
use strata_core::policy::conflict::{Moment, second_check};
use strata_core::record::Tier;

/// Of the records of one key that are in force, the value the reader gets: TEMPORARY over STABLE (rule K10), agent over
/// user, several for a set, events all; two values of one slot never (rule K8). User-wide the user's own value stands for
/// the key, and the agents' only where there is none.
pub(crate) fn in_force(found: Vec<StoredRecord>, is_set: bool, by_agent: bool) -> Vec<(StoredRecord, Vec<&'static str>)> {
    let quoted = |found: &StoredRecord| if found.record.instruction { vec!["QUOTED"] } else { Vec::new() };
    if is_set {
        return found.into_iter().map(|found| (quoted(&found), found)).map(|(labels, found)| (found, labels)).collect();
    }
    let slot = |found: &StoredRecord| (found.record.tier != Tier::Event).then_some((found.owner.owner_id, found.record.tier));
    let moments: Vec<_> =
        found.iter().map(|found| (slot(found), Moment::new(found.record.event_time, found.record.source_ref.as_ref()))).collect();
    let dropped = second_check(&moments);
    if !dropped.is_empty() {
        tracing::error!(rule = "K8", dropped = dropped.len(), "one slot had two active values: the older is not shown");
    }
    let kept: Vec<StoredRecord> =
        found.into_iter().enumerate().filter(|(i, _)| !dropped.contains(i)).map(|(_, found)| found).collect();
    let at_agent = |found: &StoredRecord| found.record.owner.agent.is_some();
    let slotted = |agent: bool| kept.iter().any(|found| at_agent(found) == agent && slot(found).is_some());
    let (agents, user) = (slotted(true), slotted(false));
    let mut out = Vec::new();
    for found in &kept {
        let mut labels = quoted(found);
        if slot(found).is_some() {
            let other = |tier: Tier| kept.iter().any(|other| other.owner == found.owner && other.record.tier == tier);
            let shadowed = if at_agent(found) { !by_agent && user } else { by_agent && agents };
            if shadowed || (found.record.tier == Tier::Stable && other(Tier::Temporary)) {
                continue;
            }
            if found.record.tier == Tier::Temporary && other(Tier::Stable) {
                labels.push("TEMPORARY overlays STABLE");
            }
            if at_agent(found) && user {
                labels.push("AGENT shadows USER");
            }
        }
        out.push((found.clone(), labels));
    }
    out
}
