//! The policies on a virtual clock: what a cluster would do, before there is one.
//!
//! A discrete-event simulation of what surrounds a [`Core`](crate::core::Core): the same state machine as the
//! engine's opens supersteps, plans them, grants iterations and closes barriers; simulated workers and a
//! [`ParameterServerModel`] carry out its effects at once. Control costs no time, and pulls and pushes take
//! what the scenario says. Draws depend on the seed, the worker and the number of the iteration only, so that
//! policies are compared on the same machines whose speed varies in the same way. Pure.
//!
//! General tasks have no simulation, because nothing is predicted of them: a [`TaskPlane`] drives a core with
//! them.
//!
//! A worker *waits* from the end of an iteration to the start of its next one.

mod control_plane;
mod job;
mod outcome;
mod parameter_server;
mod run_statistics;
mod scenario;
mod shell;
mod simulation;
mod task_plane;
mod timeline;
mod worker;

pub use control_plane::ControlPlane;
pub use job::{training, training_job};
pub use outcome::{Outcome, WorkerOutcome};
pub use parameter_server::{ParameterServerModel, ShardModel};
pub use scenario::{Burst, InvalidScenario, Scenario, WorkerModel};
pub use shell::{NoStore, Shell};
pub use simulation::{Simulation, simulate};
pub use task_plane::{TaskPlane, graph_submission, new_task, task_end, tasks_ended};
pub use timeline::{Bar, Timeline};
