//! What the parameter server promises, over real sockets.

mod barrier;
mod hostile;
mod interleavings;
mod push;
mod rig;
mod seal;
mod storage;
