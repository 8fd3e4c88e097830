//! Random graphs of general tasks, workers that die, reports that are lost or come late, tasks that fail, are
//! skipped or add others, values that the parameter server loses, and an engine that is restarted between any
//! two steps: every task ends as a plain evaluation of its graph says, and a job that is loaded from its
//! commits equals the live one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::{
    calls::{Blobs, CallWorker, ERRORS, Kind, capacity, class},
    cluster::stored::StoredGraphs,
};
use proptest::prelude::*;
use syncline_scheduler::{
    core::{Cancellation, Core, Effect, Input, Phase, StoredJob, TaskCancellation, TaskJob, WorkerInfo},
    ids::{Incarnation, JobId},
    samples::splitmix64,
    sim::{Shell, TaskPlane, graph_submission, new_task, task_end, tasks_ended},
    tasks::{
        Arg, ClassIndex, NewTask, OneArg, Order, OrderArg, Outcome, TaskIndex, TaskOrder, TaskQuery, TaskRef,
        TaskState, TaskView, Value,
    },
};

/// One task as it is drawn: what it does, what it takes, how, and whether it is named.
#[derive(Debug, Clone)]
struct Drawn {
    kind: Kind,
    inputs: Vec<(usize, u8)>,
    named: bool,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let kind = prop_oneof![
        12 => Just(Kind::Sum),
        2 => (1u8..=ERRORS as u8).prop_map(Kind::Flaky),
        2 => (1u8..4).prop_map(Kind::Spawn),
        1 => Just(Kind::Skip),
        1 => Just(Kind::Broken),
    ];
    let inputs = prop::collection::vec((any::<prop::sample::Index>(), 0u8..6), 0..4);
    (kind, inputs, any::<bool>()).prop_map(|(kind, inputs, named)| Drawn {
        kind,
        inputs: inputs.into_iter().map(|(index, how)| (index.index(1 << 16), how)).collect(),
        named,
    })
}

/// The graph that was drawn; chains are likely, because the input 0 of `how` is the task just before.
fn graph(drawn: &[Drawn]) -> Vec<NewTask> {
    let task = |(index, drawn): (usize, &Drawn)| {
        let mut args = vec![Arg::Value(drawn.kind.bytes())];
        let (mut after, mut list, mut outcomes) = (Vec::new(), Vec::new(), Vec::new());
        for (input, how) in drawn.inputs.iter().filter(|_| index > 0) {
            let input = if input % 2 == 0 { index - 1 } else { input % index };
            let input = TaskRef::Task(TaskIndex(input as u32));
            match how {
                0 => after.push(input),
                1 => list.push(input),
                2 => args.push(Arg::Outcome(input)),
                3 => outcomes.push(input),
                _ => args.push(Arg::Output(input)),
            }
        }
        args.push(Arg::Outputs(list));
        args.push(Arg::Outcomes(outcomes));
        let name = drawn.named.then(|| format!("t{index}").parse().unwrap());
        NewTask { class: ClassIndex(0), args, after, name }
    };
    drawn.iter().enumerate().map(task).collect()
}

/// What every task of the graph gives, evaluated one after the other.
fn expected(tasks: &[NewTask]) -> Vec<Option<u64>> {
    let mut values: Vec<Option<u64>> = Vec::new();
    for task in tasks {
        let Arg::Value(kind) = &task.args[0] else { panic!("the first argument says what it does") };
        let mut sum = Some(0);
        for arg in &task.args[1..] {
            let inputs = match arg {
                Arg::Output(input) | Arg::Outcome(input) => std::slice::from_ref(input),
                Arg::Outputs(inputs) | Arg::Outcomes(inputs) => inputs,
                _ => &[],
            };
            // What failed counts for a hundred where its outcome is taken.
            let of_failed = matches!(arg, Arg::Outcome(_) | Arg::Outcomes(_)).then_some(100);
            for input in inputs {
                let TaskRef::Task(TaskIndex(input)) = input else { panic!("a client knows indices") };
                sum = sum.zip(values[*input as usize].or(of_failed)).map(|(sum, value)| sum + value);
            }
        }
        values.push(sum.and_then(|sum| Kind::of(kind).value(sum)));
    }
    values
}

