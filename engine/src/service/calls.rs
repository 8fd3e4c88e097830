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
    collecting::collect,
    effects::Hands,
    message::Message,
    run::Limits,
    sessions::{Seen, Sessions},
    shards::{Announced, Shards},
};
use crate::{
    rpc::{
        Activity, ClientService, Collected, EngineFault, Enrolment, Idle, JobFields, JobTicket, JobView,
        Orders, Registered, ShardHello, ShardRegistry, WorkerFields, WorkerHello, WorkerService, within,
    },
    store::{RedisStore, StoreError, keys::JobKeys},
};

/// A shard announces itself twice a second; a longer silence is shown.
const SHOWN_SILENCE: Duration = Duration::from_secs(2);
/// How long a read may take while Redis is known to be in trouble.
const QUICK: Duration = Duration::from_millis(500);
/// Longest wait of one poll.
const MAX_POLL: Duration = Duration::from_secs(20);

/// What every connection shares.
#[derive(Clone)]
pub(super) struct Desk {
    /// The hands of the active engine, or why this one is not.
    pub active: watch::Receiver<Result<Hands, Idle>>,
    pub store: RedisStore,
    pub shards: Shards,
    pub limits: Limits,
    pub about: Arc<BTreeMap<String, String>>,
}

impl Desk {
    pub(super) fn hands(&self) -> Result<Hands, EngineFault> {
        self.active.borrow().clone().map_err(|why| EngineFault::NotActive { why })
    }

    /// Addresses of all shards in order, or how many are missing.
    fn all_shards(&self) -> Result<Vec<String>, EngineFault> {
        self.shards.addresses().ok_or_else(|| self.shards.missing())
    }

    /// Sends an input to the loop and waits for its commit; not while Redis takes no writes.
    async fn ask(&self, input: Input) -> Result<EngineEpoch, EngineFault> {
        let hands = self.hands()?;
        hands.takes_writes()?;
        ask(&hands.queue, input).await?;
        Ok(hands.epoch)
    }
}

/// Redis did not answer, or refused.
pub(super) fn store_fault(error: StoreError) -> EngineFault {
    EngineFault::Store { cause: error.to_string() }
}

impl Hands {
    /// Refuses at once what cannot be committed now, with the reason.
    fn takes_writes(&self) -> Result<(), EngineFault> {
        self.trouble.get().map_or(Ok(()), |cause| Err(EngineFault::Store { cause }))
    }
}

impl Desk {
    /// Reads from Redis; briefly, if it is known to be in trouble.
    async fn look<T>(&self, read: impl Future<Output = Result<T, StoreError>>) -> Result<T, EngineFault> {
        let Some(cause) = self.hands()?.trouble.get() else {
            return read.await.map_err(store_fault);
        };
        match tokio::time::timeout(QUICK, read).await {
            Ok(value) => value.map_err(store_fault),
            Err(_) => Err(EngineFault::Store { cause }),
        }
    }

