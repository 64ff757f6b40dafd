//! The embedded index: an exact scan over the vectors and terms of ONE user, which stand beside the rows in SQLite.
//!
//! Every query is filtered to one owner anyway, so the scan is exact, isolates by construction (no other user's row is in
//! reach, case C038), forgets with the row, and is the oracle the other index is tested against. Hot users stay in memory,
//! bounded by bytes; a change reaches them through the relay, as it reaches any index.
//!
//! A user is loaded under its own lock, and the snapshot it is loaded from begins after the lock is taken. The relay applies
//! a change after its commit, under the same lock: the change is in the snapshot, or it comes after it.

use super::{Held, Index, IndexOp, IndexedRow, LegHit, LegQuery, Legs, Prepared, Space, Upsert};
use crate::metadata::search;
use async_trait::async_trait;
use moka::ops::compute::Op;
use moka::sync::Cache;
use parking_lot::{RwLock, RwLockWriteGuard};
use rusqlite::Connection;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use strata_core::{Fault, MemoryId, Owner};
use strata_runtime::sqlite::{Database, SqliteError};

/// Bytes of hot users in memory by default: the vectors of some 100,000 records of 512 dimensions.
pub const HOT_BYTES: u64 = 256 * 1024 * 1024;
/// Bytes a row takes beside its vector and postings: the struct, its place in the maps, its marks.
const ROW_BYTES: usize = 256;
/// Share of dead rows from which a hot user is loaded afresh.
const DEAD_SHARE: usize = 4;

/// The exact scan.
#[derive(Clone)]
pub struct ExactIndex {
    database: Database,
    space: Option<Space>,
    hot: Cache<String, Arc<HotUser>>,
}

impl fmt::Debug for ExactIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExactIndex").field("space", &self.space).field("hot_users", &self.hot.entry_count()).finish()
    }
}

/// A user in memory, or about to be.
#[derive(Debug, Default)]
struct HotUser {
    rows: RwLock<Option<UserRows>>,
    bytes: AtomicU32,
}

impl ExactIndex {
    /// Over the vectors of `space` in `database`; `hot_bytes` bounds what is kept in memory.
    #[must_use]
    pub fn new(database: Database, space: Option<Space>, hot_bytes: u64) -> Self {
        let hot = Cache::builder()
            .max_capacity(hot_bytes)
            .weigher(|_, user: &Arc<HotUser>| user.bytes.load(Ordering::Relaxed).max(1024))
            .build();
        Self { database, space, hot }
    }

    /// Users in memory now.
    #[must_use]
    pub fn hot_users(&self) -> u64 {
        self.hot.run_pending_tasks();
        self.hot.entry_count()
    }

    /// Tells the cache how large the user has become; drops nothing but what is over the bound.
    fn weigh(&self, key: &str, user: &Arc<HotUser>, bytes: usize) {
        user.bytes.store(u32::try_from(bytes).unwrap_or(u32::MAX), Ordering::Relaxed);
        self.hot.entry_by_ref(key).and_compute_with(|entry| match entry {
            Some(entry) if Arc::ptr_eq(entry.value(), user) => Op::Put(Arc::clone(user)),
            // Another load took its place, or it was dropped: this one is used once and forgotten.
            Some(_) | None => Op::Nop,
        });
    }

    fn search_now(&self, connection: &Connection, owner: &Owner, query: &LegQuery) -> Result<Legs, SqliteError> {
        let key = owner.user_key();
        let user = self.hot.get_with_by_ref(key.as_str(), Arc::default);
        if let Some(rows) = &*user.rows.read() {
            return Ok(rows.search(query));
        }
        let mut rows = user.rows.write();
        if rows.is_none() {
            let loaded = UserRows::load(connection, owner, self.space.as_ref())?;
            self.weigh(&key, &user, loaded.bytes());
            *rows = Some(loaded);
        }
        let rows = RwLockWriteGuard::downgrade(rows);
        Ok(rows.as_ref().map(|rows| rows.search(query)).unwrap_or_default())
    }

    fn apply_now(&self, op: IndexOp) {
        let owner = match &op {
            IndexOp::Upsert(upsert) => &upsert.owner,
            IndexOp::Delete { owner, .. } => owner,
        };
        let key = owner.user_key();
        // A user that is not in memory is loaded with the change when it is asked for.
        let Some(user) = self.hot.get(&key) else { return };
        let mut guard = user.rows.write();
        let Some(rows) = guard.as_mut() else { return };
        match op {
            IndexOp::Upsert(upsert) => rows.upsert(*upsert),
            IndexOp::Delete { memory_id, .. } => rows.remove(memory_id),
        }
        if rows.dead * DEAD_SHARE > rows.rows.len() {
            *guard = None;
            self.weigh(&key, &user, 0);
        } else {
            let bytes = rows.bytes();
            self.weigh(&key, &user, bytes);
        }
    }
}

