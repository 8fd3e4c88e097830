//! Which submission has made a job.

use serde::{Deserialize, Serialize};

use super::{JobId, JobRef};

/// A job of one submission: one that takes its name later, or had it before, is another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SubmissionId {
    /// Name of the job.
    pub job: JobId,
    /// What was drawn for its submission.
    pub nonce: u32,
}

impl From<SubmissionId> for JobRef {
    fn from(SubmissionId { job, nonce }: SubmissionId) -> Self {
        Self { id: job, nonce: Some(nonce) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_asked_for_as_the_one_that_its_submission_has_made() {
        let job: JobId = "digits".parse().unwrap();
        let submission = SubmissionId { job: job.clone(), nonce: 7 };
        assert_eq!(JobRef::from(submission), JobRef { id: job, nonce: Some(7) });
    }
}
