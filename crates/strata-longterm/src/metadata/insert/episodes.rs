//! The one way an episode enters: what is kept of a session is what [`GatedEpisode`] holds. Audit entries name ids, never
//! words.

use super::Writing;
use crate::metadata::{episodes, ledger};
use rusqlite::Connection;
use strata_core::episode::{Episode, EpisodeFinding};
use strata_core::policy::gate::GatedEpisode;
use strata_core::time::DAY;
use strata_core::{Fault, MemoryId, SessionId, Timestamp, limits};

/// What is archived by one call, beside the words.
#[derive(Clone, Debug)]
pub struct Archived {
    /// Session.
    pub session: SessionId,
    /// Its incarnation.
    pub incarnation: u64,
    /// Last turn that was looked at before this call.
    pub after: u32,
    /// Number of the last turn of this call, with the times of its first and last one; none when it brings no turns.
    pub turns: Option<(u32, Timestamp, Timestamp)>,
    /// Keep the summary only.
    pub summary_only: bool,
    /// All of it is there, and the summary with it.
    pub complete: bool,
    /// With `complete`: last turn of a topic that has ended; later turns are another episode's (rule S7).
    pub closes: Option<u32>,
    /// Id of a new episode.
    pub new_id: MemoryId,
    /// A vector for each turn of the gated value, with the name of their model.
    pub vectors: Option<(String, Vec<Vec<f32>>)>,
}

/// Writes a part of an episode; answers the episode as it stands then, none when there is nothing of it. A part that is there
/// already changes nothing.
///
/// # Errors
/// `LIMIT_REACHED`; as the database says.
pub fn episode(db: &Connection, w: &Writing<'_>, gated: &GatedEpisode, part: &Archived) -> Result<Option<Episode>, Fault> {
    let known = episodes::of_session(db, w.stored, &part.session, part.incarnation)?;
    let expire = w.now.plus(limits::ARCHIVED_TURN_DAYS * DAY);
    let begun = known.as_ref().map_or(0, |known| known.through);
    let mut found = match (known, part.turns) {
        // A part that comes again, late, is no beginning.
        (Some(known), Some((last, ..))) if known.closed && begun == part.after && last > begun => {
            begin(db, w, part, begun + 1, expire)?
        }
        (Some(known), _) => known,
        (None, None) => return Ok(None),
        (None, Some(_)) => begin(db, w, part, 1, expire)?,
    };
    let mut changed = false;
    // Another call that was faster has brought these turns, or some of them: the caller goes on behind them.
    let follows = |last: u32| !found.closed && found.through == part.after && last > found.through;
    if let Some((last, _, time)) = part.turns.filter(|(last, ..)| follows(*last)) {
        found.to_time = time;
        found.through = last;
        found.complete = false;
        found.findings.extend(gated.findings().iter().map(EpisodeFinding::from));
        episodes::put(db, w.stored, &found)?;
        if !part.summary_only {
            for (at, turn) in gated.turns().iter().enumerate() {
                let vector = part.vectors.as_ref().and_then(|(model, all)| Some((model.as_str(), all.get(at)?.as_slice())));
                episodes::put_turn(db, w.stored, found.episode_id, turn, vector)?;
                found.kept += 1;
            }
        }
        changed = true;
    }
    // Another call may have brought turns of the next topic meanwhile: they end the episode, not this one.
    let closes = part.closes == Some(found.through);
    let completes = if part.closes.is_some() { closes } else { !found.complete };
    if part.complete && completes && !found.closed && part.turns.is_none() {
        found.complete = true;
        found.closed = closes;
        found.summary = gated.summary().to_vec();
        // Of an earlier summary, made before the session went on, nothing stays.
        found.findings.retain(|finding| finding.rule == "S14");
        found.findings.extend(gated.findings().iter().map(EpisodeFinding::from));
        found.turns_expire_time = expire;
        let entry = ledger::AuditEntry {
            time: w.now,
            tenant: w.owner.tenant.as_str(),
            user: w.owner.user.as_str(),
            action: "EPISODE_PUT",
            memory_id: Some(found.episode_id),
            actor: w.actor,
            rule: "S14",
            subject: "",
            reason: "",
        };
        ledger::audit(db, &entry)?;
        changed = true;
    }
    if changed {
        episodes::put(db, w.stored, &found)?;
        episodes::expire(db, w.now)?;
    }
    Ok(Some(found))
}

/// An episode without turns yet.
fn begin(db: &Connection, w: &Writing<'_>, part: &Archived, from: u32, expire: Timestamp) -> Result<Episode, Fault> {
    if episodes::count(db, w.stored)? >= limits::EPISODES {
        return Err(Fault::limit("episodes", limits::EPISODES, "episodes of one owner"));
    }
    let (first, last) = part.turns.map_or((w.now, w.now), |(_, first, last)| (first, last));
    Ok(Episode {
        episode_id: part.new_id,
        owner: w.owner.clone(),
        session: part.session.clone(),
        incarnation: part.incarnation,
        from_time: first,
        to_time: last,
        summary: Vec::new(),
        from,
        through: from - 1,
        kept: 0,
        complete: false,
        closed: false,
        create_time: w.now,
        turns_expire_time: expire,
        findings: Vec::new(),
    })
}
