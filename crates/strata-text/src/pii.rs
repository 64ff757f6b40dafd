//! Sensitive data (rules G3, G4; cases C081, C155), scanned on a cleaned copy so that zero-width, full-width and soft
//! hyphens hide nothing; spans in bytes of the original. What is found here is never logged.
//!
//! Order matters: the most specific pattern comes first and a later one never overlaps it, so that an 18-digit id is not
//! also a telephone number. Neighbours are checked by hand, since `\b` does not hold between a Han character and a digit.

use crate::clean::Cleaned;
use crate::pattern::Pattern;
use crate::phrases::{Listed, Table, compile, regex};
use crate::sentence::sentence_spans;
use crate::spans::Disjoint;
use std::ops::Range;
use std::sync::LazyLock;
use strata_core::text::{SensitiveKind, SensitiveSpan};

/// Sensitive spans of a text, in order, not overlapping; spans in bytes of the original.
#[must_use]
pub fn sensitive_spans(text: &str) -> Vec<SensitiveSpan> {
    find(&Cleaned::new(text))
}

/// The text with every refused or consent-bound span (all kinds but health) replaced by `[kind]`: for archives and logs
/// of what may not be kept (rule S14).
#[must_use]
pub fn mask(text: &str) -> String {
    strata_core::text::mask(text, &sensitive_spans(text))
}

/// Takes the matched value; says whether it is one.
type Check = fn(&str) -> bool;

struct Rule {
    kind: SensitiveKind,
    check: Check,
    /// Refuse a match glued to another letter or digit.
    standing_alone: bool,
}

fn any(_: &str) -> bool {
    true
}

