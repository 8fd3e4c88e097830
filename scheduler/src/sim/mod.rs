//! The policies on a virtual clock: what a cluster would do, before there is one.
//!
//! A discrete-event simulation that drives the same [`Policy`](crate::sync::Policy) through the same trait as the
//! core does. Control costs no time, a worker has one iteration in hand, and pulls and pushes take what the scenario
//! says. Draws depend on the seed, the worker and the number of the iteration only, so that policies are compared on
//! the same machines in the same weather. Pure.
//!
//! A worker *waits* from the end of an iteration to the start of its next one. Measured on one core: 2 to 5
//! million iterations a second with four workers (`benches/sim.rs`).

mod meeting;
mod outcome;
mod plot;
mod run;
mod scenario;
mod timeline;
mod worker;

pub use outcome::{Outcome, WorkerOutcome};
pub use plot::plot;
pub use run::simulate;
pub use scenario::{Burst, InvalidScenario, Scenario, WorkerModel};
pub use timeline::{Bar, Timeline};
