//! Ranking of turns (rules R3, R4, R14), written once for live turns and for those of episodes: an exact scan over turns that
//! were analysed before, so that 10,000 are ranked in milliseconds. What is kept of a turn are term weights and a vector,
//! never its text.

use crate::embed::round_similarity;
use crate::turns::{Subject, question_share, subject};
use crate::{Terms, bm25, query_terms, terms};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use strata_core::policy::recall::{self, Bounds, Fused, RecallSettings, Scale, TurnFacts};
use strata_core::policy::session::{Role, Turn};

/// Hits a leg gives to the fusion at least: neighbours rank among them.
const LEG: usize = 200;

/// Words, without stop words, of a turn that says enough to be of a topic.
const CONTENT_WORDS: u32 = 4;

/// What one turn is to a search.
#[derive(Debug, Default)]
pub struct IndexedTurn {
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
    /// Whether the user or the assistant said it.
    speaks: bool,
    /// Whether it can be found.
    said: bool,
    /// Unit length.
    vector: OnceLock<Box<[f32]>>,
}

/// What of a turn's analysis is stored with it, so that it is not made again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoredAnalysis {
    /// BM25 weights, ascending by term.
    pub weights: Vec<(u32, f32)>,
    /// Words, without stop words.
    pub words: u32,
    /// Share of the text that asks, 0..=1.
    pub asking: f64,
    /// Hashed terms of the speaker's name.
    pub speaker: Vec<u32>,
}

/// Whether a turn is worth finding: instructions are not part of what was said.
#[must_use]
pub const fn is_said(role: Role) -> bool {
    match role {
        Role::User | Role::Assistant | Role::Tool => true,
        Role::System => false,
    }
}

impl IndexedTurn {
    /// Analyses a turn.
    #[must_use]
    pub fn new(turn: &Turn) -> Self {
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
            speaks: matches!(turn.role, Role::User | Role::Assistant),
            said,
            vector: OnceLock::new(),
        }
    }

    /// A turn that was analysed before.
    #[must_use]
    pub fn stored(role: Role, analysis: StoredAnalysis) -> Self {
        Self {
            weights: analysis.weights.into_boxed_slice(),
            words: analysis.words,
            asking: analysis.asking,
            speaker: analysis.speaker.into_boxed_slice(),
            assistant: role == Role::Assistant,
            speaks: matches!(role, Role::User | Role::Assistant),
            said: is_said(role),
            vector: OnceLock::new(),
        }
    }

    /// What is to be stored for [`IndexedTurn::stored`].
    #[must_use]
    pub fn analysis(&self) -> StoredAnalysis {
        StoredAnalysis { weights: self.weights.to_vec(), words: self.words, asking: self.asking, speaker: self.speaker.to_vec() }
    }

    /// Gives the turn its vector, of unit length; the first one stays.
    pub fn set_vector(&self, vector: Vec<f32>) {
        let _ = self.vector.set(vector.into_boxed_slice());
    }

    /// Its vector, once it has one.
    #[must_use]
    pub fn vector(&self) -> Option<&[f32]> {
        self.vector.get().map(AsRef::as_ref)
    }

    /// Whether it says enough to be of a topic (rule S7): somebody's words, no tool's, and more of them than a courtesy has.
    #[must_use]
    pub fn is_content(&self) -> bool {
        self.speaks && self.words >= CONTENT_WORDS
    }

    /// Whether it can be found and has no vector yet.
    #[must_use]
    pub fn wants_vector(&self) -> bool {
        self.said && self.vector.get().is_none()
    }

    /// Bytes it takes in memory with a vector of so many dimensions, for caches.
    #[must_use]
    pub fn bytes(&self, dimensions: usize) -> usize {
        112 + 8 * self.weights.len() + 4 * (self.speaker.len() + dimensions)
    }
}

/// What a search goes by.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Terms with their counts, ascending.
    terms: Terms,
    /// Whom it asks about, when it names nobody who speaks.
    subject: Option<Subject>,
    vector: Option<Vec<f32>>,
}

impl Asked {
    /// Analyses a query; `vector` is its own, where there is one.
    #[must_use]
    pub fn new(text: &str, vector: Option<Vec<f32>>) -> Self {
        Self { terms: query_terms(text), subject: subject(text), vector }
    }

