//! Forgetting over the running product: a lost erasure log and its copy in Redis, one job per user at a time, and what a
//! correction leaves in the next context.

use crate::cluster::{Cluster, strata};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use strata_api::admin::v1 as admin;
use strata_api::admin::v1::admin_service_client::AdminServiceClient;
use strata_api::error;
use strata_core::Reason;
use strata_runtime::channel::{self, EndpointConfig};
use strata_testkit::RedisServer;
use strata_testkit::poll::blocking;

const USER: &str = "ada";
const PATIENCE: Duration = Duration::from_secs(60);

fn call(cluster: &Cluster, rpc: &str, mut request: Value) -> Value {
    request["user_id"] = json!(USER);
    cluster.call(rpc, &request).unwrap_or_else(|refused| panic!("{rpc} {request}: {refused}"))
}

/// The turn's number.
fn said(cluster: &Cluster, session: &str, text: &str) -> u64 {
    let turns = json!([{"role": "ROLE_USER", "text": text}]);
    call(cluster, "AppendTurns", json!({"session_id": session, "turns": turns}))["seqs"][0].as_u64().expect("a number")
}

fn states(session: &str, seq: u64, text: &str, key: &str, value: &str) -> Value {
    json!({"kind": "KIND_FACT", "content": text, "key": key, "value": {"text": value}, "source": "SOURCE_USER_STATEMENT",
           "source_quote": text, "trigger": "TRIGGER_USER_REQUEST", "source_ref": {"turn": {"session_id": session, "seq": seq}}})
}

fn remembered(cluster: &Cluster, session: &str, text: &str, key: &str, value: &str) -> String {
    let seq = said(cluster, session, text);
    let answer = call(cluster, "Remember", json!({"statement": states(session, seq, text, key, value)}));
    answer.pointer("/result/memory/memory_id").and_then(Value::as_str).unwrap_or_else(|| panic!("{answer}")).to_owned()
}

fn erased(cluster: &Cluster, memory: &str) -> String {
    let answer = call(cluster, "EraseMemories", json!({"memory_ids": [memory], "reason": "the user asked for it"}));
    let erasure = answer.pointer("/erasure/erasure_id").and_then(Value::as_str).expect("begun").to_owned();
    let closed = blocking(PATIENCE, || {
        let receipt = call(cluster, "GetErasure", json!({"erasure_id": erasure}))["erasure"].clone();
        (receipt["state"] != "ERASURE_STATE_RUNNING").then_some(receipt)
    });
    assert!(closed.is_ok(), "it ends");
    erasure
}

/// `strata restore` beside the cluster's files, with its Redis.
fn restored_because(cluster: &Cluster) -> String {
    let audit = strata(&["ctl", "--server", &cluster.url(), "audit", "--action", "RESTORED"]);
    String::from_utf8_lossy(&audit.stdout).into_owned()
}

#[test]
fn e8_a_lost_log_comes_back_from_its_copy_and_with_both_lost_only_an_order_restores() {
    let folder = tempfile::tempdir().expect("a folder");
    let env = [("STRATA_STORAGE__BACKUP_DIR", folder.path().display().to_string())];
    let mut cluster = Cluster::quick_with(Some(RedisServer::start()), None, &env);
    let memory = remembered(&cluster, "s", "my locker code is KX-77310", "locker.code", "KX-77310");
    let kept = remembered(&cluster, "s", "I always sit in hall 7", "seat.hall", "7");
    let made = cluster.call("Backup", &json!({})).expect("a backup");
    let file = PathBuf::from(made["path"].as_str().expect("a path"));
    let erasure = erased(&cluster, &memory);
    assert_eq!(cluster.terminate("all", Duration::from_secs(25)), Some(0));
    let log = cluster.folder.path().join("all/erasures");

    // The volume is lost: the copy is replayed.
    std::fs::remove_dir_all(&log).expect("lost");
    let (done, told) = cluster.restore(&file, &[]);
    assert!(done && told.contains("erased again"), "{told}");
    cluster.start("all");
    let list = call(&cluster, "ListMemories", json!({})).to_string();
    assert!(list.contains(&kept) && !list.contains("KX-77310"), "{list}");
    assert_eq!(call(&cluster, "VerifyErasure", json!({"erasure_id": erasure, "texts": ["KX-77310"]}))["absent"], json!(true));
    assert!(restored_because(&cluster).contains("copy"), "{}", restored_because(&cluster));
    let written = std::fs::read_to_string(log.join("erasures.jsonl")).expect("written again");
    assert!(written.contains(&erasure) && !written.contains("KX-77310"), "the log is there again, without content");
    let copy: Vec<String> = cluster.redis.as_ref().expect("Redis").command(&["HVALS", "strata:erasures"]);
    assert!(!copy.is_empty() && copy.iter().all(|line| !line.contains("KX-77310")), "nor has the copy any");
    assert_eq!(cluster.terminate("all", Duration::from_secs(25)), Some(0));

    // An entry that this deployment did not sign erases nothing and replaces no log.
    std::fs::remove_dir_all(&log).expect("lost again");
    let forged = copy[0].replacen(&erasure, "00000000-0000-4000-8000-000000000009", 1);
    let redis = cluster.redis.as_ref().expect("Redis");
    let _: u64 = redis.command(&["HSET", "strata:erasures", "00000000-0000-4000-8000-000000000009:asked", &forged]);
    let (done, told) = cluster.restore(&file, &[]);
    assert!(!done && told.contains("did not sign"), "{told}");

    // Redis is lost too.
    let _: String = redis.command(&["FLUSHALL"]);
    let (done, told) = cluster.restore(&file, &[]);
    assert!(!done && told.contains("--accept-lost-erasures") && told.contains("gone too"), "{told}");
    redis.stop_process();
    let (done, told) = cluster.restore(&file, &[]);
    assert!(!done && told.contains("cannot be read"), "{told}");
    redis.cont();
    let (done, told) = cluster.restore(&file, &["--accept-lost-erasures"]);
    assert!(done, "{told}");
    cluster.start("all");
    assert!(restored_because(&cluster).contains("accepted"), "{}", restored_because(&cluster));
    assert!(
        call(&cluster, "ListMemories", json!({})).to_string().contains("KX-77310"),
        "what was erased is back: that is the price"
    );
}

