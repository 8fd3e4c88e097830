//! A file of arrays as `numpy.savez` writes it, with a row for each sample in every array.
//!
//! Rows come a batch at a time and an archive holds one array after the other: each waits in a file of its
//! own, so that no more than a batch is in memory.

use std::{
    fs::File,
    io::{self, BufWriter, Seek, Write},
    path::{Path, PathBuf},
};

use syncline_onnx::TensorView;
use syncline_workers::predict::Predicted;
use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

use crate::cli::{exported::ExportError, whole_file::WholeFile};

/// A header of numpy ends where the numbers may be mapped into memory.
const HEADER_MULTIPLE: usize = 64;
/// Magic, version and length of a header.
const PREAMBLE_BYTES: usize = 10;

/// Arrays on their way; the file is gone again unless [`ArraysFile::finish`] puts it in its place.
pub(super) struct ArraysFile {
    file: WholeFile,
    arrays: Vec<(Array, BufWriter<File>)>,
    rows: usize,
}

/// Some rows of an array.
struct Array {
    name: String,
    /// What numpy calls the type of its numbers.
    element: &'static str,
    /// Sizes of a sample's axes.
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl ArraysFile {
    pub(super) fn create(path: &Path, replaces: bool) -> Result<Self, ExportError> {
        let file = WholeFile::create_over(path, replaces)?;
        Ok(Self { file, arrays: Vec::new(), rows: 0 })
    }

    /// Adds these samples.
    pub(super) fn add(&mut self, predicted: &Predicted<'_>) -> Result<(), ExportError> {
        let parts = arrays(predicted);
        if self.arrays.is_empty() {
            for part in &parts {
                let waits = tempfile::tempfile_in(self.file.folder());
                let array =
                    Array { name: part.name.clone(), bytes: Vec::new(), shape: part.shape.clone(), ..*part };
                self.arrays.push((array, BufWriter::new(waits.map_err(|source| self.file.failed(source))?)));
            }
        }
        self.rows += predicted.rows.len();
        for ((_, waits), part) in self.arrays.iter_mut().zip(&parts) {
            waits.write_all(&part.bytes).map_err(|source| self.file.failed(source))?;
        }
        Ok(())
    }

    /// Gives the file its name, which is returned.
    pub(super) fn finish(mut self) -> Result<PathBuf, ExportError> {
        let written = write_all(self.file.writer(), self.arrays, self.rows);
        written.map_err(|source| self.file.failed(source))?;
        self.file.finish()
    }
}

fn write_all(
    to: &mut (impl Write + Seek),
    arrays: Vec<(Array, BufWriter<File>)>,
    rows: usize,
) -> io::Result<()> {
    let mut archive = ZipWriter::new(to);
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored).large_file(true);
    for (array, waits) in arrays {
        archive.start_file(format!("{}.npy", array.name), stored)?;
        archive.write_all(&header(&array, rows))?;
        let mut waits = waits.into_inner()?;
        waits.rewind()?;
        io::copy(&mut waits, &mut archive)?;
    }
    archive.finish()?;
    Ok(())
}

/// The outputs under their names, and beside them `sample`, `label` and `predicted`, where no output is
/// called so.
fn arrays(predicted: &Predicted<'_>) -> Vec<Array> {
    let floats = |values: &[f32]| values.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let mut all: Vec<Array> = predicted
        .outputs
        .iter()
        .map(|output| Array {
            name: output.name.clone(),
            element: "<f4",
            shape: output.shape.clone(),
            bytes: floats(&output.values),
        })
        .collect();
    let rows = predicted.rows.iter().flat_map(|row| i64::from(*row).to_le_bytes()).collect();
    let mut beside =
        vec![Array { name: "sample".to_owned(), element: "<i8", shape: Vec::new(), bytes: rows }];
    let label = predicted.label.and_then(|label| {
        let (element, bytes) = match label {
            TensorView::I64 { data, .. } => {
                ("<i8", data.iter().flat_map(|class| class.to_le_bytes()).collect())
            }
            TensorView::F32 { data, .. } => ("<f4", floats(data)),
            _ => return None,
        };
        Some(Array {
            name: "label".to_owned(),
            element,
            shape: label.shape().iter().skip(1).copied().collect(),
            bytes,
        })
    });
    beside.extend(label);
    let each = predicted.predicted.len() / predicted.rows.len().max(1);
    if each > 0 {
        // -1 where scores are NaN.
        let classes = predicted.predicted.iter().map(|class| class.map_or(-1, i64::from));
        let bytes = classes.flat_map(i64::to_le_bytes).collect();
        let shape = shape_of_predicted(predicted, each);
        beside.push(Array { name: "predicted".to_owned(), element: "<i8", shape, bytes });
    }
    beside.retain(|array| all.iter().all(|output| output.name != array.name));
    all.extend(beside);
    all
}

