//! Rule ids. A verdict is never a bool: it names the rule of the policy that decided.

use serde::Serialize;
use std::fmt;

/// Id of a rule, such as `G3`, `K1`, `S2d`: the anchors of `docs/rules.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct RuleId(pub &'static str);

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// What a rule decided about one thing, and why in one sentence (never with the content it judged).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The rule.
    pub rule: RuleId,
    /// Short outcome in upper case, such as `REFUSED`, `CANDIDATE`, `SUPERSEDED`, `OK`.
    pub outcome: &'static str,
    /// One sentence for people.
    pub because: String,
}

impl Finding {
    /// A finding.
    pub fn new(rule: &'static str, outcome: &'static str, because: impl Into<String>) -> Self {
        Self { rule: RuleId(rule), outcome, because: because.into() }
    }
}
