//! Quality on the wire.

use super::common;
use crate::admin::v1 as pb;
use strata_core::Fault;
use strata_core::policy::quality::{Reviews, Verdict};

/// A verdict on the wire.
///
/// # Errors
/// `INVALID_FIELD` naming `field`.
pub fn verdict(field: &str, raw: i32) -> Result<Verdict, Fault> {
    common::enumeration(field, raw, |wire: pb::ReviewVerdict| match wire {
        pb::ReviewVerdict::Unspecified => None,
        pb::ReviewVerdict::Sound => Some(Verdict::Sound),
        pb::ReviewVerdict::WrongWrite => Some(Verdict::WrongWrite),
        pb::ReviewVerdict::Stale => Some(Verdict::Stale),
        pb::ReviewVerdict::Mismatch => Some(Verdict::Mismatch),
    })
}

/// Wire form of counted reviews.
#[must_use]
pub const fn reviews(reviews: &Reviews) -> pb::ReviewCounts {
    pb::ReviewCounts { sound: reviews.sound, wrong_write: reviews.wrong_write, stale: reviews.stale, mismatch: reviews.mismatch }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verdict_has_a_wire_form() {
        for known in Verdict::ALL {
            let raw = pb::ReviewVerdict::from_str_name(&format!("REVIEW_VERDICT_{}", known.name())).expect("on the wire");
            assert_eq!(verdict("verdict", raw.into()), Ok(*known));
        }
        assert!(verdict("verdict", 0).is_err() && verdict("verdict", 9).is_err());
    }
}
