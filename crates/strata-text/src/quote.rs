//! Whether a quote says what its turn says (rule G2): it has to stand there, and must not be cut out of words that mean something
//! else. "I live in Oslo" is no quote of "I don't think I live in Oslo any more", of "Bob says I live in Oslo", or of "I live in
//! Oslo. Just kidding."
//!
//! Whatever of a frame the quote itself keeps does no harm: what such a quote may become is for rule G12.

use crate::analyze::{is_thousands, jieba};
use crate::certainty::{certainty, negation};
use crate::clean::{Cleaned, normal};
use crate::cues::{question, reported};
use crate::pattern::Pattern;
use crate::phrases::{Table, compile, regex, table, without};
use crate::reality;
use crate::script::is_han;
use crate::sentence::{sentence_spans, sentences};
use std::ops::Range;
use std::sync::LazyLock;

/// Places of a quote in its turn that are looked at: nobody says a sentence more often, and a turn of one letter is not to cost
/// more than another.
const PLACES: usize = 16;
/// Bytes of a sentence before and behind a quote that are read for what they make of it.
const REACH: usize = 600;

/// Whether a quote stands in a turn, compared in normal form (NFKC, case, white space, invisible characters), and says there what
/// it says alone.
#[must_use]
pub fn stands_in(quote: &str, turn: &str) -> bool {
    let (words, compared) = (Cleaned::new(quote).text, normal(turn));
    let quote = normal(quote);
    if !compared.contains(&quote) {
        return false;
    }
    // Upper case tells names, which the normal form has no more.
    let seen = Cleaned::new(turn).text;
    if quote.is_empty() {
        // "...": signs alone are compared as they are seen.
        return !words.trim().is_empty() && words.trim() == seen.trim();
    }
    let letters = Letters::of(&compared, &seen);
    let whole = |text: &str, at: &Range<usize>| !cuts_words(text, at.clone()) && !cuts_han(text, at.clone());
    let says = |text: &str, at: Range<usize>| whole(text, &at) && !Cut::new(text, at).turns(&words);
    compared == quote
        || compared.match_indices(&quote).take(PLACES).map(|(at, _)| at..at + quote.len()).any(|at| match &letters {
            Some(letters) => letters.place(at).is_none_or(|at| says(&seen, at)),
            None => says(&compared, at),
        })
}

/// Whether a part of a text begins or ends inside a word of Latin letters or digits, or inside a number.
#[must_use]
pub fn cuts_words(text: &str, part: Range<usize>) -> bool {
    [part.start, part.end].into_iter().any(|at| cut_at(text, at))
}

fn cut_at(text: &str, at: usize) -> bool {
    let (before, after) = text.split_at(at);
    let (Some(left), Some(right)) = (before.chars().next_back(), after.chars().next()) else { return false };
    if left.is_ascii_alphanumeric() && right.is_ascii_alphanumeric() {
        return true;
    }
    // "4,200" holds no 4, and no 200; 3,4 are two numbers.
    let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
    let joins = |sign: char, at: usize| matches!(sign, '.' | ':') || sign == ',' && is_thousands(text.as_bytes(), at);
    left.is_ascii_digit() && joins(right, at) && digit(after.chars().nth(1))
        || right.is_ascii_digit() && joins(left, at - left.len_utf8()) && digit(before.chars().rev().nth(1))
}

/// Han characters beside a cut that are read for a word across it.
const HAN_REACH: usize = 8;
/// What only names the kind of a place: 上海 and 上海市 are one.
const PLACE_KIND: &str = "市省区县镇村";

/// Whether a part of a text begins or ends inside a word of the Chinese dictionary: 吃辣 in 吃辣椒.
fn cuts_han(text: &str, part: Range<usize>) -> bool {
    [part.start, part.end].into_iter().any(|at| {
        let (before, after) = text.split_at(at);
        before.chars().next_back().is_some_and(is_han) && after.chars().next().is_some_and(is_han) && cut_han(before, after)
    })
}

fn cut_han(before: &str, after: &str) -> bool {
    let left: Vec<char> = before.chars().rev().take_while(|c| is_han(*c)).take(HAN_REACH).collect();
    let run: String = left.iter().rev().copied().chain(after.chars().take_while(|c| is_han(*c)).take(HAN_REACH)).collect();
    let cut: usize = left.iter().map(|c| c.len_utf8()).sum();
    let mut end = 0;
    jieba().cut(&run, false).into_iter().any(|token| {
        let from = end;
        end += token.word.len();
        let rest = if from < cut && cut < end { &token.word[cut - from..] } else { return false };
        let kind = rest.starts_with(|c| PLACE_KIND.contains(c)) && jieba().has_word(&token.word[..cut - from]);
        !kind
    })
}

/// The letters and digits of a turn's normal form, which are those of its cleaned copy in lower case, with their places there.
struct Letters {
    normal: Vec<usize>,
    seen: Vec<Range<usize>>,
}

impl Letters {
    /// None where the two forms do not have the same letters.
    fn of(normal: &str, seen: &str) -> Option<Self> {
        let letters = normal.char_indices().filter(|(_, c)| c.is_alphanumeric());
        let lower = seen.char_indices().flat_map(|(at, c)| {
            let span = at..at + c.len_utf8();
            c.to_lowercase().filter(|c| c.is_alphanumeric()).map(move |c| (span.clone(), c))
        });
        let same = letters.clone().map(|(_, c)| c).eq(lower.clone().map(|(_, c)| c));
        same.then(|| Self { normal: letters.map(|(at, _)| at).collect(), seen: lower.map(|(span, _)| span).collect() })
    }

