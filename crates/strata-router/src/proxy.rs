//! The three memory services at the router's address: the gate, then the layer. What the router adds to a call is here
//! and nowhere else: claims to facts of a board, attestations and marks to long-term writes.

use crate::archive::{Archive, goal_not_archived, late_turns, not_archived};
use crate::attest::attest;
use crate::call::{Call, level_of};
use crate::decisions;
use crate::gate::Core;
use crate::layers::{SIDE_LOOK, answer, placed, reading, relayed, signed, without_transport};
use crate::modes::Passage;
use crate::owners::{Late, is_down};

use crate::stream::Forwarded;
use futures::TryStreamExt as _;
use futures::stream::BoxStream;
use prost::Message as _;
use std::sync::Arc;
use strata_api::common::v1::Finding;
use strata_api::convert::router;
use strata_api::error::{fault, status};
use strata_api::internal::v1 as internal;
use strata_api::longterm::v1 as longterm;
use strata_api::longterm::v1::long_term_memory_service_server::LongTermMemoryService;
use strata_api::session::v1 as session;
use strata_api::session::v1::session_memory_service_server::SessionMemoryService;
use strata_api::working::v1 as working;
use strata_api::working::v1::working_memory_service_server::WorkingMemoryService;
use strata_core::id::Level;
use strata_core::limits::{self, BOARD_FACTS, SESSION_FACTS_WRITE};
use strata_core::policy::authz::Layer;
use strata_core::policy::ownership::{self, Chain, Mark, Place};
use strata_core::{FactKey, Fault, Owner, Reason, SessionId, TaskId};
use tonic::{Request, Response, Status, Streaming};

/// Times a write is signed again above a store's epoch (rule P3): once heals a lost ledger, a second time a race.
const STALE_ATTEMPTS: u32 = 3;

/// The services.
#[derive(Clone, Debug)]
pub(crate) struct Proxy(pub(crate) Arc<Core>);

/// One method that the router only passes on.
macro_rules! pass {
    // Of working memory, which may have several replicas: to that of the task.
    ($self:ident, $request:ident, working.$method:ident, $path:literal) => {
        pass!(@ $self, $request, working.$method, to_task, $path, |_call| Err(Status::internal("the method has no empty answer")))
    };
    ($self:ident, $request:ident, $client:ident.$method:ident, $path:literal) => {
        pass!($self, $request, $client.$method, $path, |_call| Err(Status::internal("the method has no empty answer")))
    };
    ($self:ident, $request:ident, $client:ident.$method:ident, $path:literal, $empty:expr) => {
        pass!(@ $self, $request, $client.$method, outgoing, $path, $empty)
    };
    (@ $self:ident, $request:ident, $client:ident.$method:ident, $send:ident, $path:literal, $empty:expr) => {{
        let (call, body) = $self.0.admit($path, $request)?;
        match call.passage {
            Passage::Empty => ($empty)(&call),
            Passage::Serve | Passage::Defer | Passage::LogOnly => {
                relayed($self.0.layers.$client.clone().$method($self.0.$send(&call, body)).await)
            }
        }
    }};
}

fn recall_is_off(call: &Call) -> Finding {
    Finding {
        rule: "D1".to_owned(),
        outcome: "LAYER_RECALL_OFF".to_owned(),
        because: format!("recall of {} memory is switched off", call.method.layer.name()),
    }
}

#[tonic::async_trait]
impl WorkingMemoryService for Proxy {
    async fn create_task(
        &self,
        request: Request<working::CreateTaskRequest>,
    ) -> Result<Response<working::CreateTaskResponse>, Status> {
        pass!(self, request, working.create_task, "/strata.working.v1.WorkingMemoryService/CreateTask")
    }

    async fn get_task(&self, request: Request<working::GetTaskRequest>) -> Result<Response<working::GetTaskResponse>, Status> {
        pass!(self, request, working.get_task, "/strata.working.v1.WorkingMemoryService/GetTask")
    }

    async fn put_facts(&self, request: Request<working::PutFactsRequest>) -> Result<Response<working::PutFactsResponse>, Status> {
        let (call, body) = self.0.admit("/strata.working.v1.WorkingMemoryService/PutFacts", request)?;
        let mut floor = 0;
        for attempt in 1.. {
            let epoch = self.0.claim_facts(&call, &body.task_id, &body.facts, floor).await.map_err(status)?;
            let identity = reading(&call.principal, &call.owner).writing(Level::Task, epoch);
            match relayed(self.0.layers.working.clone().put_facts(placed(body.clone(), identity)).await) {
                Err(refused) => floor = above(refused, attempt, floor)?,
                answer => return answer,
            }
        }
        Err(Status::internal("unreachable: the loop returns"))
    }

    async fn update_todos(
        &self,
        request: Request<working::UpdateTodosRequest>,
    ) -> Result<Response<working::UpdateTodosResponse>, Status> {
        pass!(self, request, working.update_todos, "/strata.working.v1.WorkingMemoryService/UpdateTodos")
    }

    async fn append_digest(
        &self,
        request: Request<working::AppendDigestRequest>,
    ) -> Result<Response<working::AppendDigestResponse>, Status> {
        let (call, body) = self.0.admit("/strata.working.v1.WorkingMemoryService/AppendDigest", request)?;
        self.0.append_result(&call, body).await
    }

    async fn list_tasks(
        &self,
        request: Request<working::ListTasksRequest>,
    ) -> Result<Response<working::ListTasksResponse>, Status> {
        pass!(self, request, working.list_tasks, "/strata.working.v1.WorkingMemoryService/ListTasks")
    }

