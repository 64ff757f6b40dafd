//! Search over a user's live turns (rules R3, R4, R14): an exact scan over analysed turns that are kept in memory, so that
//! 10,000 turns are ranked in milliseconds. What is kept are term weights and vectors, never text; it belongs to one
//! incarnation of a session and is dropped with it.
//!
//! Vectors are made in the background after an append. A search makes a bounded number of missing ones itself; what is
//! still missing is found by its words, and the answer says so.

use crate::compress::is_said;
use crate::store::{Head, Picked, SessionKey, SessionStore, UserTag};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use strata_core::policy::recall::{self, Bounds, Fused, RecallSettings, TurnFacts};
use strata_core::policy::session::{Role, SessionSettings, Turn};
use strata_core::{AgentId, Clock, Fault, Reason, SessionId, limits};
use strata_runtime::TaskGroup;
use strata_text::embed::{Embedder, Purpose, round_similarity};
use strata_text::turns::{Subject, question_share, subject};
use strata_text::{Terms, bm25, query_terms, terms};
use tokio::sync::mpsc;

/// Bytes of analysed turns kept in memory, over all users.
const CACHE_BYTES: u64 = 256 * 1024 * 1024;
/// Sessions waiting for vectors; beyond it they wait for their next append or search.
const QUEUE: usize = 1_024;
/// Texts in one call of the embedder.
const BATCH: usize = 32;
/// Hits a leg gives to the fusion at least: neighbours rank among them.
const LEG: usize = 200;

/// What one turn is to a search.
#[derive(Debug)]
struct Entry {
    /// BM25 weights, ascending by term; empty for turns that are not searched.
    weights: Box<[(u32, f32)]>,
    /// Words, without stop words.
    words: u32,
    /// Share of the text that asks.
    asking: f64,
    /// Hashed terms of the speaker's name; none for a speaker named after its role.
    speaker: Box<[u32]>,
    /// Whether the assistant said it.
    assistant: bool,
    /// Whether it can be found.
    said: bool,
    /// Unit length.
    vector: OnceLock<Box<[f32]>>,
}

impl Entry {
    fn new(turn: &Turn) -> Self {
        let said = is_said(turn.role);
        let analysed = if said { terms(&turn.searchable()) } else { Terms::default() };
        let role = turn.role.name();
        let named = said && !turn.speaker.trim().eq_ignore_ascii_case(role);
        let speaker = if named { query_terms(&turn.speaker).iter().map(|term| term.0).collect() } else { Box::default() };
        Self {
            weights: bm25::turn_weights(&analysed).into_boxed_slice(),
            words: analysed.length,
            asking: if said { question_share(&turn.text) } else { 0.0 },
            speaker,
            assistant: turn.role == Role::Assistant,
            said,
            vector: OnceLock::new(),
        }
    }
}

/// What a search goes by.
struct Asked {
    /// Terms with their counts, ascending.
    terms: Terms,
    /// Whom it asks about, when it names nobody who speaks.
    subject: Option<Subject>,
    vector: Option<Vec<f32>>,
}

impl Asked {
    fn new(text: &str, vector: Option<Vec<f32>>) -> Self {
        Self { terms: query_terms(text), subject: subject(text), vector }
    }

    fn names(&self, entry: &Entry) -> bool {
        entry.speaker.iter().any(|name| self.terms.binary_search_by_key(name, |term| term.0).is_ok())
    }
}

/// The analysed turns 1.. of one incarnation of a session.
#[derive(Clone, Debug, Default)]
struct Analysed(Vec<Arc<Entry>>);

impl Analysed {
    fn last(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    fn without_vector(&self) -> impl Iterator<Item = u32> + '_ {
        (1..).zip(&self.0).filter(|(_, e)| e.said && e.vector.get().is_none()).map(|(seq, _)| seq)
    }
}

type Place = (SessionKey, u64);

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
}

/// Searches turns. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Searcher {
    store: Arc<dyn SessionStore>,
    clock: Arc<dyn Clock>,
    tasks: TaskGroup,
    embedder: Option<Arc<dyn Embedder>>,
    analysed: moka::sync::Cache<Place, Analysed>,
    wanted: mpsc::Sender<SessionKey>,
}

