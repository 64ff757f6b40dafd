//! Summaries by a model of the deployment (rules S2 to S5). Ranges are compressed by rule at once; the model is asked afterwards,
//! and what it says takes the place of the rules' sentences when it is true to the turns by the judgement that a client's summary
//! passes. Refused, late, unreadable or not at all: the rules' summary stands. No session waits for a model, but a
//! CompressSession that asks for one.

use crate::compress::{Answer, Claim, Edit, Edited, Request};
use crate::shared::Shared;
use crate::store::{SessionKey, State};
use crate::summaries::{Summaries, refusal};
use std::sync::Arc;
use strata_core::policy::session::{Maker, Outcome, Role, SeqRange, SessionSettings, Summary, Turn, Verdict};
use strata_core::{Fault, Reason};
use strata_runtime::metrics::{Instruments, Label};
use strata_text::summarise::Proposed;
use tokio::sync::mpsc;

/// Sessions for which the model is asked at once.
const AT_ONCE: usize = 4;
/// Ranges of one session that the model is asked for in a row, the newest first.
const RANGES: usize = 4;
/// Further tries for a range, after a summary that was refused, with what is wrong with it.
const REPAIRS: u32 = 1;

/// The turns that a summary is about: what the table of rule S2 drops is in none (rules S2b, S2f), nor are instructions.
fn told<'t>(turns: &'t [Turn], verdicts: &[Verdict]) -> Vec<&'t Turn> {
    let dropped = |turn: &Turn| verdicts.iter().any(|v| v.seq == turn.seq && v.outcome == Outcome::Dropped);
    turns.iter().filter(|turn| turn.role != Role::System && !dropped(turn)).collect()
}

/// A range that the model is to summarise.
struct Asked<'a> {
    settings: &'a SessionSettings,
    key: &'a SessionKey,
    /// As the rules summarise it.
    range: &'a Summary,
    turns: Vec<&'a Turn>,
    request: Option<Request<'a>>,
    /// Of the signed header; none for what the service does by itself.
    erase_epoch: Option<u64>,
}

impl Asked<'_> {
    /// Asked, judged, stored; asked once more with what was wrong.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE` when the model does not answer, `SUMMARY_REFUSED` naming what was lost or strengthened, and as
    /// [`crate::compress::Compressor::run`]. Nothing was written then.
    async fn summarise(&self, shared: &Shared, summaries: &Summaries) -> Result<Answer, Fault> {
        let range = SeqRange { from: self.range.from, to: self.range.to };
        let mut last: Option<(Vec<Proposed>, Fault)> = None;
        for _ in 0..=REPAIRS {
            let (proposed, sentences) = match summaries.ask(self.settings, &self.turns, last.as_ref()).await {
                Ok(found) => found,
                // What was refused first says more than that there was no second answer.
                Err(fault) => return Err(last.map_or(fault, |(_, first)| first)),
            };
            let claim = Claim { range, sentences, source_hash: self.range.source_hash.clone(), made_by: Maker::Model };
            let edit = Edit::Summary(claim);
            match shared.compressor.run(self.settings, self.key, &edit, self.request, self.erase_epoch).await {
                Err(fault) if fault.reason == Reason::SummaryRefused => last = Some((proposed, fault)),
                answer => return answer,
            }
        }
        Err(last.map_or_else(|| refusal("there was no answer"), |(_, fault)| fault))
    }
}

/// Works through the queue until the role stops.
pub(crate) async fn follow(shared: Arc<Shared>, summaries: Summaries, queue: mpsc::Receiver<SessionKey>) {
    use futures::StreamExt;
    let stop = shared.tasks.token().clone();
    let sessions = futures::stream::unfold(queue, |mut queue| async { queue.recv().await.map(|key| (key, queue)) });
    let work = sessions.for_each_concurrent(AT_ONCE, |key| {
        let (shared, summaries) = (&shared, &summaries);
        async move {
            if let Err(fault) = one(shared, summaries, &key).await {
                tracing::debug!(reason = fault.reason.name(), "the summaries of a session stay as the rules made them");
            }
        }
    });
    tokio::select! {
        () = stop.cancelled() => {}
        () = work => {}
    }
}

