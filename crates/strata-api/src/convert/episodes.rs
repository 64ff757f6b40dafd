//! Episodes between wire and domain.

use super::common;
use crate::common::v1::Finding;
use crate::longterm::v1 as pb;
use std::collections::BTreeSet;
use strata_core::episode::{Episode, EpisodeSentence};
use strata_core::{Fault, Timestamp, limits};

/// A sentence of a summary.
///
/// # Errors
/// `INVALID_FIELD` naming `sentences[n].text` or `sentences[n].seqs`.
pub fn sentence(at: usize, text: &str, seqs: &[u32]) -> Result<EpisodeSentence, Fault> {
    let text = common::text(&format!("sentences[{at}].text"), text, limits::CONTENT_CHARS)?;
    if seqs.is_empty() || seqs.len() > limits::SENTENCE_TURNS || seqs.contains(&0) {
        let bounds = format!("must name the 1 to {} turns it comes from, counted from 1", limits::SENTENCE_TURNS);
        return Err(Fault::field(format!("sentences[{at}].seqs"), bounds));
    }
    Ok(EpisodeSentence { text, seqs: seqs.iter().copied().collect::<BTreeSet<u32>>().into_iter().collect() })
}

/// Wire form of an episode as it is at `now`.
#[must_use]
pub fn wire_episode(episode: &Episode, now: Timestamp) -> pb::Episode {
    let sentence = |s: &EpisodeSentence| pb::EpisodeSentence { text: s.text.clone(), seqs: s.seqs.clone() };
    pb::Episode {
        episode_id: episode.episode_id.to_string(),
        agent_id: episode.owner.agent_id().to_owned(),
        session_id: episode.session.as_str().to_owned(),
        incarnation: episode.incarnation,
        from_time: Some(common::wire_time(episode.from_time)),
        to_time: Some(common::wire_time(episode.to_time)),
        summary: episode.summary.iter().map(sentence).collect(),
        turns: episode.turns(),
        archived_turns: episode.searchable(now),
        create_time: Some(common::wire_time(episode.create_time)),
        turns_expire_time: Some(common::wire_time(episode.turns_expire_time)),
        findings: episode
            .findings
            .iter()
            .map(|f| Finding { rule: f.rule.clone(), outcome: f.outcome.clone(), because: f.because.clone() })
            .collect(),
        from_seq: episode.from,
        to_seq: episode.through,
    }
}
