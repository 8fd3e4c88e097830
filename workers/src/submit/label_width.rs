//! How many columns of a table are the label, where nobody says it and the loss does.

use syncline_scheduler::spec::{DataSpec, Source};

use crate::data::{DataError, Dataset, FileDigests, FitError, ModelSignature, Remedy};

/// Opens the data. A table of whose columns the last one alone is the label by default, and whose samples
/// would then not fit, has as many label columns as the loss wants numbers, if so it fits: `spec` says it
/// then.
pub(super) fn open(
    spec: &mut DataSpec,
    wanted: &ModelSignature,
) -> Result<(Dataset, FileDigests), DataError> {
    let error = match Dataset::open_hashed(spec, wanted) {
        Err(error @ DataError::Fit(FitError::SampleShape { remedy: Remedy::LabelColumns, .. })) => error,
        opened => return opened,
    };
    let Some(width) = width(wanted).filter(|width| *width != 1) else { return Err(error) };
    let mut other = spec.clone();
    for source in other.sources_mut() {
        match source {
            Source::Csv(table) if table.label_names.is_empty() && table.label_columns == 1 => {
                table.label_columns = width;
            }
            _ => return Err(error),
        }
    }
    let opened = Dataset::open_hashed(&other, wanted).map_err(|_| error)?;
    *spec = other;
    Ok(opened)
}

/// Numbers of a label, none where the loss wants no label; `None` where the data decide.
fn width(wanted: &ModelSignature) -> Option<u32> {
    let Some(label) = &wanted.label else { return Some(0) };
    let count = label.shape.iter().try_fold(1usize, |count, size| count.checked_mul((*size)?))?;
    u32::try_from(count).ok()
}
