//! Rows and index say the same after any write (acceptance A87): every RPC that may write, in random order and mixed with each
//! other, on the exact index and on the wire double of Qdrant (and on a server that `QDRANT_URL` names).

use crate::consolidation::{say, summaries};
use crate::forgetting::maintain;
use crate::gate::WRITERS;
use crate::world::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use strata_api::admin::v1 as admin;
use strata_api::admin::v1::admin_service_client::AdminServiceClient;
use strata_api::convert::common::wire_time;
use strata_api::internal::v1 as internal;
use strata_api::longterm::v1 as pb;
use strata_api::session::v1 as session;
use strata_core::id::Level;
use strata_core::policy::authz::Role;
use strata_longterm::{IndexConfig, QdrantSettings};
use strata_runtime::sqlite::SqliteSettings;
use strata_testkit::fixtures::unique;
use strata_testkit::{Random, WireDouble};
use strata_text::embed::Caller as Supplied;
use uuid::Uuid;

/// Calls of one mix: each RPC comes about fifteen times.
const CALLS: usize = 320;
const SIGHTS: [&str; 6] = ["the harbour", "Mount Tai", "the old mill", "西湖", "the night market", "北门"];

/// One of these ids; of none one that nothing has.
fn any_of(random: &mut Random, ids: &[String]) -> String {
    if ids.is_empty() { Uuid::from_u128(0x7000 << 64 | 0x8000 << 48 | 7).to_string() } else { random.pick(ids).clone() }
}

/// What one user has by now.
#[derive(Default)]
struct Things {
    records: Vec<String>,
    entities: Vec<String>,
    /// By their names.
    skills: Vec<String>,
    recalls: Vec<(String, String)>,
    promotions: Vec<String>,
    summaries: Vec<String>,
}

/// A statement that no other call makes, about a slot or about none, with a vector or without.
fn statement(random: &mut Random, n: usize) -> pb::Statement {
    let sight = SIGHTS[random.below(SIGHTS.len())];
    let text = match random.below(3) {
        0 => format!("From now on, meet me at {sight}, gate {n}."),
        1 => format!("我以后都在{sight}的{n}号口等。"),
        _ => format!("I always keep locker {n} at {sight} 🙂"),
    };
    let mut made =
        if random.below(3) == 0 { states(&format!("meeting.k{}", n % 7), &format!("{sight} {n}"), &text) } else { says(&text) };
    if random.below(2) == 0 {
        made.vector = vec![0.1, 1.0 + n as f32, random.below(50) as f32];
    }
    if random.below(4) == 0 {
        made = of_kind(pb::Kind::Event, made);
    }
    pb::Statement { tags: vec!["mixed".into()], ..made }
}

