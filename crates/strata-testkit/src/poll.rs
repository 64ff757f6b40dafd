//! Waiting for a condition. A test never sleeps for a while and hopes: it says what it waits for and for how long at most.

use std::fmt::Display;
use std::panic::Location;
use std::time::{Duration, Instant};

/// Time between two looks: short against every time limit of the product, long enough not to disturb what is measured.
const INTERVAL: Duration = Duration::from_millis(5);

/// Waits until `condition` answers true.
///
/// # Panics
/// When it still answers false after `timeout`; the message names the calling line.
#[track_caller]
pub fn eventually<F, T>(timeout: Duration, mut condition: F) -> impl Future<Output = ()>
where
    F: FnMut() -> T,
    T: Future<Output = bool>,
{
    eventually_some(timeout, move || {
        let look = condition();
        async move { look.await.then_some(()) }
    })
}

/// Waits until `find` answers a value, and returns it.
///
/// # Panics
/// When it still answers `None` after `timeout`; the message names the calling line.
#[track_caller]
pub fn eventually_some<F, T, V>(timeout: Duration, mut find: F) -> impl Future<Output = V>
where
    F: FnMut() -> T,
    T: Future<Output = Option<V>>,
{
    let caller = Location::caller();
    async move {
        let deadline = Instant::now() + timeout;
        for looks in 1_u64.. {
            if let Some(value) = find().await {
                return value;
            }
            assert!(Instant::now() < deadline, "{}", expired(caller, timeout, looks));
            tokio::time::sleep(INTERVAL).await;
        }
        unreachable!("the loop ends by its value or its deadline")
    }
}

/// Waits, blocking the thread, until `find` answers a value, and returns it.
///
/// # Errors
/// A message naming the calling line when `find` still answers `None` after `timeout`.
#[track_caller]
pub fn blocking<V>(timeout: Duration, mut find: impl FnMut() -> Option<V>) -> Result<V, String> {
    let caller = Location::caller();
    let deadline = Instant::now() + timeout;
    for looks in 1_u64.. {
        if let Some(value) = find() {
            return Ok(value);
        }
        if Instant::now() >= deadline {
            return Err(expired(caller, timeout, looks));
        }
        std::thread::sleep(INTERVAL);
    }
    unreachable!("the loop ends by its value or its deadline")
}

fn expired(caller: impl Display, timeout: Duration, looks: u64) -> String {
    format!("the condition at {caller} still does not hold after {timeout:?} ({looks} looks)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[tokio::test]
    async fn it_returns_as_soon_as_the_condition_holds() {
        let looks = Cell::new(0);
        eventually(Duration::from_secs(60), || async {
            looks.set(looks.get() + 1);
            looks.get() == 3
        })
        .await;
        assert_eq!(looks.get(), 3);
        assert_eq!(eventually_some(Duration::ZERO, || async { Some(7) }).await, 7);
    }

    #[tokio::test]
    #[should_panic(expected = "poll.rs")]
    async fn it_names_the_caller_when_time_is_up() {
        eventually(Duration::from_millis(10), || async { false }).await;
    }

    #[test]
    fn the_blocking_form_reports_instead_of_panicking() {
        let error = blocking(Duration::ZERO, || None::<()>).expect_err("never holds");
        assert!(error.contains("poll.rs") && error.contains("1 looks"), "{error}");
    }
}
