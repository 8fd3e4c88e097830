//! When a checkpoint is due, what it costs, what a lost shard brings back, and what late messages of the
//! generation before do.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
};

use syncline_scheduler::{
    core::{
        Assignment, Blame, Cancellation, ClosedBarrier, Core, Effect, Event, Happening, IfTaken, Input,
        Iterated, Job, OpenWith, Outcome, Phase, PushProgress, Retention, SnapshotFile, StoredJob,
        Submission, TaskFault, TaskKey, TaskReport, Work, WorkerInfo,
    },
    fault_code::FaultCode,
    ids::{ContentDigest, Generation, Incarnation, JobId, RunId, ShardIndex, Superstep},
    sim::{ControlPlane, Shell, training, training_job},
    spec::{CheckpointSpec, Decay, LearningRate, ResumeSpec, StepRun, TrainSpec},
};

use crate::cluster::stored::apply;

mod asked_for;
mod by_default;
mod store_loss;

const MINUTE_US: u64 = 60_000_000;
const WORKER: Incarnation = Incarnation(1);

/// As it was submitted, before it goes back to a checkpoint.
fn first_run() -> RunId {
    RunId { job: id(), generation: Generation::first(5) }
}

fn id() -> JobId {
    "job".parse().unwrap()
}

/// Writes down what the core decides and what it tells people; what shards say of files is left to the test
/// if it wants.
#[derive(Default)]
struct Recorder {
    effects: Vec<Effect>,
    events: Vec<String>,
    rests_ms: Vec<u64>,
    summary: BTreeMap<&'static str, String>,
    keeps_files: bool,
    /// Shards do not say that they have opened the job.
    opens_nothing: bool,
    /// Iterations of all points of the curve.
    drawn: u64,
    /// Of each the samples, the generation, and beyond how many samples what was before is undone.
    points: Vec<[u64; 3]>,
}

impl Shell for Recorder {
    fn handle(&mut self, core: &mut Core, now_us: u64, input: Input) -> Vec<Effect> {
        let mut effects = core.handle(now_us, input).unwrap();
        for commit in core.take_commits(now_us).into_values() {
            self.events.extend(commit.events.iter().map(|event| event.what.kind().to_string()));
            let rest_ms = |event: &Event| match event.what {
                Happening::CheckpointKept { rest_ms, .. } => Some(rest_ms),
                _ => None,
            };
            self.rests_ms.extend(commit.events.iter().filter_map(rest_ms));
            for point in &commit.metrics.points {
                let field = |name| point.iter().find(|(field, _)| *field == name).unwrap().1.parse().unwrap();
                self.drawn += field("iterations");
                self.points.push(["samples", "generation", "undone_beyond"].map(field));
            }
            self.summary.extend(commit.summary);
        }
        self.effects.extend(effects.iter().cloned());
        if !self.keeps_files {
            effects.retain(|e| !matches!(e, Effect::PinCheckpoint { .. } | Effect::WriteCheckpoint { .. }));
        }
        effects.retain(|e| !self.opens_nothing || !matches!(e, Effect::OpenShards { .. }));
        effects
    }
}

/// A core, a shard, and one worker that does what the test says.
struct World {
    plane: ControlPlane<Recorder>,
    now_us: u64,
    hand: VecDeque<Assignment>,
}

impl World {
    /// Trains `epochs` epochs of 10 samples in batches of one, with a checkpoint every minute.
    fn new(policy: &str, epochs: u32, keeps_files: bool) -> Self {
        let mut train = training(policy.parse().unwrap(), 10, 1);
        (train.epochs, train.ahead) = (epochs, Some(2));
        train.checkpoint = Some(CheckpointSpec::every_s(60));
        Self::of(train, keeps_files)
    }

    fn of(train: TrainSpec, keeps_files: bool) -> Self {
        let shell = Recorder { keeps_files, ..Recorder::default() };
        let mut world = Self { plane: ControlPlane::new(1, shell), now_us: 1_000_000, hand: VecDeque::new() };
        world.give(Input::WorkerJoined { worker: WORKER, about: WorkerInfo::default() });
        let spec = Box::new(training_job(train));
        world.give(Input::Submit(Submission { spec, nonce: 5, if_taken: IfTaken::Refuse }));
        world
    }

