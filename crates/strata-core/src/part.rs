//! What stands beside records: entities with their names and relations, and skills. They share owner, gate, deletion and
//! export with records (model.md). What of them goes through the gate is a [`Statement`]; what is stored is read back from
//! the [`Gated`] one, so that nothing enters that was not judged.

use crate::policy::gate::{Gated, Statement};
use crate::record::{Kind, Source, SourceRef, Status, Trigger, Value};
use crate::{FactKey, Fault, MemoryId, Owner, Timestamp, limits};
use std::collections::BTreeMap;

/// A thing of the user's world. Ids of parts are minted like those of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entity {
    /// Id.
    pub entity_id: MemoryId,
    /// Whose.
    pub owner: Owner,
    /// Type, such as `person`.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Other names, sorted.
    pub aliases: Vec<String>,
    /// Records whose key begins with it hold of the entity.
    pub prefix: FactKey,
    /// ACTIVE or CANDIDATE.
    pub status: Status,
    /// Where it comes from.
    pub origin: Origin,
    /// When it was named first.
    pub create_time: Timestamp,
    /// Last change.
    pub update_time: Timestamp,
    /// Optimistic concurrency.
    pub version: u64,
}

/// A relation between two entities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relation {
    /// From.
    pub from: MemoryId,
    /// Name.
    pub relation: String,
    /// To.
    pub to: MemoryId,
    /// ACTIVE or CANDIDATE.
    pub status: Status,
    /// Where it comes from.
    pub origin: Origin,
    /// When it was said first.
    pub create_time: Timestamp,
}

/// A version of a procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skill {
    /// Id of the version.
    pub skill_id: MemoryId,
    /// Whose.
    pub owner: Owner,
    /// Name: what its versions share.
    pub name: String,
    /// From 1.
    pub version: u32,
    /// When it applies.
    pub triggers: Vec<String>,
    /// What to do, in order.
    pub steps: Vec<String>,
    /// ACTIVE, CANDIDATE or SUPERSEDED.
    pub status: Status,
    /// Where it comes from.
    pub origin: Origin,
    /// Instruction-like words of the user: rendered as quoted data (rule G8).
    pub instruction: bool,
    /// When it was taught.
    pub create_time: Timestamp,
}

/// Where a part comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Source.
    pub source: Source,
    /// Reference.
    pub source_ref: Option<SourceRef>,
    /// The literal words.
    pub quote: String,
    /// The router found them in that user turn.
    pub quote_verified: bool,
}

impl Origin {
    /// Of a judged statement.
    #[must_use]
    pub fn of(gated: &Gated) -> Self {
        let s = gated.statement();
        Self {
            source: s.source,
            source_ref: s.source_ref.clone(),
            quote: s.source_quote.clone(),
            quote_verified: gated.quote_verified(),
        }
    }
}

/// What a caller says about where a part comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// Source.
    pub source: Source,
    /// Reference.
    pub source_ref: Option<SourceRef>,
    /// The literal words.
    pub source_quote: String,
    /// Why the write happens.
    pub trigger: Option<Trigger>,
    /// The challenge of a NEEDS_CONSENT answer.
    pub consent: Option<String>,
}

impl Provenance {
    /// A statement of these words and nothing else.
    pub(crate) fn statement(self, kind: Kind, content: String) -> Statement {
        Statement {
            kind,
            key: None,
            value: None,
            content,
            source: self.source,
            source_ref: self.source_ref,
            source_quote: self.source_quote,
            trigger: self.trigger,
            importance: None,
            confidence: None,
            tier: None,
            protected: false,
            valid_from: None,
            valid_to: None,
            expire_time: None,
            topic: None,
            tags: Vec::new(),
            metadata: BTreeMap::new(),
            vector: Vec::new(),
            consent: self.consent,
        }
    }
}

/// An entity as a caller gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityDraft {
    /// Type.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Other names, sorted, without the name itself.
    pub aliases: Vec<String>,
}

