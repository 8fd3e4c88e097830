//! What trials give that differ in nothing but chance: other seeds, other folds of the data. Pure.

use serde::Serialize;
use syncline_scheduler::{core::EvaluationSet, spec::Metric};

use super::{
    measure::of_job,
    outcome::{Outcome, Standing},
};
use crate::cli::figure_in_words;

/// A figure over the trials that are done.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Spread {
    /// As the fields of its values end.
    pub metric: String,
    pub measured_on: &'static str,
    pub mean: f64,
    /// That of the population from which the trials are drawn: of n of them, n - 1 is divided by.
    pub standard_deviation: f64,
    pub trials: usize,
    #[serde(skip)]
    of: Metric,
}

/// Of these figures; none where trials differ in more than chance, or fewer than two are done.
pub(super) fn spreads(outcomes: &[Outcome], metrics: &[Metric]) -> Vec<Spread> {
    let mut fields = outcomes.iter().flat_map(|one| one.values.keys()).peekable();
    if fields.peek().is_none() || !fields.all(|field| is_chance(field)) {
        return Vec::new();
    }
    metrics.iter().filter_map(|metric| spread(outcomes, *metric)).collect()
}

/// Whether a field of a job file says by which chance a job trains: its seed, or which samples it has.
fn is_chance(field: &str) -> bool {
    let mut parts = field.split('.');
    match (parts.next(), parts.next()) {
        (Some("settings"), Some("seed")) | (Some("data"), None) => true,
        (Some("data"), Some(part)) => ["source", "test", "validation", "hold_out_seed"].contains(&part),
        _ => false,
    }
}

fn spread(outcomes: &[Outcome], metric: Metric) -> Option<Spread> {
    let done = outcomes.iter().filter(|one| one.standing == Standing::Done);
    let measured: Option<Vec<(EvaluationSet, f64)>> =
        done.map(|one| of_job(metric, one.job.as_ref()?)).collect();
    let measured = measured.filter(|all| all.len() > 1)?;
    let on = measured[0].0;
    if measured.iter().any(|(set, value)| *set != on || !value.is_finite()) {
        return None;
    }
    let n = measured.len() as f64;
    let mean = measured.iter().map(|(_, value)| value).sum::<f64>() / n;
    let squares: f64 = measured.iter().map(|(_, value)| (value - mean).powi(2)).sum();
    let standard_deviation = (squares / (n - 1.0)).sqrt();
    let (metric, trials, of) = (metric.field(), measured.len(), metric);
    Some(Spread { metric, measured_on: on.name(), mean, standard_deviation, trials, of })
}

/// A line that says them.
pub(super) fn spreads_in_words(spreads: &[Spread]) -> Option<String> {
    let trials = spreads.first()?.trials;
    let figures = spreads.iter().map(|spread| {
        let (on, name) = (spread.measured_on, spread.of.name().replace('-', " "));
        let figure = |value| figure_in_words(spread.of, value);
        format!("{on} {name} {} ± {}", figure(spread.mean), figure(spread.standard_deviation))
    });
    let figures: Vec<String> = figures.collect();
    Some(format!("mean ± standard deviation of {trials} trials: {}", figures.join(", ")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::cli::support::describe::tests::job;

    /// A trial with such a test loss and accuracy.
    fn outcome(field: &str, state: &str, measured: [&str; 2]) -> Outcome {
        let [loss, accuracy] = measured;
        let fields = [("state", state), ("test_loss", loss), ("test_accuracy", accuracy)];
        let values = BTreeMap::from([(field.to_owned(), "1".to_owned())]);
        Outcome::of("a-1".parse().unwrap(), values, Some(job(&fields)), None, Metric::Loss)
    }

    #[test]
    fn seeds_and_folds_have_a_mean_and_other_fields_have_none_table() {
        #[rustfmt::skip]
        let cases = [
            ("settings.seed",            true),
            ("data",                     true),
            ("data.source.npz.path",     true),
            ("data.hold_out_seed",       true),
            ("data.validation",          true),
            ("data.validation_percent",  false),
            ("settings.learning_rate",   false),
            ("settings.seeds",           false),
        ];
        for (field, want) in cases {
            assert_eq!(is_chance(field), want, "{field}");
        }
        let of_nothing = Outcome { values: BTreeMap::new(), ..outcome("data", "done", ["1", "1"]) };
        assert_eq!(spreads(&[of_nothing.clone(), of_nothing], &[Metric::Loss]), []);
    }

    #[test]
    fn the_mean_is_that_of_all_that_are_done_and_is_told_with_their_deviation() {
        let metrics = [Metric::Loss, Metric::Accuracy];
        let mut all = vec![
            outcome("data", "done", ["0.2", "0.9"]),
            outcome("data", "done", ["0.4", "0.8"]),
            outcome("data", "failed", ["9.0", "0.1"]),
        ];
        let spreads_of = |all: &[Outcome]| spreads_in_words(&spreads(all, &metrics));
        // Squares of 0.1 each, over one: 0.02 in all.
        assert_eq!(
            spreads_of(&all).unwrap(),
            "mean ± standard deviation of 2 trials: test loss 0.300000 ± 0.1414214, test accuracy 85.00 % ± 7.07 %"
        );
        assert_eq!(spreads_of(&all[1..]), None, "one is no sample");
        all.push(outcome("settings.learning_rate", "done", ["0.2", "0.9"]));
        assert_eq!(spreads_of(&all), None, "they differ in more than chance");
    }
}
