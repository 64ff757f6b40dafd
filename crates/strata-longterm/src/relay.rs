//! The relay between the truth and the index: what a transaction left in the outbox is embedded, put into the index, and
//! only then taken off.
//!
//! ```text
//!   outbox (SQLite) -> read a batch -> embed what has no vector -> store vectors -> tell the index -> take the rows off
//!                      one snapshot    outside any transaction     one write       it waits          one write
//! ```
//!
//! - Each tenant's rows go in their order, and tenants in turn: one that has a backlog delays no other.
//! - Rows are taken off a moment after they are delivered, many at once: every commit waits for the disk, and the writes of
//!   callers would wait behind it.
//! - Embedding and the index are never waited for inside a transaction (case C134).
//! - Every step may be repeated: after a crash the same rows are read again. Nothing is taken off before the index has it.
//! - When the index or the embedder is down the rows wait, and the waits grow. Until then recall reads them from the outbox
//!   beside the index (case C126), and writes are pushed back when there are too many
//!   ([`strata_core::limits::OUTBOX_ROWS`]).
//! - The space of the vectors is kept in the database. When the embedder is another one, every record is embedded again,
//!   walking the records in order with a cursor that survives a restart; meanwhile recall is by key and words, because
//!   vectors of two spaces cannot be compared (cases C123, C125).
//! - A rebuild in the same space fills a second copy beside the first, which answers meanwhile, dense too; the copies change
//!   places when the second is complete. An index that was lost, or a database that was restored, is rebuilt without being
//!   asked; recall is by key and words until it is whole.

use crate::index::{Index, IndexOp, Prepared, Space};
use crate::metadata::search::{self, Change, Lanes};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strata_core::{Fault, MemoryId, Timestamp};
use strata_runtime::ports::{Ports, Stopwatch, pause};
use strata_runtime::retry::Backoff;
use strata_runtime::sqlite::{Database, SqliteError};
use strata_runtime::task::TaskGroup;
use strata_text::embed::{EmbedError, Embedder, Purpose, normalise};
use tokio::sync::Notify;

/// Rows of the outbox in one round: one commit and one call of the index for all.
pub const BATCH_ROWS: usize = 256;
/// Longest time that delivered rows stay in the outbox: short for whoever looks at it, long against a commit.
const LINGER: Duration = Duration::from_millis(50);
/// Texts in one call of the embedder.
const EMBED_TEXTS: usize = 32;
/// Records of a reindex between two looks at the outbox: new writes do not wait for old ones.
const WALK_RECORDS: usize = 128;
/// Waits between tries while something is down.
const BACKOFF: Backoff = Backoff { attempts: u32::MAX, base: Duration::from_millis(50), max: Duration::from_secs(5) };
/// Name in `meta` of the space every record's vector is in.
const META_SPACE: &str = "index.space";
/// Name in `meta` of the last record a reindex has done; empty at its start.
const META_CURSOR: &str = "index.reindex";
/// Name in `meta` of what a reindex fills: absent, the copy that is searched; else [`Rebuild`], the second one.
const META_REBUILD: &str = "index.rebuild";

/// Name in `meta` of when the copy was created that is being filled; absent when it was there before.
const META_CREATED: &str = "index.created";
/// Name in `meta` of when the copy was created that holds everything: what was deleted before was never in it, and the copies
/// from before are dropped.
const META_SINCE: &str = "index.since";

/// A second copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rebuild {
    /// Whether it has been begun.
    begun: bool,
    /// Whether the first copy may answer meanwhile.
    trusted: bool,
}

impl Rebuild {
    const fn text(self) -> &'static str {
        match (self.begun, self.trusted) {
            (false, true) => "asked",
            (true, true) => "begun",
            (false, false) => "restored",
            (true, false) => "begun restored",
        }
    }

    fn from_text(text: &str) -> Self {
        Self { begun: text.starts_with("begun"), trusted: !text.ends_with("restored") }
    }
}

/// Marks a restored database: the index knows another history than these rows and is to be filled anew from them.
///
/// # Errors
/// [`SqliteError`].
pub fn mark_restored(db: &rusqlite::Connection) -> Result<(), SqliteError> {
    search::set_meta(db, META_REBUILD, Some(Rebuild { begun: false, trusted: false }.text()))?;
    search::set_meta(db, META_CURSOR, Some(""))
}

