//! One source of a job's data: its files, their digest, and the arrays in them.

use std::path::Path;

use syncline_scheduler::spec::{DataSpec, Source};

use super::array::{Array, SourceArrays};
use super::csv::{self, LabelColumns};
use super::error::DataError;
use super::file::{self, Limit, Step};
use super::signature::ModelSignature;
use super::{cifar10, idx, npy, npz, tensors, text};

/// Most names of classes that an error repeats.
const SHOWN_CLASSES: usize = 10;

/// How files differ in form from those of the job.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Form<'a> {
    /// The data whose training part names the columns of a table, if it has names, and the classes, if its labels are texts: they are
    /// found here by them, as those of its `test`. `None`: they are taken as they stand.
    pub(crate) like: Option<&'a DataSpec>,
    /// Whether columns of the label may be there or not, and are not read.
    pub(crate) passes_over_label: bool,
    /// Whether they are other files than those of the job: what texts as labels mean is not theirs to say.
    pub(crate) is_other: bool,
    /// Whether the labels of the job are classes, whose names are of use where no label is read.
    pub(crate) has_classes: bool,
}

impl Form<'_> {
    /// The names by which the columns and classes of this source are found; the files of `like` are read only if they are needed.
    pub(super) fn names_for(
        &self,
        source: &Source,
        contents: &[Vec<u8>],
        wanted: &ModelSignature,
        step: &mut Step<'_>,
    ) -> Result<Option<csv::TableNames>, DataError> {
        let nothing = self.is_other.then(csv::TableNames::default);
        let (Some(like), Source::Csv { path, .. }, [bytes]) = (self.like, source, contents) else {
            return Ok(nothing);
        };
        let Source::Csv { .. } = &like.source else { return Ok(nothing) };
        let here = table_of(source, wanted, self.passes_over_label);
        if !csv::needs_names((Path::new(path), bytes), &here)? {
            return Ok(nothing);
        }
        let there = table_of(&like.source, wanted, false);
        let there = csv::Wanted { has_classes: there.has_classes || self.has_classes, ..there };
        let mut names = || {
            let mut hasher = blake3::Hasher::new();
            let mut all = like.sources().map(|source| read(source, &mut hasher, step));
            let training = all.next().transpose()?.unwrap_or_default();
            // The digest is one of all files.
            all.try_for_each(|files| files.map(drop))?;
            checked_digest(like, &hasher)?;
            let files = like.source.paths().into_iter().map(Path::new).zip(&training);
            let names = files.map(|(path, bytes)| csv::read_names((path, bytes), &there, step));
            Ok(names.collect::<Result<Vec<_>, DataError>>()?.pop())
        };
        names().map_err(|error| DataError::UnknownColumns { path: path.into(), source: Box::new(error) })
    }
}

/// The files of a source, in order; their bytes on the disk go into `hasher`.
pub(super) fn read(
    source: &Source,
    hasher: &mut blake3::Hasher,
    step: &mut Step<'_>,
) -> Result<Vec<Vec<u8>>, DataError> {
    // Those files become one array: the next is not read if it does not fit behind those before.
    let joined = matches!(source, Source::Cifar10 { .. });
    let mark: &[u8] = match source {
        Source::Npz { .. } => file::ZIP_MARK,
        Source::Npy { .. } => file::NPY_MARK,
        _ => &[],
    };
    let mut limit = if joined { Limit::JOINED } else { Limit::FILE };
    let mut next = |path: &str| {
        let bytes = file::read(Path::new(path), mark, limit, hasher, step)?;
        if joined {
            limit.left -= bytes.len() as u64;
        }
        Ok(bytes)
    };
    source.paths().into_iter().map(&mut next).collect()
}

/// The digest of all files, which must be that of the job, if it has one.
pub(super) fn checked_digest(spec: &DataSpec, hasher: &blake3::Hasher) -> Result<String, DataError> {
    let found = hasher.finalize().to_hex().to_string();
    match spec.digest.as_ref().filter(|expected| **expected != found) {
        None => Ok(found),
        Some(expected) => {
            let (files, expected) = (spec.paths().join(", "), expected.clone());
            Err(DataError::Digest { files, expected, found })
        }
    }
}

