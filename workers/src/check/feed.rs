//! Random numbers for the inputs of a training graph.

use std::collections::BTreeMap;

use syncline_autodiff::{Io, Param, TrainingGraph, rows_of_tables};
use syncline_onnx::proto::{DimensionValue, TypeProto, ValueInfoProto};
use syncline_onnx::{Dim, ElementType, ModelProto, OnnxError, SplitMix64, TensorType};
use syncline_runtime::TensorView;

use super::{CheckError, CheckOptions};
use crate::functions::{Element, Tensor};

/// Size of an open axis that nobody has named.
pub(super) const DEFAULT_SIZE: usize = 4;
/// Most elements of one random input.
const MOST_ELEMENTS: usize = 1 << 26;

/// A fed tensor; what is no integer and no truth value is float64.
pub(super) struct Fed {
    name: String,
    tensor: Tensor,
}

impl Fed {
    fn numbers_of(param: &Param, numbers: Vec<f64>) -> Result<Self, CheckError> {
        Self::new(&param.name, param.shape.clone(), numbers)
    }

    fn new<T: Element>(name: &str, shape: Vec<usize>, numbers: Vec<T>) -> Result<Self, CheckError> {
        let tensor = Tensor::new(shape, numbers).map_err(|error| refused(name, error))?;
        Ok(Self { name: name.to_owned(), tensor })
    }

    pub(super) fn numbers(&self) -> &[f64] {
        self.tensor.values().unwrap_or_default()
    }

    /// As many as before.
    pub(super) fn set_numbers(&mut self, numbers: Vec<f64>) {
        let shape = self.tensor.shape();
        self.tensor = Tensor::new(shape, numbers).expect("numbers are moved, none comes or goes");
    }
}

/// What is fed, in float64.
pub(super) fn views(fed: &[Fed]) -> Vec<(&str, TensorView<'_>)> {
    fed.iter().map(|fed| (fed.name.as_str(), fed.tensor.view())).collect()
}

/// What is fed, in float32.
pub(super) struct Narrow<'a> {
    fed: &'a [Fed],
    numbers: Vec<Vec<f32>>,
}

pub(super) fn narrow(fed: &[Fed]) -> Narrow<'_> {
    let numbers = fed.iter().map(|fed| fed.numbers().iter().map(|&x| x as f32).collect()).collect();
    Narrow { fed, numbers }
}

impl Narrow<'_> {
    pub(super) fn views(&self) -> Vec<(&str, TensorView<'_>)> {
        self.fed
            .iter()
            .zip(&self.numbers)
            .map(|(fed, data)| {
                let view = match fed.tensor.view() {
                    TensorView::F64 { shape, .. } => TensorView::F32 { shape, data },
                    other => other,
                };
                (fed.name.as_str(), view)
            })
            .collect()
    }
}

/// Gives every open axis of the inputs a size: the first one is the batch, others are `axis` unless the
/// options name them.
pub(super) fn fix_dims(model: &mut ModelProto, options: &CheckOptions, axis: usize) {
    let Some(graph) = &mut model.graph else { return };
    for input in &mut graph.input {
        let Some(TypeProto { tensor_type: Some(tensor), .. }) = &mut input.r#type else { continue };
        let dims = tensor.shape.iter_mut().flat_map(|shape| &mut shape.dim);
        for (position, dim) in dims.enumerate() {
            let open = if position == 0 { options.batch } else { axis };
            let size = match &dim.value {
                Some(DimensionValue::Value(size)) if *size >= 0 => continue,
                Some(DimensionValue::Param(name)) => options.dims.get(name).copied().unwrap_or(open),
                _ => open,
            };
            dim.value = Some(DimensionValue::Value(i64::try_from(size).unwrap_or(i64::MAX)));
        }
    }
}

/// The shape of a sample for each input of a model.
pub(super) fn sample_shapes(
    forward: &[u8],
    options: &CheckOptions,
) -> Result<BTreeMap<String, Vec<usize>>, OnnxError> {
    let mut model = syncline_onnx::parse(forward)?;
    fix_dims(&mut model, options, DEFAULT_SIZE);
    let shape = |input: &ValueInfoProto| {
        let dims = TensorType::from_value_info(input)?.dims;
        Some((input.name.clone(), dims.iter().skip(1).map(Dim::fixed).collect::<Option<_>>()?))
    };
    Ok(model.graph.iter().flat_map(|graph| &graph.input).filter_map(shape).collect())
}

