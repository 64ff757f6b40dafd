//! The table of rule S2 and what summaries promise, over the gRPC path on both stores.

use crate::harness::{Bed, Caller, assistant, call, request_id, result, sentences, user};
use std::time::Duration;
use strata_api::session::v1 as pb;
use strata_core::Reason;

/// Appends, compresses all but `keep`, and returns the answer.
async fn compressed(me: &Caller, session: &str, turns: Vec<pb::NewTurn>, keep: i32) -> pb::CompressSessionResponse {
    let body = pb::AppendTurnsRequest { session_id: session.into(), turns, shape: pb::Shape::Task.into(), ..Default::default() };
    me.append_turns(body).await.expect("appended");
    me.compress(session, keep).await.expect("compressed")
}

fn rule(answer: &pb::CompressSessionResponse, seq: u32) -> (String, String) {
    let verdict = answer.verdicts.iter().find(|v| v.seq == seq).expect("a verdict");
    let finding = verdict.finding.clone().expect("a finding");
    (finding.rule, finding.outcome)
}

fn text(answer: &pb::CompressSessionResponse) -> String {
    sentences(&answer.summary.clone().into_iter().collect::<Vec<_>>()).join(" | ")
}

fn is(answer: &pb::CompressSessionResponse, seq: u32, rule_id: &str, outcome: &str) {
    assert_eq!(rule(answer, seq), (rule_id.to_owned(), outcome.to_owned()), "turn {seq}: {answer:#?}");
}

#[tokio::test]
async fn a32_high_risk_operations_stay_verbatim_after_three_summaries() {
    for bed in Bed::both().await {
        let me = bed.me();
        let talk = vec![
            user("Please transfer $500 to account 88."),
            assistant("把测试库删除了。"),
            user("ok"),
            user("thanks"),
            user("bye"),
        ];
        let first = compressed(&me, "s", talk, 1).await;
        is(&first, 1, "S2a", "VERBATIM");
        is(&first, 2, "S2a", "VERBATIM");
        assert!(!text(&first).contains("$500"), "verbatim, not summarised");
        for round in 0..3 {
            me.append("s", (0..6).map(|n| user(&format!("Ticket T-{round}{n} is open."))).collect()).await.expect("appended");
            me.compress("s", 1).await.expect("compressed");
        }
        let window = me.window("s", 10, 400).await.expect("window");
        let shown: Vec<&str> = window.anchors.iter().map(|t| t.text.as_str()).collect();
        assert_eq!(shown, ["Please transfer $500 to account 88.", "把测试库删除了。"]);
        // Its reversal is one too, and marks what it takes back.
        me.append("s", vec![user("Undo that transfer of $500 to account 88, scratch that."), user("ok")])
            .await
            .expect("appended");
        let after = me.compress("s", 1).await.expect("compressed");
        let reversal = after.verdicts.iter().find(|v| v.seq == 24).expect("judged").finding.clone().expect("finding");
        assert_eq!(reversal.rule, "S2a");
        let first = me.turns("s", 1, 1).await.expect("turn").remove(0);
        assert_eq!((first.rule.as_str(), first.retracted_by), ("S2a", 24));
        assert!(after.anchors.iter().any(|a| a.seq == 1), "still verbatim");
    }
}

#[tokio::test]
async fn a30_a31_what_was_taken_back_or_overturned_is_dropped_whole() {
    for bed in Bed::both().await {
        let me = bed.me();
        let english = vec![
            user("Book a table for 7 people at Luigi."),
            user("Scratch that, no table for people at Luigi."),
            assistant("The root cause is the connection pool size of 64."),
            assistant("It turns out the connection pool size is not the root cause."),
            user("The budget is $200."),
            user("The budget is $300, not $200."),
            user("ok"),
        ];
        let answer = compressed(&me, "en", english, 1).await;
        is(&answer, 1, "S2b", "DROPPED");
        is(&answer, 3, "S2b", "DROPPED");
        is(&answer, 5, "S2b", "DROPPED");
        let summary = text(&answer);
        assert!(!summary.contains("7 people") && !summary.contains("64"), "{summary}");
        assert!(summary.contains("$300"), "{summary}");
        let values: Vec<_> = answer.summary.as_ref().expect("summary").values.iter().map(|v| (v.value.as_str(), v.seq)).collect();
        assert!(!values.iter().any(|(v, seq)| *v == "$200" && *seq == 5), "{values:?}");
        assert_eq!(me.turns("en", 5, 5).await.expect("turn")[0].retracted_by, 6);
        assert_eq!(me.turns("en", 1, 1).await.expect("turn")[0].text, "Book a table for 7 people at Luigi.", "still readable");

        let chinese = vec![
            user("帮我订7个人的包间，在海底捞。"),
            user("算了，海底捞的包间不订了。"),
            user("预算是200元。"),
            user("预算是300元，不是200元。"),
            user("好的"),
        ];
        let answer = compressed(&me, "zh", chinese, 1).await;
        is(&answer, 1, "S2b", "DROPPED");
        is(&answer, 3, "S2b", "DROPPED");
        assert!(text(&answer).contains("300"), "{}", text(&answer));
    }
}

