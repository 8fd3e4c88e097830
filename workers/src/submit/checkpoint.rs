//! Which checkpoints a training keeps, as people write it: a table, or that it keeps none.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Unexpected, Visitor, value::MapAccessDeserializer},
};
use syncline_scheduler::spec::CheckpointSpec;

/// Reads `none`, or a table such as `{ every_s = 60 }`.
pub(super) fn checkpoint<'de, D: Deserializer<'de>>(from: D) -> Result<Option<CheckpointSpec>, D::Error> {
    from.deserialize_any(NoneOrTable)
}

struct NoneOrTable;

impl<'de> Visitor<'de> for NoneOrTable {
    type Value = Option<CheckpointSpec>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("none, or a table such as { every_s = 60 }")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        match name {
            "none" => Ok(None),
            _ => Err(E::invalid_value(Unexpected::Str(name), &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        CheckpointSpec::deserialize(MapAccessDeserializer::new(map)).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::submit::Settings;

    #[test]
    fn a_file_says_none_or_which_and_one_that_says_nothing_keeps_the_default_table() {
        let read = |text: &str| toml::from_str::<Settings>(text).map(|settings| settings.checkpoint);
        assert_eq!(read("").unwrap(), Some(CheckpointSpec::default()));
        assert_eq!(read("checkpoint = 'none'").unwrap(), None);
        let every_minute = read("checkpoint = { every_s = 60 }").unwrap();
        assert_eq!(every_minute, Some(CheckpointSpec::every_s(60)));
        for (wrong, words) in [
            ("'off'", "none, or a table such as { every_s = 60 }"),
            ("false", "none, or a table such as { every_s = 60 }"),
            ("{ every_m = 1 }", "every_s"),
        ] {
            let error = read(&format!("checkpoint = {wrong}")).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
