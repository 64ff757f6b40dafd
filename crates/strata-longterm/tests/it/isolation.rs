//! Ten thousand calls of users who name what belongs to others: by id, key, filter, page token, request id, on every RPC of the
//! descriptor set. No answer holds a word of another user, and nothing of another user changes.
//!
//! Requests are made by the names of their fields ([`Attacker::text`]): a new RPC is attacked without being named here, and one
//! with a field of a new name fails the test until the table says what an attacker would put there.

use crate::world::*;
use futures::StreamExt as _;
use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor, Value};
use std::collections::BTreeMap;
use strata_api::internal::v1 as internal;
use strata_api::longterm::v1 as pb;
use strata_api::session::v1 as session;
use strata_core::policy::authz::Role;
use strata_runtime::channel::RpcChannel;
use strata_runtime::sqlite::SqliteError;
use strata_testkit::Random;
use tonic::{Request, Status};
use uuid::Uuid;

const SERVICE: &str = "strata.longterm.v1.LongTermMemoryService";
const CALLS: usize = 10_000;
/// Names that a careless key, pattern or prefix would confuse.
const TENANTS: [&str; 10] = ["t", "t1", "t10", "T1", "t:u", "t1*", "t%", "t_", "租户", "t/1"];
const USERS: [&str; 5] = ["u1", "u10", "u1:2", "U1", "u%"];

/// What is to be known of an owner.
#[derive(Clone, Debug, Default)]
struct Holdings {
    /// A word that stands in everything it wrote.
    marker: String,
    ids: Vec<String>,
    keys: Vec<String>,
    tokens: Vec<String>,
    requests: Vec<String>,
    recalls: Vec<String>,
    entities: Vec<String>,
    /// Names of its entities and of its skill.
    names: Vec<String>,
    /// Its whole export, signed.
    export: Vec<pb::ExportLine>,
    revision: String,
    erasures: Vec<String>,
}

fn marker(n: usize) -> String {
    format!("zebra{n:03}q")
}

/// The owners whose marker stands in these bytes.
fn markers(bytes: &[u8]) -> Vec<usize> {
    let text = String::from_utf8_lossy(bytes);
    text.match_indices("zebra").filter_map(|(at, _)| text.get(at + 5..at + 9)?.strip_suffix('q')?.parse().ok()).collect()
}

/// Gives an owner something of every kind, and learns every handle there is to it.
async fn settle(world: &World, n: usize, caller: &Caller) -> Holdings {
    let word = marker(n);
    let mut own = Holdings { marker: word.clone(), ..Holdings::default() };
    let railing = id(&caller.remember(says(&format!("I always hold the {word} railing"))).await.expect("stored"));
    let erase = pb::EraseMemoriesRequest {
        user_id: caller.user.clone(),
        memory_ids: vec![railing],
        reason: "asked for".into(),
        ..Default::default()
    };
    let begun = caller.client().erase_memories(erase).await.expect("erased").into_inner().erasure.expect("begun");
    own.erasures.push(begun.erasure_id);
    own.keys = vec!["locker.code".to_owned(), format!("locker.k{n}")];
    for (turn_no, key) in (0..).zip(own.keys.clone()) {
        for (round, value) in (0..).zip(["old", "new"]) {
            let request = Uuid::from_u128(((n as u128 + 1) << 64) | (4 << 76) | (2 << 62) | (turn_no << 8) | round);
            let statement = pb::Statement {
                tags: vec![word.clone()],
                metadata: BTreeMap::from([("note".to_owned(), word.clone())]),
                topic: word.clone(),
                ..states(&key, &format!("{word} {value}"), &format!("my locker {key} says {word} {value}"))
            };
            let result = caller.remember_as(statement, Some(request)).await.expect("stored");
            own.ids.push(id(&result));
            own.revision = result.revision;
            own.requests.push(request.to_string());
        }
    }
    let agent = caller.clone().agent("a");
    own.ids.push(id(&agent.remember(says(&format!("I always use the {word} gate"))).await.expect("stored")));
    let inferred = from(pb::Source::ModelInference, says(&format!("The {word} lounge is preferred")));
    own.ids.push(id(&caller.propose(inferred).await.expect("queued")));
    let gone = id(&caller.remember(says(&format!("I always take the {word} stairs"))).await.expect("stored"));
    caller.forget(&[&gone], &[]).await;
    own.ids.push(gone);
    name_things(caller, &mut own).await;
    let mut client = caller.client();
    let user_id = caller.user.clone();
    let list = pb::ListMemoriesRequest { user_id: user_id.clone(), page_size: 1, ..Default::default() };
    own.tokens.push(client.list_memories(list).await.expect("a page").into_inner().next_page_token);
    let history =
        pb::GetHistoryRequest { user_id: user_id.clone(), key: own.keys[0].clone(), page_size: 1, ..Default::default() };
    own.tokens.push(client.get_history(history).await.expect("a page").into_inner().next_page_token);
    for session in ["first", "second"] {
        let said = session::Turn {
            seq: 1,
            role: session::Role::User.into(),
            text: format!("I always use the {word} gate"),
            time: Some(strata_api::convert::common::wire_time(START)),
            ..Default::default()
        };
        let turns = internal::ArchiveSessionRequest {
            user_id: user_id.clone(),
            session_id: session.into(),
            incarnation: 1,
            turns: vec![said],
            ..Default::default()
        };
        let ends = internal::ArchiveSessionRequest { turns: Vec::new(), complete: true, ..turns.clone() };
        caller.target().archive_session(turns).await.expect("archived");
        caller.target().archive_session(ends).await.expect("archived");
    }
    let episodes = pb::ListEpisodesRequest { user_id: user_id.clone(), page_size: 1, ..Default::default() };
    own.tokens.push(client.list_episodes(episodes).await.expect("a page").into_inner().next_page_token);
    let export = pb::ExportMemoriesRequest { user_id: user_id.clone(), scope: pb::ExportScope::All.into(), ..Default::default() };
    let mut lines = client.export_memories(export).await.expect("a stream").into_inner();
    while let Some(line) = lines.message().await.expect("a line") {
        own.export.extend(line.line);
    }
    let recall = pb::RecallRequest { user_id, query: word, ..Default::default() };
    own.recalls.push(client.recall(recall).await.expect("found").into_inner().recall_id);
    assert!(own.tokens.iter().all(|token| !token.is_empty()));
    world.settled().await;
    own
}

