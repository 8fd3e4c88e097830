//! Settings of normalization that make no sense, or do not go with the inputs of the model.

use syncline_scheduler::spec::{DataElement, DataSpec, Normalization, Source};

use super::error::{DataError, FitError, SettingError};
use super::signature::{InputSignature, ModelSignature};

/// Refuses them, before anything is read.
pub(super) fn check(spec: &DataSpec, wanted: &ModelSignature) -> Result<(), DataError> {
    check_numbers(&spec.shared_normalization(), &|name| name.to_owned())?;
    for (input, own) in &spec.normalize {
        check_numbers(own, &|name| spec.normalization_setting(input, name))?;
        check_input(input, wanted)?;
    }
    let invalid = |what: String| Err(SettingError::Invalid { what }.into());
    if spec.normalize.is_empty() {
        return Ok(());
    }
    if spec.sources().any(|source| matches!(source, Source::Text { .. })) {
        let what = "`normalize` must be left out where the source is a text, whose characters are fed as the numbers that they have";
        return invalid(what.to_owned());
    }
    let mut floats = wanted.inputs.iter().filter(|input| input.element == DataElement::F32);
    if floats.all(|input| spec.normalize.contains_key(&input.name))
        && let Some(name) = spec.shared_normalization().first_setting()
    {
        return invalid(format!(
            "`{name}` must be left out: it holds for inputs of floats without a table under `normalize`, and each one has such a table"
        ));
    }
    Ok(())
}

/// Refuses a mean or a deviation beside `standardize`, which computes them: where a job is submitted. The
/// spec of one that is has them all.
pub(crate) fn check_standardized(spec: &DataSpec) -> Result<(), DataError> {
    let own = spec.normalize.iter().map(|(input, own)| (Some(input), own.clone()));
    let all = [(None, spec.shared_normalization())].into_iter().chain(own);
    for (input, by) in all {
        if by.standardize && !by.is_to_be_standardized() {
            let [standardize, mean, std] = ["standardize", "mean", "std"].map(|name| match input {
                Some(input) => spec.normalization_setting(input, name),
                None => name.to_owned(),
            });
            let what =
                format!("`{standardize}` computes `{mean}` and `{std}`: leave these out, or `{standardize}`");
            return Err(SettingError::Invalid { what }.into());
        }
    }
    Ok(())
}

/// Whether samples can be scaled by the numbers that are to do it. `called`: what a setting is called.
fn check_numbers(by: &Normalization, called: &dyn Fn(&str) -> String) -> Result<(), SettingError> {
    let Normalization { scale, mean, std, .. } = by;
    let no_number = |list: &[f64]| list.iter().copied().find(|number| !number.is_finite());
    let not_above_0 = std.iter().copied().find(|&number| number <= 0.0);
    let numbers = [
        ("scale", "be a finite number", no_number(&[f64::from(*scale)])),
        ("mean", "hold finite numbers", no_number(mean)),
        ("std", "hold finite numbers", no_number(std)),
        ("std", "be above 0", not_above_0),
    ];
    let invalid = |what: String| Err(SettingError::Invalid { what });
    for (name, must, found) in numbers {
        if let Some(found) = found {
            return invalid(format!("`{}` must {must}, not {found}", called(name)));
        }
    }
    match *scale == 0.0 {
        true => {
            invalid(format!("`{}` must not be 0: every number of every sample would be", called("scale")))
        }
        false => Ok(()),
    }
}

/// Whether an input of this name is there, and takes floats.
fn check_input(name: &str, wanted: &ModelSignature) -> Result<(), FitError> {
    let unfit = |what: String| Err(FitError::UnfitNormalization { what });
    let quoted = |input: &InputSignature| format!("`{}`", input.name);
    match wanted.inputs.iter().find(|input| input.name == name) {
        Some(input) => match input.element {
            DataElement::F32 => Ok(()),
            DataElement::I32 | DataElement::I64 => {
                unfit(format!("{} takes integers, which are fed as they are", quoted(input)))
            }
            DataElement::Bool => {
                unfit(format!("{} takes truth values, which are fed as they are", quoted(input)))
            }
        },
        None => unfit(wanted.has_no_input(name)),
    }
}
