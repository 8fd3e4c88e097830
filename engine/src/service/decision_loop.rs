//! The loop of the active engine: drain the queue, let the core decide, commit, act, answer.

use std::{
    collections::{BTreeMap, VecDeque},
    panic::resume_unwind,
    time::{Duration, Instant},
};

use futures::future::join_all;
use syncline_scheduler::{
    core::{Commit, Commits, Core, CorePanic, Effect, Input, Refused, catch_panic},
    ids::{EngineEpoch, JobId},
};
use tokio::sync::mpsc;
use tracing::{error, info, warn};

use super::{
    clock::Clock,
    dispatcher::EffectDispatcher,
    job_log::log_commit,
    last_commit::LastCommit,
    message::{Message, general_tasks},
};
use crate::{
    rpc::{EngineFault, describe},
    store::{CommitMode, Committed, RedisStore, StoreError, keys::ENDED_JOB_EXPIRY_S},
};

/// Inputs handled in one turn, and thereby in one commit per job.
const INPUTS_PER_TURN: usize = 256;
/// General tasks after which no further input is handled in the same turn: workers wait for its commit.
const TASKS_PER_TURN: usize = 8_192;
/// Pause between two tries of a commit while Redis is away.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

/// Somebody may have taken jobs off the list, or the list away, or fields of a job's summary.
const RELIST_INTERVAL: Duration = Duration::from_secs(10);

/// Why the loop ended.
#[derive(Debug)]
pub(super) enum LoopEnd {
    /// Another engine took over, or may have.
    Deposed,
    /// The queue is closed: the process stops.
    Stopped,
}

/// The core with what it needs to be durable.
pub(super) struct DecisionLoop {
    pub(super) core: Core,
    pub(super) store: RedisStore,
    pub(super) epoch: EngineEpoch,
    pub(super) dispatcher: EffectDispatcher,
    pub(super) clock: Clock,
    /// The last commit of each job.
    pub(super) written: BTreeMap<JobId, LastCommit>,
    /// Jobs that are to be listed, in their order.
    pub(super) listed: Vec<JobId>,
    /// When they were made sure to be.
    pub(super) listed_at: Instant,
    /// Jobs that are over, oldest first, with the time when they may be forgotten.
    pub(super) forget_at: BTreeMap<JobId, Instant>,
}

impl DecisionLoop {
    pub(super) fn schedule_forgetting(&mut self, job: &JobId) {
        self.forget_at
            .entry(job.clone())
            .or_insert_with(|| Instant::now() + Duration::from_secs(ENDED_JOB_EXPIRY_S));
    }

    /// Turns until the engine is deposed or stopped.
    pub(super) async fn run(mut self, mut queue: mpsc::UnboundedReceiver<Message>) -> LoopEnd {
        let mut messages = Vec::with_capacity(INPUTS_PER_TURN);
        let mut waiting = VecDeque::new();
        let ended = loop {
            if waiting.is_empty() {
                if queue.recv_many(&mut messages, INPUTS_PER_TURN).await == 0 {
                    break LoopEnd::Stopped;
                }
                waiting.extend(messages.drain(..));
            }
            if let Err(ended) = self.turn(&mut waiting).await {
                break ended;
            }
        };
        self.dispatcher.stop();
        ended
    }

