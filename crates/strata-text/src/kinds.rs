//! What a registered key can take (rule K0): a wording says where a value stands, not that it is one. "I moved to Sales" has the
//! form of "I moved to Ghent", "我住在医院观察" that of "我住在成都". A wrong value supersedes a true one, so a value in doubt is none.

use crate::analyze::jieba;
use crate::pattern::Pattern;
use crate::phrases::regex;
use crate::script::is_han;
use crate::values::{is_name_word, personal_name};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::LazyLock;
use strata_core::policy::registry::Takes;

fn words(list: &'static str) -> HashSet<&'static str> {
    list.split_whitespace().collect()
}

/// Countries that one lives in: no towns. Singapore is both.
pub(crate) const COUNTRIES: &str = "\
(?:germany|france|spain|portugal|italy|austria|switzerland|belgium|netherlands|luxembourg|denmark|sweden|norway|finland|\
iceland|ireland|poland|czechia|czech republic|slovakia|hungary|romania|bulgaria|greece|turkey|türkiye|ukraine|russia|belarus|\
estonia|latvia|lithuania|croatia|serbia|slovenia|bosnia|albania|north macedonia|montenegro|malta|cyprus|united kingdom|uk|\
great britain|usa|us|united states|united states of america|canada|mexico|brazil|argentina|chile|peru|colombia|ecuador|\
bolivia|uruguay|paraguay|venezuela|cuba|costa rica|panama|guatemala|honduras|jamaica|dominican republic|egypt|morocco|algeria|\
tunisia|libya|nigeria|ghana|kenya|ethiopia|tanzania|uganda|rwanda|senegal|south africa|zambia|zimbabwe|angola|mozambique|\
israel|jordan|lebanon|syria|iraq|iran|saudi arabia|united arab emirates|uae|qatar|oman|kuwait|bahrain|india|pakistan|\
bangladesh|sri lanka|nepal|china|japan|south korea|north korea|korea|taiwan|mongolia|vietnam|thailand|cambodia|laos|malaysia|\
indonesia|philippines|myanmar|australia|new zealand|fiji|kazakhstan|uzbekistan|armenia|azerbaijan)";
/// The same in Chinese.
pub(crate) const COUNTRIES_ZH: &str = "\
(?:中国|美国|英国|法国|德国|泰国|韩国|俄国|荷兰|挪威|瑞典|芬兰|丹麦|冰岛|瑞士|奥地利|意大利|西班牙|葡萄牙|比利时|波兰|捷克|匈牙利|希腊|土耳其|俄罗斯|乌克兰|\
加拿大|墨西哥|巴西|阿根廷|智利|秘鲁|澳大利亚|澳洲|新西兰|日本|朝鲜|印度|越南|老挝|柬埔寨|缅甸|马来西亚|印度尼西亚|印尼|菲律宾|巴基斯坦|孟加拉国|尼泊尔|斯里兰卡|蒙古|\
哈萨克斯坦|伊朗|伊拉克|以色列|沙特阿拉伯|沙特|阿联酋|卡塔尔|埃及|南非|肯尼亚|尼日利亚|摩洛哥|埃塞俄比亚|爱尔兰|罗马尼亚|保加利亚|塞尔维亚|克罗地亚)";
static COUNTRY: LazyLock<Pattern> = LazyLock::new(|| regex(&format!("(?i)^(?:the )?(?:{COUNTRIES}|{COUNTRIES_ZH})$")));

/// Departments, premises and tools: what one moves to, or lives in, without residing there.
static NO_PLACE: LazyLock<HashSet<&'static str>> = LazyLock::new(|| {
    words(
        "sales marketing finance hr legal engineering support operations ops product design research it qa security \
         accounting procurement purchasing logistics payroll compliance recruiting recruitment training management data \
         platform backend frontend infrastructure infra devops development dev admin administration it-support pr customer \
         treasury audit risk strategy building room block apartment apt flat floor unit house suite dorm hall campus office \
         hotel hospital hostel airbnb tower wing ward tent desk team group plan step version phase stage chapter level tier \
         premium basic pro gold excel jira slack emacs vim neovim outlook figma notion teams zoom photoshop minecraft roblox \
         vscode code git github gitlab linux windows macos ubuntu android ios chrome firefox gmail whatsapp telegram discord \
         kubernetes docker terraform aws azure gcp postgres postgresql mysql redis mongodb kafka python rust java javascript \
         typescript go react vue angular django rails spotify netflix word powerpoint sheets docs trello asana linear \
         confluence sap salesforce hubspot quickbooks xero remote english christmas easter hope fear denial peace",
    )
});

