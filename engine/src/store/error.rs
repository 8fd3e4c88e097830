//! Why the store refused or failed.

use redis::RedisError;
use syncline_scheduler::core::Unreadable;

/// Why the store refused or failed. Codes are stable, see docs/errors.md.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    #[error("[E200] `{url}` is not a Redis address")]
    Address {
        url: String,
        #[source]
        source: RedisError,
    },
    /// Every script may be sent again, so the same call may be repeated.
    #[error("[E201] redis gave no answer to `{op}`: {cause}")]
    Unavailable { op: &'static str, cause: String },
    #[error("[E202] another engine owns this job: stored epoch {epoch} and seq {seq}")]
    Fenced { epoch: u64, seq: u64 },
    #[error("[E203] redis refused `{op}`: {cause}")]
    Refused { op: &'static str, cause: String },
    #[error("[E204] key {key} holds a {found}; something else uses Syncline's keys")]
    WrongType { key: String, found: String },
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

impl StoreError {
    /// Whether the same call may succeed later.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    pub(super) fn of(op: &'static str, error: &RedisError) -> Self {
        let cause = error.to_string();
        let passing = error.is_io_error()
            || error.is_timeout()
            || error.is_connection_dropped()
            || error.is_connection_refusal()
            || matches!(error.code(), Some("LOADING" | "BUSY" | "TRYAGAIN" | "MISCONF" | "OOM" | "READONLY"));
        if passing { Self::Unavailable { op, cause } } else { Self::Refused { op, cause } }
    }
}
