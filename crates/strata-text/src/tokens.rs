//! The documented token estimator, and cuts that hold a budget (cases C080, C084). No vocabulary: a budget must not
//! depend on which model reads it, and it must charge at least one token for every CJK character.

use crate::script::is_cjk;
use crate::sentence::sentence_spans;
use unicode_segmentation::UnicodeSegmentation;

/// Units in one token: charges below are exact shares of it.
const UNITS: u64 = 12;

/// Charge of one character in twelfths of a token. Letters and spaces: four to the token; digits three, since tokenisers
/// split numbers; ASCII punctuation two; a CJK character or full-width sign one whole token; any other alphabet two
/// letters to the token; emoji and rare symbols two tokens.
const fn charge(c: char) -> u64 {
    match c {
        'a'..='z' | 'A'..='Z' | ' ' | '\t' | '\n' | '\r' => 3,
        '0'..='9' => 4,
        '\u{0}'..='\u{7f}' => 6,
        '\u{80}'..='\u{24f}' => 6,
        _ if is_cjk(c) => 12,
        '\u{3000}'..='\u{303f}' | '\u{ff00}'..='\u{ffef}' => 12,
        '\u{250}'..='\u{1fff}' => 6,
        '\u{2000}'..='\u{206f}' => 6,
        _ => 24,
    }
}

/// Estimated tokens of a text: the sum of its characters' charges, rounded up. Sub-additive
/// (`count(a + b) <= count(a) + count(b)`) and monotone, so the parts of a prompt bound the whole. An empty text has 0.
#[must_use]
pub fn count(text: &str) -> u32 {
    u32::try_from(units(text).div_ceil(UNITS)).unwrap_or(u32::MAX)
}

fn units(text: &str) -> u64 {
    text.chars().map(charge).sum()
}

/// Longest prefix of at most `max_tokens` that ends at a sentence end; when not even the first sentence fits, the longest
/// that ends at a grapheme boundary (case C080: no family emoji is torn). White space at its end is dropped.
#[must_use]
pub fn cut(text: &str, max_tokens: u32) -> &str {
    let budget = u64::from(max_tokens) * UNITS;
    if units(text) <= budget {
        return text;
    }
    let mut spent = 0;
    let (mut end, mut from) = (0, 0);
    for sentence in sentence_spans(text) {
        spent += units(&text[from..sentence.end]);
        if spent > budget {
            break;
        }
        end = sentence.end;
        from = sentence.end;
    }
    if end == 0 {
        let mut spent = 0;
        for (at, grapheme) in text.grapheme_indices(true) {
            spent += units(grapheme);
            if spent > budget {
                break;
            }
            end = at + grapheme.len();
        }
    }
    text[..end].trim_end()
}

/// Longest prefix of at most `max_chars` characters (Unicode scalar values) that ends at a grapheme boundary.
#[must_use]
pub fn cut_chars(text: &str, max_chars: usize) -> &str {
    let (mut end, mut spent) = (0, 0);
    for (at, grapheme) in text.grapheme_indices(true) {
        spent += grapheme.chars().count();
        if spent > max_chars {
            break;
        }
        end = at + grapheme.len();
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLES: &[&str] = &[
        "",
        "a",
        "The user prefers to be contacted by email rather than by phone on weekdays.",
        "用户不吃辣，对花生过敏，周末喜欢爬山。",
        "東京の予算",
        "배포 점검표",
        "Привет, мир",
        "مرحبا",
        "👨‍👩‍👧‍👦🇨🇳é",
        "9007199254740993",
        "{\"a\": [1, 2, 3]}",
        "ＡＢＣ",
    ];

    #[test]
    fn c084_every_cjk_character_costs_a_token() {
        for text in SAMPLES {
            let cjk = text.chars().filter(|c| is_cjk(*c)).count();
            assert!(count(text) as usize >= cjk, "{text}");
        }
        assert_eq!(count(""), 0);
        assert_eq!(count("a"), 1);
        // Near what real tokenisers count: 15 and 17 (o200k).
        assert!((15..=21).contains(&count(SAMPLES[2])), "{}", count(SAMPLES[2]));
        assert!((17..=20).contains(&count(SAMPLES[3])), "{}", count(SAMPLES[3]));
    }

    #[test]
    fn count_is_sub_additive_and_monotone() {
        for a in SAMPLES {
            for b in SAMPLES {
                let joined = count(&format!("{a}{b}"));
                assert!(joined <= count(a) + count(b), "{a} + {b}");
                assert!(joined >= count(a).max(count(b)), "{a} + {b}");
            }
        }
    }

    #[test]
    fn c080_cuts_hold_the_budget_and_tear_no_grapheme() {
        for text in SAMPLES.iter().copied().chain(["第一句。第二句！ Third one. 第四句", "e\u{301}e\u{301}e\u{301}e\u{301}"])
        {
            for budget in 0..40 {
                let part = cut(text, budget);
                assert!(count(part) <= budget, "{text} at {budget}");
                assert!(text.starts_with(part));
                let boundaries: Vec<usize> = text.grapheme_indices(true).map(|(i, _)| i).chain([text.len()]).collect();
                assert!(boundaries.contains(&part.len()), "{text} at {budget}");
            }
            for chars in 0..20 {
                assert!(cut_chars(text, chars).chars().count() <= chars);
            }
        }
        assert_eq!(cut("第一句。第二句很长很长。", 6), "第一句。");
        assert_eq!(cut("One two. Three four five six seven.", 5), "One two.");
        assert_eq!(cut("👨‍👩‍👧‍👦👨‍👩‍👧‍👦", 12), "👨‍👩‍👧‍👦");
    }
}
