//! Episodes (rules S7, S14): sessions and topics that end come in through the gate, their turns are searched, what they were about is listed.
//! Nothing here makes a record.
use crate::call::{Call, Pager, Service, asked_too_much, binding, parts};
use crate::metadata::insert::episodes::{self as insert, Archived};
use crate::metadata::{Visible, episodes, owner};
use crate::state::State;
use rusqlite::Connection;
use std::sync::Arc;
use std::time::Duration;
use strata_api::convert::{common, episodes as convert, session as turns};
use strata_api::internal::v1 as internal;
use strata_api::longterm::v1 as pb;
use strata_api::session::v1 as session;
use strata_core::episode::Episode;
use strata_core::policy::gate::{self, GatedEpisode, SentenceSubmission, TurnSubmission};
use strata_core::policy::recall::{Fused, RecallSettings, Scale};
use strata_core::policy::session::Turn;
use strata_core::policy::settings::PolicySettings;
use strata_core::{Fault, MemoryId, SessionId, Timestamp, limits};
use strata_text::embed::Purpose;
use strata_text::features;
use strata_text::pii::sensitive_spans;
use strata_text::turn_rank::{Asked, IndexedTurn, rank};
use tonic::Request;

/// Longest time that archived turns wait for their vectors; without them they are found by their words.
const VECTOR_PATIENCE: Duration = Duration::from_secs(5);
/// Texts in one call of the embedder.
const BATCH: usize = 32;

/// Part of an ending session as it is handed in.
struct Part {
    turns: Vec<Turn>,
    sentences: Vec<SentenceSubmission>,
}

fn judged(call: &Call, part: Part) -> GatedEpisode {
    let submission = |turn: Turn| TurnSubmission {
        text: sensitive_spans(&turn.text),
        speaker: sensitive_spans(&turn.speaker),
        external_id: sensitive_spans(&turn.external_id),
        turn,
    };
    gate::episode(&call.settings, part.sentences, part.turns.into_iter().map(submission).collect(), call.now)
}

fn sentence(at: usize, given: &internal::ArchivedSentence) -> Result<SentenceSubmission, Fault> {
    let sentence = convert::sentence(at, &given.text, &given.seqs)?;
    let quote = common::optional_text(&format!("sentences[{at}].quote"), &given.quote, limits::EPISODE_QUOTE_CHARS)?;
    Ok(SentenceSubmission {
        content_features: features(&sentence.text),
        quote_features: features(&quote),
        by_user: given.user,
        sentence,
        quote,
    })
}

/// Vectors of turns, where the service makes its own and they come in time.
async fn vectors(state: &State, turns: &[Turn]) -> Option<(String, Vec<Vec<f32>>)> {
    let embedder = state.embedder.as_ref().filter(|embedder| !embedder.is_caller())?;
    let texts: Vec<String> = turns.iter().map(Turn::searchable).collect();
    let work = async {
        let mut out = Vec::with_capacity(texts.len());
        for batch in texts.chunks(BATCH) {
            let refs: Vec<&str> = batch.iter().map(String::as_str).collect();
            out.extend(embedder.embed(&refs, Purpose::Document).await.ok()?);
        }
        Some(out)
    };
    let made = tokio::time::timeout(VECTOR_PATIENCE, work).await.ok().flatten()?;
    Some((embedder.identity().name.clone(), made))
}

