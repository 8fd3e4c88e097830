//! Writes an export, which is there as a whole or not at all.

use std::{
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use serde::Serialize;
use syncline_rpc::input;
use syncline_scheduler::ids::JobId;
use tempfile::NamedTempFile;

use super::{
    ExportError,
    line::{End, Header, Line, MAX_LINE_BYTES, VERSION},
};

/// A file on its way; gone again unless [`Writer::finish`] puts it in its place.
pub(crate) struct Writer {
    path: PathBuf,
    replaces: bool,
    to: BufWriter<NamedTempFile>,
    bytes: u64,
}

impl Writer {
    /// Refuses a name that is taken unless it may be replaced; so does [`Writer::finish`].
    pub(crate) fn create(
        path: &Path,
        replaces: bool,
        job: &JobId,
        exported_ms: u64,
    ) -> Result<Self, ExportError> {
        if !replaces && path.symlink_metadata().is_ok() {
            return Err(ExportError::Exists { path: path.to_owned() });
        }
        // In the same folder, so that it can be renamed.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let unfinished = input::check_replaceable(path)
            .and_then(|()| NamedTempFile::new_in(folder.unwrap_or(Path::new("."))))
            .map_err(|source| ExportError::Write { path: path.to_owned(), source })?;
        let to = BufWriter::new(unfinished);
        let mut writer = Self { path: path.to_owned(), replaces, to, bytes: 0 };
        let release = env!("CARGO_PKG_VERSION").to_owned();
        writer.write(&Header { syncline_export: VERSION, job: job.clone(), exported_ms, release })?;
        Ok(writer)
    }

    /// Adds a line.
    pub(crate) fn line(&mut self, line: &Line) -> Result<(), ExportError> {
        self.write(line)
    }

    /// Ends the file and gives it its name; its size.
    pub(crate) fn finish(mut self) -> Result<u64, ExportError> {
        self.write(&Line::End(End { bytes: self.bytes }))?;
        let Self { path, replaces, to, bytes } = self;
        let failed = |source| ExportError::Write { path: path.clone(), source };
        let file = to.into_inner().map_err(|error| failed(error.into_error()))?;
        file.as_file().sync_all().map_err(failed)?;
        let placed = if replaces { file.persist(&path) } else { file.persist_noclobber(&path) };
        placed.map_err(|cause| match cause.error.kind() {
            io::ErrorKind::AlreadyExists => ExportError::Exists { path: path.clone() },
            _ => failed(cause.error),
        })?;
        Ok(bytes)
    }

    fn write(&mut self, line: &impl Serialize) -> Result<(), ExportError> {
        let failed = |source| ExportError::Write { path: self.path.clone(), source };
        let mut text = serde_json::to_vec(line).map_err(|cause| failed(cause.into()))?;
        text.push(b'\n');
        if text.len() as u64 > MAX_LINE_BYTES {
            return Err(failed(io::Error::other("a record of the job is larger than a line may be")));
        }
        self.to.write_all(&text).map_err(failed)?;
        self.bytes += text.len() as u64;
        Ok(())
    }
}
