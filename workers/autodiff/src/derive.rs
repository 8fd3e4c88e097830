//! From a forward model to a training graph.

use syncline_onnx::proto::NodeProto;
use syncline_onnx::{Compiler, Dim, ElementType, TensorType, Types, check_loads};

use crate::emitter::Emitter;
use crate::error::AutodiffError;
use crate::forward::{Forward, NEXT_SUFFIX, evaluation_form, never_empty, training_form};
use crate::loss::{Loss, LossAt, LossValues, scores};
use crate::options::DeriveOptions;
use crate::precision::{Precision, lower, scale_loss, write_bf16};
use crate::recompute::{NOMINAL_AXIS, recompute};
use crate::sizes::sizes;
use crate::sweep::sweep;
use crate::training_graph::{Io, TrainingGraph};
use crate::{CORRECT, GRAD_SUFFIX, LOSS, LOSS_SCALE, LOSS_WEIGHT};

/// Derives the training graph of a forward model.
///
/// `forward` is a `.onnx` file with float32 weights, operator set 13 or newer. The result has been loaded once, so
/// that a model that cannot be trained is refused here and not by a worker. Milliseconds for small models.
pub fn derive(
    compiler: &dyn Compiler,
    forward: &[u8],
    loss: Loss,
    options: &DeriveOptions,
) -> Result<TrainingGraph, AutodiffError> {
    let forward = Forward::prepare(compiler, forward, options)?;
    let output = loss_output(&forward, options)?;
    let output = scores(&forward.graph, &forward.types, &output, loss, &options.loss)?;
    let output_type = forward.type_of(&output);
    let evaluation = evaluation_form(&forward.graph);
    let mut types = forward.types.clone();
    let (training, statistics) = match options.eval_mode {
        true => (evaluation.clone(), Vec::new()),
        false => training_form(&forward.graph, &mut types)?,
    };
    let mut emitter = Emitter::new(&training);
    let at = LossAt { loss, options: &options.loss, output: &output, ty: &output_type };
    let values = at.emit(&mut emitter, &options.label)?;
    let classes = if loss == Loss::SoftmaxCrossEntropy { Some(at.classes()?.1) } else { None };
    check_names(&forward, options, &values)?;
    let wanted: Vec<String> = forward.params.iter().map(|param| param.name.clone()).collect();
    let seed = (output.clone(), values.grad.clone());
    let grads = sweep(&mut emitter, &training.node, &types, &wanted, seed)?;

    let metrics = publish_metrics(&mut emitter, &values);
    let mut grad_names = Vec::with_capacity(forward.params.len());
    for param in &forward.params {
        let grad = match grads.get(&param.name) {
            Some(grad) => grad.clone(),
            None => zeros(&mut emitter, &param.shape),
        };
        let name = format!("{}{GRAD_SUFFIX}", param.name);
        emitter.publish(&grad, &name);
        grad_names.push(name);
    }

    let mut next_names = Vec::with_capacity(statistics.len());
    for statistic in &statistics {
        let name = format!("{}{NEXT_SUFFIX}", statistic.name);
        emitter.publish(&statistic.next, &name);
        next_names.push(name);
    }

    let mut inputs: Vec<(String, TensorType)> =
        forward.data_inputs.iter().map(|name| (name.clone(), forward.type_of(name))).collect();
    inputs.push((options.label.clone(), values.label.clone()));
    let state = forward.state.iter().map(|param| &param.name);
    inputs.extend(wanted.iter().chain(state).map(|name| (name.clone(), forward.type_of(name))));
    let forward_outputs: Vec<String> = tensor_outputs(&forward).cloned().collect();
    let eval_outputs: Vec<String> = metrics.iter().chain(&forward_outputs).cloned().collect();
    let train_outputs: Vec<String> =
        metrics.into_iter().chain(grad_names).chain(next_names).chain(forward_outputs.clone()).collect();
    let mut train = emitter.finish(&forward.model, &inputs, &train_outputs);
    let mut seed = values.grad.clone();
    if options.precision == Precision::Fp16 {
        seed = scale_loss(train.graph.get_or_insert_default(), &seed);
    }
    if options.precision != Precision::F32 {
        let types = sizes(compiler, &train, NOMINAL_AXIS)?;
        lower(&mut train, &types, options.precision, &wanted)?;
    }
    let saving = match options.recompute {
        true => Some(recompute(compiler, &mut train, &seed, never_empty(&forward.params))?),
        false => None,
    };
    check_results(&forward, &check_loads(compiler, train.clone())?)?;
    if options.precision == Precision::Bf16 {
        write_bf16(&mut train);
    }
    let train_onnx = train.to_bytes();
    let mut emitter = Emitter::new(&evaluation);
    let evaluated = at.emit(&mut emitter, &options.label)?;
    publish_metrics(&mut emitter, &evaluated);
    let eval_onnx = emitter.finish(&forward.model, &inputs, &eval_outputs).to_bytes();

    let io = |name: &String| Io::new(name, forward.type_of(name));
    Ok(TrainingGraph {
        train_onnx,
        eval_onnx,
        loss_at: Some(output),
        data_inputs: forward.data_inputs.iter().map(io).collect(),
        label: Some(Io::new(&options.label, values.label)),
        forward_outputs: forward_outputs.iter().map(io).collect(),
        saving,
        has_correct: values.metrics.iter().any(|(name, _)| name == CORRECT),
        classes,
        params: forward.params,
        state: forward.state,
    })
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
    let mapped = |name: &&String| {
        let makes = |node: &&NodeProto| node.op_type == "ZipMap" && node.output.contains(name);
        forward.graph.node.iter().any(|node| makes(&node))
    };
    let found = match &options.output {
        Some(name) => outputs.find(|output| *output == name),
        None => outputs.find(|name| float(name) || mapped(name)).or(first),
    };
    found.cloned().ok_or_else(|| AutodiffError::NoOutput {
        name: options.output.clone().unwrap_or_default(),
        known: forward.graph.output.iter().map(|output| output.name.as_str()).collect::<Vec<_>>().join(", "),
    })
}

