//! General tasks without I/O: what the core itself costs per task, commits included.
//! `cargo bench -p syncline-scheduler --bench tasks`

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on should stop")]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use syncline_scheduler::{
    core::{Core, Effect, Input, WorkerInfo},
    ids::{Incarnation, JobId},
    sim::{Shell, TaskPlane, graph_submission, new_task},
    tasks::{Arg, Capacity, FunctionId, NewTask, Outcome, TaskClass, TaskIndex, TaskRef, Value},
};

const TASKS: u32 = 100_000;

fn function() -> FunctionId {
    FunctionId { name: "noop".parse().unwrap(), signature: 1, types: String::new() }
}

/// Tasks that need nothing.
fn wide() -> Vec<NewTask> {
    vec![new_task(0); TASKS as usize]
}

/// Each needs the one before it.
fn chain() -> Vec<NewTask> {
    let before = |n: u32| n.checked_sub(1).map(|n| Arg::Output(TaskRef::Task(TaskIndex(n))));
    (0..TASKS).map(|n| NewTask { args: before(n).into_iter().collect(), ..new_task(0) }).collect()
}

/// Inputs of a turn of the engine's loop while two workers report one task each.
const TURN: u32 = 2;

/// Takes what has changed once a turn, as the engine does.
#[derive(Default)]
struct Committing {
    inputs: u32,
}

impl Shell for Committing {
    fn handle(&mut self, core: &mut Core, now_us: u64, input: Input) -> Vec<Effect> {
        let effects = core.handle(now_us, input).unwrap();
        self.inputs += 1;
        if self.inputs.is_multiple_of(TURN) {
            black_box(core.take_commits(now_us));
        }
        effects
    }
}

fn id() -> JobId {
    "bench".parse().unwrap()
}

/// A core that holds the graph and has no workers.
fn submitted(tasks: Vec<NewTask>) -> TaskPlane<Committing> {
    let mut plane = TaskPlane::new(Committing::default());
    let submission = graph_submission(&id(), 1, vec![TaskClass::call(function())], tasks);
    plane.core.handle(2, Input::SubmitGraph(submission)).unwrap();
    black_box(plane.core.take_commits(2));
    plane
}

/// Two workers come, which end at once whatever they are given.
fn drain(plane: &mut TaskPlane<Committing>) {
    let capacity = Capacity { slots: 1, functions: [function()].into(), ..Capacity::default() };
    let joined = [1, 2].map(|worker| Input::WorkerJoined {
        worker: Incarnation(worker),
        about: WorkerInfo { capacity: capacity.clone(), ..WorkerInfo::default() },
    });
    plane.settle(10, joined, |_| Outcome::Value(Value::default()));
    assert!(plane.core.task_job(&id()).unwrap().phase().is_over());
}

fn tasks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("tasks");
    group.throughput(Throughput::Elements(u64::from(TASKS))).sample_size(10);
    group.bench_function("load", |b| b.iter_batched(wide, submitted, BatchSize::LargeInput));
    for (name, graph) in [("drain", wide as fn() -> _), ("chain", chain)] {
        group.bench_function(name, |b| {
            b.iter_batched(|| submitted(graph()), |mut plane| drain(&mut plane), BatchSize::LargeInput)
        });
    }
    group.finish();
}

criterion_group!(benches, tasks);
criterion_main!(benches);
