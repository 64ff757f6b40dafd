//! Clients that flood and clients that dawdle, many at a time, against a real process: everybody else is served, and afterwards the
//! process holds no more memory and no more connections than before.

use crate::cluster::Cluster;
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use strata_testkit::http2::{
    CANCEL, CONTINUATION, DATA, END_HEADERS, HEADERS, PREFACE, RST_STREAM, SETTINGS, call, frame, kilobyte, no_window,
};
use strata_testkit::poll;

/// Time of each flood, counted in calls of somebody else that are served meanwhile.
const SERVED: usize = 4;
/// Connections of a flood at a time.
const ATTACKERS: usize = 12;
const PATH: &str = "/strata.session.v1.SessionMemoryService/ListSessions";
const SOON: Duration = Duration::from_secs(60);

fn key(name: &str) -> String {
    format!("strata_test_{name}")
}

/// Two tenants with a key each; each may have 16 calls running.
fn config() -> String {
    let mut text = "[quotas.each]\nin_flight = 16\n".to_owned();
    for name in ["good", "bad"] {
        let hash = strata_runtime::layer::auth::hash_key(&key(name)).to_hex();
        text += &format!("[[auth.api_keys]]\nid = \"{name}\"\nhash = \"{hash}\"\ntenant = \"{name}\"\nroles = [\"READER\"]\n");
    }
    text
}

/// The beginning of a connection, with these settings.
fn connect(port: u16, settings: &[u8]) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_millis(5))).ok()?;
    stream.set_write_timeout(Some(Duration::from_secs(2))).ok()?;
    stream.write_all(&[PREFACE, settings].concat()).ok()?;
    Some(stream)
}

/// Reads what there is; false when the connection is over.
fn open(stream: &mut TcpStream) -> bool {
    let mut some = [0; 16_384];
    match stream.read(&mut some) {
        Ok(0) => false,
        Ok(_) => true,
        Err(error) => matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut),
    }
}

/// What one connection of a flood does until it is over; the bytes it sent.
type Flood = fn(u16) -> u64;

fn plain() -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[])
}

/// Calls that are taken back before anyone looks at them.
fn resets(port: u16) -> u64 {
    let Some(mut stream) = connect(port, &plain()) else { return 0 };
    let (head, mut sent) = (call(PATH, Some(&key("bad"))), 0);
    for n in 0..2_000_u32 {
        let pair = [frame(HEADERS, END_HEADERS, 2 * n + 1, &head), frame(RST_STREAM, 0, 2 * n + 1, &CANCEL)].concat();
        if stream.write_all(&pair).is_err() {
            break;
        }
        sent += pair.len() as u64;
        if n % 50 == 0 && !open(&mut stream) {
            break;
        }
    }
    sent
}

/// Headers that never end.
fn continuations(port: u16) -> u64 {
    let Some(mut stream) = connect(port, &plain()) else { return 0 };
    let (piece, mut sent) = (frame(CONTINUATION, 0, 1, &kilobyte()), 0);
    if stream.write_all(&frame(HEADERS, 0, 1, &call(PATH, None))).is_err() {
        return 0;
    }
    while stream.write_all(&piece).is_ok() && sent < 64 << 20 {
        sent += piece.len() as u64;
        if sent % (64 << 10) < piece.len() as u64 && !open(&mut stream) {
            break;
        }
    }
    assert!(sent < 64 << 20, "headers are taken in without end");
    sent
}

/// Calls whose bodies dribble: a message is announced, and a byte of it comes now and then.
fn dribbles(port: u16) -> u64 {
    let Some(mut stream) = connect(port, &plain()) else { return 0 };
    let (head, mut sent) = (call(PATH, Some(&key("bad"))), 0);
    for n in 0..300_u32 {
        let begun = [frame(HEADERS, END_HEADERS, 2 * n + 1, &head), frame(DATA, 0, 2 * n + 1, &[0, 0, 0, 255, 0, 1])].concat();
        if stream.write_all(&begun).is_err() {
            return sent;
        }
        sent += begun.len() as u64;
    }
    for n in 0..300_u32 {
        if !open(&mut stream) || stream.write_all(&frame(DATA, 0, 2 * n + 1, &[7])).is_err() {
            break;
        }
        sent += 10;
    }
    sent
}

