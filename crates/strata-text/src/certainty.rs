//! How certain a text is, and how wide its negation reaches (rules S5, G12; acceptance A41): a summary or a record may
//! be weaker than its quote, never stronger.

use crate::clean::{Cleaned, normal};
use crate::pattern::Pattern;
use crate::phrases::{Table, compile, regex, without};
use crate::reality;
use std::ops::Range;
use std::sync::LazyLock;
use strata_core::text::{Certainty, Clause, Negation};

static NO_HEDGES: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "may i",
            "might as well",
            "likely story",
            "i believe in",
            "(?:i|you|we) (?:just |already |have |had |also )*mentioned",
            "(?:the|his|her|their|my|your) might",
        ],
        &["听说(?:唱|书)", "不可能", "尽可能", "应该的", "不应该", "大概率事件", "可能性为零"],
    )
});
/// `may` is a hedge in lower case only: "May" is a month or opens a wish.
static MAY: LazyLock<Pattern> = LazyLock::new(|| regex(r"(?-u:\b)may(?-u:\b)(?: (?:not|be|have|also|well|or may not|\p{Ll}+))"));
static HEDGES: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "might",
            "could (?:be|have|possibly|well)",
            "perhaps",
            "maybe",
            "possibly",
            "probably",
            "presumably",
            "supposedly",
            "allegedly",
            "apparently",
            "likely",
            "unlikely",
            "i (?:think|guess|suppose|suspect|assume|believe|reckon|feel like)",
            "we (?:think|suspect|assume|believe)",
            "i'm (?:guessing|assuming|not certain|not sure)",
            "not (?:sure|certain|confirmed|final|decided|yet confirmed|entirely sure)",
            "unsure",
            "uncertain",
            "unconfirmed",
            "undecided",
            "tentative(?:ly)?",
            "provisional(?:ly)?",
            "seems?(?: to)?",
            "appears? to",
            "looks like",
            "sounds like",
            "if i (?:remember|recall) (?:correctly|right|rightly)",
            "as far as i know",
            "afaik",
            "iirc",
            "sort of",
            "kind of",
            "to be confirmed",
            "tbc",
            "rumou?red",
            "mentioned",
            "potentially",
            "in theory",
            "should be (?:about|around|roughly)",
            "i'm leaning",
            "considering",
            "thinking (?:of|about)",
            "(?:toying|flirting|playing) with (?:the idea|the thought)",
            "(?:i'm|i am|we're|we are)(?: still| just)? (?:contemplating|weighing|mulling|debating|pondering)",
            "tempted to|on the fence|leaning toward|inclined to|in two minds",
            "don't know (?:if|whether)",
            "(?:it's|it is|it's quite|it is quite) possible",
            "there(?:'s| is) a (?:good |small |fair )?chance",
            "(?:i|we|i'm|we're|i am) (?:hope|hoping|plan|planning|intend|intending|aim|aiming) (?:to|on|for|that)",
            "hopefully",
            "i(?:'d| would) (?:really )?love to (?:own|have|be|become|live|move|learn|get|visit|see|try|start|work)",
            "some ?day",
            "(?:some|one) day i",
        ],
        &[
            "可能",
            "也许",
            "或许",
            "大概",
            "大约",
            "应该(?:是|会|有|在|就|可以|没|不)",
            "好像",
            "似乎",
            "貌似",
            "估计",
            "看起来",
            "看样子",
            "据说",
            "听说",
            "传闻",
            "不(?:太|大|是很)?确定",
            "不敢肯定",
            "没准",
            "说不定",
            "不一定",
            "未必",
            "恐怕",
            "我猜",
            "我想(?:大概|应该|可能)",
            "我觉得",
            "我认为",
            "感觉(?:像|是)?",
            "未(?:经)?确认",
            "待(?:确认|定)",
            "尚未(?:确认|确定)",
            "还没(?:确认|确定|定)",
            "没(?:有)?确(?:认|定)",
            "(?:需要?|等|再|先)(?:你|您|我|他们?|对方)?确认",
            "提到(?:过)?",
            "暂定",
            "初步",
            "打算",
            "(?:在|正|还)(?:犹豫|纠结)|琢磨着?|寻思|盘算|合计着|有意(?:要|于)",
            "考虑",
            "如果没记错",
            "印象中",
            "有可能",
            "搞不好",
            "八成",
            "说不准",
            "(?:真|多|好|以后|将来)想(?:以后|将来|有一天)?(?:有|要|买|去|成为|当|住|养|学)",
            "没想好",
            "计划(?:在|去|要|把|于|搬|换|买|养|学|辞)",
            "希望(?:以后|将来|有一天|有朝一日|能)",
        ],
    )
});
static NOT_STRONG: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "not (?:yet )?(?:confirmed|certain|definite|definitely|guaranteed|verified)",
            "un(?:confirmed|certain|verified)",
            "to be (?:confirmed|verified)",
            "please (?:confirm|verify)",
            "(?:can|could) you (?:confirm|verify)",
            "certainly not sure",
        ],
        &[
            "(?:未|没有?|尚未|待|需要?|请|等|再|还没有?|先)(?:经|你|您|我|他们?|对方)?(?:确认|确定|核实|证实)",
            "不(?:太|大|是很)?(?:确定|肯定|一定)",
            "(?:确认|确定)(?:一下|吗|么|没有|后)",
            "(?:无需|不需要?|无须|不用|免)\\p{Han}{0,4}确认",
            "不一定",
            "一定程度",
            "是否确(?:认|定)",
        ],
    )
});
static STRONG: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "confirmed",
            "confirms",
            "definite(?:ly)?",
            "certainly",
            "absolutely (?:certain|sure|true|correct|right|positive|confirmed)",
            "for (?:sure|certain)",
            "guaranteed",
            "without (?:a )?doubt",
            "no doubt",
            "undoubtedly",
            "unquestionably",
            "100 ?%",
            "verified",
            "it is certain",
            "clearly",
            "surely",
            "decided",
            "final(?:ly)? (?:decided|agreed)",
        ],
        &[
            "确认",
            "确定",
            "肯定",
            "一定(?:是|会|在|有)",
            "绝对(?:是|会|能|可以|正确|准确|没问题|没有?|不会|不是)",
            "毫无疑问",
            "毋庸置疑",
            "百分之(?:百|一百)",
            "已(?:经)?(?:核实|证实|敲定|定了|决定)",
            "必然",
            "铁定",
            "没跑",
            "敲定",
            "千真万确",
        ],
    )
});

