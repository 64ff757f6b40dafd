//! Filter conditions: what they need indexed, and whether a point meets them.

use super::point::Point;
use qdrant_client::qdrant::condition::ConditionOneOf;
use qdrant_client::qdrant::r#match::MatchValue;
use qdrant_client::qdrant::value::Kind;
use qdrant_client::qdrant::{Condition, DatetimeRange, FieldCondition, Filter, Match, PayloadSchemaType, Range, Value};
use std::collections::{BTreeMap, HashMap};
use tonic::Status;

type Fields = HashMap<String, Value>;

/// Refuses conditions that the double does not evaluate, so that a test never passes on a filter that was ignored.
pub fn check_supported(filter: &Filter) -> Result<(), Status> {
    walk("", filter, &mut |_, _| Ok(()))
}

/// Refuses a filter on a field without a payload index that can serve it, as a server in strict mode does.
pub fn check_indexed(filter: &Filter, indexes: &BTreeMap<String, PayloadSchemaType>) -> Result<(), Status> {
    walk("", filter, &mut |key, needed| {
        let served = match indexes.get(key) {
            // An empty list stands for "any index".
            Some(index) => needed.is_empty() || needed.contains(index),
            None => false,
        };
        if served {
            return Ok(());
        }
        let kinds: Vec<_> = needed.iter().map(|kind| kind.as_str_name().to_lowercase()).collect();
        Err(Status::invalid_argument(format!(
            "Bad request: Index required but not found for \"{key}\" of one of the following types: [{}]. Help: Create \
             an index for this key or use a different filter.",
            kinds.join(", ")
        )))
    })
}

/// Calls `visit` with each field of the filter and the index types that can serve its condition.
fn walk(
    prefix: &str,
    filter: &Filter,
    visit: &mut impl FnMut(&str, &[PayloadSchemaType]) -> Result<(), Status>,
) -> Result<(), Status> {
    let of_min_should = filter.min_should.iter().flat_map(|min| &min.conditions);
    for condition in filter.must.iter().chain(&filter.should).chain(&filter.must_not).chain(of_min_should) {
        match one_of(condition)? {
            ConditionOneOf::Filter(inner) => walk(prefix, inner, visit)?,
            ConditionOneOf::Nested(nested) => {
                let inner = nested.filter.as_ref().ok_or_else(|| Status::invalid_argument("a nested filter is missing"))?;
                walk(&format!("{prefix}{}[].", nested.key), inner, visit)?;
            }
            ConditionOneOf::IsEmpty(c) => visit(&format!("{prefix}{}", c.key), &[])?,
            ConditionOneOf::IsNull(c) => visit(&format!("{prefix}{}", c.key), &[])?,
            ConditionOneOf::Field(field) => visit(&format!("{prefix}{}", field.key), &needed(field)?)?,
            ConditionOneOf::HasId(_) | ConditionOneOf::HasVector(_) => {}
            ConditionOneOf::Slice(_) => return Err(unsupported("slice")),
        }
    }
    Ok(())
}

fn needed(field: &FieldCondition) -> Result<Vec<PayloadSchemaType>, Status> {
    if field.geo_bounding_box.is_some() || field.geo_radius.is_some() || field.geo_polygon.is_some() {
        return Err(unsupported("geo"));
    }
    let mut kinds = Vec::new();
    if let Some(Match { match_value: Some(value) }) = &field.r#match {
        match value {
            MatchValue::Keyword(_) | MatchValue::Keywords(_) | MatchValue::ExceptKeywords(_) => {
                kinds.extend([PayloadSchemaType::Keyword, PayloadSchemaType::Uuid]);
            }
            MatchValue::Integer(_) | MatchValue::Integers(_) | MatchValue::ExceptIntegers(_) => {
                kinds.push(PayloadSchemaType::Integer);
            }
            MatchValue::Boolean(_) => kinds.push(PayloadSchemaType::Bool),
            MatchValue::Text(_) | MatchValue::Phrase(_) | MatchValue::TextAny(_) => return Err(unsupported("text")),
            MatchValue::Prefix(_) | MatchValue::Substring(_) => return Err(unsupported("prefix and substring")),
        }
    }
    if field.range.is_some() {
        kinds.extend([PayloadSchemaType::Float, PayloadSchemaType::Integer]);
    }
    if field.datetime_range.is_some() {
        kinds.push(PayloadSchemaType::Datetime);
    }
    let by_presence = field.values_count.is_some() || field.is_empty.is_some() || field.is_null.is_some();
    if kinds.is_empty() && !by_presence {
        return Err(Status::invalid_argument(format!("the condition on \"{}\" is empty", field.key)));
    }
    Ok(kinds)
}

