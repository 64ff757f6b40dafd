//! Who a memory belongs to, and how a fact is named. Ids are data, never query language: any printable text is legal
//! (cases C036, C037, C043), control characters are refused, and composite keys are built injectively by [`join`].

use crate::{Fault, limits};
use serde::{Deserialize, Serialize};
use std::fmt;
use uuid::Uuid;

/// Checks an id: 1 to [`limits::ID_BYTES`] bytes, no control, format or bidi characters, no blank ends.
///
/// # Errors
/// [`crate::Reason::InvalidField`] naming `field`.
pub fn check_id(field: &'static str, value: &str) -> Result<(), Fault> {
    if value.is_empty() {
        return Err(Fault::field(field, "is required"));
    }
    if value.len() > limits::ID_BYTES {
        return Err(Fault::field(field, format!("is longer than {} bytes", limits::ID_BYTES)));
    }
    if value.chars().any(is_hidden) {
        return Err(Fault::field(field, "holds a control or invisible character"));
    }
    if value.trim() != value {
        return Err(Fault::field(field, "begins or ends with white space"));
    }
    Ok(())
}

/// Control, zero-width, bidi and tag characters: never part of an id.
#[must_use]
pub const fn is_hidden(c: char) -> bool {
    matches!(c,
        '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Joins parts into one key so that different part lists never give the same text: each part is length-prefixed.
#[must_use]
pub fn join(parts: &[&str]) -> String {
    let mut out = String::with_capacity(parts.iter().map(|p| p.len() + 4).sum());
    for part in parts {
        out.push_str(&part.len().to_string());
        out.push(':');
        out.push_str(part);
    }
    out
}

macro_rules! text_id {
    ($( $(#[$doc:meta])* $name:ident, $field:literal; )*) => { $(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);
        impl $name {
            /// Validates.
            ///
            /// # Errors
            /// [`crate::Reason::InvalidField`] as [`check_id`] says.
            pub fn new(value: impl Into<String>) -> Result<Self, Fault> {
                let value = value.into();
                check_id($field, &value)?;
                Ok(Self(value))
            }
            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str { &self.0 }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(&self.0) }
        }
        impl From<$name> for String {
            fn from(id: $name) -> Self { id.0 }
        }
    )* };
}

text_id! {
    /// A tenant: comes from the caller's credential, never from a request body.
    TenantId, "tenant_id";
    /// A user of a tenant.
    UserId, "user_id";
    /// An agent: a level between user and session.
    AgentId, "agent_id";
    /// A session of a user.
    SessionId, "session_id";
    /// A task.
    TaskId, "task_id";
}

/// Id of a long-term record: UUID v7, minted by the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MemoryId(pub Uuid);

impl MemoryId {
    /// Parses the hyphenated form.
    ///
    /// # Errors
    /// [`crate::Reason::InvalidField`] naming `field`.
    pub fn parse(field: &'static str, value: &str) -> Result<Self, Fault> {
        Uuid::parse_str(value).map(Self).map_err(|_| Fault::field(field, "is not a memory id (a UUID)"))
    }
}

impl fmt::Display for MemoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

/// Whose memory it is. Every read and every write of every store is filtered by it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// From the credential.
    pub tenant: TenantId,
    /// From the credential, or named by a backend principal.
    pub user: UserId,
    /// Level between user and session: a read by an agent sees its own and the user's records, a read without an
    /// agent is user-wide.
    pub agent: Option<AgentId>,
}

impl Owner {
    /// Injective text key of tenant and user (without the agent): the Redis hash tag, the cache key.
    #[must_use]
    pub fn user_key(&self) -> String {
        join(&[self.tenant.as_str(), self.user.as_str()])
    }

    /// The agent as messages name it; empty for what belongs to the user.
    #[must_use]
    pub fn agent_id(&self) -> &str {
        self.agent.as_ref().map_or("", AgentId::as_str)
    }

    /// The same owner without its agent.
    #[must_use]
    pub fn user_level(&self) -> Self {
        Self { tenant: self.tenant.clone(), user: self.user.clone(), agent: None }
    }
}

/// Levels of ownership, outermost first (policies P1). Smaller is outer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Level {
    /// Across all agents of the user.
    User,
    /// One agent of the user.
    Agent,
    /// One session.
    Session,
    /// One task.
    Task,
}

impl Level {
    /// Stable lower-case name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Agent => "agent",
            Self::Session => "session",
            Self::Task => "task",
        }
    }
}

/// Where a fact holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Scope {
    /// Across all agents of the user.
    User,
    /// The owner's agent.
    Agent,
    /// One session.
    Session(SessionId),
    /// One task.
    Task(TaskId),
}

impl Scope {
    /// Level of the scope.
    #[must_use]
    pub const fn level(&self) -> Level {
        match self {
            Self::User => Level::User,
            Self::Agent => Level::Agent,
            Self::Session(_) => Level::Session,
            Self::Task(_) => Level::Task,
        }
    }
}

/// A dotted slot such as `diet.spicy` or `allergy[]`: lower-case `[a-z0-9_.-]`, at most 128 bytes, `[]` at the end for
/// a set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FactKey(String);

impl FactKey {
    /// Validates.
    ///
    /// # Errors
    /// [`crate::Reason::InvalidField`] naming `key`.
    pub fn new(value: impl Into<String>) -> Result<Self, Fault> {
        let value = value.into();
        let stem = value.strip_suffix("[]").unwrap_or(&value);
        if stem.is_empty() || value.len() > limits::KEY_BYTES {
            return Err(Fault::field("key", format!("must have 1 to {} bytes", limits::KEY_BYTES)));
        }
        if !stem.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'.' | b'-')) {
            return Err(Fault::field("key", "may hold a-z, 0-9, '_', '.', '-', and '[]' at its end for a set"));
        }
        if stem.split('.').any(str::is_empty) {
            return Err(Fault::field("key", "has an empty segment: dots stand between names"));
        }
        Ok(Self(value))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether values of the slot live side by side (rule K11).
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.ends_with("[]")
    }
}

impl fmt::Display for FactKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c037_composite_keys_are_injective() {
        assert_ne!(join(&["a:b", "c"]), join(&["a", "b:c"]));
        assert_ne!(join(&["ab", ""]), join(&["a", "b"]));
        assert_ne!(join(&["1:a"]), join(&["1", "a"]));
    }

    #[test]
    fn keys_are_dotted_names() {
        for key in ["diet.spicy", "a", "allergy[]", "person.lin.job_title", "x-1.y_2"] {
            assert!(FactKey::new(key).is_ok(), "{key}");
        }
        for key in ["", "[]", ".a", "a.", "a..b", "A", "a b", "a[]b", "键"] {
            assert!(FactKey::new(key).is_err(), "{key}");
        }
    }

    #[test]
    fn c036_ids_keep_case_and_punctuation_apart() {
        for id in ["u1", "u10", "u1:2", "u1*", "U1", "用户", "a b", "a@b+c=#/."] {
            assert_eq!(UserId::new(id).expect(id).as_str(), id);
        }
        for id in ["", " u", "u ", "a\0b", "a\nb", "a\u{200b}b", "a\u{202e}b"] {
            assert!(UserId::new(id).is_err(), "{id:?}");
        }
    }
}
