//! Topics that have ended while their session goes on (rule S7): told here with every append, taken out by the worker that archives
//! them, and which of them are archived.

use crate::call::Call;
use strata_api::session::v1 as session;
use tokio::sync::mpsc;

/// Topics that wait to be archived; what does not fit is told again with the session's next append.
const TOPICS: usize = 1_024;
/// Sessions of which it is remembered which topic was archived last; of another one long-term memory is asked again.
const KNOWN_TOPICS: u64 = 10_000;

/// A topic that has ended.
#[derive(Debug)]
pub(crate) struct EndedTopic {
    pub(crate) call: Call,
    pub(crate) session_id: String,
    incarnation: u64,
    /// Its last turn.
    last: u32,
}

/// Session by user and id; the last turn of its topic that was archived last, by incarnation.
type Known = moka::sync::Cache<(String, String), (u64, u32)>;

/// Where ended topics are told.
#[derive(Clone, Debug)]
pub(crate) struct Topics {
    queue: mpsc::Sender<EndedTopic>,
    known: Known,
}

/// What the worker of the archive works off.
#[derive(Debug)]
pub(crate) struct TopicQueue(mpsc::Receiver<EndedTopic>);

impl Topics {
    pub(crate) fn new() -> (Self, TopicQueue) {
        let (queue, waiting) = mpsc::channel(TOPICS);
        (Self { queue, known: moka::sync::Cache::new(KNOWN_TOPICS) }, TopicQueue(waiting))
    }

    /// Takes note of what an append told. Never waits.
    pub(crate) fn tell(&self, call: &Call, session_id: &str, appended: &session::AppendTurnsResponse) {
        let (incarnation, last) = (appended.incarnation, appended.topic_end_seq);
        if last == 0 || self.known.get(&place_of(call, session_id)) == Some((incarnation, last)) {
            return;
        }
        let ended = EndedTopic { call: call.clone(), session_id: session_id.to_owned(), incarnation, last };
        if self.queue.try_send(ended).is_err() {
            tracing::debug!("too many topics wait to be archived; the next append tells of this one again");
        }
    }

    /// Whether it was archived already, or a later one of its session.
    pub(crate) fn knows(&self, ended: &EndedTopic) -> bool {
        let known = self.known.get(&place_of(&ended.call, &ended.session_id));
        known.is_some_and(|known| known.0 == ended.incarnation && known.1 >= ended.last)
    }

    /// Remembers that it is archived.
    pub(crate) fn remember(&self, ended: &EndedTopic) {
        self.known.insert(place_of(&ended.call, &ended.session_id), (ended.incarnation, ended.last));
    }
}

impl TopicQueue {
    /// The next one; none when nobody can tell of another.
    pub(crate) async fn next(&mut self) -> Option<EndedTopic> {
        self.0.recv().await
    }
}

fn place_of(call: &Call, session_id: &str) -> (String, String) {
    (call.owner.user_key(), session_id.to_owned())
}
