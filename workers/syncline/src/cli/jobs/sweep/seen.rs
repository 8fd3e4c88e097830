//! What is known of a trial, and what became of one that the engine does not know any more.

use syncline_rpc::status::{JobPhase, JobStatus};
use syncline_scheduler::ids::EngineEpoch;

use super::{halving::Contestant, plan::Plan};

/// A trial as far as it is known.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    /// As of the last look; `None`: it was not submitted, or is gone.
    pub job: Option<JobStatus>,
    /// The submission that made it: a job that takes its name later is no trial of this sweep.
    pub nonce: Option<u32>,
    /// The engine that led before that look, or since.
    pub by: Option<EngineEpoch>,
    /// Whether this process has slept since that look.
    pub slept: bool,
    /// Whether somebody has deleted it meanwhile, or may have: it is not submitted again.
    pub is_gone: bool,
    /// Whether it is over, its last weights are kept, or lost, and everything is known that it has come to.
    pub is_measured: bool,
    pub contestant: Contestant,
    pub training_loss: Option<f64>,
}

impl Seen {
    /// One that was not submitted yet.
    pub(super) fn untried(plan: &Plan) -> Self {
        let rungs = plan.halving.as_ref().map_or(0, |halving| halving.rungs.len());
        let contestant = Contestant { at_rungs: vec![None; rungs], is_settled: true, is_out: false };
        Self { contestant, ..Self::default() }
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.job.is_none() && !self.is_gone
    }

    /// Whether it takes one of the places; one that rests leaves it to others.
    pub(super) fn is_training(&self) -> bool {
        use JobPhase::{Canceling, Opening, Queued, Running};
        self.job.as_ref().is_some_and(|job| matches!(job.state, Queued | Opening | Running | Canceling))
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_gone || self.is_measured
    }
}

/// What became of a trial that the engine does not know any more, or not under its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Deleted,
    /// By Redis; it is trained once more.
    Lost,
    /// One of the two while this process slept.
    DeletedOrLost,
    /// Its name is that of another job.
    Replaced,
}

impl Fate {
    /// An engine that leads writes again what Redis loses of a trial that goes on: where the one leads that
    /// led at the last look, somebody has deleted the trial. Another one knows what Redis had kept;
    /// whoever slept cannot tell, and trains nothing that somebody may have deleted.
    pub(super) fn of(last: &Seen, leads: Option<EngineEpoch>) -> Self {
        match leads.is_some() && leads == last.by {
            true => Self::Deleted,
            false if last.slept => Self::DeletedOrLost,
            false => Self::Lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_that_somebody_may_have_deleted_is_not_trained_once_more() {
        let (same, other) = (Some(EngineEpoch(7)), Some(EngineEpoch(8)));
        #[rustfmt::skip]
        let cases = [
            (false, same,  Fate::Deleted),
            (false, other, Fate::Lost),
            (false, None,  Fate::Lost),
            (true,  same,  Fate::Deleted),
            (true,  other, Fate::DeletedOrLost),
        ];
        for (slept, leads, fate) in cases {
            let last = Seen { by: same, slept, ..Seen::default() };
            assert_eq!(Fate::of(&last, leads), fate, "{slept} {leads:?}");
        }
    }
}
