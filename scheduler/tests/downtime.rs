//! What is limited in time, where no engine led for a while, or the clock of the next one is behind.

use std::collections::BTreeMap;

use syncline_scheduler::{
    core::{Cancellation, Core, GraphChanges, Input, Job, Phase, StoredJob, Submission, TaskJob, WorkerInfo},
    fault_code::FaultCode,
    ids::{Incarnation, JobId, ShardIndex},
    sim::{self, graph_submission, new_task, task_end, tasks_ended},
    tasks::{
        Backoff, Capacity, Failure, FailureCause, FunctionId, Order, Outcome, PreparedTraining, Rules,
        TaskClass, TaskState, Work,
    },
};
use syncline_scheduler::{
    core::{Effect, IfTaken},
    tasks::TaskQuery,
};

use crate::{
    cluster::stored::apply,
    world::{World, done},
};

const NOW_US: u64 = 1_000_000_000;
const LIMIT_US: u64 = 5_000_000;
/// Nobody leads for so long.
const GAP_US: u64 = 3_600_000_000;
const WORKER: Incarnation = Incarnation(1);

fn id(text: &str) -> JobId {
    text.parse().unwrap()
}

fn function() -> FunctionId {
    FunctionId { name: "f".parse().unwrap(), signature: 1, types: String::new() }
}

fn graph(work: Work, rules: Rules) -> Core {
    let mut core = Core::new(1);
    let submission = graph_submission(&id("graph"), 1, vec![TaskClass { work, rules }], vec![new_task(0)]);
    core.handle(NOW_US, Input::SubmitGraph(submission)).unwrap();
    core
}

fn join(core: &mut Core) {
    let capacity = Capacity { slots: 1, functions: [function()].into(), ..Capacity::default() };
    let about = WorkerInfo { capacity, ..WorkerInfo::default() };
    core.handle(NOW_US, Input::WorkerJoined { worker: WORKER, about }).unwrap();
}

/// The core of the next engine: the one before led until `last_us`.
fn next(core: &mut Core, last_us: u64, now_us: u64) -> Core {
    let load = |core: &mut Core, stored: &mut BTreeMap<JobId, StoredJob>| {
        for (job, commit) in core.take_commits(NOW_US) {
            apply(stored.entry(job).or_default(), commit);
        }
        let mut next = Core::new(1);
        for job in stored.values() {
            match job.holds_tasks() {
                true => next.restore_tasks(TaskJob::load(job).unwrap()),
                false => next.restore(Job::load(job).unwrap()),
            };
        }
        next
    };
    let mut stored = BTreeMap::new();
    let mut next = load(core, &mut stored);
    next.discount_downtime(last_us, now_us);
    // And the one behind it, which takes over at once.
    load(&mut next, &mut stored)
}

fn tick(core: &mut Core, now_us: u64) -> Vec<Effect> {
    core.handle(now_us, Input::Tick).unwrap()
}

fn graph_code(core: &Core) -> Option<String> {
    match core.task_job(&id("graph")).unwrap().phase() {
        Phase::Failed { code, .. } => Some(code.to_string()),
        _ => None,
    }
}

fn queue_limit() -> Rules {
    Rules { queue_limit_ms: Some(LIMIT_US / 1_000), ..Rules::default() }
}

#[test]
fn a_task_does_not_wait_too_long_while_nobody_leads() {
    let mut core = graph(Work::Call(function()), queue_limit());
    let mut next = next(&mut core, NOW_US + 1, NOW_US + 1 + GAP_US);
    tick(&mut next, NOW_US + GAP_US + LIMIT_US - 1);
    assert_eq!(graph_code(&next), None);
    tick(&mut next, NOW_US + GAP_US + LIMIT_US);
    assert_eq!(graph_code(&next).as_deref(), Some("E060"));
}

#[test]
fn for_time_in_which_nobody_led_nothing_is_written_of_the_tasks_that_wait() {
    let mut core = graph(Work::Call(function()), queue_limit());
    core.take_commits(NOW_US);
    core.discount_downtime(NOW_US, NOW_US + GAP_US);
    let commit = core.take_commits(NOW_US + GAP_US).remove(&id("graph")).unwrap();
    assert!(commit.job_state.is_some() && commit.graph == GraphChanges::default(), "{commit:?}");
    // What becomes ready later has its whole time as well.
    let [wait_us, now_us] = [LIMIT_US / 2, NOW_US + GAP_US + LIMIT_US / 2];
    core.handle(now_us, Input::Pause { job: id("graph"), paused: true }).unwrap();
    core.handle(now_us, Input::Pause { job: id("graph"), paused: false }).unwrap();
    tick(&mut core, now_us + LIMIT_US - 1);
    assert_eq!(graph_code(&core), None);
    let query = TaskQuery::default();
    let reason = core.task_views(&id("graph"), &query, now_us + wait_us).unwrap()[0].reason.clone();
    assert!(reason.ends_with("it fails in 2.5 s if nobody begins it"), "{reason}");
    tick(&mut core, now_us + LIMIT_US);
    assert_eq!(graph_code(&core).as_deref(), Some("E060"));
}

