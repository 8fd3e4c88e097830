//! From a forward model to a training graph.

mod checks;

use std::collections::{HashMap, HashSet};

use syncline_onnx::proto::{GraphProto, ModelProto};
use syncline_onnx::{Compiler, Dim, ElementType, TensorType, Types, check_loads};

use crate::backward::backward;
use crate::emitter::Emitter;
use crate::error::AutodiffError;
use crate::forward::{Forward, NEXT_SUFFIX, Statistic, evaluation_form, never_empty, training_form};
use crate::loss::{Loss, LossAt, LossValues, scores, sigmoid_of};
use crate::options::DeriveOptions;
use crate::precision::{Precision, lower, scale_loss, unscale, write_bf16};
use crate::recompute::{NOMINAL_AXIS, Saving, recompute};
use crate::sample_mixing::mixed_samples;
use crate::sizes::sizes;
use crate::training_graph::{Io, Param, TrainingGraph};
use crate::{CORRECT, GRAD_SUFFIX, LOSS, LOSS_SCALE, LOSS_WEIGHT, PERPLEXITY, PREDICTED, is_correct_top};
use checks::{check_names, check_results};

/// Derives the training graph of a forward model.
///
/// `forward` is a `.onnx` file with float32 weights, operator set 13 or newer. The result has been loaded
/// once, so that a model that cannot be trained is refused here and not by a worker. Milliseconds for small
/// models; in proportion to nodes and parameters, but for what the compiler does.
pub fn derive(
    compiler: &dyn Compiler,
    forward: &[u8],
    loss: Loss,
    options: &DeriveOptions,
) -> Result<TrainingGraph, AutodiffError> {
    let mut forward = Forward::prepare(compiler, forward, options)?;
    let mut output = loss_output(&forward, options)?;
    if loss == Loss::Output && output == LOSS {
        // As exporters call it; in a training graph that is the mean.
        MODEL_LOSS.clone_into(&mut output);
        forward.rename(LOSS, MODEL_LOSS);
    }
    let output = scores(&mut forward, &output, loss, &options.loss)?;
    let scores_by_sigmoid = sigmoid_of(&forward.graph, &output).filter(|_| loss == Loss::SoftmaxCrossEntropy);
    let output_type = forward.type_of(&output);
    let first_input = forward.data_inputs.first().map(String::as_str);
    let mixed_samples = mixed_samples(&forward.graph, &forward.types, first_input);
    let at = LossAt { loss, options: &options.loss, output: &output, ty: &output_type, first_input };
    let evaluation = evaluation_form(&forward.graph);

    let mut training = differentiate(&forward, &evaluation, &at, options)?;
    let (saving, mut types) = transform(compiler, &mut training, &forward, options)?;
    let Training { model, values, unreached, .. } = training;
    let train_onnx = model.to_bytes();
    let mut evaluation = evaluate(&forward, &evaluation, &at, options)?;
    // The training graph, of which the compiler tells the types, has no such output.
    if let Some(predicted) = values.predicted {
        types.insert(PREDICTED.to_owned(), TensorType::new(ElementType::I64, predicted.dims));
    }
    declare_outputs(&mut evaluation, &forward, &types);
    let eval_onnx = evaluation.to_bytes();

    let io = |name: &String| Io::new(name, forward.type_of(name));
    let metrics = || values.metrics.iter().map(|(name, _)| name.as_str());
    Ok(TrainingGraph {
        train_onnx,
        eval_onnx,
        data_inputs: forward.data_inputs.iter().map(io).collect(),
        label: values.label.map(|label| Io::new(&options.label, label)),
        forward_outputs: tensor_outputs(&forward).map(io).collect(),
        saving,
        row_tables: forward.row_tables.clone(),
        unreached,
        has_correct: metrics().any(|name| name == CORRECT),
        has_correct_top: metrics().any(is_correct_top),
        has_perplexity: metrics().any(|name| name == PERPLEXITY),
        classes: if loss == Loss::SoftmaxCrossEntropy { Some(at.classes()?.1) } else { None },
        loss_at: Some(output),
        scores_by_sigmoid,
        mixed_samples,
        params: forward.params,
        state: forward.state,
    })
}

/// The output of a model that has called its own loss as training graphs call the mean of it.
const MODEL_LOSS: &str = "loss/model";

