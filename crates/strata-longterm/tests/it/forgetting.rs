//! What is forgotten by itself, on a real file and a moved clock: tiers on their days, dry run against real run, what is
//! protected, what is referenced.

use crate::world::*;
use futures::StreamExt as _;
use std::collections::BTreeSet;
use strata_api::admin::v1 as admin;
use strata_api::admin::v1::admin_service_client::AdminServiceClient;
use strata_api::error;
use strata_api::longterm::v1 as pb;
use strata_core::policy::forgetting::Switch;
use strata_core::policy::modes::Mode;
use strata_core::{Fault, Reason, Timestamp};

/// Everything a run says of its steps.
pub async fn run(world: &World, request: admin::RunMaintenanceRequest) -> Result<Vec<admin::MaintenanceStep>, Fault> {
    world.settled().await;
    run_of(&world.user("operator"), request).await
}

pub async fn run_of(caller: &Caller, request: admin::RunMaintenanceRequest) -> Result<Vec<admin::MaintenanceStep>, Fault> {
    let channel = caller.channel_with(Some(caller.claims(Some(strata_core::id::Level::User))));
    let answer = AdminServiceClient::new(channel).run_maintenance(request).await.map_err(|status| error::fault(&status))?;
    let (mut stream, mut steps, mut last) = (answer.into_inner(), Vec::new(), None);
    while let Some(message) = stream.next().await {
        let message = message.map_err(|status| error::fault(&status))?;
        steps.extend(message.steps.clone());
        last = Some(message);
    }
    let total: u64 = last.expect("a last message").totals.iter().map(|total| total.count).sum();
    assert_eq!(total, steps.len() as u64, "the sums are those of the steps");
    Ok(steps)
}

pub async fn maintain(world: &World) -> Vec<admin::MaintenanceStep> {
    run(world, admin::RunMaintenanceRequest::default()).await.expect("run")
}

/// What a step does, whatever became of it: what dry run and run must agree on.
fn deed(step: &admin::MaintenanceStep) -> String {
    let s = step;
    format!(
        "{} {} {} {:?} {:?}>{:?} {:?} {} {}",
        s.memory_id,
        s.user_id,
        s.rule,
        s.action(),
        s.status_before(),
        s.status_after(),
        s.related,
        s.because,
        s.kept_by
    )
}

pub fn deeds(steps: &[admin::MaintenanceStep]) -> Vec<String> {
    let mut out: Vec<String> = steps.iter().map(deed).collect();
    out.sort();
    out
}

pub fn rules_of(steps: &[admin::MaintenanceStep], memory_id: &str) -> Vec<String> {
    steps.iter().filter(|s| s.memory_id == memory_id).map(|s| format!("{} {:?}", s.rule, s.action())).collect()
}

pub fn event(content: &str) -> pb::Statement {
    of_kind(pb::Kind::Event, says(content))
}

pub fn wish(content: &str) -> pb::Statement {
    pb::Statement { tier: pb::Tier::Temporary.into(), ..of_kind(pb::Kind::Preference, says(content)) }
}

pub async fn recalls(user: &Caller, query: &str) -> pb::RecallResponse {
    let request = pb::RecallRequest { user_id: user.user.clone(), query: query.into(), k: 20, ..Default::default() };
    user.client().recall(request).await.expect("recalled").into_inner()
}

pub async fn found(user: &Caller, query: &str) -> BTreeSet<String> {
    let items = recalls(user, query).await.items;
    items.into_iter().filter_map(|item| item.memory).map(|memory| memory.memory_id).collect()
}

pub async fn cite(user: &Caller, query: &str, memory_id: &str) {
    let recall_id = recalls(user, query).await.recall_id;
    let request = pb::ReportUsageRequest {
        user_id: user.user.clone(),
        recall_id,
        memory_ids: vec![memory_id.to_owned()],
        ..Default::default()
    };
    let report = user.client().report_usage(request).await.expect("reported").into_inner();
    assert_eq!(report.cited, [memory_id.to_owned()]);
}

pub async fn with_status(user: &Caller, status: pb::Status) -> Vec<String> {
    let filter = pb::RecallFilter { statuses: vec![status.into()], ..Default::default() };
    user.list(filter).await.into_iter().map(|memory| memory.memory_id).collect()
}

