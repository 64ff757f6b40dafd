//! Sentences that ask without a question mark (rule G5), by their grammar: a tag, an inverted verb behind a fronted clause, a
//! question word with its noun, an order to look something up; in Chinese the A-not-A form, a closing 没 or 不, a choice put
//! with 还是. What they ask for by the first words alone stands in `cues`.

use crate::pattern::Pattern;
use crate::phrases::{Table, compile, regex, table};
use crate::script::is_han;
use std::sync::LazyLock;

/// Classes of words that several tables use.
const CLASSES: &[(&str, &str)] = &[
    // Where a sentence begins, behind interjections; a comment of a program is none.
    ("<start>", r"^[^\p{L}\p{N}#/]*(?:<opener>,? )*"),
    ("<opener>", "and|so|but|ok|okay|hey|hi|hello|um|also|btw|wait|sorry|lol|oh|well"),
    (
        "<inverted>",
        "(?:is|are|am|was|were|does|did|can|could|should|would|will|shall|isn't|aren't|doesn't|didn't|can't|couldn't|won't|\
wouldn't|hasn't|haven't|r) <subject>|do (?:i|we|they|you|u)|(?:have|has) (?:i|you|u|we|they|he|she)",
    ),
    (
        "<subject>",
        "i|you|u|we|they|he|she|it|there|my|your|our|his|her|their|the|this|that|these|those|anyone|anybody|someone|everyone",
    ),
    ("<wh>", "what|where|who|when|which|how|why|whether|if|whose"),
    ("<b>", r"(?-u:\b)"),
    ("<end>", r"[^\p{L}\p{N}]*$"),
];

/// What makes an order to tell or to look up one for every time: then it is a rule, no question.
static EVERY_TIME: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "always",
            "every",
            "each",
            "whenever",
            "from now on",
            "by default",
            "going forward",
            "in future",
            "never",
            "daily|weekly|monthly",
            "before|after|first",
        ],
        &["每", "以后", "一律", "总是", "今后", "默认", "凡是", "只要", "之前", "前先", "再"],
    )
});

static ASKS: LazyLock<Table> = LazyLock::new(|| {
    table(
        CLASSES,
        &[
            // An inverted verb behind a clause in front: "Since I moved, is my insurance still valid".
            r"<start>(?:(?:since|because|given that|now that|if|when|after|before|while|as|although|even though|for|on|in|at|about|regarding|please|quick question|by the way|just curious|out of curiosity) [^,.;:!?]{1,80}, ?|(?-i:\p{Lu})\w+, ?)<inverted><b>",
            // Behind a verb its subject: a noun of many ("do penguins have knees"), one thing ("does coffee stain"), a name.
            r"<start>does (?:[\w'-]+ )?[\w'-]+ (?:still|also|ever|really|usually|always)? ?[a-z]+<end>",
            r"<start>(?:can|could|should|would|do|are) (?:\w+ )?\w+s (?:be|eat|drink|get|have|go|use|see|take|make|need|work|live|fly|swim|help|still|also|ever|really|usually|cost|run|do|know|come|stay|sleep|cause|damage|affect|count|include|apply|allowed|safe|good|bad|free|open|available)<b>[^:]*$",
            r"<start>(?:is|are|has|does|did|can|could|would|should|isn't|aren't|can't) (?-i:\p{Lu}\p{Ll}+) (?:\w+ ?)+<end>",
            r"<start>(?:do )?(?:you|u|ya|anyone|anybody|someone) (?:got|have|know|knows|has|happen to know)(?: of)? (?:any|if|whether|where|who|when)<b>[^,:]*$",
            // A tag.
            r"(?:,|;| -)? (?:isn't|aren't|don't|doesn't|didn't|wasn't|won't|can't|couldn't|shouldn't) (?:it|i|we|they|you|he|she)<end>",
            r"(?:,|;| -) (?:weren't|haven't|hasn't|is|are|do|does|did|was|am|have|has) (?:it|i|we|they|you|he|she|there)<end>",
            r", ?(?:right|correct|huh|eh|innit|or not|or no|or what)<end>",
            // A question word, written together or with what goes with it.
            r"<start>(?:whats|wheres|whos|hows|whens|whys|whatre|wherere|wats|wdym)<b>",
            r"<start>(?:how come|how about|what about|what if|how else|what else|who else|says who|since when|anyone know|anybody know)<b>",
            r"<start>how (?:far|long|much|many|old|big|tall|often|late|soon|high|fast|expensive|likely|safe|close|hard|easy|deep|heavy|wide) (?:is|are|was|were|do|does|did|can|should|will|would|have|has|am)<b>",
            r"<start>which (?:one )?of (?:my|our|the|these|those|us|them)<b>[^,;:]*$",
            // What is not known, and how the speaker asks for it.
            r"<start>(?:no (?:idea|clue)|dunno|(?:i )?(?:forgot|forget|can't remember|cannot remember|don't remember|can't recall|don't recall)) (?:<wh>|how (?:many|much|old|long|often)) (?:my|our|the|i|we|his|her|their|it|that)<b>",
            r"<start>i (?:need|want|would like|'d like|wanna) to (?:know|find out) <wh><b>",
            r"<start>who (?:won|wrote|invented|made|plays?|sings?|directed|discovered|painted|founded|built|owns?|runs?) [^,;:.]{2,40}<end>",
            r"<start>(?:hw|wat|wut|wht|wen|wher|whre|wy) <inverted><b>",
            r"<start>(?:asking|just asking|wondering|curious|question)(?:,|:| -)? <wh><b>",
        ],
    )
});

