//! A session from its first turn to its episode, through the router of a real server.

use crate::cluster::Cluster;
use serde_json::{Value, json};

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
