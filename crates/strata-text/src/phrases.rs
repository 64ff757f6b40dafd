//! Cue phrases as data: a table of wordings becomes expressions, of which only those that can match a text are run over it.

use crate::literals::Filter;
use crate::pattern::Pattern;
use std::borrow::Cow;
use std::ops::Range;

/// Expressions that are looked for together. A table of hundreds, compiled into one, makes states by the thousand out of every
/// sentence; here each is a small expression of its own, compiled when a text first holds what it needs.
#[derive(Debug)]
pub(crate) struct Table(Listed<()>);

impl Table {
    fn new(expressions: impl Iterator<Item = String>) -> Self {
        Self(Listed::new(expressions.map(|expression| (expression, ()))))
    }

    fn candidates(&self, text: &str) -> impl Iterator<Item = &Pattern> {
        self.0.candidates(text).map(|(pattern, ())| pattern)
    }

    /// Whether any wording stands in the text.
    pub(crate) fn is_match(&self, text: &str) -> bool {
        self.candidates(text).any(|wording| wording.is_match(text))
    }

    /// Whether any wording stands in the text beside those that only look like one ([`without`]).
    pub(crate) fn says(&self, text: &str, only_like: &Self) -> bool {
        self.is_match(&without(text, only_like))
    }

    /// What the group of that name holds in the first wording in the text.
    pub(crate) fn group<'t>(&self, text: &'t str, name: &str) -> Option<&'t str> {
        let all = self.candidates(text).filter_map(|wording| wording.captures(text));
        let first = all.min_by_key(|groups| groups.get(0).map(|found| found.start()))?;
        first.name(name).map(|found| found.as_str())
    }

    /// Where wordings stand in the text that do not overlap, in its order. Of two that begin together the earlier one of the
    /// table counts.
    pub(crate) fn find_iter(&self, text: &str) -> impl Iterator<Item = Range<usize>> {
        let mut next: Vec<(&Pattern, Range<usize>)> =
            self.candidates(text).filter_map(|wording| Some((wording, wording.find(text)?.range()))).collect();
        let mut from = 0;
        std::iter::from_fn(move || {
            next.retain_mut(|(wording, found)| {
                while found.start < from {
                    match wording.find_at(text, from) {
                        Some(later) => *found = later.range(),
                        None => return false,
                    }
                }
                true
            });
            // `min_by_key` keeps the earlier one of equals.
            let found = next.iter().map(|(_, found)| found).min_by_key(|found| found.start)?.clone();
            from = found.end;
            Some(found)
        })
    }
}

/// A table of wordings, case ignored. English ones stand between ASCII word boundaries, so that they are found inside Chinese
/// text too ("先用 v2 for now吧"); Chinese ones stand anywhere.
///
/// # Panics
/// When a wording is no regular expression: the tables are constants, and tests compile each.
pub(crate) fn compile(en: &[&str], zh: &[&str]) -> Table {
    // After what stands at the end of the text no word can go on, and there may be a full stop.
    let (last, inside): (Vec<&str>, Vec<&str>) = en.iter().partition(|wording| wording.ends_with('$'));
    let inside = inside.iter().map(|wording| format!(r"(?i)(?-u:\b)(?:{wording})(?-u:\b)"));
    let last = last.iter().map(|wording| format!(r"(?i)(?-u:\b)(?:{wording})"));
    Table::new(inside.chain(last).chain(zh.iter().map(|wording| format!("(?i){wording}"))))
}

/// A table of whole expressions, case ignored, none of them with a boundary of its own. A name in angle brackets stands for a
/// class of words: with `("<be>", "is|are")`, `it <be> late` reads `it (?:is|are) late`. Classes may use others, never
/// themselves.
///
/// # Panics
/// As [`compile`].
pub(crate) fn table(classes: &[(&str, &str)], expressions: &[&str]) -> Table {
    let whole = |expression: &&str| {
        let mut pattern = format!("(?i){expression}");
        while let Some((name, words)) = classes.iter().find(|(name, _)| pattern.contains(name)) {
            pattern = pattern.replace(name, &format!("(?:{words})"));
        }
        pattern
    };
    Table::new(expressions.iter().map(whole))
}

/// Letters by blocks: what `\p{L}` names, with the few signs and marks that lie among the letters of a block. Spelled out, the
/// classes of Unicode take hundreds of states, and `[\w.-]{2,40}` has them forty times: megabytes an expression.
const LETTERS: &str = r"A-Za-z\u{aa}\u{b5}\u{ba}\u{c0}-\u{d6}\u{d8}-\u{f6}\u{f8}-\u{2c1}\u{300}-\u{374}\u{37f}-\u{52f}\u{531}-\u{5f2}\u{610}-\u{669}\u{66e}-\u{963}\u{966}-\u{1fff}\u{2c00}-\u{2dff}\u{3005}-\u{3007}\u{3041}-\u{3096}\u{309d}-\u{309f}\u{30a1}-\u{30fa}\u{30fc}-\u{31ff}\u{3400}-\u{d7ff}\u{f900}-\u{fdcf}\u{fe70}-\u{fefc}\u{10000}-\u{1efff}\u{20000}-\u{323af}";

/// Classes and what is written instead: what stands before the letters, whether they stand there, what stands behind them.
const CLASSES: &[(&str, (&str, bool, &str))] = &[
    (r"\w", ("[", true, "0-9_]")),
    (r"\W", ("[^", true, "0-9_]")),
    (r"\p{L}", ("[", true, "]")),
    (r"\p{N}", ("[0-9", false, "]")),
    (r"\d", ("[0-9", false, "]")),
    (r"\D", ("[^0-9", false, "]")),
];

