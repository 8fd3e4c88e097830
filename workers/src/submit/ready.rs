//! Training graphs that were made elsewhere.

use syncline_autodiff::{AutodiffError, TrainingGraph, accept_ready};
use syncline_onnx::{DeclaredTypes, Dim};

use super::{SubmitError, model::Model, prepare::PreparedModel, read::read, training::Settings};

/// Takes a graph by the types that it declares; whether it loads shows on the workers.
pub(super) fn by_declared_types<'a>(
    model: &'a Model,
    settings: &Settings,
) -> Result<PreparedModel<'a>, SubmitError> {
    take(model, settings, |onnx, weights| Ok(accept_ready(&DeclaredTypes, onnx, weights)?))
}

/// Takes a graph that `accept` finds good: it is given the graph and first values. A forward model is none.
pub(super) fn take<'a>(
    model: &'a Model,
    settings: &Settings,
    accept: impl FnOnce(&[u8], Option<&[u8]>) -> Result<TrainingGraph, SubmitError>,
) -> Result<PreparedModel<'a>, SubmitError> {
    let Model::Ready { onnx, weights, misplaced } = model else { return Err(SubmitError::NeedsTrain) };
    let settings = [misplaced.clone(), settings.derivation_settings()].concat();
    if !settings.is_empty() {
        return Err(SubmitError::ReadySettings { settings: settings.join(", ") });
    }
    let onnx = read(onnx)?;
    let weights = weights.as_ref().map(read).transpose()?;
    let graph = accept(&onnx, weights.as_deref())?;
    check_dynamic_batch(&graph)?;
    Ok(PreparedModel { onnx, graph, missing_kernel: None })
}

/// A ready-made graph is not changed, so that its batch axis has to be open.
fn check_dynamic_batch(graph: &TrainingGraph) -> Result<(), AutodiffError> {
    for io in graph.data_inputs.iter().chain(&graph.label) {
        if let Some(size) = io.dims.first().and_then(Dim::fixed) {
            let reason = format!(
                "the first axis of input `{}` is fixed, and a training graph stays as it is",
                io.name
            );
            return Err(AutodiffError::FixedBatch { size, reason });
        }
    }
    Ok(())
}
