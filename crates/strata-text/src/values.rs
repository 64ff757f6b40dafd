//! Protected values (rules S3, G12): what must survive letter for letter in a summary and stand in a quote. Found by
//! form, not by a dictionary of the world; where form is not enough (a name at the start of a sentence) the finder
//! prefers to miss, since a wrong find would refuse a true sentence.

use crate::analyze::jieba;
use crate::clean::{Cleaned, normal};
use crate::numerals::{HAN_DIGITS, normal_number};
use crate::pattern::Pattern;
use crate::phrases::{Listed, regex};
use crate::script::is_han;
use crate::sentence::sentence_spans;
use crate::spans::Disjoint;
use crate::times::times;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::LazyLock;
use strata_core::text::{ProtectedValue, ValueKind};

/// Protected values of a text, in order, not overlapping; spans in bytes of the original.
#[must_use]
pub fn protected_values(text: &str) -> Vec<ProtectedValue> {
    find(&Cleaned::new(text), text)
}

pub(crate) fn find(cleaned: &Cleaned, original: &str) -> Vec<ProtectedValue> {
    let text = cleaned.text.as_str();
    let mut found = Found(Disjoint::new());
    for m in URL.find_iter(text) {
        let trimmed = m.as_str().trim_end_matches(['.', ',', ';', ':', '!', '?', ')', '"', '\'']);
        found.add(ValueKind::Url, m.start()..m.start() + trimmed.len(), trimmed.to_lowercase());
    }
    for m in PATH.captures_iter(text).filter_map(|c| c.name("path")) {
        let trimmed = m.as_str().trim_end_matches(['.', ',']);
        found.add(ValueKind::Url, m.start()..m.start() + trimmed.len(), trimmed.to_owned());
    }
    for time in times(text) {
        found.add(ValueKind::Time, time.span, time.normal);
    }
    amounts(text, &mut found);
    for m in CODE_SPAN.captures_iter(text).filter_map(|c| c.get(1)) {
        found.add(ValueKind::Id, m.range(), m.as_str().to_lowercase());
    }
    for m in ID.find_iter(text) {
        let trimmed = m.as_str().trim_end_matches(['.', '-', '_', ':', '/']);
        if is_id(trimmed) {
            found.add(ValueKind::Id, m.start()..m.start() + trimmed.len(), normal_id(trimmed));
        }
    }
    for m in NUMBER.find_iter(text) {
        let digits = m.as_str().bytes().filter(u8::is_ascii_digit).count();
        let kind = if digits >= 7 && !m.as_str().contains([',', '.']) { ValueKind::Id } else { ValueKind::Number };
        if let Some(normal) = normal_number(m.as_str(), "") {
            found.add(kind, m.range(), normal);
        }
    }
    names(text, &mut found);
    found.into_values(cleaned, original)
}

/// Protected values of `content` that do not stand in any of `quotes`, in normal form (rule G12; the date exception is
/// the caller's, who knows the turn's time). A name also counts as standing where its letters stand, so that a plain word
/// taken for a name at most costs nothing.
#[must_use]
pub fn missing(content: &[ProtectedValue], quotes: &[(&str, &[ProtectedValue])]) -> Vec<ProtectedValue> {
    let quoted: HashSet<&str> = quotes.iter().flat_map(|(_, values)| values.iter().map(|v| v.normal.as_str())).collect();
    let texts: Vec<String> = quotes.iter().map(|(text, _)| normal(text)).collect();
    content
        .iter()
        .filter(|value| {
            let stands = quoted.contains(value.normal.as_str())
                || texts.iter().any(|text| match value.kind {
                    ValueKind::Name | ValueKind::Url => text.contains(&value.normal),
                    ValueKind::Id | ValueKind::Amount | ValueKind::Number | ValueKind::Time => stands_alone(text, &value.normal),
                });
            !stands
        })
        .cloned()
        .collect()
}

/// Whether a text holds a value letter for letter, with nothing glued to it (rule S3).
#[must_use]
pub fn holds(text: &str, value: &str) -> bool {
    stands_alone(text, value)
}

