//! What the evaluations of a training decide: when it ends, and with which parameters.

use std::collections::VecDeque;

use syncline_scheduler::{
    core::{
        Assignment, Blame, Cancellation, Core, Effect, EvaluationSet, EvaluationSums, Input, Job,
        LastWeights, Outcome, Retention, StoredJob, TaskFault, Work,
    },
    fault_code::FaultCode,
    ids::{Incarnation, ShardIndex},
    samples::SamplePosition,
    sim::{training, training_job},
    spec::{
        CheckpointSpec, DataSpec, EarlyStopping, EvaluateSpec, JobSpec, LearningRate, Metric, Node, NodeKind,
        ReduceOnPlateau, ResumeSpec, Split, StepRun, TrainSpec,
    },
};

use crate::{
    cluster::stored::apply,
    world::{POLICIES, World, done, id},
};

const SAMPLES: u64 = 12;

fn evaluates() -> EvaluateSpec {
    EvaluateSpec::every_epochs(1)
}

/// Epochs of 12 samples in batches of one.
fn spec(policy: &str, epochs: u32, evaluate: EvaluateSpec) -> JobSpec {
    let evaluate = Some(evaluate);
    let train = TrainSpec { epochs, evaluate, ..training(policy.parse().unwrap(), SAMPLES, 1) };
    let mut spec = training_job(train);
    spec.id = id("job");
    spec
}

fn change(mut spec: JobSpec, change: impl Fn(&mut TrainSpec)) -> JobSpec {
    for node in &mut spec.nodes {
        if let NodeKind::Train(train) = &mut node.kind {
            change(train);
        }
    }
    spec
}

fn with_node(mut spec: JobSpec, name: &str, kind: NodeKind) -> JobSpec {
    let after = vec![spec.nodes[0].name.clone()];
    spec.nodes.push(Node { name: name.parse().unwrap(), after, retries: 0, kind });
    spec
}

fn validates(train: &mut TrainSpec) {
    let data = train.data.clone();
    train.data = DataSpec { validation_percent: Some(10), split: Split::TestEvery(5), ..data };
}

/// What workers find in their evaluations, one after the other, and which samples they are asked for.
struct Findings<'a> {
    figures: &'a [f64],
    sets: Vec<EvaluationSet>,
    effects: Vec<Effect>,
}

impl<'a> Findings<'a> {
    fn new(figures: &'a [f64]) -> Self {
        Self { figures, sets: Vec::new(), effects: Vec::new() }
    }

    /// Workers end what they have, one after the other, until `stop` or until the job is over.
    fn go_on(&mut self, world: &mut World, stop: impl Fn(&World) -> bool) {
        for _ in 0..1_000 {
            for worker in (1..=2).map(Incarnation) {
                if stop(world) || world.code("job") != "running" {
                    return;
                }
                if world.hands.get(&worker).is_some_and(|hand| !hand.is_empty()) {
                    self.report(world, worker);
                }
            }
            world.now_us += 1_000;
            world.give(Input::Tick);
        }
        panic!("it does not come to that: {:?}", world.job("job").phase());
    }

    fn report(&mut self, world: &mut World, worker: Incarnation) {
        let nth = world.has_told("evaluated");
        let figure = self.figures[nth.min(self.figures.len() - 1)];
        let mut set = None;
        if let Some(Work::Evaluate { part, .. }) = world.hands[&worker].front().map(|task| &task.work) {
            set = Some(part.set).filter(|_| part.index == 0);
        }
        self.sets.extend(set);
        let effects = world.report(worker, |work| match work {
            Work::Evaluate { .. } => {
                let (correct, predictions) = (Some(figure), 1.0);
                let sums = EvaluationSums {
                    samples: 5,
                    loss: figure,
                    weight: 1.0,
                    predictions,
                    correct,
                    ..EvaluationSums::default()
                };
                Outcome::Evaluated(sums)
            }
            _ => done(work),
        });
        self.effects.extend(effects);
    }

    fn run(&mut self, world: &mut World) {
        self.go_on(world, |_| false);
        assert_eq!(world.code("job"), "done");
    }

    /// The checkpoints with which the shards were to begin anew.
    fn restored(&self) -> Vec<Option<u64>> {
        let opened = self.effects.iter().filter_map(|effect| match effect {
            Effect::OpenShards { with, .. } => Some(with.checkpoint()),
            _ => None,
        });
        opened.collect()
    }
}

#[test]
fn what_a_node_evaluates_at_the_end_may_be_the_best() {
    let spec = with_node(spec("bsp", 3, evaluates()), "test", NodeKind::Evaluate);
    for (figures, samples, loss) in [([3.0, 2.0, 1.0], "36", "1.000000"), ([3.0, 2.0, 2.5], "24", "2.000000")]
    {
        let mut world = World::of(spec.clone(), 2);
        Findings::new(&figures).run(&mut world);
        let field = summary(&mut world);
        assert_eq!((&*field("best_samples"), &*field("best_loss")), (samples, loss));
        assert!(field("best_ms").parse::<u64>().is_ok_and(|ms| ms > 0));
    }
}

