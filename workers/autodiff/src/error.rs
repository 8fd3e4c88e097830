//! Why a model cannot be trained as it is.

use syncline_onnx::{CompileError, ElementType, OnnxError};

use crate::{
    catalogue::way_around,
    forward::{HOLDS_NAN, OTHER_FLOAT},
};

/// Why no training graph could be made. Codes are stable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AutodiffError {
    /// An operator without a gradient rule stands between a parameter and the loss.
    #[error("[E310] no gradient for operator {op} (node `{node}`)")]
    Unsupported {
        /// Operator, with its domain in front unless that is the standard's own.
        op: String,
        /// Name of the node, or of its first output if it has none.
        node: String,
    },
    /// The operator has a rule, but not for this use of it.
    #[error("[E311] no gradient for this use of {op} (node `{node}`): {reason}")]
    UnsupportedUse {
        /// Operator as the node names it.
        op: String,
        /// Name of the node, or of its first output if it has none.
        node: String,
        /// What about this use no rule covers, in words.
        reason: String,
    },
    /// The operator set is older than the rules know.
    #[error("[E312] model uses operator set {found}, at least {least} is needed")]
    Opset {
        /// Version of the standard's own operator set that the model uses; 0 if it names none.
        found: i64,
        /// Oldest version that the rules know.
        least: i64,
    },
    /// No output to compute the loss from.
    #[error("[E313] model has no output `{name}` for the loss, its outputs are {known}")]
    NoOutput {
        /// Output that was asked for; empty if none was, and the model has none.
        name: String,
        /// Names of the model's outputs, with commas between.
        known: String,
    },
    /// The loss does not fit the output.
    #[error("[E314] loss {loss} does not fit output `{output}` ({found}): it needs {needed}")]
    LossShape {
        /// Name of the loss, as a job asks for it.
        loss: &'static str,
        /// Value that the loss looks at.
        output: String,
        /// Element type and shape of that value.
        found: String,
        /// Element type and shape that the loss takes, in words.
        needed: &'static str,
    },
    /// The output holds probabilities of which no scores can be had.
    #[error("[E252] loss {loss} looks at scores, but node `{node}` makes output `{output}` of probabilities")]
    Probabilities {
        /// Name of the loss, as a job asks for it.
        loss: &'static str,
        /// The Softmax, or the `Concat` that joins p and 1 - p, by its name or its first output.
        node: String,
        /// Output that the loss was asked for.
        output: String,
        /// Which value to train on instead, with which loss, in words.
        remedy: Box<str>,
    },
    /// Nothing to train.
    #[error("[E315] model has no trainable float32 weight")]
    NoParameters,
    /// As the operators of classical models do.
    #[error(
        "[E315] model has no trainable float32 weight; node `{node}` ({op}) keeps its numbers in attributes"
    )]
    NumbersInAttributes {
        /// First such node, by its name or its first output.
        node: String,
        /// Its operator, of the domain `ai.onnx.ml`.
        op: String,
    },
    /// What it holds does not look like a weight.
    #[error("[E315] model has no trainable float32 weight; left alone: `{name}` ({reason}){}", and_others(*.others))]
    AllLeftAlone {
        /// First constant that is not trained.
        name: String,
        /// Why it is not, see [`Selected`](crate::Selected).
        reason: &'static str,
        /// How many more constants are not trained.
        others: usize,
    },
    /// Nothing is left to train.
    #[error("[E315] model has no trainable float32 weight: the settings freeze all {count}")]
    AllFrozen {
        /// Weights that would be trained without `freeze`, `train` or a list of parameters.
        count: usize,
    },
    /// A name that the training graph needs is taken.
    #[error("[E316] name `{name}` is used by the model, but has a meaning of its own in a training graph")]
    ReservedName {
        /// The name; empty if the label was given an empty one.
        name: String,
    },
    /// An option names a parameter that does not exist.
    #[error("[E317] model has no float32 weight {named}")]
    NoSuchParameter {
        /// Name or pattern of `freeze`, `train` or `sparse` that means nothing in the model, with the names
        /// that could be meant.
        named: String,
    },
    /// `eval_mode` names what evaluates as it trains.
    #[error("[E317] model has no BatchNormalization and no Dropout {named}")]
    NothingToEvaluate {
        /// Name or pattern of `eval_mode` that means none, with the modules of those that there are.
        named: String,
    },
    /// An option asks for rows of a parameter of which all are needed.
    #[error("[E264] `{name}` cannot be trained by rows: {reason}")]
    NotByRows {
        /// Constant that `sparse` names in full.
        name: String,
        /// Why all of its rows are needed, or that it is not trained.
        reason: String,
    },
    /// A list of parameters names some that the model does not have.
    #[error("[E260] {origin} names float32 weights that the model does not have: {names}")]
    UnknownParameters {
        /// Which list it is: that of the settings, or that in the model's metadata.
        origin: &'static str,
        /// Unknown names, five at most, each with known ones that are near it.
        names: String,
    },
    /// A list of parameters names some of another type.
    #[error("[E260] {origin} names `{name}`{}, which is {element}: only float32 is trained", and_others(*others))]
    NotFloat32 {
        /// Which list it is: that of the settings, or that in the model's metadata.
        origin: &'static str,
        /// The first of them.
        name: String,
        /// Its element type.
        element: ElementType,
        /// How many more there are.
        others: usize,
    },
    /// A ready-made training graph lacks something.
    #[error("[E318] not a training graph: {reason}")]
    NotReady {
        /// What it lacks or what does not fit, in words.
        reason: String,
    },
    /// Nothing says where a parameter of a ready-made training graph starts.
    #[error("[E261] the training graph has no first values for `{name}`, and no weights are named")]
    NoFirstValues {
        /// Parameter or running statistic, an input of the graph.
        name: String,
    },
    /// The model takes one number of samples, and cannot be changed.
    #[error("[E262] the model takes batches of {size} samples and no others: {reason}")]
    FixedBatch {
        /// First axis of a data input or the label; where inputs differ, of the first that fixes it.
        size: usize,
        /// Why the axis cannot be opened, in words.
        reason: String,
    },
    /// Not the name of a loss.
    #[error("[E319] no loss is called `{name}`, there are {known}")]
    UnknownLoss {
        /// Text that was given.
        name: String,
        /// Names of all losses, with commas between, and the one that was probably meant.
        known: String,
    },
    /// A setting of the loss makes no sense.
    #[error("[E241] loss option `{option}`: {reason}")]
    LossOption {
        /// Field of [`LossOptions`](crate::LossOptions).
        option: &'static str,
        /// Why its value is refused, or that the loss has no such option.
        reason: String,
    },
    /// A node asks for absurd memory.
    #[error("[E248] node `{node}` ({op}) makes {elements} numbers, at most {limit} are accepted")]
    TooLarge {
        /// Operator; `an input` if it is an input of the model.
        op: String,
        /// Name of the node or of its first output, or of the input.
        node: String,
        /// Elements that it makes, open axes counted as 1.
        elements: u64,
        /// Most elements: 2^28 where the shape is a constant of the model, else 2^40.
        limit: u64,
    },
    /// Not the name of a precision.
    #[error("[E471] no precision is called `{name}`, there are f32, tf32, bf16 and fp16")]
    UnknownPrecision {
        /// Text that was given.
        name: String,
    },
    /// The model is in mixed precision already.
    #[error("[E472] value `{value}` has 16 bits already; mixed precision starts from a float32 model")]
    AlreadyHalf {
        /// One value of type float16 or bfloat16; there may be others.
        value: String,
    },
    /// A gradient or a next value does not have the shape of what it is for.
    #[error(
        "[E250] output `{name}` would be {found}, not {expected}: the shapes of the model do not fit each other"
    )]
    ResultShape {
        /// Output that holds the gradient or the next value.
        name: String,
        /// Element type and shape that are inferred for it.
        found: String,
        /// Element type and shape of the parameter or running statistic.
        expected: String,
    },
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
            Self::NoSuchParameter { .. } | Self::NothingToEvaluate { .. } => "E317",
            Self::NotByRows { .. } => "E264",
            Self::UnknownParameters { .. } | Self::NotFloat32 { .. } => "E260",
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
            Self::Compile(source) => source.code(),
        }
    }

    /// What the user can do about it, if there is something.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Unsupported { op, .. } => Some(way_around(op)),
            Self::UnsupportedUse { .. } => Some(
                "do what the text says, where it says it; or write that part of the model with other operators and export it again, or \
                 freeze the weights in front of it with `freeze`, so that no gradient has to flow there",
            ),
            Self::UnknownLoss { .. } | Self::UnknownPrecision { .. } => {
                Some("use one of those that the text lists")
            }
            Self::Opset { .. } => Some("export the model again with opset_version=17"),
            Self::LossShape { .. } => Some(
                "`syncline model show` lists the outputs; where the model computes the loss itself, name the value that the loss is \
                 taken of with --output, or `output` beside the loss",
            ),
            Self::Probabilities { remedy, .. } => Some(&**remedy),
            Self::ReservedName { .. } => Some(
                "rename the value in the model: docs/exporters.md has the lines; --label of `model check` and `model train-graph` \
                 calls the label otherwise, in graphs that no job trains",
            ),
            Self::NumbersInAttributes { .. } => {
                Some("train it in its own framework, or export a model whose weights are tensors")
            }
            Self::AllLeftAlone { reason: HOLDS_NAN, .. } => {
                Some("its training has diverged before it was exported: export it with other weights")
            }
            Self::AllLeftAlone { reason: OTHER_FLOAT, .. } | Self::NotFloat32 { .. } => Some(
                "export model.float(): weights are float32, and `precision` of a job computes in 16 bits where that is safe",
            ),
            Self::AllLeftAlone { .. } => Some(
                "`train` names weights that are to be trained all the same; `syncline model show` lists all",
            ),
            Self::LossOption { .. } => Some(
                "correct it in `loss_options` of the job file, or the flag of that name of `model check` and `model train-graph`, or leave it out; \
                 docs/models.md lists the losses, each with its options",
            ),
            Self::NoParameters => Some("export the model with its weights, as model.float()"),
            Self::AllFrozen { .. } => {
                Some("let `freeze` name fewer of them, or `train` or the list of parameters more")
            }
            Self::NotByRows { .. } => Some(
                "do what the text says, if it says it, or take it off the list of `sparse`: then it is pulled and pushed as other parameters \
                 are, or left alone if it is frozen",
            ),
            Self::NothingToEvaluate { .. } => Some(
                "patterns of `eval_mode` are those of `freeze`, such as `body.*`: they mean normalizations by their tensors, and these and \
                 Dropouts by their modules; what the exporter has folded away needs no mention",
            ),
            Self::UnknownParameters { .. } => Some(
                "exporters leave out what the model does not use, which has to be left out of the list as well, and rename what they \
                 fold: export with optimize=False, or do_constant_folding=False, and list the names of the module that was exported",
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
            Self::Model(source) => return source.hint(),
            Self::Compile(source) => return source.hint(),
            _ => None,
        };
        hint.map(str::to_owned)
    }
}

fn and_others(others: usize) -> String {
    if others == 0 { String::new() } else { format!(" and {others} more") }
}
