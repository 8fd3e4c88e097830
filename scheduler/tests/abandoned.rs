//! Graphs whose client sends a part and is gone.

use syncline_scheduler::{
    core::{Core, Effect, Input, Phase, StoredJob, TaskJob},
    ids::{ContentDigest, JobId},
    sim::{graph_submission, new_task},
    tasks::{Arg, BlobValue, FunctionId, GraphSpec, NewTask, Rules, TaskClass, TaskIndex, Work},
};

use crate::cluster::stored::apply;

const NONCE: u32 = 7;
const HOUR_US: u64 = 3_600 * 1_000_000;

fn id() -> JobId {
    "graph".parse().unwrap()
}

/// A core that has the first of a graph's parts.
fn core() -> Core {
    let work = Work::Call(FunctionId { name: "f".parse().unwrap(), signature: 1, types: String::new() });
    let class = TaskClass { work, rules: Rules::default() };
    let mut submission = graph_submission(&id(), NONCE, vec![class], vec![new_task(0)]);
    let spec = GraphSpec { complete: false, ..*submission.spec };
    submission.spec = Box::new(spec);
    let mut core = Core::new(1);
    core.handle(HOUR_US, Input::SubmitGraph(submission)).unwrap();
    core
}

fn phase_at(core: &mut Core, hours: u64) -> Phase {
    core.handle(hours * HOUR_US, Input::Tick).unwrap();
    core.task_job(&id()).unwrap().phase().clone()
}

#[test]
fn a_graph_of_which_no_part_has_come_for_a_day_fails() {
    let mut core = core();
    assert_eq!(phase_at(&mut core, 25), Phase::Queued);
    let tasks = vec![new_task(0)];
    core.handle(25 * HOUR_US, Input::ExtendGraph { job: id(), nonce: NONCE, first: TaskIndex(1), tasks })
        .unwrap();
    assert_eq!(phase_at(&mut core, 49), Phase::Queued, "its client is there");
    let Phase::Failed { code, reason } = phase_at(&mut core, 50) else { panic!("it waits forever") };
    assert_eq!(code, "E620");
    assert_eq!(reason, "2 tasks of its graph have come, and none of the others for a day");
}

#[test]
fn what_was_uploaded_for_a_graph_is_released_where_its_client_gives_it_up() {
    let mut core = core();
    let digest = |byte| ContentDigest::from_bytes([byte; 32]);
    let blob = |byte: &u8| Arg::Blob(BlobValue { digest: digest(*byte), bytes: 1 << 20 });
    let takes = |blobs: &[u8]| NewTask { args: blobs.iter().map(blob).collect(), ..new_task(0) };
    let tasks = vec![takes(&[0xaa]), takes(&[0xbb, 0xcc])];
    core.handle(HOUR_US, Input::ExtendGraph { job: id(), nonce: NONCE, first: TaskIndex(1), tasks }).unwrap();
    core.take_commits(HOUR_US);
    let other = Input::AbandonGraph { job: id(), nonce: NONCE + 1 };
    assert_eq!(core.handle(HOUR_US, other).unwrap(), [], "another client has sent this one");
    let abandoned = core.handle(HOUR_US, Input::AbandonGraph { job: id(), nonce: NONCE }).unwrap();
    let digests = [0xaa, 0xbb, 0xcc].map(digest).to_vec();
    assert_eq!(abandoned, [Effect::ReleaseBlobs { digests }]);
    assert!(core.take_commits(HOUR_US)[&id()].gone);
}

#[test]
fn a_graph_that_has_come_as_a_whole_waits_for_workers_as_long_as_it_takes() {
    let mut core = core();
    core.handle(HOUR_US, Input::StartGraph { job: id(), nonce: NONCE, count: 1 }).unwrap();
    assert_eq!(phase_at(&mut core, 1_000), Phase::Running);
}

#[test]
fn the_client_of_a_graph_has_its_day_also_under_the_next_engine() {
    let mut core = core();
    let tasks = vec![new_task(0)];
    let part = Input::ExtendGraph { job: id(), nonce: NONCE, first: TaskIndex(1), tasks };
    core.handle(24 * HOUR_US, part).unwrap();
    let mut stored = StoredJob::default();
    apply(&mut stored, core.full_commit(&id(), 24 * HOUR_US).unwrap());
    let mut next = Core::new(1);
    next.restore_tasks(TaskJob::load(&stored).unwrap());
    next.discount_downtime(24 * HOUR_US, 26 * HOUR_US);
    assert_eq!(phase_at(&mut next, 50), Phase::Queued, "its client is there");
    assert!(matches!(phase_at(&mut next, 51), Phase::Failed { .. }));
}
