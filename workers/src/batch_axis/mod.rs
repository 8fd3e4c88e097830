//! Forward models that were exported for one batch size, made to take any.
//!
//! A job feeds batches of other sizes: the last one of an epoch, those of policies that balance the load,
//! those of an evaluation. [`open_batch`] opens the first axis of every data input and changes what the
//! exporter has computed from its size (`rewrite`). That is a guess, so that it is proved: the opened model
//! runs on one sample more than the original, and has to make of the others what the original makes of them
//! (`verify`).

mod rewrite;
mod verify;

use std::collections::HashSet;

use syncline_autodiff::{AutodiffError, DeriveOptions, inference_form, parse_forward, refuse_unloaded};
use syncline_onnx::proto::{DimensionProto, DimensionValue, GraphProto, ValueInfoProto};
use syncline_onnx::{Dim, TensorType, folded_value_types};
use syncline_runtime::Runtime;

use rewrite::rewrite;
use verify::verify;

/// Name of the opened axis.
const BATCH: &str = "batch";

/// What became of a batch axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchAxis {
    /// It is open in the model as it is.
    Open,
    /// It was fixed to this many samples; here is the model that takes any number.
    Opened {
        /// Samples of a batch in the model as it was exported.
        from: usize,
        /// The forward model with an open first axis, as bytes of a `.onnx` file.
        onnx: Vec<u8>,
    },
}

/// Opens the batch axis of a forward model that is to be trained with these options. Where it is fixed this
/// costs three or four session loads and two runs.
pub fn open_batch(
    runtime: &Runtime,
    onnx: &[u8],
    options: &DeriveOptions,
) -> Result<BatchAxis, AutodiffError> {
    let model = parse_forward(onnx)?;
    let Some(size) = fixed_batch(model.graph.as_ref())? else { return Ok(BatchAxis::Open) };
    refuse_unloaded(&model, options)?;
    let types = folded_value_types(runtime, inference_form(model.clone()))?;
    let mut opened = model.clone();
    if let Some(graph) = opened.graph.as_mut() {
        let inputs = data_inputs(graph);
        let open = |value: &mut ValueInfoProto| {
            if let Some(axis) = first_axis(value) {
                axis.value = Some(DimensionValue::Param(BATCH.to_owned()));
            }
        };
        graph.input.iter_mut().filter(|input| inputs.contains(&input.name)).for_each(open);
        forget_shapes(graph);
        rewrite(graph, &types, &inputs, size);
    }
    let named = |reason| AutodiffError::FixedBatch { size, reason };
    let (before, after) = (inference_form(model), inference_form(opened.clone()));
    verify(runtime, &before, &after, size, options.output.as_deref()).map_err(named)?;
    Ok(BatchAxis::Opened { from: size, onnx: opened.to_bytes() })
}

/// The size that all data inputs have been fixed to, if any of them is fixed.
fn fixed_batch(graph: Option<&GraphProto>) -> Result<Option<usize>, AutodiffError> {
    let Some(graph) = graph else { return Ok(None) };
    let inputs = data_inputs(graph);
    let of_data = graph.input.iter().filter(|input| inputs.contains(&input.name));
    let sizes: Vec<(&str, usize)> = of_data
        .filter_map(|input| {
            let size = TensorType::from_value_info(input)?.dims.first().and_then(Dim::fixed)?;
            Some((input.name.as_str(), size))
        })
        .collect();
    let Some(&(first, size)) = sizes.first() else { return Ok(None) };
    match sizes.iter().find(|(_, other)| *other != size) {
        Some((name, other)) => {
            let reason = format!("the first axis of input `{name}` has {other}, that of `{first}` {size}");
            Err(AutodiffError::FixedBatch { size, reason })
        }
        None if size == 0 => {
            Err(AutodiffError::FixedBatch { size, reason: format!("input `{first}` has no samples") })
        }
        None => Ok(Some(size)),
    }
}

/// The inputs that are no constants with a default.
fn data_inputs(graph: &GraphProto) -> HashSet<String> {
    let constants: HashSet<&str> = graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
    let names = graph.input.iter().map(|input| &input.name);
    names.filter(|name| !constants.contains(name.as_str())).cloned().collect()
}

/// What the file says about the shapes of values held for one batch size.
fn forget_shapes(graph: &mut GraphProto) {
    for value in &mut graph.value_info {
        value.r#type = None;
    }
    for output in &mut graph.output {
        let tensor = output.r#type.as_mut().and_then(|ty| ty.tensor_type.as_mut());
        if let Some(tensor) = tensor {
            tensor.shape = None;
        }
    }
}

fn first_axis(value: &mut ValueInfoProto) -> Option<&mut DimensionProto> {
    value.r#type.as_mut()?.tensor_type.as_mut()?.shape.as_mut()?.dim.first_mut()
}
