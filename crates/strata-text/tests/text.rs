//! Measures the cue finders against hand-written sentences, half of them near misses; and states what holds of every text.

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use strata_core::policy::registry::Registry;
use strata_core::text::{Certainty, Negation, SensitiveKind, TextFeatures};
use strata_text::slots::SlotMatcher;
use strata_text::{clean, features, pii, query_terms, sentence_spans, terms, tokens};

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
        eprintln!(
            "{language} {flag:12} precision {:.3} recall {:.3} n {}",
            score.precision(),
            score.recall(),
            score.hits + score.misses
        );
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

static MATCHER: LazyLock<SlotMatcher> =
    LazyLock::new(|| SlotMatcher::new(&Registry::builtin()).expect("built-in wordings compile"));

/// Texts of fragments that the finders look for, and of anything at all.
fn any_text() -> impl Strategy<Value = String> {
    let fragment = prop_oneof![
        prop::sample::select(vec![
            "138",
            "0013",
            "8000",
            "-",
            " ",
            "\u{200b}",
            "１",
            "。",
            ".",
            "我住在杭州",
            "password: ",
            "hunter2",
            "@",
            "example.com",
            "3点",
            "半",
            "下午",
            "$",
            "5",
            "k",
            "万",
            "元",
            "Anna",
            "is",
            "not",
            "不",
            "吃辣",
            "👨‍👩‍👧",
            "\u{202e}",
            "\u{e0041}",
            "e\u{301}",
            "ﷺ",
            "مرحبا",
            "東京の",
            "점검표",
            "《",
            "》",
            "`",
            "\n",
            "May",
            "2026-05-03",
            "CC-1042",
            "ﬁ",
            "½",
            "Ⅳ",
            "ǅ",
            "İ",
            "ß",
        ])
        .prop_map(str::to_owned),
        any::<char>().prop_map(String::from),
        "\\PC{0,6}",
    ];
    prop::collection::vec(fragment, 0..24).prop_map(|fragments| fragments.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn c080_spans_of_any_text_are_in_order_and_on_character_boundaries(text in any_text()) {
        let found = features(&text);
        let mut end = 0;
        for value in &found.values {
            prop_assert!(value.start >= end && text.get(value.start..value.end) == Some(value.text.as_str()), "{value:?}");
            end = value.end;
        }
        end = 0;
        for span in &found.sensitive {
            prop_assert!(span.start >= end && text.get(span.start..span.end).is_some_and(|s| !s.is_empty()), "{span:?}");
            end = span.end;
        }
        end = 0;
        for span in sentence_spans(&text) {
            prop_assert!(span.start >= end && text.get(span.clone()).is_some_and(|s| !s.is_empty()), "{span:?}");
            end = span.end;
        }
        for slot in MATCHER.match_all(&text) {
            prop_assert!(text.get(slot.span).is_some_and(|s| !s.is_empty()));
        }
        prop_assert!(clean::normal(&found.normal) == found.normal, "normal form is its own normal form");
        prop_assert!(std::str::from_utf8(pii::mask(&text).as_bytes()).is_ok());
    }

    #[test]
    fn c083_any_text_is_a_query_and_finds_itself(text in any_text()) {
        let document = terms(&text);
        for (hash, _) in query_terms(&text) {
            prop_assert!(document.binary_search_by_key(&hash, |t| t.0).is_ok());
        }
    }

    #[test]
    fn c084_counts_add_up_and_cuts_fit(a in any_text(), b in any_text(), budget in 0_u32..60) {
        let joined = format!("{a}{b}");
        prop_assert!(tokens::count(&joined) <= tokens::count(&a) + tokens::count(&b));
        prop_assert!(tokens::count(&joined) >= tokens::count(&a).max(tokens::count(&b)));
        let part = tokens::cut(&joined, budget);
        prop_assert!(joined.starts_with(part) && tokens::count(part) <= budget);
    }
}
