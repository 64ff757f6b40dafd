//! The end of a session (rule S14): a small saga over the layers. What the session said is archived at long-term memory, page by
//! page, each step idempotent, and only then the session is ended; a router that dies between two steps leaves a live
//! session whose next EndSession goes on where it stopped. And the other half: a search over turns looks into the archive too.
//!
//! A topic that ends while its session goes on (rule S7) takes the same way: the session layer tells with an append that one has
//! ended, and [`worker`] archives its turns as an episode that is closed. What dies in between is told again with the next append,
//! or is found by EndSession, which closes such a topic first. Long-term memory keeps how far it has come, so that no turn is
//! archived twice.

use crate::call::{Call, level_of};
use crate::gate::Core;
use crate::layers::{SIDE_LOOK, answer, placed, reading, signed};
use crate::modes::{self, Passage};
use crate::topics::TopicQueue;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;
use strata_api::common::v1::Finding;
use strata_api::convert::common as convert_common;
use strata_api::convert::session as convert;
use strata_api::internal::v1 as internal;
use strata_api::longterm::v1 as longterm;
use strata_api::session::v1 as session;
use strata_api::working::v1 as working;
use strata_core::policy::authz::{self, Layer};
use strata_core::policy::recall::on_joint_scale;
use strata_core::policy::session::{Role, SummaryBounds, Turn, TurnCues, Verdict, View, infer_shape, judge, summarise};
use strata_core::{AgentId, Fault, Owner, Reason, limits};
use strata_text::tokens;
use strata_text::turns::turn_cues;

/// Turns read and archived at a time: the language work of a page stays short.
const PAGE: i32 = 200;
/// Longest wait of a search for the archive: its live hits are there.
const ARCHIVE_LOOK: Duration = Duration::from_secs(2);

/// Archives topics that have ended, one after the other, until the router stops.
pub(crate) async fn worker(core: Arc<Core>, mut queue: TopicQueue) {
    let stop = core.tasks.token().clone();
    loop {
        let ended = tokio::select! {
            () = stop.cancelled() => return,
            ended = queue.next() => match ended {
                Some(ended) => ended,
                None => return,
            },
        };
        if core.topics.knows(&ended) {
            continue;
        }
        let work = core.as_of_now().scope(core.archive_topics(&ended.call, &ended.session_id));
        let archived = tokio::select! {
            () = stop.cancelled() => return,
            archived = work => archived,
        };
        match archived {
            Ok(()) => core.topics.remember(&ended),
            Err(fault) => tracing::debug!(reason = fault.reason.name(), "a topic waits for long-term memory"),
        }
    }
}

/// What became of the archive of a session.
#[derive(Debug)]
pub(crate) enum Archive {
    /// It is an episode now.
    Kept(Box<longterm::Episode>),
    /// There is no such session any more: it was ended before, or the layer will say that it never was.
    Gone,
}

/// The name under which a task's goal is archived. An id that would be too long is named by its digest.
fn goal_session(task_id: &str) -> String {
    let name = format!("task:{task_id}");
    if name.len() <= limits::ID_BYTES { name } else { format!("task:{}", blake3::hash(task_id.as_bytes()).to_hex()) }
}

/// What is said when a goal was to be kept and was not.
pub(crate) fn goal_not_archived(why: &Fault) -> Finding {
    Finding {
        rule: "W7".to_owned(),
        outcome: "NOT_ARCHIVED".to_owned(),
        because: format!("the goal was not kept: {}", why.reason.name()),
    }
}

/// A session whose turns are being archived.
struct Archiving {
    owner: Owner,
    keep_turns: bool,
    summary_tokens: u32,
    head: session::GetSessionResponse,
}

impl Archiving {
    fn part(
        &self,
        call: &Call,
        turns: Vec<session::Turn>,
        sentences: Vec<internal::ArchivedSentence>,
    ) -> internal::ArchiveSessionRequest {
        internal::ArchiveSessionRequest {
            user_id: call.owner.user.as_str().to_owned(),
            agent_id: self.head.agent_id.clone(),
            session_id: self.head.session_id.clone(),
            incarnation: self.head.incarnation,
            turns,
            summary_only: !self.keep_turns,
            sentences,
            ..internal::ArchiveSessionRequest::default()
        }
    }
}

/// A sentence of the session's summary.
struct Sentence {
    text: String,
    seqs: Vec<u32>,
}

