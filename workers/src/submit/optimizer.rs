//! Optimizers by their names: what people write when they mean the settings that everybody uses.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Visitor, value::MapAccessDeserializer},
};
use syncline_scheduler::spec::Optimizer;

/// The names, with what they stand for.
fn by_name(name: &str) -> Option<Optimizer> {
    match name {
        "sgd" => Some(Optimizer::sgd()),
        "momentum" => Some(Optimizer::momentum()),
        "nesterov" => Some(Optimizer::nesterov()),
        "adam" => Some(Optimizer::adam()),
        "adamw" => Some(Optimizer::adamw()),
        _ => None,
    }
}

/// Reads a name, or a table with all settings.
pub(super) fn optimizer<'de, D: Deserializer<'de>>(from: D) -> Result<Optimizer, D::Error> {
    from.deserialize_any(NameOrTable)
}

struct NameOrTable;

impl<'de> Visitor<'de> for NameOrTable {
    type Value = Optimizer;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sgd, momentum, nesterov, adam or adamw, or a table such as { adam = { beta1 = 0.9 } }")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Optimizer, E> {
        by_name(name).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(name), &self))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Optimizer, A::Error> {
        Optimizer::deserialize(MapAccessDeserializer::new(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct Has {
        #[serde(deserialize_with = "optimizer")]
        optimizer: Optimizer,
    }

    fn read(text: &str) -> Result<Optimizer, String> {
        toml::from_str::<Has>(&format!("optimizer = {text}"))
            .map(|has| has.optimizer)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_name_stands_for_the_usual_settings() {
        #[rustfmt::skip]
        let cases = [
            ("'sgd'",      "{ sgd = {} }"),
            ("'momentum'", "{ momentum = { momentum = 0.9 } }"),
            ("'nesterov'", "{ momentum = { momentum = 0.9, nesterov = true } }"),
            ("'adam'",     "{ adam = {} }"),
            ("'adamw'",    "{ adam = { weight_decay = 0.01, decoupled = true } }"),
        ];
        for (name, table) in cases {
            assert_eq!(read(name), read(table), "{name}");
            assert!(read(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_name_that_is_none_is_answered_with_those_there_are() {
        let error = read("'adamx'").unwrap_err();
        assert!(error.contains("adamw") && error.contains("adamx"), "{error}");
        let error = read("{ adam = { beta3 = 1 } }").unwrap_err();
        assert!(error.contains("unknown field `beta3`"), "{error}");
    }
}
