//! From the fields of CSV files to the numbers of their samples.

use std::path::Path;

use syncline_rpc::input;
use syncline_scheduler::spec::Separator;

use super::super::array::{Array, Numbers, Origin};
use super::super::error::DataError;
use super::super::file::{MAX_ELEMENTS, Step, reserve, too_large};
use super::classes::{ClassNames, Labels};
use super::columns::{Columns, LabelColumns, Place};
use super::comments;
use super::fields::{Field, Fields};
use super::header::{First, Header};
use super::separator;
use super::text::{has_comma, number, shown};

/// Samples between two steps.
const STEP_ROWS: usize = 4_096;

/// A file, and its bytes.
pub(in crate::data) type File<'a> = (&'a Path, &'a [u8]);

/// What is wanted of a file.
#[derive(Debug, Clone, Copy)]
pub(in crate::data) struct Wanted<'a> {
    pub(in crate::data) label: LabelColumns<'a>,
    /// Lines at the top that are not looked at.
    pub(in crate::data) skip_lines: u32,
    /// What separates columns; `None`: what the file shows.
    pub(in crate::data) separator: Option<Separator>,
    /// Whether the label is a class, so that in one column it may be a text.
    pub(in crate::data) has_classes: bool,
}

/// What a training set is read with and others are read by.
#[derive(Debug, Default)]
pub(in crate::data) struct TableNames {
    /// The names of its columns, if its first file has a header.
    pub(in crate::data) header: Option<Header>,
    /// Its classes, if its labels are texts.
    pub(in crate::data) classes: Option<ClassNames>,
    /// What separates the columns of its first file.
    pub(in crate::data) separator: Option<Separator>,
}

/// The numbers of all samples so far.
struct Table<'a> {
    /// Those of the file that is read.
    columns: Columns,
    features: Vec<f64>,
    labels: Vec<f64>,
    kind: Labels,
    rows: usize,
    /// Where the numbers of a sample, and those of its label, come from.
    feature_origins: Vec<Origin>,
    label_origins: Vec<Origin>,
    /// The file that named the classes.
    first: &'a Path,
}

/// The fields from the first record on.
fn records<'a>((path, bytes): File<'a>, wanted: &Wanted<'_>) -> Result<Fields<'a>, DataError> {
    let bytes = input::without_mark(bytes);
    let separator = match wanted.separator {
        Some(separator) => separator,
        None => separator::find(path, bytes, wanted.skip_lines)?,
    };
    let mut fields = Fields::new(path, bytes, wanted.skip_lines, separator);
    comments::pass_over(path, &mut fields, wanted.label)?;
    Ok(fields)
}