    /// Where the letters of a part of the normal form stand in the cleaned copy; none when it has none.
    fn place(&self, part: Range<usize>) -> Option<Range<usize>> {
        let first = self.normal.partition_point(|at| *at < part.start);
        let last = self.normal.partition_point(|at| *at < part.end).checked_sub(1)?;
        (first <= last).then(|| self.seen[first].start..self.seen[last].end)
    }
}

/// A quote where it stands: in the sentences that it is cut from.
struct Cut<'t> {
    text: &'t str,
    /// The quote, from its first letter to its last.
    at: Range<usize>,
    /// The sentence that it begins in.
    first: Range<usize>,
    /// The sentence that it ends in.
    last: Range<usize>,
}

impl<'t> Cut<'t> {
    fn new(text: &'t str, at: Range<usize>) -> Self {
        let spans = sentence_spans(text);
        let of = |byte: usize| spans.iter().find(|span| span.contains(&byte)).cloned().unwrap_or(0..text.len());
        let (first, last) = (of(at.start), of(at.end.saturating_sub(1)));
        Self { text, at, first, last }
    }

    /// Whether what was left out around the quote makes its words mean something else.
    fn turns(&self, quote: &str) -> bool {
        let asked = self.asks(quote);
        asked || self.in_words_of_others(quote) || self.is_framed(quote) || self.is_handed_over() || self.is_taken_back()
    }

