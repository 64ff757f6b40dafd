//! Reads: isolation, filters, paging, history in time.

use crate::world::*;
use std::collections::{BTreeMap, BTreeSet};
use strata_api::convert::common::wire_time;
use strata_api::error;
use strata_api::longterm::v1 as pb;
use strata_core::time::{HOUR, SECOND};
use strata_core::{Reason, Timestamp, limits};

#[tokio::test]
async fn c033_c034_same_words_two_owners() {
    let world = World::new().await;
    let callers = [world.user("u1"), world.user("u2"), world.user("u1").tenant("t2")];
    let mut ids = Vec::new();
    for (caller, land) in callers.iter().zip(["Norway", "Chile", "Peru"]) {
        ids.push(id(&caller.remember(states("home.country", land, &format!("I live in {land}"))).await.expect("stored")));
    }
    for (n, (caller, land)) in callers.iter().zip(["Norway", "Chile", "Peru"]).enumerate() {
        assert_eq!(caller.values("home.country").await, [land]);
        assert_eq!(caller.list(pb::RecallFilter::default()).await.len(), 1);
        for (m, other) in ids.iter().enumerate() {
            let found = caller.get(other).await;
            assert_eq!(found.is_ok(), n == m);
            let history = caller.history(pb::GetHistoryRequest { memory_id: other.clone(), ..Default::default() }).await;
            assert_eq!(history.is_ok(), n == m);
            if n != m {
                assert_eq!(found.expect_err("foreign").reason, Reason::NotFound);
                assert_eq!(caller.forget(&[other], &[]).await.not_found, std::slice::from_ref(other));
                assert_eq!(caller.restore(&[other]).await.not_found, std::slice::from_ref(other));
            }
        }
    }
    // The header's user decides, whatever the body says.
    let mut client = callers[0].client();
    for (user_id, reason) in [("u2", Reason::OwnerMismatch), ("", Reason::InvalidField)] {
        let request = pb::ListMemoriesRequest { user_id: user_id.into(), ..Default::default() };
        let fault = error::fault(&client.list_memories(request).await.expect_err("refused"));
        assert_eq!(fault.reason, reason, "{user_id:?}");
    }
}

#[tokio::test]
async fn c036_c037_c043_awkward_ids_stay_apart() {
    let world = World::new().await;
    let users = ["u1", "u10", "u1:2", "u1*", "U1", "u%", "u_", "用户 一", "a@b+c=#/.", "{u}", "u'--"];
    for (n, user) in users.iter().enumerate() {
        world.user(user).remember(says(&format!("I always use gate G-{n}"))).await.expect("stored");
    }
    for (n, user) in users.iter().enumerate() {
        assert_eq!(
            contents(&world.user(user).list(pb::RecallFilter::default()).await),
            [format!("I always use gate G-{n}")],
            "{user}"
        );
    }
    world.user("a:b").tenant("t").remember(says("I always use gate Z-1")).await.expect("stored");
    assert!(world.user("b").tenant("t:a").list(pb::RecallFilter::default()).await.is_empty());
}

#[tokio::test]
async fn c041_a111_an_agent_sees_its_own_and_the_users_records() {
    let world = World::new().await;
    let health = world.user("u1").agent("health");
    health.remember(says("I have physiotherapy on Thursdays")).await.expect("stored");
    world.user("u1").remember(says("I always use gate G-1")).await.expect("stored");
    let seen = |caller: Caller| async move { caller.list(pb::RecallFilter::default()).await.len() };
    assert_eq!((seen(health).await, seen(world.user("u1")).await, seen(world.user("u1").agent("travel")).await), (2, 2, 1));
}

