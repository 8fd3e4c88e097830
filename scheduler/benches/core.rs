//! One report through the core with 1000 workers, under every policy: `cargo bench -p syncline-scheduler --bench core`.
//!
//! Measured is `Core::handle` for the report, with everything that follows from it (grants, barriers, gates), without
//! planning, which leaves the core as an effect, and without the commit. `commit` is the JSON of one turn of 256
//! reports, per report.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use criterion::{Criterion, criterion_group, criterion_main};
use syncline_scheduler::{
    core::{
        Assignment, BarrierOrder, ClosedBarrier, Core, Effect, Input, Iterated, Outcome, Submission,
        TaskReport, Work, WorkerInfo,
    },
    ids::{Generation, Incarnation, JobId, ShardIndex, Superstep},
    spec::{
        DataSpec, JobSpec, Layout, LearningRate, ModelSpec, Node, NodeKind, OnNan, Optimizer, Parameter,
        Source, TrainSpec,
    },
    sync,
};

const WORKERS: u64 = 1000;
const POLICIES: [&str; 7] =
    ["asp", "bsp", "ssp:3", "dssp:3:15", "elastic-bsp:15", "lb-bsp", "elastic-lb:15+predictor=ema:0.2"];
/// Reports in one turn of the engine's loop.
const TURN: u64 = 256;

fn spec(policy: &str) -> Result<JobSpec, Box<dyn std::error::Error>> {
    let model = ModelSpec {
        training_graph: "t".into(),
        evaluation_graph: "e".into(),
        forward: "f".into(),
        initial: "i".into(),
        layout: Layout(vec![Parameter::trained("w", vec![4])]),
        inputs: vec![],
        label: None,
        classes: None,
        ignored_label: None,
        label_shape: vec![],
    };
    let train = TrainSpec {
        model,
        data: DataSpec { train_samples: 1 << 40, ..DataSpec::new(Source::csv("d.csv")) },
        optimizer: Optimizer::Sgd { weight_decay: 0.0 },
        learning_rate: LearningRate { base: 0.1, decay: Default::default() },
        policy: policy.parse()?,
        batch: 32,
        epochs: 1,
        drop_last: false,
        seed: 0,
        on_nan: OnNan::Fail,
        clip_norm: None,
        min_workers: WORKERS as u32,
        max_workers: u32::MAX,
        ahead: None,
    };
    let kind = NodeKind::Train(Box::new(train));
    Ok(JobSpec {
        id: "job".parse()?,
        nodes: vec![Node { name: "train".parse()?, after: vec![], retries: 0, kind }],
    })
}

/// Everything around the core, at no cost: workers take turns in the order of their simulated times.
struct World {
    core: Core,
    job: JobId,
    now_us: u64,
    /// When a worker is next done, and what it has in hand.
    turns: BTreeMap<(u64, Incarnation), ()>,
    queues: BTreeMap<Incarnation, VecDeque<Assignment>>,
    watermarks: BTreeMap<Incarnation, u64>,
    barriers: BTreeMap<u64, BarrierOrder>,
    closed: u64,
    handled: Duration,
    committed: Duration,
    reports: u64,
}

impl World {
    fn new(policy: &str) -> Result<Self, Box<dyn std::error::Error>> {
        let mut world = Self {
            core: Core::new(1),
            job: "job".parse()?,
            now_us: 1,
            turns: BTreeMap::new(),
            queues: BTreeMap::new(),
            watermarks: BTreeMap::new(),
            barriers: BTreeMap::new(),
            closed: 0,
            handled: Duration::ZERO,
            committed: Duration::ZERO,
            reports: 0,
        };
        world.give(Input::Submit(Submission { spec: Box::new(spec(policy)?), nonce: 0, replace: false }));
        for n in 1..=WORKERS {
            let worker = Incarnation(n);
            world.turns.insert((Self::interval_us(worker), worker), ());
            world.give(Input::WorkerJoined { worker, about: WorkerInfo::default() });
        }
        Ok(world)
    }

