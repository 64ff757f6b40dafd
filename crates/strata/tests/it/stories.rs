//! The main job: the stories come out as told, and the same in every form of the product.

use crate::cluster::{Cluster, example, json_lines, strata};
use serde_json::Value;

const STORIES: [&str; 2] = ["story.en.jsonl", "story.zh.jsonl"];

fn embedded(story: &str) -> Vec<Value> {
    json_lines(&strata(&["replay", &example(story).display().to_string(), "--json"]), 0)
}

fn summary(transcript: &[Value]) -> &Value {
    transcript.last().expect("a transcript ends with its summary")
}

#[test]
fn a104_x01_the_stories_are_told_embedded() {
    for story in STORIES {
        let transcript = embedded(story);
        let summary = summary(&transcript);
        assert_eq!(summary["ok"], true, "{story}: {summary}");
        assert_eq!(summary["unmet"], 0, "{story}: {summary}");
        assert!(summary["met"].as_u64() >= Some(12), "{story}: {summary}");
        assert!(summary["superseded"].as_u64() >= Some(1), "{story}: {summary}");
        assert!(summary["refused"].as_u64() >= Some(2), "{story}: {summary}");
    }
}

#[test]
fn the_same_story_has_the_same_transcript_embedded_in_four_processes_and_on_qdrant() {
    let (redis, qdrant) = (Cluster::four(false), Cluster::four(true));
    for story in STORIES {
        let expected = embedded(story);
        for (form, cluster) in [("four processes on Redis", &redis), ("four processes on Redis and Qdrant", &qdrant)] {
            let transcript = json_lines(&cluster.replay(story, "transcripts"), 0);
            for (expected, got) in expected.iter().zip(&transcript) {
                assert_eq!(expected, got, "{story} on {form}");
            }
            assert_eq!(expected.len(), transcript.len(), "{story} on {form}");
        }
    }
    let double = qdrant.qdrant.as_ref().expect("the Qdrant double");
    assert!(double.calls("Points/upsert") > 0, "vectors went to Qdrant: {:?}", double.all_calls());
    for secret in ["A-100", "Tr0ub4dor", "blue door", "蓝色"] {
        assert!(!double.payloads_hold(secret), "content in a payload of Qdrant");
    }
}

#[test]
fn a_second_replay_with_the_same_run_doubles_nothing() {
    let cluster = Cluster::all_in_one();
    let first = json_lines(&cluster.replay("story.en.jsonl", "twice"), 0);
    let count = |cluster: &Cluster| {
        let list = cluster
            .call("ListMemories", &serde_json::json!({"user_id": "ada", "filter": {"statuses": ["STATUS_ACTIVE", "STATUS_SUPERSEDED", "STATUS_CANDIDATE", "STATUS_DELETED"]}}))
            .expect("a list");
        let turns = cluster.call("ListTurns", &serde_json::json!({"user_id": "ada", "session_id": "monday"})).expect("turns");
        (list["memories"].as_array().map(Vec::len), turns["turns"].as_array().map(Vec::len))
    };
    let before = count(&cluster);
    let second = json_lines(&cluster.replay("story.en.jsonl", "twice"), 0);
    assert_eq!(count(&cluster), before);
    assert_eq!(summary(&first)["turns"], summary(&second)["turns"]);
}
