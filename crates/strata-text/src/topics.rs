//! What a text is about: its words without those that only relate, qualify or address (rule G12: a record is about
//! something that its quote speaks of).

use crate::analyze::{analyze_query, jieba};
use crate::clean::Cleaned;
use crate::script::is_han;
use std::collections::{BTreeSet, HashSet};
use std::sync::LazyLock;

/// Words that say how somebody stands to a thing, not which thing: attitudes, possession, use, naming, degree, time. As
/// the analyser stems them.
const RELATING: &str = "like likes love loves enjoy enjoys prefer prefers preferred want wants wish hate hates dislike dislikes \
    avoid avoids need needs use uses used using eat eats drink drinks take takes took have has had own owns live lives living work \
    works working call called calls name named address addressed know knows think say said tell told ask asks get gets got make \
    makes made go goes going come keep keeps put set let give gives be is was become became stay remain start stop stopped quit \
    change changed switch switched move moved moving always never usually often sometimes really very much many lot every each \
    now currently anymore longer today ever still already yet only just also too even well good bad great best better favourite \
    favorite fan keen interested into thing things something anything nothing person people one someone user users client \
    customer please thank remember note future time times day days way kind sort type new old like, stand can't cannot don't \
    doesn't didn't won't isn't i'm i've i'd i'll it's that's let's wouldn't couldn't shouldn't wasn't aren't haven't hasn't prefers, \
    expect expects should must may might able allowed no not yes ok wants. no. regard regarding concern concerning about per \
    first second seldom rarely hardly scarcely barely own play plays drive drives collect collects speak speaks read reads watch watches";
/// The same in Chinese.
const RELATING_HAN: &str = "用户 本人 自己 喜欢 爱 爱好 爱好者 偏好 更喜欢 讨厌 不喜欢 想 想要 要 希望 需要 不要 别 使用 用 吃 喝 有 没有 拥有 住 \
    住在 居住 工作 上班 叫 叫做 称为 称呼 名字 名叫 知道 觉得 认为 说 告诉 问 得到 做 去 来 放 给 是 成为 变成 改 改成 换 换成 搬 搬到 开始 停止 \
    不再 总是 从不 从来 永远 经常 常常 很少 极少 几乎 难得 通常 一般 有时 非常 很 特别 最 更 比较 每 每次 现在 目前 以后 今后 今天 已经 只 也 还 都 好 不好 东西 事情 \
    事 人 客户 请 谢谢 记住 记得 时候 时间 天 种 类 新 旧 受不了 不 没 会 能 可以 应该 必须 可能 被 对 把 在 到 和 与 跟 当 开 忌 避免 \
    感兴趣 兴趣 期望 打算 一个 一条 一只 一名 一位 的话 拉 打 看 读 学 买 玩";

static STEMS: LazyLock<HashSet<String>> = LazyLock::new(|| {
    RELATING.split_whitespace().flat_map(|word| analyze_query(word).into_iter().chain([word.to_owned()])).collect()
});
static HAN: LazyLock<HashSet<&'static str>> = LazyLock::new(|| RELATING_HAN.split_whitespace().collect());

/// Topics of a text: see [`strata_core::text::TextFeatures::topics`]. Of a word of two or more ideographs every pair, since
/// two texts cut the same words differently.
pub(crate) fn topics(text: &str) -> Vec<String> {
    let cleaned = Cleaned::new(text);
    let mut out = BTreeSet::new();
    let mut latin = String::with_capacity(cleaned.text.len());
    let mut run = String::new();
    for c in cleaned.text.chars().chain(['\n']) {
        if is_han(c) {
            run.push(c);
            latin.push(' ');
            continue;
        }
        if !run.is_empty() {
            han_topics(&run, &mut out);
            run.clear();
        }
        latin.push(c);
    }
    for word in analyze_query(&latin) {
        let carries = word.chars().any(char::is_alphanumeric) && word.chars().count() > 1;
        if carries && !STEMS.contains(&word) {
            out.insert(word);
        }
    }
    out.into_iter().collect()
}

fn han_topics(run: &str, out: &mut BTreeSet<String>) {
    for token in jieba().cut(run, true) {
        let word = token.word;
        if HAN.contains(word) {
            continue;
        }
        let letters: Vec<char> = word.chars().collect();
        // The dictionary knows "喝咖啡" and "喝茶" as words: the thing is what the verb has behind it.
        let verbs = letters.iter().take_while(|c| is_verb(**c)).count().min(letters.len() - 1);
        match &letters[verbs..] {
            [one] => {
                if !is_particle(*one) && !HAN.contains(one.to_string().as_str()) {
                    out.insert(one.to_string());
                }
            }
            more => out.extend(more.windows(2).map(|pair| pair.iter().collect::<String>())),
        }
    }
}

/// Single characters that relate to the thing behind them.
fn is_verb(c: char) -> bool {
    "吃喝看买用开打玩学读养坐爱想要去不没抽".contains(c)
}

/// Single characters that never name a thing by themselves.
fn is_particle(c: char) -> bool {
    "的了着过吗呢吧啊呀嘛么我你您他她它们这那些个位名条只张本份第几多少上下里外中前后左右又再才就却而且但因所以如若虽等及或并于从向往由为以之其此".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g12_topics_name_things_not_attitudes() {
        for (text, expected) in [
            ("The user likes coffee.", vec!["coffe"]),
            ("I like tea", vec!["tea"]),
            ("用户喜欢喝咖啡", vec!["咖啡"]),
            ("我喜欢喝茶", vec!["茶"]),
            ("我不吃贝类", vec!["贝类"]),
            ("用户忌贝类。", vec!["贝类"]),
            ("I want it", vec![]),
        ] {
            assert_eq!(topics(text), expected, "{text}");
        }
    }
}
