//! Search over a user's live turns (rules R3, R4, R14): an exact scan over analysed turns that are kept in memory, so that
//! 10,000 turns are ranked in milliseconds. What is kept are term weights and vectors, never text; it belongs to one
//! incarnation of a session and is dropped with it.
//!
//! Turns are analysed in the background as they come, each once however many search at the same time. Vectors are made there
//! too. A search makes a bounded number of missing ones itself; what is
//! still missing is found by its words, and the answer says so.

use crate::store::{Head, Picked, SessionKey, SessionStore, UserTag};
use std::collections::BTreeMap;
use std::sync::Arc;
use strata_core::policy::recall::{Fused, RecallSettings, Scale};
use strata_core::policy::session::{ContentTurn, SessionSettings};
use strata_core::{AgentId, Clock, Fault, Reason, SessionId, limits};
use strata_runtime::TaskGroup;
use strata_text::embed::{Embedder, Purpose};
use strata_text::turn_rank::{Asked, IndexedTurn, rank};
use tokio::sync::mpsc;

/// Bytes of analysed turns kept in memory, over all users.
const CACHE_BYTES: u64 = 256 * 1024 * 1024;
/// Sessions waiting for vectors; beyond it they wait for their next append or search.
pub(crate) const QUEUE: usize = 1_024;
/// Texts in one call of the embedder.
const BATCH: usize = 32;
/// Turns that are analysed at a time: what a search has done before its caller gave up is there for the next one.
const STRETCH: u32 = 512;
/// Turns between two rounds of the background where there are no vectors to make: few enough for a search to catch up with,
/// many enough for a long session not to be gone through at each append.
const ANALYSE_EVERY: u32 = 64;
/// Sessions of which it is kept that somebody analyses them.
const ANALYSING: u64 = 4_096;

/// The analysed turns 1.. of one incarnation of a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Analysed(Vec<Arc<IndexedTurn>>);

impl Analysed {
    fn last(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    /// Turns after `after` that say something, up to the first one whose vector is missing (rule S7).
    pub(crate) fn content(&self, after: u32) -> Vec<ContentTurn<'_>> {
        let later = (1..).zip(&self.0).skip(after as usize).filter(|(_, turn)| turn.is_content());
        later.map_while(|(seq, turn)| Some(ContentTurn { seq, vector: turn.vector()? })).collect()
    }

    fn without_vector(&self) -> impl Iterator<Item = u32> + '_ {
        (1..).zip(&self.0).filter(|(_, e)| e.wants_vector()).map(|(seq, _)| seq)
    }
}

/// Session, incarnation, and how often it was redacted: what was made of other texts is not looked at (rule E2).
type Place = (SessionKey, u64, u64);

/// A search.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    pub(crate) user: UserTag,
    pub(crate) agent: Option<AgentId>,
    pub(crate) session: Option<SessionId>,
    pub(crate) text: String,
    pub(crate) k: u32,
}

/// A found turn.
#[derive(Clone, Debug)]
pub(crate) struct Hit {
    pub(crate) session: SessionId,
    pub(crate) turn: Picked,
    pub(crate) score: f64,
    /// Score of the turn without its neighbours, with raw scores and ranks.
    pub(crate) fused: Fused<(usize, u32)>,
}

/// Outcome of a search.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    pub(crate) hits: Vec<Hit>,
    /// Vectors were missing for the query or for some turns.
    pub(crate) degraded: bool,
    /// The user has more turns than one search looks at.
    pub(crate) cut: bool,
    /// What the scores were measured against.
    pub(crate) scale: Scale,
}

/// Searches turns. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Searcher {
    store: Arc<dyn SessionStore>,
    clock: Arc<dyn Clock>,
    tasks: TaskGroup,
    embedder: Option<Arc<dyn Embedder>>,
    analysed: moka::sync::Cache<Place, Analysed>,
    /// Held by whoever analyses a session; the others wait and find it done.
    analysing: moka::sync::Cache<Place, Arc<tokio::sync::Mutex<()>>>,
    wanted: mpsc::Sender<SessionKey>,
    /// Turns that were analysed, for tests.
    #[cfg(test)]
    made: Arc<std::sync::atomic::AtomicUsize>,
}

impl Searcher {
    /// With the queue of sessions that have new turns, for [`crate::topics::follow`].
    pub(crate) fn new(
        store: Arc<dyn SessionStore>,
        clock: Arc<dyn Clock>,
        tasks: TaskGroup,
        embedder: Option<Arc<dyn Embedder>>,
    ) -> (Self, mpsc::Receiver<SessionKey>) {
        let dimensions = embedder.as_ref().map_or(0, |e| e.identity().dimensions);
        let weigh = move |_: &Place, turns: &Analysed| {
            let bytes: usize = turns.0.iter().map(|e| e.bytes(dimensions)).sum();
            u32::try_from(256 + bytes).unwrap_or(u32::MAX)
        };
        let analysed = moka::sync::Cache::builder().max_capacity(CACHE_BYTES).weigher(weigh).build();
        let (wanted, queue) = mpsc::channel(QUEUE);
        let analysing = moka::sync::Cache::new(ANALYSING);
        let searcher = Self {
            store,
            clock,
            tasks,
            embedder,
            analysed,
            analysing,
            wanted,
            #[cfg(test)]
            made: Arc::default(),
        };
        (searcher, queue)
    }

