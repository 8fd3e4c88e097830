//! Tasks that train, without any training: which jobs the core makes for them, and what becomes of both.

use std::collections::BTreeMap;

use crate::cluster::stored::apply;
use syncline_scheduler::{
    core::{
        Cancellation, Core, Effect, GraphSubmission, HeldJob, IfTaken, Input, Job, LastWeights, Phase,
        Refused, StoredJob, Submission, TaskFault, TaskJob, WorkerInfo,
    },
    fault_code::FaultCode,
    ids::{Incarnation, JobId, RunId, ShardIndex},
    sim::{self, graph_submission, new_task, task_end, tasks_ended},
    tasks::{
        Arg, Backoff, Capacity, FunctionId, NewTask, Outcome, PreparedTraining, Rules, TaskClass, TaskIndex,
        TaskQuery, TaskRef, TaskState, TaskView, TrainingChanges, Value, Work,
    },
};

const NOW_US: u64 = 1_000_000;
const WORKER: Incarnation = Incarnation(1);

fn id(text: &str) -> JobId {
    text.parse().unwrap()
}

fn cancel(job: &str) -> Cancellation {
    Cancellation { job: id(job).into(), reason: "enough".into(), grace_ms: 0 }
}

fn function() -> FunctionId {
    FunctionId { name: "choose".parse().unwrap(), signature: 1, types: String::new() }
}

/// Class 0 trains and is tried again once, class 1 calls.
fn classes() -> Vec<TaskClass> {
    let job = sim::training_job(sim::training("bsp".parse().unwrap(), 64, 8));
    let work = Work::Train(PreparedTraining::new(&job).unwrap());
    let rules = Rules { errors: 1, backoff: Backoff { first_ms: 0, longest_ms: 0 }, ..Rules::default() };
    vec![TaskClass { work, rules }, TaskClass::call(function())]
}

fn task(class: u16, args: Vec<Arg>) -> NewTask {
    NewTask { args, ..new_task(class) }
}

fn changes(changes: &TrainingChanges) -> Vec<u8> {
    postcard::to_stdvec(changes).unwrap()
}

fn submission(name: &str, tasks: Vec<NewTask>, if_taken: IfTaken, nonce: u32) -> Input {
    let submission = graph_submission(&id(name), nonce, classes(), tasks);
    Input::SubmitGraph(GraphSubmission { if_taken, ..submission })
}

/// A core with a graph of these tasks.
fn core(tasks: Vec<NewTask>) -> Core {
    let mut core = Core::new(1);
    core.handle(NOW_US, submission("graph", tasks, IfTaken::Refuse, 7)).unwrap();
    core
}

fn view(core: &Core, task: u32) -> TaskView {
    let query = TaskQuery { first: TaskIndex(task), limit: 1, ..TaskQuery::default() };
    core.task_views(&id("graph"), &query, NOW_US).unwrap().remove(0)
}

fn phase(core: &Core, job: &str) -> Option<Phase> {
    core.job(&id(job)).map(|job| job.phase().clone())
}

/// Nobody has come to look at the ready tasks of the first one.
#[test]
fn a_graph_that_takes_the_name_of_one_with_more_classes_is_given_out_as_it_is() {
    let mut core = core(vec![task(1, Vec::new())]);
    core.handle(NOW_US, Input::Cancel(cancel("graph"))).unwrap();
    let fewer =
        graph_submission(&id("graph"), 8, vec![TaskClass::call(function())], vec![task(0, Vec::new())]);
    let replace = GraphSubmission { if_taken: IfTaken::Replace, ..fewer };
    core.handle(NOW_US + 1, Input::SubmitGraph(replace)).unwrap();
    core.handle(NOW_US + 2, Input::WorkerJoined { worker: WORKER, about: one_slot() }).unwrap();
    assert_eq!(view(&core, 0).state, TaskState::Leased);
}

