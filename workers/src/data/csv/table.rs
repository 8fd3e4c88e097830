//! From the fields of CSV files to the numbers of their samples.

use syncline_scheduler::spec::Separator;

use super::super::array::{Array, Origin};
use super::super::array_parts::ArrayParts;
use super::super::error::DataError;
use super::super::file::{STEP_BYTES, Step, too_large};
use super::classes::{ClassNames, Labels};
use super::columns::{Columns, LabelColumns};
use super::header::{First, Header};
use super::number_sink::{NumberSink, NumbersInMemory};
use super::on_disk::{self, OnDisk};
use super::record_reader::RecordReader;
use super::table_file::{Beginning, File, records};

/// Samples between two steps.
const STEP_ROWS: u64 = 4_096;
/// Numbers that are read before they are kept.
const PENDING_NUMBERS: usize = STEP_BYTES / 8;

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

/// Files that are read as one table, and what their beginnings say.
pub(super) struct Table<'a> {
    pub(super) files: Vec<(File<'a>, Beginning)>,
    pub(super) labels: Labels,
}

/// What was read besides the numbers.
pub(super) struct Read {
    /// Samples of each file.
    pub(super) rows: Vec<usize>,
    /// What the classes are called, where labels are texts.
    pub(super) class_names: Option<Vec<String>>,
}

impl Wanted<'_> {
    /// What labels of a table with these columns are. `like`: of the training set, if this is another one.
    fn labels(&self, columns: &Columns, like: Option<&TableNames>) -> Labels {
        match like.map(|like| &like.classes) {
            _ if !self.has_classes || columns.label_count != 1 => Labels::Numbers,
            None => Labels::Open,
            Some(Some(classes)) => Labels::like(classes),
            Some(None) => Labels::Numbers,
        }
    }
}

