//! Load: many clients in closed loops for throughput, and an open loop for behaviour under overload.
//!
//! In the open loop calls leave on a schedule whatever became of earlier ones, and the latency of a call counts from the
//! moment it was *meant* to leave: a server that stalls cannot hide it by holding up the generator. The schedule is kept
//! by a plain thread, because timers of the async runtime tick at a millisecond.

use crate::stats::Latencies;
use anyhow::{Context as _, Result};
use futures::{StreamExt as _, future, stream::FuturesUnordered};
use std::{future::Future, time::Duration};
use strata_runtime::ports::Stopwatch;
use tokio::sync::mpsc;
use tonic::{Code, Status};

/// What became of a run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Latencies of the calls that were served.
    pub served: Latencies,
    /// Calls refused with `OVERLOADED`: what a server shall do with what it cannot hold.
    pub refused: u64,
    /// Other failures.
    pub failed: u64,
    /// The last of them.
    pub failure: Option<String>,
    /// Length of the run.
    pub took: Duration,
}

impl Run {
    fn new() -> Self {
        Self { served: Latencies::new(), refused: 0, failed: 0, failure: None, took: Duration::ZERO }
    }

    fn count(&mut self, latency: Duration, answer: Result<(), Status>) {
        match answer {
            Ok(()) => self.served.record(latency),
            Err(status) if status.code() == Code::ResourceExhausted => self.refused += 1,
            Err(status) => {
                self.failed += 1;
                self.failure = Some(format!("{}: {}", status.code(), status.message()));
            }
        }
    }

    /// Served calls per second.
    pub fn per_second(&self) -> f64 {
        self.served.count() as f64 / self.took.as_secs_f64().max(f64::EPSILON)
    }
}

/// `clients` clients, each with one call in flight, for `time`. `call` gets the number of the call, from 0, each once.
pub async fn closed<F: Future<Output = Result<(), Status>>>(clients: usize, time: Duration, call: impl Fn(u64) -> F) -> Run {
    let watch = Stopwatch::start();
    closed_while(clients, |_| watch.elapsed() < time, call).await
}

/// As [`closed`], for the calls `0..count`.
pub async fn closed_count<F: Future<Output = Result<(), Status>>>(clients: usize, count: u64, call: impl Fn(u64) -> F) -> Run {
    closed_while(clients, |number| number < count, call).await
}

/// As [`closed`], for the calls `0..count` at most.
pub async fn closed_within<F: Future<Output = Result<(), Status>>>(
    clients: usize,
    time: Duration,
    count: u64,
    call: impl Fn(u64) -> F,
) -> Run {
    let watch = Stopwatch::start();
    closed_while(clients, |number| number < count && watch.elapsed() < time, call).await
}

async fn closed_while<F: Future<Output = Result<(), Status>>>(
    clients: usize,
    more: impl Fn(u64) -> bool,
    call: impl Fn(u64) -> F,
) -> Run {
    let run = std::cell::RefCell::new(Run::new());
    let next = std::cell::Cell::new(0_u64);
    let watch = Stopwatch::start();
    let client = |_| async {
        loop {
            let number = next.get();
            if !more(number) {
                return;
            }
            next.set(number + 1);
            let begin = watch.elapsed();
            let answer = call(number).await;
            run.borrow_mut().count(watch.elapsed() - begin, answer);
        }
    };
    future::join_all((0..clients).map(client)).await;
    let mut run = run.into_inner();
    run.took = watch.elapsed();
    run
}

/// `rate` calls a second for `time`, on schedule. Waits for the answers of all.
///
/// # Errors
/// When no thread can be started.
pub async fn open<F: Future<Output = Result<(), Status>>>(rate: f64, time: Duration, call: impl Fn(u64) -> F) -> Result<Run> {
    let count = (rate * time.as_secs_f64()).ceil() as u64;
    // Bounded by the length of the run: the schedule must not wait for the caller.
    let (due, mut calls) = mpsc::channel::<(u64, Duration)>(usize::try_from(count.max(1)).unwrap_or(usize::MAX >> 4));
    let watch = Stopwatch::start();
    let schedule = move || {
        for number in 0..count {
            let at = Duration::from_secs_f64(number as f64 / rate);
            pause_until(watch, at);
            if due.blocking_send((number, at)).is_err() {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("schedule".into()).spawn(schedule).context("a thread for the schedule")?;
    let mut run = Run::new();
    let mut flying = FuturesUnordered::new();
    let mut open = true;
    while open || !flying.is_empty() {
        tokio::select! {
            next = calls.recv(), if open => match next {
                Some((number, at)) => {
                    let answer = call(number);
                    flying.push(async move {
                        let answer = answer.await;
                        (watch.elapsed().saturating_sub(at), answer)
                    });
                }
                None => open = false,
            },
            Some((latency, answer)) = flying.next(), if !flying.is_empty() => run.count(latency, answer),
        }
    }
    run.took = watch.elapsed();
    // It ended before the channel did.
    let _ended = thread.join();
    Ok(run)
}

/// Sleeps the plain thread of the schedule: the kernel wakes it to within some 50 us.
#[expect(clippy::disallowed_methods, reason = "a thread that does nothing but wait for the next call's time")]
fn pause_until(watch: Stopwatch, at: Duration) {
    let left = at.saturating_sub(watch.elapsed());
    if !left.is_zero() {
        std::thread::sleep(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use strata_runtime::ports::pause;

    #[tokio::test]
    async fn the_open_loop_does_not_wait_for_a_stalled_server() {
        // One call at a time, the first stalls: the latencies of those behind it must show the stall.
        let gate = tokio::sync::Semaphore::new(1);
        let call = |number| {
            let gate = &gate;
            async move {
                let _one = gate.acquire().await;
                if number == 0 {
                    pause(Duration::from_millis(100)).await;
                }
                Ok(())
            }
        };
        let run = open(1_000.0, Duration::from_millis(50), call).await.expect("a run");
        assert_eq!((run.served.count(), run.refused, run.failed), (50, 0, 0));
        assert!(run.served.micros(0.02).is_some_and(|us| us > 40_000.0), "{:?}", run.served.micros(0.02));
    }

    #[tokio::test]
    async fn refusals_are_no_failures_and_no_latencies() {
        let call = |number| async move {
            match number % 3 {
                0 => Ok(()),
                1 => Err(Status::resource_exhausted("later")),
                _ => Err(Status::internal("a defect")),
            }
        };
        let run = closed_count(4, 30, call).await;
        assert_eq!((run.served.count(), run.refused, run.failed), (10, 10, 10));
        assert!(run.failure.is_some_and(|f| f.contains("a defect")));
    }

    #[tokio::test]
    async fn each_call_of_the_closed_loop_has_its_own_number() {
        let sum = Cell::new(0);
        let run = closed_count(8, 100, |number| {
            sum.set(sum.get() + number);
            async { Ok(()) }
        })
        .await;
        assert_eq!((run.served.count(), sum.get()), (100, 4_950));
        assert!(run.per_second() > 0.0);
    }
}
