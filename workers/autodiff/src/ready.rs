//! Accepting a training graph that was made elsewhere.

use std::collections::{BTreeMap, HashMap, HashSet};

use safetensors::{Dtype, SafeTensors};
use syncline_onnx::proto::{GraphProto, TensorProto};
use syncline_onnx::{Compiler, Dim, ElementType, TensorType, Types};

use crate::error::AutodiffError;
use crate::forward::{NEXT_SUFFIX, with_columns};
use crate::loss::default_class_axis;
use crate::row_tables::RowTables;
use crate::training_graph::{Io, Param, TrainingGraph};
use crate::{
    CORRECT, GRAD_SUFFIX, LABEL, LOG_PERPLEXITY, LOSS, LOSS_WEIGHT, PERPLEXITY, PREDICTIONS, is_correct_top,
};

/// Accepts a ready-made training graph.
///
/// Every float32 input `p` that has an output `p.grad` is a parameter, one that has an output `p.new` a
/// running statistic; their first values are those of the same names in `weights`, a safetensors file, or the
/// initialisers of the same names, and every one needs some. Outputs `loss` and `loss_weight` are required,
/// an input `label` and an output `correct` are not. The graph evaluates as it is, so that `eval_onnx` equals
/// `train_onnx`.
pub fn accept_ready(
    compiler: &dyn Compiler,
    bytes: &[u8],
    weights: Option<&[u8]>,
) -> Result<TrainingGraph, AutodiffError> {
    let weights = weights.map(Weights::read).transpose()?.unwrap_or_default();
    let mut model = with_columns(syncline_onnx::parse(bytes)?);
    let mut graph = model.graph.take().unwrap_or_default();
    // Annotations for the runtime may be out of date: other tools copy them while they rewrite the nodes.
    graph.node.iter_mut().for_each(|node| node.metadata_props.clear());
    let roles = Roles::of(&graph);
    let defaults = take_defaults(&mut graph, &roles)?;
    let inputs = required_inputs(&graph);
    model.graph = Some(graph);
    let train_onnx = model.to_bytes();
    let types = compiler.interface_types(&train_onnx)?;
    roles.check_outputs(&types)?;

    let inputs = sort_inputs(inputs, &roles, &types, weights, &defaults)?;
    let forward_outputs = roles.forward_outputs(&types, &inputs);
    let Inputs { params, state, label, data } = inputs;
    let classes = label.as_ref().filter(|label| label.element == ElementType::I64);
    let classes = classes.and_then(|label| class_count(&forward_outputs.first()?.dims, &label.dims));
    Ok(TrainingGraph {
        eval_onnx: train_onnx.clone(),
        train_onnx,
        loss_at: None,
        scores_by_sigmoid: None,
        mixed_samples: None,
        params,
        state,
        data_inputs: data,
        label,
        forward_outputs,
        saving: None,
        row_tables: RowTables::default(),
        unreached: Vec::new(),
        has_correct: roles.outputs.contains(CORRECT),
        has_correct_top: roles.outputs.iter().any(|name| is_correct_top(name)),
        has_perplexity: roles.outputs.contains(PERPLEXITY),
        classes,
    })
}

/// How many classes there are scores of: along the axis that labels of classes lack. Where that may be more than
/// one, or is none, it is where the loss has it by default.
fn class_count(scores: &[Dim], labels: &[Dim]) -> Option<usize> {
    let fits = |(score, label): (&Dim, &Dim)| {
        score.fixed().zip(label.fixed()).is_none_or(|(score, label)| score == label)
    };
    let is_lacking = |axis: &usize| {
        let others = scores[..*axis].iter().chain(&scores[axis + 1..]);
        labels.len() + 1 == scores.len() && others.zip(labels).all(fits)
    };
    let usual = default_class_axis(scores.len());
    let usual = usize::try_from(if usual < 0 { usual + scores.len() as i64 } else { usual }).ok()?;
    let axis = [usual].into_iter().chain(1..scores.len()).find(is_lacking).unwrap_or(usual);
    scores.get(axis)?.fixed()
}

/// What the outputs of a graph say about its inputs.
struct Roles {
    /// In the order of the graph.
    listed: Vec<String>,
    outputs: HashSet<String>,
}

impl Roles {
    fn of(graph: &GraphProto) -> Self {
        let listed: Vec<String> = graph.output.iter().map(|output| output.name.clone()).collect();
        Self { outputs: listed.iter().cloned().collect(), listed }
    }

