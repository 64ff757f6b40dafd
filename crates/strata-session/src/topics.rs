//! What follows an append in the background: new turns are analysed, their vectors are made (rule R14), and the topics that they end are
//! closed (rule S7). The rule is `strata_core::policy::session::topics_ended`; here it is fed.
//!
//! A change of topic is found where the vectors of turns are: the session role has them for its searches, and no other role
//! holds a live session's words.

use crate::search::QUEUE;
use crate::shared::Shared;
use crate::store::SessionKey;
use std::collections::BTreeSet;
use std::sync::Arc;
use strata_core::Fault;
use strata_core::policy::session::{TOPIC_MEAN, topics_ended};
use tokio::sync::mpsc;

/// Sessions of which it is known how far their turns were judged; of another one all turns since its last topic are.
const JUDGED: u64 = 10_000;

/// Session, incarnation, redactions: what was made of other texts is not known.
type Place = (SessionKey, u64, u64);

/// Up to which turn a session was judged.
pub(crate) type Judged = moka::sync::Cache<Place, u32>;

/// Works through the queue until the role stops.
pub(crate) async fn follow(shared: Arc<Shared>, mut queue: mpsc::Receiver<SessionKey>) {
    let stop = shared.tasks.token().clone();
    let judged = moka::sync::Cache::new(JUDGED);
    loop {
        let mut batch = Vec::new();
        tokio::select! {
            () = stop.cancelled() => return,
            n = queue.recv_many(&mut batch, QUEUE) => if n == 0 { return },
        }
        let keys: BTreeSet<SessionKey> = batch.into_iter().collect();
        for key in keys {
            tokio::select! {
                () = stop.cancelled() => return,
                done = one(&shared, &judged, &key) => if let Err(fault) = done {
                    tracing::debug!(reason = fault.reason.name(), "new turns wait for the next append or search");
                },
            }
        }
    }
}

async fn one(shared: &Shared, judged: &Judged, key: &SessionKey) -> Result<(), Fault> {
    let Some((head, turns)) = shared.searcher.complete(key).await? else { return Ok(()) };
    let settings = shared.settings.load().session.clone();
    let Some(embedder) = shared.searcher.embedder().filter(|_| settings.topic_changes) else { return Ok(()) };
    let place = (key.clone(), head.incarnation, head.redactions);
    let content = turns.content(head.topic);
    let Some(newest) = content.last().map(|turn| turn.seq) else { return Ok(()) };
    let done = judged.get(&place).unwrap_or(0);
    if content.len() > TOPIC_MEAN {
        for last in topics_ended(&content, head.topic, done, embedder.identity().topic_similarity) {
            shared.compressor.end_topic(&settings, key, head.incarnation, last).await?;
            shared.better_summaries(key);
            tracing::info!(last, "a topic has ended (S7)");
        }
    }
    judged.insert(place, newest);
    Ok(())
}
