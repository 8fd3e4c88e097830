//! What the parameter server promises, over real connections: each of `contract_tcp.rs`, `contract_unix.rs` and
//! `contract_shm.rs` runs all of it over one transport.

mod barrier;
mod checkpoint;
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
