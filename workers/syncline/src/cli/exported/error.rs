//! Why a file of a job cannot be written or read.

use std::{io, path::PathBuf};

use syncline_scheduler::ids::JobId;

use super::line::VERSION;
use crate::cli::{Exit, Failure, reader_has_gone};

/// Why a file of a job cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExportError {
    #[error("[E530] cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("[E531] {path} is no file of `syncline export`")]
    NotAnExport { path: PathBuf },
    #[error("[E532] {path} is an export of version {theirs}; this release reads version {VERSION}")]
    Version { path: PathBuf, theirs: u32 },
    #[error("[E533] {path} is cut off or damaged: {what}")]
    Damaged { path: PathBuf, what: String },
    #[error("[E534] {path} holds job {held}, not {asked}")]
    OtherJob { path: PathBuf, held: JobId, asked: String },
    #[error("[E535] {path} holds no {what} of job {job}")]
    NotInIt { path: PathBuf, job: JobId, what: String },
    #[error("[E536] {path} is there already")]
    Exists { path: PathBuf },
    #[error("[E537] cannot write {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl ExportError {
    /// What the user can do about it.
    fn hint(&self) -> &'static str {
        match self {
            Self::Read { .. } => "name a file that is there and that you may read",
            Self::NotAnExport { .. } => "`syncline export JOB FILE` writes such files",
            Self::Version { .. } => "read it with the release that wrote it: its first line says which",
            Self::Damaged { .. } => "copy it again, or export the job again if it is still there",
            Self::OtherJob { .. } => {
                "name the job that it holds, also in front of a task, or none; or the file of the other job"
            }
            Self::NotInIt { .. } => {
                "of a graph it holds every task; of a training the nodes, what was under way, and the newest that had ended"
            }
            Self::Exists { .. } => "--force replaces it",
            Self::Write { .. } => {
                "name a file in a folder that is there and may be written; the disk may be full"
            }
        }
    }
}

impl From<ExportError> for Failure {
    fn from(error: ExportError) -> Self {
        let exit = match &error {
            ExportError::Write { source, .. } if reader_has_gone(source) => return Self::reader_gone(),
            // As of a running job that does not have it.
            ExportError::NotInIt { .. } => Exit::JobFailed,
            _ => Exit::Usage,
        };
        let hint = error.hint();
        Self::new(exit, error, hint)
    }
}
