//! JSON Web Tokens as credentials. A token is good when an allowed algorithm, with a key of the issuer's set that is made for it,
//! signed it; when issuer and audience are the configured ones; when its time has come and is not over; and when it names a
//! tenant, and a user unless the configuration says that it need not.
//!
//! Only public-key algorithms exist here, and symmetric keys of a key set are not taken in: no token can be signed with what
//! everyone may read (no HS/RS confusion), and `none` is no algorithm. Times are judged by our clock port.
//!
//! Keys that come from an address are read again every `jwks_seconds`, and once when a token names a key that is not known: that
//! token waits for the read, which all such tokens share, and the next read for such a cause is [`READ_PAUSE`] away. An issuer
//! that cannot be reached changes nothing until `jwks_stale_seconds` are over; then its keys are believed no longer.

use crate::metrics::Instruments;
use crate::ports::Stopwatch;
use arc_swap::ArcSwap;
use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::jwk::{AlgorithmParameters, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, EncodingKey, Validation, decode, decode_header};
use parking_lot::Mutex;
use ring::signature as scheme;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use strata_core::policy::authz::{Principal, Role};
use strata_core::time::SECOND;
use strata_core::{Clock, Fault, TenantId, Timestamp, UserId};
use tokio::sync::{Notify, watch};

/// Most keys of a set: an issuer has two or three.
const KEYS: usize = 64;
/// Between two reads of a key set because of unknown keys: an issuer is not asked more often than this, whatever is sent to us.
pub const READ_PAUSE: Duration = Duration::from_secs(10);
/// Longest wait of a token for the key set to be read again: the read itself is bounded by less.
const READ_WAIT: Duration = Duration::from_secs(6);

/// What a token may be signed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum JwtAlgorithm {
    /// Ed25519.
    EdDSA,
    /// P-256 with SHA-256.
    ES256,
    /// P-384 with SHA-384.
    ES384,
    /// RSA PKCS#1 v1.5 with SHA-256; keys of 2048 bits or more, as all below.
    RS256,
    /// The same with SHA-384.
    RS384,
    /// The same with SHA-512.
    RS512,
    /// RSA-PSS with SHA-256.
    PS256,
    /// The same with SHA-384.
    PS384,
    /// The same with SHA-512.
    PS512,
}

impl JwtAlgorithm {
    const fn wire(self) -> Algorithm {
        match self {
            Self::EdDSA => Algorithm::EdDSA,
            Self::ES256 => Algorithm::ES256,
            Self::ES384 => Algorithm::ES384,
            Self::RS256 => Algorithm::RS256,
            Self::RS384 => Algorithm::RS384,
            Self::RS512 => Algorithm::RS512,
            Self::PS256 => Algorithm::PS256,
            Self::PS384 => Algorithm::PS384,
            Self::PS512 => Algorithm::PS512,
        }
    }
}

/// Which tokens are good, and what their claims mean.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JwtSettings {
    /// The one issuer (`iss`).
    pub issuer: String,
    /// Audiences that are ours: a token must name one of them (`aud`).
    pub audiences: Vec<String>,
    /// Allowed algorithms.
    pub algorithms: Vec<JwtAlgorithm>,
    /// Claim that names the tenant; a dot goes into an object.
    pub tenant_claim: String,
    /// Claim that names the user. Empty: tokens may name any user of their tenant. A token without the claim is refused.
    pub user_claim: String,
    /// Claim with the roles: a list, or words separated by blanks.
    pub roles_claim: String,
    /// What a word of the issuer means; without a table the words are the names of roles, in any case.
    pub roles: BTreeMap<String, BTreeSet<Role>>,
    /// Seconds that clocks may differ, 0 to 300.
    pub leeway_seconds: u32,
    /// Longest life of a token in seconds, from `iat`, which it then needs; 0: as long as it says.
    pub max_age_seconds: u32,
    /// File with the issuer's key set (JWKS). It is followed.
    pub jwks_file: Option<PathBuf>,
    /// Address of the key set instead: `https://`, or `http://` on this host. Read at the start, every `jwks_seconds`, and soon
    /// after a token named a key that is not known.
    pub jwks_url: Option<String>,
    /// Seconds between two reads of `jwks_url`, 10 to 86,400.
    pub jwks_seconds: u64,
    /// Seconds after the last good read of `jwks_url` for which its keys are believed, from `jwks_seconds` to 2,592,000 (30 days).
    /// Then every token is refused until the issuer answers: who cannot be asked cannot take a stolen key back.
    pub jwks_stale_seconds: u64,
}

