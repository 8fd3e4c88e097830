//! Class weights that are counted in the training set.

use std::collections::BTreeMap;

use syncline_autodiff::{ClassWeights, Loss};

use super::{SubmitError, class_split::named, model::Model, training::Training};

impl Training {
    /// The same with classes that all count alike, where its class weights have yet to be counted in the data: its graph says how
    /// these are read. The graph that trains is checked, not this one.
    pub(super) fn unbalanced(&self) -> Option<Self> {
        let is_balanced = matches!(&self.model, Model::Forward { loss: Loss::SoftmaxCrossEntropy, options, .. }
            if options.class_weights == ClassWeights::Balanced);
        is_balanced.then(|| self.clone().weighing(Vec::new()).with(|settings| settings.check = false))
    }

    /// The same with these class weights.
    pub(super) fn weighing(mut self, weights: Vec<f32>) -> Self {
        if let Model::Forward { options, .. } = &mut self.model {
            options.class_weights = weights.into();
        }
        self
    }
}

/// Weights n / (C n_c) from the training labels by class, as `compute_class_weight` of scikit-learn has them: n_c of n labels are
/// of one of C classes. An ignored label is none.
pub(super) fn weights(
    counts: &BTreeMap<i64, u64>,
    (classes, ignored): (u32, Option<i64>),
    names: &[String],
) -> Result<Vec<f32>, SubmitError> {
    let counted = || (0..i64::from(classes)).filter(|class| Some(*class) != ignored);
    let of = |class| counts.get(&class).copied().unwrap_or_default();
    if let Some(absent) = counted().find(|class| of(*class) == 0) {
        return Err(SubmitError::AbsentClass { class: named(absent, names), classes });
    }
    let mean = counted().map(of).sum::<u64>() as f64 / counted().count() as f64;
    let weight = |class| if Some(class) == ignored { 0.0 } else { (mean / of(class) as f64) as f32 };
    Ok((0..i64::from(classes)).map(weight).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_weighs_the_same_in_sum_table() {
        #[rustfmt::skip]
        #[allow(clippy::type_complexity, reason = "a table")]
        let cases: [(&str, &[(i64, u64)], Option<i64>, Result<&[f32], &str>); 5] = [
            ("as many of each",      &[(0, 5), (1, 5), (2, 5)],             None,       Ok(&[1.0, 1.0, 1.0])),
            ("8 : 2 : 2",            &[(0, 8), (1, 2), (2, 2)],             None,       Ok(&[0.5, 2.0, 2.0])),
            ("what counts nothing",  &[(-100, 9), (0, 8), (1, 2), (2, 2)],  Some(-100), Ok(&[0.5, 2.0, 2.0])),
            ("an ignored class",     &[(0, 90), (1, 3), (2, 1)],            Some(0),    Ok(&[0.0, 2.0 / 3.0, 2.0])),
            ("one that never comes", &[(0, 8), (2, 2)],                     None,       Err("class `b` of 3 has no training label")),
        ];
        let names = ["a", "b", "c"].map(str::to_owned);
        for (case, counts, ignored, want) in cases {
            let got = weights(&counts.iter().copied().collect(), (3, ignored), &names);
            match (got, want) {
                (Ok(got), Ok(want)) => assert_eq!(got, want, "{case}"),
                (Err(error), Err(want)) => assert!(error.to_string().contains(want), "{case}: {error}"),
                (got, _) => panic!("{case}: {got:?}"),
            }
        }
    }
}