#[test]
fn e4_an_erasure_waits_for_the_copy_of_its_log_and_a_redis_that_lost_its_memory_gets_it_again() {
    let mut cluster = Cluster::quick_with(Some(RedisServer::start()), None, &[]);
    let memory = remembered(&cluster, "s", "my locker code is KX-77310", "locker.code", "KX-77310");
    cluster.redis.as_ref().expect("Redis").stop_process();
    let answer = call(&cluster, "EraseMemories", json!({"memory_ids": [memory], "reason": "the user asked for it"}));
    let erasure = answer.pointer("/erasure/erasure_id").and_then(Value::as_str).expect("begun").to_owned();
    let pending = blocking(PATIENCE, || {
        let pending = call(&cluster, "GetErasure", json!({"erasure_id": erasure})).pointer("/erasure/pending")?.to_string();
        pending.contains("the copy of the erasure log").then_some(())
    });
    assert!(pending.is_ok(), "it says what it waits for");
    assert!(!call(&cluster, "ListMemories", json!({})).to_string().contains("KX-77310"), "out of every answer meanwhile");
    let redis = cluster.redis.as_ref().expect("Redis");
    redis.cont();
    let closed = blocking(PATIENCE, || {
        let receipt = call(&cluster, "GetErasure", json!({"erasure_id": erasure}))["erasure"].clone();
        (receipt["state"] != "ERASURE_STATE_RUNNING").then_some(())
    });
    assert!(closed.is_ok());
    let copied = || redis.command::<u64>(&["HLEN", "strata:erasures"]) == 2;
    assert!(blocking(PATIENCE, || copied().then_some(())).is_ok(), "asked for and closed");
    let _: String = redis.command(&["FLUSHALL"]);
    cluster.kill_and_restart("all");
    let redis = cluster.redis.as_ref().expect("Redis");
    let copied = || redis.command::<u64>(&["HLEN", "strata:erasures"]) == 2;
    assert!(blocking(PATIENCE, || copied().then_some(())).is_ok(), "from the file");
}

#[test]
fn x05_a_context_right_after_a_correction_has_the_new_value_alone() {
    for (slow, rounds) in [(false, 6), (true, 2)] {
        let cluster = Cluster::quick(true, &[]);
        if slow {
            // The index hears of the correction long after the context was asked for.
            cluster.qdrant.as_ref().expect("a double").delay(Duration::from_millis(400));
        }
        for (key, first, then, asks) in [
            ("work.cost_centre", "My cost centre is {}.", "No, my cost centre is {}.", "Which cost centre is mine?"),
            ("parking.lot", "我总是停在{}车位。", "不对，我总是停在{}车位。", "我停在哪个车位？"),
        ] {
            let value = |round: u32| format!("B-{}", 40 + round);
            remembered(&cluster, "talk", &first.replace("{}", &value(0)), key, &value(0));
            for round in 1..=rounds {
                let text = then.replace("{}", &value(round));
                let seq = said(&cluster, "talk", &text);
                let mut statement = states("talk", seq, &text, key, &value(round));
                statement["source"] = json!("SOURCE_USER_CORRECTION");
                // Once read before, so that there is something to be stale.
                let ask = json!({"session_id": "another", "input": asks, "window_tokens": 4000});
                call(&cluster, "AssembleContext", ask.clone());
                call(&cluster, "Remember", json!({"statement": statement}));
                let context = call(&cluster, "AssembleContext", ask).to_string();
                assert!(context.contains(&value(round)), "{asks} round {round}: {context}");
                assert!(!context.contains(&value(round - 1)), "{asks} round {round}: the earlier value: {context}");
            }
        }
    }
}

