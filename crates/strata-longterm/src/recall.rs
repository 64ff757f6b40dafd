//! Recall: what is relevant to a question, of what the asker may see (rules R1 to R13, K8, K10).
//!
//! ```text
//!   keys, query --> prepare (one snapshot): who is asking, the owner's IDF, records of the keys, rows the index lacks
//!        |                |
//!        |           index.search: both legs, filtered inside the query     no answer: keywords from SQLite, degraded
//!        |                |
//!        +-----------> decide (one snapshot): every hit is held against its row, fused, scored, ordered, merged; then
//!                      the few that are answered are read whole
//! ```
//!
//! The index says where to look; SQLite says what is there. A hit whose owner, status, expiry or version is not what the
//! row says is dropped, so a stale index costs recall and nothing else. Nothing here waits for a write: counts go through a
//! bounded queue.

use crate::index::{APART, Index, LegHit, LegQuery, Legs, RecordFilter, agent_mark, cut_hits, exact::dot, marks};
use crate::metadata::search::{self, Candidate, Counted, QueryWeights, Recalled};
use crate::metadata::{Visible, query, row};
use crate::relay::Relay;
use crate::scope::OwnerScope;
use crate::shown::wire;
use arc_swap::ArcSwap;
use moka::sync::Cache;
use rusqlite::Connection;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;
use strata_api::convert::{common, longterm as convert};
use strata_api::longterm::v1 as pb;
use strata_core::policy::conflict::POSSIBLY_SUPERSEDED;
use strata_core::policy::recall::{
    self as policy, Bounds, Fused, Fusion, GateContext, KeywordMatch, OrderFacts, RecallSettings, Rerank, Score, ScoreFacts,
};
use strata_core::policy::registry::Registry;
use strata_core::policy::settings::PolicySettings;
use strata_core::record::{Kind, Status, Tier};
use strata_core::rule::Finding;
use strata_core::time::{DAY, SECOND};
use strata_core::{FactKey, Fault, MemoryId, Owner, Reason, Timestamp, limits};
use strata_runtime::context::CallContext;
use strata_runtime::layer::trace;
use strata_runtime::metrics::{Instruments, Label};
use strata_runtime::ports::{Ports, pause};
use strata_runtime::sqlite::{Database, SqliteError};
use strata_runtime::task::TaskGroup;
use strata_text::TextFeatures;
use strata_text::embed::{Embedder, EmbedderIdentity, Purpose, normalise};
use strata_text::rerank::Reranker;
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

/// Terms of a query that are looked for: more than any question has; a pasted document is cut.
const QUERY_TERMS: usize = 128;
/// Rows of the outbox that are searched beside the index, newest first.
const PENDING_ROWS: usize = 256;
/// Of those, texts that are embedded for the answer; the others are found by their words.
const PENDING_EMBEDS: usize = 32;
/// Vectors of pending rows kept until the relay has delivered them.
const PENDING_VECTORS: u64 = 4_096;
/// Longest wait for a query's vector; then the answer is by key and words.
const EMBED_WAIT: Duration = Duration::from_secs(2);
/// Items looked at beyond the wanted ones, for near-duplicates to merge into.
const MERGE_SLACK: usize = 16;
/// Keys of one call.
const KEYS: usize = 100;
/// Recalls that wait to be counted.
const USAGE_QUEUE: usize = 1_024;
/// Recalls counted in one write.
const USAGE_BATCH: usize = 64;
/// Longest time that a recall waits to be counted with others.
const USAGE_LINGER: Duration = Duration::from_millis(50);
/// Longest wait for the index: what takes longer is answered by keys and words.
const INDEX_WAIT: Duration = Duration::from_millis(1_500);
/// Share of the caller's remaining time that the index may take.
const INDEX_SHARE: f64 = 0.4;
/// A shorter wait than this says nothing of the index.
const HURRY: Duration = Duration::from_millis(250);
/// Superseded records that are looked at a leg, for what replaced them: a value that changes daily must not crowd out the rest.
const REPLACED_HITS: u32 = 8;
/// What is found by the words of what it replaced is somewhat less to the point than what is found by its own.
const REPLACED_SHARE: f32 = 0.9;
/// Failures of the index in a row that open the breaker.
const BREAKER_FAILURES: u32 = 3;
/// Longest time the breaker stays open before one call tries again, in microseconds.
const BREAKER_MICROS: i64 = 5 * SECOND;

/// What recall is made of.
#[derive(Clone, Debug)]
pub struct RecallParts {
    /// Clock and ids.
    pub ports: Ports,
    /// Settings: read once per call.
    pub settings: Arc<ArcSwap<PolicySettings>>,
    /// The truth.
    pub database: Database,
    /// Known keys, for their aliases.
    pub registry: Arc<Registry>,
    /// The index.
    pub index: Arc<dyn Index>,
    /// Makes vectors.
    pub embedder: Option<Arc<dyn Embedder>>,
    /// Takes the second look of `rerank = "remote"` (rule R9).
    pub reranker: Option<Arc<dyn Reranker>>,
    /// Knows whether dense search may be used.
    pub relay: Relay,
}

/// Recall. Cheap to clone.
#[derive(Clone)]
pub struct Recall {
    parts: RecallParts,
    breaker: Arc<Breaker>,
    pending_vectors: Cache<MemoryId, Arc<Vec<f32>>>,
    usage: mpsc::Sender<Usage>,
    counter: Arc<parking_lot::Mutex<Option<mpsc::Receiver<Usage>>>>,
}

impl fmt::Debug for Recall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recall").field("index", &self.parts.index).finish_non_exhaustive()
    }
}

enum Usage {
    Recalled(Counted),
    Settled(oneshot::Sender<()>),
}

/// Keeps calls away from an index that does not answer.
#[derive(Debug, Default)]
struct Breaker {
    failures: AtomicU32,
    closed_again: AtomicI64,
}

impl Breaker {
    fn lets_through(&self, now: Timestamp) -> bool {
        let until = self.closed_again.load(Ordering::Acquire);
        // A clock that stepped back must not keep it open.
        self.failures.load(Ordering::Acquire) < BREAKER_FAILURES || now.micros() >= until || until - now.micros() > BREAKER_MICROS
    }

    fn answered(&self) {
        self.failures.store(0, Ordering::Release);
    }

    /// No answer at all: the next ones do not wait for it.
    fn hung(&self, now: Timestamp) {
        self.failures.fetch_max(BREAKER_FAILURES - 1, Ordering::AcqRel);
        self.failed(now);
    }

    fn failed(&self, now: Timestamp) {
        let failures = self.failures.fetch_add(1, Ordering::AcqRel).saturating_add(1);
        let wait = (SECOND / 4).saturating_mul(1 << failures.min(5)).min(BREAKER_MICROS);
        self.closed_again.store(now.plus(wait).micros(), Ordering::Release);
    }
}