/// The graph with a size for every open axis of what is fed.
pub(super) fn of_fixed_size(
    graph: &TrainingGraph,
    options: &CheckOptions,
    axis: usize,
) -> Result<TrainingGraph, CheckError> {
    let mut model = syncline_onnx::parse(&graph.train_onnx)?;
    fix_dims(&mut model, options, axis);
    let mut fixed = graph.clone();
    let inputs = model.graph.as_ref().map(|graph| graph.input.as_slice()).unwrap_or_default();
    for io in fixed.data_inputs.iter_mut().chain(&mut fixed.label) {
        let input = inputs.iter().find(|input| input.name == io.name);
        if let Some(ty) = input.and_then(TensorType::from_value_info) {
            io.dims = ty.dims;
        }
    }
    fixed.train_onnx = model.to_bytes();
    Ok(fixed)
}

/// How far a parameter is moved away from its first value, relative to its size.
const SHAKE: f64 = 0.02;
/// What the size of a parameter is taken to be besides: those that begin at zero are moved as well.
const LEAST_SIZE: f64 = 0.1;

/// Data inputs, label, parameters and running statistics, in this order.
///
/// Parameters are shaken a little: first values are made by rules, and some put the model right upon a kink
/// (x + 0 behind a Relu, where a block begins with a zero), at which a loss has no gradient to compare with.
pub(super) fn draw(graph: &TrainingGraph, random: &mut SplitMix64) -> Result<Vec<Fed>, CheckError> {
    let inner = syncline_onnx::parse(&graph.train_onnx)?.graph.unwrap_or_default();
    let mut fed = Vec::new();
    for io in &graph.data_inputs {
        let rows = rows_of_tables(&inner, graph.parameter_shapes(), &io.name, &io.dims);
        let bound = rows.into_iter().flatten().min().unwrap_or(2);
        fed.push(one(io, bound, random, SplitMix64::normal)?);
    }
    if let Some(label) = &graph.label {
        fed.push(one(label, graph.classes.unwrap_or(2), random, SplitMix64::uniform)?);
    }
    // A ready-made graph may come without values, and from zeros some gradients are zero whatever the graph
    // does.
    let blank = graph.params.iter().flat_map(|param| &param.initial).all(|&number| number == 0.0);
    for param in &graph.params {
        let squares: f64 = param.initial.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
        let size = (squares / param.initial.len().max(1) as f64).sqrt() + LEAST_SIZE;
        let width = if blank { 0.3 } else { SHAKE * size };
        let numbers =
            param.initial.iter().map(|&x| f64::from((f64::from(x) + width * random.spread()) as f32));
        fed.push(Fed::numbers_of(param, numbers.collect())?);
    }
    for param in &graph.state {
        fed.push(Fed::numbers_of(param, param.initial.iter().copied().map(f64::from).collect())?);
    }
    Ok(fed)
}

fn one(
    io: &Io,
    bound: usize,
    random: &mut SplitMix64,
    number: fn(&mut SplitMix64) -> f64,
) -> Result<Fed, CheckError> {
    let shape: Option<Vec<usize>> = io.dims.iter().map(Dim::fixed).collect();
    let shape = shape.ok_or_else(|| refused(&io.name, "the size of an axis is not known"))?;
    let count = shape.iter().try_fold(1usize, |count, &size| count.checked_mul(size));
    let count = count
        .filter(|&count| count <= MOST_ELEMENTS)
        .ok_or_else(|| refused(&io.name, "it is too large for a check"))?;
    match io.element {
        // Rounded, so that both precisions see the same numbers.
        ElementType::F32 => {
            Fed::new(&io.name, shape, (0..count).map(|_| f64::from(number(random) as f32)).collect())
        }
        ElementType::I64 => {
            let bound = bound.max(1) as u64;
            Fed::new(&io.name, shape, (0..count).map(|_| (random.next_u64() % bound) as i64).collect())
        }
        ElementType::I32 => {
            let bound = i32::try_from(bound.max(1)).unwrap_or(i32::MAX) as u64;
            Fed::new(&io.name, shape, (0..count).map(|_| (random.next_u64() % bound) as i32).collect())
        }
        ElementType::Bool => {
            Fed::new(&io.name, shape, (0..count).map(|_| random.next_u64().is_multiple_of(2)).collect())
        }
        other => {
            let reason = format!("{other} inputs cannot be drawn, only float32, int64, int32 and bool");
            Err(refused(&io.name, reason))
        }
    }
}

fn refused(name: &str, reason: impl ToString) -> CheckError {
    CheckError::CheckInput { name: name.to_owned(), reason: reason.to_string() }
}

/// Whether the sizes of the label's axes follow from those of the data inputs.
pub(super) fn label_follows(graph: &TrainingGraph) -> bool {
    let named = |dim: &Dim| graph.data_inputs.iter().any(|input| input.dims.contains(dim));
    let dims = graph.label.iter().flat_map(|label| label.dims.iter().skip(1));
    dims.into_iter().all(|dim| dim.fixed().is_some() || (*dim != Dim::Unknown && named(dim)))
}