    /// Handles an input and what follows from it; returns all that was decided.
    fn give(&mut self, input: Input) -> Vec<Effect> {
        self.now_us += 10;
        for (_, assignment) in self.plane.settle(self.now_us, [input]) {
            self.hand.push_back(assignment);
        }
        mem::take(&mut self.plane.shell.effects)
    }

    /// The worker ends its next task.
    fn report(&mut self) -> Vec<Effect> {
        let Assignment { key, work, .. } = self.hand.pop_front().unwrap();
        let Work::Iterate { seq, range, .. } = work else { panic!("{work:?}") };
        assert!(self.plane.server.shards[0].finish_push(WORKER, seq, 1));
        let outcome = Outcome::Iterated(Iterated { range, compute_us: 1_000, ..Iterated::default() });
        self.give(Input::Report { worker: WORKER, report: TaskReport { key, ended_ago_us: 0, outcome } })
    }

    /// A minute goes by in which something was done, and the worker ends what it has in hand.
    fn rest(&mut self) -> Vec<Effect> {
        self.rest_for(MINUTE_US)
    }

    fn rest_for(&mut self, us: u64) -> Vec<Effect> {
        self.report();
        self.now_us += us;
        let mut effects = self.give(Input::Tick);
        while !self.hand.is_empty() && !effects.iter().any(|e| matches!(e, Effect::PinCheckpoint { .. })) {
            effects.extend(self.report());
        }
        effects
    }

    fn crash(&mut self) -> Vec<Effect> {
        self.plane.server.shards[0].crash();
        let (shard, asked_us) = (ShardIndex(0), self.now_us);
        let effects = self.give(Input::ShardHolds { shard, asked_us, held: Vec::new() });
        let run = self.job().run();
        self.hand.retain(|assignment| assignment.key.run == run);
        effects
    }

    fn job(&self) -> &Job {
        self.plane.core.job(&id()).unwrap()
    }

    fn samples(&self) -> u64 {
        self.job().counters().samples_done
    }

    fn has_told(&self, what: &str) -> usize {
        self.plane.shell.events.iter().filter(|event| *event == what).count()
    }
}

fn pinned(number: u64, outcome: Result<(), TaskFault>) -> Input {
    Input::CheckpointPinned { run: first_run(), number, shard: ShardIndex(0), outcome }
}

fn written(number: u64, outcome: Result<u64, TaskFault>) -> Input {
    Input::CheckpointWritten { run: first_run(), number, shard: ShardIndex(0), outcome }
}

fn full_disk<T>() -> Result<T, TaskFault> {
    Err(TaskFault { code: FaultCode::new("E406"), reason: "no space left".into() })
}

#[test]
fn training_stands_still_only_until_the_shards_have_copied() {
    for policy in ["asp", "ssp:2", "elastic-bsp:5", "elastic-bsp:5+update=barrier"] {
        let mut world = World::new(policy, 4, false);
        let effects = world.rest();
        let run = first_run();
        assert!(effects.contains(&Effect::PinCheckpoint { run: run.clone(), number: 0 }), "{policy}");
        assert!(world.hand.is_empty(), "{policy}: nothing is granted at rest");
        assert!(world.plane.shell.summary["waiting_for"].contains("checkpoint"), "{policy}");
        world.now_us += 250_000;
        let effects = world.give(pinned(0, Ok(())));
        assert!(effects.contains(&Effect::WriteCheckpoint { run, number: 0 }), "{policy}");
        assert!(!world.hand.is_empty(), "{policy}: while it is written training goes on");
        assert_eq!(world.has_told("checkpoint_kept"), 0);
        world.give(written(0, Ok(7)));
        world.give(written(0, Ok(7)));
        assert_eq!(world.has_told("checkpoint_kept"), 1, "{policy}");
        assert_eq!(world.plane.shell.rests_ms, [250], "{policy}");
    }
}

#[test]
fn one_is_due_in_its_time_also_where_the_clock_was_set_back_by_days() {
    for kept in 0..2 {
        let mut world = World::new("asp", 400, true);
        for _ in 0..kept {
            world.rest();
        }
        let before_us = world.now_us + 3 * 24 * 60 * MINUTE_US;
        world.plane.core.discount_downtime(before_us, before_us + 1);
        world.now_us = before_us;
        world.rest();
        world.plane.core.discount_downtime(world.now_us, 1);
        world.now_us = 1;
        world.rest();
        assert_eq!(world.has_told("checkpoint_kept"), kept + 2);
    }
}

