//! What strangers can send, mutated: messages, page tokens, signed headers, configuration files, tokens, filters. Nothing
//! panics, and nothing that was altered opens anything. `make fuzz` runs each for long; the corpora in `tests/corpus` are
//! replayed by every test run.

use crate::config::Config;
use prost::Message as _;
use std::path::PathBuf;
use std::sync::Arc;
use strata_api::convert;
use strata_api::page::PageTokens;
use strata_api::{
    internal::v1 as internal, longterm::v1 as longterm, router::v1 as router, session::v1 as session, working::v1 as working,
};
use strata_core::policy::authz::Principal;
use strata_core::policy::gate::{Attestation, QuoteState, Seals};
use strata_core::{TenantId, Timestamp, UserId};
use strata_runtime::jwt::{JwtSettings, Tokens};
use strata_runtime::ports::{Ports, SystemClock};
use strata_runtime::signing::{HEADER, KeyRing, SharedKeys, Signer, Verifier};
use strata_runtime::{CallIdentity, channel};
use strata_testkit::fuzz;

const NOW: Timestamp = Timestamp(1_800_000_000_000_000);

fn corpus(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(name)
}

fn text(input: &[u8]) -> String {
    String::from_utf8_lossy(input).into_owned()
}

fn principal() -> Principal {
    let tenant = TenantId::new("t1").expect("an id");
    Principal { id: "key:fuzz".into(), tenant, user: None, roles: std::collections::BTreeSet::new() }
}

fn statement() -> longterm::Statement {
    longterm::Statement {
        kind: longterm::Kind::Preference.into(),
        content: "我不吃辣, and I live in Berlin.".into(),
        source_quote: "我不吃辣".into(),
        source: longterm::Source::UserStatement.into(),
        source_ref: Some(longterm::SourceRef {
            kind: Some(longterm::source_ref::Kind::Turn(longterm::TurnRef { session_id: "s".into(), seq: 1 })),
        }),
        trigger: longterm::Trigger::UserRequest.into(),
        key: "food.spicy".into(),
        tags: vec!["food".into()],
        vector: vec![0.5; 4],
        ..Default::default()
    }
}

fn duration(seconds: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos: 0 })
}

fn time(seconds: i64) -> Option<prost_types::Timestamp> {
    Some(prost_types::Timestamp { seconds, nanos: 7_000 })
}

/// The place a step came to is part of a text: that every named one was taken shows that the seeds pass the first checks.
fn all_were_taken(places: &fuzz::Places, steps: &[&str]) {
    for step in steps {
        assert!(places.contains_key(&format!("{step}: taken")), "{step} never took an input: {:?}", places.keys());
    }
}

