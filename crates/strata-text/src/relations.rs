//! Who does what to whom, and which way a bound points (rules G12, S5): "I owe Lin" is not "Lin owes me", "at most" is not
//! "at least", "must" is not "may". Only for words whose two sides cannot be exchanged.

use crate::analyze::{analyze_query, jieba};
use crate::clean::Cleaned;
use crate::pattern::Pattern;
use crate::phrases::{Table, compile, regex};
use crate::script::is_han;
use std::sync::LazyLock;
use strata_core::text::{Leaning, Relation};

/// The user, whatever the text calls them.
const USER: &str = "\u{1}user";

static CLAUSE_END: LazyLock<Pattern> = LazyLock::new(|| regex(r"[,;!?，。；！？\n]|\.(?:\s|$)"));

/// Verbs whose sides cannot be exchanged, each with its forms.
const VERBS: [(&str, &str); 19] = [
    ("owe", "owes?|owed|owing"),
    ("pay", "pays?|paid|paying"),
    ("lend", "lends?|lent|lending"),
    ("report", "reports? to|reported to|reporting to"),
    ("manage", "manages?|managed|managing|supervises?|supervised"),
    ("lead", "leads?|led|leading"),
    ("hire", "hires?|hired"),
    ("teach", "teaches|teach|taught|teaching"),
    ("replace", "replaces?|replaced|replacing"),
    ("call", "calls?|called"),
    ("help", "helps?|helped"),
    ("block", "blocks?|blocked|blocking"),
    ("depend", "depends? on|depended on"),
    ("follow", "follows|followed"),
    ("beat", "beats?|beaten"),
    ("buy", "buys? from|bought from|buying from"),
    ("sell", "sells? to|sold to|selling to"),
    ("give", "gives?|gave|given|giving"),
    ("send", "sends?|sent|sending"),
];
static VERB: LazyLock<Pattern> = LazyLock::new(|| {
    let forms: Vec<String> = VERBS.iter().map(|(name, forms)| format!("(?P<{name}>{forms})")).collect();
    regex(&format!(r"(?i)\b(?:{})\b", forms.join("|")))
});
/// "Is owed by": the sides are exchanged.
static PASSIVE: LazyLock<Pattern> = LazyLock::new(|| regex(r"(?i)\b(?:is|are|was|were|be|been|being|gets?|got)\s+$"));
static BY: LazyLock<Pattern> = LazyLock::new(|| regex(r"(?i)\bby\b"));
static PREFERS: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"(?i)^(?P<who>.*?)\b(?:(?:prefers?|preferred|favou?rs?)\b(?P<a>.+?)\b(?:to|over|than|rather than|instead of)\b|(?:likes?|loves?|enjoys?|wants?|drinks?|eats?|uses?|rather)\b(?P<b>.+?)\b(?P<less>less )?(?:more |better |rather )?than\b)(?P<other>.+)$",
    )
});
static OVER_HAN: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"(?:比起|相比于?|相较于?|与其)(?P<other>[^，,。;；]+?)[，,]?\s*(?:我|用户|他|她|我们)?(?:还是|也|都)?(?:更|比较|宁可|宁愿|不如|偏)(?:喜欢|爱|想|愿意|倾向于?|好)?(?P<one>[^，,。;；]+)|(?:喜欢|爱)(?P<a>[^，,。;；]+?)(?:多过|胜过|超过|甚于)(?P<b>[^，,。;；]+)",
    )
});
/// One clause with a verb between its sides.
static VERB_HAN: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"^(?P<before>[^，,。;；]*?)(?P<verb>欠|付给|付了?|还给|借给|交给|送给|寄给|发给|转给|留给|给了|汇报给|管着|管理|领导|雇了?|教|取代|替换|替代|卖给)(?P<after>[^，,。;；]+)$|^(?P<who>[^，,。;；]*?)(?:向|给|跟)(?P<whom>[^，,。;；]+?)(?P<done>汇报|付款|付钱|还钱|借钱|要账|道歉|学习)",
    )
});

