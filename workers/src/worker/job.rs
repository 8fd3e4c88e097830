//! One job on one worker: sessions, data, connections and buffers, made once and used for every task; and its
//! iterations. [Evaluations](super::evaluation) stand beside it.

use std::time::{Duration, Instant};

use syncline_ps::{
    PsError,
    client::{Addresses, BlobClient, CancelToken, ClientOptions, PullStats, ShardSet},
    codec::Codec,
    shard::{PushHeader, ReadCondition},
    transport::TransportChoice,
    wire::SessionKey,
};
use syncline_rpc::Token;
use syncline_runtime::{ExecOptions, Executable, Runtime};
use syncline_scheduler::{
    core::{Assignment, GradientUse, Iterated, Outcome},
    graph::TaskId,
    ids::{Generation, Incarnation, RunId},
    samples::SampleRange,
    spec::{OnNan, TrainSpec},
};

use super::{
    Throttle,
    batch_rows::BatchRows,
    data_loader::DataLoader,
    device_watch::DeviceWatch,
    draws::DrawStream,
    error::WorkerError,
    iteration::{Iteration, NextPull},
    load::LoadProbe,
    local_steps::{LocalSteps, StepsOnDevice, UnfitJobs},
    loss_scale::{LossScale, Verdict},
    parameters::Parameters,
    replicas::{BatchCut, Inputs, PieceWatch, Replicas},
    report::Finished,
    shared_pages::SharedPages,
    step_health::StepHealth,
    step_push::StepPush,
    task_timer::TaskTimer,
};
use tracing::{info, warn};

/// A shard may be away for this long before a task fails: the engine, which knows more, is to judge first.
pub(super) const SHARD_TIMEOUT: Duration = Duration::from_secs(60);

/// What every task of a worker's session has in common.
#[derive(Clone)]
pub(super) struct WorkerContext {
    pub incarnation: Incarnation,
    pub token: Token,
    pub runtime: Runtime,
    pub exec: ExecOptions,
    pub device: DeviceWatch,
    pub split_batch: bool,
    pub throttle: Throttle,
    pub transport: TransportChoice,
    /// Samples that fit here at once, if somebody said so.
    pub max_batch: Option<u32>,
    /// Whether rounds of local steps keep parameters and slots on the device, where the job allows it.
    pub resident_rounds: bool,
    /// Jobs whose rounds do not, as the device could not take a step of theirs.
    pub unfit: UnfitJobs,
}

/// One job in one generation on this worker.
pub(super) struct JobRun {
    pub(super) context: WorkerContext,
    pub(super) train: TrainSpec,
    pub(super) addresses: Addresses,
    pub(super) shards: ShardSet,
    pub(super) params: Parameters,
    replicas: Replicas,
    pub(super) data: Option<DataLoader>,
    /// Where only rows of some parameters travel.
    pub(super) rows: Option<BatchRows>,
    /// Of a float16 graph.
    scale: Option<LossScale>,
    pub(super) local: LocalSteps,
    pages: SharedPages,
    /// Whether the last push was the change of a local round, and no gradient.
    pushes_changes: bool,
    /// Whether the parameters began with those of the model, and not with a checkpoint.
    begins_untrained: bool,
    /// Kept from one evaluation to the next while it trains.
    pub(super) evaluation: Option<Executable>,
    load: LoadProbe,
    pub(super) timer: TaskTimer,
}

