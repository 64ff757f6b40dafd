//! The gRPC surface: from a signed call to the store and the rules, and back. Nothing is decided here.

use crate::access;
use crate::artifacts;
use crate::compress::{Answer, Claim, Edit, Edited, Request as EditRequest, value_shares};
use crate::erase::Eraser;
use crate::search::Query;
use crate::shared::{Shared, decoded};
use crate::store::{Append, FactsWrite, Head, RequestKey, SessionKey, State, UserTag, WindowRead, not_found};
use crate::summariser;
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use strata_api::convert::{common, erasure, session as convert};
use strata_api::error::{fault, status};
use strata_api::internal::v1 as internal;
use strata_api::internal::v1::session_erasure_service_server::SessionErasureService;
use strata_api::internal::v1::session_fact_service_server::SessionFactService;
use strata_api::page::PageTokens;
use strata_api::session::v1 as pb;
use strata_api::session::v1::session_memory_service_server::SessionMemoryService;
use strata_core::id::check_id;
use strata_core::policy::erasure::Scope;
use strata_core::policy::session::{
    self as policy, Anchor, Energies, Maker, Moment, SeqRange, SessionSettings, Summary, Turn, Verdict, WindowBudget, WindowInput,
};
use strata_core::rule::Finding;
use strata_core::{FactKey, Fault, Owner, Reason, SessionId, Timestamp, limits};
use strata_runtime::Claims;
use strata_runtime::task::detached_write;
use strata_text::tokens;
use tonic::{Request, Response, Status, Streaming};

/// Longest time an append waits for the compression it made due; the turns are stored by then.
const COMPRESS_PATIENCE: Duration = Duration::from_secs(2);
/// Tokens of a window at most.
const WINDOW_TOKENS_MAX: u32 = 1_000_000;

/// The service of the role.
#[derive(Clone, Debug)]
pub(crate) struct SessionService {
    shared: Arc<Shared>,
}

/// A call whose signature and owner were checked.
struct Call {
    owner: Owner,
    now: Timestamp,
    /// Erase epoch of the signed header (rule E2).
    erase_epoch: u64,
}

/// A call about one session.
struct SessionCall {
    call: Call,
    session: SessionId,
    key: SessionKey,
}

impl SessionCall {
    /// The session as the caller may see it.
    fn visible(&self, head: &Head) -> Result<(), Fault> {
        if head.visible_to(self.call.owner.agent.as_ref()) { Ok(()) } else { Err(not_found(&self.session)) }
    }
}

/// A paged list of one session: what its tokens are bound to (case C131).
struct List(Vec<String>);

impl SessionCall {
    /// A list of this session under a filter.
    fn list(&self, method: &str, filter: &[&str]) -> List {
        let agent = self.call.owner.agent.as_ref().map_or("", |a| a.as_str());
        let owner = [method, &self.call.owner.user_key(), agent, self.session.as_str()].map(str::to_owned);
        List(owner.into_iter().chain(filter.iter().map(|part| (*part).to_owned())).collect())
    }
}

impl List {
    fn binding(&self) -> Vec<&str> {
        self.0.iter().map(String::as_str).collect()
    }

    fn mint(&self, tokens: &PageTokens, incarnation: u64, next: impl std::fmt::Display) -> String {
        tokens.mint(&self.binding(), &format!("{incarnation}:{next}"))
    }

    /// Where the page begins; none on the first one. The token names the incarnation: a new session with the same id is
    /// another list.
    fn open<T: std::str::FromStr>(&self, tokens: &PageTokens, token: &str, incarnation: u64) -> Result<Option<T>, Fault> {
        let stale = || {
            Fault::new(
                Reason::InvalidPageToken,
                "page_token: the session is not the one the list began with; start again without it",
            )
        };
        let Some(cursor) = tokens.open(&self.binding(), token)? else { return Ok(None) };
        let (of, next) = cursor.split_once(':').ok_or_else(stale)?;
        if of != incarnation.to_string() {
            return Err(stale());
        }
        next.parse().map(Some).map_err(|_| stale())
    }
}

/// Key of a request for repetitions: who asks is part of what is asked.
macro_rules! request_key {
    ($method:literal, $body:expr) => {{
        let id = common::request_id(&$body.request_id)?;
        id.map(|id| {
            let mut body = $body.clone();
            body.request_id = String::new();
            body.user_id = String::new();
            RequestKey::new($method, id, &body.encode_to_vec())
        })
    }};
}

/// A reply, or the fault as a status.
fn reply<T>(answer: Result<T, Fault>) -> Result<Response<T>, Status> {
    answer.map(Response::new).map_err(|fault| {
        tracing::debug!(reason = fault.reason.name(), "a call was refused");
        status(fault)
    })
}

impl SessionService {
    pub(crate) const fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    fn settings(&self) -> SessionSettings {
        self.shared.settings.load().session.clone()
    }

    fn call<T>(&self, request: &Request<T>, user_id: &str, agent_id: &str) -> Result<Call, Fault> {
        self.call_of(Claims::of(request)?, user_id, agent_id)
    }

