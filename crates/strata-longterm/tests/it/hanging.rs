//! An index that takes calls and answers none (rule D2): recall answers by keys and words inside its callers' deadlines, writes go
//! on, and the index is left alone until it is time to try again.

use crate::world::*;
use std::sync::Arc;
use std::time::Duration;
use strata_api::longterm::v1 as pb;
use strata_core::time::SECOND;
use strata_longterm::{IndexConfig, QdrantSettings};
use strata_runtime::sqlite::SqliteSettings;
use strata_testkit::fixtures::unique;
use strata_testkit::{WireDouble, eventually};
use strata_text::embed::Caller as Supplied;

/// What a caller gives a call: more than the index may take of it, on a busy machine.
const DEADLINE: Duration = Duration::from_secs(20);

fn vector(n: u8) -> Vec<f32> {
    vec![1.0, f32::from(n), 0.5]
}

async fn recall(user: &Caller, query: &str, patience: Duration) -> pb::RecallResponse {
    let request = pb::RecallRequest { user_id: user.user.clone(), query: query.into(), vector: vector(1), ..Default::default() };
    let answered = tokio::time::timeout(patience, async { user.client().recall(request).await }).await;
    answered.expect("inside its deadline").expect("answered").into_inner()
}

fn contents(answer: &pb::RecallResponse) -> Vec<&str> {
    answer.items.iter().filter_map(|item| item.memory.as_ref()).map(|memory| memory.content.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d2_c119_a_hanging_index_costs_recall_its_meaning_and_nothing_else() {
    let double = WireDouble::start();
    let settings = QdrantSettings { url: double.url(), prefix: unique("hanging"), ..QdrantSettings::default() };
    let embedder = Arc::new(Supplied::new("theirs@1", 3));
    let directory = tempfile::tempdir().expect("a directory");
    let world = World::indexed(
        directory,
        7,
        Some(embedder),
        SqliteSettings::default(),
        IndexConfig::Qdrant(settings),
        strata_testkit::ManualClock::at(START),
    )
    .await;
    let user = world.user("u1");
    for (n, text) in ["I always park in lot B-17", "我一直把车停在B17号车位"].into_iter().enumerate() {
        let n = u8::try_from(n).expect("few");
        user.remember(pb::Statement { vector: vector(n), ..says(text) }).await.expect("stored");
    }
    world.settled().await;
    let is_search = |name: &str| name.contains("uery") || name.contains("earch");
    let asked = || double.all_calls().iter().filter(|(name, _)| is_search(name)).map(|(_, calls)| calls).sum::<u64>();
    // Under load the first one may take longer than its share of the time.
    eventually(Duration::from_secs(60), async || {
        world.clock.advance_micros(6 * SECOND);
        !recall(&user, "where do I park", DEADLINE).await.degraded
    })
    .await;
    assert!(asked() > 0, "{:?}", double.all_calls());

    double.delay(Duration::from_secs(3_600));
    // Many at once, each with a deadline of its own; the shortest is what an agent gives at least.
    let many = (0..32).map(|n| {
        let (user, patience) = (user.clone(), if n % 2 == 0 { DEADLINE } else { DEADLINE / 2 });
        async move { recall(&user, if n % 3 == 0 { "车位 B17" } else { "park in lot" }, patience).await }
    });
    for answer in futures::future::join_all(many).await {
        assert!(answer.degraded && answer.findings.iter().any(|finding| finding.rule == "D2"), "{:?}", answer.findings);
        assert!(!contents(&answer).is_empty(), "found by its words");
    }
    // It is known by now: nobody asks it any more, whoever comes.
    let before = asked();
    for _ in 0..20 {
        let answer = recall(&user, "park in lot", DEADLINE).await;
        // The other one may stand beside it: whether the two were linked (K0) hangs on how fast the index learnt of the first.
        assert!(contents(&answer).contains(&"I always park in lot B-17"));
    }
    assert_eq!(asked(), before);
    // Writes go on, and what they say is found.
    let statement = pb::Statement { vector: vector(3), ..says("From now on, I park in lot C-3") };
    let written = tokio::time::timeout(DEADLINE, user.remember(statement)).await;
    written.expect("inside its deadline").expect("written");
    assert_eq!(asked(), before, "a write does not wait for it either");
    assert!(contents(&recall(&user, "park in lot", DEADLINE).await).contains(&"From now on, I park in lot C-3"));

    // One of them tries again after a while.
    double.heal();
    eventually(Duration::from_secs(60), || async {
        world.clock.advance_micros(6 * SECOND);
        !recall(&user, "where do I park", DEADLINE).await.degraded
    })
    .await;
}
