//! Reading jobs for callers, those included that are damaged, lost for a moment, or not listed any more.

use std::{collections::BTreeSet, time::Duration};

use serde::{
    Deserialize,
    de::{IntoDeserializer, value::StrDeserializer},
};
use syncline_rpc::{EngineFault, JobFields};
use syncline_scheduler::{
    core::{Core, Job, JobPhase},
    ids::{JobId, JobRef},
    tasks::wait_to_store,
};
use tokio::time::sleep;

use super::{
    context::ServiceContext,
    damaged_jobs::Damage,
    decision_loop::fault,
    returned_jobs::{is_shown_as_returned, returned},
};
use crate::store::keys::JobKeys;

/// Jobs that are read at a time: a few hundred kilobytes, between which others are served.
pub(super) const JOBS_PER_READ: usize = 200;
/// How often a job is looked for that the core knows and Redis does not, and how long after one another:
/// between what the core decides about one that comes or goes and its commit lies a moment.
const LOOKS: u32 = 6;
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

impl ServiceContext {
    /// The fields of a job for people, with what hinders it.
    pub(super) async fn job_fields(&self, job: &JobId) -> Result<JobFields, EngineFault> {
        let mut looks = 0;
        loop {
            if let Some(fields) = self.stored_fields(job).await? {
                return Ok(fields);
            }
            if self.kept_phase(job).await?.is_none() {
                return Err(EngineFault::UnknownJob { job: job.clone() });
            }
            looks += 1;
            if looks == LOOKS {
                return Err(EngineFault::Store { cause: nothing_stored(job) });
            }
            sleep(LOOK_INTERVAL).await;
        }
    }

    /// The same of a job that may have to be that of one submission. Who made one that is damaged nobody can
    /// say.
    pub(super) async fn fields_of(&self, JobRef { id, nonce }: &JobRef) -> Result<JobFields, EngineFault> {
        let fields = self.job_fields(id).await?;
        let made_it = |nonce: &u32| fields.get("nonce").is_none_or(|there| *there == nonce.to_string());
        match nonce.as_ref().is_none_or(made_it) {
            true => Ok(fields),
            false => Err(EngineFault::Replaced { job: id.clone() }),
        }
    }

