//! A training graph that needs less memory: cheap values are made again where the backward pass needs them,
//! instead of being kept from the forward pass.
//!
//! In: a finished training graph with the types of its values. Out: the same graph with copies of cheap
//! forward nodes just in front of their backward readers, and what both hold at most, see [`estimate`].
//! [`Plan`](plan::Plan) decides what is made again. ONNX Runtime would merge a copy with its original, or run
//! it too early: so a copy reads what is kept
//! through [`ControlDependencies::after`](control_dependency::ControlDependencies::after), behind the
//! gradient that its reader waits for.
//!
//! The same is used to compute the gradient of each parameter before the backward pass goes on: ONNX Runtime
//! may put off what no other node reads until the very end, and keep everything that it needs till then.
//!
//! Numbers do not change: the copies are the same operators on the same values.

mod control_dependency;
mod min_cut;
mod plan;
mod rewrite;

use serde::{Deserialize, Serialize};
use syncline_onnx::proto::ModelProto;
use syncline_onnx::{Compiler, Graph, infer_types};

use crate::error::AutodiffError;
use crate::estimate::{Estimate, estimate};
use crate::sizes::sizes;
use rewrite::Rewrite;

/// Size that open axes are taken to have where sizes are compared.
pub const NOMINAL_AXIS: usize = 32;

/// What a step costs without and with recomputation, open axes counted as [`NOMINAL_AXIS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saving {
    /// Cost where everything is kept from the forward pass.
    pub without: Estimate,
    /// Cost where cheap values are made again; equal to `without` where that would save no memory.
    pub with: Estimate,
}

/// Rewrites the model, unless that saves nothing. `cotangent`: the gradient that the backward pass begins
/// with; `param`: an input that is never empty. Costs three session loads.
pub(crate) fn recompute(
    compiler: &dyn Compiler,
    model: &mut ModelProto,
    cotangent: &str,
    param: &str,
) -> Result<Saving, AutodiffError> {
    let types = infer_types(compiler, &model.to_bytes())?;
    let mut sizes = sizes(compiler, model, NOMINAL_AXIS)?;
    let graph = model.graph.get_or_insert_default();
    let without = estimate(graph, &sizes);
    let source = Graph::from(graph.clone());
    let (Some(cotangent), Some(param)) = (source.value(cotangent), source.value(param)) else {
        return Ok(Saving { without, with: without });
    };
    let mut rewrite = Rewrite::new(&source, &types, &sizes, cotangent, param);
    for (node, _) in source.nodes() {
        rewrite.node(node);
    }
    let (rewritten, copies) = rewrite.finish();
    for (copy, original) in copies {
        if let Some(size) = sizes.get(&original) {
            sizes.insert(copy, size.clone());
        }
    }
    let with = estimate(&rewritten, &sizes);
    if with.peak_bytes >= without.peak_bytes {
        return Ok(Saving { without, with: without });
    }
    *graph = rewritten;
    Ok(Saving { without, with })
}
