//! Where sessions live. One trait, two stores: Redis, and SQLite for the embedded form; one behaviour suite runs against
//! both (`tests/it/suite.rs`).
//!
//! Every method is one atomic step of its store: a Lua script, or a transaction. A step reads the clock it is given, never
//! its own, and a session whose time is over is gone for every step, whether or not the store has swept it yet.

pub mod embedded;
pub mod redis;

use async_trait::async_trait;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;
use strata_core::policy::erasure::{Medium, Purge};
use strata_core::policy::session::{Accesses, Anchor, Artifact, Role, SessionFact, Shape, Summary, Turn, Verdict};
use strata_core::time::SECOND;
use strata_core::{AgentId, FactKey, Fault, Owner, Reason, SessionId, Timestamp, limits};
use uuid::Uuid;

/// Address of a session: a user's, whatever the agent (the agent that created it is part of the session).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey {
    user: UserTag,
    session: SessionId,
}

/// Address of a user's sessions: 32 hexadecimal digits, injective up to BLAKE3, the hash tag of all their Redis keys.
/// Whatever an id holds (braces, colons, CJK), the tag does not (cases C037, C121).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UserTag(String);

fn hex_digest(text: &str) -> String {
    let mut hex = blake3::hash(text.as_bytes()).to_hex().to_string();
    hex.truncate(32);
    hex
}

impl UserTag {
    /// Of an owner.
    #[must_use]
    pub fn of(owner: &Owner) -> Self {
        Self(hex_digest(&owner.user_key()))
    }

    /// The digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl SessionKey {
    /// Of an owner's session.
    #[must_use]
    pub fn new(owner: &Owner, session: &SessionId) -> Self {
        Self { user: UserTag::of(owner), session: session.clone() }
    }

    /// Of a user's session.
    #[must_use]
    pub const fn of_user(user: UserTag, session: SessionId) -> Self {
        Self { user, session }
    }

    /// The user.
    #[must_use]
    pub const fn user(&self) -> &UserTag {
        &self.user
    }

    /// The session's id.
    #[must_use]
    pub const fn session(&self) -> &SessionId {
        &self.session
    }

    /// 32 hexadecimal digits that stand for the session's id.
    #[must_use]
    pub fn session_tag(&self) -> String {
        hex_digest(self.session.as_str())
    }
}

/// A request with an id, as the store remembers it: nothing of it can be read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestKey {
    /// Digest of method and id.
    pub id: [u8; 16],
    /// Digest of the body without its id.
    pub body: [u8; 16],
}

impl RequestKey {
    /// Of a request; `body` is its encoding with an empty request id.
    #[must_use]
    pub fn new(method: &str, id: Uuid, body: &[u8]) -> Self {
        let digest = |parts: [&[u8]; 2]| {
            let mut hasher = blake3::Hasher::new();
            for part in parts {
                hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
            }
            let mut out = [0; 16];
            hasher.finalize_xof().fill(&mut out);
            out
        };
        Self { id: digest([method.as_bytes(), id.as_bytes()]), body: digest([method.as_bytes(), body]) }
    }

    pub(crate) fn id_hex(&self) -> String {
        hex(&self.id)
    }

    pub(crate) fn body_hex(&self) -> String {
        hex(&self.body)
    }
}

