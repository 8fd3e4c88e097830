//! What normalizations share: xhat = (x - mean) * r with r = 1 / sqrt(variance + epsilon), both taken over
//! some axes.
//!
//! With g = dy * scale, dx = r * (g - mean(g) - xhat * mean(g * xhat)), the means over the same axes; without
//! the middle term if the mean is not taken away. Sums over axes of known size, so that a mean is a sum and a
//! factor. Source: Ba, Kiros and Hinton, Layer normalization, arXiv:1607.06450; Ioffe and Szegedy,
//! arXiv:1502.03167, section 3.

use syncline_onnx::attr_int;

use super::NodeGrad;
use crate::AutodiffError;
use crate::broadcast::sum_keeping;

/// A group of elements that is normalized together.
pub(super) struct Group {
    /// Axes of the value.
    pub(super) axes: Vec<i64>,
    /// Elements in the group: a value without axes, of the element type.
    pub(super) size: String,
}

impl Group {
    /// The group of the axes from `first` on of `value`; all of them known, or counted when the graph runs.
    pub(super) fn behind(n: &mut NodeGrad<'_>, value: &str, first: usize) -> Result<Self, AutodiffError> {
        let dims = n.dims(value)?;
        let axes: Vec<i64> = (first as i64..dims.len() as i64).collect();
        let fixed: Option<usize> = dims[first..].iter().map(|dim| dim.fixed()).product();
        let size = match fixed {
            Some(size) => n.emitter.float(n.element(), size as f64),
            None => {
                let shape = n.emitter.op("Shape", &[value], &[attr_int("start", first as i64)]);
                let sizes = n.emitter.cast(&shape, n.element());
                n.emitter.op("ReduceProd", &[&sizes], &[attr_int("keepdims", 0)])
            }
        };
        Ok(Self { axes, size })
    }

    pub(super) fn mean(&self, n: &mut NodeGrad<'_>, value: &str) -> String {
        let total = sum_keeping(n.emitter, value, &self.axes);
        n.emitter.op("Div", &[&total, &self.size], &[])
    }

    /// 1 / sqrt(mean(value^2) + epsilon).
    pub(super) fn inverse_size(&self, n: &mut NodeGrad<'_>, value: &str, epsilon: f32) -> String {
        let square = n.emitter.op("Mul", &[value, value], &[]);
        let mean = self.mean(n, &square);
        let epsilon = n.emitter.float(n.element(), f64::from(epsilon));
        let safe = n.emitter.op("Add", &[&mean, &epsilon], &[]);
        let root = n.emitter.op("Sqrt", &[&safe], &[]);
        n.emitter.op("Reciprocal", &[&root], &[])
    }

    /// dx for the gradient `g` of xhat; `centered` if the mean was taken away.
    pub(super) fn backward(
        &self,
        n: &mut NodeGrad<'_>,
        g: &str,
        xhat: &str,
        r: &str,
        centered: bool,
    ) -> String {
        let product = n.emitter.op("Mul", &[g, xhat], &[]);
        let slope = self.mean(n, &product);
        let along = n.emitter.op("Mul", &[xhat, &slope], &[]);
        let mut rest = n.emitter.op("Sub", &[g, &along], &[]);
        if centered {
            let level = self.mean(n, g);
            rest = n.emitter.op("Sub", &[&rest, &level], &[]);
        }
        n.emitter.op("Mul", &[&rest, r], &[])
    }
}
