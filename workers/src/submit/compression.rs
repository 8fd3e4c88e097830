//! How gradients travel, as people write it: a name, or `{ top_k = SHARE }`.

use std::fmt;

use serde::de::MapAccess;
use syncline_scheduler::spec::Compression;

use super::name_or_table::NameOrTable;

impl NameOrTable for Compression {
    /// As all keys of a job file are spelt, and as job files of old spell this one.
    const KEYS: &[&str] = &["top_k", "top-k"];

    fn expecting(f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("none, bf16, fp16, int8 or auto, or a share such as { top_k = 0.01 }")
    }

    fn by_name(name: &str) -> Option<Self> {
        match name {
            "none" => Some(Self::None),
            "bf16" => Some(Self::Bf16),
            "fp16" => Some(Self::Fp16),
            "int8" => Some(Self::Int8),
            "auto" => Some(Self::Auto),
            _ => None,
        }
    }

    fn what_is_missing(key: &str) -> String {
        format!("`{key}` needs the share that travels: {{ {key} = 0.01 }}")
    }

    fn behind_key<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Self, A::Error> {
        map.next_value().map(Self::TopK)
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::submit::name_or_table::name_or_table;

    #[derive(Debug, Deserialize)]
    struct Has {
        #[serde(deserialize_with = "name_or_table")]
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
