//! Erasure of boards and of their checkpoints on both stores.

use crate::harness::{Bed, Caller, Cut, Sqlite, fact, goal, redis, request_id, settings, todo};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use strata_api::internal::v1 as internal;
use strata_api::internal::v1::working_erasure_service_client::WorkingErasureServiceClient;
use strata_api::working::v1 as pb;
use strata_core::{Fault, Reason};
use strata_testkit::{ManualClock, RedisServer};
use strata_working::CheckpointConfig;
use strata_working::checkpoint::embedded::EmbeddedCheckpoints;

pub type Rows = BTreeMap<String, internal::StoreErasure>;

fn gather(rows: &mut Rows, part: Vec<internal::StoreErasure>) {
    for row in part {
        let sum = rows.entry(row.store.clone()).or_default();
        let (found, removed, remaining) = (sum.found + row.found, sum.removed + row.removed, sum.remaining + row.remaining);
        *sum = internal::StoreErasure { found, removed, remaining, ..row };
    }
}

pub async fn erase(who: &Caller, scope: &internal::ErasureScope) -> Result<Rows, Fault> {
    let (mut rows, mut cursor) = (Rows::new(), String::new());
    loop {
        let mut request = tonic::Request::new(internal::EraseContentRequest { scope: Some(scope.clone()), cursor });
        request.extensions_mut().insert(who.identity.clone());
        let answer = WorkingErasureServiceClient::new(who.channel.clone()).erase_content(request).await;
        let answer = answer.map_err(|s| strata_api::error::fault(&s))?.into_inner();
        gather(&mut rows, answer.stores);
        cursor = answer.next_cursor;
        if cursor.is_empty() {
            return Ok(rows);
        }
    }
}

pub async fn find(who: &Caller, scope: &internal::ErasureScope) -> Rows {
    let mut request = tonic::Request::new(internal::FindContentRequest { scope: Some(scope.clone()), cursor: String::new() });
    request.extensions_mut().insert(who.identity.clone());
    let answer =
        WorkingErasureServiceClient::new(who.channel.clone()).find_content(request).await.expect("searched").into_inner();
    assert!(answer.next_cursor.is_empty());
    let mut rows = Rows::new();
    gather(&mut rows, answer.stores);
    rows
}

pub const CODE: &str = "QX-773418265-ZK";

pub fn scope(bed: &Bed, who: &Caller) -> internal::ErasureScope {
    internal::ErasureScope {
        user_id: who.user.clone(),
        erasure_id: request_id(),
        erase_epoch: bed.now().micros() as u64,
        texts: vec![CODE.into()],
        ..Default::default()
    }
}

pub fn knowing(who: &Caller, scope: &internal::ErasureScope) -> Caller {
    let mut who = who.clone();
    who.identity.erase_epoch = scope.erase_epoch;
    who
}

/// The same caller with calls that were admitted before the erasure.
pub fn from_before(who: &Caller, scope: &internal::ErasureScope) -> Caller {
    let mut who = who.clone();
    who.identity.erase_epoch = scope.erase_epoch - 1;
    who
}

const RECORD: &str = "0197c7b4-1111-7000-8000-000000000001";

/// A board that holds the code in every slot, and other things beside it.
pub async fn filled(me: &Caller, task: &str, put: &str) {
    let creation = pb::CreateTaskRequest {
        goal: goal("Open the locker ＱＸ－７７３４１８２６５－ＺＫ", "The door is open"),
        request_id: request_id(),
        ..me.creation(task)
    };
    me.send_create(creation).await.expect("created");
    let facts = vec![
        fact("locker.code", CODE),
        fact("locker.room", "R-4411"),
        fact("diet.spicy", "no"),
        fact("note.zh", "柜子 qx773418265zk 在二楼"),
    ];
    me.put_as(task, facts, 0, put).await.expect("facts");
    let reference =
        pb::Fact { reference: Some(pb::MemoryReference { memory_id: RECORD.into(), version: 1 }), ..fact("locker.record", "") };
    me.put(task, vec![reference]).await.expect("a reference");
    me.todos(
        task,
        vec![
            todo("t1", "type Q\u{200b}X 773418265 ZK in", pb::TodoState::Pending),
            todo("t2", "call Bo", pb::TodoState::Pending),
        ],
    )
    .await
    .expect("todos");
    me.digest(task, "The locker took qx773418265zk").await.expect("a digest");
    me.digest(task, "The room is on the second floor").await.expect("a digest");
}