#[tokio::test]
async fn c044_c046_a112_filters_combine_as_and() {
    let world = World::new().await;
    let user = world.user("u1");
    let metadata: BTreeMap<String, String> = [("model", "provider/name:7b-q6"), ("path", "a\\b"), ("expr", "x=1,y<2")]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into();
    user.remember(pb::Statement {
        metadata: metadata.clone(),
        tags: vec!["work".into(), "a,b".into()],
        ..says("I always use gate G-1")
    })
    .await
    .expect("stored");
    user.remember(of_kind(pb::Kind::Preference, says("I prefer gate G-2"))).await.expect("stored");
    let count = |filter: pb::RecallFilter| {
        let user = user.clone();
        async move { user.list(filter).await.len() }
    };
    for (key, value) in &metadata {
        let pair = |value: String| pb::RecallFilter { metadata: BTreeMap::from([(key.clone(), value)]), ..Default::default() };
        assert_eq!(count(pair(value.clone())).await, 1, "{value}");
        assert_eq!(count(pair(format!("{value} "))).await, 0, "a near miss of {value}");
    }
    let both = pb::RecallFilter {
        metadata,
        tags: vec!["a,b".into()],
        kinds: vec![pb::Kind::Fact.into()],
        session_id: "s1".into(),
        ..Default::default()
    };
    assert_eq!(count(both.clone()).await, 1);
    assert_eq!(count(pb::RecallFilter { kinds: vec![pb::Kind::Preference.into()], ..both.clone() }).await, 0);
    assert_eq!(count(pb::RecallFilter { tags: vec!["a".into()], ..both.clone() }).await, 0);
    assert_eq!(count(pb::RecallFilter { session_id: "s2".into(), ..both }).await, 0);
    assert_eq!(count(pb::RecallFilter { tiers: vec![pb::Tier::Temporary.into()], ..Default::default() }).await, 0);
}

#[tokio::test]
async fn c071_a_time_window_includes_its_start_and_excludes_its_end() {
    let world = World::new().await;
    let user = world.user("u1");
    let day = |n: i64| START.plus((n - 4) * DAY);
    let mut n = 0;
    for d in 1..=3 {
        for offset in [0, 12 * HOUR, DAY - 1_000] {
            n += 1;
            user.clone().said(day(d).plus(offset)).remember(says(&format!("I always use gate G-{n}"))).await.expect("stored");
        }
    }
    let window = pb::RecallFilter { from: Some(wire_time(day(2))), to: Some(wire_time(day(3))), ..Default::default() };
    let found = user.list(window).await;
    assert_eq!(contents(&found), ["I always use gate G-4", "I always use gate G-5", "I always use gate G-6"]);
    let request = pb::ListMemoriesRequest {
        user_id: "u1".into(),
        filter: Some(pb::RecallFilter { from: Some(wire_time(day(3))), to: Some(wire_time(day(2))), ..Default::default() }),
        ..Default::default()
    };
    assert_eq!(error::fault(&user.client().list_memories(request).await.expect_err("refused")).reason, Reason::InvalidField);
}

#[tokio::test]
async fn c075_history_at_a_past_time_uses_that_times_validity() {
    let world = World::new().await;
    let user = world.user("u1");
    let price = |value: &str| states("promo.price", value, &format!("the promo price is {value}"));
    user.remember(pb::Statement { expire_time: Some(wire_time(START.plus(7 * DAY))), ..price("99") }).await.expect("stored");
    world.later(31 * DAY).await;
    user.remember(price("129")).await.expect("stored");
    let at = |time: Timestamp| {
        let user = user.clone();
        async move {
            let request = pb::GetHistoryRequest { key: "promo.price".into(), as_of: Some(wire_time(time)), ..Default::default() };
            user.history(request).await.expect("served").memories.iter().map(value_of).collect::<Vec<_>>()
        }
    };
    assert_eq!(at(START.plus(4 * DAY)).await, ["99"]);
    assert!(at(START.plus(19 * DAY)).await.is_empty());
    assert_eq!(at(START.plus(31 * DAY)).await, ["129"]);
    assert!(at(START.plus(-1)).await.is_empty());
    assert_eq!(user.values("promo.price").await, ["129"]);
}

