//! The processes of a cluster, and the one that starts them all.

pub(crate) mod engine;
pub(crate) mod ps;
mod redis_wait;
pub(crate) mod up;
pub(crate) mod worker;