#[test]
fn later_parts_of_a_graph_mean_the_classes_as_the_client_listed_them_also_where_one_is_there_twice() {
    let (first, second) = (
        classes().remove(1),
        TaskClass::call(FunctionId { name: "second".parse().unwrap(), signature: 1, types: String::new() }),
    );
    let listed = vec![first.clone(), first, second];
    let mut submission = graph_submission(&id("graph"), 7, listed, vec![new_task(2)]);
    submission.spec.complete = false;
    let mut core = Core::new(1);
    core.handle(NOW_US, Input::SubmitGraph(submission)).unwrap();
    let (job, tasks) = (id("graph"), vec![new_task(2), new_task(1)]);
    core.handle(NOW_US, Input::ExtendGraph { job, nonce: 7, first: TaskIndex(1), tasks }).unwrap();
    let functions: Vec<String> = (0..3).map(|task| view(&core, task).function.to_string()).collect();
    assert_eq!(functions, ["second", "second", "choose"]);
}

#[test]
fn a_worker_whose_lease_was_written_trains_although_the_engine_died_before_it_had_written_that() {
    let mut stored: BTreeMap<JobId, StoredJob> = BTreeMap::new();
    let mut core = core(vec![task(0, vec![]), task(1, vec![])]);
    for (job, commit) in core.take_commits(NOW_US) {
        apply(stored.entry(job).or_default(), commit);
    }
    let capacity = Capacity { slots: 2, functions: [function()].into(), ..Capacity::default() };
    let about = WorkerInfo { capacity, ..WorkerInfo::default() };
    core.handle(NOW_US, Input::WorkerJoined { worker: WORKER, about }).unwrap();
    let mut commits = core.take_commits(NOW_US);
    assert!(commits.contains_key(&id("graph~0")), "it takes part in the training");
    apply(stored.get_mut(&id("graph")).unwrap(), commits.remove(&id("graph")).unwrap());

    let mut next = Core::new(1);
    let graph = next.restore_tasks(TaskJob::load(&stored[&id("graph")]).unwrap());
    assert!(graph.iter().any(|effect| matches!(effect, Effect::Orders { .. })), "it has a lease: {graph:?}");
    next.restore(Job::load(&stored[&id("graph~0")]).unwrap());
    let effects = next.handle(NOW_US, Input::Tick).unwrap();
    assert!(effects.iter().any(|effect| matches!(effect, Effect::OpenShards { .. })), "{effects:?}");
    assert_eq!(phase(&next, "graph~0"), Some(Phase::Opening));
}

#[test]
fn a_task_that_is_ready_has_a_job_that_says_what_it_waits_for() {
    let rate = TrainingChanges::new().learning_rate(0.5);
    let core = core(vec![task(0, vec![]), task(0, vec![Arg::Value(changes(&rate).into())])]);
    for (job, rate) in [("graph~0", 0.1), ("graph~1", 0.5)] {
        assert_eq!(phase(&core, job), Some(Phase::Queued));
        assert_eq!(core.job(&id(job)).unwrap().spec().train().learning_rate.base, rate);
    }
    let view = view(&core, 1);
    assert_eq!((view.state, view.function.as_str()), (TaskState::Training, "train"));
    let reason = "job graph~1 trains for it, which is queued, and waits for 1 worker: none is there";
    assert_eq!(view.reason, reason);
}

#[test]
fn what_another_task_gives_says_what_is_changed() {
    let output = Arg::Output(TaskRef::New(0));
    let mut core = core(vec![task(1, vec![]), task(0, vec![output])]);
    assert_eq!((view(&core, 1).state, phase(&core, "graph~1")), (TaskState::Waiting, None));
    let capacity = Capacity { slots: 1, functions: [function()].into(), ..Capacity::default() };
    let about = WorkerInfo { trains: false, capacity, ..WorkerInfo::default() };
    core.handle(NOW_US, Input::WorkerJoined { worker: WORKER, about }).unwrap();
    let value = Value::Inline(changes(&TrainingChanges::new().epochs(9)).into());
    let ended = vec![task_end(0, 1, Outcome::Value(value))];
    core.handle(NOW_US, tasks_ended(WORKER, &id("graph"), 7, ended)).unwrap();
    assert_eq!(core.job(&id("graph~1")).unwrap().spec().train().epochs, 9);
}

