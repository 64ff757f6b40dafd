//! The raw engine of a call: an echo service of nothing but tonic, over the same transport, with messages of the same
//! size. It runs in a process of its own, as our server does, and can stand in front of another one: two hops.

use anyhow::{Context as _, Result, anyhow, ensure};
use http::{Request, Response};
use prost::Message;
use std::{
    convert::Infallible,
    future::Future,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
};
use strata_core::limits::MESSAGE_BYTES;
use strata_runtime::{RpcChannel, channel};
use tonic::{Status, body::Body, client, server, transport::server::TcpIncoming};
use tonic_prost::ProstCodec;
use tower::Service;

/// Path of the one method.
const PATH: &str = "/strata.bench.Echo/Echo";
/// What a tag and a length take in front of a payload, at most; the sizes are equal to within these few bytes.
const FRAME_BYTES: usize = 6;

/// Request: a payload, and how much shall come back.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct EchoRequest {
    /// Any bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub payload: Vec<u8>,
    /// Bytes of the answer's payload, at most [`MESSAGE_BYTES`].
    #[prost(uint32, tag = "2")]
    pub answer_bytes: u32,
}

/// Response: a payload of the asked size.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct EchoResponse {
    /// Zeros.
    #[prost(bytes = "vec", tag = "1")]
    pub payload: Vec<u8>,
}

impl EchoRequest {
    /// A request that encodes to about `request_bytes` and is answered by about `answer_bytes`.
    pub fn of_size(request_bytes: usize, answer_bytes: usize) -> Self {
        let answer = answer_bytes.saturating_sub(FRAME_BYTES).min(MESSAGE_BYTES);
        Self {
            payload: vec![0x5a; request_bytes.saturating_sub(FRAME_BYTES)],
            answer_bytes: u32::try_from(answer).unwrap_or(u32::MAX),
        }
    }
}

/// The service. With `next` it passes every call on instead of answering it.
#[derive(Clone)]
pub struct Echo {
    next: Option<RpcChannel>,
}

impl Echo {
    /// Answers.
    pub const fn answering() -> Self {
        Self { next: None }
    }
}

impl server::UnaryService<EchoRequest> for Echo {
    type Response = EchoResponse;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<EchoResponse>, Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<EchoRequest>) -> Self::Future {
        let next = self.next.clone();
        Box::pin(async move {
            let request = request.into_inner();
            match next {
                Some(channel) => EchoClient::new(channel).send(request).await.map(tonic::Response::new),
                None => {
                    let bytes = (request.answer_bytes as usize).min(MESSAGE_BYTES);
                    Ok(tonic::Response::new(EchoResponse { payload: vec![0x5a; bytes] }))
                }
            }
        })
    }
}

impl Service<Request<Body>> for Echo {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            let mut grpc = server::Grpc::new(ProstCodec::<EchoResponse, EchoRequest>::default())
                .apply_max_message_size_config(Some(MESSAGE_BYTES), Some(MESSAGE_BYTES));
            Ok(grpc.unary(service, request).await)
        })
    }
}

impl server::NamedService for Echo {
    const NAME: &'static str = "strata.bench.Echo";
}

/// A client of [`Echo`] over any channel.
#[derive(Clone)]
pub struct EchoClient(client::Grpc<RpcChannel>);

impl EchoClient {
    /// Over `channel`.
    pub fn new(channel: RpcChannel) -> Self {
        Self(client::Grpc::new(channel).max_decoding_message_size(MESSAGE_BYTES))
    }

    /// One call.
    ///
    /// # Errors
    /// What the transport or the service answers.
    pub async fn send(&mut self, request: EchoRequest) -> Result<EchoResponse, Status> {
        self.request(tonic::Request::new(request)).await
    }

    /// One call with extensions, such as the identity that a signed channel wants.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub async fn request(&mut self, request: tonic::Request<EchoRequest>) -> Result<EchoResponse, Status> {
        self.0.ready().await?;
        let path = http::uri::PathAndQuery::from_static(PATH);
        let codec = ProstCodec::<EchoRequest, EchoResponse>::default();
        Ok(self.0.unary(request, path, codec).await?.into_inner())
    }

    /// One call whose answer must have the asked size.
    ///
    /// # Errors
    /// As [`Self::send`], and when the answer has another size.
    pub async fn measured(&mut self, request: &EchoRequest) -> Result<()> {
        let answer = self.send(request.clone()).await.context("echo")?;
        ensure!(answer.payload.len() == request.answer_bytes as usize, "the echo has another size");
        Ok(())
    }
}

/// Serves until the process is killed. Plain tonic with its defaults, and without Nagle's delay, as our server.
///
/// # Errors
/// When the address is taken.
pub async fn serve(listen: SocketAddr, forward: Option<&str>) -> Result<()> {
    let next = forward.map(|url| channel::connect(&channel::EndpointConfig::new(url))).transpose()?;
    // Without this a small answer waits 40 ms for the client's delayed acknowledgement, and the raw side would look slow.
    let incoming =
        TcpIncoming::bind(listen).map_err(|error| anyhow!("{listen} cannot be bound: {error}"))?.with_nodelay(Some(true));
    tonic::transport::Server::builder()
        .add_service(Echo { next })
        .serve_with_incoming(incoming)
        .await
        .context("the echo server ended")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_echo_has_the_asked_size_over_one_hop_and_two() {
        let back = channel::local(Echo::answering());
        let front = channel::local(Echo { next: Some(back.clone()) });
        for channel in [back, front] {
            let request = EchoRequest::of_size(300, 2_000);
            EchoClient::new(channel).measured(&request).await.expect("an echo");
            let (asked, answered) =
                (request.encoded_len(), EchoResponse { payload: vec![0; request.answer_bytes as usize] }.encoded_len());
            assert!(asked.abs_diff(300) <= FRAME_BYTES && answered.abs_diff(2_000) <= FRAME_BYTES, "{asked} {answered}");
        }
    }
}
