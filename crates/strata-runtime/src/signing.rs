//! Signed calls between roles (rule P10). Every call to a layer, reads too, carries one signed header that says who asks,
//! for whom, which method, over which request, with what right to write; layers refuse everything else.
//!
//! ```text
//!   strata-signed-bin: Signed { key, claims: bytes of Claims, mac: blake3(keyed, context || claims) }
//! ```
//!
//! The MAC is over the very bytes that travel, never over a re-encoding. The request is bound by the BLAKE3 hash of its
//! first message as framed on the wire; a copied header is of no use for another request, another method, a second time,
//! or after [`HEADER_SECONDS`].

use crate::channel::{self, RpcChannel};
use crate::context::CallContext;
use crate::layer::{deadline, request_id, trace};
use crate::ports::{Ports, Stopwatch, random_bytes};
use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use prost::Message;
use secrecy::{ExposeSecret, SecretBox, SecretString};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use strata_core::id::Level;
use strata_core::limits::{ATTESTATION_BYTES, HEADER_SECONDS, MESSAGE_BYTES, NONCES_PER_SECOND, SKEW_SECONDS};
use strata_core::policy::authz::{Principal, Role};
use strata_core::time::SECOND;
use strata_core::{Fault, Reason, TenantId, Timestamp, UserId};
use tonic::Status;
use tonic::body::Body;
use tower::util::BoxCloneSyncService;

/// The header.
pub const HEADER: HeaderName = HeaderName::from_static("strata-signed-bin");
/// Longest accepted header in bytes of base64: the attestation and a kilobyte of ids.
const HEADER_BYTES: usize = (ATTESTATION_BYTES + 4 * 1024) * 4 / 3;
/// Separates these MACs from any other use of the same key.
const CONTEXT: &[u8] = b"strata signed call v1\0";

/// The right of a write (rules P3, P10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteGrant {
    /// The level that owns the fact.
    pub level: Level,
    /// The epoch of that ownership; a store refuses an older one than it has seen.
    pub epoch: u64,
}

/// On whose behalf a call is made: put into the extensions of a client's request. The channel refuses calls without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallIdentity {
    /// The authenticated caller.
    pub principal: Principal,
    /// The one user this call may touch; `None` for calls that touch none.
    pub user: Option<UserId>,
    /// For writes.
    pub write: Option<WriteGrant>,
    /// Since when the call is under way, in microseconds: one that an erasure of the user has overtaken is refused (rule E2). 0
    /// stands for when the incoming call was admitted, and outside of one for the moment it is signed.
    pub erase_epoch: u64,
    /// What the router vouches for beyond these fields; opaque here, at most [`ATTESTATION_BYTES`].
    pub attestation: Vec<u8>,
}

impl CallIdentity {
    /// A read on behalf of `principal`.
    #[must_use]
    pub const fn new(principal: Principal, user: Option<UserId>) -> Self {
        Self { principal, user, write: None, erase_epoch: 0, attestation: Vec::new() }
    }

    /// With the right to write.
    #[must_use]
    pub const fn writing(mut self, level: Level, epoch: u64) -> Self {
        self.write = Some(WriteGrant { level, epoch });
        self
    }

    /// Under way since then, in microseconds.
    #[must_use]
    pub const fn as_of(mut self, micros: u64) -> Self {
        self.erase_epoch = micros;
        self
    }

    /// With an attestation.
    #[must_use]
    pub fn attesting(mut self, attestation: Vec<u8>) -> Self {
        self.attestation = attestation;
        self
    }
}

/// What a verified call is allowed: in the extensions of every request behind the [`Verifier`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// The authenticated caller.
    pub caller: Principal,
    /// The one user this call may touch.
    pub user: Option<UserId>,
    /// Full path of the method.
    pub method: String,
    /// BLAKE3 of the first message, as framed.
    pub body_hash: [u8; 32],
    /// Used once.
    pub nonce: [u8; 16],
    /// By the signer's clock.
    pub issued_at: Timestamp,
    /// For writes.
    pub write: Option<WriteGrant>,
    /// Since when the call is under way, in microseconds; compared with the user's erase epoch.
    pub erase_epoch: u64,
    /// What the router vouches for.
    pub attestation: Vec<u8>,
}

impl Claims {
    /// The claims of a request behind a [`Verifier`].
    ///
    /// # Errors
    /// `UNSIGNED_CALL`: the handler is mounted without the layer.
    pub fn of<T>(request: &tonic::Request<T>) -> Result<&Self, Fault> {
        request.extensions().get().ok_or_else(|| refused("the call is not signed"))
    }

    /// The user of the call.
    ///
    /// # Errors
    /// `UNSIGNED_CALL` when the header names none.
    pub fn require_user(&self) -> Result<&UserId, Fault> {
        self.user.as_ref().ok_or_else(|| refused("the signed header names no user"))
    }

    /// The right to write.
    ///
    /// # Errors
    /// `UNSIGNED_CALL` when the header grants none.
    pub fn require_write(&self) -> Result<WriteGrant, Fault> {
        self.write.ok_or_else(|| refused("the signed header grants no write"))
    }
}