    /// What makes the vectors of turns; none when nobody does, or they come with the calls.
    pub(crate) fn embedder(&self) -> Option<&Arc<dyn Embedder>> {
        self.embedder.as_ref().filter(|embedder| !embedder.is_caller())
    }

    /// A session has new turns, up to number `last` of which `count` are new: they are analysed and get their vectors. Never
    /// waits: a full queue leaves them to the next search.
    pub(crate) fn appended(&self, key: &SessionKey, last: u32, count: u32) {
        let full = last / ANALYSE_EVERY != last.saturating_sub(count) / ANALYSE_EVERY;
        if self.embedder().is_some() || full {
            self.want(key);
        }
    }

    fn want(&self, key: &SessionKey) {
        if self.wanted.try_send(key.clone()).is_err() {
            tracing::debug!("the queue for new turns is full; a search will look at them");
        }
    }

    /// Forgets an ended or redacted session at once rather than when room is needed.
    pub(crate) fn forget(&self, key: &SessionKey) {
        let key = key.clone();
        let places: Vec<Place> = self.analysed.iter().map(|(place, _)| (*place).clone()).filter(|place| place.0 == key).collect();
        for place in places {
            self.analysed.invalidate(&place);
        }
    }

    /// Analyses a session and makes all its missing vectors; none when it is gone.
    pub(crate) async fn complete(&self, key: &SessionKey) -> Result<Option<(Head, Analysed)>, Fault> {
        let Some(state) = self.store.state(key, self.clock.now()).await? else { return Ok(None) };
        let turns = self.refresh(key, &state.head).await?;
        if self.embedder().is_none() {
            return Ok(Some((state.head, turns)));
        }
        let missing: Vec<u32> = turns.without_vector().collect();
        for part in missing.chunks(BATCH) {
            self.embed(key, state.head.incarnation, &turns, part).await?;
        }
        Ok(Some((state.head, turns)))
    }

    /// Analyses the turns that came since, unless somebody else does: then it waits for that.
    async fn refresh(&self, key: &SessionKey, head: &Head) -> Result<Analysed, Fault> {
        let place = (key.clone(), head.incarnation, head.redactions);
        if let Some(there) = self.analysed.get(&place).filter(|there| there.last() >= head.last) {
            return Ok(there);
        }
        let turn = self.analysing.get_with(place.clone(), Arc::default);
        let _mine = turn.lock().await;
        let mut turns = self.analysed.get(&place).unwrap_or_default();
        while turns.last() < head.last {
            let to = head.last.min(turns.last().saturating_add(STRETCH));
            let Some(read) = self.store.turns(key, self.clock.now(), turns.last() + 1, to).await? else { break };
            let same = (read.head.incarnation, read.head.redactions) == (head.incarnation, head.redactions);
            if !same || read.turns.is_empty() {
                break;
            }
            #[cfg(test)]
            self.made.fetch_add(read.turns.len(), std::sync::atomic::Ordering::Relaxed);
            let work = move || read.turns.iter().map(|turn| Arc::new(IndexedTurn::new(turn))).collect::<Vec<_>>();
            turns.0.extend(self.tasks.blocking("session analysis", work).await.map_err(|_| failed())?);
            self.analysed.insert(place.clone(), turns.clone());
        }
        Ok(turns)
    }

    async fn embed(&self, key: &SessionKey, incarnation: u64, turns: &Analysed, seqs: &[u32]) -> Result<(), Fault> {
        let Some(embedder) = &self.embedder else { return Ok(()) };
        let picked = self.store.pick(key, self.clock.now(), incarnation, seqs).await?;
        let texts: Vec<(u32, String)> = picked.iter().map(|(turn, _)| (turn.seq, turn.searchable())).collect();
        for part in texts.chunks(BATCH) {
            let refs: Vec<&str> = part.iter().map(|(_, text)| text.as_str()).collect();
            let vectors = embedder.embed(&refs, Purpose::Document).await.map_err(|error| {
                tracing::debug!(%error, "turns have no vectors for now");
                Fault::unavailable("embedder")
            })?;
            for ((seq, _), vector) in part.iter().zip(vectors) {
                if let Some(entry) = turns.0.get(*seq as usize - 1) {
                    entry.set_vector(vector);
                }
            }
        }
        Ok(())
    }