/// That of the labels with which they are compared; without these that of the places for which there are
/// scores of classes, as the pixels of an image are. `each`: how many there are for a sample.
fn shape_of_predicted(predicted: &Predicted<'_>, each: usize) -> Vec<usize> {
    let labels = predicted.label.iter().map(|label| &label.shape()[1..]);
    let places = predicted.outputs.iter().filter_map(|output| output.shape.get(1..));
    let shape = labels.chain(places).find(|shape| shape.iter().product::<usize>() == each);
    shape.map_or_else(|| vec![each], <[usize]>::to_vec)
}

/// Source: numpy.org/doc/stable/reference/generated/numpy.lib.format.html, version 1.0.
fn header(array: &Array, rows: usize) -> Vec<u8> {
    let sizes: String = [rows].iter().chain(&array.shape).map(|size| format!("{size}, ")).collect();
    let mut text = format!(
        "{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
        array.element,
        sizes.trim_end()
    );
    let bytes = (PREAMBLE_BYTES + text.len() + 1).next_multiple_of(HEADER_MULTIPLE) - PREAMBLE_BYTES;
    text = format!("{text:<width$}\n", width = bytes - 1);
    [b"\x93NUMPY\x01\x00".as_slice(), &(bytes as u16).to_le_bytes(), text.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Read};

    use syncline_workers::predict::Output;
    use zip::ZipArchive;

    use super::*;

    /// Header and bytes of each array of a file, but for what fills the header up.
    fn read(path: &Path) -> Vec<(String, String, Vec<u8>)> {
        let mut archive = ZipArchive::new(File::open(path).unwrap()).unwrap();
        let arrays = archive.len();
        let array = |at| {
            let mut entry = archive.by_index(at).unwrap();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            let behind = PREAMBLE_BYTES + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
            assert!(behind.is_multiple_of(HEADER_MULTIPLE) && bytes.starts_with(b"\x93NUMPY\x01\x00"));
            let header = String::from_utf8(bytes[PREAMBLE_BYTES..behind].to_vec()).unwrap();
            (entry.name().unwrap().into_owned(), header.trim_end().to_owned(), bytes[behind..].to_vec())
        };
        (0..arrays).map(array).collect()
    }

    #[test]
    fn batches_become_one_array_for_each_output_and_what_is_known_of_the_samples() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.npz");
        let mut file = ArraysFile::create(&path, false).unwrap();
        let output = |values: &[f32]| Output {
            name: "y".into(),
            shape: vec![2, 1],
            is_float32: true,
            values: values.to_vec(),
        };
        for (rows, values, labels, classes) in [
            (&[3, 9][..], &[0.5, 1.0, 2.0, -1.0][..], &[1, 0][..], &[Some(1), None][..]),
            (&[11], &[7.0, 8.0], &[1], &[Some(1)]),
        ] {
            let label = Some(TensorView::I64 { shape: &[labels.len()], data: labels });
            let outputs = [output(values)];
            file.add(&Predicted { rows, outputs: &outputs, label, predicted: classes }).unwrap();
        }
        assert!(!path.exists(), "it is there as a whole or not at all");
        file.finish().unwrap();
        let header = |element: &str, shape: &str| {
            format!("{{'descr': '{element}', 'fortran_order': False, 'shape': {shape}, }}")
        };
        let integers = |numbers: [i64; 3]| numbers.map(i64::to_le_bytes).concat();
        let floats = [0.5f32, 1.0, 2.0, -1.0, 7.0, 8.0].map(f32::to_le_bytes).concat();
        let want = [
            ("y.npy".to_owned(), header("<f4", "(3, 2, 1,)"), floats),
            ("sample.npy".to_owned(), header("<i8", "(3,)"), integers([3, 9, 11])),
            ("label.npy".to_owned(), header("<i8", "(3,)"), integers([1, 0, 1])),
            ("predicted.npy".to_owned(), header("<i8", "(3,)"), integers([1, -1, 1])),
        ];
        assert_eq!(read(&path), want);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing unfinished is left");
    }

    #[test]
    fn what_is_predicted_has_the_shape_of_the_labels_or_of_the_places_that_have_scores() {
        let scores = |shape: &[usize]| Output {
            name: "scores".into(),
            shape: shape.to_vec(),
            is_float32: true,
            values: vec![0.5; shape.iter().product()],
        };
        let label = |shape: &'static [usize]| {
            Some(TensorView::I64 { shape, data: &[0; 6][..shape.iter().product()] })
        };
        #[rustfmt::skip]
        let cases = [
            // shape of a label, of the scores, predicted for a sample, shape
            (label(&[1, 2, 3]),  scores(&[4, 2, 3]), 6, vec![2, 3]),
            (None,               scores(&[4, 2, 3]), 6, vec![2, 3]),
            (label(&[1, 1]),     scores(&[4]),       1, vec![1]),
            (label(&[1]),        scores(&[4]),       1, vec![]),
            (None,               scores(&[4]),       1, vec![]),
            (None,               scores(&[6]),       6, vec![6]),
        ];
        for (label, scores, each, want) in cases {
            let (outputs, classes) = ([scores], vec![Some(0); each]);
            let one = Predicted { rows: &[0], outputs: &outputs, label, predicted: &classes };
            let predicted = arrays(&one).into_iter().find(|array| array.name == "predicted").unwrap();
            assert_eq!(predicted.shape, want);
        }
    }
}
