//! Shapes of weights of two-dimensional convolutions: float32 inputs of the graph, also with their channels exchanged and
//! their kernel turned around, as the gradient of a convolution reads them.

use std::collections::HashMap;

use syncline_onnx::ElementType;
use syncline_onnx::proto::{DimensionValue, GraphProto, NodeProto, ValueInfoProto};

pub(super) struct Weights<'g> {
    shapes: HashMap<&'g str, [i64; 4]>,
    /// Constant lists of integers.
    lists: HashMap<&'g str, Vec<i64>>,
}

impl<'g> Weights<'g> {
    pub(super) fn of(graph: &'g GraphProto) -> Self {
        let lists =
            graph.initializer.iter().filter_map(|tensor| Some((tensor.name.as_str(), tensor.to_i64()?)));
        let constant =
            |input: &ValueInfoProto| graph.initializer.iter().any(|tensor| tensor.name == input.name);
        let shaped = graph.input.iter().filter_map(|input| Some((input, shape(input)?)));
        let shapes =
            shaped.filter(|(input, _)| !constant(input)).map(|(input, shape)| (input.name.as_str(), shape));
        Self { shapes: shapes.collect(), lists: lists.collect() }
    }

    /// Takes note of what a node makes of weights. Nodes come in their order.
    pub(super) fn follow(&mut self, node: &'g NodeProto) {
        let Some((output, &shape)) =
            node.output.first().zip(node.input.first().and_then(|input| self.shapes.get(input.as_str())))
        else {
            return;
        };
        let next = match node.op_type.as_str() {
            "Transpose" => exchanged(shape, node.ints("perm").unwrap_or_default()),
            "Slice" => self.turns_around(node).then_some(shape),
            _ => None,
        };
        if let Some(next) = next {
            self.shapes.insert(output, next);
        }
    }

    /// `[channels, channels per group, height, width]`.
    pub(super) fn shape(&self, value: &str) -> Option<[i64; 4]> {
        self.shapes.get(value).copied()
    }

    /// Whether a Slice runs along whole axes from their ends to their beginnings.
    fn turns_around(&self, node: &NodeProto) -> bool {
        let all = |input: usize, fits: fn(&i64) -> bool| {
            let list = node.input.get(input).and_then(|name| self.lists.get(name.as_str()));
            list.is_some_and(|list| list.iter().all(fits))
        };
        all(1, |start| *start == -1)
            && all(2, |end| *end <= i64::from(i32::MIN))
            && all(4, |step| *step == -1)
    }
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