#[test]
fn k0_a_value_that_a_newer_one_may_replace_says_so_wherever_it_is_read() {
    let cluster = Cluster::all_in_one();
    for (n, (key, value, old, new)) in [
        ("sport.gym", "FitZone", "My gym is FitZone.", "My gym is called IronHouse."),
        ("home.rent", "三千元", "我的房租是每月三千元。", "我每月付房租三千五百元。"),
    ]
    .into_iter()
    .enumerate()
    {
        let session = format!("gym{n}");
        let seq = said(&cluster, &session, old);
        let mut statement = states(&session, seq, old, key, value);
        statement["protected"] = json!(true);
        let first = call(&cluster, "Remember", json!({"statement": statement}));
        let older = first.pointer("/result/memory/memory_id").expect("stored").clone();
        let seq = said(&cluster, &session, new);
        let mut statement = states(&session, seq, new, "", "");
        statement.as_object_mut().expect("an object").remove("value");
        let second = call(&cluster, "Remember", json!({"statement": statement}));
        let newer = second["result"]["memory"]["memory_id"].clone();

        let found = call(&cluster, "LookupMemory", json!({"key": key}))["items"][0].clone();
        assert_eq!(
            (&found["memory"]["may_be_replaced_by"], &found["labels"]),
            (&newer, &json!(["POSSIBLY SUPERSEDED"])),
            "{old}"
        );
        let read = call(&cluster, "GetMemory", json!({"memory_id": older}));
        assert_eq!(read["memory"]["may_be_replaced_by"], newer, "{old}");
        // A resident of every context, whatever it is about.
        let ask = json!({"session_id": "another", "input": "What time is it?", "window_tokens": 4000});
        let context = call(&cluster, "AssembleContext", ask).to_string();
        let (before, _) = context.split_once(old).unwrap_or_else(|| panic!("{context}"));
        assert!(before.rsplit("- [").next().is_some_and(|label| label.contains("POSSIBLY SUPERSEDED")), "{context}");
        // Once the newer one is gone, it is certain again.
        call(&cluster, "ForgetMemories", json!({"memory_ids": [newer], "reason": "said by mistake"}));
        let read = call(&cluster, "GetMemory", json!({"memory_id": older}));
        assert!(read["memory"]["may_be_replaced_by"].as_str().is_none_or(str::is_empty), "{read}");
    }
}