    type WatchTaskStream = BoxStream<'static, Result<working::WatchTaskResponse, Status>>;

    async fn watch_task(&self, request: Request<working::WatchTaskRequest>) -> Result<Response<Self::WatchTaskStream>, Status> {
        let (call, body) = self.0.admit("/strata.working.v1.WorkingMemoryService/WatchTask", request)?;
        let boards = relayed(self.0.layers.working.clone().watch_task(self.0.to_task(&call, body)).await)?.into_inner();
        Ok(Response::new(Box::pin(boards.map_err(without_transport))))
    }

    async fn update_goal(
        &self,
        request: Request<working::UpdateGoalRequest>,
    ) -> Result<Response<working::UpdateGoalResponse>, Status> {
        pass!(self, request, working.update_goal, "/strata.working.v1.WorkingMemoryService/UpdateGoal")
    }

    async fn end_task(&self, request: Request<working::EndTaskRequest>) -> Result<Response<working::EndTaskResponse>, Status> {
        let (call, body) = self.0.admit("/strata.working.v1.WorkingMemoryService/EndTask", request)?;
        let place = Place::new(Level::Task, body.task_id.clone());
        // Journalled first, ended then: what cannot be journalled keeps the board (rule P6).
        let promotions = self.0.promote_at_end(&call, &body).await.map_err(status)?;
        // Archived first, ended then, as a session is: what dies in between leaves a live board, and the next call goes on.
        let archive = self.0.archive_goal(&call, &body.task_id).await;
        let mut answer = relayed(self.0.layers.working.clone().end_task(self.0.to_task(&call, body)).await)?;
        answer.get_mut().promotions = promotions.iter().map(router::wire_promotion).collect();
        self.0.end_scope(&call.owner, &place).await;
        let ended = answer.get_mut();
        match archive {
            Ok(episode) => ended.episode_id = episode.map(|episode| episode.episode_id).unwrap_or_default(),
            Err(why) => ended.findings.push(goal_not_archived(&why)),
        }
        Ok(answer)
    }
}

#[tonic::async_trait]
impl SessionMemoryService for Proxy {
    async fn append_turns(
        &self,
        request: Request<session::AppendTurnsRequest>,
    ) -> Result<Response<session::AppendTurnsResponse>, Status> {
        let (call, body) = self.0.admit("/strata.session.v1.SessionMemoryService/AppendTurns", request)?;
        let session_id = body.session_id.clone();
        let answer = relayed(self.0.layers.session.clone().append_turns(self.0.outgoing(&call, body)).await)?;
        self.0.topics.tell(&call, &session_id, answer.get_ref());
        Ok(answer)
    }

    async fn get_window(
        &self,
        request: Request<session::GetWindowRequest>,
    ) -> Result<Response<session::GetWindowResponse>, Status> {
        pass!(self, request, session.get_window, "/strata.session.v1.SessionMemoryService/GetWindow")
    }

    async fn list_turns(
        &self,
        request: Request<session::ListTurnsRequest>,
    ) -> Result<Response<session::ListTurnsResponse>, Status> {
        pass!(self, request, session.list_turns, "/strata.session.v1.SessionMemoryService/ListTurns")
    }

    async fn get_turns(&self, request: Request<session::GetTurnsRequest>) -> Result<Response<session::GetTurnsResponse>, Status> {
        pass!(self, request, session.get_turns, "/strata.session.v1.SessionMemoryService/GetTurns")
    }

    async fn search_turns(
        &self,
        request: Request<session::SearchTurnsRequest>,
    ) -> Result<Response<session::SearchTurnsResponse>, Status> {
        let (call, mut body) = self.0.admit("/strata.session.v1.SessionMemoryService/SearchTurns", request)?;
        if call.passage == Passage::Empty {
            return Ok(Response::new(session::SearchTurnsResponse { degraded: true, ..Default::default() }));
        }
        let page = limits::page("k", body.k, limits::RECALL_K, limits::RECALL_K_MAX).map_err(status)?;
        // Both lists say how their scores came about, so that they become one.
        let explain = std::mem::replace(&mut body.explain, true);
        let mut layer = self.0.layers.session.clone();
        let (live, archived) =
            tokio::join!(layer.search_turns(self.0.outgoing(&call, body.clone())), self.0.search_archive(&call, &body));
        let live = match (relayed(live), &archived) {
            (Ok(live), _) => live.into_inner(),
            // A named session that has ended is found by what is kept of it.
            (Err(refused), Some(archived)) if fault(&refused).reason == Reason::NotFound && archived.episodes > 0 => {
                session::SearchTurnsResponse { capped: page.capped, ..Default::default() }
            }
            (Err(refused), _) => return Err(refused),
        };
        let mut merged = self.0.merge(live, archived, page.size as usize);
        if !explain {
            merged.hits.iter_mut().for_each(|hit| hit.explain.clear());
        }
        Ok(Response::new(merged))
    }

    async fn compress_session(
        &self,
        request: Request<session::CompressSessionRequest>,
    ) -> Result<Response<session::CompressSessionResponse>, Status> {
        pass!(self, request, session.compress_session, "/strata.session.v1.SessionMemoryService/CompressSession")
    }

    async fn anchor_turns(
        &self,
        request: Request<session::AnchorTurnsRequest>,
    ) -> Result<Response<session::AnchorTurnsResponse>, Status> {
        pass!(self, request, session.anchor_turns, "/strata.session.v1.SessionMemoryService/AnchorTurns")
    }

