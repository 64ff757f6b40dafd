//! A TCP proxy that misbehaves on demand, for Redis, gRPC and everything else that speaks TCP.

use crate::port::HeldPort;
use crate::thread::ServerThread;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What the proxy does, from now on, to old and new connections alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Passes everything on.
    #[default]
    Pass,
    /// As if no process listened: open connections are cut, new ones refused by the kernel.
    Refuse,
    /// As a network that drops every packet: connections are taken and stay open, no byte moves. What was held back moves
    /// on when the mode changes, as after a healed partition.
    BlackHole,
    /// Every connection, old and new, is reset (RST).
    Reset,
    /// Each piece of data, in each direction, is passed on after this time.
    Delay(Duration),
    /// Each connection passes this many more bytes to the client, then is reset: an answer that breaks off half-way.
    CutAfter(u64),
}

/// A proxy on a port of its own in front of one upstream address. Dropping it closes every connection.
#[derive(Debug)]
pub struct FaultProxy {
    addr: SocketAddr,
    mode: watch::Sender<Setting>,
    counts: Arc<Counts>,
    listening: watch::Receiver<bool>,
    _serving: ServerThread,
}

/// A mode, told apart from the same mode set again, so that a second `CutAfter` counts anew.
#[derive(Clone, Copy, Debug, Default)]
struct Setting {
    mode: Mode,
    generation: u64,
}

#[derive(Debug, Default)]
struct Counts {
    accepted: AtomicU64,
    to_client: AtomicU64,
    to_upstream: AtomicU64,
}

/// Longest wait for the listener to follow a change of mode: a few polls of its thread.
const SWITCH: Duration = Duration::from_secs(10);

impl FaultProxy {
    /// Starts in [`Mode::Pass`] in front of `upstream`, which need not be up yet.
    ///
    /// # Panics
    /// When the machine has no free port.
    #[must_use]
    pub fn start(upstream: SocketAddr) -> Self {
        let (mode, modes) = watch::channel(Setting::default());
        let (is_listening, listening) = watch::channel(false);
        let port = HeldPort::new();
        let addr = port.addr();
        let counts = Arc::new(Counts::default());
        let counted = Arc::clone(&counts);
        let serving = ServerThread::start("fault-proxy", move || async move {
            accept_loop(&port, upstream, modes, is_listening, counted).await;
        });
        let proxy = Self { addr, mode, counts, listening, _serving: serving };
        proxy.await_listener(true);
        proxy
    }

    /// Where clients connect.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where clients connect, as `<scheme>://<addr>`.
    #[must_use]
    pub fn url(&self, scheme: &str) -> String {
        format!("{scheme}://{}", self.addr)
    }

    /// Switches. When it returns, new connections meet the new mode; open ones follow with their next byte, or at once when
    /// the mode cuts them.
    pub fn set(&self, mode: Mode) {
        self.mode.send_modify(|setting| *setting = Setting { mode, generation: setting.generation + 1 });
        self.await_listener(mode != Mode::Refuse);
    }

    /// The present mode.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode.borrow().mode
    }

    /// Connections taken so far: what a pool or a reconnecting client did.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.counts.accepted.load(Ordering::SeqCst)
    }

    /// Bytes passed so far, as (to the upstream, to the client).
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        (self.counts.to_upstream.load(Ordering::SeqCst), self.counts.to_client.load(Ordering::SeqCst))
    }

    fn await_listener(&self, expected: bool) {
        crate::poll::blocking(SWITCH, || (*self.listening.borrow() == expected).then_some(()))
            .expect("the proxy follows its mode");
    }
}

async fn accept_loop(
    port: &HeldPort,
    upstream: SocketAddr,
    mut modes: watch::Receiver<Setting>,
    listening: watch::Sender<bool>,
    counts: Arc<Counts>,
) {
    let mut listener: Option<TcpListener> = None;
    loop {
        let setting = *modes.borrow_and_update();
        if setting.mode == Mode::Refuse {
            listener = None;
        } else if listener.is_none() {
            listener = Some(port.listen());
        }
        listening.send_replace(listener.is_some());
        let accepted = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = modes.changed() => if changed.is_err() { return },
            taken = accepted => if let Ok((client, _)) = taken {
                counts.accepted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(connection(client, upstream, modes.clone(), Arc::clone(&counts)));
            },
        }
    }
}

