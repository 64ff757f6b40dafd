//! Finding what is to be erased in texts that were written apart from it, and cutting it out (rule E2).
//!
//! Texts are compared in a bare form: what a reader does not see, white space, punctuation and combining marks are left out,
//! width and case are folded. `138-0013-8000` is found in `１３８ 0013\u{200b} 8000`, and a quote is found however it is
//! punctuated. A match of letters or digits never begins or ends inside a word or a number: 1234 is not found in 512345.

use crate::clean::searchable;
use crate::numerals::HAN_DIGITS;
use crate::script::is_content;
use crate::sentence::sentence_spans;
use crate::values::protected_values;
use std::collections::{BTreeSet, HashSet};
pub use strata_core::policy::erasure::MARKER;
use strata_core::text::ValueKind;
use unicode_normalization::char::is_combining_mark;

/// Characters in bare form from which a text is looked for by itself; a shorter one counts beside another one only.
pub const LONG: usize = 4;
/// Digits of a number that is the same with and without points between them: a telephone number, not a decimal one.
const PLAIN_DIGITS: usize = 7;

/// What is to be erased, prepared for searching.
#[derive(Clone, Debug, Default)]
pub struct Needles {
    /// Each is enough by itself.
    long: Vec<String>,
    /// Two of them are needed.
    short: Vec<String>,
    /// Amounts, times, numbers and ids in the normal form of values: 2:30 pm is 14:30.
    values: HashSet<String>,
}

impl Needles {
    /// `texts` count by themselves, `short_texts` only beside another one of either list in the same text. A text that is
    /// shorter than four characters in bare form is taken for a short one, an empty one is passed over.
    #[must_use]
    pub fn new<'a>(texts: impl IntoIterator<Item = &'a str>, short_texts: impl IntoIterator<Item = &'a str>) -> Self {
        let (mut long, mut short, mut values) = (BTreeSet::new(), BTreeSet::new(), HashSet::new());
        for text in texts {
            let bare = Bare::new(text).text;
            if bare.chars().count() >= LONG {
                values.extend(whole_value(text, &bare).filter(|value| value.chars().count() >= LONG));
                long.insert(bare);
            } else if !bare.is_empty() {
                short.insert(bare);
            }
        }
        for text in short_texts {
            let bare = Bare::new(text).text;
            if !bare.is_empty() && !long.contains(&bare) {
                short.insert(bare);
            }
        }
        Self { long: long.into_iter().collect(), short: short.into_iter().collect(), values }
    }

    /// Nothing to look for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.long.is_empty() && self.short.is_empty()
    }

    /// Whether a text holds what is to be erased.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        if self.is_empty() || text.is_empty() {
            return false;
        }
        if text.contains(MARKER) {
            return self.matches(&text.replace(MARKER, " "));
        }
        self.matches_written(text, true) || self.holds_value(text)
    }

    /// Whether bytes hold it: of an artifact or an encoded answer, whatever stands around it. Finds more rather than less.
    #[must_use]
    pub fn matches_bytes(&self, bytes: &[u8]) -> bool {
        !self.is_empty() && self.matches_written(&String::from_utf8_lossy(bytes), false)
    }

    fn matches_written(&self, text: &str, whole_words: bool) -> bool {
        self.matches_bare(&Bare::new(text), whole_words)
            || unescaped(text).is_some_and(|text| self.matches_bare(&Bare::new(&text), whole_words))
    }

    fn matches_bare(&self, bare: &Bare, whole_words: bool) -> bool {
        self.long.iter().any(|needle| bare.holds(needle, whole_words))
            || self.short.iter().filter(|needle| bare.holds(needle, true)).take(2).count() == 2
    }

    fn holds_value(&self, text: &str) -> bool {
        !self.values.is_empty()
            && text.chars().any(|c| c.is_numeric() || HAN_DIGITS.contains(c))
            && protected_values(text).iter().any(|value| self.values.contains(&value.normal))
    }

    /// The text with every sentence that holds it replaced by [`MARKER`], or the marker alone where it stands in no single
    /// sentence; none when the text does not hold it.
    #[must_use]
    pub fn redact(&self, text: &str) -> Option<String> {
        if !self.matches(text) {
            return None;
        }
        let mut out = String::with_capacity(text.len());
        let mut from = 0;
        for span in sentence_spans(text) {
            out.push_str(&text[from..span.start]);
            if self.matches(&text[span.clone()]) {
                out.push_str(MARKER);
                // The sentence after it stays a sentence of its own.
                match text[span.clone()].chars().next_back() {
                    Some('.' | '!' | '?') => out.push('.'),
                    Some('。' | '！' | '？') => out.push('。'),
                    _ => {}
                }
            } else {
                out.push_str(&text[span.clone()]);
            }
            from = span.end;
        }
        out.push_str(&text[from..]);
        let kept = out.replace(MARKER, "").chars().any(is_content);
        Some(if !kept || self.matches(&out) { MARKER.to_owned() } else { out })
    }
}

