//! Sums over axes that are not side by side, as over everything but the channels of an image.
//!
//! The provider has kernels of its own for the first or the last axes of a tensor; all else goes through
//! cuDNN, at a seventh of the speed.

use syncline_onnx::proto::NodeProto;
use syncline_onnx::{Graph, attr_int};

/// Sums over the last axes that are side by side, then over the others.
pub(super) fn write(graph: &mut Graph, node: &NodeProto) -> Option<()> {
    let [x, axes] = node.input.as_slice() else { return None };
    let mut axes = graph.constant(graph.value(axes)?)?.to_i64()?;
    axes.sort_unstable();
    // Negative ones count from the back, so that nobody knows here which lie side by side.
    if axes.first().is_none_or(|&first| first < 0) {
        return None;
    }
    let gap = axes.windows(2).rposition(|pair| pair[1] - pair[0] != 1)?;
    let (front, behind) = axes.split_at(gap + 1);
    let (x, output) = (graph.value(x)?, graph.value(node.output.first()?)?);
    let keep = attr_int("keepdims", node.int("keepdims", 1));
    let (front, behind) = (graph.ints(front), graph.ints(behind));
    let part = graph.op("ReduceSum", &[x, behind], std::slice::from_ref(&keep));
    graph.op_as(output, "", "ReduceSum", &[part, front], &[keep]);
    Some(())
}
