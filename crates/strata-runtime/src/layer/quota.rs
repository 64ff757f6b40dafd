//! What one tenant may ask for: calls a second, with a burst, and calls at a time. Whoever is over it is told when to come again;
//! other tenants notice nothing. Behind the authentication, so that nobody can use up a tenant's share without its credential.

use super::{Middleware, Rpc, forward, refuse};
use crate::ports::Stopwatch;
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use strata_core::policy::authz::Principal;
use strata_core::{Fault, Reason, TenantId};
use tonic::body::Body;

/// Tenants whose use is remembered: of more, those that were idle longest are forgotten, which costs them nothing.
const TENANTS: usize = 10_000;
/// Longest wait that is named: a caller far over its rate would otherwise be sent away for hours.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Wait that is named when too many calls run at a time: about the time in which some end.
const BUSY_WAIT_MS: u64 = 200;

/// What a tenant may ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Quota {
    /// Calls a second, on average; 0: any number.
    pub calls_per_second: f64,
    /// Calls at once after a pause; 0: as many as in a second.
    pub burst: u32,
    /// Calls being served at a time, streams included; 0: any number.
    pub in_flight: usize,
}

impl Quota {
    /// Whether it is one.
    ///
    /// # Errors
    /// `INVALID_FIELD` naming the field under `section`.
    pub fn validate(&self, section: &str) -> Result<(), Fault> {
        if !(0.0..=1e6).contains(&self.calls_per_second) {
            return Err(Fault::field(format!("{section}.calls_per_second"), "must lie between 0 and 1000000"));
        }
        Ok(())
    }

    fn burst(&self) -> f64 {
        if self.burst > 0 { f64::from(self.burst) } else { self.calls_per_second.max(1.0) }
    }
}

/// Quotas of all tenants.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QuotaSettings {
    /// Of every tenant that is not named below.
    pub each: Quota,
    /// Of single tenants.
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

    fn of(&self, tenant: &TenantId) -> Quota {
        self.tenants.get(tenant.as_str()).copied().unwrap_or(self.each)
    }
}

/// A tenant's use.
#[derive(Debug)]
struct Use {
    /// Calls it may make now.
    left: f64,
    /// When that was so, since the start of the listener.
    at: Duration,
    running: Arc<AtomicUsize>,
}

/// The layer. See the module.
#[derive(Debug)]
pub struct Quotas {
    settings: QuotaSettings,
    uses: Mutex<HashMap<TenantId, Use>>,
    since: Stopwatch,
}

/// A call of a tenant that runs; given back when dropped.
struct Running(Option<Arc<AtomicUsize>>);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(running) = &self.0 {
            running.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn over(what: &'static str, wait_ms: u64) -> Fault {
    Fault::new(Reason::Overloaded, format!("the tenant {what}; nothing was done, retry later"))
        .with("scope", "tenant")
        .retry_after(wait_ms)
}

impl Quotas {
    /// With these quotas.
    #[must_use]
    pub fn new(settings: QuotaSettings) -> Self {
        Self { settings, uses: Mutex::default(), since: Stopwatch::start() }
    }

    fn enter(&self, tenant: &TenantId, now: Duration) -> Result<Running, Fault> {
        let quota = self.settings.of(tenant);
        if quota == Quota::default() {
            return Ok(Running(None));
        }
        let mut uses = self.uses.lock();
        if !uses.contains_key(tenant) && uses.len() >= TENANTS {
            // Whose calls all ended and whose burst is whole again loses nothing; else the one that was idle longest.
            uses.retain(|tenant, of| {
                let quota = self.settings.of(tenant);
                let whole = of.left + now.saturating_sub(of.at).as_secs_f64() * quota.calls_per_second >= quota.burst();
                of.running.load(Ordering::Acquire) > 0 || !whole
            });
            if uses.len() >= TENANTS
                && let Some(idle) = uses.iter().min_by_key(|(_, of)| of.at).map(|(tenant, _)| tenant.clone())
            {
                uses.remove(&idle);
            }
        }
        let of = uses.entry(tenant.clone()).or_insert_with(|| Use { left: quota.burst(), at: now, running: Arc::default() });
        if quota.in_flight > 0 && of.running.load(Ordering::Acquire) >= quota.in_flight {
            return Err(over("has as many calls running as it may", BUSY_WAIT_MS));
        }
        if quota.calls_per_second > 0.0 {
            let earned = now.saturating_sub(of.at).as_secs_f64() * quota.calls_per_second;
            of.left = (of.left + earned).min(quota.burst());
            of.at = now;
            if of.left < 1.0 {
                let wait = Duration::from_secs_f64(((1.0 - of.left) / quota.calls_per_second).min(LONGEST_WAIT.as_secs_f64()));
                return Err(over("calls faster than it may", u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1)));
            }
            of.left -= 1.0;
        }
        of.running.fetch_add(1, Ordering::AcqRel);
        Ok(Running(Some(Arc::clone(&of.running))))
    }
}