#[test]
fn changes_that_cannot_be_read_or_make_no_job_fail_the_task() {
    let none = TrainingChanges::new().epochs(0);
    for (arg, code) in [(vec![0xff; 3], "E056"), (vec![], "E056"), (changes(&none), "E027")] {
        let mut core = core(vec![task(0, vec![Arg::Value(arg.into())])]);
        // Once more, because an error may pass.
        core.handle(NOW_US, Input::Tick).unwrap();
        let phase = core.task_job(&id("graph")).unwrap().phase().clone();
        assert!(matches!(&phase, Phase::Failed { code: c, .. } if *c == code), "{phase:?}");
        assert_eq!((view(&core, 0).attempts, self::phase(&core, "graph~0")), (2, None));
    }
}

#[test]
fn a_training_that_is_canceled_by_hand_fails_its_attempt_and_the_next_has_another_name() {
    let mut core = core(vec![task(0, vec![])]);
    core.handle(NOW_US, Input::Cancel(cancel("graph~0"))).unwrap();
    assert_eq!(view(&core, 0).state, TaskState::Backoff);
    core.handle(NOW_US, Input::Tick).unwrap();
    assert_eq!((view(&core, 0).state, phase(&core, "graph~0-2")), (TaskState::Training, Some(Phase::Queued)));
    core.handle(NOW_US, Input::Cancel(cancel("graph~0-2"))).unwrap();
    let failed = core.task_job(&id("graph")).unwrap().phase().clone();
    assert!(matches!(&failed, Phase::Failed { code, .. } if *code == FaultCode::new("E059")), "{failed:?}");
}

#[test]
fn a_training_that_is_given_up_while_it_is_set_aside_costs_its_task_an_attempt() {
    let mut core = core(vec![task(0, vec![])]);
    core.training_given_up(&id("graph~0"), NOW_US);
    assert_eq!(view(&core, 0).state, TaskState::Backoff);
    core.handle(NOW_US, Input::Tick).unwrap();
    assert_eq!(phase(&core, "graph~0-2"), Some(Phase::Queued), "under another name");
    core.training_given_up(&id("graph~0-2"), NOW_US);
    let failed = core.task_job(&id("graph")).unwrap().phase().clone();
    assert!(matches!(&failed, Phase::Failed { code, .. } if *code == FaultCode::new("E058")), "{failed:?}");
}

#[test]
fn records_of_a_training_that_cannot_be_used_cost_one_attempt() {
    let mut core = core(vec![task(0, vec![])]);
    core.training_damaged(&id("graph~0"), "torn", NOW_US);
    core.handle(NOW_US + 1, Input::Tick).unwrap();
    assert_eq!(phase(&core, "graph~0-2"), Some(Phase::Queued));
    assert!(core.training_damaged(&id("nobodys~0"), "torn", NOW_US).is_empty());
}

#[test]
fn the_end_of_a_graph_is_that_of_its_trainings_and_they_are_deleted_with_it() {
    let mut core = core(vec![task(0, vec![]), task(0, vec![])]);
    core.take_commits(NOW_US);
    let effects = core.handle(NOW_US, Input::Cancel(cancel("graph"))).unwrap();
    let closed = effects.iter().filter(|effect| matches!(effect, Effect::CloseShards { .. })).count();
    assert_eq!(
        (closed, phase(&core, "graph~0"), phase(&core, "graph~1")),
        (2, Some(Phase::Canceled), Some(Phase::Canceled))
    );
    core.handle(NOW_US, Input::Delete(id("graph"))).unwrap();
    assert_eq!((phase(&core, "graph~0"), phase(&core, "graph~1")), (None, None));
    let gone: Vec<String> =
        core.take_commits(NOW_US).iter().filter(|(_, c)| c.gone).map(|(id, _)| id.to_string()).collect();
    assert_eq!(gone, ["graph", "graph~0", "graph~1"]);
}

