//! What the rules of Observe see in a turn: its sentences with their language, the keys they state, and the intents of the
//! policy file (rules O1 to O7). What becomes of them is `strata_core::policy::observe`.

use crate::clean::Cleaned;
use crate::pattern::Pattern;
use crate::slots::SlotMatcher;
use crate::{features, turns};
use std::ops::Range;
use strata_core::Fault;
use strata_core::policy::observe::{ObserveRule, Observed, RuleMatch, Seen, SeenSlot, decide};
use strata_core::policy::registry::Registry;
use strata_core::policy::session::Role;

/// The intents of the policy file, compiled.
#[derive(Debug, Default)]
pub struct Intents(Vec<(ObserveRule, Vec<Pattern>)>);

impl Intents {
    /// Compiles the patterns.
    ///
    /// # Errors
    /// `INVALID_FIELD` naming the pattern that is no regular expression, or too large.
    pub fn new(rules: &[ObserveRule]) -> Result<Self, Fault> {
        let compiled = rules.iter().enumerate().map(|(n, rule)| {
            let patterns = rule.patterns.iter().enumerate().map(|(m, pattern)| {
                Pattern::foreign(pattern).map_err(|_| {
                    Fault::field(format!("policy.observe.rules[{n}].patterns[{m}]"), "is no regular expression, or too large")
                })
            });
            Ok((rule.clone(), patterns.collect::<Result<Vec<_>, Fault>>()?))
        });
        compiled.collect::<Result<_, Fault>>().map(Self)
    }

    fn find<'a>(&'a self, sentence: &'a str) -> Option<RuleMatch<'a>> {
        self.0.iter().find_map(|(rule, patterns)| {
            let found = patterns.iter().find_map(|pattern| pattern.captures(sentence))?;
            Some(RuleMatch { rule, value: found.name("value").map(|value| value.as_str().trim()) })
        })
    }
}

/// What became of one sentence.
#[derive(Clone, Debug, PartialEq)]
pub struct Sentence {
    /// Its place in the turn.
    pub span: Range<usize>,
    /// Where it goes, and why.
    pub observed: Observed,
}

/// Reads a turn, sentence by sentence, as far as it is asked for.
pub fn read<'a>(
    text: &'a str,
    role: Role,
    matcher: &'a SlotMatcher,
    registry: &'a Registry,
    intents: &'a Intents,
) -> impl Iterator<Item = Sentence> + 'a {
    turns::turn_cues(text, role).sentences.into_iter().map(move |sentence| {
        let span = sentence.start..sentence.end;
        let said = &text[span.clone()];
        let features = features(said);
        let slot = matcher.match_slot(said).map(|slot| SeenSlot {
            layer: registry.spec(slot.key.as_str()).and_then(|spec| spec.layer),
            key: slot.key.as_str().to_owned(),
            value: slot.value,
            passing: slot.passing,
            preference: slot.preference,
        });
        let cleaned = Cleaned::new(said);
        let seen = Seen {
            role,
            text: said,
            features: &features,
            cues: &sentence,
            slot: slot.as_ref(),
            rule: intents.find(&cleaned.text),
        };
        Sentence { observed: decide(&seen), span }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use strata_core::policy::observe::Target;
    use strata_core::record::Kind;

    fn read_as(text: &str, role: Role, intents: &Intents) -> Vec<(String, &'static str, Target)> {
        let registry = Registry::builtin();
        let matcher = SlotMatcher::new(&registry).expect("compiles");
        let read = read(text, role, &matcher, &registry, intents);
        read.map(|one| (text[one.span].to_owned(), one.observed.finding.rule.0, one.observed.target)).collect()
    }

    fn first(text: &str) -> (&'static str, Target) {
        let read = read_as(text, Role::User, &Intents::default());
        read.first().map_or(("none", Target::Nothing), |(_, rule, target)| (*rule, *target))
    }

    #[test]
    fn a67_a137_each_sentence_goes_where_it_belongs() {
        for (text, expected) in [
            // Small talk, questions, what is not so, what needs other words: nowhere.
            ("Thanks a lot!", ("O2", Target::Nothing)),
            ("好的", ("O2", Target::Nothing)),
            ("👍", ("O2", Target::Nothing)),
            ("What is my cost centre?", ("O2", Target::Nothing)),
            ("你记得我住在哪里吗？", ("O2", Target::Nothing)),
            ("Maybe I will move to Rome.", ("O2", Target::Nothing)),
            ("我可能会搬到上海。", ("O2", Target::Nothing)),
            // Registered keys: long-term.
            ("I live in Hangzhou.", ("O5", Target::Longterm)),
            ("我住在杭州。", ("O5", Target::Longterm)),
            ("我\u{200b}住在杭州。", ("O5", Target::Longterm)),
            ("Ｉ ｌｉｖｅ ｉｎ Ｈａｎｇｚｈｏｕ.", ("O5", Target::Longterm)),
            // Binding and durable statements without a key: long-term.
            ("From now on, always answer with the table first.", ("O6", Target::Longterm)),
            ("以后都先给我看表格。", ("O6", Target::Longterm)),
            // What nothing marks stays a turn.
            ("The weather is nice in this town.", ("O7", Target::Nothing)),
            ("杭州的天气不错。", ("O7", Target::Nothing)),
        ] {
            assert_eq!(first(text), expected, "{text}");
        }
    }

    #[test]
    fn a60_only_the_users_words_are_observed() {
        for role in [Role::Assistant, Role::Tool, Role::System] {
            let read = read_as("I live in Hangzhou.", role, &Intents::default());
            assert!(read.iter().all(|(_, rule, target)| (*rule, *target) == ("O1", Target::Nothing)), "{role:?}");
        }
    }

    #[test]
    fn o3_rules_of_the_policy_file_come_first_in_both_languages() {
        let rule = ObserveRule {
            intent: "parcel".into(),
            patterns: vec![r"parcel goes to (?<value>[\w ]+)".into(), "包裹寄到(?<value>[^。]+)".into()],
            target: Target::SessionFact,
            kind: Kind::Fact,
            key: "order.address".into(),
        };
        let intents = Intents::new(std::slice::from_ref(&rule)).expect("compiles");
        let registry = Registry::builtin();
        let matcher = SlotMatcher::new(&registry).expect("compiles");
        for (text, value) in [("The PARCEL goes to the back door.", "the back door"), ("包裹寄到后门。", "后门")] {
            let found = read(text, Role::User, &matcher, &registry, &intents).next().expect("a sentence").observed;
            assert_eq!(
                (found.target, found.key.as_str(), found.value.as_str(), found.finding.rule.0),
                (Target::SessionFact, "order.address", value, "O3"),
                "{text}"
            );
        }
        let bad = ObserveRule { patterns: vec!["(".into()], ..rule };
        assert_eq!(Intents::new(&[bad]).expect_err("refused").fields[0].field, "policy.observe.rules[0].patterns[0]");
    }
}
