//! Trainings that are over but for what the shards have to write: their workers serve others meanwhile.

use syncline_scheduler::{
    core::{
        Cancellation, Core, Effect, HeldJob, Input, Iterated, Job, LastWeights, Outcome, ProgressFloor,
        SnapshotFile, StoredJob, TaskFault, TaskKey, Work,
    },
    fault_code::FaultCode,
    ids::{ContentDigest, Incarnation, NodeName, ShardIndex},
    sim::{training, training_job},
    spec::{CheckpointSpec, JobSpec, Node, NodeKind},
};

use crate::{
    cluster::stored::apply,
    world::{World, done, id, run},
};

const SHARD: ShardIndex = ShardIndex(0);
const SECOND_US: u64 = 1_000_000;
/// More than there is between two tries.
const MINUTE_US: u64 = 60 * SECOND_US;

/// A job for all workers, and these nodes behind it, one after the other.
fn spec(name: &str, nodes: &[(&str, NodeKind)]) -> JobSpec {
    let mut spec = JobSpec { id: id(name), ..training_job(training("asp".parse().unwrap(), 20, 1)) };
    let mut after = spec.nodes[0].name.clone();
    for (node, kind) in nodes {
        let name: NodeName = node.parse().unwrap();
        spec.nodes.push(Node { name: name.clone(), after: vec![after], retries: 0, kind: kind.clone() });
        after = name;
    }
    spec
}

fn with_snapshot(workers: u64) -> World {
    World::of(spec("first", &[("save", NodeKind::Snapshot)]), workers)
}

fn full_disk<T>() -> Result<T, TaskFault> {
    Err(TaskFault { code: FaultCode::new("E406"), reason: "no space left".into() })
}

fn snapshot(effects: &[Effect]) -> Option<TaskKey> {
    effects.iter().find_map(|effect| match effect {
        Effect::Snapshot { key, .. } => Some(key.clone()),
        _ => None,
    })
}

impl World {
    /// Workers do what they have in hand until nobody has anything; returns what was decided. Each has its
    /// number as loss.
    fn work_off(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        while let Some(worker) = self.hands.iter().find(|(_, hand)| !hand.is_empty()).map(|(w, _)| *w) {
            self.now_us += 1_000;
            effects.extend(self.report(worker, |work| match done(work) {
                Outcome::Iterated(it) => Outcome::Iterated(Iterated { loss: worker.0 as f32, ..it }),
                other => other,
            }));
        }
        effects
    }

    fn snapshot_written(&mut self, key: TaskKey, is_full: bool) -> Vec<Effect> {
        let file =
            SnapshotFile { path: "/save".into(), bytes: 1, digest: ContentDigest::from_bytes([0xd; 32]) };
        let outcome = if is_full { full_disk() } else { Ok(file) };
        self.give(Input::SnapshotWritten { key, outcome })
    }

    fn tick_after(&mut self, pause_us: u64) -> Vec<Effect> {
        self.now_us += pause_us;
        self.give(Input::Tick)
    }

    fn workers_of(&self, job: &str) -> Vec<u64> {
        self.job(job).active().map(|worker| worker.0).collect()
    }

    fn lose(&mut self, worker: u64) {
        self.give(Input::WorkerGone {
            worker: Incarnation(worker),
            reason: "killed".into(),
            never_told: Vec::new(),
        });
    }

    fn waiting_for(&self, job: &str) -> &str {
        self.job(job).waits_for().unwrap_or_default()
    }

    fn dismissed(&self) -> &[Incarnation] {
        &self.plane.shell.dismissed
    }

    /// Another engine leads, which knows what was stored and asks the shard how far it is.
    fn take_over(&mut self) {
        let mut stored = StoredJob::default();
        apply(&mut stored, self.plane.core.full_commit(&id("first"), self.now_us).unwrap());
        self.plane.core = Core::new(1);
        self.plane.core.restore(Job::load(&stored).unwrap());
        let progress = self.plane.server.shards[0].progress();
        let (run, floor) = (run("first", 1), ProgressFloor::default());
        self.give(Input::Attached { run, shard: SHARD, progress, floor });
    }

