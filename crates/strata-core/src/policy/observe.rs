//! What becomes of what an agent sees (rules O1 to O8): for each sentence of a turn, or each command of the agent, whether it
//! is a fact of the session, a proposal to long-term memory, or nothing. It decides where something goes, never whether it may
//! stay there: that is the gate's, like everyone's.

use super::authz::Layer;
use super::session::{Role, SentenceCues};
use crate::limits::{CONTENT_CHARS, NAME_CHARS, OBSERVE_COMMANDS, OBSERVE_PATTERNS, OBSERVE_RULES, QUOTE_CHARS};
use crate::record::Kind;
use crate::rule::Finding;
use crate::text::{Certainty, TextFeatures};
use crate::{FactKey, Fault};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

crate::record::vocabulary! {
    /// Where something goes.
    Target {
        /// A fact of the session.
        SessionFact = "SESSION_FACT",
        /// A proposal to long-term memory.
        Longterm = "LONGTERM",
        /// Nowhere: the turn itself is all that is kept.
        Nothing = "NOTHING",
    }
}

/// Settings of Observe: section `policy.observe`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ObserveSettings {
    /// Decide and log, store nothing (acceptance A65).
    pub log_only: bool,
    /// Rules of the deployment, tried in order before the built-in ones; the first that matches a sentence decides.
    pub rules: Vec<ObserveRule>,
}

/// A rule of the policy file: an intent and how it is worded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObserveRule {
    /// Name of the intent, shown with its decisions.
    pub intent: String,
    /// Regular expressions over a sentence, English and Chinese alike, case-insensitive. A group `value` is the value.
    pub patterns: Vec<String>,
    /// Where a sentence goes that matches.
    pub target: Target,
    /// Kind of the proposal.
    #[serde(default = "fact")]
    pub kind: Kind,
    /// Key; required for facts of the session.
    #[serde(default)]
    pub key: String,
}

const fn fact() -> Kind {
    Kind::Fact
}

impl ObserveSettings {
    /// Checks the section; whether a pattern is a regular expression is checked where it is compiled.
    ///
    /// # Errors
    /// `INVALID_FIELD` naming the setting.
    pub fn validate(&self) -> Result<(), Fault> {
        let field = |n: usize, name: &str, what: &str| Fault::field(format!("policy.observe.rules[{n}].{name}"), what.to_owned());
        if self.rules.len() > OBSERVE_RULES {
            return Err(Fault::field("policy.observe.rules", format!("has more than {OBSERVE_RULES} rules")));
        }
        for (n, rule) in self.rules.iter().enumerate() {
            if rule.intent.trim().is_empty() || rule.intent.chars().count() > NAME_CHARS {
                return Err(field(n, "intent", "is a short name"));
            }
            if rule.patterns.is_empty() || rule.patterns.len() > OBSERVE_PATTERNS {
                return Err(field(n, "patterns", "has 1 to 32 patterns"));
            }
            if !rule.key.is_empty() && FactKey::new(rule.key.as_str()).is_err() {
                return Err(field(n, "key", "is no key"));
            }
            if rule.key.is_empty() && rule.target == Target::SessionFact {
                return Err(field(n, "key", "is required: a fact of the session has one"));
            }
            if !may_be_observed(rule.kind) {
                return Err(field(n, "kind", "is none that a user states"));
            }
        }
        Ok(())
    }
}

/// Kinds that words of a user, or an agent about them, can be.
const fn may_be_observed(kind: Kind) -> bool {
    matches!(kind, Kind::Fact | Kind::Preference | Kind::Constraint | Kind::Goal | Kind::Event | Kind::Experience)
}

/// A key that a sentence states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenSlot {
    /// The key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// Said for now only.
    pub passing: bool,
    /// The key is registered as a preference.
    pub preference: bool,
    /// Layer that the registry fixes.
    pub layer: Option<Layer>,
}

/// What a rule of the policy file found in a sentence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RuleMatch<'a> {
    /// The rule.
    pub rule: &'a ObserveRule,
    /// Its group `value`.
    pub value: Option<&'a str>,
}