/// Two entities, a relation between them, and a skill.
async fn name_things(caller: &Caller, own: &mut Holdings) {
    let (mut client, word, user_id) = (caller.client(), own.marker.clone(), caller.user.clone());
    let said = |quote: String| {
        let (source, source_ref) = (pb::Source::UserStatement.into(), Some(caller.turn("s1")));
        let trigger = pb::Trigger::UserRequest.into();
        Some(pb::Provenance { source, source_ref, source_quote: quote, trigger, ..Default::default() })
    };
    for name in [format!("{word} lounge"), format!("{word} gate")] {
        let request = pb::PutEntityRequest {
            user_id: user_id.clone(),
            r#type: "place".into(),
            name: name.clone(),
            provenance: said(format!("remember the {name}")),
            ..Default::default()
        };
        let made = client.put_entity(request).await.expect("named").into_inner();
        own.entities.push(made.entity.expect("an entity").entity_id);
        own.names.push(name);
    }
    let request = pb::LinkEntitiesRequest {
        user_id: user_id.clone(),
        from_id: own.entities[0].clone(),
        relation: "near".into(),
        to_id: own.entities[1].clone(),
        provenance: said(format!("the {} is near the {}", own.names[0], own.names[1])),
        ..Default::default()
    };
    client.link_entities(request).await.expect("linked");
    let steps = vec![format!("open the {word} door")];
    let request = pb::PutSkillRequest {
        user_id,
        name: format!("{word} rounds"),
        triggers: vec![format!("walk the {word} rounds")],
        provenance: said(format!("From now on, to walk the {word} rounds: {}", steps[0])),
        steps,
        ..Default::default()
    };
    client.put_skill(request).await.expect("taught");
    own.names.push(format!("{word} rounds"));
}

/// One call: who makes it, and whose things it names.
struct Attacker<'a> {
    random: Random,
    caller: &'a Caller,
    own: &'a Holdings,
    victim: &'a Holdings,
    victim_user: &'a str,
    /// Whether the call names the attacker's own things this time: so that calls also succeed.
    honest: bool,
}

