//! Cleaned copies of a text: what a reader sees, without what hides. A copy is for scanning and for comparison only;
//! stored text stays as it was written (case C081: emoji joiners and Persian non-joiners keep their meaning).

use crate::script::is_cjk;
use std::ops::Range;
use strata_core::id::is_hidden;
use unicode_normalization::UnicodeNormalization;

/// A scanning copy with a way back: compatibility forms folded (full-width, circled, ligatures), foreign decimal digits
/// to ASCII, typographic hyphens and quotes to ASCII, invisible characters dropped. Letters keep their case.
#[derive(Clone, Debug)]
pub struct Cleaned {
    /// The copy.
    pub text: String,
    /// For every byte of the copy: first byte of the original character it came from, and the byte after it.
    origin: Vec<(u32, u32)>,
}

impl Cleaned {
    /// Cleans a text. Linear in its length; text beyond 4 GiB is not representable and not scanned.
    #[must_use]
    pub fn new(original: &str) -> Self {
        let mut text = String::with_capacity(original.len());
        let mut origin = Vec::with_capacity(original.len());
        for (start, c) in original.char_indices() {
            let Ok(from) = u32::try_from(start) else { break };
            let to = from + c.len_utf8() as u32;
            if is_dropped(c) {
                continue;
            }
            let before = text.len();
            match fold(c) {
                Some(folded) => text.push(folded),
                None if c.is_ascii() || is_cjk(c) => text.push(c),
                None => text.extend(std::iter::once(c).nfkc().map(|c| fold(c).unwrap_or(c))),
            }
            origin.resize(origin.len() + text.len() - before, (from, to));
        }
        Self { text, origin }
    }

    /// Byte range of the original that a byte range of the copy came from. An empty or foreign range gives 0..0.
    #[must_use]
    pub fn original(&self, range: Range<usize>) -> Range<usize> {
        let first = self.origin.get(range.start);
        let last = range.end.checked_sub(1).and_then(|i| self.origin.get(i));
        match (first, last) {
            (Some(first), Some(last)) if range.start < range.end => first.0 as usize..last.1 as usize,
            _ => 0..0,
        }
    }
}

/// Not seen by a reader: control (white space apart), zero-width, bidi, tag characters, variation selectors, the
/// enclosing keycap.
const fn is_dropped(c: char) -> bool {
    (is_hidden(c) && !matches!(c, '\t' | '\n' | '\r' | '\u{2028}' | '\u{2029}'))
        || matches!(c, '\u{fe00}'..='\u{fe0f}' | '\u{20e3}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' | '\u{180e}' | '\u{e0100}'..='\u{e01ef}')
}

/// First code points of the decimal digits that NFKC leaves alone, ten in a row each.
const DIGIT_ZEROS: &[u32] =
    &[0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xe50, 0xed0, 0xf20, 0x1040];

fn fold(c: char) -> Option<char> {
    match c {
        '\u{2018}' | '\u{2019}' | '\u{201b}' | '\u{2032}' => Some('\''),
        '\u{201c}' | '\u{201d}' | '\u{2033}' => Some('"'),
        '\u{2010}'..='\u{2013}' | '\u{2212}' | '\u{fe63}' | '\u{ff0d}' => Some('-'),
        '\u{2028}' | '\u{2029}' => Some('\n'),
        // A foreign letter that looks like a Latin one is left alone: folding it would change words of that language.
        _ if (c as u32) >= 0x660 && (c as u32) < 0x1050 => DIGIT_ZEROS
            .iter()
            .find_map(|zero| (c as u32).checked_sub(*zero).filter(|d| *d < 10))
            .and_then(|d| char::from_digit(d, 10)),
        _ => None,
    }
}

/// Text without characters a reader does not see, NFKC, lower case: the base of keyword analysis.
#[must_use]
pub fn searchable(text: &str) -> String {
    let visible: String = text.chars().filter(|c| !is_dropped(*c)).collect();
    // Lower case first decomposes (İ), so composition comes last: the result is its own normal form.
    visible.nfkc().flat_map(|c| fold(c).unwrap_or(c).to_lowercase()).nfkc().collect()
}