    /// Handles what waits, or as much of it as makes one commit of a reasonable size.
    async fn turn(&mut self, waiting: &mut VecDeque<Message>) -> Result<(), LoopEnd> {
        let mut effects: Vec<Effect> = Vec::new();
        let (mut answers, mut queries) = (Vec::new(), Vec::new());
        let mut tasks = 0;
        while tasks < TASKS_PER_TURN
            && let Some(message) = waiting.pop_front()
        {
            let (input, reply) = match message {
                Message::Input(input) => (input, None),
                Message::Request(input, reply) => (input, Some(reply)),
                Message::Query(query) => {
                    queries.push(query);
                    continue;
                }
                Message::Deposed => return Err(LoopEnd::Deposed),
            };
            tasks += general_tasks(&input);
            let answer = match self.handle_if_damaged(&input).await? {
                Some(answer) => answer,
                None => self.handle(input, &mut effects).await,
            };
            answers.extend(reply.map(|reply| (reply, answer)));
        }
        let now_us = self.clock.now_us();
        let mut commits = self.with_core(|core| core.take_commits(now_us)).await;
        for (id, _) in commits.iter().filter(|(_, commit)| commit.spec.is_some()) {
            if let Some(job) = self.core.job(id) {
                self.dispatcher.remember_spec(job.spec());
            }
            self.list_job(id, now_us).await?;
        }
        self.commit(&mut commits).await?;
        effects.into_iter().for_each(|effect| self.dispatcher.dispatch(effect));
        for (reply, answer) in answers {
            // The caller may have gone meanwhile.
            let _ = reply.send(answer);
        }
        queries.into_iter().for_each(|query| query(&self.core));
        for (job, commit) in &commits {
            log_commit(job, commit);
            if commit.over || commit.gone {
                self.dispatcher.job_ends.publish(job);
            }
            if commit.gone {
                self.forget_job(job).await?;
            } else if commit.over {
                self.schedule_forgetting(job);
            } else {
                self.forget_at.remove(job);
            }
        }
        self.forget_expired();
        self.relist_jobs().await
    }

    /// Lists all jobs again, now and then, and lets their summaries be written whole.
    async fn relist_jobs(&mut self) -> Result<(), LoopEnd> {
        let (Some(first), true) = (self.listed.first(), self.listed_at.elapsed() > RELIST_INTERVAL) else {
            return Ok(());
        };
        let (store, epoch, now_ms) = (&self.store, self.epoch, self.clock.now_us() / 1000);
        self.retry_write("list jobs", first, || store.relist_jobs(&self.listed, epoch, now_ms)).await?;
        self.listed_at = Instant::now();
        self.written.values_mut().for_each(LastCommit::forget_summary);
        self.verify_jobs().await
    }

    /// Lets Redis show that it has what it has acknowledged of each job that goes on: a commit without any change is refused
    /// where it follows on something that is lost. A job that waits for hours, for workers say, would else be missed by the next
    /// engine.
    async fn verify_jobs(&mut self) -> Result<(), LoopEnd> {
        let live: Vec<JobId> = self.listed.iter().filter(|job| self.core.is_live(job)).cloned().collect();
        let nothing = Commit::default();
        let commits: Vec<(&JobId, &Commit)> = live.iter().map(|job| (job, &nothing)).collect();
        self.commit_all(&commits).await
    }

    /// Lets the core handle one input.
    async fn handle(&mut self, input: Input, effects: &mut Vec<Effect>) -> Result<(), EngineFault> {
        let now_us = self.clock.now_us();
        let decided = self.with_core(|core| core.handle(now_us, input)).await.map_err(fault)?;
        effects.extend(decided);
        Ok(())
    }

    /// Lets the core do something. A panic of it ends this engine, and is counted at the job where it happened: one at which
    /// engine after engine ends is set aside by the next.
    async fn with_core<T>(&mut self, act: impl FnOnce(&mut Core) -> T) -> T {
        match catch_panic(|| act(&mut self.core)) {
            Ok(done) => done,
            Err(CorePanic { job, payload }) => {
                if let Some(job) = &job {
                    let (now_ms, panic) = (self.clock.now_us() / 1000, describe(payload.as_ref()));
                    let counted = self.store.note_crash(job, self.epoch, now_ms, &panic).await;
                    error!(%job, panic, ?counted, "the engine has a bug that it meets with this job");
                }
                resume_unwind(payload)
            }
        }
    }

    /// Lists a job, before its first commit.
    async fn list_job(&mut self, job: &JobId, now_us: u64) -> Result<(), LoopEnd> {
        self.listed.retain(|listed| listed != job);
        self.listed.push(job.clone());
        let (store, epoch) = (&self.store, self.epoch);
        self.retry_write("list job", job, || store.list_job(job, epoch, now_us / 1000)).await
    }

