//! Regular expressions over whose automata all threads share one memory.

use parking_lot::Mutex;
use regex_automata::util::{captures, iter::Searcher, syntax};
use regex_automata::{Input, PatternID, Span, meta};
use std::ops::{Index, Range};
use std::sync::OnceLock;

/// Bytes that an expression of a policy file or of a registry may take, compiled: both are configuration, and a bad one must not
/// eat the memory.
const FOREIGN_SIZE: usize = 1 << 20;

/// One expression, with the meaning and the methods that the crate `regex` gives it, compiled when it is first run.
///
/// That crate keeps a memory of the automaton for each thread: with all expressions of this crate that was some 30 MB a thread,
/// and more threads where there are more processors. Here it is one for all, lent for one search at a time, which takes
/// microseconds.
#[derive(Debug)]
pub(crate) struct Pattern {
    expression: String,
    compiled: OnceLock<(meta::Regex, Mutex<meta::Cache>)>,
}

impl Pattern {
    /// A constant expression. When it is no regular expression, the first search panics.
    pub(crate) const fn constant(expression: String) -> Self {
        Self { expression, compiled: OnceLock::new() }
    }

    /// Compiles an expression that somebody else wrote, case ignored.
    ///
    /// # Errors
    /// What is wrong with it: it is no regular expression, or it takes more than [`FOREIGN_SIZE`].
    pub(crate) fn foreign(expression: &str) -> Result<Self, String> {
        let regex = meta::Regex::builder()
            .configure(meta::Config::new().nfa_size_limit(Some(FOREIGN_SIZE)))
            .syntax(syntax::Config::new().case_insensitive(true))
            .build(expression)
            .map_err(|error| match error.syntax_error() {
                Some(error) => error.to_string(),
                None => format!("it takes more than {FOREIGN_SIZE} bytes"),
            })?;
        Ok(Self { expression: expression.to_owned(), compiled: OnceLock::from(with_cache(regex)) })
    }

    fn compiled(&self) -> &(meta::Regex, Mutex<meta::Cache>) {
        let compile = || with_cache(meta::Regex::new(&self.expression).expect("constants compile, and tests run each"));
        self.compiled.get_or_init(compile)
    }

    /// One search. What a caller does with its result comes after it: the same expression may be run there.
    fn run<T>(&self, search: impl FnOnce(&meta::Regex, &mut meta::Cache) -> T) -> T {
        let (regex, cache) = self.compiled();
        search(regex, &mut cache.lock())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.expression
    }

    /// Whether a group has this name.
    pub(crate) fn has_group(&self, name: &str) -> bool {
        self.compiled().0.group_info().to_index(PatternID::ZERO, name).is_some()
    }

    pub(crate) fn is_match(&self, text: &str) -> bool {
        self.run(|regex, cache| regex.search_half_with(cache, &Input::new(text).earliest(true))).is_some()
    }

    /// The first match that begins at this byte or behind it; what stands before it is looked at (`\b`).
    pub(crate) fn find_at<'t>(&self, text: &'t str, from: usize) -> Option<Match<'t>> {
        let found = self.run(|regex, cache| regex.search_with(cache, &Input::new(text).range(from..)))?;
        Some(Match { text, at: found.span() })
    }

    pub(crate) fn find<'t>(&self, text: &'t str) -> Option<Match<'t>> {
        self.find_at(text, 0)
    }

    pub(crate) fn find_iter<'t>(&self, text: &'t str) -> impl Iterator<Item = Match<'t>> {
        let mut searcher = Searcher::new(Input::new(text));
        std::iter::from_fn(move || {
            let found = searcher.advance(|input| Ok(self.run(|regex, cache| regex.search_with(cache, input))))?;
            Some(Match { text, at: found.span() })
        })
    }

    pub(crate) fn captures<'t>(&self, text: &'t str) -> Option<Captures<'t>> {
        self.captures_iter(text).next()
    }

    pub(crate) fn captures_iter<'t>(&self, text: &'t str) -> impl Iterator<Item = Captures<'t>> {
        let mut searcher = Searcher::new(Input::new(text));
        std::iter::from_fn(move || {
            let mut groups = self.compiled().0.create_captures();
            searcher.advance(|input| {
                self.run(|regex, cache| regex.search_captures_with(cache, input, &mut groups));
                Ok(groups.get_match())
            })?;
            Some(Captures { text, groups })
        })
    }

    /// What stands between the matches, before the first, and behind the last.
    pub(crate) fn split<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        let ends = self.find_iter(text).map(|found| found.range()).chain(std::iter::once(text.len()..text.len()));
        let mut from = 0;
        ends.map(move |end| &text[std::mem::replace(&mut from, end.end)..end.start])
    }

    /// The text with something else in the place of each match.
    pub(crate) fn replace_all<'t, R: AsRef<str>>(&self, text: &'t str, with: impl Fn(&Captures<'t>) -> R) -> String {
        let mut out = String::with_capacity(text.len());
        let mut from = 0;
        for found in self.captures_iter(text) {
            let Some(whole) = found.get(0) else { continue };
            out.push_str(&text[from..whole.start()]);
            out.push_str(with(&found).as_ref());
            from = whole.end();
        }
        out.push_str(&text[from..]);
        out
    }
}

fn with_cache(regex: meta::Regex) -> (meta::Regex, Mutex<meta::Cache>) {
    let cache = Mutex::new(regex.create_cache());
    (regex, cache)
}

/// Where an expression, or a group of it, matched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Match<'t> {
    text: &'t str,
    at: Span,
}

impl<'t> Match<'t> {
    pub(crate) const fn start(self) -> usize {
        self.at.start
    }

    pub(crate) const fn end(self) -> usize {
        self.at.end
    }

