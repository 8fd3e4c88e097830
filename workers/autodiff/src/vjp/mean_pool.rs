//! Pools that add up their window: AveragePool, y = sum(x) / count, and LpPool, y = sum(|x|^p)^(1/p).
//!
//! The sum of a window is a convolution with ones, so its gradient is a transposed convolution with ones, of
//! one channel: channels are folded into the batch. `count` is what the window holds of the image (or of the
//! padded image), known when the graph is written. For LpPool, dx = sign(x) |x|^(p-1) * spread(dy * y^(1-p)),
//! 0 where y is 0.

use super::window::{Axis, Window};
use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

pub(super) fn average(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let window = window(n)?;
    let share = share(n, &window);
    let shared = n.emitter.op("Mul", &[dy, &share], &[]);
    Ok(vec![Some(spread(n, &window, &shared)?)])
}

/// 1 / count for each position of an AveragePool: a tensor that fits its output, or a number.
pub(super) fn share(n: &mut NodeGrad<'_>, window: &Window) -> String {
    let padding_counts = n.node.int("count_include_pad", 0) != 0;
    let counts: Vec<Vec<i64>> = window.axes.iter().map(|axis| counts(axis, padding_counts)).collect();
    let shares = shares(&counts);
    match shares.as_slice() {
        [first, rest @ ..] if rest.iter().all(|share| share == first) => {
            n.emitter.float(n.element(), f64::from(*first))
        }
        _ => {
            let shape: Vec<usize> = [1, 1].into_iter().chain(counts.iter().map(Vec::len)).collect();
            n.tensor(&shape, &shares)
        }
    }
}

pub(super) fn power(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let window = window(n)?;
    let (x, y, p) = (n.input(0), n.output(), n.node.int("p", 2));
    let factor = power_share(n, dy, y, p);
    let spread = spread(n, &window, &factor)?;
    let slope = power_slope(n, x, p);
    Ok(vec![Some(n.emitter.op("Mul", &[&slope, &spread], &[]))])
}

/// dy * y^(1-p), 0 where y is 0.
pub(super) fn power_share(n: &mut NodeGrad<'_>, dy: &str, y: &str, p: i64) -> String {
    let zero = n.emitter.float(n.element(), 0.0);
    let exponent = n.emitter.float(n.element(), 1.0 - p as f64);
    let positive = n.emitter.op("Greater", &[y, &zero], &[]);
    let power = n.emitter.op("Pow", &[y, &exponent], &[]);
    let share = n.emitter.op("Mul", &[dy, &power], &[]);
    n.emitter.op("Where", &[&positive, &share, &zero], &[])
}

/// sign(x) |x|^(p-1).
pub(super) fn power_slope(n: &mut NodeGrad<'_>, x: &str, p: i64) -> String {
    if p == 2 {
        return x.to_owned();
    }
    let sign = n.emitter.op("Sign", &[x], &[]);
    if p == 1 {
        return sign;
    }
    let size = n.emitter.op("Abs", &[x], &[]);
    let exponent = n.emitter.float(n.element(), p as f64 - 1.0);
    let power = n.emitter.op("Pow", &[&size, &exponent], &[]);
    n.emitter.op("Mul", &[&sign, &power], &[])
}

pub(super) fn window(n: &NodeGrad<'_>) -> Result<Window, AutodiffError> {
    let kernel = n.node.ints("kernel_shape").unwrap_or_default();
    let window = Window::up_to(MOST_TAPS, n, n.input(0), n.output(), kernel)?;
    let counted = window.axes.iter().map(|axis| axis.output.saturating_mul(axis.kernel)).max();
    let positions = window.axes.iter().fold(1i64, |all, axis| all.saturating_mul(axis.output));
    if positions.max(counted.unwrap_or(0)) > MOST_COUNTED {
        return Err(n.refuse("its image is too large to count what each window holds".to_owned()));
    }
    Ok(window)
}

/// Most taps of a kernel, which is written out as ones.
const MOST_TAPS: i64 = 1 << 20;
/// Most positions of a window, and most elements that are counted along an axis.
const MOST_COUNTED: i64 = 1 << 24;

/// How many elements each window holds along an axis.
fn counts(axis: &Axis, padding_counts: bool) -> Vec<i64> {
    let (low, high) = if padding_counts { (-axis.begin, axis.input + axis.end) } else { (0, axis.input) };
    let held = |output: i64| {
        let at = |tap: i64| output * axis.stride - axis.begin + tap * axis.dilation;
        (0..axis.kernel).map(at).filter(|at| (low..high).contains(at)).count() as i64
    };
    (0..axis.output).map(held).collect()
}

/// 1 / count for every position, in row-major order.
fn shares(counts: &[Vec<i64>]) -> Vec<f32> {
    let mut products = vec![1];
    for counts in counts {
        products =
            products.iter().flat_map(|product| counts.iter().map(move |count| product * count)).collect();
    }
    products.into_iter().map(|count: i64| 1.0 / count.max(1) as f32).collect()
}

/// Gives the value of each position to every element of its window, and adds up.
fn spread(n: &mut NodeGrad<'_>, window: &Window, value: &str) -> Result<String, AutodiffError> {
    let folded = [&[-1, 1], window.each(|axis| axis.output).as_slice()].concat();
    let folded = n.reshaped(value, &folded);
    let kernel = window.each(|axis| axis.kernel);
    let shape: Vec<usize> =
        [1, 1].into_iter().chain(kernel.iter().map(|&size| usize::try_from(size).unwrap_or(0))).collect();
    let ones = n.tensor(&shape, &vec![1.0; shape.iter().product()]);
    let image = window.spread(n, &folded, &ones, 1);
    n.reshape_to_input(&image, 0)
}
