//! What a turn of a dialogue says, for the table of rule S2: high-risk operations, retractions, promises and their
//! fulfilment, constraints, decisions, courtesies. Cue phrases in English and Chinese, sentence by sentence; what follows
//! from them is decided by `strata_core::policy::session`.
//!
//! Cues are looked for in the cleaned copy of a sentence, so full-width letters and zero-width characters hide nothing.
//! Phrases that only look like a cue ("pay attention", "计算了") are blanked out first.

use crate::analyze::{analyze_query, hash};
use crate::certainty::{certainty, negation};
use crate::clean::Cleaned;
use crate::features::features;
use crate::pattern::Pattern;
use crate::phrases::{Table, compile, regex, without};
use crate::script::is_han;
use crate::sentence::{is_question, sentence_spans};
use crate::{brief, mentions, tokens, values};
use std::collections::{BTreeSet, HashSet};
use std::sync::LazyLock;
use strata_core::policy::session::{ClauseSpan, CuedValue, Retraction, Role, SentenceCues, TurnCues};
use strata_core::policy::summary::{Language, Statement};
use strata_core::text::{Certainty, Negation};

macro_rules! cues {
    ($( $(#[$doc:meta])* $name:ident = $en:expr, $zh:expr; )*) => { $(
        $(#[$doc])*
        static $name: LazyLock<Table> = LazyLock::new(|| compile(&$en, &$zh));
    )* };
}

cues! {
    /// Not an operation: idioms, negated orders (those are constraints) and questions about how it is done.
    NO_OPERATION = [
        r"pay(?:s|ing)? (?:more |close |much )?attention", r"pay(?:ing)? (?:a|him|her|them) (?:a )?visit", "paid leave", r"pa(?:y|id) off",
        r"(?:have|has|had|need|needs|ought) to pay", r"what (?:would|will|does|do) it take to\b[^,.;!]{0,60}",
        r"(?:\d+|no|zero|one|two|three|any|more|fewer|direct|without) transfers?",
        r"(?:do not|don't|never|must not|mustn't|cannot|can't|without|not to|avoid)[^,.;!?]{0,12}(?:delet|eras|wip|pay|paid|transfer|wir|authori[sz]|grant|revok|refund|purg|drop|approv)\w*",
        r"how (?:do|does|can|could|to|would|should)\b[^,.;!]{0,60}",
    ], [
        "支付宝", "支付方式", "付款方式", "授权码", "(?:删除|删掉|清空|注销|付款|支付|转账|退款|授权)[^，。；！？]{0,6}(?:怎么|如何|怎样)", "(?:怎么|如何|怎样)[^，。；！]{0,20}",
        "(?:不要|别|不能|不得|禁止|切勿|千万别|不可以?|无法)[^，。；！？]{0,8}(?:删除|删掉|删|清空|付款|支付|转账|汇款|授权|退款)",
    ];
    OPERATION = [
        r"delet(?:e|es|ed|ing)", r"eras(?:e|es|ed|ing)", r"purg(?:e|es|ed|ing)",
        r"wip(?:e|es|ed|ing) (?:out|(?:(?:the|all|my|our|this|that|every) )?(?:\w+ )?(?:data|disks?|drives?|databases?|db|servers?|phone|laptop|records?|logs?|account|history|backups?|files?|system|everything|storage))",
        r"rm -rf?", r"(?:drop|dropped|dropping|truncate|truncated) (?:the )?(?:\w+ )?(?:table|database|db|schema|bucket|index|collection)",
        r"(?:pay|pays|paid|paying|refund|refunds|refunded|charge|charged)\b[^.;!?]{0,40}?(?:[$€£¥]|\d|invoice|bills?\b|fees?\b|deposit|rent\b|order|vendor|supplier|balance|card\b)",
        r"(?:transfer|transfers|transferred|transferring|wire|wired|remit|remitted)\b[^.;!?]{0,40}?(?:[$€£¥]|\d|money|funds|account|ownership)",
        r"authori[sz](?:e|es|ed|ing)", r"grant(?:s|ed|ing)?\b[^.;!?]{0,40}?(?:access|permission|role|rights|privilege|admin)",
        r"revok(?:e|es|ed|ing)", r"giv(?:e|es|ing|en)\b[^.;!?]{0,30}?(?:admin|root|write|owner) (?:access|rights|permission)",
        r"approv(?:e|es|ed|ing)\b[^.;!?]{0,30}?(?:payment|transfer|refund|purchase|access|withdrawal)",
        r"(?:cancel|undo|reverse|roll back|restore)(?:l?ed|d|s|ing)?\b[^.;!?]{0,20}?(?:deletion|payment|transfer|refund|authori[sz]ation|deleted)",
    ], [
        "删除", "删掉", "删了", "清空", "抹掉", "注销", "销毁", "付款", "支付", "付了", "付清", "转账", "汇款", "打款", "退款", "扣款",
        "转(?:给|了)[^，。；！？]{0,12}(?:元|块|钱|万)", "授权", "授予", "(?:赋予|开通|收回|撤销|取消)[^，。；！？]{0,12}权限", "权限[^，。；！？]{0,4}(?:收回|撤销|取消|开通)",
        "批准[^，。；！？]{0,10}(?:付款|转账|退款|提现)",
    ];
    NO_WITHDRAWAL = ["never mind(?:ed|ing)"], ["计算了", "打算了", "结算了", "预算了", "核算了", "就算了?", "清算了", "运算了"];
    WITHDRAW = [
        "scratch that", r"forget (?:that|it|about (?:that|it)|what i (?:just )?said|i (?:ever )?said)", "never ?mind",
        r"ignore (?:that|my (?:last|previous|earlier)|what i (?:just )?said)", r"disregard (?:that|my|what)", "strike that",
        r"i take (?:that|it) back", "cancel that", "undo that", r"let's not(?: do (?:that|it|this))?(?: after all)?",
    ], [
        "算了", "当我没说", "刚才(?:那|的|说)[^，。；]{0,8}(?:不算|作废|别管|忽略|收回|撤回|不要了)", "忽略(?:我)?(?:刚才|上一|之前|前面)",
        "撤回", "收回(?:刚才|上一|之前|我)", "作废", "不用管(?:刚才|之前|上)",
    ];
    CORRECT = [
        r"no,? wait", r"wait,? no", "correction", "i meant", "i misspoke", "i mistyped", "actually", r"make (?:it|that)",
        r"(?:change|changed|changing|move|moved|switch|switched|update|updated|reschedule|rescheduled)\b[^.;!?]{0,40}? to", "instead",
        r"sorry,? (?:it's|that's|it is|i mean)", "i was wrong", r"change of plans?", r"not\b[^.;!?]{1,30}?\bbut",
    ], [
        "不对", "说错了", "更正", "纠正", "我是说", "我的意思是", "应该是", "改成", "改为", "改到", "改用", "换成", "换到", "调整为", "修正",
        "其实是", "不是[^，。；！？]{1,20}(?:，|,)?(?:而)?是",
    ];
    OVERTURN = [
        r"turn(?:s|ed) out", r"(?:was|were) (?:wrong|incorrect|mistaken)",
        r"(?:is|was)(?: not|n't) (?:really |actually )?(?:the )?(?:root )?(?:cause|problem|issue|culprit|reason)",
        r"rul(?:ed|es|ing) out", r"no longer (?:true|valid|holds)", "disproved",
        r"(?:my|the|our|that) (?:earlier|previous|first) (?:conclusion|assumption|guess|diagnosis|theory)",
    ], [
        "结果发现", "(?:之前|刚才|前面|原来)的(?:结论|判断|假设|猜测)", "推翻", "排除了", "不是(?:根本|真正的?)?(?:原因|根因|问题所在)", "不成立", "误判",
    ];
    RELEASE = [
        "no need", r"don't bother", r"no longer (?:need|needed|necessary|required)", r"you (?:don't|do not) (?:need|have) to",
        "not necessary any ?more", "won't be needed",
    ], ["不用了", "不必了", "不需要了", "不用再", "免了"];
    NO_PROMISE = [
        "let me know",
        r"i(?:'ll| will) be (?:happy|glad|fine|ok|okay|in|at|on|there|back|flying|leaving|arriving|going|travell?ing|staying|returning|departing|driving|needing|looking|visiting|picking|heading|coming|using)",
        // What somebody is about to do or asks for, as part of the request, is nothing that stays to be done.
        r"i(?:'ll| will)(?: also| then| only)? (?:need|want|prefer|require|have (?:no|zero|one|two|\d+)|take (?:the|it|that|this|these|those|both|one|two)|go (?:with|for)|choose|stick with)",
        r"(?:i|we) (?:just |also |only )?(?:need|have) to (?:go|be|get|travel|fly|leave|depart|arrive|reach|find|look|search|rent|know|see|use|attend|pick (?:it|the car|up|me)|make (?:a|an)|book (?:a|an)|reserve (?:a|an))",
        r"going to (?:be|need|want|(?:the|a|an|my|our|his|her|their|see|visit|stay|\d+)\b|(?-i:\p{Lu})\w*)",
        r"let me (?:think|see|guess|recap|repeat|review|check|confirm|rephrase|be clear)",
        r"(?:will|'ll) (?:gladly |happily )?help you (?:with|find|get|book|search)", "need to know", r"(?:don't|do not|didn't|no) (?:need|have) to", "will you",
    ], ["我会(?:说|讲|游泳|弹|唱|开车|做饭|一点)", "还要吗", "不(?:需要|用)", "还要多久", "还(?:需要|要|得|想)(?:再)?(?:找|订|预订|选|挑)(?:个|一|家|间|些|几)"];
    PROMISE = [
        r"i(?:'ll| will| shall)", r"we(?:'ll| will| shall)", r"i(?:'m| am) going to", "i promise", "let me", r"to-?do", r"follow(?:ing)?[- ]?up (?:on|with)",
        "remind me", "remember to", r"(?:i|we|you) (?:still )?(?:need|have|ought) to", r"don't forget to", "action items?", "get back to (?:you|me|us)",
    ], [
        "我(?:们)?(?:先|再|就)?(?:会|来|稍后|待会|晚点|回头|明天|马上|这就)", "我(?:们)?(?:先|再|就)?去(?:找|问|查|办|做|买|取|拿|跟|和|联系|处理|准备|写|改|订|确认|看一下|申请|通知|拜访|催|核实)",
        "我(?:们)?(?:今天|今晚|上午|中午|下午|晚上|明早|后天|下周|月底|会后|周[一二三四五六日天])[^，。；！？]{0,8}(?:帮|给|把|发|写|做|改|跟进|处理|提交|整理)", "稍后", "待会儿?", "回头(?:我|再|给)", "等会", "晚点(?:再|给|我)", "答应", "保证",
        "待办", "记得", "提醒我", "别忘了", "还(?:需要|要|得)", "需要(?:再)?(?:跟进|确认|补充)", "尽快(?:给|发|回)", "明天(?:给|发|再)",
    ];
    NO_FULFILMENT = [
        r"(?:not|n't|never|nothing)(?: yet| been| quite)*(?: (?:yet|been))? (?:done|finished|completed|sent|delivered|resolved|fixed|uploaded|submitted|booked|shipped|merged|deployed|ready)",
        r"(?:when|once|if|after|until|to be|will be|get|getting)\b[^.;!?]{0,20}? (?:done|finished|completed|sent|delivered|resolved|fixed|uploaded|submitted|booked|shipped|merged|deployed|ready)",
    ], ["未完成", "还没[^，。；]{0,8}", "没(?:有)?(?:完成|搞定|弄好|办好|写好|做完)", "(?:等|如果)[^，。；]{0,10}(?:完成了|好了|搞定)"];
    FULFILMENT = [
        "done", "finished", "completed", "sent", "delivered", r"here (?:is|are|it is|you go)", "here's", "resolved", "fixed", "uploaded", "submitted",
        "booked", r"(?:is|are|it's) ready", r"(?:has|have) been (?:made|reserved|placed|scheduled|processed|confirmed|arranged|created|paid|renewed|updated|added)",
        r"(?:was|were|been) successful(?:ly)?",
        r"(?:i|we|i've|we've)(?: have)? (?:successfully |just |already )?(?:made|reserved|arranged|scheduled|placed) (?:your|the|a)",
        "all set", "as promised", "shipped", "merged", "deployed", "attached",
    ], [
        "完成了", "做完了", "搞定", "已(?:经)?(?:发送|完成|发给|发了|发到|提交|上传|修复|处理|预订|订好|安排|更新|寄出|解决|写好|做好)", "发给你了", "发你了",
        "弄好了", "办好了", "写好了", "订好了", "这是你要的", "见附件",
    ];
    NO_CONSTRAINT = [
        r"don't (?:know|think|have|mind|remember|worry|feel|see|get|understand|need|believe|care|suppose|really|you|we|they|i)\b",
        r"must(?:'ve| have| be) (?:been|a |so |very |nice|hard|tough|great|amazing|fun|exciting)",
        r"can't (?:wait|believe|help|imagine|complain)", r"no,? (?:i|we|they|you) (?:do not|don't)", "never ?mind",
    ], ["必须的[呀啊哦了呢吧哈啦嘛]", "只要[^，。；]{0,10}就", "不要紧", "不能再同意", "能不能", "要不要"];
    CONSTRAINT = [
        r"must(?: not|n't)?", r"no (?:more|less|fewer|later|earlier) than", r"at (?:most|least)", r"do not", r"don't",
        r"(?:under|below|less than|up to|within|max(?:imum)?(?: of)?) (?:[$€£¥] ?)?\d",
        r"budget (?:is|of|:)|budget:", r"allerg(?:ic|y|ies)", r"i (?:can't|cannot|don't|do not|never) (?:eat|drink|use|attend|travel|fly|drive|take|do|work)",
        r"(?:has|have|needs?|ought) to be", r"should(?: not|n't) ", r"make sure", r"avoid", r"only (?:use|if|on|in|send|contact|call|book|accept|with)",
        r"(?:please|you should|you must|and|but|so) (?:never|always)", r"vegan|vegetarian|gluten[- ]free|kosher|halal", r"required|mandatory|strictly|deadline",
        r"from now on,? (?:please |you |always |only |never |just )*(?:use|call|address|reply|answer|respond|write|speak|send|show|put|keep|give|round|quote|format|start|end|ask|tell|remind)",
    ], [
        "必须", "不要", "别(?:再|用|给|动|改|碰|发|打|把|在)", "不能", "不可以", "不得", "禁止", "务必", "一定要", "至少", "最多", "不超过", "不低于",
        "不少于", "不多于", "以内", "只能", "只(?:要|用|在|吃|喝)", "仅限", "限于", "限定", r"预算(?:是|为|在|有|大概|大约|最多|不|只|控制|上限|[:：]|\d)", "千万", "过敏", "忌口", "不吃", "不喝", "避免", "要求",
        "控制在", "最晚", "最迟", "截止",
        "(?:以后|今后|往后|从现在起|从现在开始|从今天起|从今往后)[,，]?(?:你|您|请|麻烦|就|都|一律|统一|一直|总是|始终|全部|全|每次){1,4}[^，。；！？]{0,4}?(?:用|叫|称呼|回复|回答|写|说|发|给我|把|按|先|显示|保持|加|附|提醒|问)",
        "请(?:你|您)?(?:一直|总是|始终|都|一律|统一|每次都?)(?:用|叫|称呼|按|把|给|先|保持|回复|回答|以)", "(?:^|[，。；！\\s])(?:总是|始终|一律|统一)(?:用|叫|称呼|按|把|先|回复|回答|以)",
    ];
    NO_DECISION = ["not (?:yet )?(?:decided|confirmed|agreed|approved|sure)", "undecided", "(?:can't|cannot|couldn't) decide"], ["(?:没|未|不)(?:有|太|大|很|是很|敢)?(?:决定|确定|定|确认)", "选(?:什么|哪)"];
    DECISION = [
        r"decid(?:e|ed|es)", "decision", r"i(?:'ll| will) (?:take|choose|stick with) (?:the|it|that|this|these|those|both)",
        r"(?:go|going|went) (?:with|for)", r"let's (?:use|pick|choose|take|book)", "chose", "chosen", "picked", "settled on",
        "agreed", r"conclu(?:de|ded|des|sion)", "root cause", r"the (?:cause|reason|answer|solution|problem|issue|culprit|plan) (?:is|was)", "confirmed", "approved",
        "selected", "therefore",
    ], [
        "决定", "确定", "定了", "选(?:了|定|用)", "就(?:用|选|这么|按|定)", "我(?:们)?(?:还是)?选", "定(?:在|于)", "采用", "结论", "根因", "原因是", "问题是", "答案是", "方案是", "确认(?:了|为|是)",
        "最终", "敲定", "同意", "拍板", "批准",
    ];
    REQUEST = [
        "please", "can you", "could you", "would you", "help me", r"i (?:need|want|would like|'d like) you to", "i'd like you to",
    ], ["请", "帮我", "帮忙", "麻烦你", "给我(?:写|做|查|发|订|找|看|列)", "可以帮"];
    NO_FAILURE = [r"(?:no|0|zero|none|without(?: any)?) (?:errors?|failures?|failed|exceptions?|timeouts?)", r#"(?:errors?|failures?|failed|exceptions?|timeouts?)"?\s*[:=]\s*(?:0|none|null|false|\[\])"#], ["没有(?:错误|异常|失败)", "无(?:错误|异常)", "0个(?:错误|失败|异常)", "(?:错误|失败|异常)(?:数)?\\s*[:：=]\\s*0"];
    FAILURE = [
        "errors?", "failed", "failure", "exception", "timeout", "timed out", "not found", "denied", "refused", "traceback", "unreachable",
        r"(?:status|status code|http|code)\W{0,3}[45]\d\d",
    ], ["失败", "错误", "超时", "异常", "拒绝", "未找到", "不存在", "报错"];
}

/// Names of functions: `delete_file`, `order_refund`; the underscore hides them from word boundaries.
static OPERATION_NAME: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"(?i)\b(?:delete|remove|drop|erase|purge|pay|transfer|refund|grant|authorize|authorise|revoke)_\w+|\b\w+_(?:delete|delete_all|payment|transfer|refund)\b",
    )
});
/// `"ok": false` in a tool's answer.
static FAILURE_FIELD: LazyLock<Pattern> = LazyLock::new(|| regex(r#"(?i)"(?:ok|success|succeeded)"\s*:\s*false"#));
/// Orders at the head of a sentence.
static HEAD_REQUEST: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"(?i)^(?:(?:and|then|now|ok|okay|also|next)[, ]+)*(?:write|fix|create|build|book|send|schedule|deploy|update|add|generate|find|search|check|draft|summari[sz]e|translate|order|reserve|set up|install|refactor|implement|run|open|move|rename|convert|list|compare|plan|prepare|review|test|call|email|remind)\b",
    )
});
/// Constraints at the head of a sentence: "Never call before 9".
static HEAD_CONSTRAINT: LazyLock<Pattern> =
    LazyLock::new(|| regex(r"(?i)^(?:(?:and|but|also|remember|note)[,: ]+)*(?:never|always|only) \w+"));
