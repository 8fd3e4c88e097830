//! Which weights of a forward model are trained.
//!
//! A list of names decides alone: that of the options, or the one in the model's own metadata, see
//! [`TRAINABLE`](super::exporter_metadata::TRAINABLE). Without one a float32 constant is trained, unless
//!
//! * it holds the infinities of an attention mask, or every node that reads it does so where no gradient
//!   flows (the scales of a `Resize`, the running statistics of a `BatchNormalization`; the bounds of a
//!   `Clip`, unless PyTorch's exporter noted that one is a parameter);
//! * the model normalizes its inputs by it, as an export of ours noted;
//! * PyTorch's exporter noted that it is a buffer, or not one of the model's tensors at all;
//! * nothing was noted, and it has the name of a buffer, numbers of a formula, or, in a file of PyTorch's
//!   older exporter, neither the name of a parameter nor, where nothing has one, the place of a bias. That is
//!   a guess, and [`Selected::doubtful`]: what was trained by mistake is lost, what was left alone by mistake
//!   is said.
//!
//! A weight that the loss does not depend on is trained as well: its gradient is zero.

use std::collections::{HashMap, HashSet};

use syncline_onnx::proto::{GraphProto, TensorProto};
use syncline_onnx::{ElementType, ModelProto, captured};

use super::constant_names::{is_buffer, is_parameter};
use super::exporter_metadata::{ExporterMetadata, Kind};
use super::formula::{SINES, formula, holds_sines};
use super::training_form::statistics;
use super::unnamed_biases::{is_made_up, unnamed_biases};
use crate::error::AutodiffError;
use crate::glob::{Patterns, matches};
use crate::options::DeriveOptions;
use crate::param_list::{unknown, unknown_pattern};

/// Beyond this size a number is taken for a mask's minus infinity.
const LARGEST_WEIGHT: f32 = 1e9;

/// Whether a constant of the model is trained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selected {
    /// Name of the constant, an initializer of the model.
    pub name: String,
    /// Why it is not trained; `None` if it is.
    pub reason: Option<&'static str>,
    /// Whether that is a guess, because the file does not say.
    pub doubtful: bool,
}

impl Selected {
    /// Whether a BatchNormalization remembers it.
    pub fn is_running_statistic(&self) -> bool {
        self.reason == Some(STATISTIC)
    }

    /// Whether nothing but its type, another float, keeps it from being trained.
    pub fn lacks_float32(&self) -> bool {
        self.reason == Some(OTHER_FLOAT)
    }

    /// Whether the settings or a list leave it out, which would be trained otherwise.
    pub(super) fn by_settings(&self) -> bool {
        self.reason.is_some_and(|reason| [FROZEN, NOT_LISTED].contains(&reason))
    }
}

/// What no weight and no mask holds unless something went wrong.
pub const HOLDS_NAN: &str = "holds NaN";
/// What keeps a weight from being trained that would be as float32.
pub const OTHER_FLOAT: &str = "a weight that is not float32";
const STATISTIC: &str = "a running statistic";
const FROZEN: &str = "frozen";
const NOT_LISTED: &str = "not among those to train";

