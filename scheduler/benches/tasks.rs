//! General tasks without I/O: what the core itself costs per task, commits included.
//! `cargo bench -p syncline-scheduler --bench tasks`

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on should stop")]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use syncline_scheduler::{
    core::{Core, Effect, GraphSubmission, Input, WorkerInfo},
    ids::Incarnation,
    tasks::{
        Arg, Capacity, ClassIndex, FunctionId, GraphDigest, GraphSpec, NewTask, Order, Outcome, ReportGroup,
        TaskClass, TaskEnd, TaskIndex, TaskRef, Value,
    },
};

const TASKS: u32 = 100_000;

fn function() -> FunctionId {
    FunctionId { name: "noop".parse().unwrap(), signature: 1 }
}

fn task(args: Vec<Arg>) -> NewTask {
    NewTask { class: ClassIndex(0), args, after: vec![], name: None }
}

/// Tasks that need nothing.
fn wide() -> Vec<NewTask> {
    (0..TASKS).map(|_| task(vec![])).collect()
}

/// Each needs the one before it.
fn chain() -> Vec<NewTask> {
    let before = |n: u32| n.checked_sub(1).map(|n| Arg::Output(TaskRef::Task(TaskIndex(n))));
    (0..TASKS).map(|n| task(before(n).into_iter().collect())).collect()
}

fn submitted(tasks: Vec<NewTask>) -> (Core, Vec<Effect>) {
    let mut core = Core::new(1);
    let capacity = Capacity { slots: 1, functions: [function()].into(), ..Capacity::default() };
    for worker in [1, 2] {
        let about = WorkerInfo { capacity: capacity.clone(), ..WorkerInfo::default() };
        core.handle(1, Input::WorkerJoined { worker: Incarnation(worker), about }).unwrap();
    }
    let classes = vec![TaskClass::call(function())];
    let spec = GraphSpec {
        id: "bench".parse().unwrap(),
        digest: GraphDigest::default(),
        classes,
        tasks,
        complete: true,
    };
    let submission = GraphSubmission { spec: Box::new(spec), nonce: 1, replace: false };
    let effects = core.handle(2, Input::SubmitGraph(submission)).unwrap();
    black_box(core.take_commits(2));
    (core, effects)
}

/// Workers that end at once whatever they are given.
fn drain(core: &mut Core, mut effects: Vec<Effect>) {
    let mut now_us = 10;
    while !effects.is_empty() {
        let mut next = Vec::new();
        for effect in effects {
            let Effect::Orders { worker, orders } = effect else { continue };
            for order in orders {
                let Order::Run(group) = order else { continue };
                let end = |task: &syncline_scheduler::tasks::TaskOrder| TaskEnd {
                    task: task.task,
                    attempt: task.attempt,
                    run_us: 1,
                    outcome: Outcome::Value(Value::default()),
                };
                let ended = group.tasks.iter().map(end).collect();
                let groups = vec![ReportGroup { job: group.job, nonce: group.nonce, ended }];
                now_us += 1_000;
                next.extend(core.handle(now_us, Input::TasksEnded { worker, groups }).unwrap());
            }
        }
        black_box(core.take_commits(now_us));
        effects = next;
    }
    assert!(core.task_job(&"bench".parse().unwrap()).unwrap().phase().is_over());
}

fn tasks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("tasks");
    group.throughput(Throughput::Elements(u64::from(TASKS))).sample_size(10);
    group.bench_function("load", |b| b.iter_batched(wide, submitted, BatchSize::LargeInput));
    for (name, graph) in [("drain", wide as fn() -> _), ("chain", chain)] {
        group.bench_function(name, |b| {
            b.iter_batched(
                || submitted(graph()),
                |(mut core, effects)| drain(&mut core, effects),
                BatchSize::LargeInput,
            )
        });
    }
    group.finish();
}

criterion_group!(benches, tasks);
criterion_main!(benches);
