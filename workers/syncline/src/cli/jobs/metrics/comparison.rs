//! Several trainings side by side.

use serde::Serialize;
use syncline_rpc::status::{Entry, EvaluationPoint, JobStatus, MetricsPoint};
use syncline_scheduler::core::{EvaluationSet, significant};

use super::Training;
use crate::cli::table;

/// One training of several, as JSON.
#[derive(Debug, Serialize)]
pub(super) struct Compared<'a> {
    job: &'a JobStatus,
    trained_s: Option<f64>,
    points: &'a [Entry<MetricsPoint>],
    evaluations: &'a [Entry<EvaluationPoint>],
}

/// What is printed of several trainings as JSON, in their order.
pub(super) fn as_json(trainings: &[Training]) -> Vec<Compared<'_>> {
    let compared = trainings.iter().map(|of| Compared {
        job: &of.job,
        trained_s: of.trained_s(),
        points: &of.points,
        evaluations: &of.evaluations,
    });
    compared.collect()
}

/// What an evaluation says of a training: on which samples it was made, and what it measured there.
struct Verdict {
    on: EvaluationSet,
    loss: Option<f64>,
    accuracy: Option<f64>,
}

/// The best evaluation; where nothing says which of its own is the best, the newest.
fn verdict(job: &JobStatus) -> Option<Verdict> {
    if let (Some(on), Some(_), None) = (job.monitored_set(), job.best_samples, job.whose_best()) {
        return Some(Verdict { on, loss: job.best_loss, accuracy: job.best_accuracy });
    }
    let of = |on, loss: Option<f64>, accuracy| loss.map(|loss| Verdict { on, loss: Some(loss), accuracy });
    of(EvaluationSet::Validation, job.validation_loss, job.validation_accuracy)
        .or_else(|| of(EvaluationSet::Test, job.test_loss, job.test_accuracy))
}

/// A row for each training, with what one compares.
pub(super) fn in_words(trainings: &[Training]) -> String {
    let known = |figure: Option<String>| figure.unwrap_or_else(|| "-".to_owned());
    let rows: Vec<Vec<String>> = trainings
        .iter()
        .map(|of| {
            let job = &of.job;
            let (trained_s, verdict) = (of.trained_s(), verdict(job));
            let verdict = verdict.as_ref();
            vec![
                of.name.clone(),
                known(Some(job.policy.clone()).filter(|policy| !policy.is_empty())),
                job.state.word().to_owned(),
                job.samples_applied.to_string(),
                known(trained_s.map(|seconds| format!("{seconds:.1}"))),
                known(trained_s.map(|_| format!("{:.1}", job.samples_per_s))),
                known(job.loss.map(significant)),
                known(verdict.and_then(|verdict| verdict.loss).map(significant)),
                known(
                    verdict
                        .and_then(|verdict| verdict.accuracy)
                        .map(|share| format!("{:.2} %", share * 100.0)),
                ),
                known(verdict.map(|verdict| verdict.on.name().to_owned())),
            ]
        })
        .collect();
    let columns = [
        "job",
        "policy",
        "state",
        ">samples",
        ">seconds",
        ">samples/s",
        ">last loss",
        ">best loss",
        ">accuracy",
        "evaluated on",
    ];
    table(&columns, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::jobs::metrics::training::tests::training;

    #[test]
    fn a_row_has_what_one_compares_and_a_dash_where_nothing_is_known() {
        let run =
            [("started_ms", "1000"), ("ended_ms", "3500"), ("samples_applied", "640"), ("state", "done")];
        let run = [&run[..], &[("samples_per_s", "256"), ("loss", "0.5")]].concat();
        let best = [("monitor", "validation accuracy"), ("best_samples", "320"), ("best_loss", "0.25")];
        let newest = [("validation_loss", "0.75"), ("test_loss", "0.875"), ("test_accuracy", "0.5")];
        #[rustfmt::skip]
        let cases = [
            (training(&[("state", "queued")], &[]),  "digits bsp queued 0 - - - - - -"),
            (training(&run, &[]),                    "digits bsp done 640 2.5 256.0 0.500000 - - -"),
            (training(&[&run[..], &newest[1..]].concat(), &[]),
                                                     "digits bsp done 640 2.5 256.0 0.500000 0.875000 50.00 % test"),
            (training(&[&run[..], &newest[..]].concat(), &[]),
                                                     "digits bsp done 640 2.5 256.0 0.500000 0.750000 - validation"),
            (training(&[&run[..], &newest[..], &best[..], &[("best_accuracy", "0.9")]].concat(), &[]),
                                                     "digits bsp done 640 2.5 256.0 0.500000 0.250000 90.00 % validation"),
            (training(&[&run[..], &newest[1..], &best[..], &[("resumed_from", "before/3")]].concat(), &[]),
                                                     "digits bsp done 640 2.5 256.0 0.500000 0.875000 50.00 % test"),
            (training(&[("state", "failed"), ("loss", "NaN")], &[]), "digits bsp failed 0 - - NaN - - -"),
        ];
        for (training, want) in cases {
            let text = in_words(&[training]);
            let row: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
            assert_eq!(row.join(" "), want);
        }
    }

    #[test]
    fn json_has_each_job_with_its_points_in_the_order_asked_for() {
        let all = [training(&[("id", "b")], &[(10, "2"), (20, "NaN")]), training(&[("id", "a")], &[])];
        let value = serde_json::to_value(as_json(&all)).unwrap();
        assert_eq!((&value[0]["job"]["id"], &value[1]["job"]["id"]), (&"b".into(), &"a".into()));
        assert_eq!(value[0]["points"][1]["samples"], 20);
        assert!(value[0]["points"][1]["loss"].is_null() && value[1]["trained_s"].is_null());
    }
}
