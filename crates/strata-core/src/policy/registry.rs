//! The key registry: which slots are known, what each may hold, and which wordings name it (policies.md "Key registry",
//! rules K0, K11, G4, G9, G11, C9). It ships with common keys ([`Registry::builtin`]) and is extended per deployment
//! ([`Registry::extended`]). Wordings are regular expressions; `strata-text` compiles and runs them.

use crate::id::{FactKey, Level};
use crate::policy::authz::Layer;
use crate::record::Tier;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// The registry every deployment starts from.
const BUILTIN: &str = include_str!("../../policy/registry.toml");

/// Keys of a registry: bounds the work of matching a sentence.
pub const MAX_KEYS: usize = 1_000;
/// Wordings of one key and language.
pub const MAX_PATTERNS: usize = 64;
/// Bytes of one wording.
pub const MAX_PATTERN_BYTES: usize = 2_048;

/// Whether a key holds one value or many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cardinality {
    /// A new value replaces the old one (rule K1).
    Single,
    /// Values live side by side (rule K11); the key ends in `[]`.
    Set,
}

/// Who has the last word on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Authority {
    /// The user, whatever a record system says.
    User,
    /// The record system: talk never rewrites its value.
    System,
}

/// What the values of a key are, where its wordings alone do not tell: "I moved to Sales" is worded as "I moved to Ghent".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Takes {
    /// A place to live in by its name: a town, a district, a region; no country, no department, no building.
    Place,
    /// A person's name.
    Person,
    /// What a person is called by: a name, a short form, a title.
    Address,
    /// An employer by its name.
    Organisation,
    /// What somebody does for a living.
    Occupation,
    /// A day of the calendar.
    Date,
    /// What a body can react to; no doing, no state of mind, nobody.
    Substance,
    /// A medicine.
    Drug,
}

/// One wording that names a key.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Pattern {
    /// A regular expression with a group `value` that is the slot's value.
    Captured(String),
    /// A regular expression and the value it stands for: "我不吃辣" is `no`.
    Fixed {
        /// The regular expression.
        regex: String,
        /// The value.
        value: String,
    },
}

impl Pattern {
    /// The regular expression.
    #[must_use]
    pub fn regex(&self) -> &str {
        match self {
            Self::Captured(regex) | Self::Fixed { regex, .. } => regex,
        }
    }

    /// The value it stands for, when fixed.
    #[must_use]
    pub fn value(&self) -> Option<&str> {
        match self {
            Self::Captured(_) => None,
            Self::Fixed { value, .. } => Some(value),
        }
    }
}

/// Wordings by language; either is tried on any text, since both languages mix.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Patterns {
    /// English.
    #[serde(default)]
    pub en: Vec<Pattern>,
    /// Chinese.
    #[serde(default)]
    pub zh: Vec<Pattern>,
}

/// One registered key, or a family of keys.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeySpec {
    /// The key; `*` stands for exactly one segment, as in `person.*.job_title`.
    pub pattern: String,
    /// The layer that owns it; none: whoever claims it first (rule P4).
    #[serde(default)]
    pub layer: Option<Layer>,
    /// Level it is written at.
    #[serde(default = "user_level", deserialize_with = "level")]
    pub scope: Level,
    /// One value or many.
    #[serde(default = "single")]
    pub cardinality: Cardinality,
    /// Tier of its records.
    #[serde(default = "stable_tier")]
    pub tier: Tier,
    /// Who has the last word; none: the user until a record system writes it first.
    #[serde(default)]
    pub authority: Option<Authority>,
    /// PERSONAL: shown and stored as rule G4 says.
    #[serde(default)]
    pub sensitive: bool,
    /// Stable by nature: rule G11 needs no further cue.
    #[serde(default)]
    pub stable: bool,
    /// Always in the context (rule C9).
    #[serde(default)]
    pub resident: bool,
    /// What the user likes or wants: a passing wish about it becomes TEMPORARY instead of refused (rule G6).
    #[serde(default)]
    pub preference: bool,
    /// What its values are; none: whatever stands where a wording says.
    #[serde(default)]
    pub takes: Option<Takes>,
    /// Other names of the key.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Wordings.
    #[serde(default)]
    pub patterns: Patterns,
}

