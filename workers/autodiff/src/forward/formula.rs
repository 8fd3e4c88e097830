//! Numbers that a formula has written, and no training: positions as sines, rotary frequencies, masks.
//!
//! Fresh parameters are random or constant, trained ones are neither regular nor exact. One pass over the
//! numbers for each of the tests.

use syncline_onnx::proto::TensorProto;

/// How far a number may be from what the formula says, relative to the largest.
const TOLERANCE: f32 = 1e-3;
/// Fewest numbers along the axis of a formula; fewer prove nothing.
const FEWEST: usize = 4;

/// Sines along an axis, as position tables hold them.
pub(super) const SINES: &str = "holds sines, as position tables do";

/// What formula wrote the numbers, if one did.
pub(super) fn formula(tensor: &TensorProto) -> Option<&'static str> {
    let numbers = tensor.to_f32().ok()?;
    let shape = tensor.shape();
    let long = shape.iter().filter(|&&size| size != 1).count();
    if long == 1 && is_geometric(&numbers) {
        return Some("holds a geometric series, as rotary frequencies do");
    }
    if long == 1 && is_arithmetic(&numbers) {
        return Some("counts in equal steps, as positions do");
    }
    if long > 1 && is_zeros_and_ones(&numbers) {
        return Some("holds zeros and ones, as masks do");
    }
    is_sines(&numbers, &shape).then_some(SINES)
}

/// Whether the numbers are sines along some axis.
pub(super) fn holds_sines(tensor: &TensorProto) -> bool {
    tensor.to_f32().is_ok_and(|numbers| is_sines(&numbers, &tensor.shape()))
}

fn is_geometric(numbers: &[f32]) -> bool {
    let [first, second, rest @ ..] = numbers else { return false };
    let ratio = second / first;
    let grows = numbers.iter().all(|number| *number > 0.0) && (ratio - 1.0).abs() > 10.0 * TOLERANCE;
    let steady = |pair: &[f32]| (pair[1] / pair[0] / ratio - 1.0).abs() <= TOLERANCE;
    !rest.is_empty() && grows && numbers.windows(2).all(steady)
}

fn is_arithmetic(numbers: &[f32]) -> bool {
    let [first, .., last] = numbers else { return false };
    let step = (last - first) / (numbers.len() - 1) as f32;
    let steady = |pair: &[f32]| (pair[1] - pair[0] - step).abs() <= TOLERANCE * step.abs();
    numbers.len() >= FEWEST && step != 0.0 && numbers.windows(2).all(steady)
}

fn is_zeros_and_ones(numbers: &[f32]) -> bool {
    let count = |wanted: f32| numbers.iter().filter(|number| **number == wanted).count();
    let (zeros, ones) = (count(0.0), count(1.0));
    zeros > 0 && ones > 1 && zeros + ones == numbers.len()
}

/// x(p - 1) + x(p + 1) = 2 cos(w) x(p) holds of every sine and cosine of frequency w, of constants and ramps
/// as well; so some column has to turn.
fn is_sines(numbers: &[f32], shape: &[usize]) -> bool {
    let within = numbers.iter().all(|number| number.abs() <= 1.0 + TOLERANCE);
    within && (0..shape.len()).any(|axis| is_sines_along(numbers, shape, axis))
}

fn is_sines_along(numbers: &[f32], shape: &[usize], axis: usize) -> bool {
    let (size, stride) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
    if size <= FEWEST || stride == 0 {
        return false;
    }
    let mut turns = 0;
    for block in numbers.chunks_exact(size * stride) {
        for column in 0..stride {
            let at = |position: usize| block[position * stride + column];
            let sums = (1..size - 1).map(|position| (at(position), at(position - 1) + at(position + 1)));
            let (product, square) = sums
                .clone()
                .fold((0.0, 0.0), |(product, square), (x, sum)| (product + x * sum, square + x * x));
            let factor = if square > 0.0 { product / square } else { 2.0 };
            if sums.clone().any(|(x, sum)| (sum - factor * x).abs() > TOLERANCE) {
                return false;
            }
            turns += usize::from(factor.abs() < 1.9 && square > 0.5);
        }
    }
    turns > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_onnx::SplitMix64;

    fn table(rows: usize, width: usize, value: impl Fn(usize, usize) -> f32) -> TensorProto {
        let numbers: Vec<f32> = (0..rows * width).map(|at| value(at / width, at % width)).collect();
        TensorProto::from_f32("table", &[1, rows, width], &numbers)
    }

    fn angle(row: usize, column: usize, width: usize) -> f32 {
        row as f32 * 10000f32.powf(-((column / 2 * 2) as f32) / width as f32)
    }

    #[test]
    fn what_a_formula_wrote_is_told_from_what_a_parameter_holds() {
        let mut random = SplitMix64::new(3);
        let drawn: Vec<f32> = (0..64).map(|_| random.normal() as f32 * 0.02).collect();
        let interleaved = |row: usize, column: usize| {
            let angle = angle(row, column, 8);
            if column.is_multiple_of(2) { angle.sin() } else { angle.cos() }
        };
        let vector = |numbers: &[f32]| TensorProto::from_f32("v", &[numbers.len()], numbers);
        #[rustfmt::skip]
        let cases = [
            ("sinusoidal positions", table(16, 8, interleaved),                                  Some(SINES)),
            ("cached cosines",       table(16, 8, |row, column| angle(row, column, 8).cos()),    Some(SINES)),
            ("inverse frequencies",  vector(&[1.0, 0.1, 0.01, 0.001]),                           Some("holds a geometric series, as rotary frequencies do")),
            ("places",               vector(&[0.0, 1.0, 2.0, 3.0]),                              Some("counts in equal steps, as positions do")),
            ("a triangle",           table(4, 4, |row, column| f32::from(u8::from(column <= row))), Some("holds zeros and ones, as masks do")),
            ("drawn numbers",        table(8, 8, |row, column| drawn[8 * row + column]),         None),
            ("ones",                 vector(&[1.0; 8]),                                          None),
            ("zeros",                table(8, 8, |_, _| 0.0),                                    None),
            ("a ramp",               table(8, 8, |row, column| (8 * row + column) as f32 / 64.0), None),
            ("two numbers",          vector(&[1.0, 2.0]),                                        None),
        ];
        for (name, tensor, want) in cases {
            assert_eq!(formula(&tensor), want, "{name}");
        }
    }
}