/// Whether a constant is trained, and how sure that is.
type Verdict = (Option<&'static str>, bool);
const TRAINED: Verdict = (None, false);

fn sure(reason: &'static str) -> Verdict {
    (Some(reason), false)
}

fn guess(reason: &'static str) -> Verdict {
    (Some(reason), true)
}

/// Decides for each constant of a model, in the order of the file.
pub fn select(model: &ModelProto, options: &DeriveOptions) -> Result<Vec<Selected>, AutodiffError> {
    let empty = GraphProto::default();
    let graph = model.graph.as_ref().unwrap_or(&empty);
    let floats = graph.initializer.iter().filter(|tensor| tensor.element() == ElementType::F32);
    let metadata = ExporterMetadata::of(model);
    let floats: Vec<&str> = floats.flat_map(|tensor| metadata.tied.all(&tensor.name)).collect();
    for pattern in options.freeze.iter().chain(options.train.iter().flatten()) {
        if !floats.contains(&pattern.as_str()) && !floats.iter().any(|name| matches(pattern, name)) {
            let named = unknown_pattern(pattern, floats.iter().copied());
            return Err(AutodiffError::NoSuchParameter { named });
        }
    }
    let file = File {
        listed: listed(graph, options, &metadata)?,
        freeze: Patterns::of(&options.freeze),
        train: options.train.as_deref().map(Patterns::of),
        uses: uses(graph),
        statistics: statistics(graph, |_| true),
        names: graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect(),
        biases: if metadata.is_silent() { unnamed_biases(graph) } else { HashSet::new() },
        metadata: &metadata,
    };
    let select = |tensor: &TensorProto| {
        let (reason, doubtful) = file.verdict(tensor);
        Selected { name: tensor.name.clone(), reason, doubtful }
    };
    Ok(graph.initializer.iter().map(select).collect())
}

/// The list that decides alone, if there is one: its names exist.
fn listed(
    graph: &GraphProto,
    options: &DeriveOptions,
    metadata: &ExporterMetadata,
) -> Result<Option<HashSet<String>>, AutodiffError> {
    let (origin, list) = match (&options.params, &options.train, &metadata.trainable) {
        (Some(list), ..) => ("the list of parameters", list),
        (None, None, Some(list)) => ("the list in the model's metadata", list),
        _ => return Ok(None),
    };
    let floats = graph.initializer.iter().filter(|tensor| tensor.element() == ElementType::F32);
    let known: Vec<&str> = floats.map(|tensor| tensor.name.as_str()).collect();
    let set: HashSet<&str> = known.iter().copied().collect();
    let list: Vec<String> = list
        .iter()
        .map(|name| match set.contains(name.as_str()) {
            true => name.clone(),
            false => metadata.tied.in_file(name).to_owned(),
        })
        .collect();
    let others = graph.initializer.iter().filter(|tensor| tensor.element() != ElementType::F32);
    let mut others = others.filter(|tensor| list.contains(&tensor.name));
    if let Some(first) = others.next() {
        let (name, element) = (first.name.clone(), first.element());
        return Err(AutodiffError::NotFloat32 { origin, name, element, others: others.count() });
    }
    match unknown(&list, &known) {
        Some(names) => Err(AutodiffError::UnknownParameters { origin, names }),
        None => Ok(Some(list.into_iter().collect())),
    }
}

/// What is known of a model and its constants.
struct File<'a> {
    listed: Option<HashSet<String>>,
    freeze: Patterns<'a>,
    train: Option<Patterns<'a>>,
    uses: HashMap<&'a str, Uses>,
    statistics: HashSet<String>,
    names: HashSet<&'a str>,
    /// Those of a file that names nothing.
    biases: HashSet<String>,
    metadata: &'a ExporterMetadata,
}