#[test]
fn what_a_node_evaluates_again_is_no_second_point_of_the_curve() {
    let stops = evaluates().early_stopping(EarlyStopping::patience(1));
    let cases: [(&str, EvaluateSpec, &[f64], &[&str]); 4] = [
        ("the best is handed on", evaluates().keep_best(), &[3.0, 1.0, 2.0], &["12", "24", "36"]),
        ("the last is the best", evaluates().keep_best(), &[3.0, 2.0, 1.0], &["12", "24", "36"]),
        ("the last one ended it", stops, &[1.0, 2.0], &["12", "24"]),
        ("the node evaluates the end", evaluates(), &[3.0, 2.0, 1.0], &["12", "24", "36"]),
    ];
    for (name, evaluate, figures, after) in cases {
        let mut world = World::of(with_node(spec("bsp", 3, evaluate), "test", NodeKind::Evaluate), 2);
        Findings::new(figures).run(&mut world);
        assert_eq!(world.plane.shell.evaluated_after, after, "{name}");
    }
    let spec = change(spec("bsp", 2, evaluates().keep_best()), validates);
    let mut world = World::of(with_node(spec, "test", NodeKind::Evaluate), 2);
    Findings::new(&[1.0, 2.0]).run(&mut world);
    let per_epoch = world.job("job").counters().samples_done / 2;
    let after = [per_epoch, 2 * per_epoch, per_epoch].map(|samples| samples.to_string());
    assert_eq!(world.plane.shell.evaluated_after, after, "other samples than those that decided");
}

fn summary(world: &mut World) -> impl Fn(&str) -> String {
    let now_us = world.now_us;
    let fields = world.plane.core.full_commit(&id("job"), now_us).unwrap().summary;
    move |wanted| {
        fields.iter().find(|(name, _)| *name == wanted).map(|(_, text)| text.clone()).unwrap_or_default()
    }
}

#[test]
fn a_training_hands_on_the_parameters_of_its_best_evaluation_and_counts_all_that_it_did() {
    for policy in POLICIES {
        let mut world = World::of(spec(policy, 4, evaluates().keep_best()), 2);
        let mut findings = Findings::new(&[3.0, 1.0, 2.0, 1.5]);
        findings.run(&mut world);
        assert_eq!(findings.restored(), [Some(1)], "{policy}");
        assert_eq!(world.job("job").counters().samples_done, 4 * SAMPLES, "{policy}");
        assert_eq!(world.plane.server.shards[0].pushes(), 2 * SAMPLES, "{policy}: those of the second epoch");
        let kept = world.job("job").which_barriers_are_kept();
        let want = "; it went back to the best parameters, those of checkpoint 1, and keeps none of before";
        assert_eq!(kept, want, "{policy}");
        assert_eq!(world.has_told("evaluated"), 4, "{policy}");
        let field = summary(&mut world);
        let told = ["best_samples", "best_loss", "handed_on", "test_loss", "stopped_early"].map(&field);
        assert_eq!(told, ["24", "1.000000", "best", "1.000000", ""], "{policy}");
        assert_eq!(field("iterations_rolled_back"), "0", "{policy}");
    }
}

#[test]
fn parameters_that_are_the_best_when_training_ends_stay_where_they_are() {
    let mut world = World::of(spec("bsp", 3, evaluates().keep_best()), 2);
    let mut findings = Findings::new(&[3.0, 2.0, 1.0]);
    findings.run(&mut world);
    assert_eq!(findings.restored(), []);
    assert_eq!(summary(&mut world)("handed_on"), "last");
}

#[test]
fn the_first_of_several_that_are_as_good_is_handed_on() {
    let mut world = World::of(spec("bsp", 3, evaluates().keep_best().monitor(Metric::Accuracy)), 2);
    let mut findings = Findings::new(&[0.5, 0.75, 0.75]);
    findings.run(&mut world);
    assert_eq!(findings.restored(), [Some(1)]);
    assert_eq!(summary(&mut world)("best_accuracy"), "0.750000");
}

