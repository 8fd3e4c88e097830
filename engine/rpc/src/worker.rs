//! Calls of workers to the engine.

use serde::{Deserialize, Serialize};
use syncline_scheduler::{
    core::{Assignment, TaskKey, TaskReport},
    ids::{EngineEpoch, Incarnation, JobId, Name, RegistrationId, ShardIndex},
    spec::TrainSpec,
    tasks::{Attempts, Capacity, Order, ReportGroup, RunningCall},
};

use super::EngineFault;

/// A worker that asks to take part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerHello {
    /// For people: shown in Redis and in tables.
    pub name: String,
    /// Name of its machine; `?` if the system has none.
    pub host: String,
    /// Process id on that machine.
    pub pid: u32,
    /// Drawn by the process when it begins, and the same for all training slots of it; not 0.
    pub process: u64,
    /// Which of the training slots of its process it is, from 1.
    pub training_slot: u32,
    /// The execution provider that was verified to be in use.
    pub device: String,
    /// Most samples that fit into its memory at once, if the user said so.
    pub max_batch: Option<u32>,
    /// Whether it takes part in training.
    pub trains: bool,
    /// What it offers to general tasks.
    pub capacity: Capacity,
}

/// Name of this machine, if the system has one.
pub fn hostname() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned())
}

/// The engine's answer to a worker that registered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterReply {
    /// Epoch of the engine that took it in.
    pub epoch: EngineEpoch,
    /// How the worker calls itself from now on.
    pub who: WorkerKey,
    /// A worker that is not heard of for this long is dropped.
    pub silence_ms: u64,
}

/// Who calls. A worker's number means something only together with what was drawn when it registered: a Redis
/// that has lost everything, or another one, begins to count again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerKey {
    /// The number that the worker was given.
    pub incarnation: Incarnation,
    /// Drawn by the engine that gave the number.
    pub registration: RegistrationId,
}

impl WorkerKey {
    /// Of a worker that registers, and is given this number.
    pub fn draw(incarnation: Incarnation) -> Self {
        Self { incarnation, registration: RegistrationId(rand::random()) }
    }
}

/// What a worker is doing, for `explain` and for people who look into Redis.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    /// Tasks that were received and whose report is not acknowledged yet.
    pub holding: Vec<TaskKey>,
    /// General tasks that were received and have not ended, or whose end is neither acknowledged nor told
    /// along with this.
    pub tasks: u32,
    /// General tasks whose functions run, at most [`MAX_RUNNING_TOLD`](crate::MAX_RUNNING_TOLD): about once
    /// a second. `None`: as it was told last.
    pub calls: Option<Vec<RunningCall>>,
    /// Functions that were told to stop and have not returned.
    pub stopping: u32,
    /// What some of these are called, each name once.
    pub stopping_functions: Vec<Name>,
    /// What the worker waits for right now, if anything.
    pub blocked_on: Option<String>,
    /// How its bytes travel to the shards of the job that it trains, such as `shm`; to each of them, where
    /// they differ.
    pub transport: Option<String>,
    /// How long the executor has been busy with its present task, without waiting at a shard; 0: it has
    /// none.
    pub running_ms: u64,
    /// The longest it has been busy with one so far.
    pub longest_ms: u64,
    /// Shards that it has lost for its trainings and not reached since, under whatever incarnation: at most
    /// [`MAX_UNREACHED_TOLD`](crate::MAX_UNREACHED_TOLD).
    pub unreached: Vec<UnreachedShard>,
}

/// A shard that a worker does not reach. Its times are spans, since clocks differ, and are true only when
/// they are told: a process that sleeps tries nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreachedShard {
    /// Which one.
    pub shard: ShardIndex,
    /// Where it was looked for.
    pub address: String,
    /// The training that needed it last.
    pub job: JobId,
    /// How long ago it was lost.
    pub lost_ms: u64,
    /// How long ago it was tried last.
    pub tried_ms: u64,
}

