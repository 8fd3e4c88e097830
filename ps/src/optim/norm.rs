//! The gradient's norm and finiteness in one pass, on the worker, before anything is sent.

use super::vectorize::vectorize;

/// Independent sums, so that the loop vectorises and the result does not depend on the machine.
const LANES: usize = 32;

/// Euclidean norm over all slices together; not finite exactly if some element is not.
///
/// The squares are summed in f64: no finite f32 gradient overflows, and 10^9 elements keep 7 digits.
/// One pass, memory speed.
pub fn gradient_norm(gradients: &[&[f32]]) -> f64 {
    gradients.iter().map(|slice| squares(slice)).sum::<f64>().sqrt()
}

vectorize! {
    pub(crate) fn squares(slice: &[f32]) -> f64 {
        let mut sums = [0.0f64; LANES];
        let blocks = slice.chunks_exact(LANES);
        let rest: f64 = blocks.remainder().iter().map(|&x| f64::from(x) * f64::from(x)).sum();
        for block in blocks {
            for (sum, &x) in sums.iter_mut().zip(block) {
                *sum += f64::from(x) * f64::from(x);
            }
        }
        sums.iter().sum::<f64>() + rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn norm_spans_all_slices() {
        assert_eq!(gradient_norm(&[]), 0.0);
        assert_eq!(gradient_norm(&[&[3.0], &[], &[4.0]]), 5.0);
        assert_eq!(gradient_norm(&[&[1.0; 100], &[1.0; 125]]), 15.0);
    }

    #[test]
    fn a_huge_finite_gradient_stays_finite_and_one_bad_element_shows() {
        assert!(gradient_norm(&[&[f32::MAX; 1000]]).is_finite());
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for at in [0, 31, 32, 998, 999] {
                let mut g = vec![1.0; 1000];
                g[at] = bad;
                assert!(!gradient_norm(&[&g]).is_finite(), "{bad} at {at}");
            }
        }
    }
}
