//! Hard erasure in long-term memory (rules E2 to E9): what goes, what stays, what cannot come back, and what the receipt says.

use crate::world::*;
use std::collections::BTreeMap;
use std::time::Duration;
use strata_api::convert::common::wire_time;
use strata_api::error;
use strata_api::internal::v1 as internal;
use strata_api::internal::v1::erasure_journal_service_client::ErasureJournalServiceClient;
use strata_api::longterm::v1 as pb;
use strata_api::session::v1 as session;
use strata_core::policy::authz::Role;
use strata_core::time::SECOND;
use strata_core::{Fault, Reason};
use strata_longterm::metadata::ledger;
use strata_runtime::channel::RpcChannel;
use strata_testkit::eventually;

pub fn asks(user: &Caller) -> pb::EraseMemoriesRequest {
    pb::EraseMemoriesRequest {
        user_id: user.user.clone(),
        agent_id: user.agent.clone(),
        reason: "the user asked for it".into(),
        ..Default::default()
    }
}

pub async fn erase(user: &Caller, request: pb::EraseMemoriesRequest) -> Result<pb::EraseMemoriesResponse, Fault> {
    user.client().erase_memories(request).await.map(tonic::Response::into_inner).map_err(|status| error::fault(&status))
}

pub async fn erase_ids(user: &Caller, ids: &[&str]) -> pb::Erasure {
    let memory_ids = ids.iter().map(|id| (*id).to_owned()).collect();
    erase(user, pb::EraseMemoriesRequest { memory_ids, ..asks(user) }).await.expect("served").erasure.expect("begun")
}

async fn erase_all(user: &Caller) -> pb::Erasure {
    erase(user, pb::EraseMemoriesRequest { everything: true, ..asks(user) }).await.expect("served").erasure.expect("begun")
}

pub async fn receipt(user: &Caller, id: &str) -> pb::Erasure {
    let request = pb::GetErasureRequest { user_id: user.user.clone(), erasure_id: id.into() };
    user.client().get_erasure(request).await.expect("served").into_inner().erasure.expect("a receipt")
}

pub async fn verify(user: &Caller, id: &str, texts: &[&str]) -> pb::VerifyErasureResponse {
    let request = pb::VerifyErasureRequest {
        user_id: user.user.clone(),
        erasure_id: id.into(),
        texts: texts.iter().map(|text| (*text).to_owned()).collect(),
    };
    user.client().verify_erasure(request).await.expect("served").into_inner()
}

/// A router that did all of its steps and found nothing.
pub async fn settle(user: &Caller, id: &str) -> pb::Erasure {
    let mut client: ErasureJournalServiceClient<RpcChannel> = user.journal();
    let mut last = None;
    for step in ["ledger", "session", "working"] {
        let request = internal::SettleErasureRequest { erasure_id: id.into(), step: step.into(), ..Default::default() };
        last = client.settle_erasure(request).await.expect("settled").into_inner().erasure;
    }
    last.expect("a receipt")
}

/// The receipt once nothing is left to do.
pub async fn closed(user: &Caller, id: &str) -> pb::Erasure {
    settle(user, id).await;
    eventually(Duration::from_secs(30), async || receipt(user, id).await.state() != pb::ErasureState::Running).await;
    receipt(user, id).await
}

pub fn store<'a>(receipt: &'a pb::Erasure, name: &str) -> &'a pb::ErasedStore {
    receipt.stores.iter().find(|store| store.store == name).unwrap_or_else(|| panic!("{name} is not in {receipt:?}"))
}

async fn entity(user: &Caller, name: &str, said: &str) -> String {
    let request = pb::PutEntityRequest {
        user_id: user.user.clone(),
        agent_id: user.agent.clone(),
        r#type: "project".into(),
        name: name.into(),
        provenance: Some(provenance(&says(said))),
        ..Default::default()
    };
    user.client().put_entity(request).await.expect("served").into_inner().entity.expect("an entity").entity_id
}

async fn skill(user: &Caller, name: &str, step: &str) -> String {
    let request = pb::PutSkillRequest {
        user_id: user.user.clone(),
        agent_id: user.agent.clone(),
        name: name.into(),
        triggers: vec![format!("how to {name}")],
        steps: vec![step.into()],
        provenance: Some(provenance(&says(&format!("to {name}: {step}")))),
        ..Default::default()
    };
    user.client().put_skill(request).await.expect("served").into_inner().skill.expect("a skill").skill_id
}

