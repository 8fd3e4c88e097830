//! An identifier in JSON and on the wire as it is printed, such as `w3`.

use std::{fmt::Display, str::FromStr};

use serde::{Deserialize, Deserializer, Serializer, de::Error};

/// For `#[serde(with = "...")]`.
pub fn serialize<T: Display, S: Serializer>(id: &T, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(id)
}

/// For `#[serde(with = "...")]`.
pub fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
where
    T: FromStr<Err: Display>,
    D: Deserializer<'de>,
{
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}