#[test]
fn the_shards_keep_the_best_and_as_many_of_the_newest_as_the_job_asks_for() {
    for (checkpoint, want) in
        [(None, vec![0]), (Some(CheckpointSpec::every_epochs(1).keep(2)), vec![0, 3, 4])]
    {
        let spec = change(spec("bsp", 6, evaluates().keep_best()), |train| train.checkpoint = checkpoint);
        let mut world = World::of(spec, 2);
        let mut findings = Findings::new(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        findings.go_on(&mut world, |world| world.has_told("evaluated") == 5);
        // Until then Redis may go back to where it knew any of the others.
        world.now_us += 5_000_000;
        let effects = world.give(Input::Tick);
        assert_eq!(world.job("job").checkpoint_numbers(), want);
        let kept = findings.effects.iter().chain(&effects).rev().find_map(|effect| match effect {
            Effect::RetainCheckpoints { retention: Retention::Thin { keep, .. }, .. } => Some(keep.clone()),
            _ => None,
        });
        assert_eq!(kept, Some(want));
    }
}

#[test]
fn training_stops_when_it_has_not_become_better_for_as_long_as_it_may() {
    for policy in POLICIES {
        let mut world = World::of(spec(policy, 9, evaluates().early_stopping(EarlyStopping::patience(2))), 2);
        let mut findings = Findings::new(&[3.0, 1.0, 1.0, 2.0, 0.0]);
        findings.run(&mut world);
        assert_eq!(world.job("job").counters().samples_done, 4 * SAMPLES, "{policy}");
        assert_eq!((world.has_told("evaluated"), world.has_told("stopped_early")), (4, 1), "{policy}");
        let field = summary(&mut world);
        let why = "the test loss has not become better in the last 2 evaluations";
        assert_eq!((field("stopped_early").as_str(), field("handed_on").as_str()), (why, "last"), "{policy}");
        assert_eq!(findings.restored(), [], "{policy}: nobody asked for the best");
    }
}

#[test]
fn the_learning_rate_falls_where_training_does_not_become_better() {
    for policy in POLICIES {
        let reduce = ReduceOnPlateau::patience(1).factor(0.5).min_learning_rate(0.03);
        let mut spec = spec(policy, 6, evaluates().reduce_on_plateau(reduce));
        spec = change(spec, |train| train.learning_rate = LearningRate::constant(0.1));
        let mut world = World::of(spec, 2);
        // The third, fourth and last epoch bring nothing better; the bound is reached before.
        let mut findings = Findings::new(&[3.0, 1.0, 1.0, 2.0, 0.5, 0.5]);
        findings.go_on(&mut world, |world| world.has_told("evaluated") == 3);
        assert_eq!(summary(&mut world)("reduced_learning_rate"), "0.05", "{policy}");
        let mut stored = StoredJob::default();
        apply(&mut stored, world.plane.core.full_commit(&id("job"), world.now_us).unwrap());
        assert!(Job::load(&stored).unwrap() == *world.job("job"), "{policy}: another engine knows it");
        findings.run(&mut world);
        assert_eq!(world.has_told("learning_rate_reduced"), 2, "{policy}");
        assert_eq!(summary(&mut world)("reduced_learning_rate"), "0.03", "{policy}");
        let mut rates: Vec<f32> = findings.effects.iter().filter_map(rate_of).collect();
        rates.dedup();
        assert_eq!(rates, [0.1, 0.05, 0.03], "{policy}");
    }
}

#[test]
fn a_training_that_goes_on_has_the_rate_that_was_reached_unless_its_settings_have_another() {
    let of_rate = |rate: f32| {
        move |train: &mut TrainSpec| {
            train.checkpoint = Some(CheckpointSpec::every_epochs(1));
            train.learning_rate = LearningRate::constant(rate);
        }
    };
    let reduce = ReduceOnPlateau::patience(1).factor(0.5);
    let reduces = evaluates().reduce_on_plateau(reduce.min_learning_rate(0.04));
    let mut before = World::of(change(spec("bsp", 6, reduces), of_rate(0.1)), 2);
    Findings::new(&[1.0, 2.0, 2.0]).go_on(&mut before, |world| world.has_told("evaluated") == 3);
    assert_eq!(summary(&mut before)("reduced_learning_rate"), "0.04");
    let checkpoint_of = |world: &World| world.job("job").kept_checkpoint(None).unwrap().resume;
    let kept = checkpoint_of(&before);

    // The first rate of a training that goes on with this, and what people are told of it.
    let begin = |evaluate: Option<EvaluateSpec>, rate: f32, kept: &ResumeSpec| {
        let spec = change(spec("bsp", 9, evaluates()), |train| {
            of_rate(rate)(train);
            train.evaluate = evaluate;
            let (elements, steps) = (train.model.layout.trained_elements(), kept.iterations);
            train.resume = Some(ResumeSpec { steps: vec![StepRun { elements, steps }], ..kept.clone() });
        });
        let mut world = World::of(spec, 2);
        let mut findings = Findings::new(&[3.0]);
        findings.go_on(&mut world, |world| world.job("job").counters().samples_done > kept.samples() + 2);
        let rate = findings.effects.iter().find_map(rate_of).unwrap();
        let told = world.plane.shell.summaries[&id("job")].get("reduced_learning_rate").cloned();
        let evaluated = usize::from(evaluate.is_some());
        findings.go_on(&mut world, |world| {
            world.has_told("checkpoint_kept") == 1 && world.has_told("evaluated") == evaluated
        });
        (rate, told.unwrap_or_default(), world)
    };
    let by_loss = |reduce| Some(evaluates().reduce_on_plateau(reduce));
    let by_accuracy = Some(evaluates().monitor(Metric::Accuracy));
    #[rustfmt::skip]
    let cases = [
        ("the same settings",     Some(reduces),                 0.1,  0.04, "0.04"),
        ("another factor",        by_loss(reduce.factor(0.1)),   0.1,  0.04, "0.04"),
        ("no more reductions",    Some(evaluates()),             0.1,  0.04, "0.04"),
        ("another figure",        by_accuracy,                   0.1,  0.04, "0.04"),
        ("no evaluations",        None,                          0.1,  0.04, "0.04"),
        ("another rate",          Some(reduces),                 0.08, 0.08, ""),
    ];
    for (name, evaluate, rate, want, shown) in cases {
        let (got, told, mut world) = begin(evaluate, rate, &kept);
        assert_eq!((got, told.as_str()), (want, shown), "{name}");
        // And one that goes on with that one, at the first rate.
        let (got, ..) = begin(Some(reduces), 0.1, &checkpoint_of(&world));
        assert_eq!(got, if rate == 0.1 { 0.04 } else { 0.1 }, "{name}: once more");
        // Its own plateaus reduce it from there.
        if evaluate.is_some_and(|spec| spec.reduce_on_plateau.is_some_and(|reduce| reduce.factor == 0.1)) {
            let mut findings = Findings::new(&[3.0]);
            findings.go_on(&mut world, |world| world.has_told("learning_rate_reduced") == 1);
            assert_eq!(summary(&mut world)("reduced_learning_rate"), "0.004", "{name}");
        }
    }
}

/// The learning rate that a worker is told, where it trains.
fn rate_of(effect: &Effect) -> Option<f32> {
    let Effect::Assign { assignment, .. } = effect else { return None };
    match assignment.work {
        Work::Iterate { learning_rate, .. } => Some(learning_rate),
        Work::Prepare { .. } | Work::Evaluate { .. } => None,
    }
}

#[test]
fn a_training_that_stops_early_hands_on_its_best_parameters_where_it_is_asked_to() {
    let mut world = World::of(
        spec("elastic-bsp:4", 9, evaluates().early_stopping(EarlyStopping::patience(2)).keep_best()),
        2,
    );
    let mut findings = Findings::new(&[3.0, 1.0, 1.5, 2.0, 0.0]);
    findings.run(&mut world);
    assert_eq!(findings.restored(), [Some(1)]);
    assert_eq!(world.plane.server.shards[0].pushes(), 2 * SAMPLES);
}

#[test]
fn with_validation_samples_the_test_samples_have_one_turn_at_the_end_with_what_is_handed_on() {
    let spec = change(spec("bsp", 3, evaluates().keep_best()), validates);
    let mut world = World::of(spec, 2);
    let mut findings = Findings::new(&[3.0, 1.0, 2.0, 7.0]);
    findings.run(&mut world);
    let validation = EvaluationSet::Validation;
    assert_eq!(findings.sets, [validation, validation, validation, EvaluationSet::Test]);
    let order = ["best_restored", "evaluated", "trained"]
        .map(|what| world.plane.shell.events.iter().rposition(|event| event == what).unwrap());
    assert!(order.is_sorted(), "{:?}", world.plane.shell.events);
    let field = summary(&mut world);
    let told = ["validation_loss", "best_loss", "test_loss", "monitor"].map(field);
    assert_eq!(told, ["1.000000", "1.000000", "7.000000", "validation loss"]);
}

#[test]
fn a_node_that_evaluates_takes_the_place_of_the_test_at_the_end() {
    let spec = change(spec("bsp", 2, evaluates()), validates);
    let mut world = World::of(with_node(spec, "test", NodeKind::Evaluate), 2);
    let mut findings = Findings::new(&[2.0, 1.0, 7.0]);
    findings.run(&mut world);
    let validation = EvaluationSet::Validation;
    assert_eq!(findings.sets, [validation, validation, EvaluationSet::Test]);
    assert_eq!(summary(&mut world)("test_loss"), "7.000000");
}

#[test]
fn without_test_samples_there_is_no_test_at_the_end() {
    let spec = change(spec("bsp", 2, evaluates()), |train| train.data.validation_percent = Some(10));
    let mut world = World::of(spec, 2);
    let mut findings = Findings::new(&[2.0, 1.0]);
    findings.run(&mut world);
    assert_eq!(findings.sets, [EvaluationSet::Validation; 2]);
}

#[test]
fn a_test_at_the_end_that_fails_ends_nothing_else() {
    let spec = change(spec("bsp", 2, evaluates()), validates);
    let mut world = World::of(spec, 2);
    let mut findings = Findings::new(&[2.0, 1.0]);
    let tests = |world: &World| {
        let work = world.hands.values().flatten().map(|task| &task.work);
        work.clone()
            .any(|work| matches!(work, Work::Evaluate { part, .. } if part.set == EvaluationSet::Test))
    };
    findings.go_on(&mut world, tests);
    let failed = |_: &Work| Outcome::Failed {
        code: FaultCode::new("E327"),
        reason: "as it should".into(),
        blame: Blame::Worker,
    };
    // Each part that fails goes to the other worker, and back, and then to nobody.
    let has_test = |hand: &VecDeque<Assignment>| {
        hand.front().is_some_and(
            |task| matches!(&task.work, Work::Evaluate { part, .. } if part.set == EvaluationSet::Test),
        )
    };
    while world.has_told("evaluation_failed") == 0 {
        let worker = *world.hands.iter().find(|(_, hand)| has_test(hand)).expect("somebody has a part").0;
        world.report(worker, failed);
    }
    assert_eq!((world.code("job").as_str(), world.has_told("evaluation_failed")), ("done", 1));
    assert_eq!(world.has_told("attempt_failed"), 3, "one of them twice, the other once");
}

/// The shard cannot write what it copied.
fn cannot_write(world: &mut World, number: u64) -> Vec<Effect> {
    let (run, shard) = (world.job("job").run(), ShardIndex(0));
    let reason = "[E406] the disk is full".to_owned();
    let outcome = Err(TaskFault { code: FaultCode::new("E406"), reason });
    world.give(Input::CheckpointWritten { run, number, shard, outcome })
}

#[test]
fn a_best_that_the_shards_could_not_write_is_not_handed_on_and_one_that_they_could_is() {
    let mut world = World::of(spec("bsp", 4, evaluates().keep_best()), 2);
    let mut findings = Findings::new(&[2.0, 1.0, 3.0, 4.0]);
    findings.go_on(&mut world, |world| world.has_told("evaluated") == 1);
    world.plane.shell.holds_files = true;
    findings.go_on(&mut world, |world| world.has_told("evaluated") == 2);
    cannot_write(&mut world, 1);
    world.plane.shell.holds_files = false;
    findings.run(&mut world);
    assert_eq!(findings.restored(), [Some(0)], "the second best, which is better than the last");
    let field = summary(&mut world);
    let told = ["best_samples", "best_loss", "handed_on", "test_loss"].map(&field);
    assert_eq!(told, ["12", "2.000000", "best", "2.000000"], "what is shown is what is handed on");
    let why =
        "the parameters after 24 samples (test loss 1.000000) could not be kept: [E406] the disk is full";
    assert_eq!(field("best_lost"), why);
}

#[test]
fn a_best_that_could_not_be_kept_is_said_to_be_lost_until_another_evaluation_is_better() {
    let mut world = World::of(spec("bsp", 5, evaluates().keep_best()), 2);
    let mut findings = Findings::new(&[2.0, 1.0, 3.0, 0.5, 4.0]);
    findings.go_on(&mut world, |world| world.has_told("evaluated") == 1);
    world.plane.shell.holds_files = true;
    findings.go_on(&mut world, |world| world.has_told("evaluated") == 2);
    assert_eq!(summary(&mut world)("best_lost"), "", "it may be kept yet");
    cannot_write(&mut world, 1);
    world.plane.shell.holds_files = false;
    findings.go_on(&mut world, |world| world.has_told("evaluated") == 3);
    let told = ["best_loss", "best_checkpoint"].map(summary(&mut world));
    assert_eq!(told, ["1.000000", "0"]);
    assert!(!summary(&mut world)("best_lost").is_empty());
    findings.run(&mut world);
    let told = ["best_samples", "best_loss", "best_lost"].map(summary(&mut world));
    assert_eq!(told, ["48", "0.500000", ""]);
}

#[test]
fn training_waits_with_what_is_better_until_the_shards_have_written_what_they_copied_before() {
    let mut world = World::of(spec("bsp", 4, evaluates().keep_best()), 2);
    world.plane.shell.holds_files = true;
    let mut findings = Findings::new(&[2.0, 1.0, 3.0, 4.0]);
    findings.go_on(&mut world, |world| world.has_told("evaluated") == 2);
    assert!(world.hands.values().all(|hand| hand.is_empty()), "nobody trains on");
    world.give(Input::Tick);
    assert_eq!(
        summary(&mut world)("waiting_for"),
        "the shards, which are to keep the best parameters so far"
    );
    let (run, shard) = (world.job("job").run(), ShardIndex(0));
    let outcome = Ok(1);
    let effects = world.give(Input::CheckpointWritten { run, number: 0, shard, outcome });
    assert!(
        effects.iter().any(|effect| matches!(effect, Effect::PinCheckpoint { number: 1, .. })),
        "{effects:?}"
    );
    assert!(world.hands.values().any(|hand| !hand.is_empty()), "all train on");
}

/// The shard comes back with what is on its disk, and says so.
fn crash(world: &mut World) -> Vec<Effect> {
    world.plane.server.shards[0].crash();
    world.hands.clear();
    let asked_us = world.now_us + 1;
    world.now_us += 2;
    world.give(Input::ShardHolds { shard: ShardIndex(0), asked_us, held: vec![] })
}

#[test]
fn a_shard_that_is_lost_before_the_end_brings_the_training_back_to_its_best_and_to_what_it_knew_then() {
    let mut world =
        World::of(spec("bsp", 6, evaluates().keep_best().early_stopping(EarlyStopping::patience(3))), 2);
    let mut findings = Findings::new(&[2.0, 1.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    findings.go_on(&mut world, |world| world.has_told("evaluated") == 4);
    crash(&mut world);
    assert_eq!(world.job("job").counters().samples_done, 2 * SAMPLES, "though nobody asked for checkpoints");
    findings.run(&mut world);
    assert_eq!(world.job("job").counters().samples_done, 5 * SAMPLES, "patience counts from there");
    assert_eq!(summary(&mut world)("best_samples"), "24");
}

/// The evaluation stops the training behind the checkpoint of the same samples.
#[test]
fn a_shard_that_is_lost_after_an_early_stop_does_not_make_the_training_go_on() {
    for policy in POLICIES {
        let checkpoint = Some(CheckpointSpec::every_epochs(1).keep(2));
        let spec = change(spec(policy, 9, evaluates().early_stopping(EarlyStopping::patience(2))), |train| {
            train.checkpoint = checkpoint
        });
        let mut world = World::of(with_node(spec, "test", NodeKind::Evaluate), 2);
        let mut findings = Findings::new(&[1.0, 2.0, 3.0]);
        findings.go_on(&mut world, |world| world.has_told("trained") == 1);
        assert_eq!(opened(&crash(&mut world)), Some(2), "{policy}");
        findings.run(&mut world);
        assert_eq!(world.job("job").counters().samples_done, 3 * SAMPLES, "{policy}");
        assert_eq!(world.has_told("stopped_early"), 1, "{policy}");
    }
}

/// Two workers, three epochs of which the first is evaluated best, and a snapshot of what is handed on.
fn best_at_first(policy: &str) -> (World, Findings<'static>) {
    let spec = with_node(spec(policy, 3, evaluates().keep_best()), "save", NodeKind::Snapshot);
    (World::of(spec, 2), Findings::new(&[1.0, 2.0, 3.0]))
}

#[test]
fn a_shard_that_is_lost_behind_the_training_brings_the_best_back_and_undoes_nothing() {
    let (mut world, mut findings) = best_at_first("bsp");
    findings.go_on(&mut world, |world| world.has_told("trained") == 1);
    let effects = crash(&mut world);
    assert_eq!(opened(&effects), Some(0));
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Snapshot { .. })), "it is written anew");
    assert_eq!(world.plane.server.shards[0].pushes(), SAMPLES);
    assert_eq!(world.job("job").counters().samples_done, 3 * SAMPLES);
    assert_eq!((world.has_told("rolled_back"), world.has_told("best_restored")), (0, 2));
    assert_eq!(summary(&mut world)("test_loss"), "1.000000");
}