/// Archives a session whose turns are these; the summary is their first one.
async fn archive(user: &Caller, world: &World, session_id: &str, turns: &[(session::Role, &str)]) -> String {
    let now = Some(wire_time(strata_core::Clock::now(&world.clock)));
    let wire = |(at, (role, text)): (usize, &(session::Role, &str))| session::Turn {
        session_id: session_id.into(),
        seq: at as u32 + 1,
        role: (*role).into(),
        text: (*text).into(),
        time: now,
        ..Default::default()
    };
    let part = internal::ArchiveSessionRequest {
        user_id: user.user.clone(),
        agent_id: user.agent.clone(),
        session_id: session_id.into(),
        incarnation: 1,
        turns: turns.iter().enumerate().map(wire).collect(),
        ..Default::default()
    };
    user.target().archive_session(part.clone()).await.expect("archived");
    let sentence = |(at, (role, text)): (usize, &(session::Role, &str))| internal::ArchivedSentence {
        text: (*text).into(),
        seqs: vec![at as u32 + 1],
        quote: (*text).into(),
        user: *role == session::Role::User,
    };
    let last = internal::ArchiveSessionRequest {
        turns: Vec::new(),
        complete: true,
        sentences: turns.iter().enumerate().map(sentence).collect(),
        ..part
    };
    user.target().archive_session(last).await.expect("completed").into_inner().episode.expect("an episode").episode_id
}

#[tokio::test]
async fn a169_a170_a173_a177_c018_an_erased_record_is_nowhere_and_the_audit_says_so_without_content() {
    let world = World::new().await;
    let user = world.user("u1");
    let kept = id(&user.remember(says("I drink green tea every morning")).await.expect("stored"));
    let gone = id(&user.remember(states("locker.code", "ZX-4471", "my locker code is ZX-4471")).await.expect("stored"));
    world.later(SECOND).await;
    assert!(world.files_hold("ZX-4471"), "the search itself finds what is there");
    let begun = erase_ids(&user, &[&gone]).await;
    assert_eq!((begun.state(), begun.memories), (pb::ErasureState::Running, 1));
    let waits: Vec<&str> = begun.pending.iter().map(|step| step.step.as_str()).collect();
    assert_eq!(waits, ["ledger", "session", "working"], "this role has done its own: {begun:?}");
    assert_eq!(user.get(&gone).await.expect_err("gone").reason, Reason::NotFound);
    assert!(user.lookup("locker.code").await.is_empty());

    let receipt = closed(&user, &begun.erasure_id).await;
    assert_eq!(receipt.state(), pb::ErasureState::Gone, "{receipt:?}");
    assert!(receipt.stores.iter().all(|store| store.verified && store.remaining == 0), "{receipt:?}");
    for (name, found) in [("longterm.records", 1), ("longterm.evidence", 1), ("longterm.index", 1)] {
        let store = store(&receipt, name);
        assert_eq!((store.found, store.removed, store.medium()), (found, found, pb::Medium::Gone), "{store:?}");
    }
    assert!(!world.files_hold("ZX-4471") && !world.files_hold("locker.code"), "no byte of it, the log of the file included");
    assert!(user.get(&kept).await.is_ok() && verify(&user, &receipt.erasure_id, &["ZX-4471"]).await.absent);

    let (entries, _) = world.database.read(ledger::verify_audit).await.expect("an unbroken chain");
    let asked = ledger::AuditAsked { user: Some("u1".into()), action: None };
    let audit = world.database.read(move |db| ledger::audited(db, "t1", &asked, 0, 100)).await.expect("entries");
    assert_eq!(entries, audit.len() as u64);
    let of_erasure: Vec<&str> = audit.iter().filter(|e| e.subject == receipt.erasure_id).map(|e| e.action.as_str()).collect();
    assert_eq!(of_erasure, ["ERASE_REQUESTED", "ERASED", "ERASE_CLOSED"]);
    let erased = audit.iter().find(|entry| entry.action == "ERASED").expect("an entry");
    assert_eq!(
        (erased.memory_id.map(|id| id.to_string()).as_deref(), erased.reason.as_str()),
        (Some(gone.as_str()), "the user asked for it")
    );
}

