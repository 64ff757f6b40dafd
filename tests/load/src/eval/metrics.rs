//! What is counted.

use crate::stats::quantile;
use std::collections::{BTreeMap, BTreeSet};

/// Depths at which recall is told.
pub const DEPTHS: [usize; 5] = [1, 5, 10, 20, 50];
/// Share of answerable questions that a floor on the score must let through when abstention is told at that floor.
const KEPT_BY_FLOOR: f64 = 0.9;

/// Recall at each depth and reciprocal rank, summed over questions.
#[derive(Clone, Debug, Default)]
struct Evidence {
    questions: usize,
    at: [f64; DEPTHS.len()],
    reciprocal: f64,
}

impl Evidence {
    /// `found` holds the ids of the found turns, best first; `gold` those of the evidence.
    fn add(&mut self, found: &[String], gold: &BTreeSet<&str>) {
        self.questions += 1;
        for (sum, depth) in self.at.iter_mut().zip(DEPTHS) {
            let hits: BTreeSet<&str> = found.iter().take(depth).map(String::as_str).filter(|id| gold.contains(id)).collect();
            *sum += hits.len() as f64 / gold.len() as f64;
        }
        if let Some(rank) = found.iter().position(|id| gold.contains(id.as_str())) {
            self.reciprocal += 1.0 / (rank + 1) as f64;
        }
    }

    fn results(&self, prefix: &str, into: &mut BTreeMap<String, f64>) {
        let questions = self.questions as f64;
        into.insert(format!("{prefix}questions"), questions);
        for (sum, depth) in self.at.iter().zip(DEPTHS) {
            into.insert(format!("{prefix}R@{depth}"), sum / questions);
        }
        into.insert(format!("{prefix}MRR"), self.reciprocal / questions);
    }
}

/// What became of a value of a covered turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValueFate {
    /// Letter for letter in a summary or an anchor, in a clause that keeps another content word of its turn.
    pub told: bool,
    /// Letter for letter in a summary, an anchor or the value index.
    pub kept: bool,
    /// A listed range leads to its turn, which was read and holds it.
    pub reachable: bool,
}

/// Counts of one set.
#[derive(Clone, Debug, Default)]
pub struct SetMetrics {
    evidence: Evidence,
    by_category: BTreeMap<String, Evidence>,
    /// Best score of each answerable question and of each that has no answer; `None` for an empty answer.
    answerable: Vec<Option<f64>>,
    unanswerable: Vec<Option<f64>>,
    probes: usize,
    probes_answered: usize,
    values: usize,
    values_told: usize,
    values_kept: usize,
    values_reachable: usize,
    tokens_full: u64,
    tokens_shown: u64,
    counts: BTreeMap<String, u64>,
}

impl SetMetrics {
    /// A search: ids and scores of the found turns, best first.
    pub fn search(&mut self, found: &[(String, f64)], gold: &[String], category: &str, abstain: bool) {
        let best = found.first().map(|(_, score)| *score);
        if abstain {
            self.unanswerable.push(best);
            return;
        }
        let gold: BTreeSet<&str> = gold.iter().map(String::as_str).collect();
        if gold.is_empty() {
            // A question without annotated evidence: nothing can be said about the rank of what was found.
            self.probes += 1;
            self.probes_answered += usize::from(best.is_some());
            return;
        }
        let ids: Vec<String> = found.iter().map(|(id, _)| id.clone()).collect();
        self.answerable.push(best);
        self.evidence.add(&ids, &gold);
        self.by_category.entry(category.to_owned()).or_default().add(&ids, &gold);
    }

    /// What became of a value of a covered turn.
    pub fn value(&mut self, fate: ValueFate) {
        self.values += 1;
        self.values_told += usize::from(fate.told);
        self.values_kept += usize::from(fate.kept);
        self.values_reachable += usize::from(fate.reachable);
    }

    /// Tokens of a whole dialogue, and of what is shown of it after compression.
    pub fn tokens(&mut self, full: u64, shown: u64) {
        self.tokens_full += full;
        self.tokens_shown += shown;
    }

    /// Adds to a plain count.
    pub fn count(&mut self, name: impl Into<String>, more: u64) {
        *self.counts.entry(name.into()).or_default() += more;
    }

    /// Every metric by name. Shares and means lie between 0 and 1; what was not asked is absent.
    pub fn results(&self) -> BTreeMap<String, f64> {
        let mut all: BTreeMap<String, f64> = self.counts.iter().map(|(name, count)| (name.clone(), *count as f64)).collect();
        if self.evidence.questions > 0 {
            self.evidence.results("", &mut all);
            if self.by_category.len() > 1 {
                for (category, evidence) in &self.by_category {
                    evidence.results(&format!("{category}/"), &mut all);
                }
            }
        }
        if !self.unanswerable.is_empty() {
            let count = self.unanswerable.len() as f64;
            let below =
                |floor: f64| self.unanswerable.iter().filter(|best| best.is_none_or(|b| b < floor)).count() as f64 / count;
            all.insert("abstain/questions".into(), count);
            all.insert("abstain/empty".into(), below(f64::NEG_INFINITY));
            let mut scores: Vec<f64> = self.answerable.iter().map(|best| best.unwrap_or(0.0)).collect();
            if let Some(floor) = quantile(&mut scores, 1.0 - KEPT_BY_FLOOR) {
                all.insert("abstain/floor".into(), floor);
                all.insert("abstain/below_floor".into(), below(floor));
                all.insert("abstain/auc".into(), self.separation());
            }
        }
        if self.probes > 0 {
            all.insert("probes".into(), self.probes as f64);
            all.insert("probes_answered".into(), self.probes_answered as f64 / self.probes as f64);
        }
        if self.values > 0 {
            let share = |count: usize| count as f64 / self.values as f64;
            all.insert("values".into(), self.values as f64);
            all.insert("values_told".into(), share(self.values_told));
            all.insert("values_kept".into(), share(self.values_kept));
            all.insert("values_reachable".into(), share(self.values_reachable));
        }
        if self.tokens_full > 0 {
            all.insert("tokens_of_full".into(), self.tokens_shown as f64 / self.tokens_full as f64);
        }
        all
    }

