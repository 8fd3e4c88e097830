//! Messages to the decision loop, and what those inputs are about.

use syncline_rpc::EngineFault;
use syncline_scheduler::{
    core::{Core, Input},
    ids::JobId,
};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// One message to the decision loop.
pub(super) enum Message {
    Input(Input),
    /// An input whose sender waits for the commit.
    Request {
        input: Input,
        reply: oneshot::Sender<Result<(), EngineFault>>,
        /// Its place in the queue, until it is handled.
        _room: OwnedSemaphorePermit,
    },
    /// Looks at what is committed.
    Query {
        look: Box<dyn FnOnce(&Core) + Send>,
        /// Its place in the queue, until it is handled.
        _room: OwnedSemaphorePermit,
    },
    /// Another engine is active: stop.
    Deposed,
}

/// The job that an input brings in, and whether it may replace another.
pub(super) fn submitted(input: &Input) -> Option<(&JobId, bool)> {
    match input {
        Input::Submit(submission) => Some((&submission.spec.id, submission.replace)),
        Input::SubmitGraph(submission) => Some((&submission.spec.id, submission.replace)),
        _ => None,
    }
}

/// How many general tasks an input is about.
pub(super) fn general_tasks(input: &Input) -> usize {
    match input {
        Input::TasksEnded { groups, .. } => groups.iter().map(|group| group.ended.len()).sum(),
        Input::SubmitGraph(submission) => submission.spec.tasks.len(),
        Input::ExtendGraph { tasks, .. } => tasks.len(),
        _ => 0,
    }
}