impl KeySpec {
    /// Whether the pattern is a family.
    #[must_use]
    pub fn is_family(&self) -> bool {
        self.pattern.contains('*')
    }

    /// Who the user is: resident keys under `profile.*` (policies.md "Key registry").
    #[must_use]
    pub fn is_identity(&self) -> bool {
        self.resident && self.pattern.starts_with("profile.")
    }

    /// Whether `key` is this key or of this family: `*` is one segment of at least one character.
    #[must_use]
    pub fn matches(&self, key: &str) -> bool {
        let mut pattern = self.pattern.split('.');
        let mut key = key.split('.');
        loop {
            match (pattern.next(), key.next()) {
                (None, None) => return true,
                (Some("*"), Some(segment)) if !segment.is_empty() && !segment.ends_with("[]") => {}
                (Some("*[]"), Some(segment)) if segment.len() > 2 && segment.ends_with("[]") => {}
                (Some(expected), Some(segment)) if expected == segment => {}
                _ => return false,
            }
        }
    }
}

const fn user_level() -> Level {
    Level::User
}
const fn single() -> Cardinality {
    Cardinality::Single
}
const fn stable_tier() -> Tier {
    Tier::Stable
}

fn level<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Level, D::Error> {
    let name = String::deserialize(deserializer)?;
    [Level::User, Level::Agent, Level::Session, Level::Task]
        .into_iter()
        .find(|level| level.name() == name)
        .ok_or_else(|| serde::de::Error::custom("scope is one of user, agent, session, task"))
}

/// Why a registry is refused at start or at reload; names the key, never a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("key registry: {key}: {problem}")]
pub struct RegistryProblem {
    /// The key whose entry is wrong, or `registry` for the file as a whole.
    pub key: String,
    /// What is wrong and what would be right.
    pub problem: String,
}

impl RegistryProblem {
    /// A problem of one key.
    pub fn new(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { key: key.into(), problem: problem.into() }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    key: Vec<KeySpec>,
}

/// The known keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registry {
    keys: Vec<KeySpec>,
    exact: BTreeMap<String, usize>,
    /// Families, most literal first.
    families: Vec<usize>,
    aliases: BTreeMap<String, String>,
}

impl Registry {
    /// The keys that ship with the product.
    #[must_use]
    pub fn builtin() -> Self {
        Self::from_toml(BUILTIN).expect("the embedded registry is valid: a test parses it")
    }

    /// Reads `[[key]]` entries.
    ///
    /// # Errors
    /// [`RegistryProblem`] naming the first bad key: unknown field, illegal or repeated name, cardinality that
    /// contradicts `[]`, an alias that names another key, too many or too long patterns.
    pub fn from_toml(text: &str) -> Result<Self, RegistryProblem> {
        let file: File = toml::from_str(text).map_err(|error| RegistryProblem::new("registry", error.message()))?;
        Self::new(file.key)
    }

    /// The built-in keys with a deployment's own: an entry with the pattern of a built-in one replaces it.
    ///
    /// # Errors
    /// As [`Registry::from_toml`].
    pub fn extended(text: &str) -> Result<Self, RegistryProblem> {
        let own = Self::from_toml(text)?;
        let mut keys = Self::builtin().keys;
        keys.retain(|key| !own.keys.iter().any(|o| o.pattern == key.pattern));
        keys.extend(own.keys);
        Self::new(keys)
    }

