//! What a text holds besides the words that any text may hold (rules G5, G7). A sentence of courtesies and light words alone
//! says nothing; a sentence that points at something ("the other one", "他们") and else has light words alone names nothing.
//! The vocabularies are closed word classes (pronouns, auxiliaries, prepositions, particles, verbs and adjectives that fit
//! anything), so a new sentence needs no new entry: one word with a meaning of its own, and both answers are no.

use crate::pattern::Pattern;
use crate::phrases::{Table, regex, table, without};
use std::collections::HashSet;
use std::sync::LazyLock;

type Words = LazyLock<HashSet<&'static str>>;

fn set(words: &'static str) -> HashSet<&'static str> {
    words.split_whitespace().collect()
}

/// Words of English that say nothing by themselves. The halves of contractions are among them ("don", "ll").
static LIGHT: Words = LazyLock::new(|| {
    set("i me my mine myself you u your yours ur yourself we us our ours he him his himself she her hers herself they them \
         their theirs it its itself this that these those one ones who which what whom whose where when how why whatever \
         whichever whenever a an the some any each every all both either neither none other others another same such more \
         most less least much many few enough lot lots bit couple rest half two three first second third fourth last next \
         latter former top bottom left right middle previous previously earlier above below before after am is are was were \
         be been being s re m d ll ve t do does did done doing don doesn didn isn aren wasn weren won wouldn couldn shouldn \
         haven hasn hadn ain have has had having can cannot could will would shall should may might must gonna wanna gotta \
         need needs needed want wants wanted wanting like likes liked love loves loved prefer prefers preferred hate hates \
         hated go goes going went gone get gets got getting gotten make makes made making take takes took taken taking use \
         uses used using keep keeps kept keeping give gives gave given giving put puts let lets try tries tried trying see \
         sees saw seen look looks looked looking seem seems seemed sound sounds sounded feel feels felt work works worked \
         working know knows knew known think thinks thought say says said saying tell tells told telling ask asks asked show \
         shows showed shown mean means meant find finds found choose chose chosen pick picks picked change changes changed \
         fix fixes fixed send sends sent bring brought move moves moved add adds added remove removes removed delete deletes \
         deleted drop drops dropped leave leaves swap switch repeat repeated redo undo copy paste start started starts stop \
         stops stopped wait waits waited help helps helped happen happens happened come comes came coming turn turns turned \
         set suit suits suited fit fits matches finish finished handle handled solve solved expected rather good better best \
         bad worse worst great nice nicer fine ok okay cool perfect wrong correct true big bigger small smaller short shorter \
         long longer easy easier hard harder simple simpler cheaper faster slower new newer old older different similar ugly \
         pretty prettier beautiful clear clearer brighter darker lighter heavier closer far farther further higher lower \
         wider narrower interesting boring funny weird strange possible useful helpful exact sure ready not no yes very so \
         too really quite just only even still yet already again always never ever often sometimes once twice now then here \
         there yesterday today tomorrow tonight later soon exactly properly well also instead maybe perhaps probably actually \
         basically anyway almost together away back up down in out on off over under around through along of to for from with \
         without by at about as than and or but if because since while until till though although thing things way ways part \
         stuff kind sort side time times case point idea option options version versions draft answer reply something \
         anything nothing everything someone anyone nobody everybody everyone stay stays stayed hold calls guy guys person \
         fella lady list lists cart basket calendar folder doc spreadsheet notes note answers question questions curious \
         agree agreed discuss discussed talked spoke described mentioned decided settled email emails message messages mail \
         file files document page edits blue red green yellow black white grey gray pink purple brown orange dates intro \
         ending title heading headline line lines paragraph section sentence table chart picture image font colour color text \
         wording footer header logo button slide column row rows bullet bold italics layout honestly obviously literally \
         totally completely definitely absolutely certainly keen allow allows allowed refuse refuses refused promise promised \
         replied respond responded hear heard board decide decides mind minds bother bothers bothered manage managed deal end eventually finally usual decline declined accept accepts accepted reject rejected insist \
         insisted involved interested budge show shows appear appeared turned rid either latest ended ends refusing")
});

/// Words of courtesy, assent and surprise: with one of these and light words a text is small talk.
static COURTESY: Words = LazyLock::new(|| {
    set("interesting ha mm mhm aight ahoy bonsoir okey dokey zz zzz tada bravo phew aye righto obliged glad hurrah blimey \
         crikey bingo yessir roger no evenin mornin sry soz merci gracias danke grazie arigato obrigado hola bonjour salut \
         adios aloha namaste konnichiwa tschuss servus wait hi hiya hello hey heya howdy yo sup greetings morning afternoon \
         evening night goodnight goodbye bye byebye cya ciao cheers cheerio thanks thank thanx thx ty tysm ta please pls plz \
         sorry apologies welcome congrats congratulations kudos wow whoa woah ooh oh ah aha aah aww haha hahaha hehe lol lmao \
         rofl omg gosh hmm hm huh uh um er eh ok okay oki kk alright alrighty yes yep yeah yup yay ya nope nah sure right \
         exactly absolutely definitely indeed understood noted gotcha great awesome amazing wonderful fantastic brilliant \
         excellent perfect lovely cool sweet neat nice super fab splendid superb terrific hooray woohoo woot meh ugh oops \
         whoops yikes anyway anyways anywho nevermind nvm bless agreed appreciated np brb ttyl idk ikr btw likewise touche \
         fair well")
});

/// Words that go with courtesies and mean little beside them.
static BESIDE_COURTESY: Words = LazyLock::new(|| {
    set("clears cleared trick point carry continue relief reply late delay surprise shame pity wonder mistake fault worked ya \
         bet legit obliged glad over rock found top best regards lads ladies gents dawg fam homie hun darling sweetie babe \
         love sorted typo bot girl boy beaucoup mille amigo mon ami monday tuesday wednesday thursday friday saturday sunday \
         lifesaver star legend angel genius hero champ boss mate bro buddy pal friend friends dear folks guys team sir madam \
         man dude family kids appreciate rush hurry worry worries problem pleasure luck day days week weekend trip flight \
         holiday holidays year moment sec second minute minutes while talk talking chat chatting speak catch care enjoy \
         enjoyed guess hope agree understand info explanation tip tips advice patience effort kindness job stuff enough \
         awesome amazing wonderful great brilliant excellent fantastic lovely sweet rocks bye thank thanks thx much lots \
         million bunch quick super fun joke happy merry")
});

/// What the user may do in small talk: "I see", "I'm glad", "I'll be back".
static SMALL_DEEDS: Words = LazyLock::new(|| {
    set("see know got get understand appreciate agree guess think thought hope needed wanted mean meant can ll will m am was \
         just really so totally already expected asked said suppose owe ve")
});

/// Words that stand for something that is not named.
static STANDING_FOR: Words = LazyLock::new(|| {
    set("he him his she her hers they them their theirs it this that these those neither both either former latter one ones \
         thing whichever")
});
/// Words that pick something out of what is at hand: an ordinal, a part of a text, a version of it.
static PICKING: Words = LazyLock::new(|| {
    set(
        "usual same other others another first second third fourth last previous above below rest version versions option options \
         draft drafts paragraph sentence title heading font colour color wording layout picture image table chart",
    )
});
/// With one of these an order is a rule, and what it picks is whatever will be at hand: "always put the table first".
const RULES: &[&str] = &["always", "never", "every", "each", "whenever"];

/// Whether a word points at something without naming it.
fn is_pointing(word: &str, in_rule: bool) -> bool {
    STANDING_FOR.contains(word) || !in_rule && PICKING.contains(word)
}

/// "There" which only says that something is.
const EXISTS: &[&str] = &["is", "are", "s", "was", "were", "will", "should", "must", "has", "have", "seems", "might", "may"];

/// "That" which only joins: "I know that I can".
static JOINS: Words = LazyLock::new(|| set("i you we he she they it my your our the there"));

/// A word in lower case, letters that are drawn out drawn in again: "sooooo", "coool".
fn drawn_in(word: &str) -> String {
    let lower = word.to_ascii_lowercase();
    let bytes = lower.as_bytes();
    if !bytes.windows(3).any(|w| w[0] == w[1] && w[1] == w[2]) {
        return lower;
    }
    let with_runs_of = |most: usize| {
        bytes
            .chunk_by(|a, b| a == b)
            .flat_map(|run| std::iter::repeat_n(char::from(run[0]), if run.len() > 2 { most } else { run.len() }))
            .collect::<String>()
    };
    let single = with_runs_of(1);
    if is_known(&single) { single } else { with_runs_of(2) }
}

fn is_known(word: &str) -> bool {
    LIGHT.contains(word) || COURTESY.contains(word) || BESIDE_COURTESY.contains(word)
}

/// Latin words of a clause, in lower case; nothing when it holds a word of another script, or a number: neither is light.
fn latin(clause: &str) -> Option<Vec<String>> {
    let mut out = Vec::new();
    for word in clause.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        if !word.bytes().all(|b| b.is_ascii_alphabetic()) {
            return None;
        }
        let word = drawn_in(word);
        if !is_known(&word) {
            return None;
        }
        out.push(word);
    }
    Some(out)
}

