//! One source of a job's data: its files, their digest, and the arrays in them.

use std::collections::BTreeMap;
use std::path::Path;

use syncline_scheduler::{
    ids::ContentDigest,
    spec::{CsvSource, DataSpec, Source},
};

use super::array::{Array, SourceArrays};
use super::array_parts::ArrayParts;
use super::contents::{Contents, DataFile};
use super::csv::{self, InputColumns, LabelColumns, OnDisk, TableCache};
use super::digests::Hashes;
use super::error::{DataError, SettingError, TableError};
use super::file::{self, Limit, Step};
use super::note::Note;
use super::signature::ModelSignature;
use super::{cifar10, idx, npy, npz, tensors, text};

/// Most names of classes that an error repeats.
const SHOWN_CLASSES: usize = 10;

/// How files differ in form from those of the job, and how they are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form<'a> {
    /// The data whose training set names the columns of a table, if it has names, and the classes, if its
    /// labels are texts: they are found here by them, as those of its `test`. `None`: they are taken as
    /// they stand.
    pub(crate) like: Option<&'a DataSpec>,
    /// Whether columns of the label may be there or not, and are not read.
    pub(crate) passes_over_label: bool,
    /// Whether they are other files than those of the job: what texts as labels mean is not theirs to say.
    pub(crate) is_other: bool,
    /// What their only file holds, where it does not lie on a disk: its path is what it is called then.
    pub(crate) given: Option<&'a [u8]>,
    /// Whether the labels of the job are classes, or texts, whose names are of use where no label is read.
    pub(crate) has_classes: bool,
    /// Bytes of a file of arrays or a table above which it stays on the disk, and of one array in it.
    pub(crate) most_in_memory: u64,
    /// Where the numbers of tables are that do; `None`: where those of this user are.
    pub(crate) tables: Option<&'a TableCache>,
}

/// A source, with what its files hold.
pub(super) struct SourceFiles<'a> {
    source: &'a Source,
    /// Which columns of a table each input takes.
    inputs: &'a BTreeMap<String, Vec<String>>,
    contents: Vec<Contents>,
    /// Of the bytes of each file as they lie on the disk.
    digests: &'a [ContentDigest],
    /// Whether a note says so.
    are_noted: bool,
}

impl Default for Form<'_> {
    fn default() -> Self {
        Self {
            like: None,
            passes_over_label: false,
            is_other: false,
            given: None,
            has_classes: false,
            most_in_memory: file::MOST_IN_MEMORY_BYTES,
            tables: None,
        }
    }
}

impl Form<'_> {
    fn on_disk(&self) -> OnDisk<'_> {
        let most_in_memory = self.most_in_memory.min(file::ALWAYS_IN_MEMORY_BYTES);
        OnDisk { cache: self.tables, most_in_memory }
    }

    /// The note of these files, which all have to lie on a disk.
    pub(super) fn note(&self, spec: &DataSpec) -> Option<Note> {
        let of_user = || TableCache::of_user(Path::new("")).ok();
        let tables = self.tables.cloned().or_else(of_user).filter(|_| self.given.is_none())?;
        Note::of(spec, &tables.notes())
    }

    /// The names by which the columns and classes of this source are found; the files of `like` are read only
    /// if they are needed.
    pub(super) fn names_for(
        &self,
        files: &SourceFiles<'_>,
        wanted: &ModelSignature,
        step: &mut Step<'_>,
    ) -> Result<Option<csv::TableNames>, DataError> {
        let nothing = self.is_other.then(csv::TableNames::default);
        let (Some(like), Source::Csv(CsvSource { path, .. })) = (self.like, files.source) else {
            return Ok(nothing);
        };
        if !matches!(like.source, Source::Csv(_)) {
            return Ok(nothing);
        }
        let here = table_of(files.source, files.inputs, wanted, self.passes_over_label);
        if !csv::needs_names(&files.tables(), &here)? {
            // What its labels are the job has stored; numbers would be taken for classes otherwise.
            return Ok(nothing.map(|_| csv::TableNames::stored(like)));
        }
        let there = table_of(&like.source, &like.inputs, wanted, false);
        let there = csv::Wanted { has_classes: there.has_classes || self.has_classes, ..there };
        let mut names = || {
            let mut hashes = Hashes::of(like.paths().len());
            let of_job = Form { most_in_memory: self.most_in_memory, ..Form::default() };
            let mut all = like.sources().map(|source| read(source, of_job, &mut hashes, step));
            let contents = all.next().transpose()?.unwrap_or_default();
            // The digest is one of all files.
            all.try_for_each(|files| files.map(drop))?;
            let digests = hashes.checked(like)?;
            let files = SourceFiles::new(&like.source, &like.inputs, contents, &mut digests.of_each(), false);
            csv::read_names(&files.tables(), &there, self.on_disk(), step)
        };
        let path = path.iter().next().unwrap_or_default().into();
        names().map_err(|error| TableError::UnknownColumns { path, source: Box::new(error) }.into())
    }
}