    fn lose_shard_for_a_while(&mut self) {
        self.give(Input::ShardGone { shard: SHARD, reason: "silent".into() });
        assert!(self.waiting_for("first").starts_with("parameter shard s0"));
        let held = [HeldJob { run: run("first", 1), closed: false }].into();
        self.give(Input::ShardHolds { shard: SHARD, asked_us: self.now_us, held });
    }

    fn pause_for_a_while(&mut self) {
        for paused in [true, false] {
            self.give(Input::Pause { job: id("first"), paused });
        }
    }
}

#[test]
fn while_a_snapshot_finds_no_room_the_next_job_has_the_workers() {
    let mut world = with_snapshot(2);
    world.submit(spec("next", &[]), 2);
    let key = snapshot(&world.work_off()).unwrap();
    assert!(world.dismissed().is_empty(), "it is being written");
    assert_eq!(world.workers_of("first"), [1, 2]);
    world.snapshot_written(key, true);
    assert_eq!(world.dismissed(), [1, 2].map(Incarnation));
    assert!(world.waiting_for("first").starts_with("node save, which is tried again"));
    world.join(3, "1");
    let second = world.join(4, "2");
    world.report(second, done);
    assert_eq!((world.workers_of("first"), world.workers_of("next")), (vec![], vec![3, 4]));
    let key = snapshot(&world.tick_after(MINUTE_US)).unwrap();
    world.snapshot_written(key, false);
    assert_eq!((world.code("first"), world.code("next")), ("done".into(), "running".into()));
}

#[test]
fn the_workers_go_also_where_the_shards_write_for_ten_seconds() {
    let mut world = with_snapshot(2);
    let key = snapshot(&world.work_off()).unwrap();
    world.tick_after(10 * SECOND_US - 1_000);
    assert!(world.dismissed().is_empty(), "most snapshots are written by then");
    world.tick_after(1_000);
    assert_eq!(world.dismissed(), [1, 2].map(Incarnation));
    world.tick_after(0);
    assert_eq!(world.waiting_for("first"), "the shards, which write its snapshot");
    world.snapshot_written(key, false);
    assert_eq!(world.code("first"), "done");
}

#[test]
fn while_a_snapshot_is_written_a_training_whose_workers_have_gone_takes_none() {
    let mut world = with_snapshot(1);
    let key = snapshot(&world.work_off()).unwrap();
    world.lose(1);
    world.join(2, "again");
    assert!(world.workers_of("first").is_empty());
    assert_eq!(world.waiting_for("first"), "the shards, which write its snapshot");
    world.snapshot_written(key, false);
    assert_eq!(world.code("first"), "done");
}

#[test]
fn where_something_is_evaluated_behind_the_snapshot_one_worker_stays_or_comes() {
    let nodes = [("save", NodeKind::Snapshot), ("test", NodeKind::Evaluate)];
    let mut world = World::of(spec("first", &nodes), 3);
    let key = snapshot(&world.work_off()).unwrap();
    world.snapshot_written(key, true);
    assert_eq!((world.dismissed().len(), world.workers_of("first").len()), (2, 1));
    world.lose(world.workers_of("first")[0]);
    assert!(world.workers_of("first").is_empty());
    world.join(4, "4");
    world.join(5, "5");
    assert_eq!(world.workers_of("first"), [4]);
    world.submit(spec("next", &[]), 2);
    assert_eq!(world.workers_of("next"), [5]);
    let key = snapshot(&world.tick_after(MINUTE_US)).unwrap();
    world.snapshot_written(key, true);
    assert_eq!(world.workers_of("first"), [4], "it stays");
    let key = snapshot(&world.tick_after(MINUTE_US)).unwrap();
    world.snapshot_written(key, false);
    assert_eq!(world.code("first"), "running");
    world.report(Incarnation(4), done);
    assert_eq!(world.code("first"), "done");
}

