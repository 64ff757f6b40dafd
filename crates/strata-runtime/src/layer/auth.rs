//! Who calls. The layer turns a credential (an API key, or a token of the configured issuer, [`crate::jwt`]) into a [`Principal`] in the request's extensions, or refuses; the principal is
//! the only source of a tenant in the product. Then it asks [`authz::allow`]. [`super::OPEN_PATHS`] are let through by
//! name.

use super::body::Answer;
use super::{Middleware, Rpc, is_open, refuse, trace};
use crate::jwt::Tokens;
use crate::ports::{SystemClock, random_bytes};
use arc_swap::ArcSwap;
use http::{HeaderMap, Request, Response, header};
use secrecy::SecretString;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use strata_core::limits::API_KEYS;
use strata_core::policy::authz::{self, Principal};
use strata_core::ports::IdSource;
use strata_core::{Clock, Fault, Reason, Timestamp};
use tonic::body::Body;
use tonic::transport::server::TcpConnectInfo;

/// Longest accepted bearer token in bytes: a JWT with its claims.
const TOKEN_BYTES: usize = 8 * 1024;

/// One API key as it is stored: its hash, and who its bearer is. The key itself is nowhere at rest.
#[derive(Clone, Debug)]
pub struct ApiKey {
    /// BLAKE3 of the key's text. Keys are random, so the hash needs no salt and no stretching.
    pub hash: blake3::Hash,
    /// Its bearer.
    pub principal: Principal,
}

/// The stored form of a key: 64 lower-case hexadecimal digits.
#[must_use]
pub fn hash_key(key: &str) -> blake3::Hash {
    blake3::hash(key.as_bytes())
}

/// A new key, to be shown once: `strata_` and 64 hexadecimal digits.
#[must_use]
pub fn mint_key(ids: &dyn IdSource) -> SecretString {
    format!("strata_{}", blake3::Hash::from_bytes(random_bytes(ids)).to_hex()).into()
}

/// Knows the callers of a listener. Keys can be replaced while it serves.
#[derive(Debug)]
pub struct Authenticator {
    /// Of the configuration.
    keys: ArcSwap<Vec<ApiKey>>,
    /// Made by operators while processes run.
    issued: ArcSwap<Vec<IssuedKey>>,
    /// Whether the issued keys were read since the start; until then a key that is not known may be one of them.
    complete: AtomicBool,
    tokens: Option<Arc<Tokens>>,
    local: Option<Principal>,
    clock: Arc<dyn Clock>,
}

/// A key that an operator made.
#[derive(Clone, Debug)]
pub struct IssuedKey {
    /// The key.
    pub key: ApiKey,
    /// Refused from then on.
    pub expires: Option<Timestamp>,
}

fn unauthenticated() -> Fault {
    // One text for every cause: whether a key exists is nobody's business.
    Fault::new(Reason::Unauthenticated, "send a valid API key or token in the metadata: authorization: Bearer <key>")
}

impl Authenticator {
    /// Callers are bearers of `keys`.
    ///
    /// # Errors
    /// `INVALID_FIELD` naming `api_keys` when there are more than [`API_KEYS`] or one twice.
    pub fn with_keys(keys: Vec<ApiKey>) -> Result<Self, Fault> {
        Self::check(&keys)?;
        Ok(Self::of(keys, None))
    }

    /// The embedded default: no credential is asked for, everyone is `principal`, and only callers on this host are
    /// served ([`crate::server::check_exposure`] refuses another listener at start; this refuses the call as well). Whoever
    /// does send a credential is its bearer, or refused.
    #[must_use]
    pub fn local(principal: Principal) -> Self {
        Self::of(Vec::new(), Some(principal))
    }

    fn of(keys: Vec<ApiKey>, local: Option<Principal>) -> Self {
        Self {
            keys: ArcSwap::from_pointee(keys),
            issued: ArcSwap::default(),
            complete: AtomicBool::new(true),
            tokens: None,
            local,
            clock: Arc::new(SystemClock),
        }
    }

    /// Also takes tokens of an issuer.
    #[must_use]
    pub fn with_tokens(mut self, tokens: Option<Arc<Tokens>>) -> Self {
        self.tokens = tokens;
        self
    }