/// The same expression over small classes. Expressions read cleaned texts, whose digits are ASCII.
///
/// A class with the letters has both cases of each, and so does the bracket that it stands in: `(?i)` is off there, since to
/// fold it would go through a hundred thousand letters for each class.
pub(crate) fn compact(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    // Open brackets, where the outermost one begins in the output, and whether it holds the letters.
    let (mut depth, mut start, mut lettered) = (0, 0, false);
    let mut rest = pattern;
    while let Some(at) = rest.find(['\\', '[', ']']) {
        let (before, special) = rest.split_at(at);
        out.push_str(before);
        if special.starts_with('[') {
            if depth == 0 {
                (start, lettered) = (out.len(), false);
            }
            depth += 1;
        }
        let found = CLASSES.iter().find_map(|(class, small)| Some((special.strip_prefix(class)?, small)));
        let end = match found {
            Some((after, (open, letters, close))) => {
                if depth == 0 {
                    (start, lettered) = (out.len(), false);
                }
                lettered |= letters;
                out.extend([*open, if *letters { LETTERS } else { "" }, *close]);
                special.len() - after.len()
            }
            None => {
                // Of an escape the character too.
                let length = if special.starts_with('\\') { 2 } else { 1 };
                let end = special.char_indices().nth(length).map_or(special.len(), |(end, _)| end);
                out.push_str(&special[..end]);
                end
            }
        };
        if special.starts_with(']') {
            depth -= 1;
        }
        if depth == 0 && std::mem::take(&mut lettered) {
            out.insert_str(start, "(?-i:");
            out.push(')');
        }
        rest = &special[end..];
    }
    out.push_str(rest);
    out
}

/// One constant expression, its classes made small ([`compact`]).
pub(crate) fn regex(pattern: &str) -> Pattern {
    Pattern::constant(compact(pattern))
}

/// A copy with every match blanked out, byte for byte, so that a phrase that only looks like a cue ("不错", "never mind")
/// does not count as one.
pub(crate) fn without<'t>(text: &'t str, phrases: &Table) -> Cow<'t, str> {
    let mut found = phrases.find_iter(text).peekable();
    if found.peek().is_none() {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for found in found {
        out.push_str(&text[from..found.start]);
        out.extend(std::iter::repeat_n('\u{1}', found.len()));
        from = found.end;
    }
    out.push_str(&text[from..]);
    Cow::Owned(out)
}

/// Expressions that are tried one after the other, each with what it stands for.
#[derive(Debug)]
pub(crate) struct Listed<T>(Filter<(Pattern, T)>);

impl<T> Listed<T> {
    /// Reads constant expressions.
    ///
    /// # Panics
    /// As [`compile`].
    pub(crate) fn new(expressions: impl IntoIterator<Item = (String, T)>) -> Self {
        let patterns = expressions.into_iter().map(|(expression, item)| {
            let pattern = regex(&expression);
            (pattern.as_str().to_owned(), (pattern, item))
        });
        Self(Filter::new(patterns).expect("tables are constants, and tests compile each"))
    }

    /// Those that can match, in their order.
    pub(crate) fn candidates(&self, text: &str) -> impl Iterator<Item = &(Pattern, T)> {
        self.0.candidates(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use regex::Regex;

    #[test]
    fn small_classes_name_what_the_large_ones_do() {
        let texts = "az AZ 09 _ é ß ø ж Щ ا ש ไ क 你 𠀀 カ ひ ー 한 々 · , 。 「 ， 😀 ♥ ① – ’ × ÷ € \u{200b} \u{2028} \t";
        for (class, _) in CLASSES {
            let (large, small) = (Regex::new(class).expect("a class"), regex(class));
            let (outside, inside) = (Regex::new(&format!("[^a{class}]")).expect("a class"), regex(&format!("[^a{class}]")));
            // What folds to a digit is one in a cleaned text.
            for text in texts.chars().filter(|c| *c != '①').map(String::from) {
                assert_eq!(large.is_match(&text), small.is_match(&text), "{class} {text}");
                assert_eq!(outside.is_match(&text), inside.is_match(&text), "{class} {text}");
            }
        }
        assert_eq!(compact(r"\\w\.(?-u:\b)\p{Han}"), r"\\w\.(?-u:\b)\p{Han}", "other escapes stay");
        assert_eq!(compact(r"[\d:\]]+[a-f]\W"), format!(r"[[0-9]:\]]+[a-f](?-i:[^{LETTERS}0-9_])"));
        assert_eq!(compact(r"(?i)x[^\w.-]{2}[y]"), format!(r"(?i)x(?-i:[^[{LETTERS}0-9_].-]){{2}}[y]"));
    }

    #[test]
    fn of_two_wordings_that_begin_together_the_earlier_one_counts() {
        let table = compile(&["not", "not at all"], &["不是", "是"]);
        let found = |text: &str| table.find_iter(text).map(|found| text[found].to_owned()).collect::<Vec<_>>();
        assert_eq!(found("not at all, not"), ["not", "not"]);
        assert_eq!(found("这不是他的，是我的"), ["不是", "是"]);
        assert_eq!(without("it is not 不是 so", &table), "it is \u{1}\u{1}\u{1} \u{1}\u{1}\u{1}\u{1}\u{1}\u{1} so");
        assert!(matches!(without("nothing", &table), Cow::Borrowed(_)));
    }
}