/// What an episode's summary is made from.
#[derive(Default)]
struct Said {
    /// Sentences of the session's own summaries.
    sentences: Vec<Sentence>,
    /// Last turn that they cover.
    covered: u32,
    /// Turns that sentences name: whether the user said them, and what.
    named: BTreeMap<u32, (bool, String)>,
    /// Turns that no summary covers.
    tail: Vec<Turn>,
}

impl Core {
    fn mode_of(&self, call: &Call, path: &str) -> Result<Passage, Fault> {
        let method = authz::find(path).ok_or_else(|| Fault::new(Reason::NotServed, "no such method"))?;
        modes::check(&self.modes, &call.owner.tenant, method)
    }

    /// Archives a session that is about to end: topics that ended before are closed first.
    ///
    /// # Errors
    /// Why nothing, or not all of it, was archived; the session is untouched.
    pub(crate) async fn archive(&self, call: &Call, session_id: &str) -> Result<Archive, Fault> {
        let Some(archiving) = self.archiving(call, session_id).await? else { return Ok(Archive::Gone) };
        let (closed, through) = self.archive_topic(call, &archiving).await?;
        let kept = self.archive_turns(call, &archiving, closed, through, None).await?;
        let episode = kept.episode.ok_or_else(|| Fault::new(Reason::Internal, "a session without turns was archived"))?;
        Ok(Archive::Kept(Box::new(episode)))
    }

    /// Archives the topics of a session that goes on (rule S7).
    ///
    /// # Errors
    /// Why it was not archived. It is told again.
    async fn archive_topics(&self, call: &Call, session_id: &str) -> Result<(), Fault> {
        match self.archiving(call, session_id).await? {
            Some(archiving) => self.archive_topic(call, &archiving).await.map(drop),
            None => Ok(()),
        }
    }

    /// A session as it is, if its turns may be archived; none when it is gone.
    async fn archiving(&self, call: &Call, session_id: &str) -> Result<Option<Archiving>, Fault> {
        self.mode_of(call, "/strata.internal.v1.TargetService/ArchiveSession")?;
        let get = session::GetSessionRequest {
            user_id: call.owner.user.as_str().to_owned(),
            agent_id: call.owner.agent_id().to_owned(),
            session_id: session_id.to_owned(),
        };
        let head = match answer(self.layers.session.clone().get_session(signed(get, reading(&call.principal, &call.owner))).await)
        {
            Ok(head) => head,
            Err(fault) if matches!(fault.reason, Reason::NotFound | Reason::SessionEnded) => return Ok(None),
            Err(fault) => return Err(fault),
        };
        // The episode belongs to whom the session belonged to, whoever ends it.
        let agent = if head.agent_id.is_empty() { None } else { Some(AgentId::new(head.agent_id.as_str())?) };
        let settings = &self.settings.load().session;
        Ok(Some(Archiving {
            owner: Owner { agent, ..call.owner.clone() },
            keep_turns: settings.archive_turns,
            summary_tokens: settings.summary_tokens,
            head,
        }))
    }

    /// Closes the topic that ended last, unless it is closed already; answers up to which turn episodes are closed then, and up
    /// to which turn all is archived.
    async fn archive_topic(&self, call: &Call, archiving: &Archiving) -> Result<(u32, u32), Fault> {
        let there = self.keep(call, &archiving.owner, archiving.part(call, Vec::new(), Vec::new())).await?;
        let ended = archiving.head.topic_end_seq;
        if ended <= there.closed_seq {
            return Ok((there.closed_seq, there.through_seq));
        }
        // What an EndSession that failed had archived of the topic after it stays where it is.
        let last = ended.max(there.through_seq);
        let kept = self.archive_turns(call, archiving, there.closed_seq, there.through_seq, Some(last)).await?;
        Ok((kept.closed_seq, kept.through_seq))
    }

