//! Memory and GPUs of workers: who gets which task, what is never exceeded, and what is said of tasks that
//! wait.

use std::collections::BTreeMap;

use syncline_scheduler::{
    core::{Core, Input, Phase, StoredJob, TaskJob, WorkerInfo},
    fault_code::FaultCode,
    ids::{Incarnation, JobId},
    sim::{graph_submission, new_task, task_end, tasks_ended},
    tasks::{
        Arg, Capacity, Failure, FailureCause, FunctionId, Needs, NewTask, Outcome, Resources, Rules,
        TaskClass, TaskIndex, TaskQuery, TaskRef, TaskState, TaskView, Value, Work,
    },
};

use crate::cluster::stored::apply;

const GIB: u64 = 1 << 30;

fn id() -> JobId {
    "graph".parse().unwrap()
}

fn function() -> FunctionId {
    FunctionId { name: "f".parse().unwrap(), signature: 1, types: String::new() }
}

fn of(gib: u64, gpus: u32) -> Resources {
    Resources { memory_bytes: gib * GIB, gpus }
}

fn class(resources: Resources) -> TaskClass {
    let rules = Rules {
        needs: Needs { resources, ..Needs::default() },
        crashes: 1_000,
        errors: 1_000,
        ..Rules::default()
    };
    TaskClass { work: Work::Call(function()), rules }
}

fn task(class: u16, inputs: &[u32]) -> NewTask {
    let args = inputs.iter().map(|n| Arg::Output(TaskRef::Task(TaskIndex(*n)))).collect();
    NewTask { args, ..new_task(class) }
}

fn submit(core: &mut Core, classes: Vec<TaskClass>, tasks: Vec<NewTask>) {
    core.handle(1, Input::SubmitGraph(graph_submission(&id(), 1, classes, tasks))).unwrap();
}

fn join(core: &mut Core, worker: u64, slots: u32, resources: Resources) {
    let capacity = Capacity { slots, functions: [function()].into(), resources, ..Capacity::default() };
    let about = WorkerInfo { trains: false, capacity, ..WorkerInfo::default() };
    core.handle(2, Input::WorkerJoined { worker: Incarnation(worker), about }).unwrap();
}

fn views(core: &Core) -> Vec<TaskView> {
    core.task_views(&id(), &TaskQuery::default(), 2).unwrap()
}

/// Tasks that workers have, with the worker and the attempt.
fn leased(core: &Core) -> Vec<(u32, String, u16)> {
    let held = views(core).into_iter().filter(|view| view.state == TaskState::Leased);
    held.map(|view| (view.task.0, view.worker.unwrap(), view.attempts)).collect()
}

fn indices(core: &Core) -> Vec<u32> {
    leased(core).into_iter().map(|(task, ..)| task).collect()
}

fn reason(core: &Core, task: usize) -> String {
    views(core)[task].reason.clone()
}

fn end(core: &mut Core, worker: u64, task: u32, attempt: u16, outcome: Outcome, now_us: u64) {
    let ended = vec![task_end(task, attempt, outcome)];
    core.handle(now_us, tasks_ended(Incarnation(worker), &id(), 1, ended)).unwrap();
}

fn done() -> Outcome {
    Outcome::Value(Value::default())
}

#[test]
fn a_worker_is_given_no_more_than_its_memory_and_the_others_say_what_is_free() {
    let mut core = Core::new(1);
    join(&mut core, 101, 8, of(4, 0));
    submit(&mut core, vec![class(of(3, 0)), class(of(8, 0))], vec![task(0, &[]), task(0, &[]), task(1, &[])]);
    assert_eq!(indices(&core), [0]);
    assert_eq!(reason(&core, 1), "it needs 3 GiB of memory, w101 has 4 GiB of memory, 1 GiB of it free");
    let never = "no worker that has `f` can ever hold it: it needs 8 GiB of memory, w101 has 4 GiB of memory";
    assert_eq!(reason(&core, 2), never);
    end(&mut core, 101, 0, 1, done(), 3);
    assert_eq!(indices(&core), [1]);
    join(&mut core, 102, 1, of(16, 0));
    assert_eq!(indices(&core), [1, 2]);
}

