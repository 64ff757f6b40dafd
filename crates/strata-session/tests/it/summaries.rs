//! Summaries that a client made, anchors by wish, and the lists of a user and of a session, on both stores.

use crate::harness::{Bed, Caller, assistant, call, pinned, request_id, result, sentences, user};
use std::collections::BTreeSet;
use std::time::Duration;
use strata_api::session::v1 as pb;
use strata_core::{Fault, Reason};

/// A refusal: its rules, and the value it names.
fn refused(answer: Result<pb::CommitSummaryResponse, Fault>) -> (Vec<String>, String) {
    let fault = answer.expect_err("refused");
    assert_eq!(fault.reason, Reason::SummaryRefused, "{fault:?}");
    let value = fault.metadata.iter().find(|(key, _)| *key == "value").map(|(_, value)| value.clone()).unwrap_or_default();
    (fault.preconditions.into_iter().map(|p| p.rule).collect(), value)
}

async fn talk(me: &Caller, session: &str, turns: Vec<pb::NewTurn>) {
    let body = pb::AppendTurnsRequest { session_id: session.into(), turns, shape: pb::Shape::Task.into(), ..Default::default() };
    me.append_turns(body).await.expect("appended");
}

#[tokio::test]
async fn a34_a36_a_true_summary_of_the_client_is_stored_and_shown() {
    for bed in Bed::both().await {
        let me = bed.me();
        let turns = vec![
            user("The train to Hangzhou leaves at 15:40 from platform 12."),
            assistant("The ticket costs $86.50 and the order number is HZ-2207."),
            user("会议定在6月3日，地点是国贸三期。"),
            user("ok"),
            user("thanks"),
        ];
        talk(&me, "s", turns).await;
        let read = pb::GetTurnsRequest { session_id: "s".into(), from_seq: 1, to_seq: 4, ..Default::default() };
        let source_hash = me.get_turns(read).await.expect("turns").source_hash;
        let body = pb::CommitSummaryRequest {
            session_id: "s".into(),
            from_seq: 1,
            to_seq: 4,
            sentences: vec![
                pb::SummarySentence { text: "Train to Hangzhou at 15:40, platform 12.".into(), seqs: vec![1] },
                pb::SummarySentence { text: "Order number HZ-2207 costs $86.50.".into(), seqs: vec![2] },
                pb::SummarySentence { text: "会议在6月3日，国贸三期。".into(), seqs: vec![3] },
            ],
            source_hash: source_hash.clone(),
            request_id: request_id(),
            ..Default::default()
        };
        let first = me.commit_summary(body.clone()).await.unwrap_or_else(|fault| panic!("{}: {fault:?}", bed.store));
        let summary = first.summary.clone().expect("a summary");
        assert_eq!((summary.from_seq, summary.to_seq, summary.made_by.as_str()), (1, 4, "client"));
        assert_eq!(summary.source_hash, source_hash);
        assert!(summary.values.iter().any(|v| v.value == "HZ-2207" && v.seq == 2), "the index is the service's own");
        assert_eq!(first.verdicts.len(), 4);
        // C058: a repetition gives the first answer; another body is refused.
        assert_eq!(me.commit_summary(body.clone()).await.expect("again"), first);
        let other = pb::CommitSummaryRequest { to_seq: 3, ..body.clone() };
        assert_eq!(me.commit_summary(other).await.expect_err("other body").reason, Reason::RequestIdReused);
        let window = me.window("s", 0, 0).await.expect("window");
        assert_eq!(sentences(&window.summaries)[0], "Train to Hangzhou at 15:40, platform 12.");
        assert_eq!(window.turns.iter().map(|t| t.seq).collect::<Vec<_>>(), [5]);
        // Instead of whole ranges, never of a part (rule S4).
        assert_eq!(me.summarise("s", 2..=4, &[]).await.expect_err("a part").reason, Reason::InvalidField);
        assert_eq!(me.summarise("s", 1..=5, &[]).await.expect_err("beyond").reason, Reason::InvalidField);
        assert_eq!(me.summarise("s", 5..=6, &[]).await.expect_err("no such turn").fields[0].field, "to_seq");
        let shorter = ["The train to Hangzhou at 15:40 is on platform 12; HZ-2207 is $86.50.", "国贸三期，6月3日。"];
        let again = me.summarise("s", 1..=4, &[(shorter[0], &[1, 2]), (shorter[1], &[3])]).await.expect("replaced");
        assert_eq!(sentences(&again.summary.into_iter().collect::<Vec<_>>()), shorter);
        let listed =
            me.get_summaries(pb::GetSummariesRequest { session_id: "s".into(), ..Default::default() }).await.expect("list");
        assert_eq!((listed.summaries.len(), listed.covered_seq, listed.last_seq), (1, 4, 5));
        let stale = pb::CommitSummaryRequest { source_hash: "0".repeat(32), request_id: String::new(), ..body };
        assert_eq!(me.commit_summary(stale).await.expect_err("other turns").reason, Reason::VersionMismatch);
    }
}