    /// Finds turns.
    ///
    /// # Errors
    /// `NOT_FOUND` for a named session that is not there, errors of the store.
    pub(crate) async fn search(&self, recall: &RecallSettings, settings: &SessionSettings, query: Query) -> Result<Found, Fault> {
        let mut found = Found { degraded: self.embedder.is_none(), ..Found::default() };
        let heads = self.heads(&query, &mut found.cut).await?;
        let mut sessions: Vec<(SessionKey, Head, Analysed)> = Vec::with_capacity(heads.len());
        for head in heads {
            let key = SessionKey::of_user(query.user.clone(), head.session.clone());
            let turns = self.refresh(&key, &head).await?;
            sessions.push((key, head, turns));
        }
        let vector = self.query_vector(&query.text).await;
        found.degraded |= vector.is_none();
        if vector.is_some() {
            found.degraded |= !self.supply_vectors(&sessions).await;
        }

        let recall = settings.turn_recall(recall);
        let method = settings.search_fusion;
        let min_similarity = self.embedder.as_ref().map_or(0.0, |e| f64::from(e.identity().min_similarity));
        let turns: Vec<Vec<Arc<IndexedTurn>>> = sessions.iter().map(|(_, _, turns)| turns.0.clone()).collect();
        let k = query.k;
        let work = move || rank(&turns, &Asked::new(&query.text, vector), &recall, method, min_similarity, k);
        let ranked = self.tasks.blocking("session search", work).await.map_err(|_| failed())?;

        // Text comes from the store, not from the cache: what ended or was erased meanwhile is not shown.
        let mut wanted: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for (hit, _) in &ranked.hits {
            wanted.entry(hit.id.0).or_default().push(hit.id.1);
        }
        let mut texts: BTreeMap<(usize, u32), Picked> = BTreeMap::new();
        for (at, seqs) in wanted {
            let (key, head, _) = &sessions[at];
            let now = self.clock.now();
            let picked = self.store.pick(key, now, head.incarnation, &seqs).await?;
            crate::access::note(&self.store, &self.tasks, key, head, now, &seqs);
            texts.extend(picked.into_iter().map(|p| ((at, p.0.seq), p)));
        }
        found.scale = ranked.scale;
        for (fused, score) in ranked.hits {
            if let Some(turn) = texts.remove(&fused.id) {
                found.hits.push(Hit { session: sessions[fused.id.0].1.session.clone(), turn, score, fused });
            }
        }
        Ok(found)
    }

    /// Live sessions that the call may see, newest first, up to the bound of turns.
    async fn heads(&self, query: &Query, cut: &mut bool) -> Result<Vec<Head>, Fault> {
        let now = self.clock.now();
        if let Some(session) = &query.session {
            let key = SessionKey::of_user(query.user.clone(), session.clone());
            let state = self.store.state(&key, now).await?.filter(|s| s.head.visible_to(query.agent.as_ref()));
            return Ok(vec![state.ok_or_else(|| crate::store::not_found(session))?.head]);
        }
        let mut room = limits::SEARCH_TURNS;
        let mut heads = self.store.sessions(&query.user, now).await?;
        heads.retain(|head| head.visible_to(query.agent.as_ref()));
        let all = heads.len();
        let fitting = heads.iter().take_while(|head| {
            let fits = head.last <= room;
            room = room.saturating_sub(head.last);
            fits
        });
        let fitting = fitting.count();
        heads.truncate(fitting);
        *cut = fitting < all;
        Ok(heads)
    }

    async fn query_vector(&self, text: &str) -> Option<Vec<f32>> {
        let embedder = self.embedder.as_ref()?;
        match embedder.embed(&[text], Purpose::Query).await {
            Ok(mut vectors) => vectors.pop(),
            Err(error) => {
                tracing::debug!(%error, "a search goes by words alone");
                None
            }
        }
    }

    /// Makes missing vectors, newest sessions and turns first, within a bound; the rest is left to the background.
    /// Answers whether none is missing.
    async fn supply_vectors(&self, sessions: &[(SessionKey, Head, Analysed)]) -> bool {
        let mut room = limits::SEARCH_EMBEDDINGS;
        let mut complete = true;
        for (key, head, turns) in sessions {
            let mut missing: Vec<u32> = turns.without_vector().collect();
            if missing.is_empty() {
                continue;
            }
            missing.reverse();
            let now: Vec<u32> = missing.iter().copied().take(room).collect();
            room -= now.len();
            let made = self.embed(key, head.incarnation, turns, &now).await.is_ok();
            if !made || now.len() < missing.len() {
                complete = false;
                self.want(key);
            }
        }
        complete
    }
}

fn failed() -> Fault {
    Fault::new(Reason::Internal, "a search ended unexpectedly")
}

#[cfg(test)]
mod tests;