/// Kind, expression (group `v` is the value, else the whole match), check, whether it must stand alone.
const RULES: &[(SensitiveKind, &str, Check, bool)] = &[
    // Keys and tokens by their published prefixes.
    (
        SensitiveKind::Secret,
        r"-----BEGIN (?:[A-Z0-9 ]+ )?PRIVATE KEY-----(?s:.*?-----END (?:[A-Z0-9 ]+ )?PRIVATE KEY-----)?",
        any,
        false,
    ),
    (SensitiveKind::Secret, r"eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}", any, false),
    (SensitiveKind::Secret, r"sk-(?:proj-|svcacct-|admin-|ant-[a-z0-9]+-)?[A-Za-z0-9_-]{16,}", mixed, true),
    (SensitiveKind::Secret, r"(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{10,}", any, true),
    (SensitiveKind::Secret, r"gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{22,}|glpat-[A-Za-z0-9_-]{20,}", any, true),
    (SensitiveKind::Secret, r"(?:AKIA|ASIA)[0-9A-Z]{16}|LTAI[A-Za-z0-9]{12,24}|AKID[A-Za-z0-9]{32}", any, true),
    (
        SensitiveKind::Secret,
        r"xox[abposr]-[A-Za-z0-9-]{10,}|AIza[A-Za-z0-9_-]{35}|hf_[A-Za-z0-9]{30,}|npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{16,}",
        any,
        true,
    ),
    // A connection string with a password in it.
    (SensitiveKind::Secret, r"(?i)[a-z][a-z0-9+.-]*://[^\s:/@]*:[^\s@/]+@[^\s，。；]+", any, false),
    (SensitiveKind::Secret, r"(?i)(?:AccountKey|SharedAccessKey|Pwd|Password)=[^;\s]{4,}", any, false),
    (SensitiveKind::Secret, r"(?i)(?:bearer|authorization: ?basic)\s+(?P<v>[A-Za-z0-9._~+/-]{12,}=*)", mixed, false),
    // A secret that is named and assigned.
    (
        SensitiveKind::Secret,
        r#"(?i)(?:api[ _-]?key|access[ _-]?key|secret(?:[ _-]?key)?|auth[ _-]?token|access[ _-]?token|token|passwd|pwd|pass ?word|passphrase|passcode|密码|口令|密钥|令牌|秘钥|(?-u:\b)pin(?: code)?)(?: (?:for|of|to|on|at) [\w .'-]{1,30}?)?["']?\s*(?:[:=：]|:=|=>)\s*["']?(?P<v>[^\s"',;，。；]{4,})"#,
        assigned,
        false,
    ),
    (
        SensitiveKind::Secret,
        r#"(?i)(?:passwd|pwd|pass ?word|passphrase|passcode|(?-u:\b)pin(?: code)?)(?: (?:for|of|to|at|on) [\w .-]{1,30}?)? (?:is|was|are|to|(?:changed|set|reset|switched|updated) to|became) (?:now |still |simply |just )?["']?(?P<v>[^\s"',;]{4,})"#,
        stated,
        false,
    ),
    // What only may be a secret has to look like one: "the secret of my risotto is wine".
    (
        SensitiveKind::Secret,
        r#"(?i)(?:api[ _-]?key|access[ _-]?key|secret[ _-]?key|secret|token)(?: (?:for|of|to|at|on) [\w .-]{1,30}?)? (?:is|was|are|to) (?:now |still )?["']?(?P<v>[^\s"',;]{4,})"#,
        keylike,
        false,
    ),
    // No word between: "login ann, password Qwerty!7", "口令 tulip-9-fork".
    (
        SensitiveKind::Secret,
        r#"(?i)(?-u:\b)(?:passwd|pwd|pass ?word|passphrase|passcode)\s+["']?(?P<v>[!-~]{5,})"#,
        keylike,
        false,
    ),
    (SensitiveKind::Secret, r#"(?:密码|口令|密钥|令牌|秘钥|暗号)[:：]?\s*["'“]?(?P<v>[!-~]{4,})"#, keylike, false),
    (SensitiveKind::Secret, r#"(?i)(?-u:\b)(?:pw|my pass)(?:\s|is|was|:|=)+["']?(?P<v>[!-~]{5,})"#, keylike, false),
    (
        SensitiveKind::Secret,
        r#"(?i)(?P<v>[^\s"']{4,}) is (?:my|our|the) (?:[\w-]+ ){0,2}?(?:pass ?word|passphrase|passcode|pin)(?-u:\b)"#,
        keylike,
        false,
    ),
    (SensitiveKind::Secret, r"(?-u:\b)PIN(?: code)?(?:['’]s)?\s+(?P<v>\d{4,8})(?-u:\b)", any, true),
    (SensitiveKind::Secret, r"(?:密码|口令)[:：]?\s*(?P<v>\d{4,12})", any, true),
    (SensitiveKind::Secret, r"(?i)(?-u:\b)aws(?-u:\b)[^\n]{0,24}?(?P<v>[A-Za-z0-9/+]{40})", any, false),
    // Digits one by one or in groups, and spoken ones.
    (
        SensitiveKind::Secret,
        r"(?i)(?:(?-u:\b)pin(?: code)?|passcode|密码|口令)(?:\s|is|was|:|：|=|是|为)*(?P<v>\d(?:[ -]\d){3,7})",
        any,
        true,
    ),
    (
        SensitiveKind::Secret,
        r"(?:密码|口令|门禁码|验证码|动态码|校验码)(?:\s|是|为|:|：|就|改成|换成)*(?P<v>[零〇一二三四五六七八九幺]{4,8})",
        any,
        false,
    ),
    // The answer that stands in for a password, and a code that is to be typed in.
    (
        SensitiveKind::Secret,
        r#"(?i)(?:security|secret|recovery|account) (?:question|answer)s?(?: (?:is|are|was)|:)+ ["']?(?P<v>[^\s"',;]{3,})"#,
        any,
        false,
    ),
    (
        SensitiveKind::Secret,
        r#"密保(?:问题)?(?:的)?(?:答案|问题)?(?:是|为|:|：)+\s*["'“]?(?P<v>[^\s"',;，。；]{2,})"#,
        any,
        false,
    ),
    (
        SensitiveKind::Secret,
        r"(?i)(?:use|enter|type|with)(?: the| this| my)? (?:code|pin) (?P<v>\d{4,8}) (?:to|for) (?:log|sign|verif|authenti|confirm|unlock|open|get in)",
        any,
        true,
    ),
    (
        SensitiveKind::Secret,
        r#"(?i)(?:pass ?word|passphrase|passcode)(?: (?:for|of|to|at|on) [\w .'-]{1,30}?)?\s*[:：-]?\s*(?:it's|it is|that's|that is)\s+["']?(?P<v>[^\s"',;]{4,})"#,
        any,
        false,
    ),
    (
        SensitiveKind::NationalId,
        r"(?i)(?:iban|steuer-?(?:id|identifikationsnummer|nummer)|tax id)(?:\s|is|was|:|=|#)*(?P<v>[A-Z]{0,2}\d[\dA-Z ]{8,34})",
        any,
        false,
    ),
    // A code or a phrase with which something is opened: "the gate opens with 7719#", "unlocks with the phrase ...".
    (
        SensitiveKind::Secret,
        r"(?i)(?-u:\b)(?:(?:open|unlock|disarm|start|log)s?(?: (?:up|in|it))? (?:with|by|on|using)(?: the| this| my)? (?:code|pin|number|digits|combination) |(?:open|unlock|disarm|log)s?(?: (?:up|in|it))? (?:with|using) )(?P<v>\d(?:[ -]?\d){2,9}[#*]?)(?: (?:and|then|at|on|in|from|now|or|but)(?-u:\b)|\s*(?:[^\w\s]|$))",
        any,
        true,
    ),
    (
        SensitiveKind::Secret,
        r#"(?i)(?-u:\b)(?:(?:unlock|disarm|log)s?(?: (?:up|in|it))? (?:with|by|on|using)(?: the| this| my)? (?:pass ?)?(?:phrase|sentence|words?|pattern|passcode|password)|(?:open|start)s?(?: (?:up|in|it))? (?:with|by|on|using)(?: the| this| my)? (?:pass ?(?:phrase|words?)|passcode))[:,]? ["'“]?(?P<v>[^\s"',;.][^"',;.\n]{2,60})"#,
        any,
        false,
    ),
    (
        SensitiveKind::Secret,
        r"(?:门|锁|柜|箱|库|闸|机|屏)\p{Han}{0,6}?(?:按|转到|转|输入|输|拨到|拨|敲)(?:上|入)?\s*(?P<v>\d(?:[ -]?\d){2,9}[#*]?)\s*(?:键)?(?:就|便|即可|就能|就可以|可以)?(?:能|会)?(?:打)?(?:开|解锁)",
        any,
        true,
    ),
    (
        SensitiveKind::Secret,
        r#"(?:开机|登录|登陆|解锁|锁屏|支付|交易|开门|进门)(?:的)?(?:口令|暗号|密令|密语)(?:就|还|现在)*(?:是|为|叫|:|：)\s*["'“]?(?P<v>[^\s"'”,，。;；]{2,})"#,
        any,
        false,
    ),
    // A name and what lets it in: "login: ann / Winter2031!", "账号root，密码也是root".
    (
        SensitiveKind::Secret,
        r#"(?i)(?:log ?in|credentials?|user ?name|account|登录名?|账号|账户|用户名)(?: is|是|为|:|：)*\s*[\w.@-]{2,40}\s*/\s*(?P<v>[!-~]{6,40})"#,
        guarded,
        false,
    ),
    // Behind a comma it stands alone: "My login is ann, version2 is better" goes on.
    (
        SensitiveKind::Secret,
        r#"(?i)(?:log ?in|credentials?|user ?name|account|登录名?|账号|账户|用户名)(?: is|是|为|:|：)*\s*[\w.@-]{2,40}\s*(?:,|，|、|and|和)\s*(?P<v>[!-~]{6,40}?)(?:[.!?]?\s*$|[.!?;]\s|[；。！\n,，])"#,
        guarded,
        false,
    ),
    (
        SensitiveKind::Secret,
        r#"(?i)(?:user(?: ?name)?|log ?in|account|账号|账户|用户名)[^.。;；\n]{1,40}?(?:pass ?word|密码|口令)(?: is|'s|也|都|同样|就)*\s*(?:is|also|是|为|:|：)\s*(?:also |the same |也是)?["'“]?(?P<v>[a-z0-9!-~&&[^\s"',;.]]{3,})"#,
        stated_short,
        false,
    ),
    (
        SensitiveKind::Secret,
        r"(?:信用卡|银行卡|储蓄卡|卡)(?:的)?(?:背后|背面|后面)?(?:的)?(?:后|末|最后)?(?:三位|3位)(?:数字|安全码|数)?(?:是|为|:|：)?\s*(?P<v>\d{3})",
        any,
        true,
    ),
    (
        SensitiveKind::Secret,
        r"(?i)(?:token|api[ _-]?key|access[ _-]?key|密钥|令牌|秘钥)(?:\s|是|为|:|：|=|is)*(?P<v>[0-9a-f]{24,64})",
        any,
        true,
    ),
    (SensitiveKind::Secret, r"助记词(?:\s|是|为|:|：|有|就)*(?P<v>\p{Han}{1,4}(?:[\s、，,]+\p{Han}{1,4}){3,23})", any, false),
    (
        SensitiveKind::Secret,
        r"(?i)(?P<v>[a-z]{3,8}(?:[ ,]+[a-z]{3,8}){10,23})(?: ?,)? (?:are|is|as) (?:my|our|the) (?:\w+ ){0,2}?(?:seed|mnemonic|recovery)(?: (?:phrase|words))?",
        any,
        false,
    ),
    // What opens a door.
    (
        SensitiveKind::Secret,
        r"(?i)(?:combination|(?:alarm|door|gate|access|entry|unlock|lock|garage|safe|security|lockbox|building|elevator|locker|mailbox|suitcase|luggage|padlock|bike lock|house|apartment|flat|keypad|panel) code)(?: (?:for|of|to|at|on|in) [\w .'-]{1,30}?)?(?:\s|is|was|['’]s|:|=|now)+(?P<v>\d(?:[ -]?\d){2,9})",
        any,
        true,
    ),
    (
        SensitiveKind::Secret,
        r"(?:门禁|门锁|保险箱|保险柜|报警器?|开锁|解锁|车库|开机|取件|储物柜|行李箱|信箱|单元门|大门)(?:的)?(?:密码|码)(?:\s|是|为|:|：|改成|换成)*(?P<v>\d(?:[ -]?\d){2,9})",
        any,
        true,
    ),
    // Words that restore a wallet.
    (
        SensitiveKind::Secret,
        r"(?i)(?:(?:seed|recovery|backup|mnemonic) (?:phrase|words)|mnemonic|助记词)(?:\s|is|are|:|：|是|为)*(?P<v>[a-z]{3,8}(?:[ ,]+[a-z]{3,8}){4,23})",
        any,
        false,
    ),
    (
        SensitiveKind::Secret,
        r#"(?:密码|口令|密钥|令牌|秘钥|暗号)(?:就|还|现在|已经)*(?:是|为|改成了?|改为|换成了?|变成了?|设成了?|设为)\s*["'“]?(?P<v>[!-~]{4,})"#,
        any,
        false,
    ),
    // A secret that is described instead of spelled: "the password's the dog's name, Biscuit". What it is not gives nothing away.
    (
        SensitiveKind::Secret,
        r"(?i)(?:pass ?word|passphrase|passcode|(?-u:\b)pin(?: code)?|(?-u:\b)pw)(?:'s| is| was)\s*(?P<v>(?:(?:just|still|simply|always) )?(?:my|the|our|his|her|their) [^.;,\n]{0,24}?(?:name|birthday|birth ?date|anniversary|initials|number plate|backwards)[^.;\n]{0,30})",
        any,
        false,
    ),
    (
        SensitiveKind::Secret,
        r"(?:密码|口令)(?:就是|是|用的?就?是|设的?是)\s*(?P<v>(?:就|还|都)?[\p{Han}&&[^不别没非禁勿要]]{0,10}(?:名字|小名|生日|纪念日|车牌|首字母|拼音)[^。；\n]{0,30})",
        any,
        false,
    ),
    (
        SensitiveKind::Secret,
        r#"(?i)(?-u:\b)pwd?(?: (?:for|of|to|on|at) [\w .'-]{1,30}?)? ?(?:is|was|:|=)+ ?["']?(?P<v>[!-~]{5,})"#,
        keylike,
        false,
    ),
    // What something locked is opened with: digits one by one, or behind a word for typing them.
    (
        SensitiveKind::Secret,
        r"(?i)(?:alarm|lock|safe|gate|door|garage|phone|tablet|laptop|i?pad|iphone|locker|vault|suitcase|keypad|shed|mailbox|bike|unlock|disarm|open)s?(?-u:\b)[^.;!?\n]{0,50}?(?:with|by|using|code|is|:|combo|combination|dial|enter|type|punch(?: in)?|press|key(?: in)?|are) (?P<v>\d(?:[ -]\d){3,9})",
        any,
        true,
    ),
    (
        SensitiveKind::Secret,
        r"(?i)(?:alarm|lock|safe|gate|door|garage|locker|vault|suitcase|keypad|shed|mailbox|bike)s?(?-u:\b)[^.;!?\n]{0,40}?(?:enter|type|punch(?: in)?|key in|combo|combination)(?: is|'s| to|:|,)* (?P<v>\d{3,8}[#*]?)",
        any,
        true,
    ),
    (
        SensitiveKind::Secret,
        r"(?i)(?:enter|type|punch(?: in)?|press|key in) (?P<v>\d{3,8}[#*]?) (?:on|at|into|in|to|for) (?:the |my |our )?(?:\w+ )?(?:keypad|door|gate|lock|alarm|safe|garage|unlock|disarm|get in)",
        any,
        true,
    ),
    (
        SensitiveKind::Secret,
        r"(?i)(?:door|gate|alarm|safe|garage|locker|keypad|vault|padlock|lockbox|门|闸|保险柜|保险箱|报警器|密码锁)(?:'s| is|就是|是|按)\s*(?P<v>\d(?:[ -]\d){2,7}[#*]?|\d{3,8}(?:[#*]|,? (?:then|and) (?:the )?(?:hash|star|pound)|[,，]?(?:再|然后)?按?(?:井号|星号)))",
        any,
        true,
    ),
    (
        SensitiveKind::Secret,
        r"(?:门|锁|柜|箱|库|闸|机|屏|报警器|警报|平板|电脑)[^。；;\n]{0,12}?(?:按|转|输入?|拨|敲|用|是|为|点|密码)\s*(?P<v>\d(?:[ -]\d){3,9})",
        any,
        true,
    ),
    (
        SensitiveKind::Secret,
        r"(?i)(?P<v>\d(?:[ -]\d){3,7}) (?:gets?|opens|unlocks|lets|disarms|to (?:open|unlock|disarm|get in(?:to)?|enter))(?-u:\b)",
        any,
        true,
    ),
    (SensitiveKind::Secret, r"(?:按|输|拨|敲|转)\s*(?P<v>\d(?:[ -]\d){3,7}[#*]?)", any, true),
    (
        SensitiveKind::Secret,
        r"(?i)(?:combo|combination|dial|padlock|密码锁|保险柜|保险箱)[^.;。；\n]{0,20}?(?P<v>(?:left|right|clockwise|左|右)\D{0,8}\d{1,2}\D{0,14}(?:left|right|back|左|右)\D{0,8}\d{1,2}(?:\D{1,14}\d{1,2})?)",
        any,
        false,
    ),
    (
        SensitiveKind::Secret,
        r"(?:密码|口令)(?:我|都|就|也|已经|给|帮)*(?:设|改|换|定)(?:置)?(?:成|为|的是)了?[^,，。;；\d]{0,10}(?P<v>\d{4,8})",
        any,
        true,
    ),
    // What is typed at something locked, no word of a code beside it.
    (
        SensitiveKind::Secret,
        r"(?:锁|门|闸|柜|保险箱|车库)[^,，。;；\d]{0,6}(?:按|摁|输|拨|敲|打|键入)(?:入|上|一下)?\s*(?P<v>\d{3,10}[#*]?)\s*(?:[#*井]号?键?)?(?:就|便|即)?(?:能|可以?|可)?(?:打?开|进|行|解锁)",
        any,
        true,
    ),
    // What one logs in with, when it looks like a key.
    (
        SensitiveKind::Secret,
        r#"(?i)(?-u:\b)(?:log|sign) ?(?:in|on|into)(?: [\w-]+){0,3}? (?:with|using) (?:my \w+'s name,? |the word )?["'“]?(?P<v>[^\s"'”,;.@]{4,})"#,
        keylike,
        false,
    ),
    (
        SensitiveKind::Secret,
        r#"(?i)(?:use|using|type|enter)s? [^.;!?\n]{0,30}?(?P<v>[A-Za-z]+\d{2,}[^\s"',;.@]*)[^.;!?\n\w@]{0,3} ?(?:to (?:log|sign) ?(?:in|on|into)|(?:for|on|in) (?:all |every |each |most )+(?:of )?(?:my |the |our )?(?:log-?ins?|accounts?|sites?|websites?))(?-u:\b)"#,
        any,
        false,
    ),
    (
        SensitiveKind::Secret,
        r"(?:登录|登陆|登入|解锁)(?:时|各处|哪儿?里?)?(?:都|全|一律|统一)?(?:用|输入?|使用)的?(?:都|全)?(?:是)?[^,，。;；号户箱]{0,14}?(?P<v>[A-Za-z]+\d{2,}[!-+\--~]*)",
        any,
        false,
    ),
    // The code of something locked, asked for and told.
    (
        SensitiveKind::Secret,
        r"(?i)(?:(?-u:\b)pin|pass ?word|passcode|passphrase|(?:door|gate|alarm|access|entry|lock) code|密码|口令|暗号)s? ?[?？][^\p{L}\p{N}]*(?:it's|it is|that's|it was|就是|是)? ?(?P<v>[!-~]{4,})",
        keylike_or_digits,
        false,
    ),
    (
        SensitiveKind::Secret,
        r"(?i)(?:^|[,.;:!?] ?|(?-u:\b)(?:the|my|our|a|new|and|is|his|her|their) )(?:code|combination|combo) (?:for|to|of|on|at) [^.;!?\n]{1,40}?(?:door|box|gate|lock|safe|flat|house|building|garage|cabin|gym|locker|shed|apartment|entrance|parking|barrier|lift|alarm|bike|suitcase|villa|cottage|keypad)[^.;!?\n\d]{0,15}?(?: is| was|:|=)+ ?(?P<v>\d{3,8}[#*]?)",
        any,
        true,
    ),
    // Codes for one time.
    (
        SensitiveKind::Secret,
        r"(?i)(?:(?:\d|four|five|six|seven|eight)[- ]digit (?:code|pin)|(?:code|pin) (?:that )?(?:they|you|he|she|it|the \w+|my \w+|i)(?: just)? (?:sent|got|texted|emailed|mailed|messaged|read out)(?: (?:me|us|by (?:text|sms|mail)))?)(?: is| was|:|,|=)+ ?(?P<v>\d{4,8})",
        any,
        true,
    ),
    (
        SensitiveKind::Secret,
        r"(?i)(?P<v>\d{4,8}) (?:as|is) (?:a|an|my|the|your|their) (?:[\w-]+ ){0,2}(?:(?:login|sign-?in|verification|security|access|one[- ]time|confirmation|auth\w*) (?:code|pin|password)|otp(?: code)?|pin(?: code)?)(?-u:\b)",
        any,
        true,
    ),
    (SensitiveKind::Secret, r"(?:登录|登陆|激活|安全|取款|配对|认证)码[^\d\n]{0,8}(?P<v>\d{4,8})", any, true),
    (SensitiveKind::Secret, r"(?i)(?-u:\b)(?:cvv2?|cvc2?)(?-u:\b)[^\d\n]{0,30}(?P<v>\d{3,4})", any, true),
    (
        SensitiveKind::Secret,
        r"(?:保险箱|保险柜|密码锁|门锁|门|锁)[^。；;\n]{0,6}用\s*(?P<v>\d{1,3}(?:-\d{1,3}){2,4}|\d{4,8})(?:打开|开|解锁)",
        any,
        true,
    ),
    (SensitiveKind::Secret, r"(?:锁|柜|箱)[^。；;\n]{0,8}?(?P<v>[左右]转\d{1,2}[左右]转\d{1,2}(?:[左右]转\d{1,2})?)", any, false),
    // The key of a network, and what one logs in with.
    (
        SensitiveKind::Secret,
        r#"(?i)(?:wi-?fi|wlan|network|router) (?:key|pass)(?: (?:for|of|at|in) [\w .'-]{1,30}?)?(?: is|'s|:|=)+ ?["']?(?P<v>[!-~]{6,})"#,
        keylike,
        false,
    ),
    (SensitiveKind::Secret, r"(?i)log(?:ged)? ?in as [\w.@-]{2,40} (?:with|using) (?P<v>[!-~]{6,40})", guarded, false),
    (SensitiveKind::Secret, r"(?i)log-?in[^.;\n]{1,40}? (?:the|my|its) pass(?: is|'s|:|=)+ ?(?P<v>[!-~]{5,40})", keylike, false),
    (SensitiveKind::Secret, r"[:：]\s*[\w.+-]+@[\w.-]+\s+/\s+(?P<v>[!-~]{6,40})", guarded, false),
    // An account, a slash, and what goes with it.
    (
        SensitiveKind::Secret,
        r"(?i)(?:log-?ins?|sign-?in|credentials?|creds|accounts?|user ?names?|admin|账号|账户|帐号|用户名|登录)[^.;。；\n]{0,16}?[:：]\s*[\w.@+-]{2,40}\s*/\s*(?P<v>[!-~]{6,40})",
        guarded,
        false,
    ),
    // Papers of a person, by the form of their numbers (driving licence and insurance of the United Kingdom), or by name.
    (SensitiveKind::NationalId, r"[A-Z9]{5}\d{6}[A-Z9]{2}\d[A-Z]{2}", any, true),
    (SensitiveKind::NationalId, r"[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] ?\d{2} ?\d{2} ?\d{2} ?[A-D](?-u:\b)", any, true),
    (
        SensitiveKind::NationalId,
        r"(?i)(?-u:\b)(?:nino|ni number|national insurance|aadhaar|pan card|cpf|curp|nric|hkid|emirates id|sin number|medicare|residence permit|green card|personnummer|bsn|pesel|dni|codice fiscale|社保号|社会保险号|居民证|学籍号|医保卡?)(?: ?(?:号码?|number|no\.?|card|#))*(?:\s|是|为|is|was|:|：|=|#)*(?P<v>[A-Z]{0,3} ?\d[A-Z0-9 -]{4,21}[A-Z0-9])",
        looks_like_id,
        false,
    ),
    (SensitiveKind::NationalId, r"(?i)(?:passport|护照)[,， ]*(?P<v>[A-Z]{1,2}\d[A-Z0-9]{5,8})(?-u:\b)", looks_like_id, false),
    // One-time codes (G3: they count).
    (
        SensitiveKind::Secret,
        r"(?i)(?:verification code|security code|recovery code|backup code|one[- ]time (?:code|password|passcode)|otp(?: code)?|2fa code|auth(?:entication)? code|login code|sms code|cvv2?|cvc|验证码|动态码|校验码|动态口令|短信码|安全码)[^\d\n]{0,12}(?P<v>\d{2,4}[ -]\d{2,4}|\d{3,8})",
        any,
        true,
    ),
    (SensitiveKind::Secret, r"(?P<v>\d{4,8}) ?(?:是|为)?(?:您的|你的|我的)?(?:短信)?(?:验证码|动态码|校验码)", any, true),
    (
        SensitiveKind::Secret,
        r"(?i)(?P<v>\d{4,8}) is (?:my|your|the) (?:verification|security|login|one[- ]time|otp|2fa) (?:code|password)",
        any,
        true,
    ),
    // What the user calls an id is one, even with a wrong check digit.
    (
        SensitiveKind::NationalId,
        r"(?i)(?:passport|national id(?:entity)?(?: card)?|identity card|id card|id number|(?-u:\b)ssn|social security|driver'?s? licen[cs]e|driving licen[cs]e|tax(?:payer)? id|tin|身份证|护照|驾照|驾驶证|社保卡?|社会保障|港澳通行证|通行证|居住证|军官证|证件)(?: ?(?:号码?|number|no\.?|num|#|card))*(?:\s|是|为|is|was|:|：|=|#|\()*(?P<v>[A-Za-z]{0,3} ?\d[\dA-Za-z -]{3,22}[\dA-Za-z])",
        looks_like_id,
        false,
    ),
    (SensitiveKind::NationalId, r"[1-9]\d{5}(?:18|19|20)\d{2}(?:0[1-9]|1[0-2])(?:[0-2]\d|3[01])\d{3}[\dXx]", cn_id, true),
    (
        SensitiveKind::NationalId,
        r"[1-9]\d{5}[ -]?(?:18|19|20)\d{2}[ -]?(?:0[1-9]|1[0-2])(?:[0-2]\d|3[01])[ -]?\d{3}[\dXx]",
        cn_id,
        true,
    ),
    (SensitiveKind::NationalId, r"\d{3}-\d{2}-\d{4}", us_ssn, true),
    // Cards: called one, or of a card's form.
    (
        SensitiveKind::Card,
        r"(?i)(?:credit card|debit card|bank card|card number|card no\.?|visa|mastercard|amex|银行卡|信用卡|储蓄卡|借记卡|卡号)[^\d\n]{0,12}(?P<v>\d(?:[ -]?\d){11,18})",
        any,
        true,
    ),
    (SensitiveKind::Card, r"\d(?:[ -]?\d){12,18}|\d{4}(?:[./]\d{4}){3}", card, true),
    // People's contact data: consent (G4).
    (SensitiveKind::Email, r"(?i)[a-z0-9._%+-]+@[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9-]+)*\.[a-z]{2,}", any, false),
    // Spelled out, so that no pattern finds it.
    (
        SensitiveKind::Email,
        r"(?i)[a-z0-9._-]+ ?[(\[{](?:at|@|a)[)\]}] ?[a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z]{2,}|[a-z0-9_]+(?:(?: dot | ?[(\[]dot[)\]] ?|点|\.)[a-z0-9_]+)*(?: at | ?[(\[]at[)\]] ?| ?@ ?| ?艾特 ?|圈a)[a-z0-9-]+(?:(?: dot | ?[(\[]dot[)\]] ?| ?点 ?)[a-z0-9-]+)*(?: dot | ?[(\[]dot[)\]] ?| ?点 ?)(?:com|net|org|io|cn|edu|gov|uk|de|fr|co|me|dev|app)",
        any,
        false,
    ),
    (SensitiveKind::Phone, r"(?:\+?86[- ]?)?1[3-9]\d(?:[- .]?\d{4}){2}", any, true),
    (SensitiveKind::Phone, r"\+[1-9]\d{0,2}[- .]?(?:\(?\d{1,4}\)?[- .]?){2,5}\d{2,4}", international, true),
    (SensitiveKind::Phone, r"0\d{4}[ -]?\d{6}|0\d{3}[ -]\d{3}[ -]\d{4}", any, true),
    (SensitiveKind::Phone, r"(?:\(\d{3}\) ?|\d{3}[-. ])\d{3}[-. ]\d{4}", any, true),
    (SensitiveKind::Phone, r"\(?0\d{2,3}\)?[- ]?\d{7,8}", any, true),
    (
        SensitiveKind::Phone,
        r"(?i)(?:phone(?: number)?|mobile(?: number)?|cell(?: number)?|telephone|(?-u:\b)tel|call me (?:at|on)|text me at|whatsapp|电话|手机号?码?|座机|联系方式|打给我)(?:\s|是|为|is|:|：|at|on|no\.?|号码?|\.)*(?P<v>\+?\d(?:[- .]?\d){5,14})",
        no_date,
        true,
    ),
    // Written in groups behind an area code.
    (SensitiveKind::Phone, r"0\d{1,4}(?:[ -]\d{2,4}){2,4}", of_phone_length, true),
    (
        SensitiveKind::Phone,
        r"(?i)(?:(?:'s|(?-u:\b)my|(?-u:\b)his|(?-u:\b)her|(?-u:\b)their)(?: (?:new|old|work|home|private|other|second|direct|personal|current|cell|mobile))* number|(?-u:\b)(?:ring|dial|phone|text|call|message|fax|sms) (?:me|us|him|her|them|my \w+|\w+) (?:at|on|under|via)|(?:我|他|她)(?:的|妈|爸|家)?的?(?:新|手机|电话)?号码?|新号|换号|打给|拨打?|拨)(?: is|'s| changed to|:|是|为|：|了|成|到|,|，|了，)*\s*(?P<v>\+?\d(?:[- .]?\d){6,13})",
        no_date,
        true,
    ),
    (SensitiveKind::Phone, r"[零〇一二三四五六七八九幺]{11}", any, false),
    (
        SensitiveKind::Address,
        r"(?-u:\b)\d{1,5}[A-Za-z]?,? (?:(?:North|South|East|West|N|S|E|W)\.? )?(?:(?:[A-Z][a-z'-]+|\d{1,3}(?:st|nd|rd|th)) ){1,3}(?:Street|St|Avenue|Ave|Road|Rd|Boulevard|Blvd|Lane|Ln|Drive|Dr|Court|Ct|Way|Place|Pl|Terrace|Square|Sq|Crescent|Close|Grove|Gardens|Mews|Quay|Wharf|Highway|Parkway)(?-u:\b)\.?(?:,? (?:Apt|Apartment|Unit|Suite|Flat|#)\.? ?\w{1,6})?",
        any,
        false,
    ),
    (SensitiveKind::Address, r"(?i)(?-u:\b)p\.?o\.? box \d+", any, false),
    // Street before number: German, Dutch, Scandinavian, Spanish, Italian; number before street: French.
    (
        SensitiveKind::Address,
        r"\p{Lu}[\p{L}-]*(?:straße|strasse|str\.|platz|allee|gasse|weg|straat|laan|gracht|gatan|vej) \d{1,4}[A-Za-z]?(?-u:\b)",
        any,
        false,
    ),
    (
        SensitiveKind::Address,
        r"(?i)(?-u:\b)(?:calle|via|viale|rua|avenida|ulica|ul\.) [\p{L} .'-]{2,40}?,? \d{1,4}(?-u:\b)",
        any,
        false,
    ),
    (
        SensitiveKind::Address,
        r"(?i)(?-u:\b)\d{1,4},? (?:bis )?(?:rue|avenue|boulevard|impasse|quai|place) (?:de |du |des |de la |d'|la |le )?\p{L}{3,}",
        any,
        false,
    ),
    (
        SensitiveKind::Address,
        r"(?:\p{Han}{2,3}省)?(?:\p{Han}{2,8}?(?:市|区|县|镇|乡))*\p{Han}{1,8}?(?:路|街|大道|巷|弄|胡同|大街)(?:东段|西段|南段|北段)?[\d一二三四五六七八九十百]+(?:号|弄)(?:院|楼)?(?:\p{Han}{0,8}?[\dA-Za-z一二三四五六七八九十]+(?:号楼|栋|幢|座|单元|楼|层|室|房|号))*(?:\d{2,4}(?:室)?)?",
        any,
        false,
    ),
    // The house, the stair and the flat are one, whatever they stand in.
    (SensitiveKind::Address, r"\p{Han}{1,8}\d{1,4}(?:号楼|栋|幢|座|楼)\d{1,2}(?:单元|门)\d{2,4}(?:室|号)?", any, false),
    (
        SensitiveKind::Address,
        r"\p{Han}{1,8}?(?:小区|花园|公寓|家园|新村|苑|里|嘉园|名邸|宿舍)[\dA-Za-z一二三四五六七八九十]+(?:号楼|栋|幢|座|号)(?:[\dA-Za-z一二三四五六七八九十]+(?:单元|室|楼|层|号|房))*(?:\d{2,4})?",
        any,
        false,
    ),
];

static COMPILED: LazyLock<Listed<Rule>> = LazyLock::new(|| {
    let rule =
        |(kind, _, check, standing_alone): &(_, _, _, _)| Rule { kind: *kind, check: *check, standing_alone: *standing_alone };
    Listed::new(RULES.iter().map(|row| (row.1.to_owned(), rule(row))))
});

/// Health and diet (rule G4), by the words of both languages.
static HEALTH: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "allerg(?:y|ies|ic)",
            "diabet(?:es|ic)",
            "asthma(?:tic)?",
            "cancer",
            "pregnan(?:t|cy)",
            "medication",
            "medicines?",
            "blood pressure",
            "hypertension",
            "depress(?:ed|ion)",
            "anxiety disorder",
            "adhd",
            "autis(?:m|tic)",
            "epilep(?:sy|tic)",
            "hiv",
            "migraines?",
            "insomnia",
            "surgery",
            "chemotherapy",
            "heart (?:disease|condition|attack)",
            "disab(?:led|ility)",
            "therap(?:y|ist)",
            "psychiatrist",
            "prescri(?:bed|ption)",
            "diagnos(?:ed|is)",
            "vegetarian",
            "vegan",
            "pescatarian",
            "halal",
            "kosher",
            "gluten(?:-free)?",
            "lactose",
            "celiac",
            "low[- ](?:carb|sodium|sugar) diet",
            "my diet",
            "on a diet",
            r"(?:do not|don't|can't|cannot|never) eat (?:any )?(?:spicy|meat|pork|beef|fish|seafood|shellfish|nuts|peanuts|dairy|eggs|sugar|gluten|garlic|onions?|cilantro|coriander)",
            "spicy(?: food| dishes)?",
            "ibuprofen|aspirin|penicillin|insulin|metformin|warfarin|antidepressants?",
        ],
        &[
            "过敏",
            "糖尿病",
            "高血压",
            "低血压",
            "高血脂",
            "哮喘",
            "癌症?",
            "肿瘤",
            "怀孕",
            "孕妇",
            "备孕",
            "抑郁",
            "焦虑症",
            "失眠",
            "癫痫",
            "心脏病",
            "肝炎",
            "痛风",
            "胃病",
            "病史",
            "服药",
            "吃药",
            "用药",
            "确诊",
            "手术",
            "化疗",
            "残疾",
            "心理医生",
            "处方",
            "忌口",
            "吃素",
            "素食",
            "清真",
            "乳糖不耐",
            "青霉素",
            "胰岛素",
            "布洛芬",
            "阿司匹林",
            "(?:不|别|忌|戒|少|能|爱|喜欢|想)吃(?:太)?(?:辣|海鲜|牛肉|羊肉|猪肉|鱼|虾|蟹|鸡蛋|香菜|葱|蒜|花生|坚果|甜|糖|肉|生冷|油腻|内脏|盐)",
            "(?:不|别|少)(?:放|加)(?:辣|香菜|葱|蒜|糖|盐)",
        ],
    )
});