static CLAUSE_END: LazyLock<Pattern> = LazyLock::new(|| regex(r"[,;!?.，。；！？、…\n—:：]+| - "));

/// Chinese words that say nothing by themselves, and the characters that are such words.
const LIGHT_HAN: &str = "\
我们|咱们|你们|他们|她们|它们|大家|这个|那个|这些|那些|这样|那样|这种|那种|这里|那里|这边|那边|这儿|\
那儿|其他|其它|其余|另外|另一|前者|后者|两个|左边|右边|上边|下边|上面|下面|前面|后面|中间|一样|同样|\
一直|已经|刚才|刚刚|之前|以前|上次|上回|昨天|今天|明天|合适|适合|喜欢|讨厌|觉得|知道|需要|可以|应该|\
怎么|什么|东西|时候|地方|问题|事情|方案|版本|办法|意思|想法|差不多|不错|比较|好像|可能|真的|其实|还是|\
或者|但是|所以|因为|而且|然后|继续|修改|删除|保留|同意|清楚|告诉|提到|搞定|搞错|弄好|弄错|处理|解决|\
满意|正确|错误|简单|详细|正式|顺眼|漂亮|好看|难看|一点|一些|一下|有点|稍微|尽量|完全|根本|确实|肯定|\
当然|经常|总是|老是|从来|反正|随便|照旧|按照|关于|对于|这么|那么|原来|样子|剩下|剩余|别的|日期|标题|\
开头|结尾|段落|表格|字体|颜色|排版|文字|按钮|配色|背景|页面|加粗|居中|对齐|放大|缩小|标红|高亮|精简|\
改写|合并|拆分|复制|粘贴|移动|删|动|块|页|行|列|图|意见|对调|改动|邮件|消息|描述|建议|早|封|第|\
好使|好用|管用|友好|这件事|那件事|这事|那事|那个人|这个人|那人|这人|清单|列表|购物车|日历|文件夹|过来|\
过去|寄|加|人|\
[的了吗吧呢啊呀嘛哦哈啦是就也都还再又很太更最挺蛮不没别要想会能可行好对错说讲提看弄做搞用改换放拿给跟和与同把被让叫去来到在有我你您咱他她它这那哪其另两俩几一二三四五点些下次回个种样款条张份件段句版左右上前后中大小长短高低快慢多少先刚已过得着地照按像比从向往里外边儿们]";

