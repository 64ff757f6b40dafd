//! What is kept of a tool's return (rules W4, W5): the raw bytes as an artifact of the task's session, the fields that the
//! caller names as facts, one sentence on the board with the pointer to the bytes. Nothing else of it reaches the board.
//!
//! The artifact is stored first: a board never points to what is not there. What is stored and not pointed to, because the board
//! refused or a process died in between, goes with its session; a repetition of the call finds it under the same trace id.

use crate::call::Call;
use crate::gate::Core;
use crate::layers::{answer, placed, reading, relayed, signed};
use crate::proxy::above;
use serde::de::IgnoredAny;
use strata_api::error::status;
use strata_api::session::v1 as session;
use strata_api::working::v1 as working;
use strata_core::id::Level;
use strata_core::{Fault, TaskId, limits};
use tonic::{Response, Status};

impl Core {
    /// AppendDigest: with or without a payload.
    pub(crate) async fn append_result(
        &self,
        call: &Call,
        mut body: working::AppendDigestRequest,
    ) -> Result<Response<working::AppendDigestResponse>, Status> {
        let payload = std::mem::take(&mut body.payload);
        let fields = std::mem::take(&mut body.fields);
        let content_type = std::mem::take(&mut body.content_type);
        let tool = body.digest.as_ref().map(|digest| digest.tool.clone()).unwrap_or_default();
        let trace_id = body.digest.as_ref().map(|digest| digest.trace_id.clone()).unwrap_or_default();
        let missing = extract(&payload, &fields, &tool, &trace_id, &mut body.facts).map_err(status)?;
        let bytes = payload.len() as u64;
        if !payload.is_empty() {
            self.keep_raw(call, &body.task_id, &trace_id, content_type, payload).await?;
        }
        let mut floor = 0;
        for attempt in 1.. {
            let epoch = self.claim_facts(call, &body.task_id, &body.facts, floor).await.map_err(status)?;
            let identity = reading(&call.principal, &call.owner).writing(Level::Task, epoch);
            match relayed(self.layers.working.clone().append_digest(placed(body.clone(), identity)).await) {
                Err(refused) => floor = above(refused, attempt, floor)?,
                Ok(mut answer) => {
                    answer.get_mut().missing = missing;
                    answer.get_mut().payload_bytes = bytes;
                    return Ok(answer);
                }
            }
        }
        Err(Status::internal("unreachable: the loop returns"))
    }

    /// Stores the raw return in the session that the task belongs to.
    async fn keep_raw(
        &self,
        call: &Call,
        task_id: &str,
        trace_id: &str,
        content_type: String,
        data: Vec<u8>,
    ) -> Result<(), Status> {
        if data.len() > limits::RESULT_BYTES {
            return Err(status(Fault::limit("payload", limits::RESULT_BYTES, "bytes; a larger one goes through PutArtifact")));
        }
        let task = TaskId::new(task_id).map_err(status)?;
        let Some(session) = self.session_of(call, &task).await.map_err(status)? else {
            let why = "the task belongs to no session, and raw returns are kept in one: name a session_id in CreateTask";
            return Err(status(Fault::field("payload", why)));
        };
        let part = session::PutArtifactRequest {
            user_id: call.owner.user.as_str().to_owned(),
            agent_id: call.owner.agent_id().to_owned(),
            session_id: session.as_str().to_owned(),
            trace_id: trace_id.to_owned(),
            task_id: task_id.to_owned(),
            content_type,
            data,
            ..session::PutArtifactRequest::default()
        };
        let request = signed(futures::stream::iter([part]), reading(&call.principal, &call.owner));
        answer(self.layers.session.clone().put_artifact(request).await).map(|_| ()).map_err(status)
    }
}

/// Adds the named fields of a payload to the facts; answers the keys of those it has not.
fn extract(
    payload: &[u8],
    fields: &[working::ResultField],
    tool: &str,
    trace_id: &str,
    facts: &mut Vec<working::Fact>,
) -> Result<Vec<String>, Fault> {
    if fields.is_empty() {
        return Ok(Vec::new());
    }
    if fields.len() + facts.len() > limits::BOARD_FACTS {
        return Err(Fault::limit("fields", limits::BOARD_FACTS, "facts and fields"));
    }
    // Where it is wrong is no content.
    let no_json = |line: usize, column: usize| {
        Fault::field("payload", format!("fields need JSON; it is none at line {line} column {column}"))
    };
    let text = std::str::from_utf8(payload).map_err(|_| no_json(1, 0))?;
    serde_json::from_str::<IgnoredAny>(text).map_err(|error| no_json(error.line(), error.column()))?;
    let mut missing = Vec::new();
    for (at, field) in fields.iter().enumerate() {
        if !field.pointer.is_empty() && !field.pointer.starts_with('/') {
            return Err(Fault::field(format!("fields[{at}].pointer"), "must be a JSON pointer: empty, or /name/0/name"));
        }
        let value = match json::locate(text, &field.pointer) {
            None | Some("null") => {
                missing.push(field.key.clone());
                continue;
            }
            // Letter for letter: an amount of 9.50 is not 9.5.
            Some(other) if !other.starts_with('"') => other.to_owned(),
            Some(string) => serde_json::from_str(string).map_err(|error| no_json(error.line(), error.column()))?,
        };
        facts.push(working::Fact {
            key: field.key.clone(),
            value,
            source: tool.to_owned(),
            trace_id: trace_id.to_owned(),
            ..working::Fact::default()
        });
    }
    Ok(missing)
}