async fn connection(client: TcpStream, upstream: SocketAddr, mut modes: watch::Receiver<Setting>, counts: Arc<Counts>) {
    let mode = modes.wait_for(|s| s.mode != Mode::BlackHole).await.map(|s| s.mode);
    let Ok(Mode::Pass | Mode::Delay(_) | Mode::CutAfter(_)) = mode else {
        return reset(&client);
    };
    let Ok(server) = TcpStream::connect(upstream).await else {
        return reset(&client);
    };
    for stream in [&client, &server] {
        // Small writes must not wait for each other: the proxy adds the delay it is told to and no more.
        drop(stream.set_nodelay(true));
    }
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let (up, down) = (modes.clone(), modes.clone());
    let ended = tokio::select! {
        both = async {
            // The first cut ends both directions; a closed one leaves the other open (half-closed TCP).
            tokio::try_join!(
                pump(&mut from_client, &mut to_server, up, &counts.to_upstream, Direction::ToUpstream),
                pump(&mut from_server, &mut to_client, down, &counts.to_client, Direction::ToClient),
            )
        } => both.map(|_| ()),
        _ = modes.wait_for(|s| matches!(s.mode, Mode::Refuse | Mode::Reset)) => Err(Cut),
    };
    if ended == Err(Cut)
        && let (Ok(client), Ok(server)) = (from_client.reunite(to_client), from_server.reunite(to_server))
    {
        reset(&client);
        reset(&server);
    }
}

/// The mode or an error broke the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    ToUpstream,
    ToClient,
}

/// Passes bytes on until the source closes.
async fn pump(
    from: &mut OwnedReadHalf,
    to: &mut OwnedWriteHalf,
    mut modes: watch::Receiver<Setting>,
    passed: &AtomicU64,
    direction: Direction,
) -> Result<(), Cut> {
    let mut buffer = vec![0_u8; 16 * 1024];
    // What is left to pass under the present `CutAfter`, with the generation it belongs to.
    let mut left: Option<(u64, usize)> = None;
    loop {
        let read = from.read(&mut buffer).await.map_err(|_| Cut)?;
        if read == 0 {
            return to.shutdown().await.map_err(|_| Cut);
        }
        let setting = *modes.wait_for(|s| s.mode != Mode::BlackHole).await.map_err(|_| Cut)?;
        let mut piece = &buffer[..read];
        let mut cut = false;
        match setting.mode {
            Mode::Refuse | Mode::Reset => return Err(Cut),
            Mode::Delay(time) => tokio::time::sleep(time).await,
            Mode::CutAfter(bytes) if direction == Direction::ToClient => {
                let rest = match left {
                    Some((generation, rest)) if generation == setting.generation => rest,
                    Some(_) | None => usize::try_from(bytes).unwrap_or(usize::MAX),
                };
                piece = &piece[..read.min(rest)];
                left = Some((setting.generation, rest - piece.len()));
                cut = rest <= read;
            }
            Mode::Pass | Mode::BlackHole | Mode::CutAfter(_) => {}
        }
        to.write_all(piece).await.map_err(|_| Cut)?;
        passed.fetch_add(piece.len() as u64, Ordering::SeqCst);
        if cut {
            return Err(Cut);
        }
    }
}

