//! What every area shares: owners, times, texts, values, enums, findings.

use crate::common::v1 as pb;
use strata_core::{
    AgentId, Fault, Owner, Timestamp, UserId,
    id::{Level, is_hidden},
    limits,
    policy::authz::Principal,
    record::Value,
    rule::Finding,
};

/// The owner of a request: tenant (and user) from the credential, never from the body.
///
/// # Errors
/// `OWNER_MISMATCH` or `INVALID_FIELD` naming `user_id` or `agent_id`.
pub fn owner(principal: &Principal, user_id: &str, agent_id: &str) -> Result<Owner, Fault> {
    let user: UserId = principal.user_for(user_id)?;
    let agent = if agent_id.is_empty() { None } else { Some(AgentId::new(agent_id)?) };
    Ok(Owner { tenant: principal.tenant.clone(), user, agent })
}

/// A wire enum value: unspecified and unknown ones are refused.
///
/// # Errors
/// `INVALID_FIELD` naming `field`.
pub fn enumeration<W, D>(field: &str, raw: i32, map: impl Fn(W) -> Option<D>) -> Result<D, Fault>
where
    W: TryFrom<i32>,
{
    W::try_from(raw).ok().and_then(map).ok_or_else(|| {
        Fault::field(field, if raw == 0 { "is required".to_owned() } else { format!("has the unknown value {raw}") })
    })
}

/// A text of 1 to `max_chars` characters that is not blank and holds no NUL. Everything else is kept as it is (C079).
///
/// # Errors
/// `INVALID_FIELD` naming `field` and the limit.
pub fn text(field: &str, value: &str, max_chars: usize) -> Result<String, Fault> {
    if value.chars().all(|c| c.is_whitespace() || is_hidden(c)) {
        return Err(Fault::field(field, "is required and must not be blank"));
    }
    optional_text(field, value, max_chars)
}

/// A text of at most `max_chars` characters, possibly empty, without NUL.
///
/// # Errors
/// `INVALID_FIELD` naming `field` and the limit.
pub fn optional_text(field: &str, value: &str, max_chars: usize) -> Result<String, Fault> {
    // Bytes bound characters from above, so the count is made for long texts only.
    if value.len() > max_chars && value.chars().count() > max_chars {
        return Err(Fault::field(field, format!("is longer than {max_chars} characters")));
    }
    if value.contains('\0') {
        return Err(Fault::field(field, "holds a NUL character"));
    }
    Ok(value.to_owned())
}

/// A request id: empty, or a UUID.
///
/// # Errors
/// `INVALID_FIELD` naming `request_id`.
pub fn request_id(value: &str) -> Result<Option<uuid::Uuid>, Fault> {
    if value.is_empty() {
        return Ok(None);
    }
    uuid::Uuid::parse_str(value).map(Some).map_err(|_| Fault::field("request_id", "is not a UUID"))
}

/// Domain time of a wire time.
///
/// # Errors
/// `INVALID_FIELD` naming `field` when nanoseconds are out of range or the year is outside 1..9999.
pub fn time(field: &str, value: &prost_types::Timestamp) -> Result<Timestamp, Fault> {
    const FIRST: i64 = -62_135_596_800;
    const LAST: i64 = 253_402_300_799;
    if !(FIRST..=LAST).contains(&value.seconds) || !(0..1_000_000_000).contains(&value.nanos) {
        return Err(Fault::field(field, "is not a time between the years 1 and 9999"));
    }
    Ok(Timestamp(value.seconds * 1_000_000 + i64::from(value.nanos) / 1_000))
}

/// Domain time of an optional wire time.
///
/// # Errors
/// As [`time`].
pub fn optional_time(field: &str, value: Option<&prost_types::Timestamp>) -> Result<Option<Timestamp>, Fault> {
    value.map(|t| time(field, t)).transpose()
}

/// Wire time of a domain time.
#[must_use]
pub fn wire_time(value: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: value.0.div_euclid(1_000_000),
        nanos: i32::try_from(value.0.rem_euclid(1_000_000) * 1_000).unwrap_or_default(),
    }
}

/// Microseconds of a wire duration within bounds; `default` when absent.
///
/// # Errors
/// `INVALID_FIELD` naming `field` and the bounds.
pub fn duration(field: &str, value: Option<&prost_types::Duration>, default: i64, min: i64, max: i64) -> Result<i64, Fault> {
    let Some(value) = value else { return Ok(default) };
    let micros = value.seconds.saturating_mul(1_000_000).saturating_add(i64::from(value.nanos) / 1_000);
    if (min..=max).contains(&micros) {
        return Ok(micros);
    }
    Err(Fault::field(field, format!("must lie between {} s and {} s", min / 1_000_000, max / 1_000_000)))
}

