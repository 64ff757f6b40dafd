//! What is said without being so: a condition, a wish, a joke, a game, a time that is over (rules G12, K0). A record may
//! repeat it as it stands, but not drop the frame: "I used to smoke" is no "the user smokes".

use crate::clean::Cleaned;
use crate::pattern::Pattern;
use crate::phrases::{Table, compile, regex};
use std::sync::LazyLock;

/// Jests: they undo everything around them.
static JEST: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "(?:just|only|i'm|i was|was) (?:kidding|joking)",
            "kidding$",
            "(?:i'm |i was |just |only |totally )+(?:(?:messing|playing|fooling|toying) with you|joshing|teasing you|trolling you|winding you up|having you on|yanking your chain|taking the (?:mick|piss))",
            "gotcha$",
            "i (?:just )?made (?:that|all that) up",
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
            "逗(?:你|您|大家)(?:呢|的|玩|啦)?",
            "(?:唬|吓|诓|忽悠|耍)你(?:的|呢|玩)",
            "(?:瞎|乱|胡)(?:编|扯|掰|诌)(?:的|呢)?",
            "骗你的",
            "说笑的?",
            "我胡说",
            "才怪",
        ],
    )
});
static NO_JEST: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &["not (?:kidding|joking)", "no joke"],
        &["(?:不|没|别|不是|没有|不要)(?:在)?(?:跟你)?开玩笑", "不喜欢(?:别人)?开玩笑", "爱开玩笑"],
    )
});

