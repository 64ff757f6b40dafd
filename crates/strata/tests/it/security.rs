//! Who may do what, over the wire and against real processes: every method with every role, keys that are made and ended while
//! the service runs, modes, TLS between all parties, tokens, limits of one tenant, and metrics without secrets.

use crate::cluster::{Cluster, ROLES, free_port, strata};
use crate::observability::metric;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;
use strata_core::policy::authz::{METHODS, Role};
use strata_core::{Clock as _, Fault, Reason};
use strata_runtime::channel::{self, EndpointConfig, RpcChannel};
use strata_runtime::ports::SystemClock;
use strata_testkit::poll;
use strata_testkit::tls::Authority;

const SOON: Duration = Duration::from_secs(30);

/// A key per role, its name in small letters, of tenant `t1`; and one with every role.
fn keys() -> String {
    let mut text = String::new();
    let all: Vec<&str> = Role::ALL.iter().map(|role| role.name()).collect();
    for (id, roles) in
        Role::ALL.iter().map(|role| (role.name().to_lowercase(), vec![role.name()])).chain([("all".to_owned(), all)])
    {
        let hash = strata_runtime::layer::auth::hash_key(&secret(&id)).to_hex();
        text += &format!("[[auth.api_keys]]\nid = {id:?}\nhash = \"{hash}\"\ntenant = \"t1\"\nroles = {roles:?}\n");
    }
    text
}

fn secret(id: &str) -> String {
    format!("strata_test_{id}")
}

/// One process, all roles, with this configuration.
fn serving(folder: &Path, text: &str) -> Cluster {
    let config = folder.join("strata.toml");
    std::fs::write(&config, text).expect("written");
    Cluster::quick(false, &[("STRATA_CONFIG", config.display().to_string())])
}

fn ctl(cluster: &Cluster, key: &str, args: &[&str]) -> Output {
    let url = cluster.url();
    let mut all = vec!["ctl", "--server", &url, "--api-key", key];
    all.extend(args);
    strata(&all)
}

fn out(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// An empty request to a method, of any kind; its refusal, if it is one.
async fn knock(channel: &RpcChannel, path: &'static str, key: Option<&str>) -> Option<Fault> {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.expect("connected");
    let mut request = tonic::Request::new(tokio_stream::once(Vec::new()));
    request.set_timeout(Duration::from_secs(20));
    if let Some(key) = key {
        request.metadata_mut().insert("authorization", format!("Bearer {key}").parse().expect("a header"));
    }
    let path = http::uri::PathAndQuery::from_static(path);
    match client.streaming(request, path, strata_api::codec::Raw).await {
        Err(status) => Some(strata_api::error::fault(&status)),
        Ok(mut answers) => answers.get_mut().message().await.err().map(|status| strata_api::error::fault(&status)),
    }
}

/// The whole table: a role that is not in a method's row is refused, one that is in it is not; strangers and wrong keys get
/// nowhere; what is between roles is not served.
#[test]
fn a02_a03_a04_every_method_with_every_role_over_the_wire() {
    let folder = tempfile::tempdir().expect("a folder");
    let cluster = serving(folder.path(), &keys());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let channel = channel::connect(&EndpointConfig::new(cluster.url())).expect("a channel");
        for method in METHODS {
            for key in [None, Some("strata_wrong"), Some("")] {
                let fault = knock(&channel, method.path, key).await.expect("refused");
                assert_eq!(fault.reason, Reason::Unauthenticated, "{} with {key:?}", method.path);
            }
            for role in Role::ALL {
                let fault = knock(&channel, method.path, Some(&secret(&role.name().to_lowercase()))).await;
                let reason = fault.as_ref().map(|fault| fault.reason);
                if method.roles.is_empty() {
                    assert_eq!(reason, Some(Reason::UnsignedCall), "{} as {}", method.path, role.name());
                } else if method.roles.contains(role) {
                    let let_in = !matches!(reason, Some(Reason::RoleMissing | Reason::Unauthenticated | Reason::UnsignedCall));
                    assert!(let_in, "{} as {}: {fault:?}", method.path, role.name());
                } else {
                    assert_eq!(reason, Some(Reason::RoleMissing), "{} as {}", method.path, role.name());
                }
            }
        }
    });
}

