//! What a turn mentions beside its protected values: things, places, dishes, streets, spoken times (rules S2h, S3). A mention is
//! not protected: nothing is refused for it. It decides which clauses of a turn a summary tells, and stands in the value
//! index so that a later question finds its turn. Where form is not enough this finder prefers to find too much, as the one of
//! protected values prefers too little.

use crate::analyze::{is_stop_word, jieba};
use crate::pattern::{Match, Pattern};
use crate::phrases::regex;
use crate::script::is_han;
use crate::values::is_name_word;
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::LazyLock;
use strata_core::id::is_hidden;

/// Up to two words behind one that leads to a noun, whether or not they are written as a name: "a civic", "to vegas".
static LED: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"(?i)\b(?:an?|the|to|in|at|from|for|of|with|on|by|about|near|called|named|my|our|your|his|her|their|this|that|another|some|any) ([a-z][\w'’-]{2,40})(?: ([a-z][\w'’-]{2,40}))?",
    )
});
/// A name of which only the first word is written as one: "to Las vegas".
static HALF_NAME: LazyLock<Pattern> = LazyLock::new(|| regex(r"[\p{Ll}\d,] (\p{Lu}[\w'’-]+ (\p{Ll}[\w'’-]{2,40}))"));
/// What is eaten or bought, up to the end of its phrase.
static EATEN: LazyLock<Pattern> =
    LazyLock::new(|| regex(r"[吃喝尝点买](?:到|过|些)?(\p{Han}{2,8}?)(?:[的这那吧吗呢呀啊]|\P{Han}|$)"));
/// Longest mention in characters: a longer one is a sentence.
const LONGEST: usize = 60;

/// Numbers with what they count, also as a range or a bound: "4.5分以上", "300-400元", "0.5小时 - 1小时".
static MEASURE: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"\d+(?:\.\d+)?(?:分钟|小时|分|元|块|公里|千米|米|星|级|天|晚|位|人|个|间|点|号|路)?(?:\s*[-~～至到]\s*\d+(?:\.\d+)?)?(?:分钟|小时|分|元|块|公里|千米|米|星级?|级|天|晚|位|人|个|间|点|号|路)(?:以上|以下|以内|左右|之间)?",
    )
});
/// What kind, and whether it costs: "高档型", "不免费".
static SORT: LazyLock<Pattern> = LazyLock::new(|| regex(r"\p{Han}{1,4}型|不?(?:免费|收费)"));
/// A name with what tells it apart in brackets: "大董(工体店)".
static BRACKETED: LazyLock<Pattern> = LazyLock::new(|| regex(r"[\p{Han}\w'’·&.+ -]{1,24}[(（][^()（）\n]{1,24}[)）]"));
/// What stands behind a verb that leads to a thing, up to the end of its clause.
static AFTER_VERB: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"(?:推荐|建议)(?:你们?|您|大家)?(?:可以)?(?:去|到|来|是|有)?(?:吃|尝|住|看|逛)?(?P<a>[\p{Han}\w·&.-]{2,20})|(?:名叫|叫做|叫|就是|还是|是|还有|都有|有|想去|要去|去|想吃|吃|住在|住|在|找|提供|支持|包含|包括|如|比如|相对|和|或|或者|属于|距离|离|到|做|考虑一下|看一下|都说)(?P<b>[\p{Han}\w·&.-]{2,20})",
    )
});
/// Items of an enumeration.
static ITEMS: LazyLock<Pattern> =
    LazyLock::new(|| regex(r"[^，。；;！？!?、,\s]{1,24}(?:\s?(?:、|, |和|与|及|或)\s?[^，。；;！？!?、,\s]{2,24})+"));
