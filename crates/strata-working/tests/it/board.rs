//! Slots, lifetime, isolation, idempotency.

use crate::harness::{Bed, Caller, digest, fact, goal, request_id, todo};
use prost::Message;
use std::cell::RefCell;
use std::io::Write;
use std::time::Duration;
use strata_api::working::v1 as pb;
use strata_core::Reason;
use strata_working::CheckpointConfig;

/// A board with something in every slot.
async fn filled(me: &Caller, task: &str) {
    me.create(task).await.expect("created");
    me.put(task, vec![fact("invoice.number", "INV-4711"), fact("invoice.amount", "118.50")]).await.expect("put");
    me.todos(task, vec![todo("1", "Check the IBAN", pb::TodoState::Pending), todo("2", "付款", pb::TodoState::Blocked)])
        .await
        .expect("todos");
    me.digest(task, "The ERP lists one open invoice of ACME.").await.expect("digest");
}

#[tokio::test]
async fn a09_a_board_has_the_four_slots_and_no_other() {
    let set = prost_types::FileDescriptorSet::decode(strata_api::FILE_DESCRIPTOR_SET).expect("a descriptor set");
    let file = set.file.iter().find(|file| file.package() == "strata.working.v1").expect("the package");
    let task = file.message_type.iter().find(|message| message.name() == "Task").expect("Task");
    let slots: Vec<&str> = task
        .field
        .iter()
        .filter(|field| field.type_name().starts_with(".strata.working.v1."))
        .map(prost_types::FieldDescriptorProto::name)
        .collect();
    assert_eq!(slots, ["goal", "facts", "todos", "digests"]);

    let bed = Bed::new().await;
    let me = bed.me();
    filled(&me, "k1").await;
    let board = me.get("k1").await.expect("read");
    assert_eq!(board.goal, goal("Pay the invoice of ACME", "The bank confirms the transfer"));
    assert_eq!(board.facts.iter().map(|f| f.key.as_str()).collect::<Vec<_>>(), ["invoice.amount", "invoice.number"]);
    assert_eq!((board.todos.len(), board.digests.len(), board.version, board.generation), (2, 1, 4, 1));
    // A slot kind that is none has no method to write it.
    let mut client = tonic::client::Grpc::new(bed.channel.clone());
    client.ready().await.expect("ready");
    let mut request = tonic::Request::new(pb::UpdateGoalRequest::default());
    request.extensions_mut().insert(me.identity.clone());
    let path = http::uri::PathAndQuery::from_static("/strata.working.v1.WorkingMemoryService/PutNotes");
    let codec = tonic_prost::ProstCodec::<pb::UpdateGoalRequest, pb::UpdateGoalResponse>::default();
    let status = client.unary(request, path, codec).await.expect_err("no such slot");
    assert_eq!(status.code(), tonic::Code::Unimplemented);
}

#[tokio::test]
async fn a10_a_goal_needs_its_sentence_and_its_acceptance_condition() {
    let bed = Bed::new().await;
    let me = bed.me();
    for (n, (given, field)) in [
        (None, "goal"),
        (goal("", "done"), "goal.sentence"),
        (goal("Pay", ""), "goal.acceptance"),
        (goal("付款", " \n"), "goal.acceptance"),
        (goal("Pay it. Then call Bob.", "done"), "goal.sentence"),
        (goal("付款。然后打电话。", "done"), "goal.sentence"),
    ]
    .into_iter()
    .enumerate()
    {
        let task = format!("k{n}");
        let body = pb::CreateTaskRequest { goal: given.clone(), ..me.creation(&task) };
        let fault = me.send_create(body).await.expect_err(field);
        assert_eq!((fault.reason, fault.fields[0].field.as_str()), (Reason::InvalidField, field));
        assert_eq!(me.get(&task).await.expect_err("nothing stored").reason, Reason::NotFound);
    }
    me.create("k").await.expect("both");
    assert!(me.goal("k", goal("Pay", "")).await.is_err());
    let stored = me.goal("k", goal("Pay at 2:30 p.m. to Dr. Smith.", "付款成功")).await.expect("both").goal;
    assert_eq!(me.get("k").await.expect("read").goal, stored);
}

