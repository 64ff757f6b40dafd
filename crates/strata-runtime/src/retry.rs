//! Bounded retries with exponential backoff, for loops around stores. Never for a caller's RPC: clients retry those.

use crate::ports::{RandomIds, pause};
use std::future::Future;
use std::time::Duration;
use strata_core::ports::IdSource;

/// How often and how long. The whole takes at most `attempts` calls and `attempts x max` of waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Calls in all, the first included; 0 counts as 1.
    pub attempts: u32,
    /// Wait before the second call; doubles each time.
    pub base: Duration,
    /// Longest wait.
    pub max: Duration,
}

impl Default for Backoff {
    /// 5 calls, 20 ms doubling up to 500 ms: bridges a reconnect, stays well under a caller's deadline.
    fn default() -> Self {
        Self { attempts: 5, base: Duration::from_millis(20), max: Duration::from_millis(500) }
    }
}

impl Backoff {
    /// Wait after call number `done` (1 = the first): between half and all of `base x 2^(done - 1)`, at most `max`.
    /// `noise` picks the place in that range, so that many clients of a store that comes back do not return as one.
    #[must_use]
    pub fn delay(&self, done: u32, noise: u8) -> Duration {
        let doubled = self.base.saturating_mul(1_u32.checked_shl(done.saturating_sub(1)).unwrap_or(u32::MAX)).min(self.max);
        doubled / 2 + doubled / 2 * u32::from(noise) / 255
    }
}

/// Calls `operation` until it answers, fails with an error that `retryable` denies, or the attempts are used up.
///
/// # Errors
/// The last error.
pub async fn with_backoff<T, E, F>(
    policy: Backoff,
    retryable: impl Fn(&E) -> bool,
    mut operation: impl FnMut() -> F,
) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
{
    let mut done = 1;
    loop {
        match operation().await {
            Err(error) if done < policy.attempts && retryable(&error) => {
                let noise = RandomIds.next().as_bytes()[15];
                pause(policy.delay(done, noise)).await;
                done += 1;
            }
            answer => return answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stops_at_success_at_a_final_error_and_at_the_limit() {
        let policy = Backoff { attempts: 4, base: Duration::from_micros(10), max: Duration::from_micros(50) };
        for (good_at, fatal_at, calls, ok) in [(1, 9, 1, true), (3, 9, 3, true), (9, 2, 2, false), (9, 9, 4, false)] {
            let mut n = 0;
            let answer = with_backoff(
                policy,
                |e: &u32| *e < fatal_at,
                || {
                    n += 1;
                    let n = n;
                    async move { if n >= good_at { Ok(()) } else { Err(n) } }
                },
            );
            assert_eq!(answer.await.is_ok(), ok);
            assert_eq!(n, calls);
        }
    }

    #[test]
    fn waits_grow_and_stay_bounded() {
        let policy = Backoff::default();
        for done in 1..64 {
            for noise in [0, 128, 255] {
                let delay = policy.delay(done, noise);
                assert!(delay <= policy.max && delay >= policy.base / 2, "{done} {noise} {delay:?}");
            }
        }
        assert!(policy.delay(3, 0) > policy.delay(1, 0));
    }
}