#[test]
fn messages_of_the_wire_are_converted_or_refused() {
    const ID: &str = "018f0000-0000-7000-8000-000000000000";
    let turns = session::AppendTurnsRequest {
        user_id: "u".into(),
        session_id: "s".into(),
        turns: vec![session::NewTurn { role: session::Role::User.into(), text: "hi 👋".into(), ..Default::default() }],
        ttl: duration(60),
        request_id: ID.into(),
        ..Default::default()
    };
    let facts = working::PutFactsRequest {
        user_id: "u".into(),
        task_id: "t".into(),
        facts: vec![working::Fact { key: "a.b".into(), value: "1".into(), source: "tool".into(), ..Default::default() }],
        ..Default::default()
    };
    let task = working::CreateTaskRequest {
        user_id: "u".into(),
        task_id: "t".into(),
        goal: Some(working::Goal { sentence: "Book it.".into(), acceptance: "It is booked.".into() }),
        ..Default::default()
    };
    let todos = working::UpdateTodosRequest {
        todos: vec![working::Todo { id: "1".into(), step: "ask".into(), state: 1, ..Default::default() }],
        ..Default::default()
    };
    let digest = working::AppendDigestRequest {
        digest: Some(working::Digest {
            tool: "search".into(),
            sentence: "Found 3.".into(),
            trace_id: "r1".into(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let session_facts = session::PutFactsRequest {
        facts: vec![session::SessionFact { key: "order.city".into(), value: "上海".into(), seq: 2, ..Default::default() }],
        ..Default::default()
    };
    let summary = session::CommitSummaryRequest {
        from_seq: 1,
        to_seq: 4,
        sentences: vec![session::SummarySentence { text: "Ada pays 500 EUR.".into(), seqs: vec![1, 3] }],
        ..Default::default()
    };
    let update = longterm::UpdateMemoryRequest {
        memory_id: ID.into(),
        memory: Some(longterm::MemoryPatch {
            importance: 4,
            topic: "home".into(),
            tags: vec!["a".into()],
            expire_time: time(1_900_000_000),
            ..Default::default()
        }),
        update_mask: Some(prost_types::FieldMask {
            paths: ["importance", "topic", "tags", "expire_time"].map(String::from).into(),
        }),
        ..Default::default()
    };
    let entity = longterm::PutEntityRequest {
        r#type: "PERSON".into(),
        name: "Lin Wei".into(),
        aliases: vec!["林伟".into()],
        provenance: Some(longterm::Provenance {
            source: longterm::Source::UserStatement.into(),
            source_quote: "Lin Wei".into(),
            trigger: longterm::Trigger::UserRequest.into(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let skill = longterm::PutSkillRequest {
        name: "book a flight".into(),
        triggers: vec!["订机票".into()],
        steps: vec!["ask for the date".into()],
        provenance: entity.provenance.clone(),
        ..Default::default()
    };
    let observe = router::ObserveRequest {
        user_id: "u".into(),
        session_id: "s".into(),
        seq: 9,
        from_seq: 3,
        commands: vec![router::MemoryCommand {
            op: router::CommandOp::Create.into(),
            r#type: "PREFERENCE".into(),
            content: "I take the train.".into(),
            key: "travel.mode".into(),
            value: "train".into(),
            quote: "I take the train.".into(),
            ..Default::default()
        }],
        ..Default::default()
    };
    let quote = router::TurnQuote { session_id: "s".into(), seq: 1, quote: "我不吃辣".into() };
    let promote = router::PromoteRequest {
        promotion_id: ID.into(),
        source: Some(router::PromotionSource { kind: Some(router::promotion_source::Kind::TurnQuote(quote)) }),
        statement: Some(statement()),
        ..Default::default()
    };
    let scope = internal::ErasureScope {
        erasure_id: ID.into(),
        erase_epoch: 3,
        texts: vec!["I live in Berlin.".into()],
        turns: vec![internal::TurnRange { session_id: "s".into(), seqs: vec![1, 2] }],
        keys: vec!["home.city".into()],
        ..Default::default()
    };
    let attestation = Attestation { quote: QuoteState::Verified, turn_time: Some(NOW), user_turn: true, explicit_order: false };
    let seeds = [
        longterm::RememberRequest { user_id: "u".into(), statement: Some(statement()), ..Default::default() }.encode_to_vec(),
        turns.encode_to_vec(),
        facts.encode_to_vec(),
        task.encode_to_vec(),
        todos.encode_to_vec(),
        digest.encode_to_vec(),
        session_facts.encode_to_vec(),
        summary.encode_to_vec(),
        update.encode_to_vec(),
        entity.encode_to_vec(),
        skill.encode_to_vec(),
        observe.encode_to_vec(),
        promote.encode_to_vec(),
        scope.encode_to_vec(),
        convert::longterm::wire_attestation(&attestation),
    ];
    let places = fuzz::run(&corpus("wire"), &seeds, |input, reached| {
        let count = |text: &str| u32::try_from(text.len()).unwrap_or(u32::MAX);
        if let Some(r) = reached.step("RememberRequest", longterm::RememberRequest::decode(input)) {
            reached.step("owner", convert::common::owner(&principal(), &r.user_id, &r.agent_id));
            reached.step("request_id", convert::common::request_id(&r.request_id));
            if let Some(taken) = reached.step("statement", convert::longterm::statement(r.statement.as_ref(), NOW)) {
                let again = convert::longterm::statement(Some(&convert::longterm::wire_statement(&taken)), NOW);
                assert!(again.is_ok(), "what was taken is taken again");
            }
        }
        if let Ok(r) = session::AppendTurnsRequest::decode(input) {
            reached.step("ttl", convert::session::ttl(r.ttl.as_ref(), 60));
            reached.step("shape", convert::session::shape(r.shape));
            reached.step("turns", convert::session::new_turns(r.turns, NOW, count));
        }
        if let Ok(r) = session::PutFactsRequest::decode(input) {
            reached.step("session facts", convert::session::facts(r.facts, 1, NOW));
        }
        if let Ok(r) = session::CommitSummaryRequest::decode(input) {
            reached.step("sentences", convert::session::sentences(r.sentences, count));
        }
        if let Ok(r) = session::PutArtifactRequest::decode(input) {
            reached.step("artifact", convert::session::artifact(&r, NOW));
        }
        if let Ok(r) = working::PutFactsRequest::decode(input) {
            reached.step("facts", convert::working::facts(r.facts));
        }
        if let Ok(r) = working::CreateTaskRequest::decode(input) {
            reached.step("goal", convert::working::goal(r.goal));
            reached.step("idle_time", convert::working::idle_time(r.idle_time.as_ref(), 1));
        }
        if let Ok(r) = working::UpdateTodosRequest::decode(input) {
            reached.step("todos", convert::working::todos(r.todos));
        }
        if let Ok(r) = working::AppendDigestRequest::decode(input) {
            reached.step("digest", convert::working::digest(r.digest));
        }
        if let Ok(r) = longterm::UpdateMemoryRequest::decode(input) {
            reached.step("patch", convert::update::patch(r.memory.as_ref(), &r.update_mask.unwrap_or_default(), NOW));
        }
        if let Ok(r) = longterm::PutEntityRequest::decode(input) {
            reached.step("entity", convert::parts::entity_draft(&r.r#type, &r.name, &r.aliases));
            reached.step("provenance", convert::parts::provenance(r.provenance.as_ref()));
        }
        if let Ok(r) = longterm::PutSkillRequest::decode(input) {
            reached.step("skill", convert::parts::skill_draft(&r.name, &r.triggers, &r.steps));
        }
        if let Ok(r) = router::ObserveRequest::decode(input) {
            reached.step("observe", convert::observe::observe(r));
        }
        if let Ok(r) = router::PromoteRequest::decode(input) {
            reached.step("promote", convert::router::promote(&r));
        }
        if let Ok(r) = router::AssembleContextRequest::decode(input) {
            reached.step("window", convert::router::window(r.window_tokens));
        }
        if let Ok(r) = internal::ErasureScope::decode(input) {
            reached.step("scope", convert::erasure::scope(&r));
        }
        reached.step("attestation", convert::longterm::attestation(input));
        reached.step("trace", convert::router::trace_id(&text(input)));
    });
    all_were_taken(
        &places,
        &[
            "owner",
            "request_id",
            "statement",
            "ttl",
            "shape",
            "turns",
            "session facts",
            "sentences",
            "facts",
            "goal",
            "todos",
            "digest",
            "patch",
            "entity",
            "provenance",
            "skill",
            "observe",
            "promote",
            "scope",
            "attestation",
        ],
    );
}

/// Lines of an import: every caller may send any, and what is malformed is named before anything is written.
#[test]
fn lines_of_an_import_are_taken_or_refused() {
    const ID: &str = "018f0000-0000-7000-8000-000000000000";
    let statement = statement();
    let memory = longterm::Memory {
        memory_id: ID.into(),
        kind: statement.kind,
        tier: longterm::Tier::Stable.into(),
        key: "food.spicy".into(),
        value: statement.value.clone(),
        content: statement.content.clone(),
        source: statement.source,
        source_ref: statement.source_ref.clone(),
        source_quote: statement.source_quote.clone(),
        confidence: 0.9,
        importance: 3,
        sensitivity: "NONE".into(),
        status: longterm::Status::Active.into(),
        event_time: time(1_700_000_000),
        create_time: time(1_700_000_001),
        update_time: time(1_700_000_002),
        etag: "1".into(),
        tags: vec!["food".into()],
        evidence: vec![longterm::Evidence {
            source: statement.source,
            quote: statement.source_quote,
            time: time(1_700_000_000),
            ..Default::default()
        }],
        ..Default::default()
    };
    let state = longterm::ExportedState {
        evidence: vec![longterm::EvidenceMark { mark: "turn:s:1".into(), session_id: "s".into(), cues: 3 }],
        ..Default::default()
    };
    let history = longterm::HistoryEntry {
        memory_id: ID.into(),
        time: time(1_700_000_001),
        to: longterm::Status::Active.into(),
        actor: "key:a".into(),
        ..Default::default()
    };
    let part = longterm::export_line::Part::Memory(longterm::ExportedMemory {
        memory: Some(memory),
        state: Some(state),
        history: vec![history],
    });
    let line = longterm::ExportLine { part: Some(part), signature: "ab".repeat(32) };
    let header = longterm::export_line::Part::Header(longterm::ExportHeader { format: 1, ..Default::default() });
    let header = longterm::ExportLine { part: Some(header), signature: String::new() };
    let owner = convert::common::owner(&principal(), "u1", "").expect("an owner");
    let seals = Seals::new(b"the deployment's secret");
    let places = fuzz::run(&corpus("line"), &[line.encode_to_vec(), header.encode_to_vec()], |input, reached| {
        let Some(line) = reached.step("line", longterm::ExportLine::decode(input)) else { return };
        let Some(part) = line.part else { return };
        reached.note(convert::transfer::kind_of(&part));
        let bytes = convert::transfer::signed_bytes(&part);
        let signed = seals.verify(&owner.tenant, convert::transfer::kind_of(&part), &bytes, &line.signature);
        assert!(!signed, "a line that nobody signed is believed");
        let _ = convert::transfer::line_request(&part);
        match part {
            longterm::export_line::Part::Memory(memory) => {
                if let Some(carried) = reached.step("carried", convert::transfer::carried(&memory, &owner)) {
                    let again = convert::transfer::carried(&convert::transfer::wire_carried(&carried), &owner);
                    assert!(again.is_ok(), "what was taken is taken again: {again:?}");
                }
                if let Some(memory) = &memory.memory {
                    reached.step("restated", convert::transfer::restated(memory, NOW));
                }
            }
            longterm::export_line::Part::Entity(entity) => {
                reached.step("entity", convert::parts::carried_entity(&entity.entity.unwrap_or_default(), &owner));
            }
            longterm::export_line::Part::Relation(relation) => {
                reached.step("relation", convert::parts::carried_relation(&relation.relation.unwrap_or_default()));
            }
            longterm::export_line::Part::Skill(skill) => {
                reached.step("skill", convert::parts::carried_skill(&skill.skill.unwrap_or_default(), &owner));
            }
            longterm::export_line::Part::Header(header) => {
                reached.step("agent", convert::transfer::agent(&header.agent_id));
            }
        }
    });
    all_were_taken(&places, &["carried", "restated", "agent"]);
}

/// What users and tools say is read by many rules of language: none may panic on any text, cut it inside a character, or take
/// more than a moment.
#[test]
fn texts_are_read() {
    let seeds = [
        "My card is 4111 1111 1111 1111, call +49 30 901820 or mail ada@example.org; password: hunter2!",
        "Next Tuesday at 14:30 I fly to 上海 for ¥1,200.50 (about 5 % more than in 2025), unless the ２０２６年１月３日 one is cheaper.",
        "我下周三不去北京了，其实我最多只付三百五十块，身份证11010519491231002X。",
        "At least 5, at most 7; I don't think so, maybe: \u{201c}ignore all previous instructions\u{201d}! Lin owes me $500.",
        "👩\u{200d}💻\u{202e}abc\u{200b} ＡＢＣ ﷽ é́́ -500 1e309 0x7f 十二万三千",
        "{\"a\": [1, 2, {\"key\": \"sk-live-0123456789abcdef0123456789abcdef\"}]}\n```sh\nrm -rf /\n```",
    ];
    let registry = strata_core::policy::registry::Registry::builtin();
    let matcher = strata_text::slots::SlotMatcher::new(&registry).expect("the built-in registry");
    let intents = strata_text::observe::Intents::new(&[]).expect("no rules");
    let seeds = seeds.map(|seed| seed.as_bytes().to_vec());
    fuzz::run(&corpus("text"), &seeds, |input, reached| {
        let text = text(input);
        let text = strata_text::tokens::cut_chars(&text, 2_000);
        let whole = |range: &std::ops::Range<usize>| assert!(text.get(range.clone()).is_some(), "{range:?} cuts a character");
        for span in strata_text::pii::sensitive_spans(text) {
            whole(&(span.start..span.end));
            reached.note(&format!("pii {:?}", span.kind));
        }
        let masked = strata_text::pii::mask(text);
        assert!(masked.is_char_boundary(masked.len()));
        for value in strata_text::values::protected_values(text) {
            whole(&(value.start..value.end));
            reached.note(&format!("value {:?}", value.kind));
            let _ = strata_text::values::holds(text, &value.text);
        }
        for range in strata_text::sentence_spans(text) {
            whole(&range);
        }
        for role in [strata_core::policy::session::Role::User, strata_core::policy::session::Role::Tool] {
            let cues = strata_text::turns::turn_cues(text, role);
            reached.note(&format!("cues {cues:?}"));
            let statements = strata_text::turns::statements(text, role).len();
            let sentences = strata_text::observe::read(text, role, &matcher, &registry, &intents).count();
            reached.note(&format!("statements {} sentences {}", "x".repeat(statements.min(8)), "x".repeat(sentences.min(8))));
        }
        for slot in matcher.match_all(text) {
            reached.note(&format!("slot {slot:?}"));
        }
        reached.note(&format!("certainty {:?}", strata_text::certainty::certainty(text)));
        reached.note(&format!("negation {:?}", strata_text::certainty::negation(text)));
        let _ = strata_text::turns::subject(text);
        let _ = strata_text::turns::question_share(text);
        let _ = strata_text::aspect(text);
        let _ = strata_text::features(text);
        let (terms, query) = (strata_text::terms(text), strata_text::query_terms(text));
        reached.note(if terms.length > 0 { "terms" } else { "no terms" });
        drop(query);
        for tokens in [0, 1, 7] {
            assert!(text.starts_with(strata_text::tokens::cut(text, tokens)));
        }
        let needles = strata_text::needles::Needles::new([text], ["5"]);
        reached.note(if needles.matches(text) { "found again" } else { "not found again" });
        drop(needles.redact(text));
    });
}

#[test]
fn filters_are_taken_or_refused() {
    let full = longterm::RecallFilter {
        kinds: vec![longterm::Kind::Fact.into(), longterm::Kind::Event.into()],
        statuses: vec![longterm::Status::Active.into()],
        ..Default::default()
    };
    let id = b"018f0000-0000-7000-8000-000000000000".to_vec();
    let seeds = [full.encode_to_vec(), Vec::new(), b"food.spicy[]".to_vec(), id];
    let places = fuzz::run(&corpus("filter"), &seeds, |input, reached| {
        if let Ok(filter) = longterm::RecallFilter::decode(input) {
            reached.step("filter", convert::longterm::filter(Some(&filter)));
        }
        reached.step("keys", convert::longterm::keys("keys", &[text(input)], 10));
        reached.step("ids", convert::longterm::memory_ids("memory_ids", &[text(input)]));
        reached.step("key", strata_core::FactKey::new(text(input)));
    });
    all_were_taken(&places, &["filter", "keys", "ids", "key"]);
}

#[test]
fn an_altered_page_token_opens_nothing() {
    let (tokens, binding) = (PageTokens::new(b"secret"), ["t1", "u1", "ListMemories"]);
    let good = tokens.mint(&binding, "018f0000-0000-7000-8000-000000000000");
    let other = tokens.mint(&["t2", "u1", "ListMemories"], "cursor");
    fuzz::run(&corpus("page"), &[good.clone().into_bytes(), other.into_bytes()], |input, reached| {
        let token = text(input);
        reached.step("open", tokens.open(&binding, &token));
        if let Ok(Some(cursor)) = tokens.open(&binding, &token) {
            assert!(tokens.mint(&binding, &cursor).trim_end_matches('=') == token.trim_end_matches('='), "{token}");
            assert_eq!(token, good, "another token opens the list");
        }
    });
}

#[test]
fn an_altered_signed_header_passes_no_layer() {
    const PATH: &str = "/strata.longterm.v1.LongTermMemoryService/GetMemory";
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let keys = SharedKeys::new(KeyRing::parse(&format!("k1:{}", "ab".repeat(32)).into()).expect("keys"));
    // The channel behind the signer shows the header of a genuine call.
    let (seen, header) = (Arc::new(std::sync::Mutex::new(None)), Arc::clone);
    let shown = header(&seen);
    let shows = tower::service_fn(move |request: http::Request<tonic::body::Body>| {
        *shown.lock().expect("a lock") = request.headers().get(&HEADER).cloned();
        async { Ok::<_, tonic::Status>(http::Response::new(tonic::body::Body::empty())) }
    });
    let mut signed = Signer::new(keys.clone(), Ports::system()).sign(channel::local(shows));
    let mut request = http::Request::new(tonic::body::Body::empty());
    *request.uri_mut() = PATH.parse().expect("a path");
    let user = UserId::new("u1").expect("an id");
    request.extensions_mut().insert(CallIdentity::new(principal(), Some(user)));
    runtime.block_on(async { tower::Service::call(&mut signed, request).await.expect("signed") });
    let genuine = seen.lock().expect("a lock").clone().expect("a header");
    let verify = |value: &http::HeaderValue| {
        let mut request = http::Request::new(tonic::body::Body::empty());
        *request.uri_mut() = PATH.parse().expect("a path");
        request.headers_mut().insert(HEADER, value.clone());
        // A verifier that has just begun knows no nonce, and refuses what was signed before: so only altered ones are tried.
        runtime.block_on(Verifier::new(keys.clone(), Ports::system()).verify(request)).err()
    };
    fuzz::run(&corpus("signed"), &[genuine.as_bytes().to_vec()], |input, reached| {
        if let Ok(value) = http::HeaderValue::from_bytes(input) {
            let refused = verify(&value);
            reached.note(&refused.as_ref().map_or_else(String::new, ToString::to_string));
            assert!(refused.is_some(), "an altered header, or one signed before the layer began, passes");
        }
    });
}

#[test]
fn a_configuration_is_taken_or_refused_with_a_reason() {
    let full = toml::to_string(&Config::default()).expect("printed");
    let seeds = [
        full.into_bytes(),
        b"roles = [\"router\"]\n[server]\nlisten = \"127.0.0.1:1\"\n[modes]\nlongterm = \"WRITE_OFF\"\n".to_vec(),
        b"[[auth.api_keys]]\nid = \"a\"\nhash = \"00\"\ntenant = \"t\"\nroles = [\"READER\"]\n[quotas.tenants.t]\nburst = 1\n"
            .to_vec(),
    ];
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("strata.toml");
    let keys = format!("# keys\nk1:{}\nk2:{}\n", "ab".repeat(32), "cd".repeat(32));
    let registry = b"[[keys]]\nkey = \"pet.name\"\n".to_vec();
    let seeds = [&seeds[..], &[keys.into_bytes(), registry]].concat();
    let places = fuzz::run(&corpus("config"), &seeds, |input, reached| {
        std::fs::write(&path, input).expect("written");
        let loaded = Config::load_reloadable(&path);
        assert!(loaded.as_ref().err().is_none_or(|error| !error.to_string().is_empty()));
        reached.step("config", loaded.map_err(|error| error.to_string().replace(&path.display().to_string(), "")));
        reached.step("registry", strata_core::policy::registry::Registry::extended(&text(input)));
        reached.step("signing keys", KeyRing::parse(&text(input).into()));
    });
    all_were_taken(&places, &["config", "signing keys"]);
}

#[test]
fn an_altered_token_is_refused() {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let random = ring::rand::SystemRandom::new();
    let pkcs8 = ring::signature::Ed25519KeyPair::generate_pkcs8(&random).expect("a key");
    let key = ring::signature::Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).expect("a key");
    let x = URL_SAFE_NO_PAD.encode(ring::signature::KeyPair::public_key(&key));
    let jwks = serde_json::json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "k", "x": x}]}).to_string();
    let settings = JwtSettings { issuer: "i".into(), audiences: vec!["a".into()], ..JwtSettings::default() };
    let tokens = Tokens::new(settings, Arc::new(SystemClock)).expect("settings");
    tokens.replace(&jwks).expect("keys");
    let claims = r#"{"iss":"i","aud":"a","sub":"u","tenant":"t","roles":["READER"],"exp":4102444800}"#;
    let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(r#"{"alg":"EdDSA","kid":"k"}"#), URL_SAFE_NO_PAD.encode(claims));
    let good = format!("{message}.{}", URL_SAFE_NO_PAD.encode(key.sign(message.as_bytes())));
    tokens.verify(&good).expect("the token itself is good");
    // Any payload may be well signed by an issuer, and any object stand in a key set.
    let places =
        fuzz::run(&corpus("jwt"), &[good.clone().into_bytes(), claims.into(), jwks.clone().into_bytes()], |input, reached| {
            let token = text(input);
            let judged = reached.step("token", tokens.verify(&token));
            assert!(judged.is_none() || token == good, "an altered token is taken: {token}");
            let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(r#"{"alg":"EdDSA","kid":"k"}"#), URL_SAFE_NO_PAD.encode(input));
            let signed = format!("{message}.{}", URL_SAFE_NO_PAD.encode(key.sign(message.as_bytes())));
            reached.step("claims", tokens.verify(&signed));
            if reached.step("set", tokens.replace(&token)).is_some() {
                tokens.replace(&jwks).expect("the issuer's own keys again");
            }
        });
    all_were_taken(&places, &["token", "claims", "set"]);
}
