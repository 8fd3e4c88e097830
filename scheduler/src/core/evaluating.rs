//! Evaluations while a training runs: it comes to rest as for a checkpoint, the workers that take part share
//! the validation samples, or the test samples where there are no others, and train on when the last of them
//! is done.
//!
//! An evaluation is of exactly what is counted, and costs as much time as its slowest part. A part that a
//! worker failed at, or was lost with, goes to another one a few times; then the evaluation is left out: the
//! training does not depend on it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{
    best_parameters::HandedOn,
    effects::Effect,
    evaluation::{EvaluationPart, EvaluationSet, EvaluationSums},
    evaluation_watch::EvaluationWatch,
    job::Job,
    lost_best::LostBest,
    records::{Task, TaskBody},
    series::SeriesSampling,
    turn::Turn,
};
use crate::{
    graph::{Holder, TaskEvent, TaskId, TrainingTaskState},
    ids::Incarnation,
    spec::{EvaluateSpec, NodeKind, TrainSpec},
};

/// An evaluation that is due.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum EvaluationPhase {
    /// Nothing more is granted until everything that is has ended.
    Resting,
    /// Workers compute it. `open`: parts that are not done.
    Computing {
        open: u32,
        sums: EvaluationSums,
        #[serde(default)]
        set: EvaluationSet,
        /// Workers that have failed at a part of it: others come first.
        #[serde(default)]
        failed_at: BTreeSet<Incarnation>,
    },
    /// It was the best so far, and the shards are to keep what it was of before anything changes.
    Keeping,
}

/// The evaluations of one job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluations {
    /// Number of the next one: none comes twice, whatever is rolled back.
    pub(super) next: u64,
    /// How long the job had trained when the last one was begun, and what was counted then; before the first,
    /// when training began.
    #[serde(default)]
    last_trained_us: u64,
    /// How long it had trained when the last worker left, where nobody takes part.
    #[serde(default)]
    absent_since_us: Option<u64>,
    last_epochs: u32,
    pub(super) last_samples: u64,
    pub(super) phase: Option<EvaluationPhase>,
    /// Those that are stored.
    #[serde(default)]
    pub(super) series: SeriesSampling,
    /// What those on the samples that decide have shown.
    #[serde(default)]
    pub(super) watch: EvaluationWatch,
    /// With which parameters the training ends.
    #[serde(default)]
    pub(super) handed_on: HandedOn,
    /// The shards were told to keep the last parameters before they open the best.
    #[serde(default)]
    pub(super) keeps_last: bool,
    /// Why the shards do not have the parameters of what was the best when they lost them.
    #[serde(default)]
    pub(super) lost: Option<LostBest>,
    /// The test samples had their turn at the end, where others were evaluated before.
    #[serde(default)]
    pub(super) tested: bool,
}

impl Evaluations {
    /// Those of a job that goes on behind so many complete epochs and samples of another one: as if it had
    /// come so far itself.
    pub(super) fn going_on(
        train: &TrainSpec,
        epochs_complete: u32,
        samples: u64,
        watch: EvaluationWatch,
    ) -> Self {
        let last_epochs = Self::last_turn(train.evaluate, epochs_complete);
        let lost = LostBest::of_before(train);
        let phase = Self::are_due_at_begin(train).then_some(EvaluationPhase::Resting);
        Self { last_epochs, last_samples: samples, watch, lost, phase, ..Self::default() }
    }

    /// Whether the parameters with which a training goes on are those of the end of an epoch behind which it
    /// evaluates, and were not evaluated where they come from: that ended in the middle of it.
    pub(super) fn are_due_at_begin(train: &TrainSpec) -> bool {
        let Some(resume) = train.resume.as_ref().filter(|resume| !resume.evaluated) else { return false };
        let (partial, epochs) = resume.position.handed_out_by_epoch(resume.epoch_samples);
        let every = train.evaluate.and_then(|spec| spec.every_epochs);
        partial.is_empty() && epochs > 0 && every.is_some_and(|every| epochs.is_multiple_of(every))
    }

    /// The epoch behind which one was due last: they lie at whole multiples, wherever a job went on or back
    /// to.
    fn last_turn(spec: Option<EvaluateSpec>, epochs_complete: u32) -> u32 {
        let every = spec.and_then(|spec| spec.every_epochs);
        every.map_or(0, |every| epochs_complete - epochs_complete.checked_rem(every).unwrap_or(0))
    }

    /// Whether nothing may be granted because of one.
    pub(super) fn rests(&self) -> bool {
        self.phase.is_some()
    }