    async fn release_anchors(
        &self,
        request: Request<session::ReleaseAnchorsRequest>,
    ) -> Result<Response<session::ReleaseAnchorsResponse>, Status> {
        pass!(self, request, session.release_anchors, "/strata.session.v1.SessionMemoryService/ReleaseAnchors")
    }

    async fn commit_summary(
        &self,
        request: Request<session::CommitSummaryRequest>,
    ) -> Result<Response<session::CommitSummaryResponse>, Status> {
        pass!(self, request, session.commit_summary, "/strata.session.v1.SessionMemoryService/CommitSummary")
    }

    async fn get_summaries(
        &self,
        request: Request<session::GetSummariesRequest>,
    ) -> Result<Response<session::GetSummariesResponse>, Status> {
        pass!(self, request, session.get_summaries, "/strata.session.v1.SessionMemoryService/GetSummaries")
    }

    async fn list_sessions(
        &self,
        request: Request<session::ListSessionsRequest>,
    ) -> Result<Response<session::ListSessionsResponse>, Status> {
        pass!(self, request, session.list_sessions, "/strata.session.v1.SessionMemoryService/ListSessions")
    }

    async fn put_facts(&self, request: Request<session::PutFactsRequest>) -> Result<Response<session::PutFactsResponse>, Status> {
        let (call, body) = self.0.admit("/strata.session.v1.SessionMemoryService/PutFacts", request)?;
        self.0.put_session_facts(&call, body).await
    }

    async fn put_artifact(
        &self,
        request: Request<Streaming<session::PutArtifactRequest>>,
    ) -> Result<Response<session::PutArtifactResponse>, Status> {
        let path = "/strata.session.v1.SessionMemoryService/PutArtifact";
        let (metadata, extensions, mut parts) = request.into_parts();
        let first = parts.message().await?.unwrap_or_default();
        let (call, first) = self.0.admit(path, Request::from_parts(metadata, extensions, first))?;
        let (all, broken) = Forwarded::new(first, parts);
        let mut client = self.0.layers.session.clone();
        tokio::select! {
            biased;
            Ok(status) = broken => Err(without_transport(status)),
            answer = client.put_artifact(self.0.outgoing(&call, all)) => relayed(answer),
        }
    }

    type GetArtifactStream = BoxStream<'static, Result<session::GetArtifactResponse, Status>>;

    async fn get_artifact(
        &self,
        request: Request<session::GetArtifactRequest>,
    ) -> Result<Response<Self::GetArtifactStream>, Status> {
        let (call, body) = self.0.admit("/strata.session.v1.SessionMemoryService/GetArtifact", request)?;
        let parts = relayed(self.0.layers.session.clone().get_artifact(self.0.outgoing(&call, body)).await)?.into_inner();
        Ok(Response::new(Box::pin(parts.map_err(without_transport))))
    }

    async fn get_facts(&self, request: Request<session::GetFactsRequest>) -> Result<Response<session::GetFactsResponse>, Status> {
        pass!(self, request, session.get_facts, "/strata.session.v1.SessionMemoryService/GetFacts")
    }

    async fn get_session(
        &self,
        request: Request<session::GetSessionRequest>,
    ) -> Result<Response<session::GetSessionResponse>, Status> {
        pass!(self, request, session.get_session, "/strata.session.v1.SessionMemoryService/GetSession")
    }

    async fn end_session(
        &self,
        request: Request<session::EndSessionRequest>,
    ) -> Result<Response<session::EndSessionResponse>, Status> {
        let (call, body) = self.0.admit("/strata.session.v1.SessionMemoryService/EndSession", request)?;
        let place = Place::new(Level::Session, body.session_id.clone());
        let (session_id, required) = (body.session_id.clone(), body.require_archive);
        // Journalled first, as a task's are: what cannot be journalled keeps the session (rule P6).
        let promotions = self.0.promote_at_end(&call, &body).await.map_err(status)?;
        // Archived first, ended then: what dies in between leaves a live session, and the next call goes on (rule S14).
        let archive = self.0.archive(&call, &session_id).await;
        if let (Err(why), true) = (&archive, required) {
            return Err(status(Fault::unavailable("the archive of the session").with("cause", why.reason.name()).rule(
                "S14",
                "session",
                "the session was to be archived and could not be; it has not ended",
            )));
        }
        let mut answer = relayed(self.0.layers.session.clone().end_session(self.0.outgoing(&call, body)).await)?;
        self.0.end_scope(&call.owner, &place).await;
        let ended = answer.get_mut();
        ended.promotions = promotions.iter().map(router::wire_session_promotion).collect();
        let episode = match archive {
            Ok(Archive::Kept(episode)) => Some(*episode),
            Ok(Archive::Gone) => self.0.episode_of(&call, &session_id).await,
            Err(why) => {
                ended.findings.push(not_archived(&why));
                None
            }
        };
        if let Some(episode) = episode {
            if episode.to_seq < ended.turns {
                ended.findings.push(late_turns(ended.turns - episode.to_seq));
            }
            ended.findings.extend(episode.findings);
            ended.archived_turns = episode.archived_turns;
            ended.episode_id = episode.episode_id;
        }
        Ok(answer)
    }
}