#[tokio::test]
async fn c110_a_lost_or_changed_value_is_refused_and_named() {
    for bed in Bed::both().await {
        let me = bed.me();
        talk(
            &me,
            "s",
            vec![
                user("The invoice INV-204 is about $1,250."),
                user("The pickup is at 09:15 on Friday."),
                user("发票金额是３８０元，单号是ＡＢ１２。"),
                user("ok"),
            ],
        )
        .await;
        let good: [(&str, &[u32]); 3] = [
            ("The invoice INV-204 is about $1,250.", &[1]),
            ("The pickup is at 09:15 on Friday.", &[2]),
            ("发票金额是３８０元，单号是ＡＢ１２。", &[3]),
        ];
        let with = |at: usize, text: &'static str| {
            let mut sentences = good;
            sentences[at].0 = text;
            sentences
        };
        let (rules, value) = refused(me.summarise("s", 1..=3, &with(0, "The invoice is about $1,250.")).await);
        assert_eq!((rules, value.as_str()), (vec!["S3".to_owned()], "INV-204"), "{}", bed.store);
        let (rules, value) = refused(me.summarise("s", 1..=3, &with(0, "The invoice INV-204 is about $1,350.")).await);
        assert!(rules.iter().all(|rule| rule == "S3") && value == "$1,350", "{rules:?} {value}");
        let (rules, value) = refused(me.summarise("s", 1..=3, &with(1, "The pickup is at 10:15 on Friday.")).await);
        assert!(rules.iter().all(|rule| rule == "S3") && value.contains("10:15"), "{rules:?} {value}");
        let (rules, value) = refused(me.summarise("s", 1..=3, &with(2, "发票金额是380元，单号是AB12。")).await);
        assert!(rules.iter().all(|rule| rule == "S3") && !value.is_empty(), "letter for letter: {rules:?} {value}");
        let (rules, value) = refused(me.summarise("s", 1..=3, &with(2, "发票金额是３８０元。")).await);
        assert_eq!((rules, value.as_str()), (vec!["S3".to_owned()], "ＡＢ１２"));
        // Nothing was stored by any of them (case C108).
        assert_eq!(me.session("s").await.expect("session").summaries, []);
        // A value that an anchored turn shows need not be repeated.
        me.anchor("s", &[1]).await.expect("anchored");
        me.summarise("s", 1..=3, &good[1..]).await.expect("the anchor holds it");
    }
}

#[tokio::test]
async fn a41_c112_a_strengthened_sentence_is_refused() {
    for bed in Bed::both().await {
        let me = bed.me();
        let said = [
            "It may be the same trip as last year.",
            "The user mentioned interface X.",
            "Not sure, perhaps the dinner is on Tuesday.",
            "Is plan B cheaper?",
            "I do not eat shellfish.",
            "Not every room has a window.",
            "可能下周上线。",
            "我没有收到合同。",
            "周五能发货吗？",
            "The parcel arrives on Monday.",
        ];
        // A summary is not longer than its turns: one turn of small talk makes room.
        let chat = "What a lovely evening that was, with so many people in the garden and such pleasant music all the time.";
        talk(&me, "s", said.iter().map(|text| user(text)).chain([user(chat), user("ok")]).collect()).await;
        for (seq, stronger) in [
            (1, "It is the same trip as last year."),
            (2, "Interface X is confirmed."),
            (3, "The dinner is on Tuesday."),
            (3, "The dinner is definitely on Tuesday."),
            (4, "Plan B is cheaper."),
            (5, "The user eats shellfish."),
            (6, "No room has a window."),
            (7, "下周上线。"),
            (7, "已确认下周上线。"),
            (8, "收到合同。"),
            (9, "周五发货。"),
            (10, "It is confirmed that the parcel arrives on Monday."),
            (10, "The parcel does not arrive on Monday."),
        ] {
            let (rules, _) = refused(me.summarise("s", 1..=11, &[(stronger, &[seq])]).await);
            assert!(rules.contains(&"S5".to_owned()), "{}: {seq} {stronger}: {rules:?}", bed.store);
        }
        let weaker: Vec<(&str, &[u32])> = vec![
            ("It may be the same trip as last year.", &[1]),
            ("The user mentioned interface X.", &[2]),
            ("Perhaps dinner is on Tuesday.", &[3]),
            ("The user asked whether plan B is cheaper.", &[4]),
            ("The user does not eat shellfish.", &[5]),
            ("Not every room has a window.", &[6]),
            ("可能下周上线。", &[7]),
            ("没有收到合同。", &[8]),
            ("用户问周五能否发货。", &[9]),
            ("The parcel probably arrives on Monday.", &[10]),
        ];
        let body = me.summarise("s", 1..=11, &weaker).await;
        body.unwrap_or_else(|fault| panic!("{}: {fault:?}", bed.store));
    }
}