/// Refuses models that already use a name with a meaning of its own.
fn check_names(forward: &Forward, options: &DeriveOptions, values: &LossValues) -> Result<(), AutodiffError> {
    let fixed = [LOSS, LOSS_WEIGHT, CORRECT].map(str::to_owned);
    let metrics = values.metrics.iter().map(|(name, _)| name.clone());
    let grads = forward.params.iter().map(|param| format!("{}{GRAD_SUFFIX}", param.name));
    let scale = (options.precision == Precision::Fp16).then(|| LOSS_SCALE.to_owned());
    let own: Vec<String> = fixed.into_iter().chain(metrics).chain(grads).chain(scale).collect();
    let taken = |name: &String| forward.types.contains_key(name);
    let twice = |name: &String| name.is_empty() || taken(name) || own.contains(name);
    match own.iter().find(|name| taken(name)).or(Some(&options.label).filter(|label| twice(label))) {
        Some(name) => Err(AutodiffError::ReservedName { name: name.clone() }),
        None => Ok(()),
    }
}

/// Refuses a graph with a gradient or next value of another shape than its parameter or statistic, as shape inference
/// sees it.
///
/// ONNX Runtime finds out only when it runs that some operators have inputs that do not fit each other; what the rules
/// make of them is worthless.
fn check_results(forward: &Forward, types: &Types) -> Result<(), AutodiffError> {
    let grads = forward.params.iter().map(|param| (param, GRAD_SUFFIX));
    let nexts = forward.state.iter().map(|param| (param, NEXT_SUFFIX));
    for (param, suffix) in grads.chain(nexts) {
        let name = format!("{}{suffix}", param.name);
        let Some(found) = types.get(&name) else { continue };
        let expected = forward.type_of(&param.name);
        let agrees =
            |(found, wanted): (&Dim, &Dim)| found.fixed().is_none_or(|size| wanted.fixed() == Some(size));
        // A value whose number of axes is not known looks like one without axes.
        let unknown = found.dims.is_empty();
        let same =
            found.dims.len() == expected.dims.len() && found.dims.iter().zip(&expected.dims).all(agrees);
        if found.element != expected.element || !(unknown || same) {
            let (found, expected) = (found.to_string(), expected.to_string());
            return Err(AutodiffError::ResultShape { name, found, expected });
        }
    }
    Ok(())
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

/// The gradient of a parameter that the loss does not depend on.
fn zeros(emitter: &mut Emitter, shape: &[usize]) -> String {
    let dims: Vec<i64> = shape.iter().map(|&size| i64::try_from(size).unwrap_or(i64::MAX)).collect();
    let shape = emitter.ints(&dims);
    emitter.op("ConstantOfShape", &[&shape], &[])
}