#[tonic::async_trait]
impl LongTermMemoryService for Proxy {
    async fn remember(
        &self,
        request: Request<longterm::RememberRequest>,
    ) -> Result<Response<longterm::RememberResponse>, Status> {
        let (call, body) = self.0.admit("/strata.longterm.v1.LongTermMemoryService/Remember", request)?;
        let attestation = self.0.attested(&call, body.statement.as_ref(), explicit(body.statement.as_ref())).await?;
        let request = self.0.attesting(&call, body, attestation);
        let answer = relayed(self.0.layers.longterm.clone().remember(request).await)?;
        self.0.note_owner(&call, answer.get_ref().result.as_ref().and_then(|r| r.memory.as_ref())).await;
        self.0.evidence_added(&call.owner, answer.get_ref().result.as_ref()).await;
        Ok(answer)
    }

    async fn propose(&self, request: Request<longterm::ProposeRequest>) -> Result<Response<longterm::ProposeResponse>, Status> {
        let (call, body) = self.0.admit("/strata.longterm.v1.LongTermMemoryService/Propose", request)?;
        let answer = self.0.propose(&call, body).await?;
        self.0.evidence_added(&call.owner, answer.get_ref().result.as_ref()).await;
        Ok(answer)
    }

    async fn list_candidates(
        &self,
        request: Request<longterm::ListCandidatesRequest>,
    ) -> Result<Response<longterm::ListCandidatesResponse>, Status> {
        pass!(self, request, longterm.list_candidates, "/strata.longterm.v1.LongTermMemoryService/ListCandidates")
    }

    async fn confirm_candidate(
        &self,
        request: Request<longterm::ConfirmCandidateRequest>,
    ) -> Result<Response<longterm::ConfirmCandidateResponse>, Status> {
        let (call, body) = self.0.admit("/strata.longterm.v1.LongTermMemoryService/ConfirmCandidate", request)?;
        let memory_id = body.memory_id.clone();
        let answer = relayed(self.0.layers.longterm.clone().confirm_candidate(self.0.outgoing(&call, body)).await)?;
        self.0.note_owner(&call, answer.get_ref().result.as_ref().and_then(|r| r.memory.as_ref())).await;
        self.0.candidate_moved(&call.owner, &memory_id).await;
        Ok(answer)
    }

    async fn reject_candidate(
        &self,
        request: Request<longterm::RejectCandidateRequest>,
    ) -> Result<Response<longterm::RejectCandidateResponse>, Status> {
        let (call, body) = self.0.admit("/strata.longterm.v1.LongTermMemoryService/RejectCandidate", request)?;
        let memory_id = body.memory_id.clone();
        let answer = relayed(self.0.layers.longterm.clone().reject_candidate(self.0.outgoing(&call, body)).await)?;
        self.0.candidate_moved(&call.owner, &memory_id).await;
        Ok(answer)
    }

    async fn recall(&self, request: Request<longterm::RecallRequest>) -> Result<Response<longterm::RecallResponse>, Status> {
        pass!(self, request, longterm.recall, "/strata.longterm.v1.LongTermMemoryService/Recall", |call: &Call| Ok(
            Response::new(longterm::RecallResponse { findings: vec![recall_is_off(call)], ..Default::default() })
        ))
    }

    async fn get_memory(
        &self,
        request: Request<longterm::GetMemoryRequest>,
    ) -> Result<Response<longterm::GetMemoryResponse>, Status> {
        pass!(self, request, longterm.get_memory, "/strata.longterm.v1.LongTermMemoryService/GetMemory")
    }

    async fn batch_get_memories(
        &self,
        request: Request<longterm::BatchGetMemoriesRequest>,
    ) -> Result<Response<longterm::BatchGetMemoriesResponse>, Status> {
        pass!(self, request, longterm.batch_get_memories, "/strata.longterm.v1.LongTermMemoryService/BatchGetMemories")
    }

    async fn update_memory(
        &self,
        request: Request<longterm::UpdateMemoryRequest>,
    ) -> Result<Response<longterm::UpdateMemoryResponse>, Status> {
        let (call, body) = self.0.admit("/strata.longterm.v1.LongTermMemoryService/UpdateMemory", request)?;
        let order = explicit(body.statement.as_ref());
        self.0.update_words(&call, body, order).await
    }

    async fn sync_facts(
        &self,
        request: Request<longterm::SyncFactsRequest>,
    ) -> Result<Response<longterm::SyncFactsResponse>, Status> {
        let (call, body) = self.0.admit("/strata.longterm.v1.LongTermMemoryService/SyncFacts", request)?;
        let answer = relayed(self.0.layers.longterm.clone().sync_facts(self.0.outgoing(&call, body)).await)?;
        for result in &answer.get_ref().results {
            self.0.note_owner(&call, result.result.as_ref().and_then(|r| r.memory.as_ref())).await;
        }
        Ok(answer)
    }

    async fn report_usage(
        &self,
        request: Request<longterm::ReportUsageRequest>,
    ) -> Result<Response<longterm::ReportUsageResponse>, Status> {
        decisions::recall(&request.get_ref().recall_id);
        pass!(self, request, longterm.report_usage, "/strata.longterm.v1.LongTermMemoryService/ReportUsage")
    }

    async fn lookup_memory(
        &self,
        request: Request<longterm::LookupMemoryRequest>,
    ) -> Result<Response<longterm::LookupMemoryResponse>, Status> {
        pass!(self, request, longterm.lookup_memory, "/strata.longterm.v1.LongTermMemoryService/LookupMemory")
    }

    async fn list_memories(
        &self,
        request: Request<longterm::ListMemoriesRequest>,
    ) -> Result<Response<longterm::ListMemoriesResponse>, Status> {
        pass!(self, request, longterm.list_memories, "/strata.longterm.v1.LongTermMemoryService/ListMemories")
    }

