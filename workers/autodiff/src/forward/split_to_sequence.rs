//! What exporters write in a roundabout way, in plain operators.
//!
//! PyTorch's exporter turns `split` into SplitToSequence and one SequenceAt for each part. A gradient rule
//! sees one node at a time, so that such a sequence becomes one `Split`, where the lengths and all positions
//! are constants. Sequences that are used in another way stay, and are refused where a gradient has to flow
//! through them.

use std::collections::HashMap;

use syncline_onnx::proto::{GraphProto, NodeProto, TensorProto};
use syncline_onnx::{Graph, NodeId, Types, ValueId, attr_int};

/// Longest sequence that becomes a `Split`.
const MOST_PARTS: usize = 1 << 12;

/// Rewrites the graph; returns whether anything has changed.
pub(crate) fn write_splits(graph: &mut GraphProto, types: &Types) -> bool {
    if !graph.node.iter().any(|node| node.op_type == SEQUENCE) {
        return false;
    }
    let mut written = Graph::from(std::mem::take(graph));
    let nodes: Vec<NodeId> = written.nodes().map(|(node, _)| node).collect();
    let splits = nodes.iter().filter_map(|node| Some((*node, Split::of(&written, *node, types)?)));
    let splits: HashMap<NodeId, Split> = splits.collect();
    let readers =
        splits.values().flat_map(|split| split.readers.iter().map(move |(id, part)| (*id, (split, *part))));
    let readers: HashMap<NodeId, (&Split, usize)> = readers.collect();
    for (id, mut node) in nodes.into_iter().zip(written.take_nodes()) {
        if let Some(split) = splits.get(&id) {
            split.write(&mut written, &mut node);
        } else if let Some((split, part)) = readers.get(&id) {
            split.write_reader(&mut node, *part);
        }
        written.push(node);
    }
    *graph = written.into();
    !splits.is_empty()
}

/// The operator whose result is a sequence of parts.
const SEQUENCE: &str = "SplitToSequence";

/// A SplitToSequence with known lengths.
struct Split {
    sequence: String,
    input: String,
    axis: i64,
    lengths: Vec<i64>,
    /// Whether the parts lose the axis.
    squeeze: bool,
    /// SequenceAt nodes, and which part each takes.
    readers: Vec<(NodeId, usize)>,
}

impl Split {
    fn of(graph: &Graph, id: NodeId, types: &Types) -> Option<Self> {
        let node = graph.node(id);
        if node.op_type != SEQUENCE {
            return None;
        }
        let (input, sequence) = (node.input.first()?, node.output.first()?);
        let axis = node.int("axis", 0);
        let dims = &types.get(input)?.dims;
        let axis = if axis < 0 { axis.checked_add_unsigned(dims.len() as u64)? } else { axis };
        let size = || i64::try_from(dims.get(usize::try_from(axis).ok()?)?.fixed()?).ok();
        let explicit = node.input.get(1).filter(|name| !name.is_empty());
        let lengths = match explicit.map(|name| (types.get(name), ints(graph, name))) {
            None => vec![1; usize::try_from(size()?).ok().filter(|&parts| parts <= MOST_PARTS)?],
            Some((_, None)) => return None,
            Some((ty, Some(lengths))) => match (ty, lengths.as_slice()) {
                // A number without axes is the length of every part but the last.
                (Some(ty), [length]) if ty.dims.is_empty() => chunks(size()?, *length)?,
                _ => lengths,
            },
        };
        if lengths.is_empty() || lengths.len() > MOST_PARTS {
            return None;
        }
        let squeeze = explicit.is_none() && node.int("keepdims", 1) == 0;
        let readers = readers(graph, *graph.outputs(id).first()?, lengths.len())?;
        Some(Self { sequence: sequence.clone(), input: input.clone(), axis, lengths, squeeze, readers })
    }

    /// Turns the node into a `Split`.
    fn write(&self, graph: &mut Graph, node: &mut NodeProto) {
        let lengths = self.inner("lengths");
        graph.push_constant(TensorProto::from_i64(&lengths, &[self.lengths.len()], &self.lengths));
        if self.squeeze {
            graph.push_constant(TensorProto::from_i64(&self.inner("axes"), &[1], &[self.axis]));
        }
        "Split".clone_into(&mut node.op_type);
        node.input = vec![self.input.clone(), lengths];
        node.output = (0..self.lengths.len()).map(|part| self.inner(&part.to_string())).collect();
        node.attribute = vec![attr_int("axis", self.axis)];
    }

    /// Lets a reader of the sequence read its part.
    fn write_reader(&self, node: &mut NodeProto, part: usize) {
        node.op_type = if self.squeeze { "Squeeze" } else { "Identity" }.to_owned();
        node.input = vec![self.inner(&part.to_string())];
        node.input.extend(self.squeeze.then(|| self.inner("axes")));
        node.attribute.clear();
    }

    fn inner(&self, what: &str) -> String {
        format!("{}/{what}", self.sequence)
    }
}