/// Where a denied value stands: "not on {value}", "instead of {value}", "不是{value}".
static DENIED_BEFORE: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"(?i)(?:(?:\bnot|n't|\binstead of|\brather than|\bno longer)(?: (?:on|at|in|for|the|a|an|to|by|until))*|不是|并非|而非|不再是|取代|代替)[ ￥$€£¥]*$",
    )
});
/// "from {value} to": denied when the sentence changes something.
static FROM_BEFORE: LazyLock<Pattern> = LazyLock::new(|| regex(r"(?i)(?:\bfrom(?: the)?|从|由|把|将)[ ￥$€£¥]*$"));
static CHANGED_AFTER: LazyLock<Pattern> = LazyLock::new(|| regex(r"(?i)^\s*(?:to\b|改成|改为|改到|换成|换到|调整为|变成)"));

/// Whole sentences, after [`folded`], that carry nothing: greetings, thanks, acknowledgements, small talk.
static COURTESY: LazyLock<Pattern> = LazyLock::new(|| {
    let en = [
        "hi",
        "hello",
        "hey",
        "hey there",
        "hi there",
        "good (?:morning|afternoon|evening|night|day)",
        "(?:good|great|nice|lovely) to (?:see|hear from|meet|chat with|talk to) you(?: too| again)?",
        "bye",
        "goodbye",
        "bye bye",
        "see (?:you|ya)(?: later| soon| around| then)?",
        "take care",
        "have a (?:good|great|nice|lovely) (?:day|one|weekend|evening|time|night)",
        "(?:many )?thanks(?: a lot| so much| again| very much)?",
        "thank you(?: so much| very much| again)?",
        "you(?:'| a)?re (?:very )?welcome",
        "no problem",
        "no worries",
        "my pleasure",
        "ok",
        "okay",
        "k",
        "alright",
        "all right",
        "sure(?: thing)?",
        "got it",
        "gotcha",
        "understood",
        "i see",
        "sounds (?:good|great|fun|perfect|lovely|nice|awesome)",
        "(?:that'?s |that is |it'?s |this is )?(?:so |very |really |pretty )?(?:great|cool|nice|awesome|perfect|good|fine|amazing|wonderful|lovely|fantastic|excellent|right|correct|true)(?: to hear| job| work| idea)?",
        "wow",
        "oh",
        "ah",
        "ha+",
        "haha+",
        "brilliant",
        "lol",
        "hmm+",
        "well",
        "yay",
        "congrats",
        "congratulations",
        "exactly",
        "indeed",
        "of course",
        "absolutely",
        "definitely",
        "yes",
        "yeah",
        "yep",
        "yup",
        "how are you(?: doing| today| doing today)?",
        "how have you been",
        "how'?s it going",
        "what'?s up(?: with you)?",
        "how about you",
        "what about you",
        "and you",
        "i'?m (?:good|fine|great|ok|okay|well)",
        "nice weather(?: today)?",
        "(?:it'?s |what )?(?:a )?(?:lovely|nice|beautiful|great) (?:day|weather)(?: today)?",
        "anything (?:new|else)",
        "there",
        "too",
        "then",
        "please",
        "mel",
        "thats it",
        "that'?s (?:it|all)(?: for now)?",
        "cheers",
    ];
    let zh = [
        "你好",
        "您好",
        "嗨",
        "哈喽",
        "喂",
        "早上好",
        "下午好",
        "晚上好",
        "早安?",
        "晚安",
        "谢谢(?:你|您|啦)?",
        "多谢",
        "(?:非常|十分|太|真的?|很)?感谢",
        "恭喜",
        "很?高兴(?:为|能为)(?:您|你)服务",
        "听(?:起来|上去|着)(?:真|很|挺)?(?:不错|好)",
        "好的?",
        "嗯+",
        "哦+",
        "噢",
        "行",
        "成",
        "可以",
        "没问题",
        "收到",
        "明白",
        "知道",
        "了解",
        "懂了?",
        "辛苦",
        "再见",
        "拜拜",
        "回见",
        "哈哈+",
        "呵呵",
        "嘿嘿",
        "是的?",
        "对的?",
        "没错",
        "不客气",
        "不用谢",
        "麻烦",
        "好嘞",
        "好哒",
        "客气",
        "没关系",
        "没事",
        "在吗",
        "吃了吗",
        "最近(?:怎么样|好吗|还好吗)",
        "你呢",
        "今天天气(?:真)?(?:不错|很?好)",
        "天气(?:真)?(?:不错|好)",
        "真棒",
        "太好",
        "太棒",
        "不错",
        "厉害",
        "加油",
        "确实",
        "当然",
        "那就这样",
        "就这样",
        "先这样",
    ];
    regex(&format!("^(?:(?:(?:{})(?: |$))|(?:(?:{})[呀啊哦了呢吧哈啦的嘛您你]{{0,2}} ?))+$", en.join("|"), zh.join("|")))
});
static ANSWER: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        "^(?:yes|no|yep|nope|yeah|nah|yup|not at all|correct|right|sure|no thanks|yes please|是的?|不是的?|对|不对|不|没有|有|可以|不可以|不行|行|不用|好)$",
    )
});
static HEDGE_ONLY: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        "^(?:(?:but |and |well |though )?(?:(?:i'?m |i am )?(?:really |still |just )?not (?:really |quite |entirely |so |100% )?(?:sure|certain)(?: (?:about|of) (?:it|that|this))?(?: yet| though)?|unsure|maybe|perhaps|possibly|i (?:think|guess|suppose|believe)(?: so)?|could be|might be|it depends|hard to say|i (?:could|may|might) be wrong|don'?t quote me(?: on (?:it|that|this))?|(?:that'?s )?just a guess|not confirmed(?: yet)?)|(?:我)?(?:也)?(?:还)?(?:不(?:太)?(?:确定|清楚|肯定)|可能吧?|也许吧?|大概吧?|说不定|不好说|不敢肯定|记不清了?|不一定|未确认|还没确认)(?:啊|呢|吧|的)?)$",
    )
});

