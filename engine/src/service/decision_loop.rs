//! The loop of the active engine: drain the queue, let the core decide, commit, act, answer.

use std::{
    collections::{BTreeMap, VecDeque},
    panic::resume_unwind,
    time::{Duration, Instant},
};

use syncline_rpc::{EngineFault, describe};
use syncline_scheduler::{
    core::{Commits, Core, CorePanic, Effect, Input, Refused, catch_panic},
    ids::{EngineEpoch, Incarnation, JobId},
    tasks::Attempts,
};
use tracing::error;

use super::{
    clock::Clock,
    expiry_clock::ExpiryClock,
    job_log::log_commit,
    last_commit::LastCommit,
    lead::Lead,
    message::{Look, Message, Reply, places},
    order_log::attempts_to_begin,
    queue::DecisionInbox,
};
use crate::store::RedisStore;

/// Inputs handled in one turn, and thereby in one commit per job.
const INPUTS_PER_TURN: usize = 256;
/// General tasks, and KiB of values, after which no further input is handled in the same turn: workers wait
/// for its commit, for which Redis has seconds.
const PLACES_PER_TURN: usize = 8_192;
/// A turn that takes longer, with its commits, is not taken for a moment.
const LONG_TURN_US: u64 = 1_000_000;
/// How often it is looked which jobs that are over may be forgotten.
const FORGET_INTERVAL: Duration = Duration::from_secs(1);

/// Why the loop ended.
#[derive(Debug)]
pub(super) enum LoopEnd {
    /// Another engine took over, or may have.
    Deposed,
    /// What it writes does not get through to Redis, although its lease is renewed: another engine may do
    /// better.
    Unwritten,
    /// The queue is closed: the process stops.
    Stopped,
}

/// What a turn has decided: nothing of it leaves before it is committed.
#[derive(Default)]
struct Decided {
    effects: Vec<Effect>,
    answers: Vec<(Reply, Result<(), EngineFault>)>,
    looks: Vec<Look>,
}

/// The core with what it needs to be durable.
pub(super) struct DecisionLoop {
    pub(super) core: Core,
    pub(super) store: RedisStore,
    pub(super) epoch: EngineEpoch,
    pub(super) lead: Lead,
    pub(super) clock: Clock,
    /// The last commit of each job.
    pub(super) written: BTreeMap<JobId, LastCommit>,
    /// When Redis was last made to list all live jobs.
    pub(super) listed_at: Instant,
    /// Jobs that are over, oldest first, with the time when they may be forgotten.
    pub(super) forget_at: BTreeMap<JobId, Instant>,
    /// Damaged jobs of which Redis says that they expire, each with the time when it may be forgotten. Apart:
    /// nothing is ever written of these.
    pub(super) damaged_until: BTreeMap<JobId, Instant>,
    /// Which hundred of those that ended longer ago than others is looked at next.
    pub(super) ends_probed: usize,
    /// The clock by which Redis forgets them.
    pub(super) expiry_clock: ExpiryClock,
    /// When `forget_at` was last scanned.
    pub(super) forget_scanned_at: Instant,
    /// The highest number that any commit of this engine had, or followed on. New jobs count on from there:
    /// a commit of a job that had the name before may still come a second time.
    pub(super) highest_seq: u64,
}

impl DecisionLoop {
    /// Turns until the engine is deposed or stopped.
    pub(super) async fn run(mut self, mut queue: DecisionInbox) -> LoopEnd {
        let mut messages = Vec::with_capacity(INPUTS_PER_TURN);
        let mut waiting = VecDeque::new();
        let ended = loop {
            if waiting.is_empty() {
                self.lead.pulse.rest();
                let rests_since = tokio::time::Instant::now();
                if queue.recv_many(&mut messages, INPUTS_PER_TURN).await == 0 {
                    break LoopEnd::Stopped;
                }
                waiting.extend(messages.drain(..));
                // There is a tick every moment, but while Redis is away.
                self.lead.standstill.note_rest(rests_since, Duration::ZERO);
            }
            self.lead.pulse.beat();
            if let Err(ended) = self.turn(&mut waiting).await {
                break ended;
            }
            self.lead.pulse.turned();
        };
        self.lead.stop();
        ended
    }

    /// Handles what waits, or as much of it as makes one commit of a reasonable size.
    pub(super) async fn turn(&mut self, waiting: &mut VecDeque<Message>) -> Result<(), LoopEnd> {
        self.discount_standstill().await;
        let begun_us = self.clock.now_us();
        let decided = self.decide(waiting).await?;
        let commits = self.commit_decided().await?;
        self.discount_turn(begun_us).await;
        self.publish(decided);
        self.note_ends(&commits).await?;
        self.forget_if_due().await?;
        self.relist_jobs().await
    }

    /// Lets the core decide about messages, as many of them as are for one turn.
    async fn decide(&mut self, waiting: &mut VecDeque<Message>) -> Result<Decided, LoopEnd> {
        let mut decided = Decided::default();
        let mut taken = 0;
        while taken < PLACES_PER_TURN
            && let Some(message) = waiting.pop_front()
        {
            let (mut input, reply) = match message {
                Message::Input(input) => (input, None),
                Message::Request { input, reply, .. } => (input, Some(reply)),
                Message::Query { look, .. } => {
                    decided.looks.push(look);
                    continue;
                }
                Message::Deposed => return Err(LoopEnd::Deposed),
            };
            if let Input::WorkerGone { worker, never_told, .. } = &mut input {
                *never_told = self.never_told(*worker, &decided.effects);
            }
            taken += places(&input);
            let answer = match self.handle_if_damaged(&input, &mut decided.effects).await? {
                Some(answer) => answer,
                None => match self.handle_if_returned(&input).await? {
                    Some(answer) => answer,
                    None => self.handle(input, &mut decided.effects).await,
                },
            };
            self.erase_with_graphs().await?;
            decided.answers.extend(reply.map(|reply| (reply, answer)));
        }
        Ok(decided)
    }