impl EntityDraft {
    /// The statement that stands for it: every name is content, so that every refusing rule sees it.
    #[must_use]
    pub fn statement(self, provenance: Provenance) -> Statement {
        let content = std::iter::once(&self.name).chain(&self.aliases).cloned().collect::<Vec<_>>().join("\n");
        Statement {
            value: Some(Value::Text(self.name)),
            topic: Some(self.kind),
            tags: self.aliases,
            ..provenance.statement(Kind::Fact, content)
        }
    }

    /// Back from the judged statement; none when it stands for something else.
    #[must_use]
    pub fn of(gated: &Gated) -> Option<Self> {
        let s = gated.statement();
        match (&s.value, &s.topic) {
            (Some(Value::Text(name)), Some(kind)) => {
                Some(Self { kind: kind.clone(), name: name.clone(), aliases: s.tags.clone() })
            }
            _ => None,
        }
    }
}

/// A relation as a caller gives it, with the names of both ends: what is judged is the sentence they make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelationDraft {
    /// Name of the first entity.
    pub from: String,
    /// Name of the relation.
    pub relation: String,
    /// Name of the other entity.
    pub to: String,
}

impl RelationDraft {
    /// The statement that stands for it.
    #[must_use]
    pub fn statement(self, provenance: Provenance) -> Statement {
        let words: String = self.relation.chars().map(|c| if matches!(c, '_' | '-' | '.') { ' ' } else { c }).collect();
        let content = format!("{} {words} {}", self.from, self.to);
        Statement { topic: Some(self.relation), ..provenance.statement(Kind::Fact, content) }
    }

    /// Name of the relation of the judged statement; none when it stands for something else.
    #[must_use]
    pub fn relation_of(gated: &Gated) -> Option<&str> {
        let s = gated.statement();
        if s.value.is_none() { s.topic.as_deref() } else { None }
    }
}

/// A skill as a caller gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillDraft {
    /// Name.
    pub name: String,
    /// When it applies.
    pub triggers: Vec<String>,
    /// What to do.
    pub steps: Vec<String>,
}

/// Name under which the parts of a skill travel in its statement.
const NAME: &str = "name";
const TRIGGER: &str = "trigger";
const STEP: &str = "step";

impl SkillDraft {
    /// The statement that stands for it: triggers and steps are content.
    #[must_use]
    pub fn statement(self, provenance: Provenance) -> Statement {
        let content = self.triggers.iter().chain(&self.steps).cloned().collect::<Vec<_>>().join("\n");
        let mut metadata = BTreeMap::from([(NAME.to_owned(), self.name)]);
        for (kind, texts) in [(TRIGGER, self.triggers), (STEP, self.steps)] {
            metadata.extend(texts.into_iter().enumerate().map(|(n, text)| (format!("{kind} {n:02}"), text)));
        }
        Statement { metadata, ..provenance.statement(Kind::Constraint, content) }
    }

    /// Back from the judged statement; none when it stands for something else.
    #[must_use]
    pub fn of(gated: &Gated) -> Option<Self> {
        let metadata = &gated.statement().metadata;
        let all = |kind: &str| -> Vec<String> {
            metadata.iter().filter(|(key, _)| key.split(' ').next() == Some(kind)).map(|(_, text)| text.clone()).collect()
        };
        let (triggers, steps) = (all(TRIGGER), all(STEP));
        let name = metadata.get(NAME)?.clone();
        (!triggers.is_empty() && !steps.is_empty()).then_some(Self { name, triggers, steps })
    }
}

