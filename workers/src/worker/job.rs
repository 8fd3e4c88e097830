//! One job on one worker: sessions, data, connections and buffers, made once and used for every task.

use std::time::Instant;

use syncline_engine::rpc::{JobTicket, Token};
use syncline_ps::{
    PsError,
    client::{BlobClient, Canceller, Pulled, Shards},
    optim::gradient_norm,
    shard::{PushHeader, Want},
};
use syncline_scheduler::{
    core::{Iterated, Outcome, TaskKey, Update},
    ids::Incarnation,
    samples::SampleRange,
    spec::{ElementRange, OnNan, TrainSpec},
    sync::UpdateMode,
};
use tracing::debug;

use super::{Pace, error::WorkerError, executor::Finished, feed::Feed, load::LoadProbe, round::Local};
use crate::{
    autodiff::{CORRECT, GRAD_SUFFIX, LOSS, LOSS_WEIGHT, PREDICTIONS},
    backend::{ExecOptions, Executable, Runtime, TensorView},
};

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
    local: Local,
    load: LoadProbe,
}

/// The parameters to compute on: one flat array and the tensors in it.
pub(super) struct Parameters {
    pub values: Vec<f32>,
    pub tensors: Vec<(String, Vec<usize>, ElementRange)>,
}

/// One training iteration as the executor was told.
pub(super) struct Iteration {
    pub task: String,
    pub seq: u64,
    pub range: SampleRange,
    pub learning_rate: f32,
    pub update: Update,
}

impl JobRun {
    /// Fetches the blobs, loads the sessions, opens the data and connects to the shards.
    pub(super) fn open(me: &Identity, key: &TaskKey, ticket: JobTicket) -> Result<Self, WorkerError> {
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
        let local = Local::new(train.optimizer);
        let (me, load) = (me.clone(), LoadProbe::default());
        Ok(Self { me, train, addresses, shards, params, session, grads, data, local, load })
    }

    /// Ends blocked calls from another thread.
    pub(super) fn canceller(&self) -> Canceller {
        self.shards.canceller()
    }

    /// Gives up the parameters that were asked for ahead.
    pub(super) fn forget_asked(&mut self) {
        self.shards.forget_asked();
    }

    /// Takes the report of a task that has ended and returns those that may be sent now.
    pub(super) fn settle(&mut self, done: Finished) -> Vec<Finished> {
        self.local.settle(done)
    }

    /// Gives up a round of local steps that is open, with its reports.
    pub(super) fn abandon_round(&mut self) {
        self.local.abandon();
    }

    /// Sees to the parameters for an iteration: pulls `want`, which may block, or goes on with the worker's own if the
    /// iteration's round is open.
    pub(super) fn prepare(&mut self, it: &Iteration, want: Want) -> Result<Pulled, WorkerError> {
        let mut opens = None;
        if let Update::Local { first, last } = it.update {
            if !self.local.begins(it.seq, first, last)? {
                // No shard is asked in the middle of a round: nobody else would end it.
                let canceled = self.shards.canceller().is_canceled();
                return if canceled { Err(PsError::Canceled.into()) } else { Ok(Pulled::default()) };
            }
            opens = Some(first);
        }
        self.local.abandon();
        let pulled = self.shards.pull(want, &mut self.params.values)?;
        if let Some(first) = opens {
            self.local.begin(first, &self.params, pulled.pushes);
        }
        Ok(pulled)
    }

