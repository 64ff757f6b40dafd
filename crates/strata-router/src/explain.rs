//! What was decided, read again: by name for Explain, in order for whoever follows along. What is kept of a call, and how, is in
//! [`crate::decisions`].

use crate::gate::Core;
use crate::ledger::Wanted;
use std::collections::BTreeSet;
use strata_core::policy::decision::Decision;
use strata_core::{Fault, Owner, Reason};

/// Decisions that one Explain shows.
const EXPLAINED: usize = 200;

/// Decisions as they were stored; one that cannot be read is told of and left out.
pub(crate) fn decode(entries: impl IntoIterator<Item = String>) -> impl Iterator<Item = Decision> {
    entries.into_iter().filter_map(|entry| {
        serde_json::from_str(&entry)
            .map_err(|error| tracing::error!(line = error.line(), column = error.column(), "a decision cannot be read"))
            .ok()
    })
}

impl Core {
    /// What was decided under a name, in order, and whether there is more. What was reported about a recall of the trace
    /// belongs to it.
    ///
    /// # Errors
    /// `NOT_FOUND`; `STORE_UNAVAILABLE`; `NOT_SERVED` when the ledger keeps no decisions.
    pub(crate) async fn explained(&self, owner: &Owner, name: &str) -> Result<(Vec<Decision>, bool), Fault> {
        let log = self.ledger.decisions().ok_or_else(no_log)?;
        self.keeper.flush().await;
        let now = self.ports.clock.now();
        let user = owner.user_key();
        let read = |name: String| async move {
            log.kept(&owner.user_key(), &Wanted::Named(name), EXPLAINED + 1, now).await.map(|found| found.entries)
        };
        let mut entries = log.kept(&user, &Wanted::Named(name.to_owned()), EXPLAINED + 1, now).await?.entries;
        let recalls: BTreeSet<String> =
            decode(entries.clone()).map(|decision| decision.recall_id).filter(|id| !id.is_empty() && id != name).collect();
        for recall in recalls {
            for entry in read(recall).await? {
                if !entries.contains(&entry) {
                    entries.push(entry);
                }
            }
        }
        let mut decisions: Vec<Decision> = decode(entries).filter(|decision| seen_by(owner, decision)).collect();
        decisions.sort_by_key(|decision| decision.time);
        if decisions.is_empty() {
            return Err(Fault::not_found("trace", name));
        }
        let truncated = decisions.len() > EXPLAINED;
        decisions.truncate(EXPLAINED);
        Ok((decisions, truncated))
    }

    /// Decisions after a cursor, and the cursor to go on from; with `None` only the cursor of the newest.
    ///
    /// # Errors
    /// As [`Self::explained`], and `INVALID_FIELD` for a foreign cursor.
    pub(crate) async fn decided_after(
        &self,
        owner: &Owner,
        after: Option<String>,
        limit: usize,
    ) -> Result<(Vec<Decision>, String), Fault> {
        let log = self.ledger.decisions().ok_or_else(no_log)?;
        let wanted = after.map_or(Wanted::Newest, Wanted::After);
        let found = log.kept(&owner.user_key(), &wanted, limit, self.ports.clock.now()).await?;
        Ok((decode(found.entries).collect(), found.cursor))
    }
}

/// An agent sees what was decided for it and for its user; the user as a whole sees all.
fn seen_by(owner: &Owner, decision: &Decision) -> bool {
    owner.agent.as_ref().is_none_or(|agent| decision.agent.is_empty() || decision.agent == agent.as_str())
}

fn no_log() -> Fault {
    Fault::new(Reason::NotServed, "this router keeps no decisions")
}
