//! What the events of a job tell of the attempts at its tasks.

use syncline_scheduler::{
    core::{Assignee, Core, EventKind, Happening, Input, WorkerInfo},
    fault_code::FaultCode,
    ids::{Incarnation, JobId},
    sim::{graph_submission, new_task, task_end, tasks_ended},
    tasks::{Capacity, Failure, FailureCause, FunctionId, Outcome, Rules, TaskClass, Value, Work},
};

fn id() -> JobId {
    "graph".parse().unwrap()
}

fn join(core: &mut Core, worker: u64, now_us: u64) {
    let function = FunctionId { name: "f".parse().unwrap(), signature: 1, types: String::new() };
    let capacity = Capacity { slots: 500, functions: [function].into(), ..Capacity::default() };
    let about = WorkerInfo { trains: false, capacity, ..WorkerInfo::default() };
    core.handle(now_us, Input::WorkerJoined { worker: Incarnation(worker), about }).unwrap();
}

/// So many tasks, which worker 1 has.
fn core(tasks: usize) -> Core {
    let mut core = Core::new(1);
    join(&mut core, 1, 1);
    let work = Work::Call(FunctionId { name: "f".parse().unwrap(), signature: 1, types: String::new() });
    let classes = vec![TaskClass { work, rules: Rules { errors: 1, ..Rules::default() } }];
    let submission = graph_submission(&id(), 1, classes, vec![new_task(0); tasks]);
    core.handle(2, Input::SubmitGraph(submission)).unwrap();
    core.take_commits(2);
    core
}

fn end(core: &mut Core, worker: u64, tasks: u32, attempt: u16, outcome: &Outcome, now_us: u64) {
    let ended = (0..tasks).map(|task| task_end(task, attempt, outcome.clone())).collect();
    core.handle(now_us, tasks_ended(Incarnation(worker), &id(), 1, ended)).unwrap();
}

fn failed() -> Outcome {
    Outcome::Failed(Failure {
        cause: FailureCause::Function,
        code: FaultCode::new("E440"),
        reason: "no".into(),
    })
}

/// The events since the last commit that tell of attempts: what, which, and by whom.
fn told(core: &mut Core) -> Vec<(EventKind, u16, Assignee)> {
    let events = core.take_commits(9).into_values().flat_map(|commit| commit.events);
    let about_attempts = events.filter_map(|event| match (event.what.kind(), event.what) {
        (kind, Happening::AttemptFailed { attempt, by, .. } | Happening::AttemptDone { attempt, by, .. }) => {
            Some((kind, attempt, by))
        }
        _ => None,
    });
    about_attempts.collect()
}

#[test]
fn every_attempt_that_failed_is_told_and_the_one_that_was_done_after_it() {
    let mut core = core(1);
    end(&mut core, 1, 1, 1, &failed(), 10);
    core.handle(60_000_000, Input::Tick).unwrap();
    core.handle(
        60_000_001,
        Input::WorkerGone { worker: Incarnation(1), reason: "dead".into(), never_told: Vec::new() },
    )
    .unwrap();
    join(&mut core, 2, 60_000_002);
    core.handle(120_000_000, Input::Tick).unwrap();
    end(&mut core, 2, 1, 3, &Outcome::Value(Value::default()), 120_000_001);
    let [first, second] = [1, 2].map(|worker| Assignee::Worker(Incarnation(worker)));
    let (failed, done) = (EventKind::AttemptFailed, EventKind::AttemptDone);
    assert_eq!(told(&mut core), [(failed, 1, first.clone()), (failed, 2, first), (done, 3, second)]);
}

#[test]
fn a_first_attempt_that_is_done_is_no_event_and_of_many_that_fail_at_once_some_are_told() {
    let mut done = core(3);
    end(&mut done, 1, 3, 1, &Outcome::Value(Value::default()), 10);
    assert_eq!(told(&mut done).len(), 0);
    let mut many = core(200);
    end(&mut many, 1, 200, 1, &failed(), 10);
    assert_eq!(told(&mut many).len(), 50);
    many.handle(60_000_000, Input::Tick).unwrap();
    end(&mut many, 1, 1, 2, &Outcome::Value(Value::default()), 60_000_001);
    assert_eq!(told(&mut many).len(), 1, "the next commit tells again");
}