/// Certainty of the weakest clause: hedged if anything in the text hedges, strong if something asserts strongly and
/// nothing hedges.
#[must_use]
pub fn certainty(text: &str) -> Certainty {
    of_cleaned(&Cleaned::new(text))
}

pub(crate) fn of_cleaned(cleaned: &Cleaned) -> Certainty {
    let text = without(&cleaned.text, &NO_HEDGES);
    if HEDGES.is_match(&text) || MAY.is_match(&text) {
        Certainty::Hedged
    } else if STRONG.says(&cleaned.text, &NOT_STRONG) {
        Certainty::Strong
    } else {
        Certainty::Plain
    }
}

/// Words that hold a negation and negate nothing.
static NO_NEGATIONS: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "(?:don't|do not|never) forget",
            "no problem",
            "(?:don't|doesn't|do not|does not|wouldn't|didn't|not) mind",
            "no worries",
            "no doubt",
            "not only",
            "no matter",
            r"no\. ?\d+",
            "nothing but",
            "why not",
            "never mind",
            "if not",
            "no longer than",
            "not to mention",
            "whether or not",
            "no[- ]one else but",
            "couldn't agree more",
            "can't wait",
            "without (?:a )?(?:doubt|question|fail)",
        ],
        &[
            "不错",
            // "However", not the 不 of 不过敏, 不过期, 不过关: by what follows it.
            "(?:别|不要|不能|勿)忘(?:了|记)?",
            r"不过(?:[,，、\s]|我|你|他|她|它|咱|这|那|如果|因为|现在|目前|今天|明天|昨天|最近|后来|也|还|只|要|得|是|如此|说实话|其实|总的)",
            "不但",
            "不仅仅?",
            "不管",
            "不论",
            "不光",
            "不只",
            "差不多",
            "不好意思",
            "不久",
            "不断",
            "不得不",
            "不得已",
            "对不起",
            "不客气",
            "了不起",
            "不用谢",
            "不妨",
            "不如",
            r"不同(?:[,，。;；\s]|的|地|于|点|之处|样|类|种|方|人|时|颜)",
            "不然",
            "要不",
            "不禁",
            "不愧",
            "没关系",
            "没问题",
            "没事",
            "没错",
            "无论",
            "无所谓",
            "无非",
            "毫无疑问",
            "毋庸置疑",
            "别人",
            "别的",
            "别处",
            "特别",
            "级别",
            "类别",
            "区别",
            "分别",
            "性别",
            "个别",
            "告别",
            "识别",
            "鉴别",
            "别墅",
            "离别",
            "未来",
            "非常",
            "非洲",
            "除非",
            "无线",
            "无锡",
            "无人机",
            "无障碍",
            "无糖",
            "无限",
            "无数",
            "无视",
            "无意中",
            "莫名",
            "莫非",
            "只不过",
            "巴不得",
            "恨不得",
            "不少",
            "不时",
            "不日",
            "不等",
            // The question form: "是不是", "要不要".
            "是不是",
            "要不要",
            "能不能",
            "会不会",
            "有没有",
            "好不好",
            "行不行",
            "可不可以",
            "对不对",
            "想不想",
            "吃不吃",
            "去不去",
            "来不来",
            "在不在",
            "用不用",
        ],
    )
});
static PARTIAL: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "not (?:every\\w*|all|always|both|each|necessarily|entirely|completely|fully|totally|often|usually|quite|exactly|too|very|much|many|that|really)",
            "(?:don't|doesn't|isn't|aren't|won't|didn't|wasn't|weren't|do not|does not|is not|are not|will not|did not|can't|cannot) (?:\\w+ )?(?:always|every\\w*|all|necessarily|entirely|completely|fully|often|usually|quite|too|very|really|much)",
            "no more than",
            "rarely",
            "seldom",
            "hardly",
            "barely",
            "scarcely",
            "no longer always",
        ],
        &[
            "不(?:都|全|总|总是|一定|完全|必|常|经常|怎么|太|大|是很|全是|都是|够|再总)",
            "不是(?:每|所有|全部|都|总|一直)",
            "并(?:不|非)(?:都|总是|全|每|所有|完全)",
            "没(?:有)?(?:全|都|完全|怎么)",
            "未必",
            "很少",
            "(?:一般|通常|平时|大多|多半|基本上?|几乎)(?:都|也|是)?(?:不|没)",
            "未完全",
            "不见得",
            "非(?:全部|所有)",
            "不(?:每|所有)",
        ],
    )
});
static FULL: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "not",
            "no",
            "never",
            "none",
            "nobody",
            "no one",
            "nothing",
            "neither",
            "nor",
            "nowhere",
            "without",
            "cannot",
            "\\w+n't",
            "unable",
            "refuse[sd]?",
            "free of",
            "(?:stopped|quit|gave up|given up) \\w+ing",
        ],
        &[
            "戒(?:了|掉|烟|酒|糖)",
            "不",
            "没",
            "无",
            "别",
            "勿",
            "未",
            "从不",
            "绝不",
            "决不",
            "毫不",
            "莫",
            "禁止",
            "严禁",
            "杜绝",
            "拒绝",
            "免",
        ],
    )
});