#[tokio::test]
async fn a27_promises_are_anchored_until_fulfilled_or_withdrawn() {
    for bed in Bed::both().await {
        let me = bed.me();
        let talk = vec![
            assistant("I will send you the sales report on Friday."),
            assistant("我稍后把发票INV-9发给你。"),
            user("Remind me to renew the parking permit."),
            user("ok"),
            user("thanks"),
        ];
        let first = compressed(&me, "s", talk, 1).await;
        for seq in 1..=3 {
            is(&first, seq, "S2d", "ANCHORED");
        }
        assert!(text(&first).contains("sales report on Friday") && text(&first).contains("INV-9"));
        assert_eq!(first.anchors.iter().map(|a| a.seq).collect::<Vec<_>>(), [1, 2, 3]);
        me.append(
            "s",
            vec![assistant("Here is the sales report."), assistant("发票INV-9已经发给你了。"), user("ok"), user("ok")],
        )
        .await
        .expect("appended");
        let second = me.compress("s", 1).await.expect("compressed");
        assert_eq!(second.anchors.iter().map(|a| a.seq).collect::<Vec<_>>(), [3], "fulfilled ones are released");
        me.append("s", vec![user("No need to renew the parking permit any more."), user("ok"), user("ok")])
            .await
            .expect("appended");
        let third = me.compress("s", 1).await.expect("compressed");
        assert_eq!(third.anchors, []);
    }
}

#[tokio::test]
async fn a28_constraints_are_summarised_and_anchored() {
    for bed in Bed::both().await {
        let me = bed.me();
        let talk = vec![
            user("It must not cost more than $50."),
            user("不要在晚上10点以后给我打电话。"),
            assistant("You must be kidding."),
            user("ok"),
            user("bye"),
        ];
        let answer = compressed(&me, "s", talk, 1).await;
        is(&answer, 1, "S2e", "ANCHORED");
        is(&answer, 2, "S2e", "ANCHORED");
        assert_ne!(rule(&answer, 3).0, "S2e", "a constraint is the user's");
        assert!(text(&answer).contains("must not cost more than $50") && text(&answer).contains("不要在晚上10点以后"));
    }
}

#[tokio::test]
async fn a29_a_successful_tool_call_becomes_one_sentence_with_its_turns() {
    for bed in Bed::both().await {
        let me = bed.me();
        let talk = vec![
            user("Where is my order 88?"),
            call("x", "looking up the order"),
            result("x", "Order 88 left Hamburg at 14:20. The carrier is DHL. Nothing else to report about it."),
            call("y", "checking the depot"),
            result("y", "Error: depot service timed out"),
            user("ok"),
            user("thanks"),
        ];
        let answer = compressed(&me, "s", talk, 1).await;
        is(&answer, 3, "S2g", "SENTENCE");
        is(&answer, 5, "S2i", "DROPPED");
        let summary = answer.summary.expect("summary");
        let of_tool: Vec<_> = summary.sentences.iter().filter(|s| s.seqs.contains(&3)).collect();
        assert_eq!(of_tool.len(), 1);
        assert_eq!((of_tool[0].text.as_str(), of_tool[0].seqs.as_slice()), ("Order 88 left Hamburg at 14:20.", &[2, 3][..]));
    }
}

