//! Sizes, blanks, characters, numbers.

use crate::harness::{Bed, digest, fact, goal, settings, todo};
use prost::Message;
use strata_api::working::v1 as pb;
use strata_core::{Reason, limits};
use strata_testkit::ManualClock;
use strata_working::CheckpointConfig;

#[tokio::test]
async fn c086_blank_and_tiny_inputs() {
    let bed = Bed::new().await;
    let me = bed.me();
    me.create("k").await.expect("created");
    for blank in ["", "  ", "\n", "\u{200b}", "　"] {
        assert_eq!(me.put("k", vec![fact("a", blank)]).await.expect_err("blank").fields[0].field, "facts[0].value");
        assert_eq!(me.digest("k", blank).await.expect_err("blank").fields[0].field, "digest.sentence");
        assert_eq!(me.goal("k", goal(blank, "x")).await.expect_err("blank").fields[0].field, "goal.sentence");
    }
    assert_eq!(
        me.todos("k", vec![todo("1", "", pb::TodoState::Pending)]).await.expect_err("blank").fields[0].field,
        "todos[0].step"
    );
    assert_eq!(me.put("k", vec![]).await.expect_err("none").fields[0].field, "facts");
    assert_eq!(me.todos("k", vec![]).await.expect_err("none").fields[0].field, "todos");
    assert_eq!(me.digest_as("k", None, "").await.expect_err("none").fields[0].field, "digest");
    me.put("k", vec![fact("diet", "不吃辣"), fact("n", "0")]).await.expect("short is fine");
    me.digest("k", "好").await.expect("short is fine");
}

#[tokio::test]
async fn c079_control_characters_are_refused_or_kept_the_same_in_every_field() {
    let bed = Bed::new().await;
    let me = bed.me();
    me.create("k").await.expect("created");
    let nul = "a\0b";
    let faults = [
        me.put("k", vec![fact("a", nul)]).await.expect_err("NUL"),
        me.put("k", vec![pb::Fact { source: nul.into(), ..fact("a", "v") }]).await.expect_err("NUL"),
        me.digest("k", nul).await.expect_err("NUL"),
        me.digest_as("k", Some(pb::Digest { tool: nul.into(), ..digest("ok").expect("some") }), "").await.expect_err("NUL"),
        me.goal("k", goal(nul, "x")).await.expect_err("NUL"),
        me.goal("k", goal("x", nul)).await.expect_err("NUL"),
        me.todos("k", vec![todo("1", nul, pb::TodoState::Pending)]).await.expect_err("NUL"),
        me.todos("k", vec![pb::Todo { note: nul.into(), ..todo("1", "s", pb::TodoState::Pending) }]).await.expect_err("NUL"),
    ];
    assert!(faults.iter().all(|fault| fault.reason == Reason::InvalidField));
    for text in ["x\u{1}y", "x\u{feff}y", "x\u{202e}y", "ＡＢＣ", "👍🏽👨‍👩‍👧", "שלום עולם", "zero\u{200b}width", "\\ud800", "e\u{301}"]
    {
        me.put("k", vec![fact("t", text)]).await.expect("kept");
        me.digest("k", text).await.expect("kept");
        me.goal("k", goal(text, text)).await.expect("kept");
        me.todos("k", vec![todo("t", text, pb::TodoState::Pending)]).await.expect("kept");
        let board = me.get("k").await.expect("read");
        let goal = board.goal.expect("a goal");
        let digest = board.digests.last().expect("a digest");
        for got in [&board.facts[0].value, &digest.sentence, &goal.sentence, &goal.acceptance, &board.todos[0].step] {
            assert_eq!(got, text);
        }
    }
}

#[tokio::test]
async fn c089_identifiers_and_amounts_are_exact() {
    let bed = Bed::new().await;
    let me = bed.me();
    me.create("k").await.expect("created");
    for value in ["9007199254740993", "18446744073709551615", "00123", "0.10", "118.50", "1e-7", "-0", "12345678901234567890.12"]
    {
        me.put("k", vec![fact("order.id", value)]).await.expect("put");
        assert_eq!(me.get("k").await.expect("read").facts[0].value, value);
    }
}