/// A sentence with all that is known of it.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Who said it.
    pub role: Role,
    /// The sentence.
    pub text: &'a str,
    /// Its language.
    pub features: &'a TextFeatures,
    /// Its cues as part of a turn.
    pub cues: &'a SentenceCues,
    /// The first key it states.
    pub slot: Option<&'a SeenSlot>,
    /// The rule of the policy file that matches.
    pub rule: Option<RuleMatch<'a>>,
}

/// What became of a sentence.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// Where it goes.
    pub target: Target,
    /// Kind of a proposal.
    pub kind: Kind,
    /// Key; empty when long-term memory has to find it.
    pub key: String,
    /// Value; empty when there is none apart from the words.
    pub value: String,
    /// The rule that decided.
    pub finding: Finding,
}

/// Decides about one sentence.
///
/// | what | goes | rule |
/// |---|---|---|
/// | not the user's words | nowhere | O1 |
/// | small talk, a question, words that need others, play, a condition, words of others | nowhere | O2 |
/// | a rule of the policy file matches | where the rule says | O3 |
/// | a key of the board or of the session, or a passing value of a key that is no preference | session, or nowhere | O4 |
/// | any other registered key | long-term | O5 |
/// | a durable, strong or binding statement of the user, or one of the user that carries a value | long-term | O6 |
/// | anything else | nowhere | O7 |
#[must_use]
pub fn decide(seen: &Seen<'_>) -> Observed {
    let Seen { features, cues, .. } = seen;
    let of = |target, kind, key: &str, value: &str, rule: &'static str, because: &str| Observed {
        target,
        kind,
        key: key.to_owned(),
        value: value.to_owned(),
        finding: Finding::new(rule, target.name(), because),
    };
    let nothing = |rule, because: &str| of(Target::Nothing, Kind::Fact, "", "", rule, because);
    if seen.role != Role::User {
        return nothing("O1", "only what the user says is observed");
    }
    let idle = if features.noise || cues.courtesy || cues.answer {
        Some("small talk stays in the session")
    } else if features.question || cues.question {
        Some("a question states nothing")
    } else if features.unreal || features.reported || features.certainty == Certainty::Hedged {
        Some("it is not said to be so")
    } else if features.hidden {
        Some("hidden signs")
    } else {
        None
    };
    if let Some(why) = idle {
        return nothing("O2", why);
    }
    if let Some(RuleMatch { rule, value }) = seen.rule {
        return of(rule.target, rule.kind, &rule.key, value.unwrap_or_default(), "O3", &rule.intent);
    }
    if let Some(slot) = seen.slot {
        let session = slot.layer == Some(Layer::Session) || (slot.passing && !slot.preference && slot.layer.is_none());
        if session {
            return of(Target::SessionFact, Kind::Fact, &slot.key, &slot.value, "O4", "holds for this session");
        }
        if slot.layer == Some(Layer::Working) {
            return nothing("O4", "the key belongs to the task's board");
        }
        let kind = if slot.preference { Kind::Preference } else { Kind::Fact };
        return of(Target::Longterm, kind, &slot.key, &slot.value, "O5", "states a registered key");
    }
    if features.deictic {
        return nothing("O2", "cannot be read alone");
    }
    if features.passing {
        return nothing("O7", "holds for now, and no key says what");
    }
    if cues.constraint || (features.strong && features.negation != crate::text::Negation::None) {
        return of(Target::Longterm, Kind::Constraint, "", "", "O6", "binds the agent");
    }
    if features.durable {
        return of(Target::Longterm, Kind::Preference, "", "", "O6", "is to hold from now on");
    }
    if features.of_user && !features.of_kin && !features.values.is_empty() && !cues.request && !cues.promise {
        return of(Target::Longterm, Kind::Fact, "", "", "O6", "the user states a value");
    }
    nothing("O7", "nothing says that it will matter later")
}

crate::record::vocabulary! {
    /// What a command does (acceptance A64).
    Op {
        /// A new memory.
        Create = "CREATE",
        /// Other words for a memory that is there.
        Update = "UPDATE",
        /// Out of every answer; it can be restored.
        Delete = "DELETE",
    }
}

