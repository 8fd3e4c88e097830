//! What becomes of calls whose worker is gone.

use syncline_rpc::within;
use syncline_scheduler::tasks::{
    GraphSpec, Outcome, TaskClass, TaskEnd, TaskIndex, TaskQuery, TaskState, TaskView,
};

use super::{
    rig::{Rig, TEST_TIMEOUT, until},
    scripted_worker::{ScriptedWorker, attempts, call, graph, inline, submit},
};

/// Two calls that must not begin twice.
fn once(id: &str) -> GraphSpec {
    let mut spec = graph(id, vec![call(b"1"), call(b"2")]);
    let TaskClass { rules, .. } = &mut spec.classes[0];
    rules.crashes = 0;
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_worker_was_given_and_had_not_heard_of_when_it_was_lost_is_no_crash() {
    let rig = Rig::start(1).await;
    let client = rig.client().await;
    let deaf = ScriptedWorker::register(&rig, 1).await;
    let job = submit(&client, once("deaf")).await;
    let views = async || -> Vec<TaskView> {
        let all = TaskQuery { first: TaskIndex(0), limit: u32::MAX, state: None, name: None };
        client.tasks(within(TEST_TIMEOUT), job.clone().into(), all).await.unwrap().unwrap()
    };
    assert_eq!(views().await[0].state, TaskState::Leased);
    drop(deaf);
    until(async || (views().await[0].state == TaskState::Ready).then_some(())).await;

    let mut able = ScriptedWorker::register(&rig, 2).await;
    let mut given = Vec::new();
    while given.len() < 2 {
        given.extend(able.tasks().await);
    }
    assert_eq!(attempts(&given), [(0, 2), (1, 1)], "an attempt has its number for itself");
    let outcome = Outcome::Value(inline(b"3"));
    let end = TaskEnd { task: TaskIndex(0), attempt: 2, run_us: 10, outcome, preview: None };
    able.report(&job, vec![end]).await;
    // It was told of the other one, and may have begun it.
    drop(able);
    until(async || (views().await[1].state == TaskState::Failed).then_some(())).await;
    let views = views().await;
    assert_eq!(views[0].state, TaskState::Done);
    assert_eq!(views[1].code.map(|code| code.to_string()).as_deref(), Some("E052"), "{views:?}");
}