    fn call_of(&self, claims: &Claims, user_id: &str, agent_id: &str) -> Result<Call, Fault> {
        let user = claims.require_user()?;
        let asked = if user_id.is_empty() { user.as_str() } else { user_id };
        let owner = common::owner(&claims.caller, asked, agent_id)?;
        if owner.user != *user {
            return Err(Fault::new(Reason::OwnerMismatch, "user_id: the call is signed for another user"));
        }
        self.shared.epochs.check(&UserTag::of(&owner), claims.erase_epoch)?;
        Ok(Call { owner, now: self.shared.ports.clock.now(), erase_epoch: claims.erase_epoch })
    }

    fn session_call<T>(
        &self,
        request: &Request<T>,
        user_id: &str,
        agent_id: &str,
        session_id: &str,
    ) -> Result<SessionCall, Fault> {
        let call = self.call(request, user_id, agent_id)?;
        let session = convert::session_id(session_id)?;
        Ok(SessionCall { key: SessionKey::new(&call.owner, &session), session, call })
    }

    async fn append(&self, request: Request<pb::AppendTurnsRequest>) -> Result<pb::AppendTurnsResponse, Fault> {
        let body = request.get_ref();
        let SessionCall { call, key, session: _ } =
            self.session_call(&request, &body.user_id, &body.agent_id, &body.session_id)?;
        let settings = self.settings();
        let request_key = request_key!("AppendTurns", body);
        let append = Append {
            key: key.clone(),
            agent: call.owner.agent.clone(),
            turns: convert::new_turns(body.turns.clone(), call.now, tokens::count)?,
            shape: convert::shape(body.shape)?,
            ttl: convert::ttl(body.ttl.as_ref(), settings.ttl_seconds)?,
            request: request_key,
            now: call.now,
            due_turns: settings.keep_turns + settings.compress_every,
            due_tokens: settings.compress_tokens,
            erase_epoch: call.erase_epoch,
        };
        let appended = self.shared.store.append(append).await?;
        if !appended.replayed {
            if appended.due {
                self.compress_due(settings, &key).await;
            }
            let last = (appended.first + appended.count).saturating_sub(1);
            self.shared.searcher.appended(&key, last, appended.count);
        }
        Ok(pb::AppendTurnsResponse {
            seqs: (appended.first..appended.first + appended.count).collect(),
            incarnation: appended.incarnation,
            compressed: appended.due,
            expire_time: Some(common::wire_time(appended.expire_time)),
            time: Some(common::wire_time(appended.time)),
            topic_end_seq: appended.topic,
        })
    }

    /// Runs a due compression. The turns are stored: whatever becomes of it, the append has succeeded, and the next one
    /// makes it due again.
    async fn compress_due(&self, settings: SessionSettings, key: &SessionKey) {
        let (shared, key) = (Arc::clone(&self.shared), key.clone());
        let work = async move {
            if !shared.compressor.run_due(&settings, &key).await? {
                return Ok(());
            }
            let coarser = Arc::clone(&shared);
            shared.tasks.spawn("session coarsening", async move {
                if let Err(fault) = coarser.compressor.coarsen(&settings, &key).await {
                    tracing::warn!(
                        reason = fault.reason.name(),
                        "old ranges of a session could not be remade; the next compression tries again"
                    );
                }
                coarser.better_summaries(&key);
            });
            Ok::<(), Fault>(())
        };
        match tokio::time::timeout(COMPRESS_PATIENCE, detached_write(work)).await {
            Ok(Ok(())) => {}
            Ok(Err(fault)) => {
                tracing::warn!(reason = fault.reason.name(), "a due compression failed; the next append makes it due again")
            }
            Err(_) => tracing::info!("a due compression goes on in the background"),
        }
    }

