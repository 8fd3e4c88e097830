//! Local steps that a device takes: parameters, buffers and the optimizer's slots stay there from step to
//! step.
//!
//! In: the parameters that a round begins with, the samples of each step. Out: the figures of each step, and
//! the parameters that a round ends with, which its last step gives. Slots go from round to round and never
//! leave the device.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use syncline_ps::optim::StepFactors;
use syncline_rpc::threads::lock;
use syncline_runtime::{ExecOptions, ReportedValue, Resident, Runtime, TensorView};
use syncline_scheduler::{
    ids::RunId,
    spec::{Optimizer, PolicyRule, StepSettings, TrainSpec},
};
use tracing::info;

use super::{
    super::{
        draws::DrawStream,
        error::WorkerError,
        job::WorkerContext,
        parameters::{Parameters, Tensor},
        replicas::Inputs,
        step_health::StepHealth,
    },
    step_graph::{FIGURE_COUNT, FIGURES, ROOT, StepKind, step_graph},
};

/// Jobs that are remembered, at most.
pub(super) const MAX_UNFIT: usize = 256;

/// Jobs at whose steps the device has failed. They are opened anew when their worker was dropped, or the job
/// has rested: what did not fit once is not tried again then. Clones share one list.
#[derive(Clone, Default)]
pub(in super::super) struct UnfitJobs(Arc<Mutex<VecDeque<RunId>>>);

impl UnfitJobs {
    pub(in super::super) fn holds(&self, run: &RunId) -> bool {
        lock(&self.0).iter().any(|unfit| unfit.is_of_same_job(run))
    }

    pub(in super::super) fn note(&self, run: &RunId) {
        if !self.holds(run) {
            let mut jobs = lock(&self.0);
            jobs.push_back(run.clone());
            if jobs.len() > MAX_UNFIT {
                jobs.pop_front();
            }
        }
    }
}

/// The steps of one job on one device.
pub(in super::super) struct StepsOnDevice {
    resident: Resident,
    optimizer: Optimizer,
    /// How parameters step.
    kinds: Vec<StepKind>,
    /// Kept values that are parameters and buffers; those behind are slots.
    tensors: usize,
    slots: usize,
    /// Steps that the slots have seen.
    steps: u64,
}

impl StepsOnDevice {
    /// Whether a device is to take the steps of a job: its policy is one of local rounds, its loss is not
    /// scaled by what this process chooses step by step, its batch is computed at once, and the device
    /// has not failed at one before.
    pub(in super::super) fn suits(
        context: &WorkerContext,
        run: &RunId,
        train: &TrainSpec,
        scaled: bool,
    ) -> bool {
        let in_rounds = matches!(train.policy.rule, PolicyRule::LocalSgd { .. } | PolicyRule::DiLoCo { .. });
        let wanted = context.resident_rounds && in_rounds;
        let reason = if scaled {
            "the loss of a float16 graph is scaled"
        } else if context.unfit.holds(run) {
            "the device could not take a step of this job before"
        } else if train.samples_at_once(context.max_batch).is_some_and(|most| most < train.batch) {
            "a batch is computed in pieces"
        } else {
            return wanted;
        };
        if wanted {
            let (job, device) = (&run.job, context.exec.device);
            info!(%job, %device, reason, "local steps are taken in the memory of this process");
        }
        false
    }

    /// Loads the step of a job; `None` if the device cannot, of which the log says why.
    pub(in super::super) fn open(
        runtime: &Runtime,
        exec: &ExecOptions,
        run: &RunId,
        train: &TrainSpec,
        train_onnx: &[u8],
        params: &Parameters,
        draws: DrawStream,
    ) -> Result<Option<Self>, WorkerError> {
        let (job, device) = (&run.job, exec.device);
        let own = draws.graph(train_onnx)?;
        let train_onnx = own.as_deref().unwrap_or(train_onnx);
        match Self::load(runtime, train_onnx, exec, params, train.optimizer, train.clip_norm) {
            Ok(loaded) => {
                info!(%job, %device, slots = loaded.slots, "local steps are taken on the device");
                Ok(Some(loaded))
            }
            // It has not so much memory, say, and may have enough for gradients.
            Err(WorkerError::Backend(reason)) => {
                info!(%job, %device, %reason, "local steps are taken in the memory of this process");
                Ok(None)
            }
            Err(other) => Err(other),
        }
    }