    /// All jobs: those that Redis lists, and those that somebody has taken off its list, which are listed
    /// again soon.
    async fn listed_jobs(&self) -> Result<Vec<JobId>, EngineFault> {
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

    /// Where a job stands that Redis is given again should it lose it: one that goes on, or ended a moment
    /// ago.
    async fn kept_phase(&self, job: &JobId) -> Result<Option<JobPhase>, EngineFault> {
        let (name, has_just_ended) = (job.clone(), self.lead()?.jobs.has_just_ended(job));
        self.query(move |core| core.phase_of(&name).filter(|phase| has_just_ended || !phase.is_over())).await
    }

    /// Jobs that somebody wants to see: all that go on and the newest `most_over` of those that are over; and
    /// how many of these are left out.
    pub(super) async fn jobs_to_show(
        &self,
        most_over: Option<u32>,
    ) -> Result<(Vec<JobId>, u32), EngineFault> {
        let mut listed = self.listed_jobs().await?;
        let Some(most_over) = most_over else { return Ok((listed, 0)) };
        let names = listed.clone();
        // While Redis takes no writes nobody tells what goes on: then all are shown.
        let live =
            match self.query(move |core| names.iter().map(|job| core.is_live(job)).collect::<Vec<_>>()).await
            {
                Err(EngineFault::Store { .. }) => return Ok((listed, 0)),
                live => live?,
            };
        let over = live.iter().filter(|is_live| !**is_live).count();
        let left_out = over.saturating_sub(most_over as usize);
        let (mut live, mut seen) = (live.into_iter(), 0);
        listed.retain(|_| {
            let is_over = live.next() == Some(false);
            seen += usize::from(is_over);
            !is_over || seen > left_out
        });
        Ok((listed, left_out as u32))
    }

    /// What [`stored_fields`](Self::stored_fields) gives for each of these, at most [`JOBS_PER_READ`], read
    /// at once.
    pub(super) async fn fields_of_some(&self, jobs: &[JobId]) -> Result<Vec<Option<JobFields>>, EngineFault> {
        let mut all = Vec::with_capacity(jobs.len());
        let keys: Vec<String> = jobs.iter().map(|job| JobKeys::new(job).job).collect();
        let read = async {
            match self.store.hashes("read jobs", &keys).await {
                Err(error) if error.is_of_keys() => Ok(None),
                read => read.map(Some),
            }
        };
        match self.read_store(read).await? {
            Some(hashes) => {
                for (job, fields) in jobs.iter().zip(hashes) {
                    let damage = self.lead()?.jobs.damaged(job);
                    all.push(self.shown(job, damage.map_or(fields, |damage| damaged_fields(job, &damage))));
                }
            }
            // Something else lies in the place of one of them: which one shows when each is read by itself.
            None => {
                for job in jobs {
                    all.push(self.stored_fields(job).await?);
                }
            }
        }
        Ok(all)
    }

    /// What is shown of a job that is listed and of which Redis has nothing; `None`: it is over.
    pub(super) async fn fields_of_lost(&self, job: &JobId) -> Result<Option<JobFields>, EngineFault> {
        match self.kept_phase(job).await {
            Ok(phase) => Ok(phase.map(|phase| kept_fields(job, phase, nothing_stored(job)))),
            // It comes just now, or Redis has lost it: the others are shown in any case.
            Err(EngineFault::Store { cause }) => {
                let problem = format!("Redis has nothing of it, and takes no writes: {cause}");
                Ok(Some(damaged_fields(job, &Damage::Records(problem.into()))))
            }
            Err(fault) => Err(fault),
        }
    }

    /// What people see of a job, as far as Redis has any.
    async fn stored_fields(&self, job: &JobId) -> Result<Option<JobFields>, EngineFault> {
        // On standby nobody knows what is wrong with a job, and whether anything is.
        let fields = match self.lead()?.jobs.damaged(job) {
            // What its own record says may be anything: it is not even read.
            Some(damage) => damaged_fields(job, &damage),
            None => {
                match self.read_of_job(job, self.store.hash("read job", &JobKeys::new(job).job)).await {
                    // What goes on here, or ended a moment ago, is written again; what was over before is
                    // left as it is.
                    Err(EngineFault::Unreadable { cause, .. }) => match self.kept_phase(job).await {
                        Ok(Some(phase)) => return Ok(Some(kept_fields(job, phase, cause.to_string()))),
                        _ => damaged_fields(job, &Damage::Records(cause)),
                    },
                    fields => fields?,
                }
            }
        };
        Ok(self.shown(job, fields))
    }

    /// The fields of a job with its id and what hinders it; `None` where Redis has nothing of it.
    fn shown(&self, job: &JobId, mut fields: JobFields) -> Option<JobFields> {
        if fields.is_empty() {
            return None;
        }
        if self.is_returned(job, &fields) {
            fields = damaged_fields(job, &Damage::Returned);
        }
        let problem = match phase_of(&fields).is_some_and(JobPhase::is_over) {
            true => String::new(),
            false => self.obstacles(job).join("; "),
        };
        fields.extend([("id".to_owned(), job.to_string()), ("problem".to_owned(), problem)]);
        if let Some(waits_for) = self.wait_to_store(job, &fields) {
            fields.insert("waiting_for".to_owned(), waits_for);
        }
        Some(fields)
    }

    /// What a job waits for whose calls have their values, which no shard takes. Workers tell of their calls,
    /// and nothing of that is stored.
    fn wait_to_store(&self, job: &JobId, fields: &JobFields) -> Option<String> {
        let is = |name: &str, value: &str| fields.get(name).is_some_and(|field| field == value);
        let runs_calls = is("kind", "tasks") && is("state", "running") && !is("tasks_leased", "0");
        if !runs_calls || !is("tasks_training", "0") || !is("waiting_for", "") {
            return None;
        }
        let told = self.lead().ok()?.sessions.calls();
        let calls = told.iter().flat_map(|(_, (_, calls))| calls.iter());
        wait_to_store(calls.filter(|call| call.submission.job == *job))
    }

    /// A job that trains, as of its last commit; a job of general tasks has nothing of `what`.
    pub(super) async fn read_training(&self, id: &JobId, what: &str) -> Result<Job, EngineFault> {
        let fields = self.job_fields(id).await?;
        if fields.is_empty() {
            return Err(EngineFault::UnknownJob { job: id.clone() });
        }
        if is_shown_as_returned(&fields) {
            return Err(returned(id));
        }
        // Of a million tasks everything would be read only to be refused.
        if fields.get("kind").is_some_and(|kind| kind == "tasks") {
            let kept = "; it is one of general tasks, which `syncline tasks` lists".to_owned();
            return Err(EngineFault::NothingKnown { job: id.clone(), what: what.to_owned(), kept });
        }
        let stored = self.read_of_job(id, self.store.read(id)).await?;
        if stored.spec.is_empty() {
            return Err(EngineFault::UnknownJob { job: id.clone() });
        }
        Job::load(&stored)
            .map_err(|e| EngineFault::Unreadable { job: id.clone(), cause: Damage::from(e).cause() })
    }

    /// Asks for what the core knows of the general tasks of a job; what there is not is called `what`.
    pub(super) async fn query_tasks<T: Send + 'static>(
        &self,
        job: JobRef,
        what: String,
        look: impl FnOnce(&Core, &JobId) -> Option<T> + Send + 'static,
    ) -> Result<T, EngineFault> {
        let id = job.id.clone();
        let known = move |core: &Core| core.check_not_replaced(&job).map(|()| look(core, &job.id));
        match self.query(known).await?.map_err(fault)? {
            Some(known) => Ok(known),
            None => Err(self.absence(&id, what).await),
        }
    }

