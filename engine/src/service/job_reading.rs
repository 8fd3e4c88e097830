//! What is read of jobs for those who ask, also of jobs that are damaged, lost for a moment, or not listed any more.

use std::collections::BTreeSet;

use syncline_rpc::{EngineFault, JobFields};
use syncline_scheduler::{core::Job, ids::JobId};

use super::{context::ServiceContext, damaged_jobs::Damage};
use crate::store::keys::JobKeys;

impl ServiceContext {
    /// The fields of a job for people, with what hinders it.
    pub(super) async fn job_fields(&self, job: &JobId) -> Result<JobFields, EngineFault> {
        match self.stored_fields(job).await? {
            Some(fields) => Ok(fields),
            None if self.is_live(job).await? => Err(EngineFault::Store { cause: written_again(job) }),
            None => Err(EngineFault::UnknownJob { job: job.clone() }),
        }
    }

    /// All jobs: those that Redis lists, and those that somebody has taken off its list, which are listed again soon.
    pub(super) async fn listed_jobs(&self) -> Result<Vec<JobId>, EngineFault> {
        let known = self.lead()?.jobs.listed();
        let read = async {
            match self.store.jobs().await {
                // Something else in the place of the list is no reason not to show the jobs.
                Err(error) if error.is_of_keys() => Ok(Vec::new()),
                read => read,
            }
        };
        let mut listed = self.read_store(read).await?;
        let seen: BTreeSet<JobId> = listed.iter().cloned().collect();
        listed.extend(known.into_iter().filter(|job| !seen.contains(job)));
        Ok(listed)
    }

    /// Whether a job goes on, whatever Redis has of it.
    pub(super) async fn is_live(&self, job: &JobId) -> Result<bool, EngineFault> {
        let name = job.clone();
        self.query(move |core| core.is_live(&name)).await
    }

    /// The same, as far as Redis has any.
    pub(super) async fn stored_fields(&self, job: &JobId) -> Result<Option<JobFields>, EngineFault> {
        // On standby nobody knows what is wrong with a job, and whether anything is.
        let mut fields = match self.lead()?.jobs.damaged(job) {
            // What its own record says may be anything: it is not even read.
            Some(damage) => damaged_fields(job, &damage),
            None => {
                match self.read_of_job(job, self.store.hash("read job", &JobKeys::new(job).job)).await {
                    // What goes on here finds it with its next commit; what is over is left as it is.
                    Err(EngineFault::Unreadable { cause, .. }) => {
                        damaged_fields(job, &Damage::Records(cause))
                    }
                    fields => fields?,
                }
            }
        };
        if fields.is_empty() {
            return Ok(None);
        }
        let problem = match fields.get("state").is_some_and(|state| is_over(state)) {
            true => String::new(),
            false => self.notes().join("; "),
        };
        fields.extend([("id".to_owned(), job.to_string()), ("problem".to_owned(), problem)]);
        Ok(Some(fields))
    }

    /// A job that trains, as of its last commit; a job of general tasks has nothing of `what`.
    pub(super) async fn read_training(&self, id: &JobId, what: &str) -> Result<Job, EngineFault> {
        let stored = self.read_of_job(id, self.store.read(id)).await?;
        if stored.spec.is_empty() {
            return Err(EngineFault::UnknownJob { job: id.clone() });
        }
        if stored.holds_tasks() {
            let kept = "; it is one of general tasks, which `syncline tasks` lists".to_owned();
            return Err(EngineFault::NothingKnown { job: id.clone(), what: what.to_owned(), kept });
        }
        Job::load(&stored).map_err(|e| EngineFault::Unreadable { job: id.clone(), cause: e.to_string() })
    }

    /// Why the active engine does not know a job, or something of it.
    pub(super) async fn absence(&self, job: &JobId, what: String) -> EngineFault {
        let damaged = self.lead().map(|lead| lead.jobs.damaged(job));
        match (damaged, self.job_fields(job).await) {
            (Err(fault), _) | (_, Err(fault)) => fault,
            (Ok(Some(damage)), _) => EngineFault::Unreadable { job: job.clone(), cause: damage.to_string() },
            (Ok(None), Ok(fields)) => {
                let trains = fields.get("kind").is_none_or(|kind| kind != "tasks");
                let kept = if trains { "; it trains, which `syncline explain` tells about" } else { "" };
                EngineFault::NothingKnown { job: job.clone(), what, kept: kept.to_owned() }
            }
        }
    }
}

/// What is wrong with a job that goes on and that Redis does not have.
pub(super) fn written_again(job: &JobId) -> String {
    format!("it has lost job {job}, which is written again")
}

/// What is shown of a job that cannot be read.
pub(super) fn damaged_fields(job: &JobId, damage: &Damage) -> JobFields {
    let (id, reason) = (job.to_string(), damage.to_string());
    let fields = [("id", &*id), ("state", "damaged"), ("code", damage.code()), ("reason", &*reason)];
    fields.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// Whether nothing can follow in a job of this state.
pub(super) fn is_over(state: &str) -> bool {
    ["done", "failed", "canceled", "damaged"].contains(&state)
}

/// A training has no such checkpoint, or none; and what it has instead.
pub(super) fn no_checkpoint(training: &Job, wanted: Option<u64>) -> EngineFault {
    let all = training.checkpoint_numbers().iter().map(u64::to_string).collect::<Vec<_>>();
    let train = training.spec().train();
    let keeps = train.checkpoint.is_some() || train.evaluate.is_some_and(|evaluate| evaluate.keep_best);
    let kept = match (all.is_empty(), keeps) {
        (false, _) => format!("; it has {}", all.join(", ")),
        (true, false) => "; its settings have no `checkpoint`".to_owned(),
        (true, true) if training.phase().is_over() => format!("; it is {}", training.phase().shown()),
        (true, true) => "; the first is still to come".to_owned(),
    };
    let wanted = wanted.map(|number| format!(" {number}")).unwrap_or_default();
    EngineFault::NoCheckpoint { job: training.name().clone(), wanted, kept }
}