fn hex(bytes: &[u8; 16]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(32), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// The refusal of a request id that was used for something else.
#[must_use]
pub fn reused() -> Fault {
    Fault::new(Reason::RequestIdReused, "the request_id was used before with another body; use a new one")
}

/// The refusal of a write to a session that ended or expired within the tombstone's time (rule S12).
#[must_use]
pub fn ended(session: &SessionId) -> Fault {
    Fault::new(Reason::SessionEnded, "the session has ended; its id is free again 24 h after its end").rule(
        "S12",
        session.as_str(),
        "a session that ended or expired takes no writes",
    )
}

/// A session that is not there, or is another agent's.
#[must_use]
pub fn not_found(session: &SessionId) -> Fault {
    Fault::not_found("session", session.as_str())
}

fn other_agent() -> Fault {
    Fault::new(Reason::OwnerMismatch, "session_id: the session belongs to another agent of the user")
}

/// Numbers and times of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Id.
    pub session: SessionId,
    /// Agent that created it; none: the user's.
    pub agent: Option<AgentId>,
    /// Tells it from an earlier session with the same id (rule S12). Grows.
    pub incarnation: u64,
    /// Last turn number.
    pub last: u32,
    /// Bytes of all turns.
    pub bytes: u64,
    /// Tokens of all turns.
    pub tokens: u64,
    /// Shape: declared at the first append, or inferred by a compression; none while unknown (rule S1).
    pub shape: Option<Shape>,
    /// Whether the caller declared the shape.
    pub declared: bool,
    /// Life without use, in microseconds.
    pub ttl: i64,
    /// First append.
    pub create_time: Timestamp,
    /// When it ends unless it is used.
    pub expire_time: Timestamp,
    /// Last turn that was compressed; zero before the first compression.
    pub through: u32,
    /// Tokens of the turns up to it.
    pub through_tokens: u64,
    /// Grows with each commit of a compression.
    pub version: u64,
    /// Number of the instruction turn in force; zero when there is none.
    pub system: u32,
    /// Grows whenever turns are redacted: what was made of their texts before is worth nothing then.
    pub redactions: u64,
    /// Last turn of the topic that ended last; zero before the first change (rule S7).
    pub topic: u32,
    /// Look-ups of its compressed turns (rule S9).
    pub accesses: Accesses,
}

impl Head {
    /// Whether a call for `agent` may see the session: a call without an agent is user-wide, an agent sees its own and the
    /// user's (model.md "Who owns a memory").
    #[must_use]
    pub fn visible_to(&self, agent: Option<&AgentId>) -> bool {
        agent.is_none() || self.agent.is_none() || self.agent.as_ref() == agent
    }
}

/// An append: all turns or none.
#[derive(Clone, Debug)]
pub struct Append {
    /// Where to.
    pub key: SessionKey,
    /// Agent of the call.
    pub agent: Option<AgentId>,
    /// Turns with seq 0, 1 to [`limits::APPEND_TURNS`].
    pub turns: Vec<Turn>,
    /// Shape of a new session.
    pub shape: Option<Shape>,
    /// Life of a new session, in microseconds.
    pub ttl: i64,
    /// For repetitions.
    pub request: Option<RequestKey>,
    /// The service's time.
    pub now: Timestamp,
    /// Uncompressed turns that make a compression due (rule S7).
    pub due_turns: u32,
    /// Uncompressed tokens that make a compression due.
    pub due_tokens: u64,
    /// Erase epoch of the signed header (rule E2).
    pub erase_epoch: u64,
}

/// What an append did, also when it is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Number of the first turn.
    pub first: u32,
    /// Turns.
    pub count: u32,
    /// Incarnation of the session.
    pub incarnation: u64,
    /// A compression is due.
    pub due: bool,
    /// When the session ends unless it is used.
    pub expire_time: Timestamp,
    /// The service's time of the turns.
    pub time: Timestamp,
    /// The request was seen before: nothing was written now.
    pub replayed: bool,
    /// [`Head::topic`]; zero when it is repeated.
    pub topic: u32,
}

impl Appended {
    fn encode(&self) -> String {
        let Self { first, count, incarnation, due, expire_time, time, replayed: _, topic: _ } = self;
        format!("{first},{count},{incarnation},{},{},{}", u8::from(*due), expire_time.0, time.0)
    }

    fn decode(text: &str, replayed: bool) -> Option<Self> {
        let mut parts = text.split(',');
        let mut next = || parts.next();
        Some(Self {
            first: next()?.parse().ok()?,
            count: next()?.parse().ok()?,
            incarnation: next()?.parse().ok()?,
            due: next()? == "1",
            expire_time: Timestamp(next()?.parse().ok()?),
            time: Timestamp(next()?.parse().ok()?),
            replayed,
            topic: 0,
        })
    }
}