    async fn window(&self, request: Request<pb::GetWindowRequest>) -> Result<pb::GetWindowResponse, Fault> {
        let body = request.get_ref();
        let at = self.session_call(&request, &body.user_id, &body.agent_id, &body.session_id)?;
        let settings = self.settings();
        let turns = limits::page("max_turns", body.max_turns, settings.window_turns, limits::PAGE_MAX)?;
        let tokens = limits::page("max_tokens", body.max_tokens, settings.window_tokens, WINDOW_TOKENS_MAX)?;
        if at.call.owner.agent.is_some() {
            // Reading must not renew what the agent may not see.
            let state = self.shared.store.state(&at.key, at.call.now).await?.ok_or_else(|| not_found(&at.session))?;
            at.visible(&state.head)?;
        }
        let read = WindowRead {
            now: at.call.now,
            renew: settings.renew_on_read && !body.no_renew,
            // Tool results in front of the budget's edge, and the instruction turn, are read and then not shown.
            turns: turns.size.saturating_add(1),
            tokens: tokens.size,
        };
        let parts = self.shared.store.window(&at.key, read).await?.ok_or_else(|| not_found(&at.session))?;
        at.visible(&parts.head)?;
        let reasons: BTreeMap<u32, &Anchor> = parts.anchors.iter().map(|a| (a.seq, a)).collect();
        let anchors: Vec<(Anchor, Turn)> =
            parts.anchored.iter().filter_map(|turn| reasons.get(&turn.seq).map(|a| ((*a).clone(), turn.clone()))).collect();
        let moment = Moment { last: parts.head.last, now: at.call.now };
        let energies = Energies::of(&settings, &parts.summaries, &parts.anchors, &anchors, &parts.head.accesses, moment);
        let input = WindowInput {
            last: parts.head.last,
            tail: &parts.tail,
            system: parts.system.as_ref(),
            anchors: &anchors,
            summaries: &parts.summaries,
            energies: &energies,
        };
        let budget = WindowBudget { turns: turns.size, tokens: tokens.size, anchor_percent: settings.anchor_percent };
        let shown = policy::window(input, budget);

        let verdict = |seq: u32| {
            reasons.get(&seq).map(|a| Verdict {
                seq,
                rule: a.rule,
                outcome: policy::Outcome::Verbatim,
                retracted_by: a.retracted_by,
                retracted_sentences: Vec::new(),
                denied: Vec::new(),
            })
        };
        let known: BTreeMap<u32, &Turn> = anchors.iter().map(|(_, t)| t).chain(&parts.tail).map(|t| (t.seq, t)).collect();
        let wire = |seq: &u32| known.get(seq).map(|t| convert::wire_turn(&at.session, (*t).clone(), verdict(*seq).as_ref()));
        let summaries: Vec<_> = shown.summaries.iter().map(|i| &parts.summaries[*i]).collect();
        let shares = value_shares(&summaries);
        let loaded = |seq: u32| anchors.iter().any(|(a, _)| a.seq == seq);
        let not_loaded = parts.anchors.iter().map(|a| a.seq).filter(|seq| !loaded(*seq) && !shown.turns.contains(seq));
        let mut anchors_left_out: Vec<u32> = shown.anchors_left_out.iter().copied().chain(not_loaded).collect();
        anchors_left_out.sort_unstable();
        Ok(pb::GetWindowResponse {
            system: parts.system.filter(|_| shown.system).map(|t| convert::wire_turn(&at.session, t, None)),
            summaries: shown
                .summaries
                .iter()
                .zip(summaries.iter().zip(shares))
                .map(|(i, (s, share))| pb::Summary { energy: energies.summary(*i), ..convert::wire_summary(s, share) })
                .collect(),
            anchors: shown.anchors.iter().filter_map(wire).collect(),
            anchor_reasons: shown.anchors.iter().filter_map(|seq| reasons.get(seq)).map(|a| convert::wire_anchor(a)).collect(),
            turns: shown.turns.iter().filter_map(wire).collect(),
            tokens: shown.tokens,
            anchors_left_out,
            turns_left_out: shown.turns_left_out,
            last_seq: parts.head.last,
            capped: turns.capped || tokens.capped,
        })
    }

    async fn list(&self, request: Request<pb::ListTurnsRequest>) -> Result<pb::ListTurnsResponse, Fault> {
        let body = request.get_ref();
        let at = self.session_call(&request, &body.user_id, &body.agent_id, &body.session_id)?;
        let page = limits::page("page_size", body.page_size, limits::PAGE, limits::PAGE_MAX)?;
        let first = body.from_seq.max(1);
        let list = at.list("ListTurns", &[&first.to_string()]);
        let state = self.state(&at).await?;
        let from = list.open(&self.shared.page_tokens, &body.page_token, state.head.incarnation)?.unwrap_or(first);
        let read = self.shared.store.turns(&at.key, at.call.now, from, from.saturating_add(page.size - 1)).await?;
        let read = read.ok_or_else(|| not_found(&at.session))?;
        at.visible(&read.head)?;
        let next = read.turns.last().map_or(from, |t| t.seq + 1);
        let next_page_token = if next <= read.head.last && !read.turns.is_empty() {
            list.mint(&self.shared.page_tokens, read.head.incarnation, next)
        } else {
            String::new()
        };
        Ok(pb::ListTurnsResponse {
            turns: wire_turns(&at.session, read.turns, &read.verdicts),
            next_page_token,
            capped: page.capped,
        })
    }

    async fn get_turns(&self, request: Request<pb::GetTurnsRequest>) -> Result<pb::GetTurnsResponse, Fault> {
        let body = request.get_ref();
        let at = self.session_call(&request, &body.user_id, &body.agent_id, &body.session_id)?;
        if body.from_seq == 0 {
            return Err(Fault::field("from_seq", "turns are numbered from 1"));
        }
        if body.to_seq < body.from_seq || body.to_seq - body.from_seq >= limits::PAGE_MAX {
            return Err(Fault::field("to_seq", format!("must be from_seq or later, at most {} turns", limits::PAGE_MAX)));
        }
        let read = self.shared.store.turns(&at.key, at.call.now, body.from_seq, body.to_seq).await?;
        let read = read.ok_or_else(|| not_found(&at.session))?;
        at.visible(&read.head)?;
        let expected = body.to_seq.min(read.head.last);
        if body.from_seq <= expected && read.turns.last().is_none_or(|t| t.seq < expected) {
            return Err(Fault::limit(
                "to_seq",
                limits::TURNS_ANSWER_BYTES,
                "bytes of text in one answer; ask for a smaller range",
            ));
        }
        let seqs: Vec<u32> = read.turns.iter().map(|turn| turn.seq).collect();
        access::note(&self.shared.store, &self.shared.tasks, &at.key, &read.head, at.call.now, &seqs);
        let source_hash = if read.turns.is_empty() { String::new() } else { policy::source_hash(&read.turns) };
        Ok(pb::GetTurnsResponse { turns: wire_turns(&at.session, read.turns, &read.verdicts), source_hash })
    }