    /// What stands before the quote in its sentence.
    fn head(&self) -> &'t str {
        let from = self.at.start.saturating_sub(REACH).max(self.first.start);
        let from = (from..=self.at.start).find(|at| self.text.is_char_boundary(*at)).unwrap_or(self.at.start);
        &self.text[from..self.at.start]
    }

    /// What stands behind the quote in its sentence.
    fn tail(&self) -> &'t str {
        let to = (self.at.end + REACH).min(self.last.end);
        let to = (self.at.end..=to).rev().find(|at| self.text.is_char_boundary(*at)).unwrap_or(self.at.end);
        &self.text[self.at.end..to]
    }

    fn quote(&self) -> &'t str {
        &self.text[self.at.clone()]
    }

    /// What stands before the quote with nothing between them, not even a comma or a word that joins two statements.
    fn lead(&self) -> &'t str {
        let head = self.head();
        let joined = joined_at(head, self.quote());
        if joined < head.len() {
            return "";
        }
        &head[last_break(head).map_or(0, |found| found.end)..]
    }

    /// The part of the sentence before the one that the quote begins.
    fn part_before(&self) -> &'t str {
        let head = self.head().trim_end_matches(|c: char| !c.is_alphanumeric());
        &head[last_break(head).map_or(0, |found| found.end)..]
    }

    /// Whether a question is asked of what the quote says. A question of its own beside it ("I live in Oslo, any tips?") is none.
    fn asks(&self, quote: &str) -> bool {
        let head = self.head();
        // "whether I live in Oslo", 在不在名单上: a question inside a sentence.
        if EMBEDS.is_match(self.lead().trim_end()) {
            return true;
        }
        let open = |sentence: &Range<usize>, words: Option<&&str>| {
            question(&self.text[sentence.clone()]) && !words.is_some_and(|words| question(words))
        };
        let sentences = sentences(quote);
        if !open(&self.first, sentences.first()) && !open(&self.last, sentences.last()) {
            return false;
        }
        if TOLD_IN_A_QUESTION.is_match(head) {
            return false;
        }
        // One before it: "Not sure whether that helps, but I am colour-blind".
        let own = &self.text[self.at.start - self.lead().len()..self.last.end];
        if own.len() < self.last.end - self.first.start && !question(own) && !ASKS_OF_IT.is_match(head) {
            return false;
        }
        // One behind it, on its own.
        let tail = self.tail();
        let asked = tail.trim_start_matches(|c: char| !c.is_alphanumeric());
        let apart = tail[..tail.len() - asked.len()].contains(is_break);
        let own = apart && !TAG.is_match(asked);
        let so_far = &self.text[self.at.start - head.len()..self.at.end];
        !(own && !question(so_far) && !ASKS_OF_IT.is_match(head))
    }

    /// Whether somebody else said what the quote says, or the quote is a text within marks.
    fn in_words_of_others(&self, quote: &str) -> bool {
        let (head, tail) = (self.head(), self.tail());
        if OWN_WORDS.is_match(self.lead()) || OWN_WORDS.is_match(self.part_before()) {
            return false;
        }
        if self.is_between_marks() || self.is_of_a_transcript() {
            return true;
        }
        let behind = tail.trim_end_matches(|c: char| !c.is_alphanumeric());
        if SAID_BEHIND.is_match(behind) {
            return true;
        }
        if reported(&Cleaned::new(quote)) {
            return false;
        }
        let lead = self.lead();
        let reports = |from: usize| reported(&Cleaned::new(&self.text[from..self.at.end]));
        if lead.chars().any(char::is_alphanumeric) {
            return reports(self.at.start - lead.len());
        }
        // "Bob said, …", "Bob said: …": nothing between the saying and what is said.
        if joined_at(head, self.quote()) < head.len() {
            return false;
        }
        let part = self.part_before();
        let closing = head.trim_end();
        let said = closing.ends_with([':', '：', '"', '“', '「']) || SAYS_LAST.is_match(part.trim_end());
        let from = part.as_ptr() as usize - self.text.as_ptr() as usize;
        said && !part.is_empty() && reports(from)
    }

    /// Whether the quote stands behind the name of a speaker, where the turn names several.
    fn is_of_a_transcript(&self) -> bool {
        if !SUBJECT.is_match(self.quote()) {
            return false;
        }
        let before = &self.text[..self.at.start];
        let speakers: Vec<&str> =
            SPEAKER.captures_iter(self.text).filter_map(|found| found.name("who")).map(|who| who.as_str()).collect();
        let named =
            SPEAKER.captures_iter(before).last().filter(|found| found.get(0).is_some_and(|all| all.end() == before.len()));
        let own = named.and_then(|found| found.name("who")).is_none_or(|who| MYSELF.is_match(who.as_str()));
        !own && speakers.iter().any(|who| *who != speakers[0])
    }

    /// Whether the quote stands between quotation marks outside of which the turn says more.
    fn is_between_marks(&self) -> bool {
        let long = self.quote().chars().filter(|c| is_han(*c)).count() >= 4 || self.quote().split_whitespace().count() >= 3;
        let (before, after) = (&self.text[self.first.start.min(self.at.start)..self.at.start], &self.text[self.at.end..]);
        let line_before = before.rsplit('\n').next().unwrap_or_default();
        let line_after = after.split('\n').next().unwrap_or_default();
        let straight = line_before.matches('"').count() % 2 == 1 && line_after.contains('"');
        let paired = |open: char, close: char| {
            line_before.rfind(open).is_some_and(|at| !line_before[at..].contains(close)) && line_after.contains(close)
        };
        let single = line_before.rfind('\'').is_some_and(|at| {
            let opens = line_before[..at].chars().next_back().is_none_or(|c| !c.is_alphanumeric());
            opens && line_before[at + 1..].trim().is_empty()
        }) && CLOSES_SINGLE.is_match(line_after);
        if !long || !(straight || paired('「', '」') || paired('『', '』') || single) {
            return false;
        }
        let says = |text: &str| text.chars().any(char::is_alphanumeric);
        let outside = match straight {
            true => {
                line_before.rsplit_once('"').is_some_and(|(said, _)| says(said))
                    || line_after.split_once('"').is_some_and(|(_, said)| says(said))
            }
            false => says(line_before) || line_after.split_once(['」', '』', '\'']).is_some_and(|(_, said)| says(said)),
        };
        outside && !NOTED.is_match(line_before)
    }

    /// Whether what stands beside the quote in its sentence denies it, doubts it, or says it of a condition, a game, a time that
    /// is over.
    fn is_framed(&self, quote: &str) -> bool {
        let (lead, tail) = (self.lead(), self.tail());
        if lead.chars().any(char::is_alphanumeric) {
            let told = without(lead, &KNOWN);
            let whole = format!("{told}{}", self.quote());
            if negation(&whole) > negation(quote) || certainty(&whole) < certainty(quote) || DOUBTS.is_match(&told) {
                return true;
            }
            let unreal = |text: &str| reality::unreal(&Cleaned::new(text));
            if PAST_BEFORE.is_match(lead) || unreal(&whole) && !unreal(quote) {
                return true;
            }
            // A Chinese verb has no tense: without 以前 it tells of today.
            let past = |text: &str| reality::qualified(&without(text, &COURTESY));
            if lead.chars().any(is_han) && past(&whole) && !past(quote) {
                return true;
            }
        }
        if self.is_under_condition(quote) || DENIED_BEHIND.is_match(tail.trim_end_matches(|c: char| !c.is_alphanumeric())) {
            return true;
        }
        // "…, I think".
        let behind = tail.trim_matches(|c: char| !c.is_alphanumeric());
        HEDGED_BEHIND.is_match(behind) && certainty(quote) > strata_core::text::Certainty::Hedged
    }

    /// Whether a condition or a frame is open when the quote begins, or comes right behind it.
    fn is_under_condition(&self, quote: &str) -> bool {
        let tail = self.tail();
        if CONDITION_BEHIND.is_match(&without(tail, &COURTESY)) {
            return true;
        }
        let head = without(self.head(), &COURTESY);
        let joined = joined_at(&head, self.quote());
        if RESETS.is_match(&head[joined..]) || RESETS.is_match(self.quote()) {
            return false;
        }
        let mut open = false;
        let mut from = 0;
        let ends = breaks(&head).into_iter().chain(std::iter::once(head.len()..head.len()));
        for end in ends {
            let part = &head[from..end.start];
            from = end.end;
            if RESETS.is_match(part.trim_start()) {
                open = false;
            }
            // The last part goes with the quote.
            let frames = if part.chars().any(is_han) { reality::frames(part) } else { reality::supposes(part) };
            open |= OPENS.is_match(part) || frames && !(WISHES.is_match(part) && from < head.len());
        }
        let asks = reality::frames(quote.split(is_break).next().unwrap_or_default());
        open && !asks
    }

    /// Whether the quote is of a text that is handed over: to be translated, proofread, or as an example.
    fn is_handed_over(&self) -> bool {
        let before = &self.text[..self.at.start];
        let (earlier, line) = before.rsplit_once('\n').unwrap_or(("", before));
        if HANDED_OVER.is_match(line) {
            return true;
        }
        // A colon at the end of a line: all of the paragraph behind it.
        let paragraph = earlier.lines().rev().take_while(|line| !line.trim().is_empty()).take(40);
        paragraph.filter(|line| line.trim_end().ends_with([':', '：'])).any(|line| HANDED_OVER.is_match(line))
    }

    /// Whether what comes next takes the quote back.
    fn is_taken_back(&self) -> bool {
        let tail = self.tail();
        let parts = breaks(tail).into_iter().map(|part| &tail[part.end..]);
        let next = sentence_spans(&self.text[self.last.end..]).into_iter().map(|span| &self.text[self.last.end..][span]);
        let next = next.filter(|sentence| sentence.chars().any(char::is_alphanumeric)).take(1);
        std::iter::once(tail).chain(parts).chain(next).any(|part| {
            let part = part.trim_start_matches(|c: char| !c.is_alphanumeric() && c != '/');
            let part = part.trim_end_matches(|c: char| !c.is_alphanumeric());
            TAKES_BACK.is_match(part) && !KEEPS.is_match(part)
        })
    }
}

