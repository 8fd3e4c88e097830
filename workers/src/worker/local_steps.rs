//! A round of steps on the worker's own copy of the parameters: one pull, several iterations, one push of the
//! whole change.
//!
//! The push is the parameters as they were pulled less the parameters as they became. To subtract its mean
//! averages the parameters over the workers (Stich, ICLR 2019, arXiv:1805.09767); an optimizer on the shards
//! may as well take it for a gradient (Douillard et al., 2023, arXiv:2311.08105). The local optimizer's state
//! stays here from round to round, and is forgotten where other iterations come between.
//! Buffers are pushed as they became, and averaged in either case.
//!
//! A report says that every shard has acknowledged an iteration, so a round's reports are held until its push
//! is. A round that is given up takes them with it: to the engine its iterations are lost, as if they had
//! never been begun.
//!
//! Costs one more copy of the parameters and the optimizer's state, from the first round on. A device that
//! takes the steps ([`StepsOnDevice`]) has state and parameters in its own memory until the round ends.

#[cfg(test)]
mod device_tests;
mod on_device;
mod optimizer_nodes;
mod step_graph;

use std::mem;

use syncline_onnx::TensorView;
use syncline_ps::{
    optim::{OptimizerState, gradient_norm, step},
    shard::PushHeader,
};
use syncline_scheduler::{core::Outcome, spec::Optimizer, sync::PushMode};
use tracing::info;

pub(super) use on_device::{StepsOnDevice, UnfitJobs};

use super::{
    WorkerError,
    iteration::Iteration,
    parameters::{Parameters, Tensor},
    replicas::Inputs,
    report::Finished,
    step_health::StepHealth,
};

/// The worker's side of local steps.
pub(super) struct LocalSteps {
    optimizer: Optimizer,
    /// What takes the steps, if it is not this process.
    device: Option<StepsOnDevice>,
    /// The device has failed at one of them.
    device_failed: bool,
    /// One for each trained tensor; empty until the first step, and where a device has them.
    slots: Vec<OptimizerState>,
    /// The parameters that the round began with; behind its end, what is pushed.
    base: Vec<f32>,
    round: Option<Round>,
    /// The iteration behind the last round that was closed.
    next_first: u64,
    /// Reports of the round's iterations.
    held: Vec<Finished>,
}

/// A round between its pull and its push.
struct Round {
    first: u64,
    /// Iterations behind us.
    steps: u32,
    /// Sum of the loss weights of the steps that were taken.
    weight: f64,
}

/// What a round has come to.
pub(super) struct Delta<'a> {
    /// Base less local, then the local buffers: in layout order, as one slice.
    pub values: [&'a [f32]; 1],
    /// Not finite exactly if some value is not.
    pub norm: f64,
    weight: f32,
    /// Iterations of the round.
    covers: u32,
}

impl LocalSteps {
    pub(super) fn new(optimizer: Optimizer, device: Option<StepsOnDevice>) -> Self {
        let (slots, base, held) = Default::default();
        Self { optimizer, device, device_failed: false, slots, base, round: None, next_first: 0, held }
    }

    /// Whether the device could not take a step: the job is better opened without it from here on.
    pub(super) fn device_failed(&self) -> bool {
        self.device_failed
    }

    /// Computes the step of an iteration, if it is one of a round and a device takes those; `None`: this
    /// process is to. A device that cannot do it takes no steps from here on, where the round has not
    /// moved yet; otherwise its parameters are lost with it.
    pub(super) fn compute(
        &mut self,
        it: &Iteration,
        samples: &Inputs<'_>,
    ) -> Result<Option<StepHealth>, WorkerError> {
        let Some(device) = self.device.as_mut().filter(|_| it.is_local_step()) else { return Ok(None) };
        let computed = device.compute(samples, it.learning_rate, it.ends_round());
        let has_moved = self.round.as_ref().is_some_and(|round| round.weight > 0.0);
        match computed {
            Err(WorkerError::Backend(reason)) if has_moved => {
                self.device_failed = true;
                Err(reason.into())
            }
            other => self.unless_device_failed(other),
        }
    }

