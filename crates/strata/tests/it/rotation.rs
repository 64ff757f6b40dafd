//! Keys that change while the service runs: those between roles under load, those of an issuer that is asked over HTTP.

use crate::cluster::{Cluster, ROLES, strata};
use crate::soak::{env, load_for, under_load};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::json;
use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use strata_api::session::v1::GetSessionRequest;
use strata_api::session::v1::session_memory_service_client::SessionMemoryServiceClient;
use strata_core::policy::authz::Principal;
use strata_core::{Clock as _, Reason, TenantId, UserId};
use strata_runtime::channel::{self, EndpointConfig};
use strata_runtime::ports::{Ports, Stopwatch, SystemClock};
use strata_runtime::signing::{KeyRing, SharedKeys, Signer};
use strata_runtime::{CallIdentity, jwt};
use strata_testkit::poll;

const SOON: Duration = Duration::from_secs(30);

fn key(id: &str, byte: &str) -> String {
    format!("{id}:{}", byte.repeat(32))
}

fn replace(path: &Path, text: &str) {
    let next = path.with_extension("next");
    std::fs::write(&next, text).expect("written");
    std::fs::rename(&next, path).expect("renamed");
}

/// Waits until every process has said `line` so often.
fn said(cluster: &Cluster, line: &str, times: usize) {
    for role in ROLES {
        let count = || cluster.lines(role).iter().filter(|said| said.contains(line)).count();
        poll::blocking(SOON, || (count() >= times).then_some(())).unwrap_or_else(|late| panic!("{late}: {role}: {line}"));
    }
}

/// Why session memory refuses a call that is signed with this key; nothing when it takes it.
fn signed_with(cluster: &Cluster, key: &str) -> Option<Reason> {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let channel = channel::connect(&EndpointConfig::new(cluster.address("session"))).expect("a channel");
        let keys = SharedKeys::new(KeyRing::parse(&key.to_owned().into()).expect("a key"));
        let mut client = SessionMemoryServiceClient::new(Signer::new(keys, Ports::system()).sign(channel));
        let tenant = TenantId::new("local").expect("an id");
        let principal = Principal { id: "router".into(), tenant, user: None, roles: BTreeSet::new() };
        let body = GetSessionRequest { user_id: "u".into(), session_id: "none".into(), ..GetSessionRequest::default() };
        let mut request = tonic::Request::new(body);
        request.set_timeout(Duration::from_secs(20));
        request.extensions_mut().insert(CallIdentity::new(principal, Some(UserId::new("u").expect("an id"))));
        let answer = client.get_session(request).await;
        answer.err().map(|status| strata_api::error::fault(&status).reason).filter(|reason| *reason != Reason::NotFound)
    })
}

#[test]
fn signing_keys_rotate_under_load_and_no_call_is_refused() {
    const READ: &str = "signing keys were read again";
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("signing-keys");
    let (old, new) = (key("k1", "ab"), key("k2", "cd"));
    replace(&file, &old);
    let mut env = env();
    env.push(("STRATA_SIGNING_KEYS_FILE", file.display().to_string()));
    env.push(("STRATA_SECRET", old.clone()));
    let mut cluster = Cluster::four_with(&env, false);
    assert_eq!(signed_with(&cluster, &new), Some(Reason::UnsignedCall), "not known yet");
    // A refusal of a signature may not be retried: the load would end with it.
    let (calls, _) = under_load(&mut cluster, false, |cluster| {
        load_for(Duration::from_secs(1));
        // The new one verifies everywhere before anybody signs with it.
        replace(&file, &format!("{new}\n{old}\n"));
        said(cluster, READ, 1);
        for key in [&old, &new] {
            assert_eq!(signed_with(cluster, key), None, "both are good while they rotate");
        }
        load_for(Duration::from_secs(1));
        replace(&file, &format!("{old}\n{new}\n"));
        said(cluster, READ, 2);
        load_for(Duration::from_secs(1));
        replace(&file, &new);
        said(cluster, READ, 3);
        load_for(Duration::from_secs(1));
    });
    assert!(calls > 0);
    assert_eq!(signed_with(&cluster, &old), Some(Reason::UnsignedCall), "the old one is over");
    assert_eq!(signed_with(&cluster, &new), None);

    // A file that cannot be used changes nothing.
    replace(&file, "k3:not hexadecimal");
    said(&cluster, "signing keys are refused", 1);
    assert_eq!(signed_with(&cluster, &new), None, "the last good ones stay");
    // Every process finds its data again: what is derived from the secret outlives the rotation.
    replace(&file, &new);
    cluster.kill_and_restart("longterm");
}