/// The tasks whose values others take.
fn taken(tasks: &[NewTask]) -> BTreeSet<u32> {
    let inputs = |arg: &Arg| match arg {
        Arg::Output(input) | Arg::Outcome(input) => vec![*input],
        Arg::Outputs(inputs) | Arg::Outcomes(inputs) => inputs.clone(),
        _ => vec![],
    };
    let index = |input| match input {
        TaskRef::Task(TaskIndex(index)) => index,
        TaskRef::New(_) => panic!("a client knows indices"),
    };
    tasks.iter().flat_map(|task| &task.args).flat_map(inputs).map(index).collect()
}

struct World {
    plane: TaskPlane<StoredGraphs>,
    workers: BTreeMap<Incarnation, CallWorker>,
    next_worker: u64,
    slots: u32,
    now_us: u64,
    random: u64,
    blobs: Blobs,
    /// Blobs that may still be lost: a task fails whose value is lost again and again.
    losses_left: u32,
    /// What was stored at times, of which the store may go back to one.
    before: VecDeque<BTreeMap<JobId, StoredJob>>,
    moments_left: u32,
}

impl World {
    fn draw(&mut self, below: u64) -> u64 {
        // xorshift64*, Vigna, 2016.
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % below
    }

    fn handle(&mut self, input: Input) {
        self.now_us += 10;
        let TaskPlane { core, shell } = &mut self.plane;
        let effects = shell.handle(core, self.now_us, input);
        self.carry_out(effects);
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Orders { worker, orders } => {
                    self.workers.get_mut(&worker).into_iter().for_each(|w| w.inbox.extend(orders.clone()));
                }
                Effect::ReleaseBlobs { digests } => {
                    self.blobs.borrow_mut().retain(|digest, _| !digests.contains(digest));
                }
                _ => {}
            }
        }
    }

    fn join(&mut self) {
        self.next_worker += 1;
        let worker = Incarnation(self.next_worker);
        let mut caller = CallWorker::default();
        caller.blobs = Some(self.blobs.clone());
        self.workers.insert(worker, caller);
        let about = WorkerInfo { capacity: capacity(self.slots), ..WorkerInfo::default() };
        self.handle(Input::WorkerJoined { worker, about });
    }

    fn die(&mut self, worker: Incarnation) {
        self.workers.remove(&worker);
        self.handle(Input::WorkerGone { worker, reason: "dead".into(), never_told: Vec::new() });
    }

    fn leave(&mut self, worker: Incarnation) {
        let begun = self.workers.remove(&worker).unwrap().begun();
        self.handle(Input::WorkerLeft { worker, begun });
    }

    /// The engine dies and another reads everything back. Workers that no job names register again.
    fn restart(&mut self) {
        self.now_us += 10;
        self.plane.core = Core::new(1);
        self.workers.values_mut().for_each(|worker| worker.inbox.clear());
        let mut effects = Vec::new();
        for stored in self.plane.shell.0.values() {
            effects.extend(self.plane.core.restore_tasks(TaskJob::load(stored).unwrap()));
        }
        self.carry_out(effects);
        let known: Vec<Incarnation> = self.plane.core.workers().map(|(worker, _)| worker).collect();
        let dead: Vec<Incarnation> =
            known.iter().copied().filter(|worker| !self.workers.contains_key(worker)).collect();
        for worker in dead {
            // The store has lost that it is dead, and it is silent.
            self.handle(Input::WorkerGone { worker, reason: "silent".into(), never_told: Vec::new() });
        }
        let all: Vec<Incarnation> = self.workers.keys().copied().collect();
        for worker in all {
            if !known.contains(&worker) {
                self.workers.remove(&worker);
                self.join();
                continue;
            }
            let mut random = self.draw(1 << 31);
            let worker = self.workers.get_mut(&worker).unwrap();
            worker.engine_changed(|| splitmix64(&mut random).is_multiple_of(2));
        }
    }

    /// The store loses its last moment together with the engine.
    fn lose_commits(&mut self) {
        if self.moments_left > 0 && !self.before.is_empty() {
            self.moments_left -= 1;
            let at = self.draw(self.before.len() as u64) as usize;
            self.plane.shell.0.clone_from(&self.before[at]);
            self.before.clear();
            self.restart();
        }
    }

    fn report(&mut self, worker: Incarnation, count: usize, lost: bool) {
        let caller = self.workers.get_mut(&worker).unwrap();
        let mut groups = caller.unacknowledged();
        // Ends under two engines are in no message together.
        let under_another = caller.under_another > 0;
        groups.truncate(if under_another { count.min(caller.under_another) } else { count });
        if !lost {
            // Otherwise the answer is lost: they are sent again.
            caller.reports.drain(..groups.len());
            caller.under_another = caller.under_another.saturating_sub(groups.len());
        }
        self.handle(Input::TasksEnded { worker, groups, under_another });
    }

    fn step(&mut self, misfortunes: u64) {
        self.now_us += 500;
        if self.moments_left > 0 && self.draw(10) == 0 {
            self.before.push_back(self.plane.shell.0.clone());
            self.before.truncate(8);
        }
        let fate = self.draw(1_000);
        if fate < misfortunes {
            return match self.draw(10) {
                0 => self.restart(),
                n @ (1 | 5) if !self.workers.is_empty() => {
                    let nth = self.draw(self.workers.len() as u64) as usize;
                    let worker = *self.workers.keys().nth(nth).unwrap();
                    if n == 1 { self.die(worker) } else { self.leave(worker) }
                }
                7 | 8 => self.lose_blob(),
                9 => self.lose_commits(),
                6 => {
                    // Nothing ends for a while.
                    self.now_us += 150_000;
                    self.handle(Input::Tick);
                }
                2 => {
                    let jobs: Vec<JobId> =
                        self.plane.shell.0.keys().filter(|id| !self.is_over(id)).cloned().collect();
                    for job in jobs {
                        self.handle(Input::Pause { job: job.clone(), paused: true });
                        self.handle(Input::Tick);
                        // The grace of one that is canceled may be over.
                        if !self.is_over(&job) {
                            self.handle(Input::Pause { job, paused: false });
                        }
                    }
                }
                _ => self.join(),
            };
        }
        if self.workers.is_empty() {
            return self.join();
        }
        let n = self.draw(self.workers.len() as u64) as usize;
        let id = *self.workers.keys().nth(n).unwrap();
        match self.draw(6) {
            0 => self.handle(Input::Tick),
            1 => self.workers.get_mut(&id).unwrap().read_orders(),
            2 => {
                let (count, lost) = (self.draw(8) as usize, self.draw(4) == 0);
                self.report(id, count, lost);
            }
            _ => {
                self.workers.get_mut(&id).unwrap().read_orders();
                let runnable = self.workers[&id].runnable();
                if !runnable.is_empty() {
                    let n = self.draw(runnable.len() as u64) as usize;
                    self.workers.get_mut(&id).unwrap().run(&runnable[n]);
                }
            }
        }
    }

    fn lose_blob(&mut self) {
        let held = self.blobs.borrow().len() as u64;
        if held > 0 && self.losses_left > 0 {
            self.losses_left -= 1;
            let nth = self.draw(held) as usize;
            let digest = *self.blobs.borrow().keys().nth(nth).unwrap();
            self.blobs.borrow_mut().remove(&digest);
        }
    }

    /// What a value says; `None` if it is empty, or lost.
    fn number(&self, value: &Value) -> Option<u64> {
        match value {
            Value::Inline(bytes) => Some(u64::from_le_bytes(bytes[..].try_into().ok()?)),
            Value::Blob(blob) => self.blobs.borrow().get(&blob.digest).copied(),
        }
    }

    fn views(&self, job: &JobId) -> Vec<TaskView> {
        let query = TaskQuery { first: TaskIndex(0), limit: u32::MAX, state: None, name: None };
        self.plane.core.task_views(job, &query, self.now_us).unwrap()
    }

    fn is_over(&self, job: &JobId) -> bool {
        self.plane.core.task_job(job).unwrap().phase().is_over()
    }
}