/// Wording that makes a contact a business's public one (rule G4).
static BUSINESS: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "hotline",
            "helpline",
            "support line",
            "support (?:number|email|address)",
            "customer (?:service|support|care)",
            "help ?desk",
            "switchboard",
            "reception",
            "toll[- ]free",
            "(?:company|office|business|store|shop|restaurant|hotel|clinic|bank|vendor|supplier|press|sales|billing) (?:phone|number|email|address|contact|line|mailbox|inbox)",
            "our (?:store|shop|office|branch|showroom|headquarters)",
            "headquarters",
            "(?:museum|gallery|shop|store|restaurant|hotel|clinic|office|pharmacy|bakery|library|school|station|airport|box office|garage|practice|surgery|vet)(?: \\w+)? (?:answers|can be reached|is reachable|takes calls|picks up|opens)",
            "head office",
            "public contact",
            "front desk",
            "(?:store|shop|restaurant|hotel|office|branch|headquarters|clinic|museum|airport|station) is (?:at|on|located)",
        ],
        &[
            "客服",
            "热线",
            "总机",
            "前台",
            "售后",
            "公司(?:的)?(?:地址|电话|邮箱|总部)",
            "办公地址",
            "门店",
            "店铺",
            "分店",
            "营业厅",
            "服务电话",
            "订餐电话",
            "餐厅(?:的)?(?:地址|电话)",
            "酒店(?:的)?(?:地址|电话|前台)",
            "医院(?:的)?(?:地址|电话)",
            "银行(?:的)?电话",
            "总部",
            "官方(?:邮箱|电话)",
            "对公",
            "商家电话",
            "投诉电话",
            "公司在",
            "酒店在",
            "餐厅在",
        ],
    )
});
/// Wording that makes it a person's in spite of that.
static PERSON: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "my",
            "his",
            "her",
            "home",
            "personal",
            "private",
            "i live",
            "(?-i:[A-Z][a-z]+)'s",
            "wife",
            "husband",
            "mother",
            "father",
        ],
        &[
            "我的?(?:手机|电话|邮箱|地址|住址|家)",
            "我家",
            "我住",
            "他的|她的",
            "家庭",
            "住址",
            "住在",
            "个人",
            "私人",
            "手机",
            "老婆|老公|妈妈|爸爸",
        ],
    )
});
/// A business that is somebody's own is a business still: "the hotline of my bank".
static THEIR_BUSINESS: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "(?:my|his|her|their|our) (?:\\w+ )?(?:bank|company|office|clinic|insurer|insurance(?: company)?|gym|school|university|employer|provider|hotel|airline|pharmacy|garage|library|landlord's office|hospital|firm|shop|store|carrier|operator|isp)(?:'s)?",
        ],
        &[
            "(?:我|他|她|我们)(?:的|家的?|们的?)?(?:开户|办卡)?(?:银行|公司|单位|诊所|保险公司|健身房|学校|酒店|航空公司|药店|医院|运营商|物业)",
        ],
    )
});
/// Mailboxes of a role, not of a person; toll-free numbers.
static ROLE_MAILBOX: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"(?i)^(?:support|sales|info|help|contact|hello|service|billing|press|noreply|no-reply|admin|office|careers|jobs|hr|security|feedback|team|abuse|postmaster|webmaster|kefu|service\d*)@",
    )
});
static TOLL_FREE: LazyLock<Pattern> = LazyLock::new(|| {
    regex(r"^(?:[48]00[- ]?\d{3}[- ]?\d{4}|(?:\+?1[- .]?)?\(?8(?:00|88|77|66|55|44|33)\)?[- .]?\d{3}[- .]?\d{4})$")
});
/// What stands before a number that is no card and no telephone number.
static ORDER_CUE: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"(?i)(?:order|tracking|invoice|ticket|reference|transaction|serial|request|trace|build|account|waybill|isbn|imei|timestamp|订单|单号|运单|快递|流水|编号|序列|发票|工单|交易号|时间戳)[^,，。;；\n]{0,12}$",
    )
});

