//! What a task gives.

use serde::{Deserialize, Serialize};

use super::Bytes;
use crate::ids::ContentDigest;

/// Largest value that is kept in Redis and travels through the engine; a larger one is a blob.
pub const MAX_INLINE_BYTES: usize = 16 << 10;

/// A value as it is kept and sent: postcard of what the function returned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Value {
    /// The bytes themselves: at most [`MAX_INLINE_BYTES`] of what a task gives.
    Inline(Bytes),
    /// Where the bytes lie, if they are more.
    Blob(BlobValue),
}

/// A value on the parameter server. The blob begins with [`BlobValue::SALT_BYTES`] bytes that belong to the
/// task alone, so that no other blob has the same digest and it can be removed when its last consumer has
/// ended.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlobValue {
    /// Of the blob.
    pub digest: ContentDigest,
    /// Of the value, without the salt.
    pub bytes: u64,
}

impl BlobValue {
    /// Bytes in front of the value.
    pub const SALT_BYTES: usize = 16;
}

impl Default for Value {
    fn default() -> Self {
        Self::Inline(Bytes::default())
    }
}

impl Value {
    /// The blob, if it is one.
    pub fn blob(&self) -> Option<&BlobValue> {
        match self {
            Self::Blob(blob) => Some(blob),
            Self::Inline(_) => None,
        }
    }

    /// Size of what the function gave, as it travels.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Blob(blob) => blob.bytes,
        }
    }

    /// Bytes that travel with it.
    pub fn inline_bytes(&self) -> usize {
        match self {
            Self::Inline(bytes) => bytes.len(),
            Self::Blob(_) => ContentDigest::DIGITS,
        }
    }

    /// Whether nothing of it needs to be kept: `()` and the like.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Inline(bytes) if bytes.is_empty())
    }

    /// As Redis holds it: `=` and the bytes, or `@digest:bytes`.
    pub fn to_stored(&self) -> Vec<u8> {
        match self {
            Self::Inline(bytes) => [b"=", &bytes[..]].concat(),
            Self::Blob(BlobValue { digest, bytes }) => format!("@{digest}:{bytes}").into_bytes(),
        }
    }

    /// From what Redis holds.
    pub fn from_stored(stored: &[u8]) -> Option<Self> {
        match stored.split_first()? {
            (b'=', bytes) => Some(Self::Inline(bytes.to_vec().into())),
            (b'@', rest) => {
                let (digest, bytes) = std::str::from_utf8(rest).ok()?.split_once(':')?;
                Some(Self::Blob(BlobValue { digest: digest.parse().ok()?, bytes: bytes.parse().ok()? }))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_value_is_read_back() {
        let blob = BlobValue { digest: ContentDigest::from_bytes([0xab; 32]), bytes: 7 };
        for value in [Value::default(), Value::Inline(vec![0, b'=', 255].into()), Value::Blob(blob)] {
            assert_eq!(Value::from_stored(&value.to_stored()), Some(value));
        }
        let digest = "ab".repeat(32);
        let not_a_size = format!("@{digest}:x");
        for bad in ["", "x", "@ab", "@ab:7", &format!("@{digest}"), &not_a_size] {
            assert_eq!(Value::from_stored(bad.as_bytes()), None, "{bad}");
        }
    }
}
