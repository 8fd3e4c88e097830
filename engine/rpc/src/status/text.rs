//! From fields that are text to a struct with types, by way of its `Deserialize`.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeOwned, IntoDeserializer, Visitor, value::MapDeserializer},
    forward_to_deserialize_any,
};

/// Fields that this release cannot read: engine and client are not of the same release.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("[E143] the engine says of {what} what this release does not know: {cause}")]
#[non_exhaustive]
pub struct UnknownFields {
    /// Whom or what the fields are about, such as `job digits` or `itself`.
    pub what: String,
    /// Which field is missing, or what cannot be read, in words.
    pub cause: String,
}

impl UnknownFields {
    /// The stable code, as in the message.
    pub fn code(&self) -> &'static str {
        "E143"
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        Some("use the same release everywhere".to_owned())
    }
}

/// Reads a struct from fields. An empty text is `None` where the struct has an option; fields that it does
/// not have are left out.
pub(super) fn read<T: DeserializeOwned>(
    what: &str,
    fields: &BTreeMap<String, String>,
) -> Result<T, UnknownFields> {
    let pairs = fields.iter().map(|(name, value)| (name.as_str(), Text(value)));
    T::deserialize(MapDeserializer::<_, Malformed>::new(pairs))
        .map_err(|cause| UnknownFields { what: what.to_owned(), cause: cause.0 })
}

/// What is written as it is printed, such as `w3`, where it may be missing.
pub(super) fn parsed_option<'de, T, D>(from: D) -> Result<Option<T>, D::Error>
where
    T: std::str::FromStr<Err: fmt::Display>,
    D: Deserializer<'de>,
{
    let text = Option::<String>::deserialize(from)?;
    text.map(|text| text.parse().map_err(de::Error::custom)).transpose()
}

/// What [`parsed_option`] reads.
pub(super) fn printed_option<T: fmt::Display, S: serde::Serializer>(
    value: &Option<T>,
    to: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => to.collect_str(value),
        None => to.serialize_none(),
    }
}

/// The value of a field.
#[derive(Clone, Copy)]
struct Text<'a>(&'a str);

#[derive(Debug)]
struct Malformed(String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Malformed {}

impl de::Error for Malformed {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

impl<'de> IntoDeserializer<'de, Malformed> for Text<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl Text<'_> {
    fn number<T: std::str::FromStr>(self) -> Result<T, Malformed> {
        self.0.parse().map_err(|_| Malformed(format!("`{}` is no number", self.0)))
    }
}

impl<'de> Deserializer<'de> for Text<'de> {
    type Error = Malformed;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Malformed> {
        visitor.visit_borrowed_str(self.0)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Malformed> {
        if self.0.is_empty() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Malformed> {
        visitor.visit_u32(self.number()?)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Malformed> {
        visitor.visit_bool(self.number()?)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Malformed> {
        visitor.visit_u64(self.number()?)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Malformed> {
        visitor.visit_f64(self.number()?)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Malformed> {
        visitor.visit_enum(self.0.into_deserializer())
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u128 f32 char str string bytes byte_buf unit unit_struct newtype_struct seq
        tuple tuple_struct map struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Color {
        DarkRed,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Row {
        count: u64,
        share: Option<f64>,
        color: Color,
        #[serde(default)]
        later: u32,
    }

    fn row(fields: &[(&str, &str)]) -> Result<Row, UnknownFields> {
        let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        read("a row", &fields.collect())
    }

    #[test]
    fn texts_become_numbers_words_and_none() {
        let known = row(&[("count", "7"), ("share", ""), ("color", "dark_red"), ("unheard_of", "x")]);
        assert_eq!(known, Ok(Row { count: 7, share: None, color: Color::DarkRed, later: 0 }));
        let share = row(&[("count", "7"), ("share", "NaN"), ("color", "dark_red"), ("later", "2")]).unwrap();
        assert!(share.share.unwrap().is_nan() && share.later == 2);
    }

    #[test]
    fn what_cannot_be_read_is_an_error_that_says_what() {
        #[rustfmt::skip]
        let cases: [(&[(&str, &str)], &str); 3] = [
            (&[("count", "-1"), ("share", ""), ("color", "dark_red")], "`-1` is no number"),
            (&[("count", "1"), ("share", ""), ("color", "pink")],      "unknown variant `pink`"),
            (&[("share", ""), ("color", "dark_red")],                  "missing field `count`"),
        ];
        for (fields, cause) in cases {
            let said = row(fields).unwrap_err().to_string();
            assert!(said.starts_with("[E143] the engine says of a row ") && said.contains(cause), "{said}");
        }
    }
}
