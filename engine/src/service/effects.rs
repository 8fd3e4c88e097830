//! Carries out what the core decided, once it is committed.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use syncline_scheduler::{
    core::{
        Barrier, ClockRoster, Effect, Input, PushProgress, ShardProgress, SnapshotFile, TaskFault, TaskKey,
    },
    ids::{EngineEpoch, Generation, Incarnation, JobId, ShardIndex},
    spec::{JobSpec, TrainSpec},
    sync::{self, PlanRequest},
};
use tarpc::client::RpcError;
use tokio::{sync::mpsc, task::AbortHandle};
use tracing::warn;

use super::{clock::Clock, message::Message, sessions::Sessions, shards::Shards, trouble::Trouble};
use crate::rpc::{BarrierOrder, ClockOrder, OpenJob, ShardClient, ShardFault, SnapshotReport, within};

pub(super) const CALL: Duration = Duration::from_secs(10);
const LONG_CALL: Duration = Duration::from_secs(600);
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
fn written(answer: Result<SnapshotReport, ShardFault>) -> Result<SnapshotFile, TaskFault> {
    match answer {
        Ok(r) => Ok(SnapshotFile { path: r.path, bytes: r.bytes, digest: r.digest }),
        Err(fault) => Err(TaskFault { code: fault.code().to_owned(), reason: fault.to_string() }),
    }
}

/// One life of a job.
type Life = (JobId, Generation);

/// The hands of the engine. Everything it starts for a job ends when the job is closed.
#[derive(Clone)]
pub(super) struct Hands {
    pub epoch: EngineEpoch,
    pub sessions: Sessions,
    pub shards: Shards,
    pub queue: mpsc::UnboundedSender<Message>,
    pub trouble: Trouble,
    specs: Arc<Mutex<BTreeMap<JobId, Arc<TrainSpec>>>>,
    /// Jobs whose records cannot be used, with what is wrong with them.
    damaged: Arc<Mutex<BTreeMap<JobId, String>>>,
    running: Arc<Mutex<HashMap<Life, Vec<AbortHandle>>>>,
    pub(super) clock: Clock,
}

impl Hands {
    pub(super) fn new(
        epoch: EngineEpoch,
        sessions: Sessions,
        shards: Shards,
        queue: mpsc::UnboundedSender<Message>,
        clock: Clock,
    ) -> Self {
        let (specs, damaged, running) = Default::default();
        Self { epoch, sessions, shards, queue, trouble: Trouble::default(), specs, damaged, running, clock }
    }

    /// Parks a job that cannot be used.
    pub(super) fn park(&self, job: &JobId, reason: String) {
        lock(&self.damaged).insert(job.clone(), reason);
    }

    /// What is wrong with a job that is parked.
    pub(super) fn damaged(&self, job: &JobId) -> Option<String> {
        lock(&self.damaged).get(job).cloned()
    }

    /// The job is not parked any more.
    pub(super) fn mend(&self, job: &JobId) {
        lock(&self.damaged).remove(job);
    }

    /// Keeps a job's training settings at hand for workers and shards.
    pub(super) fn learn(&self, spec: &JobSpec) {
        if let Some((_, train)) = spec.train() {
            lock(&self.specs).insert(spec.id.clone(), Arc::new(train.clone()));
        }
    }

    pub(super) fn train(&self, job: &JobId) -> Option<Arc<TrainSpec>> {
        lock(&self.specs).get(job).cloned()
    }

    /// Nobody will ask for the job's settings any more.
    pub(super) fn unlearn(&self, job: &JobId) {
        lock(&self.specs).remove(job);
    }

    pub(super) fn send(&self, input: Input) {
        // The loop is gone only when this engine is no longer active: then nobody wants the answer.
        let _ = self.queue.send(Message::Input(input));
    }

