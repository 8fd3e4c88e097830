//! Files that a job names are read at submission.

use std::borrow::Cow;

use syncline_autodiff::AutodiffError;

use super::{
    SubmitError,
    model::ByteSource,
    model_file::{read_model, with_weights_beside},
};
use crate::data::{DataError, FileError, is_url};

pub(crate) fn read(bytes: &ByteSource) -> Result<Cow<'_, [u8]>, SubmitError> {
    match bytes {
        ByteSource::Memory(bytes) => Ok(Cow::Borrowed(bytes)),
        ByteSource::File(path) if path.to_str().is_some_and(is_url) => {
            Err(DataError::from(FileError::Remote { url: path.display().to_string() }).into())
        }
        ByteSource::File(path) => {
            let unread = |source| SubmitError::Read { path: path.clone(), source };
            let bytes = read_model(path).map_err(unread)?;
            Ok(Cow::Owned(with_weights_beside(path, bytes).map_err(AutodiffError::from)?))
        }
    }
}
