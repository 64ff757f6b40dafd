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
            "kidding!*$",
            "jk",
            "as a joke",
            "april fools?'?",
            "(?:i'm|i was) (?:only )?pulling your leg",
            "not really!*$",
            "sarcasm",
        ],
        &["开(?:个)?玩笑(?:的|啦|呢|而已)?", "逗你(?:的|玩)", "说着玩", "闹着玩", "瞎说的", "骗你的", "说笑的?", "我胡说"],
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

/// Whether a text tells what is not so: a game, a story, a wish, a jest, what would be.
pub(crate) fn unreal(cleaned: &Cleaned) -> bool {
    says(&cleaned.text, &UNREAL, &NO_UNREAL) || says(&cleaned.text, &JEST, &NO_JEST)
}

/// Whether one clause by itself says that it is not, or no longer, or only under a condition so.
pub(crate) fn qualified(clause: &str) -> bool {
    says(clause, &UNREAL, &NO_UNREAL)
        || says(clause, &CONDITION, &NO_CONDITION)
        || says(clause, &PAST, &NO_PAST)
        || says(clause, &PAST_FRAME, &NO_FRAME)
}

static SENTENCE_END: LazyLock<Regex> = LazyLock::new(|| regex(r"[。！？!?\n]|\.(?:\s|$)"));

/// For each clause of a text, given with its place, whether it is qualified: by itself, by a jest in the text, or by a
/// condition or a frame before it in the same sentence that nothing has ended.
pub(crate) fn qualified_clauses(text: &str, clauses: &[std::ops::Range<usize>]) -> Vec<bool> {
    let jest = says(text, &JEST, &NO_JEST);
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
