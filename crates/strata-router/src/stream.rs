//! A caller's stream on its way to a layer.

use futures::Stream;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::oneshot;
use tonic::{Status, Streaming};

/// The first message, which the router has read, and the rest as it comes. When the caller's stream breaks, its status goes
/// to the other end of `broke` and nothing more comes: the beginning must not look like the whole to the layer.
#[derive(Debug)]
pub(crate) struct Forwarded<T> {
    first: Option<T>,
    rest: Streaming<T>,
    broke: Option<oneshot::Sender<Status>>,
    is_broken: bool,
}

impl<T> Forwarded<T> {
    /// The stream, and where its break is told.
    pub(crate) fn new(first: T, rest: Streaming<T>) -> (Self, oneshot::Receiver<Status>) {
        let (broke, broken) = oneshot::channel();
        (Self { first: Some(first), rest, broke: Some(broke), is_broken: false }, broken)
    }
}

impl<T: Unpin> Stream for Forwarded<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        if self.is_broken {
            return Poll::Pending;
        }
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        match Pin::new(&mut self.rest).poll_next(cx) {
            Poll::Ready(Some(Err(status))) => {
                self.is_broken = true;
                if let Some(broke) = self.broke.take() {
                    // Nobody listens only when the call is over.
                    let _ = broke.send(status);
                }
                Poll::Pending
            }
            Poll::Ready(Some(Ok(message))) => Poll::Ready(Some(message)),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}
