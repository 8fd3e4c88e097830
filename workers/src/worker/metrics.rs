//! Loss and metrics over test samples that are computed batch by batch.

use syncline_autodiff::{
    CORRECT, LOG_PERPLEXITY, LOSS, LOSS_WEIGHT, PERPLEXITY, PREDICTIONS, is_correct_top,
};
use syncline_runtime::BackendError;
use syncline_scheduler::core::EvaluationSums;

/// What the outputs of an evaluation graph sum up to, batch by batch.
#[derive(Debug, Default)]
pub(crate) struct RunningMetrics {
    /// Outputs of the evaluation graph, as far as it has them.
    correct: Option<String>,
    correct_top: Option<String>,
    log_perplexity: Option<String>,
    /// Of graphs that do not have its logarithm: ready-made ones, and those of releases before.
    perplexity: Option<String>,
    predictions: Option<String>,
    sums: EvaluationSums,
}

impl RunningMetrics {
    /// `outputs`: names of the evaluation graph's outputs.
    pub(crate) fn of(outputs: &[String]) -> Self {
        let named = |name: &str| outputs.iter().find(|output| *output == name).cloned();
        Self {
            correct: named(CORRECT),
            correct_top: outputs.iter().find(|output| is_correct_top(output)).cloned(),
            log_perplexity: named(LOG_PERPLEXITY),
            perplexity: named(PERPLEXITY),
            predictions: named(PREDICTIONS),
            sums: EvaluationSums::default(),
        }
    }

    /// Adds a part of `samples` samples. `scalar` reads an output.
    pub(crate) fn add(
        &mut self,
        samples: u64,
        scalar: impl Fn(&str) -> Result<f32, BackendError>,
    ) -> Result<(), BackendError> {
        let read = |name: &Option<String>| name.as_deref().map(&scalar).transpose().map(|x| x.map(f64::from));
        let weight = f64::from(scalar(LOSS_WEIGHT)?);
        let log_perplexity = match read(&self.log_perplexity)? {
            None => read(&self.perplexity)?.map(f64::ln),
            known => known,
        };
        self.sums = self.sums.plus(&EvaluationSums {
            samples,
            loss: f64::from(scalar(LOSS)?) * weight,
            weight,
            // One a sample, unless the graph says otherwise: labels may be ignored.
            predictions: read(&self.predictions)?.unwrap_or(samples as f64),
            correct: read(&self.correct)?,
            correct_top: read(&self.correct_top)?,
            log_perplexity: log_perplexity.map(|mean| mean * weight),
            ..EvaluationSums::default()
        });
        Ok(())
    }

    /// The sums over all parts.
    pub(crate) fn finish(self) -> EvaluationSums {
        self.sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(of: &[&str]) -> Vec<String> {
        of.iter().map(|name| (*name).to_owned()).collect()
    }

    /// Reads from a table of outputs.
    fn from(table: &[(&str, f32)]) -> impl Fn(&str) -> Result<f32, BackendError> {
        move |wanted| {
            let found = table.iter().find(|(name, _)| *name == wanted);
            found
                .map(|(_, value)| *value)
                .ok_or_else(|| BackendError::UnknownOutput { name: wanted.to_owned() })
        }
    }

    #[test]
    fn parts_count_by_their_weight_and_metrics_by_their_predictions() {
        let outputs = names(&["loss", "loss_weight", "correct", "correct_top5", "perplexity", "predictions"]);
        let mut metrics = RunningMetrics::of(&outputs);
        #[rustfmt::skip]
        let parts: [&[(&str, f32)]; 2] = [
            &[("loss", 1.0), ("loss_weight", 3.0), ("correct", 2.0), ("correct_top5", 3.0), ("perplexity", 1.0), ("predictions", 4.0)],
            &[("loss", 5.0), ("loss_weight", 1.0), ("correct", 1.0), ("correct_top5", 4.0), ("perplexity", 16.0), ("predictions", 4.0)],
        ];
        for part in parts {
            metrics.add(2, from(part)).unwrap();
        }
        let got = metrics.finish().mean();
        assert_eq!((got.samples, got.loss), (4, 2.0));
        assert_eq!((got.accuracy, got.top_k_accuracy), (Some(3.0 / 8.0), Some(7.0 / 8.0)));
        assert!((got.perplexity.unwrap() - 2.0).abs() < 1e-12, "16^(1/4)");
    }

    #[test]
    fn the_perplexity_of_a_set_is_known_where_that_of_one_batch_is_too_large_for_float32() {
        let mut metrics =
            RunningMetrics::of(&names(&["loss", "loss_weight", "perplexity", "log_perplexity"]));
        for (mean, weight) in [(100.0f32, 1.0f32), (1.0, 9.0)] {
            let outputs = [
                ("loss", mean),
                ("loss_weight", weight),
                ("perplexity", mean.exp()),
                ("log_perplexity", mean),
            ];
            metrics.add(weight as u64, from(&outputs)).unwrap();
        }
        let log = metrics.finish().mean().perplexity.unwrap().ln();
        assert!((log - 10.9).abs() < 1e-9, "{log}");
    }

    #[test]
    fn a_sample_is_a_prediction_unless_the_graph_counts_them() {
        let mut metrics = RunningMetrics::of(&names(&["loss", "loss_weight", "correct"]));
        metrics.add(8, from(&[("loss", 1.0), ("loss_weight", 8.0), ("correct", 2.0)])).unwrap();
        assert_eq!(metrics.finish().mean().accuracy, Some(0.25));
    }

    #[test]
    fn what_the_graph_does_not_compute_is_not_known() {
        let mut metrics = RunningMetrics::of(&names(&["loss", "loss_weight", "y"]));
        metrics.add(8, from(&[("loss", 1.5), ("loss_weight", 8.0)])).unwrap();
        let want = EvaluationSums {
            samples: 8,
            loss: 12.0,
            weight: 8.0,
            predictions: 8.0,
            ..EvaluationSums::default()
        };
        assert_eq!(metrics.finish(), want);
    }
}
