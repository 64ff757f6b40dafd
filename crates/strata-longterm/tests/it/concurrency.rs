//! Many writers of one fact.

use crate::world::*;
use futures::future::join_all;
use std::collections::{BTreeMap, BTreeSet};
use strata_api::longterm::v1 as pb;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c048_64_writers_on_one_key_leave_one_active_value_a_whole_chain_and_lose_nothing() {
    const WRITERS: usize = 64;
    const EACH: usize = 5;
    let world = World::new().await;
    let tasks = strata_runtime::TaskGroup::new();
    let writers = (0..WRITERS).map(|writer| {
        let user = world.user("u1");
        tasks.spawn("writer", async move {
            let mut stored = Vec::new();
            for n in 0..EACH {
                let value = format!("v{writer}x{n}");
                let result =
                    user.remember(states("seat.row", &value, &format!("my seat row is {value}"))).await.expect("no error");
                stored.push((id(&result), value));
            }
            stored
        })
    });
    let stored: BTreeMap<String, String> =
        join_all(writers).await.into_iter().flat_map(|writer| writer.expect("no panic")).collect();
    assert_eq!(stored.len(), WRITERS * EACH, "every write is a record of its own");

    let user = world.user("u1");
    let chain = user.history_of("seat.row").await.memories;
    let by_id: BTreeMap<&str, &pb::Memory> = chain.iter().map(|m| (m.memory_id.as_str(), m)).collect();
    assert_eq!(by_id.len(), stored.len());
    for (id, value) in &stored {
        assert_eq!(&value_of(by_id[id.as_str()]), value, "no update is lost");
    }
    let active: Vec<&&pb::Memory> = by_id.values().filter(|m| m.status() == pb::Status::Active).collect();
    assert_eq!(active.len(), 1);
    assert_eq!(user.values("seat.row").await, [value_of(active[0])]);
    // From the value in force back to the first one, over every value once, and the same way forward.
    let mut seen = BTreeSet::new();
    let mut at = **active.first().expect("one");
    loop {
        assert!(seen.insert(at.memory_id.as_str()), "the chain has a ring");
        if at.supersedes.is_empty() {
            break;
        }
        let before = by_id[at.supersedes.as_str()];
        assert_eq!(before.superseded_by, at.memory_id, "both pointers");
        assert_eq!(before.status(), pb::Status::Superseded);
        assert!(before.superseded_at.is_some() && !before.reason.is_empty());
        at = before;
    }
    assert_eq!(seen.len(), stored.len(), "the chain is whole");
    world.settled().await;
    assert_eq!(world.count("SELECT count(*) FROM records WHERE status = 'ACTIVE'").await, 1);
}
