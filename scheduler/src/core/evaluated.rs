//! What comes of an evaluation: the sums of its parts, what people see of it, and what it decides.

use super::{
    best_parameters::HandedOn,
    effects::Effect,
    evaluating::EvaluationPhase,
    evaluation::{Evaluation, EvaluationSet, EvaluationSums},
    evaluation_watch::SeenEvaluation,
    event::Happening,
    inputs::TaskFault,
    job::Job,
    turn::Turn,
    worker_protocol::TaskKey,
};
use crate::{
    graph::{Holder, TaskEvent, TrainingTaskState},
    ids::Incarnation,
};

/// So many failures of one part end the evaluation: what ends one worker after the other would otherwise
/// never stop.
const MOST_PART_FAILURES: u32 = 3;

impl Job {
    /// A part is done. With the last one the evaluation is, and training goes on.
    pub(super) fn part_evaluated(&mut self, part: &EvaluationSums, now_us: u64) {
        let Some(EvaluationPhase::Computing { open, sums, set, .. }) = &mut self.state.evaluations.phase
        else {
            return;
        };
        let set = *set;
        (*open, *sums) = (open.saturating_sub(1), sums.plus(part));
        self.changes.job_state = true;
        if *open > 0 {
            return;
        }
        let evaluation = sums.mean();
        let evaluations = &self.state.evaluations;
        let (number, samples) = (evaluations.next.saturating_sub(1), evaluations.last_samples);
        let is_last = evaluations.handed_on != HandedOn::Undecided;
        let samples = if is_last { self.handed_on_samples() } else { samples };
        self.evaluated(set, evaluation.clone(), samples, now_us);
        self.end_evaluation();
        if !is_last {
            self.judge(&evaluation, samples, now_us);
        }
        // The last one is the one that people look for, also where it was it that ended the training.
        if self.state.evaluations.series.keeps(number) || self.state.cursor.is_exhausted() {
            self.add_to_series(set, &evaluation, samples, now_us);
        }
    }

    /// Draws the conclusions from an evaluation as it goes.
    fn judge(&mut self, evaluation: &Evaluation, samples: u64, now_us: u64) {
        let Some(spec) = self.train().evaluate else { return };
        let seen = SeenEvaluation { samples, evaluation: evaluation.clone(), at_ms: now_us / 1000 };
        let rate = self.train().learning_rate.clone();
        let before = self.reduced(rate.base);
        let stops = self.state.evaluations.watch.see(&spec, &rate, seen);
        self.note_evaluation(evaluation, samples);
        let learning_rate = self.reduced(rate.base);
        if learning_rate < before && !self.state.cursor.is_exhausted() {
            self.tell(Happening::LearningRateReduced { samples, learning_rate }, now_us);
        }
        let is_over = self.state.cursor.is_exhausted();
        if stops && !is_over {
            self.state.cursor.stop();
            // A job that goes back to one of these is where it stopped.
            for checkpoint in self.state.checkpoints.of_samples_mut(samples) {
                checkpoint.progress.cursor.stop();
            }
            self.tell(Happening::StoppedEarly { samples, reason: self.why_stopped() }, now_us);
        } else if spec.keep_best && !is_over && self.is_best_of_kept(evaluation, samples) {
            self.state.evaluations.phase = Some(EvaluationPhase::Keeping);
        }
    }

    /// The node of the job that evaluates is done.
    pub(super) fn node_evaluated(&mut self, sums: &EvaluationSums, now_us: u64) {
        let (evaluation, samples) = (sums.mean(), self.handed_on_samples());
        // What the training has evaluated as it went has its point in the series, the best always.
        let evaluations = &self.state.evaluations;
        let is_new = evaluations.watch.after(samples).is_none();
        let has_point = !is_new || matches!(evaluations.handed_on, HandedOn::Best(_));
        if !has_point || self.monitored_set() != EvaluationSet::Test {
            self.add_to_series(EvaluationSet::Test, &evaluation, samples, now_us);
        }
        // Where the training leaves its end to the node, that may be the best.
        if let Some(spec) = self.train().evaluate.filter(|_| is_new && !self.evaluates_its_end()) {
            let seen = SeenEvaluation { samples, evaluation: evaluation.clone(), at_ms: now_us / 1000 };
            let rate = self.train().learning_rate.clone();
            self.state.evaluations.watch.see(&spec, &rate, seen);
        }
        self.evaluated(EvaluationSet::Test, evaluation, samples, now_us);
    }

