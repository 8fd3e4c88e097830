//! Trained parameters back in the user's own forward model, in the form that predicts.

use std::collections::{BTreeSet, HashMap};

use safetensors::{Dtype, SafeTensorError, SafeTensors, tensor::TensorView};
use syncline_autodiff::{GRAD_SUFFIX, LOSS, TiedNames, inference_form, parse_forward, with_columns};
use syncline_onnx::{
    ElementType, OnnxError,
    proto::{ModelProto, TensorProto},
};
use syncline_ps::checkpoint_file::is_moment;
use syncline_scheduler::{ids::JobId, spec::DataSpec};

use crate::{normalization::describe, submit::name_list::list};

/// Why a snapshot could not be put into a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The forward model cannot be read.
    #[error(transparent)]
    Model(#[from] OnnxError),
    /// The snapshot cannot be read, or holds something else than float32.
    #[error("[E380] {source_name} is not a safetensors file: {cause}")]
    Damaged {
        /// What messages call the snapshot: its job or its file.
        source_name: String,
        /// What is wrong with it, in words.
        cause: String,
    },
    /// The model has a loss and gradients among its outputs.
    #[error(
        "[E249] {source_name} trained a graph that was ready: there is no forward model to put parameters into"
    )]
    TrainingGraph {
        /// What messages call the snapshot: its job or its file.
        source_name: String,
    },
    /// The model lacks a parameter of the snapshot, or has it in another shape or type.
    #[error("[E247] {source_name} does not fit the model: {reason}")]
    Misfit {
        /// What messages call the snapshot: its job or its file.
        source_name: String,
        /// Which parameter, and what differs, in words.
        reason: String,
    },
    /// Nothing of a file of first weights fits, where a part of it would do.
    #[error(
        "[E247] {source_name} does not fit the model: nothing of it has name and shape of a tensor of the model; it has {found}; the model has \
         {wanted}"
    )]
    NothingFits {
        /// What messages call the file.
        source_name: String,
        /// What it holds, a list that may be cut.
        found: String,
        /// What the model has, a list that may be cut.
        wanted: String,
    },
    /// The file of first weights lacks something that trains.
    #[error("[E247] {source_name} does not fit the model: it holds no {names}")]
    Lacks {
        /// What messages call the file.
        source_name: String,
        /// What it lacks, a list that may be cut.
        names: String,
    },
}

impl ExportError {
    /// The stable code, as in the message.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Model(source) => source.code(),
            Self::Damaged { .. } => "E380",
            Self::TrainingGraph { .. } => "E249",
            Self::Misfit { .. } | Self::Lacks { .. } | Self::NothingFits { .. } => "E247",
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Model(error) => return error.hint().or_else(|| Some("export the model again".to_owned())),
            Self::Damaged { cause, .. } if cause == OF_TORCH => {
                "in Python: safetensors.torch.save_model(model, \"weights.safetensors\")"
            }
            Self::Damaged { .. } => "write the snapshot again; `syncline status JOB` shows where it lies",
            Self::TrainingGraph { .. } => {
                "`syncline model export JOB OUT.safetensors` (or Client::weights) fetches what was trained; `syncline model export --snapshot OUT.safetensors --model FILE OUT.onnx` puts that into the model that the graph was made from"
            }
            Self::Misfit { .. } => {
                "`syncline model show` shows the names and shapes of both: name the model that was trained, or leave out what it does not have: \
                 `model export --snapshot` does with --partial; a job takes what fits, and leaves the rest of the model as it is, with \
                 weights = { path = FILE, partial = true }"
            }
            Self::NothingFits { .. } => {
                "`syncline model show` shows the names and shapes of both; where the names of the file begin with more or fewer words, rename them \
                 in Python: {name.removeprefix(\"module.\"): tensor for name, tensor in load_file(FILE).items()}"
            }
            Self::Lacks { .. } => {
                "weights = { path = FILE, partial = true } takes what fits, and leaves the rest of the model, such as a new head, as it is. Exported \
                 weights hold only what their job trained: `syncline model export JOB FILE.onnx` writes its whole model, which can be the model of \
                 this job, without Dropout"
            }
        };
        Some(hint.to_owned())
    }
}

/// What is said of a file of `torch.save`, a zip archive or a pickle.
const OF_TORCH: &str = "torch.save has written it";

/// Why a file cannot be read as safetensors, in words.
fn cause_of(bytes: &[u8], error: &SafeTensorError) -> String {
    let is_of_torch = [&b"PK\x03\x04"[..], b"\x80\x02"].iter().any(|mark| bytes.starts_with(mark));
    if is_of_torch { OF_TORCH.to_owned() } else { error.to_string() }
}

/// A forward model with trained parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TrainedModel {
    /// The model as bytes of a `.onnx` file.
    pub onnx: Vec<u8>,
    /// How many parameters were put in.
    pub parameters: usize,
}