/// How the relay is doing: for health, metrics and the status of the role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelayStatus {
    /// Rows the index has still to be told of.
    pub pending: u64,
    /// Age of the oldest, in microseconds; 0 when there is none.
    pub oldest_micros: i64,
    /// Whether the last round could not reach the index.
    pub index_down: bool,
    /// Whether the last round could not embed.
    pub embedder_down: bool,
    /// Whether the index is being filled again.
    pub reindexing: bool,
    /// Records that are in it by now, of [`RelayStatus::reindex_total`].
    pub reindex_done: u64,
    /// Records there were when it began.
    pub reindex_total: u64,
    /// What the index said last, when it could not be used.
    pub problem: String,
}

/// The relay. Cheap to clone; clones are the same relay.
#[derive(Clone)]
pub struct Relay {
    shared: Arc<Shared>,
}

struct Shared {
    ports: Ports,
    database: Database,
    index: Arc<dyn Index>,
    embedder: Option<Arc<dyn Embedder>>,
    wake: Notify,
    state: Mutex<RelayStatus>,
    prepared: AtomicBool,
    dense: AtomicBool,
    complete: AtomicBool,
    walk: Mutex<Walk>,
    delivered: Mutex<Option<Delivered>>,
    /// Tenant up to which the last round looked.
    last_tenant: Mutex<Option<String>>,
}

/// Rows of the outbox that the index has and that are still to be taken off.
struct Delivered {
    since: Stopwatch,
    lanes: Lanes,
    rows: usize,
    /// Records that are in the index with their vector.
    with_vector: Vec<MemoryId>,
}

/// What is known of a reindex, beside its cursor.
#[derive(Clone, Copy, Debug, Default)]
struct Walk {
    running: bool,
    rebuild: Option<Rebuild>,
    /// Whether the stored vectors are in the index's space.
    same_space: bool,
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay")
            .field("index", &self.shared.index)
            .field("state", &*self.shared.state.lock())
            .finish_non_exhaustive()
    }
}

/// Why a round ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stop {
    Index(Fault),
    Embedder,
    Database(SqliteError),
}

impl From<SqliteError> for Stop {
    fn from(error: SqliteError) -> Self {
        Self::Database(error)
    }
}

impl Relay {
    /// A relay from `database` to `index`. Compares the space of the stored vectors with the embedder's: a difference is
    /// logged with both names and starts a reindex (case C123). Runs nothing until [`Relay::spawn`].
    ///
    /// # Errors
    /// As the database says.
    pub async fn open(
        ports: Ports,
        database: Database,
        index: Arc<dyn Index>,
        embedder: Option<Arc<dyn Embedder>>,
    ) -> Result<Self, Fault> {
        let current = index.space().map(space_text);
        let shared = Shared {
            ports,
            database,
            index,
            embedder,
            wake: Notify::new(),
            state: Mutex::default(),
            prepared: AtomicBool::new(false),
            dense: AtomicBool::new(false),
            complete: AtomicBool::new(false),
            walk: Mutex::default(),
            delivered: Mutex::default(),
            last_tenant: Mutex::default(),
        };
        let relay = Self { shared: Arc::new(shared) };
        let first = current.clone();
        let (stored, cursor, rebuild) = relay
            .shared
            .database
            .write(move |db| {
                // Nothing to walk: the first embedder of an empty database is in use from the start.
                if let (Some(first), None, true) = (first, search::meta(db, META_SPACE)?, search::is_empty(db)?) {
                    search::set_meta(db, META_SPACE, Some(&first))?;
                }
                let meta = |name| search::meta(db, name);
                Ok::<_, SqliteError>((meta(META_SPACE)?, meta(META_CURSOR)?, meta(META_REBUILD)?))
            })
            .await?;
        let rebuild = rebuild.as_deref().map(Rebuild::from_text);
        *relay.shared.walk.lock() = Walk { running: false, rebuild, same_space: stored == current };
        match (&stored, &current) {
            (None, Some(current)) => {
                // The first embedder of this database: records from before it, if any, have no vector yet.
                tracing::info!(embedder = %current, "vectors are made by this embedder from now on");
            }
            (Some(stored), Some(current)) if stored != current => {
                tracing::warn!(
                    stored = %stored, configured = %current,
                    "the embedder changed: every record is embedded again; recall is by key and words until then"
                );
            }
            (Some(stored), None) => {
                tracing::warn!(stored = %stored, "no embedder is configured: recall is by key and words; vectors are kept");
            }
            (_, _) => {}
        }
        if cursor.is_some() || (current.is_some() && stored != current) {
            relay.start_walk(cursor).await?;
        } else {
            relay.settle_flags();
        }
        Ok(relay)
    }

