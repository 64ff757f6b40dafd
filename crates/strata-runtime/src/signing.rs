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
use crate::layer::{deadline, request_id, trace};
use crate::ports::{Ports, random_bytes};
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
    /// The user's erase epoch the router has seen; 0 when none.
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
    /// The user's erase epoch the router has seen.
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

/// Wire form of [`Claims`].
#[derive(Clone, PartialEq, Message)]
struct WireClaims {
    #[prost(string, tag = "1")]
    caller: String,
    #[prost(string, tag = "2")]
    tenant: String,
    #[prost(string, optional, tag = "3")]
    caller_user: Option<String>,
    #[prost(string, repeated, tag = "4")]
    roles: Vec<String>,
    #[prost(string, optional, tag = "5")]
    user: Option<String>,
    #[prost(string, tag = "6")]
    method: String,
    #[prost(bytes = "vec", tag = "7")]
    body_hash: Vec<u8>,
    #[prost(bytes = "vec", tag = "8")]
    nonce: Vec<u8>,
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

impl From<&Claims> for WireClaims {
    fn from(claims: &Claims) -> Self {
        let level = claims.write.and_then(|write| LEVELS.iter().zip(1_u32..).find(|(level, _)| **level == write.level)).map_or(0, |(_, n)| n);
        Self {
            caller: claims.caller.id.clone(),
            tenant: claims.caller.tenant.as_str().into(),
            caller_user: claims.caller.user.as_ref().map(|user| user.as_str().into()),
            roles: claims.caller.roles.iter().map(|role| role.name().into()).collect(),
            user: claims.user.as_ref().map(|user| user.as_str().into()),
            method: claims.method.clone(),
            body_hash: claims.body_hash.to_vec(),
            nonce: claims.nonce.to_vec(),
            issued_at: claims.issued_at.micros(),
            level,
            epoch: claims.write.map_or(0, |write| write.epoch),
            erase_epoch: claims.erase_epoch,
            attestation: claims.attestation.clone(),
        }
    }
}

impl TryFrom<WireClaims> for Claims {
    type Error = Fault;

    fn try_from(wire: WireClaims) -> Result<Self, Fault> {
        let malformed = || refused("the signed header is malformed");
        let user = |text: Option<String>| text.map(UserId::new).transpose();
        let role = |name: &String| Role::ALL.iter().find(|role| role.name() == name).copied().ok_or_else(malformed);
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
            body_hash: wire.body_hash.try_into().map_err(|_| malformed())?,
            nonce: wire.nonce.try_into().map_err(|_| malformed())?,
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
        for (line, entry) in text.expose_secret().split(['\n', ',']).map(str::trim).enumerate() {
            if entry.is_empty() || entry.starts_with('#') {
                continue;
            }
            let (id, hex) = entry.split_once(':').ok_or_else(|| wrong(line + 1, "must be id:key"))?;
            let (id, hex) = (id.trim(), hex.trim());
            if id.is_empty() || id.len() > 32 || !id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')) {
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

    /// A ring of one random key, for roles of one process: nobody else can ever sign.
    #[must_use]
    pub fn ephemeral(ids: &dyn strata_core::ports::IdSource) -> Self {
        Self { keys: vec![Key { id: "process".into(), secret: SecretBox::new(Box::new(random_bytes(ids))) }] }
    }

    fn sign(&self, claims: &Claims) -> Result<HeaderValue, Fault> {
        let key = self.keys.last().ok_or_else(|| Fault::new(Reason::Internal, "no signing key"))?;
        let claims = Bytes::from(WireClaims::from(claims).encode_to_vec());
        let mac = Bytes::copy_from_slice(mac(key, &claims).as_bytes());
        let signed = Signed { key: key.id.clone(), claims, mac }.encode_to_vec();
        HeaderValue::try_from(STANDARD_NO_PAD.encode(signed)).map_err(|_| Fault::new(Reason::Internal, "the header cannot be encoded"))
    }

    fn verify(&self, header: &HeaderValue) -> Result<Claims, Fault> {
        // gRPC: senders omit the padding, receivers accept it.
        const ENGINE: GeneralPurpose =
            GeneralPurpose::new(&base64::alphabet::STANDARD, GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent));
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
        let signer = self.clone();
        BoxCloneSyncService::new(tower::service_fn(move |request: Request<Body>| {
            let (signer, channel) = (signer.clone(), channel.clone());
            async move {
                let request = signer.prepare(request).await.map_err(crate::layer::status)?;
                channel::call(channel, request).await
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
        let claims = Claims {
            caller: identity.principal,
            user: identity.user,
            method: head.uri.path().to_owned(),
            body_hash,
            nonce,
            issued_at: self.ports.clock.now(),
            write: identity.write,
            erase_epoch: identity.erase_epoch,
            attestation: identity.attestation,
        };
        head.headers.insert(HEADER, self.keys.0.load().sign(&claims)?);
        Ok(Request::from_parts(head, body))
    }
}

/// Verifies the header of every call to a layer. One per listener: it remembers the nonces.
#[derive(Debug)]
pub struct Verifier {
    keys: SharedKeys,
    ports: Ports,
    started_at: Timestamp,
    seen: Mutex<Nonces>,
}

impl Verifier {
    /// Starts now: headers signed earlier are refused, because their nonces may have been used before a restart.
    #[must_use]
    pub fn new(keys: SharedKeys, ports: Ports) -> Self {
        let started_at = ports.clock.now();
        Self { keys, ports, started_at, seen: Mutex::new(Nonces::default()) }
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
            return Err(refused("the header has expired or is from the future"));
        }
        if claims.issued_at < self.started_at {
            return Err(refused("the header was signed before this layer started"));
        }
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