#[test]
fn a_graph_that_takes_the_name_of_one_that_is_over_has_trainings_of_its_own() {
    let mut core = core(vec![task(0, vec![])]);
    core.handle(NOW_US, Input::Cancel(cancel("graph"))).unwrap();
    let first = core.job(&id("graph~0")).unwrap().generation();
    core.take_commits(NOW_US);
    core.handle(NOW_US, submission("graph", vec![task(0, vec![])], IfTaken::Replace, 8)).unwrap();
    let second = core.job(&id("graph~0")).unwrap();
    assert_eq!(*second.phase(), Phase::Queued);
    assert_ne!(second.generation(), first);
    let commits = core.take_commits(NOW_US);
    assert!(commits[&id("graph~0")].spec.is_some() && !commits[&id("graph~0")].gone);
}

#[test]
fn of_many_trainings_sixteen_wait_for_workers_and_the_others_say_so() {
    let mut core = core((0..20).map(|_| task(0, vec![])).collect());
    let states: Vec<TaskState> = (0..20).map(|n| view(&core, n).state).collect();
    assert!(states[..16].iter().all(|state| *state == TaskState::Training), "{states:?}");
    assert!(states[16..].iter().all(|state| *state == TaskState::Ready), "{states:?}");
    assert_eq!(view(&core, 19).reason, "16 trainings of the job wait for workers before it");
    core.handle(NOW_US, Input::WorkerJoined { worker: WORKER, about: WorkerInfo::default() }).unwrap();
    core.handle(NOW_US, Input::Tick).unwrap();
    assert_eq!(view(&core, 16).state, TaskState::Training, "one waits for shards now, no more for workers");
}

#[test]
fn a_graph_that_is_paused_begins_no_training() {
    let mut core = Core::new(1);
    let tasks = vec![task(0, vec![]), NewTask { after: vec![TaskRef::New(0)], ..task(0, vec![]) }];
    core.handle(NOW_US, submission("graph", tasks, IfTaken::Refuse, 7)).unwrap();
    core.handle(NOW_US, Input::Pause { job: id("graph"), paused: true }).unwrap();
    core.handle(NOW_US, Input::Cancel(cancel("graph~0"))).unwrap();
    core.handle(NOW_US, Input::Tick).unwrap();
    assert_eq!(
        (view(&core, 0).state, view(&core, 0).reason.as_str()),
        (TaskState::Ready, "the job is paused")
    );
    core.handle(NOW_US, Input::Pause { job: id("graph"), paused: false }).unwrap();
    assert_eq!(view(&core, 0).state, TaskState::Training);
}

#[test]
fn names_that_the_engine_gives_and_options_that_calls_have_are_refused() {
    let mut core = Core::new(1);
    let job = sim::training_job(sim::training("bsp".parse().unwrap(), 64, 8));
    let spec = Box::new(syncline_scheduler::spec::JobSpec { id: id("graph~0"), ..job });
    let refused = core
        .handle(NOW_US, Input::Submit(Submission { spec, nonce: 1, if_taken: IfTaken::Refuse }))
        .unwrap_err();
    assert!(matches!(refused, Refused::Reserved { .. }), "{refused}");
    let refused =
        core.handle(NOW_US, submission("graph~0", vec![task(0, vec![])], IfTaken::Refuse, 7)).unwrap_err();
    assert!(matches!(refused, Refused::Reserved { .. }), "{refused}");
    let mut classes = classes();
    classes[0].rules.priority = 1;
    let urgent = Input::SubmitGraph(graph_submission(&id("graph"), 7, classes, vec![task(0, vec![])]));
    assert!(core.handle(NOW_US, urgent).unwrap_err().to_string().starts_with("[E057]"));
    assert!(core.task_job(&id("graph")).is_none());
}

/// A worker of one slot, which trains and has a function.
fn one_slot() -> WorkerInfo {
    let capacity = Capacity { slots: 1, functions: [function()].into(), ..Capacity::default() };
    WorkerInfo { capacity, ..WorkerInfo::default() }
}

