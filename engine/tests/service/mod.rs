//! The engine as its callers meet it: clients, workers and a shard over real connections, and a real Redis.

mod calls;
mod damage;
mod full_store;
mod later_release;
mod lost_workers;
mod returned_jobs;
mod rig;
mod scripted_worker;
mod takeover;
mod tasks;
