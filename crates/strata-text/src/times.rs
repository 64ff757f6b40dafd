//! Dates, times of day, durations and relative days of both languages, to one normal form (rules S3, G12):
//!
//! | written | normal |
//! |---|---|
//! | 2:30 pm, 14:30, 下午两点半, 14时30分 | `14:30` |
//! | 2026-05-03, 2026年5月3日, May 3, 2026 | `2026-05-03` |
//! | 5月3日, 3 May | `--05-03` |
//! | Monday, 周一, 星期一 | `weekday 1`; next Monday, 下周一: `week +1 weekday 1` |
//! | tomorrow, 明天 | `day +1` |
//! | 5 s, 5 seconds, 5秒 | `5 s` |

use crate::numerals::{HAN_DIGITS, parse_han};
use crate::pattern::Captures;
use crate::phrases::Listed;
use std::ops::Range;
use std::sync::LazyLock;

/// A time found in a cleaned text.
pub(crate) struct Time {
    pub(crate) span: Range<usize>,
    pub(crate) normal: String,
}

type Reader = fn(&Captures<'_>) -> Option<String>;

const MONTH: &str = "jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?";
const COUNT: &str =
    "a|an|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|twenty|thirty|forty|sixty|ninety";
const UNIT: &str = "milliseconds?|ms|seconds?|secs?|s|minutes?|mins?|min|hours?|hrs?|h|days?|weeks?|months?|years?|yrs?";
const LONG_UNIT: &str = "milliseconds?|seconds?|minutes?|hours?|days?|weeks?|months?|years?";

/// Expressions, most specific first; a later one never overlaps an earlier one's find.
static RULES: LazyLock<Listed<Reader>> = LazyLock::new(|| {
    let zh = format!(r"\d+|[{HAN_DIGITS}]+");
    let rules: Vec<(String, Reader)> = vec![
        // ISO instant: the date part, then the clock part is found by itself.
        (r"(?-u:\b)(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?-u:\b|T)".into(), |c| date(num(c, 1), num(c, 2), num(c, 3))),
        (format!(r"(\d{{4}}|[{HAN_DIGITS}]{{4}})年({zh})月({zh})[日号]?"), |c| date(num(c, 1), num(c, 2), num(c, 3))),
        (format!(r"(\d{{4}}|[{HAN_DIGITS}]{{4}})年({zh})月份?"), |c| {
            Some(format!("{:04}-{:02}", num(c, 1)?, month(num(c, 2)?)?))
        }),
        (format!(r"({zh})月({zh})[日号]?"), |c| date(None, num(c, 1), num(c, 2))),
        (format!(r"(?i)(?-u:\b)({MONTH})\.? (\d{{1,2}})(?:st|nd|rd|th)?,? (\d{{4}})(?-u:\b)"), |c| {
            date(num(c, 3), month_name(c.get(1)?.as_str()), num(c, 2))
        }),
        (format!(r"(?i)(?-u:\b)(\d{{1,2}})(?:st|nd|rd|th)?(?: of)? ({MONTH})\.?,? (\d{{4}})(?-u:\b)"), |c| {
            date(num(c, 3), month_name(c.get(2)?.as_str()), num(c, 1))
        }),
        (format!(r"(?i)(?-u:\b)({MONTH})\.? (\d{{4}})(?-u:\b)"), |c| {
            Some(format!("{:04}-{:02}", num(c, 2)?, month_name(c.get(1)?.as_str())?))
        }),
        (format!(r"(?i)(?-u:\b)({MONTH})\.? (\d{{1,2}})(?:st|nd|rd|th)?(?-u:\b)"), |c| {
            date(None, month_name(c.get(1)?.as_str()), num(c, 2))
        }),
        (format!(r"(?i)(?-u:\b)(\d{{1,2}})(?:st|nd|rd|th)?(?: of)? ({MONTH})(?-u:\b)"), |c| {
            date(None, month_name(c.get(2)?.as_str()), num(c, 1))
        }),
        (r"(\d{4})年".into(), |c| num(c, 1).map(|y| format!("{y:04}"))),
        // Times of day.
        (r"(?i)(?-u:\b)(\d{1,2})(?:[:.](\d{2}))?(?::(\d{2}))? ?(a|p)\.?m(?-u:\b)\.?".into(), |c| {
            let hour = num(c, 1).filter(|h| (1..=12).contains(h))? % 12 + if c[4].eq_ignore_ascii_case("p") { 12 } else { 0 };
            clock(hour, num(c, 2), num(c, 3))
        }),
        (r"(凌晨|早上|早晨|清晨|上午|中午|下午|傍晚|晚上|夜里|深夜)(\d{1,2}):(\d{2})".into(), |c| {
            clock(by_period(&c[1], num(c, 2)?), num(c, 3), None)
        }),
        (r"(?-u:\b)([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?(?-u:\b)".into(), |c| clock(num(c, 1)?, num(c, 2), num(c, 3))),
        (
            format!(
                r"(凌晨|早上|早晨|清晨|上午|中午|下午|傍晚|晚上|夜里|深夜|今晚|明晚)?({zh})[点點](钟|半|整|[一三]刻|(?:{zh})分?)?"
            ),
            chinese_clock,
        ),
        (r"(\d{1,2})时(\d{1,2})分".into(), |c| clock(num(c, 1)?, num(c, 2), None)),
        (r"(?i)(?-u:\b)(noon|midnight)(?-u:\b)".into(), |c| {
            Some(if c[1].eq_ignore_ascii_case("noon") { "12:00" } else { "00:00" }.into())
        }),
        // Weekdays.
        (
            r"(?i)(?-u:\b)(?:(this|next|last|every|on) )?(monday|tuesday|wednesday|thursday|friday|saturday|sunday)s?(?-u:\b)"
                .into(),
            |c| Some(weekday(c.get(1).map_or("", |m| m.as_str()), weekday_name(&c[2])?)),
        ),
        (r"(?-u:\b)(Mon|Tue|Tues|Wed|Thu|Thurs|Fri)(?-u:\b)".into(), |c| Some(weekday("", weekday_name(&c[1])?))),
        (
            r"(下下个?|下个?|上上个?|上个?|本|这个?|每个?)?(?:周|星期|礼拜)([一二三四五六日天])".into(),
            |c| {
                let day = match &c[2] {
                    "日" | "天" => 7,
                    d => parse_han(d)?,
                };
                Some(weekday(c.get(1).map_or("", |m| m.as_str()), day))
            },
        ),
        // Relative days and spans.
        (r"(?i)(?-u:\b)(the day after tomorrow|the day before yesterday|tomorrow|yesterday|today|tonight)(?-u:\b)".into(), |c| {
            Some(format!(
                "day {}",
                match c[1].to_lowercase().as_str() {
                    "the day after tomorrow" => "+2",
                    "the day before yesterday" => "-2",
                    "tomorrow" => "+1",
                    "yesterday" => "-1",
                    _ => "+0",
                }
            ))
        }),
        (
            "(大后天|大前天|后天|前天|明天|明日|明晚|明早|昨天|昨日|昨晚|今天|今日|今晚|今早)".into(),
            |c| {
                Some(format!(
                    "day {}",
                    match &c[1] {
                        "大后天" => "+3",
                        "大前天" => "-3",
                        "后天" => "+2",
                        "前天" => "-2",
                        "明天" | "明日" | "明晚" | "明早" => "+1",
                        "昨天" | "昨日" | "昨晚" => "-1",
                        _ => "+0",
                    }
                ))
            },
        ),
        (r"(?i)(?-u:\b)(this|next|last) (week|weekend|month|quarter|year)(?-u:\b)".into(), |c| {
            let step = match c[1].to_lowercase().as_str() {
                "next" => "+1",
                "last" => "-1",
                _ => "+0",
            };
            Some(format!("{} {step}", c[2].to_lowercase()))
        }),
        ("(下|上|本|这)个?(周末|周|星期|礼拜|月|季度)".into(), |c| {
            let step = match &c[1] {
                "下" => "+1",
                "上" => "-1",
                _ => "+0",
            };
            let unit = match &c[2] {
                "周末" => "weekend",
                "月" => "month",
                "季度" => "quarter",
                _ => "week",
            };
            Some(format!("{unit} {step}"))
        }),
        ("(明年|去年|今年|后年|前年)".into(), |c| {
            Some(format!(
                "year {}",
                match &c[1] {
                    "明年" => "+1",
                    "去年" => "-1",
                    "后年" => "+2",
                    "前年" => "-2",
                    _ => "+0",
                }
            ))
        }),
        // Durations.
        (format!(r"(?i)(?-u:\b)(\d+(?:\.\d+)?)[ -]?({UNIT})(?-u:\b)"), |c| Some(format!("{} {}", &c[1], unit(&c[2])?))),
        (format!(r"(?i)(?-u:\b)(half an|{COUNT})[ -]({LONG_UNIT})(?-u:\b)"), |c| {
            Some(format!("{} {}", english_count(&c[1])?, unit(&c[2])?))
        }),
        (
            format!(r"(\d+(?:\.\d+)?|[{HAN_DIGITS}]+|半) ?个?(毫秒|秒钟|秒|分钟|小时|钟头|工作日|天|周|星期|礼拜|月|年)(半)?"),
            chinese_duration,
        ),
        (r"(\d{1,2})[日号](?:[^\p{Han}]|$|前|之前|后|以后|到|是|开|交|发|起|晚|早|上|下)".into(), |c| {
            num(c, 1).filter(|d| (1..=31).contains(d)).map(|d| format!("---{d:02}"))
        }),
    ];
    Listed::new(rules)
});

/// Times of a cleaned text; spans may overlap, an earlier one in the list is the better reading.
pub(crate) fn times(text: &str) -> Vec<Time> {
    let mut found = Vec::new();
    for (pattern, reader) in RULES.candidates(text) {
        for captures in pattern.captures_iter(text) {
            let Some(whole) = captures.get(0) else { continue };
            if let Some(normal) = reader(&captures) {
                // Look-ahead is spelled as a trailing character, and is not part of the time.
                let end = if normal.starts_with("---") {
                    whole.start() + whole.as_str().find(['日', '号']).map_or(whole.as_str().len(), |i| i + 3)
                } else {
                    whole.end()
                };
                let end = if text[whole.start()..end].ends_with('T') { end - 1 } else { end };
                found.push(Time { span: whole.start()..end, normal });
            }
        }
    }
    found
}

fn num(captures: &Captures<'_>, group: usize) -> Option<u64> {
    let text = captures.get(group)?.as_str();
    text.parse().ok().or_else(|| parse_han(text))
}

fn month(number: u64) -> Option<u64> {
    (1..=12).contains(&number).then_some(number)
}

fn month_name(name: &str) -> Option<u64> {
    const NAMES: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let name = name.to_lowercase();
    NAMES.iter().position(|n| name.starts_with(n)).map(|i| i as u64 + 1)
}

fn weekday_name(name: &str) -> Option<u64> {
    const NAMES: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
    let name = name.to_lowercase();
    NAMES.iter().position(|n| name.starts_with(n)).map(|i| i as u64 + 1)
}

fn weekday(which: &str, day: u64) -> String {
    match which.to_lowercase().trim_end_matches('个') {
        "next" | "下" => format!("week +1 weekday {day}"),
        "下下" => format!("week +2 weekday {day}"),
        "last" | "上" => format!("week -1 weekday {day}"),
        "上上" => format!("week -2 weekday {day}"),
        _ => format!("weekday {day}"),
    }
}

fn date(year: Option<u64>, month_number: Option<u64>, day: Option<u64>) -> Option<String> {
    let (m, d) = (month(month_number?)?, day.filter(|d| (1..=31).contains(d))?);
    Some(year.map_or_else(|| format!("--{m:02}-{d:02}"), |y| format!("{y:04}-{m:02}-{d:02}")))
}

fn clock(hour: u64, minute: Option<u64>, second: Option<u64>) -> Option<String> {
    let minute = minute.unwrap_or(0);
    if hour > 24 || minute > 59 || second.is_some_and(|s| s > 59) {
        return None;
    }
    let mut out = format!("{:02}:{minute:02}", hour % 24);
    if let Some(s) = second.filter(|s| *s > 0) {
        out.push_str(&format!(":{s:02}"));
    }
    Some(out)
}

fn by_period(period: &str, hour: u64) -> u64 {
    match period {
        "下午" | "傍晚" | "晚上" | "夜里" | "深夜" | "今晚" | "明晚" if hour < 12 => hour + 12,
        "中午" if hour < 4 => hour + 12,
        "凌晨" if hour == 12 => 0,
        _ => hour,
    }
}

fn chinese_clock(c: &Captures<'_>) -> Option<String> {
    let (period, rest) = (c.get(1).map(|m| m.as_str()), c.get(3).map(|m| m.as_str()));
    // "一点" is mostly "a little", "两点意见" is "two points": a bare one is a time only in digits or with a sign of it.
    if period.is_none()
        && rest.is_none()
        && !c[2].bytes().all(|b| b.is_ascii_digit())
        && matches!(&c[2], "一" | "两" | "二" | "三" | "几")
    {
        return None;
    }
    let hour = num(c, 2).filter(|h| *h <= 24)?;
    let minute = match rest {
        None | Some("钟" | "整") => 0,
        Some("半") => 30,
        Some("一刻") => 15,
        Some("三刻") => 45,
        Some(text) => {
            let text = text.trim_end_matches('分');
            text.parse().ok().or_else(|| parse_han(text)).filter(|m| *m < 60)?
        }
    };
    clock(period.map_or(hour, |p| by_period(p, hour)), Some(minute), None)
}

fn unit(word: &str) -> Option<&'static str> {
    Some(match word.to_lowercase().as_str() {
        "ms" | "millisecond" | "milliseconds" | "毫秒" => "ms",
        "s" | "sec" | "secs" | "second" | "seconds" | "秒" | "秒钟" => "s",
        "min" | "mins" | "minute" | "minutes" | "分钟" => "min",
        "h" | "hr" | "hrs" | "hour" | "hours" | "小时" | "钟头" => "h",
        "day" | "days" | "天" => "day",
        "工作日" => "workday",
        "week" | "weeks" | "周" | "星期" | "礼拜" => "week",
        "month" | "months" | "月" => "month",
        "year" | "years" | "yr" | "yrs" | "年" => "year",
        _ => return None,
    })
}

