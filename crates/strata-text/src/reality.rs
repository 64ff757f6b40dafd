//! What is said without being so: a condition, a wish, a joke, a game, a time that is over (rules G12, K0). A record may
//! repeat it as it stands, but not drop the frame: "I used to smoke" is no "the user smokes".

use crate::clean::Cleaned;
use crate::phrases::{compile, regex, without};
use regex::Regex;
use std::sync::LazyLock;

/// Jests: they undo everything around them.
static JEST: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        &[
            "(?:just|only|i'm|i was|was) (?:kidding|joking)",
            "kidding$",
            "jk",
            "as a joke",
            "april fools?'?",
            "(?:i'm|i was) (?:only )?pulling your leg",
            "not really$",
            "sarcasm",
            "yeah,? right",
            "[.!?…,-]+ *not$",
            "as if$",
        ],
        &[
            "开(?:个)?玩笑(?:的|啦|呢|而已)?",
            "逗你(?:的|玩)",
            "说着玩",
            "闹着玩",
            "瞎说的",
            "骗你的",
            "说笑的?",
            "我胡说",
            "才怪",
        ],
    )
});
static NO_JEST: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        &["not (?:kidding|joking)", "no joke"],
        &["(?:不|没|别|不是|没有|不要)(?:在)?(?:跟你)?开玩笑", "不喜欢(?:别人)?开玩笑", "爱开玩笑"],
    )
});

