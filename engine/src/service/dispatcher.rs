//! Carries out what the core decided, once it is committed.

use std::{
    collections::{BTreeMap, HashMap},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, Mutex},
    time::Duration,
};

use syncline_rpc::{EngineFault, ShardFault};
use syncline_scheduler::{
    core::{Core, Effect, Input},
    fault_code::FaultCode,
    ids::{EngineEpoch, JobId, RunId},
    spec::{TrainSpec, ValidJob},
    sync::{self, PlanRequest},
};
use tokio::{
    sync::{Semaphore, oneshot},
    task::AbortHandle,
};

use super::{
    clock::Clock,
    damaged_jobs::Damage,
    job_ends::JobEnds,
    loop_pulse::LoopPulse,
    message::Message,
    queue::{DecisionQueue, loop_ended},
    sessions::{Sessions, lock},
    shards::ShardDirectory,
    snapshots::SNAPSHOTS_AT_ONCE,
    store_outage::StoreOutage,
};

/// Limit of a call to a shard that answers at once.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit of a call to a shard that reads or writes parameters on disk.
pub(super) const LONG_CALL_TIMEOUT: Duration = Duration::from_secs(600);
/// Rows times lookahead up to which a plan is computed in place: well under a millisecond.
const INLINE_POINTS: u64 = 4_096;

/// Carries out the effects of the active engine. Everything it starts for a job ends when the job is closed.
#[derive(Clone)]
pub(super) struct EffectDispatcher {
    pub epoch: EngineEpoch,
    pub sessions: Sessions,
    pub shards: ShardDirectory,
    pub queue: DecisionQueue,
    pub store_outage: StoreOutage,
    /// Of the loop that decides.
    pub pulse: LoopPulse,
    pub job_ends: JobEnds,
    /// A place for each snapshot that is being written.
    pub(super) snapshot_slots: Arc<Semaphore>,
    /// Blobs that are to be removed, and that no shard was told of.
    pub released: Arc<Mutex<Vec<String>>>,
    /// Training settings of the jobs that are not over.
    specs: Arc<Mutex<BTreeMap<JobId, Arc<TrainSpec>>>>,
    /// Jobs that are to be listed, in their order.
    listed: Arc<Mutex<Vec<JobId>>>,
    /// Jobs whose records cannot be used, with what is wrong with them.
    damaged: Arc<Mutex<BTreeMap<JobId, Damage>>>,
    /// Tasks that were started for each run of a job.
    running: Arc<Mutex<HashMap<RunId, Vec<AbortHandle>>>>,
    pub(super) clock: Clock,
}

impl EffectDispatcher {
    pub(super) fn new(
        epoch: EngineEpoch,
        sessions: Sessions,
        shards: ShardDirectory,
        queue: DecisionQueue,
        clock: Clock,
    ) -> Self {
        let (job_ends, released, specs, listed, damaged, running) = Default::default();
        Self {
            epoch,
            sessions,
            shards,
            queue,
            store_outage: StoreOutage::default(),
            pulse: LoopPulse::default(),
            job_ends,
            snapshot_slots: Arc::new(Semaphore::new(SNAPSHOTS_AT_ONCE)),
            released,
            specs,
            listed,
            damaged,
            running,
            clock,
        }
    }

    /// Puts a job at the end of the list.
    pub(super) fn list(&self, job: &JobId) {
        let mut listed = lock(&self.listed);
        listed.retain(|other| other != job);
        listed.push(job.clone());
    }

    pub(super) fn unlist(&self, job: &JobId) {
        lock(&self.listed).retain(|other| other != job);
    }

    /// The jobs that are to be listed, in their order.
    pub(super) fn listed(&self) -> Vec<JobId> {
        lock(&self.listed).clone()
    }

    /// Parks a job that cannot be used.
    pub(super) fn mark_damaged(&self, job: &JobId, damage: Damage) {
        lock(&self.damaged).insert(job.clone(), damage);
    }

    /// What is wrong with a job that is parked.
    pub(super) fn damaged(&self, job: &JobId) -> Option<Damage> {
        lock(&self.damaged).get(job).cloned()
    }

    /// The job is not parked any more.
    pub(super) fn clear_damaged(&self, job: &JobId) {
        lock(&self.damaged).remove(job);
    }

    /// Keeps a job's training settings in memory for workers and shards.
    pub(super) fn remember_spec(&self, job: &ValidJob) {
        lock(&self.specs).insert(job.id.clone(), Arc::new(job.train().clone()));
    }

    /// The job's training settings, if it trains.
    pub(super) fn train_spec(&self, job: &JobId) -> Option<Arc<TrainSpec>> {
        lock(&self.specs).get(job).cloned()
    }

