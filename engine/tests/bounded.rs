//! A job of any length needs bounded room in Redis: 100,000 iterations leave no more behind than 1,000.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::{BTreeMap, VecDeque};

use syncline_engine::store::{CommitMode, RedisStore, keys::JobKeys};
use syncline_kit::{RedisOptions, RedisServer};
use syncline_scheduler::{
    core::{
        Assignment, BarrierOrder, ClosedBarrier, Core, Effect, Input, Iterated, Outcome, Submission,
        TaskReport, Work, WorkerInfo,
    },
    ids::{EngineEpoch, Generation, Incarnation, JobId, ShardIndex, Superstep},
    sim::{training, training_job},
    spec::{JobSpec, TrainSpec},
    sync,
};

const WORKERS: u64 = 4;
/// Never more than this while the job runs.
const MAX_BYTES: u64 = 600_000;
const MAX_FIELDS: u64 = 1_000;

/// Workers and one shard that do everything at once; only the engine's side is real.
struct Driver {
    core: Core,
    store: RedisStore,
    job: JobId,
    seq: u64,
    now_us: u64,
    iterations: u64,
    queues: BTreeMap<Incarnation, VecDeque<Assignment>>,
    watermarks: BTreeMap<Incarnation, u64>,
    barriers: BTreeMap<u64, BarrierOrder>,
    closed: u64,
}

impl Driver {
    async fn start(store: RedisStore, policy: &str) -> Self {
        let job: JobId = policy.split(':').next().unwrap().parse().unwrap();
        let spec = spec(job.clone(), policy);
        let mut driver = Self {
            core: Core::new(1),
            store,
            job,
            seq: 0,
            now_us: 1_800_000_000_000_000,
            iterations: 0,
            queues: BTreeMap::new(),
            watermarks: BTreeMap::new(),
            barriers: BTreeMap::new(),
            closed: 0,
        };
        driver.turn(vec![Input::Submit(Submission { spec: Box::new(spec), nonce: 0, replace: false })]).await;
        for n in 1..=WORKERS {
            let about = WorkerInfo { name: format!("worker-{n}"), ..WorkerInfo::default() };
            driver.turn(vec![Input::WorkerJoined { worker: Incarnation(n), about }]).await;
        }
        driver
    }

    /// One turn of the engine's loop, and whatever its effects bring about at once.
    async fn turn(&mut self, inputs: Vec<Input>) {
        let mut inputs = VecDeque::from(inputs);
        while !inputs.is_empty() {
            let mut effects = Vec::new();
            for input in inputs.drain(..) {
                effects.extend(self.core.handle(self.now_us, input).unwrap());
            }
            if let Some(commit) = self.core.take_commits(self.now_us).remove(&self.job) {
                self.seq += 1;
                let mode = if self.seq == 1 { CommitMode::New } else { CommitMode::Next };
                self.store.commit(&self.job, EngineEpoch(1), self.seq, mode, &commit).await.unwrap();
            }
            for effect in effects {
                self.carry_out(effect, &mut inputs);
            }
            self.close(&mut inputs);
        }
    }

    fn carry_out(&mut self, effect: Effect, inputs: &mut VecDeque<Input>) {
        match effect {
            Effect::Assign { worker, assignment } => {
                self.queues.entry(worker).or_default().push_back(assignment)
            }
            Effect::OpenShards { job, generation } => {
                inputs.push_back(Input::ShardsOpened { job, generation })
            }
            Effect::LeaseBarrier { order, .. } => {
                self.barriers.insert(order.superstep.0, order);
            }
            Effect::Plan(r) => inputs.push_back(Input::Planned {
                revision: r.revision,
                plan: sync::plan(&r.rows, r.search_options),
                job: r.job,
                generation: r.generation,
                superstep: r.superstep,
            }),
            _ => {}
        }
    }

    fn close(&mut self, inputs: &mut VecDeque<Input>) {
        let done = |b: &BarrierOrder, marks: &BTreeMap<Incarnation, u64>| {
            b.roster.iter().all(|(w, last)| marks.get(w).copied().unwrap_or(0) >= *last)
        };
        while self.barriers.get(&self.closed).is_some_and(|b| done(b, &self.watermarks)) {
            self.barriers.remove(&self.closed);
            let superstep = Superstep(self.closed);
            let barrier = ClosedBarrier { superstep, closed_ago_us: 0, pushes: self.iterations };
            self.closed += 1;
            let job = self.job.clone();
            inputs.push_back(Input::BarrierClosed {
                job,
                generation: Generation(1),
                shard: ShardIndex(0),
                barrier,
            });
        }
    }