#[tokio::test]
async fn c097_a153_a154_a155_the_tiers_act_on_their_days() {
    for (event_text, wish_text, fact_text, query) in [
        ("I ran 5 km in the park", "I want spicy food this month", "I always park in lot B-17", "park spicy food"),
        ("我在公园跑了5公里", "这个月我想吃辣的菜", "我总是停在B-17车位", "公园 辣 车位"),
    ] {
        let world = World::new().await;
        let user = world.user("u1");
        let run_5 = id(&user.remember(event(event_text)).await.expect("stored"));
        let spicy = id(&user.remember(wish(wish_text)).await.expect("stored"));
        let lot = id(&user.remember(says(fact_text)).await.expect("stored"));
        let kept = pb::Statement { protected: true, ..event(&format!("{event_text} 9")) };
        let kept = id(&user.remember(kept).await.expect("stored"));
        world.later(6 * DAY).await;
        maintain(&world).await;
        assert_eq!(user.get(&run_5).await.expect("there").status(), pb::Status::Active);
        world.later(2 * DAY).await;
        // Out of recall by the clock alone; the run writes it down.
        assert!(!found(&user, query).await.contains(&run_5));
        let steps = maintain(&world).await;
        assert_eq!(rules_of(&steps, &run_5), ["F2 Move"]);
        assert_eq!(with_status(&user, pb::Status::Archived).await, std::slice::from_ref(&run_5));
        assert_eq!(user.get(&kept).await.expect("there").status(), pb::Status::Active, "protected");
        // Cited on day 20: holds until day 50.
        world.later(12 * DAY).await;
        cite(&user, wish_text, &spicy).await;
        world.later(11 * DAY).await;
        maintain(&world).await;
        assert_eq!(user.get(&spicy).await.expect("there").status(), pb::Status::Active, "day 31, cited on day 20");
        world.later(18 * DAY).await;
        maintain(&world).await;
        assert_eq!(user.get(&spicy).await.expect("there").status(), pb::Status::Active, "day 49");
        world.later(DAY).await;
        let steps = maintain(&world).await;
        assert_eq!(rules_of(&steps, &spicy), ["F2 Move"]);
        assert_eq!(user.get(&spicy).await.expect("there").status(), pb::Status::Expired, "day 50");
        world.later(365 * DAY).await;
        maintain(&world).await;
        for stays in [&lot, &kept] {
            assert_eq!(user.get(stays).await.expect("there").status(), pb::Status::Active);
        }
    }
}

#[tokio::test]
async fn a154_day_29_and_day_31_without_a_citation() {
    let world = World::new().await;
    let user = world.user("u1");
    let spicy = id(&user.remember(wish("I want spicy food this month")).await.expect("stored"));
    world.later(29 * DAY).await;
    assert!(maintain(&world).await.is_empty());
    assert!(found(&user, "spicy food").await.contains(&spicy));
    world.later(2 * DAY).await;
    assert!(!found(&user, "spicy food").await.contains(&spicy));
    assert_eq!(rules_of(&maintain(&world).await, &spicy), ["F2 Move"]);
}

#[tokio::test]
async fn a147_x06_what_expired_leaves_by_itself_and_is_new_when_said_again() {
    let world = World::new().await;
    let user = world.user("u1");
    let until = Timestamp(START.0 + DAY);
    let statement =
        || pb::Statement { expire_time: Some(strata_api::convert::common::wire_time(until)), ..says("I always use gate G-1") };
    let first = id(&user.remember(statement()).await.expect("stored"));
    world.later(2 * DAY).await;
    assert!(found(&user, "gate").await.is_empty(), "no run has been");
    assert_eq!(user.get(&first).await.expect("there").status(), pb::Status::Expired);
    let second = id(&user.remember(says("I always use gate G-1")).await.expect("stored"));
    assert_ne!(first, second);
    assert_eq!(found(&user, "gate").await, [second.clone()].into());
    maintain(&world).await;
    assert_eq!(user.get(&second).await.expect("there").status(), pb::Status::Active);
}

