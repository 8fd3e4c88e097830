//! Shapes of weights of two-dimensional convolutions: float32 inputs of the graph, also with their channels
//! exchanged and their kernel turned around, as the gradient of a convolution reads them.

use std::collections::HashMap;

use syncline_onnx::proto::{DimensionValue, NodeProto, ValueInfoProto};
use syncline_onnx::{ElementType, Graph, ValueId};

pub(super) struct Weights(HashMap<ValueId, [i64; 4]>);

impl Weights {
    pub(super) fn of(graph: &Graph) -> Self {
        let shaped = graph.graph_inputs().iter().filter_map(|input| {
            let value = graph.value(&input.name).filter(|value| graph.constant(*value).is_none())?;
            Some((value, shape(input)?))
        });
        Self(shaped.collect())
    }

    /// Takes note of what a node makes of weights. Nodes come in their order.
    pub(super) fn follow(&mut self, graph: &Graph, node: &NodeProto) {
        let value = |names: &[String]| names.first().and_then(|name| graph.value(name));
        let Some((output, shape)) =
            value(&node.output).zip(value(&node.input).and_then(|input| self.shape(input)))
        else {
            return;
        };
        let next = match node.op_type.as_str() {
            "Transpose" => exchanged(shape, node.ints("perm").unwrap_or_default()),
            "Slice" => turns_around(graph, node).then_some(shape),
            _ => None,
        };
        if let Some(next) = next {
            self.0.insert(output, next);
        }
    }

    /// `[channels, channels per group, height, width]`.
    pub(super) fn shape(&self, value: ValueId) -> Option<[i64; 4]> {
        self.0.get(&value).copied()
    }
}

/// Whether a Slice runs along whole axes from their ends to their beginnings.
fn turns_around(graph: &Graph, node: &NodeProto) -> bool {
    let all = |input: usize, fits: fn(&i64) -> bool| {
        let value = node.input.get(input).and_then(|name| graph.value(name));
        let list = value.and_then(|value| graph.constant(value)?.to_i64());
        list.is_some_and(|list| list.iter().all(fits))
    };
    all(1, |start| *start == -1) && all(2, |end| *end <= i64::from(i32::MIN)) && all(4, |step| *step == -1)
}

fn exchanged(shape: [i64; 4], order: &[i64]) -> Option<[i64; 4]> {
    let sizes = order.iter().map(|&axis| shape.get(usize::try_from(axis).ok()?).copied());
    sizes.collect::<Option<Vec<i64>>>()?.try_into().ok()
}

fn shape(input: &ValueInfoProto) -> Option<[i64; 4]> {
    let ty = input.r#type.as_ref()?.tensor_type.as_ref()?;
    if ElementType::from_code(ty.elem_type) != ElementType::F32 {
        return None;
    }
    let sizes = ty.shape.as_ref()?.dim.iter().map(|dim| match dim.value {
        Some(DimensionValue::Value(size)) if size > 0 => Some(size),
        _ => None,
    });
    sizes.collect::<Option<Vec<i64>>>()?.try_into().ok()
}
