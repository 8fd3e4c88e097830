//! The samples of a job on one worker: which rows an iteration takes, in the order of the present epoch.

use syncline_onnx::TensorView;
use syncline_scheduler::{
    samples::{SampleRange, permutation},
    spec::{ModelSpec, TrainSpec},
};

use super::WorkerError;
use crate::data::{Batch, Dataset, ModelSignature};

/// Samples evaluated at once.
const EVALUATION_BATCH: usize = 256;

/// The data set with the order of the present epoch.
pub(super) struct DataLoader {
    set: Dataset,
    train_rows: Vec<u32>,
    test_rows: Vec<u32>,
    order: Vec<u32>,
    /// The epoch that `order` belongs to.
    epoch: Option<u32>,
    rows: Vec<u32>,
    batch: Batch,
    /// Whose samples were gathered last.
    loaded: Option<SampleRange>,
}

impl DataLoader {
    /// Opens the data, if the model takes any.
    pub(super) fn open(train: &TrainSpec) -> Result<Option<Self>, WorkerError> {
        let wanted = ModelSignature::of(&train.model);
        if wanted.is_empty() {
            return Ok(None);
        }
        let set = Dataset::open(&train.data, &wanted)?;
        let (train_rows, test_rows) = set.split(train.data.split);
        if train_rows.len() as u64 != train.data.train_samples {
            let what =
                format!("{} training samples, the job says {}", train_rows.len(), train.data.train_samples);
            return Err(WorkerError::Graph { what });
        }
        let batch = set.batch();
        let order = Vec::new();
        Ok(Some(Self {
            set,
            train_rows,
            test_rows,
            order,
            epoch: None,
            rows: Vec::new(),
            batch,
            loaded: None,
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
            self.order = permutation(seed, range.epoch, self.train_rows.len() as u32);
            self.epoch = Some(range.epoch);
        }
        let (start, end) = (range.start as usize, range.start as usize + range.len as usize);
        let Some(order) = self.order.get(start..end) else {
            return Err(WorkerError::Graph { what: format!("samples {start}..{end} do not exist") });
        };
        self.rows.clear();
        self.rows.extend(order.iter().map(|&i| self.train_rows[i as usize]));
        self.set.gather(&self.rows, &mut self.batch)?;
        self.loaded = Some(range);
        Ok(())
    }

    /// Gathers the `part`-th piece of the test samples; returns how many it has.
    pub(super) fn load_test_batch(&mut self, part: usize) -> Result<u64, WorkerError> {
        self.loaded = None;
        let rows = self.test_rows.chunks(EVALUATION_BATCH).nth(part).unwrap_or_default();
        self.set.gather(rows, &mut self.batch)?;
        Ok(rows.len() as u64)
    }

    /// Pieces that the test samples come in.
    pub(super) fn test_batches(&self) -> usize {
        self.test_rows.len().div_ceil(EVALUATION_BATCH)
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
