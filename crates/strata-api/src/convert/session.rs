//! Session memory between wire and domain.

use super::common;
use crate::session::v1 as pb;
use std::collections::{BTreeMap, BTreeSet};
use strata_core::policy::recall::{Fused, Raw, Scale};
use strata_core::policy::session::{Anchor, Artifact, Maker, Role, SessionFact, Shape, Summary, SummarySentence, Turn, Verdict};
use strata_core::{FactKey, Fault, SessionId, Timestamp, id::check_id, limits, time::SECOND};

/// A session id.
///
/// # Errors
/// `INVALID_FIELD` naming `session_id`.
pub fn session_id(value: &str) -> Result<SessionId, Fault> {
    SessionId::new(value)
}

/// A shape; none when unspecified.
///
/// # Errors
/// `INVALID_FIELD` naming `shape` for an unknown value.
pub fn shape(raw: i32) -> Result<Option<Shape>, Fault> {
    if raw == 0 {
        return Ok(None);
    }
    common::enumeration("shape", raw, |shape| match shape {
        pb::Shape::Unspecified => None,
        pb::Shape::Task => Some(Shape::Task),
        pb::Shape::Exploratory => Some(Shape::Exploratory),
        pb::Shape::Chat => Some(Shape::Chat),
    })
    .map(Some)
}

/// Wire form of a shape.
#[must_use]
pub const fn wire_shape(shape: Shape) -> pb::Shape {
    match shape {
        Shape::Task => pb::Shape::Task,
        Shape::Exploratory => pb::Shape::Exploratory,
        Shape::Chat => pb::Shape::Chat,
    }
}

/// A role on the wire.
///
/// # Errors
/// `INVALID_FIELD` naming `field`.
pub fn role(field: &str, raw: i32) -> Result<Role, Fault> {
    common::enumeration(field, raw, |role| match role {
        pb::Role::Unspecified => None,
        pb::Role::User => Some(Role::User),
        pb::Role::Assistant => Some(Role::Assistant),
        pb::Role::System => Some(Role::System),
        pb::Role::Tool => Some(Role::Tool),
    })
}

const fn wire_role(role: Role) -> pb::Role {
    match role {
        Role::User => pb::Role::User,
        Role::Assistant => pb::Role::Assistant,
        Role::System => pb::Role::System,
        Role::Tool => pb::Role::Tool,
    }
}

/// A text of at most `max_bytes` bytes.
fn bounded(field: &str, value: &str, max_bytes: usize) -> Result<String, Fault> {
    if value.len() > max_bytes {
        return Err(Fault::field(field, format!("is longer than {max_bytes} bytes")));
    }
    common::optional_text(field, value, max_bytes)
}

/// Turns of an append, with seq 0; `tokens` counts a text.
///
/// # Errors
/// `INVALID_FIELD` naming the field as `turns[i].<field>`, or `turns` when there are none or more than
/// [`limits::APPEND_TURNS`].
pub fn new_turns(turns: Vec<pb::NewTurn>, now: Timestamp, tokens: impl Fn(&str) -> u32) -> Result<Vec<Turn>, Fault> {
    if turns.is_empty() {
        return Err(Fault::field("turns", format!("must hold 1 to {} turns", limits::APPEND_TURNS)));
    }
    if turns.len() > limits::APPEND_TURNS {
        return Err(Fault::limit("turns", limits::APPEND_TURNS, "turns"));
    }
    turns.into_iter().enumerate().map(|(i, turn)| new_turn(i, turn, now, &tokens)).collect()
}

