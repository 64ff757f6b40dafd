//! Rows of the report: what was measured, against which limit, with which verdict.

use crate::{
    limits::Bound,
    stats::{Latencies, Paired, ratio},
};
use anyhow::{Context as _, Result, bail};
use serde::Serialize;
use serde_json::{Value, json};
use std::{io::Write, path::Path};

/// Least ratio that is believed: ours does what the raw side does and more; the rest is noise.
const PLAUSIBLE: f64 = 0.8;

/// What a row found.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Median of ours, in microseconds.
    pub p50_us: Option<f64>,
    /// 99th percentile of ours, in microseconds.
    pub p99_us: Option<f64>,
    /// Operations per second.
    pub per_second: Option<f64>,
    /// Median of the raw engine, in microseconds.
    pub raw_p50_us: Option<f64>,
    /// Ours over the raw engine, at the percentile of the limit.
    pub ratio: Option<f64>,
    /// Size or time, for rows without operations: bytes, megabytes or seconds, as the limit has it.
    pub amount: Option<f64>,
    /// Operations measured.
    pub samples: u64,
    /// 10th and 90th percentile of the ratio of single pairs of blocks.
    pub spread: Option<(f64, f64)>,
    /// What exactly was measured against what.
    pub note: String,
}

impl Measured {
    /// Of two operations measured in turn.
    ///
    /// # Errors
    /// When the raw engine was slower than what stands on it: then it is the raw side that is broken, and a ratio to it
    /// would flatter.
    pub fn paired(paired: &Paired, note: impl Into<String>) -> Result<Self> {
        let (ratio, note) = (ratio(paired.ours.p50(), paired.raw.p50()), note.into());
        if let Some(ratio) = ratio.filter(|r| *r < PLAUSIBLE) {
            bail!("the raw side took longer than ours (ratio {ratio:.2}), so it is no measure: {note}");
        }
        Ok(Self { raw_p50_us: paired.raw.p50(), ratio, spread: paired.spread(), ..Self::alone(&paired.ours, note) })
    }

    /// Of one operation without a raw side.
    pub fn alone(ours: &Latencies, note: impl Into<String>) -> Self {
        Self { p50_us: ours.p50(), p99_us: ours.p99(), samples: ours.count(), note: note.into(), ..Self::default() }
    }

    /// Of a size or a time.
    pub fn amount(amount: f64, samples: u64, note: impl Into<String>) -> Self {
        Self { amount: Some(amount), samples, note: note.into(), ..Self::default() }
    }

    /// The number that is compared with the limit.
    fn value(&self, bound: Bound) -> Option<f64> {
        match bound {
            Bound::RatioP50(_) | Bound::RatioP99(_) => self.ratio,
            Bound::AddedMicros(_) => Some(self.p50_us? - self.raw_p50_us?),
            Bound::Micros(_) => self.p50_us,
            Bound::PerSecond(_) => self.per_second,
            Bound::BytesPerBoard(_) | Bound::Megabytes(_) | Bound::Seconds(_) => self.amount,
        }
    }
}

/// The verdict on a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Verdict {
    /// The limit is kept.
    #[serde(rename = "pass")]
    Pass,
    /// It is not.
    #[serde(rename = "fail")]
    Fail,
    /// What it needs is absent, or it broke: never a pass.
    #[serde(rename = "not measured")]
    NotMeasured,
}

impl Verdict {
    const fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "FAIL",
            Self::NotMeasured => "not measured",
        }
    }
}

/// A row of the report.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name, as in the limits.
    pub name: String,
    /// Its limit.
    pub bound: Bound,
    /// What was found, or why nothing was.
    pub outcome: Result<Measured, String>,
}

impl Row {
    /// The number that is compared with the limit.
    pub fn value(&self) -> Option<f64> {
        self.outcome.as_ref().ok().and_then(|m| m.value(self.bound)).filter(|v| v.is_finite())
    }

    /// The verdict.
    pub fn verdict(&self) -> Verdict {
        match self.value() {
            Some(value) if self.bound.holds(value) => Verdict::Pass,
            Some(_) => Verdict::Fail,
            None => Verdict::NotMeasured,
        }
    }

    fn note(&self) -> &str {
        match &self.outcome {
            Ok(measured) => &measured.note,
            Err(why) => why,
        }
    }