/// Games, stories and thought experiments, wishes and what follows from what is not the case.
static UNREAL: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        &[
            "(?:let's |let us |please |now )?pretend",
            "(?:let's |just |now |^)imagine",
            "^suppose|let's suppose|supposing",
            "let's (?:say|assume)",
            "hypothetically",
            "role-?play\\w*",
            "(?:in|for) (?:the|this|that|my|our|a) (?:game|story|novel|dream|play|movie|script|scenario|fanfic|campaign|simulation)",
            "my (?:character|avatar|persona)",
            "as a thought experiment",
            "i dream(?:ed|t) (?:that|of|about)",
            "(?:i|we|he|she|they)(?: really| so)? wish(?:es)?",
            "if only",
            "as if (?:i|we|he|she|they)",
            "would(?:n't)? (?:have|be|\\w+)[^.,;!?]{0,40} if (?:i|we|he|she|they|it|my)",
            "if (?:i|we|he|she|they|it|my \\w+|the \\w+) (?:(?:ever|only|just|suddenly) )?(?:were|was|had|lived|won|could|owned|worked|moved|got|became|went|knew|spoke|earned|made|took|did|ate|drank|played)",
            "^had (?:i|we|he|she|they)",
            "^were (?:i|we|he|she|they)",
            "in another life",
            // Words that are handed over to be worked on, not said: "Translate to French: I live in Rome".
            "^(?:please |can you |could you |now )*(?:translate|say|spell|pronounce|proofread|rephrase|rewrite|paraphrase|correct|summari[sz]e|render|type|repeat|recite)[^:\"“”'‘]{0,40}[:\"“'‘].*",
            "^(?:please |can you |could you |now )*(?:write|compose|draft|sing|tell) (?:me )?(?:a|an|the|some)? ?(?:\\w+ ){0,3}?(?:poem|song|story|sentence|joke|haiku|limerick|letter|tale|caption|slogan|essay|line)[^:\"“”]{0,60}[:\"“].*",
            "^(?:so |and |ok,? )*for (?:example|instance)",
        ],
        &[
            "假装",
            "(?:我|我们|咱们?)(?:来|现在|这次)?扮演",
            "设想",
            "想象(?:一下)?",
            "假(?:如|设|使|若)",
            "如果我?(?:是|有|能|会|住|在|当|变|中|没)",
            "要是(?:我|能|有|没)",
            "倘若",
            "若是",
            "(?:就|该多)好了",
            "(?:游戏|小说|故事|梦|剧本|电影|戏|剧情|副本)(?:里|中)",
            "梦(?:见|到)",
            "我的?(?:角色|人设|化身)",
            "恨不得",
            "巴不得",
            "^(?:请|帮我|麻烦|再|你)*(?:把)?(?:下面)?(?:这(?:句|段)(?:话)?)?(?:翻译|翻成|译成|译为|润色|改写|校对|朗读|念|造句|复述)[^:：，,“”「\"]{0,12}[:：“「\"].*",
            "^(?:请|帮我|麻烦|你)*用[^，,。:：]{1,6}(?:语|文|话|口吻|语气)(?:说|写|念|读|讲|翻译)[^，,。]{0,6}[:：“「\"].*",
            "^(?:请|帮我|麻烦|你)*写(?:一|个|首|篇|段)[^:：，,“”「\"]{1,14}[:：“「\"].*",
            "^(?:比如|例如|譬如|比方)(?:说)?[，,:：]?",
            "^(?:举个例子|打个比方)",
        ],
    )
});
static NO_UNREAL: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        &["wish(?:es)? to be (?:called|addressed|contacted)", "best wish(?:es)?", "wish ?list", "my character (?:trait|flaw)s?"],
        &["(?:我|他|她)(?:喜欢|爱)(?:玩)?角色扮演", "想象力", "(?:玩|写|看|读|喜欢)(?:游戏|小说|故事)里"],
    )
});
/// A condition: what follows it holds only under it.
static CONDITION: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        &[
            "(?:^|only |even |but |and |so |then )if",
            "if (?:i|you|we|he|she|they|it|the|my|there|not|necessary|possible)",
            "unless",
            "in case",
            "provided that",
            "as long as",
        ],
        &["如果", "要是", "假如", "假设", "倘若", "若是", "若(?:我|有|能)", "万一", "的话", "除非", "只要"],
    )
});
static NO_CONDITION: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        &[
            "(?:know|ask|wonder|see|check|sure|remember|tell me) if",
            "what if",
            "as if",
            "if not all",
            "if anything",
            "if i (?:remember|recall)\\w*",
        ],
        &["如果没记错", "要是没记错"],
    )
});
/// A time that is over, told in one clause.
static PAST: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        &[
            "used to (?:be|\\w+)",
            "previously",
            "formerly",
            "ex-\\w+",
            "(?:i|we|he|she|they) once (?:was|were|\\w+ed|had|drove|ate|drank|ran)",
            "once upon a time",
            "(?:was|were|had been|been|\\w+ed|ran|drove|ate|drank|had|went) [^.,;!?]{0,40}?until (?:\\d{4}|last \\w+|recently|i |we |my |the \\w+ (?:ended|closed))",
            "until (?:\\d{4}|last \\w+|recently),? (?:i|we|he|she|they) (?:was|were|\\w+ed|had|drove|ate|drank|ran)",
            "in the past",
            "(?:\\w+|a few|several|many) years ago",
            "no longer the case",
            "(?:i|we|my [\\w ]{1,24}?|our [\\w ]{1,24}?) (?:was|were) (?:the|an?|in|at|on|with|of|based|employed|called|named|[a-z]*\\d)",
            "(?:i|we) (?:lived|worked) (?:in|at|for|as|near|with)",
        ],
        &[
            "以前",
            "曾(?:经)?(?:是|在|住|有|做|当|用|吃|喝|抽|开|养|学|任|就职|经)",
            "过去(?:我|是|在|一直|总|常|也)",
            "原来我?(?:是|在|住)",
            "从前",
            "早年",
            r"(?:[\d一二三四五六七八九十几两]+|好几|多)年(?:以)?前",
            r"\d{4}年(?:之前|以前)",
            "前些年",
        ],
    )
});
static NO_PAST: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        &[
            "(?:i|we) (?:was|were) (?:the \\w+ (?:one|person|to)|a bit|a little|able|about|in a hurry|at a loss|on (?:time|holiday|vacation|leave))",
            "(?:i|we) (?:lived|worked) (?:[^.,;!?]{1,40} )?(?:all my life|since|my whole life)",
            "(?:am|i'm|is|are|get|got|getting|become|grown|been|gotten) used to",
            "(?:since|moved|joined|bought|born|started|married|founded|became|met|adopted)[^.,;!?]{0,40}years ago",
            "years ago (?:i|we) (?:moved|joined|bought|started|married|became|met|adopted|quit|stopped|gave up)",
        ],
        &[
            r"(?:点|号|日|周\S|月|天|午|会|饭|觉)(?:之前|以前)",
            r"年(?:以)?前(?:就|我?就|搬|来|买|入职|结婚|出生|开始|领养|认识|戒)",
            "跟以前一样",
            "和以前一样",
        ],
    )
});
/// A time that is over, which frames what comes after it as well.
static PAST_FRAME: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        &[
            "when (?:i|we) (?:was|were|lived|worked|studied)",
            "as a (?:child|kid|teenager|teen|boy|girl|young \\w+)",
            "in my (?:childhood|youth|twenties|teens|old job|former job|previous job|student days|school days|college days)",
            "back (?:then|in (?:college|school|the day|the days|\\d{4}|university|high school|my \\w+))",
            "in (?:college|high school|my college days),? i (?:\\w+ed|was|had|ran|ate|drank)",
        ],
        &[
            "小(?:时候|的时候)",
            "当年",
            "那(?:个)?时候?",
            "年轻(?:时|的时候)",
            "(?:上|读|念)?(?:大学|中学|高中|初中|小学|学生|研究生)(?:时候?|的时候|时代|期间|那会儿)",
            "上学(?:时|的时候|那会儿)",
        ],
    )
});
static NO_FRAME: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        &["(?:ever )?since (?:i|we) (?:was|were)"],
        &["从小(?:时候)?(?:起|开始|就)", "从?(?:那(?:个)?时候|大学|中学|高中)(?:起|开始)", "到那时候?"],
    )
});
/// A time to come: a plan, a date ahead.
static AHEAD: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        &[
            "next (?:year|month|week|spring|summer|autumn|fall|winter|quarter|semester|january|february|march|april|may|june|july|august|september|october|november|december)",
            "in (?:a|an|one|two|three|four|five|six|a few|\\d+) (?:years?|months?|weeks?)(?: time|' time)?",
            "(?:i'm|i am|we're|we are) (?:going to|planning to|thinking (?:of|about)|considering|hoping to|about to|looking to)",
            "(?:i|we) (?:plan|intend|hope|want) to (?:move|live|work|join|switch|become)",
            "(?:i'll|i will|we'll|we will) (?:move|live|work|join|switch|become|soon|be (?:moving|living|working))",
            "soon(?: i| we)?",
        ],
        &[
            "明年|后年|将来|未来|即将|快要|不久(?:之?后)?就?要",
            "下个?(?:月|周|星期|季度|学期|半年)",
            "(?:我|我们|咱们)(?:正在|在|正|也|都)?(?:打算|计划|准备|考虑|琢磨|盘算)",
            "(?:要|会|想)(?:搬|换|跳槽|调|转)(?:去|到|成|岗)?",
        ],
    )
});
static NO_AHEAD: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        &["as soon as", "(?:moved|live|lived|work|worked|been)[^.,;!?]{0,30} in (?:two|three|\\d+) (?:years|months|weeks)"],
        &["准备(?:好|工作|材料)", "我负责[^,，。]*(?:计划|准备)"],
    )
});
/// Words that bring a text back to the present.
static PRESENT: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        &["now", "nowadays", "these days", "today", "currently", "since then", "still", "any ?more", "any longer", "meanwhile"],
        &["现在", "如今", "目前", "眼下", "今年", "这几年", "后来", "已经", "仍", "还是"],
    )
});