#[test]
fn api_keys_are_made_listed_and_ended_while_the_service_runs_and_survive_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut cluster = serving(folder.path(), &keys());
    let operator = secret("operator");
    let made =
        ctl(&cluster, &operator, &["keys", "create", "ci", "--user", "ada", "--roles", "reader,session_manager", "--days", "30"]);
    let key = out(&made).trim().to_owned();
    assert!(key.starts_with("strata_") && key.len() > 64, "{key}");
    let sessions = |cluster: &Cluster, key: &str, user: &str| {
        ctl(cluster, key, &["call", "ListSessions", &json!({"user_id": user}).to_string()])
    };
    out(&sessions(&cluster, &key, "ada"));
    assert!(err(&sessions(&cluster, &key, "bob")).contains("OWNER_MISMATCH"));
    assert!(err(&ctl(&cluster, &key, &["keys", "list"])).contains("ROLE_MISSING"));
    let listed = out(&ctl(&cluster, &operator, &["keys", "list"]));
    assert!(listed.contains("ci") && listed.contains("ada") && !listed.contains(&key), "{listed}");
    assert!(err(&ctl(&cluster, &operator, &["keys", "create", "ci", "--roles", "reader"])).contains("key_id"));

    // Nothing but its hash is kept, and a restart forgets nothing.
    for file in walk(cluster.folder.path()) {
        let bytes = std::fs::read(&file).expect("read");
        let holds = bytes.windows(key.len()).any(|window| window == key.as_bytes());
        assert!(!holds, "{} holds the key", file.display());
    }
    cluster.kill_and_restart("all");
    out(&sessions(&cluster, &key, "ada"));
    assert_eq!(out(&ctl(&cluster, &operator, &["keys", "revoke", "ci", "--reason", "a test"])), "ci is revoked\n");
    assert!(err(&sessions(&cluster, &key, "ada")).contains("UNAUTHENTICATED"));
    cluster.kill_and_restart("all");
    assert!(err(&sessions(&cluster, &key, "ada")).contains("UNAUTHENTICATED"), "it stays revoked");
    assert_eq!(out(&ctl(&cluster, &operator, &["keys", "list"])), "");
    assert!(out(&ctl(&cluster, &operator, &["keys", "list", "--all"])).contains("revoked"));
    assert!(!cluster.printed(&key) && !cluster.printed(&operator), "a key was logged");
}

fn walk(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { found.extend(walk(&path)) } else { found.push(path) }
    }
    found
}

fn remember(cluster: &Cluster, key: &str) -> Output {
    let text = "From now on, always answer in English.";
    let statement = json!({"user_id": "ada", "statement": {"kind": "KIND_PREFERENCE", "content": text, "source": "SOURCE_USER_STATEMENT",
        "source_quote": text, "trigger": "TRIGGER_USER_REQUEST"}});
    ctl(cluster, key, &["call", "Remember", &statement.to_string()])
}