/// Cities that one moves to, and the larger states and regions: behind "to" a name alone does not tell a place from a tool.
static CITIES: LazyLock<HashSet<&'static str>> = LazyLock::new(|| {
    words(
        "amsterdam rotterdam utrecht eindhoven hague groningen antwerp brussels ghent bruges leuven london manchester \
         birmingham leeds liverpool bristol sheffield glasgow edinburgh cardiff belfast newcastle nottingham cambridge oxford \
         bath york brighton southampton leicester dublin cork galway limerick paris lyon marseille toulouse nice bordeaux \
         lille nantes strasbourg rennes grenoble montpellier berlin munich hamburg cologne frankfurt stuttgart leipzig \
         dresden bonn hanover nuremberg bremen düsseldorf dusseldorf heidelberg freiburg mannheim dortmund essen potsdam \
         vienna graz salzburg linz innsbruck zurich zürich geneva basel bern lausanne lugano rome milan naples turin florence \
         venice bologna palermo verona genoa pisa madrid barcelona valencia seville bilbao malaga málaga granada zaragoza \
         lisbon porto braga coimbra faro copenhagen aarhus odense stockholm gothenburg malmö malmo uppsala oslo bergen \
         trondheim stavanger helsinki espoo tampere turku reykjavik tallinn tartu riga vilnius kaunas warsaw krakow kraków \
         wroclaw gdansk poznan lodz prague brno ostrava bratislava budapest debrecen bucharest cluj timisoara sofia plovdiv \
         belgrade zagreb split ljubljana sarajevo skopje tirana athens thessaloniki istanbul ankara izmir antalya kyiv kiev \
         lviv odesa kharkiv minsk moscow kazan novosibirsk chisinau tbilisi yerevan baku almaty astana tashkent nicosia \
         valletta cairo alexandria casablanca rabat marrakesh tunis algiers lagos abuja accra nairobi kampala kigali addis \
         dakar johannesburg durban pretoria harare lusaka luanda maputo dubai doha riyadh jeddah kuwait muscat manama amman \
         beirut jerusalem haifa tehran baghdad mumbai delhi bangalore bengaluru hyderabad chennai kolkata pune ahmedabad \
         jaipur kochi goa karachi lahore islamabad dhaka colombo kathmandu beijing shanghai shenzhen guangzhou hangzhou \
         chengdu chongqing wuhan nanjing suzhou tianjin xiamen qingdao dalian ningbo changsha zhengzhou shenyang harbin \
         kunming foshan dongguan wuxi hefei jinan fuzhou zhuhai macau taipei kaohsiung taichung tokyo osaka kyoto yokohama \
         nagoya sapporo fukuoka kobe seoul busan incheon singapore bangkok phuket hanoi saigon manila cebu jakarta bandung \
         bali penang yangon sydney melbourne brisbane perth adelaide canberra hobart darwin auckland wellington christchurch \
         dunedin toronto vancouver montreal ottawa calgary edmonton winnipeg halifax victoria québec quebec boston chicago \
         seattle portland denver austin dallas houston phoenix philadelphia atlanta miami orlando tampa detroit cleveland \
         columbus cincinnati pittsburgh baltimore nashville memphis charlotte raleigh minneapolis milwaukee indianapolis \
         omaha tucson albuquerque sacramento oakland berkeley honolulu anchorage boise spokane buffalo rochester albany \
         richmond charleston savannah tulsa washington california texas florida oregon nevada arizona colorado utah idaho \
         montana ohio michigan illinois georgia virginia pennsylvania massachusetts maine vermont hawaii alaska brooklyn \
         manhattan queens guadalajara monterrey tijuana cancun havana bogota bogotá medellin medellín cali quito guayaquil \
         lima cusco santiago valparaiso montevideo asuncion brasilia brasília curitiba recife salvador fortaleza caracas \
         kingston scotland wales england bavaria tuscany provence catalonia yorkshire cornwall devon kent surrey sussex \
         ontario alberta queensland tasmania",
    )
});
/// Names of two words and more, by their first: "New York", "San Jose", "St. Gallen", "Ho Chi Minh City".
const CITY_HEADS: &[&str] = &[
    "new", "san", "santa", "los", "las", "el", "la", "le", "rio", "são", "sao", "st", "st.", "saint", "salt", "fort", "cape",
    "tel", "abu", "hong", "kuala", "ho", "buenos", "mexico", "north", "south", "east", "west", "upper", "lower", "greater",
    "den", "the", "phnom", "port", "kansas", "oklahoma", "baton",
];
/// What speaks of a home beside the verb: "to Arvika from Oslo with my family".
static HOME: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"(?i)\b(?:flats?|apartment|house|home|city|town|village|famil(?:y|ies)|wife|husband|girlfriend|boyfriend|partner|kids|university|uni|college|rent(?:ing)?|neighbou?rhood|countryside|abroad|relocat\w+|live|living|address|visa|landlord)\b",
    )
});

