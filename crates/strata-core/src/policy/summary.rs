//! Whether a summary is true to the turns it was made from (rules S3 to S5): the one judgement over summaries that a
//! client or a model made, which the summaries of `policy::session` pass as well. Sentences over records of long-term memory
//! are judged by it too (rule F5).
//!
//! What a sentence says is read by `strata_text::turns::statements`; what follows from it is decided here. A summary may
//! be weaker than its turns, never stronger, and loses no protected value while there is room for it.

use super::session::{Outcome, Role, SentenceCues, Shape, Summary, SummaryBounds, SummarySentence, Verdict, View};
use crate::rule::RuleId;
use crate::text::{Certainty, Leaning, Negation, ProtectedValue, Relation, TextFeatures, letter_pairs, reverses, turns_round};
use crate::{Fault, Reason};
use std::collections::{BTreeMap, BTreeSet};

/// Flaws named in one refusal: enough to mend a summary, never a page of them.
pub(super) const FLAWS_NAMED: usize = 16;
/// Characters of a value in a refusal: it travels in a header.
const VALUE_CHARS: usize = 120;

/// One sentence with all that its language says.
#[derive(Clone, Debug)]
pub struct Statement {
    /// What it says as part of a turn.
    pub cues: SentenceCues,
    /// Certainty, negations, values.
    pub features: TextFeatures,
    /// Reports that somebody asks, wants or proposes: it then states a question without becoming an assertion.
    pub relays: bool,
}

/// The language work that the judgement needs.
#[derive(Clone, Copy)]
pub struct Language<'a> {
    /// The sentences of a text as said by a role.
    pub read: &'a dyn Fn(&str, Role) -> Vec<Statement>,
    /// Values that stand in none of the quoted texts, by normal form.
    pub missing: &'a MissingFn,
    /// Whether a text holds a value letter for letter, with nothing glued to it.
    pub holds: &'a dyn Fn(&str, &str) -> bool,
}

/// Values that stand in none of the texts.
pub type MissingFn = dyn Fn(&[ProtectedValue], &[(&str, &[ProtectedValue])]) -> Vec<ProtectedValue>;

/// What a sentence of a summary may come from.
#[derive(Clone, Copy, Debug)]
pub struct Said<'a> {
    /// Its number, by which sentences name it.
    pub number: u32,
    /// Who says it.
    pub role: Role,
    /// Its words.
    pub text: &'a str,
}

/// What is wrong with a summary. Sentences are counted from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// S4: a sentence names no turn, or one outside of the range.
    Reference {
        /// Sentence.
        sentence: usize,
        /// The turn; zero when none is named.
        seq: u32,
    },
    /// S4: more tokens than allowed, or than the turns themselves have.
    TooLong {
        /// Tokens of the summary.
        tokens: u32,
        /// Tokens allowed.
        allowed: u32,
    },
    /// S3: a protected value of a turn is in no sentence and no anchor, and there is room for it.
    Lost {
        /// Letter for letter, as its turn has it.
        value: String,
        /// Turn.
        seq: u32,
    },
    /// S3: a sentence holds a value that stands in none of its turns.
    Changed {
        /// As the sentence has it.
        value: String,
        /// Sentence.
        sentence: usize,
    },
    /// S2b: a sentence is about nothing but what was taken back.
    Retracted {
        /// Sentence.
        sentence: usize,
    },
    /// S5: a sentence says more than its turn.
    Stronger {
        /// Sentence.
        sentence: usize,
        /// Turn.
        seq: u32,
        /// How.
        how: Strengthening,
    },
}

/// How a sentence says more than its turn (rule S5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strengthening {
    /// "may be" became "is".
    Hedge,
    /// A plain statement became a confirmed one.
    Confirmation,
    /// A question became a statement.
    Question,
    /// A denial was dropped.
    Denial,
    /// Something is denied that was not.
    Denied,
    /// Who does it and whom it concerns were exchanged.
    Reversed,
    /// "At most" became "at least", "before" became "after", "must" became "may".
    TurnedRound,
}

pub(super) fn shortened(value: &str) -> String {
    value.chars().take(VALUE_CHARS).collect()
}

impl Flaw {
    /// The rule.
    #[must_use]
    pub const fn rule(&self) -> RuleId {
        RuleId(match self {
            Self::Reference { .. } | Self::TooLong { .. } => "S4",
            Self::Lost { .. } | Self::Changed { .. } => "S3",
            Self::Retracted { .. } => "S2b",
            Self::Stronger { .. } => "S5",
        })
    }