    /// 1.0 to 1.5 s, as in the paper's generator.
    fn interval_us(worker: Incarnation) -> u64 {
        1_000_000 + worker.0 * 7919 % 500_000
    }

    fn give(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let is_report = matches!(input, Input::Report { .. });
            let began = Instant::now();
            let effects = self.core.handle(self.now_us, input).unwrap_or_default();
            self.handled += if is_report { began.elapsed() } else { Duration::ZERO };
            for effect in effects {
                self.carry_out(effect, &mut inputs);
            }
            self.close(&mut inputs);
        }
    }

    fn carry_out(&mut self, effect: Effect, inputs: &mut VecDeque<Input>) {
        match effect {
            Effect::Assign { worker, assignment } => {
                self.queues.entry(worker).or_default().push_back(assignment);
            }
            Effect::OpenShards { job, generation } => {
                inputs.push_back(Input::ShardsOpened { job, generation });
            }
            Effect::LeaseBarrier { order, .. } => {
                self.barriers.insert(order.superstep.0, order);
            }
            Effect::Plan(r) => inputs.push_back(Input::Planned {
                plan: sync::plan(&r.rows, r.search_options),
                revision: r.revision,
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
            self.closed += 1;
            let barrier =
                ClosedBarrier { superstep: Superstep(self.closed - 1), closed_ago_us: 0, pushes: 0 };
            let (job, generation, shard) = (self.job.clone(), Generation(1), ShardIndex(0));
            inputs.push_back(Input::BarrierClosed { job, generation, shard, barrier });
        }
    }

    /// The next worker whose turn it is finishes an iteration, if it may have begun one.
    fn step(&mut self) {
        while let Some(((at_us, worker), ())) = self.turns.pop_first() {
            self.now_us = at_us;
            self.turns.insert((at_us + Self::interval_us(worker), worker), ());
            let lowest = || self.queues.keys().map(|w| self.watermarks.get(w).copied().unwrap_or(0)).min();
            let may = |a: &Assignment| match a.work {
                Work::Iterate { superstep, min_clock, .. } => {
                    superstep.0 <= self.closed && (min_clock == 0 || lowest() >= Some(min_clock))
                }
                Work::Evaluate { .. } => false,
            };
            if !self.queues.get(&worker).and_then(VecDeque::front).is_some_and(may) {
                continue;
            }
            let Some(Assignment { key, work: Work::Iterate { seq, range, .. } }) =
                self.queues.get_mut(&worker).and_then(VecDeque::pop_front)
            else {
                continue;
            };
            self.watermarks.insert(worker, seq);
            let iterated = Iterated {
                range,
                loss: 1.0,
                compute_us: Self::interval_us(worker),
                cpu_load: 0.5,
                memory_load: 0.5,
                ..Iterated::default()
            };
            let report = TaskReport { key, ended_ago_us: 0, outcome: Outcome::Iterated(iterated) };
            self.give(Input::Report { worker, report });
            self.reports += 1;
            if self.reports.is_multiple_of(TURN) {
                let began = Instant::now();
                std::hint::black_box(self.core.take_commits(self.now_us));
                self.committed += began.elapsed();
            }
            return;
        }
    }
}

fn benchmark(c: &mut Criterion) {
    for policy in POLICIES {
        let Ok(mut world) = World::new(policy) else { return };
        (0..5 * WORKERS).for_each(|_| world.step());
        let mut measure = |name: &str, part: fn(&World) -> Duration| {
            c.bench_function(&format!("{name}/{WORKERS} workers/{policy}"), |b| {
                b.iter_custom(|reports| {
                    let before = part(&world);
                    (0..reports).for_each(|_| world.step());
                    part(&world) - before
                });
            });
        };
        measure("report", |w| w.handled);
        measure("commit", |w| w.committed);
    }
}

criterion_group!(benches, benchmark);
criterion_main!(benches);
