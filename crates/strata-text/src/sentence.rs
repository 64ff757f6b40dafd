//! Sentence splitting for English and Chinese.

use std::ops::Range;

/// Words that end in a full stop without ending a sentence, lower case.
const ABBREVIATIONS: &[&str] = &[
    "mr", "mrs", "ms", "dr", "prof", "sr", "jr", "st", "no", "vs", "etc", "e.g", "i.e", "eg", "ie", "inc", "ltd", "co", "corp",
    "dept", "fig", "al", "approx", "tel", "ext", "a.m", "p.m", "u.s", "jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep",
    "sept", "oct", "nov", "dec", "mon", "tue", "wed", "thu", "fri",
];

/// Byte ranges of the sentences of a text, in order, not overlapping, without white space at their ends, never empty.
/// Ends at `。！？!?…`, at a line break, and at a full stop that is followed by white space and neither an abbreviation's,
/// an initial's nor a number's; closing quotes and brackets belong to the sentence they close.
#[must_use]
pub fn sentence_spans(text: &str) -> Vec<Range<usize>> {
    let mut spans = Vec::new();
    let mut start = 0;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let ends = match c {
            '\n' | '\r' | '\u{2028}' | '\u{2029}' | '。' | '！' | '？' | '｡' => true,
            '!' | '?' | '…' => {
                let next = chars.peek().map(|n| n.1);
                next.is_none_or(|n| n.is_whitespace() || is_closing(n) || !n.is_ascii()) && !continues(next)
            }
            '.' => full_stop_ends(&text[start..at], &text[at + 1..]),
            _ => false,
        };
        if !ends {
            continue;
        }
        let mut end = at + c.len_utf8();
        while let Some((i, n)) = chars.peek().copied() {
            if !is_closing(n) && !continues(Some(n)) {
                break;
            }
            end = i + n.len_utf8();
            chars.next();
        }
        push(text, start..end, &mut spans);
        start = end;
    }
    push(text, start..text.len(), &mut spans);
    spans
}

/// The sentences themselves.
#[must_use]
pub fn sentences(text: &str) -> Vec<&str> {
    sentence_spans(text).into_iter().map(|span| &text[span]).collect()
}

fn push(text: &str, span: Range<usize>, spans: &mut Vec<Range<usize>>) {
    let raw = &text[span.clone()];
    let from = span.start + raw.len() - raw.trim_start().len();
    let trimmed = raw.trim();
    if !trimmed.is_empty() {
        spans.push(from..from + trimmed.len());
    }
}

/// Another terminator: "?!", "……".
fn continues(next: Option<char>) -> bool {
    matches!(next, Some('!' | '?' | '！' | '？' | '。' | '…'))
}

const fn is_closing(c: char) -> bool {
    matches!(c, '"' | '\'' | ')' | ']' | '}' | '”' | '’' | '」' | '』' | '）' | '】' | '》')
}

fn full_stop_ends(before: &str, after: &str) -> bool {
    let next = after.chars().find(|c| !is_closing(*c));
    if next.is_some_and(|n| !n.is_whitespace()) {
        return false;
    }
    let word = before.rsplit(|c: char| c.is_whitespace() || matches!(c, '(' | '"')).next().unwrap_or_default();
    let lower = word.to_lowercase();
    if ABBREVIATIONS.contains(&lower.as_str()) {
        // "No." ends a sentence unless a number follows; "a.m." unless a lower-case word follows.
        let following = after.trim_start().chars().next();
        return following.is_none_or(|c| match lower.as_str() {
            "no" => !c.is_ascii_digit(),
            "etc" | "a.m" | "p.m" | "inc" | "ltd" | "co" | "corp" => c.is_uppercase(),
            _ => false,
        });
    }
    // An initial: "J. Smith"; the pronoun ends sentences.
    let initial = word.chars().count() == 1 && word.chars().all(|c| c.is_ascii_uppercase() && c != 'I');
    // A list number: "1. Tea"
    let numbered = !word.is_empty() && before.trim_start() == word && word.chars().all(|c| c.is_ascii_digit());
    !initial && !numbered
}

/// Whether a cleaned sentence is marked as a question: by its sign, or by 吗.
pub(crate) fn is_question(cleaned: &str) -> bool {
    let end = cleaned.trim_end_matches(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ')' | '”' | '」'));
    end.ends_with(['?', '？']) || end.trim_end_matches(['。', '.']).ends_with('吗')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_english_and_chinese() {
        for (text, expected) in [
            ("One. Two! Three?", vec!["One.", "Two!", "Three?"]),
            ("我不吃辣。我对花生过敏！真的？", vec!["我不吃辣。", "我对花生过敏！", "真的？"]),
            ("Dr. Smith paid 3.50 at 2 p.m. today. Done.", vec!["Dr. Smith paid 3.50 at 2 p.m. today.", "Done."]),
            ("See v1.2.3 of example.com now. Ok", vec!["See v1.2.3 of example.com now.", "Ok"]),
            ("他说：“走吧。”然后走了。", vec!["他说：“走吧。”", "然后走了。"]),
            ("What?! Really…… 好吧", vec!["What?!", "Really……", "好吧"]),
            ("line one\nline two\r\n\r\nthree", vec!["line one", "line two", "three"]),
            ("It is No. 5. No. 不要。", vec!["It is No. 5.", "No.", "不要。"]),
            ("1. Tea\n2. Coffee", vec!["1. Tea", "2. Coffee"]),
            ("J. R. Smith came. So did I. Fine.", vec!["J. R. Smith came.", "So did I.", "Fine."]),
            ("", vec![]),
            (" \n ", vec![]),
            ("👍", vec!["👍"]),
        ] {
            assert_eq!(sentences(text), expected, "{text:?}");
        }
    }
}