/// What a command is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Subject {
    /// A record of a kind.
    Record(Kind),
    /// An entity of a type.
    Entity(String),
}

/// A command of an agent or of an extractor, checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// What it does.
    pub op: Op,
    /// What it is about; absent for a deletion.
    pub subject: Option<Subject>,
    /// The memory in one sentence; of an entity its name.
    pub content: String,
    /// Key; may be empty.
    pub key: String,
    /// Value of the key; may be empty.
    pub value: String,
    /// 1 to 5; `None` is the default.
    pub importance: Option<u8>,
    /// Labels; of an entity its properties.
    pub metadata: BTreeMap<String, String>,
    /// Memory id or key that an UPDATE or DELETE is about.
    pub target: String,
    /// The user's literal words.
    pub quote: String,
}

/// A command as it comes, from the wire or from a model's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawCommand {
    /// `create`, `update`, `delete`, in any case.
    pub op: String,
    /// `FACT`, `PREFERENCE` ..., or `ENTITY:person`.
    #[serde(rename = "type")]
    pub subject: String,
    /// Content.
    pub content: String,
    /// Key.
    pub key: String,
    /// Value.
    pub value: String,
    /// Importance; 0 is the default.
    pub importance: i64,
    /// Labels.
    pub metadata: BTreeMap<String, String>,
    /// Target.
    pub target: String,
    /// Quote.
    pub quote: String,
}

/// The commands, each with its schema checked (acceptance A64); one that is wrong refuses them all.
///
/// # Errors
/// `INVALID_FIELD` naming `commands[n].<field>`.
pub fn checked(raw: Vec<RawCommand>) -> Result<Vec<Command>, Fault> {
    if raw.len() > OBSERVE_COMMANDS {
        return Err(Fault::limit("commands", OBSERVE_COMMANDS, "commands"));
    }
    raw.into_iter().enumerate().map(|(n, raw)| check(n, raw)).collect()
}