impl Searcher {
    /// Starts the background maker of vectors in `tasks`.
    pub(crate) fn start(
        store: Arc<dyn SessionStore>,
        clock: Arc<dyn Clock>,
        tasks: TaskGroup,
        embedder: Option<Arc<dyn Embedder>>,
    ) -> Self {
        let dimensions = embedder.as_ref().map_or(0, |e| e.identity().dimensions);
        let weigh = move |_: &Place, turns: &Analysed| {
            let bytes: usize = turns.0.iter().map(|e| 112 + 8 * e.weights.len() + 4 * (e.speaker.len() + dimensions)).sum();
            u32::try_from(256 + bytes).unwrap_or(u32::MAX)
        };
        let analysed = moka::sync::Cache::builder().max_capacity(CACHE_BYTES).weigher(weigh).build();
        let (wanted, queue) = mpsc::channel(QUEUE);
        let searcher = Self { store, clock, tasks, embedder, analysed, wanted };
        if searcher.embedder.is_some() {
            let worker = searcher.clone();
            searcher.tasks.spawn("session vectors", async move { worker.make_vectors(queue).await });
        }
        searcher
    }

    /// Asks for the vectors of a session's new turns. Never waits: a full queue leaves them to the next search.
    pub(crate) fn want(&self, key: &SessionKey) {
        if self.embedder.is_some() && self.wanted.try_send(key.clone()).is_err() {
            tracing::debug!("the queue for vectors of turns is full; a search will make them");
        }
    }

    /// Forgets an ended session at once rather than when room is needed.
    pub(crate) fn forget(&self, key: &SessionKey) {
        let key = key.clone();
        let places: Vec<Place> = self.analysed.iter().map(|(place, _)| (*place).clone()).filter(|place| place.0 == key).collect();
        for place in places {
            self.analysed.invalidate(&place);
        }
    }

    async fn make_vectors(&self, mut queue: mpsc::Receiver<SessionKey>) {
        let stop = self.tasks.token().clone();
        loop {
            let mut batch = Vec::new();
            tokio::select! {
                () = stop.cancelled() => return,
                n = queue.recv_many(&mut batch, QUEUE) => if n == 0 { return },
            }
            let keys: BTreeSet<SessionKey> = batch.into_iter().collect();
            for key in keys {
                tokio::select! {
                    () = stop.cancelled() => return,
                    made = self.complete(&key) => if let Err(fault) = made {
                        tracing::debug!(reason = fault.reason.name(), "vectors of turns could not be made; a search will try");
                    },
                }
            }
        }
    }

    /// Makes all missing vectors of a session.
    async fn complete(&self, key: &SessionKey) -> Result<(), Fault> {
        let Some(state) = self.store.state(key, self.clock.now()).await? else { return Ok(()) };
        let turns = self.refresh(key, &state.head).await?;
        let missing: Vec<u32> = turns.without_vector().collect();
        for part in missing.chunks(BATCH) {
            self.embed(key, state.head.incarnation, &turns, part).await?;
        }
        Ok(())
    }