/// What a window is to be made of.
#[derive(Clone, Copy, Debug)]
pub struct WindowRead {
    /// The service's time.
    pub now: Timestamp,
    /// Renew the session's life (rule S10).
    pub renew: bool,
    /// Newest turns to read at most.
    pub turns: u32,
    /// Tokens of the newest turns to read: one turn more than fits.
    pub tokens: u32,
}

/// What a turn takes of a window's tail: a SYSTEM turn is shown apart and takes nothing (rule S6).
pub(crate) fn tail_tokens(turn: &Turn) -> u32 {
    if turn.role == Role::System { 0 } else { turn.tokens.max(1) }
}

/// Anchors that one window reads at most: more than any budget of [`limits::PAGE_MAX`] turns shows.
pub const WINDOW_ANCHORS: u32 = 600;

/// Summaries, anchors, and pinned turns.
pub(crate) type Compressed = (Vec<Summary>, Vec<Anchor>, BTreeSet<u32>);

/// A session as one step saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowParts {
    /// Numbers and times.
    pub head: Head,
    /// Summaries, oldest first.
    pub summaries: Vec<Summary>,
    /// All anchors, pinned turns among them, in order of number.
    pub anchors: Vec<Anchor>,
    /// Turns of the first anchors in order of priority, at most [`WINDOW_ANCHORS`] and [`limits::TURNS_ANSWER_BYTES`].
    pub anchored: Vec<Turn>,
    /// The newest turns, ascending, not covered by a summary.
    pub tail: Vec<Turn>,
    /// The instruction turn in force.
    pub system: Option<Turn>,
}

/// Numbers, summaries and anchors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Numbers and times.
    pub head: Head,
    /// Summaries, oldest first.
    pub summaries: Vec<Summary>,
    /// All anchors, pinned turns among them, in order of number.
    pub anchors: Vec<Anchor>,
    /// Turns that were pinned when they were appended, or later (rule S2c).
    pub pins: BTreeSet<u32>,
}

/// Turns of a range, with what became of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnsRead {
    /// Numbers and times.
    pub head: Head,
    /// Turns, ascending; fewer than asked for when [`limits::TURNS_ANSWER_BYTES`] of text were reached, at least one.
    pub turns: Vec<Turn>,
    /// Verdicts of turns that were judged, ascending.
    pub verdicts: Vec<Verdict>,
}

/// A single turn, and what became of it when it was judged.
pub type Picked = (Turn, Option<Verdict>);

/// A change of what is kept of turns to be committed, all or nothing, if nothing else was since it was planned (case C115).
#[derive(Clone, Debug)]
pub struct Commit {
    /// Where to.
    pub key: SessionKey,
    /// The service's time.
    pub now: Timestamp,
    /// Incarnation it was planned on.
    pub incarnation: u64,
    /// Version it was planned on.
    pub version: u64,
    /// Last turn compressed afterwards.
    pub through: u32,
    /// Tokens of the turns up to it.
    pub through_tokens: u64,
    /// Last turn of a topic that has ended; none: as it was (rule S7).
    pub topic: Option<u32>,
    /// Shape, when it was inferred.
    pub shape: Option<Shape>,
    /// All anchors but those of pinned turns after `through`, in order of number.
    pub anchors: Vec<Anchor>,
    /// Summaries that go, by their first turn.
    pub removed: Vec<u32>,
    /// Summaries that come.
    pub added: Vec<Summary>,
    /// New verdicts.
    pub verdicts: Vec<Verdict>,
    /// Turns that are pinned from now on.
    pub pinned: Vec<u32>,
    /// Turns that are pinned no more.
    pub unpinned: Vec<u32>,
    /// What an erasure takes.
    pub redaction: Redaction,
    /// Erase epoch of the signed header (rule E2); none for what the service does by itself.
    pub erase_epoch: Option<u64>,
    /// For repetitions: the request and its encoded answer.
    pub request: Option<(RequestKey, Vec<u8>)>,
}