static ITEM_MARK: LazyLock<Pattern> = LazyLock::new(|| regex(r"\s?(?:、|, |和|与|及|或者|或)\s?"));
/// Street and number, capitalised names with their small words, spoken times.
static LATIN: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"(?:\d+[A-Za-z]? )?(?:(?:The|A|An|El|La|Le|Los|Las) )?\p{Lu}[\w'’.&-]*(?:(?:,? (?:of|the|and|&|de|du|la)(?: the)? |, | )(?:\p{Lu}[\w'’.&-]*|#\d+|\d+[A-Za-z]?\b))*(?: #\d+)?",
    )
});
static SPOKEN_TIME: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"(?i)\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)(?: thirty| fifteen| forty[- ]five)? ?[ap]\.?m\b|\b(?:(?:half|quarter|a quarter) (?:past|to) )?(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\d{1,2}(?::\d\d)?)(?: thirty| fifteen| forty[- ]five)?(?: o'?clock)?(?: ?[ap]\.?m\.?)? (?:in the (?:morning|afternoon|evening)|at night|o'?clock)|\b(?:half|quarter|a quarter) (?:past|to) (?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\d{1,2})\b|\b(?:the )?\d{1,2}(?:st|nd|rd|th)(?: of (?:this|next|last)? ?\w+)?|\b(?:next|this|last|coming) (?:mon|tues|wednes|thurs|fri|satur|sun)day\b|\b(?:mon|tues|wednes|thurs|fri|satur|sun)day next week\b|\b(?:day after tomorrow|tomorrow|today|tonight|later today)\b",
    )
});
/// Words of the dictionary that lead to a thing: what stands before the last of them in the first item of a list is not of it.
const LEADS: &str =
    "有 都有 还有 只有 是 就是 都是 叫 名叫 叫做 去 到 来 吃 喝 买 住 找 在 推荐 建议 包括 包含 提供 支持 如 比如 像 例如 分别";
static LEAD_WORDS: LazyLock<HashSet<&'static str>> = LazyLock::new(|| LEADS.split_whitespace().collect());
/// Where a thing ends and what is said of it begins.
static TAIL: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"(?:用餐|游玩|住宿|入住|就餐|看看|尝尝|逛逛|走走|转转|玩玩|玩|吧|吗|呢|啊|呀|了|的话|这道菜|这家|这个|等等?|这些|那些|都|就|也|还|给|为|可以|怎么样|如何|多少|什么|哪些|哪家|几个?|挺|很|更|比较|不错|适合|能|会|应该|附近|周边|旁边|里面|一下|一家|一个).*$",
    )
});
/// Words that lead to a thing without being part of it.
static HEAD: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"^(?:推荐菜|推荐|名叫|叫做|就是|还有|都有|包括|比如|有|是|叫|去|到|吃|在|找|要|想|能|可以|我|你|您|他家|它家|那|这|还|就|都|也|家|的|们)+",
    )
});
/// Asks for a thing instead of naming it.
static ASKS: LazyLock<Pattern> =
    LazyLock::new(|| regex("^(?:什么|哪|多少|几[个家点位]|怎么|如何|谁|啥)|(?:什么|哪里|哪儿|多少|怎么样|怎样|啥)$"));
/// Han words that name nothing by themselves.
const PLAIN: &str = "餐馆 餐厅 饭店 酒店 景点 地方 地址 电话 评分 价格 人均 消费 人均消费 门票 时间 营业 营业时间 游玩 周边 附近 推荐 推荐菜 菜 一家 一个 \
    一下 可以 什么 多少 哪里 哪些 怎么 没有 还有 就是 这家 那家 这个 那个 这里 那里 他家 它家 我们 你们 您们 自己 大家 朋友 时候 东西 服务 信息 选择 \
    不错 符合 要求 满足 条件 查询 需要 帮助 问题 谢谢 不客气 好的 好吧 明白 今天 明天 现在 一会 一会儿 最近 其他 其它 别的 感觉 觉得 认为 知道 告诉 \
    你好 您好 抱歉 对不起 不好意思 没关系 没问题 好滴 好嘞 当然 不用 感谢 非常感谢 麻烦 打扰 用户 朋友们 景点 酒店 餐馆 门票价格 电话号码 建议 提前 预约 提前预约 看一看 好多人 参观 好多 哪些景点 这些 那些 选择 环境 口碑 味道 方面 各方面 设施 路上 一圈 小时 分钟 号码 一整天 有点 地铁站 出租车 考虑 考虑一下 看看 尝尝 逛逛";

static PLAIN_WORDS: LazyLock<HashSet<&'static str>> = LazyLock::new(|| PLAIN.split_whitespace().collect());