const fn is_break(c: char) -> bool {
    matches!(c, ',' | '，' | ';' | '；' | ':' | '：' | '、' | '—' | '\n')
}

static BREAK: LazyLock<Pattern> = LazyLock::new(|| regex(r"[,;:](?:\D|$)|[，；：、—\n]|\.\.+|…| - "));

/// Where a sentence breaks into parts: at its commas, colons and dashes, not within "4,200".
fn breaks(text: &str) -> Vec<Range<usize>> {
    BREAK.find_iter(text).map(|found| found.start()..found.start() + first_char(found.as_str())).collect()
}

fn first_char(text: &str) -> usize {
    text.chars().next().map_or(0, char::len_utf8)
}

fn last_break(text: &str) -> Option<Range<usize>> {
    breaks(text).pop()
}

/// Where the word begins that joins what follows as a statement of its own, directly before the quote: "and I live in Oslo",
/// 因为我怀孕了. The end of the text when there is none.
fn joined_at(head: &str, quote: &str) -> usize {
    let found = JOINS.find(head).map(crate::pattern::Match::start);
    let own = found.filter(|at| !NOT_JOINED.is_match(&head[..*at]) && (!ADDS.is_match(&head[*at..]) || SUBJECT.is_match(quote)));
    own.unwrap_or(head.len())
}

static JOINS: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"(?i)(?:(?-u:\b)(?:but|because|cause|since|whereas|although|though|given(?: that)?|now that|yet|and|so|therefore)|但是?|可是|不过|而且?|因为|由于|所以|虽然|既然|自从|毕竟|于是|并且|同时|何况|而)\s*$",
    )
});
/// What only goes on, and needs a subject behind it to be a statement of its own.
static ADDS: LazyLock<Pattern> = LazyLock::new(|| regex(r"(?i)^(?:and|so|yet|而)\s*$"));
static SUBJECT: LazyLock<Pattern> =
    LazyLock::new(|| regex(r"(?i)^\W*(?:(?:i|i'm|i've|i'd|i'll|we|we're|my|our)(?-u:\b)|我|咱|俺|本人)"));
/// "It's not because I am lazy".
static NOT_JOINED: LazyLock<Pattern> =
    LazyLock::new(|| regex(r"(?i)(?:(?-u:\b)not(?: just| only| simply)?|n't|不是|并非|不|only|even|just|as|and|or)\s*$"));
/// What ends a condition before it: "…, but I live in Oslo".
static RESETS: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"(?i)^\s*(?:(?:but|because|since|although|anyway|by the way|btw|now|nowadays|these days|today|currently|later|seriously)(?-u:\b)|但|可是|不过|因为|反正|顺便|另外|对了|后来|现在|如今|目前|说正经的)",
    )
});

// --- Questions -------------------------------------------------------------------------------------------------------------

/// The words before a quote that make it what is asked for.
static EMBEDS: LazyLock<Pattern> = LazyLock::new(|| {
    regex(r"(?i)(?:(?-u:\b)(?:whether|if)(?: or not)?|是否|是不是|有没有|能不能|会不会|要不要|该不该|能否|可否|\p{Han}[不没])$")
});
/// A question that tells: an order to remember, or what somebody may not know.
static TOLD_IN_A_QUESTION: LazyLock<Table> = LazyLock::new(|| {
    table(
        &[
            (r"<you>", r"(?:can|could|would|will|won't) you (?:please |also |just |kindly )*"),
            (r"<keep>", r"remember|note|keep in mind|save|store|write down|make a note|memori[sz]e|bear in mind|record"),
        ],
        &[
            r"(?-u:\b)<you><keep>(?: down| for me)?(?: the fact)?(?: that)?\s*$",
            r"(?-u:\b)did(?:n't)? (?:you|u) know(?: that)?\s*$",
            r"(?-u:\b)(?:given|considering|seeing|now) that\s*$",
            r"(?-u:\b)(?:because|since|as)\s*$",
            r"(?:记住|记得|记一下|记下|记着|记录一下|备注一下|保存一下)(?:一下|来)?[:：,，]?\s*$",
            r"(?:你|您)知道吗?[,，]?\s*$",
            r"(?:因为|毕竟|既然|考虑到|鉴于)\s*$",
        ],
    )
});
/// A question that only asks whether what stands before it is so.
static TAG: LazyLock<Table> = LazyLock::new(|| {
    table(
        &[
            (
                r"<be>",
                r"is|are|do|does|did|am|was|were|have|has|isn't|aren't|don't|doesn't|didn't|wasn't|weren't|haven't|hasn't|won't|can't|ain't",
            ),
            (r"<who>", r"it|i|we|they|you|he|she"),
            (r"<so>", r"对|是|不是|是不是|对不对|没错|没记错|真的|可以|好|行|不|说得?对|记得?对|有没有搞错"),
        ],
        &[
            r"^(?:is that |am i |that's )?(?:right|correct|true|yes|no|ok|okay|huh|eh|innit|or not|or no|or what|wrong)\W*$",
            r"^<be> <who>(?: not)?\W*$",
            r"^(?:is|isn't) that (?:right|so|correct|true)\W*$",
            r"^(?:(?:so|what) do you (?:think|say)|you think|would you say|do you agree)\W*$",
            r"^(?:这|那|我说)?<so>(?:这样)?(?:吧|吗|么|不|嘛|啊|呢)*\W*$",
            r"^你(?:觉得|说|看)(?:呢|对吗|是吗)?\W*$",
        ],
    )
});