#[tokio::test]
async fn a11_a_fact_is_checked_has_a_source_and_is_no_raw_payload() {
    let bed = Bed::new().await;
    let me = bed.me();
    me.create("k").await.expect("created");
    let json = format!("{{\"items\":[{}1]}}", "1,".repeat(200));
    for (value, reason) in [
        (json.as_str(), Reason::NotABoardValue),
        ("a\nb\nc\nd", Reason::NotABoardValue),
        (&"x".repeat(513), Reason::NotABoardValue),
        ("", Reason::InvalidField),
    ] {
        let fault = me.put("k", vec![fact("a", "fine"), fact("b", value)]).await.expect_err("refused");
        assert_eq!((fault.reason, fault.fields[0].field.as_str()), (reason, "facts[1].value"));
        assert!(!fault.message.contains("items"), "a refusal does not repeat the value");
    }
    let unverified = pb::Fact { source: String::new(), ..fact("a", "v") };
    assert_eq!(me.put("k", vec![unverified]).await.expect_err("no source").fields[0].field, "facts[0].source");
    let board = me.get("k").await.expect("read");
    assert_eq!((board.facts.len(), board.version), (0, 1), "all are written or none");
    let stored = me.put("k", vec![fact("a", "v")]).await.expect("checked").facts.remove(0);
    assert_eq!(stored.verified_at, Some(strata_api::convert::common::wire_time(bed.now())));
}

#[tokio::test]
async fn a12_a_todo_has_four_states_and_moves_by_the_table() {
    use pb::TodoState::{Blocked, Done, InProgress, Pending, Unspecified};
    let bed = Bed::new().await;
    let me = bed.me();
    me.create("k").await.expect("created");
    for (n, (from, to, fine)) in [
        (Pending, InProgress, true),
        (Pending, Done, true),
        (Blocked, Done, false),
        (Blocked, Pending, true),
        (Done, Pending, false),
        (Done, InProgress, false),
    ]
    .into_iter()
    .enumerate()
    {
        let id = n.to_string();
        me.todos("k", vec![todo(&id, "s", from)]).await.expect("new");
        let moved = me.todos("k", vec![todo(&id, "", to)]).await;
        match moved {
            Ok(answer) => {
                assert!(fine, "{from:?} > {to:?}");
                assert_eq!((answer.todos[n].state(), answer.todos[n].step.as_str()), (to, "s"));
            }
            Err(fault) => assert_eq!((fine, fault.reason), (false, Reason::TodoMove), "{from:?} > {to:?}"),
        }
    }
    assert!(me.todos("k", vec![todo("9", "s", Unspecified)]).await.is_err());
    let unknown = pb::Todo { state: 7, ..todo("9", "s", Pending) };
    assert_eq!(me.todos("k", vec![unknown]).await.expect_err("unknown").fields[0].field, "todos[0].state");
    // One refused move keeps the others out too.
    let both = vec![todo("9", "new", Pending), todo("4", "", Pending)];
    assert_eq!(me.todos("k", both).await.expect_err("4 is done").reason, Reason::TodoMove);
    assert_eq!(me.get("k").await.expect("read").todos.len(), 6);
}