#[tokio::test]
async fn c080_c081_invisible_and_full_width_letters_hide_neither_values_nor_hedges() {
    for bed in Bed::both().await {
        let me = bed.me();
        let said = [
            "The code is AB\u{200b}-5521 👨‍👩‍👧.",
            "رقم الطلب هو 77812 اليوم",
            "It ｍｉｇｈｔ be ready on Monday.",
            "可\u{200b}能周三交付。",
            "\u{202e}The desk is in room 12\u{202c}.",
            "ok",
        ];
        talk(&me, "s", said.iter().map(|text| user(text)).collect()).await;
        let copied: Vec<(&str, &[u32])> = said[..5].iter().copied().zip([&[1_u32][..], &[2], &[3], &[4], &[5]]).collect();
        let with = |at: usize, text: &'static str| {
            let mut sentences = copied.clone();
            sentences[at].0 = text;
            sentences
        };
        for (at, text, rule) in [
            (1, "رقم الطلب هو 77813 اليوم", "S3"),
            (2, "It is ready on Monday.", "S5"),
            (3, "周三交付。", "S5"),
            (4, "The desk is in room 21.", "S3"),
        ] {
            let (rules, _) = refused(me.summarise("s", 1..=5, &with(at, text)).await);
            assert!(rules.contains(&rule.to_owned()), "{}: {text}: {rules:?}", bed.store);
        }
        me.summarise("s", 1..=5, &copied).await.unwrap_or_else(|fault| panic!("{}: {fault:?}", bed.store));
    }
}

#[tokio::test]
async fn s04_a_summary_names_turns_of_its_range_and_is_shorter_than_they_are() {
    for bed in Bed::both().await {
        let me = bed.me();
        talk(&me, "s", vec![user("Buy 3 lamps."), call("x", ""), result("x", "{\"ok\": true}"), user("ok"), user("ok")]).await;
        let (rules, _) = refused(me.summarise("s", 1..=1, &[("Buy 3 lamps.", &[4])]).await);
        assert!(rules.contains(&"S4".to_owned()), "{rules:?}");
        let long = "Buy 3 lamps, as was said, and as was said once more for good measure and in many words.";
        assert!(refused(me.summarise("s", 1..=1, &[(long, &[1])]).await).0.contains(&"S4".to_owned()));
        let fault = me.summarise("s", 1..=2, &[("Buy 3 lamps.", &[1])]).await.expect_err("parts a call");
        assert_eq!(fault.fields[0].field, "to_seq");
        for (sentences, field) in [
            (vec![("Buy 3 lamps.", [].as_slice())], "sentences[0].seqs"),
            (vec![(" \u{200b}", [1].as_slice())], "sentences[0].text"),
        ] {
            assert_eq!(me.summarise("s", 1..=1, &sentences).await.expect_err(field).fields[0].field, field);
        }
        me.summarise("s", 1..=3, &[("Buy 3 lamps.", &[1])]).await.expect("stored");
        // S8: nothing worth keeping.
        let empty = me.summarise("s", 4..=5, &[]).await.expect("small talk");
        assert_eq!(empty.summary.expect("a range").sentences, []);
        // A31: what was taken back is not brought up again.
        talk(&me, "t", vec![user("The budget is $200."), user("Scratch that, the budget is open."), user("ok")]).await;
        assert!(!refused(me.summarise("t", 1..=2, &[("The budget is $200.", &[1])]).await).0.is_empty());
    }
}