/// Each file with its bytes, of a source whose files are read into memory.
fn in_memory<'a>(files: &[DataFile<'a>]) -> Vec<(&'a Path, &'a [u8])> {
    let bytes = |contents: &'a Contents| match contents {
        Contents::InMemory(bytes) => bytes.as_slice(),
        Contents::OnDisk(_) => unreachable!("only files of arrays and tables stay on the disk"),
    };
    files.iter().map(|file| (file.path, bytes(file.contents))).collect()
}

/// The files of a source, in order; their bytes on the disk go into `hashes`.
pub(super) fn read(
    source: &Source,
    form: Form<'_>,
    hashes: &mut Hashes,
    step: &mut Step<'_>,
) -> Result<Vec<Contents>, DataError> {
    // Those files become one array: the next is not read if it does not fit behind those before.
    let joined = matches!(source, Source::Cifar10 { .. });
    let mark: &[u8] = match source {
        Source::Npz { .. } => file::ZIP_MARK,
        Source::Npy { .. } => file::NPY_MARK,
        _ => &[],
    };
    let mut limit = match source {
        Source::Cifar10 { .. } => Limit::JOINED,
        Source::Npy { .. } | Source::Npz { .. } | Source::Safetensors { .. } | Source::Idx { .. } => {
            Limit::of_arrays(form.most_in_memory)
        }
        Source::Csv(_) => Limit::of_tables(form.most_in_memory),
        Source::Text { .. } => Limit::FILE,
    };
    let mut next = |path: &str| {
        let contents = match form.given {
            Some(bytes) => file::read_given(bytes, Path::new(path), mark, hashes, step)?,
            None => file::read(Path::new(path), mark, limit, hashes, step)?,
        };
        if joined {
            limit.left -= contents.bytes();
        }
        if contents.on_disk().is_none() {
            limit.spend(contents.bytes());
        }
        Ok(contents)
    };
    source.paths().into_iter().map(&mut next).collect()
}

/// How a table is read.
fn table_of<'a>(
    source: &'a Source,
    inputs: &'a BTreeMap<String, Vec<String>>,
    wanted: &ModelSignature,
    passes_over: bool,
) -> csv::Wanted<'a> {
    let columns = wanted.inputs.iter().filter_map(|input| inputs.get_key_value(&input.name));
    let inputs: Vec<_> = columns.map(|(input, columns)| InputColumns { input, columns }).collect();
    let Source::Csv(CsvSource { label_columns, label_names, skip_lines, separator, .. }) = source else {
        let label = LabelColumns::Last(0);
        return csv::Wanted { label, inputs, skip_lines: 0, separator: None, has_classes: false };
    };
    let (last, names) = (*label_columns, label_names.as_slice());
    let label = match names {
        _ if passes_over => {
            let shape = wanted.inputs.first().map(|input| input.shape.iter().copied());
            let features =
                shape.and_then(|mut shape| shape.try_fold(1usize, |all, size| all.checked_mul(size?)));
            LabelColumns::PassedOver { last, names, features }
        }
        // What no input takes is not read.
        [] if !inputs.is_empty() && wanted.label.is_none() => LabelColumns::Last(0),
        [] => LabelColumns::Last(last),
        names => LabelColumns::Named(names),
    };
    csv::Wanted {
        label,
        inputs,
        skip_lines: *skip_lines,
        separator: *separator,
        has_classes: wanted.texts().is_some(),
    }
}

/// Whether the model tells all texts apart that a table has as labels.
fn check_count(path: &Path, names: &csv::TableNames, wanted: &ModelSignature) -> Result<(), DataError> {
    let (Some(found), Some(classes)) = (&names.classes, wanted.texts()) else { return Ok(()) };
    let found = &found.names;
    if found.len() <= classes {
        return Ok(());
    }
    let names = csv::listed(found, SHOWN_CLASSES, |name| format!("`{}`", csv::shown(name.as_bytes())))
        .unwrap_or_default();
    Err(TableError::TooManyTexts { path: path.to_owned(), found: found.len(), names, classes }.into())
}

impl<'a> SourceFiles<'a> {
    /// `digests`: those of its files, and of others that come behind them, which are left.
    pub(super) fn new(
        source: &'a Source,
        inputs: &'a BTreeMap<String, Vec<String>>,
        contents: Vec<Contents>,
        digests: &mut &'a [ContentDigest],
        are_noted: bool,
    ) -> Self {
        let (here, others) = digests.split_at(contents.len());
        *digests = others;
        Self { source, inputs, contents, digests: here, are_noted }
    }

