//! What strangers can send, mutated: messages, page tokens, signed headers, configuration files, tokens, filters. Nothing
//! panics, and nothing that was altered opens anything. `make fuzz` runs each for long; the corpora in `tests/corpus` are
//! replayed by every test run.

use crate::config::Config;
use prost::Message as _;
use std::path::PathBuf;
use std::sync::Arc;
use strata_api::convert;
use strata_api::page::PageTokens;
use strata_api::{longterm::v1 as longterm, router::v1 as router, session::v1 as session, working::v1 as working};
use strata_core::policy::authz::Principal;
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

#[test]
fn messages_of_the_wire_are_converted_or_refused() {
    let turns = session::AppendTurnsRequest {
        user_id: "u".into(),
        session_id: "s".into(),
        turns: vec![session::NewTurn { role: session::Role::User.into(), text: "hi 👋".into(), ..Default::default() }],
        ttl: Some(prost_types::Duration { seconds: 60, nanos: 0 }),
        ..Default::default()
    };
    let seeds = [
        longterm::RememberRequest { user_id: "u".into(), statement: Some(statement()), ..Default::default() }.encode_to_vec(),
        turns.encode_to_vec(),
        working::PutFactsRequest {
            user_id: "u".into(),
            task_id: "t".into(),
            facts: vec![working::Fact { key: "a.b".into(), value: "1".into(), source: "tool".into(), ..Default::default() }],
            ..Default::default()
        }
        .encode_to_vec(),
    ];
    fuzz::run(&corpus("wire"), &seeds, |input| {
        if let Ok(request) = longterm::RememberRequest::decode(input) {
            let _ = convert::common::owner(&principal(), &request.user_id, &request.agent_id);
            let _ = convert::common::request_id(&request.request_id);
            if let Ok(statement) = convert::longterm::statement(request.statement.as_ref(), NOW) {
                let again = convert::longterm::statement(Some(&convert::longterm::wire_statement(&statement)), NOW);
                assert!(again.is_ok(), "what was taken is taken again");
            }
        }
        if let Ok(request) = session::AppendTurnsRequest::decode(input) {
            let _ = convert::session::ttl(request.ttl.as_ref(), 60);
            let _ = convert::session::shape(request.shape);
            let _ = convert::session::new_turns(request.turns, NOW, |text| u32::try_from(text.len()).unwrap_or(u32::MAX));
        }
        if let Ok(request) = router::AssembleContextRequest::decode(input) {
            let _ = convert::router::window(request.window_tokens);
        }
        let _ = convert::longterm::attestation(input);
        let _ = working::PutFactsRequest::decode(input);
    });
}

#[test]
fn filters_are_taken_or_refused() {
    let full = longterm::RecallFilter {
        kinds: vec![longterm::Kind::Fact.into(), longterm::Kind::Event.into()],
        statuses: vec![longterm::Status::Active.into()],
        ..Default::default()
    };
    fuzz::run(&corpus("filter"), &[full.encode_to_vec(), Vec::new()], |input| {
        if let Ok(filter) = longterm::RecallFilter::decode(input) {
            let _ = convert::longterm::filter(Some(&filter));
        }
        let _ = convert::longterm::keys("keys", &[text(input)], 10);
        let _ = convert::longterm::memory_ids("memory_ids", &[text(input)]);
        let _ = strata_core::FactKey::new(text(input));
    });
}

#[test]
fn an_altered_page_token_opens_nothing() {
    let (tokens, binding) = (PageTokens::new(b"secret"), ["t1", "u1", "ListMemories"]);
    let good = tokens.mint(&binding, "018f0000-0000-7000-8000-000000000000");
    let other = tokens.mint(&["t2", "u1", "ListMemories"], "cursor");
    fuzz::run(&corpus("page"), &[good.clone().into_bytes(), other.into_bytes()], |input| {
        let token = text(input);
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
        runtime.block_on(Verifier::new(keys.clone(), Ports::system()).verify(request)).is_ok()
    };
    fuzz::run(&corpus("signed"), &[genuine.as_bytes().to_vec()], |input| {
        if let Ok(value) = http::HeaderValue::from_bytes(input) {
            assert!(!verify(&value), "an altered header, or one signed before the layer began, passes");
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
    fuzz::run(&corpus("config"), &seeds, |input| {
        std::fs::write(&path, input).expect("written");
        if let Err(error) = Config::load_reloadable(&path) {
            assert!(!error.to_string().is_empty());
        }
        let _ = strata_core::policy::registry::Registry::extended(&text(input));
        let _ = KeyRing::parse(&text(input).into());
    });
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
    fuzz::run(&corpus("jwt"), &[good.clone().into_bytes(), jwks.clone().into_bytes()], |input| {
        let token = text(input);
        assert!(tokens.verify(&token).is_err() || token == good, "an altered token is taken: {token}");
        if tokens.replace(&token).is_ok() {
            tokens.replace(&jwks).expect("the issuer's own keys again");
        }
    });
}