#[test]
fn the_only_slot_of_a_worker_is_a_tasks_again_when_its_training_ends() {
    let mut core = core(vec![task(0, vec![])]);
    core.handle(NOW_US, Input::WorkerJoined { worker: WORKER, about: one_slot() }).unwrap();
    core.handle(NOW_US, submission("calls", vec![task(1, vec![])], IfTaken::Refuse, 8)).unwrap();
    let query = TaskQuery::default();
    let state = |core: &Core| core.task_views(&id("calls"), &query, NOW_US).unwrap()[0].state;
    for _ in 0..3 {
        core.handle(NOW_US, Input::Tick).unwrap();
        assert_eq!(state(&core), TaskState::Ready, "the slot trains");
    }
    core.handle(NOW_US, Input::Cancel(cancel("graph"))).unwrap();
    assert_eq!(state(&core), TaskState::Leased);
}

#[test]
fn trainings_that_wait_for_workers_go_on_waiting_while_their_graph_is_paused() {
    let mut core = core(vec![task(0, vec![]), task(0, vec![])]);
    core.handle(NOW_US, Input::Pause { job: id("graph"), paused: true }).unwrap();
    core.handle(NOW_US, Input::WorkerJoined { worker: WORKER, about: one_slot() }).unwrap();
    assert_eq!(phase(&core, "graph~0"), Some(Phase::Queued));
    let reason = "job graph~0 trains for it, which is queued, and waits for its graph, which is paused: `syncline resume graph`";
    assert_eq!(view(&core, 0).reason, reason);
    core.handle(NOW_US, Input::Pause { job: id("graph"), paused: false }).unwrap();
    assert_eq!(phase(&core, "graph~0"), Some(Phase::Opening));
}

#[test]
fn of_trainings_that_are_ready_in_the_same_moment_the_first_in_the_graph_gets_the_worker() {
    let mut core = core((0..12).map(|_| task(0, vec![])).collect());
    for first in 0..12 {
        let worker = Incarnation(1 + first);
        let about = WorkerInfo { max_batch: None, ..WorkerInfo::default() };
        core.handle(NOW_US, Input::WorkerJoined { worker, about }).unwrap();
        assert_eq!(phase(&core, &format!("graph~{first}")), Some(Phase::Opening));
        core.handle(NOW_US, Input::Cancel(cancel(&format!("graph~{first}")))).unwrap();
        core.handle(NOW_US, Input::WorkerGone { worker, reason: "gone".into(), never_told: Vec::new() })
            .unwrap();
    }
}

#[test]
fn a_worker_that_trained_when_its_engine_ended_runs_tasks_again_under_the_next() {
    let mut before = core(vec![task(0, vec![])]);
    before.handle(NOW_US, Input::WorkerJoined { worker: WORKER, about: one_slot() }).unwrap();
    assert_eq!(phase(&before, "graph~0"), Some(Phase::Opening));
    let mut core = Core::new(1);
    core.restore(before.job(&id("graph~0")).unwrap().clone());
    core.restore_tasks(before.task_job(&id("graph")).unwrap().clone());
    core.handle(NOW_US, submission("calls", vec![task(1, vec![])], IfTaken::Refuse, 8)).unwrap();
    core.handle(NOW_US, Input::Cancel(cancel("graph"))).unwrap();
    let state = core.task_views(&id("calls"), &TaskQuery::default(), NOW_US).unwrap()[0].state;
    assert_eq!(state, TaskState::Leased);
}

#[test]
fn trainings_of_a_graph_that_is_set_aside_go_on_until_it_is_given_up() {
    let mut before = core(vec![task(0, vec![])]);
    before.handle(NOW_US, Input::WorkerJoined { worker: WORKER, about: one_slot() }).unwrap();
    let mut core = Core::new(1);
    core.restore(before.job(&id("graph~0")).unwrap().clone());
    // The next release may read it.
    core.set_aside(id("graph"));
    core.handle(NOW_US, Input::Tick).unwrap();
    assert_eq!(phase(&core, "graph~0"), Some(Phase::Opening));
    core.give_up_aside(&id("graph"));
    core.handle(NOW_US, Input::Tick).unwrap();
    assert_eq!(phase(&core, "graph~0"), Some(Phase::Canceled));
}

