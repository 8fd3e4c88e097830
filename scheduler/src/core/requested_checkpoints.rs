//! A checkpoint that somebody asked for: of what is trained now, whenever the next one would be due.

use super::{
    checkpoints::{Checkpoint, CheckpointPhase},
    job::Job,
    refused::Refused,
    state_machine::Core,
};
use crate::ids::JobId;

/// What has become of a checkpoint that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestedCheckpoint {
    /// It is being made, or will be.
    Pending,
    /// All shards have it on disk, or a later one.
    Complete,
    /// It does not come, for this reason.
    GivenUp(String),
}

impl Core {
    /// Has a checkpoint made of a training that has some samples in it, unless there is one of exactly these.
    pub(super) fn request_checkpoint(&mut self, id: &JobId) -> Result<(), Refused> {
        self.check_goes_on(id)?;
        let refused = |reason: String| Refused::NoCheckpointNow { job: id.clone(), reason };
        let Some(job) = self.jobs.get_mut(id) else {
            return Err(refused("it is no training".to_owned()));
        };
        job.request_checkpoint().map_err(refused)
    }
}

impl Job {
    fn request_checkpoint(&mut self) -> Result<(), String> {
        if self.train().checkpoint.is_none() {
            return Err("its `checkpoint` is \"none\"".to_owned());
        }
        if self.counted() == 0 {
            return Err("nothing is trained yet".to_owned());
        }
        if self.state.cursor.is_exhausted() {
            return Err(GIVEN_OUT.to_owned());
        }
        if let Some(lost) = self.describe_lost_shards() {
            return Err(format!("it waits for {lost}"));
        }
        if self.checkpoint_of_now().is_none() {
            self.state.checkpoints.requested = true;
            self.changes.job_state = true;
        }
        Ok(())
    }

    /// The checkpoint, complete or not, of exactly what is trained now.
    fn checkpoint_of_now(&self) -> Option<&Checkpoint> {
        let checkpoints = &self.state.checkpoints;
        let making = checkpoints.making.as_ref().and_then(CheckpointPhase::checkpoint);
        checkpoints.newest().into_iter().chain(making).find(|kept| kept.samples() == self.counted())
    }

    /// The number of the checkpoint that holds what is trained now, or will hold it if it is made.
    pub fn number_of_checkpoint_now(&self) -> u64 {
        self.checkpoint_of_now().map_or(self.state.checkpoints.next, |kept| kept.number)
    }

    /// What has become of the checkpoint of this number, after it was asked for.
    pub fn requested_checkpoint(&self, number: u64) -> RequestedCheckpoint {
        let checkpoints = &self.state.checkpoints;
        if checkpoints.newest().is_some_and(|newest| newest.number >= number) {
            return RequestedCheckpoint::Complete;
        }
        let is_over = self.state.phase.is_over();
        // Behind the last samples none is begun.
        let will_be_made = checkpoints.requested && !self.state.cursor.is_exhausted();
        if !is_over && (checkpoints.making.is_some() || will_be_made) {
            return RequestedCheckpoint::Pending;
        }
        RequestedCheckpoint::GivenUp(match &checkpoints.failing {
            _ if is_over => "the training has ended meanwhile".to_owned(),
            _ if self.state.cursor.is_exhausted() => GIVEN_OUT.to_owned(),
            Some(fault) => fault.code.in_front_of(&fault.reason).to_string(),
            None => "the training has gone back meanwhile".to_owned(),
        })
    }
}

const GIVEN_OUT: &str = "its last samples are given out, and its end is near";
