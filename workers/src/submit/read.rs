//! Files that a job names are read at submission.

use std::borrow::Cow;

use super::{SubmitError, model::ByteSource, model_file::read_model};
use crate::data::{DataError, is_url};

pub(crate) fn read(bytes: &ByteSource) -> Result<Cow<'_, [u8]>, SubmitError> {
    match bytes {
        ByteSource::Memory(bytes) => Ok(Cow::Borrowed(bytes)),
        ByteSource::File(path) if path.to_str().is_some_and(is_url) => {
            Err(DataError::Remote { url: path.display().to_string() }.into())
        }
        ByteSource::File(path) => match read_model(path) {
            Ok(bytes) => Ok(Cow::Owned(bytes)),
            Err(source) => Err(SubmitError::Read { path: path.clone(), source }),
        },
    }
}