/// Shards may hold what the lost one had pushed: it is another run's.
#[test]
fn a_training_that_the_store_lost_begins_again_in_another_run() {
    let before = core(vec![task(0, vec![])]);
    let run = |core: &Core| core.job(&id("graph~0")).unwrap().run();
    let mut core = Core::new(1);
    core.restore_tasks(before.task_job(&id("graph")).unwrap().clone());
    core.handle(NOW_US + 1, Input::Tick).unwrap();
    assert_eq!(phase(&core, "graph~0"), Some(Phase::Queued));
    assert!(!run(&core).is_of_same_job(&run(&before)));
}

#[test]
fn a_graph_of_which_only_trainings_are_left_says_what_they_wait_for() {
    let mut core = core(vec![task(0, vec![])]);
    let waits_for = |core: &mut Core| {
        let summary = core.take_commits(NOW_US).remove(&id("graph")).unwrap().summary;
        summary.into_iter().find(|(field, _)| *field == "waiting_for").unwrap().1
    };
    assert_eq!(waits_for(&mut core), "1 worker: none is there (training graph~0)");
    let about = WorkerInfo { trains: true, ..WorkerInfo::default() };
    core.handle(NOW_US, Input::WorkerJoined { worker: WORKER, about }).unwrap();
    assert_eq!(waits_for(&mut core), "");
}

#[test]
fn a_graph_that_is_deleted_while_its_training_keeps_its_weights_takes_both_with_it() {
    let mut core = core(vec![task(0, vec![])]);
    core.handle(NOW_US, Input::WorkerJoined { worker: WORKER, about: one_slot() }).unwrap();
    let run = core.job(&id("graph~0")).unwrap().run();
    core.handle(NOW_US, Input::ShardsOpened { run: run.clone() }).unwrap();
    let ended = core.handle(NOW_US, Input::Cancel(cancel("graph"))).unwrap();
    let close = |weights| Effect::CloseShards { run: run.clone(), weights };
    assert!(ended.contains(&close(LastWeights::Keep)), "{ended:?}");
    core.take_commits(NOW_US);
    // The shards are asked to keep nothing any more, which ends the tries of a disk that is full.
    let deleted = core.handle(NOW_US, Input::Delete(id("graph"))).unwrap();
    assert!(deleted.contains(&close(LastWeights::Drop)), "{deleted:?}");
    let gone = core.take_commits(NOW_US);
    assert!([&run.job, &id("graph")].iter().all(|job| gone[*job].gone), "{gone:?}");
    let late = Err(TaskFault { code: FaultCode::new("E406"), reason: "no space left".into() });
    let late = Input::WeightsKept { run: run.clone(), outcome: late };
    assert_eq!(core.handle(NOW_US, late).unwrap(), []);
    assert!(core.job(&run.job).is_none() && core.take_commits(NOW_US).is_empty());
}

/// What a training that is done has come to, its weights aside, which no disk has taken yet.
fn done_without_weights() -> (Core, Job) {
    let mut core = core(vec![task(0, vec![])]);
    core.handle(NOW_US, Input::WorkerJoined { worker: WORKER, about: one_slot() }).unwrap();
    let run = core.job(&id("graph~0")).unwrap().run();
    core.handle(NOW_US, Input::ShardsOpened { run }).unwrap();
    let mut stored: BTreeMap<JobId, StoredJob> = BTreeMap::new();
    for (job, commit) in core.take_commits(NOW_US) {
        apply(stored.entry(job).or_default(), commit);
    }
    let stored = stored.get_mut(&id("graph~0")).unwrap();
    let mut state: serde_json::Value = serde_json::from_str(&stored.job_state).unwrap();
    (state["phase"], state["ended_us"], state["keeping"]) =
        (serde_json::json!("done"), NOW_US.into(), true.into());
    stored.job_state = state.to_string();
    let mut next = Core::new(1);
    let training = Job::load(stored).unwrap();
    next.restore_tasks(core.task_job(&id("graph")).unwrap().clone());
    next.restore(training.clone());
    (next, training)
}

