//! Training as a task of a graph: what is trained, and what a task changes of it.

use serde::{Deserialize, Serialize};

use crate::{
    fault_code::FaultCode,
    ids::{ContentDigest, JobId},
    spec::{InvalidJob, JobSpec, Node, NodeKind, PolicySpec, Split, ValidJob},
};

/// A training job that is ready to be begun by a task: its nodes, as they are submitted, in JSON. What is
/// large is on the parameter server already.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PreparedTraining {
    nodes: String,
}

/// Why a [`PreparedTraining`] cannot be begun.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidTraining {
    /// Its nodes are not in the form that this version reads.
    #[error("[E056] the training cannot be read: {cause}")]
    Unreadable {
        /// What the JSON reader found wrong.
        cause: String,
    },
    /// With the task's changes it is no valid job.
    #[error(transparent)]
    Setting(#[from] InvalidJob),
}

impl InvalidTraining {
    /// The stable code, see docs/errors.md.
    pub fn code(&self) -> FaultCode {
        match self {
            Self::Unreadable { .. } => FaultCode::new("E056"),
            Self::Setting(invalid) => invalid.code(),
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unreadable { .. } => {
                Some("prepare the training again, with the same release everywhere".to_owned())
            }
            Self::Setting(source) => source.hint(),
        }
    }
}

impl PreparedTraining {
    /// Of a job that was prepared.
    ///
    /// # Errors
    /// What [`JobSpec::validate`] finds.
    pub fn new(spec: &JobSpec) -> Result<Self, InvalidJob> {
        spec.validate()?;
        let nodes = serde_json::to_string(&spec.nodes).expect("a graph that is valid has a JSON form");
        Ok(Self { nodes })
    }

    fn nodes(&self) -> Result<Vec<Node>, InvalidTraining> {
        serde_json::from_str(&self.nodes).map_err(|e| InvalidTraining::Unreadable { cause: e.to_string() })
    }

    /// Whether it makes a job, with what is changed.
    ///
    /// # Errors
    /// As [`Self::job`].
    pub fn check(&self, changes: &TrainingChanges) -> Result<(), InvalidTraining> {
        let id = "training".parse().expect("a valid name");
        self.job(id, changes).map(drop)
    }

    /// The job that it makes under a name, with what is changed.
    ///
    /// # Errors
    /// E056, and what [`JobSpec::validate`] finds.
    pub fn job(&self, id: JobId, changes: &TrainingChanges) -> Result<ValidJob, InvalidTraining> {
        let mut spec = JobSpec { id, nodes: self.nodes()? };
        changes.apply(&mut spec);
        Ok(spec.validated()?)
    }

    /// Digests of the blobs that it names.
    ///
    /// # Errors
    /// E056.
    pub fn blobs(&self) -> Result<Vec<ContentDigest>, InvalidTraining> {
        let nodes = self.nodes()?;
        let models = nodes.iter().filter_map(|node| match &node.kind {
            NodeKind::Train(train) => Some(train.model.blobs()),
            NodeKind::Evaluate | NodeKind::Snapshot => None,
        });
        Ok(models.flatten().collect())
    }
}

/// What one training task changes of what was prepared; without any it trains just that.
///
/// ```
/// # use syncline_scheduler::tasks::TrainingChanges;
/// let changes = TrainingChanges::new().learning_rate(0.01).epochs(2);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TrainingChanges {
    learning_rate: Option<f32>,
    warmup: Option<f32>,
    weight_decay: Option<f32>,
    policy: Option<PolicySpec>,
    batch: Option<u32>,
    epochs: Option<u32>,
    seed: Option<u64>,
    min_workers: Option<u32>,
    max_workers: Option<u32>,
    weights: Option<TrainedWeights>,
}

impl TrainingChanges {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Another base learning rate.
    #[must_use]
    pub fn learning_rate(mut self, rate: f32) -> Self {
        self.learning_rate = Some(rate);
        self
    }

    /// Another share of the training over which the learning rate rises.
    #[must_use]
    pub fn warmup(mut self, share: f32) -> Self {
        self.warmup = Some(share);
        self
    }