#[tokio::test]
async fn a33_a38_small_talk_alone_gives_an_empty_summary() {
    for bed in Bed::both().await {
        let me = bed.me();
        let talk = vec![
            user("Hi there!"),
            assistant("Hello!"),
            user("你好！"),
            assistant("How are you?"),
            user("ok, thanks!"),
            user("👍"),
            user("好的，谢谢"),
            user("bye"),
        ];
        let answer = compressed(&me, "s", talk, 1).await;
        assert_eq!(answer.summary, None);
        assert_eq!(answer.verdicts.len(), 7, "covered is stated");
        for seq in 1..=7 {
            is(&answer, seq, "S2f", "DROPPED");
        }
        let window = me.window("s", 5, 0).await.expect("window");
        assert_eq!((window.turns.len(), window.turns_left_out, window.summaries.len()), (1, 0, 0));
        // Nothing to compress at all (rule S8).
        let nothing = me.compress("s", 1).await.expect("nothing");
        assert!(nothing.summary.is_none() && nothing.verdicts.is_empty());
        let all_protected = compressed(
            &me,
            "p",
            vec![crate::harness::pinned("Hi there!"), crate::harness::pinned("Delete file 7."), user("ok")],
            1,
        )
        .await;
        assert_eq!(all_protected.anchors.len(), 2);
        assert!(text(&all_protected).is_empty());
    }
}

#[tokio::test]
async fn a34_a36_a37_values_stand_letter_for_letter_and_references_resolve() {
    for bed in Bed::both_with(|s| (s.session.compress_every, s.session.compress_tokens) = (1000, 100_000), None).await {
        let me = bed.me();
        let mut talk: Vec<_> = (0..40)
            .map(|n| {
                user(&format!(
                    "Invoice INV-47{n:02} over ${n}.50 is due on 2026-03-{:02} at 14:{n:02}, see https://pay.example.com/{n}.",
                    n % 28 + 1
                ))
            })
            .collect();
        talk.push(user("ok"));
        let answer = compressed(&me, "s", talk, 1).await;
        let summary = answer.summary.expect("summary");
        assert_eq!((summary.from_seq, summary.to_seq), (1, 40));
        let originals = me.turns("s", 1, 40).await.expect("turns");
        for sentence in &summary.sentences {
            assert!(sentence.seqs.iter().any(|seq| originals[*seq as usize - 1].text.contains(&sentence.text)), "{sentence:?}");
        }
        for reference in &summary.values {
            assert!(originals[reference.seq as usize - 1].text.contains(&reference.value), "{reference:?}");
        }
        for (n, turn) in originals.iter().enumerate() {
            for value in [format!("INV-47{n:02}"), format!("${n}.50"), format!("https://pay.example.com/{n}")] {
                assert!(
                    summary.values.iter().any(|v| v.value == value) || summary.sentences.iter().any(|s| s.text.contains(&value)),
                    "{value} of {}",
                    turn.text
                );
            }
        }
        // A40, C113: the text holds its cap although the index holds everything.
        let tokens: usize = summary.sentences.iter().map(|s| strata_text::tokens::count(&s.text) as usize).sum();
        assert!(tokens <= 240, "{tokens}");
    }
}

#[tokio::test]
async fn a41_c112_certainty_words_do_not_get_stronger() {
    for bed in Bed::both().await {
        let me = bed.me();
        let said = [
            "It may be the same trip to Oslo.",
            "The user mentioned interface X-7.",
            "Not sure, perhaps Tuesday.",
            "会议可能在周三。",
            "I'm not sure. The code is K-12.",
        ];
        let mut all = Vec::new();
        for _ in 0..3 {
            let talk = said.iter().map(|t| user(t)).chain([user("ok"), user("ok")]).collect();
            all.extend(compressed(&me, "s", talk, 1).await.summary.expect("summary").sentences);
        }
        for sentence in &all {
            let lower = sentence.text.to_lowercase();
            assert!(!lower.contains("confirmed") && !lower.contains("is the same trip"), "{lower}");
            assert!(said.iter().any(|s| s.contains(&sentence.text)), "copied: {lower}");
            if sentence.text.contains("K-12") {
                assert_eq!(sentence.text, "I'm not sure. The code is K-12.", "doubt stays with what it doubts");
            }
        }
        assert!(all.iter().any(|s| s.text.contains("K-12")) && all.iter().any(|s| s.text.contains("可能")));
    }
}

