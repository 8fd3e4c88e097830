//! What a training has brought the task for which it was begun.

use serde::{Deserialize, Serialize};

use crate::{
    core::{Evaluation, Job, Phase, turn::Turn},
    fault_code::FaultCode,
    ids::JobId,
    tasks::{Failure, FailureCause, TrainedWeights},
};

/// Code of a training that brought nothing, because its parameters could not be kept.
pub(super) const NOT_KEPT: FaultCode = FaultCode::new("E058");
/// Code of a training that somebody has canceled.
const CANCELED: FaultCode = FaultCode::new("E059");
/// Code of an attempt that took too long.
const TOO_LONG: FaultCode = FaultCode::new("E443");

/// What a training task gives. Redis keeps it in postcard, as functions read it: a change of the fields, or
/// of those of an [`Evaluation`], is a new schema.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trained {
    /// The job that has trained, to be looked at as any other.
    pub job: JobId,
    /// From its first iteration to its end.
    pub seconds: f64,
    /// Samples counted in all epochs.
    pub samples: u64,
    /// Loss of the newest iteration that was not skipped.
    pub loss: Option<f32>,
    /// On the validation samples; on the test samples where there are no others, and the prepared job
    /// evaluates.
    pub evaluation: Option<Evaluation>,
    /// Its parameters at the end, which
    /// [`TrainingChanges::start_from`](crate::tasks::TrainingChanges::start_from) takes.
    pub weights: TrainedWeights,
}

impl Job {
    /// How the training of a task went, once it is over and its parameters are kept.
    pub(super) fn trained(&self) -> Option<Result<Trained, Failure>> {
        let state = &self.state;
        let id = self.id();
        let failure = |cause, code, reason| Err(Failure { cause, code, reason });
        Some(match (&state.phase, &state.snapshot) {
            (Phase::Queued | Phase::Opening | Phase::Running, _) => return None,
            (Phase::Done, None) if state.keeping => return None,
            (Phase::Done, Some(file)) => Ok(Trained {
                job: id.clone(),
                seconds: match (state.started_us, state.ended_us) {
                    (Some(started_us), Some(ended_us)) => ended_us.saturating_sub(started_us) as f64 / 1e6,
                    _ => 0.0,
                },
                samples: self.counted(),
                loss: state.loss,
                evaluation: state.validation.clone().or_else(|| state.evaluation.clone()),
                weights: TrainedWeights { bytes: file.bytes, digest: file.digest },
            }),
            (Phase::Done, None) => {
                failure(FailureCause::Worker, NOT_KEPT, format!("the parameters of job {id} were not kept"))
            }
            (Phase::Failed { code, reason }, _) => {
                let cause = match *code {
                    // A parameter shard was lost, which is nobody's fault here.
                    FaultCode::PARAMETERS_LOST => FailureCause::Worker,
                    _ => FailureCause::Function,
                };
                failure(cause, *code, format!("job {id}: {}", code.stripped_from(reason)))
            }
            (Phase::Canceled, _) => {
                let why = match state.cancel_reason.as_str() {
                    "" => String::new(),
                    reason => format!(": {reason}"),
                };
                failure(FailureCause::Function, CANCELED, format!("job {id} was canceled{why}"))
            }
        })
    }

    pub(super) fn end_after(&mut self, limit_ms: u64, turn: &mut Turn<'_>) {
        let is_over = |since_us| self.led_since_us(since_us, turn.now_us) / 1000 > limit_ms;
        let over = self.state.started_us.is_some_and(is_over);
        if over && !self.state.paused && !self.awaits_shards() && !self.state.phase.is_over() {
            let reason = format!("it trained longer than {limit_ms} ms");
            self.end(Phase::Failed { code: TOO_LONG, reason }, turn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ContentDigest;

    /// A graph may run, and its results be fetched, across an upgrade.
    #[test]
    fn what_a_training_gives_is_read_back_from_the_bytes_that_redis_has_of_it() {
        let evaluation = Evaluation {
            loss: 0.25,
            accuracy: Some(0.75),
            positive_recall: Some(1.0),
            samples: 9,
            ..Evaluation::default()
        };
        let trained = Trained {
            job: "sweep-1".parse().unwrap(),
            seconds: 1.5,
            samples: 300,
            loss: Some(0.5),
            evaluation: Some(evaluation),
            weights: TrainedWeights { bytes: 8, digest: ContentDigest::from_bytes([0xab; 32]) },
        };
        #[rustfmt::skip]
        let stored: &[&[u8]] = &[
            b"\x07sweep-1",
            &1.5f64.to_le_bytes(),
            &[0xac, 0x02],
            &[1], &0.5f32.to_le_bytes(),
            &[1],
            &0.25f64.to_le_bytes(),
            &[1], &0.75f64.to_le_bytes(),
            // Top k, perplexity, macro F1, precision and recall, positive F1 and precision.
            &[0, 0, 0, 0, 0, 0, 0],
            &[1], &1.0f64.to_le_bytes(),
            &[9],
            &[8], b"\x40abababababababababababababababababababababababababababababababab",
        ];
        let stored = stored.concat();
        assert_eq!(postcard::from_bytes::<Trained>(&stored), Ok(trained.clone()));
        assert_eq!(postcard::to_stdvec(&trained), Ok(stored));
    }
}