#[test]
fn there_is_one_a_minute_if_there_is_something_new() {
    let mut world = World::new("asp", 400, true);
    for number in 0..5 {
        let effects = world.rest();
        assert_eq!(world.has_told("checkpoint_kept"), number + 1);
        let kept = effects.iter().rev().find_map(|e| match e {
            Effect::RetainCheckpoints { retention: Retention::Thin { keep, .. }, .. } => Some(keep.clone()),
            _ => None,
        });
        let number = number as u64;
        // Redis may forget this one for a moment yet.
        assert_eq!(kept.unwrap(), (number.saturating_sub(2)..=number).collect::<Vec<_>>());
    }
    // The worker leaves, and what it had comes back: what is counted is in the last one.
    world.rest();
    world.give(Input::WorkerGone { worker: WORKER, reason: "silent".into(), never_told: Vec::new() });
    for _ in 0..3 {
        world.now_us += MINUTE_US;
        world.give(Input::Tick);
    }
    assert_eq!(world.has_told("checkpoint_kept"), 6);
}

#[test]
fn the_one_before_is_removed_only_once_redis_cannot_forget_the_new_one() {
    let mut train = training("asp".parse().unwrap(), 10, 1);
    (train.epochs, train.checkpoint) = (400, Some(CheckpointSpec::every_s(60).keep(1)));
    let mut world = World::of(train, true);
    world.rest();
    let mut stored = StoredJob::default();
    apply(&mut stored, world.plane.core.full_commit(&id(), world.now_us).unwrap());
    let on_disk = stored.clone();
    world.rest();
    let completed_us = world.now_us;
    assert_eq!(world.has_told("checkpoint_kept"), 2);

    // Everything is killed, and Redis is as it was before the new one was complete: the shards still have
    // what it knows.
    let known = Job::load(&on_disk).unwrap().checkpoint_numbers();
    assert_eq!(known, [0]);
    let on_shards = |world: &World| world.plane.server.shards[0].written_checkpoints();
    assert_eq!(on_shards(&world), [0, 1]);

    // Another engine leads after a minute without any: that minute does not count.
    let commit = world.plane.core.full_commit(&id(), world.now_us).unwrap();
    apply(&mut stored, commit);
    world.plane.core.restore(Job::load(&stored).unwrap());
    world.plane.core.discount_downtime(completed_us, completed_us + MINUTE_US);
    world.now_us = completed_us + MINUTE_US + 1_000_000;
    world.give(Input::Tick);
    assert_eq!(on_shards(&world), [0, 1]);
    world.now_us += 4_000_000;
    world.give(Input::Tick);
    assert_eq!((on_shards(&world), world.job().checkpoint_numbers()), (vec![1], vec![1]));
}

#[test]
fn a_turn_that_takes_long_gives_redis_no_time_to_keep_what_it_writes_last() {
    let mut train = training("asp".parse().unwrap(), 10, 1);
    (train.epochs, train.checkpoint) = (400, Some(CheckpointSpec::every_s(60).keep(1)));
    let mut world = World::of(train, true);
    world.rest();
    world.now_us += MINUTE_US;
    world.give(Input::Tick);
    world.rest();
    let on_shards = |world: &World| world.plane.server.shards[0].written_checkpoints();
    assert_eq!(on_shards(&world), [0, 1]);
    // Its commit gets through to Redis ten seconds later.
    let turn_us = 10_000_000;
    world.now_us += turn_us;
    world.plane.core.discount_turn(turn_us, world.now_us);
    // That it stood still meanwhile is found in the next one, and counts once.
    world.plane.core.discount_downtime(world.now_us - turn_us, world.now_us);
    world.now_us += 4_000_000;
    world.give(Input::Tick);
    assert_eq!(on_shards(&world), [0, 1]);
    world.now_us += 1_000_000;
    world.give(Input::Tick);
    assert_eq!(on_shards(&world), [1]);
}

#[test]
fn checkpoints_that_follow_each_other_faster_than_redis_writes_are_thinned_out_all_the_same() {
    let mut train = training("asp".parse().unwrap(), 10, 1);
    (train.epochs, train.checkpoint) = (400, Some(CheckpointSpec::every_s(1).keep(1)));
    let mut world = World::of(train, true);
    for _ in 0..30 {
        world.rest_for(1_000_000);
    }
    assert_eq!(world.has_told("checkpoint_kept"), 30);
    assert_eq!(world.job().checkpoint_numbers(), [24, 25, 26, 27, 28, 29]);
}

