//! Optimizers: one fused pass over a slice of parameters, its state and its gradient.
//!
//! Elementwise, so any cut of the parameters gives the same result. The rules are those of
//! [`syncline_scheduler::spec::Optimizer`]; `scale` multiplies the gradient before anything else (clipping,
//! or the weight of a mean). Each slice counts its own steps for Adam's bias correction, so that a chunk
//! which missed a torn push stays consistent with itself. Results are the same bits on every x86-64 machine:
//! the wide variants use no fused multiply-add.
//!
//! | rule | state per element | bytes moved per element |
//! |---|---|---|
//! | SGD | none | 12 |
//! | momentum, Nesterov | 1 f32 | 20 |
//! | Adam, AdamW | 2 f32 | 28 |
//! | RMSprop | 1 f32, with momentum or centered 2 f32 | 20, 28 |

mod kernels;
mod norm;
mod slice_rule;
mod state;
mod step;
pub(crate) mod vectorize;

pub use kernels::add_to_mean;
pub(crate) use kernels::{axpy, lerp, scale_and_add, scale_into};
pub use norm::gradient_norm;
pub(crate) use norm::squares;
pub(crate) use slice_rule::{SliceRule, SliceStep};
pub use state::OptimizerState;
pub use step::{StepFactors, step};