fn lesson(n: u32) -> Value {
    let content = format!("The meter in hall {n} showed {n}77 litres");
    json!({"kind": "KIND_EVENT", "content": content, "source": "SOURCE_OBSERVATION", "source_quote": content, "topic": "meter",
           "importance": 1, "trigger": "TRIGGER_TASK_END", "source_ref": {"task_id": format!("task-{n}")}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c051_one_consolidation_and_one_promotion_of_a_user_at_a_time() {
    // One step a transaction and a rest after each: the second call meets the first one under way.
    let env = [
        ("STRATA_POLICY__FORGETTING__SCHEDULE__BATCH", "1".to_owned()),
        ("STRATA_POLICY__FORGETTING__SCHEDULE__REST", "10".to_owned()),
    ];
    let tasks = strata_runtime::TaskGroup::new();
    let cluster = tasks.blocking("thirty events", move || {
        let cluster = Cluster::quick(false, &env);
        for n in 0..30 {
            call(&cluster, "Remember", json!({"statement": lesson(n)}));
        }
        cluster
    });
    let cluster = std::sync::Arc::new(cluster.await.expect("thirty events"));
    let channel = channel::connect(&EndpointConfig::new(cluster.url())).expect("a channel");
    let run = || admin::RunMaintenanceRequest { user_id: USER.into(), ..Default::default() };
    let mut first = AdminServiceClient::new(channel.clone()).run_maintenance(run()).await.expect("begun").into_inner();
    let begun = first.message().await.expect("told").expect("a message");
    assert!(begun.steps.is_empty() && !begun.run_id.is_empty(), "its id comes at once: {begun:?}");
    let second = AdminServiceClient::new(channel.clone()).run_maintenance(run()).await;
    let refused = match second {
        Err(status) => status,
        Ok(stream) => stream.into_inner().message().await.expect_err("one at a time"),
    };
    let fault = error::fault(&refused);
    assert_eq!(fault.reason, Reason::Overloaded, "{fault:?}");
    assert!(fault.metadata.contains(&("run_id", begun.run_id.clone())), "the one that is under way: {fault:?}");
    while first.message().await.expect("to its end").is_some() {}
    let mut after = AdminServiceClient::new(channel).run_maintenance(run()).await.expect("begun").into_inner();
    let again = after.message().await.expect("told").expect("a message");
    assert_ne!(again.run_id, begun.run_id);
    while let Some(message) = after.message().await.expect("to its end") {
        assert!(message.steps.iter().all(|step| step.action() == admin::MaintenanceAction::Keep), "{message:?}");
    }

    // Two promotions of one fact at once, worded differently each time: one record says it.
    let promoted = tasks.blocking("promotions", {
        let cluster = std::sync::Arc::clone(&cluster);
        move || {
            let summaries = call(&cluster, "ListMemories", json!({"filter": {"kinds": ["KIND_SUMMARY"]}, "page_size": 100}));
            assert_eq!(summaries["memories"].as_array().map(Vec::len), Some(1), "{summaries}");
            let text = "From now on my cost centre is A-100.";
            let seq = said(&cluster, "s1", text);
            let goal = json!({"sentence": "Book it.", "acceptance": "It is booked."});
            call(&cluster, "CreateTask", json!({"task_id": "t", "session_id": "s1", "goal": goal}));
            let wordings = [
                "My cost centre is A-100.",
                "From now on my cost centre is A-100.",
                "my cost centre is A-100",
                "My cost centre is A-100 from now on.",
            ];
            let answers: Vec<Result<Value, String>> = std::thread::scope(|scope| {
                let cluster = &cluster;
                let calls: Vec<_> = wordings
                    .iter()
                    .enumerate()
                    .map(|(at, content)| {
                        scope.spawn(move || {
                            let request = json!({"user_id": USER, "promotion_id": format!("00000000-0000-4000-8000-00000000000{at}"),
                                "source": {"turn_quote": {"session_id": "s1", "seq": seq, "quote": text}},
                                "statement": {"kind": "KIND_FACT", "content": content, "trigger": "TRIGGER_DECISION_POINT"}});
                            cluster.call("Promote", &request)
                        })
                    })
                    .collect();
                calls.into_iter().map(|call| call.join().expect("answered")).collect()
            });
            let records = call(&cluster, "LookupMemory", json!({"key": "work.cost_centre"}));
            (answers, records)
        }
    });
    let (answers, records) = promoted.await.expect("promoted");
    let items = records["items"].as_array().expect("items");
    assert_eq!(items.len(), 1, "one result: {records} of {answers:?}");
    assert_eq!(items[0].pointer("/memory/status").and_then(Value::as_str), Some("STATUS_ACTIVE"), "{records}");
    for answer in &answers {
        let answer = answer.as_ref().map_or_else(Clone::clone, Value::to_string);
        // Joined as evidence, or told whose promotion is under way.
        assert!(answer.contains("COMMITTED") || answer.contains("FACT_SEALED") || answer.contains("promotion_id"), "{answer}");
    }
}

#[test]
fn e2_words_are_erased_of_a_user_of_whom_long_term_memory_knows_nothing() {
    let cluster = Cluster::all_in_one();
    for (n, word) in ["Kestrelq", "林晓彤女士"].into_iter().enumerate() {
        let (session, task) = (format!("s{n}"), format!("t{n}"));
        said(&cluster, &session, &format!("{word} starts on Monday"));
        let goal = json!({"sentence": "Prepare the first day.", "acceptance": "It is prepared."});
        call(&cluster, "CreateTask", json!({"task_id": task, "goal": goal}));
        let fact = json!({"key": "who", "value": word, "source": "user"});
        call(&cluster, "strata.working.v1.WorkingMemoryService/PutFacts", json!({"task_id": task, "facts": [fact]}));
        let asked = json!({"mentions": [word], "reason": "the user asked for it"});
        let erasure = call(&cluster, "EraseMemories", asked)["erasure"]["erasure_id"].clone();
        let closed = blocking(PATIENCE, || {
            let receipt = call(&cluster, "GetErasure", json!({"erasure_id": erasure}))["erasure"].clone();
            (receipt["state"] != "ERASURE_STATE_RUNNING").then_some(receipt)
        });
        let receipt = closed.expect("it ends");
        let left =
            [call(&cluster, "GetWindow", json!({"session_id": session})), call(&cluster, "GetTask", json!({"task_id": task}))];
        assert!(left.iter().all(|answer| !answer.to_string().contains(word)), "{left:?} {receipt}");
    }
}