/// Ends of attempts at general tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedTasks {
    /// The engine whose orders the worker held when they were gathered. Redis may have lost what another one
    /// had given out: the same number may then stand for another attempt.
    pub under: EngineEpoch,
    /// By job, in the order in which they ended.
    pub groups: Vec<ReportGroup>,
}

/// How far a worker has come with the orders about general tasks. Every engine numbers its own, from 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderCursor {
    /// The engine that numbered them.
    pub epoch: EngineEpoch,
    /// Orders that were received: those before this number need not be repeated.
    pub next: u64,
}

/// What an engine says to a worker about general tasks: as much as one answer carries of what the worker does
/// not know.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Orders {
    /// Number of the first of `orders`. It is 0 when the worker's cursor was of another engine.
    pub first: u64,
    /// How many orders this engine has given the worker so far.
    pub count: u64,
    /// How many of them tell what the worker had when this engine began to lead. A worker that had not heard
    /// of it holds what they name, once it has them all, and what it holds besides is over: what later
    /// ones give is new, whatever its number.
    pub retold: u64,
    /// From number `first` on.
    pub orders: Vec<Order>,
}

/// Answer to a poll.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PollReply {
    /// Epoch of the engine that answers; an answer of a lower one than the highest heard is dropped.
    pub epoch: EngineEpoch,
    /// New tasks, to be run in this order after those held already.
    pub assignments: Vec<Assignment>,
    /// Held tasks that are over: do not start them, drop their reports.
    pub revoked: Vec<TaskKey>,
    /// Where all shards are now, in order; empty while some are not there.
    pub shards: Vec<String>,
    /// Whether each of them was heard of a moment ago: whoever does not reach one then has a bad link of its
    /// own.
    pub shards_heard: bool,
    /// Whether the engine's lease has run out by its own clock, because Redis does not answer it: another
    /// engine may lead by now, and whoever knows of others should ask them.
    pub lead_expired: bool,
    /// About general tasks.
    pub orders: Orders,
    /// Whether the ends that came with the poll are committed. If not, they are to be sent again.
    pub ends_taken: bool,
}

/// What a worker needs once per job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobSetup {
    /// Epoch of the engine that answers, as in [`PollReply`].
    pub epoch: EngineEpoch,
    /// Of the job's submission: another job of the name has another one.
    pub nonce: u32,
    /// What is to be trained, and how.
    pub train: TrainSpec,
    /// Addresses of the job's shards, in order.
    pub shards: Vec<String>,
}

/// Calls of workers.
#[tarpc::service]
pub trait WorkerService {
    /// Takes the worker in, under a number that none has had before.
    async fn register(hello: WorkerHello) -> Result<RegisterReply, EngineFault>;
    /// Commits the ends of general tasks that come along, if there are any, and then waits up to `wait_ms`
    /// for tasks that the worker does not hold yet. Also the sign of life, and answered as such where
    /// Redis does not take the ends.
    async fn poll(
        who: WorkerKey,
        activity: Activity,
        cursor: OrderCursor,
        ended: EndedTasks,
        wait_ms: u64,
    ) -> Result<PollReply, EngineFault>;
    /// Attempts at general tasks that have ended while a poll waits. As [`WorkerService::report`]:
    /// acknowledged when the answer comes, and sent again until then. Ends are in one call at a time,
    /// this one or a poll, and in order.
    async fn finished(who: WorkerKey, ended: EndedTasks) -> Result<EngineEpoch, EngineFault>;
    /// Acknowledged when the answer comes: committed in Redis. Send again until then.
    async fn report(who: WorkerKey, reports: Vec<TaskReport>) -> Result<EngineEpoch, EngineFault>;
    /// What the worker needs to train for a job that is not over. Waits until all shards are there.
    async fn setup(job: JobId) -> Result<JobSetup, EngineFault>;
    /// Ends the incarnation: nothing more will be pushed under it, and of its general tasks no others have
    /// begun than these.
    async fn leave(who: WorkerKey, begun: Vec<Attempts>) -> Result<(), EngineFault>;
}