fn one_of(condition: &Condition) -> Result<&ConditionOneOf, Status> {
    condition.condition_one_of.as_ref().ok_or_else(|| Status::invalid_argument("Malformed Condition type"))
}

fn unsupported(what: &str) -> Status {
    Status::unimplemented(format!("the wire double does not evaluate {what} conditions"))
}

/// Whether `point` meets `filter`, which [`check_supported`] has let through.
pub fn matches(filter: &Filter, point: &Point) -> bool {
    meets(filter, point, &point.payload)
}

fn meets(filter: &Filter, point: &Point, fields: &Fields) -> bool {
    let holds = |condition: &Condition| one_of(condition).is_ok_and(|c| condition_holds(c, point, fields));
    filter.must.iter().all(holds)
        && !filter.must_not.iter().any(holds)
        && (filter.should.is_empty() || filter.should.iter().any(holds))
        && filter.min_should.as_ref().is_none_or(|min| min.conditions.iter().filter(|c| holds(c)).count() as u64 >= min.min_count)
}

fn condition_holds(condition: &ConditionOneOf, point: &Point, fields: &Fields) -> bool {
    match condition {
        ConditionOneOf::Filter(inner) => meets(inner, point, fields),
        ConditionOneOf::HasId(ids) => ids.has_id.contains(&point.id.to_wire()),
        ConditionOneOf::HasVector(c) => point.vectors.contains_key(&c.has_vector),
        ConditionOneOf::IsEmpty(c) => is_empty(fields, &c.key),
        ConditionOneOf::IsNull(c) => is_null(fields, &c.key),
        ConditionOneOf::Nested(nested) => values(fields, &nested.key).into_iter().any(|value| match &value.kind {
            Some(Kind::StructValue(inner)) => nested.filter.as_ref().is_some_and(|f| meets(f, point, &inner.fields)),
            _other => false,
        }),
        ConditionOneOf::Field(field) => field_holds(field, fields),
        ConditionOneOf::Slice(_) => false,
    }
}

fn field_holds(field: &FieldCondition, fields: &Fields) -> bool {
    let found = values(fields, &field.key);
    let by_match = field.r#match.as_ref().and_then(|m| m.match_value.as_ref());
    by_match.is_none_or(|wanted| found.iter().any(|value| value_matches(wanted, value)))
        && field.range.as_ref().is_none_or(|range| found.iter().any(|value| in_range(range, value)))
        && field.datetime_range.as_ref().is_none_or(|range| found.iter().any(|value| in_time_range(range, value)))
        && field.is_empty.is_none_or(|wanted| is_empty(fields, &field.key) == wanted)
        && field.is_null.is_none_or(|wanted| is_null(fields, &field.key) == wanted)
        && field.values_count.as_ref().is_none_or(|count| {
            let n = found.len() as u64;
            count.lt.is_none_or(|b| n < b)
                && count.gt.is_none_or(|b| n > b)
                && count.lte.is_none_or(|b| n <= b)
                && count.gte.is_none_or(|b| n >= b)
        })
}

