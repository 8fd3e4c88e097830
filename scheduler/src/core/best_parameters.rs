//! The parameters of the best evaluation: the shards keep them as a checkpoint, and a training that is to
//! hand them on ends with them.
//!
//! What is kept is a checkpoint like any other, taken in the rest of the evaluation, with what the evaluation
//! said; the best of the complete ones is never thinned out. When training is over and its last parameters
//! are not the best, all shards open a new generation with those that are: what follows, the last test,
//! nodes, weights, finds them where it always finds parameters. Before that the shards keep the last
//! parameters as a checkpoint, too: whether the best can still be read is known only when every
//! shard has opened it.

use serde::{Deserialize, Serialize};

use super::{
    checkpoints::{Checkpoint, Checkpoints},
    evaluation::Evaluation,
    evaluation_watch::SeenEvaluation,
    event::Happening,
    inputs::TaskFault,
    job::Job,
    progress::Progress,
    turn::Turn,
};
use crate::spec::Metric;

/// With which parameters a training ends.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum HandedOn {
    /// It goes on.
    #[default]
    Undecided,
    /// Those to which its last iteration came.
    Last,
    /// Those of a checkpoint.
    Best(KeptBest),
}

/// A checkpoint of the best evaluation, with what that was: a job that is done does not have the checkpoint
/// any more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct KeptBest {
    pub checkpoint: u64,
    pub seen: SeenEvaluation,
}

impl Checkpoints {
    /// The complete one of the best evaluation, with its figure.
    fn best(&self, monitor: Metric) -> Option<(&Checkpoint, f64)> {
        best_of(&self.complete, monitor)
    }

    /// The complete one of what was there after so many samples.
    fn complete_after(&self, samples: u64) -> Option<&Checkpoint> {
        self.complete.iter().find(|checkpoint| checkpoint.samples() == samples)
    }
}

/// The one of the best evaluation, the first of several that are as good, with its figure.
fn best_of(complete: &[Checkpoint], monitor: Metric) -> Option<(&Checkpoint, f64)> {
    let figures = complete.iter().filter_map(|checkpoint| {
        let figure = checkpoint.evaluation.as_ref()?.figure(monitor)?;
        Some((checkpoint, figure))
    });
    figures.reduce(|best, other| if monitor.gain(other.1, best.1) > 0.0 { other } else { best })
}

impl Job {
    /// Whether the training is to hand on the parameters of its best evaluation.
    pub(super) fn keeps_best(&self) -> bool {
        self.train().evaluate.is_some_and(|spec| spec.keep_best)
    }

    /// The complete checkpoint of the best evaluation, where these are kept.
    pub(super) fn best_checkpoint(&self) -> Option<&Checkpoint> {
        self.best_checkpoint_of(&self.state.checkpoints.complete)
    }

