//! What the parameter server promises, over real connections: all of it runs over each transport.

mod barrier;
mod checkpoint;
mod checkpoint_parts;
mod clip;
mod clocks;
mod compression;
mod garbled;
mod groups;
mod hostile;
mod interleavings;
mod lent;
mod outside;
mod push;
mod rig;
mod rows;
mod seal;
mod silent;
mod stop;
mod storage;