    /// The job has trained for less than it seemed, as where the clock was set back: what is later than that
    /// has not been.
    pub(super) fn count_at_most(&mut self, trained_us: u64) {
        self.last_trained_us = self.last_trained_us.min(trained_us);
        self.absent_since_us = self.absent_since_us.map(|since_us| since_us.min(trained_us));
    }

    /// Nobody takes part any more in the job, which has trained for so long.
    pub(super) fn begin_absence(&mut self, trained_us: u64) {
        self.absent_since_us = Some(trained_us);
    }

    /// Somebody takes part again: what was waited is no time between two of them.
    pub(super) fn end_absence(&mut self, trained_us: u64) {
        let Some(since_us) = self.absent_since_us.take() else { return };
        // One that was put off meanwhile counts from there.
        let last_us = self.last_trained_us.saturating_add(trained_us.saturating_sub(since_us));
        self.last_trained_us = last_us.min(trained_us);
    }

    /// Whether the shards are to keep what was evaluated.
    pub(super) fn keeps(&self) -> bool {
        self.phase == Some(EvaluationPhase::Keeping)
    }

    /// The job is over, or its shards have what was evaluated, and with it the one under way.
    pub(super) fn end(&mut self) {
        self.phase = None;
    }

    /// The training has gone back to where these were its evaluations.
    pub(super) fn go_back(&mut self, watch: EvaluationWatch) {
        (self.watch, self.handed_on) = (watch, HandedOn::default());
        (self.keeps_last, self.tested) = (false, false);
    }

    /// Whether there has been one of this number.
    pub(super) fn has_begun(&self, number: u64) -> bool {
        number < self.next
    }

    /// Whether the evaluation of what was there after so many samples was begun, or about to be, and has not
    /// come to its end.
    pub(super) fn owes(&self, samples: u64, watch: &EvaluationWatch) -> bool {
        let is_of_these = match self.phase {
            // What is counted since belongs to the rest for which it waits.
            Some(EvaluationPhase::Resting) => samples >= self.last_samples,
            Some(EvaluationPhase::Computing { .. }) => samples == self.last_samples,
            Some(EvaluationPhase::Keeping) | None => false,
        };
        is_of_these && watch.after(samples).is_none()
    }

    /// Begins with the one that is owed.
    pub(super) fn make_up(&mut self) {
        self.phase = Some(EvaluationPhase::Resting);
    }

    /// Gives up the one under way, and counts the time to the next one from here, where the job has trained
    /// for so long.
    pub(super) fn put_off(
        &mut self,
        spec: Option<EvaluateSpec>,
        trained_us: u64,
        epochs_complete: u32,
        samples: u64,
    ) {
        self.phase = None;
        (self.last_trained_us, self.last_samples) = (trained_us, samples);
        self.last_epochs = Self::last_turn(spec, epochs_complete);
    }
}

impl Job {
    /// Lets the job come to rest if an evaluation is due.
    pub(super) fn rest_for_evaluation(&mut self, now_us: u64) {
        if self.state.evaluations.rests() || !self.evaluation_is_due(now_us) {
            return;
        }
        let (epochs, samples) = (self.state.epochs_complete, self.counted());
        let (spec, trained_us) = (self.train().evaluate, self.training_us(now_us).unwrap_or_default());
        let evaluations = &mut self.state.evaluations;
        // What was evaluated already would only be evaluated again.
        let is_new = samples > evaluations.last_samples;
        evaluations.put_off(spec, trained_us, epochs, samples);
        evaluations.phase = is_new.then_some(EvaluationPhase::Resting);
        self.changes.job_state = true;
    }

    fn evaluation_is_due(&self, now_us: u64) -> bool {
        let Some(spec) = self.train().evaluate else { return false };
        let evaluations = &self.state.evaluations;
        if self.state.cursor.is_exhausted() {
            // The last one shows what has come of it all: a new plan, or a worker that leaves, may bring
            // samples back until then.
            let counted = self.counted();
            let is_all = self.state.cursor.handed_out() == counted;
            return is_all && self.evaluates_its_end() && counted > evaluations.last_samples;
        }
        let epochs = self.state.epochs_complete.saturating_sub(evaluations.last_epochs);
        // As long as nobody takes part, or a shard is away, nothing becomes better: an evaluation of what was
        // evaluated just before would count against its patience.
        let stands_still = self.awaits_shards() || evaluations.absent_since_us.is_some();
        let trained_us = self.training_us(now_us).filter(|_| !stands_still).unwrap_or_default();
        spec.is_due(trained_us.saturating_sub(evaluations.last_trained_us), epochs)
    }

