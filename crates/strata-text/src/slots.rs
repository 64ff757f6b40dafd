//! From a sentence to a registered key (rule K0): the registry's wordings, compiled.

use crate::certainty;
use crate::clean::Cleaned;
use crate::cues;
use crate::kinds;
use crate::literals::Filter;
use crate::pattern::{Captures, Pattern};
use crate::phrases::{compact, regex};
use crate::reality;
use crate::script::{is_han, simplified};
use crate::sentence::sentence_spans;
use crate::values::is_name_word;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::LazyLock;
use strata_core::FactKey;
use strata_core::policy::registry::{Cardinality, Registry, RegistryProblem, Takes};
use strata_core::text::{Certainty, Negation};

/// What a name in braces stands for in a wording: the user, of whom a turn speaks in the first person and a record in the third;
/// languages that one can be answered in.
const CLASSES: &[(&str, &str)] = &[
    ("{me}", "(?:i|(?:the )?user)"),
    ("{am}", "(?:i'm|i am|(?:the )?user is)"),
    ("{my}", "(?:my|(?:the )?user's)"),
    ("{我}", "(?:我|用户|本人)"),
    ("{我起}", r"(?:^|[,，。;；、!！\s]|我|用户|本人)"),
    ("{country}", kinds::COUNTRIES),
    ("{国家}", kinds::COUNTRIES_ZH),
    (
        "{industry}",
        "(?:healthcare|health care|banking|finance|fintech|insurance|education|logistics|retail|e-commerce|manufacturing|construction|\
hospitality|tourism|agriculture|farming|biotech|pharma|pharmaceuticals|aerospace|automotive|telecoms?|telecommunications|\
media|publishing|advertising|real estate|consulting|law|energy|oil and gas|mining|shipping|aviation|entertainment|gaming|\
fashion|journalism|academia|government|software|tech|it|cybersecurity|robotics|chemicals)",
    ),
    (
        "{language}",
        "(?:english|chinese|mandarin|cantonese|japanese|korean|french|german|spanish|portuguese|italian|russian|\
arabic|dutch|polish|turkish|swedish|danish|norwegian|finnish|greek|czech|hungarian|romanian|\
ukrainian|hebrew|hindi|thai|vietnamese|indonesian|malay|persian|catalan|welsh|irish)",
    ),
    (
        "{语言}",
        "(?:中文|英文|英语|汉语|普通话|粤语|日语|日文|韩语|韩文|法语|德语|西班牙语|俄语|意大利语|葡萄牙语|阿拉伯语|荷兰语|波兰语|土耳其语|瑞典语|丹麦语|挪威语|芬兰语|希腊语|捷克语|越南语|\
泰语|印尼语|马来语|印地语|乌克兰语|希伯来语|法文|德文|俄文)",
    ),
];

/// A statement that names a registered key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotMatch {
    /// The registered key; of a family, with its segment filled in.
    pub key: FactKey,
    /// The value, as written, or the value the wording stands for ("我不吃辣" is `no`).
    pub value: String,
    /// Where the value stands in the original text; of a fixed value, where the wording does.
    pub span: Range<usize>,
    /// Said for now only (rule G6): on a preference key the value becomes TEMPORARY instead of refused.
    pub passing: bool,
    /// The key is registered as a preference.
    pub preference: bool,
}

#[derive(Debug)]
struct Wording {
    pattern: String,
    regex: Pattern,
    fixed: Option<String>,
    preference: bool,
    /// The key is a set: a sentence may name several values (rule K11).
    set: bool,
    /// The wording itself denies ("我不吃辣"): then a denial around it is part of it.
    denies: bool,
    /// The wording leaves its subject out, so that it may be that of the clause before ("海鲜可以，不吃辣").
    elliptic: bool,
    /// What the values of the key are.
    takes: Option<Takes>,
}

/// The compiled wordings of a registry, in registry order: the first that matches decides.
#[derive(Debug)]
pub struct SlotMatcher {
    wordings: Filter<Wording>,
}