    /// Loads the step, and takes memory for what stays: twice for each value.
    pub(super) fn load(
        runtime: &Runtime,
        train_onnx: &[u8],
        exec: &ExecOptions,
        params: &Parameters,
        optimizer: Optimizer,
        clip_norm: Option<f32>,
    ) -> Result<Self, WorkerError> {
        let graph = step_graph(train_onnx, params, &optimizer, clip_norm)?;
        let tensors = params.tensors.len();
        let slots = graph.kept.len() - tensors;
        let figures = ReportedValue { output: FIGURES.to_owned(), shape: vec![FIGURE_COUNT] };
        let resident = Resident::new(runtime, &graph.onnx, exec, graph.kept, &[figures])?;
        let mut loaded = Self { resident, optimizer, kinds: graph.kinds, tensors, slots, steps: 0 };
        loaded.forget();
        Ok(loaded)
    }

    /// Takes the optimizer back to where it knows of no step.
    pub(super) fn forget(&mut self) {
        (self.tensors..self.tensors + self.slots).for_each(|slot| self.resident.clear(slot));
        self.steps = 0;
    }

    /// Begins anew with these parameters and buffers, in layout order; the slots stay.
    pub(super) fn begin<'a>(
        &mut self,
        values: impl Iterator<Item = (&'a str, TensorView<'a>)>,
    ) -> Result<(), WorkerError> {
        for (index, (_, value)) in values.enumerate() {
            self.resident.set(index, value)?;
        }
        Ok(())
    }

    /// Computes a step on `samples`, which [`StepsOnDevice::accept`] makes the state. `fetch`: the parameters
    /// that it leads to come here, those that it began with if it does not count.
    pub(in super::super) fn compute(
        &mut self,
        samples: &Inputs<'_>,
        learning_rate: f32,
        fetch: bool,
    ) -> Result<StepHealth, WorkerError> {
        let factors = |settings: &StepSettings| {
            let rule = settings.optimizer(&self.optimizer);
            StepFactors::of(&rule, self.steps + 1, settings.learning_rate(learning_rate))
        };
        let by_kind = self.kinds.iter().flat_map(|kind| {
            let StepFactors { rate, shrink, .. } = factors(&kind.settings);
            [(kind.rate.as_str(), [rate]), (kind.shrink.as_str(), [shrink])]
        });
        // It follows from the step and the betas alone.
        let root = (ROOT, [factors(&StepSettings::default()).root]);
        let numbers: Vec<(&str, [f32; 1])> = by_kind.chain([root]).collect();
        let numbers =
            numbers.iter().map(|(name, number)| (*name, TensorView::F32 { shape: &[], data: number }));
        let inputs: Inputs<'_> = samples.iter().copied().chain(numbers).collect();
        self.resident.run(&inputs, if fetch { self.tensors } else { 0 })?;
        match self.resident.reported(0)? {
            [loss, weight, gradients, buffers] => {
                Ok(StepHealth::of_squares(*loss, *weight, f64::from(*gradients), f64::from(*buffers)))
            }
            other => Err(WorkerError::Graph { what: format!("a step has {} figures", other.len()) }),
        }
    }

    /// The step that was computed last is taken.
    pub(super) fn accept(&mut self) {
        self.steps += 1;
        self.resident.commit();
    }

    /// Writes the parameters and buffers that the last step has fetched.
    pub(super) fn read(&self, params: &mut Parameters) -> Result<(), WorkerError> {
        for (index, Tensor { range, .. }) in params.tensors.iter().enumerate() {
            let place = &mut params.values[range.start as usize..range.end as usize];
            place.copy_from_slice(self.resident.fetched(index)?);
        }
        Ok(())
    }
}