/// Words before a quote that open a question which the quote belongs to.
static ASKS_OF_IT: LazyLock<Table> = LazyLock::new(|| {
    table(
        &[],
        &[
            r"(?-u:\b)do you (?:think|believe|reckon|feel)(?-u:\b)[^,，]*$",
            r"(?-u:\b)is it (?:true|possible|likely|ok|okay)(?-u:\b)[^,，]*$",
            r"(?-u:\b)(?:would you say|who says|what if|what happens|why (?:do|does|would|should))(?-u:\b)[^,，]*$",
            r"(?:你(?:觉得|认为|说|看)|谁说|难道|万一|为什么|凭什么)[^,，]*$",
        ],
    )
});

// --- The words of others -----------------------------------------------------------------------------------------------------

/// The user's own saying: "I told Bob that", 我跟老王说, and orders to pass it on.
static OWN_WORDS: LazyLock<Table> = LazyLock::new(|| {
    table(
        &[
            (
                r"<said>",
                r"said|say|saying|told|tell|telling|wrote|mentioned|mean|meant|repeat|replied|answered|explained|emailed|texted",
            ),
            (
                r"<when>",
                r"刚才|刚刚|刚|昨天|今天|前天|之前|以前|上次|早就|早|已经|也|都|就|再|又|总|一直|曾|的意思|(?:跟|和|对|向|给)[\p{Han}\w]{1,5}?",
            ),
            (r"<told>", r"是说|说|讲|告诉|回复|回答|写|提过|强调|解释|通知"),
        ],
        &[
            r"(?-u:\b)i(?:'ve|'m| have| am| was| had)? (?:\w+ )?<said>(?-u:\b)",
            r"^\W*(?:please |and |also |so )*(?:tell|let|inform|remind|remember|note)(?-u:\b)",
            r"(?:^|[^跟对和向给让被叫听])我<when>*<told>(?:过|了|的是)?",
            r"^\W*(?:请|麻烦|帮我|帮忙|你)*(?:转告|告诉|通知|提醒|跟\p{Han}{1,4}说|记住|记得|记下)[^我]{0,8}",
        ],
    )
});
/// A part of a sentence that ends with the saying, or begins with whose words they are.
static SAYS_LAST: LazyLock<Table> = LazyLock::new(|| {
    table(
        &[(
            r"<says>",
            r"said|says|say|thinks?|thought|claims?|claimed|insists?|insisted|wrote|writes|replied|swears|swore|believes?|reckons?",
        )],
        &[
            r"(?-u:\b)(?:<says>|told (?:me|us|everyone|everybody|people|\w+)|tells (?:me|us|everyone)|has it)$",
            r"(?:说|讲|表示|认为|觉得|称|写道|写着|写|告诉我|跟我说|回复|喊|嚷)$",
            r"^\W*(?:according to(?-u:\b)|in (?:my|his|her|their) \w+'s (?:opinion|view))",
            r"^\W*(?:据|按\p{Han}{1,6}的说法|在\p{Han}{1,6}(?:看来|眼里))",
        ],
    )
});
/// Whose words they are, named behind them.
static SAID_BEHIND: LazyLock<Table> = LazyLock::new(|| {
    table(
        &[
            (r"<whose>", r"(?:my|our|the|his|her|their) (?:\w+ )?\w+"),
            (r"<they>", r"<whose>|(?-i:[A-Z])\w+|he|she|they|people|everyone"),
            (
                r"<says>",
                r"says?|said|saying|claims?|claimed|thinks?|thought|tells? me|told me|insists?|insisted|reckons?|believes?|writes?|wrote",
            ),
            (r"<another>", r"[\p{Han}&&[^我你咱的]]{1,6}"),
        ],
        &[
            r"^\W*[,，]\W*(?:or )?(?:so )?<they>(?: (?:just|always|also|once|keeps?))? <says>$",
            r"^\W*[,，]\W*(?:says|said|claims|claimed|writes|wrote) (?:(?:my|our|the|his|her) )?\w+$",
            r#"^["'”’」]?,? (?:is|was) what <they>(?: \w+)? <says>(?-u:\b)"#,
            r"^\W*[,，]\W*<another>(?:说|讲|告诉我|觉得|认为|写)的$",
            r#"^["”」]?(?:是|就是|都是)<another>(?:说|讲|编|写|传|以为|觉得|认为)的$"#,
        ],
    )
});
/// "Remember this: "…"": a text between marks that is given to be kept.
static NOTED: LazyLock<Table> = LazyLock::new(|| {
    table(
        &[],
        &[
            r"(?-u:\b)(?:remember|note|save|store|keep in mind|write down|record)(?-u:\b)[^.。]{0,40}$",
            r"(?-u:\b)i (?:\w+ )?(?:said|told|wrote|say|mean|meant)(?-u:\b)[^.。]{0,40}$",
            r"(?:记住|记下|记录|备注|保存)[^.。]{0,40}$",
            r"(?:^|[^跟对和向给让被叫听])我(?:刚才|昨天|之前|已经|也|(?:跟|和|对|向|给)\p{Han}{1,5}?)*(?:说|讲|写|回)[^.。]{0,40}$",
        ],
    )
});
/// "Bob: …", at the beginning of a line or of a part of it.
static SPEAKER: LazyLock<Pattern> = LazyLock::new(|| {
    regex(r"(?:^|[\n,，;；。.!?！？]\s*)(?P<who>[A-Z][a-z]+|[老小阿]\p{Han}|\p{Han}{1,2}(?:总|哥|姐|老师|经理|医生))[:：]\s*")
});
static MYSELF: LazyLock<Pattern> = LazyLock::new(|| regex(r"^(?i:me|i|myself|user|note|update|edit|我|本人|备注|说明|更正)$"));
static CLOSES_SINGLE: LazyLock<Pattern> = LazyLock::new(|| regex(r"^[^']{0,200}?[.!?]?'(?:\W|$)"));

