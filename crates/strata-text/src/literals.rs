//! What a text must hold for an expression to match it: of each expression a set of literals, one of which stands in every
//! match. All sets are looked for in one pass, so that of a table of hundreds of expressions only the few that can match are
//! run at all.

use aho_corasick::AhoCorasick;
use regex_syntax::hir::{Class, Hir, HirKind};
use std::collections::{BTreeMap, BTreeSet};

/// Literals that one expression may need at most, and that are followed through a sequence: above, the set says nothing that
/// is worth its memory.
const MOST: usize = 256;
/// Letters of a class that are followed one by one.
const MOST_LETTERS: usize = 12;

/// Letters beyond ASCII that fold to an ASCII one: with one of them in a text, everything can match.
const FOLDED: [&str; 2] = ["\u{17f}", "\u{212a}"];

/// Words that most sentences hold: a set of them keeps nothing out.
const COMMON: &[&str] = &[
    "", "i", "i'm", "i am", "my", "me", "we", "we're", "it", "it's", "is", "am", "are", "was", "be", "the", "a", "an", "to",
    "in", "on", "at", "of", "for", "and", "or", "not", "do", "don't", "have", "has", "had", "you", "your", "that", "this",
    "with", "so", "'m", "'s", "'re", "'d", "'ve", "'ll", "he", "she", "they", "can", "will", "would", "no", "我", "我们", "咱",
    "的", "了", "是", "在", "不", "有", "就", "都", "也", "你", "他", "她", "要", "会", "和", "很", "说", "这", "那", "一", "个",
    "没",
];

/// Of many expressions, each with what belongs to it, those that can match a text.
#[derive(Debug)]
pub(crate) struct Filter<T> {
    search: AhoCorasick,
    /// For each literal the places of the expressions that need it or one like it.
    needed_by: Vec<Vec<u32>>,
    /// Expressions without such a set.
    always: Vec<u32>,
    items: Vec<T>,
    /// In tests each search is checked against all of them.
    #[cfg(test)]
    expressions: Vec<regex::Regex>,
}

impl<T> Filter<T> {
    /// Reads expressions, as they will be run: small classes ([`crate::phrases::compact`]), flags inside ("(?i)").
    ///
    /// # Errors
    /// When one is no regular expression.
    pub(crate) fn new<E: AsRef<str>>(expressions: impl IntoIterator<Item = (E, T)>) -> Result<Self, Box<regex_syntax::Error>> {
        let mut owners: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        let mut always = Vec::new();
        let mut items = Vec::new();
        #[cfg(test)]
        let mut all = Vec::new();
        for (place, (expression, item)) in (0..).zip(expressions) {
            #[cfg(test)]
            all.push(regex::Regex::new(expression.as_ref()).expect("an expression"));
            match read(&regex_syntax::parse(expression.as_ref()).map_err(Box::new)?).best() {
                Some(needs) => needs.into_iter().for_each(|literal| owners.entry(literal).or_default().push(place)),
                None => always.push(place),
            }
            items.push(item);
        }
        for letter in FOLDED {
            owners.insert(letter.to_owned(), (0..).zip(&items).map(|(place, _)| place).collect());
        }
        let (literals, needed_by): (Vec<String>, Vec<Vec<u32>>) = owners.into_iter().unzip();
        let search = AhoCorasick::builder().ascii_case_insensitive(true).build(&literals);
        let search = search.expect("a few thousand short literals are within the limits of the automaton");
        let filter = Self {
            search,
            needed_by,
            always,
            items,
            #[cfg(test)]
            expressions: all,
        };
        #[cfg(test)]
        tests::let_their_own_matches_through(&filter);
        Ok(filter)
    }

    /// What belongs to the expressions that can match, in their order.
    pub(crate) fn candidates(&self, text: &str) -> impl Iterator<Item = &T> {
        let places = self.places(text);
        // Every test of a rule checks that nothing is passed over.
        #[cfg(test)]
        for (place, expression) in (0..).zip(&self.expressions) {
            assert!(places.binary_search(&place).is_ok() || !expression.is_match(text), "{expression} {text}");
        }
        places.into_iter().map(|place| &self.items[place as usize])
    }

    /// Where the expressions stand that can match, in order.
    fn places(&self, text: &str) -> Vec<u32> {
        let mut places = self.always.clone();
        for found in self.search.find_overlapping_iter(text) {
            places.extend(&self.needed_by[found.pattern().as_usize()]);
        }
        places.sort_unstable();
        places.dedup();
        places
    }
}