impl World {
    fn new(seed: u64, slots: u32) -> Self {
        Self {
            plane: TaskPlane::new(StoredGraphs::default()),
            workers: BTreeMap::new(),
            next_worker: 0,
            slots,
            now_us: 1_000_000,
            random: seed | 1,
            blobs: Blobs::default(),
            losses_left: 2,
            before: VecDeque::new(),
            moments_left: 0,
        }
    }
}

fn run(graphs: &[Vec<NewTask>], parts: usize, seed: u64, slots: u32, misfortunes: u64, moments: u32) {
    let mut world = World::new(seed, slots);
    let ids: Vec<JobId> = (0..graphs.len()).map(|n| format!("job{n}").parse().unwrap()).collect();
    for (nonce, (id, tasks)) in ids.iter().zip(graphs).enumerate() {
        let (nonce, count) = (nonce as u32, tasks.len() as u32);
        let first = tasks.len() / parts;
        let mut submission = graph_submission(id, nonce, vec![class()], tasks[..first].to_vec());
        submission.spec.complete = parts == 1;
        for _ in 0..2 {
            world.handle(Input::SubmitGraph(submission.clone()));
        }
        if parts > 1 {
            let (first, tasks) = (TaskIndex(first as u32), tasks[first..].to_vec());
            for _ in 0..2 {
                let tasks = tasks.clone();
                world.handle(Input::ExtendGraph { job: id.clone(), nonce, first, tasks });
                world.restart();
            }
            world.handle(Input::StartGraph { job: id.clone(), nonce, count });
        }
    }
    world.moments_left = moments;
    for n in 0.. {
        if ids.iter().all(|id| world.is_over(id)) {
            break;
        }
        let open: Vec<_> =
            ids.iter().flat_map(|id| world.views(id)).filter(|v| !v.state.is_final()).collect();
        assert!(n < 20_000, "seed {seed}: it hangs: {open:#?}");
        for view in open {
            assert!(!view.reason.is_empty());
        }
        world.step(misfortunes);
    }
    for (id, tasks) in ids.iter().zip(graphs) {
        assert_eq!(*world.plane.core.task_job(id).unwrap().phase(), Phase::Done);
        let views = world.views(id);
        let taken = taken(tasks);
        for (index, want) in expected(tasks).into_iter().enumerate() {
            let state = views[index].state;
            match want {
                None => assert!(matches!(state, TaskState::Skipped | TaskState::Failed), "{index}: {state}"),
                Some(want) => {
                    assert_eq!(state, TaskState::Done, "task {index}");
                    let given = world.plane.core.task_value(id, TaskIndex(index as u32)).unwrap().unwrap();
                    if tasks[index].name.is_some() || !taken.contains(&(index as u32)) {
                        let is_lost = given.blob().is_some() && world.number(&given).is_none();
                        assert!(is_lost || world.number(&given) == Some(want), "task {index}: {given:?}");
                    }
                }
            }
        }
        let stored = &world.plane.shell.0[id].graph;
        assert!(stored.leases.is_empty(), "{:?}", stored.leases);
        // What is named, or what nobody takes; the tasks that others added are taken by those.
        let results = (0..tasks.len() as u32).filter(|index| {
            let name = &tasks[*index as usize].name;
            views[*index as usize].state == TaskState::Done && (name.is_some() || !taken.contains(index))
        });
        assert!(stored.values.len() <= results.count(), "values that nobody needs are gone");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn every_task_ends_as_its_graph_says_whatever_dies(
        graphs in prop::collection::vec(prop::collection::vec(drawn(), 1..30), 1..3),
        parts in 1usize..3,
        seed: u64,
        slots in 1u32..4,
        misfortunes in 0u64..60,
        moments in 0u32..4,
    ) {
        let graphs: Vec<Vec<NewTask>> = graphs.iter().map(|drawn| graph(drawn)).collect();
        run(&graphs, parts, seed, slots, misfortunes, moments);
    }
}

/// A graph of which somebody has enough after so many steps.
fn run_and_cancel(tasks: &[NewTask], seed: u64, slots: u32, steps: u64, grace_ms: u64) {
    let mut world = World::new(seed, slots);
    let id: JobId = "job".parse().unwrap();
    world.handle(Input::SubmitGraph(graph_submission(&id, 1, vec![class()], tasks.to_vec())));
    (0..steps).for_each(|_| world.step(60));
    if world.is_over(&id) {
        return;
    }
    let cancellation = Cancellation { job: id.clone().into(), reason: "enough".into(), grace_ms };
    world.handle(Input::Cancel(cancellation));
    let until_us = world.now_us + grace_ms * 1_000;
    while !world.is_over(&id) && world.now_us < until_us {
        world.step(60);
    }
    world.handle(Input::Tick);
    assert_eq!(*world.plane.core.task_job(&id).unwrap().phase(), Phase::Canceled, "its time is over");
    let before = world.views(&id);
    let late: Vec<Incarnation> = world.workers.keys().copied().collect();
    for worker in late {
        world.report(worker, usize::MAX, false);
    }
    assert_eq!(world.views(&id), before, "late reports change nothing");
    for (index, want) in expected(tasks).into_iter().enumerate() {
        let state = before[index].state;
        assert!(state.is_final(), "{index}: {state}");
        assert!(state != TaskState::Done || want.is_some(), "{index}");
        let kept = world.plane.core.task_value(&id, TaskIndex(index as u32)).unwrap();
        let given = kept.and_then(|value| world.number(&value));
        assert!(given.is_none() || given == want, "{index}: {given:?}");
    }
    assert!(world.plane.shell.0[&id].graph.leases.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_canceled_graph_is_over_when_its_grace_is_whatever_dies(
        drawn in prop::collection::vec(drawn(), 1..30),
        seed: u64,
        slots in 1u32..4,
        steps in 0u64..60,
        grace_ms in 0u64..30,
    ) {
        run_and_cancel(&graph(&drawn), seed, slots, steps, grace_ms);
    }
}

/// A graph of which somebody cancels a task now and then.
fn run_and_cancel_tasks(tasks: &[NewTask], seed: u64, slots: u32, grace_ms: u64) {
    let mut world = World::new(seed, slots);
    let id: JobId = "job".parse().unwrap();
    world.handle(Input::SubmitGraph(graph_submission(&id, 1, vec![class()], tasks.to_vec())));
    for n in 0.. {
        if world.is_over(&id) {
            break;
        }
        assert!(n < 20_000, "seed {seed}: it hangs: {:#?}", world.views(&id));
        let open: Vec<TaskIndex> =
            world.views(&id).iter().filter(|view| !view.state.is_final()).map(|view| view.task).collect();
        if !open.is_empty() && world.draw(15) == 0 {
            let task = open[world.draw(open.len() as u64) as usize];
            let cancellation =
                TaskCancellation { job: id.clone().into(), task, reason: "enough".into(), grace_ms };
            world.handle(Input::CancelTask(cancellation));
        } else {
            world.step(60);
        }
    }
    assert_eq!(*world.plane.core.task_job(&id).unwrap().phase(), Phase::Done);
    let views = world.views(&id);
    for (index, want) in expected(tasks).into_iter().enumerate() {
        let (state, code) = (views[index].state, views[index].code.map(|code| code.to_string()));
        match state {
            TaskState::Done => assert!(want.is_some(), "{index}"),
            // For want of one that was canceled, or because it was.
            TaskState::Failed | TaskState::Skipped => {
                assert!(want.is_none() || code.as_deref() == Some("E602"), "{index}: {state}, {code:?}");
            }
            state => panic!("{index}: {state}"),
        }
    }
    assert!(world.plane.shell.0[&id].graph.leases.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn tasks_that_somebody_cancels_are_over_and_the_others_end_as_ever_whatever_dies(
        drawn in prop::collection::vec(drawn(), 1..30),
        seed: u64,
        slots in 1u32..4,
        grace_ms in 0u64..30,
    ) {
        run_and_cancel_tasks(&graph(&drawn), seed, slots, grace_ms);
    }
}

#[test]
fn of_more_small_values_than_an_order_holds_the_worker_is_told_where_they_are() {
    const WIDTH: u32 = 2_200;
    let mut core = Core::new(1);
    let about = WorkerInfo { capacity: capacity(4), ..WorkerInfo::default() };
    core.handle(1, Input::WorkerJoined { worker: Incarnation(1), about }).unwrap();
    let output = |n| TaskRef::Task(TaskIndex(n));
    let mut tasks = vec![new_task(0); WIDTH as usize];
    let constant = Arg::Value(vec![1].into());
    tasks.push(NewTask {
        args: vec![constant, Arg::Outputs((0..WIDTH).map(output).collect())],
        ..new_task(0)
    });
    let id: JobId = "gather".parse().unwrap();
    let mut effects =
        core.handle(1, Input::SubmitGraph(graph_submission(&id, 1, vec![class()], tasks))).unwrap();
    let told = loop {
        let orders = effects.iter().filter_map(|effect| match effect {
            Effect::Orders { orders, .. } => Some(orders),
            _ => None,
        });
        let given: Vec<TaskOrder> = orders.flatten().filter_map(told_to_run).flatten().collect();
        if let Some(gather) = given.iter().find(|order| order.task.0 == WIDTH) {
            break gather.clone();
        }
        let value = || Outcome::Value(Value::Inline(vec![0; 16 << 10].into()));
        let ended = given.iter().map(|order| task_end(order.task.0, order.attempt, value())).collect();
        effects = core.handle(1, tasks_ended(Incarnation(1), &id, 1, ended)).unwrap();
    };
    let [constant, OrderArg::List(gathered)] = &told.args[..] else { panic!("{told:?}") };
    assert_eq!(*constant, OrderArg::One(OneArg::Value(Value::Inline(vec![1].into()))));
    let kept: Vec<OneArg> = (0..WIDTH).map(|n| OneArg::Kept(TaskIndex(n))).collect();
    assert_eq!(*gathered, kept);
}

/// The tasks that are to be run.
fn told_to_run(order: &Order) -> Option<Vec<TaskOrder>> {
    if let Order::Run(group) = order { Some(group.tasks.clone()) } else { None }
}

#[test]
fn a_chain_that_a_worker_has_ahead_is_given_out_once() {
    const LENGTH: u32 = 200;
    let mut core = Core::new(1);
    let worker = Incarnation(1);
    let about = WorkerInfo { capacity: capacity(1), ..WorkerInfo::default() };
    core.handle(1, Input::WorkerJoined { worker, about }).unwrap();
    let before = |n: u32| n.checked_sub(1).map(|n| Arg::Output(TaskRef::Task(TaskIndex(n))));
    let task = |n| NewTask { args: before(n).into_iter().collect(), ..new_task(0) };
    let id: JobId = "chain".parse().unwrap();
    let submission = graph_submission(&id, 1, vec![class()], (0..LENGTH).map(task).collect());
    let mut effects = core.handle(2, Input::SubmitGraph(submission)).unwrap();
    let mut given = Vec::new();
    // Each end is reported alone, while the worker has the next ones.
    for done in 0..LENGTH {
        for effect in effects.drain(..) {
            let Effect::Orders { orders, .. } = effect else { panic!("{effect:?}") };
            for order in orders {
                let Order::Run(group) = order else { panic!("nothing is recalled: {order:?}") };
                given.extend(group.tasks.iter().map(|order| (order.task.0, order.attempt)));
            }
        }
        let ended = vec![task_end(done, 1, Outcome::Value(Value::Inline(vec![7].into())))];
        effects = core.handle(3, tasks_ended(worker, &id, 1, ended)).unwrap();
    }
    assert_eq!(given, (0..LENGTH).map(|task| (task, 1)).collect::<Vec<_>>());
    assert_eq!(*core.task_job(&id).unwrap().phase(), Phase::Done);
}
