//! Which evaluation people see as the best, and why its parameters are not those that a training hands on:
//! the shards could not keep them, or cannot read them any more.

use serde::{Deserialize, Serialize};

use crate::spec::TrainSpec;

use super::{
    best_parameters::HandedOn, evaluating::Evaluations, evaluation_watch::SeenEvaluation, job::Job,
    significant::significant,
};

/// Parameters of the best evaluation so far that the shards do not have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LostBest {
    samples: u64,
    /// Such as `could not be kept: [E406] ...`.
    why: String,
}

impl LostBest {
    /// The best of a training from which this one goes on without its parameters.
    pub(super) fn of_before(train: &TrainSpec) -> Option<Self> {
        let resume = train.resume.as_ref()?;
        let best = resume.evaluations.as_ref().filter(|before| before.is_of(train))?;
        let why = match best.best_checkpoint {
            Some(number) => format!("are in checkpoint {number} of job {}, not in this job", resume.job),
            None => format!("were those of job {}, and are not in this job", resume.job),
        };
        Some(Self { samples: best.best_samples, why })
    }
}

impl Evaluations {
    /// The one whose parameters are handed on in place of the last ones, or else the best so far.
    pub(super) fn shown_best(&self) -> Option<&SeenEvaluation> {
        match &self.handed_on {
            HandedOn::Best(best) => Some(&best.seen),
            HandedOn::Undecided | HandedOn::Last => self.watch.best.as_ref(),
        }
    }
}

impl Job {
    /// The shards have no checkpoint of what was there after so many samples: `why` says whether they could
    /// not keep or not read it.
    pub(super) fn note_lost(&mut self, samples: u64, why: String) {
        let evaluations = &mut self.state.evaluations;
        if evaluations.watch.best.as_ref().is_some_and(|best| best.samples == samples) {
            evaluations.lost = Some(LostBest { samples, why });
        }
    }

    /// Why the parameters of the best evaluation are not handed on, in words; empty where they are, or may be
    /// yet.
    pub(super) fn why_best_is_lost(&self) -> String {
        let evaluations = &self.state.evaluations;
        let (Some(lost), Some(best)) = (&evaluations.lost, &evaluations.watch.best) else {
            return String::new();
        };
        let has_them = match &evaluations.handed_on {
            HandedOn::Undecided => self.state.checkpoints.holds(best.samples),
            HandedOn::Last | HandedOn::Best(_) => self.handed_on_samples() == best.samples,
        };
        let Some(spec) = self.train().evaluate.filter(|spec| spec.keep_best && !has_them) else {
            return String::new();
        };
        if lost.samples != best.samples {
            return String::new();
        }
        let (set, monitor) = (self.monitored_set().name(), spec.monitor.name());
        let figure = best.evaluation.figure(spec.monitor).map(significant).unwrap_or_default();
        format!("the parameters after {} samples ({set} {monitor} {figure}) {}", best.samples, lost.why)
    }
}