/// The SequenceAt nodes that read a sequence of so many parts; `None` if it is read by anything else.
fn readers(graph: &Graph, sequence: ValueId, parts: usize) -> Option<Vec<(NodeId, usize)>> {
    if graph.graph_outputs().any(|output| output == sequence) {
        return None;
    }
    let reader = |&id: &NodeId| {
        let node = graph.node(id);
        let position = ints(graph, node.input.get(1)?)?;
        let ([position], "SequenceAt", 1) = (position.as_slice(), node.op_type.as_str(), node.output.len())
        else {
            return None;
        };
        let position = if *position < 0 { position.saturating_add_unsigned(parts as u64) } else { *position };
        let part = usize::try_from(position).ok().filter(|part| *part < parts)?;
        Some((id, part))
    };
    graph.consumers(sequence).iter().map(reader).collect()
}

/// The numbers of an integer constant.
fn ints(graph: &Graph, name: &str) -> Option<Vec<i64>> {
    graph.constant(graph.value(name)?)?.to_i64()
}

/// Lengths of the parts of `size` with `length` each.
fn chunks(size: i64, length: i64) -> Option<Vec<i64>> {
    if length <= 0 || size < 0 || size / length > MOST_PARTS as i64 {
        return None;
    }
    let whole = std::iter::repeat_n(length, usize::try_from(size / length).ok()?);
    Some(whole.chain((size % length > 0).then_some(size % length)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_onnx::{Dim, ElementType, GraphBuilder, TensorType};

    /// x [batch, 6] -> SplitToSequence -> SequenceAt of each position.
    fn graph(lengths: Option<TensorProto>, keep: i64, positions: &[i64]) -> (GraphProto, Types) {
        let mut graph = GraphBuilder::new("sequence");
        let x = graph.input("x", ElementType::F32, &["batch".into(), 6.into()]);
        let mut types =
            Types::from([(x.clone(), TensorType::new(ElementType::F32, vec!["batch".into(), 6.into()]))]);
        let lengths = lengths.map(|tensor| {
            let dims = tensor.shape().into_iter().map(Dim::Fixed).collect();
            types.insert(tensor.name.clone(), TensorType::new(ElementType::I64, dims));
            graph.constant(tensor)
        });
        let inputs: Vec<&str> = [x.as_str()].into_iter().chain(lengths.as_deref()).collect();
        let attributes = [attr_int("axis", -1), attr_int("keepdims", keep)];
        let sequence = graph.named("parts", "SplitToSequence", &inputs, &attributes);
        for (index, position) in positions.iter().enumerate() {
            let at = graph.constant(TensorProto::from_i64(&format!("at{index}"), &[], &[*position]));
            let part = graph.op("SequenceAt", &[&sequence, &at], &[]);
            graph.output(&part);
        }
        (graph.finish().graph.unwrap(), types)
    }

    fn ops(graph: &GraphProto) -> Vec<&str> {
        graph.node.iter().map(|node| node.op_type.as_str()).collect()
    }

    #[test]
    fn a_split_into_known_parts_becomes_one_split() {
        #[rustfmt::skip]
        let cases: [(Option<TensorProto>, i64, &[i64], &[&str], &[i64]); 4] = [
            (Some(TensorProto::from_i64("n", &[3], &[2, 3, 1])), 1, &[2, 0], &["Split", "Identity", "Identity"], &[2, 3, 1]),
            (Some(TensorProto::from_i64("n", &[], &[4])),        1, &[-1],   &["Split", "Identity"],             &[4, 2]),
            (None,                                               1, &[5],    &["Split", "Identity"],             &[1; 6]),
            (None,                                               0, &[5],    &["Split", "Squeeze"],              &[1; 6]),
        ];
        for (lengths, keep, positions, want, parts) in cases {
            let (mut graph, types) = graph(lengths, keep, positions);
            assert!(write_splits(&mut graph, &types));
            assert_eq!(ops(&graph), want);
            let sizes = graph.initializer.iter().find(|tensor| tensor.name == "parts/lengths").unwrap();
            assert_eq!(sizes.to_i64().unwrap(), parts);
            let last = positions[0].rem_euclid(parts.len() as i64) as usize;
            assert_eq!(graph.node[1].input[0], graph.node[0].output[last]);
        }
    }

    #[test]
    fn other_uses_of_a_sequence_stay() {
        let three = || Some(TensorProto::from_i64("n", &[], &[3]));
        let (mut beyond, types) = graph(three(), 1, &[2]);
        assert!(!write_splits(&mut beyond, &types), "there are two parts");
        let (mut zero, types) = graph(Some(TensorProto::from_i64("n", &[], &[0])), 1, &[0]);
        assert!(!write_splits(&mut zero, &types));
        let (mut whole, types) = graph(three(), 1, &[0]);
        whole.node[1].op_type = "SequenceLength".to_owned();
        assert!(!write_splits(&mut whole, &types));
        let (mut unknown, types) = graph(three(), 1, &[0]);
        unknown.initializer.clear();
        assert!(!write_splits(&mut unknown, &types));
    }
}
