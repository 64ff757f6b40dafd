//! Numbers as they are written in English digits and in Chinese numerals, to one normal form.

/// Regular expression class of Chinese numerals.
pub(crate) const HAN_DIGITS: &str = "零〇一二两俩三四五六七八九十百千万亿";

/// Value of a Chinese numeral: "三十二" = 32, "两百零五" = 205, "一万二" = 12000, "二〇二六" = 2026. None when it is no numeral
/// or beyond `u64`.
#[must_use]
pub fn parse_han(text: &str) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    // Read digit by digit, as years and codes are.
    if text.chars().count() > 1 && text.chars().all(|c| digit(c).is_some()) {
        return text.chars().try_fold(0_u64, |n, c| n.checked_mul(10)?.checked_add(digit(c)?));
    }
    let (mut total, mut section, mut pending) = (0_u64, 0_u64, None::<u64>);
    // Scale of the last unit, for the shorthand "一万二".
    let mut scale = 1_u64;
    for c in text.chars() {
        if let Some(d) = digit(c) {
            if pending.is_some_and(|p| p != 0) {
                return None;
            }
            if d == 0 {
                scale = 1;
            }
            pending = Some(d);
        } else {
            let unit = match c {
                '十' => 10,
                '百' => 100,
                '千' => 1_000,
                '万' => 10_000,
                '亿' => 100_000_000,
                _ => return None,
            };
            if unit >= 10_000 {
                let part = section.checked_add(pending.take().unwrap_or(0))?;
                total = if unit > 10_000 {
                    total.checked_add(part)?.checked_mul(unit)?
                } else {
                    total.checked_add(part.checked_mul(unit)?)?
                };
                section = 0;
            } else {
                section = section.checked_add(pending.take().filter(|p| *p != 0).unwrap_or(1).checked_mul(unit)?)?;
            }
            scale = unit;
        }
    }
    let tail = pending.unwrap_or(0).checked_mul(if scale > 10 { scale / 10 } else { 1 })?;
    total.checked_add(section)?.checked_add(tail)
}

const fn digit(c: char) -> Option<u64> {
    Some(match c {
        '零' | '〇' => 0,
        '一' => 1,
        '二' | '两' | '俩' => 2,
        '三' => 3,
        '四' => 4,
        '五' => 5,
        '六' => 6,
        '七' => 7,
        '八' => 8,
        '九' => 9,
        _ => return None,
    })
}

/// Normal form of a number as written: thousands separators dropped, a Chinese numeral in digits, a multiplier ("万",
/// "million", "k") multiplied out exactly in decimal. Leading and trailing zeros stay (case C089).
#[must_use]
pub fn normal_number(number: &str, multiplier: &str) -> Option<String> {
    let number: String = number.chars().filter(|c| !matches!(c, ',' | ' ' | '_')).collect();
    let digits = if number.chars().any(|c| c.is_ascii_digit()) { number } else { parse_han(&number)?.to_string() };
    let zeros = match multiplier.to_lowercase().as_str() {
        "" => 0,
        "百" | "hundred" => 2,
        "k" | "千" | "thousand" => 3,
        "万" | "w" => 4,
        "m" | "million" | "百万" => 6,
        "千万" => 7,
        "亿" => 8,
        "bn" | "billion" | "十亿" => 9,
        _ => return None,
    };
    Some(shift(&digits, zeros))
}

/// Moves the decimal point `zeros` places to the right.
fn shift(number: &str, zeros: usize) -> String {
    if zeros == 0 {
        return number.to_owned();
    }
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let taken = zeros.min(fraction.len());
    let mut out = format!("{whole}{}{}", &fraction[..taken], "0".repeat(zeros - taken));
    let rest = &fraction[taken..];
    if !rest.is_empty() {
        out.push('.');
        out.push_str(rest);
    }
    let trimmed = out.trim_start_matches('0');
    if trimmed.is_empty() || trimmed.starts_with('.') { format!("0{trimmed}") } else { trimmed.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chinese_numerals() {
        for (text, value) in [
            ("十", Some(10)),
            ("十二", Some(12)),
            ("三十二", Some(32)),
            ("两百零五", Some(205)),
            ("一千零一", Some(1001)),
            ("一万二", Some(12_000)),
            ("三万五千", Some(35_000)),
            ("二百五", Some(250)),
            ("一亿零三万", Some(100_030_000)),
            ("二〇二六", Some(2026)),
            ("一三八", Some(138)),
            ("三", Some(3)),
            ("两", Some(2)),
            ("百", Some(100)),
            ("", None),
            ("三四十", None),
        ] {
            assert_eq!(parse_han(text), value, "{text}");
        }
    }

    #[test]
    fn numbers_have_one_normal_form_and_stay_exact() {
        for (number, multiplier, normal) in [
            ("1,200.50", "", "1200.50"),
            ("00123", "", "00123"),
            ("1.5", "万", "15000"),
            ("1.23456", "k", "1234.56"),
            ("三百", "", "300"),
            ("0.5", "k", "500"),
            ("18446744073709551615", "", "18446744073709551615"),
            ("2", "million", "2000000"),
        ] {
            assert_eq!(normal_number(number, multiplier).as_deref(), Some(normal), "{number} {multiplier}");
        }
    }
}