/// A call, understood.
#[derive(Clone, Debug)]
struct Asked {
    /// None when only keys are asked for.
    query: Option<String>,
    keys: Vec<FactKey>,
    k: limits::Page,
    filter: RecordFilter,
    min_score: f64,
    explain: bool,
    no_report: bool,
    fresh: Option<u64>,
    vector: Option<Vec<f32>>,
}

/// What one snapshot says before the index is asked.
#[derive(Debug, Default)]
struct Prepared {
    owner_ids: Vec<i64>,
    user_id: i64,
    weights: QueryWeights,
    keyed: Vec<Candidate>,
    pending: Vec<PendingRow>,
    /// Of which records the successors are wanted; none when the owner has no superseded ones, or they are asked for themselves.
    replaced: Option<RecordFilter>,
    /// Superseded records the index has still to be told of.
    pending_replaced: Vec<PendingRow>,
    /// The index lacks more than `pending` holds: words are then looked up in the truth.
    behind: bool,
}

/// A record the index has still to be told of.
#[derive(Debug)]
struct PendingRow {
    candidate: Candidate,
    words: KeywordMatch,
    vector: Option<Arc<Vec<f32>>>,
    content: Option<String>,
}

/// What the legs found, whoever answered.
#[derive(Debug, Default)]
struct Found {
    legs: Legs,
    /// The same over superseded records.
    replaced: Legs,
    /// The query's vector, for the pending rows.
    query: Option<Vec<f32>>,
    degraded: bool,
    findings: Vec<Finding>,
}

/// A record on its way into the answer.
#[derive(Clone, Debug)]
struct Item {
    candidate: Candidate,
    score: Score,
    ranks: policy::Ranks,
    raw: policy::Raw,
    paths: BTreeSet<&'static str>,
    labels: Vec<String>,
}

impl Recall {
    /// Puts it together; [`Recall::spawn`] starts its counting.
    #[must_use]
    pub fn new(parts: RecallParts) -> Self {
        let (usage, counter) = mpsc::channel(USAGE_QUEUE);
        Self {
            parts,
            breaker: Arc::default(),
            pending_vectors: Cache::new(PENDING_VECTORS),
            usage,
            counter: Arc::new(parking_lot::Mutex::new(Some(counter))),
        }
    }

    /// Forgets what is kept in memory of a record.
    pub(crate) fn forget(&self, id: MemoryId) {
        self.pending_vectors.invalidate(&id);
    }

    /// Starts the task that counts recalls; the second call does nothing. It ends with `group`, after what was queued.
    pub fn spawn(&self, group: &TaskGroup) {
        let Some(mut queue) = self.counter.lock().take() else { return };
        let (database, token) = (self.parts.database.clone(), group.token().clone());
        group.spawn("recall counts", async move {
            let mut batch = Vec::with_capacity(USAGE_BATCH);
            loop {
                let received = tokio::select! {
                    biased;
                    received = queue.recv_many(&mut batch, USAGE_BATCH) => received,
                    () = token.cancelled() => 0,
                };
                if received == 0 {
                    break;
                }
                if batch.iter().all(|usage| matches!(usage, Usage::Recalled(_))) && !token.is_cancelled() {
                    // A commit waits for the disk, and the writes of callers behind it: one for many recalls.
                    pause(USAGE_LINGER).await;
                    while let (true, Ok(more)) = (batch.len() < USAGE_BATCH, queue.try_recv()) {
                        batch.push(more);
                    }
                }
                let (mut recalls, mut waiting) = (Vec::new(), Vec::new());
                for usage in batch.drain(..) {
                    match usage {
                        Usage::Recalled(recalled) => recalls.push(recalled),
                        Usage::Settled(tell) => waiting.push(tell),
                    }
                }
                let written: Result<(), SqliteError> = database.write(move |db| search::record_recalls(db, &recalls)).await;
                if let Err(error) = written {
                    tracing::warn!(%error, "recalls were not counted");
                }
                for tell in waiting {
                    // Who no longer waits needs no answer.
                    let _ = tell.send(());
                }
            }
        });
    }

    /// Waits until every recall that was answered before is counted and its id can be reported on.
    pub async fn settle(&self) {
        let (tell, told) = oneshot::channel();
        if self.usage.send(Usage::Settled(tell)).await.is_ok() {
            // The task may have ended: then nothing will be counted any more.
            let _ = told.await;
        }
    }

    /// Finds what is relevant.
    ///
    /// # Errors
    /// `INVALID_FIELD` naming the field; `NOT_FRESH_ENOUGH` when the wanted revision is not there; as the database says.
    /// An index or embedder that does not answer is no error: the answer says `degraded` (rule D2).
    pub async fn recall(&self, scope: &OwnerScope, request: pb::RecallRequest) -> Result<pb::RecallResponse, Fault> {
        let settings = self.parts.settings.load().recall.clone();
        let now = self.parts.ports.clock.now();
        let asked = self.understand(scope.owner(), request, &settings, now)?;
        let terms = asked.query.as_deref().map(strata_text::query_terms).unwrap_or_default();
        let terms: Vec<(u32, u32)> = terms.iter().copied().take(QUERY_TERMS).collect();
        let searches = !terms.is_empty() || asked.vector.is_some();

        let prepared = self.prepare(scope, &asked, terms, searches).await?;
        let Some(mut prepared) = prepared else {
            return Ok(self.answer(scope.owner(), &asked, Vec::new(), Found::default(), None));
        };
        let mut found =
            if searches { self.search(scope.owner(), &asked, &settings, &mut prepared).await? } else { Found::default() };
        if asked.query.is_some() && !searches {
            found.findings.push(Finding::new("R3", "NOTHING_TO_SEARCH", "the query holds nothing that can be searched for"));
        }
        let user_id = prepared.user_id;
        let (query, legs) = (found.query.take(), std::mem::take(&mut found.legs));
        let replaced = std::mem::take(&mut found.replaced);
        let space = self.parts.index.space().map(|space| space.model.clone());
        let min_similarity = self.parts.embedder.as_ref().map_or(1.0, |e| f64::from(e.identity().min_similarity));
        let decision =
            Decision { asked: asked.clone(), settings, prepared, legs, replaced, query, space, min_similarity, searches };
        let (items, findings) = if decision.settings.rerank == Rerank::Remote && asked.query.is_some() {
            self.decide_reranked(decision).await?
        } else {
            self.parts.database.read(move |db| decision.decide(db)).await?
        };
        found.findings.extend(findings);
        Ok(self.answer(scope.owner(), &asked, items, found, Some(user_id)))
    }