/// Whether `needle` stands in `text` with no letter or digit glued to either end: 5 does not stand in 50.
fn stands_alone(text: &str, needle: &str) -> bool {
    !needle.is_empty()
        && text.match_indices(needle).any(|(at, found)| {
            let glued = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
            let before = text[..at].chars().next_back();
            let after = text[at + found.len()..].chars().next();
            let decimal = after == Some('.') && text[at + found.len() + 1..].starts_with(|c: char| c.is_ascii_digit());
            !glued(before) && !glued(after) && before != Some('.') && !decimal
        })
}

static URL: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r#"(?i)(?:(?:https?|ftp|wss?|ssh|git|s3|redis|mailto|file)://?[^\s<>"'\p{Han}，。；！？（）【】《》、]+|[a-z0-9._%+-]+@[a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z]{2,}|(?-u:\b)(?:www\.)?(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+(?:com|org|net|io|dev|cn|edu|gov|ai|app|co|me|info|uk|de|jp|example)(?:/[^\s<>"'\p{Han}，。；！？（）]*)?(?-u:\b))"#,
    )
});
/// A file path: absolute, home or drive, of two segments at least; "and/or" is none.
static PATH: LazyLock<Pattern> = LazyLock::new(|| {
    regex(r#"(?:^|[\s"'`(:=,]|\p{Han})(?<path>(?:~|\.{1,2})?/[\w.@-]+(?:/[\w.@-]+)+/?|[A-Za-z]:\\[\w.\\-]+|~/[\w.@-]+)"#)
});
static CODE_SPAN: LazyLock<Pattern> = LazyLock::new(|| regex(r"`([^`\n]{1,80})`"));
/// A token that may be an id; [`is_id`] decides.
static ID: LazyLock<Pattern> = LazyLock::new(|| regex(r"#\d+|[A-Za-z0-9](?:[A-Za-z0-9]|[-_./:][A-Za-z0-9]){1,80}"));
static NUMBER: LazyLock<Pattern> = LazyLock::new(|| {
    regex(&format!(
        r"[-+]?\d{{1,3}}(?:,\d{{3}})+(?:\.\d+)?|[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|[{HAN_DIGITS}]*[十百千万亿][{HAN_DIGITS}]+"
    ))
});

/// Letters and digits mixed, digits in groups (versions, addresses), or `snake_case`.
fn is_id(token: &str) -> bool {
    let digits = token.bytes().filter(u8::is_ascii_digit).count();
    let letters = token.bytes().filter(u8::is_ascii_alphabetic).count();
    if token.starts_with('#') {
        return true;
    }
    if digits == 0 {
        return token.contains('_') && letters >= 3;
    }
    if letters == 0 {
        return token.matches(['.', '-', ':', '/']).count() >= 2;
    }
    // Ordinals and "20s" are words; units were taken before.
    let lower = token.to_lowercase();
    let ordinal = lower.trim_start_matches(|c: char| c.is_ascii_digit());
    !matches!(ordinal, "st" | "nd" | "rd" | "th" | "s")
}

/// Ids compare without case; digit groups also without their separators.
fn normal_id(id: &str) -> String {
    if id.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'-' | b' ')) {
        id.replace(['-', ' '], "")
    } else {
        id.to_lowercase()
    }
}

// --- amounts ---------------------------------------------------------------------------------------------------------

const NUMERAL: &str = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?";
const MULTIPLIER: &str = "hundred|thousand|million|billion|bn|k|m|w|百万|千万|十亿|百|千|万|亿";

/// Words of a currency and its code.
const CURRENCIES: &[(&str, &str)] = &[
    (r"us\$|usd|\$|dollars?|bucks|美元|美金|刀", "usd"),
    (r"€|eur|euros?|欧元", "eur"),
    (r"£|gbp|pounds?|英镑", "gbp"),
    (r"¥|￥|cny|rmb|yuan|人民币|元人民币|元|块钱|块", "cny"),
    (r"jpy|yen|日元", "jpy"),
    (r"hk\$|hkd|港币|港元", "hkd"),
    (r"₹|inr|rupees?|卢比", "inr"),
    (r"₩|krw|won|韩元", "krw"),
    (r"chf|francs?|瑞士法郎", "chf"),
];

