//! The samples of a job on one worker: which rows an iteration takes, in the order of the present epoch.

use std::{io, ops::Range};

use syncline_onnx::TensorView;
use syncline_scheduler::{
    core::{EvaluationPart, EvaluationSet},
    samples::SampleRange,
    spec::{ModelSpec, TrainSpec},
};
use tracing::info;

use super::{WorkerError, replicas::PieceWatch};
use crate::data::{Batch, DataError, Dataset, ModelSignature, Parts, Pass};

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
    /// Opens the data, if the model takes any. A job without its digest is refused: whoever submits one knows
    /// what is in its files, and errors repeat some of it; nobody else shall read files of this machine
    /// by a job. `max_batch`: samples that fit on this worker at once, if it says so. `watch`: who
    /// follows it, which takes minutes for some gigabytes, and may end it.
    pub(super) fn open(
        train: &TrainSpec,
        max_batch: Option<u32>,
        watch: &PieceWatch,
    ) -> Result<Option<Self>, WorkerError> {
        let wanted = ModelSignature::of(&train.model);
        if wanted.is_empty() {
            return Ok(None);
        }
        if train.data.digest.is_none() {
            let files = train.data.paths().join(", ");
            return Err(DataError::NoDigest { files }.into());
        }
        info!(files = train.data.paths().join(", "), "reading the data");
        let mut step = || watch.goes_on().map_err(io::Error::other);
        let opened = Dataset::open_in_steps(&train.data, &wanted, &mut step);
        // What was given up says nothing of the data.
        watch.goes_on()?;
        let (set, _) = opened?;
        let parts = set.parts(&train.data, train.seed)?;
        let found = parts.train.len() as u64;
        if found != train.data.train_samples {
            let what = format!("{found} training samples, the job says {}", train.data.train_samples);
            return Err(WorkerError::Graph { what });
        }
        let batch = set.batch();
        let order = Vec::new();
        let at_once = train.samples_at_once(max_batch).or(max_batch);
        Ok(Some(Self {
            set,
            parts,
            order,
            epoch: None,
            rows: Vec::new(),
            batch,
            loaded: None,
            // No more than what it can train with.
            evaluation_batch: (train.batch.min(at_once.unwrap_or(u32::MAX)) as usize)
                .clamp(1, MAX_EVALUATION_BATCH),
        }))
    }

    /// Whose samples were gathered last; `None` if they are no iteration's.
    pub(super) fn loaded(&self) -> Option<SampleRange> {
        self.loaded
    }

    /// Gathers the samples of an iteration, as they train in its epoch. `train`: that with which it was
    /// opened.
    pub(super) fn load_batch(&mut self, train: &TrainSpec, range: SampleRange) -> Result<(), WorkerError> {
        self.loaded = None;
        if self.epoch != Some(range.epoch) {
            self.order = train.sample_order(range.epoch);
            self.epoch = Some(range.epoch);
        }
        if !self.choose_rows(range) {
            let (start, len) = (range.start, range.len);
            return Err(WorkerError::Graph { what: format!("{len} samples from {start} on do not exist") });
        }
        let pass = Pass { seed: train.seed, epoch: range.epoch };
        self.set.gather_to_train(&self.rows, pass, &mut self.batch)?;
        self.loaded = Some(range);
        Ok(())
    }

    /// Says which samples are gathered next: those on the disk are fetched meanwhile.
    pub(super) fn read_ahead(&mut self, range: SampleRange) {
        // What is loaded is in the batch; the rows are not asked for again.
        if self.epoch == Some(range.epoch) && self.choose_rows(range) {
            self.set.read_ahead(&self.rows);
        }
    }

    /// Notes the rows of these samples of the present epoch; `false` if there are none such.
    fn choose_rows(&mut self, range: SampleRange) -> bool {
        let start = range.start as usize;
        let Some(order) = self.order.get(start..start + range.len as usize) else { return false };
        self.rows.clear();
        self.rows.extend(order.iter().map(|&i| self.parts.train[i as usize]));
        true
    }

    /// Gathers the `n`-th piece of a part of the test or validation samples; returns how many it has, 0
    /// behind the last one.
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
        self.batch.named(model)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs};
    use syncline_ps::content::digest_of;

    use syncline_ps::PsError;
    use syncline_scheduler::{
        ids::ContentDigest,
        sim,
        spec::{Augment, DataElement, DataInput, DataSpec, Source, Split},
    };

    use super::*;

    const SAMPLES: usize = 20;
    const PIXELS: usize = 3 * 4 * 4;

    /// A job on images of 3x4x4, each of one color; every fifth one tests.
    fn job(dir: &std::path::Path, augment: Augment) -> TrainSpec {
        let path = dir.join("images.safetensors");
        let pixels: Vec<u8> = (0..SAMPLES * PIXELS).map(|at| (1 + at / PIXELS * 7 + at % 5) as u8).collect();
        let view =
            safetensors::tensor::TensorView::new(safetensors::Dtype::U8, vec![SAMPLES, 3, 4, 4], &pixels);
        fs::write(&path, safetensors::serialize([("x", view.unwrap())], None).unwrap()).unwrap();
        let mut train = sim::training("bsp".parse().unwrap(), 16, 8);
        train.data = DataSpec::new(Source::safetensors(&path)).with(|d| {
            (d.augment, d.split, d.train_samples) = (augment, Split::TestEvery(5), 16);
        });
        let (name, element, shape) = ("x".to_owned(), DataElement::F32, vec![3, 4, 4]);
        train.model.inputs =
            vec![DataInput { name, element, shape, rows: None, column_rows: vec![], row_group: None }];
        train.model.label = None;
        train.data.digest = Some(digest_of(&fs::read(&path).unwrap()));
        train
    }

    fn images(loader: &DataLoader) -> Vec<Vec<u32>> {
        let TensorView::F32 { data, .. } = loader.batch.inputs().next().unwrap() else { panic!("floats") };
        data.chunks(PIXELS).map(|image| image.iter().map(|pixel| pixel.to_bits()).collect()).collect()
    }

    /// What each sample of these epochs trains as, on as many workers, each with batches of its own size.
    fn trained(train: &TrainSpec, batches: &[u32], epochs: u32) -> BTreeMap<(u32, u32), Vec<u32>> {
        let open = || DataLoader::open(train, None, &PieceWatch::default()).unwrap().unwrap();
        let mut workers: Vec<_> = batches.iter().map(|batch| (open(), *batch)).collect();
        let mut seen = BTreeMap::new();
        for epoch in 0..epochs {
            let mut start = 0;
            for turn in 0.. {
                let (loader, batch) = &mut workers[turn % batches.len()];
                let len = (*batch).min((train.data.train_samples - start) as u32);
                if len == 0 {
                    break;
                }
                loader.load_batch(train, SampleRange { epoch, start, len }).unwrap();
                for (row, image) in loader.rows.iter().zip(images(loader)) {
                    assert!(seen.insert((epoch, *row), image).is_none());
                }
                start += u64::from(len);
            }
        }
        seen
    }

    #[test]
    fn a_sample_trains_as_the_same_image_on_every_worker_in_every_batch_and_again() {
        let dir = tempfile::tempdir().unwrap();
        let train = job(dir.path(), Augment { flip: true, crop: 2, cutout: 2 });
        let alone = trained(&train, &[16], 3);
        assert_eq!(alone.len(), 48);
        for batches in [&[16][..], &[1], &[3, 5], &[2, 7, 4]] {
            assert_eq!(trained(&train, batches, 3), alone, "{batches:?}");
        }
        let other = TrainSpec { seed: train.seed + 1, ..train.clone() };
        assert_ne!(trained(&other, &[16], 3), alone);
        // Another epoch, with other ones between, and the first one again: as after a worker that was lost.
        let mut loader = DataLoader::open(&train, None, &PieceWatch::default()).unwrap().unwrap();
        let range = |epoch| SampleRange { epoch, start: 4, len: 5 };
        for epoch in [2, 0, 2, 1, 0] {
            loader.load_batch(&train, range(epoch)).unwrap();
            let rows = loader.rows.clone();
            let want: Vec<_> = rows.iter().map(|&row| alone[&(epoch, row)].clone()).collect();
            assert_eq!(images(&loader), want, "epoch {epoch}");
        }
    }

    #[test]
    fn samples_that_are_not_shuffled_come_in_the_order_of_the_file_in_every_epoch() {
        let dir = tempfile::tempdir().unwrap();
        let train = TrainSpec { shuffle: false, ..job(dir.path(), Augment::default()) };
        let mut loader = DataLoader::open(&train, None, &PieceWatch::default()).unwrap().unwrap();
        // Every fifth one tests.
        let want: Vec<u32> = (0..SAMPLES as u32).filter(|row| row % 5 != 0).collect();
        for (epoch, start, len) in [(0, 0, 16), (0, 3, 5), (7, 3, 5), (1, 12, 4)] {
            loader.load_batch(&train, SampleRange { epoch, start, len }).unwrap();
            assert_eq!(loader.rows, want[start as usize..][..len as usize], "epoch {epoch}");
        }
        let shuffled = TrainSpec { shuffle: true, ..train };
        let mut loader = DataLoader::open(&shuffled, None, &PieceWatch::default()).unwrap().unwrap();
        loader.load_batch(&shuffled, SampleRange { epoch: 0, start: 0, len: 16 }).unwrap();
        assert_ne!(loader.rows, want);
    }

    #[test]
    fn a_file_whose_digest_the_job_does_not_know_is_refused_without_a_word_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let secret = dir.path().join("id_ed25519");
        fs::write(&secret, "secret,key\n").unwrap();
        let job = job(dir.path(), Augment::default());
        let of_secret = |digest| TrainSpec {
            data: DataSpec::new(Source::csv(&secret)).with(|d| d.digest = digest),
            ..job.clone()
        };
        for (digest, code) in [(None, "E616"), (Some(ContentDigest::LOWEST), "E331")] {
            let refused = DataLoader::open(&of_secret(digest), None, &PieceWatch::default());
            let refused = refused.map(|_| ()).unwrap_err();
            let text = refused.to_string();
            assert!(refused.code() == code && !text.contains("key"), "{text}");
        }
    }

    #[test]
    fn data_that_is_read_is_given_up_with_its_job_and_no_fault_of_the_data() {
        let dir = tempfile::tempdir().unwrap();
        let watch = PieceWatch::default();
        watch.cancel_token.cancel();
        let canceled = DataLoader::open(&job(dir.path(), Augment::default()), None, &watch);
        assert!(matches!(canceled, Err(WorkerError::Ps(PsError::Canceled))));
    }

    #[test]
    fn what_is_evaluated_stays_as_it_is_in_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let evaluated = |augment| {
            let train = job(dir.path(), augment);
            let mut loader = DataLoader::open(&train, None, &PieceWatch::default()).unwrap().unwrap();
            loader.load_batch(&train, SampleRange { epoch: 1, start: 0, len: 4 }).unwrap();
            let part = EvaluationPart { index: 0, of: 1, set: EvaluationSet::Test };
            assert_eq!(loader.load_evaluation_batch(part, 0).unwrap(), 4);
            images(&loader)
        };
        let plain = evaluated(Augment::default());
        assert_eq!(evaluated(Augment { flip: true, crop: 3, cutout: 3 }), plain);
    }

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