    /// Decides with a second look by the remote reranker at the best that was found (rule R9): between two snapshots, so that
    /// no connection is held while it thinks. Without its answer the order stays, and a finding says so.
    async fn decide_reranked(&self, decision: Decision) -> Result<(Vec<pb::RecallItem>, Vec<Finding>), Fault> {
        let (decision, mut items, mut findings, texts) = self.parts.database.read(move |db| decision.candidates(db)).await?;
        let query = decision.asked.query.as_deref().unwrap_or_default();
        let contents: Vec<&str> = texts.iter().map(|(_, text)| text.as_str()).collect();
        let scores = match &self.parts.reranker {
            Some(reranker) => reranker.score(query, &contents).await.map_err(|error| error.to_string()),
            None => Err("none is configured".to_owned()),
        };
        match scores {
            Ok(scores) => {
                // What was looked at changes places among itself; keys before it and what follows it stay.
                let looked_at: Vec<usize> = texts.iter().map(|(at, _)| *at).collect();
                let better: Vec<Item> =
                    policy::reranked(&scores).into_iter().filter_map(|at| items.get(*looked_at.get(at)?).cloned()).collect();
                for (place, item) in looked_at.into_iter().zip(better) {
                    items[place] = item;
                }
                if decision.asked.explain {
                    findings.push(Finding::new("R9", "REMOTE", format!("{} candidates in the reranker's order", scores.len())));
                }
            }
            Err(why) => {
                tracing::warn!(%why, "recall was not reranked");
                findings.push(Finding::new("R9", "NOT_RERANKED", format!("the reranker gave no order ({why}): by score")));
            }
        }
        self.parts.database.read(move |db| decision.finish_later(db, items, findings)).await
    }

    /// Reads the request; what cannot be understood is an error, never no filter (case C072).
    fn understand(
        &self,
        owner: &Owner,
        request: pb::RecallRequest,
        settings: &RecallSettings,
        now: Timestamp,
    ) -> Result<Asked, Fault> {
        let keys: Vec<FactKey> =
            convert::keys("keys", &request.keys, KEYS)?.into_iter().map(|key| self.parts.registry.resolve(&key)).collect();
        let blank = request.query.chars().all(|c| c.is_whitespace() || strata_core::id::is_hidden(c));
        let query =
            if blank && !keys.is_empty() { None } else { Some(common::text("query", &request.query, limits::QUERY_CHARS)?) };
        if !request.min_score.is_finite() || !(0.0..=1.0).contains(&request.min_score) {
            return Err(Fault::field("min_score", "must lie between 0 and 1, on the fused scale of the configured method"));
        }
        let fresh = match request.at_least_as_fresh.as_str() {
            "" => None,
            text => Some(text.parse().map_err(|_| Fault::field("at_least_as_fresh", "is not a revision of this service"))?),
        };
        Ok(Asked {
            query,
            keys,
            k: limits::page("k", request.k, settings.k, limits::RECALL_K_MAX)?,
            filter: record_filter(owner, &convert::filter(request.filter.as_ref())?, now),
            min_score: request.min_score,
            explain: request.explain,
            no_report: request.no_report,
            fresh,
            vector: self.supplied(request.vector)?,
        })
    }

    /// A vector of the caller's own embedder.
    fn supplied(&self, mut vector: Vec<f32>) -> Result<Option<Vec<f32>>, Fault> {
        if vector.is_empty() {
            return Ok(None);
        }
        match caller_space(self.parts.embedder.as_deref()) {
            // Vectors of two models are never compared, whatever their dimensions (case C123).
            None => Err(Fault::field(
                "vector",
                "the service does not run with `embedder.kind = \"caller\"`: it makes its own vectors",
            )),
            Some(space) => checked("vector", &mut vector, space.dimensions).map(|()| Some(vector)),
        }
    }

    async fn prepare(
        &self,
        scope: &OwnerScope,
        asked: &Asked,
        terms: Vec<(u32, u32)>,
        searches: bool,
    ) -> Result<Option<Prepared>, Fault> {
        let (scope, asked) = (scope.clone(), asked.clone());
        let space = self.parts.index.space().map(|space| space.model.clone());
        let cached = self.pending_vectors.clone();
        self.parts
            .database
            .read(move |db| {
                let visible = Visible::of(db, &scope)?;
                let revision = visible.as_ref().map_or(0, |visible| visible.revision);
                if asked.fresh.is_some_and(|fresh| revision < fresh) {
                    let fault = Fault::new(Reason::NotFreshEnough, "the wanted revision is not here yet; retry shortly");
                    return Err(fault.with("revision", revision.to_string()).retry_after(100));
                }
                let Some(visible) = visible else { return Ok(None) };
                let mut prepared = Prepared { user_id: visible.user_id, owner_ids: visible.owner_ids, ..Prepared::default() };
                for key in &asked.keys {
                    prepared.keyed.extend(search::of_key(db, &prepared.owner_ids, key.as_str(), &asked.filter)?);
                }
                if searches {
                    prepared.weights = search::query_weights(db, &prepared.owner_ids, &terms)?;
                    let ids = search::pending(db, &prepared.owner_ids, PENDING_ROWS)?;
                    prepared.behind = ids.len() == PENDING_ROWS;
                    prepared.replaced = replaced_filter(&asked.filter).filter(|_| prepared.weights.records > 0);
                    if let Some(filter) = prepared.replaced.take()
                        && search::any_superseded(db, &prepared.owner_ids)?
                    {
                        prepared.pending_replaced = pending_rows(db, &prepared, ids.clone(), &filter, space.as_deref(), &cached)?;
                        prepared.replaced = Some(filter);
                    }
                    prepared.pending = pending_rows(db, &prepared, ids, &asked.filter, space.as_deref(), &cached)?;
                }
                Ok(Some(prepared))
            })
            .await
    }

    /// Asks the index, and embeds what it lacks beside it.
    async fn search(
        &self,
        owner: &Owner,
        asked: &Asked,
        settings: &RecallSettings,
        prepared: &mut Prepared,
    ) -> Result<Found, Fault> {
        let mut found = Found::default();
        found.query = self.query_vector(asked, &mut found).await;
        let limit = settings.leg_limit(asked.k.size);
        let query =
            LegQuery { dense: found.query.clone(), sparse: prepared.weights.known.clone(), limit, filter: asked.filter.clone() };
        let asks = query.dense.is_some() || !query.sparse.is_empty();
        let of_replaced =
            prepared.replaced.clone().map(|filter| LegQuery { limit: REPLACED_HITS.min(limit), filter, ..query.clone() });
        let legs = async {
            if !asks {
                return Some((Legs::default(), Legs::default()));
            }
            let replaced = async {
                match &of_replaced {
                    Some(query) => self.parts.index.search(owner, query).await,
                    None => Ok(Legs::default()),
                }
            };
            self.answered(asked.filter.now, futures::future::try_join(self.parts.index.search(owner, &query), replaced)).await
        };
        let embeds = async {
            if query.dense.is_some() {
                let rows = prepared.pending.iter_mut().chain(&mut prepared.pending_replaced);
                self.embed_pending(rows).await;
            }
        };
        let (legs, ()) = futures::join!(legs, embeds);
        if legs.is_none() {
            found.degraded = true;
            found.findings.push(Finding::new(
                "D2",
                "DEGRADED",
                "the search index does not answer or is being filled: found by keys and words",
            ));
        }
        if legs.is_none() || prepared.behind {
            let (ids, sparse, filter) = (prepared.owner_ids.clone(), query.sparse, asked.filter.clone());
            let replaced = prepared.replaced.clone();
            let keyword = move |db: &Connection| {
                search::keyword_legs(db, &ids, &sparse, (&filter, limit), (replaced.as_ref(), REPLACED_HITS))
            };
            let (keyword, of_replaced) = self.parts.database.read(keyword).await?;
            let (legs, replaced) = legs.unwrap_or_default();
            found.legs = Legs { dense: legs.dense, keyword };
            found.replaced = Legs { dense: replaced.dense, keyword: of_replaced };
        } else {
            (found.legs, found.replaced) = legs.unwrap_or_default();
        }
        Ok(found)
    }