fn check(n: usize, raw: RawCommand) -> Result<Command, Fault> {
    let wrong = |field: &str, what: &str| Fault::field(format!("commands[{n}].{field}"), what.to_owned());
    let op = Op::from_name(&raw.op.to_ascii_uppercase()).ok_or_else(|| wrong("op", "is create, update or delete"))?;
    let blank = |text: &str| text.chars().all(|c| c.is_whitespace() || crate::id::is_hidden(c));
    for (field, text, most) in [("content", &raw.content, CONTENT_CHARS), ("quote", &raw.quote, QUOTE_CHARS)] {
        if text.chars().count() > most {
            return Err(wrong(field, &format!("is longer than {most} characters")));
        }
        if text.contains('\0') {
            return Err(wrong(field, "holds a NUL character"));
        }
    }
    if !raw.key.is_empty() && FactKey::new(raw.key.as_str()).is_err() {
        return Err(wrong("key", "is no key"));
    }
    let importance = match raw.importance {
        0 => None,
        1..=5 => u8::try_from(raw.importance).ok(),
        _ => return Err(wrong("importance", "lies between 1 and 5")),
    };
    let subject = match raw.subject.as_str() {
        "" if op != Op::Create => None,
        text => {
            let upper = text.to_ascii_uppercase();
            let entity = upper.starts_with("ENTITY:").then(|| text["ENTITY:".len()..].trim().to_lowercase());
            match (entity, Kind::from_name(&upper)) {
                (Some(entity), _) if !entity.is_empty() => Some(Subject::Entity(entity)),
                (None, Some(kind)) if may_be_observed(kind) => Some(Subject::Record(kind)),
                _ => {
                    let kinds = "is FACT, PREFERENCE, CONSTRAINT, GOAL, EVENT, EXPERIENCE or ENTITY:type";
                    return Err(wrong("type", kinds));
                }
            }
        }
    };
    match op {
        Op::Create | Op::Update if blank(&raw.content) => return Err(wrong("content", "is required")),
        Op::Create if !raw.target.is_empty() => return Err(wrong("target", "is for update and delete")),
        Op::Update | Op::Delete if blank(&raw.target) => return Err(wrong("target", "is required: a memory id or a key")),
        Op::Delete if !raw.content.is_empty() => return Err(wrong("content", "is not for delete")),
        Op::Delete if blank(&raw.quote) => return Err(wrong("quote", "is required: only the user's own words delete")),
        Op::Create | Op::Update | Op::Delete => {}
    }
    Ok(Command {
        op,
        subject,
        content: raw.content,
        key: raw.key,
        value: raw.value,
        importance,
        metadata: raw.metadata,
        target: raw.target,
        quote: raw.quote,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(op: &str) -> RawCommand {
        RawCommand { op: op.into(), subject: "FACT".into(), content: "The user lives in Rome.".into(), ..RawCommand::default() }
    }

    fn refused(raw: RawCommand) -> String {
        checked(vec![raw]).expect_err("refused").fields[0].field.clone()
    }

    #[test]
    fn a64_a_command_is_checked_against_its_schema() {
        let good = checked(vec![raw("create"), RawCommand { target: "profile.city".into(), ..raw("Update") }]).expect("good");
        assert_eq!((good[0].op, &good[0].subject), (Op::Create, &Some(Subject::Record(Kind::Fact))));
        assert_eq!(good[1].op, Op::Update);
        let person = RawCommand { subject: "entity:Person".into(), content: "王芳".into(), ..raw("create") };
        assert_eq!(checked(vec![person]).expect("good")[0].subject, Some(Subject::Entity("person".into())));
        let delete =
            RawCommand { content: String::new(), target: "m".into(), quote: "忘掉我的地址".into(), ..raw("delete") };
        assert_eq!(checked(vec![delete.clone()]).expect("good")[0].op, Op::Delete);

        assert_eq!(refused(raw("merge")), "commands[0].op");
        assert_eq!(refused(raw("")), "commands[0].op");
        assert_eq!(refused(RawCommand { subject: "SUMMARY".into(), ..raw("create") }), "commands[0].type");
        assert_eq!(refused(RawCommand { subject: "ENTITY:".into(), ..raw("create") }), "commands[0].type");
        assert_eq!(refused(RawCommand { subject: String::new(), ..raw("create") }), "commands[0].type");
        assert_eq!(refused(RawCommand { content: " \u{200b}".into(), ..raw("create") }), "commands[0].content");
        assert_eq!(refused(RawCommand { content: "x".repeat(CONTENT_CHARS + 1), ..raw("create") }), "commands[0].content");
        assert_eq!(refused(RawCommand { importance: 6, ..raw("create") }), "commands[0].importance");
        assert_eq!(refused(RawCommand { key: "no key".into(), ..raw("create") }), "commands[0].key");
        assert_eq!(refused(RawCommand { target: "m".into(), ..raw("create") }), "commands[0].target");
        assert_eq!(refused(raw("update")), "commands[0].target");
        assert_eq!(refused(RawCommand { quote: String::new(), ..delete.clone() }), "commands[0].quote");
        assert_eq!(refused(RawCommand { content: "x".into(), ..delete }), "commands[0].content");
        assert!(checked(vec![raw("create"); OBSERVE_COMMANDS + 1]).is_err());
    }

    #[test]
    fn settings_are_checked() {
        let rule = ObserveRule {
            intent: "shipping".into(),
            patterns: vec!["ship to (?<value>.+)".into()],
            target: Target::SessionFact,
            kind: Kind::Fact,
            key: "order.address".into(),
        };
        let field = |rule: ObserveRule| {
            let settings = ObserveSettings { log_only: false, rules: vec![rule] };
            settings.validate().expect_err("refused").fields[0].field.clone()
        };
        ObserveSettings { log_only: true, rules: vec![rule.clone()] }.validate().expect("good");
        assert_eq!(field(ObserveRule { intent: " ".into(), ..rule.clone() }), "policy.observe.rules[0].intent");
        assert_eq!(field(ObserveRule { patterns: vec![], ..rule.clone() }), "policy.observe.rules[0].patterns");
        assert_eq!(field(ObserveRule { key: String::new(), ..rule.clone() }), "policy.observe.rules[0].key");
        assert_eq!(field(ObserveRule { kind: Kind::Summary, ..rule }), "policy.observe.rules[0].kind");
    }
}