impl Attacker<'_> {
    fn named(&self) -> &Holdings {
        if self.honest { self.own } else { self.victim }
    }

    /// What an attacker writes into a text field of this name.
    fn text(&mut self, field: &FieldDescriptor) -> String {
        let named = self.named().clone();
        // What is stored is the attacker's own; what is looked for, named or continued is the victim's.
        let looks_for = field.parent_message().name().ends_with("Filter");
        match field.name() {
            // The credential decides; now and then the body claims to be the victim.
            "user_id" if !self.honest && self.random.below(8) == 0 => self.victim_user.to_owned(),
            "user_id" => self.caller.user.clone(),
            "agent_id" => self.caller.agent.clone(),
            // Who erases the own memory has nothing left to try with.
            "memory_ids" if field.parent_message().name() == "EraseMemoriesRequest" => self.random.pick(&self.victim.ids).clone(),
            "mentions" => self.victim.marker.clone(),
            "texts" => named.marker,
            "erasure_id" => self.random.pick(&named.erasures).clone(),
            "memory_id" | "memory_ids" | "summary_id" | "derived_from" | "supersedes" | "superseded_by" | "conflicts_with"
            | "may_be_replaced_by" => self.random.pick(&named.ids).clone(),
            "key" | "keys" => self.random.pick(&named.keys).clone(),
            "query" => named.marker,
            // Else few own ones would be left to relate.
            "entity_id" if field.parent_message().name() == "DeleteEntityRequest" && self.random.below(4) > 0 => {
                self.random.pick(&self.victim.entities).clone()
            }
            "entity_id" | "from_id" | "to_id" | "skill_id" => self.random.pick(&named.entities).clone(),
            // What is put has the attacker's own name, what is looked for the victim's.
            "name" if field.parent_message().name().starts_with("Put") => format!("{} gate", self.own.marker),
            "name" => self.random.pick(&named.names).clone(),
            "aliases" | "triggers" | "steps" => format!("walk the {} rounds", self.own.marker),
            "type" => "place".to_owned(),
            "relation" => "near".to_owned(),
            "tags" | "topic" if looks_for => named.marker,
            "tags" | "topic" | "text" => self.own.marker.clone(),
            "source_quote" if field.parent_message().name() == "Provenance" => {
                format!("From now on, at the {0} gate, to walk the {0} rounds: walk the {0} rounds", self.own.marker)
            }
            "content" | "quote" | "source_quote" | "source_text" => format!("I always use the {} gate", self.own.marker),
            "number" | "json" => "1".to_owned(),
            "page_token" if self.honest => String::new(),
            "page_token" => self.random.pick(&named.tokens).clone(),
            "request_id" if self.random.below(2) == 0 => self.random.pick(&named.requests).clone(),
            "request_id" => Uuid::from_u128(u128::from(self.random.0) << 64 | 4 << 76 | 2 << 62 | 7).to_string(),
            "recall_id" => self.random.pick(&named.recalls).clone(),
            "at_least_as_fresh" if self.random.below(2) == 0 => named.revision,
            "confirmation" => "dialog 1".to_owned(),
            "reason" => "asked for".to_owned(),
            "session_id" => "s1".to_owned(),
            "system" => "hr".to_owned(),
            "record_id" | "task_id" | "cursor" => "r1".to_owned(),
            "paths" => "importance".to_owned(),
            "at_least_as_fresh" | "etag" | "consent" | "signature" | "mark" | "embedding_model" | "tenant_id" | "path"
            | "rule" | "actor" | "sensitivity" | "memory_class" | "expected_cursor" | "handle" | "key_prefix" => String::new(),
            other => panic!("{}: say in `Attacker::text` what an attacker puts into `{other}`", field.full_name()),
        }
    }

    fn message(&mut self, of: &MessageDescriptor) -> DynamicMessage {
        let mut out = DynamicMessage::new(of.clone());
        if of.full_name() == "strata.longterm.v1.Statement" {
            // Its own words: what it writes is its own.
            let n = self.random.below(1_000_000);
            let mut statement = says(&format!("I always use the {} gate {n}77", self.own.marker));
            statement.source_ref = Some(turn("s1", u32::try_from(n).expect("small") + 1_000));
            if self.random.below(2) == 0 {
                statement.key.clone_from(&self.named().keys[0]);
            }
            out.merge(statement.encode_to_vec().as_slice()).expect("the same message");
            return out;
        }
        // One or the other, where a request takes both.
        let has = |name: &str| of.get_field_by_name(name).is_some();
        let pairs = [("memory_id", "key"), ("entity_id", "name")];
        let either = pairs.into_iter().find(|(one, other)| has(one) && has(other) && !has("provenance"));
        let left_out = either.map(|(one, other)| if self.random.below(2) == 0 { one } else { other });
        for field in of.fields() {
            if left_out == Some(field.name())
                || matches!(field.kind(), Kind::Message(m) if m.full_name().starts_with("google.protobuf.Time"))
            {
                continue;
            }
            let skips = matches!(field.kind(), Kind::Message(_)) || field.is_list() || field.containing_oneof().is_some();
            let plain = !matches!(field.name(), "statement" | "line" | "memory" | "memory_ids" | "facts");
            if skips && plain && self.random.below(2) == 0 {
                continue;
            }
            if field.is_map() {
                let key = prost_reflect::MapKey::String("note".to_owned());
                if let Kind::Message(entry) = field.kind()
                    && matches!(entry.map_entry_value_field().kind(), Kind::String)
                {
                    let looks_for = field.parent_message().name().ends_with("Filter");
                    let value = if looks_for { self.named() } else { self.own };
                    let value = Value::String(value.marker.clone());
                    out.set_field(&field, Value::Map([(key, value)].into()));
                }
            } else if field.is_list() {
                let value = self.value(&field);
                out.set_field(&field, Value::List(value.into_iter().collect()));
            } else if let Some(value) = self.value(&field) {
                out.set_field(&field, value);
            }
        }
        out
    }

    fn value(&mut self, field: &FieldDescriptor) -> Option<Value> {
        Some(match field.kind() {
            Kind::String => Value::String(self.text(field)),
            Kind::Message(message) => Value::Message(self.message(&message)),
            Kind::Enum(of) => {
                let values: Vec<i32> = of.values().map(|value| value.number()).filter(|number| *number > 0).collect();
                Value::EnumNumber(*self.random.pick(&values))
            }
            Kind::Bool if field.name() == "everything" => Value::Bool(false),
            Kind::Bool => Value::Bool(self.random.below(2) == 0),
            Kind::Int32 if field.name() == "hops" => Value::I32(i32::try_from(self.random.below(2) + 1).expect("small")),
            Kind::Int32 => Value::I32(i32::try_from(self.random.below(5) + 1).expect("small")),
            Kind::Uint32 if field.name() == "seen_version" => Value::U32(u32::try_from(self.random.below(2)).expect("small")),
            Kind::Uint32 => Value::U32(u32::try_from(self.random.below(5) + 1).expect("small")),
            Kind::Uint64 => Value::U64(self.random.below(5) as u64 + 1),
            // A vector needs an embedder, a score needs no attacker.
            Kind::Float | Kind::Double => return None,
            Kind::Int64
            | Kind::Sint32
            | Kind::Sint64
            | Kind::Fixed32
            | Kind::Fixed64
            | Kind::Sfixed32
            | Kind::Sfixed64
            | Kind::Bytes => panic!("{}: say here what an attacker puts into it", field.full_name()),
        })
    }
}