#[test]
fn a_task_does_not_wait_for_ever_behind_a_clock_that_was_set_back() {
    let mut core = graph(Work::Call(function()), queue_limit());
    let mut next = next(&mut core, NOW_US + 1, 1);
    tick(&mut next, LIMIT_US - 1);
    assert_eq!(graph_code(&next), None);
    tick(&mut next, LIMIT_US);
    assert_eq!(graph_code(&next).as_deref(), Some("E060"));
}

#[test]
fn a_pause_behind_a_failure_ends_in_its_time_also_where_the_clock_was_set_back() {
    let backoff = Backoff { first_ms: 1_000, longest_ms: 1_000 };
    let rules = Rules { errors: 1, backoff, ..Rules::default() };
    let mut core = graph(Work::Call(function()), rules);
    join(&mut core);
    let failure =
        Failure { cause: FailureCause::Function, code: FaultCode::new("E440"), reason: "no".into() };
    let ended = vec![task_end(0, 1, Outcome::Failed(failure))];
    core.handle(NOW_US, tasks_ended(WORKER, &id("graph"), 1, ended)).unwrap();
    let mut next = next(&mut core, NOW_US, 1);
    let state =
        |core: &Core| core.task_views(&id("graph"), &TaskQuery::default(), 1).unwrap().remove(0).state;
    assert_eq!(state(&next), TaskState::Backoff);
    tick(&mut next, 1_000_001);
    assert_ne!(state(&next), TaskState::Backoff);
}

#[test]
fn what_was_told_to_stop_has_its_time_also_where_nobody_leads_for_a_while() {
    let mut core = graph(Work::Call(function()), Rules::default());
    join(&mut core);
    let cancellation =
        Cancellation { job: id("graph").into(), reason: String::new(), grace_ms: LIMIT_US / 1_000 };
    let effects = core.handle(NOW_US, Input::Cancel(cancellation)).unwrap();
    let is_stop = |effect: &Effect| matches!(effect, Effect::Orders { orders, .. } if orders.iter().any(|o| matches!(o, Order::Stop(_))));
    assert!(effects.iter().any(is_stop), "{effects:?}");
    let mut next = next(&mut core, NOW_US, NOW_US + GAP_US);
    tick(&mut next, NOW_US + GAP_US + LIMIT_US - 1);
    assert!(!next.task_job(&id("graph")).unwrap().phase().is_over());
    tick(&mut next, NOW_US + GAP_US + LIMIT_US);
    assert_eq!(*next.task_job(&id("graph")).unwrap().phase(), Phase::Canceled);
}

#[test]
fn a_training_of_its_own_does_not_wait_too_long_while_nobody_leads() {
    let mut training = sim::training("bsp".parse().unwrap(), 64, 8);
    training.queue_limit_ms = Some(LIMIT_US / 1_000);
    let spec = Box::new(sim::training_job(training));
    let job = spec.id.clone();
    let mut core = Core::new(1);
    core.handle(NOW_US, Input::Submit(Submission { spec, nonce: 1, if_taken: IfTaken::Refuse })).unwrap();
    let mut next = next(&mut core, NOW_US, NOW_US + GAP_US);
    tick(&mut next, NOW_US + GAP_US + LIMIT_US - 1);
    assert_eq!(*next.job(&job).unwrap().phase(), Phase::Queued);
    tick(&mut next, NOW_US + GAP_US + LIMIT_US);
    assert!(
        matches!(next.job(&job).unwrap().phase(), Phase::Failed { code, .. } if *code == FaultCode::new("E060"))
    );
}

#[test]
fn a_training_of_its_own_does_not_wait_for_ever_behind_a_clock_that_was_set_back() {
    let mut training = sim::training("bsp".parse().unwrap(), 64, 8);
    training.queue_limit_ms = Some(LIMIT_US / 1_000);
    let spec = Box::new(sim::training_job(training));
    let job = spec.id.clone();
    let mut core = Core::new(1);
    core.handle(NOW_US, Input::Submit(Submission { spec, nonce: 1, if_taken: IfTaken::Refuse })).unwrap();
    let mut next = next(&mut core, NOW_US + 1, 1);
    tick(&mut next, LIMIT_US - 1);
    assert_eq!(*next.job(&job).unwrap().phase(), Phase::Queued);
    tick(&mut next, LIMIT_US);
    assert!(
        matches!(next.job(&job).unwrap().phase(), Phase::Failed { code, .. } if *code == FaultCode::new("E060"))
    );
}

