//! Accepting a training graph that was made elsewhere.

use std::collections::BTreeMap;

use safetensors::{Dtype, SafeTensors};
use syncline_onnx::proto::GraphProto;
use syncline_onnx::{Compiler, ElementType, TensorType, Types};

use crate::error::AutodiffError;
use crate::forward::{NEXT_SUFFIX, with_columns};
use crate::training_graph::{Io, Param, TrainingGraph};
use crate::{CORRECT, CORRECT_TOP, GRAD_SUFFIX, LABEL, LOSS, LOSS_WEIGHT, PERPLEXITY, PREDICTIONS};

/// Accepts a ready-made training graph.
///
/// Every float32 input `p` that has an output `p.grad` is a parameter, one that has an output `p.new` a running
/// statistic; their first values are those of the same names in `weights`, a safetensors file, or the initialisers of the
/// same names, and every one needs some. Outputs `loss` and `loss_weight` are required, an input `label` and an output
/// `correct` are not. The graph evaluates as it is, so that `eval_onnx` equals `train_onnx`.
pub fn accept_ready(
    compiler: &dyn Compiler,
    bytes: &[u8],
    weights: Option<&[u8]>,
) -> Result<TrainingGraph, AutodiffError> {
    let mut weights = weights.map(Weights::read).transpose()?.unwrap_or_default();
    let mut model = with_columns(syncline_onnx::parse(bytes)?);
    let mut graph = model.graph.take().unwrap_or_default();
    // Remarks for the backend may be out of date: other tools copy them while they rewrite the nodes.
    graph.node.iter_mut().for_each(|node| node.metadata_props.clear());
    let outputs: Vec<String> = graph.output.iter().map(|output| output.name.clone()).collect();
    let is_param = |name: &str| outputs.contains(&format!("{name}{GRAD_SUFFIX}"));
    let is_state = |name: &str| outputs.contains(&format!("{name}{NEXT_SUFFIX}"));

    // A default value would make the input optional; a parameter never is.
    let (defaults, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut graph.initializer)
        .into_iter()
        .partition(|tensor| is_param(&tensor.name) || is_state(&tensor.name));
    graph.initializer = kept;
    let inputs = required_inputs(&graph);
    if let Some(tensor) = defaults.iter().find(|tensor| !inputs.contains(&tensor.name)) {
        return Err(not_ready(format!(
            "parameter `{}` has a gradient or a next value, but is no input",
            tensor.name
        )));
    }
    model.graph = Some(graph);
    let train_onnx = model.to_bytes();
    let types = compiler.interface_types(&train_onnx)?;
    check_outputs(&types, &outputs)?;

    let (mut params, mut state) = (Vec::new(), Vec::new());
    let mut others = Vec::new();
    for name in inputs {
        let ty =
            types.get(&name).cloned().ok_or_else(|| not_ready(format!("input `{name}` is no tensor")))?;
        let suffix = match (is_param(&name), is_state(&name)) {
            (true, _) => GRAD_SUFFIX,
            (false, true) => NEXT_SUFFIX,
            (false, false) => {
                others.push(Io::new(&name, ty));
                continue;
            }
        };
        let shape = param_shape(&name, &ty, types.get(&format!("{name}{suffix}")))?;
        let default = defaults.iter().find(|tensor| tensor.name == name);
        let initial = match (weights.take(&name), default) {
            (Some((found, numbers)), _) if found == shape => numbers,
            (None, Some(tensor)) if tensor.shape() == shape => tensor.to_f32()?,
            (None, None) => return Err(AutodiffError::NoFirstValues { name }),
            _ => return Err(not_ready(format!("the first values of `{name}` have another shape"))),
        };
        let held = if suffix == GRAD_SUFFIX { &mut params } else { &mut state };
        held.push(Param { name, shape, initial });
    }
    if let Some(name) = weights.left() {
        return Err(not_ready(format!("it has no parameter `{name}`, for which there are weights")));
    }
    if params.is_empty() {
        return Err(not_ready("no input has a gradient among the outputs".to_owned()));
    }
    let label = others.iter().position(|io| io.name == LABEL).map(|index| others.remove(index));
    let grads = params.iter().map(|param| format!("{}{GRAD_SUFFIX}", param.name));
    let nexts = state.iter().map(|param| format!("{}{NEXT_SUFFIX}", param.name));
    let results: Vec<String> = grads.chain(nexts).collect();
    let special = |name: &str| {
        [LOSS, LOSS_WEIGHT, CORRECT, PERPLEXITY, PREDICTIONS].contains(&name)
            || name.strip_prefix(CORRECT_TOP).is_some_and(|k| k.parse::<u32>().is_ok())
            || results.iter().any(|result| result == name)
    };
    let rest = outputs.iter().filter(|name| !special(name));
    let forward_outputs: Vec<Io> =
        rest.filter_map(|name| Some(Io::new(name, types.get(name)?.clone()))).collect();
    let classes = label.as_ref().filter(|label| label.element == ElementType::I64);
    let classes = classes.and_then(|_| forward_outputs.first()?.dims.last()?.fixed());
    Ok(TrainingGraph {
        eval_onnx: train_onnx.clone(),
        train_onnx,
        loss_at: None,
        params,
        state,
        data_inputs: others,
        label,
        forward_outputs,
        saving: None,
        has_correct: outputs.iter().any(|name| name == CORRECT),
        classes,
    })
}