    async fn get_history(
        &self,
        request: Request<longterm::GetHistoryRequest>,
    ) -> Result<Response<longterm::GetHistoryResponse>, Status> {
        pass!(self, request, longterm.get_history, "/strata.longterm.v1.LongTermMemoryService/GetHistory")
    }

    async fn put_entity(
        &self,
        request: Request<longterm::PutEntityRequest>,
    ) -> Result<Response<longterm::PutEntityResponse>, Status> {
        let (call, body) = self.0.admit("/strata.longterm.v1.LongTermMemoryService/PutEntity", request)?;
        self.0.put_named_entity(&call, body).await
    }

    async fn get_entity(
        &self,
        request: Request<longterm::GetEntityRequest>,
    ) -> Result<Response<longterm::GetEntityResponse>, Status> {
        pass!(self, request, longterm.get_entity, "/strata.longterm.v1.LongTermMemoryService/GetEntity")
    }

    async fn list_entities(
        &self,
        request: Request<longterm::ListEntitiesRequest>,
    ) -> Result<Response<longterm::ListEntitiesResponse>, Status> {
        pass!(self, request, longterm.list_entities, "/strata.longterm.v1.LongTermMemoryService/ListEntities")
    }

    async fn link_entities(
        &self,
        request: Request<longterm::LinkEntitiesRequest>,
    ) -> Result<Response<longterm::LinkEntitiesResponse>, Status> {
        let (call, body) = self.0.admit("/strata.longterm.v1.LongTermMemoryService/LinkEntities", request)?;
        let words = body.provenance.as_ref().map(words_of);
        let attestation = self.0.attested(&call, words.as_ref(), explicit(words.as_ref())).await?;
        relayed(self.0.layers.longterm.clone().link_entities(self.0.attesting(&call, body, attestation)).await)
    }

    async fn delete_entity(
        &self,
        request: Request<longterm::DeleteEntityRequest>,
    ) -> Result<Response<longterm::DeleteEntityResponse>, Status> {
        pass!(self, request, longterm.delete_entity, "/strata.longterm.v1.LongTermMemoryService/DeleteEntity")
    }

    async fn put_skill(
        &self,
        request: Request<longterm::PutSkillRequest>,
    ) -> Result<Response<longterm::PutSkillResponse>, Status> {
        let (call, body) = self.0.admit("/strata.longterm.v1.LongTermMemoryService/PutSkill", request)?;
        let words = body.provenance.as_ref().map(words_of);
        let attestation = self.0.attested(&call, words.as_ref(), explicit(words.as_ref())).await?;
        relayed(self.0.layers.longterm.clone().put_skill(self.0.attesting(&call, body, attestation)).await)
    }

    async fn get_skill(
        &self,
        request: Request<longterm::GetSkillRequest>,
    ) -> Result<Response<longterm::GetSkillResponse>, Status> {
        pass!(self, request, longterm.get_skill, "/strata.longterm.v1.LongTermMemoryService/GetSkill")
    }

    async fn list_episodes(
        &self,
        request: Request<longterm::ListEpisodesRequest>,
    ) -> Result<Response<longterm::ListEpisodesResponse>, Status> {
        pass!(self, request, longterm.list_episodes, "/strata.longterm.v1.LongTermMemoryService/ListEpisodes")
    }

    async fn undo_consolidation(
        &self,
        request: Request<longterm::UndoConsolidationRequest>,
    ) -> Result<Response<longterm::UndoConsolidationResponse>, Status> {
        pass!(self, request, longterm.undo_consolidation, "/strata.longterm.v1.LongTermMemoryService/UndoConsolidation")
    }

    async fn list_skills(
        &self,
        request: Request<longterm::ListSkillsRequest>,
    ) -> Result<Response<longterm::ListSkillsResponse>, Status> {
        pass!(self, request, longterm.list_skills, "/strata.longterm.v1.LongTermMemoryService/ListSkills")
    }

    async fn match_skills(
        &self,
        request: Request<longterm::MatchSkillsRequest>,
    ) -> Result<Response<longterm::MatchSkillsResponse>, Status> {
        pass!(self, request, longterm.match_skills, "/strata.longterm.v1.LongTermMemoryService/MatchSkills")
    }

    async fn delete_skill(
        &self,
        request: Request<longterm::DeleteSkillRequest>,
    ) -> Result<Response<longterm::DeleteSkillResponse>, Status> {
        pass!(self, request, longterm.delete_skill, "/strata.longterm.v1.LongTermMemoryService/DeleteSkill")
    }

    type ExportMemoriesStream = BoxStream<'static, Result<longterm::ExportMemoriesResponse, Status>>;

    async fn export_memories(
        &self,
        request: Request<longterm::ExportMemoriesRequest>,
    ) -> Result<Response<Self::ExportMemoriesStream>, Status> {
        let (call, body) = self.0.admit("/strata.longterm.v1.LongTermMemoryService/ExportMemories", request)?;
        let lines = relayed(self.0.layers.longterm.clone().export_memories(self.0.outgoing(&call, body)).await)?.into_inner();
        Ok(Response::new(Box::pin(lines.map_err(without_transport))))
    }

    async fn import_memories(
        &self,
        request: Request<Streaming<longterm::ImportMemoriesRequest>>,
    ) -> Result<Response<longterm::ImportMemoriesResponse>, Status> {
        let path = "/strata.longterm.v1.LongTermMemoryService/ImportMemories";
        let (metadata, extensions, mut lines) = request.into_parts();
        // The first message names the owner. A stream without one is judged like an empty message.
        let first = lines.message().await?.unwrap_or_default();
        let (call, first) = self.0.admit(path, Request::from_parts(metadata, extensions, first))?;
        let (all, broken) = Forwarded::new(first, lines);
        let mut client = self.0.layers.longterm.clone();
        tokio::select! {
            biased;
            Ok(status) = broken => Err(without_transport(status)),
            answer = client.import_memories(self.0.outgoing(&call, all)) => relayed(answer),
        }
    }

