//! From the fields of a CSV file to the numbers of its samples.

use std::path::Path;

use syncline_rpc::input;

use super::super::array::{Array, Numbers};
use super::super::error::DataError;
use super::super::file::{MAX_ELEMENTS, too_large};
use super::columns::{Columns, LabelColumns};
use super::fields::{Field, Fields};
use super::text::{number, shown};

/// The numbers of all samples so far.
struct Table {
    columns: Columns,
    features: Vec<f32>,
    labels: Vec<f64>,
    rows: usize,
}

/// Reads a table: samples and labels. The first `skip_lines` lines are not looked at; empty lines at the end are allowed.
pub(in crate::data) fn read(
    (path, bytes): (&Path, &[u8]),
    label: LabelColumns<'_>,
    skip_lines: u32,
) -> Result<(Array, Array), DataError> {
    let mut fields = Fields::new(path, input::without_mark(bytes), skip_lines);
    let columns = Columns::find(path, &mut fields, label)?;
    let mut table = Table { columns, features: Vec::new(), labels: Vec::new(), rows: 0 };
    while table.read_record(path, &mut fields)? {}
    if table.rows == 0 {
        return Err(DataError::Format { path: path.to_owned(), reason: "it has no samples".to_owned() });
    }
    Ok(table.into_arrays(path))
}

impl Table {
    /// Reads one sample; `false` at the end of the file.
    fn read_record(&mut self, path: &Path, fields: &mut Fields<'_>) -> Result<bool, DataError> {
        let expected = self.columns.count;
        if (self.features.len() + self.labels.len() + expected) as u64 > MAX_ELEMENTS {
            return Err(too_large(path, MAX_ELEMENTS, "numbers"));
        }
        let first_label = self.labels.len();
        self.labels.resize(first_label + self.columns.labels.len(), 0.0);
        let mut labels = self.columns.labels.iter().peekable();
        let (mut record_line, mut no_number) = (None, None);
        while let Some(field) = fields.next()? {
            let line = *record_line.get_or_insert(field.line);
            let is_blank_line = field.column == 1 && field.ends_record && field.text.is_empty();
            let found = if is_blank_line { 0 } else { field.column };
            match number(field.text) {
                Some(value) => match labels.next_if(|(column, _)| column + 1 == field.column) {
                    Some((_, index)) => self.labels[first_label + index] = value,
                    None if found <= expected => self.features.push(value as f32),
                    None => {}
                },
                None => no_number = no_number.or_else(|| Some(not_a_number(path, &field))),
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
        self.labels.truncate(first_label);
        Ok(false)
    }

    fn into_arrays(self, path: &Path) -> (Array, Array) {
        let Self { columns, features, labels, rows } = self;
        let (width, label_width) = (columns.count - columns.labels.len(), columns.labels.len());
        let mut label_columns = vec![0; label_width];
        columns.labels.iter().for_each(|&(column, index)| label_columns[index] = column);
        let mut labeled = columns.labels.iter().peekable();
        let is_feature = |column: &usize| labeled.next_if(|(label, _)| label == column).is_none();
        let feature_columns = (0..columns.count).filter(is_feature).collect();
        let features = Array::new(path, Numbers::F32(features), vec![width], rows);
        let labels = Array::new(path, Numbers::F64(labels), vec![label_width], rows);
        (features.with_columns(feature_columns), labels.with_columns(label_columns))
    }
}

fn not_a_number(path: &Path, field: &Field<'_>) -> DataError {
    DataError::NotANumber {
        path: path.to_owned(),
        line: field.line,
        column: field.column,
        text: shown(field.text),
    }
}
