//! Recall and scoring (rules R3 to R7, R10, R11, R14): from what two search legs found to one order, as pure functions.
//!
//! The way of a hit: the keyword list passes the [`keyword_gate`]; [`fuse`] makes one score of 0 to 1 of both lists; the
//! [`RecallSettings::floor_of`] the method cuts; [`final_score`] weighs freshness, use, confidence and importance;
//! [`order`] is a total order with near ties going to the surer record; [`near_duplicates`] and [`recently_frequent`]
//! shape the answer. Scores are finite for every input: a NaN or infinite raw score counts as no hit.

use crate::record::Tier;
use crate::time::DAY;
use crate::{Fault, Timestamp, limits};
use serde::{Deserialize, Serialize};
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

/// How the two legs become one score (rule R4). Thresholds on the fused score mean the method's own scale (case C144).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fusion {
    /// Reciprocal ranks: `sum of 1 / (k + rank)` over `2 / (k + 1)`, ranks from 1. Ignores how far apart scores are; has
    /// no floor, because its lowest score says nothing about relevance.
    Rrf,
    /// `(d + w b) / (1 + w)`, each leg scaled between its theoretical lower bound and the list's best.
    MinMax,
    /// `(cosine + w BM25 / ceiling) / (1 + w)`: the only one whose score means the same in every answer.
    Absolute,
}

/// What happens to the order after scoring (rule R9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rerank {
    /// The order stays.
    None,
    /// Maximal marginal relevance: what repeats a better item moves down.
    Mmr,
    /// A cross-encoder behind HTTP orders the best candidates; when it does not answer the order stays.
    Remote,
}

/// Settings of recall: `[policy.recall]`. Every field has the documented default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RecallSettings {
    /// Fusion method (rule R4). Default `min_max`: best mean over the lexical and the paraphrase set.
    pub fusion: Fusion,
    /// Weight `w` of the keyword leg against the dense leg's 1, for `min_max` and `absolute`: 0..=10. Default 1.
    pub keyword_weight: f64,
    /// `k` of reciprocal ranks: 1..=1000. Default 60.
    pub rrf_k: u32,
    /// Share of the query's IDF mass that a keyword hit must match: 0..=1. Default 0.5 (rule R3).
    pub keyword_gate: f64,
    /// Owners with fewer records have no keyword gate: IDF means little there. Default 50 (rule R3).
    pub keyword_gate_records: u64,
    /// Lowest fused score for `min_max` and `absolute`: 0..=1. Default 0.01 (rule R7).
    pub floor: f64,
    /// Half-life of EVENT records in days, above 0. Default 30 (rule R5).
    pub half_life_event_days: f64,
    /// Half-life of TEMPORARY records in days, above 0. Default 15 (rule R5).
    pub half_life_temporary_days: f64,
    /// Share of freshness in the usage factor: 0..=1, adds up to 1 with `boost_weight`. Default 0.6 (rule R7).
    pub freshness_weight: f64,
    /// Share of the citation boost in the usage factor. Default 0.4 (rule R7).
    pub boost_weight: f64,
    /// Citations at which the boost is full: 1..=1,000,000. Default 20 (rule R6).
    pub boost_saturation: u64,
    /// Factor lost per step of importance below 5: 0..=0.05, so importance never outweighs freshness. Default 0.025
    /// (rule R7).
    pub importance_step: f64,
    /// Width of a near tie on the logarithmic score scale, above 0: 0.01 is one percent. Default 0.01 (rule R7).
    pub tie_width: f64,
    /// Items when a call asks for none: 1..=100. Default 5 (rule R8).
    pub k: u32,
    /// Candidates fetched per leg, as a multiple of `k`: 1..=10. Default 3 (rule R3).
    pub leg_factor: u32,
    /// Candidates fetched per leg at least: 1..=300. Default 50 (rule R3).
    pub leg_minimum: u32,
    /// Cosine over which two records with the same claims are one: 0.5..=1. Default 0.95 (rule R11).
    pub near_duplicate_cosine: f64,
    /// What happens after scoring. Default `none` (rule R9).
    pub rerank: Rerank,
    /// Candidates that the remote reranker orders: 1..=100, never fewer than `k`. Default 30 (rule R9).
    pub rerank_candidates: u32,
    /// Share of relevance against novelty in `mmr`: 0..=1. Default 0.7 (rule R9).
    pub mmr_relevance: f64,
    /// Citations within the window that make a record recently frequent. Default 3 (rule R10).
    pub recent_citations: u32,
    /// Window of the recently frequent group in days: 1..=365. Default 14 (rule R10).
    pub recent_days: u32,
    /// Items of the recently frequent group at most: 0..=20. Default 2 (rule R10).
    pub recent_items: u32,
    /// Share of the better neighbour's score that a turn is given; half of it from two turns away: 0..=1. Default 0.4
    /// (rule R14).
    pub neighbour_share: f64,
    /// Share of a word's weight that the turns beside it have too; half of it two turns away: 0..=1. Default 0.5 (rule
    /// R14).
    pub context_share: f64,
    /// Words from which on a turn needs its surroundings less and less: 1..=10,000. Default 32 (rule R14).
    pub context_words: u32,
    /// Weight of a turn that only asks, against one that states: 0..=1. Default 0.8 (rule R14).
    pub question_weight: f64,
    /// Weight of a turn by somebody else than the query asks about: 0..=1. Default 0.7 (rule R14).
    pub other_speaker_weight: f64,
}

impl Default for RecallSettings {
    fn default() -> Self {
        Self {
            fusion: Fusion::MinMax,
            keyword_weight: 1.0,
            rrf_k: 60,
            keyword_gate: 0.5,
            keyword_gate_records: 50,
            floor: 0.01,
            half_life_event_days: 30.0,
            half_life_temporary_days: 15.0,
            freshness_weight: 0.6,
            boost_weight: 0.4,
            boost_saturation: BOOST_SATURATION,
            importance_step: 0.025,
            tie_width: 0.01,
            k: limits::RECALL_K,
            leg_factor: 3,
            leg_minimum: 50,
            near_duplicate_cosine: 0.95,
            rerank: Rerank::None,
            rerank_candidates: 30,
            mmr_relevance: 0.7,
            recent_citations: 3,
            recent_days: 14,
            recent_items: 2,
            neighbour_share: 0.4,
            context_share: 0.5,
            context_words: 32,
            question_weight: 0.8,
            other_speaker_weight: 0.7,
        }
    }
}

