//! The loop of the active engine: drain the queue, let the core decide, commit, act, answer.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use futures::future::join_all;
use syncline_scheduler::{
    core::{Commit, Commits, Core, Effect, Input, Refused},
    ids::{EngineEpoch, JobId},
};
use tokio::sync::mpsc;
use tracing::{error, info, warn};

use super::{clock::Clock, effects::Hands, message::Message, told::tell};
use crate::{
    rpc::EngineFault,
    store::{Committed, Mode, RedisStore, StoreError, keys::ENDED_JOB_EXPIRY_S},
};

/// Inputs handled in one turn, and thereby in one commit per job.
const INPUTS_PER_TURN: usize = 256;
/// Pause between two tries of a commit while Redis is away.
const RETRY: Duration = Duration::from_millis(250);

/// Somebody may have taken jobs off the list, or the list away.
const LIST_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// Why the loop ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// Another engine took over, or may have.
    Deposed,
    /// The queue is closed: the process stops.
    Stopped,
}

/// The core with what it needs to be durable.
pub(super) struct Active {
    pub(super) core: Core,
    pub(super) store: RedisStore,
    pub(super) epoch: EngineEpoch,
    pub(super) hands: Hands,
    pub(super) clock: Clock,
    /// Last committed seq of each job.
    pub(super) seqs: BTreeMap<JobId, u64>,
    /// Jobs that are to be listed, in their order.
    pub(super) listed: Vec<JobId>,
    /// When they were made sure to be.
    pub(super) listed_at: Instant,
    /// Jobs that are over, oldest first, with the time when they may be forgotten.
    pub(super) over: BTreeMap<JobId, Instant>,
}

impl Active {
    pub(super) fn note_over(&mut self, job: &JobId) {
        self.over
            .entry(job.clone())
            .or_insert_with(|| Instant::now() + Duration::from_secs(ENDED_JOB_EXPIRY_S));
    }

    /// Turns until the engine is deposed or stopped.
    pub(super) async fn run(mut self, mut queue: mpsc::UnboundedReceiver<Message>) -> Ended {
        let mut batch = Vec::with_capacity(INPUTS_PER_TURN);
        let ended = loop {
            batch.clear();
            if queue.recv_many(&mut batch, INPUTS_PER_TURN).await == 0 {
                break Ended::Stopped;
            }
            if let Err(ended) = self.turn(&mut batch).await {
                break ended;
            }
        };
        self.hands.stop();
        ended
    }

    async fn turn(&mut self, batch: &mut Vec<Message>) -> Result<(), Ended> {
        let mut effects: Vec<Effect> = Vec::new();
        let mut answers = Vec::new();
        for message in batch.drain(..) {
            let (input, asked) = match message {
                Message::Input(input) => (input, None),
                Message::Asked(input, asked) => (input, Some(asked)),
                Message::Deposed => return Err(Ended::Deposed),
            };
            let answer = match self.take_damaged(&input).await? {
                Some(answer) => answer,
                None => self.take(input, &mut effects).await?,
            };
            answers.extend(asked.map(|a| (a, answer)));
        }
        let commits = self.core.take_commits(self.clock.now_us());
        self.commit(&commits).await?;
        effects.into_iter().for_each(|effect| self.hands.carry_out(effect));
        for (asked, answer) in answers {
            // Whoever asked may have gone meanwhile.
            let _ = asked.send(answer);
        }
        for (job, commit) in &commits {
            tell(job, commit);
            if commit.gone {
                self.forget(job).await?;
            } else if commit.over {
                self.note_over(job);
            } else {
                self.over.remove(job);
            }
        }
        self.forget_expired();
        self.list_again().await
    }

    /// Lists all jobs again, now and then.
    async fn list_again(&mut self) -> Result<(), Ended> {
        let (Some(first), true) = (self.listed.first(), self.listed_at.elapsed() > LIST_AGAIN_AFTER) else {
            return Ok(());
        };
        let (store, epoch, now_ms) = (&self.store, self.epoch, self.clock.now_us() / 1000);
        self.persist("list jobs", first, || store.list_again(&self.listed, epoch, now_ms)).await?;
        self.listed_at = Instant::now();
        Ok(())
    }

    /// Lets the core handle one input. A job that comes in is listed before its first commit.
    async fn take(
        &mut self,
        input: Input,
        effects: &mut Vec<Effect>,
    ) -> Result<Result<(), EngineFault>, Ended> {
        let now_us = self.clock.now_us();
        let submitted = match &input {
            Input::Submit(submission) => Some(submission.spec.clone()),
            _ => None,
        };
        match self.core.handle(now_us, input) {
            Ok(decided) => {
                effects.extend(decided);
                if let Some(spec) = submitted {
                    self.hands.learn(&spec);
                    self.list(&spec.id, now_us).await?;
                }
                Ok(Ok(()))
            }
            Err(refused) => Ok(Err(fault(refused))),
        }
    }