/// Beside something that is not named these say nothing either: what anybody may do to anything (consent, speech, coming and
/// going, beginning and ending), and when and how.
const DEEDS_HAN: &str = "\
答应|拒绝|反对|批准|点头|松口|改口|回应|回复|回话|回信|吭声|表态|商量|讨论|谈拢|谈|聊|联系|通知|解释|说明|承认|\
否认|保证|提起|开口|介意|在意|在乎|打算|准备|安排|决定|愿意|乐意|肯|敢|懒得|舍得|出现|露面|动手|参加|搭理|理|管|\
催|骗|劝|帮|见|碰|等|走|停|成|中|算了|算|拢|坚持|放弃|怀疑|相信|信|接受|考虑|选|挑|定|退|留|压根儿?|始终|最后|\
最终|后来|终于|总算|果然|居然|竟然|迟迟|仍然?|依然|依旧|本来|当时|那会儿|那时候?|至今|现在|到底|究竟|再三|倒|偏|却|\
并|只|一切|全部|反悔|变卦|早就|早已|大概|估计|反而|从头到尾|老样子|老规矩|老地方|老一套|老办法|照常|照办|一如既往|为准|作废|算数|要紧|\
重要|无所谓|省事|省心|靠谱|划算|顺手|地道|人家|玩意儿?|那位|这位|那头|这头|\
那天|那次|那回|觉着|寻思|琢磨|[来去](?:上班|上课|开会)|认识|听|熟|联络|轮到|除了|除|强|差";
/// The light words of other ways to write and speak: traditional characters, Cantonese, Wu, the north.
const LIGHT_ELSEWHERE: &str = "\
喜歡|覺得|東西|應該|現在|剛才|[這個們來還沒說對過會時後樣給讓兩邊裡請點換麼嗎無為與從於話講種塊嗰啲佢哋唔冇嘅咗喺係\
嘢晒咁啱俺恁侬伊啥咋嘞咧呗甭忒贼]";
/// Somebody near to somebody who is not named.
const KIN_OF_THEIRS: &str = "\
(?:他|她|他们|她们|人家)家?的?(?:爸爸?|妈妈?|爹|娘|父母|爸妈|[哥姐弟妹]{1,2}|老婆|老公|媳妇|丈夫|妻子|爱人|对象|男朋友|\
女朋友|儿子|女儿|闺女|孩子|同事|领导|老板|朋友|室友|同学|亲戚|里人|里)";
static ALL_LIGHT_TO_POINT: LazyLock<Pattern> =
    LazyLock::new(|| regex(&format!("^(?:[^\\p{{L}}\\p{{N}}]+|{KIN_OF_THEIRS}|{DEEDS_HAN}|{LIGHT_ELSEWHERE}|{LIGHT_HAN})+$")));