    /// Waits for an answer of the index, not longer than the caller can; none when it is not asked or does not answer.
    async fn answered<T>(&self, now: Timestamp, asking: impl Future<Output = Result<T, Fault>>) -> Option<T> {
        if !self.parts.relay.complete() || !self.breaker.lets_through(now) {
            return None;
        }
        // The caller's time is not the index's alone: keys and words are still to be looked up after it.
        let wait = CallContext::current().remaining().map_or(INDEX_WAIT, |left| INDEX_WAIT.min(left.mul_f64(INDEX_SHARE)));
        match tokio::time::timeout(wait, asking).await {
            Ok(Ok(answer)) => {
                self.breaker.answered();
                Some(answer)
            }
            Ok(Err(_)) => {
                self.breaker.failed(now);
                self.parts.relay.suspect();
                None
            }
            Err(_) => {
                // A full wait says that the index hangs: the next ones do not wait for it. A caller in a hurry says nothing.
                if wait == INDEX_WAIT {
                    self.breaker.hung(now);
                } else if wait >= HURRY {
                    self.breaker.failed(now);
                }
                None
            }
        }
    }

    /// What the index finds, for a write that can do without: nothing when it does not answer.
    pub(crate) async fn near(&self, owner: &Owner, query: &LegQuery) -> Legs {
        self.answered(query.filter.now, self.parts.index.search(owner, query)).await.unwrap_or_default()
    }

    /// The query's vector, when dense search can be used.
    async fn query_vector(&self, asked: &Asked, found: &mut Found) -> Option<Vec<f32>> {
        let (space, embedder) = (self.parts.index.space()?, self.parts.embedder.as_ref()?);
        if !self.parts.relay.dense_ready() {
            found.degraded = true;
            found.findings.push(Finding::new(
                "D2",
                "REINDEXING",
                "records are being embedded by the configured embedder: found by keys and words until then",
            ));
            return None;
        }
        if asked.vector.is_some() {
            return asked.vector.clone();
        }
        if embedder.is_caller() {
            // No vector came with the query: that is the caller's choice, not a failure.
            return None;
        }
        let text = asked.query.as_deref()?;
        // One letter means nothing to an embedder and everything to the words (case C077).
        if text.chars().filter(|c| c.is_alphanumeric()).count() < 2 {
            return None;
        }
        let embedded = tokio::time::timeout(EMBED_WAIT, embedder.embed(&[text], Purpose::Query)).await;
        let vector = embedded.ok().and_then(Result::ok).and_then(|mut vectors| vectors.pop());
        let vector = vector.and_then(|mut vector| (vector.len() == space.dims && normalise(&mut vector)).then_some(vector));
        if vector.is_none() {
            found.degraded = true;
            found.findings.push(Finding::new("D2", "DEGRADED", "the query could not be embedded: found by keys and words"));
        }
        vector
    }

    /// Makes the vectors of rows the index has still to be told of; content never changes, so they are kept.
    async fn embed_pending<'a>(&self, pending: impl Iterator<Item = &'a mut PendingRow>) {
        let Some(embedder) = self.parts.embedder.as_ref().filter(|embedder| !embedder.is_caller()) else { return };
        let dims = self.parts.index.space().map_or(0, |space| space.dims);
        let mut missing: Vec<&mut PendingRow> =
            pending.filter(|row| row.vector.is_none() && row.content.is_some()).take(PENDING_EMBEDS).collect();
        if missing.is_empty() {
            return;
        }
        let texts: Vec<&str> = missing.iter().filter_map(|row| row.content.as_deref()).collect();
        let embedded = tokio::time::timeout(EMBED_WAIT, embedder.embed(&texts, Purpose::Document)).await;
        let Ok(Ok(vectors)) = embedded else { return };
        for (row, mut vector) in missing.iter_mut().zip(vectors) {
            if vector.len() == dims && normalise(&mut vector) {
                let vector = Arc::new(vector);
                self.pending_vectors.insert(row.candidate.row.memory_id, Arc::clone(&vector));
                row.vector = Some(vector);
            }
        }
    }

    /// The answer, and its entry among the recalls that can be reported on.
    fn answer(
        &self,
        owner: &Owner,
        asked: &Asked,
        items: Vec<pb::RecallItem>,
        found: Found,
        user_id: Option<i64>,
    ) -> pb::RecallResponse {
        let outcome = if found.degraded {
            "degraded"
        } else if items.is_empty() {
            "empty"
        } else {
            "found"
        };
        let instruments = Instruments::global();
        instruments.recalls.add(1, &[Label::new("outcome", outcome)]);
        instruments.recalled.add(items.len() as u64, &[]);
        trace::note_rules(&found.findings);
        trace::note_records(items.len());
        let recall_id = (!asked.no_report).then(|| self.parts.ports.ids.next());
        let ids: Vec<MemoryId> =
            items.iter().filter_map(|item| Uuid::parse_str(&item.memory.as_ref()?.memory_id).ok().map(MemoryId)).collect();
        if let (Some(recall_id), Some(user_id), false) = (recall_id, user_id, ids.is_empty()) {
            let recalled = Recalled { recall_id, user_id, time: asked.filter.now, ids };
            self.count(Counted {
                tenant: owner.tenant.as_str().to_owned(),
                recalled: Some(recalled),
                context: None,
                time: asked.filter.now,
            });
        }
        pb::RecallResponse {
            items,
            capped: asked.k.capped,
            degraded: found.degraded,
            findings: found.findings.iter().map(common::wire_finding).collect(),
            recall_id: recall_id.map(|id| id.to_string()).unwrap_or_default(),
        }
    }

    /// Counts in the background.
    pub(crate) fn count(&self, counted: Counted) {
        if self.usage.try_send(Usage::Recalled(counted)).is_err() {
            tracing::warn!("too many recalls wait to be counted: one is not");
        }
    }
}

/// The filter of a call (rules R1, R13).
fn record_filter(owner: &Owner, asked: &convert::Filter, now: Timestamp) -> RecordFilter {
    let mut filter = RecordFilter::active(owner, now);
    if !asked.kinds.is_empty() {
        filter.kinds = asked.kinds.clone();
    }
    if !asked.statuses.is_empty() {
        filter.statuses = asked.statuses.clone();
    }
    filter.agent = owner.agent.as_ref().map(|agent| agent_mark(Some(agent)));
    filter.tiers = asked.tiers.clone();
    filter.marks = marks(asked.tags.iter().map(String::as_str), &asked.metadata, asked.session_id.as_deref());
    (filter.from, filter.to) = (asked.from, asked.to);
    filter
}