/// Words that are written with a capital and name nobody.
static NOBODY: LazyLock<HashSet<&'static str>> = LazyLock::new(|| {
    words(
        "back later crazy soon again anytime early late whenever asap anyway old-fashioned paranoid stupid lucky collect names \
         name",
    )
});
/// Months that are names as well.
const NAMED_MONTHS: &[&str] = &["April", "May", "June", "August", "January"];

/// Days and seasons at which one works.
static NO_EMPLOYER: LazyLock<HashSet<&'static str>> = LazyLock::new(|| {
    words(
        "christmas easter thanksgiving halloween diwali ramadan eid xmas weekends weekend nights night home times dawn dusk noon midnight lunchtime",
    )
});

/// Ends of nouns that name what somebody does.
static DOES: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"(?i)(?:er|or|ist|ian|yst|eer|ee|ant|ent|man|woman|men|person|smith|wright|herd|ographer|maid|chef|cook|nurse|clerk|lead|head|coach|guide|pilot|judge|intern|barista|paralegal|sommelier|vet|tailor|butcher|staff|host|aide|scribe|monk|priest|nun|pastor|actress|waitress|stewardess|soldier|general|midwife|hr|cto|ceo|cfo|coo|cio|vp|pm|sre|qa|dj|mc|dba|po|model|medic|diplomat|architect|sculptor|agent|spy|rep|temp|volunteer|associate|executive|representative|operative|official|professional|specialist|freelance|apprentice|graduate|fellow|chair|principal|advocate|attorney|au pair|nanny|secretary|deputy|mechanic|critic|poet|physic|tech|technician|support|engineer|dean|rector|mate|guard|bodyguard|lifeguard|steward|astronaut|athlete|courier|scout|bard|detective|chauffeur|entrepreneur|masseur|connoisseur|ambassador|captain|sergeant|major|colonel|corporal|cop|crew|hand|officer|generalist|owner)$",
    )
});
/// Nouns with such an end, or of such a form, that name no work.
static NO_WORK: LazyLock<HashSet<&'static str>> = LazyLock::new(|| {
    words(
        "matter number letter paper disaster bummer factor chapter cover order center centre answer offer power quarter \
         corner player customer user member father mother brother sister daughter lover beginner winner loser foreigner \
         newcomer subscriber follower believer smoker drinker sufferer minor senior junior parent patient resident client \
         tenant recipient tourist pessimist optimist perfectionist racist feminist minimalist vegetarian christian veteran \
         event moment statement accident important different constant pleasant element department present content \
         student-like team group pair couple unit rule whole hobby favour result means blocker placeholder starter filler \
         mirror door floor error mess nightmare joke stranger citizen person man woman human fan failure bore over better \
         other together rather never ever",
    )
});
/// How well, not what: "a terrible driver".
static HOW_WELL: LazyLock<HashSet<&'static str>> = LazyLock::new(|| {
    words(
        "good bad terrible great awful slow fast careful safe nervous lousy poor big huge real true happy proud frustrated \
         busy horrible decent better worse best worst excellent lazy keen avid fellow quick confident natural born reckless \
         cautious hopeless wonderful fantastic difficult hard critical key crucial",
    )
});

