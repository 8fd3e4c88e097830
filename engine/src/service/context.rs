//! The engine's side of every call: thin translations into messages for the loop.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use syncline_scheduler::{
    core::{BarrierExplanation, Input, Job, Submission, TaskExplanation, TaskReport, WorkerInfo},
    graph::TaskId,
    ids::{EngineEpoch, Incarnation, JobId, ShardIndex, Superstep},
    spec::JobSpec,
};
use tarpc::context::Context;
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{info, warn};

use super::{
    blob_gc::collect_blobs,
    dispatcher::EffectDispatcher,
    message::Message,
    run::Limits,
    sessions::{Sessions, WorkerStatus},
    shards::{Announcement, ShardDirectory},
};
use crate::{
    rpc::{
        Activity, ClientService, Collected, EngineFault, Enrolment, InactiveReason, JobFields, JobTicket,
        JobView, Orders, Registered, ShardHello, ShardRegistry, WorkerFields, WorkerHello, WorkerService,
        within,
    },
    store::{RedisStore, StoreError, keys::JobKeys},
};

/// A shard announces itself twice a second; a longer silence is shown.
const SILENCE_SHOWN_AFTER: Duration = Duration::from_secs(2);
/// How long a read may take while Redis is known to be in trouble.
const READ_TIMEOUT_IN_OUTAGE: Duration = Duration::from_millis(500);
/// Longest wait of one poll.
const MAX_POLL_WAIT: Duration = Duration::from_secs(20);

/// What every connection shares.
#[derive(Clone)]
pub(super) struct ServiceContext {
    /// The dispatcher of the active engine, or why this one is not.
    pub active: watch::Receiver<Result<EffectDispatcher, InactiveReason>>,
    pub store: RedisStore,
    pub shards: ShardDirectory,
    pub limits: Limits,
    pub about: Arc<BTreeMap<String, String>>,
}

impl ServiceContext {
    pub(super) fn dispatcher(&self) -> Result<EffectDispatcher, EngineFault> {
        self.active.borrow().clone().map_err(|why| EngineFault::NotActive { why })
    }

    /// Addresses of all shards in order, or how many are missing.
    fn all_shards(&self) -> Result<Vec<String>, EngineFault> {
        self.shards.addresses().ok_or_else(|| self.shards.missing_fault())
    }

    /// Sends an input to the loop and waits for its commit; not while Redis takes no writes.
    async fn ask(&self, input: Input) -> Result<EngineEpoch, EngineFault> {
        let dispatcher = self.dispatcher()?;
        dispatcher.check_writable()?;
        ask(&dispatcher.queue, input).await?;
        Ok(dispatcher.epoch)
    }
}

/// Redis did not answer, or refused.
pub(super) fn store_fault(error: StoreError) -> EngineFault {
    EngineFault::Store { cause: error.to_string() }
}

impl EffectDispatcher {
    /// Refuses at once what cannot be committed now, with the reason.
    fn check_writable(&self) -> Result<(), EngineFault> {
        self.store_outage.cause().map_or(Ok(()), |cause| Err(EngineFault::Store { cause }))
    }
}

impl ServiceContext {
    /// Reads from Redis; briefly, if it is known to be in trouble.
    async fn read_store<T>(
        &self,
        read: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, EngineFault> {
        let Some(cause) = self.dispatcher()?.store_outage.cause() else {
            return read.await.map_err(store_fault);
        };
        match tokio::time::timeout(READ_TIMEOUT_IN_OUTAGE, read).await {
            Ok(value) => value.map_err(store_fault),
            Err(_) => Err(EngineFault::Store { cause }),
        }
    }

    /// What stands in the way of every job right now, in words.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(cause) = self.dispatcher().ok().and_then(|h| h.store_outage.cause()) {
            notes.push(format!("Redis takes no writes, nothing is granted until it does: {cause}"));
        }
        notes.extend(self.shard_notes());
        notes
    }

    /// Which shards are missing or silent, in words.
    fn shard_notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let known = self.shards.all();
        for index in self.shards.indices() {
            match known.iter().find(|k| k.hello.index == index) {
                None => notes.push(format!("parameter shard {index} is not there")),
                Some(shard) if shard.seen.elapsed() > SILENCE_SHOWN_AFTER => notes.push(format!(
                    "parameter shard {index} at {} has been silent for {:.1} s; it counts as lost after {:.0} s",
                    shard.hello.address,
                    shard.seen.elapsed().as_secs_f64(),
                    self.limits.shard_silence.as_secs_f64(),
                )),
                Some(_) => {}
            }
        }
        notes
    }
}

