//! Gradient rules, one operator per file; near relatives (activations, reductions) share one.
//!
//! A rule gets a forward node and the gradients of its outputs, and writes the gradients of its inputs. It
//! may read every forward value, outputs included: a rule that uses the output instead of the input lets ONNX
//! Runtime fuse the forward pair (Gemm + Relu) and free the input early.

mod activations;
mod add;
mod attention;
mod batch_norm;
mod cast;
mod clip;
mod concat;
mod conv;
mod conv_transpose;
mod cumsum;
mod depth_space;
mod div;
mod dropout;
mod einsum;
mod elementary;
mod error_function;
mod expand;
mod flatten;
mod float64_form;
mod gather;
mod gelu;
mod gemm;
mod global_pool;
mod group_norm;
mod identity;
mod interpolation;
mod layer_norm;
mod lengths;
mod log_softmax;
mod lp_norm;
mod matmul;
mod max_pool;
mod mean_pool;
mod min_max;
mod mul;
mod node_grad;
mod normalized;
mod pad;
mod positions;
mod pow;
mod prelu;
mod recurrent;
mod reduce_prod;
mod reductions;
mod relu;
mod reshape;
mod resize;
mod scatter;
mod select;
mod sigmoid;
mod slice;
mod softmax;
mod split;
mod squeeze;
mod sub;
mod sum;
mod tanh;
mod tile;
mod top_k;
mod transpose;
mod trilu;
mod window;
mod zero;

pub use float64_form::float64_form;
pub(super) use node_grad::NodeGrad;

use super::error::AutodiffError;

