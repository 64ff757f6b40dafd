//! Cue phrases as data: a table of wordings becomes one regular expression.

use regex::Regex;

/// Compiles wordings into one expression, case ignored. English ones stand between ASCII word boundaries, so that they
/// are found inside Chinese text too ("先用 v2 for now吧"); Chinese ones stand anywhere.
///
/// # Panics
/// When a wording is no regular expression: the tables are constants, and tests compile each.
pub(crate) fn compile(en: &[&str], zh: &[&str]) -> Regex {
    let mut parts = Vec::with_capacity(2);
    if !en.is_empty() {
        parts.push(format!(r"(?-u:\b)(?:{})(?-u:\b)", en.join("|")));
    }
    if !zh.is_empty() {
        parts.push(format!("(?:{})", zh.join("|")));
    }
    regex(&format!("(?i){}", parts.join("|")))
}

/// Compiles one constant expression.
///
/// # Panics
/// As [`compile`].
pub(crate) fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("pattern tables are constants, and tests compile each")
}

/// A copy with every match blanked out, byte for byte, so that a phrase that only looks like a cue ("不错", "never mind")
/// does not count as one.
pub(crate) fn without(text: &str, phrases: &Regex) -> String {
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for found in phrases.find_iter(text) {
        out.push_str(&text[from..found.start()]);
        out.extend(std::iter::repeat_n('\u{1}', found.len()));
        from = found.end();
    }
    out.push_str(&text[from..]);
    out
}
