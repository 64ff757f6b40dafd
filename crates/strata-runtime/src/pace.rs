//! Answers that nobody reads. HTTP/2 lets a client take an answer as slowly as it likes: one that asks for much, opens no window and
//! answers every ping would hold a place and the whole answer for as long as it wants. So answers go out in small pieces, and one
//! whose next piece is not taken for [`crate::server::ServeConfig::stall_timeout`] is given up: its memory and its place are free
//! again. A stream that has nothing to say waits for us, not for its reader, and goes on.

use crate::metrics::Instruments;
use crate::ports::Stopwatch;
use bytes::Bytes;
use http::Response;
use http_body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use strata_core::{Fault, Reason};
use tonic::body::Body;

/// Bytes of one piece: a frame of HTTP/2. The server below keeps one of them for a stream that has no window.
const PIECE: usize = 16 * 1024;

/// The answers of a listener that are under way.
#[derive(Debug)]
pub struct Pace {
    answers: Mutex<Answers>,
    since: Stopwatch,
}

impl Default for Pace {
    fn default() -> Self {
        Self { answers: Mutex::default(), since: Stopwatch::start() }
    }
}

#[derive(Debug, Default)]
struct Answers {
    next: u64,
    open: HashMap<u64, Arc<Mutex<Answer>>>,
}

/// One answer.
#[derive(Debug)]
struct Answer {
    /// None: it was given up.
    body: Option<Body>,
    /// Of a message whose first pieces were taken.
    rest: Bytes,
    /// When the last piece was taken, since the start of the listener.
    taken: Duration,
    /// It has nothing to say now.
    idle: bool,
}

impl Pace {
    /// Lets an answer go out in pieces.
    pub fn answer(self: &Arc<Self>, response: Response<Body>) -> Response<Body> {
        response.map(|body| {
            if body.is_end_stream() {
                return body;
            }
            let answer = Answer { body: Some(body), rest: Bytes::new(), taken: self.since.elapsed(), idle: false };
            let answer = Arc::new(Mutex::new(answer));
            let mut answers = self.answers.lock();
            let id = answers.next;
            answers.next += 1;
            answers.open.insert(id, Arc::clone(&answer));
            drop(answers);
            Body::new(Paced { pace: Arc::clone(self), id, answer })
        })
    }

    /// Gives up what was not taken for this long; answers how many.
    pub fn sweep(&self, stall: Duration) -> usize {
        let open: Vec<_> = self.answers.lock().open.values().cloned().collect();
        let now = self.since.elapsed();
        let stalled = open.iter().filter(|answer| answer.lock().give_up(now, stall)).count();
        if stalled > 0 {
            Instruments::global().answers_given_up.add(stalled as u64, &[]);
            tracing::warn!(stalled, "answers were not read and are given up");
        }
        stalled
    }
}

impl Answer {
    fn give_up(&mut self, now: Duration, stall: Duration) -> bool {
        let stalls = self.body.is_some() && !self.idle && now.saturating_sub(self.taken) >= stall;
        if stalls {
            self.body = None;
            self.rest = Bytes::new();
        }
        stalls
    }

    fn poll(&mut self, now: Duration, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        let Some(body) = &mut self.body else {
            let fault =
                Fault::new(Reason::DeadlineExceeded, "the answer was not read in time; ask again and read it as it comes");
            return Poll::Ready(Some(Err(crate::layer::status(fault))));
        };
        if self.rest.is_empty() {
            let polled = Pin::new(body).poll_frame(cx);
            self.idle = polled.is_pending();
            match std::task::ready!(polled) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                end => return Poll::Ready(end),
            }
        }
        self.taken = now;
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(self.rest.len().min(PIECE))))))
    }
}

/// The body of an answer.
struct Paced {
    pace: Arc<Pace>,
    id: u64,
    answer: Arc<Mutex<Answer>>,
}

impl HttpBody for Paced {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        self.answer.lock().poll(self.pace.since.elapsed(), cx)
    }

    fn is_end_stream(&self) -> bool {
        let answer = self.answer.lock();
        answer.rest.is_empty() && answer.body.as_ref().is_some_and(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        // The pieces that are left of a message are not in the body's own hint.
        SizeHint::default()
    }
}

impl Drop for Paced {
    fn drop(&mut self) {
        self.pace.answers.lock().open.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{BodyExt as _, Full, StreamBody};

    const STALL: Duration = Duration::from_secs(60);

    fn full(bytes: usize) -> Response<Body> {
        Response::new(Body::new(Full::new(Bytes::from(vec![7; bytes])).map_err(|never| match never {})))
    }

    #[tokio::test]
    async fn an_answer_arrives_whole_and_in_pieces() {
        let pace = Arc::new(Pace::default());
        for bytes in [0, 1, PIECE, PIECE + 1, 5 * PIECE + 3] {
            let mut body = pace.answer(full(bytes)).into_body();
            let (mut all, mut pieces) = (0, 0);
            while let Some(frame) = body.frame().await {
                let data = frame.expect("read").into_data().expect("data");
                assert!(data.len() <= PIECE && data.iter().all(|byte| *byte == 7));
                all += data.len();
                pieces += 1;
            }
            assert_eq!((all, pieces), (bytes, bytes.div_ceil(PIECE)));
        }
        assert!(pace.answers.lock().open.is_empty(), "what is over is forgotten");
    }

    #[tokio::test]
    async fn what_is_not_taken_is_given_up_and_what_has_nothing_to_say_goes_on() {
        let pace = Arc::new(Pace::default());
        let mut unread = pace.answer(full(3 * PIECE)).into_body();
        unread.frame().await.expect("a piece").expect("read");
        let never = pace.answer(full(PIECE)).into_body();
        let quiet = StreamBody::new(futures::stream::pending::<Result<Frame<Bytes>, tonic::Status>>());
        let mut quiet = pace.answer(Response::new(Body::new(quiet))).into_body();
        assert!(tokio::time::timeout(Duration::from_millis(5), quiet.frame()).await.is_err(), "it waits for us");
        assert_eq!(pace.sweep(STALL), 0, "there is time");
        assert_eq!(pace.sweep(Duration::ZERO), 2, "the reader of one stopped, that of the other never began");
        assert_eq!(pace.sweep(Duration::ZERO), 0, "once");
        assert!(pace.answers.lock().open.values().all(|answer| answer.lock().rest.is_empty()), "the memory is free");
        for mut body in [unread, never] {
            let status = body.frame().await.expect("an end").expect_err("given up");
            assert_eq!(strata_api::error::fault(&tonic::Status::from_error(status.into())).reason, Reason::DeadlineExceeded);
        }
        drop(quiet);
        assert!(pace.answers.lock().open.is_empty());
    }
}