impl SlotMatcher {
    /// Compiles the wordings.
    ///
    /// # Errors
    /// [`RegistryProblem`] naming the key whose wording is no regular expression, is too large, or lacks the group
    /// `value` (or `slot`, for a family).
    pub fn new(registry: &Registry) -> Result<Self, RegistryProblem> {
        let mut wordings = Vec::new();
        for spec in registry.keys() {
            let english = spec.patterns.en.iter().map(|p| (p, format!(r"(?-u:\b)(?:{})", p.regex())));
            let chinese = spec.patterns.zh.iter().map(|p| (p, p.regex().to_owned()));
            for (pattern, source) in english.chain(chinese) {
                let elliptic = source.contains("{我起}");
                let source = compact(&CLASSES.iter().fold(source, |source, (name, words)| source.replace(name, words)));
                let problem = |text: String| RegistryProblem::new(&spec.pattern, text);
                let regex = Pattern::foreign(&source).map_err(|error| problem(format!("a pattern does not compile: {error}")))?;
                if pattern.value().is_none() && !regex.has_group("value") {
                    return Err(problem("a pattern has a group (?<value>...) or a fixed value".into()));
                }
                if spec.is_family() && !(regex.has_group("slot") && spec.pattern.matches('*').count() == 1) {
                    return Err(problem("a pattern of a family with one '*' has a group (?<slot>...)".into()));
                }
                let wording = Wording {
                    pattern: spec.pattern.clone(),
                    denies: pattern.value().is_some() && DENIES.is_match(pattern.regex()),
                    regex,
                    fixed: pattern.value().map(str::to_owned),
                    preference: spec.preference,
                    set: spec.cardinality == Cardinality::Set,
                    elliptic,
                    takes: spec.takes,
                };
                wordings.push((format!("(?i){source}"), wording));
            }
        }
        let wordings = Filter::new(wordings).map_err(|error| RegistryProblem::new("*", error.to_string()))?;
        Ok(Self { wordings })
    }

    /// The first slot a text states; none for a question and for hedged or reported words.
    #[must_use]
    pub fn match_slot(&self, text: &str) -> Option<SlotMatch> {
        self.match_all(text).into_iter().next()
    }

    /// Every slot a text states, in text order: one value per sentence and key, and of a set as many as are named.
    #[must_use]
    pub fn match_all(&self, text: &str) -> Vec<SlotMatch> {
        let cleaned = Cleaned::new(text);
        let simple = simplified(&cleaned.text);
        let read = without_signs(&simple);
        let mut out: Vec<SlotMatch> = Vec::new();
        for span in sentence_spans(&cleaned.text) {
            let sentence = &simple[span.clone()];
            let mut found: Vec<(usize, SlotMatch)> = Vec::new();
            for wording in self.wordings.candidates(&read[span.clone()]) {
                let Some((at, slot)) = wording.read(&cleaned, &read, &span) else { continue };
                if found.iter().any(|(_, other)| other.key == slot.key || overlaps(&other.span, &slot.span)) {
                    continue;
                }
                if wording.set && wording.fixed.is_none() {
                    found.extend(several(text, &slot).into_iter().map(|one| (at, one)));
                } else {
                    found.push((at, slot));
                }
            }
            // Looked into last: most sentences name no key.
            let part = Cleaned::new(sentence);
            if found.is_empty() || !is_plainly_stated(&part) {
                continue;
            }
            let passing = cues::passing(&part);
            found.iter_mut().for_each(|(_, slot)| slot.passing = passing);
            found.sort_by_key(|(at, _)| *at);
            out.extend(found.into_iter().map(|(_, slot)| slot));
        }
        out
    }
}

/// Wordings of a fixed value that deny, by their own source.
static DENIES: LazyLock<Pattern> = LazyLock::new(|| regex("不|没|别|忌|戒|n't|\\bnot\\b|\\bnever\\b|\\bno\\b|cannot|avoid"));

/// Whether a sentence says that something is so: no question, no report, nothing unreal, nothing hedged.
fn is_plainly_stated(sentence: &Cleaned) -> bool {
    !sentence.text.ends_with(['?', '？', '吗', '么', '呢'])
        && !cues::asks(sentence)
        && !cues::reported(sentence)
        && !reality::unreal(sentence)
        && certainty::of_cleaned(sentence) != Certainty::Hedged
}

