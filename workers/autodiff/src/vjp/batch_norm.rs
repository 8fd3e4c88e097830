//! y = scale * (x - mean) * r + bias per channel, with r = 1 / sqrt(variance + epsilon).
//!
//! Given mean and variance (a frozen layer): dx = dy * scale * r, dscale = r * (sum(dy x) - mean sum(dy)),
//! dbias = sum(dy), dmean = -scale * r * sum(dy), dvariance = -dscale * scale * r^2 / 2.
//! When they are those of the batch itself (see `training_form`), what flows through them is known in closed
//! form, and with c = x - mean, which is there for the variance, dx = A dy + (B c + C) with one number each
//! per channel, for n elements of a channel: dscale = r sum(dy c), A = scale r, B = -A r dscale / n, C = -A
//! dbias / n. The part in brackets is the operator itself with another scale and bias: the fastest way to a
//! product and a sum per channel. (The same in x, with sum(dy c) = sum(dy x) - mean dbias, would be the
//! difference of two large numbers where the mean is far from 0.) Source: Ioffe and Szegedy, Batch
//! normalization, arXiv:1502.03167, section 3.

use syncline_onnx::attr_float;

use super::{InputGrads, NodeGrad};
use crate::AutodiffError;
use crate::broadcast::sum;
use crate::forward::centered;

/// Most channels; the rule writes constants with a number for each.
const MOST_CHANNELS: i64 = 1 << 24;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    if n.node.int("training_mode", 0) != 0 {
        return Err(n.refuse("its training form was not taken apart".to_owned()));
    }
    let (x, scale, mean, variance) = (n.input(0), n.input(1), n.input(3), n.input(4));
    let dims = n.dims(x)?;
    let channels = dims.get(1).ok_or_else(|| n.refuse("its input has no channels".to_owned()))?;
    let channels = n.fixed(x, channels)?;
    if channels > MOST_CHANNELS {
        return Err(n.refuse(format!("it has {channels} channels")));
    }
    let axes: Vec<i64> = (0..dims.len() as i64).filter(|axis| *axis != 1).collect();
    let column: Vec<i64> = [channels].into_iter().chain(axes.iter().skip(1).map(|_| 1)).collect();

    let epsilon = n.emitter.float(n.element(), f64::from(n.node.float("epsilon", 1e-5)));
    let safe = n.emitter.op("Add", &[variance, &epsilon], &[]);
    let root = n.emitter.op("Sqrt", &[&safe], &[]);
    let r = n.emitter.op("Reciprocal", &[&root], &[]);
    let total = sum(n.emitter, dy, &axes);
    let of_batch = centered(n.node);
    let along = match of_batch {
        Some(centered) => {
            let product = n.emitter.op("Mul", &[dy, centered], &[]);
            sum(n.emitter, &product, &axes)
        }
        None => {
            let product = n.emitter.op("Mul", &[dy, x], &[]);
            let with_x = sum(n.emitter, &product, &axes);
            let level = n.emitter.op("Mul", &[mean, &total], &[]);
            n.emitter.op("Sub", &[&with_x, &level], &[])
        }
    };
    let dscale = n.emitter.op("Mul", &[&along, &r], &[]);

    let a = n.emitter.op("Mul", &[scale, &r], &[]);
    let a_column = n.reshaped(&a, &column);
    let straight = n.emitter.op("Mul", &[dy, &a_column], &[]);
    if let Some(centered) = of_batch {
        let through =
            BatchStatisticsGradient { x, centered, a: &a, r: &r, dscale: &dscale, total: &total, channels };
        let rest = through.emit(n);
        let dx = n.emitter.op("Add", &[&straight, &rest], &[]);
        return Ok(vec![Some(dx), Some(dscale), Some(total)]);
    }
    let given = |n: &mut NodeGrad<'_>, sum: &str, factor: &str| {
        let product = n.emitter.op("Mul", &[&a, sum], &[]);
        n.emitter.op("Mul", &[&product, factor], &[])
    };
    let dmean = n.needs(3).then(|| {
        let one = n.emitter.float(n.element(), -1.0);
        given(n, &total, &one)
    });
    let dvariance = n.needs(4).then(|| {
        let half = n.emitter.float(n.element(), -0.5);
        let factor = n.emitter.op("Mul", &[&half, &r], &[]);
        given(n, &dscale, &factor)
    });
    Ok(vec![Some(straight), Some(dscale), Some(total), dmean, dvariance])
}

/// What flows to x through the statistics of the batch.
struct BatchStatisticsGradient<'a> {
    x: &'a str,
    centered: &'a str,
    a: &'a str,
    r: &'a str,
    dscale: &'a str,
    total: &'a str,
    channels: i64,
}

impl BatchStatisticsGradient<'_> {
    /// B c + C.
    fn emit(&self, n: &mut NodeGrad<'_>) -> String {
        let element = n.element();
        let elements = n.emitter.op("Size", &[self.x], &[]);
        let elements = n.emitter.cast(&elements, element);
        let channels = n.emitter.float(element, -self.channels as f64);
        // -1 / n.
        let share = n.emitter.op("Div", &[&channels, &elements], &[]);
        let slope = n.emitter.op("Mul", &[self.r, self.dscale], &[]);
        let a = n.emitter.op("Mul", &[self.a, &share], &[]);
        let b = n.emitter.op("Mul", &[&a, &slope], &[]);
        let c = n.emitter.op("Mul", &[&a, self.total], &[]);
        let (zeros, ones) = (self.everywhere(n, 0.0), self.everywhere(n, 1.0));
        let inputs = [self.centered, &b, &c, &zeros, &ones];
        n.emitter.op("BatchNormalization", &inputs, &[attr_float("epsilon", 0.0)])
    }

    /// The same number for every channel.
    fn everywhere(&self, n: &mut NodeGrad<'_>, number: f32) -> String {
        let count = usize::try_from(self.channels).unwrap_or(0);
        n.tensor(&[count], &vec![number; count])
    }
}
