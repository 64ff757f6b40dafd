//! Hit rate, token share, reviews, pollution, and what they suggest (rules Q1 to Q4, D3; case C147).

use crate::world::*;
use std::collections::BTreeSet;
use strata_api::admin::v1::admin_service_client::AdminServiceClient;
use strata_api::admin::v1::{self as admin, Mode, ReviewVerdict};
use strata_api::error;
use strata_api::internal::v1 as internal;
use strata_api::longterm::v1 as pb;
use strata_core::id::Level;
use strata_core::time::HOUR;
use strata_core::{Fault, Reason};
use strata_runtime::RpcChannel;
use strata_runtime::sqlite::SqliteSettings;
use uuid::Uuid;

fn admin(user: &Caller) -> AdminServiceClient<RpcChannel> {
    AdminServiceClient::new(user.channel_with(Some(user.claims(Some(Level::User)))))
}

async fn quality(user: &Caller, hours: i32) -> admin::GetQualityResponse {
    admin(user).get_quality(admin::GetQualityRequest { window_hours: hours }).await.expect("served").into_inner()
}

async fn sample(user: &Caller, count: i32, request_id: &str) -> Vec<admin::ReviewSample> {
    let request = admin::SampleForReviewRequest { count, request_id: request_id.into() };
    admin(user).sample_for_review(request).await.expect("served").into_inner().samples
}

async fn review(user: &Caller, sample_id: &str, verdict: ReviewVerdict) -> Result<admin::SubmitReviewResponse, Fault> {
    let request = admin::SubmitReviewRequest { sample_id: sample_id.into(), verdict: verdict.into(), request_id: String::new() };
    admin(user).submit_review(request).await.map(tonic::Response::into_inner).map_err(|status| error::fault(&status))
}

/// Records, in the order they were told.
async fn remembered(user: &Caller, count: usize) -> Vec<String> {
    let mut ids = Vec::new();
    for n in 0..count {
        let statement = states(&format!("rack.n{n}"), &format!("bay {n}"), &format!("My server number {n} stands in bay {n}"));
        ids.push(id(&user.remember(statement).await.expect("stored")));
    }
    ids
}

/// A context that shows these.
async fn shown(user: &Caller, memory_ids: &[String], memory_tokens: u64, request_tokens: u64) -> String {
    let recall_id = Uuid::new_v4().to_string();
    let request = internal::RecordContextRequest {
        user_id: user.user.clone(),
        agent_id: user.agent.clone(),
        recall_id: recall_id.clone(),
        memory_ids: memory_ids.to_vec(),
        memory_tokens,
        request_tokens,
        ..Default::default()
    };
    user.target().record_context(request).await.expect("served");
    recall_id
}

async fn cite(user: &Caller, recall_id: &str, ids: &[String]) -> pb::ReportUsageResponse {
    let request = pb::ReportUsageRequest {
        user_id: user.user.clone(),
        recall_id: recall_id.into(),
        memory_ids: ids.to_vec(),
        ..Default::default()
    };
    user.client().report_usage(request).await.expect("served").into_inner()
}