/// The clause of a sentence that a match stands in.
fn clause_of(sentence: &str, at: Range<usize>) -> &str {
    let ends = |c: char| matches!(c, ',' | '，' | ';' | '；' | '。' | '!' | '！' | '\n');
    let from = sentence[..at.start].rfind(ends).map_or(0, |i| i + sentence[i..].chars().next().map_or(1, char::len_utf8));
    let to = sentence[at.end..].find(ends).map_or(sentence.len(), |i| at.end + i);
    &sentence[from..to]
}

/// A text with each picture written as semicolons, byte for byte: it ends a clause as they do, and stands in no word.
fn without_signs(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '\u{2190}'..='\u{2bff}' | '\u{1f000}'..='\u{1faff}') {
            out.extend(std::iter::repeat_n(';', c.len_utf8()));
        } else {
            out.push(c);
        }
    }
    out
}

// --- whose statement it is -----------------------------------------------------------------------------------------------

/// The user in the first person at the head of a match.
static FIRST_PERSON: LazyLock<Pattern> = LazyLock::new(|| regex(r"(?i)^\W*(?:(?:i|my|our)(?-u:\b)|我)"));
static WORDS: LazyLock<Pattern> = LazyLock::new(|| regex(r"[\p{L}][\p{L}'-]*|\d+"));
/// What may stand before an order, or before the bare name of a key, and names no owner.
static LIGHT: LazyLock<HashSet<&'static str>> = LazyLock::new(|| {
    "so and but or also plus then now ok okay well yes no yeah sure please pls kindly just oh hi hello hey thanks fyi btw \
         by way note noted remember don't forget that from on always only today going forward actually in future the a an \
         this new default current currently right correct correction update updated reminder my our i we you i'd i'll i'm \
         we'd want wants need needs would like should must can could to be is it's it its best better easiest way prefer \
         prefers rather let's let me us for all every everything since because as while user user's usually generally \
         normally if possible ever here's here finally again still too will shall do make ask asks expect expects next time \
         these days use using more convenient simply important thing"
        .split_whitespace()
        .collect()
});
/// The same in Chinese, up to the match.
static LIGHT_HAN: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"(?i)^(?:[^\p{L}\p{N}]|请|麻烦|以后|今后|往后|之后|从现在(?:起|开始)|从今(?:天|往后)(?:起)?|都|就|也|还|又|再|另外|还有|对了|对|嗯|哦|好的?|行|那么?|然后|所以|因为|但是?|不过|而且|并且|记住|请?记得|记一下|记好|注意|提醒一下|别忘了?|不要忘记?|其实|现在|目前|如今|眼下|平时|一般|通常|一律|统一|尽量|务必|一定|最好|可以|只|全部?|默认|帮我|给我|跟我|和我|与我|对我|你们?|您|希望|想要?|要|让|本人|用户的?|我的?|我们的?|有(?:事|消息|问题|急事|情况)|联系时?|沟通时?|回复时?|说话|聊天|把|将|更新|更正|纠正|应该?|需要|要求|直接|优先|报销|本月|这个?月|这次|这趟|下次|今天|今晚|明天|这几天|这周|本周|先|暂时|想|每次|平常|坐飞机|坐高铁|坐火车|出差|新的?|当前|的|时|更|比较|喜欢|习惯|偏好|总是|一直|经常|user|hi|hello|ok)*$",
    )
});
/// What may follow an order in Chinese: nothing, the user, or what every order may end with.
static ORDER_END: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"^(?:$|[^\p{L}\p{N}]|我(?:的(?:问题|消息|提问|话|请求|邮件)|们|吧|就|即|$|[^\p{L}\p{N}])|(?:吧|啊|呀|哦|哈|呢|啦|嘛|就行|就好|就可以|即可|为主|为准|所有|一切|全部|每|问题|消息|谢谢|较好|更好|比较|最好|行|好)|了(?:$|[^\p{L}\p{N}]))",
    )
});
/// Words of a label that names no speaker: "Note: my cost centre is ..."
const LABELS: &str = "note notes update updates correction reminder important fyi ps info edit profile summary memo preference preferences \
         details me user human fact facts question answer subject re new also btw address hi hello all everyone";
/// What is believed, and not so.
static BELIEVED: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"(?i)(?:以为|当成?|假装|装作|冒充|谎称|梦见|(?:thought|assumed|pretend(?:ed|ing)?|imagine|suppose|say|wished?|dreamt|dreamed)(?: that)? )$",
    )
});

