//! Workers that are training slots of one process: which jobs get them, and what is left for general tasks.

use std::collections::BTreeSet;

use syncline_scheduler::{
    core::{Cancellation, Core, IfTaken, Input, Phase, Submission, WorkerInfo},
    ids::{Incarnation, JobId, ProcessId},
    sim::{graph_submission, new_task, training, training_job},
    spec::{JobSpec, NodeKind},
    tasks::{
        Capacity, FunctionId, Needs, PreparedTraining, Resources, Rules, TaskClass, TaskQuery, TaskState,
        Work,
    },
};

const NOW_US: u64 = 1_000_000;

fn id(text: &str) -> JobId {
    text.parse().unwrap()
}

fn function() -> FunctionId {
    FunctionId { name: "look".parse().unwrap(), signature: 1, types: String::new() }
}

/// A core with processes of so many training slots each; those of process 1 have the lowest numbers. Each
/// offers `slots` slots and a GPU to general tasks.
fn core(processes: u64, trainings: u64, slots: u32) -> Core {
    let mut core = Core::new(1);
    for process in 1..=processes {
        for slot in 1..=trainings {
            let resources = Resources { gpus: 1, ..Resources::default() };
            let offered =
                Capacity { slots, functions: [function()].into(), resources, ..Capacity::default() };
            let capacity = if slot == 1 { offered } else { Capacity::default() };
            let worker = Incarnation((process - 1) * trainings + slot);
            let about = WorkerInfo {
                process: ProcessId::new(process),
                training_slot: slot as u32,
                capacity,
                ..WorkerInfo::default()
            };
            core.handle(NOW_US, Input::WorkerJoined { worker, about }).unwrap();
        }
    }
    core
}

/// Submits a job for so many workers, and says which it has got.
fn submit(core: &mut Core, name: &str, least: u32, most: u32) -> Vec<u64> {
    let mut spec = training_job(training("bsp".parse().unwrap(), 64, 8));
    for node in &mut spec.nodes {
        if let NodeKind::Train(train) = &mut node.kind {
            (train.min_workers, train.max_workers) = (least, most);
        }
    }
    let spec = Box::new(JobSpec { id: id(name), ..spec });
    core.handle(NOW_US, Input::Submit(Submission { spec, nonce: 1, if_taken: IfTaken::Refuse })).unwrap();
    members(core, name)
}

fn members(core: &Core, name: &str) -> Vec<u64> {
    core.job(&id(name)).unwrap().active().map(|worker| worker.0).collect()
}

fn cancel(core: &mut Core, name: &str) {
    let cancellation = Cancellation { job: id(name).into(), reason: String::new(), grace_ms: 0 };
    core.handle(NOW_US, Input::Cancel(cancellation)).unwrap();
}

/// How many of four calls with these needs are given out.
fn calls_given(core: &mut Core, name: &str, needs: Needs) -> usize {
    let rules = Rules { needs, ..Rules::default() };
    let class = TaskClass { rules, ..TaskClass::call(function()) };
    let tasks = (0..4).map(|_| new_task(0)).collect();
    core.handle(NOW_US, Input::SubmitGraph(graph_submission(&id(name), 1, vec![class], tasks))).unwrap();
    leased(core, name)
}

#[test]
fn a_job_takes_one_slot_of_each_process_and_the_next_job_the_next_one() {
    let mut core = core(2, 2, 4);
    assert_eq!(submit(&mut core, "first", 1, 9), [1, 3]);
    assert_eq!(submit(&mut core, "second", 2, 9), [2, 4]);
    assert!(submit(&mut core, "third", 1, 9).is_empty());
    // The end of one is nothing to the other.
    cancel(&mut core, "first");
    assert_eq!((members(&core, "second"), members(&core, "third")), (vec![2, 4], vec![1, 3]));
}

#[test]
fn jobs_for_one_worker_go_to_the_process_that_trains_least() {
    let mut core = core(3, 2, 4);
    let taken: Vec<u64> = (0..6).flat_map(|n| submit(&mut core, &format!("job-{n}"), 1, 1)).collect();
    let process = |worker: &u64| (worker - 1) / 2;
    for round in taken.chunks(3) {
        assert_eq!(round.iter().map(process).collect::<BTreeSet<_>>(), [0, 1, 2].into(), "{taken:?}");
    }
}