/// Whether files other than those of the training set are read by the names of these: if one has a header, or texts as labels.
pub(in crate::data) fn needs_names(files: &[File<'_>], wanted: &Wanted<'_>) -> Result<bool, DataError> {
    for file in files {
        let mut fields = records(*file, wanted)?;
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
        let columns = Columns::find(file.0, &mut fields, wanted.label, None)?;
        let mut table = Table::new(file.0, columns, wanted, None);
        if matches!(table.kind, Labels::Open) && table.begins_with_a_text(file.0, &fields)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The names of the files of a training set. Their samples are read only if their labels are texts.
pub(in crate::data) fn read_names(
    files: &[File<'_>],
    wanted: &Wanted<'_>,
    step: &mut Step<'_>,
) -> Result<Option<TableNames>, DataError> {
    let Some(&first) = files.first() else { return Ok(None) };
    let mut fields = records(first, wanted)?;
    let separator = Some(fields.separator());
    let mut columns = Columns::find(first.0, &mut fields, wanted.label, None)?;
    let header = columns.header.take();
    let mut table = Table::new(first.0, columns, wanted, None);
    if matches!(table.kind, Labels::Open) && table.begins_with_a_text(first.0, &fields)? {
        return Ok(read(files, wanted, None, step)?.map(|(_, _, names)| names));
    }
    Ok(Some(TableNames { header, classes: None, separator }))
}

/// Reads files as one table: samples and labels, and the names of its columns and classes; `None` if there is no file. Empty lines at
/// the end of a file are allowed. `like`: the names of the training set, by which the columns of these, and the classes, are found.
/// Without it the first file names the columns of all.
pub(in crate::data) fn read(
    files: &[File<'_>],
    wanted: &Wanted<'_>,
    like: Option<&TableNames>,
    step: &mut Step<'_>,
) -> Result<Option<(Array, Array, TableNames)>, DataError> {
    let Some((&first, others)) = files.split_first() else { return Ok(None) };
    let like_header = like.and_then(|like| like.header.as_ref());
    let mut fields = records(first, wanted)?;
    let separator = Some(fields.separator());
    let mut columns = Columns::find(first.0, &mut fields, wanted.label, like_header)?;
    let header = columns.header.take();
    let mut table = Table::new(first.0, columns, wanted, like);
    table.read_file(first.0, &mut fields, step)?;
    for &file in others {
        let mut fields = records(file, wanted)?;
        let line = fields.line_number();
        let columns = Columns::find(file.0, &mut fields, wanted.label, header.as_ref().or(like_header))?;
        table.go_on_with(file.0, line, columns)?;
        table.read_file(file.0, &mut fields, step)?;
    }
    let (samples, labels, classes) = table.into_arrays();
    Ok(Some((samples, labels, TableNames { header, classes, separator })))
}

impl<'a> Table<'a> {
    /// Without a sample, of files that begin with this one.
    fn new(first: &'a Path, columns: Columns, wanted: &Wanted<'_>, like: Option<&TableNames>) -> Self {
        let may_be_texts = wanted.has_classes && columns.label_count == 1;
        let kind = match like.map(|like| &like.classes) {
            _ if !may_be_texts => Labels::Numbers,
            None => Labels::Open,
            Some(Some(classes)) => Labels::like(classes),
            Some(None) => Labels::Numbers,
        };
        Self {
            columns,
            features: Vec::new(),
            labels: Vec::new(),
            kind,
            rows: 0,
            feature_origins: Vec::new(),
            label_origins: Vec::new(),
            first,
        }
    }

    /// The columns of the next file, whose first record begins in this line: they hold as many numbers as those before.
    fn go_on_with(&mut self, path: &Path, line: u64, columns: Columns) -> Result<(), DataError> {
        let counts = |columns: &Columns| (columns.feature_count, columns.label_count);
        if counts(&columns) != counts(&self.columns) {
            let (found, expected) = (columns.places.len(), self.columns.places.len());
            return Err(DataError::ColumnCount { path: path.to_owned(), line, found, expected });
        }
        self.columns = columns;
        Ok(())
    }

    /// Reads all samples of a file, at least one.
    fn read_file(
        &mut self,
        path: &Path,
        fields: &mut Fields<'_>,
        step: &mut Step<'_>,
    ) -> Result<(), DataError> {
        let first_row = self.rows;
        let (features, labels) = self.columns.by_number();
        self.feature_origins.push(Origin { columns: features, ..Origin::of(path, first_row) });
        self.label_origins.push(Origin { columns: labels, ..Origin::of(path, first_row) });
        self.read_records(path, fields, step)?;
        if self.rows == first_row {
            return Err(DataError::Format { path: path.to_owned(), reason: "it has no samples".to_owned() });
        }
        Ok(())
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
        let (mut record_line, mut refusal) = (None, None);
        while let Some(field) = fields.next()? {
            let line = *record_line.get_or_insert(field.line);
            let is_blank_line = field.column == 1 && field.ends_record && field.text.is_empty();
            let found = if is_blank_line { 0 } else { field.column };
            let place = self.columns.places.get(field.column - 1);
            let value = match place {
                Some(Place::Label(_)) if refusal.is_none() && !is_blank_line => {
                    self.kind.number(path, &field, number(field.text))
                }
                _ => Ok(number(field.text)),
            };
            match value {
                _ if place == Some(&Place::Ignored) => {}
                Err(error) => refusal = Some(error),
                Ok(Some(value)) => match place {
                    Some(Place::Feature(number)) => self.features[first_feature + number] = value,
                    Some(Place::Label(number)) => self.labels[first_label + number] = value,
                    Some(Place::Ignored) | None => {}
                },
                Ok(None) => {
                    let name = self.columns.names.get(field.column - 1);
                    refusal = refusal.or_else(|| Some(not_a_number(path, &field, name)));
                }
            }
            if field.ends_record {
                // Where a separator is missing or too many, no field is what its column says.
                return match refusal {
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

    fn into_arrays(self) -> (Array, Array, Option<ClassNames>) {
        let Self { columns, features, mut labels, kind, rows, feature_origins, label_origins, first } = self;
        let classes = kind.into_classes(first, &mut labels);
        let Columns { feature_count, label_count, .. } = columns;
        let features = Array::new(first, Numbers::F64(features), vec![feature_count], rows);
        let labels = Array::new(first, Numbers::F64(labels), vec![label_count], rows);
        (features.with_origins(feature_origins), labels.with_origins(label_origins), classes)
    }
}

/// `name`: that of its column, where there is a header.
fn not_a_number(path: &Path, field: &Field<'_>, name: Option<&String>) -> DataError {
    let (path, line, column, text) = (path.to_owned(), field.line, field.column, shown(field.text));
    let name = name.filter(|name| !name.is_empty()).map(|name| shown(name.as_bytes()));
    match has_comma(field.text) {
        true => DataError::Comma { path, line, column, name, text },
        false => DataError::NotANumber { path, line, column, name, text },
    }
}