/// What points at something unnamed. A number with a measure word counts when no noun follows, which the light words see to.
static POINTING_HAN: LazyLock<Table> = LazyLock::new(|| {
    table(
        &[],
        &[
            "这(?:[个些样种边里儿款条张份件段句版是就也都不很太更最那事人几两]|$)",
            "那(?:个|些|样|种|边|里|儿|款|条|张|份|件|段|句|版|块)",
            "他|她|它|其他|其它|其余|另|前者|后者|两个|俩|剩下|剩余|左边|右边|上面|下面",
            "第(?:[一二三四五0-9](?:段|句|行|页|章|条|版)|[一二三四五])",
            "上一(?:封|条|版|页|个)|前一个|后一个",
            "以前的|之前的|原来的|原先的|原来的?样子|原样|同样|一样|刚才|上次|上回|照旧",
            // The same in other ways to write and speak.
            "佢|嗰|呢(?:個|啲|度)|這(?:個|些|樣|種|邊|裡|是|就|也|都|不)|那(?:個|樣|種|邊|裡|塊|兩)",
            "那(?:俩|头|位|玩意|天|次|回)|这(?:俩|位|玩意)|^[^\\p{L}\\p{N}]*人家",
            // What is as it was, and is not said; what is true of all of several things that are not named.
            "老(?:样子|规矩|地方|一套|办法)|照(?:常|办)|一如既往",
            r"^[^\p{L}\p{N}]*都不(?:是|对|行|好|合适|喜欢|想|要|中)",
            r"^[^\p{L}\p{N}]*(?:再|还|那|就|先|给我)*(?:来|加|要|换|留|拿|给|算我)[一两俩几](?:个|份|条|张|件|套)吧?[^\p{L}\p{N}]*$",
            // A quality in the place of its noun: "换个大点的".
            r"(?:要|换|选|挑|拿|来)(?:成|个|一个|点)?(?:更|再)?[大小长短高低新旧多少](?:一?点|一?些)?的[^\p{L}\p{N}]*$",
        ],
    )
});

