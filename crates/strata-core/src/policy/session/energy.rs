//! Energy (rule S9): how much what is compressed still matters to a window, by age, importance and use. It orders what a window
//! shows when not everything fits, and below a floor leaves it out; it deletes nothing, and order within a window stays that of
//! numbers. Anchors are never left out for want of energy.
//!
//! `energy = importance / 5 x (0.6 x freshness + 0.4 x boost)`, with `freshness = 0.5 ^ (turns / half-life in turns + time /
//! half-life in time)` since it was said or looked up, whichever is later, and the boost of use of rule R6.

use super::{Anchor, SessionSettings, Summary, Turn};
use crate::Timestamp;
use crate::policy::recall;
use crate::time::SECOND;
use std::collections::{BTreeMap, BTreeSet};

/// Turns of a session whose look-ups are remembered: more than a window shows ranges, few enough to be read with every head.
pub const ACCESSED_TURNS: usize = 32;
/// A read of more turns than this at once looks nothing up: it copies.
pub const LOOKED_UP_TURNS: u32 = 32;
/// Look-ups of one turn that are counted: the boost is full long before.
const HITS_MAX: u32 = 1_000;
/// Weights of freshness and use, those of recall (rule R5).
const WEIGHTS: (f64, f64) = (0.6, 0.4);

/// Look-ups of one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Turn number.
    pub seq: u32,
    /// How often.
    pub hits: u32,
    /// Last turn of the session when it was looked up last.
    pub last: u32,
    /// When that was.
    pub time: Timestamp,
}

/// Look-ups of the turns of a session, the latest `ACCESSED_TURNS`. Holds no content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accesses(Vec<Access>);

impl Accesses {
    /// As the stores keep it; what cannot be read is none.
    #[must_use]
    pub fn decode(text: &str) -> Self {
        let one = |part: &str| {
            let mut numbers = part.split(',');
            let mut next = || numbers.next();
            Some(Access {
                seq: next()?.parse().ok()?,
                hits: next()?.parse().ok()?,
                last: next()?.parse().ok()?,
                time: Timestamp(next()?.parse().ok()?),
            })
        };
        Self(text.split(';').filter_map(one).take(ACCESSED_TURNS).collect())
    }

    /// For the stores: the latest first, empty without any.
    #[must_use]
    pub fn encode(&self) -> String {
        let one = |a: &Access| format!("{},{},{},{}", a.seq, a.hits, a.last, a.time.0);
        self.0.iter().map(one).collect::<Vec<_>>().join(";")
    }

    /// With one more look-up of each of these turns, at the session's turn `last`. The turns that were not looked up for longest
    /// are forgotten beyond the bound.
    #[must_use]
    pub fn noted(&self, seqs: &[u32], last: u32, now: Timestamp) -> Self {
        let hits = |seq: u32| self.0.iter().find(|a| a.seq == seq).map_or(0, |a| a.hits);
        let distinct: BTreeSet<u32> = seqs.iter().copied().collect();
        let new = distinct.iter().map(|seq| Access { seq: *seq, hits: (hits(*seq) + 1).min(HITS_MAX), last, time: now });
        let rest = self.0.iter().filter(|a| !distinct.contains(&a.seq)).copied();
        Self(new.chain(rest).take(ACCESSED_TURNS).collect())
    }

    /// The look-ups of the turns `from..=to`: how often, and the latest.
    fn within(&self, from: u32, to: u32) -> (u64, Option<Access>) {
        let inside = || self.0.iter().filter(|a| (from..=to).contains(&a.seq));
        (inside().map(|a| u64::from(a.hits)).sum(), inside().copied().max_by_key(|a| (a.last, a.time)))
    }
}

/// Where a session stands.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Its last turn.
    pub last: u32,
    /// The service's time.
    pub now: Timestamp,
}