fn value_matches(wanted: &MatchValue, value: &Value) -> bool {
    match (wanted, &value.kind) {
        (MatchValue::Keyword(k), Some(Kind::StringValue(s))) => k == s,
        (MatchValue::Keywords(k), Some(Kind::StringValue(s))) => k.strings.contains(s),
        (MatchValue::ExceptKeywords(k), Some(Kind::StringValue(s))) => !k.strings.contains(s),
        (MatchValue::Integer(k), Some(Kind::IntegerValue(i))) => k == i,
        (MatchValue::Integers(k), Some(Kind::IntegerValue(i))) => k.integers.contains(i),
        (MatchValue::ExceptIntegers(k), Some(Kind::IntegerValue(i))) => !k.integers.contains(i),
        (MatchValue::Boolean(k), Some(Kind::BoolValue(b))) => k == b,
        // Anything but the listed values: a value of another type is one of them.
        (MatchValue::ExceptKeywords(_) | MatchValue::ExceptIntegers(_), Some(_)) => true,
        _other => false,
    }
}

#[allow(clippy::cast_precision_loss, reason = "the server compares integers with a float range the same way")]
fn in_range(range: &Range, value: &Value) -> bool {
    let number = match &value.kind {
        Some(Kind::IntegerValue(i)) => *i as f64,
        Some(Kind::DoubleValue(d)) => *d,
        _other => return false,
    };
    range.lt.is_none_or(|b| number < b)
        && range.gt.is_none_or(|b| number > b)
        && range.lte.is_none_or(|b| number <= b)
        && range.gte.is_none_or(|b| number >= b)
}

fn in_time_range(range: &DatetimeRange, value: &Value) -> bool {
    let Some(Kind::StringValue(text)) = &value.kind else { return false };
    let Some(time) = nanoseconds(text) else { return false };
    let bound = |seconds: i64, nanos: i32| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    range.lt.as_ref().is_none_or(|b| time < bound(b.seconds, b.nanos))
        && range.gt.as_ref().is_none_or(|b| time > bound(b.seconds, b.nanos))
        && range.lte.as_ref().is_none_or(|b| time <= bound(b.seconds, b.nanos))
        && range.gte.as_ref().is_none_or(|b| time >= bound(b.seconds, b.nanos))
}

/// Nanoseconds since the epoch of an RFC 3339 text; without a zone it is UTC.
fn nanoseconds(text: &str) -> Option<i128> {
    let with_zone = text.parse::<jiff::Timestamp>().ok();
    let time = with_zone.or_else(|| {
        let civil: jiff::civil::DateTime = text.parse().ok()?;
        civil.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
    })?;
    Some(time.as_nanosecond())
}

/// Missing, null, or an empty list.
fn is_empty(fields: &Fields, path: &str) -> bool {
    values(fields, path).iter().all(|value| matches!(value.kind, None | Some(Kind::NullValue(_))))
}

/// Present and null, or a list that holds a null.
fn is_null(fields: &Fields, path: &str) -> bool {
    values(fields, path).iter().any(|value| matches!(value.kind, None | Some(Kind::NullValue(_))))
}

