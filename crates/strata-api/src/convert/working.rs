//! Boards of working memory: wire to domain and back.
//!
//! Texts are checked here for being there and being text (blank, NUL: case C086, C079); what a board may hold is rule W4
//! to W8 in `strata_core::policy::working`.

use super::common::{duration, enumeration, optional_text, optional_time, text, wire_time};
use crate::working::v1 as pb;
use strata_core::policy::working::{
    Board, Content, Digest, DigestWrite, Fact, FactWrite, Goal, IDLE_MAX, IDLE_MIN, Ownership, Todo, TodoState, TodoWrite,
};
use strata_core::{FactKey, Fault, MemoryId, SessionId, TaskId, id::check_id, limits};

/// The task of a request: required on every call (rule W2).
///
/// # Errors
/// `INVALID_FIELD` naming `task_id`.
pub fn task_id(value: &str) -> Result<TaskId, Fault> {
    TaskId::new(value)
}

/// The session of a request; none when empty.
///
/// # Errors
/// `INVALID_FIELD` naming `session_id`.
pub fn session_id(value: &str) -> Result<Option<SessionId>, Fault> {
    if value.is_empty() { Ok(None) } else { SessionId::new(value).map(Some) }
}

/// Idle time of a new board in microseconds (rule W7); `default` when absent.
///
/// # Errors
/// `INVALID_FIELD` naming `idle_time` and its bounds.
pub fn idle_time(value: Option<&prost_types::Duration>, default: i64) -> Result<i64, Fault> {
    duration("idle_time", value, default, IDLE_MIN, IDLE_MAX)
}

/// A goal: both parts are required (rule W3).
///
/// # Errors
/// `INVALID_FIELD` naming `goal`, `goal.sentence` or `goal.acceptance`.
pub fn goal(value: Option<pb::Goal>) -> Result<Goal, Fault> {
    let goal =
        value.ok_or_else(|| Fault::field("goal", "is required: one sentence, and the condition that tells it is reached"))?;
    Ok(Goal {
        sentence: text("goal.sentence", &goal.sentence, limits::GOAL_CHARS)?,
        acceptance: text("goal.acceptance", &goal.acceptance, limits::GOAL_CHARS)?,
    })
}

/// The facts of a write: 1 to [`limits::BOARD_FACTS`].
///
/// # Errors
/// `INVALID_FIELD` naming `facts` or `facts[n].<field>`.
pub fn facts(values: Vec<pb::Fact>) -> Result<Vec<FactWrite>, Fault> {
    count("facts", values.len(), limits::BOARD_FACTS)?;
    values.into_iter().enumerate().map(|(at, value)| fact(at, value)).collect()
}

fn fact(at: usize, value: pb::Fact) -> Result<FactWrite, Fault> {
    let field = |part: &str| format!("facts[{at}].{part}");
    let key = FactKey::new(value.key).map_err(|fault| within(fault, &format!("facts[{at}].")))?;
    let content = match value.reference {
        None => Content::Value(text(&field("value"), &value.value, limits::MESSAGE_BYTES)?),
        Some(_) if !value.value.is_empty() => {
            return Err(Fault::field(field("reference"), "stands instead of a value; send one of them"));
        }
        Some(reference) => {
            let memory_id = MemoryId::parse("reference.memory_id", &reference.memory_id)
                .map_err(|fault| within(fault, &format!("facts[{at}].")))?;
            Content::Reference { memory_id, version: reference.version }
        }
    };
    Ok(FactWrite {
        key,
        content,
        source: text(&field("source"), &value.source, limits::BOARD_NAME_CHARS)?,
        trace_id: trace_id(&field("trace_id"), value.trace_id, false)?,
        verified_at: optional_time(&field("verified_at"), value.verified_at.as_ref())?,
    })
}

/// The todos of a write: 1 to [`limits::BOARD_TODOS`].
///
/// # Errors
/// `INVALID_FIELD` naming `todos` or `todos[n].<field>`.
pub fn todos(values: Vec<pb::Todo>) -> Result<Vec<TodoWrite>, Fault> {
    count("todos", values.len(), limits::BOARD_TODOS)?;
    let one = |(at, value): (usize, pb::Todo)| {
        let field = |part: &str| format!("todos[{at}].{part}");
        check_id("id", &value.id).map_err(|fault| within(fault, &format!("todos[{at}].")))?;
        Ok(TodoWrite {
            id: value.id,
            step: optional_text(&field("step"), &value.step, limits::TODO_CHARS)?,
            state: enumeration(&field("state"), value.state, todo_state)?,
            note: optional_text(&field("note"), &value.note, limits::TODO_CHARS)?,
        })
    };
    values.into_iter().enumerate().map(one).collect()
}