/// Games, stories and thought experiments, wishes and what follows from what is not the case.
static UNREAL: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "(?:let's |let us |please |now )?pretend",
            "(?:let's |just |now |^)imagine",
            "^suppose|let's suppose|supposing",
            "let's (?:say|assume)",
            "^(?:just |now )?assume (?:that|i|my|we|our)",
            "(?:a |an |the |one |your |our )?(?:sample|example|model|template) (?:answer|reply|response|text|sentence|message)[^.;!?:]{0,20}: ?.*",
            "hypothetically",
            "role[- ]?play\\w*",
            "(?:in|for) (?:the|this|that|my|our|a) (?:game|story|novel|dream|play|movie|script|scenario|fanfic|campaign|simulation)",
            "my (?:character|avatar|persona)",
            "as a thought experiment",
            "(?:i|we)(?: \\w+)? dream(?:ed|t) (?:that|of|about|i|we|my|our)",
            "(?:i|we|he|she|they)(?: really| so)? wish(?:es)?",
            "if only",
            "as if (?:i|we|he|she|they)",
            "would(?:n't)? (?:have|be|\\w+)[^.,;!?]{0,40} if (?:i|we|he|she|they|it|my)",
            "if (?:i|we|he|she|they|it|my \\w+|the \\w+) (?:(?:ever|only|just|suddenly) )?(?:were|was|had|lived|won|could|owned|worked|moved|got|became|went|knew|spoke|earned|made|took|did|ate|drank|played)",
            "^had (?:i|we|he|she|they)",
            "^were (?:i|we|he|she|they)",
            "in another life",
            // A supposition.
            "^(?:ok |okay |so |well |right |just |let's )*say,? (?:that )?(?:i|we)(?:'m|'d|'ve| am| was| were| had)",
            "for (?:the sake of argument|argument's sake)",
            "^(?:just |now |ok )*(?:picture|visuali[sz]e|envision) (?:this|me|us|my)",
            "(?:as if|as though|like) i (?:were|was) (?:a|an|the|your|five|\\w+ years)",
            "in (?:a|an|my) (?:perfect|ideal|better|dream|parallel|alternate|fantasy|different) (?:world|universe|life)",
            // A wish that is none for the assistant.
            "(?:how|boy do|man do|god,? how) i wish",
            "(?:wouldn't|would) it (?:not )?be (?:nice|great|lovely|cool|amazing|wonderful|awesome|fun|perfect) (?:if|to) (?:i|we|have|be|own|live)",
            "^(?:it |that )?(?:would|'d) be (?:so |really )?(?:nice|great|lovely|cool|amazing|wonderful|awesome|fun|perfect) to (?:be|own|live|get|know|speak|have an?)",
            "i(?:'d| would) (?:give (?:anything|everything|a lot|my right arm)|kill) (?:to|for)",
            "i(?:'m| am| was) (?:fantasi[sz]ing|daydreaming) (?:of|about|that)",
            // What would be under a condition that is not met.
            "(?:i|we|he|she)(?:'d| would)(?: not| never| probably| definitely| totally| love to| happily)? [^.;!?]{1,60} if (?:i|we|they|it|the \\w+|my \\w+|only|there|money) (?:were|weren't|was|wasn't|had|hadn't|could|didn't|knew|won)",
            "if (?:i|we|money|it|that|the \\w+|my \\w+|they|there)(?: \\w+)? (?:were|weren't|was|wasn't|had|hadn't|didn't|could|would)[^.;!?]{0,80}(?:would|'d|could|might)",
            "(?:that|it|this) would have been",
            // A dream, a part that is played.
            "(?:in|from) (?:a|my|last night's|some) (?:weird |strange |bad )?(?:dream|nightmare)",
            "my (?:\\w+ )?(?:dnd|d&d|rpg|sims?|minecraft|skyrim|warcraft|game|larp|role-?play|fictional) (?:character|persona|avatar|self)",
            "(?:hero|heroine|narrator|protagonist|main character) of (?:my|our) (?:\\w+ )?(?:novel|story|book|play|screenplay|comic)",
            "(?:for|in) (?:my|the|our|this|a) (?:\\w+ )?(?:drama|theat(?:er|re)|improv|acting|school play|film|movie|larp|murder mystery|mock \\w+|role-?play)(?: (?:class|club|project|scene|exercise|interview|game|night|session))?,? (?:i'm|i am|my name|i'll be|you're|you are)",
            "in my (?:[\\w-]+ ){0,2}(?:skit|sketch|comic|screenplay|fan ?fiction|short story)",
            "^(?:please |now |can you )*(?:act|behave|pretend|respond) (?:like|as if|as though) (?:i'm|i am|i were|we're|we are|we were)",
            "^(?:please |can you |let's |now |ok )*(?:be|play|act as|you play|you be|i'll be|i'll play) (?:my|the|a|an) [^.;!?]{1,40}(?:,| and) (?:and )?(?:i|you|i'm|i'll|you're|pretend)",
            // Praise that is meant the other way round, and says so.
            "^oh (?:yes|yeah|sure),? because",
            "oh (?:great|joy|wonderful|fantastic|brilliant|lovely|perfect|super)[,!. ]+(?:another|yet another|one more|just what|because|more)",
            "(?:lucky me|because who doesn't|said no one ever|how original)",
            "(?:just|absolutely|simply|totally|so) (?:love|adore|enjoy|live for) (?:waiting|standing in|sitting in traffic|(?:being|getting) (?:ignored|stuck|woken|yelled|late)|paying)",
            "\\w[.!?]* /s$",
            // A text that is ordered.
            "^(?:please |can you |could you |now )*(?:write|compose|tell|make up|invent|create|draft|sing|generate) [^.;!?]{0,40}(?:story|poem|tale|song|scene|sketch|joke|dialogue|screenplay|limerick|novel|essay|script|haiku|rap|fairy ?tale)s?[^.;!?]{0,10} (?:where|in which|with|about|as if|from|that says|in the voice|for|featuring|starring)",
            "^(?:please |pls |can you |could you |would you |now |help me |i need you to |ok,? )*(?:fix|check|edit|improve|polish|shorten|simplify|convert|decode|encode|revise|reword|tidy(?: up)?|clean(?: up)?|review|analy[sz]e|grade|classify|transcribe|transliterate|punctuate|capitali[sz]e|expand|continue|complete|finish|critique|roast|debug|explain|interpret|parse|turn|make|put) (?:this|these|the following|the (?:grammar|spelling|tone|style)|(?:my|the|that) (?:\\w+ )?(?:sentence|text|line|e-?mail|message|paragraph|caption|draft|code))(?: [\\w-]+){0,5} ?: ?[^ ].*",
            // Words that are handed over to be worked on, not said: "Translate to French: I live in Rome".
            "^(?:please |can you |could you |now )*(?:translate|say|spell|pronounce|proofread|rephrase|rewrite|paraphrase|correct|summari[sz]e|render|type|repeat|recite)(?-u:\\b)[^:\"“”'‘]{0,40}[:\"“'‘].*",
            "^(?:please |can you |could you |now )*(?:write|compose|draft|sing|tell) (?:me )?(?:a|an|the|some)? ?(?:\\w+ ){0,3}?(?:poem|song|story|sentence|joke|haiku|limerick|letter|tale|caption|slogan|essay|line)[^:\"“”]{0,60}[:\"“].*",
            "^(?:so |and |ok,? )*for (?:example|instance)",
            "ideally,? (?:i|we)(?:'d| would)",
            "(?:i|we)(?:'d| would) (?:rather )?have (?:\\w+ed|bought|gone|taken|chosen|been|had|done|made|come|gotten|kept|left|paid|eaten|said|known)",
        ],
        &[
            "假装",
            "(?:我|我们|咱们?)(?:来|现在|这次)?扮演",
            "设想",
            "想象(?:一下)?",
            "假(?:如|设|使|若|定)",
            "(?:角色扮演|情景模拟|情景对话)(?:游戏)?[:：,，]",
            "(?:示例|范例|样例|例句|模板)(?:回答|回复|文本|句子|答案)?[:：]",
            "早知道",
            "如果我?(?:是|有|能|会|住|在|当|变|中|没)",
            "要是(?:我|能|有|没)",
            "倘若",
            "若是",
            "(?:就|该多)好了",
            "(?:游戏|小说|故事|梦|剧本|电影|戏|剧情|副本)(?:里|中)",
            "梦(?:见|到)",
            "我的?(?:角色|人设|化身)",
            "理想(?:情况|状态)下",
            // A supposition.
            "(?:就|权|且|权且|姑且)当(?:作|成|是|做)?(?:我|咱|我们)",
            "(?:你|就)当(?:我|咱)(?:们)?是",
            "打个比方[,，]?(?:我|你)",
            "(?:暂且|姑且)设|(?:设定|设)(?:成|为)?我(?:是|有|在|叫)",
            "^[^\\p{L}]*(?:请|你|先|就|现在)*(?:把|拿)我(?:们)?(?:想象)(?:成|作|做)",
            "(?:在)?(?:理想|完美|平行|另一个|想象)(?:的)?(?:世界|宇宙|时空|国度)(?:里|中)",
            // A wish.
            "(?:该|那该)(?:有)?多(?:好|棒|爽|美|幸福)",
            "(?:我|咱)(?:要|若|如|倘)(?:是)?[^,，。;；]{1,16}(?:该多|得多|就太|那就|可就|多)(?:好|棒|爽|美|幸福|省心)",
            "(?:哪天|什么时候|有朝一日|有一天|将来|下辈子|来世|几时)[^。;；]{0,14}(?:能|会|要是|可以)[^。;；]{1,20}(?:就好|该多|多好|才好)",
            "(?:真|好|多(?:么)?)希望(?:自己|我|他|她|家|能|有|会)",
            "要是(?:哪天|有天|真)?[^,，。]{0,4}(?:中了(?:大?奖|彩票|头奖)|发(?:了)?(?:大)?财|当上|变成|赢了|有钱|继承|能回到|会飞|不用上班)",
            // What would have been.
            "(?:早知道|早晓得|当初要是|若知道?|早料到)[^。;；]{0,20}(?:就|也|才|会|不)",
            "(?:要不是|若不是|要没有)[^。;；]{1,20}(?:早就|就|早|肯定|会)",
            // A dream, a part that is played.
            "梦里|梦中|(?:昨晚|昨夜)梦|做了?个梦",
            "(?:游戏|剧本杀|副本|服务器|桌游|跑团|魔兽|原神)[^,，。;；]{0,6}我(?:的)?(?:角色|人物|号|职业|身份)?(?:是|叫|当|扮)",
            "(?:你|咱|咱们)(?:来|先|就|现在)*(?:扮演|演|扮|饰演|扮成|装作|装成)(?:成|作)?(?:我|一个|一位|个|老板|面试官|房东|医生|老师|客服)",
            "(?:戏剧|表演|话剧|情景剧|剧本杀|模拟(?:面试|法庭|谈判))(?:课|社|班)?(?:上|里|中)?[,，]?(?:我|咱)(?:们)?(?:演|扮|饰|是|叫)",
            "(?:来|玩|做)(?:一?个|一?局)(?:小)?(?:游戏|角色扮演|情景剧)[:：,，]",
            "(?:段子|小品|相声|短剧|漫画|同人|歌词|脱口秀)(?:里|中)[^,，。]{0,3}我",
            // Praise that is meant the other way round.
            "又双叒|我谢谢(?:您|你)[^,，。]{0,2}(?:啊|呢|嘞)|可真是太会",
            // A text that is ordered.
            "^[^\\p{L}\\p{N}]*(?:请|帮我|给我|你|来|能)*(?:写|编|讲|创作|生成|作)(?:一|个|篇|首|段|部|则|几|短)+[^。;；]{0,8}(?:故事|小说|诗|歌|剧本|段子|童话|作文|对话|台词|散文|笑话)",
            "^[^\\p{L}\\p{N}]*(?:请|帮我|你)*(?:换(?:个|种|一种|一个)(?:说法|讲法|表达|方式|语气|口吻)|换句话(?:说|讲))[^:：。]{0,6}[:：]",
            "^[^\\p{L}\\p{N}]*(?:请|帮我|帮忙|麻烦|给我|你)+(?:把)?[^:：。！？]{0,10}(?:修改|润色|检查|校对|缩短|扩写|续写|仿写|精简|排版|分析|点评|打分|归纳|总结|提炼|翻译|翻成|译成|改写|改成|朗读|抄写)[^:：。！？]{0,10}[:：].+",
            "^[^\\p{L}\\p{N}]*(?:缩短|润色|校对|翻译|改写|精简|扩写|检查|朗读)(?:一下|下)[:：].+",
            "^[^\\p{L}\\p{N}]*(?:把)?(?:下面|以下|这)(?:的|句|段|个|篇|条|首)*(?:话|文字|句子|内容|邮件|文案|标题|代码)[^:：。]{0,12}[:：].+",
            "(?:我|我们|咱们?)要是[^，,。]{1,14}[，,]\\p{Han}{0,3}会",
            "恨不得",
            "巴不得",
            "^(?:请|帮我|麻烦|再|你)*(?:把)?(?:下面)?(?:这(?:句|段)(?:话)?)?(?:翻译|翻成|译成|译为|润色|改写|改得|改成|改|说得|写得|校对|朗读|念|造句|复述)[^:：，,“”「\"]{0,12}[:：“「\"].*",
            "^(?:请|帮我|麻烦|你)*用[^，,。:：]{1,6}(?:语|文|话|口吻|语气)(?:说|写|念|读|讲|翻译)[^，,。]{0,6}[:：“「\"].*",
            "^(?:请|帮我|麻烦|你)*写(?:一|个|首|篇|段)[^:：，,“”「\"]{1,14}[:：“「\"].*",
            "^(?:比如|例如|譬如|比方)(?:说)?[，,:：]?",
            "^(?:举个例子|打个比方)",
        ],
    )
});
static NO_UNREAL: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &["wish(?:es)? to be (?:called|addressed|contacted)", "best wish(?:es)?", "wish ?list", "my character (?:trait|flaw)s?"],
        &["(?:我|他|她)(?:喜欢|爱)(?:玩)?角色扮演", "想象力", "(?:玩|写|看|读|喜欢)(?:游戏|小说|故事)里"],
    )
});
/// A condition: what follows it holds only under it.
static CONDITION: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "(?:^|only |even |but |and |so |then )if",
            "if (?:i|you|we|he|she|they|it|the|my|there|not|necessary|possible)",
            "unless",
            "in case",
            "provided that",
            "as long as",
        ],
        &[
            "如果",
            "要是",
            "假如",
            "假设",
            "倘若",
            "若是",
            "若(?:我|有|能)",
            "万一",
            "的话",
            "除非",
            "只要",
            "^(?:[不没]|有空|有时间|天[晴好]|晴天|雨天)\\p{Han}{0,6}(?:我|我们|咱们?|用户)就",
        ],
    )
});
static NO_CONDITION: LazyLock<Table> = LazyLock::new(|| {
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
static PAST: LazyLock<Table> = LazyLock::new(|| {
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
            "before (?:the|my|we|i|our) [^.,;!?]{2,30}?,? (?:i|we) (?:\\w{2,}[^\\We]ed|was|were|had|ran|ate|drank|went|drove|used)",
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
            "(?:有(?:了)?孩子|生孩子|结婚|搬家|当妈|当爸|出国|生病)(?:以前|之前)[,，]?我",
            "(?:没|还没)(?:有|生|结婚|工作|退休)[^,，。;；]{0,6}(?:的时候|那会儿?)",
        ],
    )
});
static NO_PAST: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "(?:i|we) (?:was|were) (?:the \\w+ (?:one|person|to)|a bit|a little|able|about|in a hurry|at a loss|on (?:time|holiday|vacation|leave))",
            "(?:i|we) (?:lived|worked) (?:[^.,;!?]{1,40} )?(?:all my life|since|my whole life)",
            "(?:am|i'm|is|are|get|got|getting|become|grown|been|gotten) used to",
            "(?:since|stopped|quit|gave up|given up|switched|converted|retired|graduated|got|lost|changed|learned|learnt|had (?:surgery|an? \\w+)|moved|joined|bought|born|started|married|founded|became|met|adopted)[^.,;!?]{0,40}years ago",
            "years ago (?:i|we) (?:moved|joined|bought|started|married|became|met|adopted|quit|stopped|gave up)",
        ],
        &[
            r"(?:点|号|日|周\S|月|天|午|会|饭|觉)(?:之前|以前)",
            r"年(?:以)?前(?:我们?)?(?:就|搬|来|买|入职|结婚|出生|开始|领养|认识|戒)",
            "跟以前一样",
            "和以前一样",
        ],
    )
});
/// A time that is over, which frames what comes after it as well.
static PAST_FRAME: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "when (?:i|we) (?:was|were|lived|worked|studied)",
            "as a (?:child|kid|teenager|teen|boy|girl|young \\w+)",
            "in my (?:childhood|youth|twenties|teens|old job|former job|previous job|student days|school days|college days)",
            "^back in (?-i:\\p{Lu})\\p{L}+",
            "back (?:then|in (?:college|school|the day|the days|\\d{4}|university|high school|my \\w+))",
            "in (?:college|high school|my college days),? i (?:\\w+ed|was|had|ran|ate|drank)",
        ],
        &[
            "小(?:时候|的时候)",
            "当年",
            "那(?:个)?时候?",
            "(?:那|当时那|头)(?:几|些|两|三)年|那会儿?|那阵子?|当时|那段(?:时间|日子)|(?:读书|当兵|上班|单身|留学|创业|实习)(?:那会儿?|那几年)",
            "年轻(?:时|的时候)",
            "(?:上|读|念)?(?:大学|中学|高中|初中|小学|学生|研究生)(?:时候?|的时候|时代|期间|那会儿)",
            "上学(?:时|的时候|那会儿)",
        ],
    )
});
static NO_FRAME: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &["(?:ever )?since (?:i|we) (?:was|were)"],
        &["从小(?:时候)?(?:起|开始|就)", "从?(?:那(?:个)?时候|大学|中学|高中)(?:起|开始)", "到那时候?"],
    )
});
/// A time to come: a plan, a date ahead.
static AHEAD: LazyLock<Table> = LazyLock::new(|| {
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
static NO_AHEAD: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &["as soon as", "(?:moved|live|lived|work|worked|been)[^.,;!?]{0,30} in (?:two|three|\\d+) (?:years|months|weeks)"],
        &["准备(?:好|工作|材料)", "我负责[^,，。]*(?:计划|准备)"],
    )
});
/// Words that bring a text back to the present.
static PRESENT: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &["now", "nowadays", "these days", "today", "currently", "since then", "still", "any ?more", "any longer", "meanwhile"],
        &["现在", "如今", "目前", "眼下", "今年", "这几年", "后来", "已经", "仍", "还是"],
    )
});

