//! What an erasure looks for in texts that are not its own (rule E2): values, quotes and protected values, compared so that
//! case, width, separators and invisible characters make no difference, and taken out in place.

use crate::clean::Cleaned;
use crate::values::protected_values;
use std::collections::BTreeSet;
use std::ops::Range;

/// What stands in a text where something was erased.
pub const MARKER: &str = "[erased]";
/// Characters from which a value is looked for by itself; shorter ones count only beside another (rule E2).
pub const LONG: usize = 4;

/// A text without anything but its letters and digits, lower case, with the way back into the cleaned copy.
struct Squashed {
    text: String,
    /// For every byte: first byte of the character of the copy it came from, and the byte after it.
    origin: Vec<(usize, usize)>,
}

impl Squashed {
    fn new(cleaned: &str) -> Self {
        let (mut text, mut origin) = (String::with_capacity(cleaned.len()), Vec::with_capacity(cleaned.len()));
        for (at, c) in cleaned.char_indices().filter(|(_, c)| c.is_alphanumeric()) {
            let before = text.len();
            text.extend(c.to_lowercase());
            origin.resize(origin.len() + text.len() - before, (at, at + c.len_utf8()));
        }
        Self { text, origin }
    }
}

fn squash(text: &str) -> String {
    Squashed::new(&Cleaned::new(text).text).text
}

/// What is looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needles {
    long: BTreeSet<String>,
    short: BTreeSet<String>,
    /// Normal forms of protected values that letters alone do not find: 2:30 pm is 14:30.
    normals: BTreeSet<String>,
}

impl Needles {
    /// Looks for `texts` by themselves, and for `short` ones beside another. Texts without a letter or digit are not looked for.
    pub fn new<'a>(texts: impl IntoIterator<Item = &'a str>, short: impl IntoIterator<Item = &'a str>) -> Self {
        let mut out = Self::default();
        for text in texts {
            let squashed = squash(text);
            // A text that is one protected value from end to end is known by its normal form too.
            if let [only] = protected_values(text).as_slice()
                && squash(&only.text) == squashed
                && only.normal.chars().count() >= LONG
            {
                out.normals.insert(only.normal.clone());
            }
            out.long.insert(squashed);
        }
        out.short.extend(short.into_iter().map(squash));
        out.long.remove("");
        out.short.retain(|short| !short.is_empty() && !out.long.contains(short));
        out
    }

    /// Whether there is nothing to look for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.long.is_empty() && self.short.is_empty()
    }

    /// Whether a text holds what is looked for.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        !self.find(text).is_empty()
    }

    /// The text with [`MARKER`] in place of what is looked for; none when it holds nothing of it.
    #[must_use]
    pub fn redact(&self, text: &str) -> Option<String> {
        let found = self.find(text);
        if found.is_empty() {
            return None;
        }
        let (mut out, mut from) = (String::with_capacity(text.len()), 0);
        for span in found {
            out.push_str(&text[from..span.start]);
            out.push_str(MARKER);
            from = span.end;
        }
        out.push_str(&text[from..]);
        // What was apart may stand together now.
        Some(if self.matches(&out) { MARKER.to_owned() } else { out })
    }

    /// Where it stands, in bytes of the text, in order, apart.
    #[must_use]
    pub fn find(&self, text: &str) -> Vec<Range<usize>> {
        if self.is_empty() || text.is_empty() {
            return Vec::new();
        }
        let cleaned = Cleaned::new(text);
        let squashed = Squashed::new(&cleaned.text);
        let mut found: Vec<Range<usize>> = Vec::new();
        for needle in &self.long {
            found.extend(standing(&cleaned.text, &squashed, needle).map(|span| cleaned.original(span)));
        }
        if !self.normals.is_empty() {
            let values = protected_values(text).into_iter().filter(|value| self.normals.contains(&value.normal));
            found.extend(values.map(|value| value.start..value.end));
        }
        let mut kinds = usize::from(!found.is_empty());
        let mut beside = Vec::new();
        for needle in &self.short {
            let before = beside.len();
            beside.extend(standing(&cleaned.text, &squashed, needle).map(|span| cleaned.original(span)));
            kinds += usize::from(beside.len() > before);
        }
        if kinds > 1 {
            found.extend(beside);
        }
        found.retain(|span| span.start < span.end && text.is_char_boundary(span.start) && text.is_char_boundary(span.end));
        found.sort_by_key(|span| (span.start, span.end));
        let mut apart: Vec<Range<usize>> = Vec::new();
        for span in found {
            match apart.last_mut() {
                Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
                Some(_) | None => apart.push(span),
            }
        }
        apart
    }
}