    /// What a device gave, without anything of the round being there alone; `None` if it cannot, and is given
    /// up.
    fn unless_device_failed<T>(&mut self, given: Result<T, WorkerError>) -> Result<Option<T>, WorkerError> {
        match given {
            Ok(given) => Ok(Some(given)),
            Err(WorkerError::Backend(reason)) => {
                info!(%reason, "local steps are taken in the memory of this process");
                (self.device, self.device_failed) = (None, true);
                Ok(None)
            }
            Err(other) => Err(other),
        }
    }

    /// Tries a step from `values` where a device takes them, the way back included, so that memory is there
    /// for both. It counts nowhere. A device that cannot do it takes no steps from here on. Returns
    /// whether one has done it.
    pub(super) fn warm_up<'a>(
        &mut self,
        values: impl Iterator<Item = (&'a str, TensorView<'a>)>,
        samples: &Inputs<'_>,
    ) -> Result<bool, WorkerError> {
        let Some(device) = &mut self.device else { return Ok(false) };
        let warmed_up = device.begin(values).and_then(|()| device.compute(samples, 0.0, true));
        Ok(self.unless_device_failed(warmed_up)?.is_some())
    }

    pub(super) fn is_open(&self) -> bool {
        self.round.is_some()
    }

    /// Whether iteration `seq` begins the round `first..=last`. If not, it must be the next of the open one.
    pub(super) fn begins(&self, seq: u64, first: u64, last: u64) -> Result<bool, WorkerError> {
        if seq == first && seq <= last {
            return Ok(true);
        }
        let open = match &self.round {
            Some(round) if round.first == first && round.next() == seq && seq <= last => return Ok(false),
            Some(round) => format!("iteration {} of the round from {} comes next", round.next(), round.first),
            None => "no round is open".into(),
        };
        Err(WorkerError::OutOfRound { seq, first, last, open })
    }

    /// Opens a round on parameters that were just pulled. Where others than rounds were between, the
    /// optimizer begins anew: its state is of parameters that are long gone.
    pub(super) fn begin(&mut self, first: u64, params: &Parameters) -> Result<(), WorkerError> {
        self.abandon();
        if first != self.next_first {
            self.forget_optimizer();
        }
        if let Some(device) = &mut self.device {
            let begun = device.begin(params.inputs());
            self.unless_device_failed(begun)?;
        }
        self.base.clear();
        self.base.extend_from_slice(&params.values);
        self.round = Some(Round { first, steps: 0, weight: 0.0 });
        Ok(())
    }

    /// Takes the step of an iteration that belongs to a round, and ends the round with its last one. `pushed`
    /// as for [`LocalSteps::step`]; it is of no use to a device.
    pub(super) fn follow(
        &mut self,
        it: &Iteration,
        params: &mut Parameters,
        pushed: &[&[f32]],
        header: &PushHeader,
    ) -> Result<Option<Delta<'_>>, WorkerError> {
        if !it.is_local_step() {
            return Ok(None);
        }
        self.step(params, pushed, header);
        if !it.ends_round() {
            return Ok(None);
        }
        if let Some(device) = &self.device {
            device.read(params)?;
        }
        Ok(self.close(params))
    }

    /// Takes one step: what the shards would do with this push. `pushed`: a gradient for each trained tensor,
    /// then each buffer's new values.
    pub(super) fn step(&mut self, params: &mut Parameters, pushed: &[&[f32]], header: &PushHeader) {
        let Some(round) = &mut self.round else { return };
        round.steps += 1;
        if header.is_empty() {
            return;
        }
        round.weight += f64::from(header.weight);
        if let Some(device) = &mut self.device {
            return device.accept();
        }
        let Parameters { values, tensors, trained, settings } = params;
        let (gradients, buffers) = pushed.split_at(*trained);
        let (moved, kept) = tensors.split_at(*trained);
        if self.slots.is_empty() {
            let new = |tensor: &Tensor| OptimizerState::new(&self.optimizer, tensor.range.len() as usize);
            self.slots = moved.iter().map(new).collect();
        }
        let moved = moved.iter().zip(settings);
        for ((gradient, slots), (Tensor { range, .. }, settings)) in
            gradients.iter().zip(&mut self.slots).zip(moved)
        {
            let values = &mut values[range.start as usize..range.end as usize];
            let (rule, rate) =
                (settings.optimizer(&self.optimizer), settings.learning_rate(header.learning_rate));
            step(&rule, values, slots, gradient, rate, header.scale);
        }
        for (buffer, Tensor { range, .. }) in buffers.iter().zip(kept) {
            values[range.start as usize..range.end as usize].copy_from_slice(buffer);
        }
    }

    /// Ends the round with what it has come to; `None` if none is open. Its reports are held until
    /// [`LocalSteps::settle`].
    pub(super) fn close(&mut self, params: &Parameters) -> Option<Delta<'_>> {
        let round = self.round.take()?;
        self.next_first = round.next();
        let trained = params.trained_elements();
        for (base, value) in self.base[..trained].iter_mut().zip(&params.values) {
            *base -= value;
        }
        self.base[trained..].copy_from_slice(&params.values[trained..]);
        let norm = gradient_norm(&[&self.base]);
        if !norm.is_finite() {
            // What led there must not lead there again.
            self.forget_optimizer();
        }
        Some(Delta { values: [&self.base], norm, weight: round.weight as f32, covers: round.steps })
    }

    fn forget_optimizer(&mut self) {
        self.slots.clear();
        self.device.iter_mut().for_each(StepsOnDevice::forget);
    }

    /// Takes the report of a task that has ended and returns those that may be sent now.
    pub(super) fn settle(&mut self, done: Finished) -> Vec<Finished> {
        if !matches!(done.outcome, Outcome::Iterated(_)) {
            return vec![done];
        }
        self.held.push(done);
        if self.is_open() { Vec::new() } else { mem::take(&mut self.held) }
    }

    /// Nothing of the round that has just closed counts: its change was not finite.
    pub(super) fn skip_round(&mut self) {
        for done in &mut self.held {
            if let Outcome::Iterated(report) = &mut done.outcome {
                report.skipped = true;
            }
        }
    }

    /// Gives the open round up, with its reports.
    pub(super) fn abandon(&mut self) {
        self.round = None;
        self.held.clear();
    }
}