    fn new(keys: Vec<KeySpec>) -> Result<Self, RegistryProblem> {
        if keys.len() > MAX_KEYS {
            return Err(RegistryProblem::new("registry", format!("holds more than {MAX_KEYS} keys")));
        }
        let mut exact = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for (i, spec) in keys.iter().enumerate() {
            check(spec)?;
            if !seen.insert(spec.pattern.clone()) {
                return Err(RegistryProblem::new(&spec.pattern, "is registered twice"));
            }
            if !spec.is_family() {
                exact.insert(spec.pattern.clone(), i);
            }
        }
        let mut aliases = BTreeMap::new();
        for spec in &keys {
            for alias in &spec.aliases {
                if exact.contains_key(alias) {
                    return Err(RegistryProblem::new(&spec.pattern, format!("the alias {alias} is a registered key")));
                }
                if let Some(other) = aliases.insert(alias.clone(), spec.pattern.clone()) {
                    return Err(RegistryProblem::new(&spec.pattern, format!("the alias {alias} also names {other}")));
                }
            }
        }
        // With `[]` or without, it is the same fact: spelled the other way it would have a second writer (rule P1).
        let spelled = exact.keys().map(|key| (key, key)).chain(aliases.iter()).map(|(name, key)| {
            let other = name.strip_suffix("[]").map_or_else(|| format!("{name}[]"), str::to_owned);
            (other, key.clone())
        });
        let spelled: Vec<(String, String)> = spelled.collect();
        for (other, key) in spelled {
            if !exact.contains_key(&other) {
                aliases.entry(other).or_insert(key);
            }
        }
        let mut families: Vec<usize> = (0..keys.len()).filter(|i| keys[*i].is_family()).collect();
        families.sort_by_key(|i| {
            let pattern = &keys[*i].pattern;
            (pattern.matches('*').count(), std::cmp::Reverse(pattern.len()), pattern.clone())
        });
        Ok(Self { keys, exact, families, aliases })
    }

    /// Every entry, in file order.
    #[must_use]
    pub fn keys(&self) -> &[KeySpec] {
        &self.keys
    }

    /// The registered name of a key (rule K0): itself unless it is an alias.
    #[must_use]
    pub fn resolve_alias<'a>(&'a self, key: &'a str) -> &'a str {
        self.aliases.get(key).map_or(key, String::as_str)
    }

    /// [`Registry::resolve_alias`] over checked keys.
    #[must_use]
    pub fn resolve(&self, key: &FactKey) -> FactKey {
        match self.aliases.get(key.as_str()) {
            Some(name) => FactKey::new(name.clone()).expect("registered names are checked when the registry is read"),
            None => key.clone(),
        }
    }

    /// What is registered about a key or an alias of it: the key itself, else the most literal family.
    #[must_use]
    pub fn spec(&self, key: &str) -> Option<&KeySpec> {
        let key = self.resolve_alias(key);
        self.exact
            .get(key)
            .copied()
            .or_else(|| self.families.iter().copied().find(|i| self.keys[*i].matches(key)))
            .map(|i| &self.keys[i])
    }

    /// Whether values of the key live side by side (rule K11): registered as a set, or spelled with `[]`.
    #[must_use]
    pub fn is_set(&self, key: &FactKey) -> bool {
        self.spec(key.as_str()).map_or_else(|| key.is_set(), |spec| spec.cardinality == Cardinality::Set)
    }
}

