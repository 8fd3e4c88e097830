//! Models for tasks, on their way to the parameter server.

use super::Client;
use crate::{
    functions::OnnxModel,
    submit::{ByteSource, SubmitError, read},
};

impl Client {
    /// Reads and checks an ONNX model and uploads it, unless the parameter server has it. The result stands
    /// for the model in calls of [`RUN_MODEL`](crate::functions::RUN_MODEL).
    ///
    /// What can be told without ONNX Runtime is told here: that it is a model, whole, and in one file. What
    /// only ONNX Runtime knows, as an operator that it lacks, fails the tasks.
    ///
    /// # Errors
    /// E301 to E308 and E615 for what is no such model, E360 for a file that cannot be read.
    pub async fn upload_model(&self, onnx: impl Into<ByteSource>) -> Result<OnnxModel, SubmitError> {
        let source = onnx.into();
        self.with_values(move |store, _| {
            let bytes = read(&source)?;
            syncline_onnx::parse(&bytes)
                .map_err(|error| SubmitError::NoModel { model: source.name(), error: error.into() })?;
            Ok(OnnxModel::new(store.put_blob(&bytes)?))
        })
        .await?
    }
}
