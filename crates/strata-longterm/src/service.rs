//! The public service: claims and wire in, one read or one transaction, wire out. Nothing is decided here.

use crate::call::{
    ANSWER_BYTES, Call, Pager, Service, asked_too_much, binding, etag, finish, parts, revision, submit, wire_result,
};
use crate::in_force::in_force;
use crate::intake::{self, Submitter};
use crate::metadata::StoredRecord;
use crate::metadata::ledger::RequestKey;
use crate::metadata::query::{self, CandidateCursor, Only};
use crate::shown::{item_of_key, wire};
use crate::write::{self, Outcome};
use prost::Message as _;
use rusqlite::Connection;
use std::sync::Arc;
use strata_api::convert::common::{self, wire_finding};
use strata_api::convert::longterm as convert;
use strata_api::error;
use strata_api::longterm::v1 as pb;
use strata_api::longterm::v1::long_term_memory_service_server::LongTermMemoryService;
use strata_core::id::check_id;
use strata_core::limits;
use strata_core::policy::gate::{self, Attestation, Door};
use strata_core::policy::status::is_valid;
use strata_core::record::Status;
use strata_core::{FactKey, Fault, MemoryId, Reason, Timestamp};
use tonic::{Request, Response, Status as GrpcStatus, Streaming};

impl Service {
    async fn submit(
        &self,
        call: &Call,
        key: Option<RequestKey>,
        door: Door,
        statement: Option<&pb::Statement>,
    ) -> Result<pb::WriteResult, Fault> {
        let state = &self.state;
        if let Some(result) = state.replay(call, key.as_ref()).await? {
            return Ok(result);
        }
        let mut submitted = submit(state, call, door, statement, key.as_ref().map(|key| key.request_id))?;
        state.relate(&call.scope, call.now, &mut submitted.first).await?;
        state
            .once(call, key, move |db, context| {
                let written = write::store_all(db, context, &submitted.first, &submitted.others)?;
                Ok((wire_result(db, &written, submitted.challenge)?, written.outcome != Outcome::NeedsConsent))
            })
            .await
    }

    async fn remember(&self, request: Request<pb::RememberRequest>) -> Result<pb::RememberResponse, Fault> {
        let r = request.get_ref();
        let call = Call::write(&self.state, &request, &r.user_id, &r.agent_id)?;
        let key = call.key("Remember", &r.request_id, r)?;
        let result = self.submit(&call, key, Door::Remember, r.statement.as_ref()).await?;
        Ok(pb::RememberResponse { result: Some(result) })
    }

    async fn propose(&self, request: Request<pb::ProposeRequest>) -> Result<pb::ProposeResponse, Fault> {
        let r = request.get_ref();
        let call = Call::write(&self.state, &request, &r.user_id, &r.agent_id)?;
        let key = call.key("Propose", &r.request_id, r)?;
        let result = self.submit(&call, key, Door::Propose, r.statement.as_ref()).await?;
        Ok(pb::ProposeResponse { result: Some(result) })
    }

    async fn confirm_candidate(
        &self,
        request: Request<pb::ConfirmCandidateRequest>,
    ) -> Result<pb::ConfirmCandidateResponse, Fault> {
        let (state, r) = (&self.state, request.get_ref());
        let call = Call::write(state, &request, &r.user_id, &r.agent_id)?;
        let key = call.key("ConfirmCandidate", &r.request_id, r)?;
        if let Some(result) = state.replay(&call, key.as_ref()).await? {
            return Ok(pb::ConfirmCandidateResponse { result: Some(result) });
        }
        let id = MemoryId::parse("memory_id", &r.memory_id)?;
        check_id("confirmation", &r.confirmation)?;
        let etag = etag(&r.etag)?;
        let now = call.now;
        let found = state.read(&call.scope, move |db, visible| query::get(db, visible, id, now)).await?.flatten();
        let record = found.ok_or_else(|| Fault::not_found("memory", id.to_string()))?.record;
        let by = Submitter {
            scope: &call.scope,
            roles: &call.claims.caller.roles,
            attestation: Attestation::default(),
            door: Door::Confirm,
            request_id: key.as_ref().map(|key| key.request_id),
            now,
        };
        // A record holds one value: there are no others.
        let (mut passed, _) = intake::submit(state, &call.settings, &by, gate::confirmation(&record, &r.confirmation))?;
        state.relate(&call.scope, call.now, &mut passed).await?;
        let (gated, material) = passed;
        let result = state
            .once(&call, key, move |db, context| {
                let written = write::confirm(db, context, id, etag, &gated, &material)?;
                Ok((wire_result(db, &written, String::new())?, true))
            })
            .await?;
        Ok(pb::ConfirmCandidateResponse { result: Some(result) })
    }