#[test]
fn while_one_evaluates_what_the_training_gave_the_others_serve_the_next_job() {
    let mut world = World::of(spec("first", &[("test", NodeKind::Evaluate)]), 3);
    let evaluates = |world: &World| {
        let is_evaluation = |w: &Work| matches!(w, Work::Evaluate { .. });
        let mut hands = world.hands.iter();
        hands.find(|(_, hand)| hand.iter().any(|of| is_evaluation(&of.work))).map(|(worker, _)| *worker)
    };
    while evaluates(&world).is_none() {
        let busy = world.hands.iter().find(|(_, hand)| !hand.is_empty()).map(|(worker, _)| *worker);
        world.report(busy.unwrap(), done);
    }
    let evaluates = evaluates(&world).unwrap();
    world.tick_after(10 * SECOND_US);
    assert_eq!((world.dismissed().len(), world.workers_of("first")), (2, vec![evaluates.0]));
    world.report(evaluates, done);
    assert_eq!(world.code("first"), "done");
}

#[test]
fn whatever_happens_while_the_disk_is_full_it_takes_no_workers_and_ends_when_there_is_room() {
    type Happens = fn(&mut World);
    let cases: [(&str, Happens); 4] = [
        ("nothing", |_| {}),
        ("a pause", World::pause_for_a_while),
        ("another engine leads", World::take_over),
        ("a shard is away", World::lose_shard_for_a_while),
    ];
    for (name, happens) in cases {
        let mut world = with_snapshot(2);
        let key = snapshot(&world.work_off()).unwrap();
        world.snapshot_written(key, true);
        world.join(3, "1");
        happens(&mut world);
        world.join(4, "2");
        assert!(world.workers_of("first").is_empty(), "{name}");
        let key = snapshot(&world.tick_after(MINUTE_US)).unwrap();
        world.snapshot_written(key, false);
        assert_eq!(world.code("first"), "done", "{name}");
    }
}

#[test]
fn one_that_is_canceled_while_its_disk_is_full_keeps_its_last_weights() {
    let mut world = with_snapshot(2);
    let key = snapshot(&world.work_off()).unwrap();
    world.snapshot_written(key, true);
    let canceled = Cancellation { job: id("first").into(), reason: String::new(), grace_ms: 0 };
    let effects = world.give(Input::Cancel(canceled));
    let keeps = |effect: &Effect| matches!(effect, Effect::CloseShards { weights: LastWeights::Keep, .. });
    assert!(effects.iter().any(keeps), "{effects:?}");
    assert_eq!(world.code("first"), "canceled");
}

#[test]
fn while_the_checkpoint_of_the_end_finds_no_room_the_next_job_has_the_workers() {
    let mut train = training("asp".parse().unwrap(), 20, 1);
    train.checkpoint = Some(CheckpointSpec::every_s(3_600));
    let mut world = World::of(JobSpec { id: id("first"), ..training_job(train) }, 2);
    world.plane.shell.holds_files = true;
    world.submit(spec("next", &[]), 2);
    let (run, shard) = (run("first", 1), SHARD);
    let written = |number, outcome| Input::CheckpointWritten { run: run.clone(), number, shard, outcome };
    world.work_off();
    assert!(world.dismissed().is_empty(), "it is being written");
    world.give(written(0, full_disk()));
    assert_eq!(world.dismissed(), [1, 2].map(Incarnation));
    assert!(world.waiting_for("first").starts_with("the shards, which try to write the last parameters"));
    // The shard of this world holds one job at a time.
    world.plane.shell.undelivered = Some(Vec::new());
    world.join(3, "1");
    assert_eq!((world.workers_of("first"), world.workers_of("next")), (vec![], vec![3]));
    world.tick_after(MINUTE_US);
    world.give(Input::CheckpointPinned { run: run.clone(), number: 1, shard, outcome: Ok(()) });
    world.give(written(1, Ok(1)));
    assert_eq!((world.code("first"), world.code("next")), ("done".into(), "opening".into()));
    assert_eq!(world.plane.shell.summaries[&id("first")]["loss"], "1.500000", "the mean of both workers");
}