    /// Every worker does its next iteration, the fourth one only every third time.
    async fn round(&mut self) {
        self.now_us += 10_000;
        let mut inputs = Vec::new();
        let lowest = (1..=WORKERS).map(|w| self.watermarks.get(&Incarnation(w)).copied().unwrap_or(0)).min();
        let lowest = lowest.unwrap_or(0);
        for (&worker, queue) in &mut self.queues {
            let slow = worker.0 == WORKERS && !self.now_us.is_multiple_of(30_000);
            let blocked = |a: &Assignment| match a.work {
                Work::Iterate { superstep, min_clock, .. } => superstep.0 > self.closed || lowest < min_clock,
                Work::Evaluate { .. } => false,
            };
            if slow || queue.front().is_none_or(blocked) {
                continue;
            }
            let Some(Assignment { key, work: Work::Iterate { seq, range, .. } }) = queue.pop_front() else {
                continue;
            };
            self.watermarks.insert(worker, seq);
            self.iterations += 1;
            let interval = if worker.0 == WORKERS { 30_000 } else { 10_000 };
            let outcome = Outcome::Iterated(Iterated {
                range,
                loss: 0.123_456,
                skipped: false,
                compute_us: interval,
                throttle_us: 0,
                pull_us: 100,
                push_us: 100,
                wait_us: 50,
                staleness: 3,
                lead: 2,
                cpu_load: 0.5,
                memory_load: 0.5,
            });
            inputs.push(Input::Report { worker, report: TaskReport { key, ended_ago_us: 0, outcome } });
        }
        self.turn(inputs).await;
    }

    async fn room(&self) -> (u64, u64) {
        let keys = JobKeys::new(&self.job);
        let (mut fields, mut bytes) = (0, 0);
        for key in keys.all() {
            let stream = [&keys.events, &keys.metrics, &keys.barriers].iter().any(|k| *k == key);
            let count = if stream { "XLEN" } else { "HLEN" };
            fields += self.store.query::<u64>("count", &[count, key]).await.unwrap();
            let used: Option<u64> =
                self.store.query("measure", &["MEMORY", "USAGE", key, "SAMPLES", "0"]).await.unwrap();
            bytes += used.unwrap_or(0);
        }
        (fields, bytes)
    }
}

fn spec(id: JobId, policy: &str) -> JobSpec {
    let train = training(policy.parse().unwrap(), 60_000, 32);
    JobSpec { id, ..training_job(TrainSpec { epochs: 1_000, ..train }) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_iterations_need_no_more_room_than_five_thousand() {
    let dir = tempfile::tempdir().unwrap();
    let server = syncline_kit::redis_server(&|line| eprintln!("{line}")).unwrap();
    let redis = RedisServer::start(&server.path, RedisOptions::new(dir.path())).unwrap();
    for policy in ["bsp", "asp", "ssp:3", "elastic-bsp:15"] {
        let store = RedisStore::connect(&redis.url()).await.unwrap();
        let mut driver = Driver::start(store, policy).await;
        let mut early = None;
        // By then every stream has reached its cap.
        let mut next_look = 5_000;
        while driver.iterations < 100_000 {
            driver.round().await;
            if driver.iterations >= next_look {
                next_look += 5_000;
                let (fields, bytes) = driver.room().await;
                assert!(
                    fields <= MAX_FIELDS && bytes <= MAX_BYTES,
                    "{policy}: {fields} fields, {bytes} bytes"
                );
                // The curve goes from half its points to all of them and back: a few looks see its largest.
                if driver.iterations <= 25_000 {
                    let (most_fields, most_bytes): (u64, u64) = early.unwrap_or_default();
                    early = Some((most_fields.max(fields), most_bytes.max(bytes)));
                }
            }
        }
        let (fields, bytes) = driver.room().await;
        let (early_fields, early_bytes) = early.unwrap();
        println!(
            "{policy}: up to 25,000: {early_fields} fields, {early_bytes} B; after 100,000: {fields}, {bytes} B"
        );
        assert!(fields * 10 <= early_fields * 12, "{policy}: {early_fields} then {fields} fields");
        assert!(bytes * 10 <= early_bytes * 12, "{policy}: {early_bytes} then {bytes} bytes");
    }
}