fn check(spec: &KeySpec) -> Result<(), RegistryProblem> {
    let problem = |text: String| Err(RegistryProblem::new(&spec.pattern, text));
    let concrete = spec.pattern.replace('*', "x");
    if let Err(fault) = FactKey::new(concrete) {
        return problem(fault.message);
    }
    if spec.pattern.split('.').any(|s| s.is_empty() || (s.contains('*') && s != "*" && s != "*[]")) {
        return problem("segments are not empty, and '*' stands for a whole segment".into());
    }
    if spec.pattern.ends_with("[]") != (spec.cardinality == Cardinality::Set) {
        return problem("cardinality = \"set\" goes with a pattern that ends in []".into());
    }
    if spec.is_family() && !spec.aliases.is_empty() {
        return problem("a family of keys has no aliases".into());
    }
    if spec.scope > Level::Agent && spec.layer == Some(Layer::Longterm) {
        return problem("long-term memory holds keys of scope user and agent".into());
    }
    for alias in &spec.aliases {
        if let Err(fault) = FactKey::new(alias.clone()) {
            return problem(format!("alias {alias}: {}", fault.message));
        }
    }
    for patterns in [&spec.patterns.en, &spec.patterns.zh] {
        if patterns.len() > MAX_PATTERNS {
            return problem(format!("has more than {MAX_PATTERNS} patterns in one language"));
        }
        if patterns.iter().any(|p| p.regex().is_empty() || p.regex().len() > MAX_PATTERN_BYTES) {
            return problem(format!("a pattern has 1 to {MAX_PATTERN_BYTES} bytes"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builtin_registry_is_valid_and_has_the_common_keys() {
        let registry = Registry::builtin();
        for key in [
            "profile.name",
            "profile.city",
            "profile.employer",
            "profile.role",
            "profile.birthday",
            "reply.language",
            "contact.channel",
            "diet.spicy",
            "diet.kosher",
            "allergy[]",
            "work.cost_centre",
            "work.hours",
            "communication.address",
            "travel.seat",
            "project.heron.deadline",
            "person.lin.job_title",
        ] {
            assert!(registry.spec(key).is_some(), "{key}");
        }
        assert!(registry.spec("hobby").is_none());
    }

    #[test]
    fn aliases_and_families_resolve() {
        let registry = Registry::builtin();
        assert_eq!(registry.resolve_alias("role"), "profile.role");
        assert_eq!(registry.resolve_alias("profile.language"), "reply.language");
        assert_eq!(registry.resolve_alias("hobby"), "hobby");
        assert_eq!(registry.spec("city").map(|s| s.pattern.as_str()), Some("profile.city"));
        assert_eq!(registry.spec("person.lin.job_title").map(|s| s.pattern.as_str()), Some("person.*.job_title"));
        assert_eq!(registry.spec("person.lin.hobby").map(|s| s.pattern.as_str()), Some("person.*.*"));
        assert!(registry.spec("person.lin").is_none() && registry.spec("person..job_title").is_none());
        let key = FactKey::new("allergies").expect("key");
        assert_eq!(registry.resolve(&key).as_str(), "allergy[]");
        assert!(registry.is_set(&FactKey::new("allergy[]").expect("key")));
    }

    #[test]
    fn p1_a_registered_key_is_the_same_one_with_brackets_and_without() {
        let registry = Registry::builtin();
        for (spelled, key) in [
            ("work.cost_centre[]", "work.cost_centre"),
            ("cost_center[]", "work.cost_centre"),
            ("city[]", "profile.city"),
            ("taboo", "taboo[]"),
            ("health.condition", "health.condition[]"),
            ("hobby[]", "hobby[]"),
        ] {
            assert_eq!(registry.resolve_alias(spelled), key);
        }
        assert!(!registry.is_set(&FactKey::new("work.cost_centre[]").expect("key")));
    }

    #[test]
    fn identity_is_resident_profile_keys() {
        let registry = Registry::builtin();
        assert!(registry.spec("profile.name").is_some_and(KeySpec::is_identity));
        assert!(!registry.spec("reply.language").is_some_and(KeySpec::is_identity));
    }

    #[test]
    fn a_bad_entry_is_refused_by_name() {
        for (text, key) in [
            ("[[key]]\npattern = \"Profile.X\"", "Profile.X"),
            ("[[key]]\npattern = \"a\"\n[[key]]\npattern = \"a\"", "a"),
            ("[[key]]\npattern = \"a[]\"", "a[]"),
            ("[[key]]\npattern = \"a\"\ncardinality = \"set\"", "a"),
            ("[[key]]\npattern = \"a.b*\"", "a.b*"),
            ("[[key]]\npattern = \"a\"\naliases = [\"b\"]\n[[key]]\npattern = \"b\"", "a"),
            ("[[key]]\npattern = \"a\"\naliases = [\"c\"]\n[[key]]\npattern = \"b\"\naliases = [\"c\"]", "b"),
            ("[[key]]\npattern = \"a\"\nscope = \"session\"\nlayer = \"longterm\"", "a"),
            ("[[key]]\npattern = \"a.*\"\naliases = [\"b\"]", "a.*"),
            ("[[key]]\npattern = \"a\"\npatterns.en = [\"\"]", "a"),
            ("[[key]]\npattern = \"a\"\ncolour = 1", "registry"),
            ("[[key]]\npattern = \"a\"\nscope = \"galaxy\"", "registry"),
            ("[[key", "registry"),
        ] {
            let problem = Registry::from_toml(text).expect_err(text);
            assert_eq!(problem.key, key, "{text}");
        }
    }

    #[test]
    fn a_deployment_extends_and_replaces() {
        let registry =
            Registry::extended("[[key]]\npattern = \"profile.city\"\ntier = \"TEMPORARY\"\n[[key]]\npattern = \"hobby\"")
                .expect("valid");
        assert_eq!(registry.spec("profile.city").map(|s| s.tier), Some(Tier::Temporary));
        assert!(registry.spec("hobby").is_some() && registry.spec("diet.spicy").is_some());
    }
}
