//! General tasks: calls of the functions that this worker's binary has registered.
//!
//! Orders come with the poll, `held` says which of them may begin, threads of the [`Pool`] run them, and what
//! has ended waits in `reports` for the call that is under way.

mod attempt;
mod held;
mod input;
mod kept_values;
mod patient_store;
mod pool;
mod reports;
mod retelling;
mod running;
#[cfg(test)]
mod tests;
mod threads;
mod value_cache;

pub(super) use attempt::CallEnvironment;
pub(super) use pool::Pool;
pub(super) use reports::Batch;
pub(super) use retelling::Retelling;
pub(super) use running::{GivenUp, STUCK_AFTER};
