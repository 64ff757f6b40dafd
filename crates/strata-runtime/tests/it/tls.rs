//! TLS over real sockets: who is trusted, and that certificates follow their files.

use crate::channels;
use crate::double::{Client, Double, ask};
use futures::StreamExt as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use strata_core::Reason;
use strata_runtime::TaskGroup;
use strata_runtime::channel::{self, EndpointConfig};
use strata_runtime::server::ServeConfig;
use strata_runtime::tls::{ClientTls, ServerTls, TlsFiles, TlsPem};
use strata_testkit::eventually;
use strata_testkit::tls::{Authority, Issued};

fn pem(identity: Option<&Issued>, authorities: Option<&Authority>) -> TlsPem {
    TlsPem {
        certificate: identity.map(|identity| identity.certificate.clone().into_bytes()),
        key: identity.map(|identity| Arc::new(identity.key.clone().into_bytes().into())),
        authorities: authorities.map(|authority| authority.pem.clone().into_bytes()),
    }
}

async fn listen(tasks: &TaskGroup, tls: Arc<ServerTls>) -> SocketAddr {
    let config = ServeConfig { tls: Some(tls), grace: Duration::from_millis(100), ..ServeConfig::default() };
    channels::listen(tasks, channels::public(&Double::default()), config).await
}

fn client(url: String, tls: &Arc<ClientTls>) -> Client {
    let config = EndpointConfig { tls: Some(Arc::clone(tls)), ..EndpointConfig::new(url) };
    Client::new(channel::connect(&config).expect("config"))
}

async fn reaches(url: String, tls: &Arc<ClientTls>) -> bool {
    client(url, tls).get_status(ask("nothing")).await.is_ok()
}

#[tokio::test]
async fn a_server_is_trusted_by_its_authority_its_name_and_its_time() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let trusting = |authority: &Authority| ClientTls::from_pem(&pem(None, Some(authority)), "tls").expect("usable");
    let tasks = TaskGroup::new();
    let address = listen(&tasks, ServerTls::from_pem(&pem(Some(&ours.issue(2100)), None), "tls").expect("usable")).await;
    let url = format!("https://{address}");
    assert!(reaches(url.clone(), &trusting(&ours)).await);
    assert!(!reaches(url.clone(), &trusting(&theirs)).await, "another authority");
    assert!(!reaches(format!("https://localhost:{}", address.port()), &trusting(&ours)).await, "another name");
    assert!(!reaches(format!("http://{address}"), &trusting(&ours)).await, "clear text");
    let expired = ServerTls::from_pem(&pem(Some(&ours.issue(2021)), None), "tls").expect("usable");
    assert_eq!(expired.expires().map(|time| time.micros() / 1_000_000), Some(1_609_459_200));
    let address = listen(&tasks, expired).await;
    assert!(!reaches(format!("https://{address}"), &trusting(&ours)).await, "expired");
}

#[tokio::test]
async fn with_mutual_tls_a_caller_needs_a_certificate_that_is_good_now() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let server = ServerTls::from_pem(&pem(Some(&ours.issue(2100)), Some(&ours)), "tls").expect("usable");
    let tasks = TaskGroup::new();
    let url = format!("https://{}", listen(&tasks, server).await);
    let showing = |identity: Option<Issued>| ClientTls::from_pem(&pem(identity.as_ref(), Some(&ours)), "tls").expect("usable");
    assert!(reaches(url.clone(), &showing(Some(ours.issue(2100)))).await);
    assert!(!reaches(url.clone(), &showing(None)).await, "no certificate");
    assert!(!reaches(url.clone(), &showing(Some(theirs.issue(2100)))).await, "of another authority");
    assert!(!reaches(url, &showing(Some(ours.issue(2021)))).await, "expired");
}

/// In TLS 1.3 a caller has sent its first request before it is told that its certificate is refused. A connection that is closed
/// with that request unread is reset, and the reset overtakes the reason.
#[tokio::test(flavor = "multi_thread")]
async fn a_caller_whose_certificate_is_refused_is_told_why_every_time() {
    let ours = Authority::new("ours");
    let server = ServerTls::from_pem(&pem(Some(&ours.issue(2100)), Some(&ours)), "tls").expect("usable");
    let tasks = TaskGroup::new();
    let url = format!("https://{}", listen(&tasks, server).await);
    let expired = ClientTls::from_pem(&pem(Some(&ours.issue(2021)), Some(&ours)), "tls").expect("usable");
    let asked = (0..300).map(|_| {
        let mut client = client(url.clone(), &expired);
        async move { client.get_status(ask("nothing")).await.expect_err("refused").message().to_owned() }
    });
    let told: Vec<_> = futures::stream::iter(asked).buffer_unordered(16).collect().await;
    let silent: Vec<_> = told.iter().filter(|message| !message.contains("CertificateExpired")).collect();
    assert!(silent.is_empty(), "{} of {}: {silent:?}", silent.len(), told.len());
}