#[tokio::test]
async fn a25_c115_turns_are_anchored_by_wish_and_released() {
    for bed in Bed::both().await {
        let me = bed.me();
        let turns = (1..=30).map(|n| user(&format!("The weather on day number {n} was pleasant"))).collect();
        talk(&me, "s", turns).await;
        assert_eq!(me.anchor("s", &[12, 12]).await.expect("anchored"), [12]);
        let (compressed, anchored) = tokio::join!(me.compress("s", 5), me.anchor("s", &[3]));
        assert_eq!(anchored.expect("anchored meanwhile"), [3]);
        compressed.expect("compressed");
        me.compress("s", 2).await.expect("compressed");
        let window = me.window("s", 10, 0).await.expect("window");
        assert_eq!(window.anchors.iter().map(|t| t.seq).collect::<Vec<_>>(), [3, 12], "{}", bed.store);
        assert_eq!(window.anchors[1].text, "The weather on day number 12 was pleasant");
        assert_eq!(window.anchor_reasons[0].reason.as_ref().map(|r| r.rule.as_str()), Some("S2c"));
        let released = me.release("s", &[12, 5]).await.expect("released");
        assert_eq!((released.released, released.kept), (vec![12], vec![]));
        assert_eq!(me.window("s", 10, 0).await.expect("window").anchors.len(), 1);
        assert!(
            sentences(&me.session("s").await.expect("session").summaries).iter().any(|s| s.contains("number 12")),
            "summarised now"
        );
        // Before it was ever compressed.
        assert_eq!(me.anchor("s", &[30]).await.expect("anchored"), [30]);
        assert_eq!(me.release("s", &[30]).await.expect("released").released, [30]);
        me.append("s", vec![pinned("keep me"), user("ok"), user("ok")]).await.expect("appended");
        assert_eq!(me.release("s", &[31]).await.expect("released").released, [31]);
        me.compress("s", 1).await.expect("compressed");
        assert_eq!(me.session("s").await.expect("session").anchors.iter().map(|a| a.seq).collect::<Vec<_>>(), [3]);
        let fault = me.anchor("s", &[99]).await.expect_err("no such turn");
        assert_eq!((fault.reason, fault.fields[0].field.as_str()), (Reason::InvalidField, "seqs"));
        assert_eq!(me.anchor("s", &[]).await.expect_err("none").fields[0].field, "seqs");
        assert_eq!(me.anchor("s", &[0]).await.expect_err("zero").fields[0].field, "seqs[0]");
        assert_eq!(me.anchor("other", &[1]).await.expect_err("no session").reason, Reason::NotFound);
        // C058
        let body =
            pb::AnchorTurnsRequest { session_id: "s".into(), seqs: vec![7], request_id: request_id(), ..Default::default() };
        let first = me.anchor_turns(body.clone()).await.expect("first");
        me.release("s", &[7]).await.expect("released");
        assert_eq!(me.anchor_turns(body.clone()).await.expect("again"), first);
        assert!(!me.session("s").await.expect("session").anchors.iter().any(|a| a.seq == 7), "a repetition has no effect");
        let other = pb::AnchorTurnsRequest { seqs: vec![8], ..body.clone() };
        assert_eq!(me.anchor_turns(other).await.expect_err("other body").reason, Reason::RequestIdReused);
        me.end("s").await.expect("ended");
        assert_eq!(me.anchor_turns(body).await.expect_err("ended").reason, Reason::SessionEnded);
    }
}

#[tokio::test]
async fn a32_s06_a_high_risk_operation_stays_and_a_tool_call_goes_with_its_results() {
    for bed in Bed::both().await {
        let me = bed.me();
        let turns = vec![
            user("Please transfer $500 to account 88."),
            call("x", "looking it up"),
            result("x", "balance 12 EUR"),
            pinned("The code word is plum."),
            user("ok"),
            user("thanks"),
        ];
        talk(&me, "s", turns).await;
        assert_eq!(me.anchor("s", &[3]).await.expect("anchored"), [2, 3]);
        me.compress("s", 1).await.expect("compressed");
        let kept = me.release("s", &[1, 4]).await.expect("released");
        assert_eq!((kept.released, kept.kept.iter().map(|a| a.seq).collect::<Vec<_>>()), (vec![4], vec![1]), "{}", bed.store);
        assert_eq!(me.release("s", &[2]).await.expect("released").released, [2, 3]);
        assert_eq!(me.session("s").await.expect("session").anchors.iter().map(|a| a.seq).collect::<Vec<_>>(), [1]);
    }
}

