//! Orders of the engine to the shards of a job: opening it, barriers, clocks, seals; and watching barriers
//! close.

use std::time::{Duration, Instant};

use syncline_rpc::{OpenJob, ShardClient, ShardFault, ShardState, within};
use syncline_scheduler::{
    core::{BarrierOrder, ClockRoster, ClosedBarrier, Input, OpenWith, ProgressFloor},
    ids::{Incarnation, RunId, ShardIndex},
    spec::TrainSpec,
};
use tarpc::client::RpcError;
use tokio::time::{sleep, timeout};
use tracing::warn;

use super::shard_control::{CALL_TIMEOUT, LONG_CALL_TIMEOUT, ShardControl};

/// How long a shard keeps a question about closed barriers open.
const CLOSED_WAIT_MS: u64 = 2_000;
/// Pause before a job is opened again that needs a shard which cannot be reached, and before one is asked
/// again that lacks a job.
pub(super) const PEER_PAUSE: Duration = Duration::from_millis(500);
/// So long a job is opened again that a shard cannot read: a file server that answers nothing for a moment,
/// or a peer that ends while it sends, is no reason to give up parameters, or a checkpoint for the one
/// before.
const READ_PATIENCE: Duration = Duration::from_secs(60);
/// So long a job is opened again that reads a checkpoint while there are others: longer than a file server
/// takes to start again, or the machine that it runs on. Then one of those costs the training between the
/// two, which is done anew; nothing that was promised is lost.
const NEWEST_PATIENCE: Duration = Duration::from_secs(900);
/// So long a job is opened again that reads its only checkpoint: what has been trained so far is worth
/// waiting until somebody has brought the disk back, and the job says meanwhile what it waits for.
const CHECKPOINT_PATIENCE: Duration = Duration::from_secs(3_600);

impl ShardControl {
    /// Opens a run of a job. Nothing of earlier ones matters from here on.
    pub(super) fn open_shards(&self, run: RunId, with: OpenWith, known_through: Option<u64>) {
        self.work.end_before(&run);
        let control = self.clone();
        self.work.spawn(&run.clone(), async move {
            let Some((_, train)) = control.jobs.training(&run.job) else { return };
            // A process that hangs answers nothing, and its standby holds up nobody.
            let _ = timeout(CALL_TIMEOUT, control.closings.until_over(&run.job)).await;
            let mut unreadable_since: Option<Instant> = None;
            let patience = read_patience(with);
            let mut told = String::new();
            loop {
                let shards = control.shards.all_addresses().await;
                match control.open_all(&run, with, known_through, &train, &shards).await {
                    Ok(states) => {
                        for (shard, state) in states {
                            // It may have been open there, and be further than Redis knows.
                            control.report_attached(&run, shard, &state, ProgressFloor::default());
                            control.watch_barriers(&run, shard, state.progress.closed);
                        }
                        // Who moved while others loaded has told the jobs that were open.
                        if control.shards.addresses().is_some_and(|now| now != shards) {
                            control.broadcast_addresses();
                        }
                        return control.queue.tell(Input::ShardsOpened { run });
                    }
                    Err(fault) => {
                        // A shard that is away, or reads for long, says nothing of a disk.
                        unreadable_since = match &fault {
                            ShardFault::Io { .. } => Some(unreadable_since.unwrap_or_else(Instant::now)),
                            _ => None,
                        };
                        let tried = unreadable_since.map_or(Duration::ZERO, |since| since.elapsed());
                        if !may_pass(&fault, tried, patience) {
                            control.report_failure(&run, &fault);
                            if matches!(fault, ShardFault::NewerCheckpoint { .. }) {
                                // They still have what was trained before, for a Redis that knows it: it is
                                // set aside.
                                control.shards.indices().for_each(|shard| control.query_held_jobs(shard));
                            }
                            return;
                        }
                        let reason = fault.to_string();
                        // It is asked twice a second; once is enough to say so.
                        if reason != told {
                            warn!(job = %run.job, error = %fault, "cannot open a job yet");
                            control
                                .queue
                                .tell(Input::OpeningDelayed { run: run.clone(), reason: reason.clone() });
                            told = reason;
                        }
                        sleep(PEER_PAUSE).await;
                    }
                }
            }
        });
    }

