//! What tells two graphs apart that were submitted under the same id.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

const BYTES: usize = 32;

/// BLAKE3 of the classes and tasks of a whole graph, as its client has built it. Text is 64 hexadecimal
/// digits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GraphDigest([u8; BYTES]);

/// Why a text is no [`GraphDigest`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the digest of a graph: 64 hexadecimal digits")]
pub struct InvalidDigest(String);

impl GraphDigest {
    /// From the digest's bytes.
    pub fn new(bytes: [u8; BYTES]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for GraphDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for GraphDigest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let invalid = || InvalidDigest(text.chars().take(2 * BYTES).collect());
        if text.len() != 2 * BYTES || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(invalid());
        }
        let mut bytes = [0; BYTES];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).map_err(|_| invalid())?;
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for GraphDigest {
    type Error = InvalidDigest;

    fn try_from(text: String) -> Result<Self, InvalidDigest> {
        text.parse()
    }
}

impl From<GraphDigest> for String {
    fn from(digest: GraphDigest) -> Self {
        digest.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_as_it_is_written() {
        let digest = GraphDigest::new(std::array::from_fn(|n| n as u8 * 7));
        assert_eq!(digest.to_string().parse(), Ok(digest));
        for bad in ["", "00", &"g".repeat(64), &"0".repeat(65), &"+1".repeat(32), &"é".repeat(32)] {
            assert!(bad.parse::<GraphDigest>().is_err(), "{bad}");
        }
    }
}