/// What an order or a complaint names as an allergen in jest: doings, states and people, no substances.
static NO_SUBSTANCE: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"(?i)(?:^|\b)(?:\w+ings?|\w+ness|\w+ism|\w+cracy|(?:commit|manage|govern|agree|argu|judge|embarrass)ments?|stupidity|responsibility|authority|mediocrity|ambiguity|code|bugs?|work|jobs?|drama|nonsense|bull\w*|mornings?|\w+days?|weekends?|deadlines?|paperwork|talk|politics|exercise|cardio|maths?|homework|excel|powerpoint|jira|yaml|php|java|javascript|e-?mails?|spreadsheets?|jargon|people|folks|strangers|men|women|kids|children|him|her|them|it|that|this|you|me|us|idiots?|managers?|boss(?:es)?|everything|anything|nothing|life|love|hate|fun|lies|noise|change|chaos|risk|failure|charm|sport|sports|gym|effort|chores|taxes|debt|crowds?|words?|excuses|compliments|hype|hugs|mild|severe|bad|new|food|skin|weird|slight|serious|drug|known|common|rare|terrible|seasonal|similar|strange|certain|strong|little|small|big)$",
    )
});
/// Things that jieba calls nouns and nobody is allergic to.
const NO_SUBSTANCE_ZH: &str = "领导 老板 同事 客户 数学 英语 代码 会议 工作 学习 考试 作业 加班 开会 上班 早起 周一 甲方 人类 男人 女人 小孩 孩子 亲戚 婚姻 爱情 鸡汤 形式主义 文档 表格 邮件 学校 运动 健身 相亲 社交 废话 谎言 套路 什么 这 那 东西 某些 一些 所有 很多 有些 有的 部分 食物 药物 季节 季节性 皮肤";

/// Ends and names of drugs, by their international stems.
static DRUG: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"(?i)^(?:\w{2,}(?:formin|statin|mycin|micin|floxacin|cillin|cycline|prazole|azole|olol|pril|sartan|dipine|xetine|oxetine|pram|azepam|azolam|zepine|triptan|setron|parin|xaban|arin|gliptin|gliflozin|glutide|tide|semide|thiazide|thyroxine|profen|fenac|coxib|codone|codeine|morphine|dryl|tadine|rizine|fenadine|vir|vudine|mab|nib|sone|solone|onide|terol|tropium|lukast|xone|pidem|clone|idone|apine|azine|barbital|giline|dopa|tamide|toin|quine|trexate|prine|limus|caine|amol|aminophen|pirin|sterone|gestrel|estradiol|dronate|cort|ridone|piprazole|tyline|traline|aline|amine|zolamide)|aspirin|insulin|lithium|warfarin|melatonin|vitamins?|vitamin [a-k]\d*|antibiotics|antidepressants|antihistamines|statins|steroids|painkillers|magnesium|zinc|iron|creatine|probiotics|prednisone|xanax|zoloft|prozac|lipitor|tylenol|advil|adderall|ritalin|lexapro|ozempic|wegovy|eliquis|xarelto|plavix|synthroid|ventolin|concerta|humira|methotrexate|levothyroxine|digoxin|birth-?control|heparin|gabapentin|pregabalin|tamoxifen|finasteride|omega-?3|blood thinners|beta blockers?|ssris?)$",
    )
});
/// The same in Chinese: stems and forms.
static DRUG_ZH: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"(?:双胍|他汀|洛尔|普利|沙坦|地平|西林|霉素|沙星|拉唑|替丁|司匹林|匹林|洛芬|胰岛素|维生素|抗生素|激素|甲状腺素|褪黑素|肝素|法林|格雷|西汀|舍曲林|曲林|西泮|唑仑|拉定|替利嗪|他定|奥司他韦|米松|泼尼松|尼松|叶酸|钙片|维[ABCDEKabcdek]|铁剂|避孕药|降压药|降糖药|止痛药|安眠药|抗过敏药|感冒药|中药|[\p{Han}]{2,}(?:胶囊|药片|冲剂|颗粒|口服液|缓释片|药))$",
    )
});
const NO_DRUG_ZH: &str = "薯片 农药 火药 吃药 炸药";