#[tokio::test]
async fn c087_each_field_is_taken_at_its_limit_and_refused_over_it() {
    let bed = Bed::new().await;
    let me = bed.me();
    me.create("k").await.expect("created");
    for over in [-1_i64, 0, 1] {
        let text = |limit: usize| "x".repeat(usize::try_from(i64::try_from(limit).expect("small") + over).expect("positive"));
        let fine = over <= 0;
        let verdicts = [
            ("fact value", me.put("k", vec![fact("a", &text(limits::BOARD_FACT_BYTES))]).await.map(drop)),
            ("fact key", me.put("k", vec![fact(&text(limits::KEY_BYTES), "v")]).await.map(drop)),
            (
                "fact source",
                me.put("k", vec![pb::Fact { source: text(limits::BOARD_NAME_CHARS), ..fact("a", "v") }]).await.map(drop),
            ),
            ("fact trace", me.put("k", vec![pb::Fact { trace_id: text(limits::ID_BYTES), ..fact("a", "v") }]).await.map(drop)),
            ("digest", me.digest("k", &text(limits::DIGEST_CHARS)).await.map(drop)),
            (
                "tool",
                me.digest_as("k", Some(pb::Digest { tool: text(limits::BOARD_NAME_CHARS), ..digest("d").expect("some") }), "")
                    .await
                    .map(drop),
            ),
            ("goal", me.goal("k", goal(&text(limits::GOAL_CHARS), "x")).await.map(drop)),
            ("acceptance", me.goal("k", goal("x", &text(limits::GOAL_CHARS))).await.map(drop)),
            ("todo id", me.todos("k", vec![todo(&text(limits::ID_BYTES), "s", pb::TodoState::Pending)]).await.map(drop)),
            ("step", me.todos("k", vec![todo("1", &text(limits::TODO_CHARS), pb::TodoState::Pending)]).await.map(drop)),
            (
                "note",
                me.todos("k", vec![pb::Todo { note: text(limits::TODO_CHARS), ..todo("1", "s", pb::TodoState::Pending) }])
                    .await
                    .map(drop),
            ),
            ("task id", me.create(&text(limits::ID_BYTES)).await.map(drop)),
        ];
        for (what, verdict) in verdicts {
            assert_eq!(verdict.is_ok(), fine, "{what} at {over:+}");
            if let Err(fault) = verdict {
                let named = fault.message.chars().any(|c| c.is_ascii_digit()) && !fault.fields.is_empty();
                assert!(named, "{what}: field and limit are named: {}", fault.message);
            }
        }
    }
}