#[test]
fn a_shard_that_is_lost_behind_the_training_costs_no_figure_of_its_last_evaluation() {
    let with_snapshot = with_node(spec("bsp", 2, evaluates()), "save", NodeKind::Snapshot);
    let keeps = |train: &mut TrainSpec| train.checkpoint = Some(CheckpointSpec::every_s(60));
    for (spec, field) in [
        (change(with_snapshot.clone(), keeps), "test_loss"),
        (change(change(with_snapshot, keeps), validates), "validation_loss"),
    ] {
        let mut world = World::of(spec, 2);
        let mut findings = Findings::new(&[2.0, 1.0]);
        findings.go_on(&mut world, |world| world.has_told("trained") == 1);
        let effects = crash(&mut world);
        assert!(effects.iter().any(|effect| matches!(effect, Effect::OpenShards { .. })), "{field}");
        assert_eq!(summary(&mut world)(field), "1.000000");
    }
}

/// A shard cannot read the checkpoint that it was told to open.
fn cannot_read(world: &mut World) -> Vec<Effect> {
    let run = world.job("job").run();
    let (code, reason) = (FaultCode::new("E439"), "[E439] its digest is another".to_owned());
    world.hands.clear();
    world.give(Input::ShardFailed { run, code, reason })
}

fn opened(effects: &[Effect]) -> Option<u64> {
    effects.iter().find_map(|effect| match effect {
        Effect::OpenShards { with, .. } => with.checkpoint(),
        _ => None,
    })
}