impl Default for JwtSettings {
    fn default() -> Self {
        Self {
            issuer: String::new(),
            audiences: Vec::new(),
            algorithms: vec![JwtAlgorithm::EdDSA, JwtAlgorithm::ES256, JwtAlgorithm::RS256],
            tenant_claim: "tenant".into(),
            user_claim: "sub".into(),
            roles_claim: "roles".into(),
            roles: BTreeMap::new(),
            leeway_seconds: 30,
            max_age_seconds: 0,
            jwks_file: None,
            jwks_url: None,
            jwks_seconds: 300,
            jwks_stale_seconds: 86_400,
        }
    }
}

impl JwtSettings {
    /// Whether they hold together.
    ///
    /// # Errors
    /// `INVALID_FIELD` naming the field.
    pub fn validate(&self) -> Result<(), Fault> {
        let required = |name: &str, empty: bool| {
            if empty { Err(Fault::field(format!("auth.jwt.{name}"), "is required")) } else { Ok(()) }
        };
        required("issuer", self.issuer.is_empty())?;
        required("audiences", self.audiences.is_empty())?;
        required("algorithms", self.algorithms.is_empty())?;
        required("tenant_claim", self.tenant_claim.is_empty())?;
        required("roles_claim", self.roles_claim.is_empty())?;
        if self.leeway_seconds > 300 {
            return Err(Fault::field("auth.jwt.leeway_seconds", "must lie between 0 and 300"));
        }
        if self.jwks_file.is_some() && self.jwks_url.is_some() {
            return Err(Fault::field("auth.jwt.jwks_url", "set either jwks_file or jwks_url"));
        }
        if self.jwks_url.as_deref().is_some_and(|url| !is_safe(url)) {
            return Err(Fault::field("auth.jwt.jwks_url", "must be https://: whoever can change the keys can be anyone"));
        }
        if !(10..=86_400).contains(&self.jwks_seconds) {
            return Err(Fault::field("auth.jwt.jwks_seconds", "must lie between 10 and 86400"));
        }
        if !(self.jwks_seconds..=2_592_000).contains(&self.jwks_stale_seconds) {
            return Err(Fault::field("auth.jwt.jwks_stale_seconds", "must lie between jwks_seconds and 2592000"));
        }
        Ok(())
    }
}

/// Whether nobody between here and there can change what is read.
fn is_safe(url: &str) -> bool {
    let Ok(url) = url.parse::<http::Uri>() else { return false };
    match url.scheme_str() {
        Some("https") => url.host().is_some(),
        Some("http") => matches!(url.host(), Some("127.0.0.1" | "localhost" | "[::1]")),
        _ => false,
    }
}

/// One public key of the issuer.
struct Key {
    id: Option<String>,
    /// What the key set says it is for.
    algorithm: Option<String>,
    key: DecodingKey,
}

/// The keys in force, and when they were read.
struct KeySet {
    keys: Vec<Key>,
    read: Timestamp,
}

/// Reads of a key set that has an address.
#[derive(Default)]
struct Reads {
    /// A token named a key that the set does not have: perhaps the set is old.
    wanted: Notify,
    /// Counts the reads that are over, good or not.
    over: watch::Sender<u64>,
    /// Since the last of them.
    last: Mutex<Option<Stopwatch>>,
}

/// Judges tokens.
pub struct Tokens {
    settings: JwtSettings,
    set: ArcSwap<KeySet>,
    reads: Reads,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Why a token is refused: for the log, never for the caller.
pub type Refusal = &'static str;

/// The one refusal that a newer key set may lift.
const UNKNOWN_KEY: Refusal = "its key is not known";

impl Tokens {
    /// Without keys yet: every token is refused.
    ///
    /// # Errors
    /// As [`JwtSettings::validate`].
    pub fn new(settings: JwtSettings, clock: Arc<dyn Clock>) -> Result<Self, Fault> {
        settings.validate()?;
        // The second call of a process finds the same one there.
        let _ = PROVIDER.install_default();
        let set = ArcSwap::from_pointee(KeySet { keys: Vec::new(), read: clock.now() });
        Ok(Self { settings, set, reads: Reads::default(), clock })
    }