/// The text with the escapes of JSON read: a tool's return may write every letter beyond ASCII as `\\u9999`. None when it has
/// none.
fn unescaped(text: &str) -> Option<String> {
    if !text.contains("\\u") {
        return None;
    }
    let mut out = String::with_capacity(text.len());
    let mut units = Vec::new();
    let mut rest = text;
    loop {
        let unit = rest.strip_prefix("\\u").and_then(|hex| hex.get(..4)).and_then(|hex| u16::from_str_radix(hex, 16).ok());
        if let Some(unit) = unit {
            units.push(unit);
            rest = &rest[6..];
            continue;
        }
        out.push_str(&String::from_utf16_lossy(&units));
        units.clear();
        let Some(c) = rest.chars().next() else { return Some(out) };
        out.push(c);
        rest = &rest[c.len_utf8()..];
    }
}

/// The normal form of a text that is one value and nothing else.
fn whole_value<'a>(text: &str, bare: &'a str) -> impl Iterator<Item = String> + use<'a> {
    let whole = protected_values(text).into_iter().find(|value| {
        matches!(value.kind, ValueKind::Amount | ValueKind::Number | ValueKind::Time | ValueKind::Id)
            && Bare::new(&value.text).text == bare
    });
    whole.map(|value| value.normal).into_iter()
}

/// A text without what does not count.
#[derive(Debug, Default)]
struct Bare {
    text: String,
    /// For every byte of the copy, whether something was left out right before it.
    gaps: Vec<bool>,
}

impl Bare {
    fn new(text: &str) -> Self {
        // Most of what is long is plain: a log, a listing.
        let seen = if text.is_ascii() { text.to_ascii_lowercase() } else { searchable(text) };
        let mut bare = Self { text: String::with_capacity(seen.len()), gaps: Vec::with_capacity(seen.len()) };
        let mut gap = true;
        let mut chars = seen.chars().peekable();
        while let Some(c) = chars.next() {
            let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
            let decimal = c == '.' && !gap && digit(bare.text.chars().next_back()) && digit(chars.peek().copied());
            if is_combining_mark(c) || (c.is_control() && !c.is_whitespace()) {
                continue;
            }
            if is_separator(c) && !decimal {
                gap = true;
                continue;
            }
            bare.text.push(c);
            bare.gaps.push(gap);
            bare.gaps.resize(bare.text.len(), false);
            gap = false;
        }
        bare
    }

    /// Whether the needle, a bare text too, stands here.
    fn holds(&self, needle: &str, whole_words: bool) -> bool {
        if self.stands(needle, whole_words) {
            return true;
        }
        let digits = needle.bytes().filter(u8::is_ascii_digit).count();
        if digits < PLAIN_DIGITS || !needle.bytes().all(|b| b.is_ascii_digit() || b == b'.') || !self.text.contains('.') {
            return false;
        }
        // 138.0013.8000: the points are separators after all.
        let (mut text, mut gaps) = (String::with_capacity(self.text.len()), Vec::with_capacity(self.gaps.len()));
        let mut gap = false;
        for (at, c) in self.text.char_indices() {
            if c == '.' {
                gap = true;
                continue;
            }
            text.push(c);
            gaps.push(gap || self.gaps[at]);
            gaps.resize(text.len(), false);
            gap = false;
        }
        Self { text, gaps }.stands(&needle.replace('.', ""), whole_words)
    }