/// Puts every parameter of a snapshot or a checkpoint, which is called `source_name`, into the constant of
/// the same name of a forward model, which may have several for one tensor.
///
/// # Errors
/// E301 to E308 if the model is none, E380 if the snapshot is none, E249 if the model is a training graph,
/// E247 if they do not fit.
pub fn fill(model: &[u8], source_name: &str, snapshot: &[u8]) -> Result<TrainedModel, ExportError> {
    let (model, parameters) = filled(model, source_name, snapshot)?;
    Ok(TrainedModel { onnx: model.to_bytes(), parameters })
}

/// The same of a snapshot that has more than the model, such as that of a whole network for the part of it
/// that predicts. Gives the names of what the model has not as well.
///
/// # Errors
/// As [`fill`]; E247 only where a tensor has another shape, or the model has none of them.
pub fn fill_partially(
    model: &[u8],
    source_name: &str,
    snapshot: &[u8],
) -> Result<(TrainedModel, Vec<String>), ExportError> {
    let (model, Filled { names, unknown, .. }) = fitted(model, source_name, snapshot)?;
    if names.is_empty() {
        let reason = format!("the model has no parameter {}", list(&unknown));
        return Err(ExportError::Misfit { source_name: source_name.to_owned(), reason });
    }
    Ok((TrainedModel { onnx: as_predicting(model).to_bytes(), parameters: names.len() }, unknown))
}

/// The same with the snapshot of a job, whose data the model tells of.
pub(crate) fn fill_of_job(
    model: &[u8],
    job: &JobId,
    snapshot: &[u8],
    data: &DataSpec,
) -> Result<TrainedModel, ExportError> {
    let (mut model, parameters) = filled(model, &format!("job {job}"), snapshot)?;
    describe(&mut model, data);
    Ok(TrainedModel { onnx: model.to_bytes(), parameters })
}

fn filled(model: &[u8], source_name: &str, snapshot: &[u8]) -> Result<(ModelProto, usize), ExportError> {
    let (model, filled) = fitted(model, source_name, snapshot)?;
    if !filled.unknown.is_empty() {
        let reason = format!("the model has no parameter {}", list(&filled.unknown));
        return Err(ExportError::Misfit { source_name: source_name.to_owned(), reason });
    }
    Ok((as_predicting(model), filled.names.len()))
}

/// Whatever form it came in, and so that ONNX Runtime computes with it what was evaluated.
fn as_predicting(model: ModelProto) -> ModelProto {
    with_columns(inference_form(model))
}

/// A forward model with what it has of a snapshot.
fn fitted(model: &[u8], source_name: &str, snapshot: &[u8]) -> Result<(ModelProto, Filled), ExportError> {
    let mut model = parse_forward(model)?;
    let outputs: Vec<&str> =
        model.graph.iter().flat_map(|graph| &graph.output).map(|output| output.name.as_str()).collect();
    if outputs.contains(&LOSS) && outputs.iter().any(|name| name.ends_with(GRAD_SUFFIX)) {
        return Err(ExportError::TrainingGraph { source_name: source_name.to_owned() });
    }
    let filled = put_in(&mut model, source_name, snapshot)?;
    filled.refuse_misfits(source_name)?;
    Ok((model, filled))
}

/// What of a snapshot found its place in a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Filled {
    /// Names of what is in the model now, as the model has them.
    pub names: BTreeSet<String>,
    /// Names of what the model has no constant for, in ascending order.
    pub unknown: Vec<String>,
    /// What the model has otherwise, in ascending order of their names.
    pub misfits: Vec<Misfit>,
}

/// A tensor that the model has in another shape or type, or as one with another of which the file has other
/// numbers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Misfit {
    /// What both call it.
    pub name: String,
    /// How it is, and how the model has it, in words.
    pub difference: String,
}

impl Filled {
    /// Fails where the model has something otherwise.
    pub(crate) fn refuse_misfits(&self, source_name: &str) -> Result<(), ExportError> {
        let Some(Misfit { name, difference }) = self.misfits.first() else { return Ok(()) };
        let (source_name, reason) = (source_name.to_owned(), format!("`{name}` is {difference}"));
        Err(ExportError::Misfit { source_name, reason })
    }
}

