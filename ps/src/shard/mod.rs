//! What one process keeps of one job, and the rules that make every push count exactly once. No network here.
//!
//! | concern | rule |
//! |---|---|
//! | push key | (generation, incarnation, seq), seq from 1 |
//! | acceptance | seq = watermark + iterations covered; at or below: acknowledged without applying; else refused |
//! | resumption | a push cut off goes on at the first chunk not yet applied, whatever connection brings it |
//! | completion | watermark and push counter move when the last chunk is in, never before |
//! | seal | once it has answered, no byte of that incarnation is applied |
//! | barrier | orders close strictly by superstep, when every rostered watermark has reached its last seq |
//! | update | each push says whether it is a step of its own or joins the round that the next barrier applies |
//! | version | number of closed barriers; pulls wait for it without spinning |
//! | clock | base + watermark of each worker on the engine's roster; pulls may wait for the lowest |
//! | table | a push brings the rows of its batch; nothing else of a table is read, stepped or walked over |
//! | lending | a worker on this machine reads values where they lie; nobody writes there until it gives them back |
//! | stop | what was acknowledged is in the saved job, filter by filter and chunk by chunk; a saved job is read once |
//! | end | a cancel, a newer generation or a seal wakes those who wait, with a typed fault |
//! | standby | gets every change in its order, and nobody is told of one that it lacks |
//!
//! Locks are taken in this order and never held across I/O that can block: the gate of changes, filter (one
//! incarnation), state (one job), readers of lent values, chunk (256 KiB), record of changes.

mod barrier;
mod checkpoint;
mod chunk;
mod chunk_rules;
mod clip;
mod clocks;
mod event_count;
mod fence;
mod framed;
mod job;
mod job_end;
mod job_state;
mod job_table;
mod lent;
mod pull;
mod push;
mod push_filter;
mod replicate;
mod resumed;
mod room;
mod rows;
mod saved;
mod sealed;
mod settings;
mod standby_copy;
mod standby_log;
mod standby_op;
mod standby_record;
#[cfg(test)]
mod standby_tests;

pub use chunk::CHUNK_ELEMENTS;
pub use lent::SlotShape;
pub use pull::ReadCondition;
pub use push::{PushAck, PushCursor, PushHeader};
pub use standby_op::{StandbyOp, read_op};

pub(crate) use checkpoint::CheckpointPart;
pub(crate) use fence::EpochFence;
pub(crate) use job::JobShard;
pub(crate) use job_end::JobEnd;
pub(crate) use job_table::{AsideJob, JobTable};
pub(crate) use pull::ReadGrant;
pub(crate) use push::{Admission, PushedChunk};
pub(crate) use rows::copy_pieces;
pub(crate) use settings::{check_settings, part_bytes};
pub(crate) use standby_record::{Batch, Entry, StandbyMark, Term};