    /// Where it is, in the request's spelling.
    #[must_use]
    pub fn subject(&self) -> String {
        match self {
            Self::TooLong { .. } => "sentences".to_owned(),
            Self::Lost { seq, .. } => format!("turn {seq}"),
            Self::Reference { sentence, .. }
            | Self::Changed { sentence, .. }
            | Self::Retracted { sentence }
            | Self::Stronger { sentence, .. } => format!("sentences[{sentence}]"),
        }
    }

    /// What is wrong and what would be right, in one sentence. Names the value: it is the caller's own (rule S3). `of` is what
    /// sentences come from: "turn", "record".
    #[must_use]
    pub fn describe(&self, of: &str) -> String {
        match self {
            Self::Reference { seq: 0, .. } => format!("names no {of}; every sentence names the {of}s it comes from"),
            Self::Reference { seq, .. } => format!("names {of} {seq}, which is not in the range"),
            Self::TooLong { tokens, allowed } => format!("has {tokens} tokens; at most {allowed} are allowed"),
            Self::Lost { value, seq } => {
                let value = shortened(value);
                format!("\"{value}\" of turn {seq} is in no sentence and in no anchored turn; keep it letter for letter")
            }
            Self::Changed { value, .. } => {
                format!("\"{}\" stands in none of the {of}s that the sentence names", shortened(value))
            }
            Self::Retracted { .. } => "says only what was taken back; leave it out".to_owned(),
            Self::Stronger { seq, how, .. } => {
                let what = match how {
                    Strengthening::Hedge => "hedges, and the sentence does not",
                    Strengthening::Confirmation => "confirms nothing, and the sentence does",
                    Strengthening::Question => "only asks, and the sentence states",
                    Strengthening::Denial => "denies it, and the sentence does not",
                    Strengthening::Denied => "does not deny it, and the sentence does",
                    Strengthening::Reversed => "says it the other way round: who does it and whom it concerns",
                    Strengthening::TurnedRound => "sets the bound, the time or the duty the other way round",
                };
                format!("{of} {seq} {what}; a summary may be weaker than its {of}s, never stronger")
            }
        }
    }
}

/// The refusal of a summary: every flaw with its rule, the first value also in the metadata.
#[must_use]
pub fn refusal(flaws: &[Flaw]) -> Fault {
    let first = flaws.first().map(|flaw| format!("{}: {}", flaw.subject(), flaw.describe("turn"))).unwrap_or_default();
    let more = flaws.len().saturating_sub(1);
    let text = if more == 0 { first } else { format!("{first}; and {more} more") };
    let mut fault = Fault::new(Reason::SummaryRefused, format!("the summary is not true to its turns: {text}"));
    let value = flaws.iter().find_map(|flaw| match flaw {
        Flaw::Lost { value, .. } | Flaw::Changed { value, .. } => Some(shortened(value)),
        Flaw::Reference { .. } | Flaw::TooLong { .. } | Flaw::Retracted { .. } | Flaw::Stronger { .. } => None,
    });
    if let Some(value) = value {
        fault = fault.with("value", value);
    }
    for flaw in flaws.iter().take(FLAWS_NAMED) {
        fault = fault.rule(flaw.rule().0, flaw.subject(), flaw.describe("turn"));
    }
    fault
}

/// A sentence of a turn as a source: what was taken back is none.
struct Source<'s> {
    seq: u32,
    statement: &'s Statement,
    /// Doubt beside it counts as its own: "Not sure. It is Tuesday."
    certainty: Certainty,
}

