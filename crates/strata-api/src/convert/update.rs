//! Changes of a record: which fields a mask names, and their new values.

use super::common::{optional_text, optional_time};
use super::longterm::{metadata, tags};
use crate::longterm::v1 as pb;
use std::collections::{BTreeMap, BTreeSet};
use strata_core::{Fault, Timestamp, limits};

/// New values of the fields that may change (model.md "Mutable after creation"); none leaves a field as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// 1..5.
    pub importance: Option<u8>,
    /// Never forget automatically.
    pub protected: Option<bool>,
    /// When to expire; an inner none clears it.
    pub expire_time: Option<Option<Timestamp>>,
    /// End (exclusive) of the time it holds; an inner none clears it.
    pub valid_to: Option<Option<Timestamp>>,
    /// Topic; an inner none clears it.
    pub topic: Option<Option<String>>,
    /// Tags, sorted, without duplicates.
    pub tags: Option<Vec<String>>,
    /// Metadata.
    pub metadata: Option<BTreeMap<String, String>>,
}

impl Patch {
    /// Names of the fields it changes, for history; never their values.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        [
            ("importance", self.importance.is_some()),
            ("protected", self.protected.is_some()),
            ("expire_time", self.expire_time.is_some()),
            ("valid_to", self.valid_to.is_some()),
            ("topic", self.topic.is_some()),
            ("tags", self.tags.is_some()),
            ("metadata", self.metadata.is_some()),
        ]
        .into_iter()
        .filter_map(|(name, changed)| changed.then_some(name))
        .collect()
    }
}

/// A patch. `now` is the arrival: an expiry lies after it.
///
/// # Errors
/// `INVALID_FIELD` naming `update_mask` when it names nothing, or what never changes; else `memory.<field>`.
pub fn patch(memory: Option<&pb::MemoryPatch>, mask: &prost_types::FieldMask, now: Timestamp) -> Result<Patch, Fault> {
    let named: BTreeSet<&str> = mask.paths.iter().map(String::as_str).collect();
    if named.is_empty() {
        return Err(Fault::field("update_mask", "names no field"));
    }
    let absent = pb::MemoryPatch::default();
    let memory = memory.unwrap_or(&absent);
    let mut out = Patch::default();
    for path in named {
        match path {
            "importance" => {
                let given = u8::try_from(memory.importance).ok().filter(|i| (1..=5).contains(i));
                out.importance = Some(given.ok_or_else(|| Fault::field("memory.importance", "must lie between 1 and 5"))?);
            }
            "protected" => out.protected = Some(memory.protected),
            "expire_time" => {
                let at = optional_time("memory.expire_time", memory.expire_time.as_ref())?;
                if at.is_some_and(|at| at <= now) {
                    return Err(Fault::field("memory.expire_time", "lies in the past; to forget it use ForgetMemories"));
                }
                out.expire_time = Some(at);
            }
            "valid_to" => out.valid_to = Some(optional_time("memory.valid_to", memory.valid_to.as_ref())?),
            "topic" => {
                if memory.topic.len() > limits::TOPIC_BYTES {
                    return Err(Fault::field("memory.topic", format!("is longer than {} bytes", limits::TOPIC_BYTES)));
                }
                let topic = optional_text("memory.topic", &memory.topic, limits::TOPIC_BYTES)?;
                out.topic = Some((!topic.is_empty()).then_some(topic));
            }
            "tags" => out.tags = Some(tags("memory.tags", &memory.tags)?),
            "metadata" => out.metadata = Some(metadata("memory.metadata", &memory.metadata)?),
            "content" | "value" | "key" | "kind" | "tier" => {
                return Err(Fault::field("update_mask", "names what never changes in place; give a statement instead"));
            }
            _ => return Err(Fault::field("update_mask", "names a field that a caller does not change")),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::common::wire_time;

    const NOW: Timestamp = Timestamp(1_800_000_000_000_000);

    fn of(memory: pb::MemoryPatch, paths: &[&str]) -> Result<Patch, Fault> {
        let mask = prost_types::FieldMask { paths: paths.iter().map(|p| (*p).to_owned()).collect() };
        patch(Some(&memory), &mask, NOW)
    }

    #[test]
    fn only_named_fields_change_and_a_named_empty_one_is_cleared() {
        let memory =
            pb::MemoryPatch { importance: 4, topic: "home".into(), tags: vec!["b".into(), "a".into()], ..Default::default() };
        let changed = of(memory, &["importance", "tags"]).expect("valid");
        assert_eq!(changed.names(), ["importance", "tags"]);
        assert_eq!((changed.importance, changed.tags), (Some(4), Some(vec!["a".to_owned(), "b".to_owned()])));
        let cleared = of(pb::MemoryPatch::default(), &["topic", "expire_time", "metadata"]).expect("valid");
        assert_eq!((cleared.topic, cleared.expire_time, cleared.metadata), (Some(None), Some(None), Some(BTreeMap::new())));
    }

    #[test]
    fn c057_what_a_mask_may_not_name_is_refused_by_field() {
        let field = |memory, paths: &[&str]| of(memory, paths).expect_err("refused").fields[0].field.clone();
        let empty = pb::MemoryPatch::default;
        assert_eq!(field(empty(), &[]), "update_mask");
        for path in ["content", "value", "key", "source", "confidence", "status", "nothing", ""] {
            assert_eq!(field(empty(), &[path]), "update_mask", "{path}");
        }
        assert_eq!(field(empty(), &["importance"]), "memory.importance");
        assert_eq!(field(pb::MemoryPatch { importance: 6, ..empty() }, &["importance"]), "memory.importance");
        assert_eq!(
            field(pb::MemoryPatch { expire_time: Some(wire_time(NOW)), ..empty() }, &["expire_time"]),
            "memory.expire_time"
        );
        assert_eq!(field(pb::MemoryPatch { topic: "t".repeat(limits::TOPIC_BYTES + 1), ..empty() }, &["topic"]), "memory.topic");
        assert_eq!(field(pb::MemoryPatch { tags: vec!["t".into(); limits::TAGS + 1], ..empty() }, &["tags"]), "memory.tags");
    }
}
