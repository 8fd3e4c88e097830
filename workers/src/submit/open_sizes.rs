//! Sizes that a model leaves open, and a gradient has to know or only one suits: those of the data that it
//! trains on.

use std::collections::HashSet;

use syncline_autodiff::{DeriveOptions, Loss, parse_forward};
use syncline_onnx::{Dim, TensorType};
use syncline_scheduler::{fault_code::FaultCode, spec::DataSpec};

use super::{SubmitError, data::data_element};
use crate::data::{Dataset, InputSignature, ModelSignature};
use crate::isolation::{Derived, ModelChecks, ModelHost, NamedModel};

/// Codes of an operator of which no gradient can be had as it is used, and of a model that takes no size but
/// one, which is not the one that recomputation and 16 bits are planned with.
const MAY_BE_FOR_SIZES: [FaultCode; 2] = [FaultCode::new("E311"), FaultCode::new("E323")];

/// Derives a training graph; where that cannot be had for a model that leaves sizes open, for those of the
/// data.
pub(super) fn derive(
    host: &ModelHost,
    model: NamedModel<'_>,
    loss: Loss,
    options: &DeriveOptions,
    checks: ModelChecks,
    data: &DataSpec,
) -> Result<Derived, SubmitError> {
    let error = match host.derive(model, loss, options, checks) {
        Err(error) if MAY_BE_FOR_SIZES.contains(&error.code()) => error,
        other => return Ok(other?),
    };
    let Some(inputs) = inputs_of_open_size(model.onnx) else { return Err(error.into()) };
    let wanted = ModelSignature { inputs, label: None };
    let set = Dataset::open(&DataSpec { digest: None, ..data.clone() }, &wanted)?;
    let names = wanted.inputs.iter().map(|input| input.name.clone());
    let sample_shapes = names.zip(set.input_shapes().map(<[usize]>::to_vec)).collect();
    let options = DeriveOptions { sample_shapes, ..options.clone() };
    Ok(host.derive(model, loss, &options, checks)?)
}

/// What a model takes, if it leaves a size open besides its batch, and sources give all of it.
fn inputs_of_open_size(onnx: &[u8]) -> Option<Vec<InputSignature>> {
    let graph = parse_forward(onnx).ok()?.graph?;
    let constants: HashSet<&str> = graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
    let inputs = graph.input.iter().filter(|input| !constants.contains(input.name.as_str()));
    let signature = |input| -> Option<InputSignature> {
        let ty = TensorType::from_value_info(input)?;
        let shape = ty.dims.iter().skip(1).map(Dim::fixed).collect();
        Some(InputSignature {
            name: input.name.clone(),
            element: data_element(ty.element)?,
            shape,
            rows: Vec::new(),
        })
    };
    let inputs: Vec<InputSignature> = inputs.map(signature).collect::<Option<_>>()?;
    let is_open = inputs.iter().any(|input| input.shape.iter().any(Option::is_none));
    is_open.then_some(inputs)
}
