//! Sizes that a model leaves open and a gradient has to know: those of the data that it trains on.

use std::collections::{BTreeMap, HashSet};

use syncline_autodiff::{DeriveOptions, Loss, parse_forward};
use syncline_onnx::{Dim, TensorType};
use syncline_scheduler::{fault_code::FaultCode, spec::DataSpec};

use super::data::data_element;
use crate::data::{Dataset, InputSignature, ModelSignature};
use crate::isolation::{Derived, ModelChecks, ModelError, ModelHost};

/// Code of an operator of which no gradient can be had as it is used.
const UNSUPPORTED_USE: FaultCode = FaultCode::new("E311");

/// Derives a training graph; where that cannot be had for a model that leaves sizes open, for those of the data.
pub(super) fn derive(
    host: &ModelHost,
    (name, onnx): (&str, &[u8]),
    loss: Loss,
    options: &DeriveOptions,
    checks: ModelChecks,
    data: &DataSpec,
) -> Result<Derived, ModelError> {
    let derived = host.derive(name, onnx, loss, options, checks);
    match derived {
        Err(error) if error.code() == UNSUPPORTED_USE => match sample_shapes(onnx, data) {
            Some(sample_shapes) => {
                let options = DeriveOptions { sample_shapes, ..options.clone() };
                host.derive(name, onnx, loss, &options, checks)
            }
            None => Err(error),
        },
        other => other,
    }
}

/// What the data has for the inputs of a model, if one of them leaves a size open besides its batch, and the data fits.
fn sample_shapes(onnx: &[u8], data: &DataSpec) -> Option<BTreeMap<String, Vec<usize>>> {
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
            rows: None,
        })
    };
    let inputs: Vec<InputSignature> = inputs.map(signature).collect::<Option<_>>()?;
    if inputs.iter().all(|input| input.shape.iter().all(Option::is_some)) {
        return None;
    }
    let wanted = ModelSignature { inputs, label: None };
    let set = Dataset::open(&DataSpec { digest: None, ..data.clone() }, &wanted).ok()?;
    let names = wanted.inputs.iter().map(|input| input.name.clone());
    Some(names.zip(set.input_shapes().map(<[usize]>::to_vec)).collect())
}
