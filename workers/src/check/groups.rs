//! Parameters that are looked at together, and along which directions.
//!
//! A model has hundreds of parameters, and a difference of its loss takes a forward pass. So parameters with
//! gradients of like size share a direction: each is moved by one over the size of its gradient, up to a
//! random weight, so that a gradient that is off by some share changes the difference by about that share,
//! whoever it belongs to. What differs is cut in halves until the parameters are known.

use std::ops::Range;

use syncline_onnx::SplitMix64;

use super::norm;

/// Indices of all parameters in `count` groups, each of gradients of like size.
pub(super) fn of_like_size(scales: &[f64], count: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..scales.len()).collect();
    order.sort_by(|&a, &b| scales[a].total_cmp(&scales[b]));
    let size = scales.len().div_ceil(count.max(1)).max(1);
    order.chunks(size).map(<[usize]>::to_vec).collect()
}

/// A direction in the space of all parameters, in which those of a group move.
pub(super) struct Direction {
    /// Of unit length over all parts: index of the parameter, how it moves.
    pub(super) parts: Vec<(usize, Vec<f64>)>,
    /// The slope that the gradients promise.
    pub(super) expected: f64,
    /// How much of the slope stands for the whole gradient of one parameter.
    pub(super) unit: f64,
}

/// Random weights are within this, so that two faults do not cancel.
const WEIGHTS: Range<f64> = 1.0..2.0;

/// A random direction for a group: along the gradients, or `mixed` half with random numbers. `scales` are the
/// sizes of the gradients, none of them zero.
pub(super) fn direction(
    group: &[usize],
    grads: &[Vec<f64>],
    scales: &[f64],
    random: &mut SplitMix64,
    mixed: bool,
) -> Direction {
    let mut parts = Vec::with_capacity(group.len());
    let mut expected = 0.0;
    for &index in group {
        let sign = if group.len() > 1 && random.next_u64().is_multiple_of(2) { -1.0 } else { 1.0 };
        let weight = match group.len() {
            1 => 1.0,
            _ => WEIGHTS.start + (WEIGHTS.end - WEIGHTS.start) * random.uniform(),
        };
        let length = sign * weight / scales[index];
        let along: Vec<f64> = one(&grads[index], random, mixed).into_iter().map(|x| x * length).collect();
        expected += grads[index].iter().zip(&along).map(|(g, d)| g * d).sum::<f64>();
        parts.push((index, along));
    }
    let length = parts.iter().map(|(_, part)| part.iter().map(|x| x * x).sum::<f64>()).sum::<f64>().sqrt();
    let length = length.max(f64::MIN_POSITIVE);
    for (_, part) in &mut parts {
        part.iter_mut().for_each(|x| *x /= length);
    }
    Direction { parts, expected: expected / length, unit: 1.0 / length }
}

/// A unit vector along the gradient, or half along it and half random.
fn one(grad: &[f64], random: &mut SplitMix64, mixed: bool) -> Vec<f64> {
    let noise: Vec<f64> = grad.iter().map(|_| if mixed { random.spread() } else { 0.0 }).collect();
    let (along, across) = (norm(grad).max(f64::MIN_POSITIVE), norm(&noise).max(f64::MIN_POSITIVE));
    let mixed: Vec<f64> = grad.iter().zip(&noise).map(|(g, n)| g / along + n / across).collect();
    let length = norm(&mixed).max(f64::MIN_POSITIVE);
    mixed.into_iter().map(|x| x / length).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_hold_every_parameter_once_and_put_like_sizes_together() {
        let scales = [3.0, 1e-3, 2.0, 1e-4, 1.0];
        assert_eq!(of_like_size(&scales, 2), [vec![3, 1, 4], vec![2, 0]]);
        assert_eq!(of_like_size(&scales, 99).len(), 5);
        assert_eq!(of_like_size(&scales, 1), [vec![3, 1, 4, 2, 0]]);
        assert!(of_like_size(&[], 3).is_empty());
    }

    #[test]
    fn a_fault_of_any_parameter_shows_in_the_units_of_its_own_gradient() {
        let grads = vec![vec![3.0, 4.0], vec![0.0, 1e-3, 0.0], vec![2.0]];
        let scales: Vec<f64> = grads.iter().map(|grad| norm(grad)).collect();
        let mut random = SplitMix64::new(1);
        let all = direction(&[0, 1, 2], &grads, &scales, &mut random, false);
        let length: f64 = all.parts.iter().flat_map(|(_, part)| part).map(|x| x * x).sum();
        assert!((length - 1.0).abs() < 1e-12, "{length}");
        for (index, part) in &all.parts {
            // What this parameter adds to the slope, if its gradient were a tenth larger.
            let own: f64 = grads[*index].iter().zip(part).map(|(g, d)| 0.1 * g * d).sum();
            let share = own.abs() / all.unit;
            assert!((0.1..0.2).contains(&share), "{index}: {share}");
        }
    }
}