#[test]
fn one_that_fails_costs_nothing_but_itself() {
    let mut world = World::new("asp", 40, false);
    world.rest();
    world.give(pinned(0, full_disk()));
    assert!(!world.hand.is_empty(), "training goes on");
    world.give(Input::Tick);
    world.rest();
    world.give(pinned(1, Ok(())));
    world.give(written(1, full_disk()));
    assert_eq!(world.has_told("checkpoint_failed"), 2);
    assert_eq!((world.job().phase(), world.has_told("checkpoint_kept")), (&Phase::Running, 0));
    assert_eq!(world.plane.shell.summary["checkpoint_problem"], "[E406] no space left");
    let before = world.plane.shell.effects.len();
    world.give(Input::Tick);
    assert_eq!(world.plane.shell.effects.len(), before, "the next one is due in a minute");
    world.rest();
    world.give(pinned(2, Ok(())));
    world.give(written(2, Ok(7)));
    assert_eq!(world.plane.shell.summary["checkpoint_problem"], "", "one is complete");
}

#[test]
fn a_job_goes_back_and_no_late_message_of_the_life_before_changes_it() {
    for policy in ["asp", "bsp", "elastic-bsp:5", "dssp:1:4"] {
        let mut world = World::new(policy, 4, true);
        world.rest();
        let kept = world.samples();
        world.report();
        world.report();
        let late: TaskKey = world.hand[0].key.clone();
        world.crash();
        assert_eq!((world.job().generation().number(), world.samples()), (2, kept), "{policy}");
        assert_eq!(world.job().counters().samples_rolled_back, 2, "{policy}");
        assert_eq!(*world.job().phase(), Phase::Running, "the shard has opened the new generation");

        let before = world.job().clone();
        let (run, shard) = (first_run(), ShardIndex(0));
        let barrier = ClosedBarrier { superstep: Superstep(0), closed_ago_us: 0, pushes: 99 };
        let progress = PushProgress { watermark: 3, partial: true };
        let (code, reason) = (FaultCode::new("E220"), "lost".to_owned());
        let failed =
            Outcome::Failed { code: FaultCode::new("E410"), reason: "gone".into(), blame: Blame::Job };
        let report = |outcome| Input::Report {
            worker: WORKER,
            report: TaskReport { key: late.clone(), ended_ago_us: 0, outcome },
        };
        let messages = [
            report(Outcome::Iterated(Iterated::default())),
            report(failed),
            Input::BarrierClosed { run: run.clone(), shard, barrier },
            Input::Sealed { run: run.clone(), worker: WORKER, shard, progress },
            Input::ShardFailed { run: run.clone(), code, reason },
            Input::ShardsOpened { run },
            pinned(1, Ok(())),
            written(1, Ok(1)),
        ];
        messages.into_iter().for_each(|message| drop(world.give(message)));
        assert!(*world.job() == before, "{policy}");

        while *world.job().phase() == Phase::Running {
            world.report();
        }
        assert_eq!((world.job().phase(), world.samples()), (&Phase::Done, 40), "{policy}");
    }
}

#[test]
fn a_job_goes_back_when_a_shard_refuses_an_order_and_fails_when_it_is_refused_again_before_anything_was_done()
{
    let refuse = |world: &mut World| {
        let (code, reason) = (FaultCode::new("E405"), "the order does not fit".to_owned());
        world.give(Input::ShardFailed { run: world.job().run(), code, reason });
        let run = world.job().run();
        world.hand.retain(|assignment| assignment.key.run == run);
    };
    let mut world = World::new("bsp", 4, true);
    world.rest();
    let kept = world.samples();
    for generation in [2, 3] {
        world.report();
        refuse(&mut world);
        assert_eq!((world.job().generation().number(), world.samples()), (generation, kept));
    }
    refuse(&mut world);
    assert!(matches!(world.job().phase(), Phase::Failed { code, .. } if *code == FaultCode::new("E405")));
}