/// Widest negation of a text.
#[must_use]
pub fn negation(text: &str) -> Negation {
    negation_of(&Cleaned::new(text))
}

pub(crate) fn negation_of(cleaned: &Cleaned) -> Negation {
    let text = without(&cleaned.text, &NO_NEGATIONS);
    if FULL.says(&text, &PARTIAL) {
        Negation::Full
    } else if PARTIAL.is_match(&text) {
        Negation::Partial
    } else {
        Negation::None
    }
}

static CLAUSE_END: LazyLock<Pattern> = LazyLock::new(|| {
    regex(r"(?i)[,，;；。!！?？、\n]+|\. |\b(?:but|and|while|whereas|although|though|because|so)\b|但是?|而且?|可是|因为|所以")
});

/// The clauses of a text with their negations; empty ones are left out.
pub(crate) fn clauses(cleaned: &Cleaned) -> Vec<Clause> {
    let spans = clause_spans(&cleaned.text);
    let qualified = reality::qualified_clauses(&cleaned.text, &spans);
    let read = |(span, qualified): (Range<usize>, bool)| {
        let part = &cleaned.text[span];
        Clause { normal: normal(part), negation: negation_of(&Cleaned::new(part)), qualified, ahead: reality::ahead(part) }
    };
    spans.into_iter().zip(qualified).map(read).filter(|clause| !clause.normal.is_empty()).collect()
}