#[test]
fn a_function_that_nobody_has_is_told_with_the_one_that_was_probably_meant() {
    let reason_of = |name: &str| {
        let mut core = Core::new(1);
        let named =
            |name: &str| FunctionId { name: name.parse().unwrap(), signature: 1, types: String::new() };
        let functions = ["image.resize", "image.rotate"].map(named).into();
        let capacity = Capacity { slots: 1, functions, ..Capacity::default() };
        let about = WorkerInfo { trains: false, capacity, ..WorkerInfo::default() };
        core.handle(2, Input::WorkerJoined { worker: Incarnation(101), about }).unwrap();
        let class = TaskClass { work: Work::Call(named(name)), ..class(of(0, 0)) };
        submit(&mut core, vec![class], vec![task(0, &[])]);
        reason(&core, 0)
    };
    let nobody = "the only worker that runs tasks does not have the function";
    assert_eq!(reason_of("image.resise"), format!("{nobody} `image.resise`; did you mean `image.resize`?"));
    assert_eq!(reason_of("count"), format!("{nobody} `count`"));
}

#[test]
fn a_function_that_workers_have_with_other_types_is_told_with_theirs_and_those_of_the_graph() {
    let typed = |(signature, types): (u32, &str)| FunctionId {
        name: "f".parse().unwrap(),
        signature,
        types: types.to_owned(),
    };
    let reason_of = |graph, workers: &[(u32, &str)]| {
        let mut core = Core::new(1);
        for (n, of_worker) in (101..).zip(workers) {
            let functions = [typed(*of_worker)].into();
            let capacity = Capacity { slots: 1, functions, ..Capacity::default() };
            let about = WorkerInfo { trains: false, capacity, ..WorkerInfo::default() };
            core.handle(2, Input::WorkerJoined { worker: Incarnation(n), about }).unwrap();
        }
        let class = TaskClass { work: Work::Call(typed(graph)), ..class(of(0, 0)) };
        submit(&mut core, vec![class], vec![task(0, &[])]);
        reason(&core, 0)
    };
    let (short, long) = ((1, "(u32) -> u32"), (2, "(u64) -> u64"));
    let build = "build both from the same definition";
    let one = "1 worker has a function `f`, but with other types than the graph";
    assert_eq!(
        reason_of(long, &[short]),
        format!("{one}, `(u32) -> u32` instead of `(u64) -> u64`: {build}")
    );
    let both = "`(u32) -> u32`, `(u8) -> u8` instead of `(u64) -> u64`";
    let many = format!("3 workers have a function `f`, but with other types than the graph, {both}: {build}");
    assert_eq!(reason_of(long, &[short, (3, "(u8) -> u8"), short]), many);
    // What makes the difference may stand behind the end of what is kept, or was never kept.
    assert_eq!(reason_of((3, long.1), &[long]), format!("{one}: {build}"));
    assert_eq!(reason_of((3, ""), &[long]), format!("{one}: {build}"));
}

#[test]
fn a_task_that_may_wait_for_the_slot_of_a_function_that_does_not_stop_says_so() {
    let mut core = Core::new(1);
    join(&mut core, 101, 1, of(4, 0));
    submit(&mut core, vec![class(of(3, 0))], vec![task(0, &[]), task(0, &[])]);
    let reasons = |count: u32| {
        let (mut views, names) = (views(&core), ["slow".parse().unwrap()]);
        core.add_stopping(&id(), &mut views, |worker| {
            (worker == Incarnation(101)).then_some((count, &names[..]))
        });
        views.into_iter().map(|view| view.reason).collect::<Vec<_>>()
    };
    let alone = ["w101 has it", &reason(&core, 1)];
    assert_eq!(reasons(0), alone);
    let beside = "w101 has it; 1 function there (slow) that were told to stop have not returned, and may keep it from a slot";
    assert_eq!(
        reasons(1),
        [&beside.replace("that were told to stop have", "that was told to stop has"), alone[1]]
    );
    assert_eq!(reasons(2), [&beside.replace("1 function", "2 functions"), alone[1]]);
}

