//! What a clause can be told without (rules S3 to S5): forms of politeness, fillers and the frame of a request. What is left
//! stands letter for letter, in its order; nothing that hedges, denies, bounds or names goes.

use crate::certainty::{certainty, negation};
use crate::pattern::Pattern;
use crate::phrases::regex;
use std::ops::Range;
use std::sync::LazyLock;

/// What stands at the head of a clause, one form behind the other; `cut` goes.
static HEADS: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    [
        // Interjections, where what follows shows that they are none of its words.
        r"^(?P<cut>(?:好的|好吧|好嘞|好滴|好呀|好啊|嗯+|哦+|噢|是吗|对了|这样的话|没事|没关系|没问题|当然|可以啊|行啊|太好了|谢谢(?:你|您)?|你好|您好|哈哈+|请问一?下?|对不起|不好意思|(?:非常|很|真是)?抱歉|真是对不起)[呀啊哦呢哈啦]?)(?:[我你您那就请帮麻能可这有没推为给]|\s)",
        r"^(?P<cut>那么?|然后|另外|所以)(?:[我你您请帮麻能可就推为给有]|想)",
        // "Can you help me (find)": the request stays, its frame goes.
        r"^(?P<cut>(?:那就?)?(?:请|麻烦|拜托|劳驾)?(?:你们?|您)?(?:可不可以|能不能|是否可以|可以|能否|可否|能)?(?:请|麻烦)?(?:你|您)?(?:再|先|顺便)?(?:帮忙|帮我们?|给我们?|替我们?)(?:再|先|也)?)(?:找|查|看|推荐|介绍|安排|预[订定约]|订|选|挑|搜|列|算|打听)",
        r"^(?P<cut>(?:请|麻烦)(?:你们?|您)?)\p{Han}",
        r"^(?P<cut>(?:你|您)(?:知道|看看?))\p{Han}",
        r"^(?P<cut>(?:那就?|就)?(?:给|为|向)(?:您|你|你们|大家|二位)(?:再)?)(?:推荐|介绍|安排|查到?|找到?|预[订定])",
        r"^(?P<cut>(?:您|你)们?)(?:可以|不妨|要不)",
        // "I want to find": what is looked for stays.
        r"^(?P<cut>(?:我们?|咱们?)?(?:还|也|就|再)?(?:想要?|需要|要)(?:请你?|麻烦你?)?)(?:[找订查选挑问搜]|了解|知道|预[订定约]|确认)",
        // "Can you please find": an order stays.
        r"(?i)^(?P<cut>(?:hi|hello|hey|ok|okay|sure|great|alright|thanks|thank you|well|perfect|yes)(?: there| then)?[.!:]? )[A-Za-z]",
        r"(?i)^(?P<cut>(?:can|could|would|will) you (?:please |kindly |also )*(?:help me (?:to )?)?)(?:find|search|show|give|get|book|reserve|check|look|tell|make|recommend|suggest|list|send|provide|try|add|set|change|confirm|buy|order|schedule)(?-u:\b)",
        r"(?i)^(?P<cut>(?:please|kindly) )[A-Za-z]",
        r"(?i)^(?P<cut>i(?:'d| would) (?:like|love) (?:you )?to |i(?:'m| am) (?:looking|trying) to |i (?:want|need) (?:you )?to )(?:find|search|look|get|book|reserve|check|buy|see|know)(?-u:\b)",
    ]
    .into_iter()
    .map(regex)
    .collect()
});
/// Counts or bounds: "one" is a number then, no article.
static COUNTS: LazyLock<Pattern> =
    LazyLock::new(|| regex("最多|最少|至多|至少|不超过|不少于|只|仅|唯一|每|就[找要订选推]|足够|够"));
