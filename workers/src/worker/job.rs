//! One job on one worker: sessions, data, connections and buffers, made once and used for every task.

use std::time::Instant;

use syncline_engine::rpc::{JobTicket, Token};
use syncline_ps::{
    client::{BlobClient, Canceller, Pulled, Shards},
    optim::gradient_norm,
    shard::{PushHeader, Want},
};
use syncline_scheduler::{
    core::{Iterated, Outcome},
    ids::{Incarnation, Superstep},
    samples::{SampleRange, permutation},
    spec::{ElementRange, OnNan, TrainSpec},
};
use tracing::debug;

use super::{Pace, error::WorkerError};
use crate::{
    autodiff::{CORRECT, GRAD_SUFFIX, LOSS, LOSS_WEIGHT},
    backend::{ExecOptions, Executable, Runtime, TensorView},
    data::{Batch, Dataset, Target},
};

/// Samples evaluated at once.
const EVALUATION_BATCH: usize = 256;

/// Who executes: what every task of this life has in common.
#[derive(Clone)]
pub(super) struct Identity {
    pub incarnation: Incarnation,
    pub token: Token,
    pub runtime: Runtime,
    pub exec: ExecOptions,
    pub pace: Pace,
}

/// One job in one generation on this worker.
pub(super) struct JobRun {
    me: Identity,
    train: TrainSpec,
    addresses: Vec<String>,
    shards: Shards,
    params: Parameters,
    session: Executable,
    /// Positions of the gradients among the session's outputs, in layout order.
    grads: Vec<usize>,
    data: Option<Feed>,
}

/// The pulled parameters: one flat array and the tensors in it.
struct Parameters {
    values: Vec<f32>,
    tensors: Vec<(String, Vec<usize>, ElementRange)>,
}

/// The data set with the order of the present epoch.
struct Feed {
    set: Dataset,
    train_rows: Vec<u32>,
    test_rows: Vec<u32>,
    order: Vec<u32>,
    /// The epoch that `order` belongs to.
    epoch: Option<u32>,
    rows: Vec<u32>,
    batch: Batch,
}

/// One training iteration as the executor was told.
pub(super) struct Iteration {
    pub task: String,
    pub seq: u64,
    pub range: SampleRange,
    pub learning_rate: f32,
}

impl JobRun {
    /// Fetches the blobs, loads the sessions, opens the data and connects to the shards.
    pub(super) fn open(
        me: &Identity,
        key: &syncline_scheduler::core::TaskKey,
        ticket: JobTicket,
    ) -> Result<Self, WorkerError> {
        let JobTicket { train, shards: addresses, .. } = ticket;
        let graph = BlobClient::new(me.token.clone()).get(&addresses, &train.model.training_graph)?;
        let session = Executable::new(&me.runtime, &graph, &me.exec)?;
        let params = Parameters::new(&train);
        let place = |name: &str| session.output_names().iter().position(|o| o == name);
        let grads = params
            .tensors
            .iter()
            .map(|(name, ..)| {
                let output = format!("{name}{GRAD_SUFFIX}");
                place(&output)
                    .ok_or_else(|| WorkerError::Graph { what: format!("it has no output `{output}`") })
            })
            .collect::<Result<_, _>>()?;
        let elements = params.values.len() as u64;
        let shards = Shards::connect(
            &addresses,
            me.token.clone(),
            key.job.clone(),
            key.generation,
            me.incarnation,
            elements,
        )?;
        let data = Feed::open(&train)?;
        debug!(job = %key.job, elements, "job opened on this worker");
        Ok(Self { me: me.clone(), train, addresses, shards, params, session, grads, data })
    }

    /// Ends blocked calls from another thread.
    pub(super) fn canceller(&self) -> Canceller {
        self.shards.canceller()
    }

    /// Gives up the parameters that were asked for ahead.
    pub(super) fn forget_asked(&mut self) {
        self.shards.forget_asked();
    }

    /// Pulls the parameters for an iteration of `superstep`; blocks until the barrier before it has closed.
    pub(super) fn pull(&mut self, superstep: Superstep) -> Result<Pulled, WorkerError> {
        Ok(self.shards.pull(Want::Version(superstep.0), &mut self.params.values)?)
    }

    /// Computes on what was `pulled`, and pushes. `next`: superstep of the iteration that follows at once, whose
    /// parameters are asked for together with the push.
    pub(super) fn iterate(
        &mut self,
        it: &Iteration,
        pulled: Pulled,
        next: Option<Superstep>,
    ) -> Result<Outcome, WorkerError> {
        let began = Instant::now();
        if let Some(feed) = &mut self.data {
            feed.take(self.train.seed, it.range)?;
        }
        let inputs = inputs(&self.params, self.data.as_ref(), &self.train);
        let outputs = self.session.run(&inputs)?;
        let loss = outputs.scalar(LOSS)?;
        let weight = outputs.scalar(LOSS_WEIGHT)?;
        let gradients: Vec<&[f32]> =
            self.grads.iter().map(|&i| outputs.f32_at(i)).collect::<Result<_, _>>()?;
        let given: u64 = gradients.iter().map(|g| g.len() as u64).sum();
        if given != self.shards.elements() {
            let what =
                format!("its gradients have {given} elements, its parameters {}", self.shards.elements());
            return Err(WorkerError::Graph { what });
        }
        let norm = gradient_norm(&gradients);
        let compute = began.elapsed();

        let finite = loss.is_finite() && weight.is_finite() && norm.is_finite();
        if !finite && self.train.on_nan == OnNan::Fail {
            let (what, value) =
                if loss.is_finite() { ("the gradient", norm) } else { ("the loss", f64::from(loss)) };
            let worker = self.me.incarnation.to_string();
            return Err(WorkerError::NotFinite { what, value, task: it.task.clone(), worker });
        }
        let scale = match self.train.clip_norm {
            Some(clip) if norm > f64::from(clip) => (f64::from(clip) / norm) as f32,
            _ => 1.0,
        };
        let rest = self.me.pace.rest(compute);
        if !rest.is_zero() {
            std::thread::sleep(rest);
        }
        let pace = began.elapsed().saturating_sub(compute);
        let header = PushHeader { learning_rate: it.learning_rate, weight, scale, skip: !finite };
        let gradients: &[&[f32]] = if finite { &gradients } else { &[] };
        let next = next.map(|superstep| Want::Version(superstep.0));
        let pushed = self.shards.push_and_ask(it.seq, header, gradients, next)?;
        Ok(Outcome::Iterated(Iterated {
            loss,
            skipped: !finite,
            compute_us: compute.as_micros() as u64,
            pace_us: if rest.is_zero() { 0 } else { pace.as_micros() as u64 },
            pull_us: pulled.transfer_us,
            push_us: pushed.took_us,
            wait_us: pulled.waited_us,
            staleness: pushed.pushes.saturating_sub(pulled.pushes + 1),
            cpu_load: 0.0,
            memory_load: 0.0,
        }))
    }

