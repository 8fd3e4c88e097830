//! The error function by operators that have float64 kernels: Gauss-Legendre quadrature of its integral, 24
//! points, for arguments up to 6, beyond which it is 1 to the last digit.

use syncline_onnx::attr_int;

use super::NodeGrad;

/// 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x.
pub(super) fn erf(n: &mut NodeGrad<'_>, x: &str) -> String {
    let (points, weights) = gauss_legendre(24);
    let (low, high, last) = (n.number(-6.0), n.number(6.0), n.emitter.ints(&[-1]));
    let points: Vec<f32> = points.into_iter().map(|point| ((1.0 + point) / 2.0) as f32).collect();
    let factor = std::f64::consts::FRAC_2_SQRT_PI / 2.0;
    let weights: Vec<f32> = weights.into_iter().map(|weight| (weight * factor) as f32).collect();
    let (points, weights) = (n.tensor(&[24], &points), n.tensor(&[24], &weights));
    let x = n.call("Clip", &[x, &low, &high]);
    let column = n.call("Unsqueeze", &[&x, &last]);
    let at = n.call("Mul", &[&column, &points]);
    let square = n.call("Mul", &[&at, &at]);
    let square = n.call("Neg", &[&square]);
    let height = n.call("Exp", &[&square]);
    let part = n.call("Mul", &[&height, &weights]);
    let sum = n.emitter.op("ReduceSum", &[&part, &last], &[attr_int("keepdims", 0)]);
    n.call("Mul", &[&sum, &x])
}

/// Points and weights on [-1, 1], by Newton's method on the Legendre polynomial (Davis and Rabinowitz,
/// Methods of Numerical Integration, 1984, section 2.7).
fn gauss_legendre(count: usize) -> (Vec<f64>, Vec<f64>) {
    let mut rule = (Vec::new(), Vec::new());
    for index in 0..count {
        let mut x = (std::f64::consts::PI * (index as f64 + 0.75) / (count as f64 + 0.5)).cos();
        let mut slope = 1.0;
        for _ in 0..50 {
            let (mut previous, mut value) = (1.0, x);
            for degree in 2..=count {
                let degree = degree as f64;
                let next = ((2.0 * degree - 1.0) * x * value - (degree - 1.0) * previous) / degree;
                (previous, value) = (value, next);
            }
            slope = count as f64 * (x * value - previous) / (x * x - 1.0);
            x -= value / slope;
        }
        rule.0.push(x);
        rule.1.push(2.0 / ((1.0 - x * x) * slope * slope));
    }
    rule
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quadrature_gives_the_error_function() {
        let (points, weights) = gauss_legendre(24);
        let erf = |x: f64| {
            let height = |(point, weight): (&f64, &f64)| weight * (-(x * (1.0 + point) / 2.0).powi(2)).exp();
            points.iter().zip(&weights).map(height).sum::<f64>() * x * std::f64::consts::FRAC_2_SQRT_PI / 2.0
        };
        // Abramowitz and Stegun, table 7.1
        let table =
            [(0.0, 0.0), (0.5, 0.520_499_877_8), (1.0, 0.842_700_792_9), (2.0, 0.995_322_265_0), (6.0, 1.0)];
        for (x, want) in table {
            assert!((erf(x) - want).abs() < 1e-10, "{x}: {}", erf(x));
        }
    }
}