/// Puts every parameter of a snapshot or a checkpoint, which is called `source_name`, into the constant of
/// the same name of a model that [`parse_forward`] has read, where there is one and it has this shape. A tied
/// tensor may have any of its names.
pub(crate) fn put_in(
    model: &mut ModelProto,
    source_name: &str,
    snapshot: &[u8],
) -> Result<Filled, ExportError> {
    let file = SafeTensors::deserialize(snapshot).map_err(|error| ExportError::Damaged {
        source_name: source_name.to_owned(),
        cause: cause_of(snapshot, &error),
    })?;
    let tied = TiedNames::of(model);
    let constants = model.graph.iter_mut().flat_map(|graph| &mut graph.initializer);
    let mut constants: HashMap<String, &mut TensorProto> =
        constants.map(|tensor| (tensor.name.clone(), tensor)).collect();
    let mut filled = Filled { names: BTreeSet::new(), unknown: Vec::new(), misfits: Vec::new() };
    // The latter is what every BatchNormalization of PyTorch counts, and no model has.
    let is_of_model = |name: &str| !is_moment(name) && !name.ends_with(".num_batches_tracked");
    for (name, view) in file.iter().filter(|(name, _)| is_of_model(name)) {
        let in_file = tied.in_file(name);
        let Some(tensor) = constants.get_mut(in_file) else {
            filled.unknown.push(name.to_owned());
            continue;
        };
        // One that was saved under several names is the same under each.
        let known = tied.all(in_file).take_while(|other| *other != name);
        let known = known.filter_map(|other| Some((other, file.tensor(other).ok()?))).next();
        if let Some((other, first)) = known {
            if first.dtype() != view.dtype() || first.shape() != view.shape() || first.data() != view.data() {
                let difference = format!("not equal to its `{other}`, and the model has one tensor for both");
                filled.misfits.push(Misfit { name: name.to_owned(), difference });
            }
            continue;
        }
        if view.dtype() != Dtype::F32
            || tensor.element() != ElementType::F32
            || view.shape() != tensor.shape()
        {
            let (found, wanted) = (view.shape(), tensor.shape());
            let difference = format!("{:?} {found:?}, the model has {wanted:?}", view.dtype());
            filled.misfits.push(Misfit { name: name.to_owned(), difference });
            continue;
        }
        **tensor = TensorProto::from_f32(in_file, view.shape(), &float32_values(&view));
        filled.names.insert(in_file.to_owned());
    }
    filled.unknown.sort_unstable();
    filled.misfits.sort_unstable();
    Ok(filled)
}

/// The numbers of a tensor that is known to be float32.
pub(crate) fn float32_values(tensor: &TensorView<'_>) -> Vec<f32> {
    tensor.data().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

#[cfg(test)]
mod tests {
    use syncline_onnx::{mlp, parse};

    use super::*;

    fn snapshot(name: &str, shape: Vec<usize>) -> Vec<u8> {
        let bytes: Vec<u8> =
            (0..shape.iter().product()).flat_map(|number| (number as f32).to_le_bytes()).collect();
        let view = TensorView::new(Dtype::F32, shape, &bytes).unwrap();
        safetensors::serialize([(name, view)], None).unwrap()
    }

    #[test]
    fn trained_numbers_replace_those_of_the_model_and_nothing_else_changes() {
        let model = mlp(&[2, 3], 1);
        let filled = fill(&model.to_bytes(), "s", &snapshot("fc1.weight", vec![2, 3])).unwrap();
        assert_eq!(filled.parameters, 1);
        let (mut filled, model) = (parse(&filled.onnx).unwrap().graph.unwrap(), model.graph.unwrap());
        assert_eq!(filled.initializer[0].to_f32().unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        filled.initializer[0] = model.initializer[0].clone();
        assert_eq!(filled, model);
    }

    #[test]
    fn what_the_optimizer_keeps_in_a_checkpoint_is_no_part_of_the_model() {
        let numbers = [1.0f32; 6].map(f32::to_le_bytes).concat();
        let view = || TensorView::new(Dtype::F32, vec![2, 3], &numbers).unwrap();
        let names = ["fc1.weight", "optimizer.first/fc1.weight", "optimizer.second/fc1.weight"];
        let checkpoint = safetensors::serialize(names.map(|name| (name, view())), None).unwrap();
        let filled = fill(&mlp(&[2, 3], 1).to_bytes(), "s", &checkpoint).unwrap();
        assert_eq!(filled.parameters, 1);
    }

    #[test]
    fn a_file_of_pytorch_is_put_in_without_what_its_normalizations_count_and_refused_with_all_that_is_too_much()
     {
        let model = mlp(&[2, 3], 1).to_bytes();
        let saved = |more: &[&str]| {
            let numbers = [1.0f32; 6].map(f32::to_le_bytes).concat();
            let weight = TensorView::new(Dtype::F32, vec![2, 3], &numbers).unwrap();
            let count = || TensorView::new(Dtype::I64, vec![], &[0; 8]).unwrap();
            let all = more.iter().map(|&name| (name, count()));
            safetensors::serialize(all.chain([("fc1.weight", weight)]).collect::<Vec<_>>(), None).unwrap()
        };
        assert_eq!(fill(&model, "s", &saved(&["bn.num_batches_tracked"])).unwrap().parameters, 1);
        let more = saved(&["head.b", "head.a"]);
        let error = fill(&model, "s", &more).unwrap_err().to_string();
        assert!(error.ends_with("the model has no parameter `head.a`, `head.b`"), "{error}");
        let (filled, left_out) = fill_partially(&model, "s", &more).unwrap();
        assert_eq!((filled.parameters, left_out), (1, vec!["head.a".to_owned(), "head.b".to_owned()]));
    }

    #[test]
    fn a_snapshot_of_another_model_is_refused() {
        let model = mlp(&[2, 3], 1).to_bytes();
        for snapshot in [snapshot("fc1.weight", vec![3, 2]), snapshot("fc9.weight", vec![2, 3])] {
            assert!(matches!(fill(&model, "s", &snapshot), Err(ExportError::Misfit { .. })));
            assert!(matches!(fill_partially(&model, "s", &snapshot), Err(ExportError::Misfit { .. })));
        }
        assert!(matches!(fill(&model, "s", b"nothing"), Err(ExportError::Damaged { .. })));
    }
}