#[test]
fn a_job_goes_back_when_a_shard_refuses_a_push_and_fails_when_one_is_refused_again_before_the_next_checkpoint()
 {
    let refuse = |world: &mut World| {
        world.report();
        let Assignment { key, .. } = world.hand.pop_front().unwrap();
        let reason = "push 16 after push 10: a push is missing".to_owned();
        let outcome = Outcome::Failed { code: FaultCode::new("E405"), reason, blame: Blame::Job };
        world.give(Input::Report { worker: WORKER, report: TaskReport { key, ended_ago_us: 0, outcome } });
        let run = world.job().run();
        world.hand.retain(|assignment| assignment.key.run == run);
    };
    let mut world = World::new("asp", 400, true);
    for generation in [2, 3] {
        world.rest();
        let kept = world.samples();
        refuse(&mut world);
        assert_eq!((world.job().generation().number(), world.samples()), (generation, kept));
    }
    refuse(&mut world);
    let phase = world.job().phase();
    assert!(
        matches!(phase, Phase::Failed { code, reason } if *code == FaultCode::new("E405") && reason.contains("task it/")),
        "{phase:?}"
    );
}

#[test]
fn no_barrier_is_next_of_a_job_that_is_over() {
    let mut world = World::new("elastic-bsp:8", 4, true);
    assert_ne!(world.plane.shell.summary["next_barrier"], "");
    world.give(Input::Cancel(Cancellation { job: id().into(), reason: String::new(), grace_ms: 0 }));
    assert!(world.job().phase().is_over());
    assert_eq!(world.plane.shell.summary["next_barrier"], "");
}

#[test]
fn a_job_that_its_shards_cannot_open_yet_says_why_until_it_is_open() {
    let mut core = Core::new(1);
    let mut handle = |input| drop(core.handle(1, input).unwrap());
    handle(Input::WorkerJoined { worker: WORKER, about: WorkerInfo::default() });
    let spec = Box::new(training_job(training("asp".parse().unwrap(), 10, 1)));
    handle(Input::Submit(Submission { spec, nonce: 5, if_taken: IfTaken::Refuse }));
    handle(Input::OpeningDelayed { run: first_run(), reason: "[E406] cannot read".into() });
    handle(Input::Tick);
    let waits = core.job(&id()).unwrap().waits_for().map(str::to_owned);
    let want = "the shards, which load its parameters, and could not so far: [E406] cannot read";
    assert_eq!(waits.as_deref(), Some(want));

    core.handle(2, Input::ShardsOpened { run: first_run() }).unwrap();
    core.handle(2, Input::OpeningDelayed { run: first_run(), reason: "late".into() }).unwrap();
    let waits = core.job(&id()).unwrap().waits_for().map(str::to_owned);
    assert_eq!(waits.as_deref(), Some("w1 to fetch the model, read the data and compute a first batch"));
}

#[test]
fn the_curve_loses_no_iteration_however_long_the_training_is_and_where_it_goes_back() {
    let mut world = World::new("asp", 130, true);
    // Points stand for several iterations by now, so that some are in none yet.
    while world.samples() < 1_000 {
        world.report();
    }
    world.rest();
    for _ in 0..5 {
        world.report();
    }
    let before = world.samples();
    world.crash();
    let kept = world.samples();
    while *world.job().phase() == Phase::Running {
        world.report();
    }
    let counters = world.job().counters();
    assert_eq!((counters.done, counters.rolled_back > 0), (1_300, true));
    assert_eq!(world.plane.shell.drawn, counters.done + counters.rolled_back);
    // No point stands for what is undone and for what counts.
    let points = &world.plane.shell.points;
    let first_again = points.iter().position(|[_, generation, _]| *generation == 2).unwrap();
    assert_eq!(points[first_again - 1], [before, 1, 0]);
    assert!(points[first_again..].iter().all(|point| point[1..] == [2, kept]), "{points:?}");
    let curve_strides = points[first_again][0] - kept;
    assert!(curve_strides > 1 && points[first_again + 1][0] - points[first_again][0] == curve_strides);
}

#[test]
fn a_shard_that_cannot_read_its_part_brings_the_checkpoint_before_and_then_the_end() {
    for code in ["E439", "E406"] {
        brings_the_checkpoint_before_and_then_the_end(code);
    }
}