#[test]
fn keys_that_are_the_secret_too_do_not_rotate_and_the_error_says_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("signing-keys");
    let (old, new) = (key("k1", "ab"), key("k2", "cd"));
    replace(&file, &format!("# the key of the deployment\n{old}\n"));
    let mut env = env();
    env.push(("STRATA_SIGNING_KEYS_FILE", file.display().to_string()));
    let mut cluster = Cluster::four_with(&env, false);
    let teaches = |text: &str| text.contains("secret") && text.contains("is required before the signing keys change");
    for (round, text) in [(1, format!("{new}\n{old}\n")), (2, new.clone())] {
        replace(&file, &text);
        said(&cluster, "signing keys are refused", round);
        assert!(cluster.lines("router").iter().any(|line| teaches(line)), "{:?}", cluster.lines("router"));
        assert_eq!(signed_with(&cluster, &old), None, "the old one stays");
        assert_eq!(signed_with(&cluster, &new), Some(Reason::UnsignedCall));
    }

    // Whoever starts with other keys is told the same, before it does harm.
    assert_eq!(cluster.terminate("longterm", SOON), Some(0));
    let refused = |cluster: &Cluster| {
        let mut process = cluster.spawn("longterm");
        assert!(!process.wait_exit(SOON).success());
        process.lines().into_iter().map(|line| line.text).collect::<Vec<_>>().join("\n")
    };
    replace(&file, &format!("{new}\n{old}\n"));
    let text = refused(&cluster);
    assert!(teaches(&text), "{text}");
    replace(&file, &new);
    let text = refused(&cluster);
    assert!(text.contains("is not the one that the records were written with"), "{text}");
    assert!(!text.contains(&old[3..]) && !text.contains(&new[3..]), "a key was printed");
    // As it says: the key as it stood becomes the secret, and then keys may change.
    cluster.set_env("STRATA_SECRET", &old);
    cluster.start("longterm");
}

/// An issuer: publishes its keys over HTTP, or fails.
struct Issuer {
    keys: Vec<(&'static str, Ed25519KeyPair)>,
    /// Body of the next answers; none: 503.
    published: Arc<Mutex<Option<String>>>,
    asked: Arc<AtomicUsize>,
    url: String,
}

impl Issuer {
    fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let url = format!("http://{}/jwks.json", listener.local_addr().expect("an address"));
        let random = ring::rand::SystemRandom::new();
        let keys = ["k1", "k2"].map(|id| {
            let pkcs8 = Ed25519KeyPair::generate_pkcs8(&random).expect("a key");
            (id, Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).expect("a key"))
        });
        let (published, asked) = (Arc::new(Mutex::new(None::<String>)), Arc::new(AtomicUsize::new(0)));
        let (body, count) = (Arc::clone(&published), Arc::clone(&asked));
        let serve = move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { continue };
                let _request = stream.read(&mut [0; 4_096]);
                count.fetch_add(1, Ordering::AcqRel);
                let answer = match &*body.lock().expect("a lock") {
                    Some(set) => format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{set}", set.len()),
                    None => "HTTP/1.1 503 Down\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned(),
                };
                drop(stream.write_all(answer.as_bytes()));
            }
        };
        std::thread::Builder::new().name("issuer".into()).spawn(serve).expect("a thread");
        let issuer = Self { keys: keys.into(), published, asked, url };
        issuer.publish(&["k1"]);
        issuer
    }

    fn publish(&self, ids: &[&str]) {
        let published = self.keys.iter().filter(|(id, _)| ids.contains(id));
        let keys: Vec<_> = published
            .map(|(id, key)| json!({"kty": "OKP", "crv": "Ed25519", "kid": id, "x": URL_SAFE_NO_PAD.encode(key.public_key())}))
            .collect();
        *self.published.lock().expect("a lock") = Some(json!({ "keys": keys }).to_string());
    }

    fn fail(&self) {
        *self.published.lock().expect("a lock") = None;
    }

    fn token(&self, id: &str, header: &serde_json::Value) -> String {
        let now = SystemClock.now().micros() / 1_000_000;
        let claims = json!({"iss": "https://idp.test", "aud": "strata", "sub": "ada", "tenant": "acme",
            "roles": ["READER", "SESSION_MANAGER"], "exp": now + 3_600});
        let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(header.to_string()), URL_SAFE_NO_PAD.encode(claims.to_string()));
        let key = self.keys.iter().find(|(known, _)| *known == id).map(|(_, key)| key).expect("a key of this issuer");
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(key.sign(message.as_bytes())))
    }

    fn good(&self, id: &str) -> String {
        self.token(id, &json!({"alg": "EdDSA", "kid": id}))
    }
}