    /// Opens a job on all shards, and tells how far each is.
    async fn open_all(
        &self,
        run: &RunId,
        with: OpenWith,
        known_through: Option<u64>,
        train: &TrainSpec,
        shards: &[String],
    ) -> Result<Vec<(ShardIndex, ShardState)>, ShardFault> {
        // One that opens a run gives up the one before, of no use then to a newer Redis where another refuses.
        if let Some(known_through) = known_through {
            self.check_checkpoints(run, known_through).await?;
        }
        let each = self.shards.indices().map(|shard| {
            let order = OpenJob {
                run: run.clone(),
                shard,
                shards: shards.to_vec(),
                layout: train.shard_layout(),
                optimizer: train.shard_optimizer(),
                clip_norm: train.shard_clip_norm(),
                initial: train.model.initial,
                resumed: train.resume.as_ref().map(|resume| resume.steps.clone()),
                checkpoint: with.checkpoint(),
                known_through,
            };
            async move {
                let open = |c: ShardClient| {
                    let order = order.clone();
                    async move { c.open(within(LONG_CALL_TIMEOUT), self.epoch, order).await }
                };
                self.shards.call(shard, open).await.map(|state| (shard, state))
            }
        });
        futures::future::join_all(each).await.into_iter().collect()
    }

    /// Asks all shards whether one of them has newer checkpoints of a job than are known.
    async fn check_checkpoints(&self, run: &RunId, known_through: u64) -> Result<(), ShardFault> {
        let check = |c: ShardClient| {
            let run = run.clone();
            async move { c.check_checkpoints(within(CALL_TIMEOUT), self.epoch, run, known_through).await }
        };
        let each = self.shards.indices().map(|shard| self.shards.call(shard, &check));
        futures::future::try_join_all(each).await.map(drop)
    }

    pub(super) fn report_closed(&self, run: &RunId, shard: ShardIndex, barrier: ClosedBarrier) {
        self.queue.tell(Input::BarrierClosed { run: run.clone(), shard, barrier });
    }

    pub(super) fn watch_barriers(&self, run: &RunId, shard: ShardIndex, mut seen: u64) {
        let (control, run) = (self.clone(), run.clone());
        self.work.spawn(&run.clone(), async move {
            loop {
                let answer = control
                    .shards
                    .poll(shard, |c| {
                        let run = run.clone();
                        async move {
                            c.await_closed(within(CALL_TIMEOUT), control.epoch, run, seen, CLOSED_WAIT_MS)
                                .await
                        }
                    })
                    .await;
                match answer {
                    Ok(barriers) => {
                        for barrier in barriers {
                            seen = seen.max(barrier.superstep.0 + 1);
                            control.report_closed(&run, shard, barrier);
                        }
                    }
                    Err(fault) => {
                        control.report_failure(&run, &fault);
                        // It may come back on the directory in which it has the job.
                        if !matches!(fault, ShardFault::UnknownJob { .. }) {
                            return;
                        }
                        sleep(PEER_PAUSE).await;
                    }
                }
            }
        });
    }

    pub(super) fn order_barrier(&self, run: &RunId, order: BarrierOrder) {
        let epoch = self.epoch;
        let close = move |c: ShardClient, run| {
            let order = order.clone();
            async move { c.order_barrier(within(CALL_TIMEOUT), epoch, run, order).await }
        };
        self.order_all_shards(run, close, Self::note_refusal);
    }

