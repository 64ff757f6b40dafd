//! Records by id, changes of a record, and what became of a recall: the handlers. Rules and storage are in `write` and
//! `metadata`.
use crate::call::{ANSWER_BYTES, Call, Service, Submitted, etag, revision, submit, wire_result};
use crate::intake::{self, Submitter};
use crate::metadata::{query, usage};
use crate::shown::wire;
use crate::write::{self, Change, Outcome, Replaced};
use prost::Message as _;
use std::sync::Arc;
use strata_api::convert::update::{Patch, patch};
use strata_api::convert::{common, longterm as convert};
use strata_api::longterm::v1 as pb;
use strata_core::policy::gate::{Attestation, Door, Statement};
use strata_core::record::{Record, Tier, Trigger};
use strata_core::{Fault, MemoryId};
use tonic::Request;
use uuid::Uuid;

impl Service {
    pub(crate) async fn batch_get_memories(
        &self,
        request: Request<pb::BatchGetMemoriesRequest>,
    ) -> Result<pb::BatchGetMemoriesResponse, Fault> {
        let (state, r) = (&self.state, request.get_ref());
        let call = Call::read(state, &request, &r.user_id, &r.agent_id)?;
        let ids = convert::memory_ids("memory_ids", &r.memory_ids)?;
        if ids.is_empty() {
            return Err(Fault::field("memory_ids", "names no record"));
        }
        let (now, asked) = (call.now, ids.clone());
        let answer = state
            .read(&call.scope, move |db, visible| {
                let (mut out, mut bytes) = (pb::BatchGetMemoriesResponse::default(), 0);
                for id in asked {
                    let Some(found) = query::get(db, visible, id, now)? else {
                        out.not_found.push(id.to_string());
                        continue;
                    };
                    let memory = wire(db, &found)?;
                    bytes += memory.encoded_len() + 16;
                    if bytes > ANSWER_BYTES && !out.memories.is_empty() {
                        out.left_out.push(id.to_string());
                    } else {
                        out.memories.push(memory);
                    }
                }
                Ok(out)
            })
            .await?;
        let nothing = || pb::BatchGetMemoriesResponse {
            not_found: ids.iter().map(MemoryId::to_string).collect(),
            ..pb::BatchGetMemoriesResponse::default()
        };
        Ok(answer.unwrap_or_else(nothing))
    }

    pub(crate) async fn update_memory(
        &self,
        request: Request<pb::UpdateMemoryRequest>,
    ) -> Result<pb::UpdateMemoryResponse, Fault> {
        let (state, r) = (&self.state, request.get_ref());
        let call = Call::write(state, &request, &r.user_id, &r.agent_id)?;
        let key = call.key("UpdateMemory", &r.request_id, r)?;
        if let Some(answer) = state.replay(&call, key.as_ref()).await? {
            return Ok(answer);
        }
        let change = Change { memory_id: MemoryId::parse("memory_id", &r.memory_id)?, etag: etag(&r.etag)? };
        let (id, now) = (change.memory_id, call.now);
        let found = || async {
            let found = state.read(&call.scope, move |db, visible| query::get(db, visible, id, now)).await?.flatten();
            found.ok_or_else(|| Fault::not_found("memory", id.to_string()))
        };
        let request_id = key.as_ref().map(|key| key.request_id);
        match (&r.update_mask, &r.statement) {
            (Some(_), Some(_)) => {
                Err(Fault::field("statement", "and update_mask exclude each other: it carries these fields itself"))
            }
            (None, None) => Err(Fault::field("update_mask", "or statement is required")),
            (None, Some(statement)) => {
                let old = Replaced::check(found().await?)?;
                let statement = completed(statement, old.record())?;
                // One record is replaced by one.
                let Submitted { first: (gated, material), challenge, .. } =
                    submit(state, &call, Door::Update, Some(&statement), request_id)?;
                state
                    .once(&call, key, move |db, context| {
                        let written = write::replace(db, context, change, &gated, &material)?;
                        let answer = pb::UpdateMemoryResponse { result: Some(wire_result(db, &written, challenge)?) };
                        Ok((answer, written.outcome != Outcome::NeedsConsent))
                    })
                    .await
            }
            (Some(mask), None) => {
                let patch = patch(r.memory.as_ref(), mask, now)?;
                let consent = common::optional_text("consent", &r.consent, strata_core::limits::ID_BYTES)?;
                let statement = labelled(&found().await?.record, &patch, consent);
                let challenge = state.challenges.mint(call.scope.owner(), &statement);
                let by = Submitter {
                    scope: &call.scope,
                    roles: &call.claims.caller.roles,
                    attestation: Attestation::default(),
                    door: Door::Update,
                    request_id,
                    now,
                };
                let (gated, _) = intake::readmit(state, &call.settings, &by, statement)?;
                let registry = Arc::clone(&state.registry);
                state
                    .once(&call, key, move |db, context| {
                        let written = write::amend(db, context, &registry, change, &patch, &gated)?;
                        let answer = pb::UpdateMemoryResponse { result: Some(wire_result(db, &written, challenge)?) };
                        Ok((answer, written.outcome != Outcome::NeedsConsent))
                    })
                    .await
            }
        }
    }

