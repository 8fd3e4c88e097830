//! What has become of the trials of a sweep, and their order. Pure.

use std::{cmp::Ordering, collections::BTreeMap};

use serde::Serialize;
use syncline_rpc::status::{JobPhase, JobStatus};
use syncline_scheduler::{core::significant, ids::JobId, spec::Metric};

use super::{
    halving::{Stop, order, ordinal},
    measure::of_job,
};

/// What the reason of a job begins with that a sweep has stopped.
const STOPPED_BY_SWEEP: &str = "sweep: ";

/// How a trial stands, the better the earlier here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Standing {
    /// Trained to its end.
    Done,
    /// Trains, waits or rests.
    Going,
    /// Others did better at a rung.
    Stopped,
    /// Somebody has canceled it.
    Canceled,
    /// There is no such job: it was not submitted yet, or was deleted.
    Missing,
    /// Trained to its end, and what it measured is NaN or infinite.
    Diverged,
    /// Failed, or its records are damaged.
    Failed,
}

/// One trial.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Outcome {
    /// From 1; `None` where there is nothing to rank it by.
    pub rank: Option<usize>,
    pub id: JobId,
    /// The fields in which trials differ, as a job file has them.
    pub values: BTreeMap<String, String>,
    pub standing: Standing,
    /// The rung at which the sweep has stopped it.
    pub stopped_at_epoch: Option<u32>,
    /// The value by which it is ranked; not finite where it diverged.
    pub result: Option<f64>,
    /// `validation`, `test` or `training`.
    pub measured_on: Option<&'static str>,
    /// Mean over the newest epoch.
    pub training_loss: Option<f64>,
    /// How long it has trained, in seconds, without queue and pauses.
    pub trained_s: Option<f64>,
    pub job: Option<JobStatus>,
}

impl Outcome {
    pub(super) fn of(
        id: JobId,
        values: BTreeMap<String, String>,
        job: Option<JobStatus>,
        training_loss: Option<f64>,
        metric: Metric,
    ) -> Self {
        // Seven digits, as all losses are told.
        let training_loss: Option<f64> = training_loss.map(|loss| significant(loss).parse().unwrap_or(loss));
        let measured = job.as_ref().and_then(|job| of_job(metric, job)).map(|(on, value)| (on.name(), value));
        let trained = || training_loss.filter(|_| metric == Metric::Loss).map(|loss| ("training", loss));
        let measured = measured.or_else(trained);
        let result = measured.map(|(_, value)| value);
        let standing = standing(job.as_ref(), result);
        let trained_s = job.as_ref().and_then(|job| job.training_seconds);
        let measured_on = measured.map(|(on, _)| on);
        let stopped_at_epoch =
            job.as_ref().filter(|_| standing == Standing::Stopped).and_then(rung_in_reason);
        Self {
            rank: None,
            id,
            values,
            standing,
            stopped_at_epoch,
            result,
            measured_on,
            training_loss,
            trained_s,
            job,
        }
    }
}

/// The reason of a trial that is stopped, which `rung_in_reason` reads.
pub(super) fn reason(Stop { epoch, rank, among, .. }: Stop) -> String {
    format!("{STOPPED_BY_SWEEP}ranked {} of {among} at epoch {epoch}", ordinal(rank))
}

/// Nothing but the reason keeps at which rung it was.
fn rung_in_reason(job: &JobStatus) -> Option<u32> {
    job.reason.as_ref()?.rsplit_once(" at epoch ")?.1.parse().ok()
}

/// Why a sweep has stopped it, if it was a sweep and nobody else.
pub(super) fn stop_reason(job: &JobStatus) -> Option<&str> {
    let is_canceled = matches!(job.state, JobPhase::Canceled | JobPhase::Canceling);
    job.reason.as_ref().filter(|_| is_canceled)?.strip_prefix(STOPPED_BY_SWEEP)
}

fn standing(job: Option<&JobStatus>, result: Option<f64>) -> Standing {
    let Some(job) = job else { return Standing::Missing };
    match job.state {
        JobPhase::Done if result.is_some_and(|result| !result.is_finite()) => Standing::Diverged,
        JobPhase::Done => Standing::Done,
        JobPhase::Canceled | JobPhase::Canceling if stop_reason(job).is_some() => Standing::Stopped,
        JobPhase::Canceled | JobPhase::Canceling => Standing::Canceled,
        JobPhase::Failed | JobPhase::Damaged => Standing::Failed,
        _ => Standing::Going,
    }
}

/// Puts the best first and numbers them: those that are done, those that go on, then those that were stopped,
/// of which those that came to a later rung are before the others, and those that failed at last.
pub(super) fn rank(outcomes: &mut [Outcome], metric: Metric) {
    // A sort that keeps the order of equal ones: by their numbers.
    outcomes.sort_by(|a, b| compare(a, b, metric));
    for (number, outcome) in (1..).zip(outcomes) {
        let has_rank = outcome.result.is_some() && outcome.standing < Standing::Missing;
        outcome.rank = has_rank.then_some(number);
    }
}