/// Of which records the successors are wanted: superseded ones, whatever their time and labels, since it is the successor that
/// has to pass the caller's filter. None for who asks for other statuses.
fn replaced_filter(asked: &RecordFilter) -> Option<RecordFilter> {
    (asked.statuses == [Status::Active]).then(|| RecordFilter {
        statuses: vec![Status::Superseded],
        tiers: Vec::new(),
        marks: Vec::new(),
        from: None,
        to: None,
        ..asked.clone()
    })
}

fn pending_rows(
    db: &Connection,
    prepared: &Prepared,
    ids: Vec<MemoryId>,
    filter: &RecordFilter,
    space: Option<&str>,
    cached: &Cache<MemoryId, Arc<Vec<f32>>>,
) -> Result<Vec<PendingRow>, SqliteError> {
    let mut out = Vec::new();
    for memory_id in ids {
        let Some(candidate) = search::candidate(db, &prepared.owner_ids, memory_id, filter)? else { continue };
        let words = search::keyword_match(db, candidate.owner_id, memory_id, candidate.length, &prepared.weights.known)?;
        let mut vector = cached.get(&memory_id);
        if let (None, Some(space)) = (&vector, space) {
            vector = search::vector(db, memory_id, space)?.map(Arc::new);
        }
        let content = if vector.is_none() && space.is_some() { search::content(db, memory_id)? } else { None };
        out.push(PendingRow { candidate, words, vector, content });
    }
    Ok(out)
}

/// Everything the last step needs, in one snapshot of the truth.
struct Decision {
    asked: Asked,
    settings: RecallSettings,
    prepared: Prepared,
    legs: Legs,
    replaced: Legs,
    query: Option<Vec<f32>>,
    space: Option<String>,
    min_similarity: f64,
    searches: bool,
}

impl Decision {
    fn decide(mut self, db: &Connection) -> Result<(Vec<pb::RecallItem>, Vec<Finding>), Fault> {
        let mut findings = Vec::new();
        let items = self.relevant(db, &mut findings)?;
        self.finish(db, items, findings)
    }

    /// What is relevant, and the contents of what a reranker looks at, with their places.
    #[expect(clippy::type_complexity, reason = "one caller")]
    fn candidates(mut self, db: &Connection) -> Result<(Self, Vec<Item>, Vec<Finding>, Vec<(usize, String)>), Fault> {
        let mut findings = Vec::new();
        let items = self.relevant(db, &mut findings)?;
        let most = self.settings.rerank_candidates.max(self.asked.k.size) as usize;
        let mut texts = Vec::new();
        for (at, item) in items.iter().enumerate().filter(|(_, item)| !item.paths.contains("key")).take(most) {
            texts.extend(search::content(db, item.candidate.row.memory_id)?.map(|text| (at, text)));
        }
        Ok((self, items, findings, texts))
    }

    /// As [`Self::finish`], in a later snapshot than the items: what changed since is not shown.
    fn finish_later(
        self,
        db: &Connection,
        items: Vec<Item>,
        findings: Vec<Finding>,
    ) -> Result<(Vec<pb::RecallItem>, Vec<Finding>), Fault> {
        let mut still = Vec::with_capacity(items.len());
        for item in items {
            let row = &item.candidate.row;
            let now = search::candidate(db, &self.prepared.owner_ids, row.memory_id, &self.asked.filter)?;
            if now.is_some_and(|now| now.row.version == row.version) {
                still.push(item);
            }
        }
        self.finish(db, still, findings)
    }

    /// By key, then by relevance, one value of a slot.
    fn relevant(&mut self, db: &Connection, findings: &mut Vec<Finding>) -> Result<Vec<Item>, Fault> {
        let keyed = std::mem::take(&mut self.prepared.keyed);
        let mut items: Vec<Item> = keyed.into_iter().map(|candidate| self.item_of_key(candidate)).collect();
        items.sort_by(|a, b| self.order(a, b));
        items.extend(self.searched(db)?);
        self.one_of_each_slot(db, items, findings)
    }

    /// The answer: merged, filled up, in the order that is shown.
    fn finish(
        &self,
        db: &Connection,
        items: Vec<Item>,
        mut findings: Vec<Finding>,
    ) -> Result<(Vec<pb::RecallItem>, Vec<Finding>), Fault> {
        let mut items = self.merged(db, items)?;
        if self.searches && items.len() < self.asked.k.size as usize {
            self.add_recent(db, &mut items)?;
        }
        self.pull_newer(db, &mut items)?;
        put_under_newer(&mut items);
        items.truncate(self.asked.k.size as usize);
        if self.asked.explain {
            let method = match self.settings.fusion {
                Fusion::Rrf => "RRF",
                Fusion::MinMax => "MIN_MAX",
                Fusion::Absolute => "ABSOLUTE",
            };
            let because = format!("{} records of the owner, {} candidates a leg", self.prepared.weights.records, self.limit());
            findings.push(Finding::new("R4", method, because));
        }
        let mut out = Vec::with_capacity(items.len());
        for item in items {
            out.extend(self.whole(db, item)?);
        }
        Ok((out, findings))
    }

    fn limit(&self) -> u32 {
        self.settings.leg_limit(self.asked.k.size)
    }

    fn order(&self, a: &Item, b: &Item) -> std::cmp::Ordering {
        let facts = |item: &Item| OrderFacts {
            score: item.score.score,
            confidence: item.candidate.confidence,
            last_used: item.candidate.last_cited_at,
            id: item.candidate.row.memory_id,
        };
        policy::order(&self.settings, &facts(a), &facts(b))
    }

    fn score(&self, fused: f64, candidate: &Candidate) -> Score {
        let facts = ScoreFacts {
            tier: candidate.row.tier,
            event_time: candidate.row.event_time,
            last_cited_at: candidate.last_cited_at,
            cite_count: candidate.cite_count,
            confidence: candidate.confidence,
            importance: candidate.importance,
        };
        policy::final_score(&self.settings, fused, &facts, self.asked.filter.now)
    }

    /// A record that was asked for by its key is as relevant as can be (rule R2).
    fn item_of_key(&self, candidate: Candidate) -> Item {
        let score = self.score(1.0, &candidate);
        Item {
            candidate,
            score,
            ranks: policy::Ranks::default(),
            raw: policy::Raw::default(),
            paths: BTreeSet::from(["key"]),
            labels: Vec::new(),
        }
    }