fn write(folder: &Path, identity: &Issued, authorities: &Authority) -> TlsFiles {
    let put = |name: &str, text: &str| {
        let (path, next) = (folder.join(name), folder.join(format!("{name}.next")));
        std::fs::write(&next, text).expect("written");
        std::fs::rename(&next, &path).expect("renamed");
        Some(path)
    };
    TlsFiles {
        certificate: put("tls.crt", &identity.certificate),
        key: put("tls.key", &identity.key),
        authorities: put("ca.crt", &authorities.pem),
    }
}

#[tokio::test]
async fn certificates_follow_their_files_on_both_sides_and_open_connections_go_on() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let (server_folder, client_folder) = (tempfile::tempdir().expect("folder"), tempfile::tempdir().expect("folder"));
    let server_files = write(server_folder.path(), &old.issue(2100), &old);
    let client_files = write(client_folder.path(), &old.issue(2100), &old);
    let server = ServerTls::from_files(server_files, "tls").expect("usable");
    let caller = ClientTls::from_files(client_files, "tls").expect("usable");
    let _watches = (server.watch().expect("watched"), caller.watch().expect("watched"));
    let tasks = TaskGroup::new();
    let url = format!("https://{}", listen(&tasks, Arc::clone(&server)).await);
    let mut connected = client(url.clone(), &caller);
    connected.get_status(ask("nothing")).await.expect("served");

    // The server moves first: a caller of the old authority is a stranger from then on, but not one that is connected.
    write(server_folder.path(), &new.issue(2101), &new);
    let (at, old_caller) = (url.clone(), Arc::clone(&caller));
    eventually(Duration::from_secs(30), || {
        let (url, caller) = (at.clone(), Arc::clone(&old_caller));
        async move { !reaches(url, &caller).await }
    })
    .await;
    connected.get_status(ask("nothing")).await.expect("an open connection goes on");
    write(client_folder.path(), &new.issue(2101), &new);
    eventually(Duration::from_secs(30), || {
        let (url, caller) = (url.clone(), Arc::clone(&caller));
        async move { reaches(url, &caller).await }
    })
    .await;

    // What cannot be used changes nothing.
    std::fs::write(server_folder.path().join("tls.crt"), "nonsense").expect("written");
    assert_eq!(server.reload().expect_err("refused").fields[0].field, "tls.certificate_file");
    std::fs::write(server_folder.path().join("tls.crt"), &new.issue(2102).certificate).expect("written");
    let refused = server.reload().expect_err("another key's");
    assert!(refused.message.contains("do not belong together"), "{refused}");
    assert!(reaches(url, &caller).await, "the last good ones stay");
}

#[test]
fn what_is_missing_is_named() {
    let issued = Authority::new("ours").issue(2100);
    let only_key = TlsPem { certificate: None, ..pem(Some(&issued), None) };
    let fault = ServerTls::from_pem(&only_key, "server.tls").expect_err("refused");
    assert_eq!((fault.reason, fault.fields[0].field.as_str()), (Reason::InvalidField, "server.tls.certificate_file"));
    let absent = TlsFiles { certificate: Some("/nonexistent/tls.crt".into()), ..TlsFiles::default() };
    let fault = ClientTls::from_files(absent, "peers.tls").expect_err("refused");
    assert_eq!(fault.fields[0].field, "peers.tls.certificate_file");
    let rubbish = TlsPem { authorities: Some(b"rubbish".to_vec()), ..pem(Some(&issued), None) };
    assert_eq!(ServerTls::from_pem(&rubbish, "tls").expect_err("refused").fields[0].field, "tls.authorities_file");
    let text = format!("{:?} {:?}", rubbish, ServerTls::from_pem(&pem(Some(&issued), None), "tls").expect("usable"));
    assert!(!text.contains("PRIVATE") && !text.contains("BEGIN"), "{text}");
}