/// Words of cues and of talk about talk: no evidence that two turns are about one thing.
static GENERIC: LazyLock<HashSet<String>> = LazyLock::new(|| {
    let words = "actually wait let need make change meant mean sorry done finish complete think okay yes yeah please thing get go know like want now \
        still also really maybe perhaps sure not no just will use say said tell talk see look good great nice well right back forget never mind instead \
        turn out ignore that's it's i'll we'll i'm don't today ok thanks thank hey wrong scratch here send sent conclusion earlier previous \
        不对 改成 改为 改到 应该 其实 刚才 之前 已经 完成 可以 一下 现在 稍后 需要 记得 不是 就是 一个 这样 那样 知道 觉得 好的 谢谢 算了 没有 结论 发送 说错 更正";
    words.split_whitespace().flat_map(analyze_query).collect()
});

/// Lower case, letters and digits only, single spaces; a typographic apostrophe is an apostrophe.
fn folded(cleaned: &str) -> String {
    let mut out = String::with_capacity(cleaned.len());
    for c in cleaned.chars() {
        if c.is_alphanumeric() || c == '\'' || c == '%' {
            out.extend(c.to_lowercase());
        } else if !out.ends_with(' ') {
            out.push(' ');
        }
    }
    out.trim().to_owned()
}

/// Reads a turn. `role` matters where the same words do different things: an assistant's question about an operation is
/// no operation, a user's is a request.
#[must_use]
pub fn turn_cues(text: &str, role: Role) -> TurnCues {
    let found = values::protected_values(text);
    let spans = sentence_spans(text);
    let mut at = 0;
    let mut sentences = Vec::with_capacity(spans.len());
    for span in spans {
        while at < found.len() && found[at].start < span.start {
            at += 1;
        }
        let first = at;
        while at < found.len() && found[at].end <= span.end {
            at += 1;
        }
        sentences.push(sentence_cues(text, span, &found[first..at], role));
    }
    let cleaned = Cleaned::new(text).text;
    let failed = role == Role::Tool && (FAILURE_FIELD.is_match(&cleaned) || FAILURE.says(&cleaned, &NO_FAILURE));
    TurnCues { sentences, failed }
}