#[test]
fn a198_c179_a_mode_is_set_at_run_time_with_a_reason_and_survives_restarts() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut cluster = serving(folder.path(), &keys());
    let (operator, all) = (secret("operator"), secret("all"));
    let set = |cluster: &Cluster, mode: &str, more: &[&str]| {
        let mut args = vec!["mode", "set", "longterm", mode, "--reason", "wrong values since noon"];
        args.extend(more);
        ctl(cluster, &operator, &args)
    };
    assert!(err(&ctl(&cluster, &secret("reader"), &["mode"])).contains("ROLE_MISSING"));
    let shown = out(&set(&cluster, "write-off", &["--expected-version", "0"]));
    assert!(shown.contains("longterm  WRITE_OFF") && shown.contains("key:operator") && shown.contains("since noon"), "{shown}");
    assert!(err(&set(&cluster, "normal", &["--expected-version", "0"])).contains("VERSION_MISMATCH"));
    assert!(err(&remember(&cluster, &all)).contains("LAYER_WRITE_OFF"));
    out(&ctl(&cluster, &all, &["call", "Recall", &json!({"user_id": "ada", "query": "language"}).to_string()]));
    let forget = json!({"user_id": "ada", "memory_ids": ["018f0000-0000-7000-8000-000000000000"], "reason": "a test"});
    let forget = ctl(&cluster, &all, &["call", "ForgetMemories", &forget.to_string()]);
    let refusal = String::from_utf8_lossy(&forget.stderr).into_owned();
    assert!(!refusal.contains("LAYER_"), "a freeze never blocks forgetting: {refusal}");

    cluster.kill_and_restart("all");
    assert!(err(&remember(&cluster, &all)).contains("LAYER_WRITE_OFF"), "it survives a kill");
    out(&set(&cluster, "normal", &[]));
    out(&remember(&cluster, &all));
    out(&set(&cluster, "bypass", &[]));
    let recalled = out(&ctl(&cluster, &all, &["call", "Recall", &json!({"user_id": "ada", "query": "language"}).to_string()]));
    assert!(recalled.contains("LAYER_RECALL_OFF"), "{recalled}");
    assert!(
        err(&ctl(&cluster, &all, &["call", "ListMemories", &json!({"user_id": "ada"}).to_string()])).contains("LAYER_BYPASSED")
    );
    out(&ctl(&cluster, &all, &["call", "ListSessions", &json!({"user_id": "ada"}).to_string()]));
}

/// Files of an issuer's key set and of certificates, and the variables that name them.
struct Secured {
    folder: tempfile::TempDir,
    issuer: ring::signature::Ed25519KeyPair,
    authority: Authority,
}

fn b64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Secured {
    fn new() -> Self {
        let random = ring::rand::SystemRandom::new();
        let pkcs8 = ring::signature::Ed25519KeyPair::generate_pkcs8(&random).expect("a key");
        let issuer = ring::signature::Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).expect("a key");
        let secured = Self { folder: tempfile::tempdir().expect("a folder"), issuer, authority: Authority::new("test") };
        let x = b64(ring::signature::KeyPair::public_key(&secured.issuer));
        secured.put("jwks.json", &json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "k1", "x": x}]}).to_string());
        secured.certificates(2100);
        secured
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn put(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join("next"), text).expect("written");
        std::fs::rename(self.folder.path().join("next"), self.folder.path().join(name)).expect("renamed");
    }

    fn certificates(&self, until: i32) {
        let issued = self.authority.issue(until);
        self.put("tls.crt", &issued.certificate);
        self.put("tls.key", &issued.key);
        self.put("ca.crt", &self.authority.pem);
    }

    fn env(&self) -> Vec<(&'static str, String)> {
        vec![
            ("STRATA_SERVER__TLS__CERTIFICATE_FILE", self.path("tls.crt")),
            ("STRATA_SERVER__TLS__KEY_FILE", self.path("tls.key")),
            ("STRATA_SERVER__TLS__AUTHORITIES_FILE", self.path("ca.crt")),
            ("STRATA_SERVER__INTERNAL_TLS__CERTIFICATE_FILE", self.path("tls.crt")),
            ("STRATA_SERVER__INTERNAL_TLS__KEY_FILE", self.path("tls.key")),
            ("STRATA_SERVER__INTERNAL_TLS__AUTHORITIES_FILE", self.path("ca.crt")),
            ("STRATA_AUTH__JWT__ISSUER", "https://idp.test".into()),
            ("STRATA_AUTH__JWT__AUDIENCES", "[\"strata\"]".into()),
            ("STRATA_AUTH__JWT__JWKS_FILE", self.path("jwks.json")),
            ("STRATA_EMBEDDER__KIND", "none".into()),
        ]
    }

    fn token(&self, claims: &Value) -> String {
        let now = SystemClock.now().micros() / 1_000_000;
        let mut all = json!({"iss": "https://idp.test", "aud": "strata", "sub": "ada", "tenant": "acme",
            "roles": Role::ALL.iter().map(|role| role.name()).collect::<Vec<_>>(), "exp": now + 600});
        for (name, value) in claims.as_object().expect("an object") {
            all[name] = value.clone();
        }
        let message = format!("{}.{}", b64(json!({"alg": "EdDSA", "kid": "k1"}).to_string()), b64(all.to_string()));
        let signed = self.issuer.sign(message.as_bytes());
        format!("{message}.{}", b64(signed))
    }

    fn ctl(&self, cluster: &Cluster, token: &str, args: &[&str]) -> Output {
        let (ca, certificate, key) = (self.path("ca.crt"), self.path("tls.crt"), self.path("tls.key"));
        let mut all = vec!["--ca-file", &ca, "--certificate-file", &certificate, "--private-key-file", &key];
        all.extend(args);
        ctl(cluster, token, &all)
    }
}