/// How a table is read.
fn table_of<'a>(source: &'a Source, wanted: &ModelSignature, passes_over: bool) -> csv::Wanted<'a> {
    let Source::Csv { label_columns, label_names, skip_lines, .. } = source else {
        return csv::Wanted { label: LabelColumns::Last(0), skip_lines: 0, has_classes: false };
    };
    let (last, names) = (*label_columns, label_names.as_slice());
    let label = match names {
        _ if passes_over => {
            let shape = wanted.inputs.first().map(|input| input.shape.iter().copied());
            let features =
                shape.and_then(|mut shape| shape.try_fold(1usize, |all, size| all.checked_mul(size?)));
            LabelColumns::PassedOver { last, names, features }
        }
        [] => LabelColumns::Last(last),
        names => LabelColumns::Named(names),
    };
    csv::Wanted { label, skip_lines: *skip_lines, has_classes: wanted.classes().is_some() }
}

/// Whether the model tells all texts apart that a table has as labels.
fn check_count(path: &Path, names: &csv::TableNames, wanted: &ModelSignature) -> Result<(), DataError> {
    let (Some(found), Some(classes)) = (&names.classes, wanted.classes()) else { return Ok(()) };
    let (found, classes) = (&found.names, classes as usize);
    if found.len() <= classes {
        return Ok(());
    }
    let names = csv::listed(found, SHOWN_CLASSES, |name| format!("`{name}`")).unwrap_or_default();
    Err(DataError::TooManyTexts { path: path.to_owned(), found: found.len(), names, classes })
}

/// Reads one source: `contents` are its files, in order. `like`: the names of the columns and classes of the training part.
pub(super) fn parse(
    source: &Source,
    contents: &[Vec<u8>],
    wanted: &ModelSignature,
    like: Option<&csv::TableNames>,
    passes_over_label: bool,
    step: &mut Step<'_>,
) -> Result<SourceArrays, DataError> {
    let paths = source.paths();
    let files: Vec<(&Path, &[u8])> =
        paths.iter().map(Path::new).zip(contents.iter().map(Vec::as_slice)).collect();
    for (path, bytes) in &files {
        // Its numbers lie beside it until it is read; those of a table ask for themselves.
        file::reserve(&mut Vec::<u8>::new(), bytes.len(), path)?;
    }
    let (samples, labels) = match (source, files.as_slice()) {
        (Source::Csv { .. }, [file]) => {
            let table = table_of(source, wanted, passes_over_label);
            let (samples, labels, names) = csv::read(*file, &table, like, step)?;
            check_count(file.0, &names, wanted)?;
            return Ok(SourceArrays { names, ..single_input(samples, labels, wanted) });
        }
        (Source::Idx { .. }, [images, labels]) => idx::read(*images, *labels)?,
        (Source::Cifar10 { .. }, files) => cifar10::read(files)?,
        (Source::Text { context, stride, .. }, [file]) => text::read(*file, *context, *stride, wanted, step)?,
        (Source::Safetensors { .. }, [file]) => return tensors::read(*file, wanted, step),
        (Source::Npz { .. }, [file]) => return npz::read(*file, wanted, step),
        (Source::Npy { .. }, [samples, labels]) => npy::read_pair(*samples, *labels, step)?,
        _ => unreachable!("a source has as many contents as files"),
    };
    Ok(single_input(samples, labels, wanted))
}

/// What the model wants of a source with one input and one label.
fn single_input(samples: Array, labels: Array, wanted: &ModelSignature) -> SourceArrays {
    let rows = samples.rows;
    let inputs = wanted.inputs.first().map(|_| samples).into_iter().collect();
    SourceArrays {
        inputs,
        label: wanted.label.as_ref().map(|_| labels),
        rows,
        names: csv::TableNames::default(),
    }
}