/// Reports that somebody asks, wants or proposes.
static RELAYS: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "ask(?:s|ed|ing)?",
            "wonder(?:s|ed|ing)?",
            "(?:in|en)quir\\w+",
            "question(?:s|ed|ing)?",
            "want(?:s|ed)?",
            "wish(?:es|ed)?",
            "(?:would|'d) like",
            "request(?:s|ed|ing)?",
            "need(?:s|ed)?",
            "look(?:s|ed|ing)? (?:for|into)",
            "search(?:es|ed|ing)? for",
            "propos\\w+",
            "suggest\\w*",
            "hop(?:es?|ed|ing)",
            "plan(?:s|ned|ning)? (?:to|on|for)",
            "tr(?:y|ies|ied|ying) to",
            "(?:is|are|was|were) (?:interested|curious)",
            "whether",
        ],
        &[
            "问",
            "咨询",
            "想(?:要|知道|了解|订|买|去|吃|看|找|用|换|约)",
            "希望",
            "要求",
            "请求",
            "需要",
            "建议",
            "提议",
            "打听",
            "是否",
            "能否",
            "可否",
        ],
    )
});

/// What the judgement over summaries needs (rules S3 to S5).
pub const LANGUAGE: Language<'static> = Language { read: &statements, missing: &values::missing, holds: &values::holds };

/// The sentences of a text with all that their language says, for the judgement over summaries (rules S3 to S5). Each holds
/// the same sentence as the one of [`turn_cues`] in its place.
#[must_use]
pub fn statements(text: &str, role: Role) -> Vec<Statement> {
    let statement = |cues: SentenceCues| {
        let said = &text[cues.start..cues.end];
        Statement { features: features(said), relays: RELAYS.is_match(&Cleaned::new(said).text), cues }
    };
    turn_cues(text, role).sentences.into_iter().map(statement).collect()
}

