//! Jobs as a user would write them, one file each: those that train, three of general tasks, [`words`],
//! [`integral`] and [`classify`], and [`sweep`], which is of both.
//! The programs are in `examples/` and `src/bin`, the end-to-end tests in `tests/`.
//!
//! [`show`] is what the programs have in common: a cluster in this process, a bar while it trains, a report.

pub mod chargpt;
pub mod cifar10;
pub mod classify;
pub mod digits;
mod files;
pub mod integral;
pub mod mnist;
pub mod recommender;
mod run;
pub mod show;
pub mod sweep;
pub mod words;

pub use files::{MissingData, model};
pub use run::Run;
