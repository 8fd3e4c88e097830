//! What is drawn of a training.

use syncline_rpc::status::{Entry, EvaluationPoint};

use crate::cli::jobs::metrics::{Training, that_count};

/// What the picture goes over from left to right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum Over {
    /// Samples that the model had seen
    #[default]
    Samples,
    /// Time since the first point of each job
    Time,
}

/// Places of losses: samples or seconds, and the loss.
pub(super) type Losses = Vec<(f64, f64)>;

/// The losses of a training.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Curve {
    pub(super) job: String,
    pub(super) policy: String,
    pub(super) losses: Losses,
    /// On samples that it is not trained on: those of `set`.
    pub(super) evaluations: Losses,
    pub(super) set: Option<&'static str>,
}

impl Curve {
    pub(super) fn of(training: &Training, over: Over) -> Self {
        let place = |at_ms, samples: u64| match over {
            Over::Samples => samples as f64,
            Over::Time => training.elapsed_s(at_ms),
        };
        let points = that_count(training.points.iter().map(|entry| &entry.value));
        let set = set_of(&training.evaluations);
        let evaluations = training.evaluations.iter().map(|entry| &entry.value);
        // As it goes it is evaluated on one of both sets, and at its end maybe on the other.
        let evaluations = evaluations.filter(|point| Some(point.set().name()) == set);
        let mut evaluations: Vec<_> = evaluations.collect();
        if training.job.handed_on.as_deref() == Some("best") {
            // The best parameters are evaluated once more behind all others, which were not undone for that.
            while let [.., before, last] = &evaluations[..]
                && last.samples < before.samples
                && Some(last.samples) == training.job.best_samples
            {
                evaluations.pop();
            }
        }
        let evaluations = that_count(evaluations.into_iter());
        Self {
            job: training.name.clone(),
            policy: training.job.policy.clone(),
            losses: points.iter().map(|point| (place(point.at_ms, point.samples), point.loss)).collect(),
            evaluations: evaluations
                .iter()
                .map(|point| (place(point.at_ms, point.samples), point.loss()))
                .collect(),
            set,
        }
    }

    /// All that is to have a place.
    pub(super) fn all(&self) -> impl Iterator<Item = (f64, f64)> {
        self.losses.iter().chain(&self.evaluations).copied()
    }
}

/// The samples on which a training is evaluated as it goes.
fn set_of(points: &[Entry<EvaluationPoint>]) -> Option<&'static str> {
    let validates = points.iter().find(|entry| entry.value.is_validation());
    validates.or(points.first()).map(|entry| entry.value.set().name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::jobs::metrics::tests::{entry, training};

    #[test]
    fn a_curve_goes_over_samples_or_over_the_time_since_its_first_point() {
        let mut of = training(&[], &[(10, "2"), (40, "1")]);
        of.evaluations = vec![entry(30, &[("test_loss", "1.5")])];
        let samples = Curve::of(&of, Over::Samples);
        assert_eq!(samples.losses, [(10.0, 2.0), (40.0, 1.0)]);
        assert_eq!((&samples.evaluations[..], samples.set), (&[(30.0, 1.5)][..], Some("test")));
        let time = Curve::of(&of, Over::Time);
        assert_eq!((time.losses, time.evaluations), (vec![(0.0, 2.0), (30.0, 1.0)], vec![(20.0, 1.5)]));
    }

    #[test]
    fn what_was_undone_when_a_training_went_back_is_not_drawn() {
        let mut of =
            training(&[], &[(10, "2"), (20, "1.5"), (30, "1.2"), (20, "1.6"), (30, "1.1"), (30, "1.1")]);
        of.evaluations = [(15, "3"), (30, "2"), (15, "4"), (30, "1")]
            .map(|(samples, loss)| entry(samples, &[("test_loss", loss)]))
            .into();
        let curve = Curve::of(&of, Over::Samples);
        assert_eq!(curve.losses, [(10.0, 2.0), (20.0, 1.5), (20.0, 1.6), (30.0, 1.1), (30.0, 1.1)]);
        assert_eq!(curve.evaluations, [(15.0, 3.0), (15.0, 4.0), (30.0, 1.0)]);
    }

    #[test]
    fn the_best_that_is_evaluated_once_more_behind_the_others_undoes_none() {
        let fields = [("handed_on", "best"), ("best_samples", "20")];
        let mut of = training(&fields, &[(10, "2"), (30, "1")]);
        of.evaluations = [(10, "3"), (20, "1"), (30, "2"), (20, "1")]
            .map(|(samples, loss)| entry(samples, &[("test_loss", loss)]))
            .into();
        let curve = Curve::of(&of, Over::Samples);
        assert_eq!(curve.evaluations, [(10.0, 3.0), (20.0, 1.0), (30.0, 2.0)]);
    }

    #[test]
    fn evaluations_are_those_on_the_samples_that_it_is_validated_on() {
        let mut of = training(&[], &[]);
        of.evaluations = vec![entry(1, &[("validation_loss", "3")]), entry(2, &[("test_loss", "4")])];
        let curve = Curve::of(&of, Over::Samples);
        assert_eq!((curve.evaluations, curve.set), (vec![(1.0, 3.0)], Some("validation")));
        assert_eq!(Curve::of(&training(&[], &[]), Over::Samples).set, None);
    }
}