#[tokio::test]
async fn a_summary_tells_what_the_user_said_of_a_value_and_not_its_echo() {
    for bed in Bed::both().await {
        let me = bed.me();
        let talks = [
            ("The meeting moves to Thursday 15:00.", "OK, Thursday 15:00.", "meeting moves to Thursday 15:00"),
            ("The budget for the offsite is 12,000 EUR.", "OK, 12,000 EUR.", "budget for the offsite is 12,000 EUR"),
            ("会议改到周四下午三点。", "好的，周四下午三点。", "会议改到周四下午三点"),
            ("团建的预算是一万二千元。", "好的，一万二千元。", "团建的预算是一万二千元"),
        ];
        for (n, (said, echo, told)) in talks.into_iter().enumerate() {
            let session = format!("s{n}");
            let talk = vec![user(said), assistant(echo), user("hm, let me see"), user("one moment")];
            let answer = compressed(&me, &session, talk, 2).await;
            let summary = text(&answer);
            assert!(summary.contains(told), "{}: {summary}", bed.store);
            assert_eq!(summary.matches(&told[told.len() - 9..]).count(), 1, "once: {summary}");
        }
    }
}

#[tokio::test]
async fn a46_s7_summaries_come_every_ten_turns_never_per_turn() {
    for bed in Bed::both().await {
        let me = bed.me();
        let mut compressions = Vec::new();
        for n in 1..=60_u32 {
            let answer = me.append("s", vec![user(&format!("Ticket T-{n} was moved to lane {n}."))]).await.expect("appended");
            if answer.compressed {
                compressions.push(n);
                me.compressed_to("s", n - 10).await;
            }
        }
        assert_eq!(compressions, [20, 30, 40, 50, 60]);
        let session = me.session("s").await.expect("session");
        assert_eq!(session.summaries.first().map(|s| s.from_seq), Some(1));
        assert_eq!(session.summaries.last().map(|s| s.to_seq), Some(50));
        assert!(session.summaries.windows(2).all(|w| w[0].to_seq + 1 == w[1].from_seq));
        // A24: the newest stay verbatim.
        let window = me.window("s", 0, 0).await.expect("window");
        assert_eq!(crate::harness::seqs(&window.turns), (51..=60).collect::<Vec<_>>());
        assert_eq!(window.turns_left_out, 0);
    }
}

#[tokio::test]
async fn a42_a_token_limit_compresses_by_force() {
    for bed in Bed::both_with(|s| s.session.compress_tokens = 200, None).await {
        let me = bed.me();
        let long = "The shipment S-1 left the harbour at noon. ".repeat(12);
        let mut forced = false;
        for _ in 0..6 {
            forced |= me.append("s", vec![user(&long)]).await.expect("appended").compressed;
        }
        assert!(forced);
        me.compressed_to("s", 1).await;
    }
}

#[tokio::test]
async fn c109_coverage_is_complete_and_stated() {
    for bed in Bed::both_with(|s| s.session.compress_every = 1000, None).await {
        let me = bed.me();
        let text = |n: u32| format!("{n}: {}", "filler words ".repeat(11));
        for part in (1..=1551_u32).collect::<Vec<_>>().chunks(200) {
            me.append("s", part.iter().map(|n| user(&text(*n))).collect()).await.expect("appended");
        }
        let answer = me.compress("s", 10).await.expect("compressed");
        let state = me.session("s").await.expect("session");
        let covered: u32 = state.summaries.iter().map(|s| s.to_seq + 1 - s.from_seq).sum();
        let window = me.window("s", 1000, 1_000_000).await.expect("window");
        assert_eq!(covered + window.turns.len() as u32, 1551);
        assert!(answer.verdicts.windows(2).all(|w| w[0].seq + 1 == w[1].seq), "no hole");
        assert_eq!(window.turns.first().map(|t| t.seq), Some(covered + 1));
    }
}

#[tokio::test]
async fn c113_summaries_of_a_long_session_stay_few_and_are_remade_from_originals() {
    for bed in Bed::both().await {
        let me = bed.me();
        for part in 0..50 {
            let talk = (0..20).map(|n| user(&format!("Parcel P-{part}-{n} weighs {n} kg."))).collect();
            me.append("s", talk).await.expect("appended");
            me.compress("s", 10).await.expect("compressed");
        }
        let summaries = me.session("s").await.expect("session").summaries;
        assert!(summaries.len() <= 15, "{}", summaries.len());
        assert!(summaries[0].to_seq - summaries[0].from_seq > 100, "old ranges are coarser");
        assert!(summaries.windows(2).all(|w| w[0].to_seq + 1 == w[1].from_seq));
        let originals = me.turns("s", 1, 1000).await.expect("turns");
        for summary in &summaries {
            let tokens: u32 = summary.sentences.iter().map(|s| strata_text::tokens::count(&s.text)).sum();
            assert!(tokens <= 240);
            assert!(summary.sentences.iter().all(|s| originals[s.seqs[0] as usize - 1].text.contains(&s.text)));
        }
    }
}