/// A digest: tool, sentence and trace id are required.
///
/// # Errors
/// `INVALID_FIELD` naming `digest` or `digest.<field>`.
pub fn digest(value: Option<pb::Digest>) -> Result<DigestWrite, Fault> {
    let digest = value.ok_or_else(|| Fault::field("digest", "is required"))?;
    Ok(DigestWrite {
        tool: text("digest.tool", &digest.tool, limits::BOARD_NAME_CHARS)?,
        sentence: text("digest.sentence", &digest.sentence, limits::MESSAGE_BYTES)?,
        trace_id: trace_id("digest.trace_id", digest.trace_id, true)?,
    })
}

fn trace_id(field: &str, value: String, required: bool) -> Result<String, Fault> {
    if value.is_empty() && !required {
        return Ok(value);
    }
    check_id("trace_id", &value).map_err(|fault| within(fault, field.strip_suffix("trace_id").unwrap_or_default()))?;
    Ok(value)
}

fn count(field: &'static str, len: usize, max: usize) -> Result<(), Fault> {
    if len == 0 {
        return Err(Fault::field(field, "must not be empty"));
    }
    if len > max {
        return Err(Fault::limit(field, max, field));
    }
    Ok(())
}

/// The same fault with its field's path completed.
fn within(fault: Fault, prefix: &str) -> Fault {
    match fault.fields.into_iter().next() {
        Some(violation) => Fault::field(format!("{prefix}{}", violation.field), violation.description),
        None => Fault::new(fault.reason, fault.message),
    }
}

const fn todo_state(value: pb::TodoState) -> Option<TodoState> {
    match value {
        pb::TodoState::Unspecified => None,
        pb::TodoState::Pending => Some(TodoState::Pending),
        pb::TodoState::InProgress => Some(TodoState::InProgress),
        pb::TodoState::Blocked => Some(TodoState::Blocked),
        pb::TodoState::Done => Some(TodoState::Done),
    }
}

const fn wire_todo_state(value: TodoState) -> pb::TodoState {
    match value {
        TodoState::Pending => pb::TodoState::Pending,
        TodoState::InProgress => pb::TodoState::InProgress,
        TodoState::Blocked => pb::TodoState::Blocked,
        TodoState::Done => pb::TodoState::Done,
    }
}

/// Wire form of a goal.
#[must_use]
pub fn wire_goal(goal: &Goal) -> pb::Goal {
    pb::Goal { sentence: goal.sentence.clone(), acceptance: goal.acceptance.clone() }
}

/// Wire form of a fact. A reference has no epoch: it is no claim (rule W11).
#[must_use]
pub fn wire_fact(key: &FactKey, fact: &Fact) -> pb::Fact {
    let (value, reference, epoch) = match &fact.content {
        Content::Value(value) => (value.clone(), None, fact.epoch),
        Content::Reference { memory_id, version } => {
            (String::new(), Some(pb::MemoryReference { memory_id: memory_id.to_string(), version: *version }), 0)
        }
    };
    pb::Fact {
        key: key.as_str().to_owned(),
        value,
        source: fact.source.clone(),
        trace_id: fact.trace_id.clone(),
        verified_at: Some(wire_time(fact.verified_at)),
        epoch,
        reference,
        overlay: matches!(fact.ownership, Ownership::Overlay),
    }
}

/// Wire form of a todo.
#[must_use]
pub fn wire_todo(todo: &Todo) -> pb::Todo {
    pb::Todo { id: todo.id.clone(), step: todo.step.clone(), state: wire_todo_state(todo.state).into(), note: todo.note.clone() }
}