fn is_plain(word: &str) -> bool {
    PLAIN_WORDS.contains(word)
}

struct Mentions<'t> {
    text: &'t str,
    found: BTreeMap<usize, usize>,
}

impl Mentions<'_> {
    /// Adds a span without the marks around it; a longer one at the same place wins.
    fn add(&mut self, span: Range<usize>) {
        self.add_if(span, &|_| true);
    }

    /// Adds a span that holds a noun of its own.
    fn add_named(&mut self, span: Range<usize>) {
        self.add_if(span, &names_something);
    }

    fn add_if(&mut self, span: Range<usize>, accept: &dyn Fn(&str) -> bool) {
        let part = &self.text[span.clone()];
        let trimmed = part
            .trim_matches(|c: char| c.is_whitespace() || "，,、。.;；:：“”\"'‘’~～".contains(c))
            .trim_start_matches(['个', '的', '了', '过', '些', '找', '有', '是', '在', '您', '你', '我'])
            .trim_end_matches(['的', '了', '呢', '吗', '吧', '啊', '呀', '哦', '您', '你', '哈', '嘛']);
        // "故宫的景点": what kind of thing it is names nothing.
        let trimmed = match trimmed.rsplit_once('的') {
            Some((thing, kind)) if is_plain(kind) => thing,
            _ => trimmed,
        };
        let chars = trimmed.chars().count();
        if !(2..=LONGEST).contains(&chars) || is_plain(trimmed) || ASKS.is_match(trimmed) || !accept(trimmed) {
            return;
        }
        let start = span.start + (trimmed.as_ptr() as usize - part.as_ptr() as usize);
        let end = self.found.entry(start).or_insert(start);
        *end = (*end).max(start + trimmed.len());
    }

    /// Adds what is left of a Han span without what leads to it and what follows it.
    fn add_core(&mut self, span: Range<usize>) {
        let part = &self.text[span.clone()];
        let to = TAIL.find(part).filter(|m| m.start() > 0).map_or(part.len(), |m| m.start());
        let head = &part[..to];
        let from = HEAD.find(head).filter(|m| m.end() < to).map_or(0, |m| m.end());
        let start = span.start + from;
        // What follows may still be part of the name ("北京贵都大酒店"): where the two overlap the longer one counts.
        if part[to..].chars().next().is_some_and(|c| "都就也还给为能会很挺更玩".contains(c)) {
            self.add(start..span.end);
        }
        let to = to - from;
        self.add(start..start + to);
    }
}

/// Spans of what a sentence mentions, in order; none lies within another.
pub(crate) fn mentions(text: &str) -> Vec<Range<usize>> {
    let mut all = Mentions { text, found: BTreeMap::new() };
    for m in MEASURE.find_iter(text).chain(BRACKETED.find_iter(text)) {
        all.add(m.range());
    }
    for m in BRACKETED.find_iter(text) {
        all.add_core(m.range());
    }
    if text.chars().any(is_han) {
        for m in SORT.find_iter(text) {
            all.add(m.range());
        }
        for found in AFTER_VERB.captures_iter(text) {
            if let Some(m) = found.name("a").or_else(|| found.name("b"))
                && names_something(m.as_str())
            {
                all.add_core(m.range());
            }
        }
        for list in ITEMS.find_iter(text) {
            let mut from = list.start();
            let mut marks: Vec<Range<usize>> =
                ITEM_MARK.find_iter(list.as_str()).map(|m| list.start() + m.start()..list.start() + m.end()).collect();
            marks.push(list.end()..list.end());
            let last = marks.len() - 1;
            for (place, mark) in marks.into_iter().enumerate() {
                let from_item = if place == 0 { from + lead_end(&text[from..mark.start]) } else { from };
                all.add_core(from_item..mark.start);
                // What leads to the list stands before the first item, what is said of it behind the last.
                if place > 0 && place < last {
                    all.add(from..mark.start);
                }
                from = mark.end;
            }
        }
        named_by_dictionary(text, &mut all);
    }
    for m in LATIN.find_iter(text) {
        let start = m.start() + without_openers(m.as_str());
        let name = &text[start..m.end()];
        // A single word that opens a sentence, or that every text may capitalise, names nothing.
        let opens = !text[..start].contains(char::is_alphanumeric);
        let single = !name.contains([' ', '#']);
        if !name.is_empty() && !(single && (opens || !is_name_word(name))) {
            all.add(start..m.end());
        }
    }
    for m in SPOKEN_TIME.find_iter(text) {
        all.add(m.range());
    }
    // Of spans within each other the outermost.
    let mut out: Vec<Range<usize>> = Vec::new();
    for (start, end) in all.found {
        if out.last().is_none_or(|last| end > last.end) {
            out.push(start..end);
        }
    }
    out
}

