//! Whether the index says what the rows say, and how to make it so.
//!
//! ```text
//!   1  rows  -> index   every record is there, under its owner, at its version, with its vector and terms
//!   2  index -> rows    nothing is there that no record stands for
//! ```
//!
//! Writes go on meanwhile. A record that the outbox has still to tell of is under way and no difference, and what looks like
//! one is looked at again before it is called so. A repair goes the way of every change: through the outbox. Only what no
//! record stands for is taken out of the index directly, because nobody knows whose it was.

use crate::index::Held;
use crate::metadata::search::{self, RowState};
use crate::metadata::{ledger, row};
use crate::relay::Relay;
use std::collections::BTreeMap;
use std::time::Duration;
use strata_api::convert::longterm::indexed_text;
use strata_core::{Fault, MemoryId, Timestamp};
use strata_runtime::ports::pause;
use strata_runtime::sqlite::{Database, SqliteError};

/// Looks at what differs before it is believed: a write may be between row and index.
const LOOKS: u32 = 4;
/// Between two of them.
const BETWEEN_LOOKS: Duration = Duration::from_millis(25);

/// What is wrong with a record in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// It is not there.
    Missing,
    /// It is there in an older version.
    Stale,
    /// It is there in a version that the record does not have.
    Ahead,
    /// It stands under another owner.
    ForeignOwner,
    /// What filters it is not what was told.
    Altered,
    /// Its vector is gone, or another one.
    NoVector,
    /// Its terms are gone.
    NoTerms,
    /// No record stands for it.
    Extra,
}

/// One difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Record, or what the index takes for one.
    pub memory_id: MemoryId,
    /// What is wrong.
    pub kind: Kind,
    /// Version of the record; 0 for [`Kind::Extra`].
    pub record_version: u64,
    /// Version in the index; 0 where it is not there or has none.
    pub index_version: u64,
    /// Whether its repair is under way.
    pub repaired: bool,
}

/// Where the check goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cursor {
    /// Records after this one.
    Rows(Option<MemoryId>),
    /// Ids of the index after this one.
    Index(Option<MemoryId>),
}

impl Cursor {
    /// As text, for a page token.
    #[must_use]
    pub fn text(self) -> String {
        let (phase, after) = match self {
            Self::Rows(after) => ('r', after),
            Self::Index(after) => ('i', after),
        };
        format!("{phase}{}", after.map(|id| id.to_string()).unwrap_or_default())
    }

    /// From its text.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let (phase, after) = text.split_at_checked(1)?;
        let after = if after.is_empty() { None } else { Some(MemoryId(uuid::Uuid::parse_str(after).ok()?)) };
        match phase {
            "r" => Some(Self::Rows(after)),
            "i" => Some(Self::Index(after)),
            _ => None,
        }
    }
}

/// What one page of the check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Records that were compared.
    pub records: u64,
    /// Ids of the index that were looked up.
    pub points: u64,
    /// Records under way to the index, which were not compared.
    pub pending: u64,
    /// Differences.
    pub differences: Vec<Difference>,
    /// Where it goes on; none at the end.
    pub next: Option<Cursor>,
}

/// What a record's place in the index says against the row.
fn judge(row: &RowState, held: Option<Held>) -> Option<Kind> {
    let Some(held) = held else { return Some(Kind::Missing) };
    let version = row.upsert.row.version;
    if !held.owned {
        Some(Kind::ForeignOwner)
    } else if held.version < version {
        Some(Kind::Stale)
    } else if held.version > version {
        Some(Kind::Ahead)
    } else if row.has_words && (row.upsert.terms.is_empty() || !held.terms) {
        Some(Kind::NoTerms)
    } else if row.embedded && !held.vector {
        Some(Kind::NoVector)
    } else if !held.faithful {
        Some(Kind::Altered)
    } else {
        None
    }
}

/// The check, of one database and the index its relay tells.
#[derive(Clone, Copy, Debug)]
pub struct Verify<'a> {
    /// The truth.
    pub database: &'a Database,
    /// The way to the index.
    pub relay: &'a Relay,
    /// Now.
    pub now: Timestamp,
}

impl Verify<'_> {
    /// Checks the next `limit` records or ids from `cursor` on, and with `repair` sets right what differs.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE` when the index does not answer; as the database says.
    pub async fn page(self, cursor: Cursor, limit: u32, repair: bool) -> Result<Page, Fault> {
        match cursor {
            Cursor::Rows(after) => rows(self, after, limit, repair).await,
            Cursor::Index(after) => extras(self, after, limit, repair).await,
        }
    }
}