/// The key prefix of an entity: its type and a handle, made from the name where none is given. A name that no key can spell
/// becomes a digest of its normal form.
///
/// # Errors
/// `INVALID_FIELD` naming `type` or `handle`.
pub fn prefix(kind: &str, handle: &str, name: &str, normal: &str) -> Result<FactKey, Fault> {
    if kind.contains(['.', '[']) || kind.len() > limits::ENTITY_TYPE_BYTES {
        return Err(Fault::field("type", format!("is one word of at most {} bytes", limits::ENTITY_TYPE_BYTES)));
    }
    FactKey::new(kind)
        .map_err(|_| Fault::field("type", "has other characters than lower-case letters, digits, \"_\" and \"-\""))?;
    if !handle.is_empty() {
        if handle.contains(['.', '[']) {
            return Err(Fault::field("handle", "is one word"));
        }
        return FactKey::new(format!("{kind}.{handle}"))
            .map_err(|_| Fault::field("handle", "has other characters than lower-case letters, digits, \"_\" and \"-\""));
    }
    let mut made = String::new();
    for c in name.to_lowercase().chars() {
        if c.is_ascii_alphanumeric() {
            made.push(c);
        } else if !made.is_empty() && !made.ends_with('_') {
            made.push('_');
        }
    }
    let made = made.trim_matches('_');
    let spelt = name.chars().all(|c| c.is_ascii() || c.is_whitespace()) && !made.is_empty() && made.len() <= 64;
    let made = if spelt { made.to_owned() } else { format!("e{}", &blake3::hash(normal.as_bytes()).to_hex()[..12]) };
    FactKey::new(format!("{kind}.{made}")).map_err(|_| Fault::field("name", "makes no key; give a handle"))
}

/// Share of a trigger's terms that a text must say for the skill to match.
pub const TRIGGER_SHARE: f64 = 0.6;

/// How much of a trigger a text says, 0..1: all of it when the trigger stands in the text word for word, else the share of its
/// terms. Both in normal form and as sorted terms.
#[must_use]
pub fn trigger_score(trigger: (&str, &[u32]), text: (&str, &[u32])) -> f64 {
    if !trigger.0.is_empty() && text.0.contains(trigger.0) {
        return 1.0;
    }
    if trigger.1.is_empty() {
        return 0.0;
    }
    let said = trigger.1.iter().filter(|term| text.1.binary_search(term).is_ok()).count();
    let (said, all) = (u32::try_from(said).unwrap_or(u32::MAX), u32::try_from(trigger.1.len()).unwrap_or(u32::MAX));
    let share = f64::from(said) / f64::from(all);
    if share >= TRIGGER_SHARE { share } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_a_key_in_any_language() {
        let made = |handle: &str, name: &str| prefix("person", handle, name, name).map(|key| key.as_str().to_owned());
        assert_eq!(made("", "Lin Wei-Ming"), Ok("person.lin_wei_ming".to_owned()));
        assert_eq!(made("lin", "林伟"), Ok("person.lin".to_owned()));
        let digest = made("", "林伟").expect("a key");
        assert!(
            digest.starts_with("person.e")
                && digest == made("", "林伟").expect("a key")
                && digest != made("", "林维").expect("a key")
        );
        for (kind, handle, field) in [
            ("Person", "", "type"),
            ("a.b", "", "type"),
            ("person", "a.b", "handle"),
            ("person", "A", "handle"),
            ("", "x", "type"),
        ] {
            assert_eq!(prefix(kind, handle, "Lin", "lin").expect_err("refused").fields[0].field, field, "{kind} {handle}");
        }
    }

    #[test]
    fn a_trigger_matches_by_its_words_or_most_of_its_terms() {
        assert!((trigger_score(("weekly report", &[1, 2]), ("the weekly report please", &[1, 2, 3])) - 1.0).abs() < 1e-9);
        assert!((trigger_score(("x", &[1, 2, 3]), ("y", &[1, 3])) - 2.0 / 3.0).abs() < 1e-9);
        assert!(trigger_score(("x", &[1, 2, 3]), ("y", &[1])).abs() < 1e-9, "under the share");
        assert!(trigger_score(("", &[]), ("anything", &[1])).abs() < 1e-9, "nothing matches nothing");
    }
}
