//! A session from its first turn to its episode, through the router of a real server.

use crate::cluster::{Cluster, READY};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use strata_testkit::http::Reply;
use strata_testkit::{HttpDouble, eventually};

const USER: &str = "ada";

fn append(cluster: &Cluster, session: &str, turns: &[(&str, &str)]) {
    let turns: Vec<Value> = turns.iter().map(|(role, text)| json!({"role": role, "text": text})).collect();
    cluster.call("AppendTurns", &json!({"user_id": USER, "session_id": session, "turns": turns})).expect("appended");
}

fn end(cluster: &Cluster, session: &str, request_id: &str) -> Value {
    let request = json!({"user_id": USER, "session_id": session, "request_id": request_id, "require_archive": true});
    cluster.call("EndSession", &request).expect("ended")
}

fn search(cluster: &Cluster, user: &str, query: &str) -> Vec<Value> {
    let found = cluster.call("SearchTurns", &json!({"user_id": user, "query": query, "k": 10})).expect("searched");
    found["hits"].as_array().cloned().unwrap_or_default()
}

fn text(hit: &Value) -> &str {
    hit["turn"]["text"].as_str().expect("a text")
}

#[test]
fn a86_a_session_ends_as_an_episode_whose_turns_are_found_beside_live_ones() {
    let mut cluster = Cluster::quick(false, &[]);
    let (user, agent, tool) = ("ROLE_USER", "ROLE_ASSISTANT", "ROLE_TOOL");
    append(
        &cluster,
        "monday",
        &[
            (user, "From now on I only take the night train to Vienna, budget 120 EUR."),
            (agent, "Noted: the night train to Vienna."),
            (tool, "{\"fare\": \"vienna internal\"}"),
            (user, "My password is hunter2-QUARTZ, use it for the train booking."),
        ],
    );
    append(&cluster, "zh", &[(user, "我决定以后只坐夜车去青岛，预算四百元。"), (agent, "好的。")]);
    append(&cluster, "live", &[(user, "The pizza was late."), (user, "The night train to Prague is full.")]);
    let first = end(&cluster, "monday", "00000000-0000-4000-8000-000000000001");
    assert_eq!(first["turns"], 4);
    assert_eq!(first["archived_turns"], 3);
    let findings = first["findings"].to_string();
    assert!(findings.contains("MASKED") && findings.contains("S14"), "{findings}");
    let episode = first["episode_id"].as_str().expect("an episode").to_owned();
    end(&cluster, "zh", "00000000-0000-4000-8000-000000000002");

    let hits = search(&cluster, USER, "night train to Vienna");
    let found = hits.iter().take(2).find(|hit| text(hit).contains("Vienna, budget")).unwrap_or_else(|| panic!("{hits:?}"));
    assert_eq!((found["archived"].as_bool(), found["episode_id"].as_str()), (Some(true), Some(episode.as_str())));
    assert!(
        hits.iter().any(|hit| text(hit).contains("Prague") && hit["archived"] != true),
        "live hits stand beside it: {hits:?}"
    );
    let scores: Vec<f64> = hits.iter().filter_map(|hit| hit["score"].as_f64()).collect();
    assert!(scores.windows(2).all(|pair| pair[0] >= pair[1]), "one order: {scores:?}");
    assert!(hits.iter().all(|hit| hit.get("explain").is_none_or(|e| e.as_object().is_none_or(serde_json::Map::is_empty))));
    assert!(text(&search(&cluster, USER, "night train to Prague")[0]).contains("Prague"));
    assert!(text(&search(&cluster, USER, "青岛 夜车")[0]).contains("青岛"));
    assert!(search(&cluster, "bob", "night train").is_empty());
    assert!(search(&cluster, USER, "vienna internal").iter().all(|hit| !text(hit).contains("fare")), "no tool's words");
    let masked = search(&cluster, USER, "train booking password");
    assert!(masked.iter().any(|hit| text(hit).contains("[secret]")) && !format!("{masked:?}").contains("hunter2"), "{masked:?}");
    let named = cluster.call("SearchTurns", &json!({"user_id": USER, "session_id": "monday", "query": "Vienna"})).expect("ended");
    assert!(!named["hits"].as_array().expect("hits").is_empty(), "an ended session is searched by its name: {named}");

    let list = cluster.call("ListEpisodes", &json!({"user_id": USER})).expect("a list");
    let episodes = list["episodes"].as_array().expect("episodes");
    assert_eq!(episodes.iter().map(|e| e["session_id"].as_str()).collect::<Vec<_>>(), [Some("zh"), Some("monday")]);
    assert!(episodes[1]["summary"].to_string().contains("120 EUR") && !list.to_string().contains("hunter2"), "{list}");
    assert!(episodes[0]["summary"].to_string().contains("四百元"), "{list}");
    // An episode is no fact.
    let memories = cluster.call("ListMemories", &json!({"user_id": USER})).expect("a list");
    assert!(memories["memories"].as_array().is_none_or(Vec::is_empty), "{memories}");

    // The same request again, and a kill in between: one episode, the same answer.
    assert_eq!(end(&cluster, "monday", "00000000-0000-4000-8000-000000000001"), first);
    cluster.kill_and_restart("all");
    let again = end(&cluster, "monday", "00000000-0000-4000-8000-000000000001");
    assert_eq!((&again["episode_id"], &again["turns"]), (&first["episode_id"], &first["turns"]));
    let list = cluster.call("ListEpisodes", &json!({"user_id": USER})).expect("a list");
    assert_eq!(list["episodes"].as_array().map(Vec::len), Some(2));
    assert!(search(&cluster, USER, "night train to Vienna").iter().take(2).any(|hit| text(hit).contains("Vienna, budget")));
}