fn new_turn(i: usize, turn: pb::NewTurn, now: Timestamp, tokens: &impl Fn(&str) -> u32) -> Result<Turn, Fault> {
    let field = |name: &str| format!("turns[{i}].{name}");
    let role = role(&field("role"), turn.role)?;
    let text = bounded(&field("text"), &turn.text, limits::TURN_BYTES)?;
    // A turn that makes a tool call may say nothing beside it; every other one says something.
    let silent_call = role == Role::Assistant && !turn.tool_call_id.is_empty();
    if !silent_call {
        common::text(&field("text"), &text, limits::TURN_BYTES)?;
    }
    let tool_call_id = bounded(&field("tool_call_id"), &turn.tool_call_id, limits::TURN_NAME_BYTES)?;
    if !tool_call_id.is_empty() && matches!(role, Role::User | Role::System) {
        return Err(Fault::field(field("tool_call_id"), "belongs to ROLE_ASSISTANT (the call) or ROLE_TOOL (its result)"));
    }
    let client_time = common::optional_time(&field("client_time"), turn.client_time.as_ref())?;
    Ok(Turn {
        seq: 0,
        role,
        tokens: tokens(&text),
        text,
        tool_call_id: if tool_call_id.is_empty() { None } else { Some(tool_call_id) },
        pinned: turn.pinned,
        time: now,
        client_time,
        speaker: bounded(&field("speaker"), &turn.speaker, limits::TURN_NAME_BYTES)?,
        external_id: bounded(&field("external_id"), &turn.external_id, limits::TURN_NAME_BYTES)?,
        redacted: 0,
    })
}

/// Life of a new session in microseconds.
///
/// # Errors
/// `INVALID_FIELD` naming `ttl` and its bounds (rule S10).
pub fn ttl(value: Option<&prost_types::Duration>, default_seconds: i64) -> Result<i64, Fault> {
    let bound = |seconds: i64| seconds * SECOND;
    common::duration(
        "ttl",
        value,
        bound(default_seconds),
        bound(limits::SESSION_TTL_MIN_SECONDS),
        bound(limits::SESSION_TTL_MAX_SECONDS),
    )
}

/// Wire form of a turn; its verdict when it was judged.
#[must_use]
pub fn wire_turn(session: &SessionId, turn: Turn, verdict: Option<&Verdict>) -> pb::Turn {
    pb::Turn {
        session_id: session.as_str().to_owned(),
        seq: turn.seq,
        role: wire_role(turn.role).into(),
        text: turn.text,
        tool_call_id: turn.tool_call_id.unwrap_or_default(),
        pinned: turn.pinned,
        time: Some(common::wire_time(turn.time)),
        client_time: turn.client_time.map(common::wire_time),
        tokens: turn.tokens,
        speaker: turn.speaker,
        external_id: turn.external_id,
        retracted_by: verdict.map_or(0, |v| v.retracted_by),
        rule: verdict.map(|v| v.rule.0.to_owned()).unwrap_or_default(),
        redacted: turn.redacted > 0,
    }
}

/// A stored turn as it comes back from the layer that keeps it.
///
/// # Errors
/// `INVALID_FIELD` naming `turns[i].<field>`.
pub fn stored_turn(i: usize, turn: pb::Turn) -> Result<Turn, Fault> {
    let field = |name: &str| format!("turns[{i}].{name}");
    if turn.seq == 0 {
        return Err(Fault::field(field("seq"), "turns are numbered from 1"));
    }
    let time = turn.time.as_ref().ok_or_else(|| Fault::field(field("time"), "is required"))?;
    Ok(Turn {
        seq: turn.seq,
        role: role(&field("role"), turn.role)?,
        text: bounded(&field("text"), &turn.text, limits::TURN_BYTES)?,
        tool_call_id: if turn.tool_call_id.is_empty() { None } else { Some(turn.tool_call_id) },
        pinned: turn.pinned,
        time: common::time(&field("time"), time)?,
        client_time: common::optional_time(&field("client_time"), turn.client_time.as_ref())?,
        tokens: turn.tokens,
        speaker: bounded(&field("speaker"), &turn.speaker, limits::TURN_NAME_BYTES)?,
        external_id: bounded(&field("external_id"), &turn.external_id, limits::TURN_NAME_BYTES)?,
        redacted: 0,
    })
}

