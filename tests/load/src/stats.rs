//! Distributions of latencies, and how ours is compared with the raw engine's.

use anyhow::Result;
use hdrhistogram::Histogram;
use std::time::Duration;
use strata_runtime::ports::{Stopwatch, pause};

/// Longest latency that is told apart: one minute. Longer ones count as this long.
const LONGEST_NANOS: u64 = 60_000_000_000;
/// Decimal digits kept of each latency: 0.1 %.
const DIGITS: u8 = 3;

/// Latencies of one kind of operation.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

impl Latencies {
    /// None yet.
    pub fn new() -> Self {
        Self(Histogram::new_with_bounds(1, LONGEST_NANOS, DIGITS).expect("constant bounds"))
    }

    /// Adds one.
    pub fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(LONGEST_NANOS);
        self.0.saturating_record(nanos.clamp(1, LONGEST_NANOS));
    }

    /// Adds all of another.
    pub fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("the same constant bounds");
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The latency in microseconds that the share `quantile` of all does not exceed; `None` when there are none.
    pub fn micros(&self, quantile: f64) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.value_at_quantile(quantile) as f64 / 1_000.0)
    }

    /// Median in microseconds.
    pub fn p50(&self) -> Option<f64> {
        self.micros(0.5)
    }

    /// 99th percentile in microseconds.
    pub fn p99(&self) -> Option<f64> {
        self.micros(0.99)
    }
}

/// `ours / theirs`; `None` unless both are positive numbers.
pub fn ratio(ours: Option<f64>, theirs: Option<f64>) -> Option<f64> {
    match (ours, theirs) {
        (Some(ours), Some(theirs)) if ours > 0.0 && theirs > 0.0 => Some(ours / theirs).filter(|r| r.is_finite()),
        _ => None,
    }
}

/// The value that the share `quantile` of all does not exceed (nearest rank); `None` when there are none. Sorts.
pub fn quantile(values: &mut [f64], quantile: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let rank = (quantile * values.len() as f64).ceil().max(1.0) as usize;
    values.get(rank.min(values.len()).checked_sub(1)?).copied()
}

/// How long and in which pieces two operations are measured against each other.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Operations of each kind before anything counts.
    pub warm_up: usize,
    /// Operations of one kind in a row: short, so that a change of the machine's speed meets both.
    pub block: usize,
    /// Time for all of it; at least [`Plan::MIN_PAIRS`] pairs of blocks are measured even when they take longer.
    pub time: Duration,
    /// Rest after each pair of blocks, outside the measurement: for calls so short that they would run into a limit on
    /// calls per second.
    pub rest: Duration,
}

impl Plan {
    /// Pairs of blocks that are always measured.
    const MIN_PAIRS: usize = 3;
}

/// Two operations measured in turn.
#[derive(Clone, Debug)]
pub struct Paired {
    /// Ours.
    pub ours: Latencies,
    /// The raw engine.
    pub raw: Latencies,
    /// Ratio of the medians of each pair of blocks.
    pub block_ratios: Vec<f64>,
}

impl Paired {
    /// The 10th and the 90th percentile of the ratios of single pairs of blocks: how far the machine moved under us.
    pub fn spread(&self) -> Option<(f64, f64)> {
        let mut ratios = self.block_ratios.clone();
        Some((quantile(&mut ratios, 0.1)?, quantile(&mut ratios, 0.9)?))
    }
}

