//! A job of any length needs bounded room in Redis: 100,000 iterations leave no more behind than 5,000.

use syncline_engine::store::{CommitMode, Fence, RedisStore, StoreError, keys::JobKeys};
use syncline_kit::{RedisOptions, RedisServer};
use syncline_scheduler::{
    core::{Core, Effect, Input},
    ids::{EngineEpoch, JobId},
    sim::{Scenario, Shell, Simulation, WorkerModel},
};
use tokio::runtime::{Builder, Runtime};

const ITERATIONS: u64 = 100_000;
/// Iterations between two looks. By the first of them every stream has reached its cap.
const LOOK: u64 = 5_000;
/// The curve goes from half its points to all of them and back: a few looks see its largest.
const EARLY: u64 = 25_000;
/// Inputs in one turn of the engine's loop.
const TURN: u64 = 8;
/// Never more than this while the job runs.
const MAX_BYTES: u64 = 600_000;
const MAX_FIELDS: u64 = 1_000;

/// Commits what the core changes to a real store, as the engine does.
struct Storing {
    runtime: Runtime,
    store: RedisStore,
    job: JobId,
    inputs: u64,
    commits: u64,
    iterations: u64,
}

impl Shell for Storing {
    fn handle(&mut self, core: &mut Core, now_us: u64, input: Input) -> Vec<Effect> {
        self.iterations += u64::from(matches!(input, Input::Report { .. }));
        self.inputs += 1;
        let effects = core.handle(now_us, input).unwrap();
        if self.inputs.is_multiple_of(TURN)
            && let Some(commit) = core.take_commits(now_us).remove(&self.job)
        {
            self.commits += 1;
            let mode = if self.commits == 1 { CommitMode::New } else { CommitMode::Next };
            let fence = Fence { epoch: EngineEpoch(1), seq: self.commits, mode };
            let write = || self.runtime.block_on(self.store.commit(&self.job, fence, &commit));
            // As an engine does where Redis does not answer in time, which takes each commit once.
            let mut tried = std::iter::repeat_with(write).take(20);
            let is_over = |done: &Result<_, StoreError>| !matches!(done, Err(error) if error.is_passing());
            tried.find(is_over).expect("Redis answers").unwrap();
        }
        effects
    }
}

impl Storing {
    /// Fields and bytes that the job takes.
    fn room(&self) -> (u64, u64) {
        let keys = JobKeys::new(&self.job);
        let (mut fields, mut bytes) = (0, 0);
        for key in keys.all() {
            let stream =
                [&keys.events, &keys.metrics, &keys.barriers, &keys.evaluations].iter().any(|k| *k == key);
            let count = if stream { "XLEN" } else { "HLEN" };
            fields += self.runtime.block_on(self.store.query::<u64>("count", &[count, key])).unwrap();
            let measure = ["MEMORY", "USAGE", key, "SAMPLES", "0"];
            let used: Option<u64> = self.runtime.block_on(self.store.query("measure", &measure)).unwrap();
            bytes += used.unwrap_or(0);
        }
        (fields, bytes)
    }
}

/// Three workers and one that takes three times as long; only the store is real.
fn stays_bounded(policy: &str) {
    let dir = tempfile::tempdir().unwrap();
    let server = syncline_kit::redis_server(&|line| eprintln!("{line}")).unwrap();
    let redis = RedisServer::start(&server.path, RedisOptions::new(dir.path())).unwrap();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let store = runtime.block_on(RedisStore::connect(&redis.url())).unwrap();
    let job = "job".parse().unwrap();
    let shell = Storing { runtime, store, job, inputs: 0, commits: 0, iterations: 0 };

    let worker = |us| WorkerModel { pull_us: 100, push_us: 100, ..WorkerModel::steady(us) };
    let scenario = Scenario {
        policy: policy.parse().unwrap(),
        workers: [10_000, 10_000, 10_000, 30_000].map(worker).into(),
        batch: 32,
        duration_us: 1_000_000_000_000,
        seed: 1,
    };
    let mut simulation = Simulation::new(&scenario, 0, shell).unwrap();
    let (mut early_fields, mut early_bytes) = (0, 0);
    for look in (LOOK..=ITERATIONS).step_by(LOOK as usize) {
        while simulation.shell().iterations < look {
            assert!(simulation.step(), "the time is over");
        }
        let (fields, bytes) = simulation.shell().room();
        assert!(fields <= MAX_FIELDS && bytes <= MAX_BYTES, "{fields} fields, {bytes} bytes");
        if look <= EARLY {
            (early_fields, early_bytes) = (early_fields.max(fields), early_bytes.max(bytes));
        }
    }
    let (fields, bytes) = simulation.shell().room();
    println!("up to {EARLY}: {early_fields} fields, {early_bytes} B; at the end: {fields}, {bytes} B");
    assert!(fields * 10 <= early_fields * 12, "{early_fields} then {fields} fields");
    assert!(bytes * 10 <= early_bytes * 12, "{early_bytes} then {bytes} bytes");
}

#[test]
fn a_hundred_thousand_iterations_of_bsp_need_no_more_room_than_five_thousand() {
    stays_bounded("bsp");
}

#[test]
fn a_hundred_thousand_iterations_of_asp_need_no_more_room_than_five_thousand() {
    stays_bounded("asp");
}

#[test]
fn a_hundred_thousand_iterations_of_ssp_need_no_more_room_than_five_thousand() {
    stays_bounded("ssp:3");
}

#[test]
fn a_hundred_thousand_iterations_of_elastic_bsp_need_no_more_room_than_five_thousand() {
    stays_bounded("elastic-bsp:15");
}