    async fn search(&self, request: Request<pb::SearchTurnsRequest>) -> Result<pb::SearchTurnsResponse, Fault> {
        let body = request.get_ref();
        let call = self.call(&request, &body.user_id, &body.agent_id)?;
        let session = if body.session_id.is_empty() { None } else { Some(convert::session_id(&body.session_id)?) };
        let k = limits::page("k", body.k, limits::RECALL_K, limits::RECALL_K_MAX)?;
        let query = Query {
            user: UserTag::of(&call.owner),
            agent: call.owner.agent,
            session,
            text: common::text("query", &body.query, limits::QUERY_CHARS)?,
            k: k.size,
        };
        let settings = self.shared.settings.load_full();
        let found = self.shared.searcher.search(&settings.recall, &settings.session, query).await?;
        let hit = |hit: crate::search::Hit| {
            let explain = if body.explain { convert::explain(&hit.fused, found.scale) } else { BTreeMap::new() };
            let (turn, verdict) = hit.turn;
            pb::TurnHit {
                turn: Some(convert::wire_turn(&hit.session, turn, verdict.as_ref())),
                score: hit.score,
                explain,
                ..pb::TurnHit::default()
            }
        };
        Ok(pb::SearchTurnsResponse {
            hits: found.hits.into_iter().map(hit).collect(),
            capped: k.capped || found.cut,
            degraded: found.degraded,
        })
    }

    async fn compress(&self, request: Request<pb::CompressSessionRequest>) -> Result<pb::CompressSessionResponse, Fault> {
        let body = request.get_ref();
        let at = self.session_call(&request, &body.user_id, &body.agent_id, &body.session_id)?;
        let settings = self.settings();
        let keep = limits::page("keep_turns", body.keep_turns, settings.keep_turns, limits::PAGE_MAX)?.size;
        let request_key = request_key!("CompressSession", body);
        let change = if body.require_model { Change::ByModel { keep } } else { Change::Here(Edit::Compress { keep }) };
        let coarser = (Arc::clone(&self.shared), settings.clone(), at.key.clone());
        detached_write(async move {
            let answer = edited(&coarser.0, &settings, at, change, request_key, wire_compression).await?;
            coarser.0.compressor.coarsen(&coarser.1, &coarser.2).await?;
            coarser.0.better_summaries(&coarser.2);
            Ok(answer)
        })
        .await
    }

    async fn commit_summary(&self, request: Request<pb::CommitSummaryRequest>) -> Result<pb::CommitSummaryResponse, Fault> {
        let body = request.get_ref();
        let at = self.session_call(&request, &body.user_id, &body.agent_id, &body.session_id)?;
        let request_key = request_key!("CommitSummary", body);
        if body.from_seq == 0 {
            return Err(Fault::field("from_seq", "turns are numbered from 1"));
        }
        if body.to_seq < body.from_seq {
            return Err(Fault::field("to_seq", "must be from_seq or later"));
        }
        let claim = Claim {
            range: SeqRange { from: body.from_seq, to: body.to_seq },
            sentences: convert::sentences(body.sentences.clone(), tokens::count)?,
            source_hash: common::optional_text("source_hash", &body.source_hash, limits::ID_BYTES)?,
            made_by: Maker::Client,
        };
        self.edit(at, Edit::Summary(claim), request_key, |edited| pb::CommitSummaryResponse {
            summary: edited.summary.as_ref().map(|s| convert::wire_summary(s, limits::WINDOW_VALUES)),
            anchors: edited.anchors.iter().map(convert::wire_anchor).collect(),
            verdicts: edited.verdicts.iter().map(convert::wire_verdict).collect(),
        })
        .await
    }

    async fn anchor(&self, request: Request<pb::AnchorTurnsRequest>) -> Result<pb::AnchorTurnsResponse, Fault> {
        let body = request.get_ref();
        let at = self.session_call(&request, &body.user_id, &body.agent_id, &body.session_id)?;
        let request_key = request_key!("AnchorTurns", body);
        let edit = Edit::Anchor(convert::turn_numbers(&body.seqs)?);
        self.edit(at, edit, request_key, |edited| pb::AnchorTurnsResponse {
            anchors: edited.anchors.iter().map(convert::wire_anchor).collect(),
        })
        .await
    }

    async fn release(&self, request: Request<pb::ReleaseAnchorsRequest>) -> Result<pb::ReleaseAnchorsResponse, Fault> {
        let body = request.get_ref();
        let at = self.session_call(&request, &body.user_id, &body.agent_id, &body.session_id)?;
        let request_key = request_key!("ReleaseAnchors", body);
        let edit = Edit::Release(convert::turn_numbers(&body.seqs)?);
        self.edit(at, edit, request_key, |edited| pb::ReleaseAnchorsResponse {
            released: edited.released.clone(),
            kept: edited.kept.iter().map(convert::wire_anchor).collect(),
        })
        .await
    }