    /// Hits of both legs, held against their rows, fused, above floor and threshold, in order (rules R1, R3 to R7).
    fn searched(&mut self, db: &Connection) -> Result<Vec<Item>, Fault> {
        let mut rows: HashMap<MemoryId, Candidate> = HashMap::new();
        let pending: HashMap<MemoryId, PendingRow> =
            std::mem::take(&mut self.prepared.pending).into_iter().map(|row| (row.candidate.row.memory_id, row)).collect();
        let legs = std::mem::take(&mut self.legs);
        let mut known: HashMap<MemoryId, Option<u64>> = HashMap::new();
        for hit in legs.dense.iter().chain(&legs.keyword) {
            if pending.contains_key(&hit.memory_id) || known.contains_key(&hit.memory_id) {
                continue;
            }
            let found = search::candidate(db, &self.prepared.owner_ids, hit.memory_id, &self.asked.filter)?;
            known.insert(hit.memory_id, found.as_ref().map(|found| found.row.version));
            rows.extend(found.map(|found| (hit.memory_id, found)));
        }
        let fits = |hit: &LegHit| known.get(&hit.memory_id).copied().flatten() == Some(hit.version);
        let mut dense: Vec<LegHit> = legs.dense.into_iter().filter(&fits).collect();
        let mut keyword: Vec<LegHit> = legs.keyword.into_iter().filter(&fits).collect();

        let gate = GateContext { dense: self.query.is_some(), records: self.prepared.weights.records, turns: false };
        let (weights, settings) = (&self.prepared.weights, &self.settings);
        let gated = gate.dense && gate.records >= settings.keyword_gate_records;
        let mut passing = Vec::with_capacity(keyword.len());
        for hit in keyword.drain(..) {
            let Some(candidate) = rows.get(&hit.memory_id) else { continue };
            if gated {
                let words = search::keyword_match(db, candidate.owner_id, hit.memory_id, candidate.length, &weights.known)?;
                if !policy::keyword_gate(words, weights.mass, gate, settings) {
                    continue;
                }
            }
            passing.push(hit);
        }
        let mut keyword = passing;

        let replacing = self.replacing(db, gate, gated)?;
        let (weights, settings) = (&self.prepared.weights, &self.settings);
        let mut late = BTreeSet::new();
        for (memory_id, row) in pending {
            let version = row.candidate.row.version;
            if let (Some(query), Some(vector)) = (&self.query, &row.vector)
                && query.len() == vector.len()
            {
                dense.push(LegHit { memory_id, version, score: dot(query, vector).clamp(-1.0, 1.0) });
            }
            if policy::keyword_gate(row.words, weights.mass, gate, settings) {
                keyword.push(LegHit { memory_id, version, score: row.words.score as f32 });
            }
            late.insert(memory_id);
            rows.insert(memory_id, row.candidate);
        }
        // What replaced a hit is found in its stead, once a leg (rule K0).
        let mut linked = BTreeSet::new();
        for (candidate, cosine, words) in replacing {
            let (memory_id, version) = (candidate.row.memory_id, candidate.row.version);
            for (leg, score) in [(&mut dense, cosine), (&mut keyword, words)] {
                let Some(score) = score.map(|score| score * REPLACED_SHARE) else { continue };
                match leg.iter_mut().find(|hit| hit.memory_id == memory_id) {
                    Some(hit) => hit.score = hit.score.max(score),
                    None => {
                        linked.insert(memory_id);
                        leg.push(LegHit { memory_id, version, score });
                    }
                }
            }
            rows.entry(memory_id).or_insert(candidate);
        }
        for leg in [&mut dense, &mut keyword] {
            cut_hits(leg, self.settings.leg_limit(self.asked.k.size) as usize);
        }

        let scores = |leg: &[LegHit]| leg.iter().map(|hit| (hit.memory_id, f64::from(hit.score))).collect::<Vec<_>>();
        let bounds = Bounds { min_similarity: self.min_similarity, max_bm25: weights.ceiling };
        let floor = settings.floor_of(settings.fusion).max(self.asked.min_score);
        let fused = policy::fuse(settings, settings.fusion, &scores(&dense), &scores(&keyword), bounds);
        let mut items: Vec<Item> = Vec::with_capacity(fused.len());
        for Fused { id, fused, ranks, raw } in fused.into_iter().filter(|hit| hit.fused >= floor) {
            let Some(candidate) = rows.remove(&id) else { continue };
            let mut paths = BTreeSet::new();
            paths.extend(ranks.dense.is_some().then_some("dense"));
            paths.extend(ranks.keyword.is_some().then_some("keyword"));
            paths.extend(late.contains(&id).then_some("pending"));
            paths.extend(linked.contains(&id).then_some("link"));
            let score = self.score(fused, &candidate);
            items.push(Item { candidate, score, ranks, raw, paths, labels: Vec::new() });
        }
        items.sort_by(|a, b| self.order(a, b));
        Ok(items)
    }

    /// What stands today in the place of superseded records that were found, with the cosine and the BM25 of those (rule K0):
    /// "where do I live?" finds "I live in Berlin", which was replaced by "I moved to Munich".
    #[expect(clippy::type_complexity, reason = "one caller")]
    fn replacing(
        &mut self,
        db: &Connection,
        gate: GateContext,
        gated: bool,
    ) -> Result<Vec<(Candidate, Option<f32>, Option<f32>)>, Fault> {
        let Some(filter) = self.prepared.replaced.take() else { return Ok(Vec::new()) };
        let (legs, pending) = (std::mem::take(&mut self.replaced), std::mem::take(&mut self.prepared.pending_replaced));
        let (weights, owners) = (&self.prepared.weights, &self.prepared.owner_ids);
        let mut found: BTreeMap<MemoryId, (Option<f32>, Option<f32>)> = BTreeMap::new();
        for hit in &legs.dense {
            found.entry(hit.memory_id).or_default().0 = Some(hit.score);
        }
        for hit in &legs.keyword {
            found.entry(hit.memory_id).or_default().1 = Some(hit.score);
        }
        // What the index does not know yet is read from the truth.
        for row in &pending {
            let cosine = match (&self.query, &row.vector) {
                (Some(query), Some(vector)) if query.len() == vector.len() => Some(dot(query, vector).clamp(-1.0, 1.0)),
                _ => None,
            };
            let words = (row.words.score > 0.0).then_some(row.words.score as f32);
            found.insert(row.candidate.row.memory_id, (cosine, words));
        }
        let mut out = Vec::new();
        for (memory_id, (cosine, mut words)) in found {
            let Some(old) = search::candidate(db, owners, memory_id, &filter)? else { continue };
            if gated && words.is_some() {
                let matched = search::keyword_match(db, old.owner_id, memory_id, old.length, &weights.known)?;
                words = words.filter(|_| policy::keyword_gate(matched, weights.mass, gate, &self.settings));
            }
            if cosine.is_none() && words.is_none() {
                continue;
            }
            let Some(newest) = search::successor(db, memory_id)? else { continue };
            out.extend(search::candidate(db, owners, newest, &self.asked.filter)?.map(|newest| (newest, cosine, words)));
        }
        Ok(out)
    }

