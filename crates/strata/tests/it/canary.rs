//! Words that are planted along every path of the product, erased, and looked for byte by byte: in the files of every store, in
//! the index, in the logs, in a later backup. And what an erasure must survive: kill -9 at any moment, a store that is down, an
//! older backup.

use crate::cluster::{Cluster, VECTOR_DIMS, strata};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use strata_api::session::v1 as session;
use strata_api::session::v1::session_memory_service_client::SessionMemoryServiceClient;
use strata_runtime::channel::{self, EndpointConfig};
use strata_testkit::poll::blocking;
use strata_testkit::{RedisServer, WireDouble};

const USER: &str = "ada";
/// A protected value, and its parts as they might be written elsewhere.
const CODE: &str = "KX-773108456-QZ";
const CODE_ECHO: &str = "kx 773108456 qz";
/// Words without any protected value.
const WORDS: &str = "purple walrus lantern";
const NEEDLES: [&str; 5] = [CODE, CODE_ECHO, "773108456", WORDS, "walrus"];
const PATIENCE: Duration = Duration::from_secs(60);

/// Every file below a folder that holds the bytes of a needle.
fn holding(folder: &Path, needle: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            if entry.is_dir() {
                folders.push(entry);
                continue;
            }
            // A file may go while it is looked at.
            let bytes = std::fs::read(&entry).unwrap_or_default();
            if bytes.windows(needle.len()).any(|window| window == needle.as_bytes()) {
                found.push(entry);
            }
        }
    }
    found
}

fn id(n: u32) -> String {
    format!("00000000-0000-4000-8000-{n:012}")
}

fn vector(n: usize) -> Vec<f32> {
    let mut vector = vec![0.1; VECTOR_DIMS];
    vector[n % VECTOR_DIMS] = 1.0;
    vector
}

/// What stands in the product of `words`, by the path it took.
struct Planted {
    cluster: Cluster,
    records: Vec<String>,
}

impl Planted {
    fn call(&self, rpc: &str, mut request: Value) -> Value {
        request["user_id"] = json!(USER);
        // A busy machine: the same request again is safe.
        let answered = blocking(PATIENCE, || match self.cluster.call(rpc, &request) {
            Err(late) if late.contains("DEADLINE_EXCEEDED") => None,
            answer => Some(answer),
        });
        let answer = answered.unwrap_or_else(|_| panic!("{rpc} is not answered in time"));
        answer.unwrap_or_else(|refused| panic!("{rpc} {request}: {refused}"))
    }

    fn backup(&self) -> Value {
        self.cluster.call("Backup", &json!({})).expect("a backup")
    }

    fn said(&self, session: &str, role: &str, text: &str) -> u32 {
        let turns = json!([{"role": role, "text": text}]);
        let answer = self.call("AppendTurns", json!({"session_id": session, "turns": turns}));
        answer["seqs"][0].as_u64().expect("a number") as u32
    }

    fn remember(&mut self, rpc: &str, n: u32, session: &str, seq: u32, quote: &str, mut statement: Value) -> String {
        let defaults = json!({
            "kind": "KIND_FACT", "source": "SOURCE_USER_STATEMENT", "source_quote": quote, "trigger": "TRIGGER_USER_REQUEST",
            "source_ref": {"turn": {"session_id": session, "seq": seq}}, "vector": vector(n as usize),
        });
        for (name, value) in defaults.as_object().expect("an object") {
            if statement.get(name).is_none() {
                statement[name] = value.clone();
            }
        }
        let answer = self.call(rpc, json!({"statement": statement, "request_id": id(n)}));
        let found = answer.pointer("/result/memory/memory_id").and_then(Value::as_str);
        let found = found.unwrap_or_else(|| panic!("{rpc} stored nothing: {answer}")).to_owned();
        self.records.push(found.clone());
        found
    }