    /// Changes what is kept of turns; what was begun is finished when the caller has gone.
    async fn edit<T: Message + Default + 'static>(
        &self,
        at: SessionCall,
        edit: Edit,
        request: Option<RequestKey>,
        wire: fn(&Edited) -> T,
    ) -> Result<T, Fault> {
        let (shared, settings) = (Arc::clone(&self.shared), self.settings());
        detached_write(async move { edited(&shared, &settings, at, Change::Here(edit), request, wire).await }).await
    }

    /// The state of a session that the caller may see.
    async fn state(&self, at: &SessionCall) -> Result<State, Fault> {
        let state = self.shared.store.state(&at.key, at.call.now).await?.ok_or_else(|| not_found(&at.session))?;
        at.visible(&state.head)?;
        Ok(state)
    }

    async fn summaries(&self, request: Request<pb::GetSummariesRequest>) -> Result<pb::GetSummariesResponse, Fault> {
        let body = request.get_ref();
        let at = self.session_call(&request, &body.user_id, &body.agent_id, &body.session_id)?;
        let page = limits::page("page_size", body.page_size, limits::PAGE, limits::PAGE_MAX)?;
        let to = if body.to_seq == 0 { u32::MAX } else { body.to_seq };
        if to < body.from_seq {
            return Err(Fault::field("to_seq", "must be from_seq or later"));
        }
        let state = self.state(&at).await?;
        let (from_seq, to_seq) = (body.from_seq.to_string(), body.to_seq.to_string());
        let list = at.list("GetSummaries", &[&from_seq, &to_seq]);
        let from = list.open(&self.shared.page_tokens, &body.page_token, state.head.incarnation)?.unwrap_or(body.from_seq);
        // A range that was remade between two pages may be seen twice, never missed.
        let mut rest = state.summaries.iter().filter(|s| s.to >= from && s.from <= to).peekable();
        let (mut shown, mut values) = (Vec::new(), 0);
        while let Some(summary) = rest.next_if(|s| {
            shown.is_empty() || (shown.len() < page.size as usize && values + s.values.len() <= limits::WINDOW_VALUES)
        }) {
            values += summary.values.len();
            shown.push(convert::wire_summary(summary, limits::SUMMARY_VALUES));
        }
        let next_page_token = rest
            .peek()
            .map_or_else(String::new, |next: &&Summary| list.mint(&self.shared.page_tokens, state.head.incarnation, next.from));
        Ok(pb::GetSummariesResponse {
            summaries: shown,
            next_page_token,
            capped: page.capped,
            covered_seq: state.head.through,
            last_seq: state.head.last,
        })
    }

    async fn sessions(&self, request: Request<pb::ListSessionsRequest>) -> Result<pb::ListSessionsResponse, Fault> {
        let body = request.get_ref();
        let call = self.call(&request, &body.user_id, &body.agent_id)?;
        let page = limits::page("page_size", body.page_size, limits::PAGE, limits::PAGE_MAX)?;
        let user = call.owner.user_key();
        let agent = call.owner.agent.as_ref();
        let binding = ["ListSessions", &user, agent.map_or("", |a| a.as_str())];
        let after = self.shared.page_tokens.open(&binding, &body.page_token)?.map(SessionId::new).transpose()?;
        let tag = UserTag::of(&call.owner);
        // One more tells whether there is a next page.
        let mut heads = self.shared.store.session_page(&tag, agent, call.now, after.as_ref(), page.size + 1).await?;
        let more = heads.len() > page.size as usize;
        heads.truncate(page.size as usize);
        let last = heads.last().filter(|_| more);
        let next_page_token = last.map(|h| self.shared.page_tokens.mint(&binding, h.session.as_str())).unwrap_or_default();
        let sessions = heads.iter().map(wire_head).collect();
        Ok(pb::ListSessionsResponse { sessions, next_page_token, capped: page.capped })
    }

    async fn put_facts(&self, request: Request<pb::PutFactsRequest>) -> Result<pb::PutFactsResponse, Fault> {
        let body = request.get_ref();
        let at = self.session_call(&request, &body.user_id, &body.agent_id, &body.session_id)?;
        let epoch = Claims::of(&request)?.require_write()?.epoch;
        let request_key = request_key!("PutFacts", body);
        let facts = convert::facts(body.facts.clone(), epoch, at.call.now)?;
        let answer = pb::PutFactsResponse { facts: facts.iter().map(convert::wire_fact).collect() };
        let write = FactsWrite {
            key: at.key,
            agent: at.call.owner.agent,
            now: at.call.now,
            facts,
            erase_epoch: at.call.erase_epoch,
            request: request_key.map(|key| (key, answer.encode_to_vec())),
        };
        match self.shared.store.put_facts(write).await? {
            None => Ok(answer),
            Some(bytes) => decoded(&bytes),
        }
    }

    async fn get_facts(&self, request: Request<pb::GetFactsRequest>) -> Result<pb::GetFactsResponse, Fault> {
        let body = request.get_ref();
        let at = self.session_call(&request, &body.user_id, &body.agent_id, &body.session_id)?;
        let page = limits::page("page_size", body.page_size, limits::PAGE, limits::PAGE_MAX)?;
        let asked = convert::fact_keys(&body.keys)?;
        let ranged = body.from_seq > 0 || body.to_seq > 0;
        let range = body.from_seq..=if body.to_seq == 0 { u32::MAX } else { body.to_seq };
        if range.is_empty() {
            return Err(Fault::field("to_seq", "must be from_seq or later"));
        }
        let state = self.state(&at).await?;
        let filter = [body.from_seq.to_string(), body.to_seq.to_string()];
        let filter: Vec<&str> = filter.iter().map(String::as_str).chain(asked.iter().map(FactKey::as_str)).collect();
        let list = at.list("GetFacts", &filter);
        let after: Option<FactCursor> = list.open(&self.shared.page_tokens, &body.page_token, state.head.incarnation)?;
        let facts = self.shared.store.facts(&at.key, at.call.now).await?.ok_or_else(|| not_found(&at.session))?;
        let facts = facts
            .into_iter()
            .filter(|fact| (asked.is_empty() || asked.contains(&fact.key)) && (!ranged || range.contains(&fact.seq)))
            .map(|fact| (FactCursor::Fact(fact.key.as_str().to_owned()), Some(convert::wire_fact(&fact))));
        // The index of compressed turns: outside the prompt, by range (rule S3).
        let indexed = state.summaries.iter().filter(|_| ranged && asked.is_empty()).flat_map(|summary| &summary.values);
        let values: BTreeSet<FactCursor> = indexed
            .filter(|value| range.contains(&value.seq))
            .map(|value| FactCursor::Value(value.seq, value.value.clone()))
            .collect();
        let mut rest = facts
            .chain(values.into_iter().map(|value| (value, None)))
            .skip_while(|(at, _)| after.as_ref().is_some_and(|after| at <= after))
            .peekable();
        let mut answer = pb::GetFactsResponse { capped: page.capped, covered_seq: state.head.through, ..Default::default() };
        let mut last = None;
        for (cursor, fact) in rest.by_ref().take(page.size as usize) {
            if let FactCursor::Value(seq, value) = &cursor {
                answer.values.push(pb::ValueReference { value: value.clone(), seq: *seq });
            }
            answer.facts.extend(fact);
            last = Some(cursor);
        }
        if let (Some(last), Some(_)) = (last, rest.peek()) {
            answer.next_page_token = list.mint(&self.shared.page_tokens, state.head.incarnation, last);
        }
        Ok(answer)
    }

    async fn put_artifact(&self, request: Request<Streaming<pb::PutArtifactRequest>>) -> Result<pb::PutArtifactResponse, Fault> {
        let claims = Claims::of(&request)?.clone();
        let mut messages = request.into_inner();
        let header = messages.message().await.map_err(|status| fault(&status))?.unwrap_or_default();
        let call = self.call_of(&claims, &header.user_id, &header.agent_id)?;
        let session = convert::session_id(&header.session_id)?;
        let key = SessionKey::new(&call.owner, &session);
        let to = artifacts::Destination { key, agent: call.owner.agent, now: call.now, erase_epoch: call.erase_epoch };
        artifacts::put(&self.shared, to, header, messages).await
    }

    async fn get_artifact(&self, request: Request<pb::GetArtifactRequest>) -> Result<artifacts::Parts, Fault> {
        let body = request.get_ref();
        let at = self.session_call(&request, &body.user_id, &body.agent_id, &body.session_id)?;
        check_id("trace_id", &body.trace_id)?;
        artifacts::get(&self.shared, at.key, at.call.owner.agent.as_ref(), at.call.now, &body.trace_id).await
    }

    async fn seal(&self, request: Request<internal::SealFactRequest>) -> Result<internal::SealFactResponse, Fault> {
        let body = request.get_ref();
        let at = self.session_call(&request, &body.user_id, &body.agent_id, &body.session_id)?;
        let epoch = Claims::of(&request)?.require_write()?.epoch;
        let key = FactKey::new(body.key.as_str())?;
        self.state(&at).await?;
        let fact = self.shared.store.seal_fact(&at.key, at.call.now, &key, epoch).await?;
        Ok(internal::SealFactResponse { fact: Some(convert::wire_fact(&fact)) })
    }

    async fn overlay(&self, request: Request<internal::OverlayFactsRequest>) -> Result<internal::OverlayFactsResponse, Fault> {
        let body = request.get_ref();
        let at = self.session_call(&request, &body.user_id, &body.agent_id, &body.session_id)?;
        if body.keys.is_empty() || body.keys.len() > limits::SESSION_FACTS {
            return Err(Fault::field("keys", format!("must hold 1 to {} keys", limits::SESSION_FACTS)));
        }
        let keys = body.keys.iter().map(|key| FactKey::new(key.as_str())).collect::<Result<Vec<_>, _>>()?;
        Ok(internal::OverlayFactsResponse { known: self.shared.store.overlay_facts(&at.key, at.call.now, &keys).await? })
    }

    async fn get_session(&self, request: Request<pb::GetSessionRequest>) -> Result<pb::GetSessionResponse, Fault> {
        let body = request.get_ref();
        let at = self.session_call(&request, &body.user_id, &body.agent_id, &body.session_id)?;
        let state = self.state(&at).await?;
        let head = &state.head;
        let (shape, rule) = match head.shape {
            Some(shape) if head.declared => (shape, Finding::new("S1", shape.name(), "declared by the caller")),
            known => {
                let (now, finding) = self.shared.compressor.shape(&at.key, head.incarnation, head.last).await?;
                match known {
                    // What the last compression went by; the newest turns alone may look calmer.
                    Some(shape) if shape < now => {
                        (shape, Finding::new("S1", shape.name(), "inferred from earlier turns of the session"))
                    }
                    _ => (now, finding),
                }
            }
        };
        let all: Vec<_> = state.summaries.iter().collect();
        let shares = value_shares(&all);
        Ok(pb::GetSessionResponse {
            session_id: at.session.as_str().to_owned(),
            incarnation: head.incarnation,
            shape: convert::wire_shape(shape).into(),
            shape_rule: Some(common::wire_finding(&rule)),
            last_seq: head.last,
            bytes: head.bytes,
            create_time: Some(common::wire_time(head.create_time)),
            expire_time: Some(common::wire_time(head.expire_time)),
            anchors: state.anchors.iter().map(convert::wire_anchor).collect(),
            summaries: all.iter().zip(shares).map(|(s, share)| convert::wire_summary(s, share)).collect(),
            agent_id: head.agent.as_ref().map(|agent| agent.as_str().to_owned()).unwrap_or_default(),
            topic_end_seq: head.topic,
        })
    }

    async fn end(&self, request: Request<pb::EndSessionRequest>) -> Result<pb::EndSessionResponse, Fault> {
        let body = request.get_ref();
        let SessionCall { call, key, session: _ } =
            self.session_call(&request, &body.user_id, &body.agent_id, &body.session_id)?;
        let request_key = request_key!("EndSession", body);
        let ended = self.shared.store.end(&key, call.owner.agent.as_ref(), call.now, request_key).await?;
        self.shared.searcher.forget(&key);
        Ok(pb::EndSessionResponse {
            end_time: Some(common::wire_time(ended.time)),
            turns: ended.turns,
            already_ended: ended.already,
            ..pb::EndSessionResponse::default()
        })
    }
}

