//! The samples of a job on one worker: which rows an iteration takes, in the order of the present epoch.

use std::ops::Range;

use syncline_onnx::TensorView;
use syncline_scheduler::{
    core::{EvaluationPart, EvaluationSet},
    samples::{SampleRange, permutation},
    spec::{ModelSpec, TrainSpec},
};

use super::WorkerError;
use crate::data::{Batch, Dataset, ModelSignature, Parts};

/// Most samples that are evaluated at once.
const MAX_EVALUATION_BATCH: usize = 256;

/// The data set with the order of the present epoch.
pub(super) struct DataLoader {
    set: Dataset,
    parts: Parts,
    order: Vec<u32>,
    /// The epoch that `order` belongs to.
    epoch: Option<u32>,
    rows: Vec<u32>,
    batch: Batch,
    /// Whose samples were gathered last.
    loaded: Option<SampleRange>,
    evaluation_batch: usize,
}

/// What belongs to a part of `samples` samples.
fn share(samples: usize, part: EvaluationPart) -> Range<usize> {
    let bound = |n: u32| (samples as u128 * u128::from(n) / u128::from(part.of.max(1))) as usize;
    bound(part.index)..bound(part.index.saturating_add(1)).min(samples)
}

impl DataLoader {
    /// Opens the data, if the model takes any. `max_batch`: samples that fit on this worker at once, if it says so.
    pub(super) fn open(train: &TrainSpec, max_batch: Option<u32>) -> Result<Option<Self>, WorkerError> {
        let wanted = ModelSignature::of(&train.model);
        if wanted.is_empty() {
            return Ok(None);
        }
        let set = Dataset::open(&train.data, &wanted)?;
        let parts = set.parts(&train.data, train.seed);
        let found = parts.train.len() as u64;
        if found != train.data.train_samples {
            let what = format!("{found} training samples, the job says {}", train.data.train_samples);
            return Err(WorkerError::Graph { what });
        }
        let batch = set.batch();
        let order = Vec::new();
        Ok(Some(Self {
            set,
            parts,
            order,
            epoch: None,
            rows: Vec::new(),
            batch,
            loaded: None,
            // No more than what it can train with.
            evaluation_batch: (train.batch.min(max_batch.unwrap_or(u32::MAX)) as usize)
                .clamp(1, MAX_EVALUATION_BATCH),
        }))
    }

    /// Whose samples were gathered last; `None` if they are no iteration's.
    pub(super) fn loaded(&self) -> Option<SampleRange> {
        self.loaded
    }

    /// Gathers the samples of an iteration.
    pub(super) fn load_batch(&mut self, seed: u64, range: SampleRange) -> Result<(), WorkerError> {
        self.loaded = None;
        if self.epoch != Some(range.epoch) {
            self.order = permutation(seed, range.epoch, self.parts.train.len() as u32);
            self.epoch = Some(range.epoch);
        }
        let (start, end) = (range.start as usize, range.start as usize + range.len as usize);
        let Some(order) = self.order.get(start..end) else {
            return Err(WorkerError::Graph { what: format!("samples {start}..{end} do not exist") });
        };
        self.rows.clear();
        self.rows.extend(order.iter().map(|&i| self.parts.train[i as usize]));
        self.set.gather(&self.rows, &mut self.batch)?;
        self.loaded = Some(range);
        Ok(())
    }

    /// Gathers the `n`-th piece of a part of the test or validation samples; returns how many it has, 0 behind the last one.
    pub(super) fn load_evaluation_batch(
        &mut self,
        part: EvaluationPart,
        n: usize,
    ) -> Result<u64, WorkerError> {
        self.loaded = None;
        let rows = match part.set {
            EvaluationSet::Test => &self.parts.test,
            EvaluationSet::Validation => &self.parts.validation,
        };
        let rows = &rows[share(rows.len(), part)];
        let rows = rows.chunks(self.evaluation_batch).nth(n).unwrap_or_default();
        self.set.gather(rows, &mut self.batch)?;
        Ok(rows.len() as u64)
    }

    /// What was gathered last, under the names that the model gives it.
    pub(super) fn inputs<'a>(
        &'a self,
        model: &'a ModelSpec,
    ) -> impl Iterator<Item = (&'a str, TensorView<'a>)> {
        let inputs = model.inputs.iter().map(|input| input.name.as_str()).zip(self.batch.inputs());
        inputs.chain(model.label.as_deref().zip(self.batch.label()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_hold_every_sample_once_and_differ_by_one_at_most() {
        for (samples, of) in [(0, 1), (10, 1), (10, 3), (2, 5), (10_000, 7)] {
            let part = |index| EvaluationPart { index, of, set: EvaluationSet::Validation };
            let parts: Vec<_> = (0..of).map(|index| share(samples, part(index))).collect();
            assert_eq!(parts.iter().cloned().flatten().collect::<Vec<_>>(), (0..samples).collect::<Vec<_>>());
            let sizes = parts.iter().map(ExactSizeIterator::len);
            assert!(sizes.clone().max().unwrap() - sizes.min().unwrap() <= 1, "{samples} in {of}");
        }
    }
}
