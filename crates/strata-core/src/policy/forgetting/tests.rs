use super::*;
use uuid::Uuid;

const NOW: Timestamp = Timestamp(400 * DAY);

fn id(n: u128) -> MemoryId {
    MemoryId(Uuid::from_u128(n))
}

fn ago(days: i64) -> Timestamp {
    NOW.plus(-days * DAY)
}

/// An unimportant event of long ago that nothing speaks for: every rule would have it.
fn poor(n: u128) -> Subject {
    Subject {
        memory_id: id(n),
        level: 1,
        kind: Kind::Event,
        tier: Tier::Event,
        keyed: false,
        identity: false,
        protected: false,
        confirmed: false,
        instruction: false,
        exempt: false,
        confidence: 0.2,
        importance: 1,
        status: Status::Active,
        since: ago(100),
        expire_time: None,
        asked: false,
        event_time: ago(100),
        create_time: ago(100),
        last_recalled_at: None,
        last_cited_at: None,
        topic: Some("running".into()),
        slot: None,
        condensed: false,
        chained: false,
        reference: None,
    }
}

fn all_acting() -> ForgettingSettings {
    ForgettingSettings { rules: Switches { decay: Switch::Act, ..Switches::default() }, ..ForgettingSettings::default() }
}

fn wanted(rule: AutoRule) -> Wanted {
    match rule {
        AutoRule::Consolidate => Wanted::In(id(900)),
        AutoRule::Merge => Wanted::SameAs(id(901)),
        AutoRule::Purge => Wanted::OverCapacity,
        AutoRule::Clock | AutoRule::Tier | AutoRule::Propose | AutoRule::Decay | AutoRule::Idle | AutoRule::Capacity => {
            Wanted::ByRule
        }
    }
}

/// A record in the state in which a rule takes it.
fn taken_by(rule: AutoRule) -> Subject {
    let s = poor(1);
    match rule {
        AutoRule::Clock => Subject { expire_time: Some(NOW), asked: true, ..s },
        AutoRule::Tier => Subject { expire_time: Some(NOW), ..s },
        AutoRule::Purge => Subject { status: Status::Archived, ..s },
        AutoRule::Propose | AutoRule::Consolidate | AutoRule::Merge | AutoRule::Decay | AutoRule::Idle | AutoRule::Capacity => s,
    }
}

#[test]
fn c163_a165_no_rule_touches_what_is_protected_a_constraint_or_identity() {
    let settings = all_acting();
    for rule in AutoRule::ALL.iter().copied().filter(|rule| *rule != AutoRule::Propose) {
        let plain = taken_by(rule);
        assert!(matches!(permit(&settings, rule, wanted(rule), &plain, NOW), Verdict::Permit(_)), "{} takes it", rule.name());
        for shielded in [
            Subject { protected: true, ..plain.clone() },
            Subject { kind: Kind::Constraint, tier: Tier::Temporary, ..plain.clone() },
            Subject { identity: true, ..plain.clone() },
        ] {
            let verdict = permit(&settings, rule, wanted(rule), &shielded, NOW);
            // An end that was asked for is no rule of ours: it is over on every read path.
            let kept = rule == AutoRule::Clock || matches!(verdict, Verdict::Keep("F8", _));
            assert!(kept, "{}: {verdict:?} for {shielded:?}", rule.name());
        }
    }
    assert!(!ends_by_tier(Kind::Event, true) && !ends_by_tier(Kind::Constraint, false) && ends_by_tier(Kind::Event, false));
}

#[test]
fn c163_a_whole_run_leaves_the_protected_one_alone_whatever_state_it_is_in() {
    let settings = ForgettingSettings { capacity: 1, ..all_acting() };
    for status in Status::ALL.iter().copied().filter(|s| !matches!(s, Status::Candidate | Status::Disputed)) {
        let mut subjects: Vec<Subject> = (2..70).map(poor).collect();
        subjects.push(Subject { protected: true, status, ..poor(1) });
        let scope = Scope::default();
        let mut planner = Planner::new(&settings, &scope, subjects, NOW);
        planner.expiry();
        for topic in planner.topics() {
            assert!(!topic.members.contains(&id(1)));
            planner.condense(id(900), &topic.members);
        }
        planner.merge(id(2), id(1));
        planner.access();
        planner.capacity();
        planner.purge();
        let touched = planner.finish().into_iter().any(|step| match step {
            Step::Do { permit, .. } => permit.memory_id() == id(1),
            Step::Make { from, .. } => from.contains(&id(1)),
            Step::Keep { .. } => false,
        });
        assert!(!touched, "{}", status.name());
    }
}

