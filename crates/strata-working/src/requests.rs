//! Idempotency of a board's writes: the same request id with the same body has one effect and one answer; with another
//! body it is refused. Lives and dies with its board.

use prost::Message;
use std::collections::VecDeque;
use strata_core::{Fault, Reason, Timestamp, limits};
use uuid::Uuid;

/// Resident bytes of one remembered request beside its answer.
const ENTRY_BYTES: usize = 80;

/// What a request asks, without its request id's own meaning: a digest of method and body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestKey {
    /// The caller's id of the request.
    pub id: Uuid,
    /// First half of the BLAKE3 over method and body.
    pub digest: [u8; 16],
}

impl RequestKey {
    /// Of a request with an id; none without. `body` is the request without its generation: a caller that learned a new
    /// one still sends the same request.
    ///
    /// # Errors
    /// `INVALID_FIELD` naming `request_id`.
    pub fn of(method: &str, request_id: &str, body: &impl Message) -> Result<Option<Self>, Fault> {
        let Some(id) = strata_api::convert::common::request_id(request_id)? else { return Ok(None) };
        let mut hasher = blake3::Hasher::new();
        hasher.update(method.as_bytes()).update(&[0]).update(&body.encode_to_vec());
        let mut digest = [0; 16];
        hasher.finalize_xof().fill(&mut digest);
        Ok(Some(Self { id, digest }))
    }
}

/// The refusal of a request id that was used for something else.
#[must_use]
pub fn reused(id: Uuid) -> Fault {
    Fault::new(Reason::RequestIdReused, "the request_id was used before with another body; use a new one")
        .with("request_id", id.to_string())
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Remembered {
    key: RequestKey,
    at: Timestamp,
    /// None once it had to make room.
    answer: Option<Box<[u8]>>,
}

/// What a repeated request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay<'a> {
    /// The first answer.
    Answer(&'a [u8]),
    /// The effect is there, its answer had to make room: the present state is the answer.
    Done,
}

/// The requests of a board, oldest first: at most [`limits::BOARD_REQUESTS`], each for
/// [`limits::REQUEST_ID_SECONDS`], with [`limits::BOARD_ANSWER_BYTES`] of answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestLog {
    entries: VecDeque<Remembered>,
    answer_bytes: usize,
}

impl RequestLog {
    /// Looks a request up.
    ///
    /// # Errors
    /// `REQUEST_ID_REUSED`.
    pub fn find(&self, key: RequestKey, now: Timestamp) -> Result<Option<Replay<'_>>, Fault> {
        // A repetition is of a recent request.
        let Some(found) = self.entries.iter().rev().find(|entry| entry.key.id == key.id) else { return Ok(None) };
        if now.since(found.at) >= limits::REQUEST_ID_SECONDS * strata_core::time::SECOND {
            return Ok(None);
        }
        if found.key.digest != key.digest {
            return Err(reused(key.id));
        }
        Ok(Some(found.answer.as_deref().map_or(Replay::Done, Replay::Answer)))
    }

    /// Remembers a request that took effect.
    pub fn remember(&mut self, key: RequestKey, answer: Vec<u8>, now: Timestamp) {
        self.answer_bytes += answer.len();
        self.entries.push_back(Remembered { key, at: now, answer: Some(answer.into_boxed_slice()) });
        if self.entries.len() > limits::BOARD_REQUESTS
            && let Some(oldest) = self.entries.pop_front()
        {
            self.answer_bytes -= oldest.answer.map_or(0, |answer| answer.len());
        }
        // The newest answer is always kept.
        let newest = self.entries.len() - 1;
        for entry in self.entries.iter_mut().take(newest) {
            if self.answer_bytes <= limits::BOARD_ANSWER_BYTES {
                break;
            }
            self.answer_bytes -= entry.answer.take().map_or(0, |answer| answer.len());
        }
    }

    /// The answers that are kept, encoded.
    pub fn answers(&self) -> impl Iterator<Item = &[u8]> {
        self.entries.iter().filter_map(|entry| entry.answer.as_deref())
    }

    /// Takes the content out: to a repetition the present state is the answer.
    pub fn forget_answers(&mut self) {
        self.entries.iter_mut().for_each(|entry| entry.answer = None);
        self.answer_bytes = 0;
    }

    /// Resident bytes, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.entries.len() * ENTRY_BYTES + self.answer_bytes
    }

    pub(crate) fn to_wire(&self) -> Vec<WireRequest> {
        let wire = |entry: &Remembered| WireRequest {
            id: entry.key.id.as_bytes().to_vec(),
            digest: entry.key.digest.to_vec(),
            at: entry.at.micros(),
            answer: entry.answer.as_deref().map(<[u8]>::to_vec),
        };
        self.entries.iter().map(wire).collect()
    }

    pub(crate) fn from_wire(wire: Vec<WireRequest>) -> Option<Self> {
        let one = |wire: WireRequest| {
            let key = RequestKey { id: Uuid::from_slice(&wire.id).ok()?, digest: wire.digest.try_into().ok()? };
            Some(Remembered { key, at: Timestamp(wire.at), answer: wire.answer.map(Vec::into_boxed_slice) })
        };
        let entries = wire.into_iter().map(one).collect::<Option<VecDeque<_>>>()?;
        let answer_bytes = entries.iter().filter_map(|entry| entry.answer.as_ref()).map(|answer| answer.len()).sum();
        Some(Self { entries, answer_bytes })
    }
}