fn shows(task: &pb::Task) -> bool {
    let text = format!("{task:?}").to_lowercase();
    [CODE, "qx773418265zk", "ＱＸ－７７３４１８２６５－ＺＫ", "773418265"].iter().any(|code| text.contains(&code.to_lowercase()))
}

async fn on_both(test: impl AsyncFn(&str, CheckpointConfig, &dyn Fn(&str) -> bool)) {
    let server = RedisServer::start();
    test("redis", CheckpointConfig::Redis(redis(&server, 0)), &|needle| server.disk_holds(needle)).await;
    let sqlite = Sqlite::new();
    let folder = sqlite.path().parent().expect("a folder").to_owned();
    let holds = move |needle: &str| {
        std::fs::read_dir(&folder).expect("readable").any(|entry| {
            let bytes = std::fs::read(entry.expect("an entry").path()).expect("readable");
            bytes.windows(needle.len()).any(|window| window == needle.as_bytes())
        })
    };
    let config = CheckpointConfig::Other(Arc::new(EmbeddedCheckpoints::new(sqlite.open())));
    test("sqlite", config, &holds).await;
}

#[tokio::test]
async fn a170_a177_a_board_and_its_checkpoint_lose_it_and_keep_the_rest() {
    on_both(async |name, config, holds| {
        let clock = ManualClock::default();
        let bed = Bed::start(config, &clock).await;
        let me = bed.me();
        let put = request_id();
        filled(&me, "k", &put).await;
        bed.role.checkpoint().await.expect("written");
        assert!(holds(CODE), "{name}: the checkpoint has it");
        let scope =
            internal::ErasureScope { keys: vec!["diet.spicy".into()], memory_ids: vec![RECORD.into()], ..scope(&bed, &me) };
        assert!(find(&me, &scope).await["working.boards"].found > 0);
        let mut rows = erase(&me, &scope).await.expect("erased");
        // Goal, three facts, a reference, a todo, a digest.
        let row = &rows["working.boards"];
        assert_eq!((row.found, row.removed, row.remaining), (7, 7, 0), "{name} {rows:?}");
        assert!(rows["working.request_ids"].found > 0 && rows["working.request_ids"].remaining == 0, "{name} {rows:?}");
        assert_eq!(rows["working.checkpoints"].removed, 1);
        for _ in 0..60 {
            if rows["working.checkpoints"].physical() == internal::PhysicalState::Gone {
                break;
            }
            rows = erase(&me, &scope).await.expect("repeated");
        }
        assert_eq!(find(&me, &scope).await["working.checkpoints"].physical(), internal::PhysicalState::Gone, "{name}");
        let free = || (!holds(CODE) && !holds("qx773418265zk") && !holds("773418265")).then_some(());
        strata_testkit::poll::blocking(crate::harness::SOON, free).expect("gone from the disk");
        assert!(find(&me, &scope).await.values().all(|row| row.found == 0));

        let me = knowing(&me, &scope);
        let task = me.get("k").await.expect("there");
        assert!(!shows(&task), "{name}: {task:?}");
        let keys: Vec<&str> = task.facts.iter().map(|f| f.key.as_str()).collect();
        assert_eq!(keys, ["locker.room"]);
        assert_eq!(task.todos.iter().map(|t| t.step.as_str()).collect::<Vec<_>>(), ["[erased]", "call Bo"]);
        assert_eq!(
            task.digests.iter().map(|d| d.sentence.as_str()).collect::<Vec<_>>(),
            ["[erased]", "The room is on the second floor"]
        );
        assert_eq!(task.goal.expect("a goal").sentence, "[erased]");
        // The repeated write has no second effect: the present state is the answer.
        let again = me
            .put_as(
                "k",
                vec![
                    fact("locker.code", CODE),
                    fact("locker.room", "R-4411"),
                    fact("diet.spicy", "no"),
                    fact("note.zh", "柜子 qx773418265zk 在二楼"),
                ],
                0,
                &put,
            )
            .await;
        assert_eq!(again.expect("repeated").facts.len(), 1, "{name}");
    })
    .await;
}

