//! Values as they travel between tasks: postcard, from the first byte to the last.

use serde::de::DeserializeOwned;

/// The value that these bytes are.
///
/// # Errors
/// In words, if they are another one's. Bytes that are left over are an error, too: the first of them alone are often a value of
/// another type by chance.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(format!("{} bytes are left over", rest.len())),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_another_type_is_none_even_where_it_begins_alike() {
        let bytes = postcard::to_stdvec(&("r3".to_owned(), 7u64)).unwrap();
        assert_eq!(decode(&bytes), Ok(("r3".to_owned(), 7u64)));
        assert_eq!(decode::<u64>(&bytes), Err("3 bytes are left over".to_owned()));
        assert!(decode::<(String, u64, u64)>(&bytes).is_err());
    }
}