    /// Plants along every path there is.
    fn plant(&mut self) {
        let code = format!("my locker code is {CODE}");
        let words = format!("I keep a {WORDS} at home");
        let (a, b) = (self.said("live", "ROLE_USER", &code), self.said("live", "ROLE_USER", &words));
        self.said("live", "ROLE_ASSISTANT", &format!("Noted: {CODE_ECHO}, and the {WORDS}."));
        self.said("live", "ROLE_TOOL", &format!("{{\"locker\": \"{CODE}\"}}"));
        self.said("live", "ROLE_USER", "What is the weather like in Oslo?");
        let first = self.remember(
            "Remember",
            1,
            "live",
            a,
            &code,
            json!({"content": code, "key": "locker.code", "value": {"text": CODE}, "topic": format!("locker {CODE}"),
                   "tags": [WORDS], "metadata": {"note": CODE}}),
        );
        let second = self.remember("Remember", 2, "live", b, &words, json!({"content": words}));
        // A second statement: supersedes the first one; a soft forget, with its reason in the history; a candidate; a rejected one.
        let newer = format!("no, my locker code is {CODE}-2");
        let c = self.said("live", "ROLE_USER", &newer);
        let update = json!({"memory_id": first, "statement": {"kind": "KIND_FACT", "content": format!("my locker code is {CODE}-2"),
            "key": "locker.code", "value": {"text": format!("{CODE}-2")}, "source": "SOURCE_USER_CORRECTION", "source_quote": newer,
            "trigger": "TRIGGER_USER_REQUEST", "source_ref": {"turn": {"session_id": "live", "seq": c}}, "vector": vector(3)}});
        let updated = self.call("UpdateMemory", update);
        self.records.push(updated.pointer("/result/memory/memory_id").and_then(Value::as_str).expect("a record").to_owned());
        self.call("ForgetMemories", json!({"memory_ids": [second], "reason": format!("the {WORDS} is sold")}));
        let guess = json!({"source": "SOURCE_MODEL_INFERENCE", "content": format!("collects every {WORDS}"), "trigger": "TRIGGER_SESSION_END"});
        self.remember("Propose", 4, "live", b, &words, guess.clone());
        let mut other = guess;
        other["content"] = json!(format!("paints a {WORDS} each year"));
        let rejected = self.remember("Propose", 5, "live", b, &words, other);
        self.call("RejectCandidate", json!({"memory_id": rejected}));
        // What stands beside records.
        let origin = |quote: &str, seq: u32| {
            json!({"source": "SOURCE_USER_STATEMENT", "source_quote": quote, "trigger": "TRIGGER_USER_REQUEST",
                   "source_ref": {"turn": {"session_id": "live", "seq": seq}}})
        };
        let lantern = self.call("PutEntity", json!({"type": "thing", "name": WORDS, "provenance": origin(&words, b)}));
        let locker = self.call("PutEntity", json!({"type": "thing", "name": CODE, "provenance": origin(&code, a)}));
        let end = |entity: &Value| entity.pointer("/entity/entity_id").cloned().expect("an entity");
        let lies = format!("the {WORDS} lies in {CODE}");
        let e = self.said("live", "ROLE_USER", &lies);
        let link =
            json!({"from_id": end(&lantern), "to_id": end(&locker), "relation": "lies_in", "provenance": origin(&lies, e)});
        self.call("LinkEntities", link);
        let open = format!("to open the locker type {CODE}");
        let d = self.said("live", "ROLE_USER", &open);
        self.call(
            "PutSkill",
            json!({"name": "open the locker", "triggers": ["open the locker"], "steps": [format!("type {CODE}")],
                   "provenance": origin(&open, d)}),
        );
        // Session memory: fact, anchor, summary, artifact.
        let fact = json!([{"key": "locker.hint", "value": CODE, "seq": a}]);
        self.call("strata.session.v1.SessionMemoryService/PutFacts", json!({"session_id": "live", "facts": fact}));
        self.call("AnchorTurns", json!({"session_id": "live", "seqs": [a]}));
        self.call("CompressSession", json!({"session_id": "live"}));
        self.call("GetWindow", json!({"session_id": "live"}));
        // Working memory: goal, fact, todo, digest.
        let goal = json!({"sentence": format!("Open the locker {CODE}"), "acceptance": format!("the {WORDS} is out")});
        self.call("CreateTask", json!({"task_id": "t", "session_id": "live", "goal": goal, "request_id": id(20)}));
        let fact = json!([{"key": "task.locker", "value": CODE, "source": "checker"}]);
        self.call("strata.working.v1.WorkingMemoryService/PutFacts", json!({"task_id": "t", "facts": fact}));
        let todo = json!([{"id": "1", "step": format!("carry the {WORDS}"), "state": "TODO_STATE_PENDING"}]);
        self.call("UpdateTodos", json!({"task_id": "t", "todos": todo}));
        let digest = json!({"tool": "locker", "sentence": format!("The locker {CODE} is closed."), "trace_id": "trace-1"});
        self.call("AppendDigest", json!({"task_id": "t", "digest": digest}));
        // Promotions: of a turn, of a fact; their entries stay in the journal.
        let promoted = json!({"promotion_id": id(30),
            "source": {"turn_quote": {"session_id": "live", "seq": b, "quote": words}},
            "statement": {"kind": "KIND_FACT", "content": format!("The user keeps a {WORDS}."), "trigger": "TRIGGER_DECISION_POINT"}});
        self.call("Promote", promoted);
        let promoted = json!({"promotion_id": id(31), "source": {"task_fact": {"task_id": "t", "key": "task.locker"}},
            "statement": {"kind": "KIND_FACT", "content": format!("The locker code is {CODE}."), "trigger": "TRIGGER_TASK_END"}});
        self.call("Promote", promoted);
        // A session that has ended: an episode with its turns.
        self.said("ended", "ROLE_USER", &format!("I decided to give the {WORDS} to Bolun, in locker {CODE}, on 3 May."));
        self.said("ended", "ROLE_ASSISTANT", &format!("The {WORDS} goes to Bolun from {CODE_ECHO}."));
        let fact = json!([{"key": "locker.ended", "value": CODE, "seq": 1}]);
        self.call("strata.session.v1.SessionMemoryService/PutFacts", json!({"session_id": "ended", "facts": fact}));
        let statement = json!({"kind": "KIND_FACT", "content": format!("The code is {CODE}."), "trigger": "TRIGGER_SESSION_END"});
        let promotions = json!([{"promotion_id": id(32), "key": "locker.ended", "statement": statement}]);
        self.call("EndSession", json!({"session_id": "ended", "require_archive": true, "promotions": promotions}));
        // Reads that leave something behind.
        self.call("Recall", json!({"query": format!("locker code {CODE}"), "vector": vector(1)}));
        self.call(
            "AssembleContext",
            json!({"session_id": "live", "task_id": "t", "input": "where is the lantern", "window_tokens": 4000}),
        );
    }