/// Whether a text takes itself back. What closes it is no part of its words: "NOT!!"
fn in_jest(text: &str) -> bool {
    JEST.says(text.trim_end_matches(|c: char| !c.is_alphanumeric()), &NO_JEST)
}

/// Whether a text tells what is not so: a game, a story, a wish, a jest, what would be.
pub(crate) fn unreal(cleaned: &Cleaned) -> bool {
    UNREAL.says(&cleaned.text, &NO_UNREAL) || in_jest(&cleaned.text)
}

/// Whether one clause supposes what it says and what follows it: it is not so, or only under a condition.
pub(crate) fn supposes(clause: &str) -> bool {
    UNREAL.says(clause, &NO_UNREAL) || CONDITION.says(clause, &NO_CONDITION)
}

/// Whether one clause qualifies itself and what follows it: not so, or only under a condition, or in a time that is over.
pub(crate) fn frames(clause: &str) -> bool {
    supposes(clause) || PAST_FRAME.says(clause, &NO_FRAME)
}

/// Whether one clause by itself says that it is not, or no longer, or only under a condition so.
pub(crate) fn qualified(clause: &str) -> bool {
    frames(clause) || PAST.says(clause, &NO_PAST)
}

/// Whether one clause speaks of a time to come.
pub(crate) fn ahead(clause: &str) -> bool {
    AHEAD.says(clause, &NO_AHEAD)
}

static SENTENCE_END: LazyLock<Pattern> = LazyLock::new(|| regex(r"[。！？!?\n]|\.(?:\s|$)"));

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
        if PRESENT.is_match(clause) && !CONDITION.says(clause, &NO_CONDITION) {
            framed = false;
        }
        let frames = frames(clause);
        out.push(jest || framed || frames || PAST.says(clause, &NO_PAST));
        framed |= frames;
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