#[tokio::test]
async fn a104_valid_at_answers_what_held_then() {
    let world = World::new().await;
    let user = world.user("u1");
    user.remember(states("cost.centre", "A-1", "my cost centre is A-1")).await.expect("stored");
    let from_later = Some(wire_time(START.plus(10 * DAY)));
    let announced = pb::Statement { valid_from: from_later, ..states("cost.centre", "B-2", "my cost centre will be B-2") };
    assert_eq!(user.remember(announced).await.expect("stored").outcome(), pb::Outcome::Active);
    assert_eq!(user.values("cost.centre").await, ["A-1"], "the announced value does not hold yet");
    let at = |time: Timestamp| {
        let user = user.clone();
        async move {
            let request =
                pb::GetHistoryRequest { key: "cost.centre".into(), valid_at: Some(wire_time(time)), ..Default::default() };
            user.history(request).await.expect("served").memories.iter().map(value_of).collect::<Vec<_>>()
        }
    };
    assert_eq!(at(START.plus(DAY)).await, ["A-1"]);
    assert_eq!(at(START.plus(11 * DAY)).await, ["B-2"]);
    world.later(11 * DAY).await;
    assert_eq!(user.values("cost.centre").await, ["B-2"]);
}

#[tokio::test]
async fn c131_c139_c140_paging_visits_each_record_once_and_limits_mean_the_same() {
    let world = World::new().await;
    let user = world.user("u1");
    for n in 0..23 {
        user.remember(states(&format!("gate.g{n}"), &format!("G-{n}"), &format!("I always use gate G-{n}")))
            .await
            .expect("stored");
        user.propose(from(pb::Source::ModelInference, says(&format!("seems to like gate H-{n}")))).await.expect("queued");
    }
    for size in [1, 7, 22, 23, 24, 1_000] {
        let (mut seen, mut token, mut pages) = (BTreeSet::new(), String::new(), 0);
        loop {
            let request = pb::ListMemoriesRequest {
                user_id: "u1".into(),
                page_size: size,
                page_token: token.clone(),
                ..Default::default()
            };
            let page = user.client().list_memories(request).await.expect("served").into_inner();
            assert!(page.memories.len() <= usize::try_from(size).expect("positive"));
            for memory in page.memories {
                assert!(seen.insert(memory.memory_id), "twice");
            }
            pages += 1;
            if pages == 1 {
                user.remember(says(&format!("I always use lift L-{size}"))).await.expect("stored meanwhile");
            }
            token = page.next_page_token;
            if token.is_empty() {
                break;
            }
        }
        assert!(seen.len() >= 23, "size {size}: {}", seen.len());
    }
    let list = |page_size, page_token: &str| pb::ListMemoriesRequest {
        user_id: "u1".into(),
        page_size,
        page_token: page_token.into(),
        ..Default::default()
    };
    let candidates = |page_size, page_token: &str| pb::ListCandidatesRequest {
        user_id: "u1".into(),
        page_size,
        page_token: page_token.into(),
        ..Default::default()
    };
    let history = |page_size, page_token: &str| pb::GetHistoryRequest {
        user_id: "u1".into(),
        key: "gate.g1".into(),
        page_size,
        page_token: page_token.into(),
        ..Default::default()
    };
    let mut client = user.client();
    for size in [-1, i32::MIN] {
        for refused in [
            client.list_memories(list(size, "")).await.err(),
            client.list_candidates(candidates(size, "")).await.err(),
            client.get_history(history(size, "")).await.err(),
        ] {
            assert_eq!(error::fault(&refused.expect("refused")).reason, Reason::InvalidField);
        }
    }
    let over = i32::try_from(limits::PAGE_MAX).expect("small") + 1;
    assert!(client.list_memories(list(over, "")).await.expect("served").into_inner().capped);
    assert!(client.list_candidates(candidates(over, "")).await.expect("served").into_inner().capped);
    assert!(client.get_history(history(over, "")).await.expect("served").into_inner().capped);
    assert!(!client.list_memories(list(over - 1, "")).await.expect("served").into_inner().capped);
    // A token is of use for its own list, owner and filter only.
    let token = client.list_memories(list(1, "")).await.expect("served").into_inner().next_page_token;
    let foreign = [
        client.list_candidates(candidates(1, &token)).await.err(),
        client.get_history(history(1, &token)).await.err(),
        client.list_memories(list(1, &format!("{token}x"))).await.err(),
        world.user("u2").client().list_memories(pb::ListMemoriesRequest { user_id: "u2".into(), ..list(1, &token) }).await.err(),
    ];
    for refused in foreign {
        assert_eq!(error::fault(&refused.expect("refused")).reason, Reason::InvalidPageToken);
    }
    let all: usize = {
        let (mut n, mut token) = (0, String::new());
        loop {
            let page = client.list_candidates(candidates(5, &token)).await.expect("served").into_inner();
            n += page.candidates.len();
            token = page.next_page_token;
            if token.is_empty() {
                break n;
            }
        }
    };
    assert_eq!(all, 23);
}