fn sentence_cues(
    text: &str,
    span: std::ops::Range<usize>,
    found: &[strata_core::text::ProtectedValue],
    role: Role,
) -> SentenceCues {
    let original = &text[span.clone()];
    let cleaned = Cleaned::new(original).text;
    let folded = folded(&cleaned);
    let question = is_question(&cleaned);
    let correct = CORRECT.is_match(&cleaned);
    let retraction = if WITHDRAW.says(&cleaned, &NO_WITHDRAWAL) {
        Some(Retraction::Withdraw)
    } else if OVERTURN.is_match(&cleaned) {
        Some(Retraction::Overturn)
    } else if RELEASE.is_match(&cleaned) {
        Some(Retraction::Release)
    } else if correct {
        Some(Retraction::Correct)
    } else {
        None
    };
    let denied = found
        .iter()
        .filter(|v| {
            let before = Cleaned::new(&text[span.start..v.start]).text;
            let after = Cleaned::new(&text[v.end..span.end]).text;
            DENIED_BEFORE.is_match(&before) || (correct && FROM_BEFORE.is_match(&before) && CHANGED_AFTER.is_match(&after))
        })
        .map(|v| v.text.clone())
        .collect::<Vec<_>>();
    let operation =
        (OPERATION.says(&cleaned, &NO_OPERATION) || OPERATION_NAME.is_match(&cleaned)) && !(question && role == Role::Assistant);
    let answer = ANSWER.is_match(&folded);
    let courtesy = folded.is_empty() || COURTESY.is_match(&folded);
    let mentioned: Vec<std::ops::Range<usize>> = mentions::mentions(original)
        .into_iter()
        .map(|m| span.start + m.start..span.start + m.end)
        .filter(|m| !found.iter().any(|value| value.start <= m.start && m.end <= value.end))
        .collect();
    let hedges = courtesy || answer || HEDGE_ONLY.is_match(&folded);
    let clauses = if hedges { Clauses::default() } else { clauses(text, &span, found, &mentioned) };
    let terms: BTreeSet<u32> =
        analyze_query(original).iter().filter(|t| !GENERIC.contains(t.as_str())).map(|t| hash(t)).collect();
    // What is asked at the end is neither promised nor decided: "The plate is X, do you still need anything?"
    let said = match clauses.last_of_some() {
        Some(last) if question && states(text, &span, last) => Cleaned::new(&text[span.start..last.end]).text,
        _ => cleaned.clone(),
    };
    let question = question && !clauses.last_of_some().is_some_and(|clause| states(text, &span, clause));
    SentenceCues {
        start: span.start,
        end: span.end,
        tokens: tokens::count(original),
        values: found.iter().map(|v| CuedValue { kind: v.kind, text: v.text.clone() }).collect(),
        nouns: if courtesy || answer { Vec::new() } else { mentions::nouns(original).into_iter().map(str::to_owned).collect() },
        mentions: if courtesy || answer { Vec::new() } else { mentioned.iter().map(|m| text[m.clone()].to_owned()).collect() },
        telling: clauses.told(text, found, &mentioned),
        denied,
        terms: terms.into_iter().collect(),
        operation,
        retraction: if question { None } else { retraction },
        promise: !question && PROMISE.says(&said, &NO_PROMISE),
        fulfilment: !question && FULFILMENT.says(&said, &NO_FULFILMENT),
        constraint: !question
            && (CONSTRAINT.says(&said, &NO_CONSTRAINT) || HEAD_CONSTRAINT.is_match(&without(&said, &NO_CONSTRAINT))),
        decision: !question && DECISION.says(&said, &NO_DECISION),
        courtesy,
        answer,
        question,
        request: REQUEST.is_match(&cleaned) || HEAD_REQUEST.is_match(&cleaned),
        hedge_only: HEDGE_ONLY.is_match(&folded),
    }
}

/// Marks that end a clause, apart from those within numbers and enumerations.
const CLAUSE_MARKS: &str = ",，;；";
/// A clause that others hang on: leaving it out would change what they say (rule S5).
static BINDS: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "if|unless|until|while|when|although|though|because|since|except|but|however|only|instead|rather|maybe|perhaps|probably|might|may|guess|said|says|told|suppose|assuming|provided",
            "at (?:most|least)|(?:no|not) (?:more|less|fewer|later|earlier) than|up to|must|never|always",
        ],
        &[
            "如果|要是|除非|除了|但|不过|只|虽|因为|所以|否则|可能|也许|大概|好像|似乎|或许|估计|听说|据说|他说|她说|假如|万一|的话|最多|最少|至多|至少|不超过|不低于|不少于|不多于|不晚于|不早于|以内|之内|必须|务必|一定要|不要|不能",
        ],
    )
});
/// A denial of what stands beside it: "that one not", "这个不行", or too short to be of anything else.
static DENIES: LazyLock<Table> =
    LazyLock::new(|| compile(&["not|no|never|none|neither|nor|\\w+n't|without"], &["不|没|别|无|未|勿|莫"]));
static NO_DENIES: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &["no (?:problem|worries|doubt)", "not (?:bad|only)"],
        &["不错|不少|不过|差不多|不客气|没关系|没问题|不好意思|不用担心|特别|别的|别忘了|没想到|不仅|不但|非常不错"],
    )
});
static POINTS: LazyLock<Table> = LazyLock::new(|| compile(&["it|that|this|those|these|they|one|there"], &["这|那|它|此|其"]));
/// Letters up to which a denial is of its neighbour.
const SHORT_DENIAL: usize = 8;

/// The clauses of a sentence.
#[derive(Default)]
struct Clauses {
    /// All of them, in order.
    all: Vec<ClauseSpan>,
    /// Those that tell something, when others tell nothing and nothing hangs on those: greetings, "is that okay for you",
    /// "你看可以吗". Empty when the sentence is told as a whole.
    telling: Vec<ClauseSpan>,
}

impl Clauses {
    /// The last one that is told of a sentence that is not told as a whole.
    fn last_of_some(&self) -> Option<ClauseSpan> {
        self.telling.last().copied()
    }

    /// What is told, without the frames of its clauses. Empty when that is the whole sentence.
    fn told(
        &self,
        text: &str,
        found: &[strata_core::text::ProtectedValue],
        mentioned: &[std::ops::Range<usize>],
    ) -> Vec<ClauseSpan> {
        let kept = if self.telling.is_empty() { &self.all } else { &self.telling };
        let mut told: Vec<ClauseSpan> = Vec::with_capacity(kept.len());
        let mut before: Option<bool> = None;
        let han = self.all.iter().any(|clause| text[clause.start..clause.end].contains(is_han));
        for clause in kept {
            // A bare name says nothing behind a mark; what is denied or doubted is not told of its neighbour.
            let plain = han && states_plainly(&text[clause.start..clause.end]);
            let bare = plain && is_bare(text, *clause, found, mentioned);
            let mut joined = plain && before.is_some_and(|other| other || bare);
            before = plain.then_some(bare);
            let guarded = |part: &std::ops::Range<usize>| {
                let (start, end) = (clause.start + part.start, clause.start + part.end);
                found.iter().any(|value| value.start < end && start < value.end)
            };
            let named = |at: usize| {
                let at = clause.start + at;
                found.iter().any(|value| value.end == at) || mentioned.iter().any(|m| m.end == at)
            };
            let parts = brief::parts(&text[clause.start..clause.end], &guarded, &named);
            told.extend(parts.into_iter().map(|p| ClauseSpan {
                start: clause.start + p.start,
                end: clause.start + p.end,
                joined: std::mem::take(&mut joined),
            }));
        }
        if told == self.all { Vec::new() } else { told }
    }
}

