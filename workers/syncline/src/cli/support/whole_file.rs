//! What commands write is there as a whole or not at all.

use std::path::Path;

use syncline_workers::place_file;

use super::CliError;

/// Writes a file in place of what is there. Where that fails, that stays as it was, and whoever reads meanwhile sees the one or the
/// other.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    place_file(path, bytes, true).map_err(|source| CliError::Written { path: path.to_owned(), source })
}
