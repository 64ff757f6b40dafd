//! Vectors that callers supply: stored with the statement, compared with the query's, never mixed with another model's.

use crate::world::*;
use std::sync::Arc;
use strata_api::error;
use strata_api::longterm::v1 as pb;
use strata_core::Reason;
use strata_text::embed::Caller;

fn with(vector: &[f32], statement: pb::Statement) -> pb::Statement {
    pb::Statement { vector: vector.to_vec(), ..statement }
}

async fn recall(user: &crate::world::Caller, query: &str, vector: &[f32]) -> Result<pb::RecallResponse, strata_core::Fault> {
    let request =
        pb::RecallRequest { user_id: user.user.clone(), query: query.into(), vector: vector.to_vec(), ..Default::default() };
    user.client().recall(request).await.map(tonic::Response::into_inner).map_err(|status| error::fault(&status))
}

#[tokio::test]
async fn c126_a_supplied_vector_is_searched_at_once_and_after_the_relay() {
    let world = World::with_embedder(7, Some(Arc::new(Caller::new("theirs@1", 3)))).await;
    let user = world.user("u1");
    user.remember(with(&[2.0, 0.0, 0.0], says("I always park in lot B-17"))).await.expect("stored");
    user.remember(with(&[0.0, 1.0, 0.0], says("I always sit in row 9"))).await.expect("stored");
    user.remember(says("I always wear the green badge 12")).await.expect("stored without a vector");
    for round in ["pending", "in the index"] {
        let found = recall(&user, "where is the car", &[0.9, 0.1, 0.0]).await.expect("an answer");
        let texts: Vec<String> = found.items.iter().map(|i| i.memory.as_ref().expect("a record").content.clone()).collect();
        assert_eq!(texts, ["I always park in lot B-17"], "{round}");
        assert!(!found.degraded, "{round}: {:?}", found.findings);
        let by_words = recall(&user, "green badge", &[]).await.expect("an answer");
        assert_eq!(by_words.items.len(), 1, "{round}: what has no vector is found by its words");
        assert!(!by_words.degraded, "{round}: a query without a vector is no failure");
        world.settled().await;
    }
    assert_eq!(world.count("SELECT count(*) FROM vectors WHERE model = 'theirs@1'").await, 2);
}

#[tokio::test]
async fn c123_a_vector_of_another_space_is_refused_or_left_out() {
    let world = World::with_embedder(7, Some(Arc::new(Caller::new("theirs@1", 3)))).await;
    let user = world.user("u1");
    for wrong in [&[1.0, 0.0][..], &[0.0, 0.0, 0.0]] {
        let fault = user.remember(with(wrong, says("I always park in lot B-17"))).await.expect_err("refused");
        assert_eq!((fault.reason, fault.fields[0].field.as_str()), (Reason::InvalidField, "statement.vector"));
        assert_eq!(recall(&user, "car", wrong).await.expect_err("refused").fields[0].field, "vector");
    }
    // A service that makes its own vectors, or none, compares nobody else's.
    let own = World::new().await;
    let user = own.user("u1");
    user.remember(with(&[1.0, 0.0, 0.0], says("I always park in lot B-17"))).await.expect("stored without it");
    assert_eq!(own.count("SELECT count(*) FROM vectors").await, 0);
    assert_eq!(recall(&user, "car", &[1.0, 0.0, 0.0]).await.expect_err("refused").fields[0].field, "vector");
}
