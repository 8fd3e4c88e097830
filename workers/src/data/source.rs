//! One source of a job's data: its files, their digest, and the arrays in them.

use std::path::Path;

use syncline_scheduler::spec::{DataSpec, Source};

use super::array::{Array, SourceArrays};
use super::csv::{self, LabelColumns};
use super::error::DataError;
use super::file::{self, Limit, Step};
use super::signature::ModelSignature;
use super::{cifar10, idx, tensors, text};

/// How files differ in form from those of the job.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Form<'a> {
    /// The data whose training part names the columns of a table, if it has names: they are found here by them, as those of its
    /// `test`. `None`: they are taken as they stand.
    pub(crate) like: Option<&'a DataSpec>,
    /// Whether columns of the label may be there or not, and are not read.
    pub(crate) passes_over_label: bool,
}

impl Form<'_> {
    /// The header by which the columns of this source are found; the files of `like` are read only if both can have one.
    pub(super) fn header_for(
        &self,
        source: &Source,
        contents: &[Vec<u8>],
        wanted: &ModelSignature,
        step: &mut Step<'_>,
    ) -> Result<Option<csv::Header>, DataError> {
        let (Some(like), Source::Csv { path, skip_lines, .. }, [bytes]) = (self.like, source, contents)
        else {
            return Ok(None);
        };
        let Source::Csv { skip_lines: skipped_there, .. } = &like.source else { return Ok(None) };
        let label = labels_of(source, wanted, self.passes_over_label);
        if !csv::names_columns((Path::new(path), bytes), label, *skip_lines)? {
            return Ok(None);
        }
        let label = labels_of(&like.source, wanted, false);
        let mut header = || {
            let mut hasher = blake3::Hasher::new();
            let mut all = like.sources().map(|source| read(source, &mut hasher, step));
            let training = all.next().transpose()?.unwrap_or_default();
            // The digest is one of all files.
            all.try_for_each(|files| files.map(drop))?;
            checked_digest(like, &hasher)?;
            let files = like.source.paths().into_iter().map(Path::new).zip(&training);
            let header = files.map(|(path, bytes)| csv::read_header((path, bytes), label, *skipped_there));
            Ok(header.collect::<Result<Vec<_>, DataError>>()?.pop().flatten())
        };
        header().map_err(|error| DataError::UnknownColumns { path: path.into(), source: Box::new(error) })
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
    let mut limit = if joined { Limit::JOINED } else { Limit::FILE };
    let mut next = |path: &str| {
        let bytes = file::read(Path::new(path), limit, hasher, step)?;
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

/// Which columns of a table are the label.
fn labels_of<'a>(source: &'a Source, wanted: &ModelSignature, passes_over: bool) -> LabelColumns<'a> {
    let Source::Csv { label_columns, label_names, .. } = source else { return LabelColumns::Last(0) };
    let (last, names) = (*label_columns, label_names.as_slice());
    match names {
        _ if passes_over => {
            let shape = wanted.inputs.first().map(|input| input.shape.iter().copied());
            let features =
                shape.and_then(|mut shape| shape.try_fold(1usize, |all, size| all.checked_mul(size?)));
            LabelColumns::PassedOver { last, names, features }
        }
        [] => LabelColumns::Last(last),
        names => LabelColumns::Named(names),
    }
}

/// Reads one source: `contents` are its files, in order. `like`: the names of the columns of the training part.
pub(super) fn parse(
    source: &Source,
    contents: &[Vec<u8>],
    wanted: &ModelSignature,
    like: Option<&csv::Header>,
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
        (Source::Csv { skip_lines, .. }, [file]) => {
            let label = labels_of(source, wanted, passes_over_label);
            let (samples, labels, header) = csv::read(*file, label, *skip_lines, like, step)?;
            return Ok(SourceArrays { header, ..single_input(samples, labels, wanted) });
        }
        (Source::Idx { .. }, [images, labels]) => idx::read(*images, *labels)?,
        (Source::Cifar10 { .. }, files) => cifar10::read(files)?,
        (Source::Text { context, stride, .. }, [file]) => text::read(*file, *context, *stride, wanted, step)?,
        (Source::Safetensors { .. }, [file]) => return tensors::read(*file, wanted),
        _ => unreachable!("a source has as many contents as files"),
    };
    Ok(single_input(samples, labels, wanted))
}

/// What the model wants of a source with one input and one label.
fn single_input(samples: Array, labels: Array, wanted: &ModelSignature) -> SourceArrays {
    let rows = samples.rows;
    let inputs = wanted.inputs.first().map(|_| samples).into_iter().collect();
    SourceArrays { inputs, label: wanted.label.as_ref().map(|_| labels), rows, header: None }
}
