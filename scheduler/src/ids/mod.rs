//! Identities. Each is a type of its own, so that a worker can never be taken for a task.

pub mod as_text;
mod content_digest;
mod job_ref;
mod name;
mod number;
mod run;
mod submission;

pub use content_digest::{ContentDigest, InvalidContentDigest};
pub use job_ref::JobRef;
pub use name::{InvalidName, JobId, MAX_NAME_BYTES, Name, NodeName};
pub use number::{EngineEpoch, Incarnation, ProcessId, RegistrationId, ShardIndex, StateDirId, Superstep};
pub(crate) use run::MOST_LOST;
pub use run::{Generation, RunId};
pub use submission::SubmissionId;
