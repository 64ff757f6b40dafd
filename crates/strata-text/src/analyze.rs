//! Keyword analysis for English and Chinese, with a substring fallback for Japanese and Korean (rule R3, cases C076,
//! C077, C083).
//!
//! A document gives more terms than a query, so that a query's words find a document whose words were cut elsewhere:
//!
//! | text | document terms | query terms |
//! |---|---|---|
//! | Han run | dictionary words, every bigram, every character | dictionary words; of a word the dictionary lacks, its bigrams |
//! | kana, Hangul run | bigrams and characters | bigrams; a lone character itself |
//! | Latin word | Snowball stem | the same |
//! | `jira-4821`, `GB/s`, `C++`, `don't`, `^a`, `*` | whole, and its alphanumeric parts | the same |
//! | `2,000` | `2000` | the same |
//! | stop words | kept (a record may hold nothing else) | dropped, unless nothing else is left |
//!
//! Sentence punctuation, emoji and blanks give no term: a query of them alone has none and finds nothing.

use crate::clean::searchable;
use crate::script::{is_han, is_hangul, is_kana};
use jieba_rs::Jieba;
use rust_stemmers::{Algorithm, Stemmer};
use std::collections::{BTreeMap, HashSet};
use std::ops::Deref;
use std::sync::LazyLock;

static JIEBA: LazyLock<Jieba> = LazyLock::new(Jieba::new);
static STEMMER: LazyLock<Stemmer> = LazyLock::new(|| Stemmer::create(Algorithm::English));
static STOP: LazyLock<HashSet<&'static str>> = LazyLock::new(|| STOP_WORDS.split_whitespace().collect());

/// The shared segmenter.
pub(crate) fn jieba() -> &'static Jieba {
    &JIEBA
}

/// Words that carry no topic. Applied to queries only.
const STOP_WORDS: &str = "a about after again all also am an and any are as at be because been before being but by can \
    could did do does doing for from had has have having he her here hers him his how i if in into is it its just me \
    more most my no nor not of on or our out over own please she should so some such than that the their them then \
    there these they this those to too under up us very was we were what when where which while who whom why will with \
    would you your user user's \
    的 了 是 在 我 你 您 他 她 它 们 我们 你们 他们 和 与 及 或 就 都 而 着 吗 呢 吧 啊 呀 嘛 把 被 让 给 对 对于 从 到 \
    这 那 这个 那个 这些 那些 哪个 哪些 什么 怎么 怎样 如何 为什么 多少 几 谁 一个 一下 也 还 很 太 再 又 请 请问 \
    有 没有 会 要 用户";

/// Distinct terms of a text with their counts, and its length in words for the length norm of BM25.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Term hash and count, ascending by hash, without duplicates. The hash is that of Qdrant's own BM25: murmur3, 32
    /// bits, seed 0, as `i32`, absolute.
    pub counts: Vec<(u32, u32)>,
    /// Words, without stop words and without the parts and n-grams that a word also gives.
    pub length: u32,
}

impl Deref for Terms {
    type Target = [(u32, u32)];
    fn deref(&self) -> &Self::Target {
        &self.counts
    }
}

impl IntoIterator for Terms {
    type Item = (u32, u32);
    type IntoIter = std::vec::IntoIter<(u32, u32)>;
    fn into_iter(self) -> Self::IntoIter {
        self.counts.into_iter()
    }
}

/// Terms of a document, in text order, with repetitions.
#[must_use]
pub fn analyze(text: &str) -> Vec<String> {
    let mut out = Output { terms: Vec::new(), words: 0, query: false };
    scan(&searchable(text), &mut out);
    out.terms
}

/// Terms of a query, in text order, with repetitions; stop words are dropped unless there is nothing else.
#[must_use]
pub fn analyze_query(text: &str) -> Vec<String> {
    let mut out = Output { terms: Vec::new(), words: 0, query: true };
    scan(&searchable(text), &mut out);
    if out.terms.iter().any(|t| !is_stop_word(t)) {
        out.terms.retain(|t| !is_stop_word(t));
    }
    out.terms
}

/// Hashed terms of a document.
#[must_use]
pub fn terms(text: &str) -> Terms {
    let mut out = Output { terms: Vec::new(), words: 0, query: false };
    scan(&searchable(text), &mut out);
    Terms { counts: count(&out.terms), length: out.words.max(1) }
}

/// Hashed terms of a query; empty when nothing in it can be searched for.
#[must_use]
pub fn query_terms(text: &str) -> Terms {
    let analysed = analyze_query(text);
    Terms { counts: count(&analysed), length: u32::try_from(analysed.len()).unwrap_or(u32::MAX) }
}

/// Hash of one analysed term.
#[must_use]
pub fn hash(term: &str) -> u32 {
    let hash = murmur3::murmur3_32(&mut term.as_bytes(), 0).expect("a byte slice reads without error");
    hash.cast_signed().unsigned_abs()
}