type Literals = BTreeSet<String>;

/// What is known of the matches of an expression.
struct Known {
    /// All of them, when they are few.
    exact: Option<Literals>,
    /// Literals, one of which each of them holds.
    needs: Option<Literals>,
}

impl Known {
    const NOTHING: Self = Self { exact: None, needs: None };

    fn exactly(literals: Literals) -> Self {
        if literals.len() > MOST {
            Self { exact: None, needs: useful(literals) }
        } else {
            Self { exact: Some(literals), needs: None }
        }
    }

    fn best(self) -> Option<Literals> {
        better(self.exact.and_then(useful), self.needs)
    }
}

/// The set itself, when each literal of it keeps something out.
fn useful(literals: Literals) -> Option<Literals> {
    let tells = |literal: &String| literal.len() >= 2 || literal.bytes().any(|byte| byte.is_ascii_digit());
    (!literals.is_empty() && literals.iter().all(tells)).then_some(literals)
}

/// How many texts a set lets through, as far as lengths tell.
fn passes(literals: &Literals) -> f64 {
    let one = |literal: &String| {
        if literal.split(' ').all(|word| COMMON.contains(&word)) {
            return 0.3;
        }
        let letters = literal.chars().map(|c| if c.is_ascii() { 1.0 } else { 3.0 }).sum::<f64>();
        0.05 * 0.6_f64.powf(letters)
    };
    literals.iter().map(one).sum()
}

fn better(a: Option<Literals>, b: Option<Literals>) -> Option<Literals> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if passes(&b) < passes(&a) { b } else { a }),
        (a, b) => a.or(b),
    }
}

fn read(hir: &Hir) -> Known {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => Known::exactly(Literals::from([String::new()])),
        HirKind::Literal(literal) => {
            std::str::from_utf8(&literal.0).ok().and_then(plain).map_or(Known::NOTHING, |text| Known::exactly([text].into()))
        }
        HirKind::Class(class) => letters(class).map_or(Known::NOTHING, Known::exactly),
        HirKind::Capture(capture) => read(&capture.sub),
        HirKind::Repetition(repetition) => {
            let sub = read(&repetition.sub);
            match (repetition.min, repetition.max) {
                (0, Some(1)) => match sub.exact {
                    Some(mut literals) => {
                        literals.insert(String::new());
                        Known::exactly(literals)
                    }
                    None => Known::NOTHING,
                },
                (0, _) => Known::NOTHING,
                _ => Known { exact: None, needs: sub.best() },
            }
        }
        HirKind::Concat(parts) => sequence(parts),
        HirKind::Alternation(parts) => {
            let parts: Vec<Known> = parts.iter().map(read).collect();
            if parts.iter().all(|part| part.exact.is_some()) {
                return Known::exactly(parts.into_iter().filter_map(|part| part.exact).flatten().collect());
            }
            let needs: Option<Vec<Literals>> = parts.into_iter().map(Known::best).collect();
            Known { exact: None, needs: needs.map(|sets| sets.into_iter().flatten().collect()) }
        }
    }
}

/// Neighbours are joined as long as the results are few.
fn sequence(parts: &[Hir]) -> Known {
    let mut best = None;
    let mut run = Literals::from([String::new()]);
    let mut whole = true;
    for part in parts.iter().map(read) {
        let joined = part.exact.as_ref().filter(|part| part.len() * run.len() <= MOST);
        if let Some(part) = joined {
            run = run.iter().flat_map(|head| part.iter().map(move |tail| format!("{head}{tail}"))).collect();
            continue;
        }
        whole = false;
        best = better(best, useful(std::mem::take(&mut run)));
        best = better(best, part.needs);
        run = part.exact.unwrap_or_else(|| Literals::from([String::new()]));
    }
    if whole { Known::exactly(run) } else { Known { exact: None, needs: better(best, useful(run)) } }
}

/// A literal in lower case; none for letters beyond ASCII that have cases, which the search does not fold.
fn plain(text: &str) -> Option<String> {
    text.chars().all(|c| c.is_ascii() || c.to_lowercase().eq([c]) && c.to_uppercase().eq([c])).then(|| text.to_ascii_lowercase())
}