    async fn reject_candidate(&self, request: Request<pb::RejectCandidateRequest>) -> Result<pb::RejectCandidateResponse, Fault> {
        let (state, r) = (&self.state, request.get_ref());
        let call = Call::write(state, &request, &r.user_id, &r.agent_id)?;
        let key = call.key("RejectCandidate", &r.request_id, r)?;
        let id = MemoryId::parse("memory_id", &r.memory_id)?;
        state
            .once(&call, key, move |db, context| {
                let (found, at) = write::reject(db, context, id)?;
                Ok((pb::RejectCandidateResponse { memory: Some(wire(db, &found)?), revision: revision(at) }, true))
            })
            .await
    }

    /// A call that is refused leaves an entry in the audit too (case C030).
    async fn forget_memories(&self, request: Request<pb::ForgetMemoriesRequest>) -> Result<pb::ForgetMemoriesResponse, Fault> {
        let (state, r) = (&self.state, request.get_ref());
        let call = Call::write(state, &request, &r.user_id, &r.agent_id)?;
        let answer = self.forget(&call, r).await;
        if let Err(fault) = &answer {
            let (scope, actor, now, why) = (call.scope, call.claims.caller.id, call.now, fault.reason.name());
            let ids: Vec<MemoryId> = r.memory_ids.iter().filter_map(|id| MemoryId::parse("memory_ids", id).ok()).collect();
            let noted = state.database.write(move |db| write::refused_to_forget(db, &scope, &actor, now, &ids, why)).await;
            if let Err(fault) = noted {
                tracing::warn!(reason = fault.reason.name(), "a refused Forget is not in the audit");
            }
        }
        answer
    }

    async fn forget(&self, call: &Call, r: &pb::ForgetMemoriesRequest) -> Result<pb::ForgetMemoriesResponse, Fault> {
        let state = &self.state;
        let key = call.key("ForgetMemories", &r.request_id, r)?;
        let ids = convert::memory_ids("memory_ids", &r.memory_ids)?;
        let keys = convert::keys("keys", &r.keys, limits::BATCH_IDS)?;
        let keys: Vec<FactKey> = keys.iter().map(|key| state.registry.resolve(key)).collect();
        if ids.is_empty() && keys.is_empty() {
            return Err(Fault::field("memory_ids", "names no record, and keys names none either"));
        }
        let reason = common::text("reason", &r.reason, limits::REASON_CHARS)?;
        if strata_text::features(&reason).sensitive.iter().any(|span| span.kind != strata_core::text::SensitiveKind::Health) {
            // It stays in the history, which soft forgetting keeps.
            return Err(Fault::field("reason", "holds personal data; say why without repeating what is to be forgotten"));
        }
        state
            .once(call, key, move |db, context| {
                let done = write::forget(db, context, &ids, &keys, &reason)?;
                let text = |ids: Vec<MemoryId>| ids.iter().map(MemoryId::to_string).collect();
                let answer = pb::ForgetMemoriesResponse {
                    forgotten: text(done.forgotten),
                    not_found: text(done.not_found),
                    revision: revision(done.revision),
                };
                Ok((answer, true))
            })
            .await
    }

