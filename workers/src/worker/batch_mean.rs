//! The step of a batch, out of the steps of its parts.
//!
//! In: loss, weight and tensors of each part, tensors in the same order and of the same sizes. Out: those of
//! the batch. With w the `loss_weight` of a part and W the sum of all, `loss_weight` = W, loss = sum(w loss)
//! / W, and each tensor, gradient or next running statistic, sum(w tensor) / W. If W is 0 every part counts
//! by its samples. What is not finite in one part is not finite in the result, even where the part weighs
//! nothing. Pure. One pass over all parts.

/// What one part of a batch gave.
pub(super) struct Part<'p> {
    pub samples: usize,
    pub loss: f32,
    pub weight: f32,
    pub tensors: Vec<&'p [f32]>,
}

/// Loss and weight of the batch; `merged` becomes its tensors, one after the other.
pub(super) fn batch_mean(parts: &[Part<'_>], merged: &mut Vec<f32>) -> (f32, f32) {
    let weight: f64 = parts.iter().map(|part| f64::from(part.weight)).sum();
    let samples = parts.iter().map(|part| part.samples).sum::<usize>() as f64;
    let share = |part: &Part<'_>| match weight {
        0.0 => part.samples as f64 / samples,
        _ => f64::from(part.weight) / weight,
    };
    let loss: f64 = parts.iter().map(|part| f64::from(part.loss) * share(part)).sum();
    merged.clear();
    for tensor in 0..parts.first().map_or(0, |part| part.tensors.len()) {
        let start = merged.len();
        for (index, part) in parts.iter().enumerate() {
            let (values, share) = (part.tensors[tensor], share(part) as f32);
            if index == 0 {
                merged.extend(values.iter().map(|value| value * share));
            } else {
                merged[start..].iter_mut().zip(values).for_each(|(sum, value)| *sum += value * share);
            }
        }
    }
    (loss as f32, weight as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_mean_table() {
        const NAN: f32 = f32::NAN;
        const MAX: f32 = f32::MAX;
        type Given = (usize, f32, f32, f32);
        #[rustfmt::skip]
        let cases: &[(&str, &[Given], Given)] = &[
            // name, parts of (samples, loss, weight, element), batch
            ("equal weights",         &[(4, 1.0, 4.0, 2.0), (4, 3.0, 4.0, 6.0)],   (8, 2.0, 8.0, 4.0)),
            ("weights differ",        &[(4, 1.0, 1.0, 2.0), (4, 3.0, 3.0, 6.0)],   (8, 2.5, 4.0, 5.0)),
            ("three",                 &[(1, 4.0, 1.0, 4.0), (1, 8.0, 1.0, 8.0), (2, 2.0, 2.0, 2.0)],
                                                                                   (4, 4.0, 4.0, 4.0)),
            ("one weighs nothing",    &[(4, 0.0, 0.0, 9.0), (4, 3.0, 4.0, 6.0)],   (8, 3.0, 4.0, 6.0)),
            ("none weighs anything",  &[(1, 0.0, 0.0, 8.0), (3, 0.0, 0.0, 4.0)],   (4, 0.0, 0.0, 5.0)),
            ("large",                 &[(1, MAX, 1.0, MAX), (1, MAX, 1.0, MAX)],   (2, MAX, 2.0, MAX)),
            ("a loss is no number",   &[(1, NAN, 1.0, 1.0), (1, 1.0, 1.0, 1.0)],   (2, NAN, 2.0, 1.0)),
            ("a weight is no number", &[(1, 1.0, 1.0, 1.0), (1, 1.0, NAN, 1.0)],   (2, NAN, NAN, NAN)),
            ("an infinite element",   &[(1, 1.0, 1.0, 1.0), (1, 1.0, 1.0, -1.0 / 0.0)],
                                                                                   (2, 1.0, 2.0, -1.0 / 0.0)),
            ("without weight",        &[(1, 1.0, 1.0, 1.0), (1, 0.0, 0.0, 1.0 / 0.0)], (2, 1.0, 1.0, NAN)),
        ];
        for (name, parts, (_, loss, weight, element)) in cases {
            let tensors: Vec<_> = parts.iter().map(|part| ([part.3; 2], [-part.3])).collect();
            let given = parts.iter().zip(&tensors).map(|(part, (two, one))| Part {
                samples: part.0,
                loss: part.1,
                weight: part.2,
                tensors: vec![two, &[], one],
            });
            let mut merged = vec![7.0];
            let got = batch_mean(&given.collect::<Vec<_>>(), &mut merged);
            let same = |a: f32, b: f32| a == b || a.is_nan() && b.is_nan();
            assert!(same(got.0, *loss) && same(got.1, *weight), "{name}: {got:?}");
            let want = [*element, *element, -element];
            assert!(merged.len() == 3 && (0..3).all(|i| same(merged[i], want[i])), "{name}: {merged:?}");
        }
    }
}