#[test]
fn where_the_best_parameters_cannot_be_read_the_last_ones_are_handed_on() {
    for policy in POLICIES {
        let (mut world, mut findings) = best_at_first(policy);
        findings.go_on(&mut world, |world| world.has_told("best_restored") == 1);
        assert_eq!(world.job("job").checkpoint_numbers(), [0, 1], "{policy}: the best, and the last");
        let effects = cannot_read(&mut world);
        assert_eq!(opened(&effects), Some(1), "{policy}");
        assert_eq!(world.plane.server.shards[0].pushes(), 3 * SAMPLES, "{policy}: nothing is undone");
        assert_eq!(world.job("job").counters().samples_done, 3 * SAMPLES, "{policy}");
        let told = ["best_unreadable", "rolled_back", "trained"].map(|what| world.has_told(what));
        assert_eq!(told[..2], [1, 0], "{policy}");
        assert!(told[2] > 0, "{policy}: what follows goes on");
        let field = summary(&mut world);
        assert_eq!([field("handed_on"), field("test_loss")], ["last", "3.000000"], "{policy}");
        let why = "the parameters after 12 samples (test loss 1.000000) could not be read: [E439] its digest is another";
        assert_eq!([field("best_samples"), field("best_lost")], ["12", why], "{policy}");
    }
}

