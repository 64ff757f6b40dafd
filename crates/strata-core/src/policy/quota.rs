//! What one tenant may ask for and keep: calls, bytes, records. Each refusal names the quota, its limit and what helps.

use crate::{Fault, Reason, TenantId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Most calls or bytes a second that a quota may allow: more is none.
const MOST: f64 = 1e12;

/// What a tenant may ask for and keep. 0 is no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Quota {
    /// Calls a second, on average, of each router.
    pub calls_per_second: f64,
    /// Calls at once after a pause; 0: as many as in a second.
    pub burst: u32,
    /// Calls being served at a time by each router, streams included.
    pub in_flight: usize,
    /// Bytes of requests a second, on average, of each router. A call that goes beyond is served, and those after it wait.
    pub bytes_per_second: f64,
    /// Records kept in long-term memory for the whole tenant, whatever their status: superseded, archived and forgotten ones count
    /// until they are purged or erased.
    pub records: u64,
    /// The same for one user with all agents.
    pub records_per_user: u64,
    /// Bytes of text of those records for the whole tenant: content, value, quote, topic, tags and metadata. The record that goes
    /// beyond is kept, those after it are refused.
    pub bytes: u64,
    /// The same for one user with all agents.
    pub bytes_per_user: u64,
}

/// What is kept of somebody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Records.
    pub records: u64,
    /// Bytes of their text.
    pub bytes: u64,
}

/// One of the bounds of a [`Quota`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// [`Quota::calls_per_second`].
    Calls,
    /// [`Quota::in_flight`].
    InFlight,
    /// [`Quota::bytes_per_second`].
    Sent,
    /// [`Quota::records`].
    Records,
    /// [`Quota::records_per_user`].
    RecordsPerUser,
    /// [`Quota::bytes`].
    Bytes,
    /// [`Quota::bytes_per_user`].
    BytesPerUser,
}

impl Bound {
    /// Its name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Calls => "calls_per_second",
            Self::InFlight => "in_flight",
            Self::Sent => "bytes_per_second",
            Self::Records => "records",
            Self::RecordsPerUser => "records_per_user",
            Self::Bytes => "bytes",
            Self::BytesPerUser => "bytes_per_user",
        }
    }

    /// The refusal of a call that would go beyond: `OVERLOADED` with the time after which it may be made, or, where time does not
    /// help, `LIMIT_REACHED`.
    #[must_use]
    pub fn refusal(self, limit: impl fmt::Display, wait_ms: Option<u64>) -> Fault {
        let name = self.name();
        let (reason, says) = match self {
            Self::Calls => (Reason::Overloaded, "the tenant calls faster than it may; call less often"),
            Self::InFlight => (Reason::Overloaded, "the tenant has as many calls running as it may; call one after the other"),
            Self::Sent => (Reason::Overloaded, "the tenant sends more than it may; send less, or less often"),
            Self::Records => (Reason::LimitReached, "the tenant keeps as many records as it may; erase what nobody needs"),
            Self::RecordsPerUser => (Reason::LimitReached, "the user has as many records as it may; erase what nobody needs"),
            Self::Bytes => (Reason::LimitReached, "the tenant keeps as much text as it may; erase what nobody needs"),
            Self::BytesPerUser => (Reason::LimitReached, "the user has as much text as it may; erase what nobody needs"),
        };
        let message =
            format!("{says}, or let the quota {name} of {limit} be raised (quotas.each, quotas.tenants); nothing was done");
        let fault = Fault::new(reason, message).with("scope", "tenant").with("quota", name).with("limit", limit.to_string());
        match wait_ms {
            Some(wait) => fault.retry_after(wait),
            None => fault,
        }
    }
}

impl Quota {
    /// Whether it is one.
    ///
    /// # Errors
    /// `INVALID_FIELD` naming the field under `section`.
    pub fn validate(&self, section: &str) -> Result<(), Fault> {
        for (bound, rate) in [(Bound::Calls, self.calls_per_second), (Bound::Sent, self.bytes_per_second)] {
            if !(0.0..=MOST).contains(&rate) {
                return Err(Fault::field(format!("{section}.{}", bound.name()), format!("must lie between 0 and {MOST:.0}")));
            }
        }
        Ok(())
    }

