//! Maintenance of a running server: killed in the middle of a run, and over the command line.

use crate::cluster::{Cluster, caller_vectors, strata};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use strata_api::admin::v1 as admin;
use strata_api::admin::v1::admin_service_client::AdminServiceClient;
use strata_api::longterm::v1 as pb;
use strata_api::longterm::v1::long_term_memory_service_client::LongTermMemoryServiceClient;
use strata_runtime::channel::{self, EndpointConfig, RpcChannel};
use strata_testkit::http::{HttpDouble, Reply};

/// Events of each of two users on one topic: more than one summary holds.
const EVENTS: u32 = 48;

fn event(n: u32) -> pb::Statement {
    let content = format!("The meter in hall {n} showed {n}77 litres");
    pb::Statement {
        kind: pb::Kind::Event.into(),
        source_quote: content.clone(),
        content,
        source: pb::Source::Observation.into(),
        source_ref: Some(pb::SourceRef { kind: Some(pb::source_ref::Kind::TaskId(format!("task-{n}"))) }),
        trigger: pb::Trigger::TaskEnd.into(),
        topic: "meter".into(),
        importance: 1,
        ..Default::default()
    }
}

async fn all(channel: &RpcChannel, user: &str) -> Vec<pb::Memory> {
    let statuses = [pb::Status::Active, pb::Status::Archived];
    let filter = pb::RecallFilter { statuses: statuses.map(i32::from).to_vec(), ..Default::default() };
    let request = pb::ListMemoriesRequest { user_id: user.into(), filter: Some(filter), page_size: 1_000, ..Default::default() };
    LongTermMemoryServiceClient::new(channel.clone()).list_memories(request).await.expect("listed").into_inner().memories
}