#[async_trait]
impl Index for ExactIndex {
    fn name(&self) -> &'static str {
        "exact"
    }

    fn space(&self) -> Option<&Space> {
        self.space.as_ref()
    }

    fn is_view(&self) -> bool {
        true
    }

    async fn prepare(&self) -> Result<Prepared, Fault> {
        Ok(Prepared::Ready)
    }

    async fn search(&self, owner: &Owner, query: &LegQuery) -> Result<Legs, Fault> {
        let (this, owner, query) = (self.clone(), owner.clone(), query.clone());
        Ok(self.database.read(move |connection| this.search_now(connection, &owner, &query)).await?)
    }

    async fn apply(&self, ops: Vec<IndexOp>) -> Result<(), Fault> {
        let this = self.clone();
        // On a reader's thread: it may have to wait for a user that is being loaded.
        let applied: Result<(), SqliteError> = self
            .database
            .read(move |_| {
                ops.into_iter().for_each(|op| this.apply_now(op));
                Ok(())
            })
            .await;
        Ok(applied?)
    }

    async fn count(&self, owner: &Owner) -> Result<u64, Fault> {
        let owner = owner.clone();
        Ok(self.database.read(move |connection| search::count(connection, &owner)).await?)
    }

    async fn present(&self, owner: &Owner, ids: &[MemoryId]) -> Result<Vec<MemoryId>, Fault> {
        let (key, ids) = (owner.user_key(), ids.to_vec());
        let hot = self.hot.get(&key);
        let found: Result<_, SqliteError> = self
            .database
            .read(move |connection| {
                let in_memory = |id: &MemoryId| {
                    hot.as_ref().is_some_and(|user| user.rows.read().as_ref().is_some_and(|rows| rows.slots.contains_key(id)))
                };
                let mut found = Vec::new();
                for id in ids {
                    if in_memory(&id) || search::is_indexed(connection, id)? {
                        found.push(id);
                    }
                }
                Ok(found)
            })
            .await;
        Ok(found?)
    }

    async fn erase_owner(&self, owner: &Owner) -> Result<(), Fault> {
        // Rows, vectors and terms go with the transaction that erases; memory goes here.
        self.hot.invalidate(&owner.user_key());
        Ok(())
    }

    async fn held(&self, expected: &[Upsert]) -> Result<Vec<Option<Held>>, Fault> {
        let (this, expected) = (self.clone(), expected.to_vec());
        let model = self.space.as_ref().map(|space| space.model.clone());
        let held: Result<_, SqliteError> = self
            .database
            .read(move |connection| {
                expected
                    .iter()
                    .map(|upsert| {
                        let stored = search::stored_parts(connection, upsert.row.memory_id, model.as_deref())?;
                        let hot = this.hot.get(&upsert.owner.user_key());
                        let hot = hot.as_ref().map(|user| user.rows.read());
                        let Some(rows) = hot.as_deref().and_then(Option::as_ref) else {
                            let Held { version, .. } = stored;
                            // Not in memory: what will be loaded is the row itself.
                            return Ok(Some(Held { version: version.max(upsert.row.version), ..stored }));
                        };
                        Ok(rows.held(upsert, stored))
                    })
                    .collect()
            })
            .await;
        Ok(held?)
    }

    async fn scan(&self, after: Option<MemoryId>, limit: u32) -> Result<(Vec<MemoryId>, bool), Fault> {
        let this = self.clone();
        let scanned: Result<_, SqliteError> = self
            .database
            .read(move |connection| {
                let stored = search::indexed_ids(connection, after, limit)?;
                let mut ids: BTreeSet<MemoryId> = stored.iter().copied().collect();
                for (_, user) in &this.hot {
                    let rows = user.rows.read();
                    let known = rows.iter().flat_map(|rows| rows.slots.keys().copied());
                    ids.extend(known.filter(|id| after.is_none_or(|after| *id > after)));
                }
                let more = stored.len() >= limit as usize || ids.len() > limit as usize;
                Ok((ids.into_iter().take(limit as usize).collect(), more))
            })
            .await;
        Ok(scanned?)
    }

    async fn purge(&self, ids: &[MemoryId]) -> Result<(), Fault> {
        let (this, of_memory, stored) = (self.clone(), ids.to_vec(), ids.to_vec());
        let forgotten: Result<(), SqliteError> = self
            .database
            .read(move |_| {
                for (_, user) in &this.hot {
                    if let Some(rows) = user.rows.write().as_mut() {
                        of_memory.iter().for_each(|id| rows.remove(*id));
                    }
                }
                Ok(())
            })
            .await;
        forgotten?;
        Ok(self.database.write(move |connection| search::drop_orphans(connection, &stored)).await?)
    }

    async fn begin_rebuild(&self) -> Result<(), Fault> {
        self.hot.invalidate_all();
        Ok(())
    }

    async fn finish_rebuild(&self) -> Result<(), Fault> {
        Ok(())
    }

    async fn retire(&self, _earlier: Option<&Space>) -> Result<(), Fault> {
        // A record has one vector; the one of the new space took the place of the earlier one.
        Ok(())
    }
}