impl RecallSettings {
    /// Checks the section. The weights keep their order: relevance multiplies everything, freshness weighs more than the
    /// whole range of importance (A128).
    ///
    /// # Errors
    /// `INVALID_FIELD` naming the setting.
    pub fn validate(&self) -> Result<(), Fault> {
        let within = |name: &str, value: f64, min: f64, max: f64| {
            if value.is_finite() && (min..=max).contains(&value) {
                return Ok(());
            }
            Err(Fault::field(format!("policy.recall.{name}"), format!("must lie between {min} and {max}")))
        };
        within("keyword_weight", self.keyword_weight, 0.0, 10.0)?;
        within("rrf_k", f64::from(self.rrf_k), 1.0, 1000.0)?;
        within("keyword_gate", self.keyword_gate, 0.0, 1.0)?;
        within("floor", self.floor, 0.0, 1.0)?;
        within("half_life_event_days", self.half_life_event_days, 0.001, 36_500.0)?;
        within("half_life_temporary_days", self.half_life_temporary_days, 0.001, 36_500.0)?;
        within("freshness_weight", self.freshness_weight, 0.0, 1.0)?;
        within("boost_weight", self.boost_weight, 0.0, 1.0)?;
        within("boost_saturation", self.boost_saturation as f64, 1.0, 1e6)?;
        within("importance_step", self.importance_step, 0.0, 0.05)?;
        within("tie_width", self.tie_width, 1e-6, 1.0)?;
        within("k", f64::from(self.k), 1.0, f64::from(limits::RECALL_K_MAX))?;
        within("leg_factor", f64::from(self.leg_factor), 1.0, 10.0)?;
        within("leg_minimum", f64::from(self.leg_minimum), 1.0, 300.0)?;
        within("near_duplicate_cosine", self.near_duplicate_cosine, 0.5, 1.0)?;
        within("rerank_candidates", f64::from(self.rerank_candidates), 1.0, f64::from(limits::RECALL_K_MAX))?;
        within("mmr_relevance", self.mmr_relevance, 0.0, 1.0)?;
        within("recent_days", f64::from(self.recent_days), 1.0, 365.0)?;
        within("recent_citations", f64::from(self.recent_citations), 1.0, 1000.0)?;
        within("recent_items", f64::from(self.recent_items), 0.0, 20.0)?;
        within("neighbour_share", self.neighbour_share, 0.0, 1.0)?;
        within("context_share", self.context_share, 0.0, 1.0)?;
        within("context_words", f64::from(self.context_words), 1.0, 10_000.0)?;
        within("question_weight", self.question_weight, 0.0, 1.0)?;
        within("other_speaker_weight", self.other_speaker_weight, 0.0, 1.0)?;
        if (self.freshness_weight + self.boost_weight - 1.0).abs() > 1e-9 {
            return Err(Fault::field("policy.recall.boost_weight", "must add up to exactly 1 with freshness_weight"));
        }
        if self.freshness_weight <= 4.0 * self.importance_step {
            return Err(Fault::field(
                "policy.recall.importance_step",
                "four steps must weigh less than freshness_weight: importance comes last",
            ));
        }
        Ok(())
    }

    /// Candidates to fetch per leg for `k` items (rule R3).
    #[must_use]
    pub const fn leg_limit(&self, k: u32) -> u32 {
        let wanted = k.saturating_mul(self.leg_factor);
        if wanted < self.leg_minimum { self.leg_minimum } else { wanted }
    }

    /// Lowest fused score that is relevant under the configured method (rule R7): reciprocal ranks have none.
    #[must_use]
    pub const fn floor_of(&self, method: Fusion) -> f64 {
        match method {
            Fusion::Rrf => 0.0,
            Fusion::MinMax | Fusion::Absolute => self.floor,
        }
    }

    /// Half-life of a tier in days; none for STABLE (rule R5).
    #[must_use]
    pub const fn half_life_days(&self, tier: Tier) -> Option<f64> {
        match tier {
            Tier::Stable => None,
            Tier::Temporary => Some(self.half_life_temporary_days),
            Tier::Event => Some(self.half_life_event_days),
        }
    }
}

/// Step to which cosines and BM25 scores are rounded before anything compares them, so that two indexes whose sums
/// differ in the last bits rank alike (rule R4).
pub const SCORE_STEP: f64 = 1e-4;
/// Uses from which the boost of use is full, by default (rule R6).
pub const BOOST_SATURATION: u64 = 20;

/// Rounds a raw score to [`SCORE_STEP`]. A NaN or infinite score is no score.
#[must_use]
pub fn round_score(raw: f64) -> Option<f64> {
    Some((raw / SCORE_STEP).round() * SCORE_STEP).filter(|rounded| rounded.is_finite())
}

/// BM25 of one document: the sum of the query's weight times the document's weight over shared terms. Both lists are
/// ascending by term hash without duplicates; the query's weights are the owner's IDF, so that nobody else's words move
/// the score (rule R3).
///
/// Also gives the IDF mass of the terms that matched, for the [`keyword_gate`].
#[must_use]
pub fn bm25(query: &[(u32, f32)], document: &[(u32, f32)]) -> KeywordMatch {
    let (mut score, mut mass) = (0.0, 0.0);
    let (mut q, mut d) = (0, 0);
    while q < query.len() && d < document.len() {
        match query[q].0.cmp(&document[d].0) {
            Ordering::Less => q += 1,
            Ordering::Greater => d += 1,
            Ordering::Equal => {
                score += f64::from(query[q].1) * f64::from(document[d].1);
                mass += f64::from(query[q].1);
                q += 1;
                d += 1;
            }
        }
    }
    KeywordMatch { score, mass }
}

/// What the keyword leg knows about one document.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KeywordMatch {
    /// BM25 score, 0 or more.
    pub score: f64,
    /// Sum of the query weights of the terms that matched.
    pub mass: f64,
}

/// IDF mass of a whole query: terms the owner never used must be in `query` with the weight of the owner's rarest term.
#[must_use]
pub fn query_mass(query: &[(u32, f32)]) -> f64 {
    query.iter().map(|(_, idf)| f64::from(*idf)).sum()
}

/// What exempts a keyword leg from the gate (rule R3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateContext {
    /// Whether a dense leg searches too; without one words are all there is.
    pub dense: bool,
    /// Records of the owner.
    pub records: u64,
    /// Whether turns are searched: raw dialogue is lexical.
    pub turns: bool,
}

/// Whether a keyword hit counts: it matches at least the configured share of the query's IDF mass, or the gate does not
/// apply (no dense leg, few records, turns) (rule R3). A hit without mass never counts.
#[must_use]
pub fn keyword_gate(hit: KeywordMatch, query_mass: f64, context: GateContext, settings: &RecallSettings) -> bool {
    if !(hit.mass > 0.0 && hit.score > 0.0) {
        return false;
    }
    let exempt = !context.dense || context.turns || context.records < settings.keyword_gate_records;
    exempt || hit.mass >= settings.keyword_gate * query_mass - 1e-6
}

/// What a leg's raw score is measured against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Cosine from which the embedder's vectors mean similarity: a property of the embedder, not of the fusion (case
    /// C144).
    pub min_similarity: f64,
    /// Largest BM25 the query could get: every term at full saturation.
    pub max_bm25: f64,
}

/// Rank in each leg, from 1; equal scores share a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ranks {
    /// In the dense leg.
    pub dense: Option<u32>,
    /// In the keyword leg.
    pub keyword: Option<u32>,
}

/// Raw score in each leg, rounded to [`SCORE_STEP`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Raw {
    /// Cosine, -1..=1.
    pub cosine: Option<f64>,
    /// BM25, 0 or more.
    pub bm25: Option<f64>,
}

/// One hit after fusion.
#[derive(Clone, Debug, PartialEq)]
pub struct Fused<Id> {
    /// What was found.
    pub id: Id,
    /// Relevance, 0..=1 on the scale of the method.
    pub fused: f64,
    /// Ranks in the legs that found it.
    pub ranks: Ranks,
    /// Raw scores in the legs that found it.
    pub raw: Raw,
}

/// What raw scores were measured against by [`Fusion::MinMax`]: the ends of both legs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Scale {
    /// Lower end of the dense leg.
    pub min_similarity: f64,
    /// Best cosine of the list.
    pub best_cosine: f64,
    /// Best BM25 score of the list.
    pub best_bm25: f64,
    /// Largest BM25 score that the query could get in the list.
    pub max_bm25: f64,
}

