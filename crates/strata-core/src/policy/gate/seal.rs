//! Signatures of export lines: what this deployment wrote out for a tenant is told from what anyone else wrote.

use crate::id::{TenantId, join};

/// Signs and checks lines of an export, with a key per tenant.
#[derive(Clone)]
pub struct Seals {
    key: [u8; 32],
}

impl std::fmt::Debug for Seals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seals(..)")
    }
}

impl Seals {
    /// From any secret of the deployment; each tenant gets its own key.
    #[must_use]
    pub fn new(secret: &[u8]) -> Self {
        Self { key: blake3::derive_key("strata export line v1", secret) }
    }

    fn mac(&self, tenant: &TenantId, kind: &str, line: &[u8]) -> blake3::Hash {
        let tenant = blake3::keyed_hash(&self.key, tenant.as_str().as_bytes());
        let mut hasher = blake3::Hasher::new_keyed(tenant.as_bytes());
        hasher.update(join(&[kind]).as_bytes());
        hasher.update(line);
        hasher.finalize()
    }

    /// The signature of a line: its kind and its canonical bytes.
    #[must_use]
    pub fn sign(&self, tenant: &TenantId, kind: &str, line: &[u8]) -> String {
        self.mac(tenant, kind, line).to_hex().to_string()
    }

    /// Whether this deployment signed the line for the tenant; compares in constant time.
    #[must_use]
    pub fn verify(&self, tenant: &TenantId, kind: &str, line: &[u8], signature: &str) -> bool {
        blake3::Hash::from_hex(signature).is_ok_and(|given| given == self.mac(tenant, kind, line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c161_a_signature_counts_for_its_line_kind_tenant_and_deployment_only() {
        let tenant = |name: &str| TenantId::new(name).expect("id");
        let seals = Seals::new(b"secret");
        let signature = seals.sign(&tenant("t1"), "memory", b"line");
        assert!(seals.verify(&tenant("t1"), "memory", b"line", &signature));
        for (tenant, kind, line, signature) in [
            (tenant("t2"), "memory", &b"line"[..], signature.as_str()),
            (tenant("t1"), "skill", b"line", &signature),
            (tenant("t1"), "memory", b"lime", &signature),
            (tenant("t1"), "memory", b"line", ""),
            (tenant("t1"), "memory", b"line", "garbage"),
        ] {
            assert!(!seals.verify(&tenant, kind, line, signature));
        }
        assert!(!Seals::new(b"other").verify(&tenant("t1"), "memory", b"line", &signature));
    }
}