fn brings_the_checkpoint_before_and_then_the_end(code: &'static str) {
    let mut world = World::new("asp", 40, true);
    let counts: Vec<u64> = (0..2)
        .map(|_| {
            world.rest();
            world.samples()
        })
        .collect();
    world.plane.shell.opens_nothing = true;
    let opens = |effects: &[Effect]| {
        effects.iter().find_map(|effect| match effect {
            Effect::OpenShards { with, .. } => Some(*with),
            _ => None,
        })
    };
    assert_eq!(opens(&world.crash()), Some(OpenWith::Checkpoint { number: 1, has_others: true }));
    assert_eq!(world.samples(), counts[1]);
    let unusable = |world: &World| {
        let (code, reason) = (FaultCode::new(code), "it cannot be read".to_owned());
        Input::ShardFailed { run: world.job().run(), code, reason }
    };
    assert_eq!(
        opens(&world.give(unusable(&world))),
        Some(OpenWith::Checkpoint { number: 0, has_others: false })
    );
    assert_eq!((world.job().generation().number(), world.samples()), (3, counts[0]));
    world.give(unusable(&world));
    let failed =
        matches!(world.job().phase(), Phase::Failed { code: found, .. } if *found == FaultCode::new(code));
    assert!(failed, "{:?}", world.job().phase());
    // Their disk may come back: what goes on from this job begins with the newest.
    assert_eq!(world.plane.shell.summary["checkpoint"], "1");
}

#[test]
fn a_job_that_lost_its_parameters_before_its_first_checkpoint_begins_anew() {
    let mut world = World::new("bsp", 2, true);
    world.report();
    world.crash();
    assert_eq!((world.job().generation().number(), world.samples()), (2, 0));
    assert_eq!(world.job().counters().samples_rolled_back, 1);
    while *world.job().phase() == Phase::Running {
        world.report();
    }
    assert_eq!((world.job().phase(), world.samples()), (&Phase::Done, 20));
}

#[test]
fn another_job_goes_on_from_a_checkpoint_with_more_epochs_and_counts_each_sample_once() {
    for policy in ["asp", "bsp", "elastic-bsp:5"] {
        let mut before = World::new(policy, 2, true);
        before.rest();
        let newest = *before.job().checkpoint_numbers().last().unwrap();
        let kept = before.job().kept_checkpoint(None).unwrap();
        assert_eq!(kept.resume, before.job().kept_checkpoint(Some(newest)).unwrap().resume);
        assert!(before.job().kept_checkpoint(Some(newest + 1)).is_none());
        let ResumeSpec { job, iterations, .. } = &kept.resume;
        assert_eq!((job, *iterations, kept.resume.samples()), (&id(), before.samples(), before.samples()));

        let mut train = before.job().train().clone();
        let elements = train.model.layout.trained_elements();
        train.epochs = 3;
        let steps = vec![StepRun { elements, steps: *iterations }];
        train.resume = Some(ResumeSpec { steps, ..kept.resume });
        let mut world = World::of(train, true);
        assert_eq!((world.samples(), world.has_told("started")), (before.samples(), 1));
        // What it goes back to before its own first checkpoint is where it began.
        world.report();
        world.crash();
        assert_eq!((world.samples(), world.job().counters().samples_rolled_back), (before.samples(), 1));
        while *world.job().phase() == Phase::Running {
            world.report();
        }
        assert_eq!((world.job().phase(), world.samples()), (&Phase::Done, 30), "{policy}");
        assert_eq!(world.job().counters().done, 30, "{policy}");
    }
}

#[test]
fn what_is_needed_for_nothing_is_removed() {
    let removed = |effects: &[Effect]| {
        let all_go = Retention::Last { keep: Vec::new() };
        let is =
            |e: &Effect| matches!(e, Effect::RetainCheckpoints { retention, .. } if *retention == all_go);
        effects.iter().filter(|e| is(e)).count()
    };
    let mut world = World::new("bsp", 2, true);
    world.rest();
    let canceled = Cancellation { job: id().into(), reason: String::new(), grace_ms: 0 };
    assert_eq!(removed(&world.give(Input::Cancel(canceled))), 0, "somebody may want it still");
    let mut forgetful = world.plane.core.clone();
    let forgotten: Vec<Effect> = forgetful.forget(&id()).into_iter().collect();
    assert_eq!((removed(&forgotten), forgetful.job(&id()).is_none()), (1, true), "its keys expire");
    assert_eq!(removed(&world.give(Input::Delete(id()))), 1);
}

