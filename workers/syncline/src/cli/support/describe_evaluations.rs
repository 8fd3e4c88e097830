//! The evaluations of a training in words.

use syncline_rpc::status::{Figures, JobStatus};
use syncline_scheduler::{core::significant, spec::Metric};

/// What the newest evaluation on test samples measured.
pub(super) fn test(job: &JobStatus) -> Option<String> {
    evaluation(&job.test)
}

/// What the newest evaluation on validation samples measured.
pub(super) fn validation(job: &JobStatus) -> Option<String> {
    evaluation(&job.validation)
}

/// The best evaluation so far, and what becomes of its parameters.
pub(super) fn best(job: &JobStatus) -> Option<String> {
    let (samples, monitor) = (job.best_samples?, job.monitor.as_deref()?);
    let figures = evaluation(&job.best)?;
    let kept = match (job.handed_on.as_deref(), job.best_checkpoint, &job.best_lost) {
        (Some("best"), ..) => ", handed on".to_owned(),
        (Some(_), _, Some(_)) => "; the last parameters are handed on".to_owned(),
        // One that is kept while the best is lost is another one.
        (None, Some(number), None) => format!(", kept as checkpoint {number}"),
        _ => String::new(),
    };
    let whose = job.whose_best().map(|job| format!(", of job {job}")).unwrap_or_default();
    Some(format!("{figures} after {samples} samples, by the {monitor}{whose}{kept}"))
}

/// The best evaluation so far by the figure that it is judged by.
pub(super) fn best_in_short(job: &JobStatus) -> Option<String> {
    let (samples, monitor) = (job.best_samples?, job.monitor.as_deref()?);
    let name = monitor.split_once(' ')?.1;
    let metric = Metric::ALL.into_iter().find(|metric| metric.name() == name)?;
    let whose = job.whose_best().map(|job| format!(" of job {job}")).unwrap_or_default();
    let value = figure_in_words(metric, job.best[metric]?);
    Some(format!("best {monitor} {value} after {samples} samples{whose}"))
}

/// What an evaluation measured.
fn evaluation(figures: &Figures) -> Option<String> {
    use Metric as M;
    let known = |metrics: [Metric; 3]| metrics.map(|metric| figures[metric]);
    let share = |name: &str, share: Option<f64>| {
        share.map_or(String::new(), |share| format!(", {name} {:.2} %", share * 100.0))
    };
    let shares = share("accuracy", figures[M::Accuracy]) + &share("top-k accuracy", figures[M::TopKAccuracy]);
    let scores = |name: &str, scores: [Option<f64>; 3]| {
        scores_in_words(scores).map_or(String::new(), |scores| format!(", {name} {scores}"))
    };
    let scores = scores("macro F1", known([M::MacroF1, M::MacroPrecision, M::MacroRecall]))
        + &scores("F1", known([M::PositiveF1, M::PositivePrecision, M::PositiveRecall]));
    let perplexity = figures[M::Perplexity].map_or(String::new(), |value| format!(", perplexity {value:.2}"));
    figures[M::Loss].map(|loss| format!("loss {}{shares}{scores}{perplexity}", significant(loss)))
}

/// A value in words: shares of predictions per cent.
pub(crate) fn figure_in_words(metric: Metric, value: f64) -> String {
    match metric {
        Metric::Loss | Metric::Perplexity => significant(value),
        Metric::Accuracy | Metric::TopKAccuracy => format!("{:.2} %", value * 100.0),
        Metric::MacroF1
        | Metric::MacroPrecision
        | Metric::MacroRecall
        | Metric::PositiveF1
        | Metric::PositivePrecision
        | Metric::PositiveRecall => format!("{value:.4}"),
    }
}

/// F1, with precision and recall where they are known.
pub(crate) fn scores_in_words([f1, precision, recall]: [Option<f64>; 3]) -> Option<String> {
    let f1 = f1?;
    Some(match (precision, recall) {
        (Some(precision), Some(recall)) => {
            format!("{f1:.4} (precision {precision:.4}, recall {recall:.4})")
        }
        _ => format!("{f1:.4}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::support::describe::{progress_alone, tests::job};

    #[test]
    fn the_line_of_watch_tells_the_best_figure_apart_from_the_newest() {
        let seen = [("monitor", "test top-k-accuracy"), ("best_samples", "640")];
        let measured = [("best_top_k_accuracy", "0.5"), ("best_loss", "0.25"), ("test_loss", "4.75")];
        let job = job(&[&seen[..], &measured].concat());
        let line = progress_alone(&job, 0);
        assert!(
            line.ends_with("  test loss 4.750000  best test top-k-accuracy 50.00 % after 640 samples"),
            "{line}"
        );
    }

    #[test]
    fn the_best_evaluation_says_where_its_parameters_are() {
        let seen = [("monitor", "validation loss"), ("best_samples", "640"), ("best_loss", "0.25")];
        let with = |more: &[(&str, &str)]| best(&job(&[&seen[..], more].concat())).unwrap();
        let resumed = [("resumed_from", "before/1"), ("best_ms", "")];
        assert!(with(&resumed).ends_with("by the validation loss, of job before"), "{}", with(&resumed));
        assert!(with(&[resumed[0], ("best_ms", "7")]).ends_with("by the validation loss"), "its own");
        assert_eq!(with(&[]), "loss 0.250000 after 640 samples, by the validation loss");
        let kept = with(&[("best_accuracy", "0.5"), ("best_checkpoint", "3"), ("handed_on", "")]);
        assert_eq!(
            kept,
            "loss 0.250000, accuracy 50.00 % after 640 samples, by the validation loss, kept as checkpoint 3"
        );
        assert!(with(&[("best_checkpoint", ""), ("handed_on", "best")]).ends_with(", handed on"));
        let lost = [("best_checkpoint", "2"), ("best_lost", "why")];
        assert!(with(&lost).ends_with("by the validation loss"), "checkpoint 2 is of another one");
        assert!(with(&[("handed_on", "best"), lost[1]]).ends_with(", handed on"));
        let last = with(&[("handed_on", "last"), lost[1]]);
        assert!(last.ends_with("; the last parameters are handed on"), "{last}");
        let of_all =
            [("best_macro_f1", "0.25"), ("best_macro_precision", "0.5"), ("best_macro_recall", "0.75")];
        let scored =
            with(&[&of_all[..], &[("best_accuracy", "0.5"), ("best_positive_f1", "0.125")]].concat());
        assert!(
            scored.starts_with(
                "loss 0.250000, accuracy 50.00 %, macro F1 0.2500 (precision 0.5000, recall 0.7500), F1 0.1250 after 640"
            ),
            "{scored}"
        );
        assert_eq!(best(&job(&[("monitor", "test loss"), ("best_samples", "")])), None, "none yet");
    }
}