#[tokio::test]
async fn c016_c017_a175_everything_of_one_user_goes_and_the_neighbours_stay_byte_for_byte() {
    let world = World::unsynced(7).await;
    let (user, neighbour, twin) = (world.user("u1"), world.user("u2"), world.user("u1").tenant("t2"));
    for n in 0..250 {
        user.remember(says(&format!("I keep {n}7 canary-4471 stamps in box {n}"))).await.expect("stored");
    }
    for other in [&neighbour, &twin] {
        for n in 0..3 {
            other.remember(says(&format!("I keep {n}7 canary-4471 stamps in box {n}"))).await.expect("stored");
        }
    }
    let before = [neighbour.list(pb::RecallFilter::default()).await, twin.list(pb::RecallFilter::default()).await];
    world.later(SECOND).await;
    let begun = erase_all(&user).await;
    let receipt = closed(&user, &begun.erasure_id).await;
    assert_eq!((receipt.memories, store(&receipt, "longterm.records").removed), (250, 250));
    let left = "SELECT (SELECT count(*) FROM records r JOIN users u USING (user_id) WHERE u.tenant = 't1' AND u.user = 'u1') + \
        (SELECT count(*) FROM evidence e JOIN owners o USING (owner_id) JOIN users u USING (user_id) WHERE u.tenant = 't1' AND u.user = 'u1') + \
        (SELECT count(*) FROM owner_terms e JOIN owners o USING (owner_id) JOIN users u USING (user_id) WHERE u.tenant = 't1' AND u.user = 'u1')";
    assert_eq!(world.count(left).await, 0);
    assert_eq!([neighbour.list(pb::RecallFilter::default()).await, twin.list(pb::RecallFilter::default()).await], before);
    world.later(SECOND).await;
    let again = erase_all(&user).await;
    let again = closed(&user, &again.erasure_id).await;
    assert_eq!((again.memories, again.state()), (0, pb::ErasureState::Gone), "nothing to do is no error");
}

#[tokio::test]
async fn x12_by_agent_only_that_agents_memory_goes() {
    let world = World::new().await;
    let user = world.user("u1");
    let agents = ["health", "travel", "books"].map(|name| user.clone().agent(name));
    user.remember(says("I live at canary-1000 street")).await.expect("stored");
    for (n, agent) in agents.iter().enumerate() {
        agent.remember(says(&format!("I keep canary-20{n}0 papers"))).await.expect("stored");
    }
    world.later(SECOND).await;
    let one = erase_all(&agents[0]).await;
    closed(&user, &one.erasure_id).await;
    let left = user.list(pb::RecallFilter::default()).await;
    assert_eq!(left.len(), 3, "{left:?}");
    assert!(left.iter().all(|memory| !memory.content.contains("canary-2000")));
    world.later(SECOND).await;
    let all = erase_all(&user).await;
    closed(&user, &all.erasure_id).await;
    assert!(user.list(pb::RecallFilter::default()).await.is_empty());
    assert!(!world.files_hold("canary-20") && !world.files_hold("canary-1000"));
}

#[tokio::test]
async fn e7_e6_c029_what_was_erased_does_not_come_back_and_what_the_user_says_later_does() {
    let world = World::new().await;
    let user = world.user("u1");
    let said = strata_core::Clock::now(&world.clock);
    let statement = || states("locker.code", "ZX-4471", "my locker code is ZX-4471");
    let key = uuid::Uuid::from_u128(4471 | 4 << 76 | 2 << 62);
    let first = user.clone().said(said).remember_as(statement(), Some(key)).await.expect("stored");
    let export = exported(&user).await;
    world.later(SECOND).await;
    closed(&user, &erase_ids(&user, &[&id(&first)]).await.erasure_id).await;

    let late = user.clone().said(said);
    let other_words = pb::Statement { content: "the locker code is ZX-4471".into(), ..statement() };
    for refused in [
        late.remember(statement()).await,
        late.propose(statement()).await,
        late.remember(other_words).await,
        user.remember_as(statement(), Some(key)).await,
    ] {
        let refused = refused.expect_err("does not come back");
        assert!(matches!(refused.reason, Reason::Forgotten | Reason::RequestIdReused), "{refused:?}");
    }
    // As it was; without its signature, as another deployment's; that under another id.
    let unsigned = |change: fn(&mut pb::Memory)| {
        let mut lines = export.clone();
        for line in &mut lines {
            line.signature.clear();
            if let Some(pb::export_line::Part::Memory(exported)) = &mut line.part {
                change(exported.memory.as_mut().expect("a memory"));
            }
        }
        lines
    };
    let renamed = unsigned(|memory| memory.memory_id = uuid::Uuid::from_u128(99 | 7 << 76 | 2 << 62).to_string());
    for lines in
        [export.clone(), unsigned(|_| {}), renamed, unsigned(|memory| memory.content = "my locker has code ZX-4471".into())]
    {
        let answer = import(&user, lines).await;
        assert_eq!((answer.added, answer.refused), (0, 1), "{answer:?}");
        assert_eq!(answer.refusals[0].reason, "FORGOTTEN");
    }
    assert_eq!(world.count("SELECT count(*) FROM records").await, 0);

    world.later(SECOND).await;
    let again = user.remember(statement()).await.expect("a later statement passes");
    assert_ne!(id(&again), id(&first));
    assert_eq!(user.values("locker.code").await, ["ZX-4471"]);
    let epochs = (memory(&again).owner_epoch, memory(&first).owner_epoch);
    assert!(epochs.0 > epochs.1, "rule P3: epochs never go back, the key's own row went: {epochs:?}");
}