/// Words that a bare name may stand with.
static BESIDE_NAME: LazyLock<Pattern> =
    LazyLock::new(|| regex(r"^(?:[\s和与及或跟在是为有约还也的、，/]|就是|还有|大概|等等?|左右|一共|\p{P}|\p{S})*$"));

/// Whether a clause states what it says without doubt or denial.
fn states_plainly(clause: &str) -> bool {
    !DENIES.says(&Cleaned::new(clause).text, &NO_DENIES)
        && !BINDS.is_match(clause)
        && certainty(clause) == Certainty::Plain
        && negation(clause) == Negation::None
}

/// Says what its names are: "周边餐馆有".
static SAYS: LazyLock<Pattern> = LazyLock::new(|| regex(r"\p{Han}{2,}[有是为叫在]"));

/// Whether a clause is nothing but names and values.
fn is_bare(
    text: &str,
    clause: ClauseSpan,
    found: &[strata_core::text::ProtectedValue],
    mentioned: &[std::ops::Range<usize>],
) -> bool {
    if SAYS.is_match(&text[clause.start..clause.end]) {
        return false;
    }
    let within = |at: usize| {
        found.iter().any(|value| value.start <= at && at < value.end) || mentioned.iter().any(|m| m.start <= at && at < m.end)
    };
    let rest: String =
        text[clause.start..clause.end].char_indices().filter(|(at, _)| !within(clause.start + at)).map(|(_, c)| c).collect();
    BESIDE_NAME.is_match(&Cleaned::new(&rest).text)
}

fn clauses(
    text: &str,
    span: &std::ops::Range<usize>,
    found: &[strata_core::text::ProtectedValue],
    mentioned: &[std::ops::Range<usize>],
) -> Clauses {
    let inside = |at: usize| {
        found.iter().any(|value| value.start < at && at < value.end) || mentioned.iter().any(|m| m.start < at && at < m.end)
    };
    let mut clauses = Vec::new();
    let mut from = span.start;
    let marks = text[span.clone()].char_indices().map(|(at, c)| (span.start + at, c)).chain([(span.end, ',')]);
    for (at, c) in marks {
        if (CLAUSE_MARKS.contains(c) || at == span.end) && !inside(at) {
            let raw = &text[from..at];
            let start = from + raw.len() - raw.trim_start().len();
            let body = raw.trim().trim_end_matches(|c: char| !c.is_alphanumeric() && !")）]】”\"'".contains(c));
            if !body.is_empty() {
                clauses.push(ClauseSpan { start, end: start + body.len(), joined: false });
            }
            from = if at == span.end { at } else { at + c.len_utf8() };
        }
    }
    let tells = |clause: &ClauseSpan| {
        let overlaps = |start: usize, end: usize| start < clause.end && clause.start < end;
        found.iter().any(|value| overlaps(value.start, value.end)) || mentioned.iter().any(|m| overlaps(m.start, m.end))
    };
    let binds = |clause: &ClauseSpan| {
        let cleaned = Cleaned::new(&text[clause.start..clause.end]).text;
        let short = || cleaned.chars().filter(|c| c.is_alphanumeric()).count() <= SHORT_DENIAL;
        let denies_neighbour = || DENIES.says(&cleaned, &NO_DENIES) && (POINTS.is_match(&cleaned) || short());
        (BINDS.is_match(&cleaned) || denies_neighbour()) && !is_question(&cleaned) && !COURTESY.is_match(&folded(&cleaned))
    };
    let mut keep: Vec<bool> = clauses.iter().map(|clause| tells(clause) || binds(clause)).collect();
    // What a bare name or value is said of stands beside it: "评分不错，4.8分".
    let says = |at: usize| {
        let cleaned = Cleaned::new(&text[clauses[at].start..clauses[at].end]).text;
        !is_question(&cleaned) && !COURTESY.is_match(&folded(&cleaned))
    };
    for at in 0..clauses.len() {
        if keep[at] && tells(&clauses[at]) && is_bare(text, clauses[at], found, mentioned) {
            let mut beside = [at.checked_sub(1), Some(at + 1)].into_iter().flatten().filter(|i| *i < clauses.len());
            if let Some(neighbour) = beside.find(|i| keep[*i] || says(*i)) {
                keep[neighbour] = true;
            }
        }
    }
    let kept: Vec<ClauseSpan> = clauses.iter().zip(&keep).filter(|(_, kept)| **kept).map(|(clause, _)| *clause).collect();
    let telling = if kept.len() == clauses.len() || !kept.iter().any(tells) { Vec::new() } else { kept };
    Clauses { all: clauses, telling }
}

/// Whether a question ends behind this clause, and the clause itself asks nothing: "I want a room for 50, what do you have?"
fn states(text: &str, span: &std::ops::Range<usize>, clause: ClauseSpan) -> bool {
    let rest = &text[clause.end..span.end];
    rest.chars().any(char::is_alphanumeric) && !is_question(&Cleaned::new(&text[clause.start..clause.end]).text)
}

/// Share of a text's characters that stands in sentences which ask, 0..=1 (rule R14).
#[must_use]
pub fn question_share(text: &str) -> f64 {
    let (mut asking, mut all) = (0_usize, 0_usize);
    for sentence in crate::sentence::sentences(text) {
        let letters = sentence.chars().count();
        all += letters;
        if is_question(&Cleaned::new(sentence).text) {
            asking += letters;
        }
    }
    if all == 0 { 0.0 } else { asking as f64 / all as f64 }
}

/// Whose words or affairs a query asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The user's: "what did I say", "我的".
    User,
    /// The assistant's earlier words: "what did you recommend", "你推荐的".
    Assistant,
}

static ASKS_ASSISTANT: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"\b(?:did|have|had) you\b|\byou(?:'ve| have| had)? (?:recommended|suggested|advised|proposed|mentioned|said|told|explained|gave|given|wrote|written|listed|described|outlined|provided|showed|shown)\b|你(?:之前|以前|上次|刚才|当时|昨天)?(?:给我|跟我|对我|向我)?(?:推荐|建议|提议|说|提到|讲|告诉|解释|列|写|给)(?:过|了|的|我)",
    )
});

static ASKS_USER: LazyLock<Pattern> = LazyLock::new(|| regex(r"\b(?:i|me|my|mine|myself)\b|我(?:[^们]|$)|俺|咱(?:[^们]|$)"));

