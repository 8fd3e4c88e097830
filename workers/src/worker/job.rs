//! One job on one worker: sessions, data, connections and buffers, made once and used for every task.

use std::time::{Duration, Instant};

use syncline_engine::rpc::Token;
use syncline_ps::{
    PsError,
    client::{Addresses, BlobClient, Canceller, ClientOptions, Pulled, Shards},
    optim::gradient_norm,
    shard::{PushHeader, ReadCondition},
    wire::SessionKey,
};
use syncline_scheduler::{
    core::{GradientUse, Iterated, Outcome, TaskKey},
    ids::Incarnation,
    samples::SampleRange,
    spec::{OnNan, TrainSpec},
    sync::PushMode,
};
use tracing::debug;

use super::{
    Pace,
    busy::Busy,
    error::WorkerError,
    feed::Feed,
    lanes::{Inputs, Lanes},
    load::LoadProbe,
    loss_scale::{LossScale, Verdict},
    parameters::Parameters,
    report::Finished,
    round::Local,
    scores::Scores,
};
use crate::backend::{ExecOptions, Executable, Runtime};

/// A shard may be away for this long before a task fails: the engine, which knows more, is to judge first.
const SHARD_PATIENCE: Duration = Duration::from_secs(60);

/// Who executes: what every task of this life has in common.
#[derive(Clone)]
pub(super) struct Identity {
    pub incarnation: Incarnation,
    pub token: Token,
    pub runtime: Runtime,
    pub exec: ExecOptions,
    pub split_batch: bool,
    pub pace: Pace,
}

/// One job in one generation on this worker.
pub(super) struct JobRun {
    me: Identity,
    train: TrainSpec,
    addresses: Addresses,
    shards: Shards,
    params: Parameters,
    lanes: Lanes,
    data: Option<Feed>,
    /// Of a float16 graph.
    scale: Option<LossScale>,
    local: Local,
    load: LoadProbe,
    busy: Busy,
}

/// One training iteration as the executor was told.
pub(super) struct Iteration {
    pub task: String,
    pub seq: u64,
    pub range: SampleRange,
    pub learning_rate: f32,
    pub gradient: GradientUse,
}

impl JobRun {
    /// Fetches the blobs, loads the sessions, opens the data and connects to the shards at `addresses`, unless `canceller`
    /// ends it. The same one ends calls that block later.
    pub(super) fn open(
        me: &Identity,
        key: &TaskKey,
        train: TrainSpec,
        addresses: Addresses,
        canceller: Canceller,
        busy: &Busy,
    ) -> Result<Self, WorkerError> {
        let blobs = BlobClient::new(me.token.clone()).under(canceller.clone());
        let graph = busy.waiting(|| blobs.get(&addresses.get(), &train.model.training_graph))?;
        let (graph, scale) = LossScale::take(graph)?;
        let params = Parameters::new(&train);
        let lanes = Lanes::new(&me.runtime, &graph, &me.exec, me.split_batch, &params)?;
        let elements = params.values.len() as u64;
        let session =
            SessionKey { job: key.job.clone(), generation: key.generation, incarnation: me.incarnation };
        let options = ClientOptions { retry_limit: SHARD_PATIENCE, ..ClientOptions::default() };
        let connect =
            || Shards::connect_with(&addresses, me.token.clone(), session, elements, options, canceller);
        let shards = busy.waiting(connect)?;
        let data = Feed::open(&train)?;
        debug!(job = %key.job, elements, "job opened on this worker");
        let local = Local::new(train.optimizer);
        let (me, load, busy) = (me.clone(), LoadProbe::default(), busy.clone());
        Ok(Self { me, train, addresses, shards, params, lanes, data, scale, local, load, busy })
    }