fn memory(result: &pb::WriteResult) -> &pb::Memory {
    result.memory.as_ref().expect("a record")
}

async fn exported(user: &Caller) -> Vec<pb::ExportLine> {
    use futures::TryStreamExt as _;
    let request =
        pb::ExportMemoriesRequest { user_id: user.user.clone(), scope: pb::ExportScope::All.into(), ..Default::default() };
    let lines = user.client().export_memories(request).await.expect("served").into_inner();
    lines.map_ok(|answer| answer.line.expect("a line")).try_collect().await.expect("whole")
}

async fn import(user: &Caller, lines: Vec<pb::ExportLine>) -> pb::ImportMemoriesResponse {
    let first = pb::ImportMemoriesRequest { user_id: user.user.clone(), ..Default::default() };
    let lines = lines.into_iter().map(|line| pb::ImportMemoriesRequest { line: Some(line), ..Default::default() });
    let stream = futures::stream::iter(std::iter::once(first).chain(lines).collect::<Vec<_>>());
    user.client().import_memories(stream).await.expect("served").into_inner()
}

#[tokio::test]
async fn e9_a_predecessor_of_an_erased_record_stays_superseded() {
    let world = World::new().await;
    let user = world.user("u1");
    let old = id(&user.remember(states("seat", "aisle", "I want an aisle seat")).await.expect("stored"));
    world.later(SECOND).await;
    let new = id(&user.remember(states("seat", "window", "no, I want a window seat")).await.expect("stored"));
    world.later(SECOND).await;
    closed(&user, &erase_ids(&user, &[&new]).await.erasure_id).await;
    let left = user.get(&old).await.expect("stays");
    assert_eq!((left.status(), left.superseded_by.as_str()), (pb::Status::Superseded, ""));
    assert!(left.reason.contains("E9"), "{}", left.reason);
    assert!(user.lookup("seat").await.is_empty(), "no value comes back into force");
    let history = user.history_of("seat").await;
    assert_eq!(history.memories.len(), 1);
    // The chain is whole for what comes next.
    world.later(SECOND).await;
    user.remember(states("seat", "middle", "I take a middle seat from now on")).await.expect("stored");
    assert_eq!(user.values("seat").await, ["middle"]);
}

#[tokio::test]
async fn x07_protected_and_constraint_records_go_when_their_user_asks() {
    let world = World::new().await;
    let user = world.user("u1");
    let protected = pb::Statement { protected: true, importance: 1, ..says("I am allergic to canary-9000 peanuts") };
    let constraint = pb::Statement { kind: pb::Kind::Constraint.into(), ..says("never book canary-9001 flights") };
    let ids = [id(&user.remember(protected).await.expect("stored")), id(&user.remember(constraint).await.expect("stored"))];
    world.later(SECOND).await;
    let done = closed(&user, &erase_ids(&user, &[&ids[0], &ids[1]]).await.erasure_id).await;
    assert_eq!(done.memories, 2);
    assert!(!world.files_hold("canary-900"));
}

