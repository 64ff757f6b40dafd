//! The words of planned summaries by a model of the deployment (rule F5). Which summaries are made, from which records and under
//! which ids is planned by rule; the model only chooses among the clauses of their members, and only for a run that writes.
//! What it says is judged by `gate::worded`. Refused, late, unreadable or not at all: the words of the rules stand.
//!
//! A prompt holds the members of one summary, which are one owner's. Bounds hold for a whole run, whatever the model does.

use super::Maintenance;
use super::compose::joined;
use super::plan::{Plan, Summary, material};
use crate::metadata::insert::Material;
use crate::metadata::row::{self, StoredRecord};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use std::sync::Arc;
use std::time::Duration;
use strata_api::convert::session as convert;
use strata_api::session::v1 as wire;
use strata_core::id::is_hidden;
use strata_core::policy::forgetting::{AutoRule, Step};
use strata_core::policy::gate::{self, Gated, Member, SummarySubmission};
use strata_core::policy::session::SummarySentence;
use strata_core::{Fault, MemoryId, Reason};
use strata_runtime::metrics::{Instruments, Label};
use strata_runtime::ports::{Stopwatch, pause};
use strata_text::summarise::{Item, Matter, Proposed, Refused, Summariser, ToSummarise};
use strata_text::turns::LANGUAGE;
use strata_text::{features, tokens};

/// Summaries for which the model is asked at once.
const AT_ONCE: usize = 4;
/// Further tries for a summary that was refused, with what is wrong with it.
const REPAIRS: u32 = 1;
/// Summaries in a row without an answer that can be read, after which a run asks no more.
const FAILURES: u32 = 3;
/// Summaries of a run for which the model is asked.
const SUMMARIES: u32 = 1_000;
/// Time of a run that is spent on waiting for the model.
const TIME: Duration = Duration::from_mins(10);

/// What is left of a run's bounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    summaries: u32,
    /// Failures in a row.
    failures: u32,
    time: Duration,
}

impl Default for Budget {
    fn default() -> Self {
        Self { summaries: SUMMARIES, failures: 0, time: TIME }
    }
}

impl Budget {
    const fn is_spent(&self) -> bool {
        self.summaries == 0 || self.failures >= FAILURES || self.time.is_zero()
    }
}

/// Why the words of the rules stand.
#[derive(Debug)]
enum Stands {
    /// What the model said is not true to the records; with what is wrong.
    Refused(Fault),
    /// It gave no answer that can be read.
    Failed(String),
    /// The records are not there any more.
    Overtaken,
    /// As the database says.
    Unread(Fault),
}

/// Counts one summary that the model was asked for.
pub(super) fn count(outcome: &'static str) {
    Instruments::global().model_summaries.add(1, &[Label::new("memory", "longterm"), Label::new("outcome", outcome)]);
}

impl Maintenance {
    /// Asks the model for the words of the summaries of a plan, until `gone`. Never fails: what it does not better stays.
    pub(super) async fn reword(&self, plan: &mut Plan, budget: &mut Budget, gone: impl Future<Output = ()>) {
        let Some(model) = &self.summariser else { return };
        let made = |step: &Step| match step {
            Step::Make { rule: AutoRule::Consolidate, memory_id, observed: false, .. } => Some(*memory_id),
            Step::Make { .. } | Step::Do { .. } | Step::Keep { .. } => None,
        };
        let wanted: Vec<MemoryId> = plan.steps.iter().filter_map(made).collect();
        if wanted.is_empty() || budget.is_spent() {
            return;
        }
        let watch = Stopwatch::start();
        let found = {
            let ask = |id: MemoryId| {
                let summary = plan.summaries.get(&id);
                async move {
                    match summary {
                        Some(summary) => (id, self.asked(model.as_ref(), summary).await),
                        None => (id, Err(Stands::Overtaken)),
                    }
                }
            };
            let (mut waiting, mut asking) = (wanted.into_iter(), FuturesUnordered::new());
            let mut found = Vec::new();
            let time = budget.time;
            tokio::pin!(gone);
            loop {
                while asking.len() < AT_ONCE
                    && !budget.is_spent()
                    && let Some(id) = waiting.next()
                {
                    budget.summaries -= 1;
                    asking.push(ask(id));
                }
                let next = tokio::select! {
                    next = asking.next() => next,
                    () = pause(time.saturating_sub(watch.elapsed())) => None,
                    () = self.tasks.token().cancelled() => None,
                    () = &mut gone => None,
                };
                let Some((id, outcome)) = next else { break };
                match outcome {
                    Ok(words) => {
                        budget.failures = 0;
                        found.push((id, words));
                    }
                    Err(stands) => budget.failures = stands.told(budget.failures),
                }
                if budget.failures >= FAILURES {
                    tracing::warn!("the summariser does not answer; the rules word the summaries of the rest of this run");
                    break;
                }
            }
            // Whoever is still asked is waited for no longer.
            (0..asking.len()).for_each(|_| count("failed"));
            found
        };
        budget.time = budget.time.saturating_sub(watch.elapsed());
        for (id, words) in found {
            if let Some(summary) = plan.summaries.get_mut(&id) {
                summary.by_model = Some(words);
            }
        }
    }

