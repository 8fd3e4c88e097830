//! Why a call of a client failed.

use syncline_rpc::{
    CallError, EngineFault, InactiveReason,
    hello::HelloError,
    status::{JobPhase, JobStatus, UnknownFields},
};
use syncline_scheduler::{fault_code::FaultCode, ids::JobId};

use super::weights::after_loss;

/// Why a call of a client failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No engine is there, or it turned the connection away, or the connection was lost.
    #[error("[E300] no connection to the engine at {address}")]
    Unreachable {
        /// With several engines all their addresses.
        address: String,
        /// What the last try came to.
        #[source]
        source: CallError,
    },
    /// The engine has a bug, at which the call failed.
    #[error(transparent)]
    Panicked(CallError),
    /// The call is larger than a message may be, and was not sent.
    #[error(transparent)]
    TooLarge(CallError),
    /// The engine has answered, and does not do it.
    #[error(transparent)]
    Refused(#[from] EngineFault),
    /// Engine and client are of different releases.
    #[error(transparent)]
    UnknownFields(#[from] UnknownFields),
    /// A job that was waited for.
    #[error("[E506] job {job} failed: {reason}")]
    JobFailed {
        /// Id of the job.
        job: JobId,
        /// Stable, such as `E351`; empty if the engine gave none.
        code: String,
        /// Begins with the code.
        reason: String,
    },
    /// A job that was waited for, and that somebody has canceled.
    #[error("[E507] job {job} was canceled{}", .reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default())]
    JobCanceled {
        /// Id of the job.
        job: JobId,
        /// As whoever canceled it said.
        reason: Option<String>,
    },
    /// A job that was waited for is done, and its last weights could not be written.
    #[error("[E642] job {job} is done, and its last weights are lost: {reason}")]
    WeightsLost {
        /// Id of the job.
        job: JobId,
        /// Begins with the code of what became of them.
        reason: String,
    },
}

impl ClientError {
    /// What became of a job that is over.
    ///
    /// # Errors
    /// E506 if it failed or is damaged, E507 if it was canceled, E642 if it is done and its weights are lost.
    pub fn of_outcome(job: &JobStatus) -> Result<(), Self> {
        let (id, code) = (job.id.clone(), job.code.clone().unwrap_or_default());
        match job.state {
            JobPhase::Canceled => Err(Self::JobCanceled { job: id, reason: job.reason.clone() }),
            JobPhase::Failed | JobPhase::Damaged => {
                Err(Self::JobFailed { job: id, code, reason: job.coded_reason().unwrap_or_default() })
            }
            _ => match job.weights_lost.clone() {
                Some(reason) => Err(Self::WeightsLost { job: id, reason }),
                None => Ok(()),
            },
        }
    }

    /// Whether the engine, or a shard that it needs, is away for a while: nobody answers, or nobody leads.
    pub(super) fn is_away(&self) -> bool {
        match self {
            Self::Unreachable { source, .. } => source.is_passing(),
            Self::Refused(EngineFault::NotActive { why: InactiveReason::Store { .. } }) => false,
            Self::Refused(fault) => matches!(
                fault,
                EngineFault::NotActive { .. }
                    | EngineFault::MissingShards { .. }
                    | EngineFault::SilentShard { .. }
            ),
            _ => false,
        }
    }

    /// Whether nothing was asked yet: another engine may be asked instead.
    pub(super) fn was_not_asked(&self) -> bool {
        match self {
            Self::Unreachable { source: CallError::Hello(_), .. } => self.is_passing(),
            Self::Unreachable { .. } => false,
            Self::Refused(fault) => matches!(fault, EngineFault::NotActive { .. }),
            _ => false,
        }
    }

    /// Whether another engine may do what this one did not.
    pub(super) fn may_ask_another(&self) -> bool {
        self.was_not_asked() || matches!(self, Self::Refused(EngineFault::Store { .. }))
    }

    /// Whether the same call may succeed later: the engine is away, or Redis does not do its part.
    pub fn is_passing(&self) -> bool {
        use EngineFault::{NotActive, Store};
        self.is_away() || matches!(self, Self::Refused(Store { .. } | NotActive { .. }))
    }

    /// The stable code, as in the message; that of a job that failed is beside it, in `code`.
    pub fn code(&self) -> FaultCode {
        FaultCode::new(match self {
            Self::Unreachable { .. } => "E300",
            Self::Panicked(source) | Self::TooLarge(source) => source.code(),
            Self::Refused(fault) => return fault.code(),
            Self::UnknownFields(source) => source.code(),
            Self::JobFailed { .. } => "E506",
            Self::JobCanceled { .. } => "E507",
            Self::WeightsLost { .. } => "E642",
        })
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Unreachable { source: CallError::Hello(HelloError::Token), .. } => {
                "name the token file of this cluster with --token-file, or its state directory with --state-dir"
                    .to_owned()
            }
            // Met at once, or where a standby has sent us.
            Self::Unreachable { source: CallError::Hello(HelloError::Version { .. }), .. } => {
                "this program and the engine are of different releases: use the same one everywhere".to_owned()
            }
            Self::Unreachable { .. } => {
                "is `syncline up` running, and do --engine and --token-file belong to it?".to_owned()
            }
            Self::Refused(EngineFault::NotActive { why: InactiveReason::Standby { address, .. } }) => {
                format!("name {address} as well, with a comma between: of all engines that --engine names, whoever leads is asked")
            }
            Self::Panicked(_) => {
                "please report it, with what the log of the engine says at this moment; everything else goes on"
                    .to_owned()
            }
            Self::TooLarge(source) => return source.hint(),
            Self::Refused(fault) => return fault.hint(),
            Self::UnknownFields(source) => return source.hint(),
            Self::JobFailed { job, .. } => format!("`syncline status {job}` shows how far it came"),
            Self::JobCanceled { job, .. } => {
                format!("`syncline status {job}` shows how far it came; `submit --replace` submits it again")
            }
            Self::WeightsLost { job, .. } => after_loss(job),
        };
        Some(hint)
    }
}