/// The values under a dotted path; a list stands for its elements, with or without `[]` behind its name.
fn values<'a>(fields: &'a Fields, path: &str) -> Vec<&'a Value> {
    let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
    let Some(value) = fields.get(name.strip_suffix("[]").unwrap_or(name)) else { return Vec::new() };
    let elements = match &value.kind {
        Some(Kind::ListValue(list)) => list.values.iter().collect(),
        _other => vec![value],
    };
    let Some(rest) = rest else { return elements };
    elements
        .into_iter()
        .filter_map(|element| match &element.kind {
            Some(Kind::StructValue(inner)) => Some(&inner.fields),
            _other => None,
        })
        .flat_map(|inner| values(inner, rest))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qdrant::point::Id;
    use qdrant_client::qdrant::Timestamp;

    fn point() -> Point {
        let payload = [
            ("tenant", "t1".into()),
            ("version", 7_i64.into()),
            ("score", 0.5_f64.into()),
            ("live", true.into()),
            ("tags", Value::from(vec!["a", "b"])),
            ("none", Value { kind: Some(Kind::NullValue(0)) }),
            ("empty", Value::from(Vec::<&str>::new())),
            ("time", "2026-01-01T00:00:00Z".into()),
        ];
        let payload = payload.into_iter().map(|(k, v): (&str, Value)| (k.to_owned(), v)).collect();
        Point { id: Id::Num(3), payload, vectors: BTreeMap::new(), version: 1 }
    }

    fn holds(condition: impl Into<Condition>) -> bool {
        let filter = Filter::must([condition.into()]);
        check_supported(&filter).expect("supported");
        matches(&filter, &point())
    }

    #[test]
    fn matches_by_type_and_by_any_element() {
        assert!(holds(Condition::matches("tenant", "t1".to_owned())));
        assert!(!holds(Condition::matches("tenant", "T1".to_owned())), "exact");
        assert!(holds(Condition::matches("tags", "b".to_owned())), "one element is enough");
        assert!(holds(Condition::matches("version", 7)) && !holds(Condition::matches("tenant", 7)));
        assert!(holds(Condition::matches("live", true)) && !holds(Condition::matches("live", false)));
        assert!(!holds(Condition::matches("absent", true)));
        assert!(holds(Condition::matches("tenant", vec!["t0".to_owned(), "t1".to_owned()])));
    }

    #[test]
    fn ranges_compare_numbers_and_times() {
        let range = |lt, gte| Range { lt, gte, ..Range::default() };
        assert!(holds(Condition::range("version", range(Some(8.0), Some(7.0)))));
        assert!(!holds(Condition::range("version", range(Some(7.0), None))));
        assert!(holds(Condition::range("score", range(None, Some(0.5)))));
        assert!(!holds(Condition::range("tenant", range(Some(9.0), None))), "no number");
        let new_year = Timestamp { seconds: 1_767_225_600, nanos: 0 };
        let from = DatetimeRange { gte: Some(new_year), ..DatetimeRange::default() };
        let before = DatetimeRange { lt: Some(new_year), ..DatetimeRange::default() };
        assert!(holds(Condition::datetime_range("time", from)) && !holds(Condition::datetime_range("time", before)));
        assert_eq!(nanoseconds("2026-01-01T08:00:00+08:00"), nanoseconds("2026-01-01T00:00:00"));
    }

    #[test]
    fn presence_tells_missing_empty_and_null_apart() {
        let table = [("absent", true, false), ("empty", true, false), ("none", true, true), ("tenant", false, false)];
        for (key, empty, null) in table {
            assert_eq!((holds(Condition::is_empty(key)), holds(Condition::is_null(key))), (empty, null), "{key}");
        }
    }

    #[test]
    fn lists_combine_and_nest() {
        let yes = || Condition::matches("tenant", "t1".to_owned());
        let no = || Condition::matches("tenant", "t2".to_owned());
        let of = |f: Filter| matches(&f, &point());
        assert!(of(Filter::default()), "an empty filter lets everything through");
        assert!(of(Filter::should([no(), yes()])) && !of(Filter::should([no()])));
        assert!(of(Filter::must_not([no()])) && !of(Filter::must_not([no(), yes()])));
        let guard = Filter { must: vec![no(), Filter::should([yes()]).into()], ..Filter::default() };
        assert!(!of(guard), "a nested filter is one condition and opens nothing");
        assert!(of(Filter::must([Condition::has_id([3_u64])])) && !of(Filter::must([Condition::has_id([4_u64])])));
    }

    #[test]
    fn strict_mode_names_the_field_without_an_index() {
        let filter = Filter::must([Condition::matches("a", 1), Condition::has_id([1_u64])]);
        let keyword = BTreeMap::from([("a".to_owned(), PayloadSchemaType::Keyword)]);
        let integer = BTreeMap::from([("a".to_owned(), PayloadSchemaType::Integer)]);
        let refused = check_indexed(&filter, &keyword).expect_err("the wrong index");
        assert!(refused.message().contains("\"a\"") && refused.message().contains("[integer]"), "{refused}");
        check_indexed(&filter, &integer).expect("served");
        check_indexed(&Filter::must([Condition::is_empty("a")]), &keyword).expect("any index serves presence");
    }
}