/// Chinese courtesies, in any order and number.
const COURTESY_HAN: &str = "\
你好|您好|哈喽|哈罗|嗨|早安|早上好|上午好|中午好|下午好|晚上好|晚安|再见|再会|拜拜|回见|谢谢|感谢|多谢|谢啦|\
谢了|谢过|辛苦|麻烦|客气|抱歉|不好意思|对不起|恭喜|祝|收到|明白|了解|懂了|懂啦|知道了|没问题|没事|\
没关系|原来如此|好的|好嘞|好滴|行吧|行啊|也行|可以的|没错|搞定|漂亮|行[,，!！]|有意思|有趣|\
好[,，!！.。…~]|三克油|得劲|承蒙|关照|总算|靠谱|妥妥|妥了|安排|没听清|不用找|完事|收工|太强|\
zzz+|唔该晒?|多谢晒|早晨|欧克|古德|奈斯|真假|同乐|我滴(?:个)?天|我的天|老天|打错字?了?|手滑|乖|\
真聪明|聪明|周[一二三四五六日末天]?愉快|哇塞|哇|哎呀|哎哟|天哪|我去|厉害|牛|太棒|真棒|太好了|棒|赞|\
完美|佩服|给力|不错哦|哈哈|呵呵|嘿嘿|嘻嘻|嗯|哦|噢|喔|啊|呃|额|唉|哎|么么哒|爱你|比心|抱抱|加油|\
开始吧|笑死|话说回来|话说|言归正传|对了|那啥|好家伙|绝了|酷|帅";
const BESIDE_COURTESY_HAN: &str = "\
考虑|接着|发错|放心|成功|晚|见|明天|后天|周[一二三四五六日天末]|消息|希望|一切|快|回复|离开|幽默|风趣|\
可爱|试试|试一试|试|聪明|收获|受教|学到|先生|女士|小姐|老铁|铁子|家人们|大佬|大神|找到|呼|啥|中|\
星期[一二三四五六日天]|礼拜[一二三四五六日天]|亲爱的|宝贝|老板|老师|师傅|兄弟|朋友|各位|帮忙|帮助|帮|\
大忙|忙|解释|说明|耐心|聊|明儿|改天|回头|改日|慢慢|不急|着急|急|稍等|等等|等|非常|十分|特别|超级|超|\
实在|正是|正好|再次|多多|万分|极了|死|快乐|开心|家人|全家|您和|节|哟|呦|哼|喽|咯|滴|嘞|呐|真|佩|\
咱";
static CORE_HAN: LazyLock<Pattern> = LazyLock::new(|| regex(COURTESY_HAN));
static ALL_COURTESY_HAN: LazyLock<Pattern> =
    LazyLock::new(|| regex(&format!("^(?:[^\\p{{L}}\\p{{N}}]+|{COURTESY_HAN}|{BESIDE_COURTESY_HAN}|{LIGHT_HAN})+$")));

/// Good wishes: "Happy Lunar New Year to you and yours", "祝您和家人元宵节快乐". Whoever is wished something, nothing is told.
static WISHES: LazyLock<Table> = LazyLock::new(|| {
    table(
        &[
            ("<start>", r"^[^\p{L}\p{N}]*(?:(?:and|also|oh|aw+|wow),? )*"),
            ("<end>", r"[^\p{L}\p{N}]*$"),
            (
                "<day>",
                r"new year|(?:\w+ ){1,3}(?:day|year|eve|festival|season|weekend)|birthday|anniversary|holidays?|christmas|xmas|easter|diwali|eid|hanukkah|ramadan|thanksgiving|\w+day",
            ),
            (
                "<luck>",
                "congrats|congratulations|well done|good luck|all the best|best of luck|safe travels|get well soon|best wishes|warm wishes|wishing you",
            ),
            ("<好>", "快乐|健康|顺利|幸福|平安|愉快|好运|如意|安康|大吉|发财|进步|胜利|康复|开心|成功|吉祥|美满|安好"),
        ],
        &[
            "<start>(?:a (?:very )?)?(?:happy|merry|blessed|joyous) (?:belated )?(?:<day>)(?: to (?:you|all|everyone)[^.;!?]{0,40})?<end>",
            "<start>have an? [^.;!?]{2,30}<end>",
            "<start><luck>(?:,? (?:on|with|for|to|and|in|a|the|all|you|your)[^.;!?]{1,50})?<end>",
            "<start>enjoy (?:your|the) [^.;!?]{2,30}<end>",
            "^[^。；？]{0,8}希望(?:你|您|大家)[^。；！？]{0,10}(?:好|顺利|开心|愉快|平安)<end>",
            r"^[^\p{L}\p{N}]*(?:也|提前|先|预)?(?:祝|愿)(?:福)?(?:你|您|大家|各位|咱)[^。；！？]{0,16}<好><end>",
        ],
    )
});

/// Whether a text is small talk by the words it is made of (rule G5): a courtesy, and beside it nothing that means anything.
/// `filler` says of one clause whether it is a courtesy as a whole.
pub(crate) fn courtesy(text: &str, filler: impl Fn(&str) -> bool) -> bool {
    WISHES.is_match(text) || if has_han(text) { courtesy_han(text) } else { courtesy_latin(text, filler) }
}

fn has_han(text: &str) -> bool {
    text.chars().any(crate::script::is_han)
}

fn courtesy_han(text: &str) -> bool {
    // "我也是": small talk to whatever was said, as "same here" is.
    ALL_COURTESY_HAN.is_match(text)
        && (CORE_HAN.is_match(text) && !POINTING_HAN.is_match(text) || ME_TOO_HAN.is_match(text))
        && !(text.contains('我') && OWN_HAN.is_match(text))
}