/// Units and their common form. Measure words of Chinese count things and have none: "三个" is the number 3.
const UNITS: &[(&str, &str)] = &[
    ("%|percent|per cent|个百分点", "%"),
    ("km/h|公里每小时", "km/h"),
    ("kilometers?|kilometres?|km|公里|千米", "km"),
    ("平方米|平米|sqm|square meters?", "m2"),
    ("meters?|metres?|米", "m"),
    ("centimeters?|centimetres?|cm|厘米|公分", "cm"),
    ("millimeters?|millimetres?|mm|毫米", "mm"),
    ("miles?|英里", "mile"),
    ("kilograms?|kilos?|kg|公斤|千克", "kg"),
    ("grams?|克", "g"),
    ("milligrams?|mg|毫克", "mg"),
    ("斤", "jin"),
    ("lbs?|pounds? of weight|磅", "lb"),
    ("liters?|litres?|升", "l"),
    ("ml|毫升", "ml"),
    ("gb/s", "gb/s"),
    ("mb/s", "mb/s"),
    ("gbps", "gbps"),
    ("mbps", "mbps"),
    ("tb", "tb"),
    ("gib", "gib"),
    ("mib", "mib"),
    ("kib", "kib"),
    ("gb", "gb"),
    ("mb", "mb"),
    ("kb", "kb"),
    ("bytes?|字节", "byte"),
    ("ghz", "ghz"),
    ("mhz", "mhz"),
    ("hz", "hz"),
    ("°c|degrees? celsius|摄氏度|度", "°c"),
    ("°f|degrees? fahrenheit|华氏度", "°f"),
    ("mph", "mph"),
    ("kwh|千瓦时|度电", "kwh"),
    ("kw|千瓦", "kw"),
    ("px|pixels?|像素", "px"),
    ("qps|rps|tps", "qps"),
    ("tokens?", "token"),
    ("years? old|岁", "year old"),
];

const MEASURES: &str = "个|位|名|人|次|台|页|件|条|只|张|本|份|套|层|楼|章|节|轮|倍|瓶|杯|盒|箱|袋|支|把|棵|家|间|门|部|辆|架|艘|颗|粒|片|块儿|笔|组|批|项|种|类|步|号线|路车";

/// English nouns that are counted like units; their number alone is compared, since "15 people" and "15 人" are one.
const COUNTED: &str = "people|persons?|users?|guests?|adults?|kids|children|items?|pieces?|units?|copies|pages?|times|rooms?|nights?|seats?|tickets?|rows?|records?|files?|lines?|\
    requests?|retries|instances?|replicas?|servers?|nodes?|employees?|engineers?|developers?|customers?|orders?|steps?|points?|floors?|bottles?|cups?|boxes|cores|threads|\
    sisters?|brothers?|siblings?|sons?|daughters?|cousins?|cats?|dogs?|pets?|cars?|bikes?|houses?|languages?|jobs?|meetings?|members?|teams?|offices?|shops?|projects?";

/// The alternatives of a table row, each closed by a word boundary where it ends in a letter: "5 kg" but not "5 kgs7",
/// and no boundary after a Han unit, which any character may follow.
fn closed(words: &str) -> String {
    let each = words.split('|').map(|word| {
        let letter = word.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '?');
        format!("{word}{}", if letter { r"(?-u:\b)" } else { "" })
    });
    each.collect::<Vec<_>>().join("|")
}

/// A number, its optional multiplier, and one of `words`.
fn with_unit(words: &str) -> String {
    format!(r"(?i)({NUMERAL}|[{HAN_DIGITS}]+) ?(?:({MULTIPLIER}) ?)?(?:{})", closed(words))
}