    async fn forget_memories(
        &self,
        request: Request<longterm::ForgetMemoriesRequest>,
    ) -> Result<Response<longterm::ForgetMemoriesResponse>, Status> {
        pass!(self, request, longterm.forget_memories, "/strata.longterm.v1.LongTermMemoryService/ForgetMemories")
    }

    async fn erase_memories(
        &self,
        request: Request<longterm::EraseMemoriesRequest>,
    ) -> Result<Response<longterm::EraseMemoriesResponse>, Status> {
        let (call, body) = self.0.admit("/strata.longterm.v1.LongTermMemoryService/EraseMemories", request)?;
        let mut answer = relayed(self.0.layers.longterm.clone().erase_memories(self.0.outgoing(&call, body)).await)?;
        if let Some(begun) = answer.get_mut().erasure.take() {
            answer.get_mut().erasure = Some(self.0.erase_outside(begun).await);
        }
        Ok(answer)
    }

    async fn get_erasure(
        &self,
        request: Request<longterm::GetErasureRequest>,
    ) -> Result<Response<longterm::GetErasureResponse>, Status> {
        pass!(self, request, longterm.get_erasure, "/strata.longterm.v1.LongTermMemoryService/GetErasure")
    }

    async fn verify_erasure(
        &self,
        request: Request<longterm::VerifyErasureRequest>,
    ) -> Result<Response<longterm::VerifyErasureResponse>, Status> {
        let (call, body) = self.0.admit("/strata.longterm.v1.LongTermMemoryService/VerifyErasure", request)?;
        let answer = relayed(self.0.layers.longterm.clone().verify_erasure(self.0.outgoing(&call, body.clone())).await)?;
        Ok(Response::new(self.0.find_outside(&body, answer.into_inner()).await))
    }

    async fn restore_memories(
        &self,
        request: Request<longterm::RestoreMemoriesRequest>,
    ) -> Result<Response<longterm::RestoreMemoriesResponse>, Status> {
        let (call, body) = self.0.admit("/strata.longterm.v1.LongTermMemoryService/RestoreMemories", request)?;
        let answer = relayed(self.0.layers.longterm.clone().restore_memories(self.0.outgoing(&call, body)).await)?;
        for memory in &answer.get_ref().memories {
            self.0.note_owner(&call, Some(memory)).await;
        }
        Ok(answer)
    }
}

/// Whether a statement that comes through a door for orders is one (rule G9).
fn explicit(statement: Option<&longterm::Statement>) -> bool {
    statement.is_some_and(|s| s.trigger == i32::from(longterm::Trigger::UserRequest))
}

/// What the provenance of an entity, relation or skill says about its words, as a statement says it.
fn words_of(provenance: &longterm::Provenance) -> longterm::Statement {
    longterm::Statement {
        source: provenance.source,
        source_ref: provenance.source_ref.clone(),
        source_quote: provenance.source_quote.clone(),
        trigger: provenance.trigger,
        ..longterm::Statement::default()
    }
}

/// The epoch a store names in its refusal.
pub(crate) fn seen_epoch(fault: &Fault) -> Option<u64> {
    let value = |name: &str| fault.metadata.iter().find(|(key, _)| *key == name).and_then(|(_, value)| value.parse().ok());
    value("epoch").or_else(|| value("current_value"))
}

/// The epoch above which a refused write claims again: the store has seen a higher one, the ledger was lost (rule P3).
pub(crate) fn above(refused: Status, attempt: u32, floor: u64) -> Result<u64, Status> {
    let cause = fault(&refused);
    match (cause.reason, seen_epoch(&cause)) {
        (Reason::StaleEpoch, Some(seen)) if attempt < STALE_ATTEMPTS => Ok(seen.max(floor)),
        _ => Err(refused),
    }
}

/// The first key that an outer level owns, when long-term memory answered.
fn owned_above<'a>(owned: Option<&'a [Vec<Mark>]>, keys: &'a [String]) -> Option<Fault> {
    let outer = owned.into_iter().flatten().zip(keys).find_map(|(marks, key)| marks.first().map(|mark| (key, mark)));
    outer.map(|(key, mark)| ownership::owned_by(key, &mark.place, mark.epoch))
}

impl Core {
    /// Writes facts of a session: claims their keys, then tells the session.
    pub(crate) async fn put_session_facts(
        &self,
        call: &Call,
        body: session::PutFactsRequest,
    ) -> Result<Response<session::PutFactsResponse>, Status> {
        let mut floor = 0;
        for attempt in 1.. {
            let epoch = self.claim_session_facts(call, &body, floor).await.map_err(status)?;
            let identity = reading(&call.principal, &call.owner).writing(Level::Session, epoch);
            match relayed(self.layers.session.clone().put_facts(signed(body.clone(), identity)).await) {
                Err(refused) => floor = above(refused, attempt, floor)?,
                answer => return answer,
            }
        }
        Err(Status::internal("unreachable: the loop returns"))
    }