/// How a hit's score came about, with what its raw scores were measured against.
#[must_use]
pub fn explain<Id>(fused: &Fused<Id>, scale: Scale) -> BTreeMap<String, f64> {
    let parts = [
        ("cosine", fused.raw.cosine),
        ("bm25", fused.raw.bm25),
        ("dense_rank", fused.ranks.dense.map(f64::from)),
        ("keyword_rank", fused.ranks.keyword.map(f64::from)),
        ("fused", Some(fused.fused)),
        ("cosine_floor", Some(scale.min_similarity)),
        ("cosine_best", Some(scale.best_cosine)),
        ("bm25_best", Some(scale.best_bm25)),
        ("bm25_max", Some(scale.max_bm25)),
    ];
    parts.into_iter().filter_map(|(name, value)| value.map(|v| (name.to_owned(), v))).collect()
}

/// The raw scores of [`explain`], and what they were measured against.
#[must_use]
pub fn explained(parts: &BTreeMap<String, f64>) -> (Raw, Scale) {
    let of = |name: &str| parts.get(name).copied();
    let end = |name: &str| of(name).unwrap_or_default();
    let scale = Scale {
        min_similarity: end("cosine_floor"),
        best_cosine: end("cosine_best"),
        best_bm25: end("bm25_best"),
        max_bm25: end("bm25_max"),
    };
    (Raw { cosine: of("cosine"), bm25: of("bm25") }, scale)
}

/// Wire form of an anchor.
#[must_use]
pub fn wire_anchor(anchor: &Anchor) -> pb::Anchor {
    pb::Anchor { seq: anchor.seq, reason: Some(common::wire_finding(&anchor.finding())) }
}

/// Wire form of a verdict.
#[must_use]
pub fn wire_verdict(verdict: &Verdict) -> pb::TurnVerdict {
    pb::TurnVerdict { seq: verdict.seq, finding: Some(common::wire_finding(&verdict.finding())) }
}

/// Turn numbers of a call: 1 to [`limits::ANCHOR_TURNS`]; in order, each once.
///
/// # Errors
/// `INVALID_FIELD` naming `seqs` or `seqs[n]`.
pub fn turn_numbers(seqs: &[u32]) -> Result<Vec<u32>, Fault> {
    if seqs.is_empty() {
        return Err(Fault::field("seqs", format!("must hold 1 to {} turn numbers", limits::ANCHOR_TURNS)));
    }
    if seqs.len() > limits::ANCHOR_TURNS {
        return Err(Fault::limit("seqs", limits::ANCHOR_TURNS, "turn numbers"));
    }
    if let Some(at) = seqs.iter().position(|seq| *seq == 0) {
        return Err(Fault::field(format!("seqs[{at}]"), "turns are numbered from 1"));
    }
    Ok(seqs.iter().copied().collect::<BTreeSet<u32>>().into_iter().collect())
}

/// Sentences of a summary that a client made; `tokens` counts a text. Whether they are true is not judged here.
///
/// # Errors
/// `INVALID_FIELD` naming `sentences[n].text` or `sentences[n].seqs`, `LIMIT_REACHED` naming `sentences`.
pub fn sentences(values: Vec<pb::SummarySentence>, tokens: impl Fn(&str) -> u32) -> Result<Vec<SummarySentence>, Fault> {
    if values.len() > limits::SUMMARY_SENTENCES {
        return Err(Fault::limit("sentences", limits::SUMMARY_SENTENCES, "sentences"));
    }
    let one = |(at, value): (usize, pb::SummarySentence)| {
        let text = common::text(&format!("sentences[{at}].text"), &value.text, limits::CONTENT_CHARS)?;
        if value.seqs.is_empty() || value.seqs.len() > limits::SENTENCE_TURNS {
            let bounds = format!("must name the 1 to {} turns it comes from", limits::SENTENCE_TURNS);
            return Err(Fault::field(format!("sentences[{at}].seqs"), bounds));
        }
        let seqs = value.seqs.into_iter().collect::<BTreeSet<u32>>().into_iter().collect();
        Ok(SummarySentence { tokens: tokens(&text), text, seqs })
    };
    values.into_iter().enumerate().map(one).collect()
}

fn fact_key(field: &str, key: &str) -> Result<FactKey, Fault> {
    super::longterm::optional_key(field, key)?.ok_or_else(|| Fault::field(field, "is required"))
}