#[tokio::test]
async fn a13_a_digest_is_one_sentence_under_the_cap() {
    let bed = Bed::new().await;
    let me = bed.me();
    me.create("k").await.expect("created");
    for sentence in ["x".repeat(280), "查".repeat(280), "Dr. Smith paid 3.50 at 2 p.m.".into()] {
        me.digest("k", &sentence).await.expect("one sentence");
    }
    for sentence in
        ["x".repeat(281), "查".repeat(281), "It failed. We try again.".into(), "失败了。再试一次。".into(), "two\nlines".into()]
    {
        let fault = me.digest("k", &sentence).await.expect_err("refused");
        assert_eq!((fault.reason, fault.fields[0].field.as_str()), (Reason::NotABoardValue, "digest.sentence"));
        assert!(fault.message.contains("artifact") && fault.message.contains("trace_id"), "the advice: {}", fault.message);
    }
    for wrong in [
        pb::Digest { trace_id: String::new(), ..digest("ok").expect("some") },
        pb::Digest { tool: String::new(), ..digest("ok").expect("some") },
    ] {
        assert_eq!(me.digest_as("k", Some(wrong), "").await.expect_err("incomplete").reason, Reason::InvalidField);
    }
    assert_eq!(me.get("k").await.expect("read").digests.len(), 3);
}

#[tokio::test]
async fn a15_a_long_return_puts_its_fields_and_one_line_on_the_board() {
    let bed = Bed::new().await;
    let me = bed.me();
    me.create("k").await.expect("created");
    let raw: String = (0..300).map(|n| format!("{{\"row\": {n}}}\n")).collect();
    assert_eq!(me.put("k", vec![fact("rows", &raw)]).await.expect_err("raw").reason, Reason::NotABoardValue);
    assert_eq!(me.digest("k", &raw).await.expect_err("raw").reason, Reason::NotABoardValue);
    me.put("k", vec![fact("rows.count", "300")]).await.expect("the field");
    me.digest("k", "The query returned 300 rows.").await.expect("the line");
    let board = me.get("k").await.expect("read");
    assert_eq!((board.facts.len(), board.digests.len()), (1, 1));
    assert!(board.encoded_len() < 500);
}

/// Every call about a task, by one caller; the reason of each refusal.
async fn every_call(caller: &Caller, task: &str) -> Vec<(&'static str, Option<Reason>)> {
    let deadline = strata_testkit::ManualClock::START;
    let reason = |answer: Option<strata_core::Fault>| answer.map(|fault| fault.reason);
    vec![
        ("CreateTask", reason(caller.create(task).await.err())),
        ("GetTask", reason(caller.get(task).await.err())),
        ("PutFacts", reason(caller.put(task, vec![fact("a", "b")]).await.err())),
        ("UpdateTodos", reason(caller.todos(task, vec![todo("1", "s", pb::TodoState::Pending)]).await.err())),
        ("AppendDigest", reason(caller.digest(task, "ok").await.err())),
        ("UpdateGoal", reason(caller.goal(task, goal("a", "b")).await.err())),
        ("Seal", reason(caller.seal(task, "a", "p", u64::MAX, deadline).await.err())),
        ("Settle", reason(caller.settle(task, "a", "p", 1, false).await.err())),
        ("EndTask", reason(caller.end(task).await.err())),
    ]
}

#[tokio::test]
async fn a16_every_call_names_a_task() {
    let bed = Bed::new().await;
    for task in ["", " k", "k\0", "k\u{200b}"] {
        for (method, reason) in every_call(&bed.me(), task).await {
            assert_eq!(reason, Some(Reason::InvalidField), "{method} {task:?}");
        }
    }
    let fault = bed.me().put("", vec![fact("a", "b")]).await.expect_err("no task");
    assert_eq!(fault.fields[0].field, "task_id");
}

#[tokio::test]
async fn a17_another_owner_is_refused_by_comparison_with_a_fixed_code() {
    let bed = Bed::new().await;
    let me = bed.me();
    filled(&me, "k").await;
    let before = me.get("k").await.expect("read");
    for foreign in [bed.caller("t1", "u2", "a1"), bed.caller("t1", "u1", "a2"), bed.caller("t1", "u1", "")] {
        for (method, reason) in every_call(&foreign, "k").await {
            assert_eq!(reason, Some(Reason::TaskMismatch), "{method} by {}/{}", foreign.user, foreign.agent);
        }
    }
    // Another tenant does not learn that the id exists, and may use it.
    let other = bed.caller("t2", "u1", "a1");
    assert_eq!(other.get("k").await.expect_err("not theirs").reason, Reason::NotFound);
    other.create("k").await.expect("their own");
    assert!(other.get("k").await.expect("their own").facts.is_empty());
    let wrong = me.get("K").await.expect_err("another id");
    assert_eq!(wrong.reason, Reason::NotFound);
    assert_eq!(me.get("k").await.expect("untouched"), before);
    // Ended tasks are compared too.
    me.end("k").await.expect("ended");
    assert_eq!(bed.caller("t1", "u2", "a1").get("k").await.expect_err("foreign").reason, Reason::TaskMismatch);
    assert_eq!(bed.caller("t1", "u2", "a1").end("k").await.expect_err("foreign").reason, Reason::TaskMismatch);
}