    /// Goes on from `cursor`, or begins.
    async fn start_walk(&self, cursor: Option<String>) -> Result<(), Fault> {
        let after = cursor.as_deref().and_then(record_from);
        let (done, total) = self
            .shared
            .database
            .write(move |db| {
                if cursor.is_none() {
                    search::set_meta(db, META_CURSOR, Some(""))?;
                    search::set_meta(db, META_CREATED, None)?;
                }
                search::walked(db, after)
            })
            .await?;
        {
            let mut state = self.shared.state.lock();
            (state.reindexing, state.reindex_done, state.reindex_total) = (true, done, total);
        }
        self.shared.walk.lock().running = true;
        self.settle_flags();
        self.wake();
        Ok(())
    }

    /// Begins anew, in the copy that is searched or in a second one.
    async fn walk_from_start(&self, rebuild: Option<Rebuild>) -> Result<(), Fault> {
        self.shared
            .database
            .write(move |db| {
                search::set_meta(db, META_REBUILD, rebuild.map(Rebuild::text))?;
                search::set_meta(db, META_CREATED, None)?;
                search::set_meta(db, META_CURSOR, Some(""))
            })
            .await?;
        self.shared.walk.lock().rebuild = rebuild;
        self.start_walk(Some(String::new())).await
    }

    /// What recall may ask the index for now.
    fn settle_flags(&self) {
        let shared = &self.shared;
        let Walk { running, rebuild, same_space } = *shared.walk.lock();
        let whole = !running || rebuild.is_some_and(|rebuild| rebuild.trusted);
        let complete = shared.index.is_view() || whole;
        let dense = shared.index.space().is_some() && same_space && complete && (!running || rebuild.is_some());
        shared.complete.store(complete, Ordering::Release);
        shared.dense.store(dense, Ordering::Release);
    }

    /// Starts the loop in `group`; it ends when the group's token is cancelled and what can be delivered is delivered.
    pub fn spawn(&self, group: &TaskGroup) {
        let (relay, token) = (self.clone(), group.token().clone());
        group.spawn("index relay", async move {
            let mut failures = 0_u32;
            loop {
                let ending = token.is_cancelled();
                let delay = match relay.round(!ending).await {
                    Ok(true) => {
                        failures = 0;
                        continue;
                    }
                    Ok(false) => {
                        failures = 0;
                        None
                    }
                    Err(stop) => {
                        failures = failures.saturating_add(1);
                        relay.note(&stop);
                        let noise = relay.shared.ports.ids.next().as_bytes()[15];
                        Some(BACKOFF.delay(failures, noise))
                    }
                };
                if ending {
                    break;
                }
                let lingers = relay.shared.delivered.lock().is_some();
                let until = async {
                    match delay {
                        Some(delay) => pause(delay).await,
                        None if lingers => {
                            // Either is a reason for the next round.
                            let _ = tokio::time::timeout(LINGER, relay.shared.wake.notified()).await;
                        }
                        None => relay.shared.wake.notified().await,
                    }
                };
                tokio::select! {
                    () = token.cancelled() => {}
                    () = until => {}
                }
            }
        });
    }

    /// Says that the outbox has something new. Call it after the commit.
    pub fn wake(&self) {
        self.shared.wake.notify_one();
    }

    /// Whether dense search may be used: there is an embedder, and every record is in its space.
    #[must_use]
    pub fn dense_ready(&self) -> bool {
        self.shared.dense.load(Ordering::Acquire)
    }