/// The facts of a write, at an epoch: 1 to [`limits::SESSION_FACTS_WRITE`], each key once.
///
/// # Errors
/// `INVALID_FIELD` naming `facts` or `facts[n].<field>`, `LIMIT_REACHED` naming `facts`.
pub fn facts(values: Vec<pb::SessionFact>, epoch: u64, now: Timestamp) -> Result<Vec<SessionFact>, Fault> {
    if values.is_empty() {
        return Err(Fault::field("facts", format!("must hold 1 to {} facts", limits::SESSION_FACTS_WRITE)));
    }
    if values.len() > limits::SESSION_FACTS_WRITE {
        return Err(Fault::limit("facts", limits::SESSION_FACTS_WRITE, "facts"));
    }
    let mut seen = BTreeSet::new();
    let mut one = |(at, value): (usize, pb::SessionFact)| {
        let field = |part: &str| format!("facts[{at}].{part}");
        let key = fact_key(&field("key"), &value.key)?;
        if !seen.insert(key.clone()) {
            return Err(Fault::field(field("key"), "stands twice in this write"));
        }
        if value.seq == 0 {
            return Err(Fault::field(field("seq"), "is required: the turn the fact comes from, from 1"));
        }
        common::text(&field("value"), &value.value, limits::SESSION_FACT_BYTES)?;
        let text = bounded(&field("value"), &value.value, limits::SESSION_FACT_BYTES)?;
        Ok(SessionFact { key, value: text, seq: value.seq, epoch, overlay: false, time: now })
    };
    values.into_iter().enumerate().map(&mut one).collect()
}

/// Keys of a read, at most [`limits::SESSION_FACTS_WRITE`].
///
/// # Errors
/// `INVALID_FIELD` naming `keys[n]`, `LIMIT_REACHED` naming `keys`.
pub fn fact_keys(keys: &[String]) -> Result<BTreeSet<FactKey>, Fault> {
    if keys.len() > limits::SESSION_FACTS_WRITE {
        return Err(Fault::limit("keys", limits::SESSION_FACTS_WRITE, "keys"));
    }
    keys.iter().enumerate().map(|(at, key)| fact_key(&format!("keys[{at}]"), key)).collect()
}

/// What a first message says of an artifact; its bytes are counted later.
///
/// # Errors
/// `INVALID_FIELD` naming the field.
pub fn artifact(header: &pb::PutArtifactRequest, now: Timestamp) -> Result<Artifact, Fault> {
    check_id("trace_id", &header.trace_id)?;
    if !header.task_id.is_empty() {
        check_id("task_id", &header.task_id)?;
    }
    let expire_time = match header.ttl {
        None => None,
        Some(_) => Some(now.plus(ttl(header.ttl.as_ref(), limits::SESSION_TTL_MAX_SECONDS)?)),
    };
    Ok(Artifact {
        trace_id: header.trace_id.clone(),
        task_id: header.task_id.clone(),
        content_type: bounded("content_type", &header.content_type, limits::MEDIA_TYPE_BYTES)?,
        bytes: 0,
        stored_bytes: 0,
        parts: 0,
        hash: String::new(),
        create_time: now,
        expire_time,
    })
}

/// Wire form of an artifact.
#[must_use]
pub fn wire_artifact(artifact: &Artifact) -> pb::Artifact {
    pb::Artifact {
        trace_id: artifact.trace_id.clone(),
        task_id: artifact.task_id.clone(),
        content_type: artifact.content_type.clone(),
        bytes: artifact.bytes,
        stored_bytes: artifact.stored_bytes,
        hash: artifact.hash.clone(),
        create_time: Some(common::wire_time(artifact.create_time)),
        expire_time: artifact.expire_time.map(common::wire_time),
    }
}

/// Wire form of a session fact.
#[must_use]
pub fn wire_fact(fact: &SessionFact) -> pb::SessionFact {
    pb::SessionFact {
        key: fact.key.as_str().to_owned(),
        value: fact.value.clone(),
        seq: fact.seq,
        epoch: fact.epoch,
        overlay: fact.overlay,
        update_time: Some(common::wire_time(fact.time)),
    }
}

