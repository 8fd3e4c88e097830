//! How gradients travel, as people write it: a name, or the share of `top_k`.

use std::fmt;

use serde::{
    Deserializer,
    de::{Error, MapAccess, Unexpected, Visitor},
};
use syncline_scheduler::spec::Compression;

/// As all keys of a job file are spelt, and as job files of old spell this one.
const TOP_K: [&str; 2] = ["top_k", "top-k"];

/// The names that stand alone.
fn by_name(name: &str) -> Option<Compression> {
    match name {
        "none" => Some(Compression::None),
        "bf16" => Some(Compression::Bf16),
        "fp16" => Some(Compression::Fp16),
        "int8" => Some(Compression::Int8),
        "auto" => Some(Compression::Auto),
        _ => None,
    }
}

/// Reads a name, or `{ top_k = SHARE }`.
pub(super) fn compression<'de, D: Deserializer<'de>>(from: D) -> Result<Compression, D::Error> {
    from.deserialize_any(NameOrShare)
}

struct NameOrShare;

impl<'de> Visitor<'de> for NameOrShare {
    type Value = Compression;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("none, bf16, fp16, int8 or auto, or a share such as { top_k = 0.01 }")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Compression, E> {
        match name {
            name if TOP_K.contains(&name) => {
                Err(E::custom(format!("`{name}` needs the share that travels: {{ {name} = 0.01 }}")))
            }
            _ => by_name(name).ok_or_else(|| E::invalid_value(Unexpected::Str(name), &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Compression, A::Error> {
        let name = map.next_key::<String>()?.unwrap_or_default();
        if TOP_K.contains(&name.as_str()) {
            let share = map.next_value()?;
            return match map.next_key::<String>()? {
                None => Ok(Compression::TopK(share)),
                Some(more) => Err(A::Error::custom(format!("`{more}` does not go with `{name}`"))),
            };
        }
        match by_name(&name) {
            Some(_) => {
                Err(A::Error::custom(format!("`{name}` has no settings: write \"{name}\" in its place")))
            }
            None => Err(A::Error::invalid_value(Unexpected::Str(&name), &self)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Has {
        #[serde(deserialize_with = "compression")]
        compression: Compression,
    }

    fn read(text: &str) -> Result<Compression, String> {
        toml::from_str::<Has>(&format!("compression = {text}"))
            .map(|has| has.compression)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn every_encoding_is_read_as_it_is_shown() {
        use Compression::{Auto, Bf16, Fp16, Int8, None};
        for compression in [None, Bf16, Fp16, Int8, Auto] {
            assert_eq!(read(&format!("'{compression}'")), Ok(compression));
        }
        for share in ["{ top_k = 0.01 }", "{ top-k = 0.01 }"] {
            assert_eq!(read(share), Ok(Compression::TopK(0.01)), "{share}");
        }
    }

    #[test]
    fn what_is_none_is_answered_with_what_to_write() {
        #[rustfmt::skip]
        let cases = [
            ("{ auto = 1 }",              "`auto` has no settings: write \"auto\" in its place"),
            ("'top_k'",                   "`top_k` needs the share that travels: { top_k = 0.01 }"),
            ("'top-k'",                   "`top-k` needs the share that travels: { top-k = 0.01 }"),
            ("'int4'",                    "invalid value: string \"int4\", expected none, bf16, fp16, int8 or auto, or a share"),
            ("{ int4 = {} }",             "invalid value: string \"int4\", expected none"),
            ("{ top_k = 0.1, zstd = 1 }", "`zstd` does not go with `top_k`"),
        ];
        for (written, words) in cases {
            let error = read(written).unwrap_err();
            assert!(error.contains(words), "{written}: {error}");
        }
    }
}
