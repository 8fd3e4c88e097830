//! The engine as its callers meet it: clients, workers and a shard over real connections, and a real Redis.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod calls;
mod puppet;
mod rig;
mod tasks;