#[test]
fn each_of_the_workers_is_named_beside_the_tasks_that_it_has_and_its_functions_that_do_not_stop() {
    let mut core = Core::new(1);
    (101..=103).for_each(|worker| join(&mut core, worker, 1, of(3, 0)));
    submit(&mut core, vec![class(of(3, 0))], vec![task(0, &[]), task(0, &[]), task(0, &[])]);
    let mut views = views(&core);
    let (count, names) = (1, ["slow".parse().unwrap()]);
    core.add_stopping(&id(), &mut views, |worker| (worker.0 != 102).then_some((count, &names[..])));
    for view in views {
        let worker = view.worker.unwrap();
        assert!(view.reason.starts_with(&format!("{worker} has it")), "{worker}: {}", view.reason);
        assert_eq!(view.reason.contains("(slow)"), worker != "w102", "{worker}: {}", view.reason);
    }
}

#[test]
fn a_label_that_nobody_carries_is_named_beside_the_memory_that_there_is() {
    let mut core = Core::new(1);
    join(&mut core, 101, 8, of(4, 0));
    let mut labeled = class(of(3, 0));
    labeled.rules.needs.labels.insert("big".to_owned(), "yes".to_owned());
    submit(&mut core, vec![labeled], vec![task(0, &[])]);
    let says = reason(&core, 0);
    assert!(
        says.ends_with("3 GiB of memory and label big=yes, w101 has 4 GiB of memory and no label big"),
        "{says}"
    );
}

#[test]
fn what_takes_all_slots_of_a_worker_lets_others_go_to_the_next_one() {
    let mut core = Core::new(1);
    join(&mut core, 1, 2, of(0, 0));
    let whole = TaskClass {
        rules: Rules { needs: Needs { slots: 2, ..Needs::default() }, ..Rules::default() },
        ..class(of(0, 0))
    };
    submit(
        &mut core,
        vec![whole, class(of(0, 0))],
        vec![task(0, &[]), task(0, &[]), task(1, &[]), task(1, &[])],
    );
    let on = |core: &Core| -> Vec<(u32, String)> {
        leased(core).into_iter().map(|(task, worker, _)| (task, worker)).collect()
    };
    assert_eq!(on(&core), [(0, "w1".to_owned())]);
    assert_eq!(reason(&core, 1), format!("all slots are taken: w1 has f (task 0 of {})", id()));
    join(&mut core, 2, 2, of(0, 0));
    assert_eq!(on(&core), [(0, "w1".to_owned()), (1, "w2".to_owned())]);
    // A turn gives no worker more than its share of what is there.
    end(&mut core, 2, 1, 1, done(), 3);
    core.handle(4, Input::Tick).unwrap();
    assert_eq!(on(&core)[1..], [(2, "w2".to_owned()), (3, "w2".to_owned())]);
}

#[test]
fn what_has_a_higher_priority_goes_first_whatever_was_there_before() {
    let mut core = Core::new(1);
    let urgent = TaskClass { rules: Rules { priority: 7, ..Rules::default() }, ..class(of(0, 0)) };
    // Each takes the whole worker, so that nothing is leased ahead.
    let whole = |class: TaskClass| TaskClass {
        rules: Rules { needs: Needs { slots: 2, ..Needs::default() }, ..class.rules },
        ..class
    };
    let classes = vec![whole(class(of(0, 0))), whole(urgent)];
    submit(&mut core, classes, vec![task(0, &[]), task(0, &[]), task(1, &[]), task(1, &[])]);
    join(&mut core, 1, 2, of(0, 0));
    let mut order = Vec::new();
    for now_us in 3..7 {
        let (task, _, attempt) = leased(&core)[0].clone();
        order.push(task);
        end(&mut core, 1, task, attempt, done(), now_us);
    }
    assert_eq!(order, [2, 3, 0, 1]);
}

