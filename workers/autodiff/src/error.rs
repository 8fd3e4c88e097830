//! Why a model cannot be trained as it is.

use syncline_onnx::{CompileError, OnnxError};

use crate::{catalogue::way_around, forward::HOLDS_NAN};

/// Why no training graph could be made. Codes are stable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AutodiffError {
    /// An operator without a gradient rule stands between a parameter and the loss.
    #[error("[E310] no gradient for operator {op} (node `{node}`)")]
    Unsupported { op: String, node: String },
    /// The operator has a rule, but not for this use of it.
    #[error("[E311] no gradient for this use of {op} (node `{node}`): {reason}")]
    UnsupportedUse { op: String, node: String, reason: String },
    /// The operator set is older than the rules know.
    #[error("[E312] model uses operator set {found}, at least {least} is needed")]
    Opset { found: i64, least: i64 },
    /// No output to compute the loss from.
    #[error("[E313] model has no output `{name}` for the loss, its outputs are {known}")]
    NoOutput { name: String, known: String },
    /// The loss does not fit the output.
    #[error("[E314] loss {loss} does not fit output `{output}` ({found}): it needs {needed}")]
    LossShape { loss: &'static str, output: String, found: String, needed: &'static str },
    /// The output holds probabilities of which no scores can be had.
    #[error("[E252] loss {loss} looks at scores, but node `{node}` makes output `{output}` of probabilities")]
    Probabilities { loss: &'static str, node: String, output: String },
    /// Nothing to train.
    #[error("[E315] model has no trainable float32 weight")]
    NoParameters,
    /// As the operators of classical models do.
    #[error(
        "[E315] model has no trainable float32 weight; node `{node}` ({op}) keeps its numbers in attributes"
    )]
    NumbersInAttributes { node: String, op: String },
    /// What it holds does not look like a weight.
    #[error("[E315] model has no trainable float32 weight; left alone: `{name}` ({reason}){}", and_others(*.others))]
    AllLeftAlone { name: String, reason: &'static str, others: usize },
    /// Nothing is left to train.
    #[error("[E315] model has no trainable float32 weight: the settings freeze all {count}")]
    AllFrozen { count: usize },
    /// A name that the training graph needs is taken.
    #[error("[E316] name `{name}` is used by the model, but has a meaning of its own in a training graph")]
    ReservedName { name: String },
    /// An option names a parameter that does not exist.
    #[error("[E317] model has no float32 weight `{name}`")]
    NoSuchParameter { name: String },
    /// An option asks for rows of a parameter of which all are needed.
    #[error("[E264] `{name}` cannot be trained by rows: {reason}")]
    NotByRows { name: String, reason: String },
    /// A list of parameters names some that the model does not have.
    #[error("[E260] {origin} names float32 weights that the model does not have: {names}")]
    UnknownParameters { origin: &'static str, names: String },
    /// A ready-made training graph lacks something.
    #[error("[E318] not a training graph: {reason}")]
    NotReady { reason: String },
    /// Nothing says where a parameter of a ready-made training graph starts.
    #[error("[E261] the training graph has no first values for `{name}`, and no weights are named")]
    NoFirstValues { name: String },
    /// The model takes one number of samples, and cannot be changed.
    #[error("[E262] the model takes batches of {size} samples and no others: {reason}")]
    FixedBatch { size: usize, reason: String },
    /// Not the name of a loss.
    #[error("[E319] no loss is called `{name}`, there are {known}")]
    UnknownLoss { name: String, known: String },
    /// A setting of the loss makes no sense.
    #[error("[E241] loss option `{option}`: {reason}")]
    LossOption { option: &'static str, reason: String },
    /// A node asks for absurd memory.
    #[error("[E248] node `{node}` ({op}) makes {elements} numbers, at most {limit} are accepted")]
    TooLarge { op: String, node: String, elements: u64, limit: u64 },
    /// Not the name of a precision.
    #[error("[E471] no precision is called `{name}`, there are f32, bf16 and fp16")]
    UnknownPrecision { name: String },
    /// The model is in mixed precision already.
    #[error("[E472] value `{value}` has 16 bits already; mixed precision starts from a float32 model")]
    AlreadyHalf { value: String },
    /// A gradient or a next value does not have the shape of what it is for.
    #[error(
        "[E250] output `{name}` would be {found}, not {expected}: the shapes of the model do not fit each other"
    )]
    ResultShape { name: String, found: String, expected: String },
    /// The file is no model.
    #[error(transparent)]
    Model(#[from] OnnxError),
    /// The ONNX implementation did not accept the model.
    #[error(transparent)]
    Compile(#[from] CompileError),
}

impl AutodiffError {
    /// The stable code, as in the message.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unsupported { .. } => "E310",
            Self::UnsupportedUse { .. } => "E311",
            Self::Opset { .. } => "E312",
            Self::NoOutput { .. } => "E313",
            Self::LossShape { .. } => "E314",
            Self::Probabilities { .. } => "E252",
            Self::NoParameters
            | Self::NumbersInAttributes { .. }
            | Self::AllLeftAlone { .. }
            | Self::AllFrozen { .. } => "E315",
            Self::ReservedName { .. } => "E316",
            Self::NoSuchParameter { .. } => "E317",
            Self::NotByRows { .. } => "E264",
            Self::UnknownParameters { .. } => "E260",
            Self::NotReady { .. } => "E318",
            Self::NoFirstValues { .. } => "E261",
            Self::FixedBatch { .. } => "E262",
            Self::UnknownLoss { .. } => "E319",
            Self::LossOption { .. } => "E241",
            Self::TooLarge { .. } => "E248",
            Self::UnknownPrecision { .. } => "E471",
            Self::AlreadyHalf { .. } => "E472",
            Self::ResultShape { .. } => "E250",
            Self::Model(source) => source.code(),
            Self::Compile(source) => source.code,
        }
    }

    /// What the user can do about it, if there is something.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Unsupported { op, .. } => Some(way_around(op)),
            Self::UnsupportedUse { .. } => Some(
                "write that part of the model with other operators and export it again, or freeze the weights in front \
                 of it with `freeze`, so that no gradient has to flow there",
            ),
            Self::Opset { .. } => Some("export the model again with opset_version=17"),
            Self::Probabilities { .. } => {
                Some("name the value before its Sigmoid as the output, and bce-with-logits as the loss")
            }
            Self::ReservedName { .. } => {
                Some("rename the value in the model, or give the label another name")
            }
            Self::NumbersInAttributes { .. } => {
                Some("train it in its own framework, or export a model whose weights are tensors")
            }
            Self::AllLeftAlone { reason: HOLDS_NAN, .. } => {
                Some("its training has diverged before it was exported: export it with other weights")
            }
            Self::AllLeftAlone { .. } => Some(
                "`train` names weights that are to be trained all the same; `syncline model show` lists all",
            ),
            Self::NoParameters => Some("export the model with its weights, and not as float16"),
            Self::AllFrozen { .. } => {
                Some("let `freeze` name fewer of them, or `train` or the list of parameters more")
            }
            Self::NotByRows { .. } => Some(
                "take it off the list of `sparse`: then it is pulled and pushed as other parameters are, or left alone if it is \
                 frozen",
            ),
            Self::UnknownParameters { .. } => Some(
                "exporters leave out what the model does not use, and rename what they fold: export with \
                 optimize=False, or do_constant_folding=False, and list the names of the module that was exported",
            ),
            Self::NotReady { .. } => Some(
                "a training graph has float inputs p with outputs p.grad of the same shape, and the outputs loss \
                 and loss_weight",
            ),
            Self::NoFirstValues { .. } => Some(
                "write it again with `syncline model train-graph`, which keeps them; or name a safetensors file: model.ready \
                 = { onnx = \"train.onnx\", weights = \"first.safetensors\" }, --weights on the command line",
            ),
            Self::FixedBatch { .. } => Some(
                "export it with an open first axis: dynamic_shapes=({0: torch.export.Dim(\"batch\")},) with dynamo=True, \
                 dynamic_axes={\"x\": {0: \"batch\"}} with dynamo=False; a job's batches differ, in evaluations at least",
            ),
            Self::AlreadyHalf { .. } => Some("export the model as float32, or train it with precision f32"),
            Self::Model(source) => source.hint(),
            Self::Compile(source) => source.hint,
            _ => None,
        }
    }
}

fn and_others(others: usize) -> String {
    if others == 0 { String::new() } else { format!(" and {others} more") }
}