    /// Writes down what the core has decided, and lists the jobs that are new.
    async fn commit_decided(&mut self) -> Result<Commits, LoopEnd> {
        let now_us = self.clock.now_us();
        let mut commits = self.with_core(|core| core.take_commits(now_us)).await;
        for (id, _) in commits.iter().filter(|(_, commit)| commit.spec.is_some()) {
            if let Some(job) = self.core.job(id) {
                self.lead.jobs.remember_spec(job.spec(), job.generation().nonce());
            }
            self.list_job(id, now_us).await?;
        }
        self.commit(&mut commits).await?;
        Ok(commits)
    }

    /// Acts, answers and shows, now that what was decided is committed.
    fn publish(&self, Decided { effects, answers, looks }: Decided) {
        effects.into_iter().for_each(|effect| self.lead.dispatch(effect));
        for (reply, answer) in answers {
            // The caller may have gone meanwhile.
            let _ = reply.send(answer);
        }
        looks.into_iter().for_each(|look| look(&self.core));
    }

    /// Tells who waits for the end of a job, and notes which jobs are to be forgotten, and when.
    async fn note_ends(&mut self, commits: &Commits) -> Result<(), LoopEnd> {
        for (job, commit) in commits {
            log_commit(job, commit);
            if commit.over || commit.gone {
                self.lead.job_ends.publish(job);
            }
            if commit.gone {
                self.forget_job(job).await?;
            } else if commit.over {
                // Whoever asks what to do for it is told that it is over.
                self.lead.jobs.forget_spec(job);
                self.schedule_forgetting(job, None);
            } else {
                self.forget_at.remove(job);
                self.lead.jobs.forget_end(job);
            }
        }
        Ok(())
    }

    /// Now and then only: there may be thousands of jobs, as there may be turns in a second.
    async fn forget_if_due(&mut self) -> Result<(), LoopEnd> {
        if self.forget_scanned_at.elapsed() > FORGET_INTERVAL {
            self.forget_scanned_at = Instant::now();
            self.forget_expired().await?;
            self.forget_expired_damaged().await?;
        }
        Ok(())
    }

    /// The attempts that a worker that is gone was to begin, and that it was told of neither in earlier turns
    /// nor by what this one has decided so far.
    fn never_told(&self, worker: Incarnation, effects: &[Effect]) -> Vec<Attempts> {
        let of_this_turn = effects.iter().flat_map(|effect| match effect {
            Effect::Orders { worker: to, orders } if *to == worker => orders.as_slice(),
            _ => &[],
        });
        let mut untold = self.lead.sessions.forget(worker);
        untold.extend(of_this_turn.filter_map(attempts_to_begin));
        untold
    }

    /// A time in which nothing could be decided counts for no limit.
    async fn discount_standstill(&mut self) {
        if let Some(stood_still) = self.lead.standstill.take() {
            let now_us = self.clock.now_us();
            let since_us = now_us.saturating_sub(stood_still.as_micros() as u64);
            self.with_core(|core| core.discount_downtime(since_us, now_us)).await;
        }
    }

    /// Of a turn that took long, Redis has heard only now.
    async fn discount_turn(&mut self, begun_us: u64) {
        let now_us = self.clock.now_us();
        let turn_us = now_us.saturating_sub(begun_us);
        if turn_us > LONG_TURN_US {
            self.with_core(|core| core.discount_turn(turn_us, now_us)).await;
        }
    }

    /// Lets the core handle one input.
    async fn handle(&mut self, input: Input, effects: &mut Vec<Effect>) -> Result<(), EngineFault> {
        let now_us = self.clock.now_us();
        let decided = self.with_core(|core| core.handle(now_us, input)).await.map_err(fault)?;
        effects.extend(decided);
        Ok(())
    }

    /// Lets the core do something. A panic of it ends this engine, and is counted at the job where it
    /// happened: one at which engine after engine ends is set aside by the next.
    pub(super) async fn with_core<T>(&mut self, act: impl FnOnce(&mut Core) -> T) -> T {
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
}

pub(super) fn fault(refused: Refused) -> EngineFault {
    match refused {
        Refused::Invalid(_) | Refused::InvalidGraph(_) | Refused::Reserved { .. } => {
            EngineFault::InvalidJob { code: refused.code(), reason: refused.to_string() }
        }
        Refused::Duplicate { job, differs } => EngineFault::DuplicateJob { job, differs },
        Refused::Unknown { job } => EngineFault::UnknownJob { job },
        Refused::Replaced { job } => EngineFault::Replaced { job },
        Refused::Over { job, state } => EngineFault::Over { job, state: state.to_string() },
        Refused::UnknownTask { job, task } => {
            EngineFault::NothingKnown { job, what: format!("task {task}"), kept: String::new() }
        }
        Refused::TaskOver { job, task, state } => EngineFault::TaskOver { job, task, state },
        Refused::NoCheckpointNow { job, reason } => EngineFault::NoCheckpointNow { job, reason },
        Refused::NotOver { job, state } => EngineFault::NotOver { job, state: state.to_string() },
    }
}