impl Scale {
    /// Of both legs of a fusion.
    #[must_use]
    pub fn of<Id>(dense: &[(Id, f64)], keyword: &[(Id, f64)], bounds: Bounds) -> Self {
        let best = |leg: &[(Id, f64)]| leg.iter().filter_map(|hit| round_score(hit.1)).fold(0.0, f64::max);
        let (min_similarity, max_bm25) = (bounds.min_similarity, bounds.max_bm25);
        Self { min_similarity, best_cosine: best(dense), best_bm25: best(keyword), max_bm25 }
    }

    /// Of both lists as one, with BM25 as the share of what the query could get: the IDF of two lists are two measures, and
    /// a word that one list does not know at all makes all of its hits worth less.
    #[must_use]
    pub fn joined(self, other: Self) -> Self {
        Self {
            min_similarity: self.min_similarity.max(other.min_similarity),
            best_cosine: self.best_cosine.max(other.best_cosine),
            best_bm25: self.share(self.best_bm25).max(other.share(other.best_bm25)),
            max_bm25: 1.0,
        }
    }

    fn share(self, bm25: f64) -> f64 {
        if self.max_bm25 > 0.0 { bm25 / self.max_bm25 } else { 0.0 }
    }

    fn fused(self, raw: Raw, keyword_weight: f64) -> f64 {
        weighted(
            scaled(raw.cosine, self.min_similarity.max(0.0), self.best_cosine),
            scaled(raw.bm25, 0.0, self.best_bm25),
            keyword_weight,
        )
    }
}

/// A hit's score on the scale of several lists that become one: of two lists, each on its own scale, the best hit has 1 in
/// both, however bad it is in one. `score` is what became of the fused one on the list's `own` scale. RRF knows ranks only and
/// the absolute form has one scale for all, so both stay as they are.
#[must_use]
pub fn on_joint_scale(settings: &RecallSettings, method: Fusion, score: f64, raw: Raw, own: Scale, joint: Scale) -> f64 {
    match method {
        Fusion::Rrf | Fusion::Absolute => score,
        Fusion::MinMax => {
            let before = own.fused(raw, settings.keyword_weight);
            let shares = Raw { bm25: raw.bm25.map(|bm25| own.share(bm25)), ..raw };
            if before > 0.0 { (score * joint.fused(shares, settings.keyword_weight) / before).clamp(0.0, 1.0) } else { score }
        }
    }
}

/// Fuses the legs (rule R4): `dense` holds cosines, `keyword` BM25 scores of hits that passed the [`keyword_gate`], each in
/// any order; of an id that stands twice in a leg its best score counts. A hit needs an absolute signal: a cosine of at
/// least `min_similarity`, or a keyword hit (rule R3). Best first; equal scores by id.
#[must_use]
pub fn fuse<Id: Ord + Clone>(
    settings: &RecallSettings,
    method: Fusion,
    dense: &[(Id, f64)],
    keyword: &[(Id, f64)],
    bounds: Bounds,
) -> Vec<Fused<Id>> {
    let dense = ranked(dense, -1.0);
    let keyword = ranked(keyword, 0.0);
    let best_cosine = dense.first().map_or(0.0, |hit| hit.1);
    let best_bm25 = keyword.first().map_or(0.0, |hit| hit.1);

    let mut hits: BTreeMap<Id, (Ranks, Raw)> = BTreeMap::new();
    for (id, cosine, rank) in dense {
        let (ranks, raw) = hits.entry(id).or_default();
        ranks.dense = Some(rank);
        raw.cosine = Some(cosine.min(1.0));
    }
    for (id, bm25, rank) in keyword.into_iter().filter(|hit| hit.1 > 0.0) {
        let (ranks, raw) = hits.entry(id).or_default();
        ranks.keyword = Some(rank);
        raw.bm25 = Some(bm25);
    }

    let mut out: Vec<Fused<Id>> = hits
        .into_iter()
        .filter(|(_, (_, raw))| raw.bm25.is_some() || raw.cosine.is_some_and(|c| c >= bounds.min_similarity))
        .map(|(id, (ranks, raw))| {
            let fused = match method {
                Fusion::Rrf => reciprocal(ranks, settings.rrf_k),
                Fusion::MinMax => weighted(
                    scaled(raw.cosine, bounds.min_similarity.max(0.0), best_cosine),
                    scaled(raw.bm25, 0.0, best_bm25),
                    settings.keyword_weight,
                ),
                Fusion::Absolute => weighted(
                    raw.cosine.unwrap_or(0.0).clamp(0.0, 1.0),
                    scaled(raw.bm25, 0.0, bounds.max_bm25),
                    settings.keyword_weight,
                ),
            };
            Fused { id, fused, ranks, raw }
        })
        .collect();
    out.sort_by(|a, b| b.fused.total_cmp(&a.fused).then_with(|| a.id.cmp(&b.id)));
    out
}

/// A leg, rounded, without duplicates and non-numbers, best first with its ranks.
fn ranked<Id: Ord + Clone>(leg: &[(Id, f64)], lowest: f64) -> Vec<(Id, f64, u32)> {
    let mut hits: Vec<(Id, f64)> =
        leg.iter().filter_map(|(id, raw)| Some((id.clone(), round_score(*raw)?.max(lowest)))).collect();
    hits.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)));
    hits.dedup_by(|later, first| later.0 == first.0);
    hits.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let (mut rank, mut position, mut previous) = (0, 0, f64::NAN);
    hits.into_iter()
        .map(|(id, raw)| {
            position += 1;
            if raw != previous {
                rank = position;
                previous = raw;
            }
            (id, raw, rank)
        })
        .collect()
}

fn reciprocal(ranks: Ranks, k: u32) -> f64 {
    let k = f64::from(k);
    let of = |rank: Option<u32>| rank.map_or(0.0, |r| 1.0 / (k + f64::from(r)));
    (of(ranks.dense) + of(ranks.keyword)) / (2.0 / (k + 1.0))
}

fn weighted(dense: f64, keyword: f64, weight: f64) -> f64 {
    ((dense + weight * keyword) / (1.0 + weight)).clamp(0.0, 1.0)
}

/// A raw score between a lower bound (0) and a best (1). A list whose best does not rise above the bound has no spread:
/// what reaches the bound there counts in full, so one-item and equal lists are safe.
fn scaled(raw: Option<f64>, lower: f64, best: f64) -> f64 {
    let Some(raw) = raw else { return 0.0 };
    if best > lower {
        return ((raw - lower) / (best - lower)).clamp(0.0, 1.0);
    }
    if raw >= lower && raw > 0.0 { 1.0 } else { 0.0 }
}

/// Freshness: `0.5 ^ (age / half-life)`, age from the later of event time and last citation; 1 for STABLE, for now and
/// for the future (rule R5, case C066). Always within 0 and 1.
#[must_use]
pub fn freshness(
    settings: &RecallSettings,
    tier: Tier,
    event_time: Timestamp,
    last_cited_at: Option<Timestamp>,
    now: Timestamp,
) -> f64 {
    let Some(half_life) = settings.half_life_days(tier) else { return 1.0 };
    let last = last_cited_at.map_or(event_time, |cited| cited.max(event_time));
    0.5_f64.powf(last.age_days(now) / half_life).clamp(0.0, 1.0)
}

/// Boost of use: `min(ln(1 + cites) / ln(1 + saturation), 1)`: 0 without a citation, 1 from the saturation on (rule R6).
#[must_use]
pub fn boost(settings: &RecallSettings, cites: u64) -> f64 {
    boost_of(cites, settings.boost_saturation)
}

/// [`boost`] with a saturation, which is at least 1.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn boost_of(uses: u64, saturation: u64) -> f64 {
    ((uses as f64).ln_1p() / (saturation as f64).ln_1p()).min(1.0)
}

