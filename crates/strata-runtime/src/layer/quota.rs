//! What one tenant may ask for ([`strata_core::policy::quota`]): calls and bytes a second, and calls at a time. Whoever is over it is
//! told when to come again; other tenants notice nothing. Behind the authentication, so that nobody can use up a tenant's share
//! without its credential. The settings may change while calls run.

use super::body::Answer;
use super::{Middleware, Rpc, refuse};
use crate::metrics::Instruments;
use crate::ports::Stopwatch;
use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use strata_core::policy::authz::Principal;
use strata_core::policy::quota::{Bound, Quota, QuotaSettings};
use strata_core::{Fault, TenantId};
use tonic::body::Body;

/// Tenants whose use is remembered: of more, those that were idle longest are forgotten, which costs them nothing. Never one whose
/// calls run, of which admission leaves fewer.
const TENANTS: usize = 10_000;
/// Longest wait that is named: a caller far over its rate would otherwise be sent away for hours.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Wait that is named when too many calls run at a time: about the time in which some end.
const BUSY_WAIT_MS: u64 = 200;

/// A tenant's use.
#[derive(Debug)]
struct Use {
    /// Calls it may make now.
    calls: f64,
    /// Bytes it may send now; below zero it has sent more than that, and pays with time.
    bytes: f64,
    /// When that was so, since the start of the listener.
    at: Duration,
    running: Arc<AtomicUsize>,
}

impl Use {
    /// What is left at `now`: what was left, and what was earned since.
    fn earn(&mut self, quota: &Quota, now: Duration) {
        let seconds = now.saturating_sub(self.at).as_secs_f64();
        self.calls = (self.calls + seconds * quota.calls_per_second).min(quota.calls_at_once());
        self.bytes = (self.bytes + seconds * quota.bytes_per_second).min(quota.bytes_per_second);
        self.at = now;
    }

    /// Whether none of its calls runs.
    fn is_idle(&self) -> bool {
        self.running.load(Ordering::Acquire) == 0
    }

    /// Whether forgetting it loses nothing.
    fn is_whole(&mut self, quota: &Quota, now: Duration) -> bool {
        self.earn(quota, now);
        self.calls >= quota.calls_at_once() && self.bytes >= quota.bytes_per_second && self.is_idle()
    }
}

/// The layer. See the module.
#[derive(Debug)]
pub struct Quotas {
    settings: Arc<ArcSwap<QuotaSettings>>,
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

/// The time until `missing` is earned at `rate`, at least a millisecond.
fn wait(missing: f64, rate: f64) -> Option<u64> {
    let wait = Duration::from_secs_f64((missing / rate).clamp(0.0, LONGEST_WAIT.as_secs_f64()));
    Some(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1))
}

fn over(bound: Bound, limit: impl std::fmt::Display, wait_ms: Option<u64>) -> Fault {
    Instruments::global().over_quota(bound);
    bound.refusal(limit, wait_ms)
}

impl Quotas {
    /// With these quotas.
    #[must_use]
    pub fn new(settings: Arc<ArcSwap<QuotaSettings>>) -> Self {
        Self { settings, uses: Mutex::default(), since: Stopwatch::start() }
    }

    fn enter(&self, tenant: &TenantId, now: Duration) -> Result<Running, Fault> {
        let settings = self.settings.load();
        let quota = settings.of(tenant);
        if !quota.bounds_calls() {
            return Ok(Running(None));
        }
        let mut uses = self.uses.lock();
        if !uses.contains_key(tenant) && uses.len() >= TENANTS {
            // Whose calls all ended and whose burst is whole again loses nothing; else the one that was idle longest. One whose calls
            // run would count from nothing again, and run as many beside them.
            uses.retain(|tenant, of| !of.is_whole(&settings.of(tenant), now));
            if uses.len() >= TENANTS
                && let Some(idle) =
                    uses.iter().filter(|(_, of)| of.is_idle()).min_by_key(|(_, of)| of.at).map(|(tenant, _)| tenant.clone())
            {
                uses.remove(&idle);
            }
        }
        let whole = || Use { calls: quota.calls_at_once(), bytes: quota.bytes_per_second, at: now, running: Arc::default() };
        let of = uses.entry(tenant.clone()).or_insert_with(whole);
        of.earn(&quota, now);
        if quota.in_flight > 0 && of.running.load(Ordering::Acquire) >= quota.in_flight {
            return Err(over(Bound::InFlight, quota.in_flight, Some(BUSY_WAIT_MS)));
        }
        if quota.bytes_per_second > 0.0 && of.bytes < 0.0 {
            return Err(over(Bound::Sent, quota.bytes_per_second, wait(-of.bytes, quota.bytes_per_second)));
        }
        if quota.calls_per_second > 0.0 {
            if of.calls < 1.0 {
                return Err(over(Bound::Calls, quota.calls_per_second, wait(1.0 - of.calls, quota.calls_per_second)));
            }
            of.calls -= 1.0;
        }
        of.running.fetch_add(1, Ordering::AcqRel);
        Ok(Running(Some(Arc::clone(&of.running))))
    }

    /// Takes what a call has sent from what its tenant may send.
    fn spend(&self, tenant: &TenantId, bytes: usize, now: Duration) {
        let quota = self.settings.load().of(tenant);
        if quota.bytes_per_second > 0.0
            && let Some(of) = self.uses.lock().get_mut(tenant)
        {
            of.earn(&quota, now);
            of.bytes -= bytes as f64;
        }
    }
}