    /// Answers what is asked about a job that is parked as damaged; `None` if it is not about one. Whoever submits its
    /// name with `replace` gets it.
    async fn take_damaged(&mut self, input: &Input) -> Result<Option<Result<(), EngineFault>>, Ended> {
        let id = match input {
            Input::Submit(submission) => &submission.spec.id,
            Input::Cancel(id) | Input::Delete(id) => id,
            _ => return Ok(None),
        };
        let Some(reason) = self.hands.damaged(id) else { return Ok(None) };
        if matches!(input, Input::Submit(submission) if !submission.replace) {
            return Ok(Some(Err(EngineFault::DuplicateJob { job: id.clone() })));
        }
        let (store, epoch) = (&self.store, self.epoch);
        self.persist("erase job", id, || store.erase(id)).await?;
        if let Input::Cancel(_) = input {
            let summary =
                vec![("state", "canceled".to_owned()), ("reason", format!("it was damaged: {reason}"))];
            let last = &Commit { summary, over: true, ..Commit::default() };
            self.persist("commit", id, || store.commit(id, epoch, 1, Mode::New, last)).await?;
            // The next job of this name goes on counting from there.
            self.seqs.insert(id.clone(), 1);
        }
        self.hands.mend(id);
        if matches!(input, Input::Submit(_)) {
            return Ok(None);
        }
        self.persist("unlist job", id, || store.unlist_job(id, epoch)).await?;
        self.listed.retain(|listed| listed != id);
        Ok(Some(Ok(())))
    }

    async fn list(&mut self, job: &JobId, now_us: u64) -> Result<(), Ended> {
        self.listed.retain(|listed| listed != job);
        self.listed.push(job.clone());
        let (store, epoch) = (&self.store, self.epoch);
        self.persist("list job", job, || store.list_job(job, epoch, now_us / 1000)).await
    }

    async fn forget(&mut self, job: &JobId) -> Result<(), Ended> {
        let (store, epoch) = (&self.store, self.epoch);
        self.persist("unlist job", job, || store.unlist_job(job, epoch)).await?;
        self.hands.unlearn(job);
        self.seqs.remove(job);
        self.over.remove(job);
        self.listed.retain(|listed| listed != job);
        Ok(())
    }

    /// Commits every touched job. While Redis is away the same commits are sent again; nothing is dropped. Where Redis
    /// has lost commits of this engine, the whole job is written again: this engine knows all of it.
    async fn commit(&mut self, commits: &Commits) -> Result<(), Ended> {
        let this: &Self = self;
        let (store, epoch, seqs) = (&this.store, this.epoch, &this.seqs);
        let each = commits.iter().map(|(job, commit)| {
            let seq = seqs.get(job).copied().unwrap_or(0) + 1;
            let mode = if commit.spec.is_some() { Mode::New } else { Mode::Next };
            let write = move || store.commit(job, epoch, seq, mode, commit);
            async move { this.persist("commit", job, write).await.map(|done| (job.clone(), seq, done)) }
        });
        let done: Vec<_> = join_all(each).await.into_iter().collect::<Result<_, Ended>>()?;
        for (job, seq, committed) in done {
            if let Committed::Lost { seq: known } = committed {
                self.write_again(&job, seq, known).await?;
            }
            self.seqs.insert(job, seq);
        }
        Ok(())
    }

    async fn write_again(&mut self, job: &JobId, seq: u64, known: u64) -> Result<(), Ended> {
        let now_us = self.clock.now_us();
        let lost = seq - 1 - known;
        warn!(%job, seq, known, lost, "redis has lost acknowledged commits; writing the whole job again");
        let Some(whole) = self.core.full_commit(job, now_us) else { return Ok(()) };
        self.list(job, now_us).await?;
        let (store, epoch, whole) = (&self.store, self.epoch, &whole);
        let write = || store.commit(job, epoch, seq, Mode::Whole, whole);
        self.persist("commit", job, write).await.map(drop)
    }

    fn forget_expired(&mut self) {
        let now = Instant::now();
        let expired: Vec<JobId> =
            self.over.iter().filter(|(_, at)| **at <= now).map(|(j, _)| j.clone()).collect();
        for job in expired {
            self.core.forget(&job);
            self.hands.unlearn(&job);
            self.over.remove(&job);
            self.seqs.remove(&job);
            self.listed.retain(|listed| *listed != job);
        }
    }

    /// Repeats a write until Redis has taken it or somebody else owns what it writes. Whoever asks meanwhile is told.
    async fn persist<T, F>(&self, what: &'static str, job: &JobId, write: impl Fn() -> F) -> Result<T, Ended>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let mut warned = false;
        loop {
            match write().await {
                Ok(value) => {
                    if warned {
                        info!(what, %job, "redis takes writes again");
                        self.hands.trouble.set(None);
                    }
                    return Ok(value);
                }
                Err(StoreError::Fenced { epoch, seq }) => {
                    warn!(what, %job, epoch, seq, "fenced: another engine owns the job");
                    return Err(Ended::Deposed);
                }
                Err(passing) if passing.is_passing() => {
                    if !warned {
                        warn!(what, %job, error = %passing, "redis takes no writes; trying again until it does");
                    }
                    warned = true;
                    self.hands.trouble.set(Some(passing.to_string()));
                }
                Err(refused) => {
                    error!(what, %job, error = %refused, "redis refused a write; reading everything again");
                    tokio::time::sleep(RETRY).await;
                    return Err(Ended::Deposed);
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }
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