/// Ends of nouns that name what somebody does, in Chinese.
static DOES_ZH: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"(?:[师员长生工匠警兵官监者]|经理|顾问|会计|律师|秘书|助理|主管|主任|教授|编辑|主编|司机|销售|翻译|导演|画家|作家|专家|护士|运营|前台|文秘|客服|采购|出纳|法官|店主|老板|合伙人|创始人|负责人|经纪人|主持人|猎头|总裁|总编|副总|总工|架构|厨子|大厨|保安|保姆|月嫂|中介|博主|主播|歌手|模特|演员|大夫|记者|架构|开发|测试|设计|产品|策划|行政|人事|财务|法务|研发|码农|电工|木工|教练|裁判|学者|公务员|自由职业|[A-Za-z]+)$",
    )
});

/// The part of a value that a key can take; none when it can take none of it. `text` is the sentence, simplified and folded; the
/// value stands at `at` in it.
pub(crate) fn taken(takes: Takes, text: &str, at: Range<usize>) -> Option<Range<usize>> {
    let value = &text[at.clone()];
    if value.chars().any(is_han) {
        // The wording of a substance puts its own word before it, which may make another with it: 对|虾.
        let from = if takes == Takes::Substance { at.start } else { 0 };
        let mut tokens = tokens_of(&text[from..], &(at.start - from..at.end - from), takes == Takes::Person)?;
        if takes == Takes::Person {
            let name = tokens.iter().enumerate().position(|(i, token)| i > 0 && ends_name(token)).unwrap_or(tokens.len());
            tokens.truncate(name);
        }
        let length: usize = tokens.iter().map(|token| token.word.len()).sum();
        let part = at.start..at.start + length.min(value.len());
        return han_value(takes, text[part.clone()].trim(), &tokens).then_some(part);
    }
    let length = match takes {
        Takes::Occupation | Takes::Substance => ENDS.find(value).map_or(value.len(), |end| end.start()),
        Takes::Place | Takes::Person | Takes::Address | Takes::Organisation | Takes::Date | Takes::Drug => value.len(),
    };
    let part = at.start..at.start + length;
    latin_value(takes, text[part.clone()].trim(), text, at.start).then_some(part)
}

/// Where a noun phrase ends and what is said beside it begins: "nurse at St Mary's", "peanuts since birth".
static ENDS: LazyLock<Pattern> = LazyLock::new(|| {
    regex(
        r"(?i) (?:at|in|on|with|for|from|by|since|because|when|whenever|if|as|though|although|which|that|who|where|while|until|till|too|also|now|nowadays|currently|here|there|btw|and|or|but|so|please|per|than|to|of (?:my|our|the|a|his|her)|i|i'm|my|we|it|like)\b",
    )
});

fn latin_value(takes: Takes, value: &str, text: &str, start: usize) -> bool {
    match takes {
        Takes::Place => is_place(value, text, start),
        Takes::Person | Takes::Address => {
            let first = value.split(' ').next().unwrap_or_default();
            (is_name_word(first) || NAMED_MONTHS.contains(&first) && takes == Takes::Person)
                && !NOBODY.contains(&*first.to_lowercase())
                && !value.ends_with("'s")
        }
        Takes::Organisation => {
            let first = value.split(' ').next().unwrap_or_default();
            is_name_word(first) && !NO_EMPLOYER.contains(&*value.to_lowercase())
        }
        Takes::Occupation => is_occupation(value),
        Takes::Date => {
            let month = |word: &str| MONTHS.contains(&&*word.to_lowercase());
            value.bytes().any(|b| b.is_ascii_digit()) || value.contains(' ') && value.split([' ', ',', '-', '/']).any(month)
        }
        // A sting is one of the few doings of others that a body reacts to.
        Takes::Substance => !value.is_empty() && (value.contains("sting") || !NO_SUBSTANCE.is_match(value)),
        Takes::Drug => DRUG.is_match(value) && !matches!(&*value.to_lowercase(), "determine" | "examine" | "vitamine"),
    }
}

const MONTHS: &[&str] = &[
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
    "jan",
    "feb",
    "mar",
    "apr",
    "jun",
    "jul",
    "aug",
    "sep",
    "sept",
    "oct",
    "nov",
    "dec",
];