/// Amounts by their expression, each with its unit.
type Units = LazyLock<Listed<&'static str>>;

static MONEY_BEFORE: Units = LazyLock::new(|| {
    let before = |words| format!(r"(?i)(?:{words}) ?({NUMERAL})(?: ?({}))?", closed(MULTIPLIER));
    Listed::new(CURRENCIES.iter().map(|(words, code)| (before(words), *code)))
});
static MONEY_AFTER: Units = LazyLock::new(|| Listed::new(CURRENCIES.iter().map(|(words, code)| (with_unit(words), *code))));
static PERCENT_OF: LazyLock<Pattern> = LazyLock::new(|| regex(&format!(r"百分之({NUMERAL}|[{HAN_DIGITS}]+)")));
static QUANTITIES: Units = LazyLock::new(|| Listed::new(UNITS.iter().map(|(words, unit)| (with_unit(words), *unit))));
static SCALED: LazyLock<Pattern> = LazyLock::new(|| {
    regex(&format!(r"(?i)({NUMERAL}) ?({})", closed("hundred|thousand|million|billion|百万|千万|十亿|百|千|万|亿")))
});
static MEASURED: LazyLock<Pattern> =
    LazyLock::new(|| regex(&format!(r"(?i)(\d+|[{HAN_DIGITS}]+)(?:{MEASURES})|(?-u:\b)({NUMERAL}) (?:{COUNTED})(?-u:\b)")));

/// A number word before a counted noun: "three children" and "3 children" are one.
static SPELLED: LazyLock<Pattern> = LazyLock::new(|| {
    regex(&format!(
        r"(?i)(?-u:\b)(two|three|four|five|six|seven|eight|nine|ten|eleven|twelve) (?:\p{{Ll}}+ )?(?:{COUNTED})(?-u:\b)"
    ))
});

fn english_number(word: &str) -> Option<&'static str> {
    const WORDS: [&str; 11] = ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];
    const DIGITS: [&str; 11] = ["2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12"];
    WORDS.iter().position(|w| w.eq_ignore_ascii_case(word)).map(|at| DIGITS[at])
}

fn amounts(text: &str, found: &mut Found) {
    let with_units = |found: &mut Found, patterns: &Listed<&str>| {
        for (pattern, unit) in patterns.candidates(text) {
            for c in pattern.captures_iter(text) {
                let (Some(whole), Some(number)) = (c.get(0), c.get(1)) else { continue };
                // "一块" is "together", "一度" is "once".
                if matches!(whole.as_str(), "一块" | "一度" | "千万" | "一刀") {
                    continue;
                }
                if let Some(value) = normal_number(number.as_str(), c.get(2).map_or("", |m| m.as_str())) {
                    found.add(ValueKind::Amount, whole.range(), format!("{value} {unit}"));
                }
            }
        }
    };
    with_units(found, &MONEY_BEFORE);
    with_units(found, &MONEY_AFTER);
    for c in PERCENT_OF.captures_iter(text) {
        if let (Some(whole), Some(value)) = (c.get(0), normal_number(&c[1], "")) {
            found.add(ValueKind::Amount, whole.range(), format!("{value} %"));
        }
    }
    with_units(found, &QUANTITIES);
    for c in SCALED.captures_iter(text) {
        if let (Some(whole), Some(value)) = (c.get(0), normal_number(&c[1], &c[2])) {
            found.add(ValueKind::Number, whole.range(), value);
        }
    }
    for c in SPELLED.captures_iter(text) {
        if let (Some(whole), Some(value)) = (c.get(1), english_number(&c[1])) {
            found.add(ValueKind::Number, whole.range(), value.to_owned());
        }
    }
    for c in MEASURED.captures_iter(text) {
        let (Some(whole), Some(number)) = (c.get(0), c.get(1).or_else(|| c.get(2))) else { continue };
        // "一个", "一位" are articles more often than numbers.
        if number.as_str() != "一"
            && let Some(value) = normal_number(number.as_str(), "")
        {
            found.add(ValueKind::Number, whole.range(), value);
        }
    }
}