    /// Another weight decay of the optimizer. Groups of parameters with a decay of their own keep it.
    #[must_use]
    pub fn weight_decay(mut self, decay: f32) -> Self {
        self.weight_decay = Some(decay);
        self
    }

    /// Another policy.
    #[must_use]
    pub fn policy(mut self, policy: PolicySpec) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Other numbers of samples per iteration and worker.
    #[must_use]
    pub fn batch(mut self, samples: u32) -> Self {
        self.batch = Some(samples);
        self
    }

    /// So many epochs.
    #[must_use]
    pub fn epochs(mut self, epochs: u32) -> Self {
        self.epochs = Some(epochs);
        self
    }

    /// Another order of the samples. Those that were held out for validation stay so, as `mean` and `std` of
    /// the others do; so do the masks of Dropout, which are in the training graph.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Workers without which it does not begin.
    #[must_use]
    pub fn min_workers(mut self, workers: u32) -> Self {
        self.min_workers = Some(workers);
        self
    }

    /// Most workers that it takes.
    #[must_use]
    pub fn max_workers(mut self, workers: u32) -> Self {
        self.max_workers = Some(workers);
        self
    }

    /// It begins with what another training of the same model has learned. The optimizer begins anew.
    #[must_use]
    pub fn start_from(mut self, weights: &TrainedWeights) -> Self {
        self.weights = Some(weights.clone());
        self
    }

    fn apply(&self, spec: &mut JobSpec) {
        let train = spec.nodes.iter_mut().find_map(|node| match &mut node.kind {
            NodeKind::Train(train) => Some(&mut **train),
            NodeKind::Evaluate | NodeKind::Snapshot => None,
        });
        let Some(train) = train else { return };
        set(&mut train.learning_rate.base, self.learning_rate);
        set(&mut train.learning_rate.warmup, self.warmup);
        if let Some(decay) = self.weight_decay {
            train.optimizer = train.optimizer.with_weight_decay(decay);
        }
        set(&mut train.policy, self.policy);
        set(&mut train.batch, self.batch);
        set(&mut train.epochs, self.epochs);
        // Beside a test set that is drawn the seed of the training chooses nothing.
        let is_test_drawn = matches!(train.data.split, Split::TestPercent(_));
        if train.data.validation_percent.is_some() && self.seed.is_some() && !is_test_drawn {
            train.data.hold_out_seed.get_or_insert(train.seed);
        }
        set(&mut train.seed, self.seed);
        set(&mut train.min_workers, self.min_workers);
        set(&mut train.max_workers, self.max_workers);
        if let Some(weights) = &self.weights {
            train.model.initial = weights.digest;
            // These are weights alone, and of another training.
            train.resume = None;
        }
    }
}

fn set<T>(setting: &mut T, changed: Option<T>) {
    if let Some(value) = changed {
        *setting = value;
    }
}

