//! The behaviour suite: what holds on every store, over the gRPC path.

use crate::harness::{Bed, Caller, assistant, call, pinned, request_id, result, seqs, system, turn, user};
use std::collections::BTreeSet;
use std::time::Duration;
use strata_api::session::v1 as pb;
use strata_core::{Reason, limits};

fn numbered(range: std::ops::RangeInclusive<u32>) -> Vec<pb::NewTurn> {
    range.map(|n| user(&format!("turn {n}"))).collect()
}

#[tokio::test]
async fn a23_a44_sliding_window_keeps_the_newest_first_in_first_out() {
    for bed in Bed::both().await {
        let me = bed.me();
        me.append("s", numbered(1..=4)).await.expect("appended");
        assert_eq!(seqs(&me.window("s", 4, 0).await.expect("window").turns), [1, 2, 3, 4]);
        me.append("s", numbered(5..=5)).await.expect("appended");
        let window = me.window("s", 4, 0).await.expect("window");
        assert_eq!(seqs(&window.turns), [2, 3, 4, 5], "{}", bed.store);
        assert_eq!((window.turns_left_out, window.last_seq), (1, 5));
    }
}

#[tokio::test]
async fn c063_order_is_by_number_while_the_clock_stands_still_or_steps_back() {
    for bed in Bed::both().await {
        let me = bed.me();
        bed.clock.advance(Duration::from_secs(7200));
        for _ in 0..5 {
            me.append("s", (0..200).map(|n| user(&format!("n{n}"))).collect()).await.expect("appended");
        }
        bed.clock.step_back(Duration::from_secs(3600));
        me.append("s", (0..10).map(|n| user(&format!("late{n}"))).collect()).await.expect("appended");
        let window = me.window("s", 10, 0).await.expect("window");
        assert_eq!(seqs(&window.turns), (1001..=1010).collect::<Vec<_>>());
        assert!(window.turns[0].text == "late0" && window.turns[9].text == "late9");
        let mut all = Vec::new();
        let mut page_token = String::new();
        loop {
            let body = pb::ListTurnsRequest { session_id: "s".into(), page_size: 300, page_token, ..Default::default() };
            let page = me.list_turns(body).await.expect("page");
            all.extend(seqs(&page.turns));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        assert_eq!(all, (1..=1010).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn c058_a_retry_stores_once_and_another_body_is_refused() {
    for bed in Bed::both().await {
        let me = bed.me();
        let body = pb::AppendTurnsRequest {
            session_id: "s".into(),
            turns: vec![user("one"), user("two")],
            request_id: request_id(),
            ..Default::default()
        };
        let first = me.append_turns(body.clone()).await.expect("first");
        bed.clock.advance(Duration::from_secs(60));
        let again = tokio::join!(me.append_turns(body.clone()), me.append_turns(body.clone()), me.append_turns(body.clone()));
        for answer in [again.0, again.1, again.2] {
            assert_eq!(answer.expect("same"), first);
        }
        assert_eq!(me.session("s").await.expect("session").last_seq, 2);
        let other = pb::AppendTurnsRequest { turns: vec![user("three")], ..body.clone() };
        assert_eq!(me.append_turns(other).await.expect_err("reused").reason, Reason::RequestIdReused);
        // Also against the ended session (rule S12).
        me.end("s").await.expect("ended");
        assert_eq!(me.append_turns(body.clone()).await.expect("same"), first);
        let fresh = pb::AppendTurnsRequest { request_id: request_id(), ..body };
        assert_eq!(me.append_turns(fresh).await.expect_err("ended").reason, Reason::SessionEnded);
    }
}

#[tokio::test]
async fn s12_end_leaves_a_tombstone_for_24_h_and_then_the_id_is_free() {
    for bed in Bed::both().await {
        let me = bed.me();
        assert_eq!(me.end("s").await.expect_err("never was").reason, Reason::NotFound);
        let first = me.append("s", numbered(1..=3)).await.expect("appended");
        let ended = me.end("s").await.expect("ended");
        assert_eq!((ended.turns, ended.already_ended), (3, false));
        let again = me.end("s").await.expect("again");
        assert_eq!((again.turns, again.already_ended, again.end_time), (0, true, ended.end_time));
        assert_eq!(me.window("s", 0, 0).await.expect_err("gone").reason, Reason::NotFound);
        assert_eq!(me.append("s", numbered(1..=1)).await.expect_err("ended").reason, Reason::SessionEnded);
        assert_eq!(me.search("turn", 5).await.expect("search").hits.len(), 0);
        bed.clock.advance(Duration::from_secs(24 * 3600 - 1));
        assert_eq!(me.append("s", numbered(1..=1)).await.expect_err("ended").reason, Reason::SessionEnded);
        bed.clock.advance(Duration::from_secs(2));
        let second = me.append("s", numbered(9..=9)).await.expect("free again");
        assert_eq!(second.seqs, [1]);
        assert!(second.incarnation > first.incarnation);
        assert_eq!(me.turns("s", 1, 9).await.expect("turns").len(), 1, "nothing of the first is left");
    }
}

#[tokio::test]
async fn c095_a_read_session_stays_alive_and_an_unread_one_expires() {
    for bed in Bed::both().await {
        let me = bed.me();
        let ttl = Some(prost_types::Duration { seconds: 10, nanos: 0 });
        let body = pb::AppendTurnsRequest { session_id: "s".into(), turns: numbered(1..=2), ttl, ..Default::default() };
        let first = me.append_turns(body).await.expect("appended");
        for _ in 0..10 {
            bed.clock.advance(Duration::from_secs(6));
            assert_eq!(me.window("s", 0, 0).await.expect("alive").turns.len(), 2, "{}", bed.store);
        }
        // C094: what is no use of the session does not prolong it.
        bed.clock.advance(Duration::from_secs(6));
        me.session("s").await.expect("alive");
        me.turns("s", 1, 2).await.expect("alive");
        me.search("turn", 5).await.expect("search");
        me.compress("s", 1).await.expect("compressed");
        let quiet = pb::GetWindowRequest { session_id: "s".into(), no_renew: true, ..Default::default() };
        me.get_window(quiet).await.expect("alive");
        assert!(bed.role.status().await.serving);
        bed.clock.advance(Duration::from_secs(5));
        for gone in
            [me.window("s", 0, 0).await.map(|_| ()), me.session("s").await.map(|_| ()), me.turns("s", 1, 1).await.map(|_| ())]
        {
            assert_eq!(gone.expect_err("expired").reason, Reason::NotFound, "{}", bed.store);
        }
        assert_eq!(me.append("s", numbered(1..=1)).await.expect_err("expired").reason, Reason::SessionEnded);
        bed.clock.advance(Duration::from_secs(24 * 3600));
        let second = me.append("s", numbered(1..=1)).await.expect("free again");
        assert!(second.incarnation > first.incarnation && second.seqs == [1]);
    }
}

#[tokio::test]
async fn c101_a_new_system_turn_replaces_the_old_one_and_stands_first() {
    for bed in Bed::both().await {
        let me = bed.me();
        me.append("s", vec![system("A: be brief")]).await.expect("A");
        me.append("s", numbered(2..=7)).await.expect("turns");
        me.append("s", vec![system("B: be exact")]).await.expect("B");
        me.append("s", numbered(9..=10)).await.expect("turns");
        let window = me.window("s", 0, 0).await.expect("window");
        assert_eq!(window.system.as_ref().map(|t| (t.seq, t.text.as_str())), Some((8, "B: be exact")));
        assert_eq!(seqs(&window.turns), [2, 3, 4, 5, 6, 7, 9, 10]);
        assert_eq!(me.turns("s", 1, 1).await.expect("by number")[0].text, "A: be brief");
    }
}

#[tokio::test]
async fn s06_an_instruction_longer_than_the_budget_does_not_hide_the_conversation() {
    for bed in Bed::both().await {
        let me = bed.me();
        me.append("s", numbered(1..=3)).await.expect("turns");
        me.append("s", vec![system(&"Answer in one sentence. ".repeat(60))]).await.expect("an instruction");
        let window = me.window("s", 0, 100).await.expect("window");
        assert!(window.system.is_none() && window.tokens <= 100);
        assert_eq!(seqs(&window.turns), [1, 2, 3]);
    }
}

#[tokio::test]
async fn c099_tool_calls_and_results_are_kept_or_dropped_together_at_every_limit() {
    for bed in Bed::both().await {
        let me = bed.me();
        let talk = vec![
            user("find the order"),
            call("x", "looking it up in two places"),
            result("x", "order 88 is shipped"),
            result("y", "customer 12 is active"),
            assistant("It is shipped"),
            user("and the next one"),
            assistant("On its way"),
        ];
        me.append("s", talk).await.expect("appended");
        let whole = me.window("s", 7, 0).await.expect("window");
        assert_eq!(whole.turns.len(), 7);
        let tool = BTreeSet::from([2_u32, 3, 4]);
        let mut seen = BTreeSet::new();
        let budgets = (1..=7).map(|n| (n, 0)).chain((1..=whole.tokens as i32 + 1).map(|t| (0, t)));
        for (turns, tokens) in budgets {
            let window = me.window("s", turns, tokens).await.expect("window");
            let shown: BTreeSet<u32> = window.turns.iter().chain(&window.anchors).map(|t| t.seq).collect();
            let of_tool = shown.intersection(&tool).count();
            assert!(of_tool == 0 || of_tool == 3, "{turns}/{tokens}: {shown:?}");
            assert!(turns == 0 || shown.len() <= turns as usize);
            assert!(tokens == 0 || window.tokens <= tokens as u32);
            assert_eq!(window.turns_left_out as usize + shown.len(), 7, "honest count");
            seen.insert(shown.len());
        }
        assert!(seen.contains(&0) && seen.contains(&3) && seen.contains(&6) && seen.contains(&7), "{seen:?}");
    }
}

#[tokio::test]
async fn c099_an_orphan_result_is_never_shown() {
    for bed in Bed::both().await {
        let me = bed.me();
        me.append("s", vec![result("gone", "rows"), user("hello"), assistant("hi")]).await.expect("appended");
        let window = me.window("s", 0, 0).await.expect("window");
        assert_eq!((seqs(&window.turns), window.turns_left_out), (vec![2, 3], 1));
    }
}

#[tokio::test]
async fn a25_a39_pinned_turns_survive_every_window_they_fit() {
    for bed in Bed::both().await {
        let me = bed.me();
        me.append("s", vec![pinned("Hi there!")]).await.expect("pinned");
        me.say("s", (0..45).map(|n| user(&format!("Order {n} arrived at 10:{n:02}."))).collect()).await;
        let window = me.window("s", 3, 200).await.expect("window");
        assert_eq!(seqs(&window.anchors), [1]);
        assert_eq!(window.anchor_reasons[0].reason.as_ref().map(|r| r.rule.as_str()), Some("S2c"));
        assert_eq!(seqs(&window.turns), [45, 46]);
        // S11: anchors take at most 60 %; a window of one turn shows the newest, and says what it left out.
        let narrow = me.window("s", 1, 0).await.expect("window");
        assert_eq!((seqs(&narrow.turns), narrow.anchors_left_out), (vec![46], vec![1]));
    }
}

#[tokio::test]
async fn s11_anchors_take_at_most_60_percent_and_nothing_exceeds_the_budget() {
    for bed in Bed::both().await {
        let me = bed.me();
        me.append("s", (0..30).map(|n| pinned(&format!("Pinned note number {n} about the harbour."))).collect())
            .await
            .expect("pinned");
        me.append("s", numbered(31..=35)).await.expect("turns");
        for tokens in [1, 20, 60, 100, 200, 400] {
            let window = me.window("s", 0, tokens).await.expect("window");
            let anchors: u32 = window.anchors.iter().map(|t| t.tokens).sum();
            assert!(anchors * 100 <= tokens as u32 * 60, "{tokens}");
            assert!(window.tokens <= tokens as u32, "{tokens}");
            let shown: BTreeSet<u32> = window.anchors.iter().chain(&window.turns).map(|t| t.seq).collect();
            let pins = (1..=30).filter(|n| !shown.contains(n)).collect::<Vec<u32>>();
            assert_eq!(window.anchors_left_out, pins, "{tokens}");
        }
    }
}

#[tokio::test]
async fn c102_c106_the_window_limits_what_is_shown_not_what_is_kept() {
    for bed in Bed::both_with(|s| s.session.compress_every = 1000, None).await {
        let me = bed.me();
        let texts: Vec<String> = (1..=60).map(|n| format!("turn {n}: code C-{n}00")).collect();
        for text in &texts {
            me.append("s", vec![user(text)]).await.expect("appended");
            let newest = me.window("s", 1, 0).await.expect("window");
            assert_eq!(newest.turns[0].text, *text, "acknowledged is visible");
        }
        assert_eq!(seqs(&me.window("s", 10, 0).await.expect("window").turns), (51..=60).collect::<Vec<_>>());
        let old = me.turns("s", 1, 50).await.expect("by range");
        assert_eq!(old.iter().map(|t| t.text.as_str()).collect::<Vec<_>>(), &texts[..50]);
        assert_eq!(seqs(&me.window("s", 30, 0).await.expect("window").turns), (31..=60).collect::<Vec<_>>());
        // C065: replay order is append order.
        assert!(me.window("s", 60, 0).await.expect("window").turns.windows(2).all(|w| w[0].seq + 1 == w[1].seq));
    }
}

#[tokio::test]
async fn c139_c140_limits_mean_the_same_on_every_verb() {
    for bed in Bed::both_with(|s| s.session.compress_every = 1000, None).await {
        let me = bed.me();
        for part in 0..2 {
            me.append("s", (0..150).map(|n| user(&format!("tea number {part} {n}"))).collect()).await.expect("appended");
        }
        for (asked, shown, capped) in [(0, 20, false), (1, 1, false), (250, 250, false), (1000, 300, false), (1001, 300, true)] {
            let window = me.window("s", asked, 100_000).await.expect("window");
            assert_eq!((window.turns.len(), window.capped), (shown, capped), "{asked}");
        }
        for (asked, shown, capped) in [(0, 50, false), (250, 250, false), (1001, 300, true)] {
            let list = me
                .list_turns(pb::ListTurnsRequest { session_id: "s".into(), page_size: asked, ..Default::default() })
                .await
                .expect("list");
            assert_eq!(
                (list.turns.len(), list.capped, list.next_page_token.is_empty()),
                (shown, capped, shown == 300),
                "{asked}"
            );
        }
        for (asked, shown, capped) in [(0, 5, false), (1, 1, false), (100, 100, false), (101, 100, true)] {
            let found = me.search("tea", asked).await.expect("search");
            assert_eq!((found.hits.len(), found.capped), (shown, capped), "{asked}");
        }
        for refused in [
            me.window("s", -1, 0).await.map(|_| ()),
            me.window("s", 0, -1).await.map(|_| ()),
            me.search("tea", -1).await.map(|_| ()),
            me.compress("s", -1).await.map(|_| ()),
            me.list_turns(pb::ListTurnsRequest { session_id: "s".into(), page_size: -1, ..Default::default() }).await.map(|_| ()),
            me.turns("s", 0, 5).await.map(|_| ()),
            me.turns("s", 5, 4).await.map(|_| ()),
            me.turns("s", 1, 1001).await.map(|_| ()),
            me.search("  ", 5).await.map(|_| ()),
        ] {
            assert_eq!(refused.expect_err("refused").reason, Reason::InvalidField);
        }
    }
}

#[tokio::test]
async fn s13_c087_limits_of_a_session_name_field_and_limit_and_store_nothing() {
    for bed in Bed::both_with(|s| s.session.compress_every = 1000, None).await {
        let me = bed.me();
        let full = "x".repeat(limits::TURN_BYTES);
        // 255 of 256 full turns, then one byte too many.
        for _ in 0..15 {
            me.append("s", vec![user(&full); 17]).await.expect("fits");
        }
        me.append("s", vec![user(&full)]).await.expect("the last byte fits");
        let fault = me.append("s", vec![user("y")]).await.expect_err("full");
        assert_eq!(fault.reason, Reason::LimitReached);
        assert!(fault.metadata.contains(&("limit", limits::SESSION_BYTES.to_string())), "{fault:?}");
        let session = me.session("s").await.expect("session");
        assert_eq!((session.last_seq, session.bytes), (256, limits::SESSION_BYTES));
        // What was written can be read back: paged below the size of a message.
        let page = me
            .list_turns(pb::ListTurnsRequest { session_id: "s".into(), page_size: 1000, ..Default::default() })
            .await
            .expect("page");
        assert!(page.turns.len() < 256 && !page.next_page_token.is_empty());
        assert_eq!(me.turns("s", 1, 256).await.expect_err("too much at once").reason, Reason::LimitReached);
        assert_eq!(me.turns("s", 256, 256).await.expect("one").len(), 1);

        for part in 0..50 {
            me.append("t", vec![user(&format!("p{part}")); 200]).await.expect("fits");
        }
        let fault = me.append("t", vec![user("one more")]).await.expect_err("full");
        assert!(fault.reason == Reason::LimitReached && fault.metadata.contains(&("limit", "10000".into())), "{fault:?}");
        assert_eq!(me.session("t").await.expect("session").last_seq, 10_000);
    }
}

#[tokio::test]
async fn c036_c037_c043_every_legal_id_is_its_own() {
    let users = ["u1", "u10", "u1:2", "u1*", "U1", "a.b-c", "x/y@z+1=#2 3", "用户", "{u1}", "u}{1", "[u]?"];
    for bed in Bed::both().await {
        for (n, name) in users.iter().enumerate() {
            let who = bed.caller(&bed.tenant, name, "");
            for session in users {
                who.append(session, vec![user(&format!("secret {n} in {session}"))]).await.expect(name);
            }
        }
        for (n, name) in users.iter().enumerate() {
            let who = bed.caller(&bed.tenant, name, "");
            for session in users {
                let window = who.window(session, 0, 0).await.expect(name);
                assert_eq!(window.turns.iter().map(|t| t.text.clone()).collect::<Vec<_>>(), [format!("secret {n} in {session}")]);
            }
            let hits = who.search("secret", 100).await.expect("search").hits;
            assert_eq!(hits.len(), users.len(), "{name}");
            assert!(hits.iter().all(|h| h.turn.as_ref().is_some_and(|t| t.text.starts_with(&format!("secret {n} ")))));
        }
        bed.caller(&bed.tenant, "u1", "").end("u1").await.expect("ended");
        for name in &users[1..] {
            assert_eq!(bed.caller(&bed.tenant, name, "").window("u1", 0, 0).await.expect(name).turns.len(), 1);
        }
        // Pairs that joining would confuse.
        let (left, right) = (bed.caller(&format!("{}:b", bed.tenant), "c", ""), bed.caller(&bed.tenant, "b:c", ""));
        left.append("s", vec![user("left")]).await.expect("left");
        assert_eq!(right.window("s", 0, 0).await.expect_err("not there").reason, Reason::NotFound);
        for bad in ["", " s", "a\nb", "a\0b"] {
            assert_eq!(right.append(bad, vec![user("x")]).await.expect_err("refused").reason, Reason::InvalidField, "{bad:?}");
        }
    }
}

#[tokio::test]
async fn a_call_for_another_user_than_signed_is_refused() {
    for bed in Bed::both().await {
        let mut me = bed.me();
        me.append("s", vec![user("mine")]).await.expect("appended");
        me.user = "u2".into();
        assert_eq!(me.window("s", 0, 0).await.expect_err("refused").reason, Reason::OwnerMismatch);
        assert_eq!(me.append("s", vec![user("x")]).await.expect_err("refused").reason, Reason::OwnerMismatch);
    }
}

#[tokio::test]
async fn an_agent_sees_its_own_and_the_users_sessions_only() {
    for bed in Bed::both().await {
        let [a, b, none] = ["a", "b", ""].map(|agent| bed.caller(&bed.tenant, "u1", agent));
        a.append("of-a", vec![user("harbour tour for a")]).await.expect("appended");
        none.append("of-user", vec![user("harbour tour for all")]).await.expect("appended");
        assert_eq!(b.window("of-a", 0, 0).await.expect_err("not b's").reason, Reason::NotFound);
        assert_eq!(b.session("of-a").await.expect_err("not b's").reason, Reason::NotFound);
        assert_eq!(b.append("of-a", vec![user("x")]).await.expect_err("not b's").reason, Reason::OwnerMismatch);
        assert_eq!(b.end("of-a").await.expect_err("not b's").reason, Reason::OwnerMismatch);
        assert_eq!(b.search("harbour", 10).await.expect("search").hits.len(), 1);
        assert_eq!(a.search("harbour", 10).await.expect("search").hits.len(), 2);
        assert_eq!(none.search("harbour", 10).await.expect("search").hits.len(), 2, "a call without an agent is user-wide");
        assert_eq!(none.window("of-a", 0, 0).await.expect("user-wide").turns.len(), 1);
        assert_eq!(b.window("of-user", 0, 0).await.expect("the user's").turns.len(), 1);
    }
}

#[tokio::test]
async fn c080_budgets_cut_no_character_and_texts_come_back_letter_for_letter() {
    let texts = [
        "👨‍👩‍👧‍👦 🇨🇳🇨🇳 e\u{301}e\u{301}",
        "预算是５０００元，不要超过。",
        "مرحبا بالعالم 42",
        "a\u{200b}b\u{feff}c\u{202e}d\u{2028}e",
        "日本語の予算 ２０２６年",
    ];
    for bed in Bed::both().await {
        let me = bed.me();
        for text in texts.iter().cycle().take(40) {
            me.append("s", vec![user(text)]).await.expect("appended");
        }
        for tokens in 1..120 {
            let window = me.window("s", 0, tokens).await.expect("window");
            assert!(window.tokens <= tokens as u32);
            assert!(window.turns.iter().chain(&window.anchors).all(|t| texts.contains(&t.text.as_str())));
            for sentence in crate::harness::sentences(&window.summaries) {
                assert!(texts.iter().any(|t| t.contains(&sentence)), "{sentence:?}");
            }
        }
        let stored = me.turns("s", 1, 5).await.expect("turns");
        assert_eq!(stored.iter().map(|t| t.text.as_str()).collect::<Vec<_>>(), texts);
    }
}

#[tokio::test]
async fn c131_a_page_token_opens_only_its_own_list() {
    for bed in Bed::both().await {
        let me = bed.me();
        me.append("s", numbered(1..=10)).await.expect("appended");
        me.append("other", numbered(1..=10)).await.expect("appended");
        let page = |session: &str, token: &str| pb::ListTurnsRequest {
            session_id: session.into(),
            page_size: 4,
            page_token: token.into(),
            ..Default::default()
        };
        let first = me.list_turns(page("s", "")).await.expect("first");
        let token = first.next_page_token;
        assert_eq!(seqs(&me.list_turns(page("s", &token)).await.expect("second").turns), [5, 6, 7, 8]);
        let foreign = bed.caller(&bed.tenant, "u2", "");
        foreign.append("s", numbered(1..=10)).await.expect("appended");
        for refused in [
            me.list_turns(page("other", &token)).await,
            me.list_turns(page("s", "junk")).await,
            foreign.list_turns(page("s", &token)).await,
        ] {
            assert_eq!(refused.expect_err("refused").reason, Reason::InvalidPageToken);
        }
        me.end("s").await.expect("ended");
        bed.clock.advance(Duration::from_secs(25 * 3600));
        me.append("s", numbered(1..=10)).await.expect("a new session");
        assert_eq!(me.list_turns(page("s", &token)).await.expect_err("stale").reason, Reason::InvalidPageToken);
    }
}

#[tokio::test]
async fn a_turn_keeps_everything_it_was_given() {
    for bed in Bed::both().await {
        let me = bed.me();
        let client_time = Some(prost_types::Timestamp { seconds: 1_700_000_000, nanos: 5_000 });
        let new = pb::NewTurn {
            role: pb::Role::Assistant.into(),
            text: "looking".into(),
            tool_call_id: "call-1".into(),
            pinned: true,
            client_time,
            speaker: "Mel".into(),
            external_id: "D1:3".into(),
        };
        let appended = me.append("s", vec![new, turn(pb::Role::Tool, "found")]).await.expect("appended");
        let stored = &me.turns("s", 1, 1).await.expect("turns")[0];
        assert_eq!(
            (
                stored.role(),
                stored.text.as_str(),
                stored.tool_call_id.as_str(),
                stored.pinned,
                stored.client_time,
                stored.speaker.as_str()
            ),
            (pb::Role::Assistant, "looking", "call-1", true, client_time, "Mel")
        );
        assert_eq!(
            (stored.external_id.as_str(), stored.time, stored.tokens, stored.session_id.as_str()),
            ("D1:3", appended.time, 2, "s")
        );
    }
}

/// Appends, repeating a call that could not be answered in time, as a client does.
async fn persist(me: &Caller, body: &pb::AppendTurnsRequest) -> pb::AppendTurnsResponse {
    let mut last = None;
    for _ in 0..20 {
        match me.append_turns(body.clone()).await {
            Ok(answer) => return answer,
            Err(fault) => {
                assert!(fault.reason.retry_safe(), "{fault:?}");
                last = Some(fault);
            }
        }
    }
    panic!("no answer in 20 calls: {last:?}")
}

/// Turns of each of the appenders: `make appenders` runs 1,000.
fn turns_each() -> usize {
    std::env::var("STRATA_APPENDER_TURNS").map_or(200, |turns| turns.parse().expect("a number"))
}

/// 64 appenders, retries among them, while of each session one caller compresses and one reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c052_c105_c115_concurrent_appends_lose_nothing_while_compression_races() {
    const APPENDERS: usize = 64;
    let calls = turns_each() / 5;
    // As many sessions as the turns of all need, well below what one may hold (rule S13).
    let count = (APPENDERS * calls * 5).div_ceil(limits::SESSION_TURNS as usize * 2 / 3).max(2);
    for bed in Bed::both().await {
        let me = bed.me();
        let sessions: Vec<String> = (0..count).map(|n| format!("s{n}")).collect();
        for session in &sessions {
            me.append(session, vec![user("start")]).await.expect("appended");
        }
        let mut writers = tokio::task::JoinSet::new();
        for n in 0..APPENDERS {
            let (me, session) = (me.clone(), sessions[n % count].clone());
            writers.spawn(async move {
                let mut acknowledged = Vec::new();
                for c in 0..calls {
                    let turns = (0..5).map(|t| user(&format!("w{n} c{c} t{t} costs ${n}.{c:02}"))).collect();
                    let body = pb::AppendTurnsRequest {
                        session_id: session.clone(),
                        turns,
                        request_id: request_id(),
                        ..Default::default()
                    };
                    let answer = if c % 8 == 0 {
                        // Two copies race; the answer is one.
                        let (a, b) = tokio::join!(persist(&me, &body), persist(&me, &body));
                        assert_eq!(a.seqs, b.seqs);
                        a
                    } else {
                        persist(&me, &body).await
                    };
                    acknowledged.push((c, answer.seqs));
                }
                (n, acknowledged)
            });
        }
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let mut others = tokio::task::JoinSet::new();
        for session in &sessions {
            for reads in [true, false] {
                let (me, stop, session) = (me.clone(), stop.clone(), session.clone());
                others.spawn(async move {
                    let mut last = 0;
                    for _ in 0..200 {
                        if stop.load(std::sync::atomic::Ordering::Relaxed) {
                            break;
                        }
                        if reads {
                            // No read passes through an empty state: everything is shown, covered, or counted.
                            let Ok(window) = me.window(&session, 1000, 1_000_000).await else { continue };
                            assert!(window.last_seq >= last && !window.turns.is_empty());
                            let covered = me.session(&session).await.expect("session").summaries.last().map_or(0, |s| s.to_seq);
                            // Compressions only move on: what the window showed begins where they stood, or before.
                            assert!(
                                window.turns[0].seq <= covered + 1 || window.turns.len() >= 900,
                                "no hole between summaries and turns"
                            );
                            last = window.last_seq;
                        } else {
                            match me.compress(&session, 5).await {
                                Ok(_) => {}
                                Err(fault) => assert!(fault.reason.retry_safe(), "{fault:?}"),
                            }
                        }
                        tokio::task::yield_now().await;
                    }
                });
            }
        }
        let mut by_session = vec![BTreeSet::new(); count];
        while let Some(done) = writers.join_next().await {
            let (n, acknowledged) = done.expect("no panic");
            let mut before = 0;
            for (c, seqs) in acknowledged {
                assert_eq!(seqs.len(), 5);
                assert!(seqs[0] > before, "numbers are in acknowledgement order per client");
                before = seqs[4];
                for (t, seq) in seqs.into_iter().enumerate() {
                    assert!(by_session[n % count].insert((seq, format!("w{n} c{c} t{t} costs ${n}.{c:02}"))), "no number twice");
                }
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        while let Some(done) = others.join_next().await {
            done.expect("no panic");
        }
        assert_eq!(by_session.iter().map(BTreeSet::len).sum::<usize>(), APPENDERS * calls * 5);
        for (session, expected) in sessions.iter().zip(&by_session) {
            let total = u32::try_from(expected.len()).expect("few") + 1;
            let mut stored = BTreeSet::new();
            for from in (1..=total).step_by(1000) {
                stored.extend(
                    me.turns(session, from, (from + 999).min(total)).await.expect("turns").into_iter().map(|t| (t.seq, t.text)),
                );
            }
            assert_eq!(stored.len(), total as usize, "dense");
            stored.remove(&(1, "start".to_owned()));
            assert_eq!(&stored, expected, "{}: each acknowledged turn is there once", bed.store);
            // Ranges are exact and disjoint (A35).
            me.compress(session, 5).await.expect("compressed");
            let summaries = me.session(session).await.expect("session").summaries;
            assert_eq!(summaries[0].from_seq, 1);
            assert!(summaries.windows(2).all(|w| w[0].to_seq + 1 == w[1].from_seq));
            assert_eq!(summaries.last().map(|s| s.to_seq), Some(total - 5));
        }
    }
}

#[tokio::test]
async fn a24_c065_order_and_numbers_stay_through_windows_summaries_and_equal_times() {
    for bed in Bed::both().await {
        let me = bed.me();
        let time = Some(prost_types::Timestamp { seconds: 1_700_000_000, nanos: 0 });
        for part in (1..=60_u32).collect::<Vec<_>>().chunks(20) {
            let turns = part.iter().map(|n| pb::NewTurn { client_time: time, ..user(&format!("invoice INV-{n:03} is open")) });
            me.append("s", turns.collect()).await.expect("appended");
            me.compressed_to("s", part[part.len() - 1] - 10).await;
        }
        let texts = |turns: &[pb::Turn]| turns.iter().map(|turn| (turn.seq, turn.text.clone())).collect::<Vec<_>>();
        let wanted = |from: u32| (from..=60).map(|n| (n, format!("invoice INV-{n:03} is open"))).collect::<Vec<_>>();
        let before = me.window("s", 20, 100_000).await.expect("window");
        assert_eq!(texts(&before.turns), wanted(51), "{}: the rest is compressed already", bed.store);
        me.compress("s", 5).await.expect("compressed");
        let after = me.window("s", 20, 100_000).await.expect("window");
        // What is covered is told by summaries, the newest stand unchanged, and both keep their order.
        assert_eq!(texts(&after.turns), wanted(56), "{}", bed.store);
        let ranges: Vec<(u32, u32)> = after.summaries.iter().map(|summary| (summary.from_seq, summary.to_seq)).collect();
        assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0), "{ranges:?}");
        for summary in &after.summaries {
            let seqs: Vec<u32> = summary.sentences.iter().flat_map(|sentence| sentence.seqs.clone()).collect();
            assert!(seqs.is_sorted() && seqs.iter().all(|seq| (summary.from_seq..=summary.to_seq).contains(seq)), "{seqs:?}");
        }
        assert_eq!(texts(&me.turns("s", 41, 60).await.expect("turns")), wanted(41), "{}: the originals are there", bed.store);
    }
}

#[tokio::test]
async fn c094_looking_at_a_session_does_not_keep_it_alive() {
    for bed in Bed::both().await {
        let me = bed.me();
        let ttl = Some(prost_types::Duration { seconds: 60, nanos: 0 });
        let body =
            pb::AppendTurnsRequest { session_id: "s".into(), turns: vec![user("hello there Tom")], ttl, ..Default::default() };
        me.append_turns(body).await.expect("appended");
        let expires = async || {
            let body = pb::GetSessionRequest { session_id: "s".into(), ..Default::default() };
            me.get_session(body).await.ok().and_then(|answer| answer.expire_time)
        };
        let before = expires().await.expect("alive");
        for _ in 0..11 {
            bed.clock.advance(std::time::Duration::from_secs(5));
            me.list_sessions(pb::ListSessionsRequest::default()).await.expect("listed");
            me.search("Tom", 5).await.expect("searched");
            let body = pb::GetWindowRequest { session_id: "s".into(), no_renew: true, ..Default::default() };
            me.get_window(body).await.expect("a job's look");
            me.turns("s", 1, 1).await.expect("read");
            assert_eq!(expires().await, Some(before), "{}", bed.store);
        }
    }
}