/// What an erasure takes from a session beside summaries and anchors.
#[derive(Clone, Debug, Default)]
pub struct Redaction {
    /// Redacted turns in place of those with their numbers.
    pub turns: Vec<Turn>,
    /// Bytes that they are smaller by, all together; negative when the marker is longer.
    pub bytes: i64,
    /// Tokens that they are smaller by.
    pub tokens: i64,
    /// Remembered answers lose their content: a repetition is still told, and answered with nothing.
    pub answers: bool,
}

/// Fate of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// Done.
    Yes,
    /// Another commit came first: plan again.
    Raced,
    /// The session is no more, or is another one.
    Gone,
}

/// Facts to be written, all or none.
#[derive(Clone, Debug)]
pub struct FactsWrite {
    /// Where to.
    pub key: SessionKey,
    /// Agent of the call.
    pub agent: Option<AgentId>,
    /// The service's time.
    pub now: Timestamp,
    /// The facts, none an overlay, each key once.
    pub facts: Vec<SessionFact>,
    /// Erase epoch of the signed header (rule E2).
    pub erase_epoch: u64,
    /// For repetitions: the request and its encoded answer.
    pub request: Option<(RequestKey, Vec<u8>)>,
}

/// An artifact to be stored whole.
#[derive(Clone, Debug)]
pub struct ArtifactWrite {
    /// Where to.
    pub key: SessionKey,
    /// Agent of the call.
    pub agent: Option<AgentId>,
    /// The service's time.
    pub now: Timestamp,
    /// What it is.
    pub artifact: Artifact,
    /// Its bytes, each part compressed by itself.
    pub parts: Vec<Vec<u8>>,
    /// A name that no other upload has.
    pub upload: String,
    /// Erase epoch of the signed header (rule E2).
    pub erase_epoch: u64,
    /// For repetitions: the request and its encoded answer.
    pub request: Option<(RequestKey, Vec<u8>)>,
}

/// What became of an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArtifactPut {
    /// Stored.
    Stored,
    /// The same bytes stand under the same trace id already.
    Known(Artifact),
    /// The encoded answer of the first call with this request.
    Replay(Vec<u8>),
}

fn other_bytes() -> Fault {
    Fault::field("trace_id", "other bytes are stored under this trace id; an artifact does not change")
}

fn no_artifact(trace_id: &str) -> Fault {
    Fault::not_found("artifact", trace_id)
}

fn artifact_gone(trace_id: &str) -> Fault {
    Fault::new(Reason::ArtifactGone, "the artifact was there and its time is over")
        .with("resource_type", "artifact")
        .with("resource_name", trace_id)
}

fn too_many_artifacts(bytes: bool) -> Fault {
    if bytes {
        Fault::limit("data", limits::SESSION_ARTIFACT_BYTES, "stored bytes of all artifacts of a session")
    } else {
        Fault::limit("trace_id", limits::SESSION_ARTIFACTS, "artifacts of a session")
    }
}

/// The refusal of a write to a fact that was written, or overlaid, at a higher epoch (rule P3).
#[must_use]
pub fn stale(key: &str, epoch: u64) -> Fault {
    Fault::new(Reason::StaleEpoch, format!("{key} was written at a higher epoch; claim it again above it"))
        .with("key", key)
        .with("epoch", epoch.to_string())
        .rule("P3", key, "the epoch of a write is not below the one the store has seen")
}

fn no_fact(key: &FactKey) -> Fault {
    Fault::not_found("fact", key.as_str())
}

/// The refusal of a write to a fact that is an overlay, and of its seal: it stays one until the session ends, however high the
/// epoch of a claim that a ledger granted which had lost its marks (rule P2).
fn overlaid(key: &str, epoch: u64) -> Fault {
    Fault::new(Reason::FactOwnedByOtherLayer, "an outer level owns the key; its value here is read-only until the session ends")
        .rule("P2", key, "write through the owner, or use another key")
        .with("key", key)
        .with("epoch", epoch.to_string())
}

