//! Erasure on both stores: what quotes it is redacted, what was made of it is made again, and nothing is left on the disk.

use crate::harness::{Answer, Bed, Caller, PATIENCE, assistant, pinned, pool, request_id, result, settings, turn, user};
use std::collections::BTreeMap;
use std::time::Duration;
use strata_api::internal::v1 as internal;
use strata_api::internal::v1::session_erasure_service_client::SessionErasureServiceClient;
use strata_api::session::v1 as pb;
use strata_core::{Clock as _, Reason};
use strata_session::SessionStoreConfig;
use strata_testkit::redis::RedisServer;

pub type Rows = BTreeMap<String, internal::StoreErasure>;

fn gather(rows: &mut Rows, part: Vec<internal::StoreErasure>) {
    for row in part {
        let sum = rows.entry(row.store.clone()).or_default();
        let (found, removed, remaining) = (sum.found + row.found, sum.removed + row.removed, sum.remaining + row.remaining);
        *sum = internal::StoreErasure { found, removed, remaining, ..row };
    }
}

/// Erases, part by part.
pub async fn erase(who: &Caller, scope: &internal::ErasureScope) -> Answer<Rows> {
    let (mut rows, mut cursor) = (Rows::new(), String::new());
    loop {
        let mut request = tonic::Request::new(internal::EraseContentRequest { scope: Some(scope.clone()), cursor });
        request.set_timeout(PATIENCE);
        request.extensions_mut().insert(who.identity.clone());
        let answer = SessionErasureServiceClient::new(who.channel.clone()).erase_content(request).await;
        let answer = answer.map_err(|s| strata_api::error::fault(&s))?.into_inner();
        gather(&mut rows, answer.stores);
        cursor = answer.next_cursor;
        if cursor.is_empty() {
            return Ok(rows);
        }
    }
}

/// Searches, part by part.
async fn find(who: &Caller, scope: &internal::ErasureScope) -> Rows {
    let (mut rows, mut cursor) = (Rows::new(), String::new());
    loop {
        let mut request = tonic::Request::new(internal::FindContentRequest { scope: Some(scope.clone()), cursor });
        request.set_timeout(PATIENCE);
        request.extensions_mut().insert(who.identity.clone());
        let answer = SessionErasureServiceClient::new(who.channel.clone()).find_content(request).await;
        let answer = answer.expect("searched").into_inner();
        gather(&mut rows, answer.stores);
        cursor = answer.next_cursor;
        if cursor.is_empty() {
            return rows;
        }
    }
}

