//! From the fields of one record to the numbers of a sample.

use std::path::Path;

use syncline_scheduler::spec::Separator;

use super::super::error::{DataError, TableError};
use super::super::file::reserve;
use super::classes::Labels;
use super::columns::{Columns, Place};
use super::fields::Field;
use super::stream::FieldStream;
use super::text::{has_comma, number, shown};

/// Numbers that were read, and are still to be kept.
pub(super) struct RecordReader {
    pub(super) features: Vec<f64>,
    pub(super) labels: Vec<f64>,
    pub(super) kind: Labels,
}

impl RecordReader {
    /// Reads one sample; `false` at the end of the file.
    pub(super) fn read_record(
        &mut self,
        path: &Path,
        columns: &Columns,
        fields: &mut FieldStream<'_>,
    ) -> Result<bool, DataError> {
        let (expected, separator) = (columns.places.len(), fields.separator());
        let (first_feature, first_label) = (self.features.len(), self.labels.len());
        reserve(&mut self.features, columns.feature_count, path)?;
        reserve(&mut self.labels, columns.label_count, path)?;
        self.features.resize(first_feature + columns.feature_count, 0.0);
        self.labels.resize(first_label + columns.label_count, 0.0);
        let (mut record_line, mut refusal) = (None, None);
        while let Some(field) = fields.next()? {
            let line = *record_line.get_or_insert(field.line);
            let is_blank_line = field.column == 1 && field.ends_record && field.text.is_empty();
            let found = if is_blank_line { 0 } else { field.column };
            let place = columns.places.get(field.column - 1);
            let value = match place {
                Some(Place::Label(_)) if refusal.is_none() && !is_blank_line => {
                    self.kind.number(path, &field, number(field.text))
                }
                _ => Ok(number(field.text)),
            };
            match value {
                _ if place == Some(&Place::Ignored) => {}
                Err(error) => refusal = Some(error),
                Ok(Some(value)) if value.is_infinite() && field.text.iter().any(u8::is_ascii_digit) => {
                    let name = columns.names.get(field.column - 1);
                    refusal = refusal.or_else(|| Some(beyond_float64(path, &field, name)));
                }
                Ok(Some(value)) => match place {
                    Some(Place::Feature(number)) => self.features[first_feature + number] = value,
                    Some(Place::Label(number)) => self.labels[first_label + number] = value,
                    Some(Place::Ignored) | None => {}
                },
                Ok(None) => {
                    let name = columns.names.get(field.column - 1);
                    refusal = refusal.or_else(|| Some(not_a_number(path, &field, name, separator)));
                }
            }
            if field.ends_record {
                // Where a separator is missing or too many, no field is what its column says.
                return match refusal {
                    _ if found != expected => {
                        Err(TableError::ColumnCount { path: path.to_owned(), line, found, expected }.into())
                    }
                    Some(error) => Err(error),
                    None => Ok(true),
                };
            }
        }
        self.features.truncate(first_feature);
        self.labels.truncate(first_label);
        Ok(false)
    }
}

/// `name`: that of its column, where there is a header.
fn not_a_number(path: &Path, field: &Field<'_>, name: Option<&String>, separator: Separator) -> DataError {
    let (path, line, column, text) = (path.to_owned(), field.line, field.column, shown(field.text));
    let name = name_shown(name);
    match has_comma(field.text) {
        true => TableError::Comma { path, line, column, name, text, separator }.into(),
        false => TableError::NotANumber { path, line, column, name, text }.into(),
    }
}

/// The same of a number.
fn beyond_float64(path: &Path, field: &Field<'_>, name: Option<&String>) -> DataError {
    let (path, line, column, text) = (path.to_owned(), field.line, field.column, shown(field.text));
    TableError::BeyondFloat64 { path, line, column, name: name_shown(name), text }.into()
}

fn name_shown(name: Option<&String>) -> Option<String> {
    name.filter(|name| !name.is_empty()).map(|name| shown(name.as_bytes()))
}