/// Wire form of a summary, with at most `values` values of its index.
#[must_use]
pub fn wire_summary(summary: &Summary, values: usize) -> pb::Summary {
    let sentence = |s: &SummarySentence| pb::SummarySentence { text: s.text.clone(), seqs: s.seqs.clone() };
    // The newest are the present state.
    let skipped = summary.values.len().saturating_sub(values);
    pb::Summary {
        from_seq: summary.from,
        to_seq: summary.to,
        sentences: summary.sentences.iter().map(sentence).collect(),
        values: summary.values[skipped..].iter().map(|v| pb::ValueReference { value: v.value.clone(), seq: v.seq }).collect(),
        made_by: match summary.made_by {
            Maker::Rules => "rules",
            Maker::Model => "model",
            Maker::Client => "client",
        }
        .to_owned(),
        from_time: Some(common::wire_time(summary.from_time)),
        to_time: Some(common::wire_time(summary.to_time)),
        source_hash: summary.source_hash.clone(),
        values_left_out: u32::try_from(skipped).unwrap_or(u32::MAX),
        energy: 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(text: &str) -> pb::NewTurn {
        pb::NewTurn { role: pb::Role::User.into(), text: text.into(), ..Default::default() }
    }

    fn fault(turn: pb::NewTurn) -> String {
        new_turns(vec![turn], Timestamp::ZERO, |_| 1).expect_err("refused").fields[0].field.clone()
    }

    #[test]
    fn c079_only_nul_is_refused_and_the_rest_stays() {
        for text in ["a\u{1}b", "\u{feff}a", "a\u{202e}b", "a\u{2028}b", "👨‍👩‍👧", "مرحبا"] {
            let turns = new_turns(vec![turn(text)], Timestamp::ZERO, |_| 1).expect(text);
            assert_eq!(turns[0].text, text);
        }
        assert_eq!(fault(turn("a\0b")), "turns[0].text");
        for blank in ["", "  ", "\u{200b}"] {
            assert_eq!(fault(turn(blank)), "turns[0].text");
        }
    }

    #[test]
    fn c087_limits_name_field_and_unit() {
        assert!(new_turns(vec![turn(&"x".repeat(limits::TURN_BYTES))], Timestamp::ZERO, |_| 1).is_ok());
        assert_eq!(fault(turn(&"x".repeat(limits::TURN_BYTES + 1))), "turns[0].text");
        assert_eq!(fault(turn(&"辣".repeat(limits::TURN_BYTES / 3 + 1))), "turns[0].text");
        assert_eq!(fault(pb::NewTurn { role: 9, ..turn("a") }), "turns[0].role");
        assert_eq!(fault(pb::NewTurn { role: 0, ..turn("a") }), "turns[0].role");
        assert_eq!(fault(pb::NewTurn { speaker: "x".repeat(129), ..turn("a") }), "turns[0].speaker");
        assert_eq!(fault(pb::NewTurn { tool_call_id: "x".into(), ..turn("a") }), "turns[0].tool_call_id");
        assert!(new_turns(Vec::new(), Timestamp::ZERO, |_| 1).is_err());
        assert!(new_turns(vec![turn("a"); limits::APPEND_TURNS + 1], Timestamp::ZERO, |_| 1).is_err());
        let seconds = |seconds| prost_types::Duration { seconds, nanos: 0 };
        assert_eq!(ttl(None, 5).expect("default"), 5 * SECOND);
        assert_eq!(ttl(Some(&seconds(1)), 5).expect("least"), SECOND);
        assert!(ttl(Some(&seconds(0)), 5).is_err() && ttl(Some(&seconds(30 * 24 * 3600 + 1)), 5).is_err());
    }

    #[test]
    fn shapes_go_both_ways() {
        for value in Shape::ALL {
            assert_eq!(shape(wire_shape(*value).into()).expect("known"), Some(*value));
        }
        assert_eq!(shape(0).expect("unspecified"), None);
        assert!(shape(7).is_err());
    }
}