#[tokio::test]
async fn c087_a_page_fits_into_one_message() {
    let world = World::new().await;
    let user = world.user("u1");
    for n in 0..240 {
        let filler: String = (0..240).map(|i| format!("word{}x{} ", n, i % 7)).collect();
        let content = format!("I always keep note {n} {filler}").chars().take(limits::CONTENT_CHARS).collect::<String>();
        let metadata = BTreeMap::from([("note".to_owned(), "资".repeat(2_600))]);
        user.remember(pb::Statement { metadata, ..says(&content) }).await.unwrap_or_else(|fault| panic!("{n}: {fault:?}"));
    }
    let (mut seen, mut token, mut pages) = (0, String::new(), 0);
    loop {
        let request = pb::ListMemoriesRequest { user_id: "u1".into(), page_size: 1_000, page_token: token, ..Default::default() };
        let page = user.client().list_memories(request).await.expect("fits").into_inner();
        seen += page.memories.len();
        pages += 1;
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(seen, 240);
    assert!(pages > 0);
}

#[tokio::test]
async fn a69_a70_a71_a72_a73_every_field_is_there() {
    let world = World::new().await;
    let user = world.user("u1");
    let statement = pb::Statement {
        importance: 5,
        protected: true,
        topic: "travel".into(),
        tags: vec!["seat".into()],
        metadata: BTreeMap::from([("k".to_owned(), "v".to_owned())]),
        ..of_kind(pb::Kind::Preference, states("seat", "aisle", "I want an aisle seat"))
    };
    let stored = user.remember(statement).await.expect("stored");
    assert_eq!(stored.revision, "1");
    world.clock.advance_micros(SECOND);
    let m = user.get(&id(&stored)).await.expect("there");
    assert_eq!(
        (m.user_id.as_str(), m.kind(), m.key.as_str(), value_of(&m).as_str()),
        ("u1", pb::Kind::Preference, "travel.seat", "aisle")
    );
    assert_eq!((m.importance, m.protected, m.topic.as_str(), m.metadata.len(), m.tags.len()), (5, true, "travel", 1, 1));
    assert_eq!((m.quote_verified, m.source_quote.as_str(), m.sensitivity.as_str()), (true, "I want an aisle seat", "NONE"));
    assert_eq!((m.create_time, m.update_time, m.expire_time), (Some(wire_time(START)), Some(wire_time(START)), None));
    assert_eq!((m.tier(), m.memory_class.as_str(), m.recall_count, m.cite_count), (pb::Tier::Stable, "SEMANTIC", 0, 0));
    assert_eq!(world.count("SELECT count(*) FROM evidence").await, 1);
}
