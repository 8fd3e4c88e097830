//! Mixed precision: the heavy part of a training graph in 16 bits, everything that decides about numbers in 32.
//!
//! In: a finished training graph in float32. Out: the same interface (parameters, gradients, loss, metrics and running
//! statistics stay float32), inside
//!
//! | what | type |
//! |---|---|
//! | products and convolutions | 16 bits; their operands are cast, parameters too |
//! | element by element and by position, between products | 16 bits |
//! | reductions, normalisation, softmax, loss, squares, powers, quotients, what leads to none of the above | float32 |
//!
//! A value that a residual connection adds up from an embedding on stays float32.
//!
//! `low_nodes` draws the line. float16 has few exponents, see `scaled_loss`; bfloat16 has those of float32, but fewer
//! operators of the standard and of ONNX Runtime's CUDA provider know it (docs/OperatorKernels.md of ONNX Runtime).
//! Source: Micikevicius et al., Mixed precision training, ICLR 2018, arXiv:1710.03740.

mod low_nodes;
mod scaled_loss;

pub use self::scaled_loss::FIRST_LOSS_SCALE;
pub(crate) use self::scaled_loss::scale_loss;

use std::collections::{HashMap, HashSet};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use syncline_onnx::proto::{ModelProto, NodeProto};
use syncline_onnx::{ElementType, TensorType, Types, attr_int, captured};

use crate::error::AutodiffError;
use low_nodes::{Table, element, low_nodes, operands};

/// Element type of the heavy part of a training graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    #[default]
    F32,
    Bf16,
    Fp16,
}

impl Precision {
    /// The name that jobs and flags use.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
        }
    }
}

impl FromStr for Precision {
    type Err = AutodiffError;

    fn from_str(name: &str) -> Result<Self, AutodiffError> {
        let all = [Self::F32, Self::Bf16, Self::Fp16];
        let found = all.into_iter().find(|precision| precision.name() == name);
        found.ok_or_else(|| AutodiffError::UnknownPrecision { name: name.to_owned() })
    }
}

/// Lets the heavy part compute in 16 bits. `params`: inputs that may be rounded. Whatever the precision, the type that is
/// written is float16, which ONNX Runtime can check on every machine; see [`write_bf16`].
pub(crate) fn lower(
    model: &mut ModelProto,
    types: &Types,
    precision: Precision,
    params: &[String],
) -> Result<(), AutodiffError> {
    let half = |ty: &TensorType| matches!(ty.element, ElementType::F16 | ElementType::Bf16);
    if let Some((value, _)) = types.iter().find(|(_, ty)| half(ty)) {
        return Err(AutodiffError::AlreadyHalf { value: value.clone() });
    }
    let table = Table { precision, opset: model.opset() };
    let graph = model.graph.get_or_insert_default();
    let low = low_nodes(graph, types, &table, params);
    let outputs = graph.output.iter().map(|output| output.name.clone());
    let fixed = outputs.chain(graph.node.iter().flat_map(captured).map(str::to_owned)).collect();
    let mut writer =
        Writer { types, fixed, nodes: Vec::new(), lowered: HashMap::new(), raised: HashMap::new() };
    for (node, low) in std::mem::take(&mut graph.node).into_iter().zip(low) {
        if low { writer.low(node) } else { writer.full(node) }
    }
    graph.node = writer.nodes;
    Ok(())
}

/// Turns float16 into bfloat16, in a graph that [`lower`] wrote.
pub(crate) fn write_bf16(model: &mut ModelProto) {
    let (from, to) = (ElementType::F16.code(), ElementType::Bf16.code());
    let graph = model.graph.get_or_insert_default();
    let casts = graph.node.iter_mut().filter(|node| node.op_type == "Cast");
    for attribute in casts.flat_map(|node| &mut node.attribute) {
        if attribute.i == Some(from.into()) {
            attribute.i = Some(to.into());
        }
    }
    let declared = graph.value_info.iter_mut().filter_map(|info| info.r#type.as_mut()?.tensor_type.as_mut());
    declared.filter(|tensor| tensor.elem_type == from).for_each(|tensor| tensor.elem_type = to);
}

/// Writes nodes with casts between the precisions.
struct Writer<'t> {
    types: &'t Types,
    /// Values that must keep their name and type: outputs, and what subgraphs read.
    fixed: HashSet<String>,
    nodes: Vec<NodeProto>,
    /// Value of float32 -> the same in 16 bits, or itself where it was made so.
    lowered: HashMap<String, String>,
    /// Value that was made in 16 bits -> the same in float32, once somebody asked.
    raised: HashMap<String, Option<String>>,
}

impl Writer<'_> {
    fn low(&mut self, mut node: NodeProto) {
        let operands: HashSet<String> = operands(&node, self.types).cloned().collect();
        for input in node.input.iter_mut().filter(|input| operands.contains(*input)) {
            *input = self.lowered(input);
        }
        let floats = |types: &Types, value: &String| element(types, Some(value)) == Some(ElementType::F32);
        let mut published = Vec::new();
        for output in node.output.iter_mut().filter(|output| floats(self.types, output)) {
            if self.fixed.contains(output.as_str()) {
                let inner = format!("syncline/low/{output}");
                published.push((inner.clone(), output.clone()));
                self.lowered.insert(output.clone(), inner.clone());
                *output = inner.clone();
                // The cast takes the name over.
                node.name = inner;
            } else {
                self.lowered.insert(output.clone(), output.clone());
                self.raised.insert(output.clone(), None);
            }
        }
        self.nodes.push(node);
        for (inner, output) in published {
            self.nodes.push(cast(&inner, ElementType::F32, &output));
        }
    }

    fn full(&mut self, mut node: NodeProto) {
        for input in &mut node.input {
            *input = self.raised(input);
        }
        self.nodes.push(node);
    }

    fn lowered(&mut self, value: &str) -> String {
        if let Some(known) = self.lowered.get(value) {
            return known.clone();
        }
        let low = format!("syncline/low/{value}");
        self.nodes.push(cast(value, ElementType::F16, &low));
        self.lowered.insert(value.to_owned(), low.clone());
        low
    }

    fn raised(&mut self, value: &str) -> String {
        match self.raised.get(value) {
            None => value.to_owned(),
            Some(Some(known)) => known.clone(),
            Some(None) => {
                let full = format!("syncline/full/{value}");
                self.nodes.push(cast(value, ElementType::F32, &full));
                self.raised.insert(value.to_owned(), Some(full.clone()));
                full
            }
        }
    }
}

fn cast(value: &str, to: ElementType, output: &str) -> NodeProto {
    NodeProto::named(output, "Cast", &[value], &[attr_int("to", i64::from(to.code()))])
}