fn blank(bed: &Bed, who: &Caller) -> internal::ErasureScope {
    internal::ErasureScope {
        user_id: who.user.clone(),
        erasure_id: request_id(),
        erase_epoch: bed.clock.now().micros() as u64,
        ..Default::default()
    }
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// An erasure of texts.
pub fn scope(bed: &Bed, who: &Caller, of: &[&str]) -> internal::ErasureScope {
    internal::ErasureScope { texts: texts(of), ..blank(bed, who) }
}

fn quoted(session: &str, seqs: &[u32]) -> Vec<internal::TurnRange> {
    vec![internal::TurnRange { session_id: session.into(), seqs: seqs.to_vec() }]
}

/// The caller after the router has learned of the erasure.
fn knowing(who: &Caller, scope: &internal::ErasureScope) -> Caller {
    let mut who = who.clone();
    who.identity.erase_epoch = scope.erase_epoch;
    who
}

/// The same caller with calls that were admitted before the erasure.
fn from_before(who: &Caller, scope: &internal::ErasureScope) -> Caller {
    let mut who = who.clone();
    who.identity.erase_epoch = scope.erase_epoch - 1;
    who
}

async fn everything_shown(me: &Caller, session: &str) -> String {
    let mut shown = String::new();
    for part in 0..50 {
        let turns = me.turns(session, part * 100 + 1, part * 100 + 100).await.expect("turns");
        if turns.is_empty() {
            break;
        }
        shown += &format!("{turns:?}");
    }
    shown += &format!("{:?}", me.window(session, 1000, 1_000_000).await.expect("window"));
    let body = pb::GetSummariesRequest { session_id: session.into(), page_size: 1000, ..Default::default() };
    shown += &format!("{:?}", me.get_summaries(body).await.expect("summaries"));
    let body = pb::GetFactsRequest { session_id: session.into(), from_seq: 1, page_size: 1000, ..Default::default() };
    shown += &format!("{:?}", me.get_facts(body).await.expect("facts"));
    shown
}

fn header(trace_id: &str) -> pb::PutArtifactRequest {
    pb::PutArtifactRequest { session_id: "s".into(), trace_id: trace_id.into(), ..Default::default() }
}

struct Canary {
    /// What the record said, word for word.
    quote: &'static str,
    /// Its protected value.
    value: &'static str,
    /// Other ways to write the value.
    echoes: [&'static str; 3],
}

const CANARIES: [Canary; 5] = [
    Canary {
        quote: "My locker code is QX-77341-ZK.",
        value: "QX-77341-ZK",
        echoes: ["Noted: locker ＱＸ－７７３４１－ＺＫ.", "code qx77341zk", "Q\u{200b}X-77\u{2060}341-Z\u{ad}K it is"],
    },
    Canary {
        quote: "我的储物柜密钥是紫金香樟八七六五。",
        value: "紫金香樟八七六五",
        echoes: ["好的,紫金香樟 八七六五。", "紫\u{200b}金香\u{200d}樟八七六五", "「紫金,香樟」八七六五"],
    },
    Canary {
        quote: "My secret sign is 🦄🌈🦄🪐🛸.",
        value: "🦄🌈🦄🪐🛸",
        echoes: ["sign 🦄 🌈 🦄 🪐 🛸", "🦄\u{fe0f}🌈🦄🪐🛸!", "it is (🦄🌈🦄🪐🛸)"],
    },
    Canary {
        quote: "السر هو زعفران اللوتس.",
        value: "زعفران اللوتس",
        echoes: ["\u{202b}زعفران، اللوتس\u{202c}", "قلت زَعفران اللوتس", "«زعفران اللوتس»"],
    },
    Canary {
        quote: "Call me on 138-0013-8000 after six.",
        value: "138-0013-8000",
        echoes: ["13800138000", "１３８ ００１３ ８０００", "138.0013.8000"],
    },
];

#[tokio::test]
async fn a170_a177_x03_a_canary_is_taken_from_everywhere_and_the_rest_stays() {
    for bed in Bed::both_with(|s| s.session.compress_every = 1000, None).await {
        for (n, canary) in CANARIES.iter().enumerate() {
            let me = bed.caller(&bed.tenant, &format!("canary{n}"), "");
            let mut talk = vec![
                user(canary.quote),
                assistant(canary.echoes[0]),
                user("Book the hotel Aurora for 3 May, budget 1200 EUR."),
                pinned(&format!("Keep in mind. {} Also buy milk.", canary.quote)),
                user(&format!("Delete the entry {} now!", canary.value)),
                assistant(canary.echoes[1]),
                result("call-1", &format!("{{\"row\": \"{}\"}}", canary.echoes[2])),
                pb::NewTurn { speaker: canary.value.into(), external_id: canary.value.into(), ..user("Who said so?") },
                user("I promise to send the report R-5511 by Friday."),
            ];
            talk.extend((0..12).map(|n| user(&format!("Order ORD-{n}00 arrived at 10:{n:02}."))));
            me.append("s", talk).await.expect("appended");
            let compress = pb::CompressSessionRequest {
                session_id: "s".into(),
                keep_turns: 2,
                request_id: request_id(),
                ..Default::default()
            };
            let made = me.compress_session(compress.clone()).await.expect("compressed");
            assert!(made.summary.is_some());
            let fact =
                |key: &str, value: &str, seq| pb::SessionFact { key: key.into(), value: value.into(), seq, ..Default::default() };
            let facts = vec![
                fact("locker.code", canary.value, 1),
                fact("locker.kind", "some kind", 3),
                fact("trip.budget", "1200 EUR", 3),
                fact("note", canary.echoes[1], 6),
            ];
            let put = pb::PutFactsRequest { session_id: "s".into(), facts, request_id: request_id(), ..Default::default() };
            me.at(5).put_facts(put.clone()).await.expect("facts");
            let raw = format!("{}{}{}", "x ".repeat(2_000), canary.value, " y".repeat(1_000));
            me.put_artifact(header("holds"), raw.as_bytes(), 1_000_000).await.expect("artifact");
            me.put_artifact(header("other"), b"plain", 100).await.expect("artifact");

            let scope = internal::ErasureScope {
                turns: quoted("s", &[1]),
                texts: texts(&[canary.quote, canary.value]),
                keys: texts(&["locker.kind"]),
                ..blank(&bed, &me)
            };
            let before = find(&me, &scope).await;
            let rows = erase(&me, &scope).await.expect("erased");
            let me = knowing(&me, &scope);
            for store in ["turns", "summaries", "anchors", "value_index", "facts", "artifacts", "request_ids"] {
                let row = &rows[&format!("session.{store}")];
                assert_eq!((row.removed, row.remaining), (row.found, 0), "{} {store}: {row:?}", bed.store);
                // A server that many tests keep busy may not have written its files yet.
                let known = [internal::PhysicalState::Gone, internal::PhysicalState::Pending];
                assert!(known.contains(&row.physical()), "{row:?}");
                // The emoji are no protected values, so no index holds them.
                assert!(row.found > 0 || store == "value_index" || store == "request_ids", "{} {store} {rows:?}", bed.store);
            }
            assert_eq!(before["session.turns"].found, rows["session.turns"].found);
            assert_eq!(rows["session.turns"].found, 7, "{rows:?}");
            assert_eq!(rows["session.facts"].found, 3);
            assert!(find(&me, &scope).await.values().all(|row| row.found == 0));

            let shown = everything_shown(&me, "s").await;
            for part in canary.echoes.iter().chain([&canary.value, &canary.quote]) {
                assert!(!shown.contains(part), "{}: {part} in {shown}", bed.store);
                let found = me.search(part, 20).await.expect("search");
                assert!(!format!("{found:?}").contains(canary.value));
            }
            // What only stood beside it is there, and derived anew.
            for kept in ["Aurora", "1200 EUR", "Also buy milk.", "R-5511", "ORD-1100", "trip.budget"] {
                assert!(shown.contains(kept), "{}: {kept} in {shown}", bed.store);
            }
            let turns = me.turns("s", 1, 9).await.expect("turns");
            assert_eq!((turns[0].text.as_str(), turns[0].redacted), ("[erased]", true));
            assert!(turns[3].text.contains("[erased]") && turns[3].text.starts_with("Keep in mind."), "{:?}", turns[3].text);
            assert_eq!((turns[4].text.as_str(), turns[2].redacted), ("[erased]", false), "this wins over S2a");
            assert!(turns[7].speaker.is_empty() && turns[7].external_id.is_empty() && turns[7].text == "Who said so?");
            let gone = me.get_artifact("s", "holds").await.expect_err("erased");
            assert_eq!(gone.reason, Reason::ArtifactGone);
            assert_eq!(me.get_artifact("s", "other").await.expect("kept").1, b"plain");
            // A repeated request is still told, and answered without content.
            let again = me.compress_session(compress).await.expect("repeated");
            assert!(!format!("{again:?}").contains(canary.value));
            assert!(!format!("{:?}", me.at(5).put_facts(put).await.expect("repeated")).contains(canary.value));
            // The numbers add up: what was freed is free.
            let state = me.session("s").await.expect("session");
            let all = me.turns("s", 1, 100).await.expect("turns");
            let bytes: usize =
                all.iter().map(|t| t.text.len() + t.tool_call_id.len() + t.speaker.len() + t.external_id.len()).sum();
            assert_eq!(state.bytes, bytes as u64);
            me.compress("s", 0).await.expect("compressed after all");
            assert!(!everything_shown(&me, "s").await.contains(canary.value));
        }
    }
}

#[tokio::test]
async fn a171_what_was_made_of_a_named_turn_goes_though_it_has_other_words() {
    for bed in Bed::both_with(|s| s.session.compress_every = 1000, None).await {
        let me = bed.me();
        let talk = vec![
            user("The moss behind the mill smells of old rain and I adore it."),
            user("We decided to meet in room 4711."),
            user("The order ORD-9 is over 55 EUR."),
        ];
        me.append("s", talk).await.expect("appended");
        me.append("s", (0..10).map(|n| user(&format!("Parcel P-{n}00 came."))).collect()).await.expect("appended");
        let sentences: [(&str, &[u32]); 2] = [
            ("The user decided to meet in room 4711; the order ORD-9 is over 55 EUR.", &[2, 3]),
            ("A scent of wet stone delights the user.", &[1]),
        ];
        let claimed = me.summarise("s", 1..=3, &sentences).await;
        let derived = claimed.is_ok();
        if !derived {
            me.compress("s", 8).await.expect("compressed");
        }
        let mut named = blank(&bed, &me);
        named.turns = quoted("s", &[1]);
        let rows = erase(&me, &named).await.expect("erased");
        let me = knowing(&me, &named);
        assert_eq!((rows["session.turns"].removed, rows["session.summaries"].removed), (1, 1), "{} {rows:?}", bed.store);
        let shown = everything_shown(&me, "s").await;
        for gone in ["moss", "wet stone", "mill", "scent"] {
            assert!(!shown.contains(gone), "{}: {gone} in {shown}", bed.store);
        }
        assert!(shown.contains("room 4711") && shown.contains("ORD-9"));
        // Once more: nothing is left to be done.
        let again = erase(&me, &named).await.expect("repeated");
        assert!(again.values().all(|row| row.found == 0), "{again:?}");
    }
}

#[tokio::test]
async fn e02_a_call_from_before_the_erasure_is_refused_after_it_and_a_later_statement_passes() {
    for bed in Bed::both().await {
        let me = bed.me();
        me.append("s", vec![user("My code is QX-77341-ZK.")]).await.expect("appended");
        bed.clock.advance(Duration::from_secs(60));
        let scope = scope(&bed, &me, &["QX-77341-ZK"]);
        erase(&me, &scope).await.expect("erased");
        let before = from_before(&me, &scope);
        let late = [
            before.append("s", vec![user("My code is QX-77341-ZK.")]).await.map(|_| ()),
            before.append("new", vec![user("My code is QX-77341-ZK.")]).await.map(|_| ()),
            before
                .at(5)
                .put_facts(pb::PutFactsRequest {
                    session_id: "s".into(),
                    facts: vec![pb::SessionFact {
                        key: "code".into(),
                        value: "QX-77341-ZK".into(),
                        seq: 1,
                        ..Default::default()
                    }],
                    ..Default::default()
                })
                .await
                .map(|_| ()),
            before.put_artifact(header("late"), b"QX-77341-ZK", 100).await.map(|_| ()),
            before.compress("s", 0).await.map(|_| ()),
            before.turns("s", 1, 1).await.map(|_| ()),
        ];
        for (n, answer) in late.into_iter().enumerate() {
            let fault = answer.expect_err("older");
            assert_eq!(fault.reason, Reason::StaleEraseEpoch, "{} {n}", bed.store);
            assert!(fault.metadata.contains(&("erase_epoch", scope.erase_epoch.to_string())));
        }
        // Another replica has seen nothing: its store knows.
        let other = bed.replica().await;
        let fault = from_before(&other.me(), &scope).append("s", vec![user("again")]).await.expect_err("older");
        assert_eq!(fault.reason, Reason::StaleEraseEpoch, "{}", bed.store);
        // Another user is not concerned, nor does an older erasure lower the epoch.
        bed.caller(&bed.tenant, "u2", "").append("s", vec![user("mine")]).await.expect("another user");
        let mut older = scope.clone();
        older.erase_epoch -= 1;
        erase(&me, &older).await.expect("older");
        let me = knowing(&me, &scope);
        bed.clock.advance(Duration::from_secs(10));
        me.append("s", vec![user("My new code is QX-77341-ZK.")]).await.expect("a later statement");
        let again = erase(&me, &scope).await.expect("repeated");
        assert_eq!(again["session.turns"].found, 0);
        assert!(find(&me, &scope).await.values().all(|row| row.found == 0));
        let turns = me.turns("s", 1, 9).await.expect("turns");
        assert_eq!(turns.iter().map(|t| t.text.as_str()).collect::<Vec<_>>(), ["[erased]", "My new code is QX-77341-ZK."]);
    }
}

#[tokio::test]
async fn a175_x12_everything_ends_all_sessions_or_one_agents() {
    for bed in Bed::both().await {
        let agents = ["", "a1", "a2"].map(|agent| bed.caller(&bed.tenant, "u1", agent));
        let other = bed.caller(&bed.tenant, "u2", "");
        for (n, who) in agents.iter().chain([&other]).enumerate() {
            for part in 0..3 {
                let session = format!("s{n}-{part}");
                who.append(&session, vec![user("QX-77341-ZK was here")]).await.expect("appended");
            }
        }
        let mut all = internal::ErasureScope { everything: true, agent_id: "a1".into(), ..blank(&bed, &agents[0]) };
        let rows = erase(&agents[0], &all).await.expect("erased");
        assert_eq!((rows["session.sessions"].removed, rows["session.turns"].removed), (3, 3), "{} {rows:?}", bed.store);
        let user_wide = knowing(&agents[0], &all);
        for (n, gone) in [(0, false), (1, true), (2, false)] {
            assert_eq!(user_wide.turns(&format!("s{n}-0"), 1, 1).await.is_err(), gone, "{} {n}", bed.store);
        }
        all.agent_id = String::new();
        all.erase_epoch += 1;
        assert_eq!(find(&user_wide, &all).await["session.sessions"].found, 6);
        let rows = erase(&user_wide, &all).await.expect("erased");
        assert_eq!((rows["session.sessions"].removed, rows["session.sessions"].remaining), (6, 0));
        assert!(find(&user_wide, &all).await.values().all(|row| row.found == 0));
        let user_wide = knowing(&agents[0], &all);
        let ended = user_wide.append("s0-0", vec![user("again")]).await.expect_err("a tombstone");
        assert_eq!(ended.reason, Reason::SessionEnded);
        assert_eq!(other.turns("s3-0", 1, 1).await.expect("another user's").len(), 1);
        // What is begun after it is another one.
        bed.clock.advance(Duration::from_secs(10));
        user_wide.append("fresh", vec![user("a new start")]).await.expect("appended");
        assert_eq!(erase(&user_wide, &all).await.expect("repeated")["session.sessions"].found, 0);
        assert_eq!(user_wide.turns("fresh", 1, 1).await.expect("kept").len(), 1);
    }
}

#[tokio::test]
async fn e02_appends_and_compressions_race_with_an_erasure_and_nothing_is_left_or_lost() {
    for bed in Bed::both_with(|s| s.session.compress_every = 5, None).await {
        let me = bed.me();
        me.append("s", (0..60).map(|n| user(&format!("Code QX-77341-ZK number {n}00, room R-{n}00."))).collect())
            .await
            .expect("appended");
        let scope = scope(&bed, &me, &["QX-77341-ZK"]);
        let know = knowing(&me, &scope);
        let talk = async {
            for n in 0..40 {
                know.append("s", vec![user(&format!("Parcel P-{n}00 came at 11:{n:02}."))]).await.expect("appended");
                if n % 10 == 0 {
                    know.compress("s", 3).await.expect("compressed");
                }
            }
        };
        let (rows, ()) = tokio::join!(erase(&me, &scope), talk);
        let rows = rows.expect("erased");
        assert_eq!((rows["session.turns"].removed, rows["session.turns"].remaining), (60, 0), "{} {rows:?}", bed.store);
        let shown = everything_shown(&know, "s").await;
        assert!(!shown.contains("QX-77341-ZK"));
        assert_eq!(know.session("s").await.expect("session").last_seq, 100);
        assert!(shown.contains("P-3900"));
        assert!(find(&know, &scope).await.values().all(|row| row.found == 0));
    }
}

#[tokio::test]
async fn e02_a_taken_back_value_leaves_the_verdicts_and_an_erased_fact_keeps_its_epoch() {
    for bed in Bed::both_with(|s| s.session.compress_every = 1000, None).await {
        let me = bed.me();
        let mut talk = vec![
            user("The budget is 4820059 EUR for the fair."),
            user("No wait, it is not 4820059 EUR, it is 51300 EUR."),
            user("The booth is B-4411."),
        ];
        talk.extend((0..8).map(|n| user(&format!("Order ORD-{n}00 came."))));
        me.append("s", talk).await.expect("appended");
        me.compress("s", 2).await.expect("compressed");
        let put = |value: &str| pb::PutFactsRequest {
            session_id: "s".into(),
            facts: vec![pb::SessionFact { key: "budget".into(), value: value.into(), seq: 1, ..Default::default() }],
            ..Default::default()
        };
        me.at(50).put_facts(put("4820059 EUR")).await.expect("written");
        let scope = scope(&bed, &me, &["4820059 EUR"]);
        let rows = erase(&me, &scope).await.expect("erased");
        assert!(rows.values().all(|row| row.remaining == 0 && row.found == row.removed), "{rows:?}");
        let me = knowing(&me, &scope);
        assert!(!everything_shown(&me, "s").await.contains("4820059"));
        let stale = me.at(49).put_facts(put("1")).await.expect_err("an older claim");
        assert_eq!(stale.reason, Reason::StaleEpoch, "{}", bed.store);
        me.at(50).put_facts(put("51300 EUR")).await.expect("its owner writes again");
        assert!(everything_shown(&me, "s").await.contains("51300"));
    }
}

/// Repeats an erasure until the medium is written anew: a loaded machine may need it, and the receipt says so.
pub async fn written(me: &Caller, scope: &internal::ErasureScope) {
    for _ in 0..60 {
        let state = erase(me, scope).await.expect("repeated")["session.turns"].physical();
        if state == internal::PhysicalState::Gone {
            return;
        }
        assert_eq!(state, internal::PhysicalState::Pending);
    }
    panic!("the medium was never written anew");
}

async fn told(me: &Caller) {
    me.append("s", vec![user("My code is QX-77341-ZK."), turn(pb::Role::Assistant, "Saved qx 77341 zk."), user("Bye.")])
        .await
        .expect("appended");
    me.compress("s", 1).await.expect("compressed");
    me.put_artifact(header("plain"), b"harmless", 100).await.expect("artifact");
}

#[tokio::test]
async fn e03_redis_files_hold_nothing_after_the_rewrite_that_the_receipt_tells_of() {
    let server = RedisServer::start();
    let bed = Bed::redis(&server.url()).await;
    let me = bed.me();
    told(&me).await;
    server.command::<String>(&["SAVE"]);
    assert!(server.disk_holds("QX-77341-ZK"), "append-only file and snapshot have it");
    let scope = internal::ErasureScope { turns: quoted("s", &[1]), texts: texts(&["QX-77341-ZK"]), ..blank(&bed, &me) };
    erase(&me, &scope).await.expect("erased");
    written(&me, &scope).await;
    assert_eq!(find(&me, &scope).await["session.turns"].physical(), internal::PhysicalState::Gone);
    // Files that were replaced are unlinked in the background.
    let free = || (!server.disk_holds("QX-77341-ZK") && !server.disk_holds("qx 77341 zk")).then_some(());
    strata_testkit::poll::blocking(crate::harness::SOON, free).expect("gone from the disk");
    let dump = server.dump_bytes();
    assert!(!dump.is_empty() && server.disk_holds("[erased]"));
    // Nothing without a TTL, the epoch included.
    for key in server.all_keys_with_ttl() {
        assert!(key.ttl.is_some(), "{}", key.key);
    }
}

#[tokio::test]
async fn e03_a_server_that_may_not_be_asked_is_said_to_hold_it_still() {
    let server = RedisServer::start();
    server.command::<()>(&["ACL", "SETUSER", "strata", "on", ">pw", "~*", "+@all", "-@dangerous"]);
    let url = format!("redis://strata:pw@{}", server.addr());
    let bed = Bed::with(SessionStoreConfig::Redis(pool(&url)), "redis", settings(|_| {}), None).await;
    let me = bed.me();
    told(&me).await;
    let scope = scope(&bed, &me, &["QX-77341-ZK"]);
    let rows = erase(&me, &scope).await.expect("erased");
    let row = &rows["session.turns"];
    assert_eq!((row.found, row.removed, row.remaining), (2, 2, 0));
    assert_eq!(row.physical(), internal::PhysicalState::NotPermitted);
    assert!(row.detail.contains("operator") && server.disk_holds("QX-77341-ZK"), "{row:?}");
    server.rewrite_aof();
    strata_testkit::poll::blocking(crate::harness::SOON, || (!server.disk_holds("QX-77341-ZK")).then_some(())).expect("by hand");
}

#[tokio::test]
async fn e03_the_embedded_file_holds_nothing_with_its_log() {
    let bed = Bed::both().await.pop().expect("the embedded bed");
    let me = bed.me();
    told(&me).await;
    let holds = |needle: &str| {
        let mut found = false;
        for entry in std::fs::read_dir(bed.folder().expect("a folder")).expect("readable") {
            let bytes = std::fs::read(entry.expect("an entry").path()).expect("readable");
            found |= bytes.windows(needle.len()).any(|window| window == needle.as_bytes());
        }
        found
    };
    assert!(holds("QX-77341-ZK"));
    let scope = scope(&bed, &me, &["QX-77341-ZK"]);
    erase(&me, &scope).await.expect("erased");
    written(&me, &scope).await;
    assert!(!holds("QX-77341-ZK") && !holds("qx 77341 zk") && holds("[erased]"));
    // An expired session that was not swept yet is no hiding place.
    from_before(&me, &scope)
        .append_turns(pb::AppendTurnsRequest {
            session_id: "short".into(),
            turns: vec![user("It is ZZ-88123-QQ.")],
            ttl: Some(prost_types::Duration { seconds: 1, nanos: 0 }),
            ..Default::default()
        })
        .await
        .expect_err("an older header");
    let me = knowing(&me, &scope);
    me.append_turns(pb::AppendTurnsRequest {
        session_id: "short".into(),
        turns: vec![user("It is ZZ-88123-QQ.")],
        ttl: Some(prost_types::Duration { seconds: 1, nanos: 0 }),
        ..Default::default()
    })
    .await
    .expect("appended");
    bed.clock.advance(Duration::from_secs(5));
    let scope = self::scope(&bed, &me, &["ZZ-88123-QQ"]);
    erase(&me, &scope).await.expect("erased");
    assert!(!holds("ZZ-88123-QQ"));
}

#[tokio::test]
async fn e02_what_is_asked_for_is_checked_and_signed_for() {
    for bed in Bed::both().await {
        let me = bed.me();
        let good = scope(&bed, &me, &["QX-77341-ZK"]);
        for (wrong, reason) in [
            (internal::ErasureScope { erasure_id: "x".into(), ..good.clone() }, Reason::InvalidField),
            (internal::ErasureScope { erase_epoch: 0, ..good.clone() }, Reason::InvalidField),
            (internal::ErasureScope { texts: vec!["abcd".into(); 513], ..good.clone() }, Reason::InvalidField),
            (internal::ErasureScope { keys: texts(&["Not A Key"]), ..good.clone() }, Reason::InvalidField),
            (internal::ErasureScope { user_id: "u2".into(), ..good.clone() }, Reason::OwnerMismatch),
        ] {
            assert_eq!(erase(&me, &wrong).await.expect_err("refused").reason, reason, "{wrong:?}");
        }
        let mut request =
            tonic::Request::new(internal::EraseContentRequest { scope: Some(good.clone()), cursor: "nonsense".into() });
        request.extensions_mut().insert(me.identity.clone());
        let refused = SessionErasureServiceClient::new(me.channel.clone()).erase_content(request).await.expect_err("refused");
        assert_eq!(strata_api::error::fault(&refused).reason, Reason::InvalidField);
        // None of this raised the epoch.
        me.append("s", vec![user("still here")]).await.expect("appended");
    }
}

#[tokio::test]
async fn a170_an_artifact_that_holds_it_between_two_parts_or_in_escapes_is_found() {
    for bed in Bed::both().await {
        let me = bed.me();
        me.append("s", vec![user("look it up")]).await.expect("appended");
        // The first part ends in the middle of it.
        let mut split = vec![b'x'; strata_core::limits::ARTIFACT_PART_BYTES - 14];
        split.extend_from_slice(b" code QX-77341-ZK, and more");
        me.put_artifact(header("split"), &split, 1_000_000).await.expect("artifact");
        let escaped = br#"{"note": "\u7d2b\u91d1\u9999\u6a1f\u516b\u4e03"}"#;
        me.put_artifact(header("escaped"), escaped, 100).await.expect("artifact");
        me.put_artifact(header("QX-77341-ZK"), b"its name", 100).await.expect("artifact");
        me.put_artifact(header("other"), b"plain", 100).await.expect("artifact");
        let scope = scope(&bed, &me, &["QX-77341-ZK", "紫金香樟八七"]);
        let rows = erase(&me, &scope).await.expect("erased");
        assert_eq!(rows["session.artifacts"].removed, 3, "{} {rows:?}", bed.store);
        let me = knowing(&me, &scope);
        for (trace, reason) in
            [("split", Reason::ArtifactGone), ("escaped", Reason::ArtifactGone), ("QX-77341-ZK", Reason::NotFound)]
        {
            assert_eq!(me.get_artifact("s", trace).await.expect_err(trace).reason, reason, "{}", bed.store);
        }
        assert_eq!(me.get_artifact("s", "other").await.expect("kept").1, b"plain");
        assert!(find(&me, &scope).await.values().all(|row| row.found == 0));
        // Its name is free again.
        me.put_artifact(header("split"), b"new bytes", 100).await.expect("another one");
    }
}