    /// Epochs of which samples may be handed out: those in front of the next evaluation. While one is about
    /// to begin nothing of the next epoch is, whatever plan comes back meanwhile.
    pub(super) fn open_epochs(&self) -> u32 {
        let Some(every) = self.train().evaluate.and_then(|spec| spec.every_epochs) else { return u32::MAX };
        let evaluations = &self.state.evaluations;
        evaluations.last_epochs.saturating_add(if evaluations.rests() { 0 } else { every })
    }

    /// Whether a node evaluates what the training gives.
    pub(super) fn is_evaluated_by_node(&self) -> bool {
        self.spec.nodes.iter().any(|node| matches!(node.kind, NodeKind::Evaluate))
    }

    /// Whether the training itself evaluates its last parameters: even where a node evaluates what it hands
    /// on, if that may be others, or is measured on other samples.
    pub(super) fn evaluates_its_end(&self) -> bool {
        let decides = self.train().evaluate.is_some_and(|spec| spec.keep_best);
        decides || self.train().data.has_validation() || !self.is_evaluated_by_node()
    }

    /// The samples on which it is evaluated as it goes.
    pub(super) fn monitored_set(&self) -> EvaluationSet {
        match self.train().data.has_validation() {
            true => EvaluationSet::Validation,
            false => EvaluationSet::Test,
        }
    }

    /// Whether what the training hands on has still to be evaluated by it on the test samples.
    pub(super) fn owes_test(&self) -> bool {
        let data = &self.train().data;
        let is_asked_for = self.train().evaluate.is_some() && data.has_validation() && data.has_test();
        is_asked_for && !self.is_evaluated_by_node() && !self.state.evaluations.tested
    }

    /// Evaluates what the training hands on, once, on the test samples that nothing was decided by. `false`:
    /// there is nothing more to evaluate.
    pub(super) fn tests_at_end(&mut self, turn: &mut Turn<'_>) -> bool {
        if !self.owes_test() {
            return false;
        }
        self.state.evaluations.phase = Some(EvaluationPhase::Resting);
        self.changes.job_state = true;
        self.evaluate_at_rest(turn);
        true
    }

    /// Ends what is open while the job comes to rest, and gives the workers their parts once it has.
    pub(super) fn evaluate_at_rest(&mut self, turn: &mut Turn<'_>) {
        match self.state.evaluations.phase {
            None => return,
            Some(EvaluationPhase::Resting) => self.begin_evaluation(turn),
            Some(EvaluationPhase::Computing { .. }) => {}
            Some(EvaluationPhase::Keeping) => return self.keep_best_at_rest(turn),
        }
        if !self.state.paused {
            self.give_out_parts(turn);
        }
    }

    fn begin_evaluation(&mut self, turn: &mut Turn<'_>) {
        let set = match self.state.evaluations.handed_on {
            HandedOn::Undecided => self.monitored_set(),
            HandedOn::Last | HandedOn::Best(_) => EvaluationSet::Test,
        };
        if self.state.cursor.is_exhausted() && !self.evaluates_its_end() {
            self.state.evaluations.phase = None;
            self.changes.job_state = true;
            return;
        }
        self.end_open_superstep(turn);
        let workers = u32::try_from(self.active().count()).unwrap_or(u32::MAX);
        if workers == 0 || self.state.paused || !self.is_at_rest() {
            return;
        }
        let samples = self.counted();
        let evaluations = &mut self.state.evaluations;
        let number = evaluations.next;
        evaluations.next += 1;
        evaluations.last_samples = samples;
        let (sums, failed_at) = (EvaluationSums::default(), BTreeSet::new());
        evaluations.phase = Some(EvaluationPhase::Computing { open: workers, sums, set, failed_at });
        for index in 0..workers {
            let body = TaskBody::EvaluatePart { part: EvaluationPart { index, of: workers, set } };
            let id = TaskId::Evaluation { number, part: index };
            self.tasks.insert(id.clone(), Task::new(body, 0, turn.now_us));
            self.changes.tasks.insert(id);
        }
        self.changes.job_state = true;
    }

