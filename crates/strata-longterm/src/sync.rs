//! Record systems bring what they hold: the handler. Each fact is a statement of the system, through the gate like any other.
use crate::call::{Call, Service, revision, wire_result};
use crate::intake::{self, Submitter};
use crate::state::State;
use crate::write::{self, Cursor, Item, Synced};
use strata_api::common::v1::Finding;
use strata_api::convert::{common, longterm as convert};
use strata_api::longterm::v1 as pb;
use strata_core::id::check_id;
use strata_core::limits;
use strata_core::policy::gate::{Attestation, Door};
use strata_core::record::SourceRef;
use strata_core::{Fault, Reason};
use tonic::Request;
use uuid::Uuid;

impl Service {
    pub(crate) async fn sync_facts(&self, request: Request<pb::SyncFactsRequest>) -> Result<pb::SyncFactsResponse, Fault> {
        let (state, r) = (&self.state, request.get_ref());
        let call = Call::write(state, &request, &r.user_id, &r.agent_id)?;
        let key = call.key("SyncFacts", &r.request_id, r)?;
        if let Some(answer) = state.replay(&call, key.as_ref()).await? {
            return Ok(answer);
        }
        check_id("system", &r.system)?;
        if r.facts.len() > limits::SYNC_FACTS {
            return Err(Fault::field("facts", format!("has more than {} facts", limits::SYNC_FACTS)));
        }
        let cursor = Cursor {
            system: r.system.clone(),
            expected: bounded("expected_cursor", &r.expected_cursor)?,
            next: bounded("cursor", &r.cursor)?,
        };
        let mut items = Vec::with_capacity(r.facts.len());
        for (n, fact) in r.facts.iter().enumerate() {
            items.push(judged(state, &call, &r.system, n, fact)?);
        }
        let records: Vec<String> = r.facts.iter().map(|fact| fact.record_id.clone()).collect();
        state
            .once(&call, key, move |db, context| {
                let (done, cursor, at) = write::sync(db, context, &cursor, items)?;
                let mut results = Vec::with_capacity(done.len());
                for (record_id, done) in records.into_iter().zip(done) {
                    results.push(match done {
                        Synced::Written(written) => {
                            let mut result = wire_result(db, &written, String::new())?;
                            if let Some(memory) = &mut result.memory {
                                memory.evidence.clear();
                            }
                            pb::SyncResult { record_id, result: Some(result), ..pb::SyncResult::default() }
                        }
                        Synced::Removed(ids) => {
                            let removed = ids.iter().map(ToString::to_string).collect();
                            pb::SyncResult { record_id, removed, ..pb::SyncResult::default() }
                        }
                        Synced::Refused(fault) => refused(record_id, &fault),
                    });
                }
                Ok((pb::SyncFactsResponse { results, cursor, revision: revision(at) }, true))
            })
            .await
    }
}

fn bounded(field: &'static str, cursor: &str) -> Result<String, Fault> {
    if cursor.len() > limits::CURSOR_BYTES {
        return Err(Fault::field(field, format!("is longer than {} bytes", limits::CURSOR_BYTES)));
    }
    common::optional_text(field, cursor, limits::CURSOR_BYTES)
}

/// One fact through the gate. What is malformed refuses the batch, what the gate does not take only the fact.
fn judged(state: &State, call: &Call, system: &str, n: usize, fact: &pb::SystemFact) -> Result<Item, Fault> {
    let named = |mut fault: Fault| {
        for violation in &mut fault.fields {
            let field = violation.field.strip_prefix("statement.").unwrap_or(&violation.field);
            violation.field = format!("facts[{n}].{field}");
        }
        fault
    };
    check_id("record_id", &fact.record_id).map_err(named)?;
    let reference = SourceRef::SystemRecord { system: system.to_owned(), record_id: fact.record_id.clone() };
    if fact.removed {
        return Ok(Item::Removed(reference));
    }
    if fact.key.is_empty() {
        return Err(named(Fault::field("key", "is required")));
    }
    let quote = if fact.source_text.is_empty() { &fact.content } else { &fact.source_text };
    let statement = pb::Statement {
        kind: pb::Kind::Fact.into(),
        key: fact.key.clone(),
        value: fact.value.clone(),
        content: fact.content.clone(),
        source: pb::Source::AuthoritativeSystem.into(),
        source_ref: Some(convert::wire_source_ref(&reference)),
        source_quote: quote.clone(),
        trigger: pb::Trigger::Sync.into(),
        valid_from: fact.valid_from,
        valid_to: fact.valid_to,
        tags: fact.tags.clone(),
        metadata: fact.metadata.clone(),
        ..pb::Statement::default()
    };
    let statement = convert::statement(Some(&statement), call.now).map_err(named)?;
    let by = Submitter {
        scope: &call.scope,
        roles: &call.claims.caller.roles,
        attestation: Attestation::default(),
        door: Door::Sync,
        // One record of a system is one piece of evidence, however often it is brought.
        request_id: Some(Uuid::new_v5(&Uuid::NAMESPACE_OID, strata_core::id::join(&[system, &fact.record_id]).as_bytes())),
        now: call.now,
    };
    match intake::submit(state, &call.settings, &by, statement) {
        // A record system names key and value itself: one fact is one record.
        Ok(((gated, material), _)) => Ok(Item::Fact(Box::new(gated), Box::new(material))),
        Err(fault) if matches!(fault.reason, Reason::Internal | Reason::InvalidField) => Err(named(fault)),
        Err(fault) => Ok(Item::Refused(fault)),
    }
}

fn refused(record_id: String, fault: &Fault) -> pb::SyncResult {
    let findings = fault.preconditions.iter().map(|p| Finding {
        rule: p.rule.clone(),
        outcome: "REFUSED".to_owned(),
        because: p.description.clone(),
    });
    pb::SyncResult {
        record_id,
        refused: fault.reason.name().to_owned(),
        message: fault.message.clone(),
        findings: findings.collect(),
        ..pb::SyncResult::default()
    }
}
