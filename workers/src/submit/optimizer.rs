//! Optimizers by their names: what people write when they mean the settings that everybody uses.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, IntoDeserializer, MapAccess, Visitor, value::MapAccessDeserializer},
};
use syncline_scheduler::{spec::Optimizer, suggestion::did_you_mean};

/// Reads a name, or a table with all settings.
pub(super) fn optimizer<'de, D: Deserializer<'de>>(from: D) -> Result<Optimizer, D::Error> {
    from.deserialize_any(NameOrTable)
}

struct NameOrTable;

/// What may stand there, in words.
struct Expected;

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "sgd, momentum, nesterov, adam, adamw or rmsprop, or a table such as { adam = { beta1 = 0.9 } }",
        )
    }
}

impl<'de> Visitor<'de> for NameOrTable {
    type Value = Optimizer;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{Expected}")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Optimizer, E> {
        name.parse().map_err(|_| E::invalid_value(serde::de::Unexpected::Str(name), &self))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Optimizer, A::Error> {
        let Some(name) = map.next_key::<String>()? else {
            return Err(A::Error::custom(format!("an empty table, expected {Expected}")));
        };
        if let Some(meant) = table_meant(&name) {
            return Err(A::Error::custom(format!("`{name}` is no table of an optimizer; {meant}")));
        }
        let table = Resumed { first: Some(name.clone()), rest: &mut map };
        let read = Optimizer::deserialize(MapAccessDeserializer::new(table)).map_err(|error| {
            // What serde calls a table of ours.
            match error.to_string().contains("expected struct variant") {
                true => A::Error::custom(format!(
                    "`{name}` takes a table of settings, such as {}",
                    example(&name)
                )),
                false => error,
            }
        })?;
        match map.next_key::<String>()? {
            None => Ok(read),
            Some(beside) => Err(A::Error::custom(format!(
                "`{beside}` beside `{name}`: one optimizer stands there, with its settings in its table, such as {}",
                example(&name)
            ))),
        }
    }
}

/// How a table of this name looks.
fn example(name: &str) -> &'static str {
    match name {
        "sgd" => "{ sgd = { weight_decay = 0.0001 } }",
        "momentum" => "{ momentum = { momentum = 0.9, nesterov = true } }",
        "rmsprop" => "{ rmsprop = { alpha = 0.9 } }",
        _ => "{ adam = { beta1 = 0.9 } }",
    }
}

/// Optimizers whose settings stand in a table.
const TABLES: [&str; 4] = ["sgd", "momentum", "adam", "rmsprop"];

/// What was meant by a table that no optimizer has: names that stand alone, or settings without the name of
/// their optimizer.
fn table_meant(name: &str) -> Option<String> {
    let write = |table: &str| Some(format!("write {table}"));
    match name {
        name if TABLES.contains(&name) => None,
        "nesterov" => write(example("momentum")),
        "adamw" => write("{ adam = { weight_decay = 0.01, decoupled = true } }"),
        "alpha" | "centered" => write(example("rmsprop")),
        "beta1" | "beta2" | "epsilon" | "decoupled" => write(example("adam")),
        "weight_decay" => {
            write("it into the table of an optimizer, such as { sgd = { weight_decay = 0.0001 } }")
        }
        "lr" | "learning_rate" => write("it beside `optimizer`, as `learning_rate`"),
        _ => Some(format!("expected {Expected}{}", did_you_mean(name, TABLES))),
    }
}

/// The rest of a map behind its first key.
struct Resumed<A> {
    first: Option<String>,
    rest: A,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Resumed<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        match self.first.take() {
            Some(key) => seed.deserialize(key.into_deserializer()).map(Some),
            None => self.rest.next_key_seed(seed),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.rest.next_value_seed(seed)
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
    fn what_stands_beside_the_table_of_an_optimizer_is_refused() {
        for text in ["{ adam = {}, weight_decay = 0.5 }", "{ sgd = {}, adam = {} }", "{ adam = {}, foo = 1 }"]
        {
            let error = read(text).unwrap_err();
            assert!(error.contains("one optimizer stands there"), "{text}: {error}");
        }
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

    #[test]
    fn a_table_that_is_none_is_answered_with_the_one_that_was_meant() {
        #[rustfmt::skip]
        let cases = [
            ("{ nesterov = { momentum = 0.9 } }",         "write { momentum = { momentum = 0.9, nesterov = true } }"),
            ("{ nesterov = true }",                       "write { momentum = { momentum = 0.9, nesterov = true } }"),
            ("{ nesterov = true, momentum = 0.9 }",       "{ momentum = { momentum = 0.9, nesterov = true } }"),
            ("{ momentum = 0.9 }",                        "`momentum` takes a table of settings, such as { momentum = { momentum = 0.9"),
            ("{ adamw = {} }",                            "write { adam = { weight_decay = 0.01, decoupled = true } }"),
            ("{ beta1 = 0.9 }",                           "write { adam = { beta1 = 0.9 } }"),
            ("{ weight_decay = 0.1 }",                    "such as { sgd = { weight_decay = 0.0001 } }"),
            ("{ lr = 0.1 }",                              "beside `optimizer`, as `learning_rate`"),
            ("{ lamb = {} }",                             "`lamb` is no table of an optimizer; expected sgd, momentum"),
            ("{}",                                        "an empty table, expected sgd"),
        ];
        for (table, words) in cases {
            let error = read(table).unwrap_err();
            assert!(error.contains(words), "{table}: {error}");
        }
    }
}
