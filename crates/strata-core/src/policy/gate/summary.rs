//! What a summary of records may say (rules F5, G2, G12): nothing but what its members say, and all of their protected values.
//! Whoever made the words, a rule or a model, they are held against the members here. Source, confidence and sensitivity are
//! the members': a summary is never surer than the least sure of them.
//!
//! A model is trusted less than a rule: which record it has a sentence from is checked sentence by sentence ([`worded`]). It
//! chooses among the clauses of its records and words none of its own. What it made is recalled for months as what the user
//! said, with what it stands for out of recall; a summary of a session lives for a day, and its turns are shown beside it.

use super::{Cues, Door, Gated, Refusal, Statement, class_words, is_never_stored, refusal};
use crate::limits::CONTENT_CHARS;
use crate::policy::conflict::rank;
use crate::policy::session::{Role, SummarySentence};
use crate::policy::summary::{self as truth, FLAWS_NAMED, Language, Said, shortened};
use crate::record::{Kind, Record, Sensitivity, Source, Tier, Trigger};
use crate::rule::Finding;
use crate::text::{Certainty, Clause, Negation, TextFeatures};
use crate::{Fault, Reason};
use std::collections::{BTreeMap, BTreeSet};

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
    let kept = |normal: &str| holds(content, normal);
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

/// Judges a summary that a model worded, for which `given` holds its sentences put together. Each sentence names the records it
/// is from by their numbers, from 1 in the order of the members. It passes when
///
/// - each sentence is true to its records as those of a session are to its turns (rules S3 to S5): values letter for letter,
///   no "may" turned into "is", no denial dropped;
/// - each is made of whole clauses of one sentence of one record, in their order, with what frames them: the condition, the
///   plan, the time that is over, who said it;
/// - each record has a sentence of its own, one with a denial if it denies, and all of its values;
/// - [`summary`] takes the whole.
///
/// # Errors
/// `SUMMARY_REFUSED` with what is wrong by rule, sentence and record, for whoever made it: values are named, so it is no text
/// for a log.
pub fn worded(given: SummarySubmission<'_>, sentences: &[SummarySentence], language: Language<'_>) -> Result<Gated, Fault> {
    let said: BTreeMap<u32, Said<'_>> = (1..)
        .zip(given.members)
        .map(|(number, member)| (number, Said { number, role: Role::User, text: &member.record.content }))
        .collect();
    let mut flaws: Vec<(&str, String, String)> = truth::judge(sentences, &said, &BTreeMap::new(), language)
        .iter()
        .map(|flaw| (flaw.rule().0, flaw.subject(), flaw.describe("record")))
        .collect();
    let sources: BTreeMap<u32, Vec<truth::Statement>> =
        said.values().map(|said| (said.number, (language.read)(said.text, said.role))).collect();
    let (mut told, mut denied) = (BTreeSet::new(), BTreeSet::new());
    for (at, sentence) in sentences.iter().enumerate() {
        for claim in (language.read)(&sentence.text, Role::Assistant) {
            let is_from = |number: &&u32| {
                sources.get(*number).is_some_and(|all| all.iter().any(|source| excerpt(&claim.features, &source.features)))
            };
            let from: Vec<u32> = sentence.seqs.iter().filter(is_from).copied().collect();
            if from.is_empty() {
                let what = "is not made of whole clauses of one sentence of a record that it names, with its condition, plan, \
                            time and speaker; copy them word for word";
                flaws.push(("G12", format!("sentences[{at}]"), what.to_owned()));
            }
            if claim.features.negation == Negation::Full {
                denied.extend(from.iter().copied());
            }
            told.extend(from);
        }
    }
    let kept = |normal: &str| holds(given.features, normal);
    for (number, member) in (1..).zip(given.members) {
        let record = format!("record {number}");
        if !told.contains(&number) {
            flaws.push(("F5", record, "is in no sentence; every record has one that is taken from it and names it".to_owned()));
            continue;
        }
        if member.features.negation == Negation::Full && !denied.contains(&number) {
            flaws.push(("G12", record.clone(), "denies something, and no sentence that is taken from it does".to_owned()));
        }
        if let Some(value) = member.features.values.iter().find(|value| !kept(&value.normal)) {
            let what = format!("\"{}\" is in no sentence; keep it letter for letter", shortened(&value.text));
            flaws.push(("G12", record, what));
        }
    }
    let refused = Fault::new(Reason::SummaryRefused, "the summary is not true to its records");
    if !flaws.is_empty() {
        let named = flaws.into_iter().take(FLAWS_NAMED);
        return Err(named.fold(refused, |fault, (rule, subject, what)| fault.rule(rule, subject, what)));
    }
    summary(given).map_err(|found| {
        found.findings.into_iter().fold(refused, |fault, finding| fault.rule(finding.rule.0, "sentences", finding.because))
    })
}

/// Whether a claim is made of whole clauses of a sentence, in their order, and leaves nothing out that frames them.
fn excerpt(claim: &TextFeatures, source: &TextFeatures) -> bool {
    // A clause said under a condition is none without it, and a plan is no deed (rule G12).
    let same = |own: &Clause, of: &Clause| {
        own.normal == of.normal && own.qualified == of.qualified && own.ahead == of.ahead && own.negation == of.negation
    };
    let mut rest = source.clauses.iter();
    let whole = claim.clauses.iter().all(|own| rest.any(|of| same(own, of)));
    let framed = (claim.reported || !source.reported)
        && (claim.unreal || !source.unreal)
        && (claim.of_kin || !source.of_kin)
        && (claim.certainty == Certainty::Hedged || source.certainty != Certainty::Hedged);
    !claim.clauses.is_empty() && whole && framed
}

/// Whether a text holds a value, in normal form.
fn holds(text: &TextFeatures, normal: &str) -> bool {
    text.values.iter().any(|value| value.normal == normal) || text.normal.contains(normal)
}