/// Normal form for deduplication (rule G10, cases C053 and C054): NFKC, lower case, invisible characters dropped, Chinese
/// punctuation as ASCII, white space to one space and none beside ideographs or before punctuation, closing `.`, `!`, `,`
/// and `;` dropped. Numbers, signs, `?` and words are never changed, so what differs in meaning stays apart.
#[must_use]
pub fn normal(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut gap = false;
    for c in searchable(text).chars() {
        if c.is_whitespace() {
            gap = true;
            continue;
        }
        let c = match c {
            '。' | '｡' => '.',
            '、' | '､' => ',',
            '「' | '」' | '『' | '』' => '"',
            other => other,
        };
        if gap && let Some(previous) = out.chars().next_back() {
            let closes = matches!(c, ',' | '.' | ';' | ':' | '!' | '?' | ')' | ']');
            let glued = is_cjk(previous) || is_cjk(c) || (!previous.is_ascii() && !previous.is_alphanumeric());
            if !closes && !glued {
                out.push(' ');
            }
        }
        gap = false;
        out.push(c);
    }
    let kept = out.trim_end_matches(['.', '!', ',', ';', '…', '~']).trim_end().len();
    out.truncate(kept);
    // A blank that is dropped may bring a combining mark next to another letter.
    out.nfkc().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c081_cleaned_copy_sees_through_and_maps_back() {
        for (text, seen) in [
            ("1\u{200b}3\u{200b}8", "138"),
            ("１３８", "138"),
            ("s\u{ad}k-abc", "sk-abc"),
            ("\u{202e}321\u{202c}", "321"),
            ("a\u{e0041}b", "ab"),
            ("١٢٣", "123"),
            ("1\u{fe0f}\u{20e3}2\u{fe0f}\u{20e3}", "12"),
            ("don’t – 5", "don't - 5"),
        ] {
            let cleaned = Cleaned::new(text);
            assert_eq!(cleaned.text, seen, "{text:?}");
            let all = cleaned.original(0..cleaned.text.len());
            assert!(text.is_char_boundary(all.start) && text.is_char_boundary(all.end));
        }
        let text = "号：１\u{200b}３８。";
        let cleaned = Cleaned::new(text);
        let at = cleaned.text.find("138").expect("digits");
        assert_eq!(&text[cleaned.original(at..at + 3)], "１\u{200b}３８");
    }

    #[test]
    fn c053_what_is_dropped_comes_back_by_no_compatibility_form() {
        for c in (0..=0x0010_ffff).filter_map(char::from_u32) {
            let once = searchable(&format!("a{c}b"));
            assert_eq!(searchable(&once), once, "{c:?}");
            assert!(!once.chars().any(is_dropped) && !Cleaned::new(&once).text.chars().any(is_dropped), "{c:?}");
        }
        assert_eq!(normal("sk\u{ffa0}-abc"), "sk-abc");
    }

    #[test]
    fn c053_c054_normal_form_joins_spelling_and_keeps_meaning() {
        for (a, b) in [
            ("不吃辣。", " 不 吃辣 "),
            ("用户不吃辣，忌口海鲜", "用户不吃辣, 忌口海鲜。"),
            ("No spicy food, please!", "no  spicy food , please"),
            ("Ｎｏ ｓｐｉｃｙ", "no spicy"),
            ("no\u{200b} spicy", "no spicy"),
        ] {
            assert_eq!(normal(a), normal(b));
        }
        for (a, b) in [
            ("daily transfer limit is 5000 yuan", "daily transfer limit is 50000 yuan"),
            ("flight on 3 May", "flight on 8 May"),
            ("is allergic to penicillin", "is not allergic to penicillin"),
            ("order INV-102", "order INV-120"),
            ("it is 5", "it is -5"),
            ("tea?", "tea"),
        ] {
            assert_ne!(normal(a), normal(b));
        }
    }
}