/// A session with one durable statement and its fact, ended with the fact to promote.
fn ended_with(cluster: &Cluster, session: &str, words: &str, value: &str, content: &str, n: u32) -> Value {
    append(cluster, session, &[("ROLE_USER", words)]);
    let facts = json!([{"key": "agreed.hours", "value": value, "seq": 1}]);
    let put = json!({"user_id": USER, "session_id": session, "facts": facts});
    cluster.call("strata.session.v1.SessionMemoryService/PutFacts", &put).expect("a fact of the session");
    let statement = json!({"kind": "KIND_PREFERENCE", "key": "work.hours", "content": content, "trigger": "TRIGGER_SESSION_END"});
    let request = json!({"user_id": USER, "session_id": session, "request_id": format!("00000000-0000-4000-8000-{n:012}"),
        "promotions": [{"promotion_id": promotion(n), "key": "agreed.hours", "statement": statement}]});
    let ended = cluster.call("EndSession", &request).expect("ended");
    assert!(ended["already_ended"] != true, "{ended}");
    let turns = cluster.call("GetTurns", &json!({"user_id": USER, "session_id": session, "from_seq": 1, "to_seq": 1}));
    assert!(turns.is_err(), "the session is gone: {turns:?}");
    ended
}

fn promotion(n: u32) -> String {
    format!("00000000-0000-4000-9000-{n:012}")
}

fn in_force(cluster: &Cluster) -> String {
    cluster.call("LookupMemory", &json!({"user_id": USER, "key": "work.hours"})).expect("looked up").to_string()
}

/// Embedded stores, and four processes over Redis.
#[tokio::test]
async fn a138_a139_a140_facts_of_a_session_outlive_it_in_two_languages() {
    outlives(&Cluster::quick(false, &[]));
    let mut four = Cluster::four_to_start();
    for role in ["working", "session", "longterm", "router"] {
        four.start(role);
    }
    outlives(&four);
    // Long-term memory dies: the session ends, and what it leaves is promoted when long-term memory is back.
    four.kill("longterm");
    let words = "From now on my working hours are 8:00 to 16:00.";
    let later = ended_with(&four, "later", words, "8:00 to 16:00", words, 5);
    assert_eq!(later["promotions"][0]["state"], "DEFERRED", "{later}");
    four.start("longterm");
    let asked = json!({"user_id": USER, "promotion_id": promotion(5)});
    eventually(READY, async || {
        let now = four.call("GetPromotion", &asked).expect("a promotion");
        now["promotion"]["state"] == "PROMOTION_STATE_COMMITTED"
    })
    .await;
    let found = in_force(&four);
    assert!(found.contains("8:00 to 16:00") && found.contains("\"session_id\":\"later\""), "{found}");
}

fn outlives(cluster: &Cluster) {
    // The user's own durable words pass the gate.
    let words = "From now on my working hours are 9:00 to 17:00.";
    let en = ended_with(cluster, "en", words, "9:00 to 17:00", words, 1);
    assert_eq!(
        (en["promotions"][0]["state"].as_str(), en["promotions"][0]["key"].as_str()),
        (Some("COMMITTED"), Some("agreed.hours")),
        "{en}"
    );
    let found = in_force(cluster);
    assert!(found.contains("9:00 to 17:00") && found.contains("\"session_id\":\"en\""), "{found}");
    let zh = ended_with(cluster, "zh", "以后我的工作时间是10:00到18:00。", "10:00到18:00", "以后我的工作时间是10:00到18:00。", 2);
    assert_eq!(zh["promotions"][0]["state"], "COMMITTED", "{zh}");
    let found = in_force(cluster);
    assert!(found.contains("10:00到18:00") && !found.contains("17:00"), "the newer one stands: {found}");
    // A text that cannot be read alone is refused, with the rule; what nobody said so is an inference.
    let refused = ended_with(cluster, "vague", "From now on use that one.", "that one", "Use that one.", 3);
    assert_eq!(refused["promotions"][0]["state"], "REFUSED", "{refused}");
    assert!(refused["promotions"][0]["findings"].to_string().contains("\"G7\""), "{refused}");
    let inferred =
        ended_with(cluster, "inferred", "I like to start early.", "7:00 to 15:00", "The user works from 7:00 to 15:00.", 4);
    assert_eq!(inferred["promotions"][0]["state"], "QUEUED", "{inferred}");
    assert!(in_force(cluster).contains("10:00到18:00"));
}

