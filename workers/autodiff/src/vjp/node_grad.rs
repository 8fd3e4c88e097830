//! What a rule sees of a forward node, and the phrases that most rules are made of.

use syncline_onnx::proto::{NodeProto, TensorProto};
use syncline_onnx::{Dim, ElementType, TensorType, Types, attr_int};

use crate::AutodiffError;
use crate::broadcast::unbroadcast;
use crate::emitter::Emitter;

/// A forward node on its way back.
pub(crate) struct NodeGrad<'a> {
    pub(crate) emitter: &'a mut Emitter,
    pub(crate) node: &'a NodeProto,
    pub(crate) types: &'a Types,
    /// Gradient of each output; `None` where the loss does not depend on it. One at least is there.
    pub(crate) outputs: &'a [Option<String>],
    /// Which inputs want a gradient.
    pub(crate) needs: &'a [bool],
    /// Whether values will be rounded to 16 bits, so that a value and what was chosen from it may differ:
    /// they are rounded in different places, or one of them is not.
    pub(crate) rounded: bool,
}

impl<'a> NodeGrad<'a> {
    /// Name of input `index`; empty if it is left out.
    pub(super) fn input(&self, index: usize) -> &'a str {
        self.node.input.get(index).map_or("", String::as_str)
    }

    /// Name of the first output.
    pub(super) fn output(&self) -> &'a str {
        self.node.output.first().map_or("", String::as_str)
    }

    /// Whether input `index` is there and wants a gradient.
    pub(super) fn needs(&self, index: usize) -> bool {
        self.needs.get(index).copied().unwrap_or(false)
    }

    /// Shape of a forward value.
    pub(super) fn dims(&self, value: &str) -> Result<&'a [Dim], AutodiffError> {
        let ty = self.types.get(value);
        ty.map(|ty| ty.dims.as_slice())
            .ok_or_else(|| self.refuse(format!("the shape of `{value}` is not known")))
    }

    /// Element type of the node's output.
    pub(super) fn element(&self) -> ElementType {
        self.types.get(self.output()).map_or(ElementType::F32, |ty| ty.element)
    }

    /// Applies an operator without attributes.
    pub(super) fn call(&mut self, op: &str, inputs: &[&str]) -> String {
        self.emitter.op(op, inputs, &[])
    }

    /// A number of the output's element type, without axes.
    pub(super) fn number(&mut self, value: f64) -> String {
        self.emitter.float(self.element(), value)
    }

    /// A constant tensor of the output's element type.
    pub(super) fn tensor(&mut self, shape: &[usize], data: &[f32]) -> String {
        let constant = self.emitter.constant(TensorProto::from_f32("", shape, data));
        let element = self.element();
        if element == ElementType::F32 { constant } else { self.emitter.cast(&constant, element) }
    }

    /// 1 where the condition holds and 0 elsewhere, in the output's element type.
    pub(super) fn mask(&mut self, condition: &str) -> String {
        self.emitter.cast(condition, self.element())
    }

    /// An axis counted from the front, for a value of this rank.
    pub(super) fn axis(&self, axis: i64, rank: usize) -> Result<usize, AutodiffError> {
        let front = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
        front
            .and_then(|axis| usize::try_from(axis).ok())
            .filter(|axis| *axis < rank.max(1))
            .ok_or_else(|| self.refuse(format!("axis {axis} is outside of {rank} axes")))
    }

    /// The shape of a value, as a list of integers: a constant if every size is known.
    pub(super) fn shape(&mut self, value: &str) -> String {
        let fixed = self.types.get(value).and_then(TensorType::fixed_shape);
        match fixed {
            Some(sizes) => {
                let sizes = sizes.into_iter().map(|size| i64::try_from(size).unwrap_or(i64::MAX));
                self.emitter.ints(&sizes.collect::<Vec<i64>>())
            }
            None => self.call("Shape", &[value]),
        }
    }

    /// Zeros of the shape of a value, in the output's element type.
    pub(super) fn zeros_like(&mut self, value: &str) -> String {
        let shape = self.shape(value);
        self.zeros(&shape)
    }

    /// Zeros of a shape that is given as a list of integers.
    pub(super) fn zeros(&mut self, shape: &str) -> String {
        let element = self.element();
        let zeros = self.call("ConstantOfShape", &[shape]);
        if element == ElementType::F32 { zeros } else { self.emitter.cast(&zeros, element) }
    }

    /// The integers of a constant list or number; `None` if only the run can tell.
    pub(super) fn known_ints(&self, value: &str) -> Option<Vec<i64>> {
        self.emitter.known_ints(value)
    }

    /// The error for a use of the operator that the rule does not cover.
    pub(super) fn refuse(&self, reason: String) -> AutodiffError {
        let (op, node) = (self.node.op_type.clone(), self.node.label().to_owned());
        AutodiffError::UnsupportedUse { op, node, reason }
    }

    /// Sums `grad`, which has the shape of the node's output, to the shape of input `index`.
    pub(super) fn summed_for(&mut self, grad: &str, index: usize) -> Result<String, AutodiffError> {
        let (value, from) = (self.input(index), self.dims(self.output())?);
        let to = self.dims(value)?;
        Ok(unbroadcast(self.emitter, grad, from, value, to))
    }

    /// Gives `grad` the shape of input `index`, which has as many elements.
    pub(super) fn reshape_to_input(&mut self, grad: &str, index: usize) -> Result<String, AutodiffError> {
        let value = self.input(index);
        let dims = self.types.get(value).map(|ty| ty.dims.as_slice());
        if dims.is_some_and(|dims| dims.contains(&Dim::Fixed(0))) {
            return Ok(self.zeros_like(value));
        }
        // One open dimension can be written as -1, which needs no computation in the graph.
        let few_open = |dims: &&[Dim]| dims.iter().filter(|dim| dim.fixed().is_none()).count() <= 1;
        if let Some(dims) = dims.filter(few_open) {
            let sizes =
                dims.iter().map(|dim| dim.fixed().and_then(|size| i64::try_from(size).ok()).unwrap_or(-1));
            let shape = self.emitter.ints(&sizes.collect::<Vec<i64>>());
            return Ok(self.call("Reshape", &[grad, &shape]));
        }
        let shape = self.call("Shape", &[value]);
        // A selection may be empty.
        Ok(self.emitter.op("Reshape", &[grad, &shape], &[attr_int("allowzero", 1)]))
    }
}
