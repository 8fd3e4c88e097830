//! Values as they travel between tasks: postcard, from the first byte to the last.

use std::io;

use serde::{Serialize, de::DeserializeOwned};

/// Why bytes are no value of a type however they were made.
const NOT_DESCRIBED: &str = "postcard writes no names of fields, so that types with `#[serde(tag)]`, `#[serde(untagged)]`, or `#[serde(flatten)]`, and `serde_json::Value`, cannot be read";

/// The bytes of a value.
///
/// # Errors
/// In words, if serde or postcard does not take it.
pub(crate) fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, String> {
    postcard::to_stdvec(value).map_err(|error| match error {
        // What the type itself said, postcard drops; another format repeats it.
        postcard::Error::SerdeSerCustom => match serde_json::to_writer(io::sink(), value) {
            Err(said) => said.to_string(),
            Ok(()) => error.to_string(),
        },
        error => error.to_string(),
    })
}

/// The value that these bytes are.
///
/// # Errors
/// In words, if they are another one's. Bytes that are left over are an error, too: the first of them alone
/// are often a value of another type by chance.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(format!("{} bytes are left over", rest.len())),
        // The type asks what comes next, which these bytes do not say.
        Err(postcard::Error::WontImplement) => Err(NOT_DESCRIBED.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;

    /// It is refused by its own code.
    struct Odd;

    impl Serialize for Odd {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("7 is odd"))
        }
    }

    #[test]
    fn what_a_type_says_that_does_not_let_itself_be_encoded_is_told() {
        assert_eq!(encode(&(1, Odd)), Err("7 is odd".to_owned()));
        assert_eq!(encode(&(1u8, "a")), Ok(vec![1, 1, b'a']));
    }

    #[derive(Serialize, Deserialize)]
    #[serde(tag = "kind")]
    enum Tagged {
        Circle { radius: f64 },
    }

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Untagged {
        Number(u64),
    }

    #[test]
    fn a_type_that_cannot_be_read_back_is_told_by_what_makes_it_so() {
        let tagged = postcard::to_stdvec(&Tagged::Circle { radius: 1.0 }).unwrap();
        assert_eq!(decode::<Tagged>(&tagged).err().as_deref(), Some(NOT_DESCRIBED));
        let untagged = postcard::to_stdvec(&Untagged::Number(7)).unwrap();
        assert_eq!(decode::<Untagged>(&untagged).err().as_deref(), Some(NOT_DESCRIBED));
    }

    #[test]
    fn a_value_of_another_type_is_none_even_where_it_begins_alike() {
        let bytes = postcard::to_stdvec(&("r3".to_owned(), 7u64)).unwrap();
        assert_eq!(decode(&bytes), Ok(("r3".to_owned(), 7u64)));
        assert_eq!(decode::<u64>(&bytes), Err("3 bytes are left over".to_owned()));
        assert!(decode::<(String, u64, u64)>(&bytes).is_err());
    }
}
