//! Checkpoints that somebody asks for.

use syncline_scheduler::core::RequestedCheckpoint;

use super::*;

impl World {
    /// Asks for one, and says which number it will have.
    fn ask(&mut self) -> u64 {
        let number = self.job().number_of_checkpoint_now();
        self.give(Input::RequestCheckpoint(id()));
        number
    }

    /// The worker ends what it has until the checkpoint is complete, or can wait no longer.
    fn work_until_kept(&mut self, number: u64) -> RequestedCheckpoint {
        while self.job().requested_checkpoint(number) == RequestedCheckpoint::Pending && !self.hand.is_empty()
        {
            self.report();
        }
        self.job().requested_checkpoint(number)
    }

    fn refusal(&self, job: &JobId) -> String {
        let mut core = Core::clone(&self.plane.core);
        match core.handle(self.now_us, Input::RequestCheckpoint(job.clone())) {
            Err(refused) => refused.to_string(),
            Ok(_) => "taken".to_owned(),
        }
    }
}

#[test]
fn one_that_is_asked_for_holds_what_is_trained_by_then_and_is_made_once() {
    for policy in ["asp", "bsp", "ssp:2", "elastic-bsp:5", "local-sgd:3"] {
        let mut world = World::new(policy, 4, true);
        (0..3).for_each(|_| drop(world.report()));
        let trained = world.samples();
        let number = world.ask();
        assert_eq!(world.work_until_kept(number), RequestedCheckpoint::Complete, "{policy}");
        let kept = world.job().kept_checkpoint(None).unwrap();
        assert!(kept.resume.samples() >= trained, "{policy}");
        assert_eq!((kept.resume.checkpoint, world.has_told("checkpoint_kept")), (number, 1), "{policy}");

        world.report();
        let next = world.ask();
        assert_eq!(world.ask(), next, "{policy}: asked for twice");
        assert_eq!(world.work_until_kept(next), RequestedCheckpoint::Complete, "{policy}");
        assert_eq!((next, world.has_told("checkpoint_kept")), (number + 1, 2), "{policy}");
        while *world.job().phase() == Phase::Running {
            world.report();
        }
        assert_eq!((world.job().phase(), world.samples()), (&Phase::Done, 40), "{policy}");
    }
}

#[test]
fn a_paused_training_has_one_kept_without_workers_and_of_what_is_there_none_is_made_again() {
    let mut train = training("asp".parse().unwrap(), 10, 1);
    (train.epochs, train.checkpoint) = (4, Some(CheckpointSpec::default()));
    let mut world = World::of(train, true);
    (0..3).for_each(|_| drop(world.report()));
    world.give(Input::Pause { job: id(), paused: true });
    while !world.hand.is_empty() {
        world.report();
    }
    assert_eq!(world.job().active().count(), 0);
    for _ in 0..2 {
        let number = world.ask();
        assert_eq!(world.job().requested_checkpoint(number), RequestedCheckpoint::Complete);
        assert_eq!((number, world.has_told("checkpoint_kept")), (0, 1));
    }
    let kept = world.job().kept_checkpoint(None).unwrap();
    assert_eq!(kept.resume.samples(), world.samples());
}

#[test]
fn none_is_made_of_what_is_not_trained_or_cannot_be_kept() {
    let of = |epochs, checkpoint| {
        let mut train = training("asp".parse().unwrap(), 10, 1);
        (train.epochs, train.checkpoint) = (epochs, checkpoint);
        World::of(train, true)
    };
    let fresh = of(4, Some(CheckpointSpec::default()));
    assert_eq!(
        fresh.refusal(&id()),
        "[E638] no checkpoint of job job can be kept now: nothing is trained yet"
    );
    assert_eq!(fresh.refusal(&"other".parse().unwrap()), "[E131] there is no job other");
    let mut none = of(4, None);
    none.report();
    assert_eq!(
        none.refusal(&id()),
        "[E638] no checkpoint of job job can be kept now: its `checkpoint` is \"none\""
    );
    let mut ends = of(1, Some(CheckpointSpec::default()));
    while ends.refusal(&id()).contains("nothing is trained") || ends.refusal(&id()) == "taken" {
        ends.report();
    }
    let near = "its last samples are given out, and its end is near";
    assert_eq!(ends.refusal(&id()), format!("[E638] no checkpoint of job job can be kept now: {near}"));
    let mut lost = of(4, Some(CheckpointSpec::default()));
    lost.report();
    lost.give(Input::ShardGone { shard: ShardIndex(0), reason: "silent".into() });
    assert!(lost.refusal(&id()).contains("it waits for parameter shard s0"), "{}", lost.refusal(&id()));
}

#[test]
fn who_asks_learns_of_a_full_disk_and_of_a_training_that_goes_back_and_may_ask_again() {
    let mut world = World::new("asp", 4, false);
    world.report();
    let full = world.ask();
    while !world.hand.is_empty() {
        world.report();
    }
    world.give(pinned(full, full_disk()));
    assert_eq!(world.work_until_kept(full), RequestedCheckpoint::GivenUp("[E406] no space left".into()));

    let mut world = World::new("asp", 4, true);
    world.rest();
    (0..3).for_each(|_| drop(world.report()));
    world.plane.shell.keeps_files = false;
    let cut_short = world.ask();
    while !world.hand.is_empty() {
        world.report();
    }
    world.plane.shell.keeps_files = true;
    world.crash();
    let gone = RequestedCheckpoint::GivenUp("the training has gone back meanwhile".into());
    assert_eq!(world.job().requested_checkpoint(cut_short), gone);
    world.report();
    let again = world.ask();
    assert_eq!(world.work_until_kept(again), RequestedCheckpoint::Complete);
}

#[test]
fn who_asks_while_another_one_is_written_is_told_when_no_samples_are_left_for_theirs() {
    let mut train = training("asp".parse().unwrap(), 10, 1);
    (train.epochs, train.checkpoint) = (2, Some(CheckpointSpec::default()));
    let mut world = World::of(train, false);
    world.report();
    let first = world.ask();
    while !world.hand.is_empty() {
        world.report();
    }
    world.give(pinned(first, Ok(())));
    world.report();
    let second = world.ask();
    while world.refusal(&id()) == "taken" {
        world.report();
    }
    assert_eq!(world.job().requested_checkpoint(second), RequestedCheckpoint::Pending, "one is written");
    world.give(written(first, Ok(1)));
    assert_eq!(*world.job().phase(), Phase::Running);
    let near = "its last samples are given out, and its end is near";
    assert_eq!(world.job().requested_checkpoint(second), RequestedCheckpoint::GivenUp(near.into()));
}

#[test]
fn that_one_was_asked_for_outlives_the_engine() {
    let mut world = World::new("asp", 4, true);
    world.report();
    let number = world.ask();
    let mut stored = StoredJob::default();
    apply(&mut stored, world.plane.core.full_commit(&id(), world.now_us).unwrap());
    let mut next = Core::new(1);
    next.restore(Job::load(&stored).unwrap());
    assert_eq!(next.job(&id()).unwrap().requested_checkpoint(number), RequestedCheckpoint::Pending);
}
