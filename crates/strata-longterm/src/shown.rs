//! A record as its readers get it.

use crate::metadata::{StoredRecord, query};
use rusqlite::Connection;
use strata_api::convert::longterm as convert;
use strata_api::longterm::v1 as pb;
use strata_core::Fault;
use strata_core::policy::conflict::POSSIBLY_SUPERSEDED;

/// A record with its evidence and what may replace it, on the wire.
pub(crate) fn wire(db: &Connection, found: &StoredRecord) -> Result<pb::Memory, Fault> {
    let newer = query::may_replace(db, found)?;
    Ok(pb::Memory {
        may_be_replaced_by: newer.map(|id| id.to_string()).unwrap_or_default(),
        ..convert::memory(&found.record, &query::evidence(db, found.record.memory_id)?)
    })
}

/// A record that was found by its key, with its labels.
pub(crate) fn item_of_key(db: &Connection, found: &StoredRecord, labels: &[&str]) -> Result<pb::RecallItem, Fault> {
    let memory = wire(db, found)?;
    let newer = (!memory.may_be_replaced_by.is_empty()).then_some(POSSIBLY_SUPERSEDED);
    Ok(pb::RecallItem {
        labels: labels.iter().copied().chain(newer).map(str::to_owned).collect(),
        memory: Some(memory),
        score: 1.0,
        paths: vec!["key".to_owned()],
        ..Default::default()
    })
}
