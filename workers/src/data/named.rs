//! Named arrays of a file: for each input of the model, and for the label, the one of its name. The first
//! axis of each counts the samples.

use std::path::Path;

use super::array::SourceArrays;
use super::array_parts::{ArrayPart, ArrayParts};
use super::csv::TableNames;
use super::error::{DataError, FormatError};
use super::signature::ModelSignature;

/// What the model wants of a file whose arrays `array` reads by their names; others are not looked at.
pub(super) fn pick(
    path: &Path,
    wanted: &ModelSignature,
    mut array: impl FnMut(&str) -> Result<ArrayPart, DataError>,
) -> Result<SourceArrays, DataError> {
    let format = |reason: String| DataError::from(FormatError::Malformed { path: path.to_owned(), reason });
    let inputs: Vec<ArrayPart> =
        wanted.inputs.iter().map(|input| array(&input.name)).collect::<Result<_, _>>()?;
    let label = wanted.label.as_ref().map(|label| array(&label.name)).transpose()?;
    let names = wanted.inputs.iter().map(|input| &input.name).chain(wanted.label.iter().map(|l| &l.name));
    let mut counts = names.zip(inputs.iter().chain(&label).map(ArrayPart::rows));
    let (first, rows) = counts.next().ok_or_else(|| format("the model wants nothing of it".to_owned()))?;
    if let Some((name, other)) = counts.find(|(_, other)| *other != rows) {
        return Err(format(format!("`{first}` has {rows} samples, `{name}` has {other}")));
    }
    let inputs = inputs.into_iter().map(ArrayParts::of).collect();
    Ok(SourceArrays { inputs, label: label.map(ArrayParts::of), rows, names: TableNames::default() })
}

/// There is no array of this name.
pub(super) fn missing<'a>(path: &Path, name: &str, known: impl IntoIterator<Item = &'a str>) -> DataError {
    let mut known: Vec<&str> = known.into_iter().collect();
    known.sort_unstable();
    FormatError::MissingTensor { path: path.to_owned(), name: name.to_owned(), known: known.join(", ") }
        .into()
}