    /// Takes over the issuer's key set (JWKS). Keys that are not for signatures, are symmetric, or of a kind that no allowed
    /// algorithm uses, are passed over.
    ///
    /// # Errors
    /// `INVALID_FIELD` when it is no key set or holds no usable key; the keys in force stay.
    pub fn replace(&self, jwks: &str) -> Result<usize, Fault> {
        let wrong = |what: String| Fault::field("auth.jwt.jwks", what);
        // Key by key: one of an unknown kind does not spoil the others.
        let set: Value = serde_json::from_str(jwks).map_err(|_| wrong("is no JSON".into()))?;
        let all = set.get("keys").and_then(Value::as_array).ok_or_else(|| wrong("has no list \"keys\"".into()))?;
        if all.len() > KEYS {
            return Err(wrong(format!("has more than {KEYS} keys")));
        }
        let mut keys = Vec::new();
        for one in all {
            let one = serde_json::json!({ "keys": [one] });
            let Ok(set) = serde_json::from_value::<JwkSet>(one) else { continue };
            for jwk in set.keys {
                let symmetric = matches!(jwk.algorithm, AlgorithmParameters::OctetKey(_));
                let signs = jwk.common.public_key_use.as_ref().is_none_or(|used| *used == PublicKeyUse::Signature);
                if symmetric || !signs {
                    continue;
                }
                if let Ok(key) = DecodingKey::from_jwk(&jwk) {
                    let algorithm = jwk.common.key_algorithm.map(|algorithm| algorithm.to_string());
                    keys.push(Key { id: jwk.common.key_id.clone(), algorithm, key });
                }
            }
        }
        keys.retain(|key| self.settings.algorithms.iter().any(|allowed| fits(key, allowed.wire())));
        if keys.is_empty() {
            return Err(wrong("has no key that an allowed algorithm can use".into()));
        }
        let count = keys.len();
        self.set.store(Arc::new(KeySet { keys, read: self.clock.now() }));
        Ok(count)
    }

    /// Takes over a key set that came while the process runs, or keeps the one in force and says so.
    pub fn reload(&self, jwks: Result<String, String>) {
        let taken = jwks.and_then(|text| self.replace(&text).map_err(|fault| fault.message));
        Instruments::global().reloaded("jwks", taken.is_ok());
        match taken {
            Ok(keys) => tracing::info!(keys, "the issuer's keys were read again"),
            Err(cause) => tracing::error!(%cause, "the issuer's keys cannot be used; the last good ones stay"),
        }
        *self.reads.last.lock() = Some(Stopwatch::start());
        self.reads.over.send_modify(|reads| *reads += 1);
    }

    /// Returns when the key set is to be read before its time: a token named a key that is not known, and the last read is
    /// [`READ_PAUSE`] ago.
    pub async fn wants_a_read(&self) {
        loop {
            self.reads.wanted.notified().await;
            // Asked for while a read ran that is over by now.
            if self.may_be_read() {
                return;
            }
        }
    }

    fn may_be_read(&self) -> bool {
        self.reads.last.lock().as_ref().is_none_or(|last| last.elapsed() >= READ_PAUSE)
    }

    /// [`Self::verify`]; a token whose key is not known waits until the key set was read again, where it may be.
    ///
    /// # Errors
    /// Why it is refused.
    pub async fn judge(&self, token: &str) -> Result<Principal, Refusal> {
        let judged = self.verify(token);
        if judged != Err(UNKNOWN_KEY) || self.settings.jwks_url.is_none() {
            return judged;
        }
        let mut reads = self.reads.over.subscribe();
        if self.may_be_read() {
            self.reads.wanted.notify_one();
            let _in_time = tokio::time::timeout(READ_WAIT, reads.changed()).await;
        }
        self.verify(token)
    }

    /// The bearer of a token.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn verify(&self, token: &str) -> Result<Principal, Refusal> {
        let header = decode_header(token).map_err(|_| "no token with a known algorithm")?;
        if !self.settings.algorithms.iter().any(|allowed| allowed.wire() == header.alg) {
            return Err("its algorithm is not allowed");
        }
        if header.crit.is_some() {
            return Err("it asks for extensions");
        }
        let is_jwt = |typ: &str| typ.eq_ignore_ascii_case("JWT") || typ.eq_ignore_ascii_case("at+jwt");
        if header.typ.as_deref().is_some_and(|typ| !is_jwt(typ)) {
            return Err("it is of another type");
        }
        let set = self.set.load();
        if self.settings.jwks_url.is_some() {
            let bound = i64::try_from(self.settings.jwks_stale_seconds).unwrap_or(i64::MAX).saturating_mul(SECOND);
            if self.clock.now().since(set.read) > bound {
                return Err("the issuer's keys are too old to be believed");
            }
        }
        let named = |key: &&Key| match (&header.kid, &key.id) {
            (Some(wanted), Some(id)) => wanted == id,
            // Without a name every key may be meant.
            (None, _) => true,
            (Some(_), None) => false,
        };
        let mut candidates = set.keys.iter().filter(named).filter(|key| fits(key, header.alg)).peekable();
        if candidates.peek().is_none() {
            return Err(UNKNOWN_KEY);
        }
        let mut validation = Validation::new(header.alg);
        validation.set_issuer(&[&self.settings.issuer]);
        validation.set_audience(&self.settings.audiences);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        // By our clock, below.
        validation.validate_exp = false;
        let claims = candidates.find_map(|key| decode::<Map<String, Value>>(token, &key.key, &validation).ok());
        let claims = claims.ok_or("signature, issuer or audience are wrong")?.claims;
        self.in_time(&claims)?;
        self.principal(&claims)
    }