/// Factor of importance: 1 at 5, a step less for each below; values outside 1..=5 count as the nearest (rule R7).
#[must_use]
pub fn importance_factor(settings: &RecallSettings, importance: u8) -> f64 {
    1.0 - settings.importance_step * f64::from(5 - importance.clamp(1, 5))
}

/// What scoring has to know of a record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoreFacts {
    /// Retention.
    pub tier: Tier,
    /// Time of the statement.
    pub event_time: Timestamp,
    /// Last citation.
    pub last_cited_at: Option<Timestamp>,
    /// Times cited.
    pub cite_count: u64,
    /// 0..=1.
    pub confidence: f64,
    /// 1..=5.
    pub importance: u8,
}

/// The final score with its factors, for `explain` (rules R7, R12).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// `fused x (0.6 f + 0.4 b) x confidence x importance`, 0..=1.
    pub score: f64,
    /// Fused relevance.
    pub fused: f64,
    /// Freshness.
    pub freshness: f64,
    /// Boost of use.
    pub boost: f64,
    /// Confidence as used.
    pub confidence: f64,
    /// Factor of importance.
    pub importance: f64,
}

/// Final score of a hit (rule R7).
#[must_use]
pub fn final_score(settings: &RecallSettings, fused: f64, facts: &ScoreFacts, now: Timestamp) -> Score {
    let freshness = freshness(settings, facts.tier, facts.event_time, facts.last_cited_at, now);
    let boost = boost(settings, facts.cite_count);
    let confidence = if facts.confidence.is_finite() { facts.confidence.clamp(0.0, 1.0) } else { 0.0 };
    let importance = importance_factor(settings, facts.importance);
    let fused = if fused.is_finite() { fused.clamp(0.0, 1.0) } else { 0.0 };
    let usage = settings.freshness_weight * freshness + settings.boost_weight * boost;
    Score { score: fused * usage * confidence * importance, fused, freshness, boost, confidence, importance }
}

/// What orders one scored record.
#[derive(Clone, Debug, PartialEq)]
pub struct OrderFacts<Id> {
    /// Final score.
    pub score: f64,
    /// Confidence.
    pub confidence: f64,
    /// Last citation.
    pub last_used: Option<Timestamp>,
    /// Tie breaker.
    pub id: Id,
}

/// Bucket of a score on the logarithmic scale: scores of one bucket are near ties. Lowest for 0.
#[must_use]
#[allow(clippy::cast_possible_truncation)]
pub fn tie_bucket(settings: &RecallSettings, score: f64) -> i64 {
    // A score on the border of two buckets must not fall by the last bit of its logarithm.
    if score > 0.0 { (score.ln() / settings.tie_width + 1e-9).floor() as i64 } else { i64::MIN }
}

/// Order of answers, best first: score by bucket, then confidence, then last use, then id: a total order (rule R7, A114).
pub fn order<Id: Ord>(settings: &RecallSettings, a: &OrderFacts<Id>, b: &OrderFacts<Id>) -> Ordering {
    tie_bucket(settings, b.score)
        .cmp(&tie_bucket(settings, a.score))
        .then_with(|| b.confidence.total_cmp(&a.confidence))
        .then_with(|| Reverse(a.last_used).cmp(&Reverse(b.last_used)))
        .then_with(|| a.id.cmp(&b.id))
}

/// What makes two answers one (rule R11); each is asked with the positions of the better and of the worse item.
pub trait Similarity {
    /// Same key and value.
    fn same_slot_value(&self, better: usize, worse: usize) -> bool;
    /// Cosine of their vectors; none where a vector is missing.
    fn cosine(&self, better: usize, worse: usize) -> Option<f64>;
    /// Equal protected values and polarity. Asked only for pairs that are close enough.
    fn same_claims(&self, better: usize, worse: usize) -> bool;
}

/// One answer after merging: the position kept and those merged into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// Position of the item that stays.
    pub kept: usize,
    /// Positions of the near-duplicates it stands for, in order.
    pub duplicates: Vec<usize>,
}

/// Merges near-duplicates of `count` items given best first, and stops once `wanted` differ: same key and value, or
/// cosine over the configured one with equal protected values and polarity (rule R11). The best of each stays.
#[must_use]
pub fn near_duplicates(settings: &RecallSettings, count: usize, wanted: usize, similarity: &impl Similarity) -> Vec<Merged> {
    let mut out: Vec<Merged> = Vec::new();
    for worse in 0..count {
        let twin = out.iter_mut().find(|m| {
            similarity.same_slot_value(m.kept, worse)
                || (similarity.cosine(m.kept, worse).is_some_and(|c| c > settings.near_duplicate_cosine)
                    && similarity.same_claims(m.kept, worse))
        });
        if let Some(merged) = twin {
            merged.duplicates.push(worse);
        } else if out.len() < wanted {
            out.push(Merged { kept: worse, duplicates: Vec::new() });
        } else {
            break;
        }
    }
    out
}

/// The second group: records cited at least `recent_citations` times within the window, most cited first, without what
/// the first group shows, at most `recent_items` (rule R10). `cited` holds (id, citations within the window, last one).
#[must_use]
pub fn recently_frequent<Id: Ord + Clone>(
    settings: &RecallSettings,
    cited: &[(Id, u32, Timestamp)],
    shown: &[Id],
    now: Timestamp,
) -> Vec<Id> {
    let since = now.plus(-i64::from(settings.recent_days) * DAY);
    let mut group: Vec<&(Id, u32, Timestamp)> = cited
        .iter()
        .filter(|(id, count, last)| *count >= settings.recent_citations && *last >= since && !shown.contains(id))
        .collect();
    group.sort_by(|a, b| b.1.cmp(&a.1).then(b.2.cmp(&a.2)).then_with(|| a.0.cmp(&b.0)));
    group.dedup_by(|a, b| a.0 == b.0);
    group.into_iter().take(settings.recent_items as usize).map(|(id, ..)| id.clone()).collect()
}

/// How far a turn's surroundings reach: in talk of two, the turns beside it are the other's and those two away its own
/// speaker's (rule R14).
pub const REACH: u32 = 2;

/// What scoring has to know of one turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TurnFacts<S> {
    /// Session.
    pub session: S,
    /// Number in the session.
    pub number: u32,
    /// Words.
    pub words: u32,
    /// Fused score.
    pub score: f64,
}

impl RecallSettings {
    /// How much of what stands around it a turn of so many words takes: a short one is understood by what was said around
    /// it, a long one speaks for itself (rule R14).
    fn openness(&self, words: u32) -> f64 {
        (f64::from(self.context_words) / f64::from(words.max(1))).min(1.0)
    }
}

/// A share, as it is at a distance of 1 or more: halved with each further turn.
fn share_at(share: f64, distance: u32) -> f64 {
    share * 0.5_f64.powi(distance.saturating_sub(1).min(30).cast_signed())
}

/// Scores of turns with their neighbours (rule R14): at each distance within [`REACH`] a turn is given a share of the better
/// of the two turns there in the same session, the less the more words it has itself. `turns` holds the hits; answers
/// are in the same order, at most 1.
#[must_use]
pub fn with_neighbours<S: Ord>(settings: &RecallSettings, turns: &[TurnFacts<S>]) -> Vec<f64> {
    let scores: BTreeMap<(&S, u32), f64> = turns.iter().map(|t| ((&t.session, t.number), t.score)).collect();
    let whole: f64 = 1.0 + (1..=REACH).map(|distance| share_at(settings.neighbour_share, distance)).sum::<f64>();
    turns
        .iter()
        .map(|turn| {
            let of = |n: Option<u32>| n.and_then(|n| scores.get(&(&turn.session, n))).copied().unwrap_or(0.0);
            let given = |distance| {
                let better = of(turn.number.checked_sub(distance)).max(of(turn.number.checked_add(distance)));
                share_at(settings.neighbour_share, distance) * better
            };
            let around: f64 = (1..=REACH).map(given).sum();
            ((turn.score + settings.openness(turn.words) * around) / whole).clamp(0.0, 1.0)
        })
        .collect()
}