#[tokio::test]
async fn p10_a_call_that_is_not_signed_for_its_user_is_refused() {
    let bed = Bed::new().await;
    let me = bed.me();
    me.create("k").await.expect("created");
    let mut other = bed.me();
    other.user = "u2".into();
    assert_eq!(other.get("k").await.expect_err("signed for u1").reason, Reason::OwnerMismatch);
    let mut nobody = bed.me();
    nobody.identity.user = None;
    assert_eq!(nobody.get("k").await.expect_err("no user").reason, Reason::UnsignedCall);
    let bare = Caller { channel: strata_runtime::channel::local(bed.role.routes()), ..bed.me() };
    assert_eq!(bare.get("k").await.expect_err("no header").reason, Reason::UnsignedCall);
    let mut level = bed.me();
    level.identity = level.identity.writing(strata_core::id::Level::User, 1);
    assert_eq!(level.put("k", vec![fact("a", "b")]).await.expect_err("another level").reason, Reason::UnsignedCall);
}

#[tokio::test]
async fn a18_an_ended_task_leaves_no_content_in_process_or_store() {
    const DATABASE: u8 = 1;
    let server = strata_testkit::redis::shared();
    let clock = strata_testkit::ManualClock::default();
    let bed = Bed::start(CheckpointConfig::Redis(crate::harness::redis(server, DATABASE)), &clock).await;
    let me = bed.me();
    filled(&me, "k").await;
    bed.role.checkpoint().await.expect("written");
    assert!(crate::stores::dump(server, DATABASE).contains("INV-4711"), "the scan sees what is there");
    let ended = me.end("k").await.expect("ended");
    assert_eq!((ended.facts_dropped, ended.already_ended), (2, false));
    let dump = crate::stores::dump(server, DATABASE);
    for content in ["INV-4711", "118.50", "ACME", "IBAN", "付款", "invoice", "bank"] {
        assert!(!dump.contains(content), "{content} is left behind");
    }
    let counts = bed.role.status().counts;
    assert_eq!((counts.boards, counts.ended, counts.dirty), (0, 1, 0));
    assert_eq!(me.get("k").await.expect_err("ended").reason, Reason::TaskEnded);
}

#[tokio::test]
async fn a19_an_id_is_not_used_again_for_a_day_and_then_begins_empty() {
    let bed = Bed::new().await;
    let me = bed.me();
    filled(&me, "k").await;
    me.end("k").await.expect("ended");
    for (method, reason) in every_call(&me, "k").await {
        // Settling and ending what has ended are done already.
        let expected = if matches!(method, "Settle" | "EndTask") { None } else { Some(Reason::TaskEnded) };
        assert_eq!(reason, expected, "{method}");
    }
    bed.clock.advance(Duration::from_secs(24 * 3600 - 1));
    assert_eq!(me.create("k").await.expect_err("within the day").reason, Reason::TaskEnded);
    bed.clock.advance(Duration::from_secs(1));
    me.create("k").await.expect("a day later");
    let board = me.get("k").await.expect("read");
    assert_eq!((board.facts.len(), board.todos.len(), board.digests.len(), board.version), (0, 0, 0, 1));
    // Another task of the same caller never sees it either.
    me.create("k2").await.expect("another");
    assert!(me.get("k2").await.expect("read").facts.is_empty());
}