/// [`internal::ArchiveSessionRequest`].
pub(crate) async fn archive(
    state: &Arc<State>,
    request: Request<internal::ArchiveSessionRequest>,
) -> Result<internal::ArchiveSessionResponse, Fault> {
    let r = request.get_ref();
    let call = Call::write(state, &request, &r.user_id, &r.agent_id)?;
    let session = turns::session_id(&r.session_id)?;
    let incarnation = r.incarnation;
    if incarnation == 0 {
        return Err(Fault::field("incarnation", "is counted from 1"));
    }
    if r.turns.len() > limits::ARCHIVE_TURNS {
        return Err(Fault::limit("turns", limits::ARCHIVE_TURNS, "turns"));
    }
    if r.sentences.len() > limits::SUMMARY_SENTENCES {
        return Err(Fault::limit("sentences", limits::SUMMARY_SENTENCES, "sentences"));
    }
    if r.complete && !r.turns.is_empty() {
        return Err(Fault::field("complete", "goes without turns"));
    }
    if r.closes_seq > 0 && !r.complete {
        return Err(Fault::field("closes_seq", "goes with complete"));
    }
    let given = r.turns.iter().cloned().enumerate();
    let mut given = given.map(|(i, turn)| turns::stored_turn(i, turn)).collect::<Result<Vec<Turn>, Fault>>()?;
    if given.windows(2).any(|pair| pair[1].seq != pair[0].seq + 1) {
        return Err(Fault::field("turns", "are not in order without gaps"));
    }
    let (named, agent) = (session.clone(), call.scope.owner().agent.clone());
    let known = move |db: &Connection, visible: &Visible| episodes::known(db, visible, agent.as_ref(), &named, incarnation);
    let known = state.read(&call.scope, known).await?.flatten();
    let after = known.as_ref().map_or(0, |episode| episode.through);
    if given.first().is_some_and(|turn| turn.seq > after + 1) {
        return Err(Fault::field("turns", format!("leave turns after number {after} out")));
    }
    given.retain(|turn| turn.seq > after);
    let range = given.first().zip(given.last()).map(|(first, last)| (last.seq, first.time, last.time));
    let sentences = r.sentences.iter().enumerate().map(|(at, s)| sentence(at, s)).collect::<Result<Vec<_>, Fault>>()?;
    let gated = judged(&call, Part { turns: given, sentences });
    let part = Archived {
        session,
        incarnation,
        after,
        turns: range,
        summary_only: r.summary_only,
        complete: r.complete,
        closes: (r.closes_seq > 0).then_some(r.closes_seq),
        new_id: MemoryId(state.ports.ids.next()),
        vectors: if r.summary_only { None } else { vectors(state, gated.turns()).await },
    };
    state
        .once(&call, None, move |db, context| {
            let stored = owner::ensure(db, context.scope)?;
            let w = context.writing(stored, gate::Door::Episode.name());
            let found = insert::episode(db, &w, &gated, &part)?;
            owner::next_revision(db, stored.user_id)?;
            let answer = internal::ArchiveSessionResponse {
                through_seq: found.as_ref().map_or(0, |episode| episode.through),
                closed_seq: found.as_ref().map_or(0, Episode::closed_at),
                episode: found.as_ref().map(|episode| convert::wire_episode(episode, context.now)),
            };
            Ok((answer, false))
        })
        .await
}

/// A search over archived turns.
struct Search {
    session: Option<SessionId>,
    text: String,
    k: u32,
    now: Timestamp,
    vector: Option<Vec<f32>>,
    model: Option<String>,
    min_similarity: f64,
    settings: Arc<PolicySettings>,
}

struct Hit {
    episode: Episode,
    turn: Turn,
    fused: Fused<(usize, u32)>,
    score: f64,
}

#[derive(Default)]
struct Found {
    hits: Vec<Hit>,
    scale: Scale,
    cut: bool,
    degraded: bool,
    episodes: usize,
}

fn search(db: &Connection, visible: &Visible, by: Search) -> Result<Found, Fault> {
    let (episodes, cut) = episodes::searchable(db, visible, by.session.as_ref(), by.now, limits::SEARCH_TURNS)?;
    let mut degraded = by.vector.is_none();
    let blank = Arc::new(IndexedTurn::default());
    let mut sessions: Vec<Vec<Arc<IndexedTurn>>> = Vec::with_capacity(episodes.len());
    for episode in &episodes {
        let mut turns = vec![Arc::clone(&blank); episode.turns() as usize];
        for (seq, turn) in episodes::analysed(db, visible, episode.episode_id, by.model.as_deref())? {
            degraded |= turn.wants_vector();
            if let Some(place) = seq.checked_sub(episode.from).and_then(|at| turns.get_mut(at as usize)) {
                *place = Arc::new(turn);
            }
        }
        sessions.push(turns);
    }
    let settings: RecallSettings = by.settings.session.turn_recall(&by.settings.recall);
    let asked = Asked::new(&by.text, by.vector);
    let ranked = rank(&sessions, &asked, &settings, by.settings.session.search_fusion, by.min_similarity, by.k);
    let mut found = Found { scale: ranked.scale, cut, degraded, episodes: episodes.len(), ..Found::default() };
    for (fused, score) in ranked.hits {
        let episode = &episodes[fused.id.0];
        // Places in an episode are counted from 1.
        let seq = episode.from - 1 + fused.id.1;
        if let Some(turn) = episodes::turn(db, visible, episode.episode_id, seq)? {
            found.hits.push(Hit { episode: episode.clone(), turn, fused, score });
        }
    }
    Ok(found)
}

