//! Reverse-mode differentiation of ONNX models, ONNX in and ONNX out.
//!
//! [`derive()`] takes a forward model and a loss and returns a *training graph*: standard ONNX operators that compute
//! the loss, its gradient for every parameter, and metrics, so that an ordinary ONNX Runtime trains the model. The
//! steps, one file each:
//!
//! 1. `forward` — weights become inputs, constants are folded, every value gets a type (by ONNX Runtime).
//! 2. `loss` — the loss and its gradient for the model's output.
//! 3. `sweep` — from the loss back to the parameters: each node's rule turns gradients of its outputs into
//!    gradients of its inputs. A value that is read twice gets the sum.
//! 4. `emitter` — where rules write their nodes: equal nodes are made once, nodes that nothing needs are dropped.
//!
//! The rules live in `rules/`, one operator per file, listed in one table. To teach Syncline an operator: write the
//! file, add the line, add a row to the table of `tests/autodiff_rules.rs`, which checks it against finite
//! differences. [`accept_ready`] takes a training graph that somebody else has made.
//!
//! # Names in a training graph
//!
//! | name | what |
//! |---|---|
//! | `label` | input; int64 `[batch]` for softmax cross-entropy, else float with the shape of the model's output |
//! | each parameter, under its own name | input |
//! | `loss` | output; mean over the samples, a scalar |
//! | `loss_weight` | output; the sum of the samples' weights (here their number), a scalar |
//! | `<parameter>.grad` | output; gradient of `loss`, the parameter's shape |
//! | `correct` | output for classification; number of right predictions, a float scalar |
//! | the forward model's outputs | under their own names |

mod broadcast;
mod derive;
mod emitter;
mod error;
mod forward;
mod group_norm_form;
mod loss;
mod ready;
mod rules;
mod sweep;
mod training_form;

pub use derive::{DeriveOptions, Io, Param, TrainingGraph, derive};
pub use error::AutodiffError;
pub use loss::Loss;
pub use ready::accept_ready;
pub use rules::supported_operators;
pub use training_form::{NEXT_SUFFIX, Statistic};

/// Input that holds the wanted answers.
pub const LABEL: &str = "label";
/// Output: mean loss.
pub const LOSS: &str = "loss";
/// Output: sum of sample weights.
pub const LOSS_WEIGHT: &str = "loss_weight";
/// Output: number of right predictions.
pub const CORRECT: &str = "correct";
/// What follows a parameter's name in the name of its gradient.
pub const GRAD_SUFFIX: &str = ".grad";