    /// Adds a point to the series: what the model was worth after `samples`.
    fn add_to_series(&mut self, set: EvaluationSet, evaluation: &Evaluation, samples: u64, now_us: u64) {
        let mut point = vec![
            ("at_ms", (now_us / 1000).to_string()),
            ("samples", samples.to_string()),
            ("generation", self.state.generation.number().to_string()),
            ("undone_beyond", self.state.generation_begin.counted.to_string()),
        ];
        point.extend(evaluation.fields(set));
        self.state.generation_begin.is_told = true;
        self.changes.job_state = true;
        self.changes.evaluations.push(point);
    }

    /// Tells what the model was worth after `samples`.
    fn evaluated(&mut self, set: EvaluationSet, evaluation: Evaluation, samples: u64, now_us: u64) {
        self.show_evaluation(set, evaluation.clone());
        self.tell(Happening::Evaluated { samples, set, evaluation }, now_us);
    }

    /// What people see of it from now on.
    pub(super) fn show_evaluation(&mut self, set: EvaluationSet, evaluation: Evaluation) {
        match set {
            EvaluationSet::Test => self.state.evaluation = Some(evaluation),
            EvaluationSet::Validation => self.state.validation = Some(evaluation),
        }
    }

    /// A worker failed at a part, or is gone with it: another one gets it. After a few the evaluation is left
    /// out.
    pub(super) fn part_failed(
        &mut self,
        worker: Incarnation,
        key: &TaskKey,
        fault: TaskFault,
        turn: &mut Turn<'_>,
    ) {
        let Some(task) = self.tasks.get_mut(&key.task) else { return };
        task.failures += 1;
        if task.failures >= MOST_PART_FAILURES {
            return self.evaluation_failed(key, fault, turn);
        }
        if let Some(EvaluationPhase::Computing { failed_at, .. }) = &mut self.state.evaluations.phase {
            failed_at.insert(worker);
        }
        self.apply(&key.task, &TaskEvent::Retried, turn.now_us);
        self.changes.job_state = true;
        let (task, attempt) = (key.task.clone(), key.attempt);
        self.tell(Happening::NodeFailed { task, attempt, fault }, turn.now_us);
    }

    fn evaluation_failed(&mut self, key: &TaskKey, fault: TaskFault, turn: &mut Turn<'_>) {
        let (code, reason) = (fault.code, fault.reason.clone());
        let failed = TaskEvent::Failed { attempt: key.attempt, code, reason };
        self.apply(&key.task, &failed, turn.now_us);
        for id in self.parts(|state| !state.is_final()) {
            if let Some(TrainingTaskState::Leased { holder: Holder::Worker(worker), attempt }) =
                self.task_state(&id)
            {
                turn.effects.push(Effect::Revoke { worker: *worker, key: self.key(id.clone(), *attempt) });
            }
            self.apply(&id, &TaskEvent::Canceled, turn.now_us);
        }
        self.tell(Happening::EvaluationFailed { task: key.task.clone(), fault }, turn.now_us);
        self.end_evaluation();
    }

    fn end_evaluation(&mut self) {
        let evaluations = &mut self.state.evaluations;
        evaluations.phase = None;
        evaluations.tested = evaluations.handed_on != HandedOn::Undecided;
        self.grant_queue.everybody = true;
        self.changes.job_state = true;
    }
}
