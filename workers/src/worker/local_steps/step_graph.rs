//! The graph of a local step: a training graph with the optimizer behind it.
//!
//! In: loss, gradients and the buffers' next values, as a training graph gives them. Out: the next values of
//! parameters, buffers and optimizer slots, and the figures of which the worker judges a step. Clipping,
//! weight decay, momentum and Adam are those of [`syncline_ps::optim::step`], in the same order of
//! operations; what follows from the number of a step alone is fed.
//!
//! | name | what |
//! |---|---|
//! | each parameter and buffer, under its own name | input |
//! | [`RATE`], [`ROOT`], [`SHRINK`] | inputs, one number each, where the optimizer needs them: [`StepFactors`](syncline_ps::optim::StepFactors); rate and shrink for each [`StepKind`] |
//! | `syncline/slot1/NAME`, `syncline/slot2/NAME` | inputs, velocity or moments of a parameter |
//! | `syncline/next/...` of all of these | outputs, their next values |
//! | [`FIGURES`] | output: loss, its weight, and the sums of the squares of all gradients and of all buffers' next values |
//!
//! A step that counts nowhere (a figure is not finite, or its loss has no weight) gives parameters and
//! buffers as they were, so that they can be fetched from it; its slots are of no use then, and are not to be
//! taken over.
//!
//! Squares are added in float32, in the order of the device: a gradient whose norm is above 1.8e19 counts as
//! not finite.

use syncline_autodiff::{GRAD_SUFFIX, LOSS, LOSS_WEIGHT, NEXT_SUFFIX};
use syncline_onnx::{
    self as onnx, ElementType, Graph, TensorType, ValueId, attr_int,
    proto::{TensorProto, ValueInfoProto},
};
use syncline_runtime::KeptValue;
use syncline_scheduler::spec::{Optimizer, StepSettings};

use super::{
    super::{
        error::WorkerError,
        parameters::{Parameters, Tensor},
    },
    optimizer_nodes::Slot,
};

/// Input: what the direction of the step is multiplied by.
pub(super) const RATE: &str = "syncline/rate";
/// Input: bias correction of Adam's second moment.
pub(super) const ROOT: &str = "syncline/root";
/// Input: what decoupled weight decay leaves of a weight.
pub(super) const SHRINK: &str = "syncline/shrink";
/// Output: four numbers, see the module's text.
pub(super) const FIGURES: &str = "syncline/figures";

/// How many numbers these are.
pub(super) const FIGURE_COUNT: usize = 4;
/// What the names begin with that are made here.
const PREFIX: &str = "syncline/";

/// A step as one graph.
pub(super) struct StepGraph {
    pub onnx: Vec<u8>,
    /// All tensors of the layout, then the slots: those of the first moment in the order of the parameters,
    /// then those of the second.
    pub kept: Vec<KeptValue>,
    /// How its parameters step.
    pub kinds: Vec<StepKind>,
}

/// Parameters that step alike, and what is fed for them.
pub(super) struct StepKind {
    pub settings: StepSettings,
    /// Name of the input.
    pub rate: String,
    /// The same.
    pub shrink: String,
}

impl StepKind {
    /// All kinds there are, of which the first has the plain names, and that of each trained tensor.
    fn all(params: &Parameters) -> (Vec<Self>, Vec<usize>) {
        let mut kinds: Vec<Self> = Vec::new();
        let of_each = params.settings.iter().map(|settings| {
            let known = kinds.iter().position(|kind| kind.settings == *settings);
            known.unwrap_or_else(|| {
                kinds.push(Self::new(*settings, kinds.len()));
                kinds.len() - 1
            })
        });
        let of_each = of_each.collect();
        (kinds, of_each)
    }

    fn new(settings: StepSettings, number: usize) -> Self {
        let [rate, shrink] = [RATE, SHRINK].map(|name| match number {
            0 => name.to_owned(),
            number => format!("{name}/{number}"),
        });
        Self { settings, rate, shrink }
    }
}

