//! One batch of samples, in buffers that are used again.

use super::dataset::Labels;
use crate::backend::TensorView;

/// Features and labels of a batch, laid out as a training graph reads them.
#[derive(Debug, Clone)]
pub struct Batch {
    features: Vec<f32>,
    feature_shape: Vec<usize>,
    labels: Labels,
    label_shape: Vec<usize>,
}

impl Batch {
    pub(super) fn like(sample_shape: &[usize], labels: &Labels) -> Self {
        let with_batch = |shape: &[usize]| [&[0], shape].concat();
        let (labels, label_shape) = match labels {
            Labels::Classes(_) => (Labels::Classes(Vec::new()), with_batch(&[])),
            Labels::Values { shape, .. } => {
                (Labels::Values { shape: shape.clone(), data: Vec::new() }, with_batch(shape))
            }
        };
        Self { features: Vec::new(), feature_shape: with_batch(sample_shape), labels, label_shape }
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.feature_shape[0]
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The features, `[batch, sample shape ...]`.
    pub fn features(&self) -> TensorView<'_> {
        TensorView::F32 { shape: &self.feature_shape, data: &self.features }
    }

    /// The labels: int64 `[batch]`, or float32 `[batch, target shape ...]`.
    pub fn label(&self) -> TensorView<'_> {
        match &self.labels {
            Labels::Classes(data) => TensorView::I64 { shape: &self.label_shape, data },
            Labels::Values { data, .. } => TensorView::F32 { shape: &self.label_shape, data },
        }
    }

    /// Replaces the content. Every row exists, and the batch was made by the same data set.
    pub(super) fn fill(&mut self, rows: &[u32], features: &[f32], width: usize, labels: &Labels) {
        self.feature_shape[0] = rows.len();
        self.label_shape[0] = rows.len();
        copy_rows(rows, features, width, &mut self.features);
        match (&mut self.labels, labels) {
            (Labels::Classes(batch), Labels::Classes(all)) => copy_rows(rows, all, 1, batch),
            (Labels::Values { data: batch, .. }, Labels::Values { shape, data }) => {
                copy_rows(rows, data, shape.iter().product(), batch);
            }
            _ => unreachable!("a batch is filled by the data set that made it"),
        }
    }
}

fn copy_rows<T: Copy>(rows: &[u32], all: &[T], width: usize, batch: &mut Vec<T>) {
    batch.clear();
    batch.reserve(rows.len() * width);
    for &row in rows {
        let start = row as usize * width;
        batch.extend_from_slice(&all[start..start + width]);
    }
}