// --- Denied, doubted, not so -----------------------------------------------------------------------------------------------------

/// Words with a no in them that take what follows for known: "I can't believe I live in Tokyo now", 没想到.
static KNOWN: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "(?:can't|cannot|could not|couldn't|can hardly|could hardly) believe(?: that)?",
            "(?:don't|do not|never|not) (?:to )?(?:forget|mind|regret|care)(?: that)?",
            "(?:not|never|no) (?:surprised|ashamed|a secret|secret|wonder|surprise|sorry)(?: that)?",
            "(?:isn't|wasn't) (?:a secret|surprising)(?: that)?",
            "(?:didn't|did not|haven't|hadn't|never) (?:know|known|realis\\w+|realiz\\w+|told you|tell you|mention\\w*|notic\\w+)(?: (?:until|before)[^,]{0,20})?(?: that)?",
            "(?:can't|cannot|won't|not (?:going to|gonna)) (?:deny|lie|hide)(?: that)?",
            "couldn't be (?:happier|prouder)(?: that)?",
            "no (?:idea|clue) why",
            "(?:no|without(?: a| any)?|beyond(?: a| any)?|(?:don't|do not|never) (?:have (?:a|any) )?) ?doubt(?: that)?",
            "(?:i've|i have|we've|we have) (?:already |just |also |once )*mentioned",
        ],
        &[
            "没想到",
            "不敢相信",
            "(?:毫不|毫无|不|毋庸|从不)怀疑",
            "引以为(?:傲|豪|戒|荣)",
            "不得不说",
            "不瞒你(?:说)?",
            "不骗你",
            "(?:别|不要|不能|可别)忘(?:了|记)?",
            "不(?:可否认|奇怪|后悔|好意思|用说|用问)",
            "(?:还|一直)?(?:没|没有)(?:告诉|跟|和)(?:过)?你(?:说|讲|提)?(?:过)?",
            "(?:并|也)?不(?:是秘密|介意)",
        ],
    )
});
/// Who says it does not hold it to be so.
static DOUBTS: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "doubt(?:s|ed|ful)?",
            "(?:deny|denies|denied|denying)",
            "(?:myth|lie|rumou?r|misconception|allegation|claim)(?: is| was)? that *$",
            "refus(?:e|es|ed|ing) to (?:believe|accept|think|say|admit)",
            "(?:wrong|false|mistaken|absurd|nonsense|untrue|incorrect|impossible)(?: to \\w+)?(?: that)? *$",
            "(?:wrongly|falsely|mistakenly|erroneously) \\w+(?: that)? *$",
            "(?:used to|once|previously) (?:think|thought|believe|believed|say|said|assume|assumed|claim)",
            "pretend(?:s|ed|ing)?",
            "far from",
            "(?:as if|as though|like|suppose|supposing|assuming|used to|pretending) *$",
            "(?:assumes?|assumed|imagines?|imagined|suspects?|suspected|believes|thinks|says|claims|insists|swears|reckons|supposes|argues|maintains)(?: that)? *$",
        ],
        &[
            "怀疑",
            "以为",
            "否认",
            "不信",
            "(?:以前|曾经?|原来|一度|过去)(?:一直|总)?(?:觉得|认为|相信|说)",
            "假装|装作|当成|当作|谎称|冒充",
            "好像|仿佛|似乎",
            "谁(?:会|敢)?说",
            "传言|谣传|盛传|风传",
            "(?:不如|别|不要)(?:说|讲)",
        ],
    )
});
/// What tells of a time that is over, however the verb is written.
static PAST_BEFORE: LazyLock<Pattern> = LazyLock::new(|| regex(r"(?i)(?-u:\b)used to\s*$|曾几何时"));
/// A condition right behind the quote, no comma between.
static CONDITION_BEHIND: LazyLock<Table> = LazyLock::new(|| {
    table(
        &[],
        &[
            r"^ (?:only |but only |even )?(?:if|unless|in case|provided|as long as|assuming)(?-u:\b)",
            r"^ in (?:the|my|a) (?:game|dream|story|novel|play)(?-u:\b)",
            r"^(?:的话|就好了|该多好|就太好了|多好)",
        ],
    )
});
/// Conditions that are courtesies: "if you ask me", 方便的话.
static COURTESY: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "if you (?:ask|asked) me",
            "if (?:you|anyone|anybody) (?:must|need to|needs to|want to|wants to|wanted to|care to|have to|would like to|should) (?:know|ask|call|reach)(?: me)?",
            "if (?:you're|you are|anyone is|anyone's) (?:wondering|asking|curious|interested)",
            "if you (?:don't|do not) (?:mind|know(?: me| it| yet)?|remember)",
            "if you (?:didn't|did not|haven't) (?:know|notice|notic\\w+|guess\\w*|remember)(?: yet)?",
            "if (?:you please|i may|i might|possible|at all possible|necessary|anything|you will|you wonder)",
            "if (?:i'm|i am) (?:being )?(?:honest|frank)",
            "if (?:it|that|this) (?:helps|matters|is ok|is okay|is fine|makes a difference|isn't clear|wasn't clear)",
            "(?:just )?in case (?:you|it|that|this|anyone|anybody|somebody)(?: \\w+){0,5}",
            "if (?:i )?(?:haven't|have not|didn't) (?:said|say|mentioned|mention|told|tell)(?: \\w+){0,3}",
        ],
        &[
            "(?:如果|要是|假如|若)?(?:你|您|这|那)?(?:方便|可以|可能|不介意|允许|需要|有帮助|没记错|愿意|想知道|问我)的话",
            "(?:如果|要是)(?:你|您)(?:问我|想知道|还?不知道|不介意|还没注意|方便|愿意)",
            "如果(?:可以|可能|方便|需要|没记错|这有帮助)",
            "要(?:我|让我)说",
            "万一(?:你|您)?(?:还)?(?:不知道|忘了|没注意|想知道|需要)",
            "(?:说实话|老实说|坦白说|讲真)的话",
        ],
    )
});
/// A concession, a sneer: what follows is not said to be so.
static OPENS: LazyLock<Pattern> =
    LazyLock::new(|| regex(r"(?i)就算|即使|即便|哪怕|纵使|纵然|^\W*(?:oh,? )?(?:(?:yeah|sure),? right(?-u:\b)|as if\W*$)"));