#[tokio::test]
async fn e2_c027_a176_what_was_derived_from_it_goes_and_what_was_not_stays() {
    let world = World::new().await;
    let user = world.user("u1");
    let quote = "Project Heron starts on 14 March and I like mint tea";
    let of_turn = |content: &str| pb::Statement { source_quote: quote.into(), source_ref: Some(turn("s1", 1)), ..says(content) };
    let gone = id(&user.remember(of_turn("Project Heron starts on 14 March")).await.expect("stored"));
    let kept = id(&user.remember(of_turn("I like mint tea")).await.expect("stored"));
    let other = id(&user.remember(says("Bolun runs Project Heron")).await.expect("stored"));
    let inferred = from(pb::Source::ModelInference, says("Project Heron starts on 14 March, they say"));
    user.propose(inferred).await.expect("a candidate");
    let heron = entity(&user, "Project Heron", "remember Project Heron").await;
    let bolun = entity(&user, "Bolun", "Bolun runs Project Heron").await;
    skill(&user, "start Project Heron", "call the Heron desk").await;
    let untouched = skill(&user, "make tea", "boil water").await;
    let turns = [
        (session::Role::User, quote),
        (session::Role::Assistant, "Noted: ｐｒｏｊｅｃｔ  heron, 14 March."),
        (session::Role::User, "what is the weather like"),
    ];
    archive(&user, &world, "s1", &turns).await;
    world.later(SECOND).await;

    let request = pb::EraseMemoriesRequest { mentions: vec!["project heron".into()], ..asks(&user) };
    let begun = erase(&user, request).await.expect("served").erasure.expect("begun");
    let receipt = closed(&user, &begun.erasure_id).await;
    assert_eq!(receipt.state(), pb::ErasureState::Gone, "{receipt:?}");
    for (id, left) in [(&gone, false), (&other, false), (&kept, true)] {
        assert_eq!(user.get(id).await.is_ok(), left, "{id}");
    }
    let by_id =
        |entity_id: &str| pb::GetEntityRequest { user_id: "u1".into(), entity_id: entity_id.into(), ..Default::default() };
    assert!(user.client().get_entity(by_id(&heron)).await.is_err());
    assert!(user.client().get_entity(by_id(&bolun)).await.is_ok(), "what only its words told of it is redacted");
    let skills = user.client().list_skills(pb::ListSkillsRequest { user_id: "u1".into(), ..Default::default() }).await;
    let skills = skills.expect("served").into_inner().skills;
    assert_eq!(skills.iter().map(|skill| skill.skill_id.as_str()).collect::<Vec<_>>(), [untouched.as_str()]);
    let episodes = user.client().list_episodes(pb::ListEpisodesRequest { user_id: "u1".into(), ..Default::default() }).await;
    let episode = episodes.expect("served").into_inner().episodes.pop().expect("the episode stays");
    assert!(episode.summary.iter().all(|sentence| !sentence.text.to_lowercase().contains("heron")), "{episode:?}");
    for bytes in ["Heron", "heron", "ｈｅｒｏｎ", "14 March"] {
        assert!(!world.files_hold(bytes), "{bytes} is still in a file");
    }
    assert!(world.files_hold("what is the weather like") && world.files_hold("I like mint tea"));
    let found = verify(&user, &receipt.erasure_id, &["Heron", "14 March"]).await;
    assert!(found.absent && found.unanswered.is_empty(), "{found:?}");
}

#[tokio::test]
async fn e2_by_id_a_value_is_taken_out_of_turns_and_other_records_are_named_not_taken() {
    let world = World::new().await;
    let user = world.user("u1");
    let gone = id(&user.remember(says("my insurance number is KV-882135947-Q")).await.expect("stored"));
    let other = id(&user.remember(says("KV-882135947-Q is paid by my employer")).await.expect("stored"));
    let turns =
        [(session::Role::User, "my insurance number is KV-882135947-Q"), (session::Role::Assistant, "kv 882135947 q, noted.")];
    archive(&user, &world, "s9", &turns).await;
    world.later(SECOND).await;
    let receipt = closed(&user, &erase_ids(&user, &[&gone]).await.erasure_id).await;
    assert_eq!(receipt.memories, 1);
    assert_eq!(receipt.also_mentioned_by, std::slice::from_ref(&other), "not asked for: said, not taken");
    assert_eq!(store(&receipt, "longterm.archived_turns").removed, 2, "{receipt:?}");
    assert!(user.get(&other).await.is_ok());
    assert!(!world.files_hold("kv 882135947 q"));
    let both = closed(&user, &erase_ids(&user, &[&other]).await.erasure_id).await;
    assert!(both.also_mentioned_by.is_empty());
    assert!(!world.files_hold("882135947"));
}

#[tokio::test]
async fn e2_chinese_full_width_and_hidden_characters_are_found_in_archived_turns() {
    let world = World::new().await;
    let user = world.user("u1");
    let gone = id(&user.remember(says("我的储物柜编号是ＺＸ－４４７１")).await.expect("stored"));
    let turns = [
        (session::Role::User, "我的储物柜编号是ZX-4471，请记住"),
        (session::Role::Assistant, "好的，zx\u{200b}4471 \u{202e}📦 已记下"),
        (session::Role::User, "今天天气怎么样"),
    ];
    archive(&user, &world, "s1", &turns).await;
    world.later(SECOND).await;
    let receipt = closed(&user, &erase_ids(&user, &[&gone]).await.erasure_id).await;
    assert_eq!(store(&receipt, "longterm.archived_turns").removed, 2, "{receipt:?}");
    for bytes in ["4471", "４４７１", "储物柜"] {
        assert!(!world.files_hold(bytes), "{bytes}");
    }
    assert!(world.files_hold("今天天气怎么样"));
}