/// "Any decent ramen place nearby": asked for, unless a verb tells something of whatever there may be.
static ANY: LazyLock<Table> = LazyLock::new(|| {
    table(
        CLASSES,
        &[
            r"<start>any (?:idea|chance|news|luck|recommendations?|suggestions?|tips|thoughts|advice|updates?|word)<b>",
            r"<start>any (?:\w+ ){1,3}(?:near|around|nearby|close by)<b>",
        ],
    )
});
static TELLS_OF_ANY: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "is|are|was|were|will|would|can|could|should|must|may|might|has|have|had|needs?|goes|go|works?|does|do|gets?|comes?|suits?",
        ],
        &[],
    )
});

/// An order to tell or to look something up: it asks, unless it is meant for every time.
static LOOKS_UP: LazyLock<Table> = LazyLock::new(|| {
    let classes = [
        ("<asked>", "(?:please|pls|can you|could you|would you|just|quickly|go|and) "),
        (
            "<fact>",
            "(?:names?|number|address|dates?|day|time|list|status|price|cost|details?|difference|summary|total|balance|amount|\
forecast|weather|directions?|definition|meaning|recipe|results?|reason|score|location|hours|menu|schedule|email|title|size|\
colou?r|brand|model|deadline|limit|rate|distance|route|link|author|history|progress|place|guy|person|shop|restaurant|doctor|\
dentist|vet)(?: again)?",
        ),
        (
            "<look>",
            "tell|show|give|send|find|get|list|look up|look for|pull up|bring up|read|remind|dig up|check|double[- ]check|verify|\
confirm|see|figure out|find out|explain|work out|calculate|search|google",
        ),
        ("<of mine>", "my|our|his|her|their|that"),
    ];
    let classes: Vec<_> = classes.iter().chain(CLASSES).copied().collect();
    table(
        &classes,
        &[
            // "Recommend a dentist", "find me some flights".
            r"<start><asked>*(?:(?:find|recommend|suggest|name|look up|search for|look for|hunt for) (?:me|us) |(?:recommend|suggest|search for|look up) )(?:a|an|the|some|any|three|five|\d+|all|good|cheap|nice)<b>",
            // "Give me a recipe for lasagne": something made once.
            r"<start><asked>*(?:give|write|tell|sing|draw|make|show|read|teach) (?:me|us) (?:a|an|another|some|one|two|three|a few) (?:\w+ ){0,2}(?:recipes?|jokes?|stor(?:y|ies)|poems?|haiku|limericks?|riddles?|songs?|examples?|fun facts?|quotes?|puns?|summar(?:y|ies)|essays?|hints?|synonyms?|bedtime stor(?:y|ies))<b>",
            // "Check when the shop opens", "give me the name of the guy who fixed it".
            r"<start><asked>*<look>(?: me| us| out| again| for me| up)*(?: again)? <wh><b>",
            r"<start><asked>*<look>(?: me| us| out| again| for me| up)*(?: again)? <of mine> (?:[\w'-]+ ){0,3}<fact><end>",
            r"<start><asked>*<look>(?: me| us| out| again| for me| up)*(?: again)? (?:the|<of mine>) (?:[\w'-]+ ){0,3}<fact> (?:of|for|that|who|whose|where|when|i|we|you|my)<b>",
        ],
    )
});

