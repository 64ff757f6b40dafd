//! TLS of listeners and of channels. Certificates are files; a changed file is taken over by the connections that come after
//! it, without a restart. What cannot be used is refused with the field's name, and what was in force stays.
//!
//! One crypto provider (ring), TLS 1.2 and 1.3, HTTP/2 only. Sessions are never resumed: every connection shows its
//! certificate anew, so that one that has expired or whose authority was taken away is refused at the next connection, and no
//! connection lives longer than [`CONNECTION_AGE`](crate::server::CONNECTION_AGE).

use crate::config::{self, ConfigProblem, Watch};
use crate::metrics::Instruments;
use arc_swap::ArcSwap;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use strata_core::time::{DAY, SECOND};
use strata_core::{Fault, Timestamp};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Longest time of a handshake.
pub const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long, and for how many bytes, a refused caller is listened to after it was told why: a caller of TLS 1.3 sends its first
/// request before it is answered, and a connection that is closed with bytes unread is reset, which overtakes the reason.
const LINGER: (Duration, u64) = (Duration::from_secs(1), 64 * 1024);
/// The one protocol.
const ALPN: &[u8] = b"h2";

/// PEM files of a certificate with its key, and of the authorities that the other side's must come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate chain, the own one first. Needed by a listener; a channel without one shows none.
    pub certificate: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
    /// Authorities. A listener that has them serves only callers with a certificate of theirs (mutual TLS); a channel trusts
    /// them alone, or the host's roots when there are none.
    pub authorities: Option<PathBuf>,
}

/// The same, read.
#[derive(Clone, Default)]
pub struct TlsPem {
    /// Certificate chain.
    pub certificate: Option<Vec<u8>>,
    /// Private key.
    pub key: Option<Arc<secrecy::SecretSlice<u8>>>,
    /// Authorities.
    pub authorities: Option<Vec<u8>>,
}

impl fmt::Debug for TlsPem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsPem(..)")
    }
}

impl TlsFiles {
    /// Reads them.
    ///
    /// # Errors
    /// `INVALID_FIELD` naming the file's field.
    pub fn read(&self, field: &str) -> Result<TlsPem, Fault> {
        let read = |name: &str, path: &Option<PathBuf>| -> Result<Option<Vec<u8>>, Fault> {
            let Some(path) = path else { return Ok(None) };
            std::fs::read(path).map(Some).map_err(|error| {
                Fault::field(format!("{field}.{name}"), format!("{} cannot be read: {}", path.display(), error.kind()))
            })
        };
        Ok(TlsPem {
            certificate: read("certificate_file", &self.certificate)?,
            key: read("key_file", &self.key)?.map(|key| Arc::new(key.into())),
            authorities: read("authorities_file", &self.authorities)?,
        })
    }

    fn paths(&self) -> impl Iterator<Item = &Path> {
        [&self.certificate, &self.key, &self.authorities].into_iter().flatten().map(PathBuf::as_path)
    }
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn identity(pem: &TlsPem, field: &str) -> Result<Option<Identity>, Fault> {
    let (certificate, key) = match (&pem.certificate, &pem.key) {
        (None, None) => return Ok(None),
        (Some(certificate), Some(key)) => (certificate, key),
        (Some(_), None) => return Err(Fault::field(format!("{field}.key_file"), "is required beside certificate_file")),
        (None, Some(_)) => return Err(Fault::field(format!("{field}.certificate_file"), "is required beside key_file")),
    };
    let chain = certificates(certificate, &format!("{field}.certificate_file"))?;
    let key = PrivateKeyDer::from_pem_slice(secrecy::ExposeSecret::expose_secret(&**key))
        .map_err(|_| Fault::field(format!("{field}.key_file"), "is no private key in PEM"))?;
    Ok(Some((chain, key)))
}

fn certificates(pem: &[u8], field: &str) -> Result<Vec<CertificateDer<'static>>, Fault> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    all.ok().filter(|all| !all.is_empty()).ok_or_else(|| Fault::field(field, "holds no certificate in PEM"))
}

fn roots(pem: &[u8], field: &str) -> Result<RootCertStore, Fault> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem, field)? {
        roots.add(certificate).map_err(|_| Fault::field(field, "holds a certificate that is no authority"))?;
    }
    Ok(roots)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// TLS of a listener.
pub struct ServerTls {
    config: ArcSwap<ServerConfig>,
    expires: ArcSwap<Option<Timestamp>>,
    files: TlsFiles,
    field: &'static str,
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").field("field", &self.field).finish_non_exhaustive()
    }
}

impl ServerTls {
    /// From files; `field` is the section of the configuration that names them.
    ///
    /// # Errors
    /// `INVALID_FIELD` naming what cannot be used.
    pub fn from_files(files: TlsFiles, field: &'static str) -> Result<Arc<Self>, Fault> {
        let (config, expires) = server_config(&files.read(field)?, field)?;
        Ok(Arc::new(Self { config: ArcSwap::new(config), expires: ArcSwap::from_pointee(expires), files, field }))
    }