fn english_count(word: &str) -> Option<&'static str> {
    Some(match word.to_lowercase().as_str() {
        "half an" => "0.5",
        "a" | "an" | "one" => "1",
        "two" => "2",
        "three" => "3",
        "four" => "4",
        "five" => "5",
        "six" => "6",
        "seven" => "7",
        "eight" => "8",
        "nine" => "9",
        "ten" => "10",
        "eleven" => "11",
        "twelve" => "12",
        "fifteen" => "15",
        "twenty" => "20",
        "thirty" => "30",
        "forty" => "40",
        "sixty" => "60",
        "ninety" => "90",
        _ => return None,
    })
}

fn chinese_duration(c: &Captures<'_>) -> Option<String> {
    let unit = unit(&c[2])?;
    let has_measure = c[0].contains('个');
    // "一月" is January, "一年" and "一天" are durations; "月" needs its measure word, "年" of four digits is a year.
    if unit == "month" && !has_measure || unit == "year" && c[1].len() == 4 && c[1].bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let half = c.get(3).is_some();
    let count = match &c[1] {
        "半" => "0.5".to_owned(),
        text if text.bytes().all(|b| b.is_ascii_digit() || b == b'.') => text.to_owned(),
        text => parse_han(text)?.to_string(),
    };
    let count = if half && !count.contains('.') { format!("{count}.5") } else { count };
    Some(format!("{count} {unit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(text: &str) -> Option<String> {
        times(text).into_iter().next().map(|t| t.normal)
    }

    #[test]
    fn times_of_both_languages_have_one_normal_form() {
        for (texts, normal) in [
            (&["2:30 pm", "2:30 p.m.", "14:30", "下午2点半", "下午两点半", "14点30分", "14时30分", "下午2:30"][..], "14:30"),
            (&["三点半", "3:30", "早上三点半", "3:30 am"], "03:30"),
            (&["noon", "12 pm", "中午十二点", "12:00"], "12:00"),
            (&["12 am", "midnight", "凌晨12点", "00:00"], "00:00"),
            (&["9点", "上午九点", "9 am", "九点钟"], "09:00"),
            (&["2026-05-03", "2026/5/3", "2026年5月3日", "May 3, 2026", "3rd of May 2026", "二〇二六年五月三日"], "2026-05-03"),
            (&["5月3日", "3 May", "May 3rd", "五月三号"], "--05-03"),
            (&["Monday", "周一", "星期一", "on Mondays"], "weekday 1"),
            (&["next Friday", "下周五", "下个星期五"], "week +1 weekday 5"),
            (&["tomorrow", "明天"], "day +1"),
            (&["next week", "下周", "下个星期"], "week +1"),
            (&["5 s", "5s", "5 seconds", "5秒", "五秒钟"], "5 s"),
            (&["half an hour", "半小时", "半个小时", "0.5 h"], "0.5 h"),
            (&["two weeks", "2周", "两个星期", "2 weeks"], "2 week"),
            (&["3 months", "三个月"], "3 month"),
        ] {
            for text in texts {
                assert_eq!(first(text).as_deref(), Some(normal), "{text}");
            }
        }
    }

    #[test]
    fn what_is_no_time() {
        for text in [
            "有一点甜",
            "一点都不吃",
            "先说两点",
            "version 1.2.3",
            "room 25:99",
            "周全的计划",
            "天天开心",
            "5 items",
            "may be",
            "I will march",
        ] {
            assert!(first(text).is_none(), "{text}: {:?}", first(text));
        }
    }
}
