//! What the core decides when something goes wrong outside: a worker that cannot, a shard that forgot, a
//! store that went back, a disk that is full; and who gets the workers when a job ends.

use std::collections::VecDeque;

use syncline_scheduler::{
    core::{
        Assignment, Blame, Cancellation, CommitRefs, Core, Effect, Event, Happening, HeldJob, IfTaken, Input,
        Iterated, Job, JobPhase, LastWeights, Outcome, Phase, ProgressFloor, PushProgress, Refused,
        RelativeSpeed, ShardProgress, SnapshotFile, StoredJob, Submission, TaskFault, TaskReport, Work,
        WorkerInfo,
    },
    fault_code::FaultCode,
    ids::{ContentDigest, Generation, Incarnation, ProcessId, RunId, ShardIndex},
    sim::{ControlPlane, graph_submission, new_task, training, training_job},
    spec::{JobSpec, Node, NodeKind, TrainSpec},
    tasks::{Capacity, FunctionId, TaskClass, TaskQuery, TaskState},
};

use crate::{
    cluster::stored::apply,
    world::{Recorder, World, done, id, run},
};

fn cancel(job: &str) -> Cancellation {
    Cancellation { job: id(job).into(), reason: "enough".into(), grace_ms: 0 }
}

/// A job of `iterations`, and a snapshot.
fn spec(name: &str, policy: &str, iterations: u64) -> JobSpec {
    let mut spec = training_job(training(policy.parse().unwrap(), iterations, 1));
    spec.id = id(name);
    let name = |text: &str| text.parse().unwrap();
    let after = vec![name("train")];
    spec.nodes.push(Node { name: name("snapshot"), after, retries: 0, kind: NodeKind::Snapshot });
    spec
}

fn lacks(_: &Work) -> Outcome {
    Outcome::Failed {
        code: FaultCode::new("E330"),
        reason: "[E330] cannot open d.csv".into(),
        blame: Blame::Worker,
    }
}

#[test]
fn a_call_goes_elsewhere_when_its_worker_cannot_run_a_training() {
    let mut world = World::new();
    let function = FunctionId { name: "call".parse().unwrap(), signature: 1, types: String::new() };
    let capacity = Capacity { slots: 2, functions: [function.clone()].into(), ..Capacity::default() };
    let unable = world.join_with(1, "unable", capacity.clone());
    world.submit(spec("job", "asp", 100), 1);
    world.give(Input::SubmitGraph(graph_submission(
        &id("graph"),
        2,
        vec![TaskClass::call(function)],
        vec![new_task(0)],
    )));
    let call = |world: &World| {
        let core = &world.plane.core;
        core.task_views(&id("graph"), &TaskQuery::default(), world.now_us).unwrap().remove(0)
    };
    assert_eq!((call(&world).state, call(&world).worker), (TaskState::Leased, Some("unable (w1)".into())));
    world.report(unable, lacks);
    assert_eq!(call(&world).state, TaskState::Ready, "nobody has it, and it is not to blame");
    world.join_with(2, "able", capacity);
    world.now_us += 60_000_000;
    world.give(Input::Tick);
    assert_eq!((call(&world).state, call(&world).worker), (TaskState::Leased, Some("able (w2)".into())));
}

#[test]
fn a_worker_that_lacks_something_leaves_the_job_to_the_others() {
    let mut world = World::new();
    let (able, unable) = (world.join(1, "able"), world.join(2, "unable"));
    world.submit(spec("job", "asp", 100), 1);
    let effects = world.report(unable, lacks);
    assert!(
        effects.iter().any(|e| matches!(e, Effect::DismissWorker { worker, .. } if *worker == unable)),
        "{effects:?}"
    );
    assert!(
        effects.iter().any(|e| matches!(e, Effect::Seal { worker, .. } if *worker == unable)),
        "{effects:?}"
    );
    world.report(able, done);
    assert_eq!(world.code("job"), "running");

    // Under its next incarnation it is not offered the job until the time is over; another process at once.
    let again = world.join(3, "unable");
    assert!(!world.hands.contains_key(&again));
    world.now_us += 29_000_000;
    world.give(Input::Tick);
    assert!(!world.hands.contains_key(&again));
    world.now_us += 2_000_000;
    world.give(Input::Tick);
    assert!(world.hands.contains_key(&again), "it is offered again");
}

#[test]
fn of_two_processes_that_call_themselves_alike_only_the_one_that_cannot_is_excluded_and_by_any_incarnation() {
    let mut world = World::new();
    let join = |world: &mut World, n, process| {
        let (name, host) = ("worker".into(), "image".into());
        let about =
            WorkerInfo { name, host, pid: 1, process: ProcessId::new(process), ..WorkerInfo::default() };
        world.give(Input::WorkerJoined { worker: Incarnation(n), about });
        Incarnation(n)
    };
    let (able, unable) = (join(&mut world, 1, 11), join(&mut world, 2, 22));
    world.submit(spec("job", "asp", 100), 1);
    world.report(unable, lacks);
    assert_eq!(world.code("job"), "running");
    let again = join(&mut world, 3, 22);
    assert!(!world.hands.contains_key(&again), "the same process");
    world.give(Input::WorkerGone { worker: able, reason: "its link broke".into(), never_told: Vec::new() });
    let able = join(&mut world, 4, 11);
    assert!(world.hands.contains_key(&able), "the other one");
}

#[test]
fn all_that_a_worker_has_in_hand_may_fail_with_it_and_counts_as_one_time() {
    let mut world = World::new();
    let (_, unable) = (world.join(1, "able"), world.join(2, "unable"));
    world.submit(spec("job", "local-sgd:4", 100), 1);
    assert!(world.hands[&unable].len() > 1, "the iterations of a round are given together");
    while !world.hands[&unable].is_empty() {
        world.report(unable, lacks);
    }
    assert_eq!(world.plane.shell.events.iter().filter(|what| *what == "worker_excluded").count(), 1);
    world.now_us += 31_000_000;
    let again = world.join(3, "unable");
    world.give(Input::Tick);
    assert!(world.hands.contains_key(&again), "the first time lasts half a minute");
}

