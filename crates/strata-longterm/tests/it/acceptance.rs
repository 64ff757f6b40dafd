//! Behaviours that no other file has as its subject: what may enter, in plain sentences of both languages, and what a record
//! says of itself.

use crate::world::*;
use strata_api::longterm::v1 as pb;
use strata_core::Reason;

/// Rules that refused a statement.
async fn refused(user: &Caller, statement: pb::Statement) -> Vec<String> {
    let fault = user.remember(statement).await.expect_err("refused");
    fault.preconditions.into_iter().map(|p| p.rule).collect()
}

#[tokio::test]
async fn a50_a51_a67_what_passes_with_the_day_is_not_stored_by_any_door() {
    let world = World::new().await;
    let user = world.user("u1");
    for (text, rule) in [
        ("I'm so tired today", "G6"),
        ("This week is so busy", "G6"),
        ("今天好累", "G6"),
        ("Set the timeout to 5 s for this try", "G6"),
        ("这次测试先用5秒超时", "G6"),
        ("先用５秒超时\u{200b}试试 🙏", "G6"),
        ("Good morning!", "G5"),
        ("哈哈哈，好的", "G5"),
        ("you there?", "G5"),
    ] {
        assert!(refused(&user, says(text)).await.contains(&rule.to_owned()), "{text}");
        assert_eq!(
            user.propose(says(text)).await.expect_err(text).reason.code(),
            strata_core::Code::FailedPrecondition,
            "{text}"
        );
    }
    assert_eq!(world.count("SELECT count(*) FROM records").await, 0);
}

#[tokio::test]
async fn a58_a_statement_without_its_literal_sentence_is_refused() {
    let world = World::new().await;
    let user = world.user("u1");
    for quote in ["", "  ", "\u{3000}", "\n\t"] {
        let fault = user.remember(pb::Statement { source_quote: quote.into(), ..says("I am vegan") }).await.expect_err("blank");
        let named =
            fault.fields.iter().any(|f| f.field.contains("source_quote")) || fault.preconditions.iter().any(|p| p.rule == "G2");
        assert!(named, "{quote:?}: {fault:?}");
    }
    assert_eq!(world.count("SELECT count(*) FROM records").await, 0);
}

#[tokio::test]
async fn a75_only_what_is_stable_has_no_end() {
    let world = World::new().await;
    let user = world.user("u1");
    let stable = user.remember(states("profile.city", "Rome", "I live in Rome")).await.expect("stored");
    let event = user.remember(of_kind(pb::Kind::Event, says("I met Tom in Rome"))).await.expect("stored");
    let wish = of_kind(pb::Kind::Preference, states("diet.spicy", "yes", "just this once I want spicy food"));
    let wish = user.remember(wish).await.expect("stored");
    let ends = |result: &pb::WriteResult| result.memory.as_ref().expect("a record").expire_time.is_some();
    assert_eq!((ends(&stable), ends(&event), ends(&wish)), (false, true, true));
}

#[tokio::test]
async fn a81_a_lesson_is_not_recalled_until_somebody_verified_it() {
    let world = World::new().await;
    let user = world.user("u1");
    for (lesson, query) in
        [("Batch writes of more than 500 rows time out", "batch writes"), ("超过500行的批量写入会超时", "批量写入")]
    {
        let statement = of_kind(pb::Kind::Experience, from(pb::Source::Review, says(lesson)));
        let waiting = user.remember(statement).await.expect("queued");
        assert_eq!((waiting.outcome(), status(&waiting)), (pb::Outcome::Candidate, pb::Status::Candidate));
        let ask = pb::RecallRequest { user_id: "u1".into(), query: query.into(), ..Default::default() };
        let recalled = async || {
            let items = user.client().recall(ask.clone()).await.expect("served").into_inner().items;
            items.into_iter().filter_map(|item| item.memory).any(|memory| memory.content == lesson)
        };
        assert!(!recalled().await, "{lesson}");
        let confirmed = user.confirm(&id(&waiting)).await.expect("verified");
        assert_eq!(status(&confirmed), pb::Status::Active, "{:?}", confirmed.findings);
        assert!(recalled().await, "{lesson}");
    }
}

