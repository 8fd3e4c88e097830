//! Jobs: submitted, listed, followed, explained, ended. Every command asks the engine, but for those that
//! read an export.

pub(crate) mod cancel;
pub(crate) mod checkpoint;
mod checkpoint_parts;
pub(crate) mod delete;
pub(crate) mod events;
pub(crate) mod explain;
mod explain_job;
pub(crate) mod export;
pub(crate) mod gc;
pub(crate) mod list;
pub(crate) mod loss_curves;
pub(crate) mod metrics;
pub(crate) mod pause;
pub(crate) mod predict;
mod preview;
mod problem;
mod several;
mod source;
pub(crate) mod status;
pub(crate) mod submit;
pub(crate) mod sweep;
mod task_name;
pub(crate) mod tasks;
pub(crate) mod watch;
pub(crate) mod workers;
