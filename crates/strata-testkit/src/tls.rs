//! Certificates of authorities that exist for one test.

use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, date_time_ymd};

/// An authority.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate, PEM.
    pub pem: String,
}

/// A certificate with its key, in PEM.
#[derive(Debug)]
pub struct Issued {
    /// Certificate.
    pub certificate: String,
    /// Key.
    pub key: String,
}

impl Authority {
    /// A new one.
    ///
    /// # Panics
    /// When no key can be made.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("signed").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate for 127.0.0.1, from 2020 to the first day of a year.
    ///
    /// # Panics
    /// When no key can be made.
    #[must_use]
    pub fn issue(&self, until: i32) -> Issued {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("names");
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed").pem();
        Issued { certificate, key: key.serialize_pem() }
    }
}