#[test]
fn what_takes_all_slots_and_was_lost_twice_comes_to_the_only_worker_that_is_left_one_after_the_other() {
    let mut core = Core::new(1);
    [1, 2].iter().for_each(|worker| join(&mut core, *worker, 2, of(0, 0)));
    let whole = TaskClass {
        rules: Rules { needs: Needs { slots: 2, ..Needs::default() }, crashes: 9, ..Rules::default() },
        ..class(of(0, 0))
    };
    let after = |input| NewTask { after: vec![TaskRef::Task(TaskIndex(input))], ..task(1, &[]) };
    let tasks = vec![task(0, &[]), task(0, &[]), after(0), after(1)];
    submit(&mut core, vec![whole, class(of(0, 0))], tasks);
    join(&mut core, 3, 2, of(0, 0));
    for worker in [1, 2] {
        let reason = "silent".to_owned();
        core.handle(3, Input::WorkerGone { worker: Incarnation(worker), reason, never_told: Vec::new() })
            .unwrap();
    }
    core.handle(1_000_000, Input::Tick).unwrap();
    let first = indices(&core)[0];
    assert_eq!(indices(&core), [first]);
    end(&mut core, 3, first, 2, done(), 1_000_001);
    assert!(
        indices(&core).contains(&(1 - first)),
        "{:?}: {}",
        leased(&core),
        reason(&core, 1 - first as usize)
    );
}

#[test]
fn gpus_are_counted_like_memory_and_tasks_that_need_neither_go_on_beside() {
    let mut core = Core::new(1);
    join(&mut core, 1, 3, of(0, 1));
    let classes = vec![class(of(0, 1)), class(of(0, 0)), class(of(0, 2))];
    let tasks = vec![task(0, &[]), task(0, &[]), task(1, &[]), task(1, &[]), task(2, &[])];
    submit(&mut core, classes, tasks);
    assert_eq!(indices(&core), [0, 2, 3]);
    assert_eq!(reason(&core, 1), "it needs 1 GPU, w1 has 1 GPU, 0 of it free");
    assert!(reason(&core, 4).ends_with("can ever hold it: it needs 2 GPUs, w1 has 1 GPU"));
}

#[test]
fn what_follows_in_a_chain_takes_no_memory_before_it_can_begin() {
    let mut core = Core::new(1);
    join(&mut core, 1, 4, of(4, 0));
    // The second waits for the first; the third could use its memory meanwhile.
    submit(&mut core, vec![class(of(2, 0))], vec![task(0, &[]), task(0, &[0]), task(0, &[])]);
    assert_eq!(indices(&core), [0, 2]);
    end(&mut core, 1, 0, 1, done(), 3);
    assert_eq!(indices(&core), [1, 2]);
}

#[test]
fn what_waits_for_much_memory_is_not_overtaken_for_ever_by_what_needs_little() {
    let mut core = Core::new(1);
    join(&mut core, 1, 4, of(4, 0));
    submit(&mut core, vec![class(of(1, 0)), class(of(4, 0))], vec![task(0, &[])]);
    let next = |class: u16, name: &str| {
        let classes = vec![self::class(of(1, 0)), self::class(of(4, 0)), self::class(of(0, 0))];
        Input::SubmitGraph(graph_submission(&name.parse().unwrap(), 1, classes, vec![task(class, &[])]))
    };
    core.handle(3, next(1, "large")).unwrap();
    core.handle(4, next(0, "small")).unwrap();
    core.handle(5, next(2, "none")).unwrap();
    let state = |core: &Core, job: &str| {
        core.task_views(&job.parse().unwrap(), &TaskQuery::default(), 5).unwrap().remove(0).state
    };
    let states = |core: &Core| ["large", "small", "none"].map(|job| state(core, job));
    assert_eq!(states(&core), [TaskState::Ready, TaskState::Ready, TaskState::Leased]);
    end(&mut core, 1, 0, 1, done(), 6);
    assert_eq!(states(&core), [TaskState::Leased, TaskState::Ready, TaskState::Leased]);
}

