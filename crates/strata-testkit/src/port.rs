//! A port that stays ours while nobody listens on it, so that a server can go away and come back at the same address.

use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpSocket};

/// A port of the loopback address, held by a socket that never listens: without a listener the kernel refuses connections,
/// and nobody else gets the port meanwhile.
#[derive(Debug)]
pub struct HeldPort {
    addr: SocketAddr,
    _hold: TcpSocket,
}

impl HeldPort {
    /// Takes a free port.
    pub fn new() -> Self {
        let hold = socket(SocketAddr::from(([127, 0, 0, 1], 0)));
        Self { addr: hold.local_addr().expect("a bound address"), _hold: hold }
    }

    /// The address.
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Listens; dropping the listener refuses connections again. Needs a runtime.
    pub fn listen(&self) -> TcpListener {
        socket(self.addr).listen(1_024).expect("a listener on the held port")
    }
}

/// A socket bound to `addr` that can share its port with others of this process that ask for it, and with nobody else.
fn socket(addr: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_reuseport(true).expect("a shared port");
    socket.bind(addr).expect("a free port");
    socket
}