/// Makes one call; whether it did something.
async fn make(rpc: &str, world: &World, user: &Caller, things: &mut Things, random: &mut Random, n: usize) -> bool {
    let user_id = user.user.clone();
    let said = statement(random, n);
    let referenced = pb::Statement { source_ref: Some(user.turn("s1")), ..said.clone() };
    let learn = |things: &mut Things, result: Option<pb::WriteResult>| {
        let memory = result.and_then(|result| result.memory);
        things.records.extend(memory.iter().map(|memory| memory.memory_id.clone()));
        memory.is_some()
    };
    match rpc {
        "Remember" => learn(things, user.remember(said).await.ok()),
        "Propose" => {
            let guess = random.below(2) == 0;
            let said = if guess { from(pb::Source::ModelInference, said) } else { said };
            learn(things, user.propose(said).await.ok())
        }
        "Apply" => {
            let promotion_id = format!("mixed-{user_id}-{n}");
            let request = internal::ApplyRequest {
                user_id,
                promotion_id: promotion_id.clone(),
                statement: Some(referenced),
                deadline: Some(wire_time(strata_core::Clock::now(&world.clock).plus(DAY))),
                ..Default::default()
            };
            things.promotions.push(promotion_id);
            learn(things, user.target().apply(request).await.ok().and_then(|answer| answer.into_inner().result))
        }
        "Abort" => {
            let request = internal::AbortRequest { user_id, promotion_id: any_of(random, &things.promotions) };
            user.target().abort(request).await.is_ok()
        }
        "UpdateMemory" => {
            let labels = random.below(2) == 0;
            let memory = pb::MemoryPatch {
                importance: 1 + i32::try_from(n % 5).expect("small"),
                tags: vec![format!("t{n}")],
                ..Default::default()
            };
            let request = pb::UpdateMemoryRequest {
                user_id,
                memory_id: any_of(random, &things.records),
                memory: labels.then_some(memory),
                update_mask: labels.then(|| prost_types::FieldMask { paths: vec!["importance".into(), "tags".into()] }),
                statement: (!labels).then_some(referenced),
                ..Default::default()
            };
            learn(things, user.client().update_memory(request).await.ok().and_then(|answer| answer.into_inner().result))
        }
        "ImportMemories" => {
            let memory = pb::Memory {
                user_id: user_id.clone(),
                kind: said.kind,
                content: said.content.clone(),
                source: said.source,
                source_ref: referenced.source_ref,
                source_quote: said.source_quote,
                importance: 3,
                status: pb::Status::Active.into(),
                ..Default::default()
            };
            let header = pb::ExportHeader {
                format: 1,
                tenant_id: user.tenant.clone(),
                user_id: user_id.clone(),
                lines: 1,
                counts: [("ACTIVE".to_owned(), 1)].into(),
                ..Default::default()
            };
            let line = |part| pb::ImportMemoriesRequest {
                line: Some(pb::ExportLine { part: Some(part), signature: String::new() }),
                ..Default::default()
            };
            let memory = pb::ExportedMemory { memory: Some(memory), ..Default::default() };
            let first = pb::ImportMemoriesRequest { user_id, ..line(pb::export_line::Part::Header(header)) };
            let messages = [first, line(pb::export_line::Part::Memory(memory))];
            let done = user.client().import_memories(futures::stream::iter(messages)).await;
            done.is_ok_and(|done| done.into_inner().refusals.is_empty())
        }
        "SyncFacts" => {
            let facts = (0..3)
                .map(|k| pb::SystemFact {
                    record_id: format!("r{}", (n + k) % 11),
                    key: format!("asset.k{}", (n + k) % 11),
                    content: format!("Asset {} stands in room {n}.", (n + k) % 11),
                    removed: (n + k).is_multiple_of(4),
                    ..Default::default()
                })
                .collect();
            let request = pb::SyncFactsRequest { user_id, system: "hr".into(), facts, ..Default::default() };
            user.clone().roles([Role::RecordSystem]).client().sync_facts(request).await.is_ok()
        }
        "ConfirmCandidate" => {
            let waiting: Vec<String> =
                user.candidates(false).await.into_iter().filter_map(|one| Some(one.memory?.memory_id)).collect();
            learn(things, user.confirm(&any_of(random, &waiting)).await.ok())
        }
        "RejectCandidate" => {
            let waiting: Vec<String> =
                user.candidates(false).await.into_iter().filter_map(|one| Some(one.memory?.memory_id)).collect();
            user.reject(&any_of(random, &waiting)).await.is_ok()
        }
        "ForgetMemories" => {
            let id = any_of(random, &things.records);
            let request =
                pb::ForgetMemoriesRequest { user_id, memory_ids: vec![id], reason: "asked for".into(), ..Default::default() };
            user.client().forget_memories(request).await.is_ok()
        }
        "RestoreMemories" => {
            let memory_ids = vec![any_of(random, &things.records)];
            let request = pb::RestoreMemoriesRequest { user_id, memory_ids, ..Default::default() };
            user.client().restore_memories(request).await.is_ok()
        }
        "EraseMemories" => {
            let memory_ids = vec![any_of(random, &things.records)];
            let request = pb::EraseMemoriesRequest { user_id, memory_ids, reason: "asked for".into(), ..Default::default() };
            user.client().erase_memories(request).await.is_ok()
        }
        "UndoConsolidation" => {
            let request =
                pb::UndoConsolidationRequest { user_id, memory_id: any_of(random, &things.summaries), ..Default::default() };
            user.client().undo_consolidation(request).await.is_ok()
        }
        "PutEntity" => {
            let name = format!("Lin{n}");
            let request = pb::PutEntityRequest {
                user_id,
                r#type: "person".into(),
                name: name.clone(),
                provenance: Some(provenance(&says(&format!("remember {name}")))),
                ..Default::default()
            };
            let put = user.client().put_entity(request).await.ok().and_then(|answer| answer.into_inner().entity);
            things.entities.extend(put.iter().map(|entity| entity.entity_id.clone()));
            put.is_some()
        }
        "LinkEntities" => {
            let list = pb::ListEntitiesRequest { user_id: user_id.clone(), ..Default::default() };
            let there = user.client().list_entities(list).await.expect("served").into_inner().entities;
            let [one, .., other] = there.as_slice() else { return false };
            let request = pb::LinkEntitiesRequest {
                user_id,
                from_id: one.entity_id.clone(),
                relation: "leads".into(),
                to_id: other.entity_id.clone(),
                provenance: Some(provenance(&says(&format!("{} leads {}", one.name, other.name)))),
                ..Default::default()
            };
            user.client().link_entities(request).await.is_ok()
        }
        "DeleteEntity" => {
            let request = pb::DeleteEntityRequest { user_id, entity_id: any_of(random, &things.entities), ..Default::default() };
            user.client().delete_entity(request).await.is_ok()
        }
        "PutSkill" => {
            let (name, step) = (format!("rounds {n}"), format!("open door {n}"));
            let request = pb::PutSkillRequest {
                user_id,
                name: name.clone(),
                triggers: vec![format!("walk the {name}")],
                steps: vec![step.clone()],
                provenance: Some(provenance(&says(&format!("From now on, to walk the {name}: {step}")))),
                ..Default::default()
            };
            let put = user.client().put_skill(request).await.ok().and_then(|answer| answer.into_inner().skill);
            things.skills.extend(put.iter().map(|skill| skill.name.clone()));
            put.is_some()
        }
        "DeleteSkill" => {
            let request = pb::DeleteSkillRequest { user_id, name: any_of(random, &things.skills), ..Default::default() };
            user.client().delete_skill(request).await.is_ok()
        }
        "ArchiveSession" => {
            let turn = session::Turn {
                seq: 1,
                role: session::Role::User.into(),
                text: said.content,
                time: Some(wire_time(strata_core::Clock::now(&world.clock))),
                ..Default::default()
            };
            let turns = internal::ArchiveSessionRequest {
                user_id,
                session_id: format!("mixed-{n}"),
                incarnation: 1,
                turns: vec![turn],
                ..Default::default()
            };
            let end = internal::ArchiveSessionRequest { turns: Vec::new(), complete: true, ..turns.clone() };
            user.target().archive_session(turns).await.is_ok() && user.target().archive_session(end).await.is_ok()
        }
        "RecordContext" => {
            let recall_id = Uuid::from_u128((n as u128 + 1) << 80 | 4 << 76 | 2 << 62).to_string();
            let shown = any_of(random, &things.records);
            let request = internal::RecordContextRequest {
                user_id,
                recall_id: recall_id.clone(),
                memory_ids: vec![shown.clone()],
                memory_tokens: 9,
                request_tokens: 90,
                ..Default::default()
            };
            let done = user.target().record_context(request).await.is_ok();
            things.recalls.push((recall_id, shown));
            done
        }
        "ReportUsage" => {
            let Some((recall_id, shown)) = things.recalls.pop() else { return false };
            let request = pb::ReportUsageRequest { user_id, recall_id, memory_ids: vec![shown], ..Default::default() };
            user.client().report_usage(request).await.is_ok()
        }
        other => panic!("{other} may write and is not in the mix: enter how"),
    }
}

