//! The jobs that this engine knows: listed in Redis, shown to be there, forgotten when their time is over.

use std::time::{Duration, Instant};

use syncline_scheduler::{core::Commit, ids::JobId};

use super::{
    decision_loop::{DecisionLoop, LoopEnd},
    last_commit::LastCommit,
};
use crate::store::keys::ENDED_JOB_EXPIRY_S;

/// Somebody may have taken jobs off the list, or the list away, or fields of a job's summary.
const RELIST_INTERVAL: Duration = Duration::from_secs(10);

impl DecisionLoop {
    /// Forgets a job when its keys expire, that ended just now, or at `ended_us` on the engine's clock.
    pub(super) fn schedule_forgetting(&mut self, job: &JobId, ended_us: Option<u64>) {
        let now_us = self.clock.now_us();
        let age = Duration::from_micros(now_us.saturating_sub(ended_us.unwrap_or(now_us)));
        let left = Duration::from_secs(ENDED_JOB_EXPIRY_S).saturating_sub(age);
        self.forget_at.entry(job.clone()).or_insert_with(|| Instant::now() + left);
    }

    /// Lists all jobs again, now and then, and lets their summaries be written whole.
    pub(super) async fn relist_jobs(&mut self) -> Result<(), LoopEnd> {
        if self.listed_at.elapsed() <= RELIST_INTERVAL {
            return Ok(());
        }
        let listed = self.dispatcher.listed();
        let Some(first) = listed.first() else { return Ok(()) };
        let (store, epoch, now_ms) = (&self.store, self.epoch, self.clock.now_us() / 1000);
        self.retry_write("list jobs", first, || store.relist_jobs(&listed, epoch, now_ms)).await?;
        self.listed_at = Instant::now();
        self.written.values_mut().for_each(LastCommit::forget_summary);
        self.verify_jobs().await
    }

    /// Lets Redis show that it has what it has acknowledged of each job that goes on: a commit without any change is refused
    /// where it follows on something that is lost. A job that waits for hours, for workers say, would else be missed by the next
    /// engine.
    async fn verify_jobs(&mut self) -> Result<(), LoopEnd> {
        let mut live = self.dispatcher.listed();
        live.retain(|job| self.core.is_live(job));
        let nothing = Commit::default();
        let commits: Vec<(&JobId, &Commit)> = live.iter().map(|job| (job, &nothing)).collect();
        self.commit_all(&commits).await
    }

    /// Lists a job, before its first commit.
    pub(super) async fn list_job(&mut self, job: &JobId, now_us: u64) -> Result<(), LoopEnd> {
        self.dispatcher.list(job);
        let (store, epoch) = (&self.store, self.epoch);
        self.retry_write("list job", job, || store.list_job(job, epoch, now_us / 1000)).await
    }

    pub(super) async fn forget_job(&mut self, job: &JobId) -> Result<(), LoopEnd> {
        let (store, epoch) = (&self.store, self.epoch);
        self.retry_write("unlist job", job, || store.unlist_job(job, epoch)).await?;
        self.dispatcher.forget_spec(job);
        self.written.remove(job);
        self.forget_at.remove(job);
        self.dispatcher.unlist(job);
        Ok(())
    }

    /// Forgets jobs whose time is over.
    pub(super) fn forget_expired(&mut self) {
        let now = Instant::now();
        let expired: Vec<JobId> =
            self.forget_at.iter().filter(|(_, at)| **at <= now).map(|(j, _)| j.clone()).collect();
        for job in expired {
            self.forget_at.remove(&job);
            if self.core.is_live(&job) {
                continue;
            }
            let checkpoints = self.core.forget(&job);
            checkpoints.into_iter().for_each(|effect| self.dispatcher.dispatch(effect));
            self.dispatcher.forget_spec(&job);
            self.written.remove(&job);
            self.dispatcher.unlist(&job);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, VecDeque};

    use syncline_kit::{RedisOptions, RedisServer};
    use syncline_scheduler::{
        core::{Cancellation, Core, Input, Submission},
        sim::{training, training_job},
        spec::JobSpec,
    };

    use super::*;
    use crate::{
        service::{
            fake_shard::{EPOCH, dispatcher},
            message::Message,
        },
        store::RedisStore,
    };

    fn submission(name: &str) -> Input {
        let spec = training_job(training("bsp".parse().unwrap(), 64, 32));
        let spec = Box::new(JobSpec { id: name.parse().unwrap(), ..spec });
        Input::Submit(Submission { spec, nonce: 1, replace: false })
    }

    #[tokio::test]
    async fn a_job_whose_time_is_over_is_forgotten_and_no_other_one() {
        let dir = tempfile::tempdir().unwrap();
        let program = syncline_kit::redis_server(&|line| eprintln!("{line}")).unwrap();
        let redis = RedisServer::start(&program.path, RedisOptions::new(dir.path())).unwrap();
        let store = RedisStore::connect(&redis.url()).await.unwrap();
        let (dispatcher, _inbox) = dispatcher();
        let clock = dispatcher.clock;
        let mut decisions = DecisionLoop {
            core: Core::new(1),
            store,
            epoch: EPOCH,
            dispatcher,
            clock,
            written: BTreeMap::new(),
            listed_at: Instant::now(),
            forget_at: BTreeMap::new(),
        };
        let [past, recent, live] = ["past", "recent", "live"].map(|name| name.parse::<JobId>().unwrap());
        let mut inputs: VecDeque<Message> =
            ["past", "recent", "live"].map(|name| Message::Input(submission(name))).into();
        for job in [&past, &recent] {
            let canceled = Cancellation { job: job.clone(), reason: String::new(), grace_ms: 0 };
            inputs.push_back(Message::Input(Input::Cancel(canceled)));
        }
        decisions.turn(&mut inputs).await.unwrap();
        assert_eq!(decisions.forget_at.keys().collect::<Vec<_>>(), [&past, &recent]);
        // As if seven days were over for one of them, and for one that began anew under its name meanwhile.
        let now = Instant::now();
        decisions.forget_at.insert(past.clone(), now);
        decisions.forget_at.insert(live.clone(), now);
        decisions.forget_expired();
        let known = |job: &JobId| {
            (
                decisions.core.job(job).is_some(),
                decisions.written.contains_key(job),
                decisions.dispatcher.listed().contains(job),
            )
        };
        assert_eq!(known(&past), (false, false, false));
        assert_eq!(known(&recent), (true, true, true));
        assert_eq!(known(&live), (true, true, true), "one that is not over stays, whatever the time");
        assert!(decisions.dispatcher.train_spec(&past).is_none());
        assert!(decisions.dispatcher.train_spec(&recent).is_none(), "nobody trains for it any more");
        assert!(decisions.dispatcher.train_spec(&live).is_some());
        assert_eq!(decisions.forget_at.keys().collect::<Vec<_>>(), [&recent]);
    }
}