/// Energy of something of `importance` 1 to 5 that was said, or looked up, `turns` turns and `micros` ago and looked up `hits`
/// times in all; 0 below the floor.
#[must_use]
pub fn energy(settings: &SessionSettings, importance: u8, turns: u32, micros: i64, hits: u64) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "ages far below 2^52")]
    let time = micros.max(0) as f64 / (settings.energy_half_life_seconds.max(1) as f64 * SECOND as f64);
    let freshness = 0.5_f64.powf(f64::from(turns) / f64::from(settings.energy_half_life_turns.max(1)) + time);
    let boost = recall::boost_of(hits, recall::BOOST_SATURATION);
    let energy = f64::from(importance.clamp(1, 5)) / 5.0 * WEIGHTS.0.mul_add(freshness, WEIGHTS.1 * boost);
    if energy < settings.energy_floor { 0.0 } else { energy }
}

fn of_range(
    settings: &SessionSettings,
    importance: u8,
    (from, to, said): (u32, u32, Timestamp),
    accesses: &Accesses,
    at: Moment,
) -> f64 {
    let (hits, latest) = accesses.within(from, to);
    let seq = latest.map_or(to, |a| a.last.max(to));
    let time = latest.map_or(said, |a| a.time.max(said));
    energy(settings, importance, at.last.saturating_sub(seq), at.now.since(time), hits)
}

/// Importance of a range: what the user set or pinned, what is promised, what carries values, the rest.
fn importance(summary: &Summary, anchors: &[Anchor]) -> u8 {
    let of = |anchor: &Anchor| match anchor.rule.0 {
        "S2c" | "S2e" => 5,
        _ => 4,
    };
    let inside = anchors.iter().filter(|a| (summary.from..=summary.to).contains(&a.seq) && a.retracted_by == 0).map(of).max();
    inside.unwrap_or(if summary.values.is_empty() { 2 } else { 3 })
}

/// Energies of what a window can be made of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Energies {
    /// Of each summary, in order; 1 where none is given.
    pub summaries: Vec<f64>,
    /// Of anchors by turn number; 1 where none is given. Never 0.
    pub anchors: BTreeMap<u32, f64>,
}

impl Energies {
    /// Of summaries, and of the anchors whose turns are at hand; `all` are all anchors of the session.
    #[must_use]
    pub fn of(
        settings: &SessionSettings,
        summaries: &[Summary],
        all: &[Anchor],
        anchors: &[(Anchor, Turn)],
        accesses: &Accesses,
        at: Moment,
    ) -> Self {
        let summary = |s: &Summary| of_range(settings, importance(s, all), (s.from, s.to, s.to_time), accesses, at);
        let unbounded = SessionSettings { energy_floor: 0.0, ..settings.clone() };
        // Anchors are ordered by their reasons first; within one, importance is one.
        let anchor = |(a, turn): &(Anchor, Turn)| (a.seq, of_range(&unbounded, 5, (a.seq, a.seq, turn.time), accesses, at));
        Self { summaries: summaries.iter().map(summary).collect(), anchors: anchors.iter().map(anchor).collect() }
    }

    /// Of a summary by its place.
    #[must_use]
    pub fn summary(&self, at: usize) -> f64 {
        self.summaries.get(at).copied().unwrap_or(1.0)
    }