    /// Proposes a statement: no explicit order (rule G11).
    pub(crate) async fn propose(
        &self,
        call: &Call,
        body: longterm::ProposeRequest,
    ) -> Result<Response<longterm::ProposeResponse>, Status> {
        let attestation = self.attested(call, body.statement.as_ref(), false).await?;
        let request = self.attesting(call, body, attestation);
        let answer = relayed(self.layers.longterm.clone().propose(request).await)?;
        self.note_owner(call, answer.get_ref().result.as_ref().and_then(|r| r.memory.as_ref())).await;
        Ok(answer)
    }

    /// Updates a record; `order` says that new words are the user's explicit order.
    pub(crate) async fn update_words(
        &self,
        call: &Call,
        body: longterm::UpdateMemoryRequest,
        order: bool,
    ) -> Result<Response<longterm::UpdateMemoryResponse>, Status> {
        let attestation = self.attested(call, body.statement.as_ref(), order).await?;
        let request = self.attesting(call, body, attestation);
        let answer = relayed(self.layers.longterm.clone().update_memory(request).await)?;
        self.note_owner(call, answer.get_ref().result.as_ref().and_then(|r| r.memory.as_ref())).await;
        Ok(answer)
    }

    /// Names an entity.
    pub(crate) async fn put_named_entity(
        &self,
        call: &Call,
        body: longterm::PutEntityRequest,
    ) -> Result<Response<longterm::PutEntityResponse>, Status> {
        let words = body.provenance.as_ref().map(words_of);
        let attestation = self.attested(call, words.as_ref(), explicit(words.as_ref())).await?;
        relayed(self.layers.longterm.clone().put_entity(self.attesting(call, body, attestation)).await)
    }

