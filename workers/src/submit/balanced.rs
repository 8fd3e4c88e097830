//! Class weights, and weights of the labels 1, that are counted in the training set.

use std::collections::BTreeMap;

use syncline_autodiff::{ClassWeights, Loss};

use super::{
    DataParts, SubmitError, class_split::named, data::InspectedData, model::Model, training::Training,
};
use crate::data::{ModelSignature, label_places};

impl Training {
    /// The same with classes that all count alike, where their weights have yet to be counted in the data:
    /// its graph says how these are read. The graph that trains is checked, not this one.
    pub(super) fn unbalanced(&self) -> Option<Self> {
        let Model::Forward { loss, options, .. } = &self.model else { return None };
        let weights = match loss {
            Loss::SoftmaxCrossEntropy => &options.class_weights,
            Loss::BinaryCrossEntropy => &options.pos_weight,
            _ => return None,
        };
        let is_balanced = *weights == ClassWeights::Balanced;
        is_balanced.then(|| self.clone().weighing(&[]).with(|settings| settings.check = false))
    }

    /// The same with these weights where they were to be counted.
    fn weighing(mut self, weights: &[f32]) -> Self {
        if let Model::Forward { options, .. } = &mut self.model {
            let counted = [&mut options.class_weights, &mut options.pos_weight].into_iter();
            counted
                .filter(|own| **own == ClassWeights::Balanced)
                .for_each(|own| *own = weights.to_vec().into());
        }
        self
    }

    /// The same with weights that are counted in the data, which says them from now on.
    pub(super) fn balanced(
        &self,
        data: &mut InspectedData,
        signature: &ModelSignature,
    ) -> Result<Self, SubmitError> {
        let DataParts { class_names, class_weights, pos_weight, .. } = &mut data.parts;
        let weights = if self.model.wants_probabilities() {
            *pos_weight = positive_weights(&data.train_label_means, &data.label_shape)?;
            pos_weight
        } else {
            let classes = (signature.classes().unwrap_or_default(), signature.ignored_label());
            *class_weights = weights(&data.train_labels, classes, class_names)?;
            class_weights
        };
        Ok(self.clone().weighing(weights))
    }
}

/// How many labels 0 there are for each label 1, by class, from the mean of each number of the training
/// labels, which have this shape. A label between counts in part as either.
fn positive_weights(means: &[f64], shape: &[u32]) -> Result<Vec<f32>, SubmitError> {
    let shape: Vec<usize> = shape.iter().map(|&size| size as usize).collect();
    let (classes, apart) = label_places(&shape);
    let mut positive = vec![0.0; classes];
    means.iter().enumerate().for_each(|(place, mean)| positive[place / apart % classes] += mean);
    let each = means.len() as f64 / classes as f64;
    let weight = |(class, &positive): (usize, &f64)| {
        let negative = each - positive;
        let absent = [("above 0", positive), ("below 1", negative)].into_iter().find(|(_, sum)| *sum <= 0.0);
        match absent {
            Some((label, _)) => Err(SubmitError::AbsentAnswer { class, classes, label }),
            None => Ok((negative / positive) as f32),
        }
    };
    positive.iter().enumerate().map(weight).collect()
}

/// Weights n / (C n_c) from the training labels by class, as `compute_class_weight` of scikit-learn has them:
/// n_c of n labels are of one of C classes. An ignored label is none.
fn weights(
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

    #[test]
    fn labels_one_of_every_class_weigh_as_much_as_its_labels_zero_table() {
        #[rustfmt::skip]
        let cases: [(&str, &[f64], &[u32], Result<&[f32], &str>); 7] = [
            ("one label a sample",        &[0.25],                              &[],        Ok(&[3.0])),
            ("three classes",             &[0.5, 0.2, 0.8],                     &[3],       Ok(&[1.0, 4.0, 0.25])),
            ("over time, classes last",   &[0.5, 0.1, 0.5, 0.3],                &[2, 2],    Ok(&[1.0, 4.0])),
            ("images, classes first",     &[0.25, 0.75, 0.1, 0.3],              &[2, 1, 2], Ok(&[1.0, 4.0])),
            ("masks of one class",        &[0.1, 0.3, 0.1, 0.3],                &[1, 2, 2], Ok(&[4.0])),
            ("one that is never there",   &[0.5, 0.0],                          &[2],       Err("class 1 of 2 has no training label above 0")),
            ("one that is always there",  &[1.0, 0.5],                          &[2],       Err("class 0 of 2 has no training label below 1")),
        ];
        for (case, means, shape, want) in cases {
            match (positive_weights(means, shape), want) {
                (Ok(got), Ok(want)) => {
                    let near = got.iter().zip(want).all(|(got, want)| (got - want).abs() < 1e-5);
                    assert!(near && got.len() == want.len(), "{case}: {got:?}");
                }
                (Err(error), Err(want)) => assert!(error.to_string().ends_with(want), "{case}: {error}"),
                (got, _) => panic!("{case}: {got:?}"),
            }
        }
    }
}
