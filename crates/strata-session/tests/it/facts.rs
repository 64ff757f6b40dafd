//! Facts of a session on both stores: fenced by epoch, named by turn, gone with the session.

use crate::harness::{Answer, Bed, Caller, request_id, user};
use strata_api::internal::v1 as internal;
use strata_api::internal::v1::session_fact_service_client::SessionFactServiceClient;
use strata_api::session::v1 as pb;
use strata_core::{Fault, Reason, limits};

fn fact(key: &str, value: &str, seq: u32) -> pb::SessionFact {
    pb::SessionFact { key: key.into(), value: value.into(), seq, ..Default::default() }
}

async fn put(who: &Caller, facts: Vec<pb::SessionFact>) -> Answer<pb::PutFactsResponse> {
    who.put_facts(pb::PutFactsRequest { session_id: "s".into(), facts, ..Default::default() }).await
}

async fn all(who: &Caller) -> Vec<(String, String, u64, bool)> {
    let answer = who.get_facts(pb::GetFactsRequest { session_id: "s".into(), ..Default::default() }).await.expect("facts");
    answer.facts.into_iter().map(|f| (f.key, f.value, f.epoch, f.overlay)).collect()
}

async fn overlay(who: &Caller, keys: &[&str]) -> Answer<u32> {
    let body = internal::OverlayFactsRequest {
        user_id: who.user.clone(),
        agent_id: who.agent.clone(),
        session_id: "s".into(),
        keys: keys.iter().map(|key| (*key).to_owned()).collect(),
    };
    let mut request = tonic::Request::new(body);
    request.extensions_mut().insert(who.identity.clone());
    let answer = SessionFactServiceClient::new(who.channel.clone()).overlay_facts(request).await;
    answer.map(|a| a.into_inner().known).map_err(|s| strata_api::error::fault(&s))
}

async fn seal(who: &Caller, key: &str) -> Answer<pb::SessionFact> {
    let body = internal::SealFactRequest {
        user_id: who.user.clone(),
        agent_id: who.agent.clone(),
        session_id: "s".into(),
        key: key.into(),
    };
    let mut request = tonic::Request::new(body);
    request.extensions_mut().insert(who.identity.clone());
    let answer = SessionFactServiceClient::new(who.channel.clone()).seal_fact(request).await;
    answer.map(|a| a.into_inner().fact.unwrap_or_default()).map_err(|s| strata_api::error::fault(&s))
}

#[tokio::test]
async fn p05_a_seal_fences_writes_that_are_on_their_way() {
    for bed in Bed::both().await {
        let me = bed.caller(&bed.tenant, "u1", "a1");
        me.append("s", vec![user("The total is 5 EUR."), user("总额是 5 欧元。")]).await.expect("appended");
        put(&me.at(100), vec![fact("a", "5 EUR|\n€", 1), fact("b", "5 欧元", 2)]).await.expect("written");
        let sealed = seal(&me.at(200), "a").await.expect("sealed");
        assert_eq!(
            (sealed.value.as_str(), sealed.seq, sealed.epoch, sealed.overlay),
            ("5 EUR|\n€", 1, 200, false),
            "{}",
            bed.store
        );
        assert!(sealed.update_time.is_some());
        assert_eq!(seal(&me.at(200), "a").await.expect("again"), sealed);
        // A write that was claimed before the seal comes too late; other facts are as they were.
        let late = put(&me.at(100), vec![fact("a", "6 EUR", 1)]).await.expect_err("late");
        assert!(late.reason == Reason::StaleEpoch && late.metadata.contains(&("epoch", "200".into())), "{late:?}");
        let facts = all(&me).await;
        assert_eq!(facts, [("a".into(), "5 EUR|\n€".into(), 200, false), ("b".into(), "5 欧元".into(), 100, false)]);
        assert_eq!(seal(&me.at(50), "b").await.expect_err("below").reason, Reason::StaleEpoch);
        assert_eq!(seal(&me.at(200), "c").await.expect_err("not there").reason, Reason::NotFound);
        assert_eq!(seal(&me, "b").await.expect_err("no right to write").reason, Reason::UnsignedCall);
        overlay(&me.at(1), &["b"]).await.expect("overlaid");
        assert_eq!(seal(&me.at(300), "b").await.expect_err("an overlay").reason, Reason::FactOwnedByOtherLayer);
        for other in [bed.caller(&bed.tenant, "u2", "a1").at(300), bed.caller(&bed.tenant, "u1", "a2").at(300)] {
            assert_eq!(seal(&other, "a").await.expect_err("foreign").reason, Reason::NotFound, "{}", bed.store);
        }
        me.end("s").await.expect("ended");
        assert_eq!(seal(&me.at(300), "a").await.expect_err("gone").reason, Reason::NotFound);
    }
}