#[test]
fn c170_a157_r06_the_archived_set_is_the_rules_and_boundaries_stay() {
    let settings = ForgettingSettings::default();
    for importance in 1..=5_u8 {
        for (unused, exactly) in [(0, true), (29, true), (30, true), (30, false), (31, true), (400, true)] {
            for (kind, tier, keyed, passes) in [
                (Kind::Event, Tier::Event, false, true),
                (Kind::Experience, Tier::Stable, false, true),
                (Kind::Preference, Tier::Temporary, false, true),
                (Kind::Event, Tier::Event, true, false),
                (Kind::Preference, Tier::Stable, false, false),
                (Kind::Fact, Tier::Stable, true, false),
            ] {
                let used = ago(unused).plus(if exactly { 0 } else { -1 });
                let s = Subject { kind, tier, keyed, importance, last_cited_at: Some(used), ..poor(1) };
                let verdict = permit(&settings, AutoRule::Idle, Wanted::ByRule, &s, NOW);
                let long = unused > 30 || (unused == 30 && !exactly);
                let expected = match (passes, importance, long, unused == 30 && exactly) {
                    (true, 1 | 2, true, _) => "PERMIT",
                    (true, 1 | 2, _, true) | (true, 3, true, _) => "KEEP",
                    _ => "PASS",
                };
                let got = match verdict {
                    Verdict::Permit(permit) => {
                        assert_eq!(permit.fate(), Fate::Move(Status::Archived));
                        "PERMIT"
                    }
                    Verdict::Keep(rule, _) => {
                        assert_eq!(rule, "F4");
                        "KEEP"
                    }
                    Verdict::Pass => "PASS",
                };
                assert_eq!(got, expected, "importance {importance}, {unused} days, {} keyed {keyed}", kind.name());
            }
        }
    }
}

#[test]
fn a149_decay_needs_every_condition() {
    let settings = all_acting();
    let s =
        Subject { kind: Kind::Preference, tier: Tier::Stable, importance: 3, confidence: 0.49, create_time: ago(31), ..poor(1) };
    let falls = |s: &Subject| matches!(permit(&settings, AutoRule::Decay, Wanted::ByRule, s, NOW), Verdict::Permit(p) if p.fate() == Fate::Move(Status::Candidate));
    assert!(falls(&s));
    for other in [
        Subject { confirmed: true, ..s.clone() },
        Subject { importance: 4, ..s.clone() },
        Subject { confidence: 0.5, ..s.clone() },
        Subject { create_time: ago(30), ..s.clone() },
        Subject { last_recalled_at: Some(ago(30)), ..s.clone() },
        Subject { status: Status::Archived, ..s.clone() },
    ] {
        assert!(!falls(&other), "{other:?}");
    }
    // A citation is another thing than a recall, which comes with it.
    assert!(falls(&Subject { last_recalled_at: Some(ago(31)), ..s }));
}

#[test]
fn a152_decay_observes_until_it_is_switched_on() {
    let (settings, scope) = (ForgettingSettings::default(), Scope::default());
    let mut planner = Planner::new(&settings, &scope, [Subject { kind: Kind::Fact, tier: Tier::Stable, ..poor(1) }], NOW);
    planner.access();
    let steps = planner.finish();
    assert!(matches!(&steps[..], [Step::Do { permit, observed: true, .. }] if permit.rule() == AutoRule::Decay), "{steps:?}");
}

#[test]
fn a162_a163_purge_waits_and_respects_references() {
    let settings = ForgettingSettings::default();
    let purge = |s: &Subject, wanted| permit(&settings, AutoRule::Purge, wanted, s, NOW);
    let archived = Subject { status: Status::Archived, since: ago(14), ..poor(1) };
    assert!(matches!(purge(&archived, Wanted::ByRule), Verdict::Permit(p) if p.fate() == Fate::Purge));
    let early = Subject { since: ago(14).plus(1), ..archived.clone() };
    assert_eq!(purge(&early, Wanted::ByRule), Verdict::Pass);
    for reference in [Reference::Derivation, Reference::Evidence, Reference::Supersession, Reference::Question] {
        let s = Subject { reference: Some(reference), ..archived.clone() };
        assert!(matches!(purge(&s, Wanted::ByRule), Verdict::Keep("F6", _)), "{reference:?}");
        let over = matches!(purge(&s, Wanted::OverCapacity), Verdict::Permit(_));
        assert_eq!(over, reference == Reference::Derivation, "{reference:?}");
    }
    let expired = Subject { status: Status::Expired, since: ago(14), ..poor(1) };
    assert!(matches!(purge(&expired, Wanted::ByRule), Verdict::Permit(p) if p.fate() == Fate::Move(Status::Archived)));
    for status in [Status::Candidate, Status::Active, Status::Disputed, Status::Superseded, Status::Rejected, Status::Deleted] {
        assert_eq!(purge(&Subject { status, ..archived.clone() }, Wanted::OverCapacity), Verdict::Pass, "{}", status.name());
    }
}