    /// From text that never changes.
    ///
    /// # Errors
    /// As [`ServerTls::from_files`].
    pub fn from_pem(pem: &TlsPem, field: &'static str) -> Result<Arc<Self>, Fault> {
        let (config, expires) = server_config(pem, field)?;
        let (config, expires) = (ArcSwap::new(config), ArcSwap::from_pointee(expires));
        Ok(Arc::new(Self { config, expires, files: TlsFiles::default(), field }))
    }

    /// Reads the files again: later connections see what is in them now.
    ///
    /// # Errors
    /// As [`ServerTls::from_files`]; what was in force stays.
    pub fn reload(&self) -> Result<(), Fault> {
        let (config, expires) = server_config(&self.files.read(self.field)?, self.field)?;
        self.config.store(config);
        self.expires.store(Arc::new(expires));
        Ok(())
    }

    /// Follows the files until the watches are dropped.
    ///
    /// # Errors
    /// When a folder cannot be watched.
    pub fn watch(self: &Arc<Self>) -> Result<Vec<Watch>, ConfigProblem> {
        let tls = Arc::clone(self);
        follow(&self.files, self.field, Arc::new(move || tls.reload()))
    }

    /// When the certificate in use expires; none when it does not say.
    #[must_use]
    pub fn expires(&self) -> Option<Timestamp> {
        **self.expires.load()
    }

    /// The server's side of a handshake, at most [`HANDSHAKE`]. A caller that is refused is told why.
    ///
    /// # Errors
    /// As the handshake goes wrong.
    pub async fn accept<C: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: C,
    ) -> std::io::Result<tokio_rustls::server::TlsStream<C>> {
        let acceptor = TlsAcceptor::from(self.config.load_full());
        // The reason of a refusal is written once, and lost if the task that many handshakes share has to yield just then.
        let handshake = tokio::task::unconstrained(acceptor.accept(stream).into_fallible());
        let accepted = tokio::time::timeout(HANDSHAKE, handshake).await;
        match accepted.map_err(|_| std::io::ErrorKind::TimedOut)? {
            Ok(accepted) => Ok(accepted),
            Err((refused, mut stream)) => {
                let heard_out = async {
                    stream.shutdown().await?;
                    tokio::io::copy(&mut stream.take(LINGER.1), &mut tokio::io::sink()).await
                };
                let _ = tokio::time::timeout(LINGER.0, heard_out).await;
                Err(refused)
            }
        }
    }
}

fn server_config(pem: &TlsPem, field: &str) -> Result<(Arc<ServerConfig>, Option<Timestamp>), Fault> {
    let (chain, key) =
        identity(pem, field)?.ok_or_else(|| Fault::field(format!("{field}.certificate_file"), "is required for TLS"))?;
    let expires = chain.first().and_then(|certificate| not_after(certificate));
    let wrong = |what: &str| Fault::field(format!("{field}.certificate_file"), what.to_owned());
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|_| wrong("cannot be used with this build's ciphers"))?;
    let builder = match &pem.authorities {
        Some(authorities) => {
            let authorities_field = format!("{field}.authorities_file");
            let roots = Arc::new(roots(authorities, &authorities_field)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
                .build()
                .map_err(|_| Fault::field(authorities_field, "holds no usable authority"))?;
            builder.with_client_cert_verifier(verifier)
        }
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|_| wrong("certificate and key do not belong together"))?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok((Arc::new(config), expires))
}

/// TLS of a channel.
pub struct ClientTls {
    config: ArcSwap<ClientConfig>,
    files: TlsFiles,
    field: &'static str,
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").field("field", &self.field).finish_non_exhaustive()
    }
}

impl ClientTls {
    /// From files; all may be absent: then the host's roots are trusted and no certificate is shown.
    ///
    /// # Errors
    /// `INVALID_FIELD` naming what cannot be used.
    pub fn from_files(files: TlsFiles, field: &'static str) -> Result<Arc<Self>, Fault> {
        let config = ArcSwap::new(client_config(&files.read(field)?, field)?);
        Ok(Arc::new(Self { config, files, field }))
    }

    /// From text that never changes.
    ///
    /// # Errors
    /// As [`ClientTls::from_files`].
    pub fn from_pem(pem: &TlsPem, field: &'static str) -> Result<Arc<Self>, Fault> {
        Ok(Arc::new(Self { config: ArcSwap::new(client_config(pem, field)?), files: TlsFiles::default(), field }))
    }

    /// Reads the files again: later connections use what is in them now.
    ///
    /// # Errors
    /// As [`ClientTls::from_files`]; what was in force stays.
    pub fn reload(&self) -> Result<(), Fault> {
        self.config.store(client_config(&self.files.read(self.field)?, self.field)?);
        Ok(())
    }

    /// Follows the files until the watches are dropped.
    ///
    /// # Errors
    /// When a folder cannot be watched.
    pub fn watch(self: &Arc<Self>) -> Result<Vec<Watch>, ConfigProblem> {
        let tls = Arc::clone(self);
        follow(&self.files, self.field, Arc::new(move || tls.reload()))
    }