/// A question word with its noun before the verb: "which plan is mine", "how many seats did we book".
static WH_NOUN: LazyLock<Table> = LazyLock::new(|| {
    table(
        CLASSES,
        &[
            r"<start>(?:(?:in|on|at|for|from|to|with|by|of|since) )?(?:which|what|whose|how (?:many|much|old|long|often|far|big|tall|late|soon|high|fast|expensive)|what (?:kind|sort|type) of) (?P<noun>[\w-]+(?: [\w-]+){0,4}?) (?:is|are|was|were|does|do|did|has|have|had|will|can|could|should|would|am|shall)<b>",
        ],
    )
});
/// With one of these in the place of the noun it is a clause that tells: "what I hate is", "which reminds me".
const TELLS: &[&str] = &[
    "i", "we", "you", "he", "she", "it", "they", "my", "our", "people", "matters", "counts", "bothers", "helps", "works",
    "reminds", "brings", "makes", "means", "really", "always", "never", "most", "everyone", "the", "a", "an", "is", "was",
    "happens", "happened", "in", "on", "at", "else",
];

/// "Had I known about it, I'd have come" begins like a question and is none.
static WOULD_HAVE: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"(?i)^[^\p{L}\p{N}]*(?:had|were|should) (?:i|we|you|he|she|it|they|my|the)[^,?]{1,80}, ?.*(?:'d|would|could|might)(?-u:\b)",
    )
});

