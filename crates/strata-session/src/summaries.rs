//! The model of the deployment that words summaries: what it is asked for turns, which sessions wait for it, and what it is asked
//! now. When it is asked, and what becomes of its words, is in [`crate::summariser`].

use crate::store::SessionKey;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use strata_api::convert::session as convert;
use strata_api::session::v1 as pb;
use strata_core::policy::session::{SessionSettings, SummarySentence, Turn};
use strata_core::{Fault, Reason};
use strata_text::summarise::{Item, Matter, Proposed, Refused, SummariseError, Summariser, ToSummarise};
use strata_text::tokens;
use tokio::sync::mpsc;

/// Sessions that wait for the model; beyond it their ranges stay as they are until the next compression.
const QUEUE: usize = 1_024;
/// Ranges of which it is known that what the model said of them was refused; for another one it is asked again.
const REFUSED: u64 = 10_000;
/// Sessions with callers who wait for the model, of which it is known who comes first.
const CALLERS: u64 = 10_000;

/// Session, incarnation, and hash of the turns of a range.
pub(crate) type Place = (SessionKey, u64, String);

/// The model and who waits for it.
#[derive(Clone, Debug)]
pub(crate) struct Summaries {
    summariser: Arc<dyn Summariser>,
    wanted: mpsc::Sender<SessionKey>,
    refused: moka::sync::Cache<Place, ()>,
    /// Ranges that the model is asked for now: one at a time of each session that is worked on, and of each that a caller waits for.
    asking: Arc<Mutex<HashSet<Place>>>,
    /// The callers of a session wait for one another, not for the model at the same time.
    callers: moka::sync::Cache<SessionKey, Arc<tokio::sync::Mutex<()>>>,
}

/// The model is asked for a range by nobody else in this process, until this is dropped.
pub(crate) struct Asking<'a> {
    summaries: &'a Summaries,
    place: Place,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.summaries.asking.lock().remove(&self.place);
    }
}

impl Summaries {
    /// With the queue of sessions to look at.
    pub(crate) fn new(summariser: Arc<dyn Summariser>) -> (Self, mpsc::Receiver<SessionKey>) {
        let (wanted, queue) = mpsc::channel(QUEUE);
        let (refused, callers) = (moka::sync::Cache::new(REFUSED), moka::sync::Cache::new(CALLERS));
        (Self { summariser, wanted, refused, asking: Arc::default(), callers }, queue)
    }

    /// None while somebody else asks for it.
    pub(crate) fn claim(&self, place: Place) -> Option<Asking<'_>> {
        let free = self.asking.lock().insert(place.clone());
        free.then(|| Asking { summaries: self, place })
    }

    /// Whether what the model said of a range was refused.
    pub(crate) fn was_refused(&self, place: &Place) -> bool {
        self.refused.contains_key(place)
    }

    /// What the model said of a range was refused: it is not asked for it again.
    pub(crate) fn note_refused(&self, place: Place) {
        self.refused.insert(place, ());
    }

    /// Held by the one caller of a session for whom the model is asked now.
    pub(crate) fn turn_of_callers(&self, key: &SessionKey) -> Arc<tokio::sync::Mutex<()>> {
        self.callers.get_with(key.clone(), Arc::default)
    }

    /// Has the model look at what the rules summarised of a session. Never waits.
    pub(crate) fn want(&self, key: &SessionKey) {
        if self.wanted.try_send(key.clone()).is_err() {
            tracing::debug!("too many sessions wait for the summariser; the rules' summaries stand");
        }
    }

    /// The model's sentences for turns, in the form that a client's have. None of them is judged.
    pub(crate) async fn ask(
        &self,
        settings: &SessionSettings,
        turns: &[&Turn],
        last: Option<&(Vec<Proposed>, Fault)>,
    ) -> Result<(Vec<Proposed>, Vec<SummarySentence>), Fault> {
        let whole: u32 = turns.iter().map(|turn| turn.tokens).fold(0, u32::saturating_add);
        let because = last.map(|(_, fault)| Refused::flaws(fault)).unwrap_or_default();
        let refused = last.map(|(sentences, _)| Refused { sentences, because: &because });
        let items: Vec<Item<'_>> = turns.iter().map(|turn| Item::from(*turn)).collect();
        let asked =
            ToSummarise { matter: Matter::Turns, items: &items, tokens: settings.summary_tokens.min(whole.max(1)), refused };
        let proposed = self.summariser.summarise(&asked).await.map_err(|error| match error {
            SummariseError::Unavailable(_) => Fault::unavailable("the summariser").with("cause", error.to_string()),
            SummariseError::Refused(_) | _ => refusal(&error.to_string()),
        })?;
        let wire = proposed.iter().map(|p| pb::SummarySentence { text: p.text.clone(), seqs: p.sources.clone() }).collect();
        let sentences = convert::sentences(wire, tokens::count).map_err(|fault| refusal(&fault.message))?;
        Ok((proposed, sentences))
    }
}

/// The model said nothing that can be used.
pub(crate) fn refusal(what: &str) -> Fault {
    Fault::new(Reason::SummaryRefused, format!("the model made no summary that can be used: {what}"))
}