/// Everything the server says, and whether it served the call.
async fn call(channel: RpcChannel, method: &MethodDescriptor, requests: Vec<Vec<u8>>) -> (Vec<u8>, bool) {
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.expect("ready");
    let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
    let requests = Request::new(futures::stream::iter(requests));
    let told = |status: &Status| [status.message().as_bytes(), status.details()].concat();
    match client.streaming(requests, path.parse().expect("a path"), strata_api::codec::Raw).await {
        Err(status) => (told(&status), false),
        Ok(answer) => {
            let (mut said, mut answers) = (Vec::new(), answer.into_inner());
            loop {
                match answers.message().await {
                    Ok(Some(message)) => said.extend(message),
                    Ok(None) => return (said, true),
                    Err(status) => return ([said, told(&status)].concat(), false),
                }
            }
        }
    }
}

/// Everything that is stored of the users that only suffer.
async fn rows_of_victims(world: &World) -> Vec<String> {
    let read = |db: &rusqlite::Connection| -> Result<Vec<String>, SqliteError> {
        let mut out = Vec::new();
        for table in [
            "records",
            "evidence",
            "history",
            "owner_keys",
            "record_terms",
            "recalls",
            "idempotency",
            "entities",
            "relations",
            "skills",
            "episodes",
            "archived_turns",
            "summaries",
            "exempt",
            "asked",
            "erasures",
        ] {
            let user = match table {
                "records" | "recalls" | "idempotency" | "erasures" => "t.user_id",
                "asked" => "(SELECT r.user_id FROM records r WHERE r.memory_id = t.memory_id)",
                _ => "(SELECT o.user_id FROM owners o WHERE o.owner_id = t.owner_id)",
            };
            let sql = format!("SELECT t.* FROM {table} t JOIN users u ON u.user_id = {user} WHERE u.user_id % 2 = 0");
            let mut statement = db.prepare(&sql)?;
            let columns = statement.column_count();
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let cells = (0..columns).map(|n| row.get::<_, rusqlite::types::Value>(n));
                let cells = cells.collect::<Result<Vec<_>, _>>()?;
                out.push(format!("{table} {cells:?}"));
            }
        }
        out.sort();
        Ok(out)
    };
    world.database.read(read).await.expect("rows")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c034_c033_c036_a205_ten_thousand_calls_of_strangers_on_every_rpc_show_and_change_nothing() {
    let world = World::unsynced(7).await;
    let mut owners = Vec::new();
    for tenant in TENANTS {
        for user in USERS {
            let caller = world.user(user).tenant(tenant);
            let caller = caller.roles([Role::MemoryWriter, Role::RecordSystem, Role::Reader, Role::Eraser]);
            let holdings = settle(&world, owners.len(), &caller).await;
            owners.push((caller, holdings));
        }
    }
    // So that there is something to take back: what a summary stands for is no matter here.
    world
        .database
        .write(|db| {
            let sql = "INSERT INTO summaries (memory_id, owner_id, state) SELECT memory_id, owner_id, 'CURRENT' FROM records \
                 WHERE status = 'ACTIVE' AND key IS NULL";
            Ok::<_, SqliteError>(db.execute(sql, [])?)
        })
        .await
        .expect("marked");
    // Users are numbered from 1 in the order they came: every second one only suffers.
    // What a recall counts is written behind its answer.
    let recalls = i64::try_from(owners.len()).expect("few");
    strata_testkit::eventually(std::time::Duration::from_secs(20), async || {
        world.count("SELECT count(*) FROM recalls").await == recalls
    })
    .await;
    let before = rows_of_victims(&world).await;
    assert!(before.len() > 25 * 20, "{}", before.len());

    let pool = DescriptorPool::decode(strata_api::FILE_DESCRIPTOR_SET).expect("the descriptor set");
    let service = pool.get_service_by_name(SERVICE).expect("the service");
    let methods: Vec<MethodDescriptor> = service.methods().collect();
    let mut random = Random(0x1505_2026);
    let mut calls = Vec::new();
    for n in 0..CALLS {
        // Owner n is user n + 1 of the file.
        let attacker = random.below(owners.len() / 2) * 2;
        let victim = loop {
            let victim = random.below(owners.len());
            if victim != attacker {
                break victim;
            }
        };
        let (caller, own) = &owners[attacker];
        let (of_victim, holdings) = &owners[victim];
        let caller = if random.below(4) == 0 { caller.clone().agent("a") } else { caller.clone() };
        let method = methods[n % methods.len()].clone();
        let honest = random.below(4) == 0;
        let mut attack = Attacker {
            random: Random(random.0 ^ 0x5bd1_e995),
            caller: &caller,
            own,
            victim: holdings,
            victim_user: &of_victim.user,
            honest,
        };
        let messages = if method.is_client_streaming() { 2 } else { 1 };
        let mut requests: Vec<Vec<u8>> = (0..messages).map(|_| attack.message(&method.input()).encode_to_vec()).collect();
        if method.name() == "ImportMemories" && random.below(2) == 0 {
            // Somebody's whole export, as it came; with `remap` it would be the attacker's own word.
            let line = |line: &pb::ExportLine| pb::ImportMemoriesRequest {
                user_id: caller.user.clone(),
                line: Some(line.clone()),
                ..Default::default()
            };
            requests = attack.named().export.iter().map(|one| line(one).encode_to_vec()).collect();
        }
        let level = if caller.agent.is_empty() { strata_core::id::Level::User } else { strata_core::id::Level::Agent };
        let channel = caller.channel_with(Some(caller.claims(Some(level))));
        calls.push(async move { (attacker, method.name().to_owned(), call(channel, &method, requests).await) });
    }
    let mut served: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut answers = futures::stream::iter(calls).buffer_unordered(16);
    let mut shown = 0;
    while let Some((attacker, method, (said, ok))) = answers.next().await {
        let count = served.entry(method.clone()).or_default();
        count.0 += 1;
        count.1 += usize::from(ok);
        for of in markers(&said) {
            assert_eq!(of, attacker, "{method}: the answer to {attacker} holds a word of {of}");
            shown += 1;
        }
    }
    assert_eq!(served.values().map(|(all, _)| all).sum::<usize>(), CALLS);
    for (method, (all, ok)) in &served {
        eprintln!("{method}: {ok} of {all} served");
        assert!(*ok > 0, "{method} was never served: the test does not reach it");
    }
    assert!(shown > 1_000, "own rows are shown: {shown}");
    world.settled().await;
    let after = rows_of_victims(&world).await;
    let changed: Vec<&String> = after.iter().filter(|row| before.binary_search(row).is_err()).collect();
    assert!(changed.is_empty() && after.len() == before.len(), "something of a victim changed: {changed:#?}");
}
