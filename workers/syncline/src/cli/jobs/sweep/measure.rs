//! By what trials are compared: a figure of an evaluation, or the loss of training. Pure.

use syncline_rpc::status::{EvaluationPoint, JobStatus, MetricsPoint};
use syncline_scheduler::{
    core::{EvaluationSet, SERIES_POINTS},
    spec::Metric,
};

use crate::cli::jobs::metrics::that_count;

/// What a job's newest evaluation says, or that of the parameters that it has handed on, and on which
/// samples; those of validation come first.
pub(super) fn of_job(metric: Metric, job: &JobStatus) -> Option<(EvaluationSet, f64)> {
    let sets = [EvaluationSet::Validation, EvaluationSet::Test];
    sets.into_iter().find_map(|on| Some((on, job.figures(on)[metric]?)))
}

/// What the first evaluation measured that saw so many samples, as many as of complete epochs; `None` where
/// that one is gone from the series. `points`: oldest first.
pub(super) fn evaluated(
    points: &[EvaluationPoint],
    metric: Metric,
    on: EvaluationSet,
    epoch_samples: u64,
    samples: u64,
) -> Option<f64> {
    let reach = reach(points.len(), epoch_samples, samples);
    let mut seen = points.iter().filter(|point| point.samples >= samples);
    let (first, value) = seen.find_map(|point| Some((point, point.figures(on)[metric]?)))?;
    (first.samples - samples < reach).then_some(value)
}

/// The loss of training after so many epochs. `points` of the loss curve, oldest first, which hold the end of
/// an epoch only as a part of one of them.
pub(super) fn training_loss_after(
    epochs: u32,
    job: &JobStatus,
    points: &[MetricsPoint],
    epoch_samples: u64,
) -> Option<f64> {
    let exact = job.epoch_loss.filter(|_| job.epochs_complete == epochs);
    exact.or_else(|| training_loss(points, epoch_samples, epoch_samples.saturating_mul(epochs.into())))
}

/// The loss of the epoch that ends behind so many samples: the mean over its samples. `None` while it has not
/// ended, and where it has become a part of points for much more than an epoch. `points` of the loss curve,
/// oldest first.
fn training_loss(points: &[MetricsPoint], epoch_samples: u64, samples: u64) -> Option<f64> {
    let reach = reach(points.len(), epoch_samples, samples);
    let points = that_count(points.iter());
    let end = points.iter().position(|point| point.samples >= samples)?;
    let begin = samples.saturating_sub(epoch_samples);
    let before = points.iter().map(|point| point.samples).take_while(|samples| *samples <= begin).last();
    let belongs = points[end].samples - samples < reach && begin - before.unwrap_or(0) < reach;
    belongs.then(|| mean_behind(&points[..=end], begin))
}

/// The loss of the newest epoch that is complete, as `status` tells it; before the first is, that of what
/// there is of it, and `None` before the first point.
pub(super) fn newest_training_loss(
    job: &JobStatus,
    points: &[MetricsPoint],
    epoch_samples: u64,
) -> Option<f64> {
    job.epoch_loss.or_else(|| newest_of_curve(points, epoch_samples))
}

fn newest_of_curve(points: &[MetricsPoint], epoch_samples: u64) -> Option<f64> {
    let points = that_count(points.iter());
    let begin = points.last()?.samples.saturating_sub(epoch_samples);
    Some(mean_behind(&points, begin))
}

/// The mean over what was trained behind so many samples, each point by what its labels weigh.
fn mean_behind(points: &[&MetricsPoint], begin: u64) -> f64 {
    let (mut sum, mut weight) = (0.0, 0.0);
    for point in points.iter().filter(|point| point.samples > begin && point.loss_samples > 0) {
        let weighs = point.loss_weight.unwrap_or(point.loss_samples as f64);
        sum += point.loss * weighs;
        weight += weighs;
    }
    if weight == 0.0 { f64::NAN } else { sum / weight }
}

/// How far a point may reach beyond the epoch that it is to tell of. Once a series was full its points become
/// rarer as the job goes on: one that reaches further than those did when the job came there is no measure
/// beside those of other trials.
fn reach(points: usize, epoch_samples: u64, samples: u64) -> u64 {
    const FEWEST_ONCE_FULL: u64 = SERIES_POINTS / 2;
    match (points as u64) < FEWEST_ONCE_FULL {
        true => u64::MAX,
        false => epoch_samples.max(samples / FEWEST_ONCE_FULL),
    }
}

#[cfg(test)]
mod tests {
    use syncline_rpc::{StreamCursor, StreamEntry, status::Entry};

    use super::*;

    fn point<T: serde::de::DeserializeOwned>(samples: u64, fields: &[(&str, &str)]) -> T {
        let zeros =
            ["at_ms", "iterations", "step_us", "compute_us", "wait_us", "staleness_mean", "staleness_max"];
        let zeros = zeros.iter().map(|name| ((*name).to_owned(), "0".to_owned()));
        let known = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let fields = zeros.chain([("samples".to_owned(), samples.to_string())]).chain(known).collect();
        Entry::read(&StreamEntry { at: StreamCursor { at_ms: 0, number: 0 }, fields }).unwrap().value
    }

    fn trained(samples: u64, loss: &str, loss_samples: &str) -> MetricsPoint {
        point(samples, &[("loss", loss), ("loss_samples", loss_samples)])
    }

    #[test]
    fn the_loss_of_an_epoch_counts_each_point_by_what_its_labels_weigh() {
        let weighed = |samples, loss, weight| -> MetricsPoint {
            point(samples, &[("loss", loss), ("loss_samples", "5"), ("loss_weight", weight)])
        };
        let curve = [weighed(5, "4", "1"), weighed(10, "1", "2")];
        assert_eq!(training_loss(&curve, 10, 10), Some(2.0));
    }