/// A model with loss and gradients.
struct Training {
    model: ModelProto,
    values: LossValues,
    /// The gradient that the backward pass begins with.
    cotangent: String,
    unreached: Vec<String>,
}

/// Writes the loss behind the forward graph, and the backward pass behind that, in float32.
fn differentiate(
    forward: &Forward,
    evaluation: &GraphProto,
    at: &LossAt<'_>,
    options: &DeriveOptions,
) -> Result<Training, AutodiffError> {
    let mut types = forward.types.clone();
    let (graph, statistics) = match options.eval_mode.is_whole() {
        true => (evaluation.clone(), Vec::new()),
        false => training_form(&forward.graph, &mut types, &forward.evaluated, &forward.data_inputs)?,
    };
    let mut emitter = Emitter::new(&graph);
    let values = at.emit(&mut emitter, &options.label)?;
    check_names(forward, options, &values, &statistics)?;
    let is_scaled = options.precision == Precision::Fp16;
    let cotangent = match is_scaled {
        true => scale_loss(&mut emitter, &values.grad),
        false => values.grad.clone(),
    };
    let params: Vec<String> = forward.params.iter().map(|param| param.name.clone()).collect();
    let at_output = (at.output.to_owned(), cotangent.clone());
    let rounded = options.precision.is_half();
    let grads = backward(&mut emitter, &graph.node, &types, &params, at_output, rounded)?;

    let unreached = params.into_iter().filter(|name| !grads.contains_key(name)).collect();
    let mut outputs = publish_metrics(&mut emitter, &values);
    outputs.extend(publish_gradients(&mut emitter, forward, &grads, is_scaled));
    outputs.extend(publish_statistics(&mut emitter, &statistics));
    outputs.extend(tensor_outputs(forward).cloned());
    let mut inputs = inputs(forward, options, &values);
    inputs.extend(is_scaled.then(|| (LOSS_SCALE.to_owned(), TensorType::new(ElementType::F32, Vec::new()))));
    Ok(Training { model: emitter.finish(&forward.model, &inputs, &outputs), values, cotangent, unreached })
}

/// What the options ask of the finished graph: lower precision, less memory. Proves that it loads.
fn transform(
    compiler: &dyn Compiler,
    training: &mut Training,
    forward: &Forward,
    options: &DeriveOptions,
) -> Result<(Option<Saving>, Types), AutodiffError> {
    let Training { model, cotangent, .. } = training;
    if options.precision.is_half() {
        let types = sizes(compiler, model, NOMINAL_AXIS)?;
        lower(model, &types, options.precision, &forward.params)?;
    }
    let saving = match options.recompute {
        true => Some(recompute(compiler, model, cotangent, never_empty(&forward.params))?),
        false => None,
    };
    let types = check_loads(compiler, model.clone())?;
    check_results(forward, &types)?;
    declare_outputs(model, forward, &types);
    if options.precision == Precision::Bf16 {
        write_bf16(model);
    }
    Ok((saving, types))
}

/// Says the type of every output, as standard ONNX asks for. `types`: what the compiler infers; it cannot
/// tell a value whose number of axes it does not know from a scalar, so that shapes which follow from the
/// model come first.
fn declare_outputs(model: &mut ModelProto, forward: &Forward, types: &Types) {
    let held = |params: &[Param], suffix: &str| -> Vec<(String, Vec<Dim>)> {
        let dims = |param: &Param| forward.type_of(&param.name).dims;
        params.iter().map(|param| (format!("{}{suffix}", param.name), dims(param))).collect()
    };
    let held: HashMap<String, Vec<Dim>> =
        held(&forward.params, GRAD_SUFFIX).into_iter().chain(held(&forward.state, NEXT_SUFFIX)).collect();
    for output in model.graph.iter_mut().flat_map(|graph| &mut graph.output) {
        let name = &output.name;
        let Some(found) = types.get(name) else { continue };
        let of_model = || Some(forward.types.get(name)?.dims.clone());
        let dims = held.get(name).cloned().or_else(of_model).unwrap_or_else(|| found.dims.clone());
        *output = TensorType::new(found.element, dims).to_value_info(name);
    }
}

