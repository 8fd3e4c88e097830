//! A data set: in memory, but for arrays that are large.

use std::sync::Arc;

use syncline_scheduler::spec::{DataSpec, Separator, Source, Split};

use super::array::SourceArrays;
use super::array_parts::ArrayParts;
use super::augment::{Augmentation, Pass};
use super::batch::Batch;
use super::column::Column;
use super::csv::{Header, LabelColumn};
use super::digests::{FileDigests, Hashes};
use super::error::{DataError, SettingError};
use super::file::Step;
use super::fit::Purpose;
use super::note::Note;
use super::settings;
use super::signature::ModelSignature;
use super::source::{self, Form, SourceFiles};
use super::stratified;

/// What a model wants of every sample: all floats are finite, all classes in range.
#[derive(Debug, Clone)]
pub struct Dataset {
    inputs: Vec<Column>,
    label: Option<Column>,
    rows: usize,
    /// The first sample that comes from files of the test set.
    test_from: usize,
    /// The first sample that comes from files of the validation set.
    validation_from: usize,
    /// What happens to training samples.
    augmentation: Option<Augmentation>,
    /// Columns of the training set's table that are the label.
    label_columns: Vec<LabelColumn>,
    /// Those that each input takes.
    input_columns: Vec<Vec<LabelColumn>>,
    /// What the classes are called, where the labels of that table are texts.
    class_names: Vec<String>,
    /// What separates the columns of the training set's first table.
    separator: Option<Separator>,
    /// The names of its columns, where they may be a sample.
    header_of_numbers: Vec<String>,
}

/// Which samples are for what: rows, each ascending, of which none is in two parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parts {
    /// Training samples.
    pub train: Vec<u32>,
    /// Samples that say how the training goes.
    pub validation: Vec<u32>,
    /// Samples that say what has come of it.
    pub test: Vec<u32>,
}

impl Dataset {
    /// Reads and checks the data set that `spec` names. If the spec has a digest, other bytes are refused.
    pub fn open(spec: &DataSpec, wanted: &ModelSignature) -> Result<Self, DataError> {
        Self::open_hashed(spec, wanted).map(|(set, _)| set)
    }

    /// Opens a data set as [`open`](Self::open), and returns the digests of what was read, too.
    pub fn open_hashed(spec: &DataSpec, wanted: &ModelSignature) -> Result<(Self, FileDigests), DataError> {
        Self::open_in_steps(spec, wanted, &mut || Ok(()))
    }

    /// The same, with somebody who follows it.
    pub(crate) fn open_in_steps(
        spec: &DataSpec,
        wanted: &ModelSignature,
        step: &mut Step<'_>,
    ) -> Result<(Self, FileDigests), DataError> {
        Self::open_as(spec, wanted, Form::default(), step)
    }