async fn ask(queue: &mpsc::UnboundedSender<Message>, input: Input) -> Result<(), EngineFault> {
    let (answer, asked) = oneshot::channel();
    queue.send(Message::Request(input, answer)).map_err(|_| not_active())?;
    asked.await.map_err(|_| not_active())?
}

/// The loop ended while something was asked of it.
fn not_active() -> EngineFault {
    EngineFault::NotActive { why: InactiveReason::Changing }
}

/// Serves one worker's connection.
#[derive(Clone)]
pub(super) struct WorkerHandler {
    pub context: ServiceContext,
    /// Number of this connection, never 0.
    pub connection: u64,
    /// Who was heard on this connection, so that its end can be noticed.
    pub last_worker: Arc<Mutex<Option<Incarnation>>>,
}

impl WorkerHandler {
    /// Notes where a worker is heard. Refuses one whose number belongs to another by now.
    fn identify(&self, who: Enrolment, sessions: &Sessions) -> Result<Incarnation, EngineFault> {
        let worker = who.incarnation;
        if sessions.is_superseded(who) {
            return Err(EngineFault::Dropped);
        }
        sessions.set_connection(worker, self.connection);
        *self.last_worker.lock().unwrap_or_else(PoisonError::into_inner) = Some(worker);
        Ok(worker)
    }
}

impl WorkerService for WorkerHandler {
    async fn register(self, _: Context, hello: WorkerHello) -> Result<Registered, EngineFault> {
        let dispatcher = self.context.dispatcher()?;
        dispatcher.check_writable()?;
        let incarnation = self.context.store.next_incarnation().await.map_err(store_fault)?;
        let WorkerHello { name, host, pid, device, max_batch } = hello;
        let about = WorkerInfo { name, host, device, pid, max_batch };
        info!(worker = %incarnation, name = about.name, host = about.host, "worker registered");
        let silence_ms = u64::try_from(self.context.limits.worker_silence.as_millis()).unwrap_or(u64::MAX);
        let registered = Registered { epoch: dispatcher.epoch, incarnation, silence_ms };
        dispatcher.sessions.register(registered.enrolment(), about.clone());
        self.identify(registered.enrolment(), &dispatcher.sessions)?;
        ask(&dispatcher.queue, Input::WorkerJoined { worker: incarnation, about }).await?;
        Ok(registered)
    }

    async fn poll(
        self,
        _: Context,
        who: Enrolment,
        activity: Activity,
        wait_ms: u64,
    ) -> Result<Orders, EngineFault> {
        let dispatcher = self.context.dispatcher()?;
        let worker = self.identify(who, &dispatcher.sessions)?;
        let wait = Duration::from_millis(wait_ms).min(MAX_POLL_WAIT);
        let (assignments, revoked) =
            dispatcher.sessions.next_orders(worker, activity, wait).await.ok_or(EngineFault::Dropped)?;
        let shards = dispatcher.shards.addresses().unwrap_or_default();
        Ok(Orders { epoch: dispatcher.epoch, assignments, revoked, shards })
    }

    async fn report(
        self,
        _: Context,
        who: Enrolment,
        mut reports: Vec<TaskReport>,
    ) -> Result<EngineEpoch, EngineFault> {
        let dispatcher = self.context.dispatcher()?;
        let worker = self.identify(who, &dispatcher.sessions)?;
        // The report of a worker that was dropped may still be true: the core knows what to make of it.
        dispatcher.sessions.touch(worker);
        dispatcher.check_writable()?;
        let _alone = dispatcher.sessions.lock_reports(worker).await;
        // They are handled in order, so that the last one's commit covers them all.
        if let Some(last) = reports.pop() {
            for report in reports {
                let input = Input::Report { worker, report };
                dispatcher.queue.send(Message::Input(input)).map_err(|_| not_active())?;
            }
            ask(&dispatcher.queue, Input::Report { worker, report: last }).await?;
        }
        Ok(dispatcher.epoch)
    }

    async fn ticket(self, _: Context, job: JobId) -> Result<JobTicket, EngineFault> {
        let dispatcher = self.context.dispatcher()?;
        let train = dispatcher.train_spec(&job).ok_or(EngineFault::UnknownJob { job })?;
        let shards = dispatcher.shards.all_addresses().await;
        Ok(JobTicket { epoch: dispatcher.epoch, train: (*train).clone(), shards })
    }