/// The numbers that the shards are told to keep when a job is over.
fn kept_at_the_end(effects: &[Effect]) -> Vec<Vec<u64>> {
    let last = |e: &Effect| match e {
        Effect::RetainCheckpoints { retention: Retention::Last { keep }, .. } => Some(keep.clone()),
        _ => None,
    };
    effects.iter().filter_map(last).collect()
}

/// Reports until the training is over, and returns what was decided since its last iteration.
fn finish(world: &mut World) -> Vec<Effect> {
    let mut effects = Vec::new();
    while !world.hand.is_empty() {
        effects = world.report();
    }
    effects
}

fn last_weights(outcome: Result<SnapshotFile, TaskFault>) -> Input {
    Input::WeightsKept { run: first_run(), outcome }
}

#[test]
fn a_job_with_checkpoints_that_is_done_keeps_that_of_its_end_from_which_a_longer_one_goes_on() {
    let mut world = World::new("bsp", 2, true);
    world.rest();
    let effects = finish(&mut world);
    assert_eq!((world.job().phase(), world.job().checkpoint_numbers()), (&Phase::Done, vec![0, 1]));
    assert!(kept_at_the_end(&effects).is_empty(), "until the weights are written, there is nothing else");
    let file = SnapshotFile { path: "/last".into(), bytes: 1, digest: ContentDigest::from_bytes([0xd; 32]) };
    let effects = world.give(last_weights(Ok(file)));
    assert_eq!(kept_at_the_end(&effects), [[1]]);
    assert_eq!((world.job().checkpoint_numbers(), world.has_told("checkpoint_kept")), (vec![1], 2));
    // The engine may have ended before the shards heard of it.
    let mut stored = StoredJob::default();
    apply(&mut stored, world.plane.core.full_commit(&id(), world.now_us).unwrap());
    let repeated = Core::new(1).restore(Job::load(&stored).unwrap());
    assert_eq!(kept_at_the_end(&repeated), [[1]]);
    let kept = world.job().kept_checkpoint(None).unwrap();
    let mut longer = world.job().train().clone();
    let steps = vec![StepRun { elements: longer.model.layout.trained_elements(), steps: 20 }];
    (longer.epochs, longer.resume) = (3, Some(ResumeSpec { steps, ..kept.resume }));
    let mut world = World::of(longer, true);
    finish(&mut world);
    assert_eq!((world.job().phase(), world.samples()), (&Phase::Done, 30));
}

#[test]
fn a_training_of_a_graph_leaves_its_weights_and_no_checkpoint() {
    let mut world = World::new("bsp", 2, true);
    world.rest();
    finish(&mut world);
    let mut stored = StoredJob::default();
    apply(&mut stored, world.plane.core.full_commit(&id(), world.now_us).unwrap());
    let mut state: serde_json::Value = serde_json::from_str(&stored.job_state).unwrap();
    state["trains_for"] = serde_json::json!({ "job": "sweep", "nonce": 1, "task": 0, "attempt": 1 });
    stored.job_state = state.to_string();
    let mut core = Core::new(1);
    core.restore(Job::load(&stored).unwrap());
    let file = SnapshotFile { path: "/last".into(), bytes: 1, digest: ContentDigest::from_bytes([0xd; 32]) };
    let effects = core.handle(world.now_us, last_weights(Ok(file))).unwrap();
    assert_eq!(kept_at_the_end(&effects), [Vec::<u64>::new()]);
}

#[test]
fn a_job_whose_weights_cannot_be_written_keeps_the_checkpoints_that_have_them() {
    let mut world = World::new("asp", 2, true);
    world.rest();
    finish(&mut world);
    let fault = TaskFault { code: FaultCode::new("E409"), reason: "it has crashed".into() };
    let effects = world.give(last_weights(Err(fault)));
    assert_eq!((kept_at_the_end(&effects), world.job().checkpoint_numbers()), (vec![], vec![0, 1]));
    assert_eq!(world.has_told("weights_lost"), 1);
}

