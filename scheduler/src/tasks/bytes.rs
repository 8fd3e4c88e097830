//! A value as bytes: shared in memory, raw on the wire, printable in Redis.

use std::{fmt, ops::Deref, sync::Arc};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, Visitor},
};

/// Bytes that many may hold. In JSON printable ASCII stands for itself and every other byte as `\xNN`, so
/// that a person whoever looks into Redis sees what is text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(Arc<[u8]>);

impl Default for Bytes {
    fn default() -> Self {
        Self(Arc::from([]))
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// As text: one character per printable byte but `\`, four for each other. Printed as it is asked for, so
/// that who needs the first characters alone stops there.
struct Escaped<'a>(&'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain = |byte: &u8| matches!(byte, 0x20..=0x7e) && *byte != b'\\';
        let blocks = self.0.chunks(256);
        for part in blocks.flat_map(|block| block.chunk_by(|a, b| is_plain(a) && is_plain(b))) {
            match std::str::from_utf8(part) {
                Ok(plain) if is_plain(&part[0]) => f.write_str(plain)?,
                _ => write!(f, "\\x{:02x}", part[0])?,
            }
        }
        Ok(())
    }
}

fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let digits = rest.get(at + 2..at + 4).filter(|_| rest.as_bytes()[at + 1] == b'x')?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[at + 4..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    Some(bytes)
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 64;
        write!(f, "b\"{}\"", Escaped(&self[..self.len().min(SHOWN)]))?;
        if self.len() > SHOWN { write!(f, "... of {} bytes", self.len()) } else { Ok(()) }
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() { to.collect_str(&Escaped(self)) } else { to.serialize_bytes(self) }
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if from.is_human_readable() { from.deserialize_str(Raw) } else { from.deserialize_bytes(Raw) }
    }
}

struct Raw;

impl Visitor<'_> for Raw {
    type Value = Bytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes, or text with escapes \\xNN")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
        Ok(Bytes(bytes.into()))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Bytes, E> {
        unescaped(text).map(Bytes::from).ok_or_else(|| E::custom("an escape that is not \\xNN"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_stays_readable_in_json() {
        let json = serde_json::to_string(&Bytes::from(b"ab\\\x00\xff\"".to_vec())).unwrap();
        assert_eq!(json, r#""ab\\x5c\\x00\\xff\"""#);
        assert!(serde_json::from_str::<Bytes>(r#""\\x0""#).is_err());
        assert!(serde_json::from_str::<Bytes>(r#""\\""#).is_err());
        assert!(serde_json::from_str::<Bytes>(r#""\\y00""#).is_err());
        assert!(serde_json::from_str::<Bytes>("\"\\\\x0\u{e9}\"").is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_survive_json(bytes: Vec<u8>) {
            let bytes = Bytes::from(bytes);
            let json = serde_json::to_string(&bytes).unwrap();
            prop_assert_eq!(serde_json::from_str::<Bytes>(&json).unwrap(), bytes);
        }
    }
}