impl File<'_> {
    fn verdict(&self, tensor: &TensorProto) -> Verdict {
        if self.statistics.contains(&tensor.name) {
            return sure(STATISTIC);
        }
        match tensor.element() {
            ElementType::F32 => self.of_float(tensor),
            other if other.is_float() && self.of_float(tensor) == TRAINED => sure(OTHER_FLOAT),
            _ => sure("not float32"),
        }
    }

    fn of_float(&self, tensor: &TensorProto) -> Verdict {
        let mut names = self.metadata.tied.all(&tensor.name);
        if names.clone().any(|name| self.freeze.matches(name)) {
            return sure(FROZEN);
        }
        let chosen = match (&self.listed, &self.train) {
            (Some(listed), _) => listed.contains(&tensor.name),
            (None, Some(train)) => names.any(|name| train.matches(name)),
            (None, None) => return self.by_itself(tensor),
        };
        if chosen { TRAINED } else { sure(NOT_LISTED) }
    }

    /// Without a list.
    fn by_itself(&self, tensor: &TensorProto) -> Verdict {
        if self.metadata.normalized_by.contains(&tensor.name) {
            return sure("normalizes an input");
        }
        let uses = self.uses.get(tensor.name.as_str()).copied().unwrap_or_default();
        let kind = self.metadata.kind(&tensor.name);
        let trained_bound = uses.bound > 0 && kind == Some(Kind::Parameter);
        if uses.constant > 0 && uses.smooth == 0 && !trained_bound {
            return sure("read only where no gradient flows");
        }
        if let Ok(numbers) = tensor.to_f32() {
            if numbers.iter().any(|number| number.is_nan()) {
                return sure(HOLDS_NAN);
            }
            if numbers.iter().any(|number| number.abs() > LARGEST_WEIGHT) {
                return sure("holds numbers of a mask");
            }
        }
        match kind {
            // A frozen position table is a parameter as well, and `requires_grad` is not in the file.
            Some(Kind::Parameter) if holds_sines(tensor) => guess(SINES),
            Some(Kind::Parameter) => TRAINED,
            Some(Kind::Buffer) => sure("a buffer in PyTorch"),
            Some(Kind::Constant) => sure("a constant of the exporter"),
            None => self.guess_from_name(tensor, uses),
        }
    }

    /// Where the file says nothing.
    fn guess_from_name(&self, tensor: &TensorProto, uses: Uses) -> Verdict {
        let is_there = |name: &str| self.names.contains(name);
        let silent = self.metadata.is_silent();
        // What the exporter has made has no name of PyTorch's.
        let made = is_made_up(&tensor.name);
        // Those of a model that has not trained yet are zeros.
        if self.biases.contains(&tensor.name) {
            return TRAINED;
        }
        if is_parameter(&tensor.name, is_there) && (silent || !tensor.dims.is_empty()) {
            return if holds_sines(tensor) { guess(SINES) } else { TRAINED };
        }
        if is_buffer(&tensor.name, is_there) {
            return guess("has a buffer's name");
        }
        // Exporters write literal numbers as tensors without axes; a weight of that shape has to be named.
        if tensor.dims.is_empty() && (made || !silent) {
            return sure("a single number");
        }
        match formula(tensor) {
            Some(reason) => guess(reason),
            None if !silent || (made && uses.weight > 0) => TRAINED,
            None => guess("does not have a parameter's name"),
        }
    }
}

/// How often a value is read where gradients flow, and where they do not.
#[derive(Debug, Clone, Copy, Default)]
struct Uses {
    smooth: usize,
    constant: usize,
    /// Those of the second kind that are bounds of a `Clip`: they have a gradient, but are hardly ever
    /// trained.
    bound: usize,
    /// Those of the first kind that are products, norms or tables.
    weight: usize,
}

fn uses(graph: &GraphProto) -> HashMap<&str, Uses> {
    let mut uses: HashMap<&str, Uses> = HashMap::new();
    for node in &graph.node {
        for (position, input) in node.input.iter().enumerate() {
            let entry = uses.entry(input).or_default();
            match reads_as_constant(&node.op_type, position) {
                true => entry.constant += 1,
                false => entry.smooth += 1,
            }
            entry.bound += usize::from(node.op_type == "Clip" && position > 0);
            entry.weight += usize::from(reads_as_weight(&node.op_type));
        }
        for input in captured(node) {
            uses.entry(input).or_default().smooth += 1;
        }
    }
    uses
}

/// Whether an operator reads this input without a derivative: a setting, or an operand of a comparison.
fn reads_as_constant(op: &str, position: usize) -> bool {
    match op {
        "BatchNormalization" => position > 2,
        "Clip" | "Dropout" | "Resize" | "Upsample" | "Tile" | "Expand" | "CumSum" => position > 0,
        "Pad" | "OneHot" => position > 1,
        "Range" | "ConstantOfShape" | "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual" | "Equal"
        | "ArgMax" | "ArgMin" | "Shape" | "Size" | "NonZero" | "IsNaN" | "IsInf" => true,
        _ => false,
    }
}

/// Whether what an exporter has folded, and such an operator reads, was made of a weight.
fn reads_as_weight(op: &str) -> bool {
    const OPERATORS: [&str; 14] = [
        "BatchNormalization",
        "Conv",
        "ConvTranspose",
        "Einsum",
        "GRU",
        "Gather",
        "Gemm",
        "GroupNormalization",
        "InstanceNormalization",
        "LSTM",
        "LayerNormalization",
        "MatMul",
        "PRelu",
        "RNN",
    ];
    OPERATORS.contains(&op)
}