#[test]
fn a_job_that_none_of_many_workers_can_run_fails_when_each_has_tried_once() {
    let mut world = World::new();
    let workers: Vec<_> = (1..=100).map(|n| world.join(n, &format!("w{n}"))).collect();
    world.submit(spec("job", "asp", 10_000), 1);
    for (n, worker) in (1..).zip(workers) {
        assert_eq!(world.code("job"), "running");
        world.report(worker, lacks);
        // It registers again, as the same process.
        world.join(100 + n, &format!("w{n}"));
    }
    assert_eq!(world.code("job"), "E330");
    assert_eq!(world.plane.shell.events.iter().filter(|what| *what == "worker_excluded").count(), 100);
}

#[test]
fn a_job_fails_when_nobody_is_left_who_might_run_it() {
    let mut world = World::new();
    let (first, second) = (world.join(1, "first"), world.join(2, "second"));
    world.submit(spec("job", "asp", 100), 1);
    world.report(first, lacks);
    assert_eq!(world.code("job"), "running", "the second has not tried");
    world.report(second, lacks);
    assert_eq!(world.code("job"), "E330");
}

#[test]
fn training_that_has_begun_waits_for_somebody_who_can_go_on() {
    let mut world = World::new();
    let only = world.join(1, "only");
    world.submit(spec("job", "asp", 100), 1);
    world.report(only, done);
    world.report(only, lacks);
    assert_eq!(world.code("job"), "running");
    let other = world.join(2, "other");
    assert!(world.hands.contains_key(&other));
}

#[test]
fn two_workers_that_call_themselves_alike_are_both_let_go_when_both_cannot() {
    let mut world = World::new();
    // Containers may share host name, process id and name.
    let (first, second, other) = (world.join(1, "alike"), world.join(2, "alike"), world.join(3, "other"));
    world.submit(spec("job", "bsp", 30), 1);
    world.report(first, lacks);
    world.report(second, lacks);
    while world.code("job") == "running" && !world.hands[&other].is_empty() {
        world.report(other, done);
    }
    assert!(world.job("job").waits_for().is_none(), "{:?}", world.job("job").waits_for());
    assert_eq!(world.job("job").counters().samples_done, 30, "nobody waits for either");
}

#[test]
fn a_job_that_needs_two_workers_is_overtaken_for_a_minute_and_not_for_ever() {
    for (waited_s, is_overtaken) in [(59, true), (60, false)] {
        let mut world = World::new();
        let busy = world.join(1, "busy");
        let small = |name: &str| {
            let train = TrainSpec { max_workers: 1, ..training("asp".parse().unwrap(), 1, 1) };
            JobSpec { id: id(name), ..training_job(train) }
        };
        world.submit(small("first"), 1);
        world.join(2, "idle");
        let train = TrainSpec { min_workers: 2, ..training("bsp".parse().unwrap(), 10, 1) };
        world.submit(JobSpec { id: id("pair"), ..training_job(train) }, 2);
        world.now_us += waited_s * 1_000_000;
        world.submit(small("younger"), 3);
        assert_eq!(world.code("younger") == "running", is_overtaken, "after {waited_s} s");
        if !is_overtaken {
            let waits = world.job("younger").waits_for().unwrap();
            assert!(
                waits.ends_with("1 of them kept for `pair`, which came before and needs 2 at once"),
                "{waits}"
            );
            world.report(busy, done);
            assert_eq!((world.code("first"), world.code("pair")), ("done".into(), "running".into()));
        }
    }
}

#[test]
fn a_worker_that_only_runs_functions_is_nobody_who_might_still_train() {
    let mut world = World::new();
    let about = WorkerInfo { trains: false, name: "calls".into(), ..WorkerInfo::default() };
    world.give(Input::WorkerJoined { worker: Incarnation(9), about });
    let only = world.join(1, "only");
    world.submit(spec("job", "asp", 100), 1);
    world.report(only, lacks);
    assert_eq!(world.code("job"), "E330");
}

fn unreached(_: &Work) -> Outcome {
    Outcome::Failed {
        code: FaultCode::new("E410"),
        reason: "[E410] shard 10.0.0.4:7 could not be reached for 8000 ms: timed out; the engine hears of it"
            .into(),
        blame: Blame::Worker,
    }
}

#[test]
fn a_worker_that_does_not_reach_a_shard_is_offered_the_job_again_within_two_minutes() {
    let mut world = World::new();
    let (_, mut far) = (world.join(1, "near"), world.join(2, "far"));
    world.submit(spec("job", "asp", 1_000), 1);
    for (n, after_s) in [(3, 30), (4, 60), (5, 120), (6, 120), (7, 120)] {
        world.report(far, unreached);
        far = come_back(&mut world, n, "far", after_s);
        assert!(world.hands.contains_key(&far), "{after_s}");
    }
}

#[test]
fn whoever_did_not_reach_a_shard_is_offered_the_job_at_once_when_another_process_serves_it() {
    for (fails, is_offered) in [(unreached as fn(&Work) -> Outcome, true), (shard_disk, false)] {
        let mut world = World::new();
        let (_, far) = (world.join(1, "near"), world.join(2, "far"));
        world.submit(spec("job", "asp", 1_000), 1);
        world.report(far, fails);
        let far = world.join(3, "far");
        assert!(!world.hands.contains_key(&far), "it is excluded");
        world.give(Input::ShardTakenOver { shard: ShardIndex(0), address: "10.0.0.5:7".into() });
        assert_eq!(world.hands.contains_key(&far), is_offered);
    }
}

#[test]
fn where_nobody_reaches_a_shard_the_link_is_tried_every_few_seconds() {
    for has_begun in [false, true] {
        let mut world = World::new();
        let mut only = world.join(1, "only");
        world.submit(spec("job", "asp", 1_000), 1);
        if has_begun {
            world.report(only, done);
        }
        for n in 2..9 {
            only = fail_and_come_back(&mut world, only, n, unreached);
            assert!(world.hands.contains_key(&only), "{has_begun}, {n}");
        }
    }
}

/// The only worker fails so, the job goes on, and after five seconds it is back.
fn fail_and_come_back(
    world: &mut World,
    only: Incarnation,
    n: u64,
    fails: fn(&Work) -> Outcome,
) -> Incarnation {
    world.report(only, fails);
    assert_eq!(world.code("job"), "running", "{n}");
    come_back(world, n, "only", 5)
}