/// BM25 of each turn of one session with the words around it (rule R14): a term counts with its weight in the turn or, where
/// that is more, with a share of its weight in a turn within [`REACH`], the less the more words the turn has itself. So a
/// question's words count for the answer behind it. The mass is that of the turn's own terms: words around it alone make
/// no hit. `turns` holds weights (ascending by term) and words, in order and without gaps.
#[must_use]
pub fn bm25_in_context(settings: &RecallSettings, query: &[(u32, f32)], turns: &[(&[(u32, f32)], u32)]) -> Vec<KeywordMatch> {
    let matched: Vec<Vec<(usize, f64)>> = turns
        .iter()
        .map(|(weights, _)| {
            let weight = |term: u32| weights.binary_search_by_key(&term, |w| w.0).ok().map(|at| f64::from(weights[at].1));
            query.iter().enumerate().filter_map(|(at, (term, idf))| Some((at, weight(*term)? * f64::from(*idf)))).collect()
        })
        .collect();
    let mut best = vec![0.0_f64; query.len()];
    let mut scores = Vec::with_capacity(turns.len());
    for (at, (_, words)) in turns.iter().enumerate() {
        best.fill(0.0);
        let mut mass = 0.0;
        for (term, weight) in &matched[at] {
            best[*term] = *weight;
            mass += f64::from(query[*term].1);
        }
        for distance in 1..=REACH {
            let share = share_at(settings.context_share, distance) * settings.openness(*words);
            let beside = [at.checked_sub(distance as usize), at.checked_add(distance as usize)];
            for (term, weight) in beside.into_iter().flatten().filter_map(|n| matched.get(n)).flatten() {
                best[*term] = best[*term].max(share * weight);
            }
        }
        scores.push(KeywordMatch { score: best.iter().sum(), mass });
    }
    scores
}

/// Weight of a turn by what it is to the question (rule R14): one that only asks tells nothing, and of one person's
/// affairs the person knows most. `asking` is the share of the turn that asks, `other` whether the query asks about
/// somebody else than its speaker.
#[must_use]
pub fn turn_weight(settings: &RecallSettings, asking: f64, other: bool) -> f64 {
    let asking = if asking.is_finite() { asking.clamp(0.0, 1.0) } else { 0.0 };
    let speaker = if other { settings.other_speaker_weight } else { 1.0 };
    (1.0 - (1.0 - settings.question_weight) * asking) * speaker
}

/// Order by the scores of a reranker, best first (rule R9): positions of `scores`; equal scores keep the given order.
#[must_use]
pub fn reranked(scores: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    order
}