    /// The registered keys of the keys of a write, each once.
    fn resolved<'a>(&self, keys: impl Iterator<Item = &'a str>) -> Result<Vec<String>, Fault> {
        let mut out = Vec::new();
        for key in keys {
            let key = self.registry.resolve(&FactKey::new(key)?).as_str().to_owned();
            if !out.contains(&key) {
                out.push(key);
            }
        }
        Ok(out)
    }

    /// Claims the keys of the facts for their session (rules P2, P4), and returns the epoch of the write.
    async fn claim_session_facts(&self, call: &Call, body: &session::PutFactsRequest, floor: u64) -> Result<u64, Fault> {
        if body.facts.len() > SESSION_FACTS_WRITE {
            return Err(Fault::limit("facts", SESSION_FACTS_WRITE, "facts"));
        }
        let session_id = SessionId::new(body.session_id.as_str())?;
        let keys = self.resolved(body.facts.iter().map(|fact| fact.key.as_str()))?;
        let fresh = ownership::next_epoch(floor, self.ports.clock.now());
        if keys.is_empty() {
            return Ok(fresh);
        }
        let chain = Chain::session(&call.owner, &session_id);
        let owned = self.owned_outside(call, &keys).await;
        match self.owners.claim(&call.owner, &chain, &keys, owned.as_deref(), floor, true).await {
            Ok((epoch, overlaid)) => {
                self.tell_scopes(&call.principal, &call.owner, overlaid).await;
                Ok(epoch.unwrap_or(fresh))
            }
            Err(down) if is_down(&down) => {
                if let Some(refused) = owned_above(owned.as_deref(), &keys) {
                    return Err(refused);
                }
                // What the session holds goes on at the store's own epoch, and what the registry gives to it; any other
                // claim waits for the ledger (rule P4).
                let facts = self.session_facts(&call.principal, &call.owner, &body.session_id).await?;
                let held = |key: &String| {
                    let means = |fact: &&session::SessionFact| !fact.overlay && self.registry.resolve_alias(&fact.key) == *key;
                    facts.iter().filter(means).map(|fact| fact.epoch).max()
                };
                let fixed = |key: &String| self.registry.spec(key).is_some_and(|spec| spec.layer == Some(Layer::Session));
                let (known, new): (Vec<String>, Vec<String>) = keys.into_iter().partition(|key| held(key).is_some());
                if !new.iter().all(fixed) {
                    return Err(down);
                }
                let own = known.iter().filter_map(held).max().unwrap_or(0);
                let epoch = if new.is_empty() && own > floor { own } else { fresh.max(own) };
                if !new.is_empty() {
                    self.owners.later(&call.principal, &call.owner, Late::Claim { chain, keys: new, epoch });
                }
                Ok(epoch)
            }
            Err(refused) => Err(refused),
        }
    }

    /// Claims the keys of the facts for their task (rules P2, P4, W11), and returns the epoch of the write.
    pub(crate) async fn claim_facts(
        &self,
        call: &Call,
        task_id: &str,
        facts: &[working::Fact],
        floor: u64,
    ) -> Result<u64, Fault> {
        if facts.len() > BOARD_FACTS {
            return Err(Fault::limit("facts", BOARD_FACTS, "facts"));
        }
        let task = TaskId::new(task_id)?;
        // A reference to a long-term record is no claim (rule W11).
        let keys = self.resolved(facts.iter().filter(|fact| fact.reference.is_none()).map(|fact| fact.key.as_str()))?;
        let fresh = ownership::next_epoch(floor, self.ports.clock.now());
        if keys.is_empty() {
            return Ok(fresh);
        }
        let mut chain = Chain::task(&call.owner, None, &task);
        let owned = self.owned_outside(call, &keys).await;
        let mut claimed = self.owners.claim(&call.owner, &chain, &keys, owned.as_deref(), floor, false).await;
        if matches!(claimed, Ok((None, _))) {
            // A session claims one of the keys: whether it is the task's own is on the board (rule P2).
            let session = self.session_of(call, &task).await?;
            chain = Chain::task(&call.owner, session.as_ref(), &task);
            claimed = self.owners.claim(&call.owner, &chain, &keys, owned.as_deref(), floor, true).await;
        }
        match claimed {
            Ok((epoch, overlaid)) => {
                self.tell_scopes(&call.principal, &call.owner, overlaid).await;
                Ok(epoch.unwrap_or(fresh))
            }
            Err(down) if is_down(&down) => {
                // The ledger is down: long-term memory's own rows still decide, else the claim is the board's own (rule P4).
                if let Some(refused) = owned_above(owned.as_deref(), &keys) {
                    return Err(refused);
                }
                self.owners.later(&call.principal, &call.owner, Late::Claim { chain, keys, epoch: fresh });
                Ok(fresh)
            }
            Err(refused) => Err(refused),
        }
    }

    /// The session that a task belongs to, when it belongs to one.
    pub(crate) async fn session_of(&self, call: &Call, task: &TaskId) -> Result<Option<SessionId>, Fault> {
        let request = working::GetTaskRequest {
            user_id: call.owner.user.as_str().to_owned(),
            agent_id: call.owner.agent_id().to_owned(),
            task_id: task.as_str().to_owned(),
        };
        let found = self.layers.working.clone().get_task(placed(request, reading(&call.principal, &call.owner))).await;
        let board = answer(found)?.task.unwrap_or_default();
        if board.session_id.is_empty() { Ok(None) } else { SessionId::new(board.session_id).map(Some) }
    }

    /// What long-term memory owns among the keys, by position; `None` when it does not answer.
    async fn owned_outside(&self, call: &Call, keys: &[String]) -> Option<Vec<Vec<Mark>>> {
        let request = internal::GetOwnersRequest {
            user_id: call.owner.user.as_str().to_owned(),
            agent_id: call.owner.agent_id().to_owned(),
            keys: keys.to_vec(),
        };
        let mut client = self.layers.target.clone();
        let asked = client.get_owners(signed(request, reading(&call.principal, &call.owner)));
        let owners = answer(tokio::time::timeout(SIDE_LOOK, asked).await.ok()?).ok()?.owners;
        let marks = |key: &String| -> Vec<Mark> {
            owners
                .iter()
                .filter(|owned| owned.key == *key)
                .filter_map(|owned| mark_of(&call.owner, owned.level, owned.epoch))
                .collect()
        };
        Some(keys.iter().map(marks).collect())
    }

    /// Owners of one key outside of session and task.
    pub(crate) async fn outer_owners(&self, call: &Call, key: &str) -> Option<Vec<Mark>> {
        self.owned_outside(call, &[key.to_owned()]).await.and_then(|mut owned| owned.pop())
    }

    /// The attestation of a long-term write, encoded; refuses keys that the registry gives to another layer (case C178).
    async fn attested(&self, call: &Call, statement: Option<&longterm::Statement>, explicit: bool) -> Result<Vec<u8>, Status> {
        let Some(statement) = statement else { return Ok(Vec::new()) };
        self.check_layer_of(&statement.key).map_err(status)?;
        Ok(attest(&self.layers, &call.principal, &call.owner, statement, explicit).await.encode_to_vec())
    }

    /// Whether long-term memory may write the key: not where the registry fixes another layer (rules P1, P4).
    pub(crate) fn check_layer_of(&self, key: &str) -> Result<(), Fault> {
        match self.registry.spec(key) {
            Some(spec) if spec.layer.is_some_and(|layer| matches!(layer, Layer::Working | Layer::Session)) => {
                Err(ownership::owned_by(key, &Place::new(spec.scope, ""), 0))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn attesting<R>(&self, call: &Call, body: R, attestation: Vec<u8>) -> Request<R> {
        let identity = reading(&call.principal, &call.owner)
            .writing(level_of(Layer::Longterm, &call.owner), self.fresh_epoch())
            .attesting(attestation);
        signed(body, identity)
    }

    /// Leaves the mark of a key that long-term memory owns now (rule P2). Best effort: a mark that cannot be left waits for
    /// the ledger, and until then long-term memory itself is asked before every claim.
    async fn note_owner(&self, Call { principal, owner, .. }: &Call, memory: Option<&longterm::Memory>) {
        let Some(memory) = memory else { return };
        if memory.key.is_empty() || memory.status != i32::from(longterm::Status::Active) {
            return;
        }
        let Some(mark) = mark_of(owner, memory.scope, memory.owner_epoch) else { return };
        self.leave_mark(principal, owner, &memory.key, mark).await;
    }

    /// A scope ended. Best effort: without the ledger its claims end with their leases.
    async fn end_scope(&self, owner: &Owner, place: &Place) {
        match tokio::time::timeout(SIDE_LOOK, self.owners.end(owner, place)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => tracing::warn!(level = place.level.name(), "claims of an ended scope wait for their leases"),
        }
    }

    /// The chain of a session of the owner.
    pub(crate) fn session_place(session_id: &str) -> Result<Place, Fault> {
        Ok(Place::new(Level::Session, SessionId::new(session_id)?.as_str()))
    }
}

/// The mark of an owner at user or agent level.
pub(crate) fn mark_of(owner: &Owner, level: i32, epoch: u64) -> Option<Mark> {
    use strata_api::common::v1::Level as Wire;
    match Wire::try_from(level).ok()? {
        Wire::User => Some(Mark { place: Place::user(), epoch }),
        Wire::Agent => Some(Mark { place: Place::new(Level::Agent, owner.agent.as_ref()?.as_str()), epoch }),
        Wire::Unspecified | Wire::Session | Wire::Task => None,
    }
}