/// Gradients of a node's inputs; `None` for an input without one. May be shorter than the inputs.
type InputGrads = Vec<Option<String>>;
/// A rule for an operator whose first output alone carries a gradient, which is the second argument.
type Rule = fn(&mut NodeGrad<'_>, &str) -> Result<InputGrads, AutodiffError>;
/// A rule for an operator with several outputs; called when any has a gradient, see `NodeGrad::outputs`.
type JointRule = fn(&mut NodeGrad<'_>) -> Result<InputGrads, AutodiffError>;

/// Every operator of the standard with a gradient.
const RULES: &[(&str, Rule)] = &[
    ("Abs", elementary::abs),
    ("Acos", elementary::acos),
    ("Acosh", elementary::acosh),
    ("Add", add::rule),
    ("Asin", elementary::asin),
    ("Asinh", elementary::asinh),
    ("Atan", elementary::atan),
    ("Atanh", elementary::atanh),
    ("Attention", attention::rule),
    ("AveragePool", mean_pool::average),
    ("BatchNormalization", batch_norm::rule),
    ("Cast", cast::rule),
    ("CastLike", cast::rule),
    ("Ceil", zero::rule),
    ("Celu", activations::celu),
    ("Clip", clip::rule),
    ("Compress", positions::rule),
    ("Concat", concat::rule),
    ("Conv", conv::rule),
    ("ConvTranspose", conv_transpose::rule),
    ("Cos", elementary::cos),
    ("Cosh", elementary::cosh),
    ("CumSum", cumsum::rule),
    ("DepthToSpace", depth_space::to_space),
    ("Div", div::rule),
    ("Dropout", dropout::rule),
    ("Einsum", einsum::rule),
    ("Elu", activations::elu),
    ("Erf", elementary::erf),
    ("Exp", elementary::exp),
    ("Expand", expand::rule),
    ("EyeLike", zero::rule),
    ("Flatten", flatten::rule),
    ("Floor", zero::rule),
    ("Gather", gather::gather),
    ("GatherElements", gather::elements),
    ("GatherND", gather::nd),
    ("Gelu", gelu::rule),
    ("Gemm", gemm::rule),
    ("GlobalAveragePool", global_pool::average),
    ("GlobalLpPool", global_pool::power),
    ("GlobalMaxPool", global_pool::max),
    ("GroupNormalization", group_norm::group),
    ("HardSigmoid", activations::hard_sigmoid),
    ("HardSwish", activations::hard_swish),
    ("Hardmax", zero::rule),
    ("Identity", identity::rule),
    ("InstanceNormalization", group_norm::instance),
    ("LayerNormalization", layer_norm::layer),
    ("LeakyRelu", activations::leaky_relu),
    ("Log", elementary::log),
    ("LogSoftmax", log_softmax::rule),
    ("LpNormalization", lp_norm::rule),
    ("LpPool", mean_pool::power),
    ("MatMul", matmul::rule),
    ("Max", min_max::rule),
    ("MaxPool", max_pool::rule),
    ("Mean", sum::mean),
    ("Min", min_max::rule),
    ("Mish", activations::mish),
    ("Mul", mul::rule),
    ("Neg", elementary::neg),
    ("PRelu", prelu::rule),
    ("Pad", pad::rule),
    ("Pow", pow::rule),
    ("RMSNormalization", layer_norm::rms),
    ("RandomNormalLike", zero::rule),
    ("RandomUniformLike", zero::rule),
    ("Reciprocal", elementary::reciprocal),
    ("ReduceL1", reductions::l1),
    ("ReduceL2", reductions::l2),
    ("ReduceLogSum", reductions::log_sum),
    ("ReduceLogSumExp", reductions::log_sum_exp),
    ("ReduceMax", reductions::extreme),
    ("ReduceMean", reductions::mean),
    ("ReduceMin", reductions::extreme),
    ("ReduceProd", reduce_prod::rule),
    ("ReduceSum", reductions::sum),
    ("ReduceSumSquare", reductions::sum_square),
    ("Relu", relu::rule),
    ("Reshape", reshape::rule),
    ("Resize", resize::rule),
    ("ReverseSequence", positions::rule),
    ("Round", zero::rule),
    ("ScatterElements", scatter::elements),
    ("ScatterND", scatter::nd),
    ("Selu", activations::selu),
    ("Sigmoid", sigmoid::rule),
    ("Sign", zero::rule),
    ("Sin", elementary::sin),
    ("Sinh", elementary::sinh),
    ("Slice", slice::rule),
    ("Softmax", softmax::rule),
    ("Softplus", activations::softplus),
    ("Softsign", activations::softsign),
    ("SpaceToDepth", depth_space::to_depth),
    ("Sqrt", elementary::sqrt),
    ("Squeeze", squeeze::rule),
    ("Sub", sub::rule),
    ("Sum", sum::sum),
    ("Swish", activations::swish),
    ("Tan", elementary::tan),
    ("Tanh", tanh::rule),
    ("ThresholdedRelu", activations::thresholded_relu),
    ("Tile", tile::rule),
    ("TopK", top_k::rule),
    ("Transpose", transpose::rule),
    ("Trilu", trilu::rule),
    ("Unsqueeze", squeeze::rule),
    ("Where", select::rule),
];

/// Those with more than one output that carries a gradient.
const JOINT_RULES: &[(&str, JointRule)] =
    &[("GRU", recurrent::gru), ("LSTM", recurrent::lstm), ("RNN", recurrent::rnn), ("Split", split::rule)];

/// Names of the operators that may stand between a parameter and the loss, in alphabetical order.
pub fn supported_operators() -> Vec<&'static str> {
    let mut names: Vec<&str> =
        RULES.iter().map(|(op, _)| *op).chain(JOINT_RULES.iter().map(|(op, _)| *op)).collect();
    names.sort_unstable();
    names
}

/// Applies the rule of the node's operator.
pub(super) fn apply(node_grad: &mut NodeGrad<'_>) -> Result<InputGrads, AutodiffError> {
    let (node, outputs) = (node_grad.node, node_grad.outputs);
    let standard = node.domain.is_empty();
    if let Some((_, rule)) = JOINT_RULES.iter().find(|(op, _)| standard && *op == node.op_type) {
        return rule(node_grad);
    }
    let Some((_, rule)) = RULES.iter().find(|(op, _)| standard && *op == node.op_type) else {
        return Err(AutodiffError::Unsupported {
            op: if standard { node.op_type.clone() } else { format!("{}.{}", node.domain, node.op_type) },
            node: node.label().to_owned(),
        });
    };
    if let Some(index) = outputs.iter().skip(1).position(Option::is_some) {
        return Err(node_grad.refuse(format!("the loss depends on its output {}", index + 2)));
    }
    match outputs.first() {
        Some(Some(grad)) => rule(node_grad, grad),
        _ => Ok(Vec::new()),
    }
}