fn is_place(value: &str, text: &str, at: usize) -> bool {
    let lower = value.to_lowercase();
    let mut parts = lower.split(' ');
    let (first, last) = (parts.next().unwrap_or_default(), lower.split(' ').next_back().unwrap_or_default());
    if !is_name_word(value.split(' ').next().unwrap_or_default()) && !CITY_HEADS.contains(&first) {
        return false;
    }
    if COUNTRY.is_match(value) || lower.ends_with("'s") || NO_PLACE.contains(first) || NO_PLACE.contains(last) {
        return false;
    }
    // Behind "to" stands a place of the map, or the sentence speaks of a home.
    let goal = text[..at].trim_end().to_lowercase().ends_with(" to");
    let known = CITIES.contains(first) || CITIES.contains(last) || CITY_HEADS.contains(&first) && parts.next().is_some();
    !goal
        || known
        || HOME.is_match(text)
        || text[at + value.len()..].starts_with(", ") && next_is_name(&text[at + value.len() + 2..])
}

/// "Arvika, Sweden".
fn next_is_name(rest: &str) -> bool {
    let word = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    word.starts_with(char::is_uppercase) && is_name_word(word)
}

fn is_occupation(value: &str) -> bool {
    let lower = value.to_lowercase();
    let (first, last) = (lower.split(' ').next().unwrap_or_default(), lower.split(' ').next_back().unwrap_or_default());
    DOES.is_match(last) && !NO_WORK.contains(last) && !HOW_WELL.contains(first)
}

struct Word<'t> {
    word: &'t str,
    tag: &'t str,
}

/// Words of the dictionary that a value is made of; none when it begins or ends inside one: 我|叫苦连天, 我|住院|了, 对|开会|过敏.
/// The wording of a name may run on into what follows. Without the statistical model: it glues what the dictionary lacks to
/// what it knows.
fn tokens_of<'t>(text: &'t str, at: &Range<usize>, runs_on: bool) -> Option<Vec<Word<'t>>> {
    let mut from = 0;
    let mut out = Vec::new();
    for token in jieba().tag(text, false) {
        let to = from + token.word.len();
        if from < at.end && to > at.start {
            // Of "上海市" the wording leaves out what kind of place it is.
            let whole = to <= at.end || ["市", "市区", "区", "县", "省"].contains(&&text[at.end..to]);
            if from < at.start || !whole && !runs_on {
                return None;
            }
            if !whole {
                break;
            }
            out.push(Word { word: token.word, tag: token.tag });
        }
        from = to;
    }
    Some(out)
}

fn is_proper(tag: &str) -> bool {
    matches!(tag, "nr" | "ns" | "nt" | "nz" | "nrt" | "nrfg" | "j")
}

/// A word that says something of a thing, or points at one, and is no part of a name.
fn is_light(tag: &str) -> bool {
    tag.starts_with(['r', 'u', 'p', 'c', 'y', 'd', 'e', 'o']) || matches!(tag, "v" | "m" | "t" | "s" | "f")
}