#[tokio::test]
async fn a40_precise_values_are_fields_that_name_their_turn() {
    for bed in Bed::both().await {
        let me = bed.me();
        me.append("s", (0..20).map(|n| user(&format!("Invoice INV-{n} is over {n}.50 EUR."))).collect()).await.expect("appended");
        let stored = put(&me.at(7), vec![fact("invoice.number", "INV-3", 4), fact("invoice.total", "3.50 EUR|€", 4)]).await;
        let stored = stored.expect("written").facts;
        assert!(stored.iter().all(|f| f.epoch == 7 && !f.overlay && f.update_time.is_some()));
        me.compress("s", 2).await.expect("compressed");
        let expected = [("invoice.number", "INV-3"), ("invoice.total", "3.50 EUR|€")];
        let expected: Vec<_> = expected.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned(), 7, false)).collect();
        assert_eq!(all(&me).await, expected, "{}", bed.store);
        // By range: facts of those turns, and what the index of the summaries holds (rule S3).
        let range = |from_seq, to_seq, page_size, page_token| pb::GetFactsRequest {
            session_id: "s".into(),
            from_seq,
            to_seq,
            page_size,
            page_token,
            ..Default::default()
        };
        let found = me.get_facts(range(4, 5, 0, String::new())).await.expect("by range");
        assert_eq!(found.facts.len(), 2);
        let values: Vec<_> = found.values.iter().map(|v| (v.value.as_str(), v.seq)).collect();
        assert!(values.contains(&("INV-3", 4)) && values.contains(&("INV-4", 5)), "{values:?}");
        assert!(values.iter().all(|(_, seq)| (4..=5).contains(seq)));
        assert_eq!(found.covered_seq, 18);
        assert_eq!(me.get_facts(range(5, 5, 0, String::new())).await.expect("by range").facts, []);
        let whole = me.get_facts(range(1, 0, 1000, String::new())).await.expect("whole");
        let (mut facts, mut values, mut token) = (Vec::new(), Vec::new(), String::new());
        loop {
            let page = me.get_facts(range(1, 0, 3, token)).await.expect("page");
            assert!(page.facts.len() + page.values.len() <= 3);
            facts.extend(page.facts);
            values.extend(page.values);
            token = page.next_page_token;
            if token.is_empty() {
                break;
            }
            let foreign = me.get_facts(range(2, 0, 3, token.clone())).await;
            assert_eq!(foreign.expect_err("other filter").reason, Reason::InvalidPageToken);
        }
        assert_eq!((facts, values), (whole.facts, whole.values));
        let named = pb::GetFactsRequest {
            session_id: "s".into(),
            keys: vec!["invoice.total".into(), "not.there".into()],
            ..Default::default()
        };
        assert_eq!(me.get_facts(named).await.expect("named").facts.len(), 1);
        // Nothing outlives the session.
        me.end("s").await.expect("ended");
        let gone = me.get_facts(pb::GetFactsRequest { session_id: "s".into(), ..Default::default() }).await;
        assert_eq!(gone.expect_err("gone").reason, Reason::NotFound);
        assert_eq!(put(&me.at(9), vec![fact("a", "1", 1)]).await.expect_err("ended").reason, Reason::SessionEnded);
    }
}

#[tokio::test]
async fn p03_a_lower_epoch_is_refused_and_an_overlay_is_read_only() {
    for bed in Bed::both().await {
        let me = bed.me();
        me.append("s", vec![user("The total is 5 EUR.")]).await.expect("appended");
        put(&me.at(100), vec![fact("a", "1", 1), fact("b", "1", 1)]).await.expect("written");
        let stale = put(&me.at(99), vec![fact("c", "2", 1), fact("a", "2", 1)]).await.expect_err("stale");
        assert_eq!(stale.reason, Reason::StaleEpoch);
        assert!(stale.metadata.contains(&("key", "a".into())) && stale.metadata.contains(&("epoch", "100".into())), "{stale:?}");
        put(&me.at(100), vec![fact("a", "2", 1)]).await.expect("the same claim writes again");
        assert_eq!(overlay(&me.at(1), &["a", "zz"]).await.expect("overlaid"), 1);
        // However high the claim: a ledger that lost its marks may have granted it.
        for epoch in [99, 100, 101] {
            let refused = put(&me.at(epoch), vec![fact("c", "1", 1), fact("a", "3", 1)]).await.expect_err("read-only");
            assert_eq!(refused.reason, Reason::FactOwnedByOtherLayer, "{epoch}");
            assert!(refused.metadata.contains(&("key", "a".into())), "{refused:?}");
        }
        let facts = all(&me).await;
        assert_eq!(facts, [("a".into(), "2".into(), 100, true), ("b".into(), "1".into(), 100, false)], "{}", bed.store);
        put(&me.at(101), vec![fact("b", "2", 1)]).await.expect("the other key is the session's still");
        // Without the right to write nothing is written.
        assert_eq!(put(&me, vec![fact("a", "4", 1)]).await.expect_err("no grant").reason, Reason::UnsignedCall);
    }
}