    /// Chance that the best score of an answerable question lies above that of one without an answer (ties count half):
    /// 0.5 says that the score tells nothing.
    fn separation(&self) -> f64 {
        let score = |best: &Option<f64>| best.unwrap_or(f64::NEG_INFINITY);
        let mut wins = 0.0;
        for answerable in self.answerable.iter().map(score) {
            for unanswerable in self.unanswerable.iter().map(score) {
                wins += if answerable > unanswerable {
                    1.0
                } else if answerable < unanswerable {
                    0.0
                } else {
                    0.5
                };
            }
        }
        wins / (self.answerable.len() * self.unanswerable.len()) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(ids: &[(&str, f64)]) -> Vec<(String, f64)> {
        ids.iter().map(|(id, score)| ((*id).to_owned(), *score)).collect()
    }

    fn gold(ids: &[&str]) -> Vec<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    fn close(all: &BTreeMap<String, f64>, name: &str, wanted: f64) {
        let value = all.get(name).copied().unwrap_or(f64::NAN);
        assert!((value - wanted).abs() < 1e-9, "{name} is {value}, not {wanted}");
    }

    #[test]
    fn a203_recall_at_k_of_a_tiny_dialogue_is_what_the_hand_says() {
        let mut metrics = SetMetrics::default();
        // Both pieces of evidence: one first, one sixth.
        let six = found(&[("a", 0.9), ("x", 0.8), ("y", 0.7), ("z", 0.6), ("w", 0.5), ("b", 0.4)]);
        metrics.search(&six, &gold(&["a", "b"]), "multi-hop", false);
        // The evidence is second.
        metrics.search(&found(&[("x", 0.9), ("c", 0.3)]), &gold(&["c"]), "temporal", false);
        // Nothing is found.
        metrics.search(&[], &gold(&["d"]), "temporal", false);
        let all = metrics.results();
        close(&all, "questions", 3.0);
        close(&all, "R@1", 0.5 / 3.0);
        close(&all, "R@5", (0.5 + 1.0) / 3.0);
        close(&all, "R@10", 2.0 / 3.0);
        close(&all, "MRR", (1.0 + 0.5) / 3.0);
        close(&all, "multi-hop/R@10", 1.0);
        close(&all, "temporal/R@50", 0.5);
    }

    #[test]
    fn the_same_evidence_found_twice_counts_once() {
        let mut metrics = SetMetrics::default();
        metrics.search(&found(&[("a", 0.9), ("a", 0.8)]), &gold(&["a", "b"]), "c", false);
        close(&metrics.results(), "R@5", 0.5);
    }

    #[test]
    fn abstention_is_told_at_a_floor_that_keeps_what_can_be_answered() {
        let mut metrics = SetMetrics::default();
        for score in [0.9, 0.8, 0.7, 0.6, 0.5, 0.5, 0.5, 0.5, 0.5, 0.4] {
            metrics.search(&found(&[("a", score)]), &gold(&["a"]), "c", false);
        }
        for best in [None, Some(0.1), Some(0.3), Some(0.95)] {
            let hits: Vec<_> = best.map(|score| ("x".to_owned(), score)).into_iter().collect();
            metrics.search(&hits, &[], "adversarial", true);
        }
        let all = metrics.results();
        close(&all, "abstain/questions", 4.0);
        close(&all, "abstain/empty", 0.25);
        close(&all, "abstain/floor", 0.4);
        close(&all, "abstain/below_floor", 0.75);
        close(&all, "abstain/auc", 0.75);
        close(&all, "questions", 10.0);
    }

    #[test]
    fn a_question_without_evidence_is_a_probe() {
        let mut metrics = SetMetrics::default();
        metrics.search(&found(&[("a", 0.9)]), &[], "probe", false);
        metrics.search(&[], &[], "probe", false);
        let all = metrics.results();
        close(&all, "probes", 2.0);
        close(&all, "probes_answered", 0.5);
        assert!(!all.contains_key("MRR"));
    }

    #[test]
    fn shares_of_values_and_tokens_are_of_all_that_were_counted() {
        let mut metrics = SetMetrics::default();
        metrics.value(ValueFate { told: true, kept: true, reachable: true });
        metrics.value(ValueFate { told: false, kept: true, reachable: true });
        metrics.value(ValueFate { told: false, kept: true, reachable: false });
        metrics.value(ValueFate::default());
        metrics.tokens(100, 30);
        metrics.tokens(100, 70);
        metrics.count("turns", 7);
        let all = metrics.results();
        close(&all, "values_told", 0.25);
        close(&all, "values_kept", 0.75);
        close(&all, "values_reachable", 0.5);
        close(&all, "tokens_of_full", 0.5);
        close(&all, "turns", 7.0);
    }
}