fn too_many_facts() -> Fault {
    Fault::limit("facts", limits::SESSION_FACTS, "facts of a session")
}

fn no_such_turn(seq: u32, last: u32) -> Fault {
    Fault::field("facts", format!("there is no turn {seq}; the last turn of the session is {last}"))
}

/// What an end did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// When it ended.
    pub time: Timestamp,
    /// Turns that were removed.
    pub turns: u32,
    /// It had ended before.
    pub already: bool,
}

impl Ended {
    fn encode(&self) -> String {
        format!("{},{},{}", self.time.0, self.turns, u8::from(self.already))
    }

    fn decode(text: &str) -> Option<Self> {
        let mut parts = text.split(',');
        Some(Self {
            time: Timestamp(parts.next()?.parse().ok()?),
            turns: parts.next()?.parse().ok()?,
            already: parts.next()? == "1",
        })
    }
}

/// A store of sessions.
#[async_trait]
pub trait SessionStore: Send + Sync + Debug {
    /// `redis` or `sqlite`.
    fn name(&self) -> &'static str;

    /// Appends turns with the next numbers and renews the session's life.
    ///
    /// # Errors
    /// `SESSION_ENDED`, `OWNER_MISMATCH` for another agent's session, `REQUEST_ID_REUSED`, `LIMIT_REACHED` naming
    /// `turns`, `bytes` or `session_id`, `STORE_FULL`, `STORE_UNAVAILABLE`; nothing was written unless the last.
    async fn append(&self, append: Append) -> Result<Appended, Fault>;

    /// Reads what a window is made of, in one step; none when the session is not there.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn window(&self, key: &SessionKey, read: WindowRead) -> Result<Option<WindowParts>, Fault>;

    /// Numbers, summaries and anchors; none when the session is not there. Does not renew.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn state(&self, key: &SessionKey, now: Timestamp) -> Result<Option<State>, Fault>;

    /// Turns `from..=to`, as many as exist; none when the session is not there. Does not renew.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn turns(&self, key: &SessionKey, now: Timestamp, from: u32, to: u32) -> Result<Option<TurnsRead>, Fault>;

    /// Single turns of one incarnation, in the order asked for; those that are not there are left out. Does not renew.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn pick(&self, key: &SessionKey, now: Timestamp, incarnation: u64, seqs: &[u32]) -> Result<Vec<Picked>, Fault>;

    /// Live sessions of a user, those that expire last first, at most [`limits::SESSIONS_PER_USER`]. Does not renew.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn sessions(&self, user: &UserTag, now: Timestamp) -> Result<Vec<Head>, Fault>;