    /// Archives turns after `closed`, of which those up to `through` are there already: up to `last`, which closes their episode,
    /// or all of them.
    async fn archive_turns(
        &self,
        call: &Call,
        archiving: &Archiving,
        closed: u32,
        through: u32,
        last: Option<u32>,
    ) -> Result<internal::ArchiveSessionResponse, Fault> {
        let mut layer = self.layers.session.clone();
        let until = last.unwrap_or(u32::MAX);
        let mut through = through;
        let mut said = Said::of(&archiving.head, closed, until);
        let mut page_token = String::new();
        loop {
            let list = session::ListTurnsRequest {
                user_id: call.owner.user.as_str().to_owned(),
                agent_id: call.owner.agent_id().to_owned(),
                session_id: archiving.head.session_id.clone(),
                page_size: PAGE,
                page_token,
                from_seq: closed + 1,
            };
            let page = answer(layer.list_turns(signed(list, reading(&call.principal, &call.owner))).await)?;
            let (turns, rest): (Vec<_>, Vec<_>) = page.turns.into_iter().partition(|turn| turn.seq <= until);
            said.read(&turns)?;
            let fresh: Vec<session::Turn> = turns.into_iter().filter(|turn| turn.seq > through).collect();
            if !fresh.is_empty() {
                through = self.keep(call, &archiving.owner, archiving.part(call, fresh, Vec::new())).await?.through_seq;
            }
            page_token = page.next_page_token;
            if page_token.is_empty() || !rest.is_empty() {
                break;
            }
        }
        let sentences = said.sentences(archiving.summary_tokens);
        let whole = internal::ArchiveSessionRequest {
            complete: true,
            closes_seq: last.unwrap_or_default(),
            ..archiving.part(call, Vec::new(), sentences)
        };
        self.keep(call, &archiving.owner, whole).await
    }

    /// Keeps the goal of a task that is about to end as an episode of its own (rule W7): what was wanted is found in the archive,
    /// by searching turns and in the list of episodes, never in recall. None where there is no board, or goals are not kept.
    ///
    /// # Errors
    /// Why it was not kept; the task is untouched.
    pub(crate) async fn archive_goal(&self, call: &Call, task_id: &str) -> Result<Option<longterm::Episode>, Fault> {
        if !self.settings.load().working.archive_goals {
            return Ok(None);
        }
        let (user_id, agent) = (call.owner.user.as_str().to_owned(), call.owner.agent.as_ref());
        let agent_id = agent.map(|id| id.as_str().to_owned()).unwrap_or_default();
        let get = working::GetTaskRequest { user_id: user_id.clone(), agent_id: agent_id.clone(), task_id: task_id.to_owned() };
        let found = self.layers.working.clone().get_task(placed(get, reading(&call.principal, &call.owner))).await;
        // Whatever is wrong with the task, its layer says so to the call itself.
        let Some(task) = answer(found).ok().and_then(|found| found.task) else { return Ok(None) };
        let (Some(goal), Some(begun)) = (task.goal, task.create_time) else { return Ok(None) };
        self.mode_of(call, "/strata.internal.v1.TargetService/ArchiveSession")?;
        let begun_micros = convert_common::time("create_time", &begun)?.micros();
        let part = |turns, complete| internal::ArchiveSessionRequest {
            user_id: user_id.clone(),
            agent_id: agent_id.clone(),
            session_id: goal_session(task_id),
            incarnation: u64::try_from(begun_micros).unwrap_or(1).max(1),
            turns,
            summary_only: false,
            complete,
            sentences: Vec::new(),
            closes_seq: 0,
        };
        let text = format!("{}\n{}", goal.sentence, goal.acceptance);
        let turn = session::Turn {
            seq: 1,
            role: session::Role::Assistant.into(),
            tokens: tokens::count(&text),
            text,
            time: Some(begun),
            ..session::Turn::default()
        };
        let work = async {
            self.keep(call, &call.owner, part(vec![turn], false)).await?;
            Ok(self.keep(call, &call.owner, part(Vec::new(), true)).await?.episode)
        };
        // A task ends whether or not long-term memory answers (rule D2).
        tokio::time::timeout(ARCHIVE_LOOK, work).await.unwrap_or_else(|_| Err(Fault::unavailable("long-term memory")))
    }

    async fn keep(
        &self,
        call: &Call,
        owner: &Owner,
        part: internal::ArchiveSessionRequest,
    ) -> Result<internal::ArchiveSessionResponse, Fault> {
        let identity = reading(&call.principal, owner).writing(level_of(Layer::Longterm, owner), self.fresh_epoch());
        answer(self.layers.target.clone().archive_session(signed(part, identity)).await)
    }