    /// Analyses the turns that came since.
    async fn refresh(&self, key: &SessionKey, head: &Head) -> Result<Analysed, Fault> {
        let place = (key.clone(), head.incarnation);
        let mut turns = self.analysed.get(&place).unwrap_or_default();
        if turns.last() >= head.last {
            return Ok(turns);
        }
        while turns.last() < head.last {
            let Some(read) = self.store.turns(key, self.clock.now(), turns.last() + 1, head.last).await? else { break };
            if read.head.incarnation != head.incarnation || read.turns.is_empty() {
                break;
            }
            let work = move || read.turns.iter().map(|turn| Arc::new(Entry::new(turn))).collect::<Vec<_>>();
            turns.0.extend(self.tasks.blocking("session analysis", work).await.map_err(|_| failed())?);
        }
        // A slower reader must not put back fewer turns than a faster one has put in.
        if self.analysed.get(&place).is_none_or(|there| there.last() < turns.last()) {
            self.analysed.insert(place, turns.clone());
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
                    let _ = entry.vector.set(vector.into_boxed_slice());
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

        let recall = turn_settings(recall, settings);
        let method = settings.search_fusion;
        let min_similarity = self.embedder.as_ref().map_or(0.0, |e| f64::from(e.identity().min_similarity));
        let turns: Vec<Analysed> = sessions.iter().map(|(_, _, turns)| turns.clone()).collect();
        let k = query.k;
        let work = move || rank(&turns, &Asked::new(&query.text, vector), &recall, method, min_similarity, k);
        let ranked = self.tasks.blocking("session search", work).await.map_err(|_| failed())?;

        // Text comes from the store, not from the cache: what ended or was erased meanwhile is not shown.
        let mut wanted: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for (hit, _) in &ranked {
            wanted.entry(hit.id.0).or_default().push(hit.id.1);
        }
        let mut texts: BTreeMap<(usize, u32), Picked> = BTreeMap::new();
        for (at, seqs) in wanted {
            let (key, head, _) = &sessions[at];
            let picked = self.store.pick(key, self.clock.now(), head.incarnation, &seqs).await?;
            texts.extend(picked.into_iter().map(|p| ((at, p.0.seq), p)));
        }
        for (fused, score) in ranked {
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

/// Recall settings for turns: raw dialogue is lexical, so words weigh more than in long-term memory.
fn turn_settings(recall: &RecallSettings, settings: &SessionSettings) -> RecallSettings {
    RecallSettings { keyword_weight: settings.search_keyword_weight, ..recall.clone() }
}

/// Dot product of unit vectors; lanes let the compiler use wide registers.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    if a.len() != b.len() {
        return 0.0;
    }
    let mut lanes = [0.0_f32; 16];
    let (left, right) = (a.chunks_exact(16), b.chunks_exact(16));
    let rest: f32 = left.remainder().iter().zip(right.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in left.zip(right) {
        for i in 0..16 {
            lanes[i] += x[i] * y[i];
        }
    }
    lanes.iter().sum::<f32>() + rest
}

/// The best `k` turns with their scores.
fn rank(
    sessions: &[Analysed],
    asked: &Asked,
    settings: &RecallSettings,
    method: recall::Fusion,
    min_similarity: f64,
    k: u32,
) -> Vec<(Fused<(usize, u32)>, f64)> {
    let said: Vec<((usize, u32), &Entry)> = sessions
        .iter()
        .enumerate()
        .flat_map(|(at, turns)| (1..).zip(&turns.0).map(move |(seq, entry)| ((at, seq), &**entry)))
        .filter(|(_, entry)| entry.said)
        .collect();
    let has = |entry: &Entry, term: u32| entry.weights.binary_search_by_key(&term, |w| w.0).is_ok();
    let query: Vec<(u32, f32)> = asked
        .terms
        .iter()
        .map(|(term, _)| {
            let matching = said.iter().filter(|(_, entry)| has(entry, *term)).count();
            (*term, bm25::idf(said.len() as u64, matching as u64))
        })
        .collect();
    let dense: BTreeMap<(usize, u32), f64> = asked
        .vector
        .as_deref()
        .map(|vector| {
            let of = |e: &Entry| e.vector.get().map(|v| f64::from(round_similarity(dot(vector, v))));
            said.iter().filter_map(|(id, entry)| of(entry).map(|cosine| (*id, cosine))).collect()
        })
        .unwrap_or_default();
    let mut keyword: BTreeMap<(usize, u32), f64> = BTreeMap::new();
    for (at, turns) in sessions.iter().enumerate() {
        let words: Vec<(&[(u32, f32)], u32)> = turns.0.iter().map(|entry| (&*entry.weights, entry.words)).collect();
        let scores = recall::bm25_in_context(settings, &query, &words);
        for ((seq, entry), hit) in (1..).zip(&turns.0).zip(scores) {
            let close = || dense.get(&(at, seq)).is_some_and(|cosine| *cosine >= min_similarity);
            if entry.said && hit.score > 0.0 && (hit.mass > 0.0 || close()) {
                keyword.insert((at, seq), hit.score);
            }
        }
    }

    // The heads of both legs, and what stands around them: a turn is ranked with its neighbours.
    let leg = LEG.max(settings.leg_limit(k) as usize);
    let mut candidates = BTreeSet::new();
    for scores in [&keyword, &dense] {
        let mut best: Vec<(&(usize, u32), &f64)> = scores.iter().collect();
        best.sort_by(|a, b| b.1.total_cmp(a.1).then(a.0.cmp(b.0)));
        for ((at, seq), _) in best.into_iter().take(leg) {
            candidates.extend((seq.saturating_sub(recall::REACH)..=seq.saturating_add(recall::REACH)).map(|seq| (*at, seq)));
        }
    }
    let of = |scores: &BTreeMap<(usize, u32), f64>| -> Vec<((usize, u32), f64)> {
        candidates.iter().filter_map(|id| scores.get(id).map(|score| (*id, *score))).collect()
    };
    let max_bm25 = f64::from(bm25::ceiling(query.iter().map(|q| q.1)));
    let fused = recall::fuse(settings, method, &of(&dense), &of(&keyword), Bounds { min_similarity, max_bm25 });

    let entries: BTreeMap<(usize, u32), &Entry> = said.into_iter().collect();
    let entry = |id: &(usize, u32)| entries.get(id).copied();
    let turns: Vec<TurnFacts<usize>> = fused
        .iter()
        .map(|f| TurnFacts { session: f.id.0, number: f.id.1, words: entry(&f.id).map_or(0, |e| e.words), score: f.fused })
        .collect();
    // Names of speakers come before pronouns: "did Ann like my gift" asks about Ann.
    let named = entries.values().any(|e| asked.names(e));
    let other = |e: &Entry| match asked.subject {
        _ if named => !asked.names(e) && (e.assistant || !e.speaker.is_empty()),
        Some(Subject::User) => e.assistant,
        Some(Subject::Assistant) => !e.assistant,
        None => false,
    };
    let scores = recall::with_neighbours(settings, &turns);
    let mut ranked: Vec<(Fused<(usize, u32)>, f64)> = fused
        .into_iter()
        .zip(scores)
        .map(|(f, score)| {
            let weight = entry(&f.id).map_or(1.0, |e| recall::turn_weight(settings, e.asking, other(e)));
            (f, score * weight)
        })
        .collect();
    let floor = settings.floor_of(method);
    ranked.retain(|(_, score)| *score >= floor && *score > 0.0);
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| (a.0.id.0, Reverse(a.0.id.1)).cmp(&(b.0.id.0, Reverse(b.0.id.1)))));
    ranked.truncate(k as usize);
    ranked
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(role: Role, speaker: &str, text: &str) -> Turn {
        Turn {
            seq: 1,
            role,
            text: text.into(),
            tool_call_id: None,
            pinned: false,
            time: strata_core::Timestamp::ZERO,
            client_time: None,
            tokens: 0,
            speaker: speaker.into(),
            external_id: String::new(),
        }
    }

    fn analysed(turns: &[Turn]) -> Analysed {
        Analysed(turns.iter().map(|turn| Arc::new(Entry::new(turn))).collect())
    }

    /// Numbers of the found turns, best first, by words alone.
    fn found(turns: &[Turn], query: &str) -> Vec<u32> {
        let settings = turn_settings(&RecallSettings::default(), &SessionSettings::default());
        let ranked = rank(&[analysed(turns)], &Asked::new(query, None), &settings, recall::Fusion::MinMax, 0.3, 5);
        assert!(ranked.iter().all(|(_, score)| (0.0..=1.0).contains(score)), "{ranked:?}");
        ranked.into_iter().map(|(hit, _)| hit.id.1).collect()
    }

    #[test]
    fn r14_a_turn_is_ranked_with_its_neighbours() {
        let turns = [
            "the harbour tour starts at noon",
            "who comes to the tour?",
            "nobody knows",
            "a pizza",
            "some lemonade",
            "a tour of the tour of the tour",
            "lunch",
        ];
        let turns = turns.map(|text| said(Role::User, "", text));
        let found = found(&turns, "harbour tour");
        assert_eq!(found[0], 1);
        assert_eq!(found[1], 2, "the neighbour of the best hit stands before a farther one: {found:?}");
        assert_eq!(found.len(), 3, "what stands beside a hit is no hit by that: {found:?}");
    }

    #[test]
    fn r14_the_answer_stands_before_the_question() {
        let talk = [("Ann", "Where did you spend the holiday, Bob?"), ("Bob", "In a cabin, a lazy holiday."), ("Ann", "Lovely!")];
        let turns = talk.map(|(who, text)| said(Role::User, who, text));
        assert_eq!(found(&turns, "Where did Bob spend the holiday?")[0], 2);
        let talk = [("小林", "你假期去哪里玩了？"), ("小王", "去了青岛的海边，玩了三天。"), ("小林", "真好！")];
        let turns = talk.map(|(who, text)| said(Role::User, who, text));
        assert_eq!(found(&turns, "小王假期去哪里玩了？")[0], 2);
    }

    #[test]
    fn r14_whose_words_a_query_asks_for() {
        for (user, assistant, mine, yours) in [
            ("The budget is 40 euros.", "The budget of 40 euros will do.", "What is my budget?", "What budget did you suggest?"),
            ("我的预算是四百元。", "预算四百元足够。", "我的预算是多少？", "你建议的预算是多少？"),
        ] {
            let pad = || said(Role::User, "", "zzz");
            for turns in [
                [said(Role::User, "user", user), pad(), pad(), said(Role::Assistant, "assistant", assistant)],
                [said(Role::Assistant, "", assistant), pad(), pad(), said(Role::User, "", user)],
            ] {
                let role = |query: &str| turns[found(&turns, query)[0] as usize - 1].role;
                assert_eq!(role(mine), Role::User, "{mine}");
                assert_eq!(role(yours), Role::Assistant, "{yours}");
            }
        }
    }

    #[test]
    fn c077_a_query_without_terms_finds_nothing() {
        for query in ["！？👍", "\u{200b}", "\u{200f}"] {
            assert!(found(&[said(Role::User, "", "hello world")], query).is_empty());
        }
    }

    #[test]
    fn dot_equals_the_plain_sum() {
        for n in [0, 1, 15, 16, 17, 512] {
            let a: Vec<f32> = (0..n).map(|i| i as f32 * 0.01).collect();
            let plain: f32 = a.iter().map(|x| x * x).sum();
            assert!((dot(&a, &a) - plain).abs() <= plain * 1e-5);
        }
    }
}