/// The letters of a small class. Those that fold to an ASCII letter are seen to by [`FOLDED`].
fn letters(class: &Class) -> Option<Literals> {
    let mut out = Literals::new();
    let mut push = |c: char| {
        let mut bytes = [0; 4];
        let text = &*c.encode_utf8(&mut bytes);
        if !FOLDED.contains(&text) {
            out.insert(plain(text)?);
        }
        (out.len() <= MOST_LETTERS).then_some(())
    };
    match class {
        Class::Unicode(class) => {
            class.ranges().iter().try_for_each(|range| (range.start()..=range.end()).try_for_each(&mut push))?
        }
        Class::Bytes(class) => {
            class.ranges().iter().try_for_each(|range| {
                (range.start()..=range.end()).try_for_each(|byte| if byte.is_ascii() { push(byte as char) } else { None })
            })?;
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::strategy::{Strategy as _, ValueTree as _};
    use proptest::string::string_regex_parsed;
    use proptest::test_runner::TestRunner;
    use regex_syntax::hir::{Capture, Repetition};

    /// Texts that each expression of a table is tried on, made from the expression itself.
    const SAMPLES: usize = 4;

    /// Every table that any test makes is asked for matches of each of its expressions: what they match, they are found for.
    pub(super) fn let_their_own_matches_through<T>(filter: &Filter<T>) {
        let mut runner = TestRunner::deterministic();
        for (place, expression) in (0..).zip(&filter.expressions) {
            let hir = without_looks(&regex_syntax::parse(expression.as_str()).expect("an expression"));
            let Ok(texts) = string_regex_parsed(&hir) else { continue };
            for _ in 0..SAMPLES {
                let text = texts.new_tree(&mut runner).expect("a text").current();
                let found = filter.places(&text).contains(&place);
                assert!(found || !expression.is_match(&text), "{expression} passes over {text:?}");
            }
        }
    }

    /// Without word boundaries and the like, which no text can be made from.
    fn without_looks(hir: &Hir) -> Hir {
        match hir.kind() {
            HirKind::Look(_) => Hir::empty(),
            HirKind::Repetition(repetition) => {
                Hir::repetition(Repetition { sub: Box::new(without_looks(&repetition.sub)), ..repetition.clone() })
            }
            HirKind::Capture(capture) => Hir::capture(Capture { sub: Box::new(without_looks(&capture.sub)), ..capture.clone() }),
            HirKind::Concat(parts) => Hir::concat(parts.iter().map(without_looks).collect()),
            HirKind::Alternation(parts) => Hir::alternation(parts.iter().map(without_looks).collect()),
            HirKind::Empty | HirKind::Literal(_) | HirKind::Class(_) => hir.clone(),
        }
    }

    #[test]
    #[should_panic(expected = "passes over")]
    fn a_filter_that_passes_a_match_over_is_found_out() {
        let mut filter = Filter::new([("(?i)(?:busy|tired) today", ())]).expect("expressions");
        filter.search = AhoCorasick::builder().build(["busier", "weary", "x"]).expect("literals");
        let_their_own_matches_through(&filter);
    }

    fn needs(expression: &str) -> Option<Vec<String>> {
        read(&regex_syntax::parse(expression).expect("an expression")).best().map(|set| set.into_iter().collect())
    }

    #[test]
    fn every_match_holds_one_of_the_literals() {
        for (expression, expected) in [
            ("(?i)(?:i|we)(?:'m| am) (?:so |very )*(?:busy|tired)(?-u:\\b)", &["busy", "tired"][..]),
            ("colou?r", &["color", "colour"]),
            ("(?:不|没)(?:喜欢|爱)", &["不喜欢", "不爱", "没喜欢", "没爱"]),
            ("(?i)task", &["task"]),
            ("(?:abc)+d*", &["abc"]),
            ("x{2,3}yz", &["yz"]),
        ] {
            assert_eq!(needs(expression).expect(expression), expected.to_vec(), "{expression}");
        }
        for expression in [r"\w+", "a|bc", "(?:busy)?", "[a-z]+", "(?i)é+", "^$", r"\d{4}"] {
            assert!(needs(expression).is_none(), "{expression}");
        }
    }

    #[test]
    fn a_letter_that_folds_to_another_one_lets_everything_through() {
        let filter = Filter::new([("(?i)task", 0), ("(?i)order", 1)]).expect("expressions");
        assert_eq!(filter.candidates("a TASK").collect::<Vec<_>>(), [&0]);
        let task = crate::phrases::regex("(?i)task");
        for text in ["ta\u{17f}k", "tas\u{212a}"] {
            assert!(task.is_match(text), "{text}");
            assert_eq!(filter.candidates(text).collect::<Vec<_>>(), [&0, &1], "{text}");
        }
        assert!(filter.candidates("nothing").next().is_none());
    }
}