/// Wire form of [`Claims`]. Made for every call of every hop, so that it copies little: `bytes` share the header's own, and
/// what is text of a closed set travels as such.
#[derive(Clone, PartialEq, Message)]
struct WireClaims {
    #[prost(string, tag = "1")]
    caller: String,
    #[prost(string, tag = "2")]
    tenant: String,
    #[prost(string, optional, tag = "3")]
    caller_user: Option<String>,
    #[prost(bytes = "bytes", repeated, tag = "4")]
    roles: Vec<Bytes>,
    #[prost(string, optional, tag = "5")]
    user: Option<String>,
    #[prost(string, tag = "6")]
    method: String,
    #[prost(bytes = "bytes", tag = "7")]
    body_hash: Bytes,
    #[prost(bytes = "bytes", tag = "8")]
    nonce: Bytes,
    #[prost(int64, tag = "9")]
    issued_at: i64,
    /// 0 = no write, else level + 1 (outermost first).
    #[prost(uint32, tag = "10")]
    level: u32,
    #[prost(uint64, tag = "11")]
    epoch: u64,
    #[prost(uint64, tag = "12")]
    erase_epoch: u64,
    #[prost(bytes = "vec", tag = "13")]
    attestation: Vec<u8>,
}

/// What travels in the header.
#[derive(Clone, PartialEq, Message)]
struct Signed {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(bytes = "bytes", tag = "2")]
    claims: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    mac: Bytes,
}

const LEVELS: [Level; 4] = [Level::User, Level::Agent, Level::Session, Level::Task];

impl From<Claims> for WireClaims {
    fn from(claims: Claims) -> Self {
        let level = claims
            .write
            .and_then(|write| LEVELS.iter().zip(1_u32..).find(|(level, _)| **level == write.level))
            .map_or(0, |(_, n)| n);
        Self {
            caller: claims.caller.id,
            tenant: claims.caller.tenant.into(),
            caller_user: claims.caller.user.map(String::from),
            roles: claims.caller.roles.iter().map(|role| Bytes::from_static(role.name().as_bytes())).collect(),
            user: claims.user.map(String::from),
            method: claims.method,
            body_hash: Bytes::copy_from_slice(&claims.body_hash),
            nonce: Bytes::copy_from_slice(&claims.nonce),
            issued_at: claims.issued_at.micros(),
            level,
            epoch: claims.write.map_or(0, |write| write.epoch),
            erase_epoch: claims.erase_epoch,
            attestation: claims.attestation,
        }
    }
}

impl TryFrom<WireClaims> for Claims {
    type Error = Fault;

    fn try_from(wire: WireClaims) -> Result<Self, Fault> {
        let malformed = || refused("the signed header is malformed");
        let user = |text: Option<String>| text.map(UserId::new).transpose();
        let role = |name: &Bytes| Role::ALL.iter().find(|role| role.name().as_bytes() == name).copied().ok_or_else(malformed);
        let write = match usize::try_from(wire.level).map_err(|_| malformed())?.checked_sub(1) {
            None => None,
            Some(n) => Some(WriteGrant { level: *LEVELS.get(n).ok_or_else(malformed)?, epoch: wire.epoch }),
        };
        Ok(Self {
            caller: Principal {
                id: wire.caller,
                tenant: TenantId::new(wire.tenant)?,
                user: user(wire.caller_user)?,
                roles: wire.roles.iter().map(role).collect::<Result<BTreeSet<_>, _>>()?,
            },
            user: user(wire.user)?,
            method: wire.method,
            body_hash: wire.body_hash.as_ref().try_into().map_err(|_| malformed())?,
            nonce: wire.nonce.as_ref().try_into().map_err(|_| malformed())?,
            issued_at: Timestamp(wire.issued_at),
            write,
            erase_epoch: wire.erase_epoch,
            attestation: wire.attestation,
        })
    }
}

fn refused(why: &'static str) -> Fault {
    Fault::new(Reason::UnsignedCall, format!("layers answer the router only: {why}"))
}

/// One key of a [`KeyRing`].
struct Key {
    id: String,
    secret: SecretBox<[u8; 32]>,
}

/// The keys of a deployment. The last one signs, all verify. To rotate: append a key to the layers' ring, then to the
/// router's, and remove the old one when [`HEADER_SECONDS`] and the skew have passed.
pub struct KeyRing {
    keys: Vec<Key>,
}

impl std::fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.keys.iter().map(|key| &key.id)).finish()
    }
}

/// Most keys of a ring: a rotation needs two.
const MAX_KEYS: usize = 8;

