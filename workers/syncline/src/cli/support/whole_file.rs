//! What commands write is there as a whole or not at all.

use std::{
    fs::Permissions,
    io::{self, BufWriter, Seek, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use syncline_rpc::{folder, input};
use syncline_workers::place_file;
use tempfile::NamedTempFile;

use super::CliError;
use crate::cli::{Exit, Failure, exported::ExportError};

/// Writes a file in place of what is there. Where that fails, that stays as it was, and whoever reads
/// meanwhile sees the one or the other.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    place_file(path, bytes, true).map_err(|source| CliError::Written { path: path.to_owned(), source })
}

/// A name that does not end as a file that is written.
pub(crate) fn unknown_ending(path: &Path, hint: &str) -> Failure {
    let text = format!("[E597] the ending of {} does not say what to write", path.display());
    Failure::new(Exit::Usage, text, hint)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file that grows under another name; gone again unless [`WholeFile::finish`] puts it in its place.
pub(crate) struct WholeFile {
    path: PathBuf,
    replaces: bool,
    to: BufWriter<NamedTempFile>,
}

impl WholeFile {
    /// Begins one in the folder of `path`. What is no file is not replaced.
    pub(crate) fn create(path: &Path, replaces: bool, permissions: Permissions) -> Result<Self, ExportError> {
        // In the same folder, so that it can be renamed.
        let begin = || {
            let mut unfinished = tempfile::Builder::new();
            unfinished.permissions(permissions).tempfile_in(folder_of(path))
        };
        let unfinished = input::check_replaceable(path).and_then(|()| begin());
        let unfinished = unfinished.map_err(|source| ExportError::Write { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), replaces, to: BufWriter::new(unfinished) })
    }

    /// The same for a file that is not ours alone: it has the mode of the one that is there, and of a link to
    /// a file that file is replaced.
    pub(crate) fn create_over(path: &Path, replaces: bool) -> Result<Self, ExportError> {
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let permissions = path.metadata().map_or(Permissions::from_mode(0o666), |there| there.permissions());
        Self::create(&path, replaces, permissions)
    }

    /// The folder in which it will be.
    pub(crate) fn folder(&self) -> &Path {
        folder_of(&self.path)
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), ExportError> {
        self.to.write_all(bytes).map_err(|source| self.failed(source))
    }

    /// For whoever writes in several places of it.
    pub(crate) fn writer(&mut self) -> &mut (impl Write + Seek) {
        &mut self.to
    }

    /// Why it cannot be written.
    pub(crate) fn failed(&self, source: io::Error) -> ExportError {
        ExportError::Write { path: self.path.clone(), source }
    }

    /// Brings it to disk and gives it its name, which is returned.
    pub(crate) fn finish(self) -> Result<PathBuf, ExportError> {
        let Self { path, replaces, to } = self;
        let failed = |source| ExportError::Write { path: path.clone(), source };
        let file = to.into_inner().map_err(|error| failed(error.into_error()))?;
        file.as_file().sync_all().map_err(failed)?;
        let placed = if replaces { file.persist(&path) } else { file.persist_noclobber(&path) };
        placed.map_err(|cause| match cause.error.kind() {
            io::ErrorKind::AlreadyExists => ExportError::Exists { path: path.clone() },
            _ => failed(cause.error),
        })?;
        folder::sync_name(&path).map_err(failed)?;
        Ok(path)
    }
}