/// Bytes up to the end of the last word that leads to the first item of a list; none when nothing would be left.
fn lead_end(item: &str) -> usize {
    let mut end = 0;
    for token in jieba().tag(item, true) {
        if LEAD_WORDS.contains(token.word) && item.len() - token.byte_end >= 6 {
            end = token.byte_end;
        }
    }
    end
}

/// Bytes of the words before a name that every sentence may open with: "Hello, I", "Please"; an article belongs to the name.
fn without_openers(run: &str) -> usize {
    let mut from = 0;
    for word in run.split_inclusive(' ') {
        let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
        if is_name_word(bare) || bare.starts_with(|c: char| c.is_ascii_digit()) || matches!(bare, "The" | "A" | "An") {
            break;
        }
        from += word.len();
    }
    from
}

fn is_noun(tag: &str) -> bool {
    is_proper(tag) || matches!(tag, "n" | "vn" | "an" | "eng" | "b" | "a" | "m" | "q" | "g" | "s" | "f" | "x")
}

fn is_proper(tag: &str) -> bool {
    matches!(tag, "nr" | "ns" | "nt" | "nz" | "nrt" | "nrfg" | "j")
}

/// Whether a Han run holds a noun beside those that name nothing: "给我发" and "考虑一下" hold none.
fn names_something(run: &str) -> bool {
    if run.contains(|c: char| c.is_ascii_alphanumeric()) {
        return true;
    }
    let names =
        |tag: &str| is_proper(tag) || matches!(tag, "n" | "vn" | "an" | "eng" | "b" | "g" | "x" | "l" | "i" | "nl" | "ng");
    jieba().tag(run, true).iter().any(|token| names(token.tag) && !is_plain(token.word))
}

/// Nouns of a sentence and what the dictionary does not know, in order: what a later question may name. A summary does not
/// weigh them; the value index holds those that it leaves out (rule S3).
pub(crate) fn nouns(text: &str) -> Vec<&str> {
    let mut out: Vec<&str> = Vec::new();
    if text.chars().any(is_han) {
        let mut run: Option<(usize, usize)> = None;
        let mut close = |run: &mut Option<(usize, usize)>| {
            if let Some((from, to)) = run.take()
                && text[from..to].chars().count() >= 2
                && !is_plain(&text[from..to])
            {
                out.push(&text[from..to]);
            }
        };
        for token in jieba().tag(text, true) {
            let long = token.word.chars().count() > 1;
            // A lone character beside a noun may be part of its name, whatever else it can be.
            let unknown = !long
                && (run.is_some() || token.tag == "x")
                && token.word.chars().all(is_han)
                && !matches!(token.tag, "r" | "uj" | "ul" | "y" | "c" | "p" | "d" | "zg" | "u");
            let part =
                (unknown || matches!(token.tag, "eng" | "l" | "i" | "z") || is_noun(token.tag) || token.tag.starts_with('n'))
                    && token.word.chars().all(|c| c.is_alphanumeric() || is_hidden(c));
            match &mut run {
                Some((_, to)) if part && *to == token.byte_start => *to = token.byte_end,
                _ => {
                    close(&mut run);
                    if part {
                        run = Some((token.byte_start, token.byte_end));
                    }
                }
            }
        }
        close(&mut run);
        out.extend(EATEN.captures_iter(text).filter_map(|found| found.get(1)).map(|m| m.as_str()).filter(|m| !is_plain(m)));
        // An item as it is written: a particle at its end may be part of its name.
        for list in ITEMS.find_iter(text) {
            let last = ITEM_MARK.find_iter(list.as_str()).last().map_or(0, |mark| mark.end());
            let item = &list.as_str()[last..];
            if item.ends_with(['呀', '啊', '呢', '哦', '啦']) {
                out.push(item);
            }
        }
    }
    for found in HALF_NAME.captures_iter(text) {
        if let (Some(name), Some(second)) = (found.get(1), found.get(2))
            && !is_stop_word(second.as_str())
        {
            out.push(name.as_str());
        }
    }
    for found in LED.captures_iter(text) {
        let says = |word: &Match<'_>| !is_stop_word(&word.as_str().to_lowercase());
        let Some(first) = found.get(1) else { continue };
        // Two words may be one name: "simply fondue".
        let end = found.get(2).filter(says).or_else(|| Some(first).filter(says)).map(|word| word.end());
        if let Some(end) = end {
            out.push(&text[first.start()..end]);
        }
    }
    out
}