    async fn leave(self, _: Context, who: Enrolment) -> Result<(), EngineFault> {
        let dispatcher = self.context.dispatcher()?;
        let worker = self.identify(who, &dispatcher.sessions)?;
        dispatcher.sessions.close(worker);
        self.context.ask(Input::WorkerGone { worker, reason: "said goodbye".into() }).await.map(drop)
    }
}

/// Serves one shard's connection.
#[derive(Clone)]
pub(super) struct ShardHandler(pub ServiceContext);

impl ShardRegistry for ShardHandler {
    async fn announce(self, _: Context, hello: ShardHello) -> Result<EngineEpoch, EngineFault> {
        let expected = self.0.shards.count();
        if hello.count != expected || hello.index.0 >= expected {
            return Err(EngineFault::MissingShards { present: hello.count, expected });
        }
        let (index, address) = (hello.index, hello.address.clone());
        // The active engine must hear of it, and there may be one elsewhere.
        let dispatcher = self.0.dispatcher()?;
        let epoch = dispatcher.epoch;
        match self.0.shards.announce(hello, epoch).await {
            Announcement::Known => {}
            Announcement::Taken(holder) => {
                warn!(shard = %index, address, holder, "a second process wants the place of a shard that answers");
                return Err(EngineFault::ShardTaken { shard: index, address: holder });
            }
            Announcement::New => {
                info!(shard = %index, address, "shard is there");
                dispatcher.query_held_jobs(index);
                dispatcher.broadcast_addresses();
            }
        }
        Ok(epoch)
    }
}

/// Tells the loop that a shard's parameters are gone.
pub(super) fn report_shard_lost(context: &ServiceContext, shard: ShardIndex, reason: &str) {
    if let Ok(dispatcher) = context.dispatcher() {
        let input = Input::ShardLost { shard, reason: reason.to_owned() };
        let _ = dispatcher.queue.send(Message::Input(input));
    }
}

/// Serves one client's connection.
#[derive(Clone)]
pub(super) struct ClientHandler(pub ServiceContext);

impl ClientHandler {
    async fn fields(&self, job: &JobId) -> Result<JobFields, EngineFault> {
        // On standby nobody knows what is wrong with a job, and whether anything is.
        let mut fields = match self.0.dispatcher()?.damaged(job) {
            // What its own record says may be anything: it is not even read.
            Some(reason) => {
                [("state", "damaged".to_owned()), ("code", "E030".to_owned()), ("reason", reason)]
                    .map(|(k, v)| (k.to_owned(), v))
                    .into()
            }
            None => self.0.read_store(self.0.store.hash("read job", &JobKeys::new(job).job)).await?,
        };
        if fields.is_empty() {
            return Err(EngineFault::UnknownJob { job: job.clone() });
        }
        let over = |state: &String| ["done", "failed", "canceled", "damaged"].contains(&state.as_str());
        let trouble = match fields.get("state").is_some_and(over) {
            true => String::new(),
            false => self.0.notes().join("; "),
        };
        fields.extend([("id".to_owned(), job.to_string()), ("trouble".to_owned(), trouble)]);
        Ok(fields)
    }
}

impl ClientHandler {
    /// A job as of its last commit.
    async fn read(&self, id: &JobId) -> Result<Job, EngineFault> {
        let stored = self.0.read_store(self.0.store.read(id)).await?;
        if stored.spec.is_empty() {
            return Err(EngineFault::UnknownJob { job: id.clone() });
        }
        Job::load(&stored).map_err(|e| EngineFault::Unreadable { job: id.clone(), cause: e.to_string() })
    }
}

impl ClientService for ClientHandler {
    async fn shards(self, _: Context) -> Result<Vec<String>, EngineFault> {
        self.0.dispatcher()?;
        self.0.all_shards()
    }

    async fn submit(self, _: Context, spec: JobSpec, nonce: u32, replace: bool) -> Result<(), EngineFault> {
        spec.validate().map_err(|e| EngineFault::InvalidJob(e.to_string()))?;
        self.0.dispatcher()?;
        self.0.all_shards()?;
        let expected = self.0.shards.count();
        if let Some((_, train)) = spec.train() {
            let digests: Vec<String> = train.model.blobs().iter().map(|d| (*d).to_owned()).collect();
            let mut found = vec![false; digests.len()];
            for shard in self.0.shards.indices() {
                let digests = digests.clone();
                let call = self.0.shards.call_once(shard, |c| async move {
                    c.has_blobs(within(Duration::from_secs(5)), digests).await
                });
                let here =
                    call.await.map_err(|_| EngineFault::MissingShards { present: expected - 1, expected })?;
                found.iter_mut().zip(here).for_each(|(f, h)| *f |= h);
            }
            if let Some(at) = found.iter().position(|f| !f) {
                return Err(EngineFault::MissingBlob { digest: digests[at].clone() });
            }
        }
        self.0.ask(Input::Submit(Submission { spec: Box::new(spec), nonce, replace })).await.map(drop)
    }