/// Single letters or ideographs with blanks between them: "p a s s w o r d", "密 码".
static SPACED: LazyLock<Pattern> = LazyLock::new(|| {
    regex(r"(?:(?:^|[^\p{L}\p{N}])\p{Latin}(?:[ ._-]\p{Latin}){3,}(?:[^\p{L}\p{N}]|$))|(?:\p{Han}[ \t]+){1,}\p{Han}")
});

/// The text with such blanks closed; none when there are none.
fn unspaced(text: &str) -> Option<String> {
    if !SPACED.is_match(text) {
        return None;
    }
    Some(SPACED.replace_all(text, |found| {
        let run = &found[0];
        let inner = run.trim();
        let tight: String = inner.chars().filter(|c| !matches!(c, ' ' | '\t' | '.' | '_' | '-')).collect();
        run.replacen(inner, &tight, 1)
    }))
}

pub(crate) fn find(cleaned: &Cleaned) -> Vec<SensitiveSpan> {
    let found = find_in(cleaned);
    let secret = |spans: &[SensitiveSpan]| spans.iter().map(|s| s.kind).filter(|kind| is_grave(*kind)).min();
    // What is hidden by blanks has no place of its own: the whole text is what must not be kept.
    match unspaced(&cleaned.text).and_then(|text| secret(&find_in(&Cleaned::new(&text)))) {
        Some(kind) if secret(&found).is_none() => {
            let whole = cleaned.original(0..cleaned.text.len());
            vec![SensitiveSpan { kind, start: whole.start, end: whole.end }]
        }
        _ => found,
    }
}