/// Judges a summary of the turns of `views` (rules S3 to S5). `views` hold exactly these turns, `verdicts` at least theirs.
/// `anchored` are turns that are shown verbatim beside it whatever the table said of them (rule S2c).
///
/// # Errors
/// Every flaw, in the order of sentences, then of turns.
pub fn verify(
    summary: &Summary,
    views: &[View<'_>],
    verdicts: &BTreeMap<u32, Verdict>,
    anchored: &BTreeSet<u32>,
    bounds: SummaryBounds,
    language: Language<'_>,
) -> Result<(), Vec<Flaw>> {
    let mut flaws = Vec::new();
    let whole: u32 = views.iter().map(|view| view.turn.tokens).fold(0, u32::saturating_add);
    let allowed = bounds.tokens.min(whole.max(1));
    if summary.tokens() > allowed {
        flaws.push(Flaw::TooLong { tokens: summary.tokens(), allowed });
    }
    let given =
        views.iter().map(|view| (view.turn.seq, Said { number: view.turn.seq, role: view.turn.role, text: &view.turn.text }));
    flaws.extend(judge(&summary.sentences, &given.collect(), verdicts, language));
    lost(summary, views, verdicts, anchored, bounds, language, &mut flaws);
    if flaws.is_empty() { Ok(()) } else { Err(flaws) }
}

/// Judges sentences one by one: what they name is there, holds their values, and says as much as they do (rules S3 to S5).
/// `given` is what they may name, by number; `verdicts` say what of it was taken back, if anything.
#[must_use]
pub fn judge(
    sentences: &[SummarySentence],
    given: &BTreeMap<u32, Said<'_>>,
    verdicts: &BTreeMap<u32, Verdict>,
    language: Language<'_>,
) -> Vec<Flaw> {
    let mut flaws = Vec::new();
    let mut read: BTreeMap<u32, Vec<Statement>> = BTreeMap::new();
    for (at, sentence) in sentences.iter().enumerate() {
        if let Some(seq) = sentence.seqs.iter().find(|seq| !given.contains_key(seq)) {
            flaws.push(Flaw::Reference { sentence: at, seq: *seq });
            continue;
        }
        if sentence.seqs.is_empty() {
            flaws.push(Flaw::Reference { sentence: at, seq: 0 });
            continue;
        }
        for seq in &sentence.seqs {
            let said = given[seq];
            read.entry(*seq).or_insert_with(|| (language.read)(said.text, said.role));
        }
        let cited: Vec<(Said<'_>, &[Statement])> = sentence.seqs.iter().map(|seq| (given[seq], read[seq].as_slice())).collect();
        judge_sentence(at, &sentence.text, &cited, verdicts, language, &mut flaws);
    }
    flaws
}

fn sources<'s>(cited: &[(Said<'_>, &'s [Statement])], verdicts: &BTreeMap<u32, Verdict>) -> Vec<Source<'s>> {
    let mut out = Vec::new();
    for (said, statements) in cited {
        let verdict = verdicts.get(&said.number);
        // A sentence that was only corrected in part still says the rest.
        let taken = |i: usize| {
            verdict.is_some_and(|v| v.rule.0 != "S2a" && v.denied.is_empty() && v.retracted_sentences.contains(&(i as u32)))
        };
        for (i, statement) in statements.iter().enumerate().filter(|(i, _)| !taken(*i)) {
            let doubt = |at: Option<usize>| at.and_then(|at| statements.get(at)).is_some_and(|s| s.cues.hedge_only);
            let hedged = doubt(i.checked_sub(1)) || doubt(Some(i + 1));
            let certainty = if hedged { Certainty::Hedged } else { statement.features.certainty };
            out.push(Source { seq: said.number, statement, certainty });
        }
    }
    out
}

fn judge_sentence(
    at: usize,
    text: &str,
    cited: &[(Said<'_>, &[Statement])],
    verdicts: &BTreeMap<u32, Verdict>,
    language: Language<'_>,
    flaws: &mut Vec<Flaw>,
) {
    let sources = sources(cited, verdicts);
    if sources.is_empty() {
        flaws.push(Flaw::Retracted { sentence: at });
        return;
    }
    let quoted: Vec<(&str, Vec<ProtectedValue>)> = cited
        .iter()
        .map(|(said, statements)| {
            (said.text, statements.iter().flat_map(|s| s.features.values.iter().cloned()).collect::<Vec<_>>())
        })
        .collect();
    let quotes: Vec<(&str, &[ProtectedValue])> = quoted.iter().map(|(text, values)| (*text, values.as_slice())).collect();
    let claims = (language.read)(text, Role::Assistant);
    let doubts = claims.iter().any(|claim| claim.cues.hedge_only);
    for claim in &claims {
        let foreign = (language.missing)(&claim.features.values, &quotes)
            .into_iter()
            .find(|value| !cited.iter().any(|(said, _)| copied(said.text, &value.text, text, language)));
        if let Some(value) = foreign {
            flaws.push(Flaw::Changed { value: value.text, sentence: at });
        }
        if overturned(claim, cited, verdicts) {
            flaws.push(Flaw::Retracted { sentence: at });
        }
        if claim.cues.courtesy || claim.cues.answer || claim.cues.hedge_only {
            continue;
        }
        if let Some((seq, how)) = strengthened(claim, doubts, &sources) {
            flaws.push(Flaw::Stronger { sentence: at, seq, how });
        }
    }
}

/// Whether a claim brings up a value that a later turn replaced (rule S2b). It may where it denies the value itself, tells what
/// took its place, or has it from another turn that still says it.
fn overturned(claim: &Statement, cited: &[(Said<'_>, &[Statement])], verdicts: &BTreeMap<u32, Verdict>) -> bool {
    let claims = |normal: &str| claim.features.values.iter().any(|value| value.normal == normal && !denies(claim, value));
    cited.iter().any(|(said, statements)| {
        let Some(verdict) = verdicts.get(&said.number).filter(|v| v.rule.0 != "S2a" && !v.denied.is_empty()) else {
            return false;
        };
        let values = statements.iter().flat_map(|statement| &statement.features.values);
        let old: BTreeSet<&str> =
            values.filter(|value| verdict.denied.contains(&value.text)).map(|value| value.normal.as_str()).collect();
        let replaced = || {
            let by =
                cited.iter().filter(|(other, _)| other.number == verdict.retracted_by).flat_map(|(_, statements)| *statements);
            by.flat_map(|statement| &statement.features.values)
                .any(|new| !old.contains(new.normal.as_str()) && claims(&new.normal))
        };
        let stands = |normal: &str| {
            let others = cited.iter().filter(|(other, _)| other.number != said.number);
            others.flat_map(|(other, statements)| statements.iter().map(|statement| (other.number, statement))).any(
                |(seq, statement)| {
                    let still = |value: &ProtectedValue| {
                        value.normal == normal
                            && !denies(statement, value)
                            && verdicts.get(&seq).is_none_or(|verdict| !verdict.denied.contains(&value.text))
                    };
                    statement.features.values.iter().any(still)
                },
            )
        };
        old.iter().any(|normal| claims(normal) && !stands(normal)) && !replaced()
    })
}

fn denies(statement: &Statement, value: &ProtectedValue) -> bool {
    statement.cues.denied.contains(&value.text)
}

/// How a claim says more than the sentences it is about (rule S5).
fn strengthened(claim: &Statement, doubts: bool, sources: &[Source<'_>]) -> Option<(u32, Strengthening)> {
    if sources.iter().any(|source| source.statement.features.normal == claim.features.normal) {
        return None;
    }
    let about = about(claim, sources);
    let certainty = if doubts { Certainty::Hedged } else { claim.features.certainty };
    if certainty > Certainty::Hedged
        && let Some(hedged) = about.iter().find(|source| source.certainty == Certainty::Hedged)
    {
        return Some((hedged.seq, Strengthening::Hedge));
    }
    if certainty == Certainty::Strong
        && let Some(first) = about.first()
        && !about.iter().any(|source| source.certainty == Certainty::Strong || source.statement.cues.decision)
    {
        return Some((first.seq, Strengthening::Confirmation));
    }
    // Asked and answered states something.
    let answered = sources.iter().any(|source| source.statement.cues.answer);
    if !claim.cues.question
        && !claim.relays
        && !answered
        && let Some(first) = about.first()
        && about.iter().all(|source| source.statement.cues.question)
    {
        return Some((first.seq, Strengthening::Question));
    }
    denial(claim, &about).or_else(|| turned(claim, sources, &about))
}

/// Sides or bounds that a claim exchanged: sides are held against every sentence of its turns, bounds against those it is about.
fn turned(claim: &Statement, sources: &[Source<'_>], about: &[&Source<'_>]) -> Option<(u32, Strengthening)> {
    let relations: Vec<Relation> =
        sources.iter().flat_map(|source| source.statement.features.relations.iter().cloned()).collect();
    let first = about.first()?;
    if reverses(&claim.features.relations, &relations) {
        return Some((first.seq, Strengthening::Reversed));
    }
    let leanings: Vec<Leaning> = about.iter().flat_map(|source| source.statement.features.leanings.iter().copied()).collect();
    turns_round(&claim.features.leanings, &leanings).map(|_| (first.seq, Strengthening::TurnedRound))
}

/// The sentences that a claim is about: those that share most with it, content words and values; all when it shares
/// nothing, as in another language.
fn about<'a, 's>(claim: &Statement, sources: &'a [Source<'s>]) -> Vec<&'a Source<'s>> {
    let score = |source: &Source<'_>| {
        let terms = claim.cues.terms.iter().filter(|term| source.statement.cues.terms.binary_search(term).is_ok()).count();
        let same = |value: &&ProtectedValue| source.statement.features.values.iter().any(|other| other.normal == value.normal);
        terms + 2 * claim.features.values.iter().filter(same).count()
    };
    let best = sources.iter().map(score).max().unwrap_or(0);
    sources.iter().filter(|source| score(source) == best && !source.statement.cues.courtesy).collect()
}

/// Negations are compared clause by clause: each clause of the claim with the one of its turns that shares most letters
/// with it.
fn denial(claim: &Statement, about: &[&Source<'_>]) -> Option<(u32, Strengthening)> {
    type About = (u32, BTreeSet<(char, char)>, Negation);
    let known: Vec<About> = about
        .iter()
        .flat_map(|source| source.statement.features.clauses.iter().map(|c| (source.seq, letter_pairs(&c.normal), c.negation)))
        .collect();
    let averse = about.iter().any(|source| source.statement.features.aversion);
    // "From 3 pm to 4 pm", "4 pm, not 3 pm": what a correction replaces may be denied.
    let corrects =
        about.iter().any(|source| !source.statement.cues.denied.is_empty() || source.statement.cues.retraction.is_some());
    for clause in &claim.features.clauses {
        let own = letter_pairs(&clause.normal);
        let shared = |pairs: &BTreeSet<(char, char)>| pairs.intersection(&own).count();
        let best = known.iter().map(|(_, pairs, _)| shared(pairs)).max().unwrap_or(0);
        if best == 0 || 3 * best < own.len() {
            continue;
        }
        let mut closest = known.iter().filter(|(_, pairs, _)| shared(pairs) == best);
        match clause.negation {
            // Of equals the one that denies least, then most.
            // An aversion says no where the other side has none: "I am not allergic" is no "I am allergic".
            Negation::None if !claim.features.aversion || averse => {
                if closest.clone().all(|(_, _, negation)| *negation == Negation::Full) {
                    return closest.next().map(|(seq, _, _)| (*seq, Strengthening::Denial));
                }
            }
            Negation::Full if (!averse || claim.features.aversion) && !corrects => {
                let full = known.iter().any(|(_, _, negation)| *negation == Negation::Full);
                if !full {
                    return closest.next().map(|(seq, _, _)| (*seq, Strengthening::Denied));
                }
            }
            Negation::None | Negation::Partial | Negation::Full => {}
        }
    }
    None
}

/// Whether a text holds a value letter for letter as its own text does: alone, or within a longer word there, such as the 7 of
/// "7th" or one part of a telephone number.
fn copied(text: &str, value: &str, own: &str, language: Language<'_>) -> bool {
    (language.holds)(text, value) || (!(language.holds)(own, value) && text.contains(value))
}

/// Values of the summarised turns that stand nowhere and would have had room (rule S3). What a tool returned beyond its one
/// sentence, and in a CHAT what merely carries a value, is in the value index alone.
fn lost(
    summary: &Summary,
    views: &[View<'_>],
    verdicts: &BTreeMap<u32, Verdict>,
    anchored: &BTreeSet<u32>,
    bounds: SummaryBounds,
    language: Language<'_>,
    flaws: &mut Vec<Flaw>,
) {
    let is_anchored = |seq: u32| anchored.contains(&seq) || verdicts.get(&seq).is_some_and(Verdict::is_anchor);
    let shown: Vec<&str> = summary
        .sentences
        .iter()
        .map(|sentence| sentence.text.as_str())
        .chain(views.iter().filter(|view| is_anchored(view.turn.seq)).map(|view| view.turn.text.as_str()))
        .collect();
    let mut named: BTreeSet<&str> = BTreeSet::new();
    for view in views {
        let Some(verdict) = verdicts.get(&view.turn.seq) else { continue };
        let kept = verdict.outcome == Outcome::Summarised && bounds.shape != Shape::Chat && view.turn.role != Role::Tool;
        if !kept || is_anchored(view.turn.seq) {
            continue;
        }
        for (i, sentence) in view.cues.sentences.iter().enumerate() {
            if verdict.retracted_sentences.contains(&(i as u32)) || sentence.courtesy || sentence.hedge_only {
                continue;
            }
            // The cap is reached for a value when the sentence that says it does not fit any more.
            if summary.tokens().saturating_add(sentence.tokens) > bounds.tokens {
                continue;
            }
            for value in &sentence.values {
                if !verdict.denied.contains(&value.text)
                    && !sentence.denied.contains(&value.text)
                    && !shown.iter().any(|text| copied(text, &value.text, &view.turn.text, language))
                    && named.insert(value.text.as_str())
                {
                    flaws.push(Flaw::Lost { value: value.text.clone(), seq: view.turn.seq });
                }
            }
        }
    }
}