/// Whether what a wording found is said of the user: `whole` is the match in a sentence, `value` where its value ends.
fn is_users(sentence: &str, whole: Range<usize>, value: Option<usize>) -> bool {
    // A wording that may open its clause begins at the sign before it.
    let start = sentence[whole.clone()].find(char::is_alphanumeric).map_or(whole.start, |at| whole.start + at);
    let whole = start..whole.end;
    let before = &sentence[..whole.start];
    if is_quoted(sentence, &whole) || has_speaker(before) || goes_on(sentence, &whole) {
        return false;
    }
    let head = before.rsplit(|c: char| ",，;；。.!！:：\n()（）\"".contains(c)).next().unwrap_or_default();
    let found = &sentence[whole.clone()];
    if FIRST_PERSON.is_match(found) {
        return !BELIEVED.is_match(before);
    }
    let bare = !(found.starts_with("用户") || found.starts_with("本人"));
    let order = bare && value.is_some_and(|end| end < whole.end) && found.ends_with(is_han);
    // "我用英语回复了客户": what the user does is no order.
    let own_doing = order
        && head.trim_end().ends_with('我')
        && !["跟我", "和我", "与我", "给我", "对我"].iter().any(|to_user| head.trim_end().ends_with(to_user));
    is_light(head) && !own_doing && (!order || ORDER_END.is_match(&sentence[whole.end..])) && (!bare || is_of_user_before(before))
}

/// Whether nothing in the words before a match names another owner.
fn is_light(head: &str) -> bool {
    let latin = WORDS.find_iter(head).filter(|word| !word.as_str().contains(is_han));
    let mut latin = latin.map(|word| word.as_str().to_lowercase());
    latin.all(|word| LIGHT.contains(&*word))
        && LIGHT_HAN.is_match(&head.chars().filter(|c| !c.is_alphanumeric() || is_han(*c)).collect::<String>())
}

/// Whether a match stands in a quotation inside a longer sentence: those are the words of somebody.
fn is_quoted(sentence: &str, at: &Range<usize>) -> bool {
    let before = &sentence[..at.start];
    let opened = [('「', '」'), ('『', '』'), ('“', '”'), ('《', '》')]
        .into_iter()
        .filter_map(|(open, close)| before.rfind(open).filter(|from| !before[*from..].contains(close)))
        .chain(before.rfind('"').filter(|_| before.matches('"').count() % 2 == 1))
        .max();
    opened.is_some_and(|from| before[..from].contains(char::is_alphanumeric))
}

/// Whether a name with a colon stands before: "Bob: my cost centre is CC-9".
fn has_speaker(before: &str) -> bool {
    let Some((label, said)) = before.rsplit_once([':', '：']) else { return false };
    if said.contains([',', '，', ';', '；']) {
        return false;
    }
    let label = label.rsplit([',', '，', ';', '；', '\n', '(']).next().unwrap_or_default().trim();
    if label.contains(is_han) {
        return label.chars().count() <= 4 && cues::names_somebody(label);
    }
    let mut words = label.split(' ').filter(|word| !word.is_empty()).peekable();
    let named = |word: &str| {
        word.starts_with(char::is_uppercase) && is_name_word(word) && !LABELS.split_whitespace().any(|l| l == word.to_lowercase())
    };
    words.peek().is_some() && label.split(' ').count() <= 3 && words.all(named)
}

/// Whether the match stops inside a word, or at a word that belongs to what follows: "my time zone is diff|erent", "in English
/// class", "Bob's| team". What may follow a value is a small word, an adverb, a number, or a sign.
fn goes_on(sentence: &str, whole: &Range<usize>) -> bool {
    let (found, rest) = (&sentence[whole.clone()], &sentence[whole.end..]);
    if !found.ends_with(|c: char| c.is_ascii_alphanumeric()) {
        return false;
    }
    let mut chars = rest.chars();
    match chars.next() {
        Some(c) if c.is_ascii_alphanumeric() || c == '_' => true,
        Some('\'' | '-' | '/' | '@') => chars.next().is_some_and(|c| c.is_ascii_alphanumeric()),
        Some(' ') => {
            let word =
                rest.trim_start().split(|c: char| !c.is_alphanumeric() && !matches!(c, '\'' | '-')).next().unwrap_or_default();
            let lower = word.to_lowercase();
            // "Deaf to his complaints" is no ear.
            if lower == "to" && ["deaf", "blind"].iter().any(|sense| found.to_lowercase().ends_with(sense)) {
                return true;
            }
            !(word.is_empty()
                || !word.is_ascii()
                || word.ends_with("ly")
                || word.starts_with(|c: char| c.is_ascii_digit())
                || FOLLOWS.contains(&*lower))
        }
        _ => false,
    }
}

