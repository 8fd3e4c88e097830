//! The evaluations of a training in words.

use syncline_rpc::status::JobStatus;
use syncline_scheduler::core::significant;

/// What the newest evaluation on test samples measured.
pub(super) fn test(job: &JobStatus) -> Option<String> {
    evaluation(
        [job.test_loss, job.test_accuracy, job.test_top_k_accuracy, job.test_perplexity],
        [job.test_macro_f1, job.test_macro_precision, job.test_macro_recall],
        [job.test_positive_f1, job.test_positive_precision, job.test_positive_recall],
    )
}

/// What the newest evaluation on validation samples measured.
pub(super) fn validation(job: &JobStatus) -> Option<String> {
    evaluation(
        [
            job.validation_loss,
            job.validation_accuracy,
            job.validation_top_k_accuracy,
            job.validation_perplexity,
        ],
        [job.validation_macro_f1, job.validation_macro_precision, job.validation_macro_recall],
        [job.validation_positive_f1, job.validation_positive_precision, job.validation_positive_recall],
    )
}

/// The best evaluation so far, and what becomes of its parameters.
pub(super) fn best(job: &JobStatus) -> Option<String> {
    let (samples, monitor) = (job.best_samples?, job.monitor.as_deref()?);
    let figures = evaluation(
        [job.best_loss, job.best_accuracy, None, None],
        [job.best_macro_f1, job.best_macro_precision, job.best_macro_recall],
        [job.best_positive_f1, job.best_positive_precision, job.best_positive_recall],
    )?;
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

/// What an evaluation measured: loss, accuracy, top-k accuracy and perplexity; F1, precision and recall of all classes, and of the
/// positive one.
fn evaluation(
    [loss, accuracy, top_k_accuracy, perplexity]: [Option<f64>; 4],
    of_all: [Option<f64>; 3],
    of_positive: [Option<f64>; 3],
) -> Option<String> {
    let share = |name: &str, share: Option<f64>| {
        share.map_or(String::new(), |share| format!(", {name} {:.2} %", share * 100.0))
    };
    let shares = share("accuracy", accuracy) + &share("top-k accuracy", top_k_accuracy);
    let scores = |name: &str, scores: [Option<f64>; 3]| {
        scores_in_words(scores).map_or(String::new(), |scores| format!(", {name} {scores}"))
    };
    let scores = scores("macro F1", of_all) + &scores("F1", of_positive);
    let perplexity = perplexity.map_or(String::new(), |value| format!(", perplexity {value:.2}"));
    loss.map(|loss| format!("loss {}{shares}{scores}{perplexity}", significant(loss)))
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
    use crate::cli::support::describe::tests::job;

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
