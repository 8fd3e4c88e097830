//! A CSV file with a row for each sample, which is there as a whole or not at all.

use std::{
    fmt::Write as _,
    fs::Permissions,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use syncline_onnx::TensorView;
use syncline_workers::predict::{Output, Predicted};

use crate::cli::{Failure, csv_field, exported::ExportError, whole_file::WholeFile};

/// Most numbers of a sample.
pub(super) const MOST_COLUMNS: usize = 10_000;

/// A model gives more than a row takes.
pub(super) struct TooWide {
    pub numbers: usize,
}

/// A file on its way; gone again unless [`TableFile::finish`] puts it in its place.
pub(super) struct TableFile {
    to: WholeFile,
    has_header: bool,
}

impl TableFile {
    pub(super) fn create(path: &Path, replaces: bool) -> Result<Self, ExportError> {
        // Of a link to a file that file is replaced.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let permissions = path.metadata().map_or(Permissions::from_mode(0o666), |there| there.permissions());
        Ok(Self { to: WholeFile::create(&path, replaces, permissions)?, has_header: false })
    }

    /// Adds a row for each of these samples.
    pub(super) fn add(&mut self, predicted: &Predicted<'_>) -> Result<(), Failure> {
        if !self.has_header {
            let numbers = predicted.outputs.iter().map(Output::width).sum();
            if numbers > MOST_COLUMNS {
                return Err(TooWide { numbers }.into());
            }
            self.has_header = true;
            self.to.write(header(predicted).as_bytes())?;
        }
        Ok(self.to.write(rows(predicted).as_bytes())?)
    }

    /// Gives the file its name, which is returned.
    pub(super) fn finish(self) -> Result<PathBuf, ExportError> {
        self.to.finish()
    }
}

/// Labels of a sample: none, or one, or more than a column can hold.
fn labels_each(predicted: &Predicted<'_>) -> Option<usize> {
    Some(predicted.label?.len() / predicted.rows.len().max(1))
}

/// Whether there is one class for each sample.
fn names_a_class(predicted: &Predicted<'_>) -> bool {
    predicted.predicted.len() == predicted.rows.len()
}

fn header(predicted: &Predicted<'_>) -> String {
    let mut columns = vec!["sample".to_owned()];
    match labels_each(predicted) {
        Some(1) => columns.push("label".to_owned()),
        Some(many) if many <= MOST_COLUMNS => columns.extend((0..many).map(|at| format!("label[{at}]"))),
        _ => {}
    }
    if names_a_class(predicted) {
        columns.push("predicted".to_owned());
    }
    for output in predicted.outputs {
        let name = csv_field(&output.name);
        match output.width() {
            1 => columns.push(name),
            width => columns.extend((0..width).map(|at| csv_field(&format!("{}[{at}]", output.name)))),
        }
    }
    columns.join(",") + "\n"
}

fn rows(predicted: &Predicted<'_>) -> String {
    let mut text = String::new();
    let labels = labels_each(predicted).filter(|&many| many <= MOST_COLUMNS).unwrap_or(0);
    for (at, row) in predicted.rows.iter().enumerate() {
        // Writing to a String cannot fail.
        let _ = write!(text, "{row}");
        for label in at * labels..(at + 1) * labels {
            let _ = match predicted.label {
                Some(TensorView::I64 { data, .. }) => write!(text, ",{}", data[label]),
                Some(TensorView::F32 { data, .. }) => write!(text, ",{}", data[label]),
                _ => write!(text, ","),
            };
        }
        if names_a_class(predicted) {
            let _ = write!(text, ",{}", predicted.predicted[at]);
        }
        for output in predicted.outputs {
            let width = output.width();
            for number in &output.values[at * width..(at + 1) * width] {
                let _ = write!(text, ",{number}");
            }
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_sample_its_label_the_class_and_all_numbers() {
        let output = |name: &str, shape: &[usize], values: &[f32]| Output {
            name: name.to_owned(),
            shape: shape.to_vec(),
            is_float32: true,
            values: values.to_vec(),
        };
        let outputs = [output("a,b", &[2], &[0.5, 1.0, 2.0, -1.0]), output("z", &[], &[7.0, 8.0])];
        let labels = [1_i64, 0];
        let label = Some(TensorView::I64 { shape: &[2], data: &labels });
        let some = Predicted { rows: &[3, 9], outputs: &outputs, label, predicted: &[1, 0] };
        assert_eq!(header(&some), "sample,label,predicted,\"a,b[0]\",\"a,b[1]\",z\n");
        assert_eq!(rows(&some), "3,1,1,0.5,1,7\n9,0,0,2,-1,8\n");
        let bare = Predicted { label: None, predicted: &[], outputs: &outputs[1..], ..some };
        assert_eq!(header(&bare) + &rows(&bare), "sample,z\n3,7\n9,8\n");
        let values = [0.5_f32, 1.5, 2.5, 3.5];
        let label = Some(TensorView::F32 { shape: &[2, 2], data: &values });
        let two = Predicted { label, ..bare };
        assert_eq!(header(&two) + &rows(&two), "sample,label[0],label[1],z\n3,0.5,1.5,7\n9,2.5,3.5,8\n");
    }
}