/// Stored form of a remembered request.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct WireRequest {
    #[prost(bytes = "vec", tag = "1")]
    id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    digest: Vec<u8>,
    #[prost(int64, tag = "3")]
    at: i64,
    #[prost(bytes = "vec", optional, tag = "4")]
    answer: Option<Vec<u8>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u128) -> RequestKey {
        RequestKey { id: Uuid::from_u128(n), digest: [0; 16] }
    }

    #[test]
    fn c058_a_repetition_gets_the_first_answer_and_another_body_is_refused() {
        let mut log = RequestLog::default();
        log.remember(key(1), b"one".to_vec(), Timestamp(0));
        assert_eq!(log.find(key(1), Timestamp(1)), Ok(Some(Replay::Answer(b"one"))));
        assert_eq!(log.find(key(2), Timestamp(1)), Ok(None));
        let other = RequestKey { digest: [1; 16], ..key(1) };
        assert_eq!(log.find(other, Timestamp(1)).expect_err("other body").reason, Reason::RequestIdReused);
        let day = Timestamp::from_seconds(limits::REQUEST_ID_SECONDS);
        assert_eq!(log.find(key(1), day), Ok(None), "a day later it is a new request");
        assert_eq!(RequestLog::from_wire(log.to_wire()), Some(log));
    }

    #[test]
    fn requests_and_answers_are_bounded_and_the_effect_outlives_the_answer() {
        let mut log = RequestLog::default();
        let answer = vec![7; limits::BOARD_ANSWER_BYTES / 2];
        for n in 0..4 {
            log.remember(key(n), answer.clone(), Timestamp(0));
        }
        assert_eq!(log.find(key(1), Timestamp(0)), Ok(Some(Replay::Done)));
        assert_eq!(log.find(key(3), Timestamp(0)), Ok(Some(Replay::Answer(&answer))));
        assert!(log.bytes() <= limits::BOARD_ANSWER_BYTES + 4 * ENTRY_BYTES);
        log.remember(key(4), vec![7; 2 * limits::BOARD_ANSWER_BYTES], Timestamp(0));
        assert!(matches!(log.find(key(4), Timestamp(0)), Ok(Some(Replay::Answer(_)))), "the newest is kept whatever its size");
        for n in 5..5 + limits::BOARD_REQUESTS as u128 {
            log.remember(key(n), Vec::new(), Timestamp(0));
        }
        assert_eq!(log.entries.len(), limits::BOARD_REQUESTS);
        assert_eq!((log.find(key(4), Timestamp(0)), log.answer_bytes), (Ok(None), 0));
    }
}