// --- names -----------------------------------------------------------------------------------------------------------

/// Capitalised words that are no names: pronouns, and words that open sentences and headings.
const NOT_NAMES: &str = "I I'm I've I'll I'd A An The This That These Those It Its It's He She We You They My Your Our Their His Her \
    And Or But So If When While Where What Who Why How Which Because Since After Before Until Unless Although Though As At By For \
    From In Into Of On Onto Over To Under Up With Without Yes No Not Never Always Please Thanks Thank Ok Okay Hi Hello Hey Dear Sorry \
    Also Just Then Now Today Tomorrow Yesterday Tonight Maybe Perhaps Can Could Would Should Will Shall May Might Must Do Does Did \
    Don't Doesn't Didn't Is Are Was Were Be Been Has Have Had Let Let's Get Got Give Go Make Take Use Used Set Add Remove Delete \
    Update Change Keep Remember Forget Note Send Call Email Reply Answer Write Read Show Tell Ask Book Buy Pay Check Confirm Review \
    Only Every All Any Some Both Each Most Many Much More Less Few Several Other Another Such There Here One Two Three Four Five \
    Six Seven Eight Nine Ten First Second Third Last Next Previous User Users Good Great Bad New Old Big Small High Low True False \
    Monday Tuesday Wednesday Thursday Friday Saturday Sunday January February March April May June July August September October \
    November December TODO FYI ASAP OK PS NB AM PM";
static NOT_NAME: LazyLock<HashSet<&'static str>> = LazyLock::new(|| NOT_NAMES.split_whitespace().collect());

/// A capitalised word or an acronym; apostrophes and hyphens inside.
static CAPITALISED: LazyLock<Pattern> =
    LazyLock::new(|| regex(r"\p{Lu}[\p{Latin}\d]*(?:['&-]\p{Lu}?[\p{Latin}\d]+)*|\p{Ll}+\p{Lu}[\p{Latin}\d]*"));
static TITLED: LazyLock<Pattern> = LazyLock::new(|| regex("《([^》\n]{1,60})》"));
/// What stands before a Chinese personal name.
static HAN_NAME_CUE: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"(?:我叫|名叫|叫做|名字是|姓名[是:]|同事|老板|领导|经理|客户|老婆|老公|妻子|丈夫|儿子|女儿|朋友|室友|哥哥|姐姐|弟弟|妹妹|负责人|联系人|对接人|医生|会计|律师|牙医|助理|秘书|老师|教练)(?:现在|目前|已经)?(?:是|叫|换成|改成|换了)?(?<name>\p{Han}{2,3})",
    )
});
/// What stands after one.
static HAN_NAME_TITLE: LazyLock<Pattern> =
    LazyLock::new(|| regex(r"(?<name>\p{Han}{1,3}?)(?:先生|女士|小姐|老师|医生|经理|总监|教授|主任|律师|师傅)"));
const SURNAMES: &str = "王李张刘陈杨黄赵吴周徐孙马朱胡郭何林高罗郑梁谢宋唐许韩冯邓曹彭曾肖田董袁潘于蒋蔡余杜叶程苏魏吕丁任沈姚卢姜崔钟谭陆汪范金石廖贾夏韦付方白邹孟熊秦邱江尹薛闫段雷侯龙史陶黎贺顾毛郝龚邵万钱严覃武戴莫孔向汤";

fn names(text: &str, found: &mut Found) {
    for m in TITLED.captures_iter(text).filter_map(|c| c.get(1)) {
        found.add(ValueKind::Name, m.range(), normal(m.as_str()));
    }
    for sentence in sentence_spans(text) {
        latin_names(text, sentence, found);
    }
    for m in HAN_NAME_CUE.captures_iter(text).chain(HAN_NAME_TITLE.captures_iter(text)).filter_map(|c| c.name("name")) {
        if let Some(span) = personal_name(m.as_str(), m.start()) {
            found.add(ValueKind::Name, span.clone(), text[span].to_owned());
        }
    }
    // Places, organisations and other proper names that the dictionary tags as such.
    let mut at = 0;
    for token in jieba().tag(text, false) {
        let span = at..at + token.word.len();
        at = span.end;
        if token.word.chars().count() >= 2 && token.word.chars().all(is_han) && matches!(token.tag, "ns" | "nt" | "nrt") {
            found.add(ValueKind::Name, span, token.word.to_owned());
        }
    }
}