    fn names(&self, entry: &IndexedTurn) -> bool {
        entry.speaker.iter().any(|name| self.terms.binary_search_by_key(name, |term| term.0).is_ok())
    }
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

/// Ranked turns.
#[derive(Clone, Debug, Default)]
pub struct Ranking {
    /// Best first: the turn by place of its session and number, with what fusion made of it, and its score.
    pub hits: Vec<(Fused<(usize, u32)>, f64)>,
    /// What the scores were measured against.
    pub scale: Scale,
}

/// The best `k` turns of sessions that hold their turns from number 1 on without gaps.
#[must_use]
pub fn rank(
    sessions: &[Vec<Arc<IndexedTurn>>],
    asked: &Asked,
    settings: &RecallSettings,
    method: recall::Fusion,
    min_similarity: f64,
    k: u32,
) -> Ranking {
    let said: Vec<((usize, u32), &IndexedTurn)> = sessions
        .iter()
        .enumerate()
        .flat_map(|(at, turns)| (1..).zip(turns).map(move |(seq, entry)| ((at, seq), &**entry)))
        .filter(|(_, entry)| entry.said)
        .collect();
    let has = |entry: &IndexedTurn, term: u32| entry.weights.binary_search_by_key(&term, |w| w.0).is_ok();
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
            let of = |e: &IndexedTurn| e.vector.get().map(|v| f64::from(round_similarity(dot(vector, v))));
            said.iter().filter_map(|(id, entry)| of(entry).map(|cosine| (*id, cosine))).collect()
        })
        .unwrap_or_default();
    let mut keyword: BTreeMap<(usize, u32), f64> = BTreeMap::new();
    for (at, turns) in sessions.iter().enumerate() {
        let words: Vec<(&[(u32, f32)], u32)> = turns.iter().map(|entry| (&*entry.weights, entry.words)).collect();
        let scores = recall::bm25_in_context(settings, &query, &words);
        for ((seq, entry), hit) in (1..).zip(turns).zip(scores) {
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
    let (dense, keyword) = (of(&dense), of(&keyword));
    let bounds = Bounds { min_similarity, max_bm25 };
    let scale = Scale::of(&dense, &keyword, bounds);
    let fused = recall::fuse(settings, method, &dense, &keyword, bounds);

    let entries: BTreeMap<(usize, u32), &IndexedTurn> = said.into_iter().collect();
    let entry = |id: &(usize, u32)| entries.get(id).copied();
    let turns: Vec<TurnFacts<usize>> = fused
        .iter()
        .map(|f| TurnFacts { session: f.id.0, number: f.id.1, words: entry(&f.id).map_or(0, |e| e.words), score: f.fused })
        .collect();
    // Names of speakers come before pronouns: "did Ann like my gift" asks about Ann.
    let named = entries.values().any(|e| asked.names(e));
    let other = |e: &IndexedTurn| match asked.subject {
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
    Ranking { hits: ranked, scale }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strata_core::policy::session::SessionSettings;

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
            redacted: 0,
        }
    }

    fn analysed(turns: &[Turn]) -> Vec<Arc<IndexedTurn>> {
        turns.iter().map(|turn| Arc::new(IndexedTurn::new(turn))).collect()
    }

    /// Numbers of the found turns, best first, by words alone.
    fn found(turns: &[Turn], query: &str) -> Vec<u32> {
        let settings = SessionSettings::default().turn_recall(&RecallSettings::default());
        let ranked = rank(&[analysed(turns)], &Asked::new(query, None), &settings, recall::Fusion::MinMax, 0.3, 5).hits;
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

    /// Eight times the turns take about eight times as long, not sixty-four: measured against itself, the best of several, in one of
    /// a few rounds, since a busy machine may stop any of them. Between the two there is room for caches that others use too.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test of time, without a runtime")]
    fn r14_the_time_of_a_ranking_grows_with_the_turns_and_no_faster() {
        let talk = |count: usize| -> Vec<Turn> {
            let text = |n: usize| format!("Parcel {n} of Bolun goes to dock {} on day {}.", n % 7, n % 31);
            (0..count).map(|n| said(Role::User, "", &text(n))).collect()
        };
        let settings = SessionSettings::default().turn_recall(&RecallSettings::default());
        let asked = Asked::new("which parcel goes to dock 3", None);
        let best = |turns: &[Vec<Arc<IndexedTurn>>]| {
            let once = || {
                let watch = std::time::Instant::now();
                assert!(!rank(turns, &asked, &settings, recall::Fusion::MinMax, 0.3, 5).hits.is_empty());
                watch.elapsed()
            };
            (0..7).map(|_| once()).min().expect("several")
        };
        let (few, many) = ([analysed(&talk(1_000))], [analysed(&talk(8_000))]);
        let grown = || best(&many).as_secs_f64() / best(&few).as_secs_f64();
        assert!((0..8).any(|_| grown() < 22.0), "eight times the turns took more than 22 times as long, eight times over");
    }
}
