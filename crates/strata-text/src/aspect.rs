//! What a statement says of what, for the comparison of two statements without a common slot (rule K0): its subject, its
//! topics, its values, how the subject stands to them, and whether its words say that something is over.

use crate::analyze::{analyze_query, jieba};
use crate::certainty;
use crate::clean::Cleaned;
use crate::pattern::Pattern;
use crate::phrases::{Table, compile, regex, without};
use crate::script::is_han;
use crate::topics::topics;
use crate::values;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use strata_core::text::{Aspect, Negation};

/// Reads a statement for comparison. Linear in its length.
#[must_use]
pub fn aspect(text: &str) -> Aspect {
    let cleaned = Cleaned::new(text);
    let said = without(&cleaned.text, &NO_CHANGE);
    let values = values::find(&cleaned, text);
    let all: BTreeSet<String> = bare(topics(text));
    let of_values: BTreeSet<String> = values.iter().flat_map(|value| topics(&value.text)).collect();
    let former: BTreeSet<String> = FORMER
        .iter()
        .flat_map(|pattern| pattern.captures_iter(&said))
        .filter_map(|found| found.name("old"))
        .flat_map(|old| bare(topics(old.as_str())))
        .collect();
    let renewed: BTreeSet<String> = RENEWED
        .captures_iter(&said)
        .filter_map(|found| found.name("what").or_else(|| found.name("what2")))
        .flat_map(|what| bare(topics(what.as_str())))
        .collect();
    Aspect {
        subject: subject(&cleaned.text),
        frame: all.difference(&of_values).cloned().collect(),
        topics: all,
        heads: heads(&cleaned.text, &values.iter().map(|value| value.text.as_str()).collect::<Vec<_>>()),
        values: values.into_iter().map(|value| (value.kind, value.normal)).collect(),
        relations: relations(&cleaned.text),
        denies: certainty::negation_of(&cleaned) == Negation::Full || certainty::aversion(&cleaned),
        changes: CHANGE.is_match(&said) || !renewed.is_empty(),
        former,
        adds: ADDS.is_match(&cleaned.text) && !CHANGE_FIRMLY.is_match(&said),
        episode: EPISODE.says(&cleaned.text, &NO_EPISODE),
        renewed,
    }
}

/// Ends what a statement is about, before what it says of it.
static VERB: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"(?i)\b(?:is|are|was|were|has|have|had|weighs?|costs?|goes|go|lives?|likes?|loves?|eats?|drinks?|wears?|takes?|needs?|starts?|leaves?|arrives?|ends?|works?|plays?|went|rose|fell|dropped|moved|now)\b|是|叫|在|重|有|要|涨|降|改|换|搬|穿|吃|喝|不",
    )
});

/// The names before the verb: they tell which of several things is spoken of ("Bruno weighs 12 kg").
fn heads(text: &str, values: &[&str]) -> BTreeSet<String> {
    let Some(verb) = VERB.find(text) else { return BTreeSet::new() };
    let head = &text[..verb.start()];
    let named = |value: &&&str| value.chars().next().is_some_and(|c| c.is_uppercase() || is_han(c)) && head.contains(**value);
    values.iter().filter(named).map(|value| value.to_lowercase()).collect()
}

/// Topics without numbers, units and the words that tell of a change.
fn bare(topics: Vec<String>) -> BTreeSet<String> {
    let number = |topic: &str| topic.chars().any(|c| c.is_ascii_digit());
    topics.into_iter().filter(|topic| !number(topic) && !CHANGE_STEMS.contains(topic)).collect()
}

