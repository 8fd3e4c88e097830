//! Whose turn it is: which of several jobs the slots of a worker go to.

use std::collections::BTreeMap;

use syncline_scheduler::{
    core::{Cancellation, Core, Effect, Input, WorkerInfo},
    ids::{Incarnation, JobId},
    sim::{graph_submission, new_task, task_end, tasks_ended},
    tasks::{
        Arg, Capacity, FunctionId, NewTask, Order, Outcome, Rules, TaskClass, TaskEnd, TaskIndex, TaskRef,
        Value, Work,
    },
};

const WORKER: Incarnation = Incarnation(1);
const SLOTS: u32 = 4;
const CALL_US: u64 = 1_000;

/// One worker that runs its calls in the order in which it was given them, `CALL_US` each.
struct World {
    core: Core,
    now_us: u64,
    /// Job, task, attempt.
    held: Vec<(JobId, u32, u16)>,
}

impl World {
    fn new() -> Self {
        let capacity = Capacity { slots: SLOTS, functions: [function()].into(), ..Capacity::default() };
        let about = WorkerInfo { trains: false, capacity, ..WorkerInfo::default() };
        let mut world = Self { core: Core::new(1), now_us: 1, held: Vec::new() };
        world.give(Input::WorkerJoined { worker: WORKER, about });
        world
    }

    /// Returns how many tasks of each job that gave to the worker.
    fn give(&mut self, input: Input) -> BTreeMap<String, usize> {
        let effects = self.core.handle(self.now_us, input).unwrap();
        self.core.take_commits(self.now_us);
        let mut given = BTreeMap::new();
        for effect in effects {
            let Effect::Orders { orders, .. } = effect else { continue };
            for order in orders {
                let Order::Run(group) = order else { continue };
                *given.entry(group.submission.job.to_string()).or_default() += group.tasks.len();
                self.held
                    .extend(group.tasks.iter().map(|t| (group.submission.job.clone(), t.task.0, t.attempt)));
            }
        }
        given
    }

    fn submit(&mut self, name: &str, priority: i16, tasks: Vec<NewTask>) -> BTreeMap<String, usize> {
        let class = TaskClass { work: Work::Call(function()), rules: Rules { priority, ..Rules::default() } };
        self.give(Input::SubmitGraph(graph_submission(&id(name), 1, vec![class], tasks)))
    }

    /// The call that came first ends.
    fn end_first(&mut self) -> BTreeMap<String, usize> {
        let (job, task, attempt) = self.held.remove(0);
        self.now_us += CALL_US;
        let end = task_end(task, attempt, Outcome::Value(Value::default()));
        let ended = vec![TaskEnd { run_us: CALL_US, ..end }];
        self.give(tasks_ended(WORKER, &job, 1, ended))
    }
}

fn id(name: &str) -> JobId {
    name.parse().unwrap()
}

fn function() -> FunctionId {
    FunctionId { name: "f".parse().unwrap(), signature: 1, types: String::new() }
}

fn alone(count: usize) -> Vec<NewTask> {
    vec![new_task(0); count]
}

/// So many chains of ten calls.
fn chains(count: u32) -> Vec<NewTask> {
    let task = |index: u32| match index % 10 {
        0 => new_task(0),
        _ => NewTask { args: vec![Arg::Output(TaskRef::Task(TaskIndex(index - 1)))], ..new_task(0) },
    };
    (0..count * 10).map(task).collect()
}

#[test]
fn short_calls_of_a_lower_priority_take_no_slot_that_others_wait_for() {
    for tasks in [alone(2_000), chains(200)] {
        let mut world = World::new();
        world.submit("low", 0, tasks);
        for _ in 0..50 {
            world.end_first();
        }
        assert!(world.held.len() > SLOTS as usize, "it has work in hand");
        // How long these take is not known: the worker has none of them in hand behind what it runs.
        let mut given = world.submit("high", 100, alone(8)).get("high").copied().unwrap_or(0);
        while given < SLOTS as usize {
            let now = world.end_first();
            assert_eq!(now.get("low"), None, "while {given} of the others run");
            given += now.get("high").copied().unwrap_or(0);
        }
    }
}

#[test]
fn the_higher_priority_has_all_free_slots_of_all_workers_before_a_lower_one_has_any() {
    // So many workers with so many slots each, of which so many are busy for long, and calls of the higher
    // priority.
    for (workers, slots, busy, high) in [(10, 10, 0, 100), (10, 10, 0, 40), (10, 8, 9, 8), (3, 4, 1, 20)] {
        let mut core = Core::new(1);
        let join = |core: &mut Core, n| {
            let capacity = Capacity { slots, functions: [function()].into(), ..Capacity::default() };
            let about = WorkerInfo { trains: false, capacity, ..WorkerInfo::default() };
            core.handle(1, Input::WorkerJoined { worker: Incarnation(n), about }).unwrap();
        };
        let submit = |core: &mut Core, now_us, name: &str, priority, tasks| {
            if tasks == 0 {
                return;
            }
            let rules = Rules { priority, ..Rules::default() };
            let class = TaskClass { work: Work::Call(function()), rules };
            let submission = graph_submission(&id(name), 1, vec![class], alone(tasks));
            core.handle(now_us, Input::SubmitGraph(submission)).unwrap();
        };
        (1..=busy).for_each(|n| join(&mut core, n));
        submit(&mut core, 1, "stays", 0, (u64::from(slots) * busy) as usize);
        (busy + 1..=workers).for_each(|n| join(&mut core, n));
        submit(&mut core, 1, "before", 0, (u64::from(slots) * (workers - busy)) as usize);
        submit(&mut core, 2, "low", 0, 1_000);
        submit(&mut core, 3, "high", 100, high);
        let cancel = Cancellation { job: id("before").into(), reason: String::new(), grace_ms: 0 };
        let mut given = core.handle(4, Input::Cancel(cancel)).unwrap();
        given.extend(core.handle(5, Input::Tick).unwrap());
        let free = u64::from(slots) * (workers - busy);
        let leased = |name: &str| {
            let orders = given.iter().filter_map(|effect| match effect {
                Effect::Orders { orders, .. } => Some(orders),
                _ => None,
            });
            let groups = orders.flatten().filter_map(|order| match order {
                Order::Run(group) if group.submission.job == id(name) => Some(group.tasks.len() as u64),
                _ => None,
            });
            groups.sum::<u64>()
        };
        let first = free.min(high as u64);
        let case = format!("{workers} workers, {slots} slots, {busy} busy, {high} high");
        assert_eq!((leased("high"), leased("low")), (first, free - first), "{case}");
    }
}

#[test]
fn a_chain_that_was_begun_goes_on_before_other_calls_of_its_job_begin() {
    let mut world = World::new();
    world.submit("chains", 0, chains(100));
    for _ in 0..200 {
        world.end_first();
    }
    let begun = world.held.iter().map(|(_, task, _)| task / 10).max().unwrap();
    assert!(begun < 60, "chain {begun} has begun, and 200 calls are the length of 20 chains");
}