#[tokio::test]
async fn a157_x13_unused_and_unimportant_is_archived_a_citation_on_day_29_keeps_it() {
    let world = World::new().await;
    let user = world.user("u1");
    let lesson = |content: &str, importance| pb::Statement {
        importance,
        ..from(pb::Source::UserConfirmation, of_kind(pb::Kind::Experience, says(content)))
    };
    let reference = |n: u32| pb::SourceRef { kind: Some(pb::source_ref::Kind::Confirmation(format!("dialog {n}"))) };
    let mut ids = Vec::new();
    for (n, (content, importance)) in
        (0..).zip([("restart the printer twice", 1), ("the lift is slow at noon", 2), ("book the room early", 3)])
    {
        let statement = pb::Statement { source_ref: Some(reference(n)), ..lesson(content, importance) };
        ids.push(id(&user.remember(statement).await.expect("stored")));
    }
    world.later(29 * DAY).await;
    cite(&user, "printer", &ids[0]).await;
    world.later(2 * DAY).await;
    let steps = maintain(&world).await;
    assert_eq!(rules_of(&steps, &ids[0]), Vec::<String>::new(), "cited on day 29");
    assert_eq!(rules_of(&steps, &ids[1]), ["F4 Move"]);
    assert_eq!(rules_of(&steps, &ids[2]), ["F4 Keep"], "importance 3 is listed and stays");
    assert!(found(&user, "lift slow").await.is_empty(), "out of regular recall");
    let history = user.history(pb::GetHistoryRequest { memory_id: ids[1].clone(), ..Default::default() }).await.expect("there");
    let last = history.entries.last().expect("an entry");
    assert_eq!((last.rule.as_str(), last.actor.as_str(), last.path.as_str()), ("F4", "strata:maintenance", "Maintenance"));
}

#[tokio::test]
async fn a162_a163_archived_first_purged_later_unless_referenced() {
    let world = World::new().await;
    let user = world.user("u1");
    let gone = id(&user.remember(event("I ran 5 km in the park")).await.expect("stored"));
    let first = id(&user.remember(pb::Statement { key: "gym.visit".into(), ..event("I lifted 40 kg") }).await.expect("stored"));
    world.later(8 * DAY).await;
    maintain(&world).await;
    world
        .database
        .write({
            let first = uuid::Uuid::parse_str(&first).expect("an id");
            move |db| {
                // A later record that stands in a chain with the second event.
                Ok::<_, strata_runtime::sqlite::SqliteError>(
                    db.execute("UPDATE records SET supersedes = ?1 WHERE memory_id <> ?1", [first.as_bytes()])?,
                )
            }
        })
        .await
        .expect("linked");
    world.later(13 * DAY).await;
    let steps = maintain(&world).await;
    assert_eq!(rules_of(&steps, &gone), Vec::<String>::new(), "not before the period");
    world.later(DAY).await;
    assert!(world.files_hold("5 km in the park"));
    let steps = maintain(&world).await;
    assert_eq!(rules_of(&steps, &gone), ["F6 Purge"]);
    assert_eq!(rules_of(&steps, &first), ["F6 Keep"]);
    assert_eq!(user.get(&gone).await.expect_err("removed").reason, Reason::NotFound);
    for table in ["records", "evidence", "history", "record_terms", "vectors"] {
        let sql: &'static str = match table {
            "records" => "SELECT count(*) FROM records",
            "evidence" => "SELECT count(DISTINCT memory_id) FROM evidence",
            "history" => "SELECT count(DISTINCT memory_id) FROM history",
            "record_terms" => "SELECT count(DISTINCT memory_id) FROM record_terms",
            _ => "SELECT count(*) FROM vectors WHERE 0",
        };
        assert!(world.count(sql).await <= 1, "{table}");
    }
    let audited = world.count("SELECT count(*) FROM audit WHERE action = 'PURGED' AND rule = 'F6'").await;
    assert_eq!(audited, 1, "one entry for the removal");
}

#[tokio::test]
async fn a148_renewed_by_update_with_both_moves_in_its_history() {
    let world = World::new().await;
    let user = world.user("u1");
    let spicy = id(&user.remember(wish("I want spicy food this month")).await.expect("stored"));
    world.later(31 * DAY).await;
    maintain(&world).await;
    let request = pb::UpdateMemoryRequest {
        user_id: "u1".into(),
        memory_id: spicy.clone(),
        memory: Some(pb::MemoryPatch {
            expire_time: Some(strata_api::convert::common::wire_time(Timestamp(START.0 + 60 * DAY))),
            ..Default::default()
        }),
        update_mask: Some(prost_types::FieldMask { paths: vec!["expire_time".into()] }),
        ..Default::default()
    };
    user.client().update_memory(request).await.expect("renewed");
    assert_eq!(user.get(&spicy).await.expect("there").status(), pb::Status::Active);
    let history = user.history(pb::GetHistoryRequest { memory_id: spicy.clone(), ..Default::default() }).await.expect("there");
    let moves: Vec<_> = history.entries.iter().map(|e| e.to()).collect();
    assert_eq!(moves, [pb::Status::Active, pb::Status::Expired, pb::Status::Active]);
    world.later(30 * DAY).await;
    assert_eq!(rules_of(&maintain(&world).await, &spicy), ["F1 Move"], "its own end");
}