impl KeyRing {
    /// From text: one key per line (or separated by commas), `id:64 hexadecimal digits`, oldest first. Blank lines and
    /// lines that begin with `#` are skipped.
    ///
    /// # Errors
    /// `INVALID_FIELD` naming `signing_keys`; the message never holds key material.
    pub fn parse(text: &SecretString) -> Result<Self, Fault> {
        let wrong = |line: usize, what: &str| Fault::field("signing_keys", format!("entry {line}: {what}"));
        let mut keys: Vec<Key> = Vec::new();
        for (line, entry) in Self::entries(text.expose_secret()) {
            let (id, hex) = entry.split_once(':').ok_or_else(|| wrong(line + 1, "must be id:key"))?;
            let (id, hex) = (id.trim(), hex.trim());
            if id.is_empty() || id.len() > 32 || !id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
            {
                return Err(wrong(line + 1, "the id must be 1 to 32 of A-Z a-z 0-9 - _ ."));
            }
            if keys.iter().any(|key| key.id == id) {
                return Err(wrong(line + 1, "the id is there twice"));
            }
            let bytes = blake3::Hash::from_hex(hex).map_err(|_| wrong(line + 1, "the key must be 64 hexadecimal digits"))?;
            keys.push(Key { id: id.into(), secret: SecretBox::new(Box::new(*bytes.as_bytes())) });
        }
        if keys.is_empty() || keys.len() > MAX_KEYS {
            return Err(Fault::field("signing_keys", format!("needs 1 to {MAX_KEYS} keys")));
        }
        Ok(Self { keys })
    }

    /// The entries of such a text, with their places: one per line or between commas, without what is blank or a comment.
    pub fn entries(text: &str) -> impl Iterator<Item = (usize, &str)> {
        let all = text.split(['\n', ',']).map(str::trim).enumerate();
        all.filter(|(_, entry)| !entry.is_empty() && !entry.starts_with('#'))
    }

    /// A ring of one random key, for roles of one process: nobody else can ever sign.
    #[must_use]
    pub fn ephemeral(ids: &dyn strata_core::ports::IdSource) -> Self {
        Self { keys: vec![Key { id: "process".into(), secret: SecretBox::new(Box::new(random_bytes(ids))) }] }
    }

    fn sign(&self, claims: Claims) -> Result<HeaderValue, Fault> {
        let key = self.keys.last().ok_or_else(|| Fault::new(Reason::Internal, "no signing key"))?;
        let claims = Bytes::from(WireClaims::from(claims).encode_to_vec());
        let mac = Bytes::copy_from_slice(mac(key, &claims).as_bytes());
        let signed = Signed { key: key.id.clone(), claims, mac }.encode_to_vec();
        HeaderValue::try_from(STANDARD_NO_PAD.encode(signed))
            .map_err(|_| Fault::new(Reason::Internal, "the header cannot be encoded"))
    }

    fn verify(&self, header: &HeaderValue) -> Result<Claims, Fault> {
        // gRPC: senders omit the padding, receivers accept it.
        const ENGINE: GeneralPurpose = GeneralPurpose::new(
            &base64::alphabet::STANDARD,
            GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
        );
        let malformed = || refused("the signed header is malformed");
        if header.len() > HEADER_BYTES {
            return Err(malformed());
        }
        let bytes = ENGINE.decode(header).map_err(|_| malformed())?;
        let signed = Signed::decode(Bytes::from(bytes)).map_err(|_| malformed())?;
        let key = self.keys.iter().find(|key| key.id == signed.key).ok_or_else(|| refused("the key is not known"))?;
        let theirs: [u8; 32] = signed.mac.as_ref().try_into().map_err(|_| malformed())?;
        // Compares in constant time.
        if mac(key, &signed.claims) != blake3::Hash::from_bytes(theirs) {
            return Err(refused("the signature is wrong"));
        }
        WireClaims::decode(signed.claims).map_err(|_| malformed())?.try_into()
    }
}

fn mac(key: &Key, claims: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(key.secret.expose_secret());
    hasher.update(CONTEXT);
    hasher.update(claims);
    hasher.finalize()
}

/// A ring that can be replaced while calls run.
#[derive(Clone, Debug)]
pub struct SharedKeys(Arc<ArcSwap<KeyRing>>);

impl SharedKeys {
    /// Shares.
    #[must_use]
    pub fn new(ring: KeyRing) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(ring)))
    }

    /// Replaces the ring: calls after it sign and verify with the new one.
    pub fn replace(&self, ring: KeyRing) {
        self.0.store(Arc::new(ring));
    }
}

/// Signs the calls of a channel.
#[derive(Clone, Debug)]
pub struct Signer {
    keys: SharedKeys,
    ports: Ports,
}

impl Signer {
    /// Signs with the newest of `keys`.
    #[must_use]
    pub const fn new(keys: SharedKeys, ports: Ports) -> Self {
        Self { keys, ports }
    }

    /// A channel on which every call is signed. Each request must have a [`CallIdentity`] in its extensions; the header
    /// is made per attempt, so a retry signs again. Trace context, request id and the time left go along.
    #[must_use]
    pub fn sign(&self, channel: RpcChannel) -> RpcChannel {
        // Shared: generated clients are cloned for each call, and this with them.
        let shared = Arc::new((self.clone(), channel));
        BoxCloneSyncService::new(tower::service_fn(move |request: Request<Body>| {
            let shared = Arc::clone(&shared);
            async move {
                let (signer, channel) = &*shared;
                let request = signer.prepare(request).await.map_err(crate::layer::status)?;
                channel::call(channel.clone(), request).await
            }
        }))
    }

