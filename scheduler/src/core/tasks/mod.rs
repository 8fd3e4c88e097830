//! Jobs of general tasks: graphs that grow while they run, leases, attempts, values, and who gets which task.
//!
//! A task is leased once every input that another worker computes is there; for inputs that the same worker
//! holds, it waits in that worker. A task may be tried again; training iterations, which must not be, are the
//! business of the other modules of [`core`](super).

mod adding;
mod alone;
mod attempt_events;
mod avoidance;
mod backoff;
mod canceling;
mod canceling_task;
mod catching;
mod changes;
mod checking;
mod commit;
mod differences;
mod ending;
mod giving_back;
mod graph;
mod inputs;
mod invalid;
mod job;
mod last_runs;
mod lease_builder;
mod leasing;
mod load;
mod orders;
mod queue_limit;
mod ready_class;
mod reconstruction;
mod record;
mod returned;
mod settling;
mod summary;
mod trained;
mod training;
mod values;
mod views;
mod why_not_given;
mod worker_load;

pub use checking::GraphCheck;
pub use graph::MAX_TASKS;
pub use invalid::InvalidGraph;
pub use job::TaskJob;
pub(super) use leasing::TaskAssigner;
pub(super) use summary::waits_to_be_resumed;
pub use trained::Trained;
pub(super) use training::ParentTask;
