//! What exporters write in a roundabout way, in plain operators.
//!
//! PyTorch's exporter turns `split` into SplitToSequence and one SequenceAt for each part. A gradient rule sees one
//! node at a time, so that such a sequence becomes one `Split`, where the lengths and all positions are constants.
//! Sequences that are used in another way stay, and are refused where a gradient has to flow through them.

use std::collections::HashMap;

use syncline_onnx::proto::{GraphProto, NodeProto, TensorProto};
use syncline_onnx::{Types, attr_int};

/// Longest sequence that becomes a `Split`.
const MOST_PARTS: usize = 1 << 12;

/// Rewrites the graph; returns whether anything has changed.
pub(crate) fn rewrite(graph: &mut GraphProto, types: &Types) -> bool {
    let constants = Constants::of(graph);
    let mut splits: Vec<Split> =
        graph.node.iter().filter_map(|node| Split::of(node, &constants, types)).collect();
    splits.retain_mut(|split| split.find_readers(graph, &constants));
    for split in &splits {
        split.apply(graph);
    }
    !splits.is_empty()
}

/// Integer constants by name.
pub(crate) struct Constants(HashMap<String, Vec<i64>>);

impl Constants {
    pub(crate) fn of(graph: &GraphProto) -> Self {
        let tensors = graph.initializer.iter().map(|tensor| (tensor.name.clone(), tensor));
        let value = |node: &'_ NodeProto| -> Option<TensorProto> {
            node.attribute.iter().find(|attribute| attribute.name == "value")?.t.clone()
        };
        let nodes = graph.node.iter().filter(|node| node.op_type == "Constant");
        let made = nodes.filter_map(|node| Some((node.output.first()?.clone(), value(node)?.to_i64()?)));
        Self(tensors.filter_map(|(name, tensor)| Some((name, tensor.to_i64()?))).chain(made).collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&[i64]> {
        self.0.get(name).map(Vec::as_slice)
    }
}

/// A SplitToSequence with known lengths.
struct Split {
    sequence: String,
    input: String,
    axis: i64,
    lengths: Vec<i64>,
    /// Whether the parts lose the axis.
    squeeze: bool,
    /// SequenceAt's output, and which part it takes.
    readers: Vec<(String, usize)>,
}

impl Split {
    fn of(node: &NodeProto, constants: &Constants, types: &Types) -> Option<Self> {
        if node.op_type != "SplitToSequence" {
            return None;
        }
        let (input, sequence) = (node.input.first()?, node.output.first()?);
        let axis = node.int("axis", 0);
        let dims = &types.get(input)?.dims;
        let place = if axis < 0 { axis.checked_add_unsigned(dims.len() as u64)? } else { axis };
        let size = || i64::try_from(dims.get(usize::try_from(place).ok()?)?.fixed()?).ok();
        let explicit = node.input.get(1).filter(|name| !name.is_empty());
        let lengths = match explicit.map(|name| (types.get(name), constants.get(name))) {
            None => vec![1; usize::try_from(size()?).ok().filter(|&parts| parts <= MOST_PARTS)?],
            // A number without axes is the length of every part but the last.
            Some((Some(ty), Some([length]))) if ty.dims.is_empty() => chunks(size()?, *length)?,
            Some((_, Some(lengths))) => lengths.to_vec(),
            Some((_, None)) => return None,
        };
        let fits = !lengths.is_empty() && lengths.len() <= MOST_PARTS;
        let squeeze = explicit.is_none() && node.int("keepdims", 1) == 0;
        let (sequence, input, readers) = (sequence.clone(), input.clone(), Vec::new());
        fits.then_some(Self { sequence, input, axis, lengths, squeeze, readers })
    }

    /// Finds the SequenceAt nodes; `false` if the sequence is read by anything else.
    fn find_readers(&mut self, graph: &GraphProto, constants: &Constants) -> bool {
        let uses = |names: &[String]| names.contains(&self.sequence);
        let nested = |node: &NodeProto| syncline_onnx::captured(node).contains(&self.sequence.as_str());
        let mut readers = Vec::new();
        for node in graph.node.iter().filter(|node| uses(&node.input) || nested(node)) {
            let position = node.input.get(1).and_then(|name| constants.get(name));
            let (Some([position]), "SequenceAt", Some(output)) =
                (position, node.op_type.as_str(), node.output.first())
            else {
                return false;
            };
            let parts = self.lengths.len();
            let position =
                if *position < 0 { position.saturating_add_unsigned(parts as u64) } else { *position };
            match usize::try_from(position) {
                Ok(part) if part < parts => readers.push((output.clone(), part)),
                _ => return false,
            }
        }
        self.readers = readers;
        graph.output.iter().all(|output| output.name != self.sequence)
    }

    /// Puts a `Split` in the place of the sequence, and a node in the place of each reader.
    fn apply(&self, graph: &mut GraphProto) {
        let name = |what: &str| format!("{}/{what}", self.sequence);
        let parts: Vec<String> = (0..self.lengths.len()).map(|part| name(&part.to_string())).collect();
        let (lengths, axes) = (name("lengths"), name("axes"));
        graph.initializer.push(TensorProto::from_i64(&lengths, &[self.lengths.len()], &self.lengths));
        if self.squeeze {
            graph.initializer.push(TensorProto::from_i64(&axes, &[1], &[self.axis]));
        }
        for node in &mut graph.node {
            let output = node.output.first().cloned().unwrap_or_default();
            if output == self.sequence {
                node.op_type = "Split".to_owned();
                node.input = vec![self.input.clone(), lengths.clone()];
                node.output.clone_from(&parts);
                node.attribute = vec![attr_int("axis", self.axis)];
            } else if let Some((_, part)) = self.readers.iter().find(|(reader, _)| *reader == output) {
                node.op_type = if self.squeeze { "Squeeze" } else { "Identity" }.to_owned();
                node.input =
                    std::iter::once(parts[*part].clone()).chain(self.squeeze.then(|| axes.clone())).collect();
                node.attribute.clear();
            }
        }
    }
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
        #[allow(clippy::type_complexity, reason = "a table")]
        let cases: [(Option<TensorProto>, i64, &[i64], &[&str], &[i64]); 4] = [
            (Some(TensorProto::from_i64("n", &[3], &[2, 3, 1])), 1, &[2, 0], &["Split", "Identity", "Identity"], &[2, 3, 1]),
            (Some(TensorProto::from_i64("n", &[], &[4])),        1, &[-1],   &["Split", "Identity"],             &[4, 2]),
            (None,                                               1, &[5],    &["Split", "Identity"],             &[1; 6]),
            (None,                                               0, &[5],    &["Split", "Squeeze"],              &[1; 6]),
        ];
        for (lengths, keep, positions, want, parts) in cases {
            let (mut graph, types) = graph(lengths, keep, positions);
            assert!(rewrite(&mut graph, &types));
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
        assert!(!rewrite(&mut beyond, &types), "there are two parts");
        let (mut zero, types) = graph(Some(TensorProto::from_i64("n", &[], &[0])), 1, &[0]);
        assert!(!rewrite(&mut zero, &types));
        let (mut whole, types) = graph(three(), 1, &[0]);
        whole.node[1].op_type = "SequenceLength".to_owned();
        assert!(!rewrite(&mut whole, &types));
        let (mut unknown, types) = graph(three(), 1, &[0]);
        unknown.initializer.clear();
        assert!(!rewrite(&mut unknown, &types));
    }
}