#[test]
fn four_processes_over_mutual_tls_with_tokens_and_certificates_that_change() {
    let secured = Secured::new();
    let cluster = Cluster::four_with(&secured.env(), true);
    let token = secured.token(&json!({}));
    let append = |token: &str, user: &str| {
        let turn = json!({"user_id": user, "session_id": "s", "turns": [{"role": "ROLE_USER", "text": "I live in Berlin."}]});
        secured.ctl(&cluster, token, &["call", "AppendTurns", &turn.to_string()])
    };
    out(&append(&token, "ada"));
    assert!(err(&append(&token, "bob")).contains("OWNER_MISMATCH"), "the token is ada's");
    assert!(err(&append(&secured.token(&json!({"aud": "others"})), "ada")).contains("UNAUTHENTICATED"));
    assert!(err(&append(&secured.token(&json!({"exp": 1})), "ada")).contains("UNAUTHENTICATED"));
    assert!(err(&append(&secured.token(&json!({"roles": ["READER"]})), "ada")).contains("ROLE_MISSING"));
    assert!(err(&append(&Secured::new().token(&json!({})), "ada")).contains("UNAUTHENTICATED"), "another issuer");
    // Without a certificate, and past the router, nobody gets in.
    err(&ctl(&cluster, &token, &["--ca-file", &secured.path("ca.crt"), "status"]));
    let layer = cluster.address("longterm");
    let (ca, certificate, key) = (secured.path("ca.crt"), secured.path("tls.crt"), secured.path("tls.key"));
    let past = [
        "ctl",
        "--server",
        &layer,
        "--ca-file",
        &ca,
        "--certificate-file",
        &certificate,
        "--private-key-file",
        &key,
        "--api-key",
        &token,
        "call",
        "ListMemories",
        "{\"user_id\": \"ada\"}",
    ];
    assert!(err(&strata(&past)).contains("UNSIGNED_CALL"));

    // Certificates of a new authority: every process follows, and a caller of the old one is a stranger.
    let next = Secured { folder: secured.folder, issuer: secured.issuer, authority: Authority::new("next") };
    let (old_ca, old_certificate, old_key) = (next.path("old-ca.crt"), next.path("old.crt"), next.path("old.key"));
    for (from, to) in [("ca.crt", &old_ca), ("tls.crt", &old_certificate), ("tls.key", &old_key)] {
        std::fs::copy(next.path(from), to).expect("copied");
    }
    next.certificates(2101);
    let works = || next.ctl(&cluster, &token, &["call", "ListSessions", "{}"]).status.success();
    poll::blocking(SOON, || works().then_some(())).expect("the new certificates are in force");
    let old = ["--ca-file", &old_ca, "--certificate-file", &old_certificate, "--private-key-file", &old_key, "status"];
    let stranger = || !ctl(&cluster, &token, &old).status.success();
    poll::blocking(SOON, || stranger().then_some(())).expect("the old ones are not");
    assert!(!cluster.printed(&token), "a token was logged");
}

/// Quotas follow the configuration file: each refusal names the quota, its limit and what helps, and ends when the file says so.
#[test]
fn quotas_of_records_and_bytes_follow_the_file_and_say_what_helps() {
    let folder = tempfile::tempdir().expect("a folder");
    let cluster = serving(folder.path(), &keys());
    quotas(folder.path(), &cluster, &["all"]);
}