#[tokio::test]
async fn what_is_named_wrongly_is_refused_and_nothing_is_begun() {
    let world = World::new().await;
    let user = world.user("u1");
    let mine = id(&user.remember(says("my locker code is ZX-4471")).await.expect("stored"));
    let ids = || vec![mine.clone()];
    for (request, reason) in [
        (pb::EraseMemoriesRequest { ..asks(&user) }, Reason::InvalidField),
        (pb::EraseMemoriesRequest { memory_ids: ids(), everything: true, ..asks(&user) }, Reason::InvalidField),
        (pb::EraseMemoriesRequest { filter: Some(pb::RecallFilter::default()), ..asks(&user) }, Reason::InvalidField),
        (pb::EraseMemoriesRequest { mentions: vec!["ab".into()], ..asks(&user) }, Reason::InvalidField),
        (pb::EraseMemoriesRequest { memory_ids: ids(), reason: String::new(), ..asks(&user) }, Reason::InvalidField),
        (
            pb::EraseMemoriesRequest { memory_ids: ids(), reason: "because my locker code is ZX-4471".into(), ..asks(&user) },
            Reason::InvalidField,
        ),
    ] {
        assert_eq!(erase(&user, request).await.expect_err("refused").reason, reason);
    }
    let unknown = "01890000-0000-7000-8000-000000000000".to_owned();
    let none = erase(&user, pb::EraseMemoriesRequest { memory_ids: vec![unknown.clone()], ..asks(&user) }).await.expect("served");
    assert!(none.erasure.is_none() && none.not_found == [unknown]);
    let foreign = world.user("u2");
    let theirs = erase(&foreign, pb::EraseMemoriesRequest { memory_ids: ids(), ..asks(&foreign) }).await.expect("served");
    assert!(theirs.erasure.is_none(), "another user's record is not found");
    assert!(user.get(&mine).await.is_ok());
    assert_eq!(world.count("SELECT count(*) FROM erasures").await, 0);
    let begun = erase_ids(&user, &[&mine]).await;
    let request = pb::GetErasureRequest { user_id: "u2".into(), erasure_id: begun.erasure_id };
    let fault = error::fault(&foreign.client().get_erasure(request).await.expect_err("another user's"));
    assert_eq!(fault.reason, Reason::NotFound);
}

#[tokio::test]
async fn the_same_request_answers_with_the_same_erasure_and_a_filter_takes_every_status() {
    let world = World::new().await;
    let user = world.user("u1");
    let tagged = |content: &str| pb::Statement { tags: vec!["trip".into()], ..says(content) };
    let a = id(&user.remember(tagged("I sleep at canary-7000 inn")).await.expect("stored"));
    user.remember(tagged("I eat at canary-7001 inn")).await.expect("stored");
    user.propose(from(pb::Source::ModelInference, tagged("likes canary-7002 inns"))).await.expect("a candidate");
    let kept = id(&user.remember(says("I drink green tea every morning")).await.expect("stored"));
    user.forget(&[&a], &[]).await;
    world.later(SECOND).await;
    let request = pb::EraseMemoriesRequest {
        filter: Some(pb::RecallFilter { tags: vec!["trip".into()], ..Default::default() }),
        request_id: uuid::Uuid::from_u128(9 | 4 << 76 | 2 << 62).to_string(),
        ..asks(&user)
    };
    let first = erase(&user, request.clone()).await.expect("served").erasure.expect("begun");
    let again = erase(&user, request).await.expect("served").erasure.expect("the same");
    assert_eq!((first.erasure_id.as_str(), first.memories), (again.erasure_id.as_str(), 3));
    closed(&user, &first.erasure_id).await;
    assert!(!world.files_hold("canary-700"));
    assert!(user.get(&kept).await.is_ok());
    assert!(user.restore(&[&a]).await.memories.is_empty(), "no restore brings an erased record back");
}