#[test]
fn an_end_that_a_full_disk_does_not_take_is_tried_again_for_minutes_and_over_all_the_same() {
    let ended = |tries: u64, last: Result<(), TaskFault>| {
        let mut world = World::new("bsp", 2, true);
        world.rest();
        world.plane.shell.keeps_files = false;
        finish(&mut world);
        assert_eq!(world.job().phase(), &Phase::Running, "the shards have not said a word yet");
        for number in 1..tries {
            let effects = world.give(pinned(number, full_disk()));
            assert!(!effects.iter().any(|e| matches!(e, Effect::PinCheckpoint { .. })));
            assert_eq!(world.job().phase(), &Phase::Running);
            let waits_for = &world.plane.shell.summary["waiting_for"];
            assert!(waits_for.ends_with(": no space left"), "{waits_for}");
            world.now_us += MINUTE_US;
            let effects = world.give(Input::Tick);
            assert!(effects.iter().any(|e| matches!(e, Effect::PinCheckpoint { .. })), "try {number}");
        }
        world.give(pinned(tries, last));
        world
    };
    let mut world = ended(4, Ok(()));
    world.give(written(4, Ok(7)));
    assert_eq!((world.job().phase(), world.job().checkpoint_numbers()), (&Phase::Done, vec![0, 4]));
    assert_eq!(world.has_told("checkpoint_failed"), 1);

    let mut world = ended(15, full_disk());
    assert_eq!((world.job().phase(), world.has_told("checkpoint_failed")), (&Phase::Done, 1));
    let file = SnapshotFile { path: "/last".into(), bytes: 1, digest: ContentDigest::from_bytes([0xd; 32]) };
    let effects = world.give(last_weights(Ok(file)));
    assert_eq!(kept_at_the_end(&effects), [[0]]);
}

#[test]
fn the_rate_of_a_training_that_goes_back_or_on_is_that_of_its_place_among_the_samples() {
    let schedule = LearningRate {
        warmup: 0.2,
        decay: Decay::Steps(vec![(0.3, 0.5), (0.6, 0.5)]),
        ..LearningRate::constant(0.8)
    };
    /// Reports until the job is over, and says how many of the rates it saw were another than the schedule's.
    fn wrong(world: &mut World) -> (usize, usize) {
        let train = world.job().train().clone();
        let (mut seen, mut wrong) = (0, 0);
        while let Some(assignment) = world.hand.front() {
            let Work::Iterate { range, learning_rate, .. } = assignment.work else { unreachable!() };
            // A batch is one sample.
            let place = u64::from(range.epoch) * train.epoch_samples() + range.start;
            seen += 1;
            wrong += usize::from(learning_rate != train.learning_rate.at(place, train.total_samples()));
            world.report();
        }
        (seen, wrong)
    }
    for policy in ["asp", "bsp", "elastic-bsp:5", "dssp:1:4"] {
        let mut train = training(policy.parse().unwrap(), 10, 1);
        (train.epochs, train.ahead, train.learning_rate) = (2, Some(2), schedule.clone());
        train.checkpoint = Some(CheckpointSpec::every_s(60));
        let mut world = World::of(train.clone(), true);
        world.rest();
        let (before, kept) = (world.samples(), world.job().kept_checkpoint(None).unwrap());
        world.report();
        world.report();
        world.crash();
        assert_eq!((world.samples(), wrong(&mut world)), (before, (20 - before as usize, 0)), "{policy}");

        let steps = vec![StepRun { elements: train.model.layout.trained_elements(), steps: before }];
        train.resume = Some(ResumeSpec { steps, ..kept.resume });
        train.epochs = 3;
        let mut world = World::of(train, true);
        assert_eq!((world.samples(), wrong(&mut world)), (before, (30 - before as usize, 0)), "{policy}");
    }
}

#[test]
fn a_rule_that_never_comes_true_is_refused() {
    let never = CheckpointSpec { every_s: None, ..CheckpointSpec::every_s(1) };
    #[rustfmt::skip]
    let cases = [
        (never,                                  "neither `every_s` nor `every_epochs`"),
        (CheckpointSpec::every_s(0),             "every_s is 0, expected a whole number from 1"),
        (CheckpointSpec::every_epochs(0),        "every_epochs is 0, expected a whole number from 1"),
        (CheckpointSpec::every_epochs(1).keep(0), "keep is 0, expected a whole number from 1"),
        (CheckpointSpec::every_s(1).keep(101),    "keep = 101 is more than 100"),
    ];
    for (checkpoint, words) in cases {
        let mut train = training("asp".parse().unwrap(), 10, 1);
        train.checkpoint = Some(checkpoint);
        let refused = training_job(train).validate().unwrap_err().to_string();
        assert!(refused.contains("E027") && refused.contains(words), "{refused}");
    }
}