/// Words that may follow a value and are no part of it.
static FOLLOWS: LazyLock<HashSet<&'static str>> = LazyLock::new(|| {
    "and or so but now please pls from since until till when whenever if for at on in by with without as last this next \
         unless because cause then only rather instead over than too also again always though although these those today \
         tomorrow yesterday near not even just still who which that where while after before every each during through via \
         per within around about anymore any nowadays here there btw fyi thanks thank thx ok okay i i'm i've i'd we we're my \
         our your you he it they the a an permanently all most some usually sometimes often ever except excluding including \
         plus either tho lol haha yes no sir full-time part-time monday tuesday wednesday thursday friday saturday sunday \
         january february march april may june july august september october november december jan feb mar apr jun jul aug \
         sep oct nov dec spring summer autumn winter days years months weeks ago time times one two three four five six seven \
         eight nine ten several couple few going moving to me myself together alone anyway hence starting effective onwards \
         forever once twice daily is are was will would can could should do does did has have had up both et etc more right \
         actually yet already temporarily for-now mate man guys everyone by-the-way"
        .split_whitespace()
        .collect()
});

/// Whether the nearest clause before that has a subject, if any, speaks of the user: of whom a clause without one speaks.
fn is_of_user_before(before: &str) -> bool {
    let ends = |c: char| ",，;；。.!！?？:：\n".contains(c);
    let clauses = before.rsplit(ends).filter(|clause| clause.contains(char::is_alphanumeric)).take(3);
    for clause in clauses {
        let part = Cleaned::new(clause);
        if cues::of_user(&part) || FIRST_PERSON.is_match(clause) && !cues::of_kin(&part) {
            return true;
        }
        if cues::of_kin(&part) || cues::names_somebody(clause) {
            return false;
        }
    }
    true
}

/// What joins the items of a list.
static JOINS: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"(?i)\s*(?:,|，)?\s+(?:and|or|as well as|plus)\s+(?:also\s+|to\s+)?|\s*[,，]\s*(?:to\s+)?|\s*(?:、|以及|还有|&|/)\s*|[和跟与及]",
    )
});
/// The next item of a list that a wording stopped at: a join, and up to three words before the next sign.
static MORE: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"(?i)^(?P<join>,? (?:and|or|as well as|plus) (?:also )?(?:to )?|, (?:to )?)(?P<item>[a-z][a-z'-]*(?: [a-z'-]+){0,2}?)(?P<end>[.,;!]|$| and | or | as well | but | so )",
    )
});
/// First words of a clause, which no item of a list begins with.
const NO_ITEM: &[&str] = &[
    "i",
    "i'm",
    "i've",
    "we",
    "my",
    "so",
    "please",
    "it",
    "that",
    "this",
    "the",
    "have",
    "has",
    "can",
    "can't",
    "cannot",
    "must",
    "don't",
    "do",
    "is",
    "are",
    "am",
    "need",
    "always",
    "never",
    "he",
    "she",
    "they",
    "you",
    "which",
    "but",
    "carry",
    "hate",
    "love",
    "like",
    "want",
    "live",
    "work",
    "avoid",
    "therefore",
    "not",
    "should",
    "keep",
    "take",
    "lactose",
];