    /// Whether the index knows every record that is not in the outbox. While it does not, words are looked for in the
    /// database.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.shared.complete.load(Ordering::Acquire)
    }

    /// A search failed: looks whether the index is still what it was, before the next change has to find out.
    pub fn suspect(&self) {
        self.shared.prepared.store(false, Ordering::Release);
        self.wake();
    }

    /// The index it tells.
    pub(crate) fn index(&self) -> &Arc<dyn Index> {
        &self.shared.index
    }

    /// Where a reindex is: records up to this one are in the index. None when there is no reindex.
    ///
    /// # Errors
    /// As the database says.
    pub(crate) fn cursor(db: &rusqlite::Connection) -> Result<Option<Option<MemoryId>>, SqliteError> {
        Ok(search::meta(db, META_CURSOR)?.map(|text| record_from(&text)))
    }

    /// When the copy of the index was created that holds everything: nothing that was deleted before was ever in it, and no
    /// other copy is left. None when that is not known.
    ///
    /// # Errors
    /// As the database says.
    pub(crate) fn since(db: &rusqlite::Connection) -> Result<Option<Timestamp>, SqliteError> {
        Ok(search::meta(db, META_SINCE)?.and_then(|text| text.parse().ok()).map(Timestamp))
    }

    /// How it is doing now.
    ///
    /// # Errors
    /// As the database says.
    pub async fn status(&self) -> Result<RelayStatus, Fault> {
        let (pending, oldest) = self.shared.database.read(search::outbox_state).await?;
        let now = self.shared.ports.clock.now();
        let mut state = self.shared.state.lock().clone();
        state.pending = pending;
        state.oldest_micros = oldest.map_or(0, |time: Timestamp| now.since(time).max(0));
        Ok(state)
    }

    /// Fills a second copy of the index from the rows, in the background, and lets it take the place of the first; vectors
    /// that are in the right space are used again. A reindex that runs begins anew. Answers how many records there are.
    ///
    /// # Errors
    /// As the database says.
    pub async fn reindex(&self) -> Result<u64, Fault> {
        let before = *self.shared.walk.lock();
        // What could not be trusted before is not better for being built again.
        let trusted = !before.running || before.rebuild.is_some_and(|rebuild| rebuild.trusted);
        self.walk_from_start(Some(Rebuild { begun: false, trusted })).await?;
        Ok(self.shared.state.lock().reindex_total)
    }

    /// The embedding model of the index; empty when it is keyword-only.
    #[must_use]
    pub fn model(&self) -> String {
        self.shared.index.space().map(|space| space.model.clone()).unwrap_or_default()
    }

    /// One round: a batch of the outbox, then, with `walk`, a stretch of the reindex when there is one. Answers whether
    /// there was something to do.
    async fn round(&self, walk: bool) -> Result<bool, Stop> {
        let shared = &self.shared;
        if !shared.prepared.load(Ordering::Acquire) {
            self.prepare().await?;
            shared.prepared.store(true, Ordering::Release);
        }
        let model = shared.index.space().map(|space| space.model.clone());
        let after = shared.delivered.lock().as_ref().map(|delivered| delivered.lanes.clone()).unwrap_or_default();
        let (of_batch, last_tenant) = (model.clone(), shared.last_tenant.lock().clone());
        let read = move |db: &rusqlite::Connection| {
            search::outbox_batch(db, &after, last_tenant.as_deref(), BATCH_ROWS, of_batch.as_deref())
        };
        let batch = shared.database.read(read).await?;
        let worked = batch.rows > 0;
        if worked {
            let with_vector = self.deliver(batch.changes).await?;
            let mut held = shared.delivered.lock();
            let held = held.get_or_insert_with(|| Delivered {
                since: Stopwatch::start(),
                lanes: Lanes::new(),
                rows: 0,
                with_vector: Vec::new(),
            });
            held.lanes.extend(batch.lanes);
            held.rows += batch.rows;
            held.with_vector.extend(with_vector);
            *shared.last_tenant.lock() = batch.last_tenant;
        }
        // At once while a reindex runs: one that fails would hold up what an erasure waits for by its rests.
        let walking = shared.walk.lock().running;
        self.take_off(!walk || walking).await?;
        let walked = walk && self.walk(model).await?;
        let mut state = shared.state.lock();
        (state.index_down, state.embedder_down) = (false, false);
        state.problem.clear();
        Ok(worked || walked)
    }

    /// Takes delivered rows off the outbox once they are many or have waited, or `now`.
    async fn take_off(&self, now: bool) -> Result<(), SqliteError> {
        let shared = &self.shared;
        let due = |held: &mut Delivered| now || held.rows >= BATCH_ROWS || held.since.elapsed() >= LINGER;
        let Some(Delivered { lanes, with_vector, .. }) = shared.delivered.lock().take_if(due) else { return Ok(()) };
        let model = self.model();
        let taken = shared.database.write(move |db| {
            search::mark_embedded(db, &model, &with_vector)?;
            search::acknowledge(db, &lanes)
        });
        // Lost, they are delivered once more, which changes nothing.
        taken.await
    }

    /// Makes the index ready, and begins to fill what is not as it was left.
    async fn prepare(&self) -> Result<(), Stop> {
        let shared = &self.shared;
        let before = shared.ports.clock.now();
        let found = shared.index.prepare().await.map_err(Stop::Index)?;
        let Walk { running, rebuild, .. } = *shared.walk.lock();
        let again = match (found, rebuild) {
            // Made just now: whatever was to be filled is empty.
            (Prepared::Fresh, _) => (!shared.database.read(search::is_empty).await?).then_some(None),
            // The second copy is gone, or nobody asked for it.
            (Prepared::Ready, Some(rebuild)) if rebuild.begun && !shared.index.is_view() => {
                Some(Some(Rebuild { begun: false, ..rebuild }))
            }
            (Prepared::Rebuilding, None) => Some(Some(Rebuild { begun: false, trusted: !running })),
            (Prepared::Ready | Prepared::Rebuilding, _) => None,
        };
        if let Some(rebuild) = again {
            tracing::warn!(?found, "the index is filled again from the records");
            self.walk_from_start(rebuild).await.map_err(Stop::Index)?;
        }
        if found == Prepared::Fresh {
            let name = if again.is_some() { META_CREATED } else { META_SINCE };
            let since = (again.is_some() || shared.index.is_sole()).then(|| before.micros().to_string());
            shared.database.write(move |db| search::set_meta(db, name, since.as_deref())).await?;
        }
        Ok(())
    }

    /// A stretch of the reindex. Answers whether there is one.
    async fn walk(&self, model: Option<String>) -> Result<bool, Stop> {
        let shared = &self.shared;
        let Walk { running, rebuild, .. } = *shared.walk.lock();
        if !running {
            return Ok(false);
        }
        if let Some(asked) = rebuild.filter(|rebuild| !rebuild.begun) {
            let created = shared.ports.clock.now().micros().to_string();
            shared.index.begin_rebuild().await.map_err(Stop::Index)?;
            let begun = Rebuild { begun: true, ..asked };
            shared
                .database
                .write(move |db| {
                    search::set_meta(db, META_REBUILD, Some(begun.text()))?;
                    search::set_meta(db, META_CREATED, Some(&created))?;
                    // The step that was under way when this was asked for has moved it on.
                    search::set_meta(db, META_CURSOR, Some(""))
                })
                .await?;
            shared.walk.lock().rebuild = Some(begun);
        }
        let of_walk = model.clone();
        let (changes, space) = shared
            .database
            .read(move |db| {
                let cursor = search::meta(db, META_CURSOR)?.unwrap_or_default();
                let after = record_from(&cursor);
                Ok::<_, SqliteError>((search::walk(db, after, WALK_RECORDS, of_walk.as_deref())?, search::meta(db, META_SPACE)?))
            })
            .await?;
        let walked = changes.len() as u64;
        if let Some(last) = changes.last().map(|change| change.memory_id) {
            let delivered = self.deliver(changes).await?;
            let (model, cursor) = (model.unwrap_or_default(), last.to_string());
            shared
                .database
                .write(move |db| {
                    search::mark_embedded(db, &model, &delivered)?;
                    search::set_meta(db, META_CURSOR, Some(&cursor))
                })
                .await?;
            shared.state.lock().reindex_done += walked;
            return Ok(true);
        }
        // Through: records that came meanwhile went through the outbox, in the new space from the start.
        shared.index.finish_rebuild().await.map_err(Stop::Index)?;
        let current = shared.index.space().cloned();
        // Without an embedder now, vectors of the earlier one are kept: it may come back.
        let earlier = space.as_deref().and_then(space_from);
        if current.is_some() && current != earlier {
            shared.index.retire(earlier.as_ref()).await.map_err(Stop::Index)?;
        }
        let sole = shared.index.is_sole();
        let (text, walked) = (current.as_ref().map(space_text), rebuild.map(|rebuild| Rebuild { begun: true, ..rebuild }.text()));
        let closed = shared
            .database
            .write(move |db| {
                if search::meta(db, META_REBUILD)?.as_deref() != walked {
                    return Ok::<bool, SqliteError>(false);
                }
                if let Some(text) = &text {
                    search::set_meta(db, META_SPACE, Some(text))?;
                }
                if let (Some(created), true) = (search::meta(db, META_CREATED)?, sole) {
                    search::set_meta(db, META_SINCE, Some(&created))?;
                }
                search::set_meta(db, META_CREATED, None)?;
                search::set_meta(db, META_REBUILD, None)?;
                search::set_meta(db, META_CURSOR, None)?;
                Ok(true)
            })
            .await?;
        if !closed {
            // Another reindex was asked for meanwhile.
            return Ok(true);
        }
        *shared.walk.lock() = Walk { running: false, rebuild: None, same_space: true };
        self.settle_flags();
        shared.state.lock().reindexing = false;
        tracing::info!("every record is in the index");
        Ok(true)
    }

    /// Brings changes to the index: embeds, stores vectors, applies, in this order. Gives the records that are in it with
    /// their vector.
    async fn deliver(&self, mut changes: Vec<Change>) -> Result<Vec<MemoryId>, Stop> {
        let shared = &self.shared;
        let model = shared.index.space().map(|space| space.model.clone());
        let fresh = self.embed(&mut changes).await?;
        if let (Some(model), false) = (model, fresh.is_empty()) {
            shared.database.write(move |db| search::put_vectors(db, &model, &fresh)).await?;
        }
        let with_vector: Vec<MemoryId> = changes
            .iter()
            .filter(|change| matches!(&change.op, Some(IndexOp::Upsert(upsert)) if upsert.vector.is_some()))
            .map(|change| change.memory_id)
            .collect();
        let ops: Vec<IndexOp> = changes.into_iter().filter_map(|change| change.op).collect();
        shared.index.apply(ops).await.map_err(Stop::Index)?;
        Ok(with_vector)
    }

    /// Makes the vectors that are missing, fills them in, and gives those to store. A text the embedder refuses goes
    /// without: it is found by its words.
    async fn embed(&self, changes: &mut [Change]) -> Result<Vec<(MemoryId, Vec<f32>)>, Stop> {
        let (Some(embedder), Some(space)) = (self.shared.embedder.clone(), self.shared.index.space()) else {
            return Ok(Vec::new());
        };
        if embedder.is_caller() {
            // What came without a vector stays without one: it is found by its words.
            return Ok(Vec::new());
        }
        let mut fresh = Vec::new();
        let mut missing: Vec<&mut Change> = changes.iter_mut().filter(|change| change.content.is_some()).collect();
        for chunk in missing.chunks_mut(EMBED_TEXTS) {
            let texts: Vec<&str> = chunk.iter().filter_map(|change| change.content.as_deref()).collect();
            let vectors = match embedder.embed(&texts, Purpose::Document).await {
                Ok(vectors) => vectors,
                Err(error @ (EmbedError::Unavailable(_) | EmbedError::Overloaded)) => {
                    tracing::warn!(kind = embed_error(&error), "texts wait for the embedder");
                    return Err(Stop::Embedder);
                }
                Err(error) => {
                    tracing::error!(kind = embed_error(&error), records = texts.len(), "records stay without a vector");
                    continue;
                }
            };
            if vectors.len() != chunk.len() {
                tracing::error!("the embedder answered another number of vectors");
                continue;
            }
            for (change, mut vector) in chunk.iter_mut().zip(vectors) {
                if vector.len() != space.dims || !normalise(&mut vector) {
                    continue;
                }
                if let Some(IndexOp::Upsert(upsert)) = &mut change.op {
                    upsert.vector = Some(vector.clone());
                    fresh.push((change.memory_id, vector));
                }
            }
        }
        Ok(fresh)
    }

    fn note(&self, stop: &Stop) {
        let mut state = self.shared.state.lock();
        match stop {
            Stop::Index(fault) => {
                state.index_down = true;
                state.problem.clone_from(&fault.message);
                // It may come back without its collection.
                self.shared.prepared.store(false, Ordering::Release);
            }
            Stop::Embedder => state.embedder_down = true,
            Stop::Database(_) => {}
        }
        tracing::warn!(
            index = state.index_down,
            embedder = state.embedder_down,
            database = matches!(stop, Stop::Database(_)),
            problem = state.problem,
            "the index has to wait for changes"
        );
    }
}

/// The record a cursor stands at; none at the start.
fn record_from(cursor: &str) -> Option<MemoryId> {
    uuid::Uuid::parse_str(cursor).ok().map(MemoryId)
}

/// Class of an embedder's error; its text may come from outside.
fn embed_error(error: &EmbedError) -> &'static str {
    match error {
        EmbedError::Unavailable(_) => "unavailable",
        EmbedError::Overloaded => "overloaded",
        EmbedError::Refused(_) => "refused",
        EmbedError::Model(_) => "model",
        _ => "other",
    }
}

/// Stored form of a space: `name/dims`.
fn space_text(space: &Space) -> String {
    format!("{}/{}", space.model, space.dims)
}

fn space_from(text: &str) -> Option<Space> {
    let (model, dims) = text.rsplit_once('/')?;
    Some(Space { model: model.to_owned(), dims: dims.parse().ok()? })
}

#[cfg(test)]
mod tests;
