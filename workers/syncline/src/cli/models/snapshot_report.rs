//! A safetensors snapshot in a few lines.

use std::{collections::BTreeMap, path::Path};

use crate::cli::{Failure, table};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde::Serialize;
use syncline_ps::checkpoint_file::CheckpointAbout;
use syncline_scheduler::ids::Generation;
use syncline_workers::export::ExportError;

/// What is in a snapshot.
#[derive(Debug, Serialize)]
pub(crate) struct SnapshotReport {
    /// Job, generation and version, or of a checkpoint where the training was, if Syncline wrote it.
    about: BTreeMap<String, String>,
    tensors: Vec<Tensor>,
    count: usize,
}

#[derive(Debug, Serialize)]
struct Tensor {
    name: String,
    dtype: String,
    shape: Vec<usize>,
    count: usize,
    /// `None` for element types that are not numbers we read.
    values: Option<Summary>,
}

/// Over all finite values of a tensor.
#[derive(Debug, PartialEq, Serialize)]
struct Summary {
    min: f64,
    max: f64,
    mean: f64,
    /// NaN and infinities.
    not_finite: usize,
}

/// Reads a snapshot; it is untrusted input.
pub(crate) fn of(path: &Path, bytes: &[u8]) -> Result<SnapshotReport, Failure> {
    let damaged = |error: safetensors::SafeTensorError| ExportError::Damaged {
        source_name: path.display().to_string(),
        cause: error.to_string(),
    };
    let file = SafeTensors::deserialize(bytes).map_err(damaged)?;
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(damaged)?;
    let about = match CheckpointAbout::read(bytes) {
        Ok(checkpoint) => of_checkpoint(&checkpoint),
        Err(_) => header.metadata().iter().flatten().map(|(name, value)| named(name, value)).collect(),
    };
    let tensors: Vec<Tensor> = file.iter().map(|(name, view)| describe(name, &view)).collect();
    Ok(SnapshotReport { about, count: tensors.iter().map(|t| t.count).sum(), tensors })
}

/// An entry of the file as people know it from elsewhere: a generation by its number, from 1.
fn named(name: &str, value: &str) -> (String, String) {
    let generation = value.parse().ok().filter(|_| name == "generation");
    let value = generation.map_or(value.to_owned(), |it| Generation(it).number().to_string());
    (name.to_owned(), value)
}

/// Where a training was, which the file has as JSON with all that it needs to go on.
fn of_checkpoint(CheckpointAbout { optimizer, resume, .. }: &CheckpointAbout) -> BTreeMap<String, String> {
    let said = [
        ("job", resume.job.to_string()),
        ("checkpoint", resume.checkpoint.to_string()),
        ("epoch", resume.position.epoch.to_string()),
        ("samples", resume.samples().to_string()),
        ("optimizer", optimizer.to_string()),
    ];
    said.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn describe(name: &str, view: &TensorView<'_>) -> Tensor {
    let data = view.data();
    let values = match view.dtype() {
        Dtype::F32 => Some(summary(data.as_chunks().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))))),
        Dtype::F64 => Some(summary(data.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)))),
        Dtype::I32 => Some(summary(data.as_chunks().0.iter().map(|b| f64::from(i32::from_le_bytes(*b))))),
        Dtype::I64 => Some(summary(data.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b) as f64))),
        _ => None,
    };
    let shape = view.shape().to_vec();
    let dtype = format!("{:?}", view.dtype()).to_lowercase();
    Tensor { name: name.to_owned(), dtype, count: shape.iter().product(), shape, values }
}

fn summary(values: impl Iterator<Item = f64>) -> Summary {
    let (mut min, mut max, mut sum, mut finite, mut not_finite) =
        (f64::INFINITY, f64::NEG_INFINITY, 0.0, 0usize, 0);
    for value in values {
        if value.is_finite() {
            (min, max, sum, finite) = (min.min(value), max.max(value), sum + value, finite + 1);
        } else {
            not_finite += 1;
        }
    }
    if finite == 0 {
        return Summary { min: 0.0, max: 0.0, mean: 0.0, not_finite };
    }
    Summary { min, max, mean: sum / finite as f64, not_finite }
}

impl SnapshotReport {
    pub(crate) fn text(&self) -> String {
        let rows: Vec<Vec<String>> = self.tensors.iter().map(Tensor::row).collect();
        let about: Vec<String> = self.about.iter().map(|(k, v)| format!("{k} {v}")).collect();
        let columns = ["tensor", "dtype", "shape", ">count", ">min", ">max", ">mean", ">not finite"];
        let head = if about.is_empty() { String::new() } else { format!("{}\n", about.join(", ")) };
        format!("{head}{} values\n\n{}", self.count, table(&columns, &rows))
    }
}

impl Tensor {
    fn row(&self) -> Vec<String> {
        let mut row =
            vec![self.name.clone(), self.dtype.clone(), format!("{:?}", self.shape), self.count.to_string()];
        if let Some(s) = &self.values {
            row.extend([s.min, s.max, s.mean].map(|v| format!("{v:.5}")));
            row.push(s.not_finite.to_string());
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Exit;

    #[test]
    fn values_are_summed_up_and_nan_is_counted() {
        let numbers: Vec<u8> = [1.0f32, -3.0, f32::NAN, 5.0].iter().flat_map(|v| v.to_le_bytes()).collect();
        let view = TensorView::new(Dtype::F32, vec![2, 2], &numbers).unwrap();
        let file = safetensors::serialize([("w", view)], None).unwrap();
        let report = of(Path::new("a.safetensors"), &file).unwrap();
        assert_eq!(report.count, 4);
        let want = Summary { min: -3.0, max: 5.0, mean: 1.0, not_finite: 1 };
        assert_eq!(report.tensors[0].values.as_ref(), Some(&want));
        assert!(report.text().contains("[2, 2]"));
        assert_eq!(of(Path::new("a.safetensors"), &file[..20]).unwrap_err().exit(), Exit::Usage);
    }
}