impl Middleware for Quotas {
    async fn handle<S: Rpc>(self: Arc<Self>, request: Request<Body>, next: S) -> Response<Body> {
        let Some(tenant) = request.extensions().get::<Principal>().map(|principal| principal.tenant.clone()) else {
            // An open path: nobody's.
            return forward(next, request).await;
        };
        match self.enter(&tenant, self.since.elapsed()) {
            Ok(running) => forward(next, request).await.map(|inner| Body::new(Counted { inner, _running: running })),
            Err(fault) => refuse(fault),
        }
    }
}

/// A response body that counts as a running call until it is dropped.
struct Counted {
    inner: Body,
    _running: Running,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name).expect("an id")
    }

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn quotas(each: Quota) -> Quotas {
        Quotas::new(QuotaSettings { each, ..QuotaSettings::default() })
    }

    #[test]
    fn a_tenant_is_told_when_to_come_again_and_others_notice_nothing() {
        let quotas = quotas(Quota { calls_per_second: 2.0, burst: 3, in_flight: 0 });
        let (busy, calm) = (tenant("busy"), tenant("calm"));
        for _ in 0..3 {
            quotas.enter(&busy, ms(0)).expect("the burst");
        }
        let refused = quotas.enter(&busy, ms(0)).err().expect("over");
        assert_eq!((refused.reason, refused.retry_after_ms), (Reason::Overloaded, Some(500)));
        quotas.enter(&calm, ms(0)).expect("another tenant");
        assert!(quotas.enter(&busy, ms(499)).is_err());
        quotas.enter(&busy, ms(500)).expect("as it was told");
        assert!(quotas.enter(&busy, ms(500)).is_err());
        for _ in 0..3 {
            quotas.enter(&busy, ms(60_000)).expect("the burst is whole again, and no more than that");
        }
        assert!(quotas.enter(&busy, ms(60_000)).is_err());
    }

    #[test]
    fn calls_at_a_time_are_bounded_and_given_back() {
        let quotas = quotas(Quota { in_flight: 2, ..Quota::default() });
        let one = quotas.enter(&tenant("t"), ms(0)).expect("first");
        let _two = quotas.enter(&tenant("t"), ms(0)).expect("second");
        assert_eq!(quotas.enter(&tenant("t"), ms(0)).err().expect("third").retry_after_ms, Some(BUSY_WAIT_MS));
        drop(one);
        assert!(quotas.enter(&tenant("t"), ms(0)).is_ok());
    }

    #[test]
    fn a_named_tenant_has_its_own_and_without_a_quota_nothing_is_remembered() {
        let tenants = BTreeMap::from([("vip".to_owned(), Quota { in_flight: 1, ..Quota::default() })]);
        let quotas = Quotas::new(QuotaSettings { tenants, ..QuotaSettings::default() });
        let _one = quotas.enter(&tenant("vip"), ms(0)).expect("first");
        assert!(quotas.enter(&tenant("vip"), ms(0)).is_err());
        quotas.enter(&tenant("other"), ms(0)).expect("any number");
        assert_eq!(quotas.uses.lock().len(), 1);
    }

    #[test]
    fn memory_is_bounded_by_the_number_of_tenants() {
        let quotas = quotas(Quota { calls_per_second: 1.0, burst: 1, in_flight: 0 });
        for n in 0..TENANTS + 50 {
            quotas.enter(&tenant(&format!("t{n}")), ms(0)).expect("its first");
        }
        assert_eq!(quotas.uses.lock().len(), TENANTS);
        quotas.enter(&tenant("later"), ms(2_000)).expect("its first");
        assert_eq!(quotas.uses.lock().len(), 1, "whole bursts are forgotten");
    }
}