    async fn prepare(&self, request: Request<Body>) -> Result<Request<Body>, Fault> {
        let (mut head, body) = request.into_parts();
        let identity = head
            .extensions
            .remove::<CallIdentity>()
            .ok_or_else(|| Fault::new(Reason::Internal, "a call between roles was made without a CallIdentity"))?;
        if identity.attestation.len() > ATTESTATION_BYTES {
            return Err(Fault::limit("attestation", ATTESTATION_BYTES, "bytes"));
        }
        deadline::propagate(&mut head.headers)?;
        request_id::propagate(&mut head.headers);
        trace::propagate(&mut head.headers);
        let (body_hash, body) = first_message(body).await?;
        let mut nonce = [0; 16];
        nonce.copy_from_slice(self.ports.ids.next().as_bytes());
        let issued_at = self.ports.clock.now();
        let admitted = CallContext::current().admitted.unwrap_or(issued_at).min(issued_at);
        let since = if identity.erase_epoch == 0 { u64::try_from(admitted.micros()).unwrap_or(0) } else { identity.erase_epoch };
        let claims = Claims {
            caller: identity.principal,
            user: identity.user,
            method: head.uri.path().to_owned(),
            body_hash,
            nonce,
            issued_at,
            write: identity.write,
            erase_epoch: since,
            attestation: identity.attestation,
        };
        head.headers.insert(HEADER, self.keys.0.load().sign(claims)?);
        Ok(Request::from_parts(head, body))
    }
}

/// Verifies the header of every call to a layer. One per listener: it remembers the nonces.
#[derive(Debug)]
pub struct Verifier {
    keys: SharedKeys,
    ports: Ports,
    started_at: Timestamp,
    running: Stopwatch,
    seen: Mutex<Nonces>,
}

impl Verifier {
    /// Starts now: headers signed earlier are refused, because their nonces may have been used before a restart.
    #[must_use]
    pub fn new(keys: SharedKeys, ports: Ports) -> Self {
        let started_at = ports.clock.now();
        Self { keys, ports, started_at, running: Stopwatch::start(), seen: Mutex::new(Nonces::default()) }
    }

    /// When this layer started, as the clock has it now: it may have been set back since.
    fn started(&self, now: Timestamp) -> Timestamp {
        let running = i64::try_from(self.running.elapsed().as_micros()).unwrap_or(i64::MAX);
        self.started_at.min(now.plus(-running))
    }

    /// Checks a request and returns it with its [`Claims`] in the extensions.
    ///
    /// # Errors
    /// `UNSIGNED_CALL`; `OVERLOADED` when more calls than [`NONCES_PER_SECOND`] come in a second.
    pub async fn verify(&self, request: Request<Body>) -> Result<Request<Body>, Fault> {
        let (mut head, body) = request.into_parts();
        let header = single(&head.headers)?;
        let claims = self.keys.0.load().verify(header)?;
        if claims.method != head.uri.path() {
            return Err(refused("the header is for another method"));
        }
        let now = self.ports.clock.now();
        let valid = -SKEW_SECONDS * SECOND..=(HEADER_SECONDS + SKEW_SECONDS) * SECOND;
        if !valid.contains(&now.since(claims.issued_at)) {
            return Err(refused("the header has expired or is from the future; where it was signed just now, the clocks differ"));
        }
        signed_since(self.started(now), claims.issued_at, now)?;
        // The body is read only now: nobody without a key makes this process buffer anything.
        let (body_hash, body) = first_message(body).await?;
        if blake3::Hash::from_bytes(body_hash) != blake3::Hash::from_bytes(claims.body_hash) {
            return Err(refused("the header is for another request"));
        }
        // Last, so that an altered copy does not use up the nonce of the genuine call.
        self.seen.lock().use_once(claims.nonce, claims.issued_at, now)?;
        head.headers.remove(HEADER);
        head.extensions.insert(claims);
        Ok(Request::from_parts(head, body))
    }
}

/// Refuses a header from before the start of the layer: its nonce may have been used before.
fn signed_since(started: Timestamp, issued_at: Timestamp, now: Timestamp) -> Result<(), Fault> {
    if issued_at >= started {
        return Ok(());
    }
    if now.since(started) < SKEW_SECONDS * SECOND {
        // A router whose clock is behind within the skew, or one that signed a moment too early: it may sign again.
        let wait = u64::try_from(started.since(issued_at) / 1_000).unwrap_or(0).saturating_add(1);
        return Err(Fault::new(Reason::NotServing, "this layer takes no header from before its start; retry").retry_after(wait));
    }
    Err(refused("the header was signed before this layer started"))
}

