//! Gradient rules, one operator per file.
//!
//! A rule gets a forward node and the gradients of its outputs, and writes the gradients of its inputs. It may read
//! every forward value, outputs included: a rule that uses the output instead of the input lets ONNX Runtime fuse the
//! forward pair (Gemm + Relu) and free the input early.

mod add;
mod attention;
mod batch_norm;
mod conv;
mod conv_transpose;
mod dropout;
mod einsum;
mod flatten;
mod gemm;
mod global_pool;
mod group_norm;
mod identity;
mod interpolation;
mod layer_norm;
mod lp_norm;
mod matmul;
mod max_pool;
mod mean_pool;
mod mul;
mod normalised;
mod relu;
mod reshape;
mod resize;
mod sigmoid;
mod softmax;
mod sub;
mod tanh;
mod window;

use super::broadcast::unbroadcast;
use super::emitter::Emitter;
use super::error::AutodiffError;
use crate::backend::Types;
use crate::onnx::proto::NodeProto;
use crate::onnx::{Dim, ElementType};

/// Gradients of a node's inputs; `None` for an input without one. May be shorter than the inputs.
type InputGrads = Vec<Option<String>>;
/// A rule; called only when the first output has a gradient, which is its second argument.
type Rule = fn(&mut NodeGrad<'_>, &str) -> Result<InputGrads, AutodiffError>;

/// Every operator of the standard with a gradient.
const RULES: &[(&str, Rule)] = &[
    ("Add", add::rule),
    ("Attention", attention::rule),
    ("AveragePool", mean_pool::average),
    ("BatchNormalization", batch_norm::rule),
    ("Conv", conv::rule),
    ("ConvTranspose", conv_transpose::rule),
    ("Dropout", dropout::rule),
    ("Einsum", einsum::rule),
    ("Flatten", flatten::rule),
    ("Gemm", gemm::rule),
    ("GlobalAveragePool", global_pool::average),
    ("GlobalLpPool", global_pool::power),
    ("GlobalMaxPool", global_pool::max),
    ("GroupNormalization", group_norm::group),
    ("Identity", identity::rule),
    ("InstanceNormalization", group_norm::instance),
    ("LayerNormalization", layer_norm::layer),
    ("LpNormalization", lp_norm::rule),
    ("LpPool", mean_pool::power),
    ("MatMul", matmul::rule),
    ("MaxPool", max_pool::rule),
    ("Mul", mul::rule),
    ("RMSNormalization", layer_norm::rms),
    ("Relu", relu::rule),
    ("Reshape", reshape::rule),
    ("Resize", resize::rule),
    ("Sigmoid", sigmoid::rule),
    ("Softmax", softmax::rule),
    ("Sub", sub::rule),
    ("Tanh", tanh::rule),
];

/// Names of the operators that may stand between a parameter and the loss.
pub fn supported_operators() -> Vec<&'static str> {
    RULES.iter().map(|(op, _)| *op).collect()
}

/// A forward node on its way back.
pub(super) struct NodeGrad<'a> {
    pub(super) emitter: &'a mut Emitter,
    pub(super) node: &'a NodeProto,
    pub(super) types: &'a Types,
    /// Gradient of each output; `None` where the loss does not depend on it.
    pub(super) outputs: &'a [Option<String>],
    /// Which inputs want a gradient.
    pub(super) needs: &'a [bool],
}

/// Applies the rule of the node's operator.
pub(super) fn apply(node_grad: &mut NodeGrad<'_>) -> Result<InputGrads, AutodiffError> {
    let node = node_grad.node;
    let standard = node.domain.is_empty() || node.domain == "ai.onnx";
    let rule = RULES.iter().find(|(op, _)| standard && *op == node.op_type);
    let Some((_, rule)) = rule else {
        return Err(AutodiffError::Unsupported {
            op: if standard { node.op_type.clone() } else { format!("{}.{}", node.domain, node.op_type) },
            node: node.label().to_owned(),
            supported: supported_operators(),
        });
    };
    match node_grad.outputs.first() {
        Some(Some(grad)) => rule(node_grad, grad),
        _ => Ok(Vec::new()),
    }
}

impl<'a> NodeGrad<'a> {
    /// Name of input `index`; empty if it is left out.
    fn input(&self, index: usize) -> &'a str {
        self.node.input.get(index).map_or("", String::as_str)
    }

    /// Name of the first output.
    fn output(&self) -> &'a str {
        self.node.output.first().map_or("", String::as_str)
    }

    /// Whether input `index` is there and wants a gradient.
    fn needs(&self, index: usize) -> bool {
        self.needs.get(index).copied().unwrap_or(false)
    }

    /// Shape of a forward value.
    fn dims(&self, value: &str) -> Result<&'a [Dim], AutodiffError> {
        let ty = self.types.get(value);
        ty.map(|ty| ty.dims.as_slice())
            .ok_or_else(|| self.refuse(format!("the shape of `{value}` is not known")))
    }

    /// Element type of the node's output.
    fn element(&self) -> ElementType {
        self.types.get(self.output()).map_or(ElementType::F32, |ty| ty.element)
    }

    /// The error for a use of the operator that the rule does not cover.
    fn refuse(&self, reason: String) -> AutodiffError {
        let (op, node) = (self.node.op_type.clone(), self.node.label().to_owned());
        AutodiffError::UnsupportedUse { op, node, reason }
    }

    /// Sums `grad`, which has the shape of the node's output, to the shape of input `index`.
    fn summed_for(&mut self, grad: &str, index: usize) -> Result<String, AutodiffError> {
        let (value, from) = (self.input(index), self.dims(self.output())?);
        let to = self.dims(value)?;
        Ok(unbroadcast(self.emitter, grad, from, value, to))
    }

    /// Gives `grad` the shape of input `index`, which has as many elements.
    fn reshape_to_input(&mut self, grad: &str, index: usize) -> Result<String, AutodiffError> {
        let value = self.input(index);
        let dims = self.dims(value)?;
        // One open dimension can be written as -1, which needs no computation in the graph.
        let shape = if dims.iter().filter(|dim| dim.fixed().is_none()).count() <= 1 {
            let sizes =
                dims.iter().map(|dim| dim.fixed().and_then(|size| i64::try_from(size).ok()).unwrap_or(-1));
            self.emitter.ints(&sizes.collect::<Vec<i64>>())
        } else {
            self.emitter.op("Shape", &[value], &[])
        };
        Ok(self.emitter.op("Reshape", &[grad, &shape], &[]))
    }
}