static ME_TOO_HAN: LazyLock<Pattern> =
    LazyLock::new(|| regex(r"^[^\p{L}\p{N}]*我(?:们)?也(?:是|一样)(?:啊|呀|的|哦|这样)?[^\p{L}\p{N}]*$"));
/// The user tells something of himself, however light the words: "好的，我喜欢".
static OWN_HAN: LazyLock<Pattern> =
    LazyLock::new(|| regex("我(?:们)?(?:很|更|不|最|都|也|还|只|从来|一直|已经)*(?:喜欢|讨厌|有|住|不能|不会|会|不吃|用|叫)"));

/// What an order does to something.
const DEEDS: &[&str] = &[
    "use", "take", "keep", "change", "put", "do", "try", "make", "send", "add", "remove", "delete", "go", "choose", "pick",
    "want", "prefer", "like", "love", "hate", "fix", "move", "drop", "swap", "redo", "undo", "copy", "repeat", "set", "turn",
    "leave", "bring", "show", "keen",
];

/// What a courtesy may speak of.
const WHOLE: &[&str] = &["that", "it", "this", "all"];

fn courtesy_latin(text: &str, filler: impl Fn(&str) -> bool) -> bool {
    let mut clauses = Vec::new();
    let mut any = false;
    for clause in CLAUSE_END.split(text).filter(|clause| clause.chars().any(char::is_alphanumeric)) {
        if filler(clause) {
            any = true;
            continue;
        }
        let Some(words) = latin(clause) else { return false };
        any |= begins(&words);
        clauses.push(words);
    }
    any && clauses.iter().all(|words| {
        // "That's great" answers, "use that one" orders: something is pointed at unless a courtesy speaks of it as a whole.
        let orders = words.iter().any(|word| DEEDS.contains(&word.as_str()));
        let points = |word: &String| is_pointing(word, false) && (orders || !WHOLE.contains(&word.as_str()));
        !tells_of_self(words) && !words.iter().any(points)
    })
}

fn begins(words: &[String]) -> bool {
    words.first().is_some_and(|word| COURTESY.contains(word.as_str()))
}

/// "I like", "I don't work"; not "I see", "I didn't know".
fn tells_of_self(words: &[String]) -> bool {
    let denied = ["do", "don", "did", "didn", "have", "haven", "had", "hadn", "t"];
    (0..words.len()).any(|i| {
        let next = words[i + 1..].iter().find(|word| !denied.contains(&word.as_str()));
        words[i] == "i" && next.is_some_and(|next| !SMALL_DEEDS.contains(next.as_str()))
    })
}

/// Whether a text points at something that it does not name (rule G7), all its other words being light.
pub(crate) fn points(text: &str) -> bool {
    if has_han(text) {
        let pointing = || {
            let text = without(text, &WE_TWO_HAN);
            POINTING_HAN.is_match(&text) && ALL_LIGHT_TO_POINT.is_match(&text)
        };
        return pointing() || IT_HAN.is_match(text) || DEGREE_HAN.is_match(text);
    }
    if IDIOM.is_match(text) {
        return false;
    }
    let text = OF_THEIRS.replace_all(text, |found| found.name("their").map_or("", |whose| whose.as_str()));
    let Some(words) = latin(&text) else { return false };
    let light = |word: &String| LIGHT.contains(word.as_str()) || COURTESY.contains(word.as_str());
    let joins = |i: usize| i > 0 && words[i] == "that" && words.get(i + 1).is_some_and(|next| JOINS.contains(next.as_str()));
    let there = |i: usize| words[i] == "there" && words.get(i + 1).is_none_or(|next| !EXISTS.contains(&next.as_str()));
    let in_rule = words.iter().any(|word| RULES.contains(&word.as_str()));
    words.iter().all(light) && (0..words.len()).any(|i| there(i) || is_pointing(&words[i], in_rule) && !joins(i))
}

/// "It" that is nothing: "I keep it simple".
static IDIOM: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"(?i)(?-u:\b)(?:(?:keep|keeps|kept|keeping) it (?:simple|short|real)|(?:take|takes|taking) it (?:easy|slow)|call it a day|make it a (?:point|habit)|(?:first|second|third|fourth|last|youngest|eldest) of (?:two|three|four|five|six|seven|\d))(?-u:\b)",
    )
});

