//! A channel over real HTTP/2 whose connection is a pipe in memory.

use crate::channel::{EndpointConfig, GrpcService, RpcChannel, TlsEnd, keepalive, over};
use crate::server::{self, ServeConfig};
use crate::task::TaskGroup;
use hyper_util::rt::TokioIo;
use std::io;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Endpoint, Uri};

/// Connections waiting to be accepted by the in-memory server: more than one only while a client reconnects.
const DUPLEX_BACKLOG: usize = 4;
/// Bytes in flight each way of an in-memory connection: the size of a loopback socket buffer.
const DUPLEX_BYTES: usize = 64 * 1024;

/// Real HTTP/2 over an in-memory pipe, for tests of everything but the kernel. The server runs in `tasks`.
pub fn channel<S: GrpcService>(tasks: &TaskGroup, service: S) -> RpcChannel {
    let (connect, accept) = mpsc::channel::<io::Result<tokio::io::DuplexStream>>(DUPLEX_BACKLOG);
    let token = tasks.token().clone();
    tasks.spawn("duplex server", async move {
        let config = ServeConfig::default();
        if let Err(fault) = server::serve_connections(ReceiverStream::new(accept), service, &config, token).await {
            tracing::error!(%fault, "the in-memory server ended");
        }
    });
    let connector = tower::service_fn(move |_: Uri| {
        let connect = connect.clone();
        async move {
            let (client, server) = tokio::io::duplex(DUPLEX_BYTES);
            connect.send(Ok(server)).await.map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?;
            Ok::<_, io::Error>(TokioIo::new(client))
        }
    });
    over(
        keepalive(Endpoint::from_static("http://duplex.local"), &EndpointConfig::default())
            .connect_with_connector_lazy(connector),
        TlsEnd::default(),
    )
}
