//! Whether memory is worth what it costs (rules Q1 to Q4), and when to switch a part of it off (rule D3). Counting is the
//! store's work; what the counts mean is here.

use super::modes::Mode;
use crate::Fault;
use crate::rule::Finding;
use serde::{Deserialize, Serialize};

/// Settings of quality: section `policy.quality`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QualitySettings {
    /// Alarm when the hit rate is below this (rule Q4), 0..1.
    pub min_hit_rate: f64,
    /// Recalled items below which the hit rate raises no alarm.
    pub min_recalled: u64,
    /// Alarm when the pollution rate is above this by its lower bound, 0..1.
    pub max_pollution_rate: f64,
    /// Alarm when memory takes more than this share of the requests' tokens, 0..1.
    pub max_token_share: f64,
    /// Alarm when pollution or token share have grown by this factor since the window before, above 1.
    pub max_rise: f64,
    /// Reviews that a suggestion looks at, the newest (rule D3).
    pub reviews: u32,
    /// Reviews below which nothing is suggested.
    pub min_reviews: u32,
    /// A cause suggests its mode when the lower bound of its rate is above this, 0..1.
    pub enter_above: f64,
    /// And no longer when its plain rate is below this; at most `enter_above`.
    pub leave_below: f64,
    /// Switch to the suggested mode without being asked.
    pub automatic: bool,
}

impl Default for QualitySettings {
    fn default() -> Self {
        Self {
            min_hit_rate: 0.1,
            min_recalled: 200,
            max_pollution_rate: 0.05,
            max_token_share: 0.35,
            max_rise: 2.0,
            reviews: 200,
            min_reviews: 50,
            enter_above: 0.05,
            leave_below: 0.025,
            automatic: false,
        }
    }
}

impl QualitySettings {
    /// Checks the section.
    ///
    /// # Errors
    /// `INVALID_FIELD` naming the setting.
    pub fn validate(&self) -> Result<(), Fault> {
        let shares = [
            ("min_hit_rate", self.min_hit_rate),
            ("max_pollution_rate", self.max_pollution_rate),
            ("max_token_share", self.max_token_share),
            ("enter_above", self.enter_above),
            ("leave_below", self.leave_below),
        ];
        for (name, share) in shares {
            if !(0.0..=1.0).contains(&share) {
                return Err(Fault::field(format!("policy.quality.{name}"), "must lie between 0 and 1"));
            }
        }
        if self.leave_below > self.enter_above {
            return Err(Fault::field("policy.quality.leave_below", "must not be above enter_above"));
        }
        if !self.max_rise.is_finite() || self.max_rise <= 1.0 {
            return Err(Fault::field("policy.quality.max_rise", "must be above 1"));
        }
        if self.min_reviews == 0 || self.reviews < self.min_reviews || self.reviews > REVIEWS_MAX {
            let bounds = format!("must lie between min_reviews, which is at least 1, and {REVIEWS_MAX}");
            return Err(Fault::field("policy.quality.reviews", bounds));
        }
        Ok(())
    }
}

/// Most reviews that a suggestion looks at: one query of the store.
const REVIEWS_MAX: u32 = 10_000;
/// The 97.5 % quantile of the normal distribution: a two-sided interval of 95 %.
const Z: f64 = 1.959_963_984_540_054;

crate::record::vocabulary! {
    /// What a person made of a memory that was shown (rules D3, Q2).
    Verdict {
        /// Right, current, and to the point.
        Sound = "SOUND",
        /// It should not have been stored, or not like this.
        WrongWrite = "WRONG_WRITE",
        /// It was right once.
        Stale = "STALE",
        /// Right, and not what was asked for, or of somebody else.
        Mismatch = "MISMATCH",
    }
}

/// Part of a whole, with three decimals less of noise than its counts carry: `None` of nothing.
fn ratio(part: u64, whole: u64) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Rule Q1: cited over recalled; no value when nothing was recalled.
#[must_use]
pub fn hit_rate(cited: u64, recalled: u64) -> Option<f64> {
    ratio(cited.min(recalled), recalled)
}

/// Rule Q3: tokens of memory over tokens of the requests it went into; no value without requests.
#[must_use]
pub fn token_share(memory: u64, request: u64) -> Option<f64> {
    ratio(memory.min(request), request)
}

/// An interval of a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

/// Wilson's score interval of 95 % for `hits` of `n`; no value of nothing (rules Q2, D3).
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub fn wilson(hits: u64, n: u64) -> Option<Interval> {
    let p = ratio(hits.min(n), n)?;
    let n = n as f64;
    let (z2, denominator) = (Z * Z, 1.0 + Z * Z / n);
    let centre = (p + z2 / (2.0 * n)) / denominator;
    let half = Z / denominator * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
    Some(Interval { low: (centre - half).max(0.0), high: (centre + half).min(1.0) })
}

/// Counts of one tenant in one window of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Memories that were shown.
    pub recalled: u64,
    /// Of these, reported as used.
    pub cited: u64,
    /// Contexts that were assembled.
    pub contexts: u64,
    /// Tokens of memory in them.
    pub memory_tokens: u64,
    /// Tokens of the whole requests.
    pub request_tokens: u64,
}