    /// Gives up the parameters that were asked for ahead.
    pub(super) fn drop_requested(&mut self) {
        self.shards.drop_requested();
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
    pub(super) fn prepare(&mut self, it: &Iteration, want: ReadCondition) -> Result<Pulled, WorkerError> {
        let mut opens = None;
        if let GradientUse::LocalStep { first, last } = it.gradient {
            if !self.local.begins(it.seq, first, last)? {
                // No shard is asked in the middle of a round: nobody else would end it.
                let canceled = self.shards.canceller().is_canceled();
                return if canceled { Err(PsError::Canceled.into()) } else { Ok(Pulled::default()) };
            }
            opens = Some(first);
        }
        self.local.abandon();
        let pulled = self.busy.waiting(|| self.shards.pull(want, &mut self.params.values))?;
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
        next: Option<ReadCondition>,
    ) -> Result<Outcome, WorkerError> {
        let began = Instant::now();
        if let Some(feed) = &mut self.data {
            feed.take(self.train.seed, it.range)?;
        }
        let scale = self.scale.clone();
        let samples = samples_of(self.data.as_ref(), &self.train);
        let rest = self.params.inputs().chain(scale.iter().map(LossScale::input)).collect();
        let step = self.lanes.run(&samples, &rest)?;
        let (loss, weight, pushed) = (step.loss, step.weight, step.pushed()?);
        let (gradients, buffers) = pushed.split_at(self.params.trained);
        let norm = gradient_norm(gradients);
        let buffer_norm = gradient_norm(buffers);
        let finite = [f64::from(loss), f64::from(weight), norm, buffer_norm].iter().all(|n| n.is_finite());
        let judged = self.scale.as_mut().map(|scale| scale.judge(loss.is_finite(), norm.is_finite()));
        let fails = self.train.on_nan == OnNan::Fail && judged != Some(Verdict::Overflow);
        let worker = self.me.incarnation;
        let not_finite = |what, value| {
            Err(WorkerError::NotFinite { what, value, task: it.task.clone(), worker: worker.to_string() })
        };
        if !finite && fails {
            return match (loss.is_finite(), norm.is_finite()) {
                (false, _) => not_finite("the loss", f64::from(loss)),
                (true, false) => not_finite("the gradient", norm),
                (true, true) => not_finite("a running statistic", buffer_norm),
            };
        }
        // What joins a round is clipped there, as its mean: that is what one machine with all samples would do.
        let scale = match self.train.clip_norm {
            _ if it.gradient == GradientUse::JoinRound => 1.0,
            Some(clip) if norm > f64::from(clip) => (f64::from(clip) / norm) as f32,
            _ => 1.0,
        };
        let (learning_rate, mode) = (it.learning_rate, PushMode::Accumulate);
        // What is skipped may have any weight, and shards take none that is not finite.
        let weight = if finite { weight } else { 0.0 };
        let header = PushHeader { learning_rate, weight, scale, skip: !finite, mode, covers: 1 };
        let round = match it.gradient {
            GradientUse::LocalStep { last, .. } => {
                self.local.step(&mut self.params, &pushed, &header);
                if it.seq == last { self.local.close(&self.params) } else { None }
            }
            GradientUse::ApplyOnArrival { .. } | GradientUse::JoinRound => None,
        };
        if let Some(change) = round.as_ref().filter(|change| !change.norm.is_finite() && fails) {
            return not_finite("the change of a local round", change.norm);
        }
        let push: Option<(PushHeader, &[&[f32]])> = match (it.gradient, &round) {
            (GradientUse::ApplyOnArrival { scale: share }, _) => {
                let mode = PushMode::Apply;
                Some((PushHeader { mode, scale: scale * share, ..header }, &pushed))
            }
            (GradientUse::JoinRound, _) => Some((header, &pushed)),
            (GradientUse::LocalStep { .. }, Some(change)) => {
                Some((change.header(learning_rate), &change.values))
            }
            (GradientUse::LocalStep { .. }, None) => None,
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
            let pushed = self.busy.waiting(|| self.shards.push_and_request(it.seq, header, values, next))?;
            (push_us, staleness) = (pushed.took_us, pushed.pushes.saturating_sub(before + 1));
            lead = pushed.lead;
        }
        let load = self.load.read();
        Ok(Outcome::Iterated(Iterated {
            range: it.range,
            loss,
            skipped: !finite,
            compute_us: compute.as_micros() as u64,
            throttle_us: if rest.is_zero() { 0 } else { pace.as_micros() as u64 },
            pull_us: pulled.transfer_us,
            push_us,
            wait_us: pulled.waited_us,
            staleness,
            lead,
            cpu_load: load.cpu,
            memory_load: load.memory,
        }))
    }

    /// Loss and metrics of a pinned version over the test samples. A round that is open goes on behind it.
    pub(super) fn evaluate(&mut self, version: u64) -> Result<Outcome, WorkerError> {
        let own = self.local.is_open().then(|| self.params.values.clone());
        let evaluated = self.evaluate_pinned(version);
        if let Some(values) = own {
            self.params.values = values;
        }
        evaluated
    }

    fn evaluate_pinned(&mut self, version: u64) -> Result<Outcome, WorkerError> {
        self.busy.waiting(|| self.shards.pull(ReadCondition::Pinned(version), &mut self.params.values))?;
        let blobs = BlobClient::new(self.me.token.clone()).under(self.shards.canceller());
        let graph =
            self.busy.waiting(|| blobs.get(&self.addresses.get(), &self.train.model.evaluation_graph))?;
        let mut session = Executable::new(&self.me.runtime, &graph, &self.me.exec)?;
        let mut scores = Scores::of(session.output_names());
        for part in 0..self.data.as_ref().map_or(1, Feed::test_parts) {
            let samples = self.data.as_mut().map_or(Ok(0), |feed| feed.take_test(part))?;
            // The parameters stay where they are: only the samples are others.
            let changed = |name: &str| part == 0 || !self.params.holds(name);
            let mut inputs = samples_of(self.data.as_ref(), &self.train);
            inputs.extend(self.params.inputs());
            let outputs = session.run_changed(&inputs, changed)?;
            scores.add(samples, |name| outputs.scalar(name))?;
        }
        Ok(Outcome::Evaluated(scores.finish()))
    }
}

/// What was gathered last, as inputs of the graph. Nothing is copied.
fn samples_of<'a>(feed: Option<&'a Feed>, train: &'a TrainSpec) -> Inputs<'a> {
    feed.into_iter().flat_map(|feed| feed.inputs(&train.model)).collect()
}
