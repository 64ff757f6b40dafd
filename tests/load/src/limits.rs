//! The limits of `limits.toml`: what each row may cost, and what must be there to measure it.

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The shipped limits, as they stand in the file.
const SHIPPED: &str = include_str!("../limits.toml");

/// Longest time from the start of the process to SERVING: the promise of the product ("ready in under two seconds"), which
/// is about a start and not about an engine, so it is not in the file.
pub const START_TO_READY_SECONDS: f64 = 2.0;

/// Most that a hundred times as many boards may add to the p99 of reading one: nothing, and the noise of a p99. About growth and
/// not about an engine, so it is not in the file.
pub const GET_TASK_GROWTH: f64 = 1.5;

/// What is compared with the limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Median of ours over median of the raw engine, at most.
    RatioP50(f64),
    /// 99th percentile of ours over that of the other run, at most.
    RatioP99(f64),
    /// Median of ours minus median of the raw engine, in microseconds, at most.
    AddedMicros(f64),
    /// Median, in microseconds, at most.
    Micros(f64),
    /// Operations per second (per CPU-second where the row says so), at least.
    PerSecond(f64),
    /// Bytes a board, at most.
    BytesPerBoard(f64),
    /// Megabytes (10^6 bytes) resident, at most.
    Megabytes(f64),
    /// Seconds, at most.
    Seconds(f64),
}

impl Bound {
    /// Name as in the file, and the number.
    pub const fn parts(self) -> (&'static str, f64) {
        match self {
            Self::RatioP50(limit) => ("max_ratio_p50", limit),
            Self::RatioP99(limit) => ("max_ratio_p99", limit),
            Self::AddedMicros(limit) => ("max_added_us_p50", limit),
            Self::Micros(limit) => ("max_p50_us", limit),
            Self::PerSecond(limit) => ("min_per_second", limit),
            Self::BytesPerBoard(limit) => ("max_bytes_per_board", limit),
            Self::Megabytes(limit) => ("max_mb", limit),
            Self::Seconds(limit) => ("max_seconds", limit),
        }
    }

    /// Whether a measured value keeps the limit. A value that is no number keeps none.
    pub fn holds(self, value: f64) -> bool {
        let (_, limit) = self.parts();
        match self {
            Self::PerSecond(_) => value >= limit,
            Self::RatioP50(_)
            | Self::RatioP99(_)
            | Self::AddedMicros(_)
            | Self::Micros(_)
            | Self::BytesPerBoard(_)
            | Self::Megabytes(_)
            | Self::Seconds(_) => value <= limit,
        }
    }
}

/// One row of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// What may not be exceeded.
    pub bound: Bound,
    /// What must be there: `redis`, or the name of an environment variable.
    pub needs: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    max_ratio_p50: Option<f64>,
    max_ratio_p99: Option<f64>,
    max_added_us_p50: Option<f64>,
    max_p50_us: Option<f64>,
    min_per_second: Option<f64>,
    max_bytes_per_board: Option<f64>,
    max_mb: Option<f64>,
    needs: Option<String>,
}

/// Rows by name.
pub type Limits = BTreeMap<String, Limit>;

/// The shipped limits and those that stand in code.
///
/// # Errors
/// When the file is malformed.
pub fn shipped() -> Result<Limits> {
    let mut limits = parse(SHIPPED)?;
    limits.insert("get_task_growth".into(), Limit { bound: Bound::RatioP99(GET_TASK_GROWTH), needs: None });
    limits.insert("start_to_ready".into(), Limit { bound: Bound::Seconds(START_TO_READY_SECONDS), needs: None });
    Ok(limits)
}

/// Reads limits from TOML: a table a row, each with exactly one bound.
///
/// # Errors
/// Names the row that has no bound, or several, or one that is no positive number.
pub fn parse(text: &str) -> Result<Limits> {
    let entries: BTreeMap<String, Entry> = toml::from_str(text).context("the limits are no TOML of the expected form")?;
    entries
        .into_iter()
        .map(|(name, entry)| {
            let bounds: Vec<Bound> = [
                entry.max_ratio_p50.map(Bound::RatioP50),
                entry.max_ratio_p99.map(Bound::RatioP99),
                entry.max_added_us_p50.map(Bound::AddedMicros),
                entry.max_p50_us.map(Bound::Micros),
                entry.min_per_second.map(Bound::PerSecond),
                entry.max_bytes_per_board.map(Bound::BytesPerBoard),
                entry.max_mb.map(Bound::Megabytes),
            ]
            .into_iter()
            .flatten()
            .collect();
            match bounds.as_slice() {
                [bound] if bound.parts().1 > 0.0 => Ok((name, Limit { bound: *bound, needs: entry.needs })),
                [_] => bail!("the limit of {name} is no positive number"),
                [] => bail!("{name} has no limit"),
                _ => bail!("{name} has several limits"),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_row_has_one_bound() {
        let limits = shipped().expect("the shipped file");
        assert_eq!(limits.len(), 20, "{:?}", limits.keys());
        assert_eq!(limits["get_task_tcp"], Limit { bound: Bound::RatioP50(1.3), needs: None });
        assert_eq!(limits["recall_qdrant"].needs.as_deref(), Some("QDRANT_URL"));
        assert_eq!(limits["remember_64_writers"].bound, Bound::PerSecond(3_000.0));
        assert_eq!(limits["overload_3x"].bound, Bound::RatioP99(2.0));
    }

    #[test]
    fn a_malformed_row_is_refused_by_name() {
        for (text, why) in [
            ("[a]\n", "a has no limit"),
            ("[a]\nmax_mb = 1\nmin_per_second = 2\n", "several"),
            ("[a]\nmax_mb = 0\n", "positive"),
            ("[a]\nmax_mb = nan\n", "positive"),
            ("[a]\nmax_bananas = 1\n", "form"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(format!("{error:#}").contains(why), "{text}: {error:#}");
        }
    }

    #[test]
    fn a_bound_holds_at_its_value_and_not_beyond() {
        assert!(Bound::RatioP50(1.3).holds(1.3) && !Bound::RatioP50(1.3).holds(1.31));
        assert!(Bound::PerSecond(700.0).holds(700.0) && !Bound::PerSecond(700.0).holds(699.9));
        assert!(!Bound::Megabytes(60.0).holds(f64::NAN) && !Bound::PerSecond(1.0).holds(f64::NAN));
    }
}
