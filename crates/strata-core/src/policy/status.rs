//! The state machine of a record (model.md "Allowed moves of status"): one table, read by every write path, and the one
//! predicate for "in force" that every read path shares (cases C162, C184).

use crate::record::{Record, Status, Tier};
use crate::{Fault, Reason, Timestamp};

/// States a record may be created in: ACTIVE or CANDIDATE by the gate, SUPERSEDED when it arrives late (rule K5).
pub const CREATED_AS: &[Status] = &[Status::Candidate, Status::Active, Status::Superseded];

/// States a record may move to from `from`. A softly forgotten one goes back to its earlier state only: see
/// [`check_restore`].
#[must_use]
pub const fn moves(from: Status) -> &'static [Status] {
    match from {
        Status::Candidate => &[Status::Active, Status::Disputed, Status::Rejected, Status::Expired, Status::Deleted],
        Status::Active => &[Status::Superseded, Status::Expired, Status::Archived, Status::Candidate, Status::Deleted],
        Status::Disputed => &[Status::Active, Status::Superseded, Status::Rejected, Status::Expired, Status::Deleted],
        Status::Superseded => &[Status::Deleted],
        Status::Expired => &[Status::Active, Status::Archived, Status::Deleted],
        Status::Archived => &[Status::Active, Status::Deleted],
        Status::Rejected => &[Status::Candidate, Status::Deleted],
        Status::Deleted => &[],
    }
}

/// Checks a move; `from` is none at creation.
///
/// # Errors
/// `STATUS_MOVE` naming both states in `state` and the description.
pub fn check(from: Option<Status>, to: Status) -> Result<(), Fault> {
    let allowed = from.map_or(CREATED_AS, moves);
    if allowed.contains(&to) {
        return Ok(());
    }
    Err(refused(from, to))
}

/// Checks that a softly forgotten record goes back to the state it was forgotten in.
///
/// # Errors
/// `STATUS_MOVE` when it is not forgotten, or `to` is another state than its earlier one.
pub fn check_restore(from: Status, earlier: Option<Status>, to: Status) -> Result<(), Fault> {
    if from == Status::Deleted && earlier == Some(to) && to != Status::Deleted {
        return Ok(());
    }
    Err(refused(Some(from), to))
}

fn refused(from: Option<Status>, to: Status) -> Fault {
    let name = from.map_or("nothing", Status::name);
    Fault::new(Reason::StatusMove, format!("a record does not go from {name} to {}", to.name())).with("state", name).rule(
        "STATUS",
        "memory",
        format!("{name} > {} is no allowed move", to.name()),
    )
}

/// Whether the dedup identity of a record in this state is taken (rule G10).
#[must_use]
pub const fn holds_identity(status: Status) -> bool {
    match status {
        Status::Candidate | Status::Active | Status::Disputed | Status::Rejected => true,
        Status::Superseded | Status::Expired | Status::Archived | Status::Deleted => false,
    }
}

/// The state a stored record is in at `now` (rule F1: by clock, with or without the sweeper): past its expiry an event is
/// archived, everything else that still waited or held is expired (rule F2).
#[must_use]
pub fn at(stored: Status, tier: Tier, expire_time: Option<Timestamp>, now: Timestamp) -> Status {
    match stored {
        Status::Candidate | Status::Active | Status::Disputed if expire_time.is_some_and(|end| end <= now) => {
            match (stored, tier) {
                (Status::Active, Tier::Event) => Status::Archived,
                _ => Status::Expired,
            }
        }
        Status::Candidate
        | Status::Active
        | Status::Disputed
        | Status::Superseded
        | Status::Expired
        | Status::Archived
        | Status::Rejected
        | Status::Deleted => stored,
    }
}

/// Whether the record is what the owner holds at `now`: ACTIVE, not expired, and `now` inside its valid time. The one
/// predicate of every read path.
#[must_use]
pub fn in_force(record: &Record, now: Timestamp) -> bool {
    at(record.status, record.tier, record.expire_time, now) == Status::Active && is_valid(record.valid_from, record.valid_to, now)
}

