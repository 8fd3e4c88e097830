//! Ends runs of a model from another thread.

use std::{fmt, sync::Arc};

use ort::session::RunOptions;

use crate::error::BackendError;

/// Ends the runs that were started with it. Clones are the same.
#[derive(Clone)]
pub struct Interrupt(pub(super) Arc<RunOptions>);

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interrupt")
    }
}

impl Interrupt {
    /// Once the library is loaded.
    pub(super) fn new() -> Result<Self, BackendError> {
        let options = RunOptions::new().map_err(|source| BackendError::Run { reason: source.to_string() })?;
        Ok(Self(Arc::new(options)))
    }

    /// Lets runs end with an error, those included that begin later. ONNX Runtime looks between two nodes,
    /// and between two passes of a loop: a single long node is computed to its end.
    pub fn end(&self) {
        // Setting a flag cannot fail; if it did, the run would go on, which is what its callers expect then.
        let _ = self.0.terminate();
    }
}