    /// Live sessions of a user that an agent may see, in order of id, after `after`, at most `count`. Does not renew.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn session_page(
        &self,
        user: &UserTag,
        agent: Option<&AgentId>,
        now: Timestamp,
        after: Option<&SessionId>,
        count: u32,
    ) -> Result<Vec<Head>, Fault>;

    /// Commits a compression, or another change of what is kept of turns. Renews nothing (case C094).
    ///
    /// # Errors
    /// `STORE_FULL`, `STORE_UNAVAILABLE`.
    async fn commit(&self, commit: Commit) -> Result<Committed, Fault>;

    /// Writes facts at their epochs. Renews nothing. None: written; else the encoded answer of the first call with this
    /// request.
    ///
    /// # Errors
    /// `NOT_FOUND` also for another agent's session, `SESSION_ENDED`, `REQUEST_ID_REUSED`, `INVALID_FIELD` for a turn that is
    /// not there, `FACT_OWNED_BY_OTHER_LAYER` for an overlay, `STALE_EPOCH` naming key and epoch, `LIMIT_REACHED` naming `facts`, `STORE_FULL`, `STORE_UNAVAILABLE`.
    async fn put_facts(&self, write: FactsWrite) -> Result<Option<Vec<u8>>, Fault>;

    /// All facts of a session in order of key; none when the session is not there. Does not renew.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn facts(&self, key: &SessionKey, now: Timestamp) -> Result<Option<Vec<SessionFact>>, Fault>;

    /// Raises a fact to the epoch of a seal, so that writes on their way at a lower one are refused (rule P5); answers it as it
    /// is then. The same epoch again changes nothing.
    ///
    /// # Errors
    /// `NOT_FOUND` for the session or the fact, `FACT_OWNED_BY_OTHER_LAYER` for an overlay, `STALE_EPOCH`, `STORE_FULL`,
    /// `STORE_UNAVAILABLE`.
    async fn seal_fact(&self, key: &SessionKey, now: Timestamp, name: &FactKey, epoch: u64) -> Result<SessionFact, Fault>;

    /// Makes facts read-only (rule P2); answers how many of the keys are there. A session that is not there has none.
    ///
    /// # Errors
    /// `STORE_FULL`, `STORE_UNAVAILABLE`.
    async fn overlay_facts(&self, key: &SessionKey, now: Timestamp, keys: &[FactKey]) -> Result<u32, Fault>;

    /// Takes note of look-ups (rule S9), unless others were noted since `was` was read, or the session is another one. Renews
    /// nothing.
    ///
    /// # Errors
    /// `STORE_FULL`, `STORE_UNAVAILABLE`.
    async fn touch(
        &self,
        key: &SessionKey,
        now: Timestamp,
        incarnation: u64,
        was: &Accesses,
        becomes: &Accesses,
    ) -> Result<(), Fault>;

    /// Stores an artifact whole or not at all. Renews nothing.
    ///
    /// # Errors
    /// As [`SessionStore::put_facts`], `LIMIT_REACHED` naming `data` or `trace_id`, `INVALID_FIELD` naming `trace_id` when other
    /// bytes stand under it.
    async fn put_artifact(&self, write: ArtifactWrite) -> Result<ArtifactPut, Fault>;

    /// What is known of an artifact. Does not renew.
    ///
    /// # Errors
    /// `NOT_FOUND` also for another agent's session, `ARTIFACT_GONE`, `STORE_UNAVAILABLE`.
    async fn artifact(
        &self,
        key: &SessionKey,
        agent: Option<&AgentId>,
        now: Timestamp,
        trace_id: &str,
    ) -> Result<Artifact, Fault>;

    /// One part of an artifact, from 0, as it is stored.
    ///
    /// # Errors
    /// `ARTIFACT_GONE` also when its session ended meanwhile, `STORE_UNAVAILABLE`.
    async fn artifact_part(&self, key: &SessionKey, now: Timestamp, trace_id: &str, part: u32) -> Result<Vec<u8>, Fault>;

    /// The encoded answer of a commit that was made with this request.
    ///
    /// # Errors
    /// `REQUEST_ID_REUSED`, `SESSION_ENDED`, `STORE_UNAVAILABLE`.
    async fn committed(&self, key: &SessionKey, now: Timestamp, request: RequestKey) -> Result<Option<Vec<u8>>, Fault>;

    /// Ends a session: all but a content-free tombstone is removed. Works in a full store.
    ///
    /// # Errors
    /// `NOT_FOUND` when there is neither session nor tombstone, `OWNER_MISMATCH`, `REQUEST_ID_REUSED`,
    /// `STORE_UNAVAILABLE`.
    async fn end(
        &self,
        key: &SessionKey,
        agent: Option<&AgentId>,
        now: Timestamp,
        request: Option<RequestKey>,
    ) -> Result<Ended, Fault>;

    /// Raises the user's erase epoch to `epoch`, if it is lower; answers what stands then. From now on writes with an older
    /// header are refused (rule E2).
    ///
    /// # Errors
    /// `STORE_FULL`, `STORE_UNAVAILABLE`.
    async fn raise_erase_epoch(&self, user: &UserTag, epoch: u64, now: Timestamp) -> Result<u64, Fault>;

    /// Removes what is left of the user's expired sessions, a bounded number; answers whether there may be more.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn drop_expired(&self, user: &UserTag, now: Timestamp) -> Result<bool, Fault>;

    /// Remembered answers of a session, encoded, at most [`limits::SESSION_ANSWER_BYTES`]; none when it is not there.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn answers(&self, key: &SessionKey, now: Timestamp) -> Result<Vec<Vec<u8>>, Fault>;

    /// Takes the content out of all remembered answers.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn forget_answers(&self, key: &SessionKey, now: Timestamp) -> Result<(), Fault>;

    /// Takes facts away, and the content of all remembered answers. Of `emptied` ones the epoch is kept (rule P3), of
    /// `removed` ones nothing.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn erase_facts(&self, key: &SessionKey, now: Timestamp, emptied: &[FactKey], removed: &[FactKey]) -> Result<(), Fault>;

    /// Artifacts of a session whose bytes are kept, in order of trace id, at most [`limits::SESSION_ARTIFACTS`].
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn artifacts(&self, key: &SessionKey, now: Timestamp) -> Result<Vec<Artifact>, Fault>;

    /// Removes an artifact's bytes: it is gone like one whose time is over, or with `whole` as if it had never been.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn erase_artifact(&self, key: &SessionKey, now: Timestamp, artifact: &Artifact, whole: bool) -> Result<(), Fault>;

    /// Whether what was removed of the user is gone from the medium too; waits at most `patience` where it asks for that.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn medium(&self, user: &UserTag, purge: Purge, patience: Duration) -> Result<Medium, Fault>;

    /// Removes a bounded number of expired sessions and tombstones; answers whether there may be more. Nothing to do where
    /// keys expire by themselves.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn sweep(&self, now: Timestamp) -> Result<bool, Fault>;

    /// Whether the store answers.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn ping(&self) -> Result<(), Fault>;
}