    fn in_time(&self, claims: &Map<String, Value>) -> Result<(), Refusal> {
        let seconds = |name: &str| match claims.get(name) {
            None => Ok(None),
            // Fractions are allowed by the standard; whole seconds are enough.
            Some(value) => value.as_f64().filter(|at| at.is_finite() && *at >= 0.0).map(Some).ok_or("a time is no number"),
        };
        let now = self.clock.now().micros() as f64 / SECOND as f64;
        let leeway = f64::from(self.settings.leeway_seconds);
        let expires = seconds("exp")?.ok_or("it never expires")?;
        if now >= expires + leeway {
            return Err("it has expired");
        }
        if seconds("nbf")?.is_some_and(|from| now + leeway < from) {
            return Err("its time has not come");
        }
        let issued = seconds("iat")?;
        if issued.is_some_and(|at| now + leeway < at) {
            return Err("it is from the future");
        }
        if self.settings.max_age_seconds > 0 {
            let issued = issued.ok_or("it does not say when it was issued")?;
            if now >= issued + f64::from(self.settings.max_age_seconds) + leeway {
                return Err("it is too old");
            }
        }
        Ok(())
    }

    fn principal(&self, claims: &Map<String, Value>) -> Result<Principal, Refusal> {
        let text = |path: &str| at(claims, path).and_then(Value::as_str);
        let tenant = text(&self.settings.tenant_claim).ok_or("it names no tenant")?;
        let tenant = TenantId::new(tenant).map_err(|_| "its tenant is no id")?;
        let user = if self.settings.user_claim.is_empty() {
            None
        } else {
            let user = text(&self.settings.user_claim).ok_or("it names no user")?;
            Some(UserId::new(user).map_err(|_| "its user is no id")?)
        };
        let subject = text("sub").map(UserId::new).transpose().map_err(|_| "its subject is no id")?.or_else(|| user.clone());
        let id = format!("jwt:{}", subject.as_ref().map_or("", |subject| subject.as_str()));
        let words: Vec<&str> = match at(claims, &self.settings.roles_claim) {
            Some(Value::Array(words)) => words.iter().filter_map(Value::as_str).collect(),
            Some(Value::String(words)) => words.split_whitespace().collect(),
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => Vec::new(),
        };
        let mut roles = BTreeSet::new();
        for word in words {
            if self.settings.roles.is_empty() {
                // An issuer has words for others too: what is no role of ours means nothing here.
                roles.extend(Role::from_name(&word.to_ascii_uppercase().replace('-', "_")));
            } else {
                roles.extend(self.settings.roles.get(word).into_iter().flatten());
            }
        }
        Ok(Principal { id, tenant, user, roles })
    }
}

/// The claim at a dotted path; a claim whose own name holds the dots comes first.
fn at<'a>(claims: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    if let Some(value) = claims.get(path) {
        return Some(value);
    }
    let (first, rest) = path.split_once('.')?;
    at(claims.get(first)?.as_object()?, rest)
}

/// Whether a key can be meant by a token of this algorithm.
fn fits(key: &Key, algorithm: Algorithm) -> bool {
    key.key.family() == algorithm.family() && key.algorithm.as_deref().is_none_or(|only| only == format!("{algorithm:?}"))
}

/// Signatures by ring, the product's one crypto provider.
static PROVIDER: CryptoProvider =
    CryptoProvider { signer_factory: nothing_is_signed, verifier_factory: verifier, key_utils: KeyUtils::new_unimplemented() };