#[test]
fn an_issuers_keys_are_fetched_kept_rotated_and_asked_for_once_when_one_is_not_known() {
    let issuer = Issuer::start();
    let cluster = Cluster::quick(
        false,
        &[
            ("STRATA_AUTH__JWT__ISSUER", "https://idp.test".into()),
            ("STRATA_AUTH__JWT__AUDIENCES", "[\"strata\"]".into()),
            ("STRATA_AUTH__JWT__JWKS_URL", issuer.url.clone()),
            // Only unknown keys make it ask again within this test.
            ("STRATA_AUTH__JWT__JWKS_SECONDS", "86400".into()),
            ("STRATA_AUTH__JWT__JWKS_STALE_SECONDS", "2592000".into()),
        ],
    );
    let call = |token: &str| {
        let all = [
            "ctl",
            "--server",
            &cluster.url(),
            "--api-key",
            token,
            "--timeout",
            "30",
            "call",
            "ListSessions",
            "{\"user_id\": \"ada\"}",
        ];
        let output = strata(&all);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() || error.contains("UNAUTHENTICATED"), "{error}");
        output.status.success()
    };
    let asked = || issuer.asked.load(Ordering::Acquire);
    for _ in 0..3 {
        assert!(call(&issuer.good("k1")));
    }
    assert_eq!(asked(), 1, "read at the start, and kept");
    for header in [
        json!({"alg": "none"}),
        json!({"alg": "HS256", "kid": "k1"}),
        json!({"alg": "PS256", "kid": "k1"}),
        json!({"alg": "RS256", "kid": "k1"}),
        json!({"alg": "ES256", "kid": "k1"}),
    ] {
        assert!(!call(&issuer.token("k1", &header)), "{header}");
    }

    // A key that is published before it is used works with its first token, once the pause between two reads is over.
    issuer.publish(&["k1", "k2"]);
    poll::blocking(SOON, || call(&issuer.good("k2")).then_some(())).expect("the new key is read");
    assert!(call(&issuer.good("k1")), "both while they rotate");

    // Keys that nobody has make it ask, but no more often than that.
    let (before, watch) = (asked(), Stopwatch::start());
    for n in 0..12 {
        assert!(!call(&issuer.token("k1", &json!({"alg": "EdDSA", "kid": format!("invented-{n}")}))));
    }
    let most = usize::try_from(watch.elapsed().as_secs() / jwt::READ_PAUSE.as_secs()).expect("few") + 1;
    assert!(asked() - before <= most, "asked {} times in {:?}", asked() - before, watch.elapsed());

    // An issuer that is down changes nothing; one that takes a key back ends it.
    issuer.fail();
    let invented = issuer.token("k1", &json!({"alg": "EdDSA", "kid": "invented"}));
    poll::blocking(SOON, || {
        assert!(!call(&invented));
        cluster.printed("the last good ones stay").then_some(())
    })
    .expect("it was asked");
    assert!(call(&issuer.good("k1")) && call(&issuer.good("k2")), "the last good ones stay");
    issuer.publish(&["k2"]);
    poll::blocking(SOON, || {
        assert!(!call(&invented));
        (!call(&issuer.good("k1"))).then_some(())
    })
    .expect("the old key is over");
    assert!(call(&issuer.good("k2")));
    assert!(!cluster.printed(&issuer.good("k2")[..40]), "a token was logged");
}