    async fn delete(self, _: Context, job: JobId) -> Result<(), EngineFault> {
        self.0.ask(Input::Delete(job)).await.map(drop)
    }

    async fn gc(self, _: Context, older_than_s: u64) -> Result<Collected, EngineFault> {
        let dispatcher = self.0.dispatcher()?;
        collect_blobs(&self.0.store, &dispatcher, Duration::from_secs(older_than_s)).await
    }

    async fn jobs(self, _: Context) -> Result<Vec<JobFields>, EngineFault> {
        let mut all = Vec::new();
        for job in self.0.read_store(self.0.store.jobs()).await? {
            match self.fields(&job).await {
                Ok(fields) => all.push(fields),
                Err(EngineFault::UnknownJob { .. }) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(all)
    }

    async fn job(self, _: Context, job: JobId) -> Result<JobView, EngineFault> {
        let fields = self.fields(&job).await?;
        let damaged = fields.get("state").is_some_and(|state| state == "damaged");
        let workers = match damaged {
            true => BTreeMap::new(),
            false => {
                self.0.read_store(self.0.store.hash("read workers", &JobKeys::new(&job).workers)).await?
            }
        };
        Ok(JobView { job: fields, workers, notes: self.0.notes() })
    }

    async fn cancel(self, _: Context, job: JobId) -> Result<(), EngineFault> {
        self.0.ask(Input::Cancel(job)).await.map(drop)
    }

    async fn explain_barrier(
        self,
        _: Context,
        job: JobId,
        barrier: Superstep,
    ) -> Result<BarrierExplanation, EngineFault> {
        let read = self.read(&job).await?;
        read.explain_barrier(barrier).ok_or_else(|| {
            let kept = read.barriers_kept();
            let kept = kept.map(|(first, last)| format!("; barriers {first} to {last} are kept"));
            let (what, kept) = (format!("barrier {barrier}"), kept.unwrap_or_default());
            EngineFault::NothingKnown { job, what, kept }
        })
    }

    async fn explain_task(
        self,
        _: Context,
        job: JobId,
        task: TaskId,
    ) -> Result<TaskExplanation, EngineFault> {
        let (what, kept) = (format!("task {task}"), String::new());
        let read = self.read(&job).await?;
        read.explain_task(&task).ok_or(EngineFault::NothingKnown { job, what, kept })
    }

    async fn about(self, _: Context) -> Result<BTreeMap<String, String>, EngineFault> {
        let mut about = (*self.0.about).clone();
        let dispatcher = match self.0.active.borrow().clone() {
            Ok(dispatcher) => dispatcher,
            Err(why) => {
                about.insert("idle".into(), why.to_string());
                match why {
                    InactiveReason::Standby { address, .. } => about.insert("leader".into(), address),
                    InactiveReason::Store { cause } => about.insert("store_trouble".into(), cause),
                    InactiveReason::Changing => None,
                };
                return Ok(about);
            }
        };
        let workers = dispatcher.sessions.all();
        // After a change of engines the number of the process is not known: 0.
        let pids: Vec<String> = workers.iter().map(|w| w.about.pid.to_string()).collect();
        let told = [
            ("epoch", dispatcher.epoch.to_string()),
            ("shards_present", self.0.shards.all().len().to_string()),
            ("shard_trouble", self.0.shard_notes().join("; ")),
            ("store_trouble", dispatcher.store_outage.cause().unwrap_or_default()),
            ("workers", workers.len().to_string()),
            ("worker_pids", pids.join(" ")),
        ];
        about.extend(told.map(|(name, value)| (name.to_owned(), value)));
        Ok(about)
    }

    async fn workers(self, _: Context) -> Result<Vec<WorkerFields>, EngineFault> {
        let mut seen = self.0.dispatcher()?.sessions.all();
        seen.sort_by_key(|seen| seen.worker);
        let fields = |seen: WorkerStatus| {
            let id = ("id".to_owned(), seen.worker.to_string());
            let named = seen.fields().into_iter().map(|(name, value)| (name.to_owned(), value));
            named.chain([id]).collect()
        };
        Ok(seen.into_iter().map(fields).collect())
    }
}
