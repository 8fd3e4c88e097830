//! Policies on a virtual clock, which need no cluster, and measurements, which start one of their own.

pub(crate) mod bench;
pub(crate) mod plan;
pub(crate) mod simulate;
