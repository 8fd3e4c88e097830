//! What can be wrong with the bytes of a peer.

use std::io;

/// Why a frame could not be read. Anything but `Io` means that the peer is broken or hostile: hang up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    #[error("[E430] the bytes are no frame of the tensor connection")]
    NotAFrame,
    #[error("[E431] frame kind {0} is unknown or out of place")]
    Kind(u8),
    #[error("[E432] a frame of kind {kind} announced {bytes} bytes, more than it may have")]
    TooLong { kind: u8, bytes: u64 },
    #[error("[E433] a frame of kind {kind} has a damaged header")]
    Head { kind: u8 },
    #[error("[E435] a frame of kind {kind} was changed on its way")]
    Check { kind: u8 },
    #[error("[E434] the answer does not belong to the question: {0}")]
    Unexpected(String),
}

impl WireError {
    /// Whether bytes came that nobody sent so: the same may go well over another connection.
    pub(crate) fn is_garbled(&self) -> bool {
        !matches!(self, Self::Io(_) | Self::Unexpected(_))
    }
}

impl From<WireError> for io::Error {
    fn from(error: WireError) -> Self {
        match error {
            WireError::Io(error) => error,
            other => Self::new(io::ErrorKind::InvalidData, other),
        }
    }
}