/// Reviews, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reviews {
    /// Nothing wrong.
    pub sound: u64,
    /// Should not have been stored.
    pub wrong_write: u64,
    /// No longer true.
    pub stale: u64,
    /// Not what was asked for.
    pub mismatch: u64,
}

impl Reviews {
    /// Adds one.
    pub const fn add(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Sound => self.sound += 1,
            Verdict::WrongWrite => self.wrong_write += 1,
            Verdict::Stale => self.stale += 1,
            Verdict::Mismatch => self.mismatch += 1,
        }
    }

    /// All of them.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.sound + self.polluted()
    }

    /// Those that found something wrong.
    #[must_use]
    pub const fn polluted(&self) -> u64 {
        self.wrong_write + self.stale + self.mismatch
    }

    /// Rule Q2: the rate with its interval; no value without reviews.
    #[must_use]
    pub fn pollution(&self) -> Option<(f64, Interval)> {
        Some((ratio(self.polluted(), self.total())?, wilson(self.polluted(), self.total())?))
    }
}

/// Which causes are in force: they come at one mark and go at another (rule D3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Causes {
    /// Too many wrong writes.
    pub wrong_write: bool,
    /// Too much that is stale.
    pub stale: bool,
    /// Too much that does not fit.
    pub mismatch: bool,
}

impl Causes {
    /// Rule D3 over the newest reviews: what is in force after them, when `self` was before.
    #[must_use]
    pub fn after(self, reviews: &Reviews, settings: &QualitySettings) -> Self {
        let n = reviews.total();
        if n < u64::from(settings.min_reviews) {
            return self;
        }
        let judge = |was: bool, hits: u64| {
            let low = wilson(hits, n).map_or(0.0, |interval| interval.low);
            let plain = ratio(hits, n).unwrap_or_default();
            low > settings.enter_above || (was && plain >= settings.leave_below)
        };
        Self {
            wrong_write: judge(self.wrong_write, reviews.wrong_write),
            stale: judge(self.stale, reviews.stale),
            mismatch: judge(self.mismatch, reviews.mismatch),
        }
    }

    /// The mode of long-term memory they suggest.
    #[must_use]
    pub const fn mode(self) -> Mode {
        match (self.wrong_write, self.mismatch) {
            (false, false) => Mode::Normal,
            (true, false) => Mode::WriteOff,
            (false, true) => Mode::RecallOff,
            (true, true) => Mode::Bypass,
        }
    }
}

/// An alarm (rule Q4): its name, what it measured, and the mark it passed.
#[derive(Clone, Debug, PartialEq)]
pub struct Alarm {
    /// `HIT_RATE`, `POLLUTION`, `POLLUTION_RISE`, `TOKEN_SHARE`, `TOKEN_SHARE_RISE`.
    pub finding: Finding,
    /// Measured.
    pub value: f64,
    /// Its mark.
    pub threshold: f64,
}