#[test]
fn what_is_taken_is_known_after_a_restart() {
    let mut core = Core::new(1);
    join(&mut core, 1, 4, of(4, 0));
    submit(&mut core, vec![class(of(3, 0))], vec![task(0, &[]), task(0, &[])]);
    let commit = core.take_commits(2).remove(&id()).unwrap();
    let mut stored = StoredJob::default();
    apply(&mut stored, commit);
    let mut next = Core::new(1);
    next.restore_tasks(TaskJob::load(&stored).unwrap());
    next.handle(3, Input::Tick).unwrap();
    assert_eq!(indices(&next), [0], "the other one has no room");
    end(&mut next, 1, 0, 1, done(), 4);
    assert_eq!(indices(&next), [1]);
}

#[test]
fn each_ready_task_says_what_its_own_class_waits_for() {
    let mut core = Core::new(1);
    join(&mut core, 1, 1, of(2, 0));
    submit(&mut core, vec![class(of(3, 0)), class(of(9, 0))], [0, 1, 0, 1].map(|n| task(n, &[])).into());
    for (view, needs) in views(&core).iter().zip(["3 GiB", "9 GiB", "3 GiB", "9 GiB"]) {
        assert!(view.reason.contains(&format!("it needs {needs} of memory")), "{}", view.reason);
    }
}

/// A number that follows from the one before.
fn draw(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

#[test]
fn no_worker_ever_has_more_than_it_offers_whatever_happens_and_nothing_is_lost_of_it() {
    for seed in 0..40 {
        let mut random = seed;
        let needs = [of(1, 0), of(3, 0), of(2, 1), of(0, 1), of(0, 0)];
        let mut offers: BTreeMap<u64, Resources> = [(1, of(4, 0)), (2, of(3, 1)), (3, of(8, 2))].into();
        let mut core = Core::new(1);
        offers.iter().for_each(|(worker, offer)| join(&mut core, *worker, 3, *offer));
        let tasks: Vec<NewTask> = (0..60)
            .map(|n| match draw(&mut random, 3) {
                0 if n > 0 => task(draw(&mut random, 5) as u16, &[n - 1]),
                _ => task(draw(&mut random, 5) as u16, &[]),
            })
            .collect();
        let classes: Vec<usize> = tasks.iter().map(|task| task.class.0 as usize).collect();
        submit(&mut core, needs.map(class).to_vec(), tasks);
        let mut now_us = 10;
        while *core.task_job(&id()).unwrap().phase() != Phase::Done {
            now_us += 40_000_000;
            core.handle(now_us, Input::Tick).unwrap();
            let held = leased(&core);
            let mut taken: BTreeMap<u64, Resources> = BTreeMap::new();
            for (task, worker, _) in &held {
                let taken = taken.entry(worker[1..].parse().unwrap()).or_default();
                *taken = taken.plus(&needs[classes[*task as usize]]);
            }
            for (worker, taken) in &taken {
                assert!(offers[worker].fits(taken) > 0, "seed {seed}: {worker} has {taken:?}");
            }
            assert!(!held.is_empty(), "seed {seed}: something always goes on");
            let (task, worker, attempt) = held[draw(&mut random, held.len() as u64) as usize].clone();
            let worker: u64 = worker[1..].parse().unwrap();
            match draw(&mut random, 12) {
                0 => {
                    let gone = Input::WorkerGone {
                        worker: Incarnation(worker),
                        reason: "dead".into(),
                        never_told: Vec::new(),
                    };
                    core.handle(now_us, gone).unwrap();
                    let offer = offers.remove(&worker).unwrap();
                    let next = offers.keys().max().unwrap().max(&worker) + 1;
                    offers.insert(next, offer);
                    join(&mut core, next, 3, offer);
                }
                1 => {
                    let (code, reason) = (FaultCode::new("E440"), "no".into());
                    let failure = Failure { cause: FailureCause::Function, code, reason };
                    end(&mut core, worker, task, attempt, Outcome::Failed(failure), now_us);
                }
                // A report may come twice.
                2 => (0..2).for_each(|_| end(&mut core, worker, task, attempt, done(), now_us)),
                _ => end(&mut core, worker, task, attempt, done(), now_us),
            }
        }
    }
}
