//! Policies on a virtual clock: they need the scheduler only, no cluster.

pub(crate) mod bench;
pub(crate) mod plan;
pub(crate) mod simulate;