/// Where a needle stands with no letter or digit of the same word glued to it: 5 does not stand in 50.
fn standing<'a>(cleaned: &'a str, squashed: &'a Squashed, needle: &'a str) -> impl Iterator<Item = Range<usize>> + 'a {
    squashed.text.match_indices(needle).filter_map(move |(at, found)| {
        let (start, end) = (squashed.origin.get(at)?.0, squashed.origin.get(at + found.len() - 1)?.1);
        let glued = |inner: Option<char>, outer: Option<char>| {
            inner.is_some_and(|c| c.is_ascii_alphanumeric()) && outer.is_some_and(|c| c.is_ascii_alphanumeric())
        };
        let before = glued(cleaned[start..].chars().next(), cleaned[..start].chars().next_back());
        let after = glued(cleaned[..end].chars().next_back(), cleaned[end..].chars().next());
        (!before && !after).then_some(start..end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(texts: &[&str], short: &[&str]) -> Needles {
        Needles::new(texts.iter().copied(), short.iter().copied())
    }

    #[test]
    fn e2_case_width_separators_and_hidden_characters_hide_nothing() {
        let needles = of(&["Locker ZX-4471", "138 0013 8000"], &[]);
        for text in [
            "my locker zx-4471, as I said",
            "my ＬＯＣＫＥＲ ＺＸ－４４７１",
            "loc\u{200b}ker ZX4471 \u{202e}",
            "call 13800138000 now",
            "call 138-0013-8000 📞",
        ] {
            assert!(needles.matches(text), "{text}");
            let redacted = needles.redact(text).expect("held it");
            assert!(redacted.contains(MARKER) && !needles.matches(&redacted), "{redacted}");
        }
        assert!(!needles.matches("locker ZX-44710") && !needles.matches("Xlocker ZX-4471") && !needles.matches("1380013800"));
        assert_eq!(needles.redact("I keep locker ZX-4471 shut").as_deref(), Some("I keep [erased] shut"));
        assert_eq!(needles.redact("nothing of it"), None);
    }

    #[test]
    fn e2_chinese_is_found_inside_a_sentence_and_by_the_normal_form_of_a_time() {
        let needles = of(&["对花生过敏", "下午2点30分"], &[]);
        assert_eq!(needles.redact("我从小就对花生过敏，请记住。").as_deref(), Some("我从小就[erased]，请记住。"));
        assert!(needles.matches("我对 花生 过敏") && needles.matches("我對花生过敏 对花生过敏"));
        assert!(!needles.matches("我不对花吃"));
    }

    #[test]
    fn e2_short_values_count_only_beside_another() {
        let needles = of(&["Theodore"], &["B7", "张伟"]);
        assert!(!needles.matches("gate B7 is closed") && !needles.matches("张伟来了"));
        assert_eq!(needles.redact("张伟 sits at B7").as_deref(), Some("[erased] sits at [erased]"));
        assert_eq!(needles.redact("Theodore at B7").as_deref(), Some("[erased] at [erased]"));
        assert!(!needles.matches("B75 张伟"), "5 does not stand in 50");
    }

    #[test]
    fn nothing_is_looked_for_without_letters() {
        assert!(of(&["", "…", " \u{200b}"], &["!"]).is_empty());
        assert!(!of(&["…"], &[]).matches("well…"));
    }
}
