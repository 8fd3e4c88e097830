//! From the fields of a CSV file to the numbers of its samples.

use std::path::Path;

use syncline_rpc::input;

use super::super::array::{Array, Numbers};
use super::super::error::DataError;
use super::super::file::{MAX_ELEMENTS, Step, reserve, too_large};
use super::columns::{Columns, LabelColumns, Place};
use super::fields::{Field, Fields};
use super::header::{First, Header};
use super::text::{number, shown};

/// Samples between two steps.
const STEP_ROWS: usize = 4_096;

/// The numbers of all samples so far.
struct Table {
    columns: Columns,
    features: Vec<f32>,
    labels: Vec<f64>,
    rows: usize,
}

/// Whether the first record names the columns. The other arguments are those of [`read`].
pub(in crate::data) fn names_columns(
    (path, bytes): (&Path, &[u8]),
    label: LabelColumns<'_>,
    skip_lines: u32,
) -> Result<bool, DataError> {
    let first = First::read(&mut Fields::new(path, input::without_mark(bytes), skip_lines))?;
    Ok(first.has_text && first.is_header(label))
}

/// The names of the columns, if there are some, without reading a sample. The other arguments are those of [`read`].
pub(in crate::data) fn read_header(
    (path, bytes): (&Path, &[u8]),
    label: LabelColumns<'_>,
    skip_lines: u32,
) -> Result<Option<Header>, DataError> {
    let mut fields = Fields::new(path, input::without_mark(bytes), skip_lines);
    Ok(Columns::find(path, &mut fields, label, None)?.header)
}

/// Reads a table: samples and labels, and the names of its columns. The first `skip_lines` lines are not looked at; empty
/// lines at the end are allowed. `like`: the names of the training file, by which the columns of this one are found.
pub(in crate::data) fn read(
    (path, bytes): (&Path, &[u8]),
    label: LabelColumns<'_>,
    skip_lines: u32,
    like: Option<&Header>,
    step: &mut Step<'_>,
) -> Result<(Array, Array, Option<Header>), DataError> {
    let mut fields = Fields::new(path, input::without_mark(bytes), skip_lines);
    let mut columns = Columns::find(path, &mut fields, label, like)?;
    let header = columns.header.take();
    let mut table = Table { columns, features: Vec::new(), labels: Vec::new(), rows: 0 };
    while table.read_record(path, &mut fields)? {
        if table.rows.is_multiple_of(STEP_ROWS) {
            step().map_err(|source| DataError::Io { path: path.to_owned(), source })?;
        }
    }
    if table.rows == 0 {
        return Err(DataError::Format { path: path.to_owned(), reason: "it has no samples".to_owned() });
    }
    let (samples, labels) = table.into_arrays(path);
    Ok((samples, labels, header))
}

impl Table {
    /// Reads one sample; `false` at the end of the file.
    fn read_record(&mut self, path: &Path, fields: &mut Fields<'_>) -> Result<bool, DataError> {
        let expected = self.columns.places.len();
        if (self.features.len() + self.labels.len() + expected) as u64 > MAX_ELEMENTS {
            return Err(too_large(path, MAX_ELEMENTS, "numbers"));
        }
        let (first_feature, first_label) = (self.features.len(), self.labels.len());
        reserve(&mut self.features, self.columns.feature_count, path)?;
        reserve(&mut self.labels, self.columns.label_count, path)?;
        self.features.resize(first_feature + self.columns.feature_count, 0.0);
        self.labels.resize(first_label + self.columns.label_count, 0.0);
        let (mut record_line, mut no_number) = (None, None);
        while let Some(field) = fields.next()? {
            let line = *record_line.get_or_insert(field.line);
            let is_blank_line = field.column == 1 && field.ends_record && field.text.is_empty();
            let found = if is_blank_line { 0 } else { field.column };
            let place = self.columns.places.get(field.column - 1);
            match number(field.text) {
                _ if place == Some(&Place::Ignored) => {}
                Some(value) => match place {
                    Some(Place::Feature(number)) => self.features[first_feature + number] = value as f32,
                    Some(Place::Label(number)) => self.labels[first_label + number] = value,
                    Some(Place::Ignored) | None => {}
                },
                None => {
                    let name = self.columns.names.get(field.column - 1);
                    no_number = no_number.or_else(|| Some(not_a_number(path, &field, name)));
                }
            }
            if field.ends_record {
                return match no_number {
                    _ if found != expected => {
                        Err(DataError::ColumnCount { path: path.to_owned(), line, found, expected })
                    }
                    Some(error) => Err(error),
                    None => {
                        self.rows += 1;
                        Ok(true)
                    }
                };
            }
        }
        self.features.truncate(first_feature);
        self.labels.truncate(first_label);
        Ok(false)
    }

    fn into_arrays(self, path: &Path) -> (Array, Array) {
        let Self { columns, features, labels, rows } = self;
        let (feature_columns, label_columns) = columns.by_number();
        let features = Array::new(path, Numbers::F32(features), vec![feature_columns.len()], rows);
        let labels = Array::new(path, Numbers::F64(labels), vec![label_columns.len()], rows);
        (features.with_columns(feature_columns), labels.with_columns(label_columns))
    }
}

/// `name`: that of its column, where there is a header.
fn not_a_number(path: &Path, field: &Field<'_>, name: Option<&String>) -> DataError {
    DataError::NotANumber {
        path: path.to_owned(),
        line: field.line,
        column: field.column,
        name: name.filter(|name| !name.is_empty()).map(|name| shown(name.as_bytes())),
        text: shown(field.text),
    }
}