    fn files(&self) -> Vec<DataFile<'_>> {
        let files = self.source.paths().into_iter().map(Path::new).zip(&self.contents);
        files.map(|(path, contents)| DataFile { path, contents }).collect()
    }

    /// The same of tables.
    fn tables(&self) -> Vec<csv::File<'_>> {
        let files = self.files().into_iter().zip(self.digests);
        let is_noted = self.are_noted;
        let table = |(DataFile { path, contents }, &digest)| csv::File { path, contents, digest, is_noted };
        files.map(table).collect()
    }

    /// Reads them. `like`: the names of the columns and classes of the training set.
    pub(super) fn parse(
        &self,
        form: Form<'_>,
        wanted: &ModelSignature,
        like: Option<&csv::TableNames>,
        step: &mut Step<'_>,
    ) -> Result<SourceArrays, DataError> {
        let found = self.parse_as_they_are(form, wanted, like, step);
        // What stays on the disk is read after the digest was made: what is wrong with other bytes, or with
        // the disk, is not the data's.
        self.contents.iter().filter_map(Contents::on_disk).try_for_each(|file| file.check_unchanged())?;
        found
    }

    fn parse_as_they_are(
        &self,
        form: Form<'_>,
        wanted: &ModelSignature,
        like: Option<&csv::TableNames>,
        step: &mut Step<'_>,
    ) -> Result<SourceArrays, DataError> {
        let files = self.files();
        if files.is_empty() {
            return Err(no_file());
        }
        for DataFile { path, contents } in &files {
            // Its numbers lie beside it until it is read; those of a table ask for themselves.
            if let Contents::InMemory(bytes) = contents {
                file::reserve(&mut Vec::<u8>::new(), bytes.len(), path)?;
            }
        }
        let paired = || files.split_at(files.len() / 2);
        let pairs = || paired().0.iter().zip(paired().1);
        let single =
            |(samples, labels)| source_arrays(vec![ArrayParts::of(samples)], ArrayParts::of(labels), wanted);
        let of_arrays = |(samples, labels): (Array, Array)| single((samples.into(), labels.into()));
        let found = match self.source {
            Source::Csv(_) => {
                let table = table_of(self.source, self.inputs, wanted, form.passes_over_label);
                let found = csv::read(&self.tables(), &table, like, form.on_disk(), step)?;
                let Some((inputs, labels, names)) = found else { return Err(no_file()) };
                check_count(labels.first.path(), &names, wanted)?;
                return Ok(SourceArrays { names, ..source_arrays(inputs, labels, wanted) });
            }
            Source::Idx { .. } => {
                joined(pairs().map(|(images, labels)| idx::read(*images, *labels).map(single)), wanted)?
            }
            Source::Cifar10 { .. } => joined([cifar10::read(&in_memory(&files)).map(of_arrays)], wanted)?,
            Source::Text { context, stride, .. } => {
                let read =
                    |(path, bytes): &(&Path, &[u8])| text::read(path, bytes, *context, *stride, wanted, step);
                joined(in_memory(&files).iter().map(read).map(|arrays| arrays.map(of_arrays)), wanted)?
            }
            Source::Safetensors { .. } => {
                joined(files.iter().map(|file| tensors::read(*file, wanted, step)), wanted)?
            }
            Source::Npz { .. } => joined(files.iter().map(|file| npz::read(*file, wanted, step)), wanted)?,
            Source::Npy { .. } => joined(
                pairs().map(|(samples, labels)| npy::read_pair(*samples, *labels, step).map(single)),
                wanted,
            )?,
        };
        found.ok_or_else(no_file)
    }
}

/// What is found in files that are read one after the other; `None` where there is none.
fn joined(
    files: impl IntoIterator<Item = Result<SourceArrays, DataError>>,
    wanted: &ModelSignature,
) -> Result<Option<SourceArrays>, DataError> {
    let mut files = files.into_iter();
    let mut all = files.next().transpose()?;
    for more in files {
        all.iter_mut().zip(Some(more?)).try_for_each(|(all, more)| all.append(more, wanted))?;
    }
    Ok(all)
}

fn no_file() -> DataError {
    SettingError::Invalid { what: "a source must name at least one file".to_owned() }.into()
}

/// What the model wants of a source that gives samples for each of its inputs in their order, and a label.
fn source_arrays(inputs: Vec<ArrayParts>, labels: ArrayParts, wanted: &ModelSignature) -> SourceArrays {
    let rows = labels.rows();
    let inputs = inputs.into_iter().zip(&wanted.inputs).map(|(samples, _)| samples).collect();
    let label = wanted.label.as_ref().map(|_| labels);
    SourceArrays { inputs, label, rows, names: csv::TableNames::default() }
}
