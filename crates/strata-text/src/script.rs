//! Scripts of characters. Language is told by script share, not by a statistical detector: those fail on short and on
//! mixed text ("ok", "deploy 用哪个 region").

use strata_core::text::Language;

/// Han ideographs, with the extensions and the compatibility block.
#[must_use]
pub const fn is_han(c: char) -> bool {
    matches!(c, '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{323af}' | '々' | '〇')
}

/// Hiragana and katakana, with the long-vowel mark.
#[must_use]
pub const fn is_kana(c: char) -> bool {
    matches!(c, '\u{3041}'..='\u{3096}' | '\u{309d}'..='\u{309f}' | '\u{30a1}'..='\u{30fa}' | '\u{30fc}'..='\u{30ff}' | '\u{31f0}'..='\u{31ff}')
}

/// Hangul syllables and letters.
#[must_use]
pub const fn is_hangul(c: char) -> bool {
    matches!(c, '\u{1100}'..='\u{11ff}' | '\u{3130}'..='\u{318f}' | '\u{a960}'..='\u{a97f}' | '\u{ac00}'..='\u{d7ff}')
}

/// Written without spaces between words, or (Hangul) with endings glued on: searched by substring.
#[must_use]
pub const fn is_cjk(c: char) -> bool {
    is_han(c) || is_kana(c) || is_hangul(c)
}

/// Letters, digits and ideographs: the content characters of rule G5.
#[must_use]
pub fn is_content(c: char) -> bool {
    c.is_alphanumeric()
}

/// Language of a text by script share. A Han character weighs as three letters, about what it says; any kana or Hangul
/// that outweighs both makes it other. A text without letters is English (nothing in it is language).
#[must_use]
pub fn language(text: &str) -> Language {
    let (mut latin, mut han, mut other) = (0_u64, 0_u64, 0_u64);
    for c in text.chars() {
        if is_han(c) {
            han += 3;
        } else if is_kana(c) || is_hangul(c) {
            other += 3;
        } else if c.is_alphabetic() {
            if c.is_ascii() || matches!(c, '\u{c0}'..='\u{24f}' | '\u{ff21}'..='\u{ff5a}') {
                latin += 1;
            } else {
                other += 1;
            }
        }
    }
    // Japanese is a mixture: kana beside Han is Japanese unless it is a mere sprinkle.
    if other > latin && other * 8 >= han {
        Language::Other
    } else if han >= latin && han > 0 {
        Language::Chinese
    } else {
        Language::English
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn language_is_told_by_script_share() {
        for (text, expected) in [
            ("The user prefers email over phone.", Language::English),
            ("ok", Language::English),
            ("", Language::English),
            ("42", Language::English),
            ("café au lait", Language::English),
            ("Ｈｅｌｌｏ", Language::English),
            ("我不吃辣", Language::Chinese),
            ("deploy 用哪个 region", Language::English),
            ("帮我部署到 staging 环境", Language::Chinese),
            ("我在 Kubernetes 上部署了 Redis cluster", Language::English),
            ("東京の予算承認は月曜日", Language::Other),
            ("배포 점검표는 스테이징에서 확인", Language::Other),
            ("مرحبا بالعالم", Language::Other),
            ("Привет, мир", Language::Other),
        ] {
            assert_eq!(language(text), expected, "{text}");
        }
    }
}