fn nothing_is_signed(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>, Error> {
    Err(ErrorKind::InvalidAlgorithm.into())
}

enum Scheme {
    Rsa(&'static scheme::RsaParameters),
    Other(&'static dyn scheme::VerificationAlgorithm),
}

static SCHEMES: [(Algorithm, Scheme); 9] = [
    (Algorithm::EdDSA, Scheme::Other(&scheme::ED25519)),
    (Algorithm::ES256, Scheme::Other(&scheme::ECDSA_P256_SHA256_FIXED)),
    (Algorithm::ES384, Scheme::Other(&scheme::ECDSA_P384_SHA384_FIXED)),
    (Algorithm::RS256, Scheme::Rsa(&scheme::RSA_PKCS1_2048_8192_SHA256)),
    (Algorithm::RS384, Scheme::Rsa(&scheme::RSA_PKCS1_2048_8192_SHA384)),
    (Algorithm::RS512, Scheme::Rsa(&scheme::RSA_PKCS1_2048_8192_SHA512)),
    (Algorithm::PS256, Scheme::Rsa(&scheme::RSA_PSS_2048_8192_SHA256)),
    (Algorithm::PS384, Scheme::Rsa(&scheme::RSA_PSS_2048_8192_SHA384)),
    (Algorithm::PS512, Scheme::Rsa(&scheme::RSA_PSS_2048_8192_SHA512)),
];

struct Verifying {
    algorithm: Algorithm,
    scheme: &'static Scheme,
    key: DecodingKeyKind,
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    let (_, scheme) = SCHEMES.iter().find(|(known, _)| known == algorithm).ok_or(ErrorKind::InvalidAlgorithm)?;
    Ok(Box::new(Verifying { algorithm: *algorithm, scheme, key: key.kind().clone() }))
}

impl signature::Verifier<Vec<u8>> for Verifying {
    fn verify(&self, message: &[u8], signed: &Vec<u8>) -> Result<(), signature::Error> {
        let verified = match (self.scheme, &self.key) {
            (Scheme::Rsa(parameters), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                // ring refuses a modulus that begins with zeros.
                let n = n.get(n.iter().take_while(|byte| **byte == 0).count()..).unwrap_or_default();
                scheme::RsaPublicKeyComponents { n, e }.verify(parameters, message, signed)
            }
            (Scheme::Other(algorithm), DecodingKeyKind::SecretOrDer(key)) => {
                scheme::UnparsedPublicKey::new(*algorithm, key).verify(message, signed)
            }
            (Scheme::Rsa(_), DecodingKeyKind::SecretOrDer(_))
            | (Scheme::Other(_), DecodingKeyKind::RsaModulusExponent { .. }) => return Err(signature::Error::new()),
        };
        verified.map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for Verifying {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use ring::rand::SystemRandom;
    use ring::signature::{EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
    use serde_json::json;
    use strata_testkit::ManualClock;

    const NOW: i64 = ManualClock::START.micros() / SECOND;
    /// Public key and token of a 2048-bit RSA key that is kept nowhere.
    const RSA_N: &str = "ldb1rBHuts6WeFerCXE7i6Lt-6nWpOWg36sHz3jsic8Fj3PygAHWAxC-01jkD5VVtl6g4gL-WoNxh3VGW1J-Rx0ZS1Mx1RolvKx0cmjC4oWT01Gub8wwNZxVw9ZeNgqf0Ct9H8_7W57Z4SPCVPV6aGdIX61E2FQa6i-ZFqLwFkJwDqhLunPjjWC1oEGa5u4oBknXWu0Z6fkZYg_3HDVvfdl3_DjaKHRGvs7m2304t6RdVS0k3yRgz53jZUzH0T8TQlkf5MB70lLHFL7N2-OjVZ9feV3xI5jzBYwVexPTqGyk-TtvhuDwElkO1JDOPweRq7aC8aAjA-DsbswQYjsGqw";
    const RSA_TOKEN: &str = "eyJhbGciOiJSUzI1NiIsImtpZCI6InJzYS0xIiwidHlwIjoiSldUIn0.eyJpc3MiOiJodHRwczovL2lkcC50ZXN0IiwiYXVkIjoic3RyYXRhIiwic3ViIjoidTEiLCJ0ZW5hbnQiOiJ0MSIsInJvbGVzIjpbIlJFQURFUiJdLCJleHAiOjQxMDI0NDQ4MDB9.Q_KElk7tcK7nRAjL-YpC8z9VAvZ_kSMxtDJjeDQpWTM8KS-eK-ANkH2n7hqI9eeYw7FTbz5UYD0Heh4baJJ2kZcqUv8kKbVj9xB2YRZOl75SxIoqXN-O4DD3-XCZMIkg2ZT4AI70FfO17FD8w6EcfIqPSTrcF8uySWbCxIJ-fi82Q6-Mu8iq7FzNyfLnjLf8Agw_HcWqEBeI2_oXsdeM5274z2i76kRCI5qQVnQ8xmc5n0ygh-lqMCbJkPsrc-jqKQQDR8_CP8rXLktuniDQ-uOVpr7xeGcjzsVG_RPtmzugOoIhSNFIZl3y9RlNIHbtJV8oMSEfBmThE4FBYHTftA";

    fn b64(bytes: impl AsRef<[u8]>) -> String {
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// An issuer with an Ed25519 and a P-256 key.
    struct Issuer {
        ed: Ed25519KeyPair,
        ec: EcdsaKeyPair,
    }

    impl Issuer {
        fn new() -> Self {
            let random = SystemRandom::new();
            let ed = Ed25519KeyPair::generate_pkcs8(&random).expect("a key");
            let ec = EcdsaKeyPair::generate_pkcs8(&scheme::ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("a key");
            Self {
                ed: Ed25519KeyPair::from_pkcs8(ed.as_ref()).expect("a key"),
                ec: EcdsaKeyPair::from_pkcs8(&scheme::ECDSA_P256_SHA256_FIXED_SIGNING, ec.as_ref(), &random).expect("a key"),
            }
        }

        fn jwks(&self) -> String {
            let point = self.ec.public_key().as_ref();
            json!({"keys": [
                {"kty": "OKP", "crv": "Ed25519", "kid": "ed-1", "use": "sig", "alg": "EdDSA", "x": b64(self.ed.public_key())},
                {"kty": "EC", "crv": "P-256", "kid": "ec-1", "x": b64(&point[1..33]), "y": b64(&point[33..])},
                {"kty": "RSA", "kid": "rsa-1", "n": RSA_N, "e": "AQAB"},
                {"kty": "RSA", "kid": "enc-1", "use": "enc", "n": RSA_N, "e": "AQAB"},
                {"kty": "oct", "kid": "oct-1", "k": b64("a shared secret that everyone knows")},
                {"kty": "XYZ", "kid": "later-1"},
            ]})
            .to_string()
        }

        fn token(&self, header: &Value, claims: &Value) -> String {
            let message = format!("{}.{}", b64(header.to_string()), b64(claims.to_string()));
            let signed = match header["alg"].as_str() {
                Some("EdDSA") => self.ed.sign(message.as_bytes()).as_ref().to_vec(),
                Some("ES256") => self.ec.sign(&SystemRandom::new(), message.as_bytes()).expect("signed").as_ref().to_vec(),
                Some("HS256") => {
                    // Signed with what everyone may read: the issuer's public key.
                    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, self.ed.public_key().as_ref());
                    ring::hmac::sign(&key, message.as_bytes()).as_ref().to_vec()
                }
                _ => Vec::new(),
            };
            format!("{message}.{}", b64(signed))
        }
    }

    fn claims() -> Value {
        json!({"iss": "https://idp.test", "aud": ["other", "strata"], "sub": "u1", "tenant": "t1",
            "roles": ["READER", "memory-writer", "somebody-elses"], "exp": NOW + 60, "iat": NOW})
    }

    fn with(changes: Value) -> Value {
        let mut all = claims();
        for (name, value) in changes.as_object().expect("an object") {
            all[name] = value.clone();
            if value.is_null() {
                all.as_object_mut().expect("an object").remove(name);
            }
        }
        all
    }

    fn settings() -> JwtSettings {
        JwtSettings { issuer: "https://idp.test".into(), audiences: vec!["strata".into()], ..JwtSettings::default() }
    }

    fn tokens(settings: JwtSettings, issuer: &Issuer) -> Tokens {
        let clock = ManualClock::default();
        let tokens = Tokens::new(settings, clock.port()).expect("settings");
        assert_eq!(tokens.replace(&issuer.jwks()).expect("keys"), 3, "no symmetric, no encryption key");
        tokens
    }

    fn eddsa() -> Value {
        json!({"alg": "EdDSA", "kid": "ed-1", "typ": "JWT"})
    }

    #[test]
    fn a_good_token_names_its_bearer() {
        let issuer = Issuer::new();
        let tokens = tokens(settings(), &issuer);
        for header in [eddsa(), json!({"alg": "ES256", "kid": "ec-1", "typ": "at+jwt"}), json!({"alg": "ES256"})] {
            let bearer = tokens.verify(&issuer.token(&header, &claims())).expect("good");
            assert_eq!((bearer.id.as_str(), bearer.tenant.as_str()), ("jwt:u1", "t1"));
            assert_eq!(bearer.user.as_ref().map(UserId::as_str), Some("u1"));
            assert_eq!(bearer.roles, BTreeSet::from([Role::Reader, Role::MemoryWriter]));
        }
        assert_eq!(tokens.verify(RSA_TOKEN).expect("good").roles, BTreeSet::from([Role::Reader]));
    }

    #[test]
    fn what_is_not_signed_by_the_issuer_is_refused() {
        let (issuer, stranger) = (Issuer::new(), Issuer::new());
        let tokens = tokens(settings(), &issuer);
        let none = format!("{}.{}.", b64(r#"{"alg":"none"}"#), b64(claims().to_string()));
        for (why, token) in [
            ("another issuer's key", stranger.token(&eddsa(), &claims())),
            ("none", none),
            ("HMAC with a public key", issuer.token(&json!({"alg": "HS256", "kid": "ed-1"}), &claims())),
            ("HMAC with the shared key", issuer.token(&json!({"alg": "HS256", "kid": "oct-1"}), &claims())),
            ("another algorithm than the key's", issuer.token(&json!({"alg": "ES256", "kid": "ed-1"}), &claims())),
            ("another key than it names", issuer.token(&json!({"alg": "EdDSA", "kid": "ec-1"}), &claims())),
            ("a critical extension", issuer.token(&json!({"alg": "EdDSA", "kid": "ed-1", "crit": ["b64"]}), &claims())),
            ("another type", issuer.token(&json!({"alg": "EdDSA", "kid": "ed-1", "typ": "dpop+jwt"}), &claims())),
            ("its own key", {
                let own = json!({"kty": "OKP", "crv": "Ed25519", "x": b64(stranger.ed.public_key())});
                stranger.token(&json!({"alg": "EdDSA", "jwk": own}), &claims())
            }),
            ("an altered signature", format!("{}A", &issuer.token(&eddsa(), &claims())[..100])),
            ("nothing", String::new()),
            ("dots", "..".into()),
            ("four parts", format!("{}.x", issuer.token(&eddsa(), &claims()))),
        ] {
            assert!(tokens.verify(&token).is_err(), "{why}");
        }
        let altered = issuer
            .token(&eddsa(), &claims())
            .replace(&b64(claims().to_string()), &b64(with(json!({"tenant": "t2"})).to_string()));
        assert!(tokens.verify(&altered).is_err(), "altered claims");
    }

    #[test]
    fn issuer_audience_time_tenant_and_user_are_checked() {
        let issuer = Issuer::new();
        let tokens = tokens(JwtSettings { max_age_seconds: 600, ..settings() }, &issuer);
        let verify = |changes: Value| tokens.verify(&issuer.token(&eddsa(), &with(changes)));
        verify(json!({})).expect("good");
        verify(json!({"exp": NOW - 29, "nbf": NOW + 29})).expect("within the leeway");
        for changes in [
            json!({"iss": "https://other.test"}),
            json!({"iss": null}),
            json!({"aud": "other"}),
            json!({"aud": null}),
            json!({"exp": NOW - 31}),
            json!({"exp": null}),
            json!({"exp": "tomorrow"}),
            json!({"exp": -1}),
            json!({"nbf": NOW + 31}),
            json!({"iat": NOW + 31}),
            json!({"iat": NOW - 631}),
            json!({"iat": null}),
            json!({"tenant": null}),
            json!({"tenant": ""}),
            json!({"tenant": ["t1", "t2"]}),
            json!({"tenant": "t\u{200b}1"}),
            json!({"sub": null}),
            json!({"sub": 7}),
        ] {
            assert!(verify(changes.clone()).is_err(), "{changes}");
        }
    }

    #[test]
    fn claims_and_roles_may_have_other_names() {
        let issuer = Issuer::new();
        let mapped = JwtSettings {
            tenant_claim: "org.id".into(),
            user_claim: String::new(),
            roles_claim: "realm_access.roles".into(),
            roles: BTreeMap::from([("agent".into(), BTreeSet::from([Role::SessionManager, Role::Reader]))]),
            ..settings()
        };
        let tokens = tokens(mapped, &issuer);
        let token = with(json!({"org": {"id": "acme"}, "realm_access": {"roles": "agent OPERATOR"}}));
        let bearer = tokens.verify(&issuer.token(&eddsa(), &token)).expect("good");
        assert_eq!((bearer.tenant.as_str(), &bearer.user), ("acme", &None));
        assert_eq!(bearer.roles, BTreeSet::from([Role::SessionManager, Role::Reader]), "only what the table says");
        let without = with(json!({"org": {"id": "acme"}}));
        assert!(tokens.verify(&issuer.token(&eddsa(), &without)).expect("good").roles.is_empty());
    }

    #[test]
    fn the_key_set_comes_from_where_nobody_can_change_it() {
        for (url, safe) in [
            ("https://idp.test/jwks", true),
            ("http://127.0.0.1:8080/jwks", true),
            ("http://localhost/jwks", true),
            ("http://localhost.evil.test/jwks", false),
            ("http://localhost@evil.test/jwks", false),
            ("http://idp.test/jwks", false),
            ("file:///etc/passwd", false),
            ("idp.test", false),
        ] {
            let settings = JwtSettings { jwks_url: Some(url.into()), ..settings() };
            assert_eq!(settings.validate().is_ok(), safe, "{url}");
        }
    }

    #[test]
    fn keys_rotate_and_a_bad_set_changes_nothing() {
        let (old, new) = (Issuer::new(), Issuer::new());
        let tokens = tokens(settings(), &old);
        let next = json!({"alg": "EdDSA", "kid": "ed-2"});
        assert_eq!(tokens.verify(&new.token(&next, &claims())), Err(UNKNOWN_KEY));
        for bad in ["", "{}", r#"{"keys": []}"#, r#"{"keys": [{"kty": "oct", "k": "AAAA"}]}"#, "<html>"] {
            assert_eq!(tokens.replace(bad).expect_err(bad).fields[0].field, "auth.jwt.jwks");
            tokens.verify(&old.token(&eddsa(), &claims())).expect("the last good ones stay");
        }
        tokens.reload(Ok(new.jwks().replace("ed-1", "ed-2")));
        tokens.verify(&new.token(&next, &claims())).expect("the new key");
        assert!(tokens.verify(&old.token(&eddsa(), &claims())).is_err(), "the old one is gone");
    }

    fn by_address(clock: &ManualClock, issuer: &Issuer) -> Arc<Tokens> {
        let url = Some("https://idp.test/jwks".to_owned());
        let settings = JwtSettings { jwks_url: url, jwks_stale_seconds: 3_600, ..settings() };
        let tokens = Tokens::new(settings, clock.port()).expect("settings");
        tokens.reload(Ok(issuer.jwks()));
        Arc::new(tokens)
    }

    #[test]
    fn keys_of_an_issuer_that_cannot_be_reached_are_believed_until_a_bound() {
        let (clock, issuer) = (ManualClock::default(), Issuer::new());
        let tokens = by_address(&clock, &issuer);
        let long = with(json!({"exp": NOW + 100_000}));
        let good = || tokens.verify(&issuer.token(&eddsa(), &long)).is_ok();
        clock.advance_micros(3_600 * SECOND);
        tokens.reload(Err("503".into()));
        assert!(good(), "unreachable: the old keys stay");
        clock.advance_micros(SECOND);
        assert!(!good(), "but not for ever");
        tokens.reload(Err("503".into()));
        assert!(!good(), "a read that failed makes nothing young");
        tokens.reload(Ok(issuer.jwks()));
        assert!(good(), "it is back");
        for (every, stale, right) in [(300, 299, false), (300, 300, true), (300, 2_592_001, false)] {
            let settings = JwtSettings { jwks_seconds: every, jwks_stale_seconds: stale, ..settings() };
            assert_eq!(settings.validate().is_ok(), right, "{every} {stale}");
        }
    }

    #[tokio::test]
    async fn tokens_with_an_unknown_key_share_one_read_and_the_next_is_a_pause_away() {
        let (clock, old, new) = (ManualClock::default(), Issuer::new(), Issuer::new());
        let tokens = by_address(&clock, &old);
        let next = new.token(&json!({"alg": "EdDSA", "kid": "ed-2"}), &claims());
        assert_eq!(tokens.judge(&next).await, Err(UNKNOWN_KEY), "the set was read just now: nobody waits");
        *tokens.reads.last.lock() = None;
        // All of them wait when the set is read.
        let waiting = futures::future::join_all((0..8).map(|_| tokens.judge(&next)));
        let reading = async {
            tokens.wants_a_read().await;
            tokens.reload(Ok(new.jwks().replace("ed-1", "ed-2")));
        };
        let (judged, ()) = futures::join!(waiting, reading);
        for one in judged {
            one.expect("the new key is known");
        }
        assert_eq!(*tokens.reads.over.borrow(), 2, "one read at the start, one for all of them");
        let again = tokio::time::timeout(Duration::from_millis(50), tokens.wants_a_read()).await;
        assert!(again.is_err(), "what was asked for while it was read asks no more");
        assert_eq!(tokens.judge(&old.token(&eddsa(), &claims())).await, Err(UNKNOWN_KEY));
    }
}