/// Makes closing the connection send RST instead of FIN.
fn reset(stream: &TcpStream) {
    drop(stream.set_zero_linger());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::{RedisServer, shared};
    use std::io::{ErrorKind, Read, Write};
    use std::time::Instant;

    const SHORT: Duration = Duration::from_millis(300);

    /// A blocking connection whose reads end after [`SHORT`].
    fn connect(proxy: &FaultProxy) -> std::io::Result<std::net::TcpStream> {
        let stream = std::net::TcpStream::connect(proxy.addr())?;
        stream.set_read_timeout(Some(SHORT))?;
        Ok(stream)
    }

    fn ping(stream: &mut std::net::TcpStream) -> std::io::Result<String> {
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0_u8; 7];
        stream.read_exact(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    fn broken(outcome: std::io::Result<String>) -> bool {
        outcome.is_err_and(|e| [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe, ErrorKind::UnexpectedEof].contains(&e.kind()))
    }

    fn silent(outcome: std::io::Result<String>) -> bool {
        outcome.is_err_and(|e| [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&e.kind()))
    }

    #[test]
    fn pass_counts_bytes_and_connections() {
        let proxy = FaultProxy::start(shared().addr());
        let mut stream = connect(&proxy).expect("taken");
        assert_eq!(ping(&mut stream).expect("answered"), "+PONG\r\n");
        // The bytes are counted once they are passed on: the answer may be here before its count.
        let counted = crate::poll::blocking(Duration::from_secs(5), || (proxy.bytes() == (6, 7)).then_some(()));
        assert_eq!((proxy.accepted(), counted), (1, Ok(())), "{:?}", proxy.bytes());
        let answer: String = redis::cmd("PING")
            .query(&mut RedisServer::client_at(proxy.addr()).get_connection().expect("a client"))
            .expect("PONG");
        assert_eq!(answer, "PONG");
    }

    #[test]
    fn refuse_closes_the_port_and_keeps_it() {
        let proxy = FaultProxy::start(shared().addr());
        let mut stream = connect(&proxy).expect("taken");
        ping(&mut stream).expect("answered");
        for _ in 0..20 {
            proxy.set(Mode::Refuse);
            let refused = connect(&proxy).expect_err("no listener");
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
            proxy.set(Mode::Pass);
            assert_eq!(ping(&mut connect(&proxy).expect("the same port again")).expect("answered"), "+PONG\r\n");
        }
        assert!(broken(ping(&mut stream)), "the open connection was cut");
    }

    #[test]
    fn a_black_hole_is_silent_and_delivers_after_healing() {
        let proxy = FaultProxy::start(shared().addr());
        let mut old = connect(&proxy).expect("taken");
        ping(&mut old).expect("answered");
        proxy.set(Mode::BlackHole);
        let mut new = connect(&proxy).expect("taken by the kernel");
        assert!(silent(ping(&mut old)) && silent(ping(&mut new)));
        proxy.set(Mode::Pass);
        for stream in [&mut old, &mut new] {
            stream.set_read_timeout(Some(SWITCH)).expect("a timeout");
            let mut late = [0_u8; 7];
            stream.read_exact(&mut late).expect("the answer held back");
            assert_eq!(&late, b"+PONG\r\n");
        }
    }

    #[test]
    fn reset_breaks_old_and_new_connections() {
        let proxy = FaultProxy::start(shared().addr());
        let mut old = connect(&proxy).expect("taken");
        ping(&mut old).expect("answered");
        proxy.set(Mode::Reset);
        assert!(broken(ping(&mut old)));
        let new = connect(&proxy).and_then(|mut stream| ping(&mut stream));
        assert!(broken(new));
    }

    #[test]
    fn delay_holds_each_direction() {
        let proxy = FaultProxy::start(shared().addr());
        let mut stream = connect(&proxy).expect("taken");
        stream.set_read_timeout(Some(SWITCH)).expect("a timeout");
        proxy.set(Mode::Delay(Duration::from_millis(100)));
        let begin = Instant::now();
        ping(&mut stream).expect("answered");
        assert!(begin.elapsed() >= Duration::from_millis(200), "{:?}", begin.elapsed());
    }

    #[test]
    fn cut_after_breaks_an_answer_off_and_counts_anew_each_time() {
        let proxy = FaultProxy::start(shared().addr());
        for _ in 0..3 {
            proxy.set(Mode::CutAfter(3));
            let mut stream = connect(&proxy).expect("taken");
            stream.write_all(b"PING\r\n").expect("sent");
            let mut seen = Vec::new();
            drop(stream.read_to_end(&mut seen));
            // A reset may overtake what was sent before it, so the client sees at most these bytes.
            assert!(b"+PO".starts_with(&seen) || seen == b"+PO", "{seen:?}");
        }
        assert_eq!(proxy.bytes().1, 9);
    }

    #[test]
    fn an_absent_upstream_is_a_reset_until_it_comes() {
        let proxy = FaultProxy::start(SocketAddr::from(([127, 0, 0, 1], 1)));
        assert!(broken(connect(&proxy).and_then(|mut stream| ping(&mut stream))));
    }
}
