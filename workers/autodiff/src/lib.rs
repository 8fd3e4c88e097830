//! Reverse-mode differentiation of ONNX models, ONNX in and ONNX out.
//!
//! [`derive()`] takes a forward model and a loss and returns a *training graph*: standard ONNX operators that
//! compute the loss, its gradient for every parameter, and metrics, so that an ordinary ONNX Runtime trains
//! the model. The steps, one file each:
//!
//! 1. `forward` — weights become inputs, constants are folded, every value gets a type (by ONNX Runtime).
//! 2. `loss/` — the loss and its gradient for the model's output, one file per family.
//! 3. `backward` — from the loss back to the parameters: each node's rule (its vector-Jacobian product, VJP)
//!    turns gradients of its outputs into gradients of its inputs. A value that is read twice gets the sum.
//! 4. `emitter` — where rules write their nodes: equal nodes are made once, nodes that nothing needs are
//!    dropped.
//!
//! The rules live in `vjp/`, an operator or a family of like ones per file, listed in one table. To teach
//! Syncline an operator: write the rule, add the line, add a case to one of `tests/vjp*.rs`, which check it
//! against finite differences. [`accept_ready`] takes a training graph that somebody else has made.
//!
//! # Names in a training graph
//!
//! | name | what |
//! |---|---|
//! | `label`, or another name from the options | input; int64 for softmax cross-entropy, else float with the shape of the model's output |
//! | each parameter, under its own name | input |
//! | `loss_scale` | input of a float16 graph, with a default; a float scalar, see [`Precision`] |
//! | `loss` | output; weighted mean over the labels, a scalar |
//! | `loss_weight` | output; the sum of the labels' weights, a scalar |
//! | `<parameter>.grad` | output; gradient of `loss`, the parameter's shape |
//! | `correct` | output for classification; number of right predictions, a float scalar |
//! | `predictions` | output; number of predictions, where it is not that of the samples |
//! | `correct_topk`, `perplexity`, `log_perplexity` | outputs on request, see [`LossOptions`] |
//! | the forward model's outputs | under their own names |

#![cfg_attr(test, allow(clippy::type_complexity, reason = "tables of tests are tuples in slices"))]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod axis;
mod backward;
mod broadcast;
mod catalogue;
mod derive;
mod einsum;
mod embedding_rows;
mod emitter;
mod error;
mod estimate;
mod forward;
pub mod glob;
mod loss;
mod options;
mod param_list;
mod precision;
mod ready;
mod recompute;
mod row_tables;
mod sample_mixing;
mod sizes;
mod trained_names;
mod training_graph;
mod vjp;
mod warnings;

pub use catalogue::{NONE_NEEDED, REFUSED, REWRITTEN, Support, support};
pub use derive::derive;
pub use embedding_rows::rows_of_tables;
pub use error::AutodiffError;
pub use estimate::{Estimate, estimate};
pub use forward::{
    NEXT_SUFFIX, NORMALIZED_BY, Selected, Statistic, TRAINABLE, TiedNames, close_sizes, inference_form,
    parse_forward, refuse_unloaded, select, stops_gradient, with_columns,
};
pub use loss::{ClassWeights, Loss, LossOptions, sigmoid_outputs};
pub use options::{DeriveOptions, EvalMode};
pub use param_list::names_of;
pub use precision::{FIRST_LOSS_SCALE, Precision};
pub use ready::accept_ready;
pub use recompute::{NOMINAL_AXIS, Saving};
pub use row_tables::{RowTables, possible_row_tables};
pub use sizes::sizes;
pub use trained_names::TrainedNames;
pub use training_graph::{Io, Param, TrainingGraph};
pub use vjp::{float64_form, supported_operators};
pub use warnings::{unknown_dropout, warnings};

/// Input that holds the wanted answers, unless the options name another.
pub const LABEL: &str = "label";
/// Output: mean loss.
pub const LOSS: &str = "loss";
/// Output: sum of sample weights.
pub const LOSS_WEIGHT: &str = "loss_weight";
/// Input of a training graph in float16: what the gradients inside are multiplied by. Has a default.
pub const LOSS_SCALE: &str = "loss_scale";
/// Output: number of right predictions.
pub const CORRECT: &str = "correct";
/// Output: number of predictions among which `correct` counts the right ones.
pub const PREDICTIONS: &str = "predictions";
/// Output of an evaluation graph, int64: of each label the class with the highest score, or 1 where the score
/// of a label is above that of its absence.
pub const PREDICTED: &str = "label.predicted";
/// Output: exp of the mean negative log-likelihood; infinite from a mean of 88.7 on, as float32 has it.
pub const PERPLEXITY: &str = "perplexity";
/// Output: the mean negative log-likelihood, which is finite where `perplexity` is not.
pub const LOG_PERPLEXITY: &str = "log_perplexity";
/// What precedes k in the name of the output that counts labels among the k best scores.
pub const CORRECT_TOP: &str = "correct_top";

/// Whether an output is called [`CORRECT_TOP`] and a number.
pub fn is_correct_top(output: &str) -> bool {
    output.strip_prefix(CORRECT_TOP).is_some_and(|k| k.parse::<u32>().is_ok())
}
/// What follows a parameter's name in the name of its gradient.
pub const GRAD_SUFFIX: &str = ".grad";
