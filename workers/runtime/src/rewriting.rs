//! What a model is written as before it is compiled: so that threads cannot disturb each other, and in the
//! form that is fast on its device.

use syncline_kit::Device;
use syncline_onnx::{ModelProto, proto::NodeProto};

use crate::{
    cuda_form, nchwc,
    runtime::Runtime,
    scatter_add::{is_scatter_add, sequential_scatter_adds},
    session::{ExecOptions, Optimize},
};

/// Where planning the memory begins to take longer than a run on a small batch.
const MANY_NODES: usize = 2500;

/// The model in another form that computes the same; `None` if it stays as it is. Where a sum by index cannot
/// be made safe for several threads, `options` have one.
pub(crate) fn rewrite_for(
    runtime: &Runtime,
    model: &ModelProto,
    options: &mut ExecOptions,
) -> Option<ModelProto> {
    let mut rewritten = None;
    if options.intra_threads > 1 && nodes(model).any(is_scatter_add) {
        rewritten = sequential_scatter_adds(model);
        if nodes(rewritten.as_ref().unwrap_or(model)).any(is_scatter_add) {
            options.intra_threads = 1;
        }
    }
    if options.optimize != Optimize::All {
        return rewritten;
    }
    let written = rewritten.as_ref().unwrap_or(model);
    match options.device {
        Device::Cpu => nchwc::lanes(runtime).and_then(|lanes| nchwc::arrange(written, lanes)),
        Device::Cuda(_) => cuda_form::arrange(written),
    }
    .or(rewritten)
}

/// Whether to plan the memory of a model takes longer than to run it once or twice.
pub(crate) fn has_many_nodes(model: &ModelProto) -> bool {
    nodes(model).nth(MANY_NODES).is_some()
}

/// Every node of a model and of its functions.
fn nodes(model: &ModelProto) -> impl Iterator<Item = &NodeProto> {
    let functions = model.functions.iter().flat_map(|function| &function.node);
    model.graph.iter().flat_map(|graph| &graph.node).chain(functions)
}