    /// Why the active engine does not know a job, or something of it.
    async fn absence(&self, job: &JobId, what: String) -> EngineFault {
        let damaged = self.lead().map(|lead| lead.jobs.damaged(job));
        match (damaged, self.job_fields(job).await) {
            (Err(fault), _) | (_, Err(fault)) => fault,
            (Ok(Some(damage)), _) => EngineFault::Unreadable { job: job.clone(), cause: damage.cause() },
            (Ok(None), Ok(fields)) if is_shown_as_returned(&fields) => returned(job),
            (Ok(None), Ok(fields)) => {
                let trains = fields.get("kind").is_none_or(|kind| kind != "tasks");
                let kept = if trains { "; it trains, which `syncline explain` tells about" } else { "" };
                EngineFault::NothingKnown { job: job.clone(), what, kept: kept.to_owned() }
            }
        }
    }
}

/// What is said of a job that the core knows, and Redis does not.
fn nothing_stored(job: &JobId) -> String {
    format!("Redis has nothing of job {job}: it comes or goes just now, or was lost and is written again")
}

/// What is shown of a job whatever Redis has of it: whoever waits for its end must not take it for over.
fn kept_fields(job: &JobId, phase: JobPhase, problem: String) -> JobFields {
    let fields = [("id", job.to_string()), ("state", phase.to_string()), ("problem", problem)];
    fields.map(|(name, value)| (name.to_owned(), value)).into()
}