/// The values of a set that one sentence names: "peanuts, shrimp and eggs", "花生、虾和鸡蛋". Each with its own span in the
/// original; the one found alone when it is no list.
fn several(text: &str, first: &SlotMatch) -> Vec<SlotMatch> {
    let one = |value: &str, span: Range<usize>| SlotMatch { value: value.to_owned(), span, ..first.clone() };
    let mut out = Vec::new();
    let mut push = |value: &str, at: usize| {
        let trimmed = value.trim();
        if !trimmed.is_empty() && !out.iter().any(|other: &SlotMatch| other.value == trimmed) {
            let from = at + value.len() - value.trim_start().len();
            out.push(one(trimmed, from..from + trimmed.len()));
        }
    };
    let whole = &text[first.span.clone()];
    let mut from = 0;
    for join in JOINS.find_iter(whole) {
        if join.start() > from && join.end() < whole.len() {
            push(&whole[from..join.start()], first.span.start + from);
            from = join.end();
        }
    }
    push(&whole[from..], first.span.start + from);
    // English wordings stop at the first "and": what follows may be the next item.
    let mut at = first.span.end;
    while let Some(more) = MORE.captures(&text[at..]) {
        let item = &more["item"];
        let begins = item.split(' ').next().unwrap_or_default().to_lowercase();
        if NO_ITEM.contains(&begins.as_str()) {
            break;
        }
        push(item, at + more["join"].len());
        at += more["join"].len() + item.len();
    }
    out
}