    /// Calls at once after a pause.
    #[must_use]
    pub fn calls_at_once(&self) -> f64 {
        if self.burst > 0 { f64::from(self.burst) } else { self.calls_per_second.max(1.0) }
    }

    /// Whether calls are bounded at all.
    #[must_use]
    pub const fn bounds_calls(&self) -> bool {
        self.calls_per_second > 0.0 || self.in_flight > 0 || self.bytes_per_second > 0.0
    }

    /// Whether what is kept is bounded at all.
    #[must_use]
    pub const fn bounds_records(&self) -> bool {
        self.records > 0 || self.records_per_user > 0 || self.bytes > 0 || self.bytes_per_user > 0
    }

    /// The bound, with its limit, that one more record would go beyond where this much is kept; none: it may be kept.
    #[must_use]
    pub fn full(&self, tenant: Kept, user: Kept) -> Option<(Bound, u64)> {
        let bounds = [
            (Bound::Records, self.records, tenant.records),
            (Bound::RecordsPerUser, self.records_per_user, user.records),
            (Bound::Bytes, self.bytes, tenant.bytes),
            (Bound::BytesPerUser, self.bytes_per_user, user.bytes),
        ];
        bounds.into_iter().find(|(_, limit, there)| *limit > 0 && there >= limit).map(|(bound, limit, _)| (bound, limit))
    }
}

/// Quotas of all tenants.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QuotaSettings {
    /// Of every tenant that is not named below.
    pub each: Quota,
    /// Of single tenants, each instead of the one above.
    pub tenants: BTreeMap<String, Quota>,
}

impl QuotaSettings {
    /// Whether all are.
    ///
    /// # Errors
    /// `INVALID_FIELD` naming the field.
    pub fn validate(&self) -> Result<(), Fault> {
        self.each.validate("quotas.each")?;
        self.tenants.iter().try_for_each(|(tenant, quota)| quota.validate(&format!("quotas.tenants.{tenant}")))
    }

    /// Of one tenant.
    #[must_use]
    pub fn of(&self, tenant: &TenantId) -> Quota {
        self.tenants.get(tenant.as_str()).copied().unwrap_or(self.each)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_and_bytes_end_at_the_quota_and_the_refusal_says_which_and_what_helps() {
        let kept = |records, bytes| Kept { records, bytes };
        let (none, lots) = (Quota::default(), kept(u64::MAX, u64::MAX));
        assert!(!none.bounds_records() && none.full(lots, lots).is_none());
        let quota = Quota { records: 10, records_per_user: 3, bytes: 900, bytes_per_user: 400, ..none };
        assert_eq!(quota.full(kept(9, 899), kept(2, 399)), None, "one more");
        for (tenant, user, name, limit) in [
            (kept(10, 0), kept(0, 0), "records", "10"),
            (kept(11, 0), kept(5, 0), "records", "10"),
            (kept(9, 0), kept(3, 0), "records_per_user", "3"),
            (kept(9, 900), kept(2, 0), "bytes", "900"),
            (kept(9, 899), kept(2, 4_000), "bytes_per_user", "400"),
        ] {
            let (bound, at) = quota.full(tenant, user).expect("full");
            let refused = bound.refusal(at, None);
            assert_eq!((refused.reason, refused.retry_after_ms), (Reason::LimitReached, None));
            let said = |key: &str| refused.metadata.iter().find(|(name, _)| *name == key).map(|(_, value)| value.as_str());
            assert_eq!((said("quota"), said("limit")), (Some(name), Some(limit)));
            assert!(refused.message.contains("erase") && refused.message.contains("quotas.tenants"), "{refused}");
        }
    }

    #[test]
    fn a_rate_is_a_number_that_can_be_kept() {
        for rate in [-1.0, f64::NAN, f64::INFINITY, 1e13] {
            for quota in
                [Quota { calls_per_second: rate, ..Quota::default() }, Quota { bytes_per_second: rate, ..Quota::default() }]
            {
                let settings = QuotaSettings { tenants: BTreeMap::from([("t".to_owned(), quota)]), ..QuotaSettings::default() };
                let fault = settings.validate().expect_err("refused");
                assert!(fault.fields[0].field.starts_with("quotas.tenants.t."), "{fault}");
            }
        }
    }
}