#[test]
fn a164_capacity_takes_the_least_valuable_first() {
    let settings = ForgettingSettings { capacity: 4, ..all_acting() };
    let subjects = vec![
        Subject { importance: 1, last_cited_at: Some(ago(1)), ..poor(1) },
        Subject { importance: 1, ..poor(2) },
        Subject { importance: 2, ..poor(3) },
        Subject { importance: 1, tier: Tier::Stable, kind: Kind::Preference, ..poor(4) },
        Subject { importance: 1, confirmed: true, ..poor(5) },
        Subject { importance: 1, chained: true, ..poor(6) },
        Subject { importance: 1, protected: true, last_cited_at: Some(ago(300)), ..poor(7) },
        Subject { status: Status::Archived, ..poor(8) },
    ];
    let scope = Scope { rules: [AutoRule::Capacity].into(), expiry_only: false };
    let mut planner = Planner::new(&settings, &scope, subjects, NOW);
    planner.capacity();
    let done: Vec<u128> = planner
        .finish()
        .into_iter()
        .filter_map(|step| match step {
            Step::Do { permit, .. } => Some(permit.memory_id().0.as_u128()),
            Step::Make { .. } | Step::Keep { .. } => None,
        })
        .collect();
    assert_eq!(done, [2, 1, 3], "seven in force, four fit; the protected one is passed over");
}

#[test]
fn a159_a_topic_over_its_number_is_condensed_a_summary_never() {
    let (settings, scope) = (all_acting(), Scope::default());
    let twenty: Vec<Subject> = (1..=20).map(poor).collect();
    assert!(Planner::new(&settings, &scope, twenty.clone(), NOW).topics().is_empty());
    let mut more = twenty;
    more.push(Subject { status: Status::Archived, event_time: ago(300), ..poor(21) });
    more.extend([
        Subject { protected: true, ..poor(22) },
        Subject { instruction: true, ..poor(23) },
        Subject { exempt: true, ..poor(24) },
        Subject { kind: Kind::Summary, ..poor(25) },
        Subject { keyed: true, ..poor(26) },
        Subject { level: 2, ..poor(27) },
        Subject { condensed: true, ..poor(28) },
        Subject { topic: Some("cooking".into()), ..poor(29) },
        Subject { kind: Kind::Fact, tier: Tier::Stable, ..poor(30) },
    ]);
    let topics = Planner::new(&settings, &scope, more, NOW).topics();
    let expected: Vec<MemoryId> = std::iter::once(21).chain(1..=20).map(id).collect();
    assert_eq!(topics, [Topic { level: 1, topic: "running".into(), members: expected }]);
}

#[test]
fn a146_events_on_one_slot_propose() {
    let (settings, scope) = (all_acting(), Scope::default());
    let event = |n, slot: &str| Subject { keyed: true, slot: Some(slot.into()), event_time: ago(100 - n as i64), ..poor(n) };
    let subjects = vec![
        event(1, "coffee.order=latte"),
        event(2, "coffee.order=latte"),
        event(3, "coffee.order=mocha"),
        event(4, "coffee.order=latte"),
        Subject { level: 2, ..event(5, "coffee.order=mocha") },
        event(6, "coffee.order=mocha"),
    ];
    let found = Planner::new(&settings, &scope, subjects, NOW).repeated();
    assert_eq!(found, [Repeated { level: 1, events: vec![id(1), id(2), id(4)] }]);
}

