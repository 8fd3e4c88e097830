//! Writes an export: a file, which is there as a whole or not at all, or lines on stdout as they come, whose
//! last one says that nothing is missing.

use std::{
    fs::Permissions,
    io::{self, BufWriter, Stdout, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use serde::Serialize;
use syncline_scheduler::ids::JobId;

use super::{
    ExportError,
    line::{End, Header, Line, MAX_LINE_BYTES, VERSION},
};
use crate::cli::{Failure, stdout_failed, whole_file::WholeFile};

/// The name of stdout.
pub(crate) const STDOUT: &str = "-";

/// An export on its way; a file is gone again unless [`Writer::finish`] puts it in its place.
pub(crate) struct Writer {
    to: To,
    bytes: u64,
}

enum To {
    File(WholeFile),
    Stdout(BufWriter<Stdout>),
}

impl Writer {
    /// Refuses a name that is taken unless it may be replaced; so does [`Writer::finish`].
    pub(crate) fn create(
        path: &Path,
        replaces: bool,
        job: &JobId,
        exported_ms: u64,
    ) -> Result<Self, Failure> {
        let to = match path == Path::new(STDOUT) {
            true => To::Stdout(BufWriter::new(io::stdout())),
            false if !replaces && path.symlink_metadata().is_ok() => {
                return Err(ExportError::Exists { path: path.to_owned() }.into());
            }
            false => To::File(WholeFile::create(path, replaces, Permissions::from_mode(0o600))?),
        };
        let mut writer = Self { to, bytes: 0 };
        let release = env!("CARGO_PKG_VERSION").to_owned();
        writer.write(&Header { syncline_export: VERSION, job: job.clone(), exported_ms, release })?;
        Ok(writer)
    }

    /// Adds a line.
    pub(crate) fn line(&mut self, line: &Line) -> Result<(), Failure> {
        self.write(line)
    }

    /// Ends it, and gives a file its name; its size.
    pub(crate) fn finish(mut self) -> Result<u64, Failure> {
        self.write(&Line::End(End { bytes: self.bytes }))?;
        match self.to {
            To::File(file) => drop(file.finish()?),
            To::Stdout(mut stdout) => stdout.flush().map_err(stdout_failed)?,
        }
        Ok(self.bytes)
    }

    fn write(&mut self, line: &impl Serialize) -> Result<(), Failure> {
        let mut text = serde_json::to_vec(line).map_err(|cause| self.failed(cause.into()))?;
        text.push(b'\n');
        if text.len() as u64 > MAX_LINE_BYTES {
            return Err(self.failed(io::Error::other("a record of the job is larger than a line may be")));
        }
        match &mut self.to {
            To::File(file) => file.write(&text)?,
            To::Stdout(stdout) => stdout.write_all(&text).map_err(stdout_failed)?,
        }
        self.bytes += text.len() as u64;
        Ok(())
    }

    fn failed(&self, source: io::Error) -> Failure {
        match &self.to {
            To::File(file) => file.failed(source).into(),
            To::Stdout(_) => stdout_failed(source),
        }
    }
}