    /// Drops the job's settings: it is over.
    pub(super) fn forget_spec(&self, job: &JobId) {
        lock(&self.specs).remove(job);
    }

    /// Sends an input to the decision loop.
    pub(super) fn send(&self, input: Input) {
        self.queue.send(Message::Input(input));
    }

    /// As [`EffectDispatcher::send`], with an error once the loop has ended.
    pub(super) fn try_send(&self, input: Input) -> Result<(), EngineFault> {
        self.queue.send(Message::Input(input)).then_some(()).ok_or_else(loop_ended)
    }

    /// Sends an input to the decision loop and waits until it is committed, or refused.
    pub(super) async fn commit_input(&self, input: Input) -> Result<(), EngineFault> {
        self.queue.request(input).await?.await.map_err(|_| loop_ended())?
    }

    /// Asks the core something, between two turns of the decision loop. A panic is that of whoever asks: the core was only
    /// looked at.
    pub(super) async fn query<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Core) -> T + Send + 'static,
    ) -> Result<T, EngineFault> {
        let (reply, found) = oneshot::channel();
        let look = Box::new(|core: &Core| drop(reply.send(catch_unwind(AssertUnwindSafe(|| look(core))))));
        self.queue.query(look).await?;
        Ok(found.await.map_err(|_| loop_ended())?.unwrap_or_else(|panic| resume_unwind(panic)))
    }

    /// Refuses at once what cannot be committed now, with the reason.
    pub(super) fn check_writable(&self) -> Result<(), EngineFault> {
        self.store_outage.cause().map_or(Ok(()), |cause| Err(EngineFault::Store { cause }))
    }

    /// Starts work that ends with one run of a job.
    pub(super) fn spawn_for(&self, run: &RunId, work: impl Future<Output = ()> + Send + 'static) {
        let handle = tokio::spawn(work).abort_handle();
        let mut running = lock(&self.running);
        running.retain(|_, handles| {
            handles.retain(|handle| !handle.is_finished());
            !handles.is_empty()
        });
        running.entry(run.clone()).or_default().push(handle);
    }

    /// Aborts everything that was started for one run of a job.
    pub(super) fn abort_all_for(&self, run: &RunId) {
        let handles = lock(&self.running).remove(run).unwrap_or_default();
        handles.iter().for_each(AbortHandle::abort);
    }

    /// Aborts everything that was started for earlier runs of a job.
    pub(super) fn abort_all_before(&self, run: &RunId) {
        let earlier: Vec<RunId> =
            lock(&self.running).keys().filter(|other| run.follows(other)).cloned().collect();
        earlier.iter().for_each(|run| self.abort_all_for(run));
    }

    /// Carries out one effect; what takes time goes on in the background.
    pub(super) fn dispatch(&self, effect: Effect) {
        match effect {
            Effect::Assign { worker, assignment } => self.sessions.assign(worker, assignment),
            Effect::AckReport { worker, key } => self.sessions.settle(worker, &key),
            Effect::Revoke { worker, key } => self.sessions.revoke(worker, &key),
            Effect::DismissWorker { worker, reason } => self.sessions.drop_worker(worker, &reason),
            Effect::OpenShards { run, checkpoint } => {
                self.open_shards(run, checkpoint);
            }
            Effect::PinCheckpoint { run, number } => {
                self.pin_checkpoint(&run, number);
            }
            Effect::WriteCheckpoint { run, number } => {
                self.write_checkpoint(&run, number);
            }
            Effect::KeepCheckpoints { run, numbers, through } => {
                self.keep_checkpoints(&run, numbers, through);
            }
            Effect::Attach { run, shard, floor } => self.recheck_shard(run, shard, floor),
            Effect::OrderBarrier { run, order } => self.order_barrier(&run, order),
            Effect::Clocks { run, roster } => self.send_clock_roster(&run, roster),
            Effect::Seal { run, worker } => self.seal_worker(&run, worker),
            Effect::Snapshot { key, version } => self.write_snapshot(key, version),
            Effect::CloseShards { run, keep } => self.close_shards(&run, keep),
            Effect::Plan(request) => self.plan(request),
            Effect::Orders { worker, orders } => self.sessions.order(worker, orders),
            Effect::ReleaseBlobs { digests } => self.release_blobs(digests),
        }
    }

    fn plan(&self, request: PlanRequest) {
        let dispatcher = self.clone();
        let points: u64 = request.rows.iter().map(|r| u64::from(r.points.count)).sum();
        let compute = move || {
            let plan = sync::plan(&request.rows, request.search_options);
            let PlanRequest { run, superstep, revision, .. } = request;
            dispatcher.send(Input::Planned { run, superstep, revision, plan });
        };
        if points <= INLINE_POINTS {
            compute();
        } else {
            tokio::task::spawn_blocking(compute);
        }
    }

    /// A shard follows an engine of a higher epoch.
    pub(super) fn deposed_by(&self, highest: EngineEpoch) {
        self.shards.note_epoch(highest);
        self.queue.send(Message::Deposed);
    }

    /// Tells the loop that a shard refused an order of a job; or that another engine leads, if that is why.
    pub(super) fn report_failure(&self, run: &RunId, fault: &ShardFault) {
        // A newer engine owns the shard: this one is about to find out, and the job is not to blame.
        if let ShardFault::Fenced { highest, .. } = fault {
            return self.deposed_by(*highest);
        }
        let (code, reason) = match fault {
            // A running job is open everywhere: a shard that does not know it was started again.
            ShardFault::UnknownJob { .. } => {
                (FaultCode::PARAMETERS_LOST, format!("a parameter shard has lost its part: {fault}"))
            }
            other => (FaultCode::new(other.code()), other.to_string()),
        };
        self.send(Input::ShardFailed { run: run.clone(), code, reason });
    }

    /// Stops everything that was started.
    pub(super) fn stop(&self) {
        let mut running = lock(&self.running);
        for handle in running.drain().flat_map(|(_, handles)| handles) {
            handle.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use syncline_rpc::InactiveReason;
    use syncline_scheduler::ids::Generation;

    use super::*;
    use crate::service::fake_shard::dispatcher;

    fn run(generation: u64) -> RunId {
        RunId { job: "digits".parse().unwrap(), generation: Generation(generation) }
    }

    #[tokio::test]
    async fn what_a_shard_refuses_fails_the_job_unless_another_engine_leads() {
        let (dispatcher, mut inbox) = dispatcher();
        let (run, highest) = (run(1), EngineEpoch(9));
        let job = run.job.clone();
        dispatcher.report_failure(&run, &ShardFault::UnknownJob { job: job.clone() });
        dispatcher.report_failure(&run, &ShardFault::NotPinned { job, wanted: 1 });
        dispatcher.report_failure(&run, &ShardFault::Fenced { given: dispatcher.epoch, highest });
        for expected in ["E220", "E407"] {
            let input = inbox.input().await;
            assert!(
                matches!(&input, Input::ShardFailed { code, .. } if *code == FaultCode::new(expected)),
                "{input:?}"
            );
        }
        assert!(matches!(inbox.next().await, Message::Deposed));
    }

    #[tokio::test]
    async fn what_runs_for_a_job_ends_with_its_run_and_all_of_it_with_the_engine() {
        let (dispatcher, _inbox) = dispatcher();
        let start = |run| {
            let (running, ended) = oneshot::channel::<()>();
            dispatcher.spawn_for(&run, async move {
                std::future::pending::<()>().await;
                drop(running);
            });
            ended
        };
        let (first, mut second) = (start(run(1)), start(run(2)));
        dispatcher.abort_all_for(&run(1));
        assert!(first.await.is_err(), "aborted");
        assert!(second.try_recv().is_err_and(|e| e == oneshot::error::TryRecvError::Empty));
        dispatcher.stop();
        assert!(second.await.is_err(), "aborted");
    }

    #[tokio::test]
    async fn what_is_asked_of_a_loop_that_ended_is_refused() {
        let (dispatcher, inbox) = dispatcher();
        drop(inbox);
        let changing = Err(EngineFault::NotActive { why: InactiveReason::Changing });
        assert_eq!(dispatcher.commit_input(Input::Tick).await, changing);
        assert_eq!(dispatcher.try_send(Input::Tick), changing);
    }

    #[tokio::test]
    async fn a_loop_that_ends_before_it_answers_leaves_no_caller_waiting() {
        let (dispatcher, mut inbox) = dispatcher();
        let (answer, ()) = tokio::join!(dispatcher.commit_input(Input::Tick), async {
            drop(inbox.next().await);
        });
        assert_eq!(answer, Err(EngineFault::NotActive { why: InactiveReason::Changing }));
    }

    #[tokio::test]
    async fn a_panic_at_a_look_at_the_core_is_that_of_whoever_looks() {
        let (dispatcher, mut inbox) = dispatcher();
        let asking = tokio::spawn(async move { dispatcher.query::<()>(|_| panic!("not there")).await });
        let Message::Query { look, .. } = inbox.next().await else { panic!("another message") };
        look(&Core::new(1));
        assert!(asking.await.unwrap_err().is_panic());
    }

    #[test]
    fn nothing_is_taken_in_while_redis_takes_no_writes() {
        let (dispatcher, _inbox) = dispatcher();
        assert_eq!(dispatcher.check_writable(), Ok(()));
        dispatcher.store_outage.set_commit_failure(Some("disk full".into()));
        assert_eq!(dispatcher.check_writable(), Err(EngineFault::Store { cause: "disk full".into() }));
    }
}