static CHANGE_STEMS: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let en = "change changed switch switched move moved replace replaced swap swapped raise raised rise rose increase increased lower \
        lowered drop dropped cut reduce reduced upgrade upgraded downgrade downgraded rename renamed sell sold buy bought cancel \
        cancelled canceled give gave quit leave left stop stopped ditch ditched become became turn turned longer anymore instead \
        recently finally lately since last month months year years week weeks day days today spring summer autumn winter dollar \
        dollars euro euros yuan pound pounds cost costs price monthly weekly yearly daily hour hours percent actually correction \
        update updated went up down ago back start started completely totally grow grew tired lost interest fully around \
        meanwhile nowadays former formerly previous previously current end ended retire retired transfer transferred trade traded";
    let han = "改成 改为 换成 换到 换了 改用 不再 再也 搬到 搬去 搬家 跳槽 离职 入职 调到 涨到 降到 涨成 升到 变成 变为 升级 降级 更名 改名 如今 戒了 \
        取消 卖了 卖掉 停了 停用 更正 其实 最近 上月 上个 个月 每月 每年 每周 每天 一个 去年 今年 下周 人民 民币 块钱 已经 刚刚 从此 彻底 完全 后来 \
        月份 本月 提高 增加 减少 升职 晋升 主意 弃用 转学 这个 那个 之前 以前 原来 原先 涨价 降价 一直 再也 早就 开始";
    en.split_whitespace()
        .flat_map(|word| analyze_query(word).into_iter().chain([word.to_owned()]))
        .chain(han.split_whitespace().map(str::to_owned))
        .chain(
            ["元", "块", "月", "年", "周", "天", "涨", "降", "换", "改", "搬", "卖", "戒", "停", "退", "升", "变", "刚", "转"]
                .map(str::to_owned),
        )
        .collect()
});

static NO_CHANGE: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "(?:right|just|until|till|by|for|up to) now",
            "now and then",
            "every now and again",
            "never change\\w*",
            "change my mind often",
            "small change",
            "instead of (?:paying|using) cash",
        ],
        &[
            "不(?:会|能|想|打算)(?:再)?(?:改|换|搬)",
            "改天",
            "改善",
            "改革",
            "改造",
            "改进",
            "改编",
            "改正",
            "修改",
            "变化",
            "搬运",
            "换句话",
        ],
    )
});
/// Says that something is no longer as it was.
static CHANGE: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "now",
            "no longer",
            "(?:not|n't|never)[^.,;!?]{0,60} (?:any ?more|any longer|now)",
            "any ?more",
            "instead",
            "rather than",
            "(?:i|we|i've|we've|have|has|just|recently|finally) (?:just |recently |finally )?(?:switched|moved|changed|swapped|replaced|traded|transferred|relocated|upgraded|downgraded|converted)",
            "(?:switched|changed|moved|renamed|relocated|upgraded|downgraded|postponed|rescheduled|shifted|raised|lowered|increased|reduced|cut) (?:\\w+ ){0,4}?(?:to|from|by|into|over)",
            "(?:went|gone|goes|came|risen|rose|fell|dropped|jumped|climbed|up|down) (?:up |down )?to",
            "(?:gave|given|giving) up",
            "closed (?:my|our|the|an?) (?:\\w+ ){0,2}?(?:account|shop|store|membership|policy|subscription)",
            "(?:quit|stopped|ditched|dropped|cancelled|canceled|sold|retired|abandoned|scrapped|ended|left|resigned)",
            "(?:has|have|was|were|got|been) (?:been )?(?:renamed|replaced|moved|changed|raised|lowered|increased|reduced|cancelled|canceled|postponed|promoted|transferred|switched)",
            "(?:is|are|was|goes) (?:now|currently) (?:called|known|named|by)",
            "these days",
            "nowadays",
            "(?:lost|losing) interest",
            "(?:grew|grown|got|gotten) tired of",
            "gone off",
            "over (?:it|that|\\w+) now",
            "used to [^.;!?]+ (?:but|now)",
            "(?:i've|i have|i) (?:become|became|turned|gone|went)",
            "as of (?:today|this|last|next|\\w+ \\d)",
            "from now on",
            "actually",
            "correction",
            "scratch that",
            "i was wrong",
            "turns? out",
            "not [^.,;!?]{1,40}, but",
            "(?:has|have) a new",
            "(?:my|our) new \\w+ (?:is|are)",
            "got a new",
            "back to",
        ],
        &[
            "改\\p{Han}",
            "换(?:成|到|了|去|个|为|过|新)",
            "(?:不再|再也不|再也没)",
            "不[^,，。;；]{1,12}了",
            "没(?:有)?[^,，。;；]{1,10}了",
            "(?:搬|迁|调|转|挪|升|涨|降|提高|下调|上调|增加|减少|缩减|升级|降级|推迟|提前|延期|改期)(?:到|去|成|为|至|来|进|回)",
            "(?:跳槽|离职|入职|辞职|转行|转岗|退休|毕业)",
            "变(?:成|为|了)",
            "(?:更名|改名|改口|搬家|涨价|降价|转学)",
            "现在(?:叫|是|用|改|换|住|在|喝|吃|坐|开|喜欢|更|不|每|只|都|学|玩|养|的)",
            "如今|眼下改|目前(?:是|在|用|改)",
            "已经(?:是|换|改|不|搬|卖|退|停|戒|取消)",
            "(?:戒|卖|退|停|取消|注销|关)(?:了|掉)",
            "(?:更正|纠正|其实|说错了|记错了|应该是)",
            "不是[^,，。]{1,20}[,，]?(?:而是|是)",
            "(?:迷上|爱上|喜欢上|转而|转为|转用)",
            "腻了|厌了|没兴趣了",
            "新(?:的)?\\p{Han}{1,6}(?:是|叫)",
            "从此|打这以后|弃用|升职|升任|晋升",
        ],
    )
});
/// A change that adds nothing, whatever small words stand beside it.
static CHANGE_FIRMLY: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "no longer",
            "any ?more",
            "instead",
            "switched",
            "replaced",
            "swapped",
            "changed",
            "gave up",
            "quit",
            "stopped",
            "cancelled",
            "sold",
            "renamed",
            "moved",
        ],
        &["改(?:成|为|用)", "换(?:成|到|了)", "不再", "再也不", "不[^,，。;；]{1,12}了", "戒了", "卖了", "取消了", "搬到"],
    )
});
/// Adds to what is there: nothing is replaced.
static ADDS: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &["also", "too", "as well", "in addition", "additionally", "besides", "another", "a second", "second \\w+", "both"],
        &[
            "也(?:有|是|用|喜欢|爱|在|会|养|学|吃|喝|订|去)",
            "还(?:有|会|喜欢|爱|养|在用|用|学|订|兼)",
            "另外|此外|又(?:买|养|学|订|办|开)了?",
            "再加|外加|第二(?:个|只|辆|台|张)",
        ],
    )
});
/// Happened once.
static EPISODE: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "(?:i|we) (?:just |also |once )?(?:bought|opened|ordered|watched|visited|met|saw|ate|paid|sent|received|attended|finished|cooked|called|booked|spoke|talked|played|flew|walked|ran|filed|returned|drank|had|closed|submitted)",
            "yesterday",
            "last (?:night|monday|tuesday|wednesday|thursday|friday|saturday|sunday|weekend)",
        ],
        &[
            "(?:买|看|吃|去|见|点|订|开|付|收到|参加|读|提交|打开|关闭|寄|喝|玩|讲|写|做|拍|修|画|参与|办|听|教|送|借)(?:了|过)[^,，。;；]",
            "昨天|昨晚|前天|上周\\p{Han}",
        ],
    )
});