impl JobRun {
    /// Fetches the blobs, loads the sessions, opens the data and connects to the shards at `addresses`,
    /// unless `cancel_token` ends it. The same one ends calls that block later. `first`: the first task
    /// of it.
    pub(super) fn open(
        context: &WorkerContext,
        first: &Assignment,
        train: TrainSpec,
        addresses: Addresses,
        cancel_token: CancelToken,
        timer: &TaskTimer,
    ) -> Result<Self, WorkerError> {
        let key = &first.key;
        let blobs = BlobClient::new(context.token.clone()).under(cancel_token.clone());
        let graph = timer
            .waiting(|| blobs.get_within(&addresses, train.model.training_graph, SHARD_TIMEOUT))
            .inspect_err(|error| addresses.note_unreached(error, &key.run.job))?;
        let (graph, scale) = LossScale::take(graph)?;
        let rows = BatchRows::of(&train.model);
        let params = Parameters::new(&train.model.layout, rows.as_ref());
        let draws = DrawStream { seed: train.seed, worker: first.worker_number, part: 0 };
        let runtime = &context.runtime;
        // The rows that a batch chooses are another number nearly every time.
        let exec = ExecOptions { tf32: train.tf32, varying_shapes: rows.is_some(), ..context.exec.clone() };
        let cut = BatchCut {
            split: context.split_batch,
            at_once: train.samples_at_once(context.max_batch).map(|most| most as usize),
        };
        let watch = PieceWatch { cancel_token: cancel_token.clone(), timer: timer.clone() };
        let mut replicas =
            Replicas::new(runtime, &graph, &exec, cut, &params, draws)?.watched_by(watch.clone());
        let options = ClientOptions {
            retry_limit: SHARD_TIMEOUT,
            transport: context.transport,
            in_place: rows.is_none(),
            // Of several replicas each has its own, and what is pushed is their sum.
            offers_gradients: replicas.is_one(),
            ..ClientOptions::default()
        };
        let connect = || connect(context, &key.run, &train, &addresses, options, cancel_token);
        let shards = timer.waiting(connect)?;
        let mut pages = SharedPages::new(&context.runtime, context.exec.device);
        if let Some(area) = shards.gradient_area()
            && pages.take_gradients(&area)
        {
            replicas.write_into(area, &params)?;
        }
        let data = DataLoader::open(&train, context.max_batch, &watch)?;
        let elements = train.model.layout.elements().unwrap_or(0);
        let transport = addresses.transport_words().unwrap_or_default();
        let (pushes, pulls) = (train.compression, train.pull_compression);
        info!(job = %key.run.job, elements, transport, %pushes, %pulls, "job opened on this worker");
        let mut device = None;
        if StepsOnDevice::suits(context, &key.run, &train, scale.is_some()) {
            timer.progressed();
            device = StepsOnDevice::open(runtime, &exec, &key.run, &train, &graph, &params, draws)?;
        }
        let local = LocalSteps::new(train.optimizer, device);
        let generation = key.run.generation;
        let begins_untrained = train.resume.is_none() && generation == Generation::first(generation.nonce());
        let (context, load, timer) = (context.clone(), LoadProbe::default(), timer.clone());
        Ok(Self {
            context,
            train,
            addresses,
            shards,
            params,
            replicas,
            data,
            rows,
            scale,
            local,
            pages,
            pushes_changes: false,
            begins_untrained,
            evaluation: None,
            load,
            timer,
        })
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

    /// Sees to the parameters for an iteration: pulls `want`, which may block, or goes on with the worker's
    /// own if the iteration's round is open.
    pub(super) fn pull_for(&mut self, it: &Iteration, want: ReadCondition) -> Result<PullStats, WorkerError> {
        let mut opens = None;
        if let GradientUse::LocalStep { first, last } = it.gradient {
            if !self.local.begins(it.seq, first, last)? {
                // No shard is asked in the middle of a round: nobody else would end it.
                let canceled = self.shards.cancel_token().is_canceled();
                return if canceled { Err(PsError::Canceled.into()) } else { Ok(PullStats::default()) };
            }
            opens = Some(first);
        }
        self.local.abandon();
        if self.rows.is_some() {
            return self.pull_rows(it.range, want);
        }
        let (shards, params) = (&mut self.shards, &mut self.params);
        // A round of local steps moves the parameters, and so needs its own.
        let pulled = self.timer.waiting(|| match opens {
            Some(_) => shards.pull(want, &mut params.values),
            None => {
                let Parameters { values, tensors, .. } = params;
                shards.pull_in_place(want, values, tensors.iter().map(|tensor| tensor.range))
            }
        })?;
        match opens {
            Some(first) => self.local.begin(first, &self.params)?,
            None => self.pages.follow(shards),
        }
        Ok(pulled)
    }

    /// Gathers the samples, and pulls the rows that they choose and what is no table.
    fn pull_rows(&mut self, range: SampleRange, want: ReadCondition) -> Result<PullStats, WorkerError> {
        let Self { rows: Some(rows), data: Some(loader), params, replicas, shards, timer, .. } = self else {
            return Ok(PullStats::default());
        };
        rows.choose(loader, &self.train, range)?;
        params.resize(&self.train.model.layout, rows);
        replicas.resize(params);
        Ok(timer.waiting(|| shards.pull_rows(want, rows.selection(), &mut params.values))?)
    }

    /// An iteration that counts nowhere: it pulls the newest parameters, computes on `range`, and pushes
    /// nothing. What a first iteration takes longer than others, and what stops it, is over before
    /// anybody waits for this worker.
    pub(super) fn warm_up(&mut self, task: &TaskId, range: SampleRange) -> Result<Outcome, WorkerError> {
        let gradient = GradientUse::JoinRound;
        let it = Iteration { task: task.clone(), seq: 0, range, learning_rate: 0.0, gradient };
        self.pull_for(&it, ReadCondition::Version { closed: 0, min_clock: 0 })?;
        self.load_batch(range)?;
        let samples = selected_samples(self.data.as_ref(), self.rows.as_ref(), &self.train);
        let began = Instant::now();
        if !self.local.warm_up(self.params.inputs_lent(&self.shards), &samples)? {
            let params = self.params.inputs_lent(&self.shards);
            let rest = params.chain(self.scale.iter().map(LossScale::input)).collect();
            self.replicas.run(&samples, &rest)?;
        }
        self.timer.took(began.elapsed());
        Ok(Outcome::Prepared)
    }

    /// Whether no step has changed the parameters with which an iteration computes.
    fn is_untrained(&self, it: &Iteration, pulled: &PullStats) -> bool {
        self.begins_untrained
            && match it.gradient {
                GradientUse::ApplyOnArrival { .. } => pulled.pushes == 0,
                GradientUse::JoinRound => pulled.version == 0,
                GradientUse::LocalStep { first, .. } => it.seq == first && pulled.version == 0,
            }
    }

    /// Gathers the samples of an iteration; where only rows travel, they chose those before.
    fn load_batch(&mut self, range: SampleRange) -> Result<(), WorkerError> {
        let loader = self.data.as_mut().filter(|_| self.rows.is_none());
        loader.map_or(Ok(()), |loader| loader.load_batch(&self.train, range))
    }

    /// Computes on what was prepared, and pushes or steps. `next_range`: the samples of the iteration that
    /// follows at once, which are fetched meanwhile. `next`: what it will pull, asked for together with
    /// the push.
    pub(super) fn iterate(
        &mut self,
        it: &Iteration,
        pulled: PullStats,
        next_range: Option<SampleRange>,
        next: Option<NextPull>,
    ) -> Result<Outcome, WorkerError> {
        let began = Instant::now();
        let untrained = self.is_untrained(it, &pulled);
        self.load_batch(it.range)?;
        if let (Some(loader), Some(range)) = (self.data.as_mut(), next_range) {
            loader.read_ahead(range);
        }
        let scale = self.scale.clone();
        let samples = selected_samples(self.data.as_ref(), self.rows.as_ref(), &self.train);
        let step;
        let (health, values) = match self.local.compute(it, &samples)? {
            Some(health) => (health, Vec::new()),
            None => {
                let rest = self.params.inputs_lent(&self.shards);
                let rest = rest.chain(scale.iter().map(LossScale::input)).collect();
                step = self.replicas.run(&samples, &rest)?;
                let values = step.pushed()?;
                (StepHealth::of(&step, &values, self.params.trained), values)
            }
        };
        let is_overflow = self.scale.as_mut().is_some_and(|scale| {
            scale.judge(health.loss_is_finite(), health.norm_is_finite()) == Verdict::Overflow
        });
        // The graph has only overflowed, and is to be scaled otherwise.
        let fails = self.train.on_nan == OnNan::Fail && !is_overflow;
        if let Some(fault) = health.fault().filter(|_| fails) {
            return Err(not_finite(self.context.incarnation, it, fault, untrained));
        }
        let header = health.header(it, self.train.clip_norm, self.shards.compresses());
        let delta = self.local.follow(it, &mut self.params, &values, &header)?;
        if let Some(delta) = delta.as_ref().filter(|delta| !delta.norm.is_finite() && fails) {
            return Err(not_finite(
                self.context.incarnation,
                it,
                ("the change of a local round", delta.norm),
                untrained,
            ));
        }
        let leads_nowhere = delta.as_ref().is_some_and(|delta| !delta.norm.is_finite());
        let push: Option<(PushHeader, &[&[f32]])> = match (it.gradient, &delta) {
            (GradientUse::LocalStep { .. }, delta) => {
                delta.as_ref().map(|delta| (delta.header(it.learning_rate), &delta.values[..]))
            }
            (GradientUse::ApplyOnArrival { .. } | GradientUse::JoinRound, _) => Some((header, &values)),
        };
        let compute = began.elapsed();
        let batch_share = f64::from(it.range.len) / f64::from(self.train.batch);
        let throttled = self.context.throttle.sleep(compute, batch_share);
        let load = self.load.read();
        let mut report = Iterated {
            is_overflow,
            compute_us: compute.as_micros() as u64,
            throttle_us: throttled.as_micros() as u64,
            pull_us: pulled.transfer_us,
            wait_us: pulled.waited_us,
            cpu_load: load.cpu,
            memory_load: load.memory,
            ..health.report(it)
        };
        if let Some((header, values)) = push {
            let values = if header.skip { &[] } else { values };
            let is_change = delta.is_some();
            if std::mem::replace(&mut self.pushes_changes, is_change) != is_change {
                self.shards.forget_residuals();
            }
            let push = StepPush { seq: it.seq, header, values };
            let rows = self.rows.as_mut().zip(self.data.as_mut());
            let pushed = push.send(&mut self.shards, &self.timer, &self.train, rows, next)?;
            (report.push_us, report.lead) = (pushed.took_us, pushed.lead);
            report.staleness = staleness(it.gradient, pulled.pushes, pushed.pushes);
        }
        if leads_nowhere {
            warn!(task = %it.task, "the change of a local round is not finite: its steps are skipped");
            report.skipped = true;
            self.local.skip_round();
        }
        Ok(Outcome::Iterated(report))
    }
}

/// Connects to the shards of a job, and agrees with them on how its values travel.
fn connect(
    context: &WorkerContext,
    run: &RunId,
    train: &TrainSpec,
    addresses: &Addresses,
    options: ClientOptions,
    cancel_token: CancelToken,
) -> Result<ShardSet, PsError> {
    let elements = train.model.layout.elements().unwrap_or(0);
    let at = SessionKey { run: run.clone(), incarnation: context.incarnation };
    let token = context.token.clone();
    let mut shards = ShardSet::connect_with(addresses, token, at, elements, options, cancel_token)?;
    let trained = train.model.layout.trained_elements();
    match Codec::of(train.compression) {
        Some(codec) => shards.compress_pushes(codec, trained),
        None => shards.compress_if_faster(trained),
    }
    shards.compress_pulls(Codec::of_pulls(train.pull_compression), trained);
    shards.set_tables(&train.model.layout);
    Ok(shards)
}

/// Pushes of others that changed the parameters between a pull and its own push, which is among `pushed`.
/// What joins a round, as a gradient or as the change of local steps, was computed on the version that all
/// others of the round have.
fn staleness(gradient: GradientUse, pulled: u64, pushed: u64) -> u64 {
    match gradient {
        GradientUse::ApplyOnArrival { .. } => pushed.saturating_sub(pulled + 1),
        GradientUse::JoinRound | GradientUse::LocalStep { .. } => 0,
    }
}

fn not_finite(
    worker: Incarnation,
    it: &Iteration,
    (what, value): (&'static str, f64),
    untrained: bool,
) -> WorkerError {
    WorkerError::NotFinite { what, value, task: it.task.clone(), worker, untrained }
}

/// The samples that were gathered last, as the training graph reads them.
fn selected_samples<'a>(
    loader: Option<&'a DataLoader>,
    rows: Option<&'a BatchRows>,
    train: &'a TrainSpec,
) -> Inputs<'a> {
    let mut samples = samples_of(loader, train);
    if let Some(rows) = rows {
        rows.replace(&mut samples);
    }
    samples
}

/// What was gathered last, as inputs of the graph. Nothing is copied.
pub(super) fn samples_of<'a>(loader: Option<&'a DataLoader>, train: &'a TrainSpec) -> Inputs<'a> {
    loader.into_iter().flat_map(|loader| loader.inputs(&train.model)).collect()
}