fn shard_disk(_: &Work) -> Outcome {
    let (code, reason) = (FaultCode::SHARD_IO, "[E406] cannot hold the round of job job: no memory".into());
    Outcome::Failed { code, reason, blame: Blame::Worker }
}

#[test]
fn a_training_outlives_a_shard_whose_disk_or_memory_fails_and_goes_on_when_it_does_not() {
    let mut world = World::new();
    let mut only = world.join(1, "only");
    world.submit(spec("job", "asp", 1_000), 1);
    world.report(only, done);
    for n in 2..9 {
        only = fail_and_come_back(&mut world, only, n, shard_disk);
    }
    world.report(only, done);
    assert_eq!(world.code("job"), "running");
}

#[test]
fn a_job_that_no_shard_has_room_for_from_the_start_fails_at_the_third_try() {
    let mut world = World::new();
    let mut only = world.join(1, "only");
    world.submit(spec("job", "asp", 1_000), 1);
    for n in 2..4 {
        only = fail_and_come_back(&mut world, only, n, shard_disk);
    }
    world.report(only, shard_disk);
    assert_eq!(world.code("job"), "E406");
}

fn die(world: &mut World, worker: Incarnation, n: u64) -> Incarnation {
    world.give(Input::WorkerGone { worker, reason: "its connection closed".into(), never_told: Vec::new() });
    world.join(n, "only")
}

#[test]
fn a_job_at_whose_begin_a_worker_dies_again_and_again_is_offered_to_it_less_and_less_often() {
    let mut world = World::new();
    let mut only = world.join(1, "only");
    world.submit(spec("job", "asp", 100), 1);
    for n in 2..5 {
        assert!(world.hands.contains_key(&only), "time {n}");
        only = die(&mut world, only, n);
    }
    for (n, after_s) in [(5, 5), (6, 10), (7, 20)] {
        assert!(!world.hands.contains_key(&only), "time {n}");
        let waits = world.plane.core.job(&"job".parse().unwrap()).unwrap().waits_for().map(str::to_owned);
        let waits = waits.unwrap_or_default();
        let want = format!("E210] it was lost {} times in a row before", n - 2);
        assert!(waits.contains(&want), "{waits}");
        world.now_us += (after_s - 1) * 1_000_000;
        world.give(Input::Tick);
        assert!(!world.hands.contains_key(&only), "time {n}");
        world.now_us += 1_000_000;
        world.give(Input::Tick);
        assert!(world.hands.contains_key(&only), "time {n}");
        if n < 7 {
            only = die(&mut world, only, n);
        }
    }
    // One that gets on begins anew.
    world.report(only, done);
    assert_eq!(world.code("job"), "running");
    only = die(&mut world, only, 8);
    assert!(world.hands.contains_key(&only));
}

/// Lets a worker that was excluded register again when its time is over.
fn come_back(world: &mut World, n: u64, name: &str, after_s: u64) -> Incarnation {
    let again = world.join(n, name);
    assert!(!world.hands.contains_key(&again));
    world.now_us += after_s * 1_000_000;
    world.give(Input::Tick);
    again
}

#[test]
fn a_training_that_nobody_can_compute_ends_after_three_times_of_each_and_keeps_its_weights() {
    ends_after_three_times_of_each(FaultCode::COMPUTATION_FAILED);
    ends_after_three_times_of_each(FaultCode::DEVICE_MEMORY);
}

fn ends_after_three_times_of_each(code: FaultCode) {
    let fails = |_: &Work| Outcome::Failed { code, reason: format!("[{code}] Gather"), blame: Blame::Worker };
    let mut world = World::new();
    let mut only = world.join(1, "only");
    world.submit(spec("job", "asp", 100), 1);
    world.report(only, done);
    for (n, after_s) in [(2, 30), (3, 60)] {
        world.report(only, fails);
        assert_eq!(world.code("job"), "running");
        only = come_back(&mut world, n, "only", after_s);
    }
    // One that does come further may fail three times again.
    world.report(only, done);
    for (n, after_s) in [(4, 120), (5, 240)] {
        world.report(only, fails);
        assert_eq!(world.code("job"), "running");
        only = come_back(&mut world, n, "only", after_s);
    }
    // Another one has not tried yet, and lacks something else.
    let other = world.join(6, "other");
    world.report(only, fails);
    assert_eq!(world.code("job"), "running");
    world.report(other, lacks);
    assert_eq!(world.code("job"), "running", "it may be given what it lacks");
    only = come_back(&mut world, 7, "only", 480);
    let effects = world.report(only, fails);
    assert_eq!(world.code("job"), code.to_string());
    assert!(
        effects.iter().any(|e| matches!(e, Effect::CloseShards { weights: LastWeights::Keep, .. })),
        "{effects:?}"
    );
}

#[test]
fn what_follows_a_training_waits_for_a_worker_that_lacks_something_for_a_moment_and_not_for_ever() {
    let fails = |_: &Work| Outcome::Failed {
        code: FaultCode::new("E323"),
        reason: "[E323] no room".to_owned(),
        blame: Blame::Worker,
    };
    for mended in [true, false] {
        let mut world = World::new();
        let mut only = world.join(1, "only");
        let mut job = spec("job", "asp", 1);
        job.nodes[1] =
            Node { name: "test".parse().unwrap(), kind: NodeKind::Evaluate, ..job.nodes[1].clone() };
        world.submit(job, 1);
        world.report(only, done);
        for (n, after_s) in [(2, 30), (3, 60)] {
            assert!(matches!(world.hands[&only].front().unwrap().work, Work::Evaluate { .. }), "time {n}");
            world.report(only, fails);
            assert_eq!(world.code("job"), "running", "time {n}");
            only = come_back(&mut world, n, "only", after_s);
        }
        world.report(only, if mended { done } else { fails });
        assert_eq!(world.code("job"), if mended { "done" } else { "E323" });
    }
}