#[tokio::test]
async fn c087_counts_bytes_and_messages_have_explicit_limits() {
    let bed = Bed::new().await;
    let me = bed.me();
    me.create("facts").await.expect("created");
    let many = |n: usize| (0..n).map(|n| fact(&format!("k{n}"), "v")).collect::<Vec<_>>();
    let fault = me.put("facts", many(limits::BOARD_FACTS + 1)).await.expect_err("over");
    assert_eq!(fault.reason, Reason::LimitReached);
    assert!(fault.metadata.contains(&("field", "facts".into())) && fault.metadata.contains(&("limit", "64".into())));
    assert!(me.get("facts").await.expect("read").facts.is_empty(), "nothing stored");
    me.put("facts", many(limits::BOARD_FACTS)).await.expect("at the limit");
    assert_eq!(me.put("facts", vec![fact("more", "v")]).await.expect_err("over").reason, Reason::LimitReached);

    me.create("todos").await.expect("created");
    let many = |n: usize| (0..n).map(|n| todo(&n.to_string(), "s", pb::TodoState::Pending)).collect::<Vec<_>>();
    assert_eq!(me.todos("todos", many(limits::BOARD_TODOS + 1)).await.expect_err("over").reason, Reason::LimitReached);
    me.todos("todos", many(limits::BOARD_TODOS)).await.expect("at the limit");
    assert_eq!(
        me.todos("todos", vec![todo("more", "s", pb::TodoState::Pending)]).await.expect_err("over").reason,
        Reason::LimitReached
    );

    me.create("digests").await.expect("created");
    for _ in 0..limits::BOARD_DIGESTS {
        me.digest("digests", "ok").await.expect("under the limit");
    }
    assert_eq!(me.digest("digests", "ok").await.expect_err("over").reason, Reason::LimitReached);
    assert_eq!(me.get("digests").await.expect("read").digests.len(), limits::BOARD_DIGESTS, "never evicted");

    // A board filled to its last byte is read back in one message, and one byte more is refused.
    me.create("bytes").await.expect("created");
    let long = |id: usize, step: usize| pb::Todo {
        note: "n".repeat(500),
        ..todo(&format!("{id:03}"), &"s".repeat(step), pb::TodoState::Pending)
    };
    me.todos("bytes", (0..64).map(|id| long(id, 500)).collect()).await.expect("64 KB");
    let used: usize = 64 * 1_003 + "Pay the invoice of ACME".len() + "The bank confirms the transfer".len();
    let room = limits::BOARD_BYTES - used;
    let fill = |extra: usize| vec![long(64, 300), todo("rest", &"s".repeat(room - 803 - 4 + extra), pb::TodoState::Pending)];
    let fault = me.todos("bytes", fill(1)).await.expect_err("one byte over");
    assert!(
        fault.metadata.contains(&("field", "board".into())) && fault.metadata.contains(&("limit", "65536".into())),
        "{fault:?}"
    );
    me.todos("bytes", fill(0)).await.expect("to the byte");
    let board = me.get("bytes").await.expect("read");
    assert_eq!(board.todos.len(), 66);
    assert!(board.encoded_len() < limits::MESSAGE_BYTES);

    let huge = me.put("facts", vec![fact("k0", &"x".repeat(limits::MESSAGE_BYTES))]).await.expect_err("over the message limit");
    assert!(matches!(huge.reason, Reason::LimitReached | Reason::Overloaded | Reason::InvalidField), "{huge:?}");
}

#[tokio::test]
async fn c087_all_boards_share_one_budget_and_none_is_evicted() {
    let small = settings(|settings| settings.working.total_bytes = 1024 * 1024);
    let bed = Bed::with(CheckpointConfig::None, &ManualClock::default(), small).await;
    let me = bed.me();
    let mut started = 0;
    let fault = loop {
        match me.create(&format!("k{started}")).await {
            Ok(_) => started += 1,
            Err(fault) => break fault,
        }
    };
    assert_eq!(fault.reason, Reason::LimitReached);
    assert!(fault.metadata.contains(&("field", "boards".into())) && fault.metadata.contains(&("limit", "1048576".into())));
    assert!((500..1_100).contains(&started), "{started} empty boards of about 1 KiB");
    assert!(bed.role.status().counts.bytes <= 1024 * 1024);
    let growth = (0..60).map(|n| fact(&format!("k{n}"), &"v".repeat(400))).collect();
    assert_eq!(me.put("k0", growth).await.expect_err("no room to grow").reason, Reason::LimitReached);
    for n in 0..started {
        me.get(&format!("k{n}")).await.expect("still there");
    }
    for n in 0..10 {
        me.end(&format!("k{n}")).await.expect("ended");
    }
    me.create("new").await.expect("room again");
}

#[tokio::test]
async fn a_typical_board_is_counted_with_less_than_12000_bytes() {
    let bed = Bed::new().await;
    let me = bed.me();
    me.create("k").await.expect("created");
    for n in 0..10 {
        me.put("k", vec![fact(&format!("fact.{n}"), &"v".repeat(40))]).await.expect("put");
        me.todos("k", vec![todo(&n.to_string(), &"s".repeat(40), pb::TodoState::Pending)]).await.expect("todo");
        me.digest("k", &"d".repeat(120)).await.expect("digest");
    }
    let bytes = bed.role.status().counts.bytes;
    assert!((5_000..12_000).contains(&bytes), "{bytes} bytes");
    // What is remembered for retries counts as well.
    me.digest_as("k", digest(&"d".repeat(120)), &crate::harness::request_id()).await.expect("digest");
    let more = bed.role.status().counts.bytes - bytes;
    assert!((120 + 120 + 16..1_000).contains(&more), "{more} bytes for a digest, its request id and its answer");
}