fn sides(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut latin = String::with_capacity(text.len());
    let mut run = String::new();
    for c in text.chars().chain(['\n']) {
        if is_han(c) {
            run.push(c);
            latin.push(' ');
            continue;
        }
        if !run.is_empty() {
            for token in jieba().cut(&run, true) {
                match token.word {
                    "我" | "我们" | "咱们" | "本人" | "用户" => out.push(USER.to_owned()),
                    word if word.chars().count() > 1 || !"的了着过是在把给向和与跟也都就还".contains(word) => {
                        out.push(word.to_owned());
                    }
                    _ => {}
                }
            }
            run.clear();
        }
        latin.push(c);
    }
    static ME: LazyLock<Pattern> =
        LazyLock::new(|| regex(r"(?i)\b(?:i|me|we|us|myself|the user|the users|user)(?:'(?:m|d|ve|ll|re))?\b"));
    if ME.is_match(&latin) {
        out.push(USER.to_owned());
    }
    out.extend(analyze_query(&ME.replace_all(&latin, |_| " ")));
    out.sort();
    out.dedup();
    out
}

fn of_clause(clause: &str, out: &mut Vec<Relation>) {
    if let Some(found) = PREFERS.captures(clause) {
        let one = found.name("a").or_else(|| found.name("b")).map_or("", |m| m.as_str());
        let (one, other) = (sides(one), sides(&found["other"]));
        let (before, after) = if found.name("less").is_some() { (other, one) } else { (one, other) };
        out.push(Relation { word: "over".into(), before, after });
    }
    for found in VERB.captures_iter(clause) {
        let Some(whole) = found.get(0) else { continue };
        let Some((name, _)) = VERBS.iter().find(|(name, _)| found.name(name).is_some()) else { continue };
        let (before, after) = (&clause[..whole.start()], &clause[whole.end()..]);
        let (left, right) = (sides(before), sides(after));
        let (before, after) = if PASSIVE.is_match(before) && BY.is_match(after) { (right, left) } else { (left, right) };
        out.push(Relation { word: (*name).into(), before, after });
    }
    if let Some(found) = VERB_HAN.captures(clause) {
        let get = |name: &str| found.name(name).map(|m| m.as_str());
        let (word, before, after) = match (get("verb"), get("done")) {
            (Some(verb), _) => (verb, get("before"), get("after")),
            (None, Some(done)) => (done, get("who"), get("whom")),
            (None, None) => return,
        };
        let passive = before.is_some_and(|before| before.contains('被'));
        let (left, right) = (sides(before.unwrap_or_default()), sides(after.unwrap_or_default()));
        // "付了" and "付给" are one verb.
        let word = word.chars().next().map(String::from).unwrap_or_default();
        let (before, after) = if passive { (right, left) } else { (left, right) };
        out.push(Relation { word, before, after });
    }
}

/// The relations of a text: see [`Relation`].
pub(crate) fn relations(cleaned: &Cleaned) -> Vec<Relation> {
    let mut out = Vec::new();
    for clause in CLAUSE_END.split(&cleaned.text) {
        of_clause(clause, &mut out);
    }
    for found in OVER_HAN.captures_iter(&cleaned.text) {
        let get = |name: &str| sides(found.name(name).map_or("", |m| m.as_str()));
        let (before, after) = if found.name("one").is_some() { (get("one"), get("other")) } else { (get("a"), get("b")) };
        out.push(Relation { word: "over".into(), before, after });
    }
    out.retain(|relation| !relation.before.is_empty() && !relation.after.is_empty());
    out
}