    /// The model's words for one summary, judged; asked once more with what was wrong.
    async fn asked(&self, model: &dyn Summariser, summary: &Summary) -> Result<(Gated, Material), Stands> {
        let records = Arc::new(self.members(summary).await?);
        let numbered = (1..).zip(records.iter());
        let items: Vec<Item<'_>> =
            numbered.map(|(number, found)| Item { number, role: None, speaker: "", text: &found.record.content }).collect();
        let most = tokens::count(&summary.gated.statement().content);
        let mut last: Option<(Vec<Proposed>, String)> = None;
        let mut flaws = None;
        for _ in 0..=REPAIRS {
            let refused = last.as_ref().map(|(sentences, because)| Refused { sentences, because });
            let asked = ToSummarise { matter: Matter::Records, items: &items, tokens: most, refused };
            let proposed = model.summarise(&asked).await.map_err(|error| Stands::Failed(error.to_string()))?;
            let (id, of, said) = (summary.material.memory_id, Arc::clone(&records), proposed.clone());
            let judging = self.tasks.blocking("maintenance words", move || judged(id, &of, said));
            match judging.await {
                Ok(Ok(words)) => return Ok(words),
                Ok(Err(fault)) => {
                    last = Some((proposed, Refused::flaws(&fault)));
                    flaws = Some(fault);
                }
                Err(_) => return Err(Stands::Failed("the judgement ended unexpectedly".to_owned())),
            }
        }
        Err(flaws.map_or(Stands::Overtaken, Stands::Refused))
    }

    /// The members of a summary, in their order, as they are now; all of them are its owner's.
    async fn members(&self, summary: &Summary) -> Result<Vec<StoredRecord>, Stands> {
        let (ids, owner): (Vec<MemoryId>, _) = (summary.members.iter().map(|(id, _)| *id).collect(), summary.stored);
        let wanted = ids.len();
        let read = move |db: &rusqlite::Connection| {
            let found = ids.iter().map(|id| row::by_id(db, *id));
            let there = found.collect::<Result<Vec<_>, Fault>>()?.into_iter().flatten();
            Ok::<_, Fault>(there.filter(|found| found.owner == owner).collect::<Vec<_>>())
        };
        let found = self.state.database.read(read).await.map_err(Stands::Unread)?;
        if found.len() == wanted { Ok(found) } else { Err(Stands::Overtaken) }
    }
}

impl Stands {
    /// Counts it, says it in the log without a word of the records, and answers the failures in a row after it.
    fn told(&self, before: u32) -> u32 {
        match self {
            Self::Refused(fault) => {
                count("refused");
                let rules: Vec<&str> = fault.preconditions.iter().map(|flaw| flaw.rule.as_str()).collect();
                tracing::info!(?rules, "a summary of the model was refused; that of the rules stands");
                0
            }
            Self::Failed(why) => {
                count("failed");
                tracing::debug!(why, "the summariser gave no summary; that of the rules stands");
                before.saturating_add(1)
            }
            Self::Overtaken => {
                count("overtaken");
                before
            }
            Self::Unread(fault) => {
                tracing::debug!(reason = fault.reason.name(), "the members of a summary could not be read");
                before
            }
        }
    }
}

/// What the model said, as the words of the summary with this id, if it is true to the records.
///
/// # Errors
/// `SUMMARY_REFUSED` or `INVALID_FIELD` with everything that is wrong, for the model.
fn judged(id: MemoryId, records: &[StoredRecord], proposed: Vec<Proposed>) -> Result<(Gated, Material), Fault> {
    let sent = proposed.into_iter().map(|p| wire::SummarySentence { text: p.text, seqs: p.sources }).collect();
    let sentences: Vec<SummarySentence> = convert::sentences(sent, tokens::count)?;
    if sentences.iter().any(|sentence| hides(sentence, records)) {
        let fault = Fault::new(Reason::SummaryRefused, "the summary hides characters");
        return Err(fault.rule("G8", "sentences", "holds invisible characters that its records do not hold"));
    }
    let text = joined(sentences.iter().map(|sentence| sentence.text.as_str()));
    let read: Vec<_> = records.iter().map(|found| features(&found.record.content)).collect();
    let members: Vec<Member<'_>> =
        records.iter().zip(&read).map(|(found, features)| Member { record: &found.record, features }).collect();
    let topic = records.first().and_then(|found| found.record.topic.as_deref());
    let given = SummarySubmission { text: &text, features: &features(&text), topic, members: &members };
    let gated = gate::worded(given, &sentences, LANGUAGE)?;
    Ok((gated, material(id, &text)))
}

/// Whether a sentence holds a character that a reader does not see and that no record it names holds.
fn hides(sentence: &SummarySentence, records: &[StoredRecord]) -> bool {
    let named = || sentence.seqs.iter().filter_map(|number| records.get((*number as usize).checked_sub(1)?));
    let known = |c: char| named().any(|found| found.record.content.contains(c));
    sentence.text.chars().any(|c| is_hidden(c) && !known(c))
}