#[test]
fn quotas_of_four_processes_are_those_of_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("strata.toml");
    std::fs::write(&config, keys()).expect("written");
    let cluster = Cluster::four_with(
        &[("STRATA_CONFIG", config.display().to_string()), ("STRATA_EMBEDDER__KIND", "none".to_owned())],
        false,
    );
    quotas(folder.path(), &cluster, &ROLES);
}

fn quotas(folder: &Path, cluster: &Cluster, processes: &[&str]) {
    let (all, mut reloads) = (secret("all"), 0);
    let mut follow = |quotas: &str| {
        reloads += 1;
        let next = folder.join("next");
        std::fs::write(&next, format!("{quotas}{}", keys())).expect("written");
        std::fs::rename(&next, folder.join("strata.toml")).expect("renamed");
        let times = |process: &&str| cluster.lines(process).iter().filter(|line| line.contains("quotas were reloaded")).count();
        poll::blocking(SOON, || processes.iter().all(|process| times(process) >= reloads).then_some(()))
            .expect("the file is followed");
    };
    let say = |user: &str, n: u32| {
        let text = format!("My badge has the number {n}77.");
        let statement = json!({"user_id": user, "statement": {"kind": "FACT", "content": text, "source": "USER_STATEMENT",
            "source_quote": text, "trigger": "USER_REQUEST", "key": format!("badge.n{n}")}});
        ctl(cluster, &all, &["call", "Remember", &statement.to_string()])
    };
    out(&say("ada", 1));
    out(&say("bob", 1));
    let refused = |output: &Output, quota: &str, limit: &str| {
        let said = err(output);
        assert!(said.contains("LIMIT_REACHED") && said.contains(&format!("quota {quota} of {limit}")), "{said}");
        assert!(said.contains("erase") && said.contains("quotas.tenants"), "{said}");
    };
    follow("[quotas.tenants.t1]\nrecords_per_user = 2\n");
    out(&say("ada", 2));
    refused(&say("ada", 3), "records_per_user", "2");
    // What is there is served, and the same statement again is no new record.
    out(&say("ada", 2));
    out(&ctl(cluster, &all, &["call", "ListMemories", "{\"user_id\": \"ada\"}"]));
    out(&say("bob", 2));
    follow("[quotas.tenants.t1]\nrecords = 5\n");
    out(&say("ada", 3));
    refused(&say("cleo", 1), "records", "5");
    // Erasing makes room, as it says.
    let erased = ctl(cluster, &all, &["erase", "--user", "bob", "--reason", "makes room", "--everything"]);
    assert!(erased.status.code().is_some_and(|code| code == 0 || code == 2), "{}", String::from_utf8_lossy(&erased.stderr));
    poll::blocking(SOON, || say("cleo", 1).status.success().then_some(())).expect("room");
    // Another tenant's quota is not this one's.
    follow("[quotas.tenants.t2]\nrecords = 1\n");
    out(&say("ada", 4));
    // A wrong file changes nothing and is told.
    let next = folder.join("next");
    std::fs::write(&next, format!("[quotas.each]\nbytes_per_second = -1\n{}", keys())).expect("written");
    std::fs::rename(&next, folder.join("strata.toml")).expect("renamed");
    poll::blocking(SOON, || cluster.printed("quotas.each.bytes_per_second").then_some(())).expect("the mistake is named");
    out(&say("ada", 5));
    follow("[quotas.each]\nbytes_per_second = 10\n");
    let said = poll::blocking(SOON, || {
        let output = say("ada", 6);
        (!output.status.success()).then(|| err(&output))
    });
    let said = said.expect("more was sent than may be");
    assert!(
        said.contains("OVERLOADED") && said.contains("bytes_per_second of 10") && said.contains("retrying is safe after"),
        "{said}"
    );
}