    /// The same of files that may have another form than those of the job.
    pub(crate) fn open_as(
        spec: &DataSpec,
        wanted: &ModelSignature,
        form: Form<'_>,
        step: &mut Step<'_>,
    ) -> Result<(Self, FileDigests), DataError> {
        settings::check(spec, wanted)?;
        let has_texts = |data: &DataSpec| !data.class_names.is_empty();
        let as_texts =
            (has_texts(spec) || form.like.is_some_and(has_texts)).then(|| wanted.clone().of_texts());
        let wanted = as_texts.as_ref().unwrap_or(wanted);
        let note = form.note(spec);
        let is_noted = note.as_ref().is_some_and(Note::is_there);
        let mut hashes = if is_noted { Hashes::noted(spec) } else { Hashes::of(spec.paths().len()) };
        let mut read = |source: &Source, form| source::read(source, form, &mut hashes, step);
        let contents = read(&spec.source, form)?;
        let of_part = Form { given: None, passes_over_label: false, ..form };
        let mut read_of = |source: Option<&'_ Source>| source.map(|source| read(source, of_part)).transpose();
        let test_contents = read_of(spec.test.as_ref())?;
        let validation_contents = read_of(spec.validation.as_ref())?;
        let has_tables = hashes.has_tables;
        let found = hashes.checked(spec)?;
        // Of files that were changed meanwhile it would be another one.
        if let Some(note) =
            note.filter(|note| has_tables && !is_noted && form.note(spec).as_ref() == Some(note))
        {
            note.write();
        }
        let mut digests = found.of_each();
        let mut files =
            |source, contents| SourceFiles::new(source, &spec.inputs, contents, &mut digests, is_noted);
        let files_of_source = files(&spec.source, contents);
        let test = spec.test.as_ref().zip(test_contents).map(|(source, contents)| files(source, contents));
        let validation = spec.validation.as_ref().zip(validation_contents);
        let validation = validation.map(|(source, contents)| files(source, contents));
        let like = form.names_for(&files_of_source, wanted, step)?;
        let mut source = files_of_source.parse(form, wanted, like.as_ref(), step)?;
        drop(files_of_source);
        let names = std::mem::take(&mut source.names);
        // Of other files the classes are those of the job, whether these have labels or not.
        let classes = names.classes.as_ref().or(like.as_ref().and_then(|like| like.classes.as_ref()));
        let class_names = classes.map(|classes| classes.names.clone()).unwrap_or_default();
        let header = names.header.as_ref();
        let features: usize = source.inputs.iter().map(ArrayParts::width).sum();
        let columns = |numbers: &ArrayParts| {
            let others = source.label.as_ref().map_or(0, ArrayParts::width);
            LabelColumn::of_table(numbers, features + others, header)
        };
        let label_columns = source.label.as_ref().map(columns).unwrap_or_default();
        let input_columns = source.inputs.iter().map(columns).collect();
        let purposes = Purposes::of(spec, wanted);
        let mut set = Self::fit(source, &purposes, step).map_err(|error| match header {
            Some(header) if header.begins_unnamed() => error.with_unnamed_column(),
            _ => error,
        })?;
        let mut part = |files: SourceFiles<'_>| {
            let arrays = files.parse(of_part, wanted, Some(&names), step)?;
            drop(files);
            Self::fit(arrays, &purposes, step)
        };
        if let Some(files) = test {
            set.append("test", part(files)?, wanted)?;
        }
        set.augmentation = Augmentation::of(spec, &set.inputs, set.label.as_ref(), wanted)?;
        (set.label_columns, set.input_columns) = (label_columns, input_columns);
        set.class_names = class_names;
        set.separator = names.separator;
        // Whoever names the columns of inputs has looked at it.
        set.header_of_numbers =
            header.filter(|_| spec.inputs.is_empty()).map(Header::numbers).unwrap_or_default();
        set.validation_from = set.rows;
        if let Some(files) = validation {
            set.append("validation", part(files)?, wanted)?;
        }
        Ok((set, found))
    }

    fn fit(raw: SourceArrays, purposes: &Purposes, step: &mut Step<'_>) -> Result<Self, DataError> {
        let inputs = raw.inputs.into_iter().zip(&purposes.inputs);
        let inputs =
            inputs.map(|(parts, purpose)| Column::of(parts, purpose, step)).collect::<Result<_, _>>()?;
        let label = raw.label.zip(purposes.label.as_ref());
        let label = label.map(|(parts, purpose)| Column::of(parts, purpose, step)).transpose()?;
        let (rows, augmentation) = (raw.rows, None);
        let (label_columns, input_columns, class_names) = (Vec::new(), Vec::new(), Vec::new());
        let (test_from, validation_from) = (rows, rows);
        Ok(Self {
            inputs,
            label,
            rows,
            test_from,
            validation_from,
            augmentation,
            label_columns,
            input_columns,
            class_names,
            separator: None,
            header_of_numbers: Vec::new(),
        })
    }

    /// Puts another part behind these samples, for the same model.
    fn append(&mut self, name: &str, part: Self, wanted: &ModelSignature) -> Result<(), DataError> {
        if u32::try_from(self.rows + part.rows).is_err() {
            let what = format!("`source` and `{name}` have more than {} samples together", u32::MAX);
            return Err(SettingError::Invalid { what }.into());
        }
        self.rows += part.rows;
        let names =
            wanted.inputs.iter().map(|input| &input.name).chain(wanted.label.iter().map(|label| &label.name));
        let columns = self.inputs.iter_mut().chain(&mut self.label);
        for ((column, more), input) in columns.zip(part.inputs.into_iter().chain(part.label)).zip(names) {
            let kinds = [column.like().kind(), more.like().kind()];
            if !column.append(more) {
                let [source, part] = kinds;
                let what = format!(
                    "`{input}` is {source} a sample in `source` and {part} in `{name}`: both have to be alike"
                );
                return Err(SettingError::Invalid { what }.into());
            }
        }
        Ok(())
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Whether this input of the model has images that change.
    pub(super) fn is_augmented(&self, input: usize) -> bool {
        self.augmentation.as_ref().is_some_and(|augmentation| augmentation.input == input)
    }

    pub(super) fn inputs(&self) -> &[Column] {
        &self.inputs
    }

    /// Shape of one sample for each input.
    pub fn input_shapes(&self) -> impl Iterator<Item = &[usize]> {
        self.inputs.iter().map(Column::shape)
    }

    /// Shape of the label of one sample, if there is one.
    pub fn label_shape(&self) -> Option<&[usize]> {
        self.label.as_ref().map(Column::shape)
    }

    /// Columns of a CSV file that are the label, in its order; none of another format.
    pub fn label_columns(&self) -> &[LabelColumn] {
        &self.label_columns
    }

    /// The column of a CSV file that a number of an input is, both from 0; `None` of another format.
    pub(crate) fn input_column(&self, input: usize, number: usize) -> Option<&LabelColumn> {
        self.input_columns.get(input)?.get(number)
    }

    /// What the classes are called, from 0, where the labels of a CSV file are texts; none where they are
    /// numbers.
    pub fn class_names(&self) -> &[String] {
        &self.class_names
    }

    /// What separates the columns of a CSV file, of several the first; none of another format.
    pub fn separator(&self) -> Option<Separator> {
        self.separator
    }

    /// What stands in the header of a CSV file, of several the first, where all of it is numbers that do not
    /// count the columns: it may be a sample.
    pub(crate) fn header_of_numbers(&self) -> &[String] {
        &self.header_of_numbers
    }

    pub(super) fn label(&self) -> Option<&Column> {
        self.label.as_ref()
    }

    /// Which samples train, validate and test. `seed`: that of the training, which chooses those that are
    /// held out, unless the spec has one for that.
    ///
    /// # Errors
    /// Labels decide, and are on a disk that does not give them.
    pub fn parts(&self, spec: &DataSpec, seed: u64) -> Result<Parts, DataError> {
        // One number chooses both where the test set is drawn, and it is not that of the training, which may
        // change.
        let seed = if matches!(spec.split, Split::TestPercent(_)) { 0 } else { seed };
        let (train, test) = self.split(spec.split, spec.hold_out_seed.unwrap_or_default())?;
        let (train, mut validation) = match spec.validation_percent {
            Some(percent) => self.hold_out(train, percent, spec.hold_out_seed.unwrap_or(seed) ^ HOLD_OUT)?,
            None => (train, Vec::new()),
        };
        validation.extend(self.validation_from as u32..self.rows as u32);
        Ok(Parts { train, validation, test })
    }

    /// Parts so many in a hundred of these rows from the others, of each class its share, as `seed` draws
    /// them: but where one sample reaches into the next, the last ones, without those that reach into
    /// them.
    fn hold_out(
        &self,
        mut rows: Vec<u32>,
        percent: u32,
        seed: u64,
    ) -> Result<(Vec<u32>, Vec<u32>), DataError> {
        let held = (rows.len() as u64 * u64::from(percent)).div_ceil(100) as usize;
        let overlap = rows.windows(2).any(|pair| self.overlaps(pair[0], pair[1]));
        if overlap {
            let held_out = rows.split_off(rows.len() - held);
            rows.retain(|&row| held_out.first().is_none_or(|&first| !self.overlaps(row, first)));
            return Ok((rows, held_out));
        }
        let classes = self.row_classes(&rows)?;
        let mut is_held = vec![false; rows.len()];
        for place in stratified::draw(rows.len() as u32, held as u32, seed, classes.as_deref()) {
            is_held[place as usize] = true;
        }
        let (held_out, rest): (Vec<_>, Vec<_>) =
            rows.into_iter().zip(is_held).partition(|&(_, is_held)| is_held);
        let rows_of = |of: Vec<(u32, bool)>| of.into_iter().map(|(row, _)| row).collect();
        Ok((rows_of(rest), rows_of(held_out)))
    }

    /// Rows that train or are held out, and rows that test, each ascending. Rows from files of the test set
    /// test, whatever `split`. `seed` draws those of `TestPercent`.
    pub(super) fn split(&self, split: Split, seed: u64) -> Result<(Vec<u32>, Vec<u32>), DataError> {
        let count = self.test_from as u64;
        let is_drawn = |row: u32| match split {
            Split::All | Split::TestPercent(_) => false,
            Split::TestEvery(every) => every > 0 && row.is_multiple_of(every),
            Split::TestLastPercent(percent) => {
                u64::from(row) >= count - (count * u64::from(percent)).div_ceil(100).min(count)
            }
        };
        if let Split::TestPercent(percent) = split {
            return self.hold_out((0..count as u32).collect(), percent, seed ^ TEST);
        }
        let is_test = |row: u32| u64::from(row) >= count || is_drawn(row);
        let (mut train, test): (Vec<u32>, Vec<u32>) =
            (0..self.validation_from as u32).partition(|&row| !is_test(row));
        if let (Split::TestLastPercent(_), Some(&first)) = (split, test.first()) {
            train.retain(|&row| !self.overlaps(row, first));
        }
        Ok((train, test))
    }

    /// Whether the sample of an earlier row reaches into that of a later one.
    fn overlaps(&self, row: u32, later: u32) -> bool {
        let mut columns = self.inputs.iter().chain(&self.label);
        columns.any(|column| (later - row) as usize * column.like().stride < column.width())
    }

    /// An empty batch of this data set's shapes, to be filled by [`gather`](Self::gather).
    pub fn batch(&self) -> Batch {
        let inputs = self.inputs.iter().map(|column| column.like().batch()).collect();
        Batch { rows: 0, inputs, label: self.label.as_ref().map(|column| column.like().batch()) }
    }

    /// Copies rows into `batch`, in the given order, replacing what it held. Of samples in memory it
    /// allocates only while the batch grows; those on the disk are read.
    pub fn gather(&self, rows: &[u32], batch: &mut Batch) -> Result<(), DataError> {
        self.fill(rows, None, batch)
    }

    /// Copies rows into `batch` as [`gather`](Self::gather), for training in this pass: images change as the
    /// spec says in `augment`.
    pub fn gather_to_train(&self, rows: &[u32], pass: Pass, batch: &mut Batch) -> Result<(), DataError> {
        self.fill(rows, self.augmentation.as_ref().map(|augmentation| (augmentation, pass)), batch)
    }

    /// Says which rows are gathered next: those on the disk are fetched meanwhile.
    pub fn read_ahead(&self, rows: &[u32]) {
        self.inputs.iter().chain(&self.label).for_each(|column| column.read_ahead(rows));
    }

    fn fill(
        &self,
        rows: &[u32],
        augmented: Option<(&Augmentation, Pass)>,
        batch: &mut Batch,
    ) -> Result<(), DataError> {
        if let Some(&index) = rows.iter().find(|&&row| row as usize >= self.rows) {
            return Err(DataError::NoSuchRow { index, rows: self.rows });
        }
        batch.rows = rows.len();
        let columns = self.inputs.iter().chain(&self.label);
        let filled = batch.inputs.iter_mut().chain(&mut batch.label);
        for (index, (column, filled)) in columns.zip(filled).enumerate() {
            match augmented.filter(|(augmentation, _)| augmentation.input == index) {
                Some((augmentation, pass)) => column.gather_augmented(rows, augmentation, pass, filled)?,
                None => column.gather(rows, filled)?,
            }
        }
        Ok(())
    }
}

/// Makes the choice of the samples that are held out another one than the order of the first epoch.
const HOLD_OUT: u64 = 0x68_6f6c_6420_6f75;
/// Makes the choice of the test set another one than both.
const TEST: u64 = 0x7465_7374;

/// What the arrays of each file are for, in the order in which the model wants them.
struct Purposes {
    inputs: Vec<Purpose>,
    label: Option<Purpose>,
}

impl Purposes {
    fn of(spec: &DataSpec, wanted: &ModelSignature) -> Self {
        let spec = Arc::new(spec.clone());
        let inputs = wanted.inputs.iter().map(|input| Purpose::Input(input.clone(), spec.clone())).collect();
        Self { inputs, label: wanted.label.clone().map(Purpose::Label) }
    }
}