/// [`internal::SearchArchivedTurnsRequest`].
pub(crate) async fn search_turns(
    state: &Arc<State>,
    request: Request<internal::SearchArchivedTurnsRequest>,
) -> Result<internal::SearchArchivedTurnsResponse, Fault> {
    let r = request.get_ref();
    let call = Call::read(state, &request, &r.user_id, &r.agent_id)?;
    let session = if r.session_id.is_empty() { None } else { Some(turns::session_id(&r.session_id)?) };
    let k = limits::page("k", r.k, limits::RECALL_K, limits::RECALL_K_MAX)?;
    let text = common::text("query", &r.query, limits::QUERY_CHARS)?;
    let embedder = state.embedder.as_ref().filter(|embedder| !embedder.is_caller());
    let vector = match embedder {
        Some(embedder) => embedder.embed(&[&text], Purpose::Query).await.ok().and_then(|mut made| made.pop()),
        None => None,
    };
    let by = Search {
        session,
        text,
        k: k.size,
        now: call.now,
        vector,
        model: embedder.map(|embedder| embedder.identity().name.clone()),
        min_similarity: embedder.map_or(0.0, |embedder| f64::from(embedder.identity().min_similarity)),
        settings: state.settings.load_full(),
    };
    let found = state.read(&call.scope, move |db, visible| search(db, visible, by)).await?.unwrap_or_default();
    let hit = |Hit { episode, turn, fused, score }: Hit| session::TurnHit {
        turn: Some(turns::wire_turn(&episode.session, turn, None)),
        score,
        explain: turns::explain(&fused, found.scale),
        archived: true,
        episode_id: episode.episode_id.to_string(),
    };
    Ok(internal::SearchArchivedTurnsResponse {
        hits: found.hits.into_iter().map(hit).collect(),
        capped: k.capped || found.cut,
        degraded: found.degraded,
        episodes: u32::try_from(found.episodes).unwrap_or(u32::MAX),
    })
}

impl Service {
    pub(crate) async fn list_episodes(
        &self,
        request: Request<pb::ListEpisodesRequest>,
    ) -> Result<pb::ListEpisodesResponse, Fault> {
        let (state, r) = (&self.state, request.get_ref());
        let call = Call::read(state, &request, &r.user_id, &r.agent_id)?;
        let asked = episodes::Asked {
            session: if r.session_id.is_empty() { None } else { Some(turns::session_id(&r.session_id)?) },
            from_time: common::optional_time("from_time", r.from_time.as_ref())?,
            to_time: common::optional_time("to_time", r.to_time.as_ref())?,
        };
        if asked.from_time.zip(asked.to_time).is_some_and(|(from, to)| from >= to) {
            return Err(Fault::field("to_time", "must be after from_time"));
        }
        let mut pager = Pager::new(r.page_size)?;
        let binding = binding(&call.scope, "ListEpisodes", &format!("{asked:?}"));
        let before =
            state.tokens.open(&parts(&binding), &r.page_token)?.map(|text| MemoryId::parse("page_token", &text)).transpose()?;
        let (tokens, now) = (state.tokens.clone(), call.now);
        let answer = state
            .read(&call.scope, move |db, visible| {
                let rows = episodes::list(db, visible, &asked, before, pager.rows())?;
                let (episodes, last) = pager.fill(rows, |episode| Ok(convert::wire_episode(episode, now)))?;
                let next_page_token =
                    last.map(|episode| tokens.mint(&parts(&binding), &episode.episode_id.to_string())).unwrap_or_default();
                Ok(pb::ListEpisodesResponse { episodes, next_page_token, capped: pager.page.capped })
            })
            .await?;
        Ok(answer.unwrap_or_else(|| pb::ListEpisodesResponse { capped: asked_too_much(r.page_size), ..Default::default() }))
    }
}
