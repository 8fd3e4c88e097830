//! What becomes of each operator on the way from a parameter to the loss.

use crate::vjp::supported_operators;

/// What becomes of an operator that reads a parameter, or something computed from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// It has a gradient rule.
    Gradient,
    /// It is turned into operators that have one before gradients are derived.
    Rewritten,
    /// Its result is no smooth function of its inputs: nothing flows through it, and nothing has to.
    NoneNeeded,
    /// It is refused, for this reason.
    Refused(&'static str),
    /// It has no rule: refused where a gradient would have to flow through it.
    Unknown,
}

/// What becomes of the standard operator `op`.
pub fn support(op: &str) -> Support {
    if supported_operators().contains(&op) {
        return Support::Gradient;
    }
    match refusal(op) {
        Some(reason) => Support::Refused(reason),
        None if NONE_NEEDED.contains(&op) => Support::NoneNeeded,
        None if REWRITTEN.contains(&op) => Support::Rewritten,
        None => Support::Unknown,
    }
}

/// Operators that are turned into others: sequences that are split and read back become a Split, losses their
/// formula.
pub const REWRITTEN: &[&str] =
    &["NegativeLogLikelihoodLoss", "SequenceAt", "SoftmaxCrossEntropyLoss", "SplitToSequence"];

/// Operators whose results do not depend on the values of float inputs, or not as floats.
pub const NONE_NEEDED: &[&str] = &[
    "And",
    "ArgMax",
    "ArgMin",
    "BitShift",
    "BitwiseAnd",
    "BitwiseNot",
    "BitwiseOr",
    "BitwiseXor",
    "Constant",
    "Equal",
    "Greater",
    "GreaterOrEqual",
    "IsInf",
    "IsNaN",
    "Less",
    "LessOrEqual",
    "NonMaxSuppression",
    "NonZero",
    "Not",
    "Or",
    "RandomNormal",
    "RandomUniform",
    "SequenceLength",
    "Shape",
    "Size",
    "Xor",
];

/// Operators that are refused on the way from a parameter to the loss, with the reason.
pub const REFUSED: &[(&str, &str)] =
    &[("If", CONTROL), ("Loop", CONTROL), ("Scan", CONTROL), ("SequenceMap", CONTROL)];

const CONTROL: &str =
    "no gradient flows through control flow; export the model with the branch taken or the loop unrolled";

/// Why the operator is refused, if it is.
pub(super) fn refusal(op: &str) -> Option<&'static str> {
    REFUSED.iter().find(|(name, _)| *name == op).map(|(_, reason)| *reason)
}

/// What can be done about an operator without a rule; those of other domains are written `domain.Operator`.
pub(super) fn way_around(op: &str) -> &'static str {
    const SEQUENCES: [&str; 5] =
        ["ConcatFromSequence", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert"];
    match op {
        _ if op.starts_with("com.microsoft.") || op.starts_with("com.ms.") => {
            "ONNX Runtime's own operators are made by its optimizer; submit the model as its framework exports it"
        }
        _ if op.starts_with("ai.onnx.ml.") => {
            "classical models are no smooth functions of their numbers; train them with the tool that made them"
        }
        _ if op.contains("Quant") || op.ends_with("Integer") || op.starts_with("QLinear") => {
            "quantized numbers have no gradient; export the model before it is quantized"
        }
        _ if SEQUENCES.contains(&op) => {
            "stack tensors instead of collecting them in a list (torch.stack, torch.cat), and export the model again"
        }
        _ => {
            "three ways: write that part with operators of docs/operators.md and export again; freeze the weights in \
             front of it with `freeze`; or submit a training graph of your own with `model.ready`"
        }
    }
}