    /// As it stands in `report.json`. Numbers that were not measured are null.
    pub fn json(&self) -> Value {
        let none = Measured::default();
        let measured = self.outcome.as_ref().unwrap_or(&none);
        let (measure, limit) = self.bound.parts();
        json!({
            "name": self.name,
            "p50_us": measured.p50_us.map(rounded),
            "p99_us": measured.p99_us.map(rounded),
            "per_second": measured.per_second.map(rounded),
            "raw_p50_us": measured.raw_p50_us.map(rounded),
            "ratio": measured.ratio.map(rounded),
            "limit": limit,
            "verdict": self.verdict(),
            "measure": measure,
            "value": self.value().map(rounded),
            "samples": measured.samples,
            "ratio_p10_p90": measured.spread.map(|(low, high)| [rounded(low), rounded(high)]),
            "note": self.note(),
        })
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

/// Writes `report.json`: a list of rows.
///
/// # Errors
/// When the folder cannot be written.
pub fn write_json(rows: &[Row], folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    let path = folder.join("report.json");
    let list: Vec<Value> = rows.iter().map(Row::json).collect();
    std::fs::write(&path, serde_json::to_string_pretty(&list)? + "\n")
        .with_context(|| format!("{} cannot be written", path.display()))
}

/// Writes the table for people.
///
/// # Errors
/// When `out` is closed.
pub fn write_table(rows: &[Row], out: &mut impl Write) -> Result<()> {
    let shown = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), short);
    writeln!(
        out,
        "{:<21} {:>10} {:>10} {:>10} {:>10} {:>8} {:<24} verdict",
        "row", "p50 us", "p99 us", "per s", "raw p50", "value", "limit"
    )?;
    for row in rows {
        let none = Measured::default();
        let m = row.outcome.as_ref().unwrap_or(&none);
        let (measure, limit) = row.bound.parts();
        writeln!(
            out,
            "{:<21} {:>10} {:>10} {:>10} {:>10} {:>8} {:<24} {}",
            row.name,
            shown(m.p50_us),
            shown(m.p99_us),
            shown(m.per_second),
            shown(m.raw_p50_us),
            shown(row.value()),
            format!("{measure} {limit}"),
            row.verdict().name(),
        )?;
        writeln!(out, "    {}", row.note())?;
    }
    let count = |verdict: Verdict| rows.iter().filter(|r| r.verdict() == verdict).count();
    let (pass, fail, none) = (count(Verdict::Pass), count(Verdict::Fail), count(Verdict::NotMeasured));
    writeln!(out, "{pass} pass, {fail} fail, {none} not measured")?;
    Ok(())
}

fn short(value: f64) -> String {
    if value.abs() >= 1_000.0 {
        format!("{value:.0}")
    } else if value.abs() >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(bound: Bound, outcome: Result<Measured, String>) -> Row {
        Row { name: "row".into(), bound, outcome }
    }

    fn measured(ours: f64, raw: f64) -> Measured {
        Measured { p50_us: Some(ours), raw_p50_us: Some(raw), ratio: ratio(Some(ours), Some(raw)), ..Measured::default() }
    }

    #[test]
    fn the_verdict_follows_the_limit() {
        assert_eq!(row(Bound::RatioP50(1.3), Ok(measured(130.0, 100.0))).verdict(), Verdict::Pass);
        assert_eq!(row(Bound::RatioP50(1.3), Ok(measured(131.0, 100.0))).verdict(), Verdict::Fail);
        assert_eq!(row(Bound::AddedMicros(10.0), Ok(measured(12.0, 3.0))).verdict(), Verdict::Pass);
        assert_eq!(row(Bound::AddedMicros(10.0), Ok(measured(14.0, 3.0))).verdict(), Verdict::Fail);
        assert_eq!(row(Bound::Megabytes(60.0), Ok(Measured::amount(61.0, 1, ""))).verdict(), Verdict::Fail);
    }

    #[test]
    fn what_was_not_measured_is_never_a_pass() {
        assert_eq!(row(Bound::RatioP50(9.0), Err("no redis".into())).verdict(), Verdict::NotMeasured);
        assert_eq!(row(Bound::RatioP50(9.0), Ok(Measured::default())).verdict(), Verdict::NotMeasured);
        assert_eq!(row(Bound::Megabytes(9.0), Ok(Measured::amount(f64::NAN, 1, ""))).verdict(), Verdict::NotMeasured);
        // A raw side that was not measured gives no ratio, so no verdict.
        let lonely = Measured { p50_us: Some(1.0), ..Measured::default() };
        assert_eq!(row(Bound::RatioP50(9.0), Ok(lonely)).verdict(), Verdict::NotMeasured);
    }

    #[test]
    fn a_raw_side_slower_than_ours_is_no_measure() {
        let latencies = |micros| {
            let mut all = Latencies::new();
            all.record(std::time::Duration::from_micros(micros));
            all
        };
        let paired = |ours, raw| {
            Measured::paired(&Paired { ours: latencies(ours), raw: latencies(raw), block_ratios: Vec::new() }, "what")
        };
        assert!(paired(100, 40_000).is_err_and(|e| e.to_string().contains("no measure: what")));
        assert!(paired(90, 100).is_ok_and(|m| m.ratio.is_some_and(|r| (r - 0.9).abs() < 0.01)));
    }

    #[test]
    fn the_report_has_every_field() {
        let json = row(Bound::RatioP50(1.3), Ok(measured(130.0, 100.0))).json();
        for field in ["name", "p50_us", "p99_us", "per_second", "raw_p50_us", "ratio", "limit", "verdict", "note"] {
            assert!(json.get(field).is_some(), "{field}");
        }
        assert_eq!((json["verdict"].as_str(), json["ratio"].as_f64()), (Some("pass"), Some(1.3)));
        let json = row(Bound::RatioP50(1.3), Err("no redis".into())).json();
        assert_eq!((json["verdict"].as_str(), json["note"].as_str()), (Some("not measured"), Some("no redis")));
        assert!(json["ratio"].is_null());
    }

    #[test]
    fn the_table_names_what_is_missing() {
        let mut out = Vec::new();
        write_table(&[row(Bound::Megabytes(9.0), Err("needs QDRANT_URL".into()))], &mut out).expect("a buffer");
        let text = String::from_utf8(out).expect("text");
        assert!(
            text.contains("not measured") && text.contains("needs QDRANT_URL") && text.contains("0 pass, 0 fail, 1 not measured"),
            "{text}"
        );
    }
}