/// What was signed up for holds from then on.
static NO_EPISODE: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "(?:bought|ordered|opened|booked) (?:an? |the )?(?:\\w+ ){0,3}(?:membership|subscription|account|annual pass|season ticket|insurance|plan)",
        ],
        &["(?:订|办|开|买|充|续)(?:了|过)[^,，。;；]{1,12}(?:会员|套餐|年卡|月卡|季卡|保险|专栏|账户|户头|年费|订阅)"],
    )
});

/// A kind of thing of which there is another one now: "I changed gyms", "我换健身房了". Which one was before is not said.
static RENEWED: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"(?i)\b(?:i|we|i've|we've|i have|we have)(?: just| recently| finally)? (?:changed|switched|swapped) (?:my |our )?(?P<what>[a-z]+(?: [a-z]+)?)(?:[.,;!]|$| to | and | last | this |:)|换(?:了(?:一)?(?:个|家|间|位|款|台|辆|只|份)?|(?:个|家|间|位|款|台|辆|只|份)|新)?(?P<what2>[^,，。;；到成为了]{1,8}?)(?:了)?(?:[,，。;；!！]|$)",
    )
});

/// What is said to be over, as the group `old`.
static FORMER: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    let end = r"(?:[.,;!?]|$| and | in favou?r of | but | so | because | since | for (?:good|a|an|the|health)| any ?more| any longer| now| these days| last | this | in (?:\d|january|february|march|april|may|june|july|august|september|october|november|december|spring|summer|autumn|winter)| recently| two | a | years? ago)";
    let verbs = "no longer|quit|stopped|gave up|given up|ditched|dropped|cancelled|canceled|sold|abandoned|scrapped|lost interest in|grew tired of|gone off|got rid of|moved away from|moved out of|left|resigned from|retired from|got tired of|unsubscribed from|closed|am over|i'm over";
    [
        format!(r"(?i)\b(?:{verbs}) (?P<old>[^.,;!?]{{2,60}}?){end}"),
        r"(?i)\bnot? (?P<old>[^.,;!?]{2,60}?) (?:any ?more|any longer|now)\b".to_owned(),
        r"(?i)n't (?P<old>[^.,;!?]{2,60}?) (?:any ?more|any longer|now|these days)\b".to_owned(),
        r"(?i)\bnever (?P<old>[^.,;!?]{2,60}?) (?:any ?more|again|now)\b".to_owned(),
        r"(?i)\b(?:switched|moved|changed|went|gone|transferred|relocated|upgraded|downgraded|shifted|renamed|converted|migrated)(?: \w+){0,3}? from (?P<old>[^.,;!?]{2,50}?) (?:to|into|over to)\b".to_owned(),
        r"(?i)\b(?:instead of|rather than|in place of|no more) (?P<old>[^.,;!?]{2,50}?)(?:[.,;!?]|$| now)".to_owned(),
        r"(?i)\b(?:replaced|swapped|traded|exchanged|substituted)(?: in| out)? (?P<old>[^.,;!?]{2,50}?) (?:with|for|by)\b".to_owned(),
        r"(?i)\bleft (?P<old>[^.,;!?]{2,40}?) (?:for|and|to)\b".to_owned(),
        r"(?i)\bused to (?P<old>[^.,;!?]{2,60}?)(?:[.,;!?]|$| but| and now)".to_owned(),
        r"(?i)\b(?:is|am|are|'s|'m|'re) not (?P<old>[^.,;!?]{2,50}?)(?:,? but|, (?:it's|it is|i'm|i am|they're|but))".to_owned(),
        r"(?i)\b(?:isn't|aren't|wasn't) (?P<old>[^.,;!?]{2,50}?)(?:,? but|, (?:it's|it is|i'm|i am|they're|but))".to_owned(),
        r"(?:从|由)(?P<old>[^,，。;；]{1,20}?)(?:换|改|搬|跳槽|升|涨|降|调|转|变|迁|挪|辞职|离职)(?:成|到|为|去|至|了|来)?".to_owned(),
        r"(?:把|将)(?P<old>[^,，。;；]{1,20}?)(?:换|改|升级|降级|调|搬|卖|退|停|戒|取消|注销|扔|处理)(?:成|到|为|掉|了)*".to_owned(),
        r"(?:不再|再也不|再也没)(?P<old>[^,，。;；]{1,20}?)(?:了|[,，。;；]|$)".to_owned(),
        r"(?:不|没有?)(?P<old>[^,，。;；不没]{1,14}?)了(?:[,，。;；!！]|$|吧|啊)".to_owned(),
        r"(?:戒|卖|退|停|取消|注销|辞|丢|扔|停用|停掉|放弃|告别|离开|弃用|退出)(?:了|掉|掉了)(?P<old>[^,，。;；]{1,16}?)(?:[,，。;；!！]|$|换|改|的工作|现在)".to_owned(),
        r"(?:弃用|停用|放弃|告别|卸载|退掉|卖掉|戒掉|扔掉)(?P<old>[^,，。;；]{1,16}?)(?:了|[,，。;；]|$)".to_owned(),
        r"不是(?P<old>[^,，。]{1,20}?)[,，]?(?:而是|是|了)".to_owned(),
        r"(?:以前|之前|原来|原先|曾经?|过去)(?P<old>[^,，。;；]{1,20}?)[,，;；]".to_owned(),
        r"(?:对|玩|吃|喝|用|看)(?P<old>[^,，。;；]{1,12}?)(?:没兴趣了|腻了|玩腻了|厌了|失去兴趣|戒了|停了|戒掉了|卖了|退了|取消了)".to_owned(),
        r"(?:^|[,，。;；]|我(?:的|把)?)(?P<old>[^,，。;；我]{1,12}?)(?:戒了|卖了|退了|取消了|停了|注销了|戒掉了|卖掉了|停掉了)".to_owned(),
    ]
    .iter()
    .map(|pattern| regex(pattern))
    .collect()
});

