//! What content is named by: blobs, models, the files of data.

use std::{fmt, str, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

const HEX: &[u8; 16] = b"0123456789abcdef";

/// BLAKE3 of some content, which names it wherever it lies. Text is 64 lower-case hexadecimal digits, and so
/// it travels and is kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentDigest([u8; Self::BYTES]);

/// Why a text is no [`ContentDigest`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the digest of content: 64 lower-case hexadecimal digits")]
pub struct InvalidContentDigest(String);

impl ContentDigest {
    /// Bytes of a digest.
    pub const BYTES: usize = 32;
    /// Digits of one as text.
    pub const DIGITS: usize = 2 * Self::BYTES;

    /// None comes before it.
    pub const LOWEST: Self = Self([0; Self::BYTES]);

    /// From the digest's bytes.
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// The digest's bytes.
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    fn digits(self) -> [u8; Self::DIGITS] {
        let mut digits = [0; Self::DIGITS];
        for (pair, byte) in digits.as_chunks_mut::<2>().0.iter_mut().zip(self.0) {
            *pair = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
        }
        digits
    }
}

/// The number that a digit stands for.
fn value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

fn parse(text: &[u8]) -> Option<[u8; ContentDigest::BYTES]> {
    let (pairs, rest) = text.as_chunks::<2>();
    if pairs.len() != ContentDigest::BYTES || !rest.is_empty() {
        return None;
    }
    let mut bytes = [0; ContentDigest::BYTES];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = (value(*high)? << 4) | value(*low)?;
    }
    Some(bytes)
}

impl FromStr for ContentDigest {
    type Err = InvalidContentDigest;

    fn from_str(text: &str) -> Result<Self, InvalidContentDigest> {
        let invalid = || InvalidContentDigest(text.chars().take(Self::DIGITS).collect());
        parse(text.as_bytes()).map(Self).ok_or_else(invalid)
    }
}

impl fmt::Display for ContentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(str::from_utf8(&self.digits()).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for ContentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for ContentDigest {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ContentDigest {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Text;

        impl de::Visitor<'_> for Text {
            type Value = ContentDigest;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a digest of 64 lower-case hexadecimal digits")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ContentDigest, E> {
                text.parse().map_err(E::custom)
            }
        }

        from.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_as_it_is_written_and_nothing_else_is_one() {
        let digest = ContentDigest::from_bytes(std::array::from_fn(|n| n as u8 * 7));
        let text = digest.to_string();
        assert!(text.starts_with("00070e15") && text.len() == ContentDigest::DIGITS, "{text}");
        assert_eq!((text.parse(), format!("{digest:?}")), (Ok(digest), text.clone()));
        let upper = text.to_uppercase();
        for bad in [
            "",
            "00",
            &upper,
            &"g".repeat(64),
            &"0".repeat(63),
            &"0".repeat(65),
            &"+1".repeat(32),
            &"é".repeat(32),
        ] {
            assert!(bad.parse::<ContentDigest>().is_err(), "{bad}");
            assert!(serde_json::from_value::<ContentDigest>(bad.into()).is_err(), "{bad}");
        }
    }

    /// What older releases have kept and sent is the text.
    #[test]
    fn it_travels_and_is_kept_as_its_text() {
        let digest = ContentDigest::from_bytes([0xab; 32]);
        let text = "ab".repeat(32);
        assert_eq!(serde_json::to_value(digest).unwrap(), serde_json::json!(text));
        assert_eq!(serde_json::from_value::<ContentDigest>(text.clone().into()).unwrap(), digest);
        let bytes = postcard::to_stdvec(&digest).unwrap();
        assert_eq!(bytes, postcard::to_stdvec(&text).unwrap());
        assert_eq!(postcard::from_bytes::<ContentDigest>(&bytes), Ok(digest));
        assert!(postcard::from_bytes::<ContentDigest>(&postcard::to_stdvec("ab").unwrap()).is_err());
    }

    #[test]
    fn digests_have_the_order_of_their_texts() {
        let texts = ["00", "0f", "10", "9f", "a0", "ff"].map(|byte| byte.repeat(32));
        let digests = texts.clone().map(|text| text.parse::<ContentDigest>().unwrap());
        assert!(texts.is_sorted() && digests.is_sorted(), "{digests:?}");
    }
}