/// Finds a value in JSON as it is written. For text that is known to be JSON.
mod json {
    /// What a pointer names; none when it is not there. Of members with one name the last counts.
    pub(super) fn locate<'a>(text: &'a str, pointer: &str) -> Option<&'a str> {
        let mut value = text.trim_matches(WHITE);
        for token in pointer.split('/').skip(1) {
            value = member(value, &token.replace("~1", "/").replace("~0", "~"))?;
        }
        Some(value)
    }

    const WHITE: &[char] = &[' ', '\t', '\n', '\r'];

    fn member<'a>(value: &'a str, token: &str) -> Option<&'a str> {
        let object = value.starts_with('{');
        if !object && !value.starts_with('[') {
            return None;
        }
        let mut rest = value.get(1..)?.trim_start_matches(WHITE);
        let (mut place, mut found) = (0_usize, None);
        while !rest.starts_with(['}', ']']) {
            let named = if object {
                let (key, after) = rest.split_at_checked(length(rest))?;
                rest = after.trim_start_matches(WHITE).strip_prefix(':')?.trim_start_matches(WHITE);
                serde_json::from_str::<String>(key).ok()? == token
            } else {
                place.to_string() == token
            };
            let (item, after) = rest.split_at_checked(length(rest))?;
            if named {
                found = Some(item);
            }
            place += 1;
            rest = after.trim_start_matches(WHITE);
            rest = rest.strip_prefix(',').unwrap_or(rest).trim_start_matches(WHITE);
        }
        found
    }

    /// Bytes of the value that a text begins with.
    fn length(text: &str) -> usize {
        let (mut depth, mut string, mut escaped) = (0_usize, false, false);
        for (at, byte) in text.bytes().enumerate() {
            let closed = match byte {
                _ if string && escaped => {
                    escaped = false;
                    false
                }
                b'\\' if string => {
                    escaped = true;
                    false
                }
                b'"' => {
                    string = !string;
                    !string
                }
                _ if string => false,
                b'{' | b'[' => {
                    depth += 1;
                    false
                }
                // A scalar ends before what follows it.
                b'}' | b']' | b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' if depth == 0 => return at,
                b'}' | b']' => {
                    depth -= 1;
                    true
                }
                _ => false,
            };
            if closed && depth == 0 {
                return at + 1;
            }
        }
        text.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(key: &str, pointer: &str) -> working::ResultField {
        working::ResultField { key: key.into(), pointer: pointer.into() }
    }

    #[test]
    fn a15_only_the_declared_fields_become_facts() {
        let lines: Vec<String> = (0..300).map(|n| format!(r#""line{n}": {{"名": "值{n}", "n": {n}.50}}"#)).collect();
        let payload = format!(r#"{{{}, "a/b": true, "none": null}}"#, lines.join(",\n"));
        let fields = [
            field("order.name", "/line7/名"),
            field("order.total", "/line9/n"),
            field("order.whole", "/line9"),
            field("order.flag", "/a~1b"),
            field("order.none", "/none"),
            field("order.lost", "/line300"),
        ];
        let mut facts = Vec::new();
        let missing = extract(payload.as_bytes(), &fields, "erp", "tr-1", &mut facts).expect("JSON");
        assert_eq!(missing, ["order.none", "order.lost"]);
        let seen: Vec<(&str, &str)> = facts.iter().map(|f| (f.key.as_str(), f.value.as_str())).collect();
        let whole = r#"{"名": "值9", "n": 9.50}"#;
        assert_eq!(seen, [("order.name", "值7"), ("order.total", "9.50"), ("order.whole", whole), ("order.flag", "true")]);
        assert!(facts.iter().all(|f| f.source == "erp" && f.trace_id == "tr-1"));
    }

    #[test]
    fn a15_a_pointer_finds_what_is_written_there() {
        let text = "\t{ \"a\" : 1 , \"a\" : { \"\" : \"1\" } , \"n\" : null, \"\u{e9}\\u00e9\" : false }\r\n";
        for (pointer, found) in [
            ("/a/", Some("\"1\"")),
            ("/n", Some("null")),
            ("/\u{e9}\u{e9}", Some("false")),
            ("/a/0", None),
            ("/x", None),
            ("/n/0", None),
        ] {
            assert_eq!(json::locate(text, pointer), found, "{pointer}");
        }
        let list = r#"[1,"x\"]y\\",{"b~/c":-0.10e3},[], [ [ "]" ] , 2 ] ]"#;
        for (pointer, found) in [
            ("/0", Some("1")),
            ("/1", Some(r#""x\"]y\\""#)),
            ("/2/b~0~1c", Some("-0.10e3")),
            ("/3", Some("[]")),
            ("/4/0", Some(r#"[ "]" ]"#)),
            ("/4/1", Some("2")),
            ("/5", None),
            ("/01", None),
            ("", Some(list)),
        ] {
            assert_eq!(json::locate(list, pointer), found, "{pointer}");
        }
    }

    #[test]
    fn a15_what_is_no_json_or_no_pointer_is_refused_without_its_content() {
        let refused = |payload: &str, pointer: &str| {
            extract(payload.as_bytes(), &[field("k", pointer)], "t", "tr", &mut Vec::new()).expect_err("refused")
        };
        let fault = format!("{:?}", refused("<html>secret</html>", "/a"));
        assert!(fault.contains("JSON") && !fault.contains("secret"), "{fault}");
        assert!(format!("{:?}", refused("{}", "a.b")).contains("fields[0].pointer"));
        assert!(extract(b"", &vec![field("k", ""); 65], "t", "tr", &mut Vec::new()).is_err());
        assert_eq!(extract(b"", &[], "t", "tr", &mut Vec::new()).expect("nothing asked"), Vec::<String>::new());
    }
}