/// Whether `now` lies in `[from, to)`; an absent end is open.
#[must_use]
pub fn is_valid(from: Option<Timestamp>, to: Option<Timestamp>, now: Timestamp) -> bool {
    from.is_none_or(|from| from <= now) && to.is_none_or(|to| now < to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Status::{Active, Archived, Candidate, Deleted, Disputed, Expired, Rejected, Superseded};

    /// Written out a second time on purpose: rows are `from`, columns are [`Status::ALL`].
    const TABLE: &[(Status, [u8; 8])] = &[
        // C  A  D  S  E  Ar R  Del
        (Candidate, [0, 1, 1, 0, 1, 0, 1, 1]),
        (Active, [1, 0, 0, 1, 1, 1, 0, 1]),
        (Disputed, [0, 1, 0, 1, 1, 0, 1, 1]),
        (Superseded, [0, 0, 0, 0, 0, 0, 0, 1]),
        (Expired, [0, 1, 0, 0, 0, 1, 0, 1]),
        (Archived, [0, 1, 0, 0, 0, 0, 0, 1]),
        (Rejected, [1, 0, 0, 0, 0, 0, 0, 1]),
        (Deleted, [0, 0, 0, 0, 0, 0, 0, 0]),
    ];

    #[test]
    fn a76_c184_every_ordered_pair_of_states() {
        assert_eq!(TABLE.len(), Status::ALL.len());
        for (from, row) in TABLE {
            for (to, allowed) in Status::ALL.iter().zip(row) {
                let verdict = check(Some(*from), *to);
                assert_eq!(verdict.is_ok(), *allowed == 1, "{} > {}", from.name(), to.name());
                if let Err(fault) = verdict {
                    assert_eq!(fault.reason, Reason::StatusMove);
                }
            }
        }
        for to in Status::ALL {
            assert_eq!(check(None, *to).is_ok(), matches!(to, Candidate | Active | Superseded), "created as {}", to.name());
        }
    }

    #[test]
    fn a168_a_forgotten_record_goes_back_to_its_earlier_state_only() {
        for earlier in Status::ALL {
            for to in Status::ALL {
                let allowed = earlier == to && *earlier != Deleted;
                assert_eq!(check_restore(Deleted, Some(*earlier), *to).is_ok(), allowed, "{} > {}", earlier.name(), to.name());
            }
            assert!(check_restore(*earlier, Some(Active), Active).is_err() || *earlier == Deleted);
        }
        assert!(check_restore(Deleted, None, Active).is_err());
    }

    #[test]
    fn c096_a147_expiry_is_by_clock() {
        let end = Some(Timestamp(10));
        for (stored, tier, expected) in [
            (Active, Tier::Stable, Expired),
            (Active, Tier::Temporary, Expired),
            (Active, Tier::Event, Archived),
            (Candidate, Tier::Event, Expired),
            (Disputed, Tier::Stable, Expired),
            (Superseded, Tier::Stable, Superseded),
            (Rejected, Tier::Stable, Rejected),
            (Deleted, Tier::Event, Deleted),
        ] {
            assert_eq!(at(stored, tier, end, Timestamp(9)), stored);
            assert_eq!(at(stored, tier, end, Timestamp(10)), expected, "{} {}", stored.name(), tier.name());
            assert_eq!(at(stored, tier, None, Timestamp(i64::MAX)), stored);
        }
    }

    #[test]
    fn valid_time_includes_its_start_and_excludes_its_end() {
        let (from, to) = (Some(Timestamp(5)), Some(Timestamp(7)));
        for (now, inside) in [(4, false), (5, true), (6, true), (7, false)] {
            assert_eq!(is_valid(from, to, Timestamp(now)), inside, "{now}");
        }
        assert!(is_valid(None, None, Timestamp(i64::MIN)));
    }
}