#[test]
fn the_speed_of_late_is_measured_anew_behind_a_clock_that_was_set_back() {
    let mut world = World::new();
    world.now_us += 48 * GAP_US;
    world.join(1, "worker");
    world.submit(sim::training_job(sim::training("asp".parse().unwrap(), 100, 1)), 1);
    let train = |world: &mut World| {
        for _ in 0..20 {
            world.now_us += 1_000_000;
            world.report(WORKER, done);
        }
        world.plane.shell.summaries[&id("job")]["samples_per_s_lately"].clone()
    };
    assert_eq!(train(&mut world), "1.0");
    let ahead_us = world.now_us;
    world.now_us -= 48 * GAP_US;
    world.plane.core.discount_downtime(ahead_us, world.now_us);
    assert_eq!(train(&mut world), "1.0");
}

/// A core with a graph whose task trains, as long as it may, and the training.
fn training_for_a_task() -> (Core, JobId) {
    let job = sim::training_job(sim::training("bsp".parse().unwrap(), 64, 8));
    let rules = Rules { run_limit_ms: Some(LIMIT_US / 1_000), ..Rules::default() };
    let mut core = graph(Work::Train(PreparedTraining::new(&job).unwrap()), rules);
    join(&mut core);
    let run = core.job(&id("graph~0")).unwrap().run();
    core.handle(NOW_US, Input::ShardsOpened { run: run.clone() }).unwrap();
    (core, run.job)
}

#[test]
fn a_training_for_a_task_ends_in_its_time_and_misses_its_shard_also_where_the_clock_was_set_back() {
    let (mut core, job) = training_for_a_task();
    let mut ends = next(&mut core, NOW_US + 1, 1);
    tick(&mut ends, LIMIT_US - 1);
    assert_eq!(*ends.job(&job).unwrap().phase(), Phase::Running);
    tick(&mut ends, LIMIT_US + 1_000);
    assert_eq!(graph_code(&ends).as_deref(), Some("E443"));
    let mut misses = next(&mut training_for_a_task().0, NOW_US + 1, 1);
    let holds = Input::ShardHolds { shard: ShardIndex(0), asked_us: 2, held: Vec::new() };
    misses.handle(3, holds).unwrap();
    assert!(misses.job(&job).is_none_or(|job| *job.phase() != Phase::Running));
}

#[test]
fn a_training_for_a_task_does_not_run_too_long_while_nobody_leads() {
    let (mut core, job) = training_for_a_task();
    let mut next = next(&mut core, NOW_US, NOW_US + GAP_US);
    tick(&mut next, NOW_US + GAP_US + LIMIT_US);
    assert_eq!(*next.job(&job).unwrap().phase(), Phase::Running);
    tick(&mut next, NOW_US + GAP_US + LIMIT_US + 1_000);
    assert_eq!(graph_code(&next).as_deref(), Some("E443"));
}

#[test]
fn a_training_for_a_task_that_is_paused_while_its_shards_open_it_has_all_of_its_time_then() {
    let job = sim::training_job(sim::training("bsp".parse().unwrap(), 64, 8));
    let rules = Rules { run_limit_ms: Some(LIMIT_US / 1_000), ..Rules::default() };
    let mut core = graph(Work::Train(PreparedTraining::new(&job).unwrap()), rules);
    join(&mut core);
    let run = core.job(&id("graph~0")).unwrap().run();
    let pause = |paused| Input::Pause { job: run.job.clone(), paused };
    core.handle(NOW_US, pause(true)).unwrap();
    core.handle(NOW_US + 1_000, Input::ShardsOpened { run: run.clone() }).unwrap();
    let resumed_us = NOW_US + 3 * LIMIT_US;
    core.handle(resumed_us, pause(false)).unwrap();
    tick(&mut core, resumed_us + LIMIT_US);
    assert_eq!(*core.job(&run.job).unwrap().phase(), Phase::Running);
    tick(&mut core, resumed_us + LIMIT_US + 1_000);
    assert_eq!(graph_code(&core).as_deref(), Some("E443"));
}

#[test]
fn a_training_for_a_task_does_not_run_too_long_while_it_is_paused() {
    for gap_us in [0, GAP_US] {
        let (mut core, job) = training_for_a_task();
        let (paused_us, resumed_us) = (NOW_US + 1_000, NOW_US + 1_000 + GAP_US + 2 * LIMIT_US);
        core.handle(paused_us, Input::Pause { job: job.clone(), paused: true }).unwrap();
        tick(&mut core, paused_us + LIMIT_US);
        // For a part of the pause no engine leads, which counts once.
        let mut core = if gap_us > 0 {
            next(&mut core, paused_us + LIMIT_US, paused_us + LIMIT_US + gap_us)
        } else {
            core
        };
        core.handle(resumed_us, Input::Pause { job: job.clone(), paused: false }).unwrap();
        tick(&mut core, resumed_us + LIMIT_US - 1_000);
        assert_eq!(*core.job(&job).unwrap().phase(), Phase::Running, "{gap_us}");
        tick(&mut core, resumed_us + LIMIT_US);
        assert_eq!(graph_code(&core).as_deref(), Some("E443"), "{gap_us}");
    }
}