#[tokio::test]
async fn c147_a191_a192_counts_match_a_hand_count_and_survive_a_restart() {
    let world = World::new().await;
    let user = world.user("u1");
    let empty = quality(&user, 0).await;
    assert_eq!((empty.hit_rate, empty.token_share, empty.pollution_rate, empty.counted_since), (None, None, None, None));
    let ids = remembered(&user, 4).await;
    // Ten contexts of four records; in thirteen cases a record was used.
    for n in 0..10 {
        let recall = shown(&user, &ids, 90, 600).await;
        let used = &ids[..if n < 3 { 2 } else { 1 }];
        cite(&user, &recall, used).await;
        // A second report of the same counts nothing twice.
        assert_eq!(cite(&user, &recall, used).await.recalled, 4);
    }
    // One that shows nothing has no rate, and its tokens count.
    shown(&user, &[], 0, 600).await;
    // A look is no recall; a recall is.
    let ask =
        |no_report| pb::RecallRequest { user_id: "u1".into(), keys: vec!["rack.n0".into()], no_report, ..Default::default() };
    assert_eq!(user.client().recall(ask(true)).await.expect("served").into_inner().recall_id, "");
    let counted = quality(&user, 1).await;
    assert_eq!((counted.recalled, counted.cited, counted.hit_rate), (40, 13, Some(13.0 / 40.0)));
    assert_eq!((counted.contexts, counted.memory_tokens, counted.request_tokens), (11, 900, 6_600));
    assert_eq!(counted.token_share, Some(900.0 / 6_600.0));
    assert!(counted.counted_since.is_some() && counted.pollution_rate.is_none() && counted.alarms.is_empty());
    assert_ne!(user.client().recall(ask(false)).await.expect("served").into_inner().recall_id, "");
    assert_eq!(quality(&user, 1).await.recalled, 41);
    // Nobody else's: neither another user of the tenant apart, nor another tenant at all.
    assert_eq!(quality(&world.user("u2"), 1).await.recalled, 41, "counts are the tenant's");
    assert_eq!(quality(&world.user("u1").tenant("t2"), 1).await.recalled, 0);

    world.settled().await;
    let World { directory, role, database, .. } = world;
    role.shutdown(std::time::Duration::from_secs(30)).await;
    drop(role);
    database.close().await;
    let world = World::within(directory, 9, None, SqliteSettings::default()).await;
    let after = quality(&world.user("u1"), 1).await;
    assert_eq!((after.recalled, after.cited, after.contexts), (41, 13, 11));
    // The window moves on; the window before it is what it is compared with.
    world.later(2 * HOUR).await;
    assert_eq!(quality(&world.user("u1"), 1).await.recalled, 0);
    assert_eq!(quality(&world.user("u1"), 24).await.recalled, 41);
    let refused = admin(&world.user("u1")).get_quality(admin::GetQualityRequest { window_hours: 745 }).await;
    assert_eq!(error::fault(&refused.expect_err("too long")).fields[0].field, "window_hours");
}

#[tokio::test]
async fn a193_q2_only_reviewed_samples_make_a_pollution_rate() {
    let world = World::new().await;
    let user = world.user("u1");
    let ids = remembered(&user, 12).await;
    let recall = shown(&user, &ids, 90, 600).await;
    let request = Uuid::new_v4().to_string();
    let first = sample(&user, 5, &request).await;
    assert_eq!(first.len(), 5);
    let told: BTreeSet<&String> = first.iter().map(|one| &one.memory.as_ref().expect("a record").memory_id).collect();
    assert!(told.len() == 5 && told.iter().all(|id| ids.contains(id)));
    assert!(first.iter().all(|one| one.recall_id == recall && one.shown_time.is_some()));
    let of = |samples: &[admin::ReviewSample]| samples.iter().map(|one| one.sample_id.clone()).collect::<BTreeSet<_>>();
    assert_eq!(of(&sample(&user, 5, &request).await), of(&first), "the same request draws the same");
    // What was drawn is not drawn again; what was forgotten is not shown to anybody.
    let forgotten = ids.iter().find(|id| !told.contains(id)).expect("one").clone();
    user.forget(&[&forgotten], &[]).await;
    let rest = sample(&user, 100, "").await;
    assert_eq!(rest.len(), 6);
    assert!(of(&rest).is_disjoint(&of(&first)));
    assert!(rest.iter().all(|one| one.memory.as_ref().expect("a record").memory_id != forgotten));
    assert!(sample(&user, 5, "").await.is_empty());
    assert!(sample(&world.user("u1").tenant("t2"), 5, "").await.is_empty());

    let stranger = world.user("u1").tenant("t2");
    let foreign = review(&stranger, &first[0].sample_id, ReviewVerdict::Sound).await;
    assert_eq!(foreign.expect_err("another tenant's").reason, Reason::NotFound);
    assert_eq!(review(&user, "x", ReviewVerdict::Sound).await.expect_err("no id").fields[0].field, "sample_id");
    let blank = review(&user, &first[0].sample_id, ReviewVerdict::Unspecified).await;
    assert_eq!(blank.expect_err("no verdict").fields[0].field, "verdict");
    for (one, verdict) in first.iter().zip([
        ReviewVerdict::WrongWrite,
        ReviewVerdict::Sound,
        ReviewVerdict::Sound,
        ReviewVerdict::Stale,
        ReviewVerdict::Mismatch,
    ]) {
        review(&user, &one.sample_id, verdict).await.expect("taken");
    }
    // A second look replaces the first.
    review(&user, &first[0].sample_id, ReviewVerdict::Sound).await.expect("taken");
    let now = quality(&user, 1).await;
    let reviews = now.reviews.expect("counted");
    assert_eq!((reviews.sound, reviews.wrong_write, reviews.stale, reviews.mismatch), (3, 0, 1, 1));
    assert_eq!(now.pollution_rate, Some(0.4));
    assert!(now.pollution_low.expect("a bound") > 0.1 && now.pollution_high.expect("a bound") < 0.8);
    assert_eq!((now.suggested_mode(), now.maintenance_suggested), (Mode::Normal, false), "too few to say anything");
}