impl SessionService {
    /// What an erasure takes, held against the signed header.
    fn scope<T>(&self, request: &Request<T>, scope: Option<&internal::ErasureScope>) -> Result<(UserTag, Scope), Fault> {
        let wire = scope.ok_or_else(|| Fault::field("scope", "is required"))?;
        let claims = Claims::of(request)?;
        let owner = common::owner(&claims.caller, &wire.user_id, "")?;
        if owner.user != *claims.require_user()? {
            return Err(Fault::new(Reason::OwnerMismatch, "user_id: the call is signed for another user"));
        }
        Ok((UserTag::of(&owner), erasure::scope(wire)?))
    }

    async fn erase(&self, request: Request<internal::EraseContentRequest>) -> Result<internal::EraseContentResponse, Fault> {
        let body = request.get_ref();
        let (user, scope) = self.scope(&request, body.scope.as_ref())?;
        let (shared, cursor) = (Arc::clone(&self.shared), body.cursor.clone());
        // What was begun is finished when the caller has gone.
        let (stores, next_cursor) = detached_write(async move { Eraser::new(&shared, user, scope).erase(&cursor).await }).await?;
        Ok(internal::EraseContentResponse { stores, next_cursor })
    }

    async fn find(&self, request: Request<internal::FindContentRequest>) -> Result<internal::FindContentResponse, Fault> {
        let body = request.get_ref();
        let (user, scope) = self.scope(&request, body.scope.as_ref())?;
        let (stores, next_cursor) = Eraser::new(&self.shared, user, scope).find(&body.cursor).await?;
        Ok(internal::FindContentResponse { stores, next_cursor })
    }
}

