//! Whether a submission is a new job, one that is there already, or one whose name is taken.

use super::{
    Core,
    differences::{differences, have_same_content},
    inputs::{GraphSubmission, IfTaken, Input, Submission},
    job::Job,
    records::Phase,
    refused::Refused,
    tasks::TaskJob,
    turn::Turn,
};
use crate::{ids::JobId, spec::JobSpec};

/// Whether a submission is answered with the job of its name that is there and was submitted with the same
/// content. One that is to be replaced is done once more when it is over, unless the very submission that
/// made it comes again.
pub(super) fn is_same_job(there: &Phase, is_same_submission: bool, if_taken: IfTaken) -> bool {
    is_same_submission || if_taken == IfTaken::Refuse || !there.is_over()
}

impl Core {
    /// Whether there is a job of this name, of either kind, that is not over.
    pub fn is_live(&self, id: &JobId) -> bool {
        let trains = self.jobs.get(id).is_some_and(|job| !job.state.phase.is_over());
        trains || self.task_jobs.get(id).is_some_and(|job| !job.phase().is_over())
    }

    /// Nonce of the job with which a submission is answered, because it is there already. `nonce`: that of
    /// the submission, if it may have come before.
    pub fn submitted_before(&self, spec: &JobSpec, nonce: Option<u32>, if_taken: IfTaken) -> Option<u32> {
        let there = self.jobs.get(&spec.id)?;
        let made_it = there.generation().nonce();
        let is_same = !spec.id.is_made_by_engine()
            && have_same_content(&there.spec, spec)
            && is_same_job(there.phase(), nonce == Some(made_it), if_taken);
        is_same.then_some(made_it)
    }

    /// Takes a job in. The same one again changes nothing.
    pub(super) fn submit(&mut self, submission: Submission, turn: &mut Turn<'_>) -> Result<(), Refused> {
        let Submission { spec, nonce, if_taken } = submission;
        let spec = spec.validated()?;
        if self.submitted_before(&spec, Some(nonce), if_taken).is_some() {
            return Ok(());
        }
        self.check_name(&spec.id, if_taken, || match self.jobs.get(&spec.id) {
            Some(there) => differences(&there.spec, &spec),
            None => ", as a graph of tasks".to_owned(),
        })?;
        self.remove_task_job(&spec.id, turn.effects);
        let old = self.insert_new(Job::new(spec, nonce, self.shards, turn.now_us));
        turn.effects.extend(old.into_iter().flat_map(Job::forgotten));
        Ok(())
    }

    /// Whether [`Core::handle`] would take a submission in, for which a job makes way that the core does not
    /// have. Changes nothing.
    ///
    /// # Errors
    /// Why it would be refused.
    pub fn check_submission(&self, submission: &Input, now_us: u64) -> Result<(), Refused> {
        let id = match submission {
            Input::Submit(Submission { spec, .. }) => {
                spec.clone().validated()?;
                &spec.id
            }
            Input::SubmitGraph(GraphSubmission { spec, nonce, .. }) => {
                TaskJob::submitted(spec, *nonce, now_us)?;
                &spec.id
            }
            _ => return Ok(()),
        };
        self.check_name(id, IfTaken::Replace, String::new)
    }

    /// Refuses a name that another job has, unless that one is over and may be replaced.
    pub(super) fn check_name(
        &self,
        id: &JobId,
        if_taken: IfTaken,
        differs: impl FnOnce() -> String,
    ) -> Result<(), Refused> {
        if id.is_made_by_engine() {
            return Err(Refused::Reserved { job: id.clone() });
        }
        match (if_taken, self.phase_of(id)) {
            (_, None) => Ok(()),
            (IfTaken::Replace, Some(state)) if state.is_over() => Ok(()),
            (IfTaken::Replace, Some(state)) => Err(Refused::NotOver { job: id.clone(), state }),
            (IfTaken::Refuse, Some(_)) => Err(Refused::Duplicate { job: id.clone(), differs: differs() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_submission_that_comes_again_is_the_same_job_table() {
        use IfTaken::{Refuse, Replace};
        let (runs, over) = (Phase::Running, Phase::Done);
        #[rustfmt::skip]
        let cases = [
            ("the answer was lost",                    &runs, true,  Refuse,  true),
            ("the answer was lost, and it is over",    &over, true,  Refuse,  true),
            ("it replaced another, the answer lost",   &over, true,  Replace, true),
            ("another client, or the next day",        &runs, false, Refuse,  true),
            ("the next day, it is over",               &over, false, Refuse,  true),
            ("to be replaced, and it runs",            &runs, false, Replace, true),
            ("to be done once more",                   &over, false, Replace, false),
        ];
        for (name, there, is_same_submission, if_taken, same) in cases {
            assert_eq!(is_same_job(there, is_same_submission, if_taken), same, "{name}");
        }
    }
}