#[test]
fn a_job_that_needs_more_workers_than_there_are_takes_no_slot_and_says_why() {
    let mut core = core(1, 4, 4);
    assert!(submit(&mut core, "large", 2, 9).is_empty());
    let job = core.job(&id("large")).unwrap();
    assert_eq!(*job.phase(), Phase::Queued);
    let waits = "2 workers: of 1 that are there with 4 training slots 4 slots are idle, and a job takes one slot of each worker";
    let commits = core.take_commits(NOW_US);
    let told = commits[&id("large")].summary.iter().find(|(field, _)| *field == "waiting_for");
    assert_eq!(told.map(|(_, text)| text.as_str()), Some(waits));
    // It holds nothing that others wait for, and goes on when a second one comes.
    assert_eq!(submit(&mut core, "small", 1, 9), [1]);
    let about = WorkerInfo { process: ProcessId::new(2), ..WorkerInfo::default() };
    core.handle(NOW_US, Input::WorkerJoined { worker: Incarnation(9), about }).unwrap();
    assert_eq!(members(&core, "large"), [2, 9]);
}

#[test]
fn each_training_takes_one_of_the_slots_of_its_process_and_any_of_them_the_gpu() {
    let mut core = core(1, 3, 4);
    submit(&mut core, "first", 1, 9);
    submit(&mut core, "second", 1, 9);
    assert_eq!(calls_given(&mut core, "calls", Needs::default()), 2, "two slots of four train");
    cancel(&mut core, "calls");
    cancel(&mut core, "first");
    assert_eq!(calls_given(&mut core, "gpu", gpu()), 0);
    cancel(&mut core, "second");
    assert_eq!(leased(&core, "gpu"), 1);
}

#[test]
fn a_training_joins_a_worker_whose_gpu_a_call_has_and_no_further_call_gets_it_until_the_training_ends() {
    let mut core = core(1, 1, 4);
    assert_eq!(calls_given(&mut core, "before", gpu()), 1);
    assert_eq!(submit(&mut core, "training", 1, 9), [1], "both compute on it for now");
    let views = core.task_views(&id("before"), &TaskQuery::default(), NOW_US).unwrap();
    assert_eq!(views[0].state, TaskState::Leased, "it is not taken from the call");
    cancel(&mut core, "before");
    assert_eq!(calls_given(&mut core, "beside", gpu()), 0);
    cancel(&mut core, "training");
    assert_eq!(leased(&core, "beside"), 1);
}

fn leased(core: &Core, name: &str) -> usize {
    let views = core.task_views(&id(name), &TaskQuery::default(), NOW_US).unwrap();
    views.iter().filter(|view| view.state == TaskState::Leased).count()
}

fn gpu() -> Needs {
    Needs { resources: Resources { gpus: 1, ..Resources::default() }, ..Needs::default() }
}

#[test]
fn a_worker_whose_training_ends_goes_to_the_next_training_before_calls_get_its_slot_and_gpu() {
    let mut core = core(1, 1, 1);
    assert_eq!(submit(&mut core, "first", 1, 9), [1]);
    assert!(submit(&mut core, "next", 1, 9).is_empty());
    assert_eq!(calls_given(&mut core, "of-gpu", gpu()), 0);
    assert_eq!(calls_given(&mut core, "of-slot", Needs::default()), 0);
    cancel(&mut core, "first");
    assert_eq!(members(&core, "next"), [1]);
    assert_eq!((leased(&core, "of-gpu"), leased(&core, "of-slot")), (0, 0), "it trains");
    cancel(&mut core, "next");
    assert_eq!((leased(&core, "of-gpu"), leased(&core, "of-slot")), (1, 0), "what has waited longest");
}