    /// Of an anchor by its turn.
    #[must_use]
    pub fn anchor(&self, seq: u32) -> f64 {
        self.anchors.get(&seq).copied().unwrap_or(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RuleId;
    use crate::policy::session::{Maker, Role, ValueReference};
    use crate::time::DAY;

    fn close(left: f64, right: f64) {
        assert!((left - right).abs() < 5e-5, "{left} is not {right}");
    }

    #[test]
    fn a45_s9_energy_has_these_numbers() {
        let settings = SessionSettings::default();
        let of = |importance, turns, days: f64, hits| {
            #[allow(clippy::cast_possible_truncation)]
            let micros = (days * DAY as f64) as i64;
            energy(&settings, importance, turns, micros, hits)
        };
        // Importance, turns, days, look-ups.
        close(of(5, 0, 0.0, 0), 0.6);
        close(of(5, 0, 0.0, 20), 1.0);
        close(of(5, 0, 0.0, 1_000_000), 1.0);
        close(of(3, 0, 0.0, 0), 0.36);
        close(of(3, 200, 0.0, 0), 0.18);
        close(of(3, 0, 1.0, 0), 0.18);
        close(of(3, 200, 1.0, 0), 0.09);
        close(of(3, 200, 0.0, 1), 0.6 * (0.3 + 0.4 * 0.227_67));
        close(of(1, 2_000, 0.0, 0), 0.000_117);
        close(of(2, 400, 0.5, 3), 0.4 * (0.6 * 0.176_78 + 0.4 * 0.455_34));
        // What is of tomorrow, or of no importance that there is, counts as the nearest.
        close(of(0, 0, -3.0, 0), 0.12);
        close(of(9, 0, 0.0, 0), 0.6);
    }

    #[test]
    fn a45_energy_falls_with_age_and_grows_with_importance_and_use_and_ends_at_the_floor() {
        let settings = SessionSettings { energy_floor: 0.05, ..SessionSettings::default() };
        let mut before = f64::MAX;
        let mut gone = 0;
        for turns in (0..2_000).step_by(50) {
            let now = energy(&settings, 3, turns, 0, 0);
            assert!(now < before || now == 0.0);
            gone += u32::from(now == 0.0);
            before = now;
        }
        // 0.36 x 0.5^(t/200) < 0.05 from t = 570 on.
        assert_eq!(gone, (2_000 - 600) / 50);
        assert!(energy(&settings, 3, 600, 0, 20) > 0.2, "looked up often, it stays");
        for importance in 1..5 {
            assert!(energy(&settings, importance, 9, 0, 0) < energy(&settings, importance + 1, 9, 0, 0));
        }
    }

    fn range(from: u32, to: u32) -> Summary {
        Summary {
            from,
            to,
            sentences: Vec::new(),
            values: vec![ValueReference { value: "7".into(), seq: from }],
            made_by: Maker::Rules,
            level: 0,
            source_hash: String::new(),
            from_time: Timestamp(0),
            to_time: Timestamp(0),
        }
    }

    #[test]
    fn a45_a_look_up_renews_the_range_it_falls_into_and_anchors_have_no_floor() {
        let settings = SessionSettings { energy_floor: 0.1, ..SessionSettings::default() };
        let at = Moment { last: 1_000, now: Timestamp(0) };
        let turn = Turn {
            seq: 2,
            role: Role::User,
            text: "Never by car.".into(),
            tool_call_id: None,
            pinned: false,
            time: Timestamp(0),
            client_time: None,
            tokens: 4,
            speaker: String::new(),
            external_id: String::new(),
            redacted: 0,
        };
        let anchors = [(Anchor { seq: 2, rule: RuleId("S2e"), retracted_by: 0 }, turn)];
        let all = [anchors[0].0.clone()];
        let summaries = [range(1, 10), range(11, 20), range(981, 990)];
        let none = Energies::of(&settings, &summaries, &all, &anchors, &Accesses::default(), at);
        assert_eq!(none.summaries[..2], [0.0, 0.0]);
        assert!(none.summaries[2] > 0.3 && none.anchor(2) > 0.0);
        let once = Accesses::default().noted(&[12], 1_000, Timestamp(0));
        let renewed = Energies::of(&settings, &summaries, &all, &anchors, &once, at);
        assert_eq!(renewed.summaries[0], 0.0);
        assert!(renewed.summaries[1] > renewed.summaries[2]);
        assert!((renewed.summary(7) - 1.0).abs() < f64::EPSILON && (renewed.anchor(7) - 1.0).abs() < f64::EPSILON);
    }

    #[test]
    fn s9_look_ups_are_few_and_read_back() {
        let mut accesses = Accesses::default();
        assert_eq!(Accesses::decode(&accesses.encode()), accesses);
        for n in 1..=100 {
            accesses = accesses.noted(&[n, 7], n, Timestamp(i64::from(n)));
        }
        assert_eq!(accesses.0.len(), ACCESSED_TURNS);
        assert_eq!(Accesses::decode(&accesses.encode()), accesses);
        assert!(accesses.encode().len() < 1_024);
        let (hits, latest) = accesses.within(1, 50);
        assert_eq!((hits, latest.map(|a| (a.seq, a.last))), (100, Some((7, 100))));
        for odd in ["", ";", "1,2", "x,1,1,1", "-1,1,1,1;9,1,1,1,1"] {
            assert!(Accesses::decode(odd).0.len() <= 1, "{odd}");
        }
    }
}