    /// Expects keys by [`Authenticator::issue`], which end by this clock.
    #[must_use]
    pub fn expecting_issued(mut self, clock: Arc<dyn Clock>) -> Self {
        self.complete = AtomicBool::new(false);
        self.clock = clock;
        self
    }

    /// Replaces the keys that operators made: the calls after it see the new ones. `complete`: they were read from a store.
    pub fn issue(&self, keys: Vec<IssuedKey>, complete: bool) {
        self.issued.store(Arc::new(keys));
        if complete {
            self.complete.store(true, Ordering::Release);
        }
    }

    /// Replaces all keys at once: the calls after it see the new ones.
    ///
    /// # Errors
    /// As [`Authenticator::with_keys`]; the old keys then stay.
    pub fn replace(&self, keys: Vec<ApiKey>) -> Result<(), Fault> {
        Self::check(&keys)?;
        self.keys.store(Arc::new(keys));
        Ok(())
    }

    /// Whether callers need a credential.
    #[must_use]
    pub const fn has_credentials(&self) -> bool {
        self.local.is_none()
    }

    fn check(keys: &[ApiKey]) -> Result<(), Fault> {
        if keys.len() > API_KEYS {
            return Err(Fault::field("api_keys", format!("more than {API_KEYS} keys")));
        }
        let unique: BTreeSet<_> = keys.iter().map(|key| *key.hash.as_bytes()).collect();
        if unique.len() != keys.len() {
            return Err(Fault::field("api_keys", "one key is there twice"));
        }
        Ok(())
    }

    /// The caller of a request, by its headers and its peer's address. Waits, where a token names a key that its issuer may have
    /// published since.
    ///
    /// # Errors
    /// `UNAUTHENTICATED`.
    pub async fn authenticate(&self, headers: &HeaderMap, peer: Option<SocketAddr>) -> Result<Principal, Fault> {
        let Some(presented) = bearer(headers) else {
            if headers.contains_key(header::AUTHORIZATION) {
                return Err(unauthenticated());
            }
            let local = self.local.as_ref().ok_or_else(unauthenticated)?;
            // Without a peer address the call came from this process or through a unix socket.
            return if peer.is_none_or(|peer| peer.ip().to_canonical().is_loopback()) {
                Ok(local.clone())
            } else {
                Err(unauthenticated())
            };
        };
        if let Some(tokens) = &self.tokens
            && presented.matches('.').count() == 2
        {
            return tokens.judge(presented).await.map_err(|cause| {
                tracing::debug!(cause, "a token was refused");
                unauthenticated()
            });
        }
        let presented = hash_key(presented);
        // `blake3::Hash` compares in constant time, and the loops do not stop at a match.
        let mut found = None;
        for key in self.keys.load().iter() {
            if key.hash == presented {
                found = Some(key.principal.clone());
            }
        }
        let now = self.clock.now();
        for IssuedKey { key, expires } in self.issued.load().iter() {
            if key.hash == presented && expires.is_none_or(|expires| now < expires) {
                found = Some(key.principal.clone());
            }
        }
        match found {
            Some(principal) => Ok(principal),
            None if self.complete.load(Ordering::Acquire) => Err(unauthenticated()),
            None => Err(Fault::new(Reason::NotServing, "API keys cannot be read yet; retry").retry_after(1_000)),
        }
    }
}

/// The token of `authorization: Bearer <token>`. Two headers are none: which one counts must not be a guess.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (value, None) = (values.next()?, values.next()) else { return None };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= TOKEN_BYTES).then_some(token)
}

impl Middleware for Authenticator {
    async fn handle<S: Rpc>(self: &Arc<Self>, mut request: Request<Body>, next: &S) -> Response<Answer> {
        let path = request.uri().path();
        if is_open(path) {
            return next.call(request).await;
        }
        let peer = request.extensions().get::<TcpConnectInfo>().and_then(TcpConnectInfo::remote_addr);
        let principal = self.authenticate(request.headers(), peer).await;
        let allowed = principal.and_then(|principal| authz::allow(&principal, path).map(|_| principal));
        let principal = match allowed {
            Ok(principal) => principal,
            Err(fault) => return refuse(fault),
        };
        trace::note_tenant(&principal.tenant);
        // The credential ends here: nothing behind this layer can log it or pass it on.
        request.headers_mut().remove(header::AUTHORIZATION);
        request.extensions_mut().insert(principal);
        next.call(request).await
    }
}