/// The part of a Han run that reads as a personal name: a surname and one or two characters that form no common word.
pub(crate) fn personal_name(run: &str, start: usize) -> Option<Range<usize>> {
    let from = run.find(|c| SURNAMES.contains(c))?;
    let name: String = run[from..].chars().take(3).collect();
    let letters: Vec<char> = name.chars().collect();
    if letters.len() < 2 {
        return None;
    }
    // Two-character words of the dictionary that are no names ("高兴", "方便") are no names here.
    let two: String = letters[..2].iter().collect();
    let common = |word: &str| {
        jieba().has_word(word) && !matches!(jieba().tag(word, false).first().map(|t| t.tag), Some("nr" | "nrfg" | "nrt"))
    };
    if common(&two) || common(&name) {
        return None;
    }
    Some(start + from..start + from + name.len())
}

fn latin_names(text: &str, sentence: Range<usize>, found: &mut Found) {
    let words: Vec<Range<usize>> = CAPITALISED
        .find_iter(&text[sentence.clone()])
        .map(|m| sentence.start + m.start()..sentence.start + m.end())
        .filter(|span| {
            let before = text[..span.start].chars().next_back();
            let after = text[span.end..].chars().next();
            !before.is_some_and(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '/' | '@' | '\''))
                && after.is_none_or(|c| c != '_')
        })
        .collect();
    let mut i = 0;
    while let Some(word) = words.get(i) {
        // A run of capitalised words with single spaces (or "of", "&") between is one name.
        let mut last = i;
        while let Some(next) = words.get(last + 1)
            && matches!(&text[words[last].end..next.start], " " | " & " | " of " | " de " | " van ")
            && is_name_word(&text[next.clone()])
        {
            last += 1;
        }
        let opens = text[sentence.start..word.start].chars().all(|c| !c.is_alphanumeric());
        let is_first_word = opens && !is_name_word(&text[word.clone()]);
        let first = if is_first_word
            || opens && is_plain(&text[word.clone()]) && !followed_by_name_verb(text, words[last].end) && last == i
        {
            i + 1
        } else {
            i
        };
        if first <= last && is_name_word(&text[words[first].clone()]) {
            let span = words[first].start..words[last].end;
            let name = text[span.clone()].trim_end_matches("'s");
            found.add(ValueKind::Name, span.start..span.start + name.len(), name.to_lowercase());
        }
        i = last + 1;
    }
}

/// A capitalised word that is neither a pronoun nor a word that merely opens sentences.
pub(crate) fn is_name_word(word: &str) -> bool {
    !NOT_NAME.contains(word.trim_end_matches("'s")) && (word.len() > 1 || word == "X")
}

/// Only its first letter is upper case, as any word that opens a sentence.
fn is_plain(word: &str) -> bool {
    word.chars().skip(1).all(|c| !c.is_uppercase())
}

/// A word that opens a sentence is a name when a third person's verb follows, and the word is no plural or gerund.
fn followed_by_name_verb(text: &str, at: usize) -> bool {
    static VERB: LazyLock<Pattern> = LazyLock::new(|| {
        regex(
            r"^(?:'s (?:\p{Ll}+)| (?:is|was|has|likes|loves|wants|works|lives|said|says|told|asked|prefers|needs|called|joined|left|manages|leads|owns|moved|married|will|and \p{Lu}))(?-u:\b)",
        )
    });
    let word = text[..at].rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    VERB.is_match(&text[at..])
        && !word.ends_with("ing")
        && !word.ends_with("thing")
        && !word.ends_with("body")
        && !word.ends_with("one")
        && !COMMON_OPENERS.contains(&word)
}