fn han_value(takes: Takes, value: &str, tokens: &[Word<'_>]) -> bool {
    let single = tokens.len() > 1 && tokens.iter().all(|token| token.word.chars().count() == 1);
    let any = |test: &dyn Fn(&Word<'_>) -> bool| tokens.iter().any(test);
    match takes {
        Takes::Place => {
            let institution = value.ends_with(PREMISES) || SOME_PLACE.contains(&value);
            // Two characters that the dictionary lacks as a word: "唐山", "根特".
            let counted = value.starts_with(['新', '旧', '别', '哪', '几', '这', '那', '每', '各'])
                || any(&|t| matches!(t.tag, "m" | "r" | "ul"));
            let unknown = single && value.chars().count() == 2 && !counted || OTHER_WORDS.contains(&value);
            !institution
                && !COUNTRY.is_match(value)
                && (unknown || any(&|t| is_proper(t.tag)) && !any(&|t| is_light(t.tag) || t.tag == "vn"))
        }
        Takes::Person => is_person(value, tokens, single),
        Takes::Address => {
            is_person(value, tokens, single)
                || value.starts_with(['小', '老', '阿', '大']) && value.chars().count() == 2
                || tokens
                    .iter()
                    .all(|t| matches!(t.tag, "n" | "nr" | "nrt" | "nz" | "x") || t.word.chars().count() == 1 && !is_light(t.tag))
                    && !NO_ADDRESS.iter().any(|end| value.ends_with(end))
        }
        Takes::Organisation => {
            let owned = any(&|t| matches!(t.tag, "m" | "r" | "v" | "p") || KIN_ZH.contains(&t.word));
            !owned
                && (any(&|t| matches!(t.tag, "nz" | "nt" | "nr" | "nrt" | "eng" | "j")) && !value.ends_with('家')
                    || tokens.len() > 1 && ORGANISATIONS.iter().any(|end| value.ends_with(end)))
        }
        Takes::Occupation => {
            DOES_ZH.is_match(value)
                && !any(&|t| {
                    t.word == "的"
                        || t.tag == "r"
                        || t.tag.starts_with('u')
                        || "来看找去等请想见给跟问说让被帮叫陪".contains(t.word)
                })
        }
        Takes::Date => true,
        Takes::Substance => {
            let plain = |t: &Word<'_>| {
                NO_SUBSTANCE_ZH.split(' ').any(|word| word == t.word)
                    || matches!(t.tag, "r" | "t" | "u" | "d" | "y" | "ad")
                    || t.tag == "v" && t.word.chars().count() > 1
            };
            !tokens.is_empty() && !any(&plain)
        }
        Takes::Drug => DRUG_ZH.is_match(value) && !NO_DRUG_ZH.split(' ').any(|word| value.ends_with(word)),
    }
}

/// Ends of what one is in without residing there, "市" and "区" aside.
const PREMISES: &[char] = &[
    '司', '院', '店', '校', '馆', '部', '厅', '家', '所', '室', '房', '楼', '社', '局', '舍', '边', '近', '里', '上', '下', '厂',
    '组', '队', '版',
];
/// Towns whose names the dictionary takes for other words: 大连 for an adverb, 大理 for a noun.
const OTHER_WORDS: &[&str] =
    &["大连", "大理", "根特", "保定", "安康", "永安", "长治", "平顶山", "同安", "安庆", "尼斯", "波恩", "科隆", "剑桥", "波士顿"];
/// Which part of a town, not of which town.
const SOME_PLACE: &[&str] = &[
    "老城区",
    "新城区",
    "主城区",
    "城区",
    "市区",
    "郊区",
    "新区",
    "开发区",
    "工业区",
    "山区",
    "景区",
    "小区",
    "社区",
    "学区",
    "江南水乡",
];
/// What a person is called by, not with.
const NO_ADDRESS: &[&str] = &["名", "名字", "回家", "外号", "绰号", "昵称", "早饭", "午饭", "晚饭", "电话"];
const ORGANISATIONS: &[&str] =
    &["公司", "集团", "银行", "大学", "学院", "医院", "科技", "研究院", "研究所", "中学", "小学", "事务所"];
const KIN_ZH: &[&str] = &["朋友", "爸爸", "妈妈", "老公", "老婆", "亲戚", "同学", "家里", "自己", "别人", "客户", "对方"];

/// What follows a name without a mark between: "我叫林薇住在杭州", "我叫李明今年30岁".
fn ends_name(token: &Word<'_>) -> bool {
    let long = token.word.chars().count() > 1;
    long && is_light(token.tag)
        || matches!(token.word, "住" | "在" | "是" | "来" | "从" | "今" | "的" | "了" | "吧" | "就" | "有" | "属" | "和")
}

const DOUBLE_SURNAMES: &[&str] =
    &["欧阳", "上官", "司马", "司徒", "诸葛", "皇甫", "慕容", "夏侯", "尉迟", "公孙", "东方", "独孤", "令狐", "端木", "南宫"];

fn is_person(value: &str, tokens: &[Word<'_>], single: bool) -> bool {
    if value.chars().count() == 1 || DOUBLE_SURNAMES.iter().any(|surname| value.starts_with(surname)) {
        return value.chars().count() <= 4 && !tokens.iter().any(|t| is_light(t.tag));
    }
    personal_name(value, 0).is_some_and(|name| name.start == 0) && value.chars().count() <= 4
        || tokens.iter().any(|t| matches!(t.tag, "nr" | "nrt" | "nrfg"))
            && !tokens.iter().any(|t| t.word.chars().count() > 1 && is_light(t.tag))
        || value.starts_with(['小', '阿', '老']) && value.chars().count() == 2
        || single && !tokens.iter().any(|t| is_light(t.tag) || t.tag == "q")
}
