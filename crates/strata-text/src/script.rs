//! Scripts of characters. Language is told by script share, not by a statistical detector: those fail on short and on
//! mixed text ("ok", "deploy 用哪个 region").

use std::collections::HashMap;
use std::sync::LazyLock;
use strata_core::text::Language;

/// Han ideographs, with the extensions and the compatibility block.
#[must_use]
pub const fn is_han(c: char) -> bool {
    matches!(c, '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{323af}' | '々' | '〇')
}

/// Traditional characters of everyday words, in the order of their code points, and the simplified ones for them. Each is as
/// long as its counterpart, so that places in a text stay what they are.
const TRADITIONAL: &str = "亞來個們倫偉傑傭僱價億兒內兩別剛劇劉務勝區吳員問喫單嗎嚴國圖塊塵壓夠婦媽孫學實寧寫寶對導嶼師幣廈廣張強後從復愛慣\
慶應戶換擔據攝數於時曆會東楊業樣機歡歲歷殘氣沒淨湯準滬漢潰濕濟瀋灣為烏無煙營爺爾獨現產畫異當瘍癇癢癲監盧確禮種節\
簡約紅納紐紹給經維緊線緣縂縣總繫羅義習聯職聽聾腦膠臺與興艙華葉葷蔣蕭薩藥蘇蘭處號蝦蟎裡覆見視親覺訂計記設許診話詳\
認語說請講謝識譚譯護變讓貓貝貴賈賓趙車軍軟輕農這連過達遷選遼還邊郵鄉鄒鄧鄭醫銀錢錯鍾鎮鐵長門開間闆關陰陳陸陽雙雞\
離雲電靜韓響頓領頭額顏願顧風飛飲馬馮魚魯鳳鹽麗麵麼黃點齊齋龍";
const SIMPLIFIED: &str = "亚来个们伦伟杰佣雇价亿儿内两别刚剧刘务胜区吴员问吃单吗严国图块尘压够妇妈孙学实宁写宝对导屿师币厦广张强后从复爱惯\
庆应户换担据摄数于时历会东杨业样机欢岁历残气没净汤准沪汉溃湿济沈湾为乌无烟营爷尔独现产画异当疡痫痒癫监卢确礼种节\
简约红纳纽绍给经维紧线缘总县总系罗义习联职听聋脑胶台与兴舱华叶荤蒋萧萨药苏兰处号虾螨里复见视亲觉订计记设许诊话详\
认语说请讲谢识谭译护变让猫贝贵贾宾赵车军软轻农这连过达迁选辽还边邮乡邹邓郑医银钱错钟镇铁长门开间板关阴陈陆阳双鸡\
离云电静韩响顿领头额颜愿顾风飞饮马冯鱼鲁凤盐丽面么黄点齐斋龙";
static SIMPLER: LazyLock<HashMap<char, char>> = LazyLock::new(|| TRADITIONAL.chars().zip(SIMPLIFIED.chars()).collect());

/// A text with the traditional characters of everyday words written as simplified ones, byte for byte in the same places.
pub(crate) fn simplified(text: &str) -> String {
    text.chars().map(|c| if is_han(c) { SIMPLER.get(&c).copied().unwrap_or(c) } else { c }).collect()
}

/// Hiragana and katakana, with the long-vowel mark.
#[must_use]
pub const fn is_kana(c: char) -> bool {
    matches!(c, '\u{3041}'..='\u{3096}' | '\u{309d}'..='\u{309f}' | '\u{30a1}'..='\u{30fa}' | '\u{30fc}'..='\u{30ff}' | '\u{31f0}'..='\u{31ff}')
}

/// Hangul syllables and letters.
#[must_use]
pub const fn is_hangul(c: char) -> bool {
    matches!(c, '\u{1100}'..='\u{11ff}' | '\u{3130}'..='\u{318f}' | '\u{a960}'..='\u{a97f}' | '\u{ac00}'..='\u{d7ff}')
}

/// Written without spaces between words, or (Hangul) with endings glued on: searched by substring.
#[must_use]
pub const fn is_cjk(c: char) -> bool {
    is_han(c) || is_kana(c) || is_hangul(c)
}

/// Letters, digits and ideographs: the content characters of rule G5.
#[must_use]
pub fn is_content(c: char) -> bool {
    c.is_alphanumeric()
}

/// Language of a text by script share. A Han character weighs as three letters, about what it says; any kana or Hangul
/// that outweighs both makes it other. A text without letters is English (nothing in it is language).
#[must_use]
pub fn language(text: &str) -> Language {
    let (mut latin, mut han, mut other) = (0_u64, 0_u64, 0_u64);
    for c in text.chars() {
        if is_han(c) {
            han += 3;
        } else if is_kana(c) || is_hangul(c) {
            other += 3;
        } else if c.is_alphabetic() {
            if c.is_ascii() || matches!(c, '\u{c0}'..='\u{24f}' | '\u{ff21}'..='\u{ff5a}') {
                latin += 1;
            } else {
                other += 1;
            }
        }
    }
    // Japanese is a mixture: kana beside Han is Japanese unless it is a mere sprinkle.
    if other > latin && other * 8 >= han {
        Language::Other
    } else if han >= latin && han > 0 {
        Language::Chinese
    } else {
        Language::English
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn language_is_told_by_script_share() {
        for (text, expected) in [
            ("The user prefers email over phone.", Language::English),
            ("ok", Language::English),
            ("", Language::English),
            ("42", Language::English),
            ("café au lait", Language::English),
            ("Ｈｅｌｌｏ", Language::English),
            ("我不吃辣", Language::Chinese),
            ("deploy 用哪个 region", Language::English),
            ("帮我部署到 staging 环境", Language::Chinese),
            ("我在 Kubernetes 上部署了 Redis cluster", Language::English),
            ("東京の予算承認は月曜日", Language::Other),
            ("배포 점검표는 스테이징에서 확인", Language::Other),
            ("مرحبا بالعالم", Language::Other),
            ("Привет, мир", Language::Other),
        ] {
            assert_eq!(language(text), expected, "{text}");
        }
    }
}