/// What is shown of a job that cannot be read.
fn damaged_fields(job: &JobId, damage: &Damage) -> JobFields {
    let (id, code, reason) = (job.to_string(), damage.code().to_string(), damage.to_string());
    let state = JobPhase::Damaged.word();
    let fields = [("id", &*id), ("state", state), ("code", &*code), ("reason", &*reason)];
    fields.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// Where a job stands, as people are told; `None` where that is no word of this release.
pub(super) fn phase_of(fields: &JobFields) -> Option<JobPhase> {
    let word: StrDeserializer<'_, serde::de::value::Error> =
        fields.get("state")?.as_str().into_deserializer();
    JobPhase::deserialize(word).ok()
}

/// A training has no such checkpoint, or none; and what it has instead.
pub(super) fn no_checkpoint(training: &Job, wanted: Option<u64>) -> EngineFault {
    let all = training.checkpoint_numbers().iter().map(u64::to_string).collect::<Vec<_>>();
    let train = training.spec().train();
    let keeps = train.checkpoint.is_some() || train.evaluate.is_some_and(|evaluate| evaluate.keep_best);
    let kept = match (all.is_empty(), keeps) {
        (false, _) => format!("; it has {}", all.join(", ")),
        (true, false) => "; its `checkpoint` is \"none\"".to_owned(),
        (true, true) if training.phase().is_over() => {
            let until = match train.checkpoint {
                Some(spec) if spec.until_done => format!(", and kept checkpoints {spec}"),
                Some(_) => String::new(),
                None => ", and had that of its best parameters, without `checkpoint`, only while it trained"
                    .to_owned(),
            };
            format!("; it is {}{until}", training.phase().shown())
        }
        (true, true) => {
            let failed = training.checkpoint_problem();
            let tried_again = failed.map(|why| format!(", and is tried again: the last try failed, {why}"));
            format!("; the first is still to come{}", tried_again.unwrap_or_default())
        }
    };
    let wanted = wanted.map(|number| format!(" {number}")).unwrap_or_default();
    EngineFault::NoCheckpoint { job: training.name().clone(), wanted, kept }
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::{
        core::{IfTaken, Input, Submission},
        sim::{training, training_job},
    };

    use super::*;
    use crate::service::{fake_shard::leading_engine, message::Message};

    #[tokio::test]
    async fn a_job_that_comes_or_goes_just_now_is_looked_for_again_before_redis_is_said_to_lack_it() {
        let mut engine = leading_engine().await;
        let spec = Box::new(training_job(training("bsp".parse().unwrap(), 64, 32)));
        let (none, mut core, job) = (Core::new(1), Core::new(1), spec.id.clone());
        core.handle(1, Input::Submit(Submission { spec, nonce: 1, if_taken: IfTaken::Refuse })).unwrap();
        let (context, key) = (engine.context.clone(), JobKeys::new(&job).job);
        engine.lead.jobs.list(&job);
        // What the core knows at each question, and what comes about in Redis before its answer.
        let mut look = async |knows: &[&Core], meanwhile: [&str; 4]| {
            let answers = async {
                for core in knows {
                    let Message::Query { look, .. } = engine.inbox.next().await else {
                        panic!("no question")
                    };
                    let _: i64 = context.store.query("change", &meanwhile).await.unwrap();
                    look(core);
                }
            };
            tokio::join!(context.job_fields(&job), answers).0
        };
        let comes = look(&[&core], ["HSET", &key, "state", "queued"]).await;
        assert_eq!(comes.unwrap()["state"], "queued");
        let nothing = ["DEL", &key, &key, &key];
        look(&[], nothing).await.unwrap();
        let _: i64 = context.store.query("remove", &["DEL", &key]).await.unwrap();
        assert_eq!(look(&[&core, &none], nothing).await, Err(EngineFault::UnknownJob { job: job.clone() }));
        let is_lost = look(&[&core; LOOKS as usize], nothing).await;
        assert_eq!(is_lost, Err(EngineFault::Store { cause: nothing_stored(&job) }));
    }

    #[test]
    fn a_state_is_read_by_its_word_and_one_of_another_release_is_none() {
        let stored = |state: &str| phase_of(&JobFields::from([("state".to_owned(), state.to_owned())]));
        assert_eq!(stored("canceled"), Some(JobPhase::Canceled));
        assert_eq!(stored("damaged"), Some(JobPhase::Damaged));
        assert_eq!((stored("asleep"), stored(""), phase_of(&JobFields::new())), (None, None, None));
    }
}