const fn is_grave(kind: SensitiveKind) -> bool {
    matches!(kind, SensitiveKind::Secret | SensitiveKind::Card | SensitiveKind::NationalId)
}

fn find_in(cleaned: &Cleaned) -> Vec<SensitiveSpan> {
    let text = cleaned.text.as_str();
    let mut found = Disjoint::new();
    let mut sentences = Sentences::new(text);
    for (pattern, rule) in COMPILED.candidates(text) {
        for captures in pattern.captures_iter(text) {
            let Some(value) = captures.name("v").or_else(|| captures.get(0)) else { continue };
            let span = trimmed(text, value.range());
            let ok = found.is_free(&span)
                && (rule.check)(&text[span.clone()])
                && (!rule.standing_alone || stands_alone(text, &span))
                && !is_public(rule.kind, &mut sentences, &span)
                && !is_numbered_thing(rule.kind, captures.name("v").is_some(), text, &span);
            if ok {
                found.add(span, rule.kind);
            }
        }
    }
    for span in HEALTH.find_iter(text) {
        found.add(span, SensitiveKind::Health);
    }
    found.into_original(cleaned).map(|(span, kind)| SensitiveSpan { kind, start: span.start, end: span.end }).collect()
}

/// The sentences of a text, and whether each speaks of a business: told at most once a sentence.
struct Sentences<'a> {
    text: &'a str,
    spans: Vec<(Range<usize>, Option<bool>)>,
}