/// Maximal marginal relevance (rule R9): positions of `scores` (best first), each next one the best of
/// `relevance x score - (1 - relevance) x largest cosine to what is chosen`. Scores are scaled to the best, so that the
/// trade does not depend on the fusion method. Ties keep the given order.
#[must_use]
pub fn mmr(settings: &RecallSettings, scores: &[f64], wanted: usize, cosine: impl Fn(usize, usize) -> f64) -> Vec<usize> {
    let best = scores.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let mut rest: Vec<(usize, f64)> = (0..scores.len()).map(|i| (i, 0.0)).collect();
    let mut out = Vec::with_capacity(wanted.min(scores.len()));
    while out.len() < wanted && !rest.is_empty() {
        let value = |&(i, near): &(usize, f64)| settings.mmr_relevance * scores[i] / best - (1.0 - settings.mmr_relevance) * near;
        let mut at = 0;
        for candidate in 1..rest.len() {
            if value(&rest[candidate]) > value(&rest[at]) {
                at = candidate;
            }
        }
        let (chosen, _) = rest.remove(at);
        for (other, near) in &mut rest {
            *near = near.max(cosine(chosen, *other).clamp(0.0, 1.0));
        }
        out.push(chosen);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Tier;
    use proptest::prelude::*;

    const BOUNDS: Bounds = Bounds { min_similarity: 0.3, max_bm25: 10.0 };
    const NOW: Timestamp = Timestamp(1_800_000_000_000_000);

    fn settings() -> RecallSettings {
        RecallSettings::default()
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 5e-5
    }

    fn facts(tier: Tier, confidence: f64) -> ScoreFacts {
        ScoreFacts { tier, event_time: NOW, last_cited_at: None, cite_count: 0, confidence, importance: 5 }
    }

    #[test]
    fn settings_have_valid_defaults_and_name_the_refused_field() {
        settings().validate().expect("defaults are valid");
        let refused = |change: fn(&mut RecallSettings)| {
            let mut s = settings();
            change(&mut s);
            s.validate().expect_err("refused").fields[0].field.clone()
        };
        assert_eq!(refused(|s| s.keyword_weight = f64::NAN), "policy.recall.keyword_weight");
        assert_eq!(refused(|s| s.k = 101), "policy.recall.k");
        assert_eq!(refused(|s| s.boost_weight = 0.5), "policy.recall.boost_weight");
        assert_eq!(refused(|s| s.half_life_event_days = 0.0), "policy.recall.half_life_event_days");
        assert_eq!(refused(|s| s.floor = -0.1), "policy.recall.floor");
        assert!(toml::from_str::<RecallSettings>("flor = 1").is_err(), "an unknown field is refused");
        assert_eq!(toml::from_str::<RecallSettings>("fusion = 'rrf'").expect("reads").fusion, Fusion::Rrf);
    }

    #[test]
    fn a128_weights_keep_their_order() {
        let s = settings();
        // Relevance spans 0..1 and multiplies all; freshness spans 0.6 of the usage factor; importance 0.1.
        let (low, high) = (importance_factor(&s, 1), importance_factor(&s, 5));
        assert!(s.freshness_weight > high - low);
        let mut wrong = settings();
        (wrong.freshness_weight, wrong.boost_weight, wrong.importance_step) = (0.15, 0.85, 0.05);
        assert_eq!(wrong.validate().expect_err("refused").fields[0].field, "policy.recall.importance_step");
    }

    #[test]
    fn a117_each_leg_fetches_three_times_k_and_at_least_fifty() {
        assert_eq!([1, 5, 16, 17, 20, 100].map(|k| settings().leg_limit(k)), [50, 50, 50, 51, 60, 300]);
    }

    #[test]
    fn a118_reciprocal_ranks_are_golden() {
        let s = settings();
        let one = fuse(&s, Fusion::Rrf, &[("a", 0.9)], &[], BOUNDS);
        assert!((one[0].fused * (2.0 / 61.0) - 1.0 / 61.0).abs() < 1e-12, "one path at rank 1 adds 1/61");
        assert!((one[0].fused - 0.5).abs() < 1e-12);
        let both = fuse(&s, Fusion::Rrf, &[("a", 0.9), ("b", 0.8)], &[("a", 4.0)], BOUNDS);
        assert!((both[0].fused - 1.0).abs() < 1e-12, "rank 1 on both paths adds 2/61, the whole scale");
        assert!((both[1].fused - (1.0 / 62.0) / (2.0 / 61.0)).abs() < 1e-12);
        assert_eq!(both[1].ranks, Ranks { dense: Some(2), keyword: None });
    }

    #[test]
    fn a119_min_max_scales_from_the_bound_to_the_best() {
        let s = settings();
        let hits = fuse(&s, Fusion::MinMax, &[("a", 0.9), ("b", 0.6)], &[("b", 4.0), ("c", 1.0)], BOUNDS);
        let of = |id| hits.iter().find(|h| h.id == id).expect("found").fused;
        assert!((of("a") - 0.5).abs() < 1e-9);
        assert!((of("b") - (0.5 + 1.0) / 2.0).abs() < 1e-9);
        assert!((of("c") - 0.125).abs() < 1e-9);
        assert_eq!(hits[0].id, "b");
    }

    #[test]
    fn a119_the_method_changes_the_order() {
        let s = settings();
        // Both legs rank x first by a hair, y is far behind in one of them.
        let dense = [("x", 0.50), ("y", 0.95), ("z", 0.49)];
        let keyword = [("x", 5.0), ("z", 4.99), ("y", 0.2)];
        let order = |method| fuse(&s, method, &dense, &keyword, BOUNDS).into_iter().map(|h| h.id).collect::<Vec<_>>();
        assert_eq!(order(Fusion::Rrf), ["x", "y", "z"]);
        assert_eq!(order(Fusion::MinMax), ["x", "z", "y"]);
    }

    #[test]
    fn absolute_scores_mean_the_same_in_every_list() {
        let s = settings();
        let alone = fuse(&s, Fusion::Absolute, &[("a", 0.6)], &[("a", 2.0)], BOUNDS);
        let among = fuse(&s, Fusion::Absolute, &[("a", 0.6), ("b", 0.9)], &[("a", 2.0), ("b", 9.0)], BOUNDS);
        assert!((alone[0].fused - (0.6 + 0.2) / 2.0).abs() < 1e-9);
        assert!((alone[0].fused - among.iter().find(|h| h.id == "a").expect("found").fused).abs() < 1e-12);
    }

    #[test]
    fn c144_one_item_and_equal_lists_do_not_divide_by_zero() {
        let s = settings();
        for method in [Fusion::Rrf, Fusion::MinMax, Fusion::Absolute] {
            for bounds in [BOUNDS, Bounds { min_similarity: 1.0, max_bm25: 0.0 }] {
                for (dense, keyword) in [
                    (vec![], vec![]),
                    (vec![(1, 1.0)], vec![]),
                    (vec![], vec![(1, 3.0)]),
                    (vec![(1, 0.5), (2, 0.5), (3, 0.5)], vec![(1, 2.0), (2, 2.0), (3, 2.0)]),
                    (vec![(1, f64::NAN), (2, f64::INFINITY)], vec![(3, f64::NEG_INFINITY), (4, 0.0)]),
                ] {
                    let hits = fuse(&s, method, &dense, &keyword, bounds);
                    assert!(hits.iter().all(|h| (0.0..=1.0).contains(&h.fused)), "{method:?} {hits:?}");
                    if dense.len() == 3 {
                        assert!(hits.iter().all(|h| h.fused == hits[0].fused), "equal raw scores give equal fused ones");
                        assert_eq!(hits.iter().map(|h| h.id).collect::<Vec<_>>(), [1, 2, 3]);
                    }
                }
            }
        }
    }

    #[test]
    fn c144_similarity_thresholds_do_not_depend_on_the_method() {
        let s = settings();
        for method in [Fusion::Rrf, Fusion::MinMax, Fusion::Absolute] {
            let hits = fuse(&s, method, &[("over", 0.31), ("under", 0.29)], &[("word", 1.0)], BOUNDS);
            let mut ids: Vec<_> = hits.iter().map(|h| h.id).collect();
            ids.sort_unstable();
            assert_eq!(ids, ["over", "word"], "{method:?}");
        }
        assert_eq!(s.floor_of(Fusion::Rrf), 0.0);
        assert_eq!(s.floor_of(Fusion::Absolute), 0.01);
    }

    #[test]
    fn c144_a_heavier_keyword_leg_lets_a_word_outrank_a_meaning() {
        let mut s = settings();
        let first = |s: &RecallSettings, m| fuse(s, m, &[("meaning", 0.9)], &[("word", 9.0)], BOUNDS)[0].id;
        for method in [Fusion::MinMax, Fusion::Absolute] {
            s.keyword_weight = 0.5;
            assert_eq!(first(&s, method), "meaning");
            s.keyword_weight = 2.0;
            assert_eq!(first(&s, method), "word");
        }
    }

    #[test]
    fn c143_a_fresh_record_of_one_path_survives_floor_and_score() {
        let s = settings();
        for method in [Fusion::Rrf, Fusion::MinMax, Fusion::Absolute] {
            for (dense, keyword) in [(vec![("a", 0.5)], vec![]), (vec![], vec![("a", 3.0)])] {
                let hits = fuse(&s, method, &dense, &keyword, BOUNDS);
                assert!(hits[0].fused >= s.floor_of(method).max(0.01), "{method:?} {hits:?}");
                assert!(final_score(&s, hits[0].fused, &facts(Tier::Event, 0.9), NOW).score > 0.0);
            }
        }
    }

    #[test]
    fn c141_less_certain_records_never_gain_from_a_negative_cosine() {
        let s = settings();
        for method in [Fusion::Rrf, Fusion::MinMax, Fusion::Absolute] {
            let dense = [("exact", 1.0), ("paraphrase", 0.8), ("related", 0.5), ("unrelated", 0.05), ("opposite", -0.9)];
            let bounds = Bounds { min_similarity: 0.0, ..BOUNDS };
            let hits = fuse(&s, method, &dense, &[], bounds);
            assert_eq!(hits.iter().map(|h| h.id).collect::<Vec<_>>(), ["exact", "paraphrase", "related", "unrelated"]);
            // Found by a word as well, the opposite one still counts as cosine 0 under the absolute form.
            let hits = fuse(&s, Fusion::Absolute, &dense, &[("opposite", 0.001), ("unrelated", 0.001)], bounds);
            let scored = |id, confidence| {
                let fused = hits.iter().find(|h| h.id == id).expect("found").fused;
                final_score(&s, fused, &facts(Tier::Stable, confidence), NOW).score
            };
            assert!(scored("opposite", 0.2) <= scored("opposite", 0.9));
            assert!(scored("opposite", 0.9) < scored("unrelated", 0.9));
        }
    }

    #[test]
    fn a121_freshness_halves_with_each_half_life_of_the_tier() {
        let s = settings();
        let at = |tier, days: i64| freshness(&s, tier, NOW.plus(-days * DAY), None, NOW);
        assert_eq!(at(Tier::Event, 30), 0.5);
        assert_eq!(at(Tier::Event, 60), 0.25);
        assert_eq!(at(Tier::Event, 0), 1.0);
        assert_eq!(at(Tier::Temporary, 15), 0.5);
        assert_eq!(at(Tier::Stable, 36_500), 1.0);
        assert_eq!(at(Tier::Event, -3650), 1.0, "the future counts as age 0");
        let renewed = freshness(&s, Tier::Event, NOW.plus(-90 * DAY), Some(NOW.plus(-30 * DAY)), NOW);
        assert_eq!(renewed, 0.5, "a citation renews");
    }

    #[test]
    fn c066_freshness_stays_within_bounds_for_any_time() {
        let s = settings();
        let year_9999 = Timestamp(253_402_300_799_000_000);
        for time in [NOW.plus(3652 * DAY), NOW.plus(1), NOW, Timestamp::ZERO, year_9999, Timestamp(i64::MIN), Timestamp(i64::MAX)]
        {
            for tier in Tier::ALL {
                let f = freshness(&s, *tier, time, None, NOW);
                assert!((0.0..=1.0).contains(&f), "{tier:?} {time:?} {f}");
            }
        }
        let future = final_score(&s, 0.5, &ScoreFacts { event_time: year_9999, ..facts(Tier::Event, 0.9) }, NOW);
        let present = final_score(&s, 0.5, &facts(Tier::Event, 0.9), NOW);
        assert_eq!(future.score, present.score, "a future date does not outrank the present by time");
    }

    #[test]
    fn a122_boost_is_golden() {
        let s = settings();
        assert_eq!(boost(&s, 0), 0.0);
        assert!(near(boost(&s, 1), 0.2277));
        assert!(near(boost(&s, 5), 6.0_f64.ln() / 21.0_f64.ln()));
        assert_eq!(boost(&s, 20), 1.0);
        assert_eq!(boost(&s, u64::MAX), 1.0);
    }

    #[test]
    fn a123_final_score_is_golden() {
        let s = settings();
        let fresh = final_score(&s, 1.0, &facts(Tier::Event, 1.0), NOW);
        assert!(near(fresh.score, 0.6));
        let old = ScoreFacts { event_time: NOW.plus(-30 * DAY), cite_count: 1, importance: 3, ..facts(Tier::Event, 0.9) };
        let score = final_score(&s, 0.5, &old, NOW);
        assert!((score.score - 0.5 * (0.6 * 0.5 + 0.4 * boost(&s, 1)) * 0.9 * 0.95).abs() < 1e-12);
        assert_eq!((score.importance * 1000.0).round(), 950.0);
    }

    #[test]
    fn a113_score_rises_with_confidence() {
        let s = settings();
        let of = |c| final_score(&s, 0.7, &facts(Tier::Stable, c), NOW).score;
        assert!(of(0.9) > of(0.5) && of(0.5) > of(0.0));
        assert_eq!(of(f64::NAN), 0.0);
        assert_eq!(of(2.0), of(1.0));
    }

    #[test]
    fn a114_near_ties_go_to_confidence_then_to_the_more_recently_used() {
        let s = settings();
        let item = |score, confidence, last_used, id| OrderFacts { score, confidence, last_used, id };
        let mut items = [
            item(0.5010, 0.5, None, 1),
            item(0.5001, 0.9, None, 2),
            item(0.5001, 0.9, Some(NOW), 3),
            item(0.5001, 0.9, Some(NOW.plus(-1)), 4),
            item(0.5001, 0.9, None, 0),
            item(0.6, 0.1, None, 9),
            item(0.0, 1.0, None, 8),
        ];
        assert_eq!(tie_bucket(&s, 0.5010), tie_bucket(&s, 0.5001), "less than one percent apart");
        items.sort_by(|a, b| order(&s, a, b));
        assert_eq!(items.map(|i| i.id), [9, 3, 4, 0, 2, 1, 8]);
    }

    #[test]
    fn keyword_gate_asks_for_half_of_the_idf_mass() {
        let s = settings();
        let query = [(1, 2.0), (2, 1.0), (3, 1.0)];
        let mass = query_mass(&query);
        assert_eq!(mass, 4.0);
        let dense = GateContext { dense: true, records: 50, turns: false };
        let hit = |terms: &[u32]| bm25(&query, &terms.iter().map(|t| (*t, 1.0)).collect::<Vec<_>>());
        assert!(keyword_gate(hit(&[1]), mass, dense, &s));
        assert!(keyword_gate(hit(&[2, 3]), mass, dense, &s));
        assert!(!keyword_gate(hit(&[2]), mass, dense, &s));
        for exempt in
            [GateContext { dense: false, ..dense }, GateContext { records: 49, ..dense }, GateContext { turns: true, ..dense }]
        {
            assert!(keyword_gate(hit(&[2]), mass, exempt, &s), "{exempt:?}");
            assert!(!keyword_gate(hit(&[7]), mass, exempt, &s), "no word in common is no hit");
        }
    }

    #[test]
    fn bm25_sums_weights_of_shared_terms() {
        let hit = bm25(&[(1, 2.0), (5, 1.0), (9, 3.0)], &[(2, 1.0), (5, 0.5), (9, 2.0), (11, 1.0)]);
        assert_eq!(hit, KeywordMatch { score: 6.5, mass: 4.0 });
        assert_eq!(bm25(&[], &[(1, 1.0)]), KeywordMatch::default());
    }

    #[test]
    fn a116_each_leg_alone_finds_its_sample() {
        let s = settings();
        assert_eq!(fuse(&s, s.fusion, &[("dense", 0.8)], &[], BOUNDS)[0].id, "dense");
        assert_eq!(fuse(&s, s.fusion, &[], &[("word", 2.0)], BOUNDS)[0].id, "word");
        assert!(fuse(&s, s.fusion, &[("far", 0.1)], &[("none", 0.0)], BOUNDS).is_empty(), "a signal is needed");
    }

    #[test]
    fn a126_hits_name_their_paths() {
        let hits = fuse(&settings(), Fusion::Rrf, &[("a", 0.8), ("b", 0.7)], &[("b", 2.0)], BOUNDS);
        let b = hits.iter().find(|h| h.id == "b").expect("found");
        assert_eq!(b.ranks, Ranks { dense: Some(2), keyword: Some(1) });
        assert!(near(b.raw.cosine.expect("dense"), 0.7) && near(b.raw.bm25.expect("keyword"), 2.0));
    }

    struct Table {
        slots: Vec<Option<(&'static str, &'static str)>>,
        cosine: f64,
        claims: Vec<&'static str>,
    }

    impl Similarity for Table {
        fn same_slot_value(&self, a: usize, b: usize) -> bool {
            self.slots[a].is_some() && self.slots[a] == self.slots[b]
        }
        fn cosine(&self, _: usize, _: usize) -> Option<f64> {
            Some(self.cosine)
        }
        fn same_claims(&self, a: usize, b: usize) -> bool {
            self.claims[a] == self.claims[b]
        }
    }

    #[test]
    fn a132_near_duplicates_merge_unless_their_claims_differ() {
        let s = settings();
        let mut table = Table { slots: vec![None; 4], cosine: 0.97, claims: vec!["", "", "not", ""] };
        let merged = near_duplicates(&s, 4, 5, &table);
        assert_eq!(merged.iter().map(|m| m.kept).collect::<Vec<_>>(), [0, 2], "a negation keeps them apart");
        assert_eq!(merged[0].duplicates, [1, 3]);
        table.cosine = 0.95;
        assert_eq!(near_duplicates(&s, 4, 5, &table).len(), 4, "the limit itself is not over it");
        table.slots = vec![Some(("diet", "vegan")), Some(("diet", "meat")), None, Some(("diet", "vegan"))];
        assert_eq!(near_duplicates(&s, 4, 5, &table)[0].duplicates, [3]);
        assert_eq!(near_duplicates(&s, 4, 2, &table).len(), 2, "k is never exceeded");
    }

    #[test]
    fn a129_the_second_group_is_recent_frequent_capped_and_without_repeats() {
        let s = settings();
        let day = |n: i64| NOW.plus(-n * DAY);
        let cited = [(1, 5, day(1)), (2, 4, day(2)), (3, 3, day(3)), (4, 2, day(1)), (5, 9, day(15)), (6, 9, day(0))];
        assert_eq!(recently_frequent(&s, &cited, &[6], NOW), [1, 2]);
        assert_eq!(recently_frequent(&s, &cited, &[6, 1, 2], NOW), [3]);
        assert!(recently_frequent::<i32>(&s, &[], &[], NOW).is_empty());
    }

    #[test]
    fn turns_gain_from_the_better_neighbour_of_their_session_only() {
        let s = settings();
        let turn = |session, number, score| TurnFacts { session, number, words: 10, score };
        let turns = [
            turn("a", 1, 0.2),
            turn("a", 2, 0.8),
            turn("a", 3, 0.4),
            turn("b", 2, 0.9),
            turn("a", 9, 1.0),
            turn("c", u32::MAX, 0.3),
        ];
        let expected = [
            (0.2 + 0.4 * 0.8 + 0.2 * 0.4) / 1.6,
            (0.8 + 0.4 * 0.4) / 1.6,
            (0.4 + 0.4 * 0.8 + 0.2 * 0.2) / 1.6,
            0.9 / 1.6,
            1.0 / 1.6,
            0.3 / 1.6,
        ];
        let scores = with_neighbours(&s, &turns);
        assert!(scores.iter().zip(expected).all(|(a, b)| near(*a, b)), "{scores:?}");
        let long = TurnFacts { words: 64, ..turns[2] };
        let scores = with_neighbours(&s, &[turns[0], turns[1], long]);
        assert!(near(scores[2], (0.4 + 0.5 * (0.4 * 0.8 + 0.2 * 0.2)) / 1.6), "a long turn speaks for itself: {scores:?}");
    }

    #[test]
    fn r14_of_two_lists_the_hit_with_more_of_the_query_is_first() {
        let s = settings();
        // "night train to Prague": one list knows all of it, the other not the rarest word; each has its best hit at 1.
        let (own, other) = (
            Scale { best_bm25: 2.0, max_bm25: 2.5, ..Scale::default() },
            Scale { best_bm25: 3.0, max_bm25: 6.0, ..Scale::default() },
        );
        let joint = own.joined(other);
        assert_eq!(joint, other.joined(own));
        let score = |bm25, own| on_joint_scale(&s, Fusion::MinMax, 1.0, Raw { cosine: None, bm25: Some(bm25) }, own, joint);
        assert!(near(score(2.0, own), 1.0) && near(score(3.0, other), 0.5 / 0.8), "{} {}", score(2.0, own), score(3.0, other));
    }

    #[test]
    fn r14_words_count_for_the_turns_beside_them() {
        let s = settings();
        let query = [(1, 2.0), (2, 4.0)];
        type Terms = [(u32, f32)];
        let (both, first, second, none): (&Terms, &Terms, &Terms, &Terms) =
            (&[(1, 1.0), (2, 1.5)], &[(1, 1.0)], &[(2, 1.0), (3, 1.0)], &[]);
        let of = |turns: &[(&[(u32, f32)], u32)]| -> Vec<f64> {
            bm25_in_context(&s, &query, turns).into_iter().map(|hit| hit.score).collect()
        };
        assert_eq!(of(&[(both, 10)]), [8.0], "alone it is BM25");
        assert_eq!(of(&[(first, 10), (second, 10)]), [2.0 + 0.5 * 4.0, 0.5 * 2.0 + 4.0]);
        assert_eq!(of(&[(second, 10), (none, 10), (none, 10), (none, 10)]), [4.0, 2.0, 1.0, 0.0]);
        assert_eq!(of(&[(second, 10), (none, 64)]), [4.0, 1.0], "a long turn takes less");
        assert_eq!(of(&[(second, 10), (second, 10), (second, 10)]), [4.0; 3], "a word does not count twice");
        assert!(of(&[]).is_empty() && bm25_in_context(&s, &[], &[(both, 1)]) == [KeywordMatch::default()]);
        let masses = bm25_in_context(&s, &query, &[(both, 10), (first, 10), (none, 10)]).into_iter().map(|hit| hit.mass);
        assert_eq!(masses.collect::<Vec<_>>(), [6.0, 2.0, 0.0], "the mass is the turn's own");
    }

    #[test]
    fn r14_who_asks_and_who_is_not_asked_about_weigh_less() {
        let s = settings();
        assert_eq!(turn_weight(&s, 0.0, false), 1.0);
        assert!(near(turn_weight(&s, 1.0, false), 0.8) && near(turn_weight(&s, 0.5, false), 0.9));
        assert!(near(turn_weight(&s, 0.0, true), 0.7) && near(turn_weight(&s, 1.0, true), 0.56));
        assert_eq!(turn_weight(&s, f64::NAN, false), 1.0);
    }

    #[test]
    fn r9_a_reranker_orders_and_ties_stay() {
        assert_eq!(reranked(&[0.1, 0.9, 0.1, -2.0, 0.9]), [1, 4, 0, 2, 3]);
        assert!(reranked(&[]).is_empty());
    }

    #[test]
    fn a120_mmr_moves_repetitions_down_and_keeps_the_best_first() {
        let s = settings();
        let cosine = |a: usize, b: usize| if (a, b) == (0, 1) || (a, b) == (1, 0) { 1.0 } else { 0.0 };
        assert_eq!(mmr(&s, &[0.9, 0.85, 0.6], 3, cosine), [0, 2, 1]);
        assert_eq!(mmr(&s, &[0.9, 0.85, 0.6], 3, |_, _| 0.0), [0, 1, 2]);
        assert_eq!(mmr(&s, &[], 3, cosine), Vec::<usize>::new());
        assert_eq!(mmr(&s, &[0.0, 0.0], 3, |_, _| f64::NAN), [0, 1]);
    }

    proptest! {
        #[test]
        fn c066_c144_every_score_is_finite_and_within_its_scale(
            dense in proptest::collection::vec((0_u8..20, proptest::num::f64::ANY), 0..20),
            keyword in proptest::collection::vec((0_u8..20, proptest::num::f64::ANY), 0..20),
            min_similarity in 0.0..=1.0_f64, max_bm25 in 0.0..100.0_f64,
            time in any::<i64>(), cited in proptest::option::of(any::<i64>()), cites in any::<u64>(),
            confidence in proptest::num::f64::ANY, importance in any::<u8>(), now in any::<i64>(),
        ) {
            let s = settings();
            for method in [Fusion::Rrf, Fusion::MinMax, Fusion::Absolute] {
                let hits = fuse(&s, method, &dense, &keyword, Bounds { min_similarity, max_bm25 });
                prop_assert!(hits.is_sorted_by(|a, b| a.fused >= b.fused));
                for hit in hits {
                    prop_assert!((0.0..=1.0).contains(&hit.fused));
                    let facts = ScoreFacts {
                        tier: Tier::Event, event_time: Timestamp(time), last_cited_at: cited.map(Timestamp),
                        cite_count: cites, confidence, importance,
                    };
                    let score = final_score(&s, hit.fused, &facts, Timestamp(now));
                    prop_assert!((0.0..=1.0).contains(&score.score));
                    prop_assert!((0.0..=1.0).contains(&score.freshness) && (0.0..=1.0).contains(&score.boost));
                }
            }
        }

        #[test]
        fn a114_order_is_total(items in proptest::collection::vec((0.0..1.0_f64, 0.0..1.0_f64, proptest::option::of(0_i64..5), 0_u8..9), 3)) {
            let s = settings();
            let of = |i: usize| OrderFacts { score: items[i].0, confidence: items[i].1, last_used: items[i].2.map(Timestamp), id: items[i].3 };
            let (a, b, c) = (of(0), of(1), of(2));
            prop_assert_eq!(order(&s, &a, &b), order(&s, &b, &a).reverse());
            if order(&s, &a, &b).is_le() && order(&s, &b, &c).is_le() {
                prop_assert!(order(&s, &a, &c).is_le());
            }
        }
    }
}