    /// What stands in the way of every job right now, in words.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(cause) = self.hands().ok().and_then(|h| h.trouble.get()) {
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
                Some(shard) if shard.seen.elapsed() > SHOWN_SILENCE => notes.push(format!(
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
    queue.send(Message::Asked(input, answer)).map_err(|_| changing())?;
    asked.await.map_err(|_| changing())?
}

/// The loop ended while something was asked of it.
fn changing() -> EngineFault {
    EngineFault::NotActive { why: Idle::Changing }
}

/// Serves one worker's connection.
#[derive(Clone)]
pub(super) struct WorkerDesk {
    pub desk: Desk,
    /// Number of this connection, never 0.
    pub connection: u64,
    /// Who was heard on this connection, so that its end can be noticed.
    pub heard: Arc<Mutex<Option<Incarnation>>>,
}

impl WorkerDesk {
    /// Notes where a worker is heard. Refuses one whose number belongs to another by now.
    fn hear(&self, who: Enrolment, sessions: &Sessions) -> Result<Incarnation, EngineFault> {
        let worker = who.incarnation;
        if sessions.belongs_to_another(who) {
            return Err(EngineFault::Dropped);
        }
        sessions.heard_on(worker, self.connection);
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Some(worker);
        Ok(worker)
    }
}

impl WorkerService for WorkerDesk {
    async fn register(self, _: Context, hello: WorkerHello) -> Result<Registered, EngineFault> {
        let hands = self.desk.hands()?;
        hands.takes_writes()?;
        let incarnation = self.desk.store.next_incarnation().await.map_err(store_fault)?;
        let WorkerHello { name, host, pid, device, max_batch } = hello;
        let about = WorkerInfo { name, host, device, pid, max_batch };
        info!(worker = %incarnation, name = about.name, host = about.host, "worker registered");
        let silence_ms = u64::try_from(self.desk.limits.worker_silence.as_millis()).unwrap_or(u64::MAX);
        let registered = Registered { epoch: hands.epoch, incarnation, silence_ms };
        hands.sessions.open(registered.enrolment(), about.clone());
        self.hear(registered.enrolment(), &hands.sessions)?;
        ask(&hands.queue, Input::WorkerJoined { worker: incarnation, about }).await?;
        Ok(registered)
    }

    async fn poll(
        self,
        _: Context,
        who: Enrolment,
        activity: Activity,
        wait_ms: u64,
    ) -> Result<Orders, EngineFault> {
        let hands = self.desk.hands()?;
        let worker = self.hear(who, &hands.sessions)?;
        let wait = Duration::from_millis(wait_ms).min(MAX_POLL);
        let (assignments, revoked) =
            hands.sessions.orders(worker, activity, wait).await.ok_or(EngineFault::Dropped)?;
        let shards = hands.shards.addresses().unwrap_or_default();
        Ok(Orders { epoch: hands.epoch, assignments, revoked, shards })
    }

    async fn report(
        self,
        _: Context,
        who: Enrolment,
        mut reports: Vec<TaskReport>,
    ) -> Result<EngineEpoch, EngineFault> {
        let hands = self.desk.hands()?;
        let worker = self.hear(who, &hands.sessions)?;
        // The report of a worker that was dropped may still be true: the core knows what to make of it.
        hands.sessions.touch(worker);
        hands.takes_writes()?;
        let _alone = hands.sessions.report_alone(worker).await;
        // They are handled in order, so that the last one's commit covers them all.
        if let Some(last) = reports.pop() {
            for report in reports {
                let input = Input::Report { worker, report };
                hands.queue.send(Message::Input(input)).map_err(|_| changing())?;
            }
            ask(&hands.queue, Input::Report { worker, report: last }).await?;
        }
        Ok(hands.epoch)
    }

    async fn ticket(self, _: Context, job: JobId) -> Result<JobTicket, EngineFault> {
        let hands = self.desk.hands()?;
        let train = hands.train(&job).ok_or(EngineFault::UnknownJob { job })?;
        let shards = hands.shards.all_addresses().await;
        Ok(JobTicket { epoch: hands.epoch, train: (*train).clone(), shards })
    }

    async fn leave(self, _: Context, who: Enrolment) -> Result<(), EngineFault> {
        let hands = self.desk.hands()?;
        let worker = self.hear(who, &hands.sessions)?;
        hands.sessions.close(worker);
        self.desk.ask(Input::WorkerGone { worker, reason: "said goodbye".into() }).await.map(drop)
    }
}

/// Serves one shard's connection.
#[derive(Clone)]
pub(super) struct ShardDesk(pub Desk);

impl ShardRegistry for ShardDesk {
    async fn announce(self, _: Context, hello: ShardHello) -> Result<EngineEpoch, EngineFault> {
        let expected = self.0.shards.count();
        if hello.count != expected || hello.index.0 >= expected {
            return Err(EngineFault::MissingShards { present: hello.count, expected });
        }
        let (index, address) = (hello.index, hello.address.clone());
        // The active engine must hear of it, and there may be one elsewhere.
        let hands = self.0.hands()?;
        let epoch = hands.epoch;
        match self.0.shards.announce(hello, epoch).await {
            Announced::Again => {}
            Announced::Taken(holder) => {
                warn!(shard = %index, address, holder, "a second process wants the place of a shard that answers");
                return Err(EngineFault::ShardTaken { shard: index, address: holder });
            }
            Announced::New => {
                info!(shard = %index, address, "shard is there");
                hands.take_inventory(index);
                hands.tell_addresses();
            }
        }
        Ok(epoch)
    }
}

/// Tells the loop that a shard's parameters are gone.
pub(super) fn lost(desk: &Desk, shard: ShardIndex, reason: &str) {
    if let Ok(hands) = desk.hands() {
        let input = Input::ShardLost { shard, reason: reason.to_owned() };
        let _ = hands.queue.send(Message::Input(input));
    }
}

/// Serves one client's connection.
#[derive(Clone)]
pub(super) struct ClientDesk(pub Desk);

impl ClientDesk {
    async fn fields(&self, job: &JobId) -> Result<JobFields, EngineFault> {
        // On standby nobody knows what is wrong with a job, and whether anything is.
        let mut fields = match self.0.hands()?.damaged(job) {
            // What its own record says may be anything: it is not even read.
            Some(reason) => {
                [("state", "damaged".to_owned()), ("code", "E030".to_owned()), ("reason", reason)]
                    .map(|(k, v)| (k.to_owned(), v))
                    .into()
            }
            None => self.0.look(self.0.store.hash("read job", &JobKeys::new(job).job)).await?,
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

impl ClientDesk {
    /// A job as of its last commit.
    async fn read(&self, id: &JobId) -> Result<Job, EngineFault> {
        let stored = self.0.look(self.0.store.read(id)).await?;
        if stored.spec.is_empty() {
            return Err(EngineFault::UnknownJob { job: id.clone() });
        }
        Job::load(&stored).map_err(|e| EngineFault::Unreadable { job: id.clone(), cause: e.to_string() })
    }
}

impl ClientService for ClientDesk {
    async fn shards(self, _: Context) -> Result<Vec<String>, EngineFault> {
        self.0.hands()?;
        self.0.all_shards()
    }

    async fn submit(self, _: Context, spec: JobSpec, nonce: u32, replace: bool) -> Result<(), EngineFault> {
        spec.validate().map_err(|e| EngineFault::InvalidJob(e.to_string()))?;
        self.0.hands()?;
        self.0.all_shards()?;
        let expected = self.0.shards.count();
        if let Some((_, train)) = spec.train() {
            let digests: Vec<String> = train.model.blobs().iter().map(|d| (*d).to_owned()).collect();
            let mut found = vec![false; digests.len()];
            for shard in self.0.shards.indices() {
                let digests = digests.clone();
                let call = self.0.shards.try_call(shard, |c| async move {
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
        let hands = self.0.hands()?;
        collect(&self.0.store, &hands, Duration::from_secs(older_than_s)).await
    }

    async fn jobs(self, _: Context) -> Result<Vec<JobFields>, EngineFault> {
        let mut all = Vec::new();
        for job in self.0.look(self.0.store.jobs()).await? {
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
            false => self.0.look(self.0.store.hash("read workers", &JobKeys::new(&job).workers)).await?,
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
        let hands = match self.0.active.borrow().clone() {
            Ok(hands) => hands,
            Err(why) => {
                about.insert("idle".into(), why.to_string());
                match why {
                    Idle::Standby { address, .. } => about.insert("leader".into(), address),
                    Idle::Store { cause } => about.insert("store_trouble".into(), cause),
                    Idle::Changing => None,
                };
                return Ok(about);
            }
        };
        let workers = hands.sessions.all();
        // After a change of engines the number of the process is not known: 0.
        let pids: Vec<String> = workers.iter().map(|w| w.about.pid.to_string()).collect();
        let told = [
            ("epoch", hands.epoch.to_string()),
            ("shards_present", self.0.shards.all().len().to_string()),
            ("shard_trouble", self.0.shard_notes().join("; ")),
            ("store_trouble", hands.trouble.get().unwrap_or_default()),
            ("workers", workers.len().to_string()),
            ("worker_pids", pids.join(" ")),
        ];
        about.extend(told.map(|(name, value)| (name.to_owned(), value)));
        Ok(about)
    }

    async fn workers(self, _: Context) -> Result<Vec<WorkerFields>, EngineFault> {
        let mut seen = self.0.hands()?.sessions.all();
        seen.sort_by_key(|seen| seen.worker);
        let fields = |seen: Seen| {
            let id = ("id".to_owned(), seen.worker.to_string());
            let named = seen.fields().into_iter().map(|(name, value)| (name.to_owned(), value));
            named.chain([id]).collect()
        };
        Ok(seen.into_iter().map(fields).collect())
    }
}