    async fn restore_memories(&self, request: Request<pb::RestoreMemoriesRequest>) -> Result<pb::RestoreMemoriesResponse, Fault> {
        let (state, r) = (&self.state, request.get_ref());
        let call = Call::write(state, &request, &r.user_id, &r.agent_id)?;
        let key = call.key("RestoreMemories", &r.request_id, r)?;
        let ids = convert::memory_ids("memory_ids", &r.memory_ids)?;
        if ids.is_empty() {
            return Err(Fault::field("memory_ids", "names no record"));
        }
        let registry = Arc::clone(&state.registry);
        state
            .once(&call, key, move |db, context| {
                let done = write::restore(db, context, &registry, &ids)?;
                let mut bytes = 0;
                let mut memories = Vec::with_capacity(done.records.len());
                for found in &done.records {
                    // Evidence is left out where it would not fit into one message; it can be read by id.
                    let mut memory = wire(db, found)?;
                    if bytes + memory.encoded_len() > ANSWER_BYTES / 2 {
                        memory.evidence.clear();
                    }
                    bytes += memory.encoded_len();
                    if bytes > ANSWER_BYTES {
                        return Err(Fault::field(
                            "memory_ids",
                            "names more records than one answer can hold; restore them in parts",
                        ));
                    }
                    memories.push(memory);
                }
                let answer = pb::RestoreMemoriesResponse {
                    memories,
                    not_found: done.not_found.iter().map(MemoryId::to_string).collect(),
                    findings: done.findings.iter().map(wire_finding).collect(),
                    revision: revision(done.revision),
                };
                Ok((answer, true))
            })
            .await
    }

    async fn undo_consolidation(
        &self,
        request: Request<pb::UndoConsolidationRequest>,
    ) -> Result<pb::UndoConsolidationResponse, Fault> {
        let (state, r) = (&self.state, request.get_ref());
        let call = Call::write(state, &request, &r.user_id, &r.agent_id)?;
        let key = call.key("UndoConsolidation", &r.request_id, r)?;
        let id = MemoryId::parse("memory_id", &r.memory_id)?;
        let registry = Arc::clone(&state.registry);
        state
            .once(&call, key, move |db, context| {
                let done = write::undo(db, context, &registry, id)?;
                let text = |ids: &[MemoryId]| ids.iter().map(MemoryId::to_string).collect();
                let answer = pb::UndoConsolidationResponse {
                    summary: Some(wire(db, &done.summary)?),
                    restored: text(&done.restored),
                    left: text(&done.left),
                    removed: text(&done.removed),
                    findings: done.findings.iter().map(wire_finding).collect(),
                    revision: revision(done.revision),
                };
                Ok((answer, true))
            })
            .await
    }

    async fn list_candidates(&self, request: Request<pb::ListCandidatesRequest>) -> Result<pb::ListCandidatesResponse, Fault> {
        let (state, r) = (&self.state, request.get_ref());
        let call = Call::read(state, &request, &r.user_id, &r.agent_id)?;
        let mut pager = Pager::new(r.page_size)?;
        if !r.session_id.is_empty() {
            check_id("session_id", &r.session_id)?;
        }
        let due = r.due_only.then(|| r.session_id.clone());
        let scope = call.scope.clone();
        let kind = due.as_ref().map_or_else(|| "all".to_owned(), |session| format!("due {session}"));
        let binding = binding(&scope, "ListCandidates", &kind);
        let after = state.tokens.open(&parts(&binding), &r.page_token)?.map(|text| candidate_cursor(&text)).transpose()?;
        let (state, now) = (Arc::clone(state), call.now);
        let tokens = state.tokens.clone();
        let answer = state
            .read(&scope, move |db, visible| {
                let rows = query::candidates(db, visible, due.as_deref(), after, pager.rows(), now)?;
                let (candidates, last) = pager.fill(rows, |found| {
                    Ok(pb::Candidate {
                        memory: Some(wire(db, found)?),
                        due: found.due,
                        conflicts_with: found.conflicts_with.map(|id| id.to_string()).unwrap_or_default(),
                    })
                })?;
                let cursor = last.map(|found| format!("{}:{}", u8::from(found.due), found.record.memory_id));
                let next_page_token = cursor.map(|cursor| tokens.mint(&parts(&binding), &cursor)).unwrap_or_default();
                Ok(pb::ListCandidatesResponse { candidates, next_page_token, capped: pager.page.capped })
            })
            .await?;
        Ok(answer.unwrap_or_else(|| pb::ListCandidatesResponse { capped: asked_too_much(r.page_size), ..Default::default() }))
    }

    async fn get_memory(&self, request: Request<pb::GetMemoryRequest>) -> Result<pb::GetMemoryResponse, Fault> {
        let (state, r) = (&self.state, request.get_ref());
        let call = Call::read(state, &request, &r.user_id, &r.agent_id)?;
        let (id, now) = (MemoryId::parse("memory_id", &r.memory_id)?, call.now);
        let found = state
            .read(&call.scope, move |db, visible| query::get(db, visible, id, now)?.map(|found| wire(db, &found)).transpose())
            .await?
            .flatten();
        let memory = found.ok_or_else(|| Fault::not_found("memory", id.to_string()))?;
        Ok(pb::GetMemoryResponse { memory: Some(memory) })
    }