#[tokio::test]
async fn a84_a110_nothing_is_stored_or_found_without_an_owner_and_each_record_names_its_session() {
    let world = World::new().await;
    let user = world.user("u1");
    let stored = user.remember(states("profile.city", "Rome", "I live in Rome")).await.expect("stored");
    let memory = user.get(&id(&stored)).await.expect("found");
    assert_eq!(memory.user_id, "u1");
    let Some(pb::source_ref::Kind::Turn(turn)) = memory.source_ref.and_then(|reference| reference.kind) else { panic!() };
    assert_eq!(turn.session_id, "s1");
    // The header names a user, the request must name the same one, or none where the credential has it.
    let nobody = pb::RecallRequest { user_id: "u2".into(), query: "Rome".into(), ..Default::default() };
    assert!(user.client().recall(nobody).await.is_err());
    let lookup = pb::LookupMemoryRequest { user_id: "u2".into(), key: "profile.city".into(), ..Default::default() };
    assert!(user.client().lookup_memory(lookup).await.is_err());
    let unsigned =
        strata_api::longterm::v1::long_term_memory_service_client::LongTermMemoryServiceClient::new(user.channel_with(None));
    let ask = pb::RecallRequest { user_id: "u1".into(), query: "Rome".into(), ..Default::default() };
    let status = unsigned.clone().recall(ask).await.expect_err("no header");
    assert_eq!(strata_api::error::fault(&status).reason, Reason::UnsignedCall);
}

#[tokio::test]
async fn a91_what_the_user_orders_is_active_at_once_and_confirmed() {
    let world = World::new().await;
    let user = world.user("u1");
    for text in [
        "From now on always reply in Chinese",
        "Remember that I never fly on Sundays",
        "以后都用中文回复",
        "记住，我不吃花生",
        "记\u{200b}住，我住在Ｒｏｍｅ 🙂",
    ] {
        let result = user.remember(says(text)).await.expect(text);
        let memory = result.memory.as_ref().expect("a record");
        assert_eq!((memory.status(), memory.confirmed), (pb::Status::Active, true), "{text}: {:?}", result.findings);
    }
    let plain = user.remember(says("My desk is on the third floor")).await.expect("stored");
    assert!(!plain.memory.expect("a record").confirmed, "an order without a cue is active, not confirmed");
}

#[tokio::test]
async fn a124_what_scores_below_the_floor_is_not_returned_and_nothing_is_padded() {
    let world = World::new().await;
    let user = world.user("u1");
    for n in 0..5 {
        user.remember(says(&format!("My locker number {n} is in hall {n}"))).await.expect("stored");
    }
    world.settled().await;
    let ask = |query: &str, min_score: f64| {
        let request = pb::RecallRequest { user_id: "u1".into(), query: query.into(), k: 50, min_score, ..Default::default() };
        let client = user.clone();
        async move { client.client().recall(request).await.expect("served").into_inner().items.len() }
    };
    assert_eq!(ask("violin lessons", 0.0).await, 0);
    assert_eq!(ask("小提琴课", 0.0).await, 0);
    assert!(ask("locker hall", 0.0).await > 0);
    assert_eq!(ask("locker hall", 1.0).await, 0, "the caller's own floor");
}

#[tokio::test]
async fn a135_old_prices_are_gone_by_their_age_and_the_current_one_stands_first() {
    let world = World::new().await;
    let user = world.user("u1");
    for price in [3_999, 3_799, 3_599, 3_399] {
        let text = format!("The price of the Aurora laptop was {price} euros when I asked");
        user.remember(of_kind(pb::Kind::Event, says(&text))).await.expect("stored");
    }
    let found = async || {
        let ask =
            pb::RecallRequest { user_id: "u1".into(), query: "price of the Aurora laptop".into(), k: 3, ..Default::default() };
        let items = user.client().recall(ask).await.expect("served").into_inner().items;
        items.into_iter().filter_map(|item| item.memory).map(|memory| memory.content).collect::<Vec<_>>()
    };
    assert_eq!(found().await.len(), 3);
    world.later(90 * DAY).await;
    let now = "The price of the Aurora laptop is 2999 euros";
    user.remember(of_kind(pb::Kind::Event, says(now))).await.expect("stored");
    assert_eq!(found().await, [now]);
}

#[tokio::test]
async fn a144_a176_history_names_who_wrote_each_record_and_by_which_rule() {
    let world = World::new().await;
    let user = world.user("u1");
    user.remember(states("work.cost_centre", "A-100", "My cost centre is A-100")).await.expect("stored");
    world.later(strata_core::time::SECOND).await;
    user.remember(states("work.cost_centre", "B-200", "My cost centre is B-200 now")).await.expect("stored");
    let history = user.history_of("work.cost_centre").await;
    assert_eq!(history.memories.len(), 2);
    for memory in &history.memories {
        // Which sentence it came from, and where that stands.
        assert_eq!(memory.source_quote, memory.content);
        assert!(matches!(memory.source_ref.as_ref().and_then(|at| at.kind.as_ref()), Some(pb::source_ref::Kind::Turn(_))));
    }
    assert!(!history.entries.is_empty());
    for entry in &history.entries {
        assert!(!entry.actor.is_empty() && !entry.rule.is_empty(), "{entry:?}");
    }
}