    /// Starts something for one life of a job.
    pub(super) fn start(
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

    pub(super) fn carry_out(&self, effect: Effect) {
        match effect {
            Effect::Assign { worker, assignment } => self.sessions.assign(worker, assignment),
            Effect::AckReport { worker, key } => self.sessions.settle(worker, &key),
            Effect::Revoke { worker, key } => self.sessions.revoke(worker, &key),
            Effect::DismissWorker { worker, reason } => self.sessions.drop(worker, &reason),
            Effect::OpenShards { job, generation } => self.open(job, generation),
            Effect::Attach { job, generation, shard, floor } => self.compare(job, generation, shard, floor),
            Effect::LeaseBarrier { job, generation, barrier } => self.order(&job, generation, &barrier),
            Effect::Clocks { job, generation, roster } => self.clocks(&job, generation, roster),
            Effect::Seal { job, generation, worker } => self.seal(&job, generation, worker),
            Effect::Snapshot { key, version } => self.snapshot(key, version),
            Effect::CloseShards { job, generation, keep } => self.close(&job, generation, keep),
            Effect::Plan(request) => self.plan(request),
        }
    }

    fn plan(&self, request: PlanRequest) {
        let hands = self.clone();
        let points: u64 = request.rows.iter().map(|r| u64::from(r.points.count)).sum();
        let compute = move || {
            let plan = sync::plan(&request.rows, request.search_options);
            let PlanRequest { job, generation, superstep, revision, .. } = request;
            hands.send(Input::Planned { job, generation, superstep, revision, plan });
        };
        if points <= INLINE_POINTS {
            compute();
        } else {
            tokio::task::spawn_blocking(compute);
        }
    }

    fn open(&self, job: JobId, generation: Generation) {
        let (hands, name) = (self.clone(), job.clone());
        self.start(&name, generation, async move {
            let Some(train) = hands.train(&job) else { return };
            let shards = hands.shards.all_addresses().await;
            let each = hands.shards.indices().map(|shard| {
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
                let hands = &hands;
                async move {
                    let opened = hands
                        .shards
                        .call(shard, |c| {
                            let order = order.clone();
                            async move { c.open(within(LONG_CALL), hands.epoch, order).await }
                        })
                        .await;
                    opened.map(|state| (shard, state))
                }
            });
            let mut closed = Vec::new();
            for opened in futures::future::join_all(each).await {
                match opened {
                    Ok((shard, state)) => closed.push((shard, state.closed)),
                    Err(fault) => return hands.failed(&job, generation, &fault),
                }
            }
            for (shard, closed) in closed {
                hands.watch(&job, generation, shard, closed);
            }
            hands.send(Input::ShardsOpened { job, generation });
        });
    }

    pub(super) fn closed(
        &self,
        job: &JobId,
        generation: Generation,
        shard: ShardIndex,
        progress: ShardProgress,
    ) {
        if progress.closed > 0 {
            self.send(Input::BarrierClosed { job: job.clone(), generation, shard, progress });
        }
    }

    pub(super) fn watch(&self, job: &JobId, generation: Generation, shard: ShardIndex, mut seen: u64) {
        let (hands, job) = (self.clone(), job.clone());
        self.start(&job.clone(), generation, async move {
            loop {
                let answer = hands
                    .shards
                    .call(shard, |c| {
                        let job = job.clone();
                        async move {
                            c.closed(within(CALL), hands.epoch, job, generation, seen, CLOSED_WAIT_MS).await
                        }
                    })
                    .await;
                match answer {
                    Ok(barriers) => {
                        for barrier in barriers {
                            seen = seen.max(barrier.superstep.0 + 1);
                            let (closed_ago_us, pushes) = (barrier.closed_ago_us, barrier.pushes);
                            hands.closed(
                                &job,
                                generation,
                                shard,
                                ShardProgress { closed: seen, closed_ago_us, pushes },
                            );
                        }
                    }
                    Err(fault) => return hands.failed(&job, generation, &fault),
                }
            }
        });
    }

    fn order(&self, job: &JobId, generation: Generation, barrier: &Barrier) {
        let order = BarrierOrder {
            superstep: barrier.superstep,
            revision: barrier.revision,
            roster: barrier.roster.clone(),
            rule: barrier.rule,
            learning_rate: barrier.learning_rate,
            pin: barrier.pin,
        };
        let (epoch, named) = (self.epoch, job.clone());
        self.tell(job, generation, move |c| {
            let (job, order) = (named.clone(), order.clone());
            async move { c.barrier(within(CALL), epoch, job, generation, order).await }
        });
    }

    fn clocks(&self, job: &JobId, generation: Generation, roster: ClockRoster) {
        let order = ClockOrder { revision: roster.revision, base: roster.base };
        let (epoch, named) = (self.epoch, job.clone());
        self.tell(job, generation, move |c| {
            let (job, order) = (named.clone(), order.clone());
            async move { c.clocks(within(CALL), epoch, job, generation, order).await }
        });
    }

    /// Gives every shard an order that is answered with nothing but a fault.
    fn tell<F>(
        &self,
        job: &JobId,
        generation: Generation,
        order: impl Fn(ShardClient) -> F + Clone + Send + Sync + 'static,
    ) where
        F: Future<Output = Result<Result<(), ShardFault>, RpcError>> + Send,
    {
        for shard in self.shards.indices() {
            let (hands, job, order) = (self.clone(), job.clone(), order.clone());
            self.start(&job.clone(), generation, async move {
                if let Err(fault) = hands.shards.call(shard, order).await {
                    hands.failed(&job, generation, &fault);
                }
            });
        }
    }

    fn seal(&self, job: &JobId, generation: Generation, worker: Incarnation) {
        for shard in self.shards.indices() {
            let (hands, job) = (self.clone(), job.clone());
            self.start(&job.clone(), generation, async move {
                let answer = hands
                    .shards
                    .call(shard, |c| {
                        let job = job.clone();
                        async move { c.seal(within(CALL), hands.epoch, job, generation, worker).await }
                    })
                    .await;
                match answer {
                    Ok(a) => {
                        let progress = PushProgress { watermark: a.watermark, partial: a.partial };
                        hands.send(Input::Sealed { job, generation, worker, shard, progress });
                    }
                    Err(fault) => hands.failed(&job, generation, &fault),
                }
            });
        }
    }

    fn snapshot(&self, key: TaskKey, version: u64) {
        let hands = self.clone();
        self.start(&key.job.clone(), key.generation, async move {
            let answer = hands
                .shards
                .call(ShardIndex(0), |c| {
                    let (job, name) = (key.job.clone(), key.task.to_string());
                    async move {
                        c.snapshot(within(LONG_CALL), hands.epoch, job, key.generation, Some(version), name)
                            .await
                    }
                })
                .await;
            let outcome = written(answer);
            hands.send(Input::SnapshotWritten { key, outcome });
        });
    }

    /// Stops everything that was started for one life of a job, and lets the shards forget it; before that the shards
    /// write its last parameters if they are to be kept.
    fn close(&self, job: &JobId, generation: Generation, keep: bool) {
        let handles = lock(&self.running).remove(&(job.clone(), generation)).unwrap_or_default();
        handles.iter().for_each(AbortHandle::abort);
        let (hands, job) = (self.clone(), job.clone());
        self.start(&job.clone(), generation, async move {
            if keep {
                let outcome = hands.keep_weights(&job, generation).await;
                hands.send(Input::WeightsKept { job: job.clone(), generation, outcome });
            }
            for shard in hands.shards.indices() {
                let (hands, job) = (hands.clone(), job.clone());
                tokio::spawn(async move {
                    // A shard that is away is asked what it holds when it comes back.
                    let _ = hands
                        .shards
                        .call_if_there(shard, |c| async move {
                            c.close(within(CALL), hands.epoch, job, generation).await
                        })
                        .await;
                });
            }
        });
    }

    /// Lets the shards write the last parameters of a job. A full disk may be emptied: it is tried again until then.
    async fn keep_weights(&self, job: &JobId, generation: Generation) -> Result<SnapshotFile, TaskFault> {
        let mut pause = Duration::from_secs(1);
        loop {
            let answer = self
                .shards
                .call_if_there(ShardIndex(0), |c| {
                    let job = job.clone();
                    async move {
                        let name = LAST_WEIGHTS.to_owned();
                        c.snapshot(within(LONG_CALL), self.epoch, job, generation, None, name).await
                    }
                })
                .await;
            let fault = match answer {
                Some(Ok(Err(fault @ ShardFault::Io { .. }))) => fault.to_string(),
                Some(Ok(answer)) => return written(answer),
                Some(Err(error)) => error.to_string(),
                None => "shard 0 is not there".to_owned(),
            };
            warn!(%job, error = fault, again_in_s = pause.as_secs(), "cannot keep the job's last weights yet");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    pub(super) fn failed(&self, job: &JobId, generation: Generation, fault: &ShardFault) {
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
