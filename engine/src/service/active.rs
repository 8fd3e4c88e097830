//! The loop of the active engine: drain the queue, let the core decide, commit, act, answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use futures::future::join_all;
use syncline_scheduler::{
    core::{Commits, Core, Effect, Input, Job, Phase, Refused},
    ids::{EngineEpoch, JobId},
};
use tokio::sync::mpsc;
use tracing::{error, info, warn};

use super::{clock::Clock, effects::Hands, message::Message};
use crate::{
    rpc::EngineFault,
    store::{RedisStore, StoreError, keys::ENDED_JOB_EXPIRY_S},
};

/// Inputs handled in one turn, and thereby in one commit per job.
const INPUTS_PER_TURN: usize = 256;
/// Pause between two tries of a commit while Redis is away.
const RETRY: Duration = Duration::from_millis(250);

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
    core: Core,
    store: RedisStore,
    epoch: EngineEpoch,
    hands: Hands,
    clock: Clock,
    /// Last committed seq of each job.
    seqs: BTreeMap<JobId, u64>,
    /// Jobs whose keys cannot be read: their names stay taken.
    unreadable: BTreeSet<JobId>,
    /// Jobs that are over, oldest first, with the time when they may be forgotten.
    over: BTreeMap<JobId, Instant>,
}

impl Active {
    /// Loads every job and repeats what may not have been carried out.
    pub(super) async fn load(
        store: RedisStore,
        epoch: EngineEpoch,
        hands: Hands,
        clock: Clock,
    ) -> Result<Self, StoreError> {
        let mut active = Self {
            core: Core::new(hands.shards.count()),
            store,
            epoch,
            hands,
            clock,
            seqs: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            over: BTreeMap::new(),
        };
        let mut effects = Vec::new();
        for id in active.store.jobs().await? {
            let Some((stored, seq)) = active.store.claim(&id, epoch).await? else {
                active.store.unlist_job(&id).await?;
                continue;
            };
            let job = match Job::load(&stored) {
                Ok(job) => job,
                Err(unreadable) => {
                    // One damaged job must not keep the others from running; its keys stay for inspection.
                    error!(job = %id, error = %unreadable, "job left aside");
                    active.unreadable.insert(id);
                    continue;
                }
            };
            active.seqs.insert(id.clone(), seq);
            active.hands.learn(job.spec());
            if job.phase().is_over() {
                active.note_over(&id);
            }
            let (running, generation) = (*job.phase() == Phase::Running, job.generation());
            info!(job = %id, state = job.phase().word(), "job loaded");
            effects.extend(active.core.restore(job));
            if running {
                active.hands.attach(&id, generation);
            }
        }
        for worker in active.core.workers() {
            active.hands.sessions.open(worker, Default::default(), 0);
        }
        effects.into_iter().for_each(|effect| active.hands.carry_out(effect));
        Ok(active)
    }

    fn note_over(&mut self, job: &JobId) {
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
            let now_us = self.clock.now_us();
            let submitted = match &input {
                Input::Submit(spec) => Some(spec.clone()),
                _ => None,
            };
            if let Some(spec) = submitted.as_ref().filter(|spec| self.unreadable.contains(&spec.id)) {
                answers.extend(asked.map(|a| (a, Err(EngineFault::DuplicateJob { job: spec.id.clone() }))));
                continue;
            }
            match self.core.handle(now_us, input) {
                Ok(decided) => {
                    if let Some(spec) = submitted {
                        self.hands.learn(&spec);
                        self.list(&spec.id, now_us).await?;
                    }
                    effects.extend(decided);
                    answers.extend(asked.map(|a| (a, Ok(()))));
                }
                Err(refused) => answers.extend(asked.map(|a| (a, Err(fault(refused))))),
            }
        }
        let commits = self.core.take_commits(self.clock.now_us());
        self.commit(&commits).await?;
        effects.into_iter().for_each(|effect| self.hands.carry_out(effect));
        for (asked, answer) in answers {
            // Whoever asked may have gone meanwhile.
            let _ = asked.send(answer);
        }
        for (job, commit) in &commits {
            if commit.over {
                self.note_over(job);
            }
        }
        self.forget_expired();
        Ok(())
    }

    async fn list(&self, job: &JobId, now_us: u64) -> Result<(), Ended> {
        persist("list job", || self.store.list_job(job, now_us / 1000)).await
    }

    /// Commits every touched job. While Redis is away the same commits are sent again; nothing is dropped.
    async fn commit(&mut self, commits: &Commits) -> Result<(), Ended> {
        let (store, epoch, seqs) = (&self.store, self.epoch, &self.seqs);
        let each = commits.iter().map(|(job, commit)| {
            let seq = seqs.get(job).copied().unwrap_or(0) + 1;
            let write = move || async move { store.commit(job, epoch, seq, commit).await.map(drop) };
            async move { persist("commit", write).await.map(|()| (job.clone(), seq)) }
        });
        let done: Vec<_> = join_all(each).await.into_iter().collect::<Result<_, Ended>>()?;
        self.seqs.extend(done);
        Ok(())
    }

    fn forget_expired(&mut self) {
        let now = Instant::now();
        let expired: Vec<JobId> =
            self.over.iter().filter(|(_, at)| **at <= now).map(|(j, _)| j.clone()).collect();
        for job in expired {
            self.core.forget(&job);
            self.over.remove(&job);
            self.seqs.remove(&job);
        }
    }
}

/// Repeats a write until Redis has taken it or somebody else owns what it writes.
async fn persist<F>(what: &'static str, write: impl Fn() -> F) -> Result<(), Ended>
where
    F: Future<Output = Result<(), StoreError>>,
{
    let mut warned = false;
    loop {
        match write().await {
            Ok(()) => {
                if warned {
                    info!(what, "redis answers again");
                }
                return Ok(());
            }
            Err(StoreError::Fenced { epoch, seq }) => {
                warn!(what, epoch, seq, "fenced: another engine owns the job");
                return Err(Ended::Deposed);
            }
            Err(passing) if passing.is_passing() => {
                if !warned {
                    warn!(what, error = %passing, "redis is away; trying again until it answers");
                }
                warned = true;
            }
            Err(refused) => {
                error!(what, error = %refused, "redis refused a write; reading everything again");
                tokio::time::sleep(RETRY).await;
                return Err(Ended::Deposed);
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}

fn fault(refused: Refused) -> EngineFault {
    match refused {
        Refused::Invalid(invalid) => EngineFault::InvalidJob(invalid.to_string()),
        Refused::Duplicate { job } => EngineFault::DuplicateJob { job },
        Refused::Unknown { job } => EngineFault::UnknownJob { job },
        Refused::Over { job, state } => EngineFault::Over { job, state: state.to_owned() },
        _ => EngineFault::InvalidJob(refused.to_string()),
    }
}
