//! Lists of tasks, boards that somebody looks at, and what is kept of a tool's return.

use crate::harness::{Bed, SOON, digest, fact, request_id, todo};
use std::time::Duration;
use strata_api::working::v1 as pb;
use strata_core::{Reason, limits};

#[tokio::test]
async fn a15_a_digest_and_its_fields_come_onto_the_board_together_or_not_at_all() {
    let bed = Bed::new().await;
    let me = bed.me().at_epoch(7);
    me.create("k").await.expect("created");
    let body = |facts: Vec<pb::Fact>| pb::AppendDigestRequest {
        task_id: "k".into(),
        digest: digest("The invoice is over 12.50 EUR"),
        facts,
        request_id: request_id(),
        ..Default::default()
    };
    let good = body(vec![fact("invoice.total", "12.50"), fact("invoice.paid", "false")]);
    let first = me.append(good.clone()).await.expect("appended");
    assert_eq!((first.facts.len(), first.facts[0].epoch, first.version), (2, 7, 2), "one change");
    assert_eq!(me.append(good).await.expect("repeated"), first);
    let refused = me.append(body(vec![fact("a.b", "1"), fact("a.raw", &"x".repeat(513))])).await.expect_err("raw");
    assert_eq!(refused.reason, Reason::NotABoardValue);
    let many = (0..limits::BOARD_FACTS).map(|n| fact(&format!("k{n}"), "v")).collect();
    assert_eq!(me.append(body(many)).await.expect_err("too many").reason, Reason::LimitReached);
    let task = me.get("k").await.expect("there");
    assert_eq!((task.facts.len(), task.digests.len(), task.version), (2, 1, 2));
    // The raw return itself never comes here.
    let raw = pb::AppendDigestRequest { payload: b"{}".to_vec(), ..body(Vec::new()) };
    assert_eq!(me.append(raw).await.expect_err("raw").reason, Reason::Internal);
}

#[tokio::test]
async fn a_list_of_tasks_is_the_owners_own_page_by_page() {
    let bed = Bed::new().await;
    let (me, other) = (bed.me(), bed.caller("t1", "u1", "a2"));
    for n in 0..5 {
        me.create(&format!("k{n}")).await.expect("created");
    }
    other.create("other").await.expect("created");
    me.todos("k1", vec![todo("t", "step", pb::TodoState::Pending)]).await.expect("a todo");
    me.todos("k1", vec![todo("t", "", pb::TodoState::Done)]).await.expect("done");
    me.end("k3").await.expect("ended");
    let mut seen = Vec::new();
    let mut token = String::new();
    loop {
        let page = me.list(2, &token).await.expect("a page");
        assert!(page.tasks.len() <= 2);
        seen.extend(page.tasks);
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
        assert_eq!(other.list(2, &token).await.expect_err("foreign").reason, Reason::InvalidPageToken);
    }
    assert_eq!(seen.iter().map(|t| t.task_id.as_str()).collect::<Vec<_>>(), ["k0", "k1", "k2", "k4"]);
    assert_eq!((seen[1].todos, seen[1].todos_done, seen[1].goal.as_str()), (1, 1, "Pay the invoice of ACME"));
    assert!(me.list(1001, "").await.expect("capped").capped);
    assert_eq!(me.list(-1, "").await.expect_err("negative").reason, Reason::InvalidField);
    assert_eq!(other.list(0, "").await.expect("a list").tasks.len(), 1);
}

#[tokio::test]
async fn a_watched_board_is_sent_as_it_changes_and_a_slow_reader_holds_nothing_up() {
    let bed = Bed::new().await;
    let me = bed.me();
    me.create("k").await.expect("created");
    assert_eq!(bed.caller("t1", "u2", "a1").watch("k").await.expect_err("another's").reason, Reason::TaskMismatch);
    assert_eq!(me.watch("none").await.expect_err("no task").reason, Reason::NotFound);
    let mut quick = me.watch("k").await.expect("watched");
    let next = async |stream: &mut tonic::Streaming<pb::WatchTaskResponse>| {
        tokio::time::timeout(SOON, stream.message()).await.expect("in time").expect("no error").expect("a message")
    };
    assert_eq!(next(&mut quick).await.task.expect("a board").version, 1);
    // Nobody reads this one while a thousand writes go by.
    let mut slow = me.watch("k").await.expect("watched");
    for n in 0..1_000 {
        me.put("k", vec![fact("count", &n.to_string())]).await.expect("written");
    }
    let mut versions = Vec::new();
    loop {
        let board = next(&mut slow).await.task.expect("a board");
        versions.push(board.version);
        if board.facts.first().is_some_and(|f| f.value == "999") {
            break;
        }
    }
    assert!(versions.windows(2).all(|pair| pair[0] < pair[1]) && versions.len() < 1_000, "{} boards", versions.len());
    while next(&mut quick).await.task.expect("a board").version < 1_001 {}
    // Looking is no use: the board stays idle, and its end is told.
    bed.clock.advance(Duration::from_secs(3 * 3600));
    bed.role.sweep();
    for stream in [&mut quick, &mut slow] {
        let last = next(stream).await;
        assert!(last.ended && last.task.is_none());
        assert_eq!(stream.message().await.expect("no error"), None);
    }
}
