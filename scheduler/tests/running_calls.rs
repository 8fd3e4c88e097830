//! What a worker tells of calls that run, in the views of their tasks.

use syncline_scheduler::{
    core::{Core, Input, WorkerInfo},
    ids::{Incarnation, JobId, SubmissionId},
    sim::{graph_submission, new_task},
    tasks::{Capacity, FunctionId, Progress, Rules, RunningCall, TaskClass, TaskIndex, TaskQuery, Work},
};

const WORKER: Incarnation = Incarnation(1);
const OTHER: Incarnation = Incarnation(2);
const NONCE: u32 = 7;

fn id() -> JobId {
    "graph".parse().unwrap()
}

#[test]
fn a_task_shows_since_when_it_runs_and_how_far_it_is_where_the_worker_that_has_it_tells_of_this_attempt() {
    let mut core = Core::new(1);
    let function = FunctionId { name: "f".parse().unwrap(), signature: 1, types: String::new() };
    for worker in [WORKER, OTHER] {
        let capacity = Capacity { slots: 1, functions: [function.clone()].into(), ..Capacity::default() };
        let about = WorkerInfo { trains: false, capacity, ..WorkerInfo::default() };
        core.handle(0, Input::WorkerJoined { worker, about }).unwrap();
    }
    let classes = vec![TaskClass { work: Work::Call(function), rules: Rules::default() }];
    let graph = graph_submission(&id(), NONCE, classes, vec![new_task(0); 2]);
    core.handle(0, Input::SubmitGraph(graph)).unwrap();
    let views = || core.task_views(&id(), &TaskQuery::default(), 0).unwrap();
    let of_worker = |worker: Incarnation| {
        let holder = worker.to_string();
        views().into_iter().find(|view| view.worker.as_ref() == Some(&holder)).unwrap().task
    };

    let call = |job: &str, nonce, task, attempt| {
        let progress = Some(Progress { done: 1, total: 4, text: "a.csv".to_owned() });
        let submission = SubmissionId { job: job.parse().unwrap(), nonce };
        RunningCall { submission, task, attempt, running_ms: 500, progress }
    };
    let (own, others) = (of_worker(WORKER), of_worker(OTHER));
    #[rustfmt::skip]
    let cases = [
        ("its call",           call("graph", NONCE, own, 1),          true),
        ("an older attempt",   call("graph", NONCE, own, 0),          false),
        ("of another worker",  call("graph", NONCE, others, 1),       false),
        ("no such task",       call("graph", NONCE, TaskIndex(9), 1), false),
        ("of a job before it", call("graph", NONCE + 1, own, 1),      false),
        ("of another job",     call("other", NONCE, own, 1),          false),
    ];
    for (what, call, is_shown) in cases {
        let mut shown = views();
        core.add_running(&id(), &mut shown, (WORKER, 2_000, &[call]), 63_000);
        let mut wanted = views();
        if is_shown {
            let view = &mut wanted[own.0 as usize];
            view.running_since_ms = Some(1_500);
            view.progress = Some(Progress { done: 1, total: 4, text: "a.csv".to_owned() });
            view.reason = "w1 has it; it has run for 61 s: 1 of 4, a.csv".to_owned();
        }
        assert_eq!(shown, wanted, "{what}");
    }
}