impl<'a> Sentences<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, spans: Vec::new() }
    }

    fn is_about_business(&mut self, at: usize) -> bool {
        if self.spans.is_empty() {
            self.spans = sentence_spans(self.text).into_iter().map(|span| (span, None)).collect();
        }
        let index = self.spans.partition_point(|(span, _)| span.end <= at);
        let Some((span, known)) = self.spans.get_mut(index) else { return false };
        let sentence = &self.text[span.clone()];
        *known.get_or_insert_with(|| BUSINESS.is_match(sentence) && !PERSON.says(sentence, &THEIR_BUSINESS))
    }
}

/// Without white space and sentence punctuation that a greedy expression took along.
fn trimmed(text: &str, span: Range<usize>) -> Range<usize> {
    let kept = text[span.clone()].trim_end_matches([' ', '-', '.', ',', ';', '!', '?', ')']).len();
    span.start..span.start + kept
}

/// Neither end is glued to a letter, a digit, or by one of `.-/_` to more digits or letters: an order number, a
/// version or a URL that holds such digits is none of these.
fn stands_alone(text: &str, span: &Range<usize>) -> bool {
    let mut before = text[..span.start].chars().rev();
    let mut after = text[span.end..].chars();
    let glued = |first: Option<char>, second: Option<char>| match first {
        Some(c) if c.is_ascii_alphanumeric() || c == '_' => true,
        Some('.' | '-' | '/') => second.is_some_and(|c| c.is_ascii_digit()),
        _ => false,
    };
    !glued(before.next(), before.next()) && !glued(after.next(), after.next())
}

/// Whether a contact is a business's public one: a role mailbox, a toll-free number, or said so in its sentence.
fn is_public(kind: SensitiveKind, sentences: &mut Sentences<'_>, span: &Range<usize>) -> bool {
    let value = &sentences.text[span.clone()];
    match kind {
        SensitiveKind::Email => ROLE_MAILBOX.is_match(value) || sentences.is_about_business(span.start),
        SensitiveKind::Phone => TOLL_FREE.is_match(value) || sentences.is_about_business(span.start),
        SensitiveKind::Address => sentences.is_about_business(span.start),
        SensitiveKind::Secret | SensitiveKind::Card | SensitiveKind::NationalId | SensitiveKind::Health => false,
    }
}

/// Bytes before a number in which a word for an order or an invoice tells what it is.
const CUE_BYTES: usize = 64;

/// Whether digits found by form alone are called an order, an invoice, a serial number.
fn is_numbered_thing(kind: SensitiveKind, named: bool, text: &str, span: &Range<usize>) -> bool {
    let from = text.floor_char_boundary(span.start.saturating_sub(CUE_BYTES));
    !named && matches!(kind, SensitiveKind::Card | SensitiveKind::Phone) && ORDER_CUE.is_match(&text[from..span.start])
}

fn digits(text: &str) -> impl Iterator<Item = u32> + '_ {
    text.chars().filter_map(|c| c.to_digit(10))
}

/// GB 11643: ISO 7064 MOD 11-2 over seventeen digits; the date's form is in the expression.
fn cn_id(text: &str) -> bool {
    const WEIGHTS: [u32; 17] = [7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2];
    const CHECK: &[u8; 11] = b"10X98765432";
    let letters: Vec<u8> = text.bytes().filter(u8::is_ascii_alphanumeric).map(|b| b.to_ascii_uppercase()).collect();
    let [body @ .., last] = letters.as_slice() else { return false };
    if body.len() != 17 || !body.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let sum: u32 = body.iter().zip(WEIGHTS).map(|(b, w)| u32::from(b - b'0') * w).sum();
    CHECK.get((sum % 11) as usize) == Some(last)
}

