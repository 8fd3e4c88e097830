//! Labels that fit another output of the model than its first one, at which the loss looks if nobody names
//! one.

use syncline_autodiff::TrainingGraph;
use syncline_onnx::ElementType;

use super::{SubmitError, model::Model, training::Training};
use crate::data::{DataError, FitError};

/// The error of data that do not fit, with the output that they would fit, by `try_as`.
pub(super) fn name_what_fits(
    error: SubmitError,
    training: &Training,
    graph: &TrainingGraph,
    try_as: impl Fn(&Training) -> Result<(), SubmitError>,
) -> SubmitError {
    let SubmitError::Data(error @ DataError::Fit(FitError::Shape { .. })) = error else { return error };
    let fits = |name: &String| {
        let mut other = training.clone().with(|settings| settings.check = false);
        match &mut other.model {
            Model::Forward { output: output @ None, .. } => *output = Some(name.clone()),
            _ => return false,
        }
        try_as(&other).is_ok()
    };
    let others = graph.forward_outputs.iter().filter(|output| output.element == ElementType::F32);
    match others.map(|output| &output.name).find(|name| fits(name)) {
        Some(output) => SubmitError::OtherOutput { error: error.into(), output: output.clone() },
        None => error.into(),
    }
}