/// Runs it to its end, or until the server is gone.
async fn run(channel: &RpcChannel) -> Result<u64, tonic::Status> {
    let mut stream =
        AdminServiceClient::new(channel.clone()).run_maintenance(admin::RunMaintenanceRequest::default()).await?.into_inner();
    let mut done = 0;
    while let Some(answer) = stream.message().await? {
        done += answer.steps.iter().filter(|step| step.state() == admin::MaintenanceState::Done).count() as u64;
    }
    Ok(done)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c129_a_run_killed_at_any_point_is_finished_by_the_next_once() {
    // One step a transaction and a long rest: a kill meets a run under way.
    let env = [
        ("STRATA_POLICY__FORGETTING__SCHEDULE__BATCH", "1".to_owned()),
        ("STRATA_POLICY__FORGETTING__SCHEDULE__REST", "10".to_owned()),
    ];
    let mut cluster = Cluster::quick(false, &env);
    let mut channel = channel::connect(&EndpointConfig::new(cluster.url())).expect("a channel");
    for user in ["u1", "u2"] {
        for n in 0..EVENTS {
            let request = pb::RememberRequest { user_id: user.into(), statement: Some(event(n)), ..Default::default() };
            let result = LongTermMemoryServiceClient::new(channel.clone()).remember(request).await.expect("stored");
            assert_eq!(result.into_inner().result.expect("a result").outcome(), pb::Outcome::Active);
        }
    }
    for wait in [20, 60, 150, 300] {
        let running = {
            let channel = channel.clone();
            let tasks = strata_runtime::TaskGroup::new();
            tasks.spawn("run", async move { run(&channel).await })
        };
        strata_runtime::ports::pause(Duration::from_millis(wait)).await;
        cluster.kill_and_restart("all");
        // Whether it came to its end before is up to the machine.
        let _ = running.await.expect("the caller");
        channel = channel::connect(&EndpointConfig::new(cluster.url())).expect("a channel");
    }
    run(&channel).await.expect("to its end");
    for user in ["u1", "u2"] {
        let records = all(&channel, user).await;
        let summaries: Vec<&pb::Memory> = records.iter().filter(|m| m.kind() == pb::Kind::Summary).collect();
        let mut members: BTreeMap<&str, u32> = BTreeMap::new();
        for member in summaries.iter().flat_map(|summary| &summary.derived_from) {
            *members.entry(member).or_default() += 1;
        }
        assert!(!summaries.is_empty() && members.values().all(|times| *times == 1), "{user}: each stands in one summary");
        for record in records.iter().filter(|m| m.kind() == pb::Kind::Event) {
            let condensed = members.contains_key(record.memory_id.as_str());
            let expected = if condensed { pb::Status::Archived } else { pb::Status::Active };
            assert_eq!(record.status(), expected, "{user}: {}", record.memory_id);
        }
        assert_eq!(records.len(), EVENTS as usize + summaries.len(), "{user}: nothing is gone");
        for record in &records {
            let request =
                pb::GetHistoryRequest { user_id: user.into(), memory_id: record.memory_id.clone(), ..Default::default() };
            let history = LongTermMemoryServiceClient::new(channel.clone()).get_history(request).await.expect("there");
            let moved = history.into_inner().entries.iter().filter(|entry| entry.rule == "F5").count();
            assert!(moved <= 1, "{user}: moved once, not {moved} times");
        }
    }
    assert_eq!(run(&channel).await.expect("again"), 0, "nothing is left to do");
}

#[test]
fn a_dry_run_over_the_command_line_lists_and_changes_nothing() {
    let cluster = Cluster::quick(false, &[]);
    let server = cluster.url();
    let ctl = |args: &[&str]| {
        let output = strata(&[&["ctl", "--server", &server][..], args].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(ctl(&["maintenance", "dry-run"]).contains("nothing to do"));
    assert!(ctl(&["maintenance", "run", "--rules", "F4,F6"]).contains("nothing to do"));
    assert!(ctl(&["rescan", "--dry-run"]).contains("0 records judged"));
    assert!(ctl(&["status"]).contains("longterm.maintenance"));
}

/// A model that chooses the first clause of each record it is shown.
fn chooser() -> HttpDouble {
    HttpDouble::start(|_, body| {
        let asked: Value = serde_json::from_str(body).expect("JSON");
        let records: Value = serde_json::from_str(asked["messages"][1]["content"].as_str().expect("text")).expect("JSON");
        let first = |record: &Value| {
            let text = record["text"].as_str().expect("a text").split(',').next().expect("a clause");
            json!({"text": format!("{text}."), "records": [record["record"]]})
        };
        let said = json!({"sentences": records.as_array().expect("a list").iter().map(first).collect::<Vec<_>>()});
        Reply::ok(json!({"choices": [{"message": {"role": "assistant", "content": said.to_string()}}]}).to_string())
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f5_the_summariser_words_summaries_of_long_term_memory_unless_it_is_told_not_to() {
    let model = chooser();
    let env = |consolidation: bool| {
        vec![
            ("STRATA_SUMMARISER__URL", model.base()),
            ("STRATA_SUMMARISER__MODEL", "m".to_owned()),
            ("STRATA_SUMMARISER__CONSOLIDATION", consolidation.to_string()),
            ("STRATA_POLICY__FORGETTING__CONSOLIDATE_OVER", "5".to_owned()),
        ]
    };
    let four: Vec<(&str, String)> = caller_vectors().into_iter().chain(env(true)).collect();
    let forms: [(&dyn Fn() -> Cluster, bool); 3] = [
        (&|| Cluster::quick(false, &env(true)), true),
        (&|| Cluster::four_with(&four, false), true),
        (&|| Cluster::quick(false, &env(false)), false),
    ];
    for (start, asks) in forms {
        let (cluster, before) = (start(), model.seen().len());
        let channel = channel::connect(&EndpointConfig::new(cluster.url())).expect("a channel");
        for n in 0..7 {
            let content = format!("The meter in hall {n} showed {n}77 litres, the hall was warm");
            let statement = pb::Statement { source_quote: content.clone(), content, ..event(n) };
            let request = pb::RememberRequest { user_id: "u1".into(), statement: Some(statement), ..Default::default() };
            LongTermMemoryServiceClient::new(channel.clone()).remember(request).await.expect("stored");
        }
        let listed = strata(&["ctl", "--server", &cluster.url(), "maintenance", "dry-run"]);
        assert!(listed.status.success() && String::from_utf8_lossy(&listed.stdout).contains("F5"));
        assert_eq!(model.seen().len(), before, "a dry run asks nobody");
        assert_eq!(run(&channel).await.expect("to its end"), 8, "a summary and its members");
        let records = all(&channel, "u1").await;
        let summary = records.iter().find(|record| record.kind() == pb::Kind::Summary).expect("a summary");
        assert_eq!((summary.reason.contains("model"), summary.content.contains("warm")), (asks, !asks), "{}", summary.content);
        assert_eq!(model.seen().len() - before, usize::from(asks));
    }
}