    /// Gives parts that nobody has, or whose worker left, to whom has the least in hand, of those that have
    /// not failed at one if there are any.
    fn give_out_parts(&mut self, turn: &mut Turn<'_>) {
        let ready = self.parts(|state| *state == TrainingTaskState::Ready);
        if ready.is_empty() {
            return;
        }
        let mut in_hand = self.parts_in_hand();
        for id in ready {
            let Some((worker, (_, parts))) = in_hand.iter_mut().min_by_key(|(_, load)| **load) else {
                return;
            };
            *parts += 1;
            let worker = *worker;
            self.apply(&id, &TaskEvent::Leased { holder: Holder::Worker(worker) }, turn.now_us);
            let assignment = self.assignment(&id);
            turn.effects.extend(assignment.map(|assignment| Effect::Assign { worker, assignment }));
        }
    }

    /// Of each worker that takes part: whether it has failed at a part of this evaluation, and how many it
    /// has in hand.
    fn parts_in_hand(&self) -> BTreeMap<Incarnation, (bool, usize)> {
        let has_failed = |worker: &Incarnation| match &self.state.evaluations.phase {
            Some(EvaluationPhase::Computing { failed_at, .. }) => failed_at.contains(worker),
            _ => false,
        };
        let mut in_hand: BTreeMap<_, _> =
            self.active().map(|worker| (worker, (has_failed(&worker), 0))).collect();
        for id in self.parts(|state| matches!(state, TrainingTaskState::Leased { .. })) {
            if let Some(TrainingTaskState::Leased { holder: Holder::Worker(worker), .. }) =
                self.task_state(&id)
                && let Some((_, parts)) = in_hand.get_mut(worker)
            {
                *parts += 1;
            }
        }
        in_hand
    }

    /// Parts of evaluations that are in such a state.
    pub(super) fn parts(&self, is_meant: impl Fn(&TrainingTaskState) -> bool) -> Vec<TaskId> {
        let all = TaskId::Evaluation { number: 0, part: 0 }..=TaskId::Evaluation {
            number: u64::MAX,
            part: u32::MAX,
        };
        self.tasks.range(all).filter(|(_, task)| is_meant(&task.state)).map(|(id, _)| id.clone()).collect()
    }

    /// How many parts the evaluation under way counts that are not among the tasks; `None`: all are there.
    pub(super) fn open_parts_missing(&self) -> Option<u32> {
        let Some(EvaluationPhase::Computing { open, .. }) = self.state.evaluations.phase else { return None };
        let there = u32::try_from(self.parts(|state| !state.is_final()).len()).unwrap_or(u32::MAX);
        Some(open.saturating_sub(there)).filter(|missing| *missing > 0)
    }

    /// What it waits for because of an evaluation, in words.
    pub(super) fn describe_evaluation(&self, now_us: u64) -> Option<String> {
        let words = match self.state.evaluations.phase.as_ref()? {
            EvaluationPhase::Resting => {
                let late = self.describe_standstill(now_us).map(|late| format!("; it waits for {late}"));
                format!("an evaluation: all come to rest{}", late.unwrap_or_default())
            }
            EvaluationPhase::Computing { open: 1, set, .. } => {
                format!("an evaluation: a worker still computes its part of the {} samples", set.name())
            }
            EvaluationPhase::Computing { open, set, .. } => {
                format!(
                    "an evaluation: {open} workers still compute their parts of the {} samples",
                    set.name()
                )
            }
            EvaluationPhase::Keeping => "the shards, which are to keep the best parameters so far".into(),
        };
        Some(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::training;

    #[test]
    fn a_job_that_goes_on_within_an_epoch_is_evaluated_when_the_first_job_would_have_been() {
        for (every, complete, want) in [(1, 7, 7), (5, 7, 5), (5, 4, 0), (5, 5, 5)] {
            let spec = EvaluateSpec::every_epochs(every);
            let train = TrainSpec { evaluate: Some(spec), ..training("bsp".parse().unwrap(), 10, 1) };
            let evaluations = Evaluations::going_on(&train, complete, 730, EvaluationWatch::default());
            assert_eq!(
                (evaluations.last_epochs, evaluations.last_samples),
                (want, 730),
                "{every}, {complete}"
            );
            assert!(!spec.is_due(u64::MAX, complete - evaluations.last_epochs));
            // The same where the job itself goes back to there.
            let mut gone_back = Evaluations { last_epochs: complete + 1, ..Evaluations::default() };
            gone_back.put_off(Some(spec), 1, complete, 730);
            assert_eq!((gone_back.last_epochs, gone_back.last_samples), (want, 730), "{every}, {complete}");
        }
        let train = training("bsp".parse().unwrap(), 10, 1);
        let evaluations = Evaluations::going_on(&train, 7, 730, EvaluationWatch::default());
        assert_eq!(evaluations.last_epochs, 0);
    }
}