/// Somebody near to somebody who is not named: "her sister" is as unknown as she is.
static OF_THEIRS: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"(?i)(?-u:\b)(?P<their>his|her|their) (?:wife|husband|partner|mother|mum|mom|father|dad|parents|sister|brother|son|daughter|kids?|child(?:ren)?|boss|friends?|colleagues?|roommates?|family|girlfriend|boyfriend)(?-u:\b)",
    )
});

/// A thing that is spoken of before it is named, whatever is said of it.
static IT_HAN: LazyLock<Pattern> = LazyLock::new(|| regex(r"^[^\p{L}\p{N}《]*(?:但|可|不过|而且)?它们?(?:$|[^》])"));

/// The two of whom the speaker is one, and who is the last of all.
static WE_TWO_HAN: LazyLock<Table> =
    LazyLock::new(|| table(&[], &["[我咱](?:们)?(?:俩|两个)", "(?:总|每次|一直|从来|老)[^,，。]{0,3}最后一个"]));

/// "再短一点", "稍微亮些": of what, is not said.
static DEGREE_HAN: LazyLock<Table> = LazyLock::new(|| {
    table(
        &[
            ("<more>", "再|更|稍微|尽量|还要|还可以|写得?|弄得?|做得?|改得?"),
            ("<quality>", "[长短大小高低快慢多少亮暗深浅粗细厚薄]|简单|简短|简洁|详细|正式|活泼|客气|友好|口语|具体|清楚|柔和"),
            ("<bit>", "一点|一些|点|些"),
        ],
        &[
            r"^[^\p{L}\p{N}]*(?:请|能|要|可以)?<more>+<quality><bit>(?:儿)?(?:[、，,和]?(?:再|更)?<quality><bit>)*(?:吧|就好|就行|更好|的)?[^\p{L}\p{N}]*$",
        ],
    )
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g5_small_talk_is_known_by_what_it_lacks() {
        for text in [
            "hiya, me again",
            "No rush, take your time mate, thanks",
            "ooooh that's so cool!!",
            "Alrighty, let's get started",
            "Wonderful, exactly what I needed. Thanks again!",
            "Happy Lunar New Year to you and your family!",
            "帮大忙了，爱你哟",
            "晚安，明儿聊",
            "祝您和家人元宵节快乐！",
            "我也是！",
        ] {
            assert!(courtesy(text, |_| false), "{text}");
        }
        for text in [
            "Thanks, I like tea",
            "Yes, I work nights",
            "Happy people annoy me",
            "No, I don't work",
            "yeah that one's fine by me",
            "Great Danes bark",
            "use that one please",
            "Cheers is a sitcom",
            "好的，我喜欢",
            "谢谢，我住在大理",
            "好的，用那个",
        ] {
            assert!(!courtesy(text, |_| false), "{text}");
        }
    }

    #[test]
    fn g7_what_points_and_names_nothing() {
        for text in [
            "It's exactly what he wanted",
            "Neither of them works for me",
            "I already told you that",
            "they never did it properly",
            "其他几个也照这样弄",
            "两个都不合适",
            "他们一直没弄好",
            "人家早就不理我了",
            "她压根没提",
            "他爸不答应",
            "它又死机了",
            "佢都唔肯",
            "這個我也不要",
            "还是老规矩吧",
            "换个小点的",
            "再加一个",
            "Her mum won't allow it",
            "whichever is easier",
            "They never replied",
            "再短一点",
        ] {
            assert!(points(text), "{text}");
        }
        for text in [
            "He lives in Rome",
            "I know that I can",
            "From now on, always answer with the table first",
            "This spring I moved",
            "我喜欢这座城市",
            "他在银行工作",
            "我姐姐在那边教书",
            "我俩已经说好了",
            "我总是最后一个走",
            "我不喜欢别人骗我",
            "我最后还是决定回老家",
            "他会说法语",
            "我要大号的",
            "Her sister lives in Rome",
            "I am the second of three",
            "My usual order is a flat white",
            "不吃辣",
        ] {
            assert!(!points(text), "{text}");
        }
    }

    #[test]
    fn drawn_out_letters_are_drawn_in() {
        for (word, short) in
            [("ooooh", "oh"), ("sooo", "so"), ("coool", "cool"), ("cool", "cool"), ("yesss", "yes"), ("all", "all")]
        {
            assert_eq!(drawn_in(word), short);
        }
    }
}