#[test]
fn a166_each_rule_works_alone_and_expiry_alone_in_write_off() {
    let settings = ForgettingSettings { capacity: 1, ..all_acting() };
    let subjects: Vec<Subject> = vec![
        Subject { expire_time: Some(NOW), ..poor(1) },
        Subject { expire_time: Some(NOW), asked: true, ..poor(2) },
        Subject { status: Status::Archived, ..poor(3) },
        Subject { confidence: 0.9, ..poor(4) },
        Subject { kind: Kind::Fact, tier: Tier::Stable, ..poor(5) },
        Subject { kind: Kind::Fact, tier: Tier::Stable, confidence: 0.9, importance: 5, ..poor(6) },
    ];
    let run = |scope: &Scope| {
        let mut planner = Planner::new(&settings, scope, subjects.clone(), NOW);
        planner.expiry();
        planner.access();
        planner.capacity();
        planner.purge();
        let rules = planner.finish().into_iter().filter_map(|step| match step {
            Step::Do { permit, .. } => Some(permit.rule()),
            Step::Make { .. } | Step::Keep { .. } => None,
        });
        rules.collect::<BTreeSet<_>>()
    };
    for rule in [AutoRule::Clock, AutoRule::Tier, AutoRule::Decay, AutoRule::Idle, AutoRule::Capacity, AutoRule::Purge] {
        assert_eq!(run(&Scope { rules: [rule].into(), expiry_only: false }), [rule].into(), "{}", rule.name());
    }
    assert_eq!(run(&Scope { expiry_only: true, ..Scope::default() }), [AutoRule::Clock, AutoRule::Tier].into());
}

#[test]
fn a153_a154_marks_are_what_the_clock_says() {
    let settings = ForgettingSettings::default();
    let end = Some(NOW);
    for (tier, status, asked, rule, to) in [
        (Tier::Event, Status::Active, false, AutoRule::Tier, Status::Archived),
        (Tier::Temporary, Status::Active, false, AutoRule::Tier, Status::Expired),
        (Tier::Temporary, Status::Active, true, AutoRule::Clock, Status::Expired),
        (Tier::Stable, Status::Active, true, AutoRule::Clock, Status::Expired),
        (Tier::Stable, Status::Candidate, false, AutoRule::Tier, Status::Expired),
        (Tier::Stable, Status::Disputed, false, AutoRule::Tier, Status::Expired),
    ] {
        let s = Subject { tier, status, asked, expire_time: end, ..poor(1) };
        for asked_rule in [AutoRule::Clock, AutoRule::Tier] {
            let got = permit(&settings, asked_rule, Wanted::ByRule, &s, NOW);
            match got {
                Verdict::Permit(p) => assert_eq!((p.rule(), p.fate()), (rule, Fate::Move(to))),
                Verdict::Pass => assert_ne!(asked_rule, rule, "{s:?}"),
                Verdict::Keep(..) => panic!("{s:?}"),
            }
            assert_eq!(permit(&settings, asked_rule, Wanted::ByRule, &s, NOW.plus(-1)), Verdict::Pass);
        }
    }
}

#[test]
fn a158_the_day_of_the_run_turns_at_its_hour_in_the_zone() {
    let hour = crate::time::HOUR;
    let midnight = Timestamp(20_000 * DAY);
    let utc = Schedule::default();
    assert_eq!(utc.day(midnight.plus(2 * hour)), 20_000);
    assert_eq!(utc.day(midnight.plus(2 * hour - 1)), 19_999);
    // 02:00 in Shanghai is 18:00 UTC of the day before.
    let shanghai = Schedule { utc_offset_minutes: 480, ..utc };
    assert_eq!(shanghai.day(midnight.plus(-6 * hour)), 20_000);
    assert_eq!(shanghai.day(midnight.plus(-6 * hour - 1)), 19_999);
    let late = Schedule { hour: 23, minute: 30, utc_offset_minutes: -300, ..utc };
    assert_eq!(late.day(midnight.plus(28 * hour + hour / 2)), 20_000);
}

#[test]
fn settings_outside_their_bounds_are_refused_by_name() {
    let good = ForgettingSettings::default();
    assert!(good.validate().is_ok());
    let hour = Schedule { hour: 24, ..Schedule::default() };
    for (bad, field) in [
        (ForgettingSettings { decay_importance: 6, ..good.clone() }, "decay_importance"),
        (ForgettingSettings { purge_days: 0, ..good.clone() }, "purge_days"),
        (ForgettingSettings { decay_confidence: f64::NAN, ..good.clone() }, "decay_confidence"),
        (ForgettingSettings { capacity: 0, ..good.clone() }, "capacity"),
        (ForgettingSettings { schedule: hour, ..good }, "schedule.hour"),
    ] {
        let fault = bad.validate().expect_err(field);
        assert_eq!(fault.fields[0].field, format!("policy.forgetting.{field}"));
    }
}
