//! Measures the cue finders against hand-written sentences, half of them near misses.

use std::collections::BTreeMap;
use strata_core::text::{Certainty, Negation, SensitiveKind, TextFeatures};
use strata_text::features;

/// Least precision and recall of every feature in each language.
const FLOOR: f64 = 0.95;

/// Names of what holds of a text, as the tables spell it.
fn flags(f: &TextFeatures) -> Vec<&'static str> {
    let mut flags = Vec::new();
    for (name, holds) in [
        ("noise", f.noise),
        ("passing", f.passing),
        ("deictic", f.deictic),
        ("instruction", f.instruction),
        ("hidden", f.hidden),
        ("durable", f.durable),
        ("strong", f.strong),
        ("reported", f.reported),
        ("hedged", f.certainty == Certainty::Hedged),
        ("sure", f.certainty == Certainty::Strong),
        ("neg", f.negation == Negation::Full),
        ("partial", f.negation == Negation::Partial),
    ] {
        if holds {
            flags.push(name);
        }
    }
    for (name, kind) in [
        ("secret", SensitiveKind::Secret),
        ("card", SensitiveKind::Card),
        ("id", SensitiveKind::NationalId),
        ("phone", SensitiveKind::Phone),
        ("email", SensitiveKind::Email),
        ("address", SensitiveKind::Address),
        ("health", SensitiveKind::Health),
    ] {
        if f.sensitive.iter().any(|s| s.kind == kind) {
            flags.push(name);
        }
    }
    flags
}

/// Counts of one feature.
#[derive(Default)]
struct Score {
    hits: f64,
    false_alarms: f64,
    misses: f64,
}

impl Score {
    fn precision(&self) -> f64 {
        if self.hits + self.false_alarms == 0.0 { 1.0 } else { self.hits / (self.hits + self.false_alarms) }
    }
    fn recall(&self) -> f64 {
        if self.hits + self.misses == 0.0 { 1.0 } else { self.hits / (self.hits + self.misses) }
    }
}

/// `flag` must hold, `flag?` may; every other must not.
fn measure(table: &str) -> BTreeMap<&str, Score> {
    let mut scores: BTreeMap<&str, Score> = BTreeMap::new();
    let rows: Vec<(&str, &str)> = table.lines().filter(|l| !l.starts_with('#')).map(|l| l.split_once('\t').expect(l)).collect();
    assert!(rows.len() >= 120, "{} rows", rows.len());
    for (text, expected) in rows {
        let expected: Vec<&str> = expected.split_whitespace().collect();
        let found = flags(&features(text));
        for flag in &expected {
            if flag.ends_with('?') {
                continue;
            }
            let score = scores.entry(flag).or_default();
            if found.contains(flag) {
                score.hits += 1.0;
            } else {
                score.misses += 1.0;
                eprintln!("missed {flag}: {text}");
            }
        }
        for flag in found {
            if !expected.iter().any(|e| e.trim_end_matches('?') == flag) {
                scores.entry(flag).or_default().false_alarms += 1.0;
                eprintln!("false {flag}: {text}");
            }
        }
    }
    scores
}

fn assert_floor(language: &str, table: &str) {
    let scores = measure(table);
    let mut under = Vec::new();
    for (flag, score) in &scores {
        eprintln!("{language} {flag:12} precision {:.3} recall {:.3} n {}", score.precision(), score.recall(), score.hits + score.misses);
        if score.precision() < FLOOR || score.recall() < FLOOR {
            under.push(*flag);
        }
    }
    assert!(under.is_empty(), "{language}: under the floor: {under:?}");
}

#[test]
fn a47_to_a57_gate_cues_in_english() {
    assert_floor("en", include_str!("data/gate_en.tsv"));
}

#[test]
fn a47_to_a57_gate_cues_in_chinese() {
    assert_floor("zh", include_str!("data/gate_zh.tsv"));
}