    /// The newest episode of a session that has ended, for an EndSession that comes again.
    pub(crate) async fn episode_of(&self, call: &Call, session_id: &str) -> Option<longterm::Episode> {
        let request = longterm::ListEpisodesRequest {
            user_id: call.owner.user.as_str().to_owned(),
            agent_id: call.owner.agent_id().to_owned(),
            session_id: session_id.to_owned(),
            page_size: 1,
            ..Default::default()
        };
        self.mode_of(call, "/strata.longterm.v1.LongTermMemoryService/ListEpisodes").ok()?;
        let mut layer = self.layers.longterm.clone();
        let asked = layer.list_episodes(signed(request, reading(&call.principal, &call.owner)));
        answer(tokio::time::timeout(SIDE_LOOK, asked).await.ok()?).ok()?.episodes.pop()
    }

    /// Archived turns for a search over live ones; none when long-term memory does not answer or does not recall.
    pub(crate) async fn search_archive(
        &self,
        call: &Call,
        body: &session::SearchTurnsRequest,
    ) -> Option<internal::SearchArchivedTurnsResponse> {
        match self.mode_of(call, "/strata.internal.v1.TargetService/SearchArchivedTurns") {
            Ok(Passage::Serve) => {}
            Ok(Passage::Empty | Passage::Defer | Passage::LogOnly) | Err(_) => return None,
        }
        let request = internal::SearchArchivedTurnsRequest {
            user_id: body.user_id.clone(),
            agent_id: body.agent_id.clone(),
            session_id: body.session_id.clone(),
            query: body.query.clone(),
            k: body.k,
        };
        let mut layer = self.layers.target.clone();
        let asked = layer.search_archived_turns(signed(request, reading(&call.principal, &call.owner)));
        let found = answer(tokio::time::timeout(ARCHIVE_LOOK, asked).await.ok()?);
        found.inspect_err(|fault| tracing::debug!(reason = fault.reason.name(), "the archive could not be searched")).ok()
    }

    /// Live and archived hits in one order (rule R14): each score as it were had both lists been one. A turn that is still
    /// live and already archived is shown live.
    pub(crate) fn merge(
        &self,
        mut live: session::SearchTurnsResponse,
        archived: Option<internal::SearchArchivedTurnsResponse>,
        k: usize,
    ) -> session::SearchTurnsResponse {
        let Some(archived) = archived else {
            live.degraded = true;
            return live;
        };
        live.capped |= archived.capped;
        live.degraded |= archived.degraded && archived.episodes > 0;
        let settings = self.settings.load();
        let recall = settings.session.turn_recall(&settings.recall);
        let of = |hits: &[session::TurnHit]| hits.first().map(|hit| convert::explained(&hit.explain).1);
        if let (Some(left), Some(right)) = (of(&live.hits), of(&archived.hits)) {
            let joint = left.joined(right);
            let there: HashSet<TurnPlace> = live.hits.iter().map(place).collect();
            live.hits.extend(archived.hits.into_iter().filter(|hit| !there.contains(&place(hit))));
            for hit in &mut live.hits {
                let (raw, own) = convert::explained(&hit.explain);
                hit.score = on_joint_scale(&recall, settings.session.search_fusion, hit.score, raw, own, joint);
            }
        } else {
            live.hits.extend(archived.hits);
        }
        // Of equal scores the live turn comes first, then the newer one.
        live.hits.sort_by(|a, b| {
            let newer =
                |hit: &session::TurnHit| hit.turn.as_ref().and_then(|turn| turn.time).map(|time| (time.seconds, time.nanos));
            b.score.total_cmp(&a.score).then(a.archived.cmp(&b.archived)).then_with(|| newer(b).cmp(&newer(a)))
        });
        live.hits.truncate(k);
        live
    }
}

/// What makes two hits one turn: a session's id may be used again, so its time too.
type TurnPlace = (String, u32, Option<(i64, i32)>);

fn place(hit: &session::TurnHit) -> TurnPlace {
    let Some(turn) = &hit.turn else { return (String::new(), 0, None) };
    (turn.session_id.clone(), turn.seq, turn.time.map(|time| (time.seconds, time.nanos)))
}

/// The finding of a session that ends without an episode.
pub(crate) fn not_archived(fault: &Fault) -> Finding {
    Finding {
        rule: "S14".to_owned(),
        outcome: "NOT_ARCHIVED".to_owned(),
        because: format!("long-term memory did not take the session: {}", fault.reason.name()),
    }
}

/// The finding of turns that came while the session was being archived.
pub(crate) fn late_turns(turns: u32) -> Finding {
    Finding {
        rule: "S14".to_owned(),
        outcome: "NOT_ARCHIVED".to_owned(),
        because: format!("the last {turns} turns came while the session was being archived"),
    }
}

