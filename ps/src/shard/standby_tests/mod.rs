//! A standby that gets the record of a job is the job: whatever happens, in whatever order, and whenever the
//! copy is taken.

mod acknowledging;
mod copying;
mod hostile;
mod rig;
mod sameness;