#[test]
fn what_is_handed_on_in_place_of_unreadable_parameters_is_tested_anew() {
    let spec = change(spec("bsp", 3, evaluates().keep_best()), validates);
    let mut world = World::of(with_node(spec, "save", NodeKind::Snapshot), 2);
    let mut findings = Findings::new(&[1.0, 2.0, 3.0, 7.0, 8.0]);
    findings.go_on(&mut world, |world| world.has_told("trained") == 1);
    cannot_read(&mut world);
    findings.go_on(&mut world, |world| world.has_told("trained") == 2);
    let told = ["handed_on", "validation_loss", "test_loss"].map(summary(&mut world));
    assert_eq!(told, ["last", "3.000000", "8.000000"]);
}

#[test]
fn where_the_best_parameters_cannot_be_read_the_second_best_are_handed_on_before_the_last_ones() {
    let checkpoint = Some(CheckpointSpec::every_epochs(1).keep(3));
    let spec = change(spec("bsp", 4, evaluates().keep_best()), |train| train.checkpoint = checkpoint);
    let mut world = World::of(with_node(spec, "save", NodeKind::Snapshot), 2);
    let mut findings = Findings::new(&[1.0, 2.0, 3.0, 4.0]);
    findings.go_on(&mut world, |world| world.has_told("best_restored") == 1);
    let opens: Vec<_> = (0..3).map(|_| opened(&cannot_read(&mut world))).collect();
    assert_eq!(opens, [Some(1), Some(2), Some(3)], "one after the other, and then the last ones");
    assert_eq!(world.job("job").counters().samples_done, 4 * SAMPLES);
    assert_eq!((world.has_told("best_restored"), world.has_told("best_unreadable")), (3, 3));
}

