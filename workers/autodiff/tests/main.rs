//! Gradients, losses and the passes over training graphs, run on ONNX Runtime. One program, so that all tests
//! run beside each other and it is linked once; `hostile` is another one, because what it feeds may end its
//! process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![allow(clippy::type_complexity, reason = "tables of tests are tuples in slices")]

#[path = "support/broadcasts.rs"]
mod broadcasts;
#[path = "support/exported.rs"]
mod exported;
#[path = "support/gradcheck.rs"]
mod gradcheck;
#[path = "support/image.rs"]
mod image;
#[path = "support/one_operator.rs"]
mod one_operator;
#[path = "../../tests/support/onnxruntime.rs"]
mod onnxruntime;
#[path = "support/recurrence.rs"]
mod recurrence;
#[path = "support/seeds.rs"]
mod seeds;
#[path = "support/slopes.rs"]
mod slopes;

mod embedding_rows;
mod empty_selections;
mod eval_parts;
mod functions;
mod graphs;
mod kinks;
mod losses;
mod masked_softmax;
mod models;
mod nchwc_kernels;
mod operator_sets;
mod operators_document;
mod other_floats;
mod own_loss;
mod own_statistics;
mod precision;
mod probabilities;
mod random;
mod recompute;
mod refusals;
mod selection;
mod stop_gradient;
mod vjp;
mod vjp_conv;
mod vjp_elementwise;
mod vjp_indices;
mod vjp_norm;
mod vjp_recurrent;
mod vjp_shapes;