    async fn forget_job(&mut self, job: &JobId) -> Result<(), LoopEnd> {
        let (store, epoch) = (&self.store, self.epoch);
        self.retry_write("unlist job", job, || store.unlist_job(job, epoch)).await?;
        self.dispatcher.forget_spec(job);
        self.written.remove(job);
        self.forget_at.remove(job);
        self.listed.retain(|listed| listed != job);
        Ok(())
    }

    /// Commits every touched job. While Redis is away the same commits are sent again; nothing is dropped. Where Redis
    /// has lost commits of this engine, the whole job is written again: this engine knows all of it.
    async fn commit(&mut self, commits: &mut Commits) -> Result<(), LoopEnd> {
        for (job, commit) in &mut *commits {
            match self.written.get_mut(job) {
                Some(written) => written.retain_changed_fields(commit),
                None => self.written.entry(job.clone()).or_default().retain_changed_fields(commit),
            }
        }
        // A training that has ended is written before the graph that takes note of it: after a crash in between, the graph
        // finds what it has brought.
        let is_first = |(job, commit): &(&JobId, &Commit)| job.is_made_by_engine() && commit.over;
        let (first, rest): (Vec<_>, Vec<_>) = commits.iter().partition(is_first);
        for commits in [first, rest] {
            self.commit_all(&commits).await?;
        }
        Ok(())
    }

    async fn commit_all(&mut self, commits: &[(&JobId, &Commit)]) -> Result<(), LoopEnd> {
        let this: &Self = self;
        let (store, epoch, written) = (&this.store, this.epoch, &this.written);
        let each = commits.iter().map(|&(job, commit)| {
            let seq = written.get(job).map_or(0, |written| written.seq) + 1;
            let mode = if commit.spec.is_some() { CommitMode::New } else { CommitMode::Next };
            let write = move || store.commit(job, epoch, seq, mode, commit);
            async move { this.retry_write("commit", job, write).await.map(|done| (job, seq, done)) }
        });
        let done: Vec<_> = join_all(each).await.into_iter().collect::<Result<_, LoopEnd>>()?;
        for ((job, seq, committed), (_, commit)) in done.into_iter().zip(commits) {
            if let Committed::StoreBehind { seq: known } = committed {
                self.rewrite_job(job, seq, known, commit).await?;
            }
            if let Some(written) = self.written.get_mut(job) {
                written.seq = seq;
            }
        }
        Ok(())
    }

    /// Writes all of a job in the place of a commit that follows on something that Redis has lost.
    async fn rewrite_job(
        &mut self,
        job: &JobId,
        seq: u64,
        known: u64,
        refused: &Commit,
    ) -> Result<(), LoopEnd> {
        let now_us = self.clock.now_us();
        let lost = seq - 1 - known;
        warn!(%job, seq, known, lost, "redis has lost acknowledged commits; writing the whole job again");
        let whole = self.with_core(|core| core.full_commit(job, now_us)).await;
        let Some(mut whole) = whole else { return Ok(()) };
        append_streams(&mut whole, refused, lost, now_us);
        self.list_job(job, now_us).await?;
        let (store, epoch, whole) = (&self.store, self.epoch, &whole);
        let write = || store.commit(job, epoch, seq, CommitMode::Whole, whole);
        self.retry_write("commit", job, write).await.map(drop)
    }

