//! A CSV file with a row for each sample, which is there as a whole or not at all; or rows for whoever reads
//! them as they come.

use std::{
    fmt::Write as _,
    fs::File,
    io::{self, Write},
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
};

use syncline_onnx::TensorView;
use syncline_workers::predict::{Output, Predicted};

use crate::cli::{Failure, csv_field, exported::ExportError, stdout_failed, whole_file::WholeFile};

/// Most numbers of a sample.
pub(super) const MOST_COLUMNS: usize = 10_000;

/// A model gives more than a row takes.
pub(super) struct TooWide {
    pub numbers: usize,
}

/// Names of the standard output.
const STDOUT: [&str; 4] = ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];

/// Where rows go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Destination {
    /// Into a file that is there when all of them are.
    File,
    /// To the standard output, as they come.
    Stdout,
    /// Into a pipe or a device, as they come.
    Stream,
}

impl Destination {
    pub(super) fn of(path: &Path) -> Self {
        if STDOUT.iter().any(|name| path == Path::new(name)) {
            return Self::Stdout;
        }
        let kind = path.metadata().map(|there| there.file_type());
        match kind.is_ok_and(|kind| kind.is_fifo() || kind.is_char_device()) {
            true => Self::Stream,
            false => Self::File,
        }
    }
}

/// Rows on their way; a file is gone again unless [`TableFile::finish`] puts it in its place.
pub(super) struct TableFile {
    to: To,
    has_header: bool,
}

enum To {
    File(WholeFile),
    Stdout,
    Stream(PathBuf, File),
}

impl TableFile {
    /// Opens what rows are streamed to; a pipe waits for its reader. A file begins later, as long as nothing
    /// has to be removed.
    pub(super) fn open(path: &Path) -> Result<Option<Self>, ExportError> {
        let to = match Destination::of(path) {
            Destination::File => return Ok(None),
            Destination::Stdout => To::Stdout,
            Destination::Stream => {
                let opened = File::options().write(true).open(path);
                let path = path.to_owned();
                match opened {
                    Ok(file) => To::Stream(path, file),
                    Err(source) => return Err(ExportError::Write { path, source }),
                }
            }
        };
        Ok(Some(Self { to, has_header: false }))
    }

    /// Begins a file.
    pub(super) fn create(path: &Path, replaces: bool) -> Result<Self, ExportError> {
        Ok(Self { to: To::File(WholeFile::create_over(path, replaces)?), has_header: false })
    }

    /// Adds a row for each of these samples. `names`: of the classes from 0, where they have some.
    pub(super) fn add(&mut self, predicted: &Predicted<'_>, names: &[String]) -> Result<(), Failure> {
        if !self.has_header {
            let numbers = predicted.outputs.iter().map(Output::width).sum();
            if numbers > MOST_COLUMNS {
                return Err(TooWide { numbers }.into());
            }
            self.has_header = true;
            self.write(&header(predicted))?;
        }
        self.write(&rows(predicted, names))
    }

    fn write(&mut self, text: &str) -> Result<(), Failure> {
        let failed = |path: &Path, source| ExportError::Write { path: path.to_owned(), source }.into();
        match &mut self.to {
            To::File(file) => Ok(file.write(text.as_bytes())?),
            To::Stream(path, file) => file.write_all(text.as_bytes()).map_err(|source| failed(path, source)),
            To::Stdout => {
                let mut stdout = io::stdout().lock();
                let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
                written.map_err(stdout_failed)
            }
        }
    }

    /// Gives a file its name, which is returned, or that of what was written to.
    pub(super) fn finish(self) -> Result<PathBuf, ExportError> {
        match self.to {
            To::File(file) => file.finish(),
            To::Stdout => Ok(STDOUT[0].into()),
            To::Stream(path, _) => Ok(path),
        }
    }
}

/// Labels of a sample: none, or one, or more than a column can hold.
fn labels_each(predicted: &Predicted<'_>) -> Option<usize> {
    Some(predicted.label?.len() / predicted.rows.len().max(1))
}