#[test]
fn a_shard_that_is_lost_while_it_writes_the_last_parameters_undoes_nothing() {
    let (mut world, mut findings) = best_at_first("bsp");
    findings.go_on(&mut world, |world| world.has_told("evaluated") == 2);
    world.plane.shell.holds_files = true;
    findings.go_on(&mut world, |world| world.has_told("evaluated") == 3);
    assert_eq!(opened(&crash(&mut world)), Some(0));
    assert_eq!(world.job("job").counters().samples_done, 3 * SAMPLES);
    assert_eq!(summary(&mut world)("handed_on"), "best");
}

#[test]
fn the_best_are_handed_on_also_where_the_disk_has_no_room_for_the_last_ones_beside_them() {
    let (mut world, mut findings) = best_at_first("bsp");
    findings.go_on(&mut world, |world| world.has_told("evaluated") == 2);
    world.plane.shell.holds_files = true;
    findings.go_on(&mut world, |world| world.has_told("evaluated") == 3);
    world.give(Input::Tick);
    let waits = "the shards, which write the last parameters before they go back to the best";
    assert_eq!(summary(&mut world)("waiting_for"), waits);
    let effects = cannot_write(&mut world, 1);
    assert_eq!(opened(&effects), Some(0));
    cannot_read(&mut world);
    assert_eq!(world.code("job"), "E439", "both are gone");
}

#[test]
fn another_engine_knows_what_was_best_and_how_long_nothing_was_better() {
    let mut world = World::of(
        spec("elastic-bsp:4", 9, evaluates().keep_best().early_stopping(EarlyStopping::patience(3))),
        2,
    );
    let mut findings = Findings::new(&[2.0, 1.0, 3.0, 4.0]);
    findings.go_on(&mut world, |world| world.has_told("evaluated") == 4);
    let mut stored = StoredJob::default();
    apply(&mut stored, world.plane.core.full_commit(&id("job"), world.now_us).unwrap());
    let loaded = Job::load(&stored).unwrap();
    assert!(loaded == *world.job("job"));
    Core::new(1).restore(loaded);
}

#[test]
fn a_training_that_is_canceled_keeps_its_last_parameters_and_the_checkpoint_of_its_best() {
    let mut world = World::of(spec("bsp", 9, evaluates().keep_best()), 2);
    let mut findings = Findings::new(&[1.0, 2.0]);
    findings.go_on(&mut world, |world| world.has_told("evaluated") == 2);
    let effects =
        world.give(Input::Cancel(Cancellation { job: id("job").into(), reason: String::new(), grace_ms: 0 }));
    assert!(
        effects.iter().any(|effect| matches!(effect, Effect::CloseShards { weights: LastWeights::Keep, .. }))
    );
    assert_eq!(world.job("job").checkpoint_numbers(), [0]);
    assert_eq!(summary(&mut world)("best_checkpoint"), "0");
}

#[test]
fn a_validation_part_that_nothing_evaluates_on_is_refused() {
    let spec = change(spec("bsp", 2, evaluates()), |train| {
        validates(train);
        train.evaluate = None;
    });
    let refused = spec.validate().unwrap_err().to_string();
    assert!(refused.starts_with("[E027] job job: the data has a validation set"), "{refused}");
}

#[test]
fn an_evaluation_that_was_under_way_when_a_shard_was_lost_is_made_up_for() {
    let checkpoints = |train: &mut TrainSpec| train.checkpoint = Some(CheckpointSpec::every_epochs(1));
    let mut world = World::of(change(spec("bsp", 3, evaluates().keep_best()), checkpoints), 2);
    let mut findings = Findings::new(&[1.0, 2.0, 3.0]);
    let evaluates = |task: &Assignment| matches!(task.work, Work::Evaluate { .. });
    findings.go_on(&mut world, |world| {
        world.has_told("checkpoint_kept") == 1 && world.hands.values().flatten().any(evaluates)
    });
    world.plane.server.shards[0].crash();
    let (shard, asked_us) = (ShardIndex(0), world.now_us);
    world.give(Input::ShardHolds { shard, asked_us, held: Vec::new() });
    let run = world.job("job").run();
    world.hands.values_mut().for_each(|hand| hand.retain(|task| task.key.run == run));
    assert_eq!((world.has_told("rolled_back"), world.has_told("evaluated")), (1, 0));
    findings.run(&mut world);
    assert_eq!(world.has_told("evaluated"), 3, "one for each epoch");
    assert_eq!(summary(&mut world)("best_samples"), "12");
    assert_eq!(findings.restored(), [Some(0)], "as the best in the end");
}