    async fn lookup_memory(&self, request: Request<pb::LookupMemoryRequest>) -> Result<pb::LookupMemoryResponse, Fault> {
        let (state, r) = (&self.state, request.get_ref());
        let call = Call::read(state, &request, &r.user_id, &r.agent_id)?;
        let key = state.registry.resolve(&FactKey::new(r.key.clone())?);
        let (is_set, by_agent) = (state.registry.is_set(&key), call.scope.owner().agent.is_some());
        let now = call.now;
        let items = state
            .read(&call.scope, move |db, visible| {
                let mut pager = Pager::new(0)?;
                pager.page.size = limits::PAGE_MAX;
                let winners = in_force(query::in_force(db, visible, &key, now)?, is_set, by_agent);
                let (items, _) = pager.fill(winners, |(found, labels)| item_of_key(db, found, labels))?;
                Ok(items)
            })
            .await?;
        Ok(pb::LookupMemoryResponse { items: items.unwrap_or_default() })
    }

    async fn recall(&self, request: Request<pb::RecallRequest>) -> Result<pb::RecallResponse, Fault> {
        let r = request.get_ref();
        let call = Call::read(&self.state, &request, &r.user_id, &r.agent_id)?;
        self.state.recall.recall(&call.scope, request.into_inner()).await
    }

    async fn list_memories(&self, request: Request<pb::ListMemoriesRequest>) -> Result<pb::ListMemoriesResponse, Fault> {
        let (state, r) = (&self.state, request.get_ref());
        let call = Call::read(state, &request, &r.user_id, &r.agent_id)?;
        let filter = convert::filter(r.filter.as_ref())?;
        let mut pager = Pager::new(r.page_size)?;
        let members_of = if r.summary_id.is_empty() { None } else { Some(MemoryId::parse("summary_id", &r.summary_id)?) };
        let sources = convert::sources("sources", &r.sources)?;
        let names: Vec<&str> = sources.iter().map(|source| source.name()).collect();
        let asked = format!("{} {} {names:?} {}", r.summary_id, r.protected_only, filter.binding());
        let binding = binding(&call.scope, "ListMemories", &asked);
        let only = Only { members_of, protected: r.protected_only, sources };
        let after =
            state.tokens.open(&parts(&binding), &r.page_token)?.map(|text| MemoryId::parse("page_token", &text)).transpose()?;
        let (tokens, now) = (state.tokens.clone(), call.now);
        let answer = state
            .read(&call.scope, move |db, visible| {
                let rows = query::list(db, visible, &filter, &only, after, pager.rows(), now)?;
                let (memories, last) = pager.fill(rows, |found| wire(db, found))?;
                let next_page_token =
                    last.map(|found| tokens.mint(&parts(&binding), &found.record.memory_id.to_string())).unwrap_or_default();
                Ok(pb::ListMemoriesResponse { memories, next_page_token, capped: pager.page.capped })
            })
            .await?;
        Ok(answer.unwrap_or_else(|| pb::ListMemoriesResponse { capped: asked_too_much(r.page_size), ..Default::default() }))
    }