/// A typed value.
///
/// # Errors
/// `INVALID_FIELD` naming `field` when it has no form, is too long, or is no number or no JSON.
pub fn value(field: &str, wire: &pb::Value) -> Result<Value, Fault> {
    use pb::value::Kind;
    let bounded = |text: &str| {
        if text.len() > limits::VALUE_BYTES {
            return Err(Fault::field(field, format!("is longer than {} bytes", limits::VALUE_BYTES)));
        }
        self::text(field, text, limits::VALUE_BYTES)
    };
    Ok(match &wire.kind {
        None => return Err(Fault::field(field, "must have one of text, number, bool, json")),
        Some(Kind::Text(t)) => Value::Text(bounded(t)?),
        Some(Kind::Number(n)) if is_decimal(n) => Value::Number(n.clone()),
        Some(Kind::Number(_)) => return Err(Fault::field(field, "is not a decimal number of at most 64 bytes")),
        Some(Kind::Bool(b)) => Value::Bool(*b),
        Some(Kind::Json(j)) => {
            if serde_json::from_str::<serde::de::IgnoredAny>(j).is_err() {
                return Err(Fault::field(field, "is no JSON"));
            }
            Value::Json(bounded(j)?)
        }
    })
}

/// A decimal number as written: sign, digits, fraction, exponent.
fn is_decimal(text: &str) -> bool {
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).map_or((unsigned, None), |(m, e)| (m, Some(e)));
    let (whole, fraction) = mantissa.split_once('.').map_or((mantissa, None), |(w, f)| (w, Some(f)));
    text.len() <= 64
        && digits(whole)
        && fraction.is_none_or(digits)
        && exponent.is_none_or(|e| digits(e.strip_prefix(['-', '+']).unwrap_or(e)))
}

/// Wire form of a typed value.
#[must_use]
pub fn wire_value(value: &Value) -> pb::Value {
    use pb::value::Kind;
    pb::Value {
        kind: Some(match value {
            Value::Text(t) => Kind::Text(t.clone()),
            Value::Number(n) => Kind::Number(n.clone()),
            Value::Bool(b) => Kind::Bool(*b),
            Value::Json(j) => Kind::Json(j.clone()),
        }),
    }
}

/// Wire form of a level.
#[must_use]
pub const fn wire_level(level: Level) -> pb::Level {
    match level {
        Level::User => pb::Level::User,
        Level::Agent => pb::Level::Agent,
        Level::Session => pb::Level::Session,
        Level::Task => pb::Level::Task,
    }
}

/// Wire form of a finding.
#[must_use]
pub fn wire_finding(finding: &Finding) -> pb::Finding {
    pb::Finding { rule: finding.rule.0.to_owned(), outcome: finding.outcome.to_owned(), because: finding.because.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c089_numbers_are_decimal_text() {
        for n in ["9007199254740993", "18446744073709551615", "00123", "0.10", "118.50", "1e-7", "-0", "12345678901234567890.12"]
        {
            assert!(is_decimal(n), "{n}");
        }
        for n in ["", "-", ".5", "5.", "1e", "0x1", "NaN", "1,000", "１"] {
            assert!(!is_decimal(n), "{n}");
        }
    }

    #[test]
    fn c089_a_value_has_one_well_formed_kind() {
        use pb::value::Kind;
        let of = |kind| value("v", &pb::Value { kind });
        assert!(of(None).is_err());
        for json in ["{bad", "", "{} {}"] {
            assert!(of(Some(Kind::Json(json.into()))).is_err(), "{json}");
        }
        assert_eq!(of(Some(Kind::Json("{\"a\": 1.0}".into()))), Ok(Value::Json("{\"a\": 1.0}".into())));
        assert_eq!(of(Some(Kind::Number("0.10".into()))), Ok(Value::Number("0.10".into())));
    }

    #[test]
    fn c068_times_round_trip_before_and_after_the_epoch() {
        for micros in [0, 1, -1, 999_999, -1_000_001, 1_772_963_999_000_000] {
            let wire = wire_time(Timestamp(micros));
            assert_eq!(time("t", &wire).expect("in range").0, micros);
        }
        assert!(time("t", &prost_types::Timestamp { seconds: i64::MAX, nanos: 0 }).is_err());
    }

    #[test]
    fn c086_blank_texts_are_refused() {
        for blank in ["", "  ", "\n", "\u{200b}\u{feff}", "　"] {
            assert!(text("t", blank, 10).is_err(), "{blank:?}");
        }
        assert!(text("t", "a\0", 10).is_err());
        assert!(text("t", "不吃辣", 3).is_ok());
        assert!(text("t", "不吃辣!", 3).is_err());
    }
}