static UPPER: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "at (?:the )?most",
            "(?:no|not) (?:more|higher|longer) than",
            "up to",
            "max(?:imum)?",
            "less than",
            "fewer than",
            "cheaper than",
            "(?:under|below) [$€£]?\\d",
        ],
        &["最多", "至多", "不(?:能|得|可)?(?:超过|高于|多于)", "以内", "以下", "少于", "低于", "不到", "不足", "上限"],
    )
});
static LOWER: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "at (?:the )?least",
            "(?:no|not) (?:less|fewer|lower|shorter) than",
            "min(?:imum)?",
            "more than",
            "(?:over|above|exceeding) [$€£]?\\d",
        ],
        &["最少", "至少", "起码", "不(?:能|得|可)?(?:少于|低于)", "以上", "多于", "高于", "超过", "下限"],
    )
});
/// What looks like a bound within a longer one.
static NO_LOWER: LazyLock<Table> = LazyLock::new(|| compile(&["(?:no|not) more than"], &["不(?:能|得|可)?(?:超过|高于|多于)"]));
static NO_UPPER: LazyLock<Table> =
    LazyLock::new(|| compile(&["(?:no|not) (?:less|fewer) than"], &["不(?:能|得|可)?(?:少于|低于)"]));
static EARLIER: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "before (?:\\d|noon|midnight|monday|tuesday|wednesday|thursday|friday|saturday|sunday|january|february|march|april|may|june|july|august|september|october|november|december|the \\w+)",
            "no later than",
            "not later than",
        ],
        &[r"(?:[点号日月年天周]|星期\S|周\S|\d)(?:之前|以前|前)"],
    )
});
static LATER: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "after (?:\\d|noon|midnight|monday|tuesday|wednesday|thursday|friday|saturday|sunday|january|february|march|april|may|june|july|august|september|october|november|december|the \\w+)",
            "no earlier than",
            "not earlier than",
        ],
        &[r"(?:[点号日月年天周]|星期\S|周\S|\d)(?:之后|以后|后)"],
    )
});
static MUST: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &["must", "ha(?:s|ve|d) to", "is required", "are required", "mandatory", "obligatory"],
        &["必须", "务必", "强制", "一定要", "非要"],
    )
});
static MAY: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &["may", "can", "could", "optional(?:ly)?", "is allowed", "are allowed", "need not", "(?:does|do)(?: not|n't) have to"],
        &["可以", "可选", "不必", "不用", "允许"],
    )
});
/// All of it, or each time.
static EVERY: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &["all(?: of)? (?:my|our|the|his|her|their|\\w+s)", "every", "each", "everyone", "everybody", "always", "the whole"],
        &["所有", "全部", "全都", "每(?:个|天|次|位|人|周|年|月|晚|早|回|逢)", "都", "总是", "始终", "人人", "从来"],
    )
});
static NO_EVERY: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "not (?:all|every|each|everyone|always)",
            "(?:after|above|of|at) all",
            "every (?:now and then|so often|once in a while)",
        ],
        &[
            "(?:大部分|大多数|多数|多半|大半|半数|部分|有些|有的|有几|几个|个别)[^,，。]{0,10}都",
            "首都|成都|都市|都会",
            "不(?:是)?(?:每|都|总|所有)",
            "并非(?:每|都|所有)",
        ],
    )
});
/// Some of it, or at times.
static PART: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "some(?: of)? (?:my|our|the|his|her|their|\\w+s)",
            "(?:several|many|most|half|a few|few|two|three|one|a couple|a handful|the majority) of (?:my|our|the|his|her|their)",
            "most(?: \\w+)? \\w+s",
            "(?:like|love|eat|hate|want|know|enjoy|trust|use|see|with|for|on|in) most \\w+",
            "sometimes",
            "occasionally",
            "now and then",
            "once in a while",
            "from time to time",
            "every (?:now and then|so often)",
            "not (?:all|every|everyone|always)",
        ],
        &[
            "有些|有的|某些|有(?:好)?几|个别|多半|大半|绝大多数",
            "一部分|大部分|部分的?|少数|多数|半数",
            "有时候?|偶尔|时不时|间或",
            "不(?:是)?(?:每|都|总是|所有)",
        ],
    )
});
/// The month.
static NO_MAY: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &["(?:in|on|of|by|until|since|from|to|this|next|last|early|mid|late|each|every|\\d+(?:st|nd|rd|th)?) may", "may \\d+"],
        &["不可以"],
    )
});
static NO_MUST: LazyLock<Table> = LazyLock::new(|| compile(&["(?:does|do)(?: not|n't) have to"], &["不必", "不是必须"]));

