//! One file of a job, which `status`, `tasks`, `events`, `explain` and `metrics` read where there is no
//! cluster.
//!
//! Lines of JSON: what the file is, the job, its events, then its general tasks, or its loss curve, its
//! evaluations and the explanations of its barriers and tasks, and a last line that says how long all before
//! it is. So a graph of any size is written and read with no more than a page of it in memory, and a file
//! that was cut is known without reading it.
//!
//! It holds what the engine answers, not what is printed: a loss that is not a number has no form in JSON,
//! and stays text here.

mod error;
mod line;
mod reader;
mod writer;

pub(crate) use error::ExportError;
pub(crate) use line::Line;
pub(crate) use reader::Export;
pub(crate) use writer::{STDOUT, Writer};
