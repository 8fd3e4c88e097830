//! Messages to the decision loop.

use syncline_scheduler::core::{Core, Input};
use tokio::sync::oneshot;

use crate::rpc::EngineFault;

/// One message to the decision loop.
pub(super) enum Message {
    Input(Input),
    /// An input whose sender waits for the commit.
    Request(Input, oneshot::Sender<Result<(), EngineFault>>),
    /// Looks at what is committed.
    Query(Box<dyn FnOnce(&Core) + Send>),
    /// Another engine is active: stop.
    Deposed,
}