/// Somebody else at the head of a statement.
static SUBJECT: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"^[^\p{L}\p{N}]*(?:(?i:(?:my|our|the|his|her|their) (?:older |younger |big |little |best |elder |eldest |youngest |new |old |current |former |family )*(?P<who>boss|manager|colleague|coworker|wife|husband|partner|friend|doctor|dentist|teacher|mother|mom|mum|father|dad|parents|brother|sister|son|daughter|kids?|child|children|uncle|aunt|cousin|grandma|grandpa|grandmother|grandfather|nephew|niece|lawyer|landlord|landlady|neighbou?r|roommate|flatmate|girlfriend|boyfriend|team|assistant))|(?P<pronoun>(?i:he|she|they)\b)|(?P<name>\p{Lu}[a-z]+)(?:'s \w+)? (?:is|was|has|likes|loves|hates|wants|works|lives|weighs|prefers|needs|moved|joined|left|drives|plays|eats|drinks|studies|now|no|doesn't|isn't)\b|(?:我|我们|咱)(?:的|家|家的)?(?P<kin>(?:大|小|二|三|老|表|堂|亲)?(?:爸|妈|爷爷|奶奶|外公|外婆|公公|婆婆|岳父|岳母|哥|姐|弟|妹)(?:爸|妈|哥|姐|弟|妹)?|儿子|女儿|孩子|老婆|老公|妻子|丈夫|媳妇|男朋友|女朋友|叔叔|阿姨|舅舅|姑姑|侄子|外甥|同事|同学|朋友|室友|邻居|房东|老板|领导|上司|经理|客户|老师|医生|律师|助理)|(?P<he>他|她)(?:们)?)",
    )
});
/// A third person's statement that is about the user's thing all the same: "the landlord raised my rent".
static MINE: LazyLock<Table> = LazyLock::new(|| {
    compile(&["my", "our", "me", "and i", "and me"], &["我的", "给我", "把我", "和我", "跟我", "我们的", "我家", "我这"])
});