/// Common nouns that open sentences about things: "Lunch is at noon", "Coffee was cold".
const COMMON_OPENERS: &[&str] = &[
    "Lunch",
    "Dinner",
    "Breakfast",
    "Coffee",
    "Tea",
    "Food",
    "Work",
    "Time",
    "Money",
    "Weather",
    "Traffic",
    "Parking",
    "Access",
    "Budget",
    "Deadline",
    "Timeout",
    "Language",
    "Email",
    "Phone",
    "Payment",
    "Shipping",
    "Delivery",
    "Rent",
    "Home",
    "Office",
    "School",
    "Service",
    "Support",
    "Sleep",
    "Music",
    "Server",
    "Database",
    "Code",
    "Data",
    "Access",
    "Password",
    "Everything",
    "Nothing",
    "Someone",
    "Nobody",
    "Everyone",
    "Life",
    "Water",
    "Rice",
    "Spicy",
    "Meat",
    "Fish",
    "Beef",
    "Pork",
    "Milk",
    "Production",
    "Staging",
    "Development",
    "Travel",
    "Privacy",
    "Security",
    "Health",
    "Sport",
    "English",
    "Default",
];

// --- collection ------------------------------------------------------------------------------------------------------

/// Finds so far, each with its normal form; an earlier one wins where spans overlap.
struct Found(Disjoint<(ValueKind, String)>);

impl Found {
    fn add(&mut self, kind: ValueKind, span: Range<usize>, normal: String) {
        self.0.add(span, (kind, normal));
    }

