//! Why a local cluster did not start, or not keep its jobs.

use std::path::PathBuf;

use syncline_engine::service::EngineError;
use syncline_kit::KitError;
use syncline_ps::PsError;
use syncline_runtime::BackendError;

/// Why a local cluster did not start, or not keep its jobs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LocalError {
    /// ONNX Runtime or Redis is neither found nor fetched, or Redis does not start.
    #[error(transparent)]
    Kit(#[from] KitError),
    /// ONNX Runtime cannot be loaded, or cannot compute on the device.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The engine cannot listen, or cannot use the Redis server.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A shard cannot listen, or cannot use its folder, also to keep jobs at a stop.
    #[error(transparent)]
    Ps(#[from] PsError),
    /// Nobody would keep parameters, or large values.
    #[error("[E635] a local cluster cannot have 0 shards")]
    NoShards,
    /// The lead was not free within 8 seconds.
    #[error(
        "[E371] another engine is active in the Redis server at {redis}; use another server, or that cluster"
    )]
    Standby {
        /// Address of the server, without user name and password.
        redis: String,
    },
    /// The folder or its token file cannot be made or read.
    #[error("[E370] cannot use the state folder {path}")]
    State {
        /// Folder or file that was tried.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
}

impl LocalError {
    /// The stable code, as in the message.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Kit(source) => source.code(),
            Self::Backend(source) => source.code(),
            Self::Engine(source) => source.code(),
            Self::Ps(source) => source.code(),
            Self::NoShards => "E635",
            Self::Standby { .. } => "E371",
            Self::State { .. } => "E370",
        }
    }

    /// What the user can do about it, if there is something.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Kit(source) => source.hint(),
            Self::Backend(source) => source.hint(),
            Self::Engine(source) => source.hint(),
            Self::Ps(source) => source.hint(),
            Self::NoShards => {
                Some("give `LocalOptions::shards` 1 or more, or leave it as it is by default".to_owned())
            }
            Self::Standby { .. } => Some(
                "leave `redis` out for a server of its own, or connect to the cluster that is there"
                    .to_owned(),
            ),
            Self::State { .. } => Some("name a folder that is yours alone, on a disk with room".to_owned()),
        }
    }
}
