//! What a summary of records may say (rules F5, G2, G12): nothing but what its members say, and all of their protected values.
//! Whoever made the words, a rule or a model, they are held against the members here. Source, confidence and sensitivity are
//! the members': a summary is never surer than the least sure of them.

use super::{Cues, Door, Gated, Refusal, Statement, class_words, is_never_stored, refusal};
use crate::limits::CONTENT_CHARS;
use crate::policy::conflict::rank;
use crate::record::{Kind, Record, Sensitivity, Source, Tier, Trigger};
use crate::rule::Finding;
use crate::text::{Negation, TextFeatures};
use std::collections::BTreeMap;

/// A record that a summary is to stand for.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// The record.
    pub record: &'a Record,
    /// Features of its content.
    pub features: &'a TextFeatures,
}

/// A summary as it is proposed.
#[derive(Clone, Copy, Debug)]
pub struct SummarySubmission<'a> {
    /// Its words.
    pub text: &'a str,
    /// Their features.
    pub features: &'a TextFeatures,
    /// Its topic, as the members have it.
    pub topic: Option<&'a str>,
    /// What it is to stand for; every one of them has to be covered.
    pub members: &'a [Member<'a>],
}

/// Judges a summary. It may only be extractive: every clause of it stands in a member, and every protected value of every
/// member stands in it, so that what is archived behind it is not lost to recall.
///
/// # Errors
/// A [`Refusal`] listing every rule that objected, never the text.
pub fn summary(given: SummarySubmission<'_>) -> Result<Gated, Refusal> {
    let mut refused = Vec::new();
    let content = given.features;
    let worst = content.sensitive.iter().map(|span| span.kind).filter(|kind| is_never_stored(*kind)).min();
    if let Some(kind) = worst {
        refused.push(Finding::new("G3", "REFUSED", format!("holds {}, which is never stored", class_words(kind))));
    }
    if content.instruction || content.hidden {
        refused.push(Finding::new("G8", "REFUSED", "reads like an instruction, or hides characters"));
    }
    if given.members.len() < 2 {
        refused.push(Finding::new("F5", "REFUSED", "a summary stands for two records at least"));
    }
    let chars = given.text.chars().count();
    if given.text.trim().is_empty() || chars > CONTENT_CHARS {
        refused.push(Finding::new("F5", "REFUSED", format!("has 1 to {CONTENT_CHARS} characters")));
    }
    let said = |normal: &str| given.members.iter().any(|m| m.features.normal.contains(normal));
    if content.clauses.iter().any(|clause| !said(&clause.normal)) {
        refused.push(Finding::new("G12", "REFUSED", "says something that none of its records says"));
    }
    let values = given.members.iter().flat_map(|m| &m.features.values);
    let known: Vec<&str> = values.map(|value| value.normal.as_str()).collect();
    if content.values.iter().any(|value| !known.contains(&value.normal.as_str())) {
        refused.push(Finding::new("G12", "REFUSED", "holds a value that none of its records holds"));
    }
    let kept = |normal: &str| content.values.iter().any(|value| value.normal == normal) || content.normal.contains(normal);
    if known.iter().any(|normal| !kept(normal)) {
        refused.push(Finding::new("G12", "REFUSED", "loses a value of a record it stands for"));
    }
    if content.negation == Negation::None && given.members.iter().any(|m| m.features.negation == Negation::Full) {
        refused.push(Finding::new("G12", "REFUSED", "loses a denial of a record it stands for"));
    }
    if !refused.is_empty() {
        return Err(refusal(refused, worst));
    }
    let records = || given.members.iter().map(|member| member.record);
    let source = records().map(|r| r.source).min_by_key(|source| rank(*source, false)).unwrap_or(Source::ModelInference);
    let confidence = records().map(|r| r.confidence).fold(1.0, f64::min);
    let statement = Statement {
        kind: Kind::Summary,
        key: None,
        value: None,
        content: given.text.to_owned(),
        source,
        source_ref: None,
        // Its words are the members': it is its own quote.
        source_quote: given.text.to_owned(),
        trigger: Some(Trigger::Maintenance),
        importance: records().map(|r| r.importance).max(),
        confidence: Some(confidence),
        tier: None,
        protected: false,
        valid_from: None,
        valid_to: None,
        expire_time: None,
        topic: given.topic.map(str::to_owned),
        tags: Vec::new(),
        metadata: BTreeMap::new(),
        vector: Vec::new(),
        consent: None,
    };
    let personal = records().any(|r| r.sensitivity == Sensitivity::Personal);
    Ok(Gated {
        key: None,
        is_set: false,
        value: None,
        normal: content.normal.clone(),
        value_normal: None,
        // Like what it stands for: it ages in recall as events do, and has no end of its own.
        tier: Tier::Event,
        standing: super::Standing::Active,
        sensitivity: if personal { Sensitivity::Personal } else { Sensitivity::None },
        instruction: false,
        quote_verified: records().all(|r| r.quote_verified),
        confirmed: false,
        confidence,
        protected: false,
        cues: Cues::default(),
        registered: false,
        stable_key: false,
        user_authority: false,
        has_protected_value: !content.values.is_empty(),
        statement_time: None,
        door: Door::Maintenance,
        findings: vec![Finding::new("F5", "SUMMARY", format!("stands for {} records", given.members.len()))],
        statement,
    })
}
