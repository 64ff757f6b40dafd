//! What an erasure takes, and what it tells (rules E2, E3).

use crate::internal::v1 as pb;
use std::collections::BTreeMap;
use strata_core::policy::erasure::{Counts, Medium, Physical, Scope};
use strata_core::{AgentId, FactKey, Fault, SessionId, id::check_id, limits};

/// What is to be erased; the user is the caller's to check.
///
/// # Errors
/// `INVALID_FIELD` naming the field.
pub fn scope(wire: &pb::ErasureScope) -> Result<Scope, Fault> {
    uuid::Uuid::try_parse(&wire.erasure_id).map_err(|_| Fault::field("scope.erasure_id", "must be a UUID"))?;
    if wire.erase_epoch == 0 {
        return Err(Fault::field("scope.erase_epoch", "is required"));
    }
    let bounded = |field: &str, count: usize, limit: usize| {
        if count > limit { Err(Fault::field(format!("scope.{field}"), format!("must hold at most {limit}"))) } else { Ok(()) }
    };
    bounded("texts", wire.texts.len(), limits::ERASE_TEXTS)?;
    bounded("short_texts", wire.short_texts.len(), limits::ERASE_TEXTS)?;
    bounded("keys", wire.keys.len(), limits::ERASE_TEXTS)?;
    bounded("memory_ids", wire.memory_ids.len(), limits::ERASE_RECORDS)?;
    bounded("turns", wire.turns.iter().map(|range| range.seqs.len()).sum(), limits::ERASE_TURNS)?;
    let mut turns: BTreeMap<SessionId, std::collections::BTreeSet<u32>> = BTreeMap::new();
    for range in &wire.turns {
        turns.entry(SessionId::new(range.session_id.as_str())?).or_default().extend(&range.seqs);
    }
    for id in &wire.memory_ids {
        check_id("scope.memory_ids", id)?;
    }
    Ok(Scope {
        epoch: wire.erase_epoch,
        everything: wire.everything,
        agent: if wire.agent_id.is_empty() { None } else { Some(AgentId::new(wire.agent_id.as_str())?) },
        turns,
        texts: wire.texts.clone(),
        short_texts: wire.short_texts.clone(),
        keys: wire.keys.iter().map(|key| FactKey::new(key.as_str())).collect::<Result<_, _>>()?,
        memory_ids: wire.memory_ids.iter().cloned().collect(),
    })
}

/// Counts on the wire: of the stores that were touched, or with the state of the medium of all `stores`.
#[must_use]
pub fn wire_stores(counts: &Counts, stores: &[(&'static str, Option<Medium>)]) -> Vec<pb::StoreErasure> {
    let row = |store: &str, medium: Option<Medium>| {
        let count = counts.0.get(store).copied().unwrap_or_default();
        let physical = match medium.map(|medium| medium.state) {
            None => pb::PhysicalState::Unspecified,
            Some(Physical::Gone) => pb::PhysicalState::Gone,
            Some(Physical::Pending) => pb::PhysicalState::Pending,
            Some(Physical::NotPermitted) => pb::PhysicalState::NotPermitted,
        };
        pb::StoreErasure {
            store: store.to_owned(),
            found: count.found,
            removed: count.removed,
            remaining: count.remaining,
            physical: physical.into(),
            gone_by: None,
            detail: medium.map(|medium| medium.detail.to_owned()).unwrap_or_default(),
        }
    };
    if stores.is_empty() {
        return counts.0.keys().map(|store| row(store, None)).collect();
    }
    stores.iter().map(|(store, medium)| row(store, *medium)).collect()
}
