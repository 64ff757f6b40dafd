//! The tuning table of the gate: what people say and what must become of it, in English and Chinese, half of it near misses
//! on either side of a rule. Every row goes through the role on a real file; precision and recall of each rule are printed
//! (`cargo test -p strata-longterm --test it tuning -- --nocapture`) and must not fall below what is written here.

#![expect(clippy::print_stdout, reason = "the numbers are for people")]

use crate::world::*;
use futures::stream::{self, StreamExt};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use strata_api::longterm::v1 as pb;
use strata_core::policy::gate::QuoteState;

/// Least precision and recall of a refusing rule.
const RULE_SHARE: f64 = 0.95;
/// Least share of rows whose whole verdict is right.
const OVERALL_SHARE: f64 = 0.97;

/// One row: a turn, the statement that is made of it, and the right verdict.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// The turn.
    say: String,
    /// Who spoke it; USER when left out.
    #[serde(default)]
    role: String,
    /// The statement; the turn itself when left out.
    content: Option<String>,
    /// The quote; the turn itself when left out.
    quote: Option<String>,
    #[serde(default)]
    key: String,
    value: Option<String>,
    source: Option<String>,
    kind: Option<String>,
    #[serde(default)]
    topic: String,
    tags: Option<String>,
    /// Remember when left out.
    door: Option<String>,
    /// Every rule that refuses it; empty when none does.
    #[serde(default)]
    refused: BTreeSet<String>,
    /// What it becomes when it passes; QUOTED is ACTIVE, and marked as quoted data.
    becomes: Option<String>,
    /// What the row tries.
    group: String,
}

impl Row {
    fn statement(&self) -> pb::Statement {
        let value = self
            .value
            .as_ref()
            .map(|value| strata_api::convert::common::wire_value(&strata_core::record::Value::Text(value.clone())));
        let named = |name: &Option<String>, fallback: i32, parse: fn(&str) -> Option<i32>| {
            name.as_deref().map_or(fallback, |name| parse(name).unwrap_or_else(|| panic!("{name}")))
        };
        pb::Statement {
            content: self.content.clone().unwrap_or_else(|| self.say.clone()),
            source_quote: self.quote.clone().unwrap_or_else(|| self.say.clone()),
            key: self.key.clone(),
            value,
            source: named(&self.source, pb::Source::UserStatement.into(), |name| {
                pb::Source::from_str_name(&format!("SOURCE_{name}")).map(Into::into)
            }),
            kind: named(&self.kind, pb::Kind::Fact.into(), |name| {
                pb::Kind::from_str_name(&format!("KIND_{name}")).map(Into::into)
            }),
            topic: self.topic.clone(),
            tags: self.tags.iter().cloned().collect(),
            ..says("")
        }
    }

    /// What the router would attest of the turn: the quote in normal form stands in it, and the user spoke it.
    fn speaker(&self, user: Caller) -> Caller {
        let quote = self.quote.as_deref().unwrap_or(&self.say);
        let stands = strata_text::quote::stands_in(quote, &self.say);
        let user = user.quote(if stands { QuoteState::Verified } else { QuoteState::NotFound });
        if self.role.is_empty() || self.role == "USER" { user } else { user.of_another() }
    }

    /// The rules that refused it, what it became, and what the gate found on the way.
    async fn judged(&self, world: &World, n: usize) -> (BTreeSet<String>, String, String) {
        let caller = self.speaker(world.user(&format!("u{n}")));
        let result = match self.door.as_deref() {
            None | Some("Remember") => caller.remember(self.statement()).await,
            Some("Propose") => caller.propose(self.statement()).await,
            Some(other) => panic!("no such door: {other}"),
        };
        match result {
            Err(fault) => (fault.preconditions.iter().map(|p| p.rule.clone()).collect(), String::new(), String::new()),
            Ok(result) => {
                let found: Vec<String> = result.findings.iter().map(|f| format!("{} {}", f.rule, f.outcome)).collect();
                (BTreeSet::new(), became(&result), format!(" ({})", found.join(", ")))
            }
        }
    }
}