    pub(super) fn send_clock_roster(&self, run: &RunId, roster: ClockRoster) {
        let epoch = self.epoch;
        let send = move |c: ShardClient, run| {
            let roster = roster.clone();
            async move { c.set_clock_roster(within(CALL_TIMEOUT), epoch, run, roster).await }
        };
        self.order_all_shards(run, send, Self::note_refusal);
    }

    pub(super) fn seal_worker(&self, run: &RunId, worker: Incarnation) {
        let epoch = self.epoch;
        let seal =
            move |c: ShardClient, run| async move { c.seal(within(CALL_TIMEOUT), epoch, run, worker).await };
        self.order_all_shards(run, seal, move |control, run, shard, answer| match answer {
            Ok(progress) => control.queue.tell(Input::Sealed { run, worker, shard, progress }),
            Err(fault) => control.report_failure(&run, &fault),
        });
    }

    /// An order that is answered with nothing but a fault.
    fn note_refusal(&self, run: RunId, _: ShardIndex, answer: Result<(), ShardFault>) {
        if let Err(fault) = answer {
            self.report_failure(&run, &fault);
        }
    }

    /// Gives every shard an order for a run, and hands on what each of them answers. The run does not go on
    /// without it: a shard that lacks the job is given it for as long as the run lasts, since it may come
    /// back on the state directory in which it has it.
    pub(super) fn order_all_shards<T, F>(
        &self,
        run: &RunId,
        order: impl Fn(ShardClient, RunId) -> F + Clone + Send + Sync + 'static,
        hand_on: impl Fn(&Self, RunId, ShardIndex, Result<T, ShardFault>) + Clone + Send + 'static,
    ) where
        T: Send + 'static,
        F: Future<Output = Result<Result<T, ShardFault>, RpcError>> + Send,
    {
        for shard in self.shards.indices() {
            let (control, of, order, hand_on) = (self.clone(), run.clone(), order.clone(), hand_on.clone());
            self.work.spawn(run, async move {
                loop {
                    let answer = control.shards.call(shard, |c| order(c, of.clone())).await;
                    // Another job of the name is in its place, until whoever attaches has it make way.
                    if answer.as_ref().is_err_and(|fault| fault.is_of_other_job()) {
                        sleep(PEER_PAUSE).await;
                        continue;
                    }
                    let lacks_job = matches!(answer, Err(ShardFault::UnknownJob { .. }));
                    hand_on(&control, of.clone(), shard, answer);
                    if !lacks_job {
                        return;
                    }
                    sleep(PEER_PAUSE).await;
                }
            });
        }
    }
}

/// How long a disk is waited for that cannot be read.
fn read_patience(with: OpenWith) -> Duration {
    match with {
        OpenWith::Initial => READ_PATIENCE,
        OpenWith::Checkpoint { has_others: true, .. } => NEWEST_PATIENCE,
        OpenWith::Checkpoint { has_others: false, .. } => CHECKPOINT_PATIENCE,
    }
}