/// What stands anywhere in a clause.
static INNER: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    [
        r"(?:推荐|建议)(?P<cut>(?:您|你)们?(?:可以)?[去到]?|大家(?:可以)?去?)[\p{Han}A-Za-z0-9]",
        // The article behind a verb that looks for something or gives it.
        r"(?:找|推荐|介绍|选|挑|安排|预订|想要|需要)(?P<cut>一[家个间处所款]|个)[\p{Han}A-Za-z0-9]",
        r"(?:看|查|找|说|介绍|考虑|推荐|问|记|选|查询|确认|告诉我|了解)(?P<cut>一下)(?:[^子以]|$)",
        r"[^不没别非是说问如果若以为觉得](?P<cut>我们?(?:还|也|就|再)?(?:想要?|要))(?:[找订查挑搜]|预[订定约])",
        // What one does at such a place, behind the word for it.
        r"(?:景点|景区|地方|公园)(?P<cut>去?(?:游玩|玩玩?|逛逛|参观|游览))$",
        r"(?:餐馆|餐厅|饭店|饭馆)(?P<cut>去?(?:用餐|吃饭|就餐|用膳|吃))$",
        r"(?:酒店|宾馆|旅馆|旅店)(?P<cut>去?(?:住宿|入住|居住|休息|住))$",
        r"(?i)(?-u:\b)(?:find|show|give|get|tell|book|search|reserve|recommend|suggest)(?P<cut> me) ",
    ]
    .into_iter()
    .map(regex)
    .collect()
});
/// A name and then its kind, which points back at it: "故宫这个景点".
static KIND: LazyLock<Pattern> = LazyLock::new(|| {
    let kind = "这(?:[道个种]菜|[家个间](?:餐馆|餐厅|饭店|饭馆|酒店|宾馆|景点|景区|公园|商店|店|地方))";
    // Never the only word beside the name.
    regex(&format!("(?:[吃去到找住看买尝选订]|推荐|用餐).*?(?P<cut>{kind})|(?P<of>{kind})的"))
});
/// What stands at the end of a clause.
static TAILS: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    [
        r"\p{Han}(?P<cut>[呢啊呀哦哈嘛呗哟哒滴]+)$",
        r"(?P<cut>(?:谢谢|麻烦)(?:你|您)?了?)$",
        r"^(?:推荐|建议|介绍|去|可以去).{4,}?(?P<cut>游玩|住宿|入住|用餐|就餐|吃饭|看看|逛逛|走走|转转|玩玩|尝尝)$",
        r"(?i)[^ ](?P<cut>,? (?:for me|for you|for us|please|thanks|thank you))$",
    ]
    .into_iter()
    .map(regex)
    .collect()
});