/// Which ways a text leans: see [`Leaning`].
pub(crate) fn leanings(cleaned: &Cleaned) -> Vec<Leaning> {
    let text = &cleaned.text;
    [
        (Leaning::AtMost, UPPER.says(text, &NO_UPPER)),
        (Leaning::AtLeast, LOWER.says(text, &NO_LOWER)),
        (Leaning::Earlier, EARLIER.is_match(text)),
        (Leaning::Later, LATER.is_match(text)),
        (Leaning::Must, MUST.says(text, &NO_MUST)),
        (Leaning::May, MAY.says(text, &NO_MAY)),
        (Leaning::Every, EVERY.says(text, &NO_EVERY)),
        (Leaning::Part, PART.is_match(text)),
    ]
    .into_iter()
    .filter_map(|(leaning, is)| is.then_some(leaning))
    .collect()
}

#[cfg(test)]
mod tests {
    use crate::features;
    use strata_core::text::{reverses, turns_round};

    #[test]
    fn g12_sides_that_are_exchanged_say_something_else() {
        for (quote, content) in [
            ("I owe Lin 500 euros", "Lin owes the user 500 euros."),
            ("Tom pays Anna 500 euros every month", "Anna pays Tom 500 euros every month."),
            ("I report to Priya", "Priya reports to the user."),
            ("I like tea more than coffee", "The user likes coffee more than tea."),
            ("I prefer trains to planes", "The user prefers planes over trains."),
            ("I like tea less than coffee", "The user likes tea more than coffee."),
            ("我欠小林500块", "小林欠用户500块。"),
            ("王芳向李强汇报", "李强向王芳汇报。"),
            ("比起咖啡我更喜欢茶", "比起茶用户更喜欢咖啡。"),
            ("Ｉ ｏｗｅ Lin 500", "Lin owes me 500"),
            ("I o\u{200b}we Lin 500 🙏", "Lin owes me 500"),
        ] {
            assert!(reverses(&features(content).relations, &features(quote).relations), "{quote} / {content}");
        }
        for (quote, content) in [
            ("I owe Lin 500 euros", "The user owes Lin 500 euros."),
            ("I owe Lin 500 euros", "500 euros are owed to Lin by the user."),
            ("I prefer trains to planes", "The user prefers trains over planes."),
            ("I like tea more than coffee", "The user prefers tea to coffee."),
            ("Tom manages my team", "My team is managed by Tom."),
            ("我欠小林500块", "用户欠小林500块。"),
            ("比起咖啡我更喜欢茶", "用户更喜欢茶。"),
            ("At Acme I work with Tom", "I work with Tom at Acme."),
        ] {
            assert!(!reverses(&features(content).relations, &features(quote).relations), "{quote} / {content}");
        }
    }

    #[test]
    fn s5_a_bound_that_points_the_other_way_says_something_else() {
        for (quote, content) in [
            ("My budget is at most 500 euros", "The user's budget is at least 500 euros."),
            ("more than 25 people come", "Fewer than 25 people come."),
            ("no more than 3 drinks", "more than 3 drinks"),
            ("Send it before Friday", "It is sent after Friday."),
            ("The server must be patched", "The server may be patched."),
            ("我预算最多500块", "用户预算最少500块。"),
            ("五点之前交", "五点之后交"),
            ("必须加密", "可以加密"),
            ("最多\u{200b}500", "至少500"),
        ] {
            assert!(turns_round(&features(content).leanings, &features(quote).leanings).is_some(), "{quote} / {content}");
        }
        for (quote, content) in [
            ("My budget is at most 500 euros", "The user's budget is no more than 500 euros."),
            ("up to 3 people", "at most 3 people"),
            ("at least 2, at most 5", "at most 5"),
            ("Deliver it by Friday", "It is delivered before Friday."),
            ("我预算最多500块", "用户的预算不超过500块。"),
            ("You can swim and must rest", "must rest"),
            ("Tax must be paid in May", "Tax is due in May"),
            ("以后用中文回复", "用户要求以后用中文回复"),
        ] {
            assert!(turns_round(&features(content).leanings, &features(quote).leanings).is_none(), "{quote} / {content}");
        }
    }
}
