//! Why an attempt at a call failed.

use syncline_ps::PsError;
use syncline_rpc::{MAX_TEXT_CHARS, shortened, threads::NoThread};
use syncline_scheduler::{
    fault_code::FaultCode,
    ids::ContentDigest,
    tasks::{Failure, FailureCause, LostValues, Outcome},
};

/// Why an attempt at a call failed. The texts are what people see of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CallFault {
    #[error("[E440] {function} failed: {reason}")]
    Returned { function: String, reason: String, is_retryable: bool },
    #[error("[E441] {function} panicked at {location}: {message}")]
    Panicked { function: String, location: String, message: String },
    #[error(
        "[E442] {function} cannot read its arguments as the {types} that this worker was built with: {cause}"
    )]
    Decode { function: String, types: String, cause: String },
    #[error("[E443] {function} ran longer than {limit_ms} ms")]
    TooLong { function: String, limit_ms: u64 },
    #[error("[E444] what {function} returned cannot be encoded: {cause}")]
    Encode { function: String, cause: String },
    #[error("[E445] {function} gives what a task gives that it did not add")]
    OtherGraph { function: String },
    /// It is given to another worker, or comes with a value.
    #[error("[E446] this worker has not what {function} was to find here: {what}")]
    Missing { function: String, what: String },
    #[error("[E448] {function} adds {calls} calls of {bytes} bytes, more than travel in one message")]
    TooMuchAdded { function: String, calls: usize, bytes: usize },
    #[error(transparent)]
    Store(#[from] PsError),
    /// Arguments with these digests are on none of the shards; what was said of one of them.
    #[error("{error}")]
    ArgumentsLost { digests: Vec<ContentDigest>, error: PsError },
    /// The function, or what it called, panicked for want of a thread.
    #[error(transparent)]
    NoThread(#[from] NoThread),
    /// A function of our own failed. The text begins with the code.
    #[error("{reason}")]
    Own { code: FaultCode, cause: FailureCause, reason: String },
}

impl CallFault {
    /// The stable code, see docs/errors.md.
    fn code(&self) -> FaultCode {
        FaultCode::new(match self {
            Self::Returned { .. } => "E440",
            Self::Panicked { .. } => "E441",
            Self::Decode { .. } => "E442",
            Self::TooLong { .. } => "E443",
            Self::Encode { .. } => "E444",
            Self::OtherGraph { .. } => "E445",
            Self::Missing { .. } => "E446",
            Self::TooMuchAdded { .. } => "E448",
            Self::Store(error) | Self::ArgumentsLost { error, .. } => error.code(),
            Self::NoThread(error) => error.code(),
            Self::Own { code, .. } => return *code,
        })
    }

    fn cause(&self) -> FailureCause {
        match self {
            Self::Missing { .. } | Self::Store(_) | Self::ArgumentsLost { .. } | Self::NoThread(_) => {
                FailureCause::Worker
            }
            Self::Own { cause, .. } => *cause,
            _ => FailureCause::Function,
        }
    }
}

impl From<CallFault> for Outcome {
    fn from(fault: CallFault) -> Self {
        // A function may say as much as it likes.
        let reason = shortened(fault.to_string(), MAX_TEXT_CHARS);
        let failure = Failure { cause: fault.cause(), code: fault.code(), reason };
        match fault {
            CallFault::Returned { is_retryable: false, .. } => Self::FailedForGood(failure),
            CallFault::ArgumentsLost { digests, .. } => {
                Self::ArgumentsLost(Box::new(LostValues { digests, failure }))
            }
            _ => Self::Failed(failure),
        }
    }
}
