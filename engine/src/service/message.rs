//! Messages to the decision loop.

use syncline_scheduler::core::Input;
use tokio::sync::oneshot;

use crate::rpc::EngineFault;

/// One message to the decision loop.
pub(super) enum Message {
    Input(Input),
    /// An input whose sender waits for the commit.
    Request(Input, oneshot::Sender<Result<(), EngineFault>>),
    /// Another engine is active: stop.
    Deposed,
}