async fn one(shared: &Shared, summaries: &Summaries, key: &SessionKey) -> Result<(), Fault> {
    let state = || async { shared.store.state(key, shared.ports.clock.now()).await };
    let Some(State { head, summaries: ranges, .. }) = state().await? else { return Ok(()) };
    let settings = shared.settings.load().session.clone();
    let place = |range: &Summary| (key.clone(), head.incarnation, range.source_hash.clone());
    // Where nothing was worth keeping by rule, there is nothing to say better (rule S8).
    let open =
        |range: &&Summary| range.made_by == Maker::Rules && !range.sentences.is_empty() && !summaries.was_refused(&place(range));
    for range in ranges.iter().rev().filter(open).take(RANGES) {
        let Some(_asking) = summaries.claim(place(range)) else { continue };
        // Whoever asked before may have bettered it since the look at the session.
        let still = state().await?.is_some_and(|now| now.head.incarnation == head.incarnation && now.summaries.contains(range));
        if !still || !open(&range) {
            continue;
        }
        let (turns, verdicts) = shared.compressor.read(key, head.incarnation, range.from, range.to).await?;
        let turns = told(&turns, &verdicts);
        let asked = Asked { settings: &settings, key, range, turns, request: None, erase_epoch: None };
        let made = asked.summarise(shared, summaries).await;
        let outcome = match &made {
            Ok(_) => "stored",
            Err(fault) if fault.reason == Reason::SummaryRefused => "refused",
            Err(fault) if overtaken(fault) => "overtaken",
            Err(_) => "failed",
        };
        Instruments::global().model_summaries.add(1, &[Label::new("memory", "session"), Label::new("outcome", outcome)]);
        match made {
            Err(fault) if fault.reason == Reason::SummaryRefused => {
                // Which rules; never the words.
                let rules: Vec<&str> = fault.preconditions.iter().map(|flaw| flaw.rule.as_str()).collect();
                tracing::info!(?rules, "a summary of the model was refused; that of the rules stands");
                summaries.note_refused(place(range));
            }
            // A range that the rules remake later, or that got no answer, is asked for again.
            made => {
                made?;
            }
        }
    }
    Ok(())
}

/// Compresses what is due by the model, or not at all (case C108).
///
/// # Errors
/// As [`Asked::summarise`]; `INVALID_FIELD` where no model is configured.
pub(crate) async fn compress(
    shared: &Shared,
    settings: &SessionSettings,
    key: &SessionKey,
    keep: u32,
    request: Option<Request<'_>>,
    erase_epoch: u64,
) -> Result<Answer, Fault> {
    let summaries = shared
        .summaries
        .as_ref()
        .ok_or_else(|| Fault::field("require_model", "no model is configured: set summariser.url, or leave it to the rules"))?;
    // A repetition of a call whose answer was late finds that answer, another call what is left to compress.
    let turn = summaries.turn_of_callers(key);
    let _mine = turn.lock().await;
    if let Some(request) = &request
        && let Some(answer) = shared.store.committed(key, shared.ports.clock.now(), request.key).await?
    {
        return Ok(Answer::Replay(answer));
    }
    let (incarnation, Edited { summary, verdicts, .. }) = shared.compressor.draft(settings, key, keep).await?;
    let Some(range) = summary.filter(|summary| !summary.sentences.is_empty()) else {
        // Nothing is due, or nothing of it is worth keeping: no model is needed (rule S8).
        return shared.compressor.run(settings, key, &Edit::Compress { keep }, request, Some(erase_epoch)).await;
    };
    // What the rules summarise of it meanwhile is nobody's to ask for again.
    let _asking = summaries.claim((key.clone(), incarnation, range.source_hash.clone()));
    let turns = shared.compressor.read(key, incarnation, range.from, range.to).await?.0;
    let turns = told(&turns, &verdicts);
    let asked = Asked { settings, key, range: &range, turns, request, erase_epoch: Some(erase_epoch) };
    asked.summarise(shared, summaries).await.map_err(|fault| {
        if overtaken(&fault) {
            let why = "the session was compressed otherwise meanwhile; nothing was written";
            return Fault::new(Reason::Overloaded, why).retry_after(100);
        }
        fault
    })
}

/// Whether another compression, or an erasure, came first: the range is not there any more, or its turns are others.
fn overtaken(fault: &Fault) -> bool {
    matches!(fault.reason, Reason::VersionMismatch | Reason::InvalidField)
}
