//! Settings that people write as a name, or as a table with one key where a name alone does not say enough.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserializer,
    de::{Error, MapAccess, Unexpected, Visitor},
};

/// What is written so.
pub(super) trait NameOrTable: Sized {
    /// The key of the table, as it is spelt now and was before.
    const KEYS: &[&str];
    /// What else there is to say to who writes a table behind a name that takes none.
    const BESIDE: &str = "";

    /// All that may stand there, in words.
    fn expecting(f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// The names that stand alone.
    fn by_name(name: &str) -> Option<Self>;

    /// What to write where the key stands alone.
    fn what_is_missing(key: &str) -> String;

    /// What stands behind the key.
    fn behind_key<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Self, A::Error>;
}

/// Reads either.
pub(super) fn name_or_table<'de, T: NameOrTable, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    from.deserialize_any(Reader(PhantomData))
}

struct Reader<T>(PhantomData<T>);

impl<'de, T: NameOrTable> Visitor<'de> for Reader<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::expecting(f)
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<T, E> {
        if T::KEYS.contains(&name) {
            return Err(E::custom(T::what_is_missing(name)));
        }
        T::by_name(name).ok_or_else(|| E::invalid_value(Unexpected::Str(name), &self))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let name = map.next_key::<String>()?.unwrap_or_default();
        if T::KEYS.contains(&name.as_str()) {
            let read = T::behind_key(&mut map)?;
            return match map.next_key::<String>()? {
                None => Ok(read),
                Some(more) => Err(A::Error::custom(format!("`{more}` does not go with `{name}`"))),
            };
        }
        Err(match T::by_name(&name) {
            Some(_) => A::Error::custom(format!(
                "`{name}` has no settings: write \"{name}\" in its place{}",
                T::BESIDE
            )),
            None => A::Error::invalid_value(Unexpected::Str(&name), &self),
        })
    }
}