/// Whoever runs it sees that a certificate is over: in the metric and its alert, in the log of the process, and in what a caller is
/// told, whichever side's it is.
#[test]
fn an_expired_certificate_of_either_side_is_named_to_callers_and_in_the_log() {
    let secured = Secured::new();
    let mut cluster = Cluster::idle_four(&secured.env(), true);
    let port = free_port();
    for role in ROLES {
        if role == "router" {
            cluster.set_env("STRATA_TELEMETRY__PROMETHEUS_LISTEN", &format!("127.0.0.1:{port}"));
        }
        cluster.start(role);
    }
    let left = || metric(port, "strata_tls_certificate_expires_seconds", "use=\"public\"");
    poll::blocking(SOON, || left().filter(|seconds| *seconds > 86_400.0)).expect("years are left");
    let token = secured.token(&json!({}));
    let status = || secured.ctl(&cluster, &token, &["call", "ListSessions", "{}"]);
    poll::blocking(SOON, || status().status.success().then_some(())).expect("all four have found each other");
    // The caller's: the server says so in its refusal.
    let issued = secured.authority.issue(2021);
    secured.put("old.crt", &issued.certificate);
    secured.put("old.key", &issued.key);
    let (ca, certificate, key) = (secured.path("ca.crt"), secured.path("old.crt"), secured.path("old.key"));
    let old = ["--ca-file", &ca, "--certificate-file", &certificate, "--private-key-file", &key, "status"];
    let said = err(&ctl(&cluster, &token, &old));
    assert!(said.contains("TLS") && said.contains("CertificateExpired"), "{said}");
    // The servers': they follow the files, and every process says so.
    secured.certificates(2021);
    for role in ROLES {
        let told = || cluster.lines(role).iter().any(|line| line.contains("the certificate has expired")).then_some(());
        poll::blocking(SOON, told).unwrap_or_else(|late| panic!("{late}: {role}"));
    }
    poll::blocking(SOON, || left().filter(|seconds| *seconds < 0.0)).expect("the alert's metric says so");
    let said = err(&status());
    assert!(said.contains("the TLS handshake failed") && said.contains("certificate expired"), "{said}");
    // Renewed, all goes on without a restart.
    secured.certificates(2102);
    poll::blocking(SOON, || status().status.success().then_some(())).expect("the new ones are in force");
}

/// Calls of the administration that change nothing, so that the audit has nothing to say of them.
const ADMIN_READS: [&str; 7] =
    ["GetStatus", "GetModes", "ListApiKeys", "GetQuality", "WatchDecisions", "ListAudit", "VerifyAudit"];

/// Each of the others, how it is done here, and what the audit then says: action, and subject where it names something.
const ADMIN_CHANGES: [(&str, &[&str], &str, &str); 10] = [
    ("SetMode", &["mode", "set", "session", "normal", "--reason", "a drill"], "MODE_SET", "session NORMAL"),
    ("CreateApiKey", &["keys", "create", "ci", "--roles", "reader"], "API_KEY_CREATED", "ci"),
    ("RevokeApiKey", &["keys", "revoke", "ci", "--reason", "a drill"], "API_KEY_REVOKED", "ci"),
    ("Reindex", &["call", "Reindex"], "REINDEX", ""),
    ("Backup", &["backup"], "BACKUP", ".sqlite"),
    ("VerifyConsistency", &["verify", "--repair"], "INDEX_REPAIR", ""),
    ("RunMaintenance", &["maintenance", "run", "--user", "ada", "--rules", "F1,F2"], "MAINTENANCE_RUN", "F1 F2"),
    ("Rescan", &["rescan", "--user", "ada"], "RESCAN", ""),
    ("SampleForReview", &["call", "SampleForReview", "{\"count\": 1}"], "REVIEW_SAMPLED", "1"),
    ("SubmitReview", &["call", "SubmitReview"], "REVIEWED", "SOUND"),
];