/// Calls whose answers are never read: the client gives them no window.
fn unread(port: u16) -> u64 {
    let Some(mut stream) = connect(port, &no_window()) else { return 0 };
    let (head, mut sent) = (call(PATH, Some(&key("bad"))), 0);
    for n in 0..300_u32 {
        // The message holds a user: field 1, "eve".
        let body = frame(DATA, 1, 2 * n + 1, &[0, 0, 0, 0, 5, 0x0a, 3, b'e', b'v', b'e']);
        let asked = [frame(HEADERS, END_HEADERS, 2 * n + 1, &head), body].concat();
        if stream.write_all(&asked).is_err() || !open(&mut stream) {
            break;
        }
        sent += asked.len() as u64;
    }
    for _ in 0..50 {
        if !open(&mut stream) {
            break;
        }
    }
    sent
}

/// Connections that begin and say no more.
fn silence(port: u16) -> u64 {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return 0 };
    let half = &PREFACE[..9];
    drop(stream.set_read_timeout(Some(Duration::from_millis(300))));
    drop(stream.write_all(half));
    open(&mut stream);
    half.len() as u64
}

#[test]
fn floods_and_slow_clients_hold_up_nobody_else_and_leave_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("strata.toml");
    std::fs::write(&file, config()).expect("written");
    let cluster = Cluster::quick(false, &[("STRATA_CONFIG", file.display().to_string())]);
    let port = cluster.url().rsplit(':').next().and_then(|port| port.parse::<u16>().ok()).expect("a port");
    let served = || {
        let answer = crate::cluster::strata(&[
            "ctl",
            "--server",
            &cluster.url(),
            "--api-key",
            &key("good"),
            "--timeout",
            "30",
            "call",
            "ListSessions",
            &json!({"user_id": "ada"}).to_string(),
        ]);
        let error = String::from_utf8_lossy(&answer.stderr).into_owned();
        // What a retry covers is retried, as the documentation says.
        assert!(answer.status.success() || error.contains("retrying is safe"), "{error}");
        answer.status.success()
    };
    let files = || std::fs::read_dir(format!("/proc/{}/fd", cluster.pid("all"))).expect("a process").count();
    for _ in 0..SERVED {
        assert!(served());
    }
    let floods: [(&str, Flood); 5] =
        [("resets", resets), ("continuations", continuations), ("dribbles", dribbles), ("unread", unread), ("silence", silence)];
    let (memory, open_files) = (cluster.resident("all"), files());
    let mut report = String::new();
    for (name, flood) in floods {
        let (stop, connections, bytes) =
            (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        std::thread::scope(|scope| {
            for _ in 0..ATTACKERS {
                let (stop, connections, bytes) = (Arc::clone(&stop), Arc::clone(&connections), Arc::clone(&bytes));
                scope.spawn(move || {
                    while !stop.load(Ordering::Acquire) {
                        bytes.fetch_add(flood(port), Ordering::Relaxed);
                        connections.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let began = || connections.load(Ordering::Relaxed) >= ATTACKERS as u64;
            let seen = (0..SERVED).map(|_| poll::blocking(SOON, || served().then_some(()))).collect::<Result<Vec<_>, _>>();
            let began = poll::blocking(SOON, || began().then_some(()));
            stop.store(true, Ordering::Release);
            seen.unwrap_or_else(|late| panic!("{late}: nobody else is served while {name}"));
            began.unwrap_or_else(|late| panic!("{late}: {name} did not begin"));
        });
        report += &format!(
            "{name}: {} connections, {} bytes, {} MB resident\n",
            connections.load(Ordering::Relaxed),
            bytes.load(Ordering::Relaxed),
            cluster.resident("all")
        );
    }
    let gone = poll::blocking(SOON, || (files() <= open_files + 8).then_some(()));
    gone.unwrap_or_else(|late| panic!("{late}: {} files are open, {open_files} were before", files()));
    assert!(served());
    let after = cluster.resident("all");
    eprintln!("{report}{memory} MB before, {after} MB after");
    // The allocator keeps some of what was freed.
    assert!(after <= memory + 96, "{memory} MB became {after} MB\n{report}");
}