#[tokio::test]
async fn a35_summaries_are_listed_in_pages_without_a_hole() {
    for bed in Bed::both().await {
        let me = bed.me();
        for round in 0..3 {
            let turns = (0..10).map(|n| user(&format!("Ticket T-{round}{n} costs ${n}.50."))).collect();
            talk(&me, "s", turns).await;
            me.compress("s", 1).await.expect("compressed");
        }
        let mut body = pb::GetSummariesRequest { session_id: "s".into(), page_size: 1, ..Default::default() };
        let mut ranges = Vec::new();
        loop {
            let page = me.get_summaries(body.clone()).await.expect("page");
            assert_eq!((page.covered_seq, page.last_seq), (29, 30));
            assert!(page.summaries.len() <= 1 && page.summaries.iter().all(|s| s.values_left_out == 0));
            ranges.extend(page.summaries.iter().map(|s| (s.from_seq, s.to_seq)));
            if page.next_page_token.is_empty() {
                break;
            }
            body.page_token = page.next_page_token;
            let narrower = pb::GetSummariesRequest { to_seq: 9, ..body.clone() };
            assert_eq!(me.get_summaries(narrower).await.expect_err("other filter").reason, Reason::InvalidPageToken);
        }
        assert!(ranges.len() > 1 && ranges[0].0 == 1 && ranges.last().is_some_and(|r| r.1 == 29), "{ranges:?}");
        assert!(ranges.windows(2).all(|w| w[0].1 + 1 == w[1].0), "{ranges:?}");
        let part = pb::GetSummariesRequest { session_id: "s".into(), from_seq: 29, ..Default::default() };
        assert_eq!(me.get_summaries(part).await.expect("part").summaries.len(), 1);
        for (page_size, from_seq, to_seq) in [(-1, 0, 0), (0, 5, 4)] {
            let body = pb::GetSummariesRequest { session_id: "s".into(), page_size, from_seq, to_seq, ..Default::default() };
            assert_eq!(me.get_summaries(body).await.expect_err("refused").reason, Reason::InvalidField);
        }
    }
}

#[tokio::test]
async fn c131_sessions_of_a_user_are_listed_in_pages_bound_to_the_owner() {
    for bed in Bed::both().await {
        let me = bed.me();
        for n in 0..25 {
            me.append(&format!("s{n:02}"), vec![user("hello")]).await.expect("appended");
        }
        let agent = bed.caller(&bed.tenant, "u1", "a1");
        agent.append("of-a1", vec![user("hello")]).await.expect("appended");
        let short = pb::AppendTurnsRequest {
            session_id: "gone".into(),
            turns: vec![user("hello")],
            ttl: Some(prost_types::Duration { seconds: 5, nanos: 0 }),
            ..Default::default()
        };
        me.append_turns(short).await.expect("appended");
        bed.clock.advance(Duration::from_secs(6));
        me.end("s03").await.expect("ended");
        let all = |who: Caller, page_size: i32| async move {
            let mut body = pb::ListSessionsRequest { page_size, ..Default::default() };
            let mut names = Vec::new();
            loop {
                let page = who.list_sessions(body.clone()).await.expect("page");
                assert!(page.sessions.len() <= page_size as usize);
                names.extend(page.sessions.into_iter().map(|s| s.session_id));
                body.page_token = page.next_page_token;
                if body.page_token.is_empty() {
                    return names;
                }
            }
        };
        let mut expected: Vec<String> = (0..25).filter(|n| *n != 3).map(|n| format!("s{n:02}")).collect();
        assert_eq!(all(bed.caller(&bed.tenant, "u1", "a2"), 7).await, expected, "{}: not another agent's", bed.store);
        expected.insert(0, "of-a1".into());
        assert_eq!(all(agent, 7).await, expected);
        assert_eq!(all(me.clone(), 4).await, expected, "a call without an agent is user-wide");
        assert_eq!(all(me.clone(), 1000).await, expected);
        let first = me.list_sessions(pb::ListSessionsRequest { page_size: 4, ..Default::default() }).await.expect("page");
        assert_eq!(first.sessions[0].agent_id, "a1");
        assert_eq!((first.sessions[1].last_seq, first.sessions[1].bytes), (1, 5));
        let foreign = pb::ListSessionsRequest { page_token: first.next_page_token, ..Default::default() };
        for other in [
            bed.caller(&bed.tenant, "u2", ""),
            bed.caller(&format!("{}x", bed.tenant), "u1", ""),
            bed.caller(&bed.tenant, "u1", "a1"),
        ] {
            assert_eq!(other.list_sessions(foreign.clone()).await.expect_err("foreign").reason, Reason::InvalidPageToken);
        }
        assert_eq!(bed.caller(&bed.tenant, "u2", "").list_sessions(Default::default()).await.expect("none").sessions, []);
        let capped = me.list_sessions(pb::ListSessionsRequest { page_size: 5000, ..Default::default() }).await.expect("page");
        assert!(capped.capped);
    }
}

