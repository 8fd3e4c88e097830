//! How old a job is, and what is told of it.

use syncline_rpc::status::JobStatus;
use syncline_workers::span;

use super::describe_lines::UNKNOWN;

/// Time since the job was submitted.
pub(crate) fn age(job: &JobStatus, now_ms: u64) -> String {
    job.submitted_ms.map_or_else(|| UNKNOWN.to_owned(), |at_ms| span(now_ms.saturating_sub(at_ms)))
}

/// Time since a moment, in words; of a job that is over, until its end.
pub(super) fn time_since(at_ms: u64, job: &JobStatus, now_ms: u64) -> String {
    span(lived_ms(at_ms, job, now_ms))
}

/// Time since a moment; of a job that is over, until its end.
pub(super) fn lived_ms(at_ms: u64, job: &JobStatus, now_ms: u64) -> u64 {
    job.ended_ms.unwrap_or(now_ms).saturating_sub(at_ms)
}