#[tokio::test]
async fn e2_calls_from_before_the_erasure_are_refused() {
    let world = World::new().await;
    let user = world.user("u1");
    let gone = id(&user.remember(says("my locker code is ZX-4471")).await.expect("stored"));
    let before = strata_core::Clock::now(&world.clock);
    world.later(SECOND).await;
    erase_ids(&user, &[&gone]).await;
    let system = user.clone().roles([Role::RecordSystem, Role::Reader]);
    let mut claims = system.claims(Some(strata_core::id::Level::User));
    claims.erase_epoch = u64::try_from(before.micros()).expect("after 1970");
    let mut late = pb::long_term_memory_service_client::LongTermMemoryServiceClient::new(user.channel_with(Some(claims.clone())));
    let record = pb::SystemRecord { system: "crm".into(), record_id: "1".into() };
    let statement = pb::Statement {
        source_ref: Some(pb::SourceRef { kind: Some(pb::source_ref::Kind::SystemRecord(record)) }),
        ..from(pb::Source::AuthoritativeSystem, says("the locker code is ZX-4471"))
    };
    let request = pb::RememberRequest { user_id: "u1".into(), statement: Some(statement), ..Default::default() };
    let fault = error::fault(&late.remember(request).await.expect_err("older than the erasure"));
    assert_eq!(fault.reason, Reason::StaleEraseEpoch);
    claims.erase_epoch = u64::try_from(strata_core::Clock::now(&world.clock).micros()).expect("after 1970");
    let mut now = pb::long_term_memory_service_client::LongTermMemoryServiceClient::new(user.channel_with(Some(claims)));
    let list = pb::ListMemoriesRequest { user_id: "u1".into(), ..Default::default() };
    assert!(now.list_memories(list).await.is_ok());
}

#[tokio::test]
async fn e2_an_erasure_goes_on_by_itself_after_a_stop_at_any_step() {
    let world = World::new().await;
    let user = world.user("u1");
    let gone = id(&user.remember(says("my locker code is ZX-4471")).await.expect("stored"));
    world.later(SECOND).await;
    let begun = erase_ids(&user, &[&gone]).await;
    // As a process leaves it that died: some steps done, others not, in every combination.
    for left in 0..16_u32 {
        let steps: Vec<&str> = ["log", "records", "derived", "index"]
            .into_iter()
            .enumerate()
            .filter(|(n, _)| left & (1 << n) != 0)
            .map(|(_, s)| s)
            .collect();
        let id = uuid::Uuid::parse_str(&begun.erasure_id).expect("a UUID");
        let put = move |db: &rusqlite::Connection| {
            for step in &steps {
                db.execute("INSERT OR IGNORE INTO erasure_steps (erasure_id, step) VALUES (?1, ?2)", (id.as_bytes(), step))?;
            }
            Ok::<(), strata_runtime::sqlite::SqliteError>(())
        };
        world.database.write(put).await.expect("written");
        eventually(Duration::from_secs(30), async || {
            world.count("SELECT count(*) FROM erasure_steps WHERE step NOT IN ('ledger', 'session', 'working')").await == 0
        })
        .await;
    }
    let receipt = closed(&user, &begun.erasure_id).await;
    assert_eq!(store(&receipt, "longterm.records").removed, 1, "once, however often it is repeated");
    assert!(!world.files_hold("ZX-4471"));
}

#[tokio::test]
async fn e4_a_step_that_cannot_be_done_is_stated_and_the_rest_goes_on() {
    let world = World::new().await;
    let user = world.user("u1");
    let gone = id(&user.remember(says("my locker code is ZX-4471")).await.expect("stored"));
    world.later(SECOND).await;
    let begun = erase_ids(&user, &[&gone]).await;
    let problem = internal::SettleErasureRequest {
        erasure_id: begun.erasure_id.clone(),
        step: "session".into(),
        problem: "the session store does not answer".into(),
        ..Default::default()
    };
    let stated = user.journal().settle_erasure(problem).await.expect("taken").into_inner().erasure.expect("a receipt");
    let session = stated.pending.iter().find(|step| step.step == "session").expect("waits");
    assert_eq!((session.attempts, session.problem.as_str()), (1, "the session store does not answer"));
    assert_eq!((stated.state(), store(&stated, "longterm.records").removed), (pb::ErasureState::Running, 1));
    // What a layer found when it looked again holds the erasure open.
    let left = internal::SettleErasureRequest {
        erasure_id: begun.erasure_id.clone(),
        step: "session".into(),
        stores: vec![internal::StoreErasure {
            store: "session.turns".into(),
            found: 2,
            removed: 1,
            remaining: 1,
            ..Default::default()
        }],
        ..Default::default()
    };
    let open = user.journal().settle_erasure(left).await.expect("taken").into_inner().erasure.expect("a receipt");
    assert!(open.pending.iter().any(|step| step.step == "session"), "{open:?}");
    assert_eq!(closed(&user, &begun.erasure_id).await.state(), pb::ErasureState::Gone);
}