/// The parts of a clause that tell it, in order; one that is the whole clause when nothing can go. `guarded`: whether a span
/// holds something that must stand; `named`: whether a name ends at this byte.
pub(crate) fn parts(clause: &str, guarded: &dyn Fn(&Range<usize>) -> bool, named: &dyn Fn(usize) -> bool) -> Vec<Range<usize>> {
    let whole = || std::iter::once(0..clause.len()).collect();
    let (mut from, mut to) = (0, clause.len());
    let cut = |pattern: &Pattern, text: &str, at: usize| {
        let span = pattern.captures(text)?.name("cut")?.range();
        let span = span.start + at..span.end + at;
        (!guarded(&span)).then_some(span)
    };
    while let Some(span) = HEADS.iter().find_map(|head| cut(head, &clause[from..to], from)) {
        from = span.end;
    }
    while let Some(span) = TAILS.iter().find_map(|tail| cut(tail, &clause[from..to], from)) {
        to = span.start;
    }
    let mut gone: Vec<Range<usize>> = Vec::new();
    let counts = COUNTS.is_match(clause);
    for (pattern, behind_name) in INNER.iter().map(|pattern| (pattern, false)).chain([(&*KIND, true)]) {
        let cuts = pattern.captures_iter(&clause[from..to]).filter_map(|c| c.name("cut").or_else(|| c.name("of")));
        for found in cuts {
            let span = found.start() + from..found.end() + from;
            let points = !behind_name || named(span.start);
            let number = counts && clause[span.clone()].starts_with('一');
            if points && !number && !guarded(&span) && gone.iter().all(|other| other.end <= span.start || span.end <= other.start)
            {
                gone.push(span);
            }
        }
    }
    gone.sort_by_key(|span| span.start);
    let mut parts = Vec::with_capacity(gone.len() + 1);
    for span in gone {
        parts.push(from..span.start);
        from = span.end;
    }
    parts.push(from..to);
    parts.retain(|part| !clause[part.clone()].trim().is_empty());
    if parts.len() == 1 && parts[0].len() == clause.len() {
        return parts;
    }
    let told: String = parts.iter().map(|part| &clause[part.clone()]).collect();
    // Nothing is told more firmly than it was said (rule S5).
    let same = certainty(&told) == certainty(clause) && negation(&told) == negation(clause);
    if told.chars().any(char::is_alphanumeric) && same { parts } else { whole() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(clause: &str) -> String {
        parts(clause, &|_| false, &|at| clause[..at].ends_with("驴杂汤"))
            .into_iter()
            .map(|part| clause[part].to_owned())
            .collect()
    }

    #[test]
    fn s4_the_frame_of_a_request_goes_and_its_words_stay() {
        for (clause, wanted) in [
            ("请帮我找一家人均50元的餐馆", "找人均50元的餐馆"),
            ("好的我想找一个安静的地方", "找安静的地方"),
            ("吃完饭我想找个安静的地方游玩", "吃完饭找安静的地方"),
            ("我还需要订一间房", "订一间房"),
            ("想吃驴杂汤这道菜", "想吃驴杂汤"),
            ("推荐餐馆用餐", "推荐餐馆"),
            ("驴杂汤这道菜的价格", "驴杂汤的价格"),
            ("驴杂汤这道菜", "驴杂汤这道菜"),
            ("推荐您去故宫看看", "推荐故宫"),
            ("给您推荐老书虫", "推荐老书虫"),
            ("麻烦你查一下电话", "查电话"),
            ("那我想去798艺术区", "我想去798艺术区"),
            ("地址是在哪呢", "地址是在哪"),
            ("Can you please find me a bus to Fresno", "find a bus to Fresno"),
            ("Hi there I need a cab", "I need a cab"),
            ("I would like to book a table for two", "book a table for two"),
            ("Please pick a Civic for me", "pick a Civic"),
            // What hedges, denies, bounds or merely looks like a frame stays.
            ("我可能想找个地方", "我可能想找地方"),
            ("我不想找个地方", "我不想找地方"),
            ("不是我想找的店", "不是我想找的店"),
            ("如果我想找店", "如果我想找店"),
            ("我想去故宫", "我想去故宫"),
            ("我打算订房", "我打算订房"),
            ("您可以在网上退票", "可以在网上退票"),
            ("最多找一家店", "最多找一家店"),
            ("只推荐一家店", "只推荐一家店"),
            ("我去过这家酒店", "我去过这家酒店"),
            ("只吃这道菜", "只吃这道菜"),
            ("I would like to live in Rome", "I would like to live in Rome"),
            ("Please do not call", "do not call"),
            ("I can maybe find you a bus", "I can maybe find you a bus"),
            ("Only book it if it is under 50", "Only book it if it is under 50"),
            ("那家店不错", "那家店不错"),
            ("好的餐馆有哪些", "好的餐馆有哪些"),
            ("老板能帮我订票", "老板能帮我订票"),
            ("别给我打电话", "别给我打电话"),
            ("等一下子就到", "等一下子就到"),
            ("门票20元一下", "门票20元一下"),
            ("I might like to book it", "I might like to book it"),
            ("Could you be wrong", "Could you be wrong"),
            ("pleased to meet Ann", "pleased to meet Ann"),
            ("请", "请"),
            ("ｐｌｅａｓｅ　５", "ｐｌｅａｓｅ　５"),
            ("👍请\u{200b}帮我", "👍请\u{200b}帮我"),
            ("من فضلك 5", "من فضلك 5"),
            ("", ""),
        ] {
            assert_eq!(told(clause), wanted, "{clause}");
        }
        assert_eq!(parts("请帮我找一家店", &|span| span.start == 0, &|_| false), [0..12, 18..21], "what is guarded stays");
    }
}
