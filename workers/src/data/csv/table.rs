//! From the fields of a CSV file to the numbers of its samples.

use std::path::Path;

use syncline_rpc::input;

use super::super::array::{Array, Numbers};
use super::super::error::DataError;
use super::super::file::{MAX_ELEMENTS, Step, reserve, too_large};
use super::classes::{ClassNames, Labels};
use super::columns::{Columns, LabelColumns, Place};
use super::comments;
use super::fields::{Field, Fields};
use super::header::{First, Header};
use super::text::{number, shown};

/// Samples between two steps.
const STEP_ROWS: usize = 4_096;

/// What is wanted of a file.
#[derive(Debug, Clone, Copy)]
pub(in crate::data) struct Wanted<'a> {
    pub(in crate::data) label: LabelColumns<'a>,
    /// Lines at the top that are not looked at.
    pub(in crate::data) skip_lines: u32,
    /// Whether the label is a class, so that in one column it may be a text.
    pub(in crate::data) has_classes: bool,
}

/// What a training file is read with and others are read by.
#[derive(Debug, Default)]
pub(in crate::data) struct TableNames {
    /// The names of its columns, if it has a header.
    pub(in crate::data) header: Option<Header>,
    /// Its classes, if its labels are texts.
    pub(in crate::data) classes: Option<ClassNames>,
}

/// The numbers of all samples so far.
struct Table {
    columns: Columns,
    features: Vec<f32>,
    labels: Vec<f64>,
    kind: Labels,
    rows: usize,
}

/// The fields from the first record on.
fn records<'a>((path, bytes): (&'a Path, &'a [u8]), wanted: &Wanted<'_>) -> Result<Fields<'a>, DataError> {
    let mut fields = Fields::new(path, input::without_mark(bytes), wanted.skip_lines);
    comments::pass_over(path, &mut fields, wanted.label)?;
    Ok(fields)
}

/// Whether a file other than the training file is read by the names of that one: if it has a header, or texts as labels.
pub(in crate::data) fn needs_names(file: (&Path, &[u8]), wanted: &Wanted<'_>) -> Result<bool, DataError> {
    let mut fields = records(file, wanted)?;
    let first = First::read(&mut fields.look_ahead())?;
    if first.has_text && first.is_header(wanted.label) {
        return Ok(true);
    }
    // Only the training file says which of the columns is the label that is there as well.
    if let LabelColumns::PassedOver { names: [_, ..], features: Some(numbers), .. } = wanted.label
        && first.names.len() != numbers
    {
        return Ok(true);
    }
    let mut table = Table::begin(file.0, &mut fields, wanted, None)?.0;
    Ok(matches!(table.kind, Labels::Open) && table.begins_with_a_text(file.0, &fields)?)
}

/// The names of a training file. Its samples are read only if its labels are texts.
pub(in crate::data) fn read_names(
    file: (&Path, &[u8]),
    wanted: &Wanted<'_>,
    step: &mut Step<'_>,
) -> Result<TableNames, DataError> {
    let mut fields = records(file, wanted)?;
    let (mut table, header) = Table::begin(file.0, &mut fields, wanted, None)?;
    let mut names = TableNames { header, classes: None };
    if matches!(table.kind, Labels::Open) && table.begins_with_a_text(file.0, &fields)? {
        table.read_records(file.0, &mut fields, step)?;
        names.classes = table.kind.into_classes(file.0, &mut table.labels);
    }
    Ok(names)
}

/// Reads a table: samples and labels, and the names of its columns and classes. Empty lines at the end are allowed. `like`: the names
/// of the training file, by which the columns of this one, and its classes, are found.
pub(in crate::data) fn read(
    (path, bytes): (&Path, &[u8]),
    wanted: &Wanted<'_>,
    like: Option<&TableNames>,
    step: &mut Step<'_>,
) -> Result<(Array, Array, TableNames), DataError> {
    let mut fields = records((path, bytes), wanted)?;
    let (mut table, header) = Table::begin(path, &mut fields, wanted, like)?;
    table.read_records(path, &mut fields, step)?;
    if table.rows == 0 {
        return Err(DataError::Format { path: path.to_owned(), reason: "it has no samples".to_owned() });
    }
    let (samples, labels, classes) = table.into_arrays(path);
    Ok((samples, labels, TableNames { header, classes }))
}

impl Table {
    /// Finds the columns, and steps over a header, which is returned.
    fn begin(
        path: &Path,
        fields: &mut Fields<'_>,
        wanted: &Wanted<'_>,
        like: Option<&TableNames>,
    ) -> Result<(Self, Option<Header>), DataError> {
        let mut columns =
            Columns::find(path, fields, wanted.label, like.and_then(|like| like.header.as_ref()))?;
        let header = columns.header.take();
        let may_be_texts = wanted.has_classes && columns.label_count == 1;
        let kind = match like.map(|like| &like.classes) {
            _ if !may_be_texts => Labels::Numbers,
            None => Labels::Open,
            Some(Some(classes)) => Labels::like(classes),
            Some(None) => Labels::Numbers,
        };
        Ok((Self { columns, features: Vec::new(), labels: Vec::new(), kind, rows: 0 }, header))
    }

    /// Whether the label of the first sample is a text.
    fn begins_with_a_text(&mut self, path: &Path, fields: &Fields<'_>) -> Result<bool, DataError> {
        let mut ahead = fields.look_ahead();
        while let Some(field) = ahead.next()? {
            if let Some(Place::Label(_)) = self.columns.places.get(field.column - 1) {
                let mut kind = Labels::Open;
                kind.number(path, &field, number(field.text))?;
                return Ok(matches!(kind, Labels::Texts(_)));
            }
            if field.ends_record {
                break;
            }
        }
        Ok(false)
    }

    fn read_records(
        &mut self,
        path: &Path,
        fields: &mut Fields<'_>,
        step: &mut Step<'_>,
    ) -> Result<(), DataError> {
        while self.read_record(path, fields)? {
            if self.rows.is_multiple_of(STEP_ROWS) {
                step().map_err(|source| DataError::Io { path: path.to_owned(), source })?;
            }
        }
        Ok(())
    }

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
            let value = match place {
                Some(Place::Label(_)) if no_number.is_none() && !is_blank_line => {
                    self.kind.number(path, &field, number(field.text))?
                }
                _ => number(field.text),
            };
            match value {
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

    fn into_arrays(self, path: &Path) -> (Array, Array, Option<ClassNames>) {
        let Self { columns, features, mut labels, kind, rows } = self;
        let classes = kind.into_classes(path, &mut labels);
        let (feature_columns, label_columns) = columns.by_number();
        let features = Array::new(path, Numbers::F32(features), vec![feature_columns.len()], rows);
        let labels = Array::new(path, Numbers::F64(labels), vec![label_columns.len()], rows);
        (features.with_columns(feature_columns), labels.with_columns(label_columns), classes)
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