#[tokio::test]
async fn c154_one_off_remarks_are_no_preferences() {
    let world = World::new().await;
    let user = world.user("u1");
    for text in [
        "I like this draft more, could you drop the table here",
        "set the timeout to 5 s for this try",
        "this week is so busy",
        "you there?",
        "我更喜欢这个版本",
        "这次先用5秒",
        "这周好忙",
        "在吗",
    ] {
        let outcome = user.propose(of_kind(pb::Kind::Preference, says(text))).await;
        let stored = outcome.as_ref().is_ok_and(|result| result.outcome() == pb::Outcome::Active);
        assert!(!stored, "{text}: {outcome:?}");
    }
    for text in ["From now on always reply in Chinese", "以后一律用中文回复"] {
        let accepted = user.propose(of_kind(pb::Kind::Preference, says(text))).await.expect(text);
        assert_eq!(accepted.outcome(), pb::Outcome::Active, "{text}: {:?}", accepted.findings);
    }
}

/// Acceptance A74: the source tells what the user said from what was inferred, and a list by source is where the search for
/// wrong records begins.
#[tokio::test]
async fn a74_records_are_listed_by_their_source() {
    let world = World::new().await;
    let user = world.user("u1");
    let said = user.remember(says("I always park in lot B-17")).await.expect("stored");
    let corrected = from(pb::Source::UserCorrection, states("profile.city", "Rome", "I live in Rome"));
    let corrected = user.remember(corrected).await.expect("stored");
    let guessed = user.propose(from(pb::Source::ModelInference, says("用户可能更喜欢靠窗的座位"))).await.expect("queued");
    let seen = of_kind(pb::Kind::Event, from(pb::Source::Observation, says("Invoice 17 was paid")));
    let seen = user.propose(seen).await.expect("stored");
    world.user("u2").remember(says("I always park in lot C-3")).await.expect("stored");

    let list = async |sources: &[pb::Source], page_size: i32| {
        let both = vec![pb::Status::Active.into(), pb::Status::Candidate.into()];
        let mut request = pb::ListMemoriesRequest {
            user_id: "u1".into(),
            sources: sources.iter().map(|source| (*source).into()).collect(),
            filter: Some(pb::RecallFilter { statuses: both, ..Default::default() }),
            page_size,
            ..Default::default()
        };
        let mut ids = Vec::new();
        loop {
            let page = user.client().list_memories(request.clone()).await.expect("served").into_inner();
            ids.extend(page.memories.into_iter().map(|memory| memory.memory_id));
            if page.next_page_token.is_empty() {
                return ids;
            }
            request.page_token = page.next_page_token;
        }
    };
    use pb::Source::{ModelInference, Observation, UserCorrection, UserStatement};
    assert_eq!(list(&[ModelInference], 0).await, [id(&guessed)], "what was inferred");
    assert_eq!(list(&[UserStatement, UserCorrection, UserStatement], 1).await, [id(&said), id(&corrected)], "what was said");
    assert_eq!(list(&[Observation], 0).await, [id(&seen)]);
    assert_eq!(list(&[pb::Source::Review], 0).await, Vec::<String>::new());
    assert_eq!(list(&[], 0).await.len(), 4);

    // A token belongs to its question, and an unknown source is an error, never no filter.
    let mut request = pb::ListMemoriesRequest {
        user_id: "u1".into(),
        sources: vec![UserStatement.into(), UserCorrection.into()],
        page_size: 1,
        ..Default::default()
    };
    request.page_token = user.client().list_memories(request.clone()).await.expect("a page").into_inner().next_page_token;
    request.sources = vec![ModelInference.into()];
    let fault = strata_api::error::fault(&user.client().list_memories(request.clone()).await.expect_err("another question"));
    assert_eq!(fault.reason, Reason::InvalidPageToken);
    for sources in [vec![99], vec![0], vec![UserStatement.into(); 200]] {
        let request = pb::ListMemoriesRequest { sources, page_token: String::new(), ..request.clone() };
        let fault = strata_api::error::fault(&user.client().list_memories(request).await.expect_err("no source"));
        assert_eq!((fault.reason, fault.fields[0].field.as_str()), (Reason::InvalidField, "sources"));
    }
}