    pub(crate) fn range(self) -> Range<usize> {
        self.at.range()
    }

    pub(crate) fn as_str(self) -> &'t str {
        &self.text[self.range()]
    }
}

/// What the groups of an expression matched. Group 0 is the whole; indexing panics for a group that matched nothing.
#[derive(Debug)]
pub(crate) struct Captures<'t> {
    text: &'t str,
    groups: captures::Captures,
}

impl<'t> Captures<'t> {
    pub(crate) fn get(&self, group: usize) -> Option<Match<'t>> {
        self.groups.get_group(group).map(|at| Match { text: self.text, at })
    }

    pub(crate) fn name(&self, group: &str) -> Option<Match<'t>> {
        self.groups.get_group_by_name(group).map(|at| Match { text: self.text, at })
    }
}

impl Index<usize> for Captures<'_> {
    type Output = str;

    fn index(&self, group: usize) -> &str {
        self.get(group).expect("the group matched").as_str()
    }
}

impl Index<&str> for Captures<'_> {
    type Output = str;

    fn index(&self, group: &str) -> &str {
        self.name(group).expect("the group matched").as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pattern(expression: &str) -> Pattern {
        Pattern::constant(expression.to_owned())
    }

    proptest! {
        #[test]
        fn expressions_mean_what_they_mean_to_the_crate_regex(
            expression in prop::sample::select(&[
                "", "a*", "(?i)b|", r"\b", r"(?-u:\b)", r"\B", "^", "$", r"(?P<x>a)|(?P<y>b)?", r"(\w)(\w)?", "好(?P<x>吗)?", r"[^a]*?b",
                r"(?i)(a|ab)(c|bcd)(d*)", r"\p{Han}+", "é", ".",
            ][..]),
            text in "[abcdB 好吗é\n]{0,12}",
        ) {
            let (ours, theirs) = (pattern(expression), regex::Regex::new(expression).expect("an expression"));
            prop_assert_eq!(ours.is_match(&text), theirs.is_match(&text));
            let found: Vec<_> = ours.find_iter(&text).map(|found| (found.range(), found.as_str())).collect();
            prop_assert_eq!(&found, &theirs.find_iter(&text).map(|found| (found.range(), found.as_str())).collect::<Vec<_>>());
            prop_assert_eq!(ours.find(&text).map(Match::range), found.first().map(|(at, _)| at.clone()));
            for (from, _) in text.char_indices() {
                let theirs = theirs.find_at(&text, from).map(|found| found.range());
                prop_assert_eq!(ours.find_at(&text, from).map(Match::range), theirs);
            }
            prop_assert_eq!(ours.split(&text).collect::<Vec<_>>(), theirs.split(&text).collect::<Vec<_>>());
            let ours_groups: Vec<_> =
                ours.captures_iter(&text).map(|c| (0..4).map(|n| c.get(n).map(Match::range)).collect::<Vec<_>>()).collect();
            let theirs_groups: Vec<_> =
                theirs.captures_iter(&text).map(|c| (0..4).map(|n| c.get(n).map(|m| m.range())).collect::<Vec<_>>()).collect();
            prop_assert_eq!(ours_groups, theirs_groups);
            for name in ["x", "y"] {
                let name_of_theirs = theirs.captures(&text).and_then(|c| c.name(name).map(|found| found.range()));
                prop_assert_eq!(ours.captures(&text).and_then(|c| c.name(name)).map(Match::range), name_of_theirs);
                prop_assert_eq!(ours.has_group(name), theirs.capture_names().flatten().any(|other| other == name));
            }
            let theirs = theirs.replace_all(&text, |found: &regex::Captures<'_>| format!("<{}>", &found[0]));
            prop_assert_eq!(ours.replace_all(&text, |found| format!("<{}>", &found[0])), theirs);
        }
    }

    #[test]
    fn an_expression_is_run_where_its_own_matches_are_handled() {
        let words = pattern(r"(?P<first>\w)\w*");
        let text = "one two";
        let mut seen = Vec::new();
        for outer in words.find_iter(text) {
            for inner in words.captures_iter(outer.as_str()) {
                let first = words.replace_all(&inner["first"], |found| format!("{}!", words.is_match(&found[0])));
                seen.extend(words.split(&first).flat_map(|_| words.find(&first).map(Match::range)));
            }
        }
        assert_eq!(seen, [0..4, 0..4, 0..4, 0..4], "two parts of `true!` for each word");
    }

    #[test]
    fn threads_read_the_same_with_one_expression() {
        let pattern = pattern(r"(?i)\b(?P<verb>lives?|works?) in (?P<place>\p{Lu}\w+)\b|我住在(?P<han>\p{Han}+)");
        let texts: Vec<String> =
            (0..200).map(|n| format!("She lives in Place{n}ö. 我住在杭州{n} and works IN Town{n}.")).collect();
        let read = || {
            let groups = |text: &String| pattern.captures_iter(text).map(|found| found[0].to_owned()).collect::<Vec<_>>();
            texts.iter().map(groups).collect::<Vec<_>>()
        };
        let expected = read();
        assert!(expected.iter().all(|found| found.len() == 3));
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(read)).collect();
            assert!(all.into_iter().all(|thread| thread.join().expect("ends") == expected));
        });
    }

    #[test]
    fn an_expression_of_somebody_else_ignores_case_and_is_bounded() {
        let pattern = Pattern::foreign("parcel to (?<value>.+)|包裹").expect("an expression");
        assert_eq!(pattern.captures("PARCEL to me").expect("found")["value"], *"me");
        assert!(Pattern::foreign("(").expect_err("refused").contains("unclosed group"));
        assert!(Pattern::foreign(r"\w{2000}").expect_err("refused").contains("1048576 bytes"));
    }
}
