//! What content is named by: its BLAKE3.

use syncline_scheduler::ids::ContentDigest;

/// The digest of these bytes.
pub fn digest_of(bytes: &[u8]) -> ContentDigest {
    digest_from(blake3::hash(bytes))
}

/// The digest that a hash of content is.
pub fn digest_from(hash: blake3::Hash) -> ContentDigest {
    ContentDigest::from_bytes(hash.into())
}