    fn into_values(self, cleaned: &Cleaned, original: &str) -> Vec<ProtectedValue> {
        self.0
            .into_original(cleaned)
            .map(|(span, (kind, normal))| ProtectedValue {
                kind,
                text: original[span.clone()].to_owned(),
                normal,
                start: span.start,
                end: span.end,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ValueKind::{Amount, Id, Name, Number, Time, Url};

    fn of(text: &str) -> Vec<(ValueKind, String)> {
        protected_values(text).into_iter().map(|v| (v.kind, v.normal)).collect()
    }

    #[test]
    fn s3_values_of_both_languages() {
        for (text, expected) in [
            ("My cost centre is CC-1042", vec![(Id, "cc-1042")]),
            ("成本中心改成 CC-2077", vec![(Id, "cc-2077")]),
            ("order 9007199254740993", vec![(Id, "9007199254740993")]),
            ("order 00123", vec![(Number, "00123")]),
            ("INV-102 and INV-120", vec![(Id, "inv-102"), (Id, "inv-120")]),
            ("release v1.2.3 runs on 192.168.0.1", vec![(Id, "v1.2.3"), (Id, "192.168.0.1")]),
            ("set `max_retries` now, and max_wait", vec![(Id, "max_retries"), (Id, "max_wait")]),
            ("it costs $1,200.50 or 1,200.50 USD", vec![(Amount, "1200.50 usd"), (Amount, "1200.50 usd")]),
            ("预算三百元，最多５万元", vec![(Amount, "300 cny"), (Amount, "50000 cny")]),
            ("满 1,000元 减 20%", vec![(Amount, "1000 cny"), (Amount, "20 %")]),
            ("百分之二十", vec![(Amount, "20 %")]),
            ("throughput is 3 GB/s, 5公里外", vec![(Amount, "3 gb/s"), (Amount, "5 km")]),
            ("the port is 6543", vec![(Number, "6543")]),
            ("三个孩子, 15 people", vec![(Number, "3"), (Number, "15")]),
            ("2 million users", vec![(Number, "2000000")]),
            ("meet at 2:30 pm on May 3, 2026", vec![(Time, "14:30"), (Time, "2026-05-03")]),
            ("明天下午三点半开会，持续两小时", vec![(Time, "day +1"), (Time, "15:30"), (Time, "2 h")]),
            ("set the timeout to 5 s", vec![(Time, "5 s")]),
            ("see https://example.com/a?b=1.", vec![(Url, "https://example.com/a?b=1")]),
            ("写信到Lin@Example.com吧", vec![(Url, "lin@example.com")]),
            ("logs are in /var/log/strata", vec![(Url, "/var/log/strata")]),
            ("tell Anna Smith about Project Heron", vec![(Name, "anna smith"), (Name, "project heron")]),
            ("Alice likes tea", vec![(Name, "alice")]),
            ("we use GitHub and iPhone", vec![(Name, "github"), (Name, "iphone")]),
            ("我喜欢《三体》", vec![(Name, "三体")]),
            ("我住在杭州", vec![(Name, "杭州")]),
            ("同事王小明负责", vec![(Name, "王小明")]),
            ("李雷先生来电", vec![(Name, "李雷")]),
        ] {
            let expected: Vec<(ValueKind, String)> = expected.into_iter().map(|(k, n)| (k, n.to_owned())).collect();
            assert_eq!(of(text), expected, "{text}");
        }
    }

    #[test]
    fn s3_near_misses_have_no_value() {
        for text in [
            "I like tea",
            "The user prefers short answers",
            "Please remember that",
            "一起去吃饭吧",
            "有一点甜",
            "Lunch was cold",
            "Prefers email over phone",
            "一个朋友",
            "不吃辣",
            "我喜欢高兴的音乐",
            "and/or",
            "it's fine",
            "Don't call me",
            "特别方便",
            "Maybe later",
            "第一次",
        ] {
            assert!(of(text).is_empty(), "{text}: {:?}", of(text));
        }
    }

    #[test]
    fn s3_spans_are_of_the_original_and_never_overlap() {
        for text in [
            "金额：￥１，２００．５０，编号 ＣＣ\u{200b}－１０４２，下午２点半",
            "👨‍👩‍👧 paid $5 to Anna \u{202e}at 3pm",
            "مرحبا 2026-05-03 ok",
        ] {
            let values = protected_values(text);
            assert!(!values.is_empty(), "{text}");
            let mut end = 0;
            for value in values {
                assert!(value.start >= end && text[value.start..value.end] == value.text, "{text}: {value:?}");
                end = value.end;
            }
        }
        assert_eq!(of("￥１，２００．５０"), [(Amount, "1200.50 cny".to_owned())]);
        assert_eq!(of("ＣＣ\u{200b}－１０４２"), [(Id, "cc-1042".to_owned())]);
    }

    #[test]
    fn g12_values_missing_from_the_quote_are_named() {
        let missing_of = |content: &str, quote: &str| -> Vec<String> {
            missing(&protected_values(content), &[(quote, &protected_values(quote))]).into_iter().map(|v| v.text).collect()
        };
        for (content, quote) in [
            ("The meeting is at 14:30.", "we meet at 2:30 pm"),
            ("会议在14:30", "下午两点半开会"),
            ("The limit is 1200 USD", "the limit is $1,200"),
            ("Lives in Hangzhou.", "I live in hangzhou"),
            ("Coffee is preferred", "i like coffee"),
            ("用户住在杭州", "我住在杭州市"),
            ("has 3 children", "我有三个孩子"),
            ("The cost centre is CC-1042", "成本中心是ｃｃ－１０４２"),
        ] {
            assert!(missing_of(content, quote).is_empty(), "{content} / {quote}: {:?}", missing_of(content, quote));
        }
        for (content, quote, value) in [
            ("The limit is 50 USD", "the limit is 500 USD", "50 USD"),
            ("order INV-120", "order INV-102", "INV-120"),
            ("The port is 543", "the port is 6543", "543"),
            ("会议在15:30", "下午两点半开会", "15:30"),
            ("She moved to Shanghai", "she moved to Hangzhou", "Shanghai"),
            ("version 1.2", "version 1.2.3", "1.2"),
        ] {
            assert_eq!(missing_of(content, quote), [value], "{content} / {quote}");
        }
    }
}