#[tokio::test]
async fn c087_c058_facts_have_limits_and_repetitions_one_effect() {
    for bed in Bed::both().await {
        let me = bed.me().at(5);
        me.append("s", vec![user("one"), user("two")]).await.expect("appended");
        let field = |answer: Result<pb::PutFactsResponse, Fault>| {
            let fault = answer.expect_err("refused");
            fault.fields.first().map(|f| f.field.clone()).unwrap_or_else(|| format!("{fault:?}"))
        };
        assert_eq!(field(put(&me, vec![]).await), "facts");
        assert_eq!(field(put(&me, vec![fact("A b", "1", 1)]).await), "facts[0].key");
        assert_eq!(field(put(&me, vec![fact("a", "1", 1), fact("a", "2", 1)]).await), "facts[1].key");
        assert_eq!(field(put(&me, vec![fact("a", " \u{200b}", 1)]).await), "facts[0].value");
        assert_eq!(field(put(&me, vec![fact("a", "1\0", 1)]).await), "facts[0].value");
        assert_eq!(field(put(&me, vec![fact("a", &"辣".repeat(171), 1)]).await), "facts[0].value");
        assert_eq!(field(put(&me, vec![fact("a", "1", 0)]).await), "facts[0].seq");
        assert_eq!(field(put(&me, vec![fact("a", "1", 3)]).await), "facts");
        let many = |from: usize, count: usize| (from..from + count).map(|n| fact(&format!("k{n}"), "ok", 1)).collect::<Vec<_>>();
        assert_eq!(put(&me, many(0, 65)).await.expect_err("many").reason, Reason::LimitReached);
        for from in (0..limits::SESSION_FACTS).step_by(64) {
            put(&me, many(from, 64)).await.expect("within");
        }
        assert_eq!(put(&me, many(1_000, 1)).await.expect_err("full").reason, Reason::LimitReached);
        put(&me, vec![fact("k0", &"辣".repeat(170), 2)]).await.expect("a known key");
        let body = pb::PutFactsRequest {
            session_id: "s".into(),
            facts: vec![fact("k1", "first", 1)],
            request_id: request_id(),
            ..Default::default()
        };
        let first = me.put_facts(body.clone()).await.expect("first");
        put(&me.at(6), vec![fact("k1", "second", 2)]).await.expect("later");
        let again = me.at(8).put_facts(body.clone()).await.expect("the first answer");
        assert_eq!(again, first, "{}", bed.store);
        let other = pb::PutFactsRequest { facts: vec![fact("k1", "other", 1)], ..body };
        assert_eq!(me.put_facts(other).await.expect_err("other body").reason, Reason::RequestIdReused);
        let k1 = pb::GetFactsRequest { session_id: "s".into(), keys: vec!["k1".into()], ..Default::default() };
        assert_eq!(me.get_facts(k1).await.expect("fact").facts[0].value, "second");
    }
}

#[tokio::test]
async fn c034_facts_of_another_agent_user_or_tenant_are_not_there() {
    for bed in Bed::both().await {
        let owner = bed.caller(&bed.tenant, "u1", "a1").at(3);
        owner.append("s", vec![user("one")]).await.expect("appended");
        put(&owner, vec![fact("a", "1", 1)]).await.expect("written");
        for other in [
            bed.caller(&bed.tenant, "u1", "a2").at(9),
            bed.caller(&bed.tenant, "u2", "a1").at(9),
            bed.caller(&format!("{}x", bed.tenant), "u1", "a1").at(9),
        ] {
            assert_eq!(put(&other, vec![fact("a", "2", 1)]).await.expect_err("foreign").reason, Reason::NotFound);
            let read = other.get_facts(pb::GetFactsRequest { session_id: "s".into(), ..Default::default() }).await;
            assert_eq!(read.expect_err("foreign").reason, Reason::NotFound, "{}", bed.store);
        }
        assert_eq!(all(&owner).await, [("a".into(), "1".into(), 3, false)]);
    }
}
