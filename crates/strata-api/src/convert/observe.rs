//! Observe on the wire.

use super::common;
use crate::router::v1 as pb;
use crate::session::v1 as session;
use strata_core::limits::OBSERVE_TURNS;
use strata_core::policy::observe::{Command, RawCommand, checked};
use strata_core::{Fault, limits};
use uuid::Uuid;

/// What an Observe asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Observe {
    /// Session of the turns; may be empty with commands alone.
    pub session_id: String,
    /// A turn to append first.
    pub turn: Option<session::NewTurn>,
    /// First stored turn to observe; 0 without one.
    pub from_seq: u32,
    /// Last stored turn to observe; 0 without one.
    pub seq: u32,
    /// The agent's own commands.
    pub commands: Vec<Command>,
    /// Decide and log only.
    pub log_only: bool,
    /// Wait for the decisions.
    pub wait: bool,
    /// UUID of the caller.
    pub request_id: Option<Uuid>,
}

/// Checks an Observe.
///
/// # Errors
/// `INVALID_FIELD` naming the field.
pub fn observe(request: pb::ObserveRequest) -> Result<Observe, Fault> {
    let request_id = common::request_id(&request.request_id)?;
    let stored = request.seq > 0;
    if request.turn.is_some() && stored {
        return Err(Fault::field("turn", "is not possible together with seq: it is appended and observed"));
    }
    if request.turn.is_none() && !stored && request.commands.is_empty() {
        return Err(Fault::field("turn", "is required, or seq, or commands"));
    }
    if (request.turn.is_some() || stored) && request.session_id.is_empty() {
        return Err(Fault::field("session_id", "is required with a turn"));
    }
    let from_seq = if request.from_seq == 0 { request.seq } else { request.from_seq };
    if from_seq > request.seq || (request.from_seq > 0 && !stored) {
        return Err(Fault::field("from_seq", "is a turn at or before seq"));
    }
    if request.seq - from_seq >= OBSERVE_TURNS {
        return Err(Fault::field("from_seq", format!("names more than {OBSERVE_TURNS} turns")));
    }
    let raw = request.commands.into_iter().enumerate().map(|(n, command)| raw_command(n, command));
    Ok(Observe {
        session_id: request.session_id,
        turn: request.turn,
        from_seq,
        seq: request.seq,
        commands: checked(raw.collect::<Result<_, Fault>>()?)?,
        log_only: request.log_only,
        wait: request.wait,
        request_id,
    })
}

fn raw_command(n: usize, command: pb::MemoryCommand) -> Result<RawCommand, Fault> {
    let op = command.op();
    let size: usize = command.metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
    if size > limits::METADATA_BYTES {
        return Err(Fault::field(format!("commands[{n}].metadata"), format!("is larger than {} bytes", limits::METADATA_BYTES)));
    }
    Ok(RawCommand {
        op: match op {
            pb::CommandOp::Unspecified => String::new(),
            pb::CommandOp::Create => "CREATE".to_owned(),
            pb::CommandOp::Update => "UPDATE".to_owned(),
            pb::CommandOp::Delete => "DELETE".to_owned(),
        },
        subject: command.r#type,
        content: command.content,
        key: command.key,
        value: command.value,
        importance: i64::from(command.importance),
        metadata: command.metadata,
        target: command.target,
        quote: command.quote,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn() -> pb::ObserveRequest {
        pb::ObserveRequest { session_id: "s".into(), seq: 7, ..Default::default() }
    }

    #[test]
    fn an_observe_names_its_bad_field() {
        assert_eq!(observe(turn()).map(|o| (o.from_seq, o.seq)), Ok((7, 7)));
        let field = |request: pb::ObserveRequest| observe(request).expect_err("refused").fields[0].field.clone();
        assert_eq!(field(pb::ObserveRequest::default()), "turn");
        assert_eq!(field(pb::ObserveRequest { turn: Some(session::NewTurn::default()), ..turn() }), "turn");
        assert_eq!(field(pb::ObserveRequest { session_id: String::new(), ..turn() }), "session_id");
        assert_eq!(field(pb::ObserveRequest { from_seq: 8, ..turn() }), "from_seq");
        assert_eq!(field(pb::ObserveRequest { seq: 900, from_seq: 1, ..turn() }), "from_seq");
        assert_eq!(field(pb::ObserveRequest { request_id: "x".into(), ..turn() }), "request_id");
        let command = pb::MemoryCommand { op: 9, r#type: "FACT".into(), content: "x".into(), ..Default::default() };
        assert_eq!(field(pb::ObserveRequest { commands: vec![command], ..turn() }), "commands[0].op");
        let large = [("k".to_owned(), "x".repeat(limits::METADATA_BYTES))].into();
        let command =
            pb::MemoryCommand { op: 1, r#type: "FACT".into(), content: "x".into(), metadata: large, ..Default::default() };
        assert_eq!(field(pb::ObserveRequest { commands: vec![command], ..turn() }), "commands[0].metadata");
    }
}