/// A memory in which every rule finds something.
async fn mixed(world: &World, name: &str) -> Caller {
    let user = world.user(name);
    for n in 0..4 {
        user.remember(event(&format!("I ran {n} km in the park"))).await.expect("stored");
    }
    user.remember(wish("I want spicy food this month")).await.expect("stored");
    user.remember(says("我总是停在B-17车位")).await.expect("stored");
    let constraint = of_kind(pb::Kind::Constraint, says("Never call me on Sundays"));
    user.remember(constraint).await.expect("stored");
    let guess = from(pb::Source::ModelInference, states("tea.kind", "oolong", "prefers oolong"));
    user.propose(guess).await.expect("queued");
    user
}

#[tokio::test]
async fn a_dry_run_changes_nothing_and_is_what_the_run_then_does() {
    let world = World::new().await;
    for name in ["u1", "u2", "用户"] {
        mixed(&world, name).await;
    }
    let dry = || admin::RunMaintenanceRequest { dry_run: true, ..Default::default() };
    let mut all = BTreeSet::new();
    for days in [1, 7, 14, 9, 60, 14, 14] {
        world.later(days * DAY).await;
        let before = world.count("SELECT coalesce(sum(revision), 0) FROM users").await;
        let planned = run(&world, dry()).await.expect("planned");
        assert_eq!(world.count("SELECT coalesce(sum(revision), 0) FROM users").await, before, "nothing was written");
        let done = maintain(&world).await;
        assert_eq!(deeds(&planned), deeds(&done));
        assert!(planned.iter().all(|s| s.state() != admin::MaintenanceState::Skipped));
        assert!(done.iter().all(|s| matches!(s.state(), admin::MaintenanceState::Done | admin::MaintenanceState::Observed)));
        all.extend(done.iter().filter(|s| s.action() != admin::MaintenanceAction::Keep).map(|s| s.rule.clone()));
        // A second run right after finds nothing more to do.
        let again = maintain(&world).await;
        assert!(again.iter().all(|s| s.action() == admin::MaintenanceAction::Keep), "{again:?}");
    }
    assert_eq!(all.into_iter().collect::<Vec<_>>(), ["F2", "F6"]);
    // What lasts is there after all of it.
    let user = world.user("u1");
    let left = user.list(pb::RecallFilter::default()).await;
    assert_eq!(contents(&left), ["我总是停在B-17车位", "Never call me on Sundays"]);
    assert_eq!(world.count("SELECT count(*) FROM records").await, 6, "two of three users each");
}

#[tokio::test]
async fn a_run_is_about_one_tenant_one_user_and_the_rules_that_are_named() {
    let world = World::new().await;
    for name in ["u1", "u2"] {
        mixed(&world, name).await;
    }
    world.user("u1").tenant("t2").remember(event("I ran 7 km in the park")).await.expect("stored");
    world.later(100 * DAY).await;
    let only = |user: &str, rules: &[&str]| admin::RunMaintenanceRequest {
        dry_run: true,
        user_id: user.into(),
        rules: rules.iter().map(|rule| (*rule).to_owned()).collect(),
    };
    let steps = run(&world, only("u1", &["F2"])).await.expect("planned");
    assert!(!steps.is_empty() && steps.iter().all(|s| s.user_id == "u1" && s.rule == "F2"), "{steps:?}");
    let everyone = run(&world, only("", &[])).await.expect("planned");
    let users: BTreeSet<&str> = everyone.iter().map(|s| s.user_id.as_str()).collect();
    assert_eq!(users, ["u1", "u2"].into());
    assert_eq!(everyone.iter().filter(|s| s.user_id == "u1").count(), steps.len(), "nothing of the other tenant");
    assert!(run(&world, only("nobody", &[])).await.expect("planned").is_empty());
    let fault = run(&world, only("", &["F99"])).await.expect_err("no rule");
    assert_eq!((fault.reason, fault.fields[0].field.as_str()), (Reason::InvalidField, "rules[0]"));
    let unsigned = world.user("u1");
    let channel = unsigned.channel_with(Some(unsigned.claims(None)));
    let refused = AdminServiceClient::new(channel).run_maintenance(only("", &[])).await.expect_err("no grant");
    assert_eq!(error::fault(&refused).reason, Reason::UnsignedCall);
}