/// A board without its slots.
#[must_use]
pub fn wire_task_info(board: &Board) -> pb::TaskInfo {
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    pb::TaskInfo {
        task_id: board.task.as_str().to_owned(),
        session_id: board.session.as_ref().map(|session| session.as_str().to_owned()).unwrap_or_default(),
        goal: board.goal.sentence.clone(),
        generation: board.generation,
        version: board.version,
        facts: count(board.facts.len()),
        todos: count(board.todos.len()),
        todos_done: count(board.todos.iter().filter(|todo| todo.state == TodoState::Done).count()),
        digests: count(board.digests.len()),
        create_time: Some(wire_time(board.create_time)),
        idle_deadline: Some(wire_time(board.idle_deadline)),
    }
}

/// Wire form of a digest.
#[must_use]
pub fn wire_digest(digest: &Digest) -> pb::Digest {
    pb::Digest {
        tool: digest.tool.clone(),
        sentence: digest.sentence.clone(),
        trace_id: digest.trace_id.clone(),
        time: Some(wire_time(digest.time)),
    }
}

/// Wire form of a whole board.
#[must_use]
pub fn wire_task(board: &Board) -> pb::Task {
    pb::Task {
        task_id: board.task.as_str().to_owned(),
        user_id: board.owner.user.as_str().to_owned(),
        agent_id: board.owner.agent_id().to_owned(),
        session_id: board.session.as_ref().map(|session| session.as_str().to_owned()).unwrap_or_default(),
        generation: board.generation,
        goal: Some(wire_goal(&board.goal)),
        facts: board.facts.iter().map(|(key, fact)| wire_fact(key, fact)).collect(),
        todos: board.todos.iter().map(wire_todo).collect(),
        digests: board.digests.iter().map(wire_digest).collect(),
        create_time: Some(wire_time(board.create_time)),
        idle_deadline: Some(wire_time(board.idle_deadline)),
        version: board.version,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(key: &str, value: &str) -> pb::Fact {
        pb::Fact { key: key.into(), value: value.into(), source: "erp".into(), ..pb::Fact::default() }
    }

    fn refused(fact: pb::Fact) -> String {
        facts(vec![wire("a", "b"), fact]).expect_err("refused").fields[0].field.clone()
    }

    #[test]
    fn a11_a_fact_names_its_key_value_and_source_and_the_refusal_names_the_field() {
        assert_eq!(refused(wire("Not a key", "v")), "facts[1].key");
        assert_eq!(refused(wire("k", " \u{200b}")), "facts[1].value");
        assert_eq!(refused(wire("k", "a\0b")), "facts[1].value");
        assert_eq!(refused(pb::Fact { source: String::new(), ..wire("k", "v") }), "facts[1].source");
        assert_eq!(refused(pb::Fact { source: "s".repeat(129), ..wire("k", "v") }), "facts[1].source");
        assert_eq!(refused(pb::Fact { trace_id: "a\u{202e}b".into(), ..wire("k", "v") }), "facts[1].trace_id");
        let reference = Some(pb::MemoryReference { memory_id: "x".into(), version: 1 });
        assert_eq!(refused(pb::Fact { reference: reference.clone(), ..wire("k", "v") }), "facts[1].reference");
        assert_eq!(refused(pb::Fact { reference, ..wire("k", "") }), "facts[1].reference.memory_id");
        assert_eq!(facts(Vec::new()).expect_err("none").fields[0].field, "facts");
    }

    #[test]
    fn c089_values_are_kept_as_they_are_written() {
        for value in [
            "9007199254740993",
            "00123",
            "0.10",
            "118.50",
            "-0",
            "12345678901234567890.12",
            " a ",
            "\u{202e}x",
            "ＡＢＣ１２３",
            "👍🏽",
            "שלום",
        ] {
            let write = facts(vec![wire("k", value)]).expect("legal").remove(0);
            assert_eq!(write.content, Content::Value(value.into()));
        }
    }

    #[test]
    fn a12_states_outside_the_four_are_refused() {
        let todo = |state: i32| pb::Todo { id: "1".into(), step: "s".into(), state, note: String::new() };
        for (state, domain) in (1..).zip(TodoState::ALL) {
            let write = todos(vec![todo(state)]).expect("known").remove(0);
            assert_eq!(write.state, *domain);
            assert_eq!(i32::from(wire_todo_state(*domain)), state);
        }
        for state in [0, 5, -1] {
            assert_eq!(todos(vec![todo(state)]).expect_err("unknown").fields[0].field, "todos[0].state");
        }
    }
}