    /// What follows the name of an input in that of its result: of its gradient if it is a parameter, of its
    /// next value if it is a running statistic.
    fn suffix(&self, input: &str) -> Option<&'static str> {
        let suffixes = [GRAD_SUFFIX, NEXT_SUFFIX];
        suffixes.into_iter().find(|suffix| self.outputs.contains(&format!("{input}{suffix}")))
    }

    fn check_outputs(&self, types: &Types) -> Result<(), AutodiffError> {
        for name in [LOSS, LOSS_WEIGHT] {
            let ty = types.get(name).filter(|_| self.outputs.contains(name));
            let ty = ty.ok_or_else(|| not_ready(format!("it has no output `{name}`")))?;
            let one = ty.dims.iter().all(|dim| dim.fixed().is_none_or(|size| size == 1));
            if ty.element != ElementType::F32 || !one {
                return Err(not_ready(format!("output `{name}` is {ty}, not one float32")));
            }
        }
        Ok(())
    }

    /// The outputs that are neither loss nor metric, nor the results of parameters and statistics.
    fn forward_outputs(&self, types: &Types, inputs: &Inputs) -> Vec<Io> {
        let grads = inputs.params.iter().map(|param| format!("{}{GRAD_SUFFIX}", param.name));
        let nexts = inputs.state.iter().map(|param| format!("{}{NEXT_SUFFIX}", param.name));
        let results: HashSet<String> = grads.chain(nexts).collect();
        let is_special = |name: &str| {
            [LOSS, LOSS_WEIGHT, CORRECT, PERPLEXITY, LOG_PERPLEXITY, PREDICTIONS].contains(&name)
                || is_correct_top(name)
                || results.contains(name)
        };
        let rest = self.listed.iter().filter(|name| !is_special(name));
        rest.filter_map(|name| Some(Io::new(name, types.get(name)?.clone()))).collect()
    }
}

/// Takes the default values of parameters and statistics out of the graph: a default would make the input
/// optional, which a parameter never is.
fn take_defaults(
    graph: &mut GraphProto,
    roles: &Roles,
) -> Result<HashMap<String, TensorProto>, AutodiffError> {
    let (defaults, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut graph.initializer)
        .into_iter()
        .partition(|tensor| roles.suffix(&tensor.name).is_some());
    graph.initializer = kept;
    let inputs: HashSet<&str> = graph.input.iter().map(|input| input.name.as_str()).collect();
    if let Some(tensor) = defaults.iter().find(|tensor| !inputs.contains(tensor.name.as_str())) {
        return Err(not_ready(format!(
            "parameter `{}` has a gradient or a next value, but is no input",
            tensor.name
        )));
    }
    Ok(defaults.into_iter().map(|tensor| (tensor.name.clone(), tensor)).collect())
}

/// The inputs by what they are for.
struct Inputs {
    params: Vec<Param>,
    state: Vec<Param>,
    label: Option<Io>,
    data: Vec<Io>,
}

fn sort_inputs(
    names: Vec<String>,
    roles: &Roles,
    types: &Types,
    mut weights: Weights,
    defaults: &HashMap<String, TensorProto>,
) -> Result<Inputs, AutodiffError> {
    let (mut params, mut state, mut data) = (Vec::new(), Vec::new(), Vec::new());
    for name in names {
        let ty =
            types.get(&name).cloned().ok_or_else(|| not_ready(format!("input `{name}` is no tensor")))?;
        let Some(suffix) = roles.suffix(&name) else {
            data.push(Io::new(&name, ty));
            continue;
        };
        let shape = param_shape(&name, &ty, types.get(&format!("{name}{suffix}")))?;
        let initial = match (weights.take(&name), defaults.get(&name)) {
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
    let label = data.iter().position(|io| io.name == LABEL).map(|index| data.remove(index));
    Ok(Inputs { params, state, label, data })
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
    let optional: HashSet<&str> = graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
    let names = graph.input.iter().map(|input| input.name.as_str());
    names.filter(|name| !optional.contains(name)).map(str::to_owned).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Of sizes; 0 is an open axis.
    fn dims(sizes: &[usize]) -> Vec<Dim> {
        let dim = |&size: &usize| if size == 0 { Dim::Unknown } else { Dim::Fixed(size) };
        sizes.iter().map(dim).collect()
    }

    #[test]
    fn classes_are_counted_along_the_axis_that_labels_lack_table() {
        #[rustfmt::skip]
        let cases: [(&[usize], &[usize], Option<usize>); 9] = [
            (&[0, 10],            &[0],          Some(10)),
            (&[0, 7, 10],         &[0, 7],       Some(10)),
            (&[0, 10, 7],         &[0, 7],       Some(10)),
            (&[0, 21, 16, 16],    &[0, 16, 16],  Some(21)),
            (&[0, 21, 0, 0],      &[0, 0, 0],    Some(21)),
            (&[0, 16, 16, 21],    &[0, 16, 16],  Some(21)),
            // Where either may be it, the loss says it.
            (&[0, 5, 5, 5],       &[0, 5, 5],    Some(5)),
            (&[0, 10],            &[0, 1],       Some(10)),
            (&[],                 &[],           None),
        ];
        for (scores, labels, wanted) in cases {
            assert_eq!(class_count(&dims(scores), &dims(labels)), wanted, "{scores:?}, {labels:?}");
        }
    }
}