#[test]
fn a_training_that_is_deleted_before_its_weights_are_written_has_failed_and_is_not_begun_again_as_it_was() {
    let (mut core, training) = done_without_weights();
    core.handle(NOW_US, Input::Tick).unwrap();
    assert_eq!((view(&core, 0).state, training.phase()), (TaskState::Training, &Phase::Done));
    core.handle(NOW_US, Input::Delete(id("graph~0"))).unwrap();
    core.handle(NOW_US, Input::Tick).unwrap();
    assert_eq!(phase(&core, "graph~0"), None);
    assert_eq!(phase(&core, "graph~0-2"), Some(Phase::Queued), "a task may be tried again once");
    let commits = core.take_commits(NOW_US);
    let told = commits[&id("graph")].events.iter().map(|event| format!("{event:?}")).collect::<String>();
    assert!(told.contains("job graph~0 was deleted before its parameters were kept"), "{told}");
}

/// A graph whose only task trains, as the next engine finds it: the records of the training cannot be used.
fn core_with_training_set_aside() -> (Core, RunId) {
    let before = core(vec![task(0, vec![])]);
    let mut core = Core::new(1);
    core.restore_tasks(before.task_job(&id("graph")).unwrap().clone());
    core.set_aside(id("graph~0"));
    core.handle(NOW_US, Input::Tick).unwrap();
    assert_eq!((phase(&core, "graph~0"), core.take_erasable()), (None, vec![]), "it may be taken in again");
    (core, before.job(&id("graph~0")).unwrap().run())
}

#[test]
fn a_new_graph_takes_the_names_of_trainings_that_were_set_aside_under_the_one_before() {
    let (mut core, aside) = core_with_training_set_aside();
    core.handle(NOW_US, Input::Cancel(cancel("graph"))).unwrap();
    assert_eq!(core.take_erasable(), [], "the graph can still be looked at, and so can its training");
    core.handle(NOW_US, submission("graph", vec![task(0, vec![])], IfTaken::Replace, 8)).unwrap();
    assert_eq!((phase(&core, "graph~0"), core.take_erasable()), (Some(Phase::Queued), vec![id("graph~0")]));
    assert_eq!(core.take_erasable(), [], "once");
    let held = vec![HeldJob { run: aside.clone(), closed: false }];
    let held = Input::ShardHolds { shard: ShardIndex(0), asked_us: NOW_US, held };
    let discard = Effect::CloseShards { run: aside, weights: LastWeights::Discard };
    assert_eq!(core.handle(NOW_US, held).unwrap(), [discard]);
}

#[test]
fn a_training_that_is_set_aside_goes_with_its_graph() {
    let (mut deleted, _) = core_with_training_set_aside();
    deleted.handle(NOW_US, Input::Cancel(cancel("graph"))).unwrap();
    deleted.handle(NOW_US, Input::Delete(id("graph"))).unwrap();
    assert_eq!(deleted.take_erasable(), [id("graph~0")]);
    let mut both_damaged = Core::new(1);
    for job in ["graph", "graph~0", "graphs~0", "other~0"] {
        both_damaged.set_aside(id(job));
    }
    both_damaged.give_up_aside(&id("graph"));
    assert_eq!(both_damaged.take_erasable(), [id("graph~0")]);
}

/// Redis has lost the commit with which the task began to train.
#[test]
fn a_task_begins_to_train_also_where_a_training_of_its_name_is_set_aside() {
    let mut core = Core::new(1);
    core.set_aside(id("graph~0"));
    core.handle(NOW_US, submission("graph", vec![task(0, vec![])], IfTaken::Refuse, 7)).unwrap();
    assert_eq!((phase(&core, "graph~0"), core.take_erasable()), (Some(Phase::Queued), vec![id("graph~0")]));
    // It is lost once more, and not taken for the one that was set aside.
    let graph = core.task_job(&id("graph")).unwrap().clone();
    core.handle(NOW_US, Input::Cancel(cancel("graph~0"))).unwrap();
    core.handle(NOW_US, Input::Delete(id("graph~0"))).unwrap();
    core.restore_tasks(graph);
    core.handle(NOW_US, Input::Tick).unwrap();
    assert_eq!(phase(&core, "graph~0"), Some(Phase::Queued));
}
