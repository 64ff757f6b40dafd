//! What was decided, kept for Explain (acceptance A145, A201): one entry per call, with the steps of the four places where a
//! memory can go wrong, writing, recall, assembly, generation. An entry holds ids, keys, numbers and rules, never the content
//! they are about.

use crate::limits::{DECISION_STEPS, DECISION_TEXT_CHARS};
use crate::{Reason, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

crate::record::vocabulary! {
    /// Which question a step answers.
    Stage {
        /// What the gate and the conflict rules made of a write.
        Gate = "GATE",
        /// Who owns a key, by a claim, a mark, a seal.
        Ownership = "OWNERSHIP",
        /// What a mode or a layer's state made of the call.
        Mode = "MODE",
        /// What a recall found, with its score.
        Candidate = "CANDIDATE",
        /// What was put into a context.
        Injected = "INJECTED",
        /// What was left out of a context, and why.
        LeftOut = "LEFT_OUT",
        /// What was reported as used.
        Cited = "CITED",
        /// What Observe made of words or of a command.
        Observed = "OBSERVED",
        /// What was asked of the user.
        Asked = "ASKED",
    }
}

/// One step: what one rule did with one thing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Which question it answers.
    pub stage: Stage,
    /// What it is about: a memory id, a key, `turn:7`, a promotion id. Empty: the call as a whole.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// Id of the rule.
    pub rule: String,
    /// Short outcome in upper case.
    pub outcome: String,
    /// One sentence for people, without content.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub because: String,
    /// Score, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// Parts of the score, ranks, tokens.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub factors: BTreeMap<String, f64>,
}

impl Step {
    /// A step without a score. Texts longer than [`DECISION_TEXT_CHARS`] are cut.
    #[must_use]
    pub fn new(stage: Stage, subject: &str, rule: &str, outcome: &str, because: &str) -> Self {
        Self {
            stage,
            subject: cut(subject),
            rule: cut(rule),
            outcome: cut(outcome),
            because: cut(because),
            score: None,
            factors: BTreeMap::new(),
        }
    }

    /// With a score; one that is no number is none.
    #[must_use]
    pub fn scored(mut self, score: f64) -> Self {
        self.score = score.is_finite().then_some(score);
        self
    }

    /// With a part of the score; what is no number is left out.
    #[must_use]
    pub fn factor(mut self, name: &str, value: f64) -> Self {
        if value.is_finite() {
            self.factors.insert(cut(name), value);
        }
        self
    }
}

fn cut(text: &str) -> String {
    text.chars().take(DECISION_TEXT_CHARS).collect()
}

/// Everything that was decided in one call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// When the call was answered.
    pub time: Timestamp,
    /// Trace of the call: the W3C trace id when the caller sends one, else its `x-request-id`.
    pub trace_id: String,
    /// The call's `x-request-id`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request_id: String,
    /// Method, without its package.
    pub method: String,
    /// Who called.
    pub caller: String,
    /// Agent of the call; empty for the user as a whole.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub agent: String,
    /// `OK`, or the reason of the failure.
    pub outcome: String,
    /// Recall that it is about: an assembly or a recall, and later the report of what was used of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub recall_id: String,
    /// Steps in the order they were taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// Steps beyond [`DECISION_STEPS`].
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
const fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl Decision {
    /// Adds a step, or counts it when there are [`DECISION_STEPS`].
    pub fn push(&mut self, step: Step) {
        if self.steps.len() < DECISION_STEPS {
            self.steps.push(step);
        } else {
            self.left_out = self.left_out.saturating_add(1);
        }
    }

    /// Names under which it is found.
    #[must_use]
    pub fn is_named(&self, name: &str) -> bool {
        !name.is_empty() && [&self.trace_id, &self.request_id, &self.recall_id].into_iter().any(|own| own == name)
    }
}

/// Whether the words of a failure may be kept: those of a refused summary hold the value it is about (rule S3).
#[must_use]
pub const fn words_are_free_of_content(reason: Reason) -> bool {
    !matches!(reason, Reason::SummaryRefused)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision() -> Decision {
        Decision {
            time: Timestamp(1),
            trace_id: "t".into(),
            request_id: "r".into(),
            method: "RouterService/AssembleContext".into(),
            caller: "key:ci".into(),
            agent: String::new(),
            outcome: "OK".into(),
            recall_id: String::new(),
            steps: Vec::new(),
            left_out: 0,
        }
    }

    #[test]
    fn a_decision_is_bounded_and_says_what_it_left_out() {
        let mut decision = decision();
        for _ in 0..DECISION_STEPS + 3 {
            decision.push(Step::new(Stage::Gate, "id", "G3", "REFUSED", &"辣".repeat(DECISION_TEXT_CHARS + 9)));
        }
        assert_eq!((decision.steps.len(), decision.left_out), (DECISION_STEPS, 3));
        assert!(decision.steps.iter().all(|step| step.because.chars().count() == DECISION_TEXT_CHARS));
    }

    #[test]
    fn it_is_found_by_trace_request_and_recall_but_by_no_empty_name() {
        let decision = decision();
        assert!(decision.is_named("t") && decision.is_named("r"));
        assert!(!decision.is_named("") && !decision.is_named("x"));
    }

    #[test]
    fn what_is_no_number_is_no_score() {
        let step = Step::new(Stage::Candidate, "id", "R7", "FOUND", "").scored(f64::NAN).factor("fused", f64::INFINITY);
        assert_eq!((step.score, step.factors.len()), (None, 0));
        let step = step.scored(0.5).factor("fused", 0.25);
        assert_eq!((step.score, step.factors["fused"]), (Some(0.5), 0.25));
    }
}
