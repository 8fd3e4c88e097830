//! What the example programs have in common: flags, a cluster in this process, a bar while it trains, a
//! report.

mod cluster;
mod flags;
mod progress;
mod report;

pub use cluster::show;
pub use flags::{Extent, Flags, Policy};