/// Whether a job that could not be opened for so long is opened again.
fn may_pass(fault: &ShardFault, tried: Duration, patience: Duration) -> bool {
    match fault {
        // It is back soon, maybe at another address, or missed as a shard that is lost.
        ShardFault::PeerAway { .. } => true,
        ShardFault::Io { .. } => tried < patience,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    };

    use syncline_scheduler::{
        core::{LastWeights, PushProgress},
        fault_code::FaultCode,
        ids::{Generation, Superstep},
        sim,
        spec::{JobSpec, ValidJob},
    };

    use super::*;
    use crate::service::fake_shard::control_with;
    use syncline_rpc::{ShardRequest, ShardResponse};

    fn run() -> RunId {
        RunId { job: "digits".parse().unwrap(), generation: Generation(1) }
    }

    #[tokio::test]
    async fn a_seal_reaches_a_shard_over_a_new_connection_and_tells_how_far_the_worker_came() {
        let seal = |_| ShardResponse::Seal(Ok(PushProgress { watermark: 5, partial: true }));
        let (control, mut inbox) = control_with(1, seal).await;
        control.seal_worker(&run(), Incarnation(2));
        match inbox.input().await {
            Input::Sealed { worker, progress, .. } => {
                assert_eq!((worker, progress.watermark, progress.partial), (Incarnation(2), 5, true));
            }
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn barriers_are_reported_in_order_until_the_shard_refuses() {
        let told = Arc::new(AtomicBool::new(false));
        let closed = move |_| {
            let barrier = |superstep, pushes| ClosedBarrier {
                superstep: Superstep(superstep),
                closed_ago_us: 0,
                pushes,
            };
            ShardResponse::AwaitClosed(match told.swap(true, Ordering::Relaxed) {
                false => Ok(vec![barrier(4, 10), barrier(5, 12)]),
                true => Err(ShardFault::UnknownJob { job: run().job }),
            })
        };
        let (control, mut inbox) = control_with(0, closed).await;
        control.watch_barriers(&run(), ShardIndex(0), 4);
        for (superstep, pushes) in [(4, 10), (5, 12)] {
            match inbox.input().await {
                Input::BarrierClosed { barrier, .. } => {
                    assert_eq!((barrier.superstep.0, barrier.pushes), (superstep, pushes))
                }
                other => panic!("{other:?}"),
            }
        }
        let lost = inbox.input().await;
        assert!(matches!(&lost, Input::ShardFailed { code: FaultCode::PARAMETERS_LOST, .. }), "{lost:?}");
    }

    fn training() -> ValidJob {
        sim::training_job(sim::training("asp".parse().unwrap(), 8, 1)).validated().unwrap()
    }

    /// A checkpoint that has no other beside it.
    fn only(number: u64) -> OpenWith {
        OpenWith::Checkpoint { number, has_others: false }
    }

    /// The shard would set the earlier one aside, and cut off the workers of all jobs for it.
    #[tokio::test]
    async fn a_job_is_opened_once_the_shards_have_closed_the_one_that_had_its_name() {
        let (requests, mut asked) = tokio::sync::mpsc::unbounded_channel();
        let open = move |request| match request {
            ShardRequest::Open { job, .. } => {
                requests.send(job.run.job).unwrap();
                ShardResponse::Open(Ok(ShardState {
                    generation: job.run.generation,
                    progress: Default::default(),
                    pushes: 0,
                }))
            }
            ShardRequest::Close { .. } => ShardResponse::Close(Ok(())),
            _ => ShardResponse::AwaitClosed(Ok(Vec::new())),
        };
        let (control, _inbox) = control_with(0, open).await;
        let named = |name: &str| {
            let training = sim::training_job(sim::training("asp".parse().unwrap(), 8, 1));
            let spec = JobSpec { id: name.parse().unwrap(), ..training }.validated().unwrap();
            control.jobs.remember_spec(&spec, 2);
            RunId { job: spec.id.clone(), generation: Generation::first(2) }
        };
        let (next, other) = (named("digits"), named("other"));
        let closing = control.closings.begin(&run().job);
        for run in [&next, &other] {
            control.open_shards(run.clone(), OpenWith::Initial, None);
        }
        // Which was ordered later.
        assert_eq!(asked.recv().await, Some(other.job));
        drop(closing);
        assert_eq!(asked.recv().await, Some(next.job.clone()));
        control.close_shards(&next, LastWeights::Drop);
        let mut until_over = std::pin::pin!(control.closings.until_over(&next.job));
        assert!(futures::poll!(until_over.as_mut()).is_pending(), "no shard has been told yet");
        until_over.await;
    }

    #[tokio::test]
    async fn a_disk_that_cannot_be_read_for_a_moment_costs_neither_a_checkpoint_nor_the_job() {
        let asked = Arc::new(AtomicU32::new(0));
        let counted = asked.clone();
        let open = move |request| match request {
            ShardRequest::Open { .. } => ShardResponse::Open(match counted.fetch_add(1, Ordering::Relaxed) {
                0 | 1 => Err(ShardFault::Io { what: "read".into(), cause: "stale file handle".into() }),
                _ => Ok(ShardState { generation: Generation(1), progress: Default::default(), pushes: 0 }),
            }),
            _ => ShardResponse::AwaitClosed(Ok(Vec::new())),
        };
        let (control, mut inbox) = control_with(0, open).await;
        let spec = training();
        control.jobs.remember_spec(&spec, 1);
        let run = RunId { job: spec.id.clone(), generation: Generation(1) };
        control.open_shards(run, only(3), None);
        match inbox.input().await {
            Input::OpeningDelayed { reason, .. } => assert_eq!(reason, "[E406] read: stale file handle"),
            other => panic!("{other:?}"),
        }
        assert!(matches!(inbox.input().await, Input::Attached { .. }));
        assert!(matches!(inbox.input().await, Input::ShardsOpened { .. }));
        assert_eq!(asked.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn where_a_shard_refuses_to_go_back_so_far_none_opens_the_job_and_all_are_asked_what_they_hold() {
        let refuse = |request| match request {
            ShardRequest::CheckCheckpoints { run, known_through, .. } => {
                let (job, newest) = (run.job, 13);
                let fault = ShardFault::NewerCheckpoint { job, known_through, newest };
                ShardResponse::CheckCheckpoints(Err(fault))
            }
            ShardRequest::Open { .. } => panic!("what it holds would be given up"),
            _ => ShardResponse::ListJobs(Ok(Vec::new())),
        };
        let (control, mut inbox) = control_with(0, refuse).await;
        let spec = training();
        control.jobs.remember_spec(&spec, 1);
        let run = RunId { job: spec.id.clone(), generation: Generation(1) };
        control.open_shards(run, only(5), Some(5));
        let failed = inbox.input().await;
        assert!(
            matches!(&failed, Input::ShardFailed { code: FaultCode::NEWER_CHECKPOINT, .. }),
            "{failed:?}"
        );
        assert!(matches!(inbox.input().await, Input::ShardServed { .. }));
        assert!(matches!(inbox.input().await, Input::ShardHolds { .. }));
    }

    #[test]
    fn a_disk_that_cannot_be_read_is_waited_for_longest_where_the_only_checkpoint_is_on_it() {
        let unreadable = || ShardFault::Io { what: "read".into(), cause: "input/output error".into() };
        let lost = || ShardFault::UnknownJob { job: run().job };
        let newest = OpenWith::Checkpoint { number: 3, has_others: true };
        #[rustfmt::skip]
        let cases = [
            (unreadable(), OpenWith::Initial, 59,    true),
            (unreadable(), OpenWith::Initial, 60,    false),
            (unreadable(), newest,            899,   true),
            (unreadable(), newest,            900,   false),
            (unreadable(), only(3),           900,   true),
            (unreadable(), only(3),           3_600, false),
            (lost(),       newest,            0,     false),
        ];
        for (fault, with, tried_s, again) in cases {
            let (tried, patience) = (Duration::from_secs(tried_s), read_patience(with));
            assert_eq!(may_pass(&fault, tried, patience), again, "{fault} {with:?} {tried_s} s");
        }
    }

    #[tokio::test]
    async fn an_order_that_a_shard_refuses_fails_the_job_with_the_shards_code() {
        let refuse =
            |_| ShardResponse::SetClockRoster(Err(ShardFault::Invalid { what: "no such roster".into() }));
        let (control, mut inbox) = control_with(0, refuse).await;
        control.send_clock_roster(&run(), ClockRoster::default());
        let failed = inbox.input().await;
        assert!(
            matches!(&failed, Input::ShardFailed { code, .. } if *code == FaultCode::new("E405")),
            "{failed:?}"
        );
    }
}