    /// The same as if only these were complete.
    pub(super) fn best_checkpoint_of<'a>(&self, complete: &'a [Checkpoint]) -> Option<&'a Checkpoint> {
        let spec = self.train().evaluate.filter(|spec| spec.keep_best)?;
        best_of(complete, spec.monitor).map(|(best, _)| best)
    }

    /// What was just evaluated may be in a checkpoint already, which says so from now on.
    pub(super) fn note_evaluation(&mut self, evaluation: &Evaluation, samples: u64) {
        let watch = self.state.evaluations.watch.clone();
        for checkpoint in self.state.checkpoints.of_samples_mut(samples) {
            checkpoint.evaluation = Some(evaluation.clone());
            checkpoint.progress.watch = watch.clone();
        }
    }

    /// Whether the shards keep nothing as good as what was just evaluated.
    pub(super) fn is_best_of_kept(&self, evaluation: &Evaluation, samples: u64) -> bool {
        let Some(spec) = self.train().evaluate else { return false };
        let kept = self.state.checkpoints.best(spec.monitor).map(|(_, figure)| figure);
        let figure = evaluation.figure(spec.monitor);
        let is_best =
            figure.is_some_and(|figure| kept.is_none_or(|kept| spec.monitor.gain(figure, kept) > 0.0));
        is_best && !self.state.checkpoints.holds(samples)
    }

    /// Has the shards copy what was evaluated, as soon as they have written what they copied before.
    pub(super) fn keep_best_at_rest(&mut self, turn: &mut Turn<'_>) {
        let is_held = self.state.checkpoints.holds(self.counted());
        if !is_held && (self.state.checkpoints.making.is_some() || !self.is_at_rest()) {
            return;
        }
        self.state.evaluations.end();
        self.grant_queue.everybody = true;
        self.changes.job_state = true;
        if !is_held {
            self.pin_checkpoint(turn);
        }
    }

    /// The best checkpoint, unless the last parameters are better, or the same.
    pub(super) fn better_than_last(&self) -> Option<KeptBest> {
        let spec = self.train().evaluate.filter(|spec| spec.keep_best)?;
        let (best, kept) = self.state.checkpoints.best(spec.monitor)?;
        let samples = self.counted();
        let last = self.state.evaluations.watch.after(samples).and_then(|last| last.figure(spec.monitor));
        let is_last_better = last.is_some_and(|last| spec.monitor.gain(last, kept) > 0.0);
        let evaluation = best.evaluation.clone().filter(|_| !is_last_better && best.samples() != samples)?;
        let seen = SeenEvaluation { samples: best.samples(), evaluation, at_ms: best.at_us / 1000 };
        Some(KeptBest { checkpoint: best.number, seen })
    }

    /// The checkpoint that is handed on, or is about to be, as soon as the shards have written the last
    /// parameters.
    pub(super) fn to_hand_on(&self) -> Option<KeptBest> {
        match &self.state.evaluations.handed_on {
            HandedOn::Best(best) => Some(best.clone()),
            HandedOn::Undecided => self.better_than_last().filter(|_| self.state.evaluations.keeps_last),
            HandedOn::Last => None,
        }
    }

    /// Opens a new generation of the parameters with those of the best evaluation. What was done stays
    /// counted.
    pub(super) fn open_best(&mut self, best: KeptBest, reason: &str, turn: &mut Turn<'_>) {
        let KeptBest { checkpoint, seen: SeenEvaluation { samples, evaluation, .. } } = best.clone();
        self.state.evaluations.handed_on = HandedOn::Best(best);
        let reason = reason.to_owned();
        self.tell(Happening::BestRestored { checkpoint, samples, reason }, turn.now_us);
        let tested = self.state.evaluation.take();
        self.reopen(Some(checkpoint), Progress::of(&self.state), turn);
        self.state.evaluation = tested;
        self.show_evaluation(self.monitored_set(), evaluation);
    }

    /// Where the checkpoint that a training hands on cannot be read, the best of those that are left is
    /// handed on, or the last parameters. `false`: none was handed on, or the shards keep neither.
    pub(super) fn hand_on_others(&mut self, unreadable: u64, fault: &TaskFault, turn: &mut Turn<'_>) -> bool {
        match &self.state.evaluations.handed_on {
            HandedOn::Best(best) if best.checkpoint == unreadable => {}
            _ => return false,
        }
        self.tell(Happening::BestUnreadable { checkpoint: unreadable, fault: fault.clone() }, turn.now_us);
        (self.state.evaluations.tested, self.state.evaluation) = (false, None);
        if let Some(best) = self.better_than_last() {
            self.open_best(best, &fault.reason, turn);
            return true;
        }
        let last = self.state.checkpoints.complete_after(self.counted()).map(|last| last.number);
        if let Some(last) = last {
            self.open_last(last, turn);
        }
        last.is_some()
    }

    /// Opens a new generation with the last parameters, which the shards kept before they opened the best.
    fn open_last(&mut self, checkpoint: u64, turn: &mut Turn<'_>) {
        self.state.evaluations.handed_on = HandedOn::Last;
        self.reopen(Some(checkpoint), Progress::of(&self.state), turn);
        self.show_what_is_known_of_these();
    }

    /// Shows again what the present parameters are worth, if they were the last that were evaluated.
    pub(super) fn show_what_is_known_of_these(&mut self) {
        let evaluation = self.state.evaluations.watch.after(self.counted()).cloned();
        if let Some(evaluation) = evaluation {
            self.show_evaluation(self.monitored_set(), evaluation);
        }
    }

    /// Samples that are in the parameters that the training hands on, or in those that it has.
    pub(super) fn handed_on_samples(&self) -> u64 {
        match &self.state.evaluations.handed_on {
            HandedOn::Best(best) => best.seen.samples,
            HandedOn::Undecided | HandedOn::Last => self.counted(),
        }
    }

    /// Why a training has stopped before its epochs were over, in words.
    pub(super) fn why_stopped(&self) -> String {
        let Some(spec) = self.train().evaluate else { return String::new() };
        let Some(stop) = spec.early_stopping else { return String::new() };
        let figure = format!("{} {}", self.monitored_set().name(), spec.monitor.name());
        let by = match stop.min_delta {
            0.0 => String::new(),
            tiny if tiny < 1e-5 => format!(" by more than {tiny:e}"),
            delta => format!(" by more than {delta}"),
        };
        match stop.patience {
            1 => format!("the {figure} has not become better{by} in the last evaluation"),
            many => format!("the {figure} has not become better{by} in the last {many} evaluations"),
        }
    }
}