fn compare(a: &Outcome, b: &Outcome, metric: Metric) -> Ordering {
    // Epochs that it trained beyond its rung, before others came there, are no merit.
    let further = b.stopped_at_epoch.cmp(&a.stopped_at_epoch);
    let cost = |of: &Outcome| of.result.map(|result| metric.cost(result));
    let by_result = match (cost(a), cost(b)) {
        (Some(a), Some(b)) => order(a, b),
        // Whoever measured nothing has nothing to show.
        (a, b) => b.is_some().cmp(&a.is_some()),
    };
    a.standing.cmp(&b.standing).then(further).then(by_result)
}

/// The best of those that are done.
pub(super) fn best(outcomes: &[Outcome]) -> Option<&Outcome> {
    outcomes.iter().find(|outcome| outcome.standing == Standing::Done && outcome.result.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::support::describe::tests::job;

    fn outcome(
        id: &str,
        fields: Option<&[(&str, &str)]>,
        training_loss: Option<f64>,
        metric: Metric,
    ) -> Outcome {
        Outcome::of(id.parse().unwrap(), BTreeMap::new(), fields.map(job), training_loss, metric)
    }

    #[test]
    fn the_best_is_first_and_what_failed_is_last() {
        let stop = |rank, epoch| reason(Stop { trial: 0, epoch, rank, among: 3 });
        let (at_1, at_3) = (stop(3, 1), stop(2, 3));
        assert_eq!(at_3, "sweep: ranked 2nd of 3 at epoch 3");
        let [early, late] = [("reason", at_1.as_str()), ("reason", at_3.as_str())];
        let (done, canceled) = (("state", "done"), ("state", "canceled"));
        let all: [(&str, &[(&str, &str)]); 9] = [
            ("failed", &[("state", "failed"), ("code", "E351"), ("test_loss", "0.1")]),
            ("nan", &[done, ("test_loss", "NaN")]),
            ("stopped-early", &[canceled, early, ("epochs_complete", "9"), ("test_loss", "0.3")]),
            ("good", &[done, ("test_loss", "0.5")]),
            ("by-hand", &[canceled, ("reason", "enough"), ("test_loss", "0.2")]),
            ("best", &[done, ("test_loss", "0.25")]),
            ("stopped-late", &[canceled, late, ("epochs_complete", "3"), ("test_loss", "0.9")]),
            ("running", &[("test_loss", "0.1")]),
            ("unmeasured", &[done]),
        ];
        let mut outcomes: Vec<Outcome> =
            all.iter().map(|(id, fields)| outcome(id, Some(fields), None, Metric::Loss)).collect();
        outcomes.push(outcome("gone", None, None, Metric::Loss));
        rank(&mut outcomes, Metric::Loss);
        let order: Vec<(&str, Option<usize>)> =
            outcomes.iter().map(|one| (one.id.as_str(), one.rank)).collect();
        let want = [
            ("best", Some(1)),
            ("good", Some(2)),
            ("unmeasured", None),
            ("running", Some(4)),
            ("stopped-late", Some(5)),
            ("stopped-early", Some(6)),
            ("by-hand", Some(7)),
            ("gone", None),
            ("nan", None),
            ("failed", None),
        ];
        assert_eq!(order, want);
        assert_eq!(best(&outcomes).unwrap().id.as_str(), "best");
    }

    #[test]
    fn what_is_measured_where_table() {
        type Fields = &'static [(&'static str, &'static str)];
        /// On what, and the result.
        type Measured = Option<(&'static str, f64)>;
        const VALIDATION: (&str, &str) = ("validation_loss", "0.5");
        #[rustfmt::skip]
        let cases: [(Fields, Metric, Option<f64>, Measured); 6] = [
            (&[VALIDATION, ("test_loss", "0.75")],   Metric::Loss,     Some(0.1), Some(("validation", 0.5))),
            (&[("test_loss", "0.75")],               Metric::Loss,     Some(0.1), Some(("test", 0.75))),
            (&[],                                    Metric::Loss,     Some(0.1), Some(("training", 0.1))),
            (&[],                                    Metric::Accuracy, Some(0.1), None),
            (&[VALIDATION, ("test_accuracy", "0.9")], Metric::Accuracy, None,     Some(("test", 0.9))),
            (&[VALIDATION, ("test_macro_f1", "0.8")], Metric::MacroF1,  None,     Some(("test", 0.8))),
        ];
        for (fields, metric, training, want) in cases {
            let outcome = outcome("a", Some(fields), training, metric);
            assert_eq!(outcome.measured_on.zip(outcome.result), want, "{fields:?}");
        }
        let higher = |accuracy: &str| {
            outcome("a", Some(&[("state", "done"), ("test_accuracy", accuracy)]), None, Metric::Accuracy)
        };
        let mut both = [higher("0.8"), higher("0.9")];
        rank(&mut both, Metric::Accuracy);
        assert_eq!(both[0].result, Some(0.9));
    }

    #[test]
    fn pauses_are_no_part_of_the_time_for_which_a_trial_has_trained() {
        let moments = [("started_ms", "1000"), ("ended_ms", "9000"), ("training_seconds", "2.000")];
        for (fields, want_s) in [(&[][..], None), (&moments, Some(2.0))] {
            assert_eq!(outcome("a", Some(fields), None, Metric::Loss).trained_s, want_s, "{fields:?}");
        }
    }
}