#[tokio::test]
async fn a174_e3_backups_are_named_until_they_are_gone_and_the_signature_covers_the_receipt() {
    let world = World::new().await;
    let user = world.user("u1");
    let gone = id(&user.remember(says("my locker code is ZX-4471")).await.expect("stored"));
    let operator = user.clone().roles([Role::Operator, Role::Auditor]);
    let mut admin = strata_api::admin::v1::admin_service_client::AdminServiceClient::new(
        operator.channel_with(Some(operator.claims(Some(strata_core::id::Level::User)))),
    );
    let made = admin.backup(strata_api::admin::v1::BackupRequest::default()).await.expect("a backup").into_inner();
    world.later(SECOND).await;
    let receipt = closed(&user, &erase_ids(&user, &[&gone]).await.erasure_id).await;
    let backups = store(&receipt, "backups");
    assert_eq!((backups.found, backups.remaining, backups.medium()), (1, 1, pb::Medium::Pending), "{backups:?}");
    assert!(backups.gone_by.is_some() && receipt.state() == pb::ErasureState::Erased);
    std::fs::remove_file(&made.path).expect("deleted");
    let end = crate::erase::receipt(&user, &receipt.erasure_id).await;
    assert_eq!(end.state(), pb::ErasureState::Gone, "{end:?}");

    use strata_core::policy::gate::Seals;
    let seals = Seals::new(b"a secret of the tests, not of anyone");
    let tenant = strata_core::TenantId::new("t1").expect("id");
    let unsigned = pb::Erasure { signature: String::new(), ..end.clone() };
    let bytes = prost::Message::encode_to_vec(&unsigned);
    assert!(seals.verify(&tenant, "erasure", &bytes, &end.signature));
    let altered = prost::Message::encode_to_vec(&pb::Erasure { memories: 2, ..unsigned });
    assert!(!seals.verify(&tenant, "erasure", &altered, &end.signature));

    let mut audit = admin.list_audit(strata_api::admin::v1::ListAuditRequest::default()).await.expect("served").into_inner();
    let mut actions: BTreeMap<String, u32> = BTreeMap::new();
    while let Some(entry) = audit.message().await.expect("whole") {
        *actions.entry(entry.action).or_default() += 1;
    }
    for action in ["ACTIVE", "BACKUP", "ERASE_REQUESTED", "ERASED", "ERASE_CLOSED"] {
        assert_eq!(actions.get(action), Some(&1), "{actions:?}");
    }
    let chain = admin.verify_audit(strata_api::admin::v1::VerifyAuditRequest {}).await.expect("unbroken").into_inner();
    assert_eq!(chain.entries, u64::from(actions.values().sum::<u32>()));
}

#[tokio::test]
async fn e8_a_copy_of_the_log_that_holds_as_many_lines_but_others_is_filled() {
    use strata_longterm::erasure_log::{ErasureLog, Line, LogCopy};
    use strata_runtime::TaskGroup;
    use strata_runtime::redis_store::{RedisPool, RedisSettings};
    let redis = strata_testkit::redis::RedisServer::start();
    let pool = RedisPool::connect(&redis.url().into(), RedisSettings::default()).expect("a legal URL");
    let folder = tempfile::tempdir().expect("a folder");
    let log = ErasureLog::open(folder.path()).expect("opens");
    let line = |number: u128| Line {
        erasure_id: uuid::Uuid::from_u128(number),
        tenant: "t1".into(),
        user: "u1".into(),
        agent: String::new(),
        everything: true,
        epoch: 1,
        actor: "key:test".into(),
        reason: "the user asked for it".into(),
        request_time: i64::try_from(number).expect("small"),
        close_time: None,
        records: [].into(),
        turns: [].into(),
        tombstones: [].into(),
        entities: [].into(),
        skills: [].into(),
        episodes: [].into(),
        redacted: [].into(),
    };
    let ours = [line(1), line(2)];
    for line in &ours {
        log.append(line).expect("written");
    }
    let copy = LogCopy::new(pool.clone(), b"a secret of the tests, not of anyone");
    copy.put(&ours[..1]).await.expect("there");
    // Of another deployment on the same Redis.
    LogCopy::new(pool, b"another secret of the tests").put(&[line(3)]).await.expect("there");
    assert_eq!(copy.read().await.expect("read").lines, ours[..1]);
    copy.catch_up(&log, &TaskGroup::new()).await.expect("filled");
    let copied = copy.read().await.expect("read");
    assert_eq!((copied.lines.as_slice(), copied.foreign), (ours.as_slice(), 1));
}