#[tokio::test]
async fn c073_a_summary_keeps_the_time_of_what_it_covers() {
    for bed in Bed::both().await {
        let me = bed.me();
        let first = me.append("s", vec![user("The plumber comes tomorrow at 15:00.")]).await.expect("appended");
        bed.clock.advance(Duration::from_secs(3600));
        me.append("s", (0..12).map(|n| user(&format!("Note N-{n}."))).collect()).await.expect("appended");
        let summary = me.compress("s", 10).await.expect("compressed").summary.expect("summary");
        assert_eq!(summary.from_time, first.time);
        assert!(summary.sentences[0].text.contains("15:00"));
    }
}

#[tokio::test]
async fn a26_the_shape_is_inferred_by_rule_or_declared_and_the_rule_is_shown() {
    for bed in Bed::both().await {
        let me = bed.me();
        me.append(
            "task",
            vec![user("Please fix the login bug"), call("t", "reading"), result("t", "file read"), assistant("I'll fix it")],
        )
        .await
        .expect("appended");
        me.append(
            "explore",
            vec![
                user("What is the difference between plan A and plan B?"),
                assistant("Plan A costs $5"),
                user("哪个方案更便宜？"),
                assistant("A"),
            ],
        )
        .await
        .expect("appended");
        me.append("chat", vec![user("Hi!"), assistant("Hello!"), user("哈哈哈"), assistant("Nice!")]).await.expect("appended");
        let declared = pb::AppendTurnsRequest {
            session_id: "declared".into(),
            turns: vec![user("Hi!")],
            shape: pb::Shape::Task.into(),
            ..Default::default()
        };
        me.append_turns(declared).await.expect("appended");
        for (session, shape) in [
            ("task", pb::Shape::Task),
            ("explore", pb::Shape::Exploratory),
            ("chat", pb::Shape::Chat),
            ("declared", pb::Shape::Task),
        ] {
            let answer = me.session(session).await.expect(session);
            assert_eq!(answer.shape(), shape, "{session}");
            let rule = answer.shape_rule.expect("a rule");
            assert!(rule.rule == "S1" && !rule.because.is_empty());
        }
    }
}

#[tokio::test]
async fn a_chat_slides_a_window_and_summarises_only_what_must_survive() {
    for bed in Bed::both().await {
        let me = bed.me();
        let mut turns = vec![user("My cat Minka turned 3 yesterday."), user("Never call me before 9:00.")];
        turns.extend((0..20).map(|n| user(&format!("We saw {n} ducks."))));
        let body = pb::AppendTurnsRequest { session_id: "s".into(), turns, shape: pb::Shape::Chat.into(), ..Default::default() };
        me.append_turns(body).await.expect("appended");
        me.compress("s", 5).await.expect("compressed");
        let window = me.window("s", 10, 0).await.expect("window");
        assert_eq!(sentences(&window.summaries), ["Never call me before 9:00"]);
        assert_eq!(window.anchors.iter().map(|t| t.seq).collect::<Vec<_>>(), [2]);
        assert_eq!(
            crate::harness::seqs(&window.turns),
            (14..=22).collect::<Vec<_>>(),
            "older turns slide back in with a larger window"
        );
    }
}

#[tokio::test]
async fn compress_session_is_idempotent_by_request_id() {
    for bed in Bed::both().await {
        let me = bed.me();
        me.append("s", (0..15).map(|n| user(&format!("Ticket T-{n} is open."))).collect()).await.expect("appended");
        let body =
            pb::CompressSessionRequest { session_id: "s".into(), keep_turns: 5, request_id: request_id(), ..Default::default() };
        let first = me.compress_session(body.clone()).await.expect("first");
        me.append("s", (0..15).map(|n| user(&format!("Ticket U-{n} is open."))).collect()).await.expect("appended");
        assert_eq!(me.compress_session(body.clone()).await.expect("same"), first);
        let other = pb::CompressSessionRequest { keep_turns: 6, ..body.clone() };
        assert_eq!(me.compress_session(other).await.expect_err("reused").reason, Reason::RequestIdReused);
        me.end("s").await.expect("ended");
        assert_eq!(me.compress_session(body).await.expect_err("ended").reason, Reason::SessionEnded);
        assert_eq!(me.compress("never", 5).await.expect_err("never was").reason, Reason::NotFound);
    }
}
