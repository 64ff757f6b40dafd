//! Energy (rule S9): what a window shows first when not everything fits, and what it leaves out, on both stores.

use crate::harness::{Bed, Caller, SOON, user};
use std::time::Duration;
use strata_api::session::v1 as pb;
use strata_testkit::eventually;

/// Ranges of four turns each, compressed one by one, all equally long.
async fn ranges(me: &Caller, language: &str, count: u32) {
    for n in 1..=count {
        let text = |t: u32| match language {
            "en" => format!("Parcel P-{n}{t}7 weighs {n}{t} kg and leaves at 1{n}:{t}5."),
            "zh" => format!("包裹P-{n}{t}7重{n}{t}公斤，1{n}:{t}5发出。"),
            _ => format!("📦 包裹 P-{n}{t}7 \u{200b}weighs １{t} kg, 1{n}:{t}5 发出。"),
        };
        me.append("s", (1..=4).map(|t| user(&text(t))).collect()).await.expect("appended");
        me.append("s", vec![user("ok")]).await.expect("appended");
        me.compress("s", 1).await.expect("compressed");
    }
}

async fn shown(me: &Caller, tokens: i32) -> Vec<(u32, u32)> {
    let window = me.window("s", 20, tokens).await.expect("window");
    assert!(window.tokens <= u32::try_from(tokens).expect("positive"));
    window.summaries.iter().map(|s| (s.from_seq, s.to_seq)).collect()
}

fn slow(settings: &mut strata_core::policy::settings::PolicySettings) {
    (settings.session.compress_every, settings.session.summary_fan_in) = (1000, 16);
    settings.session.ttl_seconds = 30 * 24 * 3600;
}

#[tokio::test]
async fn a45_s9_what_is_looked_up_is_shown_before_what_is_newer() {
    for language in ["en", "zh", "mixed"] {
        for bed in Bed::both_with(slow, None).await {
            let me = bed.me();
            ranges(&me, language, 4).await;
            let all = me.window("s", 20, 100_000).await.expect("window");
            let range = |s: &pb::Summary| (s.from_seq, s.to_seq);
            let order: Vec<(u32, u32)> = all.summaries.iter().map(range).collect();
            assert_eq!(order, [(1, 4), (5, 9), (10, 14), (15, 19)], "{language} {}", bed.store);
            let energies: Vec<f64> = all.summaries.iter().map(|s| s.energy).collect();
            assert!(energies.is_sorted() && energies[0] > 0.0 && energies[3] <= 1.0, "{energies:?}");
            // Room for the rest, and all summaries but one.
            let tokens = |s: &pb::Summary| s.sentences.iter().map(|s| strata_text::tokens::count(&s.text)).sum::<u32>();
            let smallest = all.summaries.iter().map(tokens).min().expect("four");
            let room = i32::try_from(all.tokens - smallest / 2).expect("small");
            assert_eq!(shown(&me, room).await, order[1..]);
            // Reading a page is no look-up, looking at a window neither; reading a turn is.
            let page = pb::ListTurnsRequest { session_id: "s".into(), ..Default::default() };
            me.list_turns(page).await.expect("a page");
            assert_eq!(shown(&me, room).await, order[1..]);
            assert_eq!(me.turns("s", 2, 2).await.expect("a turn").len(), 1);
            eventually(SOON, async || shown(&me, room).await == [order[0], order[2], order[3]]).await;
            // So is finding it; what is shown stands in its order all the same.
            let found = me.search("P-217", 1).await.expect("found").hits.remove(0).turn.expect("a turn");
            assert_eq!(found.seq, 6, "the first parcel of the second range");
            eventually(SOON, async || shown(&me, room).await == [order[0], order[1], order[3]]).await;
            // Nothing was deleted.
            assert_eq!(shown(&me, 100_000).await, order);
            assert_eq!(me.session("s").await.expect("a session").summaries.len(), 4);
        }
    }
}

#[tokio::test]
async fn a45_without_energy_a_summary_is_left_out_and_counted_and_anchors_never_are() {
    let floor = |settings: &mut strata_core::policy::settings::PolicySettings| {
        slow(settings);
        settings.session.energy_floor = 0.1;
    };
    for language in ["en", "zh"] {
        for bed in Bed::both_with(floor, None).await {
            let me = bed.me();
            let never =
                if language == "en" { "Never call me before 9:00." } else { "早上9:00以前绝对不要给我打电话。" };
            me.append("s", vec![user(never), user("ok")]).await.expect("appended");
            me.compress("s", 1).await.expect("compressed");
            ranges(&me, language, 2).await;
            let fresh = me.window("s", 20, 100_000).await.expect("window");
            assert_eq!((fresh.summaries.len(), fresh.turns_left_out), (3, 0), "{language} {}", bed.store);
            // 0.36 x 0.5^2 is below the floor, 0.6 x 0.5^2 of a constraint is not.
            bed.clock.advance(Duration::from_secs(2 * 24 * 3600));
            let old = me.window("s", 20, 100_000).await.expect("window");
            assert_eq!(old.summaries.iter().map(|s| s.from_seq).collect::<Vec<_>>(), [1]);
            assert_eq!(old.turns_left_out, fresh.last_seq - 1 - old.summaries[0].to_seq, "counted");
            bed.clock.advance(Duration::from_secs(20 * 24 * 3600));
            let older = me.window("s", 20, 100_000).await.expect("window");
            assert_eq!(older.summaries, []);
            assert_eq!(older.anchors.iter().map(|t| t.seq).collect::<Vec<_>>(), [1], "an anchor stays");
            // Cleared from the window, not deleted.
            assert_eq!(me.session("s").await.expect("a session").summaries.len(), 3);
            assert_eq!(me.turns("s", 1, 8).await.expect("turns").len(), 8);
            // And back when it is looked up.
            me.turns("s", 4, 4).await.expect("a turn");
            eventually(SOON, async || !me.window("s", 20, 100_000).await.expect("window").summaries.is_empty()).await;
        }
    }
}