/// Luhn over 13 to 19 digits that begin as a scheme's cards do.
fn card(text: &str) -> bool {
    let digits: Vec<u32> = digits(text).collect();
    let begins = digits.first().is_some_and(|d| (2..=6).contains(d));
    let varied = digits.iter().any(|d| Some(d) != digits.first());
    let doubled = |(i, d): (usize, &u32)| if i % 2 == 1 { if *d > 4 { d * 2 - 9 } else { d * 2 } } else { *d };
    begins && varied && (13..=19).contains(&digits.len()) && digits.iter().rev().enumerate().map(doubled).sum::<u32>() % 10 == 0
}

/// United States social security number: no area 000, 666 or 9xx, no zero group.
fn us_ssn(text: &str) -> bool {
    let mut parts = text.split('-');
    let (area, group, serial) =
        (parts.next().unwrap_or_default(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    area != "000" && area != "666" && !area.starts_with('9') && group != "00" && serial != "0000"
}

fn international(text: &str) -> bool {
    (8..=15).contains(&digits(text).count())
}

/// At least five characters, most of them digits: "passport 2026 renewal" is none.
fn looks_like_id(text: &str) -> bool {
    let (digits, letters) = (digits(text).count(), text.chars().filter(char::is_ascii_alphabetic).count());
    digits >= 5 && letters <= 4
}

/// Letters and digits mixed, or long.
fn mixed(text: &str) -> bool {
    text.bytes().any(|b| b.is_ascii_digit())
        || text.len() >= 32
        || text.bytes().any(|b| b.is_ascii_uppercase()) && text.bytes().any(|b| b.is_ascii_lowercase())
}

/// What follows `password:` as a matter of form: not a placeholder, a reference, a type or a count.
fn assigned(text: &str) -> bool {
    const PLACEHOLDERS: &[&str] = &[
        "none", "null", "true", "false", "string", "required", "optional", "redacted", "hidden", "secret", "password",
        "changeme", "your", "example", "todo", "****",
    ];
    let lower = text.to_lowercase();
    let repeated = text.chars().all(|c| text.starts_with(c));
    let reference = lower.starts_with(['$', '<', '{', '%', '[', '*'])
        || lower.starts_with("env.")
        || lower.starts_with("os.")
        || lower.contains('(');
    !repeated && !reference && !PLACEHOLDERS.iter().any(|p| lower == *p) && text.is_ascii()
}

/// As many digits as a telephone number with its area code has: a date has eight.
fn of_phone_length(text: &str) -> bool {
    (9..=12).contains(&digits(text).count())
}

/// Not a day as people write it: "2026-12-01".
fn no_date(text: &str) -> bool {
    static DATE: LazyLock<Pattern> =
        LazyLock::new(|| regex(r"^(?:(?:19|20)\d\d[-. ]\d{1,2}[-. ]\d{1,2}|\d{1,2}[-. ]\d{1,2}[-. ](?:19|20)\d\d)$"));
    !DATE.is_match(text)
}

/// As [`keylike`], or digits alone.
fn keylike_or_digits(text: &str) -> bool {
    let value = text.trim_end_matches(['.', '!', '?', ')', ',']);
    keylike(text) || value.len() >= 4 && value.bytes().all(|b| b.is_ascii_digit())
}

/// Of one piece, with a digit or a sign in it, or with capitals inside: what only may be a secret has to look like one.
fn keylike(text: &str) -> bool {
    let value = text.trim_end_matches(['.', '!', '?', ')', ',']);
    let digit = value.bytes().any(|b| b.is_ascii_digit());
    let letter = value.bytes().any(|b| b.is_ascii_alphabetic());
    let sign = value.bytes().any(|b| matches!(b, b'!' | b'@' | b'#' | b'$' | b'%' | b'^' | b'&' | b'*' | b'_' | b'+' | b'='));
    let inside = value.chars().skip(1).any(|c| c.is_ascii_uppercase()) && value.bytes().any(|b| b.is_ascii_lowercase());
    value.is_ascii() && value.len() >= 4 && ((letter && (digit || sign)) || (inside && value.len() >= 8)) && assigned(value)
}

/// What follows "password is" and tells of the password.
const PREDICATES: &[&str] = &[
    "required",
    "wrong",
    "expired",
    "invalid",
    "valid",
    "correct",
    "incorrect",
    "missing",
    "empty",
    "stored",
    "encrypted",
    "hashed",
    "needed",
    "weak",
    "strong",
    "safe",
    "secure",
    "reset",
    "changed",
    "rotated",
    "refreshed",
    "refused",
    "rejected",
    "shown",
    "hidden",
    "optional",
    "mandatory",
    "case-sensitive",
    "short",
    "long",
    "simple",
    "different",
    "same",
    "only",
    "then",
    "that",
    "what",
    "where",
    "kept",
    "saved",
    "used",
    "sent",
    "passed",
    "made",
    "limited",
    "counted",
    "about",
    "important",
    "private",
    "public",
    "available",
    "unknown",
    "forgotten",
    "known",
    "leaked",
    "compromised",
    "shared",
    "generated",
    "set",
    "being",
    "going",
    "revoked",
    "under",
    "within",
    "from",
    "with",
    "ready",
    "good",
    "fine",
    "okay",
    "your",
    "mine",
    "ours",
    "their",
    "always",
    "never",
    "still",
    "just",
    "also",
    "access",
    "continue",
    "enter",
    "login",
    "sign",
    "work",
    "protect",
    "unlock",
    "open",
    "make",
    "keep",
    "have",
    "something",
    "anything",
    "nothing",
    "everything",
    "victory",
    "success",
    "usually",
    "mostly",
    "rarely",
    "simply",
    "really",
    "printed",
    "written",
    "managed",
    "longer",
    "shorter",
    "stronger",
    "weaker",
    "random",
    "complicated",
    "complex",
    "difficult",
    "easy",
    "boring",
];

/// A password by its looks, of which a name stands before it: letters and a digit or a sign, no address and no date.
fn guarded(text: &str) -> bool {
    keylike(text) && !text.contains('@') && text.bytes().any(|b| b.is_ascii_alphabetic())
}

/// As [`stated`], where the account is named too: then a plain word counts as well.
fn stated_short(text: &str) -> bool {
    let value = text.trim_end_matches(['.', '!', '?', ')']);
    let plain = value.len() <= 12 && value.bytes().all(|b| b.is_ascii_alphanumeric());
    (plain || keylike(value)) && !PREDICATES.contains(&value.to_lowercase().as_str())
}

/// Words that call their value a secret or an id: a label beside which a value stands in another field.
static LABEL: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "pass ?words?",
            "passwd",
            "pwd",
            "passphrase",
            "passcode",
            "pin(?: code)?",
            "(?:api|access|secret|private) ?keys?",
            "secrets?",
            "tokens?",
            "credentials?",
            "otp",
            "2fa",
            "cvv2?",
            "(?:alarm|door|gate|access|entry) code",
            "passport(?: number| no)?",
            "ssn",
            "(?:credit|debit|bank) card(?: number)?",
        ],
        &["密码", "口令", "密钥", "秘钥", "令牌", "验证码", "助记词", "身份证号?", "护照号?", "银行卡号?", "卡号"],
    )
});

/// Reads a label and the value that stands in another field as one: topic "password", tag "hunter2x9". Answers the pair as
/// it would be written when the label names a secret and the value may be one; none otherwise.
#[must_use]
pub fn labelled(label: &str, value: &str) -> Option<String> {
    let (label, value) = (Cleaned::new(label).text, Cleaned::new(value).text);
    let (label, value) = (label.trim(), value.trim());
    // The label ends with the word: "password managers" labels no password.
    let names = LABEL.find_iter(label).last().is_some_and(|found| found.end == label.len());
    let short = !value.is_empty() && value.len() <= 64 && !value.contains(char::is_whitespace);
    let digits = value.bytes().filter(u8::is_ascii_digit).count();
    (names && short && (keylike(value) || digits >= 4)).then(|| format!("{label}: {value}"))
}

