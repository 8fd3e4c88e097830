//! Pools that round their size up, where the last window would begin in the padding.
//!
//! No kernel makes such a window: it would see nothing of the image. Shape inference of operator sets before
//! 22 counts it all the same (seen in ONNX Runtime 1.31.1), so that every shape behind the pool is one too
//! large, and with it what rules write. Such a pool is written as one that rounds down, with as much padding
//! behind the image as its last window needs.

use std::collections::HashSet;

use syncline_onnx::proto::{GraphProto, NodeProto};
use syncline_onnx::{Dim, Types, attr_ints};

const POOLS: [&str; 3] = ["AveragePool", "LpPool", "MaxPool"];

/// Writes them so, and returns whether there was any. `opset`: the operator set that the graph speaks.
pub(super) fn round_down(graph: &mut GraphProto, types: &Types, opset: i64) -> bool {
    /// The first whose inference leaves such windows out.
    const RIGHT: i64 = 22;
    if opset >= RIGHT {
        return false;
    }
    // Pools that were written anew, and what stands behind them.
    let mut behind: HashSet<String> = HashSet::new();
    for node in &mut graph.node {
        let standard = node.domain.is_empty();
        let pool = standard && POOLS.contains(&node.op_type.as_str()) && node.int("ceil_mode", 0) != 0;
        if let Some(pads) = pool.then(|| pads(node, types)).flatten() {
            node.attribute.retain(|other| !["auto_pad", "ceil_mode", "pads"].contains(&other.name.as_str()));
            node.attribute.push(attr_ints("pads", &pads));
            behind.extend(node.output.iter().filter(|output| !output.is_empty()).cloned());
        } else if node.input.iter().any(|input| behind.contains(input)) {
            behind.extend(node.output.iter().filter(|output| !output.is_empty()).cloned());
        }
    }
    // Shapes that were inferred before would be held against those that are.
    graph.value_info.retain(|value| !behind.contains(&value.name));
    let outputs = graph.output.iter_mut().filter(|output| behind.contains(&output.name));
    for tensor in outputs.filter_map(|output| output.r#type.as_mut()?.tensor_type.as_mut()) {
        tensor.shape = None;
    }
    !behind.is_empty()
}

/// The padding with which the pool makes the same windows rounding down; `None` if it needs no other form, or
/// has none.
fn pads(node: &NodeProto, types: &Types) -> Option<Vec<i64>> {
    let image = types.get(node.input.first()?)?;
    let sizes: Option<Vec<i64>> = image.dims.iter().skip(2).map(fixed).collect();
    let (sizes, kernel) = (sizes?, node.ints("kernel_shape")?);
    let rank = kernel.len();
    let list = |name: &str, length: usize, default: i64| {
        let stated = node.ints(name).filter(|list| !list.is_empty());
        stated.map_or_else(|| vec![default; length], <[i64]>::to_vec)
    };
    let (strides, dilations) = (list("strides", rank, 1), list("dilations", rank, 1));
    let mut pads = match node.string("auto_pad", "NOTSET") {
        "NOTSET" | "" => list("pads", 2 * rank, 0),
        "VALID" => vec![0; 2 * rank],
        _ => return None,
    };
    let lengths = [sizes.len(), strides.len(), dilations.len(), pads.len() / 2];
    if lengths.iter().any(|length| *length != rank) || strides.iter().any(|stride| *stride < 1) {
        return None;
    }
    let counts_padding = node.int("count_include_pad", 0) != 0;
    let mut dropped = false;
    for at in 0..rank {
        let (begin, end) = (pads[at], pads[rank + at]);
        let reach = (kernel[at] - 1).checked_mul(dilations[at])?.checked_add(1)?;
        let room = sizes[at].checked_add(begin)?.checked_add(end)?.checked_sub(reach)?;
        if room < 0 {
            return None;
        }
        // Where the last window begins, in strides.
        let mut last = room.checked_add(strides[at] - 1)? / strides[at];
        if last > 0 && last * strides[at] >= sizes[at] + begin {
            last -= 1;
            dropped = true;
        }
        let needed = (last * strides[at] + reach - begin - sizes[at]).max(0);
        // What lies behind the stated padding does not count, and would then; ONNX Runtime takes no more than
        // a kernel.
        if counts_padding && needed > end || needed >= kernel[at] {
            return None;
        }
        pads[rank + at] = needed;
    }
    dropped.then_some(pads)
}

fn fixed(dim: &Dim) -> Option<i64> {
    i64::try_from(dim.fixed()?).ok()
}