impl Said {
    /// The session's own summaries of the turns after `closed`, up to `until`: the rules engine's last state, or what a client's
    /// model made of it. A range may reach over the border of two topics; its sentences stand on one side.
    fn of(head: &session::GetSessionResponse, closed: u32, until: u32) -> Self {
        let mut said = Self::default();
        for summary in head.summaries.iter().filter(|summary| summary.to_seq > closed && summary.from_seq <= until) {
            said.covered = said.covered.max(summary.to_seq.min(until));
            let inside = |sentence: &&session::SummarySentence| sentence.seqs.iter().all(|seq| *seq > closed && *seq <= until);
            for sentence in summary.sentences.iter().filter(inside) {
                said.named.extend(sentence.seqs.iter().map(|seq| (*seq, (false, String::new()))));
                said.sentences.push(Sentence { text: sentence.text.clone(), seqs: sentence.seqs.clone() });
            }
        }
        said
    }

    /// Notes what the summary needs of a page of turns.
    fn read(&mut self, page: &[session::Turn]) -> Result<(), Fault> {
        for (i, turn) in page.iter().enumerate() {
            if let Some(named) = self.named.get_mut(&turn.seq) {
                *named = (turn.role() == session::Role::User, turn.text.clone());
            }
            if turn.seq > self.covered {
                self.tail.push(convert::stored_turn(i, turn.clone())?);
            }
        }
        Ok(())
    }

    /// The sentences with the words they are held against. What no summary covers is summarised by the rules S2 to S5, as a
    /// compression would.
    fn sentences(mut self, tokens_of_summary: u32) -> Vec<internal::ArchivedSentence> {
        let cues: Vec<TurnCues> = self.tail.iter().map(|turn| turn_cues(&turn.text, turn.role)).collect();
        let views: Vec<View<'_>> = self.tail.iter().zip(&cues).map(|(turn, cues)| View { turn, cues }).collect();
        let verdicts: BTreeMap<u32, Verdict> = judge(&views).into_iter().map(|verdict| (verdict.seq, verdict)).collect();
        let bounds = SummaryBounds { tokens: tokens_of_summary, tool_tokens: 0, shape: infer_shape(&views).0, level: 0 };
        // A turn that is shown verbatim in a window is part of what the session was about.
        let told: BTreeMap<u32, Verdict> = verdicts
            .into_iter()
            .map(|(seq, mut verdict)| {
                if verdict.outcome == strata_core::policy::session::Outcome::Verbatim {
                    verdict.outcome = strata_core::policy::session::Outcome::Anchored;
                }
                (seq, verdict)
            })
            .collect();
        let tail = summarise(&views, &told, bounds, &tokens::count, &tokens::cut);
        for sentence in tail.into_iter().flat_map(|summary| summary.sentences) {
            self.sentences.push(Sentence { text: sentence.text, seqs: sentence.seqs });
        }
        for turn in &self.tail {
            self.named.insert(turn.seq, (turn.role == Role::User, turn.text.clone()));
        }
        let mut seen = BTreeSet::new();
        // The newest are the present state.
        let mut out: Vec<internal::ArchivedSentence> = self
            .sentences
            .iter()
            .rev()
            .filter(|sentence| sentence.text.chars().count() <= limits::CONTENT_CHARS && seen.insert(sentence.text.clone()))
            .take(limits::SUMMARY_SENTENCES)
            .map(|sentence| self.held_against(sentence))
            .collect();
        out.reverse();
        out
    }

    fn held_against(&self, sentence: &Sentence) -> internal::ArchivedSentence {
        let turns: Vec<&(bool, String)> = sentence.seqs.iter().filter_map(|seq| self.named.get(seq)).collect();
        let user = !turns.is_empty() && turns.len() == sentence.seqs.len() && turns.iter().all(|turn| turn.0);
        // A sentence that was copied stands for itself; what else its turns say is not its own.
        let copied = turns.iter().any(|turn| turn.1.contains(&sentence.text));
        let quote = if copied {
            sentence.text.clone()
        } else {
            let all = turns.iter().map(|turn| turn.1.as_str()).collect::<Vec<_>>().join("\n");
            tokens::cut_chars(&all, limits::EPISODE_QUOTE_CHARS).to_owned()
        };
        let quote = if quote.trim().is_empty() { sentence.text.clone() } else { quote };
        internal::ArchivedSentence { text: sentence.text.clone(), seqs: sentence.seqs.clone(), quote, user }
    }
}