    fn forget_expired(&mut self) {
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
            self.listed.retain(|listed| *listed != job);
        }
    }

    /// Repeats a write until Redis has taken it, or another engine owns what it writes. Meanwhile the cause is published in
    /// [`StoreOutage`](super::store_outage::StoreOutage).
    pub(super) async fn retry_write<T, F>(
        &self,
        what: &'static str,
        job: &JobId,
        write: impl Fn() -> F,
    ) -> Result<T, LoopEnd>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let mut warned = false;
        loop {
            match write().await {
                Ok(value) => {
                    if warned {
                        info!(what, %job, "redis takes writes again");
                        self.dispatcher.store_outage.set_commit_failure(None);
                    }
                    return Ok(value);
                }
                Err(StoreError::Fenced { epoch, seq }) => {
                    warn!(what, %job, epoch, seq, "fenced: another engine owns the job");
                    return Err(LoopEnd::Deposed);
                }
                Err(passing) if passing.is_passing() => {
                    if !warned {
                        warn!(what, %job, error = %passing, "redis takes no writes; trying again until it does");
                    }
                    warned = true;
                    self.dispatcher.store_outage.set_commit_failure(Some(passing.to_string()));
                }
                Err(refused) => {
                    error!(what, %job, error = %refused, "redis refused a write; reading everything again");
                    tokio::time::sleep(RETRY_PAUSE).await;
                    return Err(LoopEnd::Deposed);
                }
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }
}

/// Adds to all of a job what only grows: what the refused commit held of that, and behind it that older entries may be missing.
fn append_streams(whole: &mut Commit, refused: &Commit, lost: u64, now_us: u64) {
    let reason = format!(
        "Redis had lost {lost} {} of this job: what happened then may be missing here",
        if lost == 1 { "commit" } else { "commits" },
    );
    let said = [("what", "written_again".to_owned()), ("at_ms", (now_us / 1000).to_string())];
    let said = said.into_iter().chain([("reason", reason)]).collect();
    whole.events.splice(0..0, refused.events.iter().cloned().chain([said]));
    for (all, of_refused) in [
        (&mut whole.metrics, &refused.metrics),
        (&mut whole.barriers, &refused.barriers),
        (&mut whole.results, &refused.results),
    ] {
        all.splice(0..0, of_refused.iter().cloned());
    }
    whole.halve_metrics |= refused.halve_metrics;
}

fn fault(refused: Refused) -> EngineFault {
    match refused {
        Refused::Invalid(invalid) => EngineFault::InvalidJob(invalid.to_string()),
        Refused::Duplicate { job } => EngineFault::DuplicateJob { job },
        Refused::Unknown { job } => EngineFault::UnknownJob { job },
        Refused::Over { job, state } => EngineFault::Over { job, state: state.to_owned() },
        Refused::NotOver { job, state } => EngineFault::NotOver { job, state: state.to_owned() },
        _ => EngineFault::InvalidJob(refused.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use syncline_kit::{RedisOptions, RedisServer};
    use syncline_scheduler::{
        core::{Cancellation, Submission},
        sim::{training, training_job},
        spec::JobSpec,
    };

    use super::*;
    use crate::service::fake_shard::{EPOCH, dispatcher};

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
            listed: Vec::new(),
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
                decisions.listed.contains(job),
            )
        };
        assert_eq!(known(&past), (false, false, false));
        assert_eq!(known(&recent), (true, true, true));
        assert_eq!(known(&live), (true, true, true), "one that is not over stays, whatever the time");
        assert!(decisions.dispatcher.train_spec(&past).is_none());
        assert!(decisions.dispatcher.train_spec(&live).is_some());
        assert_eq!(decisions.forget_at.keys().collect::<Vec<_>>(), [&recent]);
    }

    #[test]
    fn what_a_refused_commit_tells_is_in_the_one_that_takes_its_place_with_what_was_lost() {
        let entry = |name: &'static str| vec![("what", name.to_owned())];
        let refused = Commit {
            events: vec![entry("worker_joined")],
            metrics: vec![entry("point")],
            halve_metrics: true,
            ..Commit::default()
        };
        let mut whole = Commit { events: vec![entry("later")], ..Commit::default() };
        append_streams(&mut whole, &refused, 3, 5_000);
        let told: Vec<&str> = whole.events.iter().map(|event| event[0].1.as_str()).collect();
        assert_eq!(told, ["worker_joined", "written_again", "later"]);
        assert!(whole.events[1][2].1.starts_with("Redis had lost 3 commits"), "{:?}", whole.events[1]);
        assert_eq!((whole.metrics.len(), whole.halve_metrics), (1, true));
    }
}