static ASKS_HAN: LazyLock<Table> = LazyLock::new(|| {
    table(
        &[
            ("<start>", r"^[^\p{L}\p{N}]*"),
            ("<end>", r"(?:呢|啊|呀|来着|哈|的)?[^\p{L}\p{N}]*$"),
            ("<thing>", "(?:名字|牌子|颜色|时候|地方|东西|药|车|样|合适)?"),
        ],
        &[
            r"来着[^\p{L}\p{N}]*$",
            // A closing 没 or 不: "我跟你讲过没", "社保还能用不".
            r"(?:过|了)[^,，。;；不没还也都]{0,14}没(?:有)?<end>",
            r"(?:还|能|会|行|要|可以)\p{Han}{0,4}[能会行要用好去来吃算有在可以]不<end>",
            r"(?:能|会|可以|该|敢|肯)\p{Han}{1,6}不<end>",
            "(?:还)?(?:剩|有剩|够|来得及|管用|有效|有货|开门|营业)不<end>",
            "(?:知道|记得|晓得|清楚)[^,，。]{1,16}(?:不|没)<end>",
            "什么[^,，。]{0,6}(?:没|不)<end>",
            // A tag.
            r"[,，]\s*(?:没错|对|是|不是|没记错|没弄错|是这样|没问题)(?:吧|么|不)<end>",
            "(?:没错|没记错|没弄错|是这样)吧<end>",
            // A question word at the end, or with its noun.
            r"(?:叫|是|做|干|在|用|去|吃|买|选|推荐|管|算|属于|适合)(?:的)?(?:什么|哪\p{Han}|谁|多少|几\p{Han})<thing><end>",
            "(?:叫|是|在|有|要|去|吃|用|穿|住|做|干)(?:的)?啥(?:名字?|牌子|时候|地方|样|意思|东西)?<end>",
            "哪(?:一|几|些)?(?:个|种|份|家|款|天|位|条|张|本|年|次)[^,，。都也]{1,10}<end>",
            r"(?:多少|几(?:个|次|号|点|岁|天|年|块|楼|层|斤|寸|码)|哪(?:个|家|里|儿|位|天|一|种|款|些)|什么(?:时候|地方|牌子|颜色|名字|东西|药|菜|车|意思|样)|谁)\p{Han}{0,3}(?:呢|啊|呀|来着|合适|好呢|好啊)[^\p{L}\p{N}]*$",
            "<start>(?:今儿个?|今天|明天|明儿|昨天|晚上|这周|下周|到底|究竟|那)?谁(?:去|来|在|会|能|要|负责|接|送|做|值班|请客|买单|管|给|跟|是)[^,，。]{1,10}<end>",
            "<start>(?:那|诶|欸|哎|话说|所以|但|不过|请问|想问|对了)*[,，]?(?:怎么|咋|为啥|为何|凭什么|干嘛|干吗|哪来的)(?:我|你|他|她|它|这|那|就|老|又|还|总|没|不|会|回事|办|样)",
            "<start>怎么\\p{Han}{1,3}我的",
            // How something is done, the verb behind it.
            "<start>(?:咋个?样?|怎么样?|如何)(?:才能|才|去|来)?(?:办|弄|整|走|搞|写|做|用|开|打|装|修|改|交|领|退|设|查|连|关|删|申请|注册|办理)[^,，。;；怎是都也就]{0,12}<end>",
            r"<start>[^,，。管论道教会学懂]{1,10}(?:咋|怎么|如何)(?:提取?|办理?|弄|整|走|搞|写|做|用|开|打|装|修|改|交|领|退|设置?|查|连|关|删|申请|注册|报销?|取)<end>",
            "<start>(?:附近|这边|这儿|周围|楼下|市里|你知道|你晓得)?哪(?:儿|里)?(?:有|能|可以)[^,，。都也]{1,10}<end>",
            "<start>(?:你们?|您)[^,，。还也]{1,8}[^还也有]没<end>",
            "<start>你(?:觉得|说|看|认为)[^,，。]{1,14}还是[^,，。]{1,10}<end>",
            "<start>(?:请|帮我|给我)?(?:推荐|介绍)(?:一|几)?(?:本|个|家|部|首|款|点|位)[^,，。]{1,10}(?:呗|吧)?<end>",
            "多少(?:度|钱|块|人|米|斤|公里|岁|分|天|页|平米?|张|件|次)<end>",
            // Something made once, for the asking.
            "<start>(?:请|麻烦|那|快|再)*(?:给|跟|帮|为|替)(?:我|我们|咱|大家)(?:讲|说|写|画|唱|编|来|念|背)一?(?:个|首|段|篇|点|几个|则|张|幅)[^,，。;；]{1,12}<end>",
            "怎么(?:说|定|处理|解决|办)的<end>",
            "(?:到底|究竟)[^,，。]{0,6}(?:啥|什么|谁|哪|怎么|几|多少)",
            "<start>(?:这?附近|这边|周围)有(?:什么|啥|哪些)",
            "有(?:没有|无)[^,，。]{1,20}(?:推荐|可以|能|办法|消息|空|好)",
            // Doubt that wants to be dispelled.
            "(?:该不会|难不成|莫非|难道)[^,，。]*(?:吧|了|么|过)?<end>",
            "不会是[^,，。]*吧<end>",
            "<start>(?:是否|可曾)",
            r"<start>(?:要不|不如)(?:咱|我们)[^。]{1,16}[^\p{L}\p{N}]*$",
            // What is not known, and how the speaker asks for it.
            "还记得[^,，。]{1,24}(?:不|吗|没)<end>",
            r"(?:忘了|忘记|记不得|记不清|想不起来?|不记得)[^,，。]{0,12}(?:什么|哪|谁|多少|几|啥|怎么)[^,，。]{0,8}(?:了|来着)?[^\p{L}\p{N}]*$",
            "(?:看看|查查|算算|数数|知道)(?:一下)?我[^,，。]{0,10}(?:几|多少|什么|哪|谁)[^,，。]{0,6}<end>",
            r"(?:把|将)[^,，。;；]{2,26}(?:告诉|说给|报给|念给|列给|找给|发给|发)我(?:一下|看看|看|听听|听)?[^\p{L}\p{N}]*$",
            "<start>(?:请|麻烦|帮忙|帮我|给我|你能)+(?:查|搜|算|找|看|翻|核对|核实|确认|问|数|告诉我|说说)(?:一?下|查|看|找|算|搜|问|一查|一看|一找)?[^。！]{2,}",
            "<start>(?:查|搜|算|核对|核实)(?:一?下|查|搜|算)[^,，。！]{2,}",
            "<start>(?:(?:请|麻烦|帮我|给我|替我)+(?:找|推荐|搜|挑|介绍)(?:一?下|我|几个?|个|些|出)?|(?:找|推荐|搜|挑|介绍)(?:一?下|几个?|个|些))[^,，。]{2,}(?:最便宜|最近的|附近|哪|几家|方案|机票|酒店|餐厅|航班)[^,，。]*$",
        ],
    )
});
/// In front of such forms it is no question: "不管去不去", "看情况", "说什么就是什么".
static NO_CHOICE: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        "不管|无论|不论|管他|任凭|随便|都行|都可以|都好|无所谓|没关系|取决于|要看|看情况|动不动|时不时|都一样|我问|问我|告诉你|(?:什么|谁|哪|怎么)[^,，。]{0,8}[就都也]",
    )
});

/// A word, 不 or 没, and the word again: "过不过敏", "喜不喜欢", "去没去".
fn a_not_a(text: &str) -> bool {
    let chars: Vec<char> = text.chars().collect();
    chars
        .windows(3)
        .enumerate()
        // "现在不在" is one word and another.
        .any(|(i, w)| {
            matches!(w[1], '不' | '没')
                && w[0] == w[2]
                && is_han(w[0])
                && !(i > 0 && w[0] == '在' && "现正实存所".contains(chars[i - 1]))
        })
        || chars.windows(5).any(|w| matches!(w[2], '不' | '没') && w[0] == w[3] && w[1] == w[4] && is_han(w[0]))
}