    /// One value per slot (rules K8, K10, P2): of what is in force the agent's before the user's, TEMPORARY before STABLE,
    /// and it says so. The value in force takes the place of one that was found and is not. Stops when enough are there.
    fn one_of_each_slot(&self, db: &Connection, items: Vec<Item>, findings: &mut Vec<Finding>) -> Result<Vec<Item>, Fault> {
        let looked_at = if self.settings.rerank == Rerank::Remote { self.settings.rerank_candidates } else { 0 };
        let enough = self.asked.k.size.max(looked_at) as usize + MERGE_SLACK;
        let mut out: Vec<Item> = Vec::new();
        let mut places: HashMap<MemoryId, usize> = HashMap::new();
        for mut item in items {
            if out.len() >= enough {
                break;
            }
            if let Some((winner, labels)) = self.winner(db, &item.candidate, findings)? {
                if winner.row.memory_id != item.candidate.row.memory_id {
                    item.score = self.score(item.score.fused, &winner);
                    item.candidate = winner;
                }
                item.labels = labels;
            }
            match places.get(&item.candidate.row.memory_id) {
                Some(place) => {
                    let first = &mut out[*place];
                    first.paths.extend(item.paths);
                    if first.ranks == policy::Ranks::default() {
                        (first.ranks, first.raw) = (item.ranks, item.raw);
                    }
                }
                None => {
                    places.insert(item.candidate.row.memory_id, out.len());
                    out.push(item);
                }
            }
        }
        Ok(out)
    }

    /// The value in force of a candidate's slot with its labels; none where values do not compete.
    fn winner(
        &self,
        db: &Connection,
        candidate: &Candidate,
        findings: &mut Vec<Finding>,
    ) -> Result<Option<(Candidate, Vec<String>)>, Fault> {
        let competes = |c: &Candidate| !c.is_set && c.row.tier != Tier::Event && c.row.status == Status::Active;
        let (Some(key), true) = (&candidate.key, competes(candidate)) else { return Ok(None) };
        // A user-wide reader sees every agent's own value; an agent sees one value of a slot.
        let owners = if self.asked.filter.agent.is_some() { &self.prepared.owner_ids[..] } else { &[candidate.owner_id][..] };
        let mut rivals: Vec<Candidate> =
            search::of_key(db, owners, key, &self.asked.filter)?.into_iter().filter(|rival| competes(rival)).collect();
        // Agent first, then TEMPORARY, then the newer: the first is in force.
        rivals.sort_by_key(|r| {
            let newer = (std::cmp::Reverse(r.row.event_time), std::cmp::Reverse(r.row.memory_id));
            (!r.of_agent, r.row.tier != Tier::Temporary, newer)
        });
        for pair in rivals.windows(2) {
            if (pair[0].owner_id, pair[0].row.tier) == (pair[1].owner_id, pair[1].row.tier) {
                tracing::error!(rule = "K8", newer = %pair[0].row.memory_id, older = %pair[1].row.memory_id, "two active values of one slot");
                let finding =
                    Finding::new("K8", "ALARM", "two active values of one slot were stored; only the newer is returned");
                if !findings.contains(&finding) {
                    findings.push(finding);
                }
            }
        }
        let Some(first) = rivals.first().cloned() else { return Ok(None) };
        let mut labels = Vec::new();
        if first.of_agent && rivals.iter().any(|rival| !rival.of_agent) {
            labels.push("AGENT shadows USER".to_owned());
        }
        let overlaid = |rival: &Candidate| rival.owner_id == first.owner_id && rival.row.tier == Tier::Stable;
        if first.row.tier == Tier::Temporary && rivals.iter().any(overlaid) {
            labels.push("TEMPORARY overlays STABLE".to_owned());
        }
        Ok(Some((first, labels)))
    }

    /// Reranks when configured, and merges near-duplicates (rules R9, R11).
    fn merged(&self, db: &Connection, mut items: Vec<Item>) -> Result<Vec<Item>, Fault> {
        let wanted = self.asked.k.size as usize;
        let keyed = items.iter().filter(|item| item.paths.contains("key")).count();
        let similarity = Similarities::new(db, self.space.as_deref());
        if self.settings.rerank == Rerank::Mmr && self.space.is_some() {
            let rest = items.split_off(keyed);
            let scores: Vec<f64> = rest.iter().map(|item| item.score.score).collect();
            let near = |a: usize, b: usize| similarity.cosine_of(&rest[a].candidate, &rest[b].candidate).unwrap_or(0.0);
            let chosen = policy::mmr(&self.settings, &scores, rest.len(), near);
            items.extend(chosen.into_iter().map(|at| rest[at].clone()));
        }
        let merged = {
            let view = SimilarityOf { similarity: &similarity, items: &items };
            policy::near_duplicates(&self.settings, items.len(), wanted, &view)
        };
        similarity.fault()?;
        let mut kept: BTreeMap<usize, Vec<usize>> = merged.into_iter().map(|m| (m.kept, m.duplicates)).collect();
        let paths: Vec<BTreeSet<&'static str>> = items.iter().map(|item| item.paths.clone()).collect();
        Ok(items
            .into_iter()
            .enumerate()
            .filter_map(|(at, mut item)| {
                let duplicates = kept.remove(&at)?;
                for duplicate in &duplicates {
                    item.paths.extend(&paths[*duplicate]);
                }
                if !duplicates.is_empty() {
                    item.labels.push(format!("MERGED {}", duplicates.len()));
                }
                Some(item)
            })
            .collect())
    }

    /// A value that a newer one may replace is never shown without it (rule K0): the newer is as relevant as what it may
    /// replace.
    fn pull_newer(&self, db: &Connection, items: &mut Vec<Item>) -> Result<(), Fault> {
        let mut shown: BTreeSet<MemoryId> = items.iter().map(|item| item.candidate.row.memory_id).collect();
        let mut at = 0;
        while let Some(older) = items.get(at) {
            let (id, fused, active) =
                (older.candidate.row.memory_id, older.score.fused, older.candidate.row.status == Status::Active);
            let newer =
                if active { search::replacing(db, &self.prepared.owner_ids, id, &self.asked.filter)? } else { Vec::new() };
            let newer = newer.into_iter().find(|newer| shown.insert(newer.row.memory_id));
            if let Some(candidate) = newer {
                let item = Item {
                    score: self.score(fused, &candidate),
                    candidate,
                    ranks: policy::Ranks::default(),
                    raw: policy::Raw::default(),
                    paths: BTreeSet::from(["link"]),
                    labels: Vec::new(),
                };
                // Above the older; what may replace it in turn is looked for next.
                items.insert(at, item);
                continue;
            }
            at += 1;
        }
        Ok(())
    }