    /// The client's side of a handshake with `host`, a name or an address, at most [`HANDSHAKE`].
    ///
    /// # Errors
    /// As the handshake goes wrong.
    pub async fn connect<C: AsyncRead + AsyncWrite + Unpin>(
        &self,
        host: &str,
        stream: C,
    ) -> std::io::Result<tokio_rustls::client::TlsStream<C>> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| std::io::ErrorKind::InvalidInput)?;
        let connector = TlsConnector::from(self.config.load_full());
        tokio::time::timeout(HANDSHAKE, connector.connect(name, stream)).await.map_err(|_| std::io::ErrorKind::TimedOut)?
    }
}

fn client_config(pem: &TlsPem, field: &str) -> Result<Arc<ClientConfig>, Fault> {
    let authorities_field = format!("{field}.authorities_file");
    let roots = match &pem.authorities {
        Some(authorities) => roots(authorities, &authorities_field)?,
        None => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            roots
        }
    };
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|_| Fault::field(authorities_field, "cannot be used with this build's ciphers"))?
        .with_root_certificates(roots);
    let mut config = match identity(pem, field)? {
        Some((chain, key)) => builder
            .with_client_auth_cert(chain, key)
            .map_err(|_| Fault::field(format!("{field}.certificate_file"), "certificate and key do not belong together"))?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// Calls `reload` when one of the files changed. Certificate and key are two files: between the two changes they do not belong
/// together, and the second one tries again.
fn follow(
    files: &TlsFiles,
    field: &'static str,
    reload: Arc<dyn Fn() -> Result<(), Fault> + Send + Sync>,
) -> Result<Vec<Watch>, ConfigProblem> {
    let watch = |path: &Path| {
        let reload = Arc::clone(&reload);
        config::watch(path, move || match reload() {
            Ok(()) => {
                Instruments::global().reloaded(field, true);
                tracing::info!(field, "certificates were read again");
            }
            Err(fault) => {
                Instruments::global().reloaded(field, false);
                tracing::error!(field, cause = %fault.message, "the changed certificates are refused; the last good ones stay");
            }
        })
    };
    files.paths().map(watch).collect()
}

/// `notAfter` of a certificate in DER: the one field of it that is ours to watch.
fn not_after(der: &[u8]) -> Option<Timestamp> {
    const SEQUENCE: u8 = 0x30;
    const VERSION: u8 = 0xa0;
    let (_, certificate, _) = element(der)?;
    let (_, mut rest, _) = element(certificate)?;
    let (tag, _, after) = element(rest)?;
    if tag == VERSION {
        rest = after;
    }
    // Serial number, signature algorithm, issuer.
    for _ in 0..3 {
        rest = element(rest)?.2;
    }
    let (tag, validity, _) = element(rest)?;
    if tag != SEQUENCE {
        return None;
    }
    let (tag, text, _) = element(element(validity)?.2)?;
    time(tag, std::str::from_utf8(text).ok()?)
}

/// Tag, content and what follows of the first element.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f)).filter(|(bytes, _)| bytes.len() <= 4)?;
        (bytes.iter().fold(0_usize, |length, byte| length << 8 | usize::from(*byte)), rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// `YYMMDDHHMMSSZ` (1950 to 2049) or `YYYYMMDDHHMMSSZ`.
fn time(tag: u8, text: &str) -> Option<Timestamp> {
    const UTC_TIME: u8 = 0x17;
    let digits = text.strip_suffix('Z').filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?;
    let (year, rest) = digits.split_at_checked(if tag == UTC_TIME { 2 } else { 4 }).filter(|(_, rest)| rest.len() == 10)?;
    let mut year: i64 = year.parse().ok()?;
    if tag == UTC_TIME {
        year += if year < 50 { 2000 } else { 1900 };
    }
    let part = |at: usize| rest.get(at..at + 2)?.parse::<i64>().ok();
    let (month, day) = (part(0)?, part(2)?);
    // Days since 1970 in the Gregorian calendar, the year beginning in March.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * y + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400) + (153 * m + 2) / 5 + day - 719_469;
    Some(Timestamp(days * DAY + (part(4)? * 3_600 + part(6)? * 60 + part(8)?) * SECOND))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_certificates_are_read() {
        for (tag, text, seconds) in [
            (0x17, "700101000000Z", 0),
            (0x17, "261130090000Z", 1_796_029_200),
            (0x17, "491231235959Z", 2_524_607_999),
            (0x18, "20500101000000Z", 2_524_608_000),
            (0x18, "20240229120000Z", 1_709_208_000),
        ] {
            assert_eq!(time(tag, text), Some(Timestamp::from_seconds(seconds)), "{text}");
        }
        for text in ["", "Z", "2611300900Z", "26113009000aZ", "261130090000"] {
            assert_eq!(time(0x17, text), None, "{text}");
        }
        assert_eq!(not_after(b"nonsense"), None);
    }
}