fn count(terms: &[String]) -> Vec<(u32, u32)> {
    let mut counts = BTreeMap::new();
    for term in terms {
        *counts.entry(hash(term)).or_insert(0) += 1;
    }
    counts.into_iter().collect()
}

/// Whether a word carries no topic; lower case.
pub(crate) fn is_stop_word(term: &str) -> bool {
    STOP.contains(term)
}

struct Output {
    terms: Vec<String>,
    words: u32,
    query: bool,
}

impl Output {
    fn word(&mut self, term: &str) {
        if !is_stop_word(term) {
            self.words += 1;
        }
        self.terms.push(term.to_owned());
    }

    fn part(&mut self, term: &str) {
        self.terms.push(term.to_owned());
    }
}

/// What a character is to the scanner.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Han,
    Kana,
    Hangul,
    /// Alphanumeric, or a symbol that may be part of a name or stand for itself: one chunk together.
    Chunk,
    /// Everything else separates.
    Separator,
}

/// Symbols kept inside and around words: `C++`, `GB/s`, `a_b`, `x@y`, `50%`.
const fn is_symbol(c: char) -> bool {
    matches!(
        c,
        '-' | '_' | '.' | '/' | ':' | '@' | '\'' | '+' | '#' | '*' | '^' | '&' | '%' | '=' | '<' | '>' | '|' | '~' | '$' | '\\'
    )
}

/// Symbols that close or open a sentence or a quotation: not part of a chunk's ends.
const LOOSE_ENDS: [char; 4] = ['.', ':', '\'', '-'];

fn class(c: char) -> Class {
    if is_han(c) {
        Class::Han
    } else if is_kana(c) {
        Class::Kana
    } else if is_hangul(c) {
        Class::Hangul
    } else if c.is_alphanumeric() || is_symbol(c) || unicode_normalization::char::is_combining_mark(c) {
        Class::Chunk
    } else {
        Class::Separator
    }
}

fn scan(text: &str, out: &mut Output) {
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let kind = class(first);
        let end = run_length(rest, kind);
        let run = &rest[..end];
        match kind {
            Class::Han => han(run, out),
            Class::Kana | Class::Hangul => grams(run, out),
            Class::Chunk => chunk(run, out),
            Class::Separator => {}
        }
        rest = &rest[end..];
    }
}

/// Bytes of the run of one class at the start of `text`. A comma between a digit and three digits belongs to the number.
fn run_length(text: &str, kind: Class) -> usize {
    let bytes = text.as_bytes();
    text.char_indices()
        .find(|(i, c)| class(*c) != kind && !(kind == Class::Chunk && *c == ',' && is_thousands(bytes, *i)))
        .map_or(text.len(), |(i, _)| i)
}

/// Whether the comma at this byte parts the thousands of a number.
pub(crate) fn is_thousands(bytes: &[u8], comma: usize) -> bool {
    let digit = |i: usize| bytes.get(i).is_some_and(u8::is_ascii_digit);
    comma > 0 && digit(comma - 1) && (1..=3).all(|k| digit(comma + k)) && !digit(comma + 4)
}

fn han(run: &str, out: &mut Output) {
    if out.query {
        for token in JIEBA.cut_for_search(run, true) {
            out.word(token.word);
            let letters = token.word.chars().count();
            if letters > 2 || (letters > 1 && !JIEBA.has_word(token.word)) {
                for gram in windows(token.word, 2).filter(|g| *g != token.word) {
                    out.part(gram);
                }
            }
        }
        return;
    }
    for token in JIEBA.cut(run, true) {
        if !is_stop_word(token.word) {
            out.words += 1;
        }
    }
    for token in JIEBA.cut_for_search(run, true) {
        if token.word.chars().count() > 2 {
            out.part(token.word);
        }
    }
    for n in [1, 2] {
        for gram in windows(run, n) {
            out.part(gram);
        }
    }
}

fn grams(run: &str, out: &mut Output) {
    let letters = run.chars().count();
    out.words += u32::try_from(letters.div_ceil(2)).unwrap_or(u32::MAX);
    if !out.query || letters == 1 {
        run.chars().for_each(|c| out.part(c.encode_utf8(&mut [0; 4])));
    }
    for gram in windows(run, 2) {
        out.part(gram);
    }
}

/// Substrings of `n` characters; none when the text is shorter.
fn windows(text: &str, n: usize) -> impl Iterator<Item = &str> {
    let starts: Vec<usize> = text.char_indices().map(|(i, _)| i).chain([text.len()]).collect();
    (0..(starts.len()).saturating_sub(n)).map(move |i| &text[starts[i]..starts[i + n]])
}