    fn stands(&self, needle: &str, whole_words: bool) -> bool {
        self.text.match_indices(needle).any(|(at, found)| {
            let end = at + found.len();
            let glued = |before: Option<char>, after: Option<char>, place: usize| {
                !self.gaps.get(place).copied().unwrap_or(true) && before.zip(after).is_some_and(|(b, a)| same_word(b, a))
            };
            let (text, first, last) = (&self.text, found.chars().next(), found.chars().next_back());
            !whole_words || !(glued(text[..at].chars().next_back(), first, at) || glued(last, text[end..].chars().next(), end))
        })
    }
}

/// Whether two characters beside each other belong to one word or number. Ideographs are words of their own.
fn same_word(a: char, b: char) -> bool {
    let number = |c: char| c.is_ascii_digit() || c == '.';
    let letter = |c: char| c.is_alphabetic() && !crate::script::is_cjk(c);
    (number(a) && number(b)) || (letter(a) && letter(b))
}

/// White space and punctuation. Symbols such as emoji are content.
fn is_separator(c: char) -> bool {
    c.is_whitespace()
        || c.is_ascii_punctuation()
        || matches!(c,
            '\u{a1}' | '\u{a7}' | '\u{ab}' | '\u{b6}' | '\u{b7}' | '\u{bb}' | '\u{bf}'
            | '\u{5be}' | '\u{5c0}' | '\u{5c3}' | '\u{5f3}' | '\u{5f4}'
            | '\u{60c}' | '\u{61b}' | '\u{61f}' | '\u{640}' | '\u{66a}'..='\u{66d}' | '\u{6d4}'
            | '\u{964}' | '\u{965}' | '\u{2010}'..='\u{2027}' | '\u{2030}'..='\u{205e}' | '\u{2e00}'..='\u{2e7f}'
            | '\u{3001}'..='\u{3003}' | '\u{3008}'..='\u{3011}' | '\u{3014}'..='\u{301f}' | '\u{30fb}' | '\u{ff61}'..='\u{ff65}'
            | '\u{fffd}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn needles(texts: &[&str]) -> Needles {
        Needles::new(texts.iter().copied(), [])
    }

    #[test]
    fn e02_however_it_is_written_it_is_found() {
        for (needle, text) in [
            ("quux-zebra soup", "Noted: you like Quux Zebra soup."),
            ("quux-zebra soup", "ＱＵＵＸ－ＺＥＢＲＡ　ｓｏｕｐ"),
            ("quux-zebra soup", "q\u{200b}u\u{200b}ux-ze\u{ad}bra s\u{2060}oup!"),
            ("138-0013-8000", "call 13800138000 today"),
            ("138-0013-8000", "号码是１３８ ００１３ ８０００。"),
            ("13800138000", "or 138.0013.8000."),
            ("用户不吃香菜", "好的,用户 不吃、香菜。"),
            ("香菜过敏症", "他说“香菜过敏症”很严重"),
            ("🦄🌈🦄🌈", "my sign is 🦄 🌈\u{fe0f} 🦄🌈 ok"),
            ("שלום עולם", "\u{202b}שָׁלוֹם, עולם\u{202c}"),
            ("مرحبا بالعالم", "قال: «مَرْحَبًا بالعالم»"),
            ("Café Zoë", "the CAFE\u{301} zoe\u{308} downtown"),
            ("2:30 pm", "we meet at 14:30 there"),
            ("INV-20931", "order inv 20931 was paid"),
        ] {
            assert!(needles(&[needle]).matches(text), "{needle:?} in {text:?}");
            let redacted = needles(&[needle]).redact(text).expect("found");
            assert!(!needles(&[needle]).matches(&redacted) && redacted.contains(MARKER), "{redacted:?}");
        }
    }

    #[test]
    fn e02_what_only_looks_alike_stays() {
        for (needle, text) in [
            ("1234", "the code 512345 is another"),
            ("3.55", "355 francs"),
            ("Anna", "a Savannah"),
            ("Bali", "a Balinese cat"),
            ("cars", "the car saw it"),
            ("yes", "yes, of course"),
            ("5", "at 5"),
            ("", "anything"),
            ("...", "... !"),
            ("香菜过敏", "他对芹菜过敏"),
        ] {
            assert!(!needles(&[needle]).matches(text), "{needle:?} in {text:?}");
            assert_eq!(needles(&[needle]).redact(text), None);
        }
    }

    #[test]
    fn e02_short_values_count_beside_another_one_only() {
        let both = Needles::new(["penicillin"], ["42", "Bo", "辣"]);
        for (text, found) in [
            ("42 chairs", false),
            ("Bo sat on 42 chairs", true),
            ("Bo 不吃辣", true),
            ("不吃辣", false),
            ("Bob has 142", false),
            ("penicillin", true),
        ] {
            assert_eq!(both.matches(text), found, "{text}");
        }
    }

    #[test]
    fn e02_only_the_sentences_that_hold_it_go() {
        let found = needles(&["penicillin"]);
        assert_eq!(
            found.redact("Book the flight. I am allergic to Penicillin! Pay by card.").as_deref(),
            Some("Book the flight. [erased]. Pay by card.")
        );
        assert_eq!(
            needles(&["青霉素过敏"]).redact("订机票。我青霉素 过敏。用卡付。").as_deref(),
            Some("订机票。[erased]。用卡付。")
        );
        assert_eq!(found.redact("penicillin").as_deref(), Some(MARKER));
        assert_eq!(needles(&["erased"]).redact("It was erased.").as_deref(), Some(MARKER));
        assert_eq!(
            needles(&["blue moss and grey stone"]).redact("I saw blue moss. And grey stone, too.").as_deref(),
            Some(MARKER)
        );
    }

    #[test]
    fn e02_the_escapes_of_json_hide_nothing() {
        let found = needles(&["香菜过敏"]);
        let json = r#"{"note": "\u9999\u83dc\u8fc7\u654f", "bad": "\u12", "end": "\uD83E\uDD84"}"#;
        assert!(found.matches(json) && found.matches_bytes(json.as_bytes()));
        assert_eq!(found.redact(json).as_deref(), Some(MARKER));
        assert!(needles(&["🦄🦄🦄🦄"]).matches_bytes(br"\ud83e\udd84\ud83e\udd84\ud83e\udd84\ud83e\udd84"));
    }

    #[test]
    fn e02_bytes_are_searched_whatever_stands_around() {
        let found = needles(&["1234-canary"]);
        assert!(found.matches_bytes(b"\x0a\x355\xff1234 CANARYx\x12") && !found.matches_bytes(b"12 canary"));
    }

    proptest! {
        #[test]
        fn e02_hidden_characters_case_width_and_separators_hide_nothing(
            word in "[a-z]{4,12}", digits in "[1-9][0-9]{5}", noise in prop::collection::vec(0_usize..6, 30),
            before in "[ a-z]{0,12} ", after in " [ a-z]{0,12}",
        ) {
            let canary = format!("{word} {digits}");
            let mut hidden = String::new();
            for (c, n) in canary.chars().zip(noise.iter().cycle()) {
                match n {
                    0 => hidden.push('\u{200b}'),
                    1 => hidden.push('\u{2060}'),
                    2 if !c.is_ascii_digit() => hidden.push('-'),
                    _ => {}
                }
                match n {
                    3 => hidden.extend(c.to_uppercase()),
                    4 if c.is_ascii_graphic() => hidden.extend(char::from_u32(c as u32 - 0x21 + 0xff01)),
                    _ => hidden.push(c),
                }
            }
            let text = format!("{before}{hidden}{after}");
            let found = needles(&[&canary]);
            prop_assert!(found.matches(&text), "{:?}", text);
            let redacted = found.redact(&text).expect("found");
            prop_assert!(!found.matches(&redacted));
        }

        #[test]
        fn e02_redaction_never_panics_and_is_final(text in "\\PC{0,60}", needle in "\\PC{1,12}") {
            let found = needles(&[&needle]);
            if let Some(redacted) = found.redact(&text) {
                prop_assert!(!found.matches(&redacted), "{:?}", redacted);
            }
        }
    }
}