fn single(headers: &HeaderMap) -> Result<&HeaderValue, Fault> {
    let mut values = headers.get_all(HEADER).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => Ok(value),
        (None, _) => Err(refused("the call is not signed")),
        (Some(_), Some(_)) => Err(refused("the call is signed twice")),
    }
}

/// Nonces by the second in which they were issued. A second is forgotten when its headers have expired anyway, so the
/// set holds about ten seconds of calls.
#[derive(Debug, Default)]
struct Nonces {
    seconds: BTreeMap<i64, HashSet<[u8; 16]>>,
}

impl Nonces {
    fn use_once(&mut self, nonce: [u8; 16], issued_at: Timestamp, now: Timestamp) -> Result<(), Fault> {
        let oldest = now.plus(-(HEADER_SECONDS + SKEW_SECONDS) * SECOND).micros().div_euclid(SECOND);
        while let Some(first) = self.seconds.first_entry()
            && *first.key() < oldest
        {
            first.remove();
        }
        let second = self.seconds.entry(issued_at.micros().div_euclid(SECOND)).or_default();
        if second.len() >= NONCES_PER_SECOND {
            // Forgetting one would let it be used again.
            return Err(Fault::new(Reason::Overloaded, "too many calls in this second").retry_after(1_000));
        }
        if second.insert(nonce) { Ok(()) } else { Err(refused("the header was used before")) }
    }
}

/// Reads the first gRPC message of a body (all there is, for a unary call), and returns its hash and a body that still
/// yields everything. A message that came in one piece is not copied.
async fn first_message(mut body: Body) -> Result<([u8; 32], Body), Fault> {
    const PREFIX: usize = 5;
    let mut first = Bytes::new();
    let mut gathered = BytesMut::new();
    let mut trailers = None;
    loop {
        let so_far: &[u8] = if gathered.is_empty() { &first } else { &gathered };
        let needed = match so_far.get(1..PREFIX).and_then(|length| <[u8; 4]>::try_from(length).ok()) {
            Some(length) => PREFIX.saturating_add(usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX)),
            None => PREFIX,
        };
        if needed > PREFIX + MESSAGE_BYTES {
            return Err(Fault::limit("message", MESSAGE_BYTES, "bytes"));
        }
        if so_far.len() >= PREFIX && so_far.len() >= needed {
            let hash = blake3::hash(so_far.get(..needed).unwrap_or(so_far));
            return Ok((*hash.as_bytes(), put_back(first, gathered, trailers, body)));
        }
        match body.frame().await {
            None => {
                // An empty stream, or one cut short: the generated service will say so.
                let hash = blake3::hash(so_far);
                return Ok((*hash.as_bytes(), put_back(first, gathered, trailers, body)));
            }
            Some(Err(status)) => return Err(strata_api::error::fault(&status)),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) if gathered.is_empty() && first.is_empty() => first = data,
                Ok(data) => {
                    if gathered.is_empty() {
                        gathered.reserve(needed.max(first.len() + data.len()));
                        gathered.extend_from_slice(&first);
                    }
                    gathered.extend_from_slice(&data);
                }
                Err(frame) => trailers = frame.into_trailers().ok(),
            },
        }
    }
}

fn put_back(first: Bytes, gathered: BytesMut, trailers: Option<HeaderMap>, rest: Body) -> Body {
    let data = if gathered.is_empty() { first } else { gathered.freeze() };
    Body::new(Prefixed { data: (!data.is_empty()).then_some(data), trailers, rest })
}

/// A body that was read from, with what was read put back in front.
struct Prefixed {
    data: Option<Bytes>,
    trailers: Option<HeaderMap>,
    rest: Body,
}