/// Whom a query asks about, by its pronouns; none when it names somebody or nobody (rule R14).
#[must_use]
pub fn subject(query: &str) -> Option<Subject> {
    let query = crate::clean::searchable(query).replace('\u{2019}', "'");
    if ASKS_ASSISTANT.is_match(&query) {
        Some(Subject::Assistant)
    } else if ASKS_USER.is_match(&query) {
        Some(Subject::User)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str, role: Role) -> SentenceCues {
        let cues = turn_cues(text, role);
        assert_eq!(cues.sentences.len(), 1, "{text}: {cues:?}");
        cues.sentences[0].clone()
    }

    fn check(cue: fn(&SentenceCues) -> bool, role: Role, yes: &[&str], no: &[&str]) {
        for text in yes {
            assert!(cue(&one(text, role)), "should be one: {text}: {:?}", one(text, role));
        }
        for text in no {
            assert!(!cue(&one(text, role)), "should be none: {text}: {:?}", one(text, role));
        }
    }

    #[test]
    fn r14_the_share_of_a_text_that_asks() {
        assert_eq!(question_share("Where do you live?"), 1.0);
        assert_eq!(question_share("你住在哪里？"), 1.0);
        assert_eq!(question_share("Ｗｈｅｎ？👍"), question_share("When?👍"));
        assert_eq!(question_share("I live in Oslo."), 0.0);
        assert!((question_share("Nice. And you?") - 8.0 / 13.0).abs() < 1e-9);
        assert!((question_share("我住杭州。你呢？") - 3.0 / 8.0).abs() < 1e-9);
        assert_eq!(question_share(""), 0.0);
        assert_eq!(question_share("\u{200b}"), 0.0);
    }

    #[test]
    fn r14_whom_a_query_asks_about() {
        for query in ["What did I say?", "MY budget", "ｍｙ dog", "我的猫叫什么", "我对什么过敏？", "can you tell me the date"]
        {
            assert_eq!(subject(query), Some(Subject::User), "{query}");
        }
        for query in [
            "What did you recommend to me?",
            "the recipe you gave me",
            "你推荐的餐厅",
            "你上次跟我说过的书",
            "your plan that you’ve suggested",
        ] {
            assert_eq!(subject(query), Some(Subject::Assistant), "{query}");
        }
        for query in ["Where did Ann go?", "我们团队的会议", "小林住哪", "would you suggest a book", "", "👍", "מה השעה"]
        {
            assert_eq!(subject(query), None, "{query}");
        }
    }

    #[test]
    fn a32_operations_are_found_in_both_languages() {
        check(
            |s| s.operation,
            Role::User,
            &[
                "Please delete the staging database",
                "Pay the invoice INV-20 today",
                "Transfer $500 to account 88",
                "I authorise the refund",
                "Grant Bob admin access",
                "Can you delete my account?",
                "Run delete_user for 42",
                "Undo that transfer of funds",
                "删除测试库",
                "把这张发票的5000元付款",
                "转账500元给李雷",
                "给小王开通管理员权限",
                "请ｄｅｌｅｔｅ the file",
                "de\u{200b}lete the file",
                "撤销他的权限",
            ],
            &[
                "Pay attention to the details",
                "How do I delete a branch?",
                "Don't delete the backups",
                "不要删除备份",
                "怎么删除分支？",
                "用支付宝吗？",
                "I love this movie",
                "今天天气不错",
                "The grant application is long",
            ],
        );
        assert!(!one("Shall I delete it?", Role::Assistant).operation);
    }

    #[test]
    fn a30_retractions_are_told_apart() {
        use Retraction::{Correct, Overturn, Release, Withdraw};
        for (text, kind) in [
            ("Scratch that, we stay", Some(Withdraw)),
            ("Never mind.", Some(Withdraw)),
            ("算了，不去了", Some(Withdraw)),
            ("当我没说", Some(Withdraw)),
            ("No wait, it is Wednesday", Some(Correct)),
            ("不对，是周三", Some(Correct)),
            ("改成300元", Some(Correct)),
            ("It turns out the cache is fine", Some(Overturn)),
            ("之前的结论不对", Some(Overturn)),
            ("No need to send it any more", Some(Release)),
            ("不用了", Some(Release)),
            ("我计算了一下总价", None),
            ("The weather is lovely", None),
            ("Should we change it to 5?", None),
        ] {
            assert_eq!(one(text, Role::User).retraction, kind, "{text}");
        }
    }

    #[test]
    fn a31_denied_values_are_named() {
        for (text, denied) in [
            ("The budget is $300, not $200", vec!["$200"]),
            ("Change it from 3pm to 4pm", vec!["3pm"]),
            ("It is 12 people instead of 15 people", vec!["15 people"]),
        ] {
            assert_eq!(one(text, Role::User).denied, denied, "{text}: {:?}", one(text, Role::User));
        }
        let zh = one("预算是300元，不是200元", Role::User);
        assert_eq!(zh.denied.len(), 1, "{zh:?}");
        assert!(zh.denied[0].contains("200"), "{zh:?}");
    }

    #[test]
    fn a27_promises_and_their_fulfilment() {
        check(
            |s| s.promise,
            Role::Assistant,
            &[
                "I'll send the report tomorrow",
                "I will check the logs",
                "TODO: renew the licence",
                "我稍后把报告发给你",
                "记得续费",
                "Remind me to call Bob",
                "We still have to book the hall",
            ],
            &["Let me know what you think", "我会说英语", "The report is long", "No need to worry", "Will you come?"],
        );
        check(
            |s| s.fulfilment,
            Role::Assistant,
            &["Done.", "I have sent the report", "Here is the report", "报告已经发给你了", "搞定", "The hall is booked"],
            &["It's not done yet", "还没完成", "I'll tell you when it is done", "Is it done?"],
        );
    }

    #[test]
    fn a28_constraints() {
        check(
            |s| s.constraint,
            Role::User,
            &[
                "It must not cost more than $50",
                "Never call before 9am",
                "I'm allergic to peanuts",
                "Only use Python 3.12",
                "Don't contact my boss",
                "不要给我打电话",
                "预算不超过5000元",
                "我对花生过敏",
                "必须周五之前交",
                "ｍｕｓｔ be blue",
                "From now on, call me Dr. Lin.",
                "From now on please always reply in English",
                "以后请一直叫我林博士",
                "请一直用敬称",
                "以后一直用英文回复",
                "总是称呼我林博士",
                "从现在起，都先给我看表格",
                "今后\u{200b}请统一用公制单位 🙂",
            ],
            &[
                "I don't know",
                "I can't wait",
                "That must have been fun",
                "What must I do?",
                "No need to renew it",
                "No problem",
                "能不能便宜点？",
                "I like blue",
                "From now on it rains every day",
                "以后再说吧",
                "以后都会好的",
                "他总是用左手写字",
                "我以后会常来",
            ],
        );
    }

    #[test]
    fn a33_courtesies_carry_nothing() {
        check(
            |s| s.courtesy,
            Role::User,
            &[
                "Hi there!",
                "Thanks a lot!",
                "OK, great, thanks!",
                "你好！",
                "好的，谢谢",
                "嗯嗯",
                "收到",
                "哈哈哈",
                "How are you?",
                "👍",
                "👨‍👩‍👧 🎉",
                "Sounds good!",
                "今天天气不错",
                "好呀",
                "You're welcome",
            ],
            &["My name is Anna", "我叫小王", "不吃辣", "Order 12 is late", "No", "مرحبا بالعالم"],
        );
        check(
            |s| s.hedge_only,
            Role::User,
            &["Not sure.", "不确定", "Maybe.", "I'm not really sure about that"],
            &["Maybe on Tuesday", "可能是周二"],
        );
        check(|s| s.answer, Role::User, &["No.", "Yes", "不是", "对"], &["No problem with 5", "不对，是周三"]);
    }

    #[test]
    fn a41_decisions_are_not_indecision() {
        check(
            |s| s.decision,
            Role::User,
            &["We decided on plan B", "Let's use Redis", "就用方案二", "根因是连接池太小"],
            &["We haven't made up our minds", "还没决定", "不确定", "not decided"],
        );
    }

    #[test]
    fn a_failed_tool_call_is_told_from_a_clean_one() {
        for (text, failed) in [
            ("Error: connection refused", true),
            ("{\"ok\": false}", true),
            ("HTTP 503", true),
            ("操作失败", true),
            ("0 errors, 12 passed", false),
            ("{\"ok\": true, \"rows\": 3}", false),
            ("没有错误", false),
            ("created order 88", false),
        ] {
            assert_eq!(turn_cues(text, Role::Tool).failed, failed, "{text}");
        }
        assert!(!turn_cues("Error: connection refused", Role::User).failed);
    }

    #[test]
    fn s05_a_relayed_question_is_told_from_a_statement() {
        for (text, relays, question) in [
            ("The user asked whether plan B is cheaper.", true, false),
            ("The user wants a table for 7.", true, false),
            ("Ｔｈｅ ｕｓｅｒ ａｓｋｅｄ about the price", true, false),
            ("Plan B is cheaper.", false, false),
            ("Is plan B cheaper?", false, true),
            ("用户问周五能否发货。", true, false),
            ("用户想知道价格 🚚", true, false),
            ("询\u{200b}问价格", true, false),
            ("周五发货。", false, false),
            ("理想的方案已找到。", false, false),
            ("周五能发货吗", false, true),
            ("الطلب رقم 77812", false, false),
        ] {
            let said = statements(text, Role::Assistant);
            assert_eq!(said.len(), 1, "{text}: {said:?}");
            assert_eq!((said[0].relays, said[0].cues.question), (relays, question), "{text}");
            assert_eq!(said[0].features.values.len(), said[0].cues.values.len(), "{text}");
        }
    }

    #[test]
    fn s05_only_clauses_that_nothing_hangs_on_are_left_out() {
        let told = |text: &str| -> Vec<String> {
            let cues = one(text, Role::Assistant);
            cues.telling.iter().map(|clause| text[clause.start..clause.end].to_owned()).collect()
        };
        assert_eq!(told("推荐您去故宫或者八达岭长城，各方面都不错，口碑也很好哦~"), ["推荐", "故宫或者八达岭长城"]);
        assert_eq!(told("Hello, I need a table at Sino in San Jose, please"), ["I need a table at Sino in San Jose"]);
        // A condition, a doubt and a denial of what stands beside it stay, and so does a text that is told as a whole.
        for text in [
            "如果下雨，我们去故宫，你看可以吗",
            "可能是这样，价格是50元",
            "去北京饭店，这个不行，再看看",
            "Book Sino, but only if it is open",
            "We could take Delta Airlines, maybe",
            "不，是200元",
        ] {
            let kept = told(text).join("");
            let binds =
                ["如果", "可能", "不行", "only if", "maybe", "不"].iter().find(|word| text.contains(**word)).expect("one");
            assert!(kept.is_empty() || kept.contains(binds), "{text}: {kept}");
        }
        assert!(!one("我想找个4分以上的景点，你有什么好的推荐吗？", Role::User).question, "what is told asks nothing");
        assert!(one("价格是50元吗？", Role::User).question);
        for text in ["", "👍，，", "\u{200b}，\u{200b}", "مرحبا، كيف"] {
            let cues = turn_cues(text, Role::User);
            assert!(cues.sentences.iter().all(|sentence| sentence.telling.is_empty()), "{text}");
        }
    }

    #[test]
    fn s05_a_bare_name_joins_its_neighbour_unless_one_of_them_is_denied_or_doubted() {
        let joined = |text: &str| -> Vec<bool> {
            let cues = one(text, Role::Assistant);
            cues.telling.iter().map(|part| part.joined).collect()
        };
        for text in ["评分还是很高，4.8分。", "电话您记下，０１０-5617１999", "评分还是很高，\u{200b}4.8分 👍", "价格便宜，200元"]
        {
            assert!(joined(text).contains(&true), "{text}: {:?}", one(text, Role::Assistant));
        }
        for text in [
            "不是很高，3.5分。",
            "不要订故宫，798艺术区。",
            "可能比较贵，200元",
            "如果下雨，故宫",
            "没有200元的，300元",
            "Not the Sino, the Grill in San Jose",
            "It may be late, 7 pm",
            "مرحبا، 5",
            "",
        ] {
            let cues = turn_cues(text, Role::Assistant);
            assert!(cues.sentences.iter().all(|s| s.telling.iter().all(|part| !part.joined)), "{text}: {cues:?}");
        }
    }

    /// What stands in a sentence and changes what it says: none of it may be left out of what is told (rule S5).
    #[test]
    fn s05_no_hedge_denial_bound_or_condition_is_lost_with_politeness() {
        for (text, kept) in [
            ("你好，我可能想找一家人均50元的餐馆，谢谢", "可能"),
            ("麻烦您帮我找一家不超过200元的酒店吧", "不超过200元"),
            ("请帮我找至少4分以上的景点，别太远", "至少4分以上"),
            ("您可以考虑去故宫看看", "考虑"),
            ("好的，如果有空房，请帮我订北京饭店", "如果有空房"),
            ("那最多推荐一家餐馆，人均50元", "最多推荐一家"),
            ("请不要给我推荐798艺术区", "不要给我推荐"),
            ("听说给您推荐的故宫要预约，２０元", "听说"),
            ("请帮\u{200b}我找可能便宜的店，50元👍", "可能"),
            ("Hi, can you please find me a bus to Fresno if it is under $50?", "if it is under $50"),
            ("Please don't book Sino for me", "don't book Sino"),
            ("I would like to find maybe two rooms at the Grill, thanks", "maybe two rooms"),
            ("Could you give me at most 3 flights to Oslo please", "at most 3 flights"),
            ("Sure, it might cost $20 for you", "might cost $20"),
            ("Ｐｌｅａｓｅ never call 555-0199 for me", "never call"),
            ("من فضلك book at most 5 seats at Sino please", "at most 5 seats"),
        ] {
            let cues = turn_cues(text, Role::User);
            let told: String = cues
                .sentences
                .iter()
                .map(|sentence| match sentence.telling.as_slice() {
                    [] => text[sentence.start..sentence.end].to_owned(),
                    parts => parts.iter().map(|part| text[part.start..part.end].to_owned()).collect(),
                })
                .collect();
            assert!(told.contains(kept), "{text}: {told}");
        }
    }

    #[test]
    fn c080_spans_lie_on_boundaries_and_cover_their_values() {
        for text in ["预算👨‍👩‍👧‍👦是５０００元。Meet at ３pm! ok", "e\u{301}te\u{301} 12. مرحبا 5", "", "\u{200b}", "🇨🇳🇨🇳"]
        {
            for sentence in turn_cues(text, Role::User).sentences {
                let slice = &text[sentence.start..sentence.end];
                for value in &sentence.values {
                    assert!(slice.contains(&value.text), "{text}: {sentence:?}");
                }
            }
        }
    }
}