    pub(crate) async fn report_usage(&self, request: Request<pb::ReportUsageRequest>) -> Result<pb::ReportUsageResponse, Fault> {
        let (state, r) = (&self.state, request.get_ref());
        let call = Call::write(state, &request, &r.user_id, &r.agent_id)?;
        let key = call.key("ReportUsage", &r.request_id, r)?;
        let recall_id = Uuid::parse_str(&r.recall_id).map_err(|_| Fault::field("recall_id", "is not a recall id (a UUID)"))?;
        let ids = convert::memory_ids("memory_ids", &r.memory_ids)?;
        // A recall is counted after it was answered: its id may still be on its way into the file.
        state.recall.settle().await;
        state
            .once(&call, key, move |db, context| {
                let report = usage::report(db, context, recall_id, &ids)?;
                let text = |ids: &[MemoryId]| ids.iter().map(MemoryId::to_string).collect();
                let answer = pb::ReportUsageResponse {
                    cited: text(&report.cited),
                    refused: text(&report.refused),
                    recalled: report.recalled,
                    hit_rate: report.hit_rate(),
                    revision: revision(report.revision),
                };
                Ok((answer, true))
            })
            .await
    }
}

/// The new statement of a record, with what only the record can say: kind, key and tier stay.
fn completed(statement: &pb::Statement, old: &Record) -> Result<pb::Statement, Fault> {
    let mut out = statement.clone();
    let kind = i32::from(convert::wire_kind(old.kind));
    if out.kind != 0 && out.kind != kind {
        return Err(Fault::field("statement.kind", "is not the record's; forget it and remember another"));
    }
    out.kind = kind;
    let key = old.key.as_ref().map_or("", |key| key.as_str());
    if !key.is_empty() {
        if !out.key.is_empty() && out.key != key {
            return Err(Fault::field("statement.key", "is not the record's; forget it and remember another"));
        }
        key.clone_into(&mut out.key);
    }
    if out.tier == 0 && old.tier != Tier::Event {
        out.tier = convert::wire_tier(old.tier).into();
    }
    Ok(out)
}

/// The statement a record makes with its new labels.
fn labelled(record: &Record, patch: &Patch, consent: String) -> Statement {
    Statement {
        kind: record.kind,
        key: record.key.clone(),
        value: record.value.clone(),
        content: record.content.clone(),
        source: record.source,
        source_ref: record.source_ref.clone(),
        source_quote: record.source_quote.clone(),
        trigger: Some(Trigger::UserRequest),
        importance: Some(record.importance),
        confidence: Some(record.confidence),
        tier: (record.tier != Tier::Event).then_some(record.tier),
        protected: record.protected,
        valid_from: record.valid_from,
        valid_to: record.valid_to,
        expire_time: None,
        topic: patch.topic.clone().unwrap_or_else(|| record.topic.clone()),
        tags: patch.tags.clone().unwrap_or_else(|| record.tags.clone()),
        metadata: patch.metadata.clone().unwrap_or_else(|| record.metadata.clone()),
        vector: Vec::new(),
        consent: (!consent.is_empty()).then_some(consent),
    }
}
