//! Trainings as files of events, which TensorBoard reads: a folder for each job.
//!
//! An event file is a sequence of framed protobuf messages, `tensorflow.Event`, of which four fields and
//! their tags are all that a curve takes, so they are written by hand. Source of the format:
//! `tensorboard/compat/proto/{event,summary}.proto` and `tensorboard/summary/writer/record_writer.py` of
//! TensorBoard.

mod event;
mod folder;
mod record;
mod scalars;

pub(super) use folder::RunFolder;