#[test]
fn a_worker_that_joins_goes_to_the_training_that_waits_before_calls_get_its_slot_and_gpu() {
    let mut core = core(0, 1, 1);
    assert!(submit(&mut core, "training", 1, 9).is_empty());
    assert_eq!(calls_given(&mut core, "of-gpu", gpu()), 0);
    let resources = Resources { gpus: 1, ..Resources::default() };
    let capacity = Capacity { functions: [function()].into(), resources, ..Capacity::default() };
    let about = WorkerInfo { capacity: Capacity { slots: 1, ..capacity }, ..WorkerInfo::default() };
    core.handle(NOW_US, Input::WorkerJoined { worker: Incarnation(1), about }).unwrap();
    assert_eq!((members(&core, "training"), leased(&core, "of-gpu")), (vec![1], 0));
    cancel(&mut core, "training");
    assert_eq!(leased(&core, "of-gpu"), 1);
}

/// A graph with a task that trains and a call that wants a GPU, which become ready together.
#[test]
fn of_a_training_and_a_call_of_one_graph_that_become_ready_together_the_training_gets_the_worker() {
    let mut core = core(1, 1, 1);
    let job = training_job(training("bsp".parse().unwrap(), 64, 8));
    let trains =
        TaskClass { work: Work::Train(PreparedTraining::new(&job).unwrap()), ..TaskClass::call(function()) };
    let rules = Rules { needs: gpu(), ..Rules::default() };
    let classes = vec![TaskClass { rules, ..TaskClass::call(function()) }, trains];
    let tasks = vec![new_task(0), new_task(1)];
    core.handle(NOW_US, Input::SubmitGraph(graph_submission(&id("graph"), 1, classes, tasks))).unwrap();
    let views = core.task_views(&id("graph"), &TaskQuery::default(), NOW_US).unwrap();
    let states: Vec<TaskState> = views.iter().map(|view| view.state).collect();
    assert_eq!(states, [TaskState::Ready, TaskState::Training]);
    assert_eq!(members(&core, "graph~1"), [1], "it has the worker");
}

#[test]
fn calls_that_ask_for_no_gpu_run_beside_one_that_has_it_unless_that_takes_all_slots() {
    let gpu = |slots| {
        let resources = Resources { gpus: 1, ..Resources::default() };
        Needs { resources, slots, ..Needs::default() }
    };
    for (slots, beside) in [(1, 3), (4, 0)] {
        let mut core = core(1, 1, 4);
        assert_eq!(calls_given(&mut core, "gpu", gpu(slots)), 1);
        assert_eq!(calls_given(&mut core, "models", Needs::default()), beside, "{slots} slots");
    }
}

#[test]
fn each_worker_offers_its_gpu_whatever_other_workers_there_are() {
    let mut core = core(2, 1, 4);
    assert_eq!(submit(&mut core, "training", 1, 1), [1]);
    assert_eq!(calls_given(&mut core, "gpu", gpu()), 1, "that of the worker that does not train");
}

#[test]
fn a_worker_that_leaves_is_given_no_job_with_its_other_slots_meanwhile() {
    let mut core = core(1, 3, 4);
    assert_eq!(submit(&mut core, "first", 1, 9), [1]);
    core.handle(NOW_US, Input::WorkerLeft { worker: Incarnation(1), begun: vec![] }).unwrap();
    assert!(members(&core, "first").is_empty());
    // One that takes its place gets the job.
    let about = WorkerInfo { process: ProcessId::new(2), ..WorkerInfo::default() };
    core.handle(NOW_US, Input::WorkerJoined { worker: Incarnation(9), about }).unwrap();
    assert_eq!(members(&core, "first"), [9]);
}

#[test]
fn a_process_that_dies_takes_all_its_memberships_along_and_a_slot_that_is_dropped_its_own() {
    let mut core = core(2, 2, 4);
    submit(&mut core, "first", 1, 9);
    submit(&mut core, "second", 1, 9);
    let gone = |worker| Input::WorkerGone {
        worker: Incarnation(worker),
        reason: "killed".into(),
        never_told: Vec::new(),
    };
    core.handle(NOW_US, gone(1)).unwrap();
    assert_eq!((members(&core, "first"), members(&core, "second")), (vec![3], vec![2, 4]));
    core.handle(NOW_US, gone(2)).unwrap();
    assert_eq!((members(&core, "first"), members(&core, "second")), (vec![3], vec![4]));
}
