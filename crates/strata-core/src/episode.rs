//! What stays of a session that has ended, or of a topic of one (rule S7): its time, a summary, and for a while its turns (model.md "episodes", rule S14).
//! An episode is never a fact: it holds no slot, and no rule makes a record of it.

use crate::rule::Finding;
use crate::{MemoryId, Owner, SessionId, Timestamp};
use serde::{Deserialize, Serialize};

/// A sentence of an episode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpisodeSentence {
    /// Text.
    pub text: String,
    /// Turns it comes from, ascending.
    pub seqs: Vec<u32>,
}

/// A finding as it is kept with an episode: rule ids of an earlier program may be unknown to this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpisodeFinding {
    /// Rule id.
    pub rule: String,
    /// Outcome.
    pub outcome: String,
    /// One sentence, without content.
    pub because: String,
}

impl From<&Finding> for EpisodeFinding {
    fn from(finding: &Finding) -> Self {
        Self { rule: finding.rule.0.to_owned(), outcome: finding.outcome.to_owned(), because: finding.because.clone() }
    }
}

/// An episode. Ids are minted like those of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Episode {
    /// Id.
    pub episode_id: MemoryId,
    /// Whose.
    pub owner: Owner,
    /// Session.
    pub session: SessionId,
    /// Incarnation of the session.
    pub incarnation: u64,
    /// Time of the first turn.
    pub from_time: Timestamp,
    /// Time of the last turn.
    pub to_time: Timestamp,
    /// Summary; empty while the session is being archived, and where nothing was worth keeping.
    pub summary: Vec<EpisodeSentence>,
    /// Its first turn in the session.
    pub from: u32,
    /// Last turn that was looked at.
    pub through: u32,
    /// Turns that are kept.
    pub kept: u32,
    /// All of it is there: seen and searched from then on.
    pub complete: bool,
    /// Its topic has ended: what the session says later is another episode's (rule S7).
    pub closed: bool,
    /// When it was archived first.
    pub create_time: Timestamp,
    /// When its turns are gone.
    pub turns_expire_time: Timestamp,
    /// What was masked or left out.
    pub findings: Vec<EpisodeFinding>,
}

impl Episode {
    /// Turns of the session that it is about.
    #[must_use]
    pub const fn turns(&self) -> u32 {
        (self.through + 1).saturating_sub(self.from)
    }

    /// Last turn of the session that will not be in a later episode as well; zero while the episode may grow.
    #[must_use]
    pub const fn closed_at(&self) -> u32 {
        if self.closed { self.through } else { self.from.saturating_sub(1) }
    }

    /// Turns that can be searched at `now`.
    #[must_use]
    pub fn searchable(&self, now: Timestamp) -> u32 {
        if self.complete && now < self.turns_expire_time { self.kept } else { 0 }
    }
}
