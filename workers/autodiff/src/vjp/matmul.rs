//! Y = A B over the last two axes, numpy rules for the rest.
//!
//! Matrices: one Gemm each. A batch against one matrix (a linear layer on a sequence): the batch axes are
//! folded into the rows, so that dB is one large Gemm instead of many small ones and a sum. Otherwise a
//! batched MatMul with a transposed operand, which ONNX Runtime fuses, summed over repeated batch axes. A
//! vector on the left counts as a matrix with one row; on the right there is none, see `forward::columns`.

use syncline_onnx::{Dim, attr_int, attr_ints};

use super::gemm::product;
use super::{InputGrads, NodeGrad};
use crate::AutodiffError;
use crate::broadcast::unbroadcast;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let (a_dims, b_dims) = (n.dims(n.input(0))?, n.dims(n.input(1))?);
    if (a_dims.len(), b_dims.len()) == (2, 2) {
        return Ok(matrices(n, dy));
    }
    let vector_a = a_dims.len() == 1;
    let a = Operand::new(n, 0, a_dims, vector_a.then_some(0));
    let b = Operand::new(n, 1, b_dims, None);
    let mut dy_dims = n.dims(n.output())?.to_vec();
    let mut dy = dy.to_owned();
    if vector_a {
        let at = dy_dims.len() - 1;
        dy = unsqueeze(n, &dy, at);
        dy_dims.insert(at, Dim::Fixed(1));
    }
    let dy = Operand { value: dy, dims: dy_dims, added: None };
    let da = n.needs(0).then(|| left(n, &a, &b, &dy));
    let db = n.needs(1).then(|| right(n, &a, &b, &dy));
    Ok(vec![da, db])
}

/// A value that has been given two axes at least.
struct Operand {
    value: String,
    dims: Vec<Dim>,
    /// The axis that was added.
    added: Option<usize>,
}

impl Operand {
    fn new(n: &mut NodeGrad<'_>, index: usize, dims: &[Dim], added: Option<usize>) -> Self {
        let (mut value, mut dims) = (n.input(index).to_owned(), dims.to_vec());
        if let Some(axis) = added {
            value = unsqueeze(n, &value, axis);
            dims.insert(axis, Dim::Fixed(1));
        }
        Self { value, dims, added }
    }

    fn rank(&self) -> usize {
        self.dims.len()
    }
}

fn matrices(n: &mut NodeGrad<'_>, dy: &str) -> InputGrads {
    let (a, b) = (n.input(0), n.input(1));
    let da = n.needs(0).then(|| product(n, 1.0, (dy, false), (b, true)));
    let db = n.needs(1).then(|| product(n, 1.0, (a, true), (dy, false)));
    vec![da, db]
}

/// dA = dY B^T.
fn left(n: &mut NodeGrad<'_>, a: &Operand, b: &Operand, dy: &Operand) -> String {
    let turned = transpose(n, b);
    let grad = n.emitter.op("MatMul", &[&dy.value, &turned], &[]);
    let columns = a.dims[a.rank() - 1].clone();
    shrink(n, &grad, dy, (dy.dims[dy.rank() - 2].clone(), columns), a)
}

/// dB = A^T dY.
fn right(n: &mut NodeGrad<'_>, a: &Operand, b: &Operand, dy: &Operand) -> String {
    if b.rank() == 2 && a.rank() > 2 {
        let (a, dy) = (fold_rows(n, a), fold_rows(n, dy));
        let grad = product(n, 1.0, (&a, true), (&dy, false));
        return squeeze(n, grad, b.added);
    }
    let turned = transpose(n, a);
    let grad = n.emitter.op("MatMul", &[&turned, &dy.value], &[]);
    let rows = b.dims[b.rank() - 2].clone();
    shrink(n, &grad, dy, (rows, dy.dims[dy.rank() - 1].clone()), b)
}

/// Sums a gradient with the batch axes of `dy` to the shape of `to`, and takes the added axis away.
fn shrink(n: &mut NodeGrad<'_>, grad: &str, dy: &Operand, matrix: (Dim, Dim), to: &Operand) -> String {
    let mut from = dy.dims[..dy.rank() - 2].to_vec();
    from.extend([matrix.0, matrix.1]);
    let grad = unbroadcast(n.emitter, grad, &from, &to.value, &to.dims);
    squeeze(n, grad, to.added)
}

fn fold_rows(n: &mut NodeGrad<'_>, x: &Operand) -> String {
    n.emitter.op("Flatten", &[&x.value], &[attr_int("axis", -1)])
}

fn transpose(n: &mut NodeGrad<'_>, x: &Operand) -> String {
    let mut perm: Vec<i64> = (0..).take(x.rank()).collect();
    perm.swap(x.rank() - 1, x.rank() - 2);
    n.emitter.op("Transpose", &[&x.value], &[attr_ints("perm", &perm)])
}

fn unsqueeze(n: &mut NodeGrad<'_>, value: &str, axis: usize) -> String {
    let axes = n.emitter.ints(&[axis as i64]);
    n.emitter.op("Unsqueeze", &[value, &axes], &[])
}

fn squeeze(n: &mut NodeGrad<'_>, value: String, added: Option<usize>) -> String {
    let Some(axis) = added else {
        return value;
    };
    let axes = n.emitter.ints(&[axis as i64]);
    n.emitter.op("Squeeze", &[&value, &axes], &[])
}