fn chunk(run: &str, out: &mut Output) {
    let joined: String;
    let run = if run.contains(',') {
        joined = run.replace(',', "");
        &joined
    } else {
        run
    };
    let trimmed = run.trim_matches(LOOSE_ENDS);
    let whole = trimmed.strip_suffix("'s").unwrap_or(trimmed);
    if whole.is_empty() {
        return;
    }
    if whole.chars().all(char::is_alphanumeric) {
        out.word(&stem(whole));
        return;
    }
    out.word(whole);
    for part in whole.split(|c: char| !c.is_alphanumeric() && !unicode_normalization::char::is_combining_mark(c)) {
        // The `t` of "don't" and the `s` of "GB/s" say nothing by themselves; a lone digit does.
        if part.chars().count() > 1 || part.chars().all(|c| c.is_ascii_digit()) && !part.is_empty() {
            out.part(&stem(part));
        } else if !part.is_empty() && whole.chars().filter(|c| c.is_alphanumeric()).count() == 1 {
            out.part(part);
        }
    }
}

fn stem(word: &str) -> String {
    if is_stop_word(word) || !word.bytes().all(|b| b.is_ascii_alphabetic()) {
        return word.to_owned();
    }
    STEMMER.stem(word).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether every term of the query is a term of the document.
    fn finds(query: &str, document: &str) -> bool {
        let document = terms(document);
        let query = query_terms(query);
        !query.is_empty() && query.iter().all(|(hash, _)| document.binary_search_by_key(hash, |t| t.0).is_ok())
    }

    #[test]
    fn c076_substrings_of_chinese_japanese_and_korean_are_found() {
        let records = ["用户不吃辣,忌口海鲜", "東京の予算承認は月曜日", "배포 점검표는 스테이징에서 확인"];
        for (query, record) in [
            ("不吃辣", 0),
            ("忌口", 0),
            ("辣", 0),
            ("海鲜", 0),
            ("吃辣", 0),
            ("不吃", 0),
            ("予算", 1),
            ("承認", 1),
            ("月曜日", 1),
            ("東京", 1),
            ("점검표", 2),
            ("배포", 2),
            ("스테이징", 2),
        ] {
            for (i, text) in records.iter().enumerate() {
                assert_eq!(finds(query, text), i == record, "{query} in {text}: {:?}", analyze_query(query));
            }
        }
    }

    #[test]
    fn c077_unsearchable_queries_have_no_terms() {
        for query in ["！？。…", "👍", " ", "\u{200b}", "", "\n\t", "——", "()", "👨‍👩‍👧 🇨🇳", "…", "''", "-"]
        {
            assert!(analyze_query(query).is_empty(), "{query:?}: {:?}", analyze_query(query));
        }
        assert_eq!(analyze_query("辣"), ["辣"]);
    }

    #[test]
    fn c083_any_text_is_a_query() {
        let records = [
            "throughput is 3 GB/s",
            "I don't drink",
            "a state-of-the-art engine",
            "written in C++",
            "a AND b",
            "he said \"quoted\" words",
            "the function f (x)",
            "select * from t",
            "use NEAR here",
            "filter col:val now",
            "^a anchors",
        ];
        let queries = ["GB/s", "don't", "state-of-the-art", "C++", "a AND b", "\"quoted\"", "(x)", "*", "NEAR", "col:val", "^a"];
        for (query, record) in queries.iter().zip(records) {
            assert!(finds(query, record), "{query}: {:?} in {:?}", analyze_query(query), analyze(record));
        }
    }

    #[test]
    fn identifiers_and_numbers_are_whole_and_in_parts() {
        assert_eq!(analyze("JIRA-4821"), ["jira-4821", "jira", "4821"]);
        assert_eq!(analyze("1.2.3"), ["1.2.3", "1", "2", "3"]);
        assert_eq!(analyze("max_retries"), ["max_retries", "max", "retri"]);
        assert_eq!(analyze("￥２，０００"), ["2000"]);
        assert_eq!(analyze("2,000,000.50"), ["2000000.50", "2000000", "50"]);
        assert!(finds("4821", "工单JIRA-4821已关闭"));
        assert!(finds("running", "he runs"));
        assert!(finds("Ｃ＋＋", "用C++写的"));
        assert!(finds("端口 6543", "数据库的端口是6543"));
        assert!(finds("zero\u{200b}width", "zerowidth"));
    }

    #[test]
    fn a_query_of_stop_words_keeps_them() {
        assert_eq!(analyze_query("to be or not to be").len(), 6);
        assert_eq!(analyze_query("what is the user's city"), ["citi"]);
        assert_eq!(analyze_query("我的城市"), ["城市"]);
    }

    #[test]
    fn hash_is_that_of_the_engine() {
        // murmur3_32("hello", 0) = 0x248bfa47; "world" = 0xfb963cfb, negative as i32.
        assert_eq!(hash("hello"), 0x248b_fa47);
        assert_eq!(hash("world"), (0xfb96_3cfb_u32).cast_signed().unsigned_abs());
    }

    #[test]
    fn terms_are_sorted_counted_and_length_counts_words() {
        let terms = terms("tea tea coffee");
        assert_eq!(terms.length, 3);
        assert_eq!(terms.counts.iter().map(|t| t.1).sum::<u32>(), 3);
        assert!(terms.counts.is_sorted_by(|a, b| a.0 < b.0));
    }
}