/// First values from a safetensors file.
#[derive(Default)]
struct Weights(BTreeMap<String, (Vec<usize>, Vec<f32>)>);

impl Weights {
    fn read(bytes: &[u8]) -> Result<Self, AutodiffError> {
        let file = SafeTensors::deserialize(bytes)
            .map_err(|error| not_ready(format!("its weights are no safetensors file: {error}")))?;
        let tensors = file.iter().map(|(name, view)| {
            if view.dtype() != Dtype::F32 {
                return Err(not_ready(format!("its weights `{name}` are {:?}, not F32", view.dtype())));
            }
            let numbers = view.data().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
            Ok((name.to_owned(), (view.shape().to_vec(), numbers)))
        });
        tensors.collect::<Result<_, _>>().map(Self)
    }

    fn take(&mut self, name: &str) -> Option<(Vec<usize>, Vec<f32>)> {
        self.0.remove(name)
    }

    /// One that nobody has taken.
    fn left(&self) -> Option<&String> {
        self.0.keys().next()
    }
}

/// Inputs without a default value.
fn required_inputs(graph: &GraphProto) -> Vec<String> {
    let optional = |name: &str| graph.initializer.iter().any(|tensor| tensor.name == name);
    graph.input.iter().map(|input| input.name.clone()).filter(|name| !optional(name)).collect()
}

fn check_outputs(types: &Types, outputs: &[String]) -> Result<(), AutodiffError> {
    for name in [LOSS, LOSS_WEIGHT] {
        let ty = types.get(name).filter(|_| outputs.iter().any(|output| output == name));
        let ty = ty.ok_or_else(|| not_ready(format!("it has no output `{name}`")))?;
        let one = ty.dims.iter().all(|dim| dim.fixed().is_none_or(|size| size == 1));
        if ty.element != ElementType::F32 || !one {
            return Err(not_ready(format!("output `{name}` is {ty}, not one float32")));
        }
    }
    Ok(())
}

/// The shape of a parameter; `result` is the type of its gradient, or of its next value.
fn param_shape(
    name: &str,
    ty: &TensorType,
    result: Option<&TensorType>,
) -> Result<Vec<usize>, AutodiffError> {
    let shape = ty.fixed_shape().filter(|_| ty.element == ElementType::F32);
    let shape = shape
        .ok_or_else(|| not_ready(format!("parameter `{name}` is {ty}, not float32 of a fixed shape")))?;
    let elements = shape.iter().try_fold(1u64, |count, &size| {
        count.checked_mul(size as u64).filter(|&count| count <= syncline_onnx::MAX_ELEMENTS)
    });
    if elements.is_none() {
        return Err(not_ready(format!("parameter `{name}` is too large: {ty}")));
    }
    match result {
        Some(grad)
            if grad.element != ElementType::F32
                // A value whose number of axes is not known looks like one without axes.
                || grad.fixed_shape().is_some_and(|found| !found.is_empty() && found != shape) =>
        {
            Err(not_ready(format!("gradient or next value of `{name}` is {grad}, `{name}` is {ty}")))
        }
        _ => Ok(shape),
    }
}

fn not_ready(reason: String) -> AutodiffError {
    AutodiffError::NotReady { reason }
}