    /// Loss and accuracy of a pinned version over the test samples.
    pub(super) fn evaluate(&mut self, version: u64) -> Result<Outcome, WorkerError> {
        self.shards.pull(Want::Pinned(version), &mut self.params.values)?;
        let graph = BlobClient::new(self.me.token.clone())
            .get(&self.addresses, &self.train.model.evaluation_graph)?;
        let mut session = Executable::new(&self.me.runtime, &graph, &self.me.exec)?;
        let counts = session.output_names().iter().any(|o| o == CORRECT);
        let parts = self.data.as_ref().map_or(1, |feed| feed.test_rows.len().div_ceil(EVALUATION_BATCH));
        let (mut loss, mut weight, mut correct, mut samples) = (0.0, 0.0, 0.0, 0u64);
        for part in 0..parts {
            if let Some(feed) = &mut self.data {
                samples += feed.take_test(part)?;
            }
            let outputs = session.run(&inputs(&self.params, self.data.as_ref(), &self.train))?;
            let share = f64::from(outputs.scalar(LOSS_WEIGHT)?);
            loss += f64::from(outputs.scalar(LOSS)?) * share;
            weight += share;
            if counts {
                correct += f64::from(outputs.scalar(CORRECT)?);
            }
        }
        let accuracy = (counts && samples > 0).then(|| correct / samples as f64);
        Ok(Outcome::Evaluated { loss: loss / weight.max(f64::MIN_POSITIVE), accuracy, samples })
    }
}

/// The graph's inputs: every parameter, then features and labels. Nothing is copied.
fn inputs<'a>(
    params: &'a Parameters,
    feed: Option<&'a Feed>,
    train: &'a TrainSpec,
) -> Vec<(&'a str, TensorView<'a>)> {
    let mut inputs: Vec<(&str, TensorView<'_>)> = Vec::with_capacity(params.tensors.len() + 2);
    if let Some(feed) = feed {
        inputs.extend(train.model.input.as_deref().map(|name| (name, feed.batch.features())));
        inputs.extend(train.model.label.as_deref().map(|name| (name, feed.batch.label())));
    }
    for (name, shape, range) in &params.tensors {
        let data = &params.values[range.start as usize..range.end as usize];
        inputs.push((name, TensorView::F32 { shape, data }));
    }
    inputs
}

impl Parameters {
    fn new(train: &TrainSpec) -> Self {
        let shape = |dims: &[u64]| dims.iter().map(|&d| d as usize).collect();
        let tensors: Vec<(String, Vec<usize>, ElementRange)> =
            train.model.layout.ranges().map(|(p, range)| (p.name.clone(), shape(&p.shape), range)).collect();
        let elements = tensors.last().map_or(0, |(.., range)| range.end);
        Self { values: vec![0.0; elements as usize], tensors }
    }
}

/// What labels a model wants.
pub(crate) fn target(model: &syncline_scheduler::spec::ModelSpec) -> Target {
    match model.classes {
        Some(count) => Target::Classes { count: count as usize },
        None => Target::Values { shape: model.label_shape.iter().map(|&d| d as usize).collect() },
    }
}

impl Feed {
    fn open(train: &TrainSpec) -> Result<Option<Self>, WorkerError> {
        if train.model.input.is_none() && train.model.label.is_none() {
            return Ok(None);
        }
        let set = Dataset::open(&train.data, &target(&train.model))?;
        let (train_rows, test_rows) = set.split(train.data.split);
        if train_rows.len() as u64 != train.data.train_samples {
            let what =
                format!("{} training samples, the job says {}", train_rows.len(), train.data.train_samples);
            return Err(WorkerError::Graph { what });
        }
        let batch = set.batch();
        let order = Vec::new();
        Ok(Some(Self { set, train_rows, test_rows, order, epoch: None, rows: Vec::new(), batch }))
    }

    fn take(&mut self, seed: u64, range: SampleRange) -> Result<(), WorkerError> {
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
        Ok(self.set.gather(&self.rows, &mut self.batch)?)
    }

    fn take_test(&mut self, part: usize) -> Result<u64, WorkerError> {
        let rows = self.test_rows.chunks(EVALUATION_BATCH).nth(part).unwrap_or_default();
        self.set.gather(rows, &mut self.batch)?;
        Ok(rows.len() as u64)
    }
}
