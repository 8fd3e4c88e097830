//! GroupNormalization in parts of known shape.
//!
//! ONNX Runtime has no kernel for the operator: it writes out the operator's definition, whose last `Reshape`
//! it can give no shape, and every convolution behind it would be of unknown size. Here it is written as a
//! reshape to `[batch, groups, rest]`, an InstanceNormalization, and a reshape back to sizes that are known.
//! Those are found by passing over the operators: they do not change shapes. Costs a session load if the
//! model has any.

use syncline_onnx::proto::{ModelProto, NodeProto, TensorProto};
use syncline_onnx::{Compiler, Dim, ElementType, TensorType, Types, attr_float, infer_types};

use crate::emitter::Emitter;
use crate::error::AutodiffError;

const OP: &str = "GroupNormalization";

/// Writes out every GroupNormalization whose input has known sizes apart from its batch; others stay.
pub(crate) fn write_out_group_norms(
    compiler: &dyn Compiler,
    model: &mut ModelProto,
) -> Result<(), AutodiffError> {
    if !model.graph.iter().flat_map(|graph| &graph.node).any(is_group_norm) {
        return Ok(());
    }
    let mut passing = model.clone();
    for node in passing.graph.iter_mut().flat_map(|graph| &mut graph.node).filter(|node| is_group_norm(node))
    {
        node.input.truncate(1);
        node.attribute.clear();
        "Identity".clone_into(&mut node.op_type);
    }
    let types = infer_types(compiler, &passing.to_bytes())?;
    model.graph = model.graph.take().map(|graph| Emitter::write_out(graph, |e, node| parts(e, node, &types)));
    Ok(())
}

fn is_group_norm(node: &NodeProto) -> bool {
    node.op_type == OP && node.domain.is_empty()
}

/// Writes everything but the last node, which it returns under the name of the node it replaces.
fn parts(e: &mut Emitter, node: &NodeProto, types: &Types) -> Option<NodeProto> {
    let [x, scale, bias] = node.input.as_slice() else {
        return None;
    };
    if !is_group_norm(node) {
        return None;
    }
    let TensorType { element, dims } = types.get(x)?;
    let sizes: Option<Vec<i64>> = dims.iter().skip(1).map(|dim| dim.fixed()?.try_into().ok()).collect();
    let sizes = sizes.filter(|sizes| !sizes.is_empty())?;
    let (groups, channels) = (node.int("num_groups", 1), sizes[0]);
    let fits = groups > 0 && groups <= channels && channels % groups == 0;
    let count = usize::try_from(groups).ok().filter(|_| fits)?;
    let per_group = types.get(scale)?.dims.first().and_then(Dim::fixed)? == count;

    // Known, since a batch may be empty, of which no size could be left open.
    let rest = sizes.iter().fold(1, |all: i64, size| all.saturating_mul(*size)) / groups;
    let folded = e.ints(&[0, groups, rest]);
    let folded = e.op("Reshape", &[x, &folded], &[]);
    let mut all = |number: f32| {
        let all = e.constant(TensorProto::from_f32("", &[count], &vec![number; count]));
        if *element == ElementType::F32 { all } else { e.cast(&all, *element) }
    };
    let (ones, zeros) = (all(1.0), all(0.0));
    let (inner_scale, inner_bias) = if per_group { (scale, bias) } else { (&ones, &zeros) };
    let epsilon = attr_float("epsilon", node.float("epsilon", 1e-5));
    let hat = e.op("InstanceNormalization", &[&folded, inner_scale, inner_bias], &[epsilon]);
    let shape = e.ints(&[&[0], sizes.as_slice()].concat());
    let last = |op: &str, inputs: [&str; 2]| NodeProto {
        output: node.output.clone(),
        name: node.label().to_owned(),
        ..NodeProto::unnamed(op, &inputs, &[])
    };
    if per_group {
        return Some(last("Reshape", [&hat, &shape]));
    }
    let hat = e.op("Reshape", &[&hat, &shape], &[]);
    let column = [channels].into_iter().chain(sizes.iter().skip(1).map(|_| 1));
    let column = e.ints(&column.collect::<Vec<i64>>());
    let (scale, bias) = (e.op("Reshape", &[scale, &column], &[]), e.op("Reshape", &[bias, &column], &[]));
    let scaled = e.op("Mul", &[&hat, &scale], &[]);
    Some(last("Add", [&scaled, &bias]))
}
