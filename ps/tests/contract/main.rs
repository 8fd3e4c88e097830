//! What the parameter server promises, over real sockets.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

mod barrier;
mod clip;
mod clocks;
mod hostile;
mod interleavings;
mod outside;
mod push;
mod rig;
mod seal;
mod silent;
mod stop;
mod storage;