#[tokio::test]
async fn c033_c034_another_agent_tenant_or_user_sees_and_changes_nothing() {
    for bed in Bed::both().await {
        let owner = bed.caller(&bed.tenant, "u1", "a1");
        talk(&owner, "s", (1..=12).map(|n| user(&format!("Order number O-{n} is open."))).collect()).await;
        owner.compress("s", 2).await.expect("compressed");
        let before = owner.session("s").await.expect("session");
        for other in [
            bed.caller(&bed.tenant, "u1", "a2"),
            bed.caller(&bed.tenant, "u2", "a1"),
            bed.caller(&format!("{}x", bed.tenant), "u1", "a1"),
        ] {
            let refusals: BTreeSet<Reason> = [
                other.anchor("s", &[1]).await.map(|_| ()),
                other.release("s", &[1]).await.map(|_| ()),
                other.summarise("s", 11..=12, &[]).await.map(|_| ()),
                other.get_summaries(pb::GetSummariesRequest { session_id: "s".into(), ..Default::default() }).await.map(|_| ()),
            ]
            .into_iter()
            .map(|answer| answer.expect_err("foreign").reason)
            .collect();
            assert_eq!(refusals, BTreeSet::from([Reason::NotFound]), "{}", bed.store);
        }
        assert_eq!(owner.session("s").await.expect("session"), before);
        assert_eq!(bed.me().anchor("s", &[1]).await.expect("user-wide"), [1]);
    }
}

#[tokio::test]
async fn s03_the_summaries_of_the_rules_are_true_by_the_same_judgement() {
    use strata_core::policy::session::{Role, Shape, SummaryBounds, Turn, View, judge, summarise, summary_cap};
    use strata_core::policy::summary::verify;
    use strata_text::turns;
    let said = [
        "Hi there!",
        "I need a table for 7 at Luigi on Friday at 19:30.",
        "Is it free? Maybe ask for the garden.",
        "It may be full.",
        "Sure, the booking number is LU-77. Not sure about the garden.",
        "No nuts please, my son is allergic.",
        "预算不超过500元，可能要改到周六。",
        "好的，周六19:00也可以吗？",
        "不是周六，是周日。",
        "No.",
        "The deposit is $40, not $50.",
        "Scratch that, the deposit is open.",
        "谢谢",
        "Leaving on the 7th of this month to San Diego.",
        "地址在北京市朝阳区天辰东路11号1层，电话010-84378966、010-84378963。",
        "价格是300-400元，6-8人。",
    ];
    for (length, tokens) in (1..=said.len()).flat_map(|length| [(length, 240), (length, 24)]) {
        let made: Vec<Turn> = (1..)
            .zip(&said[..length])
            .map(|(seq, text)| Turn {
                seq,
                role: if seq % 2 == 0 { Role::User } else { Role::Assistant },
                text: (*text).to_owned(),
                tool_call_id: None,
                pinned: false,
                time: strata_core::Timestamp(i64::from(seq)),
                client_time: None,
                tokens: strata_text::tokens::count(text),
                speaker: String::new(),
                external_id: String::new(),
                redacted: 0,
            })
            .collect();
        let cues: Vec<_> = made.iter().map(|turn| turns::turn_cues(&turn.text, turn.role)).collect();
        let views: Vec<View<'_>> = made.iter().zip(&cues).map(|(turn, cues)| View { turn, cues }).collect();
        let verdicts = judge(&views).into_iter().map(|v| (v.seq, v)).collect();
        let bounds = SummaryBounds { tokens, tool_tokens: 48, shape: Shape::Task, level: 0 };
        let summary =
            summarise(&views, &verdicts, bounds, &strata_text::tokens::count, &strata_text::tokens::cut).expect("turns");
        // A value that the summary leaves to the index did not fit under the cap of the rules, which is below the bound.
        let cap = summary_cap(&views, &verdicts, bounds, &strata_text::tokens::count, &strata_text::tokens::cut);
        let bounds = SummaryBounds { tokens: cap, ..bounds };
        assert_eq!(verify(&summary, &views, &verdicts, &BTreeSet::new(), bounds, turns::LANGUAGE), Ok(()), "{summary:#?}");
    }
}
