//! The engine as its callers meet it: clients, workers and a shard over real connections, and a real Redis.

mod calls;
mod puppet;
mod rig;
mod tasks;