    /// The second group, in the room that is left (rules R8, R10).
    fn add_recent(&self, db: &Connection, items: &mut Vec<Item>) -> Result<(), Fault> {
        let now = self.asked.filter.now;
        let since = now.plus(-i64::from(self.settings.recent_days) * DAY);
        let cited = search::cited_since(db, &self.prepared.owner_ids, self.settings.recent_citations, since)?;
        let shown: Vec<MemoryId> = items.iter().map(|item| item.candidate.row.memory_id).collect();
        for memory_id in policy::recently_frequent(&self.settings, &cited, &shown, now) {
            if items.len() >= self.asked.k.size as usize {
                break;
            }
            let Some(found) = search::candidate(db, &self.prepared.owner_ids, memory_id, &self.asked.filter)? else { continue };
            if let Some((winner, _)) = self.winner(db, &found, &mut Vec::new())?
                && winner.row.memory_id != memory_id
            {
                continue;
            }
            let score = self.score(0.0, &found);
            items.push(Item {
                candidate: found,
                score,
                ranks: policy::Ranks::default(),
                raw: policy::Raw::default(),
                paths: BTreeSet::from(["recent"]),
                labels: vec!["RECENTLY FREQUENT".to_owned()],
            });
        }
        Ok(())
    }

    /// Reads a record whole and makes its item; none when it is gone.
    fn whole(&self, db: &Connection, item: Item) -> Result<Option<pb::RecallItem>, Fault> {
        let Some(stored) = row::by_id(db, item.candidate.row.memory_id)? else { return Ok(None) };
        let stored = query::at(stored, self.asked.filter.now);
        let record = &stored.record;
        let mut labels = item.labels;
        if record.status != Status::Active {
            labels.push(record.status.name().to_owned());
        }
        if APART.contains(&record.kind) {
            labels.push(record.kind.name().to_owned());
        }
        if record.instruction {
            labels.push("QUOTED".to_owned());
        }
        if record.kind == Kind::Summary {
            labels.push("SUMMARY".to_owned());
        }
        Ok(Some(pb::RecallItem {
            memory: Some(wire(db, &stored)?),
            score: item.score.score,
            paths: item.paths.iter().map(|path| (*path).to_owned()).collect(),
            explain: if self.asked.explain { explain(&item.score, item.ranks, item.raw) } else { Default::default() },
            labels,
        }))
    }
}

/// Parts of a score (rule R12).
fn explain(score: &Score, ranks: policy::Ranks, raw: policy::Raw) -> BTreeMap<String, f64> {
    let always = [
        ("fused", Some(score.fused)),
        ("freshness", Some(score.freshness)),
        ("boost", Some(score.boost)),
        ("confidence", Some(score.confidence)),
        ("importance", Some(score.importance)),
        ("dense_rank", ranks.dense.map(f64::from)),
        ("keyword_rank", ranks.keyword.map(f64::from)),
        ("cosine", raw.cosine),
        ("bm25", raw.bm25),
    ];
    always.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// An older value that a newer one may replace stands directly under it, and says so (rule K0).
fn put_under_newer(items: &mut Vec<Item>) {
    let mut at = 0;
    while at < items.len() {
        let older = items[at].candidate.conflicts_with.filter(|_| items[at].candidate.row.status == Status::Active);
        let place = older.and_then(|older| items.iter().position(|item| item.candidate.row.memory_id == older));
        if let Some(place) = place.filter(|place| *place != at) {
            let mut item = items.remove(place);
            if place < at {
                at -= 1;
            }
            item.labels.push(POSSIBLY_SUPERSEDED.to_owned());
            items.insert(at + 1, item);
        }
        at += 1;
    }
}

/// The space of vectors that callers supply, when the service runs with them.
#[must_use]
pub fn caller_space(embedder: Option<&dyn Embedder>) -> Option<&EmbedderIdentity> {
    embedder.filter(|embedder| embedder.is_caller()).map(Embedder::identity)
}

/// Checks a supplied vector and brings it to unit length.
///
/// # Errors
/// `INVALID_FIELD` naming `field`.
pub fn checked(field: &'static str, vector: &mut [f32], dimensions: usize) -> Result<(), Fault> {
    if vector.len() != dimensions {
        return Err(Fault::field(field, format!("must have {dimensions} dimensions")));
    }
    if normalise(vector) { Ok(()) } else { Err(Fault::field(field, "must be finite and not zero")) }
}

/// Vectors and claims of records, read when they are first compared.
struct Similarities<'db> {
    db: &'db Connection,
    space: Option<&'db str>,
    vectors: RefCell<HashMap<MemoryId, Option<Arc<Vec<f32>>>>>,
    features: RefCell<HashMap<MemoryId, Option<Arc<TextFeatures>>>>,
    fault: RefCell<Option<SqliteError>>,
}

impl<'db> Similarities<'db> {
    fn new(db: &'db Connection, space: Option<&'db str>) -> Self {
        Self { db, space, vectors: RefCell::default(), features: RefCell::default(), fault: RefCell::default() }
    }

    /// The error of a read, if one failed: comparing has no way to say so.
    fn fault(&self) -> Result<(), SqliteError> {
        self.fault.borrow_mut().take().map_or(Ok(()), Err)
    }

    fn noted<T>(&self, read: Result<Option<T>, SqliteError>) -> Option<Arc<T>> {
        match read {
            Ok(found) => found.map(Arc::new),
            Err(error) => {
                self.fault.borrow_mut().get_or_insert(error);
                None
            }
        }
    }

    fn vector(&self, id: MemoryId) -> Option<Arc<Vec<f32>>> {
        let space = self.space?;
        let read = || self.noted(search::vector(self.db, id, space));
        self.vectors.borrow_mut().entry(id).or_insert_with(read).clone()
    }

    fn features(&self, id: MemoryId) -> Option<Arc<TextFeatures>> {
        let read = || self.noted(search::content(self.db, id).map(|text| text.as_deref().map(strata_text::features)));
        self.features.borrow_mut().entry(id).or_insert_with(read).clone()
    }

    fn cosine_of(&self, a: &Candidate, b: &Candidate) -> Option<f64> {
        let (a, b) = (self.vector(a.row.memory_id)?, self.vector(b.row.memory_id)?);
        (a.len() == b.len()).then(|| f64::from(dot(&a, &b).clamp(-1.0, 1.0)))
    }
}

struct SimilarityOf<'a, 'db> {
    similarity: &'a Similarities<'db>,
    items: &'a [Item],
}

impl policy::Similarity for SimilarityOf<'_, '_> {
    fn same_slot_value(&self, better: usize, worse: usize) -> bool {
        let (a, b) = (&self.items[better].candidate, &self.items[worse].candidate);
        a.key.is_some() && a.key == b.key && a.value.is_some() && a.value == b.value
    }

    fn cosine(&self, better: usize, worse: usize) -> Option<f64> {
        self.similarity.cosine_of(&self.items[better].candidate, &self.items[worse].candidate)
    }

    fn same_claims(&self, better: usize, worse: usize) -> bool {
        let of = |at: usize| self.similarity.features(self.items[at].candidate.row.memory_id);
        let (Some(a), Some(b)) = (of(better), of(worse)) else { return false };
        // In their order: "Alice manages Bob" is not "Bob manages Alice".
        let values = |features: &TextFeatures| features.values.iter().map(|v| v.normal.clone()).collect::<Vec<_>>();
        a.negation == b.negation && values(&a) == values(&b)
    }
}

#[cfg(test)]
mod tests;
