//! The board's side of ownership and promotion.

use crate::harness::{Bed, fact};
use std::time::Duration;
use strata_api::working::v1 as pb;
use strata_core::Reason;
use strata_core::time::SECOND;

#[tokio::test]
async fn p5_a_sealed_fact_answers_with_retry_info_until_it_is_settled() {
    let bed = Bed::new().await;
    let me = bed.me();
    me.create("k").await.expect("created");
    let epoch = me.put("k", vec![fact("a", "v1"), fact("b", "w1")]).await.expect("put").facts[0].epoch;
    assert_eq!(epoch, u64::try_from(bed.now().micros()).expect("positive"), "the claim is the server's microseconds (P4)");
    let deadline = bed.now().plus(10 * SECOND);
    assert_eq!(me.seal("k", "none", "p1", epoch + 1, deadline).await.expect_err("unknown").reason, Reason::NotFound);
    let sealed = me.seal("k", "a", "p1", epoch + 1, deadline).await.expect("sealed");
    assert_eq!(
        (sealed.value.as_str(), sealed.source.as_str(), sealed.session_id.as_str(), sealed.epoch),
        ("v1", "erp.lookup", "s1", epoch + 1)
    );
    assert_eq!(me.seal("k", "a", "p1", epoch + 1, deadline).await.expect("again"), sealed, "idempotent by promotion");
    assert_eq!(me.seal("k", "a", "p2", epoch + 2, deadline).await.expect_err("other").reason, Reason::FactSealed);
    // All or none: the free fact of the same call is not written either.
    let fault = me.put("k", vec![fact("b", "w2"), fact("a", "v2")]).await.expect_err("sealed");
    assert_eq!((fault.reason, fault.retry_after_ms.is_some()), (Reason::FactSealed, true));
    assert!(fault.metadata.contains(&("promotion_id", "p1".into())) && fault.metadata.contains(&("key", "a".into())));
    me.put("k", vec![fact("b", "w2")]).await.expect("other facts go on");

    assert!(!me.settle("k", "a", "p1", epoch + 1, false).await.expect("undone"));
    assert!(me.settle("k", "a", "p1", epoch + 1, false).await.expect("again"), "idempotent");
    let stored = me.put("k", vec![fact("a", "v2")]).await.expect("free again").facts.remove(0);
    assert_eq!(stored.epoch, epoch + 2, "an undone seal leaves a fresh epoch");
}

#[tokio::test]
async fn p2_a_committed_fact_is_a_read_only_overlay_until_the_task_ends() {
    let bed = Bed::new().await;
    let me = bed.me();
    me.create("k").await.expect("created");
    let epoch = me.put("k", vec![fact("a", "v1")]).await.expect("put").facts[0].epoch;
    me.seal("k", "a", "p1", epoch + 1, bed.now().plus(10 * SECOND)).await.expect("sealed");
    assert!(!me.settle("k", "a", "p1", epoch + 1, true).await.expect("committed"));
    assert!(me.settle("k", "a", "p1", epoch + 1, true).await.expect("again"));
    let shown = me.get("k").await.expect("read").facts.remove(0);
    assert!(shown.overlay && shown.value == "v1");
    let fault = me.clone().at_epoch(u64::MAX).put("k", vec![fact("a", "v2")]).await.expect_err("owned elsewhere");
    assert_eq!(fault.reason, Reason::FactOwnedByOtherLayer);
    assert!(fault.metadata.contains(&("key", "a".into())));
    // A late settle of a board that is gone has nothing to do.
    me.end("k").await.expect("ended");
    assert!(me.settle("k", "a", "p1", epoch + 1, true).await.expect("gone"));
    assert_eq!(me.seal("k", "a", "p3", epoch + 9, bed.now()).await.expect_err("gone").reason, Reason::TaskEnded);
}

#[tokio::test]
async fn p5_a_seal_that_nobody_ends_falls_by_itself_when_no_clock_can_still_apply_it() {
    let bed = Bed::new().await;
    let me = bed.me();
    me.create("k").await.expect("created");
    let epoch = me.put("k", vec![fact("a", "v1")]).await.expect("put").facts[0].epoch;
    me.seal("k", "a", "p1", epoch + 1, bed.now().plus(10 * SECOND)).await.expect("sealed");
    bed.clock.advance(Duration::from_micros(14_000_000 - 1));
    assert_eq!(me.put("k", vec![fact("a", "v2")]).await.expect_err("sealed").reason, Reason::FactSealed);
    bed.clock.advance(Duration::from_micros(1));
    me.put("k", vec![fact("a", "v2")]).await.expect("fallen");
    assert_eq!(me.seal("k", "a", "p1", epoch + 2, bed.now().plus(-1)).await.expect_err("late").reason, Reason::PromotionAborted);
    // The target had applied it all the same: the owner moves, the later value stays readable.
    assert!(!me.settle("k", "a", "p1", epoch + 1, true).await.expect("committed"));
    let shown = me.get("k").await.expect("read").facts.remove(0);
    assert!(shown.overlay && shown.value == "v2");
}

#[tokio::test]
async fn p3_a_write_of_an_older_epoch_is_refused_and_learns_the_value() {
    let bed = Bed::new().await;
    let me = bed.me();
    me.create("k").await.expect("created");
    me.clone().at_epoch(10).put("k", vec![fact("a", "new")]).await.expect("put");
    me.clone().at_epoch(10).put("k", vec![fact("a", "newer")]).await.expect("the same claim goes on");
    let fault = me.clone().at_epoch(9).put("k", vec![fact("a", "old")]).await.expect_err("stale");
    assert_eq!(fault.reason, Reason::StaleEpoch);
    assert!(fault.metadata.contains(&("current_value", "newer".into())) && fault.metadata.contains(&("epoch", "10".into())));
    me.clone().at_epoch(11).put("k", vec![fact("a", "newest")]).await.expect("a later claim");
    assert_eq!(me.get("k").await.expect("read").facts[0].value, "newest");
}

#[tokio::test]
async fn w11_a_board_holds_a_reference_that_is_no_claim() {
    let bed = Bed::new().await;
    let me = bed.me();
    me.create("k").await.expect("created");
    let memory_id = "01890000-0000-7000-8000-000000000001";
    let reference = Some(pb::MemoryReference { memory_id: memory_id.into(), version: 3 });
    let write = pb::Fact { reference: reference.clone(), ..fact("profile.city", "") };
    let stored = me.put("k", vec![write]).await.expect("put").facts.remove(0);
    assert_eq!((stored.reference, stored.epoch, stored.value.as_str()), (reference, 0, ""));
    let fault = me.seal("k", "profile.city", "p1", u64::MAX, bed.now().plus(SECOND)).await.expect_err("no claim");
    assert_eq!(fault.reason, Reason::PromotionRefused);
}