/// A wish frames only what goes on from it.
static WISHES: LazyLock<Pattern> = LazyLock::new(|| regex(r"(?i)(?-u:\b)wish|希望|恨不得|巴不得"));
/// What denies the whole behind it.
static DENIED_BEHIND: LazyLock<Table> = LazyLock::new(|| {
    table(
        &[
            (r"<all>", r"just |simply |totally |completely |all "),
            (
                r"<false>",
                r"a (?:lie|myth|rumou?r|joke|mistake)|lies|false|(?:not|hardly) (?:true|accurate|right|correct|so|the case)|untrue|inaccurate|wrong|nonsense|made up|fake news",
            ),
            (r"<saying>", r"传言|谣言|说法|消息|想法|传闻|事情?|话|看法|结论"),
            (r"<wholly>", r"都|完全|纯|纯粹|全|根本|其实|显然"),
            (r"<no>", r"并?不(?:是真的?|对|属实|正确|成立|准确)"),
            (r"<lie>", r"假的|假话|谣言|谣传|瞎说|胡说|骗人|误会|误传|错的|编的|瞎编|骗你|造谣|诽谤|污蔑|个?笑话"),
        ],
        &[
            r"^ (?:no (?:more|longer)|not|never)$",
            r"^ (?:is|was|are) <all>?<false>(?-u:\b)",
            r"^才怪",
            r#"^["”」]?(?:的|这|那|这个|这种|那种|一)?<saying>?<wholly>?(?:<no>|(?:是|属|纯属)<lie>)"#,
        ],
    )
});
/// A doubt added behind a statement: "…, I think".
static HEDGED_BEHIND: LazyLock<Table> = LazyLock::new(|| {
    table(
        &[],
        &[
            r"^(?:or )?(?:at least )?(?:so )?(?:i|we) (?:think|guess|suppose|believe|reckon|assume)(?: so)?$",
            r"^(?:or )?(?:maybe|perhaps|probably|possibly|presumably|supposedly|not sure(?: though)?|i'm not sure)$",
            r"^(?:好像|可能|大概|也许|或许|似乎|应该|估计)(?:吧|是|的|是的|是吧)?$",
            r"^我(?:想|猜|觉得|估计)(?:吧|是)?$",
            r"^不(?:太)?确定$",
        ],
    )
});

// --- Texts that are handed over, words that are taken back -----------------------------------------------------------------------