const TRAVEL: [[&str; 8]; 2] = [
    [
        "I want to take the night train from Berlin to Vienna next Friday.",
        "The night train from Berlin to Vienna leaves at 18:54 and arrives at 07:00.",
        "How much does a bed in the sleeping car of that train cost?",
        "A bed in the sleeping car of the night train costs 129 EUR.",
        "Does the train to Vienna stop in Prague or in Dresden on the way?",
        "The night train stops in Dresden and in Prague before it reaches Vienna.",
        "Then book the train to Vienna for two passengers, lower beds please.",
        "I have reserved two lower beds on the night train to Vienna.",
    ],
    [
        "我想坐下周五从北京到上海的夜间火车。",
        "从北京到上海的夜间火车晚上七点出发，早上七点到达。",
        "那趟火车的软卧车票要多少钱一张？",
        "从北京到上海的火车软卧车票是五百二十元一张。",
        "去上海的火车中途会在南京站停车吗？",
        "夜间火车会在济南站和南京站停车，然后到上海。",
        "那就订两张去上海的火车软卧车票，要下铺。",
        "已经为您预订了两张去上海的火车下铺车票。",
    ],
];
const BREAD: [[&str; 3]; 2] = [
    [
        "My sourdough bread is always too dense, what am I doing wrong with the flour and yeast?",
        "Knead the dough longer and let the yeast rise twice before you bake the bread in the oven.",
        "Should I add more salt and olive oil to the bread dough before baking?",
    ],
    [
        "我烤的面包总是太硬，面粉和酵母的比例有什么问题？",
        "面团要多揉一会儿，让酵母发酵两次，然后再放进烤箱烤面包。",
        "烤面包之前要不要在面团里多加一点盐和橄榄油？",
    ],
];

fn topic_end(cluster: &Cluster, session: &str) -> u64 {
    let state = cluster.call("GetSession", &json!({"user_id": USER, "session_id": session})).expect("a session");
    state["topic_end_seq"].as_u64().unwrap_or(0)
}

/// First and last turn of the episodes of a session, the newest first.
fn ranges(cluster: &Cluster, session: &str) -> Vec<(u64, u64)> {
    let list = cluster.call("ListEpisodes", &json!({"user_id": USER, "session_id": session})).expect("a list");
    let number = |episode: &Value, name: &str| episode[name].as_u64().unwrap_or(0);
    let all = list["episodes"].as_array().cloned().unwrap_or_default();
    all.iter().map(|episode| (number(episode, "from_seq"), number(episode, "to_seq"))).collect()
}

/// Embedded stores and Redis; the role that is killed in between.
#[tokio::test]
async fn a43_a_topic_that_ends_is_an_episode_and_no_turn_is_archived_twice() {
    topics(Cluster::all_in_one(), &["all"]).await;
    topics(Cluster::four(false), &["session", "router"]).await;
}