/// Rule Q4: what is out of bounds in a window, and what has grown too much since the one before.
#[must_use]
pub fn alarms(now: (&Counts, &Reviews), before: (&Counts, &Reviews), settings: &QualitySettings) -> Vec<Alarm> {
    let mut out = Vec::new();
    let mut raise = |name: &'static str, value: f64, threshold: f64, because: &str| {
        out.push(Alarm { finding: Finding::new("Q4", name, because), value, threshold });
    };
    if let Some(rate) = hit_rate(now.0.cited, now.0.recalled)
        && now.0.recalled >= settings.min_recalled
        && rate < settings.min_hit_rate
    {
        raise("HIT_RATE", rate, settings.min_hit_rate, "too little of what is shown is used");
    }
    if let Some((rate, interval)) = now.1.pollution() {
        if interval.low > settings.max_pollution_rate {
            raise("POLLUTION", rate, settings.max_pollution_rate, "too much of what was reviewed is wrong");
        }
        if let Some((earlier, _)) = before.1.pollution()
            && now.1.total().min(before.1.total()) >= u64::from(settings.min_reviews)
            && earlier > 0.0
            && rate / earlier >= settings.max_rise
        {
            raise("POLLUTION_RISE", rate / earlier, settings.max_rise, "more is wrong than in the window before");
        }
    }
    if let Some(share) = token_share(now.0.memory_tokens, now.0.request_tokens) {
        if share > settings.max_token_share {
            raise("TOKEN_SHARE", share, settings.max_token_share, "memory takes too much of the requests");
        }
        if let Some(earlier) = token_share(before.0.memory_tokens, before.0.request_tokens)
            && earlier > 0.0
            && share / earlier >= settings.max_rise
        {
            raise("TOKEN_SHARE_RISE", share / earlier, settings.max_rise, "memory takes more than in the window before");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three(value: Option<f64>) -> String {
        value.map_or_else(|| "none".to_owned(), |value| format!("{value:.3}"))
    }

    fn reviews(sound: u64, wrong_write: u64, stale: u64, mismatch: u64) -> Reviews {
        Reviews { sound, wrong_write, stale, mismatch }
    }

    #[test]
    fn a191_a192_c147_golden_rates() {
        assert_eq!(three(hit_rate(13, 40)), "0.325");
        assert_eq!(three(hit_rate(0, 40)), "0.000");
        assert_eq!(three(hit_rate(0, 0)), "none");
        assert_eq!(three(hit_rate(1, 3)), "0.333");
        assert_eq!(three(token_share(900, 6_000)), "0.150");
        assert_eq!(three(token_share(0, 0)), "none");
    }

    #[test]
    fn a193_golden_intervals() {
        for (hits, n, low, high) in [
            (0, 10, "0.000", "0.278"),
            (1, 10, "0.018", "0.404"),
            (5, 50, "0.043", "0.214"),
            (6, 50, "0.056", "0.238"),
            (10, 200, "0.027", "0.090"),
            (16, 200, "0.050", "0.126"),
            (17, 200, "0.054", "0.132"),
            (10, 10, "0.722", "1.000"),
        ] {
            let interval = wilson(hits, n).expect("some");
            assert_eq!((three(Some(interval.low)), three(Some(interval.high))), (low.into(), high.into()), "{hits} of {n}");
        }
        assert_eq!(wilson(0, 0), None);
        assert_eq!(reviews(0, 0, 0, 0).pollution(), None);
        assert_eq!(three(reviews(96, 1, 2, 1).pollution().map(|(rate, _)| rate)), "0.040");
    }

    #[test]
    fn a199_pollution_suggests_a_mode_and_leaves_it_late() {
        let settings = QualitySettings::default();
        let none = Causes::default();
        let mode = |was: Causes, seen: Reviews| was.after(&seen, &settings).mode();
        // Too few reviews say nothing, whatever they say.
        assert_eq!(mode(none, reviews(0, 49, 0, 0)), Mode::Normal);
        assert_eq!(mode(none, reviews(44, 6, 0, 0)), Mode::WriteOff);
        assert_eq!(mode(none, reviews(45, 5, 0, 0)), Mode::Normal);
        assert_eq!(mode(none, reviews(183, 0, 0, 17)), Mode::RecallOff);
        assert_eq!(mode(none, reviews(166, 17, 0, 17)), Mode::Bypass);
        let stale = none.after(&reviews(183, 0, 17, 0), &settings);
        assert_eq!((stale.stale, stale.mode()), (true, Mode::Normal));
        // In force until the plain rate is under the lower mark.
        let off = none.after(&reviews(44, 6, 0, 0), &settings);
        assert_eq!(mode(off, reviews(195, 5, 0, 0)), Mode::WriteOff);
        assert_eq!(mode(off, reviews(196, 4, 0, 0)), Mode::Normal);
        assert_eq!(mode(off, reviews(10, 0, 0, 0)), Mode::WriteOff, "too few to leave by");
    }

    #[test]
    fn a194_alarms_have_their_marks() {
        let settings = QualitySettings::default();
        let names = |now: (Counts, Reviews), before: (Counts, Reviews)| -> Vec<&'static str> {
            alarms((&now.0, &now.1), (&before.0, &before.1), &settings).iter().map(|alarm| alarm.finding.outcome).collect()
        };
        let quiet = (Counts::default(), Reviews::default());
        assert!(names(quiet, quiet).is_empty());
        let counts =
            |recalled, cited, memory_tokens| Counts { recalled, cited, contexts: 9, memory_tokens, request_tokens: 1_000 };
        assert_eq!(names((counts(200, 19, 100), Reviews::default()), quiet), ["HIT_RATE"]);
        assert!(names((counts(199, 19, 100), Reviews::default()), quiet).is_empty());
        assert!(names((counts(200, 20, 350), Reviews::default()), quiet).is_empty());
        assert_eq!(names((counts(200, 20, 351), Reviews::default()), quiet), ["TOKEN_SHARE"]);
        let earlier = (counts(200, 90, 100), reviews(98, 2, 0, 0));
        assert_eq!(names((counts(200, 90, 200), reviews(96, 2, 2, 0)), earlier), ["POLLUTION_RISE", "TOKEN_SHARE_RISE"]);
        assert_eq!(names((counts(200, 90, 100), reviews(44, 6, 0, 0)), quiet), ["POLLUTION"]);
    }

    #[test]
    fn settings_are_checked() {
        let bad = |edit: &dyn Fn(&mut QualitySettings)| {
            let mut settings = QualitySettings::default();
            edit(&mut settings);
            settings.validate().expect_err("refused").fields[0].field.clone()
        };
        QualitySettings::default().validate().expect("the defaults");
        assert_eq!(bad(&|s| s.min_hit_rate = 1.5), "policy.quality.min_hit_rate");
        assert_eq!(bad(&|s| s.max_token_share = f64::NAN), "policy.quality.max_token_share");
        assert_eq!(bad(&|s| s.leave_below = 0.06), "policy.quality.leave_below");
        assert_eq!(bad(&|s| s.max_rise = 1.0), "policy.quality.max_rise");
        assert_eq!(bad(&|s| s.min_reviews = 300), "policy.quality.reviews");
    }
}