fn wire_turns(session: &SessionId, turns: Vec<Turn>, verdicts: &[Verdict]) -> Vec<pb::Turn> {
    let verdicts: BTreeMap<u32, &Verdict> = verdicts.iter().map(|v| (v.seq, v)).collect();
    turns
        .into_iter()
        .map(|turn| {
            let verdict = verdicts.get(&turn.seq).copied();
            convert::wire_turn(session, turn, verdict)
        })
        .collect()
}

/// What is to be changed, and by whom.
enum Change {
    Here(Edit),
    /// What is due, compressed by the model.
    ByModel {
        keep: u32,
    },
}

/// Makes a change and gives its answer, also when it is repeated.
async fn edited<T: Message + Default>(
    shared: &Shared,
    settings: &SessionSettings,
    at: SessionCall,
    change: Change,
    request: Option<RequestKey>,
    wire: fn(&Edited) -> T,
) -> Result<T, Fault> {
    if at.call.owner.agent.is_some() {
        // An ended session answers below.
        let state = shared.store.state(&at.key, at.call.now).await?;
        state.map_or(Ok(()), |state| at.visible(&state.head))?;
    }
    let encode = move |edited: &Edited| wire(edited).encode_to_vec();
    let request = request.map(|key| EditRequest { key, encode: &encode });
    let epoch = at.call.erase_epoch;
    let answer = match change {
        Change::Here(edit) => shared.compressor.run(settings, &at.key, &edit, request, Some(epoch)).await?,
        Change::ByModel { keep } => summariser::compress(shared, settings, &at.key, keep, request, epoch).await?,
    };
    match answer {
        Answer::New(edited) => Ok(wire(&edited)),
        Answer::Replay(bytes) => decoded(&bytes),
    }
}

/// Place in the list of facts, then values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FactCursor {
    Fact(String),
    Value(u32, String),
}

impl std::fmt::Display for FactCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fact(key) => write!(f, "f{key}"),
            Self::Value(seq, value) => write!(f, "v{seq}:{value}"),
        }
    }
}

impl std::str::FromStr for FactCursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if let Some(key) = text.strip_prefix('f') {
            return Ok(Self::Fact(key.to_owned()));
        }
        let (seq, value) = text.strip_prefix('v').and_then(|rest| rest.split_once(':')).ok_or(())?;
        Ok(Self::Value(seq.parse().map_err(|_| ())?, value.to_owned()))
    }
}

