//! What may not be in a training graph.

use syncline_onnx::{Dim, Types};

use crate::error::AutodiffError;
use crate::forward::{Forward, NEXT_SUFFIX, Statistic};
use crate::loss::LossValues;
use crate::options::DeriveOptions;
use crate::precision::Precision;
use crate::{CORRECT, GRAD_SUFFIX, LOSS, LOSS_SCALE, LOSS_WEIGHT, PREDICTED};

/// Refuses models that already use a name with a meaning of its own.
pub(super) fn check_names(
    forward: &Forward,
    options: &DeriveOptions,
    values: &LossValues,
    statistics: &[Statistic],
) -> Result<(), AutodiffError> {
    let fixed = [LOSS, LOSS_WEIGHT, CORRECT, PREDICTED].map(str::to_owned);
    let metrics = values.metrics.iter().map(|(name, _)| name.clone());
    let grads = forward.params.iter().map(|param| format!("{}{GRAD_SUFFIX}", param.name));
    let nexts = statistics.iter().map(|statistic| format!("{}{NEXT_SUFFIX}", statistic.name));
    let scale = (options.precision == Precision::Fp16).then(|| LOSS_SCALE.to_owned());
    let own: Vec<String> = fixed.into_iter().chain(metrics).chain(grads).chain(nexts).chain(scale).collect();
    let taken = |name: &String| forward.types.contains_key(name);
    let twice = |name: &String| name.is_empty() || taken(name) || own.contains(name);
    let label = values.label.as_ref().map(|_| &options.label);
    match own.iter().find(|name| taken(name)).or(label.filter(|label| twice(label))) {
        Some(name) => Err(AutodiffError::ReservedName { name: name.clone() }),
        None => Ok(()),
    }
}

/// Refuses a graph with a gradient or next value of another shape than its parameter or statistic, as shape
/// inference sees it.
///
/// ONNX Runtime finds out only when it runs that some operators have inputs that do not fit each other; what
/// the rules make of them is worthless.
pub(super) fn check_results(forward: &Forward, types: &Types) -> Result<(), AutodiffError> {
    let grads = forward.params.iter().map(|param| (param, GRAD_SUFFIX));
    let nexts = forward.state.iter().map(|param| (param, NEXT_SUFFIX));
    for (param, suffix) in grads.chain(nexts) {
        let name = format!("{}{suffix}", param.name);
        let Some(found) = types.get(&name) else { continue };
        let expected = forward.type_of(&param.name);
        let agrees =
            |(found, wanted): (&Dim, &Dim)| found.fixed().is_none_or(|size| wanted.fixed() == Some(size));
        // A value whose number of axes is not known looks like one without axes.
        let unknown = found.dims.is_empty();
        let same =
            found.dims.len() == expected.dims.len() && found.dims.iter().zip(&expected.dims).all(agrees);
        if found.element != expected.element || !(unknown || same) {
            let (found, expected) = (found.to_string(), expected.to_string());
            return Err(AutodiffError::ResultShape { name, found, expected });
        }
    }
    Ok(())
}
