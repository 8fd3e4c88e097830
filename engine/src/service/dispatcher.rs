//! Carries out what the core decided, once it is committed.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use syncline_scheduler::{
    core::{BarrierOrder, ClockRoster, ClosedBarrier, Effect, Input, SnapshotFile, TaskFault, TaskKey},
    ids::{EngineEpoch, Generation, Incarnation, JobId, ShardIndex},
    spec::{JobSpec, TrainSpec},
    sync::{self, PlanRequest},
};
use tarpc::client::RpcError;
use tokio::{sync::mpsc, task::AbortHandle};
use tracing::warn;

use super::{
    clock::Clock, message::Message, sessions::Sessions, shards::ShardDirectory, store_outage::StoreOutage,
};
use crate::rpc::{OpenJob, ShardClient, ShardFault, within};

pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(10);
const LONG_CALL_TIMEOUT: Duration = Duration::from_secs(600);
/// How long a shard keeps a question about closed barriers open.
const CLOSED_WAIT_MS: u64 = 2_000;
/// Rows times lookahead up to which a plan is computed in place: well under a millisecond.
const INLINE_POINTS: u64 = 4_096;

/// Name of the snapshot of a job that ended without one.
const LAST_WEIGHTS: &str = "last";
/// Longest pause between two tries to write it.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A short lock whose holder never panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a shard says of a snapshot, as the core takes it.
fn snapshot_outcome(answer: Result<SnapshotFile, ShardFault>) -> Result<SnapshotFile, TaskFault> {
    answer.map_err(|fault| TaskFault { code: fault.code().to_owned(), reason: fault.to_string() })
}

/// One life of a job.
type Life = (JobId, Generation);

/// Carries out the effects of the active engine. Everything it starts for a job ends when the job is closed.
#[derive(Clone)]
pub(super) struct EffectDispatcher {
    pub epoch: EngineEpoch,
    pub sessions: Sessions,
    pub shards: ShardDirectory,
    pub queue: mpsc::UnboundedSender<Message>,
    pub store_outage: StoreOutage,
    specs: Arc<Mutex<BTreeMap<JobId, Arc<TrainSpec>>>>,
    /// Jobs whose records cannot be used, with what is wrong with them.
    damaged: Arc<Mutex<BTreeMap<JobId, String>>>,
    running: Arc<Mutex<HashMap<Life, Vec<AbortHandle>>>>,
    pub(super) clock: Clock,
}

impl EffectDispatcher {
    pub(super) fn new(
        epoch: EngineEpoch,
        sessions: Sessions,
        shards: ShardDirectory,
        queue: mpsc::UnboundedSender<Message>,
        clock: Clock,
    ) -> Self {
        let (specs, damaged, running) = Default::default();
        Self {
            epoch,
            sessions,
            shards,
            queue,
            store_outage: StoreOutage::default(),
            specs,
            damaged,
            running,
            clock,
        }
    }

    /// Parks a job that cannot be used.
    pub(super) fn mark_damaged(&self, job: &JobId, reason: String) {
        lock(&self.damaged).insert(job.clone(), reason);
    }

    /// What is wrong with a job that is parked.
    pub(super) fn damaged(&self, job: &JobId) -> Option<String> {
        lock(&self.damaged).get(job).cloned()
    }

    /// The job is not parked any more.
    pub(super) fn clear_damaged(&self, job: &JobId) {
        lock(&self.damaged).remove(job);
    }

    /// Keeps a job's training settings at hand for workers and shards.
    pub(super) fn remember_spec(&self, spec: &JobSpec) {
        if let Some((_, train)) = spec.train() {
            lock(&self.specs).insert(spec.id.clone(), Arc::new(train.clone()));
        }
    }

    pub(super) fn train_spec(&self, job: &JobId) -> Option<Arc<TrainSpec>> {
        lock(&self.specs).get(job).cloned()
    }

    /// Nobody will ask for the job's settings any more.
    pub(super) fn forget_spec(&self, job: &JobId) {
        lock(&self.specs).remove(job);
    }

    pub(super) fn send(&self, input: Input) {
        // The loop is gone only when this engine is no longer active: then nobody wants the answer.
        let _ = self.queue.send(Message::Input(input));
    }

    /// Starts something for one life of a job.
    pub(super) fn spawn_for(
        &self,
        job: &JobId,
        generation: Generation,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        let handle = tokio::spawn(work).abort_handle();
        let mut running = lock(&self.running);
        let handles = running.entry((job.clone(), generation)).or_default();
        handles.retain(|h| !h.is_finished());
        handles.push(handle);
    }

