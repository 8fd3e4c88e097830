//! A table that is not read into memory: its numbers go to files of their own, once, and stay there.

use std::fs;
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::super::array::{Array, Numbers};
use super::super::array_parts::{ArrayPart, ArrayParts};
use super::super::contents::DiskFile;
use super::super::disk_array::{DiskArray, Encoding};
use super::super::elements::Element;
use super::super::error::DataError;
use super::super::file::Step;
use super::columns::Columns;
use super::numbers_file::{NumbersFile, SHORT};
use super::table::{Read, Table, TableArrays};
use super::table_cache::{ABOUT, Held, LABELS, SAMPLES, TableCache};
use super::table_file::Beginning;

/// What numbers are is known by their key: it changes with what becomes of the same files, and with what lies
/// in a folder.
const VERSION: u32 = 2;

/// How a table is kept that is not in memory.
#[derive(Debug, Clone, Copy)]
pub(in crate::data) struct OnDisk<'a> {
    /// `None`: that of this user.
    pub(in crate::data) cache: Option<&'a TableCache>,
    /// Most bytes of its labels that are read into memory.
    pub(in crate::data) most_in_memory: u64,
}

/// What is kept beside the numbers.
#[derive(Serialize, Deserialize)]
struct About {
    /// Samples of each file.
    rows: Vec<usize>,
    samples_are_short: bool,
    labels_are_short: bool,
    class_names: Option<Vec<String>>,
}

/// Reads a table, or finds it as somebody has read it.
pub(super) fn read(
    table: &Table<'_>,
    on_disk: OnDisk<'_>,
    step: &mut Step<'_>,
) -> Result<TableArrays, DataError> {
    let of_user;
    let cache = match on_disk.cache {
        Some(cache) => cache,
        None => {
            of_user = TableCache::of_user(table.path())?;
            &of_user
        }
    };
    let held =
        cache.obtain(&key(table), table.path(), step, |folder, step| write(table, folder, cache, step))?;
    let Held { folder, samples, labels, about } = held;
    let disk_file = |name, file, most_in_memory| {
        let path = folder.join(name);
        let file = DiskFile::new(&path, file, most_in_memory);
        file.map(Arc::new).map_err(|source| cache.failed(table.path(), &path, 0, source))
    };
    let about: About = serde_json::from_reader(about)
        .map_err(|error| cache.failed(table.path(), &folder.join(ABOUT), 0, error.into()))?;
    let [width, label_width] = table.widths();
    let samples = disk_file(SAMPLES, samples, 0)?;
    let of_input = |numbers: &Range<usize>| {
        table.parts(&about.rows, |path, columns, before, rows| {
            let array = array(&samples, about.samples_are_short, before, &[rows, width])?;
            let names = &columns.names;
            let columns = columns.by_number().0[numbers.clone()].to_vec();
            Ok(array.part(numbers.clone()).of_table(path, columns, names).into())
        })
    };
    let inputs = table.inputs.iter().map(of_input).collect::<Result<_, _>>()?;
    let labels = disk_file(LABELS, labels, on_disk.most_in_memory)?;
    let labels = table.parts(&about.rows, |path, columns, before, rows| {
        if label_width == 0 {
            return Ok(Array::new(path, Numbers::F64(Vec::new()), vec![0], rows).into());
        }
        let array = array(&labels, about.labels_are_short, before, &[rows, label_width])?;
        let array = array.of_table(path, columns.by_number().1, &columns.names);
        match labels.bytes() > labels.most_in_memory {
            true => Ok(array.into()),
            false => array.read(&(0..rows as u32).collect::<Vec<_>>()).map(ArrayPart::from),
        }
    })?;
    Ok(TableArrays { inputs, labels, class_names: about.class_names })
}

/// What all numbers follow from.
fn key(table: &Table<'_>) -> String {
    let mut key = blake3::Hasher::new();
    key.update(format!("{VERSION} {}", table.labels.known()).as_bytes());
    for (file, Beginning { separator, start, columns, .. }) in &table.files {
        let Columns { places, .. } = columns;
        key.update(format!("{} {separator:?} {start} {places:?}", file.digest).as_bytes());
    }
    key.finalize().to_hex().to_string()
}

/// Reads a table into a folder.
fn write(table: &Table<'_>, folder: &Path, cache: &TableCache, step: &mut Step<'_>) -> Result<(), DataError> {
    table.files.iter().try_for_each(|(file, _)| file.check_digest(step))?;
    let file = |name| NumbersFile::create(folder.join(name), cache, table.path());
    let (mut samples, mut labels) = (file(SAMPLES)?, file(LABELS)?);
    let read = table.read(&mut samples, &mut labels, step);
    // What is wrong with other bytes than those of the digest is not theirs.
    let mut on_disk = table.files.iter().filter_map(|(file, _)| file.contents.on_disk());
    on_disk.try_for_each(|file| file.check_unchanged())?;
    let Read { rows, class_names } = read?;
    samples.sync()?;
    labels.sync()?;
    let bytes = samples.bytes() + labels.bytes();
    let (samples_are_short, labels_are_short) = (samples.is_short(), labels.is_short());
    let about = About { rows, samples_are_short, labels_are_short, class_names };
    let path = folder.join(ABOUT);
    let written = serde_json::to_vec(&about).map_err(io::Error::from).and_then(|about| {
        let mut file = fs::File::create(&path)?;
        file.write_all(&about)?;
        file.sync_all()
    });
    written.map_err(|source| cache.failed(table.path(), &path, bytes, source))
}

/// Samples behind so many others. `sizes`: how many, and the numbers of each.
fn array(
    file: &Arc<DiskFile>,
    are_short: bool,
    before: usize,
    sizes: &[usize; 2],
) -> Result<DiskArray, DataError> {
    let element = if are_short { SHORT } else { Element::F64 };
    let start = (before * sizes[1]) as u64 * element.bytes();
    DiskArray::new(file, start, Encoding::LittleEndian(element), sizes)
}

impl Table<'_> {
    /// The first of its files.
    fn path(&self) -> &Path {
        self.files[0].0.path
    }

    /// The samples of each file: `part` gets its path, its columns, how many samples are before it, and how
    /// many it has.
    fn parts(
        &self,
        rows: &[usize],
        mut part: impl FnMut(&Path, &Columns, usize, usize) -> Result<ArrayPart, DataError>,
    ) -> Result<ArrayParts, DataError> {
        let mut before = 0;
        let parts = self.files.iter().zip(rows).map(|((file, beginning), &rows)| {
            let part = part(file.path, &beginning.columns, before, rows)?;
            before += rows;
            Ok(ArrayParts::of(part))
        });
        let mut parts = parts.collect::<Result<Vec<_>, DataError>>()?.into_iter();
        let Some(mut all) = parts.next() else { unreachable!("a table has a file") };
        parts.try_for_each(|more| all.append(more, ""))?;
        Ok(all)
    }
}