#[test]
fn an_evaluation_that_was_under_way_is_not_made_up_for_where_a_job_goes_back_to_before_it_was_due() {
    let checkpoints = |train: &mut TrainSpec| train.checkpoint = Some(CheckpointSpec::every_epochs(1));
    for (evaluate, waits, evaluated) in [
        (EvaluateSpec::every_epochs(2), "an evaluation: 2 workers still compute", 2),
        (EvaluateSpec::every_s(60), "an evaluation: all come to rest", 1),
    ] {
        let mut world = World::of(
            change(spec("bsp", 4, evaluate.early_stopping(EarlyStopping::patience(1))), checkpoints),
            2,
        );
        let mut findings = Findings::new(&[2.0, 1.0]);
        findings.go_on(&mut world, |world| world.has_told("checkpoint_kept") == 1);
        let samples_done = |world: &World| world.job("job").counters().samples_done;
        let kept = samples_done(&world);
        world.plane.shell.holds_files = true;
        findings.go_on(&mut world, |world| samples_done(world) > kept);
        world.now_us += 60_000_000;
        world.give(Input::Tick);
        let waiting_for = |world: &World| world.plane.shell.summaries[&id("job")]["waiting_for"].clone();
        findings.go_on(&mut world, |world| waiting_for(world).starts_with(waits));
        world.plane.shell.holds_files = false;
        crash(&mut world);
        assert_eq!(samples_done(&world), kept, "{waits}");
        findings.run(&mut world);
        let told = ["evaluated", "stopped_early"].map(|what| world.has_told(what));
        assert_eq!(told, [evaluated, 0], "{waits}");
    }
}

#[test]
fn a_training_that_goes_on_knows_the_best_before_and_says_that_its_parameters_stay_behind() {
    let checkpoints = |train: &mut TrainSpec| train.checkpoint = Some(CheckpointSpec::every_epochs(1));
    let mut before = World::of(
        change(
            spec("bsp", 3, evaluates().keep_best().early_stopping(EarlyStopping::patience(3))),
            checkpoints,
        ),
        2,
    );
    Findings::new(&[1.0, 2.0]).go_on(&mut before, |world| world.has_told("evaluated") == 2);
    let kept = before.job("job").kept_checkpoint(None).unwrap();
    let told = kept.resume.evaluations.unwrap();
    assert_eq!((told.best, told.best_samples, told.best_checkpoint, told.waited), (1.0, 12, Some(0), 1));

    let longer = |train: &mut TrainSpec| {
        let (elements, steps) = (train.model.layout.trained_elements(), kept.resume.iterations);
        train.resume = Some(ResumeSpec { steps: vec![StepRun { elements, steps }], ..kept.resume.clone() });
    };
    let mut world = World::of(
        change(spec("bsp", 9, evaluates().keep_best().early_stopping(EarlyStopping::patience(3))), longer),
        2,
    );
    let mut findings = Findings::new(&[3.0, 4.0]);
    findings.run(&mut world);
    assert_eq!(world.has_told("evaluated"), 2, "one of the three that it may wait had been waited");
    let field = summary(&mut world);
    assert_eq!(["best_samples", "best_loss", "handed_on"].map(&field), ["36", "3.000000", "best"]);
    let lost = field("best_lost");
    assert!(lost.contains("checkpoint 0 of job job"), "{lost}");
}

#[test]
fn a_training_that_goes_on_first_evaluates_the_end_of_an_epoch_that_was_kept_and_not_evaluated() {
    let checkpoints = |train: &mut TrainSpec| train.checkpoint = Some(CheckpointSpec::every_epochs(1));
    let mut before = World::of(change(spec("bsp", 3, evaluates().keep_best()), checkpoints), 2);
    Findings::new(&[1.0]).go_on(&mut before, |world| world.has_told("checkpoint_kept") == 1);
    let kept = before.job("job").kept_checkpoint(None).unwrap();
    assert_eq!((before.has_told("evaluated"), kept.resume.samples()), (0, 12), "it is under way");

    let going_on = |evaluate: EvaluateSpec, samples: u64| {
        let longer = |train: &mut TrainSpec| {
            let elements = train.model.layout.trained_elements();
            let position = SamplePosition { epoch: 1, next: samples - 12, returned: Vec::new() };
            let steps = vec![StepRun { elements, steps: samples }];
            train.resume = Some(ResumeSpec { position, iterations: samples, steps, ..kept.resume.clone() });
            train.checkpoint = Some(CheckpointSpec::every_s(3_600));
        };
        World::of(change(spec("bsp", 3, evaluate), longer), 2)
    };
    for (samples, evaluated, best) in [(12, 3, "12"), (18, 2, "24")] {
        let mut world = going_on(evaluates().keep_best(), samples);
        Findings::new(&[1.0, 2.0, 3.0]).run(&mut world);
        let best_samples = summary(&mut world)("best_samples");
        assert_eq!((world.has_told("evaluated"), &*best_samples), (evaluated, best), "from {samples}");
    }
    // And once more where it goes back to there.
    let mut world = going_on(evaluates(), 12);
    let mut findings = Findings::new(&[1.0]);
    findings.go_on(&mut world, |world| world.has_told("evaluated") == 1);
    crash(&mut world);
    findings.run(&mut world);
    assert_eq!(world.has_told("evaluated"), 4);
}