    /// Computes on what was prepared, and pushes or steps. `next`: what the iteration that follows at once will pull,
    /// asked for together with the push.
    pub(super) fn iterate(
        &mut self,
        it: &Iteration,
        pulled: Pulled,
        next: Option<Want>,
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
        check_lengths(&gradients, &self.params)?;
        let norm = gradient_norm(&gradients);
        let finite = loss.is_finite() && weight.is_finite() && norm.is_finite();
        let fails = self.train.on_nan == OnNan::Fail;
        let worker = self.me.incarnation;
        let not_finite = |what, value| {
            Err(WorkerError::NotFinite { what, value, task: it.task.clone(), worker: worker.to_string() })
        };
        if !finite && fails {
            return match loss.is_finite() {
                true => not_finite("the gradient", norm),
                false => not_finite("the loss", f64::from(loss)),
            };
        }
        let scale = match self.train.clip_norm {
            Some(clip) if norm > f64::from(clip) => (f64::from(clip) / norm) as f32,
            _ => 1.0,
        };
        let (learning_rate, mode) = (it.learning_rate, UpdateMode::PerBarrier);
        // What is skipped may have any weight, and shards take none that is not finite.
        let weight = if finite { weight } else { 0.0 };
        let header = PushHeader { learning_rate, weight, scale, skip: !finite, mode, covers: 1 };
        let round = match it.update {
            Update::Local { last, .. } => {
                self.local.step(&mut self.params, &gradients, &header);
                if it.seq == last { self.local.close(&self.params) } else { None }
            }
            Update::PerPush { .. } | Update::PerBarrier => None,
        };
        if let Some(change) = round.as_ref().filter(|change| !change.norm.is_finite() && fails) {
            return not_finite("the change of a local round", change.norm);
        }
        let push: Option<(PushHeader, &[&[f32]])> = match (it.update, &round) {
            (Update::PerPush { scale: share }, _) => {
                let mode = UpdateMode::PerPush;
                Some((PushHeader { mode, scale: scale * share, ..header }, &gradients))
            }
            (Update::PerBarrier, _) => Some((header, &gradients)),
            (Update::Local { .. }, Some(change)) => Some((change.header(learning_rate), &change.values)),
            (Update::Local { .. }, None) => None,
        };
        let compute = began.elapsed();

        let rest = self.me.pace.rest(compute, f64::from(it.range.len) / f64::from(self.train.batch));
        if !rest.is_zero() {
            std::thread::sleep(rest);
        }
        let pace = began.elapsed().saturating_sub(compute);
        let before = round.as_ref().map_or(pulled.pushes, |change| change.pushes);
        let (mut push_us, mut staleness, mut lead) = (0, 0, 0);
        if let Some((header, values)) = push {
            let values = if header.skip { &[] } else { values };
            let pushed = self.shards.push_and_ask(it.seq, header, values, next)?;
            (push_us, staleness) = (pushed.took_us, pushed.pushes.saturating_sub(before + 1));
            lead = pushed.lead;
        }
        let load = self.load.read();
        Ok(Outcome::Iterated(Iterated {
            loss,
            skipped: !finite,
            compute_us: compute.as_micros() as u64,
            pace_us: if rest.is_zero() { 0 } else { pace.as_micros() as u64 },
            pull_us: pulled.transfer_us,
            push_us,
            wait_us: pulled.waited_us,
            staleness,
            lead,
            cpu_load: load.cpu,
            memory_load: load.memory,
        }))
    }

    /// Loss and accuracy of a pinned version over the test samples. A round that is open goes on behind it.
    pub(super) fn evaluate(&mut self, version: u64) -> Result<Outcome, WorkerError> {
        let own = self.local.is_open().then(|| self.params.values.clone());
        let evaluated = self.evaluate_pinned(version);
        if let Some(values) = own {
            self.params.values = values;
        }
        evaluated
    }

    fn evaluate_pinned(&mut self, version: u64) -> Result<Outcome, WorkerError> {
        self.shards.pull(Want::Pinned(version), &mut self.params.values)?;
        let graph = BlobClient::new(self.me.token.clone())
            .get(&self.addresses, &self.train.model.evaluation_graph)?;
        let mut session = Executable::new(&self.me.runtime, &graph, &self.me.exec)?;
        let has = |session: &Executable, name: &str| session.output_names().iter().any(|o| o == name);
        let (counts, predicts) = (has(&session, CORRECT), has(&session, PREDICTIONS));
        let parts = self.data.as_ref().map_or(1, Feed::test_parts);
        let (mut loss, mut weight, mut correct, mut predictions, mut samples) = (0.0, 0.0, 0.0, 0.0, 0u64);
        for part in 0..parts {
            let taken = self.data.as_mut().map_or(Ok(0), |feed| feed.take_test(part))?;
            samples += taken;
            let outputs = session.run(&inputs(&self.params, self.data.as_ref(), &self.train))?;
            let share = f64::from(outputs.scalar(LOSS_WEIGHT)?);
            loss += f64::from(outputs.scalar(LOSS)?) * share;
            weight += share;
            if counts {
                correct += f64::from(outputs.scalar(CORRECT)?);
                // One a sample, unless the graph says otherwise: labels may be ignored.
                predictions += if predicts { f64::from(outputs.scalar(PREDICTIONS)?) } else { taken as f64 };
            }
        }
        let accuracy = (predictions > 0.0).then(|| correct / predictions);
        Ok(Outcome::Evaluated { loss: loss / weight.max(f64::MIN_POSITIVE), accuracy, samples })
    }
}

/// Refuses gradients that do not lie as the parameters do.
fn check_lengths(gradients: &[&[f32]], params: &Parameters) -> Result<(), WorkerError> {
    for (gradient, (name, _, range)) in gradients.iter().zip(&params.tensors) {
        if gradient.len() as u64 != range.len() {
            let what =
                format!("the gradient of `{name}` has {} elements, expected {}", gradient.len(), range.len());
            return Err(WorkerError::Graph { what });
        }
    }
    Ok(())
}

/// The graph's inputs: what comes from the data, then every parameter. Nothing is copied.
fn inputs<'a>(
    params: &'a Parameters,
    feed: Option<&'a Feed>,
    train: &'a TrainSpec,
) -> Vec<(&'a str, TensorView<'a>)> {
    let mut inputs: Vec<(&str, TensorView<'_>)> =
        Vec::with_capacity(params.tensors.len() + train.model.inputs.len() + 1);
    inputs.extend(feed.into_iter().flat_map(|feed| feed.inputs(&train.model)));
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