    async fn get_history(&self, request: Request<pb::GetHistoryRequest>) -> Result<pb::GetHistoryResponse, Fault> {
        let (state, r) = (&self.state, request.get_ref());
        let call = Call::read(state, &request, &r.user_id, &r.agent_id)?;
        let subject = match (r.memory_id.is_empty(), r.key.is_empty()) {
            (false, true) => Subject::Record(MemoryId::parse("memory_id", &r.memory_id)?),
            (true, false) => Subject::Key(state.registry.resolve(&FactKey::new(r.key.clone())?)),
            (true, true) => return Err(Fault::field("memory_id", "or key is required")),
            (false, false) => return Err(Fault::field("memory_id", "and key exclude each other")),
        };
        let as_of = common::optional_time("as_of", r.as_of.as_ref())?;
        let valid_at = common::optional_time("valid_at", r.valid_at.as_ref())?;
        let mut pager = Pager::new(r.page_size)?;
        let binding = binding(&call.scope, "GetHistory", &format!("{subject:?} {as_of:?} {valid_at:?}"));
        let after = state.tokens.open(&parts(&binding), &r.page_token)?.map(|text| history_cursor(&text)).transpose()?;
        let (tokens, now) = (state.tokens.clone(), call.now);
        let missing = matches!(subject, Subject::Record(_)).then(|| Fault::not_found("memory", r.memory_id.clone()));
        let answer = state
            .read(&call.scope, move |db, visible| {
                let chain = match &subject {
                    Subject::Record(id) => {
                        if query::get(db, visible, *id, now)?.is_none() {
                            return Ok(None);
                        }
                        query::chain_of(db, visible, *id, now)?
                    }
                    Subject::Key(key) => query::history_of_key(db, visible, key, now)?,
                };
                let mut chain = held(db, chain, as_of, valid_at)?;
                if let Some(after) = after {
                    chain.retain(|found| (found.record.event_time, found.record.memory_id) > after);
                }
                let mut entries = Vec::new();
                let (memories, last) = pager.fill(chain, |found| {
                    entries.extend(query::history(db, found.record.memory_id)?.iter().map(convert::wire_history));
                    wire(db, found)
                })?;
                // What was read for a record that no longer fitted does not belong to this page.
                let shown: std::collections::BTreeSet<&str> = memories.iter().map(|m| m.memory_id.as_str()).collect();
                entries.retain(|entry| shown.contains(entry.memory_id.as_str()));
                entries.sort_by_key(|entry| entry.time.map(|t| (t.seconds, t.nanos)));
                let cursor = last.map(|found| format!("{}:{}", found.record.event_time.micros(), found.record.memory_id));
                let next_page_token = cursor.map(|cursor| tokens.mint(&parts(&binding), &cursor)).unwrap_or_default();
                Ok(Some(pb::GetHistoryResponse { memories, entries, next_page_token, capped: pager.page.capped }))
            })
            .await?
            .flatten();
        match (answer, missing) {
            (Some(answer), _) => Ok(answer),
            (None, Some(missing)) => Err(missing),
            (None, None) => Ok(pb::GetHistoryResponse { capped: asked_too_much(r.page_size), ..Default::default() }),
        }
    }
}

/// What a history is asked for.
#[derive(Debug)]
enum Subject {
    Record(MemoryId),
    Key(FactKey),
}

/// Of a chain, what we believed at `as_of` and what held at `valid_at`; all of it when neither is asked for.
fn held(
    db: &Connection,
    chain: Vec<StoredRecord>,
    as_of: Option<Timestamp>,
    valid_at: Option<Timestamp>,
) -> Result<Vec<StoredRecord>, Fault> {
    if as_of.is_none() && valid_at.is_none() {
        return Ok(chain);
    }
    let starts: std::collections::BTreeMap<MemoryId, Timestamp> =
        chain.iter().map(|found| (found.record.memory_id, found.record.valid_from.unwrap_or(found.record.event_time))).collect();
    let mut out = Vec::new();
    for found in chain {
        let r = &found.record;
        let keep = match as_of {
            Some(as_of) => {
                let moves = query::history(db, r.memory_id)?;
                let then = moves.iter().rev().find(|entry| entry.time <= as_of).map(|entry| entry.to);
                let believed = then == Some(Status::Active) && r.expire_time.is_none_or(|end| end > as_of);
                let at = valid_at.unwrap_or(as_of);
                let from = r.valid_from.or(valid_at.map(|_| r.event_time));
                believed && is_valid(from, r.valid_to, at)
            }
            None => {
                let at = valid_at.unwrap_or_default();
                let held = matches!(r.status, Status::Active | Status::Superseded | Status::Expired | Status::Archived);
                // A value ends where the one that replaced it begins.
                let replaced = r.superseded_by.and_then(|next| starts.get(&next).copied()).or(r.superseded_at);
                let ends = [r.valid_to, replaced, r.expire_time].into_iter().flatten().min();
                held && is_valid(Some(r.valid_from.unwrap_or(r.event_time)), ends, at)
            }
        };
        if keep {
            out.push(found);
        }
    }
    Ok(out)
}

