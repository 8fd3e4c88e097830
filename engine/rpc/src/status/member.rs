//! One job with its workers.

use serde::Serialize;
use syncline_scheduler::{
    core::{JobPhase, Member, Membership},
    ids::{Incarnation, as_text},
};

use super::{job::JobStatus, text::UnknownFields};
use crate::JobRecord;

/// One job with the workers that take part in it, or did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobView {
    /// The job as of its last commit.
    pub job: JobStatus,
    /// In the order in which they came; none for a job of general tasks, where each task says who has it.
    pub workers: Vec<MemberStatus>,
    /// What stands in the way of every job right now, in words.
    pub notes: Vec<String>,
}

/// Whether a worker still takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MemberState {
    /// It shows that it can run the job, and nobody waits for it yet.
    Preparing,
    /// It takes part.
    Active,
    /// It took part until the job was over.
    Done,
    /// Dropped; the shards are asked how far its pushes came.
    Sealing,
    /// It left before the job was over.
    Gone,
}

impl MemberState {
    /// As JSON has it, too.
    pub fn word(self) -> &'static str {
        match self {
            Self::Active => "active",
            // It has stayed to the end.
            Self::Done => "done",
            Self::Preparing => "preparing",
            Self::Sealing => "sealing",
            Self::Gone => "gone",
        }
    }
}

impl MemberState {
    /// Nobody waits for what a worker had pushed any more once the job is over.
    fn of(membership: &Membership, over: bool) -> Self {
        match membership {
            Membership::Preparing if !over => Self::Preparing,
            Membership::Active if !over => Self::Active,
            Membership::Active => Self::Done,
            Membership::Sealing { .. } if !over => Self::Sealing,
            Membership::Preparing | Membership::Sealing { .. } | Membership::Gone => Self::Gone,
        }
    }
}

/// One worker in one job, and where its time went.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct MemberStatus {
    /// Number of its process, its incarnation: one that comes back has another.
    #[serde(serialize_with = "as_text::serialize")]
    pub id: Incarnation,
    /// As people call it.
    pub name: String,
    /// Name of its machine.
    pub host: String,
    /// `cpu`, or `cuda:N`.
    pub device: String,
    /// Whether it still takes part.
    pub state: MemberState,
    /// Last iteration that was leased.
    pub granted: u64,
    /// Last iteration up to which all are over.
    pub finished: u64,
    /// Iterations that it has reported; the times below are sums over them.
    pub iterations: u64,
    /// Samples in those.
    pub samples: u64,
    /// Samples per iteration in the newest superstep it has a part in.
    pub batch: u32,
    /// How long its next iteration is predicted to take.
    pub predicted_interval_us: Option<u64>,
    /// How wrong such predictions were: root of the mean squared error.
    pub prediction_rmse_us: f64,
    /// Computing gradients.
    pub compute_us: u64,
    /// Slept, to emulate a slower machine.
    pub throttle_us: u64,
    /// In pulls, without the waiting.
    pub pull_us: u64,
    /// In pushes, until all shards had acknowledged them.
    pub push_us: u64,
    /// Waiting for a version at the parameter server.
    pub wait_us: u64,
    /// While it takes much longer per sample than most: how many times as long.
    pub slow_factor: Option<f64>,
    /// Since when that is so, since the epoch of Unix.
    pub slow_since_ms: Option<u64>,
}

impl JobView {
    /// From what stands in Redis.
    ///
    /// # Errors
    /// E143 if this release cannot read it.
    #[doc(hidden)]
    pub fn read(record: &JobRecord) -> Result<Self, UnknownFields> {
        Self::of(JobStatus::read(&record.job)?, record)
    }

    /// Reads a job with its workers; one of which something cannot be read is damaged, as in the list of
    /// jobs.
    ///
    /// # Errors
    /// E143 if this release cannot read it.
    #[doc(hidden)]
    pub fn read_or_damaged(record: &JobRecord) -> Result<Self, UnknownFields> {
        Self::of(JobStatus::read_or_damaged(&record.job)?, record).or_else(|error| {
            let job = JobStatus::damaged(&record.job, &error)?;
            Ok(Self { job, workers: Vec::new(), notes: record.notes.clone() })
        })
    }

    fn of(job: JobStatus, record: &JobRecord) -> Result<Self, UnknownFields> {
        let none = job.tasks.is_some() || job.state == JobPhase::Damaged;
        if none {
            return Ok(Self { job, workers: Vec::new(), notes: record.notes.clone() });
        }
        let members = record.workers.iter().map(|(id, json)| {
            let unknown =
                |cause: String| UnknownFields { what: format!("worker {id} of job {}", job.id), cause };
            let id: Incarnation = id.parse().map_err(|_| unknown("its id is no number".to_owned()))?;
            let member: Member = serde_json::from_str(json).map_err(|cause| unknown(cause.to_string()))?;
            Ok((id, MemberStatus::of(id, member, job.is_over())))
        });
        let mut members = members.collect::<Result<Vec<_>, UnknownFields>>()?;
        members.sort_by_key(|(id, _)| *id);
        let workers = members.into_iter().map(|(_, member)| member).collect();
        Ok(Self { job, workers, notes: record.notes.clone() })
    }
}

impl MemberStatus {
    fn of(id: Incarnation, member: Member, over: bool) -> Self {
        let state = MemberState::of(&member.membership, over);
        let spent = &member.spent;
        Self {
            id,
            state,
            granted: member.granted,
            finished: member.finished,
            iterations: spent.iterations,
            samples: spent.samples,
            batch: member.batch,
            predicted_interval_us: member.speed.interval_us(member.batch),
            prediction_rmse_us: member.speed.errors().rmse_us,
            compute_us: spent.compute_us,
            throttle_us: spent.throttle_us,
            pull_us: spent.pull_us,
            push_us: spent.push_us,
            wait_us: spent.wait_us,
            slow_factor: member.straggler.map(|slow| slow.factor),
            slow_since_ms: member.straggler.map(|slow| slow.since_us / 1000),
            name: member.about.name,
            host: member.about.host,
            device: member.about.device,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::JobFields;

    fn record(fields: &[(&str, &str)], worker: &str) -> JobRecord {
        let job: JobFields =
            fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        JobRecord { job, workers: [("w1".to_owned(), worker.to_owned())].into(), notes: Vec::new() }
    }

    #[test]
    fn a_job_of_which_something_cannot_be_read_is_damaged_and_says_what() {
        for (loss, what) in [("x\u{fffd}", "job a"), ("0.5", "worker w1 of job a")] {
            let record = record(&[("id", "a"), ("state", "running"), ("loss", loss)], "{");
            assert!(JobView::read(&record).is_err());
            let view = JobView::read_or_damaged(&record).unwrap();
            assert_eq!((view.job.state, view.job.code.as_deref()), (JobPhase::Damaged, Some("E143")));
            let reason = view.job.reason.unwrap();
            assert!(reason.contains(&format!("says of {what} what")), "{reason}");
        }
    }

    #[test]
    fn nobody_takes_part_or_is_being_sealed_in_a_job_that_is_over() {
        let sealing = Membership::Sealing { answers: BTreeMap::new() };
        assert_eq!(MemberState::of(&sealing, false), MemberState::Sealing);
        assert_eq!(MemberState::of(&sealing, true), MemberState::Gone);
        assert_eq!(MemberState::of(&Membership::Active, false), MemberState::Active);
        assert_eq!(MemberState::of(&Membership::Active, true), MemberState::Done);
    }
}
