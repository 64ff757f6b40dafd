//! How many reads a listener serves at a time: as many as it can without slowing each other down.
//!
//! A fixed limit is either too low for calls that wait for something else, or so high that an overloaded service answers
//! everybody late. This one is found by measurement. A method's own time is learnt from calls that came while the listener
//! was all but idle. Over a window, the time that calls took is compared with the time they would have taken alone: far
//! above it, they stand in each other's way and the limit falls; otherwise it rises again wherever it was reached. A short
//! burst is served whole, since only a window that is slow as a whole counts.

use crate::ports::Stopwatch;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Shortest window, of time in which calls ran: long enough for a burst to pass.
const WINDOW: Duration = Duration::from_millis(100);
/// Fewest calls that say something about a window.
const SAMPLES: u32 = 16;
/// Calls take this many times their own time before the listener counts as overloaded: at 70 % load they take about three
/// times it, by the laws of queueing.
const SLOWDOWN: f64 = 4.0;
/// Calls that are answered sooner on average are not late, whatever their own time.
const NEVER_LATE: Duration = Duration::from_millis(2);
/// What is left after a slow window, at least and at most; in between as much as would have made it a good one. Taken of the
/// calls that there were: a limit far above them bounds nothing, and would take long to come down.
const DECREASE: std::ops::RangeInclusive<f64> = 0.5..=0.9;
/// Weight of a new call in the learnt time of its method.
const LEARN: f64 = 0.05;
/// Calls in flight that leave a two-core machine idle enough to learn from; also the lowest limit is a multiple of it.
const IDLE: usize = 2;
/// Lowest limit: below it even a service that waits for nothing leaves cores unused.
pub const LOWEST: usize = 4 * IDLE;

/// The limit and who holds places. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AdaptiveLimit {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    limit: AtomicUsize,
    in_flight: AtomicUsize,
    since: Stopwatch,
    window: Mutex<Window>,
}

/// What the calls of a window took. Pure: times come from outside.
#[derive(Debug)]
struct Window {
    highest: usize,
    /// How long it has lasted: only time in which calls ran, or a pause before a burst would say that the burst is nothing.
    busy: Duration,
    /// When the last call ended, since the start of the listener.
    last: Duration,
    samples: u32,
    /// Seconds the calls took, and would have taken alone.
    taken: f64,
    alone: f64,
    /// Whether a call found the limit reached.
    reached: bool,
    /// Seconds of each method's own time; as many entries as there are methods.
    own: HashMap<&'static str, f64>,
}

impl Window {
    fn new(highest: usize) -> Self {
        Self {
            highest,
            busy: Duration::ZERO,
            last: Duration::ZERO,
            samples: 0,
            taken: 0.0,
            alone: 0.0,
            reached: false,
            own: HashMap::new(),
        }
    }

    /// Takes in a served call; the next limit once the window says enough.
    fn served(&mut self, method: &'static str, taken: Duration, idle: bool, now: Duration, limit: usize) -> Option<usize> {
        let seconds = taken.as_secs_f64();
        if idle {
            self.own.entry(method).and_modify(|own| *own += LEARN * (seconds - *own)).or_insert(seconds);
        }
        self.alone += self.own.get(method)?;
        self.samples += 1;
        self.taken += seconds;
        self.busy += now.saturating_sub(self.last).min(taken);
        self.last = self.last.max(now);
        if self.samples < SAMPLES || self.busy < WINDOW {
            return None;
        }
        let next = self.judge(limit);
        (self.busy, self.samples, self.taken, self.alone, self.reached) = (Duration::ZERO, 0, 0.0, 0.0, false);
        Some(next)
    }

    fn judge(&self, limit: usize) -> usize {
        let mean = self.taken / f64::from(self.samples);
        let good = SLOWDOWN * self.alone / self.taken;
        if good < 1.0 && mean > NEVER_LATE.as_secs_f64() {
            // Little's law: calls at a time are their rate times how long they take.
            let calls = (self.taken / self.busy.as_secs_f64()).min(limit as f64);
            ((calls * good.clamp(*DECREASE.start(), *DECREASE.end())) as usize).max(LOWEST.min(self.highest))
        } else if self.reached {
            (limit + (limit / 10).max(1)).min(self.highest)
        } else {
            limit
        }
    }
}

/// A place of a call; given back when dropped.
#[derive(Debug)]
pub struct Place {
    shared: Arc<Shared>,
    began: Duration,
    /// The listener was all but idle when the call came.
    idle: bool,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

impl AdaptiveLimit {
    /// Between [`LOWEST`] and `highest`, where it begins.
    #[must_use]
    pub fn new(highest: usize) -> Self {
        let window = Mutex::new(Window::new(highest));
        let (limit, in_flight) = (AtomicUsize::new(highest), AtomicUsize::new(0));
        Self { shared: Arc::new(Shared { limit, in_flight, since: Stopwatch::start(), window }) }
    }