async fn topics(mut cluster: Cluster, killed: &[&'static str]) {
    let roles = ["ROLE_USER", "ROLE_ASSISTANT"];
    for (language, (travel, bread)) in ["en", "zh"].into_iter().zip(TRAVEL.iter().zip(&BREAD)) {
        let say = |cluster: &Cluster, session: &str, texts: &[&str]| {
            let turns: Vec<(&str, &str)> = (0..).zip(texts).map(|(n, text)| (roles[n % 2], *text)).collect();
            append(cluster, session, &turns);
        };
        // A dialogue without a change: nothing ends before the session does.
        let plain = format!("plain-{language}");
        say(&cluster, &plain, travel);
        say(&cluster, &plain, &travel[..2]);
        // One with a change, told to the router by the append after it.
        let both = format!("both-{language}");
        say(&cluster, &both, travel);
        say(&cluster, &both, &bread[..2]);
        eventually(READY, async || topic_end(&cluster, &both) == 8).await;
        say(&cluster, &both, &bread[2..]);
        eventually(READY, async || ranges(&cluster, &both) == [(1, 8)]).await;
        let window = cluster.call("GetWindow", &json!({"user_id": USER, "session_id": both})).expect("a window");
        let shown: Vec<u64> = window["turns"].as_array().expect("turns").iter().filter_map(|turn| turn["seq"].as_u64()).collect();
        assert_eq!(shown, [9, 10, 11]);
        // One whose change nobody told: the end of the session closes the topic first. A kill in between changes nothing.
        let untold = format!("untold-{language}");
        say(&cluster, &untold, travel);
        say(&cluster, &untold, &bread[..2]);
        eventually(READY, async || topic_end(&cluster, &untold) == 8).await;
        for role in killed {
            cluster.kill_and_restart(role);
        }
        assert_eq!((topic_end(&cluster, &untold), topic_end(&cluster, &plain)), (8, 0));

        for (n, session) in [(1, &plain), (2, &both), (3, &untold)] {
            let ended = end(
                &cluster,
                session,
                &format!("00000000-0000-4000-8000-{:012}", n + 10 * language.len() as u64 + u64::from(language == "zh") * 100),
            );
            assert!(!ended["findings"].to_string().contains("NOT_ARCHIVED"), "{ended}");
        }
        assert_eq!(ranges(&cluster, &plain), [(1, 10)]);
        assert_eq!(ranges(&cluster, &both), [(9, 11), (1, 8)]);
        assert_eq!(ranges(&cluster, &untold), [(9, 10), (1, 8)]);
        for session in [&both, &untold] {
            let asked = json!({"user_id": USER, "session_id": session, "query": travel[3], "k": 50});
            let found = cluster.call("SearchTurns", &asked).expect("searched");
            let hits = found["hits"].as_array().expect("hits");
            assert_eq!((hits[0]["turn"]["seq"].as_u64(), hits[0]["archived"].as_bool()), (Some(4), Some(true)), "{found}");
            let mut seqs: Vec<u64> = hits.iter().filter_map(|hit| hit["turn"]["seq"].as_u64()).collect();
            seqs.sort_unstable();
            let all = seqs.len();
            seqs.dedup();
            assert_eq!(seqs.len(), all, "every turn once: {found}");
        }
    }
}

/// A model that copies the turns it is shown, a sentence a turn; while `down` it answers with a failure.
fn copying_model(down: Arc<AtomicBool>) -> HttpDouble {
    HttpDouble::start(move |_, body| {
        if down.load(Ordering::Relaxed) {
            return Reply::Answer("503 Service Unavailable".into(), Vec::new());
        }
        let asked: Value = serde_json::from_str(body).expect("JSON");
        let turns: Vec<Value> = serde_json::from_str(asked["messages"][1]["content"].as_str().expect("turns")).expect("JSON");
        let sentences: Vec<Value> = turns.iter().map(|t| json!({"text": t["text"], "turns": [t["turn"]]})).collect();
        let said = json!({"sentences": sentences}).to_string();
        Reply::ok(json!({"choices": [{"message": {"role": "assistant", "content": said}}]}).to_string())
    })
}

#[tokio::test]
async fn c108_the_model_of_a_deployment_summarises_and_where_it_fails_the_rules_do() {
    let down = Arc::new(AtomicBool::new(true));
    let model = copying_model(Arc::clone(&down));
    let env = [("STRATA_SUMMARISER__URL", model.base()), ("STRATA_SUMMARISER__MODEL", "m".to_owned())];
    let cluster = Cluster::quick(false, &env);
    for (session, turns) in ["en", "zh"].into_iter().zip(&TRAVEL) {
        down.store(true, Ordering::Relaxed);
        let say = |texts: &[&str]| append(&cluster, session, &texts.iter().map(|text| ("ROLE_USER", *text)).collect::<Vec<_>>());
        let compress = |required: bool| {
            let request = json!({"user_id": USER, "session_id": session, "keep_turns": 1, "require_model": required});
            cluster.call("CompressSession", &request)
        };
        let made_by = || {
            let state = cluster.call("GetSession", &json!({"user_id": USER, "session_id": session})).expect("a session");
            let of = |summary: &Value| summary["made_by"].as_str().map(str::to_owned);
            state["summaries"].as_array().map(|all| all.iter().filter_map(of).collect::<Vec<_>>()).unwrap_or_default()
        };
        say(&turns[..3]);
        assert!(compress(true).expect_err("down").contains("STORE_UNAVAILABLE"));
        assert_eq!(made_by(), Vec::<String>::new(), "nothing was changed");
        assert_eq!(compress(false).expect("by rule")["summary"]["made_by"], "rules");
        down.store(false, Ordering::Relaxed);
        say(&turns[3..6]);
        assert_eq!(compress(true).expect("by the model")["summary"]["made_by"], "model");
        // The range that the rules made is asked for again with each look at the session.
        eventually(READY, async || compress(false).is_ok() && made_by() == ["model", "model"]).await;
    }
}