/// The graph of a step as one grows it.
pub(super) struct Writer {
    pub graph: Graph,
    /// The outputs of the training graph.
    given: Vec<ValueInfoProto>,
}

/// Puts the optimizer behind a training graph that gives gradients of `params`.
pub(super) fn step_graph(
    train_onnx: &[u8],
    params: &Parameters,
    optimizer: &Optimizer,
    clip_norm: Option<f32>,
) -> Result<StepGraph, WorkerError> {
    let mut model = onnx::parse(train_onnx)?;
    let mut forward = model.graph.take().unwrap_or_default();
    let given = std::mem::take(&mut forward.output);
    let mut writer = Writer { graph: Graph::from(forward), given };
    let (trained, buffers) = params.tensors.split_at(params.trained);
    let gradients = writer.all_given(trained, GRAD_SUFFIX)?;
    let updates = writer.all_given(buffers, NEXT_SUFFIX)?;
    let (counts, squares) = writer.figures(&gradients, &updates)?;
    let scale = clip_norm.map(|clip| writer.clip_scale(clip, squares));

    let mut kept: Vec<KeptValue> =
        params.tensors.iter().map(|Tensor { name, shape, .. }| kept_value(name, name, shape)).collect();
    for moment in 1..=optimizer.moments() {
        for Tensor { name, shape, .. } in trained {
            let slot = format!("slot{moment}/{name}");
            kept.push(kept_value(&format!("{PREFIX}{slot}"), &slot, shape));
        }
    }
    let (kinds, kind_of) = StepKind::all(params);
    let (tensors, slots) = kept.split_at(params.tensors.len());
    for slot in slots {
        writer.declare_input(&slot.input, &slot.shape);
    }
    for (index, ((gradient, value), kind)) in gradients.iter().zip(tensors).zip(kind_of).enumerate() {
        let own = slots.iter().skip(index).step_by(trained.len());
        let own: Vec<Slot> = own.map(|slot| writer.slot(slot)).collect();
        let before = writer.graph.intern(&value.input);
        let gradient = scale.map_or(*gradient, |scale| writer.op("Mul", &[*gradient, scale]));
        let moved = writer.moved(optimizer, &kinds[kind], before, gradient, &own);
        writer.choose(counts, moved, value);
    }
    for (update, value) in updates.iter().zip(&tensors[trained.len()..]) {
        writer.choose(counts, *update, value);
    }
    kept.iter().for_each(|value| writer.declare_output(&value.output, &value.shape));
    writer.declare_output(FIGURES, &[FIGURE_COUNT]);
    model.graph = Some(writer.graph.remove_dead_and_inputs());
    Ok(StepGraph { onnx: model.to_bytes(), kept, kinds })
}

/// A value that stays, and the name of what it becomes.
fn kept_value(input: &str, called: &str, shape: &[usize]) -> KeptValue {
    let output = format!("{PREFIX}next/{called}");
    KeptValue { input: input.to_owned(), output, shape: shape.to_vec() }
}

impl Writer {
    pub(super) fn op(&mut self, op: &str, inputs: &[ValueId]) -> ValueId {
        self.graph.op(op, inputs, &[])
    }

    pub(super) fn number(&mut self, number: f32) -> ValueId {
        self.graph.add_constant(TensorProto::from_f32("", &[], &[number]))
    }

    /// An input that is one number.
    pub(super) fn fed(&mut self, name: &str) -> ValueId {
        self.graph.value(name).unwrap_or_else(|| self.declare_input(name, &[]))
    }

    fn declare_input(&mut self, name: &str, shape: &[usize]) -> ValueId {
        self.graph.push_input(floats(shape).to_value_info(name))
    }

    fn declare_output(&mut self, name: &str, shape: &[usize]) {
        self.graph.push_output(floats(shape).to_value_info(name));
    }

    fn slot(&mut self, value: &KeptValue) -> Slot {
        let [before, after] = [&value.input, &value.output].map(|name| self.graph.intern(name));
        Slot { before, after }
    }