#[test]
fn a_fault_of_the_job_ends_it_and_its_shards_hold_it_until_its_last_weights_are_kept() {
    let mut world = World::new();
    let worker = world.join(1, "worker");
    world.join(2, "other");
    world.submit(spec("job", "asp", 100), 9);
    let effects = world.report(worker, |_| Outcome::Failed {
        code: FaultCode::new("E351"),
        reason: "the loss became NaN".into(),
        blame: Blame::Job,
    });
    assert_eq!(world.code("job"), "E351");
    let run = run("job", 9);
    assert!(
        effects.contains(&Effect::CloseShards { run: run.clone(), weights: LastWeights::Keep }),
        "{effects:?}"
    );
    assert_eq!(world.plane.shell.summaries[&id("job")]["weights_pending"], "true");
    assert!(!world.plane.shell.expires[&id("job")], "an engine that can ask for them may come late");
    let file = SnapshotFile { path: "/last".into(), bytes: 1, digest: ContentDigest::from_bytes([0xd; 32]) };
    let close = Effect::CloseShards { run: run.clone(), weights: LastWeights::Drop };
    assert!(!effects.contains(&close), "{effects:?}");
    assert!(world.job("job").lies_on_others(2), "its shards have its weights");
    let again = Submission { spec: Box::new(spec("job", "asp", 100)), nonce: 10, if_taken: IfTaken::Replace };
    let replaced = world.plane.core.clone().handle(world.now_us, Input::Submit(again)).unwrap();
    assert!(replaced.contains(&close), "nobody asks for them any more: {replaced:?}");
    assert!(world.plane.core.clone().forget(&id("job")).contains(&close));
    let kept = Input::WeightsKept { run, outcome: Ok(file.clone()) };
    let effects = world.plane.core.handle(world.now_us, kept).unwrap();
    assert!(effects.contains(&close), "{effects:?}");
    assert!(!world.job("job").lies_on_others(2));
    let last = world.plane.core.take_commits(world.now_us).remove(&id("job")).unwrap();
    let summary = last.summary;
    assert!(summary.contains(&("snapshot", file.path)), "{summary:?}");
    assert!(summary.contains(&("weights_pending", "false".to_owned())), "{summary:?}");
    assert!(last.expires);
}

#[test]
fn why_last_weights_are_not_written_is_told_until_they_are_and_for_good_once_they_are_lost() {
    let full = || Input::WeightsDelayed { run: run("job", 9), reason: "[E406] full".into() };
    let kept =
        Ok(SnapshotFile { path: "/last".into(), bytes: 1, digest: ContentDigest::from_bytes([0xd; 32]) });
    let lost = Err(TaskFault { code: FaultCode::new("E402"), reason: "it is gone".into() });
    for (outcome, lost_by) in [(kept, ""), (lost, "[E402] it is gone")] {
        let mut world = World::new();
        let worker = world.join(1, "worker");
        let mut job = spec("job", "asp", 1);
        job.nodes.truncate(1);
        world.submit(job, 9);
        world.give(full());
        assert_eq!(world.plane.shell.summaries[&id("job")]["weights_problem"], "", "it still trains");
        world.report(worker, done);
        assert_eq!(world.code("job"), "done");
        world.give(full());
        let told = |world: &World| {
            let summary = &world.plane.shell.summaries[&id("job")];
            ["weights_pending", "weights_problem", "weights_lost"].map(|field| summary[field].clone())
        };
        assert_eq!(told(&world), ["true", "[E406] full", ""]);
        world.plane.core.handle(world.now_us, full()).unwrap();
        assert!(world.plane.core.take_commits(world.now_us).is_empty(), "it is known");
        world.give(Input::WeightsKept { run: run("job", 9), outcome });
        assert_eq!(told(&world), ["false", "", lost_by]);
        world.give(full());
        assert_eq!(told(&world), ["false", "", lost_by], "a late word of a try before");
    }
}

#[test]
fn the_next_job_starts_in_the_turn_in_which_the_one_before_it_ends() {
    let mut world = World::new();
    let worker = world.join(1, "worker");
    let mut first = spec("first", "asp", 1);
    first.nodes.truncate(1);
    world.submit(first, 1);
    world.submit(spec("second", "asp", 1), 2);
    assert_eq!(world.code("second"), "queued");
    world.report(worker, done);
    assert_eq!((world.code("first"), world.code("second")), ("done".into(), "running".into()));
    assert_eq!(world.hands[&worker].len(), 1, "its iteration is granted");
}

#[test]
fn a_training_that_ends_is_written_before_the_one_that_takes_over_its_workers() {
    let mut world = World::new();
    let worker = world.join(1, "worker");
    world.submit(spec("z", "asp", 1), 1);
    world.submit(spec("b", "asp", 1), 2);
    let core = &mut world.plane.core;
    core.handle(world.now_us, Input::Cancel(cancel("z"))).unwrap();
    let commits = core.take_commits(world.now_us);
    let names = |group: CommitRefs<'_>| group.into_iter().map(|(job, _)| job.to_string()).collect::<Vec<_>>();
    assert_eq!(core.order_commits(&commits).map(names), [["z"], ["b"]]);
    assert_eq!(world.job("b").active().collect::<Vec<_>>(), [worker]);
}

#[test]
fn the_same_submission_again_is_the_same_job_and_another_one_of_its_name_is_not() {
    let mut world = World::new();
    let submit = |iterations, nonce, if_taken| Submission {
        spec: Box::new(spec("job", "asp", iterations)),
        nonce,
        if_taken,
    };
    let submission = |nonce, if_taken| submit(5, nonce, if_taken);
    world.give(Input::Submit(submission(1, IfTaken::Refuse)));
    for again in
        [submission(1, IfTaken::Refuse), submission(2, IfTaken::Refuse), submission(2, IfTaken::Replace)]
    {
        world.give(Input::Submit(again));
        assert_eq!(world.job("job").generation(), Generation::first(1));
    }
    let taken = Refused::Duplicate { job: id("job"), differs: ", and differs in data".to_owned() };
    let refuse = |world: &mut World, s| world.plane.core.handle(2_000_000, Input::Submit(s)).unwrap_err();
    assert_eq!(refuse(&mut world, submit(6, 1, IfTaken::Refuse)), taken);
    let running = Refused::NotOver { job: id("job"), state: JobPhase::Queued };
    assert_eq!(refuse(&mut world, submit(6, 2, IfTaken::Replace)), running);
    assert_eq!(world.plane.core.handle(2_000_000, Input::Delete(id("job"))).unwrap_err(), running);
    world.give(Input::Cancel(cancel("job")));
    world.give(Input::Submit(submission(2, IfTaken::Refuse)));
    assert_eq!(world.job("job").generation(), Generation::first(1), "it is over, and still that job");
    for _ in 0..2 {
        world.give(Input::Submit(submission(2, IfTaken::Replace)));
        assert_eq!(world.job("job").generation(), Generation::first(2));
    }
    world.give(Input::Cancel(cancel("job")));
    world.plane.core.handle(3_000_000, Input::Delete(id("job"))).unwrap();
    assert!(world.plane.core.take_commits(3_000_000)[&id("job")].gone);
    assert!(world.plane.core.job(&id("job")).is_none());
}

