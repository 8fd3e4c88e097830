//! From the fields of CSV files to the numbers of their samples.

use std::iter;
use std::ops::Range;

use syncline_scheduler::spec::{DataSpec, Separator};

use super::super::array::{Array, Numbers, Origin};
use super::super::array_parts::ArrayParts;
use super::super::error::{DataError, FileError, FormatError, TableError};
use super::super::file::{STEP_BYTES, Step, too_large};
use super::classes::{ClassNames, Labels};
use super::columns::{Columns, LabelColumns};
use super::header::{First, Header};
use super::input_columns::InputColumns;
use super::number_sink::{NumberSink, NumbersOfParts};
use super::on_disk::{self, OnDisk};
use super::record_reader::RecordReader;
use super::table_file::{Beginning, File, records};

/// Samples between two steps.
const STEP_ROWS: u64 = 4_096;
/// Numbers that are read before they are kept.
const PENDING_NUMBERS: usize = STEP_BYTES / 8;

/// What is wanted of a file.
#[derive(Debug, Clone)]
pub(in crate::data) struct Wanted<'a> {
    pub(in crate::data) label: LabelColumns<'a>,
    /// In the order in which the model has them; none where its only input takes all columns that are no
    /// label.
    pub(in crate::data) inputs: Vec<InputColumns<'a>>,
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
    /// Which numbers of a sample each input of the model takes.
    pub(super) inputs: Vec<Range<usize>>,
    pub(super) labels: Labels,
}

/// The numbers of a table.
pub(super) struct TableArrays {
    /// Those that each input takes.
    pub(super) inputs: Vec<ArrayParts>,
    pub(super) labels: ArrayParts,
    /// What the classes are called, where labels are texts.
    pub(super) class_names: Option<Vec<String>>,
}

/// What was read besides the numbers.
pub(super) struct Read {
    /// Samples of each file.
    pub(super) rows: Vec<usize>,
    /// What the classes are called, where labels are texts.
    pub(super) class_names: Option<Vec<String>>,
}

impl TableNames {
    /// The classes that a job has stored with its data, without its files.
    pub(in crate::data) fn stored(data: &DataSpec) -> Self {
        let path = data.source.paths().first().copied().unwrap_or_default();
        let classes = ClassNames { path: path.into(), names: data.class_names.clone() };
        Self { classes: Some(classes).filter(|classes| !classes.names.is_empty()), ..Self::default() }
    }
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

    /// Whether this first record of a file names columns of inputs, and the label is asked for by name, too:
    /// nobody else has to say which column is what.
    fn is_named_by(&self, first: &First) -> bool {
        let mut of_inputs = self.inputs.iter().flat_map(|input| input.columns);
        !matches!(self.label, LabelColumns::Last(1..)) && of_inputs.any(|name| first.names.contains(name))
    }

    /// Which of so many numbers of a sample each input takes.
    fn parts(&self, width: usize) -> Vec<Range<usize>> {
        let widths = match self.inputs.as_slice() {
            [] => vec![width],
            inputs => inputs.iter().map(|input| input.columns.len()).collect(),
        };
        let parts = widths.into_iter().scan(0, |end, width| {
            let start = std::mem::replace(end, *end + width);
            Some(start..*end)
        });
        parts.collect()
    }
}