    pub(super) fn dispatch(&self, effect: Effect) {
        match effect {
            Effect::Assign { worker, assignment } => self.sessions.assign(worker, assignment),
            Effect::AckReport { worker, key } => self.sessions.settle(worker, &key),
            Effect::Revoke { worker, key } => self.sessions.revoke(worker, &key),
            Effect::DismissWorker { worker, reason } => self.sessions.drop_worker(worker, &reason),
            Effect::OpenShards { job, generation } => self.open_shards(job, generation),
            Effect::Attach { job, generation, shard, floor } => {
                self.recheck_shard(job, generation, shard, floor)
            }
            Effect::LeaseBarrier { job, generation, order } => self.order_barrier(&job, generation, order),
            Effect::Clocks { job, generation, roster } => self.send_clock_roster(&job, generation, roster),
            Effect::Seal { job, generation, worker } => self.seal_worker(&job, generation, worker),
            Effect::Snapshot { key, version } => self.write_snapshot(key, version),
            Effect::CloseShards { job, generation, keep } => self.close_shards(&job, generation, keep),
            Effect::Plan(request) => self.plan(request),
        }
    }

    fn plan(&self, request: PlanRequest) {
        let dispatcher = self.clone();
        let points: u64 = request.rows.iter().map(|r| u64::from(r.points.count)).sum();
        let compute = move || {
            let plan = sync::plan(&request.rows, request.search_options);
            let PlanRequest { job, generation, superstep, revision, .. } = request;
            dispatcher.send(Input::Planned { job, generation, superstep, revision, plan });
        };
        if points <= INLINE_POINTS {
            compute();
        } else {
            tokio::task::spawn_blocking(compute);
        }
    }

    fn open_shards(&self, job: JobId, generation: Generation) {
        let (dispatcher, name) = (self.clone(), job.clone());
        self.spawn_for(&name, generation, async move {
            let Some(train) = dispatcher.train_spec(&job) else { return };
            let shards = dispatcher.shards.all_addresses().await;
            let each = dispatcher.shards.indices().map(|shard| {
                let order = OpenJob {
                    job: job.clone(),
                    generation,
                    shard,
                    shards: shards.clone(),
                    layout: train.model.layout.clone(),
                    optimizer: train.shard_optimizer(),
                    clip_norm: train.shard_clip_norm(),
                    initial: train.model.initial.clone(),
                };
                let dispatcher = &dispatcher;
                async move {
                    let opened = dispatcher
                        .shards
                        .call(shard, |c| {
                            let order = order.clone();
                            async move { c.open(within(LONG_CALL_TIMEOUT), dispatcher.epoch, order).await }
                        })
                        .await;
                    opened.map(|state| (shard, state))
                }
            });
            let mut closed = Vec::new();
            for opened in futures::future::join_all(each).await {
                match opened {
                    Ok((shard, state)) => closed.push((shard, state.closed)),
                    Err(fault) => return dispatcher.report_failure(&job, generation, &fault),
                }
            }
            for (shard, closed) in closed {
                dispatcher.watch_barriers(&job, generation, shard, closed);
            }
            dispatcher.send(Input::ShardsOpened { job, generation });
        });
    }

    pub(super) fn report_closed(
        &self,
        job: &JobId,
        generation: Generation,
        shard: ShardIndex,
        barrier: ClosedBarrier,
    ) {
        self.send(Input::BarrierClosed { job: job.clone(), generation, shard, barrier });
    }

    pub(super) fn watch_barriers(
        &self,
        job: &JobId,
        generation: Generation,
        shard: ShardIndex,
        mut seen: u64,
    ) {
        let (dispatcher, job) = (self.clone(), job.clone());
        self.spawn_for(&job.clone(), generation, async move {
            loop {
                let answer = dispatcher
                    .shards
                    .call(shard, |c| {
                        let job = job.clone();
                        async move {
                            c.closed(
                                within(CALL_TIMEOUT),
                                dispatcher.epoch,
                                job,
                                generation,
                                seen,
                                CLOSED_WAIT_MS,
                            )
                            .await
                        }
                    })
                    .await;
                match answer {
                    Ok(barriers) => {
                        for barrier in barriers {
                            seen = seen.max(barrier.superstep.0 + 1);
                            dispatcher.report_closed(&job, generation, shard, barrier);
                        }
                    }
                    Err(fault) => return dispatcher.report_failure(&job, generation, &fault),
                }
            }
        });
    }

    fn order_barrier(&self, job: &JobId, generation: Generation, order: BarrierOrder) {
        let (epoch, named) = (self.epoch, job.clone());
        self.order_all_shards(job, generation, move |c| {
            let (job, order) = (named.clone(), order.clone());
            async move { c.barrier(within(CALL_TIMEOUT), epoch, job, generation, order).await }
        });
    }

    fn send_clock_roster(&self, job: &JobId, generation: Generation, roster: ClockRoster) {
        let (epoch, named) = (self.epoch, job.clone());
        self.order_all_shards(job, generation, move |c| {
            let (job, roster) = (named.clone(), roster.clone());
            async move { c.clocks(within(CALL_TIMEOUT), epoch, job, generation, roster).await }
        });
    }

