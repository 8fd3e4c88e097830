//! Writes an export, which is there as a whole or not at all.

use std::{fs::Permissions, io, os::unix::fs::PermissionsExt, path::Path};

use serde::Serialize;
use syncline_scheduler::ids::JobId;

use super::{
    ExportError,
    line::{End, Header, Line, MAX_LINE_BYTES, VERSION},
};
use crate::cli::whole_file::WholeFile;

/// A file on its way; gone again unless [`Writer::finish`] puts it in its place.
pub(crate) struct Writer {
    to: WholeFile,
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
        let to = WholeFile::create(path, replaces, Permissions::from_mode(0o600))?;
        let mut writer = Self { to, bytes: 0 };
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
        self.to.finish()?;
        Ok(self.bytes)
    }

    fn write(&mut self, line: &impl Serialize) -> Result<(), ExportError> {
        let mut text = serde_json::to_vec(line).map_err(|cause| self.to.failed(cause.into()))?;
        text.push(b'\n');
        if text.len() as u64 > MAX_LINE_BYTES {
            return Err(self.to.failed(io::Error::other("a record of the job is larger than a line may be")));
        }
        self.to.write(&text)?;
        self.bytes += text.len() as u64;
        Ok(())
    }
}
