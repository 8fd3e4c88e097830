//! Settings of the data that make no sense, or do not go with the model or with each other.

use std::collections::HashMap;

use syncline_scheduler::spec::{CsvSource, DataSpec, Source, Split};

use super::error::{DataError, FitError, SettingError};
use super::normalization_settings;
use super::signature::ModelSignature;

/// Refuses them, before anything is read.
pub(super) fn check(spec: &DataSpec, wanted: &ModelSignature) -> Result<(), DataError> {
    let sources = || spec.sources();
    check_inputs(spec, wanted)?;
    let is_table = |source: &Source| matches!(source, Source::Csv(_));
    let gives_all =
        |source: &Source| source.has_named_arrays() || is_table(source) && !spec.inputs.is_empty();
    if wanted.inputs.len() > 1 && !sources().all(gives_all) {
        let names = wanted.inputs.iter().map(|input| input.name.as_str()).collect::<Vec<_>>().join(", ");
        return Err(FitError::TooManyInputs { count: wanted.inputs.len(), names }.into());
    }
    let text = sources().any(|source| matches!(source, Source::Text { .. }));
    normalization_settings::check(spec, wanted)?;
    let label_twice = |source: &Source| {
        matches!(source, Source::Csv(CsvSource { label_columns, label_names, .. })
            if *label_columns != 1 && !label_names.is_empty() && label_names.len() != *label_columns as usize)
    };
    let unpaired = |source: &Source| {
        matches!(source, Source::Idx { images: samples, labels } | Source::Npy { samples, labels }
            if samples.0.len() != labels.0.len())
    };
    let what = match spec.split {
        _ if sources().any(unpaired) => {
            "a source must name a file of labels for each file of samples".to_owned()
        }
        _ if sources().any(label_twice) => {
            "`label_columns` must be left out where `label_names` says which columns are the label".to_owned()
        }
        _ if wanted.inputs.len() > 1 && !spec.sample_shape.is_empty() => {
            let count = wanted.inputs.len();
            format!(
                "`sample_shape` must be left out for a model of {count} inputs: it does not say of which one"
            )
        }
        Split::TestEvery(0) => "`test_every` must be at least 1, not 0".to_owned(),
        // Samples beside a test sample would train on its characters and labels, and its loss would say
        // nothing new.
        Split::TestEvery(every) if sources().any(is_overlapping_text) => format!(
            "`test_every = {every}` does not go with samples of a text that overlap (`stride` below `context`), which would train on \
             what tests; set `split = {{ test_last_percent = 10 }}`, or leave `stride` out"
        ),
        Split::TestLastPercent(percent) if !(1..=99).contains(&percent) => {
            format!("`test_last_percent` must be from 1 to 99, not {percent}")
        }
        Split::TestPercent(percent) if !(1..=99).contains(&percent) => {
            format!("`test_percent` must be from 1 to 99, not {percent}")
        }
        Split::TestEvery(_) | Split::TestPercent(_) | Split::TestLastPercent(_) if spec.test.is_some() => {
            "the test set must come from `test` or from `split`, not from both".to_owned()
        }
        _ if text && spec.test.is_some() => {
            "a text must be one file; set `split = { test_last_percent = 10 }` in place of `test`".to_owned()
        }
        _ if text && spec.validation.is_some() => {
            "a text must be one file; set `validation_percent = 10` in place of `validation`".to_owned()
        }
        _ if spec.validation.is_some() && spec.validation_percent.is_some() => {
            "the validation set must come from `validation` or from `validation_percent`, not from both"
                .to_owned()
        }
        _ if spec.validation_percent.is_some_and(|percent| !(1..=99).contains(&percent)) => {
            let percent = spec.validation_percent.unwrap_or_default();
            format!("`validation_percent` must be from 1 to 99, not {percent}")
        }
        _ => return Ok(()),
    };
    Err(SettingError::Invalid { what }.into())
}

/// Whether the columns that inputs take go with the model and with each other.
fn check_inputs(spec: &DataSpec, wanted: &ModelSignature) -> Result<(), DataError> {
    if spec.inputs.is_empty() {
        return Ok(());
    }
    let invalid = |what: String| Err(SettingError::Invalid { what }.into());
    if !spec.sources().any(|source| matches!(source, Source::Csv(_))) {
        let what = "`inputs` must be left out where no source is `csv`: it names columns of tables, and arrays are found by the names of the inputs";
        return invalid(what.to_owned());
    }
    let is_wanted = |name: &String| wanted.inputs.iter().any(|input| input.name == *name);
    let unknown = spec.inputs.keys().find(|name| !is_wanted(name));
    if let Some(unknown) = unknown {
        return Err(FitError::UnfitInputs { what: wanted.has_no_input(unknown) }.into());
    }
    let has_columns = |name: &String| spec.inputs.get(name).is_some_and(|columns| !columns.is_empty());
    if let Some(input) = wanted.inputs.iter().find(|input| !has_columns(&input.name)) {
        let what = format!("it has no columns for `{}`, and {}", input.name, wanted.named_inputs());
        return Err(FitError::UnfitInputs { what }.into());
    }
    let mut taken = HashMap::new();
    for (input, column) in
        spec.inputs.iter().flat_map(|(input, columns)| columns.iter().map(move |c| (input, c)))
    {
        if let Some(other) = taken.insert(column, input) {
            return invalid(format!(
                "`inputs` must name each column once, and `{column}` is in `{other}` and in `{input}`"
            ));
        }
    }
    let of_label = spec.sources().filter_map(|source| match source {
        Source::Csv(table) => Some(&table.label_names),
        _ => None,
    });
    match of_label.flatten().find_map(|label| taken.get_key_value(label)) {
        Some((column, input)) => invalid(format!(
            "`inputs` must not name the label, and `{column}` is in `label_names` and in `{input}`"
        )),
        None => Ok(()),
    }
}

fn is_overlapping_text(source: &Source) -> bool {
    matches!(source, Source::Text { context, stride, .. } if (1..*context).contains(stride))
}