/// Whether files other than those of the training set are read by the names of these: if one has a header, or
/// texts as labels.
pub(in crate::data) fn needs_names(files: &[File<'_>], wanted: &Wanted<'_>) -> Result<bool, DataError> {
    for file in files {
        let head = file.head()?;
        let first = First::read(&mut records(file.path, &head, wanted)?)?;
        let is_named = wanted.is_named_by(&first);
        if !is_named && first.has_text && first.is_header(wanted.label, &wanted.inputs) {
            return Ok(true);
        }
        // Only the training file says which of the columns is the label that is there as well.
        if let LabelColumns::PassedOver { names: [_, ..], features: Some(numbers), .. } = wanted.label
            && !is_named
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

/// Reads files as one table: what each input takes, labels, and the names of its columns and classes; `None`
/// if there is no file. Empty lines at the end of a file are allowed. `like`: the names of the training set,
/// by which the columns of these, and the classes, are found. Without it the first file names the columns of
/// all. Where a file is not in memory, the table is not.
pub(in crate::data) fn read(
    files: &[File<'_>],
    wanted: &Wanted<'_>,
    like: Option<&TableNames>,
    on_disk: OnDisk<'_>,
    step: &mut Step<'_>,
) -> Result<Option<(Vec<ArrayParts>, ArrayParts, TableNames)>, DataError> {
    let Some((&first, others)) = files.split_first() else { return Ok(None) };
    let like_header = like.and_then(|like| like.header.as_ref());
    let mut beginning = first.begin(wanted, like_header)?;
    let header = beginning.columns.header.take();
    let separator = Some(beginning.separator);
    let labels = wanted.labels(&beginning.columns, like);
    let counts = |columns: &Columns| (columns.feature_count, columns.label_count);
    let inputs = wanted.parts(beginning.columns.feature_count);
    let mut table = Table { files: vec![(first, beginning)], inputs, labels };
    for &file in others {
        let more = file.begin(wanted, header.as_ref().or(like_header))?;
        let columns = &table.files[0].1.columns;
        if counts(&more.columns) != counts(columns) {
            let (path, line) = (file.path.to_owned(), more.line);
            let (found, expected) = (more.columns.places.len(), columns.places.len());
            return Err(TableError::ColumnCount { path, line, found, expected }.into());
        }
        table.files.push((file, more));
    }
    let is_in_memory = files.iter().all(|file| file.contents.on_disk().is_none());
    let TableArrays { inputs, labels, class_names } = match is_in_memory {
        true => table.read_into_memory(step)?,
        false => on_disk::read(&table, on_disk, step)?,
    };
    let classes = class_names.map(|names| {
        let training = like.and_then(|like| like.classes.as_ref()).map(|classes| classes.path.as_path());
        ClassNames { path: training.unwrap_or(first.path).to_owned(), names }
    });
    Ok(Some((inputs, labels, TableNames { header, classes, separator })))
}

impl Table<'_> {
    /// Numbers of a sample, and of its label.
    pub(super) fn widths(&self) -> [usize; 2] {
        let columns = &self.files[0].1.columns;
        [columns.feature_count, columns.label_count]
    }

    fn read_into_memory(&self, step: &mut Step<'_>) -> Result<TableArrays, DataError> {
        let first = self.files[0].0.path;
        let [_, label_width] = self.widths();
        let [of_label, of_inputs] = [iter::once(0..label_width).collect(), self.inputs.clone()];
        let [mut labels, mut inputs] = [of_label, of_inputs].map(|parts| NumbersOfParts::of(first, parts));
        let Read { rows, class_names } = self.read(&mut inputs, &mut labels, step)?;
        let all_rows = rows.iter().sum();
        let array = |(part, numbers): (Range<usize>, Numbers), columns: fn(&Columns) -> Vec<usize>| {
            let first_rows = rows.iter().scan(0, |next, rows| Some(std::mem::replace(next, *next + rows)));
            let origins = self.files.iter().zip(first_rows).map(|((file, beginning), first_row)| {
                let column_names = Some(beginning.columns.names.clone());
                let columns = columns(&beginning.columns)[part.clone()].to_vec();
                Origin { columns, column_names, ..Origin::of(file.path, first_row) }
            });
            let array = Array::new(first, numbers, vec![part.len()], all_rows);
            ArrayParts::of(array.with_origins(origins.collect()))
        };
        let inputs = inputs.into_parts().map(|part| array(part, |columns| columns.by_number().0));
        let inputs = inputs.collect();
        let labels = labels.into_parts().map(|part| array(part, |columns| columns.by_number().1)).next();
        let Some(labels) = labels else { unreachable!("labels are one part") };
        Ok(TableArrays { inputs, labels, class_names })
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
                    step().map_err(|source| FileError::Io { path: file.path.to_owned(), source })?;
                }
            }
            if all_rows == rows_before {
                let (path, reason) = (file.path.to_owned(), "it has no samples".to_owned());
                return Err(FormatError::Malformed { path, reason }.into());
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
