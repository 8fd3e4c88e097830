//! What can be wrong with the bytes of a peer.

use std::io;

/// Why a frame could not be read. Anything but `Io` means that the peer is broken or hostile: hang up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// Reading failed, or the peer hung up in the middle of a frame.
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    /// Its first bytes are not those of any frame.
    #[error("[E430] the bytes are no frame of the tensor connection")]
    NotAFrame,
    /// No kind has this number, or only one that goes the other way.
    #[error("[E431] frame kind {0} is unknown or out of place")]
    Kind(u8),
    /// It was refused before anything was allocated for it.
    #[error("[E432] a frame of kind {kind} announced {bytes} bytes, more than it may have")]
    TooLong {
        /// Kind that the frame says it is of.
        kind: u8,
        /// Length that was announced, of its head or of its body.
        bytes: u64,
    },
    /// The fields of the head are too few, too many, or cannot be meant.
    #[error("[E433] a frame of kind {kind} has a damaged header")]
    Head {
        /// Kind that the frame says it is of.
        kind: u8,
    },
    /// The checksum over the start of the frame and its head does not fit.
    #[error("[E435] a frame of kind {kind} was changed on its way")]
    Check {
        /// Kind that the frame says it is of.
        kind: u8,
    },
    /// A frame that is whole, and no answer to what was asked; in words, what came.
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