async fn rows(state: Verify<'_>, after: Option<MemoryId>, limit: u32, repair: bool) -> Result<Page, Fault> {
    let index = state.relay.index();
    let model = index.space().map(|space| space.model.clone());
    let of_page = model.clone();
    let (rows, walked) = state
        .database
        .read(move |db| Ok::<_, SqliteError>((search::row_states(db, after, limit, of_page.as_deref())?, Relay::cursor(db)?)))
        .await?;
    let last = rows.last().map(|row| row.upsert.row.memory_id);
    let full = rows.len() == limit as usize;
    // What a reindex has not come to yet is under way.
    let complete = state.relay.complete();
    let reached = |row: &RowState| match walked {
        Some(walked) if !complete => walked.is_some_and(|walked| row.upsert.row.memory_id <= walked),
        Some(_) | None => true,
    };
    let mut page = Page { records: rows.len() as u64, ..Page::default() };
    page.next = Some(if full { Cursor::Rows(last) } else { Cursor::Index(None) });
    let (rows, unreached): (Vec<RowState>, Vec<RowState>) = rows.into_iter().partition(reached);
    let (mut found, pending) = compare(state, rows).await?;
    page.pending = unreached.len() as u64 + pending;
    for look in 1..LOOKS {
        if found.is_empty() {
            break;
        }
        pause(BETWEEN_LOOKS * look).await;
        let (ids, model): (Vec<MemoryId>, _) = (found.keys().copied().collect(), model.clone());
        let again = state
            .database
            .read(move |db| {
                let again = ids.into_iter().map(|id| search::row_state(db, id, model.as_deref()));
                again.filter_map(Result::transpose).collect::<Result<Vec<_>, SqliteError>>()
            })
            .await?;
        let pending;
        (found, pending) = compare(state, again).await?;
        page.pending += pending;
    }
    if repair && !found.is_empty() {
        mend(state, found.values()).await?;
    }
    page.differences = found.into_values().map(|(_, difference)| Difference { repaired: repair, ..difference }).collect();
    Ok(page)
}

/// Differences among these records, by id, and how many are under way.
async fn compare(state: Verify<'_>, rows: Vec<RowState>) -> Result<(BTreeMap<MemoryId, (RowState, Difference)>, u64), Fault> {
    let (under_way, settled): (Vec<RowState>, Vec<RowState>) = rows.into_iter().partition(|row| row.pending);
    let upserts: Vec<_> = settled.iter().map(|row| row.upsert.clone()).collect();
    let held = state.relay.index().held(&upserts).await?;
    let found = settled.into_iter().zip(held).filter_map(|(row, held)| {
        let difference = Difference {
            memory_id: row.upsert.row.memory_id,
            kind: judge(&row, held)?,
            record_version: row.upsert.row.version,
            index_version: held.map_or(0, |held| held.version),
            repaired: false,
        };
        Some((difference.memory_id, (row, difference)))
    });
    Ok((found.collect(), under_way.len() as u64))
}

/// Tells the index of these records again. An index refuses a version it has already, so what it holds wrongly is taken out;
/// the outbox row before keeps the record in reach meanwhile, the one after brings it back.
async fn mend(state: Verify<'_>, found: impl Iterator<Item = &(RowState, Difference)>) -> Result<(), Fault> {
    let rows: Vec<(RowState, Kind)> = found.map(|(row, difference)| (row.clone(), difference.kind)).collect();
    let wrong: Vec<MemoryId> = rows
        .iter()
        .filter(|(_, kind)| !matches!(kind, Kind::Missing | Kind::Stale))
        .map(|(row, _)| row.upsert.row.memory_id)
        .collect();
    let now = state.now;
    let (first, again) = (rows.clone(), rows);
    state
        .database
        .write(move |db| {
            for (row, kind) in &first {
                let memory_id = row.upsert.row.memory_id;
                if matches!(kind, Kind::NoTerms | Kind::NoVector | Kind::ForeignOwner)
                    && let Some(stored) = row::by_id(db, memory_id)?
                {
                    let r = &stored.record;
                    let text = indexed_text(&r.content, r.key.as_ref(), r.value.as_ref());
                    search::mend(db, memory_id, row.owner, &strata_text::terms(&text))?;
                }
                ledger::enqueue(db, row.owner, memory_id, row.upsert.row.version, now)?;
            }
            Ok::<(), Fault>(())
        })
        .await?;
    state.relay.index().purge(&wrong).await?;
    state
        .database
        .write(move |db| {
            again
                .iter()
                .try_for_each(|(row, _)| ledger::enqueue(db, row.owner, row.upsert.row.memory_id, row.upsert.row.version, now))
        })
        .await?;
    state.relay.wake();
    Ok(())
}

async fn extras(state: Verify<'_>, after: Option<MemoryId>, limit: u32, repair: bool) -> Result<Page, Fault> {
    let index = state.relay.index();
    let look = async || {
        let (ids, more) = index.scan(after, limit).await?;
        let asked = ids.clone();
        let strangers = state.database.read(move |db| search::strangers(db, &asked)).await?;
        Ok::<_, Fault>((ids, more, strangers))
    };
    let (ids, more, mut strangers) = look().await?;
    if !strangers.is_empty() {
        // A record that was erased between the two looks is not there the second time.
        pause(BETWEEN_LOOKS).await;
        let (_, _, again) = look().await?;
        strangers.retain(|id| again.contains(id));
    }
    if repair {
        index.purge(&strangers).await?;
    }
    let extra = |memory_id| Difference { memory_id, kind: Kind::Extra, record_version: 0, index_version: 0, repaired: repair };
    Ok(Page {
        points: ids.len() as u64,
        next: ids.last().filter(|_| more).map(|last| Cursor::Index(Some(*last))),
        differences: strangers.into_iter().map(extra).collect(),
        ..Page::default()
    })
}

#[cfg(test)]
mod tests;