    /// What the training graph gives for each of these tensors.
    fn all_given(&mut self, tensors: &[Tensor], suffix: &str) -> Result<Vec<ValueId>, WorkerError> {
        let given = |Tensor { name, shape, .. }: &Tensor| self.given(&format!("{name}{suffix}"), shape);
        tensors.iter().map(given).collect()
    }

    /// An output of the training graph, in the shape of its parameter: broadcasting would make more of
    /// another one.
    fn given(&mut self, name: &str, shape: &[usize]) -> Result<ValueId, WorkerError> {
        let output = self.given.iter().find(|output| output.name == name);
        let output = output.ok_or_else(|| missing(name))?;
        let declared = TensorType::from_value_info(output).and_then(|ty| ty.fixed_shape());
        let value = self.graph.value(name).ok_or_else(|| missing(name))?;
        if declared.as_deref() == Some(shape) {
            return Ok(value);
        }
        let dims: Vec<i64> = shape.iter().map(|&size| size as i64).collect();
        Ok(self.graph.reshape(value, &dims))
    }

    /// Makes the figures. Returns whether the step counts, and the sum of the squares of the gradients.
    fn figures(
        &mut self,
        gradients: &[ValueId],
        updates: &[ValueId],
    ) -> Result<(ValueId, ValueId), WorkerError> {
        let loss = self.graph.value(LOSS).ok_or_else(|| missing(LOSS))?;
        let weight = self.graph.value(LOSS_WEIGHT).ok_or_else(|| missing(LOSS_WEIGHT))?;
        let [loss, weight] = [loss, weight].map(|value| self.sum(value));
        let [squares, of_buffers] = [gradients, updates].map(|values| self.squares(values));
        let all = [loss, weight, squares, of_buffers].map(|figure| self.graph.reshape(figure, &[1]));
        let figures = self.graph.intern(FIGURES);
        self.graph.op_as(figures, "", "Concat", &all, &[attr_int("axis", 0)]);
        // 0 times what is not finite is no number, and no comparison with that holds.
        let zero = self.number(0.0);
        let spoiled = self.op("Mul", &[figures, zero]);
        let (spoiled, one) = (self.sum(spoiled), self.number(1.0));
        let finite = self.op("Less", &[spoiled, one]);
        let weight = self.op("Abs", &[weight]);
        let weighs = self.op("Greater", &[weight, zero]);
        Ok((self.op("And", &[finite, weighs]), squares))
    }

    /// The sum of the squares of several tensors.
    fn squares(&mut self, tensors: &[ValueId]) -> ValueId {
        let square = |tensor: &ValueId| {
            let squared = self.op("Mul", &[*tensor, *tensor]);
            self.sum(squared)
        };
        let each: Vec<ValueId> = tensors.iter().map(square).collect();
        if each.is_empty() { self.number(0.0) } else { self.op("Sum", &each) }
    }

    /// The sum of a tensor, without axes.
    fn sum(&mut self, tensor: ValueId) -> ValueId {
        self.graph.op("ReduceSum", &[tensor], &[attr_int("keepdims", 0)])
    }

    /// What a gradient is multiplied by so that the norm of all is at most `clip`.
    fn clip_scale(&mut self, clip: f32, squares: ValueId) -> ValueId {
        let (clip, one) = (self.number(clip), self.number(1.0));
        let norm = self.op("Sqrt", &[squares]);
        let scale = self.op("Div", &[clip, norm]);
        self.op("Min", &[scale, one])
    }

    /// Gives a kept value its next one: `computed` if the step counts, else what it was.
    fn choose(&mut self, counts: ValueId, computed: ValueId, value: &KeptValue) {
        let [before, next] = [&value.input, &value.output].map(|name| self.graph.intern(name));
        self.graph.op_as(next, "", "Where", &[counts, computed, before], &[]);
    }
}

fn floats(shape: &[usize]) -> TensorType {
    TensorType::new(ElementType::F32, shape.iter().map(|&size| size.into()).collect())
}

fn missing(output: &str) -> WorkerError {
    WorkerError::Graph { what: format!("it has no output `{output}`") }
}