fn overlaps(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

impl Wording {
    /// What the wording finds in one sentence of `read`, the cleaned text as it is matched: the first place where it is the user's
    /// statement and a value that the key can take.
    fn read(&self, cleaned: &Cleaned, read: &str, sentence: &Range<usize>) -> Option<(usize, SlotMatch)> {
        self.regex.captures_iter(&read[sentence.clone()]).find_map(|captures| self.slot(&captures, cleaned, read, sentence))
    }

    fn slot(
        &self,
        captures: &Captures<'_>,
        cleaned: &Cleaned,
        read: &str,
        sentence: &Range<usize>,
    ) -> Option<(usize, SlotMatch)> {
        let text = &read[sentence.clone()];
        let whole = captures.get(0)?;
        let clause = clause_of(text, whole.range());
        // "Don't reply in English", "我对花生不过敏", "I used to live in Rome" and "如果我住在上海" do not say that it is so.
        if (!self.denies && certainty::negation_of(&Cleaned::new(clause)) != Negation::None) || reality::qualified(clause) {
            return None;
        }
        let found = if self.fixed.is_some() { whole } else { captures.name("value")? };
        // Of whom a family speaks its own wording says.
        let value_end = captures.name("value").map(|value| value.end());
        if captures.name("slot").is_none()
            && !(is_users(text, whole.range(), value_end)
                && (!self.elliptic || is_of_user_before(&read[..sentence.start + whole.start()])))
        {
            return None;
        }
        let taken = match self.takes {
            Some(takes) if self.fixed.is_none() => kinds::taken(takes, text, found.range())?,
            _ => found.range(),
        };
        let raw = &cleaned.text[sentence.start + taken.start..sentence.start + taken.end];
        let value = raw.trim().trim_end_matches([',', ';', '.', ':', '!']);
        if value.is_empty() {
            return None;
        }
        let from = sentence.start + taken.start + (raw.len() - raw.trim_start().len());
        let key = match captures.name("slot") {
            Some(slot) => self.pattern.replace('*', &slug(slot.as_str()).filter(|_| is_name_word(slot.as_str()))?),
            None => self.pattern.clone(),
        };
        Some((
            sentence.start + whole.start(),
            SlotMatch {
                key: FactKey::new(key).ok()?,
                value: self.fixed.clone().unwrap_or_else(|| value.to_owned()),
                span: cleaned.original(from..from + value.len()),
                passing: false,
                preference: self.preference,
            },
        ))
    }
}

/// A key segment from a name; none when it holds a letter that keys do not.
fn slug(name: &str) -> Option<String> {
    let slug = name.to_lowercase().replace(' ', "_");
    slug.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-')).then_some(slug)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k0_only_the_plain_statement_fills_a_slot() {
        let matcher = matcher();
        for text in [
            "我对花生不过敏",
            "我对花生没有过敏",
            "不要用英文回复我",
            "别用英语跟我说",
            "别给我订商务舱",
            "不要用微信联系我",
            "如果我住在上海就好了",
            "以前我不吃辣",
            "Don't reply in English.",
            "Never reply in French.",
            "Do not contact me by phone.",
            "Don't call me Bob.",
            "Do not book me a window seat.",
            "Do not use cost centre A-100.",
            "I am allergic to nothing.",
            "I used to live in Rome.",
            "If I live in Rome one day, I'll learn Italian.",
        ] {
            assert_eq!(matcher.match_slot(text), None, "{text}");
        }
        for (text, key, value) in [
            ("我对花生过敏", "allergy[]", "花生"),
            ("我不吃辣", "diet.spicy", "no"),
            ("I don't eat spicy food", "diet.spicy", "no"),
            ("别忘了，我的成本中心是 B-200", "work.cost_centre", "B-200"),
            ("Don't forget my cost centre is B-200.", "work.cost_centre", "B-200"),
            ("No, my cost centre is B-200.", "work.cost_centre", "B-200"),
            ("This time I'd like a window seat", "travel.seat", "window"),
        ] {
            let found = matcher.match_slot(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((found.key.as_str(), found.value.as_str()), (key, value), "{text}");
        }
    }

    #[test]
    fn k11_every_value_of_a_set_that_a_sentence_names() {
        let matcher = matcher();
        for (text, expected) in [
            ("I am allergic to peanuts and shrimp", vec!["peanuts", "shrimp"]),
            ("I'm allergic to peanuts, shrimp and tree nuts.", vec!["peanuts", "shrimp", "tree nuts"]),
            ("I'm allergic to peanuts and I live in Rome", vec!["peanuts"]),
            ("I am allergic to peanuts, so please check the menu", vec!["peanuts"]),
            ("我对花生和虾过敏", vec!["花生", "虾"]),
            ("我对花生、虾和鸡蛋过敏", vec!["花生", "虾", "鸡蛋"]),
            ("我对青霉素过敏，住在杭州", vec!["青霉素"]),
            ("我对和牛过敏", vec!["和牛"]),
        ] {
            let found: Vec<SlotMatch> =
                matcher.match_all(text).into_iter().filter(|slot| slot.key.as_str() == "allergy[]").collect();
            assert_eq!(found.iter().map(|slot| slot.value.as_str()).collect::<Vec<_>>(), expected, "{text}");
            for slot in found {
                assert_eq!(&text[slot.span], slot.value, "{text}");
            }
        }
        for text in ["我奶奶花粉过敏", "我同事总是过敏", "我女儿对花生过敏"] {
            assert_eq!(matcher.match_slot(text), None, "{text}");
        }
    }

    fn matcher() -> SlotMatcher {
        SlotMatcher::new(&Registry::builtin()).expect("the built-in wordings compile")
    }

    #[test]
    fn k0_sentences_resolve_to_registered_keys() {
        let matcher = matcher();
        for (text, key, value) in [
            ("My cost centre is CC-1042 from now on", "work.cost_centre", "CC-1042"),
            ("成本中心改成 CC-2077", "work.cost_centre", "CC-2077"),
            ("我的默认成本中心是ＣＣ－２０７７", "work.cost_centre", "CC-2077"),
            ("我不吃辣", "diet.spicy", "no"),
            ("用户不吃辣。", "diet.spicy", "no"),
            ("I don't eat spicy food", "diet.spicy", "no"),
            ("我现在能吃辣了", "diet.spicy", "yes"),
            ("I live in Hangzhou now", "profile.city", "Hangzhou"),
            ("I moved to New York last week", "profile.city", "New York"),
            ("我住在杭州", "profile.city", "杭州"),
            ("我搬到上海了", "profile.city", "上海"),
            ("I am allergic to peanuts", "allergy[]", "peanuts"),
            ("我对青霉素过敏", "allergy[]", "青霉素"),
            ("My name is Lin Wei", "profile.name", "Lin Wei"),
            ("我叫林薇", "profile.name", "林薇"),
            ("Please call me Sam", "communication.address", "Sam"),
            ("以后叫我老王就行", "communication.address", "老王"),
            ("I work at Acme Corp", "profile.employer", "Acme Corp"),
            ("I'm a backend engineer", "profile.role", "backend engineer"),
            ("我是后端工程师", "profile.role", "后端工程师"),
            ("Please always reply in Chinese", "reply.language", "Chinese"),
            ("以后请用中文回复", "reply.language", "中文"),
            ("I prefer email over phone", "contact.channel", "email"),
            ("Contact me by e-mail", "contact.channel", "e-mail"),
            ("有事用微信联系我", "contact.channel", "微信"),
            ("I always prefer an aisle seat", "travel.seat", "aisle"),
            ("坐飞机我喜欢靠窗的座位", "travel.seat", "靠窗"),
            ("My birthday is May 3.", "profile.birthday", "May 3"),
            ("我的生日是5月3日", "profile.birthday", "5月3日"),
            ("I work from 9am to 6pm", "work.hours", "9am to 6pm"),
            ("The deadline for project Heron is May 8, 2026.", "project.heron.deadline", "May 8, 2026"),
            ("Lin is our tech lead", "person.lin.job_title", "tech lead"),
            ("The user lives in Hangzhou.", "profile.city", "Hangzhou"),
            ("The user does not eat spicy food", "diet.spicy", "no"),
            ("The user is allergic to shellfish.", "allergy[]", "shellfish"),
            ("The user's cost centre is CC-1042", "work.cost_centre", "CC-1042"),
            ("The user prefers to be contacted by email rather than by phone", "contact.channel", "email"),
            ("The user works at Acme.", "profile.employer", "Acme"),
            ("User prefers short answers", "reply.style", "short"),
            ("用户住在成都", "profile.city", "成都"),
            ("用户的生日是5月3日", "profile.birthday", "5月3日"),
            ("用户坐飞机喜欢靠窗的座位", "travel.seat", "靠窗"),
            ("海鲜可以，不吃辣", "diet.spicy", "no"),
            ("本人不能吃辣", "diet.spicy", "no"),
        ] {
            let found = matcher.match_slot(text).map(|s| (s.key.as_str().to_owned(), s.value));
            assert_eq!(found, Some((key.to_owned(), value.to_owned())), "{text}");
        }
    }

    #[test]
    fn k0_near_misses_do_not_resolve() {
        let matcher = matcher();
        for text in [
            "Do you live in Hangzhou?",
            "你住在杭州吗",
            "My boss said my cost centre is CC-9",
            "老板说成本中心改成 CC-9",
            "spicy is a brand of kernel",
            "The city is large",
            "I like tea",
            "他对花生过敏的事我不清楚吗？",
            "I work late",
            "My cost centre is wrong",
            "My role is important",
            "I may move to Shanghai",
            "I think I live in Hangzhou",
            "My wife is allergic to peanuts",
            "This is a manager",
            "I need the front door key",
            "他不吃辣",
            "我妈妈对花生过敏",
            "她喜欢靠窗的座位",
            "我可能搬到上海",
            "我做完工作就走",
            "call me later",
            "我叫了外卖",
        ] {
            assert_eq!(matcher.match_slot(text), None, "{text}");
        }
    }

    #[test]
    fn g6_a_passing_wish_on_a_preference_key_is_told() {
        let matcher = matcher();
        for (text, key) in [
            ("这次想吃辣的", "diet.spicy"),
            ("This time I'd like something spicy", "diet.spicy"),
            ("这次要靠窗的座位", "travel.seat"),
        ] {
            let slot = matcher.match_slot(text).expect(text);
            assert!(slot.passing && slot.preference && slot.key.as_str() == key, "{text}: {slot:?}");
        }
    }

    #[test]
    fn spans_are_of_the_original() {
        let text = "前言。我住\u{200b}在杭\u{200b}州。";
        let slot = matcher().match_slot(text).expect("slot");
        assert_eq!((&text[slot.span], slot.value.as_str()), ("杭\u{200b}州", "杭州"));
    }

    #[test]
    fn several_slots_in_text_order() {
        let found = matcher().match_all("我叫林薇，住在杭州。我对花生过敏，不吃辣。");
        let keys: Vec<&str> = found.iter().map(|s| s.key.as_str()).collect();
        assert_eq!(keys, ["profile.name", "allergy[]", "diet.spicy"]);
    }

    #[test]
    fn a_bad_wording_is_refused_by_key() {
        for pattern in ["(", "no group", "(?<value>a{9999}{9999})"] {
            let toml = format!("[[key]]\npattern = \"a.b\"\npatterns.en = ['''{pattern}''']");
            let registry = Registry::from_toml(&toml).expect("form");
            assert_eq!(SlotMatcher::new(&registry).expect_err(pattern).key, "a.b");
        }
    }
}