fn stale() -> Fault {
    Fault::new(Reason::InvalidPageToken, "page_token: not a token of this list; start again without it")
}

fn candidate_cursor(text: &str) -> Result<CandidateCursor, Fault> {
    let (due, id) = text.split_once(':').ok_or_else(stale)?;
    Ok(CandidateCursor { due: due == "1", memory_id: MemoryId::parse("page_token", id)? })
}

fn history_cursor(text: &str) -> Result<(Timestamp, MemoryId), Fault> {
    let (time, id) = text.split_once(':').ok_or_else(stale)?;
    Ok((Timestamp(time.parse().map_err(|_| stale())?), MemoryId::parse("page_token", id)?))
}

/// Whether more was asked for than a page may hold: said also where there is nothing to show (case C139).
#[tonic::async_trait]
impl LongTermMemoryService for Service {
    async fn remember(&self, request: Request<pb::RememberRequest>) -> Result<Response<pb::RememberResponse>, GrpcStatus> {
        finish(Self::remember(self, request).await)
    }
    async fn propose(&self, request: Request<pb::ProposeRequest>) -> Result<Response<pb::ProposeResponse>, GrpcStatus> {
        finish(Self::propose(self, request).await)
    }
    async fn list_candidates(
        &self,
        request: Request<pb::ListCandidatesRequest>,
    ) -> Result<Response<pb::ListCandidatesResponse>, GrpcStatus> {
        finish(Self::list_candidates(self, request).await)
    }
    async fn confirm_candidate(
        &self,
        request: Request<pb::ConfirmCandidateRequest>,
    ) -> Result<Response<pb::ConfirmCandidateResponse>, GrpcStatus> {
        finish(Self::confirm_candidate(self, request).await)
    }
    async fn reject_candidate(
        &self,
        request: Request<pb::RejectCandidateRequest>,
    ) -> Result<Response<pb::RejectCandidateResponse>, GrpcStatus> {
        finish(Self::reject_candidate(self, request).await)
    }
    async fn recall(&self, request: Request<pb::RecallRequest>) -> Result<Response<pb::RecallResponse>, GrpcStatus> {
        finish(Self::recall(self, request).await)
    }
    async fn get_memory(&self, request: Request<pb::GetMemoryRequest>) -> Result<Response<pb::GetMemoryResponse>, GrpcStatus> {
        finish(Self::get_memory(self, request).await)
    }
    async fn lookup_memory(
        &self,
        request: Request<pb::LookupMemoryRequest>,
    ) -> Result<Response<pb::LookupMemoryResponse>, GrpcStatus> {
        finish(Self::lookup_memory(self, request).await)
    }
    async fn list_memories(
        &self,
        request: Request<pb::ListMemoriesRequest>,
    ) -> Result<Response<pb::ListMemoriesResponse>, GrpcStatus> {
        finish(Self::list_memories(self, request).await)
    }
    async fn batch_get_memories(
        &self,
        request: Request<pb::BatchGetMemoriesRequest>,
    ) -> Result<Response<pb::BatchGetMemoriesResponse>, GrpcStatus> {
        finish(Self::batch_get_memories(self, request).await)
    }
    async fn update_memory(
        &self,
        request: Request<pb::UpdateMemoryRequest>,
    ) -> Result<Response<pb::UpdateMemoryResponse>, GrpcStatus> {
        finish(Self::update_memory(self, request).await)
    }
    async fn sync_facts(&self, request: Request<pb::SyncFactsRequest>) -> Result<Response<pb::SyncFactsResponse>, GrpcStatus> {
        finish(Self::sync_facts(self, request).await)
    }
    async fn report_usage(
        &self,
        request: Request<pb::ReportUsageRequest>,
    ) -> Result<Response<pb::ReportUsageResponse>, GrpcStatus> {
        finish(Self::report_usage(self, request).await)
    }
    async fn put_entity(&self, request: Request<pb::PutEntityRequest>) -> Result<Response<pb::PutEntityResponse>, GrpcStatus> {
        finish(Self::put_entity(self, request).await)
    }
    async fn get_entity(&self, request: Request<pb::GetEntityRequest>) -> Result<Response<pb::GetEntityResponse>, GrpcStatus> {
        finish(Self::get_entity(self, request).await)
    }
    async fn list_entities(
        &self,
        request: Request<pb::ListEntitiesRequest>,
    ) -> Result<Response<pb::ListEntitiesResponse>, GrpcStatus> {
        finish(Self::list_entities(self, request).await)
    }
    async fn link_entities(
        &self,
        request: Request<pb::LinkEntitiesRequest>,
    ) -> Result<Response<pb::LinkEntitiesResponse>, GrpcStatus> {
        finish(Self::link_entities(self, request).await)
    }
    async fn delete_entity(
        &self,
        request: Request<pb::DeleteEntityRequest>,
    ) -> Result<Response<pb::DeleteEntityResponse>, GrpcStatus> {
        finish(Self::delete_entity(self, request).await)
    }
    async fn put_skill(&self, request: Request<pb::PutSkillRequest>) -> Result<Response<pb::PutSkillResponse>, GrpcStatus> {
        finish(Self::put_skill(self, request).await)
    }
    async fn get_skill(&self, request: Request<pb::GetSkillRequest>) -> Result<Response<pb::GetSkillResponse>, GrpcStatus> {
        finish(Self::get_skill(self, request).await)
    }
    async fn list_episodes(
        &self,
        request: Request<pb::ListEpisodesRequest>,
    ) -> Result<Response<pb::ListEpisodesResponse>, GrpcStatus> {
        finish(Self::list_episodes(self, request).await)
    }
    async fn undo_consolidation(
        &self,
        request: Request<pb::UndoConsolidationRequest>,
    ) -> Result<Response<pb::UndoConsolidationResponse>, GrpcStatus> {
        finish(Self::undo_consolidation(self, request).await)
    }
    async fn list_skills(&self, request: Request<pb::ListSkillsRequest>) -> Result<Response<pb::ListSkillsResponse>, GrpcStatus> {
        finish(Self::list_skills(self, request).await)
    }
    async fn match_skills(
        &self,
        request: Request<pb::MatchSkillsRequest>,
    ) -> Result<Response<pb::MatchSkillsResponse>, GrpcStatus> {
        finish(Self::match_skills(self, request).await)
    }
    async fn delete_skill(
        &self,
        request: Request<pb::DeleteSkillRequest>,
    ) -> Result<Response<pb::DeleteSkillResponse>, GrpcStatus> {
        finish(Self::delete_skill(self, request).await)
    }
    type ExportMemoriesStream = crate::transfer::Lines;
    async fn export_memories(
        &self,
        request: Request<pb::ExportMemoriesRequest>,
    ) -> Result<Response<Self::ExportMemoriesStream>, GrpcStatus> {
        Self::export_memories(self, request).await.map_err(error::status)
    }
    async fn import_memories(
        &self,
        request: Request<Streaming<pb::ImportMemoriesRequest>>,
    ) -> Result<Response<pb::ImportMemoriesResponse>, GrpcStatus> {
        finish(Self::import_memories(self, request).await)
    }
    async fn get_history(&self, request: Request<pb::GetHistoryRequest>) -> Result<Response<pb::GetHistoryResponse>, GrpcStatus> {
        finish(Self::get_history(self, request).await)
    }
    async fn forget_memories(
        &self,
        request: Request<pb::ForgetMemoriesRequest>,
    ) -> Result<Response<pb::ForgetMemoriesResponse>, GrpcStatus> {
        finish(Self::forget_memories(self, request).await)
    }
    async fn restore_memories(
        &self,
        request: Request<pb::RestoreMemoriesRequest>,
    ) -> Result<Response<pb::RestoreMemoriesResponse>, GrpcStatus> {
        finish(Self::restore_memories(self, request).await)
    }
    async fn erase_memories(
        &self,
        request: Request<pb::EraseMemoriesRequest>,
    ) -> Result<Response<pb::EraseMemoriesResponse>, GrpcStatus> {
        finish(Self::erase_memories(self, request).await)
    }
    async fn get_erasure(&self, request: Request<pb::GetErasureRequest>) -> Result<Response<pb::GetErasureResponse>, GrpcStatus> {
        finish(Self::get_erasure(self, request).await)
    }
    async fn verify_erasure(
        &self,
        request: Request<pb::VerifyErasureRequest>,
    ) -> Result<Response<pb::VerifyErasureResponse>, GrpcStatus> {
        finish(Self::verify_erasure(self, request).await)
    }
}