    #[test]
    fn the_loss_of_an_epoch_is_the_mean_over_its_samples_table() {
        // Epochs of 10 samples.
        let curve = [
            trained(5, "4", "5"),
            trained(10, "2", "5"),
            trained(16, "1", "6"),
            trained(22, "0.5", "6"),
            trained(25, "NaN", "0"),
        ];
        let alone = [trained(40, "3", "40")];
        let skipped = [trained(10, "NaN", "0")];
        #[rustfmt::skip]
        let cases: [(&str, &[MetricsPoint], u64, Option<f64>); 7] = [
            ("the first epoch",                 &curve,   10, Some(3.0)),
            ("the point that holds its end",    &curve,   20, Some(0.75)),
            ("not at its end yet",              &curve,   30, None),
            ("nothing is known",                &[],      10, None),
            ("a point for four epochs",         &alone,   10, Some(3.0)),
            ("the last of these",               &alone,   40, Some(3.0)),
            ("all of it was skipped",           &skipped, 10, Some(f64::NAN)),
        ];
        for (name, points, samples, want) in cases {
            let got = training_loss(points, 10, samples);
            assert_eq!(got.map(f64::to_bits), want.map(f64::to_bits), "{name}: {got:?}");
        }
        assert_eq!(newest_of_curve(&curve[..3], 10), Some((2.0 * 5.0 + 6.0) / 11.0));
        assert_eq!(newest_of_curve(&[], 10), None);
    }

    #[test]
    fn the_loss_of_an_epoch_is_that_of_status_where_that_has_it() {
        let job = |fields: &[(&str, &str)]| {
            let fields = [("id", "digits"), ("state", "running")].iter().chain(fields);
            let fields = fields.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            JobStatus::read(&fields).unwrap()
        };
        // Of epochs of 10 samples the curve has 4 of the second in a point of the first.
        let curve = [trained(14, "4", "14"), trained(20, "1", "6")];
        let complete = job(&[("epochs_complete", "2"), ("epoch_loss", "2.5")]);
        assert_eq!(newest_training_loss(&complete, &curve, 10), Some(2.5));
        assert_eq!(training_loss_after(2, &complete, &curve, 10), Some(2.5));
        assert_eq!(
            training_loss_after(1, &complete, &curve, 10),
            Some(4.0),
            "of an earlier one the curve tells"
        );
        assert_eq!(newest_training_loss(&job(&[]), &curve[..1], 10), Some(4.0));
    }

    #[test]
    fn what_was_undone_when_a_trial_went_back_is_no_part_of_its_loss() {
        let [first, undone, again, last] =
            [trained(10, "4", "10"), trained(20, "9", "10"), trained(12, "2", "2"), trained(20, "1", "8")];
        let curve = [first, undone, again, last];
        assert_eq!(training_loss(&curve, 10, 20), Some(1.2));
        assert_eq!(newest_of_curve(&curve, 10), Some(1.2));
    }

    #[test]
    fn the_first_evaluation_behind_an_epoch_counts() {
        let validation = |samples, loss: &str| {
            point(samples, &[("validation_loss", loss), ("validation_accuracy", "0.5")])
        };
        let points: Vec<EvaluationPoint> = vec![
            validation(10, "3"),
            point(11, &[("test_loss", "9")]),
            validation(20, "2"),
            validation(20, "1"),
        ];
        let at = |metric, on, samples| evaluated(&points, metric, on, 10, samples);
        use EvaluationSet::{Test, Validation};
        #[rustfmt::skip]
        let cases = [
            (Metric::Loss,       Validation, 10, Some(3.0)),
            (Metric::Loss,       Validation, 11, Some(2.0)),
            (Metric::Loss,       Validation, 21, None),
            (Metric::Loss,       Test,       10, Some(9.0)),
            (Metric::Accuracy,   Validation, 10, Some(0.5)),
            (Metric::Perplexity, Validation, 10, None),
        ];
        for (metric, on, samples, want) in cases {
            assert_eq!(at(metric, on, samples), want, "{metric:?} {on:?} {samples}");
        }
    }

    /// As many points as a series has once it was full, each `samples` behind the one before it.
    fn thinned<T>(samples: u64, point: impl Fn(u64) -> T) -> Vec<T> {
        (1..=SERIES_POINTS / 2).map(|number| point(number * samples)).collect()
    }

    #[test]
    fn of_a_series_with_rare_points_those_that_belong_to_a_rung_count_table() {
        let evaluations: Vec<EvaluationPoint> =
            thinned(30, |samples| point(samples, &[("test_loss", &samples.to_string())]));
        let curve: Vec<MetricsPoint> = thinned(30, |samples| trained(samples, &samples.to_string(), "1"));
        // Epochs of 10 samples.
        #[rustfmt::skip]
        let cases = [
            (10,    None,          None),
            (20,    None,          None),
            (30,    Some(30.0),    None),
            (40,    None,          None),
            (5_970, Some(5_970.0), Some(5_970.0)),
            (5_980, Some(6_000.0), Some(6_000.0)),
        ];
        for (samples, evaluation, training) in cases {
            let evaluation_there = evaluated(&evaluations, Metric::Loss, EvaluationSet::Test, 10, samples);
            let there = (evaluation_there, training_loss(&curve, 10, samples));
            assert_eq!(there, (evaluation, training), "{samples}");
        }
        assert_eq!(training_loss(&curve, 30, 60), Some(60.0), "as long as an epoch");
        assert_eq!(newest_of_curve(&curve, 10), Some(6_000.0));
    }
}