/// All rows of a user, every agent and status, laid out for the scan: slot `i` is row `i` and `vectors[i * dims..]`.
#[derive(Debug)]
struct UserRows {
    dims: usize,
    rows: Vec<Option<IndexedRow>>,
    slots: HashMap<MemoryId, usize>,
    /// Contiguous; zeros where there is no vector.
    vectors: Vec<f32>,
    has_vector: Vec<bool>,
    /// Slot and weight per term.
    postings: HashMap<u32, Vec<(u32, f32)>>,
    posted: usize,
    dead: usize,
}

impl UserRows {
    fn load(connection: &Connection, owner: &Owner, space: Option<&Space>) -> Result<Self, SqliteError> {
        let mut rows = Self::empty(space.map_or(0, |space| space.dims));
        search::each_of_user(connection, owner, space.map(|space| space.model.as_str()), |upsert| rows.upsert(upsert))?;
        Ok(rows)
    }

    fn empty(dims: usize) -> Self {
        Self {
            dims,
            rows: Vec::new(),
            slots: HashMap::new(),
            vectors: Vec::new(),
            has_vector: Vec::new(),
            postings: HashMap::new(),
            posted: 0,
            dead: 0,
        }
    }

    fn bytes(&self) -> usize {
        self.rows.len() * (ROW_BYTES + self.dims * size_of::<f32>()) + self.posted * size_of::<(u32, f32)>()
    }

    /// Content never changes, so terms are posted once; everything else is replaced unless it is older.
    fn upsert(&mut self, upsert: Upsert) {
        let Upsert { row, vector, terms, .. } = upsert;
        let slot = match self.slots.get(&row.memory_id) {
            Some(slot) => *slot,
            None => {
                let slot = self.rows.len();
                self.slots.insert(row.memory_id, slot);
                self.rows.push(None);
                self.has_vector.push(false);
                self.vectors.resize(self.vectors.len() + self.dims, 0.0);
                self.posted += terms.len();
                for (term, weight) in terms {
                    self.postings.entry(term).or_default().push((slot as u32, weight));
                }
                slot
            }
        };
        if let Some(vector) = vector.filter(|vector| self.dims > 0 && vector.len() == self.dims) {
            self.vectors[slot * self.dims..][..self.dims].copy_from_slice(&vector);
            self.has_vector[slot] = true;
        }
        if self.rows[slot].as_ref().is_none_or(|known| known.version <= row.version) {
            self.rows[slot] = Some(row);
        }
    }

    /// The slot stays until the next load; nothing of the record does but hashed terms.
    fn remove(&mut self, memory_id: MemoryId) {
        if let Some(slot) = self.slots.remove(&memory_id) {
            self.rows[slot] = None;
            self.has_vector[slot] = false;
            self.vectors[slot * self.dims..][..self.dims].fill(0.0);
            self.dead += 1;
        }
    }

    /// What memory holds of a record whose stored parts are `stored`.
    fn held(&self, expected: &Upsert, stored: Held) -> Option<Held> {
        let slot = *self.slots.get(&expected.row.memory_id)?;
        let row = self.rows[slot].as_ref()?;
        let vector = stored.vector && self.has_vector[slot];
        let faithful = stored.faithful && row.version == expected.row.version && *row == expected.row;
        Some(Held { version: row.version, faithful, vector, ..stored })
    }

    fn search(&self, query: &LegQuery) -> Legs {
        let admitted: Vec<bool> = self.rows.iter().map(|row| row.as_ref().is_some_and(|row| query.filter.admits(row))).collect();
        let hit = |slot: usize, score: f32| {
            self.rows[slot].as_ref().map(|row| LegHit { memory_id: row.memory_id, version: row.version, score })
        };
        let mut legs = Legs::default();
        if let Some(dense) = query.dense.as_ref().filter(|dense| self.dims > 0 && dense.len() == self.dims) {
            legs.dense = self
                .vectors
                .chunks_exact(self.dims)
                .enumerate()
                .filter(|(slot, _)| admitted[*slot] && self.has_vector[*slot])
                .filter_map(|(slot, vector)| hit(slot, dot(vector, dense).clamp(-1.0, 1.0)))
                .collect();
        }
        let mut scores = vec![0.0_f32; if query.sparse.is_empty() { 0 } else { self.rows.len() }];
        for (term, idf) in &query.sparse {
            for (slot, weight) in self.postings.get(term).into_iter().flatten() {
                scores[*slot as usize] += idf * weight;
            }
        }
        legs.keyword = scores
            .iter()
            .enumerate()
            .filter(|(slot, score)| **score > 0.0 && admitted[*slot])
            .filter_map(|(slot, score)| hit(slot, *score))
            .collect();
        legs.ordered(query.limit)
    }
}

/// Dot product of two vectors of one length. Sixteen sums that do not wait for each other: the compiler makes vector
/// instructions of them.
#[must_use]
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 16;
    let mut sums = [0.0_f32; LANES];
    let (a_chunks, b_chunks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest: f32 = a_chunks.remainder().iter().zip(b_chunks.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in a_chunks.zip(b_chunks) {
        for lane in 0..LANES {
            sums[lane] += x[lane] * y[lane];
        }
    }
    sums.iter().sum::<f32>() + rest
}