/// Measures two operations by one client, each call after the answer of the one before, in blocks A B B A A B B A ...
///
/// # Errors
/// The first error of either: a refused operation is no measurement.
pub async fn paired(
    plan: Plan,
    mut ours: impl AsyncFnMut() -> Result<()>,
    mut raw: impl AsyncFnMut() -> Result<()>,
) -> Result<Paired> {
    for _ in 0..plan.warm_up {
        ours().await?;
        raw().await?;
    }
    let mut all = Paired { ours: Latencies::new(), raw: Latencies::new(), block_ratios: Vec::new() };
    let watch = Stopwatch::start();
    for pair in 0_usize.. {
        if pair >= Plan::MIN_PAIRS && watch.elapsed() >= plan.time {
            break;
        }
        let mut block = [Latencies::new(), Latencies::new()];
        for turn in 0..2 {
            // The first of a pair changes, so that an effect of the order meets both.
            let is_ours = (pair + turn) % 2 == 0;
            for _ in 0..plan.block {
                let call = Stopwatch::start();
                if is_ours {
                    ours().await?;
                } else {
                    raw().await?;
                }
                let took = call.elapsed();
                block[usize::from(!is_ours)].record(took);
                if is_ours { &mut all.ours } else { &mut all.raw }.record(took);
            }
        }
        all.block_ratios.extend(ratio(block[0].p50(), block[1].p50()));
        if !plan.rest.is_zero() {
            pause(plan.rest).await;
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn percentiles_are_exact_to_a_thousandth() {
        let mut latencies = Latencies::new();
        assert_eq!((latencies.p50(), latencies.count()), (None, 0));
        for micros in 1..=1_000 {
            latencies.record(Duration::from_micros(micros));
        }
        let near = |value: Option<f64>, wanted: f64| value.is_some_and(|v| (v / wanted - 1.0).abs() <= 0.001);
        assert!(near(latencies.p50(), 500.0), "{:?}", latencies.p50());
        assert!(near(latencies.p99(), 990.0), "{:?}", latencies.p99());
        assert!(near(latencies.micros(1.0), 1_000.0));
    }

    #[test]
    fn a_latency_out_of_range_counts_at_the_edge() {
        let mut latencies = Latencies::new();
        latencies.record(Duration::ZERO);
        latencies.record(Duration::from_secs(3_600));
        assert_eq!(latencies.count(), 2);
        assert!(latencies.micros(1.0).is_some_and(|us| (us / 60e6 - 1.0).abs() < 0.001));
    }

    #[test]
    fn a_ratio_needs_two_positive_numbers() {
        assert_eq!(ratio(Some(3.0), Some(2.0)), Some(1.5));
        for (ours, theirs) in [(None, Some(1.0)), (Some(1.0), None), (Some(1.0), Some(0.0)), (Some(f64::NAN), Some(1.0))] {
            assert_eq!(ratio(ours, theirs), None);
        }
    }

    #[test]
    fn quantiles_are_by_nearest_rank() {
        let mut values = [5.0, 1.0, 3.0, 2.0, 4.0];
        assert_eq!(quantile(&mut values, 0.5), Some(3.0));
        assert_eq!((quantile(&mut values, 0.0), quantile(&mut values, 1.0)), (Some(1.0), Some(5.0)));
        assert_eq!(quantile(&mut [], 0.5), None);
    }

    #[tokio::test]
    async fn blocks_alternate_and_the_first_of_a_pair_changes() {
        let order = RefCell::new(String::new());
        let plan = Plan { warm_up: 0, block: 2, time: Duration::ZERO, rest: Duration::ZERO };
        let ours = async || {
            order.borrow_mut().push('a');
            Ok(())
        };
        let raw = async || {
            order.borrow_mut().push('b');
            Ok(())
        };
        let paired = paired(plan, ours, raw).await.expect("no errors");
        assert_eq!(order.into_inner(), "aabbbbaaaabb");
        assert_eq!((paired.ours.count(), paired.raw.count(), paired.block_ratios.len()), (6, 6, 3));
    }

    #[tokio::test]
    async fn a_refused_operation_is_no_measurement() {
        let plan = Plan { warm_up: 0, block: 1, time: Duration::ZERO, rest: Duration::ZERO };
        assert!(paired(plan, async || anyhow::bail!("refused"), async || Ok(())).await.is_err());
    }
}