    /// A place for a call; none when the limit is reached.
    #[must_use]
    pub fn enter(&self) -> Option<Place> {
        let before = self.shared.in_flight.fetch_add(1, Ordering::AcqRel);
        let place = Place { shared: Arc::clone(&self.shared), began: self.shared.since.elapsed(), idle: before < IDLE };
        if before < self.shared.limit.load(Ordering::Acquire) {
            return Some(place);
        }
        self.shared.window.lock().reached = true;
        None
    }

    /// A call of `method` was served. Refused and failed calls are not told: how long they take says nothing.
    pub fn served(&self, method: &'static str, place: &Place) {
        let now = self.shared.since.elapsed();
        let limit = self.shared.limit.load(Ordering::Acquire);
        let next = self.shared.window.lock().served(method, now.saturating_sub(place.began), place.idle, now, limit);
        if let Some(next) = next.filter(|next| *next != limit) {
            tracing::debug!(limit = next, "calls in flight are limited anew");
            self.shared.limit.store(next, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Duration = Duration::from_millis(2);
    const HIGHEST: usize = 64;

    /// A listener whose calls take as long as a test says.
    struct Listener {
        window: Window,
        limit: usize,
        now: Duration,
    }

    impl Listener {
        fn new() -> Self {
            Self { window: Window::new(HIGHEST), limit: HIGHEST, now: Duration::ZERO }
        }

        /// `calls` calls at a time, each taking `each`, for `rounds` rounds; answers how many were refused.
        fn serve(&mut self, calls: usize, each: Duration, rounds: u32) -> usize {
            let mut refused = 0;
            for _ in 0..rounds {
                let served = calls.min(self.limit);
                refused += calls - served;
                self.window.reached |= served < calls;
                self.now += each;
                for _ in 0..served {
                    let next = self.window.served("Recall", each, calls <= IDLE, self.now, self.limit);
                    self.limit = next.unwrap_or(self.limit);
                }
            }
            refused
        }
    }

    #[test]
    fn calls_that_slow_each_other_down_lower_the_limit_and_it_comes_back() {
        let mut listener = Listener::new();
        assert_eq!(listener.serve(1, OWN, 100), 0);
        assert_eq!(listener.serve(64, OWN, 100), 0, "calls that wait for something else may be many");
        assert_eq!(listener.limit, HIGHEST);
        listener.serve(64, OWN * 30, 50);
        assert_eq!(listener.limit, LOWEST);
        assert!(listener.serve(64, OWN * 30, 1) > 0);
        listener.serve(64, OWN, 2_000);
        assert_eq!(listener.limit, HIGHEST);
    }

    #[test]
    fn a_burst_is_served_whole() {
        let mut listener = Listener::new();
        listener.serve(1, OWN, 100);
        assert_eq!(listener.serve(60, OWN * 20, 1), 0);
    }

    #[test]
    fn a_burst_after_a_pause_is_served_whole() {
        let mut listener = Listener::new();
        listener.serve(1, OWN, 100);
        // A few calls that fill no window, and hours without any: the time in which nobody called says nothing of a burst.
        listener.serve(1, OWN, 10);
        listener.now += Duration::from_secs(3_600);
        assert_eq!(listener.serve(40, OWN * 20, 1), 0);
        assert_eq!(listener.limit, HIGHEST, "it was over before a window was");
    }

    #[test]
    fn a_limit_that_was_never_reached_comes_down_to_the_calls_there_are_at_once() {
        let mut listener = Listener::new();
        listener.serve(1, OWN, 100);
        // Three windows of calls that stand in each other's way, far below the limit.
        listener.serve(20, OWN * 50, 3);
        assert!((LOWEST..=10).contains(&listener.limit), "{}", listener.limit);
    }

    #[test]
    fn what_is_answered_at_once_is_never_late() {
        let mut listener = Listener::new();
        listener.serve(1, Duration::from_micros(50), 3_000);
        listener.serve(64, Duration::from_millis(1), 1_000);
        assert_eq!(listener.limit, HIGHEST);
    }

    #[test]
    fn a_method_that_was_never_seen_alone_says_nothing() {
        let mut listener = Listener::new();
        listener.serve(64, OWN * 100, 100);
        assert_eq!(listener.limit, HIGHEST);
    }

    #[test]
    fn a_place_is_given_back_however_the_call_ends() {
        let limit = AdaptiveLimit::new(1);
        let place = limit.enter().expect("a place");
        assert!(limit.enter().is_none());
        drop(place);
        assert!(limit.enter().is_some(), "the refused call holds none either");
    }
}