impl HttpBody for Prefixed {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(data) = self.data.take() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if let Some(trailers) = self.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        Pin::new(&mut self.rest).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_none() && self.trailers.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let read = self.data.as_ref().map_or(0, |data| data.len() as u64);
        let rest = self.rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(read + rest.lower());
        if let Some(upper) = rest.upper() {
            hint.set_upper(read + upper);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use strata_core::ports::{Clock as _, IdSource as _};
    use strata_testkit::{ManualClock, SeqIds};

    const METHOD: &str = "/strata.longterm.v1.LongTermMemoryService/Remember";

    struct World {
        clock: Arc<ManualClock>,
        ports: Ports,
        keys: SharedKeys,
    }

    fn ring(text: &str) -> KeyRing {
        KeyRing::parse(&text.to_owned().into()).expect("keys")
    }

    fn hex(seed: u8) -> String {
        blake3::hash(&[seed]).to_hex().to_string()
    }

    impl World {
        fn new() -> Self {
            let clock = Arc::new(ManualClock::default());
            let ports = Ports { clock: Arc::<ManualClock>::clone(&clock), ids: Arc::new(SeqIds::seeded(7)) };
            Self { clock, ports, keys: SharedKeys::new(ring(&format!("a:{}", hex(1)))) }
        }

        fn verifier(&self) -> Verifier {
            Verifier::new(self.keys.clone(), self.ports.clone())
        }

        async fn sign(&self, path: &str, message: &[u8]) -> Request<Body> {
            let mut request = Request::new(body(message));
            *request.uri_mut() = path.parse().expect("path");
            request.extensions_mut().insert(identity());
            Signer::new(self.keys.clone(), self.ports.clone()).prepare(request).await.expect("signed")
        }
    }

    fn identity() -> CallIdentity {
        let principal = Principal {
            id: "key:ci".into(),
            tenant: TenantId::new("t1").expect("id"),
            user: Some(UserId::new("用户").expect("id")),
            roles: [Role::Reader, Role::MemoryWriter].into(),
        };
        CallIdentity { erase_epoch: 3, ..CallIdentity::new(principal, Some(UserId::new("用户").expect("id"))) }
            .writing(Level::User, 42)
            .attesting(b"vouched".to_vec())
    }

    /// One message as gRPC frames it.
    fn framed(message: &[u8]) -> Vec<u8> {
        let mut frame = vec![0];
        frame.extend_from_slice(&u32::try_from(message.len()).expect("short").to_be_bytes());
        frame.extend_from_slice(message);
        frame
    }

    fn body(message: &[u8]) -> Body {
        Body::new(http_body_util::Full::new(Bytes::from(framed(message))))
    }

    fn with_body(mut request: Request<Body>, message: &[u8]) -> Request<Body> {
        *request.body_mut() = body(message);
        request
    }

    fn copy(request: &Request<Body>, message: &[u8]) -> Request<Body> {
        let mut copy = Request::new(body(message));
        *copy.uri_mut() = request.uri().clone();
        *copy.headers_mut() = request.headers().clone();
        copy
    }

    #[tokio::test]
    async fn a_signed_call_arrives_with_all_its_claims_and_its_body() {
        let world = World::new();
        let verifier = world.verifier();
        let verified = verifier.verify(world.sign(METHOD, b"hello").await).await.expect("verified");
        let claims = verified.extensions().get::<Claims>().expect("claims").clone();
        let identity = identity();
        assert_eq!((claims.caller, claims.user, claims.write), (identity.principal, identity.user, identity.write));
        assert_eq!((claims.method.as_str(), claims.erase_epoch, claims.attestation.as_slice()), (METHOD, 3, &b"vouched"[..]));
        assert!(!verified.headers().contains_key(HEADER), "the header ends here");
        let read = verified.into_body().collect().await.expect("body").to_bytes();
        assert_eq!(read, framed(b"hello"));
    }

    #[tokio::test]
    async fn p10_every_bad_header_is_refused_as_an_unsigned_call() {
        type Case = (&'static str, fn(&World, &mut Request<Body>));
        // Each spoils a good request, which is then verified; the good one passes.
        let cases: [Case; 14] = [
            ("missing", |_, r| drop(r.headers_mut().remove(HEADER))),
            ("twice", |_, r| {
                let value = r.headers().get(HEADER).expect("there").clone();
                r.headers_mut().append(HEADER, value);
            }),
            ("not base64", |_, r| drop(r.headers_mut().insert(HEADER, HeaderValue::from_static("*")))),
            ("not a message", |_, r| drop(r.headers_mut().insert(HEADER, HeaderValue::from_static("AAAA")))),
            ("too long", |_, r| {
                drop(r.headers_mut().insert(HEADER, HeaderValue::try_from("A".repeat(HEADER_BYTES + 4)).expect("ascii")))
            }),
            ("flipped bit of the claims", |_, r| tamper(r, |signed| signed.claims = flip(&signed.claims))),
            ("flipped bit of the signature", |_, r| tamper(r, |signed| signed.mac = flip(&signed.mac))),
            ("short signature", |_, r| tamper(r, |signed| signed.mac = signed.mac.slice(..16))),
            ("unknown key id", |_, r| tamper(r, |signed| signed.key = "b".into())),
            ("foreign key of the same id", |w, _| w.keys.replace(ring(&format!("a:{}", hex(9))))),
            ("altered body", |_, r| *r.body_mut() = body(b"hellO")),
            ("no body", |_, r| *r.body_mut() = Body::empty()),
            ("altered method", |_, r| *r.uri_mut() = "/strata.longterm.v1.LongTermMemoryService/Recall".parse().expect("path")),
            ("expired", |w, _| {
                w.clock.advance(Duration::from_secs(8));
            }),
        ];
        for (name, spoil) in cases {
            let world = World::new();
            let verifier = world.verifier();
            let mut request = world.sign(METHOD, b"hello").await;
            spoil(&world, &mut request);
            let fault = verifier.verify(request).await.expect_err(name);
            assert_eq!(fault.reason, Reason::UnsignedCall, "{name}");
            assert_eq!(fault.reason.code(), strata_core::Code::PermissionDenied);
        }
        let world = World::new();
        assert!(world.verifier().verify(world.sign(METHOD, b"hello").await).await.is_ok());
    }

    fn flip(bytes: &Bytes) -> Bytes {
        let mut bytes = bytes.to_vec();
        if let Some(last) = bytes.last_mut() {
            *last ^= 1;
        }
        bytes.into()
    }

    fn tamper(request: &mut Request<Body>, change: impl FnOnce(&mut Signed)) {
        let header = STANDARD_NO_PAD.decode(request.headers().get(HEADER).expect("there")).expect("base64");
        let mut signed = Signed::decode(Bytes::from(header)).expect("message");
        change(&mut signed);
        let value = HeaderValue::try_from(STANDARD_NO_PAD.encode(signed.encode_to_vec())).expect("ascii");
        request.headers_mut().insert(HEADER, value);
    }

    #[tokio::test]
    async fn p10_a_replay_is_refused_and_a_retry_signs_again() {
        let world = World::new();
        let verifier = world.verifier();
        let first = world.sign(METHOD, b"hello").await;
        let replay = copy(&first, b"hello");
        // An altered copy that comes first does not use up the genuine call.
        assert!(verifier.verify(copy(&first, b"evil")).await.is_err());
        assert!(verifier.verify(first).await.is_ok());
        assert_eq!(verifier.verify(replay).await.expect_err("replay").reason, Reason::UnsignedCall);
        assert!(verifier.verify(world.sign(METHOD, b"hello").await).await.is_ok(), "a retry has a nonce of its own");
    }

    #[tokio::test]
    async fn p10_a_replay_is_refused_to_the_end_of_its_validity_and_the_set_stays_small() {
        let world = World::new();
        let verifier = world.verifier();
        let first = world.sign(METHOD, b"hello").await;
        let replay = copy(&first, b"hello");
        assert!(verifier.verify(first).await.is_ok());
        for _ in 0..6 {
            world.clock.advance(Duration::from_secs(1));
            assert!(verifier.verify(copy(&replay, b"hello")).await.is_err());
            assert!(verifier.verify(world.sign(METHOD, b"x").await).await.is_ok());
        }
        for _ in 0..100 {
            world.clock.advance(Duration::from_secs(1));
            assert!(verifier.verify(world.sign(METHOD, b"x").await).await.is_ok());
        }
        assert!(verifier.seen.lock().seconds.len() <= 10, "old seconds are forgotten");
    }

    #[tokio::test]
    async fn p10_validity_is_5_seconds_and_the_skew_both_ways() {
        for (signed_earlier, ok) in [(0, true), (4_999, true), (7_000, true), (7_001, false), (-2_000, true), (-2_001, false)] {
            let world = World::new();
            let verifier = world.verifier();
            world.clock.advance(Duration::from_secs(60));
            let base = world.clock.now();
            world.clock.set(base.plus(-signed_earlier * 1_000));
            let request = world.sign(METHOD, b"hello").await;
            world.clock.set(base);
            assert_eq!(verifier.verify(request).await.is_ok(), ok, "signed {signed_earlier} ms before");
        }
    }

    #[tokio::test]
    async fn p10_a_restarted_layer_refuses_headers_signed_before_its_start() {
        let world = World::new();
        let request = world.sign(METHOD, b"hello").await;
        world.clock.advance(Duration::from_secs(1));
        let verifier = world.verifier();
        world.clock.advance(Duration::from_secs(5));
        assert_eq!(verifier.verify(request).await.expect_err("old").reason, Reason::UnsignedCall);
        assert!(verifier.verify(world.sign(METHOD, b"hello").await).await.is_ok());
        // Within the skew the router may be behind: it is told to sign again, and when.
        let at = |millis: i64| Timestamp(millis * 1_000);
        assert_eq!(signed_since(at(10_000), at(10_000), at(10_000)), Ok(()));
        let fault = signed_since(at(10_000), at(8_500), at(11_999)).expect_err("old");
        assert_eq!((fault.reason, fault.retry_after_ms), (Reason::NotServing, Some(1_501)));
        assert_eq!(signed_since(at(10_000), at(9_999), at(12_000)).expect_err("old").reason, Reason::UnsignedCall);
    }

    #[tokio::test]
    async fn a_clock_that_is_set_back_behind_the_start_does_not_shut_a_layer_up() {
        let world = World::new();
        let verifier = world.verifier();
        for step in [-3_600, 7_200, -86_400] {
            world.clock.set(world.clock.now().plus(step * SECOND));
            let request = world.sign(METHOD, b"hello").await;
            let again = copy(&request, b"hello");
            assert!(verifier.verify(request).await.is_ok(), "{step} s");
            assert!(verifier.verify(again).await.is_err(), "{step} s: once");
        }
    }

    #[tokio::test]
    async fn p10_keys_rotate_with_overlap() {
        let world = World::new();
        let verifier = world.verifier();
        let old = world.sign(METHOD, b"1").await;
        world.keys.replace(ring(&format!("a:{}\n# next\nb:{}\n", hex(1), hex(2))));
        let new = world.sign(METHOD, b"2").await;
        assert!(verifier.verify(old).await.is_ok(), "the old key still verifies");
        let also_old = copy(&new, b"2");
        assert!(verifier.verify(new).await.is_ok(), "the newest signs");
        world.keys.replace(ring(&format!("a:{}", hex(1))));
        assert!(verifier.verify(also_old).await.is_err(), "a removed key does not");
    }

    #[tokio::test]
    async fn p10_the_hash_does_not_depend_on_how_the_transport_cuts_the_message() {
        let world = World::new();
        let verifier = world.verifier();
        let message = vec![7_u8; 100_000];
        let frame = framed(&message);
        for cut in [1, 3, 4, 5, 6, 1_000, 16_384, 99_999, 200_000] {
            let signed = world.sign(METHOD, &message).await;
            let chunks: Vec<Result<Frame<Bytes>, Status>> =
                frame.chunks(cut).map(|chunk| Ok(Frame::data(Bytes::copy_from_slice(chunk)))).collect();
            let mut request = with_body(signed, b"");
            *request.body_mut() = Body::new(http_body_util::StreamBody::new(futures::stream::iter(chunks)));
            let verified = verifier.verify(request).await.expect("verified");
            assert_eq!(verified.into_body().collect().await.expect("body").to_bytes(), frame, "{cut}");
        }
    }

    #[tokio::test]
    async fn p10_of_a_client_stream_the_first_message_is_bound() {
        let world = World::new();
        let verifier = world.verifier();
        let mut stream = framed(b"header");
        stream.extend(framed(b"chunk 1"));
        let mut request = with_body(world.sign(METHOD, b"header").await, b"");
        *request.body_mut() = Body::new(http_body_util::Full::new(Bytes::from(stream.clone())));
        let verified = verifier.verify(request).await.expect("verified");
        assert_eq!(verified.into_body().collect().await.expect("body").to_bytes(), stream);
    }

    #[tokio::test]
    async fn a_call_without_identity_or_with_too_much_to_vouch_is_not_made() {
        let world = World::new();
        let signer = Signer::new(world.keys.clone(), world.ports.clone());
        let request = Request::new(body(b"x"));
        assert_eq!(signer.prepare(request).await.expect_err("no identity").reason, Reason::Internal);
        for (bytes, ok) in [(ATTESTATION_BYTES, true), (ATTESTATION_BYTES + 1, false)] {
            let mut request = Request::new(body(b"x"));
            *request.uri_mut() = METHOD.parse().expect("path");
            request.extensions_mut().insert(identity().attesting(vec![1; bytes]));
            let signed = signer.prepare(request).await;
            assert_eq!(signed.is_ok(), ok, "{bytes}");
            if let Ok(signed) = signed {
                assert!(world.verifier().verify(signed).await.is_ok(), "the largest header is accepted");
            }
        }
    }

    #[test]
    fn more_calls_than_can_be_remembered_are_refused_not_forgotten() {
        let mut nonces = Nonces::default();
        let ids = SeqIds::seeded(1);
        for _ in 0..NONCES_PER_SECOND {
            nonces.use_once(*ids.next().as_bytes(), Timestamp::ZERO, Timestamp::ZERO).expect("room");
        }
        let fault = nonces.use_once(*ids.next().as_bytes(), Timestamp::ZERO, Timestamp::ZERO).expect_err("full");
        assert_eq!(fault.reason, Reason::Overloaded);
        assert!(fault.retry_after_ms.is_some());
        let later = Timestamp::from_seconds(1);
        assert!(nonces.use_once(*ids.next().as_bytes(), later, later).is_ok(), "the next second has room");
    }

    #[test]
    fn bad_key_rings_are_refused_without_showing_the_key() {
        let good = hex(1);
        let too_many: String = (0..9).map(|n| format!("k{n}:{}\n", hex(n))).collect();
        for text in [
            "",
            "# only a comment",
            good.as_str(),
            "a:xyz",
            &format!("a:{good}\na:{good}"),
            &format!("bad id:{good}"),
            &format!("a:{}", &good[1..]),
            &too_many,
        ] {
            let fault = KeyRing::parse(&text.to_owned().into()).expect_err(text);
            assert_eq!(fault.reason, Reason::InvalidField);
            assert!(!fault.message.contains(&good[..16]) && !fault.message.contains("xyz"), "{}", fault.message);
        }
        assert_eq!(format!("{:?}", ring(&format!("a:{good}"))), "[\"a\"]");
    }

    /// Prints what signing adds to a call in one process; the README quotes it.
    #[tokio::test]
    async fn cost_of_signing_and_verifying() {
        let world = World::new();
        let verifier = world.verifier();
        for bytes in [200, 4_000, 64_000] {
            let message = vec![1; bytes];
            let watch = crate::ports::Stopwatch::start();
            let rounds = 1_000;
            for _ in 0..rounds {
                let signed = world.sign(METHOD, &message).await;
                assert!(verifier.verify(signed).await.is_ok());
            }
            eprintln!("signed and verified {bytes} bytes in {:?} each", watch.elapsed() / rounds);
        }
    }
}