/// "六月到期还是七月到期", "去大理还是去丽江": 还是 between two of one kind, told by a verb or a kind of number that stands on
/// both sides. "我在北京还是很开心" has nothing to choose.
fn a_or_b(text: &str) -> bool {
    let Some((left, right)) = text.split_once("还是") else { return false };
    let left = left.rsplit([',', '，', '。', ';', '；']).next().unwrap_or_default();
    let right = right.trim_end_matches(|c: char| !c.is_alphanumeric());
    let Some(first) = right.chars().next() else { return false };
    if right.chars().count() > 12 || right.contains(['都', '随', '更', ',', '，', '。']) {
        return false;
    }
    let same_verb = "先是要该去坐选买用吃走订叫开住".contains(first) && left.contains(first);
    let numbers = |text: &str| text.contains(|c: char| c.is_ascii_digit() || "一二三四五六七八九十周早晚".contains(c));
    let is_number = first.is_ascii_digit() || "一二三四五六七八九十周早晚".contains(first);
    same_verb || is_number && numbers(left) || left.contains('是') && IS_A.is_match(left) && A_NOUN.is_match(right)
}

/// "是猫" before 还是, and "狗" behind it: no adverb or verb, as "我是南方人还是爱吃面" has.
static IS_A: LazyLock<Pattern> = LazyLock::new(|| regex(r"[是在放]\p{Han}{1,8}$"));
static A_NOUN: LazyLock<Pattern> = LazyLock::new(|| regex("^[^很最会要能不没别爱喜觉得用想有就老经总常一去过]{1,6}$"));

/// Whether one sentence asks by its form. `text` is without the wordings that only look like questions.
pub(crate) fn asks(text: &str) -> bool {
    if !text.chars().any(is_han) {
        let by_noun = || {
            let noun = |noun: &str| !noun.split(' ').any(|word| TELLS.contains(&word.to_ascii_lowercase().as_str()));
            WH_NOUN.group(text, "noun").is_some_and(noun) && !text.contains(':')
        };
        let any = || ANY.is_match(text) && !TELLS_OF_ANY.is_match(text);
        return !WOULD_HAVE.is_match(text)
            && (by_noun() || any() || ASKS.is_match(text) || LOOKS_UP.is_match(text) && !EVERY_TIME.is_match(text));
    }
    !NO_CHOICE.is_match(text) && (a_not_a(text) || a_or_b(text) || ASKS_HAN.is_match(text) && !EVERY_TIME.is_match(text))
}

/// "不知道我老板晓不晓得": who says so without saying who does not know wants to know.
pub(crate) fn unsure(text: &str) -> bool {
    UNSURE_HAN.is_match(text) && a_not_a(text)
}

static UNSURE_HAN: LazyLock<Pattern> = LazyLock::new(|| regex(r"^[^\p{L}\p{N}]*(?:也|就|还)?不(?:知道|晓得|清楚|懂)"));

/// Whether a sentence only begins as a question does: what would have been.
pub(crate) fn would_have(text: &str) -> bool {
    WOULD_HAVE.is_match(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g5_questions_without_a_mark() {
        for text in [
            "whats the name of my vet again",
            "Since I moved to Bergen, is my old insurance still valid",
            "Give me the name of the guy who fixed my boiler",
            "how come I never get the weekly report",
            "My anniversary is on the 14th, isn't it",
            "which plan is mine",
            "how many seats did we book",
            "I forgot what my shoe size is",
            "我跟你讲过我膝盖做手术的事儿没",
            "我健身卡是六月到期还是七月到期",
            "帮忙看看我对布洛芬过不过敏",
            "我都搬到青岛了，原来的社保还能用不",
            "把上次修锅炉那个师傅的名字告诉我",
            "我闺女该不会是乳糖不耐受吧",
            "怎么我老是收不到周报",
            "我结婚纪念日是14号没错吧",
            "咋个退押金啊",
            "公积金咋提",
            "去机场多少钱",
            "给我编个故事",
            "你觉得我适合短发还是长发",
            "write me a haiku about rain",
            "wat is my plan",
        ] {
            assert!(asks(text), "{text}");
        }
        for text in [
            "What I hate most is small talk.",
            "Tell me the price in euros every time",
            "Which is why I never book with budget airlines.",
            "Had I known about it, I'd have come",
            "I live in Rome",
            "不管去不去都要提前说",
            "我还是喜欢喝茶",
            "我动不动就感冒",
            "我没有车",
            "我从不吃辣",
            "怎么舒服怎么穿是我的原则",
            "Write a short story where I'm a detective",
        ] {
            assert!(!asks(text), "{text}");
        }
    }
}