/// An order to work on a text that follows behind a colon, or the head of an example.
static HANDED_OVER: LazyLock<Table> = LazyLock::new(|| {
    table(
        &[
            (r"<start>", r"(?:^|[.!?。！？] *)\W*"),
            (
                r"<please>",
                r"(?:please|pls|kindly|now|ok|okay|hi|hey|and|also|(?:can|could|would) you|help me|i need you to|let's),? ",
            ),
            (r"<work>", r"translate|proof-?read|rephrase|re-?write|paraphrase|summari[sz]e|spell-?check|transcribe|reword"),
            (
                r"<change>",
                r"correct|fix|polish|shorten|improve|edit|analy[sz]e|classify|say|repeat|convert|transform|turn|change|put",
            ),
            (r"<text>", r"example|sample|e\.g\.|template|sample text|sample answer|input|quote|the (?:following )?text|text"),
            (r"<请>", r"请|帮我|帮忙|麻烦|给我|你|能|能不能|再|把|将|用|来|可以"),
            (r"<作>", r"翻译|译成|译为|翻成|润色|校对|改写|改成|改一下|缩写|扩写|朗读|造句|复述|仿写|改病句|写一?[封条篇段首份]"),
            (r"<改>", r"修改|检查|总结|概括|归纳"),
        ],
        &[
            r"<start><please>*<work>(?-u:\b)[^:：\n.!?]{0,80}[:：]",
            r"<start><please>*<change> (?:this|these|the|that|my|it|in|into|to|after)(?-u:\b)[^:：\n.!?]{0,80}[:：]",
            r"<start>(?:for )?<text>(?: \d+| [a-c])?[:：]",
            r"<start><请>*[^:：\n。！？]{0,12}<作>[^:：\n。！？]{0,16}[:：]",
            r"<start><请>*[^:：\n。！？]{0,12}(?:帮我|请|把|给我)[^:：\n。！？]{0,8}<改>[^:：\n。！？]{0,16}[:：]",
            r"<start><请>*[^:：\n。！？]{0,12}<改>(?:一下|下面|以下|这)[^:：\n。！？]{0,16}[:：]",
            r"<start>(?:例如|比如|譬如|示例|范例|例句|例子|样例|例文|原文|模板)(?:说)?[一二三四\d]{0,2}[:：]",
        ],
    )
});
/// "Just kidding", "no wait", 说错了: at the beginning of what comes next.
static TAKES_BACK: LazyLock<Table> = LazyLock::new(|| {
    table(
        &[
            (
                "<start>",
                "^(?:(?:ha|haha+|hehe|lol|lmao|oh|ah|er|erm|um|ok|okay|well|hmm|sorry|nah|no|wait|hey|actually|hold on|oops|哈+|嘿+|\
呵+|呃|额|哦|噢|啊|嗯|好吧|哎呀?|等等|等一下|抱歉|不好意思)[,，.。!！… ]*)*",
            ),
            ("<end>", r"(?: ?[^\p{L}\p{N}' ]|$)"),
            ("<that>", "(?:that|it)(?:'s| was| is) (?:just |only |all )?"),
            ("<said>", "(?:我|刚才|刚刚|刚|上面|前面|那|这|是|都|只是|就是|纯属|其实|跟你|和你|在)*"),
            ("<only>", "(?:的|啦|呢|而已|罢了|玩)+"),
        ],
        &[
            "<start>(?:(?:i'm|i am|i was|im|that was|just|only|totally) )*(?:kidding|joking|joshing|jk|messing with you|pulling your leg|teasing you|trolling|making (?:that|this|it) up)(?-u:\\b)",
            "<start><that>(?:a lie|a joke|not true|made up|sarcasm|a test)<end>",
            "<start>i (?:just )?(?:made (?:that|it|all that) up|lied<end>|wish$)",
            "<start>(?:i take (?:that|it) back|scratch that|strike that|forget (?:that|what i (?:just )?said)<end>)",
            "<start>(?:no,? wait|wait,? no)(?-u:\\b)",
            "<start>(?:actually,? no|i mean,? no|correction|psych|gotcha|april fools?|/s|not really|sarcasm|typo|my mistake|as if)<end>",
            "^(?:ha|haha+|lol),? no<end>",
            "^(?:oh )?not$",
            "<start><said>开 ?(?:个 ?)?玩 ?笑 ?(?:<only>|<end>)",
            "<start><said>(?:逗你|骗你|瞎说|胡说|瞎编|乱说|唬你|忽悠你|说笑|编|假)<only>?<end>",
            "<start><said>(?:说着玩|闹着玩)",
            "<start>(?:我)?(?:刚才|刚刚|上面)?(?:说错|记错|打错|讲错|写错|搞错|弄错|口误)(?:话|字)?(?:了|啦)?<end>",
            "<start>(?:我)?(?:更正|纠正|收回)(?:一下)?(?:刚才|上面|那句|前面)?(?:的话|说的|那句话?)?<end>",
            "<start>(?:不对|不是的?|哦?不|才怪)(?:[,，.。!！…]|$)",
            "<start>才(?:没有|不是)(?:呢|啦|啊)?$",
        ],
    )
});
/// What looks like it and is none: "no kidding", 没开玩笑.
static KEEPS: LazyLock<Pattern> = LazyLock::new(|| {
    regex(r"(?i)^(?:(?:i'm|i am) )?(?:not?|never) (?:kidding|joking|joke)(?-u:\b)|(?:没|不|别)(?:是|在)?(?:跟你)?开玩笑")
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g2_a_turn_of_one_letter_costs_no_more_than_another() {
        let turn = "a, ".repeat(20_000);
        assert!(stands_in("a", &turn));
        assert!(!stands_in("a b", &turn));
        assert!(!stands_in("啊不", &"啊".repeat(20_000)));
    }

    #[test]
    fn g2_letters_are_found_again_in_the_text_as_it_is_seen() {
        for (turn, quote, seen) in [
            ("Ｉ　ｌｉｖｅ in O\u{200b}slo． Ok", "I live in Oslo", "I live in Oslo"),
            ("你好！我住在「上海」 👋", "我住在", "我住在"),
            ("İ am Ann", "am ann", "am Ann"),
        ] {
            let (quote, cleaned, turn) = (normal(quote), Cleaned::new(turn).text, normal(turn));
            let letters = Letters::of(&turn, &cleaned).expect("the same letters");
            let at = turn.find(&quote).expect("found");
            assert_eq!(&cleaned[letters.place(at..at + quote.len()).expect("letters")], seen, "{turn}");
        }
    }

    #[test]
    fn g2_a_quote_stands_in_its_turn_in_normal_form() {
        for (quote, turn) in [
            ("我不吃辣。", "你好！我不吃辣，谢谢"),
            ("From now on, always reply in Chinese", "ok.  from now on,\n always reply in Chinese!"),
            ("我的预算是１２００元", "我的预算是1200元左右"),
            ("I live in Berlin", "Hi, I live in Berlin 👋"),
            ("like tea", "I like tea"),
            ("...", "..."),
            // One place of several is enough.
            ("I live in Oslo", "Do I live in Oslo? I live in Oslo, Bob says. I live in Oslo!"),
        ] {
            assert!(stands_in(quote, turn), "{quote} in {turn}");
        }
    }

    #[test]
    fn g2_a_quote_that_turns_the_meaning_or_is_not_there_is_refused() {
        for (quote, turn) in [
            ("", "anything"),
            ("\u{200b}", "anything"),
            ("", ""),
            ("\u{200b}", "\u{200b}"),
            ("...", "anything..."),
            ("我吃辣", "我不吃辣"),
            ("吃辣", "我不吃辣"),
            ("like tea", "I do not like tea"),
            ("art", "I want to start"),
            ("I live in Paris", "I live in Berlin"),
            ("my cost centre is A-100", "Is it true that my cost centre is A-100? I guess so."),
            ("I have a meeting on 5 May", "Do I have a meeting on 5 May?"),
            ("我住在上海", "你觉得我住在上海吗？"),
        ] {
            assert!(!stands_in(quote, turn), "{quote} in {turn}");
        }
    }
}