fn wire_head(head: &Head) -> pb::SessionInfo {
    pb::SessionInfo {
        session_id: head.session.as_str().to_owned(),
        agent_id: head.agent.as_ref().map(|agent| agent.as_str().to_owned()).unwrap_or_default(),
        incarnation: head.incarnation,
        shape: head.shape.map_or(pb::Shape::Unspecified, convert::wire_shape).into(),
        last_seq: head.last,
        bytes: head.bytes,
        create_time: Some(common::wire_time(head.create_time)),
        expire_time: Some(common::wire_time(head.expire_time)),
    }
}

fn wire_compression(compression: &Edited) -> pb::CompressSessionResponse {
    let summary = compression.summary.as_ref().filter(|s| !s.is_empty());
    pb::CompressSessionResponse {
        summary: summary.map(|s| convert::wire_summary(s, limits::WINDOW_VALUES)),
        anchors: compression.anchors.iter().map(convert::wire_anchor).collect(),
        verdicts: compression.verdicts.iter().map(convert::wire_verdict).collect(),
    }
}

#[tonic::async_trait]
impl SessionMemoryService for SessionService {
    async fn append_turns(&self, request: Request<pb::AppendTurnsRequest>) -> Result<Response<pb::AppendTurnsResponse>, Status> {
        reply(self.append(request).await)
    }

    async fn get_window(&self, request: Request<pb::GetWindowRequest>) -> Result<Response<pb::GetWindowResponse>, Status> {
        reply(self.window(request).await)
    }

    async fn list_turns(&self, request: Request<pb::ListTurnsRequest>) -> Result<Response<pb::ListTurnsResponse>, Status> {
        reply(self.list(request).await)
    }

    async fn get_turns(&self, request: Request<pb::GetTurnsRequest>) -> Result<Response<pb::GetTurnsResponse>, Status> {
        reply(self.get_turns(request).await)
    }

    async fn search_turns(&self, request: Request<pb::SearchTurnsRequest>) -> Result<Response<pb::SearchTurnsResponse>, Status> {
        reply(self.search(request).await)
    }

    async fn anchor_turns(&self, request: Request<pb::AnchorTurnsRequest>) -> Result<Response<pb::AnchorTurnsResponse>, Status> {
        reply(self.anchor(request).await)
    }

    async fn release_anchors(
        &self,
        request: Request<pb::ReleaseAnchorsRequest>,
    ) -> Result<Response<pb::ReleaseAnchorsResponse>, Status> {
        reply(self.release(request).await)
    }

    async fn commit_summary(
        &self,
        request: Request<pb::CommitSummaryRequest>,
    ) -> Result<Response<pb::CommitSummaryResponse>, Status> {
        reply(Self::commit_summary(self, request).await)
    }

    async fn put_facts(&self, request: Request<pb::PutFactsRequest>) -> Result<Response<pb::PutFactsResponse>, Status> {
        reply(Self::put_facts(self, request).await)
    }

    async fn put_artifact(
        &self,
        request: Request<Streaming<pb::PutArtifactRequest>>,
    ) -> Result<Response<pb::PutArtifactResponse>, Status> {
        reply(Self::put_artifact(self, request).await)
    }

    type GetArtifactStream = artifacts::Parts;

    async fn get_artifact(&self, request: Request<pb::GetArtifactRequest>) -> Result<Response<Self::GetArtifactStream>, Status> {
        reply(Self::get_artifact(self, request).await)
    }

    async fn get_facts(&self, request: Request<pb::GetFactsRequest>) -> Result<Response<pb::GetFactsResponse>, Status> {
        reply(Self::get_facts(self, request).await)
    }

    async fn get_summaries(
        &self,
        request: Request<pb::GetSummariesRequest>,
    ) -> Result<Response<pb::GetSummariesResponse>, Status> {
        reply(self.summaries(request).await)
    }

    async fn list_sessions(
        &self,
        request: Request<pb::ListSessionsRequest>,
    ) -> Result<Response<pb::ListSessionsResponse>, Status> {
        reply(self.sessions(request).await)
    }

    async fn compress_session(
        &self,
        request: Request<pb::CompressSessionRequest>,
    ) -> Result<Response<pb::CompressSessionResponse>, Status> {
        reply(self.compress(request).await)
    }

    async fn get_session(&self, request: Request<pb::GetSessionRequest>) -> Result<Response<pb::GetSessionResponse>, Status> {
        reply(self.get_session(request).await)
    }

    async fn end_session(&self, request: Request<pb::EndSessionRequest>) -> Result<Response<pb::EndSessionResponse>, Status> {
        reply(self.end(request).await)
    }
}

#[tonic::async_trait]
impl SessionFactService for SessionService {
    async fn seal_fact(
        &self,
        request: Request<internal::SealFactRequest>,
    ) -> Result<Response<internal::SealFactResponse>, Status> {
        reply(self.seal(request).await)
    }

    async fn overlay_facts(
        &self,
        request: Request<internal::OverlayFactsRequest>,
    ) -> Result<Response<internal::OverlayFactsResponse>, Status> {
        reply(self.overlay(request).await)
    }
}

#[tonic::async_trait]
impl SessionErasureService for SessionService {
    async fn erase_content(
        &self,
        request: Request<internal::EraseContentRequest>,
    ) -> Result<Response<internal::EraseContentResponse>, Status> {
        reply(self.erase(request).await)
    }

    async fn find_content(
        &self,
        request: Request<internal::FindContentRequest>,
    ) -> Result<Response<internal::FindContentResponse>, Status> {
        reply(self.find(request).await)
    }
}