/// Whoever it is: "Jonas is my manager now" is about the manager as "my manager is Petra" is.
static IS_MY: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"(?i)^[^\p{L}\p{N}]*\p{Lu}[\w'.-]*(?: \p{Lu}[\w'.-]*){0,2} is (?:now |currently )?(?:my|our) (?:new |current )?(?P<who>[a-z]+)",
    )
});

/// "I have a new doctor" is about the doctor as "my doctor is Dr. Lee" is.
static HAS_NEW: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"(?i)^(?:i|we)(?:'ve| have)?(?: now| just)? (?:have|got|found|see|hired) an? new (?:\w+ )?(?P<who>boss|manager|doctor|dentist|teacher|lawyer|landlord|landlady|neighbou?r|roommate|flatmate|assistant|partner|colleague|coworker)",
    )
});

fn subject(text: &str) -> Option<String> {
    if let Some(who) = HAS_NEW.captures(text).and_then(|found| found.name("who")) {
        return Some(who.as_str().to_lowercase());
    }
    if let Some(who) = IS_MY.captures(text).and_then(|found| found.name("who")) {
        return Some(who.as_str().to_lowercase());
    }
    let found = SUBJECT.captures(text)?;
    let who = ["who", "pronoun", "name", "kin", "he"].into_iter().find_map(|group| found.name(group))?;
    if MINE.is_match(&text[who.end()..]) {
        return None;
    }
    Some(who.as_str().to_lowercase())
}