/// What is predicted for a sample: nothing, or one class, or more, as far as there are columns for them.
fn predicted_each(predicted: &Predicted<'_>) -> usize {
    let each = predicted.predicted.len() / predicted.rows.len().max(1);
    if each <= MOST_COLUMNS { each } else { 0 }
}

fn header(predicted: &Predicted<'_>) -> String {
    let mut columns = vec!["sample".to_owned()];
    match labels_each(predicted) {
        Some(1) => columns.push("label".to_owned()),
        Some(many) if many <= MOST_COLUMNS => columns.extend((0..many).map(|at| format!("label[{at}]"))),
        _ => {}
    }
    match predicted_each(predicted) {
        1 => columns.push("predicted".to_owned()),
        many => columns.extend((0..many).map(|at| format!("predicted[{at}]"))),
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

fn rows(predicted: &Predicted<'_>, names: &[String]) -> String {
    let mut text = String::new();
    let labels = labels_each(predicted).filter(|&many| many <= MOST_COLUMNS).unwrap_or(0);
    let each = predicted_each(predicted);
    let named = |class: i64| usize::try_from(class).ok().and_then(|class| names.get(class));
    let class = |class: i64| named(class).map_or_else(|| class.to_string(), |name| csv_field(name));
    for (at, row) in predicted.rows.iter().enumerate() {
        // Writing to a String cannot fail.
        let _ = write!(text, "{row}");
        for label in at * labels..(at + 1) * labels {
            let _ = match predicted.label {
                Some(TensorView::I64 { data, .. }) => write!(text, ",{}", class(data[label])),
                Some(TensorView::F32 { data, .. }) if !names.is_empty() => {
                    write!(text, ",{}", class(data[label] as i64))
                }
                Some(TensorView::F32 { data, .. }) => write!(text, ",{}", data[label]),
                _ => write!(text, ","),
            };
        }
        for predicted in &predicted.predicted[at * each..(at + 1) * each] {
            let _ = match predicted {
                Some(given) => write!(text, ",{}", class(i64::from(*given))),
                None => write!(text, ","),
            };
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
    fn pipes_and_devices_get_rows_as_they_come() {
        #[rustfmt::skip]
        let cases = [
            ("-", Destination::Stdout), ("/dev/stdout", Destination::Stdout), ("/dev/fd/1", Destination::Stdout),
            ("/dev/null", Destination::Stream), ("/dev/full", Destination::Stream), ("/dev", Destination::File),
            ("nothing.csv", Destination::File),
        ];
        for (path, want) in cases {
            assert_eq!(Destination::of(Path::new(path)), want, "{path}");
        }
    }

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
        let some = Predicted { rows: &[3, 9], outputs: &outputs, label, predicted: &[Some(1), None] };
        assert_eq!(header(&some), "sample,label,predicted,\"a,b[0]\",\"a,b[1]\",z\n");
        assert_eq!(rows(&some, &[]), "3,1,1,0.5,1,7\n9,0,,2,-1,8\n", "no class where scores are no numbers");
        let names = ["a".to_owned(), "b,c".to_owned()];
        assert_eq!(rows(&some, &names), "3,\"b,c\",\"b,c\",0.5,1,7\n9,a,,2,-1,8\n");
        let bare = Predicted { label: None, predicted: &[], outputs: &outputs[1..], ..some };
        assert_eq!(header(&bare) + &rows(&bare, &[]), "sample,z\n3,7\n9,8\n");
        let values = [0.5_f32, 1.5, 2.5, 3.5];
        let label = Some(TensorView::F32 { shape: &[2, 2], data: &values });
        let two = Predicted { label, ..bare };
        assert_eq!(header(&two) + &rows(&two, &[]), "sample,label[0],label[1],z\n3,0.5,1.5,7\n9,2.5,3.5,8\n");
        let given = Predicted { label: None, predicted: &[Some(1), Some(0), None, Some(1)], ..two };
        assert_eq!(
            header(&given) + &rows(&given, &[]),
            "sample,predicted[0],predicted[1],z\n3,1,0,7\n9,,1,8\n"
        );
    }
}
