//! How many columns of a table are the label, where nobody says it and the loss does.

use syncline_scheduler::spec::{DataSpec, Source};

use crate::data::{DataError, Dataset, FileDigests, FitError, ModelSignature, Remedy};

/// Opens the data. Where the loss wants no label, all columns of a table are samples, if so they fit. A table
/// of whose columns the last one alone is the label by default, and whose samples would then not fit, has as
/// many label columns as the loss wants numbers, if so it fits. `spec` says it then.
pub(super) fn open(
    spec: &mut DataSpec,
    wanted: &ModelSignature,
) -> Result<(Dataset, FileDigests), DataError> {
    if wanted.label.is_none()
        && let Some(other) = with_label_columns(spec, 0)
        && let Ok(opened) = Dataset::open_hashed(&other, wanted)
    {
        *spec = other;
        return Ok(opened);
    }
    let error = match Dataset::open_hashed(spec, wanted) {
        Err(error @ DataError::Fit(FitError::SampleShape { remedy: Remedy::LabelColumns, .. })) => error,
        opened => return opened,
    };
    let width = width(wanted).filter(|width| *width > 1);
    let Some(other) = width.and_then(|width| with_label_columns(spec, width)) else { return Err(error) };
    let opened = Dataset::open_hashed(&other, wanted).map_err(|_| error)?;
    *spec = other;
    Ok(opened)
}

/// The same with so many label columns, where nobody says which they are in any of the tables.
fn with_label_columns(spec: &DataSpec, width: u32) -> Option<DataSpec> {
    let mut other = spec.clone();
    for source in other.sources_mut() {
        match source {
            Source::Csv(table) if table.label_names.is_empty() && table.label_columns == 1 => {
                table.label_columns = width;
            }
            _ => return None,
        }
    }
    Some(other)
}

/// Numbers of a label; `None` where the loss wants none, or the data decide.
fn width(wanted: &ModelSignature) -> Option<u32> {
    let label = wanted.label.as_ref()?;
    let count = label.shape.iter().try_fold(1usize, |count, size| count.checked_mul((*size)?))?;
    u32::try_from(count).ok()
}