/// Classes of relations, by the words that express them.
const RELATIONS: &[(&str, &str, &str)] = &[
    ("consume", "eat eats eating drink drinks drinking smoke smoking have order", "吃 喝 抽 点 吃素"),
    (
        "attitude",
        "like likes love loves enjoy enjoys prefer prefers hate hates dislike dislikes favourite favorite fan stand into obsessed adore",
        "喜欢 爱 讨厌 偏好 受不了 最爱 喜爱 迷 爱好 感兴趣 痴迷",
    ),
    ("live", "live lives living moved reside based relocated", "住 住在 搬 搬到 搬家 定居 居住 常住 租"),
    ("work", "work works working job joined employed employer", "工作 上班 任职 入职 跳槽 就职 供职"),
    ("drive", "drive drives driving", "开车 驾驶 座驾"),
    ("commute", "commute commutes commuting", "通勤 上下班"),
    ("use", "use uses using", "用 使用 改用"),
    ("own", "own owns", "拥有"),
    ("learn", "learn learning study studying studies", "学 学习 在学 进修"),
    ("play", "play plays playing", "玩 打 弹 拉 踢"),
    ("pay", "pay pays paying cost costs", "付 花 交 花费"),
    ("wake", "wake wakes waking get-up", "起床 起"),
    ("sleep", "sleep sleeps bed", "睡觉 睡 入睡"),
    ("read", "read reads reading", "读 阅读"),
    ("watch", "watch watches watching", "看 追剧"),
    ("weigh", "weigh weighs weight", "体重"),
    ("bank", "bank banks", "存钱 开户"),
    ("run", "run runs running jog jogging", "跑步 跑"),
    ("train", "train trains training exercise gym yoga swim swimming", "健身 锻炼 游泳 瑜伽 练"),
];

static CLASSES: LazyLock<BTreeMap<String, &'static str>> = LazyLock::new(|| {
    let mut out = BTreeMap::new();
    for (class, en, zh) in RELATIONS {
        for word in en.split_whitespace() {
            out.extend(analyze_query(word).into_iter().chain([word.to_owned()]).map(|word| (word, *class)));
        }
        out.extend(zh.split_whitespace().map(|word| (word.to_owned(), *class)));
    }
    out
});

/// Relations that more than one word expresses.
static PHRASES: LazyLock<Vec<(&'static str, Table)>> = LazyLock::new(|| {
    vec![
        ("wake", compile(&["(?:get|wake|getting|waking) up", "up at"], &["起床|早起"])),
        (
            "weigh",
            compile(
                &["(?:down|up) to \\d+(?:\\.\\d+)? ?(?:kg|kilos?|pounds|lbs)"],
                &[r"(?:体重|瘦|胖|减|增)(?:到|了|至|为)\\S*(?:公斤|斤|kg)"],
            ),
        ),
        (
            "role",
            compile(
                &["(?:i'm|i am|as) an? (?:\\w+ ){0,2}\\w+(?:er|or|ist|ian|ant)"],
                &[
                    "(?:是|当|做|任)(?:一名|一位|一个|个|了|上)?\\p{Han}{0,6}(?:师|员|经理|总监|教授|编辑|主编|老师|医生|律师|司机|主管|顾问|店长|会计)",
                ],
            ),
        ),
        ("sleep", compile(&["go to bed", "to bed"], &["上床|入睡"])),
        ("train", compile(&["(?:work|works|worked|working) out"], &["健身房"])),
    ]
});

fn relations(text: &str) -> BTreeSet<String> {
    let mut words: Vec<String> =
        crate::analyze::analyze(&text.chars().map(|c| if is_han(c) { ' ' } else { c }).collect::<String>());
    words.extend(jieba().cut(text, true).into_iter().map(|token| token.word.to_owned()));
    // "喝咖啡" is one word of the dictionary, and says both.
    let heads: Vec<String> = words
        .iter()
        .filter(|word| word.chars().all(is_han) && word.chars().count() > 1)
        .filter_map(|word| word.chars().next().map(String::from))
        .filter(|head| matches!(head.as_str(), "吃" | "喝" | "住" | "搬" | "学" | "抽"))
        .collect();
    let phrases = PHRASES.iter().filter(|(_, pattern)| pattern.is_match(text)).map(|(class, _)| (*class).to_owned());
    words.into_iter().chain(heads).filter_map(|word| CLASSES.get(&word).map(|class| (*class).to_owned())).chain(phrases).collect()
}