    async fn artifact(&self) {
        let channel = channel::connect(&EndpointConfig::new(self.cluster.url())).expect("a channel");
        let part = session::PutArtifactRequest {
            user_id: USER.into(),
            session_id: "live".into(),
            trace_id: "trace-1".into(),
            task_id: "t".into(),
            content_type: "text/plain".into(),
            data: format!("the locker {CODE} holds the {WORDS}").into_bytes(),
            ..Default::default()
        };
        SessionMemoryServiceClient::new(channel).put_artifact(futures::stream::iter([part])).await.expect("stored");
    }

    fn data(&self) -> PathBuf {
        self.cluster.folder.path().join("all")
    }

    fn erase(&self, request: Value) -> String {
        let mut request = request;
        request["reason"] = json!("the user asked for it");
        let answer = self.call("EraseMemories", request);
        answer.pointer("/erasure/erasure_id").and_then(Value::as_str).unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    fn receipt(&self, erasure: &str) -> Value {
        self.call("GetErasure", json!({"erasure_id": erasure}))["erasure"].clone()
    }

    /// The receipt once every store has let go.
    fn closed(&self, erasure: &str) -> Value {
        let done = blocking(PATIENCE, || {
            let receipt = self.receipt(erasure);
            (receipt["state"] != "ERASURE_STATE_RUNNING").then_some(receipt)
        });
        done.unwrap_or_else(|_| panic!("it does not end: {:#}", self.receipt(erasure)))
    }

    fn absent(&self, erasure: &str) {
        let found = self.call("VerifyErasure", json!({"erasure_id": erasure, "texts": [CODE, WORDS]}));
        assert_eq!(found["absent"], json!(true), "{found:#}");
    }

    /// Nowhere in the files of the product, its index, its Redis after a rewrite, its logs.
    fn nowhere(&mut self) {
        for needle in NEEDLES {
            let found = blocking(PATIENCE, || {
                let found = holding(&self.data(), needle);
                found.is_empty().then_some(())
            });
            assert!(found.is_ok(), "{needle}: {:?}", holding(&self.data(), needle));
            if let Some(redis) = &self.cluster.redis {
                redis.rewrite_aof();
                let dump = redis.dump_bytes();
                assert!(!dump.windows(needle.len()).any(|w| w == needle.as_bytes()), "{needle} is in the dump of Redis");
                assert!(!redis.disk_holds(needle), "{needle} is in the files of Redis");
            }
            if let Some(double) = &self.cluster.qdrant {
                assert!(!double.payloads_hold(needle), "{needle} is in the index");
            }
            assert!(!self.cluster.printed(needle), "{needle} is in the log");
        }
    }
}

fn planted(redis: bool, env: &[(&'static str, String)]) -> Planted {
    let (server, double) = if redis { (Some(RedisServer::start()), Some(WireDouble::start())) } else { (None, None) };
    let mut planted = Planted { cluster: Cluster::quick_with(server, double, env), records: Vec::new() };
    planted.plant();
    tokio::runtime::Runtime::new().expect("a runtime").block_on(planted.artifact());
    for needle in [CODE, WORDS] {
        assert!(!holding(&planted.data(), needle).is_empty(), "{needle} was planted and is found");
    }
    planted
}

fn counts(receipt: &Value) -> BTreeMap<String, (u64, u64)> {
    let number = |of: &Value, name: &str| of[name].as_u64().or_else(|| of[name].as_str()?.parse().ok()).unwrap_or_default();
    let stores = receipt["stores"].as_array().expect("stores");
    let counts = stores
        .iter()
        .map(|store| (store["store"].as_str().expect("a name").to_owned(), (number(store, "found"), number(store, "remaining"))));
    counts.collect()
}

/// Everything of the user goes; the receipt names every store that held it.
fn everything(redis: bool) {
    let backups = tempfile::tempdir().expect("a folder");
    let mut planted = planted(redis, &[("STRATA_STORAGE__BACKUP_DIR", backups.path().display().to_string())]);
    planted.backup();
    assert!(!holding(backups.path(), CODE).is_empty(), "the backup from before holds it, and the receipt says so");
    let erasure = planted.erase(json!({"everything": true}));
    let receipt = planted.closed(&erasure);
    planted.absent(&erasure);
    planted.nowhere();
    let counts = counts(&receipt);
    for (store, (_, remaining)) in counts.iter().filter(|(store, _)| *store != "backups") {
        assert_eq!(*remaining, 0, "{store}: {receipt:#}");
    }
    for store in [
        "longterm.records",
        "longterm.history",
        "longterm.evidence",
        "longterm.terms",
        "longterm.index",
        "longterm.entities",
        "longterm.relations",
        "longterm.skills",
        "longterm.episodes",
        "longterm.archived_turns",
        "longterm.request_ids",
        "longterm.recalls",
        "ledger.promotions",
        "ledger.claims",
        "session.sessions",
        "working.boards",
        "backups",
    ] {
        assert!(counts.get(store).is_some_and(|(found, _)| *found > 0), "{store} held it: {receipt:#}");
    }
    std::fs::read_dir(backups.path()).expect("a folder").for_each(|entry| {
        std::fs::remove_file(entry.expect("an entry").path()).expect("deleted");
    });
    // A backup is named by its second: one of the erasure's own second counts as older.
    let moment = strata_runtime::ports::Stopwatch::start();
    let _ = blocking(PATIENCE, || (moment.elapsed() >= Duration::from_millis(1_100)).then_some(()));
    planted.backup();
    for needle in NEEDLES {
        assert!(holding(backups.path(), needle).is_empty(), "{needle} is in a later backup");
    }
    let late = planted.cluster.call("Remember", &json!({"user_id": USER, "request_id": id(1), "statement": {"content": "x"}}));
    assert!(late.expect_err("a hedged retry").contains("FORGOTTEN"), "what it wrote was erased");
    let gone = blocking(PATIENCE, || {
        let receipt = planted.receipt(&erasure);
        let waiting: Vec<&Value> = receipt["stores"].as_array()?.iter().filter(|s| s["medium"] != "MEDIUM_GONE").collect();
        // Only a server of vectors says nothing about when it has forgotten.
        waiting.iter().all(|store| redis && store["store"] == "longterm.index").then_some(receipt)
    });
    assert!(gone.is_ok(), "{:#}", planted.receipt(&erasure));
}

#[test]
fn a170_a206_c019_c027_a_canary_along_every_path_is_nowhere_once_everything_is_erased() {
    everything(false);
}

#[test]
fn a170_c026_a_canary_along_every_path_is_nowhere_with_redis_and_an_index_server() {
    everything(true);
}

#[test]
fn c022_x03_by_words_only_what_holds_them_goes_and_the_rest_of_the_talk_stays() {
    let mut planted = planted(false, &[]);
    let erasure = planted.erase(json!({"mentions": [CODE, WORDS]}));
    planted.closed(&erasure);
    planted.absent(&erasure);
    planted.nowhere();
    let window = planted.call("GetWindow", json!({"session_id": "live"})).to_string();
    assert!(window.contains("weather like in Oslo"), "{window}");
    let promotion = planted.call("GetPromotion", json!({"promotion_id": id(30)}));
    assert!(promotion["promotion"]["state"].is_string(), "it is still known by its id: {promotion}");
}

#[test]
fn e4_with_a_store_down_an_erasure_is_stated_and_ends_when_the_store_is_back() {
    let mut planted = planted(true, &[]);
    planted.cluster.redis.as_ref().expect("Redis").stop_process();
    let erasure = planted.erase(json!({"everything": true}));
    let receipt = planted.receipt(&erasure);
    assert_eq!(receipt["state"], "ERASURE_STATE_RUNNING", "{receipt:#}");
    let pending = receipt["pending"].to_string();
    assert!(pending.contains("session"), "{receipt:#}");
    let list = planted.call("ListMemories", json!({}));
    assert!(list["memories"].as_array().is_none_or(Vec::is_empty), "long-term memory is rid of it: {list}");
    planted.cluster.redis.as_ref().expect("Redis").cont();
    planted.closed(&erasure);
    planted.absent(&erasure);
    planted.nowhere();
}

#[test]
fn e8_an_older_backup_does_not_bring_it_back_and_a_lost_log_is_not_passed_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut planted = planted(false, &[("STRATA_STORAGE__BACKUP_DIR", folder.path().display().to_string())]);
    let made = planted.backup();
    let file = PathBuf::from(made["path"].as_str().expect("a path"));
    let erasure = planted.erase(json!({"mentions": [CODE, WORDS]}));
    planted.closed(&erasure);
    assert_eq!(planted.cluster.terminate("all", Duration::from_secs(25)), Some(0));

    let log = planted.data().join("erasures");
    let hidden = folder.path().join("hidden");
    std::fs::rename(&log, &hidden).expect("lost");
    let (done, said) = planted.cluster.restore(&file, &[]);
    assert!(!done && said.contains("--accept-lost-erasures"), "{said}");
    std::fs::rename(&hidden, &log).expect("found again");

    let (done, said) = planted.cluster.restore(&file, &[]);
    assert!(done && said.contains("erased again"), "{said}");
    for kept in std::fs::read_dir(planted.data()).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        if kept.to_string_lossy().contains("replaced-") {
            std::fs::remove_file(kept).expect("deleted");
        }
    }
    for needle in NEEDLES {
        assert!(holding(&planted.data(), needle).is_empty(), "{needle}: {:?}", holding(&planted.data(), needle));
    }
    planted.cluster.start("all");
    planted.absent(&erasure);
    planted.nowhere();
    let audit = strata(&["ctl", "--server", &planted.cluster.url(), "audit", "--action", "RESTORED"]);
    assert_eq!(String::from_utf8_lossy(&audit.stdout).lines().count(), 1);
    let chain = strata(&["audit", "verify", "--data-dir", &planted.data().display().to_string()]);
    assert!(chain.status.success(), "{}", String::from_utf8_lossy(&chain.stdout));

    assert_eq!(planted.cluster.terminate("all", Duration::from_secs(25)), Some(0));
    std::fs::remove_dir_all(&log).expect("lost for good");
    let (done, said) = planted.cluster.restore(&file, &["--accept-lost-erasures"]);
    assert!(done, "{said}");
    planted.cluster.start("all");
    let audit = strata(&["ctl", "--server", &planted.cluster.url(), "audit", "--action", "RESTORED"]);
    let entries = String::from_utf8_lossy(&audit.stdout).into_owned();
    assert!(entries.contains("accepted"), "{entries}");
}

#[test]
fn a173_kill_9_at_random_moments_of_an_erasure_it_ends_after_the_restart_once() {
    let rounds: u32 = std::env::var("STRATA_CRASH_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(8);
    let mut cluster = Cluster::quick(false, &[]);
    for round in 0..rounds {
        let mut planted = Planted { cluster, records: Vec::new() };
        let code = format!("my locker code is {CODE}");
        let session = format!("s{round}");
        let turn = planted.said(&session, "ROLE_USER", &code);
        planted.said(&session, "ROLE_ASSISTANT", &format!("Noted: {CODE_ECHO}."));
        let record = {
            let defaults = json!({"content": code});
            planted.remember("Remember", 100 + round, &session, turn, &code, defaults)
        };
        let url = planted.cluster.url();
        let request =
            json!({"user_id": USER, "memory_ids": [record], "reason": "the user asked for it", "request_id": id(200 + round)});
        let (asked, server) = (request.clone(), url.clone());
        let caller = std::thread::spawn(move || {
            // It may be cut off at any point, or never begin.
            strata(&["ctl", "--server", &server, "call", "EraseMemories", &asked.to_string()])
        });
        // Another moment of the erasure in each round.
        let moment = strata_runtime::ports::Stopwatch::start();
        let after = Duration::from_millis(u64::from(20 + round * 37 % 400));
        let _ = blocking(PATIENCE, || (moment.elapsed() >= after).then_some(()));
        planted.cluster.kill_and_restart("all");
        caller.join().expect("no panic");
        let answer = planted.cluster.call("EraseMemories", &request).expect("asked again under its id");
        let erasure = answer.pointer("/erasure/erasure_id").and_then(Value::as_str).map(str::to_owned);
        let erasure = erasure.unwrap_or_else(|| panic!("round {round}: {answer}"));
        let receipt = planted.closed(&erasure);
        let records = counts(&receipt).get("longterm.records").map(|(found, _)| *found);
        assert_eq!(records, Some(1), "round {round}, once: {receipt:#}");
        planted.nowhere();
        cluster = planted.cluster;
    }
    let audit = strata(&["ctl", "--server", &cluster.url(), "audit", "--action", "ERASE_CLOSED"]);
    assert_eq!(String::from_utf8_lossy(&audit.stdout).lines().count(), rounds as usize, "each is closed once");
    let chain = strata(&["ctl", "--server", &cluster.url(), "audit", "--verify"]);
    assert!(chain.status.success());
}

#[test]
fn e2_a_key_that_tells_something_stands_in_no_decision_and_the_verification_looks_there() {
    let mut planted = Planted { cluster: Cluster::quick_with(None, None, &[]), records: Vec::new() };
    let elsewhere = |planted: &Planted, key: &str| {
        // A board keeps the names of what was erased, so that a late write does not bring it back.
        holding(&planted.data(), key).iter().any(|file| file.file_name().is_some_and(|name| name != "working.sqlite"))
    };
    for (n, key) in ["diagnosis.kestrelq", "diagnosis.quillback"].into_iter().enumerate() {
        let (session, task) = (format!("s{n}"), format!("t{n}"));
        let goal = json!({"sentence": "Prepare the first day.", "acceptance": "It is prepared."});
        planted.call("CreateTask", json!({"task_id": task, "goal": goal}));
        let fact = json!({"key": key, "value": CODE, "source": "user"});
        planted.call("strata.working.v1.WorkingMemoryService/PutFacts", json!({"task_id": task, "facts": [fact]}));
        let quote = format!("from now on my code is {CODE}");
        let seq = planted.said(&session, "ROLE_USER", &quote);
        let statement = json!({"content": quote, "key": key, "value": {"text": CODE}});
        let memory = planted.remember("Remember", if n == 0 { 700 } else { 701 }, &session, seq, &quote, statement);
        let told = blocking(PATIENCE, || elsewhere(&planted, key).then_some(()));
        assert!(told.is_ok(), "it was somewhere");
        let erasure = planted.erase(json!({"memory_ids": [memory]}));
        planted.closed(&erasure);
        let found = planted.call("VerifyErasure", json!({"erasure_id": erasure, "texts": [CODE]}));
        let stores = found["stores"].as_array().expect("stores");
        let looked = stores.iter().any(|store| store["store"] == json!("ledger.decisions"));
        assert!(looked && found["absent"] == json!(true), "{found:#}");
        let gone = blocking(PATIENCE, || (!elsewhere(&planted, key)).then_some(()));
        assert!(gone.is_ok(), "{key}: {:?}", holding(&planted.data(), key));
    }
}