fn says(text: &str, cue: &Regex, not: &Regex) -> bool {
    cue.is_match(&without(text, not))
}

/// Whether a text takes itself back. What closes it is no part of its words: "NOT!!"
fn in_jest(text: &str) -> bool {
    says(text.trim_end_matches(|c: char| !c.is_alphanumeric()), &JEST, &NO_JEST)
}

/// Whether a text tells what is not so: a game, a story, a wish, a jest, what would be.
pub(crate) fn unreal(cleaned: &Cleaned) -> bool {
    says(&cleaned.text, &UNREAL, &NO_UNREAL) || in_jest(&cleaned.text)
}

/// Whether one clause by itself says that it is not, or no longer, or only under a condition so.
pub(crate) fn qualified(clause: &str) -> bool {
    says(clause, &UNREAL, &NO_UNREAL)
        || says(clause, &CONDITION, &NO_CONDITION)
        || says(clause, &PAST, &NO_PAST)
        || says(clause, &PAST_FRAME, &NO_FRAME)
}

/// Whether one clause speaks of a time to come.
pub(crate) fn ahead(clause: &str) -> bool {
    says(clause, &AHEAD, &NO_AHEAD)
}

static SENTENCE_END: LazyLock<Regex> = LazyLock::new(|| regex(r"[。！？!?\n]|\.(?:\s|$)"));

/// For each clause of a text, given with its place, whether it is qualified: by itself, by a jest in the text, or by a
/// condition or a frame before it in the same sentence that nothing has ended.
pub(crate) fn qualified_clauses(text: &str, clauses: &[std::ops::Range<usize>]) -> Vec<bool> {
    let jest = in_jest(text);
    let mut framed = false;
    let mut last = 0;
    let mut out = Vec::with_capacity(clauses.len());
    for span in clauses {
        let clause = &text[span.clone()];
        if SENTENCE_END.is_match(&text[last..span.start]) {
            framed = false;
        }
        last = span.end;
        if PRESENT.is_match(clause) && !says(clause, &CONDITION, &NO_CONDITION) {
            framed = false;
        }
        out.push(jest || framed || qualified(clause));
        framed |=
            says(clause, &UNREAL, &NO_UNREAL) || says(clause, &CONDITION, &NO_CONDITION) || says(clause, &PAST_FRAME, &NO_FRAME);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g12_what_is_not_so_is_told_from_what_is() {
        for text in [
            "If I lived in Paris, I would learn French",
            "I wish I had a dog",
            "Just kidding, I eat worms",
            "Let's pretend I am a doctor",
            "In the game I am a wizard",
            "Had I been rich, I would own a villa",
            "如果我住在巴黎，我就学法语",
            "我要是有条狗就好了",
            "开玩笑的，我早饭吃虫子",
            "在游戏里我是法师",
            "ｐｒｅｔｅｎｄ I am a bot",
            "开\u{200b}玩笑的",
        ] {
            assert!(unreal(&Cleaned::new(text)), "{text}");
        }
        for text in [
            "I live in Paris",
            "I'm not kidding, I am vegan",
            "I play games",
            "我喜欢玩游戏",
            "我不喜欢开玩笑",
            "If I fly, I want an aisle seat",
            "我有条狗",
        ] {
            assert!(!unreal(&Cleaned::new(text)), "{text}");
        }
        for text in ["I used to smoke", "I was a smoker until 2019", "我以前抽烟", "2019年之前我是烟民", "小时候我怕狗"]
        {
            assert!(qualified(text), "{text}");
        }
        for text in
            ["I'm used to loud offices", "九点之前别打电话", "我从小就怕狗", "I moved here three years ago", "三年前就戒烟了"]
        {
            assert!(!qualified(text), "{text}");
        }
    }
}