thread_local! {
    /// What the test of this thread logs, once it captures. (A subscriber of one thread would miss lines: the first thread
    /// that reaches one decides for all whether anybody wants it.)
    static CAPTURED: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

struct Captured;

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        CAPTURED.with_borrow_mut(|captured| captured.iter_mut().for_each(|lines| lines.extend_from_slice(bytes)));
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a20_every_line_about_a_task_carries_its_id_and_no_content() {
    let subscriber = tracing_subscriber::fmt().json().with_max_level(tracing::Level::TRACE).with_writer(|| Captured).finish();
    tracing::subscriber::set_global_default(subscriber).expect("the only one of this binary");
    CAPTURED.set(Some(Vec::new()));
    let sqlite = crate::harness::Sqlite::new();
    let clock = strata_testkit::ManualClock::default();
    {
        let bed = Bed::start(CheckpointConfig::Embedded(sqlite.open()), &clock).await;
        let me = bed.me();
        filled(&me, "task-4711").await;
        me.seal("task-4711", "invoice.number", "p1", u64::MAX - 5, clock_in(&bed, 5)).await.expect("sealed");
        me.settle("task-4711", "invoice.number", "p1", u64::MAX - 5, false).await.expect("undone");
        let _ = every_call(&me, "task-4711").await;
        me.create("task-idle").await.expect("created");
        bed.clock.advance(Duration::from_secs(2 * 3600));
        assert!(bed.role.sweep() > 0);
        assert!(bed.role.checkpoint().await.is_ok());
        me.create("task-lost").await.expect("created");
        assert!(bed.role.checkpoint().await.is_ok());
        drop(bed);
    }
    let again = sqlite_again(&sqlite).await;
    let bed = Bed::start(CheckpointConfig::Embedded(again), &clock).await;
    assert!(bed.me().put("task-lost", vec![fact("a", "b")]).await.is_err());

    let text = String::from_utf8(CAPTURED.take().expect("captured")).expect("UTF-8");
    let ours: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a JSON line"))
        .filter(|line: &serde_json::Value| line["target"].as_str().is_some_and(|target| target.starts_with("strata_working")))
        .collect();
    // Lines of the process itself name no task; they are told by what they count.
    let process = |line: &serde_json::Value| line["fields"].get("store").is_some();
    let (of_process, of_tasks): (Vec<_>, Vec<_>) = ours.iter().partition(|line| process(line));
    assert!(of_tasks.len() >= 10 && of_process.len() >= 2, "{} and {} lines", of_tasks.len(), of_process.len());
    for line in &of_tasks {
        assert!(line["fields"]["task_id"].as_str().is_some_and(|id| id.starts_with("task-")), "{line}");
    }
    for wanted in [
        "a board was started",
        "a board was written",
        "a fact was sealed",
        "the task ended",
        "idle too long",
        "refused",
        "back from a checkpoint",
    ] {
        assert!(of_tasks.iter().any(|line| line["fields"]["message"].as_str().is_some_and(|m| m.contains(wanted))), "{wanted}");
    }
    for content in ["INV-4711", "118.50", "ACME", "IBAN", "付款"] {
        assert!(!text.contains(content), "{content} is logged");
    }
    // The span of the call carries it too.
    let calls = of_tasks.iter().filter(|line| line["fields"]["message"] == "a board was written");
    let spans: Vec<_> = calls.flat_map(|line| line["spans"].as_array().cloned().unwrap_or_default()).collect();
    assert!(spans.iter().any(|span| span["name"] == "rpc"));
    assert!(spans.iter().all(|span| span["task_id"] == "task-4711"), "{spans:?}");
}

fn clock_in(bed: &Bed, seconds: i64) -> strata_core::Timestamp {
    bed.now().plus(seconds * strata_core::time::SECOND)
}

/// Opens a file again that a dropped role had open: its threads close it a moment later.
pub async fn sqlite_again(sqlite: &crate::harness::Sqlite) -> strata_runtime::sqlite::Database {
    use strata_runtime::sqlite::{Database, Location, SqliteSettings};
    let path = sqlite.path();
    strata_testkit::eventually_some(crate::harness::SOON, || async {
        Database::open(&Location::File(path.clone()), strata_working::checkpoint::embedded::MIGRATIONS, SqliteSettings::default())
            .ok()
    })
    .await
}

#[tokio::test]
async fn w7_an_idle_board_is_destroyed_by_the_clock_with_or_without_the_sweeper() {
    let bed = Bed::new().await;
    let me = bed.me();
    let idle = |seconds, nanos| Some(prost_types::Duration { seconds, nanos });
    for (given, fine) in [
        (idle(1, 0), true),
        (idle(0, 999_999_999), false),
        (idle(86_400, 0), true),
        (idle(86_400, 1_000), false),
        (idle(-1, 0), false),
    ] {
        let body = pb::CreateTaskRequest { idle_time: given, ..me.creation(&request_id()) };
        assert_eq!(me.send_create(body).await.is_ok(), fine, "{given:?}");
    }
    me.create("read").await.expect("created");
    me.create("written").await.expect("created");
    me.create("left").await.expect("created");
    bed.clock.advance(Duration::from_secs(2 * 3600 - 1));
    me.get("read").await.expect("a read renews");
    me.digest("written", "ok").await.expect("a write renews");
    bed.clock.advance(Duration::from_secs(1));
    assert_eq!(me.get("left").await.expect_err("idle").reason, Reason::TaskEnded);
    assert_eq!(me.create("left").await.expect_err("idle").reason, Reason::TaskEnded);
    me.get("read").await.expect("renewed");
    me.get("written").await.expect("renewed");
    bed.clock.advance(Duration::from_secs(2 * 3600));
    assert!(bed.role.sweep() >= 2);
    assert_eq!(bed.role.status().counts.boards, 1, "the board of a day is left");
    bed.clock.advance(Duration::from_secs(25 * 3600));
    bed.role.sweep();
    bed.clock.advance(Duration::from_secs(25 * 3600));
    bed.role.sweep();
    let counts = bed.role.status().counts;
    assert_eq!((counts.boards, counts.ended, counts.bytes), (0, 0, 0), "nothing is counted that is not there");
}

#[tokio::test]
async fn c175_a_finished_task_leaves_nothing_readable() {
    let bed = Bed::new().await;
    let me = bed.me();
    filled(&me, "k1").await;
    let first = me.end_as("k1", "11111111-1111-1111-1111-111111111111").await.expect("ended");
    assert_eq!(me.get("k1").await.expect_err("gone").reason, Reason::TaskEnded);
    assert_eq!(me.put("k1", vec![fact("a", "b")]).await.expect_err("gone").reason, Reason::TaskEnded);
    assert_eq!(me.create("k1").await.expect_err("gone").reason, Reason::TaskEnded);
    me.create("k2").await.expect("another");
    let board = me.get("k2").await.expect("read");
    assert_eq!((board.facts.len(), board.todos.len(), board.digests.len()), (0, 0, 0));
    // The same end again: the same answer; another end: done before.
    let again = me.end_as("k1", "11111111-1111-1111-1111-111111111111").await.expect("again");
    assert_eq!(again, first);
    let other = me.end("k1").await.expect("idempotent");
    assert_eq!((other.end_time, other.facts_dropped, other.already_ended), (first.end_time, 2, true));
    assert_eq!(me.end("never").await.expect_err("unknown").reason, Reason::NotFound);
}

#[tokio::test]
async fn c058_a_retry_after_a_timeout_is_stored_once() {
    let bed = Bed::new().await;
    let me = bed.me();
    let id = request_id();
    let create = pb::CreateTaskRequest { request_id: id.clone(), ..me.creation("k") };
    let first = me.send_create(create.clone()).await.expect("created");
    me.put("k", vec![fact("a", "1")]).await.expect("put");
    assert_eq!(me.send_create(create.clone()).await.expect("again"), first, "the answer is the first one");
    let other = pb::CreateTaskRequest { goal: goal("Another", "goal"), ..create };
    assert_eq!(me.send_create(other).await.expect_err("other body").reason, Reason::RequestIdReused);
    assert_eq!(me.create("k").await.expect_err("no id").reason, Reason::TaskExists);

    let id = request_id();
    let sent = (0..8).map(|_| me.digest_as("k", digest("The tool answered."), &id));
    let answers: Vec<_> = futures::future::join_all(sent).await.into_iter().map(|a| a.expect("stored once")).collect();
    assert!(answers.iter().all(|a| *a == answers[0]));
    let put = request_id();
    let stored = me.put_as("k", vec![fact("a", "2")], 0, &put).await.expect("put");
    me.put("k", vec![fact("a", "3")]).await.expect("a later write");
    assert_eq!(
        me.put_as("k", vec![fact("a", "2")], 1, &put).await.expect("again"),
        stored,
        "whatever generation the retry knows"
    );
    assert_eq!(me.put_as("k", vec![fact("a", "4")], 0, &put).await.expect_err("other body").reason, Reason::RequestIdReused);
    assert_eq!(me.digest_as("k", digest("x"), &put).await.expect_err("other method").reason, Reason::RequestIdReused);
    assert_eq!(me.end_as("k", &put).await.expect_err("other method").reason, Reason::RequestIdReused);
    assert_eq!(me.digest_as("k", digest("x"), "not a uuid").await.expect_err("no id").fields[0].field, "request_id");
    let board = me.get("k").await.expect("read");
    assert_eq!((board.digests.len(), board.facts[0].value.as_str()), (1, "3"));
    // A refused write is not remembered: mended, it may use its id.
    let id = request_id();
    assert!(me.digest_as("k", digest("a\nb"), &id).await.is_err());
    me.digest_as("k", digest("ab"), &id).await.expect("mended");
}

#[tokio::test]
async fn c106_what_was_acknowledged_is_visible_to_the_next_read() {
    let bed = Bed::new().await;
    let (writer, reader) = (bed.me(), bed.me());
    writer.create("k").await.expect("created");
    for n in 0..50 {
        let value = n.to_string();
        let version = writer.put("k", vec![fact("n", &value)]).await.expect("put").version;
        let board = reader.get("k").await.expect("read");
        assert_eq!((board.facts[0].value.as_str(), board.version), (value.as_str(), version));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_writers_lose_nothing_and_readers_see_whole_boards() {
    let bed = Bed::new().await;
    let me = bed.me();
    me.create("k").await.expect("created");
    let tasks = strata_runtime::TaskGroup::new();
    let writers = (0..6).map(|writer| {
        let me = me.clone();
        tasks.spawn("writer", async move {
            let mut versions = Vec::new();
            for n in 0..10 {
                // Two facts in each write: whoever reads sees both or none.
                let facts = vec![fact(&format!("w{writer}.a"), &n.to_string()), fact(&format!("w{writer}.b"), &n.to_string())];
                versions.push(me.put("k", facts).await.expect("put").version);
            }
            versions
        })
    });
    let writers: Vec<_> = writers.collect();
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let me = me.clone();
            tasks.spawn("reader", async move {
                for _ in 0..50 {
                    let board = me.get("k").await.expect("read");
                    assert!(board.facts.chunks(2).all(|pair| pair[0].value == pair[1].value), "a torn write");
                }
            })
        })
        .collect();
    for reader in readers {
        reader.await.expect("no torn write");
    }
    let mut versions = Vec::new();
    for writer in writers {
        versions.extend(writer.await.expect("a writer"));
    }
    versions.sort_unstable();
    assert_eq!(versions, (2..62).collect::<Vec<u64>>(), "each change has a version of its own");
    assert_eq!(me.get("k").await.expect("read").facts.len(), 12);
}