/// Runs of nouns with a proper one among them, or of two nouns and more.
fn named_by_dictionary(text: &str, all: &mut Mentions<'_>) {
    let mut run: Option<(usize, usize, usize, bool)> = None;
    let mut close = |run: &mut Option<(usize, usize, usize, bool)>| {
        if let Some((from, to, words, proper)) = run.take()
            && (proper || words > 1 || text[from..to].chars().count() > 2)
        {
            all.add_named(from..to);
        }
    };
    for token in jieba().tag(text, true) {
        let span = token.byte_start..token.byte_end;
        let proper = is_proper(token.tag);
        let noun = is_noun(token.tag);
        // What kind of thing it is belongs to the name before it: "老北京炸酱面餐厅".
        let extends = run.is_some_and(|(_, to, ..)| to == span.start);
        let follows = extends && TAIL.find(token.word).is_some_and(|m| m.start() == 0);
        let sayable = !follows && token.word.chars().all(char::is_alphanumeric) && (extends || !is_plain(token.word));
        match &mut run {
            Some((_, to, words, named)) if noun && sayable && *to == span.start => {
                *to = span.end;
                *words += 1;
                *named |= proper;
            }
            _ => {
                close(&mut run);
                if noun && sayable {
                    run = Some((span.start, span.end, 1, proper));
                }
            }
        }
    }
    close(&mut run);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s2h_things_are_found_by_form_in_both_languages() {
        for (text, wanted) in [
            ("他家的推荐菜有景观餐厅, 深夜营业，都是名字很特别的菜。", vec!["景观餐厅", "深夜营业"]),
            ("有的，而且还挺多，老书虫, 大董(工体店)就是其中之一，", vec!["老书虫", "大董(工体店)"]),
            ("那可多了，故宫, 天坛都是的。", vec!["故宫", "天坛"]),
            ("推荐你们去虎峪或硅化木国家地质公园，都是值得一去的景点。", vec!["虎峪", "硅化木国家地质公园"]),
            ("烟袋斜街的评分是4.1分，", vec!["4.1分"]),
            ("评分4.5分以上的景点", vec!["4.5分以上"]),
            ("相对世界公园美洲区0.5小时 - 1小时的游玩时间", vec!["0.5小时 - 1小时"]),
            ("我最近想吃海参和三文鱼刺身", vec!["海参", "三文鱼刺身"]),
            ("是高档型。", vec!["高档型"]),
            ("Please do it for one in the afternoon.", vec!["one in the afternoon"]),
            ("Your ride is to 140 New Montgomery Street #1 for one person.", vec!["140 New Montgomery Street #1"]),
            ("on the 1st of this month", vec!["1st of this month"]),
            ("book a table for 2 in The Cooperage American Grille in Lafayette", vec!["The Cooperage American Grille"]),
            ("I'm leaving Sacramento, CA on 14th of March.", vec!["Sacramento, CA"]),
        ] {
            let found: Vec<&str> = mentions(text).into_iter().map(|span| &text[span]).collect();
            for wanted in wanted {
                assert!(found.iter().any(|one| one.contains(wanted)), "{wanted} of {text}: {found:?}");
            }
        }
        for text in ["好的，谢谢", "ok, thanks", "嗯嗯", "", "👍", "مرحبا"] {
            assert!(mentions(text).is_empty(), "{text}: {:?}", mentions(text));
        }
    }
}