#[tokio::test]
async fn a_rule_that_observes_says_and_does_nothing_and_write_off_leaves_expiry_only() {
    let world = World::new().await;
    let user = world.user("u1");
    let low = pb::Statement { confidence: Some(0.3), ..says("I always sit by the window") };
    let low = id(&user.remember(pb::Statement { source: pb::Source::UserStatement.into(), ..low }).await.expect("stored"));
    let lesson = pb::Statement {
        importance: 1,
        source_ref: Some(pb::SourceRef { kind: Some(pb::source_ref::Kind::Confirmation("dialog".into())) }),
        ..from(pb::Source::UserConfirmation, of_kind(pb::Kind::Experience, says("restart the printer twice")))
    };
    let lesson = id(&user.remember(lesson).await.expect("stored"));
    let passing = id(&user.remember(event("I ran 5 km in the park")).await.expect("stored"));
    world.later(31 * DAY).await;
    *world.mode.lock() = Mode::WriteOff;
    let steps = maintain(&world).await;
    assert_eq!(steps.iter().map(|s| s.rule.as_str()).collect::<Vec<_>>(), ["F2"]);
    assert_eq!(user.get(&passing).await.expect("there").status(), pb::Status::Archived);
    *world.mode.lock() = Mode::Normal;
    let steps = maintain(&world).await;
    let decay = steps.iter().find(|s| s.rule == "F3");
    let confirmed = user.get(&low).await.expect("there").confirmed;
    assert_eq!(decay.is_some(), !confirmed, "{steps:?}");
    assert!(decay.is_none_or(|s| s.state() == admin::MaintenanceState::Observed && s.memory_id == low));
    assert_eq!(user.get(&low).await.expect("there").status(), pb::Status::Active);
    assert_eq!(user.get(&lesson).await.expect("there").status(), pb::Status::Archived);
}

#[tokio::test]
async fn a149_decay_to_candidate_keeps_key_and_comes_back_by_confirmation() {
    let world = World::new().await;
    let mut policy = (**world.settings.load()).clone();
    policy.forgetting.rules.decay = Switch::Act;
    world.settings.store(std::sync::Arc::new(policy));
    let user = world.user("u1");
    // Said twice in two sessions: active, and not confirmed.
    let low = |session: &str| pb::Statement {
        source_ref: Some(user.turn(session)),
        confidence: Some(0.4),
        ..states("seat", "aisle", "I want an aisle seat in row 12")
    };
    user.propose(low("s1")).await.expect("queued");
    let seat = user.propose(low("s2")).await.expect("supported");
    let id = id(&seat);
    let there = user.get(&id).await.expect("there");
    assert_eq!((there.status(), there.confirmed), (pb::Status::Active, false), "{seat:?}");
    world.later(30 * DAY).await;
    assert!(rules_of(&maintain(&world).await, &id).is_empty(), "exactly at the threshold it stays");
    world.later(1).await;
    assert_eq!(rules_of(&maintain(&world).await, &id), ["F3 Move"]);
    let waits = user.get(&id).await.expect("there");
    assert_eq!((waits.status(), waits.key.as_str()), (pb::Status::Candidate, "travel.seat"));
    assert!(user.lookup("travel.seat").await.is_empty());
    assert_eq!(user.confirm(&id).await.expect("confirmed").outcome(), pb::Outcome::Active);
    assert_eq!(user.values("seat").await, ["aisle"]);
}

#[tokio::test]
async fn a158_the_nightly_run_begins_at_its_hour_by_the_clock_port_and_once_a_night() {
    let world = World::new().await;
    let user = world.user("u1");
    let passing = id(&user.remember(event("I ran 5 km in the park")).await.expect("stored"));
    world.settled().await;
    let mut policy = (**world.settings.load()).clone();
    policy.forgetting.schedule.enabled = true;
    policy.forgetting.schedule.utc_offset_minutes = 480;
    world.settings.store(std::sync::Arc::new(policy));
    // 08:00 in Shanghai when it begins: the first night is noted, nothing runs.
    let noted = "SELECT count(*) FROM meta WHERE name = 'maintenance.day'";
    strata_testkit::eventually(std::time::Duration::from_secs(30), async || world.count(noted).await == 1).await;
    let moved = "SELECT count(*) FROM records WHERE status = 'ARCHIVED'";
    let day = "SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'maintenance.day'";
    let first = world.count(day).await;
    // Day 7, 17:59 UTC is 01:59 there; a minute later it is time.
    world.clock.advance_micros(7 * DAY + 18 * 3_600_000_000 - 60_000_000);
    strata_testkit::eventually(std::time::Duration::from_secs(30), async || world.count(day).await == first + 7).await;
    assert_eq!(world.count(moved).await, 1, "the night of day 7 was made up for");
    assert_eq!(user.get(&passing).await.expect("there").status(), pb::Status::Archived);
    world.clock.advance_micros(60_000_000);
    strata_testkit::eventually(std::time::Duration::from_secs(30), async || world.count(day).await == first + 8).await;
}

