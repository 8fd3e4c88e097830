//! Which weights of a forward model are trained.
//!
//! A model file does not say which of its constants are weights. By default a float32 constant with at least one axis
//! is, unless it holds numbers that no weight has (the infinities of an attention mask), or every node that reads it
//! does so where no gradient flows (the scales of a `Resize`, the running statistics of a `BatchNormalization`). A
//! weight that the loss does not depend on is trained as well: its gradient is zero.

use std::collections::HashMap;

use super::pattern::matches;
use super::training_form::statistics;
use crate::autodiff::emitter::captured;
use crate::autodiff::error::AutodiffError;
use crate::autodiff::options::DeriveOptions;
use crate::onnx::proto::{GraphProto, TensorProto};
use crate::onnx::{ElementType, ModelProto};

/// Beyond this size a number is taken for a mask's minus infinity.
const LARGEST_WEIGHT: f32 = 1e9;

/// Whether a constant of the model is trained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selected {
    pub name: String,
    /// Why it is not trained; `None` if it is.
    pub reason: Option<&'static str>,
}

/// Decides for each constant of a model, in the order of the file.
pub fn select(model: &ModelProto, options: &DeriveOptions) -> Result<Vec<Selected>, AutodiffError> {
    let empty = GraphProto::default();
    let graph = model.graph.as_ref().unwrap_or(&empty);
    for pattern in options.freeze.iter().chain(options.train.iter().flatten()) {
        let named =
            |tensor: &&TensorProto| tensor.element() == ElementType::F32 && matches(pattern, &tensor.name);
        if !graph.initializer.iter().any(|tensor| named(&tensor)) {
            return Err(AutodiffError::NoSuchParameter { name: pattern.clone() });
        }
    }
    let (uses, statistics) = (uses(graph), statistics(graph));
    let select = |tensor: &TensorProto| Selected {
        name: tensor.name.clone(),
        reason: match statistics.contains(&tensor.name) {
            true => Some("a running statistic"),
            false => reason(tensor, &uses, options),
        },
    };
    Ok(graph.initializer.iter().map(select).collect())
}

fn reason(tensor: &TensorProto, uses: &HashMap<&str, Uses>, options: &DeriveOptions) -> Option<&'static str> {
    let listed = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, &tensor.name));
    if tensor.element() != ElementType::F32 {
        return Some("not float32");
    }
    if listed(&options.freeze) {
        return Some("frozen");
    }
    if let Some(train) = &options.train {
        return (!listed(train)).then_some("not among those to train");
    }
    // Exporters write literal numbers as tensors without axes; a weight of that shape has to be named.
    if tensor.dims.is_empty() {
        return Some("a single number");
    }
    let uses = uses.get(tensor.name.as_str()).copied().unwrap_or_default();
    if uses.constant > 0 && uses.smooth == 0 {
        return Some("read only where no gradient flows");
    }
    let wild = |number: &f32| !number.is_finite() || number.abs() > LARGEST_WEIGHT;
    if tensor.to_f32().is_ok_and(|numbers| numbers.iter().any(wild)) {
        return Some("holds numbers of a mask");
    }
    None
}

/// How often a value is read where gradients flow, and where they do not.
#[derive(Debug, Clone, Copy, Default)]
struct Uses {
    smooth: usize,
    constant: usize,
}

fn uses(graph: &GraphProto) -> HashMap<&str, Uses> {
    let mut uses: HashMap<&str, Uses> = HashMap::new();
    for node in &graph.node {
        for (position, input) in node.input.iter().enumerate() {
            let entry = uses.entry(input).or_default();
            match reads_as_constant(&node.op_type, position) {
                true => entry.constant += 1,
                false => entry.smooth += 1,
            }
        }
        for input in captured(node) {
            uses.entry(input).or_default().smooth += 1;
        }
    }
    uses
}

/// Whether an operator reads this input without a derivative: a setting, or an operand of a comparison.
fn reads_as_constant(op: &str, position: usize) -> bool {
    match op {
        "BatchNormalization" => position > 2,
        "Clip" | "Dropout" | "Resize" | "Upsample" | "Tile" | "Expand" | "CumSum" => position > 0,
        "Pad" | "OneHot" => position > 1,
        "Range" | "ConstantOfShape" | "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual" | "Equal"
        | "ArgMax" | "ArgMin" | "Shape" | "Size" | "NonZero" | "IsNaN" | "IsInf" => true,
        _ => false,
    }
}