/// Parameters that a training has brought: a safetensors file on the parameter server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrainedWeights {
    /// Size of the file.
    pub bytes: u64,
    /// Of the file.
    pub digest: ContentDigest,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        sim::{training, training_job},
        spec::EvaluateSpec,
    };

    fn example_job() -> JobSpec {
        training_job(training("bsp".parse().unwrap(), 64, 8))
    }

    #[test]
    fn what_is_changed_is_changed_and_the_rest_stays() {
        let spec = example_job();
        let prepared = PreparedTraining::new(&spec).unwrap();
        assert_eq!(
            prepared.job(spec.id.clone(), &TrainingChanges::new()),
            Ok(spec.clone().validated().unwrap())
        );
        let weights = TrainedWeights { bytes: 9, digest: ContentDigest::from_bytes([0xab; 32]) };
        let changes = TrainingChanges::new().learning_rate(0.5).batch(3).epochs(7).seed(11);
        let changes = changes.min_workers(2).max_workers(4).start_from(&weights);
        let changed = prepared.job("other".parse().unwrap(), &changes).unwrap();
        let (train, before) = (changed.train(), spec.train().unwrap().1);
        assert_eq!((train.learning_rate.base, train.batch, train.epochs, train.seed), (0.5, 3, 7, 11));
        assert_eq!((train.min_workers, train.max_workers), (2, 4));
        assert_eq!(train.model.initial, weights.digest);
        assert_eq!((train.policy, &train.data), (before.policy, &before.data));
        assert_eq!(
            (train.optimizer, &train.learning_rate.decay),
            (before.optimizer, &before.learning_rate.decay)
        );
        let changes = TrainingChanges::new().warmup(0.25).weight_decay(0.5).policy("ssp:3".parse().unwrap());
        let changed = prepared.job("other".parse().unwrap(), &changes).unwrap();
        let train = changed.train();
        assert_eq!((train.learning_rate.base, train.learning_rate.warmup), (before.learning_rate.base, 0.25));
        assert_eq!(train.optimizer, before.optimizer.with_weight_decay(0.5));
        assert_eq!(train.policy.to_string(), "ssp:3");
        assert!(prepared.blobs().unwrap().contains(&before.model.initial));
    }

    /// A graph that runs across an upgrade has them in Redis, in postcard.
    #[test]
    fn changes_are_read_back_from_the_bytes_that_redis_has_of_them() {
        let weights = TrainedWeights { bytes: 8, digest: ContentDigest::from_bytes([0xab; 32]) };
        let changes = TrainingChanges::new().learning_rate(0.5).policy("ssp:3".parse().unwrap()).batch(300);
        let changes = changes.max_workers(4).start_from(&weights);
        #[rustfmt::skip]
        let stored: &[&[u8]] = &[
            &[1], &0.5f32.to_le_bytes(),
            // Warmup, weight decay.
            &[0, 0],
            b"\x01\x05ssp:3",
            &[1, 0xac, 0x02],
            // Epochs, seed, least workers.
            &[0, 0, 0],
            &[1, 4],
            b"\x01\x08\x40",
        ];
        let stored = [stored.concat(), b"ab".repeat(32)].concat();
        assert_eq!(postcard::from_bytes::<TrainingChanges>(&stored), Ok(changes.clone()));
        assert_eq!(postcard::to_stdvec(&changes), Ok(stored));
    }

    #[test]
    fn another_seed_leaves_the_samples_that_are_held_out_as_they_were_table() {
        #[rustfmt::skip]
        let cases = [
            // Held out, test set, seed of the data, changed to; which then chooses what is held out.
            (Some(10), Split::All,             None,    Some(11), Some(5)),
            (Some(10), Split::All,             Some(3), Some(11), Some(3)),
            (Some(10), Split::All,             None,    None,     None),
            (None,     Split::All,             None,    Some(11), None),
            (Some(10), Split::TestPercent(10), None,    Some(11), None),
        ];
        for (validation_percent, split, hold_out_seed, seed, want) in cases {
            let mut train = training("bsp".parse().unwrap(), 64, 8);
            train.seed = 5;
            train.evaluate = validation_percent.map(|_| EvaluateSpec::every_epochs(1));
            (train.data.validation_percent, train.data.hold_out_seed) = (validation_percent, hold_out_seed);
            train.data.split = split;
            let prepared = PreparedTraining::new(&training_job(train)).unwrap();
            let changes = TrainingChanges { seed, ..TrainingChanges::new() };
            let changed = prepared.job("other".parse().unwrap(), &changes).unwrap();
            let train = changed.train();
            assert_eq!((train.seed, train.data.hold_out_seed), (seed.unwrap_or(5), want));
        }
    }

    #[test]
    fn changes_that_make_no_job_are_refused_with_the_setting() {
        let prepared = PreparedTraining::new(&example_job()).unwrap();
        for (changes, code) in [
            (TrainingChanges::new().epochs(0), "[E027]"),
            (TrainingChanges::new().learning_rate(f32::NAN), "[E027]"),
            (TrainingChanges::new().warmup(1.0), "[E027]"),
            (TrainingChanges::new().weight_decay(-0.1), "[E027]"),
            (TrainingChanges::new().min_workers(3).max_workers(2), "[E027]"),
            (TrainingChanges::new().batch(u32::MAX), "[E028]"),
        ] {
            let refused = prepared.job("a".parse().unwrap(), &changes).unwrap_err();
            assert!(refused.to_string().starts_with(code), "{refused}");
        }
        let torn = PreparedTraining { nodes: "[{".into() };
        assert!(torn.blobs().unwrap_err().to_string().starts_with("[E056]"));
    }
}