#[tokio::test]
async fn a_run_that_was_cut_off_is_gone_on_with_by_another_process() {
    let world = World::new().await;
    for n in 0..3 {
        let user = world.user(&format!("u{n}"));
        for km in 0..5 {
            user.remember(event(&format!("I ran {km} km in the park"))).await.expect("stored");
        }
    }
    world.later(8 * DAY).await;
    // One batch of one user only.
    let mut policy = (**world.settings.load()).clone();
    policy.forgetting.run_changes = 2;
    world.settings.store(std::sync::Arc::new(policy.clone()));
    assert_eq!(maintain(&world).await.len(), 6);
    let archived = "SELECT count(*) FROM records WHERE status = 'ARCHIVED'";
    assert_eq!(world.count(archived).await, 6);
    policy.forgetting.run_changes = 2_000;
    world.settings.store(std::sync::Arc::new(policy));
    assert_eq!(maintain(&world).await.len(), 9);
    assert_eq!(world.count(archived).await, 15);
    let twice = world.count("SELECT count(*) FROM history WHERE rule = 'F2' GROUP BY memory_id ORDER BY 1 DESC LIMIT 1").await;
    assert_eq!(twice, 1, "each record was moved once");
}

/// Acceptance A151: in both languages and by configuration alone. What is stable has no end, is not archived for being unused,
/// and decays only where the operator has switched decay on, and then to a question, not away.
#[tokio::test]
async fn a151_stable_preferences_have_no_end_and_only_decay() {
    for acts in [false, true] {
        let world = World::new().await;
        let mut policy = (**world.settings.load()).clone();
        policy.forgetting.rules.decay = if acts { Switch::Act } else { Switch::Observe };
        world.settings.store(std::sync::Arc::new(policy));
        let user = world.user("u1");
        let preference = |session: &str, confidence, statement| {
            let statement = of_kind(pb::Kind::Preference, statement);
            pb::Statement { importance: 1, confidence, source_ref: Some(user.turn(session)), ..statement }
        };
        let mut kept = Vec::new();
        for statement in [says("From now on, I want my tea without sugar"), says("我以后咖啡都要少冰")] {
            let stored = user.remember(preference("s1", None, statement)).await.expect("stored");
            assert_eq!(
                (status(&stored), stored.memory.as_ref().expect("a record").tier()),
                (pb::Status::Active, pb::Tier::Stable)
            );
            kept.push(id(&stored));
        }
        // Said twice, half believed, confirmed by nobody: what may decay.
        let doubted = |session| preference(session, Some(0.4), states("seat", "aisle", "I want an aisle seat in row 12"));
        user.propose(doubted("s1")).await.expect("queued");
        let doubted = id(&user.propose(doubted("s2")).await.expect("supported"));
        for half_year in 0..6 {
            world.later(182 * DAY).await;
            maintain(&world).await;
            for memory_id in &kept {
                let memory = user.get(memory_id).await.expect("there");
                assert_eq!((memory.status(), memory.expire_time), (pb::Status::Active, None), "{half_year}: {}", memory.content);
            }
            let memory = user.get(&doubted).await;
            if acts {
                // A question, which has an end of its own when nobody answers it for 90 days (rules F2, F6).
                let asks = memory.as_ref().map(pb::Memory::status).is_ok_and(|status| status == pb::Status::Active);
                assert!(!asks, "{half_year}: {memory:?}");
            } else {
                let memory = memory.expect("there");
                assert_eq!((memory.status(), memory.expire_time), (pb::Status::Active, None), "{half_year}");
            }
        }
        let recalled = pb::RecallRequest { user_id: "u1".into(), query: "tea without sugar".into(), ..Default::default() };
        let items = user.client().recall(recalled).await.expect("served").into_inner().items;
        assert!(items.iter().any(|item| item.memory.as_ref().is_some_and(|memory| memory.memory_id == kept[0])));
    }
}