/// What follows "password is": a value rather than a predicate ("the password is required").
fn stated(text: &str) -> bool {
    let value = text.trim_end_matches(['.', '!', '?', ')']);
    let has_digit = value.bytes().any(|b| b.is_ascii_digit());
    let has_symbol = value.bytes().any(|b| b.is_ascii_punctuation() && !matches!(b, b'-' | b'.' | b'/'));
    let inner_case = value.chars().skip(1).any(char::is_uppercase) && value.chars().any(char::is_lowercase);
    value.len() >= 4
        && (has_digit
            || has_symbol
            || inner_case
            || value.is_ascii()
                && !PREDICATES.contains(&value.to_lowercase().as_str())
                && value.len() >= 6
                && !value.ends_with("ed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<SensitiveKind> {
        sensitive_spans(text).into_iter().map(|s| s.kind).collect()
    }

    /// A second-generation id with a valid check digit, from made-up parts.
    const ID: &str = "11010519491231002X";

    #[test]
    fn g3_what_opens_on_a_day_or_with_a_number_of_things_is_no_secret() {
        for text in [
            "My new job starts on 2026-12-01.",
            "The course starts on 2027 01 15 in Berlin.",
            "The shop opens on 24 12 2026.",
            "The museum opens by 1030.",
            "I always start by 730 in the morning.",
            "We start with 120 people on Monday.",
            "Our store opens with 2500 products.",
            "My blog on 2026-12-01 is about bread.",
            "I start with the words Good morning everyone.",
            "The film opens with the sentence: it rains again.",
        ] {
            assert_eq!(kinds(text), [], "{text}");
        }
        for text in [
            "The gate opens with 7719#, don't tell anyone",
            "The gate opens with ７７１９",
            "The shed unlocks using 44 17 and the garage too.",
            "The alarm starts with the code 9921",
            "The safe opens by the combination 12-34-56 now",
            "The vault opens with the code 2026 12 01.",
            "my laptop unlocks with the phrase correct horse battery",
            "It opens with the passphrase correct horse battery",
        ] {
            assert_eq!(kinds(text), [SensitiveKind::Secret], "{text}");
        }
    }

    #[test]
    fn g3_g4_metadata_dates_and_series_are_nobodys_secret_or_number() {
        for text in [
            "My login is ann, version2 is better",
            "model: provider/name-4.1",
            "provider: openai / gpt-4.1-mini",
            "temperature: 0.2 / top_p: 0.9",
            "env: staging / production2",
            "self.password_hash = password_hash",
            "The contract was signed on 01-02-2026.",
            "Call me on 2026-12-01 about the lease.",
            "The measured values were 02 14 33 51 in that order.",
            "The laptop shows error code 4032.",
            "My green card is valid until 2031.",
            "合同是01-02-2026签的。",
            "密码是不能用生日的。",
            "温度：0.2 / top_p：0.9",
        ] {
            assert_eq!(kinds(text), [], "{text}");
        }
    }

    #[test]
    fn a61_c155_sensitive_data_is_found() {
        use SensitiveKind::{Address, Card, Email, Health, NationalId, Phone, Secret};
        for (text, kind) in [
            ("my password is hunter2", Secret),
            ("pw: hunter2!X", Secret),
            ("my pass is hunter2!X", Secret),
            ("hunter2 is my password", Secret),
            ("PIN 4921", Secret),
            ("我的支付密码 482913", Secret),
            ("recovery code is 8291-2231", Secret),
            ("AWS secret wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", Secret),
            ("My pass word: correct-horse-battery", Secret),
            ("password: Tr0ub4dor&3", Secret),
            ("我的密码是abc12345", Secret),
            ("wifi 密码：12345678", Secret),
            ("api_key = 9f8e7d6c5b4a", Secret),
            ("the key is sk-proj-abcDEF123456ghiJKL789", Secret),
            ("use ghp_abcdefghijklmnopqrstuvwxyz0123456789", Secret),
            ("AKIAIOSFODNN7EXAMPLE", Secret),
            ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----", Secret),
            ("Authorization: Bearer abcdef0123456789abcdef", Secret),
            ("postgres://app:s3cret@db.internal:5432/prod", Secret),
            ("redis://:p4ss@cache:6379", Secret),
            ("your verification code is 482913", Secret),
            ("验证码是 482913", Secret),
            ("482913是您的验证码", Secret),
            ("我的身份证号是11010519491231002X", NationalId),
            ("身份证110105194912310021", NationalId),
            ("my passport number is E12345678", NationalId),
            ("护照号 E12345678", NationalId),
            ("SSN 123-45-6789", NationalId),
            ("the card 4111 1111 1111 1111 works", Card),
            ("银行卡号 6222 0212 3456 7890 123", Card),
            ("card number: 4111111111111112", Card),
            ("我的手机号是13812345678", Phone),
            ("call me on +44 20 7946 0958", Phone),
            ("my number is (415) 555-0134", Phone),
            ("座机 010-62345678", Phone),
            ("my email is lin.wei@example.com", Email),
            ("邮箱lin@example.cn可以联系我", Email),
            ("I live at 221B Baker Street", Address),
            ("ship it to 1600 Pennsylvania Avenue, Apt 4", Address),
            ("我住在杭州市西湖区文三路138号3幢2单元501室", Address),
            ("家在阳光花园12栋3单元402", Address),
            ("I am allergic to peanuts", Health),
            ("我对花生过敏", Health),
            ("不吃辣", Health),
            ("she has diabetes", Health),
        ] {
            assert!(kinds(text).contains(&kind), "{text}: {:?}", kinds(text));
        }
        assert!(cn_id(ID) && kinds(ID) == [NationalId]);
    }

    #[test]
    fn a61_near_misses_are_not_sensitive() {
        for text in [
            "the server is at 192.168.10.25",
            "version 1.13.8123",
            "the password is required",
            "The token is expired",
            "reset your password to continue",
            "密码是必填项",
            "password: ${DB_PASSWORD}",
            "my order id is 9007199254740993",
            "订单号 4111111111111111 已发货",
            "invoice 20260503000123456",
            "18446744073709551615",
            "the meeting is 2026-05-03 14:30",
            "room 1380 on floor 13",
            "the support hotline is 400-820-8820",
            "客服热线是 021-62345678",
            "write to support@example.com",
            "公司地址是文三路138号",
            "the health check endpoint answers",
            "a healthy build",
            "第138号文件",
            "I walked down the street",
            "https://example.com/a/13812345678901",
            "size is 800x600",
            "My passport expires in 2027",
            "护照明年到期",
            "we met 3 times at 5 pm",
        ] {
            assert!(kinds(text).is_empty(), "{text}: {:?}", kinds(text));
        }
    }

    #[test]
    fn c081_hidden_and_look_alike_characters_hide_nothing() {
        for text in [
            "1\u{200b}3\u{200b}8\u{200b}1\u{200b}2\u{200b}3\u{200b}4\u{200b}5\u{200b}6\u{200b}7\u{200b}8",
            "１３８１２３４５６７８",
            "1️⃣38 1234 5678",
        ] {
            assert_eq!(kinds(text), [SensitiveKind::Phone], "{text:?}");
        }
        assert_eq!(kinds("s\u{ad}k-pr\u{ad}oj-abcDEF123456ghi\u{ad}JKL789"), [SensitiveKind::Secret]);
        assert_eq!(kinds("\u{202e}11010519491231002X\u{202c}"), [SensitiveKind::NationalId]);
        let text = "号码：１３\u{200b}８１２３４５６７８。";
        let span = sensitive_spans(text).remove(0);
        assert_eq!(&text[span.start..span.end], "１３\u{200b}８１２３４５６７８");
    }

    #[test]
    fn s14_mask_keeps_the_sentence() {
        assert_eq!(mask("我的手机号是13812345678，不吃辣"), "我的手机号是[phone]，不吃辣");
        assert_eq!(mask("nothing here"), "nothing here");
    }

    #[test]
    fn g4_a_person_beats_a_business() {
        assert!(kinds("the hotel phone is 0571-87654321").is_empty());
        assert_eq!(kinds("Anna's phone is 0571-87654321"), [SensitiveKind::Phone]);
        assert_eq!(kinds("Lin's email is lin@example.com"), [SensitiveKind::Email]);
    }
}
