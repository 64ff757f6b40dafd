//! A batch of a record system: its facts, its removals and its cursor, in one transaction.

use super::{Context, Written, apart, store};
use crate::metadata::insert::{self, Material, Writing};
use crate::metadata::{cursors, ledger, owner, row};
use rusqlite::Connection;
use strata_core::policy::gate::{Gated, is_user};
use strata_core::record::{SourceRef, Status};
use strata_core::{Fault, MemoryId, Reason};

/// One fact of a batch, judged.
#[derive(Clone, Debug)]
pub enum Item {
    /// It passed the gate.
    Fact(Box<Gated>, Box<Material>),
    /// The system holds this record no more.
    Removed(SourceRef),
    /// The gate refused it.
    Refused(Fault),
}

/// What became of one fact.
#[derive(Clone, Debug, PartialEq)]
pub enum Synced {
    /// Stored, or not yet for want of consent.
    Written(Box<Written>),
    /// Records that expired.
    Removed(Vec<MemoryId>),
    /// Nothing was stored.
    Refused(Fault),
}

/// Where a system stands, and where it says it stands after this batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Name of the system.
    pub system: String,
    /// The cursor the batch begins at; empty skips the check.
    pub expected: String,
    /// The cursor after it; empty leaves it.
    pub next: String,
}

/// Stores a batch.
///
/// # Errors
/// `VERSION_MISMATCH` when another cursor is stored than the batch begins at; `OVERLOADED`; as the database says.
pub fn sync(db: &Connection, c: &Context<'_>, cursor: &Cursor, items: Vec<Item>) -> Result<(Vec<Synced>, String, u64), Fault> {
    let stored = owner::ensure(db, c.scope)?;
    let at = cursors::get(db, stored, &cursor.system)?;
    if !cursor.expected.is_empty() && cursor.expected != at {
        return Err(Fault::new(
            Reason::VersionMismatch,
            "expected_cursor: the system stands elsewhere; go on from the stored cursor",
        )
        .with("current_value", at));
    }
    if !items.is_empty() {
        ledger::check_outbox(db, &c.scope.owner().tenant, c.now)?;
    }
    let w = c.writing(stored, "SyncFacts");
    let mut out = Vec::with_capacity(items.len());
    for item in items {
        out.push(match item {
            Item::Refused(fault) => Synced::Refused(fault),
            Item::Fact(gated, material) => match apart(db, || store(db, c, &gated, &material))? {
                Ok(written) => Synced::Written(Box::new(written)),
                Err(fault) => Synced::Refused(fault),
            },
            Item::Removed(reference) => Synced::Removed(remove(db, &w, &reference)?),
        });
    }
    let next = if cursor.next.is_empty() { at } else { cursor.next.clone() };
    cursors::set(db, stored, &cursor.system, &next, c.now)?;
    let revision = owner::next_revision(db, stored.user_id)?;
    Ok((out, next, revision))
}

/// What came from a record of the system expires; what the user said too goes on by the user's word.
fn remove(db: &Connection, w: &Writing<'_>, reference: &SourceRef) -> Result<Vec<MemoryId>, Fault> {
    let mut out = Vec::new();
    for mut found in insert::expire_due(db, w, row::from_system(db, w.stored, reference)?)? {
        let holds = matches!(found.record.status, Status::Active | Status::Candidate | Status::Disputed);
        if !holds || is_user(found.record.source) {
            continue;
        }
        found.due = false;
        insert::move_to(db, w, &mut found, Status::Expired, "SYNC: the record system holds it no more", "SYNC")?;
        if let Some(key) = &found.record.key {
            owner::release_if_empty(db, w.stored, key)?;
        }
        out.push(found.record.memory_id);
    }
    Ok(out)
}
