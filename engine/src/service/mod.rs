//! The engine as a service: one loop that decides, everything else moves messages.
//!
//! What can be tested alone is tested beside its code. What needs callers and a Redis is in `engine/tests`:
//! the handlers and their context in `service/calls.rs`, the decision loop over crashes in
//! `service/tasks.rs`, loading and damaged jobs in `service/damage.rs`, leadership in `lead.rs` and
//! `lead_and_numbers.rs`.

mod arrival;
mod attach;
mod blob_check;
mod blob_gc;
mod blob_release;
mod checkpoints;
mod client_handler;
mod clock;
mod closings;
mod cluster_watch;
mod commits;
mod context;
mod damaged_jobs;
mod decision_loop;
mod dispatcher;
mod expiry_clock;
#[cfg(test)]
mod fake_shard;
mod folder_gc;
mod job_directory;
mod job_ends;
mod job_list;
mod job_log;
mod job_reading;
mod last_commit;
mod lateness_log;
mod lead;
mod leadership;
mod lease_renewal;
mod liveness;
mod load_progress;
mod loading;
mod loop_pulse;
mod message;
mod name_watch;
mod options;
mod order_log;
mod outbox;
mod poll;
mod predecessors;
mod queue;
mod returned_jobs;
mod role_log;
mod run;
mod run_work;
mod sessions;
mod shard_calls;
mod shard_control;
mod shard_handler;
mod shard_notes;
mod shard_orders;
mod shard_slots;
mod shards;
mod shared_parts;
mod snapshots;
mod standstill;
mod store_outage;
mod watched_lease;
mod worker_handler;
mod worker_status;

pub use options::{EngineOptions, Limits};
pub use run::{BugWatch, EngineError, EngineHandle, LeadWatch, start};