/// Whether files other than those of the training set are read by the names of these: if one has a header, or texts as labels.
pub(in crate::data) fn needs_names(files: &[File<'_>], wanted: &Wanted<'_>) -> Result<bool, DataError> {
    for file in files {
        let head = file.head()?;
        let first = First::read(&mut records(file.path, &head, wanted)?)?;
        if first.has_text && first.is_header(wanted.label) {
            return Ok(true);
        }
        // Only the training file says which of the columns is the label that is there as well.
        if let LabelColumns::PassedOver { names: [_, ..], features: Some(numbers), .. } = wanted.label
            && first.names.len() != numbers
        {
            return Ok(true);
        }
        let beginning = file.begin(wanted, None)?;
        let labels = wanted.labels(&beginning.columns, None);
        if matches!(labels, Labels::Open) && file.begins_with_a_text(&beginning)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The names of the files of a training set. Their samples are read only if their labels are texts.
pub(in crate::data) fn read_names(
    files: &[File<'_>],
    wanted: &Wanted<'_>,
    on_disk: OnDisk<'_>,
    step: &mut Step<'_>,
) -> Result<Option<TableNames>, DataError> {
    let Some(&first) = files.first() else { return Ok(None) };
    let mut beginning = first.begin(wanted, None)?;
    let header = beginning.columns.header.take();
    let labels = wanted.labels(&beginning.columns, None);
    if matches!(labels, Labels::Open) && first.begins_with_a_text(&beginning)? {
        return Ok(read(files, wanted, None, on_disk, step)?.map(|(_, _, names)| names));
    }
    Ok(Some(TableNames { header, classes: None, separator: Some(beginning.separator) }))
}

/// Reads files as one table: samples and labels, and the names of its columns and classes; `None` if there is no file. Empty lines at
/// the end of a file are allowed. `like`: the names of the training set, by which the columns of these, and the classes, are found.
/// Without it the first file names the columns of all. Where a file is not in memory, the table is not.
pub(in crate::data) fn read(
    files: &[File<'_>],
    wanted: &Wanted<'_>,
    like: Option<&TableNames>,
    on_disk: OnDisk<'_>,
    step: &mut Step<'_>,
) -> Result<Option<(ArrayParts, ArrayParts, TableNames)>, DataError> {
    let Some((&first, others)) = files.split_first() else { return Ok(None) };
    let like_header = like.and_then(|like| like.header.as_ref());
    let mut beginning = first.begin(wanted, like_header)?;
    let header = beginning.columns.header.take();
    let separator = Some(beginning.separator);
    let labels = wanted.labels(&beginning.columns, like);
    let counts = |columns: &Columns| (columns.feature_count, columns.label_count);
    let mut table = Table { files: vec![(first, beginning)], labels };
    for &file in others {
        let more = file.begin(wanted, header.as_ref().or(like_header))?;
        let columns = &table.files[0].1.columns;
        if counts(&more.columns) != counts(columns) {
            let (path, line) = (file.path.to_owned(), more.line);
            let (found, expected) = (more.columns.places.len(), columns.places.len());
            return Err(DataError::ColumnCount { path, line, found, expected });
        }
        table.files.push((file, more));
    }
    let is_in_memory = files.iter().all(|file| file.contents.on_disk().is_none());
    let (samples, labels, class_names) = match is_in_memory {
        true => table.read_into_memory(step)?,
        false => on_disk::read(&table, on_disk, step)?,
    };
    let classes = class_names.map(|names| {
        let training = like.and_then(|like| like.classes.as_ref()).map(|classes| classes.path.as_path());
        ClassNames { path: training.unwrap_or(first.path).to_owned(), names }
    });
    Ok(Some((samples, labels, TableNames { header, classes, separator })))
}

impl Table<'_> {
    /// Numbers of a sample, and of its label.
    pub(super) fn widths(&self) -> [usize; 2] {
        let columns = &self.files[0].1.columns;
        [columns.feature_count, columns.label_count]
    }

    fn read_into_memory(
        &self,
        step: &mut Step<'_>,
    ) -> Result<(ArrayParts, ArrayParts, Option<Vec<String>>), DataError> {
        let first = self.files[0].0.path;
        let [mut samples, mut labels] = [(); 2].map(|()| NumbersInMemory::of(first));
        let Read { rows, class_names } = self.read(&mut samples, &mut labels, step)?;
        let (mut sample_origins, mut label_origins, mut all_rows) = (Vec::new(), Vec::new(), 0);
        for ((file, Beginning { columns, .. }), rows) in self.files.iter().zip(&rows) {
            let (features, labels) = columns.by_number();
            sample_origins.push(Origin { columns: features, ..Origin::of(file.path, all_rows) });
            label_origins.push(Origin { columns: labels, ..Origin::of(file.path, all_rows) });
            all_rows += rows;
        }
        let [width, label_width] = self.widths();
        let samples = Array::new(first, samples.numbers, vec![width], all_rows);
        let labels = Array::new(first, labels.numbers, vec![label_width], all_rows);
        let samples = ArrayParts::of(samples.with_origins(sample_origins));
        Ok((samples, ArrayParts::of(labels.with_origins(label_origins)), class_names))
    }

    /// Reads all samples of all files, at least one of each.
    pub(super) fn read<S: NumberSink>(
        &self,
        samples: &mut S,
        labels: &mut S,
        step: &mut Step<'_>,
    ) -> Result<Read, DataError> {
        let [width, label_width] = self.widths();
        let bytes: u64 = self.files.iter().map(|(file, _)| file.contents.bytes()).sum();
        let mut reader = RecordReader { features: Vec::new(), labels: Vec::new(), kind: self.labels.clone() };
        let (mut rows, mut all_rows, mut bytes_before) = (Vec::new(), 0, 0);
        for (file, beginning) in &self.files {
            let mut fields = file.samples(beginning)?;
            let rows_before = all_rows;
            loop {
                let is_over = !reader.read_record(file.path, &beginning.columns, &mut fields)?;
                if is_over || reader.features.len() >= PENDING_NUMBERS {
                    let share_read = (bytes_before + fields.position()) as f64 / bytes as f64;
                    samples.append(&reader.features, share_read)?;
                    labels.append(&reader.labels, share_read)?;
                    reader.features.clear();
                    reader.labels.clear();
                }
                if is_over {
                    break;
                }
                all_rows += 1;
                if all_rows * (width + label_width) as u64 > S::MOST {
                    return Err(too_large(file.path, S::MOST, "numbers"));
                }
                if all_rows > u32::MAX.into() {
                    return Err(too_large(file.path, u32::MAX.into(), "samples"));
                }
                if all_rows.is_multiple_of(STEP_ROWS) {
                    step().map_err(|source| DataError::Io { path: file.path.to_owned(), source })?;
                }
            }
            if all_rows == rows_before {
                let (path, reason) = (file.path.to_owned(), "it has no samples".to_owned());
                return Err(DataError::Format { path, reason });
            }
            rows.push((all_rows - rows_before) as usize);
            bytes_before += file.contents.bytes();
        }
        let Some((names, classes)) = reader.kind.into_classes() else {
            return Ok(Read { rows, class_names: None });
        };
        classes.map_or(Ok(()), |classes| labels.replace(&classes))?;
        Ok(Read { rows, class_names: Some(names) })
    }
}