/// Microseconds a tombstone outlives its session (rule S12).
pub(crate) const TOMBSTONE: i64 = limits::TOMBSTONE_SECONDS * SECOND;

/// An artifact whose bytes were erased: gone like one whose time is over, and nothing told of its bytes.
fn erased_artifact(artifact: &Artifact, now: Timestamp) -> Artifact {
    Artifact {
        bytes: 0,
        stored_bytes: 0,
        parts: 0,
        hash: "0".repeat(artifact.hash.len()),
        expire_time: Some(now),
        ..artifact.clone()
    }
}

/// Stored turn to domain; none (and a log line without content) when it cannot be read.
fn read_turn(payload: &str, seq: u32) -> Result<Turn, Fault> {
    let mut turn: Turn = read_json(payload)?;
    turn.seq = seq;
    Ok(turn)
}

fn read_json<T: serde::de::DeserializeOwned>(payload: &str) -> Result<T, Fault> {
    serde_json::from_str(payload).map_err(|error| {
        // Position and class alone: the text may hold content.
        tracing::error!(line = error.line(), column = error.column(), class = ?error.classify(), "a stored session value cannot be read");
        damaged()
    })
}

fn write_json<T: serde::Serialize>(value: &T) -> Result<String, Fault> {
    serde_json::to_string(value).map_err(|_| Fault::new(Reason::Internal, "a session value cannot be written"))
}

fn damaged() -> Fault {
    Fault::new(Reason::Internal, "a stored session value cannot be read")
}

/// All anchors: those of the last judgement, and pinned turns that were not judged since (rule S2c), in order of number.
fn with_pins(mut anchors: Vec<Anchor>, pins: &BTreeSet<u32>) -> Vec<Anchor> {
    for &seq in pins {
        if !anchors.iter().any(|a| a.seq == seq) {
            anchors.push(Anchor { seq, rule: strata_core::RuleId("S2c"), retracted_by: 0 });
        }
    }
    anchors.sort_by_key(|a| a.seq);
    anchors
}

/// Numbers of the anchors in order of priority.
fn by_priority(anchors: &[Anchor]) -> Vec<u32> {
    let mut order: Vec<&Anchor> = anchors.iter().collect();
    order.sort_by_key(|a| a.priority());
    order.into_iter().map(|a| a.seq).collect()
}
