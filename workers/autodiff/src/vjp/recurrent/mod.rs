//! LSTM, GRU and RNN: the fused recurrences, differentiated through time.
//!
//! The forward node stays as it is, and every hidden state can be read from its output. So the gates of all
//! steps are computed again at once, A = X W^T + H R^T + b, one product over steps x batch rows, where H
//! holds for each step the state before it. What each step multiplies gradients by follows from them
//! elementwise, for all steps at once as well. Only the way back through time is one step after the other: a
//! `Scan` ([`steps`]), with a few elementwise operations and one product with R in each. It gives dA of all
//! steps, and with it dW = dA^T X, dR = dA^T H, db = sum dA, dX = dA W are one product each.
//!
//! A node that goes both ways is two passes ([`pass`]); one in reverse reads the same rows from the last to
//! the first. Samples that end earlier (`sequence_lens`) have gradients of 0 behind their end, and states
//! pass through these steps. Source: Hochreiter and Schmidhuber, Long short-term memory,
//! doi:10.1162/neco.1997.9.8.1735; Cho et al., arXiv:1406.1078, for the GRU; the one product over all steps:
//! Appleyard et al., arXiv:1604.01946.

mod back;
mod forward;
mod gru;
mod lstm;
mod node;
mod pass;
mod rnn;
mod steps;

pub(super) use forward::written_out;
pub(super) use gru::rule as gru;
pub(super) use lstm::rule as lstm;
pub(super) use rnn::rule as rnn;