fn became(result: &pb::WriteResult) -> String {
    let quoted = result.findings.iter().any(|finding| finding.outcome == "QUOTED");
    let name = match (&result.memory, result.outcome()) {
        (_, pb::Outcome::NeedsConsent) => "NEEDS_CONSENT",
        (Some(memory), _) if memory.status() == pb::Status::Active && memory.tier() == pb::Tier::Temporary => "TEMPORARY",
        (Some(memory), _) if memory.status() == pb::Status::Active && quoted => "QUOTED",
        (Some(memory), _) if memory.status() == pb::Status::Active => "ACTIVE",
        (Some(_), _) => "CANDIDATE",
        (None, other) => panic!("{other:?} without a record"),
    };
    name.to_owned()
}

/// Right, missed and invented verdicts of one rule.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    hits: u32,
    missed: u32,
    invented: u32,
}

impl Count {
    fn note(&mut self, expected: bool, found: bool) {
        self.hits += u32::from(expected && found);
        self.missed += u32::from(expected && !found);
        self.invented += u32::from(!expected && found);
    }
    fn precision(self) -> f64 {
        share(self.hits, self.hits + self.invented)
    }
    fn recall(self) -> f64 {
        share(self.hits, self.hits + self.missed)
    }
}

fn share(part: u32, whole: u32) -> f64 {
    if whole == 0 { 1.0 } else { f64::from(part) / f64::from(whole) }
}

/// Puts every row of the table through the role, prints what came of them, and answers how much was right.
async fn measure(language: &str, table: &str) -> Measured {
    let rows: Vec<Row> =
        table.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))).collect();
    let world = World::new().await;
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    let mut wrong = Vec::new();
    let verdicts: Vec<_> =
        stream::iter(rows.iter().enumerate()).map(|(n, row)| row.judged(&world, n)).buffered(64).collect().await;
    for (row, (refused, became, found)) in rows.iter().zip(verdicts) {
        let expected = row.becomes.clone().unwrap_or_default();
        for name in
            row.refused.union(&refused).chain([&expected, &became]).filter(|name| !name.is_empty()).collect::<BTreeSet<_>>()
        {
            let expects = row.refused.contains(name) || expected == *name;
            let finds = refused.contains(name) || became == *name;
            counts.entry(name.clone()).or_default().note(expects, finds);
        }
        if refused != row.refused || became != expected {
            wrong.push(format!(
                "{}: {:?} expected {:?}{expected}, got {refused:?}{became}{found}",
                row.group, row.say, row.refused
            ));
        }
    }
    let right = share(u32::try_from(rows.len() - wrong.len()).expect("few"), u32::try_from(rows.len()).expect("few"));
    println!("gate, {language}: {} rows, {:.3} right", rows.len(), right);
    for (name, count) in &counts {
        let all = count.hits + count.missed;
        println!("  {name:<14} {all:>4} rows   precision {:.3}   recall {:.3}", count.precision(), count.recall());
    }
    for line in &wrong {
        println!("  wrong: {line}");
    }
    Measured { rows: rows.len(), right, counts, wrong }
}

/// What a table came to.
struct Measured {
    rows: usize,
    right: f64,
    counts: BTreeMap<String, Count>,
    wrong: Vec<String>,
}

async fn holds(language: &str, table: &str) {
    let found = measure(language, table).await;
    assert!(found.rows >= 300, "{language}: {}", found.rows);
    for (name, count) in found.counts.iter().filter(|(name, _)| name.starts_with('G')) {
        assert!(
            count.precision() >= RULE_SHARE && count.recall() >= RULE_SHARE,
            "{language} {name}: {count:?}\n{}",
            found.wrong.join("\n")
        );
    }
    assert!(found.right >= OVERALL_SHARE, "{language}: {}\n{}", found.right, found.wrong.join("\n"));
}

#[tokio::test]
async fn a47_a56_a61_the_tuning_table_in_english() {
    holds("English", include_str!("data/gate.en.jsonl")).await;
}

#[tokio::test]
async fn a47_a56_a61_the_tuning_table_in_chinese() {
    holds("Chinese", include_str!("data/gate.zh.jsonl")).await;
}

#[tokio::test]
#[ignore = "measures the tables named by GATE_TABLES, which nothing was tuned on"]
async fn tables_of_ones_own() {
    for path in std::env::var("GATE_TABLES").expect("GATE_TABLES: paths of JSONL files, with commas").split(',') {
        measure(path, &std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))).await;
    }
}