#[tokio::test]
async fn e02_an_erased_board_comes_back_erased_and_the_epoch_with_it() {
    on_both(async |name, config, _| {
        let clock = ManualClock::default();
        let bed = Bed::start(config.clone(), &clock).await;
        let me = bed.me();
        filled(&me, "k", &request_id()).await;
        bed.role.checkpoint().await.expect("written");
        let scope = scope(&bed, &me);
        erase(&me, &scope).await.expect("erased");
        drop(bed);
        let bed = Bed::start(config, &clock).await;
        let me = bed.me();
        let older = from_before(&me, &scope).get("k").await.expect_err("an older header");
        assert_eq!(older.reason, Reason::StaleEraseEpoch, "{name}");
        assert!(!shows(&knowing(&me, &scope).get("k").await.expect("back")));
    })
    .await;
}

#[tokio::test]
async fn e02_writes_from_before_the_erasure_are_refused_and_later_ones_pass() {
    let bed = Bed::new().await;
    let me = bed.me();
    me.create("k").await.expect("created");
    let scope = scope(&bed, &me);
    erase(&me, &scope).await.expect("erased");
    let before = from_before(&me, &scope);
    for refused in [
        before.put("k", vec![fact("a", CODE)]).await.map(|_| ()),
        before.create("k2").await.map(|_| ()),
        before.digest("k", "late").await.map(|_| ()),
        before.get("k").await.map(|_| ()),
        before.end("k").await.map(|_| ()),
    ] {
        let fault = refused.expect_err("older");
        assert_eq!(fault.reason, Reason::StaleEraseEpoch);
        assert!(fault.metadata.contains(&("erase_epoch", scope.erase_epoch.to_string())));
    }
    bed.caller("t1", "u2", "a1").create("k3").await.expect("another user");
    let me = knowing(&me, &scope);
    bed.clock.advance(Duration::from_secs(10));
    me.put("k", vec![fact("a", CODE)]).await.expect("a later statement");
    assert_eq!(erase(&me, &scope).await.expect("repeated")["working.boards"].found, 0);
    assert_eq!(me.get("k").await.expect("there").facts.len(), 1);
}

#[tokio::test]
async fn a175_x12_everything_ends_the_tasks_of_the_user_or_of_one_agent() {
    let bed = Bed::new().await;
    let callers = ["a1", "a2", ""].map(|agent| bed.caller("t1", "u1", agent));
    for (n, who) in callers.iter().enumerate() {
        who.create(&format!("k{n}")).await.expect("created");
    }
    bed.caller("t1", "u2", "a1").create("other").await.expect("created");
    bed.caller("t2", "u1", "a1").create("k0").await.expect("created");
    let mut all =
        internal::ErasureScope { everything: true, agent_id: "a1".into(), texts: Vec::new(), ..scope(&bed, &callers[0]) };
    assert_eq!(erase(&callers[0], &all).await.expect("erased")["working.boards"].removed, 1);
    all.agent_id = String::new();
    all.erase_epoch += 1;
    let rows = erase(&callers[0], &all).await.expect("erased");
    assert_eq!((rows["working.boards"].removed, rows["working.boards"].remaining), (2, 0));
    for (n, who) in callers.iter().enumerate() {
        assert_eq!(knowing(who, &all).get(&format!("k{n}")).await.expect_err("ended").reason, Reason::TaskEnded);
    }
    bed.caller("t1", "u2", "a1").get("other").await.expect("another user's");
    bed.caller("t2", "u1", "a1").get("k0").await.expect("another tenant's");
}

#[tokio::test]
async fn e04_a_checkpoint_store_that_is_down_is_no_success_and_a_repetition_is() {
    let sqlite = Sqlite::new();
    let cut = Cut::new(Arc::new(EmbeddedCheckpoints::new(sqlite.open())));
    let clock = ManualClock::default();
    let bed = Bed::with(CheckpointConfig::Other(cut.clone()), &clock, settings(|s| s.working.checkpoint_ms = 1_000)).await;
    let me = bed.me();
    filled(&me, "k", &request_id()).await;
    bed.role.checkpoint().await.expect("written");
    cut.cut();
    let scope = scope(&bed, &me);
    assert_eq!(erase(&me, &scope).await.expect_err("down").reason, Reason::StoreUnavailable);
    cut.mend();
    let rows = erase(&me, &scope).await.expect("repeated");
    assert_eq!(rows["working.checkpoints"].physical(), internal::PhysicalState::Gone);
    let bytes = std::fs::read(sqlite.path()).expect("readable");
    assert!(!bytes.windows(CODE.len()).any(|window| window == CODE.as_bytes()));
}
