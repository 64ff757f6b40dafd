//! Page tokens: opaque, authenticated, bound to the owner and to the request they continue (case C131). A keyset cursor
//! is inside, never an offset.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use strata_core::{Fault, Reason};

/// Mints and opens page tokens with the deployment's key.
#[derive(Clone)]
pub struct PageTokens {
    key: [u8; 32],
}

impl std::fmt::Debug for PageTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PageTokens(..)")
    }
}

const TAG_BYTES: usize = 16;

impl PageTokens {
    /// From any secret of the deployment; tokens of one secret are foreign to another.
    #[must_use]
    pub fn new(secret: &[u8]) -> Self {
        Self { key: blake3::derive_key("strata page token v1", secret) }
    }

    /// A token for `cursor`. `binding` names owner, method and filter: the same must be given to [`Self::open`].
    #[must_use]
    pub fn mint(&self, binding: &[&str], cursor: &str) -> String {
        let mut bytes = self.tag(binding, cursor)[..TAG_BYTES].to_vec();
        bytes.extend_from_slice(cursor.as_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The cursor of a token; none for an empty token (the first page).
    ///
    /// # Errors
    /// `INVALID_PAGE_TOKEN` when the token is altered or belongs to another owner, method or filter.
    pub fn open(&self, binding: &[&str], token: &str) -> Result<Option<String>, Fault> {
        if token.is_empty() {
            return Ok(None);
        }
        let refused = || {
            Fault::new(Reason::InvalidPageToken, "page_token: not a token of this list, owner and filter; start again without it")
        };
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| refused())?;
        let (tag, cursor) = bytes.split_at_checked(TAG_BYTES).ok_or_else(refused)?;
        let cursor = std::str::from_utf8(cursor).map_err(|_| refused())?;
        // blake3's Hash compares in constant time; pad the shortened tag with the expected rest.
        let expected = self.tag(binding, cursor);
        let mut given = expected;
        given[..TAG_BYTES].copy_from_slice(tag);
        if blake3::Hash::from_bytes(given) != blake3::Hash::from_bytes(expected) {
            return Err(refused());
        }
        Ok(Some(cursor.to_owned()))
    }

    fn tag(&self, binding: &[&str], cursor: &str) -> [u8; 32] {
        let mut parts = binding.to_vec();
        parts.push(cursor);
        *blake3::keyed_hash(&self.key, strata_core::id::join(&parts).as_bytes()).as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c131_a_token_opens_only_what_it_was_made_for() {
        let tokens = PageTokens::new(b"secret");
        let token = tokens.mint(&["t1", "u1", "list"], "42");
        assert_eq!(tokens.open(&["t1", "u1", "list"], &token).expect("own"), Some("42".into()));
        assert_eq!(tokens.open(&["t1", "u1", "list"], "").expect("first page"), None);
        for (binding, token) in [
            (["t1", "u2", "list"], token.clone()),
            (["t1", "u1", "history"], token.clone()),
            (["t1", "u1", "list"], format!("{token}A")),
            (["t1", "u1", "list"], "garbage!".into()),
            (["t1", "u1", "list"], "AAAA".into()),
        ] {
            assert_eq!(tokens.open(&binding, &token).expect_err("refused").reason, Reason::InvalidPageToken);
        }
        assert!(PageTokens::new(b"other").open(&["t1", "u1", "list"], &token).is_err());
    }
}