    /// Gives every shard an order that is answered with nothing but a fault.
    fn order_all_shards<F>(
        &self,
        job: &JobId,
        generation: Generation,
        order: impl Fn(ShardClient) -> F + Clone + Send + Sync + 'static,
    ) where
        F: Future<Output = Result<Result<(), ShardFault>, RpcError>> + Send,
    {
        for shard in self.shards.indices() {
            let (dispatcher, job, order) = (self.clone(), job.clone(), order.clone());
            self.spawn_for(&job.clone(), generation, async move {
                if let Err(fault) = dispatcher.shards.call(shard, order).await {
                    dispatcher.report_failure(&job, generation, &fault);
                }
            });
        }
    }

    fn seal_worker(&self, job: &JobId, generation: Generation, worker: Incarnation) {
        for shard in self.shards.indices() {
            let (dispatcher, job) = (self.clone(), job.clone());
            self.spawn_for(&job.clone(), generation, async move {
                let answer = dispatcher
                    .shards
                    .call(shard, |c| {
                        let job = job.clone();
                        async move {
                            c.seal(within(CALL_TIMEOUT), dispatcher.epoch, job, generation, worker).await
                        }
                    })
                    .await;
                match answer {
                    Ok(progress) => {
                        dispatcher.send(Input::Sealed { job, generation, worker, shard, progress });
                    }
                    Err(fault) => dispatcher.report_failure(&job, generation, &fault),
                }
            });
        }
    }

    fn write_snapshot(&self, key: TaskKey, version: u64) {
        let dispatcher = self.clone();
        self.spawn_for(&key.job.clone(), key.generation, async move {
            let answer = dispatcher
                .shards
                .call(ShardIndex(0), |c| {
                    let (job, name) = (key.job.clone(), key.task.to_string());
                    async move {
                        c.snapshot(
                            within(LONG_CALL_TIMEOUT),
                            dispatcher.epoch,
                            job,
                            key.generation,
                            Some(version),
                            name,
                        )
                        .await
                    }
                })
                .await;
            let outcome = snapshot_outcome(answer);
            dispatcher.send(Input::SnapshotWritten { key, outcome });
        });
    }

    /// Stops everything that was started for one life of a job, and lets the shards forget it; before that the shards
    /// write its last parameters if they are to be kept.
    fn close_shards(&self, job: &JobId, generation: Generation, keep: bool) {
        let handles = lock(&self.running).remove(&(job.clone(), generation)).unwrap_or_default();
        handles.iter().for_each(AbortHandle::abort);
        let (dispatcher, job) = (self.clone(), job.clone());
        self.spawn_for(&job.clone(), generation, async move {
            if keep {
                let outcome = dispatcher.save_last_weights(&job, generation).await;
                dispatcher.send(Input::WeightsKept { job: job.clone(), generation, outcome });
            }
            for shard in dispatcher.shards.indices() {
                let (dispatcher, job) = (dispatcher.clone(), job.clone());
                tokio::spawn(async move {
                    // A shard that is away is asked what it holds when it comes back.
                    let _ = dispatcher
                        .shards
                        .call_if_present(shard, |c| async move {
                            c.close(within(CALL_TIMEOUT), dispatcher.epoch, job, generation).await
                        })
                        .await;
                });
            }
        });
    }

    /// Lets the shards write the last parameters of a job. A full disk may be emptied: it is tried again until then.
    async fn save_last_weights(
        &self,
        job: &JobId,
        generation: Generation,
    ) -> Result<SnapshotFile, TaskFault> {
        let mut pause = Duration::from_secs(1);
        loop {
            let answer = self
                .shards
                .call_if_present(ShardIndex(0), |c| {
                    let job = job.clone();
                    async move {
                        let name = LAST_WEIGHTS.to_owned();
                        c.snapshot(within(LONG_CALL_TIMEOUT), self.epoch, job, generation, None, name).await
                    }
                })
                .await;
            let fault = match answer {
                Some(Ok(Err(fault @ ShardFault::Io { .. }))) => fault.to_string(),
                Some(Ok(answer)) => return snapshot_outcome(answer),
                Some(Err(error)) => error.to_string(),
                None => "shard 0 is not there".to_owned(),
            };
            warn!(%job, error = fault, again_in_s = pause.as_secs(), "cannot keep the job's last weights yet");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    pub(super) fn report_failure(&self, job: &JobId, generation: Generation, fault: &ShardFault) {
        // A newer engine owns the shard: this one is about to find out, and the job is not to blame.
        if matches!(fault, ShardFault::Fenced { .. }) {
            let _ = self.queue.send(Message::Deposed);
            return;
        }
        let (code, reason) = match fault {
            // A running job is open everywhere: a shard that does not know it was started again.
            ShardFault::UnknownJob { .. } => {
                ("E220", format!("a parameter shard has lost its part: {fault}"))
            }
            other => (other.code(), other.to_string()),
        };
        self.send(Input::ShardFailed { job: job.clone(), generation, code: code.to_owned(), reason });
    }

    /// Stops everything that was started.
    pub(super) fn stop(&self) {
        let mut running = lock(&self.running);
        for handle in running.drain().flat_map(|(_, handles)| handles) {
            handle.abort();
        }
    }
}