/// Byte ranges of the clauses of a cleaned text, in order.
pub(crate) fn clause_spans(text: &str) -> Vec<Range<usize>> {
    let mut out = Vec::new();
    let mut from = 0;
    for end in CLAUSE_END.find_iter(text) {
        out.push(from..end.start());
        from = end.end();
    }
    out.push(from..text.len());
    out
}

static AVERSION: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "avoid\\w*",
            "dislik\\w+",
            "hat(?:e|es|ed)",
            "refus\\w+",
            "abstain\\w*",
            "quit\\w*",
            "stop(?:s|ped)?",
            "allergic",
            "intoleran\\w+",
            "averse",
            "opposed",
            "against",
            "detest\\w*",
            "loathe\\w*",
            "skip\\w*",
            "other than",
            "instead of",
        ],
        &["忌", "讨厌", "避免", "避开", "戒", "拒绝", "过敏", "反感", "反对", "厌恶", "排斥", "停止", "远离"],
    )
});

/// Whether a text says no without a negation word.
pub(crate) fn aversion(cleaned: &Cleaned) -> bool {
    AVERSION.is_match(&cleaned.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a41_certainty_in_both_languages() {
        for (text, expected) in [
            ("The launch may be on Friday", Certainty::Hedged),
            ("The launch is on May 8", Certainty::Plain),
            ("In May we ship", Certainty::Plain),
            ("I think it is blue", Certainty::Hedged),
            ("Bob mentioned the budget", Certainty::Hedged),
            ("not sure yet", Certainty::Hedged),
            ("It is confirmed: Friday", Certainty::Strong),
            ("It is not confirmed", Certainty::Hedged),
            ("Please confirm the date", Certainty::Plain),
            ("I will definitely come, maybe late", Certainty::Hedged),
            ("I like tea", Certainty::Plain),
            ("可能周五上线", Certainty::Hedged),
            ("不可能延期", Certainty::Plain),
            ("尽可能早点", Certainty::Plain),
            ("听说他要走", Certainty::Hedged),
            ("已确认周五上线", Certainty::Strong),
            ("还没确认", Certainty::Hedged),
            ("肯定去", Certainty::Strong),
            ("不一定去", Certainty::Hedged),
            ("我不吃辣", Certainty::Plain),
            ("ｍｉｇｈｔ be", Certainty::Hedged),
            ("可\u{200b}能", Certainty::Hedged),
        ] {
            assert_eq!(certainty(text), expected, "{text}");
        }
    }

    #[test]
    fn g12_negation_scope_in_both_languages() {
        for (text, expected) in [
            ("老王对青霉素不过敏", Negation::Full),
            ("证件不过期就行", Negation::Full),
            ("我喜欢茶，不过我更喜欢咖啡", Negation::None),
            ("不过，周五可以", Negation::None),
            ("我不同意", Negation::Full),
            ("两种不同的颜色", Negation::None),
            ("I eat fish", Negation::None),
            ("I don't eat fish", Negation::Full),
            ("never on Mondays", Negation::Full),
            ("not every Monday", Negation::Partial),
            ("I don't always drink coffee", Negation::Partial),
            ("no problem", Negation::None),
            ("room No. 5", Negation::None),
            ("not only tea", Negation::None),
            ("I know it", Negation::None),
            ("不吃辣", Negation::Full),
            ("从不加班", Negation::Full),
            ("不是每天都加班", Negation::Partial),
            ("不一定加班", Negation::Partial),
            ("不错，就这样", Negation::None),
            ("特别喜欢", Negation::None),
            ("是不是周五", Negation::None),
            ("没有过敏", Negation::Full),
        ] {
            assert_eq!(negation(text), expected, "{text}");
        }
    }
}
