//! Which job is meant, where several have one name after each other.

use serde::{Deserialize, Serialize};

use super::JobId;

/// A job as somebody asks for it: whichever has the name, or the one that a submission has made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRef {
    /// Name of the job.
    pub id: JobId,
    /// What was drawn for its submission: a job that has taken the name since is not meant. `None`:
    /// whichever has the name.
    pub nonce: Option<u32>,
}

impl From<JobId> for JobRef {
    fn from(id: JobId) -> Self {
        Self { id, nonce: None }
    }
}