impl Middleware for Quotas {
    async fn handle<S: Rpc>(self: &Arc<Self>, request: Request<Body>, next: &S) -> Response<Answer> {
        let Some(tenant) = request.extensions().get::<Principal>().map(|principal| principal.tenant.clone()) else {
            // An open path: nobody's.
            return next.call(request).await;
        };
        match self.enter(&tenant, self.since.elapsed()) {
            Ok(Running(None)) => next.call(request).await,
            Ok(running) => {
                // Its bytes count against the tenant's quota as they come.
                let quotas = Arc::clone(self);
                let weighed = move |frame: Frame<Bytes>| {
                    if let Some(data) = frame.data_ref() {
                        quotas.spend(&tenant, data.len(), quotas.since.elapsed());
                    }
                    frame
                };
                let request = request.map(|inner| Body::new(inner.map_frame(weighed)));
                next.call(request).await.map(|answer| answer.hold(running))
            }
            Err(fault) => refuse(fault),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use strata_core::Reason;

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name).expect("an id")
    }

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn quotas(each: Quota) -> Quotas {
        Quotas::new(Arc::new(ArcSwap::from_pointee(QuotaSettings { each, ..QuotaSettings::default() })))
    }

    #[test]
    fn a_tenant_is_told_when_to_come_again_and_others_notice_nothing() {
        let quotas = quotas(Quota { calls_per_second: 2.0, burst: 3, ..Quota::default() });
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
        let quotas = Quotas::new(Arc::new(ArcSwap::from_pointee(QuotaSettings { tenants, ..QuotaSettings::default() })));
        let _one = quotas.enter(&tenant("vip"), ms(0)).expect("first");
        assert!(quotas.enter(&tenant("vip"), ms(0)).is_err());
        quotas.enter(&tenant("other"), ms(0)).expect("any number");
        assert_eq!(quotas.uses.lock().len(), 1);
    }

    #[test]
    fn who_sent_more_than_it_may_waits_until_it_is_earned() {
        let quotas = quotas(Quota { bytes_per_second: 1_000.0, ..Quota::default() });
        let (busy, calm) = (tenant("busy"), tenant("calm"));
        let call = |tenant: &TenantId, bytes: usize, at: u64| {
            let running = quotas.enter(tenant, ms(at));
            quotas.spend(tenant, if running.is_ok() { bytes } else { 0 }, ms(at));
            running.err().map(|fault| (fault.reason, fault.retry_after_ms))
        };
        assert_eq!(call(&busy, 3_500, 0), None, "one call may go beyond");
        assert_eq!(call(&busy, 1, 0), Some((Reason::Overloaded, Some(2_500))), "and is paid for");
        assert_eq!(call(&calm, 999, 0), None);
        assert_eq!(call(&calm, 1, 0), None, "within the second's worth");
        assert_eq!(call(&busy, 1, 2_499), Some((Reason::Overloaded, Some(1))));
        assert_eq!(call(&busy, 0, 2_500), None, "as it was told");
        assert_eq!(call(&busy, 1_500, 60_000), None);
        assert_eq!(call(&busy, 1, 60_000), Some((Reason::Overloaded, Some(500))), "a pause earns a second's worth and no more");
    }

    #[test]
    fn a_quota_that_changes_holds_for_the_next_call() {
        let quotas = quotas(Quota::default());
        let tenant = tenant("t");
        let _unbounded: Vec<_> = (0..50).map(|_| quotas.enter(&tenant, ms(0)).expect("no bound")).collect();
        quotas.settings.store(Arc::new(QuotaSettings {
            each: Quota { calls_per_second: 1.0, burst: 1, ..Quota::default() },
            ..QuotaSettings::default()
        }));
        quotas.enter(&tenant, ms(0)).expect("the first");
        let refused = quotas.enter(&tenant, ms(0)).err().expect("over");
        assert!(
            refused.metadata.contains(&("quota", "calls_per_second".into())) && refused.message.contains(" of 1 "),
            "{refused}"
        );
        quotas.settings.store(Arc::default());
        quotas.enter(&tenant, ms(0)).expect("no bound again");
    }

    #[test]
    fn memory_is_bounded_by_the_number_of_tenants() {
        let quotas = quotas(Quota { calls_per_second: 1.0, burst: 1, ..Quota::default() });
        for n in 0..TENANTS + 50 {
            quotas.enter(&tenant(&format!("t{n}")), ms(0)).expect("its first");
        }
        assert_eq!(quotas.uses.lock().len(), TENANTS);
        quotas.enter(&tenant("later"), ms(2_000)).expect("its first");
        assert_eq!(quotas.uses.lock().len(), 1, "whole bursts are forgotten");
    }

    #[test]
    fn a_tenant_whose_calls_run_is_not_forgotten_however_many_come_after_it() {
        let quotas = quotas(Quota { calls_per_second: 1.0, burst: 2, in_flight: 1, ..Quota::default() });
        let long = quotas.enter(&tenant("long"), ms(0)).expect("its first");
        for n in 0..TENANTS + 50 {
            quotas.enter(&tenant(&format!("t{n}")), ms(1)).expect("its first");
        }
        assert_eq!(quotas.uses.lock().len(), TENANTS);
        let refused = quotas.enter(&tenant("long"), ms(2)).err().expect("one runs");
        assert!(refused.metadata.contains(&("quota", Bound::InFlight.name().into())), "{refused}");
        drop(long);
        quotas.enter(&tenant("long"), ms(2)).expect("it was given back");
    }
}
