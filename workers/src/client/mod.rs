//! What a program uses to submit jobs, to follow them, and to fetch what they learned.
//!
//! Needs neither Redis nor ONNX Runtime; with feature `train`, [`Client::submit`] also derives training
//! graphs from forward models, for which it loads ONNX Runtime.

mod absence;
mod calls;
mod cancellation;
mod checkpoint;
mod error;
mod event_stream;
#[cfg(test)]
mod fake_engine;
mod find;
mod large_values;
mod models;
mod patience;
mod repetition;
mod shard_absence;
mod submit;
mod tasks;
mod trained_job;
mod waiting;
mod weights;

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use syncline_rpc::{
    ClientServiceClient, ClientServiceRequest, ClientServiceResponse, EngineAddresses, EngineLink, Token,
    Transport, hello::Role,
};
use tarpc::{ClientMessage, Response};

#[cfg(feature = "train")]
use crate::isolation::ModelHost;

pub use cancellation::Cancellation;
pub use checkpoint::SavedCheckpoint;
pub use error::ClientError;
pub use event_stream::{EventStream, JobNews};
pub use find::{Cluster, FindError, RunningCluster, is_hidden, load_token, state_dir, token_file};
pub use patience::Patience;
pub use submit::Submitted;
pub use tasks::{AsCompleted, Completed, GraphRun, TaskError};
pub use trained_job::TrainedJob;
pub use weights::{FetchError, Parameter, Weights};

/// A client of a connection.
fn open(
    transport: Transport<Response<ClientServiceResponse>, ClientMessage<ClientServiceRequest>>,
) -> ClientServiceClient {
    ClientServiceClient::new(tarpc::client::Config::default(), transport).spawn()
}

/// A connection to the engine that leads, which comes back after it was lost; cheap to clone.
#[derive(Clone)]
pub struct Client {
    link: EngineLink<ClientServiceClient>,
    token: Token,
    patience: Patience,
    /// Whether an engine has ever answered.
    has_met: Arc<AtomicBool>,
    /// Where models are loaded; `None`: with the ONNX Runtime that is found on this machine, or fetched.
    #[cfg(feature = "train")]
    models: Option<ModelHost>,
}

impl Client {
    /// Does not connect yet: the first call does. With several engines, calls go to the one that leads.
    pub fn new(engines: impl Into<EngineAddresses>, token: Token) -> Self {
        Self {
            link: EngineLink::new(engines.into(), Role::Client, token.clone(), open),
            token,
            patience: Patience::default(),
            has_met: Arc::default(),
            #[cfg(feature = "train")]
            models: None,
        }
    }

    /// Sets for how long calls that fail are repeated. What waits for a job, as `wait` and `get` do, is never
    /// given up before five minutes.
    #[must_use]
    pub fn with_patience(self, patience: Patience) -> Self {
        Self { patience, ..self }
    }

    /// A client of somebody whom the engine has let in a moment ago.
    #[cfg(feature = "worker")]
    pub(crate) fn known_there(self) -> Self {
        self.has_met.store(true, std::sync::atomic::Ordering::Relaxed);
        self
    }

    /// A client for a program that only looks on, and asks again by itself: no engine is waited for longer
    /// than `limit`, and what fails is not repeated, but for an answer that did not come, once, at
    /// another engine. What such a client changes may be changed twice.
    #[must_use]
    pub fn read_only(self, limit: Duration) -> Self {
        let (engines, token) = (self.link.addresses().clone(), self.token.clone());
        let link = EngineLink::limited(Some(limit), engines, Role::Client, token, open);
        Self { link, ..self }.with_patience(Patience::all(Duration::ZERO))
    }

    /// Sets where this client loads models.
    #[cfg(feature = "train")]
    #[must_use]
    pub fn with_models(self, models: impl Into<ModelHost>) -> Self {
        Self { models: Some(models.into()), ..self }
    }
}