#[tokio::test]
async fn a199_d3_reviews_suggest_a_mode_and_it_is_remembered() {
    let world = World::unsynced(7).await;
    let user = world.user("u1");
    let ids = remembered(&user, 60).await;
    shown(&user, &ids, 90, 600).await;
    let mut last = None;
    for (n, one) in sample(&user, 60, "").await.iter().enumerate() {
        let verdict = if n % 6 == 0 { ReviewVerdict::WrongWrite } else { ReviewVerdict::Sound };
        last = Some(review(&user, &one.sample_id, verdict).await.expect("taken"));
    }
    let last = last.expect("reviewed");
    assert_eq!((last.suggested_mode(), last.maintenance_suggested), (Mode::WriteOff, false));
    let now = quality(&user, 1).await;
    assert_eq!(now.suggested_mode(), Mode::WriteOff);
    assert!(!now.automatic, "nothing switches by itself unless configured");
    let alarms: Vec<&str> = now.alarms.iter().map(|alarm| alarm.finding.as_ref().expect("named").outcome.as_str()).collect();
    assert_eq!(alarms, ["POLLUTION"]);
    assert_eq!(quality(&world.user("u1").tenant("t2"), 1).await.suggested_mode(), Mode::Normal);
}

#[tokio::test]
async fn rule_c10_a_candidate_is_asked_once_a_session_and_three_times_in_all() {
    let world = World::new().await;
    let user = world.user("u1");
    // A confirmed value, then a guess against it: due at once (rule K3).
    user.remember(states("profile.city", "Hangzhou", "From now on I live in Hangzhou")).await.expect("stored");
    let guess = from(pb::Source::ModelInference, states("profile.city", "Oslo", "The user lives in Oslo"));
    let guess = id(&user.propose(guess).await.expect("kept"));
    let due = async |session: &str| {
        let request =
            pb::ListCandidatesRequest { user_id: "u1".into(), due_only: true, session_id: session.into(), ..Default::default() };
        let found = user.client().list_candidates(request).await.expect("served").into_inner().candidates;
        found.into_iter().map(|one| one.memory.expect("a record").memory_id).collect::<Vec<_>>()
    };
    let ask = async |session: &str| {
        let request = internal::RecordContextRequest {
            user_id: "u1".into(),
            recall_id: Uuid::new_v4().to_string(),
            asked_ids: vec![guess.clone()],
            session_id: session.into(),
            ..Default::default()
        };
        user.target().record_context(request).await.map_err(|status| error::fault(&status))
    };
    assert_eq!(due("a").await, [guess.clone()]);
    ask("a").await.expect("noted");
    ask("a").await.expect("noted once");
    assert!(due("a").await.is_empty(), "not twice in one session");
    assert_eq!(due("b").await, [guess.clone()]);
    ask("b").await.expect("noted");
    assert_eq!(due("").await, [guess.clone()], "twice is not too often");
    ask("c").await.expect("noted");
    assert!(due("d").await.is_empty() && due("").await.is_empty(), "three times in all");
    assert_eq!(user.candidates(false).await.len(), 1, "it waits for evidence all the same");
    assert_eq!(ask("").await.expect_err("no session").reason, Reason::InvalidField);
}