/// What VerifyConsistency finds; and that it looked at every record.
async fn differences(world: &World) -> (Vec<admin::Difference>, u64) {
    let operator = world.user("operator");
    let mut client = AdminServiceClient::new(operator.channel_with(Some(operator.claims(Some(Level::User)))));
    let (mut found, mut records) = (Vec::new(), 0);
    let mut request = admin::VerifyConsistencyRequest { page_size: 100, ..Default::default() };
    loop {
        let page = client.verify_consistency(request.clone()).await.expect("a page").into_inner();
        records += page.records;
        found.extend(page.differences);
        if page.next_page_token.is_empty() {
            return (found, records);
        }
        request.page_token = page.next_page_token;
    }
}

async fn mixed(index: IndexConfig, seed: u64) {
    let directory = tempfile::tempdir().expect("a directory");
    let embedder = Arc::new(Supplied::new("theirs@1", 3));
    let world =
        World::indexed(directory, 7, Some(embedder), SqliteSettings::default(), index, strata_testkit::ManualClock::at(START))
            .await;
    let users = [world.user("u1"), world.user("u1").tenant("t2"), world.user("用户")];
    let mut things: Vec<Things> = Vec::new();
    for user in &users {
        let mut own = Things::default();
        // More than twenty of one topic: there is a consolidation to undo.
        say(&world, user, "en", 21).await;
        maintain(&world).await;
        own.summaries = summaries(user).await.into_iter().map(|memory| memory.memory_id).collect();
        // An operator's run is of one tenant.
        assert_eq!(own.summaries.len(), usize::from(user.tenant == "t1"));
        things.push(own);
    }
    let (mut random, mut done) = (Random(seed), BTreeMap::<&str, usize>::new());
    for n in 0..CALLS {
        let (of, rpc) = (random.below(users.len()), WRITERS[random.below(WRITERS.len())].0);
        let did = make(rpc, &world, &users[of], &mut things[of], &mut random, n).await;
        *done.entry(rpc).or_default() += usize::from(did);
        if n % 40 == 39 {
            world.later(1_000_000).await;
            let (found, records) = differences(&world).await;
            assert!(found.is_empty(), "after call {n}: {found:?}");
            assert!(records > 0);
        }
    }
    // A round of maintenance is a write as well.
    world.later(40 * DAY).await;
    maintain(&world).await;
    world.settled().await;
    let (found, records) = differences(&world).await;
    assert!(found.is_empty(), "{found:?}");
    assert_eq!(i64::try_from(records).expect("few"), world.count("SELECT count(*) FROM records").await);
    let idle: Vec<&str> = WRITERS.iter().map(|(name, _)| *name).filter(|name| done.get(name).is_none_or(|n| *n == 0)).collect();
    assert!(idle.is_empty(), "these did nothing: {idle:?} of {done:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a87_both_sides_are_equal_after_any_write_on_the_exact_index() {
    for seed in [0x9e37_79b9_7f4a_7c15, 0x2545_f491_4f6c_dd1d] {
        mixed(IndexConfig::Exact, seed).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a87_both_sides_are_equal_after_any_write_on_qdrant() {
    let double = WireDouble::start();
    for url in std::iter::once(double.url()).chain(std::env::var("QDRANT_URL").ok()) {
        let settings = QdrantSettings { url, prefix: unique("mixed"), exact: true, ..QdrantSettings::default() };
        mixed(IndexConfig::Qdrant(settings), 0x9e37_79b9_7f4a_7c15).await;
    }
}
