//! First values of a forward model, as a job file has them: a path, or a table that says that they may fit in
//! part.

use std::{fmt, path::PathBuf};

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Visitor, value::MapAccessDeserializer},
};

/// What stands behind `weights`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileWeights {
    pub path: PathBuf,
    pub partial: bool,
}

impl<'de> Deserialize<'de> for FileWeights {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(PathOrTable)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    path: PathBuf,
    #[serde(default)]
    partial: bool,
}

struct PathOrTable;

impl<'de> Visitor<'de> for PathOrTable {
    type Value = FileWeights;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a path, or a table such as { path = \"body.safetensors\", partial = true }")
    }

    fn visit_str<E: Error>(self, path: &str) -> Result<FileWeights, E> {
        Ok(FileWeights { path: path.into(), partial: false })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<FileWeights, A::Error> {
        let Table { path, partial } = Table::deserialize(MapAccessDeserializer::new(map))?;
        Ok(FileWeights { path, partial })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct Model {
        weights: FileWeights,
    }

    #[test]
    fn a_path_or_a_table() {
        let path = "a.safetensors";
        #[rustfmt::skip]
        let cases = [
            ("'a.safetensors'",                              Ok(false)),
            ("{ path = 'a.safetensors' }",                   Ok(false)),
            ("{ path = 'a.safetensors', partial = true }",   Ok(true)),
            ("{ partial = true }",                           Err("missing field `path`")),
            ("{ path = 'a', part = true }",                  Err("unknown field `part`, expected `path` or `partial`")),
            ("3",                                            Err("expected a path, or a table such as { path = \"body.safetensors\", partial = true }")),
        ];
        for (text, want) in cases {
            match (toml::from_str::<Model>(&format!("weights = {text}")), want) {
                (Ok(read), Ok(partial)) => {
                    assert_eq!(read.weights, FileWeights { path: path.into(), partial }, "{text}")
                }
                (Err(error), Err(want)) => assert!(error.to_string().contains(want), "{text}: {error}"),
                (read, want) => panic!("{text}: {read:?}, wanted {want:?}"),
            }
        }
    }
}