#[test]
fn a_job_that_is_canceled_says_why_in_its_summary_its_events_and_of_its_nodes() {
    let mut world = World::new();
    world.submit(spec("job", "asp", 5), 1);
    world.plane.core.take_commits(2_000_000);
    world.plane.core.handle(2_000_000, Input::Cancel(cancel("job"))).unwrap();
    let explained = world.job("job").explain_task(&"snapshot".parse().unwrap(), 0).unwrap();
    assert_eq!(explained.reasons, ["the job was canceled before it could end: enough"]);
    let commit = world.plane.core.take_commits(2_000_000).remove(&id("job")).unwrap();
    let reason = ("reason", "enough".to_owned());
    assert!(commit.summary.contains(&("state", "canceled".to_owned())) && commit.summary.contains(&reason));
    let told = |event: &Event| matches!(&event.what, Happening::JobEnded { phase: Phase::Canceled, cancel_reason } if cancel_reason == "enough");
    assert!(commit.events.iter().any(told), "{:?}", commit.events);
    assert!(commit.job_state.unwrap().contains(r#""cancel_reason":"enough""#), "the next engine knows");
}

#[test]
fn iterations_of_somebody_who_has_left_are_not_planned() {
    let mut world = World::new();
    let (_, leaves) = (world.join(1, "stays"), world.join(2, "leaves"));
    world.submit(spec("job", "asp", 100), 1);
    let never = "it/w2/9999".parse().unwrap();
    assert_eq!(world.job("job").explain_task(&never, 0).unwrap().state, "planned");
    world.report(leaves, lacks);
    let job = world.job("job");
    assert_eq!(job.explain_task(&never, 0), None);
    assert_eq!(job.explain_task(&"it/w1/0".parse().unwrap(), 0), None);
    let why = job.why_absent(&never);
    assert!(
        why.starts_with("; leaves (w2) has done ") && why.ends_with(" iterations, the first is 1"),
        "{why}"
    );
}

#[test]
fn a_shard_that_came_back_without_a_running_job_has_lost_it_and_keeps_nothing_else() {
    let mut world = World::new();
    world.join(1, "worker");
    world.submit(spec("job", "asp", 100), 5);
    let mine = run("job", 5);
    let held = |held: Vec<RunId>, asked_us| {
        let held = held.into_iter().map(|run| HeldJob { run, closed: false }).collect();
        Input::ShardHolds { shard: ShardIndex(0), asked_us, held }
    };
    // Asked before the job opened there: says nothing about it.
    world.give(held(vec![], 999_999));
    world.now_us += 10;
    world.give(held(vec![mine.clone()], world.now_us));
    assert_eq!(world.code("job"), "running");
    let stranger = run("job", 4);
    // It may be Redis that has forgotten it, also where another job has its name.
    let unknown = run("forgotten", 4);
    let all = vec![mine.clone(), stranger.clone(), unknown.clone()];
    let effects = world.give(held(all, world.now_us));
    let [other, set_aside] =
        [stranger, unknown].map(|run| Effect::CloseShards { run, weights: LastWeights::SetAside });
    let floor = ProgressFloor { closed: 0, pushes: [(Incarnation(1), 0)].into() };
    let ask = Effect::Attach { run: mine, shard: ShardIndex(0), floor };
    assert_eq!(effects, [other, set_aside, ask]);
    world.give(held(vec![], world.now_us));
    assert_eq!(world.code("job"), "E220");
}

#[test]
fn shards_keep_what_they_hold_of_a_job_that_is_set_aside_until_it_is_deleted() {
    let held = |closed| {
        let job = HeldJob { run: run("parked", 4), closed };
        Input::ShardHolds { shard: ShardIndex(0), asked_us: 1, held: vec![job] }
    };
    let mut core = Core::new(1);
    core.set_aside(id("parked"));
    assert_eq!(core.handle(1, held(false)).unwrap(), []);
    core.give_up_aside(&id("parked"));
    let discard = Effect::CloseShards { run: run("parked", 4), weights: LastWeights::Discard };
    assert_eq!(core.handle(2, held(false)).unwrap(), std::slice::from_ref(&discard));
    assert_eq!(core.handle(3, held(true)).unwrap(), [discard], "it may have been set aside there");
}

#[test]
fn a_job_that_takes_the_name_of_one_that_was_given_up_is_another_one_to_shards() {
    let mut world = World::new();
    world.plane.core.set_aside(id("job"));
    world.plane.core.give_up_aside(&id("job"));
    world.submit(spec("job", "asp", 1), 9);
    world.join(1, "1");
    let reason = "this shard has number 9".to_owned();
    world.give(Input::ShardFailed { run: run("job", 9), code: FaultCode::new("E646"), reason });
    let outcome =
        Ok(SnapshotFile { path: "p".into(), bytes: 8, digest: ContentDigest::from_bytes([0xd; 32]) });
    world.give(Input::WeightsKept { run: run("job", 9), outcome });
    assert_eq!(world.code("job"), "E646");
    // A newer copy of Redis knows how the job goes on with what the shards have of it, and nobody wants the one before.
    for (nonce, weights) in [(9, LastWeights::SetAside), (4, LastWeights::Discard)] {
        let held = vec![HeldJob { run: run("job", nonce), closed: false }];
        let effects = world.give(Input::ShardHolds { shard: ShardIndex(0), asked_us: world.now_us, held });
        assert_eq!(effects, [Effect::CloseShards { run: run("job", nonce), weights }]);
    }
}

#[test]
fn a_worker_is_given_no_larger_batch_than_fits_on_it_under_any_policy() {
    for policy in ["asp", "bsp", "ssp:1", "elastic-bsp:4", "lb-bsp", "local-sgd:2", "auto:8"] {
        let mut world = World::new();
        let small = WorkerInfo { max_batch: Some(3), name: "small".into(), ..WorkerInfo::default() };
        world.give(Input::WorkerJoined { worker: Incarnation(1), about: small.clone() });
        world.join(2, "large");
        let spec = training_job(training(policy.parse().unwrap(), 400, 8));
        world.submit(JobSpec { id: id("job"), ..spec }, 1);
        let largest = |world: &World, worker: u64| {
            let hand = world.hands.get(&Incarnation(worker)).into_iter().flatten();
            let sizes = hand.map(|assignment| match &assignment.work {
                Work::Iterate { range, .. } | Work::Prepare { range } => range.len,
                Work::Evaluate { .. } => 0,
            });
            sizes.max().unwrap_or(0)
        };
        for n in 0..40 {
            if n == 8 {
                world.give(Input::WorkerJoined { worker: Incarnation(3), about: small.clone() });
            }
            for worker in 1..=3 {
                assert!(worker == 2 || largest(&world, worker) <= 3, "{policy}");
                if world.hands.get(&Incarnation(worker)).is_some_and(|hand| !hand.is_empty()) {
                    world.report(Incarnation(worker), done);
                }
            }
        }
        assert!(world.job("job").counters().samples_done > 40, "{policy}");
    }
}

#[test]
fn an_evaluation_is_tried_again_as_often_as_it_may_fail_whoever_could_not_run_it() {
    let mut spec = spec("job", "asp", 1);
    let test =
        Node { name: "test".parse().unwrap(), retries: 1, kind: NodeKind::Evaluate, ..spec.nodes[1].clone() };
    spec.nodes.push(test);
    let mut world = World::new();
    for n in 1..=3 {
        world.join(n, &n.to_string());
    }
    world.submit(spec, 1);
    world.report(Incarnation(1), done);
    let evaluator = |world: &World| {
        let evaluates = |hand: &VecDeque<Assignment>| {
            matches!(hand.front().map(|a| &a.work), Some(Work::Evaluate { .. }))
        };
        world.hands.iter().find(|(_, hand)| evaluates(hand)).map(|(worker, _)| *worker)
    };
    for _ in 0..2 {
        let unable = evaluator(&world).unwrap();
        world.report(unable, lacks);
    }
    let fails =
        |_: &Work| Outcome::Failed { code: FaultCode::new("E327"), reason: "once".into(), blame: Blame::Job };
    let able = evaluator(&world).unwrap();
    world.report(able, fails);
    assert_eq!(world.code("job"), "running", "it has failed once, and may once more");
    world.report(able, fails);
    assert_eq!(world.code("job"), "E327");
}

#[test]
fn whoever_still_prepares_itself_keeps_nobody_from_the_evaluation() {
    let mut spec = spec("job", "asp", 3);
    let test =
        Node { name: "test".parse().unwrap(), retries: 2, kind: NodeKind::Evaluate, ..spec.nodes[1].clone() };
    spec.nodes.push(test);
    if let NodeKind::Train(train) = &mut spec.nodes[0].kind {
        train.max_workers = 2;
    }
    let mut world = World::new();
    let first = world.join(1, "first");
    world.submit(spec, 1);
    world.report(first, done);
    world.join(2, "prepares");
    world.report(first, done);
    world.report(first, done);
    world.hands.remove(&first);
    world.give(Input::WorkerGone { worker: first, reason: "it was killed".into(), never_told: Vec::new() });
    let other = world.join(3, "other");
    assert!(matches!(world.hands[&other][0].work, Work::Evaluate { .. }));
}

#[test]
fn whoever_knows_of_more_than_the_store_proves_that_it_went_back() {
    type Happens<'a> = &'a dyn Fn(&mut World, Incarnation);
    let cases: [(&str, Happens<'_>); 9] = [
        ("a push of a grant that is not known", &|w, worker| {
            w.give(attached(0, &[(worker, 99)]));
        }),
        ("a worker that is not known", &|w, _| {
            w.give(attached(0, &[(Incarnation(50), 1)]));
        }),
        ("a worker that is not known, since whose loss others have come", &|w, _| {
            w.join(60, "newer");
            w.give(attached(0, &[(Incarnation(50), 1)]));
        }),
        ("an iteration of a worker that is not known", &|w, worker| {
            w.join(60, "newer");
            let mut key = w.hands[&worker][0].key.clone();
            key.task = "it/w50/1".parse().unwrap();
            let report = TaskReport { key, ended_ago_us: 0, outcome: Outcome::Iterated(Iterated::default()) };
            w.give(Input::Report { worker: Incarnation(50), report });
        }),
        ("an end that is not known, of a shard that comes", &|w, _| {
            let held = HeldJob { run: run("job", 5), closed: true };
            w.give(Input::ShardHolds { shard: ShardIndex(0), asked_us: w.now_us, held: vec![held] });
        }),
        ("an end that is not known, of a shard that is asked", &|w, _| {
            let run = run("job", 5);
            let (code, reason) = (FaultCode::new("E409"), "job `job` is closed".to_owned());
            w.give(Input::ShardFailed { run, code, reason });
        }),
        ("a barrier that is not known", &|w, _| {
            w.give(attached(9, &[]));
        }),
        ("an iteration that is not known", &|w, worker| {
            let mut key = w.hands[&worker][0].key.clone();
            key.task = "it/w1/99".parse().unwrap();
            let report = TaskReport { key, ended_ago_us: 0, outcome: Outcome::Iterated(Iterated::default()) };
            w.give(Input::Report { worker, report });
        }),
        ("other samples", &|w, worker| {
            w.report(worker, |_| Outcome::Iterated(Iterated::default()));
        }),
    ];
    for (what, happens) in cases {
        let mut world = World::new();
        let worker = world.join(1, "worker");
        world.submit(spec("job", "asp", 100), 5);
        world.give(attached(0, &[(worker, 1)]));
        assert_eq!(world.code("job"), "running", "{what}");
        happens(&mut world, worker);
        assert_eq!(world.code("job"), "E226", "{what}");
    }
}

fn progress(closed: u64, watermarks: &[(Incarnation, u64)]) -> ShardProgress {
    let watermarks = watermarks.iter().copied().collect();
    ShardProgress { closed, watermarks, ..ShardProgress::default() }
}

fn attached(closed: u64, watermarks: &[(Incarnation, u64)]) -> Input {
    Input::Attached {
        run: run("job", 5),
        shard: ShardIndex(0),
        progress: progress(closed, watermarks),
        floor: ProgressFloor::default(),
    }
}

#[test]
fn a_shard_that_came_back_with_an_older_state_ends_the_job() {
    // (barriers, pushes of the first worker) that every shard had, and that this one has.
    #[rustfmt::skip]
    let cases = [
        ("asp", (0, 1), (0, 1), "running"),
        ("asp", (0, 1), (0, 0), "E220"),
        ("bsp", (1, 1), (1, 1), "running"),
        ("bsp", (1, 1), (1, 0), "E220"),
        ("bsp", (1, 1), (0, 1), "E220"),
    ];
    for (policy, had, has, code) in cases {
        let mut world = World::new();
        let worker = world.join(1, "worker");
        world.submit(spec("job", policy, 100), 5);
        world.report(worker, done);
        let floor = world.job("job").floor();
        assert_eq!((floor.closed, floor.pushes[&worker]), had, "{policy}");
        let (run, shard) = (run("job", 5), ShardIndex(0));
        let progress = progress(has.0, &[(worker, has.1)]);
        world.give(Input::Attached { run, shard, progress, floor });
        assert_eq!(world.code("job"), code, "{policy}: {had:?}, {has:?}");
    }
}

/// Lets a worker go; the shard says what it has applied of it.
fn leave(world: &mut World, worker: Incarnation) {
    world.give(Input::WorkerGone { worker, reason: "stopped".into(), never_told: Vec::new() });
}

#[test]
fn a_shard_that_came_back_with_an_older_state_ends_a_job_whose_workers_have_left() {
    for (has, code) in [(1, "running"), (0, "E220")] {
        let mut world = World::new();
        let worker = world.join(1, "worker");
        world.submit(spec("job", "asp", 100), 5);
        world.report(worker, done);
        leave(&mut world, worker);
        let floor = world.job("job").floor();
        assert_eq!(floor.pushes, [(worker, 1)].into());
        let (run, shard) = (run("job", 5), ShardIndex(0));
        let progress = progress(0, &[(worker, has)]);
        world.give(Input::Attached { run, shard, progress, floor });
        assert_eq!(world.code("job"), code, "{has}");
    }
}

/// Each shard forgets the pushes of a worker once 256 others were sealed there.
#[test]
fn pushes_of_a_worker_that_shards_may_have_forgotten_are_asked_of_none() {
    let mut world = World::new();
    let workers: Vec<Incarnation> = (1..=258).map(|n| world.join(n, "worker")).collect();
    world.submit(spec("job", "asp", 10_000), 5);
    for worker in &workers {
        world.report(*worker, done);
    }
    let (last, first) = workers.split_last().unwrap();
    leave(&mut world, *last);
    for worker in &first[..256] {
        let floor = world.job("job").floor();
        assert_eq!(floor.pushes.get(last), Some(&1), "{worker}");
        leave(&mut world, *worker);
    }
    assert_eq!(world.job("job").floor().pushes.get(last), None);
    assert_eq!(world.code("job"), "running");
}

/// A shard that was away is told of all of them at once, and may have sealed all when it says how far it is.
#[test]
fn pushes_of_workers_that_leave_together_are_asked_of_no_shard_that_may_have_forgotten_them() {
    for (leave_together, asked) in [(256, 256), (257, 0)] {
        let mut world = World::new();
        let workers: Vec<Incarnation> = (1..=leave_together).map(|n| world.join(n, "worker")).collect();
        world.submit(spec("job", "asp", 10_000), 5);
        for worker in &workers {
            world.report(*worker, done);
        }
        world.plane.shell.undelivered = Some(Vec::new());
        workers.iter().for_each(|worker| leave(&mut world, *worker));
        let floor = world.job("job").floor();
        assert_eq!(floor.pushes.len(), asked, "{leave_together}");
        let progress = progress(0, &[]);
        let attached = Input::Attached { run: run("job", 5), shard: ShardIndex(0), progress, floor };
        world.give(attached);
        assert_eq!(world.code("job"), if asked == 0 { "running" } else { "E220" });
    }
}

/// It is asked again where its answer may have been lost, and may have forgotten by then.
#[test]
fn what_a_shard_answered_first_of_a_worker_that_it_seals_counts() {
    let mut world = World { plane: ControlPlane::new(2, Recorder::default()), ..World::new() };
    let worker = world.join(1, "worker");
    world.submit(spec("job", "asp", 100), 5);
    world.report(worker, done);
    world.plane.shell.undelivered = Some(Vec::new());
    leave(&mut world, worker);
    for (shard, watermark) in [(0, 1), (0, 0), (1, 1)] {
        let (run, shard) = (run("job", 5), ShardIndex(shard));
        let progress = PushProgress { watermark, partial: false };
        world.give(Input::Sealed { run, shard, worker, progress });
    }
    assert_eq!(world.job("job").member(worker).unwrap().seal.unwrap().applied, 1);
}

#[test]
fn the_iterations_of_a_worker_are_those_that_count_though_it_was_lost_before_it_reported_the_last() {
    let mut world = World::new();
    let worker = world.join(1, "worker");
    world.submit(spec("job", "asp", 100), 5);
    world.report(worker, done);
    world.plane.shell.undelivered = Some(Vec::new());
    leave(&mut world, worker);
    let progress = PushProgress { watermark: 2, partial: false };
    world.give(Input::Sealed { run: run("job", 5), shard: ShardIndex(0), worker, progress });
    let job = world.job("job");
    let spent = &job.member(worker).unwrap().spent;
    assert_eq!((spent.iterations, spent.samples), (2, 2 * u64::from(job.train().batch)));
}

/// The last 64 that have left are known.
#[test]
fn pushes_of_a_worker_that_left_long_ago_prove_nothing_and_those_of_one_among_the_known_a_loss() {
    for (pushed, code) in [(Incarnation(2), "running"), (Incarnation(11), "E226")] {
        let mut world = World::new();
        let workers: Vec<Incarnation> = (1..=66).map(|n| world.join(2 * n, "worker")).collect();
        world.submit(spec("job", "asp", 10_000), 5);
        for worker in &workers[..65] {
            world.report(*worker, done);
            leave(&mut world, *worker);
        }
        assert!(
            world.job("job").member(Incarnation(2)).is_none()
                && world.job("job").member(Incarnation(4)).is_some()
        );
        world.give(attached(0, &[(pushed, 1)]));
        assert_eq!(world.code("job"), code, "{pushed}");
    }
}

#[test]
fn shards_that_have_pushes_of_a_job_that_opens_prove_that_redis_has_lost_its_begin() {
    let mut core = Core::new(1);
    let submission =
        Submission { spec: Box::new(spec("job", "asp", 100)), nonce: 5, if_taken: IfTaken::Refuse };
    core.handle(1, Input::Submit(submission)).unwrap();
    // It was stored as it waited, and its worker registers again under another number.
    core.handle(2, Input::WorkerJoined { worker: Incarnation(102), about: WorkerInfo::default() }).unwrap();
    assert_eq!(core.job(&id("job")).unwrap().phase(), &Phase::Opening);
    core.handle(3, attached(0, &[(Incarnation(1), 500)])).unwrap();
    assert!(
        matches!(core.job(&id("job")).unwrap().phase(), Phase::Failed { code, .. } if *code == FaultCode::new("E226"))
    );
}

#[test]
fn a_snapshot_is_put_off_while_the_disk_is_full_and_no_longer() {
    let mut world = World::new();
    let worker = world.join(1, "worker");
    world.submit(spec("job", "asp", 1), 5);
    let mut effects = world.report(worker, done);
    for attempt in 1..=10 {
        let Some(key) = effects.iter().find_map(|e| match e {
            Effect::Snapshot { key, .. } => Some(key.clone()),
            _ => None,
        }) else {
            panic!("attempt {attempt} was not begun: {effects:?}")
        };
        let fault = TaskFault { code: FaultCode::new("E406"), reason: "[E406] no space left".into() };
        world.give(Input::SnapshotWritten { key, outcome: Err(fault) });
        assert_eq!(world.code("job"), "running");
        assert_eq!(world.give(Input::Tick), [], "not at once");
        world.now_us += 60_000_000;
        effects = world.give(Input::Tick);
    }
    let key = effects.iter().find_map(|e| match e {
        Effect::Snapshot { key, .. } => Some(key.clone()),
        _ => None,
    });
    let file = SnapshotFile { path: "/w".into(), bytes: 1, digest: ContentDigest::from_bytes([0xd; 32]) };
    world.give(Input::SnapshotWritten { key: key.unwrap(), outcome: Ok(file) });
    assert_eq!(world.code("job"), "done");
}

#[test]
fn a_worker_that_does_not_train_is_given_no_job() {
    let mut world = World::new();
    let about = WorkerInfo { trains: false, ..WorkerInfo::default() };
    world.give(Input::WorkerJoined { worker: Incarnation(1), about });
    world.submit(spec("job", "asp", 100), 1);
    assert_eq!(world.code("job"), "queued");
    let trains = world.join(2, "trains");
    assert_eq!(world.code("job"), "running");
    assert!(world.hands.contains_key(&trains) && !world.hands.contains_key(&Incarnation(1)));
}

/// What people are told in 20 s of a worker whose rounds of 2 ms take ten of them where `is_slow` says so,
/// beside a steady one.
fn told_of_stragglers(is_slow: impl Fn(u32) -> bool) -> Vec<String> {
    let about_speed = |what: &String| ["worker_slow", "worker_recovered"].contains(&&**what);
    watched_stragglers(is_slow).plane.shell.events.into_iter().filter(about_speed).collect()
}

fn watched_stragglers(is_slow: impl Fn(u32) -> bool) -> World {
    let mut world = World::new();
    let (steady, unsteady) = (world.join(1, "steady"), world.join(2, "unsteady"));
    world.submit(spec("job", "asp", 1_000_000), 1);
    let of = |compute_us: u64| {
        move |work: &Work| match done(work) {
            Outcome::Iterated(it) => Outcome::Iterated(Iterated { compute_us, ..it }),
            other => other,
        }
    };
    let began_us = world.now_us;
    for round in 0.. {
        world.now_us += 2_000;
        world.report(steady, of(1_000));
        world.report(unsteady, of(if is_slow(round) { 20_000 } else { 1_000 }));
        if world.now_us - began_us > 20_000_000 {
            break;
        }
    }
    world
}

#[test]
fn a_slow_worker_is_told_of_with_the_time_of_its_iterations_and_that_of_the_median_worker() {
    let told = watched_stragglers(|_| true).plane.shell.slow;
    let speed = RelativeSpeed { factor: 20.0, interval_us: 20_000, median_interval_us: 1_000 };
    assert_eq!(told, [(Incarnation(2), speed)]);
}

#[test]
fn a_worker_with_short_steps_of_which_a_few_were_interrupted_is_not_called_slow() {
    assert_eq!(told_of_stragglers(|round| round < 8), [""; 0]);
    assert_eq!(told_of_stragglers(|_| true), ["worker_slow"]);
}

#[test]
fn a_worker_that_is_slow_half_of_the_time_is_told_of_once() {
    assert_eq!(told_of_stragglers(|round| round / 8 % 2 == 0), ["worker_slow"]);
}

#[test]
fn a_worker_that_is_slow_now_and_then_is_told_of_ever_more_seldom() {
    // So many rounds slow that nobody remembers others, and so many not.
    let told = told_of_stragglers(|round| round / 64 % 2 == 0);
    // After about 0, 1, 3, 7 and 15 s.
    assert!((4..=5).contains(&told.len()), "{told:?} in 20 s");
    assert_eq!(&told[..4], ["worker_slow", "worker_recovered", "worker_slow", "worker_recovered"]);
}

#[test]
fn records_by_which_a_job_is_over_and_goes_on_are_not_read() {
    let mut world = World::new();
    world.submit(spec("job", "asp", 5), 1);
    let mut stored = StoredJob::default();
    apply(&mut stored, world.plane.core.full_commit(&id("job"), world.now_us).unwrap());
    assert!(Job::load(&stored).is_ok());
    stored.job_state = stored.job_state.replace(r#""ended_us":null"#, r#""ended_us":7"#);
    let refused = Job::load(&stored).unwrap_err();
    assert_eq!((refused.what, refused.field.as_str()), ("job", "job_state"), "{refused}");
}