#[test]
fn every_admin_call_that_changes_something_is_in_the_audit_with_who_and_what_and_nothing_of_the_content() {
    let methods: Vec<&str> =
        METHODS.iter().filter_map(|method| method.path.strip_prefix("/strata.admin.v1.AdminService/")).collect();
    for method in &methods {
        let changes = ADMIN_CHANGES.iter().any(|(name, ..)| name == method);
        assert!(changes != ADMIN_READS.contains(method), "{method}: say here whether it changes something");
    }
    assert_eq!(methods.len(), ADMIN_READS.len() + ADMIN_CHANGES.len());

    let folder = tempfile::tempdir().expect("a folder");
    let backups = folder.path().join("backups");
    std::fs::create_dir(&backups).expect("a folder");
    let cluster = serving(folder.path(), &format!("[storage]\nbackup_dir = {backups:?}\n{}", keys()));
    let (operator, auditor, all) = (secret("operator"), secret("auditor"), secret("all"));
    // Said in a turn, so that it is in force and there is something to draw from.
    let text = "From now on, always answer in English.";
    let turns = json!({"user_id": "ada", "session_id": "s", "turns": [{"role": "USER", "text": text}]});
    out(&ctl(&cluster, &all, &["call", "AppendTurns", &turns.to_string()]));
    let statement = json!({"user_id": "ada", "statement": {"kind": "PREFERENCE", "content": text, "source": "USER_STATEMENT",
        "source_quote": text, "source_ref": {"turn": {"session_id": "s", "seq": 1}}, "trigger": "USER_REQUEST"}});
    let written = out(&ctl(&cluster, &all, &["call", "Remember", &statement.to_string()]));
    assert!(written.contains("ACTIVE"), "{written}");
    out(&ctl(
        &cluster,
        &all,
        &["call", "Recall", &json!({"user_id": "ada", "query": "Shall I always answer in English?"}).to_string()],
    ));
    let listed = || -> Vec<Value> {
        let text = out(&ctl(&cluster, &auditor, &["audit"]));
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    let mut sample = String::new();
    for (method, args, action, subject) in ADMIN_CHANGES {
        let before = listed().len();
        let mut args: Vec<String> = args.iter().map(ToString::to_string).collect();
        if method == "SubmitReview" {
            args.push(json!({"sample_id": sample, "verdict": "REVIEW_VERDICT_SOUND"}).to_string());
        }
        let answer = out(&ctl(&cluster, &operator, &args.iter().map(String::as_str).collect::<Vec<_>>()));
        if method == "SampleForReview" {
            let answer: Value = serde_json::from_str(&answer).expect("JSON");
            sample = answer.pointer("/samples/0/sample_id").and_then(Value::as_str).expect("a sample").to_owned();
        }
        let entries = listed();
        let new = entries[before..].iter().find(|entry| entry["action"] == *action);
        let new = new.unwrap_or_else(|| panic!("{method} is not in the audit: {:?}", &entries[before..]));
        assert_eq!(new["actor"], "key:operator", "{new}");
        assert!(new["time"].is_string() && new["subject"].as_str().unwrap_or_default().contains(subject), "{new}");
    }
    // What operators are refused leaves nothing, and what users said is nowhere.
    let before = listed().len();
    assert!(err(&ctl(&cluster, &secret("reader"), &["backup"])).contains("ROLE_MISSING"));
    assert!(err(&ctl(&cluster, &operator, &["maintenance", "run", "--rules", "English"])).contains("rules[0]"));
    let entries = listed();
    assert_eq!(entries.len(), before);
    assert!(entries.iter().all(|entry| !entry.to_string().contains("English")), "{entries:?}");
    out(&ctl(&cluster, &auditor, &["audit", "--verify"]));
}

#[test]
fn a_tenant_over_its_rate_is_told_when_to_come_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let cluster = serving(folder.path(), &format!("[quotas.tenants.t1]\ncalls_per_second = 0.01\nburst = 2\n{}", keys()));
    let reader = secret("reader");
    let ask = || ctl(&cluster, &reader, &["call", "ListSessions", "{\"user_id\": \"ada\"}"]);
    out(&ask());
    out(&ask());
    let refusal = err(&ask());
    assert!(refusal.contains("OVERLOADED") && refusal.contains("retrying is safe after"), "{refusal}");
    out(&ctl(&cluster, &reader, &["health"]));
}
