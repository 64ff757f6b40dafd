//! What of an ending session may be kept as an episode (rule S14; model.md "episodes"): of its summary the sentences that
//! pass every refusing rule, of its turns what user and agent said, with secrets and contact data masked (rules G3, G4).

use super::{Attestation, Door, GateSettings, QuoteState, Standing, Submission, judge};
use crate::Timestamp;
use crate::episode::EpisodeSentence;
use crate::part::Provenance;
use crate::policy::authz;
use crate::policy::session::{Role, Turn};
use crate::record::{Kind, Source, Trigger};
use crate::rule::{Finding, RuleId};
use crate::text::{SensitiveSpan, TextFeatures, is_masked, mask};
use std::collections::{BTreeMap, BTreeSet};

/// Turn numbers that one finding names at most.
const NAMED_TURNS: usize = 20;

/// A sentence of the summary, as it is handed in.
#[derive(Clone, Debug)]
pub struct SentenceSubmission {
    /// The sentence.
    pub sentence: EpisodeSentence,
    /// Words of its turns that it is held against.
    pub quote: String,
    /// All of its turns are the user's.
    pub by_user: bool,
    /// Features of the sentence.
    pub content_features: TextFeatures,
    /// Features of the quote.
    pub quote_features: TextFeatures,
}

/// A turn, as it is handed in.
#[derive(Clone, Debug)]
pub struct TurnSubmission {
    /// The turn.
    pub turn: Turn,
    /// Sensitive spans of its text.
    pub text: Vec<SensitiveSpan>,
    /// Sensitive spans of its speaker's name.
    pub speaker: Vec<SensitiveSpan>,
    /// Sensitive spans of the caller's own id of it.
    pub external_id: Vec<SensitiveSpan>,
}

/// What may be kept of a session. Only [`episode`] makes one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatedEpisode {
    summary: Vec<EpisodeSentence>,
    turns: Vec<Turn>,
    findings: Vec<Finding>,
}

impl GatedEpisode {
    /// Sentences that passed.
    #[must_use]
    pub fn summary(&self) -> &[EpisodeSentence] {
        &self.summary
    }
    /// Turns of user and agent, masked.
    #[must_use]
    pub fn turns(&self) -> &[Turn] {
        &self.turns
    }
    /// What was masked or left out, one finding a rule and reason, with the numbers of the turns, never their words.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }
}

/// Findings by rule, outcome and reason, with the turns they are about.
#[derive(Default)]
struct Gathered(BTreeMap<(RuleId, &'static str, String), BTreeSet<u32>>);

impl Gathered {
    fn note(&mut self, finding: Finding, seqs: &[u32]) {
        self.0.entry((finding.rule, finding.outcome, finding.because)).or_default().extend(seqs);
    }

    fn findings(self) -> Vec<Finding> {
        let one = |((rule, outcome, because), seqs): ((RuleId, &'static str, String), BTreeSet<u32>)| {
            let more = if seqs.len() > NAMED_TURNS { " and more" } else { "" };
            let named: Vec<String> = seqs.iter().take(NAMED_TURNS).map(u32::to_string).collect();
            Finding { rule, outcome, because: format!("turn {}{more}: {because}", named.join(", ")) }
        };
        self.0.into_iter().map(one).collect()
    }
}

/// Judges a session that ends. A sentence that is not wholly the user's words, or that a rule refuses or would ask consent
/// for, is left out; a turn of a tool or an instruction is left out; sensitive spans of the other turns are masked.
#[must_use]
pub fn episode(
    settings: &GateSettings,
    sentences: Vec<SentenceSubmission>,
    turns: Vec<TurnSubmission>,
    now: Timestamp,
) -> GatedEpisode {
    let mut gathered = Gathered::default();
    let mut out = GatedEpisode::default();
    for given in sentences {
        let objections = objections(settings, &given, now);
        if objections.is_empty() {
            out.summary.push(given.sentence);
            continue;
        }
        for finding in objections {
            gathered.note(Finding { outcome: "LEFT_OUT", ..finding }, &given.sentence.seqs);
        }
    }
    for given in turns {
        let mut turn = given.turn;
        if !matches!(turn.role, Role::User | Role::Assistant) || turn.text.trim().is_empty() {
            continue;
        }
        if [&given.text, &given.speaker, &given.external_id].into_iter().flatten().any(|span| is_masked(span.kind)) {
            gathered.note(Finding::new("S14", "MASKED", "holds a secret or contact data"), &[turn.seq]);
        }
        turn.text = mask(&turn.text, &given.text);
        turn.speaker = mask(&turn.speaker, &given.speaker);
        turn.external_id = mask(&turn.external_id, &given.external_id);
        out.turns.push(turn);
    }
    out.findings = gathered.findings();
    out
}

/// Every rule that keeps a sentence out.
fn objections(settings: &GateSettings, given: &SentenceSubmission, now: Timestamp) -> Vec<Finding> {
    if !given.by_user {
        return vec![Finding::new("G2", "LEFT_OUT", "an episode is told in the user's words")];
    }
    let provenance = Provenance {
        source: Source::UserStatement,
        source_ref: None,
        source_quote: given.quote.clone(),
        trigger: Some(Trigger::SessionEnd),
        consent: None,
    };
    let submission = Submission {
        statement: provenance.statement(Kind::Event, given.sentence.text.clone()),
        content: &given.content_features,
        quote: &given.quote_features,
        value: None,
        others: &[],
        lines: &[],
        resolved_dates: &[],
        slot: None,
        attestation: Attestation { quote: QuoteState::Verified, turn_time: None, user_turn: true, explicit_order: false },
        roles: &BTreeSet::from([authz::Role::MemoryWriter]),
        door: Door::Episode,
        consented: false,
        now,
    };
    match judge(settings, submission) {
        Err(refusal) => refusal.findings.into_iter().filter(|finding| finding.outcome == "REFUSED").collect(),
        // Nobody is there to be asked when a session ends.
        Ok(gated) if gated.standing() == Standing::NeedsConsent => {
            gated.findings().iter().filter(|finding| finding.outcome == "NEEDS_CONSENT").cloned().collect()
        }
        Ok(_) => Vec::new(),
    }
}
