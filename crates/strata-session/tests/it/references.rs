//! "The one I mentioned", "刚才那家": what a reference means is found by range first, then in the original turn, never in the words of
//! a summary (acceptance A37), on both stores.

use crate::harness::{Bed, Caller, assistant, user};
use strata_api::session::v1 as pb;

/// What was mentioned once, long ago: the turn, a word that a summary of it holds, and what only the turn says in full.
struct Mentioned {
    turn: &'static str,
    name: &'static str,
    reference: &'static str,
    filler: fn(u32) -> String,
}

const MENTIONED: [Mentioned; 3] = [
    Mentioned {
        turn: "My sister liked the restaurant Golden Lotus, 12 Harbour Street, phone 555-0187; its tasting menu is $64.50.",
        name: "Golden Lotus",
        reference: "Then book the one I mentioned for Friday.",
        filler: |n| format!("Parcel number P-{n:03} weighs {n} kg and leaves at 1{}:0{}.", n % 9, n % 7),
    },
    Mentioned {
        turn: "我妹妹喜欢金莲花餐厅，海港街12号，电话010-62781234，套餐388元。",
        name: "金莲花",
        reference: "那就订刚才那家，周五晚上。",
        filler: |n| format!("包裹P-{n:03}重{n}公斤，1{}:0{}发出。", n % 9, n % 7),
    },
    Mentioned {
        turn: "🍜 ＡＢＣ餐厅 (Golden\u{200b} Lotus)，海港街１２号，phone \u{202e}555-0187\u{202c}，套餐３８８元 👨‍👩‍👧。",
        name: "海港街",
        reference: "Book 刚才那家 for Friday 🙏.",
        filler: |n| format!("包裹 P-{n:03} weighs １{n} kg, 1{}:0{} 发出。", n % 9, n % 7),
    },
];

/// As an agent does it: the ranges that are listed, in which of them it was, and what the turns there say.
async fn resolved(me: &Caller, name: &str) -> Vec<pb::Turn> {
    let listed = pb::GetSummariesRequest { session_id: "s".into(), page_size: 100, ..Default::default() };
    let mut found = Vec::new();
    for range in me.get_summaries(listed).await.expect("ranges").summaries {
        let seqs = range.sentences.iter().filter(|s| s.text.contains(name)).flat_map(|s| s.seqs.iter().copied());
        let indexed = range.values.iter().filter(|v| v.value.contains(name)).map(|v| v.seq);
        for seq in seqs.chain(indexed).collect::<std::collections::BTreeSet<u32>>() {
            assert!((range.from_seq..=range.to_seq).contains(&seq), "within its range");
            let turns = me.turns("s", range.from_seq, range.to_seq).await.expect("the range");
            found.extend(turns.into_iter().filter(|turn| turn.seq == seq));
        }
    }
    found
}

#[tokio::test]
async fn a37_a_reference_is_resolved_by_range_and_then_from_the_original_turn() {
    for Mentioned { turn, name, reference, filler } in MENTIONED {
        for bed in Bed::both().await {
            let me = bed.me();
            me.append("s", vec![user(turn), assistant("Sounds lovely.")]).await.expect("appended");
            // Enough for ranges that are remade coarser twice, and longer than one range's summary can tell of.
            for n in 0..25 {
                me.append("s", (0..8).map(|t| user(&filler(8 * n + t))).collect()).await.expect("appended");
            }
            me.append("s", vec![user(reference)]).await.expect("appended");
            me.compress("s", 1).await.expect("compressed");
            let levels = me.session("s").await.expect("a session").summaries.len();
            assert!(levels < 15, "remade coarser: {levels}");
            let found = resolved(&me, name).await;
            assert!(!found.is_empty(), "{name} {}: in a summary or its index", bed.store);
            assert!(found.iter().all(|t| t.seq == 1 && t.text == turn), "{}: letter for letter: {found:?}", bed.store);
            // By words as well, with the original's number; the turn that refers is not what it refers to.
            let hits = me.search(name, 3).await.expect("found").hits;
            assert_eq!(hits[0].turn.as_ref().map(|t| (t.seq, t.text.as_str())), Some((1, turn)), "{}", bed.store);
            // Summary words are not what is resolved from: one that says less leads to the whole turn all the same.
            let window = me.window("s", 5, 100_000).await.expect("window");
            assert!(window.turns.iter().all(|t| t.seq > 1), "the turn itself is not shown any more");
        }
    }
}

#[tokio::test]
async fn a37_a_clients_summary_leads_to_the_turns_it_names_and_no_further() {
    for (texts, short, name) in [
        (
            ["The Golden Lotus at 12 Harbour Street has the best soup.", "The Blue Heron is closed on Mondays.", "ok"],
            [("The Golden Lotus, 12 Harbour Street.", 1), ("Blue Heron: closed on Mondays.", 2)],
            "Golden Lotus",
        ),
        (
            ["海港街12号的金莲花餐厅汤最好。", "蓝鹭餐厅星期一不营业。", "好的"],
            [("金莲花餐厅在海港街12号。", 1), ("蓝鹭餐厅星期一不营业。", 2)],
            "金莲花",
        ),
    ] {
        for bed in Bed::both().await {
            let me = bed.me();
            me.append("s", texts.iter().map(|text| user(text)).collect()).await.expect("appended");
            let said: Vec<(&str, [u32; 1])> = short.iter().map(|(text, seq)| (*text, [*seq])).collect();
            let said: Vec<(&str, &[u32])> = said.iter().map(|(text, seqs)| (*text, seqs.as_slice())).collect();
            me.summarise("s", 1..=2, &said).await.unwrap_or_else(|fault| panic!("{name} {}: {fault:?}", bed.store));
            let found = resolved(&me, name).await;
            assert!(!found.is_empty() && found.iter().all(|t| t.seq == 1 && t.text == texts[0]), "{found:?}");
        }
    }
}
