//! What became of a recall: which of its items were used. Only those can be reported, and each counts once per recall,
//! so that ranking cannot be steered from outside (cases C146, C149).

use super::row::{by_id, id_bytes, id_from};
use super::{Sql, Visible, insert, owner};
use crate::write::Context;
use rusqlite::{Connection, OptionalExtension};
use std::collections::BTreeSet;
use strata_core::limits::REQUEST_ID_SECONDS;
use strata_core::policy::quality::Counts;
use strata_core::record::Status;
use strata_core::time::SECOND;
use strata_core::{Fault, MemoryId, Timestamp};
use strata_runtime::metrics::Instruments;
use uuid::Uuid;

/// What a report came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Records of the recall that are cited now, by id.
    pub cited: Vec<MemoryId>,
    /// Ids that were not in the recall, or are no more.
    pub refused: Vec<MemoryId>,
    /// Records the recall answered.
    pub recalled: u32,
    /// Revision of the user.
    pub revision: u64,
}

impl Report {
    /// Rule Q1 for one recall, 0..1; a recall that answered nothing is not known here.
    #[must_use]
    pub fn hit_rate(&self) -> f64 {
        let cited = u32::try_from(self.cited.len()).unwrap_or(u32::MAX);
        if self.recalled == 0 { 0.0 } else { f64::from(cited) / f64::from(self.recalled) }
    }
}

/// Counts citations of one recall.
///
/// # Errors
/// `NOT_FOUND` when the recall is not known, older than a day, or another user's.
pub fn report(db: &Connection, c: &Context<'_>, recall_id: Uuid, ids: &[MemoryId]) -> Result<Report, Fault> {
    let unknown = || Fault::not_found("recall", recall_id.to_string());
    let visible = Visible::of(db, c.scope)?.ok_or_else(unknown)?;
    let mut statement = db
        .prepare_cached("SELECT memory_ids, cited, time FROM recalls WHERE recall_id = ?1 AND user_id = ?2 AND time > ?3")
        .sql()?;
    let since = c.now.plus(-REQUEST_ID_SECONDS * SECOND).micros();
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, Vec<u8>>(1)?, Timestamp(row.get(2)?)));
    let found = statement.query_row((recall_id.as_bytes(), visible.user_id, since), read).optional().sql()?;
    let (recalled, cited, shown_at) = found.ok_or_else(unknown)?;
    let recalled = unpacked(&recalled);
    let mut cited = unpacked(&cited);
    let mut refused = Vec::new();
    let mut newly = 0_u64;
    for id in ids {
        if cited.contains(id) {
            continue;
        }
        let there = if recalled.contains(id) { by_id(db, *id)? } else { None };
        let there = there.filter(|found| visible.sees(found.owner) && found.record.status != Status::Deleted);
        let Some(mut found) = there else {
            refused.push(*id);
            continue;
        };
        let holder = found.record.owner.clone();
        let w = insert::Writing { owner: &holder, ..c.writing(found.owner, "ReportUsage") };
        insert::cite(db, &w, c.settings, &mut found)?;
        cited.insert(*id);
        newly += 1;
    }
    Instruments::global().cited.add(newly, &[]);
    let mut revision = visible.revision;
    if newly > 0 {
        // In the hour of the recall, so that no window has more cited than recalled.
        let counts = Counts { cited: newly, ..Counts::default() };
        super::quality::add(db, c.scope.owner().tenant.as_str(), shown_at, &counts)?;
        let packed: Vec<u8> = cited.iter().flat_map(|id| id_bytes(*id)).collect();
        let mut keep = db.prepare_cached("UPDATE recalls SET cited = ?2 WHERE recall_id = ?1").sql()?;
        keep.execute((recall_id.as_bytes(), packed)).sql()?;
        revision = owner::next_revision(db, visible.user_id)?;
    }
    // An agent sees no more of a recall than of the records.
    let mut shown = Vec::with_capacity(cited.len());
    for id in cited {
        if by_id(db, id)?.is_some_and(|found| visible.sees(found.owner)) {
            shown.push(id);
        }
    }
    Ok(Report { cited: shown, refused, recalled: u32::try_from(recalled.len()).unwrap_or(u32::MAX), revision })
}

fn unpacked(bytes: &[u8]) -> BTreeSet<MemoryId> {
    bytes.as_chunks::<16>().0.iter().map(|id| id_from(*id)).collect()
}