/// The model that computes loss and metrics alone.
fn evaluate(
    forward: &Forward,
    evaluation: &GraphProto,
    at: &LossAt<'_>,
    options: &DeriveOptions,
) -> Result<ModelProto, AutodiffError> {
    let mut emitter = Emitter::new(evaluation);
    let values = at.emit(&mut emitter, &options.label)?;
    let mut outputs = publish_metrics(&mut emitter, &values);
    if let Some(predicted) = &values.predicted {
        let predicted = emitter.cast(&predicted.value, ElementType::I64);
        emitter.publish(&predicted, PREDICTED);
        outputs.push(PREDICTED.to_owned());
    }
    outputs.extend(tensor_outputs(forward).cloned());
    Ok(emitter.finish(&forward.model, &inputs(forward, options, &values), &outputs))
}

/// What is fed to both models: data, label, parameters and running statistics.
fn inputs(forward: &Forward, options: &DeriveOptions, values: &LossValues) -> Vec<(String, TensorType)> {
    let typed = |name: &String| (name.clone(), forward.type_of(name));
    let held = forward.params.iter().chain(&forward.state).map(|param| typed(&param.name));
    let label = values.label.clone().map(|label| (options.label.clone(), label));
    forward.data_inputs.iter().map(typed).chain(label).chain(held).collect()
}

/// The outputs of the forward model that are tensors; nothing else leaves a training graph.
fn tensor_outputs(forward: &Forward) -> impl Iterator<Item = &String> {
    let names = forward.graph.output.iter().map(|value| &value.name);
    names.filter(|name| forward.types.contains_key(*name))
}

/// The output that the loss was asked for.
fn loss_output(forward: &Forward, options: &DeriveOptions) -> Result<String, AutodiffError> {
    let mut outputs = forward.graph.output.iter().map(|output| &output.name);
    let first = outputs.clone().next();
    let float = |name: &&String| forward.types.get(*name).is_some_and(|ty| ty.element == ElementType::F32);
    // A map of probabilities is no tensor, but made of one.
    let maps = forward.graph.node.iter().filter(|node| node.op_type == "ZipMap");
    let maps: HashSet<&String> = maps.flat_map(|node| &node.output).collect();
    let mapped = |name: &&String| maps.contains(name);
    let found = match &options.output {
        Some(name) => outputs.find(|output| *output == name),
        None => outputs.find(|name| float(name) || mapped(name)).or(first),
    };
    found.cloned().ok_or_else(|| AutodiffError::NoOutput {
        name: options.output.clone().unwrap_or_default(),
        known: forward.graph.output.iter().map(|output| output.name.as_str()).collect::<Vec<_>>().join(", "),
    })
}

fn publish_metrics(emitter: &mut Emitter, values: &LossValues) -> Vec<String> {
    let fixed = [(LOSS, &values.loss), (LOSS_WEIGHT, &values.weight)];
    let metrics = values.metrics.iter().map(|(name, value)| (name.as_str(), value));
    let publish = |(name, value): (&str, &String)| {
        emitter.publish(value, name);
        name.to_owned()
    };
    fixed.into_iter().chain(metrics).map(publish).collect()
}

/// The gradient of each parameter, in the order of the parameters.
fn publish_gradients(
    emitter: &mut Emitter,
    forward: &Forward,
    grads: &HashMap<String, String>,
    is_scaled: bool,
) -> Vec<String> {
    let publish = |param: &Param| {
        let grad = grads.get(&param.name).cloned().unwrap_or_else(|| zeros(emitter, &param.shape));
        let grad = if is_scaled { unscale(emitter, &grad) } else { grad };
        let name = format!("{}{GRAD_SUFFIX}", param.name);
        emitter.publish(&grad, &name);
        name
    };
    forward.params.iter().map(publish).collect()
}

fn publish_statistics(emitter: &mut Emitter, statistics: &[Statistic]) -> Vec<String> {
    let publish = |statistic: &Statistic| {
        let name = format!("{}{NEXT_SUFFIX}", statistic.name);
        emitter.publish(&statistic.next, &name);
        name
    };
    statistics.iter().map(publish).collect()
}

/// The gradient of a parameter that the loss does not depend on.
fn zeros(emitter: &mut Emitter, shape: &[usize]) -> String {
    let dims: Vec<i64> = shape.iter().map(|&size| i64::try_from(size).unwrap_or(i64::MAX)).collect();
    let shape = emitter.ints(&dims);
    emitter.op("ConstantOfShape", &[&shape], &[])
}