impl Delta<'_> {
    /// What travels in front of it. A round in which no step was taken, or that led nowhere, carries no
    /// weight.
    pub(super) fn header(&self, learning_rate: f32) -> PushHeader {
        PushHeader {
            learning_rate,
            weight: self.weight,
            scale: 1.0,
            skip: self.weight == 0.0 || !self.norm.is_finite(),
            mode: PushMode::Accumulate,
            covers: self.covers,
        }
    }
}

impl Round {
    fn next(&self) -> u64 {
        self.first + u64::from(self.steps)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use syncline_scheduler::{
        core::{EvaluationSums, Iterated, TaskKey},
        graph::TaskId,
        ids::{Generation, Incarnation, RunId},
        spec::{ElementRange, StepSettings},
    };

    use super::*;

    const SGD: Optimizer = Optimizer::Sgd { weight_decay: 0.0 };
    const STEP: PushHeader = PushHeader {
        learning_rate: 0.5,
        weight: 4.0,
        scale: 1.0,
        skip: false,
        mode: PushMode::Accumulate,
        covers: 1,
    };
    const SKIPPED: PushHeader = PushHeader { skip: true, weight: 0.0, ..STEP };

    /// Two tensors: (8, 8) and (8).
    fn params() -> Parameters {
        let tensor = |name: &str, start, end| {
            let range = ElementRange { start, end };
            Tensor { name: name.to_owned(), shape: vec![], range }
        };
        let tensors = vec![tensor("w", 0, 2), tensor("b", 2, 3)];
        Parameters { values: vec![8.0; 3], tensors, trained: 2, settings: vec![StepSettings::default(); 2] }
    }

    fn report(seq: u64) -> Finished {
        let task = TaskId::Iteration { worker: Incarnation(1), seq };
        let outcome = Outcome::Iterated(Iterated::default());
        let run = RunId { job: "digits".parse().unwrap(), generation: Generation(1) };
        let key = TaskKey { run, task, attempt: 1 };
        Finished { key, ended: Instant::now(), outcome }
    }

    #[test]
    fn a_rounds_change_is_the_way_back_from_where_its_steps_led() {
        let (mut local, mut params) = (LocalSteps::new(SGD, None), params());
        local.begin(5, &params).unwrap();
        local.step(&mut params, &[&[2.0, 0.0], &[4.0]], &STEP);
        local.step(&mut params, &[&[f32::NAN; 2], &[f32::NAN]], &SKIPPED);
        local.step(&mut params, &[&[2.0, 0.0], &[4.0]], &PushHeader { scale: 0.5, ..STEP });
        assert_eq!(params.values, [6.5, 8.0, 5.0]);
        let change = local.close(&params).unwrap();
        assert_eq!(change.values, [&[1.5, 0.0, 3.0][..]]);
        let want = PushHeader { learning_rate: 0.25, weight: 8.0, covers: 3, ..STEP };
        assert_eq!(change.header(0.25), want);
        assert!(local.close(&params).is_none(), "it is over");
    }

    #[test]
    fn buffers_take_each_steps_values_and_are_pushed_as_they_became() {
        let (mut local, mut params) = (LocalSteps::new(SGD, None), params());
        params.trained = 1;
        local.begin(1, &params).unwrap();
        local.step(&mut params, &[&[2.0, 0.0], &[5.0]], &STEP);
        local.step(&mut params, &[&[f32::NAN; 2], &[f32::NAN]], &SKIPPED);
        local.step(&mut params, &[&[2.0, 0.0], &[4.0]], &PushHeader { scale: 0.5, ..STEP });
        assert_eq!(params.values, [6.5, 8.0, 4.0]);
        assert_eq!(local.close(&params).unwrap().values, [&[1.5, 0.0, 4.0][..]]);
    }

    #[test]
    fn each_tensor_steps_with_its_settings() {
        let (mut local, mut params) = (LocalSteps::new(Optimizer::Sgd { weight_decay: 0.5 }, None), params());
        params.settings[0].learning_rate_factor = 0.25;
        params.settings[1].weight_decay = Some(0.0);
        local.begin(1, &params).unwrap();
        local.step(&mut params, &[&[4.0, 0.0], &[4.0]], &STEP);
        assert_eq!(params.values, [7.0, 7.5, 6.0]);
    }

    #[test]
    fn a_round_without_a_step_or_that_led_nowhere_carries_no_weight() {
        let (mut local, mut params) = (LocalSteps::new(SGD, None), params());
        local.begin(1, &params).unwrap();
        local.step(&mut params, &[&[1.0, 1.0], &[1.0]], &SKIPPED);
        let header = local.close(&params).unwrap().header(1.0);
        assert_eq!((header.skip, header.covers, header.fault()), (true, 1, None));
        local.begin(2, &params).unwrap();
        for _ in 0..2 {
            local.step(&mut params, &[&[f32::MAX, 0.0], &[0.0]], &PushHeader { learning_rate: 1.0, ..STEP });
        }
        let change = local.close(&params).unwrap();
        assert!(!change.norm.is_finite() && change.header(1.0).skip);
    }

    #[test]
    fn optimizer_state_is_kept_from_round_to_round_unless_it_led_nowhere() {
        let momentum = Optimizer::Momentum { momentum: 0.5, nesterov: false, weight_decay: 0.0 };
        let (mut local, mut params) = (LocalSteps::new(momentum, None), params());
        for seq in 1..=2 {
            local.begin(seq, &params).unwrap();
            local.step(&mut params, &[&[1.0, f32::MAX], &[0.0]], &STEP);
            let change = local.close(&params).unwrap();
            // The velocity of the first round is in the second one's step.
            assert_eq!(change.values[0][0], [0.5, 0.75][seq as usize - 1]);
            assert_eq!(change.norm.is_finite(), seq == 1);
        }
        params.values = vec![8.0; 3];
        local.begin(3, &params).unwrap();
        local.step(&mut params, &[&[1.0, 1.0], &[0.0]], &STEP);
        assert_eq!(local.close(&params).unwrap().values[0], [0.5, 0.5, 0.0]);
    }

    #[test]
    fn optimizer_state_of_before_other_iterations_is_forgotten_and_that_of_before_a_round_that_was_given_up_is_not()
     {
        let momentum = Optimizer::Momentum { momentum: 0.5, nesterov: false, weight_decay: 0.0 };
        #[rustfmt::skip]
        let cases = [
            // the round after the one of 4 alone, and how far its step of 0.5 x gradient goes
            ("the next one",         5, 0.75),
            ("after two gradients",  7, 0.5),
        ];
        for (name, first, want) in cases {
            let (mut local, mut params) = (LocalSteps::new(momentum, None), params());
            local.begin(4, &params).unwrap();
            local.step(&mut params, &[&[1.0; 2], &[1.0]], &STEP);
            local.close(&params).unwrap();
            local.begin(first, &params).unwrap();
            local.abandon();
            local.begin(first, &params).unwrap();
            local.step(&mut params, &[&[1.0; 2], &[1.0]], &STEP);
            assert_eq!(local.close(&params).unwrap().values[0], [want; 3], "{name}");
        }
    }

    #[test]
    fn an_iteration_begins_a_round_or_is_the_next_of_the_open_one() {
        let (mut local, mut params) = (LocalSteps::new(SGD, None), params());
        assert!(local.begins(5, 5, 8).unwrap());
        assert_eq!(local.begins(6, 5, 8).unwrap_err().code(), "E460");
        local.begin(5, &params).unwrap();
        local.step(&mut params, &[&[0.0; 2], &[0.0]], &STEP);
        #[rustfmt::skip]
        let cases = [
            // seq, first, last, begins
            (6, 5, 8, Some(false)),
            (6, 5, 6, Some(false)), // the end may come nearer
            (5, 5, 8, Some(true)),
            (9, 9, 9, Some(true)),
            (7, 5, 8, None),        // a gap
            (6, 4, 8, None),        // another round
            (6, 5, 5, None),        // behind the end
            (9, 9, 8, None),
        ];
        for (seq, first, last, want) in cases {
            assert_eq!(local.begins(seq, first, last).ok(), want, "{seq} of {first}..={last}");
        }
    }

    #[test]
    fn reports_are_held_until_the_round_is_over_and_go_with_it_if_it_is_given_up() {
        let (mut local, mut params) = (LocalSteps::new(SGD, None), params());
        let seqs =
            |reports: Vec<Finished>| reports.iter().map(|r| r.key.task.to_string()).collect::<Vec<_>>();
        assert_eq!(seqs(local.settle(report(1))), ["it/w1/1"], "no round is open");
        local.begin(2, &params).unwrap();
        local.step(&mut params, &[&[0.0; 2], &[0.0]], &STEP);
        assert!(local.settle(report(2)).is_empty());
        let test = Outcome::Evaluated(EvaluationSums::default());
        assert_eq!(local.settle(Finished { outcome: test, ..report(9) }).len(), 1, "stands for itself");
        local.step(&mut params, &[&[0.0; 2], &[0.0]], &STEP);
        local.close(&params);
        assert_eq!(seqs(local.settle(report(3))), ["it/w1/2", "it/w1/3"]);
        local.begin(4, &params).unwrap();
        assert!(local.settle(report(4)).is_empty());
        local.abandon();
        assert_eq!(seqs(local.settle(report(5))), ["it/w1/5"]);
    }
}
